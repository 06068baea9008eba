"""A memory and its global model behind scikit-learn's conventions.

clf = LogCLClassifier(path="pets.logcl")
clf.partial_fit(X, y)
clf.predict(X)

X holds images, flat or not, or is a plain table. `docs/sklearn.md` is the guide.
"""

from __future__ import annotations

import math
import operator
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from logcl.core.errors import BadInput, BadSettings, CannotWrite, LogCLError
from logcl.core.inputs import Label, to_uint8
from logcl.core.settings import ImageShape
from logcl.integrations.sklearn.attached import NOTE, Held, Kind, Notes, one_at_a_time, temporary_path
from logcl.integrations.sklearn.tabular import REACH, Scale, table_settings, table_shape
from logcl.memory.memory import Memory
from logcl.memory.presets import preset
from logcl.memory.settings import override

_TYPES: dict[Kind, type] = {"int": np.int64, "str": np.str_, "bool": np.bool_, "float": np.float64}


class LogCLClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that remembers every sample it was given, in one file.

    X is (n, features): a table of any numbers, or flat images if `image_shape` says so; images may also come
    as (n, C, H, W) or (n, H, W). Images are uint8 or floats in [0, 1]. y holds integers, strings, booleans or
    whole floats.

    path: the memory file, created if absent. None: a temporary one that lives as long as the estimator.
    A path that holds a memory is as good as fitted: it can predict, and `partial_fit` adds to it.
    image_shape: (channels, height, width) of flat images; an existing memory knows it.
    preset, unit, settings: as for `Memory.open`; they must agree with a memory that exists.
    random_state: an integer is the memory's seed; otherwise the seed of a new memory is drawn.

    When fitted it has classes_, n_features_in_, feature_names_in_ (if X has names) and memory_.
    """

    _held: Held
    classes_: NDArray[Any]

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        image_shape: Sequence[int] | None = None,
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
        """Learn these samples and no others: an earlier temporary memory is dropped, a file is not.

        A file that holds samples may be the only copy of the past and is refused; `partial_fit` adds to it.
        """
        with self._all_or_nothing():
            for name in ("_held", "classes_", "n_features_in_", "feature_names_in_"):
                self.__dict__.pop(name, None)
            self._attach()
            if hasattr(self, "_held") and (n := self._held.memory.n):
                raise CannotWrite(
                    f"{self.path} holds {n:,} samples, which fit would have to forget; use partial_fit to "
                    f"add to them or another path, and path=None for cross-validation and searches"
                )
            self._absorb(X, y)
            self._held.classifier()
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> LogCLClassifier:
        """Add one task to the memory; new classes may come at any time.

        The global model is trained when it is next needed, not after each of many tasks. `classes` names some
        that may come later: until then their probability is 0.
        """
        with self._all_or_nothing():
            if not hasattr(self, "_held"):
                self._attach()
            elif self._held.temporary and self._held.owner != os.getpid():
                self._held = Held.of_bytes(self._held.to_bytes())  # a forked child goes its own way
            self._absorb(X, y, classes)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row, (n,)."""
        best = self.predict_proba(X).argmax(axis=1)
        found: NDArray[Any] = self.classes_[best]
        return found

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """Probabilities (n, classes), columns as in `classes_`."""
        self._ready()
        X = validate_data(self, self._flat(X)[0], reset=False)
        classifier = self._held.classifier()
        labels = _restored(classifier.classes, self._held.kind() or "int")
        self._know(labels)
        found = np.zeros((len(X), len(self.classes_)), dtype=np.float32)
        found[:, np.searchsorted(self.classes_, labels)] = classifier.predict_proba(self._images(X))
        return found

    @property
    def memory_(self) -> Memory:
        """The memory itself, to replay, inspect or verify it."""
        self._ready()
        return self._held.memory

    def __sklearn_is_fitted__(self) -> bool:
        try:
            return hasattr(self, "classes_") or (self.path is not None and Memory(self.path).n > 0)
        except LogCLError:
            return False  # there is nothing to predict with

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def _ready(self) -> None:
        if not hasattr(self, "_held"):
            self._attach()
        check_is_fitted(self)
        self._held.check_there()

    def _attach(self) -> None:
        """Go on with the memory at `path`, if there is one."""
        if self.path is None or not Memory(self.path).file.exists():
            return
        memory = Memory.open(
            self.path, self._given_shape(), preset=self.preset, unit=self.unit, settings=self.settings,
            seed=self._seed(),
        )  # fmt: skip
        self._held = Held(memory.path)
        self.n_features_in_ = self._held.features
        if self._held.notes and self._held.notes.names:
            self.feature_names_in_ = np.array(self._held.notes.names, dtype=object)
        if classes := memory.classes:
            self._know(_restored(classes, self._held.kind() or "int"))

    def _absorb(self, X: Any, y: Any, classes: Any = None) -> None:
        """One task into the memory, which is made if there is none."""
        flat, shape = self._flat(X)
        X, y = validate_data(self, flat, y, reset=not hasattr(self, "_held"))
        check_classification_targets(y)
        kind = _kind_of(y)
        labels = y.astype(np.int64) if kind == "float" else y  # whole ones, or they would be no labels
        known = np.unique(y)
        if classes is not None:
            given = np.asarray(classes)
            if _kind_of(given) != kind:
                raise BadInput(
                    f"classes are {_kind_of(given)}, and the labels in y are {kind}; keep to one kind"
                )
            known = np.union1d(known, given)
        X = X.astype(np.float64) if shape is None else to_uint8(X)  # before a file is made for it
        if not hasattr(self, "_held"):
            self._held = self._created(X, kind, shape)
        self._held.check_there()
        has = self._held.kind() or ("str" if kind == "str" else "int")
        if kind != has:
            raise BadInput(
                f"{self._held.memory.path} has {has} labels, and these are {kind}; keep to one kind"
            )
        images = self._images(X)
        if self._held.scale is not None and (count := self._held.scale.clipped(X)):
            warnings.warn(
                f"{count:,} of {X.size:,} values are more than {REACH} spreads away from the centre of their "
                f"column in the first task and are clipped; begin with a task that has all kinds of values",
                stacklevel=3,
            )
        with one_at_a_time:
            self._held.memory.absorb(images, labels)
        self._know(known)

    def _created(self, X: NDArray[Any], kind: Kind, shape: ImageShape | None) -> Held:
        """A new, empty memory for rows like these."""
        scale = None if shape is not None else Scale.learnt(X)
        chosen = preset(self.preset or "fast", shape or table_shape(X.shape[1]))
        if shape is None:
            chosen = table_settings(chosen)
        elif math.prod(shape) != X.shape[1]:
            raise BadInput(
                f"X has {X.shape[1]} features, and image_shape = {shape} has {math.prod(shape)} values; "
                f"they must be as many"
            )
        changes = dict(self.settings or {})
        if self.unit is not None:
            changes["unit"] = self.unit
        if (seed := self._seed()) is not None:
            changes["seed"] = seed
        elif "seed" not in changes:
            changes["seed"] = int(check_random_state(self.random_state).randint(2**31 - 1))
        chosen = override(chosen, changes)
        names = getattr(self, "feature_names_in_", None)
        notes = Notes(labels=kind, scale=scale, names=None if names is None else tuple(names))
        held = Held(temporary_path(), temporary=True) if self.path is None else Held(self.path)
        Memory.create(held.memory.path, chosen, {NOTE: notes.model_dump_json(exclude_none=True)})
        return held

    def _seed(self) -> int | None:
        return int(self.random_state) if isinstance(self.random_state, (int, np.integer)) else None

    def _given_shape(self) -> ImageShape | None:
        if self.image_shape is None:
            return None
        try:
            channels, height, width = map(operator.index, self.image_shape)
        except (TypeError, ValueError) as error:
            raise BadSettings(
                f"image_shape is {self.image_shape!r}; give (channels, height, width)"
            ) from error
        return channels, height, width

    def _flat(self, X: Any) -> tuple[Any, ImageShape | None]:
        """X with a row a sample, and the shape of its images: None if it is a table, or that is open."""
        held = getattr(self, "_held", None)
        is_table = held is not None and held.scale is not None
        shape = None if is_table else held.image_shape if held is not None else self._given_shape()
        found = tuple(getattr(X, "shape", ()))
        if len(found) not in (3, 4):
            return X, shape
        of_one = found[1:] if len(found) == 4 else (1, *found[1:])
        # Of more than four channels it is not clear that they come first.
        if shape is None and (is_table or of_one[0] > 4):
            raise BadInput(
                f"X has shape {found}; give rows (n, features), or images (n, channels, height, width) and "
                f"image_shape=(channels, height, width)"
            )
        if shape is not None and of_one != shape:
            raise BadInput(f"X has shape {found}; the images of this estimator are {shape}, channels first")
        return np.asarray(X).reshape(found[0], math.prod(of_one)), of_one

    def _images(self, X: NDArray[Any]) -> NDArray[Any]:
        """Rows as the memory takes them."""
        shape, scale = self._held.image_shape, self._held.scale
        return X.reshape(-1, *shape) if scale is None else scale.images(X.astype(np.float64), shape)

    def _know(self, labels: NDArray[Any]) -> None:
        """Make them part of `classes_`, if they are not."""
        known = getattr(self, "classes_", None)
        if known is None or not np.isin(labels, known).all():
            self.classes_ = np.unique(labels) if known is None else np.union1d(known, labels)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Whatever is raised inside leaves the estimator as it was."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise


def _kind_of(labels: NDArray[Any]) -> Kind:
    kinds: dict[str, Kind] = {"b": "bool", "i": "int", "u": "int", "f": "float"}
    return kinds.get(labels.dtype.kind, "str")


def _restored(labels: Sequence[Label], kind: Kind) -> NDArray[Any]:
    """Labels of a memory as they were given."""
    return np.array(labels, dtype=_TYPES[kind])
