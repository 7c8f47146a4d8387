"""The figures of docs/depth.md: gradients against depth, plain and residual networks in training, receptive fields.

Run from the repository: python docs/plots/depth.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import wonderland as wl
from wonderland import nn, train

IMAGES = Path(__file__).parent.parent / "images"
COLOURS = ["#2171B5", "#CB181D", "#238B45", "#E6860B", "#6A51A3"]
GREY = "#999999"
WIDTH = 32
plt.rcParams.update({"font.size": 9, "figure.dpi": 150, "axes.titlesize": 9, "axes.spines.top": False,
                     "axes.spines.right": False})  # fmt: skip


def network(depth, activation=nn.relu, init=None, norm=None, residual=None):
    """`depth` blocks between two linear layers.

    Plain: a(norm(W x)). Residual: "post", x + a(norm(W x)); "pre", x + W a(norm(x)); "scaled", x + a(W x) / √depth.
    """
    blocks = []
    for _ in range(depth):
        layers = [nn.Linear(WIDTH, WIDTH, init=init, bias=nn.init.zeros), *([norm(WIDTH)] if norm else []), activation]
        block = nn.Sequential(*(layers[1:] + layers[:1] if residual == "pre" else layers))
        scale = depth**-0.5 if residual == "scaled" else None
        blocks.append(nn.Residual(block, scale=scale) if residual else block)
    return nn.Sequential(nn.Linear(8, WIDTH), *blocks, nn.Linear(WIDTH, 1))


def data(count=128):
    """Points and a smooth function of them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, 8)).astype(np.float32)
    return x, np.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3]


def first_gradient(model):
    """The norm of the gradient of the first block's parameters."""
    x, y = data()
    gradient = wl.grad(lambda m: nn.mse_loss(m(x), y))(model)
    return np.sqrt(sum(np.sum(g.astype(np.float64) ** 2) for g in wl.tree_leaves(gradient[1])))  # 1e20 squared fits


def gradients(depths=(1, 2, 4, 8, 16, 24, 32, 40, 48, 64)):
    """Norms of gradients against the depth, by activation, norm and residual connections."""
    glorot, he = nn.init.glorot_normal, nn.init.he_normal
    panels = [
        ("plain, by activation", [
            ("sigmoid, Glorot", {"activation": nn.sigmoid, "init": glorot}),
            ("ReLU, Glorot", {"activation": nn.relu, "init": glorot}),
            ("tanh, Glorot", {"activation": nn.tanh, "init": glorot}),
            ("ReLU, He", {"activation": nn.relu, "init": he}),
        ]),
        ("plain ReLU, Glorot, by norm", [
            ("none", {"init": glorot}),
            ("LayerNorm", {"init": glorot, "norm": nn.LayerNorm}),
            ("RMSNorm", {"init": glorot, "norm": nn.RMSNorm}),
            ("BatchNorm", {"init": glorot, "norm": nn.BatchNorm1d}),
        ]),
        ("residual ReLU, Glorot", [
            ("a(Wx), plain", {"init": glorot}),
            ("x + a(Wx)", {"init": glorot, "residual": "post"}),
            ("x + a(Wx) / √depth", {"init": glorot, "residual": "scaled"}),
            ("x + W a(LayerNorm(x))", {"init": glorot, "norm": nn.LayerNorm, "residual": "pre"}),
        ]),
    ]  # fmt: skip
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.3), sharey=True, layout="constrained")
    for place, (title, cases) in zip(axes, panels, strict=True):
        for colour, (label, options) in zip(COLOURS, cases, strict=False):
            found = []
            for depth in depths:
                wl.random.seed(0)
                found.append(first_gradient(network(depth, **options)))
            print(f"{title}: {label}: {', '.join(f'{g:.1e}' for g in found)}")
            place.semilogy(depths, found, "o-", color=colour, label=label, linewidth=1.3, markersize=3)
        place.set(title=title, xlabel="depth", xticks=[0, 16, 32, 48, 64], ylim=(1e-14, 1e14))
        place.legend(frameon=False, loc="lower left" if place is axes[2] else "upper left")
    axes[0].set_ylabel("|gradient of the first block|")
    figure.savefig(IMAGES / "depth-gradients.png")


def training(steps=300):
    """Losses of plain and residual networks of several depths."""
    x, y = data(512)
    kinds = [
        ("plain, default initialisation", {}),
        ("plain, He initialisation", {"init": nn.init.he_normal}),
        ("x + W a(LayerNorm(x)), default", {"norm": nn.LayerNorm, "residual": "pre"}),
    ]
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.1), sharey=True, layout="constrained")
    for place, (title, options) in zip(axes, kinds, strict=True):
        for colour, depth in zip(COLOURS, (2, 8, 24, 64), strict=False):
            wl.random.seed(0)
            model = network(depth, **options)
            optimizer = train.SGD(model, rate=train.cosine(1e-2, steps), momentum=0.9)

            @wl.jit
            def step(model, optimizer, x, y):
                loss, grads = wl.value_and_grad(lambda m: nn.mse_loss(m(x), y))(model)
                optimizer.update(model, train.clip_by_norm(grads, 1.0))
                return loss

            losses = [step(model, optimizer, x, y) for _ in range(steps)]
            print(f"{title}, {depth}: {losses[-1]:.4f}")
            place.semilogy(losses, color=colour, label=f"{depth} blocks", linewidth=1.2)
        place.set(xlabel="step", title=title)
    axes[0].legend(frameon=False, loc="lower left")
    axes[0].set_ylabel("loss")
    figure.savefig(IMAGES / "depth-training.png")


if __name__ == "__main__":
    gradients()
    training()
