"""Opening memories with sizes and rates, what the first images decide, and what a prompt shows."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from logcl import Classifier, Memory
from logcl.core.errors import BadInput, BadSettings, CannotWrite
from logcl.core.pictures import fitted, from_picture
from logcl.memory.beginning import begin, codec_text
from logcl.memory.memory import Absorbed
from logcl.memory.presets import preset

FIXTURES = Path(__file__).parent.parent / "fixtures"


@pytest.fixture
def pictures():
    """Twelve pictures of several sizes: a bright square in the middle of a dark, wide page."""
    found = []
    for number in range(12):
        pixels = np.full((20, 40 + number, 3), 20, np.uint8)
        pixels[5:15, 15:25] = (250, 40 + 10 * number, 40)
        found.append(Image.fromarray(pixels))
    return found


@pytest.mark.parametrize(
    ("asked", "grey", "shape"),
    [(10, False, (3, 10, 10)), (10, True, (1, 10, 10)), ("8x10", True, (1, 8, 10)),
     ((8, 10), False, (3, 8, 10)), ((3, 8, 10), True, (3, 8, 10)), ("1x8x10", False, (1, 8, 10))],
)  # fmt: skip
def test_the_first_images_decide_what_the_size_leaves_open(tmp_path, pictures, asked, grey, shape):
    path = tmp_path / "m.logcl"
    memory = Memory.open(path, asked, codec="cosine", unit=4)
    images = [picture.convert("L") for picture in pictures] if grey else pictures
    memory.absorb(images, [0, 1] * 6)
    assert memory.settings == Memory.open(path, asked).settings
    usual = preset("fast", shape).classifier.model_copy(update={"mirror": memory.settings.classifier.mirror})
    assert memory.settings.classifier == usual, "that of grey or of colour images"
    assert memory.settings.image_shape == shape
    other = 1 if shape[0] == 3 else 3
    with pytest.raises(BadSettings, match="is for images of shape"):
        Memory.open(path, (other, *shape[1:]))


@pytest.mark.parametrize(
    ("images", "channels"),
    [
        (np.zeros((2, 6, 8), np.uint8), 1),
        (np.zeros((2, 1, 6, 8), np.uint8), 1),
        (np.zeros((2, 6, 8, 1)), 1),
        (np.zeros((2, 6, 8, 3)), 3),
        (torch.zeros(2, 3, 6, 8), 3),
        ([torch.zeros(3, 6, 8)] * 2, 3),
        ([Image.new("L", (3, 3)), Image.new("RGB", (3, 3))], 3),
    ],
)
def test_arrays_decide_the_channels_too(tmp_path, images, channels):
    memory = Memory.open(tmp_path / "m.logcl", "6x8")
    memory.absorb(images, [0, 0])
    assert memory.settings.image_shape == (channels, 6, 8)


def test_no_file_appears_before_the_first_images_have_decided(tmp_path):
    memory = Memory.open(tmp_path / "m.logcl", 8)
    with pytest.raises(BadInput, match=r"images have shape \(2, 3, 9, 9\)"):
        memory.absorb(np.zeros((2, 3, 9, 9)), [0, 0])
    assert not memory.file.exists()
    first, second = Memory.open(tmp_path / "m.logcl", 8), Memory.open(tmp_path / "m.logcl", 8)
    first.absorb(np.zeros((2, 8, 8)), [0, 0])
    second.absorb(np.ones((2, 8, 8)), [0, 0])
    assert first.n == 4
    third = Memory.open(tmp_path / "n.logcl", 8)
    Memory.open(tmp_path / "n.logcl", (1, 8, 8)).absorb(np.zeros((2, 8, 8)), [0, 0])
    with pytest.raises(CannotWrite, match="created by another process with other settings"):
        third.absorb(np.zeros((2, 3, 8, 8)), [0, 0])


@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
def test_pictures_are_fitted_as_the_memory_says_when_absorbed_and_when_classified(tmp_path, pictures, fit):
    memory = Memory.open(tmp_path / "m.logcl", (3, 8, 8), fit=fit, unit=64)
    memory.absorb(pictures, [0, 1] * 6)
    expected = np.stack([from_picture(fitted(picture, 8, 8, fit)) for picture in pictures])
    assert np.array_equal(memory.snapshot().buffer.x, expected)
    trained = Classifier.train(memory, recipe={"epochs": 1, "min_steps": 0, "width": 4})
    for classifier in (trained, Classifier.load(Memory.open(tmp_path / "m.logcl", fit=fit))):
        assert np.array_equal(classifier.predict_proba(pictures), classifier.predict_proba(expected))
        assert classifier.predict(pictures[0]).shape == (1,)
        assert np.array_equal(
            classifier.predict_proba(expected.transpose(0, 2, 3, 1)), classifier.predict_proba(expected)
        )
    other = "pad" if fit == "crop" else "crop"
    with pytest.raises(BadSettings, match=f"other settings than fit = {other}"):
        Memory.open(tmp_path / "m.logcl", fit=other)


def test_rates_and_codecs_are_arguments(tmp_path):
    by_bytes = Memory.open(tmp_path / "a.logcl", (3, 8, 8), bytes_per_sample=40, codec="cosine")
    assert by_bytes.settings.codec.model_dump() == {"name": "cosine", "bytes_per_sample": 40, "psnr": None}
    by_quality = Memory.open(tmp_path / "b.logcl", (3, 8, 8), psnr=33)
    assert (by_quality.settings.codec.name, by_quality.settings.codec.psnr) == ("auto", 33)
    assert Memory.open(tmp_path / "b.logcl", psnr=33, codec="auto").settings == by_quality.settings
    with pytest.raises(BadSettings, match=r"other settings than codec\.psnr = 30"):
        Memory.open(tmp_path / "b.logcl", psnr=30)
    with pytest.raises(BadSettings, match="either bytes_per_sample or psnr"):
        Memory.open(tmp_path / "c.logcl", 8, psnr=30, bytes_per_sample=9)
    with pytest.raises(BadSettings, match="'crop', 'pad' or 'stretch'"):
        Memory.open(tmp_path / "c.logcl", 8, fit="squash")
    assert not (tmp_path / "c.logcl").exists()


@pytest.mark.parametrize("name", ["format-2-fast", "format-3-fast", "format-4-fast"])
def test_older_memories_keep_stretching(tmp_path, name):
    memory = Memory.open(shutil.copy(FIXTURES / f"{name}.logcl", tmp_path / "m.logcl"))
    assert memory.settings.fit == "stretch"
    _, height, width = memory.settings.image_shape
    wide = Image.fromarray(np.repeat(np.arange(0, 240, 2, dtype=np.uint8)[None], 10, 0))
    before = memory.n
    memory.absorb([wide], [memory.classes[0]])
    expected = np.asarray(wide.resize((width, height), Image.Resampling.LANCZOS))
    assert np.array_equal(memory.snapshot().buffer.x[-1][0], expected)
    assert (memory.n, memory.settings.fit) == (before + 1, "stretch")


def test_a_first_task_chooses_its_codec_before_anything_is_committed(tmp_path, digits):
    x, y = np.repeat(digits[0][:16], 3, axis=1), digits[1][:16]
    settings = preset("fast", (3, 8, 8)).model_copy(update={"unit": 16})
    begun = begin(tmp_path / "a.logcl", settings, x, y)
    assert not begun.file.exists()
    chosen, choice = begun.settings.codec.name, begun.manifest.choice
    text = codec_text(begun.manifest)
    assert text.startswith(f"codec {chosen}, the best of {len(choice.trials)} for 30 dB: about ")
    assert text.endswith("; raw 192 B")
    begun.absorb(x, y)
    usual = Memory.create(tmp_path / "b.logcl", settings)
    usual.absorb(x, y)
    assert usual.manifest == begun.manifest
    waiting = begin(tmp_path / "c.logcl", settings, x[:9], y[:9])
    assert waiting.settings == settings
    assert codec_text(waiting.manifest) == "codec chosen when 16 samples are there"


def test_what_a_prompt_shows(tmp_path, digits):
    x, y = digits
    path = tmp_path / "m.logcl"
    memory = Memory.open(path, 8, codec="cosine", unit=8)
    assert repr(memory) == f"<Memory {path}: new, for images 3x8x8>"
    done = memory.absorb(x[:25], y[:25])
    assert repr(memory).startswith(f"<Memory {path}: 25 samples of 10 classes in 2 levels, ")
    assert repr(memory).endswith("B, images 1x8x8>")
    assert repr(done) == (
        "<Absorbed 25 samples: now 25 in 2 levels; fitted levels: 1, 0; kept: 0; 1 in the buffer>"
    )
    assert repr(memory.absorb(x[25:26], y[25:26])) == (
        "<Absorbed 1 sample: now 26 in 2 levels; fitted levels: none; kept: 2; 2 in the buffer>"
    )
    assert isinstance(done, Absorbed)
    assert done.samples == 25


@pytest.mark.parametrize("content", [None, b"", b"hello", b"SQLite format 3\0" + bytes(100), "folder", "cut"])
def test_a_prompt_shows_something_whatever_is_at_the_path(tmp_path, content):
    path = tmp_path / "m\n.logcl"
    if content == "folder":
        path.mkdir()
    elif content == "cut":
        path.write_bytes((FIXTURES / "format-4-fast.logcl").read_bytes()[:5000])
    elif content is not None:
        path.write_bytes(content)
    shown = repr(Memory(path))
    assert shown.startswith("<Memory ")
    assert "\n" not in shown
    assert ("no file" if content is None else "cannot be read") in shown
