"""What recipes of self-supervision share: digits, an encoder, and what its embeddings are good for afterwards.

An encoder that was trained without labels comes in. Out come its accuracies with few labels, beside those of the same
network without such a start; how well neighbours and clusters of its embeddings agree with labels; and pictures.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import wonderland as wl
from wonderland import data, estimators, generative, nn, train
from wonderland.recipes import pretext_pictures as pictures
from wonderland.recipes.catalog import RecipeError
from wonderland.recipes.outcomes import Figures, Outcome
from wonderland.train import metrics

CLASSES = 10
COMPONENTS = 16  # principal ones, in which clusters are looked for
NEAR = 10  # neighbours that are looked at
ALONE = train.Ranks()  # the same for all trainings with labels: what one compiles is there for the next
FROZEN, TUNED, SCRATCH = "frozen backbone, linear head", "fine-tuned", "from scratch"

Parts = tuple[np.ndarray, np.ndarray]  # vectors of training digits, and of test digits


def read(seed: int, labels: int, draws: int) -> tuple[Any, Any, list[np.ndarray]]:
    """Training digits, test digits, and which of the first have labels: for each draw, so many of each class."""
    training, test = data.split(data.digits(), [0.7, 0.3], seed=seed, stratify=True)
    known = training[:][1]
    most = int(np.bincount(known).min())
    if not 1 <= labels <= most or draws < 1:
        raise RecipeError(f"labels are 1 to {most} of each class and draws at least 1, not {labels} and {draws}")
    choose = lambda rng: [rng.choice(np.flatnonzero(known == k), labels, replace=False) for k in range(CLASSES)]
    return training, test, [np.concatenate(choose(np.random.default_rng([seed, draw]))) for draw in range(draws)]


def view() -> Any:
    """A transform of images (n, 1, 8, 8): turned, resized, moved, lighter or darker, with noise; still that digit."""
    moved = data.rotate(15), data.zoom(1.2), data.crop(8, padding=1)
    return data.compose(*moved, data.jitter(0.2), data.gaussian_noise(0.05))


def encoder(width: int) -> nn.Sequential:
    """Images (n, 1, 8, 8) to embeddings (n, 8 width)."""
    convolution = lambda i, o: (nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.relu)
    return nn.Sequential(
        *convolution(1, width), nn.MaxPool2d(2), *convolution(width, 2 * width), *convolution(2 * width, 2 * width),
        *convolution(2 * width, 2 * width), nn.MaxPool2d(2), nn.Flatten(),
    )  # fmt: skip


def spaces_of(backbone: Any, training: Any, test: Any) -> dict[str, Parts]:
    """Digits as pixels (n, 64), as they are, and as embeddings, each coordinate with mean 0 and deviation 1.

    Means and deviations are those of the training digits. Pixels are best as they are: at the border, they hardly vary.
    """
    images = [part[:][0] for part in (training, test)]
    known, new = (train.predict(backbone, x).astype(np.float64) for x in images)
    middle, spread = known.mean(axis=0), known.std(axis=0)
    spread = np.where(spread > 1e-3, spread, np.inf)  # what never changes is 0
    pixels, others = (x.reshape(len(x), -1).astype(np.float64) for x in images)
    return {"pixels": (pixels, others), "embeddings": ((known - middle) / spread, (new - middle) / spread)}


def label_loss(network: Any, images: Any, labels: Any) -> Any:
    """That of training with labels."""
    return nn.cross_entropy(network(images), labels, label_smoothing=0.1)


def taught(backbone: Any, images: np.ndarray, labels: np.ndarray, epochs: int, seed: int) -> Any:
    """A copy of an encoder and a head on top, both trained on images with labels, by the same views as without."""
    wl.random.seed(seed)
    width = train.predict(backbone, images[:1]).shape[1]
    network = nn.Sequential(copy.deepcopy(backbone), nn.Dropout(0.3), nn.Linear(width, CLASSES)).train()
    seen = view()
    viewed = lambda batch, rng: (seen(batch[0], rng), batch[1])
    loader = data.Loader((images, labels), min(50, len(images)), shuffle=True, seed=seed, transform=viewed)
    optimizer = train.AdamW(network, train.one_cycle(5e-3, epochs * len(loader)), weight_decay=0.01)
    train.fit(network, label_loss, optimizer, loader, epochs=epochs, progress=False, ranks=ALONE)
    return network


def few_labels(
    backbone: Any, width: int, spaces: Mapping[str, Parts], training: Any, test: Any, draws: list[np.ndarray],
    epochs: int, seed: int,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Accuracies on test digits by each way to use the labels of a draw: {way: (draws,)}."""
    (images, known), (new, right) = training[:], test[:]
    (pixels, new_pixels), (vectors, new_vectors) = spaces["pixels"], spaces["embeddings"]
    fit = lambda model, x, some, others: model.fit(x[some], known[some]).predict(others)
    learn = lambda start, some: np.argmax(train.predict(taught(start, images[some], known[some], epochs, seed), new), 1)
    ways: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        FROZEN: lambda some: fit(estimators.LogisticRegression(C=0.1), vectors, some, new_vectors),
        TUNED: lambda some: learn(backbone, some),
        SCRATCH: lambda some: learn(encoder(width), some),
        "pixels, linear head": lambda some: fit(estimators.LogisticRegression(C=10.0), pixels, some, new_pixels),
        "pixels, nearest neighbour": lambda some: fit(estimators.KNeighborsClassifier(1), pixels, some, new_pixels),
    }
    return {name: np.array([np.mean(way(some) == right) for some in draws]) for name, way in ways.items()}


def neighbours(spaces: Mapping[str, Parts], right: np.ndarray) -> list[dict[str, Any]]:
    """How many of the nearest test digits, by cosine, are the digit that looks for them."""
    rows = []
    for name, (_, new) in spaces.items():
        near = metrics.precision_at_k(new, right, NEAR)
        rows.append({"in": name, f"precision at {NEAR}": near,
                     "mean average precision": metrics.mean_average_precision(new, right)})  # fmt: skip
    return rows


def clusters(spaces: Mapping[str, Parts], right: np.ndarray, seed: int) -> list[dict[str, Any]]:
    """How well ten clusters of training digits, found without labels, sort test digits."""
    rows = []
    for name, (known, new) in spaces.items():
        plane = generative.LinearAutoEncoder(known.shape[1], COMPONENTS, dtype=np.float64).fit(known)  # that is, PCA
        known, new = plane.encode(known), plane.encode(new)
        for method, model in {
            "k-means": estimators.KMeans(CLASSES, n_init=10, random_state=seed),
            "Gaussian mixture": estimators.GaussianMixtureModel(CLASSES, n_init=3, reg_covar=1e-3, random_state=seed),
        }.items():
            found = model.fit(known).predict(new)
            rows.append({
                "in": name, "by": method, "accuracy": metrics.clustering_accuracy(found, right),
                "mutual information": metrics.normalized_mutual_info(found, right),
                "adjusted Rand index": metrics.adjusted_rand_index(found, right),
            })  # fmt: skip
    return rows


def outcome(
    model: Any, backbone: Any, width: int, history: train.History, training: Any, test: Any, draws: list[np.ndarray],
    *, epochs: int, seed: int, numbers: Mapping[str, Any], figures: Callable[[], Figures], text: str,
) -> Outcome:  # fmt: skip
    """What an encoder learnt without labels: numbers, tables and pictures; `epochs` are those of training with few."""
    new, right = test[:]
    spaces = spaces_of(backbone, training, test)
    scores = few_labels(backbone, width, spaces, training, test, draws, epochs, seed)
    gain = scores[FROZEN] - scores[SCRATCH]
    near, sorts = neighbours(spaces, right), clusters(spaces, right, seed)
    of = lambda rows, column: {f"{row['in']}{', ' + row['by'] if 'by' in row else ''}": row[column] for row in rows}
    found = {
        f"accuracy, {FROZEN}": float(scores[FROZEN].mean()),
        f"accuracy, {SCRATCH}": float(scores[SCRATCH].mean()),
        "margin of accuracy": float(gain.mean()),
        "draws of labels with a margin": f"{np.sum(gain > 0)} of {len(gain)}",
        f"accuracy, {TUNED}": float(scores[TUNED].mean()),
    }
    found |= {f"accuracy, {name}": float(scores[name].mean()) for name in [*scores][3:]}
    found |= {f"precision at {NEAR}, {name}": value for name, value in of(near, f"precision at {NEAR}").items()}
    found |= {f"accuracy of clusters, {name}": value for name, value in of(sorts, "accuracy").items()}
    count = len(draws[0]) // CLASSES
    each = lambda values: {f"draw {k + 1}": value for k, value in enumerate(values)}
    ways = [{"way": name, "mean accuracy": values.mean(), "deviation over draws": values.std(), **each(values)}
            for name, values in scores.items()]  # fmt: skip

    def drawn() -> Figures:
        return {
            "few labels": pictures.few_labels(scores, count, len(right)),
            **figures(),
            "embeddings": pictures.planes({name: parts[1] for name, parts in spaces.items()}, right),
            "neighbours": pictures.neighbours({name: parts[1] for name, parts in spaces.items()}, new, right),
        }

    tables = {f"With {count} labels a class": ways, "Neighbours": near, "Clusters": sorts}
    return Outcome(model, history, found | dict(numbers), drawn, text, tables)
