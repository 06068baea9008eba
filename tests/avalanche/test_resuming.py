"""Runs that are interrupted and repeated lose no sample and absorb none twice."""

import copy
import multiprocessing
import os
import pickle
import signal
import threading
import time

import pytest
from avalanche.checkpointing import maybe_load_checkpoint, save_checkpoint
from avalanche.core import SupervisedPlugin
from avalanche.training.plugins import ReplayPlugin

from logcl import Memory
from logcl.core.errors import BadInput, Busy
from logcl.integrations.avalanche import LogCLBuffer, LogCLPlugin
from tests.avalanche.digits import QUICK, strategy


class Replayed(SupervisedPlugin):
    """Records the number of samples available for replay at each experience."""

    def __init__(self, storage):
        super().__init__()
        self.storage, self.counts = storage, []

    def before_training_exp(self, strategy, **kwargs):
        self.counts.append(len(self.storage.buffer))


def run(benchmark, path, experiences=slice(None)):
    plugin = LogCLPlugin(path, settings=QUICK)
    counts = Replayed(plugin.storage_policy)
    learner = strategy([plugin, counts], train_epochs=1)
    for experience in benchmark.train_stream[experiences]:
        learner.train(experience)
    return learner, counts.counts


def test_repeated_run_absorbs_nothing_twice(few, tmp_path):
    benchmark = few.with_task_labels(5)
    _, before = run(benchmark, tmp_path / "a.logcl")
    memory = Memory.open(tmp_path / "a.logcl")
    digest = memory.digest
    _, after = run(benchmark, tmp_path / "a.logcl")
    assert memory.digest == digest
    assert before == after  # as in the first run, only samples from before each experience are replayed
    assert before[0] == 0
    assert before[-1] == 240 - len(benchmark.train_stream[4].dataset)


def test_later_run_continues_with_the_memory(few, tmp_path):
    benchmark = few.with_task_labels(5)
    run(benchmark, tmp_path / "a.logcl", slice(2))
    _, counts = run(benchmark, tmp_path / "a.logcl", slice(2, 5))
    assert counts[0] == sum(len(experience.dataset) for experience in benchmark.train_stream[:2])
    assert Memory.open(tmp_path / "a.logcl").n == 240


def test_repeated_experience_is_learned_with_everything(few, tmp_path):
    benchmark = few.with_task_labels(5)
    learner, counts = run(benchmark, tmp_path / "a.logcl")
    learner.train(benchmark.train_stream[0])
    assert counts[-1] == 240
    assert Memory.open(tmp_path / "a.logcl").n == 240


def test_resuming_from_a_checkpoint_older_than_the_memory(few, tmp_path):
    benchmark = few.with_task_labels(5)
    learner, _ = run(benchmark, tmp_path / "a.logcl", slice(2))
    # Avalanche's pickler cannot save optimizers of torch 2.13.
    save_checkpoint(learner, tmp_path / "checkpoint.pkl", exclude=["optimizer"])
    for experience in benchmark.train_stream[2:]:
        learner.train(experience)
    digest = Memory.open(tmp_path / "a.logcl").digest

    plugin = LogCLPlugin(tmp_path / "a.logcl", settings=QUICK)
    learner, done = maybe_load_checkpoint(strategy([plugin], train_epochs=1), tmp_path / "checkpoint.pkl")
    assert done == 2
    loaded = next(plugin for plugin in learner.plugins if isinstance(plugin, LogCLPlugin))
    counts = Replayed(loaded.storage_policy)
    learner.plugins.append(counts)
    for experience in benchmark.train_stream[done:]:
        learner.train(experience)
    assert counts.counts == [
        sum(len(experience.dataset) for experience in benchmark.train_stream[:number]) for number in (2, 3, 4)
    ]
    assert Memory.open(tmp_path / "a.logcl").digest == digest


def test_checkpoint_contains_the_path_not_the_samples(few, tmp_path):
    storage = LogCLBuffer(tmp_path / "a.logcl", settings=QUICK)
    learner = strategy([ReplayPlugin(None, storage_policy=storage)], train_epochs=1)
    learner.train(few.with_task_labels(2).train_stream)
    saved = pickle.dumps(storage)
    assert len(saved) < 3000
    again = pickle.loads(saved)  # noqa: S301
    assert len(again.buffer) == 240
    assert again.buffer[0][1] == storage.buffer[0][1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.logcl", "a.logcl.experiences"]  # no lock


def test_temporary_memory_is_deleted_with_its_buffer(few):
    storage = LogCLBuffer(settings=QUICK)
    storage.update_from_dataset(few.with_task_labels(2).train_stream[0].dataset)
    with pytest.raises(BadInput, match="give the memory a path"):
        pickle.dumps(storage)
    folder = storage.memory.path.parent
    assert folder.exists()
    del storage
    assert not folder.exists()


def test_format_of_replayed_samples_must_be_known(few, tmp_path):
    benchmark = few.with_task_labels(2)
    run(benchmark, tmp_path / "a.logcl", slice(1))
    with pytest.raises(BadInput, match="give like="):
        len(LogCLBuffer(tmp_path / "a.logcl").buffer)
    storage = LogCLBuffer(tmp_path / "a.logcl", like=benchmark.train_stream[0].dataset)
    assert len(storage.buffer) == len(copy.deepcopy(storage).buffer) > 0


@pytest.mark.parametrize("left", ["no list", "a torn list", "a list that says more", "a list of nonsense"])
def test_a_list_of_experiences_that_is_not_what_it_should_be_costs_no_sample(few, tmp_path, left):
    benchmark = few.with_task_labels(5)
    run(benchmark, tmp_path / "a.logcl", slice(2))
    ledger = tmp_path / "a.logcl.experiences"
    lines = ledger.read_text()
    if left == "no list":
        ledger.unlink()
    elif left == "a torn list":
        ledger.write_text(lines + '{"start": 12')
    elif left == "a list of nonsense":
        ledger.write_text('[]\n{"start": "x", "stop": 1, "digest": 1, "held": true}\n7\n\n{}')
    else:  # a copy of the memory was put back
        run(benchmark, tmp_path / "b.logcl", slice(3))
        ledger.write_text((tmp_path / "b.logcl.experiences").read_text())
    run(benchmark, tmp_path / "a.logcl", slice(2, 5))
    assert Memory.open(tmp_path / "a.logcl").n == 240
    if left in ("a torn list", "a list that says more"):
        run(benchmark, tmp_path / "a.logcl")
        assert Memory.open(tmp_path / "a.logcl").n == 240


def test_what_was_noted_but_not_taken_is_absorbed_when_it_comes_again(few, tmp_path):
    first, second, *_ = few.with_task_labels(5).train_stream
    same_size = first.dataset.subset(range(40)), second.dataset.subset(range(40))
    memory = Memory.open(tmp_path / "a.logcl", (1, 8, 8))
    storage = LogCLBuffer(memory, settings=QUICK)
    with memory.file.writing(), pytest.raises(Busy):
        storage.update_from_dataset(same_size[0])
    LogCLBuffer(memory).update_from_dataset(same_size[1])
    storage.update_from_dataset(same_size[0])
    storage.update_from_dataset(same_size[0])
    assert memory.n == 80


def test_what_was_taken_but_not_noted_is_known_when_it_comes_again(few, tmp_path):
    """The last line of the list is missing: killed between the memory's commit and that line."""
    data = few.with_task_labels(5).train_stream[0].dataset
    storage = LogCLBuffer(tmp_path / "a.logcl", settings=QUICK)
    storage.update_from_dataset(data)
    ledger = tmp_path / "a.logcl.experiences"
    ledger.write_text(ledger.read_text().replace("true", "tr"))
    again = LogCLBuffer(tmp_path / "a.logcl")
    again.update_from_dataset(data)
    assert again.memory.n == len(data)


def run_and_die(split, path):
    """A run that is killed while it absorbs the second experience."""

    def kill():
        ledger = path.with_name(f"{path.name}.experiences")
        while not ledger.exists() or ledger.read_text().count("false") < 2:
            time.sleep(0.002)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    run(split.with_task_labels(5), path)


@pytest.mark.skipif(os.name != "posix", reason="needs fork and SIGKILL")
def test_run_killed_while_absorbing_can_be_repeated(few, tmp_path):
    path, whole = tmp_path / "killed.logcl", tmp_path / "whole.logcl"
    child = multiprocessing.get_context("fork").Process(target=run_and_die, args=(few, path))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert 0 < Memory.open(path).n < 240
    benchmark = few.with_task_labels(5)
    run(benchmark, path)
    run(benchmark, whole)
    memory = Memory.open(path)
    assert memory.n == 240
    assert memory.verify() == []
    assert memory.digest == Memory.open(whole).digest
