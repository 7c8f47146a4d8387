"""What the recipe of diffusion needs besides training: data and its network, samples, and how good they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import wonderland as wl
from wonderland import data, generative, nn, train
from wonderland.generative import views
from wonderland.recipes import generated_pictures as pictures
from wonderland.recipes.catalog import RecipeError
from wonderland.recipes.outcomes import Figures, Outcome

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LETTERS = 26
GUIDANCE = 8.0  # of illusions, which have to convince twice


def check(samples: int, steps: int) -> None:
    """Say before training what would fail after it."""
    if samples < 2 or steps < 1:
        raise RecipeError(f"diffusion: samples are at least 2 and steps at least 1, not {samples} and {steps}")


def conditions(labels: np.ndarray, words: bool) -> np.ndarray:
    """Classes (n,); with `words` their names as numbers of letters (n, 5), -1 after the end."""
    if not words:
        return labels
    spelled = np.array([[ord(letter) - ord("a") for letter in word] + [-1] * (5 - len(word)) for word in WORDS])
    return spelled[labels]


def read(name: str, folder: str, seed: int, words: bool) -> tuple[Any, Any, int]:
    """Training and test data, and how many classes there are: points, or images with values from -1 to 1."""
    if words and name not in ("digits", "mnist"):
        raise RecipeError(f"diffusion: words name digits, and {name} have none: use data=digits or mnist")
    if name == "swissroll":
        training, test = data.split(data.Arrays(data.swissroll(3000, seed=seed)[:][0]), [2 / 3, 1 / 3], seed=seed)
        return training, test, 0
    if name == "mnist":
        if not folder:
            raise RecipeError("diffusion: mnist is read from files, those of data.mnist: --folder DIR")
        parts = data.mnist(folder)
    else:
        whole = data.digits() if name == "digits" else data.moons(3000, 0.05, seed)
        parts = data.split(whole, [0.8, 0.2], seed=seed, stratify=True)
    scaled = (2.0, -1.0) if name != "moons" else (1.0, 0.0)
    made = [data.Arrays(scaled[0] * x + scaled[1], conditions(y, words)) for x, y in (part[:] for part in parts)]
    return made[0], made[1], 2 if name == "moons" else 10


def network(shape: tuple[int, ...], width: int, classes: int, words: bool, spread: float) -> nn.Module:
    """For points a perceptron, for images a U-Net, whose lowest resolution is 4 or 7 pixels."""
    if len(shape) == 1:
        return generative.TimeMLP(shape[0], (4 * width,) * 3, classes=classes or None, sigma_data=spread)
    sizes = (1, 2) if shape[-1] <= 16 else (1, 2, 2)
    told: dict[str, Any] = {"context": width, "tokens": LETTERS} if words else {"classes": classes}
    return generative.UNet(shape[0], width, sizes, sigma_data=spread, **told)


def denoiser(model: Any, condition: Any, guidance: float) -> Any:
    """That of a trained network, guided to conditions if there are any."""
    return model if condition is None else generative.guided(model, condition, guidance)


def denoised(denoiser: Any, noise: np.ndarray, sigmas: np.ndarray) -> np.ndarray:
    """What DDIM makes of noise, with all that is on the way, (steps + 1, ...)."""
    return generative.sample(wl.jit(denoiser), noise, sigmas, trajectory=True)


def write_gif(path: np.ndarray, checkpoint: Any) -> None:
    """Write trajectory.gif beside the checkpoints of a run, if there is one."""
    folder = getattr(checkpoint, "folder", checkpoint)
    if folder is not None:
        Path(folder).parent.mkdir(parents=True, exist_ok=True)
        pictures.gif(path, Path(folder).parent / "trajectory.gif")


def outcome(
    model: Any, history: train.History, training: Any, test: Any, path: np.ndarray, sigmas: np.ndarray,
    guidance: float, words: bool,
) -> Outcome:  # fmt: skip
    """Numbers and pictures of samples, the last of a path, beside data."""
    made = path[-1]
    real, new = training[:][0], test[:][0]
    copies = generative.memorization(made, real, new)
    numbers = {"memorisation (1 is none)": float(copies.ratio), "copies": float(copies.copied)}
    drawn: Figures = {}
    if made.ndim == 2:
        less = real[: len(made)]  # as many as samples: what the distance is if all is right
        numbers = {
            "sliced Wasserstein": float(generative.sliced_wasserstein(made, new)),
            "that of training data": float(generative.sliced_wasserstein(less, new)),
            "MMD²": float(generative.mmd(made, new)),
            "energy distance": float(generative.energy_distance(made, new)),
        } | numbers
    else:
        found, drawn = _images(model, training, test, made, sigmas, words, min(10, len(history["epoch"])))
        numbers = found | numbers

    def figures() -> Figures:
        return {
            "samples": pictures.samples(made, new),
            "trajectory": pictures.trajectory(path, sigmas),
            "memorisation": pictures.memorisation(copies),
            **{name: draw() for name, draw in drawn.items()},
        }

    return Outcome(model, history, numbers | {"guidance": guidance}, figures)


def _images(
    model: Any, training: Any, test: Any, made: np.ndarray, sigmas: np.ndarray, words: bool, epochs: int
) -> tuple[dict[str, float], Figures]:
    """What a classifier of real images says about samples and illusions."""
    plain = [data.Arrays(x, y if y.ndim == 1 else _labels(y)) for x, y in (part[:] for part in (training, test))]
    (real, classes), (new, true) = plain[0][:], plain[1][:]
    features, head = classifier(plain[0], epochs)
    said = lambda images: np.argmax(train.predict(head, train.predict(features, images)), 1)
    asked = np.arange(len(made)) * 10 // len(made)
    spread = lambda images, labels: np.mean([images[labels == k].std(0).mean() for k in np.unique(labels)])
    first = asked
    second = np.arange(len(made)) % 10 if len(made) > 10 else (asked + 1) % 10  # all pairs, if there are 100 samples
    turned = views.illusion(
        [generative.guided(model, conditions(labels, words), GUIDANCE) for labels in (first, second)],
        [views.identity(), views.rotate(180)],
    )
    noise = sigmas[0] * wl.random.normal(wl.random.key(1), made.shape, dtype=np.float32)
    both = denoised(turned, noise, sigmas)[-1]
    upside = np.ascontiguousarray(both[..., ::-1, ::-1])
    right = (said(both) == first) & (said(upside) == second)
    numbers = {
        "as asked, accuracy": float(np.mean(said(made) == asked)),
        "the classifier's test accuracy": float(np.mean(said(new) == true)),
        "Fréchet distance of features": float(
            generative.frechet_distance(train.predict(features, made), train.predict(features, new))
        ),
        "diversity (1 is that of data)": float(spread(made, asked) / spread(real, classes)),
        "illusions that are both, accuracy": float(np.mean(right[first != second])),
    }
    return numbers, {"illusions": lambda: pictures.illusions(both, upside, first, second, right)}


def _labels(spelled: np.ndarray) -> np.ndarray:
    """Classes of names."""
    return np.argmax(np.all(spelled[:, None] == conditions(np.arange(10), True), -1), 1)


def classifier(training: Any, epochs: int) -> tuple[nn.Module, nn.Module]:
    """Features (n, 64) of images, and the logits of features: a small network, trained on real images."""
    convolution = lambda i, o: (nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.relu)
    features = nn.Sequential(
        *convolution(1, 32), *convolution(32, 32), nn.MaxPool2d(2), *convolution(32, 64), nn.GlobalAvgPool()
    )
    head = nn.Linear(64, 10)
    whole = nn.Sequential(features, head)
    size = min(64, len(training))
    count = max(1, min(epochs, epochs * 2000 // len(training)))
    optimizer = train.AdamW(whole, train.one_cycle(1e-2, count * -(-len(training) // size)))
    loss = lambda model, images, labels: nn.cross_entropy(model(images), labels, label_smoothing=0.05)
    train.fit(whole, loss, optimizer, training, epochs=count, batch_size=size, progress=False, ranks=train.Ranks())
    return features, head
