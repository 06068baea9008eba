"""Logarithmic continual learning: a memory that never loses a sample.

from logcl import Classifier, Memory

memory = Memory.open("pets.logcl", image_shape=(3, 32, 32))
memory.absorb(images, labels)
classifier = Classifier.train(memory)
classifier.predict(images)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logcl.integrations.sklearn.estimator import LogCLClassifier
    from logcl.memory.classifier import Classifier
    from logcl.memory.memory import Memory

__all__ = ["Classifier", "LogCLClassifier", "Memory"]

_HOMES = {
    "Classifier": "logcl.memory.classifier",
    "LogCLClassifier": "logcl.integrations.sklearn.estimator",
    "Memory": "logcl.memory.memory",
}


def __getattr__(name: str) -> Any:
    # Imported when first used: streams and allocation are useful without waiting for torch.
    if name not in _HOMES:
        raise AttributeError(f"module 'logcl' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
