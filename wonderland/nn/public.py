"""The public names of `wonderland.nn`, each imported from where it is; read, and never imported."""

# ruff: noqa: F401

from wonderland.nn.ensemble import stack, unstack
from wonderland.nn.module import Buffer, Module, Parameter, evaluating
from wonderland.nn.summary import summary
