"""The public names of `wonderland.generative`, each imported from where it is; read, and never imported."""

# ruff: noqa: F401

from wonderland.generative import views
from wonderland.generative.autoencoders import AutoEncoder, DenoisingAutoEncoder, LinearAutoEncoder, discarded_spectrum
from wonderland.generative.denoising import as_sigma
from wonderland.generative.em import MixtureFit, fit_mixture, kmeans_plus_plus, maximization, responsibilities
from wonderland.generative.exponential_example import (
    exponential_elbo,
    exponential_evidence,
    exponential_gap,
    exponential_optimum,
)
from wonderland.generative.flow_matching import flow_matching_loss, flow_sample, optimal_pairs
from wonderland.generative.gan import GAN, discriminator_loss, generator_loss, gradient_penalty
from wonderland.generative.gaussians import diagonal_gaussian_kl, gaussian_kl, gaussian_log_density
from wonderland.generative.gradient_estimators import (
    compare_elbo_gradients,
    difference_gradient,
    pathwise_gradient,
    score_gradient,
    stochastic_backpropagation,
)
from wonderland.generative.guidance import classifier_guided, conditioned, guided
from wonderland.generative.ideal import IdealDenoiser
from wonderland.generative.importance import Evidence, estimate_evidence, evidence
from wonderland.generative.likelihoods import BernoulliLikelihood, CholeskyLikelihood, GaussianLikelihood
from wonderland.generative.linear_gaussian import LinearGaussian, probabilistic_pca
from wonderland.generative.metrics.distances import energy_distance, mmd, sliced_wasserstein
from wonderland.generative.metrics.frechet import frechet_distance, gaussian_frechet
from wonderland.generative.metrics.memorization import Memorized, memorization
from wonderland.generative.mixtures import GaussianMixture, gaussian_flow
from wonderland.generative.networks.dit import DiT
from wonderland.generative.networks.time_mlp import TimeMLP
from wonderland.generative.networks.unet import UNet
from wonderland.generative.parametrisations import (
    as_denoiser,
    clipped,
    edm_denoiser,
    from_epsilon,
    from_frame,
    to_epsilon,
    to_frame,
)
from wonderland.generative.pixelcnn import MaskedConv2d, PixelCNN
from wonderland.generative.raster import PatchTransformer, RasterGPT
from wonderland.generative.refinement import agreeing_linear, agreeing_pixels, restore
from wonderland.generative.samplers.adaptive import AdaptiveHeun
from wonderland.generative.samplers.ddim import DDIM, DDPM
from wonderland.generative.samplers.dpm_solver import DPMSolver
from wonderland.generative.samplers.heun import Heun
from wonderland.generative.samplers.langevin import annealed_langevin, langevin, mala
from wonderland.generative.samplers.likelihood import log_likelihood
from wonderland.generative.samplers.linear_multistep import LMS, Accelerated
from wonderland.generative.samplers.noise import sample_noise
from wonderland.generative.samplers.sampling import invert, sample
from wonderland.generative.samplers.solver import DiffusionSolver
from wonderland.generative.samplers.unipc import UniPC
from wonderland.generative.schedules import (
    check_sigmas,
    cosine,
    ddpm_linear,
    flow,
    geometric,
    karras,
    log_linear,
    scaled_linear,
    sigmoid,
    to_alpha_bar,
    to_sigma,
)
from wonderland.generative.score_matching import loss_weight, null_condition, score_matching_loss
from wonderland.generative.training_loop import Averaging, training, with_key
from wonderland.generative.vae import VAE, ConditionalVAE, LatentGaussian, cubature
from wonderland.generative.vq import VQVAE, Quantized, VectorQuantizer
