"""The fuzzers on a few mutants, always the same; `make fuzz` runs them longer."""

from __future__ import annotations

import random

import pytest

from tests.torture import fuzz, resources
from tests.torture.mutants import mutant_picture, pictures


def losses(outcome) -> str:
    """What went wrong, for the message of a failed test."""
    places = sorted(outcome.evidence.iterdir()) if outcome.evidence else []
    return "\n".join(f"{place.name}: {(place / 'why.txt').read_text()[-600:]}" for place in places)


@pytest.mark.parametrize(("trial", "count"), [(fuzz.files, 60), (fuzz.images, 400)])
def test_mutants_are_read_or_refused(tmp_path, trial, count):
    outcome = trial(tmp_path, count=count, seed=1)
    assert outcome.lost == 0, losses(outcome)
    assert outcome.tried == outcome.survived == count
    assert all(outcome.details[kind] for kind in ("read", "refused"))


def test_a_killed_worker_is_counted_and_its_mutant_kept(tmp_path, monkeypatch):
    """A worker that dies costs one mutant, which is saved; another worker continues with the next."""
    place = tmp_path / "images"
    place.mkdir()
    (place / "m.png").write_bytes(b"the one")
    runs = iter([[(0, "read"), (1, "ended the process (-11)")], [(2, "refused")]])
    monkeypatch.setattr(fuzz, "_worker", lambda *_: next(runs))
    outcome = fuzz.images(tmp_path, count=3)
    assert (outcome.tried, outcome.survived, outcome.lost) == (3, 2, 1)
    assert (outcome.evidence / "images-0-1" / "m.png").read_bytes() == b"the one"
    assert "-11" in losses(outcome)


def test_mutants_are_the_same_for_the_same_seed():
    sources = pictures()
    for name in sources:
        one, other = (mutant_picture(name, sources, random.Random(3)) for _ in range(2))
        assert one == other or name.endswith(".npz")  # a zip contains a timestamp


def test_some_forged_files_cost_no_more_than_their_size_justifies(tmp_path):
    outcome = resources.trial(4, 3, tmp_path, largest=100_000)
    assert outcome.lost == 0, losses(outcome)


@pytest.mark.long
def test_forged_files_of_every_kind_cost_no_more_than_their_size_justifies(tmp_path):
    outcome = resources.trial(len(resources.KINDS), 3, tmp_path, largest=300_000)
    assert outcome.lost == 0, losses(outcome)
    assert all(
        outcome.details[f"commands that {what}"] for what in ("ended with a result", "refused the file")
    )
