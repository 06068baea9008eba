"""`logcl train`: retrain the global model from replay."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from logcl.cli import console
from logcl.core.errors import BadSettings, Damaged
from logcl.core.text import human_bytes

if TYPE_CHECKING:
    from logcl.memory.memory import Memory


def train(
    path: console.MemoryArgument,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Random seed; by default that of the memory.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="The time there is; by default as long as the settings take.")
    ] = None,
    changes: console.SetOption = None,
    engine: console.EngineOption = "local",
    address: console.AddressOption = None,
    logs: console.LogOption = None,
    quiet: console.QuietOption = False,
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
    before = _stored(memory)

    def state() -> str:
        if _stored(memory) != before:
            return f"{path} has the new classifier"
        has = f"{path} has no classifier yet" if before is None else f"{path} keeps its previous classifier"
        kept = Classifier.unfinished(memory)
        if kept is None:
            return has
        return (
            f"{has}; epoch {kept.epoch} of {kept.epochs} is kept, and the same command continues from it, "
            f"with any --minutes; until then the file is {human_bytes(_staged(memory))} larger"
        )

    with (
        console.job(state, quiet=quiet) as progress,
        console.chosen_engine(engine, address) as runner,
    ):
        started = time.perf_counter()
        classifier = Classifier.train(
            memory,
            recipe={name.removeprefix("classifier."): value for name, value in asked.items()} or None,
            minutes=minutes,
            seed=seed,
            engine=runner,
            callbacks=callbacks,
            progress=progress,
        )
        seconds = time.perf_counter() - started
    sizes = memory.file.usage()
    about, last, resumed = classifier.about, classifier.last, classifier.resumed
    start = f", warm-started from that of {last.samples:,} samples," if last else ""
    start += f", continued after epoch {resumed}," if resumed else ""
    console.show(
        as_json,
        {
            "classes": about.classes,
            "samples": about.samples,
            "from": last and last.samples,
            "resumed": resumed,
            "seconds": seconds,
            **sizes.named(),
        },
        f"{path}: trained a classifier of {len(about.classes)} classes{start} on {about.samples:,} "
        f"replayed samples in {seconds:.1f} s; memory {human_bytes(sizes.memory)}, classifier "
        f"{human_bytes(sizes.classifier)}, file {human_bytes(sizes.file)}",
    )
    if settings.warm_start and last is None:
        console.err.print(
            f"note: trained from scratch; {path} had no classifier of this network and width to start from"
        )


def _staged(memory: Memory) -> int:
    """Bytes of work that is not finished."""
    return sum(map(len, memory.file.staged().values()))


def _stored(memory: Memory) -> bytes | None:
    """The classifier in the file, empty if it is damaged."""
    try:
        return memory.file.read_classifier()
    except Damaged:
        return b""
