"""The public names of `wonderland.generative`, each imported from where it is; read, and never imported."""

# ruff: noqa: F401

from wonderland.generative.denoising import as_sigma
from wonderland.generative.flow_matching import flow_matching_loss, flow_sample, optimal_pairs
from wonderland.generative.gan import GAN, discriminator_loss, generator_loss, gradient_penalty
from wonderland.generative.pixelcnn import MaskedConv2d, PixelCNN
from wonderland.generative.raster import PatchTransformer, RasterGPT
