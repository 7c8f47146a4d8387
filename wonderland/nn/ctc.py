"""The loss of connectionist temporal classification: log-probabilities in time and label sequences come in."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.control.loops import scan
from wonderland.nn.arguments import array, demand, floating
from wonderland.nn.reduction import reduced


def ctc_loss(
    log_probabilities: Any, targets: Any, input_lengths: Any = None, target_lengths: Any = None, *, blank: int = 0,
    zero_infinity: bool = False, weight: Any = None, mask: Any = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    """-log of the probability that frames spell the target: of all paths that do once repeats and blanks are removed.

    `log_probabilities` is (batch, time, classes), after `log_softmax` (PyTorch's is (time, batch, classes)); `targets`
    (batch, length) with labels, none of them `blank`; `input_lengths` and `target_lengths` (batch,) say how much of
    each counts, all if they aren't given. What is beyond may be anything. There may be more leading axes than one, or
    none.

    As in PyTorch the mean is of losses divided by the lengths of their targets (at least 1). A target that doesn't fit
    into its frames has an infinite loss; with `zero_infinity`, 0. Its derivatives are 0 in both cases.

    Graves et al. 2006. With l the target with blanks around each label, of length 2 n + 1,

        alpha_t(s) = log p_t(l_s) + log(exp alpha_t-1(s) + exp alpha_t-1(s - 1) + exp alpha_t-1(s - 2))

    without the last term if l_s is a blank or l_s-2, and the loss is -log(exp alpha_T(2 n) + exp alpha_T(2 n - 1)).
    """
    name = "ctc_loss"
    log_p, targets = floating(log_probabilities, f"{name}: log_probabilities"), array(targets)
    steps, lengths = _lengths(name, log_p, targets, input_lengths, target_lengths)
    targets = _labels(name, targets, lengths, log_p.shape[-1], blank)

    batch, frames, count = log_p.shape[:-2], log_p.shape[-2], targets.shape[-1]
    states = np.concatenate([np.full((*batch, count, 1), blank), targets[..., None]], axis=-1)
    states = np.concatenate([states.reshape(*batch, 2 * count), np.full((*batch, 1), blank)], axis=-1)  # (..., 2 n + 1)
    before = np.concatenate([np.full((*batch, 2), blank), states[..., :-2]], axis=-1)[..., : 2 * count + 1]
    skips = (states != blank) & (states != before)
    emitted = np.take_along_axis(log_p, np.broadcast_to(states[..., None, :], (*batch, frames, 2 * count + 1)), axis=-1)
    emitted = np.moveaxis(emitted, -2, 0)  # (time, ..., 2 n + 1)
    nothing = np.full((*batch, 2), -np.inf, log_p.dtype)

    def step(alpha: Any, frame: tuple[Any, Any]) -> tuple[Any, None]:
        now, t = frame
        padded = np.concatenate([nothing, alpha], axis=-1)
        moved = np.logaddexp(alpha, padded[..., 1:-1])
        moved = np.logaddexp(moved, np.where(skips, padded[..., :-2], -np.inf))
        return np.where((t < steps)[..., None], now + moved, alpha), None

    # A blank that all paths have behind them before the first frame: from it they reach the states 0 and 1.
    start = np.full((*batch, 2 * count + 1), -np.inf, log_p.dtype)
    start[..., 0] = 0.0
    alpha = scan(step, start, (emitted, np.arange(frames)))[0]
    last = np.expand_dims(2 * lengths, -1)
    ends = np.take_along_axis(alpha, last, axis=-1)[..., 0]
    labels = np.take_along_axis(alpha, np.where(last > 0, last - 1, 0), axis=-1)[..., 0]
    loss = -np.logaddexp(ends, np.where(lengths > 0, labels, -np.inf))
    loss = np.where(loss == np.inf, 0.0 if zero_infinity else np.inf, loss)
    if reduction == "mean":
        loss = loss / np.where(lengths > 0, lengths, 1).astype(log_p.dtype)
    return reduced(loss, reduction, name, weight, mask)


def _lengths(name: str, log_p: Any, targets: Any, input_lengths: Any, target_lengths: Any) -> tuple[Any, Any]:
    """How many frames and labels count, for each sample."""
    if log_p.ndim < 2 or targets.shape[:-1] != log_p.shape[:-2] or targets.ndim != log_p.ndim - 1:
        hint = ""
        if log_p.ndim == 3 and targets.ndim == 2 and targets.shape[0] == log_p.shape[1]:
            hint = ": from (time, batch, classes) they come by np.swapaxes(log_probabilities, 0, 1)"
        raise ValueError(
            f"{name}: log_probabilities are (batch, time, classes), targets (batch, length), got {log_p.shape} and "
            f"{targets.shape}{hint}"
        )
    batch, found = log_p.shape[:-2], []
    given = (("input_lengths", input_lengths, log_p.shape[-2]), ("target_lengths", target_lengths, targets.shape[-1]))
    for key, value, most in given:
        if value is None:
            found.append(np.full(batch, most))
            continue
        value = array(value)
        if value.dtype.kind not in "iu" or value.shape != batch:
            raise ValueError(f"{name}: {key} are integers of shape {batch}, got {value.dtype}, {value.shape}")
        demand((value >= 0) & (value <= most), f"{name}: {key} are 0 to {most}, got {{}}", value)
        found.append(value.astype(np.int64))
    return found[0], found[1]


def _labels(name: str, targets: Any, lengths: Any, classes: int, blank: int) -> Any:
    """Labels that are classes, none of them the blank, but for what is beyond the lengths."""
    if not 0 <= blank < classes:
        raise ValueError(f"{name}: the blank is one of the {classes} classes, got {blank}")
    if targets.dtype.kind not in "iu":
        raise TypeError(f"{name}: targets are integers, got dtype {targets.dtype}")
    counts = np.arange(targets.shape[-1]) < np.expand_dims(lengths, -1)
    fits = (targets >= 0) & (targets < classes) & (targets != blank)
    message = f"{name}: targets are 0 to {classes - 1} and not the blank, {blank}, got {{}}"
    demand(fits | ~counts, message, targets)
    return np.where(counts, targets, blank).astype(np.int64)
