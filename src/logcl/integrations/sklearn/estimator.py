"""A memory and its global model as a scikit-learn classifier.

clf = LogCLClassifier(path="pets.logcl")
clf.partial_fit(X, y)
clf.predict(X)

X holds images, flattened or not, or is a table of numbers. With a backbone, images have any size.
`docs/sklearn.md` is the guide.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from logcl.core.errors import BadInput, BadSettings, CannotWrite, LogCLError
from logcl.core.inputs import to_uint8
from logcl.core.settings import ImageShape
from logcl.core.sizes import AskedShape, parse_size
from logcl.integrations.memories import PathMemory, TemporaryMemory, creating
from logcl.integrations.sklearn import estimator_memory as parts
from logcl.integrations.sklearn.rows import first_rows, rows_in
from logcl.memory.memory import Memory
from logcl.memory.presets import preset
from logcl.memory.settings import override
from logcl.nn import backbones
from logcl.nn.backbones import Backbone


class LogCLClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that keeps every sample it was ever given in one memory file.

    X is (n, features): a table of numbers, or flattened images if `image_shape` is given; images may also be
    (n, C, H, W), (n, H, W, C) or (n, H, W), or PIL images of any size, which are resized. Images are uint8 or
    floats in [0, 1]. y holds integers, strings, booleans or floats with integer values.

    path: the memory file, created if absent; None for a temporary one that lives as long as the estimator.
    With the path of an existing memory the estimator is fitted: it predicts, and `partial_fit` adds to it.
    image_shape: (channels, height, width), (height, width) or a side of images; not needed for an existing
    memory. With a backbone: the size of the images that it is given, usually its own.
    backbone: a frozen, pretrained network, by name or from `logcl.nn.backbones`. The memory then holds its
    features. X is images of any size, (n, C, H, W), (n, H, W, C), (n, H, W) or a list of PIL images, or
    features (n, D) that the backbone has computed before.
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
        image_shape: AskedShape | None = None,
        backbone: str | Backbone | None = None,
        preset: str | None = None,
        unit: int | None = None,
        settings: Mapping[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.path = path
        self.image_shape = image_shape
        self.backbone = backbone
        self.preset = preset
        self.unit = unit
        self.settings = settings
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> LogCLClassifier:
        """Learn from these samples only: a previous temporary memory is dropped.

        A file that holds samples is refused, because it may be the only copy; `partial_fit` adds to it.
        """
        with self._changing("_backing", "classes_", "n_features_in_", "feature_names_in_") as new:
            backing = new._attached()
            if backing is not None and (n := backing.view().manifest.n):
                raise CannotWrite(
                    f"{self.path} holds {n:,} samples, which fit would have to discard; call partial_fit to "
                    f"add to them or choose another path, and use path=None for cross-validation and searches"
                )
            new._absorb(X, y, train=True)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> LogCLClassifier:
        """Add one task to the memory; any task may bring new classes.

        The global model is trained when it is next needed, not after every task. `classes` may list classes
        that will come later; until then their probability is 0.
        """
        with self._changing() as new:
            backing = new._attached()
            if backing is not None and isinstance(memory := backing.memory, TemporaryMemory):
                new._backing = parts.EstimatorMemory(memory.owned(), None)
            new._absorb(X, y, classes)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row, (n,)."""
        classes, probabilities = self._predicted(X)
        return np.asarray(classes[probabilities.argmax(axis=1)])

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """Probabilities (n, classes), columns as in `classes_`."""
        return self._predicted(X)[1]

    @property
    def memory_(self) -> Memory:
        """The memory itself, to replay, inspect or verify it."""
        return self._fitted().memory

    def __sklearn_is_fitted__(self) -> bool:
        try:
            return hasattr(self, "classes_") or (self.path is not None and Memory(self.path).n > 0)
        except LogCLError:
            return False

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def _predicted(self, X: Any) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Classes, and the probability of each (n, classes)."""
        with parts.training:  # another thread may be adding classes
            backing = self._fitted()
            X = validate_data(self, rows_in(X, backing.view(), backing.memory)[0], reset=False)
            view, classifier = backing.classifier()
            labels = view.as_given(classifier.classes)
            self._add_classes(labels)
            classes = self.classes_
        probabilities = np.zeros((len(X), len(classes)), dtype=np.float32)
        probabilities[:, np.searchsorted(classes, labels)] = classifier.predict_proba(view.images(X))
        return classes, probabilities

    def _fitted(self) -> parts.EstimatorMemory:
        backing = self._attached()
        check_is_fitted(self)
        assert backing is not None
        backing.view()
        return self._lent(backing)

    def _attached(self) -> parts.EstimatorMemory | None:
        """The memory of this estimator: the one it has, or the one at `path`; None if there is none yet."""
        given = None if self.path is None else os.fspath(self.path)
        backing: parts.EstimatorMemory | None = getattr(self, "_backing", None)
        lineage = None
        if backing is not None:
            if backing.given == given:
                return backing
            if given is None or not isinstance(backing.memory, PathMemory):
                raise BadSettings(
                    f"path is {given!r}, but this estimator was fitted with path = {backing.given!r}; set it "
                    f"back or call fit"
                )
            lineage = backing.memory.file.lineage  # the file may have been moved or copied
        elif given is None or not Memory(given).file.exists():
            return None
        backing = parts.EstimatorMemory(PathMemory(given, lineage), given)
        view = backing.view()
        opened = Memory.open(
            given, self.image_shape, backbone=self.backbone, preset=self.preset, unit=self.unit,
            settings=self.settings, seed=self._seed(),
        )  # fmt: skip
        backing.memory.given = opened.given
        self._backing = backing
        self.n_features_in_ = view.features
        if view.input_format and view.input_format.names:
            self.feature_names_in_ = np.array(view.input_format.names, dtype=object)
        if view.manifest.classes:
            self._add_classes(view.as_given(view.manifest.classes))
        return backing

    def _absorb(self, X: Any, y: Any, classes: Any = None, *, train: bool = False) -> None:
        """Add one task to the memory, which is created if there is none."""
        backing: parts.EstimatorMemory | None = getattr(self, "_backing", None)
        view = backing.view() if backing else None
        network = None if backing else self._network()
        if self.backbone is not None:
            check_consistent_length(X, y)  # before features are computed, which takes longer
        if backing is None or view is None:
            rows, shape = first_rows(X, self.image_shape, network, (self.settings or {}).get("fit", "crop"))
        else:
            rows, shape = rows_in(X, view, self._lent(backing).memory)
        X, y = validate_data(self, rows, y, reset=view is None)
        check_classification_targets(y)
        given = y if classes is None else np.asarray(classes)
        kind, other = parts.kind_of(y), parts.kind_of(given)
        if other != kind:
            raise BadInput(f"classes are {other}, and the labels in y are {kind}; use one type")
        expected = kind if view is None else view.label_kind or ("str" if kind == "str" else "int")
        if kind != expected:
            path = self._backing.memory.path
            raise BadInput(f"{path} has {expected} labels, and the labels in y are {kind}; use one type")
        X = X.astype(np.float64) if shape is None else to_uint8(X)
        # Floats have integer values here, or scikit-learn would not take them for classes.
        labels = y.astype(np.int64) if kind == "float" else y
        self._add_classes(np.union1d(y, given))
        if backing is None or view is None or train:
            self._backing = self._started(X, labels, kind, shape, network, train)
        else:
            self._add(backing.memory, view, X, labels)

    def _started(
        self, X: NDArray[Any], labels: NDArray[Any], kind: parts.LabelKind, shape: ImageShape | None,
        network: Backbone | None, train: bool,
    ) -> parts.EstimatorMemory:  # fmt: skip
        """A memory of the first task: at `path` it appears in one step, with its classifier if `train`."""
        with creating(self.path) as memory:
            new = memory if memory.file.exists() else self._created(memory.path, X, kind, shape, network)
            self._add(new, parts.View(new.manifest, "", memory.path), X, labels)
            backing = parts.EstimatorMemory(memory, None)
            if train:
                backing.classifier()
            return backing if self.path is None else backing.moved_to(os.fspath(self.path))

    def _created(
        self, path: Path, X: NDArray[Any], kind: parts.LabelKind, shape: ImageShape | None,
        network: Backbone | None,
    ) -> Memory:  # fmt: skip
        """A new, empty memory for rows like these: images of a shape, features, or a table."""
        name, spec = self.preset or "fast", None if network is None else network.spec
        settings = preset(name, shape, None, spec) if shape else parts.table_preset(name, X.shape[1])
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
        return Memory.create(path, override(settings, changes), {parts.NOTE: note})

    def _add(self, memory: Memory, view: parts.View, X: NDArray[Any], labels: NDArray[Any]) -> None:
        """Absorb rows (n, features)."""
        if view.manifest.settings.thumbnails:
            raise BadInput(
                f"{view.path} keeps thumbnails, which an estimator has no images for; add to it with "
                f"Memory.absorb"
            )
        if view.scale is not None and (count := view.scale.count_clipped(X)):
            warnings.warn(
                f"{count:,} of {X.size:,} values are more than {parts.MAX_SPREADS} spreads away from the "
                f"centre of their column in the first task and are clipped; start with a more representative "
                f"task",
                stacklevel=4,
            )
        memory.absorb(view.images(X), labels, again=True)  # like any `partial_fit`

    def _seed(self) -> int | None:
        return int(self.random_state) if isinstance(self.random_state, (int, np.integer)) else None

    def _lent(self, backing: parts.EstimatorMemory) -> parts.EstimatorMemory:
        """The memory, given the backbone of this estimator unless that is only a name."""
        if isinstance(self.backbone, Backbone):
            backing.memory.given = self.backbone
        return backing

    def _network(self) -> Backbone | None:
        """The backbone of a new memory, if one is asked for."""
        if not isinstance(self.backbone, str):
            return self.backbone
        size = None if self.image_shape is None else parse_size(self.image_shape).shape()
        return backbones.named(self.backbone, size)

    def _add_classes(self, labels: NDArray[Any]) -> None:
        known = getattr(self, "classes_", labels[:0])
        if not np.isin(labels, known).all():
            self.classes_ = np.union1d(known, labels)

    @contextmanager
    def _changing(self, *dropped: str) -> Iterator[LogCLClassifier]:
        """A copy without some attributes, which this estimator becomes unless anything is raised inside."""
        with parts.training:
            new = object.__new__(type(self))
            new.__dict__ = {name: value for name, value in self.__dict__.items() if name not in dropped}
            yield new
            self.__dict__ = new.__dict__
