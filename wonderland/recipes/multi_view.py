"""Several bad views of one digit, in no order: the more of them a model sees, the more often it is right."""

from typing import Any

import numpy as np

import wonderland as wl
from wonderland import data, models, nn, recipes, train
from wonderland.recipes import drawing


def views_of(most: int, noise: float, degrees: float, hidden: int) -> Any:
    """A transform of batches: images (B, 1, 8, 8) to views (B, most, 1, 8, 8), of which a mask says how many count."""
    view = data.compose(data.rotate(degrees), data.cutout(hidden), data.gaussian_noise(noise))

    def seen(batch, rng):
        images, labels = batch
        views = view(np.repeat(images, most, axis=0), rng).reshape(len(images), most, *images.shape[1:])
        return views, np.arange(most) < rng.integers(1, most + 1, (len(images), 1)), labels

    return seen


def run(
    epochs: int = 30, batch_size: int = 64, rate: float = 3e-3, views: int = 8, noise: float = 0.2,
    degrees: float = 30.0, hidden: int = 5, width: int = 64, seed: int = 0, **options: Any,
) -> recipes.Outcome:  # fmt: skip
    """Train with 1 to `views` views, and return how often it is right with each number of them on new digits."""
    if views < 1:
        raise recipes.RecipeError(f"multi-view: views is at least 1, not {views}")
    wl.random.seed(seed)
    training, test = data.split(data.digits(), [0.7, 0.3], seed=seed, stratify=True)
    seen = views_of(views, noise, degrees, hidden)
    loader = data.Loader(training, batch_size, shuffle=True, seed=seed, transform=seen)
    layers = [nn.Conv2d(1, 16, 3, padding=1), nn.relu, nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.relu]
    backbone = nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 4 * 4, width))
    model = models.MultiView(backbone, width, classes=10)
    optimizer = train.AdamW(model, train.one_cycle(rate, epochs * len(loader)), weight_decay=0.01)
    logits = lambda model, views, mask: model(views, mask=mask)
    loss = lambda model, views, mask, labels: nn.cross_entropy(logits(model, views, mask), labels)
    history = train.fit(model, loss, optimizer, loader, epochs=epochs, **options)

    rng = np.random.default_rng(seed)
    x, _, labels = seen(test[:], rng)
    said = lambda x, mask: train.predict(model, (x, np.broadcast_to(mask, x.shape[:2]).copy()), outputs=logits)
    counts, right = range(1, views + 1), lambda scores: float(np.mean(np.argmax(scores, -1) == labels))
    together = [said(x, np.arange(views) < count) for count in counts]
    alone = nn.softmax(np.stack([said(x, np.arange(views) == k) for k in range(views)]))  # (views, digits, 10)
    means = [np.mean(alone[:count], axis=0) for count in counts]
    lines = {"all together": [*map(right, together)], "mean of each alone": [*map(right, means)]}
    moved = rng.permuted(np.broadcast_to(np.arange(views), x.shape[:2]), axis=1)
    other = said(np.take_along_axis(x, moved[:, :, None, None, None], axis=1), True)
    numbers = {"test accuracy": lines["all together"][-1], "with one view": lines["all together"][0],
               "change of logits by another order": float(np.abs(other - together[-1]).max())}  # fmt: skip

    def figures():
        return {"accuracy by views": drawing.lines(counts, lines, f"{len(x)} new digits", ("views", "accuracy")),
                "views": drawing.rows(x[:6, :, 0], [f"a {n}" for n in labels[:6]])}  # fmt: skip

    return recipes.Outcome(model, history, numbers, figures, __doc__ or "")
