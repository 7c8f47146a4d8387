"""MNIST-1D, digits as signals of 40 numbers: a convolutional network (94 % published) or an MLP (68 %)."""

from typing import Any

import wonderland as wl
from wonderland import data, nn, recipes, train


def convolutional(width: int, dropout: float) -> nn.Sequential:
    """Three convolutions, the last two with strides, and a linear layer."""
    layers: list[Any] = [nn.Unflatten(1, (1, 40))]
    for inputs, outputs, stride in [(1, width, 1), (width, width, 2), (width, 2 * width, 2)]:
        convolution = nn.Conv1d(inputs, outputs, 5, stride=stride, padding=2, bias=False)
        layers += [convolution, nn.BatchNorm1d(outputs), nn.relu]
    return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(dropout), nn.Linear(2 * width * 10, 10))


def perceptron(width: int, dropout: float) -> nn.Sequential:
    """Two hidden layers."""
    layers: list[Any] = []
    for inputs in (40, 8 * width):
        layers += [nn.Linear(inputs, 8 * width), nn.relu, nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(8 * width, 10))


MODELS = {"cnn": convolutional, "mlp": perceptron}


def run(
    model: str = "cnn",
    epochs: int = 40,
    batch_size: int = 100,
    rate: float = 5e-3,
    width: int = 32,
    dropout: float = 0.3,
    weight_decay: float = 0.01,
    shift: int = 2,  # augmentation: signals move by up to so many places, anew in each epoch
    data_seed: int = 42,  # 42 is the published set; another number makes another one
    seed: int = 0,
    **options: Any,
) -> recipes.Outcome:
    """Train, and return how good it is on the 1000 test signals."""
    if model not in MODELS:
        raise recipes.RecipeError(f"mnist1d: model is {' or '.join(MODELS)}, not {model!r}")
    wl.random.seed(seed)
    known, test = data.mnist1d(seed=data_seed)
    training, validation = data.split(known, [0.9, 0.1], seed=seed, stratify=True)
    loader = data.Loader(training, batch_size, shuffle=True, seed=seed, transform=data.roll(shift) if shift else None)
    network = MODELS[model](width, dropout)

    def loss(network, signals, labels):
        return nn.cross_entropy(network(signals), labels)

    optimizer = train.AdamW(network, train.one_cycle(rate, epochs * len(loader)), weight_decay=weight_decay)
    history = train.fit(
        network, loss, optimizer, loader, epochs=epochs, validation=validation,
        metrics={"accuracy": train.metrics.Accuracy()}, **options,
    )  # fmt: skip
    return recipes.classification(network, history, test)
