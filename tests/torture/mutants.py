"""Hostile files: memories and images forged with valid digests and checksums."""

from __future__ import annotations

import hashlib
import io
import json
import math
import random
import sqlite3
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from logcl import Classifier, Memory
from logcl.memory.presets import preset as preset_settings
from logcl.memory.settings import applicable, override

_QUICK = {
    "unit": 16, "codec.epochs": 1, "codec.min_steps": 0, "codec.warm_up_epochs": 1,
    "labels.training.epochs": 1, "labels.training.min_steps": 0,
    "classifier.epochs": 1, "classifier.min_steps": 0, "classifier.width": 2,
}  # fmt: skip
_INDEX = {"codec.name": "index", "labels.kind": "labeller", "codec.width": 8}
KINDS: dict[str, tuple[str, tuple[int, int, int], dict[str, Any]]] = {
    "fast": ("fast", (1, 8, 8), {"codec.name": "autoencoder", "codec.width": 8}),
    "half": ("fast", (1, 8, 8), {"codec.name": "autoencoder", "codec.weights": "half"}),
    "superposed": ("paper-cpu", (1, 8, 8), {"codec.bits": 5, "codec.width": 16}),
    "binplay": ("fast", (1, 8, 8), {**_INDEX, "codec.network": "binplay", "labels.network": "lenet"}),
    "index": (
        "fast", (1, 8, 8),
        {**_INDEX, "codec.network": "mlp", "labels.network": "convnet", "classifier.network": "mlp"},
    ),
    "conv": (
        "fast", (1, 8, 8),
        {"codec.name": "autoencoder", "codec.network": "conv", "codec.keep_encoder": True},
    ),
    "cosine": ("fast", (3, 32, 32), {"classifier.network": "resnet18"}),
    "tiles": ("fast", (3, 8, 40), {"codec.name": "cosine", "codec.psnr": 25}),
    "avif": ("fast", (3, 32, 32), {"codec.name": "image_file", "codec.format": "avif"}),
    "webp": ("fast", (1, 32, 32), {"codec.name": "image_file", "codec.format": "webp"}),
    "pixels": ("fast", (1, 28, 28), {"codec.name": "pixels", "codec.train_steps": 10, "codec.width": 4}),
    "pyramid": ("fast", (3, 32, 32), {"codec.name": "pyramid"}),
    "features": ("fast", (1, 1, 64), {"codec.name": "features", "codec.step": 9}),
}  # fmt: skip
"""Preset, image shape and settings of the original memories."""


def memories(folder: Path) -> list[Path]:
    """Small, real memories of every kind of level, with a buffer and a classifier; made once per folder."""
    digits = load_digits()
    grey = np.rint(digits.images / 16 * 255).astype(np.uint8)[:53, None]
    paths = []
    for name, (preset, shape, changes) in KINDS.items():
        path = folder / f"{name}.logcl"
        paths.append(path)
        if path.exists():
            continue
        times = [-(-side // had) for side, had in zip(shape, (1, 8, 8), strict=True)]
        images = np.tile(grey, (1, *times))[:, :, : shape[1], : shape[2]]
        labels = [f"class {label}" for label in digits.target[:53]] if shape[0] == 3 else digits.target[:53]
        partial = path.with_suffix(".new")
        partial.unlink(missing_ok=True)
        chosen = {"codec.name": changes["codec.name"]} if "codec.name" in changes else {}
        settings = override(preset_settings(preset, shape), chosen)
        quick = applicable(settings, _QUICK)
        memory = Memory.create(partial, override(settings, {**quick, **changes}))
        memory.absorb(images[:50], labels[:50])
        memory.absorb(images[50:], labels[50:])
        Classifier.train(memory)
        partial.rename(path)
    return paths


# --- memories ---------------------------------------------------------------------------------------------

_ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 3, 7, 255, 4096, 65_536, 2**24, 2**31, 2**40, 2**53, 2**62 - 1, 2**63 - 1, 2**63,
    2**64, -(2**63), 10**30, 0.5, -0.0, 1e-320, 1e308, -1e308, math.nan, math.inf, "", "x", "0", "1e9",
    "\x1b]0;owned\x07\x1b[31mred", "\ud800", "\0", "\x9b31m", "x" * 100_000, "../../etc/passwd", [], {}, [[]],
    [0, 0, 0], [1, 4096, 4096], [64, 4096, 4096], [3, 1, 2], [1, 10**6, 10**6], list(range(300)), [2**63, -1],
    "@deep@", "@long@", "@many@", "@keys@",
    "mlp", "conv", "cosine", "binplay", "superposed", "convnet", "lenet", "resnet18", "index", "binary",
    "quantised", "half", "int8", "image_file", "avif", "webp", "pixels", "pyramid", "features", "illustrated",
)  # fmt: skip
_RAW = {
    '"@deep@"': "[" * 100_000 + "]" * 100_000,
    '"@long@"': "9" * 5_000,
    '"@many@"': "[" + "[]," * 100_000 + "[]]",
    '"@keys@"': "{" + ",".join(f'"k{k}":0' for k in range(50_000)) + "}",
}
"""JSON written by hand, because Python would refuse to write it or be slow."""
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "F64": 64, "I64": 64, "U64": 64,
    "C64": 64, "F32": 32, "I32": 32, "U32": 32,
}  # fmt: skip
_DTYPES = (*_BITS, "F8_E5M2", "F8_E4M3", "F4", "E8M0", "X9")

Parts = dict[str, bytes]
Tensors = dict[str, dict[str, Any]]


def mutant(source: Path, rng: random.Random) -> bytes:
    """A mutated memory file."""
    if rng.random() < 0.25:
        return _broken(source.read_bytes(), rng)
    with closing(sqlite3.connect(source)) as database:
        parts = dict(database.execute("SELECT name, CAST(data AS BLOB) FROM parts"))
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        _MUTATIONS[rng.randrange(len(_MUTATIONS))](parts, rng)
    return _forged(source, parts, rng)


def _broken(data: bytes, rng: random.Random) -> bytes:
    """Change the raw bytes of any file: flips, ranges, truncation, moved blocks."""
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8, 64])):
        at, size = rng.randrange(len(out) or 1), rng.choice([1, 2, 4, 16, 200])
        match rng.randrange(6):
            case 0:
                out[at : at + 1] = bytes([out[at] ^ 1 << rng.randrange(8)]) if out else b""
            case 1:
                out[at : at + size] = rng.randbytes(size)
            case 2:
                value = rng.choice([0, 1, 0xFFFF, 50_000, 2**31 - 1, 2**31, 2**32 - 1])
                out[at : at + 4] = value.to_bytes(4, rng.choice(["big", "little"]))
            case 3:
                del out[rng.randrange(len(out) or 1) :]
            case 4:
                page, other = (rng.randrange(len(out) // 512 + 1) * 512 for _ in range(2))
                out[page : page + 512] = out[other : other + 512]
            case 5:
                out[at:at] = out[at : at + size]
    return bytes(out)


def _forged(source: Path, parts: Parts, rng: random.Random) -> bytes:
    """A memory file of these parts with valid digests, including those in the header."""
    header = parts.pop("header", None)
    if header is not None:
        try:
            content = json.loads(header)
            listed = {k: hashlib.sha256(v).hexdigest() for k, v in parts.items() if k in content["parts"]}
            content["parts"] |= listed if rng.random() < 0.95 else {}
            parts["header"] = _json(content).encode(errors="surrogatepass")
        except (ValueError, TypeError, KeyError, RecursionError):
            parts["header"] = header
        if "header-copy" in parts and rng.random() < 0.9:
            parts["header-copy"] = zlib.compress(parts["header"])
    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(source.read_bytes())
        with database:
            database.execute("DELETE FROM parts")
            rows = [(name, hashlib.sha256(data).digest(), data) for name, data in parts.items()]
            database.executemany("INSERT INTO parts VALUES (?, ?, ?)", rows)
        return database.serialize()


def _json(value: Any) -> str:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    for word, raw in _RAW.items():
        text = text.replace(word, raw)
    return text


def _odd(old: Any, rng: random.Random) -> Any:
    if isinstance(old, (int, float)) and not isinstance(old, bool) and rng.random() < 0.4:
        return rng.choice([old + 1, old - 1, -old, old * 2, old * 1000, old + 2**32])
    if isinstance(old, list) and rng.random() < 0.4:
        return rng.choice([old + old, old[:-1], old[::-1], old * 1000, [*old, rng.choice(_ODD)]])
    return rng.choice(_ODD)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of nested data."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [(value, key) for key, _ in items]
    return found + [place for _, child in items for place in _places(child)] if found else []


def _change(content: Any, rng: random.Random) -> None:
    places = _places(content)
    if not places:
        return
    container, key = rng.choice(places)
    chance = rng.random()
    if chance < 0.1:
        del container[key]
    elif chance < 0.15 and isinstance(container, dict):
        container[rng.choice(["x", "\x1b[2J", "__proto__"])] = rng.choice(_ODD)
    else:
        container[key] = _odd(container[key], rng)


def _split(blob: bytes) -> tuple[Any, Tensors, bytes]:
    """Description, tensors and their bytes of a safetensors blob."""
    size = int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8 : 8 + size])
    data = blob[8 + size :]
    about = json.loads(header.pop("__metadata__")["logcl"])
    for entry in header.values():
        entry["bytes"] = data[slice(*entry["data_offsets"])]
        if not {"dtype", "shape"} <= entry.keys():
            raise KeyError("an earlier mutation took it away")
    return about, header, data


def _join(about: Any, tensors: Tensors) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"logcl": about if isinstance(about, str) else _json(about)}}
    data = b""
    # Largest types first, as safetensors writes them, so that each is aligned.
    for name, entry in sorted(tensors.items(), key=lambda item: -_BITS.get(item[1]["dtype"], 0)):
        place = entry.get("lie") or [len(data), len(data) + len(entry["bytes"])]
        header[name] = {"dtype": entry["dtype"], "shape": entry["shape"], "data_offsets": place}
        data += entry["bytes"]
    text = _json(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def _blob(parts: Parts, rng: random.Random) -> tuple[str, Any, Tensors] | None:
    name = rng.choice([name for name in parts if not name.startswith("header")] or ["header"])
    try:
        about, tensors, _ = _split(parts[name])
        return name, about, tensors
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _lie_in_header(parts: Parts, rng: random.Random) -> None:
    try:
        content = json.loads(parts["header"])
    except (ValueError, KeyError, RecursionError):
        return
    _change(content, rng)
    parts["header"] = _json(content).encode(errors="surrogatepass")


def _lie_in_description(parts: Parts, rng: random.Random) -> None:
    if found := _blob(parts, rng):
        name, about, tensors = found
        _change(about, rng)
        parts[name] = _join(about, tensors)


def _lie_everywhere(parts: Parts, rng: random.Random) -> None:
    """Set one name to the same new value wherever it occurs, so that no two places contradict each other."""
    key = rng.choice(
        ["image_shape", "classes", "width", "length", "network", "stop", "n", "unit", "codes", "count",
         "step", "shades", "quality"]
    )  # fmt: skip
    new = rng.choice(_ODD)
    for name, data in list(parts.items()):
        try:
            about, tensors = (json.loads(data), None) if name == "header" else _split(data)[:2]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        for container, at in _places(about):
            if at == key:
                container[at] = new
        parts[name] = _json(about).encode() if tensors is None else _join(about, tensors)


def _lie_about_samples(parts: Parts, rng: random.Random) -> None:
    """Let the newest level, and so the memory, claim many more samples."""
    many = 2 ** rng.randrange(5, 50)
    found = _blob({k: v for k, v in parts.items() if k.startswith("level")}, rng)
    if found and isinstance(found[1], dict) and isinstance(found[1].get("start"), int):
        name, about, tensors = found
        about["stop"] = about["start"] + many - 1
        about["runs"] = [{"count": many, "errors": [0.1]}]
        parts[name] = _join(about, tensors)


def _lie_about_tensor(parts: Parts, rng: random.Random) -> None:
    if not (found := _blob(parts, rng)) or not found[2]:
        return
    name, about, tensors = found
    key = rng.choice(list(tensors))
    entry = tensors[key]
    match rng.randrange(7):
        case 0:
            entry["dtype"] = rng.choice(_DTYPES)
        case 1:
            entry["shape"] = _odd(entry["shape"], rng)
        case 2:
            entry["lie"] = [rng.choice([0, 1, 2**40, 2**64 - 1]), rng.choice([0, 8, 2**40, 2**64 - 1])]
        case 3:
            size = len(entry["bytes"])
            entry["bytes"] = rng.choice(
                [bytes(size), b"\xff" * size, rng.randbytes(size), b"\x00\x7c" * (size // 2)]
            )
        case 4:
            shape = [rng.choice([0, 1, 2, 3, 8, 64]) for _ in range(rng.randrange(5))]
            dtype = rng.choice(list(_BITS))
            size = math.prod(shape) * _BITS[dtype] // 8
            tensors[rng.choice([key, "more", "decoder.more", "\x1b[31m", "decoder.pixels.weight.scale"])] = {
                "dtype": dtype, "shape": shape, "bytes": rng.randbytes(size),
            }  # fmt: skip
        case 5:
            del tensors[key]
        case 6:
            entry["bytes"] = _broken(entry["bytes"], rng)
            entry["shape"] = [len(entry["bytes"]) * 8 // _BITS.get(entry["dtype"], 8)]
    parts[name] = _join(about, tensors)


def _swap_tensors(parts: Parts, rng: random.Random) -> None:
    one, other = _blob(parts, rng), _blob(parts, rng)
    if one and other and one[2] and other[2]:
        key = rng.choice(list(one[2]))
        other[2][rng.choice([key, rng.choice(list(other[2]))])] = one[2][key]
        parts[other[0]] = _join(other[1], other[2])


def _swap_parts(parts: Parts, rng: random.Random) -> None:
    one, other = rng.choice(list(parts)), rng.choice(list(parts))
    parts[one] = parts[other]


def _rename_part(parts: Parts, rng: random.Random) -> None:
    """Also in the header, which then lists it."""
    old = rng.choice([name for name in parts if name != "header"] or ["header"])
    new = rng.choice(
        ["level-x", "level--1", "level-99", "buffer-1", "buffer-0", "x", "\x1b[2J", "", "classifier", old]
    )
    parts[new] = parts[old]
    try:
        content = json.loads(parts["header"])
        content["parts"][new] = hashlib.sha256(parts[new]).hexdigest()
        parts["header"] = _json(content).encode(errors="surrogatepass")
    except (ValueError, KeyError, TypeError, RecursionError):
        return


def _break_part(parts: Parts, rng: random.Random) -> None:
    name = rng.choice(list(parts))
    parts[name] = _broken(parts[name], rng)


_MUTATIONS: tuple[Callable[[Parts, random.Random], None], ...] = (
    _lie_in_header, _lie_in_header, _lie_in_description, _lie_in_description, _lie_in_description,
    _lie_everywhere, _lie_about_samples, _lie_about_tensor, _lie_about_tensor, _lie_about_tensor,
    _swap_tensors, _swap_parts, _rename_part, _break_part,
)  # fmt: skip


# --- images -----------------------------------------------------------------------------------------------


def pictures() -> Mapping[str, bytes]:
    """Small, valid images of all formats and many modes, and arrays: file name → bytes."""
    rng = np.random.default_rng(0)
    colour = Image.fromarray(rng.integers(0, 256, (24, 32, 3), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    kinds: list[tuple[str, Image.Image, dict[str, Any]]] = [
        *((f"{mode}.png", colour.convert(mode), {}) for mode in ("1", "L", "LA", "P", "RGB", "RGBA")),
        ("16.png", Image.fromarray(rng.integers(0, 65_536, (24, 32), dtype=np.uint16)), {}),
        ("exif.jpg", colour, {"exif": exif}),
        ("progressive.jpg", colour, {"progressive": True}),
        ("cmyk.jpg", colour.convert("CMYK"), {}),
        (
            "two.gif",
            colour.convert("P"),
            {"save_all": True, "append_images": [colour.convert("P").rotate(90)]},
        ),
        ("lossy.webp", colour, {}),
        (
            "moving.webp",
            colour.convert("RGBA"),
            {"save_all": True, "append_images": [colour], "lossless": True},
        ),
        ("a.bmp", colour, {}),
        ("a.ppm", colour, {}),
        ("lzw.tif", colour, {"compression": "tiff_lzw"}),
        ("deflated.tif", colour, {"compression": "tiff_deflate"}),
        ("jpeg.tif", colour, {"compression": "jpeg"}),
        ("float.tif", Image.fromarray(rng.random((24, 32), dtype=np.float32)), {}),
        ("a.jp2", colour, {}),
    ]
    found = {}
    for name, image, options in kinds:
        file = io.BytesIO()
        image.save(
            file,
            {"jpg": "JPEG", "tif": "TIFF", "jp2": "JPEG2000"}.get(name[-3:]) or name.split(".")[1],
            **options,
        )
        found[name] = file.getvalue()
    x, y = rng.integers(0, 256, (6, 8, 8), dtype=np.uint8), np.arange(6)
    for name, save, arrays in (
        ("plain.npz", np.savez, {"x": x, "y": y}),
        ("packed.npz", np.savez_compressed, {"x": x / 255, "y": y.astype(str)}),
        ("fortran.npz", np.savez, {"x": np.asfortranarray(x), "y": y.astype("S4")}),
        ("parts.npz", np.savez, {"x_train": x, "y_train": y, "x_test": x, "y_test": y}),
    ):
        file = io.BytesIO()
        save(file, **arrays)
        found[name] = file.getvalue()
    return found


def mutant_picture(name: str, sources: Mapping[str, bytes], rng: random.Random) -> bytes:
    """A mutated image or `.npz`, often with valid checksums."""
    data = sources[name]
    if name.endswith(".npz") and rng.random() < 0.7:
        return _mutant_npz(data, rng)
    if name.endswith(".png") and rng.random() < 0.6:
        return _mutant_png(data, rng)
    if rng.random() < 0.1:
        other = sources[rng.choice(list(sources))]
        return data[: rng.randrange(len(data))] + other[rng.randrange(len(other)) :]
    return _broken(data, rng)


def _mutant_png(data: bytes, rng: random.Random) -> bytes:
    chunks, at = [], 8
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += 12 + size
    number = rng.randrange(len(chunks))
    kind, content = chunks[number]
    match rng.randrange(4):
        case 0:
            sides = [rng.choice([0, 1, 32, 9_000, 9_999, 50_000, 2**31 - 1]) for _ in range(2)]
            chunks[0] = (b"IHDR", struct.pack(">II", *sides) + chunks[0][1][8:])
        case 1:
            chunks[number] = (kind, _broken(content, rng) if content else rng.randbytes(9))
        case 2:
            chunks.insert(
                number,
                (rng.choice([b"iCCP", b"zTXt", b"eXIf", b"tRNS", b"PLTE", b"acTL"]), rng.randbytes(60)),
            )
        case 3:
            bomb = b"n\0\0" + zlib.compress(bytes(10**7))
            chunks.insert(1, (rng.choice([b"zTXt", b"iCCP", b"IDAT"]), bomb))
    packed = (k + c for k, c in chunks)
    return data[:8] + b"".join(
        struct.pack(">I", len(p) - 4) + p + struct.pack(">I", zlib.crc32(p)) for p in packed
    )


def _mutant_npz(data: bytes, rng: random.Random) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        arrays = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(list(arrays))
    (size,) = struct.unpack_from("<H", arrays[name], 8)
    values = arrays[name][10 + size :]
    descr = rng.choice(
        [
            "|u1",
            "<f4",
            "<f2",
            "<f16",
            ">i8",
            "|O",
            "<U4",
            ">U300",
            "<U0",
            "|S0",
            "|V8",
            "|b1",
            "<c8",
            "<M8[s]",
        ]
    )
    shape = rng.choice(["(6,)", "(6, 8, 8)", "(6, 1, 8, 8)", "(0,)", "(-6, 8, 8)", "(10**6,)",
                        f"({2**62}, 8, 8)", "(6, 20000, 20000)", "(1, 30000, 30000)", "()", "(True, 8, 8)",
                        "(6.0,)"])  # fmt: skip
    header = rng.choice([
        f"{{'descr': '{descr}', 'fortran_order': {rng.choice([True, False])}, 'shape': {shape}, }}",
        f"{{'descr': [('a', '{descr}'), ('\\x1b[2J', '|O')], 'fortran_order': False, 'shape': {shape}, }}",
        "(" * rng.choice([50, 300, 9000]), "[" * 9000, "-" * 9000 + "1", "{'descr': " + "1" * 5000,
        "9" * 9000,
        "{'descr': 5L, 'fortran_order': 0, 'shape': (6", "'''", rng.randbytes(60).decode("latin1"),
    ])  # fmt: skip
    text = header.encode("latin1") + b"\n"
    version = rng.choice([1, 1, 1, 2, 3, 9])
    size_field = struct.pack("<H" if version == 1 else "<I", len(text))
    values = rng.choice([values, values[:7], rng.randbytes(64), b"", bytes(6 * 64 * 8), bytes(10**7)])
    arrays[name] = b"\x93NUMPY" + bytes([version, 0]) + size_field + text + values
    if rng.random() < 0.1:
        arrays["\x1b[2J.npy"] = arrays.pop(name)
    file = io.BytesIO()
    packing = rng.choice(
        [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
    )
    with zipfile.ZipFile(file, "w", packing) as archive:
        for key, content in arrays.items():
            archive.writestr(key, content)
    return _broken(file.getvalue(), rng) if rng.random() < 0.2 else file.getvalue()
