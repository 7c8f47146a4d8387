"""What tests of training share: a network, data, and one maker for each optimiser."""

import numpy as np

import wonderland as wl
from wonderland import nn, train


class Dense(nn.Module):
    def __init__(self, n, m, rng, dtype):
        self.weight = (rng.normal(size=(m, n)) / np.sqrt(n)).astype(dtype)
        self.bias = (0.1 * rng.normal(size=m)).astype(dtype)

    def __call__(self, x):
        return x @ self.weight.T + self.bias


class Net(nn.Module):
    def __init__(self, dtype=np.float64, seed=0):
        rng = np.random.default_rng(seed)
        self.first, self.second = Dense(4, 6, rng, dtype), Dense(6, 2, rng, dtype)
        self.calls = nn.Buffer(np.array(0, np.int64))

    def __call__(self, x):
        self.calls = self.calls + 1
        return self.second(np.tanh(self.first(x)))


class Vector(nn.Module):
    """One vector."""

    def __init__(self, w):
        self.w = np.array(w)


def loss(model, x, y):
    return np.mean((model(x) - y) ** 2)


def step(model, optimizer, x, y):
    value, grads = wl.value_and_grad(loss)(model, x, y)
    optimizer.update(model, grads)
    return value


def data(dtype=np.float64, seed=1):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(10, 4)).astype(dtype), rng.normal(size=(10, 2)).astype(dtype)


def arrays(module):
    return {name: array.copy() for name, array in module.state().items()}


def assert_equal(a, b, **tolerance):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype, name
        np.testing.assert_allclose(a[name], b[name], err_msg=name, **tolerance)


MAKERS = {
    "SGD": lambda m: train.SGD(m, 0.1),
    "momentum": lambda m: train.SGD(m, train.cosine(0.1, 30), momentum=0.9, dampening=0.1, weight_decay=0.01),
    "Nesterov": lambda m: train.SGD(m, 0.1, momentum=train.linear(0.9, 10, 0.5, 1.0), nesterov=True),
    "inside": lambda m: train.SGD(m, 0.1, momentum=0.9, form="inside", nesterov=True),
    "average": lambda m: train.SGD(m, 0.1, momentum=0.9, form="average"),
    "Adam": lambda m: train.Adam(m, 0.01, weight_decay=0.1),
    "amsgrad": lambda m: train.Adam(m, 0.01, amsgrad=True, betas=(train.cosine(0.9, 50), 0.99)),
    "AdamW": lambda m: train.AdamW(m, train.warmup(0.01, 3), weight_decay=train.step(0.1, 2)),
    "NAdam": lambda m: train.NAdam(m, 0.01),
    "RMSProp": lambda m: train.RMSProp(m, 0.01, centered=True, momentum=0.5, epsilon=1e-2),
    "Adagrad": lambda m: train.Adagrad(m, 0.1, rate_decay=0.1),
    "Adadelta": lambda m: train.Adadelta(m, 1.0),
    "Lion": lambda m: train.Lion(m, 0.01, weight_decay=0.1),
    "Muon": lambda m: train.Muon(m, 0.02),
    "LBFGS": lambda m: train.LBFGS(m, 0.2, history=4),
    "skipping": lambda m: train.Adam(m, 0.01, skip_nonfinite=True),
    "accumulating": lambda m: train.Accumulate(train.Adam(m, 0.01), 3),
    "groups": lambda m: train.AdamW(m, 0.01, groups={"*.bias": {"weight_decay": 0}, "first.*": {"rate": 0.1}}),
}
