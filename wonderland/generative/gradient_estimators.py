"""Gradients of E_{z ~ q_phi} f(phi, z) with respect to phi, where z is drawn: the approaches of the notes (section 6).

Each function returns one estimate for each of M samples, like phi with a leading axis (M, ...): their mean is the
estimate, and their variance what an approach is judged by.

    0  numerical         differences of two Monte-Carlo means               `difference_gradient`
       score function    f(z) d log q_phi(z) + df: the distribution's part  `score_gradient`
    1  reparametrised    through z = g(phi, epsilon)                        `pathwise_gradient`
    2  analytic KL       of an ELBO, the same for log p(x | z) alone
    3  Gaussian          E df/dz and 1/2 E d2f/dz2 (Rezende et al. 2014)    `stochastic_backpropagation`

phi is an array, or a tree of arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland import random
from wonderland.core.errors import ArgumentError
from wonderland.generative.gaussians import diagonal_gaussian_kl, diagonal_log_density, standard_log_density
from wonderland.nn.arguments import floating
from wonderland.transform.curvature import hessian_diagonal
from wonderland.transform.derivatives import grad, stop_gradient
from wonderland.transform.vmap import vmap

Function = Callable[..., Any]
BASELINES = (None, "others")


def score_gradient(f: Function, phi: Any, z: Any, log_density: Function, baseline: Any = None) -> Any:
    """(f(phi, z_m) - b) d log q(phi, z_m) + df(phi, z_m): REINFORCE. No derivative by z, which may be discrete.

    z (M, ...) are samples of q_phi; `log_density(phi, z)` and `f(phi, z)` take one of them, and return a number. A
    baseline b changes no mean, since E d log q = 0, and may take away most of the variance: a number, or "others", the
    mean of f over the other samples. R. Williams 1992.
    """
    if isinstance(baseline, str) and baseline not in BASELINES:
        raise ArgumentError(f'a baseline is None, a number, or "others", got {baseline!r}')
    z = stop_gradient(z)
    values = vmap(lambda z: f(phi, z))(z)
    count = values.shape[0]
    if isinstance(baseline, str):
        if count < 2:
            raise ArgumentError('baseline="others" is the mean over the other samples: it takes at least two')
        values = (values - np.mean(values)) * (count / (count - 1))
    elif baseline is not None:
        values = values - baseline
    surrogate = lambda phi, z, value: value * log_density(phi, z) + f(phi, z)
    return vmap(grad(surrogate), in_axes=(None, 0, 0))(phi, z, stop_gradient(values))


def pathwise_gradient(f: Function, phi: Any, noise: Any, transform: Function) -> Any:
    """d/dphi f(phi, g(phi, epsilon_m)) for noise (M, ...) and g = `transform`: the reparametrisation trick."""
    return vmap(grad(lambda phi, epsilon: f(phi, transform(phi, epsilon))), in_axes=(None, 0))(phi, noise)


def difference_gradient(
    f: Function, phi: Any, noise: Any, transform: Function, step: float = 1e-2, other_noise: Any = None
) -> Any:
    """(F(phi + h e_i) - F(phi - h e_i)) / 2h with F by one sample each, of an array phi: needs no derivative at all.

    With the same noise in both it is about as good as the derivative, for 2 evaluations a number of phi; with
    `other_noise` in the second, as where samples can't be repeated, its variance grows as 1 / h^2.
    """
    phi = floating(phi, "difference_gradient: phi")
    unit = step * np.eye(phi.size, dtype=phi.dtype).reshape(phi.size, *phi.shape)
    value = lambda phi, epsilon: f(phi, transform(phi, epsilon))

    def one(epsilon: Any, other: Any) -> Any:
        up = vmap(lambda e: value(phi + e, epsilon))(unit)
        return ((up - vmap(lambda e: value(phi - e, other))(unit)) / (2 * step)).reshape(phi.shape)

    return vmap(one)(noise, noise if other_noise is None else other_noise)


def stochastic_backpropagation(f: Function, mean: Any, log_variance: Any, noise: Any) -> tuple[Any, Any]:
    """Gradients of E f(z), z ~ N(mean, diag exp log_variance), by f's own derivatives: (M, d) each, for noise (M, d).

        d/dmean_i E f = E df/dz_i                                 (Bonnet)
        d/dsigma_i^2 E f = 1/2 E d2f/dz_i2                        (Price), times sigma_i^2 for the log variance

    D. Rezende, S. Mohamed and D. Wierstra, Stochastic backpropagation, 2014.
    """
    mean, log_variance, noise = floating(mean), floating(log_variance), floating(noise)
    if not mean.shape == log_variance.shape == noise.shape[1:]:
        raise ArgumentError(
            f"stochastic_backpropagation takes means and log variances (d,) and noise (M, d), got {mean.shape}, "
            f"{log_variance.shape} and {noise.shape}"
        )
    z = mean + np.exp(0.5 * log_variance) * noise
    return vmap(grad(f))(z), 0.5 * np.exp(log_variance) * vmap(lambda z: hessian_diagonal(f, z))(z)


def compare_elbo_gradients(
    log_likelihood: Function, mean: Any, log_variance: Any, key: Any, samples: int = 1000, step: float = 0.1
) -> dict[str, Any]:
    """One-sample gradients of E_q log p(x | z) - KL(q || N(0, I)) by each approach: {name: (samples, 2, d)}.

    q = N(mean, diag exp log_variance) of d numbers; [:, 0] are derivatives by the mean, [:, 1] by the log variance.
    All have the same mean: compare `.var(axis=0)`. `log_likelihood(z)` is log p(x | z) of one z (d,).
    """
    mean, log_variance = floating(mean), floating(log_variance)
    phi = np.stack([mean, log_variance])
    noise = random.normal(key, (samples, mean.shape[0]), dtype=phi.dtype)
    other = random.normal(random.fold_in(key, 1), noise.shape, dtype=phi.dtype)
    transform = lambda phi, epsilon: phi[0] + np.exp(0.5 * phi[1]) * epsilon
    density = lambda phi, z: diagonal_log_density(z, phi[0], phi[1])
    whole = lambda phi, z: log_likelihood(z) + standard_log_density(z) - density(phi, z)
    z = transform(phi, noise)
    kl = grad(lambda phi: diagonal_gaussian_kl(phi[0], phi[1]))(phi)
    found = {
        "0: differences, new noise": difference_gradient(whole, phi, noise, transform, step, other),
        "0: score function": score_gradient(whole, phi, z, density),
        "0: score function, baseline": score_gradient(whole, phi, z, density, "others"),
        "1: reparametrised": pathwise_gradient(whole, phi, noise, transform),
        "2: with the KL divergence in closed form": pathwise_gradient(
            lambda phi, z: log_likelihood(z), phi, noise, transform
        ) - kl,
        "3: by first and second derivatives": np.stack(
            stochastic_backpropagation(log_likelihood, mean, log_variance, noise), axis=1
        ) - kl,
    }  # fmt: skip
    return found
