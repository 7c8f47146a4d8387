"""What the ranks of `test_parallel` run: python ranks_script.py WHAT [ARGUMENTS]."""

import os
import signal
import sys

import numpy as np

import wonderland as wl
from wonderland import nn, train


class Killed(train.Callback):
    """Ends one rank at a step, as a machine that is switched off would."""

    def __init__(self, step):
        self.step = step

    def after_step(self, run):
        if run.step == self.step and run.ranks.rank == run.ranks.count - 1:
            os.kill(os.getpid(), signal.SIGKILL)


class Stopped(train.Callback):
    """Stops one of the ranks only, as a callback that looks at the clock may do; the first "step" or "epoch"."""

    def __init__(self, moment):
        self.moment = moment

    def stop(self, run, moment):
        if moment == self.moment and run.ranks.rank == run.ranks.count - 1:
            run.stop("late")

    def begin(self, run):
        self.stop(run, "begin")

    def after_step(self, run):
        self.stop(run, "step")

    def after_epoch(self, run):
        self.stop(run, "epoch")


def stopped(moment):
    """A run that one of the ranks ends, in `train.fit` or in the body of a loop."""
    model = nn.Sequential(nn.Linear(2, 1))
    loss = lambda model, x: np.mean(model(x) ** 2)
    own, x = Stopped(moment), np.ones((8, 2), np.float32)
    if moment == "body":
        for step in train.steps(model, loss, train.SGD(model, 0.1), (x,), epochs=5, batch_size=4):
            own.stop(step.run, "body")
        return step.run.history
    return train.fit(model, loss, train.SGD(model, 0.1), (x,), epochs=5, batch_size=4, callbacks=own, progress=False)


def fitted(folder, *arguments):
    """A run of `train.fit` that knows nothing of ranks; with a number it is killed there, with "resume" it goes on."""
    wl.random.seed(0)
    layers = [nn.Linear(5, 16, dtype=np.float64), nn.BatchNorm1d(16, dtype=np.float64), nn.relu, nn.Dropout(0.3)]
    model = nn.Sequential(*layers, nn.Linear(16, 3, dtype=np.float64))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(77, 5)), rng.integers(0, 3, 77)

    def loss(model, x, y):
        out = model(x)
        return nn.cross_entropy(out, y), {"right": np.mean(np.argmax(out, 1) == y)}

    killed = [Killed(int(word)) for word in arguments if word.isdigit()]
    log = train.CSVLog(f"{folder}/log.csv")
    history = train.fit(
        model, loss, train.Adam(model, rate=1e-2), (x[:61], y[:61]), validation=(x[61:], y[61:]), epochs=4,
        batch_size=16, callbacks=[train.EarlyStopping(patience=3), log, *killed], checkpoint=f"{folder}/checkpoints",
        resume="resume" in arguments, progress=False, clip=1.0,
    )  # fmt: skip
    return model, history


def compare_ring(ranks):
    """Ring attention of this rank's part of a sequence, eager and compiled, with all of it in one process."""
    rng = np.random.default_rng(0)
    sizes = {"q": (2, 4, 12, 5), "k": (2, 2, 12, 5), "v": (2, 2, 12, 3), "ct": (2, 4, 12, 3)}
    whole = {name: rng.normal(size=size) for name, size in sizes.items()}
    own = ranks.part(12)
    part = {name: x[:, :, own] for name, x in whole.items()}
    for causal in (False, True):

        def summed(q, k, v, ct, attend, causal=causal):
            return np.sum(ct * np.sin(attend(q, k, v, causal=causal)))

        def around(q, k, v, causal):
            return nn.ring_attention(q, k, v, ranks=ranks, causal=causal)

        wanted = wl.grad(summed, (0, 1, 2))(*whole.values(), wl.attention)
        of_ring = wl.grad(lambda *args, summed=summed: summed(*args, around), (0, 1, 2))
        expected = wl.attention(whole["q"], whole["k"], whole["v"], causal=causal)[:, :, own]
        np.testing.assert_allclose(around(*[*part.values()][:3], causal), expected, 1e-12, 1e-12)
        for found in (of_ring(*part.values()), wl.jit(of_ring)(*part.values())):
            for x, y in zip(found, wanted, strict=True):
                np.testing.assert_allclose(x, y[:, :, own], 1e-12, 1e-12)
    try:
        nn.ring_attention(*(np.zeros((1, 4 + ranks.rank, 2)) for _ in "qkv"), ranks=ranks)
    except ValueError as error:
        assert "parts of the same shape on all ranks; they have q (1, 4, 2)" in str(error)


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    ranks = train.ranks()
    with ranks.together():
        if what == "fit":
            model, history = fitted(*arguments)
            numbers = {name: values for name, values in history.items() if name != "seconds"}
            np.savez(f"{arguments[0]}/{ranks.rank}.npz", **numbers, **model.state())
        elif what == "stop":
            for moment in arguments:
                history = stopped(moment)
                lines = [f"{moment}: {history.stopped}, {len(history.steps.get('loss', ()))} steps\n"]
                sys.stdout.write("".join(ranks.communicator.gather(lines[0]) or ()))
        elif what == "ring":
            compare_ring(ranks)
            sys.stdout.write("".join(ranks.communicator.gather(f"the same on {ranks}\n") or ()))
        elif what == "raise" and ranks.rank == 1:
            raise ValueError("the data of rank 1 are gone")
        elif what == "die" and ranks.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            ranks.wait()
