"""A killed run resumes and gives the result of an uninterrupted one; nothing is replaced without --overwrite.

That this holds for every method is part of the contract in `tests/methods`.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch

from logcl import Memory
from logcl.core.errors import Busy
from logcl.core.progress import Silent
from logcl.core.writer_lock import writer_lock
from logcl.experiments import checkpoint
from logcl.experiments import run as experiment
from logcl.experiments.checkpoint import NAME, Checkpoint, Occupied, fingerprint
from logcl.experiments.result import Result, TaskRecord, read
from logcl.memory.presets import preset
from logcl.memory.settings import override
from logcl.streams import open_stream


def comparable(result: Result) -> dict:
    """All of a result but its times and the command line."""
    found = result.model_dump(mode="json", exclude={"seconds", "finished", "command"})
    for task in found["tasks"]:
        del task["seconds"]
    return found


@pytest.fixture(scope="module")
def stream():
    return open_stream("digits", tasks=3, seed=1).thinned(per_class=20, test_per_class=5)


@pytest.fixture(scope="module")
def settings():
    few = {
        "codec.name": "autoencoder",
        "codec.min_steps": 5,
        "codec.epochs": 1,
        "classifier.min_steps": 5,
        "classifier.epochs": 1,
    }
    return override(preset("fast", (1, 8, 8)), {"seed": 1, "unit": 16, **few})


RECORD = TaskRecord(samples=3, trained=2, replayed=1, memory_bytes=10, accuracy=0.1, seconds={"train": 0.3})
ABOUT = Checkpoint(fingerprint="f", records=(RECORD,), matrix=((0.1, None), None), seconds={"learn": 1 / 3})
STATE = {
    "network.weight": torch.randn(3, 2, generator=torch.Generator().manual_seed(0)),
    "fits": torch.tensor(3),
}


def test_a_checkpoint_is_read_as_written(tmp_path):
    assert checkpoint.read(tmp_path) is None
    checkpoint.write(tmp_path, ABOUT, STATE)
    about, state = checkpoint.read(tmp_path)
    assert about.model_copy(update={"digest": ""}) == ABOUT
    assert state.keys() == STATE.keys()
    assert all(torch.equal(state[name], STATE[name]) for name in STATE)

    (tmp_path / f".{NAME}.123.new").write_bytes(b"half")  # of a process that was killed while it wrote
    checkpoint.remove(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_any_damage_is_detected(tmp_path):
    checkpoint.write(tmp_path, ABOUT, STATE)
    path = tmp_path / NAME
    sound = path.read_bytes()
    for position in range(0, len(sound), 3):
        damaged = bytearray(sound)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(Occupied, match=r"checkpoint\.safetensors is damaged .* add --overwrite"):
            checkpoint.read(tmp_path)
    path.write_bytes(sound[:-1])
    with pytest.raises(Occupied, match="damaged"):
        checkpoint.read(tmp_path)


def test_a_fingerprint_covers_data_choices_and_code(stream, monkeypatch):
    mine = fingerprint(stream, {"budget": "5"})
    assert fingerprint(replace(stream), {"budget": "5"}) == mine
    pixels = np.array(stream.source_x)
    pixels[stream.members[1][0]] ^= 1
    labels = np.array(stream.source_y)
    labels[stream.members[0][0]] ^= 1
    others = [
        replace(stream, source_x=pixels),
        replace(stream, source_y=labels),
        replace(stream, members=stream.members[::-1]),
        replace(stream, members=stream.members[:2]),
        replace(stream, test_x=stream.test_x[::-1]),
        replace(stream, name="other"),
        replace(stream, subset="half"),
    ]
    assert len({mine, *(fingerprint(other, {"budget": "5"}) for other in others)}) == len(others) + 1
    assert fingerprint(stream, {"budget": "6"}) != mine
    monkeypatch.setattr(checkpoint, "_digest_of_code", lambda: "changed")
    assert fingerprint(stream, {"budget": "5"}) != mine


class Interrupts(Silent):
    """Ctrl-C when the bar called `name` starts for the n-th time; records every advance."""

    def __init__(self, name: str, n: int) -> None:
        self.name, self.n = name, n

    @contextmanager
    def track(self, description, total):
        self.n -= self.name in description
        if not self.n:
            raise KeyboardInterrupt
        with super().track(description, total) as advance:
            yield advance


class Counts(Silent):
    """Records every advance of the bar of tasks."""

    def __init__(self) -> None:
        self.steps = []

    @contextmanager
    def track(self, description, total):
        def advance(steps=1, note=""):
            if "seed" in description:
                self.steps.append(steps)

        yield advance


def interrupted(stream, settings, folder, method="logcl", name="global model", n=2, **changes):
    with pytest.raises(KeyboardInterrupt):
        experiment.run(stream, method, settings, folder, progress=Interrupts(name, n), **changes)


@pytest.mark.parametrize(
    ("name", "n", "done"),
    [
        ("absorbing", 1, 0),
        ("global model", 1, 0),
        ("absorbing", 2, 1),
        ("global model", 2, 1),
        ("replaying the memory", 4, 2),
    ],
)
def test_logcl_resumes_from_any_point(stream, settings, tmp_path, name, n, done):
    """Before a task is absorbed, and after that but before the checkpoint."""
    unbroken = experiment.run(stream, "logcl", settings, tmp_path / "a")
    interrupted(stream, settings, tmp_path / "b", name=name, n=n)
    assert len(checkpoint.read(tmp_path / "b")[0].records) == done
    said, bars = [], Counts()
    result = experiment.run(stream, "logcl", settings, tmp_path / "b", progress=bars, say=said.append)
    assert comparable(result) == comparable(unbroken)
    assert said == ([f"resuming after task {done} of 3"] if done else [])
    assert bars.steps == [done, *[1] * (3 - done)]
    assert result.seconds["absorb"] >= sum(task.seconds["absorb"] for task in result.tasks) > 0
    memories = [Memory.open(tmp_path / folder / "memory.logcl") for folder in "ab"]
    assert memories[0].digest == memories[1].digest
    assert {path.name for path in (tmp_path / "b").iterdir()} == {"memory.logcl", "result.json"}


def test_a_damaged_memory_is_restored_from_the_checkpoint(stream, settings, tmp_path):
    unbroken = experiment.run(stream, "logcl", settings, tmp_path / "a")
    interrupted(stream, settings, tmp_path / "b", name="absorbing")
    memory = tmp_path / "b" / "memory.logcl"
    content = bytearray(memory.read_bytes())
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    memory.write_bytes(content)
    assert comparable(experiment.run(stream, "logcl", settings, tmp_path / "b")) == comparable(unbroken)


def test_another_run_is_refused_or_replaced(stream, settings, tmp_path):
    interrupted(stream, settings, tmp_path)
    memory, kept = (tmp_path / "memory.logcl").read_bytes(), (tmp_path / NAME).read_bytes()
    other = override(settings, {"classifier.epochs": 2})
    for changes in ({"settings": other}, {"evaluate": "final"}, {"budget": "7"}, {"method_name": "joint"}):
        arguments = {"method_name": "logcl", "settings": settings, **changes}
        with pytest.raises(Occupied, match="started with other settings, data or code; add --overwrite"):
            experiment.run(stream, folder=tmp_path, **arguments)
    assert (tmp_path / "memory.logcl").read_bytes() == memory
    assert (tmp_path / NAME).read_bytes() == kept

    replaced = experiment.run(stream, "logcl", other, tmp_path, earlier="continue or replace")
    fresh = experiment.run(stream, "logcl", other, tmp_path / "fresh")
    assert comparable(replaced) == comparable(fresh)


def test_replace_starts_from_scratch(stream, settings, tmp_path):
    interrupted(stream, settings, tmp_path, method="finetune", name="classifier")
    said = []
    experiment.run(stream, "finetune", settings, tmp_path, earlier="replace", say=said.append)
    assert said == []


def test_a_damaged_checkpoint_is_refused_or_replaced(stream, settings, tmp_path):
    interrupted(stream, settings, tmp_path, method="finetune", name="classifier")
    (tmp_path / NAME).write_bytes(b"nonsense")
    with pytest.raises(Occupied, match="is damaged"):
        experiment.run(stream, "finetune", settings, tmp_path)
    experiment.run(stream, "finetune", settings, tmp_path, earlier="continue or replace")
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_a_memory_without_a_run_is_only_deleted_with_overwrite(stream, settings, tmp_path, digits):
    path = tmp_path / "memory.logcl"
    Memory.create(path, settings).absorb(digits[0][:5], digits[1][:5])
    content = path.read_bytes()
    for method in ("logcl", "finetune"):
        for _ in range(2):  # the first refusal leaves nothing behind that would allow a second try
            with pytest.raises(Occupied, match=r"memory\.logcl exists from an earlier run"):
                experiment.run(stream, method, settings, tmp_path)
    assert path.read_bytes() == content


def test_two_processes_do_not_share_a_run(stream, settings, tmp_path):
    with writer_lock(tmp_path / "result.json"), pytest.raises(Busy, match=f"process {os.getpid()} on"):
        experiment.run(stream, "finetune", settings, tmp_path)


RUN = ["run", "digits", "--tasks", "3", "--method", "finetune,logcl", "--codec", "autoencoder",
       "--set", "unit=256", "--set",
       "codec.min_steps=60", "--set", "codec.epochs=1", "--set", "classifier.min_steps=60",
       "--set", "classifier.epochs=1"]  # fmt: skip


def started(folder) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "logcl", *RUN, "--out", str(folder)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_killed_run_resumes(tmp_path):
    """Two methods: the first is finished, the second is killed in its first task and again in a later one."""
    unbroken = started(tmp_path / "a")
    _, err = unbroken.communicate(timeout=300)
    assert unbroken.returncode == 0, err
    place = tmp_path / "b" / "logcl-seed0"
    for done in (0, 1):
        process = started(tmp_path / "b")
        while (found := checkpoint.read(place)) is None or len(found[0].records) < done:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.01)
        time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not (place / "result.json").exists()
    done = len(checkpoint.read(place)[0].records)
    finished = (tmp_path / "b" / "finetune-seed0" / "result.json").stat().st_mtime_ns

    process = started(tmp_path / "b")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "1 of 2 runs were finished before and are not repeated" in err
    assert f"resuming after task {done} of 3" in err
    assert (tmp_path / "b" / "finetune-seed0" / "result.json").stat().st_mtime_ns == finished
    assert {path.name for path in place.iterdir()} == {"memory.logcl", "result.json"}
    for cell in ("finetune-seed0", "logcl-seed0"):
        results = [read(tmp_path / folder / cell / "result.json") for folder in "ab"]
        assert comparable(results[0]) == comparable(results[1])
