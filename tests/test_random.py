"""Keys and samplers: known answers, determinism, batches and compiled code, derivatives, the global stream, errors."""

import inspect
import threading

import numpy as np
import pytest
from scipy import special

import wonderland as wl
import wonderland.random as random
from wonderland.ops.gamma_slope import gamma_slope
from wonderland.ops.random import philox, random_bits
from wonderland.testing import check_grads
from wonderland.testing.rows.random import philox_block

KEY = random.key(0)

# Each sampler as a function of a key, in small.
SAMPLERS = {
    "bits": lambda k: random.bits(k, (3,)),
    "uniform": lambda k: random.uniform(k, (3, 2)),
    "uniform between": lambda k: random.uniform(k, (3,), low=np.array([1.0, 2.0, 3.0]), high=5.0),
    "normal": lambda k: random.normal(k, (3,)),
    "normal float32": lambda k: random.normal(k, (3,), dtype=np.float32),
    "normal complex": lambda k: random.normal(k, (3,), dtype=np.complex128),
    "truncated_normal": lambda k: random.truncated_normal(k, lower=-1.0, upper=np.array([1.0, 3.0])),
    "multivariate_normal": lambda k: random.multivariate_normal(k, 3, np.zeros(2), np.array([[2.0, 0.5], [0.5, 1.0]])),
    "lognormal": lambda k: random.lognormal(k, (3,), sigma=0.5),
    "exponential": lambda k: random.exponential(k, (3,), scale=2.0),
    "gumbel": lambda k: random.gumbel(k, (3,)),
    "laplace": lambda k: random.laplace(k, (3,)),
    "logistic": lambda k: random.logistic(k, (3,)),
    "cauchy": lambda k: random.cauchy(k, (3,)),
    "orthogonal": lambda k: random.orthogonal(k, n=3),
    "loggamma": lambda k: random.loggamma(k, (3,), 0.01),
    "gamma": lambda k: random.gamma(k, a=np.array([0.2, 1.0, 30.0])),
    "chisquare": lambda k: random.chisquare(k, (3,), 3.0),
    "t": lambda k: random.t(k, (3,), 3.0),
    "beta": lambda k: random.beta(k, a=0.5, b=np.array([2.0, 0.5])),
    "dirichlet": lambda k: random.dirichlet(k, (2,), np.array([0.3, 1.0, 2.0])),
    "bernoulli": lambda k: random.bernoulli(k, (5,), 0.3),
    "rademacher": lambda k: random.rademacher(k, (5,)),
    "randint": lambda k: random.randint(k, (4,), -5, 10),
    "categorical": lambda k: random.categorical(k, (4,), np.log(np.array([0.1, 0.2, 0.7]))),
    "permutation": lambda k: random.permutation(k, 6),
    "permutation of rows": lambda k: random.permutation(k, np.arange(6.0).reshape(3, 2)),
    "independent permutation": lambda k: random.permutation(k, np.arange(6.0).reshape(2, 3), 1, True),
    "choice": lambda k: random.choice(k, 5, (3,)),
    "choice by p": lambda k: random.choice(k, np.arange(5.0), (3,), p=np.array([0.1, 0.2, 0.0, 0.3, 0.4])),
    "choice without replacement": lambda k: random.choice(k, 5, (3,), replace=False),
    "choice without replacement by p": lambda k: random.choice(k, 4, (2,), False, np.array([0.1, 0.0, 0.3, 0.6])),
    "poisson": lambda k: random.poisson(k, lam=np.array([0.5, 20.0])),
    "binomial": lambda k: random.binomial(k, n=np.array([5, 100]), p=0.4),
    "multinomial": lambda k: random.multinomial(k, n=20, p=np.array([0.2, 0.3, 0.5])),
    "split": lambda k: random.split(k, 3),
    "fold_in": lambda k: random.fold_in(k, 7),
}
each_sampler = pytest.mark.parametrize("f", SAMPLERS.values(), ids=[name.replace(" ", "_") for name in SAMPLERS])


class TestGenerator:
    # Of Random123's kat_vectors, the lines of philox4x32 with 10 rounds: counter, key, result.
    KNOWN = (
        "00000000 00000000 00000000 00000000 00000000 00000000 6627e8d5 e169c58d bc57ac4c 9b00dbd8",
        "ffffffff ffffffff ffffffff ffffffff ffffffff ffffffff 408f276d 41c83b0e a20bc7c6 6d5451fd",
        "243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0 d16cfe09 94fdcceb 5001e420 24126ea1",
    )

    @pytest.mark.parametrize("line", KNOWN)
    def test_known_answers(self, line):
        words = [np.array([int(w, 16)], np.uint32) for w in line.split()]
        assert [int(w[0]) for w in philox(tuple(words[:4]), tuple(words[4:6]))] == [int(w[0]) for w in words[6:]]
        assert philox_block([w[0] for w in words[:4]], [w[0] for w in words[4:6]]) == [int(w[0]) for w in words[6:]]

    def test_bits_are_the_blocks_in_order(self):
        zero = np.zeros(2, np.uint32)
        bits = random.bits(zero, (9,))
        assert [f"{b:08x}" for b in bits[:4]] == self.KNOWN[0].split()[6:]
        assert list(bits[4:8]) == philox_block((1, 0, 0, 0), zero)
        wide = random.bits(zero, (2,), dtype=np.uint64)
        assert [f"{b:016x}" for b in wide] == ["e169c58d6627e8d5", "9b00dbd8bc57ac4c"]

    def test_numbers_depend_on_place_alone(self):
        for width in (24, 32, 53, 64):
            long = random_bits(KEY, shape=(200_001,), width=width)
            assert np.array_equal(random_bits(KEY, shape=(7, 11), width=width).ravel(), long[:77])
            assert np.array_equal(random_bits(KEY, shape=(150_000,), width=width), long[:150_000])

    @pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
    def test_each_bit_is_fair(self, dtype):
        bits = random.bits(KEY, (20_000,), dtype=dtype)
        assert bits.dtype == dtype
        for i in range(8 * bits.dtype.itemsize):
            assert abs(np.mean(bits >> bits.dtype.type(i) & bits.dtype.type(1)) - 0.5) < 0.02

    def test_a_flipped_bit_of_the_key_flips_half_the_bits(self):
        flips = []
        base = random.bits(KEY, (100,))
        for bit in range(64):
            other = KEY.copy()
            other[bit // 32] ^= np.uint32(1 << bit % 32)
            flips.append(np.mean(np.bitwise_count(base ^ random.bits(other, (100,)))))
        assert abs(np.mean(flips) - 16) < 0.2 and np.all(np.abs(np.array(flips) - 16) < 1.5)


class TestKeys:
    def test_a_key_is_a_plain_array_of_its_seed(self):
        assert type(KEY) is np.ndarray and KEY.shape == (2,) and KEY.dtype == np.uint32 and KEY.flags.writeable
        assert np.array_equal(KEY, random.key(0))
        seeds = [0, 1, 2, -1, 2**32, 2**63, 2**64 - 2, np.int64(7), np.uint8(8)]
        assert len({tuple(random.key(s).tolist()) for s in seeds}) == len(seeds)
        assert np.array_equal(random.key(-1), random.key(2**64 - 1))
        assert np.array_equal(wl.jit(random.key)(5), random.key(5))

    def test_children_differ_from_each_other_and_from_the_parents_stream(self):
        children = [*random.split(KEY, 500), *(random.fold_in(KEY, i) for i in range(500)), KEY]
        assert len({tuple(c.tolist()) for c in children}) == 1001
        words = np.concatenate([random.bits(KEY, (4000,)), *(random.bits(c, (4,)) for c in children[:-1])])
        assert len(np.unique(words)) >= len(words) - 8  # birthdays of 8000 words among 2^32: less than one
        streams = np.stack([random.normal(c, (5000,)) for c in children[::100]])
        assert np.max(np.abs(np.corrcoef(streams) - np.eye(len(streams)))) < 0.06

    def test_split_of_a_number_and_of_a_shape(self):
        assert random.split(KEY).shape == (2, 2) and random.split(KEY, 0).shape == (0, 2)
        assert np.array_equal(random.split(KEY, (2, 3)).reshape(6, 2), random.split(KEY, 6))
        assert np.array_equal(random.split(KEY, 6)[:2], random.split(KEY))

    def test_fold_in_takes_all_64_bits_and_traced_integers(self):
        data = [0, 1, -1, 2**32, 2**63]
        assert len({tuple(random.fold_in(KEY, d).tolist()) for d in data}) == 5
        folded = wl.vmap(lambda i: random.fold_in(KEY, i))(np.arange(4))
        assert np.array_equal(folded, [random.fold_in(KEY, i) for i in range(4)])
        keys = random.split(KEY, 4)
        both = wl.vmap(random.fold_in)(keys, np.arange(4))
        assert np.array_equal(both, [random.fold_in(k, i) for i, k in enumerate(keys)])
        assert np.array_equal(wl.jit(random.fold_in)(KEY, 3), random.fold_in(KEY, 3))

    def test_in_a_scan(self):
        def step(key, _):
            key, use = random.split(key)
            return key, random.normal(use)

        _, numbers = wl.scan(step, KEY, np.arange(5))
        key, expected = KEY, []
        for _ in range(5):
            key, use = random.split(key)
            expected.append(random.normal(use))
        assert np.array_equal(numbers, expected)


@each_sampler
class TestEverySampler:
    def test_the_same_key_gives_the_same_numbers(self, f):
        assert np.array_equal(f(KEY), f(KEY.copy()))
        assert any(not np.array_equal(f(KEY), f(k)) for k in random.split(KEY, 20))

    def test_the_result_is_the_callers(self, f):
        out = f(KEY)
        assert type(out) is np.ndarray and out.flags.writeable
        out[...] = 0
        assert not np.array_equal(out, f(KEY)) or not np.any(f(KEY))

    def test_vmap_over_keys_is_the_loop(self, f):
        keys = random.split(KEY, 4)
        expected = np.stack([f(k) for k in keys])
        batched = wl.vmap(f)(keys)
        nested = wl.vmap(wl.vmap(f))(keys.reshape(2, 2, 2)).reshape(expected.shape)
        # To the bit, but for products of matrices, whose rounding depends on what they are batched with.
        rtol = 1e-13 if f in (SAMPLERS["multivariate_normal"], SAMPLERS["orthogonal"]) else 0
        for out in (batched, nested):
            assert out.dtype == expected.dtype
            np.testing.assert_allclose(out, expected, rtol=rtol, atol=rtol)

    def test_compiled(self, f):
        """To the bit for bits and integers; floats within the roundings of log and exp."""
        eager, native = f(KEY), wl.jit(f)(KEY)
        assert native.dtype == eager.dtype and native.shape == eager.shape
        if eager.dtype.kind in "biu":
            assert np.array_equal(native, eager)
        else:
            np.testing.assert_allclose(native, eager, rtol=30 * np.finfo(eager.dtype).eps, atol=0)

    def test_an_unbatched_key_gives_every_entry_the_same(self, f):
        out = wl.vmap(lambda x: f(KEY))(np.zeros(3))
        assert np.array_equal(out, np.stack([f(KEY)] * 3))


def test_uniforms_are_compiled_to_the_bit():
    for dtype in ("float32", "float64"):
        f = lambda k, dtype=dtype: random.uniform(k, (1000,), dtype=dtype)
        assert np.array_equal(wl.jit(f)(KEY), f(KEY))
        g = lambda k, dtype=dtype: random.normal(k, (1000,), dtype=dtype)
        np.testing.assert_allclose(wl.jit(g)(KEY), g(KEY), rtol=4 * np.finfo(dtype).eps)


class TestShapes:
    def test_scalars_are_numpy_scalars(self):
        assert isinstance(random.uniform(KEY), np.float64)
        assert isinstance(random.normal(KEY, dtype=np.float32), np.float32)
        assert isinstance(random.bernoulli(KEY), np.bool_)
        assert isinstance(random.randint(KEY, (), 0, 5), np.int64)
        assert isinstance(random.gamma(KEY, a=2.0), np.float64)

    def test_shapes_are_ints_tuples_or_the_parameters(self):
        assert random.normal(KEY, 3).shape == random.normal(KEY, (3,)).shape == random.normal(KEY, [3]).shape == (3,)
        assert random.normal(KEY, (0, 2)).shape == (0, 2) and random.gamma(KEY, a=np.ones((0, 2))).shape == (0, 2)
        assert random.beta(KEY, a=np.ones((2, 1)), b=[1.0, 2.0, 3.0]).shape == (2, 3)
        assert random.uniform(KEY, low=np.zeros((2, 3))).shape == (2, 3)
        assert random.categorical(KEY, logits=np.zeros((4, 5, 6)), axis=1).shape == (4, 6)
        assert random.categorical(KEY, (2, 4, 6), np.zeros((4, 5, 6)), axis=1).shape == (2, 4, 6)
        assert random.dirichlet(KEY, alpha=np.ones((4, 3))).shape == (4, 3)
        assert random.multivariate_normal(KEY, mean=np.zeros((5, 2)), cov=np.eye(2)).shape == (5, 2)
        assert random.choice(KEY, np.ones((4, 3)), (2, 2), axis=1).shape == (4, 2, 2)
        assert random.multinomial(KEY, n=[5, 6], p=[0.5, 0.5]).shape == (2, 2)
        assert random.permutation(KEY, 0).shape == (0,) and random.choice(KEY, 0, (0,)).shape == (0,)

    def test_float32(self):
        a = np.array([0.5, 2.0], np.float32)
        for x in (
            random.gamma(KEY, a=a),
            random.beta(KEY, a=a, b=1.0),
            random.dirichlet(KEY, alpha=a),
            random.t(KEY, df=a),
            random.lognormal(KEY, sigma=a),
            random.truncated_normal(KEY, lower=-a, upper=a),
            random.exponential(KEY, 2, dtype="float32"),
            random.multivariate_normal(KEY, mean=a, cov=np.eye(2, dtype=np.float32)),
            random.gumbel(KEY, 2, dtype="float32"),
        ):
            assert x.dtype == np.float32 and np.all(np.isfinite(x))

    def test_uniforms_are_below_1_and_normals_finite(self, monkeypatch):
        for ones in (0, 2**64 - 1, 2**63, 2**63 - 1):
            extreme = lambda key, shape, width, ones=ones: np.full(
                shape, ones >> (64 - width), np.uint32 if width <= 32 else np.uint64
            )
            monkeypatch.setattr("wonderland.random.samplers.random_bits", extreme)
            for dtype in (np.float32, np.float64):
                assert 0 <= random.uniform(KEY, 3, dtype=dtype)[0] < 1
                for f in (random.normal, random.exponential, random.gumbel, random.laplace, random.logistic):
                    assert np.all(np.isfinite(f(KEY, 3, dtype=dtype))), (f, ones)
            assert np.all(np.isfinite(random.truncated_normal(KEY, 3, -1.0, np.inf)))

    def test_normals_are_symmetric_with_long_tails(self, monkeypatch):
        draw = lambda bits, dtype: (
            monkeypatch.setattr("wonderland.random.samplers.random_bits", lambda key, **_: np.array([bits])),
            random.normal(KEY, 1, dtype=dtype)[0],
        )[1]
        assert draw(np.uint64(0), np.float64) == -draw(np.uint64(2**64 - 1), np.float64)
        np.testing.assert_allclose(draw(np.uint64(0), np.float64), -special.ndtri(2.0**-65), rtol=1e-14)
        np.testing.assert_allclose(draw(np.uint32(0), np.float32), -special.ndtri(2.0**-33), rtol=1e-6)


class TestIntegers:
    @pytest.mark.parametrize(
        ("dtype", "low", "high"),
        [
            (np.int64, -(2**63), 2**63), (np.uint64, 0, 2**64), (np.int64, 2**63 - 2, 2**63), (np.uint8, 0, 256),
            (np.int8, -128, 128), (np.int32, -5, 0), (np.uint64, 2**64 - 3, 2**64),
        ],
    )  # fmt: skip
    def test_any_range(self, dtype, low, high):
        x = random.randint(KEY, (2000,), low, high, dtype=dtype)
        assert x.dtype == dtype and int(x.min()) >= low and int(x.max()) < high
        if high - low <= 256:
            assert len(np.unique(x)) == high - low
        else:
            assert int(x.min()) < low + (high - low) // 100 and int(x.max()) > high - (high - low) // 100

    def test_bounds_broadcast_and_may_be_traced(self):
        low, high = np.array([[0], [100]]), np.array([5, 50, 500]) + 100
        x = random.randint(KEY, (2, 3), low, high)
        assert np.all((low <= x) & (x < high))
        assert np.array_equal(wl.jit(lambda a, b: random.randint(KEY, (2, 3), a, b))(low, high), x)

    def test_empty_and_unfitting_ranges(self):
        for low, high in ((0, 0), (5, 3), (np.array([0, 5]), np.array([1, 5]))):
            with pytest.raises(ValueError, match="empty"):
                random.randint(KEY, None, low, high)
        with pytest.raises(ValueError, match="empty"):
            random.randint(KEY, (), -(2**63), -(2**63))
        with pytest.raises(ValueError, match="out of bounds for uint8"):
            random.randint(KEY, (), 0, 257, dtype=np.uint8)
        with pytest.raises(TypeError, match="integers"):
            random.randint(KEY, (), 0, 2.5)
        with pytest.raises(ValueError, match="empty"):
            wl.jit(lambda n: random.randint(KEY, (), 3, n))(3)

    def test_rejection_removes_the_bias_of_a_large_range(self):
        x = random.randint(KEY, (30_000,), 0, 3 * 2**62, dtype=np.uint64)  # modulo alone would favour the lower third
        counts = np.bincount((x >> np.uint64(62)).astype(int), minlength=3)
        assert np.all(np.abs(counts - 10_000) < 400)


class TestSelections:
    def test_permutations_are_permutations(self):
        x = np.arange(12.0).reshape(3, 4)
        assert sorted(random.permutation(KEY, 1000)) == list(range(1000))
        shuffled = random.permutation(KEY, x, axis=1)
        assert np.array_equal(shuffled[0] + 4, shuffled[1]) and not np.array_equal(shuffled, x)
        apart = random.permutation(KEY, np.tile(np.arange(50), (4, 1)), axis=1, independent=True)
        assert np.array_equal(np.sort(apart, 1), np.tile(np.arange(50), (4, 1)))
        assert not np.array_equal(apart[0], apart[1])

    def test_all_orders_are_alike(self):
        orders = wl.vmap(lambda k: random.permutation(k, 3))(random.split(KEY, 6000))
        _, counts = np.unique(orders, axis=0, return_counts=True)
        assert len(counts) == 6 and np.all(np.abs(counts - 1000) < 120)

    def test_without_replacement_nothing_comes_twice(self):
        assert len(set(random.choice(KEY, 50, (30,), replace=False).tolist())) == 30
        p = np.array([0.0, 0.5, 0.25, 0.25])
        picked = wl.vmap(lambda k: random.choice(k, 4, (2,), False, p))(random.split(KEY, 4000))
        assert np.all(picked > 0) and np.all(picked[:, 0] != picked[:, 1])
        np.testing.assert_allclose(np.bincount(picked[:, 0], minlength=4) / 4000, p, atol=0.03)

    def test_zero_probability_is_never_chosen(self):
        p = np.array([0.0, 0.3, 0.0, 0.7, 0.0])
        assert set(random.choice(KEY, 5, (2000,), p=p)) == {1, 3}
        with np.errstate(divide="ignore"):
            assert set(random.categorical(KEY, (2000,), np.log(p))) == {1, 3}

    def test_derivatives_go_through_what_is_selected(self):
        x = np.arange(4.0)
        g = wl.grad(lambda x: np.sum(random.permutation(KEY, x) * np.arange(4.0)))(x)
        assert np.array_equal(g[random.permutation(KEY, 4)], x)
        assert np.sum(wl.grad(lambda x: np.sum(random.choice(KEY, x, (7,))))(x)) == 7

    def test_integers_have_no_derivative(self):
        def f(p):
            counts = random.bernoulli(KEY, (5,), p) + random.poisson(KEY, (5,), p) + random.binomial(KEY, (5,), 9, p)
            return np.sum(counts + random.categorical(KEY, logits=np.stack([p, 1 - p]))) + p

        assert wl.grad(f)(0.4) == 1.0


class TestDerivatives:
    def test_bounds_and_scales(self):
        check_grads(lambda a, b: random.uniform(KEY, (3,), low=a, high=b), (1.0, np.array([2.0, 3.0, 4.0])))
        check_grads(lambda s: random.exponential(KEY, (3,), scale=s), (2.0,))
        check_grads(lambda s: random.lognormal(KEY, (3,), sigma=s), (0.7,))

    def test_truncated_normal(self):
        keys = random.split(KEY, 5)
        for bounds in ((-1.0, 2.0), (0.5, 3.0), (-3.0, -2.0)):
            check_grads(lambda a, b: np.stack([random.truncated_normal(k, lower=a, upper=b) for k in keys]), bounds)
        samples = lambda a, b: random.truncated_normal(KEY, 20, a, b)
        check_grads(samples, (-2.0, 2.0))  # continuous where the bounds become symmetric
        assert isinstance(random.truncated_normal(KEY, (), -1.0, 2.0), np.float64)  # as jit's, and as other samplers
        f = lambda a, b: random.truncated_normal(KEY, lower=a, upper=b)
        assert wl.grad(f)(-np.inf, 1.0) == 0 and wl.grad(f, 1)(0.0, np.inf) == 0
        far = random.truncated_normal(KEY, (2000,), 100.0, np.inf)
        assert np.all(far > 100) and abs(np.mean(far - 100) * 100 - 1) < 0.1  # nearly exponential
        np.testing.assert_allclose(wl.grad(f)(100.0, np.inf), 1.0, atol=1e-2)

    def test_multivariate_normal(self):
        mean, cov = np.array([1.0, -1.0]), np.array([[2.0, 0.3], [0.3, 1.0]])
        for method in ("cholesky", "eigh", "svd"):
            f = lambda m, c, method=method: random.multivariate_normal(KEY, (3,), m, c @ c.T, method=method)
            check_grads(f, (mean, cov), order=1)
            x = random.multivariate_normal(KEY, (40_000,), mean, cov, method=method)
            np.testing.assert_allclose(np.mean(x, 0), mean, atol=0.03)
            np.testing.assert_allclose(np.cov(x.T), cov, atol=0.05)

    def test_gamma_slope_against_differences_of_its_distribution(self):
        mpmath = pytest.importorskip("mpmath")

        def exact(a, w):
            with mpmath.workdps(50):
                a, w, h = mpmath.mpf(a), mpmath.mpf(w), mpmath.mpf(a) * mpmath.mpf(10) ** -16
                F = lambda a: mpmath.gammainc(a, 0, mpmath.exp(w), regularized=True)
                density = mpmath.exp(a * w - mpmath.exp(w) - mpmath.loggamma(a))
                return float(-(F(a + h) - F(a - h)) / (2 * h) / density)

        for a in (1e-3, 0.05, 0.7, 1.0, 3.0, 50.0, 1000.0):
            for q in (1e-8, 0.02, 0.5, 0.97, 1 - 1e-8):
                z = special.gammaincinv(a, q)
                w = np.log(z) if z > 0 else (np.log(q) + special.gammaln(a + 1)) / a
                np.testing.assert_allclose(gamma_slope(a, w, da=0, dw=0), exact(a, w), rtol=2e-13, err_msg=f"{a} {q}")

    def test_gamma_slope_for_large_shapes_and_outside_its_domain(self):
        # For large a the variable is a + sqrt(a) x: its logarithm moves as 1/a - x / (2 a^1.5) + ...
        a, x = 1e8, np.array([-2.0, 0.0, 2.0])
        slope = gamma_slope(np.full(3, a), np.log(a + np.sqrt(a) * x), da=0, dw=0)
        np.testing.assert_allclose(slope * a, 1 - x / (2 * np.sqrt(a)), rtol=1e-7)
        assert np.isnan(gamma_slope(-1.0, 0.0, da=0, dw=0)) and np.isnan(gamma_slope(np.nan, 0.0, da=0, dw=0))

    def test_derivatives_of_means(self):
        """Mean of the derivative = derivative of the mean; within four standard errors."""
        n = 10_000

        def close(f, a, expected):
            samples = wl.jvp(f, (a,), (np.ones_like(a),))[1]
            error = np.std(samples) / np.sqrt(n)
            assert abs(np.mean(samples) - expected) < 4 * error, (np.mean(samples), expected, error)

        for a in (0.2, 1.0, 4.0):
            full = np.full(n, a)
            close(lambda a: random.gamma(KEY, a=a), full, 1.0)
            close(lambda a: random.gamma(KEY, a=a) ** 2, full, 2 * a + 1)
            close(lambda a: random.loggamma(KEY, a=a), full, special.polygamma(1, a))
            close(lambda a: random.beta(KEY, a=a, b=2.0), full, 2 / (a + 2) ** 2)
            proportion = lambda a: random.dirichlet(KEY, alpha=np.stack([a, 2 * a, a / a], -1))[:, 0]
            close(proportion, full, 1 / (3 * a + 1) ** 2)
            close(lambda a: random.chisquare(KEY, df=a), full, 1.0)
        close(lambda df: random.t(KEY, df=df) ** 2, np.full(n, 12.0), -2 / 10**2)

    def test_second_derivatives_of_means(self):
        n = 5000
        one = np.ones(n)
        for a in (0.5, 3.0):
            full = np.full(n, a)
            for f, expected in (
                (lambda a: random.gamma(KEY, a=a), 0.0),
                (lambda a: random.gamma(KEY, a=a) ** 2, 2.0),
                (lambda a: random.loggamma(KEY, a=a), special.polygamma(2, a)),
            ):
                first = lambda a, f=f: wl.jvp(f, (a,), (one,))[1]
                samples = wl.jvp(first, (full,), (one,))[1]
                assert abs(np.mean(samples) - expected) < 4 * np.std(samples) / np.sqrt(n)

    def test_tiny_shape_parameters(self):
        w = random.loggamma(KEY, a=np.full(1000, 1e-6))
        assert np.all(np.isfinite(w)) and np.median(w) < -1e5
        value, slope = wl.jvp(lambda a: random.loggamma(KEY, a=a), (np.full(9, 1e-6),), (np.ones(9),))
        np.testing.assert_allclose(slope, -value / 1e-6, rtol=1e-3)  # z is nearly u^(1/a)
        assert np.all(wl.jvp(lambda a: random.gamma(KEY, a=a), (np.full(9, 1e-6),), (np.ones(9),))[1] == 0)
        p = random.dirichlet(KEY, alpha=np.full((200, 3), 1e-4))
        assert np.all(np.isfinite(p)) and np.allclose(np.sum(p, 1), 1) and np.mean(np.max(p, 1) > 0.999) > 0.9
        assert np.all(np.isfinite(random.beta(KEY, a=np.full(99, 1e-5), b=1e-5)))

    def test_float32_derivatives(self):
        a = np.array([0.5, 2.0, 7.0], np.float32)
        narrow = wl.grad(lambda a: np.sum(random.gamma(KEY, a=a)))(a)
        assert narrow.dtype == np.float32
        wide = wl.grad(lambda a: np.sum(random.gamma(KEY, a=a)))(a.astype(float))
        np.testing.assert_allclose(narrow, wide, rtol=1e-6)

    def test_through_jit_and_vmap(self):
        a, keys = np.array([0.5, 2.0, 7.0]), random.split(KEY, 3)
        g = wl.grad(lambda a, k: random.gamma(k, a=a))
        expected = [g(x, k) for x, k in zip(a, keys)]
        np.testing.assert_array_equal(wl.vmap(g)(a, keys), expected)
        np.testing.assert_allclose(wl.jit(wl.vmap(g))(a, keys), expected, rtol=1e-14)
        loss = lambda params, key: np.mean((params[0] + params[1] * random.normal(key, (100,)) - 1) ** 2)
        np.testing.assert_allclose(wl.jit(wl.grad(loss))((0.0, 1.0), KEY), wl.grad(loss)((0.0, 1.0), KEY), rtol=1e-13)


class TestGlobalStream:
    def test_seed_repeats_and_calls_differ(self):
        random.seed(3)
        first = [random.normal(shape=(2,)), random.gamma(a=2.0), random.uniform(None, (2,)), random.next_key()]
        random.seed(3)
        again = [random.normal(shape=(2,)), random.gamma(a=2.0), random.uniform(None, (2,)), random.next_key()]
        assert all(np.array_equal(a, b) for a, b in zip(first, again))
        assert not np.array_equal(random.normal(shape=(2,)), random.normal(shape=(2,)))
        random.seed()
        a = random.bits(shape=(4,))
        random.seed()
        assert not np.array_equal(a, random.bits(shape=(4,)))

    def test_keyword_key(self):
        assert np.array_equal(random.normal(key=KEY, shape=(2,)), random.normal(KEY, (2,)))

    def test_eager_derivatives_may_draw(self):
        random.seed(0)
        x = random.normal()
        random.seed(0)
        assert wl.grad(lambda s: s * random.normal())(2.0) == x
        random.seed(0)
        assert wl.grad(wl.grad(lambda s: s * s * random.normal()))(2.0) == 2 * x
        assert wl.jvp(lambda s: s * random.normal(), (1.0,), (1.0,))[1] != 0

    @pytest.mark.parametrize(
        "transformed",
        [
            lambda f: wl.jit(f)(1.0),
            lambda f: wl.trace(f)(1.0),
            lambda f: wl.vmap(f)(np.ones(3)),
            lambda f: wl.grad(wl.jit(f))(1.0),
            lambda f: wl.jit(wl.grad(f))(1.0),
            lambda f: wl.vmap(wl.grad(f))(np.ones(3)),
            lambda f: wl.fori_loop(0, 3, lambda i, x: f(x), 1.0),
            lambda f: wl.cond(True, f, lambda x: x, 1.0),
            lambda f: wl.grad(lambda x: wl.scan(lambda c, _: (f(c), None), x, np.arange(3))[0])(1.0),
        ],
    )
    def test_recorded_and_batched_functions_refuse(self, transformed):
        with pytest.raises(random.GlobalStreamError, match=r"test_random\.py.*Pass a key"):
            transformed(lambda x: x * random.normal())
        random.normal()  # and afterwards it works again

    def test_threads_get_different_keys(self):
        random.seed(0)
        found: list = []
        threads = [
            threading.Thread(target=lambda: found.extend(random.next_key() for _ in range(50))) for _ in range(4)
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert len({tuple(k.tolist()) for k in found}) == 200


class TestParameters:
    def test_numpy_scalars_are_parameters(self):
        one = np.float64(1)
        x = random.uniform(KEY, (1000,), -one, one)
        assert -1 <= x.min() < -0.9 and 0.9 < x.max() < 1 and x.dtype == np.float64
        assert np.array_equal(random.normal(KEY, (3,), one, 2 * one), 1 + 2 * random.normal(KEY, (3,)))
        assert np.array_equal(random.exponential(KEY, (3,), 2 * one), 2 * random.exponential(KEY, (3,)))

    @pytest.mark.parametrize("name", ["normal", "gumbel", "laplace", "logistic", "cauchy"])
    def test_location_and_scale(self, name):
        f, loc = getattr(random, name), np.array([1.0, -2.0])
        z = f(KEY, (3, 2))
        assert np.array_equal(f(KEY, (3, 2), loc, 0.5), loc + 0.5 * z)
        assert np.array_equal(f(KEY, (3, 2), scale=0.5), 0.5 * z)
        assert f(KEY, loc=loc).shape == (2,) and f(KEY, loc=loc.astype(np.float32)).dtype == np.float32
        check_grads(lambda loc, scale: f(KEY, (3, 2), loc, scale), (loc, 0.5))

    def test_other_scales(self):
        assert np.array_equal(random.gamma(KEY, (3,), 2.0, 0.5), 0.5 * random.gamma(KEY, (3,), 2.0))
        z = random.normal(KEY, (3,))
        assert np.array_equal(random.lognormal(KEY, (3,), 1.0, 0.5), np.exp(1.0 + 0.5 * z))
        w = random.normal(KEY, (3,), 1.0, 2.0, dtype=complex)
        assert np.array_equal(w, 1.0 + 2.0 * random.normal(KEY, (3,), dtype=complex)) and w.dtype == complex

    @pytest.mark.parametrize("name", sorted(set(random.__all__) - {
        "GlobalStreamError", "fold_in", "key", "next_key", "seed", "split", "permutation", "choice",
    }))  # fmt: skip
    def test_the_key_the_shape_the_parameters_and_the_dtype_by_name(self, name):
        given = list(inspect.signature(getattr(random, name)).parameters.values())
        assert [p.name for p in given[:2]] == ["key", "shape"]
        by_name = [p.name for p in given if p.kind is p.KEYWORD_ONLY]
        integer_free = {"bernoulli", "categorical"}
        assert ("dtype" in by_name) == (name not in integer_free)


class TestErrors:
    @pytest.mark.parametrize(
        ("call", "error", "message"),
        [
            (lambda: random.normal(0, (3,)), TypeError, r"the integer 0 .*wl\.random\.key\(0\)"),
            (lambda: random.normal((3,)), TypeError, r"a key, not tuple.*wl\.random\.normal\(shape=\(3,\)\)"),
            (lambda: random.normal(np.zeros(2)), TypeError, r"a key, not f64\[2\]"),
            (lambda: random.normal(random.split(KEY, 3)), TypeError, r"one key, got keys of shape \(3, 2\).*vmap"),
            (lambda: random.split(1), TypeError, r"the integer 1 "),
            (lambda: random.key(1.5), TypeError, "a seed is an integer"),
            (lambda: random.key(2**64), ValueError, "64 bits"),
            (lambda: random.fold_in(KEY, 0.5), TypeError, "integer"),
            (lambda: random.gamma(KEY, 2.0, (50,)), TypeError, r"shape comes second.*gamma\(key, shape, a, scale=1.0"),
            (lambda: random.poisson(KEY, 3, (50,)), TypeError, r"poisson\(key, shape, lam, \*, dtype=int64\).*\(50,\)"),
            (lambda: random.gamma(KEY, np.ones(3)), TypeError, r"needs the parameter 'a': gamma\(key, shape, a,"),
            (lambda: random.gamma(KEY, 2.0, 3.0), TypeError, r"shape, an int or .* of ints, not 2.0: gamma\(key, "),
            (lambda: random.beta(KEY, np.ones(3), 2.0, 3.0), TypeError, r"not f64\[3\]: beta\(key, shape, a, b"),
            (lambda: random.bernoulli(KEY, 0.3), TypeError, r"not 0.3: bernoulli\(key, shape, p=0.5\)"),
            (lambda: random.orthogonal(KEY, 3), TypeError, r"orthogonal\(key, shape, n"),
            (lambda: random.normal(KEY, (2.0,)), TypeError, r"an int or a tuple of ints, not \(2.0,\)"),
            (lambda: random.normal(KEY, "3"), TypeError, "an int or a tuple of ints, not '3'"),
            (lambda: random.choice(KEY, (3,), 5), TypeError, r"choice\(key, a, shape\)"),
            (lambda: random.uniform(KEY, (3,), np.float32), TypeError, "by keyword, dtype=float32: uniform"),
            (lambda: random.bits(KEY, (3,), np.uint8), TypeError, "by keyword, dtype=uint8: bits"),
            (lambda: random.normal(KEY, 3, dtype=np.float64(1)), TypeError, "dtype such as np.float32, not f64"),
            (lambda: random.randint(KEY, 3, 0, 9, dtype=5), TypeError, "dtype such as np.float32, not 5"),
            (lambda: random.exponential(KEY, 3, dtype="flaot32"), TypeError, "'flaot32'"),
            (lambda: random.rademacher(KEY, 3, dtype=np.uint8), TypeError, "negative numbers, not uint8"),
            (lambda: random.normal(KEY, dtype=int), TypeError, "float32 or float64, not int64"),
            (lambda: random.uniform(KEY, dtype=np.float16), TypeError, "float32 or float64, not float16"),
            (lambda: random.bits(KEY, dtype=int), TypeError, "unsigned"),
            (lambda: random.poisson(KEY, lam=1.0, dtype=float), TypeError, "integer dtype"),
            (lambda: random.normal(KEY, (-1,)), ValueError, "negative dimensions"),
            (lambda: random.gamma(KEY, (2,), np.ones(3)), ValueError, r"gamma: .*\(3,\).*\(2,\)"),
            (lambda: random.gamma(KEY), TypeError, "'a'"),
            (lambda: random.categorical(KEY, (4,), np.zeros((2, 3))), ValueError, "doesn't end with"),
            (lambda: random.categorical(KEY, logits=1.0), ValueError, "at least one axis"),
            (lambda: random.choice(KEY, 3, (4,), replace=False), ValueError, "4 different .* there are 3"),
            (lambda: random.choice(KEY, 3, (2,), p=np.ones(2)), ValueError, r"p has shape \(2,\)"),
            (lambda: random.choice(KEY, 3, (2,), p=[1.0, -1.0, 1.0]), ValueError, "not negative"),
            (lambda: random.choice(KEY, 3, (2,), False, [1.0, 0.0, 0.0]), ValueError, "probability above 0"),
            (lambda: random.choice(KEY, 0, (2,)), ValueError, "no elements"),
            (lambda: random.permutation(KEY, 2.5), TypeError, "number of elements"),
            (lambda: random.poisson(KEY, lam=-1.0), ValueError, "lam"),
            (lambda: random.binomial(KEY, n=3, p=1.5), ValueError, "between 0 and 1"),
            (lambda: random.truncated_normal(KEY, lower=1.0, upper=0.0), ValueError, "above"),
            (lambda: random.dirichlet(KEY, alpha=1.0), ValueError, "one parameter for each"),
            (lambda: random.multinomial(KEY, n=3, p=1.0), ValueError, "probability for each"),
            (lambda: random.multivariate_normal(KEY, (), np.zeros(2), np.eye(3)), ValueError, r"\(2,\) and \(3, 3\)"),
            (lambda: random.multivariate_normal(KEY, (), np.zeros(2), np.eye(2), method="lu"), ValueError, "method"),
        ],
    )  # fmt: skip
    def test_message(self, call, error, message):
        with pytest.raises(error, match=message):
            call()

    def test_parameters_outside_their_domain_give_nan(self):
        assert np.all(np.isnan(random.gamma(KEY, a=np.array([-1.0, np.nan]))))
        with np.errstate(divide="ignore"):
            assert random.gamma(KEY, a=0.0) == 0 and random.gamma(KEY, a=np.inf) == np.inf
        assert np.array_equal(random.poisson(KEY, lam=np.zeros(3)), np.zeros(3))
        assert np.array_equal(random.binomial(KEY, n=[0, 5, 5], p=[0.5, 0.0, 1.0]), [0, 0, 5])
