"""`logcl report`: where it writes, in which formats, and what it refuses."""

import csv
import io
import json
import shutil

import pytest

from logcl.cli.report import _SUFFIXES
from logcl.core.errors import BadInput, BadSettings, CannotWrite
from logcl.experiments import report
from logcl.experiments.report import Document
from logcl.experiments.report.document import as_csv, as_json, markdown
from logcl.experiments.report.figures.lines import over_tasks
from logcl.experiments.report.study import studies
from logcl.experiments.result import Result
from logcl.experiments.table import Table, summary

pytestmark = pytest.mark.xdist_group("report")


@pytest.fixture
def runs(folder, tmp_path):
    """One run of each method, as its own folder below `runs`."""
    for name in ("logcl-seed1", "finetune-seed1"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        shutil.copy(folder / name / "result.json", tmp_path / "runs" / name)
    return tmp_path / "runs"


def test_a_page_beside_the_runs(runs, logcl):
    ran = logcl("report", runs)
    assert ran.code == 0, ran.err
    assert ran.out == f"report       {runs / 'report.html'}    (2 results)\n"
    assert (runs / "report.html").read_text().startswith("<!doctype html>")


def test_a_single_file(runs, logcl):
    ran = logcl("report", runs / "finetune-seed1" / "result.json", "--title", "Mine")
    assert ran.code == 0, ran.err
    page = (runs / "finetune-seed1" / "report.html").read_text()
    assert "<h1>Mine</h1>" in page
    assert "(1 result)" in ran.out


def test_the_report_of_several_folders_goes_to_their_parent(runs, logcl):
    ran = logcl("report", runs / "logcl-seed1", runs / "finetune-seed1/result.json", runs, "--format", "md")
    assert ran.code == 0, ran.err
    assert "(2 results)" in ran.out, "each result once"
    assert (runs / "report.md").exists()


def test_the_format_follows_the_file_name(runs, tmp_path, logcl):
    for suffix in ("md", "json", "csv"):
        assert logcl("report", runs, "--out", tmp_path / "new" / f"r.{suffix}").code == 0
    assert logcl("report", runs, "--out", tmp_path / "new", "--format", "csv").code == 0
    written = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert written == ["r.csv", "r.json", "r.md", "report.csv"]
    assert (tmp_path / "new" / "r.csv").read_text() == (tmp_path / "new" / "report.csv").read_text()
    assert set(_SUFFIXES) == set(report.FORMATS)


def test_figures_for_papers(runs, tmp_path, logcl):
    one = runs / "logcl-seed1"
    ran = logcl("report", one, "--out", tmp_path / "r.csv", "--figures", tmp_path / "figures")
    assert ran.code == 0, ran.err
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"accuracy.png", "accuracy.svg", "counter-logcl.png", "matrix-logcl.svg"} <= names
    assert f"{len(names)} figure files in {tmp_path / 'figures'}" in ran.out


def test_json_holds_the_results_themselves(results):
    document = json.loads(as_json(Document(results)))
    assert tuple(map(Result.model_validate, document["results"])) == results
    assert document["summary"] == summary(results).records()


def test_csv_holds_the_summary(results):
    rows = list(csv.reader(io.StringIO(as_csv(Document(results)))))
    assert tuple(map(tuple, rows)) == (summary(results).columns, *summary(results).rows)
    drawing = over_tasks(studies(results)[0], "memory")
    with pytest.raises(BadInput, match="no table"):
        as_csv(Document((), drawings=(drawing,)))


def test_markdown_holds_headline_summary_and_settings(results):
    found = markdown(Document(results, intro="What was asked."))
    assert found.startswith("# digits, 3 tasks, 10 classes\n\nWhat was asked.\n\n- final accuracy: **")
    for row in summary(results).rows:
        assert "| " + " | ".join(row) + " |" in found
    assert "| classifier.min_steps | 40 |" in found
    assert "\n\n\n" not in found


def test_names_with_line_breaks_and_bars_stay_in_their_cells(results):
    name = "a\r\n\n| b \\| c\u2028d"
    table = Table(name, (name, "other"), ((name, "1"),), (name,))
    result = results[0].model_copy(update={"stream": name, "classes": (name, *results[0].classes[1:])})
    lines = markdown(Document((result,), tables=(table,))).splitlines()
    cell = r"a \| b \\\| c d"
    assert [line for line in lines if "other" in line] == [f"| {cell} | other |"]
    assert f"| {cell} | 1 |" in lines
    assert not [line for line in lines if line.startswith(("| b \\", "d"))]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["absent"], 2, "does not exist"),
        (["empty"], 2, "holds no results"),
        (["broken.json"], 2, "is not the result of an experiment"),
        (["runs", "--format", "pdf"], 2, "no format 'pdf'"),
        (["runs", "--out", "r.pdf"], 2, "has an unknown suffix"),
        (["runs", "--out", "r.md", "--format", "csv"], 2, "contradict"),
        (["runs", "--out", "broken.json/r.html"], 7, "cannot be created"),
        (["runs", "--out", "r.csv", "--figures", "broken.json"], 7, "cannot be created"),
        ([], 2, "RUNS"),
    ],
)
def test_refused_in_one_sentence(runs, tmp_path, monkeypatch, logcl, arguments, code, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.json").write_text("{}")
    ran = logcl("report", *arguments)
    assert ran.code == code
    assert words in ran.err
    assert "Traceback" not in ran.err


def test_the_library_refuses_the_same_input(results, tmp_path):
    with pytest.raises(BadSettings, match="no format 'pdf'"):
        report.write(results, tmp_path / "r.pdf", "pdf")
    with pytest.raises(BadInput, match="nothing to report"):
        report.write([], tmp_path / "r.html")
    (tmp_path / "file").touch()
    with pytest.raises(CannotWrite):
        report.write(results, tmp_path / "file" / "r.md", "md")
