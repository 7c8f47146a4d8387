"""The public names of `wonderland.data`, each imported from where it is; read, and never imported."""

# ruff: noqa: F401

from wonderland.data.composition import compose
