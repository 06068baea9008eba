"""The command line starts quickly: help, version and `import logcl` do not import torch."""

import subprocess
import sys

from logcl.cli import COMMANDS

HEAVY = "{'torch', 'sklearn', 'matplotlib', 'pandas', 'ray', 'pooch'}"


def imported(code, *arguments):
    """The heavy modules that a new process imports, and its standard output."""
    code = f"import sys\n{code}\nprint(*{HEAVY} & set(sys.modules), file=sys.stderr)\n"
    ran = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stderr.split(), ran.stdout


COMMAND_LINES = [
    ["--help"],
    ["--version"],
    *([name, "--help"] for name in COMMANDS),
    ["data", "list"],
    ["presets", "show", "--help"],
    ["methods", "show", "--help"],
]


def test_help_and_version_do_not_import_torch():
    """All in one process, because what one of them imports stays imported: the first to do so is named."""
    code = f"""
import contextlib, io
from logcl.__main__ import main

for line in {COMMAND_LINES}:
    sys.argv = ["logcl", *line]
    shown, code = io.StringIO(), 0
    with contextlib.redirect_stdout(shown):
        try:
            main()
        except SystemExit as leaving:
            code = leaving.code or 0
    assert code == 0 and shown.getvalue(), line
    assert not {HEAVY} & set(sys.modules), line
    print(*line)
"""
    heavy, out = imported(code)
    assert heavy == []
    assert out.splitlines() == [" ".join(line) for line in COMMAND_LINES]


def test_importing_logcl_is_lazy():
    assert imported("import logcl, logcl.streams, logcl.allocation") == ([], "")
    heavy, out = imported("import logcl; print(logcl.Memory.__name__, *logcl.__all__)")
    assert "torch" in heavy
    assert out.split() == ["Memory", "Classifier", "LogCLClassifier", "Memory"]


def test_help_lists_every_command(logcl):
    listed = logcl("--help").out
    assert all(f" {name} " in listed for name in COMMANDS)
