"""Generates the tables and figures of results/ and the README from result files.

    make results            or: python tools/results.py

results/NAME/*.json are results of `logcl bench NAME` (file names start with the scale) or of `logcl run`.
This writes results/NAME/README.md, the figures of a bench beside it, and the README's text between
`<!-- results:NAME -->` and `<!-- /results:NAME -->`; and, from results/torture/*.json (`make torture`), the
table of docs/memory-file.md. tests/test_docs.py fails if any of them is out of date.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from logcl.core.text import spread
from logcl.experiments.bench.benches import BENCHES
from logcl.experiments.bench.tables import TABLES
from logcl.experiments.report import Drawing, benches
from logcl.experiments.report.figures import canvas, maps
from logcl.experiments.report.figures.lines import over_tasks
from logcl.experiments.report.study import studies
from logcl.experiments.result import Result, read
from logcl.experiments.table import Table, summary

ROOT = Path(__file__).parent.parent
SCALES = {
    "full": "The paper's size",
    "small": "Small: a part of the data, about a quarter of an hour on two cores",
}
TORTURE = ROOT / "results" / "torture"
SPEED = ROOT / "results" / "bench"
CODECS = ROOT / "results" / "codecs"


def folders() -> list[Path]:
    return sorted(
        path
        for path in (ROOT / "results").iterdir()
        if path not in (TORTURE, SPEED, CODECS) and any(path.glob("*.json"))
    )


def parts(folder: Path) -> list[tuple[str, list[Result]]]:
    """Results by scale, for a bench; all results under an empty name otherwise."""
    if folder.name not in BENCHES:
        return [("", [read(path) for path in sorted(folder.glob("*.json"))])]
    return [(scale, found) for scale, found in benches.found_in(folder).items() if scale in SCALES]


def tables(folder: Path, results: list[Result]) -> list[Table]:
    return TABLES[folder.name](results) if folder.name in BENCHES else [summary(results)]


def drawings(folder: Path, scale: str, results: list[Result]) -> list[Drawing]:
    """The bench's own figures and, for `extreme`, curves over tasks and histograms of errors."""
    if folder.name not in BENCHES:
        return []
    found = benches.drawings(folder.name, results)
    if folder.name == "extreme":
        (study,) = studies(results)
        curves = [over_tasks(study, name) for name in ("memory", "accuracy")]
        found += [drawing for drawing in (*curves, *maps.errors(study.methods)) if drawing is not None]
    return [replace(drawing, name=f"{scale}-{drawing.name}") for drawing in found]


def page(folder: Path) -> str:
    """The folder's README.md."""
    title = BENCHES[folder.name].summary if folder.name in BENCHES else folder.name
    lines = [f"# {folder.name}: {title}\n" if folder.name in BENCHES else f"# {title}\n"]
    for scale, results in parts(folder):
        if scale:
            lines.append(f"## {SCALES[scale]}\n")
        lines += [f"    {command}\n" for command in commands(results)]
        shown = tables(folder, results)
        if folder.name in ("table1", "table2", "extreme"):
            shown.append(replace(summary(results), title="Bytes and seconds"))
        for table in shown:
            lines += [f"**{table.title}**\n", table.markdown()]
        lines.append(f"{machine(results)}\n")
        for drawing in drawings(folder, scale, results):
            lines.append(f"![{drawing.alternative}]({drawing.name}.svg)\n")
    return "\n".join(lines)


def commands(results: list[Result]) -> list[str]:
    return sorted({result.command for result in results if result.command})


def machine(results: list[Result]) -> str:
    """Hardware and versions, as one sentence."""
    machines = sorted({f"{r.hardware['processor']}, {r.hardware['cores']} cores" for r in results})
    threads = sorted({int(result.hardware["threads"]) for result in results})
    versions = sorted({f"torch {r.versions['torch']}, logcl {r.versions['logcl']}" for r in results})
    commits = sorted({(result.commit or "")[:9] for result in results} - {""})
    return (
        f"{' or '.join(machines)}, {' or '.join(map(str, threads))} used; {' or '.join(versions)}"
        + (f", commit {', '.join(commits)}" if commits else "")
        + "."
    )


def readme(text: str) -> str:
    """The README with its marked tables, NAME or NAME/SCALE, regenerated."""

    def made(match: re.Match[str]) -> str:
        name, _, scale = match[1].partition("/")
        folder = ROOT / "results" / name
        results = dict(parts(folder))[scale]
        shown = "\n".join(table.markdown() for table in tables(folder, results))
        return f"<!-- results:{match[1]} -->\n{shown}<!-- /results:{match[1]} -->"

    return re.sub(r"<!-- results:([\w/-]+) -->\n.*?<!-- /results:\1 -->", made, text, flags=re.DOTALL)


PHOTOGRAPHS = (
    ("features of EfficientNet-lite0", "clothing-features", "logcl"),
    ("pictures of 128x128 pixels", "clothing-128", "logcl"),
    ("pictures of 64x64 pixels", "clothing-64", "logcl"),
    ("for comparison: all features, not rounded", "clothing-features", "joint"),
    ("for comparison: nothing, each task trained on alone", "clothing-features", "finetune"),
)
"""What is kept of photographs, the folder of its results, and the method."""


def photographs(text: str) -> str:
    """A page with its table of memories of photographs regenerated."""
    rows = []
    for kept, folder, method in PHOTOGRAPHS:
        files = sorted((ROOT / "results" / folder).glob(f"{method}-seed*.json"))
        results = [read(path) for path in files]
        samples = [sum(task.samples for task in result.tasks) for result in results]
        each = np.mean([result.memory_bytes / count for result, count in zip(results, samples, strict=True)])
        rows.append({
            "what is kept": kept,
            "accuracy %": spread([100 * result.final_accuracy for result in results], 1),
            "bytes per photograph": f"{each:,.0f}" if method != "finetune" else "–",
            "seconds": f"{np.mean([sum(result.seconds.values()) for result in results]):.0f}",
        })  # fmt: skip
    note = (
        f"{samples[0]:,} photographs of ten kinds of clothes in five tasks of two kinds, tested on 372 "
        "others after the last task; mean ± standard error over three seeds, or one seed. Bytes: the "
        "whole file without the classifier. Seconds: absorbing, training and testing on one core of a busy "
        "machine; features take 30 ms per photograph more. The runs are in results/clothing-features and "
        "beside it."
    )
    made = f"<!-- photographs -->\n{Table.of('', rows, [note]).markdown()}<!-- /photographs -->"
    return re.sub(r"<!-- photographs -->\n.*?<!-- /photographs -->", lambda _: made, text, flags=re.DOTALL)


def tortured(text: str) -> str:
    """docs/memory-file.md with its table of trials regenerated."""
    trials = [json.loads(path.read_text()) for path in sorted(TORTURE.glob("*.json"))]
    table = Table(
        title="",
        columns=("trial", "what is done", "tried", "survived", "lost", "of these"),
        rows=tuple(
            (
                trial["trial"], trial["what"],
                *(f"{trial[count]:,}" for count in ("tried", "survived", "lost")),
                "; ".join(f"{what}: {count:,}" for what, count in trial["details"].items()),
            )
            for trial in trials
        ),
    )  # fmt: skip
    systems = sorted({f"{trial['system']}, SQLite {trial['sqlite']}" for trial in trials})
    made = f"<!-- torture -->\n{table.markdown()}\n{'; '.join(systems)}.\n<!-- /torture -->"
    return re.sub(r"<!-- torture -->\n.*?<!-- /torture -->", lambda _: made, text, flags=re.DOTALL)


def main() -> None:
    for folder in folders():
        (folder / "README.md").write_text(page(folder))
        for scale, results in parts(folder):
            canvas.save(drawings(folder, scale, results), folder)
    path = ROOT / "README.md"
    path.write_text(photographs(readme(path.read_text())))
    path = ROOT / "docs" / "photographs.md"
    path.write_text(photographs(path.read_text()))
    path = ROOT / "docs" / "memory-file.md"
    path.write_text(tortured(path.read_text()))


if __name__ == "__main__":
    main()
