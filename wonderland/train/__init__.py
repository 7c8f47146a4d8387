"""`wl.train`: what training is made of. Here: `metrics`."""

from wonderland.train import metrics

__all__ = ["metrics"]
