"""The global model: a classifier trained on replay of the whole memory, kept in the same file."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from logcl.core.errors import BadInput, BadSettings, Damaged, NotTrained
from logcl.core.inputs import Label, Labels, as_pixels
from logcl.core.progress import Callback, Progress, WithCallbacks
from logcl.core.settings import MOST_SAMPLES, ClassifierSettings, Frozen, ImageShape, changed, parse_as
from logcl.core.sharding import Shard
from logcl.core.text import printable
from logcl.memory.memory import Memory
from logcl.memory.snapshot import Snapshot
from logcl.nn import blobs, networks
from logcl.nn.classification import new_network, predict_proba, train_on
from logcl.nn.device import choose_device
from logcl.nn.engines import Engine, Job, Local
from logcl.nn.images import to_unit
from logcl.nn.training import Work, generator_for, shortened

_CACHE = 2**32  # bytes of decoded memory that are kept while training; a larger memory is decoded on the fly
_GLOBAL = 0x91  # sets the global model's randomness apart from the levels', which have keys of their own


class OwnNetwork(Frozen):
    """A network that the user brought along: only its weights are kept."""

    kind: str = Field(max_length=200)
    """The name of its class, for messages."""
    image_shape: ImageShape
    classes: int = Field(ge=1, lt=2**31)


class Description(Frozen):
    """What the stored global model says of itself."""

    network: networks.ClassifierSpec | OwnNetwork
    classes: Labels
    """Labels by output number."""
    samples: int = Field(ge=0, lt=MOST_SAMPLES)
    """How many samples the memory held when this model was trained."""
    memory: str = Field(max_length=64)
    """The memory's digest at that moment: while it is the same, the model is up to date."""


class Classifier:
    """A trained global model. Made by `Classifier.train` or `Classifier.load`."""

    def __init__(self, about: Description, network: nn.Module, last: Description | None = None) -> None:
        self.about = about
        self.network = network
        self.last = last
        """Of the model that training has just gone on from; None if it began afresh, or was loaded."""

    @staticmethod
    def train(
        memory: Memory,
        network: nn.Module | None = None,
        recipe: ClassifierSettings | Mapping[str, Any] | None = None,
        *,
        seed: int | None = None,
        engine: Engine | None = None,
        callbacks: Sequence[Callback] = (),
        progress: Progress | None = None,
    ) -> Classifier:
        """Train on replay of everything the memory holds, and keep the result in its file.

        The paper's section 4.3: sample indices are drawn evenly (each pass is a permutation of 1..n), decoded
        and labelled by their local models, and white noise hides which decoder an image came from.

        network: any module that gives scores (n, classes) for float images (n, C, H, W) in [0, 1], classes
        as in `memory.classes`. It is trained from the weights it has, in place. By default the one that the
        memory's settings name, from random weights, or on from the last one if `warm_start` is set.
        recipe: how it is trained: settings, or some of them by name, e.g. {"epochs": 3}, the others being
        the memory's.
        engine: who trains it, this process by default; see `logcl.nn.engines`.
        callbacks: called with a `Moment` now and then; see `logcl.integrations.logs`.
        """
        memory.file.check_writable()  # before the work, not after it
        now = memory.snapshot()
        if not now.n:
            raise NotTrained(f"{memory.path} holds no samples yet; absorb some first")
        settings = now.settings.classifier
        if recipe is not None:
            settings = recipe if isinstance(recipe, ClassifierSettings) else _changed(settings, recipe)
        seed = now.settings.seed if seed is None else seed
        work = Work(generator_for(seed, _GLOBAL), WithCallbacks(progress, callbacks), "global model")
        about: networks.ClassifierSpec | OwnNetwork
        last = None
        if network is None:
            about = _spec(now, settings)
            last = _last(memory, about) if settings.warm_start else None
            if last is not None:
                # Other randomness than the last time: the same noise again would be learned by heart.
                work = replace(work, generator=generator_for(seed, _GLOBAL, last.fingerprint()))
                settings = shortened(settings, settings.warm_share)
            network = new_network(about, work)
            if last is not None:
                _take_over(network, now.classes, last)
        else:
            about = _described(network, now)
        # A generator cannot be sent to another process, what it would draw next can.
        job = Job("the global model", _learn, (now, network, settings, work.generator.get_state()))
        trained = (engine or Local()).together(job, work.progress)
        network.load_state_dict(trained)
        network.eval()
        description = Description(network=about, classes=now.classes, samples=now.n, memory=now.digest)
        memory.file.write_classifier(blobs.pack(description, blobs.weights(network, "network")))
        return Classifier(description, network, last.about if last else None)

    @staticmethod
    def load(memory: Memory, network: nn.Module | None = None) -> Classifier:
        """The global model kept in the memory's file, as it was last trained.

        If that was a network of your own, give one of the same kind as `network` for the weights.
        """
        name = f"{memory.path}: the global model"
        about, tensors = _read(memory, name)
        spec = about.network
        if isinstance(spec, OwnNetwork):
            if network is None:
                raise NotTrained(
                    f"{name} is a network of your own, a {printable(spec.kind)}; give one to "
                    f"Classifier.load(memory, network=...), or train one with `logcl train {memory.path}`"
                )
            blobs.fill(network, tensors, "network", name)
            return Classifier(about, network.to(choose_device()).eval())
        if network is not None:
            raise BadInput(f"{name} is a {spec.network} of LogCL's own; load it without network=")
        return Classifier(about, blobs.restore(networks.classifier, spec, tensors, "network", name))

    @staticmethod
    def describe(memory: Memory) -> Description:
        """What the global model kept in the memory's file says of itself."""
        return _read(memory, f"{memory.path}: the global model")[0]

    @property
    def classes(self) -> tuple[Label, ...]:
        """Labels by output number."""
        return self.about.classes

    @property
    def image_shape(self) -> ImageShape:
        """Channels, height, width of the images it takes."""
        return self.about.network.image_shape

    def is_current(self, memory: Memory) -> bool:
        """Whether the memory is still the one that this model was trained from."""
        return self.about.memory == memory.digest

    def fingerprint(self) -> int:
        """Tells this model from others by its weights."""
        return zlib.crc32(blobs.pack(self.about, blobs.weights(self.network, "network")))

    def predict(self, images: Any) -> NDArray[Any]:
        """The label of each image; images as in `Memory.absorb`."""
        kind = str if isinstance(self.classes[0], str) else np.int64
        return np.array([self.classes[i] for i in self.predict_proba(images).argmax(axis=1)], dtype=kind)

    def predict_proba(self, images: Any) -> NDArray[np.float32]:
        """Probabilities (n, classes), columns as in `classes`."""
        pixels = as_pixels(images, self.image_shape)
        if not len(pixels):
            return np.empty((0, len(self.classes)), dtype=np.float32)
        return predict_proba(self.network, pixels)


def _read(memory: Memory, name: str) -> tuple[Description, dict[str, Tensor]]:
    """Description and weights of the model in the memory's file, checked against each other."""
    blob = memory.file.read_classifier()
    if blob is None:
        raise NotTrained(f"{memory.path} has no trained classifier; run `logcl train {memory.path}` first")
    about, tensors = blobs.unpack(blob, Description, name)
    if about.network.classes != len(about.classes):
        raise Damaged(f"{name} does not fit its classes; train it again with `logcl train`")
    # Convolutions take images of any size: their weights do not show that a size is absurd.
    if about.network.image_shape != memory.settings.image_shape:
        raise Damaged(f"{name} takes images of another shape; train it again with `logcl train`")
    return about, tensors


def _spec(now: Snapshot, settings: ClassifierSettings) -> networks.ClassifierSpec:
    """The network that the settings name, for the classes of a memory."""
    named = {"network": settings.network, "width": settings.width}
    shape = {"image_shape": now.settings.image_shape, "classes": len(now.classes)}
    return parse_as(networks.ClassifierSpec, {**named, **shape})


def _last(memory: Memory, spec: networks.ClassifierSpec) -> Classifier | None:
    """The global model in the file, to go on from; None if there is none or if it is another network."""
    try:
        last = Classifier.describe(memory).network
        same = isinstance(last, networks.ClassifierSpec) and last.model_copy(update={"classes": spec.classes})
        return Classifier.load(memory) if same == spec else None
    except (NotTrained, Damaged):
        return None  # a damaged one is about to be replaced, which is what its message asks for


def _take_over(network: networks.ImageClassifier, classes: Labels, last: Classifier) -> None:
    """Give a new network the weights of the last one; outputs for classes not seen before stay random."""
    number = {label: output for output, label in enumerate(classes)}
    known = [output for output, label in enumerate(last.classes) if label in number]
    outputs = [number[last.classes[output]] for output in known]
    mine = network.state_dict()
    with torch.no_grad():
        for name, value in last.network.state_dict().items():
            if name.startswith("head."):
                mine[name][outputs] = value[known]
            else:
                mine[name].copy_(value)


def _changed(settings: ClassifierSettings, changes: Mapping[str, Any]) -> ClassifierSettings:
    data, wrong = changed(settings, changes)
    if wrong is not None:
        known = ", ".join(ClassifierSettings.model_fields)
        raise BadSettings(f"there is no setting {wrong!r} of a classifier; the settings are: {known}")
    return parse_as(ClassifierSettings, data)


def _described(network: nn.Module, now: Snapshot) -> OwnNetwork:
    """A network of the user's, moved to where it is trained; refused if it cannot classify these images."""
    network.to(choose_device())
    kind = type(network).__name__
    if not any(weight.requires_grad for weight in network.parameters()):
        raise BadInput(f"the network {kind} has no weights to train")
    x, _ = now.fetch(now.live[:2])
    network.eval()
    with torch.no_grad():
        scores = network(to_unit(x.to(choose_device())))
    wanted = (len(x), len(now.classes))
    if not isinstance(scores, Tensor) or tuple(scores.shape) != wanted:
        found = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise BadInput(
            f"the network {kind} gives {found} for {len(x)} images; it must give scores {wanted}, one for "
            f"each class of the memory"
        )
    return OwnNetwork(kind=kind[:200], image_shape=now.settings.image_shape, classes=len(now.classes))


def _learn(
    now: Snapshot,
    network: nn.Module,
    settings: ClassifierSettings,
    state: Tensor,
    shard: Shard,
    progress: Progress,
) -> dict[str, Tensor]:
    """Train a network on one process's shard of the samples; returns the weights.

    Each process decodes only its own samples. Gradients are averaged after every batch; the batches of all
    processes together are as large as that of a single one would be.
    """
    generator = torch.Generator()
    generator.set_state(state)
    if shard.rank:
        generator = generator_for(int(torch.randint(2**62, (), generator=generator)), shard.rank)
    network.to(choose_device())
    trained = nn.parallel.DistributedDataParallel(network) if shard.count > 1 else network
    if shard.rank >= now.n:
        shard = Shard(shard.rank % now.n, shard.count)  # more processes than samples
    mine = now.live[shard.positions(now.n)]
    # Every process must make the same number of steps: one with a sample less sees one of its samples twice.
    count = -(-now.n // shard.count)
    settings = settings.model_copy(update={"batch_size": max(round(settings.batch_size / shard.count), 1)})
    if count * int(np.prod(now.settings.image_shape)) <= _CACHE:
        images, classes = now.everything(progress, shard)
        labels = torch.from_numpy(classes)

        def fetch(rows: Tensor) -> tuple[Tensor, Tensor]:
            rows = rows % len(mine)
            return images[rows], labels[rows]

    else:

        def fetch(rows: Tensor) -> tuple[Tensor, Tensor]:
            x, y = now.fetch(mine[rows.numpy() % len(mine)])
            return x, torch.from_numpy(y)

    train_on(trained, fetch, count, settings, Work(generator, progress, "global model"))
    return {name: value.cpu() for name, value in network.state_dict().items()}
