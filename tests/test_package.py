"""The wheel and sdist of this tree are complete, and work in a clean environment."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = [pytest.mark.long, pytest.mark.timeout(300), pytest.mark.xdist_group("package")]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Wheel and sdist, made as `pip install build; python -m build` makes them, the wheel from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    source = tmp_path_factory.mktemp("source") / "logcl"
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if files.returncode:
        pytest.skip("not a git tree")
    for name in files.stdout.splitlines():
        if (ROOT / name).is_file() and name.split("/")[0] not in ("results", "tests"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    ran = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(source)],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


def test_they_hold_what_the_package_needs_and_nothing_else(built):
    wheel, sdist = built
    inside = set(zipfile.ZipFile(wheel).namelist())
    package = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "logcl").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert package <= inside
    assert {name.split("/")[0] for name in inside - package} == {"logcl-0.1.0.dist-info"}
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "src/logcl/py.typed"} <= names


def test_a_clean_environment_runs_it(built, tmp_path):
    """Dependencies come from this environment; LogCL itself comes from the wheel alone."""
    wheel, _ = built
    place = tmp_path / "clean"
    venv.create(place, system_site_packages=False, with_pip=False)
    python = place / ("Scripts" if os.name == "nt" else "bin") / "python"
    target = next(place.rglob("site-packages"))
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel)],
        check=True,
    )
    # A .pth behind the clean environment's own packages; what is editable here is not followed.
    here = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    (target / "dependencies.pth").write_text(f"{here}\n")
    code = (
        "import logcl, sys; assert logcl.__file__.startswith(sys.prefix), logcl.__file__\n"
        "from logcl.__main__ import main\n"
        "sys.argv = ['logcl', 'run', 'digits', '--tasks', '2', '--codec', 'autoencoder', "
        "'--set', 'codec.min_steps=5', "
        "'--set', 'codec.epochs=1', '--set', 'classifier.epochs=1', '--out', 'run']\n"
        "main()\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [str(python), "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "run" / "report.html").exists()
    assert (tmp_path / "run" / "memory.logcl").exists() or list((tmp_path / "run").rglob("memory.logcl"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell):
    environment = {**os.environ, "_LOGCL_COMPLETE": f"complete_{shell}"}
    words = {"COMP_WORDS": "logcl ab", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "logcl ab"}
    if shell == "fish":
        words["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
    ran = subprocess.run(
        [str(Path(sys.executable).with_name("logcl"))],
        env={**environment, **words},
        capture_output=True,
        text=True,
    )
    assert "absorb" in ran.stdout, ran.stdout + ran.stderr


def test_users_types_are_checked(tmp_path):
    """`py.typed`: a type checker finds mistakes in a user's script."""
    script = tmp_path / "script.py"
    script.write_text(
        "from logcl import Classifier, Memory\n"
        "memory = Memory.open('pets.logcl', image_shape=(3, 32, 32))\n"
        "right: int = memory.n\n"
        "wrong: str = memory.n\n"
        "Classifier.train(memory, recipe={'epochs': 1}).predict(None)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-incremental", str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "script.py:4: error: Incompatible types" in ran.stdout, ran.stdout
    assert ran.stdout.count("error:") == 1, ran.stdout
