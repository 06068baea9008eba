"""Throughput of absorbing and replaying, by preset and image size.

    python bench/speed.py                     writes results/bench/speed.md and speed.json: many minutes
    python bench/speed.py --quick --out DIR   a trial run with few samples and steps; its figures mean nothing

Images are those of digits, MNIST and CIFAR-100 if LOGCL_DATA or the cache has them; otherwise, and for 64x64,
they are smooth random ones. All samples of a row go into one local model in one task. Run it on an otherwise
idle machine.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # read when torch is loaded; the profiler is talkative

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile, schedule
from training import train_network

from logcl import Memory
from logcl.core.errors import BadSettings, DataError
from logcl.core.progress import Advance, Progress, Silent
from logcl.memory.presets import preset
from logcl.memory.settings import Settings, applicable, override
from logcl.nn.networks import ClassifierSpec
from logcl.nn.training import Work, generator_for
from logcl.streams import open_stream
from streams import cpu_name

SIZES = {(1, 8, 8): 1024, (1, 28, 28): 4096, (3, 32, 32): 2048, (3, 64, 64): 1024}
"""Image shape → samples."""
STREAMS = {(1, 8, 8): "digits", (1, 28, 28): "mnist", (3, 32, 32): "cifar100"}
QUICK = {"codec.epochs": 1, "codec.min_steps": 40, "codec.warm_up_epochs": 1}
PRODUCTS = (
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "aten::baddbmm",
    "aten::convolution",
    "aten::_convolution",
    "aten::mkldnn_convolution",
    "aten::slow_conv2d_forward",
    "aten::_slow_conv2d_forward",
    "aten::convolution_backward",
    "aten::convolution_overrideable",
    "aten::_slow_conv2d_backward",
    "aten::slow_conv_transpose2d",
)
"""Matrix products and convolutions, forward and backward."""


def images(shape: tuple[int, int, int], count: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Images (count, C, H, W) as uint8, labels, and where they come from."""
    try:
        stream = open_stream(STREAMS[shape])
        rows = np.sort(np.random.default_rng(0).permutation(len(stream.source_y))[:count])
        if len(rows) == count:
            return np.ascontiguousarray(stream.source_x[rows]), stream.source_y[rows], stream.name
    except (KeyError, DataError):
        pass
    generator = generator_for(0)
    coarse = torch.rand((count, shape[0], 5, 5), generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, shape[1:], mode="bicubic").clamp(0, 1)
    return (smooth * 255).to(torch.uint8).numpy(), np.arange(count) % 10, "smooth random images"


def epoch(x: np.ndarray, y: np.ndarray, settings: Settings, progress: Progress, steps: int = 0) -> None:
    """One epoch of the global classifier on raw images, or at least this many steps."""
    options = settings.classifier.model_copy(update={"epochs": 1, "min_steps": steps})
    spec = ClassifierSpec.of(options, settings.image_shape, int(y.max()) + 1)
    pixels, labels = torch.from_numpy(x), torch.from_numpy(y)
    work = Work(generator_for(0), progress)
    train_network(spec, lambda rows: (pixels[rows], labels[rows]), len(y), options, work)


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class Sampled(Silent):
    """A progress that drives a profiler: it records three of every twenty optimiser steps."""

    def __init__(self) -> None:
        self.times: Counter[str] = Counter()
        self.profiler = profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=16, warmup=1, active=3),
            on_trace_ready=self._add,
        )

    def _add(self, profiler: profile) -> None:
        for event in profiler.key_averages():
            self.times[event.key] += event.self_cpu_time_total

    @contextmanager
    def track(self, description: str, total: int) -> Iterator[Advance]:
        del total
        own = not description.startswith("absorbing")  # this bar repeats the steps of the others

        def advance(steps: int = 1, note: str = "") -> None:
            del steps, note
            if own:
                self.profiler.step()

        yield advance


def share_of_products(work: Callable[[Progress], Any]) -> float | None:
    """The part of the time, Python included, that is spent in matrix products and convolutions."""
    sampled = Sampled()
    with sampled.profiler:
        work(sampled)
    total = sum(sampled.times.values())
    return sum(sampled.times[name] for name in PRODUCTS) / total if total else None


def measure(name: str, shape: tuple[int, int, int], count: int, quick: bool) -> dict[str, Any]:
    x, y, source = images(shape, count)
    settings = preset(name, shape)
    settings = override(settings, {"unit": count, **(applicable(settings, QUICK) if quick else {})})
    with tempfile.TemporaryDirectory() as folder:
        epoch(x[: count // 4], y[: count // 4], settings, Silent())  # the first use of a network is slow
        memory = Memory.create(Path(folder) / "timed.logcl", settings)
        absorbing = seconds(lambda: memory.absorb(x, y))
        now = memory.snapshot()
        decoding = seconds(now.everything)
        training = seconds(lambda: epoch(x, y, settings, Silent()))
        profiled = Memory.create(Path(folder) / "profiled.logcl", settings)
        return {
            "preset": name,
            "image_shape": shape,
            "images": source,
            "samples": count,
            "absorbed_per_second": count / absorbing,
            "decoded_per_second": count / decoding,
            "epochs_per_absorb": absorbing / training,
            "products_absorb": share_of_products(lambda progress: profiled.absorb(x, y, progress=progress)),
            "products_epoch": share_of_products(lambda progress: epoch(x, y, settings, progress, 40)),
            "bytes_per_sample": memory.nbytes() / count,
            "error": float(np.average([sum(run.errors) for run in now.runs])),
        }


def row(found: dict[str, Any]) -> str:
    shape = "x".join(map(str, found["image_shape"]))
    shares = [
        "–" if found[name] is None else f"{found[name]:.0%}" for name in ("products_absorb", "products_epoch")
    ]
    cells = [
        found["preset"],
        shape,
        found["images"],
        f"{found['samples']:,}",
        f"{found['absorbed_per_second']:,.0f}",
        f"{found['decoded_per_second']:,.0f}",
        f"{found['epochs_per_absorb']:.1f}",
        *shares,
        f"{found['bytes_per_sample']:,.0f}",
        f"{found['error']:.4f}",
    ]
    return f"| {' | '.join(cells)} |"


def write(folder: Path, results: list[dict[str, Any]], quick: bool) -> None:
    machine = {
        "processor": cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "date": f"{datetime.date.today():%Y-%m-%d}",
        "quick": quick,
    }
    document = {"machine": machine, "results": results}
    (folder / "speed.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    head = ["preset", "image", "images of", "samples", "absorbed /s", "decoded /s", "epochs"]
    head += ["products, absorb", "products, epoch", "bytes per sample", "error"]
    table = "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *map(row, results)])
    given = [argument for argument in sys.argv[1:] if argument in ("--quick", "--colour")]
    command = " ".join(["python bench/speed.py", *given])
    warning = "\n**A trial run: its figures mean nothing.**\n" if quick else ""
    (folder / "speed.md").write_text(
        f"""# Speed of absorbing and replaying
{warning}
Measured with `{command}` on {machine["date"]}: {machine["processor"]}, {machine["cores"]} cores,
{machine["threads"]} threads, Python {machine["python"]}, torch {machine["torch"]}.

All samples of a row are one task and go into one local model. "epochs" is the time to absorb them, measured
in epochs of the global classifier on the same samples; "products" is the share of time, Python included, in
matrix products and convolutions, while absorbing and during such an epoch; "bytes per sample" counts the
whole memory file; "error" is the mean squared error of replay, pixels in 0..1.

{table}
""",
        encoding="utf-8",
    )


def main() -> None:
    usual = ["fast", "paper-cpu"]  # `paper` needs an accelerator, the others share the generator of `fast`
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few samples and steps, to see that it runs")
    parser.add_argument("--presets", default=",".join(usual), help="separated by commas; default %(default)s")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).parents[1] / "results" / "bench",
        help="folder of speed.md, speed.json",
    )
    parser.add_argument("--colour", action="store_true", help="also colour images in paper-cpu: half an hour")
    options = parser.parse_args()
    results = []
    for name in options.presets.split(","):
        for shape, count in SIZES.items():
            if name == "paper-cpu" and shape[0] > 1 and not options.colour:
                continue
            try:
                results.append(measure(name, shape, 64 if options.quick else count, options.quick))
            except BadSettings as error:
                print(f"{name}, {shape}: {error}", flush=True)
                continue
            print(row(results[-1]), flush=True)
            write(options.out, results, options.quick)  # an interrupted run keeps its measurements


if __name__ == "__main__":
    main()
