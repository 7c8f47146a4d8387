"""Matrices from collections, which lie beside the repository; tests skip where they don't."""

import os
from pathlib import Path

import pytest
from scipy import sparse
from scipy.io import mmread

DIRECTORY = Path(os.environ.get("WONDERLAND_SHARED_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


def matrix(name: str) -> sparse.csr_array:
    path = DIRECTORY / f"{name}.mtx"
    if not path.exists():
        pytest.skip(f"{path.name} is not in WONDERLAND_SHARED_DATA or ../shared/data")
    return sparse.csr_array(mmread(path))
