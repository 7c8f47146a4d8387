"""Every estimator keeps scikit-learn's contract: its own checks, in pipelines and searches, with frames and names."""

import inspect
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import is_classifier, is_regressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from wonderland import estimators

# Settings that make checks quick where defaults are made for real data.
QUICK: dict = {
    "BayesianModelAverage": {"max_models": 20, "n_steps": 100},
    "GaussianMixtureModel": {"n_components": 2},
    "CalibratedClassifierCV": {"cv": 3},
    "CrossConformalClassifier": {"cv": 3},
    "JackknifeAfterBootstrapRegressor": {"n_resamplings": 20, "random_state": 0},
    "ConvClassifier": {"channels": (8,)},
    "MLPClassifier": {"hidden_layer_sizes": (16,), "max_iter": 50, "learning_rate_init": 0.02},
    "MLPRegressor": {"hidden_layer_sizes": (16,), "max_iter": 50, "learning_rate_init": 0.02},
}
BASES = {"Classifier", "Estimator", "LinearModel", "Regressor"}
NAMED = {name: getattr(estimators, name) for name in estimators.__all__ if name not in BASES}
CLASSES = {name: c for name, c in NAMED.items() if inspect.isclass(c) and issubclass(c, estimators.Estimator)}
ALL = [CLASSES[name](**QUICK.get(name, {})) for name in sorted(CLASSES)]


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(ALL)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def data_for(estimator):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 3)), columns=["height", "weight", "age"])
    score = X["height"] - 2 * X["age"]
    if not get_tags(estimator).input_tags.two_d_array:
        X = X[["age"]]
    if is_classifier(estimator):
        return X, np.where(score > 0, "yes", "no")
    return X, np.exp(score / 4) if is_regressor(estimator) else None


@pytest.mark.parametrize("estimator", ALL, ids=lambda e: type(e).__name__)
def test_frames_pipelines_and_searches(estimator):
    X, y = data_for(estimator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        pipeline = make_pipeline(StandardScaler().set_output(transform="pandas"), estimator)
        scoring = None if hasattr(estimator, "score") else lambda *_: 0.0
        search = GridSearchCV(pipeline, {}, cv=2, scoring=scoring, error_score="raise")
        search.fit(X, y)
    fitted = search.best_estimator_[-1]
    assert [*fitted.feature_names_in_] == [*X.columns] and fitted.n_features_in_ == X.shape[1]
    if hasattr(fitted, "predict"):
        assert len(search.predict(X)) == len(X)
    assert repr(fitted).startswith(type(fitted).__name__ + "(")
