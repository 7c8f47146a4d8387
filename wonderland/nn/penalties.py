"""Penalties: functions of a Module that go into its loss, and L1 by two factors (notes E9.2.1).

    loss = nn.cross_entropy(model(x), y) + 1e-4 * nn.l1_penalty(model, "*.weight")

They add up over the trainable parameters whose names match a glob (or one of several).
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np

from wonderland.nn.module import Module
from wonderland.nn.substitute import Names, matching, with_arrays


def l2_penalty(model: Module, names: Names = "*") -> Any:
    """|w|^2 / 2: its gradient is w, so that `loss + c * l2_penalty(model)` is what weight_decay=c of an optimiser is.

    That is an L2 penalty: for gradient descent it is the same as decoupled weight decay, for Adam it isn't.
    """
    return sum([_squares(w) for w in matching(model, names).values()]) / 2


def l1_penalty(model: Module, names: Names = "*") -> Any:
    """The sum of |w|: it favours weights that are 0, where its derivative is taken as 0."""
    return sum([np.sum(np.abs(w)) for w in matching(model, names).values()])


def group_penalty(model: Module, names: Names = "*", *, axis: int = 0) -> Any:
    """The sum of sqrt(n) |w_g| over groups of n weights: whole groups become 0 (group sparsity).

    A group is what belongs to one index of `axis` of a weight: all weights of a neuron (0) or of an input (1). In
    arrays with fewer axes each entry is a group: their L1.
    S. Scardapane et al., Group sparse regularization for deep neural networks, 2017.
    """
    total = []
    for w in matching(model, names).values():
        if w.ndim <= max(axis, 1):
            total.append(np.sum(np.abs(w)))
            continue
        groups = np.moveaxis(w, axis, 0).reshape(w.shape[axis], -1)
        total.append(math.sqrt(groups.shape[1]) * np.sum(np.linalg.norm(groups, axis=1)))
    return sum(total)


class Factored(Module):
    """A model whose weights are products, w = a * b: (|a|^2 + |b|^2) / 2 in its loss is |w|_1, and smooth.

        sparse = nn.Factored(model, "*.weight")
        loss = nn.mse_loss(sparse(x), y) + c * sparse.penalty()      # c |w|_1, at a minimum

    A copy of the model holds a in its arrays, and b is held here. They begin as w and 1: where |a| = |b|, which the
    penalty brings about in time, gradients keep it so, and w couldn't change its sign. `merged()` is the plain model
    with w = a * b. (In the notes |a|^2 + |b|^2 stands for |w|_1: it is twice that.)
    L. Ziyin and Z. Wang, spred: solving L1 penalty with SGD, 2023.
    """

    def __init__(self, model: Module, names: Names = "*"):
        self.model: Any = copy.deepcopy(model)
        found = matching(self.model, names)
        self.names: tuple[str, ...] = tuple(found)
        self.factors: list[Any] = [np.ones_like(w) for w in found.values()]

    def _pairs(self) -> dict[str, tuple[Any, Any]]:
        own = dict(self.model.named_parameters())
        return {name: (own[name], b) for name, b in zip(self.names, self.factors, strict=True)}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The model with its weights multiplied out."""
        return with_arrays(self.model, {name: a * b for name, (a, b) in self._pairs().items()})(*args, **kwargs)

    def penalty(self) -> Any:
        """(|a|^2 + |b|^2) / 2, which is |w|_1 where it is smallest."""
        return sum([_squares(a) + _squares(b) for a, b in self._pairs().values()]) / 2

    def merged(self) -> Any:
        """The model with its weights multiplied out, in arrays of its own."""
        out = copy.deepcopy(self.model)
        own = dict(out.named_parameters())
        for name, (a, b) in self._pairs().items():
            own[name][...] = a * b
        return out


def _squares(w: Any) -> Any:
    return np.sum(w.real**2 + w.imag**2) if w.dtype.kind == "c" else np.sum(w * w)
