"""`logcl train`: retrain the global model from replay."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from logcl.cli import console
from logcl.core.errors import BadSettings


def train(
    path: console.MemoryArgument,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Random seed; by default that of the memory.")
    ] = None,
    changes: console.SetOption = None,
    engine: console.EngineOption = "local",
    address: console.AddressOption = None,
    logs: console.LogOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Retrain the global model from replay and store it in the memory file."""
    from logcl.integrations.logs import log_to
    from logcl.memory.classifier import Classifier
    from logcl.memory.memory import Memory
    from logcl.memory.settings import override

    memory = Memory.open(path)
    asked = console.parse_changes(changes)
    for name in asked:
        if not name.startswith("classifier."):
            raise BadSettings(
                f"--set {name} is fixed when a memory is created; change only settings of classifier here"
            )
    settings = override(memory.settings, asked).classifier
    callbacks = [log_to(place) for place in logs or ()]
    with (
        console.job(f"{path} keeps its previous classifier") as progress,
        console.chosen_engine(engine, address) as runner,
    ):
        started = time.perf_counter()
        classifier = Classifier.train(
            memory,
            recipe=settings if asked else None,
            seed=seed,
            engine=runner,
            callbacks=callbacks,
            progress=progress,
        )
        seconds = time.perf_counter() - started
    about, last = classifier.about, classifier.last
    start = f", warm-started from that of {last.samples:,} samples," if last else ""
    console.show(
        as_json,
        {
            "classes": about.classes,
            "samples": about.samples,
            "from": last and last.samples,
            "seconds": seconds,
        },
        f"{path}: trained a classifier of {len(about.classes)} classes{start} on {about.samples:,} "
        f"replayed samples in {seconds:.1f} s",
    )
    if settings.warm_start and last is None:
        console.err.print(
            f"note: trained from scratch; {path} had no classifier of this network and width to start from"
        )
