"""Omniglot's archives, small and made here: zips and trees, good, incomplete and hostile."""

from __future__ import annotations

import io
import stat
import zipfile

import numpy as np
import pytest
from PIL import Image, ImageDraw

from logcl.core.errors import DataError
from logcl.streams import omniglot, open_stream
from tests.streams.test_pixels import bomb

# Set → alphabet → characters.
SMALL = {"images_background": {"Greek": 2, "Arcadian": 1}, "images_evaluation": {"Keble": 3}}


def drawing(k, drawer):
    """A black stroke on white, different for each character and drawer."""
    image = Image.new("1", (105, 105), 1)
    ImageDraw.Draw(image).line((10 + 4 * drawer, 5, 10, 15 + 10 * k), fill=0, width=3)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def files(monkeypatch):
    """Set → member name → content; LogCL is told to expect these sets."""
    monkeypatch.setattr(omniglot, "SETS", {s: (len(a), sum(a.values())) for s, a in SMALL.items()})
    monkeypatch.setattr(omniglot, "_CHARACTERS_OF_100_TASKS", 2)
    return {
        set_name: {
            f"{set_name}/{alphabet}/character{k:02}/{100 + k}_{drawer:02}.png": drawing(k, drawer)
            for alphabet, count in alphabets.items()
            for k in range(1, count + 1)
            for drawer in range(1, 21)
        }
        for set_name, alphabets in SMALL.items()
    }


def write(folder, files, archived=True):
    for set_name, members in files.items():
        if archived:
            with zipfile.ZipFile(folder / f"{set_name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
                for name, content in members.items():
                    archive.writestr(name, content)
        else:
            for name, content in members.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)


@pytest.mark.parametrize("archived", [True, False])
@pytest.mark.parametrize("place", ["", "omniglot", "omniglot-py"])
def test_zips_and_trees(tmp_path, files, archived, place):
    (tmp_path / place).mkdir(exist_ok=True)
    write(tmp_path / place, files, archived)
    stream = open_stream("omniglot", data_dir=tmp_path, tasks=3)
    assert stream.classes == ("Arcadian", "Greek", "Keble")
    assert stream.image_shape == (1, 28, 28)
    assert [len(task) for task in stream] == [15, 30, 45]
    assert np.bincount(stream.test_y).tolist() == [5, 10, 15]
    few = open_stream("omniglot-100", data_dir=tmp_path, tasks=2)
    assert few.classes == ("Arcadian/character01", "Greek/character01")
    assert few.task_classes == ((0,), (1,))
    assert np.array_equal(few.test_x[5:], stream.test_x[5:10])


def test_ink_is_bright_and_drawers_16_to_20_test(tmp_path, files):
    write(tmp_path, files)
    stream = open_stream("omniglot", data_dir=tmp_path)
    assert stream.source_x.max() > 150
    assert np.median(stream.source_x) == 0
    with Image.open(io.BytesIO(drawing(1, 16))) as image:
        small = image.convert("L").resize((28, 28), Image.Resampling.LANCZOS)
    assert np.array_equal(stream.test_x[0, 0], 255 - np.asarray(small)), (
        "Arcadian's only character, drawer 16"
    )


def test_other_files_in_the_zip_are_ignored(tmp_path, files):
    files["images_background"]["README.txt"] = b"hello"
    files["images_background"]["__MACOSX/images_background/._x.png"] = b"?"
    write(tmp_path, files)
    assert open_stream("omniglot", data_dir=tmp_path).samples == 90


def refused(tmp_path, own_cache, sentence):
    with pytest.raises(DataError, match=sentence):
        open_stream("omniglot", data_dir=tmp_path)
    assert list(own_cache.glob("streams/*")) == list(own_cache.glob("streams/.building*")) == []


def first_name(files):
    return next(iter(files["images_background"]))


@pytest.mark.parametrize("archived", [True, False])
def test_a_missing_or_extra_drawing(tmp_path, files, own_cache, archived):
    content = files["images_background"].pop(first_name(files))
    write(tmp_path, files, archived)
    refused(
        tmp_path, own_cache, "holds 59 drawings of 3 characters, not 20 of each of 3.*logcl data get omniglot"
    )
    files["images_background"]["images_background/Greek/character01/101_21.png"] = content
    write(tmp_path, files, archived)
    refused(tmp_path, own_cache, "holds 60 drawings")


def test_a_foreign_png(tmp_path, files, own_cache):
    files["images_background"]["images_background/cat.png"] = drawing(1, 1)
    write(tmp_path, files)
    refused(tmp_path, own_cache, r"cat\.png', which is not a drawing")


@pytest.mark.parametrize("archived", [True, False])
@pytest.mark.parametrize("how", ["cut", "rubbish", "empty", "bomb", "size"])
def test_bad_images(tmp_path, files, own_cache, archived, how):
    good = drawing(1, 1)
    buffer = io.BytesIO()
    Image.new("1", (104, 105)).save(buffer, "PNG")
    bad = {"cut": good[:-60], "rubbish": b"rubbish", "empty": b"", "bomb": bomb(), "size": buffer.getvalue()}[
        how
    ]
    files["images_background"][first_name(files)] = bad
    write(tmp_path, files, archived)
    refused(tmp_path, own_cache, rf"images_background.*{first_name(files).rsplit('/')[-1]}")


def test_an_oversized_member(tmp_path, files, own_cache):
    files["images_background"][first_name(files)] = drawing(1, 1) + bytes(10_000_000)
    write(tmp_path, files)
    refused(tmp_path, own_cache, "more than 65,536 bytes")


@pytest.mark.parametrize(
    "name", ["../x.png", "/x.png", "images_background/../../x", "..\\x", "C:\\x", "c:/x.txt"]
)
def test_unsafe_names(tmp_path, files, own_cache, name):
    files["images_background"][name] = b"x"
    write(tmp_path, files)
    refused(tmp_path, own_cache, r"images_background\.zip holds the unsafe name .*logcl data get omniglot")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["images_background.zip", "images_evaluation.zip"]


def test_a_symbolic_link(tmp_path, files, own_cache):
    write(tmp_path, files)
    link = zipfile.ZipInfo("images_background/Greek/link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "images_background.zip", "a") as archive:
        archive.writestr(link, "/etc/passwd")
    refused(tmp_path, own_cache, "which is not a regular file")


def test_broken_zips(tmp_path, files, own_cache):
    write(tmp_path, files)
    path = tmp_path / "images_background.zip"
    content = path.read_bytes()
    middle = len(content) // 3
    for bad in (
        b"",
        b"rubbish",
        content[:-50],
        content[:middle],
        content[:middle] + bytes(99) + content[middle + 99 :],
    ):
        path.write_bytes(bad)
        refused(tmp_path, own_cache, r"images_background\.zip.*(damaged|truncated)")


def test_one_set_is_not_enough(tmp_path, files, own_cache):
    write(tmp_path, {"images_background": files["images_background"]})
    refused(tmp_path, own_cache, "omniglot is missing or incomplete.*images_evaluation.zip")
