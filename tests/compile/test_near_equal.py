"""Every cache of the compiler tells near-equal programs apart: whatever was compiled before, the answer is the same.

Programs that differ in one small thing (a dtype, a sign of zero, a stride, a parameter) run in one process in both
orders, each time with empty caches, and are compared with NumPy. For the operators of the op table, which are many, the
text that LLVM would get is compared instead.
"""

import dataclasses
import functools
import importlib
import inspect
import pkgutil
import re
import types

import numpy as np
import pytest
import scipy.special as sp

import wonderland as wl
import wonderland.compile
from wonderland.compile import build, pool, stages
from wonderland.core import tree
from wonderland.core.primitive import registry
from wonderland.testing import op_table
from wonderland.testing.op_samples import Sample, assert_close, mixed_samples, samples
from wonderland.testing.samples import Case

pytestmark = pytest.mark.filterwarnings("ignore:.*is compiled for the 6th time")

# The caches of `compile/` with a key. One that is new belongs here: False if what it holds stays for good (code whose
# address was handed out). Caches without a key have one answer in a process.
CACHES = {
    "attention_code.external": False,
    "cache._written": False,  # a count by directory
    "emitter._probed": True,
    "foreign.address": True,
    "foreign._routine_address": True,
    "gemm.external": False,
    "winograd_code.external": False,
    **dict.fromkeys(("gemm_kernel.kernel", "gemm_kernel._store_edge", "gemm_tile.tile", "transposes._block"), True),
    **{f"gemm_pack.pack_{what}": True for what in ("rows", "tall", "placed", "columns", "wide")},
    **dict.fromkeys(("ir.values.bytes_of", "ir.values.is_float", "ir.values.lanes_of", "ir.values.mangled"), True),
    "llvm._at_hand": True,
    "lower._fitting": True,
    "lower._conversion": True,
    "build._libraries": True,
    "ir.function._intrinsic": True,
    "vecmath.functions._written": True,
}


def found_caches() -> dict:
    """Caches of functions with arguments, and dictionaries of modules and classes that aren't constants."""
    found = {}
    prefix = "wonderland.compile."
    for module in pkgutil.walk_packages(wonderland.compile.__path__, prefix):
        whole = importlib.import_module(module.name)
        own = {n: v for n, v in vars(whole).items() if getattr(v, "__module__", whole.__name__) == whole.__name__}
        classes = {f"{c}.{n}": v for c, cls in own.items() if inspect.isclass(cls) for n, v in vars(cls).items()}
        for name, value in {**own, **classes}.items():
            last = name.rpartition(".")[2]
            keyed = isinstance(value, functools._lru_cache_wrapper) and inspect.signature(value).parameters
            variable = isinstance(value, dict) and not last.startswith("__") and not last.strip("_").isupper()
            if keyed or (variable and re.search(rf"(?m)^ *{last}(: .*)? = ", inspect.getsource(whole))):
                found[f"{module.name.removeprefix(prefix)}.{name}"] = value
    return found


def forget() -> None:
    """As in a new process."""
    for name, cache in found_caches().items():
        if CACHES[name]:
            cache.clear() if isinstance(cache, dict) else cache.cache_clear()


def test_all_caches_are_known():
    assert {*found_caches()} == {*CACHES}


def assert_same(got, want, what):
    assert_close(got, want, what, 1e-6)
    for a, b in zip(tree.leaves(got), tree.leaves(want), strict=True):
        if np.asarray(b).dtype.kind == "f":
            known = ~np.isnan(b)
            assert np.array_equal(np.signbit(a)[known], np.signbit(b)[known]), f"{what}: {a} instead of {b}"
        assert type(a) is type(b), f"{what}: {type(a)} instead of {type(b)}"


def in_both_orders(calls, jitted=None):
    """`calls`: (function, arguments) each; with a `jitted` function, that one for all of them."""
    with np.errstate(all="ignore"):
        wanted = [f(*args) for f, args in calls]
        for order in (range(len(calls)), reversed(range(len(calls)))):
            forget()
            one = jitted() if jitted else None
            for i in [*order] * (2 if jitted else 1):  # the second time by the native entry
                f, args = calls[i]
                assert_same((one or wl.jit(f))(*args), wanted[i], f"call {i}")


x32 = np.linspace(0.2, 0.9, 5, dtype=np.float32)
x64 = np.linspace(0.2, 0.9, 5)
small = np.array([1, 2, 3], np.int8)
square = np.arange(12.0).reshape(3, 4) / 7 - 0.6
LAWS = [sp.xlogy, sp.xlog1py, sp.beta, sp.betaln, sp.gammainc, sp.gammaincc, sp.gammaincinv, sp.gammainccinv]


@pytest.mark.parametrize("law", LAWS, ids=lambda f: f.__name__)
def test_results_of_another_dtype(law):
    """SciPy computes float32 with a Python number as float64."""
    in_both_orders([(law, (x32, x32)), (lambda v: law(v, 0.8), (x32,)), (lambda v: law(v, 1), (x32,))])


def test_dtypes_of_operands():
    a, b = [np.array([1, 2, 3], d) for d in (np.int32, np.int64)], [x32[:3], x64[:3]]
    pairs = [(p, q) for p in (*a, *b, a[0] > 1) for q in (*b, a[1])]
    f = lambda x, y: (np.maximum(x, y) * y + 1, np.arctan2(x, y))
    in_both_orders([(f, p) for p in pairs], lambda: wl.jit(f))


def test_weak_and_strong_numbers():
    f = lambda x, s: (x * s, np.where(x > 0.5, x, s), np.power(x, s))
    numbers = (2, 2.0, True, np.float32(2), np.float64(2), np.int64(2), np.True_, np.array(2.0))
    in_both_orders([(f, (x32, s)) for s in numbers], lambda: wl.jit(f))
    in_both_orders([(lambda x, s=s: f(x, s), (x32,)) for s in numbers])


def test_shapes():
    f = lambda x: (np.sum(x * 2, axis=0), np.exp(x) - np.mean(x))
    shapes = [(1,), (5,), (17,), (1, 5), (5, 1), (1, 1), (40, 33)]
    in_both_orders([(f, (np.linspace(-1, 1, int(np.prod(s))).reshape(s),)) for s in shapes], lambda: wl.jit(f))


def test_layouts_of_arguments_and_of_captured_arrays():
    whole = np.arange(96.0).reshape(12, 8) / 50
    arrays = [
        whole[:4, :4].copy(), whole[:4, :4], whole[:4, :4].T, np.asfortranarray(whole[:4, :4]), whole[::3, ::2],
        whole[3::-1, :4], np.broadcast_to(whole[0, :4], (4, 4)), np.broadcast_to(whole[:4, :1], (4, 4)),
    ]  # fmt: skip
    f = lambda x: (np.sin(x) @ x, np.cumsum(x, axis=1), x.T + 1)
    in_both_orders([(f, (x,)) for x in arrays], lambda: wl.jit(f))
    in_both_orders([(lambda y, x=x: (np.sin(x) * y, x @ y), (whole[:4, :4].copy(),)) for x in arrays])
    for x in arrays:
        x.flags.writeable = False
    in_both_orders([(lambda y, x=x: (np.sin(x) * y, x @ y), (np.array(x),)) for x in arrays])


ODD = [
    0.0, -0.0, 1, True, 1.0, 0j, complex(0.0, -0.0), complex(-0.0, 0.0), np.float32(0), np.float32(-0.0), np.float64(0),
    np.float64(-0.0), np.nan, np.inf, -np.inf, np.complex64(0), np.complex64(complex(0.0, -0.0)), np.int8(1),
]  # fmt: skip
HOLDERS = {
    "plain": lambda v: v, "nested": lambda v: [(v, 2)], "frozenset": lambda v: frozenset([v]), "set": lambda v: {v},
    "dict": lambda v: {"value": v}, "slice": lambda v: slice(v, 2), "record": lambda v: Record(v),
    "frozen": lambda v: Frozen(v), "namespace": lambda v: types.SimpleNamespace(value=v),
}  # fmt: skip


@dataclasses.dataclass
class Record:
    value: object


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: object


def told_apart(v, x):
    """Depends on the type of a number and on the signs of its parts."""
    while isinstance(v, (tuple, list, set, frozenset, dict, slice)):
        v = v.start if isinstance(v, slice) else next(iter(v.values() if isinstance(v, dict) else v))
    v = getattr(v, "value", v)
    kind = [bool, int, float, complex].index(type(v)) if not isinstance(v, np.generic) else 4 + v.dtype.num
    return x * 0 + 100 * kind + 10 * np.copysign(1.0, np.real(v)) + np.copysign(1.0, np.imag(v))


@pytest.mark.parametrize("holder", ["plain", "nested", "frozenset", "slice", "frozen"])
def test_static_arguments(holder):
    calls = [(told_apart, (HOLDERS[holder](v), x64)) for v in ODD]
    in_both_orders(calls, lambda: wl.jit(told_apart, static_argnums=0))


@wl.register_mutable
class Model:
    def __init__(self, value):
        self.value, self.weight = value, x64


@pytest.mark.parametrize("holder", HOLDERS)
def test_static_attributes_of_objects(holder):
    f = lambda model: told_apart(model.value, model.weight)
    traced = (np.generic,) if holder in ("plain", "nested", "dict") else ()  # where they are leaves
    models = [Model(HOLDERS[holder](v)) for v in ODD if not isinstance(v, traced)]
    in_both_orders([(f, (model,)) for model in models], lambda: wl.jit(f))


@pytest.mark.parametrize("record", [Record, lambda value: types.SimpleNamespace(value=value)])
def test_records_that_are_changed_in_place(record):
    model, f = Model(record([1.0])), wl.jit(lambda model: model.weight * model.value.value[0])
    for value in (1.0, 2.0, 2.0, 1.0):
        model.value.value[0] = value
        assert_same(f(model), x64 * value, "an item of the record")
    for value in (3.0, 4.0, 4.0):
        model.value.value = [value]
        assert_same(f(model), x64 * value, "the record")
    for array in (x64, 2 * x64):
        model.value.value = [array]
        for _ in range(2):
            assert_same(f(model), x64 * array, "an array in the record")


def test_keys_of_dicts():
    f = lambda d: [told_apart(key, value) for key, value in d.items()]
    in_both_orders([(f, ({key: x64},)) for key in (1, True, 1.0, 0.0, -0.0)], lambda: wl.jit(f))


def horner(values):
    """Depends on the order of the values."""
    return functools.reduce(lambda total, value: 2 * total + value, values, 0.0)


def test_orders_of_keys_and_attributes():
    """Equal dicts are one structure, whatever their order; a function that goes through them sees it."""
    dicts = [{"a": 2.0, "b": 1.0}, {"b": 1.0, "a": 2.0}]
    f = lambda d: (horner(d.values()), {key: value + 1 for key, value in d.items()})
    in_both_orders([(f, (d,)) for d in dicts], lambda: wl.jit(f))
    nested = lambda tree: horner(tree[0]["d"].values())
    in_both_orders([(nested, ([{"d": d}, x64],)) for d in dicts], lambda: wl.jit(nested))

    models = [Model(1), Model(1)]
    models[0].bias, models[1].bias = 2 * x64, 2 * x64
    models[1].weight = vars(models[1]).pop("weight")
    g = lambda model: (horner(v for v in vars(model).values() if not isinstance(v, int)), len(vars(model)))
    in_both_orders([(g, (model,)) for model in models], lambda: wl.jit(g))


def test_orders_of_keywords():
    f = lambda **kwargs: horner(kwargs.values())
    for first, second in (("ab", "ba"), ("ba", "ab")):
        jitted = wl.jit(f)
        for order in (first, second) * 2:
            kwargs = {key: float(ord(key)) for key in order}
            assert jitted(**kwargs) == f(**kwargs)
    named = wl.jit(lambda a, b: a - b)  # can't tell
    assert named(a=3.0, b=1.0) == named(b=1.0, a=3.0) == 2.0 and "1 signature" in repr(named)


def test_arrays_without_axes_and_numbers():
    """`y += 1` writes to an array that others hold, and replaces a number."""

    def f(x):
        y = z = x.copy()
        y += 1.0
        return y * z

    values = [np.array(1.5), np.float64(1.5), np.array(2.5), np.float64(2.5)]
    in_both_orders([(f, (x,)) for x in values], lambda: wl.jit(f))
    in_both_orders([(lambda d: f(d["x"]), ({"x": x, "y": x64},)) for x in values], lambda: wl.jit(lambda d: f(d["x"])))
    free = wl.jit(lambda x: 2 * x)  # nothing is written: one is compiled as the other
    assert [free(x) for x in values] == [3.0, 3.0, 5.0, 5.0] and "1 signature" in repr(free)


def test_captured_numbers():
    f = lambda x, v: (x * v, np.copysign(x, np.real(v)), x + v)
    in_both_orders([(lambda x, v=v: f(x, v), (x32,)) for v in ODD])


def test_parameters():
    variants = [
        *(lambda x, a=a, k=k: np.sum(x, axis=a, keepdims=k) for a in (0, 1, None) for k in (False, True)),
        *(lambda x, a=a, d=d: np.std(x, axis=a, ddof=d) for a in (0, 1) for d in (0, 1)),
        *(lambda x, m=m: np.pad(x, 1, mode=m) for m in ("edge", "reflect", "constant")),
        *(lambda x, v=v: np.pad(x, 1, constant_values=v) for v in (0.0, -0.0, 1)),
        *(lambda x, a=a: np.sort(x, axis=a) for a in (0, 1)),
        *(lambda x, a=a: np.argsort(x, axis=a) for a in (0, 1)),
        *(lambda x, a=a: np.flip(np.cumsum(np.flip(x, a), axis=a), a) for a in (0, 1)),
        *(lambda x, d=d: x.astype(d) for d in (np.float32, np.int32, np.int64)),
        *(lambda x, s=s: x[:, s] for s in (slice(0, 2), slice(2, None, -1), 1)),
        *(lambda x, r=r: wl.scan(lambda c, y: (c + y, c * y), x[0], x, reverse=r) for r in (False, True)),
        *(lambda x, n=n: wl.fori_loop(0, n, lambda i, c: np.cos(c), x) for n in (3, 4)),
    ]  # fmt: skip
    in_both_orders([(f, (square,)) for f in variants])
    assert_same(wl.jit(lambda x: [f(x) for f in variants])(square), [f(square) for f in variants], "shared equations")


def test_a_float_of_a_slice_is_refused_after_an_int():
    assert wl.jit(lambda x: x[1:3])(x64).shape == (2,)
    with pytest.raises(TypeError, match="integer"):
        wl.jit(lambda x: x[1.0:3])(x64)


def test_products():
    def inputs(m, k, n, dtype):
        rng = np.random.default_rng(0)
        return rng.normal(size=(m, k)).astype(dtype), rng.normal(size=(n, k)).astype(dtype)

    sizes = [(3, 4, 5), (33, 40, 5), (32, 40, 5), (130, 70, 90)]
    f = lambda x, y: (np.tanh(x @ y.T) + 1, x[::-1] @ y.T, (y @ x.T).T)
    calls = [(f, inputs(*size, dtype)) for size in sizes for dtype in (np.float32, np.float64)]
    for order in (calls, calls[::-1]):
        forget()
        one = wl.jit(f)
        for _, args in order:
            assert_close(one(*args), f(*args), "products", 2e-5 if args[0].dtype == np.float32 else 1e-12)


def test_random_numbers():
    key = wl.random.key(1)
    variants = [
        lambda k: wl.random.uniform(k, (9,)),
        lambda k: wl.random.uniform(k, (9,), dtype=np.float32),
        lambda k: wl.random.uniform(k, (1,)),
        lambda k: wl.random.bits(k, (9,), dtype=np.uint8),
        lambda k: wl.random.bits(k, (9,), dtype=np.uint64),
        lambda k: wl.random.bits(k, (9,), dtype=np.uint32),
    ]  # fmt: skip
    in_both_orders([(f, (key,)) for f in variants])


def test_donated_and_written():
    f = lambda x: (np.cos(x), x * 2)
    for order in (({}, {"donate": 0}), ({"donate": 0}, {})):
        forget()
        given = [x64.copy() for _ in order]
        results = [wl.jit(f, **options)(x) for options, x in zip(order, given, strict=True)]
        for options, x, result in zip(order, given, results, strict=True):
            assert_same(result, f(x64), str(options))
            assert (result[0] is x) == bool(options) and (bool(options) or np.array_equal(x, x64))

    def reads(model):
        return model.weight * 2

    def writes(model):
        model.weight = model.weight + 1
        return model.weight * 2

    for order in ((reads, writes), (writes, reads)):
        forget()
        for g in order:
            model = Model("static")
            model.weight = x64.copy()
            np.testing.assert_array_equal(wl.jit(g)(model), (x64 + (g is writes)) * 2)
            np.testing.assert_array_equal(model.weight, x64 + (g is writes))


def test_numbers_of_threads():
    x = np.linspace(0.0, 1.0, 200_000)
    before = pool.size()
    try:
        for order in ((1, 2, 3), (3, 2, 1)):
            forget()
            results = []
            for threads in order:
                pool.set_size(threads)
                results.append(wl.jit(lambda x: (np.sum(np.exp(x)), np.sin(x)[::1000]))(x))
            for other in results[1:]:
                assert_same(other, results[0], "threads")
    finally:
        pool.set_size(before)


# The text for every operator -----------------------------------------------------------------------------------------


class Nowhere:
    """Machine code that nobody runs."""

    def address(self, symbol):
        return 0


def text_of(f, args):
    """What LLVM would get, and what NumPy evaluates."""
    compiled = stages.compile_program(wl.trace(f)(*args))
    return compiled.ir, compiled.fallbacks


def assert_texts_do_not_depend_on_order(chosen: list, monkeypatch):
    monkeypatch.setattr(build, "_library", lambda text, module: Nowhere())
    calls = [(s.function, s.args()) for s in chosen]
    with np.errstate(all="ignore"):
        forget()
        first = [text_of(*call) for call in calls]
        forget()
        second = [text_of(*call) for call in reversed(calls)][::-1]
    for s, one, other in zip(chosen, first, second, strict=True):
        assert one == other, f"{s}: what is compiled depends on what was compiled before"


op_table.load()
NEEDS_VALUES = ("nonzero", "argwhere", "unique", "trim_zeros")  # results whose shape depends on values
ROWS = [row for row in (*op_table.TABLE, *op_table.NUMPY) if not any(name in row.name for name in NEEDS_VALUES)]
MIXED = [row for row in op_table.TABLE if len(row.operands) == 2 and registry[row.name].elementwise]


def with_a_number(row) -> list:
    """The last operand a Python number."""
    case = Case((*((4,) for _ in row.operands[1:]), None))
    return [Sample(row, case, dtype) for dtype in ("float32", "float64", "int32") if dtype[0] in row.dtypes]


@pytest.mark.parametrize("row", MIXED[::3], ids=str)
def test_texts_of_mixed_operands(row, monkeypatch):
    plain = [Sample(row, Case(((4,), (4,))), dtype) for dtype in row.dtype_names()]
    assert_texts_do_not_depend_on_order([s for s in (*plain, *with_a_number(row)) if _records(s)], monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_texts(row, monkeypatch):
    chosen = [*samples(row, layouts=("contiguous",))]
    if row in MIXED:
        chosen += [s for s in (*with_a_number(row), *mixed_samples(row)) if _records(s)]
    assert_texts_do_not_depend_on_order(chosen, monkeypatch)


def _records(s) -> bool:
    """Is it defined for these dtypes?"""
    try:
        with np.errstate(all="ignore"):
            wl.trace(s.function)(*s.args())
    except (TypeError, ValueError):
        return False
    return True
