"""`ring_attention`: attention over blocks of a sequence that is too long for one place; keys and values go around.

Queries stay where they are. In each step every block of queries looks at one block of keys and values and adds what it
sees to what it has, by the online softmax; then keys and values move on to the next block of queries. After as many
steps as there are blocks all have seen all. Blocks are in one process, or each is on a rank of MPI.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wonderland.control.custom import custom_vjp
from wonderland.control.effects import host_call
from wonderland.core.functions import handles
from wonderland.nn.arguments import array
from wonderland.numpy.join import as_value
from wonderland.ops import attention as ops


def ring_attention(
    q: Any, k: Any, v: Any, blocks: int | None = None, *, ranks: Any = None, causal: bool = False,
    scale: float | None = None,
) -> Any:  # fmt: skip
    """`wl.attention(q, k, v, causal=causal, scale=scale)`, to rounding, with its derivatives, block by block.

    q is (..., heads, T, width), k (..., groups, T, width), v (..., groups, T, value width). With `blocks`, a number
    that divides T, all are in this process. With `ranks`, of `wl.train.ranks()`, each rank of MPI gives its own part of
    the sequence, in order and as long as that of the others, and gets the result for it; no rank holds more than its
    own part and one that goes around, forward and backward. For block i and step s, with (o, l) = attention of the
    queries i to the keys i - s and the logarithm of the sum of exponentials,

        lse' = log(exp(lse) + exp(l));    out' = exp(lse - lse') out + exp(l - lse') o

    Backward, the cotangents of keys and values go around with them. Each rank differentiates its own part of a loss
    that is a sum over ranks: gradients of its q, k and v are those of the whole sum. Liu et al. 2023, Ring attention
    with blockwise transformers.
    """
    q, k, v = array(q), array(k), array(v)
    dtype = np.result_type(q.dtype, k.dtype, v.dtype, np.float32)
    if (blocks is None) == (ranks is None):
        raise ValueError("ring_attention: give the number of blocks, or ranks=wl.train.ranks()")
    if dtype.kind != "f":
        raise TypeError(f"ring_attention is of real numbers, got {q.dtype}, {k.dtype} and {v.dtype}")
    told = f"q {q.shape}, k {k.shape}, v {v.shape}"
    if min(x.ndim for x in (q, k, v)) < 3 or q.shape[-1] != k.shape[-1] or k.shape[:-1] != v.shape[:-1]:
        raise ValueError(f"ring_attention takes q and k (..., heads, T, width) and v with the keys of k, got {told}")
    if q.shape[:-3] != k.shape[:-3] or q.shape[-3] % k.shape[-3] or (causal and q.shape[-2] != k.shape[-2]):
        raise ValueError(
            "ring_attention: the same leading axes, heads a multiple of groups, and as many queries as keys if causal; "
            f"got {told}"
        )
    q, k, v = (x.astype(dtype) for x in (q, k, v))
    ring = _Together(blocks, told, q.shape[-2], k.shape[-2]) if ranks is None else _Apart(ranks, told)
    found = _around(ring, causal, 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale))(
        *(ring.split(x) for x in (q, k, v))
    )
    return ring.joined(found)


class _Together:
    """All blocks in this process, along a first axis."""

    def __init__(self, blocks: Any, told: str, *lengths: int):
        self.count: int = int(blocks)
        if self.count < 1 or self.count != blocks or any(n % self.count for n in lengths):
            raise ValueError(f"ring_attention: blocks={blocks} is a number that divides the length, got {told}")

    def split(self, x: Any) -> Any:
        """(..., T, width) to (blocks, ..., T / blocks, width)."""
        x = x.reshape(*x.shape[:-2], self.count, x.shape[-2] // self.count, x.shape[-1])
        return np.moveaxis(x, -3, 0)

    def joined(self, x: Any) -> Any:
        """The other way."""
        x = np.moveaxis(x, 0, -3)
        return x.reshape(*x.shape[:-3], x.shape[-3] * x.shape[-2], x.shape[-1])

    def sees(self, step: int, rank: int) -> Any:
        """Which blocks of queries see the keys that came to them by so many steps, if later ones are hidden."""
        return (np.arange(self.count) >= step).reshape(self.count, *[1] * (rank - 1))

    def moved(self, x: Any) -> Any:
        """Each block is where the next one was."""
        return np.roll(x, 1, axis=0)


class _Apart:
    """A block on each rank of MPI."""

    def __init__(self, ranks: Any, told: str):
        self.ranks: Any = ranks
        self.count: int = ranks.count
        others = [told] if ranks.count == 1 else ranks.communicator.allgather(told)
        if any(other != told for other in others):
            raise ValueError(f"ring_attention: parts of the same shape on all ranks; they have {'; '.join(others)}")

    def split(self, x: Any) -> Any:
        return x

    def joined(self, x: Any) -> Any:
        return x

    def sees(self, step: int, rank: int) -> Any:
        return np.full((1,) * rank, self.ranks.rank >= step)

    def moved(self, x: Any, by: int = 1) -> Any:
        """That of the rank before; the cotangent goes the other way."""
        send = custom_vjp(lambda x: host_call(lambda x: self._sent(x, by), x, x))
        send.defvjp(lambda x: (send(x), ()), lambda _, ct: (self.moved(ct, -by),))
        return send(x)

    def _sent(self, x: np.ndarray, by: int) -> np.ndarray:
        got, rank = np.empty(x.shape, x.dtype), self.ranks.rank
        to, source = (rank + by) % self.count, (rank - by) % self.count
        self.ranks.communicator.Sendrecv(np.ascontiguousarray(x), dest=to, recvbuf=got, source=source)
        return got


def _around(ring: Any, causal: bool, scale: float) -> Any:
    """Attention of blocks, with a rule for its cotangents that keeps no more than the blocks themselves."""

    def view(step: int, rank: int) -> tuple[list[Any], dict[str, Any]]:
        """What hides keys from queries: the first step is of a block with itself."""
        masks = [ring.sees(step, rank)] if causal and step else []
        return masks, {"band": (None, 0) if causal and not step else (None, None), "scale": scale}

    def forward(q: Any, k: Any, v: Any) -> tuple[Any, Any]:
        def attend(step: int) -> list[Any]:
            masks, options = view(step, q.ndim)
            return handles(list(ops.attention(*map(as_value, (q, k, v, *masks)), **options)))

        out, lse = attend(0)
        for step in range(1, ring.count):
            k, v = ring.moved(k), ring.moved(v)
            new, more = attend(step)
            both = np.logaddexp(lse, more)
            out = out * np.exp(lse - both)[..., None] + new * np.exp(more - both)[..., None]
            lse = both
        return out, lse

    def backward(residuals: Any, ct: Any) -> tuple[Any, Any, Any]:
        q, k, v, out, lse = residuals
        row = -np.sum(out * ct, axis=-1)
        total: list[Any] = [np.zeros_like(x) for x in (q, k, v)]
        for step in range(ring.count):
            if step:
                k, v, *total[1:] = (ring.moved(x) for x in (k, v, *total[1:]))
            masks, options = view(step, q.ndim)
            given = map(as_value, (q, k, v, *masks, lse, ct, row))
            found = handles(list(ops.attention_cotangent(*given, moving=(0, 1, 2), **options)))
            total = [x + y for x, y in zip(total, found, strict=True)]
        return total[0], ring.moved(total[1]), ring.moved(total[2])  # the last step home

    def with_residuals(q: Any, k: Any, v: Any) -> tuple[Any, Any]:
        out, lse = forward(q, k, v)
        return out, (q, k, v, out, lse)

    attend = custom_vjp(lambda q, k, v: forward(q, k, v)[0])
    attend.defvjp(with_residuals, backward)
    return attend
