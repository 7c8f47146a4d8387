"""Labels of frames: log-probabilities in time (T, classes) come in, the labels that they spell go out.

A path has one class for each frame; it spells what is left once repeats and then blanks are removed. Trained by
`nn.ctc_loss`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.models.beams import Beam
from wonderland.nn.building import positive


def ctc_greedy(log_probabilities: Any, lengths: Any = None, *, blank: int = 0) -> Any:
    """What the most probable path spells: (T, classes) to labels (n,), or (batch, T, classes) to a list of them.

    `lengths` (batch,) is how many frames count.
    """
    log_p, counts = _frames("ctc_greedy", log_probabilities, lengths, blank)
    found = []
    for row, count in zip(log_p, counts, strict=True):
        path = np.argmax(row[:count], axis=-1)
        path = path[np.diff(path, prepend=-1) != 0]
        found.append(path[path != blank])
    return found if np.ndim(log_probabilities) == 3 else found[0]


def ctc_beam_search(
    log_probabilities: Any, beams: int = 8, lengths: Any = None, *, blank: int = 0
) -> list[Beam] | list[list[Beam]]:
    """The most probable labels, each with the logarithm of their probability, the best first, at most `beams`.

    All paths that spell the same are added, which `ctc_greedy` doesn't: after each frame the `beams` most probable
    beginnings are kept, each with the probabilities of its paths that end with a blank, and of those that don't. The
    result is a list of `Beam`s for (T, classes), and a list of such lists for a batch. Graves et al. 2006; Hannun et
    al. 2014, First-pass large vocabulary continuous speech recognition.
    """
    beams = positive(beams, "ctc_beam_search: beams")
    log_p, counts = _frames("ctc_beam_search", log_probabilities, lengths, blank)
    if np.any(log_p > 1e-3):
        raise ValueError(
            f"ctc_beam_search: log_probabilities are at most 0, got {log_p.max():.3g}: nn.log_softmax makes them"
        )
    found = [_searched(row[:count], beams, blank) for row, count in zip(log_p, counts, strict=True)]
    return found if np.ndim(log_probabilities) == 3 else found[0]


def _searched(log_p: np.ndarray, beams: int, blank: int) -> list[Beam]:
    never = -np.inf
    kept: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, never)}  # ends with a blank, with its last label
    for frame in log_p.tolist():
        now: dict[tuple[int, ...], tuple[float, float]] = {}

        def add(labels: tuple[int, ...], ended: float, going: float, now: Any = now) -> None:
            before = now.get(labels, (never, never))
            now[labels] = float(np.logaddexp(before[0], ended)), float(np.logaddexp(before[1], going))

        for labels, (ended, going) in kept.items():
            both = float(np.logaddexp(ended, going))
            for label, p in enumerate(frame):
                if label == blank:
                    add(labels, both + p, never)
                elif labels and label == labels[-1]:
                    add(labels, never, going + p)  # the same label goes on
                    add((*labels, label), never, ended + p)  # a blank was in between
                else:
                    add((*labels, label), never, both + p)
        best = sorted(now, key=lambda labels: (-np.logaddexp(*now[labels]), labels))[:beams]
        kept = {labels: now[labels] for labels in best if max(now[labels]) > never}
    return [Beam(np.array(labels, np.int64), float(np.logaddexp(*kept[labels]))) for labels in kept]


def _frames(name: str, log_probabilities: Any, lengths: Any, blank: int) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities (batch, T, classes), and how many frames count."""
    log_p = np.asarray(log_probabilities)
    if log_p.ndim not in (2, 3) or log_p.dtype.kind != "f":
        raise ValueError(f"{name}: log_probabilities are floats (T, classes) or (batch, T, classes), got {log_p.dtype}"
                         f", {log_p.shape}")  # fmt: skip
    if not 0 <= blank < log_p.shape[-1]:
        raise ValueError(f"{name}: the blank is one of the {log_p.shape[-1]} classes, got {blank}")
    if np.any(np.isnan(log_p)):
        raise ValueError(f"{name}: log_probabilities have NaN")
    log_p = log_p if log_p.ndim == 3 else log_p[None]
    rows, most = log_p.shape[:2]
    counts = np.full(rows, most) if lengths is None else np.atleast_1d(lengths)
    if counts.shape != (rows,) or counts.dtype.kind not in "iu" or np.any((counts < 0) | (counts > most)):
        raise ValueError(f"{name}: lengths are {rows} integers, 0 to {most}, got {lengths}")
    return log_p, counts
