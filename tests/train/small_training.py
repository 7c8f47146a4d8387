"""What tests of the training loop share: networks, data, a loss, and a run with all that has a state."""

import numpy as np

import wonderland as wl
from wonderland import nn, train

QUIET = {"progress": False}


def plain(seed=0, dtype=np.float32):
    """A network without buffers."""
    wl.random.seed(seed)
    return nn.Sequential(nn.Linear(3, 5, dtype=dtype), nn.tanh, nn.Linear(5, 2, dtype=dtype))


def stateful(seed=0):
    """A network with keys of dropout and batch statistics."""
    wl.random.seed(seed)
    return nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.tanh, nn.Dropout(0.3), nn.Linear(6, 2))


def data(n=20, seed=1, dtype=np.float32):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3)).astype(dtype)
    return x, np.tanh(x[:, :2] * [1.0, -0.5]).astype(dtype)


def loss(model, x, y):
    return np.mean((model(x) - y) ** 2)


def told(model, x, y):
    """A loss that tells more than itself."""
    difference = model(x) - y
    return np.mean(difference**2), {"error": np.mean(np.abs(difference))}


def arrays(*modules):
    return [array.copy() for module in modules for array in module.state().values()]


def same(first, second):
    """Are lists of arrays equal, bit by bit?"""
    assert len(first) == len(second)
    return all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True))


class Noise(train.Callback):
    """A callback with a state, which also draws from the global streams of random numbers."""

    def begin(self, run):
        self.seen = []

    def after_step(self, run):
        drawn = float(wl.random.uniform()) + float(np.random.rand())
        self.seen = [*self.seen[-5:], drawn]

    def state(self):
        return {"seen": self.seen}

    def load_state(self, state):
        self.seen = state["seen"]


def whole(folder, epochs=10, resume=False, callbacks=(), **options):
    """A run with dropout, batch statistics, Adam, a schedule, shuffling, validation and early stopping.

    Returns what is to be the same after a resume: all arrays, and all numbers of the history but the seconds.
    """
    model = stateful()
    optimizer = train.Adam(model, train.cosine(0.02, steps=50, warmup=5))
    np.random.seed(3)
    wl.random.seed(4)
    noise = Noise()
    history = train.fit(
        model, told, optimizer, data(), epochs=epochs, batch_size=8, validation=data(16, 2), resume=resume,
        callbacks=[train.EarlyStopping(patience=3, min_delta=6e-3), noise, *callbacks],
        checkpoint=train.Checkpoint(folder, **{"every_steps": 2, **options}), clip=1.0, **QUIET,
    )  # fmt: skip
    numbers = [values for name, values in history.items() if name != "seconds"]
    numbers += [values for name, values in history.steps.items() if name != "seconds"]
    return [*arrays(model, optimizer), *numbers, np.array(noise.seen), np.array(float(wl.random.uniform()))], history
