"""Real results, made once: three tasks of digits, two methods, a few steps each."""

import pytest

from logcl.core.files import write_atomically
from logcl.experiments import run as experiment
from logcl.experiments.result import Result
from logcl.memory.presets import preset
from logcl.memory.settings import override
from logcl.streams import open_stream

QUICK = {
    "classifier.min_steps": 40,
    "classifier.epochs": 1,
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A folder of `logcl run`, seeds 1 and 2; to save time the second is a modified copy of the first."""
    place = tmp_path_factory.mktemp("runs")
    stream = open_stream("digits", tasks=3, seed=1)
    settings = override(preset("fast", (1, 8, 8)), {"seed": 1, **QUICK})
    for method in ("logcl", "finetune"):
        result = experiment.run(
            stream, method, settings, place / f"{method}-seed1", command="logcl run digits"
        )
        other = place / f"{method}-seed2"
        other.mkdir()
        write_atomically(other / "result.json", _moved(result).model_dump_json().encode())
    return place


def _moved(result: Result) -> Result:
    tasks = tuple(
        task.model_copy(update={"memory_bytes": task.memory_bytes + 512, "accuracy": task.accuracy * 0.99})
        for task in result.tasks
    )
    return result.model_copy(
        update={
            "seed": 2,
            "settings": result.settings.model_copy(update={"seed": 2}),
            "tasks": tasks,
            "final_accuracy": tasks[-1].accuracy,
            "memory_bytes": tasks[-1].memory_bytes,
        }
    )


@pytest.fixture(scope="session")
def results(folder) -> tuple[Result, ...]:
    """logcl and finetune, seeds 1 and 2."""
    names = ("logcl-seed1", "logcl-seed2", "finetune-seed1", "finetune-seed2")
    return tuple(Result.model_validate_json((folder / n / "result.json").read_text()) for n in names)


@pytest.fixture(scope="session")
def old(results) -> Result:
    """A result of an early version, without accuracies per task, histograms, examples and confusion."""
    document = results[0].model_dump(mode="json")
    for name in ("subset", "options", "budget", "confusion", "examples", "commit", "command"):
        del document[name]
    for task in document["tasks"]:
        for name in ("models", "accuracy", "seconds"):
            del task[name]
    for error in document["reconstruction"]:
        del error["histogram"]
    return Result.model_validate(document)


@pytest.fixture(scope="session")
def long(results) -> tuple[Result, ...]:
    """Results of 100 tasks with one class each: invented numbers in a realistic shape."""
    made = []
    for result in results:
        task = result.tasks[0]
        made.append(
            result.model_copy(
                update={
                    "classes": tuple(f"class {k}" for k in range(100)),
                    "task_classes": tuple((k,) for k in range(100)),
                    "tasks": tuple(task.model_copy(update={"samples": 150 + k % 7}) for k in range(100)),
                    "accuracy_matrix": tuple(
                        tuple(1 - (t - k) / 200 if k <= t else 0.0 for k in range(100)) for t in range(100)
                    ),
                    "confusion": tuple(
                        (k, (k + shift) % 100, 9 - 8 * shift) for k in range(100) for shift in (0, 1)
                    ),
                }
            )
        )
    return tuple(made)
