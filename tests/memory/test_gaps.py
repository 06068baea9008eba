"""Sample identity is not position: levels and buffer may hold fewer samples than they have room for."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from logcl import Classifier, Memory
from logcl.allocation import Slot, plan
from logcl.core.errors import Damaged
from logcl.core.sharding import Shard
from logcl.memory import buffer
from logcl.memory.fitting import Fit, level_part, weights_part
from logcl.memory.local_model import LocalModel
from logcl.memory.salvage import salvage
from logcl.memory.samples import Run, Samples

SHAPE, UNIT, LAST = (1, 8, 8), 8, 61
FEW = {"codec.epochs": 1, "codec.min_steps": 20, "classifier.epochs": 1, "classifier.min_steps": 4}
CHOICES = {
    "autoencoder": {**FEW, "codec.name": "autoencoder", "codec.width": 8},
    "cosine": {"codec.name": "cosine"},
    "index": {**FEW, "codec.name": "index", "codec.network": "mlp", "codec.bits": 16, "codec.width": 8,
              "codec.warm_up_epochs": 1, "labels.kind": "labeller", "labels.training.epochs": 1,
              "labels.training.min_steps": 5},
}  # fmt: skip
KEPT = {index for index in range(1, LAST + 1) if index % 5 and index not in range(33, 41)}
"""What is left of samples 1 to 61: every fifth is missing, and eight in a row, so that runs break too."""


def live(slots: Slot | range) -> np.ndarray:
    every = range(slots.start, slots.stop + 1) if isinstance(slots, Slot) else slots
    return np.array([index for index in every if index in KEPT])


def thin(memory: Memory, kept: set[int]) -> None:
    """Write a memory again with fewer samples in it, as forgetting would."""
    header, now = memory.file.header(), memory.snapshot()
    new: dict[str, bytes] = {}
    drop = [name for name in header.parts if not name.startswith("ledger-")]
    n = 0
    for level in now.levels:
        rows = np.flatnonzero(np.isin(level.indices, sorted(kept)))
        if len(rows):
            new |= Fit.of(level.select(rows), np.arange(len(rows))).parts
            n += len(rows)
    for chunk in now.chunks:
        rows = np.flatnonzero(np.isin(chunk.samples.indices, sorted(kept)))
        if len(rows):
            old = chunk.samples
            samples = Samples(old.x[rows], old.y[rows], old.indices[rows], (Run(len(rows)),))
            new[f"buffer-{chunk.start}"] = buffer.to_bytes(buffer.Chunk(chunk.start, chunk.stop, samples))
            n += len(rows)
    manifest = now.manifest.model_copy(update={"n": n})
    memory.file.commit(header, manifest.as_data(), new, drop)


def make(path, digits, choice: str) -> Memory:
    """Levels 2, 1 and 0 of units of 8, and 5 samples in the buffer, in two chunks."""
    memory = Memory.open(path, SHAPE, unit=UNIT, settings=CHOICES[choice])
    for start, stop in ((0, 30), (30, 59), (59, LAST)):
        memory.absorb(digits[0][start:stop], digits[1][start:stop])
    return memory


@pytest.fixture(scope="module", params=CHOICES)
def whole(request, tmp_path_factory, digits) -> Memory:
    return make(tmp_path_factory.mktemp("whole") / "m.logcl", digits, request.param)


@pytest.fixture
def thinned(whole, tmp_path) -> Memory:
    memory = Memory(tmp_path / "m.logcl")
    memory.path.write_bytes(whole.path.read_bytes())
    thin(memory, KEPT)
    return memory


@pytest.fixture
def expected(whole) -> tuple[torch.Tensor, np.ndarray]:
    return whole.snapshot().fetch(np.array(sorted(KEPT)))


def alike(x, wanted) -> bool:
    """Different batches may round a pixel differently."""
    return (x.int() - wanted.int()).abs().max() <= 1


def test_it_is_valid_and_counts_the_samples_it_holds(thinned, whole):
    assert thinned.verify() == []
    assert thinned.n == len(KEPT) < whole.n == LAST
    assert thinned.manifest.last == LAST
    assert thinned.digest != whole.digest
    now = thinned.snapshot()
    assert now.live.tolist() == sorted(KEPT)
    assert sum(run.count for run in now.runs) == len(KEPT)
    assert [level.slot for level in now.levels] == [level.slot for level in whole.snapshot().levels]


def test_replay_yields_what_is_left(thinned, expected):
    now = thinned.snapshot()
    x, y = now.everything()
    assert alike(x, expected[0])
    assert np.array_equal(y, expected[1])
    some = np.array([61, 1, 44, 44, 58])
    assert alike(now.fetch(some)[0], expected[0][np.searchsorted(sorted(KEPT), some)])
    images, labels = next(thinned.replay(500))
    known = {image.tobytes() for image in x.numpy()}
    found = (images * 255).round().to(torch.uint8).numpy()
    assert np.mean([image.tobytes() in known for image in found]) > 0.9
    assert set(labels.tolist()) == set(now.label_values[y].tolist())


@pytest.mark.parametrize("index", [0, 5, 35, 60, LAST + 1, -1])
def test_missing_samples_are_refused(thinned, index):
    with pytest.raises(IndexError, match=f"no sample {index}"):
        thinned.snapshot().fetch(np.array([1, index]))


def test_data_sets_have_every_sample_once(thinned, expected):
    dataset = thinned.dataset()
    assert len(dataset) == len(KEPT)
    with torch.random.fork_rng():  # loaders draw from torch's global state
        loaded = torch.cat([x for x, _ in DataLoader(dataset, batch_size=7)])
    assert alike((loaded * 255).round(), expected[0])
    assert alike((dataset[-1][0] * 255).round(), expected[0][-1])
    with pytest.raises(IndexError):
        dataset[len(KEPT)]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        parts = [thinned.dataset(iterable=True, batch_size=5, shard=(rank, 3)) for rank in range(3)]
        counts = [sum(len(y) for _, y in part) for part in parts]
    assert sum(counts) == len(KEPT)
    assert max(counts) - min(counts) <= 1
    now = thinned.snapshot()
    for rank in range(3):
        x, y = now.everything(shard=Shard(rank, 3))
        assert alike(x, expected[0][rank::3])
        assert np.array_equal(y, expected[1][rank::3])


def test_a_classifier_learns_from_it(thinned, digits):
    assert Classifier.train(thinned, recipe={"epochs": 1, "min_steps": 2}).predict(digits[0][:3]).shape == (
        3,
    )
    assert Classifier.load(thinned).is_current(thinned)


@pytest.mark.parametrize("count", [1, 2, 3, 11, 70])
def test_further_tasks_merge_it(thinned, digits, count, expected):
    """Sample indices continue after the last that ever arrived; missing samples stay missing."""
    before = thinned.snapshot()
    done = thinned.absorb(digits[0][LAST : LAST + count], digits[1][LAST : LAST + count])
    assert done.plan == plan(LAST, LAST + count, UNIT)
    assert thinned.verify() == []
    now = thinned.snapshot()
    assert now.live.tolist() == [*sorted(KEPT), *range(LAST + 1, LAST + count + 1)]
    assert (now.n, now.manifest.last) == (len(KEPT) + count, LAST + count)
    x, y = now.everything()
    held = before.levels[0].slot.stop
    if before.levels[0].slot in done.plan.keep:
        rows = np.flatnonzero(now.live <= held)
        assert alike(x[rows], expected[0][: len(rows)])
    if before.settings.labels.kind == "stored":
        wanted = [*before.label_values[expected[1]], *digits[1][LAST : LAST + count]]
        assert now.label_values[y].tolist() == wanted
    for slot, order in done.orders.items():
        assert sorted(order.tolist()) == list(
            range(np.isin(now.live, range(slot.start, slot.stop + 1)).sum())
        )


def test_empty_levels_and_chunks_are_absent(thinned, digits):
    now = thinned.snapshot()
    gone = now.levels[1].slot
    waiting = now.chunks[0]
    left = KEPT - set(range(gone.start, gone.stop + 1)) - set(range(waiting.start, waiting.stop + 1))
    thin(thinned, left)
    parts = thinned.file.header().parts
    assert level_part(gone) not in parts
    assert f"buffer-{waiting.start}" not in parts
    assert thinned.verify() == []
    assert thinned.snapshot().live.tolist() == sorted(left)
    thinned.absorb(digits[0][:20], digits[1][:20])
    assert thinned.verify() == []
    assert thinned.snapshot().live.tolist() == [*sorted(left), *range(LAST + 1, LAST + 21)]


def test_a_memory_may_be_empty_again(thinned, digits):
    thin(thinned, set())
    assert thinned.verify() == []
    assert thinned.n == 0
    assert thinned.classes  # it still knows their names
    thinned.absorb(digits[0][:20], digits[1][:20])
    assert thinned.verify() == []
    assert thinned.snapshot().live.tolist() == list(range(LAST + 1, LAST + 21))


def test_salvage_keeps_what_is_left(thinned, expected, tmp_path):
    saved = salvage(thinned.path, tmp_path / "saved.logcl")
    assert saved.lost == ()
    assert saved.memory.verify() == []
    assert saved.memory.n == len(KEPT)
    x, y = saved.memory.snapshot().everything()
    assert alike(x, expected[0])
    assert np.array_equal(y, expected[1])


def test_salvage_without_its_largest_level(thinned, expected, tmp_path):
    now = thinned.snapshot()
    slot = now.levels[0].slot
    content = bytearray(thinned.path.read_bytes())
    _, parts = thinned.file.snapshot()
    content[content.index(parts[level_part(slot)][-40:]) + 20] ^= 4
    thinned.path.write_bytes(content)
    saved = salvage(thinned.path, tmp_path / "saved.logcl")
    assert [(gap.start, gap.stop - 1) for gap in saved.lost] == [(slot.start, slot.stop)]
    assert saved.memory.verify() == []
    x, _ = saved.memory.snapshot().everything()
    assert alike(x, expected[0][len(live(slot)) :])
    assert saved.memory.n == len(KEPT) - len(live(slot))


def test_a_memory_that_counts_wrong_is_refused(thinned):
    header = thinned.file.header()
    for lie in ({"n": LAST}, {"n": len(KEPT) - 1}, {"last": LAST - 6}, {"last": LAST + UNIT}):
        header = thinned.file.commit(header, {**thinned.file.header().fields, **lie}, {}, ())
        with pytest.raises(Damaged, match=r"not those of|its buffer|ledger"):
            thinned.snapshot()
        right = {**header.fields, "n": len(KEPT), "last": LAST}
        header = thinned.file.commit(header, right, {}, ())
    assert thinned.verify() == []


# --- levels that share weights ------------------------------------------------------------------------------


@pytest.fixture
def sharing(tmp_path, digits) -> Memory:
    """Levels 1 and 0 of units of 16, both decoded with the weights of level 1."""
    settings = {
        **FEW,
        "codec.name": "autoencoder",
        "codec.width": 8,
        "codec.smallest": 1,
        "codec.keep_encoder": True,
    }
    memory = Memory.open(tmp_path / "m.logcl", SHAPE, unit=16, settings=settings)
    memory.absorb(digits[0][:48], digits[1][:48])
    header, now = memory.file.header(), memory.snapshot()
    large, small = now.levels
    codec = large.codec
    codes = codec.encode(digits[0][32:48])
    about = small.about.model_copy(update={"codec": codec.spec, "weights": large.about.weights})
    alike = LocalModel(about, codec, codes, small.labels, small.indices)
    new = {**Fit.of(large, np.arange(32)).parts, **Fit.of(alike, np.arange(16)).parts}
    memory.file.commit(header, now.manifest.as_data(), new, [weights_part(small.about.weights)])
    return memory


def weights_in(memory: Memory) -> list[str]:
    return [name for name in memory.file.header().parts if name.startswith("weights-")]


def test_levels_with_equal_weights_store_them_once(sharing):
    now = Memory(sharing.path).snapshot()
    assert len(now.levels) == 2
    assert now.levels[0].about.weights == now.levels[1].about.weights
    assert now.levels[0].codec is now.levels[1].codec
    assert weights_in(sharing) == [weights_part(now.levels[0].about.weights)]
    assert sharing.verify() == []


def test_weights_stay_while_a_level_needs_them(sharing, digits):
    (shared,) = weights_in(sharing)
    sharing.absorb(digits[0][48:53], digits[1][48:53])  # into the buffer
    assert weights_in(sharing) == [shared]
    header, now = sharing.file.header(), sharing.snapshot()
    # Without level 1 (forgotten), level 0 alone needs them.
    fields = now.manifest.model_copy(update={"n": now.n - 32}).as_data()
    sharing.file.commit(header, fields, {}, ["level-1"])
    assert sharing.verify() == []
    sharing.absorb(digits[0][53:55], digits[1][53:55])
    assert weights_in(sharing) == [shared]


def test_weights_stay_until_both_levels_that_need_them_are_retired(tmp_path, digits):
    settings = {
        **FEW,
        "codec.name": "autoencoder",
        "codec.width": 8,
        "codec.smallest": 1,
        "codec.keep_encoder": True,
        "codec.warm_start": False,  # or later levels might share them by themselves
    }
    memory = Memory.open(tmp_path / "m.logcl", SHAPE, unit=8, settings=settings)
    memory.absorb(digits[0][:40], digits[1][:40])  # levels 2 and 0
    header, now = memory.file.header(), memory.snapshot()
    large, small = now.levels
    about = small.about.model_copy(update={"codec": large.codec.spec, "weights": large.about.weights})
    alike = LocalModel(about, large.codec, large.codec.encode(digits[0][32:40]), small.labels, small.indices)
    gone = [weights_part(small.about.weights)]
    memory.file.commit(header, now.manifest.as_data(), Fit.of(alike, np.arange(8)).parts, gone)
    (shared,) = weights_in(memory)

    done = memory.absorb(digits[0][40:48], digits[1][40:48])  # levels 2 and 1
    assert [slot.level for slot in done.plan.retire] == [0]
    assert shared in weights_in(memory)
    assert len(weights_in(memory)) == 2
    assert memory.verify() == []

    done = memory.absorb(digits[0][48:64], digits[1][48:64])  # level 3
    assert [slot.level for slot in done.plan.retire] == [2, 1]
    assert shared not in weights_in(memory)
    assert len(weights_in(memory)) == 1
    assert memory.verify() == []


@pytest.mark.parametrize("damage", ["lost", "spoilt"])
def test_lost_weights_cost_the_levels_that_need_them(sharing, tmp_path, damage):
    (shared,) = weights_in(sharing)
    header, parts = sharing.file.snapshot()
    if damage == "lost":
        sharing.file.commit(header, header.fields, {}, [shared])
    else:
        content = bytearray(sharing.path.read_bytes())
        content[content.index(parts[shared][-40:]) + 20] ^= 4
        sharing.path.write_bytes(content)
    assert sharing.verify()
    with pytest.raises(Damaged):
        Memory(sharing.path).snapshot()
    saved = salvage(sharing.path, tmp_path / "saved.logcl")
    assert saved.memory.n == 0
    assert saved.samples_lost == 48


def test_weights_under_another_name_are_refused(sharing):
    (shared,) = weights_in(sharing)
    header, parts = sharing.file.snapshot()
    sharing.file.commit(header, header.fields, {"weights-" + "0" * 16: parts[shared]}, [shared])
    with pytest.raises(Damaged, match="weights-0000000000000000 holds weights-"):
        Memory(sharing.path).snapshot()


def test_a_header_says_what_is_needed_in_json(thinned):
    """Anyone can read how many samples are held and which was the last."""
    fields = json.loads(json.dumps(dict(thinned.file.header().fields)))
    assert (fields["n"], fields["last"]) == (len(KEPT), LAST)
