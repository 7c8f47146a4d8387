"""Linear algebra and Fourier transforms against PyTorch and JAX: values, gradients, Hessian-vector products.

PyTorch has our convention for complex gradients, JAX its conjugate. Losses of eigenvectors and singular vectors don't
depend on their phases, which each library chooses.
"""

import numpy as np
import pytest

import wonderland as wl
from wonderland.scipy import linalg as wsl

pytestmark = pytest.mark.peers

RNG = np.random.default_rng(11)
A = RNG.normal(size=(4, 4)) + np.diag([1.0, 3.0, 5.0, 7.0])
C = A + 1j * RNG.normal(size=(4, 4))
TALL, WIDE = RNG.normal(size=(5, 3)), RNG.normal(size=(3, 5))
W = RNG.normal(size=(5, 5))


def sized(w, x):
    return w[: x.shape[-2], : x.shape[-1]]


def adjoint(xp, x):
    return xp.conj(x).T if xp.__name__ != "torch" else x.mH


def spd(xp, x):
    return x @ adjoint(xp, x) + xp.eye(x.shape[0])


def real_sum(xp, w, x):
    return xp.sum(xp.real(x) * w + xp.abs(x) ** 2)


LOSSES = {
    "cholesky": lambda xp, x, w: real_sum(xp, sized(w, x), xp.linalg.cholesky(spd(xp, x))),
    "inv": lambda xp, x, w: real_sum(xp, sized(w, x), xp.linalg.inv(x)),
    "solve": lambda xp, x, w: real_sum(xp, sized(w, x), xp.linalg.solve(x, adjoint(xp, x) @ x)),
    "slogdet": lambda xp, x, w: xp.real(xp.linalg.slogdet(x)[1]) ** 2,
    "det": lambda xp, x, w: xp.abs(xp.linalg.det(x)) ** 2,
    "eigvalsh": lambda xp, x, w: xp.sum(xp.sin(xp.linalg.eigvalsh(x + adjoint(xp, x)))),
    "eigh": lambda xp, x, w: xp.sum(sized(w, x) * xp.abs(xp.linalg.eigh(x + adjoint(xp, x))[1]) ** 2),
    "svdvals": lambda xp, x, w: xp.sum(xp.sin(xp.linalg.svdvals(x))),
    "fro": lambda xp, x, w: xp.linalg.norm(x) ** 3,
    "nuc": lambda xp, x, w: xp.linalg.norm(x, "nuc") ** 2,
    "spectral": lambda xp, x, w: xp.linalg.norm(x, 2) ** 2,
    "fft": lambda xp, x, w: real_sum(xp, sized(w, x), xp.fft.fft(x)),
    "ifft2": lambda xp, x, w: real_sum(xp, sized(w, x), xp.fft.ifft2(x)),
}


def svd_loss(xp, x, w):
    u, s, vh = xp.linalg.svd(x, full_matrices=False)
    return xp.sum(sized(w, u) * xp.abs(u) ** 2) + xp.sum(sized(w, vh) * xp.abs(vh) ** 2) + xp.sum(s**3)


def qr_loss(xp, x, w):
    q, r = xp.linalg.qr(x)
    return real_sum(xp, sized(w, q), q * r[0, 0]) + real_sum(xp, sized(w, r), r)


def pinv_loss(xp, x, w):
    p = xp.linalg.pinv(x)
    return real_sum(xp, sized(w, p), p)


def eig_loss(xp, x, w):
    values, vectors = xp.linalg.eig(x)
    return xp.sum(xp.abs(values) ** 3) + xp.sum(sized(w, x) * xp.abs(vectors) ** 2)


CASES = {
    **{f"{name} {kind}": (f, x) for name, f in LOSSES.items() for kind, x in (("real", A), ("complex", C))},
    "svd real": (svd_loss, A), "svd complex": (svd_loss, C), "svd tall": (svd_loss, TALL), "svd wide": (svd_loss, WIDE),
    "qr real": (qr_loss, A), "qr complex": (qr_loss, C), "qr tall": (qr_loss, TALL),
    "pinv tall": (pinv_loss, TALL), "pinv wide": (pinv_loss, WIDE), "pinv complex": (pinv_loss, C),
    "eig complex": (eig_loss, C),
    "rfft": (lambda xp, x, w: real_sum(xp, w[:4, :3], xp.fft.rfft(x)), A),
    "irfft": (lambda xp, x, w: xp.sum(xp.sin(xp.fft.irfft(x, 7))), C),
    "hfft": (lambda xp, x, w: xp.sum(xp.sin(xp.fft.hfft(x))), C),
    "rfft2 ortho": (lambda xp, x, w: real_sum(xp, w[:4, :3], xp.fft.rfft2(x, norm="ortho")), A),
}  # fmt: skip
T = {name: RNG.normal(size=x.shape) + (1j * RNG.normal(size=x.shape) if x.dtype.kind == "c" else 0)
     for name, (_, x) in CASES.items()}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_gradient_and_hessian_vector_product_like_pytorch(name):
    torch = pytest.importorskip("torch")
    loss, x = CASES[name]
    t, w = T[name], torch.from_numpy(W)
    gradient = wl.grad(lambda x: loss(np, x, W))
    point = torch.tensor(x, requires_grad=True)
    value = loss(torch, point, w)
    (first,) = torch.autograd.grad(value, point, create_graph=True)
    (second,) = torch.autograd.grad(torch.sum(torch.real(torch.conj(first) * torch.tensor(t))), point)
    assert loss(np, x, W) == pytest.approx(value.item())
    np.testing.assert_allclose(gradient(x), first.detach().resolve_conj().numpy(), rtol=1e-8, atol=1e-8)
    found = wl.jvp(gradient, (x,), (t,))[1]
    np.testing.assert_allclose(found, second.resolve_conj().numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in CASES if name != "eig complex"])  # which JAX refuses
def test_gradient_like_jax(name):
    jax = pytest.importorskip("jax")
    loss, x = CASES[name]
    first = np.conj(jax.jit(jax.grad(lambda x: loss(jax.numpy, x, W)))(x))
    np.testing.assert_allclose(wl.grad(lambda x: loss(np, x, W))(x), first, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(wl.jit(wl.grad(lambda x: loss(np, x, W)))(x), first, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("x", [A / 5, C / 5], ids=["real", "complex"])
def test_expm_and_triangular_solve_like_pytorch_and_jax(x):
    torch = pytest.importorskip("torch")
    jax = pytest.importorskip("jax")
    weights = W[:4, :4]
    ours = wl.grad(lambda x: np.sum(np.real(wsl.expm(x)) * weights))(x)
    point = torch.tensor(x, requires_grad=True)
    torch.sum(torch.real(torch.matrix_exp(point)) * torch.from_numpy(weights)).backward()
    np.testing.assert_allclose(ours, point.grad.resolve_conj().numpy(), rtol=1e-9, atol=1e-9)

    f = lambda solve, xp: lambda x, lower: xp.sum(xp.real(solve(x, x @ x, lower=lower)) * weights)
    for lower in (True, False):
        theirs = np.conj(
            jax.jit(jax.grad(f(jax.scipy.linalg.solve_triangular, jax.numpy)), static_argnums=1)(x * 5, lower)
        )
        np.testing.assert_allclose(wl.grad(f(wsl.solve_triangular, np))(x * 5, lower), theirs, rtol=1e-8, atol=1e-8)


def test_gaussian_log_likelihood_like_jax():
    """Batched: vmap of the gradient and the Hessian of a Cholesky-based log-likelihood."""
    jax = pytest.importorskip("jax")
    points = RNG.normal(size=(6, 4))

    def likelihood(xp, solve_triangular):
        def f(x, y):
            cov = xp.exp(-((x[:, None] - x[None, :]) ** 2)) + 0.1 * xp.eye(4)
            factor = xp.linalg.cholesky(cov)
            z = solve_triangular(factor, y, lower=True)
            return 0.5 * z @ z + xp.sum(xp.log(xp.diagonal(factor)))

        return f

    y = RNG.normal(size=4)
    ours, theirs = likelihood(np, wsl.solve_triangular), likelihood(jax.numpy, jax.scipy.linalg.solve_triangular)
    expected = jax.jit(jax.vmap(jax.grad(theirs), (0, None)))(points, y)
    np.testing.assert_allclose(wl.vmap(wl.grad(ours), (0, None))(points, y), expected, rtol=1e-8, atol=1e-8)
    expected = jax.jit(jax.hessian(theirs))(points[0], y)
    np.testing.assert_allclose(wl.jacobian(wl.grad(ours))(points[0], y), expected, rtol=1e-7, atol=1e-7)
