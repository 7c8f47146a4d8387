"""The public names of `wonderland.estimators`, each imported from where it is; read, and never imported."""

# ruff: noqa: F401, I001  (sections, not the alphabet)

# what all have
from wonderland.estimators.base import Classifier, Estimator, Regressor

# least squares and its relatives
from wonderland.estimators.conditioning import Conditioning
from wonderland.estimators.huber import HuberRegressor
from wonderland.estimators.lasso import ElasticNet, Lasso, lasso_path
from wonderland.estimators.linear import LinearModel
from wonderland.estimators.linear_regression import LinearRegression
from wonderland.estimators.quantile import QuantileRegressor
from wonderland.estimators.ridge import Ridge

# logistic regression, generalised linear models
from wonderland.estimators.glm import GLM
from wonderland.estimators.glm_named import GammaRegressor, PoissonRegressor, TweedieRegressor
from wonderland.estimators.logistic import LogisticRegression
from wonderland.estimators.probit import ProbitClassifier

# networks
from wonderland.estimators.convolutional import ConvClassifier
from wonderland.estimators.heteroscedastic import HeteroscedasticRegressor
from wonderland.estimators.mlp import MLPClassifier, MLPRegressor

# Bayesian regression
from wonderland.estimators.bayesian import BayesianLinearRegression
from wonderland.estimators.bayesian_logistic import BayesianLogisticRegression
from wonderland.estimators.chain_diagnostics import effective_sample_size, r_hat
from wonderland.estimators.hamiltonian import hmc
from wonderland.estimators.map_regression import MAPRegressor
from wonderland.estimators.model_average import BayesianModelAverage
from wonderland.estimators.posterior import Posterior, PosteriorSummary, laplace_approximation
from wonderland.estimators.priors import GaussianPrior, LaplacePrior, StudentPrior
from wonderland.estimators.variational import variational_inference

# calibration, decisions
from wonderland.estimators.calibrated import CalibratedClassifierCV
from wonderland.estimators.decisions import CostSensitiveClassifier, decide, decision_threshold, expected_cost
from wonderland.estimators.isotonic import IsotonicRegression, isotonic_regression
from wonderland.estimators.scaling import platt_scaling, temperature_scaling, vector_scaling

# conformal prediction
from wonderland.estimators.conformal import conformal_quantile
from wonderland.estimators.conformal_classification import CrossConformalClassifier, SplitConformalClassifier, list_sets
from wonderland.estimators.conformal_cross import CrossConformalRegressor, JackknifeAfterBootstrapRegressor
from wonderland.estimators.conformal_quantiles import ConformalizedQuantileRegressor
from wonderland.estimators.conformal_regression import SplitConformalRegressor
from wonderland.estimators.coverage import (
    classification_coverage_score,
    classification_mean_width_score,
    regression_coverage_score,
    regression_mean_width_score,
)
from wonderland.estimators.set_scores import aps_scores, lac_scores, raps_scores, top_k_scores

# clusters and neighbours
from wonderland.estimators.kmeans import KMeans
from wonderland.estimators.neighbour_votes import KNeighborsClassifier, KNeighborsRegressor
from wonderland.estimators.neighbours import NearestNeighbors
from wonderland.estimators.mixture_model import GaussianMixtureModel
