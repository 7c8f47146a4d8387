"""Programs as SymPy's expressions: every primitive against its own numbers, and our derivatives against SymPy's."""

import builtins
import re
from types import SimpleNamespace

import numpy as np
import pytest
import sympy as sp

import wonderland as wl
from wonderland.core.primitive import registry
from wonderland.studio.sympy_functions import derived, exceptions, function_of
from wonderland.studio.to_sympy import _rules
from wonderland.testing import op_table
from wonderland.testing.op_samples import of_each_kind

op_table.load()
ROWS = [row for row in op_table.TABLE if "f" in row.dtypes]
# Linear operations, which NumPy evaluates on arrays of objects.
MOVES = "broadcast reshape transpose slice gather scatter scatter_slice cumsum dot recurrence".split()


def numbers(expressions, values):
    """An expression, or an array of them, with numbers put in for the symbols."""

    def number(expression):
        found = expression.subs(values)
        if found in (sp.true, sp.false):
            return bool(found)
        return complex(found.evalf())

    out = np.vectorize(number, otypes=[complex])(np.asarray(expressions, object))
    return out if np.iscomplexobj(out) and out.imag.any() else out.real


def symbols_like(name, x):
    """Real symbols in the place of numbers, and what they stand for."""
    out = np.array([sp.Symbol(f"{name}_{i}", real=True) for i in range(np.size(x))], object).reshape(np.shape(x))
    return out[()], dict(zip(out.ravel(), np.ravel(x).tolist(), strict=True))


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_primitive_is_its_expression(row):
    for sample in of_each_kind(row, "float64", most=12):
        args, call = sample.args(), sample.function
        places = [i for i, a in enumerate(args) if np.result_type(a).kind in "fc" and row.operands[i].dtype is None]
        named = {i: symbols_like("xyzuvw"[i % 6] + str(i), args[i]) for i in places}

        def f(*values, args=args, call=call, places=places):
            full = list(args)
            for i, value in zip(places, values, strict=True):
                full[i] = value
            return call(*full)

        given = [named[i][0] for i in places]
        try:
            found = wl.to_sympy(f, *given)
        except wl.ArgumentError as error:
            primitive = registry[row.name]
            known = row.name in _rules() or (primitive.elementwise and function_of(primitive, len(args)))
            assert row.name not in MOVES
            assert not known or "number of steps depends" in str(error), error
            assert re.search("in `.+ = .+`", str(error)), error  # the equation
            return
        expected = f(*(args[i] for i in places))
        values = {symbol: number for i in places for symbol, number in named[i][1].items()}
        pairs = zip(*(v if isinstance(v, tuple) else (v,) for v in (found, expected)), strict=True)
        for expressions, array in pairs:
            assert np.shape(expressions) == np.shape(array)
            rtol = 1e-9 if array.dtype.itemsize > 4 else 1e-7  # expressions know no single precision
            np.testing.assert_allclose(numbers(expressions, values), array, rtol=rtol, atol=1e-12)


def _is_a_tests(primitive):
    return getattr(primitive.evaluate, "__module__", "wonderland").startswith(("test", "page", "__main__"))


COUNTS = {row.name: len(row.operands) for row in op_table.TABLE}


@pytest.mark.filterwarnings("ignore:Casting complex values")
def test_the_table_of_functions_has_only_what_cannot_be_derived():
    assert {name for name in exceptions() if derived(registry[name], COUNTS[name])} == set()
    assert {name for name in _rules() if registry[name].elementwise} == set()


@pytest.mark.parametrize(
    "name", "add pow abs conj log1p expm1 log10 hypot arcsinh erf gamma zeta floor remainder bessel_j".split()
)
def test_functions_follow_from_names_and_operators(name):
    assert derived(registry[name], COUNTS[name])


def test_few_functions_have_no_expression():
    """Rounding to even, neighbours and exponents of floats, bits, inverses without a name."""
    elementwise = [p for n, p in registry.items() if p.elementwise and not _is_a_tests(p)]
    without = [p.name for p in elementwise if not function_of(p, COUNTS[p.name])]
    assert len(without) < 0.15 * len(elementwise), without


def test_a_function_of_the_same_name_must_have_the_same_values():
    """SymPy's `bell` are Bell's numbers; an operator called so is something else, which its evaluation tells."""
    evaluations = {"bell": lambda x: x * x + 1, "sinc": np.sinc, "step": lambda x: 1.0 * (x == 0)}
    bell, sinc, step = (derived(SimpleNamespace(name=n, ufunc="", evaluate=f), 1) for n, f in evaluations.items())
    assert bell is not None and bell(x) == x**2 + 1
    assert sinc is None and step is None


# Derivatives: ours, traced, against SymPy's -----------------------------------------------------------------------

x, y, z = sp.symbols("x y z", positive=True)

FUNCTIONS = {
    "the notes' example": lambda x, y, z: y * np.sin(x) + z * x * np.sin(x),
    "a quotient": lambda x, y, z: (x**2 + y) / (1 + z * x),
    "powers": lambda x, y, z: x**y + z**2.5,
    "a chain": lambda x, y, z: np.exp(np.sin(np.log(x * y) ** 2)) + z,
    "hyperbolic": lambda x, y, z: np.tanh(x * y) * np.cosh(z * x),
    "special": lambda x, y, z: np.sqrt(x) * np.arctan(y * x) + np.expm1(z * x),
    "a norm": lambda x, y, z: np.hypot(x, y) * np.logaddexp(x, z),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_sympys(name):
    f = FUNCTIONS[name]
    value, gradient = wl.to_sympy(wl.value_and_grad(f, (0, 1, 2)), x, y, z)
    assert sp.simplify(value - wl.to_sympy(f, x, y, z)) == 0
    for ours, symbol in zip(gradient, (x, y, z), strict=True):
        assert sp.simplify(ours - sp.diff(value, symbol)) == 0, (ours, sp.diff(value, symbol))


@pytest.mark.parametrize("name", ["the notes' example", "a quotient", "a chain"])
def test_second_derivatives_are_sympys(name):
    f = FUNCTIONS[name]
    ours = wl.to_sympy(wl.grad(wl.grad(f), 1), x, y, z)
    assert sp.simplify(ours - sp.diff(wl.to_sympy(f, x, y, z), x, y)) == 0
    forward = wl.to_sympy(lambda x, y, z: wl.jvp(wl.grad(f), (x, y, z), (1.0, 0.0, 0.0))[1], x, y, z)
    assert sp.simplify(forward - sp.diff(wl.to_sympy(f, x, y, z), x, 2)) == 0


def test_gradient_of_a_network():
    rng = np.random.default_rng(0)
    p = {"w": rng.normal(size=(3, 2)), "b": rng.normal(size=3), "v": rng.normal(size=3)}
    data = rng.normal(size=(4, 2))

    def loss(p):
        return np.mean((np.tanh(data @ p["w"].T + p["b"]) @ p["v"] - data[:, 0]) ** 2)

    expression = wl.to_sympy(loss, p)
    names = {s.name: s for s in expression.free_symbols}
    assert {*names} == {f"p_w_{i}_{j}" for i in range(3) for j in range(2)} | {
        f"p_{k}_{i}" for k in "bv" for i in range(3)
    }
    values = {s: p[s.name[2]][tuple(map(int, s.name.split("_")[2:]))].item() for s in names.values()}
    gradient = wl.grad(loss)(p)
    for s in names.values():
        found = float(sp.diff(expression, s).subs(values))
        expected = gradient[s.name[2]][tuple(map(int, s.name.split("_")[2:]))]
        np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_linear_algebra():
    a, b = np.array(sp.symbols("a:4", real=True), object).reshape(2, 2), np.array(sp.symbols("b:2", real=True), object)
    m = sp.Matrix(a.tolist())
    det = wl.to_sympy(np.linalg.det, a)
    assert sp.simplify(det - m.det()) == 0
    gradient = wl.to_sympy(wl.grad(np.linalg.det), a)
    assert sp.simplify(sp.Matrix(gradient.tolist()) - m.adjugate().T) == sp.zeros(2)
    solution = wl.to_sympy(np.linalg.solve, a, b)
    assert sp.simplify(sp.Matrix(solution.tolist()) - m.LUsolve(sp.Matrix(b.tolist()))) == sp.zeros(2, 1)
    expression = wl.to_sympy(lambda a: np.linalg.slogdet(a)[1], a)
    assert sp.simplify(expression - sp.log(sp.Abs(m.det()))) == 0


# Arguments and results --------------------------------------------------------------------------------------------


def test_names_of_symbols():
    f = lambda u, v: (u * v[0], {"sum": np.sum(v)})
    first, second = wl.to_sympy(f, 2.0, np.ones((2, 1)))
    assert str(first) == "[u*v_0_0]"
    assert str(second["sum"]) == "v_0_0 + v_1_0"
    assert wl.to_sympy(lambda n, z: n * z, 3, 1j).free_symbols == {sp.Symbol("n", integer=True), sp.Symbol("z")}
    cube = wl.custom_jvp(lambda side: side**3)
    cube.defjvp(lambda primals, tangents: (cube(*primals), 3 * primals[0] ** 2 * tangents[0]))
    for g in (wl.grad(cube), wl.grad(wl.jit(cube)), wl.grad(wl.checkpoint(cube)), wl.nth_derivative(cube, 1)):
        assert str(wl.to_sympy(g, 2.0)) == "3*side**2"


def test_no_name_means_two_things():
    total = wl.to_sympy(lambda p: p["a b"] + p["a_b"], {"a b": 1.0, "a_b": 2.0})
    assert str(total) == "p_a_b + p_a_b_"
    assert len(wl.to_sympy(lambda x, x_0: np.sum(x) * x_0, np.ones(2), 1.0).free_symbols) == 3
    y = sp.Symbol("y", real=True)
    assert str(wl.to_sympy(lambda x, y: x - y, y, 1.0)) == "y - y_"


def test_a_program():
    program = wl.trace(lambda x, y: (x * y, np.sin(x)))(1.0, 2.0)
    a, b = sp.symbols("a b", real=True)
    assert wl.to_sympy(program) == (a * b, sp.sin(a))
    assert wl.to_sympy(program, x, x + y) == (x * (x + y), sp.sin(x))
    with pytest.raises(wl.ArgumentError, match="2 inputs, 1 were given"):
        wl.to_sympy(program, x)
    with pytest.raises(wl.ArgumentError, match=r"shape \(\), symbols of shape \(2,\)"):
        wl.to_sympy(program, np.array([x, y]), x)


def test_matrices_arrays_and_expressions_as_arguments():
    m = sp.Matrix([[x, 1], [0, y]])
    assert wl.to_sympy(lambda m: np.sum(m @ m), m) == sp.expand(sum(m * m))
    assert wl.to_sympy(lambda a: a[::-1], np.array([x, 2, x + y])).tolist() == [x + y, 2, x]
    assert wl.to_sympy(lambda z: np.real(z * z), sp.I * x) == -(x**2)
    assert wl.to_sympy(lambda x, kind: x if kind == "id" else -x, x, "neg") == -x


def test_numbers_stay_what_they_are():
    assert wl.to_sympy(lambda x: 0.5 * x + 2.0, x) == x / 2 + 2
    assert wl.to_sympy(lambda x: 0.1 * x, x) == sp.Float(0.1) * x
    assert wl.to_sympy(lambda x: x * np.inf, x) == sp.oo
    assert wl.to_sympy(lambda x: np.array([1.0, 2.0]), x).tolist() == [1, 2]


def test_control_flow():
    total = wl.to_sympy(lambda x: wl.fori_loop(0, 3, lambda i, v: v * x + i, 1.0), x)
    assert sp.expand(total - (x**3 + x + 2)) == 0
    last, rows = wl.to_sympy(lambda x: wl.scan(lambda c, t: (c * t, c + x), x, np.arange(1.0, 4.0)), x)
    assert last == 6 * x
    assert rows.tolist() == [2 * x, 2 * x, 3 * x]
    r = sp.Symbol("r", real=True)
    found = wl.to_sympy(lambda x: wl.cond(x > 0, lambda: x**2, lambda: -x), r)
    assert (found.subs(r, 3), found.subs(r, -3)) == (9, 3)
    found = wl.to_sympy(lambda i, x: wl.switch(i, [lambda: x, lambda: 2 * x, lambda: 3 * x]), 1, x)
    i = next(s for s in found.free_symbols if s.name == "i")
    assert [found.subs(i, k) for k in (-1, 0, 1, 2, 7)] == [x, x, 2 * x, 3 * x, 3 * x]
    assert wl.to_sympy(wl.jit(lambda x: np.where(x > 1, x, 0)), r).subs(r, 2) == 2
    assert (
        wl.to_sympy(lambda x: wl.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * x), (0, 1.0))[1], x) == x**3
    )
    with pytest.raises(wl.ArgumentError, match="the number of steps depends on the arguments"):
        wl.to_sympy(lambda x: wl.while_loop(lambda v: v < 10, lambda v: v * 2, x), x)

    @wl.custom_jvp
    def cube(x):
        return x**3

    cube.defjvp(lambda primals, tangents: (cube(primals[0]), 3 * primals[0] ** 2 * tangents[0]))
    assert wl.to_sympy(cube, x) == x**3
    assert wl.to_sympy(wl.grad(cube), x) == 3 * x**2


def test_indices_that_depend_on_arguments_are_refused():
    with pytest.raises(wl.ArgumentError, match=r"an index depends on the arguments in `.* = gather"):
        wl.to_sympy(lambda a, i: a[i], np.arange(3.0), 1)
    with pytest.raises(wl.ArgumentError, match=r"no equivalent of sort, in `.* = sort\[axis=0\] "):
        wl.to_sympy(np.sort, np.ones(3))
    with pytest.raises(wl.ArgumentError, match="no equivalent of bitwise_and"):
        wl.to_sympy(lambda i: i & 3, 5)


def test_modules():
    @wl.register_mutable
    class Line:
        def __init__(self):
            self.slope, self.offset = np.array([1.0, 2.0]), np.array(0.5)

    expression = wl.to_sympy(lambda line, x: np.sum(line.slope * x) + line.offset, Line(), 2.0)
    assert {s.name for s in expression.free_symbols} == {"line_slope_0", "line_slope_1", "line_offset", "x"}


def test_without_sympy(monkeypatch):
    real_import = builtins.__import__

    def refusing(name, *args, **kwargs):
        if name == "sympy":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refusing)
    with pytest.raises(ImportError, match="pip install sympy"):
        wl.to_sympy(np.sin, 1.0)


def test_checkpoints_leave_no_trace():
    checkpointed = wl.checkpoint(lambda x: np.sin(x) * wl.checkpoint_name(x * x, "square"))
    x = sp.Symbol("x")
    assert sp.simplify(wl.to_sympy(checkpointed, x) - sp.sin(x) * x**2) == 0
