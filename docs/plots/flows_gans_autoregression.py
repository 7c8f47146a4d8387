"""The figures of docs/flows-gans-autoregression.md: straight flows, a discriminator's slope, digits part by part.

Run from the repository: python docs/plots/flows_gans_autoregression.py, about three minutes; names of figures draw
those alone.
"""

import sys
from pathlib import Path
from time import perf_counter

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

import wonderland as wl
from wonderland import data, generative, nn, train

INK, BLUE, ORANGE, GREY = "#222222", "#0072B2", "#D55E00", "#AAAAAA"
IMAGES = Path(__file__).parent.parent / "images"
plt.rcParams.update({"font.size": 9, "figure.dpi": 150, "axes.titlesize": 9, "axes.spines.top": False,
                     "axes.spines.right": False})  # fmt: skip


def ring(count, rng, modes=8, noise=0.08):
    """Points of Gaussians on a circle of radius 2."""
    angle = 2 * np.pi * rng.integers(modes, size=count) / modes
    return (2 * np.stack([np.cos(angle), np.sin(angle)], 1) + noise * rng.normal(size=(count, 2))).astype(np.float32)


def save(figure, name):
    """A figure as a small file: points and lines need few colours."""
    path = IMAGES / f"{name}.png"
    figure.savefig(path)
    Image.open(path).convert("RGB").quantize(96, dither=Image.Dither.NONE).save(path, optimize=True)


def bare(place, side, title=""):
    """An axes without ticks, from -side to side."""
    place.set(aspect="equal", xlim=(-side, side), ylim=(-side, side), xticks=[], yticks=[])
    place.set_title(title)
    for spine in place.spines.values():
        spine.set(visible=True, color="#DDDDDD")


class Velocity(nn.Module):
    """v(x, t) of points of the plane."""

    def __init__(self, width=128):
        self.layers = nn.Sequential(nn.Linear(4, width), nn.gelu, nn.Linear(width, width), nn.gelu,
                                    nn.Linear(width, width), nn.gelu, nn.Linear(width, 2))  # fmt: skip

    def __call__(self, x, t):
        """The velocity, like x."""
        t = np.broadcast_to(t, x.shape[:1])[:, None].astype(x.dtype)
        return self.layers(np.concatenate([x, t, np.cos(np.pi * t)], axis=1))


def flow_of(coupling, steps=3000, batch=256):
    """A velocity trained with a coupling."""
    wl.random.seed(0)
    rng = np.random.default_rng(0)
    velocity = Velocity()
    optimizer = train.Adam(velocity, train.one_cycle(4e-3, steps))
    loss = lambda model, x, key: generative.flow_matching_loss(model, x, key, coupling=coupling)
    step = wl.jit(lambda model, optimizer, x, key: optimizer.update(model, wl.grad(loss)(model, x, key)))
    for i in range(steps):
        step(velocity, optimizer, ring(batch, rng), wl.random.key(i))
    return velocity


def flows():
    """Which noise belongs to which sample, the paths that follow, and what few steps make of them."""
    rng = np.random.default_rng(1)
    figure = plt.figure(figsize=(10.2, 5.6), layout="constrained")
    grid = figure.add_gridspec(2, 4, width_ratios=(1, 1, 1, 1.15))
    curves = figure.add_subplot(grid[:, 3])
    x, noise = ring(128, rng), rng.normal(size=(128, 2)).astype(np.float32)
    z = rng.normal(size=(4000, 2)).astype(np.float32)
    truth = ring(4000, rng)
    for row, (coupling, colour) in enumerate((("independent", BLUE), ("optimal", ORANGE))):
        pairs, paths, made = (figure.add_subplot(grid[row, k]) for k in range(3))
        other = noise[generative.optimal_pairs(x, noise)] if coupling == "optimal" else noise
        pairs.plot(*np.stack([other, x]).transpose(2, 0, 1), color=colour, linewidth=0.4)
        pairs.scatter(*x.T, s=4, color=INK, linewidths=0, zorder=3)
        bare(pairs, 3, "pairs of a batch" if row == 0 else "")
        pairs.set_ylabel(f"{coupling} coupling")
        velocity = flow_of(coupling)
        way = wl.jit(lambda z: generative.flow_sample(velocity, z, 100, trajectory=True))(z)  # noqa: B023
        paths.plot(*way[:, :120].transpose(2, 0, 1), color=colour, linewidth=0.5)
        paths.scatter(*way[-1, :120].T, s=4, color=INK, linewidths=0, zorder=3)
        bent = np.mean(np.sum(np.linalg.norm(np.diff(way, axis=0), axis=-1), 0) / np.linalg.norm(way[-1] - way[0], axis=-1))
        bare(paths, 3, "paths of the flow" if row == 0 else "")
        paths.set_xlabel(f"{bent - 1:.1%} longer than straight")
        step = wl.jit(lambda z, n: generative.flow_sample(velocity, z, n, method="euler"), static_argnums=1)  # noqa: B023
        made.scatter(*step(z, 2)[:1500].T, s=2, color=colour, linewidths=0)
        bare(made, 3, "after two steps of Euler's" if row == 0 else "")
        counts = (1, 2, 4, 8, 16, 32)
        found = [float(generative.energy_distance(step(z, n), truth)) for n in counts]
        print(coupling, bent, np.round(found, 4))
        curves.loglog(counts, found, "o-", color=colour, markersize=3, label=coupling)
    curves.axhline(float(generative.energy_distance(ring(4000, rng), truth)), color=INK, linestyle=":", linewidth=1,
                   label="more data")  # fmt: skip
    curves.set(xlabel="steps of Euler's", title="energy distance from data")
    curves.set_xticks(counts, [str(n) for n in counts])
    curves.minorticks_off()
    curves.legend(frameon=False, fontsize=8)
    save(figure, "flow-matching")


def adversaries(strength, steps=4000):
    """A GAN of the ring after so many steps, and how its samples were on the way."""
    wl.random.seed(0)
    rng = np.random.default_rng(0)
    body = lambda *sizes: nn.Sequential(*sum(([nn.Linear(a, b), nn.leaky_relu] for a, b in zip(sizes, sizes[1:])), [])[:-1])
    gan = generative.GAN(body(4, 128, 128, 2), body(2, 128, 128, 1), latent=4, penalty="r1" if strength else None,
                         strength=strength)  # fmt: skip
    optimizers = tuple(train.Adam(part, 1e-3, betas=(0.0, 0.99)) for part in (gan.generator, gan.discriminator))
    step = wl.jit(lambda gan, optimizers, x, key: gan.update(optimizers, x, key))
    truth, distances = ring(2000, rng), []
    for i in range(steps):
        step(gan, optimizers, ring(256, rng), wl.random.key(i))
        if i % 100 == 99:
            distances.append(float(generative.energy_distance(gan.sample(wl.random.key(7), 2000), truth)))
    return gan, distances


def gans():
    """Samples, and the discriminator's probability of data, without and with the penalty."""
    figure = plt.figure(figsize=(10, 3.2), layout="constrained")
    grid = figure.add_gridspec(1, 3, width_ratios=(1, 1, 1.2))
    curves = figure.add_subplot(grid[2])
    side = np.stack(np.meshgrid(*[np.linspace(-3, 3, 121)] * 2), -1).astype(np.float32)
    for column, (strength, name, colour) in enumerate(((0.0, "no penalty", BLUE), (0.1, "R1", ORANGE))):
        gan, distances = adversaries(strength)
        place = figure.add_subplot(grid[column])
        chance = nn.sigmoid(gan.discriminator(side.reshape(-1, 2))).reshape(121, 121)
        shown = place.contourf(side[..., 0], side[..., 1], chance, levels=np.linspace(0, 1, 11), cmap="Greys", alpha=0.8)
        place.scatter(*gan.sample(wl.random.key(1), 1000).T, s=3, color=colour, linewidths=0)
        bare(place, 3, name)
        curves.semilogy(100 * np.arange(1, len(distances) + 1), distances, color=colour, label=name)
        print(name, np.round(distances[-5:], 4))
    figure.colorbar(shown, ax=place, label="probability of data by D", shrink=0.9)
    curves.set(xlabel="steps", title="energy distance from data")
    curves.legend(frameon=False, fontsize=8)
    save(figure, "gan-penalty")


if __name__ == "__main__":
    for figure in (flows, gans):
        if len(sys.argv) == 1 or figure.__name__ in sys.argv[1:]:
            begin = perf_counter()
            figure()
            print(f"{figure.__name__}: {perf_counter() - begin:.0f} s")
