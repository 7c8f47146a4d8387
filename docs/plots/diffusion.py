"""The figures of docs/diffusion.md: noise, denoisers, one step against many, noise levels, guidance.

Run from the repository: python docs/plots/diffusion.py, about a minute; names of figures draw those alone. The pictures
of digits are those of the recipe: wonderland train diffusion --set data=digits.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from points import bare, save
from scipy.stats import norm, qmc

import wonderland as wl
from wonderland import data, generative, train

INK, BLUE, ORANGE, PALE = "#222222", "#0072B2", "#D55E00", "#CCCCCC"
MODES = generative.GaussianMixture([0.5, 0.3, 0.2], [[-2.0, -1.0], [2.0, -1.5], [0.5, 2.0]], 0.02)


def roll(count=2000, seed=0):
    """Points of a spiral, about centred, with a spread of about 1."""
    x, known = (data.swissroll(n, noise=0.02, seed=s)[:][0] for n, s in ((count, seed), (5000, 9)))
    return ((x - known.mean(0)) / known.std()).astype(np.float32)


def draw(denoiser, start, sigmas, solver=None, **options):
    """Samples from given noise, compiled."""
    run = lambda x: generative.sample(denoiser, x, sigmas, solver or generative.DDIM(), **options)
    return wl.jit(run)(start)


def noise():
    """What noise does to data: the data at five levels."""
    x = roll()
    epsilon = np.random.default_rng(0).normal(size=x.shape)
    figure, axes = plt.subplots(1, 5, figsize=(10, 2.2), layout="constrained")
    for place, sigma in zip(axes, (0, 0.1, 0.4, 1.5, 6)):
        side = 2.4 * np.sqrt(1 + sigma**2)
        place.scatter(*(x + sigma * epsilon).T, s=1.5, color=BLUE, linewidths=0)
        bare(place, side, f"σ = {sigma}")
    save(figure, "diffusion-noise")


def learned(x, sigmas, epochs=60, width=128):
    """A network that knows the noise in x, its weights averaged."""
    wl.random.seed(0)
    network = generative.TimeMLP(2, (width, width, width), sigma_data=float(x.std()))
    average = train.Average(network, 0.995)
    optimizer = train.Adam(network, train.one_cycle(5e-3, epochs * (len(x) // 128)))
    for _ in generative.training(network, optimizer, x, sigmas, epochs=epochs, batch_size=128, average=average):
        pass
    return average.model


def denoisers():
    """The way from x to the expected data, by the ideal denoiser and by a network; what both leave of the noise."""
    x, new = roll(1000), roll(1000, seed=1)
    sigmas = generative.log_linear(30, 0.003, 10.0).astype(np.float32)
    both = {"the ideal denoiser": generative.IdealDenoiser(x), "a trained network": learned(x, sigmas, 400)}
    figure = plt.figure(figsize=(10.4, 4.4), layout="constrained")
    grid = figure.add_gridspec(2, 4, width_ratios=(1, 1, 1, 1.5))
    places = np.stack(np.meshgrid(*[np.linspace(-2.2, 2.2, 12)] * 2), -1).reshape(-1, 2).astype(np.float32)
    for row, (name, denoiser) in enumerate(both.items()):
        for column, sigma in enumerate((0.1, 0.4, 2.0)):
            place = figure.add_subplot(grid[row, column])
            move = -sigma * wl.jit(lambda z: denoiser(z, np.float32(sigma)))(places)  # noqa: B023
            place.scatter(*x.T, s=1, color=PALE, linewidths=0)
            place.quiver(*places.T, *move.T, color=(BLUE, ORANGE)[row], angles="xy", scale_units="xy", scale=2.0,
                         width=0.007, headwidth=4)  # fmt: skip
            bare(place, 2.4, f"σ = {sigma}" if row == 0 else "")
            if column == 0:
                place.set_ylabel(name)
    place = figure.add_subplot(grid[:, 3])
    levels = np.geomspace(0.003, 10, 30).astype(np.float32)
    place.semilogx(levels, 1 / (1 + levels**2), ":", color=INK, label="the best for Gaussian data")
    for (name, denoiser), colour in zip(both.items(), (BLUE, ORANGE)):
        for points, where, style in ((x, "its data", "-"), (new, "new data", "--")):
            key = wl.random.key(0)
            loss = wl.jit(lambda s: generative.score_matching_loss(denoiser, points, key, s))  # noqa: B023
            found = [float(loss(s)) for s in levels]
            place.semilogx(levels, found, style, color=colour, label=f"{name}, {where}")
    place.set(xlabel="σ", title="what is left of the loss", ylim=(0, 1.6))
    place.legend(frameon=False, fontsize=7.5, loc="upper right")
    save(figure, "diffusion-denoisers")


def steps():
    """One step against many: from little noise, from more, and from noise alone (notes A, figure 3.1)."""
    x = roll()
    ideal = generative.IdealDenoiser(x)
    rng = np.random.default_rng(0)
    figure, axes = plt.subplots(2, 3, figsize=(8.2, 5.6), layout="constrained")
    for column, sigma in zip(axes.T, (0.1, 0.7, 10.0)):
        start = (x[:: len(x) // 400] + sigma * rng.normal(size=(len(x[:: len(x) // 400]), 2))).astype(np.float32)
        for place, count in zip(column, (1, 40)):
            sigmas = np.append(np.geomspace(sigma, 0.03, count), 0) if count > 1 else np.array([sigma, 0.0])
            path = draw(ideal, start, sigmas.astype(np.float32), trajectory=True)
            place.scatter(*x.T, s=1, color="#DDDDDD", linewidths=0)
            place.plot(*path[:, :60].transpose(2, 0, 1), color=BLUE, linewidth=0.5, alpha=0.5)
            place.scatter(*start[:60].T, s=5, color=BLUE, linewidths=0)
            place.scatter(*path[-1].T, s=5, color=ORANGE, linewidths=0, zorder=3)
            bare(place, 2.6, f"from σ = {sigma:g}" if count == 1 else "")
    for place, text in zip(axes[:, 0], ("one step", "40 steps")):
        place.set_ylabel(text, fontsize=10)
    figure.legend(handles=[plt.Line2D([], [], marker="o", linestyle="", markersize=4, color=c, label=t) for c, t in
                           ((BLUE, "noisy points, and their way"), (ORANGE, "where they end"), (PALE, "data"))],
                  loc="outside lower center", ncols=3, frameon=False)  # fmt: skip
    save(figure, "diffusion-steps")


def digit_steps():
    """The same for digits, by the ideal denoiser of half of them: new digits with noise, after so many steps."""
    images, labels = data.digits()[:]
    images = images.astype(np.float32) * (2 / images.max()) - 1
    known, new, of = images[:1200], images[1200:], labels[1200:]
    chosen = np.array([np.flatnonzero(of == d)[2] for d in (0, 3, 6)])
    ideal = generative.IdealDenoiser(known)
    epsilon = np.random.default_rng(1).normal(size=new[chosen].shape).astype(np.float32)
    counts = (1, 2, 4, 30)
    figure, axes = plt.subplots(3, 6, figsize=(9, 1.75), layout="constrained")
    for row, sigma in zip(axes, (0.5, 2.5, 20.0)):
        noisy = new[chosen] + sigma * epsilon
        pictures = [new[chosen], noisy / np.sqrt(1 + sigma**2)]
        for count in counts:
            sigmas = np.append(np.geomspace(sigma, 0.1, count), 0) if count > 1 else np.array([sigma, 0.0])
            pictures.append(draw(ideal, noisy, sigmas.astype(np.float32)))
        for place, picture in zip(row, pictures):
            tiles = np.pad(picture[:, 0], ((0, 0), (0, 0), (0, 1)), constant_values=0.0)
            place.imshow(np.concatenate(tiles, 1)[:, :-1], cmap="gray", vmin=-1, vmax=1, interpolation="nearest")
            place.set(xticks=[], yticks=[])
            place.spines[:].set_visible(False)
        row[0].set_ylabel(f"σ = {sigma:g}", rotation=0, ha="right", va="center")
    names = ("digits", "with noise", "one step", *(f"{n} steps" for n in counts[1:]))
    for place, name in zip(axes[0], names):
        place.set_title(name)
    save(figure, "diffusion-steps-digits")


def one_sigma():
    """Networks that know one noise level alone: where they were trained, and where Langevin dynamics takes points."""
    x = np.asarray(MODES.sample(wl.random.key(0), 4000), np.float32)
    start = (6 * np.random.default_rng(0).uniform(-0.6, 0.6, size=(600, 2))).astype(np.float32)
    figure, axes = plt.subplots(1, 3, figsize=(9.4, 3.4), layout="constrained")
    titles = "σ = 0.1, too small: islands", "σ = 0.8: right shares, much noise", "σ = 4, too large: modes are gone"
    for place, sigma, title in zip(axes, (0.1, 0.8, 4.0), titles):
        network = learned(x, np.float32(sigma), 40, 64)
        score = lambda z: -network(z, np.float32(sigma)) / np.float32(sigma)  # noqa: B023
        run = wl.jit(lambda z, key: generative.langevin(score, z, steps=400, step_size=sigma**2 / 8, key=key))  # noqa: B023
        end = run(start, wl.random.key(1))
        side = 4.2 if sigma < 2 else 10
        grid = np.stack(np.meshgrid(*[np.linspace(-side, side, 201)] * 2), -1)
        density = MODES.noisy(sigma).log_prob(grid)
        place.contourf(grid[..., 0], grid[..., 1], np.exp(density - density.max()), levels=12, cmap="Greys",
                       vmax=2.5)  # fmt: skip
        place.scatter(*end.T, s=4, color=ORANGE, linewidths=0, alpha=0.8)
        nearest = np.argmin(np.sum((end[:, None] - MODES.means) ** 2, -1), 1)
        shares = np.bincount(nearest, minlength=3) / len(end)
        for mean, weight, share in zip(MODES.means, MODES.weights, shares):
            if sigma < 2:
                text = f"{share:.0%} (data {weight:.0%})"
                place.annotate(text, mean, (0, 34), textcoords="offset points", fontsize=8, ha="center",
                               bbox={"color": "white", "alpha": 0.8, "pad": 1})  # fmt: skip
        bare(place, side, title)
    save(figure, "diffusion-one-sigma")


def levels():
    """Samples by exact denoisers and schedules with a fault; distances from the truth against the ends of schedules."""
    z = norm.ppf(qmc.Sobol(2, seed=0).random_base2(12))  # even noise, and a truth with the right shares: no luck in it
    even = norm.ppf(qmc.Sobol(2, seed=1).random_base2(12)[:4000])
    truth = np.repeat(MODES.means, [2000, 1200, 800], 0) + np.sqrt(0.02) * even

    def made(high, low, count, zero=True):
        sigmas = np.geomspace(high, low, count)
        return draw(MODES.denoiser(), high * z, np.append(sigmas, 0) if zero else sigmas)

    distance = lambda x: float(generative.sliced_wasserstein(x, truth))
    cases = (
        ("right: 40 steps from σ = 50 to 0.05", 50.0, 0.05, 40, True), ("σ max = 0.7, too small", 0.7, 0.05, 40, True),
        ("σ min = 0.5, too large", 50.0, 0.5, 40, False), ("10 steps from σ max = 10⁶", 1e6, 0.05, 10, True),
    )  # fmt: skip
    figure = plt.figure(figsize=(10.4, 5.4), layout="constrained")
    grid = figure.add_gridspec(2, 4, height_ratios=(1, 0.85))
    for column, (title, high, low, count, zero) in enumerate(cases):
        place = figure.add_subplot(grid[0, column])
        x = made(high, low, count, zero)
        place.scatter(*x.T, s=1.2, color=ORANGE, linewidths=0)
        for mean in MODES.means:
            place.add_patch(plt.Circle(mean, 3 * np.sqrt(0.02), fill=False, color=INK, linewidth=0.9))
        bare(place, 3.6, title)
        nearest = np.argmin(np.sum((x[:, None] - MODES.means) ** 2, -1), 1)
        for mean, share in zip(MODES.means, np.bincount(nearest, minlength=3) / len(x)):
            place.annotate(f"{share:.0%}", mean, (0, -27), textcoords="offset points", ha="center", fontsize=8,
                           bbox={"color": "white", "alpha": 0.8, "pad": 1})  # fmt: skip
    left, right = figure.add_subplot(grid[1, :2]), figure.add_subplot(grid[1, 2:])
    ends = np.geomspace(0.3, 1e6, 25)
    for count, colour in ((10, "#9ECAE1"), (40, BLUE), (160, "#08306B")):
        left.semilogx(ends, [distance(made(high, 0.05, count)) for high in ends], color=colour, label=f"{count} steps")
    left.set(xlabel="σ max", ylabel="distance from the truth", title="where to begin")
    lows = np.geomspace(0.01, 2, 15)
    for zero, colour, name in ((False, ORANGE, "ends at σ min"), (True, BLUE, "ends with a step to 0")):
        right.semilogx(lows, [distance(made(500.0, low, 160, zero)) for low in lows], color=colour, label=name)
    right.set(xlabel="σ min", title="where to end (160 steps)")
    for place in (left, right):
        place.set_ylim(0, 1.2)
        place.legend(frameon=False, fontsize=8)
    save(figure, "diffusion-levels")


def guidance():
    """Samples of one class of three, by exact denoisers and more and more guidance."""
    centres = np.array([[0.0, 1.3], [-1.2, -0.7], [1.2, -0.7]])
    whole = generative.GaussianMixture([1, 1, 1], centres, 0.5)
    start = 30 * np.random.default_rng(0).normal(size=(800, 2))
    sigmas = generative.karras(30, 0.02, 30.0)
    figure, axes = plt.subplots(1, 4, figsize=(9.6, 2.7), layout="constrained")
    grid = np.stack(np.meshgrid(*[np.linspace(-4, 4, 161)] * 2), -1)
    logs = whole.components(grid)[0]
    for place, scale in zip(axes, (0.0, 1.0, 2.0, 5.0)):
        part = generative.GaussianMixture([1], centres[:1], 0.5).denoiser()
        every = whole.denoiser()
        mixed = lambda x, s: scale * part(x, s) + (1 - scale) * every(x, s)  # noqa: B023
        made = draw(mixed, start, sigmas, generative.DPMSolver(2))
        place.contourf(grid[..., 0], grid[..., 1], np.argmax(logs, -1), levels=[-0.5, 0.5, 1.5, 2.5],
                       colors=["#FBE3D4", "#E3EEF5", "#E1F1EB"])  # fmt: skip
        place.scatter(*made.T, s=3, color=ORANGE, linewidths=0)
        place.plot(*centres.T, "+", color=INK)
        right = np.mean(np.argmax(whole.components(made)[0], -1) == 0)
        bare(place, 4, f"λ = {scale:g}" + (" (no class)" if scale == 0 else ""))
        place.set_xlabel(f"{right:.0%} in the class, spread {made.std(0).mean():.2f}")
    save(figure, "diffusion-guidance")


if __name__ == "__main__":
    for figure in (noise, denoisers, steps, digit_steps, one_sigma, levels, guidance):
        if len(sys.argv) == 1 or figure.__name__ in sys.argv[1:]:
            figure()
