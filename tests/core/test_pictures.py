"""Pictures of another aspect ratio are cropped to the middle, padded with the colour of edges or squeezed."""

import numpy as np
import pytest
from PIL import Image

from logcl.core.pictures import fitted, is_grey, pixels_of


@pytest.fixture
def wide():
    """120 wide, 40 high: the left third red, the middle green, the right third blue."""
    pixels = np.zeros((40, 120, 3), np.uint8)
    for third in range(3):
        pixels[:, 40 * third : 40 * (third + 1), third] = 200
    return Image.fromarray(pixels)


def colours(picture):
    return np.asarray(picture).astype(int)


def test_crop_keeps_the_middle_in_its_proportions(wide):
    assert (colours(fitted(wide, 40, 40, "crop")) == [0, 200, 0]).all()
    small = colours(fitted(wide, 10, 10, "crop"))
    assert small.shape == (10, 10, 3)
    assert abs(small[:, 1:-1] - [0, 200, 0]).max() <= 20
    tall = fitted(wide.transpose(Image.Transpose.ROTATE_90), 10, 10, "crop")
    assert abs(colours(tall)[1:-1] - [0, 200, 0]).max() <= 20


def test_stretch_keeps_all_and_squeezes(wide):
    squeezed = colours(fitted(wide, 40, 40, "stretch"))
    assert [int(squeezed[20, column].argmax()) for column in (5, 20, 34)] == [0, 1, 2]


def test_pad_keeps_all_in_its_proportions_and_continues_the_edges(wide):
    padded = colours(fitted(wide, 40, 40, "pad"))
    inside = padded[14:26]  # 40 wide, 13 high, in the middle
    assert [int(inside[6, column].argmax()) for column in (5, 20, 34)] == [0, 1, 2]
    bars = np.concatenate([padded[:13], padded[27:]])
    assert (bars == bars[0, 0]).all()
    assert abs(bars[0, 0] - 67).max() <= 4, "the mean of the edges above and below, a third of each colour"
    white = Image.new("L", (10, 30), 255)
    assert (colours(fitted(white, 16, 16, "pad")) == 255).all()


@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
@pytest.mark.parametrize("size", [(1, 1), (5000, 1), (1, 5000), (64, 48), (31, 33), (7, 7)])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_every_size_becomes_the_one_that_is_asked_for(fit, size, mode):
    grey = Image.new(mode, size, (90, 90, 90) if mode == "RGB" else 90)
    result = fitted(grey, 24, 32, fit)
    assert (result.size, result.mode) == ((32, 24), mode)
    assert (np.asarray(result) == 90).all()


def test_the_right_size_is_left_alone(wide):
    for fit in ("crop", "pad", "stretch"):
        assert fitted(wide, 40, 120, fit) is wide


def test_an_equal_aspect_ratio_is_the_same_for_all(wide):
    small = [np.asarray(fitted(wide, 20, 60, fit)) for fit in ("crop", "pad", "stretch")]
    assert np.array_equal(small[0], small[1])
    assert np.array_equal(small[0], small[2])


def test_pictures_of_any_mode_become_pixels(wide):
    assert pixels_of(wide.convert("CMYK"), (1, 8, 8), "crop", "a picture").shape == (1, 8, 8)
    assert pixels_of(wide.convert("1"), (3, 8, 8), "crop", "a picture").shape == (3, 8, 8)
    clear = Image.new("RGBA", (9, 9), (0, 0, 0, 0))
    assert pixels_of(clear, (3, 4, 4), "crop", "a picture").min() == 255
    assert is_grey(wide.convert("L"))
    assert not is_grey(wide)
