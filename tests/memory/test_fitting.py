"""The fits of a task: each is plain bytes, and starts from the most similar level."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

from logcl import Memory
from logcl.allocation import Slot, plan
from logcl.codecs import registry
from logcl.core.errors import Damaged
from logcl.core.progress import Silent
from logcl.memory.fitting import Fit, Part, _starts, level_part
from logcl.memory.local_model import LocalModel
from logcl.memory.presets import preset
from logcl.memory.samples import raw
from logcl.memory.settings import override
from tests.helpers import smooth

SHAPE = (1, 8, 8)
FEW = {"codec.name": "autoencoder", "codec.epochs": 1, "codec.min_steps": 10, "codec.width": 8}


def fit(digits, changes: dict) -> Fit:
    settings = override(preset("fast", SHAPE), changes)
    model, order = LocalModel.fit(Slot(0, 1, 16), raw(digits[0][:16], digits[1][:16]), settings, 0)
    return Fit.of(model, order)


@pytest.mark.parametrize("changes", [FEW, {"codec.name": "cosine"}], ids=["weights", "no weights"])
def test_a_fit_is_the_parts_of_the_file(digits, changes):
    made = fit(digits, changes)
    names = sorted(made.parts)
    assert names[0] == level_part(made.slot) == "level-0"
    assert len(names) == (2 if made.has_weights else 1)
    assert made.has_weights == bool(registry.from_bytes(made.codec, "codec").weights())
    model = made.model("level-0")
    again = Fit.of(model, made.order)
    assert (again.level, again.codec, again.parts) == (made.level, made.codec, made.parts)


def test_a_fit_whose_bytes_do_not_belong_together_is_refused(digits):
    made, other = fit(digits, FEW), fit(digits, {**FEW, "seed": 1})
    with pytest.raises(Damaged, match="level-0 needs weights that are missing"):
        Fit(made.slot, made.level, other.codec, made.has_weights, made.order).model("level-0")


def test_a_fit_starts_from_the_level_it_resembles(tmp_path, digits):
    """The one that holds most of its classes; of equally similar ones the larger."""
    x, y = digits
    memory = Memory.open(tmp_path / "m.logcl", SHAPE, unit=8, settings=FEW)
    low, high = np.flatnonzero(y < 3), np.flatnonzero(y >= 7)
    memory.absorb(x[low[:32]], y[low[:32]])  # level 2
    memory.absorb(x[high[:16]], y[high[:16]])  # level 1
    now = memory.snapshot()
    assert [level.slot.level for level in now.levels] == [2, 1]
    old, new = (level.codec.to_bytes() for level in now.levels)
    number = {label: place for place, label in enumerate(memory.classes)}
    change = plan(48, 56, 8)

    def starts(labels: np.ndarray) -> tuple[bytes, ...]:
        numbers = np.array([number[label] for label in labels])
        return _starts(Part((), raw(x[: len(labels)], numbers, 49)), change, now)

    assert starts(y[high[:8]]) == (new, old)
    assert starts(y[low[:8]]) == (old, new)
    assert starts(np.concatenate([y[low[:3]], y[high[:5]]])) == (new, old)
    assert starts(np.concatenate([y[low[:4]], y[high[:4]]])) == (old, new)


def test_only_levels_that_stay_are_offered_or_the_largest(tmp_path, digits):
    x, y = digits
    memory = Memory.open(tmp_path / "m.logcl", SHAPE, unit=8, settings=FEW)
    memory.absorb(x[:24], y[:24])  # levels 1 and 0
    now = memory.snapshot()
    large, small = (level.codec.to_bytes() for level in now.levels)
    part = Part((), raw(x[:8], np.zeros(8, np.int64), 25))
    assert _starts(part, plan(24, 28, 8), now) == (large, small)
    assert _starts(part, plan(24, 32, 8), now) == (large,)  # all are merged into level 2
    assert _starts(part, plan(24, 48, 8), now) == (large,)
    empty = Memory.open(tmp_path / "new.logcl", SHAPE, unit=8, settings=FEW).snapshot()
    assert _starts(part, plan(0, 8, 8), empty) == ()


def test_every_stage_of_absorbing_large_images_moves_its_bar(tmp_path):
    """Also where nothing is trained: choosing a step, coding, decoding."""
    shares: dict[str, list[float]] = {}

    class Recorder(Silent):
        @contextmanager
        def track(self, description, total):
            made = shares.setdefault(description, [])

            def advance(steps=1, note=""):
                made.append((made[-1] if made else 0) + steps / total)

            yield advance

    memory = Memory.open(tmp_path / "m.logcl", (3, 160, 160), unit=64, settings={"codec.name": "cosine"})
    images = smooth(192, (3, 160, 160))
    memory.absorb(images[:128], np.arange(128), progress=Recorder())
    memory.absorb(images[128:], np.arange(64), progress=Recorder())
    memory.absorb(images[:64], np.arange(64), again=True, progress=Recorder())
    assert {what.partition(" (")[0] for what in shares} == {
        "absorbing 128 samples", "absorbing 64 samples", "level 0", "level 1", "level 2",
    }  # fmt: skip
    for what, made in shares.items():
        assert made[-1] == pytest.approx(round(made[-1])), what  # some of these bars were shown twice
        assert made[0] < 0.9, what
        assert len(made) >= 2, what


@pytest.mark.parametrize("codec", ["pyramid", "cosine"])
def test_the_bytes_asked_for_are_those_of_the_whole_file(tmp_path, codec):
    """Labels, descriptions and the file itself included, after several tasks."""
    memory = Memory.open(
        tmp_path / "m.logcl", (1, 16, 16), settings={"codec.name": codec, "codec.bytes_per_sample": 40}
    )
    x = smooth(1920, (1, 16, 16))
    for part in np.split(np.arange(1920), [640, 1280]):
        memory.absorb(x[part], part % 100)
    assert memory.nbytes() / 1920 == pytest.approx(40, rel=0.05)
