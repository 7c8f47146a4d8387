"""Complex functions at zeros, infinities, NaN and the ends of the range: NumPy's answers, which are C99's (annex G)."""

import numpy as np
import pytest

import wonderland as wl

DTYPES = [np.complex64, np.complex128]
# C99 leaves signs open where the result has a NaN, and where z is infinite in no known direction.
OPEN_SIGNS = "exp exp2 sin cos tan sinh cosh tanh".split()
EXACT = "sqrt log log2 log10 arcsin arccos arctan arcsinh arccosh arctanh reciprocal square conjugate negative".split()


def grid(dtype):
    """All pairs of special values."""
    large, small = (1e308, 5e-324) if dtype == np.complex128 else (3e38, 1e-45)
    parts = np.array([0, 1, 2, np.inf, large, small, np.nan])
    parts = np.concatenate([parts, -parts[:-1]]).astype(np.finfo(dtype).dtype)
    z = np.empty((parts.size, parts.size), dtype)
    z.real, z.imag = parts[:, None], parts
    return z.ravel()


def assert_same(found, expected, z, signs):
    """Each part equal, to rounding; zeros have the same sign where `signs` says so."""
    for part in (np.real, np.imag):
        ours, theirs = part(found), part(expected)
        near = np.isclose(ours, theirs, rtol=1e-5, atol=0, equal_nan=True)
        near |= ~signs & np.isclose(np.abs(ours), np.abs(theirs), rtol=1e-5, atol=0)
        near &= ~signs | np.isnan(theirs) | (np.signbit(ours) == np.signbit(theirs))
        wrong = [(complex(z[i]), complex(found[i]), complex(expected[i])) for i in np.flatnonzero(~near)]
        assert not wrong, f"{len(wrong)} (z, ours, NumPy's): {wrong[:5]}"


@pytest.mark.parametrize(
    "name, dtype", [*((name, d) for name in EXACT for d in DTYPES), *((name, np.complex128) for name in OPEN_SIGNS)]
)
def test_special_values(name, dtype):
    f, z = getattr(np, name), grid(dtype)
    with np.errstate(all="ignore"):
        expected = f(z)
        eager = wl.jvp(lambda z: f(z), (z,), (z,))[0]
    directions = np.isfinite(z.real) | np.isfinite(z.imag)
    signs = np.full(z.shape, True) if name in EXACT else ~np.isnan(expected) & directions
    assert_same(wl.jit(lambda z: f(z))(z), expected, z, signs)
    assert_same(eager, expected, z, np.full(z.shape, True))


@pytest.mark.parametrize("dtype", DTYPES)
def test_expm1_and_log1p_far_out(dtype):
    """There they are exp and log; NumPy's own have NaN for (inf, 0), and overflow early."""
    z = grid(dtype)
    far = z[~(np.abs(z.real) <= 2) & ~(np.isfinite(z.real) & (np.abs(z.real) < 1e-30))]
    with np.errstate(all="ignore"):
        exp, log = np.exp(far) - 1, np.log(far)
    signs = ~np.isnan(exp) & (np.isfinite(far.real) | np.isfinite(far.imag))
    assert_same(wl.jit(lambda z: np.expm1(z))(far), exp, far, signs)
    assert_same(wl.jit(lambda z: np.log1p(z))(far), log, far, np.full(far.shape, True))


def test_a_part_that_is_known_beside_nan():
    z = complex(0.0, np.nan)
    of = lambda f, z: wl.jit(lambda z: f(z))(np.complex128(z))
    assert of(np.arcsin, z).real == 0 and of(np.arctanh, z).real == 0
    assert of(np.arccos, z).real == of(np.arccosh, z).imag == np.pi / 2
    turned = complex(np.nan, -0.0)
    for f in (np.arctan, np.arcsinh):
        assert of(f, turned).imag == 0 and np.signbit(of(f, turned).imag)


@pytest.mark.parametrize("run", [lambda f: f, wl.jit], ids=["eager", "compiled"])
def test_reciprocals_are_on_their_side_of_the_cut(run):
    """1 / (-1 + 0i) is -1 - 0i, whose root is -i."""
    z = np.array([complex(-1.0, 0.0), complex(-1.0, -0.0), complex(2.0, 0.0), complex(0.0, -4.0)])
    root = run(lambda z: wl.vjp(lambda z: np.sqrt(np.reciprocal(z)), z)[0])(z)
    np.testing.assert_allclose(root, np.sqrt(np.reciprocal(z)), rtol=1e-15)
    assert root[0] == -1j and root[1] == 1j
    slope = run(wl.grad(lambda z: np.sum(np.real(np.reciprocal(z)))))(z)
    np.testing.assert_allclose(slope, np.conj(-1 / z**2))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", [1, -1.0, True, 0.0, -0.0])
def test_arithmetic_with_real_numbers(number, dtype):
    """A real number has an imaginary zero, which has a say in the sign of others: no operand is left out."""
    z = grid(dtype)
    z = z[(np.abs(z) < 10) | ~np.isfinite(z)]
    for f in (np.multiply, np.divide, np.add, np.subtract):
        with np.errstate(all="ignore"):
            expected = f(z, number)
        assert_same(wl.jit(lambda z, f=f: f(z, number))(z), expected, z, np.full(z.shape, True))


def test_times_minus_one_is_on_the_right_side_of_the_cut():
    z = np.array([4 + 0j])
    assert wl.jit(lambda z: np.sqrt(z * -1))(z) == np.sqrt(z * -1) == [2j]
