"""The cost of reading forged files: with valid digests, they claim far more than they store.

Every command runs in a child process of its own, forked from one that has imported everything. Its peak
memory is counted above that of a child that does nothing, and may reach 300 MB and 64 bytes per byte of the
file; its CPU time may reach 20 seconds. Encoding may take 2 milliseconds per sample more, and 40 bytes per
value of an image: codecs work on whole images, and 5 bytes per value of the images of merged levels that are
coded anew. So may replay through a network, which can be as large as the
file allows, or in context, which `verify` has to do, too. Of a training only the first steps are run: how
many there are is up to the recipe.

    python -m tests.torture resources
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import math
import os
import pkgutil
import random
import re
import resource
import signal
import sqlite3
import sys
import traceback
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

from logcl import Memory, cli, memory, streams
from logcl.codecs.base import Codec
from logcl.codecs.coding import ans, entropy
from logcl.codecs.coding.bits import pack_integers
from logcl.codecs.image_file import ImageFile
from logcl.codecs.image_file.containers import CONTAINERS
from logcl.codecs.pixels import Pixels
from logcl.codecs.pixels import codec as pixels_codec
from logcl.codecs.pixels.coder import ContextCoder
from logcl.codecs.pixels.model import ContextModel
from logcl.codecs.pyramid import codec as pyramid_codec
from logcl.codecs.pyramid import context as pyramid_context
from logcl.codecs.pyramid.codes import joined
from logcl.core.errors import LogCLError
from logcl.core.settings import ImageShape
from logcl.memory import claims
from logcl.memory.file.header import LEDGER
from logcl.memory.file.header import to_bytes as header_bytes
from logcl.memory.file.memory_file import MemoryFile
from logcl.memory.presets import preset
from logcl.memory.settings import override
from logcl.nn import blobs, networks
from tests.torture.outcome import Outcome

_MEMORY, _PER_BYTE, _SECONDS, _PER_SAMPLE, _PER_VALUE = 300_000_000, 64, 20, 0.002, 40
_PER_MERGED = 5  # bytes per value of images that are coded anew when levels merge
_KEPT = 20  # files of evidence
_COMMANDS = ("inspect", "verify", "export", "train", "predict", "extend")
_QUICK = {"unit": 16, "classifier.epochs": 1, "classifier.min_steps": 0, "classifier.width": 2}
_JUNK = np.random.default_rng(0).integers(0, 256, 2**22, np.uint8)

Tensors = Mapping[str, "torch.Tensor"]


class Forged(NamedTuple):
    """A forged file: a memory, or an `.npz` for `absorb`."""

    kind: str
    content: bytes
    suffix: str = ".logcl"


# --- memories ---------------------------------------------------------------------------------------------


def _blob(about: Any, tensors: Tensors) -> bytes:
    import safetensors.torch

    return safetensors.torch.save(dict(tensors), {"logcl": json.dumps(about)})


def _file(
    folder: Path, fields: dict[str, Any], parts: Mapping[str, bytes], more: Mapping[str, bytes]
) -> bytes:
    """A memory file of these parts, with valid digests; `more`: parts that no header lists."""
    path = folder / "forged.new"
    path.unlink(missing_ok=True)
    Memory.create(path, preset("fast", (1, 8, 8)))
    header = header_bytes(fields, {name: hashlib.sha256(data).hexdigest() for name, data in parts.items()})
    rows = {**parts, "header": header, "header-copy": zlib.compress(header), **more}
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM parts")
        values = [(name, hashlib.sha256(data).digest(), data) for name, data in rows.items()]
        database.executemany("INSERT INTO parts VALUES (?, ?, ?)", values)
    return path.read_bytes()


def _settings(shape: ImageShape, unit: int, **more: Any) -> dict[str, Any]:
    settings = override(preset("fast", shape), {**_QUICK, "unit": unit, **more})
    return settings.model_dump(mode="json")


def _fields(
    n: int, shape: ImageShape, unit: int, classes: list[Any] | None = None, **more: Any
) -> dict[str, Any]:
    return {"n": n, "last": n, "classes": classes or [0], "settings": _settings(shape, unit, **more)}


def _classifier(shape: ImageShape, classes: list[Any], network: str = "convnet", width: int = 1) -> bytes:
    """A global model with small random weights."""
    spec = networks.ClassifierSpec(network=network, image_shape=shape, classes=len(classes), width=width)
    about = {"network": spec.model_dump(mode="json"), "classes": classes, "samples": 1, "memory": ""}
    return _blob(about, _weights(networks.classifier, spec, "network"))


def _weights(
    build: Callable[[Any], torch.nn.Module], spec: Any, prefix: str, kind: Any = None
) -> dict[str, Any]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return blobs.weights(build(spec), prefix, kind)


def _level(n: int, codec: dict[str, Any], codes: Tensors, classes: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "level": 0, "start": 1, "stop": n, "samples": n, "classes": list(range(classes)), "labeller": None,
        "runs": [{"count": n, "errors": [0.01], "generation": 0}], "weights": None, "codec": codec, **more,
    }  # fmt: skip


def _labels(n: int, classes: int) -> torch.Tensor:
    bits = (classes - 1).bit_length()
    return torch.zeros(-(-n * bits // 8), dtype=torch.uint8)


def _one_level(
    folder: Path,
    n: int,
    shape: ImageShape,
    codec: dict[str, Any],
    codes: Tensors,
    weights: bytes | None = None,
    *,
    labels: list[Any] | None = None,
    junk: int = 0,
    padding: int = 0,
    network: str = "convnet",
    width: int = 1,
    about: dict[str, Any] | None = None,
    **settings: Any,
) -> bytes:
    """A memory with one level of n samples and a classifier."""
    labels = labels or ["a label"]
    tensors = {f"codes.{key}": value for key, value in codes.items()}
    tensors["labels"] = _labels(n, len(labels))
    if padding:
        tensors["padding"] = torch.zeros(padding, dtype=torch.uint8)
    if junk:
        tensors["junk"] = torch.from_numpy(np.resize(_JUNK, junk))
    digest = hashlib.sha256(weights).hexdigest() if weights else None
    level = _level(n, codec, codes, len(labels), weights=digest, **(about or {}))
    parts = {"level-0": _blob(level, tensors)}
    if weights and digest:
        parts[f"weights-{digest[:16]}"] = weights
    model = {"classifier": _classifier(shape, labels, network, width)}
    return _file(folder, _fields(n, shape, n, labels, **settings), parts, model)


def _flat(n: int, blocks: int, channels: int) -> dict[str, torch.Tensor]:
    """Codes of n uniform images that still have to be decoded symbol by symbol."""
    rows = n * blocks
    together = entropy._samples_per_stream(channels)
    streams = -(-rows // together)
    tables = {
        "table_of": np.zeros(channels, np.uint8), "lowest": np.zeros(1, np.int16),
        "sizes": np.array([2], np.int16), "frequencies": np.array([4095, 1], np.uint16),
    }  # fmt: skip
    stream = _stream(together * channels)
    bits = len(stream).bit_length()
    lengths = pack_integers(np.full(streams, len(stream)), bits)
    arrays = {
        **tables, "lengths": np.append(np.uint8(bits), lengths).astype(np.uint8),
        "data": np.tile(stream, streams),
    }  # fmt: skip
    return {key: torch.from_numpy(value) for key, value in arrays.items()}


def _stream(symbols: int) -> np.ndarray:
    """The stream of zeros, of frequency 4095 of 4096."""
    state, out = 1 << 16, []
    for _ in range(symbols):
        while state >= 4095 << 12:
            out.append(state & 0xFF)
            state >>= 8
        state = (state // 4095 << 12) + state % 4095
    for _ in range(3):
        out.append(state & 0xFF)
        state >>= 8
    return np.array(out[::-1], np.uint8)


def cosine(folder: Path, rng: random.Random, size: int) -> bytes:
    """Uniform images, a few bytes each, of every shape."""
    shape = rng.choice(
        [(1, 8, 8), (3, 32, 32), (1, 512, 512), (3, 224, 224), (3, 4096, 4096), (64, 1024, 1024),
         (64, 32, 32), (1, 1, 2)]
    )  # fmt: skip
    channels, height, width = shape
    rows, columns = -(-height // 32), -(-width // 32)
    blocks, length = rows * columns, channels * -(-height // rows) * -(-width // columns)
    together = entropy._samples_per_stream(length)
    per_image = blocks * (5 if together == 1 else 5 / together)
    n = max(int(size / per_image * rng.choice([0.05, 0.3, 1])), 1)
    codec = {"name": "cosine", "image_shape": shape, "step": 0.1}
    return _one_level(folder, n, shape, codec, _flat(n, blocks, length), **{"codec.name": "cosine"})


def image_files(folder: Path, rng: random.Random, size: int) -> bytes:
    """Blank AVIF and WebP files, of which the smallest take no bytes beside their deflated heads."""
    shape = rng.choice([(1, 1, 2), (1, 28, 28), (3, 32, 32), (3, 224, 224), (3, 1024, 1024), (3, 4096, 4096)])
    kind = rng.choice(["avif", "webp"])
    shell, code = CONTAINERS[kind].encode(np.full(shape, 128, np.uint8), rng.choice([-64, 0]), 10)
    entry = bytes([0]) + code
    head = min(len(entry), 16)
    padding = rng.choice([0, size])
    effort = ImageFile.effort({}, shape)
    most = (claims._SMALL + claims._RATIO * padding) // claims.of_samples(1, shape, claims.COPIED, effort)
    n = max(int(min(most * rng.choice([0.01, 0.9, 1.1]), 8 * size)), 1)
    bits = len(entry).bit_length()
    heads = zlib.compress(np.tile(np.frombuffer(entry[:head], np.uint8)[:, None], n).tobytes(), 9)
    codes = {
        "heads": np.frombuffer(bytes([head]) + heads, np.uint8).copy(),
        "lengths": np.append(np.uint8(bits), pack_integers(np.full(n, len(entry)), bits)).astype(np.uint8),
        "data": np.tile(np.array(list(entry[head:]), np.uint8), n),
    }
    spec = {"name": "image_file", "image_shape": shape, "format": kind, "speed": 10, "quality": 0}
    weights = _blob(
        spec,
        {
            "shells": torch.tensor(list(shell), dtype=torch.uint8),
            "sizes": torch.tensor([len(shell)], dtype=torch.int32),
        },
    )
    settings = {"codec.name": "image_file", "codec.format": rng.choice([kind, kind, "webp"])}
    tensors = {key: torch.from_numpy(value) for key, value in codes.items()}
    return _one_level(folder, n, shape, spec, tensors, weights, padding=padding, **settings)


def pixels(folder: Path, rng: random.Random, size: int) -> bytes:
    """Images of one shade, predicted by networks of all sizes; streams that are all alike."""
    shape = rng.choice([(1, 1, 2), (1, 28, 28), (1, 128, 128), (1, 1024, 16), (1, 1024, 1)])
    shades, width = rng.choice([(2, 4), (16, 32), (64, 64)])
    sizes = [pixels_codec.lattice(shape).inputs, width, width, shades]
    numbers = np.random.default_rng(rng.randrange(100))
    layers = [
        (numbers.integers(-3, 4, (after, before)).astype(np.float32), np.zeros(after, np.float32), 6)
        for before, after in pairwise(sizes)
    ]
    layers[-1][1][0] = 2**14  # the first shade is nearly certain
    spec = {
        "name": "pixels", "image_shape": shape, "trained": 1, "quality": 50,
        "shades": [round(shade) for shade in np.linspace(0, 255, shades)],
    }  # fmt: skip
    model = ContextModel(layers)
    coder = ContextCoder(model, pixels_codec.lattice(shape), pixels_codec._inputs(spec["shades"]))
    one = coder.encode_symbols(
        lambda rows: np.zeros((rows.stop - rows.start, len(coder.lattice)), np.uint8), coder.together
    )
    n, padding = _claimed(rng, size, Pixels, spec, 8 * size)
    many = -(-n // coder.together)
    n = many * coder.together
    tiled = ans.Streams(np.tile(one.lengths, many), np.tile(one.words, many))
    codes = {key: torch.from_numpy(value) for key, value in tiled.arrays().items()}
    weights = _blob(spec, model.tensors())
    settings = {"codec.name": "pixels", "codec.psnr": rng.choice([20, 40])}
    return _one_level(folder, n, shape, spec, codes, weights, padding=padding, **settings)


def pyramid(folder: Path, rng: random.Random, size: int) -> bytes:
    """Images of one colour, in full streams or in one stream each, and one that is pure noise."""
    shape = rng.choice(
        [(1, 1, 2), (1, 28, 28), (1, 16, 32), (3, 32, 32), (3, 48, 48), (3, 64, 64), (1, 2, 256)]
    )
    step, full = rng.choice([0, 80, 255]), pyramid_context.together(shape)
    together = rng.choice([1, full])
    blank = pyramid_codec._encoded(np.full((together, *shape), 77, np.uint8), step)[0]
    noise = pyramid_codec._encoded(np.random.default_rng(0).integers(0, 256, (1, *shape), np.uint8), step)[0]
    spec = {"name": "pyramid", "image_shape": shape, "networks": pyramid_codec.LATEST, "step": step}
    n, padding = _claimed(rng, size, pyramid_codec.Pyramid, spec, 8 * size)
    codes = joined([noise, *[blank] * max(min(n // together, size // blank.streams.words.nbytes), 1)])
    settings = {"codec.name": "pyramid"}
    return _one_level(folder, len(codes), shape, spec, codes.tensors(), padding=padding, **settings)


def _claimed(
    rng: random.Random, size: int, codec: type[Codec], spec: dict[str, Any], most: int
) -> tuple[int, int]:
    """About as many samples as a level may claim, and its padding."""
    padding, shape = rng.choice([0, size]), spec["image_shape"]
    each = claims.of_samples(1, shape, claims.COPIED, codec.effort(spec, shape))
    room = claims._SMALL + claims._RATIO * padding
    return max(min(int(room / each * rng.choice([0.01, 0.8, 0.95, 1.1])), most), 1), padding


def index(folder: Path, rng: random.Random, size: int) -> bytes:
    """Samples whose codes and labels take no bytes at all, beside weights or junk."""
    shape = rng.choice([(1, 8, 8), (1, 28, 28), (1, 512, 512), (3, 32, 32)])
    spec = networks.AutoencoderSpec(network="conv", image_shape=shape, length=40, width=rng.choice([1, 8]))
    codec = {"name": "index", "decoder": spec.model_dump(mode="json"), "weights": "half"}
    weights = _blob(codec, _weights(networks.decoder, spec, "decoder", "half"))
    n = rng.choice([100, 10_000, size // 100, size, 8 * size])
    codes = {"first": torch.tensor([1])}
    labels = [rng.choice(["x" * 1000, "a label"])]
    return _one_level(folder, n, shape, codec, codes, weights, labels=labels, junk=rng.choice([0, size]))


def autoencoder(folder: Path, rng: random.Random, size: int) -> bytes:
    """Networks that are wide or have long codes, and codes of nearly no bytes."""
    network, shape, length, width = rng.choice(
        [("mlp", (1, 8, 8), 1, 4096), ("mlp", (1, 8, 8), 4096, 1), ("conv", (1, 28, 28), 3, 64),
         ("conv", (1, 512, 512), 1, 1), ("conv", (1, 1024, 1024), 1, 16), ("conv", (16, 1024, 1024), 1, 1),
         ("mlp", (1, 1, 2), 1, 65_536)]
    )  # fmt: skip
    spec = networks.AutoencoderSpec(network=network, image_shape=shape, length=length, width=width)
    codec = {"name": "autoencoder", "decoder": spec.model_dump(mode="json"), "weights": "half"}
    weights = _blob(codec, _weights(networks.decoder, spec, "decoder", "half"))
    n = max(int(min(size, 2**21) * rng.choice([0.001, 0.1, 1])), 1)
    return _one_level(folder, n, shape, codec, _flat(n, 1, length), weights)


def labeller(folder: Path, rng: random.Random, size: int) -> bytes:
    """Labels that a network has to read off the images."""
    shape = rng.choice([(1, 8, 8), (3, 32, 32), (1, 1024, 1024)])
    spec = networks.ClassifierSpec(
        network=rng.choice(["mlp", "convnet", "resnet18"]),
        image_shape=shape,
        classes=2,
        width=rng.choice([1, 4]),
    )
    n = max(min(size // 4096, 2000 * 64 // math.prod(shape)), 1)
    rows = -(-shape[1] // 32) * -(-shape[2] // 32)
    length = shape[0] * min(shape[1], 32) * min(shape[2], 32)
    codec = {"name": "cosine", "image_shape": shape, "step": 0.1}
    level = _level(n, codec, {}, 2, labeller=spec.model_dump(mode="json"))
    tensors = {f"codes.{key}": value for key, value in _flat(n, rows, length).items()}
    tensors |= _weights(networks.classifier, spec, "labeller", "half")
    fields = _fields(n, shape, n, [0, 1], **{"codec.name": "cosine"})
    return _file(folder, fields, {"level-0": _blob(level, tensors)}, {})


def buffer_chunks(folder: Path, rng: random.Random, size: int) -> bytes:
    """Chunks of raw images that inflate a thousandfold."""
    shape = rng.choice([(1, 28, 28), (1, 512, 512), (3, 4096, 4096), (1, 1, 2)])
    chunks = rng.choice([1, 8, 64])
    count = max(min(1000 * size // chunks, 2**26) // math.prod(shape), 1)
    deflated = np.frombuffer(zlib.compress(bytes(count * math.prod(shape)), 9), np.uint8).copy()
    parts = {}
    for number in range(chunks):
        about = {
            "start": 1 + number * count, "stop": (number + 1) * count, "count": count, "image_shape": shape,
            "label_bits": 0,
        }  # fmt: skip
        tensors = {"pixels": torch.from_numpy(deflated), "labels": torch.zeros(0, dtype=torch.uint8)}
        parts[f"buffer-{about['start']}"] = _blob(about, tensors)
        if sum(map(len, parts.values())) > size:
            break
    n = len(parts) * count
    return _file(folder, _fields(n, shape, 2**40), parts, {"classifier": _classifier(shape, [0])})


def long_labels(folder: Path, rng: random.Random, size: int) -> bytes:
    """One label of a thousand characters, which in numpy makes all of them as long."""
    shape, many = (1, 8, 8), rng.choice([2, 100, size // 12])
    classes = ["x" * 1000, *(f"c{number}" for number in range(min(many, 2**18)))]
    n = max(size // 8, 1)
    codec = {"name": "cosine", "image_shape": shape, "step": 0.1}
    settings = {"codec.name": "cosine"}
    return _one_level(folder, n, shape, codec, _flat(n, 1, 64), labels=classes, **settings)


def histories(folder: Path, rng: random.Random, size: int) -> bytes:
    """Runs without end, or with errors without end."""
    n = min(size // 60, 50_000)
    runs: list[dict[str, Any]] = [{"count": 1, "errors": [0], "generation": 0} for _ in range(n)]
    runs[0]["errors"] = [0] * min(rng.choice([1, 100, size // 4]), 1_000_000)
    if rng.random() < 0.5:
        runs[0].pop("generation")
    codec = {"name": "cosine", "image_shape": (1, 8, 8), "step": 0.1}
    settings = {"codec.name": "cosine"}
    return _one_level(folder, n, (1, 8, 8), codec, _flat(n, 1, 64), about={"runs": runs}, **settings)


def ledgers(folder: Path, rng: random.Random, size: int) -> bytes:
    """A ledger that inflates to lists without end, or to entries without end."""
    entry = {"start": 1, "stop": 1, "when": "2026-01-01T00:00:00Z", "classes": [0], "digest": "0" * 32}
    text = rng.choice(["[]", "{}", json.dumps(entry)])
    times = min(1000 * size, 2**26) // (len(text) + 1)
    data = zlib.compress(f"[{','.join([text] * times)}]".encode(), 9)
    parts = {f"{LEDGER}{number}": data for number in range(max(size // len(data), 1))}
    codec = {"name": "cosine", "image_shape": (1, 8, 8), "step": 0.1}
    level = _level(1, codec, {})
    tensors = {f"codes.{key}": value for key, value in _flat(1, 1, 64).items()} | {"labels": _labels(1, 1)}
    parts["level-0"] = _blob(level, tensors)
    return _file(folder, _fields(1, (1, 8, 8), 1, **{"codec.name": "cosine"}), parts, {})


def merged(folder: Path, rng: random.Random, size: int) -> bytes:
    """Levels that the next sample merges, of codecs that code their images anew, or of unequal ones."""
    name = rng.choice(["cosine", "pyramid", "pixels"])
    shape = rng.choice({
        "cosine": [(1, 28, 28), (3, 64, 64), (3, 512, 512)], "pyramid": [(1, 28, 28), (3, 32, 32)],
        "pixels": [(1, 8, 8), (1, 28, 28)],
    }[name])  # fmt: skip
    effort = 2**15 if name == "cosine" else 2**17  # a time that samples take
    most = min(2**27 // math.prod(shape), size // 4, effort)
    levels = max(most.bit_length() - 1, 1)
    parts: dict[str, bytes] = {}
    start = 1
    for level in range(levels - 1, -1, -1):
        n, weights = 2**level, None
        spec: dict[str, Any] = {"name": name, "image_shape": shape}
        if name == "cosine":
            channels, height, width = shape
            rows, columns = -(-height // 32), -(-width // 32)
            spec["step"] = 0.1
            codes = _flat(n, rows * columns, channels * -(-height // rows) * -(-width // columns))
        elif name == "pyramid":
            spec |= {"networks": 1 + level % 2, "step": 80}
            one = pyramid_codec._encoded(np.full((1, *shape), 77, np.uint8), 80, spec["networks"])[0]
            codes = joined([one] * n).tensors()
        else:
            spec |= {"trained": 1, "quality": 50, "shades": [4 * shade + level % 4 for shade in range(64)]}
            model = _blank_model(pixels_codec.lattice(shape).inputs, 16, 64)
            coder = ContextCoder(model, pixels_codec.lattice(shape), pixels_codec._inputs(spec["shades"]))
            blank = np.zeros((n, len(coder.lattice)), np.uint8)
            arrays = coder.encode_symbols(blank.__getitem__, n).arrays()
            codes = {key: torch.from_numpy(value) for key, value in arrays.items()}
            weights = _blob(spec, model.tensors())
        digest = hashlib.sha256(weights).hexdigest() if weights else None
        stop = start + n - 1
        about = _level(n, spec, codes, level=level, start=start, stop=stop, weights=digest)
        tensors = {f"codes.{key}": value for key, value in codes.items()} | {"labels": _labels(n, 1)}
        parts[f"level-{level}"] = _blob(about, tensors)
        if weights:
            parts[f"weights-{(digest or '')[:16]}"] = weights
        start += n
    fields = _fields(start - 1, shape, 1, ["a label"], **{"codec.name": name})
    return _file(folder, fields, parts, {})


def _blank_model(inputs: int, width: int, shades: int) -> ContextModel:
    """A network that is nearly certain of the first shade."""
    numbers = np.random.default_rng(0)
    sizes = [inputs, width, width, shades]
    layers = [
        (numbers.integers(-3, 4, (after, before)).astype(np.float32), np.zeros(after, np.float32), 6)
        for before, after in pairwise(sizes)
    ]
    layers[-1][1][0] = 2**14
    return ContextModel(layers)


def classifiers(folder: Path, rng: random.Random, size: int) -> bytes:
    """Global models with few weights and many activations, and recipes without end."""
    shape = rng.choice([(1, 8, 8), (3, 224, 224), (1, 2048, 2048), (3, 4096, 4096)])
    network, width = rng.choice(
        [("convnet", 4), ("resnet18", 2), ("lenet" if shape[1] < 300 else "convnet", 8)]
    )
    rows = -(-shape[1] // 32) * -(-shape[2] // 32)
    length = shape[0] * min(shape[1], 32) * min(shape[2], 32)
    n = max(min(size // (4 * rows), 256), 1)
    recipe = rng.choice(
        [{}, {"classifier.batch_size": 1_000_000}, {"classifier.epochs": 100_000},
         {"classifier.min_steps": 10**7}, {"classifier.width": 64}]
    )  # fmt: skip
    codec = {"name": "cosine", "image_shape": shape, "step": 0.1}
    settings = {"codec.name": "cosine", **recipe}
    return _one_level(
        folder, n, shape, codec, _flat(n, rows, length), network=network, width=width, junk=0, **settings
    )


def headers(folder: Path, rng: random.Random, size: int) -> bytes:
    """A header of many classes or notes, or a damaged one with a copy that inflates a thousandfold."""
    if rng.random() < 0.5:
        fields = _fields(0, (1, 8, 8), 16, list(range(size // 9)))
        return _file(folder, fields, {}, {})
    text = f'{{"memory":{{"x":[{"[]," * min(300 * size, 2**24)}0]}},"parts":{{}}}}'
    copies = {
        f"header-copy{'x' * (number > 0)}{number or ''}": zlib.compress(text.encode(), 9)
        for number in range(3)
    }
    return _file(folder, _fields(0, (1, 8, 8), 16), {}, {**copies, "header": b"{"})


def many_parts(folder: Path, rng: random.Random, size: int) -> bytes:
    """Many small levels, or many small chunks."""
    shape, codec = (1, 8, 8), {"name": "cosine", "image_shape": (1, 8, 8), "step": 0.1}
    tensors = {f"codes.{key}": value for key, value in _flat(1, 1, 64).items()} | {"labels": _labels(1, 1)}
    blob = _blob(_level(1, codec, {}), tensors)
    kind = rng.choice(["level", "buffer"])
    if kind == "buffer":
        tensors = {"pixels": torch.from_numpy(np.frombuffer(zlib.compress(bytes(64)), np.uint8).copy())}
        tensors["labels"] = torch.zeros(0, dtype=torch.uint8)
        blob = _blob({"start": 1, "stop": 1, "count": 1, "image_shape": shape, "label_bits": 0}, tensors)
    parts = {f"{kind}-{number}": blob for number in range(max(size // (len(blob) + 150), 1))}
    return _file(folder, _fields(1, shape, 1, **{"codec.name": "cosine"}), parts, {})


# --- arrays -----------------------------------------------------------------------------------------------


def arrays(folder: Path, rng: random.Random, size: int) -> bytes:
    """Compressed arrays of zeros in either order, and labels as long as one of them."""
    del folder
    kind = rng.choice(["|u1", "<f8", "<f4"])
    bytes_each = int(kind[-1])
    side = rng.choice([8, 32, 512, 2048])
    n = max(min(int(size * rng.choice([50, 500, 1000])), 2**31) // bytes_each // side**2, 1)
    label = rng.choice(["<i8", "<i8", "<U1000", "<U1000000", "|S1000000"])
    out = io.BytesIO()
    width = 8 if label == "<i8" else int(label[2:]) * (4 if label[1] == "U" else 1)
    n_labels = n if n * width < 2**31 else max(2**31 // width, 1)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, descr, shape, total in (
            ("x", kind, (n, side, side), n * side * side * bytes_each),
            ("y", label, (n_labels,), n_labels * width),
        ):  # fmt: skip
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                header = {"descr": descr, "fortran_order": name == "x" and rng.random() < 0.5, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)
                for start in range(0, total, 2**22):
                    file.write(bytes(min(2**22, total - start)))
    return out.getvalue()


KINDS: tuple[Callable[[Path, random.Random, int], bytes], ...] = (
    cosine, cosine, index, index, autoencoder, labeller, buffer_chunks, buffer_chunks, long_labels, histories,
    ledgers, classifiers, classifiers, headers, many_parts, arrays, arrays, image_files, image_files,
    pixels, pixels, pyramid, pyramid, merged, merged,
)  # fmt: skip


_LARGEST = {"arrays": 2_000_000, "image_files": 4_000_000, "pixels": 1_000_000, "pyramid": 1_000_000}
"""Bytes; a larger file justifies more samples than can be encoded or decoded in 20 seconds."""


def forged(folder: Path, number: int, seed: int, largest: int) -> Forged:
    """File number k of a trial; sizes from 10 kB to `largest` bytes."""
    rng = random.Random(f"{seed}/{number}")
    make = KINDS[number % len(KINDS)]
    size = int(10_000 * (largest / 10_000) ** rng.random())
    content = make(folder, rng, min(size, _LARGEST.get(make.__name__, size)))
    return Forged(make.__name__, content, ".npz" if make is arrays else ".logcl")


def _replayed(path: Path, command: str) -> int:
    """Samples that a command replays through networks."""
    try:
        header = MemoryFile(path).header()
    except LogCLError:
        return 0
    codec = header.fields.get("settings", {}).get("codec", {})
    in_context = codec.get("name") in ("pixels", "pyramid")
    commands = ("verify", "export", "train") if in_context else ("export", "train")
    weights = any(name.startswith("weights-") for name in header.parts)
    return int(header.fields["n"]) if command in commands and (in_context or weights) else 0


# --- measuring --------------------------------------------------------------------------------------------


def trial(count: int, seed: int, folder: Path, largest: int = 20_000_000) -> Outcome:
    """Run all commands on `count` forged files."""
    torch.set_num_threads(1)
    for package in (cli, memory, streams):  # in every command, imports would count as its own memory
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            importlib.import_module(module.name)
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / "pictures" / "a label" / "image.png"
    picture.parent.mkdir(parents=True)
    Image.fromarray(np.full((8, 8), 100, np.uint8)).save(picture)
    base = _measured([], folder)[0]
    details: Counter[str] = Counter()
    lost, most, longest = 0, 0.0, 0.0
    for number in range(count):
        file = forged(folder, number, seed, largest)
        place = folder / f"m{file.suffix}"
        wrong = []
        for command in _COMMANDS if file.suffix == ".logcl" else ("absorb",):
            for left in (*folder.glob("out*"), *folder.glob("new*"), *folder.glob("m.*")):
                left.unlink()
            place.write_bytes(file.content)
            more = {"export": [str(folder / "out.npz")], "predict": [str(picture)]}.get(command, [])
            words = [command, str(place), *more]
            if command == "absorb":
                words = [command, str(folder / "new.logcl"), str(place)]
            if command == "extend":
                words = ["absorb", str(place), str(folder / "pictures")]
            peak, seconds, code, said = _measured(words, folder)
            allowed = _MEMORY + _PER_BYTE * len(file.content)
            allowed += _PER_VALUE * _values(Path(words[1])) if words[0] == "absorb" else 0
            details[
                "commands that ended with a result" if code == 0 else "commands that refused the file"
            ] += 1
            allowed += _PER_MERGED * _coded_anew(file.content, folder) if command == "extend" else 0
            encoded = re.search(r"absorbed ([0-9,]+) samples", said)
            seconds -= _PER_SAMPLE * int(encoded[1].replace(",", "")) if encoded else 0
            # A merge encodes all samples again.
            seconds -= _PER_SAMPLE * _samples(place) if command == "extend" and encoded else 0
            seconds -= _PER_SAMPLE * _replayed(place, command)
            most, longest = max(most, (peak - base) / allowed), max(longest, seconds)
            if peak - base > allowed or seconds > _SECONDS or "Traceback" in said or code < 0 or code > 9:
                wrong.append(
                    f"{command}: {(peak - base) / 1e6:.0f} MB of {allowed / 1e6:.0f}, {seconds:.1f} s, "
                    f"ended with {code}: {said[-2000:]}"
                )
        if wrong:
            lost += 1
            details[f"lost: {file.kind}"] += 1
            if lost <= _KEPT:
                evidence = folder / "lost" / f"{number:03d}-{file.kind}"
                evidence.mkdir(parents=True)
                (evidence / f"m{file.suffix}").write_bytes(file.content)
                (evidence / "why.txt").write_text("\n".join(wrong) + "\n")
    details["highest memory, % of what is allowed"] = round(100 * most)
    details["longest, seconds"] = math.ceil(longest)
    what = (
        f"{', '.join(_COMMANDS)} on forged memories and `absorb` of forged `.npz` files, 10 kB to "
        f"{largest / 1e6:.0f} MB: at most 300 MB and 64 bytes per byte of the file above an idle process "
        "that has imported everything, and 20 s; encoding, and replay through networks, take up to 2 ms per "
        "sample more, encoding 40 bytes per value of an image"
    )
    return Outcome(
        "resources", what, count, count - lost, lost, dict(details), folder / "lost" if lost else None
    )


def _samples(path: Path) -> int:
    try:
        return Memory(path).n
    except LogCLError:
        return 0


def _coded_anew(content: bytes, folder: Path) -> int:
    """Values of all images that the next task may merge by decoding them."""
    path = folder / "asked.logcl"
    path.write_bytes(content)
    try:
        memory = Memory(path)
        anew = memory.settings.codec.name in ("cosine", "autoencoder", "index")
        return memory.n * math.prod(memory.settings.image_shape) if anew else 0
    except LogCLError:
        return 0


def _values(path: Path) -> int:
    """Of an image in a memory; 0 if it says none."""
    try:
        return math.prod(Memory(path).settings.image_shape)
    except LogCLError:
        return 0


def _measured(words: list[str], folder: Path) -> tuple[int, float, int, str]:
    """Peak memory (bytes), CPU seconds, exit code and output of a command in a forked process."""
    shown = folder / "shown.txt"
    sys.stdout.flush()
    child = os.fork()
    if not child:
        _run(words, shown)
    _, status, used = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    said = shown.read_text(errors="replace") if shown.exists() else ""
    return used.ru_maxrss * 1024, used.ru_utime + used.ru_stime, code, said


def _short(
    network: torch.nn.Module, fetch: Any, count: int, settings: Any, work: Any, at_once: int | None = None
) -> None:
    """Train on batches of two parts: their size decides what is in memory, their number the time."""
    from logcl.nn.classification import train_on

    few = min(settings.batch_size, 2 * (at_once or settings.batch_size))
    train_on(network, fetch, count, settings.model_copy(update={"batch_size": few}), work, at_once)


def _run(words: list[str], shown: Path) -> None:
    """Run a command and end the process."""
    from logcl.cli import main
    from logcl.memory import classifier_job
    from logcl.nn import training

    code = 1
    try:
        signal.alarm(100 * _SECONDS)  # in case it hangs; CPU time is what counts
        resource.setrlimit(resource.RLIMIT_CPU, (10 * _SECONDS, 10 * _SECONDS))
        output = os.open(shown, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout, sys.stderr = (os.fdopen(number, "w") for number in (1, 2))
        whole = training._batches
        training._batches = lambda *given: islice(whole(*given), 3)
        classifier_job.train_on = _short
        if words:
            sys.argv = ["logcl", *words]
            main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001 - everything that escapes is what is looked for
        traceback.print_exc()
        code = 100
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
