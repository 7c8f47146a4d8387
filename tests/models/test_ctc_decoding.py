"""CTC decoding against all paths, one by one."""

from itertools import groupby, product

import numpy as np
import pytest

from wonderland import models, nn

CLASSES, TIME = 3, 5


def frames(seed, time=TIME, dtype=np.float64):
    x = 2 * np.random.default_rng(seed).normal(size=(time, CLASSES))
    return np.asarray(nn.log_softmax(x)).astype(dtype)


def enumerated(log_p, blank):
    """The probability of each sequence of labels, of all paths."""
    found = {}
    for path in product(range(CLASSES), repeat=len(log_p)):
        labels = tuple(label for label, _ in groupby(path) if label != blank)
        found[labels] = found.get(labels, 0.0) + np.exp(sum(log_p[t, label] for t, label in enumerate(path)))
    return found


@pytest.mark.parametrize("blank", [0, 2])
@pytest.mark.parametrize("seed", range(3))
def test_enough_beams_are_all_paths(seed, blank):
    log_p = frames(seed)
    wanted = sorted(enumerated(log_p, blank).items(), key=lambda item: -item[1])
    found = models.ctc_beam_search(log_p, 10**4, blank=blank)
    assert [tuple(beam.tokens) for beam in found] == [labels for labels, _ in wanted]
    np.testing.assert_allclose(np.exp([beam.score for beam in found]), [p for _, p in wanted], rtol=1e-12)
    for beam in found[:5]:  # what is trained is what is searched
        loss = nn.ctc_loss(log_p, beam.tokens, blank=blank, reduction="none")
        assert -beam.score == pytest.approx(float(loss), rel=1e-10)
    few = models.ctc_beam_search(log_p, 4, blank=blank)
    assert len(few) == 4 and np.exp(few[0].score) <= wanted[0][1] + 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_greedy_is_the_best_path(seed):
    log_p = frames(seed, 7, np.float32)
    path = log_p.argmax(1)
    assert models.ctc_greedy(log_p).tolist() == [label for label, _ in groupby(path) if label != 0]


def test_the_sum_of_paths_may_win_over_the_best_path():
    p = np.log([[0.6, 0.4], [0.6, 0.4]])  # no label 0.36, one label 0.64
    assert models.ctc_greedy(p).tolist() == []
    best = models.ctc_beam_search(p, 2)[0]
    assert best.tokens.tolist() == [1] and best.score == pytest.approx(np.log(0.64))


def test_batches_have_lengths():
    log_p = np.stack([frames(seed) for seed in range(3)])
    lengths = np.array([5, 2, 0])
    listed = lambda beams: [(*beam.tokens, beam.score) for beam in beams]
    for decode, shown in ((models.ctc_greedy, list), (models.ctc_beam_search, listed)):
        together = decode(log_p, lengths=lengths)
        for row, count, found in zip(log_p, lengths, together, strict=True):
            assert shown(found) == shown(decode(row[:count]))
    assert models.ctc_greedy(log_p, lengths=lengths)[2].tolist() == []
    assert [beam.score for beam in models.ctc_beam_search(log_p[0, :0])] == [0.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: models.ctc_greedy(np.zeros(3)), r"\(T, classes\) or \(batch, T, classes\), got float64, \(3,\)"),
        (lambda: models.ctc_greedy(np.zeros((4, 3)), blank=3), "one of the 3 classes, got 3"),
        (lambda: models.ctc_beam_search(np.zeros((4, 3)), lengths=[5]), "1 integers, 0 to 4, got"),
        (lambda: models.ctc_beam_search(np.zeros((4, 3)), beams=0), "beams=0"),
        (lambda: models.ctc_greedy(np.full((4, 3), np.nan)), "have NaN"),
        (lambda: models.ctc_beam_search(np.eye(3)), r"at most 0, got 1: nn\.log_softmax"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
