"""`einsum` on traced arrays: any subscripts that NumPy takes, as a sequence of `dot`s in a good order.

Subscripts and operands come in; they are parsed into labels for each axis, diagonals are taken where a label stands
twice in an operand, labels of one operand alone are summed, and then two operands at a time are contracted by one `dot`
each, so that every derivative is made of dots as well.

The order is the one with the least multiplications: exactly, by dynamic programming over the sets of operands, for up
to `EXACT` of them (`np.einsum_path`'s own exact search tries all orders and is far slower), and for more the greedy one
that makes the smallest arrays first. A path given as `optimize=` is followed. Orders are remembered by subscripts and
shapes.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from wonderland.core.tracer import FUNCTIONS, Tracer
from wonderland.core.types import promote, shape_of, type_of
from wonderland.numpy.dispatch import has_tracer, make_view, namespace, present, values
from wonderland.numpy.missing import np
from wonderland.numpy.products import as_value, pairwise, take_index
from wonderland.numpy.shape import reshape_value, transpose_value
from wonderland.ops import elementwise as ops
from wonderland.ops import reduce
from wonderland.ops.index import scatter_slice
from wonderland.ops.shape import convert, inverse_permutation

EXACT = 8  # operands up to which the best order is searched exhaustively (3^8 steps)

Labels = tuple  # of one character per axis, or of ints: axes of an ellipsis, counted from the last one
Path = tuple[tuple[int, ...], ...]


class Subscripts:
    """Parsed subscripts: the labels of each operand's axes, of the result's, and the size that each label has."""

    text: str
    shapes: tuple[tuple[int, ...], ...]

    def __init__(self, text: str, shapes: tuple[tuple[int, ...], ...]):
        self.text, self.shapes = text, shapes
        inputs, arrow, output = text.replace(" ", "").partition("->")
        terms = inputs.split(",")
        if len(terms) != len(shapes):
            more = "more" if len(shapes) > len(terms) else "fewer"
            raise self.error(
                f"{more} operands provided ({len(shapes)}) than specified in the subscripts ({len(terms)})"
            )
        self.inputs: list[Labels] = [self._labels(t, s, i) for i, (t, s) in enumerate(zip(terms, shapes, strict=True))]
        self.sizes: dict[Any, int] = {}
        for i, (labels, shape) in enumerate(zip(self.inputs, shapes, strict=True)):
            self._add_sizes(i, labels, shape)
        dots = max((sum(isinstance(a, int) for a in labels) for labels in self.inputs), default=0)
        self.dots: Labels = tuple(range(dots - 1, -1, -1))
        self.output: Labels = self._explicit(output) if arrow else self._implicit()

    def error(self, what: str) -> ValueError:
        shapes = ", ".join(map(str, self.shapes))
        return ValueError(f"einsum {self.text!r} of operands with shapes {shapes or 'none'}: {what}")

    def _split(self, term: str, where: str) -> tuple[str, str, bool]:
        """What is before and after the ellipsis, and whether there is one."""
        before, dots, after = term.partition("...")
        for letter in before + after:
            if letter == ".":
                raise self.error(f"the subscripts of {where} contain a '.' that is not part of one ellipsis ('...')")
            if not (letter.isascii() and letter.isalpha()):
                raise self.error(f"invalid subscript {letter!r} in {where}; subscripts are letters")
        return before, after, bool(dots)

    def _labels(self, term: str, shape: tuple, i: int) -> Labels:
        before, after, dots = self._split(term, f"operand {i}")
        extra = len(shape) - len(before) - len(after)
        if extra < 0:
            raise self.error(f"too many subscripts, {term!r}, for operand {i} of shape {shape}")
        if extra and not dots:
            raise self.error(
                f"operand {i} of shape {shape} has more dimensions than subscripts, {term!r}, and no '...' to "
                "broadcast the extra ones"
            )
        return (*before, *range(extra - 1, -1, -1), *after)

    def _add_sizes(self, i: int, labels: Labels, shape: tuple) -> None:
        own: dict[Any, int] = {}
        for label, size in zip(labels, shape, strict=True):
            if own.setdefault(label, size) != size:
                raise self.error(
                    f"dimensions in operand {i} for collapsing index {label!r} don't match ({own[label]} != {size})"
                )
        for label, size in own.items():
            known = self.sizes.get(label, 1)
            if size != 1 and known not in (1, size):
                name = "an axis of the ellipsis" if isinstance(label, int) else f"index {label!r}"
                raise self.error(
                    f"operands could not be broadcast together: {name} is {known} before operand {i} and {size} in it"
                )
            self.sizes[label] = known if size == 1 else size

    def _explicit(self, output: str) -> Labels:
        before, after, dots = self._split(output, "the output")
        for letter in before + after:
            if letter not in self.sizes:
                raise self.error(f"output subscript {letter!r} never appeared in an input")
            if (before + after).count(letter) > 1:
                raise self.error(f"output subscript {letter!r} is there multiple times")
        if self.dots and not dots:
            raise self.error(
                f"the ellipsis stands for {len(self.dots)} dimension(s), and the output has no '...' to put them; "
                "write letters instead of '...' to sum over them"
            )
        return (*before, *self.dots, *after)

    def _implicit(self) -> Labels:
        count: dict[Any, int] = {}
        for label in itertools.chain(*self.inputs):
            count[label] = count.get(label, 0) + 1
        return (*self.dots, *sorted(a for a, n in count.items() if n == 1 and isinstance(a, str)))


def _arguments(operands: tuple) -> tuple[str, list]:
    """The subscripts as a string, and the operands, from either of einsum's two forms."""
    if not operands:
        raise ValueError("must specify the einstein sum subscripts string and at least one operand")
    if isinstance(operands[0], str):
        if len(operands) == 1:
            raise ValueError(f"einsum {operands[0]!r}: must provide at least one operand")
        return operands[0], list(operands[1:])
    pairs, last = len(operands) // 2, operands[-1] if len(operands) % 2 else None
    text = ",".join(_letters(operands[2 * i + 1]) for i in range(pairs))
    if last is not None:
        text += "->" + _letters(last)
    return text, [operands[2 * i] for i in range(pairs)]


def _letters(sublist: Any) -> str:
    out = ""
    for item in sublist:
        if item is Ellipsis:
            out += "..."
        elif not 0 <= int(item) < 52:
            raise ValueError(f"einsum: subscript {item} is not within the valid range [0, 52)")
        else:  # in the order of the numbers, which decides the implicit output
            out += chr(ord("A") + item) if item < 26 else chr(ord("a") + item - 26)
    return out


# The order -----------------------------------------------------------------------------------------------------------


def _result(left: frozenset, right: frozenset, others: Iterable[frozenset]) -> frozenset:
    """The labels that are left of a contraction: those that somebody else (or the output) still needs."""
    return (left | right) & frozenset().union(*others)


def exact_path(terms: Sequence[frozenset[Any]], output: frozenset[Any], sizes: dict[Any, Any]) -> Path:
    """The contraction order with the least multiplications, of all orders of pairs."""
    n, everything = len(terms), (1 << len(terms)) - 1
    labels = {}  # of the result of contracting a set of operands, given as bits
    for group in range(1, everything + 1):
        inside = frozenset().union(*(t for i, t in enumerate(terms) if group >> i & 1))
        outside = output.union(*(t for i, t in enumerate(terms) if not group >> i & 1))
        labels[group] = inside & outside if group & (group - 1) else inside
    volume = functools.lru_cache(None)(lambda chosen: math.prod(sizes[a] for a in chosen))
    best: dict[int, tuple] = {1 << i: (0, 0, None) for i in range(n)}  # (multiplications, memory, split)
    for group in sorted(labels, key=int.bit_count):
        part = (group - 1) & group
        while part:
            rest = group ^ part
            if part > rest:  # each split once
                cost = best[part][0] + best[rest][0] + volume(labels[part] | labels[rest])
                memory = best[part][1] + best[rest][1] + volume(labels[group])
                if group not in best or (cost, memory) < best[group][:2]:
                    best[group] = (cost, memory, (rest, part))
            part = (part - 1) & group
    path, places = [], [1 << i for i in range(n)]

    def build(group: int) -> None:
        split = best[group][2]
        if split is None:
            return
        for half in split:
            build(half)
        pair = tuple(sorted(places.index(half) for half in split))
        for i in reversed(pair):
            del places[i]
        places.append(group)
        path.append(pair)

    build(everything)
    return tuple(path)


def greedy_path(terms: Sequence[frozenset[Any]], output: frozenset[Any], sizes: dict[Any, Any]) -> Path:
    """Contract, again and again, the pair that makes the arrays smallest; pairs without a common label last."""
    remaining, path = list(terms), []

    def volume(labels: frozenset) -> int:
        return math.prod(sizes[a] for a in labels)

    while len(remaining) > 1:

        def cost(pair: tuple[int, int]) -> tuple:
            left, right = (remaining[i] for i in pair)
            rest = [output, *(t for i, t in enumerate(remaining) if i not in pair)]
            grown = volume(_result(left, right, rest)) - volume(left) - volume(right)
            return not left & right, grown, volume(left | right)

        i, j = min(itertools.combinations(range(len(remaining)), 2), key=cost)
        right, left = remaining.pop(j), remaining.pop(i)
        remaining.append(_result(left, right, [output, *remaining]))
        path.append((i, j))
    return tuple(path)


def _given_path(optimize: Any, count: int, text: str) -> Path:
    """A path as `np.einsum_path` returns it, checked."""
    steps = [tuple(int(i) for i in step) for step in optimize if step != "einsum_path"]
    left = count
    for step in steps:
        if not step or len(set(step)) != len(step) or not all(0 <= i < left for i in step):
            raise ValueError(f"einsum {text!r}: step {step} of the path {steps} doesn't fit {left} operands")
        left -= len(step) - 1
    return tuple(steps) if left == 1 else (*steps, tuple(range(left)))


# The contraction -----------------------------------------------------------------------------------------------------


def _summed(x: Any, axes: tuple[int, ...]) -> Any:
    if type_of(x).dtype == bool:  # the sum of bools is whether there is a True
        return ops.gt(reduce.sum(convert(x, dtype=np.dtype(np.int64)), axes=axes), 0)
    return reduce.sum(x, axes=axes)


def _diagonals(x: Any, labels: Labels) -> tuple[Any, Labels]:
    """Take the diagonal of axes with the same label, as a strided slice of those axes made one."""
    for label in labels:
        places = [i for i, a in enumerate(labels) if a == label]
        if len(places) > 1:
            x = transpose_value(x, (*(i for i in range(len(labels)) if i not in places), *places))
            rest, n = shape_of(x)[: -len(places)], shape_of(x)[-1]
            x = reshape_value(x, (*rest, n ** len(places)))
            x = take_index(x, len(rest), slice(0, n ** len(places), _diagonal_step(n, len(places))))
            return _diagonals(x, (*(a for a in labels if a != label), label))
    return x, labels


def _diagonal_step(n: int, axes: int) -> int:
    return max(sum(n**i for i in range(axes)), 1)


class _Term:
    """An operand on its way: its value and the labels of its axes."""

    __slots__ = ("labels", "value")

    def __init__(self, value: Any, labels: Labels):
        self.value, self.labels = value, tuple(labels)

    def summed_to(self, needed: frozenset) -> _Term:
        axes = tuple(i for i, a in enumerate(self.labels) if a not in needed)
        if not axes:
            return self
        return _Term(_summed(self.value, axes), tuple(a for a in self.labels if a in needed))


def _contract(terms: list[_Term], output: Labels) -> _Term:
    """Two operands to one; labels not in `output` are summed over."""
    x, y = terms
    needed = frozenset(output)
    x, y = x.summed_to(needed | frozenset(y.labels)), y.summed_to(needed | frozenset(x.labels))
    batch = [a for a in x.labels if a in y.labels and a in needed]
    free = [[a for a in t.labels if a not in batch and a in needed] for t in (x, y)]
    if [*batch, *free[1], *free[0]] == list(output):  # swapped, the result has its axes in order
        x, y = y, x
    value, labels = pairwise(x.value, x.labels, y.value, y.labels, output)
    return _Term(value, tuple(labels))


def _start(subscripts: Subscripts, operands: list) -> list[_Term]:
    """Operands without diagonals and without axes that are only there to be broadcast."""
    terms = []
    for value, labels in zip(operands, subscripts.inputs, strict=True):
        value, labels = _diagonals(value, labels)
        real = [i for i, a in enumerate(labels) if shape_of(value)[i] == subscripts.sizes[a]]
        value = reshape_value(value, tuple(shape_of(value)[i] for i in real))
        terms.append(_Term(value, tuple(labels[i] for i in real)))
    return terms


@functools.lru_cache(maxsize=512)
def _plan(text: str, shapes: tuple, optimize: Any) -> tuple[Subscripts, Path]:
    subscripts = Subscripts(text, shapes)
    terms = [
        frozenset(a for a, n in zip(labels, shape, strict=True) if n == subscripts.sizes[a])
        for labels, shape in zip(subscripts.inputs, shapes, strict=True)
    ]
    return subscripts, _path(terms, frozenset(subscripts.output), subscripts.sizes, optimize, text)


def _path(terms: list[frozenset], output: frozenset, sizes: dict, optimize: Any, text: str) -> Path:
    if isinstance(optimize, tuple):
        return _given_path(optimize, len(terms), text)
    # Labels of one operand alone are summed before anything else: they don't count.
    terms = [
        t & output.union(*(other for j, other in enumerate(terms) if j != i)) for i, t in enumerate(terms)
    ]  # fmt: skip
    exact = len(terms) <= EXACT and optimize != "greedy"
    return (exact_path if exact else greedy_path)(terms, output, sizes)


def _option(optimize: Any, text: str) -> Any:
    """`optimize` in a form that can be remembered: a path as a tuple, or the name of a search."""
    if optimize is None or isinstance(optimize, (bool, np.bool_)) or optimize in ("greedy", "optimal"):
        return "greedy" if isinstance(optimize, str) and optimize == "greedy" else "optimal"
    if isinstance(optimize, (list, tuple)) and optimize and isinstance(optimize[0], str):
        if optimize[0] in ("greedy", "optimal"):  # with a limit for memory, which isn't followed
            return optimize[0]
    if isinstance(optimize, (list, tuple)) and all(
        isinstance(s, (tuple, list)) or s == "einsum_path" for s in optimize
    ):
        return tuple(s if isinstance(s, str) else tuple(s) for s in optimize)
    raise TypeError(f"einsum {text!r}: did not understand the path (optimize=): {optimize!r}")


def _converted(operands: list, dtype: Any, casting: str, text: str) -> list:
    """All operands in the dtype of the result, as NumPy does it: sums of small integers wrap in that dtype."""
    goal = np.dtype(dtype) if dtype is not None else promote(*(type_of(x) for x in operands))[0]
    for i, x in enumerate(operands):
        if not np.can_cast(type_of(x).dtype, goal, casting):  # type: ignore[arg-type]
            raise TypeError(
                f"einsum {text!r}: cannot cast operand {i} from {type_of(x).dtype} to {goal} by the rule {casting!r}; "
                "give casting='unsafe' or convert it with .astype"
            )
    return [x if type_of(x).dtype == goal else convert(x, dtype=goal) for x in operands]


def einsum_values(
    text: str, operands: list[Any], optimize: Any = None, dtype: Any = None, casting: str = "safe"
) -> Any:
    """einsum of values: arrays and traced ones."""
    operands = [as_value(x) for x in operands]
    shapes = tuple(shape_of(x) for x in operands)
    subscripts, path = _plan(text, shapes, _option(optimize, text))
    terms = _start(subscripts, _converted(operands, dtype, casting, text))
    output = subscripts.output
    for step in path if len(terms) > 1 else ():
        chosen = [terms[i] for i in step]
        terms = [t for i, t in enumerate(terms) if i not in step]
        while len(chosen) > 1:  # two at a time, also where the given path has more
            rest = frozenset(output).union(*(t.labels for t in (*terms, *chosen[2:])))
            last = not terms and len(chosen) == 2
            both = frozenset(chosen[0].labels) | frozenset(chosen[1].labels)
            goal = output if last else tuple(a for a in subscripts.sizes if a in both & rest)
            chosen = [_contract(chosen[:2], goal), *chosen[2:]]
        terms.append(chosen[0])
    term = terms[0].summed_to(frozenset(output))
    return transpose_value(term.value, tuple(term.labels.index(a) for a in output))


def _view(x: Tracer, subscripts: Subscripts) -> Tracer:
    """Of one operand, with nothing to sum: a view, as NumPy's. `np.einsum("ii->i", x)[:] = 1` sets the diagonal."""
    (labels,), output = subscripts.inputs, subscripts.output

    def get(value: Any) -> Any:
        value, left = _diagonals(value, labels)
        return transpose_value(value, tuple(left.index(a) for a in output))

    def put(box: list, new: Any) -> Any:
        if len(set(labels)) == len(labels):
            return transpose_value(new, inverse_permutation(tuple(labels.index(a) for a in output)))
        return _put_diagonals(box[0], labels, new, output)

    return make_view(x, get, put)


def _put_diagonals(value: Any, labels: Labels, new: Any, output: Labels) -> Any:
    """The inverse of `_diagonals`: write the view's values back where they were read."""
    label = next((a for a in labels if labels.count(a) > 1), None)
    if label is None:
        return transpose_value(new, tuple(output.index(a) for a in labels))
    places = [i for i, a in enumerate(labels) if a == label]
    order = (*(i for i in range(len(labels)) if i not in places), *places)
    moved = transpose_value(value, order)
    shape = shape_of(moved)
    rest, n = shape[: -len(places)], shape[-1]
    flat = reshape_value(moved, (*rest, n ** len(places)))
    step = slice(0, n ** len(places), _diagonal_step(n, len(places)))
    kept = (*(a for a in labels if a != label), label)
    inner = _put_diagonals(take_index(flat, len(rest), step), kept, new, output)
    index = (*(slice(0, m, 1) for m in rest), step)
    flat = scatter_slice(flat, inner, index=index, mode="set")
    return transpose_value(reshape_value(flat, shape), inverse_permutation(order))


def einsum(
    *operands: Any,
    out: Any = None,
    optimize: Any = None,
    dtype: Any = None,
    order: Any = "K",
    casting: Any = "safe",
) -> Any:
    """NumPy's `einsum`, on traced arrays too: any valid subscripts, in a good order of contraction.

    `np.einsum("bij,bjk->bik", x, y)` has shape (b, i, k). The order is always chosen for the fewest multiplications
    (`optimize=False` too); `optimize="greedy"` or a path, as `np.einsum_path` returns it, choose another one.
    """
    if not has_tracer(operands):
        options: dict = {} if dtype is None else {"dtype": dtype}
        return np.einsum(
            *operands, out=out, optimize=bool(optimize) and optimize, order=order, casting=casting, **options
        )  # type: ignore[misc]
    if out is not None:
        return np.einsum(*operands, out=out, optimize=optimize, dtype=dtype, casting=casting)  # type: ignore[misc]
    text, arrays = _arguments(operands)
    if len(arrays) == 1 and isinstance(arrays[0], Tracer) and (dtype is None or np.dtype(dtype) == arrays[0].dtype):
        subscripts = Subscripts(text, (arrays[0].shape,))
        if set(subscripts.output) == set(subscripts.inputs[0]) and arrays[0].shape:
            return _view(arrays[0], subscripts)
    return Tracer(einsum_values(text, [values(x) for x in arrays], optimize, dtype, casting))


for _original in present([np.einsum]):
    FUNCTIONS[_original] = namespace["einsum"] = einsum
