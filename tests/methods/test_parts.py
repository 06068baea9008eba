"""The parts of methods: buffers, selections, importances, codecs."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from logcl.core.errors import BadSettings
from logcl.memory.presets import BUDGETS, preset
from logcl.memory.settings import override
from logcl.methods import Problem, codec_buffer, create, options_of
from logcl.methods.ewc import fisher_information
from logcl.methods.gdumb import balanced
from logcl.methods.gss import gradient_cosines
from logcl.methods.icarl import herd
from logcl.methods.parts.exemplars import Exemplars, capacity, check_budget, label_type
from logcl.methods.parts.rehearsal import losses, weights_ahead
from logcl.methods.parts.solver import flat_weights
from logcl.nn.classification import new_network
from logcl.nn.networks import ClassifierSpec, classifier
from logcl.streams import Task


def problem(tmp_path, budget="20/class", classes=10, shape=(1, 8, 8), name="fast", changes=None) -> Problem:
    settings = override(preset(name, shape), changes or {})
    return Problem(settings, tuple(map(str, range(classes))), tmp_path, budget)


@pytest.fixture
def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return classifier(ClassifierSpec(network="convnet", image_shape=(1, 8, 8), classes=4, width=4)).eval()


@pytest.fixture
def batch(digits):
    x, y = digits
    rows = np.flatnonzero(y < 4)[:24]
    return torch.from_numpy(x[rows]), torch.from_numpy(y[rows])


class TestBudget:
    @pytest.mark.parametrize(
        ("budget", "samples"),
        [
            ("2000", 2000),
            ("20/class", 200),
            ("0.5/class", 5),
            ("6500B", 100),
            ("6.5kB", 100),
            ("6.5 MB", 100_000),
        ],
    )
    def test_samples_samples_per_class_or_bytes(self, tmp_path, budget, samples):
        assert capacity(budget, problem(tmp_path)) == samples

    def test_bytes_count_the_label_and_the_precision(self, tmp_path):
        assert capacity("6600B", problem(tmp_path, classes=300)) == 100
        assert capacity("12900B", problem(tmp_path), torch.float16) == 100

    @pytest.mark.parametrize("budget", ["", "many", "-3", "0", "3 samples", "1TB", "nan", "1e3", "/class"])
    def test_anything_else_is_refused_with_examples(self, budget):
        with pytest.raises(BadSettings, match=r"20/class"):
            check_budget(budget)

    def test_too_little_for_one_sample(self, tmp_path):
        with pytest.raises(BadSettings, match="does not even hold one sample"):
            capacity("10B", problem(tmp_path))

    @given(st.integers(1, 100_000))
    def test_labels_take_the_fewest_bytes(self, classes):
        kind = label_type(classes)
        assert torch.iinfo(kind).max >= classes - 1
        assert kind.itemsize == 1 or torch.iinfo(label_type(256)).max < classes - 1


class TestReservoir:
    @given(st.lists(st.integers(0, 40), max_size=12), st.integers(1, 30))
    def test_holds_what_fits_and_nothing_else(self, sizes, room):
        buffer = _buffer(room)
        offered = 0
        with torch.random.fork_rng():
            torch.manual_seed(1)
            for size in sizes:
                numbers = torch.arange(offered, offered + size)
                buffer.reservoir(numbers.to(torch.uint8)[:, None, None, None].expand(-1, 1, 8, 8), numbers)
                offered += size
        assert len(buffer) == min(room, offered)
        assert buffer.offered == offered
        assert len(set(buffer.y.tolist())) == len(buffer)
        assert torch.equal(buffer.x[:, 0, 0, 0], buffer.y.to(torch.uint8))

    def test_each_sample_is_equally_likely_to_be_kept(self):
        counts = torch.zeros(100)
        with torch.random.fork_rng():
            torch.manual_seed(2)
            for _ in range(2000):
                buffer = _buffer(10)
                for part in torch.arange(100).split(17):
                    buffer.reservoir(torch.zeros(len(part), 1, 8, 8, dtype=torch.uint8), part)
                counts[buffer.y] += 1
        # 2000 draws with probability 1/10: 200 each, standard deviation 13.4.
        assert counts.sum() == 20_000
        assert (counts - 200).abs().max() < 5 * 13.4
        assert (counts[:50].mean() - counts[50:].mean()).abs() < 5 * 13.4 * (2 / 50) ** 0.5


def _buffer(room: int) -> Exemplars:
    settings = preset("fast", (1, 8, 8))
    return Exemplars(Problem(settings, tuple(map(str, range(500))), None, str(room)))


class TestSelection:
    @given(st.lists(st.integers(0, 5), min_size=1, max_size=80), st.integers(1, 90))
    def test_balanced(self, labels, room):
        y = torch.tensor(labels)
        rows = balanced(y, room, torch.Generator().manual_seed(0))
        assert len(rows) == len(set(rows.tolist())) == min(room, len(y))
        kept, there = y[rows].bincount(minlength=6), y.bincount(minlength=6)
        # No class could have one more without another, at least as small, having one less.
        assert all(kept[a] >= kept.max() - 1 for a in range(6) if kept[a] < there[a])

    def test_herding_follows_the_mean(self):
        points = torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
        rows = herd(points, 20)
        assert len(set(rows.tolist())) == 20
        mean = points.mean(dim=0)
        herded = (points[rows].mean(dim=0) - mean).norm()
        random = torch.Generator().manual_seed(1)
        sets = [torch.randperm(200, generator=random)[:20] for _ in range(50)]
        drawn = torch.stack([(points[some].mean(dim=0) - mean).norm() for some in sets])
        assert herded < drawn.min()
        assert torch.equal(herd(points, 5), rows[:5])

    def test_cosines_are_those_of_real_gradients(self, network, batch):
        x, y = batch
        found = gradient_cosines(network, (x[:6], y[:6]), (x[6:18], y[6:18]), 4).detach()

        def gradient(images, labels):
            value = losses(network, images, labels).mean()
            return torch.cat([g.reshape(-1) for g in torch.autograd.grad(value, network.head.parameters())])

        ours = [gradient(x[k : k + 1], y[k : k + 1]) for k in range(6)]
        theirs = [gradient(x[k : k + 4], y[k : k + 4]) for k in (6, 10, 14)]
        expected = torch.stack([
            torch.stack([nn.functional.cosine_similarity(a, b, dim=0) for b in theirs]) for a in ours
        ])  # fmt: skip
        assert torch.allclose(found, expected, atol=1e-4)

    def test_looking_ahead_is_one_step_of_gradient_descent(self, network, batch):
        x, y = batch
        ahead = weights_ahead(network, x, y, 0.1)
        before = losses(network, x, y).mean()
        assert losses(network, x, y, ahead).mean() < before
        optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
        losses(network, x, y).mean().backward()
        optimiser.step()
        assert all(
            torch.allclose(ahead[name], value, atol=1e-6) for name, value in network.named_parameters()
        )


class TestImportance:
    def test_fisher_is_the_mean_squared_gradient_of_single_samples(self, network, batch):
        x, _ = batch
        with torch.random.fork_rng():
            torch.manual_seed(3)
            found = fisher_information(network, x)
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(3)
            drawn = torch.multinomial(network(x / 255).softmax(dim=1), 1)[:, 0]
        expected = torch.zeros_like(found)
        for image, label in zip(x, drawn, strict=True):
            network.zero_grad()
            nn.functional.cross_entropy(network(image[None] / 255), label[None]).backward()
            expected += torch.cat([p.grad.reshape(-1) for p in network.parameters()]).square()
        assert torch.allclose(found, expected / len(x), rtol=1e-3, atol=1e-7)

    def test_one_penalty_per_task_or_a_running_one(self, tmp_path):
        here, there = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 2.0])
        many = create("ewc", problem(tmp_path), {"importance": 1.0})
        one = create("ewc-online", problem(tmp_path), {"importance": 1.0, "decay": 0.5})
        for method in (many, one):
            method.consolidate(here, torch.tensor([1.0, 1.0]))
            method.consolidate(there, torch.tensor([2.0, 0.0]))
        assert float(many.penalty(here)) == pytest.approx(0.5 * 2 * 4)
        assert one.fisher.tolist() == [[2.5, 0.5]]
        assert float(one.penalty(here)) == pytest.approx(0.5 * 2.5 * 4)

    @pytest.mark.parametrize("name", ["ewc", "si"])
    def test_a_strong_penalty_holds_the_weights(self, name, tmp_path, digits):
        """The stronger the penalty, the less the second task moves the important weights."""
        x, y = digits
        moved = {}
        option = {"ewc": "importance", "si": "strength"}[name]
        for strength in (0.0, 1e8):
            method = create(name, problem(tmp_path), {option: strength})
            for group in ((0, 1), (2, 3)):
                rows = np.flatnonzero(np.isin(y, group))[:80]
                if group == (2, 3):
                    before = flat_weights(method.network).detach().clone()
                    weight = (method.fisher[0] if name == "ewc" else method.importance).clone()
                method.learn(Task(x[rows], y[rows]))
            after = flat_weights(method.network).detach()
            moved[strength] = float((weight * (after - before).square()).sum() / weight.sum())
        assert moved[1e8] < moved[0.0] / 10


def test_ewc_is_stable_under_plain_gradient_steps(tmp_path, digits):
    """With SGD, λF times the learning rate above 2 would make the weights diverge."""
    x, y = digits
    changes = {
        "classifier.optimiser": "sgd", "classifier.learning_rate": 0.1, "classifier.schedule": "constant",
        "classifier.min_steps": 40, "classifier.epochs": 1,
    }  # fmt: skip
    mine = problem(tmp_path, changes=changes)
    method = create("ewc", mine, {"importance": 1e9})
    for classes in ((0, 1), (2, 3), (4, 5)):
        rows = np.isin(y, classes)
        method.learn(Task(x[rows][:80], y[rows][:80]))  # raises Diverged otherwise
    assert torch.isfinite(flat_weights(method.network)).all()


class TestCodecs:
    @pytest.mark.parametrize("codec", ["webp", "jpeg", "avif", "png"])
    @pytest.mark.parametrize("channels", [1, 3])
    def test_images_come_back(self, codec, channels):
        ramp = np.linspace(0, 255, 32 * 32, dtype=np.uint8).reshape(1, 32, 32)
        image = np.concatenate([ramp, ramp.transpose(0, 2, 1), ramp[:, ::-1]])[:channels]
        content = codec_buffer.compressed(image, codec, 90)
        again = codec_buffer.decompressed(content, channels)
        assert again.shape == image.shape
        error = np.abs(again.astype(int) - image).mean()
        assert error == 0 if codec == "png" else error < 12

    def test_the_quality_meets_the_bytes_per_sample(self, tmp_path):
        rng = np.random.default_rng(0)
        x = np.repeat(np.repeat(rng.integers(0, 256, (40, 3, 8, 8), dtype=np.uint8), 4, 2), 4, 3)
        y = np.zeros(40, dtype=np.int64)
        method = create(
            "codec-buffer", problem(tmp_path, shape=(3, 32, 32)), {"bytes_per_sample": 300, "codec": "webp"}
        )
        method.learn(Task(x, y))
        assert 150 < method.lengths.float().mean() <= 300

    def test_fewer_samples_are_kept_where_no_quality_is_low_enough(self, tmp_path):
        rng = np.random.default_rng(0)
        method = create(
            "codec-buffer", problem(tmp_path, shape=(1, 8, 8)), {"bytes_per_sample": 50, "codec": "jpeg"}
        )
        for _ in range(3):
            x = rng.integers(0, 256, (200, 1, 8, 8), dtype=np.uint8)
            method.learn(Task(x, np.arange(200) % 2))
        assert 40 < len(method.content) / 600 < 60
        assert len(method.lengths) < 200
        replayed = method.replayed()
        assert len(replayed.x) == len(replayed.arrival) == len(set(replayed.arrival)) < 200
        assert replayed.arrival.max() >= 400  # some of every task

    def test_what_is_impossible_is_refused(self, tmp_path):
        with pytest.raises(BadSettings, match="lossless"):
            options_of("codec-buffer", {"codec": "png", "bytes_per_sample": 100})
        with pytest.raises(BadSettings, match="2 channels"):
            create("codec-buffer", problem(tmp_path, shape=(2, 8, 8)))


@pytest.mark.parametrize(
    ("name", "budget", "epochs", "batch"), [("online", "10000", 1, 10), ("offline", "2000", 70, 128)]
)
def test_the_settings_of_the_literature(name, budget, epochs, batch):
    chosen = preset(name, (3, 32, 32)).classifier
    assert BUDGETS[name] == budget
    assert (chosen.network, chosen.width, chosen.epochs, chosen.batch_size) == ("resnet18", 20, epochs, batch)
    with torch.device("meta"):
        weights = classifier(
            ClassifierSpec(network="resnet18", image_shape=(3, 32, 32), classes=100, width=20)
        )
    assert 1.05e6 < sum(p.numel() for p in weights.parameters()) < 1.15e6


def test_retraining_leaves_outputs_of_classes_not_remembered_alone(tmp_path, digits):
    """They stay random, like the new outputs of a growing global model."""
    x, y = digits
    rows = np.flatnonzero(np.isin(y, (2, 5)))[:60]
    images, labels = torch.from_numpy(x[rows]), torch.from_numpy(y[rows])
    # Weight decay would shrink them.
    changes = {"classifier.epochs": 1, "classifier.min_steps": 20, "classifier.weight_decay": 0}
    method = create("finetune", problem(tmp_path, changes=changes))
    method.seen[7] = True  # a class that a buffer has dropped since
    before = new_network(method.problem.network, method.problem.work(0)).head.weight.detach()
    method.retrain_on(images, labels)
    after = method.network.head.weight.detach()
    changed = (after != before).any(dim=1).nonzero().flatten().tolist()
    assert changed == [2, 5]
    assert method.seen.nonzero().flatten().tolist() == [2, 5]
    assert (method.predict(x[rows]) == y[rows]).mean() > 0.9
