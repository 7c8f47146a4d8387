"""Matrices from collections, and a text, which lie beside the repository; tests skip where they don't."""

import os
from pathlib import Path

import pytest
from scipy import sparse
from scipy.io import mmread

DIRECTORY = Path(os.environ.get("WONDERLAND_SHARED_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


def file(name: str) -> Path:
    path = DIRECTORY / name
    if not path.exists():
        pytest.skip(f"{name} is not in WONDERLAND_SHARED_DATA or ../shared/data")
    return path


def matrix(name: str) -> sparse.csr_array:
    return sparse.csr_array(mmread(file(f"{name}.mtx")))
