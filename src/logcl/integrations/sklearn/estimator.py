"""A memory and its global model as a scikit-learn classifier.

clf = LogCLClassifier(path="pets.logcl")
clf.partial_fit(X, y)
clf.predict(X)

X holds images, flattened or not, or is a table of numbers. `docs/sklearn.md` is the guide.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from logcl.core.errors import BadInput, CannotWrite, LogCLError
from logcl.core.inputs import to_uint8
from logcl.core.settings import ImageShape
from logcl.integrations.sklearn import estimator_memory as parts
from logcl.integrations.temporary import TemporaryMemory
from logcl.memory.memory import Memory
from logcl.memory.presets import preset
from logcl.memory.settings import override


class LogCLClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that keeps every sample it was ever given in one memory file.

    X is (n, features): a table of numbers, or flattened images if `image_shape` is given; images may also be
    (n, C, H, W) or (n, H, W). Images are uint8 or floats in [0, 1]. y holds integers, strings, booleans or
    floats with integer values.

    path: the memory file, created if absent; None for a temporary one that lives as long as the estimator.
    With the path of an existing memory the estimator is fitted: it predicts, and `partial_fit` adds to it.
    image_shape: (channels, height, width) of flattened images; not needed for an existing memory.
    preset, unit, settings: as for `Memory.open`; they must agree with an existing memory.
    random_state: an integer is the memory's seed; otherwise a seed is drawn for each new memory.

    Once fitted it has classes_, n_features_in_, feature_names_in_ (if X has names) and memory_.
    """

    _backing: parts.EstimatorMemory
    classes_: NDArray[Any]

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        image_shape: ImageShape | None = None,
        preset: str | None = None,
        unit: int | None = None,
        settings: Mapping[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.path = path
        self.image_shape = image_shape
        self.preset = preset
        self.unit = unit
        self.settings = settings
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> LogCLClassifier:
        """Learn from these samples only: a previous temporary memory is dropped.

        A file that holds samples is refused, because it may be the only copy; `partial_fit` adds to it.
        """
        with self._all_or_nothing():
            for name in ("_backing", "classes_", "n_features_in_", "feature_names_in_"):
                self.__dict__.pop(name, None)
            self._attach()
            if hasattr(self, "_backing") and (n := self._backing.memory.n):
                raise CannotWrite(
                    f"{self.path} holds {n:,} samples, which fit would have to discard; call partial_fit to "
                    f"add to them or choose another path, and use path=None for cross-validation and searches"
                )
            self._absorb(X, y)
            self._backing.classifier()
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> LogCLClassifier:
        """Add one task to the memory; any task may bring new classes.

        The global model is trained when it is next needed, not after every task. `classes` may list classes
        that will come later; until then their probability is 0.
        """
        with self._all_or_nothing():
            if not hasattr(self, "_backing"):
                self._attach()
            elif isinstance(memory := self._backing.memory, TemporaryMemory):
                self._backing.memory = memory.owned()
            self._absorb(X, y, classes)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row, (n,)."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """Probabilities (n, classes), columns as in `classes_`."""
        self._check_ready()
        X = validate_data(self, self._flattened(X)[0], reset=False)
        classifier = self._backing.classifier()
        labels = self._backing.as_given(classifier.classes)
        self._add_classes(labels)
        probabilities = np.zeros((len(X), len(self.classes_)), dtype=np.float32)
        columns = np.searchsorted(self.classes_, labels)
        probabilities[:, columns] = classifier.predict_proba(self._backing.images(X))
        return probabilities

    @property
    def memory_(self) -> Memory:
        """The memory itself, to replay, inspect or verify it."""
        self._check_ready()
        return self._backing.memory

    def __sklearn_is_fitted__(self) -> bool:
        try:
            return hasattr(self, "classes_") or (self.path is not None and Memory(self.path).n > 0)
        except LogCLError:
            return False

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def _check_ready(self) -> None:
        if not hasattr(self, "_backing"):
            self._attach()
        check_is_fitted(self)
        self._backing.check_exists()

    def _attach(self) -> None:
        """Continue with the memory at `path`, if there is one."""
        if self.path is None or not Memory(self.path).file.exists():
            return
        memory = Memory.open(
            self.path, self.image_shape, preset=self.preset, unit=self.unit, settings=self.settings,
            seed=self._seed(),
        )  # fmt: skip
        backing = self._backing = parts.EstimatorMemory(memory)
        self.n_features_in_ = len(backing.scale.centre) if backing.scale else math.prod(backing.image_shape)
        if backing.input_format and backing.input_format.names:
            self.feature_names_in_ = np.array(backing.input_format.names, dtype=object)
        if classes := memory.classes:
            self._add_classes(backing.as_given(classes))

    def _absorb(self, X: Any, y: Any, classes: Any = None) -> None:
        """Add one task to the memory, which is created if there is none."""
        rows, shape = self._flattened(X)
        X, y = validate_data(self, rows, y, reset=not hasattr(self, "_backing"))
        check_classification_targets(y)
        given = y if classes is None else np.asarray(classes)
        kind, other = parts.kind_of(y), parts.kind_of(given)
        if other != kind:
            raise BadInput(f"classes are {other}, and the labels in y are {kind}; use one type")
        X = X.astype(np.float64) if shape is None else to_uint8(X)  # refuses bad pixels before a file exists
        if not hasattr(self, "_backing"):
            self._backing = self._created(X, kind, shape)
        self._backing.check_exists()
        expected = self._backing.label_kind or ("str" if kind == "str" else "int")
        if kind != expected:
            path = self._backing.memory.path
            raise BadInput(f"{path} has {expected} labels, and the labels in y are {kind}; use one type")
        scale = self._backing.scale
        if scale is not None and (count := scale.count_clipped(X)):
            warnings.warn(
                f"{count:,} of {X.size:,} values are more than {parts.MAX_SPREADS} spreads away from the "
                f"centre of their column in the first task and are clipped; start with a more representative "
                f"task",
                stacklevel=3,
            )
        # Floats have integer values here, or scikit-learn would not take them for classes.
        self._backing.absorb(X, y.astype(np.int64) if kind == "float" else y)
        self._add_classes(np.union1d(y, given))

    def _created(
        self, X: NDArray[Any], kind: parts.LabelKind, shape: ImageShape | None
    ) -> parts.EstimatorMemory:
        """A new, empty memory for rows like these: images of a shape, or a table."""
        name = self.preset or "fast"
        settings = preset(name, shape) if shape else parts.table_preset(name, X.shape[1])
        if shape and (values := math.prod(settings.image_shape)) != X.shape[1]:
            raise BadInput(
                f"X has {X.shape[1]} features, but image_shape = {settings.image_shape} has {values} values; "
                f"correct one of them"
            )
        changes = dict(self.settings or {})
        if self.unit is not None:
            changes["unit"] = self.unit
        if (seed := self._seed()) is not None:
            changes["seed"] = seed
        elif "seed" not in changes:
            changes["seed"] = int(check_random_state(self.random_state).randint(2**31 - 1))
        scale = parts.ColumnScale.fit(X) if shape is None else None
        names = tuple(getattr(self, "feature_names_in_", ())) or None
        note = parts.InputFormat(labels=kind, scale=scale, names=names).model_dump_json(exclude_none=True)
        memory = TemporaryMemory() if self.path is None else Memory(self.path)
        Memory.create(memory.path, override(settings, changes), {parts.NOTE: note})
        return parts.EstimatorMemory(memory)

    def _seed(self) -> int | None:
        return int(self.random_state) if isinstance(self.random_state, (int, np.integer)) else None

    def _flattened(self, X: Any) -> tuple[Any, ImageShape | None]:
        """X with one row per sample, and the shape of its images; None for a table."""
        backing = getattr(self, "_backing", None)
        is_table = backing is not None and backing.scale is not None
        expected = None if is_table else self.image_shape if backing is None else backing.image_shape
        found = tuple(getattr(X, "shape", ()))
        if len(found) not in (3, 4):
            return X, expected
        shape = found[1:] if len(found) == 4 else (1, *found[1:])
        # With more than four channels it is not clear that they come first.
        if expected is None and (is_table or shape[0] > 4):
            raise BadInput(
                f"X has shape {found}; give rows (n, features), or images (n, channels, height, width) and "
                f"image_shape=(channels, height, width)"
            )
        if expected is not None and not np.array_equal(shape, expected):
            raise BadInput(
                f"X has shape {found}, but the images of this estimator are {tuple(expected)}; resize or "
                f"transpose them"
            )
        return np.asarray(X).reshape(found[0], math.prod(shape)), shape

    def _add_classes(self, labels: NDArray[Any]) -> None:
        known = getattr(self, "classes_", labels[:0])
        if not np.isin(labels, known).all():
            self.classes_ = np.union1d(known, labels)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Undo all changes to the estimator if anything is raised inside."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
