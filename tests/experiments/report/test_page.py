"""The page: every section with data, nothing loaded from outside, user text escaped."""

import re
from html.parser import HTMLParser

import pytest

from logcl.core.errors import BadInput
from logcl.experiments.report import Document
from logcl.experiments.report.document import html, markdown
from logcl.experiments.report.figures.lines import over_tasks
from logcl.experiments.report.study import mixed, provenance, studies
from logcl.experiments.table import Table

pytestmark = pytest.mark.xdist_group("report")

VOID = {"meta", "link", "img", "br"}


class Reader(HTMLParser):
    """Collects tags and checks that they are closed in order."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.addresses = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def written(results):
    return html(Document(results))


def headings(shown):
    return re.findall(r"<h[23]>(.*?)</h[23]>", shown)


def test_all_parts_are_there(written):
    assert headings(written) == [
        "Summary",
        "Task by task",
        "Accuracy on each task",
        "The binary counter",
        "Originals and replay",
        "Reconstruction errors",
        "Confused classes",
        "Labels by distortion",
        "Settings and runs",
    ]
    reader = Reader(written)
    assert reader.tags.count("svg") == 3 + 2 + 1 + 1 + 2
    assert reader.tags.count("img") >= 4
    assert "digits, 3 tasks, 10 classes" in written
    assert "classifier.min_steps" in written
    assert "logcl run digits" in written


def test_nothing_is_loaded_from_outside(written):
    reader = Reader(written)
    assert all(address.startswith(("data:", "#")) for address in reader.addresses)
    assert "url(http" not in written
    assert "@import" not in written
    assert reader.tags.count("script") == 1
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', written)[1]
    assert policy.startswith("default-src 'none'; img-src data:;")


def test_ids_are_used_once(written):
    ids = re.findall(r'\sid="([^"]*)"', written)
    assert len(ids) == len(set(ids))


def test_user_text_is_escaped(results):
    evil = "<script>alert('x')</script>"
    result = results[0].model_copy(
        update={
            "classes": (evil, *results[0].classes[1:]),
            "command": f"logcl run '{evil}'",
            "stream": evil,
            "subset": '"><img src=x onerror=alert(1)>',
        }
    )
    table = Table(evil, (evil,), ((evil,),), (evil,))
    shown = html(Document((result,), title=evil, intro=evil, tables=(table,)))
    reader = Reader(shown)
    assert reader.tags.count("script") == 1
    assert "onerror=alert(1)>" not in shown
    assert "&lt;script&gt;" in shown


def test_old_results_are_shown_without_what_they_lack(old, results):
    shown = html(Document((old,)))
    Reader(shown)
    parts = headings(shown)
    assert "Originals and replay" not in parts
    assert "Confused classes" not in parts
    assert "Reconstruction errors" in parts, "a table, without histograms"
    beside = Document((old, results[2]))
    assert "Confused classes" in [part.title for _, parts in beside.sections for part in parts]


def test_of_a_hundred_generations_some_are_shown(results):
    """One model retrained at each of 100 tasks has 100 generations, which would fill 70 screens."""
    logcl = next(result for result in results if result.method == "logcl")
    pair, error = logcl.examples[0], logcl.reconstruction[-1]
    aged = logcl.model_copy(
        update={
            "examples": tuple(pair.model_copy(update={"level": 0, "generation": g}) for g in range(100)),
            "reconstruction": tuple(
                error.model_copy(update={"generation": g, "mse": 0.02 if g > 63 else 0.01})
                for g in range(100)
            ),
        }
    )
    ((_, parts),) = Document((aged,)).sections
    shown = {part.title: part for part in parts}
    strips = [strip.examples.generation for strip in shown["Originals and replay"].strips]
    assert strips == [0, 1, 2, 4, 8, 16, 32, 64, 99]
    (table,) = shown["Reconstruction errors"].tables
    assert [row[1] for row in table.rows][-2:] == ["32 to 63", "64 to 99"]
    assert table.rows[-1][2:4] == (f"{36 * error.samples:,}", "0.02000")


def test_many_classes_have_tables_of_mistakes(long):
    document = Document(long[2:3])
    (part,) = (part for _, parts in document.sections for part in parts if "Confused" in part.title)
    pairs, worst = part.tables
    assert pairs.title == "finetune, seed 1: pairs most often confused"
    assert pairs.rows[0] == ("class 0", "class 1", "1", "10.0")
    assert worst.rows[0] == ("class 0", "10", "90.0")


def test_several_streams_each_have_their_own_part(results):
    mine = results[2:]
    other = tuple(result.model_copy(update={"stream": "letters"}) for result in mine)
    document = Document(mine + other)
    shown = html(document)
    assert {"digits, 3 tasks, 10 classes", "letters, 3 tasks, 10 classes"} <= set(headings(shown))
    ids = re.findall(r'\sid="([^"]*)"', shown)
    assert len(ids) == len(set(ids))
    names = [drawing.name for drawing in document.all_drawings()]
    assert len(names) == len(set(names)) == 2 * 5


def test_more_tables_and_figures(results):
    results = results[2:3]
    drawing = over_tasks(studies(results)[0], "memory")
    table = Table("Table 1", ("method", "ours"), (("logcl", "99.1 ± 0.2"),), ("As published.",))
    document = Document(results, "A bench", "What it asks.", (table,), (drawing,))
    shown = html(document)
    assert "<h1>A bench</h1>" in shown
    assert "What it asks." in shown
    assert "As published." in shown
    assert [d.name for d in document.all_drawings()].count("memory") == 1
    alone = html(Document((), "Only a table", tables=(table,)))
    assert "Settings and runs" not in alone
    Reader(alone)


def test_an_empty_report_is_refused():
    with pytest.raises(BadInput, match="nothing to report"):
        Document(())


def test_runs_of_different_settings_are_not_silently_averaged(results):
    wider = results[1].settings.classifier.model_copy(update={"width": 99})
    changed = results[1].model_copy(
        update={"settings": results[1].settings.model_copy(update={"classifier": wider})}
    )
    (sentence,) = mixed((results[0], changed))
    assert "2 results of logcl on digits" in sentence
    assert "classifier.width" in sentence
    assert sentence in markdown(Document((results[0], changed)))
    assert f"<p>{sentence}</p>" in html(Document((results[0], changed)))
    (sentence,) = mixed((results[0], results[0]))
    assert "Seed 1 of logcl on digits is among the results 2 times" in sentence
    assert mixed(results) == ()


def test_settings_tell_methods_apart(results):
    joint = results[2].model_copy(update={"method": "er", "options": {"batch": 10}, "budget": "2000"})
    results = (*results, joint)
    apart, shared, runs = provenance(studies(results), results)
    assert ("er.batch", "–", "–", "10") in apart.rows or ("er.batch", "–", "10", "–") in apart.rows
    assert "budget" in [row[0] for row in apart.rows]
    assert ("unit", "64") in shared.rows
    assert runs.columns[:4] == ("stream", "method", "seed", "accuracy %")
    assert any(note.startswith("versions.torch: ") for note in runs.notes)
