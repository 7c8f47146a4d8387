"""Masks made of random bits, as dropout has them: only the mask has memory, and it is the one that NumPy computes."""

import numpy as np
import pytest

import wonderland as wl
from wonderland.testing import check_grads

KEY = wl.random.key(3)


def dropout(x, key, p=0.8):
    return np.where(wl.random.bernoulli(key, x.shape, p), x / p, 0.0)


@pytest.mark.parametrize("shape", [(40, 50), (3, 5, 7), (33,), (1,), (), (0, 4), (2, 3)])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_compiled_and_eager_agree(shape, dtype):
    x = np.random.default_rng(0).random(shape).astype(dtype)
    compiled, eager = wl.jit(dropout)(x, KEY), dropout(x, KEY)
    np.testing.assert_array_equal(np.asarray(compiled) == 0, np.asarray(eager) == 0)
    np.testing.assert_allclose(compiled, eager, 1e-6)
    gradient = wl.jit(wl.grad(lambda x: np.sum(dropout(x, KEY))))(x)
    np.testing.assert_array_equal(gradient == 0, np.asarray(eager) == 0)


@pytest.mark.parametrize("shape", [(64, 64), (9, 9), (130,)])
def test_what_else_is_made_of_the_bits(shape):
    def f(key, low, p):
        line = np.linspace(0, 1, shape[-1])
        u = wl.random.uniform(key, shape)
        mask = u < p
        return mask, u, mask & (u > low), np.where(u < line, 1, 2).astype("i1"), (u * 9).astype("i2")

    for got, want in zip(wl.jit(f)(KEY, 0.2, 0.7), f(KEY, 0.2, 0.7), strict=True):
        np.testing.assert_array_equal(got, want)


def test_batches_of_keys_and_derivatives():
    keys, x = wl.random.split(KEY, 5), np.random.default_rng(0).random((5, 30))
    want = np.stack([dropout(row, key) for row, key in zip(x, keys)])
    np.testing.assert_allclose(wl.jit(wl.vmap(dropout))(x, keys), want, 1e-14)
    check_grads(wl.jit(lambda x: np.sum(np.sin(dropout(x * x, KEY)))), (x,), order=2)


def test_a_mask_takes_one_byte_for_an_element():
    x, size = np.ones((256, 100), np.float32), 256 * 100

    def loss(x, key, drop):
        return np.sum(np.sin(drop(np.sin(x), key)))

    compiled = wl.jit(wl.grad(lambda x, key: loss(x, key, dropout))).inspect(x, KEY)
    assert compiled.arena_bytes == 64 + size and len(compiled.kernels) == 2


def test_a_network_keeps_a_byte_for_an_element_of_each_mask():
    def loss(weights, x, drop):
        for i, w in enumerate(weights):
            x = drop(np.tanh(x @ w), wl.random.fold_in(KEY, i))
        return np.mean(x * x)

    weights, x = [np.ones((64, 64), np.float32)] * 4, np.ones((3000, 64), np.float32)
    plain, masked = (
        wl.jit(wl.grad(lambda weights, x, drop=drop: loss(weights, x, drop))).inspect(weights, x)
        for drop in (lambda x, key: x, dropout)
    )
    assert masked.arena_bytes - plain.arena_bytes <= 4 * 3000 * 64 + 4096
