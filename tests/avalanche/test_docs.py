"""The code and the arguments in docs/avalanche.md are correct, and the example runs."""

import re
import runpy
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


def blocks(document: str, language: str) -> list[str]:
    """The fenced blocks of one language; opening and closing fences alternate."""
    pieces = re.split(r"^```(\w*)\n", (ROOT / document).read_text(), flags=re.MULTILINE)
    openings = zip(pieces[1::4], pieces[2::4], strict=True)
    return [code for name, code in openings if name == language]


def test_python_blocks_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    code = blocks("docs/avalanche.md", "python")
    assert len(code) == 5
    names: dict = {}
    for block in code:
        exec(block, names)
    assert names["plugin"].memory.n == 640
    assert len(names["storage"].memory.classes) == 10
    assert "Top1_Acc_Stream/eval_phase/test_stream/Task000" in capsys.readouterr().out
    files = {"digits.logcl", "policy.logcl", "checkpoint.pkl", "features.logcl"}
    assert {path.name for path in tmp_path.iterdir()} == files


def test_all_arguments_are_documented():
    import inspect

    from logcl import Memory
    from logcl.integrations.avalanche import LogCLBuffer, LogCLPlugin

    page = (ROOT / "docs" / "avalanche.md").read_text()
    table = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`[^|]*)\|", page, flags=re.MULTILINE))))
    known = {*inspect.signature(LogCLPlugin).parameters, *inspect.signature(LogCLBuffer).parameters}
    settings = {*inspect.signature(Memory.open).parameters} - {"path", "dataset"}
    assert table == known - {"options", "new", "like"} | settings


def test_example_runs(capsys):
    names = runpy.run_path(str(ROOT / "examples" / "avalanche_replay.py"))
    accuracies = names["accuracies"]
    assert accuracies["LogCL"] > accuracies["no replay"] + 0.5
    assert accuracies["LogCL"] > accuracies["200 raw samples"] - 0.03
    assert "1,438 samples" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["docs/avalanche.md", "examples/avalanche_replay.py"])
def test_lines_are_not_too_long(name):
    assert max(map(len, (ROOT / name).read_text().splitlines())) <= 150
