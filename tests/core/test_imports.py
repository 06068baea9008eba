"""The cost of importing the lowest layer, which the command line does before it parses its arguments."""

import subprocess
import sys

import pytest

HEAVY = {"matplotlib", "numpy", "PIL", "pydantic", "rich", "sklearn", "torch", "typer"}
NEEDED = {
    "logcl.allocation": set(),
    "logcl.core.bars": {"rich"},
    "logcl.core.errors": set(),
    "logcl.core.files": set(),
    "logcl.core.images": {"numpy"},
    "logcl.core.inputs": {"numpy", "pydantic"},
    "logcl.core.progress": set(),
    "logcl.core.settings": {"pydantic"},
    "logcl.core.sharding": set(),
    "logcl.core.text": set(),
    "logcl.core.writer_lock": set(),
}


@pytest.mark.parametrize("module", NEEDED)
def test_a_module_imports_no_more_than_it_needs(module):
    code = f"import sys, {module}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY & set(ran.stdout.split()) == NEEDED[module]
