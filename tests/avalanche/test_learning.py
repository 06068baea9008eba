"""Strategies that replay from a memory do not forget, with any minibatches, workers and heads."""

import pytest
import torch
from avalanche.benchmarks.scenarios.online import split_online_stream
from avalanche.core import SupervisedPlugin
from avalanche.models import SimpleMLP, as_multitask
from avalanche.training.plugins import EWCPlugin, ReplayPlugin
from avalanche.training.storage_policy import ReservoirSamplingBuffer

from logcl import Memory
from logcl.core.errors import BadInput
from logcl.integrations.avalanche import LogCLBuffer, LogCLPlugin
from tests.avalanche.digits import FAIR, QUICK, accuracy, minibatch, strategy


class Minibatches(SupervisedPlugin):
    """Records the parts, sizes and (per experience) classes of minibatches."""

    def __init__(self):
        super().__init__()
        self.parts, self.sizes, self.classes = set(), set(), []

    def before_training_exp(self, strategy, **kwargs):
        self.classes.append(set())

    def after_training_iteration(self, strategy, **kwargs):
        self.parts.add(len(strategy.mbatch))
        self.sizes.add(len(strategy.mb_y))
        self.classes[-1].update(strategy.mb_y.tolist())


@pytest.mark.parametrize("parts", [2, 3])
def test_plugin_prevents_forgetting(split, tmp_path, parts):
    benchmark = split.with_task_labels() if parts == 3 else split.without_task_labels()
    accuracies = {}
    for name, plugins in {
        "naive": [],
        "everything": [ReplayPlugin(2000, storage_policy=ReservoirSamplingBuffer(2000))],
        "logcl": [LogCLPlugin(tmp_path / "digits.logcl", settings=FAIR)],
    }.items():
        seen = Minibatches()
        learner = strategy([*plugins, seen])
        for experience in benchmark.train_stream:
            learner.train(experience)
        assert seen.parts == {parts}
        accuracies[name] = accuracy(learner.model, split.test)
    assert accuracies["naive"] < 0.3
    assert accuracies["logcl"] > 0.8
    assert accuracies["logcl"] > accuracies["everything"] - 0.05
    assert Memory.open(tmp_path / "digits.logcl").n == len(split.train)


@pytest.mark.parametrize("parts", [2, 3])
def test_storage_policy_replaces_a_reservoir(few, parts):
    benchmark = few.with_task_labels() if parts == 3 else few.without_task_labels()
    storage = LogCLBuffer(settings=QUICK)
    seen = Minibatches()
    learner = strategy([ReplayPlugin(mem_size=None, storage_policy=storage), seen], train_epochs=2)
    for experience in benchmark.train_stream:
        learner.train(experience)
    assert len(storage.buffer) == storage.memory.n == 240
    assert seen.classes == [set(range(2 * number)) for number in range(1, 6)]
    assert seen.parts == {parts}
    assert len(minibatch(storage.buffer)) == parts


def test_replayed_samples_equal_absorbed_ones(few):
    """Classes are exact and images approximate; those in the memory's buffer are exact too."""
    storage = LogCLBuffer(unit=128, settings=FAIR)
    for experience in few.with_task_labels(2).train_stream:
        storage.update_from_dataset(experience.dataset)
    before = [minibatch(experience.dataset) for experience in few.with_task_labels(2).train_stream]
    x, y, t = minibatch(storage.buffer)
    assert torch.equal(y, torch.cat([part[1] for part in before]))
    assert torch.equal(t, torch.zeros_like(y))
    assert list(storage.buffer.targets) == y.tolist()
    raw = torch.cat([part[0] for part in before])
    assert x.dtype == raw.dtype
    assert x.shape == raw.shape
    assert ((x - raw) ** 2).mean() < 0.02
    assert (x[128:] - raw[128:]).abs().max() <= 0.5 / 255 + 1e-6


def test_max_size_limits_the_buffer(few):
    storage = LogCLBuffer(max_size=50, settings=QUICK)
    learner = strategy([ReplayPlugin(mem_size=50, storage_policy=storage)], train_epochs=1)
    for experience in few.with_task_labels().train_stream:
        learner.train(experience)
    assert storage.memory.n == 240
    assert len(storage.buffer) == 50
    assert len(storage.buffer.targets.uniques) == 10
    storage.resize(learner, 20)
    assert len(storage.buffer) == 20
    storage.resize(learner, None)
    assert len(storage.buffer) == 240


def test_each_head_gets_the_samples_of_its_task(split, tmp_path):
    benchmark = split.task_incremental()
    plugin = LogCLPlugin(tmp_path / "tasks.logcl", settings=FAIR, task_balanced_dataloader=True)
    model = as_multitask(SimpleMLP(num_classes=2, input_size=64, hidden_size=64, drop_rate=0), "classifier")
    learner = strategy([plugin], model=model, train_epochs=3)
    for experience in benchmark.train_stream:
        learner.train(experience)
    model.eval()
    tests = [minibatch(experience.dataset) for experience in benchmark.test_stream]
    accuracies = [float((model(x, t).argmax(dim=1) == y).float().mean()) for x, y, t in tests]
    assert min(accuracies) > 0.75
    assert sum(accuracies) / 5 > 0.88
    # Labels in the file contain both task and class.
    memory = Memory.open(tmp_path / "tasks.logcl")
    assert set(memory.classes) == {1_000_000 * task + target for task in range(5) for target in (0, 1)}
    again = LogCLBuffer(tmp_path / "tasks.logcl", like=benchmark.train_stream[0].dataset)
    _, y, t = minibatch(again.buffer)
    expected = [minibatch(experience.dataset) for experience in benchmark.train_stream]
    assert torch.equal(y, torch.cat([part[1] for part in expected]))
    assert torch.equal(t, torch.cat([part[2] for part in expected]))


def test_balancing_tasks_needs_task_labels(few):
    learner = strategy([LogCLPlugin(settings=QUICK, task_balanced_dataloader=True)], train_epochs=1)
    with pytest.raises(BadInput, match="no task labels; leave task_balanced_dataloader out"):
        learner.train(few.without_task_labels(2).train_stream)


def test_minibatch_sizes(few):
    seen = Minibatches()
    learner = strategy([LogCLPlugin(settings=QUICK, batch_size=8, batch_size_mem=24), seen], train_epochs=1)
    first, second = few.with_task_labels(2).train_stream
    learner.train(first)
    seen.sizes.clear()
    learner.train(second, drop_last=True)
    assert max(seen.sizes) == 32


def test_workers_load_the_same_samples(few):
    seen = Minibatches()
    learner = strategy([LogCLPlugin(settings=QUICK), seen], train_epochs=1)
    learner.train(few.with_task_labels(2).train_stream, num_workers=2)
    assert seen.classes == [set(range(5)), set(range(10))]


def test_other_plugins_can_be_added(few):
    plugin = LogCLPlugin(settings=QUICK)
    learner = strategy([EWCPlugin(ewc_lambda=1.0), plugin], train_epochs=1)
    learner.train(few.with_task_labels(2).train_stream)
    assert plugin.memory.n == 240


def test_online_stream(few):
    plugin, seen = LogCLPlugin(settings=QUICK, unit=64), Minibatches()
    learner = strategy([plugin, seen], train_epochs=1, train_mb_size=10)
    for experience in split_online_stream(few.with_task_labels(2).train_stream, experience_size=10, seed=0):
        learner.train(experience)
    assert plugin.memory.n == 240
    assert len(seen.classes) == 24 + 1
    assert {10, 20} <= seen.sizes
    assert seen.classes[-1] & set(range(5))


def test_a_new_plugin_replays_an_existing_memory(few, tmp_path):
    benchmark = few.with_task_labels(2)
    strategy([LogCLPlugin(tmp_path / "a.logcl", settings=QUICK)], train_epochs=1).train(
        benchmark.train_stream[0]
    )
    seen = Minibatches()
    plugin = LogCLPlugin(Memory.open(tmp_path / "a.logcl"))
    strategy([plugin, seen], train_epochs=1).train(benchmark.train_stream[1])
    assert seen.classes == [set(range(10))]
    assert plugin.memory.n == 240
