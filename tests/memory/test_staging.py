"""A task that was interrupted resumes, and ends as if it had not been interrupted."""

import json
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from logcl import Memory
from logcl.allocation import Slot
from logcl.codecs.cosine import Cosine, CosineSpec
from logcl.core.errors import Damaged
from logcl.core.progress import Silent
from logcl.memory import staging
from logcl.memory.staging import task_digest

FEW = {"codec.name": "autoencoder", "codec.epochs": 1, "codec.min_steps": 20}
QUICK = {
    "fast": FEW,
    "paper-cpu": {
        **FEW,
        "codec.name": "index",
        "codec.warm_up_epochs": 1,
        "labels.training.epochs": 1,
        "labels.training.min_steps": 5,
    },
}


COSINE = Cosine(CosineSpec(image_shape=(1, 8, 8), step=0.1))


class Interrupted(Silent):
    """The user presses Ctrl-C when fitting of the level with this number, counted from 1, starts."""

    def __init__(self, level: int) -> None:
        self.level = level
        self.begun: set[str] = set()

    @contextmanager
    def track(self, description, total):
        if description.startswith("level"):
            self.begun.add(description.split()[1])
            if len(self.begun) == self.level:
                raise KeyboardInterrupt
        with super().track(description, total) as advance:
            yield advance


@pytest.fixture(autouse=True)
def _everything_is_staged(monkeypatch):
    """However quickly it was trained."""
    monkeypatch.setattr("logcl.memory.staging._WORTH_STAGING", 0)


@pytest.fixture(params=["fast", "paper-cpu"])
def memories(request, tmp_path, digits) -> tuple[Memory, Memory]:
    """Two equal memories of 16 samples; 96 more make levels 2, 1 and 0 of units of 16."""
    made = []
    for name in ("unbroken", "broken"):
        memory = Memory.open(
            tmp_path / f"{name}.logcl",
            (1, 8, 8),
            preset=request.param,
            unit=16,
            settings=QUICK[request.param],
        )
        memory.absorb(digits[0][:16], digits[1][:16])
        made.append(memory)
    assert made[0].digest == made[1].digest
    return made[0], made[1]


def task(digits, first: int = 16, count: int = 96):
    return digits[0][first : first + count], digits[1][first : first + count]


def interrupt(memory: Memory, images, labels, level: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        memory.absorb(images, labels, progress=Interrupted(level))


@pytest.mark.parametrize("level", [1, 2, 3])
def test_it_resumes_and_ends_the_same(memories, digits, level):
    unbroken, memory = memories
    whole = unbroken.absorb(*task(digits))
    assert [slot.level for slot in whole.plan.train] == [2, 1, 0]
    before, size = memory.digest, memory.nbytes()
    interrupt(memory, *task(digits), level)
    assert memory.digest == before
    assert memory.n == 16
    assert abs(memory.nbytes() - size) <= 2048  # whole pages
    assert memory.verify() == []

    fresh = Memory.open(memory.path)
    done = fresh.absorb(*task(digits))
    assert [slot.level for slot in done.resumed] == [2, 1, 0][: level - 1]
    assert fresh.digest == unbroken.digest
    assert all(np.array_equal(done.orders[slot], order) for slot, order in whole.orders.items())
    assert fresh.file.staged() == {}
    assert fresh.verify() == []
    assert fresh.path.stat().st_size == unbroken.path.stat().st_size


def test_another_task_drops_it(memories, digits):
    unbroken, memory = memories
    interrupt(memory, *task(digits), 3)
    assert set(memory.file.staged()) == {"level-2", "level-1"}
    others = task(digits, first=200)
    done = memory.absorb(*others)
    unbroken.absorb(*others)
    assert done.resumed == ()
    assert memory.file.staged() == {}
    assert memory.digest == unbroken.digest


def test_a_task_that_fits_into_the_buffer_drops_it_too(memories, digits):
    _, memory = memories
    interrupt(memory, *task(digits), 2)
    memory.absorb(*task(digits, first=300, count=3))
    assert memory.file.staged() == {}


def test_labels_in_another_order_are_another_task(digits):
    images = digits[0][:4]
    numbers = np.array([0, 1, 0, 1])
    known = task_digest("", images, numbers, ("a", "b"))
    assert known == task_digest("", images.copy(), numbers.copy(), ("a", "b"))
    assert known != task_digest("", images, numbers[::-1], ("a", "b"))
    assert known != task_digest("", images, numbers, ("b", "a"))
    assert known != task_digest("x", images, numbers, ("a", "b"))
    assert known != task_digest("", 255 - images, numbers, ("a", "b"))


def test_damaged_work_is_reported_and_trained_again(memories, digits):
    unbroken, memory = memories
    unbroken.absorb(*task(digits))
    interrupt(memory, *task(digits), 3)
    blob = memory.file.staged()["level-1"]
    content = memory.path.read_bytes()
    at = content.index(blob[-200:])
    memory.path.write_bytes(content[:at] + bytes(200) + content[at + 200 :])
    assert memory.verify() == ["part staged-level-1 does not match its own digest"]
    assert memory.n == 16  # the content is unaffected
    done = memory.absorb(*task(digits))
    assert [slot.level for slot in done.resumed] == [2]
    assert memory.digest == unbroken.digest
    assert memory.verify() == []


def test_forged_work_is_refused(memories, digits):
    _, memory = memories
    interrupt(memory, *task(digits), 2)
    blob = memory.file.staged()["level-2"]
    known, sound = staging.from_bytes(blob, "staged")
    assert sound.slot == Slot(2, 1, 64)
    assert staging.to_bytes(known, sound) == blob
    for lie, problem in (
        ({"order": np.zeros_like(sound.order)}, "no permutation"),
        ({"order": sound.order[:-1]}, "no permutation"),
        ({"slot": Slot(1, 1, 64)}, "another level than it claims"),
        ({"has_weights": not sound.has_weights}, "another level than it claims"),
        ({"codec": sound.codec[:100]}, "staged is damaged"),
        ({"level": sound.codec}, "staged"),
        ({"codec": COSINE.to_bytes()}, "staged needs weights that are missing"),
    ):
        lying = staging.to_bytes(known, replace(sound, **lie))
        with pytest.raises(Damaged, match=problem):
            staging.from_bytes(lying, "staged")
    with pytest.raises(Damaged, match="not a staged fit"):
        staging.from_bytes(blob.replace(b'"level"', b'"lovel"'), "staged")


def test_inspect_shows_it(memories, digits, logcl):
    _, memory = memories
    assert "interrupted" not in logcl("inspect", memory.path).out
    interrupt(memory, *task(digits), 3)
    assert "a task was interrupted after training level-1, level-2" in logcl("inspect", memory.path).out
    assert json.loads(logcl("inspect", memory.path, "--json").out)["staged"] == ["level-1", "level-2"]
