"""Seconds and peak memory of opening and iterating each stream, cold and warm.

    LOGCL_DATA=DIR python bench/streams.py        writes results/bench/streams.md

Each measurement runs in a fresh process; memory is its peak less the peak after importing. Cold means an
empty LogCL cache (the operating system may still hold the files); warm is the next start.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

MEASURE = """
import json, resource, sys, time
import numpy
import PIL.Image
from logcl.streams import open_stream
unit = 1 if sys.platform == "darwin" else 1024
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
imported = peak()
start = time.perf_counter()
stream = open_stream(sys.argv[1])
opened, opened_peak = time.perf_counter() - start, peak()
start = time.perf_counter()
samples = sum(len(task) for task in stream)
iterated = time.perf_counter() - start
print(json.dumps({
    "samples": samples, "test": len(stream.test_y), "tasks": len(stream), "shape": stream.image_shape,
    "bytes": (samples + len(stream.test_y)) * int(numpy.prod(stream.image_shape)),
    "open": opened, "open_peak": opened_peak - imported, "iterate": iterated, "peak": peak() - imported,
}))
"""
MAKE = """
import sys
from pathlib import Path
import numpy as np
from PIL import Image
folder, rng = Path(sys.argv[1]), np.random.default_rng(0)
for label in range(10):
    (folder / "photos" / str(label)).mkdir(parents=True)
    for k in range(200):
        small = rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        Image.fromarray(small).resize((640, 480)).save(folder / "photos" / str(label) / f"{k}.jpg")
np.savez(folder / "floats.npz", x=rng.random((20000, 32, 32, 3), np.float32), y=rng.integers(0, 10, 20000))
"""
NAMED = ("digits", "mnist", "omniglot", "omniglot-100", "cifar100")


def measure(stream: str, cache: Path) -> dict[str, float]:
    environment = {**os.environ, "LOGCL_CACHE": str(cache)}
    ran = subprocess.run(
        [sys.executable, "-c", MEASURE, stream], env=environment, stdout=subprocess.PIPE, check=True
    )
    return json.loads(ran.stdout)


def row(name: str, stream: str, cache: Path) -> str:
    cold, warm = measure(stream, cache), measure(stream, cache)
    shape = "x".join(str(side) for side in cold["shape"])
    cells = [
        name,
        f"{cold['samples']:,} + {cold['test']:,}",
        str(cold["tasks"]),
        shape,
        f"{cold['bytes'] / 1e6:.1f}",
        *(f"{run['open']:.2f} | {run['iterate']:.2f} | {run['peak'] / 1e6:.0f}" for run in (cold, warm)),
    ]
    print(name, cold, warm, file=sys.stderr)
    return f"| {' | '.join(cells)} |"


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def versions() -> str:
    from importlib.metadata import version

    return ", ".join(
        [f"Python {platform.python_version()}", *(f"{p} {version(p)}" for p in ("numpy", "pillow"))]
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        subprocess.run([sys.executable, "-c", MAKE, scratch], check=True)
        user = {
            "2,000 JPEG files of 640x480": str(folder / "photos"),
            "`.npz` of 20,000 float32 images": str(folder / "floats.npz"),
        }
        streams = {**{f"`{name}`": name for name in NAMED}, **user}
        # One cache each: omniglot and omniglot-100 would share an entry.
        rows = [row(name, stream, folder / f"cache{k}") for k, (name, stream) in enumerate(streams.items())]
    head = ("stream", "samples", "tasks", "shape", "data MB", "cold: open s", "iterate s", "peak MB")
    head += ("warm: open s", "iterate s", "peak MB")
    table = "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *rows])
    (Path(__file__).parents[1] / "results" / "bench" / "streams.md").write_text(
        f"""# Opening and iterating streams

Measured with `LOGCL_DATA=… python bench/streams.py` on {datetime.date.today():%Y-%m-%d}: {cpu_name()},
{os.cpu_count()} cores, {versions()}.

Seconds to open and to iterate once; megabytes (10^6) of peak memory above what importing takes. Cold: an
empty LogCL cache; warm: the next start; a fresh process each. "data" is the size of all images as uint8.
Arrays are memory maps, so most of the peak is pages of the cache file, which the system can take back.

{table}
""",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
