"""The global model: learns from replay alone, is stored in the memory's file, knows when it is outdated."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from logcl import Classifier, Memory
from logcl.core.errors import BadInput, BadSettings, Damaged, NotTrained
from logcl.core.progress import Progress, Silent
from logcl.core.sharding import Shard
from logcl.memory import classifier_limits as limits
from logcl.memory.classifier import _take_over
from logcl.memory.classifier_job import learn
from logcl.nn import blobs
from logcl.nn.classification import new_network
from logcl.nn.networks import ClassifierSpec
from logcl.nn.training import Work
from tests.helpers import page_of, smooth

BRIEF = {"epochs": 1, "min_steps": 10}
"""The recipe of a training whose result need not be good."""


@pytest.fixture(scope="module")
def absorbed(tmp_path_factory, digits) -> Path:
    """900 digits in two tasks."""
    x, y = digits
    memory = Memory.open(
        tmp_path_factory.mktemp("absorbed") / "m.logcl",
        (1, 8, 8),
        unit=64,
        settings={"codec.name": "autoencoder", "codec.min_steps": 300},
    )
    for classes in ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9)):
        mine = np.flatnonzero(np.isin(y[:900], classes))
        memory.absorb(x[mine], y[mine])
    return memory.path


@pytest.fixture
def memory(tmp_path, absorbed) -> Memory:
    """A copy of it."""
    return Memory.open(shutil.copy(absorbed, tmp_path / "m.logcl"))


def test_it_learns_from_replay_and_is_stored(memory, digits):
    before = memory.digest
    trained = Classifier.train(memory)
    x, y = digits[0][900:], digits[1][900:]
    accuracy = (trained.predict(x) == y).mean()
    assert accuracy > 0.85
    loaded = Classifier.load(Memory.open(memory.path))
    assert np.array_equal(loaded.predict(x), trained.predict(x))
    probabilities = loaded.predict_proba(x / 255)
    assert probabilities.shape == (len(x), 10)
    assert np.allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    assert loaded.classes == memory.classes
    assert memory.digest == before  # derived from the memory, not part of it
    assert memory.verify() == []
    rest = memory.path.stat().st_size - memory.nbytes()
    # Whole pages, each with a link of four bytes.
    page = page_of(memory.path)
    own = -(-memory.file.sizes()["classifier"] // (page - 4)) * page
    assert own <= rest <= own * (1 + 5 / page) + page  # one page in page / 5 maps the others
    assert trained.predict(x[:0]).tolist() == []
    assert trained.predict_proba(x[:0]).shape == (0, 10)


def test_it_knows_when_the_memory_has_changed(memory, digits, quick):
    trained = Classifier.train(memory, recipe=BRIEF)
    assert trained.is_current(memory)
    memory.absorb(digits[0][:1], [17])
    assert not trained.is_current(memory)
    assert 17 not in Classifier.load(memory).classes


def test_the_same_seed_gives_the_same_predictions(memory, digits):
    runs = [Classifier.train(memory, recipe=BRIEF, seed=s).predict_proba(digits[0][:50]) for s in (1, 1, 2)]
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def test_decoding_on_the_fly_gives_the_same_classifier(memory, digits, monkeypatch):
    """A memory too large to be decoded at once is decoded batch by batch."""
    cached = Classifier.train(memory, recipe={"epochs": 2})
    monkeypatch.setattr("logcl.memory.classifier_limits._CACHE", 0)
    on_the_fly = Classifier.train(memory, recipe={"epochs": 2})
    agree = (cached.predict(digits[0]) == on_the_fly.predict(digits[0])).mean()
    assert agree > 0.98  # in another batch a pixel may be rounded differently


class TestWarmStart:
    RECIPE = {"warm_start": True, "warm_share": 0.1}  # noqa: RUF012

    def test_a_warm_start_adds_new_classes(self, memory, digits):
        """A tenth of the steps is too few to learn ten classes from scratch, and enough to add one."""
        x, y = digits[0][900:], digits[1][900:]
        first = Classifier.train(memory, recipe=self.RECIPE)  # no previous model: all steps
        before = first.predict(x)
        assert (before == y).mean() > 0.85
        memory.absorb(255 - digits[0][:40], [17] * 40)
        brief = {"epochs": 1, "min_steps": 12}  # a tenth of the recipe
        warm = Classifier.train(memory, recipe=self.RECIPE)
        scratch = Classifier.train(memory, recipe=brief)
        assert warm.classes == memory.classes
        assert (warm.predict(x) == before).mean() > 0.9
        assert (warm.predict(x) == before).mean() > (scratch.predict(x) == before).mean() + 0.1
        assert (warm.predict(255 - x) == 17).mean() > 0.9

    def test_labels_keep_their_outputs_whatever_their_numbers(self, memory):
        """Outputs are matched by label: here the classes of the memory have another order."""
        last = Classifier.train(memory, recipe=BRIEF)
        spec = last.about.network
        network = new_network(spec.model_copy(update={"classes": 12}), Work(torch.Generator().manual_seed(0)))
        classes = ("new", *reversed(last.classes), "newer")
        fresh = network.head.weight.detach().clone()
        _take_over(network, classes, last)
        x = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            mine, theirs = network.eval()(x), last.network(x)
        assert torch.allclose(mine[:, 1:11].flip(1), theirs, atol=1e-5)
        assert torch.equal(network.head.weight[[0, 11]], fresh[[0, 11]])

    def test_every_warm_start_has_its_own_randomness(self, memory, monkeypatch):
        """Order and noise differ each time, although memory and seed are the same."""
        begun = []

        def recorded(spec, work):
            begun.append(work.generator.get_state())
            return new_network(spec, work)

        monkeypatch.setattr("logcl.memory.classifier.new_network", recorded)
        for _ in range(3):
            Classifier.train(memory, recipe={**self.RECIPE, **BRIEF})
        first, second, third = begun
        assert not torch.equal(first, second)
        assert not torch.equal(second, third)

    def test_a_warm_start_needs_the_same_intact_network(self, memory):
        cold = Classifier.train(memory, recipe=BRIEF).fingerprint()
        recipe = {**self.RECIPE, **BRIEF}
        Classifier.train(memory, own_network(), BRIEF)
        assert Classifier.train(memory, recipe=recipe).fingerprint() == cold
        Classifier.train(memory, recipe={**BRIEF, "width": 3})
        assert Classifier.train(memory, recipe=recipe).fingerprint() == cold
        memory.file.write_classifier(b"\x00" * 100)
        assert Classifier.train(memory, recipe=recipe).fingerprint() == cold
        assert Classifier.train(memory, recipe=recipe).fingerprint() != cold


class TestSize:
    """The network is a setting in the file: its weights, too, must be justified by the size of the file."""

    @pytest.fixture
    def wide(self, tmp_path, digits, monkeypatch):
        def refuse(*given):
            raise AssertionError("it was built")

        settings = {"codec.name": "cosine", "classifier.network": "mlp", "classifier.width": 1024}
        memory = Memory.open(tmp_path / "m.logcl", (1, 8, 8), unit=64, settings=settings)
        memory.absorb(digits[0][:70], digits[1][:70])
        monkeypatch.setattr("logcl.memory.classifier.new_network", refuse)
        return memory

    @pytest.mark.parametrize("recipe", [None, {"epochs": 1}])
    def test_too_many_weights_are_refused(self, wide, recipe):
        with pytest.raises(BadSettings, match=r"takes .* or this one with `--set classifier\.width=1024`"):
            Classifier.train(wide, recipe=recipe)

    def test_unless_they_are_asked_for(self, wide):
        for recipe in ({"width": 1024}, wide.settings.classifier):
            with pytest.raises(AssertionError, match="it was built"):
                Classifier.train(wide, recipe=recipe)


def test_string_labels_and_a_single_class(tmp_path, digits, quick):
    memory = Memory.open(tmp_path / "one.logcl", (1, 8, 8), settings=quick)
    memory.absorb(digits[0][:3], ["only"] * 3)
    assert Classifier.train(memory).predict(digits[0][:2]).tolist() == ["only", "only"]


def test_nothing_to_train_or_load(tmp_path, quick):
    memory = Memory.open(tmp_path / "m.logcl", (1, 8, 8), settings=quick)
    with pytest.raises(NotTrained, match="holds no samples yet"):
        Classifier.train(memory)
    with pytest.raises(NotTrained, match="has no trained classifier"):
        Classifier.load(memory)


def test_bad_images_and_damage_are_refused(memory, digits):
    trained = Classifier.train(memory, recipe=BRIEF)
    with pytest.raises(BadInput, match="shape"):
        trained.predict(digits[0][:, :, :5])
    memory.file.write_classifier(b"\x00" * 100)
    with pytest.raises(Damaged, match="the global model"):
        Classifier.load(memory)


def own_network(classes: int = 10) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(
            nn.Flatten(), nn.Linear(64, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, classes)
        )


def test_any_network_is_trained_in_place_and_found_again(memory, digits):
    network = own_network()
    before = network[1].weight.detach().clone()
    trained = Classifier.train(memory, network=network, recipe={"epochs": 20, "learning_rate": 1e-2})
    assert trained.network is network
    assert not network.training
    assert not torch.equal(before, network[1].weight)
    assert (trained.predict(digits[0][:200]) == digits[1][:200]).mean() > 0.8

    again = Classifier.load(Memory.open(memory.path), network=own_network())
    assert np.array_equal(again.predict_proba(digits[0]), trained.predict_proba(digits[0]))
    assert again.classes == trained.classes


def test_own_networks_are_loaded_into_one_of_the_same_kind(memory, logcl, tmp_path, digits):
    Classifier.train(memory, own_network(), BRIEF)
    with pytest.raises(NotTrained, match=r"a network of your own, a Sequential; give one to"):
        Classifier.load(memory)
    with pytest.raises(BadInput, match="does not fit the network given, a Sequential"):
        Classifier.load(memory, own_network(classes=9))
    assert logcl("verify", memory.path).code == 0
    assert "up to date" in logcl("inspect", memory.path).out
    np.savez(tmp_path / "photos.npz", x=digits[0][:2])
    ran = logcl("predict", memory.path, tmp_path / "photos.npz")
    assert ran.code == 8
    assert "logcl train" in ran.err
    assert logcl("train", memory.path, "--set", "classifier.epochs=1").code == 0
    with pytest.raises(BadInput, match="LogCL's own"):
        Classifier.load(memory, own_network())


def test_a_network_that_cannot_classify_is_refused_before_it_is_trained(memory):
    with pytest.raises(BadInput, match=r"the network Sequential gives \(2, 7\) for 2 images; .* \(2, 10\)"):
        Classifier.train(memory, own_network(classes=7))
    with pytest.raises(BadInput, match="no weights to train"):
        Classifier.train(memory, nn.Flatten())
    with pytest.raises(BadSettings, match="no setting 'epoch' of a classifier"):
        Classifier.train(memory, recipe={"epoch": 3})


def test_shards_together_are_all_samples(memory):
    """Several processes together train on what one would train on."""
    now = memory.snapshot()
    x, y = now.everything()
    parts = [now.everything(shard=Shard(rank, 3)) for rank in range(3)]
    for rank, (images, classes) in enumerate(parts):
        assert torch.equal(images, x[rank::3])
        assert np.array_equal(classes, y[rank::3])


def test_more_processes_than_samples(memory, monkeypatch):
    """Every process takes the same number of steps; some share a sample."""
    monkeypatch.setattr(nn.parallel, "DistributedDataParallel", lambda network: network)
    now = memory.snapshot()
    settings = now.settings.classifier.model_copy(update={"epochs": 1, "min_steps": 2})
    state = torch.Generator().manual_seed(0).get_state()
    share = Shard(rank=now.n + 3, count=now.n + 4)
    with torch.random.fork_rng():
        network = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 10)
        )  # batch normalisation needs more than one sample
    before = network[1].weight.detach().clone()
    weights = learn(now, network, settings, state, None, None, None, 2**30, None, False, share, Silent())
    assert not torch.equal(weights["1.weight"], before)


def test_the_time_is_told_and_kept(memory, monkeypatch):
    class Listening(Progress):
        track = Silent.track

        def say(self, text):
            said.append(text)

    said: list[str] = []
    Classifier.train(memory, recipe=BRIEF, progress=Listening())
    assert re.fullmatch(
        r"global model: takes about .*: 1.43 epochs of 900 images, [0-9,.e+]+ images per second", said.pop()
    )
    monkeypatch.setattr("logcl.memory.classifier_job.seconds_per_image", lambda *_: 0.1)
    steps = []
    recipe = {"epochs": 9, "min_steps": 0}
    watch = [lambda moment: steps.append(moment.step)]
    Classifier.train(memory, recipe=recipe, minutes=3.5, callbacks=watch, progress=Listening())
    assert steps == [7, 14]
    assert said == ["global model: takes about 3 min: 2 of 9 epochs of 900 images, 10 images per second"]


@pytest.mark.parametrize("minutes", [0, -1, float("nan"), float("inf"), 1e9])
def test_no_time_is_refused(memory, minutes):
    with pytest.raises(BadInput, match=r"minutes is .*; give a number above 0"):
        Classifier.train(memory, minutes=minutes)


def test_it_is_stored_in_half_precision_and_predicts_the_same(memory, digits):
    trained = Classifier.train(memory, recipe=BRIEF)
    stored = blobs.load(memory.file.read_classifier(), "it")[1]
    assert {value.dtype for name, value in stored.items() if name.endswith("weight")} == {torch.float16}
    loaded = Classifier.load(memory)
    assert np.array_equal(loaded.predict_proba(digits[0]), trained.predict_proba(digits[0]))
    assert loaded.fingerprint() == trained.fingerprint()


def test_weights_beyond_half_precision_are_stored_as_they_are():
    with torch.random.fork_rng(), torch.no_grad():
        large = nn.Linear(64, 10)
        large.weight[0, 0] = 1e6
    found = blobs.weights(large, "it", "half")
    assert (found["it.weight"].dtype, found["it.bias"].dtype) == (torch.float32, torch.float16)
    blobs.round_weights(large, "half")
    assert torch.equal(large.weight, found["it.weight"])


class TestInterruptedTraining:
    RECIPE = {"epochs": 8, "min_steps": 0}  # noqa: RUF012

    @staticmethod
    def interrupt_at(step):
        def stop(moment):
            if moment.step >= step:
                raise KeyboardInterrupt

        return [stop]

    def interrupted(self, memory, epoch=5, network=None, **options):
        """A training that is stopped while the given epoch ends."""
        now = memory.snapshot()
        per_epoch = max(round(now.n / now.settings.classifier.batch_size), 1)
        with pytest.raises(KeyboardInterrupt):
            Classifier.train(
                memory,
                network,
                callbacks=self.interrupt_at(epoch * per_epoch),
                **{"recipe": self.RECIPE, **options},
            )

    @pytest.mark.parametrize("own", [False, True], ids=["LogCL's network", "own network"])
    def test_it_continues_and_ends_with_the_same_weights(self, memory, own):
        whole = Classifier.train(memory, own_network() if own else None, self.RECIPE).fingerprint()
        stored, size = memory.file.read_classifier(), memory.nbytes()
        for epoch in (3, 6):
            self.interrupted(memory, epoch, own_network() if own else None)
            kept = Classifier.unfinished(Memory(memory.path))
            assert (kept.epoch, kept.epochs) == (epoch - 1, 8)
            assert memory.file.read_classifier() == stored
            assert abs(memory.nbytes() - size) <= page_of(memory.path)
            assert memory.verify() == []
        done = Classifier.train(Memory(memory.path), own_network() if own else None, self.RECIPE)
        assert done.resumed == 5
        assert done.fingerprint() == whole
        assert memory.file.staged() == {}
        assert Classifier.unfinished(memory) is None
        assert Classifier.train(memory, own_network() if own else None, self.RECIPE).resumed == 0

    def test_it_continues_with_any_time_there_is(self, memory, monkeypatch):
        """What was learned is not dropped because the user has more time, or less."""
        monkeypatch.setattr(
            "logcl.memory.classifier_job.seconds_per_image", lambda *_: 60 / 900
        )  # 1 min an epoch
        self.interrupted(memory, 3, minutes=5.5)
        assert Classifier.unfinished(memory).epochs == 5
        steps = []
        done = Classifier.train(
            memory, recipe=self.RECIPE, callbacks=[lambda moment: steps.append(moment.step)]
        )
        assert (done.resumed, steps) == (2, [21, 28, 35])  # as it would have ended
        self.interrupted(memory, 5)
        steps = []
        shorter = {"minutes": 1.5, "callbacks": [lambda moment: steps.append(moment.step)]}
        assert Classifier.train(memory, recipe=self.RECIPE, **shorter).resumed == 4
        assert steps == [35]

    def test_a_warm_start_continues_too(self, memory):
        recipe = {**self.RECIPE, "warm_start": True, "warm_share": 1.0}
        Classifier.train(memory, recipe=self.RECIPE)
        before = memory.file.read_classifier()
        whole = Classifier.train(memory, recipe=recipe).fingerprint()
        memory.file.write_classifier(before)
        self.interrupted(memory, recipe=recipe)
        done = Classifier.train(memory, recipe=recipe)
        assert (done.resumed, done.fingerprint()) == (4, whole)

    def test_an_interrupt_before_the_end_of_the_first_epoch_keeps_nothing(self, memory):
        self.interrupted(memory, epoch=1)
        assert memory.file.staged() == {}
        assert memory.file.read_classifier() is None

    @pytest.mark.parametrize(
        "other", [{"seed": 5}, {"recipe": {"epochs": 7, "min_steps": 0}}, {"network": own_network()}], ids=str
    )
    def test_another_training_drops_it(self, memory, other):
        self.interrupted(memory)
        with pytest.raises(KeyboardInterrupt):
            Classifier.train(memory, **{"recipe": self.RECIPE, **other}, callbacks=self.interrupt_at(0))
        assert memory.file.staged() == {}
        self.interrupted(memory)
        assert Classifier.train(memory, **{"recipe": self.RECIPE, **other}).resumed == 0

    def test_a_change_of_the_memory_drops_it(self, memory, digits):
        self.interrupted(memory)
        memory.absorb(digits[0][900:901], digits[1][900:901])
        assert memory.file.staged() == {}

        def absorb_then_stop(moment):
            memory.absorb(digits[0][901:902], digits[1][901:902], again=True)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            Classifier.train(memory, recipe=self.RECIPE, callbacks=[absorb_then_stop])
        assert memory.file.staged() == {}

    def test_another_memory_at_the_path_is_left_alone(self, memory, tmp_path, digits, quick):
        other = Memory.open(tmp_path / "other.logcl", (1, 8, 8), settings=quick)
        other.absorb(digits[0][:5], digits[1][:5])
        content = other.path.read_bytes()

        def replace(moment):
            if moment.step > 30:
                other.path.replace(memory.path)
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            Classifier.train(memory, recipe=self.RECIPE, callbacks=[replace])
        assert memory.path.read_bytes() == content

    def test_a_process_that_is_killed_leaves_a_recent_epoch(self, memory, monkeypatch):
        monkeypatch.setattr("logcl.memory.interrupted._WRITE_EVERY", 0.0)
        written = []
        stage = type(memory.file).stage
        monkeypatch.setattr(
            type(memory.file), "stage", lambda file, *given: (written.append(1), stage(file, *given))[1]
        )
        Classifier.train(memory, recipe=self.RECIPE)
        assert len(written) == 7

    def test_a_damaged_state_starts_from_scratch(self, memory):
        whole = Classifier.train(memory, recipe=self.RECIPE).fingerprint()
        memory.file.stage(memory.file.header(), "classifier", b"nonsense")
        assert Classifier.unfinished(memory) is None
        assert Classifier.train(memory, recipe=self.RECIPE).fingerprint() == whole
        assert memory.file.staged() == {}


def test_it_learns_from_images_without_restoration(tmp_path, monkeypatch):
    """The pyramid restores what people see, which costs a classifier accuracy."""
    memory = Memory.open(tmp_path / "m.logcl", (3, 8, 8), settings={"codec.name": "pyramid", "unit": 8})
    memory.absorb(smooth(16, (3, 8, 8)), np.arange(16) % 2)
    restored = memory.dataset()[0][0]

    def refuse(*given):
        raise AssertionError("restored")

    monkeypatch.setattr("logcl.codecs.pyramid.streams.restoration", refuse)
    Classifier.train(memory, recipe={"epochs": 1, "min_steps": 1})
    plain = memory.dataset(for_training=True)[0][0]
    assert not torch.equal(plain, restored)
    assert next(memory.replay(4, for_training=True))[0].shape == (4, *plain.shape)
    with pytest.raises(AssertionError, match="restored"):
        memory.dataset()[0]


@pytest.mark.parametrize("side", [65, 100, 128, 224, 256])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_default_network_needs_no_more_memory_than_the_smallest_file_justifies(tmp_path, channels, side):
    memory = Memory.open(tmp_path / "m.logcl", (channels, side, side))
    spec = ClassifierSpec.of(memory.settings.classifier, memory.settings.image_shape, 100)
    limits.check_network(spec, memory.path)
    at_once, _ = limits.room(spec, 0)
    assert at_once is None or at_once >= 2  # batch normalisation
    with pytest.raises(BadSettings, match="its classifier takes"):
        limits.check_network(spec.model_copy(update={"stem": 1, "width": 512}), memory.path)


def test_copies_of_large_images_count_in_the_memory_that_training_takes():
    """Behind a stem, augmentation takes more than the network: 13 of these at once took 60 MB too much."""
    spec = ClassifierSpec(network="convnet", image_shape=(1, 512, 512), classes=1, width=2, stem=16)
    assert limits.room(spec, 0)[0] <= 6
