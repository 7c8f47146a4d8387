"""The public names of `wonderland.nn`, each imported from where it is; read, and never imported."""

# ruff: noqa: F401

from wonderland.nn import init
from wonderland.nn.activation_layers import (
    CELU,
    ELU,
    GELU,
    GLU,
    SELU,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Softsign,
    Tanh,
)
from wonderland.nn.activations import (
    celu,
    elu,
    gelu,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    log_softmax,
    logsigmoid,
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
from wonderland.nn.approximation import (
    AffineRegion,
    affine_regions,
    interpolate,
    narrow_network,
    piecewise_linear,
    ridge_network,
    sigmoid_bins,
    tent_map,
)
from wonderland.nn.attention import MultiHeadAttention
from wonderland.nn.batch_norm import BatchNorm, BatchNorm1d, BatchNorm2d, BatchNorm3d
from wonderland.nn.binary import binary_cross_entropy, binary_cross_entropy_with_logits, sigmoid_focal_loss
from wonderland.nn.building import build
from wonderland.nn.cache import KVCache
from wonderland.nn.classification import cross_entropy, nll_loss
from wonderland.nn.containers import Parallel, Residual, Sequential
from wonderland.nn.contrastive import (
    cosine_embedding_loss,
    cosine_similarity,
    info_nce,
    nt_xent,
    triplet_margin_loss,
)
from wonderland.nn.convolutions import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from wonderland.nn.ctc import ctc_loss
from wonderland.nn.divergences import jensen_shannon, kl_divergence, total_variation
from wonderland.nn.dropconnect import DropConnect
from wonderland.nn.dropout import Dropout, Dropout1d, Dropout2d, Dropout3d, StochasticDepth
from wonderland.nn.embedding import Embedding
from wonderland.nn.ensemble import stack, unstack
from wonderland.nn.files import Loaded
from wonderland.nn.fold import fold
from wonderland.nn.gates import apl, bspline_basis, geglu, glu, kaf, maxout, swiglu
from wonderland.nn.kan import KAN
from wonderland.nn.linear import Bilinear, Linear
from wonderland.nn.local import LocallyConnected1d, LocallyConnected2d
from wonderland.nn.long_convolutions import ContinuousConv, LongConv
from wonderland.nn.lookups import gumbel_softmax, hardmax, lookup
from wonderland.nn.lora import LoRA, lora, merge_lora, unmerge_lora
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
from wonderland.nn.masks import Masked, length_mask, mask_after, masked_max, masked_mean, masked_sum
from wonderland.nn.memory import NeuralMemory
from wonderland.nn.module import Buffer, Module, Parameter, evaluating
from wonderland.nn.noise import Cutout, GaussianNoise, monte_carlo, part_of_batch
from wonderland.nn.non_local import NonLocal
from wonderland.nn.norms import (
    GroupNorm,
    InstanceNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    RMSNorm,
)
from wonderland.nn.penalties import Factored, group_penalty, l1_penalty, l2_penalty
from wonderland.nn.placing import PromotionWarning
from wonderland.nn.pools import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    GlobalAvgPool,
    GlobalMaxPool,
    GlobalSumPool,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    SumPool1d,
    SumPool2d,
    SumPool3d,
)
from wonderland.nn.positions import ALiBi, RelativeBias, sinusoidal
from wonderland.nn.ring import ring_attention
from wonderland.nn.rotary import Rotary
from wonderland.nn.safetensors import SafetensorsError
from wonderland.nn.scores import brier_score, focal_loss, zero_one_loss
from wonderland.nn.shapes import Flatten, Identity, Unflatten, Upsample
from wonderland.nn.single_head import Attention
from wonderland.nn.statistics import synchronize, update_statistics
from wonderland.nn.summary import summary
from wonderland.nn.surgery import delete_paths
from wonderland.nn.tokens import PrefixTokens
from wonderland.nn.trained import APL, KAF, Maxout, PReLU, SwiGLU, Swish
from wonderland.nn.transformer import FeedForward, TransformerBlock
from wonderland.nn.watching import attention_maps
