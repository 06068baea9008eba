"""Results → figures. Each function returns a `Drawing`, or None where there is nothing to show."""

from logcl.experiments.report.figures.canvas import Drawing
from logcl.experiments.report.figures.counter import counter
from logcl.experiments.report.figures.histograms import counted, errors, limits, stage, stages
from logcl.experiments.report.figures.lines import accuracy, memory, seconds
from logcl.experiments.report.figures.maps import MOST_CLASSES, confusion, matrix

__all__ = [
    "MOST_CLASSES",
    "Drawing",
    "accuracy",
    "confusion",
    "counted",
    "counter",
    "errors",
    "limits",
    "matrix",
    "memory",
    "seconds",
    "stage",
    "stages",
]
