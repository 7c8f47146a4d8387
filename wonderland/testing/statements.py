"""Statements of random programs, in families: a writer comes in, and gets one statement more.

`FAMILIES` has them; `wide_statements` has more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.testing.program_writer import LARGEST, LIMIT, MARGIN, Writer, fits_with, is_array, is_full

SMOOTH = (
    "np.sin({})", "np.cos({})", "np.tanh({})", "np.arctan({})", "np.exp(-{} ** 2)", "np.log1p({} ** 2)", "-{}",
    "np.sqrt({} ** 2 + 0.5)", "1 / (1.5 + {} ** 2)", "np.square({})", "np.expm1(0.5 * {})", "np.arcsinh({})",
    "np.arcsin(0.9 * np.tanh({}))", "np.sinh(0.3 * {})", "{} ** 3", "np.reciprocal(2.0 + np.cos({}))", "0.5 * {}",
    "np.logaddexp({}, 0.3)", "np.log(1.2 + np.sin({}))", "np.sinc(0.4 * {})", "1.5 - {}", "np.exp2(0.3 * {})",
)  # fmt: skip
KINKED = (  # smooth except at 0
    "np.abs({})", "np.maximum({}, 0.0)", "np.minimum(0.0, {})", "np.where({0} > 0, {0}, 0.2 * {0})",
    "np.where({0} > 0, np.sqrt(np.abs({0})), 0.0)", "np.clip({}, 0.0, 9.0)", "np.sign({0}) * {0}", "np.cbrt({})",
    "np.heaviside({0}, 0.5) * {0}", "np.copysign({0}, -1.0)", "np.where({0} != 0, np.sin({0}) / {0}, 1.0)",
)  # fmt: skip
PAIRS = (
    "{} + {}", "{} - {}", "{} * {}", "{} / (1.5 + {} ** 2)", "np.hypot({}, 0.5 + {} ** 2)", "np.logaddexp({}, {})",
    "np.arctan2({}, 1.2 + {} ** 2)", "(0.5 + {} ** 2) ** {}", "np.multiply({}, np.cos({}))", "0.3 * {} - {} ** 2",
)  # fmt: skip
LIBRARY = {  # forms of one array, by its number of axes; each as often as the others
    1: (
        "np.convolve({0}, [0.5, 0.3], mode='same')", "np.gradient({0})", "np.trapezoid({0}, dx=0.5)", "np.diag({0})",
        "np.polyval({0}, 0.4)", "np.interp(0.37, np.arange({n}), {0})", "np.kron({0}, [0.5, -1.0])",
        "np.vander({0}, 3)",
        "np.cross({0}[:3], [0.2, 0.5, -0.3])", "np.outer({0}, np.arange(2))", "np.add.outer({0}, [0.1, 0.4])",
        "np.meshgrid({0}, {0})[1]", "np.append({0}, 0.5)", "np.insert({0}, 1, 0.2)", "np.delete({0}, 0)",
        "np.ediff1d({0})", "np.hstack([{0}, {0}])", "np.column_stack([{0}, {0}])", "np.correlate({0}, {0})",
    ),
    2: (
        "np.tril({0})", "np.triu({0}, 1)", "np.diagonal({0})", "np.trace({0})", "np.rot90({0})", "np.fliplr({0})",
        "np.einsum('ij->ji', {0})", "np.einsum('ij,kj->ik', {0}, {0})", "np.cov({0}, bias=True)",
        "np.apply_along_axis(np.cumsum, 0, {0})", "np.vstack([{0}, {0}[:1]])", "np.inner({0}, {0})",
        "np.block([[{0}, {0}]])", "np.average({0}, axis=0, weights=np.arange({n}) + 1.0)",
    ),
    3: ("np.einsum('ijk->ki', {0})", "np.einsum('ijk,ijk->j', {0}, {0})", "np.matrix_transpose({0})"),
    0: (  # of any
        "np.add.reduce({0}, axis=0)", "np.multiply.accumulate({0}, axis=0)", "np.nan_to_num({0})", "np.nansum({0})",
        "np.linalg.norm(np.ravel({0}) + 3.0)", "np.logaddexp.reduce(np.ravel({0}))", "np.ones_like({0}) * {0}",
        "np.select([{0} > 9.0, {0} > -9.0], [{0}, np.sin({0})])", "np.real({0})", "np.full_like({0}, 0.3) - {0}",
        "np.piecewise({0}, [{0} > 9.0], [0.0, np.cos])", "np.atleast_2d({0})", "np.nanmean({0})",
        "np.modf(0.1 * {0})[0]",
        "np.divmod({0}, 7.0)[0] + {0}", "np.std(np.ravel({0})[:, None] + np.arange(2.0))", "np.unwrap({0})",
    ),
}  # fmt: skip
SMOOTH_REDUCTIONS = ("sum", "mean", "prod", "var")
ORDERED_REDUCTIONS = ("max", "min", "ptp", "median")


def _smooth(w: Writer) -> None:
    w.add(w.choose(SMOOTH).format(w.pick()))


def _kinked(w: Writer) -> None:
    a = w.pick()
    if a and w.clear(a):
        w.add(w.choose(KINKED).format(a))


def _pairs(w: Writer) -> None:
    a = w.pick()
    b = w.pick(fits_with(w.values[a]))  # type: ignore[index]
    if b:
        w.add(w.choose(PAIRS).format(a, b))


def _comparisons(w: Writer) -> None:
    a = w.pick()
    assert a is not None
    b = w.pick(lambda v: fits_with(w.values[a])(v) and bool(np.all(np.abs(w.values[a] - v) > MARGIN)))
    if b and w.chance(0.6):
        form = w.choose(["np.maximum({}, {})", "np.minimum({}, {})", "np.fmax({}, {})", "{} > {}",
                         "np.where({0} < {1}, {0}, -{1})", "np.less_equal({}, {})"])  # fmt: skip
        w.add(form.format(a, b))
        return
    c = w.threshold(a)
    if c is not None:
        form = w.choose(["{} > {}", "{} <= {}", "np.where({0} > {1}, np.sin({0}), {1})", "np.maximum({}, {})",
                         "np.clip({}, {}, 2.5)", "np.floor({0} - {1}) * {0}", "({0} - {1}) % 5.0"])  # fmt: skip
        w.add(form.format(a, c))


def _reductions(w: Writer) -> None:
    a = w.pick(is_full)
    if a is None:
        return
    value = w.values[a]
    name = w.choose(SMOOTH_REDUCTIONS + ORDERED_REDUCTIONS)
    axis: Any = w.choose([None, w.axis(value), tuple(range(np.ndim(value)))])
    if name in ORDERED_REDUCTIONS and not _spread(value, axis):
        return
    options = [] if axis is None else [f"axis={axis}"]
    if w.chance(0.3) and name != "ptp":
        options.append("keepdims=True")
    if name in ("median", "ptp") or w.chance(0.5):
        w.add(f"np.{name}({', '.join([a, *options])})")
    else:
        w.add(f"{a}.{name}({', '.join(options)})")


def _spread(value: Any, axis: Any = None) -> bool:
    """Are the numbers along the axis clearly different from each other?"""
    flat = np.sort(value, axis=axis) if isinstance(axis, int) else np.sort(value, axis=None)
    return bool(np.all(np.diff(flat, axis=axis if isinstance(axis, int) else -1) > MARGIN))


def _along(w: Writer) -> None:
    """What keeps the shape, or nearly: cumulative sums, differences, sorting, shifts."""
    a = w.pick(is_full)
    if a is None:
        return
    axis = w.axis(w.values[a])
    form = w.choose(["np.cumsum({0}, axis={1})", "np.cumprod({0}, axis={1})", "np.diff({0}, axis={1})",
                     "np.sort({0}, axis={1})", "np.flip({0}, axis={1})", "np.roll({0}, 2, axis={1})",
                     "{0} - {0}.mean(axis={1}, keepdims=True)", "{0}.cumsum({1})",
                     "np.exp({0}) / np.sum(np.exp({0}), axis={1}, keepdims=True)",
                     "np.take_along_axis({0}, np.argsort({0}, axis={1}), axis={1})"])  # fmt: skip
    if "sort" not in form or _spread(w.values[a], axis):
        w.add(form.format(a, axis))


def _shapes(w: Writer) -> None:
    a = w.pick(is_array)
    if a is None:
        return
    value = w.values[a]
    axis = w.axis(value)
    order = [int(k) for k in w.rng.permutation(value.ndim)]
    small = value.size * 2 <= LARGEST
    form = w.choose(["{a}.T", "{a}.ravel()", "np.reshape({a}, (-1,))" if value.size else "np.ravel({a})",
                     "{a}.reshape({shape})", "np.transpose({a}, {order})", "np.expand_dims({a}, {axis})",
                     "np.swapaxes({a}, 0, {axis})", "np.squeeze({a})", "{a}[None]", "np.moveaxis({a}, {axis}, 0)",
                     "np.stack([{a}, 0.5 * {a}], axis={axis})" if small else "{a}.T",
                     "np.concatenate([{a}, np.sin({a})], axis={axis})" if small else "{a}.T",
                     "np.tile({a}, 2)" if small else "{a}.T", "np.repeat({a}, 2, axis={axis})" if small else "{a}.T",
                     "np.broadcast_to({a}, (2, *{a}.shape))" if small else "{a}.T",
                     "np.pad({a}, 1)" if value.ndim == 1 else "{a}.T",
                     "np.array_split({a}, 2, axis={axis})[0]"])  # fmt: skip
    w.add(form.format(a=a, axis=axis, order=order, shape=value.shape[::-1]))


def _index(w: Writer, shape: tuple, gather: bool) -> str:
    """An index into an array of this shape, as source."""
    parts = []
    for n in shape[: int(w.rng.integers(1, len(shape) + 1))]:
        kind = w.choose(["int", "slice", "slice", "step", "gather" if gather else "slice"])
        if kind == "int" and n:
            parts.append(str(int(w.rng.integers(-n, n))))
        elif kind == "gather" and n:
            parts.append(str([int(k) for k in w.rng.integers(-n, n, int(w.rng.integers(1, 4)))]))
            gather = False
        elif kind == "step":
            parts.append(w.choose(["::-1", "::2", "-1:0:-1"]))
        else:
            parts.append(w.choose([":", "1:", ":-1", ":2"]))
    if w.chance(0.15):
        parts.append("...")
    if w.chance(0.1):
        parts.insert(int(w.rng.integers(len(parts) + 1)), "None")
    return ", ".join(parts)


def _library(w: Writer) -> None:
    a = w.pick(is_full)
    if a is None:
        return
    value = w.values[a]
    form = w.choose([*LIBRARY.get(value.ndim, ()), *LIBRARY[0]])
    needs = next((n for word, n in (("cross", 3), ("gradient", 2), ("convolve", 2)) if word in form), 0)
    if value.shape[-1] < needs or value.size > LARGEST // 2 or ("divmod" in form and not w.clear(a)):
        return
    w.add(form.format(a, n=value.shape[0]))


def _indexing(w: Writer) -> None:
    a = w.pick(is_array)
    if a is None:
        return
    value = w.values[a]
    i = w.pick(lambda v: np.size(v) <= 12, kinds="i")
    if i and value.shape[0] and w.chance(0.4):
        form = w.choose(["{0}[{1} % {2}]", "np.take({0}, {1} % {2}, axis=0)", "np.take({0}, {1}, axis=0, mode='wrap')"])
        if np.size(w.values[i]) * value[:1].size <= LARGEST:
            w.add(form.format(a, i, value.shape[0]))
        return
    w.add(f"{a}[{_index(w, value.shape, gather=True)}]")


def _products(w: Writer) -> None:
    a = w.pick(is_array)
    if a is None:
        return
    x = w.values[a]
    matches = lambda v: np.ndim(v) in (1, 2) and np.shape(v)[0] == x.shape[-1] and x.size * np.size(v) <= 400
    b = w.pick(matches)
    if b is None or w.chance(0.3):
        form = w.choose(["{0} @ {0}" if x.ndim == 1 else "{0} @ np.swapaxes({0}, -1, -2)", "np.vdot({0}, {0})",
                         "np.outer({0}, {0})" if x.size <= 7 else "np.vdot({0}, np.cos({0}))",
                         "np.einsum('...i,...i->...', {0}, np.sin({0}))"])  # fmt: skip
        w.add(form.format(a))
        return
    form = w.choose(["{0} @ {1}", "np.dot({0}, {1})", "np.matmul({0}, {1})", "np.tensordot({0}, {1}, axes=1)",
                     "np.einsum('...i,i{rest}->...{rest}', {0}, {1})", "{0}.dot({1})"])  # fmt: skip
    w.add(form.format(a, b, rest="j" if np.ndim(w.values[b]) == 2 else ""))


def _integers(w: Writer) -> None:
    """Integer and bool values, and floating-point ones made with them."""
    m = w.pick(kinds="b")
    i = w.pick(kinds="i")
    a = w.pick(is_full)
    options = []
    if m:
        x = w.pick(fits_with(w.values[m]))
        options += [f"~{m}", f"np.sum({m})", f"{m}.astype(np.int64)"]
        if x:
            options += [f"np.where({m}, {x}, 0.5)", f"{m} * {x}", f"np.where({m}, 0.3, np.log(2.0 + np.tanh({x})))"]
    if i:
        x = w.pick(fits_with(w.values[i]))
        options += [f"{i} // 2", f"{i} % 3", f"{i} + 1", f"{i} > 0", f"-{i}", f"np.minimum({i}, 2)"]
        options += [f"{x} * {i}", f"0.2 * {i} + {x}"] if x else []
    if a:
        value = w.values[a]
        axis = w.axis(value)
        options += [f"np.argmax({a}, axis={axis})", f"np.argsort({a}, axis={axis})"] if _spread(value, axis) else []
        options += [f"np.arange({value.shape[-1]}) * {a}", f"np.count_nonzero({a})" if w.clear(a) else f"{a} * 2"]
    if options:
        w.add(w.choose(options))


def _writes(w: Writer) -> None:
    """An array is made, or one made before is taken, and written into: as a whole, in parts, through views."""
    name = w.pick(is_full)
    if name is None:
        return
    target = w.choose(sorted(w.written)) if w.written and w.chance(0.4) else None
    if target is None:
        target = w.add(f"{name}.copy()")
        w.written.add(target)
    value = w.values[target]
    source = w.pick(lambda v: np.shape(v) == () or np.shape(v) == value.shape) or "0.5"
    scalar = w.pick(lambda v: np.shape(v) == ()) or "0.25"
    index = _index(w, value.shape, gather=w.chance(0.3))
    c = w.threshold(target)
    view = f"w{len(w.lines)}"
    w.run(w.choose([
        f"{target}[{index}] = {scalar}", f"{target}[{index}] += {scalar}", f"{target} *= 0.5",
        f"{target}[...] = {source}", f"{target}[{index}] *= 0.7", f"np.add({target}, {scalar}, out={target})",
        f"np.multiply({target}, 0.5, out={target})", f"{target}[::-1] -= 0.3 * {target}", f"{target}.T[...] = {scalar}",
        f"{target} += 0.1",
        f"{view} = {target}[::-1]; {view} *= 0.9", f"{view} = {target}.T; {view}[0] = {scalar}",
        f"{target}[{target} > {c}] = 0.4" if c is not None else f"{target} -= 0.2",
        f"for j in range({value.shape[0]}): {target}[j] = np.sin({target}[j - 1]) + 0.3 * {target}[j]",
    ]))  # fmt: skip
    if view in w.space:
        w.values[view] = w.space[view]
    if np.max(np.abs(value), initial=0.0) > LIMIT:
        w.run(f"{target} *= 0.25")


def _control(w: Writer) -> None:
    a = w.pick(is_full)
    if a is None:
        return
    value = w.values[a]
    total = float(np.sum(value))
    c = w.pick(lambda v: np.shape(v) == ()) or "0.7"  # captured by the bodies
    kind = w.choose(["cond", "scan", "nested", "fori", "while", "loop", "switch"])
    if kind == "cond" and abs(total - 0.1) > MARGIN * value.size:
        w.add(f"wl.cond(np.sum({a}) > 0.1, lambda v: np.sin(v) * {c}, lambda v: 0.5 * v - {c}, {a})")
    elif kind == "switch":
        w.add(f"wl.switch({int(w.rng.integers(3))}, [np.cos, np.tanh, lambda v: v * {c}], {a})")
    elif kind == "scan":
        options = w.choose(["", ", reverse=True"])
        scan = f"wl.scan(lambda s, r: (np.tanh(s + {c} * r), 0.5 * s * r), np.zeros_like({a}[0]), {a}{options})"
        w.add(scan + w.choose(["[0]", "[1]"]))
    elif kind == "nested":
        inner = f"wl.fori_loop(0, 2, lambda i, q: np.sin(q) * {c} + r, s)"
        w.add(f"wl.scan(lambda s, r: ({inner}, s), np.zeros_like({a}[0]), {a}){w.choose(['[0]', '[1]'])}")
    elif kind == "fori":
        w.add(f"wl.fori_loop(0, 3, lambda i, s: np.where(i > 0, np.sin(s), {c} * s), {a})")
    elif kind == "while":
        squares = np.sum(value**2) * 0.36 ** np.arange(12)
        if np.all(np.abs(squares - 0.3) > MARGIN):
            w.add(f"wl.while_loop(lambda s: np.sum(s * s) > 0.3, lambda s: 0.6 * s, {a}) * {c}")
    elif kind == "loop":
        w.add(f"np.stack([np.sin(row) * (j + 1) for j, row in enumerate({a})])")


def _linear_algebra(w: Writer) -> None:
    a = w.pick(lambda v: np.ndim(v) == 2 and 0 < np.shape(v)[0] <= 3 and np.size(v) > 0)
    if a is None:
        return
    n = w.values[a].shape[0]
    gram = f"{a} @ {a}.T + 2.0 * np.eye({n}, dtype={a}.dtype)"
    form = w.choose(["np.linalg.cholesky({})", "np.linalg.inv({})", "np.linalg.solve({}, {})",
                     "np.linalg.slogdet({})[1]", "np.linalg.det({}) * 0.1", "np.linalg.eigvalsh({})[-1]",
                     "np.linalg.norm({})", "np.linalg.matrix_power({}, 2)", "np.linalg.qr({})[1]"])  # fmt: skip
    w.add(form.format(gram, a))


FAMILIES: dict[str, tuple[Callable[[Writer], None], int]] = {  # family -> (writes a statement, weight)
    "smooth": (_smooth, 4),
    "kinked": (_kinked, 2),
    "pairs": (_pairs, 4),
    "comparisons": (_comparisons, 2),
    "reductions": (_reductions, 2),
    "along": (_along, 2),
    "shapes": (_shapes, 3),
    "library": (_library, 3),
    "indexing": (_indexing, 3),
    "products": (_products, 2),
    "integers": (_integers, 2),
    "writes": (_writes, 3),
    "control": (_control, 1),
    "linear_algebra": (_linear_algebra, 1),
}
