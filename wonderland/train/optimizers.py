"""Optimisers that follow the gradient: a rule for each parameter, in the notation of the papers.

w is a parameter, g its gradient, eta the rate, t the number of the update (1, 2, ...). Each does what PyTorch's of that
name does, where there is one. `weight_decay` is an L2 penalty (g + lambda w takes the place of g), except where
decoupled is said: w is then multiplied by 1 - eta lambda, and g stays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.nn.module import Module
from wonderland.train.optimizers_base import Arrays, Now, Number, Optimizer

Groups = dict[str, dict[str, Any]] | None

FORMS = ("outside", "inside", "average")


class SGD(Optimizer):
    """Gradient descent: w - eta g; with momentum mu in one of three forms, which differ under a schedule.

    - "outside", PyTorch's: v = mu v + (1 - dampening) g, w = w - eta v (dampening spares the first step);
    - "inside", of the notes (C, E2.3.2): v = mu v - eta g, w = w + v: steps keep the rate with which they were made;
    - "average", C's second: v = mu v + (1 - mu) g, w = w - eta v.

    With a constant rate the first two are the same, and the third is the first with the rate (1 - mu) eta. `nesterov`
    looks ahead: the step is made of g once more after mu v. I. Sutskever et al., On the importance of initialization
    and momentum in deep learning, 2013. `decoupled` weight decay is the same as L2 without momentum, only.
    """

    slots: tuple[str, ...] = ("velocity",)

    def __init__(
        self,
        model: Module,
        rate: Number = 1e-3,
        *,
        momentum: Number = 0.0,
        dampening: float = 0.0,
        nesterov: bool = False,
        form: str = "outside",
        weight_decay: Number = 0.0,
        decoupled: bool = False,
        groups: Groups = None,
        skip_nonfinite: bool = False,
    ):
        if form not in FORMS:
            raise ArgumentError(f"form is one of {', '.join(map(repr, FORMS))}, not {form!r}")
        if dampening and form != "outside":
            raise ArgumentError(f'dampening belongs to the form "outside", not to {form!r}')
        if nesterov and (dampening or is_zero(momentum)):
            raise ArgumentError("nesterov needs momentum, and no dampening")
        self.decoupled: bool
        self.nesterov: bool
        self.form, self.nesterov, self.decoupled = form, nesterov, decoupled
        settings = {"rate": rate, "weight_decay": weight_decay, "dampening": dampening}
        super().__init__(model, {**settings, "momentum": momentum}, groups, skip_nonfinite)

    def slots_of(self, name: str, w: Any) -> tuple[str, ...]:
        """A velocity, where there is momentum."""
        return self.slots if self.uses("momentum", name) else ()

    def rule(self, w: Any, g: Any, state: Arrays, now: Now) -> tuple[Any, Arrays]:
        """w and its velocity."""
        rate = now.cast(now.rate)
        w, g = decayed(w, g, now, self.decoupled)
        if not state:
            return w - rate * g, {}
        v, mu = state["velocity"], now.cast(now.momentum)
        if self.form == "inside":
            v = mu * v - rate * g
            return w + (mu * v - rate * g if self.nesterov else v), {"velocity": v}
        share = now.cast(1.0 - now.momentum if self.form == "average" else 1.0 - now.dampening)
        added = g if self.form == "outside" and not now.has("dampening") else share * g
        v = mu * v + added
        if self.form == "outside" and now.has("dampening"):
            v = np.where(now.count == 1, g, v)
        return w - rate * (added + mu * v if self.nesterov else v), {"velocity": v}


class Adam(Optimizer):
    """m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2, w - eta m^ / (sqrt(v^) + eps).

    m^ = m / (1 - b1^t) and v^ = v / (1 - b2^t) correct that both begin at 0. `weight_decay` is L2 (`AdamW` decouples
    it); `amsgrad` divides by the largest v so far.
    D. Kingma and J. Ba, Adam: a method for stochastic optimization, 2015; S. Reddi et al., On the convergence of Adam
    and beyond, 2018. Notes: C1.5.
    """

    _decoupled = False

    def __init__(
        self,
        model: Module,
        rate: Number = 1e-3,
        *,
        betas: tuple[Number, Number] = (0.9, 0.999),
        epsilon: float = 1e-8,
        weight_decay: Number = 0.0,
        amsgrad: bool = False,
        groups: Groups = None,
        skip_nonfinite: bool = False,
    ):
        self.slots: tuple[str, ...] = ("first", "second", "largest") if amsgrad else ("first", "second")
        settings = {"rate": rate, "weight_decay": weight_decay, **of_betas(betas), "epsilon": epsilon}
        super().__init__(model, settings, groups, skip_nonfinite)

    def rule(self, w: Any, g: Any, state: Arrays, now: Now) -> tuple[Any, Arrays]:
        """w and its moments."""
        w, g = decayed(w, g, now, self._decoupled)
        return adam(w, g, state, now, now.rate)


class AdamW(Adam):
    """Adam with decoupled weight decay, lambda = 0.01: w shrinks by 1 - eta lambda, whatever the gradients are.

    I. Loshchilov and F. Hutter, Decoupled weight decay regularization, 2019.
    """

    _decoupled = True

    def __init__(
        self,
        model: Module,
        rate: Number = 1e-3,
        *,
        betas: tuple[Number, Number] = (0.9, 0.999),
        epsilon: float = 1e-8,
        weight_decay: Number = 1e-2,
        amsgrad: bool = False,
        groups: Groups = None,
        skip_nonfinite: bool = False,
    ):
        super().__init__(
            model,
            rate,
            betas=betas,
            epsilon=epsilon,
            weight_decay=weight_decay,
            amsgrad=amsgrad,
            groups=groups,
            skip_nonfinite=skip_nonfinite,
        )


class NAdam(Optimizer):
    """Adam with Nesterov's look ahead, and a momentum that grows: mu_t = b1 (1 - 0.96^(t psi) / 2).

    w - eta / (sqrt(v^) + eps) * (mu_{t+1} m / (1 - prod_{i<=t+1} mu_i) + (1 - mu_t) g / (1 - prod_{i<=t} mu_i)), with
    psi = `momentum_decay`. T. Dozat, Incorporating Nesterov momentum into Adam, 2016.
    """

    slots: tuple[str, ...] = ("first", "second", "product")

    def __init__(
        self,
        model: Module,
        rate: Number = 2e-3,
        *,
        betas: tuple[Number, Number] = (0.9, 0.999),
        epsilon: float = 1e-8,
        weight_decay: Number = 0.0,
        decoupled: bool = False,
        momentum_decay: float = 4e-3,
        groups: Groups = None,
        skip_nonfinite: bool = False,
    ):
        self.decoupled = decoupled
        settings = {"rate": rate, "weight_decay": weight_decay, **of_betas(betas), "epsilon": epsilon}
        super().__init__(model, {**settings, "momentum_decay": momentum_decay}, groups, skip_nonfinite)

    def initial(self, slot: str, name: str, w: Any) -> Any:
        """The product of no momenta is 1."""
        return np.ones((), np.float64) if slot == "product" else super().initial(slot, name, w)

    def rule(self, w: Any, g: Any, state: Arrays, now: Now) -> tuple[Any, Arrays]:
        """w and its moments."""
        w, g = decayed(w, g, now, self.decoupled)
        cast, t, psi = now.cast, now.count, now.momentum_decay
        m, v = moments(state, g, now)
        mu, ahead = (now.beta1 * (1.0 - 0.5 * 0.96 ** (k * psi)) for k in (t, t + 1.0))
        product = state["product"] * mu
        scale = np.sqrt(v / now.across("second", lambda: now.missing("beta2"))) + cast(now.epsilon)
        w = w - cast(now.rate * (1.0 - mu) / (1.0 - product)) * g / scale
        w = w - cast(now.rate * ahead / (1.0 - product * ahead)) * m / scale
        return w, {"first": m, "second": v, "product": product}


class RMSProp(Optimizer):
    """v = alpha v + (1 - alpha) g^2, w - eta g / (sqrt(v) + eps).

    `centered` subtracts the square of the mean gradient from v; `momentum` collects the steps before the rate.
    T. Tieleman and G. Hinton, Lecture 6.5, 2012; A. Graves, Generating sequences with recurrent neural networks, 2013.
    """

    def __init__(
        self,
        model: Module,
        rate: Number = 1e-2,
        *,
        alpha: Number = 0.99,
        epsilon: float = 1e-8,
        weight_decay: Number = 0.0,
        momentum: Number = 0.0,
        centered: bool = False,
        groups: Groups = None,
        skip_nonfinite: bool = False,
    ):
        self.centered = centered
        self.slots: tuple[str, ...] = ("second", *(["first"] if centered else []), "velocity")
        settings = {"rate": rate, "weight_decay": weight_decay, "momentum": momentum, "alpha": alpha}
        super().__init__(model, {**settings, "epsilon": epsilon}, groups, skip_nonfinite)

    def slots_of(self, name: str, w: Any) -> tuple[str, ...]:
        """A velocity only where there is momentum."""
        return self.slots if self.uses("momentum", name) else self.slots[:-1]

    def rule(self, w: Any, g: Any, state: Arrays, now: Now) -> tuple[Any, Arrays]:
        """w and its moments."""
        cast, new = now.cast, {}
        w, g = decayed(w, g, now)
        v = new["second"] = cast(now.alpha) * state["second"] + cast(1.0 - now.alpha) * g * g
        if self.centered:
            m = new["first"] = state["first"] + cast(1.0 - now.alpha) * (g - state["first"])
            v = v - m * m
        step = g / (np.sqrt(v) + cast(now.epsilon))
        if "velocity" in state:
            step = new["velocity"] = cast(now.momentum) * state["velocity"] + step
        return w - cast(now.rate) * step, new


class Adagrad(Optimizer):
    """s = s + g^2, w - eta / (1 + (t - 1) rate_decay) g / (sqrt(s) + eps).

    J. Duchi, E. Hazan and Y. Singer, Adaptive subgradient methods for online learning, 2011.
    """

    slots: tuple[str, ...] = ("sum",)

    def __init__(
        self,
        model: Module,
        rate: Number = 1e-2,
        *,
        rate_decay: float = 0.0,
        weight_decay: Number = 0.0,
        initial_sum: float = 0.0,
        epsilon: float = 1e-10,
        groups: Groups = None,
        skip_nonfinite: bool = False,
    ):
        self.initial_sum: float = float(initial_sum)
        settings = {"rate": rate, "weight_decay": weight_decay, "rate_decay": rate_decay, "epsilon": epsilon}
        super().__init__(model, settings, groups, skip_nonfinite)

    def initial(self, slot: str, name: str, w: Any) -> Any:
        """`initial_sum`."""
        return np.full(w.shape, self.initial_sum, w.dtype)

    def rule(self, w: Any, g: Any, state: Arrays, now: Now) -> tuple[Any, Arrays]:
        """w and its sum."""
        w, g = decayed(w, g, now)
        total = state["sum"] + g * g
        rate = now.across("rate", lambda: now.rate / (1.0 + (now.counts - 1.0) * now.rate_decay))
        return w - rate * g / (np.sqrt(total) + now.cast(now.epsilon)), {"sum": total}


class Adadelta(Optimizer):
    """v = rho v + (1 - rho) g^2, d = g sqrt(u + eps) / sqrt(v + eps), u = rho u + (1 - rho) d^2, w - eta d.

    M. Zeiler, ADADELTA: an adaptive learning rate method, 2012.
    """

    slots: tuple[str, ...] = ("second", "steps")

    def __init__(
        self,
        model: Module,
        rate: Number = 1.0,
        *,
        rho: Number = 0.9,
        epsilon: float = 1e-6,
        weight_decay: Number = 0.0,
        groups: Groups = None,
        skip_nonfinite: bool = False,
    ):
        settings = {"rate": rate, "weight_decay": weight_decay, "rho": rho, "epsilon": epsilon}
        super().__init__(model, settings, groups, skip_nonfinite)

    def rule(self, w: Any, g: Any, state: Arrays, now: Now) -> tuple[Any, Arrays]:
        """w, and the squares of its gradients and steps."""
        w, g = decayed(w, g, now)
        rho, rest, epsilon = now.cast(now.rho), now.cast(1.0 - now.rho), now.cast(now.epsilon)
        v = rho * state["second"] + rest * g * g
        d = np.sqrt(state["steps"] + epsilon) / np.sqrt(v + epsilon) * g
        return w - now.cast(now.rate) * d, {"second": v, "steps": rho * state["steps"] + rest * d * d}


class Lion(Optimizer):
    """w - eta (sign(b1 m + (1 - b1) g) + lambda w), then m = b2 m + (1 - b2) g: every step has the same size.

    Weight decay is decoupled. X. Chen et al., Symbolic discovery of optimization algorithms, 2023.
    """

    slots: tuple[str, ...] = ("first",)

    def __init__(
        self,
        model: Module,
        rate: Number = 1e-4,
        *,
        betas: tuple[Number, Number] = (0.9, 0.99),
        weight_decay: Number = 0.0,
        groups: Groups = None,
        skip_nonfinite: bool = False,
    ):
        settings = {"rate": rate, "weight_decay": weight_decay, **of_betas(betas)}
        super().__init__(model, settings, groups, skip_nonfinite)

    def rule(self, w: Any, g: Any, state: Arrays, now: Now) -> tuple[Any, Arrays]:
        """w and its moment."""
        m = state["first"]
        direction = np.sign(m + now.cast(1.0 - now.beta1) * (g - m))
        w, _ = decayed(w, g, now, decoupled=True)
        return w - now.cast(now.rate) * direction, {"first": m + now.cast(1.0 - now.beta2) * (g - m)}


# What the rules share ------------------------------------------------------------------------------------------------


def decayed(w: Any, g: Any, now: Now, decoupled: bool = False) -> tuple[Any, Any]:
    """The parameter and its gradient after weight decay, of either kind."""
    if not now.has("weight_decay"):
        return w, g
    if decoupled:
        return now.cast(1.0 - now.rate * now.weight_decay) * w, g
    return w, g + now.cast(now.weight_decay) * w


def moments(state: Arrays, g: Any, now: Now) -> tuple[Any, Any]:
    """The first and second moment after a gradient."""
    m = state["first"] + now.cast(1.0 - now.beta1) * (g - state["first"])
    return m, now.cast(now.beta2) * state["second"] + now.cast(1.0 - now.beta2) * g * g


def adam(w: Any, g: Any, state: Arrays, now: Now, rate: Any) -> tuple[Any, Arrays]:
    """Adam's step."""
    m, v = moments(state, g, now)
    new = {"first": m, "second": v}
    if "largest" in state:
        v = new["largest"] = np.maximum(state["largest"], v)
    step = now.across("step", lambda: rate / now.missing("beta1"))
    root = now.across("root", lambda: 1.0 / np.sqrt(now.missing("beta2")))
    return w - step * m / (np.sqrt(v) * root + now.cast(now.epsilon)), new


def of_betas(betas: Any) -> dict[str, Any]:
    """Two decays as settings."""
    try:
        first, second = betas
    except (TypeError, ValueError):
        raise ArgumentError(f"betas are two numbers (or functions of the step), not {betas!r}") from None
    for value in (first, second):
        if not callable(value) and not 0 <= value < 1:
            raise ArgumentError(f"betas are between 0 and 1, unlike {value!r}")
    return {"beta1": first, "beta2": second}


def is_zero(value: Any) -> bool:
    """Is it the number 0, and no function?"""
    return not callable(value) and value == 0
