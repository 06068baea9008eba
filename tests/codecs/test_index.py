"""Rows shared by several samples: solved exactly where the row is wide enough, any level, any shape."""

import numpy as np
import pytest
import torch
from logcl.codecs.stored import IndexCodes
from torch import nn

from logcl.allocation import Slot
from logcl.codecs import bits as codes
from logcl.core.errors import BadSettings
from logcl.memory.local_model import LocalModel
from logcl.memory.presets import preset
from logcl.memory.samples import raw
from logcl.memory.settings import override
from logcl.nn.networks import AutoencoderSpec, SuperposedDecoder, decoder, encoder, latent_numbers, superpose
from logcl.nn.training import generator_for, seeded

SHAPE = (1, 8, 8)


@pytest.mark.parametrize("sharing", [1, 2, 7])
def test_a_row_holds_the_latents_of_all_its_samples(sharing):
    """Every sample's hidden units come out as if it had a row to itself."""
    bits, width, rows = 4, 96, 16
    numbers = latent_numbers(width, sharing, SHAPE)
    assert numbers * sharing <= width
    masks = torch.from_numpy(codes.signs(codes.orthogonal_codes(np.arange(8, 8 + sharing), width)))
    with seeded(generator_for(0)):
        network = SuperposedDecoder(SHAPE, bits, width)
        hidden = nn.Linear(numbers, network.hidden.out_features)
        latents = torch.randn(sharing, rows, numbers)
        superpose(network, latents, masks, hidden)
    for turn in range(sharing):
        mixed = network.hidden(network.table.weight * masks[turn])
        assert torch.allclose(mixed, hidden(latents[turn]), atol=1e-4)


def test_the_code_is_the_address_and_the_signs():
    spec = AutoencoderSpec(network="superposed", image_shape=(3, 9, 14), length=3, width=10)
    with seeded(generator_for(0)):
        network = decoder(spec)
    indices = np.array([1, 2, 8, 9, 1000])
    inputs = IndexCodes(1, spec.code_length, spec.length).inputs(indices - 1)
    assert inputs.shape == (5, spec.code_length) == (5, 13)
    images = network(torch.from_numpy(inputs))
    assert images.shape == (5, 3, 9, 14)
    address = torch.from_numpy((indices - 1) % 8)
    signs = torch.from_numpy(codes.signs(codes.orthogonal_codes((indices - 1) // 8, 10)))
    assert torch.equal(images, network.look_up(address, signs))
    assert (images[0] != images[3]).any()  # one row, two masks


def test_every_bit_of_the_code_reaches_the_image():
    spec = AutoencoderSpec(network="superposed", image_shape=SHAPE, length=5, width=20)
    with seeded(generator_for(0)):
        network = decoder(spec)
    flipped = 1 - 2 * torch.eye(spec.code_length)
    changes = (network(flipped) - network(torch.ones(1, spec.code_length))).abs().flatten(1).amax(dim=1)
    assert (changes > 0).all()


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 14)])
@pytest.mark.parametrize(("start", "count"), [(1, 1), (5, 2), (3, 40), (1, 64)])
def test_any_level(shape, start, count):
    """Fewer samples than rows, rows in use twice, starts between the turns; no order changes."""
    x = np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)
    settings = override(
        preset("paper-cpu", shape),
        {"codec.bits": 4, "codec.width": 600, "codec.min_steps": 150, "codec.epochs": 1},
    )
    slot = Slot(0, start, start + count - 1)
    model, order = LocalModel.fit(slot, raw(x, np.zeros(count, np.int64)), settings, 0)
    assert order.tolist() == list(range(count))
    back, _ = LocalModel.from_bytes(model.to_bytes(), "level").replay()
    assert np.abs(back.numpy().astype(int) - x.astype(int)).mean() < 25  # noise; the mean image has 64


def test_more_samples_than_numbers_in_a_row_still_fit(digits):
    x, y = digits
    settings = override(
        preset("paper-cpu", SHAPE),
        {"codec.bits": 2, "codec.width": 8, "codec.min_steps": 30, "codec.epochs": 1},
    )
    model, _ = LocalModel.fit(Slot(0, 1, 128), raw(x[:128], y[:128]), settings, 0)
    assert model.replay()[0].shape == (128, 1, 8, 8)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"codec.codes": "binary"}, "not superposed"),
        ({"codec.bits": 21}, "bits up to 20"),
    ],
)
def test_settings_that_contradict_each_other(changes, problem):
    with pytest.raises(BadSettings, match=problem):
        override(preset("paper-cpu", SHAPE), changes)


def test_it_has_no_encoder_of_its_own():
    with pytest.raises(ValueError, match="no encoder"):
        encoder(AutoencoderSpec(network="superposed", image_shape=SHAPE, length=3, width=8), centred=True)


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32)])
def test_levels_follow_the_papers_sizes(shape):
    """The rows of a table are the same at every level; its width carries the ratio."""
    from logcl.memory.local_model import size_ratio
    from logcl.nn.networks import sized, weight_count

    options = preset("paper-cpu", shape).generator
    largest = AutoencoderSpec(
        network="superposed", image_shape=shape, length=options.bits, width=options.width
    )  # fmt: skip
    for level in range(7):
        ratio = size_ratio(level, 6)
        assert abs(weight_count(sized(largest, ratio)) / weight_count(largest) - ratio) < 0.01
