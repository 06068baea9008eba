"""Output: nothing in it controls a terminal, and where it cannot be written the command still finishes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

FIXTURE = Path(__file__).parent.parent / "fixtures" / "format-4-fast.logcl"
QUICK = ["--unit", 4, "--codec", "autoencoder", "--set", "codec.min_steps=0", "--set", "codec.epochs=1"]
EVIL = "x\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\x7f\n\r"
"""Sets the title, clears the screen, turns red, writes backwards, and starts a line."""
linux = pytest.mark.skipif(sys.platform != "linux", reason="uses closed pipes, /dev/full and odd file names")


def start(*arguments, **options):
    """A real `logcl` process."""
    command = [sys.executable, "-m", "logcl", *map(os.fspath, map(str, arguments))]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="surrogateescape", **options)


IN_ONE_PROCESS = """
import sys
from logcl.cli import main

lines = [[]]
for word in sys.argv[1:]:
    lines.append([]) if word == "next" else lines[-1].append(word)
for line in lines:
    sys.argv = ["logcl", *line]
    try:
        main()
        code = 0
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    for stream in (sys.stdout, sys.stderr):
        print("\\0", code, "\\0", sep="", end="", file=stream, flush=True)
"""


def start_one_after_the_other(lines):
    """Exit code, stdout and stderr of several commands of a real process, which is slow to start."""
    words = [os.fspath(str(word)) for line in lines for word in ("next", *line)][1:]
    ran = subprocess.run(
        [sys.executable, "-c", IN_ONE_PROCESS, *words],
        capture_output=True, text=True, errors="surrogateescape",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    (*outs, _), (*errs, _) = (text.split("\0") for text in (ran.stdout, ran.stderr))
    found = [(int(code), out, err) for out, code, err in zip(outs[::2], outs[1::2], errs[::2], strict=True)]
    assert len(found) == len(lines)
    return found


def closed_pipe():
    """The writing end of a pipe without a reader."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def images(folder, classes=("a", "b"), count=3):
    """Images that differ from folder to folder: the same task twice would be refused."""
    rng = np.random.default_rng(list(os.fsencode(folder)))
    for name in classes:
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = rng.integers(0, 256, (8, 8), np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


def shown(ran):
    """Everything that a command printed; a real terminal must find nothing in it but text and line ends."""
    everything = ran.out + ran.err if hasattr(ran, "out") else ran.stdout + ran.stderr
    assert everything.replace("\n", "").replace("\t", "").isprintable(), repr(everything)
    return everything


@linux
@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["inspect", FIXTURE],
        ["inspect", FIXTURE, "--json"],
        ["plan", FIXTURE, "--incoming", 3],
        ["methods", "--help"],
        ["presets", "list"],
        ["data", "list", "--json"],
    ],
    ids=lambda arguments: " ".join(map(str, arguments[:1] + arguments[2:])),
)
def test_a_closed_pipe_does_not_change_the_exit_code(arguments):
    """`logcl inspect m.logcl | head`: 1 would mean that verify found a problem."""
    pipe = closed_pipe()
    try:
        ran = start(*arguments, stdout=pipe)
    finally:
        os.close(pipe)
    assert (ran.returncode, ran.stderr) == (0, "")


@linux
def test_work_continues_without_a_reader_and_verify_still_reports_what_it_found(tmp_path):
    memory = tmp_path / "m.logcl"
    for number in (1, 2, 3):
        images(tmp_path / "tasks" / str(number), (f"class {number}",), 4)
    pipe = closed_pipe()
    ran = start("absorb", memory, tmp_path / "tasks", *QUICK, stdout=pipe)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(start("inspect", memory, "--json", stdout=subprocess.PIPE).stdout)["samples"] == 12
    content = bytearray(memory.read_bytes())
    content[len(content) // 2] ^= 255
    memory.write_bytes(content)
    assert start("verify", memory, stdout=pipe).returncode == start("verify", memory).returncode != 0
    os.close(pipe)


@linux
def test_a_full_disk_is_reported_at_the_end(tmp_path):
    memory = tmp_path / "m.logcl"
    with Path("/dev/full").open("w") as full:
        ran = start("absorb", memory, images(tmp_path / "task", count=4), *QUICK, stdout=full)
        assert ran.returncode == 7
        assert ran.stderr.splitlines()[-1] == (
            "logcl: the output cannot be written (No space left on device); the command itself ended with "
            "exit code 0"
        )
        assert start("presets", "list", "--json", stdout=full).returncode == 7
    assert start("verify", memory, stdout=subprocess.DEVNULL).returncode == 0


@linux
def test_closed_streams_and_narrow_encodings(tmp_path):
    for arguments in (["inspect", str(FIXTURE)], ["presets", "list"]):
        shell = 'exec "$@" >&- 2>&-'
        ran = subprocess.run(["sh", "-c", shell, "sh", sys.executable, "-m", "logcl", *arguments])
        assert ran.returncode == 0
        ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
        ran = start(*arguments, stdout=subprocess.PIPE, env=ascii_only)
        assert (ran.returncode, ran.stderr) == (0, "")
    ran = start("inspect", tmp_path / "caf\udce9.logcl", stdout=subprocess.PIPE)
    assert ran.returncode == 4
    assert r"caf\udce9.logcl does not exist" in ran.stderr


@linux
def test_names_of_files_cannot_control_a_terminal(tmp_path, logcl, monkeypatch):
    """Names of tasks, classes, memories, skipped and ignored files, sources and settings."""
    monkeypatch.setenv("LOGCL_DEVICE", "cpu")  # put back after --device
    evil = EVIL.replace("\n", "").replace("\r", "") + "\n"
    tasks, memory = tmp_path / evil, tmp_path / f"{evil}.logcl"
    for number in (1, 2):
        images(tasks / f"{number}{evil}", (f"a{evil}", "b"))
    (tasks / f"1{evil}" / "b" / f"{evil}.png").write_text("not an image")
    (tasks / f"1{evil}" / "b" / "deep").mkdir()
    (tasks / f"1{evil}" / "b" / "deep" / f"{evil}.png").write_text("ignored")
    assert logcl("absorb", memory, tasks, *QUICK).code == 3
    ran = logcl("absorb", memory, tasks, "--skip-bad", *QUICK)
    assert ran.code == 0, ran.err
    text = shown(ran)
    assert r"\x1b[2J" in text
    starts = ("logcl: ", "skipped ", "new memory ", "codec ", str(tmp_path))
    starts += (
        "       ",
        "images ",
        "height x width ",
        "aspect ratio ",
        "colour ",
    )  # the table of the first task
    assert [line for line in text.splitlines() if not line.startswith(starts)] == []
    assert logcl("train", memory, "--set", "classifier.epochs=1").code == 0
    for arguments in (
        ["inspect", memory], ["inspect", memory, "--json"], ["plan", memory, "--incoming", 3],
        ["verify", memory], ["predict", memory, tasks / f"1{evil}" / "b" / "0.png"],
        ["predict", memory, tasks / f"1{evil}" / "b" / "0.png", "--json"],
        ["export", memory, tmp_path / f"out{evil}", "--format", "png"],
        ["absorb", memory, tasks, "--skip-bad", "--from-task", 9], ["absorb", memory, tasks, "--set", evil],
        ["absorb", memory, evil], ["inspect", evil], ["predict", memory, evil], ["run", evil],
        ["run", "--method", evil], ["run", "--method", f"{evil}.py"], ["run", "--preset", evil],
        ["run", "--budget", evil], ["run", "--evaluate", evil], ["bench", evil], ["report", evil],
        ["report", tmp_path, "--out", f"a.{evil}"], ["presets", "show", evil], ["methods", "show", evil],
        ["data", "get", evil], ["data", "list", "--data-dir", evil], ["plan", "--samples", evil],
        ["plan", "--simulate", "--samples", evil, "--per-day", 1, "--image-shape", evil],
        ["--device", evil, "train", memory], ["absorb", memory, tasks, "--image-shape", evil],
    ):  # fmt: skip
        ran = logcl(*arguments)
        assert shown(ran), arguments
        assert "Traceback" not in ran.err
    for arguments in (
        [evil],
        [f"--{evil}"],
        ["inspect", memory, evil],
        ["absorb", memory, tasks, "--unit", evil],
    ):
        ran = logcl(*arguments)
        assert ran.code == 2
        assert "\x1b" not in ran.err


@linux
def test_every_command_takes_names_that_are_not_utf_8(tmp_path, monkeypatch):
    """Names of folders, memories and results; a class needs a name that can be stored."""
    monkeypatch.chdir(tmp_path)
    images(tmp_path / "task\udcff", count=5)
    quick = [*QUICK, "--set", "classifier.epochs=1", "--set", "classifier.min_steps=0"]
    lines = (
        ["absorb", "m\udcff.logcl", "task\udcff", *QUICK, "--json"],
        ["train", "m\udcff.logcl", "--set", "classifier.epochs=1"],
        ["predict", "m\udcff.logcl", "task\udcff/a/0.png"],
        ["predict", "m\udcff.logcl", "task\udcff/a/0.png", "--json"],
        ["inspect", "m\udcff.logcl", "--json"],
        ["verify", "m\udcff.logcl"],
        ["export", "m\udcff.logcl", "o\udcff", "--json"],
        ["run", "task\udcff", "--tasks", 2, *quick[2:], "--json"],
        ["report", "runs", "--title", "t\udcff", "--out", "r\udcff.html"],
    )
    for line, (code, out, err) in zip(lines, start_one_after_the_other(lines), strict=True):
        assert code == 0, err
        assert "Traceback" not in err
        assert "\udcff" not in out + err
        if "--json" in line:
            json.loads(out)
    images(tmp_path / "named", ("caf\udce9",))
    lines = (["absorb", "m\udcff.logcl", "named"], ["absorb", "n.logcl", "named"], ["run", "named"])
    for code, _, err in start_one_after_the_other(lines):
        assert code == 3
        assert err == (
            "logcl: named has a class with the name 'caf\\udce9', which is not valid text; rename it\n"
        )


def test_a_folder_named_like_a_data_set_is_refused_by_every_command(tmp_path, logcl, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images(tmp_path / "digits", count=5)
    for command in (["absorb", "m.logcl", "digits"], ["run", "digits"], ["run"]):
        ran = logcl(*command)
        assert ran.code == 2
        assert "write dataset:digits for the data set or ./digits for the path" in ran.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["digits"]
    ran = logcl("absorb", "m.logcl", "./digits", *QUICK, "--json")
    assert json.loads(ran.out)["samples"] == 10
    ran = logcl("absorb", "n.logcl", "dataset:digits", *QUICK, "--json", "--from-task", 5)
    assert json.loads(ran.out)["tasks"][0]["source"] == "digits, task 5 of 5"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no pipes in its file system")
def test_pipes_and_devices_are_not_opened(tmp_path, logcl):
    for name in ("m.logcl", "x.npz", "x.png", "result.json", "method.py"):
        os.mkfifo(tmp_path / name)
    pipe = tmp_path / "m.logcl"
    for command in (
        ["inspect", pipe], ["train", pipe], ["verify", pipe], ["plan", pipe, "--incoming", 1],
        ["export", pipe, tmp_path / "out"], ["absorb", pipe, "digits"], ["predict", pipe, "a.png"],
        ["verify", pipe, "--salvage", tmp_path / "new.logcl"], ["inspect", "/dev/null"],
    ):  # fmt: skip
        ran = logcl(*command)
        assert ran.code == 4, (command, ran.err)
        assert "not a regular file" in ran.err or "is not a file" in ran.err
        assert "folder" not in ran.err
    assert "is a folder" in logcl("inspect", tmp_path).err
    for name in ("x.npz", "x.png"):
        ran = logcl("predict", FIXTURE, tmp_path / name)
        assert ran.code in (3, 8)
        assert logcl("absorb", tmp_path / "new.logcl", tmp_path / name).code == 3
    assert logcl("report", tmp_path).code == 2
    assert logcl("report", tmp_path / "result.json").code == 2
    assert logcl("run", "--method", tmp_path / "method.py").code == 2
