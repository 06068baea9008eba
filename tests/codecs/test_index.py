"""Index codes: samples keep to their run, rows are shared exactly where they are wide enough, any level."""

import numpy as np
import pytest
import torch
from torch import nn

from logcl.allocation import Slot
from logcl.codecs.coding import bits as codes
from logcl.codecs.index import IndexCodes, IndexSettings, inputs
from logcl.core.errors import BadSettings, Damaged
from logcl.memory.local_model import LocalModel
from logcl.memory.presets import preset
from logcl.memory.samples import raw
from logcl.memory.settings import override
from logcl.nn.networks import AutoencoderSpec, SuperposedDecoder, decoder, encoder, latent_numbers, superpose
from logcl.nn.training import generator_for, seeded
from tests.helpers import decoded, fit_codec, fit_input, reread

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
    given = inputs(indices, spec)
    assert given.shape == (5, spec.code_length) == (5, 13)
    images = network(torch.from_numpy(given))
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
    model, order = LocalModel.fit(slot, raw(x, np.zeros(count, np.int64), start), settings, 0)
    assert order.tolist() == list(range(count))
    back, _ = reread(model).replay()
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
        ({"codec.bits": 21}, "bits up to 20"),
        ({"codec.network": "conv"}, "codec.index.network|codec.network"),
        ({"codec.assignment": "optimal"}, "assignment"),
        ({"codec.psnr": 20}, "no setting 'codec.psnr'"),
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
    from logcl.codecs.base import size_ratio
    from logcl.nn.networks import sized, weight_count

    options = preset("paper-cpu", shape).codec
    largest = AutoencoderSpec(
        network="superposed", image_shape=shape, length=options.bits, width=options.width
    )  # fmt: skip
    for level in range(7):
        ratio = size_ratio(level, 6)
        assert abs(weight_count(sized(largest, ratio)) / weight_count(largest) - ratio) < 0.01


def test_samples_stay_within_their_group(digits):
    """Matching permutes images, but never across histories."""
    settings = IndexSettings(network="mlp", bits=16, width=16, epochs=1, warm_up_epochs=1)
    fitted = fit_codec(fit_input(digits[0][:96], [32, 1, 63]), settings)
    assert set(fitted.order[:32].tolist()) == set(range(32))
    assert fitted.order[32] == 32
    assert set(fitted.order[33:].tolist()) == set(range(33, 96))
    assert fitted.order.tolist() != list(range(96))


def test_a_level_that_was_moved_keeps_its_codes(digits):
    """Codes are those of the indices it was fitted with, wherever the level is now, also with gaps."""
    settings = IndexSettings(network="mlp", bits=16, width=16, epochs=1, warm_up_epochs=1)
    fitted = fit_codec(fit_input(digits[0][:20], first=33), settings)
    codec, whole = fitted.codec, decoded(fitted)
    moved = codec.restore_codes(fitted.codes.tensors(), np.arange(1, 21), 10**6, "level")
    assert np.array_equal(codec.decode(moved, np.arange(20)), whole)
    rows = np.array([2, 3, 7, 19])
    some = codec.restore_codes(fitted.codes.select(rows).tensors(), np.arange(1, 21)[rows], 10**6, "level")
    assert some.indices.tolist() == (33 + rows).tolist()
    assert np.array_equal(codec.decode(some, np.arange(4)), codec.decode(fitted.codes, rows))


@pytest.mark.parametrize(
    "first",
    [torch.tensor([0]), torch.tensor([-1]), torch.tensor([2**62]), torch.tensor([1.0]), torch.tensor(1),
     torch.tensor([2**16]), torch.tensor([1, 2]), torch.tensor([1], dtype=torch.int32)],
    ids=str,
)  # fmt: skip
def test_codes_of_impossible_indices_are_refused(digits, first):
    settings = IndexSettings(network="mlp", bits=16, width=4, epochs=1, assignment="none")
    codec = fit_codec(digits[0][:4], settings).codec
    with pytest.raises(Damaged, match="level-0"):
        codec.restore_codes({"first": first}, np.arange(1, 5), 10**6, "level-0")
    with pytest.raises(Damaged, match="more samples than its bytes can hold"):
        codec.restore_codes({}, np.arange(1, 1000), 100, "level-0")


def test_more_samples_than_codes_are_refused(digits):
    settings = IndexSettings(network="mlp", bits=3, width=64, epochs=1, assignment="none")
    assert len(fit_codec(digits[0][:7], settings).codes) == 7
    with pytest.raises(BadSettings, match=r"sample 8 needs a code of more than codec\.bits = 3 bits"):
        fit_codec(digits[0][:8], settings)


def test_codes_take_no_bytes(digits):
    settings = IndexSettings(network="mlp", bits=16, width=16, epochs=1, assignment="none")
    sizes = {
        n: [t.nbytes for t in fit_codec(digits[0][:n], settings).codes.tensors().values()] for n in (8, 64)
    }
    assert sizes[8] == sizes[64] == [8]
    assert isinstance(fit_codec(digits[0][:8], settings).codes, IndexCodes)
