"""Generalised linear models: the numbers of statsmodels, R and scikit-learn, derivatives, data without a best fit."""

import pickle
import warnings

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_ndtr, ndtr
from sklearn import linear_model as oracle
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import d2_tweedie_score
from sklearn.utils.estimator_checks import check_estimator

import wonderland as wl
from wonderland.estimators import (
    GLM,
    GammaRegressor,
    LogisticRegression,
    PoissonRegressor,
    ProbitClassifier,
    TweedieRegressor,
)
from wonderland.estimators.families import FAMILIES
from wonderland.estimators.links import LINKS, link_of

SOLVERS = ["auto", "newton-cholesky", "newton-cg", "lbfgs"]
X = np.column_stack([np.arange(12) / 4, np.tile([1.0, -1.0, 0.5], 4)])
COUNTS = np.array([2, 0, 3, 1, 4, 2, 6, 3, 5, 9, 7, 12.0])
POSITIVE = np.array([1.3, 0.9, 1.8, 1.1, 2.5, 2.1, 3.9, 2.2, 3.1, 5.4, 4.4, 7.7])
YES = np.array([0, 0, 1, 0, 0, 1, 1, 0, 1, 1, 0, 1.0])

# Family, link, parameters, y; coefficients and intercept, their errors; deviance, null deviance, chi^2, scale,
# log-likelihood, AIC, BIC: by statsmodels 0.15.0, GLM(...).fit(tol=1e-14, tol_criterion="params").
STATSMODELS = [
    ("gaussian", None, {}, POSITIVE, [1.9556395, 0.457056125, 0.268152995], [0.345454518, 0.350810721, 0.566387506],
     [9.56833446, 44.6666667, 9.56833446, 1.06314827, -15.6685774, 37.3371548, 38.7918748]),
    ("gaussian", "log", {}, POSITIVE, [0.748838557, 0.196292799, -0.17506736],
     [0.0914240899, 0.0767574461, 0.214097346],
     [3.91704793, 44.6666667, 3.91704793, 0.435227548, -10.5359447, 27.0718894, 28.5266093]),
    ("poisson", None, {}, COUNTS, [0.812406802, 0.213195853, 0.107515502], [0.180470164, 0.175752431, 0.378240875],
     [7.26295539, 31.4045578, 6.35214333, 1, -21.5378328, 49.0756656, 50.5303856]),
    ("gamma", None, {}, POSITIVE, [-0.224014265, -0.0450869019, 0.755060343],
     [0.0349480956, 0.0348231794, 0.0831543688],
     [0.755137869, 4.65511396, 0.749043771, 0.0832270857, -11.7183755, 29.436751, 30.8914709]),
    ("gamma", "log", {}, POSITIVE, [0.653701902, 0.125894344, 0.025442949], [0.0914729846, 0.092891255, 0.149973884],
     [0.709593889, 4.65511396, 0.670872968, 0.0745414409, -11.2715057, 28.5430114, 29.9977314]),
    ("inverse-gaussian", None, {}, YES + 2, [-0.0308380069, -0.0522479837, 0.2219289],
     [0.016906416, 0.0200360716, 0.031970272],
     [0.0938606539, 0.2, 0.0933613708, 0.0103734856, -4.26614986, 14.5322997, 15.9870197]),
    ("inverse-gaussian", "log", {}, POSITIVE, [0.640230132, 0.118263414, 0.0427427258],
     [0.103503649, 0.0920627991, 0.127129437],
     [0.367144118, 1.84099926, 0.32367355, 0.0359637278, -12.6627455, 31.3254911, 32.780211]),
    ("binomial", None, {}, YES, [2.20553215, 2.94648122, -3.70974589], [1.5104135, 1.73937051, 2.45528931],
     [8.13212852, 16.6355323, 7.22780742, 1, -4.06606426, 14.1321285, 15.5868485]),
    ("binomial", "probit", {}, YES, [1.30666012, 1.76895888, -2.20202475], [0.837505137, 0.953445213, 1.38460318],
     [7.98315943, 16.6355323, 7.03385791, 1, -3.99157971, 13.9831594, 15.4378794]),
    ("binomial", "cloglog", {}, YES, [1.63739219, 2.06177382, -3.23718989], [1.06804356, 1.19065225, 1.88764577],
     [7.86505808, 16.6355323, 7.06032893, 1, -3.93252904, 13.8650581, 15.319778]),
    ("negative-binomial", None, {"dispersion": 0.5}, COUNTS, [0.797784251, 0.214797866, 0.132962604],
     [0.31085248, 0.313030347, 0.562748891],
     [3.96302357, 11.4597029, 2.99150756, 1, -26.4394744, 58.8789488, 60.3336687]),
    ("tweedie", None, {"power": 1.5}, COUNTS, [0.805444691, 0.222199811, 0.118114644],
     [0.171313336, 0.175503228, 0.323227933],
     [7.38386411, 18.9432379, 4.3990721, 0.488785788, -25.256283, 56.512566, 57.9672859]),
]  # fmt: skip


@pytest.fixture(autouse=True)
def warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def numbers_of(found):
    return [
        found.deviance, found.null_deviance, found.pearson_chi2, found.scale, found.log_likelihood, found.aic,
        found.bic,
    ]  # fmt: skip


@pytest.mark.parametrize(("family", "link", "settings", "y", "w", "errors", "numbers"), STATSMODELS)
def test_the_numbers_of_statsmodels(family, link, settings, y, w, errors, numbers):
    model = GLM(family, link=link, tol=1e-10, **settings).fit(X, y)
    assert np.allclose([*model.coef_, model.intercept_], w, rtol=1e-6)
    assert np.allclose(model.standard_errors_, errors, rtol=1e-6)
    assert np.allclose(numbers_of(model.statistics_), numbers, rtol=1e-6)
    assert model.statistics_.df_resid == 9


def test_the_numbers_of_r():
    """Dobson (1990): randomised controlled trial, `example(glm)`."""
    counts = np.array([18, 17, 15, 20, 10, 20, 25, 13, 12])
    outcome, treatment = np.tile([0, 1, 2], 3), np.repeat([0, 1, 2], 3)
    design = np.column_stack([outcome == 1, outcome == 2, treatment == 1, treatment == 2]).astype(float)
    model = GLM("poisson", tol=1e-10).fit(design, counts)
    assert np.allclose(model.coef_, [-0.4542553, -0.2929871, 0, 0], atol=5e-8)
    assert np.isclose(model.intercept_, 3.044522, atol=5e-7)
    assert np.allclose(model.standard_errors_, [0.2022, 0.1927, 0.2, 0.2, 0.1709], atol=5e-5)
    found = model.statistics_
    assert np.isclose(found.deviance, 5.1291, atol=5e-5) and np.isclose(found.null_deviance, 10.5814, atol=5e-5)
    assert np.isclose(found.aic, 56.76, atol=5e-3)


def many(n=150, p=4, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, p)) @ rng.normal(size=(p, p)) / 3 + 0.3
    eta = A @ rng.normal(size=p) / 2
    weight = rng.uniform(0.5, 2, n)
    return A, rng.poisson(np.exp(eta)).astype(float), rng.gamma(2, np.exp(eta) / 2) + 1e-3, weight


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("settings", [{}, {"alpha": 1e-3}, {"alpha": 0.1, "fit_intercept": False}], ids=str)
def test_coefficients_are_scikit_learns(solver, settings):
    A, counts, positive, weight = many()
    ours = {"solver": solver, "tol": 1e-10, "max_iter": 2000, **settings}
    theirs = {"solver": "newton-cholesky", "tol": 1e-12, "max_iter": 2000, **settings}
    pairs = [
        (PoissonRegressor(**ours), oracle.PoissonRegressor(**theirs), counts),
        (GammaRegressor(**ours), oracle.GammaRegressor(**theirs), positive),
        (TweedieRegressor(power=1.5, **ours), oracle.TweedieRegressor(power=1.5, **theirs), counts),
        (TweedieRegressor(power=3, **ours), oracle.TweedieRegressor(power=3, **theirs), positive),
        (TweedieRegressor(**ours), oracle.TweedieRegressor(**theirs), positive - 2),
        (TweedieRegressor(link="log", **ours), oracle.TweedieRegressor(link="log", **theirs), positive - 0.5),
    ]
    for model, other, y in pairs:
        model.fit(A, y, weight)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # where the loss isn't convex it resorts to another solver
            other.fit(A, y, weight)
        assert np.allclose(model.coef_, other.coef_, rtol=0, atol=1e-6), model
        assert np.isclose(model.intercept_, other.intercept_, rtol=0, atol=1e-6), model
        assert np.allclose(model.predict(A), other.predict(A), rtol=1e-5, atol=1e-6)
        assert np.isclose(model.score(A, y, weight), other.score(A, y, weight), rtol=1e-6), model


def test_named_regressors_are_glms():
    A, counts, positive, weight = many()
    for named, general, y in [
        (PoissonRegressor(alpha=0.2), GLM("poisson", alpha=0.2), counts),
        (GammaRegressor(alpha=0.2), GLM("gamma", link="log", alpha=0.2), positive),
        (TweedieRegressor(power=1.7, alpha=0.2), GLM("tweedie", power=1.7, alpha=0.2), counts),
    ]:
        assert np.allclose(named.fit(A, y, weight).coef_, general.fit(A, y, weight).coef_, atol=1e-4)
    lines = GLM().fit(A, positive)
    assert np.allclose(
        [*lines.coef_, lines.intercept_], np.linalg.lstsq(np.column_stack([A, np.ones(150)]), positive)[0]
    )


def test_a_binomial_glm_is_logistic_regression():
    A, counts, _, weight = many()
    y = (counts > 1).astype(float)
    model = GLM("binomial", tol=1e-10).fit(A, y, weight)
    logistic = LogisticRegression(C=np.inf, tol=1e-10).fit(A, y, weight)
    assert np.allclose(model.coef_, logistic.coef_[0]) and np.allclose(
        model.predict(A), logistic.predict_proba(A)[:, 1]
    )
    assert np.allclose(model.covariance_, logistic.covariance_, rtol=1e-6)
    shares = GLM("binomial", tol=1e-10).fit(A, (y + 1) / 3)
    assert np.allclose(shares.predict(A).mean(), ((y + 1) / 3).mean())


@pytest.mark.parametrize("name", ["poisson", "binomial", "gamma", "inverse-gaussian", "negative-binomial"])
@pytest.mark.parametrize("link", sorted(LINKS))
def test_links_and_losses_have_the_derivatives_of_their_formulas(name, link):
    """The loss of predictors against -log p of the mean, by differences, up to what depends on y alone."""
    bounds = {"log": (-2.0, -0.1), "identity": (0.1, 0.9), "sqrt": (0.3, 0.95), "inverse": (1.1, 4.0),
              "inverse-squared": (1.1, 4.0)}.get(link, (-2.0, 1.5))  # fmt: skip
    eta = np.linspace(*bounds, 7)
    mean = np.asarray(LINKS[link].inverse(eta))
    assert np.allclose(LINKS[link].function(mean), eta)
    numbers = (0.8,) if name == "negative-binomial" else ()
    y = {"binomial": 0.3}.get(name, 2.0)
    family = FAMILIES[name]
    from wonderland.estimators.families import loss_of

    loss = loss_of(family, LINKS[link])
    of_mean = lambda e: family.deviance(y, np.asarray(LINKS[link].inverse(e)), *numbers) / 2
    h = 1e-5
    slope = wl.jvp(lambda e: loss(e, y, *numbers), (eta,), (np.ones(7),))[1]
    assert np.allclose(slope, (of_mean(eta + h) - of_mean(eta - h)) / (2 * h), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("eta", [-800.0, -40.0, 40.0, 800.0])
@pytest.mark.parametrize("link", ["logit", "probit"])
def test_losses_and_derivatives_of_probabilities_are_exact_far_out(link, eta):
    from wonderland.estimators.families import loss_of

    loss = loss_of(FAMILIES["binomial"], LINKS[link])
    value, slope = wl.value_and_grad(lambda e: loss(e, 1.0))(eta)
    log_p = {"logit": stats.logistic.logcdf, "probit": log_ndtr}[link](eta)
    assert np.isclose(value, -log_p, rtol=1e-12)
    density = {"logit": stats.logistic.logpdf, "probit": stats.norm.logpdf}[link](eta)
    assert np.isclose(slope, -np.exp(density - log_p), rtol=1e-9, atol=1e-300)


def test_densities_are_scipys():
    y, mean, scale = np.array([1.0, 2.0, 5.0]), np.array([1.5, 2.5, 3.0]), 0.4
    log_p = lambda name, *numbers: FAMILIES[name].log_density(y, mean, scale, *numbers)
    assert np.allclose(log_p("gaussian"), stats.norm(mean, np.sqrt(scale)).logpdf(y))
    assert np.allclose(log_p("poisson"), stats.poisson(mean).logpmf(y))
    assert np.allclose(log_p("gamma"), stats.gamma(1 / scale, scale=mean * scale).logpdf(y))
    assert np.allclose(log_p("inverse-gaussian"), stats.invgauss(mean * scale, scale=1 / scale).logpdf(y))
    assert np.allclose(log_p("negative-binomial", 0.7), stats.nbinom(1 / 0.7, 1 / (1 + 0.7 * mean)).logpmf(y))
    binomial = FAMILIES["binomial"].log_density(np.array([0.0, 1.0]), np.array([0.2, 0.7]), 1.0)
    assert np.allclose(binomial, np.log([0.8, 0.7]))
    # A Poisson number of gamma variables, summed over the number.
    p, k = 1.5, np.arange(1, 200)[:, None]
    rate, shape, width = mean ** (2 - p) / scale / (2 - p), (2 - p) / (p - 1), scale * (p - 1) * mean ** (p - 1)
    sums = np.sum(stats.poisson(rate).pmf(k) * stats.gamma(k * shape, scale=width).pdf(y), axis=0)
    assert np.allclose(log_p("tweedie", p), np.log(sums))
    assert np.allclose(FAMILIES["tweedie"].log_density(np.zeros(3), mean, scale, p), -rate)


def test_exposure_multiplies_means():
    A, counts, _, _ = many()
    years = np.linspace(0.5, 3, 150)
    model = GLM("poisson", tol=1e-10).fit(A, counts, exposure=years)
    same = GLM("poisson", tol=1e-10).fit(A, counts, offset=np.log(years))
    rates = GLM("poisson", tol=1e-10).fit(A, counts / years, years)  # the weights of rates
    assert np.allclose(model.coef_, same.coef_) and np.allclose(model.coef_, rates.coef_)
    assert np.allclose(model.predict(A, exposure=years), years * model.predict(A))
    assert np.allclose(model.predict(A, offset=np.log(years)), years * model.predict(A))
    with pytest.raises(ValueError, match="exposure multiplies means by a log link; this link is 'sqrt'"):
        GLM("poisson", link="sqrt").fit(A, counts, exposure=years)
    with pytest.raises(ValueError, match="exposure is above 0"):
        GLM("poisson").fit(A, counts, exposure=years - 1)
    with pytest.raises(ValueError, match=r"offset has one finite number for each sample, shape \(150,\), got \(149,\)"):
        GLM("poisson").fit(A, counts, offset=years[1:])


def test_a_link_and_a_loss_of_ones_own():
    A, counts, positive, weight = many()
    own = GLM("poisson", link=(np.log, np.exp), tol=1e-10).fit(A, counts, weight)
    named = GLM("poisson", tol=1e-10).fit(A, counts, weight)
    assert np.allclose(own.coef_, named.coef_) and np.allclose(own.standard_errors_, named.standard_errors_)
    loss = GLM(lambda eta, y: np.exp(eta) - y * eta, link="log", tol=1e-10).fit(A, counts, weight)
    assert np.allclose(loss.coef_, named.coef_) and np.allclose(loss.predict(A), named.predict(A))
    assert np.allclose(loss.covariance_, named.covariance_, rtol=1e-6)  # of a canonical link, both informations are one
    with pytest.raises(AttributeError, match="a loss of one's own has none"):
        loss.statistics_.deviance  # noqa: B018
    with pytest.raises(AttributeError, match="name a family"):
        loss.score(A, counts)
    assert "a loss of its own, link log" in loss.summary()
    robust = GLM(lambda eta, y: np.log(np.cosh(eta - y)), tol=1e-10).fit(A, positive)
    residual = np.tanh(positive - robust.predict(A))
    assert np.allclose(residual @ A, 0, atol=1e-6) and np.isclose(residual.sum(), 0, atol=1e-6)


def test_bounded_predictors_stay_inside():
    """Links whose means are positive for some predictors only; without an intercept a start has to be found."""
    A = np.abs(many()[0]) + 0.2
    rng = np.random.default_rng(0)
    mean = A @ np.array([0.3, 0.5, 0.2, 0.4])
    counts = rng.poisson(mean).astype(float)
    model = GLM("poisson", link="identity", fit_intercept=False).fit(A, counts)
    assert np.all(model.predict(A) > 0)
    assert np.allclose((counts / model.predict(A) - 1) @ A, 0, atol=1e-3)
    gamma = GLM("gamma", fit_intercept=False).fit(A, rng.gamma(3, 1 / mean / 3))
    assert np.all(gamma.predict(A) > 0)
    with pytest.raises(ValueError, match=r"no start was found .* use link='log'"):
        GLM("gamma", fit_intercept=False).fit(np.array([[1.0], [-1.0], [1.0], [-1.0]]), np.ones(4))


# -- derivatives


@pytest.mark.parametrize(
    "model",
    [PoissonRegressor(alpha=0.1), GLM("gamma", link="log", alpha=0.1), GLM("binomial", link="probit", alpha=0.1)],
    ids=str,
)
def test_derivatives_of_coefficients(model):
    rng = np.random.default_rng(5)
    A = rng.normal(size=(25, 3))
    y, weight = rng.uniform(0.2, 0.8, 25), rng.uniform(0.5, 2, 25)
    dA, dy, dweight = rng.normal(size=A.shape), 0.1 * rng.normal(size=25), rng.normal(size=25)

    def along(t):
        coef, intercept = model.coefficients(A + t * dA, y + t * dy, weight + t * dweight, alpha=0.3 + t)
        return np.append(coef, intercept)

    refitted = (along(1e-4) - along(-1e-4)) / 2e-4
    assert np.allclose(wl.jvp(along, (0.0,), (1.0,))[1], refitted, rtol=1e-5, atol=1e-7)
    assert np.isclose(wl.grad(lambda t: np.sum(along(t) ** 2))(0.0), 2 * along(0.0) @ refitted, rtol=1e-5)


@pytest.mark.parametrize("family", [("poisson", None), ("gamma", None), ("binomial", "cloglog")], ids=str)
def test_derivatives_of_predictions(family):
    model = GLM(family[0], link=family[1]).fit(X, {"binomial": YES}.get(family[0], POSITIVE))
    there = model.input_gradient(X[:5])
    assert there.shape == (5, 2)
    for j in range(2):
        h = 1e-6 * np.eye(2)[j]
        assert np.allclose(there[:, j], (model.predict(X[:5] + h) - model.predict(X[:5] - h)) / 2e-6, rtol=1e-6)


# -- probit


def test_probit_is_the_binomial_glm_with_its_link():
    A, counts, _, weight = many()
    y = np.where(counts > 1, "many", "few")
    model = ProbitClassifier(C=np.inf, tol=1e-10).fit(A, y, weight)
    glm = GLM("binomial", link="probit", tol=1e-10).fit(A, (y == "many").astype(float), weight)
    assert np.allclose(model.coef_[0], glm.coef_) and np.isclose(model.intercept_[0], glm.intercept_)
    assert np.allclose(model.predict_proba(A)[:, 1], glm.predict(A)) and model.classes_.tolist() == ["few", "many"]
    scores = model.decision_function(A)
    assert np.allclose(model.predict_proba(A), np.column_stack([ndtr(-scores), ndtr(scores)]))
    far = A * 1e4
    assert np.all(np.isfinite(model.predict_log_proba(far))) and model.predict_log_proba(far).min() < -1e6
    there = model.input_gradient(A[:3])[:, 1]
    assert np.allclose(there, stats.norm.pdf(scores[:3])[:, None] * model.coef_)


def test_probit_wants_two_classes_and_warns_of_separation():
    with pytest.raises(ValueError, match="got 3 classes; use LogisticRegression"):
        ProbitClassifier().fit(X, np.arange(12) % 3)
    with pytest.warns(ConvergenceWarning, match="separates the classes"):
        ProbitClassifier(C=np.inf).fit(X, X[:, 0] > 1)
    assert ProbitClassifier().fit(X, X[:, 0] > 1).score(X, X[:, 0] > 1) == 1


# -- what it reports


def test_summary_has_the_table():
    import pandas as pd

    frame = pd.DataFrame(X, columns=["year", "group"])
    text = GLM("poisson").fit(frame, COUNTS).summary()
    assert text.splitlines()[0] == "GLM: poisson, link log"
    assert "samples 12   parameters 3" in text and "deviance 7.26296   null deviance 31.4046   df 9" in text
    assert "log-likelihood -21.5378   AIC 49.0757   BIC 50.5304" in text
    row = next(line for line in text.splitlines() if line.startswith("year"))
    assert row.split() == ["year", "0.81241", "0.18047", "4.502", "0.000", "0.45869", "1.1661"]
    assert "intercept" in text and "alpha" not in text
    assert "alpha 0.1" in PoissonRegressor(alpha=0.1).fit(X, COUNTS).summary()
    with pytest.raises(ValueError, match="confidence is a number between 0 and 1"):
        GLM().fit(X, COUNTS).summary(95)


def test_weights_count_samples():
    times = np.tile([1, 2, 0], 4)
    weighted = GLM("gamma", link="log", tol=1e-10).fit(X, POSITIVE, times.astype(float))
    repeated = GLM("gamma", link="log", tol=1e-10).fit(np.repeat(X, times, axis=0), np.repeat(POSITIVE, times))
    assert np.allclose(weighted.coef_, repeated.coef_)
    assert weighted.statistics_.df_resid == repeated.statistics_.df_resid == 9
    assert np.allclose(numbers_of(weighted.statistics_), numbers_of(repeated.statistics_))
    assert np.allclose(weighted.covariance_, repeated.covariance_)


def test_models_are_pickled_without_their_data():
    model = pickle.loads(pickle.dumps(GLM("binomial", link="probit").fit(X, YES)))
    assert np.array_equal(model.predict(X), GLM("binomial", link="probit").fit(X, YES).predict(X))
    assert model.link_ is LINKS["probit"] and model.score(X, YES) > 0.4
    with pytest.raises(AttributeError, match="fit again"):
        model.statistics_.deviance  # noqa: B018
    assert link_of(pickle.loads(pickle.dumps(link_of((np.log, np.exp))))).inverse is np.exp
    model = pickle.loads(pickle.dumps(TweedieRegressor(power=3.0).fit(X, 1 + YES)))
    with pytest.raises(ValueError, match="above 0"):
        model.score(X, YES - 1.0)


def test_losses_fall_with_each_step():
    model = GLM("poisson", solver="newton-cholesky").fit(X, COUNTS)
    assert len(model.loss_history_) == model.n_iter_ + 1 and np.all(np.diff(model.loss_history_) < 0)


# -- data as they come


@pytest.mark.parametrize(
    ("model", "y", "says"),
    [
        (PoissonRegressor(), COUNTS - 1, "y of the family 'poisson' is at least 0, got -1 in sample 1"),
        (GLM("gamma"), COUNTS, "y of the family 'gamma' is above 0, got 0 in sample 1"),
        (GLM("binomial"), COUNTS, "y of the family 'binomial' is at least 0 and at most 1, got 2 in sample 0"),
        (GLM("inverse-gaussian"), COUNTS, "is above 0"),
        (TweedieRegressor(power=2.5), COUNTS, "is above 0"),
        (TweedieRegressor(power=1.5), COUNTS - 1, "is at least 0"),
        (TweedieRegressor(power=0.5), COUNTS, "no distribution has a variance of mean"),
        (TweedieRegressor(power="1"), COUNTS, "power is a number"),
        (TweedieRegressor(link="sqrt"), COUNTS, "link is one of 'auto', 'identity', 'log', got 'sqrt'"),
        (GLM("normal"), COUNTS, "family is one of 'gaussian', 'poisson'"),
        (GLM(link="logarithm"), COUNTS, "link is one of 'identity', 'log'.*or a pair"),
        (GLM(alpha=-1.0), COUNTS, "alpha is a number of at least 0, got -1.0"),
        (GLM("negative-binomial", dispersion=0.0), COUNTS, "dispersion is a number above 0"),
        (GLM(solver="irls"), COUNTS, "solver is one of"),
        (GLM(), np.where(COUNTS == 0, np.nan, COUNTS), "NaN"),
    ],
    ids=str,
)
def test_wrong_input_says_what_it_is(model, y, says):
    with pytest.raises(ValueError, match=says):
        model.fit(X, y)


def test_counts_that_are_all_zero_in_a_group_are_named():
    A = np.column_stack([X[:, 1], np.arange(12) % 2])
    y = np.where(A[:, 1] == 1, 0.0, COUNTS + 1)
    with pytest.warns(ConvergenceWarning, match=r"no best coefficients .* of feature 1 \(-1\.00\)"):
        GLM("poisson").fit(A, y)
    model = PoissonRegressor(alpha=1e-3, tol=1e-9).fit(A, y)
    assert np.allclose(
        model.coef_, oracle.PoissonRegressor(alpha=1e-3, tol=1e-10, max_iter=999).fit(A, y).coef_, atol=1e-5
    )
    with pytest.warns(ConvergenceWarning, match="of the intercept"):
        GLM("poisson").fit(A, np.zeros(12))


def test_constant_and_repeated_columns_and_more_features_than_samples():
    wide = np.column_stack([X, X[:, 0], np.ones(12), np.zeros(12)])
    model, plain = GLM("poisson", tol=1e-10).fit(wide, COUNTS), GLM("poisson", tol=1e-10).fit(X, COUNTS)
    assert np.allclose(model.predict(wide), plain.predict(X)) and np.isclose(model.coef_[0], model.coef_[2])
    assert np.all(np.isfinite(model.covariance_))
    rng = np.random.default_rng(0)
    more = rng.normal(size=(12, 40))
    theirs = oracle.PoissonRegressor(alpha=0.1, tol=1e-12, max_iter=1000, solver="newton-cholesky").fit(more, COUNTS)
    for solver in SOLVERS:
        ours = PoissonRegressor(alpha=0.1, tol=1e-10, max_iter=1000, solver=solver).fit(more, COUNTS)
        assert np.allclose(ours.coef_, theirs.coef_, atol=1e-6), solver


def test_steps_that_are_too_long_are_cut():
    """A first step of Newton whose means overflow."""
    A = np.array([[0.0], [1.0], [2.0], [200.0]])
    y = np.array([1.0, 0.0, 3.0, 5e3])
    model = GLM("poisson", solver="newton-cholesky", tol=1e-9).fit(A, y)
    residual = y - model.predict(A)
    assert np.allclose([residual.sum(), residual @ A[:, 0]], 0, atol=1e-3)


@pytest.mark.parametrize("model", [GLM("poisson"), GLM("gamma", link="log")], ids=str)
def test_other_families_keep_the_contract(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(model, on_skip=None)


def test_the_score_of_constant_targets():
    model = PoissonRegressor().fit(X, COUNTS)
    assert model.score(X, np.full(12, 3.0)) == 0
    with pytest.raises(ValueError, match="one number for each sample"):
        model.score(X, COUNTS[:, None])


@pytest.mark.parametrize(
    ("model", "name"), [(TweedieRegressor(power=1.5), "power"), (GLM("negative-binomial"), "dispersion")]
)
def test_numbers_that_coefficients_arent_a_function_of(model, name):
    """A fit with another number than the derivative is taken at would be wrong in silence."""
    with pytest.raises(TypeError, match=f"X, y, sample_weight, alpha, got '{name}'"):
        model.coefficients(X, COUNTS, **{name: 1.2})


def test_the_score_of_counts_with_an_exposure():
    years = np.linspace(1, 30, 12)
    model = GLM("poisson").fit(X, COUNTS, exposure=years)
    mean = model.predict(X, exposure=years)
    assert model.score(X, COUNTS, exposure=years) == pytest.approx(d2_tweedie_score(COUNTS, mean, power=1))
    assert model.score(X, COUNTS, offset=np.log(years)) == model.score(X, COUNTS, exposure=years)


def test_a_warm_start_from_data_in_other_units_does_no_harm():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)) + 5.0, rng.poisson(2.0, 60)
    last = rng.poisson(np.exp(X[:, 0] - 4))
    model = PoissonRegressor(alpha=1e-9, tol=1e-9, warm_start=True).fit(1e-2 * X, last).fit(1e4 * X, y)
    theirs = oracle.PoissonRegressor(alpha=1e-17, tol=1e-12, solver="newton-cholesky").fit(X, y)
    assert np.allclose(1e4 * model.coef_, theirs.coef_, rtol=0, atol=1e-6)


def test_a_report_does_not_predict_without_the_exposure_of_the_fit(tmp_path):
    model = GLM("poisson").fit(X, COUNTS, exposure=np.full(len(X), 2.0))
    with pytest.raises(ValueError, match="fitted with an offset or exposure, which reports and plots"):
        model.report(X, COUNTS, tmp_path / "page.html")
    assert model.report(path=tmp_path / "page.html").exists()
    assert model._score_name() == "D²"
