"""Forged codes of `pixels` and `pyramid`: exact at the bounds, and no room or time for what is not there."""

from __future__ import annotations

import zlib
from itertools import pairwise

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from logcl.codecs.coding import ans
from logcl.codecs.pixels.codec import Pixels, PixelsSpec, _inputs, lattice
from logcl.codecs.pixels.coder import ContextCoder
from logcl.codecs.pixels.model import LARGEST_INPUT, ContextModel
from logcl.codecs.pyramid import context as pyramid_context
from logcl.codecs.pyramid import layout as pyramid_layout
from logcl.codecs.pyramid import networks as pyramid_networks
from logcl.codecs.pyramid import streams as pyramid_streams
from logcl.codecs.pyramid.codec import Pyramid, PyramidSpec, _encoded
from logcl.codecs.pyramid.codes import PyramidCodes, joined
from logcl.codecs.pyramid.context import Format
from logcl.codecs.pyramid.networks import LATEST
from logcl.codecs.pyramid.predictor import LARGEST_ACTIVATION, OUTPUTS, REACH, UNIT, squash
from logcl.core.errors import Damaged
from logcl.memory import claims

WORST = 1 << 24  # integers up to here are exact in float32


def extreme(shape, symbols, rng, weight=-128, bias=2**22, shift=0) -> dict[str, torch.Tensor]:
    """Tensors of the largest weights and biases that are accepted, with random signs."""
    sizes = [lattice(shape).inputs, 64, 64, symbols]
    found = {"shifts": torch.full((3,), shift, dtype=torch.uint8)}
    for number, (before, after) in enumerate(pairwise(sizes)):
        weights = rng.choice([weight, 127], (after, before)).astype(np.int8)
        found[f"weights.{number}"] = torch.from_numpy(weights)
        found[f"biases.{number}"] = torch.from_numpy(rng.choice([-bias, bias], after).astype(np.int32))
    return found


@pytest.mark.parametrize("shift", [0, 3, 12])
@pytest.mark.parametrize("one_sign", [True, False])
def test_networks_that_are_accepted_are_exact(shift, one_sign):
    """Sums stay below 2^24 whatever the weights: floats find what 64-bit integers find."""
    rng = np.random.default_rng(0)
    tensors = extreme((1, 9, 9), 64, rng, shift=shift)
    if one_sign:  # every sum is as large as it can be
        tensors |= {f"weights.{layer}": torch.full_like(tensors[f"weights.{layer}"], 127) for layer in (0, 1)}
        tensors |= {f"biases.{layer}": torch.full_like(tensors[f"biases.{layer}"], 2**22) for layer in (0, 1)}
    model = ContextModel.restore(tensors, lattice((1, 9, 9)), 64, "weights")
    context = rng.choice([0, LARGEST_INPUT], (5, 20, 7)).astype(np.float32)
    places = rng.choice([-LARGEST_INPUT, LARGEST_INPUT], (5, 4)).astype(np.float32)
    first = model.first_layer(context) + model.place_biases(places)[:, :, None]
    values = np.concatenate([context, np.repeat(places[:, :, None], 7, 2)], axis=1).astype(np.int64)
    for layer in range(3):
        weights = tensors[f"weights.{layer}"].numpy().astype(np.int64)
        values = weights @ values + tensors[f"biases.{layer}"].numpy().astype(np.int64)[:, None]
        assert np.abs(values).max() < WORST
        if layer == 0:
            assert np.array_equal(values, first)
        if layer < 2:
            values = np.minimum(np.maximum(values, 0) >> shift, 1023)
    exact = np.minimum((values.max(axis=1, keepdims=True) - values) * 32 // (64 << shift), 511)
    powers = np.rint(2.0 ** (16 - exact / 32)).astype(np.int64)
    sizes = powers * (ans.TOTAL - 64) // powers.sum(axis=1, keepdims=True) + 1
    most = powers.argmax(axis=1)[:, None]
    rest = ans.TOTAL - sizes.sum(axis=1, keepdims=True)
    np.put_along_axis(sizes, most, np.take_along_axis(sizes, most, 1) + rest, 1)
    found = model.cumulative(first)
    assert np.array_equal(np.diff(found, axis=1), sizes)
    assert sizes.min() >= 1


def test_the_bounds_of_weights_and_biases_leave_room():
    inputs = lattice((1, 28, 28)).inputs
    assert inputs * 128 * LARGEST_INPUT + 2**22 < WORST
    assert WORST > 64 * 128 * 1023 + 2**22


@pytest.mark.parametrize("tensor", ["weights.1", "biases.1", "shifts", "weights.0"])
def test_larger_networks_are_refused(tensor):
    tensors = extreme((1, 9, 9), 8, np.random.default_rng(0))
    change = {
        "weights.1": lambda value: torch.zeros((65, 64), dtype=torch.int8),
        "biases.1": lambda value: value.abs() + 1,
        "shifts": lambda value: value + 13,
        "weights.0": lambda value: value[:, 1:],
    }
    with pytest.raises(Damaged, match="network"):
        ContextModel.restore({**tensors, tensor: change[tensor](tensors[tensor])}, lattice((1, 9, 9)), 8, "w")


@pytest.mark.parametrize("version", range(1, LATEST + 1))
def test_networks_of_the_package_are_exact_and_so_are_pyramids(version):
    """Also for integers as large as a forged file can make them."""
    names = {
        key.split(".")[0] for key in pyramid_networks.arrays(version) if not key.startswith("restoration")
    }
    stages = max(len(pyramid_layout.stages((1, *sides))) for sides in ((64, 64), (1, 256), (16, 256)))
    largest = np.abs(squash(np.array([2**40]))).max()
    expected = 0.0
    for name in names:
        networks = pyramid_networks.predictor(version, name)
        values = np.full((1, networks.weights[0].shape[2], 1), float(largest))
        values[0, :3, 0] = 16, 16 * 8.8, 16 * stages  # places
        for layer in range(3):
            sums = np.abs(networks.weights[layer].astype(float)) @ values + np.abs(networks.biases[layer])
            assert sums.max() < WORST
            values = np.full((1, networks.weights[layer].shape[1], 1), float(LARGEST_ACTIVATION))
        assert sums.shape[1] == OUTPUTS
        expected = max(expected, float((sums * networks.scales[-1]).max()) / UNIT)
    symbol = expected + 1 + REACH + 2**12
    for shape in ((3, 64, 64), (3, 1, 256), (3, 16, 256)):
        contexts = pyramid_context.Contexts(Format(shape, version), np.array([255]), 1)
        mean = 2.0 ** int(contexts.mean_bits[0])
        product = (4096 / 2**0.5) ** 2
        for _ in range(stages):
            assert (mean + 15 * symbol) * UNIT * product < 2**53
            mean += 8 * symbol  # a pixel of the next stage


@pytest.mark.parametrize(
    ("spec", "shape"),
    [(PyramidSpec, (3, 65, 64)), (PyramidSpec, (1, 1, 257)), (PyramidSpec, (2, 8, 8)),
     (PyramidSpec, (1, 1, 1)), (PixelsSpec, (1, 129, 128)), (PixelsSpec, (1, 1, 1025)),
     (PixelsSpec, (3, 8, 8))],
)  # fmt: skip
def test_shapes_that_take_too_long_are_refused(spec, shape):
    more = (
        {"networks": 1, "step": 0} if spec is PyramidSpec else {"shades": [0, 9], "trained": 1, "quality": 9}
    )
    with pytest.raises(ValidationError):
        spec(image_shape=shape, **more)


def level(counts, shape=(1, 16, 32), step=80) -> PyramidCodes:
    """Streams of blank images, as many in each as `counts` says."""
    return joined([_encoded(np.full((count, *shape), 77, np.uint8), step)[0] for count in counts])


@pytest.mark.parametrize("counts", [[1] * 40, [16, *[1] * 40], [*[1] * 20, 16, *[2] * 20, 16]])
def test_streams_of_one_image_take_the_room_of_one(monkeypatch, counts):
    """A stream has up to 16 images; one of a single image was decoded as if it had 16."""
    taken = []

    class Counted(pyramid_context.Contexts):
        def __init__(self, format_, steps, together):
            super().__init__(format_, steps, together)
            taken.append(self.images)

    monkeypatch.setattr(pyramid_context, "_AT_ONCE", 32 * 16 * 4)
    codes = level(counts)
    monkeypatch.setattr(pyramid_streams, "Contexts", Counted)
    images = codes.decode()
    assert images.shape == (sum(counts), 1, 16, 32)
    assert int(images.max()) - int(images.min()) <= 2
    assert max(taken) <= 4 * 16
    assert sum(taken) // 2 <= 2 * sum(counts) + 32  # counted for the integers and for the images


def test_images_of_uneven_streams_keep_their_order():
    rng = np.random.default_rng(0)
    x = (rng.integers(0, 256, (30, 1, 4, 4)) // 2 + 60).astype(np.uint8)
    ends = np.cumsum([3, 16, 1, 1, 9])
    parts = [
        _encoded(x[end - count : end], 200)[0] for end, count in zip(ends, [3, 16, 1, 1, 9], strict=True)
    ]
    codes = joined(parts)
    assert np.abs(codes.decode().numpy().astype(int) - x).max() < 20
    rows = np.array([29, 0, 5, 5, 19, 20, 2])
    some = codes.select(rows)
    assert np.abs(some.decode().numpy().astype(int) - codes.decode().numpy()[rows]).max() <= 1


@pytest.mark.parametrize("shape", [(1, 1, 2), (1, 1, 1024), (1, 1024, 1), (1, 3, 700), (1, 28, 28)])
def test_lattices_have_no_empty_waves_and_narrow_batches(shape):
    """Waves without pixels took time, and those of very small images gigabytes."""
    grid = lattice(shape)
    assert min(map(len, grid.waves)) > 0
    assert np.array_equal(np.sort(np.concatenate(grid.waves)), np.arange(len(grid)))
    tensors = extreme(shape, 64, np.random.default_rng(0))
    model = ContextModel.restore(tensors, grid, 64, "weights")
    coder = ContextCoder(model, grid, _inputs(range(64)))
    assert coder._at_once * max(map(len, grid.waves)) * 64 <= 2**21 + 16 * 64 * 64
    assert coder._at_once % coder.together == 0


def restored(about: bytes, samples: int, shape=(1, 16, 32)) -> PyramidCodes:
    tensors = level([1] * 4).tensors() | {"streams": torch.from_numpy(np.frombuffer(about, np.uint8).copy())}
    return PyramidCodes.restore(tensors, samples, Format(shape, LATEST), "level-3")


@pytest.mark.parametrize(
    "about",
    [b"", zlib.compress(b""), zlib.compress(bytes(8)), zlib.compress(b"PPPP\1\1\1\1")[:-1], b"x",
     zlib.compress(b"PPPP\1\1\1\1") + b"x", zlib.compress(b"PPP\1\1\2"), zlib.compress(bytes(2**24)),
     zlib.compress(b"P\4"), zlib.compress(b"PPPP\1\1\1"), zlib.compress(b"PPPP\0\1\1\2")],
    ids=range(11),
)  # fmt: skip
def test_streams_that_are_described_wrongly_are_refused(about):
    with pytest.raises(Damaged, match="level-3"):
        restored(about, 4).decode()


def test_streams_that_are_described_rightly_are_read():
    assert restored(zlib.compress(b"PPPP\1\1\1\1"), 4).decode().shape == (4, 1, 16, 32)


@pytest.mark.parametrize("shape", [(3, 33, 18), (1, 1, 9), (3, 4, 4)])
@pytest.mark.parametrize("step", [0, 255])
@pytest.mark.parametrize("fill", ["zeros", "ones", "random"])
def test_any_words_end_in_images_or_an_error(shape, step, fill):
    rng = np.random.default_rng(step)
    words = (
        rng.integers(0, 2**16, 40_000, dtype=np.uint16) if fill == "random" else np.zeros(40_000, np.uint16)
    )
    words = words if fill != "ones" else words - np.uint16(1)
    codes = PyramidCodes(
        ans.Streams(np.array([39_998, 2]), words),
        np.array([step, 255], np.uint8),
        np.ones(2, np.uint8),
        Format(shape, LATEST),
    )
    with np.errstate(all="raise"), pytest.raises(Damaged, match="do not decode"):
        codes.decode()


def test_a_coder_of_pixels_refuses_any_words():
    shape, rng = (1, 12, 11), np.random.default_rng(1)
    spec = PixelsSpec(image_shape=shape, shades=tuple(range(0, 64, 4)), trained=1, quality=9)
    for shift in (0, 12):
        codec = Pixels.restore(spec, extreme(shape, 16, rng, shift=shift), "weights")
        words = torch.from_numpy(rng.integers(0, 256, 4000, np.uint8))
        lengths = torch.tensor([11, 2000 & 255, 2000 >> 8], dtype=torch.uint8)
        codes = codec.restore_codes({"lengths": lengths, "words": words}, np.arange(7), 10**4, "level-1")
        with np.errstate(all="raise"), pytest.raises(Damaged, match="level-1"):
            codec.decode(codes, np.arange(7))


@pytest.mark.parametrize(
    ("codec", "spec", "seconds"),
    [(Pyramid, {"image_shape": (3, 64, 64)}, 0.0055), (Pyramid, {"image_shape": (3, 48, 48)}, 0.0028),
     (Pixels, {"image_shape": (1, 128, 128), "shades": [0] * 64}, 0.020),
     (Pixels, {"image_shape": (1, 128, 128), "shades": "forged"}, 0.020),
     (Pixels, {"image_shape": (1, 128, 128), "shades": [0] * 8}, 0.006)],
)  # fmt: skip
def test_what_takes_time_claims_bytes(codec, spec, seconds):
    """As measured: a file of few bytes may claim 20 s of decoding, and 2 ms per sample."""
    shape = spec["image_shape"]
    each = claims.of_samples(1, shape, claims.COPIED, codec.effort(spec, shape))
    assert claims._SMALL / each * (seconds - 0.002) < 20


@pytest.mark.parametrize(
    ("codec", "shape", "stored"), [(Pixels, (1, 28, 28), 20), (Pyramid, (3, 32, 32), 60)]
)
def test_small_codes_need_no_padding(codec, shape, stored):
    spec = {"image_shape": shape, "shades": [0] * 8}
    each = claims.of_samples(1, shape, claims.COPIED, codec.effort(spec, shape))
    assert claims.missing_bytes(100_000 * each, 100_000 * stored) == 0
