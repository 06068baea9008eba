"""`logcl plan`: one task, or a forecast; every bad number is refused in one sentence."""

import json
import os
import sqlite3
import subprocess
import sys

import pytest

from logcl import Memory
from logcl.cli.plan import parse_count
from logcl.core.errors import BadSettings

PAGE = [
    "--samples", "1e9", "--image-shape", "3x224x224", "--per-day", "1e6", "--nodes", "64", "--cores", "32",
    "--unit", "128",
]  # fmt: skip


@pytest.fixture(scope="module")
def memory(tmp_path_factory, digits):
    """600 digits in units of 32: levels 4 and 1, and 24 in the buffer."""
    changes = {"codec.name": "autoencoder", "codec.min_steps": 30, "codec.epochs": 1}
    memory = Memory.open(tmp_path_factory.mktemp("m") / "m.logcl", (1, 8, 8), unit=32, settings=changes)
    memory.absorb(digits[0][:600], digits[1][:600])
    return memory


def test_a_single_task(memory, logcl):
    ran = logcl("plan", memory.path, "--incoming", 40)
    assert ran.code == 0, ran.err
    for line in ("600 samples, 40 incoming", "level 1  is replayed and retired", "64 of them replayed"):
        assert line in ran.out, line
    plan = json.loads(logcl("plan", memory.path, "--incoming", 8, "--json").out)
    assert [slot["level"] for slot in plan["train"]] == [0]
    assert plan["samples_trained"] == 32


def test_a_single_task_needs_the_header_only(memory, tmp_path, logcl):
    """Damage elsewhere in the file does not matter, damage of the header does."""
    path = tmp_path / "m.logcl"
    path.write_bytes(memory.path.read_bytes())
    file = type(memory.file)(path)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE parts SET data = x'00' WHERE name = 'level-4'")
    assert logcl("plan", path, "--incoming", 8).code == 0
    fields = file.header().fields
    for wrong in ({**fields, "last": -1}, {**fields, "last": "600"}, {**fields, "settings": {}}):
        other = tmp_path / "other.logcl"
        other.unlink(missing_ok=True)
        type(file)(other).create(wrong)
        ran = logcl("plan", other, "--incoming", 8)
        assert ran.code == 5
        assert "no valid n and unit; run `logcl verify`" in ran.err


def test_planning_does_not_import_torch():
    """The module of the command, without the package's list of all commands."""
    script = (
        "import sys, types, logcl\n"
        "package = types.ModuleType('logcl.cli')\n"
        "package.__path__ = [logcl.__path__[0] + '/cli']\n"
        "sys.modules['logcl.cli'] = package\n"
        "import logcl.cli.plan\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_forecast_of_the_page(logcl):
    ran = logcl("plan", "--simulate", *PAGE, "--network", 10)
    assert ran.code == 0, ran.err
    for words in (
        "0 to 1,000,000,000 of 3x224x224 in 1,000 days",
        "13, one per 1-bit of 11101110011010110010100; units of 128 samples",
        "5.6 on average, 23 at most",
        "% of each day",
        "day 537, from 536,000,000 to 537,000,000 samples",
        "at 1,073,741,824 samples, 73.7 days after the end",
        "64 x 32 cores",
        "docs/scale.md",
    ):
        assert words in ran.out, words
    assert ran.err == ""


def test_the_forecast_as_json(logcl):
    answer = json.loads(logcl("plan", "--simulate", *PAGE, "--json").out)
    assert answer["load"]["nodes"] == 64
    assert answer["forecast"]["levels"][0] == 22
    assert [step["samples"] for step in answer["growth"]] == [10**6, 10**7, 10**8, 10**9]
    assert answer["growth"][-1] == answer["forecast"]
    assert answer["costs"]["codec"]["image_shape"] == [3, 224, 224]
    assert answer["machine"]["date"]


def test_one_machine_by_default(logcl):
    ran = logcl("plan", "--simulate", "--samples", "10k", "--per-day", 100, "--image-shape", "1x28x28")
    assert ran.code == 0, ran.err
    assert f"1 x {os.cpu_count()} cores" in ran.out
    assert "tasks queue up" not in ran.out


def test_smaller_tasks_mean_more_encodings(logcl):
    def encodings(*more):
        ran = logcl("plan", "--simulate", *PAGE, *more, "--json")
        return json.loads(ran.out)["forecast"]["encodings"]

    assert encodings("--per-task", 1) > encodings("--per-task", "50k") > encodings()
    assert encodings("--per-task", 1, "--unit", 1) > encodings("--per-task", 1)


def test_an_approximate_count_says_so(logcl):
    ran = logcl("plan", "--simulate", *PAGE, "--samples", "1e13", "--per-task", "1000")
    assert "counted as tasks of 512" in ran.out


def test_a_memory_with_levels_counts_its_own_bytes(memory, logcl):
    path, n = memory.path, memory.n
    ran = logcl("plan", path, "--simulate", "--samples", 1000, "--per-day", 50, "--json")
    assert ran.code == 0, ran.err
    answer = json.loads(ran.out)
    assert answer["load"] | {"start": n, "unit": 32, "image_shape": [1, 8, 8]} == answer["load"]
    sizes = memory.file.sizes()
    own = sum(size for name, size in sizes.items() if name.startswith(("level-", "weights-")))
    codec = answer["costs"]["codec"]
    assert codec["sample_bytes"] * 576 + 2 * codec["level_bytes"] == pytest.approx(own)
    text = logcl("plan", path, "--simulate", "--samples", 1000, "--per-day", 50).out
    assert "600 to 1,000 of 1x8x8 in 8 days" in text
    assert "bytes of m.logcl" in text


def test_an_empty_memory_counts_the_measured_bytes(tmp_path, logcl):
    path = tmp_path / "empty.logcl"
    Memory.open(path, (1, 28, 28))
    ran = logcl("plan", path, "--simulate", "--samples", 1000, "--per-day", 50, "--json")
    assert json.loads(ran.out)["costs"]["codec"]["images"] == "MNIST"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give a MEMORY and --incoming, or --simulate"),
        (["{memory}"], "give a MEMORY and --incoming"),
        (["{memory}", "--incoming", "5", "--samples", "9"], "--samples is for a forecast; add --simulate"),
        (["{memory}", "--incoming", "5", "--nodes", "2"], "--nodes is for a forecast; add --simulate"),
        (["{memory}", "--incoming", "5", "--simulate"], "--incoming is for a single task"),
        (["--simulate"], "--simulate needs --samples and --per-day"),
        (["--simulate", "--samples", "9", "--per-day", "9"], "needs a MEMORY or an --image-shape"),
        ([*PAGE, "--simulate", "--samples", "many"], "--samples many is not a whole number"),
        ([*PAGE, "--simulate", "--per-day", "0"], "--per-day 0 is not a whole number"),
        ([*PAGE, "--simulate", "--per-task", "1.5"], "--per-task 1.5 is not a whole number"),
        ([*PAGE, "--simulate", "--samples", "1e99"], "--samples 1e99 is not a whole number"),
        ([*PAGE, "--simulate", "--image-shape", "224px"], "--image-shape 224px is not a size of images"),
        ([*PAGE, "--simulate", "--image-shape", "3x9999x9"], "image_shape = (3, 9999, 9)"),
        ([*PAGE, "--simulate", "--network", "0"], "network: Input should be greater than 0"),
        ([*PAGE, "--simulate", "--network", "nan"], "network: Input should be a finite number"),
        (["{memory}", *PAGE, "--simulate"], "has its own settings; leave out --image-shape"),
        (["{memory}", "--simulate", "--samples", "600", "--per-day", "9"], "already holds 600 samples"),
        (["{memory}", "--simulate", "--samples", "900", "--per-day", "9", "--unit", "5"], "and --unit"),
    ],
)
def test_bad_arguments_are_refused_in_one_sentence(memory, logcl, arguments, words):
    ran = logcl("plan", *(argument.format(memory=memory.path) for argument in arguments))
    assert ran.code == 2
    assert words in ran.err
    assert len(ran.err.strip().splitlines()) == 1
    assert ran.out == ""


def test_a_codec_without_measured_costs_is_refused(tmp_path, logcl):
    path = tmp_path / "p.logcl"
    Memory.open(path, (1, 8, 8), preset="paper-cpu")
    ran = logcl("plan", path, "--simulate", "--samples", 1000, "--per-day", 50)
    assert ran.code == 2
    assert "codec index" in ran.err


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1000000000", 10**9), ("1e9", 10**9), ("1E+9", 10**9), ("10^9", 10**9), ("2^30", 2**30),
        ("1_000_000", 10**6), ("1,000,000", 10**6), ("1G", 10**9), ("2.5M", 2_500_000), ("1k", 1000),
        (" 7 ", 7), ("1.5e1", 15), ("4611686018427387903", 2**62 - 1),
    ],
)  # fmt: skip
def test_parse_count(text, value):
    assert parse_count("--samples", text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "0",
        "0.5",
        "1e-3",
        "e9",
        "1e",
        "10^",
        "^9",
        "nan",
        "inf",
        "1K1",
        "1.5^2",
        "2^62",
        "½",
        "²",
        "1e²",
        "٣",
    ],
)
def test_parse_count_refuses(text):
    with pytest.raises(BadSettings, match="is not a whole number from 1 to"):
        parse_count("--samples", text)
