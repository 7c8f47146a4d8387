"""Rows of the op table: products of arrays, and einsum."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.testing.op_table import function
from wonderland.testing.samples import case, reals

function(
    np.matmul, reals, reals,
    cases=[
        case((3,), (3,)), case((2, 3), (3,)), case((3,), (3, 2)), case((2, 3), (3, 4)), case((4, 2, 3), (3,)),
        case((4, 2, 3), (3, 2)), case((2, 3), (4, 3, 2)), case((3,), (4, 3, 2)), case((4, 2, 3), (4, 3, 2)),
        case((2, 1, 2, 3), (3, 3, 4)), case((1, 2, 3), (4, 3, 1)), case((0, 3), (3, 2)), case((2, 0), (0, 3)),
    ],
)  # fmt: skip
function(
    np.dot, reals, reals,
    cases=[
        case((), ()), case((3,), ()), case((3,), (3,)), case((2, 3), (3,)), case((2, 3), (3, 2)),
        case((2, 2, 3), (4, 3, 2)), case((0,), (0,)), case((2, 0), (0, 3)),
    ],
)  # fmt: skip
function(np.vdot, reals, reals, cases=[case((), ()), case((4,), (4,)), case((2, 3), (3, 2)), case((0,), (0,))])
function(
    np.vecdot, reals, reals,
    cases=[
        case((3,), (3,)), case((2, 3), (3,)), case((4, 1, 3), (2, 3)), case((3, 2), (3, 2), axis=0),
        case((2, 0), (2, 0)), case((2, 3), (2, 3), keepdims=True), case((3, 2), (2, 3), axes=[0, 1]),
    ],
)  # fmt: skip
for _name, _cases in {
    "matvec": [case((2, 3), (3,)), case((4, 2, 3), (3,)), case((2, 3), (4, 3)), case((4, 1, 2, 3), (5, 3))],
    "vecmat": [case((3,), (3, 2)), case((4, 3), (3, 2)), case((3,), (4, 3, 2)), case((4, 1, 3), (5, 3, 2))],
}.items():
    if hasattr(np, _name):  # since NumPy 2.2
        function(getattr(np, _name), reals, reals, cases=_cases)
function(
    np.inner, reals, reals,
    cases=[
        case((), ()), case((3,), ()), case((3,), (3,)), case((2, 3), (4, 3)), case((2, 2, 3), (3,)), case((0,), (0,)),
    ],
)  # fmt: skip
function(
    np.outer, reals, reals,
    cases=[case((), ()), case((3,), (2,)), case((2, 2), (3,)), case((0,), (3,))],
)  # fmt: skip
function(
    np.tensordot, reals, reals,
    cases=[
        case((2, 3, 4), (3, 4, 2)), case((2, 3), (3, 2), axes=1), case((2,), (3,), axes=0),
        case((2, 3, 4), (4, 3), axes=([1, 2], [1, 0])), case((2, 3), (2, 4), axes=(0, 0)),
        case((2, 3, 4), (2, 5), axes=[[-3], [0]]), case((0, 3), (3, 2), axes=1),
    ],
)  # fmt: skip
function(
    np.kron, reals, reals,
    cases=[
        case((3,), (2,)), case((2, 3), (3, 2)), case((3,), (2, 2)), case((2, 2, 1), (3,)), case((), (3,)), case((), ()),
        case((0,), (2,)),
    ],
)  # fmt: skip
function(
    np.cross, reals, reals, dtypes="ifc",
    cases=[
        case((3,), (3,)), case((4, 3), (3,)), case((4, 3), (2, 1, 3)), case((3, 4), (3, 4), axis=0), case((0, 3), (3,)),
        case((3, 2), (2, 3), axisa=0), case((2, 3), (2, 3), axisc=0),
    ],
)  # fmt: skip


def _einsum(*operands: Any, text: str) -> Any:
    return np.einsum(text, *operands)


function(
    np.einsum, reals, reals, call=_einsum, label="np.einsum of two",
    cases=[
        case((2, 3), (3, 4), text="ij,jk->ik"), case((2, 3), (3, 4), text="ij,jk"), case((3,), (2,), text="i,j->ji"),
        case((3, 3), (3,), text="ii,i->i"), case((), (3,), text=",i"), case((0, 3), (3,), text="ij,j->i"),
        case((2, 1, 3), (2, 3), text="...ij,...j->...i"), case((2, 3), (2, 1), text="ij,ij->j"),
    ],
)  # fmt: skip
function(
    np.einsum, reals, call=_einsum, label="np.einsum of one",
    cases=[
        case((3, 3), text="ii"), case((3, 3), text="ii->i"), case((2, 3), text="ij->ji"), case((2, 3), text="...->..."),
        case((3, 2, 3), text="iji->j"), case((2, 3), text="ij->"), case((0, 3), text="ij->j"),
    ],
)  # fmt: skip
function(
    np.einsum, reals, reals, reals, call=_einsum, label="np.einsum of three",
    cases=[
        case((2, 3), (3, 4), (4, 2), text="ij,jk,kl->il"), case((2, 3), (4, 3), (2, 3), text="ai,bi,ci->abc"),
        case((3,), (3, 4), (4,), text="i,ij,j->"),
    ],
)  # fmt: skip
