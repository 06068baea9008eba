"""Named sets of settings for images of any shape; the hyperparameters of the paper's appendix."""

from __future__ import annotations

import operator
from typing import Any, Literal, NamedTuple

from logcl.codecs.base import AutoSettings, CodecSettings
from logcl.codecs.features.codec import FeaturesSettings
from logcl.codecs.illustrated import IllustratedSettings
from logcl.codecs.index import IndexSettings
from logcl.codecs.labeller import LabelSettings
from logcl.core.errors import BadSettings
from logcl.core.settings import BackboneSpec, ClassifierSettings, ImageShape, Recipe
from logcl.memory.settings import PresetName, Settings, parse
from logcl.nn.networks.stem import is_large

PRESETS: dict[PresetName, str] = {
    "fast": "codes and labels are entropy coded: the most accuracy per byte and per second (default)",
    "paper-cpu": "the published method, codes computed from the index, with networks small enough for a CPU",
    "paper": "the published method with its networks and hyperparameters, by data set; for an accelerator",
    "online": "the protocol of Mai et al. 2022: one epoch, batches of 10, reduced ResNet18, 10,000 exemplars",
    "offline": "the protocol of Rebuffi et al. 2017: 70 epochs per task, 2,000 exemplars in all",
}
BUDGETS: dict[str, str] = {"online": "10000", "offline": "2000"}
"""Exemplars of methods with a buffer, where the preset fixes them."""
USUAL_BUDGET = "20/class"
"""Otherwise: 2,000 samples of CIFAR-100, the field's standard, and as many per class for other data."""
# The classifier of published comparisons: a ResNet18 with 20 instead of 64 channels.
_COMPARED: dict[str, Any] = {
    "network": "resnet18", "width": 20, "optimiser": "sgd", "learning_rate": 0.1, "noise": 0,
}  # fmt: skip

# Of images larger than 64x64 there are few, thousands rather than tens of thousands: more epochs, more steps.
# Behind a stem, `muon` is not measured.
_LARGE: dict[str, Any] = {"batch_size": 64, "min_steps": 800, "optimiser": "adam", "learning_rate": 2e-3}


class Column(NamedTuple):
    """The hyperparameters for one data set, as printed in the paper's appendix."""

    latent: int
    """Size of the autoencoder's latent space, the length of a code."""
    classifier: Literal["lenet", "resnet18"]
    classifier_batch: int
    classifier_rate: float
    classifier_epochs: int
    generator_batch: int
    warm_up_rate: float
    warm_up_epochs: int
    generator_rate: float


COLUMNS = {
    "mnist": Column(200, "lenet", 120, 0.002, 15, 40, 0.001, 30, 0.01),
    "omniglot": Column(200, "resnet18", 40, 0.001, 10, 40, 0.0001, 50, 0.05),
    "cifar100": Column(1000, "resnet18", 128, 0.1, 65, 50, 0.001, 100, 0.005),
}


def preset(
    name: str,
    image_shape: ImageShape,
    dataset: str | None = None,
    backbone: BackboneSpec | None = None,
    thumbnails: int = 0,
) -> Settings:
    """The settings of preset `name` for images of this shape, or for the features of a backbone.

    `paper` has hyperparameters per data set: `dataset` names one of the paper's; for other data the number of
    channels decides. With a backbone the memory holds features, and `image_shape` is not used; `thumbnails`:
    the side of the pictures beside them, 0 for none.
    """
    if backbone is not None:
        return _of_features(name, backbone, thumbnails)
    if thumbnails:
        raise BadSettings("thumbnails are for memories of features; leave them out, or choose a backbone")
    try:
        channels, height, width = map(operator.index, image_shape)
    except (TypeError, ValueError) as error:
        raise BadSettings(f"image_shape is {image_shape!r}; give (channels, height, width)") from error
    image_shape = channels, height, width
    values = channels * height * width
    tiny = values <= 256
    if name == "online":
        classifier = ClassifierSettings(**_COMPARED, epochs=1, batch_size=10, momentum=0, schedule="constant")
    elif name == "offline":
        classifier = ClassifierSettings(
            **_COMPARED, epochs=70, batch_size=128, weight_decay=5e-4, mirror=channels == 3,
            shift=4 if channels == 3 else 2,
        )  # fmt: skip
    else:
        classifier = _classifier(channels, tiny)
    if name in ("fast", "paper-cpu") and is_large(image_shape):
        classifier = classifier.model_copy(update=_LARGE | {"shift": min(max(height, width) // 16, 64)})
    labels = LabelSettings()
    codec: CodecSettings
    if name in ("fast", "online", "offline"):
        codec = AutoSettings.for_images(image_shape)
    elif name == "paper-cpu":
        classifier = classifier.model_copy(update={"noise": IndexSettings.noise(image_shape)})
        codec = IndexSettings.for_images(image_shape)
        labels = LabelSettings(
            kind="labeller", width=4 if tiny else 8,
            training=Recipe(epochs=20, min_steps=2000, learning_rate=1e-2),
        )  # fmt: skip
    elif name == "paper":
        codec, labels, classifier = _published(dataset, channels)
    else:
        raise BadSettings(f"there is no preset {name!r}; choose one of: {', '.join(PRESETS)}")
    return parse(
        {
            "preset": name,
            "image_shape": image_shape,
            "fit": "crop",
            "unit": _unit(values) if isinstance(codec, AutoSettings) else 128 if tiny else 512,
            "codec": codec,
            "labels": labels,
            "classifier": classifier,
        }
    )


def _of_features(name: str, backbone: BackboneSpec, thumbnails: int) -> Settings:
    """Settings for features: rounded, and classified by a linear layer or a small network."""
    if name != "fast":
        raise BadSettings(f"preset {name} is for images; a memory of features has the preset fast")
    classifier = ClassifierSettings(
        network="head", width=32, epochs=15, min_steps=300, learning_rate=1e-3, weight_decay=1.0, noise=0,
        label_smoothing=0.1,
    )  # fmt: skip
    return parse(
        {
            "preset": name,
            "image_shape": backbone.row(thumbnails),
            "fit": "crop",
            "backbone": backbone,
            "unit": _unit(backbone.features),
            "thumbnails": thumbnails,
            "codec": IllustratedSettings(side=thumbnails) if thumbnails else FeaturesSettings(),
            "classifier": classifier,
        }
    )


def _classifier(channels: int, tiny: bool) -> ClassifierSettings:
    """A network that a CPU trains in minutes, and a recipe for it: see results/bench/recipe.md."""
    common: dict[str, Any] = {
        "optimiser": "muon", "momentum": 0.6, "learning_rate": 5e-3, "weight_decay": 0.05,
        "label_smoothing": 0.1, "noise": 0, "mirror": "auto", "average_mirrored": True,
        "shift": 0 if tiny else 2,
    }  # fmt: skip
    if channels > 1:
        return ClassifierSettings(**common, width=64, epochs=8, min_steps=60, batch_size=256)
    return ClassifierSettings(**common, width=16, epochs=10, min_steps=120 if tiny else 800)


def _unit(values: int) -> int:
    """Samples per unit where nothing is trained: 64 kB of pixels, because fewer wait in the buffer, raw."""
    return 1 << min(max(2**16 // max(values, 1), 1).bit_length() - 1, 6)


def _published(dataset: str | None, channels: int) -> tuple[IndexSettings, LabelSettings, ClassifierSettings]:
    """The paper's settings; for data sets it does not use, grey images as MNIST and colour as CIFAR-100."""
    # The experiment with 100 tasks has "the same hyperparameters as in the Omniglot dataset".
    name = "omniglot" if dataset == "omniglot-100" else dataset
    column = COLUMNS.get(name or "", COLUMNS["mnist" if channels == 1 else "cifar100"])
    # Not in the appendix: the noise (for colour images about as large as the decoders' errors), and that
    # f(x; θk) is trained like f(x; θg), whose symbol it shares. Only generators have a schedule there.
    classifier = ClassifierSettings(
        network=column.classifier, width=64, noise=0.15 if channels == 1 else 0.05, schedule="constant",
        batch_size=column.classifier_batch, learning_rate=column.classifier_rate,
        epochs=column.classifier_epochs,
    )  # fmt: skip
    codec = IndexSettings(
        network="binplay", width=32, weights="half", bits=column.latent,
        batch_size=column.generator_batch, epochs=200,
        learning_rate=column.generator_rate, schedule="exponential", decay=0.99,
        warm_up_epochs=column.warm_up_epochs, warm_up_learning_rate=column.warm_up_rate,
    )  # fmt: skip
    labels = LabelSettings(
        kind="labeller", network=classifier.network, width=classifier.width,
        training=Recipe.model_validate(classifier.model_dump(include=set(Recipe.model_fields))),
    )  # fmt: skip
    return codec, labels, classifier
