"""The public names of `wonderland.generative`, each imported from where it is; read, and never imported."""

# ruff: noqa: F401

from wonderland.generative.denoising import as_sigma
from wonderland.generative.ideal import IdealDenoiser
from wonderland.generative.mixtures import GaussianMixture, gaussian_flow
from wonderland.generative.parametrisations import (
    as_denoiser,
    edm_denoiser,
    from_epsilon,
    from_frame,
    to_epsilon,
    to_frame,
)
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
