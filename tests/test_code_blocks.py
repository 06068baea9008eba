"""Every code block of the README and the docs runs, page by page, in a folder with the files they mention.

Blocks of docs/avalanche.md run in the environment that has Avalanche (tests/avalanche/), those of
docs/photographs.md on real photographs (tests/test_photographs.py).
"""

import json
import os
import re
import shlex
import sqlite3
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

ROOT = Path(__file__).parent.parent
ELSEWHERE = {"avalanche.md", "photographs.md"}
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))
    if "```" in path.read_text() and path.name not in ELSEWHERE
)
REAL_DATA = os.environ.get("LOGCL_DATA")
NEEDS_DATA = re.compile(r"\bmnist\b|\bcifar100\b|logcl +bench|logcl +data +(get|check)")
_FEW = "--set classifier.min_steps=10 --set classifier.epochs=1"
BRIEFLY = (
    ("image_shape=(3, 32, 32))", 'image_shape=(3, 32, 32), settings={"classifier.width": 8})'),
    ("logcl train ", "logcl train --set classifier.width=8 "),
    ("growth --scale small", "growth --scale smoke --methods logcl"),  # `make smoke` runs all benches
    ("table1 --scale small", "table1 --scale smoke --methods joint --streams mnist"),
    ("codecs --scale small", "codecs --scale smoke --sets mnist --codecs cosine,webp"),
    ("--source photos/", "--source photos/ --scale smoke --sides 32 --codecs cosine,webp"),
    ("--scale small", "--scale smoke --methods joint"),
    ("run cifar100 --preset offline", "run photos/ --tasks 2 --preset offline --set classifier.epochs=1"),
    ("--seeds 3", "--seeds 1"),
    (
        "logcl run digits",
        f"logcl run digits --codec autoencoder --set codec.min_steps=30 --set codec.epochs=1 {_FEW}",
    ),
    ("logcl run     photos/", f"logcl run photos/ --set classifier.width=8 {_FEW}"),
)
"""Slow commands are made shorter: fewer seeds, steps and samples, small networks; every option is tried."""


def briefly(text: str) -> str:
    for usual, brief in BRIEFLY:
        text = text.replace(usual, brief)
    return text


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and text of every fenced block."""
    pieces = re.split(r"^```(\w*)\n", (ROOT / page).read_text(), flags=re.MULTILINE)
    return list(zip(pieces[1::4], pieces[2::4], strict=True))


@pytest.fixture
def workplace(tmp_path, monkeypatch, digits):
    """Class-named folders of photos, one more photo, and results that pages mention."""
    monkeypatch.chdir(tmp_path)
    x, y = digits
    for day, rows in (("monday", range(12)), ("tuesday", range(12, 24)), ("photos", range(20))):
        for row in rows:
            folder = tmp_path / day / f"pet {y[row]}"
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(x[row, 0]).convert("RGB").resize((40, 30)).save(folder / f"{row}.jpg")
    Image.fromarray(x[0, 0]).resize((200, 100)).save("photo.jpg")
    (tmp_path / "results").symlink_to(ROOT / "results")
    return tmp_path


@pytest.fixture
def names(digits):
    """Names that pages assume to be defined: images (24, 3, 32, 32) and their labels."""
    padded = np.pad(digits[0][:24], ((0, 0), (0, 0), (12, 12), (12, 12)))
    return {"images": np.repeat(padded, 3, axis=1), "labels": digits[1][:24]}


def run_python(page, names):
    """All blocks of a page, one after the other."""
    code = [text for language, text in blocks(page) if language == "python"]
    for text in code:
        if found := re.match(r"# (\w+\.py)\n", text):  # the content of a file that commands of the page use
            Path(found[1]).write_text(text)
    with torch.random.fork_rng():  # networks and loaders of the pages draw from torch's global state
        for text in code:
            exec(compile(briefly(text), page, "exec"), names)
    return len(code)


def commands(page):
    """Lines of plain and shell blocks, without their comments."""
    shell = "\n".join(text for language, text in blocks(page) if language in ("", "sh"))
    lines = [line.split(" #")[0].strip() for line in shell.splitlines()]
    return [line for line in lines if line]


def run_command(line, logcl):
    if line.startswith("make "):  # CI runs them; here only their existence is checked
        asked = subprocess.run(["make", "-n", line.split()[1]], cwd=ROOT, capture_output=True, text=True)
        assert asked.returncode == 0, asked.stderr
        return
    assert line.startswith("logcl "), f"no test knows how to run: {line}"
    arguments = shlex.split(briefly(line))[1:]
    if "bench" in arguments:
        arguments += ["--out", "benches"]
    ran = logcl(*arguments)
    assert ran.code == 0, f"{line}: {ran.err}"
    assert ran.out.strip(), line


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.long] if page.endswith("benches.md") else [])
        for page in PAGES
        if not page.endswith("cluster.md")
    ],
)
def test_the_blocks_of_a_page_run(page, workplace, names, logcl, monkeypatch):
    text = "\n".join(text for _, text in blocks(page))
    if NEEDS_DATA.search(text):
        if not REAL_DATA:
            pytest.skip("LOGCL_DATA names no folder with the real data sets")
        monkeypatch.setenv("LOGCL_DATA", REAL_DATA)
    ran = run_python(page, names)
    for path in workplace.glob("*.logcl"):
        path.unlink()  # commands of the page begin with a memory of their own
    lines = commands(page)
    for line in lines:
        run_command(line, logcl)
    for language, block in blocks(page):
        if language == "json":
            json.loads(block)
            ran += 1
        if language == "sql":
            with sqlite3.connect(":memory:") as database:
                database.execute(block)
            ran += 1
        assert language in ("", "sh", "python", "json", "sql", "toml"), f"no test knows how to run {language}"
    assert ran + len(lines) > 0


@pytest.mark.long
@pytest.mark.timeout(900)  # Ray's processes have low priority and wait for other work
@pytest.mark.xdist_group("ray")
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Ray's own sockets and pipes
def test_the_blocks_of_the_page_on_clusters_run(workplace, names, logcl, monkeypatch):
    ray = pytest.importorskip("ray")
    if not REAL_DATA:
        pytest.skip("LOGCL_DATA names no folder with the real data sets")
    monkeypatch.setenv("LOGCL_DATA", REAL_DATA)
    assert run_python("docs/cluster.md", names)
    from ray.cluster_utils import Cluster

    Path("pets.logcl").unlink()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        lines = commands("docs/cluster.md")
        assert len(lines) == 3
        for line in lines:
            line = line.replace("auto", cluster.address).replace("HOST:6379", cluster.address)
            run_command(line, logcl)
    finally:
        ray.shutdown()
        cluster.shutdown()
