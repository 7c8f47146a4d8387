"""`wl.nn`: what networks are made of. Here: activations and losses, as functions of arrays."""

from wonderland.core.tracebacks import publish as _publish
from wonderland.nn.activations import (
    celu,
    elu,
    gelu,
    hard_sigmoid,
    hard_swish,
    hard_tanh,
    leaky_relu,
    log_sigmoid,
    log_softmax,
    mish,
    prelu,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    softmax,
    softplus,
    softsign,
    swish,
    tanh,
)
from wonderland.nn.binary import binary_cross_entropy, binary_cross_entropy_with_logits, sigmoid_focal_loss
from wonderland.nn.classification import cross_entropy, nll_loss
from wonderland.nn.contrastive import cosine_embedding_loss, cosine_similarity, info_nce, triplet_margin_loss
from wonderland.nn.ctc import ctc_loss
from wonderland.nn.divergences import jensen_shannon, kl_divergence, total_variation
from wonderland.nn.gates import apl, bspline_basis, geglu, glu, kaf, maxout, swiglu
from wonderland.nn.losses import (
    gaussian_nll_loss,
    hinge_loss,
    huber_loss,
    l1_loss,
    lp_loss,
    mse_loss,
    poisson_nll_loss,
    smooth_l1_loss,
    squared_hinge_loss,
)
from wonderland.nn.scores import brier_score, focal_loss, zero_one_loss

__all__ = [
    "apl", "binary_cross_entropy", "binary_cross_entropy_with_logits", "brier_score", "bspline_basis", "celu",
    "cosine_embedding_loss", "cosine_similarity", "cross_entropy", "ctc_loss", "elu", "focal_loss",
    "gaussian_nll_loss", "geglu", "gelu", "glu", "hard_sigmoid", "hard_swish", "hard_tanh", "hinge_loss", "huber_loss",
    "info_nce", "jensen_shannon", "kaf", "kl_divergence", "l1_loss", "leaky_relu", "log_sigmoid", "log_softmax",
    "lp_loss", "maxout", "mish", "mse_loss", "nll_loss", "poisson_nll_loss", "prelu", "relu", "relu6", "selu",
    "sigmoid", "sigmoid_focal_loss", "silu", "smooth_l1_loss", "softmax", "softplus", "softsign",
    "squared_hinge_loss", "swiglu", "swish", "tanh", "total_variation", "triplet_margin_loss", "zero_one_loss",
]  # fmt: skip

_publish(__name__, globals(), __all__)
