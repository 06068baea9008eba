"""The preset `paper`: the appendix's numbers, the published networks, a memory that works with them."""

import numpy as np
import pytest
import torch

from logcl import Classifier, Memory
from logcl.core.errors import BadSettings
from logcl.core.settings import described
from logcl.memory.local_model import LocalModel
from logcl.memory.presets import preset
from logcl.memory.settings import override
from logcl.nn import blobs
from tests.helpers import reread

GREY, COLOUR = (1, 28, 28), (3, 32, 32)

FEW = {
    "unit": 8,
    "codec.epochs": 3,
    "codec.warm_up_epochs": 3,
    "codec.width": 3,
    "labels.width": 2,
    "labels.training.epochs": 2,
    "classifier.epochs": 2,
    "classifier.width": 4,
}
"""The same settings with few steps and small networks."""

TABLE = """
                                   mnist   omniglot  cifar100
classifier.network                 lenet   resnet18  resnet18
classifier.batch_size              120     40        128
classifier.learning_rate           0.002   0.001     0.1
classifier.epochs                  15      10        65
codec.bits                     200     200       1000
codec.batch_size               40      40        50
codec.warm_up_learning_rate    0.001   0.0001    0.001
codec.warm_up_epochs           30      50        100
codec.learning_rate            0.01    0.05      0.005
codec.epochs                   200     200       200
codec.decay                    0.99    0.99      0.99
codec.schedule                 exponential exponential exponential
codec.optimiser                adam    adam      adam
classifier.optimiser               adam    adam      adam
"""


@pytest.mark.parametrize(("column", "dataset"), [(0, "mnist"), (1, "omniglot"), (2, "cifar100")])
def test_the_table_of_the_appendix(column, dataset):
    chosen = preset("paper", COLOUR if dataset == "cifar100" else GREY, dataset)
    values = {name: value for name, value, _ in described(chosen)}
    for line in TABLE.strip().splitlines()[1:]:
        name, *cells = line.split()
        assert str(values[name]) == cells[column], name
    assert chosen.codec.network == "binplay"
    assert chosen.codec.width == 32
    assert (chosen.codec.name, chosen.labels.kind) == ("index", "labeller")
    assert chosen.labels.network == chosen.classifier.network
    labeller = chosen.labels.training
    assert labeller.model_dump() == chosen.classifier.model_dump(include=set(type(labeller).model_fields))


def test_other_data_sets_depend_on_their_channels():
    assert preset("paper", GREY, "omniglot-100") == preset("paper", GREY, "omniglot")
    assert preset("paper", GREY) == preset("paper", GREY, "mnist")
    assert preset("paper", COLOUR, "photos") == preset("paper", COLOUR, "cifar100")
    assert preset("paper", (1, 8, 8), "digits").classifier.network == "lenet"
    assert preset("fast", GREY, "mnist") == preset("fast", GREY)


def test_images_too_small_for_lenet_are_refused():
    with pytest.raises(BadSettings, match="lenet needs images of at least 8x8, not 6x9"):
        preset("paper", (1, 6, 9))


@pytest.mark.parametrize(
    ("dataset", "shape"), [("mnist", GREY), ("omniglot", GREY), ("cifar100", COLOUR), (None, (1, 8, 8))]
)
def test_end_to_end(tmp_path, dataset, shape):
    draw = np.random.default_rng(0)
    x = draw.integers(0, 256, (27, *shape), dtype=np.uint8)
    y = draw.integers(0, 3, 27)
    memory = Memory.open(
        tmp_path / "m.logcl", shape, preset="paper", dataset=dataset, settings=FEW, seed=1
    )  # fmt: skip
    memory.absorb(x[:17], y[:17])
    memory.absorb(x[17:], y[17:])
    assert [level.slot.level for level in memory.snapshot().levels] == [1, 0]
    replayed, _ = memory.snapshot().everything()
    again, _ = Memory(memory.path).snapshot().everything()
    assert torch.equal(replayed, again)
    assert memory.verify() == []
    classifier = Classifier.train(memory)
    assert classifier.about.network.network == preset("paper", shape, dataset).classifier.network
    assert np.allclose(classifier.predict_proba(x), Classifier.load(memory).predict_proba(x), atol=1e-5)
    Memory.open(memory.path, shape, preset="paper", dataset="mnist")  # an old memory keeps its settings


@pytest.mark.parametrize("count", [1, 2, 9])
def test_replay_is_the_same_after_a_restart(count):
    """Weights are rounded to half precision before use; batch statistics keep full precision."""
    from logcl.allocation import Slot
    from logcl.memory.samples import raw

    x = np.random.default_rng(count).integers(0, 256, (count, *GREY), dtype=np.uint8)
    settings = override(preset("paper", GREY, "mnist"), {**FEW, "codec.epochs": 12})
    model, _ = LocalModel.fit(Slot(0, 1, count), raw(x, np.arange(count) % 3), settings, 0)
    blob = model.to_bytes()
    back = reread(model)
    for mine, theirs in zip(model.replay(), back.replay(), strict=True):
        assert np.array_equal(np.asarray(mine), np.asarray(theirs))
    assert back.to_bytes() == blob
    state = model.codec.decoder.state_dict()
    assert all(torch.equal(value, back.codec.decoder.state_dict()[name]) for name, value in state.items())


def test_large_statistics_are_kept():
    from logcl.nn.networks.layers import BatchNorm

    norm = BatchNorm(1)
    norm.running_var.fill_(1e6)  # infinite in half precision
    kept = blobs.weights(norm, "n", torch.float16)
    assert kept["n.running_var"].item() == 1e6
    assert kept["n.weight"].dtype == torch.float16
