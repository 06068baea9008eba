"""The memory keeps every sample, changes only what the plan says, and survives any input."""

import itertools
import os
import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from logcl import Memory
from logcl.allocation import layout, max_generation, plan
from logcl.core.errors import BadInput, BadSettings, Damaged, NotAMemory, NotTrained

SHAPE = (1, 8, 8)


def make(path, quick, **options) -> Memory:
    changes = {**quick, "codec.width": 4, **options.pop("settings", {})}
    return Memory.open(path, SHAPE, settings=changes, **{"unit": 8, **options})


def expected_generations(sizes: list[int], unit: int) -> list[int]:
    """Follow every sample by the paper's rules alone; -1 is raw."""
    generation: list[int] = []
    for size in sizes:
        n = len(generation)
        change = plan(n, n + size, unit)
        generation += [-1] * size
        for slot in change.train:
            for index in range(slot.start - 1, slot.stop):
                generation[index] += 1
    return generation


@given(
    sizes=st.lists(st.one_of(st.just(1), st.integers(1, 30)), min_size=1, max_size=9),
    unit=st.sampled_from([1, 4, 8]),
)
@hypothesis_settings(max_examples=12)
def test_every_sample_is_kept_through_any_sequence_of_tasks(tmp_path_factory, digits, sizes, unit):
    quick = {"codec.name": "autoencoder", "codec.min_steps": 0, "codec.epochs": 1}
    memory = make(tmp_path_factory.mktemp("m") / "m.logcl", quick, unit=unit)
    x, y = digits
    n = 0
    for size in sizes:
        before = memory.snapshot()
        absorbed = memory.absorb(x[n : n + size], y[n : n + size])
        now = memory.snapshot()
        assert absorbed.plan == plan(n, n + size, unit)
        n += size
        kept = {level.slot: level.to_bytes() for level in before.levels if level.slot in absorbed.plan.keep}
        assert {level.slot: level.to_bytes() for level in now.levels if level.slot in kept} == kept
    assert memory.verify() == []
    assert now.n == memory.n == n
    assert tuple(level.slot for level in now.levels) == layout(n, unit)
    _, classes = now.everything()
    assert now.label_values[classes].tolist() == y[:n].tolist()
    held = n - n % unit
    assert np.array_equal(now.buffer.x, x[held:n])  # the buffer is raw
    generations = [run.generation for run in now.runs for _ in range(run.count)]
    assert generations == expected_generations(sizes, unit)
    assert max(generations) <= max_generation(n, unit)


def test_replay_resembles_what_was_absorbed(tmp_path, digits):
    """Better than the best constant image by far, for samples of every age."""
    x, y = digits
    memory = Memory.open(
        tmp_path / "m.logcl", SHAPE, settings={"codec.name": "autoencoder", "codec.min_steps": 400}
    )
    for start in range(0, 640, 160):
        memory.absorb(x[start : start + 160], y[start : start + 160])
    replayed, _ = memory.snapshot().everything()
    errors = np.square((replayed.numpy().astype(float) - x[:640]) / 255).mean(axis=(1, 2, 3))
    spread = np.square((x[:640] - x[:640].mean(axis=0)) / 255).mean()
    assert errors[:128].mean() < spread / 4
    assert errors.mean() < spread / 5
    # The recorded errors, which were never computed from the originals, agree.
    booked = sum(run.count * sum(run.errors) for run in memory.snapshot().runs) / 640
    assert 0.5 < booked / errors.mean() < 2


def test_the_same_seed_gives_the_same_content_and_another_seed_another(tmp_path, digits, quick):
    x, y = digits
    digests = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        memory = make(tmp_path / name, quick, seed=seed)
        for start, stop in itertools.pairwise((0, 40, 41, 90)):
            memory.absorb(x[start:stop], y[start:stop])
        digests.append(memory.digest)
    assert digests[0] == digests[1] != digests[2]


def test_float_images_and_tensors_are_the_same_as_bytes(tmp_path, digits, quick):
    x, y = digits
    forms = [x[:20], x[:20] / 255, (x[:20] / 255).astype(np.float32), torch.from_numpy(x[:20]),
             torch.from_numpy(x[:20]).float() / 255, x[:20, 0], x[:20].astype(np.int64)]  # fmt: skip
    digests = set()
    for number, form in enumerate(forms):
        memory = make(tmp_path / f"{number}.logcl", quick)
        memory.absorb(form, y[:20])
        digests.add(memory.digest)
    assert len(digests) == 1


@pytest.mark.parametrize(
    "labels",
    [["cat", "dög", "cat", "a b/c"], [7, -3, 7, 2**62], np.array([True, False, True, True]),
     np.array(["x", "y", "x", "z"], dtype=object), torch.tensor([5, 5, 5, 1])],
)  # fmt: skip
def test_labels_of_every_kind_come_back(tmp_path, digits, quick, labels):
    memory = make(tmp_path / "m.logcl", quick, unit=2)
    memory.absorb(digits[0][:4], labels)
    wanted = np.asarray(labels).tolist()
    now = memory.snapshot()
    assert [now.classes[number] for number in now.everything()[1]] == wanted
    assert memory.classes == tuple(dict.fromkeys(wanted))


def test_new_classes_are_numbered_as_they_appear(tmp_path, digits, quick):
    memory = make(tmp_path / "m.logcl", quick)
    memory.absorb(digits[0][:3], ["b", "a", "b"])
    memory.absorb(digits[0][3:6], ["c", "a", "b"])
    assert memory.classes == ("b", "a", "c")


BAD = {
    "wrong shape": (lambda x, y: (x[:, :, :7], y), r"\(20, 1, 7, 8\); this memory takes \(n, 1, 8, 8\)"),
    "one image": (lambda x, y: (x[0, 0], y), r"shape \(8, 8\)"),
    "nan": (lambda x, y: (np.where(np.arange(8) == 3, np.nan, x / 255), y), "NaN or infinite pixel"),
    "infinite": (lambda x, y: (np.where(np.arange(8) == 3, np.inf, x / 255), y), "NaN or infinite pixel"),
    "floats to 255": (lambda x, y: (x.astype(float), y), r"these range from 0 to 255"),
    "just above 1": (lambda x, y: ((x / 255 * 1.0000001).astype("f4"), y), r"from 0 to 1.0000001; clip"),
    "the next float": (lambda x, y: (x / 255 + (x == 255) * 2.0**-52, y), r"0 to 1.0000000000000002;"),
    "negative floats": (lambda x, y: (x / 255 - 0.5, y), r"must lie in \[0, 1\]"),
    "large integers": (lambda x, y: (x.astype(int) + 200, y), "must lie in 0 to 255"),
    "huge integers": (lambda x, y: (x.astype(int) + 10**6, y), "range from 1000000 to 1000255"),
    "text": (lambda x, y: (x.astype(str), y), "not supported"),
    "empty": (lambda x, y: (x[:0], y[:0]), "the task is empty"),
    "too few labels": (lambda x, y: (x, y[:-1]), "20 images but 19 labels"),
    "labels in a table": (lambda x, y: (x, y[:, None]), "one label per sample"),
    "float labels": (lambda x, y: (x, y + 0.5), "labels of type float64"),
    "mixed labels": (lambda x, y: (x, np.array(["a", 1] * 10, dtype=object)), "strings, not both"),
    "mixed list": (lambda x, y: (x, ["a", 1] * 10), "int and str are not supported"),
    "nothing as label": (lambda x, y: (x, ["a", None] * 10), "NoneType and str"),
    "badly decoded name": (lambda x, y: (x, ["caf\udce9"] * 20), "not plain text"),
    "zero character": (lambda x, y: (x, ["a\0"] * 20), "not plain text"),
    "large number": (lambda x, y: (x, [2**70] * 20), "too large"),
    "another kind of labels": (lambda x, y: (x, ["a"] * 20), "are integers, but these are strings"),
    "huge label": (lambda x, y: (x, np.array([2**64 - 1] * 20, dtype=np.uint64)), "too large"),
    "ragged": (lambda x, y: ([[1, 2], [3]], [0, 1]), "rectangular arrays"),
}  # fmt: skip


@pytest.mark.parametrize("incoming", [-1, 1.5, True, "3", None, np.float32(2)], ids=repr)
def test_a_plan_for_an_invalid_number_of_samples_is_refused(tmp_path, quick, incoming):
    with pytest.raises(BadInput, match=r"incoming is .*; give an integer of at least 0"):
        make(tmp_path / "m.logcl", quick).plan(incoming)


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_and_changes_nothing(tmp_path, digits, quick, name):
    x, y = digits[0][:20], digits[1][:20]
    memory = make(tmp_path / "m.logcl", quick)
    memory.absorb(x, y)
    before, files = memory.digest, sorted(os.scandir(tmp_path), key=str)
    spoil, message = BAD[name]
    with pytest.raises(BadInput, match=message):
        memory.absorb(*spoil(x, y))
    assert memory.digest == before
    assert [entry.name for entry in os.scandir(tmp_path)] == [entry.name for entry in files]


def test_settings_are_stored_in_the_file(tmp_path, quick):
    made = make(tmp_path / "m.logcl", {**quick, "codec.name": "index"}, seed=9, preset="paper-cpu")
    again = Memory.open(tmp_path / "m.logcl")
    assert again.settings == made.settings
    assert again.settings.seed == 9
    assert again.settings.codec.name == "index"
    assert Memory.open(tmp_path / "m.logcl", SHAPE, seed=9, settings={"unit": "8"}).n == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_shape": (3, 8, 8)}, r"is for images of shape \(1, 8, 8\), not \(3, 8, 8\)"),
        ({"preset": "paper-cpu"}, "was made with preset fast"),
        ({"seed": 5}, "other settings than seed = 5"),
        ({"settings": {"codec.epochs": 99}}, "other settings than codec.epochs = 99"),
    ],
)
def test_settings_that_contradict_a_memory_are_refused(tmp_path, quick, options, message):
    make(tmp_path / "m.logcl", quick)
    with pytest.raises(BadSettings, match=message):
        Memory.open(tmp_path / "m.logcl", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_shape": (1.7, 8, 8)}, "e.g. 64, 64x64 or 3x64x64"),
        ({"image_shape": "1.8.8"}, "e.g. 64, 64x64 or 3x64x64"),
        ({"image_shape": (3, 1, 1)}, "at least two pixels"),
        ({"image_shape": SHAPE, "settings": {"preset": "paper-cpu"}}, "its own argument"),
        ({"image_shape": (8, 8, 8, 8)}, "e.g. 64, 64x64 or 3x64x64"),
        ({"image_shape": "grey"}, "e.g. 64, 64x64 or 3x64x64"),
        ({"image_shape": (0, 8, 8)}, "image_shape"),
        ({"image_shape": SHAPE, "preset": "faster"}, "no preset 'faster'"),
        ({"image_shape": SHAPE, "unit": 0}, "unit"),
        ({"image_shape": SHAPE, "settings": {"codec.epoch": 5}}, "no setting 'codec.epoch'"),
        ({"image_shape": SHAPE, "settings": {"codec": 5}}, "no setting 'codec'"),
        ({"image_shape": SHAPE, "settings": {"unit.x": 5}}, "no setting 'unit.x'"),
        (
            {"image_shape": SHAPE, "settings": {"codec.name": "autoencoder", "codec.epochs": "many"}},
            "codec.epochs",
        ),
        (
            {"image_shape": SHAPE, "settings": {"codec.name": "index", "codec.network": "conv"}},
            "codec.network: Input should be 'mlp', 'binplay' or 'superposed'",
        ),
        (
            {"image_shape": SHAPE, "settings": {"codec.name": "hoffman"}},
            "no codec 'hoffman' here; install the package that provides it, or choose one of: autoencoder",
        ),
    ],
)
def test_impossible_settings_are_refused_and_nothing_is_created(tmp_path, options, message):
    with pytest.raises(BadSettings, match=message):
        Memory.open(tmp_path / "m.logcl", **options)
    assert list(tmp_path.iterdir()) == []


def test_replay_is_uniform_and_reproducible(tmp_path, digits, quick):
    memory = make(tmp_path / "m.logcl", quick)
    memory.absorb(digits[0][:50], np.arange(50) + 100)
    drawn = list(itertools.islice(memory.replay(batch_size=100, seed=1), 40))
    x, y = drawn[0]
    assert x.shape == (100, *SHAPE)
    assert x.dtype == torch.float32
    assert 0 <= x.min() <= x.max() <= 1
    counts = torch.bincount(torch.cat([labels for _, labels in drawn]) - 100, minlength=50)
    assert len(counts) == 50
    assert 40 < counts.min() <= counts.max() < 130  # 80 expected; six standard deviations
    again = next(memory.replay(batch_size=100, seed=1))
    assert torch.equal(again[0], x)
    assert torch.equal(again[1], y)
    with pytest.raises(BadInput, match="batch_size is 0"):
        memory.replay(batch_size=0)


@pytest.mark.parametrize(("workers", "context"), [(0, None), (2, "fork")])
def test_a_data_loader_sees_every_sample_once(tmp_path, digits, quick, workers, context):
    memory = make(tmp_path / "m.logcl", quick)
    memory.absorb(digits[0][:50], np.arange(50))
    dataset = memory.dataset()
    order = torch.Generator().manual_seed(0)
    loader = DataLoader(
        dataset, 16, shuffle=True, num_workers=workers, multiprocessing_context=context, generator=order
    )
    batches = list(loader)
    assert sorted(torch.cat([y for _, y in batches]).tolist()) == list(range(50))
    whole, _ = memory.snapshot().everything()
    for x, y in batches:
        assert (x * 255 - whole[y]).abs().max() < 1.5
    assert torch.equal(dataset[-1][0], dataset[49][0])
    with pytest.raises(IndexError):
        dataset[50]


def test_threads_may_share_a_memory(tmp_path, digits, quick):
    memory = make(tmp_path / "m.logcl", quick)
    stop, errors = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            try:
                memory.snapshot()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what this test looks for
                errors.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for start in range(0, 60, 6):
        memory.absorb(digits[0][start : start + 6], digits[1][start : start + 6])
    stop.set()
    for reader in readers:
        reader.join()
    assert errors == []
    assert memory.n == 60


def test_a_relative_path_stays_where_it_was(tmp_path, digits, quick, monkeypatch):
    monkeypatch.chdir(tmp_path)
    memory = make("m.logcl", quick)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    memory.absorb(digits[0][:9], digits[1][:9])
    assert memory.n == 9


@pytest.mark.parametrize("shape", [(3, 4, 4), (1, 2, 3), (3, 512, 512)])
def test_images_of_unusual_size(tmp_path, quick, shape):
    changes = {"codec.name": "image_file"} if shape[1] == 512 else {}
    if shape[0] == 1:
        changes = {**quick, "codec.width": 2}
    memory = Memory.open(tmp_path / "m.logcl", shape, unit=1, settings=changes)
    memory.absorb(np.zeros((1, *shape), np.uint8), [0])
    assert memory.verify() == []


def test_an_empty_memory_says_so(tmp_path, quick):
    memory = make(tmp_path / "m.logcl", quick)
    assert memory.n == 0
    assert memory.verify() == []
    for use in (memory.replay, memory.dataset):
        with pytest.raises(NotTrained, match="holds no samples yet"):
            use()


def test_open_readers_see_the_new_state_and_snapshots_do_not_change(tmp_path, digits, quick):
    writer = make(tmp_path / "m.logcl", quick)
    writer.absorb(digits[0][:20], digits[1][:20])
    reader = Memory.open(tmp_path / "m.logcl")
    old = reader.snapshot()
    frozen = old.everything()[0]
    writer.absorb(digits[0][20:60], digits[1][20:60])
    assert reader.n == 60
    assert reader.snapshot().n == 60
    assert old.n == 20
    assert torch.equal(old.everything()[0], frozen)


def test_the_file_is_small(tmp_path, digits):
    """28x28 at the default rate: codes and labels of 256 samples take under a tenth of raw."""
    x = np.repeat(np.repeat(digits[0][:256], 3, axis=2), 3, axis=3)
    x = np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)))
    memory = Memory.open(tmp_path / "m.logcl", (1, 28, 28))
    memory.absorb(x, digits[1][:256])
    assert memory.nbytes() == (tmp_path / "m.logcl").stat().st_size
    assert memory.nbytes() < x.nbytes / 10


def test_damage_is_found_before_it_is_replayed(tmp_path, digits, quick):
    memory = make(tmp_path / "m.logcl", quick)
    memory.absorb(digits[0][:40], digits[1][:40])
    sound = (tmp_path / "m.logcl").read_bytes()
    blob = memory.snapshot().levels[0].to_bytes()
    place = sound.find(blob[-300:])
    assert place > 0
    (tmp_path / "m.logcl").write_bytes(sound[:place] + b"\xff" + sound[place + 1 :])
    fresh = Memory.open(tmp_path / "m.logcl")
    with pytest.raises(Damaged, match=r"part level-\d is damaged"):
        fresh.replay()
    assert any("does not match" in problem for problem in fresh.verify())
    with pytest.raises(Damaged):
        fresh.absorb(digits[0][:1], digits[1][:1])


def test_more_samples_than_index_codes(tmp_path, digits, quick):
    changes = {"codec.name": "index", "codec.network": "mlp", "codec.bits": 5, "codec.warm_up_epochs": 1}
    memory = make(tmp_path / "m.logcl", quick, settings=changes)
    memory.absorb(digits[0][:31], digits[1][:31])
    before = memory.digest
    with pytest.raises(BadSettings, match=r"sample 32 needs a code of more than codec\.bits = 5 bits"):
        memory.absorb(digits[0][:9], digits[1][:9])
    assert memory.digest == before


def test_many_tiny_tasks_are_cheap(tmp_path, digits, quick):
    """A hundred one-sample tasks leave few parts behind and never rewrite what they do not touch."""
    memory = make(tmp_path / "m.logcl", quick, unit=64)
    for row in range(100):
        memory.absorb(digits[0][row : row + 1], digits[1][row : row + 1])
    assert memory.verify() == []
    parts = sorted(memory.file.header().parts)
    ledger = ["ledger-0", "ledger-64", "ledger-96"]  # 100 = 64 + 32 + 4 entries
    assert parts[:-1] == ["buffer-65", "buffer-97", *ledger, "level-0"]
    assert parts[-1].startswith("weights-")
    assert np.array_equal(memory.snapshot().buffer.x, digits[0][64:100])


def test_opening_what_is_not_a_memory(tmp_path):
    with pytest.raises(NotAMemory, match=r"does not exist.*image_shape="):
        Memory.open(tmp_path / "absent.logcl")
    (tmp_path / "notes.txt").write_text("hello" * 100)
    with pytest.raises(NotAMemory, match=r"notes\.txt is not a LogCL memory"):
        Memory.open(tmp_path / "notes.txt", SHAPE)
    assert (tmp_path / "notes.txt").read_text() == "hello" * 100


def test_colour_images_lose_next_to_nothing_when_levels_merge(tmp_path, logcl):
    """Cosine codes: the first encoding loses quality, later ones hardly any."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:20, :36] / 20
    slopes = rng.normal(0, 0.3, (2, 90, 3, 1, 1))
    x = rng.uniform(0.2, 0.8, (90, 3, 1, 1)) + slopes[0] * rows + slopes[1] * np.sin(4 * columns)
    x = np.rint(255 * np.clip(x + rng.normal(0, 0.01, x.shape), 0, 1)).astype(np.uint8)
    y = rng.integers(0, 5, 90)
    memory = Memory.open(tmp_path / "m.logcl", (3, 20, 36), unit=8, settings={"codec.name": "cosine"})
    for start in range(0, 90, 15):
        memory.absorb(x[start : start + 15], y[start : start + 15])
    assert memory.verify() == []
    now = Memory.open(tmp_path / "m.logcl").snapshot()
    assert [level.slot.samples for level in now.levels] == [64, 16, 8]
    merged = [run for run in now.runs if run.generation > 0]
    assert merged
    for run in merged:
        assert run.errors[0] == pytest.approx(1e-3, rel=0.3)  # 30 dB
        assert max(run.errors[1:]) < 1e-4

    replayed, classes = now.everything()
    assert now.label_values[classes].tolist() == y.tolist()
    errors = np.square((replayed.numpy().astype(float) - x) / 255).mean(axis=(1, 2, 3))
    assert errors[:88].mean() == pytest.approx(1e-3, rel=0.3)
    assert np.array_equal(replayed[88:].numpy(), x[88:])
    assert memory.nbytes() < 0.5 * x.nbytes
    assert logcl("export", tmp_path / "m.logcl", tmp_path / "out").code == 0
    with np.load(tmp_path / "out.npz") as exported:
        assert np.array_equal(exported["x"], replayed.numpy())
        assert np.array_equal(exported["y"], y)
    images, _ = next(memory.replay(200))
    known = {image.tobytes() for image in replayed.numpy()}
    assert {image.tobytes() for image in (images * 255).round().to(torch.uint8).numpy()} <= known
