"""The samplers have the distributions that they should have: against scipy.stats, with fixed seeds.

Continuous laws by Kolmogorov and Smirnov's test, discrete ones by chi-square, each at three seeds: no p-value is below
1e-4, and not all three are below 0.05.
"""

import numpy as np
import pytest
from scipy import stats

import wonderland as wl
import wonderland.random as random

COUNT = 20_000
SEEDS = (1, 2, 3)
F32 = np.float32

CONTINUOUS = {
    "uniform": (lambda k: random.uniform(k, COUNT), stats.uniform()),
    "uniform float32": (lambda k: random.uniform(k, COUNT, dtype=F32), stats.uniform()),
    "uniform between": (lambda k: random.uniform(k, COUNT, low=-2.0, high=3.0), stats.uniform(-2, 5)),
    "normal": (lambda k: random.normal(k, COUNT), stats.norm()),
    "normal float32": (lambda k: random.normal(k, COUNT, dtype=F32), stats.norm()),
    "real part": (lambda k: np.real(random.normal(k, COUNT, dtype=complex)), stats.norm(scale=0.5**0.5)),
    "truncated_normal": (lambda k: random.truncated_normal(k, COUNT, -1.0, 0.5), stats.truncnorm(-1, 0.5)),
    "truncated_normal right": (lambda k: random.truncated_normal(k, COUNT, 3.0, 8.0), stats.truncnorm(3, 8)),
    "truncated_normal half": (lambda k: -random.truncated_normal(k, COUNT, -np.inf, 0.0, dtype=F32), stats.halfnorm()),
    "lognormal": (lambda k: random.lognormal(k, COUNT, sigma=0.5), stats.lognorm(0.5)),
    "exponential": (lambda k: random.exponential(k, COUNT, scale=3.0), stats.expon(scale=3)),
    "exponential float32": (lambda k: random.exponential(k, COUNT, dtype=F32), stats.expon()),
    "gumbel": (lambda k: random.gumbel(k, COUNT), stats.gumbel_r()),
    "gumbel float32": (lambda k: random.gumbel(k, COUNT, dtype=F32), stats.gumbel_r()),
    "laplace": (lambda k: random.laplace(k, COUNT), stats.laplace()),
    "logistic": (lambda k: random.logistic(k, COUNT), stats.logistic()),
    "cauchy": (lambda k: random.cauchy(k, COUNT), stats.cauchy()),
    **{
        f"gamma {a}": (lambda k, a=a: random.gamma(k, COUNT, a), stats.gamma(a))
        for a in (0.05, 0.5, 0.999, 1.0, 2.5, 40.0, 1e4)
    },
    "gamma float32": (lambda k: random.gamma(k, COUNT, F32(1.5)), stats.gamma(1.5)),
    "loggamma": (lambda k: random.loggamma(k, COUNT, 0.3), stats.loggamma(0.3)),
    "chisquare": (lambda k: random.chisquare(k, COUNT, 3.0), stats.chi2(3)),
    "t": (lambda k: random.t(k, COUNT, 2.5), stats.t(2.5)),
    "beta": (lambda k: random.beta(k, COUNT, 0.3, 2.0), stats.beta(0.3, 2)),
    "beta large": (lambda k: random.beta(k, COUNT, 50.0, 20.0), stats.beta(50, 20)),
    "dirichlet": (lambda k: random.dirichlet(k, COUNT, [0.5, 1.0, 2.0])[:, 1], stats.beta(1.0, 2.5)),
    "multivariate_normal": (
        lambda k: random.multivariate_normal(k, COUNT, [1.0, 2.0], [[2.0, 0.9], [0.9, 1.0]]) @ np.array([1.0, -1.0]),
        stats.norm(-1, 1.2**0.5),
    ),
    "orthogonal": (lambda k: random.orthogonal(k, COUNT, 3)[:, 1, 2], stats.uniform(-1, 2)),  # Archimedes
}

DISCRETE = {
    "bernoulli": (lambda k: random.bernoulli(k, COUNT, 0.3), stats.bernoulli(0.3)),
    "rademacher": (lambda k: random.rademacher(k, COUNT) // 2 + 1, stats.bernoulli(0.5)),
    "randint": (lambda k: random.randint(k, COUNT, -3, 9), stats.randint(-3, 9)),
    "randint uint8": (lambda k: random.randint(k, COUNT, 0, 256, dtype=np.uint8), stats.randint(0, 256)),
    "choice": (lambda k: random.choice(k, 7, COUNT), stats.randint(0, 7)),
    "permutation": (
        lambda k: random.permutation(k, np.tile(np.arange(7), (COUNT, 1)), 1, True)[:, 3],
        stats.randint(0, 7),
    ),
    **{
        f"poisson {m}": (lambda k, m=m: random.poisson(k, COUNT, m), stats.poisson(m))
        for m in (0.01, 0.7, 5.0, 9.99, 10.0, 31.0, 500.0)
    },
    **{
        f"binomial {n} {p}": (lambda k, n=n, p=p: random.binomial(k, COUNT, n, p), stats.binom(n, p))
        for n, p in ((1, 0.3), (10, 0.5), (10, 0.9), (21, 0.5), (40, 0.3), (100, 0.7), (1000, 0.02), (5000, 0.4))
    },
    "multinomial": (lambda k: random.multinomial(k, COUNT, 30, [0.2, 0.0, 0.3, 0.5])[:, 2], stats.binom(30, 0.3)),
    "multinomial last": (lambda k: random.multinomial(k, COUNT, 30, [0.2, 0.0, 0.3, 0.5])[:, 3], stats.binom(30, 0.5)),
}


class Shifted:
    """A law on 0, 1, ... given by its probabilities."""

    def __init__(self, p):
        self.p = np.array(p)

    def pmf(self, k):
        return np.where((k >= 0) & (k < len(self.p)), self.p[np.clip(k, 0, len(self.p) - 1)], 0.0)


P = [0.05, 0.4, 0.15, 0.25, 0.15]
DISCRETE["categorical"] = (lambda k: random.categorical(k, COUNT, np.log(P) + 3), Shifted(P))
DISCRETE["choice by p"] = (lambda k: random.choice(k, 5, COUNT, p=P), Shifted(P))


def chi_square(x, law):
    """The p-value of counts against probabilities, rare values taken together."""
    values, counts = np.unique(np.asarray(x).astype(int), return_counts=True)
    expected = law.pmf(values) * len(x)
    assert np.all(expected > 0), f"impossible values {values[expected == 0]}"
    common = expected >= 8
    observed = np.append(counts[common], len(x) - counts[common].sum())
    expected = np.append(expected[common], len(x) - expected[common].sum())
    if expected[-1] < 1e-6 * len(x):
        observed, expected = observed[:-1], expected[:-1] * observed[:-1].sum() / expected[:-1].sum()
    return stats.chisquare(observed, expected).pvalue


def p_values(draw, law):
    for seed in SEEDS:
        x = draw(random.key(seed))
        assert x.shape == (COUNT,)
        if isinstance(law, Shifted) or isinstance(law.dist, stats.rv_discrete):
            yield chi_square(x, law)
        else:
            yield stats.kstest(x.astype(float), law.cdf).pvalue


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name):
    values = list(p_values(*CONTINUOUS[name]))
    assert min(values) > 1e-4 and max(values) > 0.05, values


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name):
    values = list(p_values(*DISCRETE[name]))
    assert min(values) > 1e-4 and max(values) > 0.05, values


def test_moments_of_large_parameters():
    """Where counting values says nothing: mean and variance of standardised samples."""
    key, n = random.key(0), 50_000
    for x, mean, deviation in (
        (random.gamma(key, n, 1e12), 1e12, 1e6),
        (random.poisson(key, n, 1e12), 1e12, 1e6),
        (random.binomial(key, n, 10**13, 0.1), 1e12, (9e11) ** 0.5),
        (random.randint(key, n, -(2**63), 2**63).astype(float), 0.0, 2.0**64 / 12**0.5),
    ):
        z = (x - mean) / deviation
        assert abs(np.mean(z)) < 0.02 and abs(np.var(z) - 1) < 0.03


def test_tails():
    """As many normal variables beyond 4 as there should be, on both sides, in both precisions."""
    expected = 2_000_000 * stats.norm.sf(4)
    for dtype in (np.float32, np.float64):
        z = random.normal(random.key(5), 2_000_000, dtype=dtype)
        for side in (z > 4, z < -4):
            assert abs(np.sum(side) - expected) < 4 * expected**0.5


def test_streams_of_a_split_are_independent():
    first, second = (random.uniform(k, COUNT) for k in random.split(random.key(4)))
    table = np.histogram2d(first, second, bins=10)[0]
    assert stats.chi2_contingency(table).pvalue > 1e-3
    parent = random.uniform(random.key(4), COUNT)
    assert stats.chi2_contingency(np.histogram2d(parent, first, bins=10)[0]).pvalue > 1e-3
    neighbours = np.histogram2d(parent[:-1], parent[1:], bins=10)[0]
    assert stats.chi2_contingency(neighbours).pvalue > 1e-3
    # One number from each of many keys is as good as many numbers from one key.
    many = wl.vmap(random.uniform)(random.split(random.key(4), 5000))
    counted = wl.vmap(lambda i: random.uniform(random.fold_in(random.key(4), i)))(np.arange(5000))
    assert stats.kstest(many, "uniform").pvalue > 1e-3 and stats.kstest(counted, "uniform").pvalue > 1e-3


def test_multivariate_normal_of_a_singular_covariance():
    direction = np.array([1.0, 2.0, -1.0])
    for method in ("eigh", "svd"):
        x = random.multivariate_normal(random.key(0), 1000, np.zeros(3), np.outer(direction, direction), method=method)
        np.testing.assert_allclose(x[:, 1], 2 * x[:, 0], atol=1e-6)
        assert stats.kstest(x[:, 0], "norm").pvalue > 1e-3


def test_choice_without_replacement_by_p():
    """The probability of each pair, in order: p_i p_j / (1 - p_i)."""
    p = np.array([0.5, 0.3, 0.2])
    pairs = wl.vmap(lambda k: random.choice(k, 3, (2,), False, p))(random.split(random.key(8), 4000))
    for i in range(3):
        for j in range(3):
            share = np.mean((pairs[:, 0] == i) & (pairs[:, 1] == j))
            assert abs(share - (0 if i == j else p[i] * p[j] / (1 - p[i]))) < 0.03
