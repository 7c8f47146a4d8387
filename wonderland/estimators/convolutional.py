"""A convolutional network as an estimator: `ConvClassifier`."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, isqrt
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, check_is_fitted

from wonderland.core.tracer import Tracer
from wonderland.estimators.base import FLOATS, one_of, whole_number
from wonderland.estimators.mlp import NetworkClassifier, share_dropped
from wonderland.estimators.networks import ACTIVATIONS, layer_sizes
from wonderland.nn.containers import Sequential
from wonderland.nn.convolutions import Conv2d
from wonderland.nn.dropout import Dropout
from wonderland.nn.linear import Linear
from wonderland.nn.module import Module
from wonderland.nn.norms import GroupNorm
from wonderland.nn.pools import MaxPool2d
from wonderland.nn.shapes import Flatten, Unflatten
from wonderland.random.keys import split
from wonderland.train.evaluation import predict

TOGETHER = 8  # channels or more that are normalised together
FEW = 512  # images up to which nothing is compiled for a prediction
AT_ONCE = 256


class ConvClassifier(NetworkClassifier):
    """A convolutional network that tells images apart.

        model = ConvClassifier(channels=(32, 64), random_state=0).fit(images, labels)    # (n, 28, 28), say
        model.predict(images)

    For each number in `channels`: a convolution (kernel `kernel_size`, zeros around the image), group normalisation
    (Wu and He 2018), the activation, and maxima of 2 x 2 pixels where there are as many. Then `dropout`, dense layers
    of `hidden_layer_sizes`, if any, and a linear one. Normalised channels don't mind the scale of pixels: 0 to 255 is
    as good as 0 to 1.

    Images are (n, height, width), (n, channels, height, width), or rows (n, features), as scikit-learn's tools have
    them: each an image of `image_shape`, (height, width) or (channels, height, width), in this order. Without
    `image_shape`, a row is taken as the squarest grey image of so many pixels: 64 features are 8 x 8, 10 are 2 x 5,
    a prime number is one line. `input_gradient`, `as_function` have rows; `image_shape_` says how to reshape them.

    The other parameters, and what is fitted, are those of `MLPClassifier`. The defaults are for images: batches of 64,
    a rate that falls to 0 along a cosine, and so `max_iter` passes. Images of whole numbers (not rows) are computed
    with as float32, others in their dtype, float64 at about half of the speed.
    """

    image_shape_: tuple[int, ...]

    def __init__(
        self,
        channels: int | Sequence[int] = (32, 64),
        image_shape: Sequence[int] | None = None,
        *,
        kernel_size: int = 3,
        hidden_layer_sizes: int | Sequence[int] = (),
        activation: str = "relu",
        solver: str = "adam",
        loss: str = "cross-entropy",
        gamma: float = 2.0,
        label_smoothing: float = 0.0,
        dropout: float = 0.0,
        alpha: float = 1.0,
        batch_size: int | str = 64,
        learning_rate: str = "cosine",
        learning_rate_init: float = 3e-3,
        momentum: float = 0.9,
        max_iter: int = 20,
        random_state: Any = None,
        tol: float = 1e-4,
        verbose: bool = False,
        warm_start: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
    ):
        self.channels = channels
        self.image_shape = image_shape
        self.kernel_size = kernel_size
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.solver = solver
        self.loss = loss
        self.gamma = gamma
        self.label_smoothing = label_smoothing
        self.dropout = dropout
        self.alpha = alpha
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.learning_rate_init = learning_rate_init
        self.momentum = momentum
        self.max_iter = max_iter
        self.random_state = random_state
        self.tol = tol
        self.verbose = verbose
        self.warm_start = warm_start
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change

    def _architecture(self) -> tuple[Any, ...]:
        channels = layer_sizes(self.channels, "channels")
        if not channels:
            raise ValueError("channels has no numbers: a convolutional network has one for each of its convolutions")
        kernel = whole_number(self.kernel_size, "kernel_size")
        hidden = layer_sizes(self.hidden_layer_sizes, "hidden_layer_sizes")
        activation = one_of(self.activation, "activation", tuple(ACTIVATIONS))
        return channels, kernel, hidden, activation, share_dropped(self.dropout)

    def _built(self, shape: tuple[int, ...], outputs: int, dtype: Any, key: Any) -> Module:
        channels, kernel, hidden, activation, dropout = self._architecture()
        keys = iter(split(key, len(channels) + len(hidden) + 2))
        function = [ACTIVATIONS[activation]] * (ACTIVATIONS[activation] is not None)
        self.image_shape_ = self._shape_of(shape[0])
        before, *extents = self.image_shape_
        layers: list[Any] = [Unflatten(-1, self.image_shape_)]
        for count in channels:
            layers.append(Conv2d(before, count, kernel, padding="same", key=next(keys), dtype=dtype))
            layers += [GroupNorm(gcd(count, max(count // TOGETHER, 1)), count, affine=False, dtype=dtype), *function]
            window = tuple(min(extent, 2) for extent in extents)
            if max(window) > 1:
                layers.append(MaxPool2d(window))
            before, extents = count, [extent // of for extent, of in zip(extents, window, strict=True)]
        layers.append(Flatten())
        if dropout:
            layers.append(Dropout(dropout, key=next(keys)))
        before *= int(np.prod(extents))
        for count in hidden:
            layers += [Linear(before, count, key=next(keys), dtype=dtype), *function]
            before = count
        return Sequential(*layers, Linear(before, outputs, key=next(keys), dtype=dtype))

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Train on images X (n, ...), labels y (n,) and weights (n,); with `warm_start` from where it was."""
        return super().fit(self._rows(X, not (self.warm_start and hasattr(self, "network_"))), y, sample_weight)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Any:
        """One pass over some images, from where it was; the first time with all the `classes` that will come."""
        return super().partial_fit(self._rows(X, not hasattr(self, "network_")), y, classes, sample_weight)

    def _inputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return super()._inputs(self._rows(X, False))

    def _rows(self, X: Any, reset: bool) -> Any:
        """Images as rows (n, features), which are checked later; with `reset`, other images may follow."""
        if isinstance(X, (list, tuple)) and np.ndim(X) > 2:
            X = np.asarray(X)
        if getattr(X, "ndim", 2) <= 2:
            if reset:
                self._seen = None
            return X
        kinds: Any = FLOATS[::-1]  # others become float32
        X = check_array(X, allow_nd=True, dtype=kinds, input_name="X")
        if X.ndim > 4:
            raise ValueError(f"images are (n, height, width) or (n, channels, height, width), got X of shape {X.shape}")
        shape = X.shape[1:] if X.ndim == 4 else (1, *X.shape[1:])
        if reset:
            self._seen = shape
        elif shape != self.image_shape_:
            raise ValueError(f"X has images of shape {shape}, and the network is for {self.image_shape_}")
        return X.reshape(len(X), -1)

    def _shape_of(self, features: int) -> tuple[int, ...]:
        """(channels, height, width) of the images that the rows of so many features are."""
        given = None if self.image_shape is None else layer_sizes(self.image_shape, "image_shape")
        if given is not None:
            if len(given) not in (2, 3) or int(np.prod(given)) != features:
                raise ValueError(
                    f"image_shape is (height, width) or (channels, height, width), of {features} pixels as X has them, "
                    f"got {self.image_shape!r}"
                )
            given = given if len(given) == 3 else (1, *given)
            if self._seen not in (None, given):
                raise ValueError(f"image_shape={self.image_shape!r}, and X has images of shape {self._seen}")
            return given
        height = next(n for n in range(isqrt(features), 0, -1) if features % n == 0)
        return self._seen or (1, height, features // height)

    def _apply(self, X: Any) -> Any:
        scores = self._evaluated(X) if isinstance(X, Tracer) or len(X) <= FEW else self._compiled(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def _compiled(self, X: np.ndarray) -> np.ndarray:
        """The network's outputs for many images, by one program for all numbers of them."""
        filled = np.zeros((-(-len(X) // AT_ONCE) * AT_ONCE, X.shape[1]), self.network_.parameters()[0].dtype)
        filled[: len(X)] = X
        return predict(self.network_, filled, batch_size=AT_ONCE)[: len(X)]
