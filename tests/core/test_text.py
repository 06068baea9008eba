"""Text for people: short numbers close to the value, and no control sequences."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logcl.core.text import human_bytes, human_seconds, printable, spread

BYTES = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15}
SECONDS = {"s": 1, "min": 60, "h": 3600}


@given(st.text(st.characters(), max_size=50))
def test_printable_text_is_printable_and_printable_characters_are_kept(text):
    shown = printable(text)
    assert shown.isprintable()
    if text.isprintable():
        assert shown == text


def test_unprintable_characters_are_escaped():
    assert printable("a\x1b[31m\n\udcffé") == r"a\x1b[31m\n\udcffé"
    assert printable(7) == "7"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (9_999, "9,999 B"),
        (12_345, "12.3 kB"),
        (999_600, "1 MB"),
        (5e15, "5 PB"),
        (5e18, "5,000 PB"),
    ],
)
def test_bytes(count, text):
    assert human_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0123, "0.0123 s"), (99, "99 s"), (204, "3.4 min"), (6000, "1.67 h")]
)
def test_seconds(seconds, text):
    assert human_seconds(seconds) == text


@given(st.floats(1, 1e17))
def test_three_digits_of_a_unit_are_left(value):
    for text, units in ((human_bytes(value), BYTES), (human_seconds(value), SECONDS)):
        number, unit = text.split(" ")
        assert "e" not in number
        assert float(number.replace(",", "")) * units[unit] == pytest.approx(value, rel=0.0051, abs=0.5)


@given(st.lists(st.floats(-1000, 1000), min_size=2, max_size=20))
def test_mean_and_standard_error(values):
    mean, error = (float(part) for part in spread(values, 3).split(" ± "))
    assert mean == pytest.approx(np.mean(values), abs=6e-4)
    assert error == pytest.approx(np.std(values, ddof=1) / np.sqrt(len(values)), abs=6e-4)


def test_one_value_has_no_standard_error_and_no_value_is_a_dash():
    assert spread([1.234]) == "1.23"
    assert spread(np.array([])) == "–"
