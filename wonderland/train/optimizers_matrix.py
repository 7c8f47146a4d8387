"""Muon: steps that are orthogonal matrices, by products of matrices alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.nn.module import Module
from wonderland.nn.names import matches
from wonderland.train.optimizers import Groups, adam, decayed, of_betas
from wonderland.train.optimizers_base import Arrays, Now, Number, Optimizer

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ADJUSTMENTS = {
    None: lambda rows, columns: math.sqrt(max(1.0, rows / columns)),
    "match_adam": lambda rows, columns: 0.2 * math.sqrt(max(rows, columns)),
}


def newton_schulz(g: Any, iterations: int = 5, coefficients: Any = COEFFICIENTS, epsilon: float = 1e-7) -> Any:
    """Nearly the orthogonal factor U V' of a matrix U S V', by X = a X + (b A + c A^2) X with A = X X'.

    It begins with the matrix over its Frobenius norm; singular values end between about 0.7 and 1.2.
    """
    a, b, c = coefficients
    rows, columns = g.shape
    x = g.T if rows > columns else g
    x = x / np.maximum(np.sqrt(np.sum(x * x)), np.dtype(x.dtype).type(epsilon))
    for _ in range(iterations):
        gram = x @ x.T
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x.T if rows > columns else x


class Muon(Optimizer):
    """Momentum, orthogonalised: v = mu v + (1 - mu) g, w - eta s O(v), for matrices; Adam for everything else.

    O is `newton_schulz`, s = sqrt(max(1, rows / columns)), or, with adjust="match_adam", 0.2 sqrt(max(rows, columns)),
    with which Adam's rates can be kept; `nesterov` hands (1 - mu) g + mu v to O. Weight decay is decoupled. Weights of
    more axes (convolutions) are matrices (out, the rest). `adam` has globs of matrices that are left to Adam:
    embeddings and the last layer, as the authors advise; Adam has the rate `adam_rate` and `betas`.

    K. Jordan et al., Muon: an optimizer for hidden layers in neural networks, 2024; J. Liu et al., Muon is scalable for
    LLM training, 2025. (PyTorch's works in bfloat16; this one in the dtype of the parameter.)
    """

    slots: tuple[str, ...] = ("velocity", "first", "second")

    def __init__(
        self,
        model: Module,
        rate: Number = 1e-3,
        *,
        momentum: Number = 0.95,
        nesterov: bool = True,
        weight_decay: Number = 0.1,
        iterations: int = 5,
        coefficients: tuple[float, float, float] = COEFFICIENTS,
        epsilon: float = 1e-7,
        adjust: str | None = None,
        adam: str | tuple[str, ...] = (),
        adam_rate: Number = 1e-3,
        betas: tuple[Number, Number] = (0.9, 0.999),
        groups: Groups = None,
        skip_nonfinite: bool = False,
    ):
        if adjust not in ADJUSTMENTS:
            raise ArgumentError(f'adjust is None or "match_adam", not {adjust!r}')
        self.adjust: str | None
        self.nesterov: bool
        self.nesterov, self.adjust = nesterov, adjust
        self.coefficients: tuple[float, ...]
        self.iterations: int
        self.iterations, self.coefficients = int(iterations), tuple(map(float, coefficients))
        self.by_adam: tuple[str] | tuple[str, ...] = (adam,) if isinstance(adam, str) else tuple(adam)
        settings = {"rate": rate, "weight_decay": weight_decay, "momentum": momentum, "epsilon": epsilon}
        super().__init__(model, {**settings, "adam_rate": adam_rate, **of_betas(betas)}, groups, skip_nonfinite)

    def slots_of(self, name: str, w: Any) -> tuple[str, ...]:
        """A velocity for a matrix, two moments for the others."""
        matrix = w.ndim >= 2 and w.dtype.kind == "f" and not any(matches(name, pattern) for pattern in self.by_adam)
        return ("velocity",) if matrix else ("first", "second")

    def rule(self, w: Any, g: Any, state: Arrays, now: Now) -> tuple[Any, Arrays]:
        """w, and its velocity or its moments."""
        cast = now.cast
        if "velocity" not in state:
            if now.has("weight_decay"):
                w = cast(1.0 - now.adam_rate * now.weight_decay) * w
            return adam(w, g, state, now, now.adam_rate)
        v = state["velocity"] + cast(1.0 - now.momentum) * (g - state["velocity"])
        ahead = g + cast(now.momentum) * (v - g) if self.nesterov else v
        matrix = ahead.reshape(w.shape[0], -1)
        step = newton_schulz(matrix, self.iterations, self.coefficients, now.epsilon).reshape(w.shape)
        w, _ = decayed(w, g, now, decoupled=True)
        return w - cast(now.rate * ADJUSTMENTS[self.adjust](*matrix.shape)) * step, {"velocity": v}
