"""Random numbers in compiled code: the same as eager, to the bit, for all layouts, threads and places in a Program."""

import platform
import re

import numpy as np
import pytest
from differential import record

import wonderland as wl
import wonderland.random as random
from wonderland.compile import llvm, pool
from wonderland.compile.stages import compile_program
from wonderland.core.functions import handles
from wonderland.core.tracer import unwrap
from wonderland.ops import elementwise as ew
from wonderland.ops.random import FOLD, SPLIT, random_bits, random_fold
from wonderland.ops.random_laws import random_sample
from wonderland.random import large

KEY = random.key(7)


def draw_bits(key, shape, width):
    return handles([random_bits(unwrap(key), shape=shape, width=width)])[0]


def fold(key, data, purpose):
    return handles([random_fold(unwrap(key), unwrap(data), purpose=purpose)])[0]


def some_keys(*lead):
    return np.random.default_rng(0).integers(0, 2**32, (*lead, 2), np.uint32)


def native(f, *args):
    """The result of compiled code in which NumPy evaluates nothing."""
    compiled = wl.jit(f)
    out = compiled(*args)
    assert compiled.inspect(*args).fallbacks == ()
    return out


def check_equal(f, *args):
    got, expected = native(f, *args), f(*args)
    np.testing.assert_array_equal(got, expected, strict=True)
    return got


@pytest.fixture(autouse=True)
def numpy_evaluates(monkeypatch):
    """Eager draws of any size: what compiled code is compared with."""
    monkeypatch.setattr(large, "LARGE", 1 << 60)


@pytest.fixture
def set_threads():
    before = pool.size()
    yield pool.set_size
    pool.set_size(before)


class TestBits:
    @pytest.mark.parametrize("width", [1, 24, 32, 33, 53, 64])
    @pytest.mark.parametrize("shape", [(), (1,), (3,), (4,), (5,), (1027,), (0,), (3, 0), (2, 3), (7, 1, 5), (64, 64)])
    def test_one_key(self, shape, width):
        check_equal(lambda k: draw_bits(k, shape, width), KEY)

    @pytest.mark.parametrize("lead", [(1,), (5,), (2, 3), (0,), (300,)])
    @pytest.mark.parametrize("shape", [(), (3,), (4,), (9,), (2, 3), (0,)])
    def test_keys_with_axes(self, lead, shape):
        for width in (7, 64):
            check_equal(lambda k, width=width: draw_bits(k, shape, width), some_keys(*lead))

    def test_keys_in_any_layout(self):
        f = lambda k: draw_bits(k, (5,), 32)
        keys = some_keys(4, 6)
        for part in (keys[::2], keys[:, ::-2], keys.transpose(1, 0, 2), keys[..., ::-1]):
            check_equal(f, part)
        check_equal(lambda k: f(np.transpose(k, (1, 0, 2))[::-1]), keys)

    def test_known_answers(self):
        # The vectors that the authors of Philox publish, in as far as our counters have them.
        f = lambda k: draw_bits(k, (4,), 32)
        zero = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
        assert native(f, np.zeros(2, np.uint32)).tolist() == zero
        out = native(lambda k: draw_bits(k, (2,), 64), np.zeros(2, np.uint32))
        assert out.tolist() == [zero[0] | zero[1] << 32, zero[2] | zero[3] << 32]

    def test_a_long_array_begins_like_a_short_one(self):
        long = native(lambda k: random.bits(k, (100_003,)), KEY)
        for n in (1, 6, 8191):
            assert np.array_equal(native(lambda k, n=n: random.bits(k, (n,)), KEY), long[:n])

    @pytest.mark.parametrize("threads", [1, 2, 3])
    def test_threads_change_nothing(self, set_threads, threads):
        set_threads(threads)
        check_equal(lambda k: random.bits(k, (300_001,)), KEY)
        check_equal(lambda k: random.bits(k, (3, 77_777), dtype=np.uint64), KEY)
        check_equal(lambda k: draw_bits(k, (33,), 24), some_keys(9001))
        check_equal(lambda k: random.randint(k, (100_001,), -3, 1000), KEY)

    @pytest.mark.optimised
    @pytest.mark.skipif(
        platform.machine() == "x86_64" and llvm.vector_bytes() < 32, reason="SSE2 has no such product"
    )
    def test_the_loops_are_vectors(self):
        for dtype in (np.uint32, np.uint64):
            ir = wl.jit(lambda k, dtype=dtype: random.bits(k, (1 << 16,), dtype=dtype)).inspect(KEY).ir
            assert re.search(r"= mul [a-z ]*<\d+ x i64>", str(llvm.optimize(ir)))


class TestFold:
    @pytest.mark.parametrize("purpose", [SPLIT, FOLD])
    def test_keys_and_integers_broadcast(self, purpose):
        f = lambda k, data: fold(k, data, purpose)
        for key in (KEY, some_keys(3), some_keys(2, 1), some_keys(0)):
            for data in (np.int64(-1), np.uint64(2**64 - 1), np.arange(3), np.int8([-1, 2, 3])):
                if key.shape[0] == 0 and np.ndim(data):
                    continue
                check_equal(f, key, data)
        check_equal(f, some_keys(3), np.arange(6, dtype=np.uint32).reshape(2, 3))

    def test_of_the_module(self):
        check_equal(lambda k: random.split(k), KEY)
        check_equal(lambda k: random.split(k, (3, 5)), KEY)
        check_equal(lambda k: random.split(k, 1000), KEY)
        check_equal(lambda k: random.fold_in(k, 2**40 + 3), KEY)
        check_equal(lambda k, i: random.fold_in(k, i), KEY, 12)
        check_equal(lambda seed: random.key(seed), np.int64(-5))
        check_equal(lambda k: random.fold_in(random.split(random.fold_in(k, 1), 4)[2], 7), KEY)


SAMPLERS = {
    "uniform": lambda k: random.uniform(k, (33, 5)),
    "uniform float32": lambda k: random.uniform(k, (1001,), dtype=np.float32),
    "uniform scalar": lambda k: random.uniform(k),
    "uniform between": lambda k: random.uniform(k, (3,), low=np.array([1.0, 2.0, 4.0]), high=8.0),
    "bernoulli": lambda k: random.bernoulli(k, (50,), 0.3),
    "rademacher": lambda k: random.rademacher(k, (50,)),
    "bits of bytes": lambda k: random.bits(k, (9,), dtype=np.uint8),
    "randint": lambda k: random.randint(k, (500,), -5, 10),
    "randint uint8": lambda k: random.randint(k, (500,), 3, 256, dtype=np.uint8),
    "randint of everything": lambda k: random.randint(k, (50,), -(2**63), 2**63),
    "randint of everything unsigned": lambda k: random.randint(k, (50,), 0, 2**64, dtype=np.uint64),
    "randint often rejected": lambda k: random.randint(k, (500,), -(2**62), 2**62 + 1),
    "randint scalar": lambda k: random.randint(k, (), 0, 6),
    "randint empty": lambda k: random.randint(k, (0, 3), 0, 6),
    "choice": lambda k: random.choice(k, np.arange(5.0), (7, 3)),
    "poisson": lambda k: random.poisson(k, lam=np.array([0.0, 0.5, 9.99, 10.0, 35.0, 1e4, 1e9, 2.0**62])),
    "many poisson": lambda k: random.poisson(k, lam=np.linspace(0.0, 40.0, 4001)),
    "binomial": lambda k: random.binomial(k, None, [[0], [5], [100], [10**9], [2**53]], np.array([0, 0.1, 0.7, 1])),
    "many binomial": lambda k: random.binomial(k, n=60, p=np.linspace(0.0, 1.0, 4001)),
    "multinomial": lambda k: random.multinomial(k, n=200, p=np.array([0.2, 0.3, 0.5])),
}


@pytest.mark.parametrize("f", SAMPLERS.values(), ids=[name.replace(" ", "_") for name in SAMPLERS])
class TestExactSamplers:
    @pytest.mark.optimised
    def test_equal_to_eager(self, f):
        check_equal(f, KEY)

    def test_of_a_batch_of_keys(self, f):
        got = check_equal(wl.vmap(f), some_keys(4))
        assert np.array_equal(got[2], native(f, some_keys(4)[2]))


SMOOTH = {
    "normal": lambda k: random.normal(k, (1001,)),
    "normal float32": lambda k: random.normal(k, (1001,), dtype=np.float32),
    "normal scalar": lambda k: random.normal(k),
    "lognormal": lambda k: random.lognormal(k, (501,), sigma=0.5),
    "multivariate_normal": lambda k: random.multivariate_normal(k, 50, np.zeros(2), np.array([[2, 0.5], [0.5, 1]])),
    "t": lambda k: random.t(k, (100,), 3.0),
    "exponential": lambda k: random.exponential(k, (501,)),
    "exponential float32": lambda k: random.exponential(k, (501,), dtype=np.float32),
    "gumbel": lambda k: random.gumbel(k, (501,)),
    "laplace": lambda k: random.laplace(k, (501,)),
    "logistic": lambda k: random.logistic(k, (501,)),
    "cauchy": lambda k: random.cauchy(k, (501,)),
    "loggamma": lambda k: random.loggamma(k, a=np.geomspace(1e-9, 1e9, 2001)),
    "gamma": lambda k: random.gamma(k, (200, 3), np.array([0.2, 1.0, 30.0])),
    "gamma float32": lambda k: random.gamma(k, (200,), np.float32(0.7), dtype=np.float32),
    "chisquare": lambda k: random.chisquare(k, (100,), 3.0),
    "beta": lambda k: random.beta(k, (50, 2), 0.01, np.array([2.0, 0.01])),
    "dirichlet": lambda k: random.dirichlet(k, (40,), np.array([0.3, 1.0, 2.0])),
}


@pytest.mark.parametrize("f", SMOOTH.values(), ids=[name.replace(" ", "_") for name in SMOOTH])
def test_smooth_samplers(f):
    # An attempt's acceptance depends on rounding with a probability of about 1e-16: none of these differs in it.
    for g, keys in ((f, KEY), (wl.vmap(f), some_keys(3))):
        got, expected = native(g, keys), g(keys)
        eps = np.finfo(expected.dtype).eps
        np.testing.assert_allclose(got, expected, rtol=100 * eps, atol=20 * eps)


@pytest.mark.optimised
def test_normals_in_units_of_the_last_place():
    for dtype in ("float32", "float64"):
        f = lambda k, dtype=dtype: random.normal(k, (500_000,), dtype=dtype)
        got, expected = native(f, KEY), f(KEY)
        assert np.max(np.abs(got - expected) / np.spacing(np.minimum(np.abs(got), np.abs(expected)))) <= 2


class TestLaws:
    def test_the_limits_of_gamma(self):
        a = np.array([0.0, np.inf, np.nan, -1.0, 1e-300, 1e300])
        got, expected = native(lambda k, a: random.loggamma(k, a=a), KEY, a), random.loggamma(KEY, a=a)
        np.testing.assert_allclose(got, expected, rtol=1e-13)

    def test_one_key_for_a_batch_of_parameters(self):
        check_equal(wl.vmap(lambda lam: random.poisson(KEY, (3, 2), lam)), np.array([1.0, 20.0, 300.0]))
        f = wl.vmap(lambda k, lam: random.poisson(k, (4,), lam), (0, None))
        check_equal(f, some_keys(3), np.float64(30.0))

    def test_parameters_in_any_layout(self):
        lam = np.linspace(0, 60, 24).reshape(4, 6)
        for part in (lam.T, lam[::-1, ::-2], np.broadcast_to(lam[0], (3, 6)), lam[1, 2]):
            check_equal(lambda k, lam: random.poisson(k, lam=lam), KEY, part)

    @pytest.mark.parametrize(
        "f, bad, good, message",
        [
            (lambda k, x: random.poisson(k, lam=x), np.array([1.0, -1.0]), np.array([1.0, 2.0]), "lam must be between"),
            (lambda k, x: random.poisson(k, lam=x), np.array([np.nan, 1.0]), np.array([1.0, 2.0]), "lam must be"),
            (lambda k, x: random.binomial(k, n=x, p=0.5), np.array([-1.0]), np.array([30.0]), "n must be between"),
            (lambda k, x: random.binomial(k, n=9, p=x), np.array([1.5]), np.array([0.5]), "p between 0 and 1"),
            (lambda k, x: random.randint(k, None, x, 3), np.array([0, 3]), np.array([0, 1]), "empty"),
        ],
    )
    def test_refused_parameters(self, f, bad, good, message):
        compiled = wl.jit(f)
        for call in (f, compiled):
            with pytest.raises(ValueError, match=message):
                call(KEY, bad)
        np.testing.assert_array_equal(compiled(KEY, good), f(KEY, good))

    def test_a_failed_run_writes_nothing(self):
        def f(x, lam):
            sample = random_sample(KEY, lam, law="poisson", shape=(2,), dtype=np.dtype(np.float64))
            return ew.add(x, sample), ew.mul(x, 2.0)

        x = np.zeros(2)
        compiled = compile_program(record(f, x, x), {0: 0})
        with pytest.raises(ValueError, match="lam must be"):
            compiled(x, np.array([1.0, -1.0]))
        assert x.tolist() == [0.0, 0.0]
        compiled(x, np.array([20.0, 30.0]))
        assert np.array_equal(x, random.poisson(KEY, lam=np.array([20.0, 30.0])))


class TestInReductions:
    """What is drawn is part of kernels in all modes."""

    def test_of_rows_and_columns(self):
        for axis in (0, 1, None):
            check_equal(lambda k, axis=axis: np.sum(random.bits(k, (50, 4)), axis=axis), KEY)
            check_equal(lambda k, axis=axis: np.sum(random.randint(k, (70, 1100), 0, 50), axis=axis), KEY)

    def test_of_few_long_rows(self):
        check_equal(lambda k: np.sum(random.randint(k, (2, 70_000), 0, 50), axis=1), KEY)
        check_equal(lambda k: np.max(random.bits(k, (20_000, 4)), axis=0), KEY)

    def test_of_other_orders_of_axes(self):
        x = np.arange(60).reshape(5, 3, 4).transpose(2, 0, 1)
        check_equal(lambda k, x: random.randint(k, (4, 5, 3), 0, 9) * x, KEY, x)
        check_equal(lambda k, x: random.bits(k, (4, 5, 3)).T + x.T, KEY, x.astype(np.uint32))


class TestInsideControlFlow:
    def test_scan_over_keys(self):
        def f(keys, x):
            def step(x, key):
                mask = random.bernoulli(key, x.shape, 0.7)
                x = np.where(mask, x, 0.0) + random.uniform(key, x.shape)
                return x, random.randint(key, (3,), 0, 100)

            return wl.scan(step, x, keys)

        keys, x = random.split(KEY, 5), np.ones((3, 5))
        for got, expected in zip(native(f, keys, x), f(keys, x), strict=True):
            assert np.array_equal(got, expected)

    def test_a_key_carried_by_a_loop(self):
        def f(key):
            def step(state):
                key, total, i = state
                key, now = random.split(key)
                return key, total + random.uniform(now, (7,)) * random.bernoulli(now, p=0.5), i + 1

            return wl.while_loop(lambda state: np.sum(state[1]) < 20.0, step, (key, np.zeros(7), 0))

        for got, expected in zip(native(f, KEY), f(KEY), strict=True):
            assert np.array_equal(got, expected)

    def test_branches(self):
        f = lambda k, which: wl.cond(
            which, lambda: random.poisson(k, (5,), 20.0), lambda: random.randint(k, (5,), 0, 9)
        )
        for which in (True, False):
            check_equal(f, KEY, which)

    def test_a_fold_by_the_number_of_the_step(self):
        f = lambda k: wl.scan(lambda c, i: (c, random.uniform(random.fold_in(k, i), (3,))), 0, np.arange(6))[1]
        check_equal(f, KEY)


class TestDerivatives:
    def test_of_bounds(self):
        f = lambda low, high, k: np.sum(random.uniform(k, (6,), low=low, high=high) ** 2)
        for position in (0, 1):
            g = wl.grad(f, position)
            np.testing.assert_allclose(native(g, 1.0, 3.0, KEY), g(1.0, 3.0, KEY), rtol=1e-14)

    def test_of_a_scale_and_a_mask(self):
        def loss(w, k):
            mask = random.bernoulli(k, w.shape, 0.5)
            return np.sum(np.where(mask, w * random.exponential(k, w.shape), 0.0) ** 2)

        w = np.linspace(-1.0, 1.0, 12).reshape(3, 4)
        np.testing.assert_allclose(native(wl.grad(loss), w, KEY), wl.grad(loss)(w, KEY), rtol=1e-14)

    def test_of_normals(self):
        def loss(mean, scale, k):
            return np.sum(np.tanh(mean + scale * random.normal(k, (30, 3))))

        mean, scale = np.array([0.1, 0.2, 0.3]), np.float64(0.7)
        for position in (0, 1):
            g = wl.grad(loss, position)
            np.testing.assert_allclose(native(g, mean, scale, KEY), g(mean, scale, KEY), rtol=1e-13)

    def test_of_gamma_parameters(self):
        g = wl.grad(lambda a, k: np.sum(random.gamma(k, (5, 3), a)))
        a = np.array([0.3, 1.0, 20.0])
        np.testing.assert_allclose(wl.jit(g)(a, KEY), g(a, KEY), rtol=1e-11)

    def test_of_each_entry_of_a_batch(self):
        f = lambda s, k: np.sum(random.gumbel(k, (5,)) * s**2)
        g = wl.vmap(wl.grad(f))
        s = np.array([1.0, 2.0, 3.0])
        np.testing.assert_allclose(native(g, s, some_keys(3)), g(s, some_keys(3)), rtol=1e-14)
