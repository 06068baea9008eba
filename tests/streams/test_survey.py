"""What the headers of images say, and the size that is chosen by them."""

import numpy as np
import pytest

from logcl.core.errors import BadSettings, DataError
from logcl.core.sizes import parse_size
from logcl.streams import open_stream, read_images, read_tasks, survey_of
from logcl.streams.images import read_folder
from logcl.streams.survey import advice, findings, survey


@pytest.fixture
def photos(tmp_path, make_images):
    """Three sizes in two classes, one image grey."""
    make_images(tmp_path / "a" / "cat", 3, "RGB", (200, 150))
    make_images(tmp_path / "a" / "dog", 1, "L", (100, 100))
    make_images(tmp_path / "a" / "wide", 1, "RGB", (600, 60))
    return tmp_path / "a"


def test_a_survey_counts_what_a_crop_loses(photos):
    found = survey_of(photos)
    assert (len(found), found.classes, found.channels, found.common_size) == (5, 3, 3, None)
    assert found.shorter_side == 150
    assert found.image_shape() == (3, 64, 64)
    assert found.kept((3, 64, 64)) == pytest.approx([0.75, 0.75, 0.75, 1, 0.1])
    assert found.kept((3, 32, 64)) == pytest.approx([2 / 3, 2 / 3, 2 / 3, 0.5, 0.2])
    assert [found.enlarged((3, 64, 64), fit) for fit in ("crop", "pad", "stretch")] == [1, 0, 1]
    assert [found.enlarged((3, 101, 101), fit) for fit in ("crop", "pad", "stretch")] == [2, 1, 2]


def test_channels_are_decided_by_the_images_unless_they_are_asked_for(photos, tmp_path, make_images):
    assert read_folder(photos, 16).x.shape[1:] == (3, 16, 16)
    assert read_folder(photos, "1x16x8").x.shape[1:] == (1, 16, 8)
    make_images(tmp_path / "b" / "cat", 6, "L", (90, 90))
    for asked in (16, "16", (16, 16), "16x16"):
        assert read_folder(tmp_path / "b", asked).x.shape[1:] == (1, 16, 16)
        assert open_stream(tmp_path / "b", image_shape=asked, tasks=1).image_shape == (1, 16, 16)
    assert open_stream(tmp_path / "b", image_shape=(3, 16, 16), tasks=1).image_shape == (3, 16, 16)


def test_the_way_to_fit_reaches_every_reader(photos):
    by_fit = {fit: read_folder(photos, 16, fit=fit).x for fit in ("crop", "pad", "stretch")}
    for fit, x in by_fit.items():
        (task,) = read_tasks(photos, 16, fit=fit)
        assert np.array_equal(task.x, x)
        stream = open_stream(photos, image_shape=16, tasks=1, seed=None, fit=fit)
        assert np.array_equal(stream.source_x, x)
        assert np.array_equal(np.concatenate([x for _, x in read_images([photos], (3, 16, 16), fit=fit)]), x)
    assert not np.array_equal(by_fit["crop"], by_fit["pad"])
    assert not np.array_equal(by_fit["crop"], by_fit["stretch"])
    with pytest.raises(BadSettings, match="fit is 'squash'; choose one of: crop, pad, stretch"):
        read_folder(photos, 16, fit="squash")
    with pytest.raises(BadSettings, match="fit is 'squash'"):
        open_stream(photos, fit="squash")


def test_the_findings_name_what_was_found_and_what_was_chosen(photos):
    rows = {what: (there, chosen) for what, there, chosen in findings(survey_of(photos), None, "crop")}
    assert rows["images"][0].startswith("5 in 3 classes, ")
    assert rows["height x width"][0] == "100x100 to 60x600, shorter side typically 150"
    assert rows["height x width"][1].startswith("64x64, the usual size of photographs; --image-shape")
    assert rows["aspect ratio"][0] == "width / height 1.00 to 10.00"
    assert rows["aspect ratio"][1] == (
        "crop: 4 cropped to the middle, 59% of each kept on average; 1 enlarged"
    )
    assert rows["colour"] == ("4 colour, 1 grey", "3 channels; grey images stay grey")
    asked = {row[0]: row[2] for row in findings(survey_of(photos), parse_size((1, 20, 20)), "pad")}
    assert asked["height x width"] == "20x20, as asked"
    assert asked["aspect ratio"] == "pad: 4 padded"
    assert asked["colour"] == "1 channel, as asked"


def test_advice_is_given_where_something_would_be_lost(photos, tmp_path, make_images):
    lost = "1 of 5 images would lose more than half to the crop; --fit pad keeps all of each image"
    assert advice(survey_of(photos), parse_size(16), "crop") == [lost]
    first, preview = advice(survey_of(photos), None, "crop")
    assert first == lost
    assert preview.startswith("`logcl preview` on the same folder shows what other sizes would cost")
    assert advice(survey_of(photos), None, "pad") == [preview]
    assert advice(survey_of(photos), parse_size(64), "pad") == []
    make_images(tmp_path / "b" / "cat", 2, "L", (20, 20))
    assert advice(survey_of(tmp_path / "b"), None, "crop") == []


def test_tiny_images_keep_their_size_and_are_told_so(tmp_path, make_images):
    make_images(tmp_path / "b" / "cat", 2, "L", (20, 18))
    rows = findings(survey_of(tmp_path / "b"), None, "crop")
    assert [row[2] for row in rows] == ["all", "18x20, as they are", "kept", "1 channel"]
    make_images(tmp_path / "b" / "dog", 1, "L", (18, 20))
    rows = findings(survey_of(tmp_path / "b"), None, "crop")
    assert rows[1][2].startswith("18x18, the shorter side of most; --image-shape chooses another")
    make_images(tmp_path / "b" / "cow", 4, "L", (50, 40))
    rows = findings(survey_of(tmp_path / "b"), None, "crop")
    assert rows[1][2].startswith("32x32, as most are smaller than 64 pixels")


def test_headers_that_cannot_be_read_are_counted_or_refused(photos):
    (photos / "cat" / "1.png").write_bytes(b"rubbish")
    with pytest.raises(DataError, match=r"1\.png"):
        survey_of(photos)
    found = survey_of(photos, skip_bad=True)
    assert (len(found), found.unreadable) == (4, 1)
    assert findings(found, None, "crop")[0][1:] == (
        findings(found, None, "crop")[0][1].partition(";")[0] + "; 1 cannot be read",
        "all that can be read",
    )
    with pytest.raises(DataError, match=r"1\.png.*--skip-bad"):
        next(read_tasks(photos))
    assert survey([], skip_bad=True).image_shape() == (1, 32, 32)


def test_arrays_have_no_headers(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 8, 8), np.uint8), y=[0, 1])
    assert survey_of(tmp_path / "a.npz") is None
    assert survey_of("digits") is None
