"""The base classes of scikit-learn's contract, with types, which its own don't have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    class BaseEstimator:
        """Parameters by name, `repr`, tags."""

        def get_params(self, deep: bool = True) -> dict[str, Any]: ...
        def set_params(self, **params: Any) -> Any: ...
        def __sklearn_tags__(self) -> Any: ...

    class RegressorMixin:
        """R² as the score."""

        def score(self, X: Any, y: Any, sample_weight: Any = None) -> float: ...
        def __sklearn_tags__(self) -> Any: ...

    class ClassifierMixin:
        """Accuracy as the score."""

        def score(self, X: Any, y: Any, sample_weight: Any = None) -> float: ...
        def __sklearn_tags__(self) -> Any: ...

    class ClusterMixin:
        """Labels of what it was fitted to."""

        def fit_predict(self, X: Any, y: Any = None, **kwargs: Any) -> np.ndarray: ...
        def __sklearn_tags__(self) -> Any: ...

    class TransformerMixin:
        """Fitting and transforming at once; frames as results."""

        def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any: ...
        def set_output(self, *, transform: Any = None) -> Any: ...
        def __sklearn_tags__(self) -> Any: ...

    class ClassNamePrefixFeaturesOutMixin:
        """Names of what `transform` gives."""

        def get_feature_names_out(self, input_features: Any = None) -> np.ndarray: ...

    class DensityMixin:
        """A density."""

        def __sklearn_tags__(self) -> Any: ...

else:
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        ClassNamePrefixFeaturesOutMixin,
        ClusterMixin,
        DensityMixin,
        RegressorMixin,
        TransformerMixin,
    )

__all__ = [
    "BaseEstimator", "ClassNamePrefixFeaturesOutMixin", "ClassifierMixin", "ClusterMixin", "DensityMixin",
    "RegressorMixin", "TransformerMixin",
]  # fmt: skip
