"""Fits of linear models against scikit-learn, defaults on both sides: 10^3 to 10^6 samples of 10 to 1,000 features.

10^6 samples of 1,000 features are in float32, 4 GB: in float64 scikit-learn's copies don't fit into 24 GB. A fit may
take half as long again as scikit-learn's at one size; over all `bench.estimators` asks for a geometric mean of 0.7.
"""

from functools import partial

import numpy as np

from bench.registry import Benchmark

GROUP = "fits of estimators"
SIZES = [(n, p) for n in (10**3, 10**4, 10**5, 10**6) for p in (10, 100, 1000)]
MOST = 10**8  # numbers in float64
# Names, settings, and how near coefficients must be. Iterative solvers stop at a derivative of 1e-4 unless told
# otherwise: of 1,000 x 1,000, logistic, ours is then 0.022 from the optimum and scikit-learn's 0.036.
MODELS = {
    "linear": ("LinearRegression", {}, 1e-6),
    "ridge": ("Ridge", {}, 1e-6),
    "lasso": ("Lasso", {"alpha": 0.05}, 5e-3),
    "logistic": ("LogisticRegression", {}, 5e-2),
    "poisson": ("PoissonRegressor", {"alpha": 1e-2, "max_iter": 1000}, 5e-2),
}


def make_inputs(kind, n, p):
    """A third of the features count; columns are correlated, shifted and scaled as those of tables are."""
    rng = np.random.default_rng(0)
    dtype = np.float64 if n * p <= MOST else np.float32
    X = rng.standard_normal((n, p), dtype)
    X += 0.5 * rng.standard_normal((n, 1), dtype)
    w = rng.standard_normal(p) * (rng.random(p) < 1 / 3)
    score = X @ (w / np.sqrt(np.sum(w**2) + np.sum(w) ** 2 / 4)).astype(dtype)
    X += rng.standard_normal(p, dtype)
    if kind == "logistic":
        return X, (rng.random(n) < 1 / (1 + np.exp(-2 * score))).astype(np.int64)
    if kind == "poisson":
        return X, rng.poisson(np.exp(0.5 * score)).astype(dtype)
    return X, (score + rng.standard_normal(n)).astype(dtype)


def fitted(models, kind, X, y):
    """A call that fits, and returns the coefficients."""
    name, settings, _ = MODELS[kind]
    model = getattr(models, name)(**settings)
    return lambda: np.ravel(model.fit(X, y).coef_)


def ours(kind, X, y):
    from wonderland import estimators

    return fitted(estimators, kind, X, y)


def in_sklearn(kind, X, y):
    from sklearn import linear_model

    return fitted(linear_model, kind, X, y)


for kind, (name, _, near) in MODELS.items():
    for n, p in SIZES:
        apart = near if n * p <= MOST else max(near, 1e-3)
        benchmark = Benchmark(
            f"fit-{kind}-{n}x{p}", GROUP, f"{name}, {n} samples of {p} features", partial(make_inputs, kind, n, p),
            limit=1.5, float64=True, rtol=apart, atol=apart,
        )  # fmt: skip
        benchmark.contender("wonderland")(partial(ours, kind))
        benchmark.contender("sklearn")(partial(in_sklearn, kind))
