"""Fuzzing: opening an untrusted file, whatever its content, gives a result or a one-line error.

Mutants are read by worker processes, each limited to one additional gigabyte of memory and, per mutant,
twenty seconds of CPU time and three minutes of wall-clock time. Anything but success or one of LogCL's errors
is a loss, and so is a message with control characters for a terminal.

    python -m tests.torture.fuzz --seconds 600
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.torture.outcome import Outcome

_ROOM = 2**30  # bytes of memory allowed per mutant
_WORK, _PATIENCE = 20, 180  # seconds per mutant: CPU time, and wall-clock time on a busy machine
_KEPT_EVIDENCE = 20

Attempt = Callable[[int], str]
"""Makes and reads mutant number k; "read" or "refused"."""


def files(folder: Path, *, count: int | None = None, seconds: float | None = None, seed: int = 0) -> Outcome:
    """Open, verify, replay, inspect mutated memory files, and predict with them."""
    what = "memories with bytes changed, or forged with all digests right, were opened and used"
    return _run("files", what, folder, count, seconds, seed)


def images(folder: Path, *, count: int | None = None, seconds: float | None = None, seed: int = 0) -> Outcome:
    """Read mutated image files and `.npz` archives as `absorb` and `predict` do."""
    what = "image files and .npz archives with bytes changed, or with absurd content, were read"
    return _run("images", what, folder, count, seconds, seed)


def _run(trial: str, what: str, folder: Path, count: int | None, seconds: float | None, seed: int) -> Outcome:
    folder.mkdir(parents=True, exist_ok=True)
    evidence = folder / "evidence"
    end = time.monotonic() + seconds if seconds is not None else None
    counted: Counter[str] = Counter()
    lost = next_number = 0
    while (count is None or next_number < count) and (end is None or time.monotonic() < end):
        for number, result in _worker(trial, folder, seed, next_number, count, end):
            next_number = number + 1
            if result in ("read", "refused"):
                counted[result] += 1
                continue
            lost += 1
            if lost <= _KEPT_EVIDENCE:
                place = evidence / f"{trial}-{seed}-{number}"
                place.mkdir(parents=True, exist_ok=True)
                for file in (folder / trial).iterdir():
                    if file.is_file():
                        shutil.copy(file, place)
                (place / "why.txt").write_text(result)
    survived = counted["read"] + counted["refused"]
    return Outcome(
        trial,
        what,
        survived + lost,
        survived,
        lost,
        details=dict(counted),
        evidence=evidence if lost else None,
    )


def _worker(
    trial: str, folder: Path, seed: int, first: int, count: int | None, end: float | None
) -> Iterator[tuple[int, str]]:
    """Results of one process, which ends after the last mutant or at one that kills it."""
    command = [sys.executable, "-m", "tests.torture.fuzz", "--worker", trial, "--folder", str(folder)]
    command += ["--seed", str(seed), "--first", str(first)] + (["--count", str(count)] if count else [])
    log = folder / f"{trial}.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=Path(__file__).parents[2]
        ) as process,
    ):
        assert process.stdout is not None
        number = None
        for line in process.stdout:
            message = json.loads(line)
            number = message["number"]
            if "result" in message:
                yield number, message["result"]
                number = None
                if end is not None and time.monotonic() >= end:
                    process.kill()
                    return
        code = process.wait()
    if number is not None:
        how = "took too long" if code in (-signal.SIGALRM, -signal.SIGPROF) else f"ended the process ({code})"
        yield number, f"{how}\n{log.read_text()[-4000:]}"
    elif code != 0:
        raise RuntimeError(f"a fuzzing worker failed before its first mutant:\n{log.read_text()[-4000:]}")


# --- in the worker ----------------------------------------------------------------------------------------


def _work(trial: str, folder: Path, seed: int, first: int, count: int | None) -> None:
    attempt = {"files": _file_attempts, "images": _image_attempts}[trial](folder, seed)
    (folder / trial).mkdir(exist_ok=True)
    report = sys.stdout
    limit = _address_space() + _ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    number = first
    while count is None or number < count:
        print(json.dumps({"number": number}), file=report, flush=True)
        # Not handled: they end the process wherever it hangs.
        signal.alarm(_PATIENCE)
        signal.setitimer(signal.ITIMER_PROF, _WORK)
        try:
            result = attempt(number)
        except BaseException:  # noqa: BLE001 - everything that escapes is what is looked for
            result = traceback.format_exc()
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps({"number": number, "result": result}), file=report, flush=True)
        number += 1


def _address_space() -> int:
    """Bytes of virtual memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _said(act: Callable[[], Any]) -> tuple[bool, str]:
    """Whether a mutant could be read, and everything that was printed."""
    import typer

    from logcl.core.errors import LogCLError

    shown = io.StringIO()
    worked = True
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        try:
            act()
        except LogCLError as error:
            worked = False
            print(str(error).replace("\n", "\x1b"))  # a message has one line
        except typer.Exit:
            worked = False
    return worked, shown.getvalue()


def _judge(*acts: Callable[[], Any]) -> str:
    results = []
    for act in acts:
        worked, shown = _said(act)
        results.append(worked)
        strange = next((char for char in shown if not char.isprintable() and char not in "\n\t"), None)
        if strange is not None:
            raise AssertionError(f"{strange!r} was shown: {shown[:500]!r}")
    return "read" if all(results) else "refused"


def _file_attempts(folder: Path, seed: int) -> Attempt:
    import numpy as np
    import torch
    from PIL import Image

    from logcl import Classifier, Memory
    from logcl.cli.inspect import inspect
    from logcl.cli.predict import predict
    from logcl.cli.verify import verify
    from tests.torture.mutants import memories, mutant

    torch.set_num_threads(1)
    (folder / "sources").mkdir(exist_ok=True)
    sources = memories(folder / "sources")
    picture = folder / "sources" / "image.png"
    Image.fromarray(np.full((8, 8), 100, np.uint8)).save(picture)
    place = folder / "files" / "m.logcl"

    def use(memory: Memory) -> None:
        now = memory.snapshot()
        if now.n:
            now.fetch(np.array([1, now.n, (now.n + 1) // 2]))
            next(memory.replay(batch_size=4))
            next(iter(memory.dataset()))

    def classify(memory: Memory) -> None:
        model = Classifier.load(memory)
        model.predict(np.zeros((1, *model.image_shape), np.uint8))

    def grow(memory: Memory) -> None:
        now = memory.snapshot()
        memory.absorb(np.zeros((1, *now.settings.image_shape), np.uint8), list(now.classes[:1]))

    def attempt(number: int) -> str:
        rng = random.Random(f"{seed}/{number}")
        for left in place.parent.iterdir():
            left.unlink()
        place.write_bytes(mutant(rng.choice(sources), rng))
        memory = Memory(place)
        return _judge(
            lambda: verify(place),
            lambda: use(memory),
            lambda: inspect(place),
            lambda: classify(memory),
            lambda: predict(place, [picture]),
            lambda: grow(memory),
        )

    place.parent.mkdir(exist_ok=True)
    for source in sources:  # modules imported lazily are imported before memory is limited
        shutil.copy(source, place)
        memory = Memory(place)
        for act in (lambda: verify(place), lambda m=memory: use(m), lambda m=memory: classify(m)):
            assert _said(act)[0], f"{source} itself is refused"
        _said(lambda: inspect(place))
        _said(lambda: predict(place, [picture]))
    return attempt


def _image_attempts(folder: Path, seed: int) -> Attempt:
    from logcl.streams import read_npz, read_npz_images
    from logcl.streams.images import read_image, survey
    from tests.torture.mutants import mutant_picture, pictures

    sources = pictures()
    place = folder / "images"
    place.mkdir(exist_ok=True)

    def read(file: Path) -> str:
        if file.suffix == ".npz":
            return _judge(lambda: read_npz(file), lambda: read_npz_images(file))
        shapes = ((1, 8, 8), (3, 32, 40))
        return _judge(
            lambda: survey([file]),
            *(lambda shape=shape: read_image(file, shape) for shape in shapes),
        )

    def attempt(number: int) -> str:
        rng = random.Random(f"{seed}/{number}")
        name = rng.choice(list(sources))
        for left in place.iterdir():
            left.unlink()
        file = place / f"m.{name.split('.')[1]}"
        file.write_bytes(mutant_picture(name, sources, rng))
        return read(file)

    for name, content in sources.items():
        file = place / f"m.{name.split('.')[1]}"
        file.write_bytes(content)
        read(file)
    return attempt


def main() -> None:
    """Fuzz both kinds of files for some time, or run as a worker."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/fuzz"))
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=["files", "images"])
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int)
    asked = parser.parse_args()
    if asked.worker:
        _work(asked.worker, asked.folder, asked.seed, asked.first, asked.count)
        return
    lost = 0
    for trial, share in ((files, 0.8), (images, 0.2)):
        if asked.only in (None, trial.__name__):
            seconds = asked.seconds if asked.only else asked.seconds * share
            outcome = trial(asked.folder, count=asked.count, seconds=seconds, seed=asked.seed)
            print(outcome)
            lost += outcome.lost
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
