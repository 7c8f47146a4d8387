"""Hessians, their products with vectors, Gauss-Newton, diagonals and Laplacians, by all strategies."""


import numpy as np
import pytest
from recomputation import with_peak
from scipy.optimize import rosen, rosen_hess, rosen_hess_prod

import wonderland as wl
from wonderland.core import tree
from wonderland.transform.second_order import STRATEGIES

PRODUCTS = STRATEGIES[1:]  # those with a backward pass
RNG = np.random.default_rng(0)
X, V, W = RNG.standard_normal((3, 6))
DATA, LABELS = RNG.standard_normal((20, 4)), RNG.integers(0, 2, 20).astype(float)


@pytest.fixture(params=["eager", "jit"])
def run(request):
    return {"eager": lambda f: f, "jit": wl.jit}[request.param]


def rosenbrock(x):
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def logistic(w, data, labels):
    """The negative log-likelihood, whose Hessian is X'DX with D = sigma (1 - sigma)."""
    z = data @ w
    return np.sum(np.logaddexp(0.0, z) - labels * z)


def logistic_hessian(w):
    p = 1 / (1 + np.exp(-DATA @ w))
    return DATA.T @ (DATA * (p * (1 - p))[:, None])


def close(found, expected, tolerance=1e-12):
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * np.max(np.abs(expected), initial=1e-3))


@pytest.mark.parametrize("chunk_size", ["auto", 4])
@pytest.mark.parametrize("strategy", ["auto", *STRATEGIES])
class TestStrategies:
    def test_rosenbrock(self, run, strategy, chunk_size):
        assert rosenbrock(X) == pytest.approx(rosen(X))
        close(run(wl.hessian(rosenbrock, strategy=strategy, chunk_size=chunk_size))(X), rosen_hess(X))
        close(run(lambda x, v: wl.hvp(rosenbrock, (x,), (v,), strategy))(X, V), rosen_hess_prod(X, V))
        close(run(lambda x, v: wl.vhp(rosenbrock, (x,), (v,), strategy))(X, V), rosen_hess_prod(X, V))
        found = run(lambda x, v, w: wl.second_directional(rosenbrock, x, v, w, strategy))(X, V, W)
        close(found, W @ rosen_hess_prod(X, V))

    def test_quadratic(self, run, strategy, chunk_size):
        a = RNG.standard_normal((5, 5))
        f = wl.hessian(lambda x: 0.5 * x @ a @ x, strategy=strategy, chunk_size=chunk_size)
        close(run(f)(X[:5]), (a + a.T) / 2)

    def test_logistic_regression_with_data(self, run, strategy, chunk_size):
        w, v = X[:4], V[:4]
        close(run(wl.hessian(logistic, strategy=strategy, chunk_size=chunk_size))(w, DATA, LABELS), logistic_hessian(w))
        product = run(lambda w, v: wl.hvp(logistic, (w, DATA, LABELS), (v, None, None), strategy))
        close(product(w, v), logistic_hessian(w) @ v)

    def test_float32(self, run, strategy, chunk_size):
        x, v = X.astype(np.float32), V.astype(np.float32)
        hessian = run(wl.hessian(rosenbrock, strategy=strategy, chunk_size=chunk_size))(x)
        product = run(lambda x, v: wl.hvp(rosenbrock, (x,), (v,), strategy))(x, v)
        assert hessian.dtype == product.dtype == np.float32
        close(hessian, rosen_hess(X), 1e-5)
        close(product, rosen_hess_prod(X, V), 1e-5)

    def test_trees(self, run, strategy, chunk_size):
        """A dict and a tuple of arguments: blocks, as jacobian(grad(f)) has them, and trees like the arguments."""

        def f(p, s, *, power=2):
            return np.sum(np.sin(p["a"] @ p["b"]) * s[0]) + s[1] ** power * np.sum(p["b"] ** 3)

        p = {"a": RNG.standard_normal((2, 3)), "b": X[:3], "n": np.arange(2)}
        s = (V[:2], np.float64(1.5))
        expected = wl.jacobian(wl.grad(f, (0, 1)), (0, 1))(p, s, power=3)
        found = run(wl.hessian(f, (0, 1), strategy, chunk_size=chunk_size))(p, s, power=3)
        assert tree.flatten(found)[1] == tree.flatten(expected)[1]
        for one, other in zip(tree.leaves(found), tree.leaves(expected)):
            assert one.shape == other.shape
            close(one, other)
        v = {"a": W[:6].reshape(2, 3), "b": V[:3], "n": np.zeros(2, int)}
        one = run(lambda p, v: wl.hvp(f, (p, s), (v, None), strategy))(p, v)
        by_hand = wl.jvp(lambda p: wl.grad(f)(p, s), (p,), (v,))[1]
        assert tree.flatten(one)[1] == tree.flatten(p)[1]
        close(one["a"], by_hand["a"])
        close(one["b"], by_hand["b"])
        assert not np.any(one["n"])
        both = run(lambda p, v: wl.hvp(f, (p, s), (v, (W[:2], 0.5)), strategy))(p, v)
        assert isinstance(both, tuple) and len(both) == 2 and both[1][1].shape == ()

    def test_aux(self, run, strategy, chunk_size):
        h, aux = run(
            wl.hessian(lambda x: (rosenbrock(x), {"twice": 2 * x}), 0, strategy, has_aux=True, chunk_size=chunk_size)
        )(X)
        close(h, rosen_hess(X))
        np.testing.assert_array_equal(aux["twice"], 2 * X)

    def test_one_number_and_none(self, run, strategy, chunk_size):
        hessian = run(wl.hessian(lambda x: np.sin(x) * x, strategy=strategy, chunk_size=chunk_size))
        close(hessian(0.5), 2 * np.cos(0.5) - 0.5 * np.sin(0.5))
        close(run(lambda x: wl.hvp(np.exp, (x,), (2.0,), strategy))(0.5), 2 * np.exp(0.5))
        empty = run(wl.hessian(lambda x: np.sum(x * x), strategy=strategy, chunk_size=chunk_size))
        assert empty(np.zeros((2, 0))).shape == (2, 0, 2, 0)
        close(hessian(np.array(0.5)), 2 * np.cos(0.5) - 0.5 * np.sin(0.5))

    def test_nested(self, run, strategy, chunk_size):
        """A Hessian for each of a batch; the gradient of a number made of one: third derivatives of sum x^4."""

        def quartic(x):
            return np.sum(x**4) + np.prod(x)

        def hessian(x):
            return wl.hessian(quartic, strategy=strategy, chunk_size=chunk_size)(x)

        batch = np.stack([X[:3], V[:3]])
        off = lambda x: np.prod(x) / np.outer(x, x)
        expected = [np.diag(12 * x**2) + off(x) * (1 - np.eye(3)) for x in batch]
        close(run(wl.vmap(hessian))(batch), np.stack(expected))
        close(run(wl.grad(lambda x: np.trace(hessian(x))))(X[:3]), 24 * X[:3])
        v = V[:3]
        third = run(wl.grad(lambda x: wl.hvp(quartic, (x,), (v,), strategy) @ v))(X[:3])
        mixed = np.array([2 * v[(i + 1) % 3] * v[(i + 2) % 3] for i in range(3)])
        close(third, 24 * X[:3] * v**2 + mixed)
        products = wl.vmap(lambda v: wl.hvp(quartic, (X[:3],), (v,), strategy))
        close(run(products)(np.eye(3)), np.diag(12 * X[:3] ** 2) + off(X[:3]) * (1 - np.eye(3)))


@wl.register_mutable
class Net:
    def __init__(self):
        self.w, self.calls = 0.1 * DATA[:2].copy(), np.zeros((), np.int64)
        self.scale = np.array(1.0)

    def __call__(self, x):
        self.calls = self.calls + 1
        return self.scale * np.tanh(self.w @ x)


def net_loss(net, x):
    return np.sum(net(x) ** 2)


@pytest.mark.parametrize("strategy", ["auto", *STRATEGIES])
def test_modules(run, strategy):
    net, x = Net(), DATA[3]
    expected = wl.hessian(lambda w: np.sum(np.tanh(w @ x) ** 2))(net.w)
    found = run(wl.hessian(net_loss, strategy=strategy))(net, x)
    close(found.w.w, expected)
    close(found.scale.scale, 2 * np.sum(np.tanh(net.w @ x) ** 2))
    v = Net()
    v.w, v.scale = RNG.standard_normal((2, 4)), np.array(0.0)
    product = run(lambda net, v, x: wl.hvp(net_loss, (net, x), (v, None), strategy))(net, v, x)
    close(product.w, np.einsum("ijkl,kl->ij", expected, v.w))
    assert net.calls == 2 and isinstance(product, Net)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_dtypes_are_those_of_the_gradient(run, strategy):
    p = {"a": X[:2].astype(np.float32), "b": V[:2]}
    found = run(wl.hessian(lambda p: np.sum((p["a"] * p["b"]) ** 2), strategy=strategy))(p)
    close(found["a"]["b"], np.diag(4 * p["a"] * p["b"]), 1e-6)
    assert {k: [block.dtype for block in row.values()] for k, row in found.items()} == {
        "a": [np.float32] * 2,
        "b": [np.float64] * 2,
    }


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_complex_products(run, strategy):
    """Of a real function of z, H is linear over the reals: |z|^2 has Hv = 2 v, Re(z^3) has conj(6 z v)."""
    z, v = X[:3] + 1j * V[:3], W[:3] + 1j * X[3:]
    close(run(lambda z, v: wl.hvp(lambda z: np.sum(np.abs(z) ** 2), (z,), (v,), strategy))(z, v), 2 * v)
    close(run(lambda z, v: wl.hvp(lambda z: np.sum(np.real(z**3)), (z,), (v,), strategy))(z, v), np.conj(6 * z * v))
    with pytest.raises(wl.ArgumentError, match=r"hessian needs real arguments.*wl\.hvp"):
        wl.hessian(lambda z: np.sum(np.abs(z) ** 2), strategy=strategy)(z)


@pytest.mark.parametrize("strategy", ["auto", *PRODUCTS])
class TestPrepared:
    def test_many_vectors(self, run, strategy):
        product = wl.hvp_at(logistic, X[:4], DATA, LABELS, strategy=strategy)
        for v in np.eye(4):
            close(run(product)(v), logistic_hessian(X[:4]) @ v)
        close(wl.vmap(product)(np.eye(4)), logistic_hessian(X[:4]))

    def test_the_function_runs_once(self, strategy):
        calls = []

        def f(x):
            calls.append(1)
            return rosenbrock(x) if x[0] < 10 else np.sum(x)  # a decision, on the point's own values

        product = wl.hvp_at(f, X, strategy=strategy)
        assert sum(calls) == 1
        close(product(V), rosen_hess_prod(X, V))
        close(product(W), rosen_hess_prod(X, W))
        assert sum(calls) == 1

    def test_later_changes_of_the_point_do_not_reach_it(self, strategy):
        x = X.copy()
        product = wl.hvp_at(rosenbrock, x, strategy=strategy)
        x *= 5
        close(product(V), rosen_hess_prod(X, V))

    def test_inside_jit_and_several_arguments(self, run, strategy):
        def f(x, y):
            return np.sum(np.sin(x) * y**2)

        x, y, v, w = X[:3], V[:3], W[:3], X[3:]

        def both(x, y, v, w):
            return wl.hvp_at(f, x, y, argnums=(0, 1), strategy=strategy)(v, w)

        found = run(both)(x, y, v, w)
        close(found[0], -np.sin(x) * y**2 * v + 2 * np.cos(x) * y * w)
        close(found[1], 2 * np.cos(x) * y * v + 2 * np.sin(x) * w)


MATRIX = 4 * np.eye(4) + np.outer(DATA[0], DATA[0])
compiled_inside = wl.jit(lambda x: np.sin(x) * x)


def in_place(x):
    y = np.zeros(4)
    for i in range(4):
        y[i] = x[i] ** 2 * x[i - 1]
    return np.sum(np.sin(y))


@wl.custom_jvp
def by_rule(x):
    return np.sin(x)


by_rule.defjvp(lambda primals, tangents: (np.sin(primals[0]), np.cos(primals[0]) * tangents[0]))


@wl.custom_vjp
def reverse_only(x):
    return np.sin(x)


reverse_only.defvjp(lambda x: (np.sin(x), x), lambda x, ct: (np.cos(x) * ct,))

FUNCTIONS = {
    "scan": lambda x: np.sum(wl.scan(lambda c, t: (np.tanh(c * x + t), c * c), x, np.arange(5.0))[1]),
    "while": lambda x: np.sum(wl.while_loop(lambda c: np.sum(c * c) < 50.0, lambda c: c * 1.3 + np.sin(x), x)),
    "cond": lambda x: wl.cond(np.sum(x) > 0, lambda x: np.sum(x**3), lambda x: np.sum(np.cos(x)), x),
    "solve": lambda x: np.sum(np.linalg.solve(MATRIX + np.diag(x), x) ** 2),
    "fft": lambda x: np.sum(np.abs(np.fft.fft(x * x)) ** 2),
    "sort": lambda x: np.sum(np.sort(x) ** 3 * np.arange(4.0)),
    "jit": lambda x: np.sum(compiled_inside(x) ** 2),
    "in place": wl.lift(in_place),
    "custom rule": lambda x: np.sum(by_rule(x) * x),
}


KINDS = []  # (function, strategy, how to run it): each function compiled by one strategy, in turn; the slow run has all
for number, name in enumerate(FUNCTIONS):
    for i, strategy in enumerate(STRATEGIES):
        slow = [pytest.mark.slow] * (i != number % len(STRATEGIES))
        KINDS.append(pytest.param(name, strategy, lambda f: f, id=f"eager-{name}-{strategy}"))
        KINDS.append(pytest.param(name, strategy, wl.jit, id=f"jit-{name}-{strategy}", marks=slow))


@pytest.mark.parametrize(("name", "strategy", "run"), KINDS)
def test_functions_of_every_kind(name, strategy, run):
    """Against differences of gradients; in chunks too."""
    f, x = FUNCTIONS[name], np.array([0.7, -0.4, 1.1, 0.3])
    g, h = wl.grad(f), 1e-5
    expected = np.stack([(g(x + h * e) - g(x - h * e)) / (2 * h) for e in np.eye(4)], 1)
    for chunk_size in (None, 3):
        found = run(wl.hessian(f, strategy=strategy, chunk_size=chunk_size))(x)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7 * np.max(np.abs(expected)))
    if strategy != "forward_over_forward":
        close(run(wl.vmap(wl.hvp_at(f, x, strategy=strategy)))(np.eye(4)), found, 1e-11)


def test_a_rule_for_reverse_mode_only(run):
    """Strategies that begin with reverse mode work; the others say what is missing."""

    def f(x):
        return np.sum(reverse_only(x) * x)

    x = X[:3]
    for strategy in ("auto", "forward_over_reverse", "reverse_over_reverse"):
        close(run(wl.hessian(f, strategy=strategy))(x), np.diag(2 * np.cos(x) - x * np.sin(x)))
        close(run(wl.hessian(f, strategy=strategy))(0.5), 2 * np.cos(0.5) - 0.5 * np.sin(0.5))
    with pytest.raises(TypeError, match=r"custom vjp only: .*defjvp"):
        wl.hessian(f, strategy="reverse_over_forward")(x)


def test_memory_budget():
    """300 products through values of 300 x 300 would take 200 MB for each that is alive."""

    def f(x):
        return np.sum(np.sin(np.outer(x, x)))

    x = np.linspace(0, 1, 300)
    hessian = wl.hessian(f, memory_budget=2**24)
    found, peak = with_peak(hessian, x)
    assert peak < 4 * 2**24
    s, c = np.sin(np.outer(x, x)), np.cos(np.outer(x, x))
    close(found, 2 * (c - s * np.outer(x, x)) - 2 * np.diag(s @ x**2))


def test_forward_over_forward_exploits_symmetry():
    """Of n^2 second derivatives n (n + 1) / 2 are computed."""
    program = wl.trace(wl.hessian(rosenbrock, strategy="forward_over_forward", chunk_size=None))(X)
    batches = {e.outputs[0].type.shape[0] for e in program.equations if e.primitive.name == "masked_mul"}
    assert batches <= {21, 5, 6} and 21 in batches


class TestGaussNewton:
    def residual(self, p):
        return {"a": np.tanh(p["w"] @ DATA[0]) + p["b"], "b": p["b"] ** 2}

    def loss(self, r):
        return np.sum(np.log(np.cosh(r["a"]))) + 0.5 * np.sum(r["b"] ** 2)

    def point(self):
        return {"w": DATA[1:3] * 0.3, "b": X[:2]}

    def expected(self):
        """J' H J from whole matrices."""
        p = self.point()
        j = wl.jacobian(self.residual)(p)
        flat = np.block([[j[r]["b"], j[r]["w"].reshape(2, 8)] for r in ("a", "b")])
        r = self.residual(p)
        bend = np.diag(np.concatenate([1 / np.cosh(r["a"]) ** 2, np.ones(2)]))
        return flat.T @ bend @ flat

    def test_products(self, run):
        v = {"w": W[:4].reshape(2, 2).repeat(2, 1), "b": V[:2]}
        found = run(lambda p, v: wl.gnvp(self.residual, self.loss, p, v))(self.point(), v)
        close(
            np.concatenate([found["b"], found["w"].ravel()]), self.expected() @ np.concatenate([v["b"], v["w"].ravel()])
        )

    @pytest.mark.parametrize("chunk_size", ["auto", 3])
    def test_matrix(self, run, chunk_size):
        found = run(wl.gauss_newton(self.residual, self.loss, chunk_size=chunk_size))(self.point())
        whole = np.block([
            [found["b"]["b"], found["b"]["w"].reshape(2, 8)],
            [found["w"]["b"].reshape(8, 2), found["w"]["w"].reshape(8, 8)],
        ])  # fmt: skip
        close(whole, self.expected())

    def test_of_a_linear_residual_it_is_the_hessian(self, run):
        def loss(z):
            return np.sum(np.logaddexp(0.0, z) - LABELS * z)

        w, v = X[:4], V[:4]
        close(run(lambda w, v: wl.gnvp(lambda w: DATA @ w, loss, w, v))(w, v), logistic_hessian(w) @ v)
        close(run(wl.gauss_newton(lambda w: DATA @ w, loss))(w), logistic_hessian(w))

    def test_the_residual_runs_once(self):
        calls = []

        def residual(x):
            calls.append(1)
            return x**2

        close(wl.gnvp(residual, lambda r: 0.5 * np.sum(r**2), X, V), 4 * X**2 * V)
        assert len(calls) == 1


class TestDiagonal:
    @pytest.mark.parametrize("chunk_size", ["auto", 2])
    def test_exact(self, run, chunk_size):
        close(run(lambda x: wl.hessian_diagonal(rosenbrock, x, chunk_size=chunk_size))(X), np.diag(rosen_hess(X)))
        p = {"w": X[:4], "n": 3}
        found = run(lambda p: wl.hessian_diagonal(lambda p: logistic(p["w"], DATA, LABELS) * p["n"], p))(p)
        close(found["w"], 3 * np.diag(logistic_hessian(X[:4])))
        assert found["n"] == 0

    @pytest.mark.parametrize("chunk_size", ["auto", 50])
    def test_hutchinson(self, run, chunk_size):
        """Its mean is the diagonal, its variance the squares of the rest of the row; the signs are rademacher's."""
        key, samples = wl.random.key(3), 400
        h = logistic_hessian(X[:4])

        def estimate(w, key):
            return wl.hessian_diagonal(
                lambda w: logistic(w, DATA, LABELS), w, "hutchinson", key=key, samples=samples, chunk_size=chunk_size
            )

        found = run(estimate)(X[:4], key)
        z = wl.random.rademacher(key, (samples, 4), dtype=np.float64)
        close(found, np.mean(z * (z @ h), 0))
        deviation = np.sqrt((np.sum(h**2, 1) - np.diag(h) ** 2) / samples)
        assert np.all(np.abs(found - np.diag(h)) < 4 * deviation)

    def test_of_a_diagonal_hessian_one_sample_is_exact(self, run):
        estimate = run(lambda x, key: wl.hessian_diagonal(lambda x: np.sum(x**4), x, "hutchinson", key=key, samples=1))
        close(estimate(X, wl.random.key(0)), 12 * X**2)


class TestLaplacian:
    @pytest.mark.parametrize("chunk_size", ["auto", 2])
    def test_closed_forms(self, run, chunk_size):
        """1/r is harmonic in three dimensions; |x|^2 has 2n; exp(a'x) has |a|^2 exp(a'x)."""
        x = X[:3]

        def laplacian(f):
            return run(wl.laplacian(f, chunk_size=chunk_size))

        assert abs(laplacian(lambda x: 1 / np.sqrt(np.sum(x * x)))(x)) < 1e-12
        close(laplacian(lambda x: np.sum(x * x))(x), 6.0)
        a = V[:3]
        close(laplacian(lambda x: np.exp(a @ x))(x), a @ a * np.exp(a @ x))

    def test_many_results(self, run):
        found = run(wl.laplacian(lambda x: {"s": np.sin(x), "n": np.sum(x**3) * np.ones((2, 2))}))(X)
        close(found["s"], -np.sin(X))
        close(found["n"], 6 * np.sum(X) * np.ones((2, 2)))

    def test_one_of_several_arguments(self, run):
        found = run(wl.laplacian(lambda t, x, *, k: np.exp(-t) * np.sum(np.sin(k * x)), argnums=1))(0.3, X, k=2.0)
        close(found, -4 * np.exp(-0.3) * np.sum(np.sin(2 * X)))

    def test_nested_in_grad_and_vmap(self, run):
        batch = RNG.standard_normal((5, 3))
        close(run(wl.vmap(wl.laplacian(lambda x: np.sum(x**4))))(batch), 12 * np.sum(batch**2, 1))
        close(run(wl.grad(wl.laplacian(lambda x: np.sum(x**4))))(X), 24 * X)

    @pytest.mark.parametrize("chunk_size", ["auto", 30])
    def test_hutchinson(self, run, chunk_size):
        key, samples = wl.random.key(1), 100

        def estimate(x, key):
            options = {"key": key, "samples": samples, "chunk_size": chunk_size}
            return wl.laplacian(rosenbrock, method="hutchinson", **options)(x)

        z = wl.random.rademacher(key, (samples, 6), dtype=np.float64)
        close(run(estimate)(X, key), np.mean(np.einsum("si,ij,sj->s", z, rosen_hess(X), z)))


def vector_valued(x):
    return np.sin(x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *[
            (lambda s=s: wl.hvp(vector_valued, (X,), (V,), s), r"hvp needs .* single real scalar .* f64\[6\]")
            for s in STRATEGIES
        ],
        *[
            (lambda s=s: wl.hessian(vector_valued, strategy=s)(X), r"hessian needs .* returned f64\[6\].*np.sum")
            for s in STRATEGIES
        ],
        (lambda: wl.hessian(lambda x: (np.sum(x), x))(X), r"hessian needs .* returned \(array, array\)"),
        (lambda: wl.hessian(lambda x: np.argmax(x))(X), r"hessian needs .* real scalar .* i64\[\]"),
        (lambda: wl.hessian(rosenbrock, has_aux=True)(X), r"must return a pair \(value, aux\)"),
        (lambda: wl.hessian(rosenbrock)(np.arange(4)), "dtype int64.*pass 2.0 instead of 2"),
        (lambda: wl.hvp(rosenbrock, (np.arange(4),), (np.ones(4),)), "hvp can't differentiate .*dtype int64"),
        (lambda: wl.hvp(rosenbrock, X, V), r"hvp takes a tuple .* hvp\(f, \(x,\), \(v,\)\)"),
        (lambda: wl.vhp(rosenbrock, (X,), (V, V)), "vhp got 1 arguments and 2 vectors"),
        (lambda: wl.hvp(rosenbrock, (X,), (None,)), "every vector is None"),
        (lambda: wl.hvp(rosenbrock, (X,), (V[:3],)), r"hvp: the vector's leaf 0 has shape \(3,\), expected \(6,\)"),
        (lambda: wl.hvp(rosenbrock, (X,), ({"a": V},)), "the vector of argument 0 has structure {'a': array}"),
        (lambda: wl.hvp(rosenbrock, (X,), (1j * V,)), "is complex .* belongs to a real value"),
        (lambda: wl.hvp(rosenbrock, (X,), (V,), "newton"), "hvp: strategy is \"auto\" or one of .* not 'newton'"),
        *[
            (lambda n=n: wl.hessian(lambda x, y: x @ y, n)(X, V), "hessian: argnums name .* each once, not")
            for n in ((), (0, 0), (1, -1))
        ],
        (lambda: wl.laplacian(lambda x, y: x @ y, (0, 0))(X, V), r"laplacian: argnums .* not \(0, 0\)"),
        (lambda: wl.hessian(rosenbrock, strategy="fof"), "hessian: strategy is .* not 'fof'"),
        (lambda: wl.hessian(rosenbrock, chunk_size=0), "hessian: chunk_size"),
        (lambda: wl.hvp_at(rosenbrock, X, strategy="forward_over_forward"), "wl.second_directional"),
        (lambda: wl.hvp_at(rosenbrock, X)(V, V), "the product takes 1 vectors"),
        (lambda: wl.second_directional(rosenbrock, X, V, V[:2]), r"second_directional: the vector w's leaf 0 .*\(2,\)"),
        (lambda: wl.gnvp(np.sin, np.sin, X, V), "hvp needs a function with a single real scalar"),
        (lambda: wl.gnvp(np.sin, np.sum, X, V[:1]), "gnvp: the vector's leaf 0 has shape"),
        (lambda: wl.hessian_diagonal(rosenbrock, X, "random"), '"exact" or "hutchinson", not \'random\''),
        (lambda: wl.hessian_diagonal(rosenbrock, X, "hutchinson"), r"needs key=wl.random.key\(0\) .* got None"),
        (lambda: wl.hessian_diagonal(vector_valued, X), "hessian_diagonal needs a function with a single real scalar"),
        (
            lambda: wl.laplacian(rosenbrock, method="hutchinson", key=wl.random.key(0), samples=0),
            "samples is a positive",
        ),
        (lambda: wl.laplacian(rosenbrock)(np.arange(3)), "laplacian can't differentiate .* int64"),
    ],
)
def test_errors(make, message):
    with pytest.raises(wl.ArgumentError, match=message):
        make()
