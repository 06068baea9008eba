"""The trap is detected where it exists, and only there: with lossless decoders and deliberate distortions."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from logcl import Classifier, Memory
from logcl.codecs.autoencoder import Autoencoder, AutoencoderCodecSpec
from logcl.codecs.quantised import FINENESS, QuantisedCodes
from logcl.memory import diagnostics
from logcl.memory.buffer import Chunk
from logcl.memory.local_model import Description, LocalModel
from logcl.memory.manifest import Manifest
from logcl.memory.presets import preset
from logcl.memory.samples import Run, raw
from logcl.memory.settings import override
from logcl.memory.snapshot import Snapshot
from logcl.nn.networks import AutoencoderSpec

SHAPE = (1, 8, 8)
GRID = np.indices((8, 8)).sum(axis=0) % 2 * 2.0 - 1


class Lossless(nn.Module):
    """A code of eight bits per pixel, ±1, → the image itself plus a distortion of this decoder."""

    def __init__(self, distortion: float) -> None:
        super().__init__()
        self.weights = nn.Parameter(2.0 ** torch.arange(7, -1, -1) / 255)
        self.distortion = torch.from_numpy(distortion * GRID).float()

    def forward(self, code: Tensor) -> Tensor:
        pixels = (code + 1).div(2).unflatten(1, (*SHAPE, 8)) @ self.weights
        return (pixels + self.distortion).clamp(0, 1)


def local_model(level: int, start: int, x: np.ndarray, y: np.ndarray, distortion: float) -> LocalModel:
    classes, labels = np.unique(y, return_inverse=True)
    spec = AutoencoderCodecSpec(
        decoder=AutoencoderSpec(network="mlp", image_shape=SHAPE, length=512, width=1), weights="half"
    )
    stop = start + len(y) - 1
    about = Description(
        level=level, start=start, stop=stop, samples=len(y), codec=spec, weights=None, labeller=None,
        classes=tuple(classes.tolist()), runs=(Run(len(y), (0.0,)),),
    )  # fmt: skip
    signs = 2 * np.unpackbits(x.reshape(len(x), 64), axis=1).astype(np.int16) - 1
    codes = QuantisedCodes.of(torch.from_numpy(signs * FINENESS), len(x))
    codec = Autoencoder(spec, Lossless(distortion), None)
    return LocalModel(about, codec, codes, labels, np.arange(start, stop + 1))


def snapshot(parts: Sequence[tuple], noise: float = 0.15, buffer: tuple | None = None) -> Snapshot:
    """Parts are (x, y, distortion), oldest first; a buffer is (x, y)."""
    levels, start = [], 1
    for number, (x, y, distortion) in enumerate(parts):
        levels.append(local_model(len(parts) - number - 1, start, x, y, distortion))
        start += len(y)
    x, y = buffer or (np.empty((0, *SHAPE), np.uint8), np.empty(0, np.int64))
    settings = override(preset("fast", SHAPE), {"classifier.noise": noise})
    last = start + len(y) - 1
    manifest = Manifest(n=last, last=last, classes=tuple(range(10)), settings=settings)
    chunks = (Chunk(start, last, raw(x, y, start)),) if len(y) else ()
    return Snapshot(manifest, tuple(levels), chunks, (), "digest")


def shared(digits, *distortions: float) -> list[tuple]:
    """Classes 0 to 3 in every level, but mostly 0 and 1 in the first: a class hints at the level."""
    x, y = digits
    mine = np.random.default_rng(0).permutation(np.flatnonzero(y < 4))  # the data set is sorted by writer
    first = np.concatenate([mine[y[mine] < 2][:240], mine[y[mine] >= 2][:100]])
    rest = mine[~np.isin(mine, first)]
    groups = [first, *np.array_split(rest, len(distortions) - 1)]
    return [(x[rows], y[rows], distortion) for rows, distortion in zip(groups, distortions, strict=True)]


@pytest.mark.parametrize("levels", [2, 3])
def test_without_distortions_the_probe_knows_no_more_than_the_class(digits, levels):
    found = diagnostics.level_probe(snapshot(shared(digits, *[0.0] * levels)))
    assert found.by_class == pytest.approx(1 / levels)
    assert found.guess == pytest.approx(1 / levels)
    assert (found.levels, found.classes) == (levels, 4)
    assert 150 < found.samples < 400
    assert abs(found.probe - found.by_class) < 0.1
    assert abs(found.without_noise - found.by_class) < 0.1
    assert 0.01 < found.standard_error < 0.05


def test_distortions_are_detected_and_noise_hides_them(digits):
    strong = diagnostics.level_probe(snapshot(shared(digits, 0.0, 0.3)))
    weak = diagnostics.level_probe(snapshot(shared(digits, 0.0, 0.05), noise=0.3))
    assert strong.probe > 0.95
    assert weak.without_noise > 0.9
    assert weak.probe < weak.without_noise - 0.1


def test_without_noise_both_probes_are_the_same(digits):
    found = diagnostics.level_probe(snapshot(shared(digits, 0.0, 0.1), noise=0.0))
    assert found.probe == found.without_noise > 0.9


def test_the_buffer_is_one_more_level(digits):
    x, y, _ = shared(digits, 0.0, 0.0)[1]
    found = diagnostics.level_probe(snapshot(shared(digits, 0.1, 0.1), noise=0.0, buffer=(x, y)))
    assert found.levels == 3
    assert found.by_class == pytest.approx(1 / 3)
    assert found.probe > 0.55  # raw differs from decoded; the two levels do not differ


def test_the_same_seed_gives_the_same_measurement(digits):
    now = snapshot(shared(digits, 0.0, 0.05))
    assert diagnostics.level_probe(now) == diagnostics.level_probe(now)


def test_nothing_to_compare(digits):
    x, y = digits
    one, other = y < 2, (y >= 2) & (y < 4)
    apart = [(x[one], y[one], 0.0), (x[other], y[other], 0.3)]
    assert diagnostics.level_probe(snapshot(apart)) is None  # no class in two levels
    assert diagnostics.level_probe(snapshot(apart[:1])) is None
    assert diagnostics.level_probe(snapshot([], buffer=(x[:50], y[:50]))) is None
    tiny = [(x[:5], y[:5] * 0, 0.0), (x[5:9], y[5:9] * 0, 0.0), (x[9:10], y[9:10] * 0, 0.0)]
    assert diagnostics.level_probe(snapshot(tiny)) is None
    assert diagnostics.level_probe(snapshot([])) is None


class Brightness(nn.Module):
    """Predicts class 0 for dark images and class 2 for bright ones, whatever they show: the trap."""

    def forward(self, image: Tensor) -> Tensor:
        scores = torch.full((len(image), 10), -1.0)
        scores[:, 0] = 0.5 - image.mean(dim=(1, 2, 3))
        scores[:, 2] = -scores[:, 0]
        return scores


def test_the_gap_shows_good_replay_and_bad_tests():
    dark, bright = np.zeros((30, *SHAPE), np.uint8), np.full((20, *SHAPE), 255, np.uint8)
    now = snapshot([(dark, np.zeros(30, np.int64), 0.0), (bright, np.full(20, 2), 0.0)])
    test_x = np.zeros((40, *SHAPE), np.uint8)
    test_y = np.repeat([0, 2, -1], [20, 10, 10])
    gap = diagnostics.level_gap(now, Brightness(), test_x, test_y)
    assert [(level.level, level.samples, level.classes) for level in gap.levels] == [(1, 30, 1), (0, 20, 1)]
    assert [level.replay for level in gap.levels] == [1.0, 1.0]
    assert [level.test for level in gap.levels] == [1.0, 0.0]
    assert gap.gap == 1.0


def test_a_class_belongs_to_the_level_that_holds_most_of_it():
    x = np.zeros((9, *SHAPE), np.uint8)
    buffer = (x[:4], np.array([1, 1, 1, 2]))
    now = snapshot([(x, np.array([0, 0, 0, 0, 0, 1, 1, 2, 2]), 0.0)], buffer=buffer)
    gap = diagnostics.level_gap(now, Brightness(), x[:2], np.array([0, 0]))
    assert [(level.level, level.samples, level.classes) for level in gap.levels] == [(0, 9, 2), (None, 4, 1)]
    assert gap.levels[0].replay == pytest.approx(5 / 9)
    assert [level.test for level in gap.levels] == [1.0, None]
    assert gap.gap is None  # only one level has test images


@pytest.mark.parametrize(("preset_name", "codec"), [("fast", "autoencoder"), ("paper-cpu", "index")])
def test_a_real_memory(tmp_path, digits, quick, preset_name, codec):
    settings = {**quick, "codec.name": codec}
    memory = Memory.open(tmp_path / "m.logcl", SHAPE, preset=preset_name, unit=64, settings=settings)
    memory.absorb(digits[0][:200], digits[1][:200])
    classifier = Classifier.train(memory)
    places = {label: number for number, label in enumerate(memory.classes)}
    test_y = np.array([places[label] for label in digits[1][900:]])
    trap = diagnostics.measure(memory.snapshot(), classifier.network, digits[0][900:], test_y)
    assert trap.probe.levels == 2
    assert trap.probe.without_noise > trap.probe.by_class  # two poor decoders
    assert [level.level for level in trap.gap.levels] == [1, 0, None]
    assert sum(level.samples for level in trap.gap.levels) == 200
    assert sum(level.classes for level in trap.gap.levels) == 10


def test_large_images_are_cropped(tmp_path, quick):
    x = np.random.default_rng(0).integers(0, 256, (50, 1, 40, 70), dtype=np.uint8)
    settings = {**quick, "codec.name": "autoencoder", "codec.width": 2, "codec.symbols": 8}
    memory = Memory.open(tmp_path / "m.logcl", (1, 40, 70), unit=16, settings=settings)
    memory.absorb(x, np.zeros(50, np.int64))
    assert diagnostics.level_probe(memory.snapshot()).levels == 2
