"""Networks as estimators: step by step as scikit-learn's, at known optima, with images, copied, gone on with."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier as TheirClassifier
from sklearn.neural_network import MLPRegressor as TheirRegressor
from sklearn.preprocessing import scale

import wonderland as wl
from wonderland.estimators import ConvClassifier, HeteroscedasticRegressor, MLPClassifier, MLPRegressor
from wonderland.estimators.network_batches import EpochBatches, held_out

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(50, 4))
SCORE = X @ [1.0, -2.0, 0.5, 0.0] + np.sin(3 * X[:, 0])
WEIGHT = RNG.uniform(0.2, 3, 50)
TWO, THREE = (SCORE > 0).astype(int), np.digitize(SCORE, [-1, 1])
NUMBERS = np.stack([SCORE, np.cos(SCORE)], axis=1)
IMAGES = RNG.normal(size=(40, 1, 5, 4))
KINDS = np.digitize(IMAGES[:, 0, :2].sum((1, 2)), [-1.5, 1.5])


def small_conv(**others):
    return ConvClassifier((4,), **{"max_iter": 3, "random_state": 0, **others})


# Against scikit-learn ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["sgd", "adam"])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["alike", "weighted"])
@pytest.mark.parametrize("task", ["two", "three", "numbers"])
def test_every_step_is_scikit_learns(solver, weight, task):
    """From the same weights, all samples in one batch: the losses and the weights after 20 steps are theirs."""
    y = {"two": TWO, "three": THREE, "numbers": NUMBERS}[task]
    mine, theirs = (MLPRegressor, TheirRegressor) if task == "numbers" else (MLPClassifier, TheirClassifier)
    settings = {
        "hidden_layer_sizes": (6,), "solver": solver, "alpha": 0.3, "learning_rate_init": 0.01,
        "random_state": 0, "warm_start": True, "n_iter_no_change": 100,
    }  # fmt: skip
    model, other = mine(max_iter=1, **settings).fit(X, y), theirs(max_iter=1, **settings).fit(X, y)
    for own, their in zip(model.coefs_ + model.intercepts_, other.coefs_ + other.intercepts_, strict=True):
        their[...] = own
    before = len(other.loss_curve_)
    for one in (model, other):
        one.set_params(max_iter=20).fit(X, y, sample_weight=weight)
    close = 1e-11 if solver == "sgd" else 1e-4  # Adam's epsilon of theirs isn't corrected as the moments are
    for own, their in zip(model.coefs_ + model.intercepts_, other.coefs_ + other.intercepts_, strict=True):
        np.testing.assert_allclose(own, their, atol=close)
    assert model.n_layers_ == other.n_layers_ == 3
    if task != "numbers":  # whose loss they divide by the outputs, and not its gradient
        np.testing.assert_allclose(model.loss_curve_[1:], other.loss_curve_[before:], rtol=close)
        np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X), atol=close)
        assert np.array_equal(model.classes_, other.classes_)


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
def test_without_hidden_layers_lbfgs_is_logistic_regression(y):
    model = MLPClassifier((), solver="lbfgs", alpha=2.0, tol=1e-9, max_iter=500).fit(X, y, WEIGHT)
    other = LogisticRegression(C=0.5, tol=1e-10, max_iter=1000).fit(X, y, WEIGHT)
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X), atol=1e-6)
    assert "converged" in model.history_.stopped


def test_without_hidden_layers_lbfgs_is_ridge_regression():
    model = MLPRegressor((), solver="lbfgs", alpha=3.0, tol=1e-9, max_iter=500).fit(X, NUMBERS, WEIGHT)
    other = Ridge(alpha=3.0).fit(X, NUMBERS, WEIGHT)
    np.testing.assert_allclose(model.coefs_[0].T, other.coef_, atol=1e-6)
    np.testing.assert_allclose(model.intercepts_[0], other.intercept_, atol=1e-6)


def test_mlp_on_digits():
    x, y = load_digits(return_X_y=True)
    train, test, y_train, y_test = train_test_split(scale(x).astype(np.float32), y, random_state=0)
    assert MLPClassifier(random_state=0).fit(train, y_train).score(test, y_test) >= 0.97  # theirs has 0.976


def test_conv_on_digits():
    x, y = load_digits(return_X_y=True)
    train, test, y_train, y_test = train_test_split(x.astype(np.float32), y, random_state=0)
    assert ConvClassifier(random_state=0).fit(train, y_train).score(test, y_test) >= 0.985


# Losses, batches, stopping -------------------------------------------------------------------------------------------


def loss_by_hand(model, gamma, smoothing):
    p = model.predict_proba(X)
    target = np.eye(3)[THREE] * (1 - smoothing) + smoothing / 3
    right = p[np.arange(50), THREE]
    each = -np.sum(target * np.log(p), axis=1) if gamma is None else -((1 - right) ** gamma) * np.log(right)
    return np.average(each, weights=WEIGHT) + 0.5 * sum(np.sum(w * w) for w in model.coefs_) / 2 / WEIGHT.sum()


@pytest.mark.parametrize(("gamma", "smoothing"), [(None, 0.2), (2.0, 0.0)])
def test_losses(gamma, smoothing):
    settings = {"label_smoothing": smoothing} if gamma is None else {"loss": "focal", "gamma": gamma}
    model = MLPClassifier((5,), "tanh", alpha=0.5, solver="lbfgs", tol=1e-6, max_iter=500, random_state=0, **settings)
    model.fit(X, THREE, WEIGHT)
    np.testing.assert_allclose(model.loss_, loss_by_hand(model, gamma, smoothing), rtol=1e-6)
    assert model.loss_curve_[-1] < model.loss_curve_[0]


def test_focal_loss_is_less_sure():
    y = np.where(RNG.random(50) < 0.2, 1 - TWO, TWO)
    settings = {"learning_rate_init": 0.02, "random_state": 0}
    models = [MLPClassifier((32,), loss=loss, **settings).fit(X, y) for loss in ("cross-entropy", "focal")]
    sure, less = (model.predict_proba(X).max(axis=1).mean() for model in models)
    assert less < sure - 0.03


@pytest.mark.parametrize("n", [1, 30, 32, 33, 200, 201, 450])
def test_batches_add_up_to_the_weighted_mean(n):
    x, y, weight = RNG.normal(size=(n, 3)), RNG.integers(0, 5, n), RNG.uniform(0.1, 2, n)
    batches = EpochBatches(x, y, weight, 200, 0.7, seed=3)
    each = x[:, 0] ** 2 + y
    for epoch in (0, 1):
        of_epoch = list(batches(epoch))
        assert len(of_epoch) == -(-n // 200) and len({b[0].shape for b in of_epoch}) == 1
        found = np.mean([np.sum(share * (x[:, 0] ** 2 + y)) for x, share, _, y in of_epoch])
        np.testing.assert_allclose(found, np.average(each, weights=weight))
        np.testing.assert_allclose([penalty for _, _, penalty, _ in of_epoch], 0.7 * len(of_epoch) / weight.sum())
        rows = np.concatenate([x[share > 0] for x, share, _, _ in of_epoch])
        assert np.array_equal(np.sort(rows, axis=0), np.sort(x, axis=0))
    if n > 200:
        assert not np.array_equal(next(batches(0))[0], next(batches(1))[0])
        assert np.array_equal(next(batches(1))[0], next(EpochBatches(x, y, weight, 200, 0.7, 3, begin=1)(0))[0])


def test_folds_and_settings_share_one_program(monkeypatch):
    from wonderland.compile import jit

    compiled, original = [], jit.compile_program
    monkeypatch.setattr(jit, "compile_program", lambda *args, **named: compiled.append(1) or original(*args, **named))
    MLPRegressor((3,), max_iter=2).fit(X[:41], SCORE[:41])
    first = len(compiled)
    other = MLPRegressor((3,), max_iter=3, alpha=5.0, learning_rate_init=0.3, random_state=1)
    other.fit(X[:49], SCORE[:49], WEIGHT[:49])
    assert first >= 1 and len(compiled) == first


def test_early_stopping_keeps_the_best():
    x, y = make_blobs(300, centers=4, cluster_std=4.0, random_state=0)
    model = MLPClassifier((20,), early_stopping=True, n_iter_no_change=5, learning_rate_init=0.02, random_state=0)
    model.fit(x, y)
    _, outside = held_out(y, model.validation_fraction, model._seed, model.classes_)
    assert len(outside) == 30 and np.ptp(np.bincount(y[outside])) <= 1
    assert len(model.validation_scores_) == model.n_iter_ < 200
    assert model.best_validation_score_ == max(model.validation_scores_)
    np.testing.assert_allclose(model.score(x[outside], y[outside]), model.best_validation_score_)
    assert "validation_loss" in model.history_
    rare = np.where(np.arange(150) < 149, np.array(["a", "b"])[np.arange(150) % 2], "rare")
    with pytest.raises(ValueError, match="one sample of class rare: leave it out, or take early_stopping=False"):
        MLPClassifier(early_stopping=True).fit(np.ones((150, 2)), rare)
    tiny = MLPRegressor(early_stopping=True)
    with pytest.raises(ValueError, match="at least 2"):
        tiny.fit(X[:5], SCORE[:5])


def test_it_says_when_it_hasnt_converged():
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        MLPRegressor((6,), max_iter=2).fit(X, SCORE)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = MLPRegressor((6,), max_iter=5, learning_rate="cosine", learning_rate_init=0.1).fit(X, SCORE)
    half = (1 + np.cos(np.pi * np.arange(5) / 5)) / 2
    np.testing.assert_allclose(model.history_["rate"], 0.1 * half)


# Going on, copies, keys ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["adam", "adamw", "sgd"])
def test_partial_fit_is_fit_pass_by_pass(solver):
    settings = {"solver": solver, "random_state": 0, "learning_rate_init": 0.01}
    whole = MLPClassifier((6,), max_iter=4, **settings).fit(X, THREE)
    parts = MLPClassifier((6,), **settings)
    for _ in range(4):
        parts.partial_fit(X, THREE, classes=[0, 1, 2])
    np.testing.assert_allclose(parts.predict_proba(X), whole.predict_proba(X), rtol=1e-12)
    assert parts.n_iter_ == 4 and parts.loss_curve_ == whole.loss_curve_
    assert [*parts.history_["epoch"]] == [1, 2, 3, 4] and [*parts.history_.steps["step"]] == [1, 2, 3, 4]


def test_partial_fit_of_chunks_learns():
    model = MLPClassifier((6,), random_state=0, learning_rate_init=0.03)
    for i in range(60):
        rows = slice(10 * (i % 5), 10 * (i % 5) + 10)
        model.partial_fit(X[rows], np.array(["no", "yes"])[TWO[rows]], classes=["yes", "no"])
    assert model.score(X, np.array(["no", "yes"])[TWO]) > 0.9


FITTED = [
    MLPClassifier((6,), dropout=0.3, max_iter=3, random_state=0),
    MLPRegressor((6,), max_iter=3, random_state=0),
    HeteroscedasticRegressor((6,), max_iter=3, random_state=0),
    HeteroscedasticRegressor(),
    small_conv(dropout=0.2),
]


@pytest.mark.parametrize("model", FITTED, ids=lambda m: type(m).__name__)
def test_copies(model):
    model = clone(model).fit(X, SCORE if hasattr(model, "predict_interval") or "Reg" in type(model).__name__ else THREE)
    for same in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert np.array_equal(same.predict(X), model.predict(X))
        assert repr(same.history_) == repr(model.history_)
        if hasattr(model, "partial_fit"):
            y = THREE if hasattr(model, "classes_") else SCORE
            again = copy.deepcopy(model).partial_fit(X, y)
            assert np.array_equal(same.partial_fit(X, y).predict(X), again.predict(X))
            assert not np.array_equal(same.network_.parameters()[0], model.network_.parameters()[0])
    assert not hasattr(clone(model), "network_")


@pytest.mark.parametrize("model", FITTED, ids=lambda m: type(m).__name__)
def test_the_global_stream_is_neither_used_nor_moved(model):
    y = THREE if hasattr(model, "predict_proba") else SCORE
    wl.random.seed(1)
    first = clone(model).fit(X, y).predict(X)
    drawn = wl.random.normal(shape=(3,))
    wl.random.seed(1)
    assert np.array_equal(wl.random.normal(shape=(3,)), drawn)
    wl.random.seed(2)
    assert np.array_equal(clone(model).fit(X, y).predict(X), first)
    state = np.random.RandomState(0)
    one, two = (clone(model).set_params(random_state=state).fit(X, y).predict(X) for _ in range(2))
    if model.hidden_layer_sizes or hasattr(model, "channels"):
        assert "Classifier" in type(model).__name__ or not np.array_equal(one, two)


@pytest.mark.parametrize("model", FITTED, ids=lambda m: type(m).__name__)
def test_derivatives_of_predictions(model):
    y = THREE if hasattr(model, "predict_proba") else SCORE
    model = clone(model).fit(X, y)
    f = model.as_function()
    small = 1e-6
    moved = [(f(X[:3] + small * e) - f(X[:3] - small * e)) / (2 * small) for e in np.eye(4)]
    np.testing.assert_allclose(model.input_gradient(X[:3]), np.stack(moved, axis=-1), atol=1e-7)
    out = model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)
    np.testing.assert_allclose(wl.jit(f)(X), out, rtol=1e-9)
    of_first = lambda x: np.sum(f(x) * np.arange(1.0, 1.0 + np.size(out[0])))
    np.testing.assert_allclose(
        wl.grad(of_first)(X[0]),
        np.arange(1.0, 1.0 + np.size(out[0])) @ model.input_gradient(X[:1]).reshape(-1, 4),
        rtol=1e-9,
    )


def test_dtypes_and_layouts():
    model = MLPRegressor((4,), max_iter=2, random_state=0).fit(X.astype(np.float32), SCORE)
    assert model.predict(X).dtype == model.network_[0].weight.dtype == np.float32
    model = MLPRegressor((6,), max_iter=2, random_state=0).fit(X, SCORE)
    assert model.predict(X).dtype == np.float64
    for other in (np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2], X.tolist()):
        assert np.array_equal(clone(model).fit(other, SCORE).predict(other), model.predict(X))
    one = clone(model).fit(X[:, :1], SCORE[:, None])
    assert one.predict(X[:, :1]).shape == (50, 1)
    many = clone(model).fit(RNG.normal(size=(5, 40)), NUMBERS[:5])
    assert many.predict(np.zeros((2, 40))).shape == (2, 2)


# Images --------------------------------------------------------------------------------------------------------------


def test_images_and_rows_are_the_same():
    rows = IMAGES.reshape(40, 20)
    reference = small_conv(image_shape=(5, 4)).fit(rows, KINDS)
    assert reference.image_shape_ == (1, 5, 4) and reference.n_features_in_ == 20
    for shape, data in [(None, IMAGES), (None, IMAGES[:, 0]), ((1, 5, 4), rows), ((5, 4), IMAGES[:, 0].tolist())]:
        model = small_conv(image_shape=shape).fit(data, KINDS)
        assert np.array_equal(model.predict_proba(IMAGES[:, 0]), reference.predict_proba(rows))
    assert reference.input_gradient(IMAGES[:2]).shape == (2, 3, 20)
    squarest = small_conv(max_iter=1).fit(RNG.normal(size=(40, 12)), KINDS)
    assert squarest.image_shape_ == (1, 3, 4)


def test_colours_integers_and_many():
    images = RNG.integers(0, 155, size=(600, 3, 6, 6)).astype(np.uint8)
    y = RNG.integers(0, 2, 600)
    images[np.arange(600), y] += 60  # red or green
    model = ConvClassifier((8,), max_iter=4, random_state=0, alpha=0.1).fit(images, y)
    assert model.network_[1].weight.shape == (8, 3, 3, 3) and model.network_[1].weight.dtype == np.float32
    halves = np.concatenate([model.predict_proba(images[:300]), model.predict_proba(images[300:])])
    np.testing.assert_allclose(model.predict_proba(images), halves, atol=1e-5)
    assert model.score(images, y) > 0.9


def test_the_scale_of_pixels_hardly_matters():
    one, other = (small_conv(max_iter=5).fit(k * IMAGES, KINDS).predict_proba(k * IMAGES) for k in (10, 1000))
    np.testing.assert_allclose(one, other, atol=0.1)


@pytest.mark.parametrize(
    ("settings", "data", "says"),
    [
        ({"image_shape": (3, 3)}, IMAGES, "of 20 pixels"),
        ({"image_shape": (4, 5)}, IMAGES, r"has images of shape \(1, 5, 4\)"),
        ({"image_shape": (1, 1, 5, 4)}, IMAGES, "image_shape is"),
        ({"channels": ()}, IMAGES, "channels has no numbers"),
        ({"kernel_size": 0}, IMAGES, "kernel_size is a whole number"),
        ({}, IMAGES[..., None], "images are"),
        ({}, IMAGES[:, :, :0], "0 feature"),
        ({}, np.where(IMAGES > 2, np.nan, IMAGES), "NaN"),
    ],
)
def test_wrong_images(settings, data, says):
    with pytest.raises(ValueError, match=says):
        ConvClassifier(**settings).fit(data, KINDS)


def test_images_of_another_shape_are_refused():
    model = small_conv(max_iter=1).fit(IMAGES, KINDS)
    with pytest.raises(ValueError, match=r"the network is for \(1, 5, 4\)"):
        model.predict(IMAGES.reshape(40, 4, 5))
    model.partial_fit(IMAGES[:7], KINDS[:7])
    with pytest.raises(ValueError, match="19 features"):
        model.predict(IMAGES.reshape(40, 20)[:, :-1])


# Wrong input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"hidden_layer_sizes": (3, 0)}, {"hidden_layer_sizes": "ten"}, {"hidden_layer_sizes": 2.5},
        {"activation": "step"}, {"solver": "newton"}, {"alpha": -1}, {"batch_size": 0}, {"batch_size": "all"},
        {"learning_rate": "adaptive"}, {"learning_rate_init": 0}, {"momentum": 1}, {"max_iter": 0}, {"tol": -1},
        {"n_iter_no_change": 0}, {"validation_fraction": 1}, {"dropout": 1}, {"dropout": -0.1},
        {"loss": "hinge"}, {"gamma": -1}, {"label_smoothing": 1}, {"loss": "focal", "label_smoothing": 0.1},
    ],
    ids=str,
)  # fmt: skip
def test_wrong_parameters(settings):
    with pytest.raises(ValueError, match=[*settings][-1]):
        MLPClassifier(**settings).fit(X, TWO)


def test_wrong_data():
    for bad, says in [(np.where(X > 2, np.nan, X), "NaN"), (X[:, 0], "2D array"), (X[:0], "0 sample")]:
        with pytest.raises(ValueError, match=says):
            MLPClassifier().fit(bad, TWO[: len(bad)])
    with pytest.raises(ValueError, match="one class"):
        MLPClassifier().fit(X, np.ones(50))
    with pytest.raises(ValueError, match="not negative"):
        MLPRegressor().fit(X, SCORE, -WEIGHT)
    with pytest.raises(ValueError, match="infinite or NaN"):
        MLPRegressor((6,), solver="sgd", learning_rate_init=1e6).fit(X, SCORE)
    constant = np.column_stack([np.ones(50), X[:, 0], X[:, 0]])  # constant and equal columns do no harm
    assert np.all(np.isfinite(MLPRegressor((4,), max_iter=5).fit(constant, SCORE).predict(constant)))


def test_wrong_continuations():
    model = MLPClassifier((6,), max_iter=1, warm_start=True).fit(X, TWO)
    with pytest.raises(ValueError, match="warm_start goes on"):
        model.fit(X, THREE)
    with pytest.raises(ValueError, match="3 features"):
        model.fit(X[:, :3], TWO)
    with pytest.raises(ValueError, match="go on with a network"):
        model.set_params(hidden_layer_sizes=(5,)).fit(X, TWO)
    with pytest.raises(ValueError, match="classes must be passed"):
        MLPClassifier().partial_fit(X, TWO)
    with pytest.raises(ValueError, match="aren't among the classes"):
        MLPClassifier().partial_fit(X, THREE, classes=[0, 1])
    with pytest.raises(ValueError, match="was"):
        MLPClassifier((6,)).partial_fit(X, TWO, classes=[0, 1]).partial_fit(X, TWO, classes=[0, 1, 2])
    with pytest.raises(ValueError, match="lbfgs"):
        MLPRegressor(solver="lbfgs").partial_fit(X, SCORE)
    with pytest.raises(ValueError, match="early_stopping"):
        MLPRegressor(early_stopping=True).partial_fit(X, SCORE)
    with pytest.raises(ValueError, match="go on with a network"):
        MLPRegressor((6,), max_iter=1, warm_start=True).fit(X, SCORE).fit(X, NUMBERS)
