"""An RNN by `scan`, Heron's square root by `while_loop`, a two-layer network: against JAX and PyTorch.

Each: value, gradient, Hessian-vector product by all four nestings of forward and reverse mode, and vmap of each, eager
and jitted.
"""

import numpy as np
import pytest

import wonderland as wl

pytestmark = pytest.mark.peers

RNG = np.random.default_rng(7)


def rnn(scan, xp):
    """Mean square of the states of an Elman network."""

    def f(params, xs):
        w, u, b = params

        def step(h, x):
            h = xp.tanh(h @ w + x @ u + b)
            return h, h

        h, hs = scan(step, xs[0, 0] * 0.0 + xp.zeros_like(b), xs)
        return xp.mean(hs * hs) + xp.sum(h)

    return f


def network(scan, xp):
    """A two-layer classifier's cross-entropy."""

    def f(params, x):
        w1, b1, w2, b2 = params
        logits = xp.tanh(x @ w1 + b1) @ w2 + b2
        m = xp.max(logits, axis=1, keepdims=True)
        log_sum = xp.log(xp.sum(xp.exp(logits - m), axis=1)) + m[:, 0]
        return xp.mean(log_sum - logits[:, 1])

    return f


def heron(while_loop, xp):
    """A square root by Newton's iteration, steps unrolled at run time."""

    def f(a):
        def far(s):
            return xp.abs(s[0] * s[0] - a) > 1e-12 * a

        return while_loop(far, lambda s: (0.5 * (s[0] + a / s[0]), s[1] + 1), (a + 1.0, 0))[0]

    return f


CASES = {
    "rnn": (
        rnn,
        tuple(0.5 * RNG.normal(size=s) for s in ((4, 4), (3, 4), (4,))),
        RNG.normal(size=(5, 6, 3)),
    ),
    "network": (
        network,
        tuple(0.5 * RNG.normal(size=s) for s in ((3, 8), (8,), (8, 5), (5,))),
        RNG.normal(size=(5, 7, 3)),
    ),
}


def hvps(grad, jvp, f, params, x, v):
    """Hessian-vector products by all four nestings of forward and reverse mode."""

    def directional(p):
        return jvp(lambda p: f(p, x), (p,), (v,))[1]

    def inner(p):
        g = grad(f)(p, x)
        return sum((a * b).sum() for a, b in zip(g, v, strict=True))

    return {
        "forward over reverse": lambda: jvp(lambda p: grad(f)(p, x), (params,), (v,))[1],
        "reverse over forward": lambda: grad(directional)(params),
        "reverse over reverse": lambda: grad(inner)(params),
        "forward over forward": lambda: jvp(directional, (params,), (v,))[1],
    }


def close(ours, theirs):
    ours, theirs = wl.core.tree.leaves(ours), wl.core.tree.leaves(theirs)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, np.asarray(b), rtol=1e-9, atol=1e-11)


RUNS = {"eager": lambda f: f, "jitted": wl.jit}  # each against the same result of the peer, which takes longest


@pytest.mark.parametrize("name", CASES)
def test_against_jax(name):
    jax = pytest.importorskip("jax")
    make, params, xs = CASES[name]
    v = tuple(np.cos(p) for p in params)

    def results(p, f, run):
        """Value, gradients, batches and Hessian-vector products, by the library `p`."""
        yield run(f)(params, xs[0])
        yield run(p.grad(f))(params, xs[0])
        yield run(p.grad(f, argnums=1))(params, xs[0])
        yield run(p.vmap(f, in_axes=(None, 0)))(params, xs)
        yield run(p.vmap(p.grad(f), in_axes=(None, 0)))(params, xs)
        yield from [run(product)() for product in hvps(p.grad, p.jvp, f, params, xs[0], v).values()]

    expected = list(results(jax, make(jax.lax.scan, jax.numpy), jax.jit))
    for run in RUNS.values():
        for mine, other in zip(results(wl, make(wl.scan, np), run), expected, strict=True):
            close(mine, other)


@pytest.mark.parametrize("nesting", range(4))
@pytest.mark.parametrize("name", CASES)
def test_vmapped_hessian_vector_products_against_jax(name, nesting):
    jax = pytest.importorskip("jax")
    make, params, xs = CASES[name]
    v = tuple(np.cos(p) for p in params)
    ours, theirs = make(wl.scan, np), make(jax.lax.scan, jax.numpy)

    def mine(x):
        return list(hvps(wl.grad, wl.jvp, ours, params, x, v).values())[nesting]()

    def other(x):
        return list(hvps(jax.grad, jax.jvp, theirs, params, x, v).values())[nesting]()

    expected = jax.jit(jax.vmap(other))(xs)
    for run in RUNS.values():
        close(run(wl.vmap(mine))(xs), expected)


def test_heron_against_jax_and_closed_forms():
    jax = pytest.importorskip("jax")
    ours, theirs = heron(wl.while_loop, np), heron(jax.lax.while_loop, jax.numpy)
    xs = np.array([2.0, 9.0, 1e-3, 1e5])
    value, batch = jax.jit(theirs)(2.0), jax.jit(jax.vmap(theirs))(xs)
    # JAX has forward mode of a while loop; reverse mode is ours alone.
    pushed = jax.jit(lambda a: jax.jvp(theirs, (a,), (1.0,)))(2.0)
    derivative = 0.5 / np.sqrt(xs)
    second = -0.25 * xs**-1.5
    for run in RUNS.values():
        close(run(ours)(2.0), value)
        close(run(wl.vmap(ours))(xs), batch)
        close(run(lambda a: wl.jvp(ours, (a,), (1.0,)))(2.0), pushed)
        for g in (wl.grad(ours), lambda a: wl.jvp(ours, (a,), (1.0,))[1]):
            np.testing.assert_allclose(run(wl.vmap(g))(xs), derivative, rtol=1e-9)
            np.testing.assert_allclose(run(wl.vmap(wl.grad(g)))(xs), second, rtol=1e-6)
            forward = lambda a, g=g: wl.jvp(g, (a,), (1.0,))[1]
            np.testing.assert_allclose(run(wl.vmap(forward))(xs), second, rtol=1e-6)


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_network_gradient_against_torch(run):
    torch = pytest.importorskip("torch")
    make, params, xs = CASES["network"]
    x = xs[0]
    ours = run(wl.grad(make(wl.scan, np)))(params, x)
    tensors = [torch.tensor(p, requires_grad=True) for p in params]
    w1, b1, w2, b2 = tensors
    logits = torch.tanh(torch.tensor(x) @ w1 + b1) @ w2 + b2
    torch.nn.functional.cross_entropy(logits, torch.ones(len(x), dtype=torch.long)).backward()
    close(ours, tuple(t.grad.numpy() for t in tensors))
