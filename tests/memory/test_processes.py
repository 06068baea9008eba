"""Real processes: killed, interrupted, out of disk, without permission, competing for the same file.

Each starts `logcl` as a user would and looks at what is left of the memory.
"""

import contextlib
import json
import os
import pty
import resource
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from logcl import Memory

COMMAND = [sys.executable, "-m", "logcl"]
# One thread each: these processes share two cores with whatever else runs here.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
STEPS = 1000  # about two seconds of training: long enough to be caught in the middle


def start(*arguments: object, before=lambda: None) -> subprocess.Popen:
    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored in whatever a shell starts in the background
        before()

    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, preexec_fn=prepare,
    )  # fmt: skip


def finish(process: subprocess.Popen) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


@pytest.fixture
def tasks(tmp_path, digits) -> list[Path]:
    paths = []
    for number in range(2):
        paths.append(tmp_path / f"task{number}.npz")
        rows = slice(100 * number, 100 * (number + 1))
        np.savez(paths[-1], x=digits[0][rows], y=digits[1][rows])
    return paths


def make(path: Path, digits, steps: int) -> Memory:
    recipe = {"codec.name": "autoencoder", "codec.min_steps": steps, "codec.epochs": 1}
    memory = Memory.open(path, (1, 8, 8), unit=32, settings=recipe)
    memory.absorb(digits[0][:20], digits[1][:20])  # stays in the buffer: quick
    return memory


@pytest.fixture
def memory(tmp_path, digits) -> Memory:
    """Absorbs slowly."""
    return make(tmp_path / "m.logcl", digits, STEPS)


@pytest.fixture
def quick_memory(tmp_path, digits) -> Memory:
    """Its training need not be caught in the middle."""
    return make(tmp_path / "m.logcl", digits, 20)


def wait_for(condition, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def lock_of(memory: Memory) -> Path:
    return memory.path.with_name(memory.path.name + ".lock")


def test_ctrl_c_leaves_the_memory_as_it_was(memory, tasks):
    before = memory.digest
    process = start("absorb", memory.path, tasks[0])
    wait_for(lock_of(memory).exists)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert code == 130
    assert "interrupted" in err
    assert "is as it was before this task" in err
    assert "Traceback" not in err
    assert out == ""
    assert memory.digest == before
    assert not lock_of(memory).exists()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc to see what a process has loaded")
def test_ctrl_c_while_torch_is_being_loaded(memory):
    process = start("verify", memory.path)
    loaded = Path(f"/proc/{process.pid}/maps")
    wait_for(lambda: "libtorch" in loaded.read_text())
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130
    assert "interrupted" in err
    assert "Traceback" not in err


def test_an_interrupted_run_resumes_with_the_same_command(tmp_path):
    out = tmp_path / "run"
    command = ["run", "digits", "--tasks", 2, "--out", out, "--evaluate", "final"]
    command += ["--codec", "autoencoder", "--set", f"codec.min_steps={STEPS}", "--set", "codec.epochs=1"]
    process = start(*command)
    wait_for((out / "memory.logcl").exists)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130
    assert "finished tasks are kept; resume with the same command" in err
    assert "Traceback" not in err
    assert {path.name for path in out.iterdir()} == {"checkpoint.safetensors", "memory.logcl"}
    refused = start(*command, "--set", "classifier.epochs=7")
    code, _, err = finish(refused)
    assert code == 7
    assert "was started with other settings, data or code; add --overwrite to start over" in err
    code, _, err = finish(start(*command))
    assert code == 0, err
    assert {path.name for path in out.iterdir()} == {"memory.logcl", "report.html", "result.json"}


def test_a_second_writer_is_refused_at_once_and_readers_continue(memory, tasks, logcl):
    process = start("absorb", memory.path, tasks[0])
    try:
        wait_for(lambda: lock_of(memory).exists() and lock_of(memory).read_text())
        refused = logcl("absorb", memory.path, tasks[1])
        assert refused.code == 6
        assert f"process {process.pid} on" in refused.err
        assert json.loads(logcl("inspect", memory.path, "--json").out)["samples"] == 20
        assert process.poll() is None
    finally:
        process.kill()
        finish(process)


@contextmanager
def small_disk(folder: Path, options: str):
    """A file system of its own at `folder`; needs the right to mount."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"this test needs the right to mount a tmpfs: {mounted.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_changes_nothing(quick_memory, tasks, tmp_path):
    memory = quick_memory
    disk = tmp_path / "disk"
    disk.mkdir()
    with small_disk(disk, "size=64k"):
        path = disk / "m.logcl"
        path.write_bytes(memory.path.read_bytes())
        (disk / "ballast").write_bytes(bytes(64 * 1024 - path.stat().st_size - 8192))
        code, _, err = finish(start("absorb", path, tasks[0]))
        assert code == 7, err
        assert "free disk space" in err
        assert "Traceback" not in err
        assert Memory.open(path).digest == memory.digest
        assert Memory.open(path).verify() == []
        with (disk / "ballast").open("ab", buffering=0) as ballast, contextlib.suppress(OSError):
            while True:  # not even a byte for the lock
                ballast.write(bytes(512))
        code, _, err = finish(start("absorb", path, tasks[0]))
        assert code == 7, err
        assert "Traceback" not in err
        assert Memory.open(path).digest == memory.digest
        (disk / "ballast").unlink()
        code, _, err = finish(start("absorb", path, tasks[0]))
        assert code == 0, err
        assert Memory.open(path).n == 120


def test_a_file_size_limit_changes_nothing(quick_memory, tasks):
    """The same without mounting a disk: the kernel limits the size of the file."""
    memory = quick_memory
    before = memory.digest
    limit = memory.path.stat().st_size + 2048

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    code, _, err = finish(start("absorb", memory.path, tasks[0], before=limited))
    assert code == 7, err
    assert "could not be written" in err
    assert "Traceback" not in err
    assert memory.digest == before
    assert memory.verify() == []


def test_a_read_only_folder_can_be_read_but_not_written(quick_memory, tasks, tmp_path, logcl):
    memory = quick_memory
    folder = tmp_path / "locked"
    folder.mkdir()

    def try_it() -> None:
        path = folder / "m.logcl"
        for arguments in (["absorb", path, tasks[0]], ["absorb", folder / "new.logcl", tasks[0]]):
            ran = logcl(*arguments)
            assert ran.code == 7, ran
            assert "read-only" in ran.err
        assert logcl("verify", path).code == 0
        assert json.loads(logcl("inspect", path, "--json").out)["samples"] == 20
        assert [entry.name for entry in folder.iterdir()] == ["m.logcl"]

    if os.geteuid():
        (folder / "m.logcl").write_bytes(memory.path.read_bytes())
        folder.chmod(0o555)
        try_it()
        folder.chmod(0o755)
        return
    with small_disk(folder, "size=1m"):  # root may write anywhere but to a read-only file system
        (folder / "m.logcl").write_bytes(memory.path.read_bytes())
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        try_it()


def test_bars_on_a_terminal_and_silence_elsewhere(quick_memory, tasks):
    memory = quick_memory
    quiet = start("absorb", memory.path, tasks[0])
    code, _, err = finish(quiet)
    assert (code, err) == (0, "")

    leader, follower = pty.openpty()
    environment = {**ENVIRONMENT, "TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen(
        [*COMMAND, "absorb", str(memory.path), str(tasks[1])],
        stdout=subprocess.PIPE, stderr=follower, env=environment,
    )  # fmt: skip
    os.close(follower)
    shown = b""
    while process.poll() is None or select.select([leader], [], [], 0)[0]:
        if select.select([leader], [], [], 0.1)[0]:
            try:
                shown += os.read(leader, 65536)
            except OSError:
                break
    os.close(leader)
    assert process.stdout is not None
    out = process.stdout.read().decode()
    process.stdout.close()
    assert process.wait() == 0
    assert b"absorbing 100 samples" in shown
    assert b"level" in shown
    assert b"%" in shown
    assert "absorbed 100 samples" in out
