"""Figures of docs/calibration-and-conformal.md, first part: reliability, the maps of scores, costs; and its table.

Noisy digits: 400 of them to learn from, 400 to calibrate, 997 to judge, in new parts with each seed. Run from the
repository: python docs/plots/calibration.py
"""

import warnings
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.naive_bayes import GaussianNB

from wonderland import estimators
from wonderland.train import metrics

INK, BLUE, ORANGE, GREEN, PINK, GREY = "#222222", "#0072B2", "#D55E00", "#009E73", "#C0619A", "#AAAAAA"
IMAGES = Path(__file__).resolve().parent.parent / "images"
plt.rcParams.update({"font.size": 9, "figure.dpi": 120, "axes.titlesize": 9.5, "axes.spines.top": False,
                     "axes.spines.right": False})  # fmt: skip

METHODS = {"temperature": BLUE, "sigmoid": PINK, "isotonic": ORANGE, "vector": GREEN}
NAMES = {"temperature": "temperature", "sigmoid": "Platt", "isotonic": "isotonic", "vector": "vector"}
COLUMNS = ("accuracy", "ECE", "MCE", "cross-entropy", "T")


def noisy_digits(seed, parts=(400, 800)):
    """Images with so much noise that no classifier is always right: (x, y) to learn from, to calibrate, to judge."""
    rng = np.random.default_rng(seed)
    x, y = load_digits(return_X_y=True)
    order = rng.permutation(len(x))
    x = (x / 16 + rng.normal(0, 0.4, x.shape)).astype(np.float32)
    return [(x[part], y[part]) for part in np.split(order, parts)]


def network(data, seed, loss="cross-entropy"):
    """A network that has learnt its 400 images by heart."""
    return estimators.MLPClassifier(
        (128,), loss=loss, gamma=3.0, alpha=0.0, batch_size=50, learning_rate="cosine", learning_rate_init=5e-3,
        max_iter=60, random_state=seed,
    ).fit(*data)  # fmt: skip


def calibrated(net, data, method="temperature"):
    """The network with its scores mapped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # vector scaling of few samples has no finite best
        return estimators.CalibratedClassifierCV(net, method=method, cv="prefit").fit(*data)


def measured(p, labels, T=np.nan):
    """The numbers of `COLUMNS`; calibration errors of 15 bins."""
    errors = [metrics.calibration_error(p, labels, 15, norm) for norm in ("l1", "max")]
    loss = -np.mean(np.log(np.maximum(p[np.arange(len(p)), labels], 1e-12)))
    return np.mean(p.argmax(1) == labels), *errors, loss, T


def rows(seed):
    """For each way the numbers of `COLUMNS`; the last one has labels drawn from the probabilities themselves."""
    first, second, (x, y) = noisy_digits(seed)
    net, focal = network(first, seed), network(first, seed, "focal")
    assert net.score(*first) == focal.score(*first) == 1
    found = {"as trained": measured(net.predict_proba(x), y)}
    for method, name in NAMES.items():
        model = calibrated(net, second, method)
        found[name] = measured(model.predict_proba(x), y, getattr(model, "temperature_", np.nan))
    model = calibrated(focal, second)
    found["focal loss"] = measured(focal.predict_proba(x), y)
    found["focal loss, temperature"] = measured(model.predict_proba(x), y, model.temperature_)
    p = calibrated(net, second).predict_proba(x)
    drawn = (np.random.default_rng(seed).random((len(p), 1)) > np.cumsum(p, axis=1)).sum(axis=1)
    found["labels drawn from p"] = measured(p, np.minimum(drawn, 9))
    return found


def table(seeds=range(10)):
    """Means over seeds, and their standard deviations: {way: (2, columns)}."""
    found = [rows(seed) for seed in seeds]
    ways = {way: np.array([row[way] for row in found]) for way in found[0]}
    return {way: np.stack([values.mean(axis=0), values.std(axis=0)]) for way, values in ways.items()}


def diagram(top, below, p, y, title):
    """A reliability diagram, and how many predictions are in each bin."""
    data = metrics.reliability(p, y, 10)
    there, centre = data.count > 0, (data.edges[1:] + data.edges[:-1]) / 2
    right, said = data.accuracy[there], data.confidence[there]
    top.bar(centre[there], right, 0.094, color=BLUE, label="how many were right")
    top.bar(centre[there], np.abs(said - right), 0.094, np.minimum(said, right), facecolor="none", edgecolor=ORANGE,
            hatch="////", linewidth=1, label="gap to what was said")  # fmt: skip
    top.plot([0, 1], [0, 1], "--", color=INK, linewidth=1)
    top.set(xlim=(0, 1), ylim=(0, 1), title=title, xticks=[])
    below.bar(centre, data.count, 0.094, color=GREY)
    below.set(xlim=(0, 1), xlabel="largest probability")


def reliability(seed=0):
    """Before and after a temperature."""
    first, second, (x, y) = noisy_digits(seed)
    net = network(first, seed)
    model = calibrated(net, second)
    figure, axes = plt.subplots(2, 2, figsize=(6.6, 4.0), height_ratios=(4, 1), sharey="row", layout="constrained")
    for column, (name, claimed) in enumerate((("as trained", net), (f"temperature {model.temperature_:.1f}", model))):
        p = claimed.predict_proba(x)
        diagram(*axes[:, column], p, y, f"{name}: calibration error {metrics.calibration_error(p, y, 15):.3f}")
    axes[0, 0].set_ylabel("accuracy")
    axes[1, 0].set_ylabel("count")
    axes[0, 0].legend(frameon=False, fontsize=8, loc="upper left")
    figure.savefig(IMAGES / "calibration-reliability.png")


def brier(p, y):
    """Mean squared distance of probabilities to what happened."""
    return np.mean(np.sum((p - np.eye(p.shape[1])[y]) ** 2, axis=1))


def functions(axes):
    """What each map makes of the probabilities of naive Bayes."""
    rng = np.random.default_rng(0)
    x, y = load_digits(return_X_y=True)
    x, y = x / 16 + rng.normal(0, 0.4, x.shape), (y < 3).astype(int)
    base = GaussianNB().fit(x[:600], y[:600])
    data = metrics.reliability(base.predict_proba(x[600:])[:, 1], y[600:], 10)
    axes.plot([0, 1], [0, 1], "--", color=GREY, linewidth=1)
    axes.scatter(data.confidence, data.accuracy, s=12 + data.count / 5, color=INK, zorder=4, label="what happened")
    grid = np.linspace(0, 1, 600)[1:-1]
    for method, colour in METHODS.items():
        model = calibrated(base, (x[600:], y[600:]), method)
        curve = model.calibrated_classifiers_[0].calibrator(grid, True)[:, 1]
        axes.plot(grid, curve, color=colour, linewidth=1.8, label=NAMES[method])
    axes.set(xlabel="what naive Bayes says", ylabel="what is made of it", title="Is it 0, 1 or 2? Four maps",
             xlim=(0, 1), ylim=(0, 1))  # fmt: skip
    axes.legend(frameon=False, fontsize=8, loc="upper left")


def samples(axes, seeds=range(10), sizes=(20, 50, 100, 200, 400, 1000)):
    """What each map needs: the network's Brier score by the number of samples that it learns from."""
    found = {name: [] for name in ("as trained", *METHODS)}
    for seed in seeds:
        first, second, (x, y) = noisy_digits(seed, (400, 1400))
        net = network(first, seed)
        found["as trained"].append([brier(net.predict_proba(x), y)] * len(sizes))
        for method in METHODS:
            models = (calibrated(net, tuple(v[:n] for v in second), method) for n in sizes)
            found[method].append([brier(model.predict_proba(x), y) for model in models])
    for name, values in found.items():
        colour, mean = METHODS.get(name, GREY), np.mean(values, axis=0)
        error = np.std(values, axis=0) / np.sqrt(len(values))
        axes.fill_between(sizes, mean - error, mean + error, color=colour, alpha=0.2, linewidth=0)
        axes.plot(sizes, mean, "o-" if name in NAMES else "--", color=colour, markersize=3, label=NAMES.get(name, name))
    axes.set(xscale="log", xticks=sizes, xticklabels=sizes, ylim=(0.37, 0.6), xlabel="samples to calibrate",
             ylabel="Brier score", title="10 digits by a network: what they need")  # fmt: skip
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=8, loc="upper right")


def maps():
    """Four functions of a score, and what each costs in samples."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.4), layout="constrained")
    functions(left)
    samples(right)
    figure.savefig(IMAGES / "calibration-maps.png")


COSTS = np.array([[0, 10], [1, 0], [0.5, 0.5]])
DECISIONS = ("likeliest class", "least cost,\nas trained", "least cost,\ntemperature", "with the choice\nto ask")


def decisions(seed):
    """The mean cost of a patient by each of `DECISIONS`: 200 to fit naive Bayes, 185 to calibrate, 184 to judge."""
    x, y = load_breast_cancer(return_X_y=True)
    order, y = np.random.default_rng(seed).permutation(len(y)), 1 - y  # 1 is malignant
    first, second, (x, y) = [(x[part], y[part]) for part in np.split(order, [200, 385])]
    base = GaussianNB().fit(*first)
    trained, p = base.predict_proba(x), calibrated(base, second).predict_proba(x)
    two = COSTS[:2]
    chosen = base.predict(x), estimators.decide(trained, two), estimators.decide(p, two), estimators.decide(p, COSTS)
    return [COSTS[actions, y].mean() for actions in chosen]


def costs():
    """The cheapest action at each probability; what that saves."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.1), layout="constrained")
    p = np.linspace(0, 1, 1101)
    each = estimators.expected_cost(p, COSTS)
    for action, (name, colour) in enumerate((("say healthy", BLUE), ("say ill", ORANGE), ("ask", GREEN))):
        left.plot(p, each[:, action], color=colour, linewidth=1.2, label=name)
        cheapest = np.where(each.argmin(axis=1) == action, each[:, action], np.nan)
        left.plot(p, cheapest, color=colour, linewidth=4, solid_capstyle="butt")
    left.plot([1 / 11] * 2, [0, 10 / 11], ":", color=INK, linewidth=1)
    left.annotate("1/11", (1 / 11, 10 / 11), (0.13, 1.1), fontsize=9, arrowprops={"arrowstyle": "-", "color": INK})
    left.set(xlim=(0, 1), ylim=(0, 1.3), xlabel="probability of being ill", ylabel="expected cost")
    left.legend(frameon=False, fontsize=8, loc="upper right")
    values = np.array([decisions(seed) for seed in range(20)])
    mean, spread = values.mean(axis=0), values.std(axis=0)
    right.bar(range(4), mean, color=[GREY, GREY, BLUE, GREEN], width=0.65)
    right.errorbar(range(4), mean, spread, fmt="none", ecolor=INK, elinewidth=1)
    for place, value in enumerate(mean):
        right.annotate(f"{value:.2f}", (place - 0.3, value + 0.01), fontsize=8)
    right.set_xticks(range(4), DECISIONS, fontsize=8)
    right.set(ylabel="cost of a patient", title="naive Bayes on breast cancer, 20 splits")
    figure.savefig(IMAGES / "calibration-costs.png")
    return mean, spread


def main():
    """Draw all, and print the table."""
    reliability()
    maps()
    print("costs", *costs())
    print(f"{'':24}" + "".join(f"{name:>18}" for name in COLUMNS))
    for way, (mean, spread) in table().items():
        print(f"{way:24}" + "".join(f"{m:10.3f} ± {s:.3f}" for m, s in zip(mean, spread, strict=True)))


if __name__ == "__main__":
    main()
