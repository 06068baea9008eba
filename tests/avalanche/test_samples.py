"""A memory absorbs images before transforms and replays them in the format of the data set."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from avalanche.benchmarks.utils import DataAttribute, DefaultTransformGroups, make_avalanche_dataset
from avalanche.benchmarks.utils.classification_dataset import ClassificationDataset
from PIL import Image
from torchvision import transforms

from logcl import Memory
from logcl.core.errors import BadInput
from logcl.integrations.avalanche import LogCLBuffer, LogCLPlugin
from tests.avalanche.digits import QUICK, Digits, Split, minibatch, strategy

NORMALISED = transforms.Normalize((0.1307,), (0.3081,))
RAW = {"unit": 1000}
"""All samples stay in the memory's buffer, exact to 1/255."""


def dataset(images, targets, **options) -> ClassificationDataset:
    return ClassificationDataset(
        [Digits(images, targets)], data_attributes=[DataAttribute(targets, "targets")], **options
    )


@pytest.fixture
def pixels(few) -> np.ndarray:
    """40 digits as uint8 (n, 8, 8)."""
    return np.rint(few.train.images[:40, 0].numpy() * 255).astype(np.uint8)


FORMS = {
    "grey PIL images": lambda pixel: Image.fromarray(pixel),
    "colour PIL images": lambda pixel: Image.fromarray(pixel).convert("RGB"),
    "float tensors": lambda pixel: torch.from_numpy(pixel)[None] / 255,
    "double tensors": lambda pixel: torch.from_numpy(pixel)[None].double() / 255,
    "uint8 tensors": lambda pixel: torch.from_numpy(pixel)[None],
    "tensors without channels": lambda pixel: torch.from_numpy(pixel) / 255,
    "uint8 arrays": lambda pixel: pixel,
    "arrays, channels last": lambda pixel: np.repeat(pixel[..., None], 3, axis=2),
    "float arrays, channels first": lambda pixel: (np.repeat(pixel[None], 3, axis=0) / 255).astype(
        np.float32
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_images_keep_their_type(pixels, form):
    images = [FORMS[form](pixel) for pixel in pixels]
    storage = LogCLBuffer(**RAW)
    storage.update_from_dataset(dataset(images, list(range(40))))
    for position, before in enumerate(images):
        after, target = storage.buffer[position]
        assert type(after) is type(before)
        assert target == position
        for name in ("dtype", "mode", "shape", "size"):
            if not callable(getattr(before, name, None)):
                assert getattr(after, name, None) == getattr(before, name, None)
        assert np.allclose(np.asarray(after), np.asarray(before), atol=1e-6)


def test_classes_keep_their_type(pixels):
    data = torch.utils.data.TensorDataset(torch.from_numpy(pixels)[:, None] / 255, torch.arange(40))
    storage = LogCLBuffer(**RAW)
    storage.update_from_dataset(make_avalanche_dataset(data))
    assert torch.equal(storage.buffer[7][1], torch.tensor(7))


@pytest.mark.parametrize("form", ["grey PIL images", "float tensors"])
def test_benchmark_transforms_apply_to_replayed_images(pixels, form):
    """As in SplitMNIST and SplitCIFAR: images are absorbed before flips and normalisation."""
    images = [FORMS[form](pixel) for pixel in pixels]
    first = [transforms.ToTensor()] if form == "grey PIL images" else []
    train = transforms.Compose([transforms.RandomHorizontalFlip(p=1.0), *first, NORMALISED])
    benchmark = Split(Digits(images, [0, 1] * 20), Digits(images, [0, 1] * 20)).with_task_labels(
        2,
        train_transform=train,
        eval_transform=transforms.Compose([*first, NORMALISED]),
        fixed_class_order=[0, 1],
    )
    storage = LogCLBuffer(**RAW)
    for experience in benchmark.train_stream:
        storage.update_from_dataset(experience.dataset)
    stored = storage.memory.snapshot().everything()[0].numpy()
    assert np.array_equal(stored[:, 0], np.concatenate([pixels[0::2], pixels[1::2]]))
    x, _, _ = minibatch(storage.buffer.train())
    expected = torch.cat([minibatch(experience.dataset)[0] for experience in benchmark.train_stream])
    assert torch.allclose(x, expected, atol=1e-5)
    x, _, _ = minibatch(storage.buffer.eval())
    assert torch.allclose(x.flip(3), expected, atol=1e-5)


def test_frozen_transforms_are_applied_before_absorbing(pixels):
    """As in PermutedMNIST, with a different one per experience."""
    images, targets = [FORMS["float tensors"](pixel) for pixel in pixels], [0] * 20 + [1] * 20
    turned = dataset(
        images, targets, frozen_transform_groups=DefaultTransformGroups((lambda image: image.flip(1), None))
    )
    plain = dataset(images, targets)
    split = Split([plain, turned], [plain, turned])
    benchmark = split.with_task_labels(
        2, one_dataset_per_exp=True, fixed_class_order=None, class_ids_from_zero_in_each_exp=True,
        shuffle=False, train_transform=NORMALISED, eval_transform=NORMALISED,
    )  # fmt: skip
    storage = LogCLBuffer(**RAW)
    for experience in benchmark.train_stream:
        storage.update_from_dataset(experience.dataset)
    stored = storage.memory.snapshot().everything()[0].numpy()[:, 0]
    assert np.array_equal(stored, np.concatenate([pixels, pixels[:, ::-1]]))
    x, y, _ = minibatch(storage.buffer)
    expected = [minibatch(experience.dataset) for experience in benchmark.train_stream]
    assert torch.allclose(x, torch.cat([part[0] for part in expected]), atol=1e-5)
    assert torch.equal(y, torch.cat([part[1] for part in expected]))


def test_data_set_with_normalised_images(pixels):
    images = [NORMALISED(torch.from_numpy(pixel)[None] / 255) for pixel in pixels]
    storage = LogCLBuffer(normalised=((0.1307,), (0.3081,)), **RAW)
    storage.update_from_dataset(dataset(images, [0] * 40))
    assert np.array_equal(storage.memory.snapshot().everything()[0].numpy()[:, 0], pixels)
    assert torch.allclose(minibatch(storage.buffer)[0], torch.stack(images), atol=1e-5)


def test_a_normalisation_of_other_channels_is_refused(pixels):
    images = [torch.from_numpy(pixel)[None] / 255 for pixel in pixels]
    with pytest.raises(BadInput, match="normalised has 3 channels, but images have 1"):
        LogCLBuffer(normalised=((0.5,) * 3, (0.5,) * 3), **RAW).update_from_dataset(dataset(images, [0] * 40))


def test_pil_images_are_resized(pixels):
    images = [Image.fromarray(pixel).resize((8 + row, 9)) for row, pixel in enumerate(pixels)]
    images[3] = images[3].convert("RGB")
    storage = LogCLBuffer(image_shape=(3, 16, 12), **RAW)
    storage.update_from_dataset(dataset(images, [0] * 40))
    assert storage.memory.settings.image_shape == (3, 16, 12)
    assert storage.buffer[5][0].size == (12, 16)


def with_logits(images, targets):
    more = DataAttribute(targets, "logits", use_in_getitem=True)
    return dataset(images, targets).update_data_attribute("logits", more)


def differently_transformed(images, targets):
    turned = {"train": (transforms.Resize(8), None), "eval": (None, None)}
    return dataset(images, targets, transform_groups=turned).concat(dataset(images, targets))


def frozen_over_others(images, targets):
    inner = dataset(
        images, targets, transform_groups={"train": (NORMALISED, None), "eval": (NORMALISED, None)}
    )
    return ClassificationDataset([inner], frozen_transform_groups=DefaultTransformGroups((torch.neg, None)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x, y: dataset([NORMALISED(image) for image in x], y), "give normalised="),
        (lambda x, y: dataset([image > 0.5 for image in x], y), "type bool"),
        (lambda x, y: dataset([image.flatten() for image in x], y), r"samples are Tensor of shape \(64,\)"),
        (lambda x, y: dataset([*x[:39], x[39][:, :4]], y), "image 39 has shape .* and image_shape="),
        (lambda x, y: dataset([Image.new("L", (8, 8))] * 39 + [Image.new("RGB", (8, 8))], y), "only some"),
        (lambda x, y: dataset([Image.new("I;16", (8, 8))] * 40, y), "mode I;16"),
        (lambda x, y: dataset(x, [-1] * 40), "class -1 of task 0 cannot be stored"),
        (with_logits, "minibatches have logits"),
        (differently_transformed, "different transforms"),
        (frozen_over_others, "frozen transforms after"),
    ],
)
def test_unsupported_samples_are_refused(pixels, tmp_path, make, message):
    data = make([FORMS["float tensors"](pixel) for pixel in pixels], [0, 1] * 20)
    with pytest.raises(BadInput, match=message) as refused:
        LogCLBuffer(tmp_path / "a.logcl", **RAW).update_from_dataset(data)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "a.logcl").exists()


def test_memory_of_another_image_shape_is_unchanged(few, tmp_path):
    memory = Memory.open(tmp_path / "a.logcl", (3, 8, 8))
    plugin = LogCLPlugin(memory, settings=QUICK)
    with pytest.raises(BadInput, match="this memory takes"):
        strategy([plugin], train_epochs=1).train(few.with_task_labels(2).train_stream[0])
    assert memory.n == 0


def test_memory_with_string_labels_is_refused(few, tmp_path):
    memory = Memory.open(tmp_path / "a.logcl", (1, 8, 8))
    memory.absorb(few.train.images[:4], ["cat", "dog", "cat", "dog"])
    with pytest.raises(BadInput, match="strings as labels"):
        strategy([LogCLPlugin(memory)], train_epochs=1).train(few.with_task_labels(2).train_stream[0])


def test_the_buffer_cannot_be_replaced(few):
    with pytest.raises(BadInput, match="cannot be set"):
        LogCLBuffer().buffer = few.with_task_labels(2).train_stream[0].dataset


def test_empty_experience_changes_nothing(few):
    storage = LogCLBuffer()
    storage.update_from_dataset(few.without_task_labels(2).train_stream[0].dataset.subset([]))
    assert storage.memory is None
    assert len(storage.buffer) == 0


def test_import_error_without_avalanche():
    code = "import sys; sys.modules['avalanche'] = None; import logcl.integrations.avalanche.plugin"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stderr.splitlines()[-1] == (
        "ImportError: avalanche-lib is not installed; run pip install 'logcl[avalanche]'"
    )
