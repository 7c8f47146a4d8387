"""`wl.train.metrics`: how good predictions are. Predictions come first and targets second, as in the losses.

Functions take a whole data set; the classes of the same names take it batch by batch, and come to the same value:

    accuracy = metrics.Accuracy()
    for x, y in batches:
        accuracy.update(model(x), y)
    accuracy.value

`accuracy` and `top_k_accuracy` also work inside of compiled functions; all others need values.
"""

from wonderland.core.tracebacks import publish as _publish
from wonderland.train.metrics.brier import BrierDecomposition, brier_decomposition
from wonderland.train.metrics.calibration import (
    Reliability,
    calibration_error,
    classwise_calibration_error,
    plot_reliability,
    reliability,
)
from wonderland.train.metrics.classes import accuracy, confusion_matrix, f1, precision, recall, top_k_accuracy
from wonderland.train.metrics.clustering import adjusted_rand_index, clustering_accuracy, normalized_mutual_info
from wonderland.train.metrics.curves import average_precision, precision_recall_curve, roc_auc, roc_curve
from wonderland.train.metrics.regression import r2_score
from wonderland.train.metrics.retrieval import mean_average_precision, precision_at_k
from wonderland.train.metrics.streaming import (
    F1,
    R2,
    Accuracy,
    AveragePrecision,
    CalibrationError,
    ConfusionMatrix,
    Mean,
    Precision,
    Recall,
    RocAuc,
    TopKAccuracy,
)

__all__ = [
    "Accuracy", "AveragePrecision", "BrierDecomposition", "CalibrationError", "ConfusionMatrix", "F1", "Mean",
    "Precision", "R2", "Recall", "Reliability", "RocAuc", "TopKAccuracy", "accuracy", "adjusted_rand_index",
    "average_precision", "brier_decomposition", "calibration_error", "classwise_calibration_error",
    "clustering_accuracy", "confusion_matrix", "f1", "mean_average_precision", "normalized_mutual_info",
    "plot_reliability", "precision", "precision_at_k", "precision_recall_curve", "r2_score", "recall", "reliability",
    "roc_auc", "roc_curve", "top_k_accuracy",
]  # fmt: skip

_publish(__name__, globals(), __all__)
