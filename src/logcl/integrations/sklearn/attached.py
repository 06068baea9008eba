"""The memory behind an estimator: where it is, what was noted in it, and its global model.

A memory at a path belongs to the user: an estimator, and its pickle, only refer to it. A temporary one
belongs to the estimator, goes along in its pickle, and goes with it.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import threading
from functools import cached_property
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from logcl.core.errors import Damaged, NotAMemory, NotTrained
from logcl.core.settings import Frozen, ImageShape
from logcl.core.text import printable
from logcl.integrations.sklearn.tabular import Scale, TableNetwork
from logcl.memory.classifier import Classifier, OwnNetwork
from logcl.memory.file.sqlite import reading
from logcl.memory.memory import Memory
from logcl.nn.training import generator_for, seeded

NOTE = "sklearn"
"""Under this name the memory file keeps what an estimator must know of it."""
_TABLE = 0x7AB1E  # sets the initial weights of a table's network apart from all other randomness

# Torch has one random state a process: threads that train at once would disturb each other's.
one_at_a_time = threading.RLock()

Kind = Literal["int", "str", "bool", "float"]
"""Of labels."""


class Notes(Frozen):
    """What a memory that an estimator made says of itself, beside its settings."""

    labels: Kind
    """Labels are kept as integers or strings, and given back as what they were."""
    scale: Scale | None = None
    """Of a table; None if X holds images."""
    names: tuple[str, ...] | None = None
    """Of the features, if the first task had any."""

    def fits(self, features: int) -> bool:
        """Whether all columns are told of, and are not more than there are pixels."""
        if self.scale is not None:
            columns = len(self.scale.centre)
            if len(self.scale.spread) != columns or not 1 <= columns <= features:
                return False
            features = columns
        return self.names is None or len(self.names) == features


class Held:
    """A memory, and its global model once that is needed."""

    def __init__(self, path: str | os.PathLike[str], *, temporary: bool = False) -> None:
        self.memory = Memory(path)
        self.temporary = temporary
        self.owner = os.getpid()
        self._classifier: Classifier | None = None
        if temporary:
            # When nobody has the memory in hand any more, or when the process ends, be it one that was forked
            # to work for another; never by a process that only inherited it.
            Finalize(self.memory, shutil.rmtree, (self.memory.path.parent, True), exitpriority=0)

    @staticmethod
    def of_bytes(data: bytes) -> Held:
        """A temporary memory with this content."""
        held = Held(temporary_path(), temporary=True)
        held.memory.path.write_bytes(data)
        return held

    def to_bytes(self) -> bytes:
        """The whole file, at a moment when nobody writes it."""
        with one_at_a_time, reading(self.memory.path):
            return self.memory.path.read_bytes()

    def __reduce__(self) -> tuple[Any, ...]:
        return (Held.of_bytes, (self.to_bytes(),)) if self.temporary else (Held, (str(self.memory.path),))

    @cached_property
    def image_shape(self) -> ImageShape:
        """Channels, height, width."""
        return self.memory.settings.image_shape

    @cached_property
    def notes(self) -> Notes | None:
        """What an estimator noted in the file; None if it was made without one."""
        text = self.memory.notes.get(NOTE)
        if text is None:
            return None
        try:
            notes = Notes.model_validate_json(text)
        except ValidationError as error:
            reason = printable(error.errors(include_url=False, include_input=False)[0]["msg"])
            raise Damaged(f"{self.memory.path}: the note {NOTE!r} cannot be read ({reason})") from error
        if not notes.fits(math.prod(self.image_shape)):
            raise Damaged(f"{self.memory.path}: the note {NOTE!r} is of other columns than the memory's")
        return notes

    @property
    def scale(self) -> Scale | None:
        """Of a table."""
        return self.notes.scale if self.notes else None

    @property
    def features(self) -> int:
        """Numbers in a row of X."""
        return len(self.scale.centre) if self.scale else math.prod(self.image_shape)

    def kind(self) -> Kind | None:
        """Of the labels; None if that is still open."""
        if self.notes:
            return self.notes.labels
        classes = self.memory.classes
        return None if not classes else "str" if isinstance(classes[0], str) else "int"

    def check_there(self) -> None:
        """A reference may outlive its file."""
        if not self.memory.file.exists():
            raise NotAMemory(
                f"{self.memory.path} is gone, and this estimator only refers to it; put the file back or fit "
                f"a new estimator"
            )

    def classifier(self) -> Classifier:
        """The global model of what the memory holds now: at hand, kept in the file, or trained."""
        with one_at_a_time:
            if self._classifier is None or not self._classifier.is_current(self.memory):
                network = self._network()
                self._classifier = self._kept(network) or Classifier.train(self.memory, network)
            return self._classifier

    def _kept(self, network: TableNetwork | None) -> Classifier | None:
        try:
            about = Classifier.describe(self.memory)
        except NotTrained:
            return None
        if about.memory != self.memory.digest:
            return None
        ours = isinstance(about.network, OwnNetwork) and about.network.kind == TableNetwork.__name__
        return Classifier.load(self.memory, network if ours else None)

    def _network(self) -> TableNetwork | None:
        """A new one for a table; for images the settings of the memory decide."""
        settings = self.memory.settings
        if self.scale is None or settings.classifier.network != "mlp":
            return None
        with seeded(generator_for(settings.seed, _TABLE)):
            return TableNetwork(self.image_shape, settings.classifier.width, len(self.memory.classes))


def temporary_path() -> Path:
    """A name for a new file, in a folder of its own."""
    return Path(tempfile.mkdtemp(prefix="logcl-")) / "memory.logcl"
