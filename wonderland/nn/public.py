"""The public names of `wonderland.nn`, each imported from where it is; read, and never imported."""

# ruff: noqa: F401

from wonderland.nn import init
from wonderland.nn.ensemble import stack, unstack
from wonderland.nn.files import Loaded
from wonderland.nn.module import Buffer, Module, Parameter, evaluating
from wonderland.nn.penalties import Factored, group_penalty, l1_penalty, l2_penalty
from wonderland.nn.safetensors import SafetensorsError
from wonderland.nn.summary import summary
