"""What the ranks of `test_parallel` run: python ranks_script.py WHAT [ARGUMENTS]."""

import os
import signal
import sys

import numpy as np

import wonderland as wl
from wonderland import nn, train

ROWS = (33, 30, 32, 7)


def trained(ranks, steps):
    """A network with batch norm and dropout after some steps; batches aren't all multiples of the ranks."""
    wl.random.seed(0)
    layers = [nn.Linear(5, 16, dtype=np.float64), nn.BatchNorm1d(16, dtype=np.float64), nn.relu, nn.Dropout(0.3)]
    model = nn.Sequential(*layers, nn.Linear(16, 3, dtype=np.float64))
    if ranks.rank:
        model[0].weight[...] = 7.0
    ranks.equalize(list(model.state().values()))
    optimizer = train.Adam(model, rate=1e-2)
    rng = np.random.default_rng(0)

    @wl.jit
    def step(model, optimizer, x, y):
        rows = len(x)
        loss, grads = wl.value_and_grad(lambda m: nn.cross_entropy(m(x), y) * rows)(model)
        loss, grads = ranks.mean((loss, grads), rows)
        optimizer.update(model, grads)
        return loss

    losses = []
    with nn.synchronize(model, ranks.sum):
        for k in range(steps):
            rows = ROWS[k % len(ROWS)]
            x, y = rng.normal(size=(rows, 5)), rng.integers(0, 3, rows)
            part = ranks.part(rows)
            with nn.part_of_batch(model, part.start, part.stop - part.start):
                losses.append(float(step(model, optimizer, x[part], y[part])))
    return model, losses


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    ranks = train.ranks()
    with ranks.together():
        if what == "train":
            model, losses = trained(ranks, 8)
            np.savez(f"{arguments[0]}.{ranks.rank}.npz", losses=losses, **model.state())
        elif what == "raise" and ranks.rank == 1:
            raise ValueError("the data of rank 1 are gone")
        elif what == "die" and ranks.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            ranks.wait()
