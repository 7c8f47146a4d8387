"""More families of statements for random programs: what compiled code has to get right besides smooth mathematics.

Mixed dtypes and weak scalars, integers and masks, gathers and scatters at computed places, cumulative and sorting
functions, products large enough for GEMM, random numbers, loops that carry several things, and derivatives and batches
inside the program. `WIDE` has them, to be used beside `random_programs.FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Family = Callable[[Any], None]
MARGIN = 0.03  # of a number to the integers, before it is truncated


def _full(v: Any) -> bool:
    return np.ndim(v) > 0 and np.size(v) > 0


def _mixed(w: Any) -> None:
    """Floats of two precisions, weak scalars, conversions between kinds."""
    a = w.pick()
    i, m = w.pick(kinds="iu"), w.pick(kinds="b")
    options = ["{a}.astype(np.float32)", "np.float32(0.3) * {a}", "{a} + 1", "2 * {a} - 0.5", "True * {a}", "{a} / 3",
               "np.float64(0.7) + {a}", "np.multiply({a}, 2, dtype=np.result_type({a}))", "{a} ** 2", "{a} // 0.7 * 0.1"
               if np.all(np.abs(w.values[a] / 0.7 - np.round(w.values[a] / 0.7)) > MARGIN) else "-{a}"]  # fmt: skip
    scaled = 10 * w.values[a]
    if np.all(np.abs(scaled - np.round(scaled)) > MARGIN):
        options += ["(10 * {a}).astype(np.int32)", "np.floor(10 * {a}).astype(np.int64)", "np.ceil({a} * 10) * 0.1",
                    "np.trunc(10 * {a}).astype(np.int8)", "np.rint({a} * 10 + 0.5) / 10"]  # fmt: skip
    if i:
        options += ["{i}.astype(np.float32) * 0.1", "{i}.astype(np.uint8)", "{i} / 3", "{i} * 0.25",
                    "np.sqrt(np.abs({i}))", "{i}.astype(np.int16)", "{i} * np.float32(0.5)",
                    "np.true_divide({i}, 4)"]  # fmt: skip
    if m:
        options += ["{m}.astype(np.float32)", "{m} * 0.5", "{m}.astype(np.int8)", "{m} + 1", "1.0 - {m}"]
    w.add(w.choose(options).format(a=a, i=i, m=m))


def _whole(w: Any) -> None:
    """Integers and masks: exact, whatever the order."""
    i, m = w.pick(kinds="iu"), w.pick(kinds="b")
    options = []
    if i and np.max(np.abs(w.values[i].astype(float)), initial=0.0) < 1e4:
        options += ["{i} & 3", "{i} | 4", "{i} ^ 5", "{i} << 1", "{i} >> 1", "~{i}", "np.sum({i})", "np.cumsum({i})",
                    "np.prod({i} % 3 - 1)", "{i} * {i}", "np.sort({i}, axis=None)", "np.max({i}, initial=-1)",
                    "np.sign({i})", "{i} == 2", "{i} != 0", "np.isin({i}, [1, 2])", "{i} // 3", "{i} % -3",
                    "np.abs({i})", "np.left_shift(1, np.abs({i}) % 5)"]  # fmt: skip
        if np.ndim(w.values[i]):
            options += ["{i}[::-1]", "np.maximum.accumulate({i})", "np.diff({i})", "np.roll({i}, 1)",
                        "np.concatenate([{i}, {i}])[:7]", "np.pad({i}, 1)[:7]", "np.flip({i})"]  # fmt: skip
    if m:
        options += ["np.any({m})", "np.all({m})", "~{m}", "np.logical_xor({m}, True)", "np.cumsum({m})", "np.sum({m})",
                    "np.logical_not({m})", "{m} & {m}", "np.count_nonzero({m})", "np.where({m}, 3, -2)"]  # fmt: skip
        if np.ndim(w.values[m]) and np.size(w.values[m]):
            options += ["np.argmax({m})", "np.any({m}, axis=0)", "np.all({m}, axis=-1, keepdims=True)", "{m}[::-1]"]
    if options:
        w.add(w.choose(options).format(i=i, m=m))


def _places(w: Any) -> None:
    """Reading and writing at computed places."""
    a = w.pick(_full)
    i = w.pick(lambda v: 0 < np.size(v) <= 6, kinds="i")
    if a is None:
        return
    value = w.values[a]
    n, axis = value.shape[0], w.axis(value)
    places = f"np.abs(np.ravel({i})) % {n}" if i else str([int(k) for k in w.rng.integers(0, n, 3)])
    count = np.size(w.values[i]) if i else 3
    kind = w.choose(["gather", "take", "add.at", "add", "set", "along", "mask"])
    if kind == "gather" and count * value[:1].size <= 60:
        w.add(f"{a}[{places}]")
    elif kind == "take" and count * value.size <= 60:
        w.add(f"np.take({a}, {places}, axis=0)")
    elif kind == "along" and all(np.abs(np.diff(np.sort(value, axis=axis), axis=axis)).ravel() > MARGIN):
        w.add(f"np.take_along_axis({a}, np.argsort(-{a}, axis={axis}), axis={axis})")
    elif kind == "mask" and w.clear(a):
        w.add(f"np.where({a} > 0, {a}, {w.choose([f'np.zeros_like({a})', f'np.ones_like({a})', f'{a} * 0.2'])})")
    elif kind in ("add.at", "add", "set"):
        target = w.add(f"{a} * 1.0")
        w.written.add(target)
        if kind == "add.at":
            w.run(f"np.add.at({target}, {places}, 0.25)")
        elif kind == "add":
            w.run(f"{target}[{places}] += 0.5")
        else:
            w.run(f"{target}[{places}] = 0.3")


def _running(w: Any) -> None:
    """Along an axis: running extrema and sums, ends, order."""
    a = w.pick(_full)
    if a is None:
        return
    axis, value = w.axis(w.values[a]), w.values[a]
    form = w.choose(["np.maximum.accumulate({0}, axis={1})", "np.minimum.accumulate({0}, axis={1})",
                     "np.cumsum({0}[::-1], axis={1})", "np.add.reduce({0}, axis={1}, keepdims=True)",
                     "np.max({0}, axis={1}) - np.min({0}, axis={1})", "np.argmin({0}, axis={1})",
                     "np.sum({0}, axis={1})", "np.mean({0}.T, axis={1}, keepdims=True)",
                     "np.std({0} + np.arange({2}), axis=-1)",
                     "np.cumprod(0.9 * {0}, axis={1})", "np.sort({0}, axis={1})[::-1]", "np.pad({0}, 1, mode='edge')",
                     "np.concatenate([{0}, {0}[::-1]], axis={1})", "np.stack([{0}, {0}], axis={1})",
                     "np.pad({0}, 1, mode='reflect')" if min(value.shape) > 1 else "np.pad({0}, 2)",
                     "np.average({0}, axis={1})", "np.percentile({0}, 30, axis={1})", "np.nanmax({0}, axis={1})",
                     "np.linalg.norm({0} + 2.0, axis={1})", "np.searchsorted(np.array([-1.0, 0.0, 1.0]), {0})"
                     if w.clear(a) and w.clear(a, 1.0) and w.clear(a, -1.0) else "np.flip({0})"])  # fmt: skip
    ordered = any(word in form for word in ("max", "min", "sort", "percentile"))
    gaps: Any = np.diff(np.sort(value, axis=axis), axis=axis)
    if value.size <= 30 and not (ordered and np.any(gaps <= MARGIN)):
        w.add(form.format(a, axis, value.shape[-1]))


def _large(w: Any) -> None:
    """Arrays large enough for GEMM, vector loops and long sums."""
    s = f"({w.pick(lambda v: np.shape(v) == ()) or '0.4'} + 0.0 * np.sum(x0))"  # known when it runs only
    n, m, k = (int(x) for x in w.rng.choice([7, 16, 33, 50], 3))
    left = f"(np.arange({n * k}.0).reshape({n}, {k}) % 7 * 0.1 - {s})"
    right = f"(np.arange({k * m}.0).reshape({k}, {m}) % 5 * 0.1 + 0.1 * {s})"
    w.add(w.choose([
        f"np.sum({left} @ {right}, axis=0)[:4] * 0.1", f"np.sin(0.1 * ({left} @ {right}))[::-7, 1::6]",
        f"np.max({left} @ {right} * np.arange({m}), axis=-1)[:3]", f"np.mean(np.tanh({left}), axis=1)[:5]",
        f"np.einsum('ij,jk->k', {left}, {right})[:4] * 0.1", f"np.sum(np.exp(-{left} ** 2))",
        f"(np.swapaxes({right}, 0, 1) @ np.swapaxes({left}, 0, 1))[:3, -1]", f"np.cumsum({left})[::{n + 1}]",
        f"np.einsum('bij,bjk->bik', np.stack([{left}] * 2), np.stack([{right}] * 2))[1, :2, :2]",
        f"({left} - {left}.mean(axis=1, keepdims=True))[-2:, ::{k - 2}]", f"np.var({left}, axis=0)[1:4]",
        f"np.exp({left} - np.max({left}, axis=1, keepdims=True)).sum(axis=1)[:3]",
    ]))  # fmt: skip


def _random(w: Any) -> None:
    key = f"wl.random.fold_in(wl.random.key({int(w.rng.integers(100))}), np.sum(x0 > 9.0))"  # known when it runs only
    shape = w.choose(["(3,)", "(2, 2)", "()"])
    w.add(w.choose([
        f"wl.random.uniform({key}, {shape})", f"wl.random.normal({key}, {shape})",
        f"wl.random.randint({key}, {shape}, -3, 4)", f"wl.random.bernoulli({key}, {shape}, 0.4)",
        f"wl.random.uniform(wl.random.split({key})[1], {shape}, dtype=np.float32)", f"wl.random.permutation({key}, 5)",
        f"wl.random.exponential({key}, {shape})", f"wl.vmap(wl.random.normal)(wl.random.split({key}, 3))",
    ]))  # fmt: skip


def _transformed(w: Any) -> None:
    """Derivatives and batches inside a program."""
    a = w.pick(_full)
    if a is None or w.values[a].size > 30:
        return
    c = w.pick(lambda v: np.shape(v) == ()) or "0.7"
    loop = f"wl.scan(lambda s, r: (np.sin(s) + {c} * r, s), 0.1 * v[0], v)"
    w.add(w.choose([
        f"wl.grad(lambda v: np.sum(np.sin(v) * v ** 2))({a})", f"wl.jvp(np.tanh, ({a},), ({a},))[1]",
        f"wl.vmap(lambda r: np.sum(np.cos(r) * {c}))({a})", f"wl.grad(lambda v: np.sum({loop}[0]))({a})",
        f"wl.vmap(wl.grad(lambda r: np.sum(r ** 3) * {c}))({a})", f"wl.jvp(lambda v: {loop}[1], ({a},), ({a},))[1]",
        f"wl.jit(lambda v: np.cumsum(v, axis=0) * {c})({a})", f"wl.vjp(lambda v: v[::-1] * {c}, {a})[1]({a})[0]",
        f"wl.grad(lambda v: np.sum(wl.fori_loop(0, 3, lambda i, s: np.sin(s) * v, v)))({a})",
        f"wl.grad(lambda v: np.sum(wl.cond(np.sum(v) > 1e3, np.sin, lambda u: u * {c}, v)))({a})",
        f"wl.vmap(lambda r: wl.while_loop(lambda s: np.sum(s * s) > 1e-3, lambda s: 0.5 * s, r))({a} * 0.0 + 0.3)",
    ]))  # fmt: skip


def _carries(w: Any) -> None:
    """Loops that carry several values, integers and arrays written in place among them."""
    a = w.pick(_full)
    if a is None or w.values[a].size > 30:
        return
    n = w.values[a].shape[0]
    c = w.pick(lambda v: np.shape(v) == ()) or "0.7"
    row = f"np.sum(np.take({a}, i - 1, axis=0))"
    step = f"lambda s, r: ((s[0] + 1, np.tanh(s[1] + r) * {c}), (s[0] * 2, s[1]))"
    w.add(w.choose([
        f"wl.scan({step}, (np.int64(0), np.zeros_like({a}[0])), {a})[0][1]",
        f"wl.scan({step}, (np.int64(0), np.zeros_like({a}[0])), {a})[1][0]",
        f"wl.scan({step}, (np.int64(0), np.zeros_like({a}[0])), {a}, reverse=True)[1][1]",
        f"wl.while_loop(lambda s: s[0] < 4, lambda s: (s[0] + 1, np.sin(s[1]) + 0.1 * s[0]), (np.int64(0), {a}))[1]",
        f"wl.fori_loop(0, {n}, lambda i, s: s + np.take({a}, i, axis=0) * i, np.zeros_like({a}[0]))",
        f"wl.fori_loop(1, {n}, lambda i, s: ({row} + s[0], np.maximum(s[1], 0.3 * i)), (0.0 * {c}, {a}[0]))[0]",
        f"wl.fori_loop(0, 3, lambda i, s: wl.cond(i % 2 == 0, np.sin, lambda v: v * {c}, s), {a})",
    ]))  # fmt: skip


WIDE: dict[str, tuple[Family, int]] = {  # family -> (writes a statement, weight)
    "mixed": (_mixed, 3),
    "whole": (_whole, 3),
    "places": (_places, 3),
    "running": (_running, 3),
    "large": (_large, 1),
    "random": (_random, 1),
    "transformed": (_transformed, 2),
    "carries": (_carries, 2),
}
