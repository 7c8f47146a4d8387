"""Data sets from files that are there: MNIST as IDX files in a folder, and the text of Python's own documentation."""

from __future__ import annotations

import ast
import gzip
import importlib.util
import math
import os
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.data.arrays import Arrays
from wonderland.data.faults import DataError
from wonderland.data.sets import DIGITS

# The third byte of an IDX file -> the type of its numbers, of which the most significant byte comes first.
IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: str | os.PathLike[str]) -> np.ndarray:
    """The array in an IDX file (that of MNIST), also compressed (.gz)."""
    path = Path(path)
    with open(path, "rb") as file:
        content = file.read()
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path}: the compressed file is cut off or damaged ({error}); get it again") from None
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in IDX_TYPES:
        raise DataError(
            f"{path} isn't an IDX file: it begins with {content[:4].hex(' ') or 'nothing'}, and should with "
            "00 00, the code of a type (08 for bytes) and the number of axes"
        )
    dtype, axes = np.dtype(IDX_TYPES[content[2]]), content[3]
    start = 4 + 4 * axes
    shape = tuple(np.frombuffer(content[4:start][: 4 * (len(content[4:start]) // 4)], ">u4").tolist())
    expected = math.prod(shape) * dtype.itemsize
    if len(shape) != axes or len(content) - start != expected:
        raise DataError(
            f"{path} is cut off or damaged: its header says {'x'.join(map(str, shape)) or '?'} numbers, {expected} "
            f"bytes, and {max(len(content) - start, 0)} bytes follow; get it again"
        )
    return np.frombuffer(content, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def mnist(folder: str | os.PathLike[str]) -> tuple[Arrays, Arrays]:
    """MNIST (or Fashion-MNIST, or another set of its names) from a folder: training and test part.

    Images (1, 28, 28) in float32 with values from 0 to 1, and class numbers. The files are train-images-idx3-ubyte,
    train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, with or without .gz.

    train, test = data.mnist("data/mnist")
    """
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"mnist: there is no folder {folder}")
    return _part(Path(folder), "train"), _part(Path(folder), "t10k")


def _part(folder: Path, part: str) -> Arrays:
    (images_path, images), (labels_path, labels) = (
        _read(folder, f"{part}-images", 3),
        _read(folder, f"{part}-labels", 1),
    )
    if len(images) != len(labels):
        raise DataError(f"{images_path} has {len(images)} images, and {labels_path} has {len(labels)} labels")
    x = images[:, None].astype(np.float32)
    x /= 255
    return Arrays(x, labels.astype(np.int64), classes=DIGITS if labels.max(initial=0) < 10 else None)


def _read(folder: Path, name: str, axes: int) -> tuple[Path, np.ndarray]:
    names = [f"{name}{dash}idx{axes}-ubyte{end}" for dash in "-." for end in ("", ".gz")]
    found = [folder / name for name in names if (folder / name).is_file()]
    if not found:
        raise FileNotFoundError(f"mnist: there is no {names[0]} (nor {', '.join(names[1:])}) in {folder}")
    array = read_idx(found[0])
    if array.ndim != axes or array.dtype != np.uint8:
        what = "images (three axes of bytes)" if axes == 3 else "labels (one axis of bytes)"
        raise DataError(f"{found[0]} should have {what}, and has {array.dtype} of shape {array.shape}")
    return found[0], array


def python_docs(modules: Sequence[str] = ()) -> str:
    """Half a megabyte of English that is wherever Python is: the topics of its `help()`, by name.

    `modules` adds the docstrings of so many modules of the standard library, as in ["json", "random", "argparse"], in
    the order of their sources. The text is the same for the same version of Python.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise ImportError(
            "python_docs: this Python has no pydoc_data, the texts of help(); some systems have it in a package "
            "of its own"
        ) from None
    modules = [modules] if isinstance(modules, str) else modules
    parts = [topics[name].strip() for name in sorted(topics)]
    return "\n\n\n".join([*parts, *(text for module in modules for text in _docstrings(module))]) + "\n"


def _docstrings(module: str) -> list[str]:
    """The docstrings of a module's source, which isn't run."""
    return _docstrings_of(_source(module))


def package_docstrings(package: str) -> list[str]:
    """The docstrings of all files of a package, none of which is run."""
    return [text for file in sorted(_source(package).parent.rglob("*.py")) for text in _docstrings_of(file)]


def _source(module: str) -> Path:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise ArgumentError(f"python_docs: {module!r} isn't a module with a source in Python")
    return Path(spec.origin)


def _docstrings_of(path: Path) -> list[str]:
    """The docstrings of a file, in its order."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
    return [text.strip() for text in found if text]
