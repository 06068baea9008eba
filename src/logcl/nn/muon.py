"""The optimiser Muon (Jordan et al. 2024): orthogonal updates of convolutional filters, AdamW for all else.

    gradient of a filter bank, as a matrix ── momentum ──▶ M ── U Vᵀ of M = U Σ Vᵀ ──▶ update

All directions of a matrix learn equally fast, whereas a gradient moves mostly along a few of them. U Vᵀ is
approximated by Newton-Schulz iterations, which are nothing but products of matrices.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_RATE = 20.0  # learning rate of filters, as a multiple of that of all else
_ITERATIONS = 3
_QUINTIC = (3.4445, -4.7750, 2.0315)  # Jordan's polynomial: singular values end between 0.7 and 1.2, soon
_LEAST = 1e-7


class Muon(torch.optim.AdamW):
    """AdamW, except for the filters of convolutions.

    Each bank of n filters is scaled to the norm sqrt(n) before it is updated. Batch normalisation undoes the
    scale, and thus the learning rate is a relative one.
    """

    def __init__(self, parameters: Any, momentum: float, **others: Any) -> None:
        super().__init__(parameters, **others)
        self._momentum = momentum

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update all weights; gradients stay as they are."""
        gradients: dict[Tensor, Tensor] = {}
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.dim() == 4 and weight.grad is not None:
                    gradients[weight], weight.grad = weight.grad, None  # not for AdamW
                    self._turn(weight, gradients[weight], _RATE * group["lr"])
        found = super().step(closure)
        for weight, gradient in gradients.items():
            weight.grad = gradient
        return found

    def _turn(self, weight: Tensor, gradient: Tensor, rate: float) -> None:
        state = self.state[weight]
        if "momentum" not in state:  # `step` is there because AdamW expects it in every state
            state |= {"step": torch.zeros(()), "momentum": torch.zeros_like(weight)}
        state["step"] += 1
        momentum = state["momentum"].mul_(self._momentum).add_(gradient)
        update = orthogonal((gradient + self._momentum * momentum).flatten(1))  # Nesterov's
        weight.mul_(len(weight) ** 0.5 / weight.norm().clamp(min=_LEAST))
        weight.sub_(rate * update.view_as(weight))


def orthogonal(matrix: Tensor) -> Tensor:
    """About U Vᵀ of a matrix (rows, columns) = U Σ Vᵀ."""
    if len(matrix) > matrix.shape[1]:
        return orthogonal(matrix.T).T
    x: Tensor = matrix / matrix.norm().clamp(min=_LEAST)
    a, b, c = _QUINTIC
    for _ in range(_ITERATIONS):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x
