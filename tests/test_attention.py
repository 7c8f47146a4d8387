"""`wl.attention`: against the plain formula and closed forms, eager and compiled, with its derivatives."""

import ctypes
import mmap

import numpy as np
import pytest

import wonderland as wl
from wonderland.compile import attention_code, attention_tiles, build, pool
from wonderland.compile.gemm_tile import Tile
from wonderland.testing import check_grads


def plain(q, k, v, mask=None, bias=None, causal=False, scale=None, window=None, align="end", by_distance=None):
    """The formula as it is written down, on arrays or traced arrays; the slow obvious version."""
    *_, queries, width = q.shape
    keys = k.shape[-2]
    group = q.shape[-3] // k.shape[-3]
    k, v = (np.repeat(x, group, axis=-3) for x in (k, v))
    s = q @ np.swapaxes(k, -1, -2) * (1 / np.sqrt(width) if scale is None else scale)
    if bias is not None:
        s = s + bias
    if by_distance is not None:
        s = s + by_distance[..., np.arange(keys) - np.arange(queries)[:, None] + queries - 1]
    place = np.arange(keys) - np.arange(queries)[:, None] - (keys - queries if align == "end" else 0)
    seen = np.broadcast_to(place <= 0 if causal else True, s.shape)
    if window is not None:
        left, right = window if isinstance(window, tuple) else (window - 1, 0)
        seen = seen & (place >= (-keys - queries if left is None else -left))
        seen = seen & (place <= (keys + queries if right is None else right))
    if mask is not None and np.result_type(mask).kind == "b":
        seen = seen & mask
    elif mask is not None:
        s = s + mask
    top = np.max(np.where(seen, s, -1e30), axis=-1, keepdims=True)
    e = np.where(seen, np.exp(np.where(seen, s - top, 0.0)), 0.0)
    total = np.sum(e, axis=-1, keepdims=True)
    return e / np.where(total == 0, 1.0, total) @ v


# queries, keys and values; options
CASES = {
    "plain": ((2, 3, 9, 4), (2, 3, 7, 4), (2, 3, 7, 6), {}),
    "no batch, one head": ((1, 5, 3), (1, 5, 3), (1, 5, 3), {"causal": True}),
    "more leading axes": ((2, 1, 2, 6, 3), (2, 1, 2, 6, 3), (2, 1, 2, 6, 3), {"causal": True}),
    "groups": ((1, 6, 20, 5), (1, 2, 20, 5), (1, 2, 20, 17), {"causal": True}),
    "all share one": ((2, 4, 70, 8), (2, 1, 70, 8), (2, 1, 70, 8), {}),
    "one query": ((2, 4, 1, 8), (2, 2, 33, 8), (2, 2, 33, 8), {"causal": True}),
    "one key": ((1, 2, 20, 4), (1, 2, 1, 4), (1, 2, 1, 4), {}),
    "width 1": ((1, 1, 19, 1), (1, 1, 21, 1), (1, 1, 21, 1), {}),
    "more keys": ((1, 2, 40, 16), (1, 2, 100, 16), (1, 2, 100, 16), {"causal": True}),
    "more keys, from the start": ((1, 2, 40, 16), (1, 2, 100, 16), (1, 2, 100, 16), {"causal": True, "align": "start"}),
    "more queries": ((1, 1, 130, 8), (1, 1, 70, 8), (1, 1, 70, 8), {"causal": True}),
    "blocks": ((1, 1, 210, 33), (1, 1, 210, 33), (1, 1, 210, 20), {"causal": True}),
    "segments": ((1, 1, 70, 6), (1, 1, 530, 6), (1, 1, 530, 6), {"scale": 0.3}),
    "window": ((1, 2, 150, 8), (1, 2, 150, 8), (1, 2, 150, 8), {"window": 7}),
    "two-sided window": ((1, 1, 150, 8), (1, 1, 230, 8), (1, 1, 230, 8), {"window": (40, 3), "align": "start"}),
    "open window": ((1, 1, 90, 8), (1, 1, 90, 8), (1, 1, 90, 8), {"window": (None, 2)}),
    "window beyond all": ((1, 1, 20, 4), (1, 1, 20, 4), (1, 1, 20, 4), {"window": (1000, 1000)}),
}
TOLERANCE = {"float32": 3e-6, "float64": 1e-14}


def operands(*shapes, dtype="float64"):
    rng = np.random.default_rng(len(shapes[0]))
    return tuple(rng.standard_normal(s).astype(dtype) for s in shapes)


def value_and_pull(f):
    """The result, and the cotangents for one that isn't simple."""

    def g(*args):
        out, pull = wl.vjp(f, *args)
        return (out, *pull(np.cos(np.arange(out.size)).reshape(out.shape).astype(out.dtype)))

    return g


def assert_near(found, expected, dtype):
    for x, y in zip(found, expected, strict=True):
        assert x.shape == y.shape and x.dtype == dtype
        assert np.max(np.abs(x - y), initial=0) <= TOLERANCE[dtype] * max(1.0, np.max(np.abs(y), initial=0))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", CASES)
def test_is_the_plain_formula(name, dtype):
    q, k, v, options = CASES[name]
    args = operands(q, k, v, dtype=dtype)
    expected = value_and_pull(lambda *a: plain(*a, **options))(*(np.float64(a) for a in args))
    g = value_and_pull(lambda *a: wl.attention(*a, **options))
    assert_near(g(*args), expected, dtype)
    compiled = wl.jit(g)
    assert_near(compiled(*args), expected, dtype)
    assert not compiled.inspect(*args).fallbacks


MASKS = {
    "bool": lambda rng: {"mask": rng.random((20, 30)) < 0.5},
    "padding": lambda rng: {"mask": np.arange(30) < rng.integers(1, 30, (2, 1, 1, 1))},
    "added": lambda rng: {"mask": rng.standard_normal((4, 1, 30))},
    "bias": lambda rng: {"bias": rng.standard_normal((2, 1, 20, 30)), "causal": True},
    "bias of keys": lambda rng: {"bias": rng.standard_normal(30)},
    "both": lambda rng: {"mask": rng.random((4, 20, 1)) < 0.5, "bias": rng.standard_normal((2, 4, 20, 30))},
    "both added": lambda rng: {"mask": rng.standard_normal((20, 30)), "bias": rng.standard_normal((4, 1, 1))},
    "by distance": lambda rng: {"by_distance": rng.standard_normal((4, 49)), "causal": True},
    "by distance, of all heads": lambda rng: {"by_distance": rng.standard_normal(49), "window": (7, 3)},
    "all": lambda rng: {"by_distance": rng.standard_normal((2, 1, 49)), "mask": rng.random((20, 30)) < 0.5,
                        "bias": rng.standard_normal((4, 1, 30))},
    "hidden by -inf": lambda rng: {"mask": np.where(rng.random((20, 30)) < 0.5, 0.0, -np.inf)},
}


@pytest.mark.parametrize("name", MASKS)
def test_masks(name, rng):
    args = operands((2, 4, 20, 5), (2, 2, 30, 5), (2, 2, 30, 7))
    masks = MASKS[name](rng)
    rest = {key: masks.pop(key) for key in [*masks] if getattr(masks[key], "dtype", None) != np.float64}
    names = [*masks]

    def f(attention):
        return value_and_pull(lambda q, k, v, *m: attention(q, k, v, **dict(zip(names, m, strict=True)), **rest))

    expected = f(plain)(*args, *masks.values())
    assert_near(f(wl.attention)(*args, *masks.values()), expected, "float64")
    assert_near(wl.jit(f(wl.attention))(*args, *masks.values()), expected, "float64")


@pytest.mark.parametrize("jit", [lambda f: f, wl.jit], ids=["eager", "compiled"])
def test_what_sees_nothing_is_zero_and_has_no_gradient(jit):
    args = operands((1, 2, 10, 4), (1, 2, 12, 4), (1, 2, 12, 4))
    mask = np.ones((10, 12), bool)
    mask[[2, 9]] = False
    for options in ({"mask": mask}, {"mask": np.where(mask, 0.0, -np.inf)}):
        out, dq, dk, dv = jit(value_and_pull(lambda *a, o=options: wl.attention(*a, **o)))(*args)
        assert not np.any(out[0, :, [2, 9]]) and not np.any(dq[0, :, [2, 9]])
        assert all(np.all(np.isfinite(x)) for x in (out, dq, dk, dv)) and np.all(np.any(out[0, :, :2], axis=-1))
    out, *gradients = jit(value_and_pull(lambda *a: wl.attention(*a, mask=np.zeros((1, 1), bool))))(*args)
    assert not np.any(out) and not any(map(np.any, gradients))
    hidden = jit(lambda *a: wl.attention(*a, causal=True))(*operands((1, 1, 9, 4), (1, 1, 6, 4), (1, 1, 6, 4)))
    assert not np.any(hidden[0, 0, :3]) and np.all(hidden[0, 0, 3:])


@pytest.mark.parametrize("jit", [lambda f: f, wl.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("anything", [np.nan, np.inf, -np.inf])
def test_what_is_hidden_may_be_anything(anything, jit, rng):
    """A bias where nothing is seen, in the value, gradients and second derivatives."""
    args, seen = operands((1, 2, 10, 4), (1, 2, 12, 4), (1, 2, 12, 4)), rng.random((10, 12)) < 0.7
    bias = np.where(seen, rng.standard_normal((10, 12)), 0.0)
    for transform in (value_and_pull, lambda f: lambda *a: wl.jvp(value_and_pull(f), a, a)[1]):
        f = jit(transform(lambda q, k, v, b: wl.attention(q, k, v, mask=seen, bias=wl.stop_gradient(b))))
        found, expected = (f(*args, b) for b in (np.where(seen, bias, anything), bias))
        assert_near(found[:4], expected[:4], "float64")


@pytest.mark.parametrize("jit", [lambda f: f, wl.jit], ids=["eager", "compiled"])
def test_large_logits(jit):
    q, k, v = operands((1, 1, 40, 8), (1, 1, 40, 8), (1, 1, 40, 8), dtype="float32")
    out, *gradients = jit(value_and_pull(lambda *a: wl.attention(*a, scale=1e4)))(q, k, v)
    best = np.argmax(q @ np.swapaxes(k, -1, -2), axis=-1)[0, 0]
    assert np.array_equal(out[0, 0], v[0, 0, best]) and all(np.all(np.isfinite(g)) for g in gradients)
    huge = jit(lambda *a: wl.attention(*a, scale=1e37))(q, k, v)  # logits beyond float32: NaN, as the formula
    assert huge.shape == out.shape


@pytest.mark.parametrize("jit", [lambda f: f, wl.jit], ids=["eager", "compiled"])
def test_closed_forms(jit):
    _, k, v = operands((1, 1, 100, 3), (1, 1, 100, 3), (1, 1, 100, 3))
    means = jit(lambda k, v: wl.attention(0 * k, k, v, causal=True))(k, v)
    assert np.allclose(means[0, 0], np.cumsum(v[0, 0], axis=0) / np.arange(1, 101)[:, None], atol=1e-13)
    assert np.allclose(jit(lambda k, v: wl.attention(k, k, v, window=1))(k, v), v, atol=1e-13)
    assert np.allclose(jit(lambda k, v: wl.attention(k, k, 0 * v + 1))(k, v), 1, atol=1e-13)


@pytest.mark.parametrize("jit", [lambda f: f, wl.jit])
def test_the_result_is_the_callers_own(jit):
    q = np.ones((1, 2, 9, 4))
    out = jit(wl.attention)(q, q, q)
    out += 1
    np.testing.assert_allclose(out, 2)


def test_without_elements():
    for shapes in (
        ((0, 2, 5, 3), (0, 2, 5, 3), (0, 2, 5, 3)), ((1, 2, 0, 3), (1, 2, 5, 3), (1, 2, 5, 4)),
        ((1, 2, 6, 3), (1, 2, 0, 3), (1, 2, 0, 4)), ((1, 2, 6, 0), (1, 2, 5, 0), (1, 2, 5, 2)),
    ):  # fmt: skip
        args = operands(*shapes)
        g = value_and_pull(lambda *a: wl.attention(*a, causal=True))
        expected = g(*args)
        assert expected[0].shape == (*shapes[0][:-1], shapes[2][-1]) and np.all(np.isfinite(expected[0]))
        assert_near(wl.jit(g)(*args), expected, "float64")


def test_second_order_and_forward_mode():
    args = operands((4, 6, 3), (2, 5, 3), (2, 5, 2))
    bias = operands((1, 6, 5))[0]
    f = lambda q, k, v, b, d: wl.attention(q, k, v, bias=b, by_distance=d, window=(3, 1))
    check_grads(f, (*args, bias, operands((4, 10))[0]))
    loss = lambda *a: np.sum(np.sin(wl.attention(*a, causal=True)))
    slow = lambda *a: np.sum(np.sin(plain(*a, causal=True)))
    t = tuple(np.cos(a) for a in args)
    for of in (lambda f: lambda *a: wl.jvp(f, a, t)[1], lambda f: lambda *a: wl.jvp(wl.grad(f, (0, 1, 2)), a, t)[1]):
        expected = wl.tree_leaves(of(slow)(*args))
        for found in (of(loss)(*args), wl.jit(of(loss))(*args)):
            assert all(np.allclose(x, y, atol=1e-12) for x, y in zip(wl.tree_leaves(found), expected, strict=True))


def test_vmap():
    q, k, v = operands((3, 2, 9, 4), (3, 2, 9, 4), (3, 2, 9, 4))
    bias, distances = operands((2, 9, 9), (2, 17))
    f = value_and_pull(lambda q, k, v, b, d: wl.attention(q, k, v, bias=b, by_distance=d, causal=True))
    for axes in ((0, 0, 0, None, None), (None, 0, 0, None, None), (0, None, None, None, None)):
        args = [x if axis == 0 else x[0] for x, axis in zip((q, k, v), axes, strict=False)] + [bias, distances]
        each = [f(*(x[i] if axis == 0 else x for x, axis in zip(args, axes, strict=True))) for i in range(3)]
        expected = [np.stack(xs) for xs in zip(*each, strict=True)]
        batched = wl.vmap(f, axes)
        assert_near(batched(*args), expected, "float64")
        assert_near(wl.jit(batched)(*args), expected, "float64")


def test_mixed_arguments():
    q, k, v = operands((1, 1, 6, 4), (1, 1, 6, 4), (1, 1, 6, 4))
    assert wl.attention(q, np.float32(k), v).dtype == np.float64
    assert wl.attention(np.float32(q), np.float32(k), np.float32(v), scale=0.5).dtype == np.float32
    assert wl.attention(*np.ones((3, 1, 5, 2), int)).dtype == np.float64
    assert np.allclose(wl.attention(q, k[0], v[0]), wl.attention(q, k, v))
    for jit in (lambda f: f, wl.jit):  # numbers of Python's decide no dtype
        assert jit(lambda q: wl.attention(q, q, q, mask=-1.0, bias=2))(np.float32(q)).dtype == np.float32
    slope = wl.jit(wl.grad(lambda s: np.sum(np.sin(wl.attention(q, k, v, scale=s)))))(0.5)
    step = (np.sum(np.sin(wl.attention(q, k, v, scale=0.5 + h))) for h in (1e-6, -1e-6))
    assert np.isclose(slope, (next(step) - next(step)) / 2e-6, rtol=1e-6)


def split(features, heads):
    """Queries, keys and values of heads, from a row of features for each place."""
    n, time, width = features.shape
    parts = features.reshape(n, time, 3, heads, width // (3 * heads))
    return [parts[:, :, i].transpose(0, 2, 1, 3) for i in range(3)]


def test_heads_of_a_projection_are_read_where_they_lie():
    def block(features):
        out = wl.attention(*split(features, 2), causal=True)
        return np.tanh(out.transpose(0, 2, 1, 3).reshape(*features.shape[:2], -1))

    (features,) = operands((2, 50, 3 * 2 * 8))
    q, k, v = (np.array(x) for x in split(features, 2))
    expected = np.tanh(plain(q, k, v, causal=True).transpose(0, 2, 1, 3).reshape(2, 50, -1))
    compiled = wl.jit(block)
    assert np.allclose(compiled(features), expected, atol=1e-13)
    assert len(compiled.inspect(features).plan.steps) == 2  # attention, and what follows
    loss = lambda x: np.sum(block(x) ** 2)
    assert np.allclose(wl.jit(wl.grad(loss))(features), wl.grad(loss)(features), atol=1e-12)
    backwards = tuple(x[:, :, ::-1, ::-1] for x in (q, k, v))  # no contiguous width
    assert np.allclose(wl.jit(wl.attention)(*backwards), plain(*backwards), atol=1e-13)


def test_other_sizes_find_the_machine_code():
    step = wl.jit(lambda q, k, v, ct: wl.vjp(lambda *a: wl.attention(*a, causal=True), q, k, v)[1](ct))
    step.inspect(*operands(*[(4, 2, 64, 32)] * 4))
    for shape in ((3, 2, 64, 32), (4, 2, 50, 32), (5, 4, 100, 24)):
        assert step.inspect(*operands(*[shape] * 4)).code_from == "this process"


def test_memory_is_linear():
    step = wl.jit(value_and_pull(lambda q, k, v, d: wl.attention(q, k, v, causal=True, by_distance=d)))
    zeros = lambda *shape: np.zeros(shape, np.float32)
    of = lambda n: step.inspect(*[zeros(1, 16, n, 16)] * 3, zeros(16, 2 * n - 1)).arena_bytes
    assert of(8192) <= 2.05 * of(4096) and of(8192) < 8192 * 8192


@pytest.mark.parametrize("shape", [(1, 3, 300, 16), (1, 1, 1100, 8)])
def test_the_same_for_any_number_of_threads(shape):
    step = wl.jit(value_and_pull(lambda *a: wl.attention(*a, causal=True)))
    args, before, found = operands(*[shape] * 3, dtype="float32"), pool.size(), []
    try:
        for threads in (3, 2, 1):
            pool.set_size(threads)
            found.append(step(*args))
    finally:
        pool.set_size(before)
    for other in found[1:]:
        assert all(np.array_equal(x, y) for x, y in zip(found[0], other, strict=True))


@pytest.mark.parametrize("name", ["groups", "blocks", "two-sided window"])
def test_registers_of_other_machines(name, monkeypatch):
    """Vectors of 64 bytes and 32 registers, on whatever there is."""
    monkeypatch.setattr(attention_tiles, "tile", lambda dtype: Tile(dtype, 16 if dtype == "f32" else 8, 8, 3))
    q, k, v, options = CASES[name]
    args = operands(q, k, v, (q[-3], q[-2] + k[-2] - 1))
    pulled = lambda attention: value_and_pull(lambda q, k, v, d: attention(q, k, v, by_distance=d, **options))
    try:
        attention_code.external.cache_clear()
        build._libraries.clear()
        found = wl.jit(pulled(wl.attention))(*args)
    finally:
        attention_code.external.cache_clear()
        build._libraries.clear()
    assert_near(found, pulled(plain)(*args), "float64")


@pytest.mark.skipif(not hasattr(mmap, "PROT_READ"), reason="needs memory protection")
@pytest.mark.parametrize(
    "sizes", [((1, 7, 3), (2, 33, 17), (3, 8, 16), (4, 71, 45)), ((5, 1, 1), (7, 9, 3), (33, 50, 17), (70, 101, 20))],
    ids=["few queries", "many"],
)  # fmt: skip
def test_nothing_outside_the_operands_is_touched(sizes):
    """Operands that end, or start, at a page that may not be read: a step outside ends the process."""
    libc, page, fences = ctypes.CDLL(None), mmap.PAGESIZE, []

    def fenced(values, at_end):
        pages = -(-values.nbytes // page)
        space = mmap.mmap(-1, (pages + 2) * page)
        base = ctypes.addressof(ctypes.c_char.from_buffer(space))
        for fence in (base, base + (pages + 1) * page):
            assert libc.mprotect(ctypes.c_void_p(fence), page, 0) == 0
            fences.append((fence, space))
        start = page + (pages * page - values.nbytes if at_end else 0)
        array = np.frombuffer(space, values.dtype, values.size, start).reshape(values.shape)
        array[...] = values
        return array

    step = wl.jit(
        value_and_pull(lambda q, k, v, b, d, m: wl.attention(q, k, v, m, b, by_distance=d, window=(30, 40)))
    )
    try:
        for queries, keys, width in sizes:
            shapes = [*((1, 2, n, width) for n in (queries, keys, keys)), (queries, keys), (2, queries + keys - 1)]
            args = operands(*shapes, dtype="float32")
            args = (*args, args[3] > -1)
            expected = step(*args)
            for at_end in (True, False):
                found = step(*(fenced(x, at_end) for x in args))
                assert all(np.array_equal(x, y) for x, y in zip(found, expected, strict=True))
    finally:
        for fence, _ in fences:
            libc.mprotect(ctypes.c_void_p(fence), page, mmap.PROT_READ | mmap.PROT_WRITE)


def test_what_is_refused():
    q, k, v = operands((2, 5, 4), (2, 6, 4), (2, 6, 3))
    for args, options, words in (
        ((q[0], k, v), {}, r"write q\[None\]"), ((q[..., :3], k, v), {}, "same width"),
        ((q, k[:, :5], v), {}, "swapaxes"), ((np.ones((3, 5, 4)), k, v), {}, "multiple"),
        ((q, k, v), {"mask": np.ones((3, 5, 6), bool)}, "broadcast"),
        ((q, k, v), {"mask": np.ones((5, 5))}, "broadcast"),
        ((q, k, v), {"mask": np.ones((1, 10))}, "broadcast"), ((q, k, v), {"bias": np.ones((2, 1, 10))}, "broadcast"),
        ((q, k, v), {"by_distance": np.ones((2, 11))}, r"here \(..., 2, 10\), got \(2, 11\)"),
        ((q, k, v), {"by_distance": np.ones((3, 10))}, r"got \(3, 10\)"),
        ((q[0], k, v), {"by_distance": np.ones(10)}, r"write q\[None\]"),
        ((q, k, v), {"align": "left"}, '"end" or "start"'), ((q, k, v), {"window": 0}, "positive"),
        ((q, k, v), {"window": (-1, 0)}, "positive"),
        ((q, k, v), {"window": 1.5}, "positive"), ((q, k, v), {"window": (1, 2, 3)}, "positive"),
        ((q, k, v), {"mask": np.ones((1, 9, 1), bool)}, "a mask is broadcast to"),
        ((q, k, v), {"scale": np.ones((3, 1, 1, 1))}, "a scale is"),
        ((q[:, :1], k, v), {"scale": np.ones((3, 1))}, "a scale is"),
        ((np.ones((3, *q.shape)), k[None, None], np.ones((2, *v.shape))), {}, r"before the heads .* q \(3, 2, 5, 4\)"),
        ((q[None], k, v), {"mask": np.ones((3, 1, 1, 1), bool), "bias": np.ones((2, 1, 1, 1))}, "before the heads"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            wl.attention(*args, **options)
        with pytest.raises(ValueError, match=words):
            wl.jit(lambda *a, o=options: wl.attention(*a, **o))(*args)
    with pytest.raises(TypeError, match="real numbers"):
        wl.attention(q + 0j, k, v)
    with pytest.raises(TypeError, match="a scale is a real number"):
        wl.attention(q, k, v, scale=1j)
    with pytest.raises(TypeError, match=r"write mask\.astype"):  # 0 and 1 would be added
        wl.attention(q, k, v, mask=np.ones((1, 1), int))
    with pytest.raises(TypeError, match="got bools"):
        wl.attention(q, k, v, bias=np.ones((1, 1), bool))
