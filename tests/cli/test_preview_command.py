"""`logcl preview` on images of several sizes, on arrays, and on what cannot be read."""

import json
import re

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def photos(tmp_path, digits):
    """Twelve pictures in two classes, of two aspect ratios, one of them unreadable."""
    x, _ = digits
    for row in range(12):
        place = tmp_path / "photos" / ("<b>cat" if row % 2 else "dog")
        place.mkdir(parents=True, exist_ok=True)
        size = (40, 24) if row % 3 else (20, 30)
        Image.fromarray(x[row, 0]).convert("RGB").resize(size).save(place / f"{row}.png")
    (tmp_path / "photos" / "dog" / "bad.png").write_bytes(b"rubbish")
    return tmp_path / "photos"


def test_sizes_are_compared_and_one_is_recommended(tmp_path, photos, logcl):
    path = tmp_path / "pages" / "p.html"
    sizes = ["--image-shape", 8, "--image-shape", "1x16x24", "--codec", "cosine"]
    ran = logcl("preview", photos, *sizes, "--out", path, "--json")
    assert (ran.code, ran.err) == (0, "")
    found = json.loads(ran.out)
    assert (found["images"], found["classes"], found["measured"]) == (12, 2, 12)
    small, large = found["rows"]
    assert (small["name"], small["image_shape"]) == ("8x8", [3, 8, 8])
    assert (large["name"], large["image_shape"]) == ("16x24", [1, 16, 24])
    for row in found["rows"]:
        assert row["file_bytes"] == row["memory_bytes"] + row["classifier_bytes"]
        assert row["tenfold_bytes"] > row["file_bytes"]
        assert row["bytes_per_sample"] == pytest.approx(row["memory_bytes"] / 12, abs=0.1)
        assert row["absorb_seconds"] > 0
        assert row["train_seconds"] > 0
        assert 20 < row["psnr"] < 50
    assert found["recommended"] == "16x24"  # the larger one, both being smaller than the usual 32x32
    assert str(path) == found["page"]
    page = path.read_text()
    assert len(re.findall(r'<img src="data:image/webp;base64,', page)) == 3 * 8
    assert "<b>cat" not in page
    assert "&lt;b&gt;cat, replayed at 8x8" in page
    assert not re.search(r"(src|href)=\"(?!data:)", page), "one file without references to others"


def test_what_is_printed_names_the_page_and_the_size_to_choose(photos, tmp_path, logcl, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = logcl("preview", photos, "--image-shape", "8x8", "--fit", "pad", "--quiet")
    assert ran.code == 0, ran.err
    assert ran.err == ""
    assert "12 images in 2 classes; measured on 12 of them" in ran.out
    assert re.search(r"^8x8 .* (B|kB) .* s *$", ran.out, re.MULTILINE)
    assert "recommended  8x8: the only size that was compared" in ran.out
    assert "page         preview.html" in ran.out
    assert (tmp_path / "preview.html").stat().st_size > 1000


def test_arrays_have_one_size(tmp_path, digits, logcl):
    x, y = digits
    np.savez(tmp_path / "a.npz", x=x[:100], y=y[:100])
    ran = logcl("preview", tmp_path / "a.npz", "--out", tmp_path / "p.html", "--codec", "cosine", "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert [row["name"] for row in found["rows"]] == ["8x8"]
    assert (found["images"], found["classes"], found["measured"]) == (100, 10, 64)
    ran = logcl("preview", tmp_path / "a.npz", "--image-shape", 32, "--out", tmp_path / "q.html")
    assert ran.code == 3
    assert "are not resized; leave out the size" in ran.err
    assert not (tmp_path / "q.html").exists()


def test_bad_input_is_one_sentence(tmp_path, photos, logcl):
    (tmp_path / "empty" / "cat").mkdir(parents=True)
    (tmp_path / "bad" / "cat").mkdir(parents=True)
    (tmp_path / "bad" / "cat" / "a.png").write_bytes(b"rubbish")
    for arguments, code, message in (
        (["preview", tmp_path / "absent"], 3, "is not a file, a folder or a named data set"),
        (["preview", tmp_path / "empty"], 3, "holds no images"),
        (["preview", tmp_path / "bad"], 3, "none of the images of"),
        (["preview", photos, "--image-shape", "big"], 2, "--image-shape big is not a size of images"),
        (["preview", photos, "--image-shape", "2x8x8"], 2, "1 or 3 channels"),
        (["preview", photos, "--image-shape", 8, "--codec", "morse"], 2, "there is no codec 'morse'"),
    ):
        ran = logcl(*arguments, "--out", tmp_path / "p.html")
        assert (ran.code, ran.out) == (code, ""), ran.err
        assert message in ran.err
        assert not (tmp_path / "p.html").exists()
