"""Settings that go well together, under a name, for images of any shape."""

from __future__ import annotations

import operator

from logcl.codecs.autoencoder import AutoencoderSettings
from logcl.codecs.base import CodecSettings
from logcl.codecs.cosine import CosineSettings
from logcl.codecs.index import IndexSettings
from logcl.codecs.labeller import LabelSettings
from logcl.core.errors import BadSettings
from logcl.core.settings import ClassifierSettings, ImageShape, Recipe
from logcl.memory import appendix
from logcl.memory.settings import PresetName, Settings, parse

PRESETS: dict[PresetName, str] = {
    "fast": "codes and labels are entropy coded: the most accuracy per byte and per second (default)",
    "paper-cpu": "the published method, codes computed from the index, with networks small enough for a CPU",
    "paper": "the published method with its networks and hyperparameters, by data set; for an accelerator",
    "online": "the protocol of Mai et al. 2022: one epoch, batches of 10, reduced ResNet18, 10,000 exemplars",
    "offline": "the protocol of Rebuffi et al. 2017: 70 epochs per task, 2,000 exemplars in all",
}
BUDGETS: dict[str, str] = {"online": "10000", "offline": "2000"}
"""What methods with a buffer may keep, if the preset says so."""
USUAL_BUDGET = "20/class"
"""Otherwise: 2,000 samples of CIFAR-100, the field's standard, and as many per class for other data."""


def preset(name: str, image_shape: ImageShape, dataset: str | None = None) -> Settings:
    """The settings that preset `name` stands for on images of this shape.

    `paper` depends on the data set: `dataset` names one of the paper's; for others the image shape decides.
    """
    try:
        channels, height, width = map(operator.index, image_shape)
    except (TypeError, ValueError) as error:
        raise BadSettings(f"image_shape is {image_shape!r}; give (channels, height, width)") from error
    image_shape = channels, height, width
    values = channels * height * width
    tiny = values <= 256
    # Noise and shifts hide which decoder an image came from: see docs/paper.md.
    classifier = ClassifierSettings(
        epochs=10, min_steps=120 if tiny else 800, learning_rate=5e-3, width=16,
        noise=0.15 if tiny else 0.3, shift=0 if tiny else 2,
    )  # fmt: skip
    if channels > 1:
        classifier = ClassifierSettings(
            epochs=8, min_steps=60, learning_rate=2e-3, weight_decay=0.05, width=64, noise=0,
            mirror=True, shift=2, label_smoothing=0.1,
        )  # fmt: skip
    if name in ("online", "offline"):
        classifier = _compared(name, channels)
    labels = LabelSettings()
    codec: CodecSettings
    if name in ("fast", "online", "offline"):
        small = channels == 1 and values <= 2048
        codec = (AutoencoderSettings if small else CosineSettings).for_images(image_shape)
    elif name == "paper-cpu":
        codec = IndexSettings.for_images(image_shape)
        labels = LabelSettings(
            kind="labeller", width=4 if tiny else 8,
            training=Recipe(epochs=20, min_steps=2000, learning_rate=1e-2),
        )  # fmt: skip
    elif name == "paper":
        codec, labels, classifier = _published(appendix.column(dataset, channels), channels)
    else:
        raise BadSettings(f"there is no preset {name!r}; choose one of: {', '.join(PRESETS)}")
    return parse(
        {
            "preset": name,
            "image_shape": image_shape,
            # A small unit keeps few raw samples waiting; a codec that is trained needs more of them.
            "unit": 128 if tiny or isinstance(codec, CosineSettings) else 512,
            "codec": codec,
            "labels": labels,
            "classifier": classifier,
        }
    )


def _compared(name: str, channels: int) -> ClassifierSettings:
    """The classifier of comparisons in the literature: a ResNet18 with 20 instead of 64 channels."""
    if name == "online":
        return ClassifierSettings(
            network="resnet18", width=20, epochs=1, batch_size=10, optimiser="sgd", momentum=0,
            schedule="constant", learning_rate=0.1, noise=0,
        )  # fmt: skip
    return ClassifierSettings(
        network="resnet18", width=20, epochs=70, batch_size=128, optimiser="sgd", learning_rate=0.1,
        weight_decay=5e-4, noise=0, mirror=channels == 3, shift=4 if channels == 3 else 2,
    )  # fmt: skip


def _published(
    column: appendix.Column, channels: int
) -> tuple[IndexSettings, LabelSettings, ClassifierSettings]:
    # Not in the appendix: the noise (on colour images of the order of the decoders' own errors), and that
    # f(x; θk) is trained like f(x; θg), whose symbol it shares. Only generators have a schedule there.
    classifier = ClassifierSettings(
        network=column.classifier, width=64, noise=0.15 if channels == 1 else 0.05, schedule="constant",
        batch_size=column.classifier_batch, learning_rate=column.classifier_rate,
        epochs=column.classifier_epochs,
    )  # fmt: skip
    codec = IndexSettings(
        network="binplay", width=32, weights="half", bits=column.latent,
        batch_size=column.generator_batch, epochs=column.generator_epochs,
        learning_rate=column.generator_rate, schedule="exponential", decay=appendix.SCHEDULER_RATE,
        warm_up_epochs=column.warm_up_epochs, warm_up_learning_rate=column.warm_up_rate,
    )  # fmt: skip
    labels = LabelSettings(
        kind="labeller", network=classifier.network, width=classifier.width,
        training=Recipe.model_validate(classifier.model_dump(include=set(Recipe.model_fields))),
    )  # fmt: skip
    return codec, labels, classifier
