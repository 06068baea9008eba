"""The memory behind an estimator: its file, the format of X and y kept in it, and its global model.

A memory at a path belongs to the user: an estimator and its pickle only refer to it. A temporary one belongs
to the estimator: it is pickled and deleted with it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError, ValidationInfo, model_validator

from logcl.core.errors import Damaged, NotAMemory, NotTrained
from logcl.core.inputs import Label
from logcl.core.settings import Frozen, ImageShape
from logcl.core.text import printable
from logcl.integrations.sklearn.tabular import ColumnScale, TableNetwork
from logcl.integrations.temporary import TemporaryMemory
from logcl.memory.classifier import Classifier, OwnNetwork
from logcl.memory.memory import Memory
from logcl.nn.training import generator_for, seeded

NOTE = "sklearn"
"""The note in the memory file that holds the `InputFormat`."""
_TABLE = 0x7AB1E  # separates the initial weights of a table's network from all other randomness

# Torch has one random state per process: threads that trained at once would disturb each other's.
_training = threading.RLock()

LabelKind = Literal["int", "str", "bool", "float"]
_DTYPES: dict[LabelKind, type] = {"int": np.int64, "str": np.str_, "bool": np.bool_, "float": np.float64}


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


class EstimatorMemory:
    """A memory, and its global model once that is needed."""

    def __init__(self, memory: Memory | str) -> None:
        self.memory = memory if isinstance(memory, Memory) else Memory(memory)
        self._classifier: Classifier | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        temporary = isinstance(self.memory, TemporaryMemory)
        return EstimatorMemory, (self.memory if temporary else str(self.memory.path),)

    @cached_property
    def image_shape(self) -> ImageShape:
        """Channels, height, width."""
        return self.memory.settings.image_shape

    @cached_property
    def input_format(self) -> InputFormat | None:
        """As kept in the file; None if no estimator created it."""
        text = self.memory.notes.get(NOTE)
        if text is None:
            return None
        try:
            return InputFormat.model_validate_json(text, context=math.prod(self.image_shape))
        except ValidationError as error:
            reason = printable(error.errors(include_url=False, include_input=False)[0]["msg"])
            raise Damaged(
                f"{self.memory.path}: the note {NOTE!r} cannot be read ({reason}); open the file with Memory "
                f"instead of an estimator"
            ) from error

    @property
    def scale(self) -> ColumnScale | None:
        """Of a table; None if X holds images."""
        return self.input_format.scale if self.input_format else None

    @property
    def label_kind(self) -> LabelKind | None:
        """None for an empty memory that no estimator created."""
        if self.input_format:
            return self.input_format.labels
        classes = self.memory.classes
        return None if not classes else "str" if isinstance(classes[0], str) else "int"

    def as_given(self, labels: Sequence[Label]) -> NDArray[Any]:
        """Labels of the memory as an array of the type that y had."""
        return np.array(labels, dtype=_DTYPES[self.label_kind or "int"])

    def images(self, X: NDArray[Any]) -> NDArray[Any]:
        """Rows (n, features) as images (n, C, H, W) for the memory."""
        if self.scale is None:
            return X.reshape(-1, *self.image_shape)
        return self.scale.images(X.astype(np.float64), self.image_shape)

    def absorb(self, X: NDArray[Any], labels: NDArray[Any]) -> None:
        """Add one task of rows (n, features) to the memory."""
        with _training:
            self.memory.absorb(self.images(X), labels)

    def check_exists(self) -> None:
        """Raise if the file was deleted meanwhile."""
        if not self.memory.file.exists():
            raise NotAMemory(
                f"{self.memory.path} no longer exists, and this estimator only refers to it; put the file "
                f"back or fit a new estimator"
            )

    def classifier(self) -> Classifier:
        """The global model of what the memory holds now: cached, loaded from the file, or trained."""
        with _training:
            if self._classifier is not None and self._classifier.is_current(self.memory):
                return self._classifier
            network, settings = None, self.memory.settings
            if self.scale is not None and settings.classifier.network == "mlp":
                with seeded(generator_for(settings.seed, _TABLE)):
                    classes = len(self.memory.classes)
                    network = TableNetwork(self.image_shape, settings.classifier.width, classes)
            try:
                stored = Classifier.describe(self.memory)
            except NotTrained:
                stored = None
            if stored is None or stored.memory != self.memory.digest:
                self._classifier = Classifier.train(self.memory, network)
            else:
                own = isinstance(stored.network, OwnNetwork) and stored.network.kind == TableNetwork.__name__
                self._classifier = Classifier.load(self.memory, network if own else None)
            return self._classifier


def kind_of(labels: NDArray[Any]) -> LabelKind:
    """The kind of an array of labels that scikit-learn has checked."""
    kinds: dict[str, LabelKind] = {"b": "bool", "i": "int", "u": "int", "f": "float"}
    return kinds.get(labels.dtype.kind, "str")
