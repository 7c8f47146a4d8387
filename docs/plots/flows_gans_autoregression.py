"""The figures of docs/flows-gans-autoregression.md: straight flows, a discriminator's slope, digits part by part.

Run from the repository: python docs/plots/flows_gans_autoregression.py, about six minutes; names of figures draw
those alone.
"""

import sys
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from points import bare, save

import wonderland as wl
from wonderland import data, generative, nn, train

INK, BLUE, ORANGE, GREY = "#222222", "#0072B2", "#D55E00", "#AAAAAA"


def ring(count, rng, modes=8, noise=0.08):
    """Points of Gaussians on a circle of radius 2."""
    angle = 2 * np.pi * rng.integers(modes, size=count) / modes
    return (2 * np.stack([np.cos(angle), np.sin(angle)], 1) + noise * rng.normal(size=(count, 2))).astype(np.float32)


class Velocity(nn.Module):
    """v(x, t) of points of the plane."""

    def __init__(self, width=128):
        self.layers = nn.Sequential(nn.Linear(4, width), nn.gelu, nn.Linear(width, width), nn.gelu,
                                    nn.Linear(width, width), nn.gelu, nn.Linear(width, 2))  # fmt: skip

    def __call__(self, x, t):
        """The velocity, like x."""
        t = np.broadcast_to(t, x.shape[:1])[:, None].astype(x.dtype)
        return self.layers(np.concatenate([x, t, np.cos(np.pi * t)], axis=1))


def flow_of(coupling, steps=2000, batch=256):
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
        paths.scatter(*way[0, :120].T, s=3, color=GREY, linewidths=0)
        paths.plot(*way[:, :120].transpose(2, 0, 1), color=colour, linewidth=0.5)
        paths.scatter(*way[-1, :120].T, s=4, color=INK, linewidths=0, zorder=3)
        bent = np.sum(np.linalg.norm(np.diff(way, axis=0), axis=-1)) / np.sum(np.linalg.norm(way[-1] - way[0], axis=-1))
        bare(paths, 3, "paths of the flow" if row == 0 else "")
        paths.set_xlabel(f"{bent - 1:.1%} longer than the straight way")
        step = lambda z, n: generative.flow_sample(velocity, z, n, method="euler")  # noqa: B023
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


def point(strength, steps=1500, rate=0.05):
    """The way of theta and psi: data is the point 0, the generator makes theta, and D(x) = psi x."""
    data = np.zeros((1, 1))

    def move(place, _):
        theta, psi = place
        against = lambda psi: (
            generative.discriminator_loss(lambda x: psi * x, data, np.reshape(theta, (1, 1)))
            + strength * generative.gradient_penalty(lambda x: psi * x, data)
        )
        generate = lambda theta: generative.generator_loss(lambda x: psi * x, np.reshape(theta, (1, 1)))
        return (theta - rate * wl.grad(generate)(theta), psi - rate * wl.grad(against)(psi)), np.stack([theta, psi])

    return wl.scan(move, (1.0, 0.0), np.arange(steps))[1]


def adversaries(strength, steps=3000):
    """A GAN of the ring after so many steps."""
    wl.random.seed(0)
    rng = np.random.default_rng(0)
    body = lambda ins, outs: nn.Sequential(nn.Linear(ins, 128), nn.leaky_relu, nn.Linear(128, 128), nn.leaky_relu,
                                           nn.Linear(128, outs))  # fmt: skip
    gan = generative.GAN(body(4, 2), body(2, 1), latent=4, penalty="r1" if strength else None, strength=strength)
    optimizers = tuple(train.Adam(part, 1e-3, betas=(0.0, 0.99)) for part in (gan.generator, gan.discriminator))
    step = wl.jit(lambda gan, optimizers, x, key: gan.update(optimizers, x, key))
    for i in range(steps):
        step(gan, optimizers, ring(256, rng), wl.random.key(i))
    return gan


def gans():
    """The smallest GAN there is, without and with a penalty; the same for a ring, over the discriminator."""
    figure = plt.figure(figsize=(10.2, 3.1), layout="constrained")
    axes = figure.subplots(1, 3)
    axes[0].axhline(0, color="#DDDDDD", linewidth=0.7, zorder=0)
    axes[0].axvline(0, color="#DDDDDD", linewidth=0.7, zorder=0)
    for strength, name, colour in ((0.0, "no penalty", BLUE), (0.5, "R1", ORANGE)):
        axes[0].plot(*point(strength).T, color=colour, linewidth=1, label=name)
    axes[0].plot(1, 0, "o", color=INK, markersize=4)
    axes[0].annotate("start", (1, 0), (3, 4), textcoords="offset points", fontsize=8)
    axes[0].set(aspect="equal", xlabel="θ, what the generator makes", ylabel="ψ, slope of D", ylim=(-1, 1.25),
                title="data is the point 0")  # fmt: skip
    axes[0].legend(frameon=False, fontsize=8, loc="upper center", ncols=2)
    side = np.stack(np.meshgrid(*[np.linspace(-3, 3, 121)] * 2), -1).astype(np.float32)
    truth = ring(2000, np.random.default_rng(5))
    for place, strength, name, colour in zip(axes[1:], (0.0, 0.1), ("no penalty", "R1"), (BLUE, ORANGE)):
        gan = adversaries(strength)
        chance = nn.sigmoid(gan.discriminator(side.reshape(-1, 2))).reshape(121, 121)
        tenths = np.linspace(0, 1, 11)
        shown = place.contourf(side[..., 0], side[..., 1], chance, levels=tenths, cmap="Greys", alpha=0.8)
        place.scatter(*gan.sample(wl.random.key(1), 1000).T, s=3, color=colour, linewidths=0)
        bare(place, 3, f"a ring of eight, {name}")
        print(name, float(generative.energy_distance(gan.sample(wl.random.key(7), 2000), truth)))
    figure.colorbar(shown, ax=axes[2], label="probability of data by D", shrink=0.9)
    save(figure, "gan-penalty")


def patches(images):
    """Images (B, 1, 8, 8) as 16 patches of 2 x 2, (B, 16, 4)."""
    return wl.einops.rearrange(images, "b 1 (h i) (w j) -> b (h w) (i j)", i=2, j=2)


def fitted(model, arrays, steps, rate=3e-3, **options):
    """A model after its training on (samples, labels), and the seconds it took."""
    begin = perf_counter()
    optimizer = train.Adam(model, train.one_cycle(rate, steps))
    train.fit(model, lambda model, *batch: model.loss(*batch), optimizer, arrays,
              epochs=-(-steps // (len(arrays[0]) // 64)), batch_size=64, progress=False, **options)  # fmt: skip
    return model.eval(), perf_counter() - begin


def digits():
    """Digits by class: pixel by pixel, token by token, patch by patch."""
    wl.random.seed(0)
    training, test = data.split(data.digits(), [0.8, 0.2], seed=0, stratify=True)
    (images, labels), (new, of) = training[:], test[:]
    asked = np.repeat(np.arange(10), 10)
    rng = np.random.default_rng(0)

    whole = lambda x: np.rint(x[:, 0] * 16).astype(np.int64)
    pixels, pixel_time = fitted(generative.PixelCNN(17, 48, 4, classes=10), (whole(images), labels), 1200)
    by_pixels = wl.jit(lambda key: pixels.sample(key, (100, 8, 8), asked))(wl.random.key(0))[:, None] / 16
    print(f"PixelCNN: {float(pixels.loss(whole(new), of)):.3f} nats a pixel of new digits, {pixel_time:.0f} s")

    quantizer = generative.VectorQuantizer(64, 8, update="ema", axis=1, restart=0.1)
    encoder = nn.Sequential(nn.Conv2d(1, 64, 2, stride=2), nn.gelu, nn.Conv2d(64, 8, 1))  # (B, 8, 4, 4)
    decoder = nn.Sequential(nn.Conv2d(8, 64, 3, padding=1), nn.gelu, nn.ConvTranspose2d(64, 1, 2, 2))
    vq = generative.VQVAE(encoder, decoder, quantizer)
    quantizer.fill(vq.encode(images))
    vq, vq_time = fitted(vq, (images,), 1200)
    tokens = vq.encode_tokens(images)
    gpt, gpt_time = fitted(generative.RasterGPT(64, (4, 4), 2, 4, 64, classes=10), (tokens, labels), 900)
    by_tokens = vq.decode_tokens(gpt.sample(wl.random.key(0), labels=asked))
    kept = vq.decode_tokens(vq.encode_tokens(new))
    print(f"VQ-VAE: squared error {np.mean(np.sum((kept - new) ** 2, (1, 2, 3))):.2f} a new digit, {vq_time:.0f} s")
    found = float(gpt.loss(vq.encode_tokens(new), of))
    print(f"RasterGPT: {found:.3f} nats a token (of log 64 = 4.16), {gpt_time:.0f} s")

    # Noise between the whole numbers, where a density would have no bound.
    even = lambda x: (x + rng.uniform(0, 1 / 16, x.shape)).astype(np.float32)
    parts, patch_time = fitted(generative.PatchTransformer(4, 16, 8, classes=10), (patches(even(images)), labels), 1500)
    drawn = wl.jit(lambda key: parts.sample(key, 100, asked))(wl.random.key(0))
    by_patches = wl.einops.rearrange(drawn, "b (h w) (i j) -> b 1 (h i) (w j)", h=4, i=2)
    print(f"PatchTransformer: {float(parts.loss(patches(even(new)), of)):.3f} nats a number, {patch_time:.0f} s")

    figure, axes = plt.subplots(1, 4, figsize=(10.2, 2.9), layout="constrained")
    chosen = np.concatenate([np.flatnonzero(of == d)[:10] for d in range(10)])
    near = lambda x: labels[np.argmin(np.sum((x.reshape(-1, 1, 64) - images.reshape(1, -1, 64)) ** 2, -1), 1)]
    names = "new digits", "PixelCNN: pixel by pixel", "RasterGPT: token by token", "PatchTransformer: patch by patch"
    for place, name, made in zip(axes, names, (new[chosen], by_pixels, by_tokens, by_patches)):
        sheet = np.pad(made.reshape(10, 10, 8, 8), ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=0.5)
        place.imshow(sheet.transpose(0, 2, 1, 3).reshape(90, 90)[:-1, :-1], cmap="gray", vmin=0, vmax=1)
        right = np.mean(near(made) == asked)
        found = generative.memorization(made.reshape(100, -1), images.reshape(-1, 64), new.reshape(-1, 64))
        print(f"{name}: {right:.0%} right, ratio {float(found.ratio):.2f}, copied {float(found.copied):.0%}")
        place.set(title=name, xticks=[], yticks=[])
        place.set_xlabel(f"{right:.0%} nearest to their class")
        place.spines[:].set_visible(False)
    save(figure, "raster-digits")


if __name__ == "__main__":
    for figure in (flows, gans, digits):
        if len(sys.argv) == 1 or figure.__name__ in sys.argv[1:]:
            begin = perf_counter()
            figure()
            print(f"{figure.__name__}: {perf_counter() - begin:.0f} s")
