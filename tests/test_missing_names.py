"""A NumPy or SciPy without some functions: the tables skip them, and everything else works."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import wonderland.numpy.linear_algebra
import wonderland.scipy.linear_algebra
import wonderland.scipy.special_functions  # noqa: F401  (registers them)
from wonderland.core.primitive import registry
from wonderland.core.tracer import FUNCTIONS, UFUNCS
from wonderland.numpy.dispatch import spaces
from wonderland.numpy.missing import complete

ROOT = pathlib.Path(__file__).resolve().parent.parent

# What the engine itself is made of: without these there would be nothing to differentiate.
UFUNCS_OF_PRIMITIVES = {p.evaluate for p in registry.values() if isinstance(p.evaluate, np.ufunc)}
ENGINE = {
    "numpy": {name for name, f in vars(np).items() if isinstance(f, np.ufunc) and f in UFUNCS_OF_PRIMITIVES}
    | {"zeros", "empty", "eye", "shape", "ndim", "logical_and", "iscomplexobj", "isrealobj"},
    "numpy.linalg": {"eigh", "eig", "qr", "svd", "slogdet"},
}

CHILD = """
import importlib, json, sys
missing = json.loads(sys.stdin.read())
modules = {name: importlib.import_module(name) for name in missing}  # whole, as SciPy needs NumPy's
for name, functions in missing.items():
    gone = [getattr(modules[name], function) for function in functions]
    for alias in [key for key, value in vars(modules[name]).items() if any(value is f for f in gone)]:
        delattr(modules[name], alias)

import wonderland as wl
import wonderland.numpy as wnp, wonderland.numpy.linalg, wonderland.numpy.fft
import wonderland.scipy.linalg, wonderland.scipy.special
from wonderland.core.tracer import FUNCTIONS, UFUNCS
from wonderland.numpy.dispatch import spaces
from wonderland.numpy.missing import Missing

np = modules["numpy"]
left = [key.__name__ for key in (*FUNCTIONS, *UFUNCS) if isinstance(key, Missing)]
assert not left, left
for name, functions in missing.items():
    assert not spaces[name].keys() & functions, spaces[name].keys() & functions
assert not hasattr(wnp, "sort_complex")
"""
USE = """
print(wl.grad(lambda x: np.sum(np.sort(x)[1:] ** 2))(np.array([3.0, 1.0, 2.0])).tolist())
"""


def run(missing, code=""):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", CHILD + code]
    done = subprocess.run(command, input=json.dumps(missing), env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_import_outlives_any_function_of_the_tables():
    tables = FUNCTIONS.keys() | UFUNCS.keys()
    theirs = lambda module, name: getattr(sys.modules[module], name, None) in tables
    missing = {
        module: [name for name in names if theirs(module, name) and name not in ENGINE.get(module, ())]
        for module, names in spaces.items()
    }
    assert sum(map(len, missing.values())) > 250 and "sort_complex" in missing["numpy"]
    run(missing)


def test_what_is_left_works():
    missing = {"numpy": ["sort_complex", "fix", "vecdot"], "numpy.linalg": ["cond"], "numpy.fft": ["rfftn"]}
    assert run(missing | {"scipy.special": ["huber"], "scipy.linalg": ["toeplitz"]}, USE).strip() == "[6.0, 0.0, 4.0]"


def test_a_missing_function_says_so_when_it_is_called():
    whole = complete(np, ("linalg",))
    assert whole.sin is np.sin and whole.linalg.norm is np.linalg.norm
    with pytest.raises(AttributeError, match="the installed numpy has no no_such"):
        whole.no_such(1.0)
    with pytest.raises(AttributeError, match=r"the installed numpy\.linalg has no none"):
        whole.linalg.none(1.0)


BLOCK = """
from wonderland.ops.elementwise import elementwise, ufunc

elementwise("a_new_one", np.sin, (lambda out, x: np.cos(x),), ufunc="np.no_such", also="scipy.special.no_such")
assert not any(isinstance(key, Missing) for key in (*FUNCTIONS, *UFUNCS)) and "no_such" not in spaces["numpy"]
dawsn = modules["scipy.special"].dawsn
first = ufunc(dawsn, (lambda out, x: 1.0,))
second = ufunc(dawsn, (lambda out, x: 2.0,))  # as in a notebook's cell that is run again
print(wl.grad(dawsn)(1.0), wonderland.scipy.special.dawsn(0.0))
"""


def test_a_block_may_name_a_function_that_is_missing_and_one_made_later_is_registered():
    assert run({"numpy": ["sort_complex"], "scipy.special": ["huber"]}, BLOCK).split() == ["2.0", "0.0"]
