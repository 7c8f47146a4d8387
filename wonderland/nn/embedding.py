"""`Embedding`: a vector for each of a finite number of things."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from wonderland.core.tracer import Tracer
from wonderland.nn import init as initialisers
from wonderland.nn.arguments import demand
from wonderland.nn.building import Init, Recipe, recipe, start
from wonderland.nn.module import Module
from wonderland.nn.placing import indices, numbers, place_of, wrong_shape
from wonderland.numpy import take
from wonderland.transform.derivatives import stop_gradient


class Embedding(Module):
    """y = W[x], row x of a table: integers (...) become (..., dim).

    `weight` is (num, dim), drawn from a standard normal distribution, as PyTorch's. The row `padding_index`, if there
    is one, is zeros, and has no derivative. Indices are from 0 to num - 1. `unembed` reads the table the other way.
    """

    weight: Any

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_index: int | None = None,
        *,
        init: Init | None = None,
        key: Any = None,
        dtype: Any = np.float32,
    ):
        self.num_embeddings = self.embedding_dim = 0
        self.padding_index = None if padding_index is None else operator.index(padding_index)
        self.weight = None
        if padding_index is not None and not -num_embeddings <= padding_index < num_embeddings:
            raise ValueError(f"Embedding: there is no row padding_index={padding_index} among {num_embeddings}")
        sizes: dict[str, int | None] = {"num_embeddings": num_embeddings, "embedding_dim": embedding_dim}
        if None in sizes.values():
            raise TypeError("Embedding: the sizes of its table aren't known from an input: give both")
        if self.padding_index is not None:
            self.padding_index %= num_embeddings
        start(self, sizes, recipe(self, init, False, key, dtype))

    def _make(self, how: Recipe) -> None:
        (key,) = how.keys(1)
        self.weight = how.weight(key, (self.num_embeddings, self.embedding_dim), initialisers.normal)
        if self.padding_index is not None:
            self.weight[self.padding_index] = 0

    def __call__(self, x: Any) -> Any:
        x = indices(self, x)
        inside = (x >= 0) & (x < self.num_embeddings)
        if isinstance(inside, Tracer) or not np.all(inside):
            what = f"{place_of(self)}: its table has rows 0 to {self.num_embeddings - 1}, the input has the index {{}}"
            demand(inside, what, x)
        y = take(self.weight, x, axis=0)  # traced indices into a plain table, too
        if self.padding_index is None:
            return y
        return np.where((x == self.padding_index)[..., None], stop_gradient(y), y)

    def unembed(self, x: Any) -> Any:
        """Logits x W^T of the rows, (..., dim) to (..., num): the table as the matrix of a last layer, tied to it."""
        x = numbers(self, x, self.weight)
        if x.shape[-1:] != (self.embedding_dim,):
            raise wrong_shape(self, f"(..., {self.embedding_dim})", x.shape, "vectors")
        return x @ self.weight.T
