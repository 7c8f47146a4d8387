"""Metrics of clusters and of retrieval: against scikit-learn, and against definitions by loops; bad input."""

import itertools

import numpy as np
import pytest
from sklearn import metrics as theirs

import wonderland as wl
from wonderland.train import metrics
from wonderland.train.metrics import retrieval

CASES = {
    "independent": lambda rng: (rng.integers(0, 5, 300), rng.integers(0, 3, 300)),
    "names": lambda rng: ((7 - (y := rng.integers(0, 4, 200))) * 3, y),
    "close": lambda rng: (np.where(rng.random(300) < 0.2, 0, y := rng.integers(0, 6, 300)), y),
    "negative": lambda rng: (rng.integers(-1, 2, 50), rng.integers(-5, -2, 50)),
    "one cluster": lambda rng: (np.zeros(20, int), rng.integers(0, 3, 20)),
    "one class": lambda rng: (rng.integers(0, 3, 20), np.ones(20, np.uint8)),
    "one of each": lambda rng: (np.zeros(5, int), np.ones(5, int)),
    "all alone": lambda rng: (np.arange(9), np.arange(9)[::-1]),
    "alone against one": lambda rng: (np.arange(9), np.zeros(9, int)),
    "one sample": lambda rng: (np.array([3]), np.array([5])),
    "bools": lambda rng: (rng.random(40) < 0.5, rng.random(40) < 0.5),
}


@pytest.fixture(params=CASES, ids=str)
def partitions(request, rng):
    return CASES[request.param](rng)


def test_agreement_is_scikit_learn_s(partitions):
    found, target = partitions
    assert metrics.adjusted_rand_index(found, target) == pytest.approx(theirs.adjusted_rand_score(target, found))
    for average in ("arithmetic", "geometric", "min", "max"):
        expected = theirs.normalized_mutual_info_score(target, found, average_method=average)
        assert metrics.normalized_mutual_info(found, target, average) == pytest.approx(expected, abs=1e-12)


def test_accuracy_of_clusters_is_the_best_of_all_names(partitions):
    found, target = partitions
    clusters, classes = np.unique(found), np.unique(target)
    if min(len(clusters), len(classes)) > 6:  # too many to try: these are all alone, and right
        assert metrics.clustering_accuracy(found, target) == 1
        return
    padded = [*clusters, *[None] * max(0, len(classes) - len(clusters))]
    best = max(
        np.mean([target[i] == names.get(found[i]) for i in range(len(found))])
        for chosen in itertools.permutations(padded, len(classes))
        for names in [dict(zip(chosen, classes, strict=True))]
    )
    assert metrics.clustering_accuracy(found, target) == pytest.approx(best)


@pytest.mark.parametrize("average", ["arithmetic", "geometric", "min", "max"])
def test_one_class_says_nothing_about_clusters(average, rng):
    """Shares that sum to 0.9999999999999999 are no entropy."""
    for n in range(2, 60):
        clusters = np.append(rng.integers(0, 5, n - 2), [0, 1])
        expected = theirs.normalized_mutual_info_score(np.zeros(n), clusters, average_method=average)
        assert metrics.normalized_mutual_info(clusters, np.zeros(n, int), average) == expected == 0


def test_rand_index_counts_pairs_exactly():
    """Counts whose pairs are more than 2^31; the definition by all pairs where there are few."""
    many = np.repeat([0, 1], 100_000)
    assert metrics.adjusted_rand_index(many, many) == 1
    assert metrics.adjusted_rand_index(many, np.roll(many, 50_000)) == pytest.approx(
        theirs.adjusted_rand_score(many, np.roll(many, 50_000)), abs=1e-12
    )
    assert metrics.adjusted_rand_index([0, 0, 1, 1], [0, 1, 0, 1]) == pytest.approx(-0.5)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_retrieval_by_loops(metric, dtype, rng, monkeypatch):
    vectors, target = rng.normal(size=(40, 3)).astype(dtype), rng.integers(0, 4, 40)
    distances = theirs.pairwise_distances(vectors.astype(float), metric=metric)
    precisions, averages = {1: [], 5: [], 39: []}, []
    for i in range(40):
        others = np.delete(np.arange(40), i)
        hits = target[others] == target[i]
        averages.append(theirs.average_precision_score(hits, -distances[i, others]))
        near = hits[np.argsort(distances[i, others])]
        for k, values in precisions.items():
            values.append(near[:k].mean())
    for block in (1 << 22, 100):  # of all queries at once, and of two at a time
        monkeypatch.setattr(retrieval, "BLOCK", block)
        for k, values in precisions.items():
            assert metrics.precision_at_k(vectors, target, k, metric=metric) == pytest.approx(np.mean(values))
        assert metrics.mean_average_precision(vectors, target, metric=metric) == pytest.approx(np.mean(averages))
        np.testing.assert_array_equal(
            retrieval.nearest(vectors, 3, metric=metric), np.argsort(distances + 9e9 * np.eye(40), axis=1)[:, :3]
        )


def test_retrieval_from_a_gallery(rng):
    vectors, target = rng.normal(size=(12, 5)), rng.integers(0, 3, 12)
    gallery, other = rng.normal(size=(30, 5)), rng.integers(0, 3, 30)
    distances = theirs.pairwise_distances(vectors, gallery, metric="cosine")
    hits = other[np.argsort(distances, axis=1)] == target[:, None]
    more = {"gallery": gallery, "gallery_target": other}
    assert metrics.precision_at_k(vectors, target, 7, **more) == pytest.approx(hits[:, :7].mean())
    expected = [theirs.average_precision_score(other == y, -row) for y, row in zip(target, distances, strict=True)]
    assert metrics.mean_average_precision(vectors, target, **more) == pytest.approx(np.mean(expected))
    assert metrics.precision_at_k(gallery, other, 1, **{**more, "gallery": gallery}) == 1  # here they find themselves


def test_distances_far_from_zero(rng):
    """What is nearest doesn't change if all moves; here by a number that rounds nothing away."""
    vectors, labels = rng.integers(-512, 512, (40, 3)) / 256, rng.integers(0, 3, 40)
    for metric in (metrics.mean_average_precision, metrics.precision_at_k):
        assert metric(vectors + 2**30, labels, metric="euclidean") == metric(vectors, labels, metric="euclidean")


def test_retrieval_corners():
    """Lengths don't count for cosines, zeros are near to nothing, equals in order; a label that is alone."""
    vectors = np.array([[1, 0], [5, 0], [0, 3], [0, 0]])  # integers, too
    assert metrics.precision_at_k(vectors, [1, 1, 0, 0], 1) == 0.5  # the last two find the first
    assert metrics.mean_average_precision(vectors[:3], [4, 4, 9]) == 1
    assert metrics.precision_at_k(vectors[:3], [4, 4, 9], 1) == pytest.approx(2 / 3)
    turned = np.asfortranarray(np.random.default_rng(0).normal(size=(20, 4)))[::-2]
    assert metrics.precision_at_k(turned, np.arange(10) % 2, 3) == metrics.precision_at_k(
        turned.copy(), np.arange(10) % 2, 3
    )
    with pytest.raises(ValueError, match="no query has a label that anything else has"):
        metrics.mean_average_precision(vectors, [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: metrics.clustering_accuracy([0, 1], [0, 1, 1]), ValueError, r"shapes \(2,\) and \(3,\)"),
        (lambda: metrics.clustering_accuracy([], []), TypeError, "integers or bools, got dtype float64"),
        (lambda: metrics.adjusted_rand_index(np.zeros(0, int), np.zeros(0, int)), ValueError, "n at least 1"),
        (lambda: metrics.normalized_mutual_info([0.5], [0]), TypeError, "clusters are integers or bools"),
        (lambda: metrics.normalized_mutual_info([0], [0], "mean"), ValueError, "'arithmetic', .*got 'mean'"),
        (lambda: metrics.precision_at_k(np.eye(3), [0, 1], 1), ValueError, r"3 vectors have labels \(3,\), got .*\(2,"),
        (lambda: metrics.precision_at_k(np.eye(3), [0, 1, 1], 3), ValueError, "can be found, 2; got 3"),
        (lambda: metrics.precision_at_k(np.ones(3), [0, 1, 1]), ValueError, r"\(n, width\)"),
        (lambda: metrics.precision_at_k(np.eye(1), [0], 1), ValueError, "1 queries, and 0 vectors to be found"),
        (lambda: metrics.precision_at_k(np.eye(2) / 0, [0, 1], 1), ValueError, "NaN or infinite"),
        (lambda: metrics.mean_average_precision(np.eye(2), [0, 0], metric="l1"), ValueError, "'cosine', 'euclidean'"),
        (lambda: metrics.mean_average_precision(np.eye(2), [0, 0], gallery=np.eye(2)), ValueError, "or neither"),
        (lambda: wl.jit(metrics.clustering_accuracy)(np.array([0]), np.array([0])), wl.TracingError, "traced array"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()
