"""Regression with a standard deviation that depends on x, too: `HeteroscedasticRegressor` (notes E 3.2.2)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_array, check_consistent_length

from wonderland.estimators.base import FLOATS, Regressor, positive_number, probability
from wonderland.estimators.heteroscedastic_newton import minimized
from wonderland.estimators.mlp import Perceptron
from wonderland.nn.losses import gaussian_nll_loss
from wonderland.nn.module import Module
from wonderland.nn.penalties import l2_penalty
from wonderland.random.keys import key
from wonderland.train.history import History


class HeteroscedasticRegressor(Perceptron, Regressor):
    """Mean and standard deviation of y as functions of x, by maximum likelihood: p(y | x) = N(f1(x), f2(x)^2).

        model = HeteroscedasticRegressor().fit(X, y)
        mean, std = model.predict(X_new, return_std=True)
        low, high = model.predict_interval(X_new, 0.9).T
        model.log_likelihood(X_test, y_test).mean()

    A network with the hidden layers `hidden_layer_sizes` has two outputs, m and s. With z = (y - mean of y) / std of y,

        minimise   sum_i w_i (log V_i + (z_i - m_i)^2 / V_i) / 2 + alpha |W|^2 / 2,        V = exp(2 s) + floor^2

    over m(x) and s(x), W all weights that aren't biases: f1 = mean of y + std of y m, f2 = std of y sqrt(V). (f2 is
    the notes' second output, here an exponential: positive, and its logarithm has no kink.) `floor` is the smallest
    standard deviation, as a share of that of y. Without one the likelihood has no maximum where a prediction can be
    right to all digits, as with more features than samples.

    - Without hidden layers, the default, mean and log standard deviation are linear (Harvey 1976). Newton's method
      finds the optimum to rounding, deterministic, in double precision; a sample of weight 2 is two samples, one of
      weight 0 is none. `coef_` and `intercept_` are of the mean, `log_std_coef_` and `log_std_intercept_` of
      log f2 (where `floor` isn't felt). A step costs n p^2 + p^3. `max_iter` bounds the steps; the parameters of
      training aren't used.
    - With hidden layers it is trained as `MLPRegressor`, whose parameters and fitted attributes it has (Nix and Weigend
      1994); with `early_stopping` by the likelihood of samples left out. The loss is that of z.

    Where noise is the same everywhere, the linear model becomes least squares as n grows. Inputs aren't scaled.
    """

    momentum: float = 0.9
    y_mean_: float
    y_std_: float
    floor_: float
    network_: Module
    history_: History
    loss_: float
    loss_curve_: list[float]
    n_iter_: int

    def __init__(
        self,
        hidden_layer_sizes: int | Sequence[int] = (),
        activation: str = "relu",
        *,
        solver: str = "adam",
        dropout: float = 0.0,
        alpha: float = 1e-4,
        floor: float = 1e-3,
        batch_size: int | str = "auto",
        learning_rate: str = "constant",
        learning_rate_init: float = 1e-3,
        max_iter: int = 200,
        random_state: Any = None,
        tol: float = 1e-4,
        verbose: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.solver = solver
        self.dropout = dropout
        self.alpha = alpha
        self.floor = floor
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.learning_rate_init = learning_rate_init
        self.max_iter = max_iter
        self.random_state = random_state
        self.tol = tol
        self.verbose = verbose
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change

    def _checked_settings(self) -> None:
        super()._checked_settings()
        positive_number(self.floor, "floor", zero=True)

    def _loss_function(self) -> Callable[..., Any]:
        return likelihood_loss(float(self.floor))

    def _judged(self, outputs: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> float:
        variance = np.exp(2 * outputs[:, 1]) + self.floor_**2
        return -float(np.average(np.log(variance) + (y[:, 0] - outputs[:, 0]) ** 2 / variance, weights=weight)) / 2

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit to X (n, features), y (n,) and weights (n,)."""
        X, y, weight = self._training_data(X, y, sample_weight)
        self._checked_settings()
        exact = y.astype(np.float64)
        self.y_mean_ = float(np.average(exact, weights=weight))
        spread = math.sqrt(np.average((exact - self.y_mean_) ** 2, weights=weight))
        self.y_std_ = spread if spread > 1e-12 * abs(self.y_mean_) else 1.0  # a constant y has rounding only
        self.floor_ = float(self.floor)
        z = (exact - self.y_mean_) / self.y_std_
        if self._architecture()[0]:
            return self._train(X, z.astype(X.dtype)[:, None], weight, 2, go_on=False)
        return self._solved(X, z, weight)

    def _solved(self, X: np.ndarray, z: np.ndarray, weight: np.ndarray | None) -> Any:
        """The linear model."""
        kept = slice(None) if weight is None else weight > 0
        weight = np.ones(len(X)) if weight is None else weight.astype(np.float64)
        coefficients, intercepts, losses, converged = minimized(
            X[kept].astype(np.float64), z[kept], weight[kept], float(self.alpha), float(self.floor), int(self.max_iter)
        )
        if not converged:
            warnings.warn(
                f"{type(self).__name__} made {len(losses) - 1} steps (max_iter={self.max_iter}) and isn't at its "
                "optimum: raise max_iter or alpha",
                ConvergenceWarning, stacklevel=3,
            )  # fmt: skip
        network: Any = self._built((X.shape[1],), 2, X.dtype, key(0)).eval()
        network[0].weight[...], network[0].bias[...] = coefficients, intercepts
        self.network_, self.history_ = network, History()
        self.loss_curve_ = [loss / weight[kept].sum() for loss in losses]
        for number, loss in enumerate(self.loss_curve_):
            self.history_.add_epoch(number, {"loss": loss})
        self.loss_ = self.loss_curve_[-1]
        self.n_iter_ = max(len(losses) - 1, 1)
        return self

    def _both(self, X: Any) -> tuple[Any, Any]:
        """Mean and standard deviation at X, an array or a traced value."""
        outputs = self._evaluated(X)
        variance = np.exp(2 * outputs[:, 1]) + self.floor_**2
        return self.y_mean_ + self.y_std_ * outputs[:, 0], self.y_std_ * np.sqrt(variance)

    def _apply(self, X: Any) -> Any:
        return self._both(X)[0]

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean of y at X (n,), and with `return_std` its standard deviation (n,)."""
        mean, std = self._both(self._inputs(X))
        return (np.asarray(mean), np.asarray(std)) if return_std else np.asarray(mean)

    def predict_interval(self, X: Any, confidence: float = 0.95) -> np.ndarray:
        """Intervals (n, 2) that hold y with probability `confidence`, equal tails outside; f1 and f2 taken as known."""
        mean, std = self.predict(X, return_std=True)
        reach = std * std.dtype.type(stats.norm.ppf(0.5 + probability(confidence, "confidence") / 2))
        return np.stack([mean - reach, mean + reach], axis=1)

    def log_likelihood(self, X: Any, y: Any) -> np.ndarray:
        """log p(y_i | x_i) of each sample, (n,)."""
        mean, std = self.predict(X, return_std=True)
        kinds: Any = FLOATS
        y = check_array(y, ensure_2d=False, dtype=kinds, input_name="y")
        check_consistent_length(mean, y)
        if y.shape != mean.shape:
            raise ValueError(f"y has one number for each sample, shape {mean.shape}, got {y.shape}")
        return stats.norm.logpdf(y, mean, std)

    def _linear(self, output: int) -> np.ndarray:
        weights = self.coefs_
        if len(weights) > 1:
            raise AttributeError(f"{type(self).__name__} with hidden layers has no coefficients, but network_")
        return weights[0][:, output]

    @property
    def coef_(self) -> np.ndarray:
        """Coefficients of the mean, (features,), without hidden layers."""
        return self.y_std_ * self._linear(0)

    @property
    def intercept_(self) -> float:
        """The mean at x = 0, without hidden layers."""
        self._linear(0)
        return self.y_mean_ + self.y_std_ * float(self.intercepts_[0][0])

    @property
    def log_std_coef_(self) -> np.ndarray:
        """Coefficients of the logarithm of the standard deviation, (features,), without hidden layers."""
        return self._linear(1).copy()

    @property
    def log_std_intercept_(self) -> float:
        """The logarithm of the standard deviation at x = 0, without hidden layers."""
        self._linear(1)
        return math.log(self.y_std_) + float(self.intercepts_[0][1])


@cache
def likelihood_loss(floor: float) -> Callable[..., Any]:
    """-log N(y | m, exp(2 s) + floor^2), without its constant, of outputs (m, s)."""

    def loss(network: Any, x: Any, share: Any, penalty: Any, y: Any) -> Any:
        outputs = network(x)
        variance = np.exp(2 * outputs[:, 1]) + floor**2
        each = gaussian_nll_loss(outputs[:, 0], y[:, 0], variance, eps=0.0, reduction="none")
        return np.sum(share * each) + penalty * l2_penalty(network, "*.weight")

    return loss
