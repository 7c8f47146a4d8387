"""Matrix products made for one size, against NumPy: exact on small integers, for any sizes, strides and tiles."""

from __future__ import annotations

import ctypes
import itertools
import mmap

import numpy as np
import pytest

import wonderland as wl
from wonderland.compile import gemm_tile, ir, small_gemm

pytestmark = pytest.mark.optimised

DTYPES = {"f32": np.float32, "f64": np.float64}
SIGNATURE = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_int64)
PARAMETERS = [("x", ir.POINTER), ("y", ir.POINTER), ("out", ir.POINTER), ("m", ir.LONG), ("k", ir.LONG)]


class Products:
    """Functions of many sizes in one library: compiling them one by one would take longer."""

    def __init__(self, dtype: str, keys: list[tuple]):
        module = ir.Module()
        self.names = {key: f"product{i}" for i, key in enumerate(keys)}
        for key, name in self.names.items():
            f = ir.Function(name, PARAMETERS, exported=True)
            f.call(small_gemm.definition(dtype, *key), *f.parameters)
            module.add(f)
        self.library = module.load()

    def __call__(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """x @ y; what surrounds the result must stay as it is."""
        (m, k), n = x.shape, y.shape[1]
        space = np.full(m * n + 32, -77.0, x.dtype)
        address = self.library.address(self.names[key_of(x, y)])
        SIGNATURE(address)(x.ctypes.data, y.ctypes.data, space[16:].ctypes.data, m, k)
        assert (space[:16] == -77).all() and (space[-16:] == -77).all(), "wrote outside the result"
        return space[16:-16].reshape(m, n)


def key_of(x: np.ndarray, y: np.ndarray) -> tuple:
    (m, k), n, size = x.shape, y.shape[1], x.itemsize
    y_strides = tuple(s // size for s in reversed(y.strides))
    return (m, n, k), tuple(s // size for s in x.strides), y_strides


def laid_out(values: np.ndarray, layout: str) -> np.ndarray:
    """The values in memory of a given layout, amid NaNs."""
    rows, columns = values.shape
    steps = (2, 3) if layout == "strided" else (1, 1)
    transposed = layout in ("columns", "padded columns")
    shape = (columns, rows) if transposed else (rows, columns)
    pad = 1 if "padded" in layout or layout == "strided" else 0
    space = np.full((shape[0] * steps[0] + pad, shape[1] * steps[1] + pad), np.nan, values.dtype)
    view = space[: shape[0] * steps[0] : steps[0], : shape[1] * steps[1] : steps[1]]
    view = view.T if transposed else view
    if layout == "reversed":
        view = view[::-1, ::-1]
    view[...] = values
    return view


LAYOUTS = ["rows", "columns", "padded rows", "padded columns", "strided", "reversed"]


def random_operands(rng: np.random.Generator, dtype: str, count: int, largest: int) -> list[tuple]:
    out = []
    for _ in range(count):
        m, n, k = (int(v) for v in rng.integers((2, 2, 1), largest + 1))
        layouts = rng.choice(LAYOUTS, 2)
        values = (rng.integers(-4, 5, shape).astype(DTYPES[dtype]) for shape in ((m, k), (k, n)))
        out.append(tuple(laid_out(v, layout) for v, layout in zip(values, layouts, strict=True)))
    return out


@pytest.mark.parametrize("largest", [9, 20, 70])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sizes_and_layouts_are_exact(dtype, largest):
    pairs = random_operands(np.random.default_rng(largest), dtype, 20, largest)
    multiply = Products(dtype, [key_of(x, y) for x, y in pairs])
    for x, y in pairs:
        np.testing.assert_array_equal(multiply(x, y), x @ y, err_msg=str(key_of(x, y)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("width", "rows", "vectors"), [(16, 6, 2), (16, 8, 3), (64, 8, 3)])
def test_tiles_of_other_machines(dtype, width, rows, vectors, monkeypatch):
    tile = gemm_tile.Tile(dtype, width // np.dtype(DTYPES[dtype]).itemsize, rows, vectors)
    monkeypatch.setattr(small_gemm, "tile", lambda dtype: tile)
    pairs = random_operands(np.random.default_rng(width + rows), dtype, 10, 40)
    multiply = Products(dtype, [key_of(x, y) for x, y in pairs])
    for x, y in pairs:
        np.testing.assert_array_equal(multiply(x, y), x @ y, err_msg=str(key_of(x, y)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_infinities_and_nans_stay_in_their_row_and_column(dtype):
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-4, 5, shape).astype(DTYPES[dtype]) for shape in ((11, 13), (13, 10)))
    multiply = Products(dtype, [key_of(x, y)])
    x[2, 3], x[10, 12], y[5, 9], y[0, 0] = np.nan, np.inf, -np.inf, np.nan
    with np.errstate(invalid="ignore"):
        expected = np.sum(x[:, :, None] * y[None], axis=1)
    np.testing.assert_array_equal(multiply(x, y), expected)


@pytest.mark.skipif(not hasattr(mmap, "PROT_READ"), reason="needs memory protection")
def test_nothing_outside_the_operands_is_touched():
    """Operands between pages that may not be read: a step outside ends the process."""
    libc, page, spaces = ctypes.CDLL(None), mmap.PAGESIZE, []

    def fenced(values: np.ndarray, at_end: bool) -> np.ndarray:
        pages = -(-values.nbytes // page)
        space = mmap.mmap(-1, (pages + 2) * page)
        base = ctypes.addressof(ctypes.c_char.from_buffer(space))
        start = page + (pages * page - values.nbytes if at_end else 0)
        inside = np.frombuffer(space, values.dtype, values.size, start).reshape(values.shape)
        inside[...] = values
        for fence in (base, base + (pages + 1) * page):
            assert libc.mprotect(ctypes.c_void_p(fence), ctypes.c_size_t(page), 0) == 0
        spaces.append(space)
        return inside

    rng = np.random.default_rng(3)
    pairs = []
    for (m, n, k), at_end, flip in itertools.product([(2, 3, 1), (5, 11, 7), (37, 13, 19)], [0, 1], range(4)):
        x, y = rng.integers(-4, 5, (m, k)).astype(np.float32), rng.integers(-4, 5, (k, n)).astype(np.float32)
        left = fenced(x.T.copy(), at_end).T if flip & 1 else fenced(x, at_end)
        right = fenced(y.T.copy(), at_end).T if flip & 2 else fenced(y, at_end)
        pairs.append((left, right))
    multiply = Products("f32", list({key_of(x, y): None for x, y in pairs}))
    for x, y in pairs:
        np.testing.assert_array_equal(multiply(x, y), x @ y)


def test_sizes_of_batches_share_a_function():
    forward = {small_gemm.definition("f32", (batch, 10, 16), (16, 1), (1, 10)) for batch in (33, 64, 100)}
    backward = {small_gemm.definition("f32", (16, 10, batch), (1, 16), (1, 10)) for batch in (33, 64, 100)}
    assert len(forward) == len(backward) == 1


PRODUCTS = {
    "x @ y": lambda x, y: x @ y,
    "transposed": lambda x, y: (y.T @ x.T).T,
    "reversed": lambda x, y: x[::-1, ::-1] @ y[::-1],
    "every other row": lambda x, y: x[::2] @ y,
    "broadcast": lambda x, y: np.broadcast_to(x[:1], x.shape) @ y,
    "batched": lambda x, y: np.stack([x, 2 * x, x - 1]) @ y,
    "batched both": lambda x, y: np.stack([x, 2 * x, x - 1]) @ np.stack([y, y + 1, 3 * y]),
    "chain": lambda x, y: x @ y @ (y.T @ y) @ y.T,
    "many small ones": lambda x, y: (np.arange(300.0).reshape(300, 1, 1) % 7 * x) @ y,
}


@pytest.mark.parametrize("sizes", [(4, 4, 4), (5, 7, 3), (8, 8, 8), (32, 10, 32), (64, 50, 40), (3, 2, 67)])
@pytest.mark.parametrize("name", PRODUCTS)
def test_compiled_products(name, sizes):
    m, n, k = sizes
    rng = np.random.default_rng(1)
    x, y = rng.integers(-4, 5, (m, k)).astype(float), rng.integers(-4, 5, (k, n)).astype(float)
    f = PRODUCTS[name]
    compiled = wl.jit(f)
    np.testing.assert_array_equal(compiled(x, y), f(x, y))
    assert not compiled.inspect(x, y).fallbacks


@pytest.mark.parametrize(("m", "n"), [*itertools.product([1, 2, 300], repeat=2)])
def test_outer_and_empty_products(m, n):
    rng = np.random.default_rng(2)
    for k in (0, 1):
        x, y = rng.standard_normal((m, k)), rng.standard_normal((k, n))
        np.testing.assert_array_equal(wl.jit(lambda x, y: x @ y)(x, y), x @ y)
