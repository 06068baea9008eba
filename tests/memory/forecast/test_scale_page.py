"""The tables of docs/scale.md are those that `tools/scale_page.py` writes."""

import importlib.util
from pathlib import Path

import pytest

from logcl.memory.forecast.costs import measured

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def scale_page():
    spec = importlib.util.spec_from_file_location("scale_page", ROOT / "tools" / "scale_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(scale_page):
    text = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    row = "| samples | 0 to 1,000,000,000 of 3x224x224"
    assert row in text
    assert scale_page.page(text.replace(row, "| samples | edited by hand"), measured()) == text


def test_a_page_without_markers_is_refused(scale_page, monkeypatch):
    monkeypatch.setattr(scale_page, "_sections", lambda found: {"summary": "| a |\n"})
    text = "<!-- scale:summary -->\nold\n<!-- /scale:summary -->"
    assert scale_page.page(text, measured()) == text.replace("old", "| a |")
    with pytest.raises(SystemExit, match="no markers for summary"):
        scale_page.page("<!-- scale:summary -->\n", measured())
