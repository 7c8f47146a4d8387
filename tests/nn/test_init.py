"""Initialisers: variances by the fans, structure, dtypes, keys; and the stream that they draw from without a key."""

import multiprocessing
import os
import subprocess
import sys
import threading
from functools import partial

import numpy as np
import pytest

import wonderland as wl
from wonderland.nn import init

LARGE = (300, 200, 2)  # fan in 400, fan out 600
KEY = wl.random.key(7)

VARIANCES = [
    (init.glorot_uniform, 2 / 1000),
    (init.glorot_normal, 2 / 1000),
    (partial(init.glorot_normal, gain=5 / 3), 25 / 9 * 2 / 1000),
    (init.he_uniform, 2 / 400),
    (init.he_normal, 2 / 400),
    (partial(init.he_normal, mode="fan_out"), 2 / 600),
    (partial(init.he_uniform, mode="fan_out", nonlinearity="leaky_relu", slope=0.5), 2 / 1.25 / 600),
    (partial(init.he_normal, nonlinearity="tanh"), 25 / 9 / 400),
    (init.lecun_uniform, 1 / 400),
    (init.lecun_normal, 1 / 400),
    (init.fan_in_uniform, 1 / 3 / 400),
    (partial(init.variance_scaling, scale=3.0, mode="fan_avg", distribution="truncated_normal"), 3 / 500),
    (partial(init.uniform, low=-2, high=4), 3.0),
    (partial(init.normal, std=0.3), 0.09),
    (partial(init.truncated_normal, std=0.3), 0.09),
    (partial(init.truncated_normal, std=0.3, lower=-1, upper=1), 0.09),
    (partial(init.truncated_normal, lower=-1, upper=1, corrected=False), 0.29112),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("f", "variance"), VARIANCES)
def test_variances(f, variance, dtype):
    w = f(KEY, LARGE, dtype)
    assert w.shape == LARGE and w.dtype == dtype
    assert np.isclose(np.var(w), variance, rtol=0.02)
    np.testing.assert_array_equal(w, f(KEY, LARGE, dtype))


@pytest.mark.parametrize(("bounds"), [(-2.0, 2.0), (-1.0, 3.0), (0.0, 1.0), (-np.inf, 0.5)])
def test_truncated_normal_has_the_standard_deviation_that_is_asked_for(bounds):
    w = init.truncated_normal(KEY, (200_000,), np.float64, std=2.0, lower=bounds[0], upper=bounds[1])
    assert np.isclose(np.std(w), 2.0, rtol=0.01)


def test_fans_and_gains():
    assert init.fans((8, 4)) == (4, 8)
    assert init.fans((8, 4, 3, 3)) == (36, 72)
    assert init.gain("relu") == np.sqrt(2) and init.gain("tanh") == 5 / 3 and init.gain("selu") == 0.75
    assert init.gain("leaky_relu", 1.0) == 1.0
    with pytest.raises(ValueError, match=r"shape \(3,\) has no fans.*zeros"):
        init.he_normal(KEY, (3,))
    with pytest.raises(ValueError, match="no gain is known for 'gelu'"):
        init.he_normal(KEY, (3, 3), nonlinearity="gelu")
    with pytest.raises(ValueError, match="mode is one of 'fan_in'"):
        init.he_normal(KEY, (3, 3), mode="in")


@pytest.mark.parametrize("shape", [(6, 6), (6, 4), (4, 6), (4, 3, 2, 2), (1, 5)])
def test_orthogonal(shape):
    w = init.orthogonal(KEY, shape, np.float64, gain=2.0).reshape(shape[0], -1)
    gram = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
    np.testing.assert_allclose(gram, 4 * np.eye(len(gram)), atol=1e-12)


def test_structure():
    np.testing.assert_array_equal(init.identity(None, (2, 3), gain=2.0), [[2, 0, 0], [0, 2, 0]])
    x = np.random.default_rng(0).normal(size=(1, 4, 7, 7)).astype(np.float32)
    np.testing.assert_array_equal(wl.conv(x, init.dirac(None, (4, 4, 3, 3)), padding=1), x)
    np.testing.assert_array_equal(wl.conv(x, init.dirac(None, (4, 2, 3, 3), groups=2), padding=1, groups=2), x)
    w = init.sparse(KEY, (10, 50), sparsity=0.65, std=0.1)
    np.testing.assert_array_equal((w == 0).sum(0), 7)
    assert len({tuple(column) for column in (w == 0).T}) > 20
    np.testing.assert_array_equal(init.constant(None, (2,), np.int64, value=3), [3, 3])
    assert init.ones(None, 3).sum() == 3 and init.zeros(None, ()).shape == ()
    assert init.he_normal(KEY, (20, 20), np.float16).dtype == np.float16
    assert init.normal(KEY, (20, 20), np.complex64).dtype == np.complex64
    for bad in (lambda: init.identity(None, (3,)), lambda: init.dirac(None, (3, 3)), lambda: init.sparse(None, (3,))):
        with pytest.raises(ValueError, match=r"not"):
            bad()
    with pytest.raises(TypeError, match="int32"):
        init.normal(KEY, (3,), np.int32)


# The global stream ---------------------------------------------------------------------------------------------------


def test_a_seed_makes_layers_reproducible():
    wl.random.seed(5)
    first = [init.he_normal(None, (3, 3)) for _ in range(2)]
    wl.random.seed(5)
    np.testing.assert_array_equal(first, [init.he_normal(None, (3, 3)) for _ in range(2)])
    assert not np.array_equal(*first)
    wl.random.seed()


def test_a_new_process_starts_from_fresh_entropy():
    code = "import wonderland as wl; print(wl.random.next_key().tolist())"
    run = lambda: subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert run() != run()


def test_threads_get_different_keys():
    wl.random.seed(1)
    found, barrier = [], threading.Barrier(8)

    def draw():
        barrier.wait()
        found.extend(tuple(wl.random.next_key().tolist()) for _ in range(50))

    threads = [threading.Thread(target=draw) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({*found}) == 400
    wl.random.seed(1)
    assert {*found} == {tuple(wl.random.next_key().tolist()) for _ in range(400)}


def draw_into(queue):
    queue.put([wl.random.next_key().tolist() for _ in range(2)])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_the_child_of_a_fork_has_another_stream():
    context = multiprocessing.get_context("fork")

    def children():
        queue, found = context.Queue(), []
        for _ in range(2):
            child = context.Process(target=draw_into, args=(queue,))
            child.start()
            found += queue.get(timeout=60)
            child.join()
        return found

    wl.random.seed(9)
    own = [wl.random.next_key().tolist() for _ in range(2)]
    keys = [*own, *children(), *(wl.random.next_key().tolist() for _ in range(2))]
    assert len({tuple(k) for k in keys}) == len(keys)
    wl.random.seed(9)
    assert keys[:2] == own == [wl.random.next_key().tolist() for _ in range(2)]
