"""Runs that are interrupted and repeated lose no sample and absorb none twice."""

import copy
import multiprocessing
import os
import pickle
import signal

import pytest
from avalanche.checkpointing import maybe_load_checkpoint, save_checkpoint
from avalanche.core import SupervisedPlugin
from avalanche.training.plugins import ReplayPlugin

from logcl import Memory
from logcl.core.errors import BadInput, Busy, NotAMemory
from logcl.integrations.avalanche import LogCLBuffer, LogCLPlugin
from logcl.memory.file.memory_file import MemoryFile
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
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.logcl"]  # no lock


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


def test_ledger_names_the_experiences(few, tmp_path):
    benchmark = few.with_task_labels(5)
    run(benchmark, tmp_path / "a.logcl", slice(2))
    entries = Memory.open(tmp_path / "a.logcl").ledger
    assert [entry.source for entry in entries] == ["avalanche:experience 0", "avalanche:experience 1"]
    assert [set(entry.classes) for entry in entries] == [{0, 1}, {2, 3}]
    assert [entry.samples for entry in entries] == [len(e.dataset) for e in benchmark.train_stream[:2]]


def test_experience_that_could_not_be_absorbed_can_be_repeated(few, tmp_path):
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


def run_and_die(split, path, moment):
    """A run that is killed before or after the second experience is committed."""
    commit, commits = MemoryFile.commit, []

    def commit_and_die(*args):
        commits.append(args)
        if len(commits) == 2 and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        commit(*args)
        if len(commits) == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    MemoryFile.commit = commit_and_die
    run(split.with_task_labels(5), path)


@pytest.mark.skipif(os.name != "posix", reason="needs fork and SIGKILL")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_run_killed_while_absorbing_can_be_repeated(few, tmp_path, moment):
    path, whole = tmp_path / "killed.logcl", tmp_path / "whole.logcl"
    child = multiprocessing.get_context("fork").Process(target=run_and_die, args=(few, path, moment))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    benchmark = few.with_task_labels(5)
    absorbed = 1 if moment == "before" else 2
    assert Memory.open(path).n == sum(len(e.dataset) for e in benchmark.train_stream[:absorbed])
    run(benchmark, path)
    run(benchmark, whole)
    memory = Memory.open(path)
    assert memory.n == 240
    assert memory.verify() == []
    assert memory.digest == Memory.open(whole).digest


@pytest.mark.parametrize("restored", [False, True])
def test_memory_that_was_replaced_or_deleted_is_refused(few, tmp_path, restored):
    first, second, *_ = (experience.dataset for experience in few.with_task_labels(5).train_stream)
    storage = LogCLBuffer(tmp_path / "a.logcl", settings=QUICK)
    storage.update_from_dataset(first)
    if restored:
        storage = pickle.loads(pickle.dumps(storage))  # noqa: S301
    LogCLBuffer(tmp_path / "b.logcl", settings=QUICK).update_from_dataset(second)
    (tmp_path / "b.logcl").replace(tmp_path / "a.logcl")
    for call in (lambda: storage.buffer, lambda: storage.update_from_dataset(first)):
        with pytest.raises(NotAMemory, match="is another memory than the one that was used before"):
            call()
    assert Memory.open(tmp_path / "a.logcl").n == len(second)
    (tmp_path / "a.logcl").unlink()
    with pytest.raises(NotAMemory, match="does not exist"):
        storage.update_from_dataset(first)


def test_refused_first_experience_leaves_no_file(few, tmp_path, monkeypatch):
    def stop(*given):
        raise KeyboardInterrupt

    dataset = few.with_task_labels(5).train_stream[0].dataset
    with monkeypatch.context() as patch:
        patch.setattr(MemoryFile, "commit", stop)
        with pytest.raises(KeyboardInterrupt):
            LogCLBuffer(tmp_path / "a.logcl", settings=QUICK).update_from_dataset(dataset)
    assert list(tmp_path.iterdir()) == []
