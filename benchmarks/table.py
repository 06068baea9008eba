"""A table of finished runs: one row a method, means and standard errors over seeds.

    python benchmarks/table.py runs/digits-all [--keep results/methods/digits]

`--keep` copies every result.json beside the table, so that the figures stay with what made them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from logcl.cli.console import human_bytes


def main() -> None:
    """Print the table; with --keep, write it and its sources to a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--command", help="The command that made the runs, to be quoted.")
    arguments = parser.parse_args()
    found = (json.loads(path.read_text()) for path in sorted(arguments.runs.rglob("*.json")))
    results = [result for result in found if "final_accuracy" in result]
    if not results:
        raise SystemExit(f"there are no results below {arguments.runs}")
    text = table(results, arguments.command)
    print(text, end="")
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
        for result in results:
            path = arguments.keep / f"{result['method']}-seed{result['seed']}.json"
            path.write_text(json.dumps(result, ensure_ascii=False) + "\n")
        (arguments.keep / "README.md").write_text(text)


def table(results: list[dict[str, Any]], command: str | None = None) -> str:
    """Markdown, best method first."""
    methods = sorted({result["method"] for result in results})
    rows = {name: [result for result in results if result["method"] == name] for name in methods}
    first = results[0]
    classifier = first["settings"]["classifier"]
    budgets = sorted({result["budget"] for result in results if result.get("budget")})
    held = f"; buffers hold {', '.join(budgets)}" if budgets else ""
    lines = [
        f"# {first['stream']}, {len(first['tasks'])} tasks, {len(first['classes'])} classes\n",
        f"Preset `{first['settings']['preset']}`: {classifier['network']} of width {classifier['width']}, "
        f"{classifier['epochs']} passes{held}. Accuracy is over all classes\n"
        "after the last task, no task label given; forgetting as Chaudhry et al. 2018; bytes are all that\n"
        "is needed to go on; mean ± standard error; seconds are means.\n",
        *([f"    {command}\n"] if command else []),
        "| method | seeds | accuracy % | forgetting % | bytes kept | of raw % | absorb s | train s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, mine in sorted(rows.items(), key=lambda row: -_mean(row[1], "final_accuracy")):
        forgotten = [100 * r["forgetting"] for r in mine if r["forgetting"] is not None]
        lines.append(
            f"| {name} | {len(mine)} | {_spread([100 * r['final_accuracy'] for r in mine])} | "
            f"{_spread(forgotten) if forgotten else '–'} | {human_bytes(_mean(mine, 'memory_bytes'))} | "
            f"{100 * _mean(mine, 'memory_bytes') / _mean(mine, 'raw_bytes'):.1f} | "
            f"{_seconds(mine, 'absorb')} | {_seconds(mine, 'train')} |"
        )
    hardware = first["hardware"]
    threads = sorted({result["hardware"]["threads"] for result in results})
    lines.append(
        f"\n{hardware['processor']}, {hardware['cores']} cores, {' or '.join(map(str, threads))} used; "
        f"torch {first['versions']['torch']}, logcl {first['versions']['logcl']}."
    )
    return "\n".join(lines) + "\n"


def _mean(results: list[dict[str, Any]], name: str) -> float:
    return float(np.mean([result[name] for result in results]))


def _seconds(results: list[dict[str, Any]], phase: str) -> str:
    values = [result["seconds"][phase] for result in results if phase in result["seconds"]]
    return f"{np.mean(values):.0f}" if values else "–"


def _spread(values: list[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.2f}"
    return f"{np.mean(values):.2f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.2f}"


if __name__ == "__main__":
    main()
