"""Fully connected networks as estimators: `MLPClassifier` and `MLPRegressor`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from wonderland.estimators.base import FLOATS, Classifier, Regressor, one_of, positive_number, weights
from wonderland.estimators.networks import ACTIVATIONS, NetworkEstimator, layer_sizes
from wonderland.nn import init
from wonderland.nn.classification import cross_entropy
from wonderland.nn.containers import Sequential
from wonderland.nn.dropout import Dropout
from wonderland.nn.linear import Linear
from wonderland.nn.module import Module
from wonderland.nn.penalties import l2_penalty
from wonderland.nn.scores import focal_loss
from wonderland.random.keys import split

LOSSES = ("cross-entropy", "focal")


class Perceptron(NetworkEstimator):
    """Layers of `hidden_layer_sizes` units with an activation, and a linear one."""

    hidden_layer_sizes: int | Sequence[int]
    activation: str
    dropout: float

    def _architecture(self) -> tuple[Any, ...]:
        sizes = layer_sizes(self.hidden_layer_sizes, "hidden_layer_sizes")
        return sizes, one_of(self.activation, "activation", tuple(ACTIVATIONS)), share_dropped(self.dropout)

    def _built(self, shape: tuple[int, ...], outputs: int, dtype: Any, key: Any) -> Module:
        hidden, activation, dropout = self._architecture()
        function = ACTIVATIONS[activation]
        sizes = (shape[0], *hidden, outputs)
        layers: list[Any] = []
        for i, (fan_in, fan_out) in enumerate(pairwise(sizes)):
            of_layer, of_dropout = split(split(key, len(sizes))[i])
            bound = np.sqrt((2.0 if activation == "logistic" else 6.0) / (fan_in + fan_out))  # Glorot's
            draw = partial(init.uniform, low=-bound, high=bound)
            layers.append(Linear(fan_in, fan_out, init=draw, bias=draw, key=of_layer, dtype=dtype))
            if i < len(hidden):
                layers += [function] * (function is not None) + [Dropout(dropout, key=of_dropout)] * (dropout > 0)
        return Sequential(*layers)

    @property
    def n_layers_(self) -> int:
        """How many layers there are, those of inputs and outputs among them."""
        return len(self.coefs_) + 1

    @property
    def coefs_(self) -> list[np.ndarray]:
        """The weights of each layer, (units before, units)."""
        return [layer.weight.T for _, layer in self.network_.named_modules() if isinstance(layer, Linear)]

    @property
    def intercepts_(self) -> list[np.ndarray]:
        """The biases of each layer, (units,)."""
        return [layer.bias for _, layer in self.network_.named_modules() if isinstance(layer, Linear)]


class NetworkClassifier(NetworkEstimator, Classifier):
    """Labels to and from a network: one output, the score of the second of two classes, or one for each class."""

    classes_: np.ndarray
    loss: str
    gamma: float
    label_smoothing: float
    warm_start: bool

    def _checked_settings(self) -> None:
        super()._checked_settings()
        one_of(self.loss, "loss", LOSSES)
        positive_number(self.gamma, "gamma", zero=True)
        if not 0 <= positive_number(self.label_smoothing, "label_smoothing", zero=True) < 1:
            raise ValueError(f"label_smoothing is a number from 0 to below 1, got {self.label_smoothing!r}")
        if self.loss == "focal" and self.label_smoothing:
            raise ValueError('label_smoothing belongs to loss="cross-entropy"; the focal loss has gamma')

    def _loss_function(self) -> Callable[..., Any]:
        if self.loss == "focal":
            return classification_loss(float(self.gamma), 0.0)
        return classification_loss(None, float(self.label_smoothing))

    def _judged(self, outputs: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> float:
        found = outputs[:, 0] > 0 if outputs.shape[1] == 1 else np.argmax(outputs, axis=1)
        return float(np.average(found == y, weights=weight))

    def _units(self) -> int:
        return 1 if len(self.classes_) == 2 else len(self.classes_)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Train on X (n, features), labels y (n,) and weights (n,); with `warm_start` from where it was."""
        before = self.classes_ if self.warm_start and hasattr(self, "network_") else None
        X, labels, weight = self._training_labels(X, y, sample_weight, reset=before is None)
        if before is not None and not np.array_equal(before, self.classes_):
            came, self.classes_ = self.classes_, before
            raise ValueError(
                f"warm_start goes on with a network for the classes {before}, and y has {came}: use warm_start=False, "
                "or partial_fit, whose samples may lack classes"
            )
        return self._train(X, labels, weight, self._units(), go_on=before is not None)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Any:
        """One pass over some samples, from where it was; the first time with all the `classes` that will come."""
        go_on = hasattr(self, "network_")
        if not go_on and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        refuse_partial(self)
        X, y = validate_data(self, X, y, dtype=FLOATS, reset=not go_on)
        check_classification_targets(y)
        known = self.classes_ if go_on else np.unique(classes)
        if classes is not None and not np.array_equal(np.unique(classes), known):
            raise ValueError(f"classes is {np.unique(classes)}, and was {known} before")
        if len(known) < 2:
            raise ValueError(f"{type(self).__name__} tells classes apart, classes has only one class: {known}")
        unknown = np.setdiff1d(y, known)
        if len(unknown):
            raise ValueError(f"y has the classes {unknown}, which aren't among the classes {known}")
        self.classes_ = known
        weight = weights(sample_weight, X)
        return self._train(X, np.searchsorted(known, y), weight, self._units(), go_on=go_on, single_pass=True)


class MLPClassifier(Perceptron, NetworkClassifier):
    """A fully connected network that tells classes apart: softmax of W_L f(... f(W_1 x + b_1) ...) + b_L.

        model = MLPClassifier(hidden_layer_sizes=(64, 64), dropout=0.1, random_state=0).fit(X, y)
        model.predict_proba(X_test), model.history_.plot(), model.network_

    Minimised is the mean of the samples' losses (weights `sample_weight`) plus alpha |W|^2 / 2 divided by the number
    (or weight) of the samples of a batch, as scikit-learn's of this name, whose parameters these are:

    - `hidden_layer_sizes`: units of the hidden layers; () is a linear model. `activation`: "relu", "identity",
      "logistic", "tanh", "gelu" or "silu". `dropout`: the share of hidden units that each step leaves out.
    - `solver`: "adam", "sgd" (Nesterov's `momentum`), "adamw", whose `alpha` is a decoupled weight decay, or "lbfgs",
      which sees all samples in each of its iterations and ends where no slope of the loss is above `tol`.
    - `loss`: "cross-entropy", with `label_smoothing`, or "focal", -(1 - p)^gamma log p for the probability p of the
      right class (Lin et al. 2017), which makes a network less sure of itself (Mukhoti et al. 2020).
    - `batch_size`: "auto" is 200, or all samples if there are fewer. `max_iter`: passes over the data. It ends when the
      loss hasn't fallen by `tol` for `n_iter_no_change` passes; with `early_stopping`, when the accuracy on
      `validation_fraction` of the samples, which are left out, hasn't risen by that: the best weights are kept.
    - `learning_rate`: "constant", or "cosine", which falls from `learning_rate_init` to 0 over `max_iter` passes, all
      of which are then made.
    - `warm_start`: `fit` goes on with the network that is there, as `partial_fit` does. `verbose`: a progress bar.

    All is computed in the dtype of X: float32 trains about twice as fast. Inputs aren't scaled: put a StandardScaler
    before it. A sample of weight 2 is two samples, one of weight 0 is none: exactly, to rounding, where one batch has
    all samples and nothing is dropped; otherwise on average. The same `random_state` gives the same network.

    Fitted: `classes_`, `network_` (a `wl.nn.Sequential`), `history_` (a `wl.train.History`), `loss_curve_`, `loss_`
    (with the penalty), `n_iter_` (passes), `n_layers_`, `coefs_`, `intercepts_`; with early stopping
    `validation_scores_` and `best_validation_score_`.
    """

    def __init__(
        self,
        hidden_layer_sizes: int | Sequence[int] = (100,),
        activation: str = "relu",
        *,
        solver: str = "adam",
        loss: str = "cross-entropy",
        gamma: float = 2.0,
        label_smoothing: float = 0.0,
        dropout: float = 0.0,
        alpha: float = 1e-4,
        batch_size: int | str = "auto",
        learning_rate: str = "constant",
        learning_rate_init: float = 1e-3,
        momentum: float = 0.9,
        max_iter: int = 200,
        random_state: Any = None,
        tol: float = 1e-4,
        verbose: bool = False,
        warm_start: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.solver = solver
        self.loss = loss
        self.gamma = gamma
        self.label_smoothing = label_smoothing
        self.dropout = dropout
        self.alpha = alpha
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.learning_rate_init = learning_rate_init
        self.momentum = momentum
        self.max_iter = max_iter
        self.random_state = random_state
        self.tol = tol
        self.verbose = verbose
        self.warm_start = warm_start
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change

    def _apply(self, X: Any) -> Any:
        scores = self._evaluated(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores


class MLPRegressor(Perceptron, Regressor):
    """A fully connected network that predicts numbers: W_L f(... f(W_1 x + b_1) ...) + b_L, one for each output.

        model = MLPRegressor((64,), activation="tanh", random_state=0).fit(X, y)
        model.predict(X_test), model.input_gradient(X_test)

    Minimised is the mean over samples (weights `sample_weight`) of |prediction - y|^2 / 2, plus alpha |W|^2 / 2 divided
    by the number (or weight) of the samples of a batch, as scikit-learn's of this name does (of several outputs it
    reports the mean as its loss, ours is the sum). The parameters and what is fitted are those of `MLPClassifier`,
    without losses and classes; early stopping looks at R^2. Targets y (n,) or (n, outputs) aren't scaled either: a
    TransformedTargetRegressor does that.
    """

    def __init__(
        self,
        hidden_layer_sizes: int | Sequence[int] = (100,),
        activation: str = "relu",
        *,
        solver: str = "adam",
        dropout: float = 0.0,
        alpha: float = 1e-4,
        batch_size: int | str = "auto",
        learning_rate: str = "constant",
        learning_rate_init: float = 1e-3,
        momentum: float = 0.9,
        max_iter: int = 200,
        random_state: Any = None,
        tol: float = 1e-4,
        verbose: bool = False,
        warm_start: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.solver = solver
        self.dropout = dropout
        self.alpha = alpha
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.learning_rate_init = learning_rate_init
        self.momentum = momentum
        self.max_iter = max_iter
        self.random_state = random_state
        self.tol = tol
        self.verbose = verbose
        self.warm_start = warm_start
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change

    def _loss_function(self) -> Callable[..., Any]:
        return squared_loss

    def _judged(self, outputs: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> float:
        return r_squared(outputs, y, weight)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Train on X (n, features), y (n,) or (n, outputs) and weights (n,); with `warm_start` from where it was."""
        return self._trained_on(X, y, sample_weight, self.warm_start and hasattr(self, "network_"))

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """One pass over some samples, from where it was."""
        refuse_partial(self)
        return self._trained_on(X, y, sample_weight, hasattr(self, "network_"), single_pass=True)

    def _trained_on(self, X: Any, y: Any, sample_weight: Any, go_on: bool, single_pass: bool = False) -> Any:
        X, y, weight = self._training_data(X, y, sample_weight, multi_output=True, reset=not go_on)
        axes = y.ndim
        y = y.reshape(len(y), -1)
        self._train(X, y, weight, y.shape[1], go_on=go_on, single_pass=single_pass)
        self._single = axes == 1
        return self

    def _apply(self, X: Any) -> Any:
        outputs = self._evaluated(X)
        return outputs[:, 0] if self._single else outputs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def share_dropped(value: Any) -> float:
    """A parameter that is a share below 1."""
    if not 0 <= positive_number(value, "dropout", zero=True) < 1:
        raise ValueError(f"dropout is a share from 0 to below 1, got {value!r}")
    return float(value)


def refuse_partial(model: Any) -> None:
    """What can't be done in one pass."""
    if model.solver == "lbfgs":
        raise ValueError('partial_fit makes one pass of many steps; solver="lbfgs" is for all data at once: use "adam"')
    if model.early_stopping:
        raise ValueError("partial_fit does not support early_stopping=True: it makes one pass, and never stops early")


@cache
def classification_loss(gamma: float | None, smoothing: float) -> Callable[..., Any]:
    """The focal loss with this gamma, or the cross-entropy with so much smoothing."""

    def loss(network: Any, x: Any, share: Any, penalty: Any, y: Any) -> Any:
        scores = network(x)
        if scores.shape[1] == 1:
            scores = np.concatenate([-scores / 2, scores / 2], axis=1)
        if gamma is None:
            each = cross_entropy(scores, y, label_smoothing=smoothing, reduction="none")
        else:
            each = focal_loss(scores, y, gamma, reduction="none")
        return np.sum(share * each) + penalty * l2_penalty(network, "*.weight")

    return loss


def squared_loss(network: Any, x: Any, share: Any, penalty: Any, y: Any) -> Any:
    """Half of the squared error, summed over outputs."""
    error = network(x) - y
    return np.sum(share * np.sum(error * error, axis=1)) / 2 + penalty * l2_penalty(network, "*.weight")


def r_squared(found: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> float:
    """The mean over outputs of 1 - (squared error / variance); constant outputs have a variance of 1."""
    mean = np.average(y, axis=0, weights=weight)
    error, spread = (np.average((y - other) ** 2, axis=0, weights=weight) for other in (found, mean))
    return float(np.mean(1 - error / np.where(spread > 0, spread, 1)))
