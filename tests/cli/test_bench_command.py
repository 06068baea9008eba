"""`logcl bench` as a user types it, on the real data sets if they are present."""

import json
import os

import pytest

REAL_DATA = os.environ.get("LOGCL_DATA")


def test_unknown_names_are_refused_with_the_known_ones(logcl, tmp_path):
    ran = logcl("bench", "table3", "--out", tmp_path)
    assert ran.code == 2
    assert "there is no bench 'table3'; choose one of: table1" in ran.err
    ran = logcl("bench", "table1", "--methods", "logcl,magic", "--out", tmp_path)
    assert ran.code == 2
    assert "there is no method 'magic'" in ran.err
    ran = logcl("bench", "table1", "--methods", "gss", "--out", tmp_path)
    assert ran.code == 2
    assert "table1 has none of these methods; choose from: logcl" in ran.err
    ran = logcl("bench", "table1", "--streams", "cifar100", "--out", tmp_path)
    assert ran.code == 2
    assert "there is no stream of this bench 'cifar100'" in ran.err


def test_without_the_data_every_cell_says_what_is_missing(logcl, tmp_path):
    ran = logcl("bench", "growth", "--scale", "smoke", "--out", tmp_path)
    assert ran.code == 1
    assert "mnist-logcl-seed0 failed" in ran.err
    assert "logcl data get mnist" in ran.err


@pytest.mark.skipif(not REAL_DATA, reason="LOGCL_DATA names no folder with the real data sets")
def test_a_grid_runs_to_its_end_and_nothing_runs_twice(logcl, tmp_path):
    arguments = ("bench", "growth", "--scale", "smoke", "--out", tmp_path, "--data-dir", REAL_DATA)
    ran = logcl(*arguments)
    assert ran.code == 0, ran.err
    assert "Growth, planned" in ran.out
    assert "(2 of 2 cells)" in ran.out
    assert "2/2  mnist-generative-replay-seed0: done" in ran.err
    assert (tmp_path / "growth" / "smoke-report.html").exists()
    again = logcl(*arguments, "--json")
    assert again.code == 0
    assert "done" not in again.err  # nothing was run
    tables = json.loads(again.out)["tables"]
    assert [row["method"] for row in tables[0]["rows"]] == ["generative-replay", "logcl"]
