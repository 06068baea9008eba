"""What a file claims must be justified by its bytes; what LogCL writes always is."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logcl import Memory
from logcl.allocation import Slot
from logcl.codecs.cosine import Cosine
from logcl.codecs.image_file import ImageFile
from logcl.core.errors import Damaged
from logcl.memory import buffer, claims, snapshot
from logcl.memory.claims import Claim, missing_bytes, of_samples, unjustified
from logcl.memory.loading import claim_of
from logcl.memory.local_model import LocalModel
from logcl.memory.presets import preset
from logcl.memory.samples import raw
from logcl.memory.settings import override
from tests.helpers import codecs_of
from tests.torture import resources

FILE = ImageFile.effort({}, (1, 1, 2))


@pytest.mark.parametrize(
    ("samples", "shape", "stored"),
    [
        (60_000, (1, 28, 28), 30 * 60_000),
        (1_000_000, (1, 28, 28), 30 * 1_000_000),
        (100_000, (1, 28, 28), 20_000),  # index codes
        (500_000, (1, 8, 8), 8 * 500_000),
        (10_000_000, (1, 4, 5), 9 * 10_000_000),  # a table
        (50_000, (3, 32, 32), 110 * 50_000),
        (10_000, (3, 224, 224), 7_374 * 10_000),
        (1, (3, 4096, 4096), 20_000),
    ],
)
def test_real_memories_are_justified(samples, shape, stored):
    assert unjustified([Claim(of_samples(samples, shape), stored)], {}) is None


@pytest.mark.parametrize(
    ("samples", "shape", "stored"),
    [(10_500_000, (1, 512, 512), 1_300_000), (1_600_000, (1, 8, 8), 208_000), (2**61, (1, 1, 2), 10**9)],
)
def test_absurd_ones_are_not(samples, shape, stored):
    assert unjustified([Claim(of_samples(samples, shape), stored)], {}) is not None


@pytest.mark.parametrize(
    ("samples", "shape", "stored"),
    [
        (1_000_000, (1, 28, 28), 147 * 1_000_000),
        (1_000_000, (3, 32, 32), 110 * 1_000_000),
        (100_000, (3, 64, 64), 450 * 100_000),
        (10_000, (3, 224, 224), 7_374 * 10_000),
        (30_000, (1, 8, 8), 0),
    ],
)
def test_real_image_files_are_justified(samples, shape, stored):
    assert unjustified([Claim(of_samples(samples, shape, claims.COPIED, FILE), stored)], {}) is None


@pytest.mark.parametrize(
    ("samples", "shape", "stored"),
    [(100_000, (1, 1, 1), 200_000), (250_000, (3, 32, 32), 300_000), (10_000, (3, 224, 224), 100_000)],
)
def test_image_files_claim_the_time_that_opening_each_takes(samples, shape, stored):
    assert unjustified([Claim(of_samples(samples, shape, claims.COPIED, FILE), stored)], {}) is not None


def test_the_largest_picture_that_is_decoded_counts_once():
    """Decoding an AVIF file of 4096x4096 pixels takes 400 MB, however few bytes it has."""
    for shape, stored, justified in [
        ((3, 4096, 4096), 20_000, False), ((3, 4096, 4096), 2_000_000, True), ((3, 2048, 2048), 0, True),
    ]:  # fmt: skip
        claim = Claim(
            of_samples(1, shape, claims.COPIED, FILE), stored, None, claims.at_once(shape, claims.COPIED)
        )
        assert (unjustified([claim], {}) is None) == justified
    small = Claim(0, 2_000_000, None, claims.at_once((3, 4096, 4096), claims.COPIED))
    assert unjustified([small, small._replace(stored=0)], {}) is None
    assert claims.at_once((3, 4096, 4096), 1) == 0


def test_totals_count_not_parts():
    half = Claim(of_samples(100, (1, 1000, 1000)), 1000)
    assert unjustified([half], {}) is None
    assert unjustified([half, half], {}) is not None


def test_weights_justify_once_and_only_what_needs_them():
    claim = Claim(2**27 + 64 * 500, 250, "a")
    assert unjustified([claim], {"a": 250}) is None
    assert unjustified([claim], {"b": 250}) is not None
    assert unjustified([claim, Claim(0, 0, "a")], {"a": 249}) is not None
    assert of_samples(-(2**40), (1, 8, 8)) == 0


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(1, 2**30)), max_size=1), st.integers(1, 40))
@settings(max_examples=50)
def test_what_is_written_is_justified(first, levels):
    """Levels double, and each is padded on its own; together they must be justified."""
    for claimed, stored in first:
        parts = []
        for number in range(levels):
            claim, size = claimed >> number, max(stored >> number, 1)
            parts.append(Claim(claim, size + missing_bytes(claim, size)))
        assert unjustified(parts, {}) is None


def test_verify_decodes_a_few_images_at_a_time(tmp_path, digits, monkeypatch):
    """4,096 photographs at once would take 616 MB."""
    memory = Memory.open(tmp_path / "m.logcl", (1, 8, 8), unit=64, settings={"codec.name": "cosine"})
    memory.absorb(digits[0][:64], digits[1][:64])
    checked = []
    monkeypatch.setattr(snapshot, "_PIECE", 10 * 64)
    monkeypatch.setattr(Cosine, "check", lambda self, codes, rows: checked.extend([rows.tolist()]))
    assert memory.verify() == []
    assert max(map(len, checked)) <= 10
    assert [row for rows in checked for row in rows] == list(range(64))


def test_uniform_images_are_padded_and_still_read(monkeypatch):
    """Blank images take almost no bytes; the level that holds many of them is padded, never refused."""
    monkeypatch.setattr(claims, "_WRITTEN_SMALL", 10_000)
    monkeypatch.setattr(claims, "_SMALL", 40_000)
    x, shape = np.full((300, 3, 32, 32), 255, np.uint8), (3, 32, 32)
    chosen = override(preset("fast", shape), {"codec.name": "cosine"})
    model, _ = LocalModel.fit(Slot(0, 1, 300), raw(x, np.zeros(300, np.int64)), chosen, 0)
    blob = model.to_bytes()
    claim = claim_of("level-0", blob, shape, "level-0")
    assert unjustified([claim], {}) is None
    assert unjustified([claim._replace(stored=claim.stored // 2)], {}) is not None
    assert (LocalModel.from_bytes(blob, codecs_of(model), "level-0").replay()[0].numpy() > 240).all()
    chunk = buffer.to_bytes(buffer.Chunk(1, 300, raw(x, np.zeros(300, np.int64))))
    assert unjustified([claim_of("buffer-1", chunk, shape, "chunk")], {}) is None


def test_forged_files_are_refused_by_everything_that_decodes(tmp_path):
    path = tmp_path / "m.logcl"
    path.write_bytes(resources.cosine(tmp_path, random.Random(1), 3_000_000))
    with pytest.raises(Damaged, match="bytes claim samples that take"):
        Memory(path).snapshot()
    assert "bytes claim samples that take" in Memory(path).verify()[0]
