"""The ledger: tasks with time and source, in few parts, and not part of the content."""

from __future__ import annotations

import itertools
import json
import shutil
import warnings
import zlib
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from logcl import Classifier, Memory
from logcl.core.errors import BadInput, BadSettings, Contradictory, Damaged, LogCLError
from logcl.core.progress import Silent
from logcl.memory import ledger
from logcl.memory.ledger import Entry, content_digest
from logcl.memory.salvage import salvage

FIXTURES = Path(__file__).parents[1] / "fixtures"
COSINE = {"codec.name": "cosine"}


@pytest.fixture
def memory(tmp_path) -> Memory:
    return Memory.open(tmp_path / "m.logcl", (1, 8, 8), unit=64, settings=COSINE)


def entry(start: int = 1, stop: int = 3, **changes) -> Entry:
    when = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    about = {"start": start, "stop": stop, "when": when, "classes": (0, 1), "digest": "0" * 32, **changes}
    return Entry.model_validate(about)


def test_every_task_has_an_entry(memory, digits):
    began = datetime.now(timezone.utc) - timedelta(seconds=1)
    x, y = digits
    memory.absorb(x[:10], y[:10], source="monday/")
    memory.absorb(x[10:90], y[10:90])
    memory.absorb(x[90:91], [y[90]], source="tuesday 🐈")
    first, second, third = memory.ledger
    assert [(e.start, e.stop, e.samples) for e in memory.ledger] == [(1, 10, 10), (11, 90, 80), (91, 91, 1)]
    assert [e.source for e in memory.ledger] == ["monday/", "", "tuesday 🐈"]
    assert first.classes == tuple(range(10))  # in order of appearance
    assert set(second.classes) == set(y[10:90].tolist())
    assert third.classes == (int(y[90]),)
    assert first.digest == content_digest(x[:10], y[:10].tolist())
    assert len({e.digest for e in memory.ledger}) == 3
    for found in memory.ledger:
        assert began <= found.when <= datetime.now(timezone.utc)
        assert found.when.microsecond == 0
    assert Memory(memory.path).ledger == memory.ledger
    assert memory.verify() == []


def test_string_labels_are_in_it(memory, digits):
    memory.absorb(digits[0][:3], ["dög", "cat", "dög"])
    assert memory.ledger[0].classes == ("dög", "cat")


def test_the_digest_depends_on_images_and_labels(digits):
    x = digits[0][:4]
    known = content_digest(x, [0, 1, 0, 1])
    assert known == content_digest(x.copy(), [0, 1, 0, 1])
    assert known == content_digest(np.asfortranarray(x), [0, 1, 0, 1])
    assert len(known) == 32
    others = [
        content_digest(x, [1, 0, 0, 1]), content_digest(x, ["0", "1", "0", "1"]),
        content_digest(255 - x, [0, 1, 0, 1]), content_digest(x.reshape(4, 1, 4, 16), [0, 1, 0, 1]),
    ]  # fmt: skip
    assert len({known, *others}) == 5


def test_a_hundred_tiny_tasks_leave_few_parts(memory, digits):
    for row in range(100):
        memory.absorb(digits[0][row : row + 1], digits[1][row : row + 1], source=str(row))
        parts = [name for name in memory.file.header().parts if name.startswith("ledger-")]
        assert len(parts) == (row + 1).bit_count()
    assert [e.source for e in memory.ledger] == [str(row) for row in range(100)]
    assert [(e.start, e.stop) for e in memory.ledger] == [(n, n) for n in range(1, 101)]
    assert memory.verify() == []


class TestTheSameImagesTwice:
    @pytest.fixture
    def held(self, memory, digits) -> Memory:
        memory.absorb(digits[0][:3], digits[1][:3], source="sunday/")
        memory.absorb(digits[0][3:90], digits[1][3:90], source="monday/")
        return memory

    @pytest.mark.parametrize("rows", [slice(3, 90), slice(89, 2, -1)], ids=["same order", "another order"])
    @pytest.mark.parametrize("labels", ["same", "others"])
    @pytest.mark.parametrize("images", ["bytes", "floats"])
    def test_repeated_images_are_refused_unless_requested(self, held, digits, rows, labels, images):
        x, y = digits[0][rows], digits[1][rows]
        y = y if labels == "same" else (y + 1) % 10
        x = x if images == "bytes" else x / 255
        before = held.file.header().digest
        when = held.ledger[1].when
        sentence = f"as samples 4 to 90, absorbed on {when:%Y-%m-%d at %H:%M} UTC from monday/; .* --again"
        with pytest.raises(BadInput, match=sentence):
            Memory(held.path).absorb(x, y, source="tuesday/")
        assert held.file.header().digest == before
        held.absorb(x, y, again=True)
        assert held.n == 177
        assert len(held.ledger) == 3

    def test_other_images_are_accepted(self, held, digits):
        """Parts of a task, more images than it had, and one image repeated: these are other tasks."""
        x, y = digits[0][3:90], digits[1][3:90]
        for rows in (range(86), [*range(87), 0], [*range(86), 0]):
            held.absorb(x[list(rows)], y[list(rows)])

    def test_a_task_that_was_interrupted_is_not_held(self, held, digits):
        with pytest.raises(KeyboardInterrupt):
            held.absorb(digits[0][90:99], digits[1][90:99], progress=Failing())
        held.absorb(digits[0][90:99], digits[1][90:99])
        assert held.n == 99

    def test_entries_without_a_digest_of_images_recognise_the_same_task(self, held, digits):
        """Early files of format 4."""
        header = held.file.header()
        old = [entry.model_copy(update={"images": ""}) for entry in held.ledger]
        drop = [name for name in header.parts if name.startswith("ledger-")]
        held.file.commit(header, header.fields, {"ledger-0": ledger.to_bytes(old)}, drop)
        x, y = digits[0][3:90], digits[1][3:90]
        with pytest.raises(BadInput, match="samples 4 to 90"):
            held.absorb(x, y)
        held.absorb(x[::-1], y[::-1])


class Failing(Silent):
    """Interrupted as soon as work begins."""

    def track(self, description, total):
        raise KeyboardInterrupt


def test_identical_images_with_different_labels_are_counted(memory, digits):
    x = digits[0][[0, 1, 0, 2, 1, 0, 3, 3]]
    labels = ["cat", "dog", "cat\n", "cat", "cat", "cat", "dog", "dog"]
    with pytest.warns(Contradictory, match=r"^yard/: 2 images .* first under cat and cat\\n; .*") as warned:
        memory.absorb(x, labels, source="yard/")
    assert len(warned) == 1
    assert memory.n == 8


def test_warnings_turned_into_errors_come_before_the_commit(memory, digits):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Contradictory, match="this task: 1 image has"):
            memory.absorb(digits[0][[0, 0]], [0, 1])
    assert memory.n == 0


def test_when_and_source_are_not_content(tmp_path, digits, monkeypatch):
    """Memories with equal samples have equal digests, whatever the time and source."""
    digests, ledgers = [], []
    for name in ("a", "b"):
        memory = Memory.open(tmp_path / name, (1, 8, 8), unit=8, settings=COSINE)
        memory.absorb(digits[0][:20], digits[1][:20], source=name)
        digests.append(memory.digest)
        ledgers.append(memory.ledger)
        assert memory.snapshot().digest == memory.digest != memory.file.header().digest

        class Later(datetime):
            @classmethod
            def now(cls, tz=None):
                return datetime.now(tz) + timedelta(days=400)

        monkeypatch.setattr(ledger, "datetime", Later)
    assert digests[0] == digests[1]
    assert ledgers[0] != ledgers[1]
    assert ledgers[1][0].when - ledgers[0][0].when > timedelta(days=399)


def test_a_classifier_stays_current_only_while_the_content_does(memory, digits):
    memory.absorb(digits[0][:9], digits[1][:9])
    classifier = Classifier.train(memory, recipe={"epochs": 1, "min_steps": 1, "width": 2})
    assert classifier.is_current(memory)
    memory.absorb(digits[0][9:10], digits[1][9:10])
    assert not classifier.is_current(memory)


@pytest.mark.parametrize("source", ["x" * 5000, 7, None, "caf\udce9"])
def test_a_source_that_cannot_be_kept_is_refused_and_nothing_changes(memory, digits, source):
    memory.absorb(digits[0][:9], digits[1][:9])
    before = memory.file.header().digest
    with pytest.raises((BadInput, BadSettings)):
        memory.absorb(digits[0][:9], digits[1][:9], source=source)
    assert memory.file.header().digest == before


@pytest.mark.parametrize("name", ["format-2-fast", "format-3-fast"])
def test_tasks_before_format_4_have_no_entries(name, tmp_path, digits):
    path = Path(shutil.copy(FIXTURES / f"{name}.logcl", tmp_path))
    memory = Memory.open(path)
    assert memory.ledger == ()
    n = memory.n
    memory.absorb(digits[0][:2], ["null", "eins"], source="now")
    assert [(e.start, e.stop, e.source) for e in memory.ledger] == [(n + 1, n + 2, "now")]
    assert memory.verify() == []


def test_salvage_starts_a_new_ledger(memory, digits, tmp_path):
    memory.absorb(digits[0][:70], digits[1][:70])
    saved = salvage(memory.path, tmp_path / "saved.logcl").memory
    assert saved.ledger == ()
    saved.absorb(digits[0][:2], digits[1][:2])
    assert [(e.start, e.stop) for e in saved.ledger] == [(71, 72)]
    assert saved.verify() == []


@given(st.lists(st.integers(1, 50), min_size=1, max_size=12), st.text(max_size=20))
@hypothesis_settings(max_examples=30)
def test_entries_come_back_exactly(sizes, source):
    stops = list(itertools.accumulate(sizes))
    entries = tuple(
        entry(stop - size + 1, stop, source=source, classes=(source + "x", "y"))
        for size, stop in zip(sizes, stops, strict=True)
    )
    assert ledger.from_bytes(ledger.to_bytes(entries), "ledger-0") == entries


def forged(*entries: dict) -> bytes:
    return zlib.compress(json.dumps(entries).encode())


def plain(**changes) -> dict:
    return {**json.loads(entry().model_dump_json()), **changes}


def test_the_forging_helper_makes_valid_entries():
    assert ledger.from_bytes(forged(plain()), "ledger-0") == (entry(),)


@pytest.mark.parametrize(
    "blob",
    [
        b"", b"\xff" * 50, zlib.compress(b""), zlib.compress(b"null"), zlib.compress(b"[" * 100_000),
        zlib.compress(b'{"a":' * 100_000), zlib.compress(b"9" * 100_000), zlib.compress(b"[]"[:1]),
        forged(plain(start=0)), forged(plain(stop=2**62)), forged(plain(start="x")),
        forged(plain(digest="0")), forged(plain(digest="Z" * 32)), forged(plain(source="x" * 5000)),
        forged(plain(when="yesterday")),
        forged(plain(more=1)), forged(plain(classes=[2**70])), forged(plain(classes=["a", 1])),
        forged(plain(classes=["x" * 2000])), forged({}), forged(3), forged(plain(), {}),
        zlib.compress(json.dumps([[]] * 500_000).encode()),
    ],
    ids=lambda blob: repr(blob[:12]),
)  # fmt: skip
def test_forged_parts_are_refused(memory, digits, blob):
    """In one printable sentence, alone and within a memory whose digests are all right."""
    with pytest.raises(Damaged, match="ledger-0 cannot be read") as caught:
        ledger.from_bytes(blob, "ledger-0")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400
    memory.absorb(digits[0][:3], digits[1][:3])
    header = memory.file.header()
    memory.file.commit(header, header.fields, {"ledger-0": blob}, ())
    assert Memory(memory.path).verify()
    with pytest.raises(LogCLError):
        Memory(memory.path).ledger  # noqa: B018 - reading is what is refused
    saved = salvage(memory.path, memory.path.with_name("saved.logcl"))  # it is no sample
    assert saved.memory.n == 3


def test_a_decompression_bomb_is_not_inflated():
    bomb = zlib.compress(b" " * 2**28, 9)
    with pytest.raises(Damaged, match="ledger-0"):
        ledger.from_bytes(bomb, "ledger-0")


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"ledger-0": [(1, 3)], "ledger-1": [(5, 9)]}, "ledger has gaps"),
        ({"ledger-0": [(1, 3)], "ledger-2": [(4, 9)]}, "ledger has gaps"),
        ({"ledger-1": [(1, 9)]}, "ledger has gaps"),
        ({"ledger-0": [(1, 9), (9, 9)]}, "ledger has gaps"),
        ({"ledger-0": [(1, 8)]}, "ledger does not end with sample 9"),
        ({"ledger-0": [(1, 10)]}, "ledger does not end with sample 9"),
        ({"ledger-0": [(1, 9), (10, 9)]}, "ledger does not end with sample 9"),
        ({"ledger-0": []}, "ledger"),
    ],
)
def test_ledgers_that_contradict_the_memory_are_refused(memory, digits, parts, problem):
    memory.absorb(digits[0][:9], digits[1][:9])
    header = memory.file.header()
    new = {name: ledger.to_bytes([entry(*ends) for ends in chosen]) for name, chosen in parts.items()}
    drop = [name for name in header.parts if name.startswith("ledger-")]
    memory.file.commit(header, header.fields, new, drop)
    with pytest.raises(Damaged, match=problem):
        Memory(memory.path).snapshot()
