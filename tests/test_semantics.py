"""Every example of the semantics page that the operators can express, eager and jitted."""

import itertools

import numpy as np
import pytest

import wonderland as wl


@pytest.fixture(params=["eager", "jitted"])
def run(request):
    """How a function is run: as it is, or compiled."""
    return (lambda f, **kw: f) if request.param == "eager" else wl.jit


def heron(a):
    """Newton's iteration for the square root, with a data-dependent number of steps."""

    def far(state):
        x, _ = state
        return np.abs(x * x - a) > 1e-13 * a

    x, _ = wl.while_loop(far, lambda s: (0.5 * (s[0] + a / s[0]), s[1] + 1), (a + 1.0, 0))
    return x


# 1 Levels


def test_levels_are_not_confused(run):
    assert run(wl.grad(lambda x: x * wl.grad(lambda y: x + y)(1.0)))(2.0) == 1.0


def test_third_derivative(run):
    assert run(wl.grad(wl.grad(wl.grad(lambda x: x**4))))(2.0) == pytest.approx(48.0)


def test_python_control_flow_follows_the_path_taken():
    def f(x):
        while x < 100:
            x = x * x
        return x if x > 0 else -x

    assert f(3.0) == 6561.0
    assert wl.grad(f)(3.0) == pytest.approx(8 * 3.0**7)


def test_control_flow_without_a_value_names_the_line_and_the_way_out():
    with pytest.raises(wl.NoValueError, match=r"test_semantics\.py:\d+.*wl\.cond, wl\.while_loop"):
        wl.trace(lambda x: x if x > 0 else -x)(1.0)
    with pytest.raises(wl.NoValueError, match="batched function"):
        wl.vmap(lambda x: x if x > 0 else -x)(np.ones(3))
    with pytest.raises(wl.NoValueError):
        wl.jit(lambda x: x if x > 0 else -x)(1.0)


# 2 Handles and values


def test_writing_to_a_view_changes_its_base(run):
    def f(x):
        a = x * 1.0
        d = a.T
        d[1] = x[0] * 2.0
        return np.sum(a * a)

    x = np.arange(4.0).reshape(2, 2) + 1
    # a = [[x00, 2 x00], [x10, 2 x01]]
    expected = np.array([[10 * x[0, 0], 8 * x[0, 1]], [2 * x[1, 0], 0.0]])
    assert run(f)(x) == pytest.approx(5 * x[0, 0] ** 2 + x[1, 0] ** 2 + 4 * x[0, 1] ** 2)
    np.testing.assert_allclose(run(wl.grad(f))(x), expected)


def test_views_reread_their_base(run):
    def f(x):
        a = x * 1.0
        tail = a[1:]
        a *= 3.0
        a[2] = 0.0
        return np.sum(tail)

    np.testing.assert_allclose(run(wl.grad(f))(np.ones(4)), [0.0, 3.0, 0.0, 3.0])


def test_writes_to_an_argument_do_not_reach_the_caller(run):
    def f(x):
        x *= 2.0
        x[0] = 7.0
        return np.sum(x)

    x = np.ones(3)
    np.testing.assert_allclose(run(wl.grad(f))(x), [0.0, 2.0, 2.0])
    np.testing.assert_array_equal(x, np.ones(3))


def test_plain_array_arguments_are_read_only():
    def f(x, x0):
        x0 *= 2
        return np.sum(x * x0)

    x0 = np.ones(3)
    with pytest.raises(ValueError, match="read-only"):
        wl.grad(f)(np.ones(3), x0)
    np.testing.assert_array_equal(x0, np.ones(3))


def test_capture_copies(run):
    def f(x):
        w = np.ones(3)
        a = x * w
        w *= 5
        return np.sum(a * w)

    np.testing.assert_array_equal(run(wl.grad(f))(np.ones(3)), [5.0, 5.0, 5.0])


def test_vjp_does_not_see_later_changes():
    x = np.array([1.0, 2.0])
    _, pull = wl.vjp(lambda x: x * x, x)
    x[:] = 100.0
    np.testing.assert_array_equal(pull(np.ones(2))[0], [2.0, 4.0])


# 3 Types


@pytest.mark.parametrize("scalar", [2.0, 3])
def test_python_scalars_are_weak(run, scalar):
    x = np.ones(3, np.float32)
    assert run(lambda x: x * scalar)(x).dtype == np.float32
    assert run(lambda x, s: x * s)(x, scalar).dtype == np.float32
    assert run(wl.grad(lambda x, s: np.sum(x * s)))(x, scalar).dtype == np.float32


def test_a_ufunc_of_a_python_scalar_is_not_weak(run):
    x = np.ones(3, np.float32)
    assert run(lambda x, s: x * np.sin(s))(x, 2.0).dtype == (x * np.sin(2.0)).dtype == np.float64


def test_zero_dimensional_results_are_scalars(run):
    out = run(lambda x: np.sum(x))(np.ones(3))
    assert isinstance(out, np.float64)
    assert isinstance(run(wl.grad(lambda x: x * x))(np.float64(3.0)), np.float64)


def test_integer_arithmetic_wraps(run):
    x = np.array([127, 1], np.int8)
    np.testing.assert_array_equal(run(lambda x: x + x)(x), x + x)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_gradient_is_steepest_ascent(run, dtype):
    z = dtype(1 + 2j)
    out = run(wl.grad(lambda z: np.real(z * np.conj(z))))(z)
    assert out == 2 + 4j and out.dtype == dtype
    assert run(wl.grad(lambda z: np.abs(z) ** 2))(z) == pytest.approx(2 + 4j, rel=1e-6)


def test_a_changing_shape_is_named_after_five_recompilations():
    f = wl.jit(lambda x: np.sum(x * 2.0))
    with pytest.warns(UserWarning, match=r"6th time.*f64\[6\]"):
        for n in range(2, 9):
            assert f(np.ones(n)) == 2 * n


# 4 Zeros and singular points


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda x: np.where(x > 0, np.sqrt(x), 0.0), [0.0, 0.5, 0.0]),
        (lambda x: np.where(x != 0, np.sin(x) / x, 1.0), [0.0, np.cos(1) - np.sin(1), None]),
        (lambda x: np.where(x > 0, x * np.log(x), 0.0), [0.0, 1.0, 0.0]),
        (lambda x: np.where(x > 0, np.exp(1 / x), 0.0), [0.0, -np.e, 0.0]),
        (lambda x: np.where(x > 0, x**-1.5, x), [1.0, -1.5, 1.0]),
        (lambda x: np.clip(np.log(x), -1.0, 5.0), [0.0, 1.0, None]),
    ],
)
def test_a_branch_not_taken_contributes_zero(run, f, expected):
    x = np.array([0.0, 1.0, -2.0])
    keep = [i for i, e in enumerate(expected) if e is not None]
    wanted = np.array([expected[i] for i in keep], float)
    for g in (wl.grad(lambda x: np.sum(f(x))), lambda x: wl.jvp(f, (x,), (np.ones(3),))[1]):
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(np.asarray(run(g)(x))[keep], wanted, rtol=1e-12)


def test_second_order_through_a_branch_not_taken(run):
    f = wl.grad(wl.grad(lambda x: np.where(x > 0, x * np.log(x), 0.0)))
    with np.errstate(all="ignore"):
        assert run(f)(0.0) == 0.0
        assert run(f)(2.0) == pytest.approx(0.5)


# 5 Closures, calls, custom rules


def test_captured_writable_arrays_are_read_at_each_call():
    w = np.ones(3)
    f = wl.jit(lambda x: np.sum(x * w))
    x = np.arange(3.0)
    assert f(x) == 3.0
    w[:] = 2.0
    assert f(x) == 6.0


def test_tracers_captured_by_an_inner_jit_or_body_are_operands(run):
    def f(x):
        inner = wl.jit(lambda y: np.sin(y) * x)
        looped = wl.fori_loop(0, 3, lambda i, c: c * x, 1.0)
        return inner(x) + looped

    x = 0.7
    assert run(f)(x) == pytest.approx(np.sin(x) * x + x**3)
    assert run(wl.grad(f))(x) == pytest.approx(np.cos(x) * x + np.sin(x) + 3 * x**2)


def test_jit_composes_with_every_transformation():
    f = lambda x: np.sum(np.tanh(x) * x)
    x = np.linspace(-1, 2, 7)
    g = wl.jit(f)
    expected = wl.grad(f)(x)
    np.testing.assert_allclose(wl.grad(g)(x), expected, rtol=1e-12)
    np.testing.assert_allclose(wl.jit(wl.grad(g))(x), expected, rtol=1e-12)
    np.testing.assert_allclose(wl.jvp(g, (x,), (x,))[1], expected @ x, rtol=1e-12)
    np.testing.assert_allclose(wl.vmap(wl.grad(g))(np.stack([x, 2 * x])), [expected, wl.grad(f)(2 * x)], rtol=1e-12)
    np.testing.assert_allclose(wl.grad(lambda x: np.sum(wl.vmap(wl.jit(np.tanh))(x)))(x), 1 - np.tanh(x) ** 2)
    v = np.cos(x)
    hvp = wl.jvp(wl.grad(f), (x,), (v,))[1]
    np.testing.assert_allclose(wl.jvp(wl.grad(g), (x,), (v,))[1], hvp, rtol=1e-12)


def test_while_loop_reverse_mode_by_a_run_time_length(run):
    for a in (2.0, 9.0, 1e6):
        assert run(heron)(a) == pytest.approx(np.sqrt(a), rel=1e-12)
        assert run(wl.grad(heron))(a) == pytest.approx(0.5 / np.sqrt(a), rel=1e-9)
        assert run(wl.grad(wl.grad(heron)))(a) == pytest.approx(-0.25 * a**-1.5, rel=1e-6)
    xs = np.array([2.0, 9.0, 1e6, 0.01])
    np.testing.assert_allclose(run(wl.vmap(heron))(xs), np.sqrt(xs), rtol=1e-12)
    np.testing.assert_allclose(run(wl.vmap(wl.grad(heron)))(xs), 0.5 / np.sqrt(xs), rtol=1e-9)
    np.testing.assert_allclose(run(wl.grad(lambda x: np.sum(wl.vmap(heron)(x))))(xs), 0.5 / np.sqrt(xs), rtol=1e-9)


def test_custom_rules(run):
    @wl.custom_jvp
    def relu(x):
        return np.maximum(x, 0.0)

    @relu.defjvp
    def _(primals, tangents):
        (x,), (t,) = primals, tangents
        return relu(x), np.where(x > 0, t, 0.0)

    assert run(wl.grad(relu))(0.0) == 0.0
    assert run(wl.grad(relu))(2.0) == 1.0

    @wl.custom_vjp
    def clipped(x):
        return x * 1.0

    clipped.defvjp(lambda x: (x * 1.0, None), lambda _, ct: (np.clip(ct, -1.0, 1.0),))
    assert run(wl.grad(lambda x: 50.0 * clipped(x)))(3.0) == 1.0
    with pytest.raises(TypeError, match=r"custom vjp only.*defjvp"):
        wl.jvp(clipped, (3.0,), (1.0,))


def test_custom_rules_are_checked():
    @wl.custom_jvp
    def f(x):
        return x * 2.0

    f.defjvp(lambda primals, tangents: (f(*primals), np.ones(5)))
    with pytest.raises(wl.ArgumentError, match=r"shape \(5,\), expected \(3,\)"):
        wl.jvp(f, (np.ones(3),), (np.ones(3),))


# 6 Mutable arguments


@wl.register_mutable
class Counter:
    """A weight, and how often it was used."""

    def __init__(self):
        self.w = np.ones(2)
        self.uses = np.array(0)
        self.name = "counter"


def use(model, x):
    """Replace arrays on the model, one by assignment and one in place."""
    model.uses = model.uses + 1
    model.w *= 2.0
    return np.sum(model.w * x)


def test_arrays_are_written_back_in_place(run):
    model = Counter()
    w, uses = model.w, model.uses
    assert run(use)(model, np.ones(2)) == 4.0
    if run is wl.jit:
        assert model.w is w and model.uses is uses
    np.testing.assert_array_equal(model.w, [2.0, 2.0])
    assert model.uses == 1


def test_written_values_belong_to_the_enclosing_level(run):
    model = Counter()
    w, x = model.w, np.array([1.0, 3.0])
    value, gradient = run(wl.value_and_grad(use, argnums=1))(model, x)
    assert value == 8.0
    np.testing.assert_array_equal(gradient, [2.0, 2.0])
    np.testing.assert_array_equal(w, [2.0, 2.0])
    assert model.w is w

    value, gradient = run(wl.value_and_grad(use))(model, x)
    np.testing.assert_array_equal(gradient.w, [2.0, 6.0])
    np.testing.assert_array_equal(w, [4.0, 4.0])


def test_mutations_that_cannot_be_carried_out_raise():
    def changes_python_attribute(model):
        model.name = "other"
        return np.sum(model.w)

    with pytest.raises(wl.MutationError, match=r"Counter\.name changed"):
        wl.jit(changes_python_attribute)(Counter())

    def writes_batched(model, x):
        model.w = model.w + x
        return x

    with pytest.raises(wl.MutationError, match="differs along the batch"):
        wl.vmap(writes_batched, in_axes=(None, 0))(Counter(), np.ones((3, 2)))

    def writes_in_a_loop(model):
        def body(i, c):
            model.w = model.w + c
            return c

        return wl.fori_loop(0, 3, body, 1.0)

    with pytest.raises(wl.MutationError, match="doesn't get as an argument"):
        wl.jit(writes_in_a_loop)(Counter())

    stored = []
    wl.grad(lambda x: stored.append(x) or x * x)(1.0)
    with pytest.raises(wl.LeakedTracerError, match="return"):
        stored[0] + 1.0


def test_a_call_that_raises_leaves_arguments_as_they_were():
    def f(model, x, i):
        model.w = model.w * 2.0
        return x[i]

    g = wl.jit(f)
    model, x = Counter(), np.arange(3.0)
    assert g(model, x, 1) == 1.0
    before = model.w.copy()
    with pytest.raises(IndexError, match="out of bounds"):
        g(model, x, 7)
    np.testing.assert_array_equal(model.w, before)


def test_written_buffers_that_overlap_are_copied():
    def f(model, x):
        model.w = model.w + x[::-1]
        return np.sum(x)

    g = wl.jit(f)
    g(Counter(), np.ones(2))
    model = Counter()
    model.w[:] = [1.0, 2.0]
    assert g(model, model.w) == 3.0
    np.testing.assert_array_equal(model.w, [3.0, 3.0])


# 7 Compiled code


def test_error_word_raises_what_eager_code_raises():
    f = lambda x, i: x[i]
    g = wl.jit(f)
    x = np.arange(5.0)
    assert g(x, -1) == f(x, -1)
    for i in (5, -6):
        with pytest.raises(IndexError) as eager:
            f(x, np.int64(i))
        with pytest.raises(IndexError) as compiled:
            g(x, i)
        assert str(eager.value) == str(compiled.value)


def test_nan_infinities_and_signed_zeros_are_kept(run):
    x = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 5e-324])
    out = run(lambda x: x * 1.0 + 0.0 * 0.0 - 0.0)(x)
    np.testing.assert_array_equal(out, x * 1.0 + 0.0 - 0.0)
    neg = run(lambda x: -x)(x)
    np.testing.assert_array_equal(np.signbit(neg[3:5]), [False, True])
    np.testing.assert_array_equal(run(lambda x: np.maximum(x, 1.0))(x), np.maximum(x, 1.0))
    assert np.isnan(run(np.max)(x))


def test_derivatives_at_the_notes_example(run):
    assert run(wl.grad(lambda x: x + x**2))(3.0) == 7.0


class TestBranchesNotTaken:
    """SEMANTICS 4, to third order, by all nestings of forward and reverse: exactly zero, whatever happens there."""

    FUNCTIONS = {
        "x^2 log x": lambda x: np.where(x > 0, x * x * np.log(x), 0.0),
        "log sqrt x": lambda x: np.where(x > 0, np.log(np.sqrt(x)), 0.0),
        "log x sin log x": lambda x: np.where(x > 0, np.log(x) * np.sin(np.log(x)), 0.0),
        "sqrt x": lambda x: np.where(x > 0, np.sqrt(x), 0.0),
        "x^0.3 log x": lambda x: np.where(x > 0, x**0.3 * np.log(x), 0.0),
        "x sin 1/x": lambda x: np.where(x != 0, x * np.sin(1 / x), 0.0),
        "arctanh": lambda x: np.where(np.abs(x + 1) < 1, np.arctanh(x + 1), 0.0),
        "(x log x)^3 / x": lambda x: np.where(x > 0, (x * np.log(x)) ** 3 / x, 0.0),
    }
    MODES = {"forward": lambda f: lambda x: wl.jvp(f, (x,), (np.ones_like(x)[()],))[1], "reverse": wl.grad}

    @pytest.mark.parametrize("name", FUNCTIONS)
    @pytest.mark.parametrize("order", [1, 2, 3])
    def test_zero(self, name, order):
        for modes in itertools.product(self.MODES.values(), repeat=order):
            f = self.FUNCTIONS[name]
            for mode in modes:
                f = mode(f)
            for x in (0.0, np.float64(0.0)):
                assert f(x) == 0.0
            if order < 3:
                assert wl.jit(f)(0.0) == 0.0


def test_a_mutable_argument_beside_what_is_no_array():
    @wl.register_mutable
    class Weights:
        def __init__(self):
            self.w = np.ones(3)

    def step(weights, x, mode, *, n=1):
        weights.w = weights.w + n * x
        return np.sum(weights.w ** (2 if mode == "square" else 1))

    weights = Weights()
    np.testing.assert_array_equal(wl.grad(step, argnums=1)(weights, np.ones(3), "square", n=2), 12.0)
    np.testing.assert_array_equal(weights.w, 3.0)
    jitted = wl.jit(step, static_argnames=("mode", "n"))
    assert jitted(weights, 1.0, "sum", n=3) == 18 and jitted(mode="sum", x=1.0, weights=weights, n=3) == 27
    assert jitted(n=3, mode="sum", x=1.0, weights=weights) == 36
    np.testing.assert_array_equal(weights.w, 12.0)


def test_stop_gradient_stops_derivatives_of_every_order():
    f = lambda x: wl.stop_gradient(np.sin(x)) * x
    assert wl.grad(f)(0.3) == np.sin(0.3)
    assert wl.grad(wl.grad(f))(0.3) == 0.0
    assert wl.jvp(wl.grad(f), (0.3,), (1.0,))[1] == 0.0


def test_cond_of_a_python_number_twice_differentiated():
    f = lambda x: wl.cond(x > 0, lambda y: np.sin(y) * y, lambda y: y**2, x)
    np.testing.assert_allclose(wl.grad(wl.grad(f))(0.7), 2 * np.cos(0.7) - 0.7 * np.sin(0.7))
