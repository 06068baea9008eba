"""The memory behind an estimator: its file, the format of X and y kept in it, and its global model.

A memory at a path belongs to the user: an estimator and its pickle only refer to it. A temporary one belongs
to the estimator, and is pickled and deleted with it.

Of a table, each row is an image and each column a pixel. The scale of each column is learnt from the first
task and then fixed, because stored pixels are meaningless without it. So it has to cope with columns of any
range, and with later tasks far away from the first.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, ValidationInfo, model_validator
from torch import Tensor, nn

from logcl.codecs.base import RateSettings
from logcl.core.errors import BadInput, Damaged, NotAMemory, NotTrained
from logcl.core.inputs import Label
from logcl.core.settings import Frozen, ImageShape
from logcl.core.text import printable
from logcl.integrations.memories import PathMemory, TemporaryMemory
from logcl.memory.classifier import Classifier, OwnNetwork
from logcl.memory.manifest import Manifest
from logcl.memory.presets import preset
from logcl.memory.settings import Settings, override
from logcl.nn.training import generator_for, seeded

NOTE = "sklearn"
"""The note in the memory file that holds the `InputFormat`."""
_TABLE = 0x7AB1E  # separates the initial weights of a table's network from all other randomness

training = threading.RLock()
"""Torch has one random state per process: threads that trained at once would disturb each other's."""

LabelKind = Literal["int", "str", "bool", "float"]
_DTYPES: dict[LabelKind, type] = {"int": np.int64, "str": np.str_, "bool": np.bool_, "float": np.float64}

MAX_SPREADS = 100
"""Values further than this from the centre of their column, in spreads, are clipped."""
_STRETCH = 2 * math.asinh(MAX_SPREADS)  # from pixels in [0, 1] back to asinh(spreads)
_MAX_WIDTH = 4096  # of an image, in pixels
_LARGEST = 1e300  # the difference of two such values is still finite

# The cosine transform needs no training, whatever the columns are, and merges levels without loss.
_CODES = {"unit": 128, "codec.name": "cosine", "codec.psnr": 40}
_CLASSIFIER = {
    "network": "mlp", "width": 16, "epochs": 20, "min_steps": 200, "learning_rate": 1e-2, "noise": 0.02,
    "mirror": False, "shift": 0, "optimiser": "adam", "weight_decay": 0, "label_smoothing": 0,
}  # fmt: skip


class ColumnScale(Frozen):
    """How columns become pixels: asinh((x - centre) / spread), which resolves less far from the centre."""

    centre: tuple[float, ...]
    spread: tuple[Annotated[float, Field(gt=0)], ...]

    @staticmethod
    def fit(table: NDArray[np.float64]) -> ColumnScale:
        """From the first task (n, columns): the median of each column and a robust standard deviation."""
        table = np.clip(table, -_LARGEST, _LARGEST)
        centre = np.median(table, axis=0)
        # Values equal to the median are left out: most of a column may be zeros.
        distances = [column[column > 0] for column in np.abs(table - centre).T]
        spread = [
            # 1.4826 times the median distance is the standard deviation if the column is normal. A constant
            # column says nothing about other values; they are assumed to be of the same magnitude.
            1.4826 * float(np.median(column)) if len(column) else max(abs(float(value)), 1.0)
            for column, value in zip(distances, centre, strict=True)
        ]
        return ColumnScale(centre=tuple(centre.tolist()), spread=tuple(spread))

    def images(self, table: NDArray[np.float64], shape: ImageShape) -> NDArray[np.float64]:
        """A table (n, columns) as images (n, 1, H, W) in [0, 1]; unused pixels are grey."""
        pixels = np.clip(0.5 + np.arcsinh(self._spreads(table)) / _STRETCH, 0, 1)
        missing = math.prod(shape) - len(self.centre)
        return np.pad(pixels, ((0, 0), (0, missing)), constant_values=0.5).reshape(-1, *shape)

    def count_clipped(self, table: NDArray[np.float64]) -> int:
        """Number of values beyond `MAX_SPREADS`."""
        return int((np.abs(self._spreads(table)) > MAX_SPREADS).sum())

    def _spreads(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(over="ignore"):
            spreads: NDArray[np.float64] = (table - np.array(self.centre)) / np.array(self.spread)
        return spreads


class TableNetwork(nn.Module):
    """The global model of a table: an MLP with two hidden layers, whose inputs are asinh(spreads).

    Typical values of a column take up a tenth of a pixel's range, from which a network learns slowly.
    """

    def __init__(self, image_shape: ImageShape, width: int, classes: int) -> None:
        super().__init__()
        hidden = 8 * width
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(math.prod(image_shape), hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, classes),
        )

    def forward(self, image: Tensor) -> Tensor:
        """(n, 1, H, W) in [0, 1] → (n, classes)."""
        scores: Tensor = self.layers((image - 0.5) * _STRETCH)
        return scores


def table_preset(name: str, columns: int) -> Settings:
    """The settings of a preset for tables; a row becomes one line of at least two pixels if it fits."""
    lines = -(-columns // _MAX_WIDTH)
    settings = preset(name, (1, lines, max(-(-columns // lines), 2)))
    changes: dict[str, Any] = {f"classifier.{key}": value for key, value in _CLASSIFIER.items()}
    return override(settings, changes | (_CODES if isinstance(settings.codec, RateSettings) else {}))


class InputFormat(Frozen):
    """How X and y were given to the estimator that created a memory."""

    labels: LabelKind
    """A memory holds integers or strings; predictions have the type that y had."""
    scale: ColumnScale | None = None
    """Of a table; None if X holds images."""
    names: tuple[str, ...] | None = None
    """Of the features, if the X of the first task had any."""

    @model_validator(mode="after")
    def _agrees(self, pixels: ValidationInfo) -> InputFormat:
        """Scale and names agree with each other and with the pixels per image, the context of a note."""
        if pixels.context is not None:
            features = len(self.scale.centre) if self.scale else pixels.context
            spreads = len(self.scale.spread) if self.scale else features
            names = features if self.names is None else len(self.names)
            if not 1 <= features <= pixels.context or spreads != features or names != features:
                raise ValueError("it does not match the images")
        return self


@dataclass(frozen=True)
class View:
    """A memory at one moment, as an estimator sees it."""

    manifest: Manifest
    digest: str
    path: Path

    @cached_property
    def input_format(self) -> InputFormat | None:
        """As stored in the file; None if no estimator created it."""
        text = self.manifest.notes.get(NOTE)
        if text is None:
            return None
        try:
            return InputFormat.model_validate_json(text, context=math.prod(self.image_shape))
        except ValidationError as error:
            reason = printable(error.errors(include_url=False, include_input=False)[0]["msg"])
            raise Damaged(
                f"{self.path}: the note {NOTE!r} cannot be read ({reason}); open the file with Memory "
                f"instead of an estimator"
            ) from error

    @property
    def image_shape(self) -> ImageShape:
        """Channels, height, width."""
        return self.manifest.settings.image_shape

    @property
    def scale(self) -> ColumnScale | None:
        """Of a table; None if X holds images."""
        return self.input_format.scale if self.input_format else None

    @property
    def features(self) -> int:
        """Columns of X."""
        if (backbone := self.manifest.settings.backbone) is not None:
            return backbone.features
        return len(self.scale.centre) if self.scale else math.prod(self.image_shape)

    @property
    def label_kind(self) -> LabelKind | None:
        """None for an empty memory that no estimator created."""
        if self.input_format:
            return self.input_format.labels
        classes = self.manifest.classes
        return None if not classes else "str" if isinstance(classes[0], str) else "int"

    def as_given(self, labels: Sequence[Label]) -> NDArray[Any]:
        """Labels of the memory as an array of the type that y had."""
        return np.array(labels, dtype=_DTYPES[self.label_kind or "int"])

    def images(self, X: NDArray[Any]) -> NDArray[Any]:
        """Rows (n, features) as images (n, C, H, W), or features (n, 1, 1, D), for the memory."""
        if (backbone := self.manifest.settings.backbone) is not None:
            return X.reshape(-1, *backbone.sample_shape)
        if self.scale is None:
            return X.reshape(-1, *self.image_shape)
        return self.scale.images(X.astype(np.float64), self.image_shape)


class EstimatorMemory:
    """A memory, and its global model once that is needed.

    Nothing about the samples is kept here: every call starts with a `view` of the file.
    """

    def __init__(self, memory: PathMemory | TemporaryMemory, given: str | None) -> None:
        self.memory = memory
        self.given = given
        """The estimator's `path` when the memory was opened."""
        self._classifier: Classifier | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return EstimatorMemory, (self.memory, self.given)

    def view(self) -> View:
        """The memory at this moment."""
        if not self.memory.file.exists():
            raise NotAMemory(
                f"{self.memory.path} no longer exists, and this estimator only refers to it; put the file "
                f"back or fit a new estimator"
            )
        header = self.memory.file.header()
        return View(Manifest.of(header, self.memory.path), header.content, self.memory.path)

    def moved_to(self, path: str) -> EstimatorMemory:
        """This memory, which is temporary, at the path where it is about to appear."""
        here = PathMemory(self.memory.path)
        here.file.header()
        there = EstimatorMemory(PathMemory(path, here.file.lineage), path)
        there._classifier = self._classifier
        return there

    def classifier(self) -> tuple[View, Classifier]:
        """The global model of what the memory holds now: cached, loaded from the file, or trained."""
        while True:
            view = self.view()
            if self._classifier is not None and self._classifier.about.memory == view.digest:
                return view, self._classifier
            network, settings = None, view.manifest.settings
            if view.scale is not None and settings.classifier.network == "mlp":
                with seeded(generator_for(settings.seed, _TABLE)):
                    classes = len(view.manifest.classes)
                    network = TableNetwork(view.image_shape, settings.classifier.width, classes)
            try:
                self._classifier = self._load(view, network) or Classifier.train(self.memory, network)
                return view, self._classifier
            except (BadInput, Damaged):
                if self.view().digest == view.digest:
                    raise  # otherwise another process has added classes meanwhile

    def _load(self, view: View, network: TableNetwork | None) -> Classifier | None:
        """The stored global model; None unless it is that of what the memory holds now."""
        try:
            stored = Classifier.describe(self.memory)
        except NotTrained:
            return None
        if stored.memory != view.digest:
            return None
        own = isinstance(stored.network, OwnNetwork) and stored.network.kind == TableNetwork.__name__
        return Classifier.load(self.memory, network if own else None)


def kind_of(labels: NDArray[Any]) -> LabelKind:
    """The kind of an array of labels that scikit-learn has checked."""
    kinds: dict[str, LabelKind] = {"b": "bool", "i": "int", "u": "int", "f": "float"}
    return kinds.get(labels.dtype.kind, "str")
