"""Local models give back what they were given, whatever their codes, also after a trip through bytes."""

import json

import numpy as np
import pytest
import safetensors.torch
import torch

from logcl.allocation import Slot
from logcl.core.errors import Damaged
from logcl.core.progress import Silent
from logcl.memory.local_model import Description, LocalModel, fit_steps, size_ratio
from logcl.memory.presets import preset
from logcl.memory.samples import Run, Samples, raw
from logcl.memory.settings import Settings, override
from logcl.nn import blobs

MODES = {
    "quantised codes": {},
    "quantised codes, by quality": {"codec.psnr": 18},
    "cosines": {"codec.name": "cosine", "codec.psnr": 18},
    "half precision": {"codec.weights": "half"},
    "binary codes": {"codec.codes": "binary", "codec.bits": 64},
    "index codes, greedy": {"codec.name": "index"},
    "index codes, optimal": {"codec.name": "index", "codec.assignment": "optimal"},
    "index codes, as they come": {"codec.name": "index", "codec.assignment": "none"},
    "index codes, labeller": {"codec.name": "index", "labels.kind": "labeller"},
    "quantised codes, labeller": {"labels.kind": "labeller"},
    "superposed": {"codec.name": "index", "codec.network": "superposed", "codec.bits": 5},
}


def options(changes: dict) -> Settings:
    return override(preset("fast", (1, 8, 8)), {"codec.width": 128, "codec.min_steps": 400, **changes})


def take(digits, count: int, start: int = 0) -> Samples:
    x, y = digits
    return raw(x[start : start + count], y[start : start + count] + 5)


@pytest.fixture(params=MODES.values(), ids=MODES.keys(), scope="module")
def fitted(request, digits):
    samples = take(digits, 128)
    settings = options(request.param)
    model, order = LocalModel.fit(Slot(0, 257, 384), samples, settings, top_level=0)
    return samples, model, order


def test_replay_is_close_and_labels_are_right(fitted):
    samples, model, order = fitted
    assert sorted(order.tolist()) == list(range(128))
    x, y = model.replay()
    assert x.dtype == torch.uint8
    assert x.shape == (128, 1, 8, 8)
    assert np.array_equal(y, samples.y[order])
    error = np.square(x.numpy() / 255.0 - samples.x[order] / 255.0).mean()
    mean_image = np.square((samples.x - samples.x.mean(axis=0)) / 255.0).mean()
    assert error < mean_image / 3
    assert np.isclose(sum(run.count * run.errors[-1] for run in model.runs) / 128, error, rtol=1e-4)


def test_single_samples_are_those_of_the_whole(fitted):
    _, model, _ = fitted
    everything, labels = model.replay()
    asked = np.array([384, 257, 300, 300])
    some, some_labels = model.replay(asked)
    assert np.array_equal(some_labels, labels[asked - 257])
    assert (some.int() - everything[asked - 257].int()).abs().max() <= 1  # other batch, other rounding


def test_bytes_hold_the_same_model(fitted):
    _, model, _ = fitted
    blob = model.to_bytes()
    back = LocalModel.from_bytes(blob, "level")
    assert back.slot == model.slot
    assert back.runs == model.runs
    for mine, theirs in zip(model.replay(), back.replay(), strict=True):
        assert np.array_equal(np.asarray(mine), np.asarray(theirs))
    assert back.to_bytes() == blob


def test_index_codes_cost_no_bytes_a_sample(digits):
    sizes = {}
    for codes in ("index", "binary"):
        changes = {"codec.codes": codes, "codec.bits": 64}
        settings = options({**changes, "codec.min_steps": 0, "codec.epochs": 1})
        for count in (128, 512):
            model, _ = LocalModel.fit(Slot(0, 1, count), take(digits, count), settings, 0)
            sizes[codes, count] = len(model.to_bytes())
    labels = (512 - 128) * 4 / 8
    assert abs(sizes["index", 512] - sizes["index", 128] - labels) < 64
    codes_and_labels = labels + (512 - 128) * 64 / 8
    assert abs(sizes["binary", 512] - sizes["binary", 128] - codes_and_labels) < 64


def test_samples_stay_within_their_run(digits):
    """Matching permutes samples, but never across histories: what is known of a run stays true."""
    samples = take(digits, 96)
    mixed = Samples(samples.x, samples.y, (Run(32, (0.01, 0.02)), Run(64)))
    settings = options({"codec.name": "index", "codec.min_steps": 50, "codec.epochs": 1})
    model, order = LocalModel.fit(Slot(0, 1, 96), mixed, settings, 0)
    assert set(order[:32].tolist()) == set(range(32))
    assert [run.generation for run in model.runs] == [2, 0]


@pytest.mark.parametrize("codes", ["quantised", "binary", "index"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 14)])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_handful_of_samples(codes, shape, count):
    """With unit 1 the lowest level is a single image, as in the paper."""
    x = np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)
    settings = override(
        preset("fast", shape),
        {
            "codec.codes": codes,
            "codec.network": "mlp",
            "codec.width": 64,
            "codec.learning_rate": 1e-2,
            "codec.min_steps": 300,
            "codec.epochs": 1,
            **({"codec.bytes_per_sample": 16} if codes == "quantised" else {}),
        },
    )
    model, order = LocalModel.fit(Slot(0, 5, 4 + count), raw(x, np.zeros(count, np.int64)), settings, 0)
    back, labels = LocalModel.from_bytes(model.to_bytes(), "level").replay()
    assert labels.tolist() == [0] * count
    assert np.abs(back.numpy().astype(int) - x[order].astype(int)).mean() < 20


def test_the_same_seed_gives_the_same_bytes(digits):
    settings = options({"codec.min_steps": 30, "codec.epochs": 1})
    blobs_made = [
        LocalModel.fit(Slot(1, 1, 64), take(digits, 64), settings, 1)[0].to_bytes() for _ in range(2)
    ]
    other = override(settings, {"seed": 1})
    assert blobs_made[0] == blobs_made[1]
    assert LocalModel.fit(Slot(1, 1, 64), take(digits, 64), other, 1)[0].to_bytes() != blobs_made[0]


def test_size_by_level():
    assert size_ratio(5, 5) == 1
    assert size_ratio(0, 3) == 7 / 8 / 8 + 1 / 8
    total = sum(size_ratio(level, 20) for level in range(21))
    assert total < 1.75 + 21 / 8  # the largest, as much again for all others, an eighth each


def test_steps_are_known_beforehand(digits):
    class Counter(Silent):
        steps = 0

        def track(self, description, total):
            from contextlib import contextmanager

            @contextmanager
            def bar():
                yield lambda steps=1, note="": setattr(self, "steps", self.steps + steps)

            return bar()

    for changes in MODES.values():
        settings = options({**changes, "codec.min_steps": 10, "codec.epochs": 2})
        counter = Counter()
        LocalModel.fit(Slot(0, 1, 64), take(digits, 64), settings, 0, counter)
        assert counter.steps == fit_steps(64, 10, settings.generator)


@pytest.mark.parametrize("level", [0, 2, 4])
def test_sizes_by_level_hold_for_bytes(digits, level):
    """The paper's ratio of model j to the largest, for decoder and labeller together."""
    settings = options(
        {
            "codec.name": "index",
            "labels.kind": "labeller",
            "labels.width": 32,
            "labels.training.min_steps": 1,
            "labels.training.epochs": 1,
            "codec.warm_up_epochs": 1,
            "codec.min_steps": 1,
            "codec.epochs": 1,
        }
    )
    sizes = [
        len(LocalModel.fit(Slot(j, 1, 64), take(digits, 64), settings, top_level=4)[0].to_bytes())
        for j in (level, 4)
    ]
    assert 0.85 * size_ratio(level, 4) <= sizes[0] / sizes[1] <= size_ratio(level, 4) + 0.03


def test_a_level_of_one_class_has_no_labeller_to_wait_for(digits):
    settings = options({"labels.kind": "labeller"})
    with_labeller, without = (fit_steps(64, classes, settings.generator) for classes in (2, 1))
    assert with_labeller - without == settings.labels.training.min_steps


@pytest.fixture(scope="module")
def blob(digits) -> bytes:
    settings = options({"codec.min_steps": 1, "codec.epochs": 1})
    return LocalModel.fit(Slot(0, 1, 32), take(digits, 32), settings, 0)[0].to_bytes()


@pytest.mark.parametrize(
    "lie",
    [
        {"start": 2},
        {"stop": 33},
        {"start": 0, "stop": 31},
        {"start": 1, "stop": 2**60, "runs": [{"count": 2**60, "errors": [0.1]}]},
        {"runs": ()},
        {"classes": ()},
        {"classes": tuple(range(99))},
        {
            "codes": "index",
            "labeller": {"network": "mlp", "image_shape": (1, 8, 8), "classes": 3, "width": 4},
        },
        {"decoder": {"network": "mlp", "image_shape": (1, 8, 8), "length": 65_536, "width": 65_536}},
        {"decoder": {"network": "conv", "image_shape": (64, 4096, 4096), "length": 64, "width": 9}},
        {"decoder": {"network": "superposed", "image_shape": (1, 8, 8), "length": 65_536, "width": 9}},
        {"decoder": {"network": "superposed", "image_shape": (1, 8, 8), "length": 20, "width": 65_536}},
        {"codes": "index", "decoder": {"network": "mlp", "image_shape": (1, 8, 8), "length": 5, "width": 9}},
        {"decoder": {"network": "exec", "image_shape": (1, 8, 8), "length": 64, "width": 9}},
        {"decoder": {"network": "cosine", "image_shape": (1, 8, 8), "length": 64, "width": 9}},
        {"weights": "nibbles"},
        {"codes": "binary"},
    ],
)
def test_descriptions_that_lie_are_refused(blob, lie):
    about, tensors = blobs.unpack(blob, Description, "level-0")
    forged = safetensors.torch.save(tensors, {"logcl": json.dumps({**about.model_dump(mode="json"), **lie})})
    with pytest.raises(Damaged, match="level-0"):
        LocalModel.from_bytes(forged, "level-0")


@pytest.mark.parametrize(
    "lie",
    [
        {"decoder": {"network": "cosine", "image_shape": (1, 8, 9), "length": 64, "width": 1}},
        {"decoder": {"network": "cosine", "image_shape": (1, 64, 64), "length": 64, "width": 1}},
        {"codes": "index"},
        {"codes": "binary"},
        {"start": 1, "stop": 2**60, "runs": [{"count": 2**60, "errors": [0.1]}]},
    ],
)
def test_cosines_that_lie_are_refused(digits, lie):
    """A cosine decoder has one weight, so that its description is all there is to contradict."""
    settings = options({"codec.name": "cosine", "codec.psnr": 25})
    samples = raw(digits[0][:16], np.zeros(16, np.int64))  # one class: labels take no bytes
    genuine = LocalModel.fit(Slot(0, 1, 16), samples, settings, 0)[0].to_bytes()
    about, tensors = blobs.unpack(genuine, Description, "level-0")
    forged = safetensors.torch.save(tensors, {"logcl": json.dumps({**about.model_dump(mode="json"), **lie})})
    with pytest.raises(Damaged, match="level-0"):
        LocalModel.from_bytes(forged, "level-0")


KEPT = {"codec.network": "conv", "codec.keep_encoder": True, "codec.smallest": 1}


def test_only_the_largest_level_keeps_its_encoder_and_others_begin_with_it(digits):
    settings = options({**KEPT, "codec.min_steps": 60, "codec.warm_share": 0.5})
    top, _ = LocalModel.fit(Slot(1, 1, 128), take(digits, 128), settings, top_level=1)
    again = LocalModel.from_bytes(top.to_bytes(), "level-1")
    for name, value in top.analysis.state_dict().items():
        assert torch.equal(again.analysis.state_dict()[name], value), name
    small, _ = LocalModel.fit(Slot(0, 129, 192), take(digits, 64, 128), settings, 1, start=again)
    cold, _ = LocalModel.fit(Slot(0, 129, 192), take(digits, 64, 128), settings, 1)
    assert small.analysis is None
    assert small.about.decoder == top.about.decoder
    assert small.runs[0].errors[0] < cold.runs[0].errors[0]
    assert LocalModel.from_bytes(small.to_bytes(), "level-0").analysis is None


def test_an_encoder_that_does_not_fit_is_refused(digits):
    settings = options({**KEPT, "codec.min_steps": 1, "codec.epochs": 1})
    blob = LocalModel.fit(Slot(0, 1, 32), take(digits, 32), settings, 0)[0].to_bytes()
    about, tensors = blobs.unpack(blob, Description, "level-0")
    encoder = sorted(name for name in tensors if name.startswith("analysis.encoder"))
    part = next(name for name in encoder if tensors[name].dim() > 1)  # a reader may give any order
    for forged in (
        {**tensors, part: tensors[part][:1]},
        {name: value for name, value in tensors.items() if name != part},
        {**tensors, "analysis.more": tensors[part].clone()},
    ):
        with pytest.raises(Damaged, match="level-0"):
            LocalModel.from_bytes(blobs.pack(about, forged), "level-0")


@pytest.mark.parametrize("garbage", [b"", b"\xff" * 8, b"\x10" + bytes(30), b"\x02" + bytes(7) + b"{}"])
def test_garbage_is_refused(garbage):
    with pytest.raises(Damaged, match="level-0 is damaged"):
        LocalModel.from_bytes(garbage, "level-0")


def test_a_truncated_blob_is_refused(blob):
    for size in range(0, len(blob), 997):
        with pytest.raises(Damaged, match="level-0"):
            LocalModel.from_bytes(blob[:size], "level-0")
