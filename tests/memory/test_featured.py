"""A memory of features: images or features go in, features come out, with the network or without it."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from logcl import Classifier, Memory
from logcl.core.errors import BadInput, BadSettings, Damaged
from logcl.core.features import from_bytes, to_bytes
from logcl.core.progress import Silent
from logcl.core.settings import parse_as
from logcl.memory import heads
from logcl.memory.manifest import Manifest
from logcl.memory.presets import preset
from logcl.memory.salvage import salvage
from logcl.nn import backbones
from logcl.nn.training import Work, generator_for
from tests.helpers import feature_bytes, smooth, tiny_backbone

BY_HEART = {"epochs": 150, "learning_rate": 1e-2, "weight_decay": 0}
QUICK = {"classifier.min_steps": 30, "classifier.epochs": 2, "codec.step": 3}
LEVELS = 150  # samples: two levels, and some in the buffer


@pytest.fixture(scope="module")
def backbone():
    return tiny_backbone()


@pytest.fixture(scope="module")
def photos() -> np.ndarray:
    return smooth(LEVELS, (3, 20, 20))


@pytest.fixture(scope="module")
def kept(tmp_path_factory, backbone, photos) -> Memory:
    """Six tasks, which merge levels; labels are sample indices modulo 5."""
    memory = Memory.open(
        tmp_path_factory.mktemp("kept") / "m.logcl", backbone=backbone, unit=32, settings=QUICK
    )
    for start in range(0, LEVELS, 25):
        rows = range(start, start + 25)
        images = photos[rows] if start % 50 else backbone.features(photos[rows])
        memory.absorb(images, [row % 5 for row in rows])
    Classifier.train(memory)
    return memory


@pytest.fixture
def copied(kept, tmp_path) -> Memory:
    """The same file for a process that has no such network."""
    (tmp_path / "copy.logcl").write_bytes(kept.path.read_bytes())
    return Memory.open(tmp_path / "copy.logcl")


@pytest.fixture
def features(backbone, photos) -> np.ndarray:
    return backbone.features(photos)


def near(found, features, backbone) -> bool:
    """Within a step of 3 bytes, which are a thirtieth of the scale each."""
    step = 3 * backbone.spec.scale * np.arcsinh(32) / 127
    return bool((np.abs(np.asarray(found) - features) <= 0.6 * step * np.hypot(1, features + step)).all())


def test_what_is_absorbed_comes_back_as_features(kept, backbone, features):
    now = kept.snapshot()
    assert len(now.levels) == 1
    assert len(now.buffer.y) == LEVELS - 128
    data = kept.dataset()
    x, y = data[0]
    assert (x.dtype, x.shape, y) == (torch.float32, (24,), 0)
    found = torch.stack([data[row][0] for row in range(LEVELS)])
    assert near(found, features, backbone)
    assert [data[row][1] for row in range(LEVELS)] == [row % 5 for row in range(LEVELS)]


def test_merges_are_no_new_generation(kept):
    """Codes are copied: each sample was encoded once, however often its level has merged."""
    (level,) = kept.snapshot().levels
    assert level.slot.level == 2
    assert {run.generation for run in level.runs} == {0}
    assert {len(run.errors) for run in level.runs} == {1}
    assert kept.verify() == []


def test_replay_and_loaders(kept, backbone, features):
    x, y = next(kept.replay(64, seed=3))
    assert (x.dtype, x.shape, y.dtype, y.shape) == (torch.float32, (64, 24), torch.int64, (64,))
    nearest = np.abs(x.numpy()[:, None] - features[None]).mean(axis=2).argmin(axis=1)
    assert (nearest % 5 == y.numpy()).mean() > 0.95
    with torch.random.fork_rng():
        for loader in (
            DataLoader(kept.dataset(), batch_size=40),
            DataLoader(kept.dataset(iterable=True, batch_size=40), batch_size=None),
        ):
            batches = list(loader)
            assert sum(len(y) for _, y in batches) == LEVELS
            assert {(x.dtype, *x.shape[1:]) for x, _ in batches} == {(torch.float32, 24)}
    assert kept.dataset(for_training=True)[7][0].shape == (24,)


def test_bytes_of_features_are_taken_as_they_are(tmp_path, backbone, photos):
    memory = Memory.open(tmp_path / "m.logcl", backbone=backbone, unit=64)
    memory.absorb(backbone.samples(photos[:10]), list(range(10)))
    exact = from_bytes(backbone.samples(photos[:10]).reshape(10, -1), backbone.spec.scale)
    found = torch.stack([memory.dataset()[row][0] for row in range(10)])
    assert (found.numpy() == exact).all()  # still in the buffer


def test_the_same_images_are_the_same_task(tmp_path, backbone, photos):
    """However they are given."""
    memory = Memory.open(tmp_path / "m.logcl", backbone=backbone)
    memory.absorb(photos[:8], [0] * 8)
    for same in (
        photos[:8].transpose(0, 2, 3, 1),
        backbone.features(photos[:8]),
        backbone.samples(photos[:8]),
    ):
        with pytest.raises(BadInput, match="already"):
            memory.absorb(same, [0] * 8)


# --- classifiers ------------------------------------------------------------------------------------------


def test_predictions_from_images_and_from_features_agree(kept, photos, features):
    classifier = Classifier.load(kept)
    assert classifier.image_shape == (3, 16, 16)
    expected = classifier.predict_proba(photos[:9])
    assert expected.shape == (9, 5)
    for same in (
        features[:9],
        photos[:9].transpose(0, 2, 3, 1),
        photos[:9] / 255,
        torch.from_numpy(features[:9]),
    ):
        assert np.allclose(classifier.predict_proba(same), expected, atol=1e-5)
    assert classifier.predict_proba(features[:0]).shape == (0, 5)


def test_predictions_from_features_need_no_network(copied, kept, photos, features):
    assert (Classifier.load(copied).predict(features) == Classifier.load(kept).predict(features)).all()
    with pytest.raises(BadSettings, match="computed by tiny, which cannot be had here"):
        Classifier.load(copied).predict(photos)


class Head(nn.Module):
    """A network of the user's, on features."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.dtype == torch.float32
        assert x.shape[1:] == (24,)
        return self.layers(x)


@pytest.fixture
def own_randomness():
    """Networks draw their first weights from torch's global random state."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.mark.usefixtures("own_randomness")
def test_a_network_of_the_users_own(copied, features, photos, backbone):
    network = Head()
    before = network.layers[0].weight.detach().clone()
    classifier = Classifier.train(copied, network=network, recipe=BY_HEART)
    assert classifier.network is network
    assert not torch.equal(network.layers[0].weight, before)
    predicted = classifier.predict(features)
    assert (predicted == np.arange(LEVELS) % 5).mean() > 0.35  # by chance a fifth: it has learned by heart
    again = Classifier.load(Memory.open(copied.path, backbone=backbone), network=Head())
    assert (again.predict_proba(features) == classifier.predict_proba(features)).all()
    assert np.allclose(again.predict_proba(photos), classifier.predict_proba(features), atol=1e-5)
    scale = backbone.spec.scale
    with torch.no_grad():
        scores = again.network(torch.from_numpy(from_bytes(to_bytes(features, scale), scale)))
    assert (scores.argmax(dim=1).numpy() == predicted).all()
    with pytest.raises(BadInput, match=r"gives .* for 2 images"):
        Classifier.train(copied, network=nn.Linear(24, 4))


@pytest.mark.parametrize(("rate", "kind"), [(0.3, "linear"), (1e-3, "hidden")])
def test_the_head_is_chosen_by_validation(tmp_path, rate, kind):
    """Classes that planes tell apart, at a rate too high for a hidden layer; classes that no plane does."""
    backbone = tiny_backbone()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 24))
    linear = (x @ rng.normal(size=(24, 4))).argmax(axis=1)
    y = linear if kind == "linear" else np.abs(x[:, :4]).sum(axis=1) > 3.1
    settings = {"codec.step": 2, "classifier.learning_rate": rate, "classifier.weight_decay": 0}
    memory = Memory.open(tmp_path / "m.logcl", backbone=backbone, settings=settings)
    memory.absorb(x * backbone.spec.scale, y.astype(int))
    now, settings = memory.snapshot(), memory.settings.classifier
    assert settings.network == "head"
    chosen = [heads.decided(now, settings, Work(generator_for(0), Silent())) for _ in range(2)]
    assert chosen[0] == chosen[1]
    assert chosen[0].network == kind
    own = settings.model_copy(update={"network": "linear"})
    assert heads.decided(now, own, Work(generator_for(0), Silent())) is own


def test_of_few_samples_the_head_is_not_validated(tmp_path):
    memory = Memory.open(tmp_path / "m.logcl", backbone=tiny_backbone(), settings=QUICK)
    memory.absorb(np.random.default_rng(0).normal(size=(20, 24)), [0, 1] * 10)
    assert Classifier.train(memory).about.network.network == "hidden"


# --- files ------------------------------------------------------------------------------------------------


def test_everything_but_new_images_works_without_the_network(copied, features, logcl, tmp_path):
    assert copied.verify() == []
    assert copied.settings.input_shape == (3, 16, 16)
    assert len(list(zip(range(2), copied.replay(8), strict=False))) == 2
    ran = logcl("inspect", copied.path, "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["samples"] == LEVELS
    assert logcl("verify", copied.path).code == 0
    copied.absorb(features[:3], [0, 1, 2], again=True)
    Classifier.train(copied)
    assert copied.n == LEVELS + 3


def test_salvage_keeps_features(copied, kept, tmp_path):
    saved = salvage(copied.path, tmp_path / "saved.logcl")
    memory = Memory(tmp_path / "saved.logcl")
    assert (saved.samples_lost, memory.n) == (0, LEVELS)
    assert memory.settings.backbone == kept.settings.backbone
    (x, y), (z, w) = memory.snapshot().everything(), kept.snapshot().everything()
    assert torch.equal(x, z)
    assert (y == w).all()


def test_another_backbone_or_other_weights_are_refused(copied, kept, backbone, tmp_path, photos):
    path = copied.path
    for other, problem in (
        (tiny_backbone(seed=1), "holds features of tiny with weights .* not features of tiny with weights"),
        (tiny_backbone(side=24), "for images 3x16x16, not .* for images 3x24x24"),
        ("efficientnet-lite0", "holds features of tiny .*, not features of efficientnet-lite0;"),
    ):
        with pytest.raises(BadSettings, match=problem) as raised:
            Memory.open(path, backbone=other)
        assert "\n" not in str(raised.value)
    with pytest.raises(BadSettings, match=r"is for images of shape \(3, 16, 16\), not \(3, 8, 8\)"):
        Memory.open(path, 8, backbone=backbone)
    assert Memory.open(path, 16, backbone=backbone).backbone is backbone
    assert Memory.open(path, backbone="tiny").given is None
    Memory.open(tmp_path / "images.logcl", 20).absorb(photos[:3], [0, 1, 2])
    with pytest.raises(BadSettings, match="holds images, not features of tiny"):
        Memory.open(tmp_path / "images.logcl", backbone=backbone)


def test_a_backbone_is_found_by_its_name(tmp_path):
    path, photo = tmp_path / "m.logcl", smooth(1, (3, 70, 90))
    first = Memory.open(path, 32, backbone="efficientnet-lite0")
    first.absorb(photo, ["a"])
    again = Memory.open(path)
    assert again.backbone.spec == first.backbone.spec
    again.absorb(photo, ["b"], again=True)
    (x, _), (z, _) = (again.dataset()[row] for row in (0, 1))
    assert torch.equal(x, z)
    assert Memory.open(path, backbone="efficientnet-lite0").settings.input_shape == (3, 32, 32)


@pytest.mark.parametrize(
    "changes",
    [
        {"features": 25}, {"features": 1}, {"features": -1}, {"features": 2**62}, {"scale": 0}, {"scale": -1},
        {"scale": "x"}, {"weights": "../../etc/passwd"}, {"weights": ""}, {"mean": [0.5]}, {"std": [0, 1, 1]},
        {"name": "x" * 1000}, {"image_shape": [3, 0, 16]}, {"image_shape": [3, 10**9, 10**9]}, {"more": 1},
        {"image_shape": [3, 4096, 4096]}, {"scale": float("inf")}, {"scale": float("nan")}, {"scale": 1e300},
        {"scale": 1e-300}, {"mean": [1e300] * 3}, {"std": [1e-300] * 3},
    ],
)  # fmt: skip
def test_forged_backbones_are_refused(kept, changes):
    header = json.loads(json.dumps(kept.manifest.as_data()))
    header["settings"]["backbone"].update(changes)
    with pytest.raises((Damaged, BadSettings)):
        parse_as(Manifest, header)


def test_a_backbone_that_gives_other_features_than_the_file_says(tmp_path):
    path, built_in = tmp_path / "m.logcl", backbones.load("efficientnet-lite0", image_shape=(3, 32, 32))
    forged = built_in.spec.model_copy(update={"features": 1281})
    Memory.create(path, preset("fast", (3, 32, 32), None, forged))
    with pytest.raises(Damaged, match="gives 1280 features per image and not 1,281"):
        Memory.open(path).absorb(smooth(1, (3, 32, 32)), ["a"])


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (np.zeros((2, 25), np.float32), r"features have shape \(2, 25\) and type float32"),
        (np.zeros((2, 24), np.int64), r"type int64; this memory takes floats \(n, 24\)"),
        (np.array([[0.0] * 24, [np.inf] * 24]), "features 1 have NaN or infinite values"),
        (np.zeros((2, 7, 8, 9)), r"this memory takes \(n, 3, height, width\)"),
        (np.zeros(24), "this memory takes"),
        (np.full((2, 3, 4, 4), 3.0), "float images must lie in"),
    ],
)
def test_what_is_neither_images_nor_features_is_refused(copied, backbone, wrong, problem):
    memory = Memory.open(copied.path, backbone=backbone)
    with pytest.raises(BadInput, match=problem):
        memory.absorb(wrong, [0, 1])
    assert memory.n == LEVELS


def test_the_rate_is_chosen_on_the_first_unit_and_told(tmp_path, backbone):
    memory = Memory.open(tmp_path / "m.logcl", backbone=backbone, unit=64)
    x, y = feature_bytes(130, values=24)
    memory.absorb(x, y)
    assert memory.manifest.choice is not None
    assert memory.settings.codec.step in (14, 17, 20, 24)
    assert len(memory.manifest.choice.trials) == 4
    with pytest.raises(BadSettings, match="preset paper is for images"):
        Memory.open(tmp_path / "other.logcl", backbone=backbone, preset="paper")
