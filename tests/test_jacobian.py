"""`jacobian`, `jacfwd`, `jacrev`: modes, the choice between them, chunks, trees, and what is refused."""


import numpy as np
import pytest
from recomputation import peak_of, with_peak

import wonderland as wl
from wonderland.core import tree
from wonderland.ops.work import peak_bytes

MODES = ("forward", "reverse", "auto")
A = np.random.default_rng(1).standard_normal((4, 3))
X = np.array([0.5, -1.5, 2.0])


@pytest.fixture(params=["eager", "jit"])
def run(request):
    return {"eager": lambda f: f, "jit": wl.jit}[request.param]


def layer(x):
    return np.tanh(A @ x)


def layer_jacobian(x):
    return (1 - np.tanh(A @ x) ** 2)[:, None] * A


@pytest.mark.parametrize("chunk_size", ["auto", None, 1, 2, 100])
@pytest.mark.parametrize("mode", MODES)
def test_modes_and_chunks_agree_with_the_closed_form(run, mode, chunk_size):
    found = run(wl.jacobian(layer, mode=mode, chunk_size=chunk_size))(X)
    np.testing.assert_allclose(found, layer_jacobian(X), rtol=1e-14)
    assert found.flags.writeable


def test_the_plain_names(run):
    np.testing.assert_allclose(run(wl.jacfwd(layer))(X), layer_jacobian(X), rtol=1e-14)
    np.testing.assert_allclose(run(wl.jacrev(layer, chunk_size=3))(X), layer_jacobian(X), rtol=1e-14)
    (found, aux) = run(wl.jacrev(lambda x: (layer(x), 2 * x), has_aux=True))(X)
    np.testing.assert_allclose(found, layer_jacobian(X), rtol=1e-14)
    np.testing.assert_array_equal(aux, 2 * X)


@pytest.mark.parametrize("chunk_size", [None, 3])
@pytest.mark.parametrize("mode", MODES)
def test_trees(run, mode, chunk_size):
    """A dict and a number in, a dict out: a block per pair of leaves."""

    def f(p, s, *, shift):
        return {"a": s * p["w"] @ X + shift, "b": np.sum(p["w"] ** 2) * np.ones((2, 1)), "c": p["n"] * 2}

    w = np.arange(6.0).reshape(2, 3)
    p = {"w": w, "n": np.array([1, 2])}
    found = run(wl.jacobian(f, (0, 1), mode, chunk_size))(p, np.float64(3.0), shift=np.ones(2))
    np.testing.assert_allclose(found["a"][0]["w"], 3 * np.einsum("ij,k->ijk", np.eye(2), X))
    np.testing.assert_allclose(found["a"][1], w @ X)
    np.testing.assert_allclose(found["b"][0]["w"], np.broadcast_to(2 * w, (2, 1, 2, 3)))
    np.testing.assert_array_equal(found["b"][1], np.zeros((2, 1)))
    assert found["a"][0]["n"].shape == (2, 2) and not np.any(found["a"][0]["n"])  # integers have no derivative
    assert found["c"][0]["w"].shape == (2, 2, 3) and not np.any(found["c"][0]["w"])


@wl.register_mutable
class Net:
    def __init__(self):
        self.w, self.calls = 0.1 * A, np.zeros((), np.int64)

    def __call__(self, x):
        self.calls = self.calls + 1
        return np.sin(self.w @ x)


@pytest.mark.parametrize("mode", MODES)
def test_modules_are_arguments_and_are_written_once(run, mode):
    net = Net()
    found = run(wl.jacobian(lambda net, x: net(x), 0, mode))(net, X)
    slope = np.cos(net.w @ X)
    np.testing.assert_allclose(found.w, np.einsum("i,ij,k->ijk", slope, np.eye(4), X), atol=1e-15)
    assert net.calls == 1
    found = run(wl.jacobian(lambda net, x: net(x), 1, mode))(net, X)  # written to though it isn't differentiated
    np.testing.assert_allclose(found, slope[:, None] * net.w, atol=1e-15)
    assert net.calls == 2


@pytest.mark.parametrize("chunk_size", [None, 1])
@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize("dtypes", [("f4", "f4"), ("f4", "f8"), ("f8", "f4")])
def test_the_dtype_is_the_results_in_both_modes(run, mode, dtypes, chunk_size):
    before, after = dtypes
    found = run(wl.jacobian(lambda x: np.sin(x).astype(after), mode=mode, chunk_size=chunk_size))(X.astype(before))
    assert found.dtype == np.dtype(after)
    np.testing.assert_allclose(found, np.diag(np.cos(X)), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("chunk_size", [None, 2])
@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_complex(run, mode, chunk_size):
    """Holomorphic: the complex derivative. Of a real result: the gradient. Of a real argument: both parts."""
    z = np.array([1 + 2j, 0.5 - 1j, -0.3j])

    def jacobian(f):
        return run(wl.jacobian(f, mode=mode, chunk_size=chunk_size))

    np.testing.assert_allclose(jacobian(lambda z: np.exp(2j * z))(z), np.diag(2j * np.exp(2j * z)), atol=1e-13)
    np.testing.assert_allclose(jacobian(lambda z: np.abs(z) ** 2)(z), np.diag(2 * z), atol=1e-13)
    np.testing.assert_allclose(jacobian(lambda x: np.exp(1j * x))(X), np.diag(1j * np.exp(1j * X)), atol=1e-13)


@pytest.mark.parametrize("chunk_size", ["auto", 2])
@pytest.mark.parametrize("mode", MODES)
def test_shapes_at_the_edges(run, mode, chunk_size):
    def jacobian(f):
        return run(wl.jacobian(f, mode=mode, chunk_size=chunk_size))

    assert jacobian(np.sin)(0.5) == np.cos(0.5)
    assert jacobian(lambda x: x * 2)(np.zeros(0)).shape == (0, 0)
    assert jacobian(lambda x: np.zeros(3))(X).tolist() == np.zeros((3, 3)).tolist()
    assert jacobian(lambda x: np.sin(x[:0]))(X).shape == (0, 3)
    strided = np.arange(12.0).reshape(3, 4).T[::2]
    np.testing.assert_allclose(jacobian(lambda x: x * x)(strided).reshape(6, 6), np.diag(2 * strided.ravel()))


@pytest.mark.parametrize("chunk_size", [None, 2])
@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_nested(run, mode, chunk_size):
    """Derivatives and batches of Jacobians, in chunks too: d/dx of sum J(x)^2, and a Jacobian for each of a batch."""

    def jacobian(f):
        return wl.jacobian(f, mode=mode, chunk_size=chunk_size)

    batch = np.stack([X, 2 * X, -X])
    np.testing.assert_allclose(run(wl.vmap(jacobian(layer)))(batch), [layer_jacobian(x) for x in batch], rtol=1e-14)
    t = np.tanh(A @ X)
    second = (-2 * t * (1 - t**2))[:, None, None] * A[:, :, None] * A[:, None, :]
    np.testing.assert_allclose(run(jacobian(jacobian(layer)))(X), second, rtol=1e-13)
    expected = 2 * np.einsum("ij,ijk->k", layer_jacobian(X), second)
    np.testing.assert_allclose(run(wl.grad(lambda x: np.sum(jacobian(layer)(x) ** 2)))(X), expected, rtol=1e-13)
    found = run(lambda x, v: wl.jvp(jacobian(layer), (x,), (v,))[1])(X, batch[1])
    np.testing.assert_allclose(found, second @ batch[1], rtol=1e-13)


def test_python_control_flow_on_values():
    jacobian = wl.jacobian(lambda x: x * x if x[0] > 0 else -x, chunk_size=2)
    np.testing.assert_array_equal(jacobian(X), np.diag(2 * X))
    np.testing.assert_array_equal(jacobian(-X), -np.eye(3))


class TestChoice:
    """By cost on the Program, not by n and m alone."""

    def passes(self, f, x):
        """How many seeds went through: one at a time, they are a loop of that length."""
        program = wl.trace(wl.jacobian(f, chunk_size=1))(x)
        return next(e.params["length"] for e in program.equations if e.primitive.name == "scan")

    def test_far_from_square_the_smaller_number(self):
        assert self.passes(lambda x: np.outer(x, x).ravel(), np.ones(3)) == 3
        assert self.passes(lambda x: x[:2] * np.sum(x), np.ones(30)) == 2

    def test_outputs_that_depend_on_nothing_do_not_count(self):
        def f(x):
            return np.sum(x * x) * np.ones(2), np.zeros(100)

        assert self.passes(f, np.ones(10)) == 2

    def test_near_square(self):
        assert self.passes(lambda x: np.sin(x)[:3], np.ones(5)) == 3
        assert self.passes(np.sin, np.ones(5)) == 5

    def test_near_square_the_counted_cost_decides(self):
        """A linear primitive whose transpose is made of three: 5 tangents cost less than 4 cotangents."""
        from wonderland.core.primitive import Primitive, registry
        from wonderland.ops.elementwise import add, mul

        halves = Primitive(
            "test_halves",
            lambda x: x / 2,
            lambda x: x,
            linear=(0,),
            transpose=lambda ct, x: (mul(0.25, add(ct, ct)),),
            batch=lambda size, args, batched: halves(args[0]),
            cost=registry["neg"].cost,
        )
        as_function = wl.as_function(halves)
        try:
            assert self.passes(lambda x: as_function(np.sin(x))[:4], np.ones(5)) == 5
            assert self.passes(lambda x: -np.sin(x)[:4], np.ones(5)) == 4
        finally:
            del registry["test_halves"]

    def test_the_only_mode_there_is(self):
        @wl.custom_vjp
        def f(x):
            return np.sum(x**2)[None] * np.ones(5)

        f.defvjp(lambda x: (f(x), x), lambda x, ct: (2 * x * np.sum(ct),))
        np.testing.assert_array_equal(wl.jacobian(f)(X[:2]), 2 * np.ones((5, 1)) * X[:2])
        with pytest.raises(TypeError):
            wl.jacfwd(f)(X[:2])


class TestMemory:
    def test_peak_bytes_follow_the_program(self):
        def f(x):
            y = np.outer(x, x)  # 100 x 100
            return np.sum(y * y, 0)

        program = wl.trace(f)(np.ones(100))
        assert 160_000 <= peak_bytes(program) <= 4 * 80_000
        assert peak_bytes(wl.trace(lambda x: 2 * x.reshape(10, 10))(np.ones(100))) == 800

    @pytest.mark.parametrize("mode", ["forward", "reverse"])
    def test_a_budget_is_kept(self, mode):
        """All at once, 250 seeds through a Program of 250 x 250 values take 125 MB for each."""
        n, budget = 250, 6e6

        def f(x):
            return np.sum(np.sin(np.outer(x, x)), 1)

        x = np.linspace(0, 1, n)
        jacobian = wl.jacobian(f, mode=mode, memory_budget=budget)
        found, peak = with_peak(jacobian, x)
        residuals = 3 * n * n * 8
        assert peak < 1.5 * budget + 2 * n * n * 8 + residuals
        c = np.cos(np.outer(x, x))
        np.testing.assert_allclose(found, c * x[:, None] + np.diag(c @ x), atol=1e-10)

    @pytest.mark.parametrize("mode", ["forward", "reverse"])
    def test_a_budget_is_kept_in_compiled_code(self, mode):
        def f(x):
            return np.sum(np.sin(np.outer(x, x)), 1)

        x = np.linspace(0, 1, 200)
        jacobian = {budget: wl.jit(wl.jacobian(f, mode=mode, memory_budget=budget)) for budget in (2**22, 2**30)}
        assert jacobian[2**22].inspect(x).arena_bytes < 1.2 * 2**22 < 2**26 < jacobian[2**30].inspect(x).arena_bytes
        np.testing.assert_allclose(jacobian[2**22](x), jacobian[2**30](x), atol=1e-12)

    def test_a_budget_without_end(self, run):
        found = run(wl.jacobian(lambda x: np.sin(x), memory_budget=np.inf))(X)
        np.testing.assert_allclose(found, np.diag(np.cos(X)), rtol=1e-14)

    def test_arguments_that_are_not_asked_for_take_none(self):
        data = np.ones((400, 500))  # a block for it would have 160 MB
        jacobian = wl.jacobian(lambda w, data: data @ w * w[0])
        assert peak_of(jacobian, np.ones(500), data) < 40e6

    def test_code_does_not_grow_with_the_chunks(self):
        few, many = (wl.trace(wl.jacobian(layer, mode="forward", chunk_size=size))(X) for size in (2, 1))
        assert len(few.equations) == len(many.equations)
        assert [e.params["length"] for p in (few, many) for e in p.equations if e.primitive.name == "scan"] == [2, 3]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: wl.jacobian(layer, mode="sideways"), "mode is \"auto\", .*, not 'sideways'"),
        (lambda: wl.jacobian(layer, chunk_size=0), "chunk_size .* positive integer, .* not 0"),
        (lambda: wl.jacobian(layer, chunk_size="all"), "chunk_size .* not 'all'"),
        (lambda: wl.jacobian(layer, memory_budget=-1), "memory_budget is a positive number of bytes, not -1"),
        (lambda: wl.jacobian(layer)(np.arange(3)), "pass 2.0 instead of 2"),
        (lambda: wl.jacobian(layer, has_aux=True)(X), r"must return a pair \(out, aux\)"),
        (lambda: wl.jacobian(layer, argnums=1)(X), "argnums=1"),
        (lambda: wl.jacobian(layer, argnums=0.0)(X), "argnums=0.0"),
        (lambda: wl.jacobian(layer, argnums="x")(X), "argnums='x'"),
        (lambda: wl.jacobian(layer, search_seconds="long"), "search_seconds is a number of seconds, .* not 'long'"),
    ],
)
def test_errors(make, message):
    with pytest.raises(wl.ArgumentError, match=message):
        make()


def test_tree_of_tracers_is_returned_under_transformations():
    out = wl.vmap(lambda x: wl.jacobian(lambda p: {"y": p["x"] ** 2})({"x": x}))(np.ones((2, 3)))
    assert [leaf.shape for leaf in tree.leaves(out)] == [(2, 3, 3)]
