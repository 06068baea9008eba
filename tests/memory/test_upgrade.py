"""Levels and settings of formats 1 to 3, built by hand as they were written, are read in today's form."""

from __future__ import annotations

import json

import numpy as np
import pytest
import safetensors.torch
import torch

from logcl import Memory
from logcl.codecs.coding import bits, entropy
from logcl.codecs.cosine import Cosine, CosineSpec
from logcl.core.errors import BadSettings, Damaged
from logcl.memory.local_model import LocalModel
from logcl.memory.presets import preset
from logcl.memory.settings import Settings, override, parse
from logcl.nn import blobs, networks
from logcl.nn.networks import AutoencoderSpec
from logcl.nn.training import generator_for, seeded
from tests.helpers import reread, smooth

SHAPE, COUNT, FIRST = (1, 8, 8), 20, 33
DRAW = np.random.default_rng(0)
LABELS = DRAW.integers(0, 3, COUNT)


def spec_of(network: str = "mlp", length: int = 24, width: int = 16) -> AutoencoderSpec:
    return AutoencoderSpec(network=network, image_shape=SHAPE, length=length, width=width)


def decoder_of(spec: AutoencoderSpec) -> torch.nn.Module:
    with seeded(generator_for(0)):
        decoder = networks.decoder(spec)
    blobs.round_weights(decoder, "half")
    return decoder


def images_of(decoder: torch.nn.Module, inputs: np.ndarray) -> torch.Tensor:
    with torch.no_grad():
        return (decoder(torch.from_numpy(inputs.astype(np.float32))) * 255).round().to(torch.uint8)


def old_level(codes: str, decoder: dict, tensors: dict, **changes: object) -> bytes:
    """As `LocalModel.to_bytes` was up to format 3."""
    about = {
        "level": 0,
        "start": FIRST,
        "stop": FIRST + COUNT - 1,
        "decoder": decoder,
        "codes": codes,
        "weights": "half",
        "classes": [4, 7, 9],
        "labeller": None,
        "first_code": None,
        "runs": [{"count": 5, "errors": [0.01, 0.002]}, {"count": 15, "errors": [0.03]}],
        **changes,
    }
    labels = torch.from_numpy(bits.pack_integers(LABELS, 2))
    return safetensors.torch.save({"labels": labels, **tensors}, {"logcl": json.dumps(about)})


def quantised(symbols: np.ndarray) -> dict[str, torch.Tensor]:
    coded = entropy.encode(symbols.astype(np.int16)).tensors()
    return {f"codes.{key}": torch.from_numpy(value) for key, value in coded.items()}


def binary() -> tuple[bytes, torch.Tensor]:
    """Learned bits, eight to the byte: a kind of code that is no longer made."""
    spec, learned = spec_of(), DRAW.integers(0, 2, (COUNT, 24)).astype(np.uint8)
    decoder = decoder_of(spec)
    tensors = {"codes": torch.from_numpy(bits.pack(learned)), **blobs.weights(decoder, "decoder", "half")}
    return old_level("binary", spec.model_dump(), tensors), images_of(decoder, bits.signs(learned))


def trained() -> tuple[bytes, torch.Tensor]:
    spec, symbols = spec_of(), DRAW.integers(-6, 7, (COUNT, 24))
    decoder = decoder_of(spec)
    tensors = {**quantised(symbols), **blobs.weights(decoder, "decoder", "half")}
    return old_level("quantised", spec.model_dump(), tensors), images_of(decoder, symbols / 4)


def indexed(first_code: int | None = None) -> tuple[bytes, torch.Tensor]:
    spec = spec_of("superposed", 4, 16)
    decoder = decoder_of(spec)
    indices = np.arange(COUNT) + (first_code or FIRST)
    tensors = blobs.weights(decoder, "decoder", "half")
    level = old_level("index", spec.model_dump(), tensors, first_code=first_code)
    return level, images_of(decoder, bits.signs(bits.superposed_codes(indices, 4, 16)))


def cosine() -> tuple[bytes, torch.Tensor]:
    codec = Cosine(CosineSpec(image_shape=SHAPE, step=0.0625))
    codes = codec.encode(smooth(COUNT, SHAPE))
    spec = {"network": "cosine", "image_shape": SHAPE, "length": 64, "width": 1}
    tensors = {f"codes.{key}": value for key, value in codes.tensors().items()}
    tensors["decoder.unit"] = torch.tensor(0.25, dtype=torch.float16)  # a quarter of it is the step
    return old_level("quantised", spec, tensors), codec.decode(codes, np.arange(COUNT))


OLD = {
    "binary": binary,
    "quantised": trained,
    "index": indexed,
    "index, moved": lambda: indexed(97),
    "cosine": cosine,
}
NAMES = {"binary": "autoencoder", "quantised": "autoencoder", "index": "index", "index, moved": "index"}


@pytest.fixture(params=OLD)
def old(request) -> tuple[str, bytes, torch.Tensor]:
    return NAMES.get(request.param, "cosine"), *OLD[request.param]()


def test_old_levels_replay_the_same_samples(old):
    name, blob, wanted = old
    level = LocalModel.from_bytes(blob, {}, "level-0")
    assert level.about.codec.name == name
    assert (level.slot.level, level.slot.start, level.slot.stop) == (0, FIRST, FIRST + COUNT - 1)
    assert level.indices.tolist() == list(range(FIRST, FIRST + COUNT))
    x, y = level.replay()
    assert torch.equal(x, wanted)
    assert y.tolist() == np.array([4, 7, 9])[LABELS].tolist()
    assert [(run.count, run.generation) for run in level.runs] == [(5, 1), (15, 0)]


def test_an_old_level_can_be_written_again(old):
    """As a level of this format: salvaged, thinned or coarsened."""
    _, blob, wanted = old
    level = LocalModel.from_bytes(blob, {}, "level-0")
    assert level.about.weights is None  # they are inside the level
    assert (reread(level).about.weights is None) == (not level.codec.weights())
    assert torch.equal(reread(level).replay()[0], wanted)
    assert torch.equal(reread(level.moved(1)).replay()[0], wanted)
    rows = np.array([1, 2, 19])
    assert torch.equal(reread(level.select(rows)).replay()[0], wanted[rows])
    assert len(reread(level.coarsen(2))) == COUNT


@pytest.mark.parametrize("kind", OLD)
@pytest.mark.parametrize(
    "lie",
    [
        {"codes": "nonsense"},
        {"codes": None},
        {"decoder": None},
        {"decoder": 7},
        {"decoder": {}},
        {"decoder": []},
        {"decoder": {"network": "cosine"}},
        {"decoder": {"network": "mlp"}},
        {"decoder": {"network": []}},
        {"weights": "nibbles"},
        {"first_code": "x"},
        {"first_code": 2**70},
        {"first_code": 1.5},
        {"first_code": []},
        {"stop": None},
        {"start": "x"},
        {"start": 34},
        {"stop": 2**60},
        {"runs": None},
        {"more": 1},
        {"runs": [{"count": 20, "errors": []}]},
        {"samples": 3},
    ],
    ids=str,
)
def test_forged_old_levels_are_refused(kind, lie):
    blob, _ = OLD[kind]()
    header = json.loads(blob[8 : 8 + int.from_bytes(blob[:8], "little")])
    about = {**json.loads(header["__metadata__"]["logcl"]), **lie}
    forged = safetensors.torch.save(safetensors.torch.load(blob), {"logcl": json.dumps(about)})
    if about.get("first_code") is not None and about["codes"] != "index" and lie.keys() == {"first_code"}:
        return  # only index codes have one
    if lie == {"samples": 3} or (kind == "cosine" and lie == {"weights": "nibbles"}):
        return  # nothing reads it
    if lie.keys() == {"codes"} and kind == "cosine":
        return  # cosines were never anything but quantised
    with pytest.raises(Damaged, match="level-0") as caught:
        LocalModel.from_bytes(forged, {}, "level-0")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("kind", OLD)
def test_old_levels_without_one_of_their_tensors_are_refused(kind):
    blob, _ = OLD[kind]()
    header = json.loads(blob[8 : 8 + int.from_bytes(blob[:8], "little")])
    tensors = safetensors.torch.load(blob)
    for key in tensors:
        less = {name: value for name, value in tensors.items() if name != key}
        strange = {**less, key: torch.zeros(3, dtype=torch.bfloat16)}
        for changed in (less, strange):
            with pytest.raises(Damaged, match="level-0"):
                LocalModel.from_bytes(safetensors.torch.save(changed, header["__metadata__"]), {}, "level-0")


# --- settings ---------------------------------------------------------------------------------------------

GENERATOR = {
    "epochs": 20,
    "min_steps": 800,
    "batch_size": 128,
    "optimiser": "adam",
    "momentum": 0.9,
    "learning_rate": 0.01,
    "schedule": "one-cycle",
    "decay": 0.99,
    "patience": 8,
    "weight_decay": 0.0,
    "network": "mlp",
    "width": 64,
    "weights": "int8",
    "codes": "quantised",
    "bytes_per_sample": 8.0,
    "psnr": None,
    "symbols": 32,
    "bits": 256,
    "smallest": 0.125,
    "warm_start": True,
    "keep_encoder": False,
    "warm_share": 1.0,
    "labels": "stored",
    "warm_up_epochs": 10,
    "warm_up_learning_rate": 0.001,
    "pull": 10.0,
    "assignment": "greedy",
    "labeller": "mlp",
    "labeller_width": 8,
    "labeller_training": {"epochs": 15, "min_steps": 600, "learning_rate": 0.003},
}
"""What a memory of format 3, preset fast, has in its header."""


def upgraded(**changes: object) -> Settings:
    fresh = preset("fast", SHAPE).model_dump()
    old = {key: fresh[key] for key in ("preset", "image_shape", "unit", "seed", "classifier")}
    return parse({**old, "generator": {**GENERATOR, **changes}})


def test_settings_of_format_3_are_those_of_today():
    today = override(preset("fast", SHAPE), {"codec.name": "autoencoder"})
    then = {"fit": "stretch", "classifier": preset("fast", SHAPE).classifier}
    assert upgraded() == today.model_copy(update=then), "images were stretched; the recipe stays as it was"


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"network": "cosine", "psnr": 30, "bytes_per_sample": None}, {"name": "cosine", "psnr": 30}),
        (
            {"codes": "index", "network": "superposed", "bits": 7, "bytes_per_sample": None},
            {"name": "index", "bits": 7},
        ),
        (
            {"codes": "index", "assignment": "optimal", "bytes_per_sample": None},
            {"assignment": "greedy", "bits": 256},
        ),
        (
            {"codes": "binary", "bits": 64, "bytes_per_sample": None},
            {"name": "autoencoder", "bytes_per_sample": 8},
        ),
        (
            {"network": "conv", "psnr": 26.5, "bytes_per_sample": None, "keep_encoder": True},
            {"network": "conv", "keep_encoder": True},
        ),
        ({"smallest": 1.0}, {"smallest": 1.0}),
    ],
)
def test_every_kind_of_codes_has_its_codec(changes, wanted):
    codec = upgraded(**changes).codec
    assert {key: getattr(codec, key) for key in wanted} == wanted


def test_labellers_keep_their_settings():
    training = {"epochs": 3, "min_steps": 4, "learning_rate": 0.5}
    old = upgraded(
        labels="labeller", labeller="lenet", labeller_width=5, labeller_training=training, smallest=0.5
    )
    labels = old.labels
    assert (labels.kind, labels.network, labels.width, labels.smallest) == ("labeller", "lenet", 5, 0.5)
    assert (labels.training.epochs, labels.training.min_steps, labels.training.learning_rate) == (3, 4, 0.5)


@pytest.mark.parametrize(
    "generator", [None, 7, [], {"network": []}, {"codes": {}}, {"bits": "x", "codes": "binary"}]
)
def test_invalid_old_settings_are_refused(generator):
    fresh = preset("fast", SHAPE).model_dump(exclude={"codec", "labels"})
    with pytest.raises(BadSettings, match="invalid"):
        parse({**fresh, "generator": generator})


def test_a_header_with_an_invalid_generator_is_damaged(tmp_path):
    memory = Memory.open(tmp_path / "m.logcl", SHAPE)
    header = memory.file.header()
    fields = json.loads(json.dumps(dict(header.fields)))
    del fields["settings"]["codec"]
    for generator in (None, 7, {"network": []}):
        fields["settings"]["generator"] = generator
        header = memory.file.commit(header, fields, {}, ())
        with pytest.raises(Damaged, match="the header cannot be used"):
            Memory(memory.path).snapshot()
