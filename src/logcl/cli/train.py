"""`logcl train`: retrain the global model from replay."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from logcl.cli.console import (
    AddressOption,
    EngineOption,
    JsonOption,
    LogOption,
    MemoryArgument,
    SetOption,
    chosen_engine,
    err,
    job,
    out,
    parse_changes,
    print_json,
)
from logcl.core.errors import BadSettings


def train(
    path: MemoryArgument,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Random seed; by default that of the memory.")
    ] = None,
    changes: SetOption = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    logs: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Retrain the global model from replay and store it in the memory file."""
    from logcl.integrations.logs import log_to
    from logcl.memory.classifier import Classifier
    from logcl.memory.memory import Memory
    from logcl.memory.settings import override

    memory = Memory.open(path)
    asked = parse_changes(changes)
    for name in asked:
        if not name.startswith("classifier."):
            raise BadSettings(
                f"--set {name} is fixed when a memory is created; change only settings of classifier here"
            )
    settings = override(memory.settings, asked).classifier
    callbacks = [log_to(place) for place in logs or ()]
    with (
        job(f"{path} keeps its previous classifier") as progress,
        chosen_engine(engine, address) as runner,
    ):
        started = time.perf_counter()
        classifier = Classifier.train(
            memory, recipe=settings, seed=seed, engine=runner, callbacks=callbacks, progress=progress
        )
        seconds = time.perf_counter() - started
    about, last = classifier.about, classifier.last
    if as_json:
        previous = last and last.samples
        print_json({"classes": about.classes, "samples": about.samples, "from": previous, "seconds": seconds})
        return
    start = f", warm-started from that of {last.samples:,} samples," if last else ""
    out.print(
        f"{path}: trained a classifier of {len(about.classes)} classes{start} on {about.samples:,} "
        f"replayed samples in {seconds:.1f} s"
    )
    if settings.warm_start and last is None:
        err.print(
            f"note: trained from scratch; {path} had no classifier of this network and width to start from"
        )
