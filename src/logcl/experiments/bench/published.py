"""Accuracies published in the paper: mean and standard error, in percent."""

from __future__ import annotations

PUBLISHED: dict[str, dict[str, tuple[float, float | None]]] = {
    "mnist": {
        "hypercl": (95.3, 0.37), "vcl": (97.7, 0.05), "curl": (94.2, 0.87), "binplay": (97.2, 0.6),
        "logcl": (98.65, 0.09),
    },
    "omniglot": {
        "hypercl": (20.7, 0.37), "vcl": (13.4, 1.8), "curl": (21.2, 0.74), "binplay": (38.8, 5.9),
        "logcl": (55.2, 1.15),
    },
    "cifar100": {
        "ewc": (9.5, 0.83), "si": (13.3, 1.14), "hypercl": (8.8, None), "er": (18.4, 1.4), "mir": (19.3, 0.7),
        "gss": (13.4, 0.6), "icarl": (42.9, 0.8), "gdumb": (28.8, 0.9), "gmed": (21.22, 1.0),
        "logcl": (56.75, 1.0),
    },
}  # fmt: skip


def published(stream: str, method: str) -> str:
    """As printed in the paper, or a dash."""
    found = PUBLISHED.get(stream, {}).get(method)
    if found is None:
        return "–"
    mean, error = found
    return f"{mean:g}" if error is None else f"{mean:g} ± {error:g}"
