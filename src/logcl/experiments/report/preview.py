"""The page of `logcl preview`: what each size costs, and originals beside their replay."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

import jinja2
import numpy as np
from PIL import Image

from logcl.core.files import write_atomically
from logcl.core.pictures import to_picture
from logcl.core.text import human_bytes, human_seconds
from logcl.experiments.preview.candidates import Measured, Row
from logcl.experiments.preview.source import Source
from logcl.experiments.result import legible
from logcl.experiments.table import Table

_SHOWN = 8  # images on the page


@dataclass(frozen=True)
class _Photograph:
    """One original and its replay at every size."""

    label: str
    original: str
    """As the URL of its data."""
    replayed: tuple[tuple[str, str], ...]
    """Names of candidates and URLs."""


def table(rows: Sequence[Row]) -> Table:
    """One row per candidate."""
    records = [
        {
            "size": row.name,
            "codec": row.codec,
            "per sample": human_bytes(row.bytes_per_sample),
            "PSNR dB": "–" if row.psnr is None else f"{row.psnr:.1f}",
            "memory": human_bytes(row.memory_bytes),
            "classifier": human_bytes(row.classifier_bytes),
            "file": human_bytes(row.file_bytes),
            "file, 10x images": human_bytes(row.tenfold_bytes),
            "absorb": human_seconds(row.absorb_seconds),
            "train": human_seconds(row.train_seconds),
        }
        for row in rows
    ]
    return Table.of("", records)


def write(source: Source, measured: Sequence[Measured], best: Row, why: str, path: Path) -> None:
    """Write the page as one file without references to others."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("logcl.experiments.report", ""),
        autoescape=True,  # names of folders and classes come from users
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("preview.html.j2").render(
        source=source,
        rows=table([each.row for each in measured]),
        best=best,
        why=why,
        photographs=_photographs(source, [each for each in measured if each.replayed is not None]),
        names=[each.row.name for each in measured if each.replayed is not None],
        made=f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M UTC}",
        version=version("logcl"),
    )
    write_atomically(path, legible(page).encode())


def _photographs(source: Source, measured: Sequence[Measured]) -> list[_Photograph]:
    rows = np.unique(np.linspace(0, len(source) - 1, _SHOWN).round().astype(int)).tolist()
    return [
        _Photograph(
            source.labels[row],
            _url(source.originals[row], quality=90),
            tuple(
                (each.row.name, _url(to_picture(each.replayed[row]), lossless=True))
                for each in measured
                if each.replayed is not None and each.replayed.shape[1] in (1, 3)
            ),
        )
        for row in rows
    ]


def _url(picture: Image.Image, **options: bool | int) -> str:
    content = io.BytesIO()
    picture.convert("RGB").save(content, "WEBP", **options)
    return f"data:image/webp;base64,{b64encode(content.getvalue()).decode()}"
