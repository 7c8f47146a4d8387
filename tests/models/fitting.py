"""What tests of models share: training on one batch, and the number of parameters."""

import wonderland as wl
from wonderland import train


def fit(model, loss, steps=60, rate=1e-2):
    """Losses of training on one batch."""
    optimizer = train.Adam(model, rate=rate)

    @wl.jit
    def step(model, optimizer):
        value, grads = wl.value_and_grad(loss)(model)
        optimizer.update(model, grads)
        return value

    return [step(model, optimizer) for _ in range(steps)]


def count(model):
    return sum(p.size for p in model.parameters())
