"""Strategies on features: benchmarks are made of them once, and memories replay them."""

import numpy as np
import pytest
import torch
from avalanche.benchmarks import nc_benchmark
from avalanche.checkpointing import maybe_load_checkpoint, save_checkpoint
from avalanche.training.plugins import ReplayPlugin
from PIL import Image
from torch import nn
from torch.utils.data import TensorDataset

from logcl import Classifier, Memory
from logcl.core.errors import BadInput, BadSettings
from logcl.integrations.avalanche import FeatureSet, LogCLBuffer, LogCLPlugin, features_of
from logcl.nn.backbones import Backbone
from tests.avalanche.digits import Digits, minibatch, strategy
from tests.helpers import CountingProgress

FINE = {"codec.step": 2, "unit": 32}


def projected(seed: int = 0) -> Backbone:
    """A random projection of the pixels: it keeps what tells digits apart."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = nn.AvgPool2d(4), nn.Flatten(), nn.Linear(3 * 64, 24), nn.ReLU()
    return Backbone.of(nn.Sequential(*layers), (3, 32, 32), name="projected")


@pytest.fixture(scope="module")
def backbone():
    return projected()


@pytest.fixture(scope="module")
def parts(split, backbone) -> tuple[FeatureSet, FeatureSet]:
    """Of the digits 0 to 3, to be learned and to be tested."""

    def some(data, count):
        rows = [row for row, target in enumerate(data.targets) if target < 4][:count]
        return Digits([data.images[row] for row in rows], [data.targets[row] for row in rows])

    return features_of(some(split.train, 300), backbone), features_of(some(split.test, 100), backbone)


def benchmark_of(parts):
    return nc_benchmark(*parts, n_experiences=2, task_labels=False, fixed_class_order=[0, 1, 2, 3])


def head() -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(24), nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 4))


def learned(benchmark, plugins, **options):
    torch.manual_seed(0)
    learner = strategy(plugins, model=head(), train_epochs=options.pop("train_epochs", 20), **options)
    for experience in benchmark.train_stream:
        learner.train(experience)
    return learner


def accuracy(learner, part: FeatureSet) -> float:
    x, y = (torch.stack([x for x, _ in part]), torch.tensor(part.targets))
    with torch.no_grad():
        return float((learner.model.eval()(x).argmax(dim=1) == y).float().mean())


def test_the_features_of_a_data_set(few, backbone):
    progress = CountingProgress()
    part = features_of(few.train, backbone, progress)
    x, y = part[7]
    assert (x.dtype, x.shape, y) == (torch.float32, (24,), few.train.targets[7])
    assert part.targets == few.train.targets
    assert (progress.steps, progress.totals) == (240, [240])
    pixels = np.rint(np.stack([image.numpy() for image in few.train.images]) * 255).astype(np.uint8)
    expected = backbone.features(pixels)
    assert np.abs(np.stack([x.numpy() for x, _ in part]) - expected).max() < 0.1
    photos = [Image.fromarray(image[0]).resize((20 + row % 3, 20)) for row, image in enumerate(pixels[:9])]
    arrays = [np.asarray(photo) for photo in photos]
    assert len(features_of(Digits(photos, [0] * 9), backbone)) == 9
    assert features_of(Digits(arrays, [0] * 9), backbone).stored.shape == (9, 24)
    with pytest.raises(BadInput, match="float images must lie in"):
        features_of(Digits(few.train.images[:3] * 3, [0] * 3), backbone)
    with pytest.raises(BadInput, match=r"sample 0 is no image, but has shape \(24,\);"):
        features_of(part, backbone)


def test_the_plugin_replays_features(parts, backbone, tmp_path):
    benchmark = benchmark_of(parts)
    naive = accuracy(learned(benchmark, []), parts[1])
    plugin = LogCLPlugin(tmp_path / "m.logcl", backbone=backbone, settings=FINE)
    learner = learned(benchmark, [plugin])
    assert naive < 0.6
    assert accuracy(learner, parts[1]) > 0.8
    memory = Memory.open(tmp_path / "m.logcl", backbone=backbone)
    assert memory.n == len(parts[0]) == plugin.memory.n
    assert memory.settings.backbone == backbone.spec
    assert plugin.memory.backbone is backbone
    assert Classifier.train(memory).predict(torch.stack([x for x, _ in parts[1]]).numpy()).shape == (
        len(parts[1]),
    )


def test_replayed_samples_are_those_of_the_memory(parts, backbone):
    storage = LogCLBuffer(backbone=backbone, settings=FINE)
    benchmark = benchmark_of(parts)
    learned(benchmark, [ReplayPlugin(mem_size=None, storage_policy=storage)], train_epochs=1)
    x, y, *_ = minibatch(storage.buffer)
    data = storage.memory.dataset(for_training=True)
    assert x.dtype == torch.float32
    assert x.shape == (len(parts[0]), 24)
    assert torch.equal(x, torch.stack([data[row][0] for row in range(len(data))]))
    assert y.tolist() == [data[row][1] for row in range(len(data))]
    before = torch.cat([minibatch(experience.dataset)[0] for experience in benchmark.train_stream])
    assert 0 < (x - before).abs().mean() < 0.1 * before.abs().mean()


def test_features_of_other_types_are_replayed_alike(backbone):
    class Doubles(TensorDataset):
        targets = property(lambda self: self.tensors[1])

    data = Doubles(torch.rand(20, 24, dtype=torch.float64, generator=torch.Generator()), torch.arange(20) % 2)
    storage = LogCLBuffer(backbone=backbone, unit=64)
    benchmark = nc_benchmark(data, data, n_experiences=1, task_labels=False)
    storage.update_from_dataset(benchmark.train_stream[0].dataset)
    assert storage.buffer[3][0].dtype == torch.float64
    before = minibatch(benchmark.train_stream[0].dataset)[0]
    assert (minibatch(storage.buffer)[0] - before).abs().max() < 0.1


def test_images_and_features_are_not_mixed(parts, few, backbone, tmp_path):
    images = few.with_task_labels(2).train_stream[0].dataset
    features = benchmark_of(parts).train_stream[0].dataset
    with pytest.raises(BadInput, match=r"holds features \(24,\); make the benchmark of features_of"):
        LogCLBuffer(tmp_path / "m.logcl", backbone=backbone).update_from_dataset(images)
    assert not (tmp_path / "m.logcl").exists()
    with pytest.raises(BadInput, match=r"samples are Tensor of shape \(24,\)"):
        LogCLBuffer(tmp_path / "m.logcl").update_from_dataset(features)
    storage = LogCLBuffer(tmp_path / "m.logcl", backbone=backbone)
    storage.update_from_dataset(features)
    other = projected(seed=1)
    with pytest.raises(BadInput, match="features of another backbone, projected with weights"):
        storage.update_from_dataset(
            nc_benchmark(*[features_of(few.test, other)] * 2, n_experiences=1, task_labels=False)
            .train_stream[0]
            .dataset
        )
    with pytest.raises(BadSettings, match="holds features of projected"):
        LogCLBuffer(tmp_path / "m.logcl", backbone=other).update_from_dataset(features)


def test_a_run_is_repeated_and_resumed(parts, backbone, tmp_path):
    benchmark, path = benchmark_of(parts), tmp_path / "m.logcl"
    learner = learned(benchmark, [LogCLPlugin(path, backbone=backbone, settings=FINE)], train_epochs=1)
    save_checkpoint(learner, tmp_path / "checkpoint.pkl", exclude=["optimizer"])
    learned(benchmark, [LogCLPlugin(path, backbone=backbone, settings=FINE)], train_epochs=1)
    assert Memory.open(path).n == len(parts[0])  # nothing was absorbed twice
    again, done = maybe_load_checkpoint(learner, tmp_path / "checkpoint.pkl")
    assert done == 2
    assert again.plugins[0].memory.n == len(parts[0])


def test_the_built_in_backbone_by_name(tmp_path):
    photos = [Image.new("RGB", (40, 30), (60 * row, 90, 120)) for row in range(4)]
    part = features_of(Digits(photos, [0, 0, 1, 1]), "efficientnet-lite0")
    benchmark = nc_benchmark(part, part, n_experiences=2, task_labels=False, fixed_class_order=[0, 1])
    storage = LogCLBuffer(tmp_path / "m.logcl", backbone="efficientnet-lite0")
    for experience in benchmark.train_stream:
        storage.update_from_dataset(experience.dataset)
    assert storage.memory.settings.backbone == part.spec
    assert storage.buffer[0][0].shape == (1280,)
    assert Memory.open(tmp_path / "m.logcl", backbone="efficientnet-lite0").n == 4
