"""The public names of `wonderland.generative`, each imported from where it is; read, and never imported."""

# ruff: noqa: F401

from wonderland.generative.autoencoders import AutoEncoder, DenoisingAutoEncoder, LinearAutoEncoder, discarded_spectrum
from wonderland.generative.denoising import as_sigma
from wonderland.generative.gaussians import diagonal_gaussian_kl, gaussian_kl
from wonderland.generative.likelihoods import BernoulliLikelihood, CholeskyLikelihood, GaussianLikelihood
from wonderland.generative.vae import VAE, ConditionalVAE, LatentGaussian, cubature
