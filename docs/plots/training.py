"""The figures of docs/training-tutorial.md: a line, two moons, curves of digits and of what goes wrong.

Run from the repository: python docs/plots/training.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import wonderland as wl
from wonderland import data, nn, train

IMAGES = Path(__file__).parent.parent / "images"
BLUE, RED, GREY = "#2171B5", "#CB181D", "#999999"
plt.rcParams.update({"font.size": 9, "figure.dpi": 150, "axes.titlesize": 9, "axes.spines.top": False,
                     "axes.spines.right": False})  # fmt: skip


def cross_entropy(model, x, labels):
    """The loss of all but the line."""
    return nn.cross_entropy(model(x), labels)


# A line --------------------------------------------------------------------------------------------------------------


def line():
    """Points, and the line after some steps of gradient descent."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=50)
    y = 2.0 * x - 0.5 + 0.2 * rng.normal(size=50)
    error = lambda line: np.mean((line[0] * x + line[1] - y) ** 2)
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.9), layout="constrained")
    left.plot(x, y, ".", color=GREY)
    at, errors, ends = np.zeros(2), [], np.array([-1.0, 1.0])
    for step in range(101):
        if step in (0, 5, 10, 20, 100):
            shade = 0.25 + 0.75 * [0, 5, 10, 20, 100].index(step) / 4
            left.plot(ends, at[0] * ends + at[1], color=BLUE, alpha=shade, label=f"after {step} steps")
        errors.append(error(at))
        at = at - 0.2 * wl.grad(error)(at)
    left.set(xlabel="x", ylabel="y", title="the line", xticks=[-1, 0, 1])
    left.legend(frameon=False)
    right.plot(errors, color=BLUE)
    right.set(xlabel="step", ylabel="mean squared error", title="its error", yscale="log")
    figure.savefig(IMAGES / "training-line.png")
    plt.close(figure)


# Moons ---------------------------------------------------------------------------------------------------------------


def moons():
    """What a linear model and an MLP say about each point of the plane."""
    training, test = data.split(data.moons(400, noise=0.15), [0.75, 0.25], stratify=True)
    grid = np.stack(np.meshgrid(np.linspace(-1.6, 2.6, 220), np.linspace(-1.2, 1.7, 160)), -1)
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 2.9), layout="constrained", sharex=True, sharey=True)
    models = {
        "nn.Linear(2, 2)": lambda: nn.Linear(2, 2),
        "two hidden layers of 16": lambda: nn.Sequential(
            nn.Linear(2, 16), nn.relu, nn.Linear(16, 16), nn.relu, nn.Linear(16, 2)
        ),
    }
    for place, (title, make) in zip(axes, models.items(), strict=True):
        wl.random.seed(0)
        model = make()
        train.fit(
            model, cross_entropy, train.Adam(model, rate=1e-2), training, epochs=50, batch_size=50, progress=False
        )
        found = nn.softmax(train.predict(model, grid.reshape(-1, 2).astype(np.float32)))[:, 1].reshape(grid.shape[:2])
        shades = place.contourf(*grid.transpose(2, 0, 1), found, np.linspace(0, 1, 11), cmap="RdBu", alpha=0.6)
        place.contour(*grid.transpose(2, 0, 1), found, [0.5], colors="black", linewidths=1.2)
        x, y = test[:]
        for kind, colour in ((0, RED), (1, BLUE)):
            place.plot(*x[y == kind].T, ".", color=colour, markersize=5)
        accuracy = train.evaluate(model, test, metrics={"accuracy": train.metrics.Accuracy()})["accuracy"]
        place.set(title=f"{title}: {accuracy:.0%} of the test points", xlabel="x")
    axes[0].set_ylabel("y")
    figure.colorbar(shades, ax=axes, label="probability of class 1", ticks=[0, 0.5, 1])
    figure.savefig(IMAGES / "training-moons.png")
    plt.close(figure)


# Digits --------------------------------------------------------------------------------------------------------------


def make_mlp():
    """Two dense layers."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.relu, nn.Linear(64, 10))


def make_cnn(dropout=0.2):
    """Two convolutions and a dense layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.relu, nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.relu, nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(dropout), nn.Linear(128, 10),
    )  # fmt: skip


def digits():
    """The curves of the CNN, and the rate finder."""
    training, validation, test = data.split(data.digits(), [0.7, 0.1, 0.2], stratify=True)
    wl.random.seed(0)
    model = make_cnn()
    optimizer = train.Adam(model, rate=5e-3)
    curve = train.find_rate(model, cross_entropy, optimizer, training, batch_size=64)
    curve.plot().savefig(IMAGES / "training-rate.png", dpi=110)
    stopping = train.EarlyStopping(patience=5)
    history = train.fit(
        model, cross_entropy, optimizer, data.Loader(training, 64, shuffle=True, drop_last=True), epochs=60,
        validation=validation,
        metrics={"accuracy": train.metrics.Accuracy()}, callbacks=[stopping], progress=False,
    )  # fmt: skip
    history.plot().savefig(IMAGES / "training-curves.png", dpi=110)
    return stopping.best_epoch, history.stopped, train.evaluate(model, test, metrics={"a": train.metrics.Accuracy()})


def mistakes():
    """Which digits the MLP mistakes."""
    training, _, test = data.split(data.digits(), [0.7, 0.1, 0.2], stratify=True)
    wl.random.seed(0)
    model = make_mlp()
    train.fit(model, cross_entropy, train.Adam(model, rate=3e-3), training, epochs=20, progress=False)
    x, y = test[:]
    scores = train.predict(model, x)
    said = train.pictures.mistakes(x, scores.argmax(-1), y, nn.softmax(scores), most=6)
    said.savefig(IMAGES / "training-mistakes.png", dpi=100)


# What goes wrong -----------------------------------------------------------------------------------------------------


def troubles():
    """Losses over epochs, training and validation, of six runs: one is as it should be."""
    whole = data.split(data.digits(), [0.7, 0.1, 0.2], stratify=True)
    x, y = whole[0][:]
    few = x[:60], y[:60]
    mixed = x, np.random.default_rng(0).permutation(y)
    unscaled = lambda batch: (1000 * batch[0], batch[1])
    runs = {
        "as it should be": (train.Adam, 3e-3, (x, y), whole[1][:]),
        "rate too small": (train.Adam, 3e-5, (x, y), whole[1][:]),
        "rate too large": (train.Adam, 1.0, (x, y), whole[1][:]),
        "too little data: overfitting": (train.Adam, 3e-3, few, whole[1][:]),
        "labels in another order": (train.Adam, 3e-3, mixed, whole[1][:]),
        "inputs not scaled": (train.SGD, 3e-3, unscaled((x, y)), unscaled(whole[1][:])),
    }
    figure, axes = plt.subplots(2, 3, figsize=(9, 4.6), layout="constrained", sharex=True, sharey=True)
    for place, (title, (make, rate, training, validation)) in zip(axes.flat, runs.items(), strict=True):
        wl.random.seed(0)
        model = make_mlp()
        history = train.fit(
            model, cross_entropy, make(model, rate=rate), training, epochs=60, validation=validation, progress=False,
            nonfinite="skip",
        )  # fmt: skip
        place.plot(history["epoch"], history["loss"], color=BLUE, label="training")
        place.plot(history["epoch"], history["validation_loss"], color=RED, label="validation")
        place.axhline(np.log(10), color=GREY, linewidth=0.8, linestyle="--")
        place.set(title=title, xlim=(0, 60), ylim=(0, 3.2))
    axes[0, 0].annotate("guessing: log 10", (59, np.log(10)), ha="right", va="bottom", color=GREY, fontsize=8)
    axes[0, 0].legend(frameon=False, loc="center right")
    for place in axes[1]:
        place.set_xlabel("epoch")
    for place in axes[:, 0]:
        place.set_ylabel("loss")
    figure.savefig(IMAGES / "training-troubles.png")
    plt.close(figure)


if __name__ == "__main__":
    line()
    moons()
    print(digits())
    mistakes()
    troubles()
