"""Generalised linear models against statsmodels: coefficients, errors, deviances, criteria, offsets and weights."""

import warnings

import numpy as np
import pytest

from wonderland.estimators import GLM

sm = pytest.importorskip("statsmodels.api")
families, links = sm.families, sm.families.links
pytestmark = pytest.mark.peers

RNG = np.random.default_rng(0)
N = 200
X = RNG.normal(size=(N, 3))
ETA = X @ np.array([0.3, -0.2, 0.1]) + 0.5
OFFSET, TIMES = RNG.uniform(-0.2, 0.2, N), RNG.integers(1, 4, N).astype(float)
YES = (RNG.random(N) < 1 / (1 + np.exp(-ETA))).astype(float)
CASES = [
    ("gaussian", None, {}, families.Gaussian(), ETA + RNG.normal(size=N)),
    ("gaussian", "log", {}, families.Gaussian(links.Log()), np.exp(ETA) + 0.1 * RNG.normal(size=N)),
    ("poisson", None, {}, families.Poisson(), RNG.poisson(np.exp(ETA))),
    ("poisson", "sqrt", {}, families.Poisson(links.Sqrt()), RNG.poisson((ETA + 3) ** 2)),
    ("poisson", "identity", {}, families.Poisson(links.Identity()), RNG.poisson(ETA + 4)),
    ("gamma", None, {}, families.Gamma(), RNG.gamma(3, 1 / (ETA + 3) / 3)),
    ("gamma", "log", {}, families.Gamma(links.Log()), RNG.gamma(3, np.exp(ETA) / 3)),
    ("gamma", "identity", {}, families.Gamma(links.Identity()), RNG.gamma(3, (ETA + 4) / 3)),
    ("inverse-gaussian", None, {}, families.InverseGaussian(), RNG.wald((ETA + 3) ** -0.5, 3.0)),
    ("inverse-gaussian", "log", {}, families.InverseGaussian(links.Log()), RNG.wald(np.exp(ETA), 3.0)),
    ("binomial", None, {}, families.Binomial(), YES),
    ("binomial", "probit", {}, families.Binomial(links.Probit()), YES),
    ("binomial", "cloglog", {}, families.Binomial(links.CLogLog()), YES),
    ("negative-binomial", None, {"dispersion": 0.7}, families.NegativeBinomial(alpha=0.7),
     RNG.negative_binomial(2, 0.4, N)),
    ("tweedie", None, {"power": 1.6}, families.Tweedie(var_power=1.6, link=links.Log()),
     np.where(RNG.random(N) < 0.3, 0, RNG.gamma(2, np.exp(ETA) / 2))),
]  # fmt: skip


@pytest.mark.parametrize("more", [False, True], ids=["plain", "offset and weights"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_the_numbers_of_statsmodels(case, more):
    family, link, settings, theirs, y = case
    offset, weight = (OFFSET, TIMES) if more else (None, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        design = np.column_stack([X, np.ones(N)])
        fit = sm.GLM(y.astype(float), design, theirs, offset=offset, freq_weights=weight).fit(
            tol=1e-14, tol_criterion="params", maxiter=300
        )
        numbers = [fit.deviance, fit.null_deviance, fit.pearson_chi2, fit.scale, fit.llf, fit.aic, fit.bic_llf]
    model = GLM(family, link=link, tol=1e-11, **settings).fit(X, y, weight, offset=offset)
    assert np.allclose([*model.coef_, model.intercept_], fit.params, rtol=0, atol=1e-6)
    assert np.allclose(model.standard_errors_, fit.bse, rtol=1e-6)
    found = model.statistics_
    ours = [
        found.deviance, found.null_deviance, found.pearson_chi2, found.scale, found.log_likelihood, found.aic,
        found.bic,
    ]  # fmt: skip
    assert np.allclose(ours, numbers, rtol=1e-6) and found.df_resid == fit.df_resid
