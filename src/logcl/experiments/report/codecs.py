"""Tables, figures and page of `logcl bench codecs`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, get_args

import numpy as np

from logcl.core.files import write_atomically
from logcl.core.text import human_bytes, human_seconds
from logcl.experiments import report
from logcl.experiments.bench.codec_rates import FAST, LIBRARIES
from logcl.experiments.bench.codecs import Measured
from logcl.experiments.bench.grid import Scale
from logcl.experiments.bench.image_sets import IMAGE_SETS
from logcl.experiments.bench.quality import RANGE, bytes_at, relative_bytes
from logcl.experiments.report.figures import canvas
from logcl.experiments.report.figures.canvas import Drawing, styled
from logcl.experiments.report.figures.lines import Line, plot
from logcl.experiments.table import Table

Cells = Sequence[Measured]
TITLE = "codecs: bytes, distortion and speed"
_SHOWN = (24.0, 26.5, 29.0, 31.5, 34.0)  # dB
_NOTES = (
    "Bytes relative to the smallest file of any image library at equal PSNR: geometric mean over "
    f"{RANGE[0]:g} to {RANGE[1]:g} dB; in brackets the share of that range that the codec's curve covers, "
    "unless it is all of it.",
    "A memory counts as a whole file, with headers, tables and weights; an image file with its headers.",
)


def found_in(folder: Path) -> dict[str, list[Measured]]:
    """Everything measured in a folder by scale, the largest first; damaged files are left out."""
    by_scale: dict[str, list[Measured]] = {}
    for scale in reversed(get_args(Scale)):
        for path in sorted(folder.glob(f"{scale}-*.json")):
            try:
                cell = Measured.model_validate_json(path.read_bytes())
            except (OSError, ValueError):
                continue
            by_scale.setdefault(scale, []).append(cell)
    return {scale: in_order(cells) for scale, cells in by_scale.items()}


def in_order(cells: Iterable[Measured]) -> list[Measured]:
    """By image set, our codecs before image files."""
    sets = list(IMAGE_SETS)

    def place(cell: Measured) -> tuple[Any, ...]:
        number = sets.index(cell.image_set) if cell.image_set in sets else len(sets)
        return number, cell.image_set, _codec_place(cell.codec)

    return sorted(cells, key=place)


def _codec_place(codec: str) -> tuple[int, str]:
    known = [FAST, *LIBRARIES]
    return (known.index(codec), "") if codec in known else (0, codec)


def _by_set(cells: Cells) -> list[tuple[str, list[Measured]]]:
    return [(name, list(group)) for name, group in groupby(in_order(cells), lambda cell: cell.image_set)]


def _relative(cell: Measured, cells: Cells) -> tuple[float | None, float]:
    return relative_bytes(cell.curve, [other.curve for other in cells if not other.ours])


def tables(cells: Cells) -> list[Table]:
    """Every codec against the best of the libraries on all sets, and one table per set."""
    by_set = _by_set(cells)
    records: dict[str, dict[str, str]] = {}
    for name, mine in by_set:
        for cell in mine:
            ratio, covered = _relative(cell, mine)
            part = f" ({covered:.0%})" if round(covered, 2) < 0.99 else ""
            text = "–" if ratio is None else f"{ratio:.2f}{part}"
            records.setdefault(cell.codec, dict.fromkeys((n for n, _ in by_set), "–"))[name] = text
    overview = [{"codec": codec, **records[codec]} for codec in sorted(records, key=_codec_place)]
    found = [Table.of("Bytes against the best library, at equal PSNR", overview, _NOTES)]
    return found + [_of_set(name, mine) for name, mine in by_set]


def _of_set(name: str, cells: Cells) -> Table:
    records = []
    for cell in cells:
        points = sorted(cell.points, key=lambda point: point.psnr)
        similar = np.interp(
            29.0, [p.psnr for p in points], [p.ms_ssim for p in points], left=np.nan, right=np.nan
        )
        # A target that is missed by less than 0.2 dB counts as met.
        at = [points[-1].psnr if 0 < wanted - points[-1].psnr < 0.2 else wanted for wanted in _SHOWN]
        ratio, covered = _relative(cell, cells)
        seconds = {way: sum(getattr(p, f"{way}_seconds") for p in points) for way in ("encode", "decode")}
        coded = cell.images * len(points)
        records.append(
            {"codec": cell.codec}
            | {
                f"B for {wanted:g} dB": _number(size, 0)
                for wanted, size in zip(_SHOWN, bytes_at(cell.curve, at, or_better=True), strict=True)
            }
            | {
                "relative bytes": _number(np.nan if ratio is None else ratio, 2),
                "covered %": f"{100 * covered:.0f}",
                "MS-SSIM at 29 dB": _number(float(similar), 4),
                "encoded per s": _number(coded / max(seconds["encode"], 1e-6), 0),
                "decoded per s": _number(coded / max(seconds["decode"], 1e-6), 0),
                "peak memory": "–" if cell.peak_bytes is None else human_bytes(cell.peak_bytes),
            }
        )
    first = cells[0]
    chosen = {p.rate: p for cell in cells if cell.codec == FAST for p in cell.points}.get("default")
    notes = [
        "B for: bytes per image of at least that PSNR. Per s: images per second of CPU time on one core, "
        "averaged over rates, training included."
    ]
    if chosen is not None:
        notes.append(
            f"By default, `{FAST}` chooses {chosen.codec}: {chosen.bytes:,.0f} B per image at "
            f"{chosen.psnr:.1f} dB."
        )
    shape = "x".join(map(str, first.image_shape))
    return Table.of(f"{name}: {first.images} images, {shape}", records, notes)


def points(name: str, cells: Cells) -> Table:
    """Everything measured on one image set, one row per codec and rate."""
    records = [
        {
            "codec": cell.codec + (f" ({p.codec})" if p.codec != cell.codec else ""),
            "rate": p.rate,
            "bytes per image": f"{p.bytes:,.1f}",
            "PSNR dB": f"{p.psnr:.2f}",
            "mean PSNR dB": f"{p.mean_psnr:.2f}",
            "MS-SSIM": f"{p.ms_ssim:.4f}",
            "encode": human_seconds(p.encode_seconds),
            "decode": human_seconds(p.decode_seconds),
        }
        for cell in cells
        for p in cell.points
    ]
    return Table.of(f"{name}: all rates", records)


def _number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}" if np.isfinite(value) else "–"


@styled()
def _drawing(name: str, cells: Cells) -> Drawing:
    """PSNR against bytes per image, one line per codec; our codecs are bold, image files dashed."""
    columns = 4 if len(cells) > 6 else 3
    figure = canvas.sheet("medium", 3.6 + 0.22 * -(-len(cells) // columns))
    axes = figure.add_subplot()
    axes.set_xscale("log")
    low, high = RANGE[0] - 2, RANGE[1] + 2
    shown = [p.bytes for cell in cells for p in cell.points if low <= p.psnr <= high]
    if shown:
        axes.set(xlim=(min(shown) / 1.1, max(shown) * 1.1), ylim=(low, high))
    lines = []
    for cell in cells:
        qualities, sizes = np.array(sorted(cell.curve)).T
        lines.append(Line(cell.codec, sizes, qualities, np.zeros(len(sizes))))

    def look(_: int, codec: str) -> dict[str, Any]:
        ours = codec not in LIBRARIES
        return {
            "label": codec,
            "markersize": 4,
            "linewidth": 2 if ours else 1.2,
            "linestyle": "-" if ours else "--",
        }

    texts = "{label}: {y} at {x}", "{label} reaches {y} at {x}"
    hover, ends = plot(axes, lines, texts, "{:,.0f} B".format, "{:.1f} dB".format, look)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.xaxis.set_minor_formatter(lambda value, _: f"{value:,.0f}" if f"{value:g}"[0] in "235" else "")
    axes.set(xlabel="bytes per image, everything counted", ylabel="PSNR dB")
    axes.grid(which="both")
    figure.legend(loc="outside lower center", ncols=columns, handlelength=2.5)
    title = f"{name}: PSNR against bytes"
    caption = "Bold: memories of LogCL, whole files. Dashed: image files."
    return Drawing(
        f"curves-{canvas.slug(name)}", title, f"{title}: {ends}.", figure, caption, hover, "medium"
    )


def write(by_scale: Mapping[str, Cells], folder: Path) -> list[Path]:
    """README.md, report.html and all figures (SVG and PNG) of what was measured; returns the files."""
    lines, shown, drawn = [f"# {TITLE}\n"], [], []
    for scale, cells in by_scale.items():
        lines.append(f"## {scale}\n")
        lines += [f"    {command}\n" for command in dict.fromkeys(cell.command for cell in cells)]
        suffix = f" ({scale})" if len(by_scale) > 1 else ""
        drawings = {name: _drawing(name, mine) for name, mine in _by_set(cells)}
        drawings = {name: replace(d, name=f"{scale}-{d.name}") for name, d in drawings.items()}
        overview, *of_sets = tables(cells)
        lines += [f"**{overview.title}**\n", overview.markdown(), _machine(cells)]
        for (name, mine), table in zip(_by_set(cells), of_sets, strict=True):
            drawing, every = drawings[name], points(name, mine)
            lines += [f"### {table.title}\n", table.markdown()]
            lines.append(f"![{drawing.alternative}]({drawing.name}.svg)\n")
            lines += [f"<details><summary>All rates</summary>\n\n{every.markdown()}\n</details>\n"]
        shown += [replace(table, title=table.title + suffix) for table in (overview, *of_sets)]
        drawn += [replace(drawing, title=drawing.title + suffix) for drawing in drawings.values()]
    readme = folder / "README.md"
    write_atomically(readme, "\n".join(lines).encode())
    page = folder / "report.html"
    return [readme, *report.write([], page, title=TITLE, tables=shown, drawings=drawn, figures=folder)]


def _machine(cells: Cells) -> str:
    """Hardware and versions, as one paragraph."""
    machines = sorted({str(cell.hardware["processor"]) for cell in cells})
    versions = sorted({", ".join(f"{k} {v}" for k, v in sorted(cell.versions.items())) for cell in cells})
    commits = sorted({cell.commit[:9] for cell in cells if cell.commit})
    commit = f"; commit {', '.join(commits)}" if commits else ""
    return f"{' or '.join(machines)}, one core; {' or '.join(versions)}{commit}.\n"
