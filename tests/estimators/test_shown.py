"""What an estimator shows of itself: the report in one page, and the plots."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.model_selection import StratifiedKFold, learning_curve
from sklearn.neighbors import KNeighborsClassifier
from test_contract import ALL, data_for

from wonderland import estimators


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", ALL, ids=lambda e: type(e).__name__)
def test_every_estimator_reports(estimator, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fitted = type(estimator)(**estimator.get_params(deep=False)).fit(*data_for(estimator))
    path = fitted.report()
    page = path.read_text(encoding="utf-8")
    assert path.name == f"{type(estimator).__name__}.html" and path.parent.name == "runs"
    assert f"<h1>{type(estimator).__name__}</h1>" in page and "Parameters" in page and "report(X, y)" in page
    if isinstance(fitted, estimators.LinearModel):
        assert "height" in page and "Coefficients" in page


def test_a_report_of_numbers_has_residuals_intervals_and_a_learning_curve(tmp_path):
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    model = estimators.LinearRegression().fit(X[:300], y[:300])
    page = model.report(X[300:], y[300:], tmp_path / "deep" / "page.html").read_text(encoding="utf-8")
    for words in ("R²", "residuals", "intervals of 95%", "learning curve", "held out:", "bmi", "intercept", "inside"):
        assert words in page, words
    assert f"{model.score(X[300:], y[300:]):.3f}"[:4] in page


def test_a_report_of_classes_has_calibration(tmp_path):
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    X = (X - X.mean()) / X.std()
    model = estimators.LogisticRegression().fit(X[:400], y[:400])
    page = model.report(X[400:], y[400:], tmp_path / "page.html", learning_curve=False).read_text(encoding="utf-8")
    for words in ("accuracy", "calibration error", "reliability diagram", "confusion matrix", "worst area"):
        assert words in page, words
    assert "learning curve" not in page


def test_what_cant_be_shown_says_why():
    X, y = np.eye(6, 2) + np.arange(6)[:, None], np.arange(6.0)
    model = estimators.KNeighborsRegressor(2).fit(X, y)
    with pytest.raises(AttributeError, match="SplitConformalRegressor"):
        model.plot_intervals(X, y)
    with pytest.raises(AttributeError, match="NearestNeighbors has no score"):
        estimators.NearestNeighbors(2).fit(X).plot_learning_curve(X)
    with pytest.raises(AttributeError, match="closed form"):
        model.plot_loss()
    with pytest.raises(ValueError, match="X and y, or neither"):
        model.report(X)
    with pytest.raises(ValueError, match=r"y has shape \(5,\)"):
        model.plot_residuals(X, y[:5])
    classifier = estimators.LogisticRegression().fit(X, y > 2)
    with pytest.raises(ValueError, match="wasn't there in fit"):
        classifier.plot_reliability(X, y + 7)


def test_coefficients_come_with_names_and_intervals():
    """Against the textbook's formulas: estimate, error, Student's interval, p."""
    from scipy import stats

    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(30, 2)), columns=["a", "b"])
    y = 1 + 2 * X["a"] + rng.normal(size=30)
    table = estimators.LinearRegression().fit(X, y).coefficient_table(0.9)
    D = np.column_stack([X, np.ones(30)])
    w, rss = np.linalg.lstsq(D, y)[:2]
    error = np.sqrt(np.diag(np.linalg.inv(D.T @ D)) * rss[0] / 27)
    assert table["feature"] == ["a", "b", "intercept"]
    np.testing.assert_allclose(table["coefficient"], w)
    np.testing.assert_allclose(table["error"], error)
    np.testing.assert_allclose(table["upper"], w + stats.t.ppf(0.95, 27) * error)
    np.testing.assert_allclose(table["p"], 2 * stats.t.sf(np.abs(w / error), 27))


def test_a_picture_of_coefficients_has_all_features_and_says_of_which_class():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"height": rng.normal(size=40), "intercept": np.ones(40)})
    model = estimators.LinearRegression(fit_intercept=False).fit(X, rng.normal(size=40))
    drawn = lambda figure: [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert sorted(drawn(model.plot_coefficients())) == ["height", "intercept"]
    y = rng.choice(["no", "yes"], 40)
    figure = estimators.LogisticRegression().fit(X[["height"]], y).plot_coefficients()
    assert drawn(figure) == ["height"]
    texts = [found.get_text() for found in figure.findobj(match=lambda o: hasattr(o, "get_text"))]
    assert any("yes: coefficients" in text for text in texts)
    y = rng.choice(["no", "perhaps", "yes"], 40)
    figure = estimators.LogisticRegression().fit(X[["height"]], y).plot_coefficients()
    assert sorted(drawn(figure)) == ["no: height", "perhaps: height", "yes: height"]


def wrapped(X, y, X_new, y_new):
    """Each estimator around one that was fitted before."""
    base = estimators.LogisticRegression().fit(X, y)
    line = estimators.LinearRegression().fit(X, y)
    yield estimators.CalibratedClassifierCV(base, cv="prefit").fit(X_new, y_new)
    yield estimators.CostSensitiveClassifier(base, prefit=True).fit(X_new, y_new)
    yield estimators.SplitConformalClassifier(base, prefit=True).fit(X_new, y_new)
    yield estimators.SplitConformalRegressor(line, prefit=True).fit(X_new, y_new)


def test_what_was_fitted_before_has_no_learning_curve(tmp_path):
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    for model in wrapped(X[:200], y[:200], X[200:400], y[200:400]):
        page = model.report(X[400:], y[400:], tmp_path / "page.html").read_text(encoding="utf-8")
        assert "learning curve" not in page and "samples here" in page
        with pytest.raises(ValueError, match="was fitted before"):
            model.plot_learning_curve(X, y)


def test_several_levels_are_shown_by_the_first(tmp_path):
    X, y = load_diabetes(return_X_y=True)
    for first in (0.6, 0.9):
        model = estimators.SplitConformalRegressor(None, [first, 0.75], random_state=0).fit(X[:300], y[:300])
        one = estimators.SplitConformalRegressor(None, first, random_state=0).fit(X[:300], y[:300])
        titles = [m.plot_intervals(X[300:], y[300:])._suptitle.get_text() for m in (model, one)]
        assert titles[0] == titles[1] and "inside" in titles[0]
        assert "intervals" in model.report(X[300:], y[300:], tmp_path / "page.html", learning_curve=False).read_text(
            encoding="utf-8"
        )
    sets = estimators.SplitConformalClassifier(None, [0.5, 0.95], random_state=0).fit(X[:300], y[:300] > 140)
    one = estimators.SplitConformalClassifier(None, 0.5, random_state=0).fit(X[:300], y[:300] > 140)
    titles = [m.plot_sets(X[300:], y[300:] > 140)._suptitle.get_text() for m in (sets, one)]
    assert titles[0] == titles[1] and "true class" in titles[0]


def test_a_learning_curve_says_nothing_of_its_clones(recwarn):
    """Parts of 60 samples are too few for an interval, which their scores don't need."""
    X, y = load_diabetes(return_X_y=True)
    model = estimators.SplitConformalRegressor(random_state=0).fit(X[:60], y[:60])
    model.plot_learning_curve(X[:60], y[:60])
    assert not [w for w in recwarn if "too few" in str(w.message)]


@pytest.mark.filterwarnings("ignore:3 samples are too few")
@pytest.mark.parametrize(("side", "test_size"), [("upper", 0.25), ("lower", 0.25), ("both", 3)])
def test_ends_that_are_infinite_are_at_the_edge(side, test_size):
    X, y = load_diabetes(return_X_y=True)
    model = estimators.SplitConformalRegressor(None, side=side, test_size=test_size, random_state=0).fit(X, y)
    figure = model.plot_intervals(X[:50], y[:50])
    ends, (low, high) = model.predict_interval(X[:50]), figure.axes[0].get_ylim()
    order = np.argsort(model.predict(X[:50]), kind="stable")
    drawn = np.array([line[:, 1] for line in figure.axes[0].collections[0].get_segments()])
    finite = np.isfinite(ends[order])
    np.testing.assert_allclose(drawn[finite], ends[order][finite])
    assert np.all(drawn[:, 0] < y[:50].min()) == (side != "lower") and np.all(drawn > low) and np.all(drawn < high)
    assert "inf" not in figure._suptitle.get_text() and "without an end" in figure._suptitle.get_text()


def test_what_is_sure_and_right_has_no_negative_entropy():
    X = np.arange(20.0)[:, None]
    assert str(estimators.KNeighborsClassifier(1).fit(X, X[:, 0] > 7)._facts(X, X[:, 0] > 7)["cross-entropy"]) == "0.0"


def test_few_samples_have_a_report_without_a_learning_curve(tmp_path, recwarn):
    """Folds, parts without a class, and fits that fail don't end the report of a model that is there."""
    X, y = load_diabetes(return_X_y=True)
    few = range(1, 8)
    models = [
        (estimators.CalibratedClassifierCV(), y > 140),
        (estimators.KMeans(3, random_state=0), y),
        (estimators.SplitConformalRegressor(None, 0.5, "normalized", random_state=0), y),
        (estimators.KNeighborsRegressor(20), y),
    ]
    for model, target in models:
        model.fit(X, target)
        for n in few:
            page = model.report(X[:n], target[:n], tmp_path / "page.html").read_text(encoding="utf-8")
            assert ("held out:" in page) != ("too few samples" in page), (model, n)
            assert ">nan<" not in page and "nan ±" not in page
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            model.plot_learning_curve(X, target[:1])
        with pytest.raises(ValueError, match="n_samples = 1 too few"):
            model.plot_learning_curve(X[:1], target[:1])
    assert not list(recwarn)


def test_a_part_without_a_class_leaves_a_gap_in_the_curve():
    """scikit-learn's scores of the same parts, where there are such."""
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:60], np.arange(60) % 20 == 0
    drawn = estimators.KNeighborsClassifier(2).fit(X, y).plot_learning_curve(X, y).axes[0].get_lines()[1].get_data()
    theirs = KNeighborsClassifier(2)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    sizes, _, scores = learning_curve(
        theirs, X, y, train_sizes=np.linspace(0.15, 1, 5), cv=folds, shuffle=True, random_state=0
    )
    both = np.isin(sizes, drawn[0])
    assert 1 < both.sum() < 5 and sizes[-1] in drawn[0]
    np.testing.assert_allclose(drawn[1], scores[both].mean(axis=1))


def test_the_learning_curve_of_clusters_is_of_one_sample():
    """Of a sum over samples the larger set would have the worse score."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    lines = estimators.KMeans(1).fit(X).plot_learning_curve(X).axes[0].get_lines()
    for line in lines[:2]:
        np.testing.assert_allclose(line.get_ydata(), -np.var(X, axis=0).sum(), rtol=0.2)


def test_actions_that_are_no_classes(tmp_path):
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    costs = [[0, 10], [1, 0], [0.5, 0.5]]
    model = estimators.CostSensitiveClassifier(None, costs, actions=["benign", "malignant", "ask"])
    model.fit(X[:300], y[:300])
    page = model.report(X[300:], y[300:], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "minus the mean cost" in page and "reliability" in page and "confusion" not in page
    assert model.score(X[300:], y[300:]) == -model.mean_cost(X[300:], y[300:])
    half = np.arange(len(X[300:])) % 2
    assert model.score(X[300:], y[300:], half) == pytest.approx(-model.mean_cost(X[301::2], y[301::2]))
    plain = estimators.CostSensitiveClassifier(None, costs[:2]).fit(X[:300], y[:300])
    assert plain.score(X[300:], y[300:]) == np.mean(plain.predict(X[300:]) == y[300:])
