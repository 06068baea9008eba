"""A result file comes from anywhere: it is shown, or refused in one sentence that names it."""

import copy
import json
import os
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from logcl.core.errors import BadInput
from logcl.experiments.report.document import FORMATS, Document
from logcl.experiments.result import Result, find, legible, read

RESULTS = Path(__file__).parents[2] / "results"
REAL = json.loads((RESULTS / "digits" / "logcl-seed0.json").read_text())
ODD = (
    None, True, -1, 0, 1, 2**31, 2**63, 10**400, 0.5, -0.5, 1e300, float("nan"), float("-inf"), "", "x",
    "x.py", "../../x", "\x1b[31m", "\ufffe", "\ud800", "<script>", [], {}, [[]], [None], {"x": 1}, [1, 2, 3],
)  # fmt: skip


def places(value, so_far=()):
    """The paths to all values in a document."""
    yield so_far
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, content in items:
        yield from places(content, (*so_far, name))


def mutated(document, place, change):
    """A copy in which one value is replaced, removed or duplicated."""
    document = copy.deepcopy(document)
    *path, last = place
    parent = document
    for name in path:
        parent = parent[name]
    if change == "remove":
        del parent[last]
    elif change == "repeat":
        parent.insert(last, parent[last]) if isinstance(parent, list) else parent.update({"x": parent[last]})
    else:
        parent[last] = change[0]
    return document


def shown_or_refused(folder, content):
    path = folder / "result.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    result = problem = None
    try:
        result = read(path)
    except BadInput as error:
        problem = str(error)
    if result is None:
        assert str(path) in problem
        assert problem.isprintable(), "one sentence, safe on a terminal"
    else:
        for written in FORMATS.values():
            written(Document((result,))).encode()


changes = st.tuples(
    st.sampled_from([place for place in places(REAL) if place]),
    st.one_of(st.just("remove"), st.just("repeat"), st.tuples(st.sampled_from(ODD))),
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(changes, min_size=1, max_size=2))
def test_a_mutated_result_is_shown_or_refused(tmp_path, found):
    document = REAL
    for place, change in found:
        try:
            document = mutated(document, place, change)
        except (KeyError, IndexError, TypeError, AttributeError):
            continue  # the first change removed the place of the second
    shown_or_refused(tmp_path, document)


@pytest.mark.parametrize("name", ["tasks", "confusion", "accuracy_matrix", "classes", "examples"])
def test_lengths_must_match(tmp_path, name):
    for length in (0, 1, len(REAL[name]) - 1):
        shown_or_refused(tmp_path, {**REAL, name: REAL[name][:length]})


@pytest.mark.parametrize("content", [
    b"", b"{", b"null", b"[]", b"[" * 100_000, b'{"a":' * 5_000 + b"1" + b"}" * 5_000, b"\xff\xfe\x00",
    b"NaN", b"9" * 10_000,
])  # fmt: skip
def test_files_that_are_no_results_are_refused(tmp_path, content):
    shown_or_refused(tmp_path, content)
    with pytest.raises(BadInput):
        read(tmp_path / "result.json")


def test_folders_and_pipes_named_like_a_result_are_refused(tmp_path, logcl):
    (tmp_path / "folder" / "result.json").mkdir(parents=True)
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "result.json")
    for name in ("folder", "pipe"):
        ran = logcl("report", tmp_path / name)
        assert ran.code == 2
        assert f"{name}/result.json is a folder or a special file" in " ".join(ran.err.split())


def test_a_forged_method_runs_no_code(tmp_path):
    """Method files are for `logcl run`: naming one in a result must not run it."""
    trap = tmp_path / "trap.py"
    trap.write_text("raise SystemExit('run')")
    for options in ({}, {"codec": ["x"], "bytes_per_sample": "many"}):
        shown_or_refused(tmp_path, {**REAL, "method": str(trap), "max_generation": None, "options": options})


def test_figures_stay_in_their_folder(tmp_path, logcl):
    folder = tmp_path / "in" / "table1"
    folder.mkdir(parents=True)
    (folder / "small-x.json").write_text(json.dumps({**REAL, "stream": "../../../x" * 40}))
    ran = logcl("report", folder, "--figures", tmp_path / "figures")
    assert ran.code == 0, ran.err
    assert {path.name for path in tmp_path.iterdir()} == {"in", "figures"}


@given(st.text(st.characters(codec=None)))
def test_all_text_of_a_result_can_be_written(name):
    result = Result.model_validate({**REAL, "classes": [name, *REAL["classes"][1:]], "command": name})
    assert Result.model_validate_json(result.model_dump_json()) == result
    assert result.classes[0] == result.command == legible(name)


def test_results_of_the_repository_are_read_as_they_are():
    found = list(find(RESULTS / "table1"))
    assert len(found) > 5
    for path, result in found:
        options = json.loads(path.read_bytes())["options"]
        assert repr(result.options) == repr(options), "true stays true, 1 stays 1"


@pytest.mark.parametrize("name", [b"a\x1b[31m", "a\ufffe".encode(), b"a\x01\x7f", "a\x9b\n<b>".encode()])
def test_odd_names_of_classes_do_not_end_a_run(tmp_path, logcl, name):
    """They are names of folders: control characters and non-characters."""
    rng = np.random.default_rng(0)
    for folder in (os.fsdecode(name), "b"):
        (tmp_path / "images" / folder).mkdir(parents=True)
        for number in range(6):
            image = Image.fromarray(rng.integers(0, 255, (8, 8), dtype=np.uint8))
            image.save(tmp_path / "images" / folder / f"{number}.png")
    command = (
        "run", tmp_path / "images", "--method", "finetune,joint", "--tasks", "1", "--out", tmp_path / "runs",
        "--set", "classifier.min_steps=1", "--set", "classifier.epochs=1",
    )  # fmt: skip
    ran = logcl(*command)
    assert ran.code == 0, ran.err
    page = (tmp_path / "runs" / "report.html").read_text(encoding="utf-8")
    assert repr(os.fsdecode(name).split("\n")[0])[1:-1] in page
    (tmp_path / "runs" / "finetune-seed0" / "result.json").unlink()
    again = logcl(*command)
    assert again.code == 0, again.err
    assert "1 of 2 runs were finished before" in again.err, "the same classes, though their names are escaped"
    ran = logcl("report", tmp_path / "runs", "--figures", tmp_path / "figures", "--title", os.fsdecode(name))
    assert ran.code == 0, ran.err
    for path in (tmp_path / "figures").glob("*.svg"):
        ElementTree.parse(path)
