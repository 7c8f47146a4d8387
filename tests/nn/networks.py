"""Modules for tests: small, and of every kind that NETWORKS 1 speaks of."""

import numpy as np

import wonderland as wl
from wonderland import nn


class Linear(nn.Module):
    def __init__(self, inputs, outputs, seed=0):
        random = np.random.default_rng(seed)
        self.weight = random.standard_normal((outputs, inputs)) / np.sqrt(inputs)
        self.bias = 0.1 * random.standard_normal(outputs)
        self.scale = 1 / np.sqrt(np.float64(inputs))  # a NumPy scalar: a static number

    def __call__(self, x):
        return x @ self.weight.T + self.bias


class Norm(nn.Module):
    """Batch statistics, and how often it was called."""

    def __init__(self, width):
        self.gamma = np.ones(width)
        self.mean = nn.Buffer(np.zeros(width))
        self.calls = nn.Buffer(np.zeros((), np.int64))

    def __call__(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * np.mean(x, axis=0)
            self.calls = self.calls + 1
        return self.gamma * (x - self.mean)


class Dropout(nn.Module):
    def __init__(self, p=0.5, seed=0):
        self.key = nn.Buffer(wl.random.key(seed))
        self.p = p

    def __call__(self, x):
        if not self.training:
            return x
        key, self.key = wl.random.split(self.key)
        return x * (wl.random.uniform(key, x.shape) > self.p) / (1 - self.p)


class Net(nn.Module):
    """Layers in attributes, in a list of functions and Modules, and in a dict; one weight in two places."""

    def __init__(self, width=3, tied=True):
        self.first = Linear(width, width, 1)
        self.norm = Norm(width)
        self.layers = [Linear(width, width, 2), np.tanh, Linear(width, width, 3)]
        self.heads = {"b": Linear(width, 2, 4), "a": Linear(width, 2, 5)}
        if tied:
            self.layers[2].weight = self.first.weight

    def __call__(self, x):
        x = self.norm(self.first(x))
        for layer in self.layers:
            x = layer(x)
        return self.heads["a"](x) + self.heads["b"](x)

    def loss(self, x):
        return np.sum(self(x) ** 2)


X = np.linspace(-1.0, 1.0, 12).reshape(4, 3)


def loss(model, x=X):
    return np.sum(model(x) ** 2)


def arrays(model):
    """Copies of all arrays by name."""
    return {name: array.copy() for name, array in model.state().items()}


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-12, atol=1e-13, err_msg=name)
