"""Fits of linear models against scikit-learn, defaults on both sides: 10^3 to 10^6 samples of 10 to 1,000 features.

10^6 samples of 1,000 features are left out: two contenders' copies of 8 GB don't fit into memory. A fit may take half
as long again as scikit-learn's at one size; over all sizes `bench.estimators` asks for a geometric mean of 0.7.
"""

from functools import partial

import numpy as np

from bench.registry import Benchmark

GROUP = "fits of estimators, float64"
SIZES = [(n, p) for n in (10**3, 10**4, 10**5, 10**6) for p in (10, 100, 1000) if n * p <= 10**8]
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
    X = rng.standard_normal((n, p))
    X += 0.5 * rng.standard_normal((n, 1))
    w = rng.standard_normal(p) * (rng.random(p) < 1 / 3)
    score = X @ (w / np.sqrt(np.sum(w**2) + np.sum(w) ** 2 / 4))
    X += rng.standard_normal(p)
    if kind == "logistic":
        return X, (rng.random(n) < 1 / (1 + np.exp(-2 * score))).astype(np.int64)
    if kind == "poisson":
        return X, rng.poisson(np.exp(0.5 * score)).astype(np.float64)
    return X, score + rng.standard_normal(n)


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
        benchmark = Benchmark(
            f"fit-{kind}-{n}x{p}", GROUP, f"{name}, {n} samples of {p} features", partial(make_inputs, kind, n, p),
            limit=1.5, float64=True, rtol=near, atol=near,
        )  # fmt: skip
        benchmark.contender("wonderland")(partial(ours, kind))
        benchmark.contender("sklearn")(partial(in_sklearn, kind))
