"""Metrics: against scikit-learn's published examples and definitions by loops; batch by batch as whole; bad input."""

import itertools

import numpy as np
import pytest

import wonderland as wl
from wonderland.train import metrics

# The examples of scikit-learn's documentation.
SCORES, EVENTS = np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1])
PREDICTED, TRUE = np.array([0, 2, 1, 0, 0, 1]), np.array([0, 1, 2, 0, 1, 2])


# Classes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transform", [lambda f: f, wl.jit], ids=["eager", "compiled"])
def test_accuracy(transform):
    accuracy = transform(metrics.accuracy)
    assert accuracy(PREDICTED, TRUE) == pytest.approx(1 / 3)
    assert accuracy(np.eye(3)[PREDICTED], TRUE) == pytest.approx(1 / 3)
    assert accuracy(SCORES, EVENTS) == pytest.approx(3 / 4)
    assert transform(lambda p, t: metrics.accuracy(p, t, threshold=0.0))(SCORES - 0.375, EVENTS) == pytest.approx(1 / 2)
    assert accuracy(SCORES > 0.3, EVENTS > 0) == pytest.approx(3 / 4)
    weighted = transform(lambda p, t, w: metrics.accuracy(p, t, weight=w))
    assert weighted(PREDICTED, TRUE, np.arange(6.0)) == pytest.approx(3 / 15)
    masked = transform(lambda p, t, m: metrics.accuracy(p, t, mask=m))
    assert masked(PREDICTED, TRUE, TRUE == 0) == 1
    assert accuracy(np.eye(3)[PREDICTED.reshape(2, 3)], TRUE.reshape(2, 3)) == pytest.approx(1 / 3)


@pytest.mark.parametrize("transform", [lambda f: f, wl.jit], ids=["eager", "compiled"])
def test_top_k(transform, rng):
    scores = np.array([[0.5, 0.2, 0.2], [0.3, 0.4, 0.2], [0.2, 0.4, 0.3], [0.7, 0.2, 0.1]])
    labels = np.array([0, 1, 2, 2])
    assert transform(lambda s, y: metrics.top_k_accuracy(s, y, 2))(scores, labels) == 0.75
    scores, labels = rng.integers(0, 4, (50, 8)).astype(np.float32), rng.integers(0, 8, 50)  # with many ties
    for k in (1, 3, 8):
        order = np.argsort(-scores, axis=-1, kind="stable")[:, :k]
        expected = np.mean([y in row for y, row in zip(labels, order, strict=True)])
        assert transform(lambda s, y, k=k: metrics.top_k_accuracy(s, y, k))(scores, labels) == pytest.approx(expected)
    assert metrics.top_k_accuracy(scores, labels, 1) == pytest.approx(metrics.accuracy(scores, labels))
    assert metrics.top_k_accuracy(np.full((3, 4), np.nan), np.array([0, 1, 2]), 2) == 0


def test_confusion_matrix():
    prediction, target = np.array([0, 0, 2, 2, 0, 2]), np.array([2, 0, 2, 2, 0, 1])
    np.testing.assert_array_equal(metrics.confusion_matrix(prediction, target), [[2, 0, 0], [0, 0, 1], [1, 0, 2]])
    assert metrics.confusion_matrix(prediction, target).dtype == np.int64
    np.testing.assert_array_equal(metrics.confusion_matrix(prediction, target, classes=5)[3:], np.zeros((2, 5)))
    np.testing.assert_allclose(
        metrics.confusion_matrix(prediction, target, normalize="true"), [[1, 0, 0], [0, 0, 1], [1 / 3, 0, 2 / 3]]
    )
    np.testing.assert_allclose(metrics.confusion_matrix(prediction, target, normalize="pred").sum(0), [1, 0, 1])
    assert metrics.confusion_matrix(prediction, target, normalize="all").sum() == pytest.approx(1)
    weighted = metrics.confusion_matrix(prediction, target, weight=np.arange(6))
    np.testing.assert_array_equal(weighted, [[1 + 4, 0, 0], [0, 0, 5], [0, 0, 5]])
    np.testing.assert_array_equal(metrics.confusion_matrix([0.9, 0.2, 0.7], [1, 0, 0]), [[1, 1], [0, 1]])
    assert metrics.confusion_matrix(np.zeros(0, int), np.zeros(0, int), classes=2).sum() == 0


@pytest.mark.parametrize(
    ("average", "expected"), [("macro", 0.8 / 3), ("micro", 1 / 3), ("weighted", 0.8 / 3), (None, [0.8, 0, 0])]
)
def test_f1_of_published_example(average, expected):
    np.testing.assert_allclose(metrics.f1(PREDICTED, TRUE, average), expected)


def by_counting(prediction, target, c):
    """(Precision, recall, F1) of a class, each with its own sum."""
    tp = sum(p == t == c for p, t in zip(prediction, target, strict=True))
    claimed, support = sum(p == c for p in prediction), sum(t == c for t in target)
    over = lambda a, b: a / b if b else 0.0
    return over(tp, claimed), over(tp, support), over(2 * tp, claimed + support)


@pytest.mark.parametrize("seed", range(5))
def test_precision_recall_f1_by_counting(seed):
    rng = np.random.default_rng(seed)
    prediction, target = rng.choice([0, 1, 3], 40), rng.choice([0, 1, 2], 40)  # 3 is never right, 2 never predicted
    for i, f in enumerate((metrics.precision, metrics.recall, metrics.f1)):
        each = np.array([by_counting(prediction, target, c)[i] for c in range(5)])
        np.testing.assert_allclose(f(prediction, target, None), each[:4])
        np.testing.assert_allclose(f(prediction, target, "macro"), each[:4].mean())
        np.testing.assert_allclose(f(prediction, target, "macro", classes=5), each.mean())
        np.testing.assert_allclose(
            f(prediction, target, "weighted"), np.average(each, weights=np.bincount(target, minlength=5))
        )
        np.testing.assert_allclose(f(prediction, target, "micro"), np.mean(prediction == target))
        binary = f(prediction > 0, target > 0)
        np.testing.assert_allclose(binary, by_counting(prediction > 0, target > 0, 1)[i])


def test_gaps_in_labels_count_in_no_mean():
    prediction, target = np.array([0, 2, 2]), np.array([0, 2, 0])  # there is no 1
    assert metrics.recall(prediction, target, "macro") == pytest.approx((1 / 2 + 1) / 2)
    assert metrics.recall(prediction, target, "macro", classes=3) == pytest.approx((1 / 2 + 1) / 3)


def test_nothing_over_nothing():
    none = np.zeros(3, int)
    for f in (metrics.precision, metrics.recall, metrics.f1):
        assert f(none, none) == 0 and f(none, none, zero_division=1.0) == 1
        assert f(none, np.array([0, 1, 0])) == 0


# Curves --------------------------------------------------------------------------------------------------------------


def test_curves_of_published_examples():
    false, true, thresholds = metrics.roc_curve(SCORES, EVENTS)
    np.testing.assert_allclose(false, [0, 0, 0.5, 0.5, 1])
    np.testing.assert_allclose(true, [0, 0.5, 0.5, 1, 1])
    np.testing.assert_allclose(thresholds, [np.inf, 0.8, 0.4, 0.35, 0.1])
    assert metrics.roc_auc(SCORES, EVENTS) == 0.75
    precision, recall, thresholds = metrics.precision_recall_curve(SCORES, EVENTS)
    np.testing.assert_allclose(precision, [1 / 2, 2 / 3, 1 / 2, 1, 1])
    np.testing.assert_allclose(recall, [1, 1, 0.5, 0.5, 0])
    np.testing.assert_allclose(thresholds, [0.1, 0.35, 0.4, 0.8])
    assert metrics.average_precision(SCORES, EVENTS) == pytest.approx(0.8333333, abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_areas_by_pairs_and_thresholds_with_ties(seed):
    rng = np.random.default_rng(seed)
    score, target = rng.integers(0, 6, 40) / 5, rng.integers(0, 2, 40)
    weight = rng.uniform(0.1, 2, 40)
    for w in (np.ones(40), weight):
        pairs = [
            (w[i] * w[j], (score[i] > score[j]) + 0.5 * (score[i] == score[j]))
            for i, j in itertools.product(np.flatnonzero(target == 1), np.flatnonzero(target == 0))
        ]
        exact = sum(a * b for a, b in pairs) / sum(a for a, _ in pairs)
        assert metrics.roc_auc(score, target, weight=w) == pytest.approx(exact, abs=1e-13)
        total, before = 0.0, 0.0
        for threshold in sorted({*score}, reverse=True):
            claimed = score >= threshold
            recall = (w * target)[claimed].sum() / (w * target).sum()
            total += (recall - before) * (w * target)[claimed].sum() / w[claimed].sum()
            before = recall
        assert metrics.average_precision(score, target, weight=w) == pytest.approx(total, abs=1e-13)
    assert metrics.roc_auc(-score, target) == pytest.approx(1 - metrics.roc_auc(score, target))
    assert metrics.roc_auc(np.ones(40), target) == 0.5


def test_areas_of_several_classes(rng):
    score, target = rng.random((60, 3)), rng.integers(0, 3, 60)
    for f in (metrics.roc_auc, metrics.average_precision):
        each = np.array([f(score[:, c], target == c) for c in range(3)])
        np.testing.assert_allclose(f(score, target, average=None), each)
        np.testing.assert_allclose(f(score, target), each.mean())
        np.testing.assert_allclose(f(score, target, average="weighted"), np.average(each, weights=np.bincount(target)))


# Numbers -------------------------------------------------------------------------------------------------------------


def test_r2_of_published_examples():
    assert metrics.r2_score(np.array([2.5, 0.0, 2, 8]), np.array([3, -0.5, 2, 7])) == pytest.approx(0.9486081370449679)
    prediction, target = np.array([[0, 2], [-1, 2], [8, -5]]), np.array([[0.5, 1], [-1, 1], [7, -6]])
    assert metrics.r2_score(prediction, target, average="variance") == pytest.approx(0.9382566585956417)
    np.testing.assert_allclose(metrics.r2_score(prediction, target, average=None), [0.965437788, 0.908163265])
    assert metrics.r2_score([1, 2, 3], [1, 2, 3]) == 1
    assert metrics.r2_score([2, 2, 2], [1, 2, 3]) == 0
    assert metrics.r2_score([3, 2, 1], [1, 2, 3]) == -3
    assert metrics.r2_score([-2, -2, -2], [-2, -2, -2]) == 1
    assert metrics.r2_score([-2, -2, -2 + 1e-8], [-2, -2, -2]) == 0


# Calibration ---------------------------------------------------------------------------------------------------------


def test_calibration_by_loops(rng):
    p = rng.dirichlet(np.ones(4), 200)
    target = rng.integers(0, 4, 200)
    confidence, right = p.max(1), p.argmax(1) == target
    gaps, parts = [], []
    for low, high in itertools.pairwise(np.linspace(0, 1, 11)):
        inside = (confidence > low) & (confidence <= high)
        if inside.any():
            gaps.append(abs(right[inside].mean() - confidence[inside].mean()))
            parts.append(inside.mean())
    gaps, parts = np.array(gaps), np.array(parts)
    assert metrics.calibration_error(p, target) == pytest.approx(np.sum(parts * gaps))
    assert metrics.calibration_error(p, target, norm="l2") == pytest.approx(np.sqrt(np.sum(parts * gaps**2)))
    assert metrics.calibration_error(p, target, norm="max") == pytest.approx(gaps.max())
    data = metrics.reliability(p, target)
    assert data.count.sum() == 200 and np.isnan(data.accuracy[data.count == 0]).all()


def test_calibration_of_events():
    p, target = np.array([0.0, 0.2, 0.2, 0.8, 0.8, 1.0]), np.array([0, 0, 1, 1, 1, 1])
    data = metrics.reliability(p, target, bins=5)
    np.testing.assert_array_equal(data.count, [3, 0, 0, 2, 1])  # a bin has its upper edge
    np.testing.assert_allclose(data.confidence[[0, 3, 4]], [0.4 / 3, 0.8, 1])
    np.testing.assert_allclose(data.accuracy[[0, 3, 4]], [1 / 3, 1, 1])
    assert metrics.calibration_error(p, target, 5) == pytest.approx((0.6 + 0.4 + 0) / 6)
    assert metrics.calibration_error(np.array([0.0, 1.0]), np.array([0, 1])) == 0


def test_the_diagram_shows_the_bins(rng):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    p = rng.random(100)
    ax = metrics.plot_reliability(p, (rng.random(100) < p).astype(int), bins=8)
    assert len(ax.patches) == 16 and "ECE" in ax.get_title()
    data = metrics.reliability(p, (rng.random(100) < p).astype(int), bins=8)
    assert metrics.plot_reliability(data, ax=ax) is ax
    matplotlib.pyplot.close("all")


# Batch by batch ------------------------------------------------------------------------------------------------------

N = 50
DATA = np.random.default_rng(3)
P4, LABELS, EVENT = DATA.dirichlet(np.ones(4), N), DATA.integers(0, 4, N), DATA.integers(0, 2, N)
X, Y, W = DATA.standard_normal((N, 2)), DATA.standard_normal((N, 2)) + 1e6, DATA.uniform(0.1, 2, N)
STREAMS = {
    "Accuracy": (metrics.Accuracy, metrics.accuracy, (P4, LABELS)),
    "Accuracy labels": (metrics.Accuracy, metrics.accuracy, (P4.argmax(-1), LABELS)),
    "Accuracy weights": (metrics.Accuracy, lambda p, t, w: metrics.accuracy(p, t, weight=w), (P4, LABELS, W)),
    "TopKAccuracy": (lambda: metrics.TopKAccuracy(2), lambda p, t: metrics.top_k_accuracy(p, t, 2), (P4, LABELS)),
    "ConfusionMatrix": (metrics.ConfusionMatrix, metrics.confusion_matrix, (P4.argmax(-1), LABELS)),
    "ConfusionMatrix weights": (
        lambda: metrics.ConfusionMatrix(4), lambda p, t, w: metrics.confusion_matrix(p, t, weight=w), (P4, LABELS, W)
    ),
    "Precision": (metrics.Precision, metrics.precision, (P4[:, 0], EVENT)),
    "Recall": (lambda: metrics.Recall("macro"), lambda p, t: metrics.recall(p, t, "macro"), (P4, LABELS)),
    "F1": (lambda: metrics.F1(None, classes=4), lambda p, t: metrics.f1(p, t, None), (P4, LABELS)),
    "RocAuc": (metrics.RocAuc, metrics.roc_auc, (P4[:, 0], EVENT)),
    "RocAuc classes": (metrics.RocAuc, metrics.roc_auc, (P4, LABELS)),
    "AveragePrecision": (
        metrics.AveragePrecision, lambda p, t, w: metrics.average_precision(p, t, weight=w), (P4[:, 0], EVENT, W)
    ),
    "R2": (metrics.R2, metrics.r2_score, (X + 1e6, Y)),
    "R2 weights": (lambda: metrics.R2(None), lambda p, t, w: metrics.r2_score(p, t, weight=w, average=None), (X, Y, W)),
    "CalibrationError": (metrics.CalibrationError, metrics.calibration_error, (P4, LABELS)),
    "Mean": (metrics.Mean, np.mean, (X,)),
    "Mean weights": (metrics.Mean, lambda x, w: np.average(x, weights=w), (X[:, 0], W)),
}  # fmt: skip


@pytest.mark.parametrize("size", [1, 7, 50])
@pytest.mark.parametrize("name", STREAMS)
def test_streaming_equals_whole(name, size):
    make, whole, data = STREAMS[name]
    metric, expected = make(), whole(*data)
    for _ in range(2):  # the second time after a reset
        for start in range(0, N, size):
            metric.update(*(x[start : start + size] for x in data))
        np.testing.assert_allclose(metric.value, expected, rtol=1e-9)
        assert type(metric).__name__ in repr(metric)
        metric.reset()
    if name != "ConfusionMatrix" and name.split()[0] in ("Accuracy", "RocAuc", "R2", "Mean", "CalibrationError"):
        assert np.isnan(metric.value)


def test_mean_of_batch_losses():
    loss = metrics.Mean()
    loss.update(2.0, 30)
    loss.update(np.float32(5.0), 10)
    assert loss.value == pytest.approx(2.75)


def test_values_are_not_views():
    scores = np.array([0.1, 0.9])
    auc, matrix = metrics.RocAuc(), metrics.ConfusionMatrix(2)
    auc.update(scores, np.array([0, 1]))
    scores[:] = 0.5  # a loader may reuse its buffers
    assert auc.value == 1
    matrix.update([0, 1], [0, 1])
    matrix.value[:] = 7
    np.testing.assert_array_equal(matrix.value, np.eye(2))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: metrics.accuracy(P4, LABELS[:9]), ValueError, r"scores have shape \(50, 4\), targets \(9,\)"),
        (lambda: metrics.accuracy(P4[:, 0], LABELS), ValueError, "targets are 0 to 1, got"),
        (lambda: metrics.accuracy(P4, LABELS + 1), ValueError, r"targets are 0 to 3, got 4 \(at index"),
        (lambda: metrics.accuracy(X[:, 0], EVENT), ValueError, "Logits: threshold=0.0; labels: prediction.astype"),
        (lambda: metrics.accuracy(P4, LABELS * 1.0), TypeError, "targets are integers or bools, got dtype float64"),
        (lambda: metrics.accuracy(LABELS[:, None], LABELS), ValueError, r"\(50, 1\), targets \(50,\)"),
        (lambda: metrics.top_k_accuracy(P4, LABELS, 5), ValueError, "1 to the number of classes, 4; got 5"),
        (lambda: metrics.confusion_matrix(LABELS, LABELS, classes=3), ValueError, "are 0 to 2, got 3"),
        (lambda: metrics.confusion_matrix(LABELS, LABELS, normalize="rows"), ValueError, "got 'rows'"),
        (lambda: metrics.precision(LABELS, LABELS), ValueError, 'average="binary" is for labels 0 and 1, got 4'),
        (lambda: metrics.f1(LABELS, LABELS, "mean"), ValueError, "one of 'binary', .*got 'mean'"),
        (lambda: metrics.roc_auc(P4[:, 0], np.ones(50, int)), ValueError, "both classes, and one is missing"),
        (lambda: metrics.roc_auc(EVENT, P4[:, 0]), TypeError, "targets are integers or bools"),
        (lambda: metrics.roc_auc(P4, EVENT), ValueError, r"every one of the 4 classes and no other; see \[2, 3\]"),
        (lambda: metrics.roc_auc(np.full(50, np.nan), EVENT), ValueError, "score 0 is NaN"),
        (lambda: metrics.roc_curve(P4[:, 0], LABELS), ValueError, "targets are 0 and 1, got"),
        (lambda: metrics.average_precision(P4[:, 0], EVENT * 0), ValueError, "there are none in the targets"),
        (lambda: metrics.r2_score(X, Y[:9]), ValueError, r"got \(50, 2\) and \(9, 2\)"),
        (lambda: metrics.r2_score(X, Y, average="mean"), ValueError, "got 'mean'"),
        (lambda: metrics.calibration_error(X, EVENT), ValueError, "between 0 and 1, got"),
        (lambda: metrics.calibration_error(P4, LABELS, bins=0), ValueError, "positive number, got 0"),
        (lambda: metrics.calibration_error(P4, LABELS, norm="l3"), ValueError, "got 'l3'"),
        (lambda: metrics.accuracy(P4, LABELS, weight=np.ones(9)), ValueError, r"weight has shape \(9,\)"),
        (lambda: metrics.roc_auc(P4, LABELS, weight=np.ones(9)), ValueError, r"weight has shape \(9,\), the samples"),
        (lambda: wl.jit(metrics.f1)(LABELS, LABELS), wl.TracingError, "metrics are computed of values"),
        (lambda: wl.jit(metrics.roc_auc)(P4, LABELS), wl.TracingError, "compute the metric outside"),
    ],
)  # fmt: skip
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()
