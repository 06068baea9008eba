"""The global model: a classifier trained on replay of the whole memory and stored in the same file."""

from __future__ import annotations

import hashlib
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
from logcl.core.progress import Callback, Progress, Silent, WithCallbacks
from logcl.core.settings import (
    MOST_SAMPLES,
    BackboneSpec,
    ClassifierSettings,
    Frozen,
    ImageFit,
    ImageShape,
    Precision,
    changed,
    parse_as,
)
from logcl.core.text import printable
from logcl.memory import classifier_limits as limits
from logcl.memory import heads
from logcl.memory.classifier_job import check_minutes, learn
from logcl.memory.featured import OnFeatures, as_features, of_user
from logcl.memory.interrupted import Keeper, Unfinished, kept
from logcl.memory.lineage import has_grown_from
from logcl.memory.memory import Memory
from logcl.memory.snapshot import Snapshot
from logcl.nn import backbones, blobs, networks
from logcl.nn.backbones import Backbone
from logcl.nn.classification import averages, formatted, new_network, predict_proba
from logcl.nn.device import choose_device
from logcl.nn.engines import Engine, Job, Local
from logcl.nn.training import Work, generator_for, shortened

_PRECISION: Precision = "half"  # of stored weights; a network of the caller's is stored as it is
_GLOBAL = 0x91  # key of the global model's random generator, distinct from those of the levels


class OwnNetwork(Frozen):
    """A network given by the user: only its weights are stored."""

    kind: str = Field(max_length=200)
    """Name of its class, for messages."""
    image_shape: ImageShape
    classes: int = Field(ge=1, lt=2**31)


class Description(Frozen):
    """The description stored with the global model."""

    network: networks.ClassifierSpec | OwnNetwork
    classes: Labels
    """Labels by output number."""
    samples: int = Field(ge=0, lt=MOST_SAMPLES)
    """Number of samples in the memory when the model was trained."""
    memory: str = Field(max_length=64)
    """Digest of the memory at that time; the model is up to date as long as it is the same."""
    backbone: BackboneSpec | None = None
    """The network whose features it takes; None: it takes images."""
    mirrored: bool = False
    """Whether predictions are averages over an image and its mirror image."""


class Classifier:
    """A trained global model, from `Classifier.train` or `Classifier.load`."""

    def __init__(
        self,
        about: Description,
        network: nn.Module,
        last: Description | None = None,
        resumed: int = 0,
        given: Backbone | None = None,
        *,
        fit: ImageFit,
    ) -> None:
        self.about = about
        self.fit = fit
        """How the memory resizes images, and so the classifier."""
        self.network = network
        self.given = given
        self.last = last
        """Describes the model of a warm start; None if trained from scratch, or loaded."""
        self.resumed = resumed
        """The epoch after which an interrupted training was continued; 0 if it was not."""

    @staticmethod
    def train(
        memory: Memory,
        network: nn.Module | None = None,
        recipe: ClassifierSettings | Mapping[str, Any] | None = None,
        *,
        minutes: float | None = None,
        seed: int | None = None,
        engine: Engine | None = None,
        callbacks: Sequence[Callback] = (),
        progress: Progress | None = None,
    ) -> Classifier:
        """Train on replay of the whole memory, and store the result in its file.

        The paper's section 4.3: sample indices are drawn uniformly (each epoch is a permutation of 1..n),
        their local models decode and label them, and white noise hides which decoder an image came from.

        network: any module that maps float images (n, C, H, W) in [0, 1] to scores (n, classes), classes as
        in `memory.classes`; if the memory has a backbone, it takes features (n, D). It is trained in place
        from its current weights. Default: the network of the memory's settings, from random weights or, with
        `warm_start`, from the previous global model.
        recipe: training settings, or some of them by name, e.g. {"epochs": 3}; by default the memory's.
        minutes: the time there is. A recipe that takes longer, as measured before it starts, gets fewer
        epochs or steps, and its learning rate reaches zero all the same. How long is told to `progress`.
        engine: where to train, by default in this process; see `logcl.nn.engines`.
        callbacks: called with each `Moment`; see `logcl.integrations.logs`.

        If it is interrupted in this process, the last finished epoch is kept in the file. The same training
        continues from it and ends with the same weights, or sooner with `minutes`; another one, or a change
        of the memory, drops it.
        """
        check_minutes(minutes)
        memory.file.check_writable()  # before the training, not after it
        now = memory.snapshot().for_training()
        if not now.n:
            raise NotTrained(f"{memory.path} holds no samples yet; absorb some first")
        settings = now.settings.classifier
        if recipe is None:
            limits.check_steps(settings, now.n, memory.path)
        else:
            settings = recipe if isinstance(recipe, ClassifierSettings) else _changed(settings, recipe)
        seed = now.settings.seed if seed is None else seed
        work = Work(generator_for(seed, _GLOBAL), WithCallbacks(progress, callbacks), "global model")
        about: networks.ClassifierSpec | OwnNetwork
        last = None
        if network is None:
            settings = heads.decided(now, settings, work)
            about = networks.ClassifierSpec.of(settings, now.settings.seen_shape, len(now.classes))
            if not _asked(recipe):
                limits.check_network(about, memory.path)
            last = _last(memory, about) if settings.warm_start else None
            if last is not None:
                # Another seed than last time: the network would overfit to a repetition of the same noise.
                work = replace(work, generator=generator_for(seed, _GLOBAL, last.fingerprint()))
                settings = shortened(settings, settings.warm_share)
            network = new_network(about, work)
            if last is not None:
                _take_over(network, now.classes, last)
        else:
            about = _described(network, now)
        backbone = now.settings.backbone
        description = Description(
            network=about,
            classes=now.classes,
            samples=now.n,
            memory=now.digest,
            backbone=backbone,
            mirrored=averages(settings),
        )
        engine = engine or Local()
        # A generator cannot be sent to another process, but its state can.
        start = work.generator.get_state()
        keeper = Keeper(memory, now.digest, _digest(description, network, settings, start))
        resumed, state = keeper.load() if isinstance(engine, Local) else (0, None)
        # Neither a whole recipe nor a network of the caller's is a setting in the file.
        ours = None if isinstance(about, OwnNetwork) or isinstance(recipe, ClassifierSettings) else about
        at_once, spare = limits.room(ours, now.stored)
        keep = keeper if isinstance(engine, Local) else None
        tell = not (progress is None or isinstance(progress, Silent))
        how = (start, state, keep, at_once, spare, minutes, tell)
        inner = network
        if backbone is not None and isinstance(about, OwnNetwork):
            network = OnFeatures(network, backbone)
        job = Job("the global model", learn, (now, network, settings, *how))
        try:
            trained = engine.together(job, work.progress)
        except BaseException:
            keeper.store()
            raise
        network.load_state_dict(trained)
        network.eval()
        if not isinstance(about, OwnNetwork):
            blobs.round_weights(network, _PRECISION)  # it predicts what it will after being stored and loaded
        memory.file.write_classifier(
            blobs.pack(description, _weights(description, inner)),
            lambda header, parts: has_grown_from(now, header, parts, memory.path),
        )
        previous = last.about if last else None
        return Classifier(description, inner, previous, resumed, memory.given, fit=now.settings.fit)

    @staticmethod
    def load(memory: Memory, network: nn.Module | None = None) -> Classifier:
        """The global model stored in the memory's file.

        If it was trained from your own network, give one of the same architecture as `network`.
        """
        name = f"{memory.path}: the global model"
        about, tensors = _read(memory, name)
        spec, fit = about.network, memory.settings.fit
        if isinstance(spec, OwnNetwork):
            if network is None:
                blobs.check_finite(tensors, name)  # all that `logcl verify` can say of it
                raise NotTrained(
                    f"{name} is a network of your own, a {printable(spec.kind)}; give one to "
                    f"Classifier.load(memory, network=...), or train one with `logcl train {memory.path}`"
                )
            blobs.fill(network, tensors, "network", name)
            return Classifier(about, network.to(choose_device()).eval(), given=memory.given, fit=fit)
        if network is not None:
            raise BadInput(f"{name} is a {spec.network} of LogCL's own; load it without network=")
        limits.check_width(spec.widest, memory.path)
        own = formatted(blobs.restore(networks.classifier, spec, tensors, "network", name))
        return Classifier(about, own, given=memory.given, fit=fit)

    @staticmethod
    def describe(memory: Memory) -> Description:
        """The description of the global model stored in the memory's file."""
        return _read(memory, f"{memory.path}: the global model")[0]

    @staticmethod
    def unfinished(memory: Memory) -> Unfinished | None:
        """What the file keeps of an interrupted training, which the same training would continue."""
        return kept(memory)[0]

    @property
    def classes(self) -> tuple[Label, ...]:
        """Labels by output number."""
        return self.about.classes

    @property
    def image_shape(self) -> ImageShape:
        """Channels, height, width of its input images."""
        backbone = self.about.backbone
        return self.about.network.image_shape if backbone is None else backbone.image_shape

    @property
    def backbone(self) -> Backbone | None:
        """The network whose features it takes; None: it takes images."""
        spec = self.about.backbone
        return None if spec is None else backbones.found(spec, self.given)

    def is_current(self, memory: Memory) -> bool:
        """Whether the memory is unchanged since this model was trained."""
        return self.about.memory == memory.digest

    def fingerprint(self) -> int:
        """A checksum of description and weights."""
        return zlib.crc32(blobs.pack(self.about, _weights(self.about, self.network)))

    def predict(self, images: Any) -> NDArray[Any]:
        """The label of each image; images as in `Memory.absorb`."""
        kind = str if isinstance(self.classes[0], str) else np.int64
        return np.array([self.classes[i] for i in self.predict_proba(images).argmax(axis=1)], dtype=kind)

    def predict_proba(self, images: Any) -> NDArray[np.float32]:
        """Probabilities (n, classes), columns as in `classes`."""
        spec, backbone = self.about.network, self.about.backbone
        if backbone is None:
            pixels = as_pixels(images, spec.image_shape, self.fit)
        else:
            pixels = as_features(images, backbone, self.fit, lambda: self.backbone)
        if not len(pixels):
            return np.empty((0, len(self.classes)), dtype=np.float32)
        own = isinstance(spec, OwnNetwork)
        network = OnFeatures(self.network, backbone) if own and backbone is not None else self.network
        widest = 0 if isinstance(spec, OwnNetwork) else spec.widest
        probabilities = predict_proba(network, pixels, widest, mirrored=self.about.mirrored)
        if not np.isfinite(probabilities).all():
            raise Damaged("the classifier gives NaN for some image; train it again with `logcl train`")
        return probabilities


def stored_bytes(spec: networks.ClassifierSpec, network: nn.Module) -> int:
    """Bytes of a classifier in the file, about: its classes have names as well."""
    about = Description(network=spec, classes=tuple(range(spec.classes)), samples=0, memory="")
    return len(blobs.pack(about, _weights(about, network)))


def _weights(about: Description, network: nn.Module) -> dict[str, Tensor]:
    """As they are stored."""
    own = isinstance(about.network, OwnNetwork)
    return blobs.weights(network, "network", None if own else _PRECISION)


def _digest(about: Description, network: nn.Module, settings: ClassifierSettings, state: Tensor) -> str:
    """Identifies a training: one can continue from another if their digests are equal."""
    digest = hashlib.sha256(blobs.pack(about, blobs.weights(network, "network")))
    digest.update(settings.model_dump_json().encode())
    digest.update(state.numpy().tobytes())
    return digest.hexdigest()


def _read(memory: Memory, name: str) -> tuple[Description, dict[str, Tensor]]:
    """Description and weights of the model in the memory's file, checked against the memory."""
    blob = memory.file.read_classifier()
    if blob is None:
        raise NotTrained(f"{memory.path} has no trained classifier; run `logcl train {memory.path}` first")
    about, tensors = blobs.unpack(blob, Description, name)
    if about.network.classes != len(about.classes):
        raise Damaged(f"{name} does not fit its classes; train it again with `logcl train`")
    # Convolutions accept images of any size: a forged size would not contradict their weights.
    settings = memory.settings
    if (about.network.image_shape, about.backbone) != (settings.seen_shape, settings.backbone):
        raise Damaged(f"{name} takes images of another shape; train it again with `logcl train`")
    return about, tensors


def _asked(recipe: ClassifierSettings | Mapping[str, Any] | None) -> bool:
    """Whether the caller chose the network, which otherwise is a setting in the file."""
    return isinstance(recipe, ClassifierSettings) or bool({"network", "width"} & set(recipe or ()))


def _last(memory: Memory, spec: networks.ClassifierSpec) -> Classifier | None:
    """The stored global model for a warm start; None if there is none, or if it is another network."""
    try:
        last = Classifier.load(memory)
    except (NotTrained, Damaged):
        return None  # a damaged model is about to be replaced, as its message recommends
    same = last.about.network.model_copy(update={"classes": spec.classes}) == spec
    return last if same else None


def _take_over(network: networks.ImageClassifier, classes: Labels, last: Classifier) -> None:
    """Copy the weights of the last network into a new one; outputs of new classes stay random."""
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
    """Describe the user's network and move it to the device; refused if it cannot classify these images."""
    network.to(choose_device())
    kind = type(network).__name__
    if not any(weight.requires_grad for weight in network.parameters()):
        raise BadInput(f"the network {kind} has no weights to train; set requires_grad on some of them")
    x, _ = now.fetch(now.live[:2])
    network.eval()
    with torch.no_grad():
        scores = network(of_user(x, now.settings.backbone).to(choose_device()))
    wanted = (len(x), len(now.classes))
    if not isinstance(scores, Tensor) or tuple(scores.shape) != wanted:
        found = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise BadInput(
            f"the network {kind} gives {found} for {len(x)} images; make it give scores {wanted}, one per "
            f"class of the memory"
        )
    return OwnNetwork(kind=kind[:200], image_shape=now.settings.seen_shape, classes=len(now.classes))
