"""Rows of the op table: attention and the two linear maps of its derivatives.

`lse` of the maps is an operand like others: with any numbers in its place they are what they say.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.ops import attention as ops  # noqa: F401  (registers the primitives)
from wonderland.testing.op_table import add
from wonderland.testing.samples import Case, Operand, case

numbers: Operand = Operand(lambda rng, shape: rng.uniform(-1.0, 1.0, shape))


def _seen(rng: np.random.Generator, shape: tuple) -> np.ndarray:
    """With the first and the last key, of which every query of the cases sees one: there is no row of nothing."""
    mask = rng.random(shape) < 0.5
    mask[..., [0, -1]] = True
    return mask


seen: Operand = Operand(_seen, dtype=bool, differentiable=False)
excluded = {"pattern exact": "blocks are taken to be full"}


def _softmax(q: Any, k: Any, masks: tuple, band: tuple, scale: float) -> tuple[Any, Any]:
    """Probabilities and log-sum-exp, by loops over everything."""
    heads, groups = q.shape[-3], k.shape[-3]
    s = np.full((*q.shape[:-1], k.shape[-2]), -np.inf, np.result_type(q, np.float64))
    for place in np.ndindex(s.shape):
        *lead, h, i, j = place
        if (band[0] is None or j - i >= band[0]) and (band[1] is None or j - i <= band[1]):
            total = scale * np.sum(q[(*lead, h, i)] * k[(*lead, h // (heads // groups), j)])
            for mask in masks:
                here = np.broadcast_to(mask, s.shape)[place]
                total = (total if here else -np.inf) if mask.dtype.kind == "b" else total + here
            s[place] = total
    with np.errstate(divide="ignore"):
        lse = np.log(np.sum(np.exp(s), axis=-1))
    return s, lse


def _by_heads(x: Any, heads: int) -> Any:
    return np.repeat(x, heads // x.shape[-3], axis=-3)


def _attention(q: Any, k: Any, v: Any, *masks: Any, band: tuple, scale: float) -> tuple[Any, Any]:
    s, lse = _softmax(q, k, masks, band, scale)
    p = np.exp(s - np.where(lse == -np.inf, np.inf, lse)[..., None])
    return p @ _by_heads(v, q.shape[-3]), lse


def _tangent(*operands: Any, moving: tuple, band: tuple, scale: float) -> tuple[Any, Any]:
    count = len(operands) - 1 - len(moving)
    (q, k, v, *masks), lse = operands[:count], operands[count]
    moved = dict(zip(moving, operands[count + 1 :], strict=True))
    heads = q.shape[-3]
    p = np.exp(_softmax(q, k, tuple(masks), band, scale)[0] - lse[..., None])
    ds = sum(moved[i] for i in moving if i > 2)
    ds = ds + scale * np.einsum("...id,...jd->...ij", moved.get(0, 0 * q), _by_heads(k, heads))
    ds = ds + scale * np.einsum("...id,...jd->...ij", q, _by_heads(moved.get(1, 0 * k), heads))
    out = (p * ds) @ _by_heads(v, heads) + p @ _by_heads(moved.get(2, 0 * v), heads)
    return out, np.sum(p * ds, axis=-1)


def _cotangent(*operands: Any, moving: tuple, band: tuple, scale: float) -> tuple:
    *own, lse, ct, row = operands
    q, k, v, *masks = own
    heads, groups = q.shape[-3], k.shape[-3]
    p = np.exp(_softmax(q, k, tuple(masks), band, scale)[0] - lse[..., None])
    w = p * (ct @ np.swapaxes(_by_heads(v, heads), -1, -2) + row[..., None])
    grouped = lambda x: x.reshape(*x.shape[:-3], groups, heads // groups, *x.shape[-2:]).sum(axis=-3)
    found = [
        scale * w @ _by_heads(k, heads), grouped(scale * np.einsum("...ij,...id->...jd", w, q)),
        grouped(np.einsum("...ij,...id->...jd", p, ct)),
    ]  # fmt: skip
    for mask in masks:
        axes = tuple(a for a, n in enumerate(mask.shape) if n == 1 != w.shape[a])
        found.append(np.sum(w, axis=axes, keepdims=True))
    return tuple(found[i] for i in moving)


# Shapes of queries, keys, values and a mask; the band.
CASES = {
    "plain": ((2, 5, 2), (2, 4, 2), (2, 4, 3), (1, 1, 1), (None, None)),
    "causal": ((2, 1, 3, 2), (2, 1, 3, 2), (2, 1, 3, 1), (2, 1, 3, 3), (None, 0)),
    "groups": ((4, 2, 3), (2, 5, 3), (2, 5, 2), (4, 2, 5), (None, 3)),
    "window": ((1, 6, 1), (1, 6, 1), (1, 6, 2), (1, 6, 6), (-5, 1)),
    "one key": ((1, 2, 2), (1, 1, 2), (1, 1, 2), (1, 2, 1), (None, None)),
    "nothing": ((0, 1, 2, 2), (0, 1, 3, 2), (0, 1, 3, 2), (1, 1, 2, 3), (None, None)),
}


def _cases(kind: str, mask: bool, moving: tuple = ()) -> list[Case]:
    out = []
    names = CASES if kind == "attention" else ("causal", "groups", "nothing")[: 3 if moving == (0, 1, 2) else 2]
    for q, k, v, m, band in (CASES[name] for name in names):  # vmap of the maps is tried in more than a hundred ways
        own = [q, k, v, *([m] if mask else [])]
        row, result = q[:-1], (*q[:-1], v[-1])
        more = {"attention": [], "tangent": [row, *(own[i] for i in moving)], "cotangent": [row, result, row]}[kind]
        out.append(case(*own, *more, band=band, scale=0.7, **({"moving": moving} if kind != "attention" else {})))
    return out


add(
    "attention", *[numbers] * 3, dtypes="f", cases=_cases("attention", False), reference=_attention, excluded=excluded,
)  # fmt: skip
add(
    "attention", *[numbers] * 4, dtypes="f", cases=_cases("attention", True), reference=_attention, excluded=excluded,
    label="attention (bias)",
)  # fmt: skip
add(
    "attention", *[numbers] * 3, seen, dtypes="f", cases=_cases("attention", True), reference=_attention,
    excluded=excluded, label="attention (mask)",
)  # fmt: skip
for _moving, _label in (((0, 1, 2), ""), ((1, 3), " (bias)"), ((2,), " (values)")):
    add(
        "attention_tangent", *[numbers] * ((4 if 3 in _moving else 3) + 1 + len(_moving)), dtypes="f",
        cases=_cases("tangent", 3 in _moving, _moving), reference=_tangent, excluded=excluded,
        label=f"attention_tangent{_label}",
    )  # fmt: skip
    add(
        "attention_cotangent", *[numbers] * ((4 if 3 in _moving else 3) + 3), dtypes="f",
        cases=_cases("cotangent", 3 in _moving, _moving), reference=_cotangent, excluded=excluded,
        label=f"attention_cotangent{_label}",
    )  # fmt: skip
