"""`logcl export`: write the replayed samples to files."""

from __future__ import annotations

import os
import re
import shutil
import unicodedata
import zipfile
from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from logcl.cli import console
from logcl.core.errors import BadInput, CannotWrite

if TYPE_CHECKING:
    from logcl.core.progress import Progress
    from logcl.memory.snapshot import Snapshot

_BLOCK, _MOST_LABELS = 2**24, 2**32  # bytes of labels written at once, and in all
_RESERVED = re.compile(r"con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³]", re.IGNORECASE)  # on Windows


def export(
    path: console.MemoryArgument,
    target: Annotated[Path, typer.Argument(metavar="OUT", help="File or folder to write; .npz is added.")],
    form: Annotated[
        Literal["npz", "png"],
        typer.Option("--format", help="One .npz file, or a folder of PNG files per class."),
    ] = "npz",
    as_json: console.JsonOption = False,
) -> None:
    """Write the replayed samples, in sample order: OUT.npz with x and y, or OUT/CLASS/INDEX.png.

    Of a memory of features, x are the features, and images are thumbnails.
    """
    from logcl.memory.memory import Memory

    memory = Memory.open(path)
    final = target.with_name(f"{target.name}.npz") if form == "npz" and target.suffix != ".npz" else target
    _check_is_free(final)
    partial = final.with_name(f".{final.name}.{os.getpid()}.new")
    with console.job(f"{final} was not written") as progress:
        now = memory.snapshot()
        try:
            (_write_npz if form == "npz" else _write_pngs)(partial, now, progress)
            _check_is_free(final)  # it may have appeared meanwhile
            partial.rename(final)
        except OSError as error:
            raise CannotWrite(
                f"{final} cannot be written ({error.strerror}); check the folder and its permissions"
            ) from error
        finally:
            shutil.rmtree(partial) if partial.is_dir() else partial.unlink(missing_ok=True)
    about = {"memory": str(path), "out": str(final), "samples": now.n}
    console.show(as_json, about, f"{final}: {now.n:,} samples")


def _check_is_free(path: Path) -> None:
    if os.path.lexists(path):  # a link to nowhere would be replaced, too
        raise CannotWrite(f"{path} already exists; choose another name")


def _write_npz(path: Path, now: Snapshot, progress: Progress) -> None:
    """Write x and y (n,) in blocks, so that main memory never holds all samples.

    x: images (n, C, H, W), uint8, or features (n, D), float32.
    """
    import numpy as np

    from logcl.memory.featured import of_user

    backbone = now.settings.backbone
    shape: tuple[int, ...] = (now.n, *now.settings.image_shape)
    values = "|u1"
    if backbone is not None:
        shape, values = (now.n, backbone.features), "<f4"
    kind = np.dtype(np.int64)
    if now.classes and isinstance(now.classes[0], str):
        kind = np.dtype(f"<U{max(map(len, map(str, now.classes))) or 1}")
    if now.n * kind.itemsize > _MOST_LABELS:
        raise BadInput(
            f"{now.n:,} labels of up to {kind.itemsize // 4} characters do not fit an .npz, in which each "
            f"takes the room of the longest; use --format png"
        )
    numbers = np.empty(now.n, np.min_scalar_type(len(now.classes)))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as file:
            header = {"descr": values, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            for start, x, y in now.pieces(progress):
                file.write(x.numpy().data if backbone is None else of_user(x, backbone).numpy().tobytes())
                numbers[start : start + len(y)] = y
        with archive.open("y.npy", "w", force_zip64=True) as file:
            header = {"descr": kind.str, "fortran_order": False, "shape": (now.n,)}
            np.lib.format.write_array_header_1_0(file, header)
            for start in range(0, now.n, _BLOCK // kind.itemsize):
                some = numbers[start : start + _BLOCK // kind.itemsize].tolist()
                file.write(np.array([now.classes[number] for number in some], kind).tobytes())


def _write_pngs(folder: Path, now: Snapshot, progress: Progress) -> None:
    """Write one folder per class and one file per sample, named by sample index."""
    from logcl.core.pictures import to_picture
    from logcl.memory.featured import pictures

    settings = now.settings
    if settings.backbone is not None and not settings.thumbnails:
        raise BadInput("this memory holds features and no thumbnails to show; use --format npz")
    channels = settings.image_shape[0] if settings.backbone is None else 3
    if channels not in (1, 3, 4):
        raise BadInput(f"images with {channels} channels cannot be saved as PNG; use --format npz")
    names = _folder_names([str(label) for label in now.classes])
    digits = len(str(now.n))
    folder.mkdir()
    for name in names:
        (folder / name).mkdir()
    for start, samples, y in now.pieces(progress):
        images = pictures(samples, settings)
        assert images is not None  # there are thumbnails
        for row, (image, number) in enumerate(zip(images.numpy(), y, strict=True), start=start + 1):
            to_picture(image).save(folder / names[number] / f"{row:0{digits}}.png")


def _folder_names(classes: Sequence[str]) -> list[str]:
    """A safe, unique folder name per class; class names may contain anything."""
    chosen: dict[str, str] = {}  # by what file systems that ignore case or Unicode composition see
    for number, name in enumerate(classes):
        plain = "".join(char if char.isprintable() and char not in '/\\:*?"<>|' else "_" for char in name)
        # File systems allow 255 bytes, and Windows no dots or spaces at the end; a dash starts an option.
        safe = plain.encode()[:200].decode(errors="ignore").strip(". ") or "class"
        if safe.startswith(("-", "~")) or _RESERVED.fullmatch(safe.partition(".")[0].rstrip()):
            safe = f"_{safe}"
        for choice in chain([safe], (f"{safe}-{suffix}" for suffix in count(number))):
            if (key := unicodedata.normalize("NFKC", choice).casefold()) not in chosen:
                chosen[key] = choice
                break
    return list(chosen.values())
