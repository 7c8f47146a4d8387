"""Kernels against NumPy: operators x dtypes x shapes, and each mode of the loop nest."""

import numpy as np
import pytest
from differential import check, compare

import wonderland as wl
from wonderland.core.primitive import registry
from wonderland.ops import dot as dot_ops
from wonderland.ops import elementwise as ew
from wonderland.ops import index as index_ops
from wonderland.ops import reduce as reduce_ops
from wonderland.ops import shape as shape_ops

pytestmark = pytest.mark.optimised

SHAPES = [(), (0,), (1,), (5,), (3, 0), (1, 4), (4, 1), (7, 33), (2, 3, 4), (1, 1), (600, 3), (3, 600)]
DTYPES = ["?", "i1", "i4", "i8", "u1", "u8", "f4", "f8"]


def sample(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return np.asarray(rng.normal(size=shape)).astype(dtype)
    if dtype.kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    return np.asarray(rng.integers(0, 7, shape)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_binary_operators_have_numpys_types_and_values(dtype):
    ops = ["add", "mul", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge"]
    ops += [] if dtype == "?" else ["sub", "div"]
    ops += ["bitwise_and", "bitwise_or", "bitwise_xor"] if dtype[0] != "f" else []
    functions = [registry[name] for name in ops]
    x, y = sample((4, 9), dtype), sample((9,), dtype, 1)
    compiled = check(lambda x, y: [f(x, y) for f in functions], x, y)
    assert not compiled.fallbacks


@pytest.mark.parametrize("left", DTYPES)
def test_promotion(left):
    others = [sample((3,), d, i) for i, d in enumerate(DTYPES)]
    check(lambda x, *ys: [ew.add(x, y) for y in ys] + [ew.mul(x, 2), ew.mul(x, 2.0)], sample((3,), left), *others)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_elementwise_over_shapes(shape, dtype):
    def f(x):
        return ew.add(ew.mul(ew.tanh(x), ew.exp(ew.neg(ew.mul(x, x)))), ew.sqrt(ew.add(ew.abs(x), 1.0)))

    assert not check(f, sample(shape, dtype)).fallbacks


def test_special_values():
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 5e-324, 1e308], "f8")
    y = x[::-1].copy()

    def f(x, y):
        return [
            ew.maximum(x, y), ew.minimum(x, y), ew.sign(x), ew.abs(x), ew.eq(x, y), ew.ne(x, x), ew.lt(x, y),
            ew.sqrt(x), ew.exp(x), ew.div(x, y), ew.where(ew.gt(x, 0), x, y), ew.neg(x), ew.masked_mul(x, y),
            reduce_ops.max(x, axes=(0,)), shape_ops.convert(x, dtype=np.dtype(bool)),
        ]  # fmt: skip

    check(f, x, y)
    signs = check(lambda x: ew.neg(ew.neg(x)), x)(x)[0]
    np.testing.assert_array_equal(np.signbit(signs), np.signbit(x))


def test_conversions_out_of_range_are_defined():
    x = np.array([np.nan, np.inf, -np.inf, 3.7, -3.7, 300.0, -1e30, 2.0**40], "f8")
    names = ["i4", "i8", "u1", "i1", "?", "f4"]
    with np.errstate(all="ignore"):
        check(lambda x: [shape_ops.convert(x, dtype=np.dtype(n)) for n in names], x)
    wrap = np.array([-1, 300, 2**40 + 7], "i8")
    check(lambda x: [shape_ops.convert(x, dtype=np.dtype(n)) for n in [*names, "u4", "u8", "f8"]], wrap)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        *((s, "f8") for s in [(4, 6), (33, 20), (20, 600), (600, 20), (2, 3, 40), (5, 1, 7), (1, 1, 3)]),
        *((s, dtype) for s in [(20, 600), (2, 3, 40)] for dtype in ("f4", "i4", "?")),
    ],
)
def test_reductions_over_all_axes(shape, dtype):
    x = sample(shape, dtype)
    rank = len(shape)
    subsets = [tuple(i for i in range(rank) if mask >> i & 1) for mask in range(1 << rank)]
    check(lambda x: [op(x, axes=a) for a in subsets for op in (reduce_ops.sum, reduce_ops.max)], x)
    moved = np.ascontiguousarray(np.transpose(x))
    order = tuple(range(rank))[::-1]
    check(lambda x: [reduce_ops.sum(shape_ops.transpose(x, permutation=order), axes=a) for a in subsets], moved)


def test_empty_reductions():
    check(lambda x: [reduce_ops.sum(x, axes=(0,)), reduce_ops.sum(x, axes=(0, 1))], sample((0, 3), "f8"))
    check(lambda x: reduce_ops.sum(x, axes=(1,)), sample((3, 0), "i4"))


@pytest.mark.parametrize(
    "shape, axes",
    [((300_000,), (0,)), ((70_000, 3), (0,)), ((3, 70_000), (1,)), ((400, 400), (0, 1)), ((9000, 20), (0,))],
)
def test_long_reductions_are_cut_into_pieces(shape, axes):
    x = sample(shape, "f8")
    compiled = check(lambda x: ew.sqrt(reduce_ops.sum(ew.mul(x, x), axes=axes)), x)
    assert len(compiled.kernels) == 2
    check(lambda x: (ew.mul(x, 2.0), reduce_ops.max(ew.mul(x, 2.0), axes=axes)), x)


def test_long_float32_sums_are_as_accurate_as_numpys():
    x = np.random.default_rng(0).uniform(0, 1, 1 << 20).astype("f4")
    compiled = check(lambda x: reduce_ops.sum(x, axes=(0,)), x)
    exact = x.astype("f8").sum()
    assert abs(float(compiled(x)[0]) - exact) < 4e-7 * exact


def softmax(x):
    axes = (len(x.shape) - 1,)
    e = ew.exp(ew.sub(x, reduce_ops.spread(reduce_ops.max(x, axes=axes), x.shape, axes)))
    return ew.div(e, reduce_ops.spread(reduce_ops.sum(e, axes=axes), x.shape, axes))


def normalise(x, axes):
    count = float(np.prod([x.shape[a] for a in axes]))

    def mean(v):
        return reduce_ops.spread(ew.div(reduce_ops.sum(v, axes=axes), count), x.shape, axes)

    centred = ew.sub(x, mean(x))
    return ew.div(centred, ew.sqrt(ew.add(mean(ew.mul(centred, centred)), 1e-5)))


@pytest.mark.parametrize("shape", [(1, 5), (20, 10), (7, 300), (3, 5, 33), (2, 9000), (4, 1)])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_softmax_and_layer_norm_are_one_kernel(shape, dtype):
    x = sample(shape, dtype)
    assert len(check(softmax, x).kernels) == 1
    assert len(check(lambda x: normalise(x, (len(shape) - 1,)), x).kernels) <= 1 + (shape[-1] == 1)


@pytest.mark.parametrize("shape", [(20, 10), (9, 300), (50, 1500), (3, 5, 33)])
def test_batch_norm_is_one_kernel(shape):
    x = sample(shape, "f8")
    assert len(check(lambda x: normalise(x, (0,)), x).kernels) == 1


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        *((s, "f8") for s in [(4096, 20), (300, 129), (40, 33, 50), (33, 1000), (9, 16384), (20, 10)]),
        *((s, "f4") for s in [(300, 129), (9, 16384)]),
    ],
)
def test_rows_are_summed_up_while_they_are_swept(shape, dtype):
    rows = tuple(range(len(shape) - 1))

    def f(x, y):
        first = reduce_ops.sum(y, axes=rows)  # before anything reads y by rows
        p = softmax(x)
        return p, first, reduce_ops.sum(ew.mul(p, y), axes=rows), reduce_ops.max(p, axes=rows)

    compiled = check(f, sample(shape, dtype), sample(shape, dtype, 1))
    assert len(compiled.kernels) == 2

    def turned(x, y):
        return f(*(shape_ops.transpose(v, permutation=(*range(1, len(shape)), 0)) for v in (x, y)))

    check(turned, *(np.ascontiguousarray(np.moveaxis(sample(shape, dtype, i), -1, 0)) for i in (2, 3)))


PRODUCTS = [
    ((3, 4), (4, 5), ((1,), (0,)), ((), ())), ((3, 4), (5, 4), ((1,), (1,)), ((), ())),
    ((4, 3), (4, 5), ((0,), (0,)), ((), ())), ((40, 50), (50, 60), ((1,), (0,)), ((), ())),
    ((40, 50), (60, 50), ((1,), (1,)), ((), ())), ((50, 40), (50, 60), ((0,), (0,)), ((), ())),
    ((7,), (7,), ((0,), (0,)), ((), ())), ((5000,), (5000,), ((0,), (0,)), ((), ())),
    ((100, 200), (200,), ((1,), (0,)), ((), ())), ((100,), (100, 200), ((0,), (0,)), ((), ())),
    ((3,), (4,), ((), ()), ((), ())), ((3, 4, 5), (3, 5, 6), ((2,), (1,)), ((0,), (0,))),
    ((3, 40, 50), (3, 50, 60), ((2,), (1,)), ((0,), (0,))),
    ((2, 3, 40, 30), (2, 3, 50, 30), ((3,), (3,)), ((0, 1), (0, 1))),
    ((40, 3, 30), (3, 30, 50), ((2,), (1,)), ((1,), (0,))), ((6, 7, 8), (8, 7, 9), ((1, 2), (1, 0)), ((), ())),
    ((9, 40, 30), (9, 30, 50), ((2,), (1,)), ((0,), (0,))),
    ((3, 5, 40, 30), (3, 30, 5, 50), ((3,), (1,)), ((0, 1), (0, 2))),
    ((40, 2, 20, 2, 30), (2, 30, 2, 20, 50), ((4,), (1,)), ((1, 2, 3), (0, 3, 2))),
    ((30, 7, 40), (40, 7, 30), ((1, 2), (1, 0)), ((), ())), ((0, 4), (4, 5), ((1,), (0,)), ((), ())),
    ((3, 0), (0, 5), ((1,), (0,)), ((), ())), ((1, 300), (300, 1), ((1,), (0,)), ((), ())),
    ((1, 300), (300, 400), ((1,), (0,)), ((), ())), ((64, 64), (64, 64), ((0, 1), (0, 1)), ((), ())),
]  # fmt: skip


@pytest.mark.parametrize("a, b, contract, batch", PRODUCTS)
def test_products(a, b, contract, batch):
    def f(x, y):
        return dot_ops.dot(x, y, contract=contract, batch=batch)

    def several(*operands):
        return [f(x, y) for x, y in zip(operands[::2], operands[1::2], strict=True)]

    operands = [sample(shape, dtype, i) for dtype in ("f4", "f8", "i8") for i, shape in enumerate((a, b))]
    assert not check(several, *operands).fallbacks


def test_products_of_views():
    x, y = sample((6, 50, 40), "f8"), sample((60, 40), "f8", 1)

    def f(x, y):
        part = index_ops.slice(x, index=(2, slice(0, 50, 2), slice(39, None, -1)))
        return [
            dot_ops.dot(part, y, contract=((1,), (1,)), batch=((), ())),
            dot_ops.dot(shape_ops.broadcast(part, shape=(3, 25, 40)), y, contract=((2,), (1,)), batch=((), ())),
        ]

    check(f, x, y)


def test_views_cost_no_kernel():
    x = sample((6, 8), "f8")

    def f(x):
        y = shape_ops.transpose(index_ops.slice(x, index=(slice(1, 5, 1), slice(7, None, -2))), permutation=(1, 0))
        return ew.add(shape_ops.reshape(y, shape=(4, 1, 4)), 1.0)

    assert len(check(f, x).kernels) == 1


def test_gather_and_scatter():
    x, u = sample((7, 5, 3), "f8"), sample((4, 5, 3), "f8", 1)
    i = np.array([1, -1, 3, 1])
    j = np.array([[0], [2]])

    def f(x, u, i, j):
        return [
            index_ops.gather(x, i, axes=(0,)), index_ops.gather(x, j, axes=(2,)),
            index_ops.gather(x, i, j, axes=(0, 2)),
            index_ops.gather(shape_ops.transpose(x, permutation=(2, 1, 0)), j, axes=(0,)),
            index_ops.scatter(x, i, u, axes=(0,), mode="add"), index_ops.scatter(x, i, u, axes=(0,), mode="set"),
            index_ops.scatter(x, i, ew.exp(u), axes=(0,), mode="add"),
            index_ops.scatter_slice(x, ew.sin(u), index=(slice(1, 5, 1), slice(0, 5, 1), slice(0, 3, 1)), mode="add"),
        ]  # fmt: skip

    assert not check(f, x, u, i, j).fallbacks


def test_chains_of_updates():
    def f(x):
        for i in range(6):
            part = ew.mul(index_ops.slice(x, index=(i,)), 2.0)
            x = index_ops.scatter_slice(x, part, index=(i + 1,), mode="add")
        return x

    check(f, sample((9,), "f8"))


def test_a_value_is_the_same_number_wherever_it_is_computed():
    """The maximum equals one of the elements, although both are computed from products that contract."""
    rng = np.random.default_rng(1)
    a, b, c = (rng.normal(size=(50, 37)).astype("f4") for _ in range(3))

    def f(a, b, c):
        product = ew.mul(a, b)
        x = ew.add(product, c)
        top = reduce_ops.max(x, axes=(1,))
        hit = shape_ops.convert(ew.eq(x, reduce_ops.spread(top, x.shape, (1,))), dtype=np.dtype("f4"))
        return reduce_ops.sum(hit, axes=(1,)), reduce_ops.sum(product, axes=(1,))

    counts = check(f, a, b, c)(a, b, c)[0]
    np.testing.assert_array_equal(counts, np.ones(50))


@pytest.mark.parametrize("block", [*range(2), *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 7))])
def test_random_programs(block):
    for seed in range(block * 14, block * 14 + 14):
        compare(seed, 4 + seed % 23)


@pytest.mark.parametrize("modes", [("add", "set"), ("set", "add"), ("add", "add")])
def test_two_updates_of_one_element(modes):
    def f(x):
        i = index_ops.scatter_slice(x, ew.mul(x, 0.5), index=(), mode="set")
        one = index_ops.scatter_slice(i, ew.mul(i, 0.5), index=(), mode=modes[0])
        other = index_ops.scatter_slice(i, ew.mul(i, 0.25), index=(), mode=modes[1])
        return one, other, ew.exp(i)

    check(f, np.array(1.5))


@pytest.mark.parametrize("columns", [64, 200, 512])
def test_threads_share_the_rows_of_few_columns(columns):
    """What would be one task is summed up in pieces, the same ones for any number of threads."""

    def f(x):
        y = ew.mul(ew.tanh(x), ew.exp(ew.sin(x)))
        return y, reduce_ops.sum(y, axes=(0,))

    pieces, rest = check(f, sample((700, columns), "f4")).kernels
    assert "column mode" in pieces and "parallel" in pieces and rest.startswith(f"over [32, {columns}]")


def test_joined_arrays_are_written_once():
    """Nothing is put into the memory of a result before its parts are; a part that is missing is there."""
    x, y = np.arange(6.0).reshape(2, 3), np.arange(4.0).reshape(2, 2)
    steps = lambda f: [str(step) for step in wl.jit(f).inspect(x, y).plan.steps]
    joined = lambda x, y: np.concatenate([np.sin(x), y, np.cos(x)], axis=1)
    assert not any("copy" in step for step in steps(joined))
    np.testing.assert_allclose(wl.jit(joined)(x, y), joined(x, y), rtol=1e-15)
    repeated = lambda x, y: wl.scan(lambda c, _: (np.concatenate([c[1:], c[:1]]), None), x, None, length=3)[0]
    np.testing.assert_array_equal(wl.jit(repeated)(x, y), x[[1, 0]])

    def apart(x, y):  # the first result of two is read again, before all of it is written
        first = wl.at(np.zeros((2, 5)))[:, :3].set(x)
        return first, wl.at(first)[:, 3:].set(y)

    first, whole = wl.jit(apart)(x, y)
    np.testing.assert_array_equal(first, np.concatenate([x, 0 * y], 1))
    np.testing.assert_array_equal(whole, np.concatenate([x, y], 1))
