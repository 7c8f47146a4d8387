"""A variational auto-encoder of handwritten digits: two numbers for each, and new digits of two numbers."""

from typing import Any

import numpy as np
from scipy.special import ndtri

import wonderland as wl
from wonderland import data, generative, nn, recipes, train
from wonderland.recipes import latent_pictures


def run(
    epochs: int = 60, batch_size: int = 64, rate: float = 3e-3, latent: int = 2, hidden: int = 256, beta: float = 1.0,
    samples: int = 1, seed: int = 0, **options: Any,
) -> recipes.Outcome:  # fmt: skip
    """Train the ELBO, and return the log-likelihood of digits that were never looked at, beside that of PCA."""
    wl.random.seed(seed)
    training, test = data.split(data.digits(), [0.8, 0.2], seed=seed, stratify=True)
    loader = data.Loader(training, batch_size, shuffle=True, seed=seed)
    known = training[:][0].reshape(-1, 64)
    pca = generative.probabilistic_pca(known.astype(np.float64), latent)  # says at once which latents it refuses
    middle = lambda: [nn.gelu, nn.Linear(hidden, hidden), nn.gelu]
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), *middle(), nn.Linear(hidden, 2 * latent))
    decoder = nn.Sequential(
        nn.Linear(latent, hidden), *middle(), nn.Linear(hidden, 64), nn.Unflatten(1, (1, 8, 8))
    )  # fmt: skip
    model = generative.VAE(encoder, decoder, latent, variance="scalar", sigma=0.3, beta=beta, samples=samples)

    def loss(model, images, labels):
        return model.loss(images)

    optimizer = train.AdamW(model, train.one_cycle(rate, epochs * len(loader)), weight_decay=1e-3)
    history = train.fit(model, loss, optimizer, loader, epochs=epochs, **options)

    model.eval()
    x, labels = test[:]
    mean = lambda values: float(np.mean(values))
    numbers = {
        "test log-likelihood": mean(model.log_likelihood(x, samples=1000, key=wl.random.key(seed))),
        "test ELBO": mean(model.elbo(x, samples=50, key=wl.random.key(seed))),
        "of this the KL divergence": mean(model.terms(x)[1]),
        "log-likelihood of probabilistic PCA": mean(pca.log_likelihood(x.reshape(-1, 64))),
        "squared error": mean(np.sum((x - model.reconstruct(x)) ** 2, axis=(1, 2, 3))),
        "squared error of PCA": float(generative.LinearAutoEncoder(64, latent).fit(known).loss(x.reshape(-1, 64))),
    }

    def figures():
        pairs = np.stack([x[:10, 0], model.reconstruct(x[:10])[:, 0]])
        new = model.sample(50, key=wl.random.key(seed))[:, 0].reshape(5, 10, 8, 8)
        side = ndtri(np.linspace(0.03, 0.97, 15)).astype(np.float32)  # the same share of the prior between all of them
        grid = np.zeros((15, 15, latent), np.float32)
        grid[..., 0], grid[..., min(1, latent - 1)] = side, -side[:, None]
        plane = model.decode(grid.reshape(225, latent))[:, 0].reshape(15, 15, 8, 8)
        return {"latent space": latent_pictures.code_map(model.encode(x), labels, [str(k) for k in range(10)]),
                "plane of codes": latent_pictures.tiles(plane, "what codes look like, over the prior"),
                "reconstructions": latent_pictures.tiles(pairs, "new digits, and by their codes", ("digit", "decoded")),
                "samples": latent_pictures.tiles(new, "codes of the prior, decoded")}  # fmt: skip

    return recipes.Outcome(model, history, numbers, figures, __doc__ or "")
