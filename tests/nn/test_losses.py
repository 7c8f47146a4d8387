"""Losses: their formulas, weights, masks and reductions, what is singular, and what they refuse."""

import itertools
import math

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn

JIT = pytest.mark.parametrize("jit", [lambda f: f, wl.jit], ids=["eager", "compiled"])
RNG = np.random.default_rng(11)
A, B = RNG.standard_normal((4, 3)), RNG.standard_normal((4, 3))
P, Q = (np.exp(x) / np.exp(x).sum(-1, keepdims=True) for x in (A, B))
SIGNS = np.where(B > 0, 1.0, -1.0)
LABELS = np.array([2, 0, 1, 1])
EXACT = np.array([0.0, 1.0])[(B > 0).astype(int)]

# The loss of each element or sample, by a formula that needs nothing of ours; prediction and target.
EACH = {
    "mse_loss": (nn.mse_loss, A, B, (A - B) ** 2),
    "l1_loss": (nn.l1_loss, A, B, abs(A - B)),
    "huber_loss": (nn.huber_loss, A, B, np.where(abs(A - B) < 1, (A - B) ** 2 / 2, abs(A - B) - 0.5)),
    "smooth_l1_loss": (nn.smooth_l1_loss, A, B, np.where(abs(A - B) < 1, (A - B) ** 2 / 2, abs(A - B) - 0.5)),
    "lp_loss": (nn.lp_loss, A, B, np.sqrt(((A - B) ** 2).sum(-1))),
    "hinge_loss": (nn.hinge_loss, A, SIGNS, np.maximum(0, 1 - A * SIGNS)),
    "squared_hinge_loss": (nn.squared_hinge_loss, A, SIGNS, np.maximum(0, 1 - A * SIGNS) ** 2),
    "poisson_nll_loss": (nn.poisson_nll_loss, A, EXACT, np.exp(A) - EXACT * A),
    "binary_cross_entropy": (nn.binary_cross_entropy, P, Q, -Q * np.log(P) - (1 - Q) * np.log(1 - P)),
    "binary_cross_entropy_with_logits": (
        nn.binary_cross_entropy_with_logits, A, Q, Q * np.log1p(np.exp(-A)) + (1 - Q) * np.log1p(np.exp(A)),
    ),
    "sigmoid_focal_loss": (
        nn.sigmoid_focal_loss, A, EXACT,
        np.where(
            EXACT == 1, 0.25 * (1 + np.exp(A)) ** -2.0 * np.log1p(np.exp(-A)),
            0.75 * (1 + np.exp(-A)) ** -2.0 * np.log1p(np.exp(A)),
        ),
    ),
    "cross_entropy": (nn.cross_entropy, A, LABELS, -np.log(P[range(4), LABELS])),
    "cross_entropy soft": (nn.cross_entropy, A, Q, -(Q * np.log(P)).sum(-1)),
    "nll_loss": (nn.nll_loss, A, LABELS, -A[range(4), LABELS]),
    "focal_loss": (
        nn.focal_loss, A, LABELS, -((1 - P[range(4), LABELS]) ** 2) * np.log(P[range(4), LABELS]),
    ),
    "brier_score": (nn.brier_score, P, LABELS, ((P - np.eye(3)[LABELS]) ** 2).sum(-1)),
    "brier_score soft": (nn.brier_score, P, Q, ((P - Q) ** 2).sum(-1)),
    "kl_divergence": (nn.kl_divergence, P, Q, (P * np.log(P / Q)).sum(-1)),
    "jensen_shannon": (
        nn.jensen_shannon, P, Q, (P * np.log(2 * P / (P + Q)) + Q * np.log(2 * Q / (P + Q))).sum(-1) / 2,
    ),
    "total_variation": (nn.total_variation, P, Q, abs(P - Q).sum(-1) / 2),
    "zero_one_loss": (nn.zero_one_loss, A, LABELS, (A.argmax(-1) != LABELS) * 1.0),
}  # fmt: skip
MEAN_BY_COUNT = ("binary_cross_entropy", "binary_cross_entropy_with_logits")  # as PyTorch's
SAMPLES = ("cross_entropy", "cross_entropy soft", "nll_loss", "focal_loss")  # whose `weight` is of classes


@JIT
@pytest.mark.parametrize("name", EACH)
def test_formulas_and_reductions(name, jit, rng):
    f, prediction, target, each = EACH[name]
    close = lambda found, expected: np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    close(jit(lambda a, b: f(a, b, reduction="none"))(prediction, target), each)
    close(jit(f)(prediction, target), each.mean())
    close(jit(lambda a, b: f(a, b, reduction="sum"))(prediction, target), each.sum())

    key = "sample_weight" if name in SAMPLES else "weight"
    for shape in {(4,), each.shape}:
        weight, mask = rng.uniform(0.5, 2, shape), rng.random(shape) < 0.7
        mask.flat[0] = True
        wide = lambda x: np.broadcast_to(x if x.ndim == each.ndim else x[:, None], each.shape)
        total = mask.sum() * each.size / mask.size if name in MEAN_BY_COUNT else wide(weight * mask).sum()
        weighted = each * wide(weight * mask)
        for reduction, expected in (("none", weighted), ("mean", weighted.sum() / total)):
            given = lambda a, b, w, m, r=reduction: f(a, b, mask=m, reduction=r, **{key: w})
            close(jit(given)(prediction, target, weight, mask), expected)


@JIT
@pytest.mark.parametrize("name", [name for name in EACH if name != "zero_one_loss"])
def test_single_precision_stays_whatever_the_target_is(name, jit):
    f, prediction, target, each = EACH[name]
    found, gradient = jit(wl.value_and_grad(f))(prediction.astype(np.float32), target)
    assert found.dtype == gradient.dtype == np.float32
    np.testing.assert_allclose(found, each.mean(), rtol=1e-5)
    weight = {"sample_weight" if name in SAMPLES else "weight": np.ones(4)}
    assert f(prediction.astype(np.float32), target, **weight).dtype == np.float32


@pytest.mark.parametrize("name", [name for name in EACH if name != "zero_one_loss"])
def test_derivatives_to_second_order(name):
    f, prediction, target, _ = EACH[name]
    wl.testing.check_grads(lambda x: f(x, target), (prediction,), order=2)


@JIT
@pytest.mark.parametrize("name", [name for name in EACH if name != "zero_one_loss"])
def test_what_is_masked_out_contributes_nothing_whatever_it_is(name, jit):
    f, prediction, target, each = EACH[name]
    mask, prediction, target = np.array([True, True, False, False]), prediction.copy(), target.copy()
    prediction[2], prediction[3] = np.nan, -np.inf
    target[2:] = 77
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        value, gradient = jit(wl.value_and_grad(lambda x, y: f(x, y, mask=mask)))(prediction, target)
        np.testing.assert_allclose(value, each[:2].mean(), rtol=1e-12)
        expected = wl.grad(lambda x, y: f(x, y))(prediction[:2], target[:2])
        np.testing.assert_allclose(gradient[:2], expected, rtol=1e-12)
        assert not gradient[2:].any()
        nothing = jit(wl.value_and_grad(lambda x, y: f(x, y, mask=np.zeros(4, bool))))(prediction, target)
        assert nothing[0] == 0 and not nothing[1].any()


@pytest.mark.parametrize("name", EACH)
def test_one_sample_at_a_time_by_vmap(name):
    f, prediction, target, each = EACH[name]
    np.testing.assert_allclose(wl.vmap(f)(prediction, target), each.reshape(4, -1).mean(-1), rtol=1e-12)


# Cross-entropy -------------------------------------------------------------------------------------------------------


@JIT
def test_labels_out_of_range_raise(jit):
    for wrong in (3, -1, 1000, -100):
        labels = np.array([0, 1, wrong, 2])
        for f in (nn.cross_entropy, nn.nll_loss, nn.focal_loss, nn.zero_one_loss, nn.brier_score):
            with pytest.raises(ValueError, match=rf"labels are 0 to 2, got .*{wrong}.*\(at index 2\)"):
                jit(f)(A, labels)
            with pytest.raises(ValueError, match="at index 2"):
                jit(wl.grad(f))(A, labels)
    labels = np.array([[0, 1], [2, 3]])
    with pytest.raises(ValueError, match=r"(?s)got .*3.*\(at index \(1, 1\)\)"):
        jit(nn.cross_entropy)(A.reshape(2, 2, 3), labels)
    assert np.isfinite(jit(lambda x, y: nn.cross_entropy(x, y, ignore_index=3))(A.reshape(2, 2, 3), labels))


@JIT
def test_ignored_labels(jit):
    labels = np.array([2, -1, 1, -1])
    f = lambda x, **options: nn.cross_entropy(x, labels, ignore_index=-1, **options)
    kept = nn.cross_entropy(A[[0, 2]], labels[[0, 2]])
    np.testing.assert_allclose(jit(f)(A), kept, rtol=1e-14)
    both = nn.cross_entropy(A[:1], labels[:1])
    np.testing.assert_allclose(jit(lambda x: f(x, mask=np.array([True, True, False, False])))(A), both, rtol=1e-14)
    everything = jit(wl.value_and_grad(lambda x: nn.cross_entropy(x, np.full(4, -1), ignore_index=-1)))(A)
    assert everything[0] == 0 and not everything[1].any()


def test_cross_entropy_is_stable(rng):
    logits = np.array([[1e4, 0.0, -1e4], [-1e30, 1e30, 0.0]], np.float32)
    f = wl.value_and_grad(lambda x: nn.cross_entropy(x, np.array([2, 1]), reduction="sum"))
    for jit in (lambda f: f, wl.jit):
        loss, gradient = jit(f)(logits)
        assert loss == 2e4 and np.all(np.isfinite(gradient))
        np.testing.assert_allclose(gradient, [[1, 0, -1], [0, 0, 0]])
    large = 3e4 + rng.standard_normal((5, 7)).astype(np.float32)
    small = (large - np.float32(3e4)).astype(np.float64)
    labels = rng.integers(0, 7, 5)
    np.testing.assert_allclose(nn.cross_entropy(large, labels), nn.cross_entropy(small, labels), rtol=1e-6)


def test_gradient_is_softmax_minus_target():
    gradient = wl.grad(lambda x: nn.cross_entropy(x, LABELS, reduction="sum"))(A)
    np.testing.assert_allclose(gradient, P - np.eye(3)[LABELS], rtol=1e-12, atol=1e-15)
    smooth = wl.grad(lambda x: nn.cross_entropy(x, LABELS, reduction="sum", label_smoothing=0.3))(A)
    np.testing.assert_allclose(smooth, P - (0.7 * np.eye(3)[LABELS] + 0.1), rtol=1e-12, atol=1e-15)


def test_soft_and_one_hot_labels_and_probabilities_agree():
    hot = np.eye(3)[LABELS]
    for options in ({}, {"label_smoothing": 0.2}, {"mask": np.array([True, False, True, True])}):
        np.testing.assert_allclose(nn.cross_entropy(A, LABELS, **options), nn.cross_entropy(A, hot, **options))
        found = nn.cross_entropy(P, LABELS, from_probabilities=True, **options)
        np.testing.assert_allclose(found, nn.cross_entropy(A, LABELS, **options))
    zero = wl.value_and_grad(lambda p: nn.cross_entropy(p, np.array(0), from_probabilities=True))(np.array([0.0, 1.0]))
    assert zero[0] == 100 and zero[1][0] < -1e6  # large, finite, and away from 0


@JIT
def test_one_step_trains(jit, rng):
    """The loss, its gradient and the update, in one compiled function."""
    x, labels, w = rng.standard_normal((32, 5)), rng.integers(0, 3, 32), np.zeros((5, 3))

    @jit
    def step(w, x, labels):
        loss, gradient = wl.value_and_grad(lambda w: nn.cross_entropy(x @ w, labels))(w)
        return loss, w - 0.5 * gradient

    losses = []
    for _ in range(30):
        loss, w = step(w, x, labels)
        losses.append(loss)
    assert losses[0] == pytest.approx(math.log(3)) and losses[-1] < losses[0] - 0.05


# Others --------------------------------------------------------------------------------------------------------------


def test_singular_points_of_probabilities():
    p, target = np.array([0.0, 1.0, 0.0, 1.0]), np.array([0.0, 0.0, 1.0, 1.0])
    f = lambda p: nn.binary_cross_entropy(p, target, reduction="none")
    for dtype, jit in itertools.product((np.float32, np.float64), (lambda f: f, wl.jit)):
        np.testing.assert_array_equal(jit(f)(p.astype(dtype)), [0, 100, 100, 0])
        gradient = jit(wl.grad(lambda p: np.sum(f(p))))(p.astype(dtype))
        assert np.all(np.isfinite(gradient)) and gradient[1] > 1e6 and gradient[2] < -1e6
    assert nn.kl_divergence([0.0, 1.0], [0.5, 0.5]) == pytest.approx(math.log(2))
    assert nn.kl_divergence([0.5, 0.5], [0.0, 1.0]) == np.inf
    assert nn.kl_divergence([-np.inf, 0.0], np.log([0.5, 0.5]), log=True) == pytest.approx(math.log(2))
    assert nn.jensen_shannon([0.0, 1.0], [1.0, 0.0]) == pytest.approx(math.log(2))
    assert nn.total_variation([0.0, 1.0], [1.0, 0.0]) == 1


def test_a_nan_is_a_loss_of_nan_and_no_error():
    for name, (f, prediction, target, _) in EACH.items():
        if name != "zero_one_loss":
            with np.errstate(invalid="ignore"):
                assert np.isnan(f(np.full_like(prediction, np.nan), target)), name
            assert np.isnan(wl.jit(f)(np.full_like(prediction, np.nan), target)), name


def test_equal_vectors_have_derivatives():
    for p in (1, 1.5, 2, 3, np.inf):
        loss, gradient = wl.value_and_grad(lambda x, p=p: nn.lp_loss(x, A, p))(A)
        assert loss == 0 and np.all(np.isfinite(gradient)) and not gradient.any()
        np.testing.assert_allclose(nn.lp_loss(A, B, p), np.linalg.norm(A - B, p, axis=-1).mean())
    zero = wl.value_and_grad(lambda x: nn.cosine_similarity(x, A[0]))(np.zeros(3))
    assert zero[0] == 0 and np.all(np.isfinite(zero[1]))


def test_huber_does_not_overflow():
    loss, gradient = wl.value_and_grad(nn.huber_loss)(np.array([1e30], np.float32), np.zeros(1, np.float32))
    assert np.isfinite(loss) and gradient == 1


def test_focal_loss_is_smooth_at_certainty():
    certain = np.array([[800.0, 0.0, 0.0], [-800.0, 800.0, 0.0]], np.float32)
    for gamma, jit in itertools.product((0, 0.5, 1.0, 2.0), (lambda f: f, wl.jit)):
        f = lambda x, g=gamma: nn.focal_loss(x, np.array([0, 0]), g)
        value, gradient = jit(wl.value_and_grad(f))(certain)
        assert value == 800 and np.all(np.isfinite(gradient))
    np.testing.assert_allclose(nn.focal_loss(A, LABELS, 0.0), nn.cross_entropy(A, LABELS))


def test_zero_one_of_labels_and_scores():
    assert nn.zero_one_loss(np.array([1, 2, 3]), np.array([1, 2, 0])) == pytest.approx(1 / 3)
    assert not wl.grad(lambda x: nn.zero_one_loss(x, LABELS))(A).any()


def test_gaussian_nll_is_the_density(rng):
    from scipy.stats import norm

    variance = rng.uniform(0.1, 2, (4, 3))
    exact = -norm.logpdf(B, A, np.sqrt(variance))
    np.testing.assert_allclose(nn.gaussian_nll_loss(A, B, variance, full=True, reduction="none"), exact)
    np.testing.assert_allclose(nn.gaussian_nll_loss(A, B, variance[:, 0]), nn.gaussian_nll_loss(A, B, variance[:, :1]))
    np.testing.assert_allclose(nn.gaussian_nll_loss(A, B, 0.5), nn.gaussian_nll_loss(A, B, np.full((4, 3), 0.5)))
    with pytest.raises(ValueError, match=r"isn't negative, got -0.5 \(at index \(0, 1\)\)"):
        nn.gaussian_nll_loss(A[:1], B[:1], np.array([[1, -0.5, 1]]))
    masked = nn.gaussian_nll_loss(A, B, np.where(np.arange(4)[:, None] == 2, -1, variance), mask=np.arange(4) != 2)
    there = [0, 1, 3]
    np.testing.assert_allclose(masked, nn.gaussian_nll_loss(A[there], B[there], variance[there]))
    with pytest.raises(wl.CheckError, match="isn't negative"):
        wl.jit(nn.gaussian_nll_loss)(A, B, -variance)
    with pytest.raises(ValueError, match=r"variance has shape \(3,\), the prediction \(4, 3\)"):
        nn.gaussian_nll_loss(A, B, np.ones(3))


def test_info_nce(rng):
    q, k, n = rng.standard_normal((5, 4)), rng.standard_normal((5, 4)), rng.standard_normal((7, 4))
    unit = lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)
    scores = unit(q) @ unit(k).T / 0.1
    exact = np.log(np.exp(scores).sum(-1)) - np.diag(scores)
    np.testing.assert_allclose(nn.info_nce(q, k, temperature=0.1, reduction="none"), exact)
    both = (exact + np.log(np.exp(scores).sum(0)) - np.diag(scores)) / 2
    np.testing.assert_allclose(nn.info_nce(q, k, temperature=0.1, symmetric=True), both.mean())
    own, other = np.diag(unit(q) @ unit(k).T), unit(q) @ unit(n).T
    exact = np.log(np.exp(own) + np.exp(other).sum(-1)) - own
    np.testing.assert_allclose(nn.info_nce(q, k, n, 1.0), exact.mean())
    np.testing.assert_allclose(nn.info_nce(q, k, temperature=1.0, normalize=False, reduction="none")[0],
                               np.log(np.exp(q[0] @ k.T).sum()) - q[0] @ k[0])  # fmt: skip
    batch = nn.info_nce(np.stack([q, k]), np.stack([k, q]), temperature=0.1, reduction="none")
    assert batch.shape == (2, 5)
    wl.testing.check_grads(lambda q, k, n: nn.info_nce(q, k, n, 0.5), (q, k, n), order=2)
    with pytest.raises(ValueError, match="no negatives"):
        nn.info_nce(q, k, n, symmetric=True)


def nt_xent_by_loops(first, second, temperature):
    """Each of the 2n views against the 2n - 1 others: the losses (2n,)."""
    z = np.concatenate([first, second])
    z, n = z / np.linalg.norm(z, axis=-1, keepdims=True), len(first)
    e = lambda i, k: np.exp(z[i] @ z[k] / temperature)
    losses = [-np.log(e(i, (i + n) % (2 * n)) / sum(e(i, k) for k in range(2 * n) if k != i)) for i in range(2 * n)]
    return np.array(losses)


def test_nt_xent(rng):
    a, b = rng.standard_normal((2, 6, 4))
    exact = nt_xent_by_loops(a, b, 0.3)
    for transform in (lambda f: f, wl.jit):
        loss = transform(lambda a, b: nn.nt_xent(a, b, 0.3))
        np.testing.assert_allclose(loss(a, b), exact.mean())
        np.testing.assert_allclose(loss(b, a), exact.mean())
        np.testing.assert_allclose(loss(3 * a, b), exact.mean())
        assert loss(a.astype(np.float32), b.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(nn.nt_xent(a, b, 0.3, reduction="none"), (exact[:6] + exact[6:]) / 2)
    np.testing.assert_allclose(nn.nt_xent(a[:1], b[:1]), 0)  # no negatives: the partner is all there is
    unit = lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)
    np.testing.assert_allclose(nn.nt_xent(unit(a), unit(b), 0.3, normalize=False), exact.mean())
    stacked = nn.nt_xent(np.stack([a, b + 1]), np.stack([b, a]), reduction="none")
    np.testing.assert_allclose(stacked[1], nn.nt_xent(b + 1, a, reduction="none"))
    weight = rng.random(6)
    np.testing.assert_allclose(
        nn.nt_xent(a, b, 0.3, weight=weight), np.sum(np.tile(weight, 2) * exact) / (2 * weight.sum())
    )
    wl.testing.check_grads(lambda a, b: nn.nt_xent(a, b, 0.5), (a, b), order=2)
    with pytest.raises(ValueError, match=r"n at least 1, got \(0, 4\)"):
        nn.nt_xent(a[:0], b[:0])
    with pytest.raises(ValueError, match=r"\(\.\.\., n, width\)"):
        nn.nt_xent(a[0], b[0])
    with pytest.raises(ValueError, match=r"prediction has shape \(6, 4\), target \(5, 4\)"):
        nn.nt_xent(a, b[:5])


def test_nt_xent_of_masked_samples(rng):
    """Those masked out are as if they weren't there: no pair, nobody's negatives, and no NaN in the derivative."""
    a, b = rng.standard_normal((2, 5, 4))
    mask = np.array([True, True, False, True, False])
    spoilt = np.where(mask[:, None], a, np.nan)
    for transform in (lambda f: f, wl.jit):
        loss, gradient = transform(wl.value_and_grad(lambda a: nn.nt_xent(a, b, 0.3, mask=mask)))(spoilt)
        np.testing.assert_allclose(loss, nt_xent_by_loops(a[mask], b[mask], 0.3).mean())
        np.testing.assert_allclose(gradient[mask], wl.grad(lambda a: nn.nt_xent(a, b[mask], 0.3))(a[mask]), atol=1e-12)
        assert np.all(gradient[~mask] == 0)
        loss, gradient = transform(wl.value_and_grad(lambda a: nn.nt_xent(a, b, mask=np.zeros(5, bool))))(spoilt)
        assert loss == 0 and np.all(gradient == 0)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: nn.mse_loss(np.ones((3, 1)), np.ones(3)), ValueError, r"prediction has shape \(3, 1\), target \(3,\)"),
        (lambda: nn.mse_loss(A, B, reduction="average"), ValueError, "'mean', 'sum', 'none', got 'average'"),
        (lambda: nn.mse_loss(A, B, weight=np.ones(3)), ValueError, r"weight has shape \(3,\), the losses \(4, 3\)"),
        (lambda: nn.mse_loss(A, B, mask=np.ones(4)), TypeError, "array of bools.*got dtype float64"),
        (lambda: nn.mse_loss(A, B, mask=np.ones(3, bool)), ValueError, r"mask has shape \(3,\), the losses \(4, 3\)"),
        (lambda: nn.mse_loss(A * 1j, B), TypeError, "real numbers, got dtype complex128"),
        (lambda: nn.huber_loss(A, B, -1.0), ValueError, "delta is positive, got -1.0"),
        (lambda: nn.lp_loss(A, B, 0.5), ValueError, "p is at least 1, got 0.5"),
        (lambda: nn.hinge_loss(A, (A > 0) * 1), ValueError, r"-1 and 1 \(of 0 and 1: 2 \* target - 1\), got 0.0"),
        (lambda: wl.jit(nn.hinge_loss)(A, (A > 0) * 1), ValueError, "targets are -1 and 1"),
        (lambda: nn.hinge_loss(A, SIGNS * 2, mask=np.arange(4) == 1), ValueError, r"-1 and 1 .*\(at index \(1, 0\)\)"),
        (lambda: nn.cross_entropy(A, LABELS[:3]), ValueError, r"\(4, 3\) with 3 .* shape \(4,\), got \(3,\)"),
        (lambda: nn.cross_entropy(A, LABELS[:, None]), ValueError, r"write target\[\.\.\., 0\]"),
        (lambda: nn.cross_entropy(np.ones((2, 5, 4)), np.ones((2, 4), int)), ValueError, "write axis=1"),
        (lambda: nn.cross_entropy(A, LABELS * 1.0), TypeError, r"integers of shape \(4,\), soft .* \(4, 3\)"),
        (lambda: nn.cross_entropy(A, LABELS > 0), TypeError, "got dtype bool"),
        (lambda: nn.cross_entropy(A, LABELS, weight=np.ones(4)), ValueError, "one number for each .*sample_weight="),
        (lambda: nn.cross_entropy(A, LABELS, label_smoothing=1.5), ValueError, "between 0 and 1, got 1.5"),
        (lambda: nn.cross_entropy(A, Q, ignore_index=0), ValueError, "ignore_index is for labels"),
        (lambda: nn.cross_entropy(A, LABELS, axis=2), ValueError, r"shape \(4, 3\): there is no axis 2"),
        (lambda: nn.cross_entropy(2.0, 1), ValueError, r"shape \(\): there is no axis"),
        (lambda: nn.binary_cross_entropy(A * 9, Q), ValueError, "between 0 and 1, got .*_with_logits"),
        (lambda: wl.jit(nn.binary_cross_entropy)(A * 9, Q), ValueError, "between 0 and 1"),
        (
            lambda: nn.binary_cross_entropy_with_logits(A, Q, pos_weight=np.ones(4)), ValueError,
            r"pos_weight, \(4,\), .*\(4, 3\)",
        ),
        (lambda: nn.cosine_embedding_loss(A, B, np.ones(3)), ValueError, r"shape \(4, 3\), the target \(3,\)"),
        (lambda: nn.cosine_embedding_loss(A, B, np.zeros(4)), ValueError, "targets are -1 and 1, got 0.0"),
        (lambda: nn.triplet_margin_loss(A, B, A[:2]), ValueError, r"\(4, 3\), target \(2, 3\)"),
        (lambda: nn.zero_one_loss(np.ones(3, int), np.ones(2, int)), ValueError, r"\(3,\), labels \(2,\)"),
    ],
)  # fmt: skip
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()
