"""Verify names whatever is damaged, and salvage saves everything else, pixel for pixel."""

import json
import random
import zlib

import numpy as np
import pytest

from logcl import Classifier, Memory
from logcl.core.errors import CannotWrite, Damaged, LogCLError, NotAMemory
from logcl.memory.file import carving
from logcl.memory.file.carving import find_intact
from logcl.memory.salvage import salvage
from tests.helpers import page_of

FEW = {
    "codec.name": "autoencoder",
    "codec.epochs": 1,
    "codec.min_steps": 20,
    "classifier.epochs": 1,
    "classifier.min_steps": 4,
    "classifier.width": 4,
}
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
LEVELS = {"level-2": range(1, 65), "level-1": range(65, 97), "level-0": range(97, 113)}
CHUNKS = {"buffer-113": range(113, 120), "buffer-120": range(120, 122)}


@pytest.fixture(scope="module", params=["fast", "paper-cpu"])
def sound(request, tmp_path_factory, digits) -> Memory:
    """7 units of 16 in three levels, 9 samples in two chunks of the buffer, a classifier."""
    path = tmp_path_factory.mktemp("sound") / "m.logcl"
    memory = Memory.open(path, (1, 8, 8), preset=request.param, unit=16, settings=QUICK[request.param])
    for start, stop in ((0, 119), (119, 121)):
        memory.absorb(digits[0][start:stop], digits[1][start:stop])
    Classifier.train(memory)
    parts = {name for name in memory.file.header().parts if not name.startswith(("ledger-", "weights-"))}
    assert parts == LEVELS.keys() | CHUNKS.keys()
    return memory


@pytest.fixture
def damaged(sound, tmp_path) -> Memory:
    """A copy to damage."""
    copy = Memory(tmp_path / "damaged.logcl")
    copy.path.write_bytes(sound.path.read_bytes())
    return copy


def spoil(memory: Memory, *names: str) -> None:
    """Flip a bit in the data of some parts, in place."""
    content = bytearray(memory.path.read_bytes())
    _, parts = memory.file.snapshot()
    for name in names:
        at = content.index(parts[name][-40:]) + 20
        content[at] ^= 4
    memory.path.write_bytes(content)


def kept_indices(*lost: str) -> np.ndarray:
    ranges = [r for name, r in {**LEVELS, **CHUNKS}.items() if name not in lost]
    return np.concatenate([np.array(r, dtype=int) for r in ranges]) if ranges else np.empty(0, int)


@pytest.mark.parametrize(
    "lost", [(name,) for name in {**LEVELS, **CHUNKS}] + [("level-2", "level-0", "buffer-113"), tuple(LEVELS)]
)
def test_a_lost_part_costs_its_own_samples_and_no_other(sound, damaged, tmp_path, digits, lost):
    spoil(damaged, *lost)
    with pytest.raises(Damaged):
        damaged.snapshot()
    problems = damaged.verify()
    assert all(any(name in problem for problem in problems) for name in lost)

    saved = salvage(damaged.path, tmp_path / "saved.logcl")
    ranges = sorted((r for name, r in {**LEVELS, **CHUNKS}.items() if name in lost), key=lambda r: r.start)
    assert [number for gap in saved.lost for number in gap] == [number for r in ranges for number in r]
    assert saved.memory.verify() == []
    assert saved.memory.classes == sound.classes
    x, y = sound.snapshot().fetch(kept_indices(*lost))
    now_x, now_y = saved.memory.snapshot().everything()
    assert np.array_equal(x, now_x)
    assert np.array_equal(y, now_y)
    if len(now_y):
        Classifier.train(saved.memory)  # it is a memory like any other
    saved.memory.absorb(digits[0][200:240], digits[1][200:240])
    assert saved.memory.n == len(now_y) + 40
    assert saved.memory.verify() == []


@pytest.mark.parametrize("wrecked", ["first page", "first two kilobytes", "index", "header", "copy"])
def test_parts_are_found_without_the_pages_that_point_to_them(sound, damaged, tmp_path, wrecked):
    content = bytearray(damaged.path.read_bytes())
    page = page_of(damaged.path)
    if wrecked == "first page":
        content[:100] = bytes(100)
    elif wrecked == "first two kilobytes":
        content[:2048] = random.Random(1).randbytes(2048)
    elif wrecked == "index":
        pages = [at for at in range(page, len(content), page) if content[at] == 0x0A]
        assert pages
        for at in pages:
            content[at : at + 8] = b"\xff" * 8
    elif wrecked == "header":
        content[content.index(b'{"memory"') + 5] ^= 1
    else:
        copy = zlib.compress(next(d for name, d in carving.records(content) if name == "header"), 9)
        content[content.index(copy[:60]) + 40] ^= 1
    damaged.path.write_bytes(content)
    assert damaged.verify()
    saved = salvage(damaged.path, tmp_path / "saved.logcl")
    assert saved.lost == ()
    assert saved.memory.verify() == []
    assert np.array_equal(sound.snapshot().everything()[0], saved.memory.snapshot().everything()[0])
    assert Classifier.load(saved.memory).classes == sound.classes


def test_a_truncated_file_gives_the_intact_parts(damaged, tmp_path):
    content = damaged.path.read_bytes()
    shares = []
    for number, share in enumerate((0.0, 0.3, 0.6, 0.9, 1.0)):
        damaged.path.write_bytes(content[: int(share * len(content))])
        try:
            saved = salvage(damaged.path, tmp_path / f"{number}.logcl")
        except Damaged as error:
            assert "restore a backup" in str(error)  # noqa: PT017 - both endings are right
            continue
        assert saved.memory.verify() == []
        assert saved.memory.n + saved.samples_lost == 121
        shares.append(saved.memory.n)
    assert shares[-1] == 121


def test_of_several_headers_the_newest_is_used(damaged, digits):
    """SQLite leaves old records behind in pages that it reuses."""
    before = damaged.file.header()
    damaged.absorb(digits[0][121:124], digits[1][121:124])
    old = carving_record("header", before)
    intact = find_intact(damaged.path)
    assert intact is not None
    damaged.path.write_bytes(damaged.path.read_bytes() + old.ljust(4096, b"\0"))
    again = find_intact(damaged.path)
    assert again is not None
    assert again.header == intact.header
    assert dict(carving.records(old)).keys() == {"header"}


def carving_record(name, header) -> bytes:
    """A header as SQLite would write it to a leaf page, short enough to fit."""
    from logcl.memory.file.header import digest_of, to_bytes

    data = to_bytes({"n": header.fields["n"]}, {})
    kind = 12 + 2 * len(data)
    types = bytes([13 + 2 * len(name), 76, 0x80 | kind >> 7, kind & 0x7F])
    return bytes([1 + len(types)]) + types + name.encode() + digest_of(data) + data


def test_nothing_is_overwritten_and_other_files_are_refused(damaged, tmp_path):
    taken = tmp_path / "taken.logcl"
    taken.write_text("mine")
    with pytest.raises(CannotWrite, match=r"taken\.logcl exists"):
        salvage(damaged.path, taken)
    with pytest.raises(NotAMemory, match="not a file"):
        salvage(tmp_path / "absent.logcl", tmp_path / "new.logcl")
    text = tmp_path / "text.logcl"
    text.write_text("no memory " * 1000)
    with pytest.raises(Damaged, match="restore a backup"):
        salvage(text, tmp_path / "new.logcl")
    assert not (tmp_path / "new.logcl").exists()
    assert taken.read_text() == "mine"


def test_on_the_command_line(damaged, tmp_path, logcl):
    spoil(damaged, "level-1")
    before = damaged.path.read_bytes()
    assert logcl("verify", damaged.path).code == 1
    saved = logcl("verify", damaged.path, "--salvage", tmp_path / "new.logcl")
    assert saved.code == 0
    assert "part level-1 does not match" in saved.out
    assert "89 intact samples saved; 32 lost: 65 to 96" in saved.out
    assert logcl("verify", tmp_path / "new.logcl").code == 0
    told = json.loads(logcl("verify", damaged.path, "--salvage", tmp_path / "two.logcl", "--json").out)
    assert told["salvaged"] == {"memory": str(tmp_path / "two.logcl"), "samples": 89, "lost": [[65, 96]]}
    assert told["ok"] is False
    assert damaged.path.read_bytes() == before
    assert logcl("verify", tmp_path / "new.logcl", "--salvage", tmp_path / "new.logcl").code == 7


def test_two_damages_anywhere_never_make_wrong_samples(sound, damaged, tmp_path):
    """Salvaged samples are right whatever the damage, and saved and lost samples add up."""
    content = damaged.path.read_bytes()
    x, y = sound.snapshot().everything()
    dice = random.Random(0)
    for number in range(25):
        spoiled = bytearray(content)
        for _ in range(2):
            at = dice.randrange(len(spoiled) - 64)
            spoiled[at : at + 64] = dice.randbytes(64)
        damaged.path.write_bytes(spoiled)
        try:
            saved = salvage(damaged.path, tmp_path / f"{number}.logcl")
        except LogCLError:
            continue
        gone = {index for gap in saved.lost for index in gap}
        rows = np.array([row for row in range(121) if row + 1 not in gone], dtype=int)
        now_x, now_y = saved.memory.snapshot().everything()
        assert np.array_equal(x[rows], now_x)
        assert np.array_equal(y[rows], now_y)
