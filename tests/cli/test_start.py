"""The command line answers quickly: help and version never wait for torch."""

import subprocess
import sys

import pytest

from logcl.cli import COMMANDS, load

LIGHT = ["absorb", "train", "predict", "inspect", "verify", "export", "presets", "data"]


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], *([name, "--help"] for name in LIGHT)])
def test_help_and_version_do_not_import_torch(arguments):
    code = (
        "import sys\n"
        "from logcl.__main__ import main\n"
        "try:\n    main()\n"
        "except SystemExit as leaving:\n    assert not leaving.code\n"
        "print(*{'torch', 'sklearn', 'matplotlib'} & set(sys.modules), file=sys.stderr)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr.strip()) == (0, "")
    assert ran.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_summaries_are_those_of_the_commands(name):
    assert load(name).help.splitlines()[0] == COMMANDS[name]
