"""The command line starts quickly: help, version and `import logcl` do not import torch."""

import subprocess
import sys

import pytest

from logcl.cli import COMMANDS

HEAVY = "{'torch', 'sklearn', 'matplotlib', 'pandas', 'ray', 'pooch'}"


def imported(code, *arguments):
    """The heavy modules that a new process imports, and its standard output."""
    code = f"import sys\n{code}\nprint(*{HEAVY} & set(sys.modules), file=sys.stderr)\n"
    ran = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stderr.split(), ran.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        *([name, "--help"] for name in COMMANDS),
        ["data", "list"],
        ["presets", "show", "--help"],
        ["methods", "show", "--help"],
    ],
    ids=" ".join,
)
def test_help_and_version_do_not_import_torch(arguments):
    code = (
        "from logcl.__main__ import main\n"
        "try:\n    main()\n"
        "except SystemExit as leaving:\n    assert not leaving.code"
    )
    heavy, out = imported(code, *arguments)
    assert (heavy, bool(out)) == ([], True)


def test_importing_logcl_is_lazy():
    assert imported("import logcl, logcl.streams, logcl.allocation") == ([], "")
    heavy, out = imported("import logcl; print(logcl.Memory.__name__, *logcl.__all__)")
    assert "torch" in heavy
    assert out.split() == ["Memory", "Classifier", "LogCLClassifier", "Memory"]


def test_help_lists_every_command(logcl):
    listed = logcl("--help").out
    assert all(f" {name} " in listed for name in COMMANDS)
