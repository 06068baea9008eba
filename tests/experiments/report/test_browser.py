"""The page in a real browser: opens from disk, fits a phone, sorts, has a dark mode, prints."""

import re
import shutil

import pytest

from logcl.experiments import report

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.xdist_group("report"),
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on the path"),
]


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(results, long, tmp_path_factory):
    """A page with everything on it: short and long streams, a class name with markup."""
    evil = results[2].model_copy(
        update={"stream": "evil", "classes": ("<script>alert(1)</script>", *results[2].classes[1:])}
    )
    omniglot = [result.model_copy(update={"stream": "long"}) for result in long[:1]]
    path = tmp_path_factory.mktemp("page") / "report.html"
    report.write([*results, evil, *omniglot], path)
    return path.as_uri()


@pytest.fixture
def opened(browser, address):
    """opened(width, scheme) → a page; any error on it fails the test."""
    contexts, problems = [], []

    def opens(width=1440, scheme="light", **more):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **more)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(dialog.message))
        page.on("requestfailed", lambda request: problems.append(request.url))
        page.on(
            "request",
            lambda request: request.url.startswith(("file:", "data:")) or problems.append(request.url),
        )
        page.goto(address)
        return page

    yield opens
    for context in contexts:
        context.close()
    assert problems == []


def test_the_page_is_never_wider_than_the_screen(opened):
    page = opened()
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    for width in (375, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        wide, screen = page.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert wide <= screen == width


def test_every_figure_shows_data_and_has_a_description(opened):
    page = opened()
    figures = page.evaluate(
        """[...document.querySelectorAll('figure svg')].map((svg) => ({
            marks: svg.querySelectorAll('path, rect, use').length,
            titles: svg.querySelectorAll('title').length,
            label: svg.getAttribute('aria-label'),
            role: svg.getAttribute('role'),
            height: svg.getBoundingClientRect().height,
        }))"""
    )
    assert len(figures) > 10
    for figure in figures:
        assert figure["role"] == "img"
        assert len(figure["label"]) > 20
        assert figure["marks"] > 3
        assert figure["titles"] > 2
        assert figure["height"] > 60
    images = page.evaluate("[...document.images].map((i) => [i.alt, i.complete && i.naturalWidth, i.width])")
    assert images
    assert all(alt and natural and width >= 40 for alt, natural, width in images)


def test_text_in_figures_is_legible_on_a_phone(opened):
    page = opened(375)
    smallest = page.evaluate(
        """Math.min(...[...document.querySelectorAll('figure svg')].map((svg) => {
            const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
            const sizes = [...svg.querySelectorAll('text')].map((text) => parseFloat(text.style.fontSize));
            return scale * Math.min(...sizes);
        }))"""
    )
    assert smallest >= 7


def column(page, number):
    return page.locator("#summary tbody tr").evaluate_all(
        f"(rows) => rows.map((row) => row.cells[{number}].textContent.trim())"
    )


def number(text):
    found = re.match(r"([\d.,]+)(?: (k|M)?B)?", text)
    return float(found[1].replace(",", "")) * {None: 1, "k": 1e3, "M": 1e6}[found[2]]


def test_tables_sort_by_number(opened):
    page = opened()
    heads = page.locator("#summary thead th").all_inner_texts()
    names = sorted(column(page, 1))
    for name in ("accuracy %", "bytes kept", "absorb s"):
        place = next(k for k, head in enumerate(heads) if head.startswith(name))
        head = page.locator("#summary thead th").nth(place)
        assert head.get_attribute("aria-sort") is None
        for order, sign in (("ascending", 1), ("descending", -1)):
            head.get_by_role("button").focus()
            page.keyboard.press("Enter")
            assert head.get_attribute("aria-sort") == order
            cells = column(page, place)
            known = [number(cell) for cell in cells if cell != "–"]
            assert known == sorted(known, key=lambda value, sign=sign: sign * value)
            assert cells[len(known) :] == ["–"] * (len(cells) - len(known)), "what is unknown comes last"
        assert sorted(column(page, 1)) == names
    page.locator("#summary thead th button").first.click()
    assert page.locator("#summary [aria-sort]").count() == 1, "one order at a time"


def test_dark_mode_and_white_on_paper(opened):
    background = "getComputedStyle(document.body).backgroundColor"
    ink = "getComputedStyle(document.querySelector('figure svg')).color"
    day, night = opened(), opened(scheme="dark")
    assert day.evaluate(background) == "rgb(255, 255, 255)"
    assert sum(map(int, re.findall(r"\d+", night.evaluate(background)))) < 150
    assert sum(map(int, re.findall(r"\d+", night.evaluate(ink)))) > 600
    night.emulate_media(media="print")
    assert night.evaluate(background) == "rgb(255, 255, 255)"
    assert night.evaluate(ink) == "rgb(0, 0, 0)"


def test_it_prints(opened):
    page = opened()
    content = page.pdf(format="A4")
    assert content.startswith(b"%PDF")
    assert len(content) > 20_000
    assert page.locator("details:not([open])").count() > 0, "what was folded away is folded away again"


def test_touching_a_mark_shows_its_text(opened):
    page = opened(375, has_touch=True)
    x, y, meaning = page.evaluate(
        """() => {
            const mark = [...document.querySelectorAll('figure svg title')][9].parentNode;
            mark.scrollIntoView({ block: 'center' });
            const box = mark.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2, mark.textContent];
        }"""
    )
    page.touchscreen.tap(x, y)
    assert page.locator("#tip").inner_text() == meaning
    page.touchscreen.tap(5, 5)
    assert page.locator("#tip").is_hidden()
