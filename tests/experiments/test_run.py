"""An experiment: matrix, forgetting, bytes and errors agree with their definitions."""

import json

import numpy as np
import pytest

from logcl import Memory
from logcl.experiments import measures
from logcl.experiments import run as experiment
from logcl.experiments.result import Result
from logcl.memory.presets import preset
from logcl.memory.settings import override
from logcl.streams import open_stream


@pytest.fixture(scope="module")
def stream():
    return open_stream("digits", tasks=3, seed=1)


@pytest.fixture(scope="module")
def settings():
    changes = {
        "codec.name": "autoencoder",
        "codec.min_steps": 100,
        "codec.epochs": 2,
        "classifier.min_steps": 60,
        "classifier.epochs": 2,
    }
    return override(preset("fast", (1, 8, 8)), {"seed": 1, **changes})


def test_a_run_leaves_a_result_and_a_memory(stream, settings, tmp_path):
    result = experiment.run(stream, "logcl", settings, tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    assert sorted(path.name for path in folder.iterdir()) == ["memory.logcl", "result.json"]
    assert Result.model_validate_json((folder / "result.json").read_text()) == result
    written = json.loads((folder / "result.json").read_text())
    assert {
        "settings",
        "seed",
        "versions",
        "hardware",
        "final_accuracy",
        "memory_bytes",
        "classifier_bytes",
        "raw_bytes",
        "seconds",
    } <= set(written)

    memory = Memory.open(folder / "memory.logcl")
    assert memory.verify() == []
    assert memory.n == stream.samples
    assert result.memory_bytes == memory.nbytes()
    assert 0 < result.classifier_bytes == memory.file.usage().classifier
    assert result.file_bytes == result.memory_bytes + result.classifier_bytes
    assert result.raw_bytes == stream.samples * 64
    assert [task.samples for task in result.tasks] == [len(rows) for rows in stream.members]

    assert result.tasks[0].replayed == 0
    assert result.tasks[2].trained > result.tasks[2].replayed > 0
    matrix = np.array(result.accuracy_matrix)
    assert matrix.shape == (3, 3)
    sizes = [np.isin(stream.test_y, classes).sum() for classes in stream.task_classes]
    assert np.isclose(np.average(matrix[-1], weights=sizes), result.final_accuracy)
    assert (matrix[np.triu_indices(3, 1)] == 0).all()  # classes that have not arrived yet
    assert result.seconds["absorb"] > 0
    assert result.seconds["train"] > 0

    bins = {error.generation: error for error in result.reconstruction}
    assert sum(error.samples for error in bins.values()) == stream.samples
    assert bins[-1].mse == 0  # the buffer is raw
    assert all(error.mse > 0 for generation, error in bins.items() if generation >= 0)
    assert max(bins) <= result.max_generation

    assert sum(level.samples for level in result.trap.gap.levels) == stream.samples
    assert result.trap.probe.by_class <= result.trap.probe.without_noise <= 1
    assert set(result.seconds) == {"absorb", "train", "other"}


def test_evaluated_only_at_the_end(stream, settings, tmp_path):
    result = experiment.run(stream, "finetune", settings, tmp_path, evaluate="final")
    assert [row is None for row in result.accuracy_matrix] == [True, True, False]
    assert result.forgetting is None
    assert result.reconstruction == ()
    assert result.trap is None
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_forgetting_by_hand():
    matrix = [(0.9, 0.0, 0.0), (0.8, 0.7, 0.0), (0.5, 0.6, 1.0)]
    assert np.isclose(measures.forgetting(matrix), ((0.9 - 0.5) + (0.7 - 0.6)) / 2)
    assert measures.forgetting(matrix[:1]) is None
    assert measures.forgetting([(None, 0.0), (None, 0.7)]) is None


def test_the_same_seed_gives_the_same_accuracy_and_memory(stream, settings, tmp_path):
    results = [experiment.run(stream, "logcl", settings, tmp_path / name, evaluate="final") for name in "ab"]
    assert results[0].final_accuracy == results[1].final_accuracy
    assert (
        Memory.open(tmp_path / "a" / "memory.logcl").digest
        == Memory.open(tmp_path / "b" / "memory.logcl").digest
    )
