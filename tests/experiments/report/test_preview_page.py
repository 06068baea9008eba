"""The page of a preview: text of users is escaped, nothing is loaded, and a phone can show it."""

import re
import shutil

import numpy as np
import pytest
from PIL import Image

from logcl.experiments.preview.candidates import Measured, Row
from logcl.experiments.preview.source import Source
from logcl.experiments.report import preview

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
EVIL = '"><script>alert(1)</script>'


def measured(name, shape, psnr=30.0):
    row = Row(
        name=name, image_shape=shape, codec="cosine", bytes_per_sample=1000, psnr=psnr, memory_bytes=10**6,
        classifier_bytes=10**6, tenfold_bytes=10**7, absorb_seconds=30, train_seconds=300,
    )  # fmt: skip
    pixels = np.random.default_rng(0).integers(0, 256, (12, *shape), dtype=np.uint8)
    return Measured(row, None if psnr is None else pixels)


@pytest.fixture
def page(tmp_path):
    originals = tuple(Image.new("RGB", (60, 40 + number), (number * 9, 90, 90)) for number in range(12))
    shapes = ((3, 8, 8), (3, 16, 16))
    source = Source(f"a{EVIL}", 500, 3, (EVIL,) * 12, originals, lambda *_: None, shapes[1], shapes)
    rows = [measured("8x8", shapes[0]), measured("16x16", shapes[1]), measured("net", (3, 9, 9), None)]
    path = tmp_path / "p.html"
    preview.write(source, rows, rows[1].row, "because", path)
    return path


def test_it_shows_every_size_beside_the_original(page):
    text = page.read_text()
    assert EVIL not in text
    assert text.count("<img ") == 8 * 3
    assert text.count("data:image/webp;base64,") == 8 * 3
    assert re.search(r'<tr class="best">\s*<td>16x16</td>', text)
    assert "Recommended: <strong>16x16</strong>, because." in text
    assert "replayed at net" not in text, "features have no images"
    assert re.search(r"<td>net</td>\s*<td>cosine</td>\s*<td class=\"number\">1,000 B</td>", text)
    assert "500 images in 3 classes" in text
    assert "Measured on 12 of the images" in text


@pytest.mark.xdist_group("report")
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on the path")
def test_a_browser_opens_it(page):
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    problems = []
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for width in (390, 1280):
            tab = browser.new_page(viewport={"width": width, "height": 800})
            tab.on("console", lambda message: problems.append(message.text))
            tab.on("dialog", lambda dialog: problems.append(dialog.message))
            tab.on("request", lambda it: it.url.startswith(("file:", "data:")) or problems.append(it.url))
            tab.goto(page.as_uri())
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
            assert tab.evaluate("[...document.images].every(image => image.naturalWidth > 0)")
        browser.close()
    assert problems == []
