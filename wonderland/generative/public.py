"""The public names of `wonderland.generative`, each imported from where it is; read, and never imported."""

# ruff: noqa: F401

from wonderland.generative import views
from wonderland.generative.denoising import as_sigma
from wonderland.generative.guidance import classifier_guided, conditioned, guided
from wonderland.generative.metrics.distances import energy_distance, mmd, sliced_wasserstein
from wonderland.generative.metrics.frechet import frechet_distance, gaussian_frechet
from wonderland.generative.metrics.memorization import Memorized, memorization
from wonderland.generative.networks.dit import DiT
from wonderland.generative.networks.time_mlp import TimeMLP
from wonderland.generative.networks.unet import UNet
from wonderland.generative.refinement import agreeing_linear, agreeing_pixels, restore
from wonderland.generative.score_matching import loss_weight, null_condition, score_matching_loss
from wonderland.generative.training_loop import Averaging, training, with_key
