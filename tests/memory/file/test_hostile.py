"""Forged memories whose format and digests are valid are still refused with a one-line error."""

from __future__ import annotations

import json
import resource
import sqlite3
import subprocess
import sys
import zlib
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import safetensors.torch
import torch
from pydantic import ValidationError

from logcl import Classifier, Memory
from logcl.allocation import Slot
from logcl.codecs import registry
from logcl.codecs.coding import entropy
from logcl.codecs.coding.bits import integer_bits, pack_integers, unpack_integers
from logcl.core.errors import BadInput, BadSettings, Damaged
from logcl.core.inputs import number_classes
from logcl.core.settings import Recipe
from logcl.core.text import printable
from logcl.memory import buffer
from logcl.memory.claims import unjustified
from logcl.memory.file import header
from logcl.memory.file.header import digest_of
from logcl.memory.loading import claim_of
from logcl.memory.local_model import Description, LocalModel
from logcl.memory.manifest import Manifest
from logcl.memory.presets import preset
from logcl.memory.samples import raw
from logcl.memory.settings import Settings, override
from logcl.memory.snapshot import Snapshot, inconsistency
from logcl.nn import blobs, networks
from tests.helpers import codecs_of

SHAPE = (1, 8, 8)
LEVEL = {"codec.name": "autoencoder", "codec.width": 8, "codec.epochs": 1, "codec.min_steps": 0}
INDEX = {
    **LEVEL,
    "codec.name": "index",
    "codec.network": "mlp",
    "codec.bits": 256,
    "codec.warm_up_epochs": 1,
    "labels.kind": "labeller",
    "labels.training.epochs": 1,
    "labels.training.min_steps": 0,
}


def level(digits, changes: dict, count: int = 32) -> LocalModel:
    settings = override(preset("fast", SHAPE), changes)
    samples = raw(digits[0][:count], digits[1][:count])
    return LocalModel.fit(Slot(0, 1, count), samples, settings, 0)[0]


@pytest.fixture(scope="module")
def quantised(digits) -> LocalModel:
    return level(digits, LEVEL)


@pytest.fixture(scope="module")
def indexed(digits) -> LocalModel:
    return level(digits, INDEX)


def forged(blob: bytes, lie: dict | None = None, tensors: dict | None = None) -> bytes:
    about, found = blobs.load(blob, "level")
    text = json.dumps({**about, **(lie or {})})
    kept = {name: value for name, value in {**found, **(tensors or {})}.items() if value is not None}
    return safetensors.torch.save(kept, {"logcl": text})


def with_weights(model: LocalModel, tensors: dict, lie: dict | None = None) -> bytes:
    """The blob of a codec with some weights replaced."""
    return forged(model.codec.to_bytes(), lie, tensors)


def framed(header: str, data: bytes = b"") -> bytes:
    """A safetensors file whose header is written by hand."""
    text = header.encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def refused(blob: bytes, because: str = "", model: LocalModel | None = None) -> None:
    """Refused as a level with the codec of `model`."""
    with pytest.raises(Damaged, match=f"level-0.*{because}") as caught:
        LocalModel.from_bytes(blob, codecs_of(model) if model else {}, "level-0")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def refused_weights(blob: bytes, because: str = "") -> None:
    with pytest.raises(Damaged, match=f"weights-0.*{because}") as caught:
        registry.from_bytes(blob, "weights-0")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


# --- descriptions -----------------------------------------------------------------------------------------

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "description",
    [DEEP, '{"a":' * 100_000 + "1" + "}" * 100_000, "9" * 100_000, "NaN", '"\\ud800"', "\x1b[31m", ""],
    ids=["deep", "deep objects", "long", "nan", "half a character", "escape", "empty"],
)
def test_hostile_json(description):
    refused(framed(json.dumps({"__metadata__": {"logcl": description}})))
    refused_weights(framed(json.dumps({"__metadata__": {"logcl": description}})))


def test_deep_nesting_outside_the_description():
    refused(framed('{"__metadata__":{"logcl":"{}"},"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"y":'
                   + DEEP + "}}"))  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "{" + ",".join(f'"k{k}":0' for k in range(100_000)) + "}",
        '{"classes":[' + "[]," * 250_000 + "[]]}",
        '{"runs":[{"count":1,"errors":[' + "[]," * 250_000 + "[]]}]}",
        '{"runs":[' + "0," * 400_000 + "0]}",
        '{"level":"' + "x" * 4_000_000 + '"}',
    ],
    ids=["names", "classes", "errors", "runs", "text"],
)
def test_very_many_mistakes_give_one_message(text):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused(framed(json.dumps({"__metadata__": {"logcl": text}})))
    codec = text.replace("{", '{"codec":{"name":"cosine","image_shape":[1,8,8],"step":1},', 1)
    refused(framed(json.dumps({"__metadata__": {"logcl": codec}})))
    refused_weights(framed(json.dumps({"__metadata__": {"logcl": text}})))
    refused_weights(
        framed(json.dumps({"__metadata__": {"logcl": text.replace("{", '{"name":"cosine",', 1)}}))
    )
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 120_000  # kB


def test_names_from_a_file_cannot_control_a_terminal(quantised):
    refused_weights(with_weights(quantised, {"decoder.\x1b]0;owned\x07\n": torch.zeros(1)}), "owned")
    refused(forged(quantised.to_bytes(), {"\x1b[2J": 1}), "x1b", quantised)
    refused_weights(with_weights(quantised, {}, {"\x1b[2J": 1}), "x1b")
    assert printable("a\x1b[31m\u202e\x9b\nö 猫\udcff") == r"a\x1b[31m\u202e\x9b\nö 猫\udcff"


def test_what_cannot_be_read_is_not_written():
    class Words(Recipe):
        words: str

    with pytest.raises(BadInput, match="fewer classes"):
        blobs.pack(Words(words="x" * 2**22), {})


@pytest.mark.parametrize(
    "lie",
    [
        {"level": -1},
        {"level": 63},
        {"start": 2**62, "stop": 2**62 + 31},
        {"start": 10**400, "stop": 10**400 + 31},
        {"first_code": 1},
        {"samples": 2**62},
        {"samples": 10**400},
        {"weights": "\x1b" * 64},
        {"weights": 10**400},
        {"classes": [-1, *range(9)]},
        {"classes": [0, 0, *range(2, 10)]},
        {"classes": [2**31, *range(1, 10)]},
        {"classes": [2**70, *range(1, 10)]},
        {"runs": [{"count": 32, "errors": [-0.1]}]},
        {"runs": [{"count": 32, "errors": [1e300]}]},
        {"runs": [{"count": 32, "errors": ["nan"]}]},
        {"runs": [{"count": 33, "errors": [0.1]}, {"count": -1, "errors": [0.1]}]},
        {
            "codec": {
                "name": "index",
                "weights": "half",
                "decoder": {"network": "conv", "image_shape": SHAPE, "length": 32, "width": 8},
            }
        },
        {"runs": [{"count": 32, "errors": [0.1] * 70, "generation": 64}]},
        {"runs": [{"count": 32, "errors": [0.1], "generation": 10**400}]},
        {"runs": [{"count": 32, "errors": [0.1], "generation": -2}]},
        {"decoder": {"network": "mlp", "image_shape": (1, 10**6, 10**6), "length": 32, "width": 8}},
        {"decoder": {"network": "mlp", "image_shape": (64, 4096, 4096), "length": 32, "width": 8}},
        {"decoder": {"network": "mlp", "image_shape": (1, 0, 8), "length": 32, "width": 8}},
        {"decoder": {"network": "mlp", "image_shape": (1, 8), "length": 32, "width": 8}},
        {"decoder": {"network": "mlp", "image_shape": (1, 4096, 4096), "length": 2**22, "width": 65_536}},
        {"decoder": {"network": "mlp", "image_shape": SHAPE, "length": 10**30, "width": 8}},
        {"decoder": {"network": "superposed", "image_shape": SHAPE, "length": 10**9, "width": 8}},
        {"decoder": {"network": "conv", "image_shape": (1, 4096, 4096), "length": 32, "width": 65_536}},
        {"decoder": {"network": "binplay", "image_shape": (1, 4096, 4096), "length": 32, "width": 32}},
        {"labeller": {"network": "lenet", "image_shape": (1, 4, 4), "classes": 10, "width": 8}},
        {"labeller": {"network": "mlp", "image_shape": (1, 9, 9), "classes": 10, "width": 8}},
        {"labeller": {"network": "convnet", "image_shape": (1, 4096, 4096), "classes": 10, "width": 4096}},
    ],
)
def test_absurd_descriptions_are_refused(quantised, lie):
    if "decoder" in lie:
        spec = {"name": "autoencoder", "weights": "int8", **lie}
        refused(forged(quantised.to_bytes(), {"codec": spec}), model=quantised)
        refused_weights(with_weights(quantised, {}, spec))
    else:
        refused(forged(quantised.to_bytes(), lie), model=quantised)


@pytest.mark.parametrize("name", ["none such", "\x1b]0;owned\x07", "x" * 10**6, "../../evil", "base", ""])
def test_an_unknown_codec(quantised, name):
    """One printable sentence, whatever its name in the file."""
    for read in (
        lambda: LocalModel.from_bytes(forged(quantised.to_bytes(), {"codec": {"name": name}}), {}, "level-0"),
        lambda: registry.from_bytes(with_weights(quantised, {}, {"name": name}), "weights-0"),
    ):
        with pytest.raises((BadSettings, Damaged), match="install the package that provides it") as caught:
            read()
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize("samples", [2**20, 2**40, 2**61])
def test_samples_without_bytes_are_refused(indexed, samples):
    """Index codes and a labeller store nothing per sample: the size of the blob is the bound."""
    lie = {"stop": samples, "samples": samples, "runs": [{"count": samples, "errors": [0.1]}]}
    refused(forged(indexed.to_bytes(), lie), "more samples than its bytes can hold", indexed)
    room = {"stop": samples}  # a mask that long would be allocated
    refused(forged(indexed.to_bytes(), room, {"live": torch.zeros(4, dtype=torch.uint8)}), model=indexed)


def test_samples_without_bytes_are_not_written(digits):
    table = {"codec.network": "superposed", "codec.bits": 1, "codec.width": 20}
    settings = override(preset("fast", SHAPE), {**INDEX, **table})
    few = networks.weight_count(settings.codec.decoder(SHAPE))
    x = np.zeros((8 * few + 1, *SHAPE), np.uint8)
    with pytest.raises(BadSettings, match=r"larger codec\.width"):
        LocalModel.fit(Slot(0, 1, len(x)), raw(x, np.zeros(len(x), np.int64)), settings, 0)


def test_labels_without_a_class(quantised):
    blob = quantised.to_bytes()
    about, tensors = blobs.unpack(blob, Description, "level")
    assert about.label_bits == 4
    ones = torch.full_like(tensors["labels"], 255)
    refused(forged(blob, tensors={"labels": ones}), "without a class", quantised)
    for labels in (None, ones[:-1], ones.to(torch.int64), ones[:, None], torch.cat([ones, ones])):
        refused(forged(blob, tensors={"labels": labels}), "labels of another size", quantised)


# --- tensors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(64, dtype=torch.int64),
        torch.zeros(64, dtype=torch.bool),
        torch.zeros(64, dtype=torch.complex64),
        torch.zeros(64, dtype=torch.float64),
        torch.zeros(64, dtype=torch.bfloat16),
        torch.zeros(64, dtype=torch.float8_e5m2),
        torch.zeros(64, dtype=torch.int8),
        torch.zeros(()),
        torch.zeros(0),
        torch.zeros(65),
        torch.zeros(64, 1),
        None,
    ],
    ids=str,
)
def test_weights_of_other_types_and_shapes(quantised, value):
    refused_weights(with_weights(quantised, {"decoder.pixels.bias": value}))


def test_scales_of_other_types_and_shapes(quantised):
    name = "decoder.pixels.weight"
    for weight, scale in (
        (torch.zeros((), dtype=torch.int8), torch.zeros((), dtype=torch.float16)),
        (torch.zeros(64, 8, dtype=torch.int8), torch.zeros(64, 1)),
        (torch.zeros(64, 8, dtype=torch.int8), torch.zeros(64, 1, dtype=torch.int64)),
        (torch.zeros(64, 8, dtype=torch.int8), torch.zeros(1, 64, dtype=torch.float16)),
        (torch.zeros(0, 8, dtype=torch.int8), torch.zeros(0, 1, dtype=torch.float16)),
    ):
        refused_weights(with_weights(quantised, {name: weight, f"{name}.scale": scale}))


def test_counters_are_counters(digits):
    model = level(digits, {**INDEX, "codec.network": "binplay"})
    tensors = model.codec.weights()
    counter = next(name for name in tensors if name.endswith("num_batches_tracked"))
    refused_weights(with_weights(model, {counter: torch.zeros(())}))
    refused_weights(with_weights(model, {counter: torch.zeros(2**20, dtype=torch.int64)}))
    mean = next(name for name in tensors if name.endswith("running_mean"))
    refused_weights(with_weights(model, {mean: torch.zeros_like(tensors[mean], dtype=torch.int64)}))


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_nan(quantised, value):
    strange = torch.full_like(quantised.codec.weights()["decoder.pixels.bias"], value)
    refused_weights(with_weights(quantised, {"decoder.pixels.bias": strange}), "infinite or NaN values")


def test_tensors_that_nothing_reads(quantised):
    junk = torch.zeros(1000, dtype=torch.uint8)
    refused_weights(with_weights(quantised, {"junk": junk}), "nothing reads its tensor junk")
    for name in ("junk", "codes.junk", "labeller.junk", "codes"):
        refused(forged(quantised.to_bytes(), tensors={name: junk}), "nothing reads", quantised)


# --- entropy-coded integers -------------------------------------------------------------------------------


def test_lengths_whose_sum_overflows_to_the_right_value():
    arrays = dict(entropy.encode(np.zeros((4, 16), np.int16)).tensors())
    lengths = np.full(2**16 + 2, 2**48 - 1)
    lengths[-2:] = 3, 2**16 + len(arrays["data"]) - 3
    assert lengths.sum() == len(arrays["data"])  # modulo 2^64
    arrays["lengths"] = np.append(np.uint8(48), pack_integers(lengths, 48)).astype(np.uint8)
    with pytest.raises(Damaged, match="streams have the wrong size"):
        entropy.from_tensors(arrays, 16 * len(lengths), 16, "codes")


def test_unused_tables():
    arrays = dict(entropy.encode(np.zeros((4, 3), np.int16)).tensors())
    many = 300_000
    arrays |= {"lowest": np.zeros(many, np.int16), "sizes": np.ones(many, np.int16)}
    arrays["frequencies"] = np.full(many, 4096, np.uint16)
    with pytest.raises(Damaged, match="channels have no table"):
        entropy.from_tensors(arrays, 4, 3, "codes")


@pytest.mark.parametrize("bits", [0, 1, 3, 7, 31])
def test_integers_are_unpacked_block_by_block(bits):
    values = np.random.default_rng(bits).integers(0, 2**bits, 150_001)
    assert np.array_equal(unpack_integers(pack_integers(values, bits), bits, len(values)), values)
    assert integer_bits(int(values.max())) <= bits


# --- buffer -----------------------------------------------------------------------------------------------


def test_zero_bytes_that_inflate_are_unjustified_and_never_written():
    x = np.zeros((600, 1, 400, 400), np.uint8)  # 96 MB
    blob = buffer.to_bytes(buffer.Chunk(1, 600, raw(x, np.zeros(600, np.int64))))
    back = buffer.from_bytes(blob, (1, 400, 400), "chunk")
    assert (back.start, back.samples.x.shape, int(back.samples.x.max())) == (1, x.shape, 0)
    about, tensors = blobs.unpack(blob, buffer.Description, "chunk")
    bomb = torch.from_numpy(np.frombuffer(zlib.compress(x.tobytes(), 9), np.uint8).copy())
    for content, sound in (
        (blob, True),
        (blobs.pack(about, {"pixels": bomb, "labels": tensors["labels"]}), False),
    ):
        claim = claim_of("buffer-1", content, (1, 400, 400), "chunk")
        assert (unjustified([claim], {}) is None) == sound


@pytest.mark.parametrize("name", ["pixels", "labels"])
@pytest.mark.parametrize(
    "value", [torch.zeros(3, dtype=torch.bfloat16), torch.zeros((), dtype=torch.uint8), None]
)
def test_chunks_of_other_types(name, value):
    blob = buffer.to_bytes(buffer.Chunk(1, 5, raw(np.zeros((5, *SHAPE), np.uint8), np.arange(5))))
    about, tensors = blobs.unpack(blob, buffer.Description, "chunk")
    changed = {key: kept for key, kept in {**tensors, name: value}.items() if kept is not None}
    with pytest.raises(Damaged, match="chunk"):
        buffer.from_bytes(blobs.pack(about, changed), SHAPE, "chunk")


# --- settings and labels ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape", [(1, 4096, 4096), (3, 4096, 4096), (4, 4096, 4096), (64, 1024, 1024), (1, 1, 2)]
)
def test_large_images_are_legitimate(shape):
    assert preset("fast", shape).image_shape == shape


@pytest.mark.parametrize("shape", [(1, 4097, 8), (64, 4096, 4096), (1, 10**30, 1), (-1, -8, 8), (1, True, 1)])
def test_absurd_images_are_not(shape):
    with pytest.raises(ValidationError, match="image_shape"):
        Settings(image_shape=shape, codec={"name": "cosine", "psnr": 30})


@pytest.mark.parametrize(
    "change",
    [
        {"codec.bytes_per_sample": 1e308},
        {"codec.name": "index", "codec.warm_up_epochs": 10**9},
        {"codec.patience": 10**30},
        {"codec.name": "index", "codec.bits": 2**30},
        {"codec.symbols": 2**30},
        {"unit": 2**60},
    ],
)
def test_absurd_settings_are_refused(change):
    with pytest.raises(BadSettings):
        override(preset("fast", SHAPE), change)


def test_labels_have_a_maximum_length():
    assert len(number_classes(np.array(["x" * 1000]), ())[1]) == 1
    with pytest.raises(BadInput, match="longer than 1000 characters"):
        number_classes(np.array(["x" * 1001]), ())


@pytest.mark.parametrize("classes", [(0, "a"), ("a", 0), (1, 1), ("a\0",)])
def test_duplicate_classes(classes, digits):
    now = waiting(digits, [(1, 5)])
    now = replace(now, manifest=now.manifest.model_copy(update={"classes": classes}))
    assert "are not distinct" in inconsistency(now)


def waiting(digits, places: list[tuple[int, int]], last: int = 5) -> Snapshot:
    """A memory that is only a buffer, with chunks at these places."""
    chunks = [
        buffer.Chunk(
            start, stop, raw(digits[0][: stop - start + 1], np.zeros(stop - start + 1, np.int64), start)
        )
        for start, stop in places
    ]
    n = sum(len(chunk.samples) for chunk in chunks)
    manifest = Manifest(n=n, last=last, classes=(0,), settings=preset("fast", SHAPE))
    return Snapshot(manifest, (), tuple(chunks), (), "")


@pytest.mark.parametrize("places", [[(0, 4)], [(1, 6)], [(1, 3), (3, 5)], [(1, 3), (1, 3)], [(2, 9)]])
def test_chunks_at_wrong_indices(places, digits):
    assert "its buffer" in inconsistency(waiting(digits, places))
    for sound in ([(1, 5)], [(1, 2), (3, 5)], [(2, 3), (5, 5)], []):  # samples may have been forgotten
        assert inconsistency(waiting(digits, sound)) is None
    lying = waiting(digits, [(1, 4)])
    lying = replace(lying, manifest=lying.manifest.model_copy(update={"n": 5}))
    assert "not those of 5 samples" in inconsistency(lying)


def test_settings_that_no_level_was_made_with(tmp_path):
    """Files of one format beside settings of the other would all be decoded by the next merge."""
    memory = Memory.open(tmp_path / "m.logcl", SHAPE, unit=4, settings={"codec.name": "image_file"})
    memory.absorb(np.arange(4 * np.prod(SHAPE), dtype=np.uint8).reshape(4, *SHAPE), [0, 1, 0, 1])
    now = memory.snapshot()
    assert inconsistency(now) is None
    for change in ({"codec.format": "webp"}, {"codec.name": "cosine"}):
        settings = override(now.manifest.settings, change)
        lying = replace(now, manifest=now.manifest.model_copy(update={"settings": settings}))
        assert "another codec than the settings" in inconsistency(lying)


# --- the global model -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def taught(tmp_path_factory, digits):
    path = tmp_path_factory.mktemp("taught") / "m.logcl"
    quick = {"classifier.width": 2, "classifier.epochs": 1, "classifier.min_steps": 0}
    changes = {**LEVEL, **quick, "unit": 16, "classifier.network": "resnet18"}
    memory = Memory.open(path, SHAPE, settings=changes)
    memory.absorb(digits[0][:40], [f"digit {label}" for label in digits[1][:40]])
    Classifier.train(memory)
    return path


def with_classifier(source, target, lie: dict):
    """A copy of a memory whose global model has a forged description and a valid digest."""
    target.write_bytes(source.read_bytes())
    with closing(sqlite3.connect(target)) as database, database:
        (blob,) = database.execute("SELECT data FROM parts WHERE name = 'classifier'").fetchone()
        header = json.loads(blob[8 : 8 + int.from_bytes(blob[:8], "little")])
        about = {**json.loads(header["__metadata__"]["logcl"]), **lie}
        changed = safetensors.torch.save(safetensors.torch.load(blob), {"logcl": json.dumps(about)})
        row = (digest_of(changed), changed)
        database.execute("UPDATE parts SET digest = ?, data = ? WHERE name = 'classifier'", row)
    return target


RESNET = {"network": "resnet18", "image_shape": SHAPE, "classes": 10, "width": 2}


@pytest.mark.parametrize(
    "lie",
    [
        {"network": {**RESNET, "image_shape": (1, 4096, 4096)}},
        {"network": {**RESNET, "image_shape": (1, 10**9, 10**9)}},
        {"network": {**RESNET, "width": 4096}},
        {"network": {**RESNET, "classes": 11}},
        {"network": {**RESNET, "classes": 10**7}},
        {"network": {**RESNET, "network": "lenet"}},
        {"classes": [0, *"123456789"]},
        {"classes": ["0"] * 10},
        {"classes": ["\0", *"123456789"]},
        {"classes": ["x" * 10**6, *"123456789"]},
        {"classes": [2**63, *range(1, 10)]},
        {"samples": 10**400},
        {"samples": -1},
        {"memory": "x" * 10**6},
    ],
)
def test_a_forged_global_model(tmp_path, taught, lie):
    path = with_classifier(taught, tmp_path / "m.logcl", lie)
    with pytest.raises(Damaged, match="the global model") as caught:
        Classifier.load(Memory(path))
    assert str(caught.value).isprintable()


def test_labels_are_escaped(tmp_path, taught, logcl, digits):
    from PIL import Image

    names = [f"\x1b]0;owned\x07\x1b[31m{k}\n" for k in range(10)]
    path = with_classifier(taught, tmp_path / "m.logcl", {"classes": names})
    Image.fromarray(digits[0][0, 0]).save(tmp_path / "a.png")
    ran = logcl("predict", path, tmp_path / "a.png")
    assert ran.code == 0
    assert "\x1b" not in ran.out
    assert r"\x1b[31m" in ran.out
    assert ran.out.count("\n") == 1


# --- as a whole -------------------------------------------------------------------------------------------


def test_nothing_is_imported_from_a_file(taught):
    """No pickle is ever read: the module is never called."""
    program = (
        "import pickle, sys\n"
        "def refuse(*_, **__): raise SystemExit('unpickled')\n"
        "pickle.loads = pickle.load = pickle.Unpickler = refuse\n"
        "import numpy as np\nfrom logcl import Classifier, Memory\n"
        "memory = Memory(sys.argv[1])\nassert not memory.verify()\nnext(memory.replay())\n"
        "Classifier.load(memory).predict(np.zeros((1, 1, 8, 8), np.uint8))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, taught], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_a_header_with_half_a_surrogate_pair_is_none():
    """JSON can write it, UTF-8 cannot; the digest without the ledger is that of the header written anew."""
    content = {"memory": {"n": "\ud800"}, "parts": {f"{header.LEDGER}0": "0" * 64}}
    assert header.parse(json.dumps(content).encode()) is None
