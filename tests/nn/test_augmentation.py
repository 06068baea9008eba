"""Augmentation: each image is shifted, flipped and made noisy independently of the others."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from logcl.core.settings import ClassifierSettings
from logcl.nn.augmentation import augment, mirrored, shifted

PLAIN = ClassifierSettings(noise=0)


@pytest.fixture(autouse=True)
def _own_seed():
    """Augmentation draws from torch's global state, which `training.fit` seeds."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def images(count: int, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand((count, *shape), generator=torch.Generator().manual_seed(seed))


def moved(image: np.ndarray, down: int, right: int) -> np.ndarray:
    """One image (C, H, W) shifted with numpy, its edges reflected."""
    most = max(abs(down), abs(right))
    wide = np.pad(image, ((0, 0), (most, most), (most, most)), "reflect")
    height, width = image.shape[1:]
    return wide[:, most - down : most - down + height, most - right : most - right + width]


def shift_of(before: torch.Tensor, after: torch.Tensor, most: int) -> tuple[int, int] | None:
    for down in range(-most, most + 1):
        for right in range(-most, most + 1):
            if np.array_equal(moved(before.numpy(), down, right), after.numpy()):
                return down, right
    return None


@given(
    channels=st.integers(1, 3),
    height=st.integers(3, 9),
    width=st.integers(3, 9),
    most=st.integers(1, 2),
    seed=st.integers(0, 2**31),
)
@hypothesis_settings(max_examples=30)
def test_each_image_is_shifted_by_a_few_pixels(channels, height, width, most, seed):
    torch.manual_seed(seed)
    before = images(6, channels, height, width, seed=seed)
    after = shifted(before, most)
    assert after.shape == before.shape
    assert all(shift_of(*pair, most) is not None for pair in zip(before, after, strict=True))


def test_shifts_are_uniform_and_drawn_per_image():
    before = images(1, 2, 8, 8).expand(900, -1, -1, -1)
    found = [shift_of(before[0], after, 1) for after in shifted(before, 1)]
    counts = {shift: found.count(shift) for shift in set(found)}
    assert len(counts) == 9
    assert min(counts.values()) > 60
    assert max(counts.values()) < 145


def test_images_smaller_than_the_shift_are_shifted_less():
    before = images(40, 1, 3, 5)
    after = shifted(before, 64)
    assert after.shape == before.shape
    assert all(shift_of(*pair, 2) is not None for pair in zip(before, after, strict=True))
    line = images(4, 1, 1, 9)
    assert torch.equal(shifted(line, 3), line)


def test_about_half_of_the_images_are_flipped_horizontally():
    before = images(1000, 3, 4, 5)
    after = mirrored(before)
    same = (after == before).flatten(1).all(dim=1)
    flipped = (after == before.flip(3)).flatten(1).all(dim=1)
    assert torch.equal(same, ~flipped)
    assert 420 < int(flipped.sum()) < 580


def test_nothing_is_changed_or_drawn_without_augmentation():
    before = images(10, 1, 8, 8)
    state = torch.get_rng_state()
    assert torch.equal(augment(before, PLAIN), before)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("change", [{"mirror": True}, {"shift": 2}, {"noise": 0.1}])
def test_each_setting_has_an_effect(change):
    before = images(50, 1, 8, 8)
    kept = before.clone()
    after = augment(before, PLAIN.model_copy(update=change))
    assert after.shape == before.shape
    assert not torch.equal(after, before)
    assert torch.equal(before, kept)  # the memory's images are not written to


def test_noise_is_white_and_has_the_given_standard_deviation():
    before = images(200, 1, 8, 8)
    noise = augment(before, PLAIN.model_copy(update={"noise": 0.2})) - before
    assert float(noise.std()) == pytest.approx(0.2, rel=0.05)
    assert abs(float(noise.mean())) < 0.01
    assert abs(float((noise[:, :, 1:] * noise[:, :, :-1]).mean())) < 0.002


def test_augmentation_depends_on_the_seed():
    before = images(20, 3, 8, 8)
    settings = PLAIN.model_copy(update={"mirror": True, "shift": 2, "noise": 0.1})
    results = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        results.append(augment(before, settings))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])
