"""What estimators with a network share: its training, by compiled steps, from checked arrays to fitted attributes.

A class says what its network is (`_built`), its loss (`_loss_function`), and how predictions are judged (`_judged`);
its parameters have scikit-learn's names.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from wonderland.core.tracer import Tracer
from wonderland.estimators.base import one_of, positive_number, whole_number
from wonderland.estimators.network_batches import EpochBatches, held_out
from wonderland.nn.activations import gelu, relu, sigmoid, silu, tanh
from wonderland.nn.module import Module
from wonderland.random.keys import key
from wonderland.train.history import History
from wonderland.train.loop import INTERRUPTED, fit
from wonderland.train.nonfinite import NonFiniteError
from wonderland.train.optimizers import SGD, Adam, AdamW
from wonderland.train.optimizers_curvature import LBFGS
from wonderland.train.parallel import Ranks
from wonderland.train.running import Callback, Run

SOLVERS = ("adam", "adamw", "sgd", "lbfgs")
RATES = ("constant", "cosine")
ACTIVATIONS: dict[str, Any] = {
    "identity": None, "logistic": sigmoid, "tanh": tanh, "relu": relu, "gelu": gelu, "silu": silu,
}  # fmt: skip
AUTO = 200  # samples of a batch, as scikit-learn's
BLOCK = 1 << 22  # numbers of inputs that a network sees at once


class NetworkEstimator:
    """A network that is trained by `_train`, and its prediction."""

    network_: Module
    history_: History
    n_iter_: int
    loss_: float
    loss_curve_: list[float]
    validation_scores_: list[float]
    best_validation_score_: float
    solver: str
    alpha: float
    batch_size: int | str
    learning_rate: str
    learning_rate_init: float
    momentum: float
    max_iter: int
    random_state: Any
    tol: float
    verbose: bool
    early_stopping: bool
    validation_fraction: float
    n_iter_no_change: int

    def _architecture(self) -> tuple[Any, ...]:
        """The parameters that make the network what it is, checked."""
        raise NotImplementedError

    def _built(self, shape: tuple[int, ...], outputs: int, dtype: Any, key: Any) -> Module:
        """A new network for inputs of a shape."""
        raise NotImplementedError

    def _loss_function(self) -> Callable[..., Any]:
        """loss(network, x, share, penalty, y), the same function for the same parameters: it is compiled once."""
        raise NotImplementedError

    def _judged(self, outputs: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> float:
        """How good predictions are, more is better."""
        raise NotImplementedError

    def _checked_settings(self) -> None:
        """Refuse wrong parameters, before anything is done."""
        one_of(self.solver, "solver", SOLVERS)
        one_of(self.learning_rate, "learning_rate", RATES)
        positive_number(self.alpha, "alpha", zero=True)
        positive_number(self.learning_rate_init, "learning_rate_init")
        positive_number(self.tol, "tol", zero=True)
        whole_number(self.max_iter, "max_iter")
        if self.batch_size != "auto":
            whole_number(self.batch_size, "batch_size")
        if not 0 <= positive_number(self.momentum, "momentum", zero=True) < 1:
            raise ValueError(f"momentum is a number from 0 to below 1, got {self.momentum!r}")
        if self.n_iter_no_change != np.inf:
            whole_number(self.n_iter_no_change, "n_iter_no_change")
        if not 0 < positive_number(self.validation_fraction, "validation_fraction") < 1:
            raise ValueError(f"validation_fraction is between 0 and 1, got {self.validation_fraction!r}")

    def _train(
        self, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None, outputs: int, *, go_on: bool,
        single_pass: bool = False,
    ) -> Any:  # fmt: skip
        """Train on X (n, ...), y (n,) or (n, outputs): a new network, or with `go_on` the one that is there."""
        self._checked_settings()
        made: Any = self._architecture(), outputs
        if go_on and made != self._made:
            raise ValueError(
                f"{type(self).__name__} would go on with a network of {self._made}, and its parameters now say {made}: "
                "for a new one call fit with warm_start=False"
            )
        if not go_on:
            self._seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        network = self.network_ if go_on else self._built(X.shape[1:], outputs, X.dtype, key(self._seed)).eval()
        optimizer = self._made_optimizer(network)
        if single_pass and go_on and type(optimizer) is type(self._optimizer):
            optimizer = self._optimizer
        if self.solver != "lbfgs":
            optimizer.rate = float(self.learning_rate_init)
        if weight is not None:  # what has no weight isn't there
            X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        X = X.astype(_dtype_of(network), copy=False)
        begin = self.history_.epochs if go_on else 0
        history = self._run(network, optimizer, X, y, weight, begin, single_pass)
        self.network_, self._optimizer, self._made = network, optimizer, made
        self.history_ = joined(self.history_, history) if go_on else history
        self.n_iter_ = self.history_.epochs
        self.loss_curve_ = self.history_["loss"].tolist() if self.n_iter_ else []  # if it was interrupted at once
        self.loss_ = self.history_.last.get("loss", np.nan)
        if "validation_score" in self.history_:
            self.validation_scores_ = self.history_["validation_score"].tolist()
            self.best_validation_score_ = float(np.nanmax(self.validation_scores_))
        return self

    def _made_optimizer(self, network: Module) -> Any:
        if self.solver == "lbfgs":
            return LBFGS(network)
        rate = float(self.learning_rate_init)
        if self.solver == "adamw":
            return AdamW(network, rate, weight_decay=float(self.alpha), groups={"*.bias": {"weight_decay": 0.0}})
        if self.solver == "sgd":
            return SGD(network, rate, momentum=float(self.momentum), nesterov=self.momentum > 0)
        return Adam(network, rate)

    def _run(
        self, network: Module, optimizer: Any, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None, begin: int,
        single_pass: bool,
    ) -> History:  # fmt: skip
        """Train to the end, and say how that went."""
        alpha = 0.0 if self.solver == "adamw" else float(self.alpha)  # which is in its steps
        validation, metrics = None, None
        if self.early_stopping:
            inside, outside = held_out(y, self.validation_fraction, self._seed, getattr(self, "classes_", None))
            X, X_out, y, y_out = X[inside], X[outside], y[inside], y[outside]
            weight, w_out = (None, None) if weight is None else (weight[inside], weight[outside])
            share = np.ones(len(X_out), X.dtype) if w_out is None else w_out
            validation = [(X_out, share / share.sum(), np.zeros((), X.dtype), y_out)]
            metrics = {"score": lambda outputs, targets: self._judged(outputs, targets, w_out)}
        size = len(X) if self.solver == "lbfgs" else AUTO if self.batch_size == "auto" else int(self.batch_size)
        data = EpochBatches(X, y, weight, size, alpha, self._seed, begin)
        try:
            history = fit(
                network, self._loss_function(), optimizer, data, epochs=1 if single_pass else int(self.max_iter),
                validation=validation, metrics=metrics, callbacks=self._callbacks(single_pass), ranks=Ranks(),
                progress=bool(self.verbose),
            )  # fmt: skip
        except NonFiniteError as error:
            raise ValueError(
                f"{type(self).__name__}: the network's numbers became infinite or NaN. Inputs of about unit scale "
                "(StandardScaler in a pipeline), targets too, or a smaller learning_rate_init help"
            ) from error
        if history.stopped == INTERRUPTED:
            warnings.warn("Training interrupted by user.", stacklevel=4)
        elif history.stopped is None and not single_pass and not self._is_planned():
            warnings.warn(
                f"{type(self).__name__} made max_iter={self.max_iter} passes, and the loss may still become better: "
                "raise max_iter or learning_rate_init, or scale the inputs",
                ConvergenceWarning, stacklevel=4,
            )  # fmt: skip
        return history

    def _is_planned(self) -> bool:
        """Does the rate fall to nothing over `max_iter` passes, all of which are made?"""
        return self.learning_rate == "cosine" and self.solver != "lbfgs"

    def _callbacks(self, single_pass: bool) -> list[Callback]:
        """What ends training, or changes the rate."""
        if single_pass:
            return []
        patience = int(min(self.n_iter_no_change, self.max_iter))  # which may be infinite
        if self.solver == "lbfgs" and not self.early_stopping:
            return [FlatGradient(float(self.tol))]
        if self._is_planned():
            falling = CosineRate(float(self.learning_rate_init))
            return [falling, *([Plateau(float(self.tol), patience, True)] if self.early_stopping else [])]
        return [Plateau(float(self.tol), patience, self.early_stopping)]

    def _evaluated(self, X: Any) -> Any:
        """The network's outputs (n, outputs) at X, an array or a traced value."""
        dtype = _dtype_of(self.network_)
        X = X if X.dtype == dtype else X.astype(dtype)
        if isinstance(X, Tracer) or X.size <= BLOCK:
            return self.network_(X)
        parts = np.array_split(X, -(-X.size // BLOCK))
        return np.concatenate([self.network_(part) for part in parts])


class Plateau(Callback):
    """Stops after more than `patience` epochs that weren't better by `tol` than the best before, as scikit-learn does.

    Better is a smaller loss, or a larger validation score, whose best weights stay. (`train.EarlyStopping` compares
    with the last epoch that was better by as much, and goes on for longer.)
    """

    def __init__(self, tol: float, patience: int, validated: bool):
        self.tol: float = tol
        self.patience: int = patience
        self.validated: bool = validated
        self.best: float = -np.inf
        self.waited: int = 0
        self.weights: dict[str, np.ndarray] = {}

    def after_epoch(self, run: Run) -> None:
        """Compare, remember, or stop."""
        value = run.values["validation_score"] if self.validated else -run.values["loss"]
        self.waited = 0 if value >= self.best + self.tol else self.waited + 1
        if value > self.best:
            self.best = value
            if self.validated:
                self.weights = {name: array.copy() for name, array in run.model.state().items()}
        if self.waited > self.patience:
            what = "the validation score" if self.validated else "the loss"
            run.stop(f"{what} hasn't become better by {self.tol:g} for {self.patience} passes")

    def end(self, run: Run) -> None:
        """The best weights."""
        if self.weights and run.error is None:
            run.model.load_state(self.weights)


class CosineRate(Callback):
    """The rate falls along half a cosine, from `rate` before the first epoch to nothing after the last."""

    def __init__(self, rate: float):
        self.rate: float = rate

    def after_epoch(self, run: Run) -> None:
        """The rate of the next epoch: a number that the compiled step is given."""
        run.optimizer.rate = self.rate * (1 + np.cos(np.pi * run.epoch / run.epochs)) / 2


class FlatGradient(Callback):
    """Stops a minimisation where no slope is above `tol`, or no step makes the loss less."""

    def __init__(self, tol: float):
        self.tol: float = tol

    def after_epoch(self, run: Run) -> None:
        """Look at the last step."""
        steepest = float(np.max(np.abs(run.optimizer.last_gradient)))
        if steepest <= self.tol or not np.any(run.optimizer.last_step):
            run.stop(f"converged: the largest slope is {steepest:.3g}")


def joined(before: History, after: History) -> History:
    """One history of two trainings."""
    steps = after.steps
    number, epochs = before.last_step["step"], before.epochs
    for i in range(len(steps["step"])):
        values = {name: column[i] for name, column in steps.items() if name not in ("epoch", "step")}
        before.add_step(epochs + int(steps["epoch"][i]), number + int(steps["step"][i]), values)
    for i in range(after.epochs):
        before.add_epoch(epochs + i + 1, {name: column[i] for name, column in after.items() if name != "epoch"})
    before.stopped = after.stopped
    before.notes += after.notes
    return before


def layer_sizes(value: Any, name: str) -> tuple[int, ...]:
    """Numbers of units: one, or a sequence of them."""
    several = value if hasattr(value, "__iter__") and not isinstance(value, str) else (value,)
    return tuple(whole_number(size, name) for size in several)


def _dtype_of(network: Module) -> np.dtype:
    return network.parameters()[0].dtype
