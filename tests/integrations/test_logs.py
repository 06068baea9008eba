"""Callbacks receive every moment of training; log files are complete at any time."""

import csv
import json
import os

import numpy as np
import pytest

from logcl import Classifier, Memory
from logcl.core.errors import BadSettings, CannotWrite
from logcl.core.progress import Moment
from logcl.integrations.logs import CSVLog, JSONLinesLog, TensorBoardLog, log_to
from logcl.memory.file.sqlite import PAGES


@pytest.fixture
def memory(tmp_path, quick):
    return Memory.open(tmp_path / "pets.logcl", (1, 8, 8), unit=32, settings=quick)


def learn(memory, digits, *callbacks):
    memory.absorb(digits[0][:96], digits[1][:96], callbacks=callbacks)
    return Classifier.train(memory, callbacks=callbacks)


def test_callbacks_receive_levels_memory_and_classifier(memory, digits):
    moments: list[Moment] = []
    learn(memory, digits, moments.append)
    assert {moment.what for moment in moments} == {
        "level 1 (64 samples)", "level 0 (32 samples)", "memory", "global model",
    }  # fmt: skip
    for moment in moments:
        assert 0 < moment.step <= moment.steps
    (absorbed,) = [moment for moment in moments if moment.what == "memory"]
    assert absorbed.values["absorbed"] == absorbed.step == 96
    assert absorbed.values["levels"] == 2
    # The global model that was stored meanwhile may have split a page of SQLite's tree.
    assert absorbed.values["bytes"] == pytest.approx(memory.nbytes(), abs=max(PAGES))
    losses = [moment.values["loss"] for moment in moments if moment.what == "global model"]
    assert losses[-1] < losses[0]


def test_plain_logs_hold_the_same_values_and_are_appended_to(memory, digits, tmp_path):
    seen: list[Moment] = []
    table, lines = tmp_path / "log.csv", tmp_path / "log.jsonl"
    learn(memory, digits, seen.append, CSVLog(table), JSONLinesLog(lines))
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    values = [(m.what, m.step, name, value) for m in seen for name, value in m.values.items()]
    assert [(r["what"], int(r["step"]), r["name"], float(r["value"])) for r in rows] == values
    objects = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [(o["what"], o["step"]) for o in objects] == [(m.what, m.step) for m in seen]
    assert objects[0]["loss"] == seen[0].values["loss"]

    Classifier.train(memory, callbacks=[CSVLog(table)])
    again = table.read_text().splitlines()
    assert len(again) > len(rows) + 1
    assert sum(line.startswith("time,") for line in again) == 1


def test_tensorboard_has_one_curve_per_value(memory, digits, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = tmp_path / "events"
    with TensorBoardLog(folder) as log:
        learn(memory, digits, log)
        Classifier.train(memory, callbacks=[log])
    found = EventAccumulator(str(folder))
    found.Reload()
    assert {"global model/loss", "memory/bytes", "level 0 (32 samples)/loss"} <= set(found.Tags()["scalars"])
    steps = [event.step for event in found.Scalars("global model/loss")]
    assert steps == sorted(set(steps)), "the second training continues the curve of the first"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["log.csv", "log.jsonl"])
def test_a_pipe_without_a_reader_is_no_log(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(CannotWrite, match="is a pipe"):
        log_to(f"{tmp_path}/{name}")


def test_the_path_decides_the_format(tmp_path):
    assert isinstance(log_to(f"{tmp_path}/a.csv"), CSVLog)
    assert isinstance(log_to(f"{tmp_path}/a.jsonl"), JSONLinesLog)
    assert isinstance(log_to(f"{tmp_path}/runs"), TensorBoardLog)
    with pytest.raises(BadSettings, match=r"a\.txt has no known log format"):
        log_to(f"{tmp_path}/a.txt")
    with pytest.raises(CannotWrite, match="cannot be written"):
        CSVLog(tmp_path / "absent" / "log.csv")(Moment("work", 1, 2, {"loss": 1.0}))


def test_commands_write_logs_too(logcl, tmp_path, digits):
    np.savez(tmp_path / "task.npz", x=digits[0][:80], y=digits[1][:80])
    path = tmp_path / "pets.logcl"
    settings = ("codec.name=autoencoder", "codec.epochs=1", "codec.min_steps=2", "classifier.min_steps=2")
    brief = [word for setting in settings for word in ("--set", setting)]
    ran = logcl("absorb", path, tmp_path / "task.npz", "--unit", 32, *brief, "--log", tmp_path / "log.jsonl")
    assert ran.code == 0, ran.err
    assert logcl("train", path, "--log", tmp_path / "log.jsonl", "--log", tmp_path / "log.csv").code == 0
    logged = [json.loads(line)["what"] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert logged[-1] == "global model"
    assert "memory" in logged
    assert "global model" in (tmp_path / "log.csv").read_text()


def test_an_error_in_a_callback_leaves_the_memory_as_it_was(memory, digits):
    def fail(moment):
        raise RuntimeError("the disk of the log is full")

    before = memory.digest
    with pytest.raises(RuntimeError, match="disk of the log"):
        memory.absorb(digits[0][:96], digits[1][:96], callbacks=[fail])
    assert memory.digest == before
    assert memory.verify() == []
