"""Every example runs to its end, in its own process and folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
ELSEWHERE = {"avalanche_replay.py"}  # run by tests/avalanche, which needs another environment


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "script",
    [
        pytest.param(path.name, marks=[pytest.mark.xdist_group("ray")] if "ray" in path.name else [])
        for path in sorted(EXAMPLES.glob("*.py"))
        if path.name not in ELSEWHERE
    ],
)
def test_an_example_runs(script, tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("\n") >= 2, ran.stdout
