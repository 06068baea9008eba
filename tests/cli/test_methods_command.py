"""`logcl methods`, and how `logcl run` takes methods, their options and a budget."""

import json

import pytest

from logcl.methods import METHODS, options_of

QUICK = [
    "--tasks", 2, "--evaluate", "final", "--set", "classifier.min_steps=0", "--set", "classifier.epochs=1",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_list_names_every_method(logcl):
    ran = logcl("methods", "list")
    assert [line.split()[0] for line in ran.out.splitlines()[: len(METHODS)]] == list(METHODS)
    assert [row["name"] for row in json.loads(logcl("methods", "list", "--json").out)] == list(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_show_explains_every_option(logcl, name):
    shown = json.loads(logcl("methods", "show", name, "--json").out)
    expected = {f"{name}.{option}" for option in type(options_of(name)).model_fields}
    assert {option["name"].rsplit(".", 1)[0] if option["name"].count(".") > 1 else option["name"]
            for option in shown["options"]} == expected  # fmt: skip
    assert all(option["meaning"] for option in shown["options"]), "an option without a docstring"
    assert logcl("methods", "show", name).code == 0


def test_options_and_budget_reach_the_method_and_the_result(logcl):
    ran = logcl(
        "run", "digits", "--method", "er,ewc", "--budget", "3/class", "--set", "ewc.importance=7",
        "--out", "r",
        "--json", *QUICK,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    er, ewc = json.loads(ran.out)
    assert er["budget"] == "3/class"
    assert ewc["options"]["importance"] == 7
    assert er["memory_bytes"] < ewc["memory_bytes"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", "lots"], "the budget 'lots' is not valid"),
        (["--method", "ewc", "--set", "ewc.magic=1"], "no option ewc.magic; the options of ewc are: ewc.imp"),
        (["--method", "er", "--set", "ewc.importance=1"], "there is no setting 'ewc.importance'"),
        (["--method", "ewc", "--set", "ewc.importance=-1"], "importance: Input should be greater"),
        (["--method", "er,magic"], "there is no method 'magic'"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_before_anything_runs(logcl, tmp_path, arguments, message):
    ran = logcl("run", "digits", *arguments, "--out", "r", *QUICK)
    assert ran.code == 2
    assert message in ran.err
    assert not list(tmp_path.glob("r/*"))


def test_an_unknown_method_is_not_shown(logcl):
    ran = logcl("methods", "show", "magic")
    assert ran.code == 2
    assert "there is no method 'magic'" in ran.err
