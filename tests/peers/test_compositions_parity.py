"""The realistic functions of `models`, and compositions of transformations on them, in JAX and PyTorch.

The same lines run in all three; derivatives agree to 1e-10 (relative to the largest number) in float64 and to 1e-5 in
float32, eager and jitted. Looser bounds say why.
"""

import models
import numpy as np
import pytest
from models import ARGUMENTS

import wonderland as wl
from wonderland.core import tree

pytestmark = pytest.mark.peers

DOUBLE, SINGLE = 1e-10, 1e-5
SMOOTH = ["gru", "gaussian_process", "fft_filter", "softmax_classifier", "hierarchical_rnn", "horner"]


class Peer:
    """What the tests need of a library: array namespace, loops, transformations, and arrays to and from NumPy."""

    def __init__(self, name):
        self.name = name
        if name == "wonderland":
            self.xp, self.scan, self.while_loop = np, wl.scan, wl.while_loop
            self.grad, self.jvp, self.vmap = wl.grad, wl.jvp, wl.vmap
            self.forward = lambda f, argnums=0: wl.jacobian(f, argnums, mode="forward")
            self.reverse = lambda f, argnums=0: wl.jacobian(f, argnums, mode="reverse")
            self.array, self.compiled = lambda x: x, wl.jit
        elif name == "jax":
            jax = pytest.importorskip("jax")
            self.xp, self.scan, self.while_loop = jax.numpy, jax.lax.scan, jax.lax.while_loop
            self.grad, self.jvp, self.vmap, self.forward, self.reverse = (
                jax.grad, jax.jvp, jax.vmap, jax.jacfwd, jax.jacrev,
            )  # fmt: skip
            self.array, self.compiled = jax.numpy.asarray, jax.jit  # eagerly, JAX compiles every operation by itself
        else:
            torch = pytest.importorskip("torch")
            self.xp, self.while_loop = torch, models.python_while

            def scan(f, init, xs):
                carry, ys = init, []
                for x in xs:
                    carry, y = f(carry, x)
                    ys.append(y)
                return carry, None if ys[0] is None else torch.stack(ys)

            self.scan = scan
            self.grad, self.jvp, self.vmap = torch.func.grad, torch.func.jvp, torch.func.vmap
            self.forward = lambda f, argnums=0: torch.func.jacfwd(f, argnums)
            self.reverse = lambda f, argnums=0: torch.func.jacrev(f, argnums)
            self.array, self.compiled = torch.tensor, lambda f: f

    def make(self, name):
        if (self.name, name) == ("torch", "gaussian_process"):
            # Reverse over forward mode of PyTorch's solve is wrong (2.13); of solve_triangular it is right.
            triangular = self.xp.linalg.solve_triangular
            return models.gaussian_process(self.xp, lambda a, b: triangular(a, b[:, None], upper=False)[:, 0])
        if name in ("gru", "horner", "hierarchical_rnn"):
            return getattr(models, name)(self.xp, self.scan)
        return getattr(models, name)(self.xp)

    def give(self, *values):
        return tree.tree_map(self.array, values)

    def inner(self, a, b):
        return sum((x * y).sum() for x, y in zip(tree.leaves(a), tree.leaves(b), strict=True))


OURS = Peer("wonderland")


@pytest.fixture(params=["jax", "torch"])
def peer(request):
    return Peer(request.param)


RUNS = {"eager": lambda f: f, "jitted": wl.jit}  # each against the same result of the peer, which takes longest


def close(ours, theirs, rtol=DOUBLE, what=""):
    found, wanted = tree.leaves(ours), tree.leaves(theirs)
    assert len(found) == len(wanted), what
    for a, b in zip(found, wanted, strict=True):
        b = np.asarray(b.detach().numpy() if hasattr(b, "detach") else b)
        assert np.shape(a) == b.shape and np.result_type(a) == b.dtype, what
        np.testing.assert_allclose(a, b, rtol=0, atol=rtol * max(float(np.max(np.abs(b))), 1e-2), err_msg=what)


def direction_of(params):
    return tree.tree_map(lambda p: np.cos(3 * np.asarray(p) + 1)[()], params)


def compositions(p, name, direction):
    """Compositions as functions of (params, *data), in the library `p`."""
    f = p.make(name)

    def along(q, *data):
        return p.jvp(lambda r: f(r, *data), (q,), (direction,))[1]

    def curvature(q, *data):
        return p.jvp(lambda r: p.grad(f)(r, *data), (q,), (direction,))[1]

    return {
        "grad": p.grad(f),
        "jvp(grad)": curvature,
        "grad(jvp)": p.grad(along),
        "grad(grad)": p.grad(lambda q, *data: p.inner(p.grad(f)(q, *data), direction)),
        "jvp(jvp)": lambda q, *data: p.jvp(lambda r: along(r, *data), (q,), (direction,))[1],
        "jvp(jvp(grad))": lambda q, *data: p.jvp(lambda r: curvature(r, *data), (q,), (direction,))[1],
        "grad(grad(grad))": p.grad(
            lambda q, *data: p.inner(p.grad(lambda r: p.inner(p.grad(f)(r, *data), direction))(q), direction)
        ),
    }


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("which", compositions(OURS, "gru", None))
def test_derivatives(name, which, peer):
    params, *data = ARGUMENTS[name]
    direction = direction_of(params)
    ours = compositions(OURS, name, direction)[which]
    theirs = peer.compiled(compositions(peer, name, *peer.give(direction))[which])
    expected = theirs(*peer.give(params, *data))
    close(ours(params, *data), expected, what="eager")
    if peer.name == "jax" and which in ("grad", "jvp(grad)", "grad(grad)"):
        close(wl.jit(ours)(params, *data), expected, what="jitted")


@pytest.mark.parametrize("name", SMOOTH)
def test_single_precision(name, peer):
    narrow = lambda x: np.asarray(x).astype(np.float32)[()]
    params, *data = tree.tree_map(narrow, ARGUMENTS[name])
    theirs = peer.compiled(peer.grad(peer.make(name)))(*peer.give(params, *data))
    for what, run in RUNS.items():
        ours = run(wl.grad(OURS.make(name)))(params, *data)
        # The factor's condition (150 here) multiplies the rounding errors, of each of us differently.
        close(ours, theirs, 1e-4 if name == "gaussian_process" else SINGLE, what)


def batched(name):
    params, *inputs, targets = ARGUMENTS[name]
    rolled = np.stack([np.roll(targets, i, axis=0) for i in range(3)])
    return params, *(np.stack([d, 0.9 * d, 1.1 * d]) for d in inputs), rolled


@pytest.mark.parametrize("name", [n for n in SMOOTH if n != "horner"])
def test_batches(name, peer):
    """vmap(grad), grad(vmap), jacobian(vmap) in both modes, vmap(jvp(grad))."""
    arguments = batched(name)
    axes = (None, *[0] * (len(arguments) - 1))
    direction = direction_of(arguments[0])

    def found(p, wrap, *args):
        f = p.make(name)
        losses = p.vmap(f, axes)
        curvature = compositions(p, name, *p.give(direction))["jvp(grad)"]
        return [
            wrap(g)(*args)
            for g in (
                p.vmap(p.grad(f), axes),
                p.grad(lambda *a: losses(*a).sum()),
                p.forward(losses),
                p.reverse(losses),
                p.vmap(curvature, axes),
            )
        ]

    expected = found(peer, peer.compiled, *peer.give(*arguments))
    for what, run in RUNS.items():
        close(found(OURS, run, *arguments), expected, what=what)


ODES = {
    "lotka_volterra": (models.lotka_volterra, models.DORMAND_PRINCE, 1e-8),
    "van_der_pol": (models.van_der_pol, models.BOGACKI_SHAMPINE, 1e-4),
}
# The steps' error estimate is a difference of almost equal numbers, which steers the step size: what is left of the
# rounding errors in it (1e-16 over the tolerance), times the effect of the step size, is what solutions may differ by.
STEERED = 1e-9


@pytest.mark.parametrize("name", ODES)
def test_ode_solver(name, peer):
    """Jacobians through a while loop. JAX has forward mode only, PyTorch unrolls the Python loop."""
    field, pair, tolerance = ODES[name]
    arguments = ARGUMENTS[name]
    ours, theirs = (models.adaptive_solution(p.xp, p.while_loop, field, pair, tolerance) for p in (OURS, peer))
    given = peer.give(*arguments)
    solution = peer.compiled(theirs)(*given)
    expected = peer.compiled((peer.forward if peer.name == "jax" else peer.reverse)(theirs, (0, 1, 2)))(*given)
    for what, run in RUNS.items():
        close(run(ours)(*arguments), solution, STEERED, what)
        close(run(OURS.reverse(ours, (0, 1, 2)))(*arguments), expected, STEERED, what)
    close(OURS.forward(ours, (0, 1, 2))(*arguments), expected, STEERED)


def test_second_derivatives_of_an_ode_solver():
    """Forward over forward in JAX (all it has), against every nesting of ours."""
    peer = Peer("jax")
    field, pair, tolerance = ODES["van_der_pol"]
    mu, y0, t_end = ARGUMENTS["van_der_pol"]
    ours, theirs = (
        lambda mu, p=p: (
            models.adaptive_solution(p.xp, p.while_loop, field, pair, tolerance)(mu, *p.give(y0, t_end)) ** 2
        ).sum()
        for p in (OURS, peer)
    )
    expected = peer.compiled(peer.forward(peer.forward(theirs)))(*peer.give(mu))
    for what, run in RUNS.items():
        close(run(wl.grad(wl.grad(ours)))(mu), expected, STEERED, what)
    close(wl.jvp(wl.grad(ours), (mu,), (1.0,))[1], expected, STEERED)
    close(wl.grad(lambda m: wl.jvp(ours, (m,), (1.0,))[1])(mu), expected, STEERED)


def test_vmap_of_an_ode_solver():
    """JAX's batched while loop, each element with its own number of steps; reverse mode against its forward mode."""
    peer = Peer("jax")
    field, pair, tolerance = ODES["van_der_pol"]
    mu, _, t_end = ARGUMENTS["van_der_pol"]
    starts = np.array([[1.0, 0.5], [-2.0, 0.1], [0.1, 3.0]])  # not at 0, where JAX says that abs has slope 1
    ours, theirs = (models.adaptive_solution(p.xp, p.while_loop, field, pair, tolerance) for p in (OURS, peer))
    axes = (None, 0, None)
    given = peer.give(mu, starts, t_end)
    for mine, other in (
        (wl.vmap(ours, axes), peer.vmap(theirs, axes)),
        (wl.vmap(OURS.reverse(ours, 1), axes), peer.vmap(peer.forward(theirs, 1), axes)),
        (OURS.reverse(wl.vmap(ours, axes)), peer.forward(peer.vmap(theirs, axes))),
    ):
        expected = peer.compiled(other)(*given)
        for what, run in RUNS.items():
            close(run(mine)(mu, starts, t_end), expected, STEERED, what)
