"""The GEMM generator against NumPy: exact on small integers, otherwise within the error bound."""

from __future__ import annotations

import ctypes
import itertools
import math
import mmap
import threading
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wonderland.compile import gemm, pool

pytestmark = pytest.mark.optimised

I64, POINTER = ctypes.c_int64, ctypes.c_void_p
SIGNATURE = ctypes.CFUNCTYPE(
    None, I64, I64, I64, POINTER, I64, I64, POINTER, I64, I64, POINTER, I64, POINTER, POINTER, POINTER
)
DTYPES = {"f32": np.float32, "f64": np.float64}
GUARD = 64  # bytes around the scratch that must stay as they were


@pytest.fixture(params=["f32", "f64"])
def dtype(request):
    return request.param


@pytest.fixture
def threads():
    before = pool.size()
    yield pool.set_size
    pool.set_size(before)


def function(m: int, n: int, k: int, dtype: str, strides: list[list[int]]) -> tuple[str, str, str]:
    """Which one is for a product of these sizes: its form goes with `scratch_bytes`."""
    if gemm.is_by_vector(m, n, k, strides[0], strides[1]):
        return dtype, "gemv", ""
    return dtype, "gemm", gemm.form_for(n, dtype, row_stride=strides[0][0])


def product(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """c = a @ b by the generated code, with guards around the scratch."""
    dtype = "f32" if c.dtype == np.float32 else "f64"
    (m, k), n = a.shape, b.shape[1]
    assert b.shape[0] == k
    assert c.shape == (m, n)
    assert c.size == 0 or n == 1 or c.strides[1] == c.itemsize
    strides = [[stride // c.itemsize for stride in x.strides] for x in (a, b, c)]
    *which, form = function(m, n, k, dtype, strides)
    size = gemm.scratch_bytes(m, n, k, dtype, form)
    scratch = np.full(size + 2 * GUARD, 0xA5, np.uint8)
    SIGNATURE(gemm.external(*which, form).address())(
        m, n, k, a.ctypes.data, *strides[0], b.ctypes.data, *strides[1], c.ctypes.data, strides[2][0],
        scratch.ctypes.data + GUARD, None, None,
    )  # fmt: skip
    assert (scratch[:GUARD] == 0xA5).all(), "wrote before the scratch"
    assert (scratch[size + GUARD :] == 0xA5).all(), "wrote beyond the scratch"
    return c


def integers(rng: np.random.Generator, shape: tuple[int, int], dtype: str) -> np.ndarray:
    return rng.integers(-4, 5, shape).astype(DTYPES[dtype])


def operand(rng: np.random.Generator, rows: int, columns: int, layout: str, dtype: str) -> np.ndarray:
    """A matrix of small integers in a given layout; what surrounds it in memory is NaN."""

    def inside(shape: tuple[int, int], steps: tuple[int, int] = (1, 1)) -> np.ndarray:
        space = np.full((shape[0] * steps[0] + 2, shape[1] * steps[1] + 2), np.nan, DTYPES[dtype])
        view = space[1 : 1 + shape[0] * steps[0] : steps[0], 1 : 1 + shape[1] * steps[1] : steps[1]]
        view[...] = integers(rng, shape, dtype)
        return view

    if layout == "rows":
        return integers(rng, (rows, columns), dtype)
    if layout == "columns":
        return integers(rng, (columns, rows), dtype).T
    if layout == "padded rows":
        return inside((rows, columns))
    if layout == "padded columns":
        return inside((columns, rows)).T
    if layout == "strided":
        return inside((rows, columns), (2, 3))
    if layout == "reversed":
        return inside((rows, columns))[::-1, ::-1]
    if layout == "reversed columns":
        return inside((columns, rows)).T[::-1, :]
    if layout == "one row repeated":
        return np.broadcast_to(inside((1, columns)), (rows, columns))
    if layout == "one column repeated":
        return np.broadcast_to(inside((rows, 1)), (rows, columns))
    raise ValueError(layout)


LAYOUTS = [
    "rows", "columns", "padded rows", "padded columns", "strided", "reversed", "reversed columns",
    "one row repeated", "one column repeated",
]  # fmt: skip


def output(m: int, n: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """C inside a larger array, and that array, to see what is written around it."""
    space = np.full((m + 2, n + 3), -77.0, DTYPES[dtype])
    c = space[1 : 1 + m, 1 : 1 + n]
    c[...] = np.nan
    return c, space


def check_exact(a: np.ndarray, b: np.ndarray, dtype: str) -> None:
    expected = a.astype(np.float64) @ b.astype(np.float64)
    c, space = output(a.shape[0], b.shape[1], dtype)
    np.testing.assert_array_equal(product(a, b, c), expected)
    space[1:-1, 1:-2] = -77.0
    assert (space == -77.0).all(), "wrote outside C"


def edges(tile_size: int) -> list[int]:
    return sorted({0, 1, 2, 3, tile_size - 1, tile_size, tile_size + 1, 2 * tile_size + 3})


def test_small_shapes_are_exact(dtype):
    rng = np.random.default_rng(1)
    t = gemm.tile(dtype)
    for m, n, k in itertools.product(edges(t.rows), edges(t.columns), [0, 1, 2, 3, 4, 5, 7, 8, 9, 17, 67]):
        check_exact(integers(rng, (m, k), dtype), integers(rng, (k, n), dtype), dtype)


@pytest.mark.parametrize("layout_a", LAYOUTS)
@pytest.mark.parametrize("layout_b", LAYOUTS)
def test_layouts_are_exact(dtype, layout_a, layout_b):
    rng = np.random.default_rng(2)
    t = gemm.tile(dtype)
    shapes = [
        (1, 1, 1),
        (1, 19, 23),
        (19, 1, 23),
        (t.rows, t.columns, 16),
        (13, 37, 29),
        (t.rows * 7 + 1, 131, 257),
    ]
    for m, n, k in shapes:
        check_exact(operand(rng, m, k, layout_a, dtype), operand(rng, k, n, layout_b, dtype), dtype)


@pytest.mark.parametrize("transposed_a", [False, True])
@pytest.mark.parametrize("transposed_b", [False, True])
def test_blocks_are_exact(dtype, transposed_a, transposed_b):
    """Sizes around the cache blocks, where the product is cut."""
    rng = np.random.default_rng(3)
    t = gemm.tile(dtype)
    rows, columns = t.chunk_rows, gemm.BLOCK_COLUMNS
    shapes = [
        (97, 101, t.depth - 1), (97, 101, t.depth), (97, 101, t.depth + 1), (131, 127, 3 * t.depth + 2),
        (rows + 1, 211, 61), (40 * rows + 1, 33, 7), (40 * rows + 1, 300, 19), (33, columns + 1, 7),
        (300, columns + 1, 19), (5, columns + 5, t.depth + 3), (t.rows * 5, 511, 383),
        (3, 2, 9001), (257, 263, 269),
    ]  # fmt: skip
    for m, n, k in shapes:
        a = integers(rng, (k, m), dtype).T if transposed_a else integers(rng, (m, k), dtype)
        b = integers(rng, (n, k), dtype).T if transposed_b else integers(rng, (k, n), dtype)
        check_exact(a, b, dtype)


@pytest.mark.parametrize("layout_a", LAYOUTS)
@pytest.mark.parametrize("layout_b", ["rows", "columns", "strided"])
def test_few_rows_and_many_columns_are_exact(dtype, layout_a, layout_b):
    """A batch times weights: A's panels are shared, B's are packed by the task that uses them."""
    rng = np.random.default_rng(13)
    for m, n, k in [(2, 513, 2050), (37, 777, 401), (gemm.FEW_ROWS, gemm.MANY_COLUMNS, 33), (201, 515, 770)]:
        check_exact(operand(rng, m, k, layout_a, dtype), operand(rng, k, n, layout_b, dtype), dtype)


@pytest.mark.parametrize("layouts", [("rows", "rows"), ("columns", "rows"), ("strided", "reversed")])
def test_long_sums_of_few_tiles_are_exact(dtype, layouts):
    """Products that are cut along k."""
    rng = np.random.default_rng(12)
    for m, n, k in [(16, 16, 8192), (2, 3, 400_001), (7, 33, 9999), (8, 15, 9 * gemm.SPLIT_DEPTH + 1), (31, 33, 2051)]:
        check_exact(operand(rng, m, k, layouts[0], dtype), operand(rng, k, n, layouts[1], dtype), dtype)


@pytest.mark.parametrize(
    "layout", ["rows", "columns", "padded rows", "padded columns", "reversed", "strided"]
)
def test_matrix_times_vector_is_exact(dtype, layout):
    rng = np.random.default_rng(4)
    sizes = [
        (1, 1),
        (1, 5),
        (5, 1),
        (4, 4),
        (7, 63),
        (64, 65),
        (33, 1000),
        (1000, 33),
        (5000, 40),
        (40, 5000),
        (2, 99_991),
    ]
    for size, k in sizes:
        matrix = operand(rng, size, k, layout, dtype)
        for vector in ("rows", "strided", "reversed", "one row repeated"):
            x = operand(rng, k, 1, vector, dtype)
            check_exact(matrix, x, dtype)
            check_exact(x.T, matrix.T, dtype)


def test_vector_result_is_contiguous_or_strided(dtype):
    rng = np.random.default_rng(5)
    a, x = integers(rng, (50, 70), dtype), integers(rng, (70, 1), dtype)
    np.testing.assert_array_equal(product(a, x, np.empty((50, 1), DTYPES[dtype])), a @ x)
    wide = np.zeros((50, 9), DTYPES[dtype])
    product(a, x, wide[:, 4:5])
    np.testing.assert_array_equal(wide[:, 4:5], a @ x)
    assert (np.delete(wide, 4, axis=1) == 0).all()


def test_empty_inner_dimension(dtype):
    a, b = np.empty((7, 0), DTYPES[dtype]), np.empty((0, 9), DTYPES[dtype])
    assert gemm.scratch_bytes(7, 9, 0, dtype) == 0
    c, _ = output(7, 9, dtype)
    assert (product(a, b, c) == 0).all()


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.tuples(*[st.integers(0, 150)] * 3),
    layouts=st.tuples(*[st.sampled_from(LAYOUTS)] * 2),
    dtype=st.sampled_from(["f32", "f64"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_random_shapes_are_exact(sizes, layouts, dtype, seed):
    rng = np.random.default_rng(seed)
    m, n, k = sizes
    check_exact(operand(rng, m, k, layouts[0], dtype), operand(rng, k, n, layouts[1], dtype), dtype)


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        (64, 64, 64),
        (129, 257, 511),
        (1, 700, 1300),
        (700, 1, 1300),
        (31, 33, 5000),
        (3, 1, 60_000),
        (1, 1, 99_999),
    ],
)
def test_error_is_bounded(dtype, m, n, k):
    """|c - ab| <= 2 sqrt(k) u |a||b| elementwise: well inside the worst case k u |a||b| (Higham, 3.5)."""
    rng = np.random.default_rng(6)
    a, b = (
        rng.standard_normal((m, k)).astype(DTYPES[dtype]),
        rng.standard_normal((k, n)).astype(DTYPES[dtype]),
    )
    wide = np.float64 if dtype == "f32" else np.longdouble
    expected = a.astype(wide) @ b.astype(wide)
    scale = np.abs(a).astype(wide) @ np.abs(b).astype(wide)
    error = np.abs(product(a, b, np.empty((m, n), DTYPES[dtype])).astype(wide) - expected)
    unit = np.finfo(DTYPES[dtype]).eps / 2
    assert (error <= 2 * np.sqrt(k) * unit * scale).all()


def test_infinities_and_nans_stay_in_their_row_and_column(dtype):
    rng = np.random.default_rng(7)
    for m, n, k in ((13, 19, 23), (70, 150, 90), (50, 1, 70), (1, 50, 70)):
        a, b = rng.random((m, k)).astype(DTYPES[dtype]) + 1, rng.random((k, n)).astype(DTYPES[dtype]) + 1
        a[m // 2, k // 3] = np.inf
        b[k // 2, n - 1] = np.nan
        expected = a.astype(np.float64) @ b.astype(np.float64)
        c = product(a, b, np.empty((m, n), DTYPES[dtype]))
        np.testing.assert_array_equal(np.isnan(c), np.isnan(expected))
        np.testing.assert_array_equal(np.isinf(c), np.isinf(expected))


SHARED = [
    (300, 310, 320),
    (1500, 40, 50),
    (40, 1500, 50),
    (128, 700, 900),
    (60, 60, 3000),
    (16, 20, 9000),
    (3, 5, 150_000),
    (1, 2000, 900),
    (2000, 1, 900),
    (1, 1, 400_000),
]


@pytest.mark.parametrize(("m", "n", "k"), SHARED)
def test_same_bits_for_any_number_of_threads(dtype, threads, m, n, k):
    rng = np.random.default_rng(8)
    a, b = (
        rng.standard_normal((m, k)).astype(DTYPES[dtype]),
        rng.standard_normal((k, n)).astype(DTYPES[dtype]),
    )
    for left, right in ((a, b), (np.asfortranarray(a), np.asfortranarray(b))):
        results = []
        for count in (1, 2, 5):
            threads(count)
            for _ in range(2):
                results.append(product(left, right, np.empty((m, n), DTYPES[dtype])).tobytes())
        assert len(set(results)) == 1


def test_concurrent_calls(dtype, threads):
    threads(3)
    rng = np.random.default_rng(9)
    a, b = integers(rng, (150, 160), dtype), integers(rng, (160, 170), dtype)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    failures: list[int] = []
    barrier = threading.Barrier(6)

    def work(number: int) -> None:
        barrier.wait()
        for _ in range(30):
            c = product(a, b, np.empty((150, 170), DTYPES[dtype]))
            if not np.array_equal(c, expected):
                failures.append(number)

    callers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert failures == []


def test_unknown_element_type_is_refused():
    with pytest.raises(ValueError, match="'f16'"):
        gemm.definition("f16")


AVX512 = {"panel": 64 << 10, "chunk": 512 << 10, "ahead": (32, 8)}


@pytest.mark.parametrize(
    ("width", "rows", "vectors", "rest"),
    [(16, 6, 2, {}), (16, 8, 3, {}), (32, 6, 2, {}), (64, 8, 3, {}), (64, 12, 2, AVX512), (64, 6, 4, AVX512)],
)
def test_tiles_of_other_machines(dtype, width, rows, vectors, rest, monkeypatch):
    """LLVM splits or joins vectors that this machine lacks, so every machine can run every tile."""
    tile = gemm.Tile(dtype, width // np.dtype(DTYPES[dtype]).itemsize, rows, vectors, **rest)
    with monkeypatch.context() as patch:
        patch.setattr(gemm, "tile", lambda dtype, wide=False: tile)
        modules = {kind: gemm.definition(dtype, kind) for kind in ("gemm", "gemv")}
        libraries = {kind: module.load() for kind, module in modules.items()}
        found = {kind: partial(libraries[kind].address, *modules[kind].exports) for kind in modules}
        patch.setattr(gemm, "external", lambda dtype, kind, few: SimpleNamespace(address=found[kind]))
        rng = np.random.default_rng(10)
        shapes = [
            (1, 40, 50),
            (40, 1, 50),
            (7, 9, 11),
            (rows + 1, tile.columns + 1, 30),
            (131, 137, tile.depth + 5),
            (67, gemm.MANY_COLUMNS + 9, tile.depth + 5),
        ]
        for (m, n, k), layout in itertools.product(shapes, ["rows", "columns", "strided"]):
            check_exact(operand(rng, m, k, layout, dtype), operand(rng, k, n, layout, dtype), dtype)


def test_the_tile_for_few_columns(monkeypatch):
    """Where there are several, the wide one if it wastes no more than the other; the narrow one for very few."""
    shapes = {"": (12, 2), "wide": (6, 4), "narrow": (24, 1)}
    monkeypatch.setattr(gemm, "tile", lambda dtype, form="": gemm.Tile(dtype, 16, *shapes[form]))

    def columns(form, **how):
        return {n for n in range(1, 300) if gemm.form_for(n, "f32", **how) == form}

    assert columns("wide") == {*range(33, 65), *range(97, 129)} and not columns("narrow")
    assert columns("narrow", row_stride=1) == {*range(1, 17)} and columns("wide", row_stride=1) == columns("wide")
    assert columns("wide", placed=True) == {*range(49, 65), *range(113, 129), *range(177, gemm.PACKED_WINDOWS)}
    assert columns("", placed=True) == {*range(gemm.PACKED_WINDOWS, 300)}


PLACES = [  # axes (extent, stride) of rows, and of steps
    ([(30, 7)], [(9, 1)]),
    ([(3, 40), (5, 8), (4, 1)], [(2, 40), (3, 8), (2, 1)]),
    ([(2, 300), (3, 90), (2, 30), (7, 2)], [(2, 90), (3, 30), (2, 3), (5, 1)]),
    ([(5, -3), (4, 11)], [(6, 2), (7, -1)]),
    ([(40, 0)], [(3, 5), (400, 1)]),
    ([(2, 1)], [(70, 50), (40, 1)]),
]


@pytest.mark.parametrize("columns", [1, 5, 16, 40, 60, gemm.PACKED_WINDOWS + 7])
@pytest.mark.parametrize("axes", PLACES, ids=str)
def test_an_operand_at_places(axes, columns, dtype, threads):
    """Windows and the like: what NumPy sees by strides, GEMM reads by the same."""
    rng = np.random.default_rng(3)
    size, item = 40_000, np.dtype(DTYPES[dtype]).itemsize
    memory = rng.integers(-4, 5, size).astype(DTYPES[dtype])
    (rows, steps), start = axes, memory[size // 2 :]
    shape, strides = ([axis[i] for axis in (*rows, *steps)] for i in (0, 1))
    seen = np.lib.stride_tricks.as_strided(start, shape, [item * stride for stride in strides])
    m, k = (math.prod(extent for extent, _ in group) for group in axes)
    b = integers(rng, (k, columns), dtype)
    words = np.array([number for group in axes for axis in [(1, 0)] * (4 - len(group)) + group for number in axis])
    results = []
    for count in (1, 3):
        threads(count)
        c = np.full((m, columns), np.nan, DTYPES[dtype])
        form = gemm.form_for(columns, dtype, placed=True)
        scratch = np.empty(gemm.scratch_bytes(m, columns, k, dtype, form), np.uint8)
        SIGNATURE(gemm.external(dtype, "gemp", form).address())(
            m, columns, k, start.ctypes.data, words.ctypes.data, 0, b.ctypes.data, columns, 1, c.ctypes.data, columns,
            scratch.ctypes.data, None, None,
        )  # fmt: skip
        results.append(c)
    np.testing.assert_array_equal(results[0], seen.reshape(m, k) @ b)
    np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.skipif(not hasattr(mmap, "PROT_READ"), reason="needs memory protection")
def test_nothing_outside_the_operands_is_touched(dtype):
    """Operands between pages that may not be read: a step outside ends the process."""
    libc, page = ctypes.CDLL(None), mmap.PAGESIZE
    fences = []

    def fenced(values: np.ndarray, at_end: bool) -> np.ndarray:
        pages = -(-values.nbytes // page)
        space = mmap.mmap(-1, (pages + 2) * page)
        base = ctypes.addressof(ctypes.c_char.from_buffer(space))
        start = page + (pages * page - values.nbytes if at_end else 0)
        inside = np.frombuffer(space, values.dtype, values.size, start).reshape(values.shape)
        inside[...] = values
        for fence in (base, base + (pages + 1) * page):
            assert libc.mprotect(ctypes.c_void_p(fence), ctypes.c_size_t(page), 0) == 0
        fences.append(space)
        return inside

    rng = np.random.default_rng(11)
    shapes = [(1, 1, 1), (5, 3, 7), (13, 19, 23), (1, 45, 67), (45, 1, 67), (97, 211, 173), (150, 130, 410)]
    for (m, n, k), at_end, flip in itertools.product(shapes, [False, True], range(4)):
        a, b = integers(rng, (m, k), dtype), integers(rng, (k, n), dtype)
        left = fenced(a.T.copy(), at_end).T if flip & 1 else fenced(a, at_end)
        right = fenced(b.T.copy(), at_end).T if flip & 2 else fenced(b, at_end)
        c = fenced(np.zeros((m, n), DTYPES[dtype]), at_end)
        np.testing.assert_array_equal(product(left, right, c), a.astype(np.float64) @ b)
