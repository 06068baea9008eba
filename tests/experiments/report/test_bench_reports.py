"""Figures and reports of benches, from real results relabelled as other methods and streams."""

import html
from pathlib import Path

import pytest

from logcl.experiments.bench.benches import BENCHES
from logcl.experiments.report import benches
from logcl.experiments.report.figures import canvas
from logcl.memory.settings import override

pytestmark = pytest.mark.xdist_group("report")
RESULTS = Path(__file__).parents[3] / "results"


@pytest.fixture(scope="module")
def dressed(results):
    """Results of each bench, derived from two real ones."""
    logcl = next(result for result in results if result.method == "logcl")
    other = next(result for result in results if result.method != "logcl")

    def wear(result, **changes):
        return result.model_copy(update=changes)

    sizes = [override(logcl.settings, {"codec.bytes_per_sample": b}) for b in (5, 10)]
    table = [
        wear(result, stream=stream, method=method, seed=seed)
        for stream in ("mnist", "omniglot")
        for seed in (0, 1)
        for method, result in (("logcl", logcl), ("joint", other), ("vcl", other))
    ]
    return {
        "table1": table,
        "table2": [wear(result, stream="cifar100") for result in table],
        "extreme": [wear(r, method=m) for r, m in ((logcl, "logcl"), (other, "replay-buffer"))],
        "bytes": [
            wear(other, method="joint"),
            *(wear(logcl, settings=s, memory_bytes=1000 * k) for k, s in enumerate(sizes, start=1)),
            wear(logcl, method="codec-buffer", options={"codec": "webp", "bytes_per_sample": 50}),
            wear(other, method="gdumb", budget="0.1MB"),
        ],
        "growth": [logcl, wear(logcl, method="generative-replay")],
    }


@pytest.mark.parametrize("bench", list(BENCHES))
def test_every_bench_has_a_report_with_its_tables_and_figures(dressed, bench, tmp_path):
    by_scale = {"small": dressed[bench], "full": dressed[bench]}
    (path,) = benches.write(bench, by_scale, tmp_path / "report.html")
    page = html.unescape(path.read_text())
    assert f"{bench}: {BENCHES[bench].summary}" in page
    assert f"Made by <code>logcl bench {bench} --scale small</code> and <code>" in page
    assert "(small)" in page
    assert "(full)" in page
    for drawing in benches.drawings(bench, dressed[bench]):
        assert drawing.title in page
        assert "role" in canvas.inline(drawing, "p")
    (path,) = benches.write(bench, {"small": dressed[bench]}, tmp_path / "report.md", "md")
    assert f"logcl bench {bench} --scale small" in path.read_text()


def test_texts_of_figures_agree_with_the_data(dressed):
    drawings = {drawing.name: drawing for drawing in benches.drawings("bytes", dressed["bytes"])}
    accuracy = next(d for name, d in drawings.items() if name.startswith("accuracy-by-bytes"))
    assert "logcl, fast reaches" in accuracy.alternative
    assert "webp" in accuracy.alternative
    assert any(name.startswith("quality-by-bytes") for name in drawings)
    fits, models, seconds = benches.drawings("growth", dressed["growth"])
    assert "one model, planned reaches" in fits.alternative
    assert "at 999," in fits.alternative
    assert "generative-replay" in seconds.alternative
    assert "at most, planned reaches" in models.alternative
    names = [drawing.name for drawing in benches.drawings("table1", dressed["table1"])]
    assert names == ["methods-mnist", "methods-omniglot"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bench", list(BENCHES))
def test_an_unfinished_grid_has_no_figure_without_data(dressed, bench):
    """Only the first result is there."""
    for drawing in benches.drawings(bench, dressed[bench][:1]):
        assert any(axes.has_data() for axes in drawing.figure.axes), drawing.name
        assert not drawing.alternative.endswith((": .", ":"))


def test_zeros_are_left_out_of_a_logarithmic_axis(dressed):
    """A first task of less than a unit: nothing is fitted yet."""
    (logcl, *_) = dressed["growth"]
    first, *others = logcl.tasks
    waiting = logcl.model_copy(update={"tasks": (first.model_copy(update={"trained": 0}), *others)})
    fits, *_ = benches.drawings("growth", [waiting])
    texts = [text for of_line in fits.hover.values() for text in of_line]
    assert sum(text.startswith("logcl, measured") for text in texts) == len(others)
    assert canvas.inline(fits, "p").count("<title>") == len(texts)


@pytest.mark.long
@pytest.mark.parametrize("bench", list(BENCHES))
def test_the_results_of_the_repository_have_a_page(bench, tmp_path, logcl):
    path = tmp_path / "report.html"
    ran = logcl("report", RESULTS / bench, "--out", path)
    assert ran.code == 0, ran.err
    assert path.read_text().count("<svg") > 5


def test_a_folder_of_a_bench_is_recognised(dressed, tmp_path, logcl):
    folder = tmp_path / "table1"
    folder.mkdir()
    for result in dressed["table1"]:
        name = f"small-{result.stream}-{result.method}-seed{result.seed}.json"
        (folder / name).write_text(result.model_dump_json())
    assert {scale: len(found) for scale, found in benches.found_in(folder).items()} == {"small": 12}
    assert benches.found_in(tmp_path) == {}
    ran = logcl("report", folder, "--figures", tmp_path / "figures")
    assert ran.code == 0, ran.err
    assert "Table 1: MNIST and Omniglot" in (folder / "report.html").read_text()
    assert (tmp_path / "figures" / "methods-mnist.png").exists()
