"""The first task decides visibly: what is there and what was chosen, before anything is committed."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from logcl import Memory
from logcl.core.pictures import fitted, from_picture

CHEAP = ["--codec", "cosine", "--unit", 4]
REAL_DATA = os.environ.get("LOGCL_DATA")


@pytest.fixture
def photos(tmp_path, digits):
    """Ten wide pictures, of which one is grey and one much wider, in two task folders."""
    x, _ = digits
    for row in range(10):
        place = tmp_path / "photos" / f"task{row // 5}" / f"class {row % 2}"
        place.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(x[row, 0]).convert("L" if row == 3 else "RGB")
        picture.resize((900 if row == 4 else 120, 80)).save(place / f"{row}.png")
    return tmp_path / "photos"


def test_the_table_says_what_was_found_and_chosen(tmp_path, photos, logcl):
    path = tmp_path / "m.logcl"
    ran = logcl("absorb", path, photos, *CHEAP)
    assert ran.code == 0, ran.err
    title, columns, *rows = ran.err.splitlines()
    assert title == f"new memory {path}"
    assert columns.split() == ["found", "chosen"]
    text = "\n".join(rows)
    for part in (
        "images", "10 in 2 classes, ",
        "height x width", "80x120 to 80x900, shorter side typically 80",
        "64x64, the usual size of photographs",
        "aspect ratio", "width / height 1.50 to 11.25", "crop: all cropped to the middle, 61% of each kept",
        "colour", "9 colour, 1 grey", "3 channels; grey images stay grey",
        "note: 1 of 10 images would lose more than half to the crop; --fit pad keeps all of each image",
        "codec cosine, as asked",
    ):  # fmt: skip
        assert part in text, part
    assert Memory.open(path).settings.image_shape == (3, 64, 64)
    second = logcl("absorb", path, photos, "--from-task", 2, "--again")
    assert (second.code, second.err) == (0, ""), "only the first task decides"


@pytest.mark.parametrize("option", ["--quiet", "--json"])
def test_scripts_do_not_see_it(tmp_path, photos, logcl, option):
    ran = logcl("absorb", tmp_path / "m.logcl", photos, "--image-shape", 8, option, *CHEAP)
    assert (ran.code, ran.err) == (0, "")
    if option == "--json":
        assert json.loads(ran.out)["samples"] == 10


def test_the_codec_is_told_before_the_first_task_is_absorbed(tmp_path, photos, logcl):
    ran = logcl("absorb", tmp_path / "m.logcl", photos, "--image-shape", "8x8", "--unit", 5)
    assert "64 B" not in ran.err
    line = next(line for line in ran.err.splitlines() if line.startswith("codec "))
    assert " for 30 dB: about " in line
    assert line.endswith("dB; raw 192 B")
    choice = Memory.open(tmp_path / "m.logcl").manifest.choice
    assert line.startswith(f"codec {choice.trials[0].codec}, the best of {len(choice.trials)}")


@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
def test_absorb_and_predict_fit_images_alike(tmp_path, photos, logcl, fit):
    path = tmp_path / "m.logcl"
    assert logcl("absorb", path, photos, "--image-shape", 16, "--fit", fit, "--unit", 64).code == 0
    memory = Memory.open(path)
    assert memory.settings.fit == fit
    with Image.open(photos / "task0" / "class 0" / "4.png") as wide:
        expected = from_picture(fitted(wide, 16, 16, fit))
    assert any(np.array_equal(image, expected) for image in memory.snapshot().buffer.x)
    assert logcl("train", path, "--set", "classifier.epochs=1", "--set", "classifier.width=4").code == 0
    np.savez(tmp_path / "one.npz", x=expected[None])
    by_file, by_array = (
        json.loads(logcl("predict", path, place, "--json").out)[0]["probability"]
        for place in (photos / "task0" / "class 0" / "4.png", tmp_path / "one.npz")
    )
    assert by_file == pytest.approx(by_array)
    other = logcl("absorb", path, photos, "--fit", "pad" if fit == "crop" else "crop")
    assert other.code == 2
    assert "has other settings than fit = " in other.err


def test_arrays_are_not_resized(tmp_path, digits, logcl):
    np.savez(tmp_path / "a.npz", x=digits[0][:9], y=digits[1][:9])
    ran = logcl("absorb", tmp_path / "m.logcl", tmp_path / "a.npz", "--image-shape", 32)
    assert ran.code == 2
    assert "have shape (1, 8, 8), not (1, 32, 32); leave out the image shape" in ran.err
    assert not (tmp_path / "m.logcl").exists()
    ran = logcl("absorb", tmp_path / "m.logcl", tmp_path / "a.npz", "--image-shape", 8)
    assert ran.code == 0
    assert f"new memory {tmp_path / 'm.logcl'} for images 1x8x8" in ran.err


def test_runs_read_images_at_the_size_and_in_the_way_that_is_asked_for(tmp_path, photos, logcl):
    brief = ["--set", "classifier.epochs=1", "--set", "classifier.min_steps=0", "--set", "classifier.width=4"]
    asked = ["--image-shape", 16, "--fit", "pad", "--evaluate", "final", *brief, "--out", tmp_path / "run"]
    ran = logcl("run", photos, "--method", "logcl", "--codec", "cosine", *asked)
    assert ran.code == 0, ran.err
    assert f"images of {photos}" in ran.err
    assert "16x16, as asked" in ran.err
    assert "images 3x16x16 of 2 classes" in ran.out
    settings = Memory.open(tmp_path / "run" / "memory.logcl").settings
    assert (settings.image_shape, settings.fit) == ((3, 16, 16), "pad")
    assert logcl("run", photos, "--set", "fit=squash").code == 2
    assert logcl("run", "digits", "--image-shape", 16).code == 2


@pytest.mark.skipif(not REAL_DATA, reason="LOGCL_DATA names no folder with the real data sets")
def test_real_photographs(tmp_path, logcl):
    real = Path(REAL_DATA, "clothing", "validation")
    if not real.is_dir():
        pytest.skip("LOGCL_DATA has no clothing photographs")
    for folder in real.iterdir():
        (tmp_path / "some" / folder.name).mkdir(parents=True)
        for path in sorted(folder.iterdir())[:3]:
            (tmp_path / "some" / folder.name / path.name).symlink_to(path)
    ran = logcl("absorb", tmp_path / "m.logcl", tmp_path / "some", "--codec", "cosine")
    assert ran.code == 0, ran.err
    assert "30 in 10 classes" in ran.err
    assert "64x64, the usual size of photographs" in ran.err
    assert "% of each kept on average" in ran.err
    assert Memory.open(tmp_path / "m.logcl").settings.image_shape == (3, 64, 64)
