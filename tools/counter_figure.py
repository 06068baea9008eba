"""Draws docs/figures/counter.svg: which local model holds which sample as tasks arrive.

python tools/counter_figure.py
"""

from pathlib import Path

from logcl.allocation import layout, plan

TARGET = Path(__file__).parents[1] / "docs" / "figures" / "counter.svg"
TASKS = (2, 2, 3, 3, 3, 3)  # n = 2, 4, 7, 10, 13, 16; 10 → 13 is the paper's example
CELL, ROW, LEFT, TOP = 34, 42, 226, 60
COLOURS = ("#7fb3d5", "#58a383", "#d9a441", "#c8663c", "#8e5ea2")


def rows() -> str:
    """One line of levels per task."""
    parts, before = [], 0
    for number, size in enumerate(TASKS):
        n = before + size
        change = plan(before, n)
        y = TOP + number * ROW
        parts.append(
            f'<text x="8" y="{y + 20}">task {number + 1}: +{size}</text>'
            f'<text x="{LEFT - 12}" y="{y + 20}" text-anchor="end" class="code">n = {n} = b{n:b}</text>'
        )
        for slot in layout(n):
            trained = slot in change.train
            x, width = LEFT + (slot.start - 1) * CELL, slot.samples * CELL
            opacity = 1 if trained else 0.28
            parts.append(
                f'<rect x="{x + 1.5}" y="{y}" width="{width - 3}" height="30" rx="5" '
                f'fill="{COLOURS[slot.level]}" fill-opacity="{opacity}"/>'
                f'<text x="{x + width / 2}" y="{y + 20}" text-anchor="middle" '
                f'class="{"on" if trained else ""}">{slot.level}</text>'
            )
        before = n
    return "".join(parts)


def main() -> None:
    """Write the figure beside this script."""
    n = sum(TASKS)
    width, height = LEFT + n * CELL + 8, TOP + len(TASKS) * ROW + 8
    indices = "".join(
        f'<text x="{LEFT + (i - 0.5) * CELL}" y="{TOP - 12}" text-anchor="middle" class="small">{i}</text>'
        for i in range(1, n + 1)
    )
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="Levels that hold the samples after each of six tasks; '
        'only the lower levels are retrained">'
        "<style>text{font:14px system-ui,sans-serif;fill:#888}.code{font-family:ui-monospace,monospace}"
        ".small{font-size:12px}.on{fill:#fff;font-weight:600}</style>"
        f'<text x="8" y="22">sample index → level. Solid: trained by this task. Pale: not touched.</text>'
        f"{indices}{rows()}</svg>\n"
    )
    TARGET.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
