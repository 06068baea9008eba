"""Local models replay their samples, whatever their codes, also after being written and read again."""

import json

import numpy as np
import pytest
import safetensors.torch
import torch

from logcl.allocation import Slot
from logcl.codecs import registry
from logcl.codecs.base import size_ratio
from logcl.codecs.cosine import Cosine, CosineSpec
from logcl.codecs.index import IndexCodes
from logcl.core.errors import Damaged
from logcl.memory.local_model import LocalModel, fit_steps
from logcl.memory.presets import preset
from logcl.memory.samples import Run, Samples, raw
from logcl.memory.settings import Settings, override
from logcl.nn import blobs
from tests.helpers import CountingProgress, codecs_of, reread

TRAINED = {"codec.name": "autoencoder", "codec.width": 128, "codec.min_steps": 400}
INDEX = {
    **TRAINED, "codec.name": "index", "codec.network": "mlp", "codec.bits": 256, "codec.weights": "int8",
    "codec.learning_rate": 1e-2, "codec.patience": 8,
}  # fmt: skip
MODES = {
    "autoencoder": TRAINED,
    "autoencoder, by quality": {**TRAINED, "codec.psnr": 18},
    "autoencoder, half precision": {**TRAINED, "codec.weights": "half"},
    "autoencoder, labeller": {**TRAINED, "labels.kind": "labeller"},
    "cosine": {"codec.name": "cosine", "codec.psnr": 18},
    "index, greedy": INDEX,
    "index, as they come": {**INDEX, "codec.assignment": "none"},
    "index, labeller": {**INDEX, "labels.kind": "labeller"},
    "index, superposed": {**INDEX, "codec.network": "superposed", "codec.bits": 5},
}
FEW = {"codec.name": "autoencoder", "codec.min_steps": 1, "codec.epochs": 1}


def options(changes: dict) -> Settings:
    return override(preset("fast", (1, 8, 8)), changes)


def take(digits, count: int, start: int = 0) -> Samples:
    x, y = digits
    return raw(x[start : start + count], y[start : start + count] + 5, start + 1)


@pytest.fixture(params=MODES.values(), ids=MODES.keys(), scope="module")
def fitted(request, digits):
    samples = take(digits, 128, start=256)
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
    back = reread(model)
    assert back.slot == model.slot
    assert np.array_equal(back.indices, model.indices)
    assert back.runs == model.runs
    for mine, theirs in zip(model.replay(), back.replay(), strict=True):
        assert np.array_equal(np.asarray(mine), np.asarray(theirs))
    assert back.to_bytes() == blob


def test_index_codes_cost_no_bytes_per_sample(digits):
    sizes = {}
    for count in (128, 512):
        model, _ = LocalModel.fit(
            Slot(0, 1, count),
            take(digits, count),
            options({**INDEX, "codec.min_steps": 1, "codec.epochs": 1}),
            0,
        )
        sizes[count] = len(model.to_bytes())
    labels = (512 - 128) * 4 / 8
    assert abs(sizes[512] - sizes[128] - labels) < 64


def test_samples_stay_within_their_run(digits):
    """Matching permutes samples only within a run, so that the history of a run stays correct."""
    samples = take(digits, 96)
    mixed = Samples(samples.x, samples.y, samples.indices, (Run(32, (0.01, 0.02)), Run(64)))
    settings = options({**INDEX, "codec.min_steps": 50, "codec.epochs": 1})
    model, order = LocalModel.fit(Slot(0, 1, 96), mixed, settings, 0)
    assert set(order[:32].tolist()) == set(range(32))
    assert [run.generation for run in model.runs] == [2, 0]


def test_generations_are_counted_separately_from_errors(digits):
    """Coarsening adds an error to a run but not a generation; encoding adds one to both."""
    samples = take(digits, 32)
    coarse = Samples(samples.x, samples.y, samples.indices, (Run(32, (0.01, 0.02), 0),))
    model, _ = LocalModel.fit(Slot(0, 1, 32), coarse, options({**TRAINED, **FEW}), 0)
    assert [(run.generation, len(run.errors)) for run in model.runs] == [(1, 3)]


@pytest.mark.parametrize("codec", ["autoencoder", "cosine", "index"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 14)])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_few_samples(codec, shape, count):
    """With unit 1 the lowest level is a single image, as in the paper."""
    x = np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)
    trained = {"codec.network": "mlp", "codec.width": 64, "codec.learning_rate": 1e-2, "codec.min_steps": 300,
               "codec.epochs": 1}  # fmt: skip
    own = {
        "autoencoder": {**trained, "codec.bytes_per_sample": 16},
        "cosine": {},
        "index": {**trained, "codec.bits": 256},
    }
    settings = override(preset("fast", shape), {"codec.name": codec, **own[codec]})
    model, order = LocalModel.fit(Slot(0, 5, 4 + count), raw(x, np.zeros(count, np.int64), 5), settings, 0)
    back, labels = reread(model).replay()
    assert labels.tolist() == [0] * count
    assert np.abs(back.numpy().astype(int) - x[order].astype(int)).mean() < 20


def test_the_same_seed_gives_the_same_bytes(digits):
    settings = options({**TRAINED, "codec.min_steps": 30, "codec.epochs": 1})

    def made(settings: Settings) -> tuple[bytes, bytes]:
        model, _ = LocalModel.fit(Slot(1, 1, 64), take(digits, 64), settings, 1)
        return model.to_bytes(), model.codec.to_bytes()

    first, second, other = made(settings), made(settings), made(override(settings, {"seed": 1}))
    assert first == second
    assert first[0] != other[0]
    assert first[1] != other[1]


def test_size_by_level():
    assert size_ratio(5, 5) == 1
    assert size_ratio(0, 3) == 7 / 8 / 8 + 1 / 8
    total = sum(size_ratio(level, 20) for level in range(21))
    assert total < 1.75 + 21 / 8  # the largest, as much again for all others, an eighth each


def test_steps_are_known_in_advance(digits):
    for changes in MODES.values():
        few = {} if changes.get("codec.name") == "cosine" else {"codec.min_steps": 10, "codec.epochs": 2}
        settings = options({**changes, **few})
        counter = CountingProgress()
        LocalModel.fit(Slot(0, 1, 64), take(digits, 64), settings, 0, counter)
        assert counter.steps == fit_steps(64, 10, settings)


@pytest.mark.parametrize("level", [0, 2, 4])
def test_sizes_by_level_hold_for_bytes(digits, level):
    """The paper's ratio of model j to the largest, for decoder and labeller together."""
    labeller = {"kind": "labeller", "width": 32, "training.min_steps": 1, "training.epochs": 1}
    labels = {f"labels.{name}": value for name, value in labeller.items()}
    brief = {"codec.min_steps": 1, "codec.epochs": 1, "codec.warm_up_epochs": 1}
    settings = options({**INDEX, **labels, **brief})
    models = [LocalModel.fit(Slot(j, 1, 64), take(digits, 64), settings, top_level=4)[0] for j in (level, 4)]
    sizes = [len(model.to_bytes()) + len(model.codec.to_bytes()) for model in models]
    assert 0.85 * size_ratio(level, 4) <= sizes[0] / sizes[1] <= size_ratio(level, 4) + 0.03


def test_a_level_of_one_class_trains_no_labeller(digits):
    settings = options({**TRAINED, "labels.kind": "labeller"})
    with_labeller, without = (fit_steps(64, classes, settings) for classes in (2, 1))
    assert with_labeller - without == settings.labels.training.min_steps


@pytest.fixture(scope="module")
def model(digits) -> LocalModel:
    return LocalModel.fit(Slot(0, 1, 32), take(digits, 32), options({**TRAINED, **FEW}), 0)[0]


def forged(blob: bytes, lie: dict) -> bytes:
    data, tensors = blobs.load(blob, "level-0")
    return safetensors.torch.save(tensors, {"logcl": json.dumps({**data, **lie})})


def mlp(**changes: object) -> dict:
    decoder = {"network": "mlp", "image_shape": (1, 8, 8), "length": 24, "width": 128, **changes}
    return {"codec": {"name": "autoencoder", "decoder": decoder, "weights": "int8"}}


def test_the_forging_helper_makes_a_valid_description(model):
    LocalModel.from_bytes(forged(model.to_bytes(), mlp()), codecs_of(model), "level-0")


MANY = {"stop": 2**60, "samples": 2**60, "runs": [{"count": 2**60, "errors": [0.1], "generation": 0}]}


@pytest.mark.parametrize(
    "lie",
    [
        {"start": 2},
        {"stop": 33},
        {"samples": 31},
        {"samples": 33},
        {"samples": 0},
        {"start": 0, "stop": 31},
        {"start": 40, "stop": 8},
        MANY,
        {"runs": ()},
        {"runs": [{"count": 32, "errors": [0.1], "generation": 1}]},
        {"runs": [{"count": 32, "errors": [0.1], "generation": -1}]},
        {"runs": [{"count": 32, "errors": [], "generation": 0}]},
        {"runs": [{"count": 31, "errors": [0.1], "generation": 0}]},
        {"classes": ()},
        {"classes": tuple(range(99))},
        {"labeller": {"network": "mlp", "image_shape": (1, 8, 8), "classes": 3, "width": 4}},
        {"weights": "0" * 64},
        {"weights": "nonsense"},
        {"weights": None},
        mlp(length=65_536, width=65_536),
        mlp(network="conv", image_shape=(64, 4096, 4096), width=9),
        mlp(network="superposed", length=65_536, width=9),
        mlp(network="superposed", length=20, width=65_536),
        mlp(network="exec"),
        mlp(width=64),
        mlp(image_shape=(1, 8, 9)),
        {"codec": {**mlp()["codec"], "name": "index"}},
        {"codec": {**mlp(length=5)["codec"], "name": "index"}},
        {"codec": {"name": "cosine", "image_shape": (1, 8, 8), "step": 0.1}, "weights": None},
        {"codec": {"name": "autoencoder"}},
        {"codec": {**mlp()["codec"], "weights": "nibbles"}},
        {"codec": {**mlp()["codec"], "more": 1}},
        {"codec": {}},
        {"codec": {"name": 7}},
        {"codec": "autoencoder"},
        {"codec": None},
    ],
)
def test_false_descriptions_are_refused(model, lie):
    with pytest.raises(Damaged, match="level-0"):
        LocalModel.from_bytes(forged(model.to_bytes(), lie), codecs_of(model), "level-0")


def test_weights_of_another_codec_are_refused(model):
    """The digest is right, but the weights belong to another codec."""
    codecs = {model.about.weights: Cosine(CosineSpec(image_shape=(1, 8, 8), step=0.1))}
    with pytest.raises(Damaged, match="level-0 needs other weights"):
        LocalModel.from_bytes(model.to_bytes(), codecs, "level-0")
    with pytest.raises(Damaged, match="level-0 needs weights that are missing"):
        LocalModel.from_bytes(model.to_bytes(), {}, "level-0")


@pytest.mark.parametrize(
    "lie",
    [
        {"codec": {"name": "cosine", "image_shape": (1, 8, 9), "step": 0.1}},
        {"codec": {"name": "cosine", "image_shape": (1, 64, 64), "step": 0.1}},
        {"codec": {"name": "cosine", "image_shape": (1, 8, 8), "step": 0}},
        {"codec": {"name": "cosine", "image_shape": (1, 8, 8), "step": -1}},
        {"codec": {"name": "cosine", "image_shape": (1, 8, 8), "step": 1e300}},
        {"codec": {"name": "cosine", "image_shape": (1, 8, 8), "step": "nan"}},
        {"weights": "0" * 64},
        mlp(),
        MANY,
    ],
)
def test_forged_cosine_levels_are_refused(digits, lie):
    """The cosine codec has no weights, so only its description can contradict the codes."""
    settings = options({"codec.name": "cosine", "codec.psnr": 25})
    samples = raw(digits[0][:16], np.zeros(16, np.int64))  # one class: labels take no bytes
    genuine = LocalModel.fit(Slot(0, 1, 16), samples, settings, 0)[0]
    assert genuine.about.weights is None
    with pytest.raises(Damaged, match="level-0"):
        LocalModel.from_bytes(forged(genuine.to_bytes(), lie), {}, "level-0")


KEPT = {
    "codec.name": "autoencoder",
    "codec.network": "conv",
    "codec.keep_encoder": True,
    "codec.smallest": 1,
    "codec.width": 128,
}


def test_only_the_largest_level_keeps_its_encoder_and_others_start_from_it(digits):
    settings = options({**KEPT, "codec.min_steps": 60, "codec.warm_share": 0.5})
    top, _ = LocalModel.fit(Slot(1, 1, 128), take(digits, 128), settings, top_level=1)
    again = reread(top).codec
    for name, value in top.codec.analysis.state_dict().items():
        assert torch.equal(again.analysis.state_dict()[name], value), name
    rest = take(digits, 64, 128)
    small, _ = LocalModel.fit(Slot(0, 129, 192), rest, settings, 1, starts=[again])
    cold, _ = LocalModel.fit(Slot(0, 129, 192), rest, settings, 1)
    assert small.codec.analysis is None
    assert small.about.codec.decoder == top.about.codec.decoder
    assert small.runs[0].errors[0] < cold.runs[0].errors[0]
    assert reread(small).codec.analysis is None


def test_an_encoder_that_does_not_fit_is_refused(digits):
    codec = LocalModel.fit(Slot(0, 1, 32), take(digits, 32), options({**KEPT, **FEW}), 0)[0].codec
    tensors = codec.weights()
    encoder = sorted(name for name in tensors if name.startswith("analysis.encoder"))
    part = next(name for name in encoder if tensors[name].dim() > 1)  # a reader may give any order
    for changed in (
        {**tensors, part: tensors[part][:1]},
        {name: value for name, value in tensors.items() if name != part},
        {**tensors, "analysis.more": tensors[part].clone()},
    ):
        with pytest.raises(Damaged, match="weights-0"):
            registry.from_bytes(blobs.pack(codec.spec, changed), "weights-0")


@pytest.mark.parametrize("garbage", [b"", b"\xff" * 8, b"\x10" + bytes(30), b"\x02" + bytes(7) + b"{}"])
def test_garbage_is_refused(garbage):
    with pytest.raises(Damaged, match="level-0 is damaged"):
        LocalModel.from_bytes(garbage, {}, "level-0")


def test_a_truncated_blob_is_refused(model):
    blob, codec = model.to_bytes(), model.codec.to_bytes()
    for size in range(0, len(blob), 97):
        with pytest.raises(Damaged, match="level-0"):
            LocalModel.from_bytes(blob[:size], codecs_of(model), "level-0")
    for size in range(0, len(codec), 997):
        with pytest.raises(Damaged, match="weights-0"):
            registry.from_bytes(codec[:size], "weights-0")


def test_a_level_may_hold_fewer_samples_than_it_has_room_for(fitted):
    """Capacity and slot stay; codes and labels of the others are gone."""
    _, model, _ = fitted
    rows = np.flatnonzero(np.random.default_rng(0).random(128) < 0.4)
    some = reread(model.select(rows))
    x, y = model.replay()
    assert some.slot == model.slot
    assert len(some) == len(rows) == sum(run.count for run in some.runs)
    assert np.array_equal(some.indices, model.indices[rows])
    replayed, classes = some.replay()
    assert (replayed.int() - x[rows].int()).abs().max() <= 1
    assert np.array_equal(classes, y[rows])
    assert np.array_equal(some.class_numbers(), y[rows])
    assert (some.replay(some.indices[-1:])[0].int() - x[rows[-1:]].int()).abs().max() <= 1
    assert some.to_bytes() == reread(some).to_bytes()
    assert len(some.to_bytes()) <= len(model.to_bytes()) + 128  # a mask of 16 bytes and its name
    assert np.array_equal(some.samples().indices, some.indices)


@pytest.mark.parametrize("rows", [[0], [31], [0, 31], list(range(1, 32)), list(range(0, 32, 2))])
def test_any_samples_may_be_missing(model, rows):
    some = reread(model.select(np.array(rows)))
    assert some.indices.tolist() == [row + 1 for row in rows]
    assert some.select(np.array([0])).indices.tolist() == [rows[0] + 1]  # and more of them later


def test_a_level_with_gaps_can_be_moved(fitted):
    _, model, _ = fitted
    some = model.select(np.array([0, 5, 127]))
    moved = reread(some.moved(1))
    assert moved.slot == Slot(0, 1, 128)
    assert moved.indices.tolist() == [1, 6, 128]
    assert torch.equal(moved.replay()[0], some.replay()[0])


@pytest.mark.parametrize(
    "mask",
    [
        None, torch.zeros(4, dtype=torch.uint8), torch.full((4,), 255, dtype=torch.uint8),
        torch.tensor([7, 0, 0]).to(torch.uint8), torch.tensor([7, 0, 0, 0]),
        torch.zeros((4, 1), dtype=torch.uint8), torch.tensor([3, 0, 0, 0]).to(torch.uint8),
    ],
    ids=str,
)  # fmt: skip
def test_false_masks_are_refused(model, mask):
    some = model.select(np.array([0, 3, 9]))
    about, tensors = blobs.load(some.to_bytes(), "level-0")
    changed = {key: value for key, value in {**tensors, "live": mask}.items() if value is not None}
    lying = safetensors.torch.save(changed, {"logcl": json.dumps(about)})
    with pytest.raises(Damaged, match="level-0"):
        LocalModel.from_bytes(lying, codecs_of(some), "level-0")


def test_coarsening_adds_an_error_but_no_generation(fitted):
    _, model, _ = fitted
    coarse = model.coarsen(3)
    assert len(coarse) == len(model)
    assert coarse.slot == model.slot
    if not isinstance(model.codes, IndexCodes):
        assert len(coarse.to_bytes()) < len(model.to_bytes())
    assert [run.generation for run in coarse.runs] == [run.generation for run in model.runs]
    assert [len(run.errors) for run in coarse.runs] == [len(run.errors) + 1 for run in model.runs]
    before, after = model.replay()[0].numpy(), coarse.replay()[0].numpy()
    added = sum(run.count * run.errors[-1] for run in coarse.runs) / len(model)
    assert added == pytest.approx(np.square(before / 255.0 - after / 255.0).mean(), rel=1e-4, abs=1e-12)
    back = reread(coarse)
    assert back.runs == coarse.runs
    assert torch.equal(back.replay()[0], coarse.replay()[0])
    assert coarse.about.weights == model.about.weights  # the same decoder
