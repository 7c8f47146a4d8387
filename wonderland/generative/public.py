"""The public names of `wonderland.generative`, each imported from where it is; read, and never imported."""

# ruff: noqa: F401

from wonderland.generative.denoising import as_sigma
