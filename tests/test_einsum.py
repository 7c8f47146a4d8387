"""einsum on traced arrays: any subscripts, NumPy's values, a good order, derivatives that are contractions."""

import math
import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wonderland as wl
import wonderland.numpy as wnp
from wonderland.numpy.einsum import EXACT, Subscripts, exact_path, greedy_path


def rand(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def traced(*args, **options):
    """einsum of traced arrays: recorded (so that no value is there), then run."""
    places = [i for i, a in enumerate(args) if isinstance(a, (np.ndarray, float))]

    def f(*arrays):
        full = list(args)
        for i, a in zip(places, arrays):
            full[i] = a
        return np.einsum(*full, **options)

    arrays = [args[i] for i in places]
    out = wl.vjp(f, *arrays)[0] if any(np.result_type(a).kind in "fc" for a in arrays) else wl.jit(f)(*arrays)
    return out


def flops(program):
    """Multiplications of all dots in a Program."""
    total = 0
    for equation in program.equations:
        if equation.primitive.name == "dot":
            x, y = (v.type.shape for v in equation.inputs)
            shared = {*equation.params["contract"][1], *equation.params["batch"][1]}
            total += math.prod(x) * math.prod(n for i, n in enumerate(y) if i not in shared)
    return total


SUBSCRIPTS = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ji,jk", (3, 2), (3, 4)),
    ("ba", (2, 3)),
    ("aB", (2, 3)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("iij->ij", (3, 3, 2)),
    ("iji->j", (3, 2, 3)),
    ("iii->i", (3, 3, 3)),
    ("iijj->ji", (2, 2, 3, 3)),
    ("i->", (4,)),
    ("ij->", (2, 3)),
    ("ij->j", (2, 3)),
    (",->", (), ()),
    ("->", ()),
    ("i,->i", (3,), ()),
    ("i,i->i", (3,), (3,)),
    ("i,j->ij", (3,), (2,)),
    ("i,j->ji", (3,), (2,)),
    ("...", (2, 3)),
    ("...ij->...ji", (2, 3, 4)),
    ("...ij,...jk->...ik", (5, 2, 3), (5, 3, 4)),
    ("...ij,...jk->...ik", (2, 1, 2, 3), (5, 3, 4)),
    ("...ij,jk", (5, 2, 3), (3, 4)),
    ("i...j,...->j...i", (2, 4, 3), (4,)),
    ("...,...", (2, 3), (3,)),
    ("i...->...", (2, 3, 4)),
    ("i->...", (3,)),
    ("ij,j->i", (2, 3), (1,)),
    ("ij,ij->", (1, 3), (2, 1)),
    ("i j , j -> i", (2, 3), (3,)),
    ("bij,bjk,bkl->bil", (2, 3, 4), (2, 4, 5), (2, 5, 3)),
    ("ij,jk,kl,li", (2, 3), (3, 4), (4, 5), (5, 2)),
    ("ai,bi,ci->abc", (2, 4), (3, 4), (2, 4)),
    ("i,i,i,i->i", (3,), (3,), (3,), (3,)),
    ("ii,ij,jj->j", (3, 3), (3, 4), (4, 4)),
    ("ij,k->i", (2, 3), (4,)),
    ("ij,jk->ik", (0, 3), (3, 4)),
    ("ij,jk->ik", (2, 0), (0, 4)),
    ("ii->i", (0, 0)),
    ("a,b,c,d,e,f,g,h,i->", *[(2,)] * 9),
    ("ab,bc,cd,de,ef,fg,gh,hi,ij->aj", *[(2, 2)] * 9),
]


@pytest.mark.parametrize("text, shapes", [(t, s) for t, *s in SUBSCRIPTS], ids=str)
def test_values_and_gradients(text, shapes):
    arrays = [rand(*s, seed=i)[()] for i, s in enumerate(shapes)]
    expected = np.einsum(text, *arrays)
    out = traced(text, *arrays)
    assert np.shape(out) == np.shape(expected)
    np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(wl.jit(lambda *a: np.einsum(text, *a))(*arrays), expected, rtol=1e-12, atol=1e-12)
    wl.testing.check_grads(lambda *a: np.einsum(text, *a), tuple(arrays), order=1)


def test_list_form():
    x, y = rand(2, 3), rand(3, 4)
    for args in [
        (x, [0, 1], y, [1, 2], [0, 2]),
        (x, [0, 1], y, [1, 2]),
        (x, [3, 30], y, [30, 2]),
        (x, [0, 1], [1, 0]),
        (x, [Ellipsis, 1], y, [1, 2], [Ellipsis, 2]),
    ]:
        np.testing.assert_allclose(traced(*args), np.einsum(*args), rtol=1e-12)


@st.composite
def contractions(draw):
    """Random valid subscripts with operands: repeated labels, broadcasting, ellipses, implicit and explicit outputs."""
    letters = draw(st.lists(st.sampled_from(string.ascii_letters), min_size=1, max_size=5, unique=True))
    sizes = {a: draw(st.integers(0 if draw(st.booleans()) else 1, 3)) for a in letters}
    batch = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    terms, shapes = [], []
    for _ in range(draw(st.integers(1, 4))):
        labels = draw(st.lists(st.sampled_from(letters), max_size=4))
        single = {a: draw(st.integers(0, 5)) == 0 for a in set(labels)}  # a size of 1, to be broadcast
        dots = draw(st.booleans())
        at = draw(st.integers(0, len(labels)))
        extra = batch[draw(st.integers(0, len(batch))) :] if dots else ()
        extra = tuple(1 if draw(st.integers(0, 5)) == 0 else n for n in extra)
        shape = [1 if single[a] else sizes[a] for a in labels]
        terms.append("".join(labels[:at]) + ("..." if dots else "") + "".join(labels[at:]))
        shapes.append((*shape[:at], *extra, *shape[at:]))
    text = ",".join(terms)
    if draw(st.booleans()):
        used = sorted({a for a in text if a.isalpha()})
        out = draw(st.lists(st.sampled_from(used), unique=True)) if used else []
        at = draw(st.integers(0, len(out)))
        text += "->" + "".join(out[:at]) + ("..." if "..." in text else "") + "".join(out[at:])
    return text, shapes


@settings(max_examples=60, deadline=None)
@given(contractions())
def test_random_subscripts(contraction):
    text, shapes = contraction
    arrays = [rand(*s, seed=i)[()] for i, s in enumerate(shapes)]
    expected = np.einsum(text, *arrays)
    out, pull = wl.vjp(lambda *a: np.einsum(text, *a), *arrays)
    assert np.shape(out) == np.shape(expected)
    np.testing.assert_allclose(out, expected, rtol=1e-10, atol=1e-12)
    # Linear in each operand: <cotangent, value> = <gradient, operand> for every one of them.
    weights = rand(*np.shape(out), seed=9)[()]
    for gradient, array in zip(pull(weights), arrays):
        assert np.shape(gradient) == np.shape(array)
        np.testing.assert_allclose(np.sum(gradient * array), np.sum(weights * expected), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float32", "complex64", "complex128"])
@pytest.mark.parametrize("text", ["ij,jk->ik", "ij->i", "ii", "i...,...j->j...i", "ij,jk,kl->il", "ij,ij->ij"])
def test_dtypes(dtype, text):
    counts = text.split("->")[0].split(",")
    rng = np.random.default_rng(0)
    arrays = [10 * (rng.normal(size=(3, 3)) + 1j * rng.normal(size=(3, 3))) for _ in counts]
    arrays = [(a if np.dtype(dtype).kind == "c" else a.real).astype(dtype) for a in arrays]
    with np.errstate(all="ignore"):
        expected = np.einsum(text, *arrays)
    out = traced(text, *arrays)
    assert out.dtype == expected.dtype
    np.testing.assert_allclose(out, expected, rtol=1e-4 if np.dtype(dtype).itemsize in (4, 8) else 1e-12, atol=1e-3)


def test_mixed_dtypes_and_dtype_option():
    x, y = np.arange(4, dtype=np.float32), np.arange(4)
    assert traced("i,i", x, y).dtype == np.einsum("i,i", x, y).dtype == np.float64
    assert traced("i,i->i", x, x, dtype=np.float64).dtype == np.float64
    with pytest.raises(TypeError, match=r"einsum 'i,i': cannot cast operand 0 from float32 to int64.*casting="):
        traced("i,i", x, y, dtype=np.int64)
    assert traced("i,i", x, y, dtype=np.float32, casting="unsafe").dtype == np.float32
    assert wl.grad(lambda x: np.einsum("i,i->", x, y.astype(np.float64)))(x).dtype == np.float32
    assert traced("i,->i", x, 2.0).dtype == np.einsum("i,->i", x, 2.0).dtype


def test_lists_and_lists_of_traced_numbers():
    out = wl.grad(lambda x: wnp.einsum("i,i->", [x, 2 * x], [3.0, 4.0]))(1.5)
    assert out == 11.0


# The order -----------------------------------------------------------------------------------------------------------


def test_a_chain_whose_good_order_has_a_hundred_times_fewer_flops():
    # (n, n) (n, n) (n, 1): from the left n^3, from the right n^2.
    n = 200
    a, b, v = rand(n, n), rand(n, n), rand(n, 1)
    program = wl.trace(lambda a, b, v: np.einsum("ij,jk,kl->il", a, b, v))(a, b, v)
    left = wl.trace(lambda a, b, v: np.einsum("ij,jk,kl->il", a, b, v, optimize=[(0, 1), (0, 1)]))(a, b, v)
    assert flops(program) == 2 * n * n
    assert flops(left) == n**3 + n * n
    assert flops(left) > 100 * flops(program)


def test_every_step_is_one_dot_and_so_is_every_derivative():
    args = rand(2, 3), rand(3, 4), rand(4, 5)
    program = wl.trace(wl.grad(lambda x, y, z: np.sum(np.einsum("ij,jk,kl->il", x, y, z)), (0, 1, 2)))(*args)
    names = [e.primitive.name for e in program.equations]
    assert names.count("dot") == 1 + 2 + 2  # the intermediate product, and two cotangents for each of two products
    assert set(names) <= {"dot", "transpose", "broadcast", "reshape"}


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 5), st.integers(0, 10**6))
def test_the_exact_order_is_the_best_of_all(n, seed):
    rng = np.random.default_rng(seed)
    labels = "abcdef"
    sizes = {a: int(rng.integers(1, 9)) for a in labels}
    terms = [frozenset(rng.choice(list(labels), rng.integers(1, 4), replace=False)) for _ in range(n)]
    output = frozenset(rng.choice(list(set().union(*terms)), 1))
    terms = [t & output.union(*(o for j, o in enumerate(terms) if j != i)) for i, t in enumerate(terms)]

    def cost(path):
        left, total = list(terms), 0
        for pair in path:
            x, y = (left[i] for i in pair)
            left = [t for i, t in enumerate(left) if i not in pair]
            total += math.prod(sizes[a] for a in x | y)
            left.append((x | y) & output.union(*left))
        return total

    def least(left):
        if len(left) == 1:
            return 0
        best = math.inf
        for i in range(len(left)):
            for j in range(i):
                rest = [t for k, t in enumerate(left) if k not in (i, j)]
                both = left[i] | left[j]
                step = math.prod(sizes[a] for a in both)
                best = min(best, step + least([*rest, both & output.union(*rest)]))
        return best

    exact = cost(exact_path(terms, output, sizes))
    assert exact == least(terms) <= cost(greedy_path(terms, output, sizes))


def test_many_operands_are_contracted_greedily():
    n = EXACT + 6
    letters = string.ascii_letters
    text = ",".join(letters[i] + letters[i + 1] for i in range(n)) + f"->{letters[0]}{letters[n]}"
    arrays = [rand(4, 4, seed=i) for i in range(n)]
    program = wl.trace(lambda *a: np.einsum(text, *a))(*arrays)
    assert flops(program) == (n - 1) * 4**3
    np.testing.assert_allclose(traced(text, *arrays), np.linalg.multi_dot(arrays), rtol=1e-10)


def test_optimize_forms():
    args = rand(2, 3), rand(3, 4), rand(4, 2)
    text = "ij,jk,kl->il"
    expected = np.einsum(text, *args)
    for optimize in (True, False, "greedy", "optimal", ("greedy", 1000), ["einsum_path", (1, 2), (0, 1)],
                     ["einsum_path", (0, 1, 2)], [(0, 2), (0, 1)], np.einsum_path(text, *args)[0]):  # fmt: skip
        np.testing.assert_allclose(traced(text, *args, optimize=optimize), expected, rtol=1e-12)
    with pytest.raises(ValueError, match=r"step \(0, 7\) of the path"):
        traced(text, *args, optimize=[(0, 7)])
    with pytest.raises(TypeError, match="did not understand the path"):
        traced(text, *args, optimize="fast")


def test_no_transposition_when_swapping_gives_the_order():
    program = wl.trace(lambda x, y: np.einsum("ij,kj->ki", x, y))(rand(2, 3), rand(4, 3))
    assert [e.primitive.name for e in program.equations] == ["dot"]


# Derivatives against closed forms -------------------------------------------------------------------------------------


def test_gradients_in_closed_form():
    x, a, y = rand(3), rand(3, 4), rand(4)
    gradient = wl.grad(lambda x, a, y: np.einsum("i,ij,j->", x, a, y), (0, 1, 2))(x, a, y)
    for g, e in zip(gradient, (a @ y, np.outer(x, y), a.T @ x)):
        np.testing.assert_allclose(g, e, rtol=1e-12)
    m = rand(4, 4)
    np.testing.assert_allclose(wl.grad(lambda m: np.einsum("ii", m))(m), np.eye(4))
    np.testing.assert_allclose(wl.grad(lambda m: np.einsum("ij,ji", m, m))(m), 2 * m.T, rtol=1e-12)
    q = rand(4, 4) + 4 * np.eye(4)
    hessian = wl.jacobian(wl.grad(lambda v: np.einsum("i,ij,j", v, q, v)))(y)
    np.testing.assert_allclose(hessian, q + q.T, rtol=1e-12)


def test_the_notes_batched_products():
    """Boxes C.2.4, C.2.5: 'ijz,izk->ijk', and with the second one transposed 'ijz,ikz->ijk'."""
    a, b = rand(4, 2, 3), rand(4, 3, 5)
    for text, second in (("ijz,izk->ijk", b), ("ijz,ikz->ijk", b.swapaxes(1, 2))):
        np.testing.assert_allclose(traced(text, a, second), a @ b, rtol=1e-12)
        program = wl.trace(lambda a, b, text=text: np.einsum(text, a, b))(a, second)
        assert [e.primitive.name for e in program.equations] == ["dot"]


def test_complex_gradient():
    a = rand(3, 3) + 1j * rand(3, 3, seed=1)
    z = rand(3, seed=2) + 1j * rand(3, seed=3)
    # f = z* A z with A hermitian is real; its gradient is 2 A z.
    a = a + a.conj().T
    gradient = wl.grad(lambda z: np.real(np.einsum("i,ij,j->", np.conj(z), a, z)))(z)
    np.testing.assert_allclose(gradient, 2 * a @ z, rtol=1e-12)


def test_vmap():
    x, y = rand(5, 2, 3), rand(5, 3, 4)
    out = wl.vmap(lambda x, y: np.einsum("ij,jk->ki", x, y))(x, y)
    np.testing.assert_allclose(out, np.einsum("bij,bjk->bki", x, y), rtol=1e-12)
    out = wl.vmap(lambda x: np.einsum("ii->i", x))(rand(4, 3, 3))
    np.testing.assert_allclose(out, np.einsum("bii->bi", rand(4, 3, 3)), rtol=1e-12)


# Views, out=, errors --------------------------------------------------------------------------------------------------


def _write_through(np_einsum, x):
    np_einsum("ii->i", x)[...] = 2.0
    np_einsum("ij->ji", x)[0, 1] *= 3.0
    return x


def test_a_diagonal_is_a_view():
    x = rand(3, 3)
    expected = _write_through(np.einsum, x.copy())
    out = wl.jit(lambda x: _write_through(np.einsum, x.copy()))(x)
    np.testing.assert_allclose(out, expected)
    weights = rand(3, 3, seed=1)
    gradient = wl.grad(lambda x: np.sum(weights * _write_through(np.einsum, x.copy())))(x)
    derivative = weights * (1 - np.eye(3))
    derivative[1, 0] *= 3.0
    np.testing.assert_allclose(gradient, derivative)
    x = rand(2, 2, 2, 2)
    deep = x.copy()
    np.einsum("ijij->ji", deep)[...] = 5.0

    def write(x):
        x = x.copy()
        np.einsum("ijij->ji", x)[...] = 5.0
        return x

    np.testing.assert_allclose(wl.jit(write)(x), deep)


def test_out():
    def f(x):
        out = wnp.zeros((2, 2))
        np.einsum("ij,kj->ik", x, x, out=out)
        return np.sum(out)

    x = rand(2, 3)
    np.testing.assert_allclose(wl.grad(f)(x), wl.grad(lambda x: np.sum(x @ x.T))(x), rtol=1e-12)


def test_drop_in_namespace():
    assert wnp.einsum("i,i->", np.arange(3), np.arange(3)) == 5
    assert wl.grad(lambda x: wnp.einsum("i,i->", x, x))(np.ones(2)).tolist() == [2.0, 2.0]


ERRORS = [
    (("ij,jk->ik", (2, 3), (4, 5)), r"einsum 'ij,jk->ik' of operands with shapes \(2, 3\), \(4, 5\): operands could "
     r"not be broadcast together: index 'j' is 3 before operand 1 and 4 in it"),
    (("ii", (3, 1)), r"collapsing index 'i' don't match \(3 != 1\)"),
    (("ijk", (3, 3)), r"too many subscripts, 'ijk', for operand 0 of shape \(3, 3\)"),
    (("i", (3, 3)), r"operand 0 of shape \(3, 3\) has more dimensions than subscripts, 'i', and no '...'"),
    (("i->j", (3,)), r"output subscript 'j' never appeared in an input"),
    (("ij->ii", (3, 3)), r"output subscript 'i' is there multiple times"),
    (("i,j", (3,)), r"fewer operands provided \(1\) than specified in the subscripts \(2\)"),
    (("i", (3,), (3,)), r"more operands provided \(2\) than specified in the subscripts \(1\)"),
    (("...i->i", (2, 3)), r"the ellipsis stands for 1 dimension\(s\), and the output has no '...'"),
    (("i.j", (3, 3)), r"a '.' that is not part of one ellipsis"),
    (("i1", (3, 3)), r"invalid subscript '1' in operand 0"),
    (("...,...", (2, 3), (2,)), r"an axis of the ellipsis is 3 before operand 1 and 2 in it"),
]  # fmt: skip


@pytest.mark.parametrize("call, message", ERRORS, ids=[c[0] for c, _ in ERRORS])
def test_errors_repeat_subscripts_and_shapes(call, message):
    text, *shapes = call
    with pytest.raises(ValueError, match=message) as error:
        traced(text, *(np.ones(s) for s in shapes))
    assert repr(text) in str(error.value)
    assert all(str(s) in str(error.value) for s in shapes)
    with pytest.raises(ValueError):
        np.einsum(text, *(np.ones(s) for s in shapes))


def test_other_errors():
    with pytest.raises(ValueError, match=r"subscript 60 is not within the valid range \[0, 52\)"):
        traced(np.ones(3), [60])
    with pytest.raises(ValueError, match="more operands provided"):
        Subscripts("", ((), ()))
