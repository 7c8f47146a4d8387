"""`wl.random`: random numbers from keys, the same for the same key wherever and however they are drawn.

    key = wl.random.key(0)
    x = wl.random.normal(key, (3, 4))

Samplers take `(key, shape, *parameters, dtype=...)`: parameters broadcast to the shape, and without a shape the result
has theirs. `permutation` and `choice` take what they select from before anything else. Called without a key (the
other arguments by name), a sampler takes the next key of a global stream (`wl.random.seed(0)`).
"""

from wonderland.core.tracebacks import publish as _publish
from wonderland.random.discrete import (
    bernoulli,
    binomial,
    categorical,
    choice,
    multinomial,
    permutation,
    poisson,
    rademacher,
    randint,
)
from wonderland.random.gammas import beta, chisquare, dirichlet, gamma, loggamma, t
from wonderland.random.keys import GlobalStreamError, fold_in, key, next_key, seed, split
from wonderland.random.samplers import (
    bits,
    cauchy,
    exponential,
    gumbel,
    laplace,
    logistic,
    lognormal,
    multivariate_normal,
    normal,
    orthogonal,
    truncated_normal,
    uniform,
)

__all__ = [
    "GlobalStreamError", "bernoulli", "beta", "binomial", "bits", "categorical", "cauchy", "chisquare", "choice",
    "dirichlet", "exponential", "fold_in", "gamma", "gumbel", "key", "laplace", "loggamma", "logistic", "lognormal",
    "multinomial", "multivariate_normal", "next_key", "normal", "orthogonal", "permutation", "poisson", "rademacher",
    "randint", "seed", "split", "t", "truncated_normal", "uniform",
]  # fmt: skip

_publish(__name__, globals(), __all__)
