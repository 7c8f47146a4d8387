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
        elif what == "raise" and ranks.rank == 1:
            raise ValueError("the data of rank 1 are gone")
        elif what == "die" and ranks.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            ranks.wait()
