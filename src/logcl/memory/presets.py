"""Settings that go well together, under a name, for images of any shape."""

from __future__ import annotations

import operator

from logcl.codecs.settings import GeneratorSettings
from logcl.core.errors import BadSettings
from logcl.core.settings import ClassifierSettings, ImageShape, Recipe
from logcl.memory import appendix
from logcl.memory.settings import PresetName, Settings, parse

PRESETS: dict[PresetName, str] = {
    "fast": "codes and labels are stored at their entropy: most accuracy for a byte and a second (default)",
    "paper-cpu": "the published method, codes computed from the index, with networks small enough for a CPU",
    "paper": "the published method with its networks and hyperparameters, by data set; for an accelerator",
    "online": "compares as Mai et al. 2022 do: one pass, batches of 10, reduced ResNet18, 10,000 held",
    "offline": "compares as Rebuffi et al. 2017 do: 70 passes a task, 2,000 exemplars in all",
}
BUDGETS: dict[str, str] = {"online": "10000", "offline": "2000"}
"""What methods with a buffer may keep, where a preset says so."""
USUAL_BUDGET = "20/class"
"""Where none does: 2,000 samples of CIFAR-100, the field's standard, and as much a class for others."""


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
    # Noise hides which decoder an image came from, and so does moving it about: see docs/paper.md.
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
    if name in ("fast", "online", "offline"):
        generator = _fast_generator(image_shape, values)
    elif name == "paper-cpu":
        generator = GeneratorSettings(
            network="superposed", codes="index", labels="labeller", assignment="none", weights="half",
            bits=7 if values <= 256 else 12, width=min(max(2 * values // 3, 96), 2048),
            labeller_width=4 if values <= 256 else 8,
            labeller_training=Recipe(epochs=20, min_steps=2000, learning_rate=1e-2),
            warm_up_epochs=8, warm_up_learning_rate=3e-3, epochs=10, learning_rate=3e-3, min_steps=800,
            batch_size=256,
        )  # fmt: skip
    elif name == "paper":
        generator, classifier = _published(appendix.column(dataset, channels), channels)
    else:
        raise BadSettings(f"there is no preset {name!r}; choose one of: {', '.join(PRESETS)}")
    return parse(
        {
            "preset": name,
            "image_shape": image_shape,
            # A small unit keeps few raw samples waiting; a model that is trained needs more of them.
            "unit": 128 if tiny or generator.network == "cosine" else 512,
            "generator": generator,
            "classifier": classifier,
        }
    )


def _fast_generator(image_shape: ImageShape, values: int) -> GeneratorSettings:
    _, height, width = image_shape
    if image_shape[0] == 1 and values <= 256:
        return GeneratorSettings(
            network="mlp", bytes_per_sample=max(8, values / 28), symbols=max(16, min(64, values // 2)),
            width=max(64, values // 2), epochs=20, min_steps=800, learning_rate=1e-2, patience=8,
        )  # fmt: skip
    if image_shape[0] == 1 and values <= 2048:
        # Three planes of symbols at a quarter of the resolution. A decoder of convolutions is so small that
        # all levels can have the same one, which can then begin where the largest is.
        return GeneratorSettings(
            network="conv", psnr=26.5, symbols=3 * -(-height // 4) * -(-width // 4), width=24, smallest=1,
            keep_encoder=True, warm_share=0.35, epochs=20, min_steps=1600, learning_rate=5e-3, patience=8,
        )  # fmt: skip
    return GeneratorSettings(network="cosine", psnr=30, width=48)


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


def _published(column: appendix.Column, channels: int) -> tuple[GeneratorSettings, ClassifierSettings]:
    # Not in the appendix: the noise (on colour images of the order of the decoders' own errors), and that
    # f(x; θk) is trained like f(x; θg), whose symbol it shares. Only generators have a schedule there.
    classifier = ClassifierSettings(
        network=column.classifier, width=64, noise=0.15 if channels == 1 else 0.05, schedule="constant",
        batch_size=column.classifier_batch, learning_rate=column.classifier_rate,
        epochs=column.classifier_epochs,
    )  # fmt: skip
    generator = GeneratorSettings(
        network="binplay", width=32, weights="half", codes="index", bits=column.latent, labels="labeller",
        batch_size=column.generator_batch, epochs=column.generator_epochs,
        learning_rate=column.generator_rate, schedule="exponential", decay=appendix.SCHEDULER_RATE,
        warm_up_epochs=column.warm_up_epochs, warm_up_learning_rate=column.warm_up_rate,
        labeller=classifier.network, labeller_width=classifier.width,
        labeller_training=Recipe.model_validate(classifier.model_dump(include=set(Recipe.model_fields))),
    )  # fmt: skip
    return generator, classifier
