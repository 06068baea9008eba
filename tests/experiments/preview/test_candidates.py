"""Which sizes a preview compares, what it measures, and which size it recommends."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from logcl import Classifier, Memory
from logcl.core.errors import BadSettings
from logcl.core.progress import Silent
from logcl.core.sizes import parse_size
from logcl.experiments.preview.candidates import Candidate, Row, candidates, recommended
from logcl.experiments.preview.source import look
from logcl.nn import backbones


@pytest.fixture
def folder(tmp_path):
    def make(*sizes, mode="RGB"):
        rng = np.random.default_rng(0)
        place = tmp_path / "photos" / "cat"
        place.mkdir(parents=True)
        for number, (width, height) in enumerate(sizes):
            pixels = rng.integers(0, 256, (3, 4, 3), dtype=np.uint8)
            Image.fromarray(pixels).convert(mode).resize((width, height)).save(place / f"{number}.png")
        return str(tmp_path / "photos")

    return make


@pytest.fixture
def backbone(monkeypatch):
    """A tiny network in place of the pretrained one."""
    with torch.random.fork_rng():
        network = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 8))
    own = backbones.Backbone.of(network, (3, 16, 16))
    monkeypatch.setattr(backbones, "load", lambda _name: own)
    return own


@pytest.mark.parametrize(
    ("sizes", "shapes"),
    [
        ([(300, 400), (500, 250)], ["32x32", "64x64", "128x128", "224x224", "own"]),
        ([(150, 160), (90, 160), (151, 160)], ["32x32", "64x64", "128x128", "own"]),
        ([(100, 100)] * 2, ["32x32", "64x64", "100x100", "own"]),
        ([(64, 64)] * 2, ["64x64", "own"]),
        ([(28, 28)] * 2, ["28x28"]),
        ([(12, 20), (14, 20)], ["13x13"]),
        ([(5000, 20), (4000, 20)], ["20x20"]),
    ],
)
def test_sizes_that_make_sense_are_compared(folder, sizes, shapes, backbone):
    source = look(folder(*sizes), [], progress=Silent())
    assert [candidate.name for candidate in candidates(source, {})] == shapes
    asked = look(source.name, [parse_size(9), parse_size((1, 7, 8))], progress=Silent())
    assert [candidate.shape for candidate in candidates(asked, {})][:2] == [(3, 9, 9), (1, 7, 8)]


def test_features_are_measured_like_images(folder, backbone):
    sizes = [(100 + number, 90) for number in range(20)]
    source = look(folder(*sizes), [], progress=Silent())
    *_, candidate = candidates(source, {"codec.psnr": 20, "codec.name": "cosine"})
    found = candidate.measure(source)
    assert (found.row.name, found.row.codec, found.row.option) == ("own", "features", "--backbone own")
    assert (found.row.psnr, found.replayed) == (None, None)
    assert 0 < found.row.bytes_per_sample * 20 < 20_000
    assert found.row.train_seconds > 0


def test_without_the_packages_of_a_backbone_there_is_no_row(folder, monkeypatch):
    def missing(_name):
        raise BadSettings("the backbone needs two small packages")

    monkeypatch.setattr(backbones, "load", missing)
    source = look(folder((100, 100)), [], progress=Silent())
    assert [candidate.name for candidate in candidates(source, {})] == ["32x32", "64x64", "100x100"]


def test_what_is_measured_is_what_a_memory_of_all_images_takes(tmp_path, digits):
    x, y = digits
    np.savez(tmp_path / "digits.npz", x=x[:960], y=y[:960])
    source = look(str(tmp_path / "digits.npz"), [], progress=Silent())
    (candidate,) = candidates(source, {"codec.name": "cosine", "classifier.width": 4})
    found = candidate.measure(source)
    changes = {"codec.name": "cosine", "classifier.width": 4}
    memory = Memory.open(tmp_path / "m.logcl", (1, 8, 8), settings=changes)
    memory.absorb(x[:960], y[:960])
    assert found.row.memory_bytes == pytest.approx(memory.nbytes(), rel=0.2)
    Classifier.train(memory, recipe={"epochs": 1, "min_steps": 0})
    assert found.row.classifier_bytes == pytest.approx(len(memory.file.read_classifier()), rel=0.1)
    error = np.square((found.replayed - source.read((1, 8, 8), "crop").astype(float)) / 255).mean()
    assert found.row.psnr == pytest.approx(-10 * np.log10(error), abs=0.01), "images in their own order"


def row(side, bytes=100, seconds=60.0, psnr=30):
    return Row(
        name=f"{side}x{side}", image_shape=(3, side, side), codec="cosine", bytes_per_sample=9, psnr=psnr,
        memory_bytes=bytes, classifier_bytes=bytes, tenfold_bytes=9 * bytes, absorb_seconds=1,
        train_seconds=seconds,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "name", "why"),
    [
        (
            [row(32), row(64, 300), row(128, 900, 180)],
            "64x64",
            "128x128 would take 3.0 times the memory and 3.0",
        ),
        ([row(32), row(64, seconds=7200), row(128)], "32x32", "64x64 would train for 2 h"),
        ([row(32, seconds=7200), row(64, seconds=9999)], "32x32", "64x64 would train for"),
        ([row(128), row(224)], "128x128", "224x224 would take 1.0 times"),
        ([row(32)], "32x32", "the only size that was compared"),
        ([row(64), row(224, psnr=None)], "224x224", "knows photographs; for a memory of images: 64x64"),
        ([row(224, psnr=None)], "224x224", "a pretrained network knows photographs"),
    ],
)
def test_the_usual_size_is_recommended_unless_it_trains_for_too_long(folder, rows, name, why):
    source = look(folder((300, 400), (400, 300)), [], progress=Silent())
    assert source.usual == (3, 64, 64)
    best, reason = recommended(list(reversed(rows)), source)
    assert best.name == name
    assert why in reason


def test_a_source_of_one_image(folder):
    source = look(folder((50, 40)), [parse_size(8)], progress=Silent())
    found = Candidate((3, 8, 8), {}).measure(source)
    assert found.replayed.shape == (1, 3, 8, 8)
    assert found.row.memory_bytes > 0
