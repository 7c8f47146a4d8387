"""The safetensors format: arrays by name and a dict of strings come in, a file goes out, and back.

A file is 8 bytes with the length of a header, the header (JSON: for each name a dtype, a shape and where its bytes are;
`__metadata__` is a dict of strings), and the bytes, little-endian, in C order, without gaps. Nothing in it is ever
executed. What is read is checked before anything is believed: a header that is too long, bytes that are missing, left
over or claimed twice, names twice, unknown dtypes.

Dtypes: bool, integers, float16/32/64, complex64 (`C64`). complex128, which the format lacks, is written as float64 with
a last axis of 2, and named in the metadata. bfloat16 is read as float32, which holds all of its numbers.
"""

from __future__ import annotations

import errno
import json
import math
import mmap
import os
import stat
import struct
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

import numpy as np

DTYPES = {
    "BOOL": np.dtype(bool),
    **{f"{kind}{8 * n}": np.dtype(f"<{kind.lower()}{n}") for kind in "IU" for n in (1, 2, 4, 8)},
    **{f"F{8 * n}": np.dtype(f"<f{n}") for n in (2, 4, 8)},
    "C64": np.dtype("<c8"),
}
CODES = {dtype: code for code, dtype in DTYPES.items()}
BFLOAT = "BF16"
METADATA, COMPLEX = "__metadata__", "wonderland.complex128"
MOST = 100_000_000  # bytes of a header, the format's own limit


class SafetensorsError(ValueError):
    """A file that isn't what it should be, or an array that can't be written."""


# Writing -------------------------------------------------------------------------------------------------------------


def write(path: str | os.PathLike[str], arrays: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """Write arrays to a file, all or nothing: to a new file, flushed to the disk, which then takes the place."""
    replace(path, pieces(arrays, metadata))


def pieces(arrays: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> list[Any]:
    """The bytes of a file: its header, and those of each array in the order of the file."""
    metadata = dict(metadata or {})
    pairs = [name for name, array in arrays.items() if np.asarray(array).dtype == np.complex128]
    if pairs:
        metadata[COMPLEX] = json.dumps(sorted(pairs))
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise SafetensorsError(f"metadata are strings by strings, not {key!r}: {value!r}")
    entries = [(name, *_encoded(name, np.asarray(array))) for name, array in arrays.items()]
    entries.sort(key=lambda entry: (-entry[2].dtype.itemsize, entry[0]))  # every array is aligned to its items
    header: dict[str, Any] = {METADATA: metadata} if metadata else {}
    place = 0
    for name, code, array in entries:
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [place, place + array.nbytes]}
        place += array.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    if len(text) > MOST:
        raise SafetensorsError(f"the header has {len(text)} bytes, and may have {MOST}: too many arrays for one file")
    return [struct.pack("<Q", len(text)) + text, *(array for _, _, array in entries)]


def replace(path: str | os.PathLike[str], parts: Iterable[Any]) -> None:
    """Write bytes and arrays to a new file, which takes the place of the one at `path` when all is on the disk."""
    path = os.path.realpath(path)  # what a link points to is replaced, and the link stays
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "there is no directory to write into; make it: os.makedirs", folder)
    temporary = f"{path}.{os.getpid()}-{os.urandom(4).hex()}.tmp"
    try:
        with open(temporary, "xb") as file:
            _keep_mode(path, temporary)
            for part in parts:
                _write_part(file, part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    _sync_folder(folder)


def _encoded(name: str, array: np.ndarray) -> tuple[str, np.ndarray]:
    """The format's name of a dtype, and the array in that dtype."""
    if not isinstance(name, str) or name in ("", METADATA):
        raise SafetensorsError(f"an array has a name, a string other than {METADATA!r}, not {name!r}")
    if array.dtype == np.complex128:
        pair = np.stack([np.real(array), np.imag(array)], axis=-1)
        return "F64", pair.astype("<f8", copy=False)
    if array.dtype.name == "bfloat16":
        return BFLOAT, array.view(np.uint16).astype("<u2", copy=False)
    dtype = array.dtype.newbyteorder("<") if array.dtype.itemsize > 1 else array.dtype
    if dtype not in CODES:
        raise SafetensorsError(
            f"{name!r} has dtype {array.dtype}, which safetensors doesn't hold: it has bool, integers, float16, 32 and "
            "64, and complex numbers. Convert it with .astype."
        )
    return CODES[dtype], array.astype(dtype, copy=False)


def _write_part(file: BinaryIO, part: Any) -> None:
    if isinstance(part, bytes):
        file.write(part)
    elif part.size:
        file.write(as_bytes(part))


def as_bytes(array: np.ndarray) -> Any:
    """The memory of an array, in C order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _keep_mode(path: str, temporary: str) -> None:
    if os.path.exists(path):
        os.chmod(temporary, stat.S_IMODE(os.stat(path).st_mode))


def _sync_folder(folder: str) -> None:
    """The new name is on the disk, too, where folders can be flushed."""
    try:
        handle = os.open(folder or ".", os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


# Reading -------------------------------------------------------------------------------------------------------------


def read(path: str | os.PathLike[str], mapped: bool = True) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays of a file by name, and its metadata.

    `mapped`: read-only arrays on the file itself, of which only what is used is read; else arrays of their own.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        header, start = _header(file, size, os.fspath(path))
        entries, metadata = _entries(header, size - start, os.fspath(path))
        if mapped and size > start:
            data: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            arrays = {name: _array(data, start + begin, code, shape) for name, (begin, code, shape) in entries.items()}
        else:
            arrays = {}
            for name, (begin, code, shape) in entries.items():
                file.seek(start + begin)
                data = bytearray(math.prod(shape) * _size(code))
                if file.readinto(data) != len(data):
                    raise SafetensorsError(f"{path}: it ends within {name!r}: it changed while it was read")
                arrays[name] = _array(data, 0, code, shape)
    return _with_complex(arrays, metadata, os.fspath(path)), metadata


def _header(file: BinaryIO, size: int, path: str) -> tuple[dict[str, Any], int]:
    first = file.read(8)
    if len(first) < 8:
        raise SafetensorsError(f"{path} has {len(first)} bytes: a safetensors file begins with 8 bytes, the length")
    (length,) = struct.unpack("<Q", first)
    if (length > MOST or 8 + length > size) and (first[:4] == b"PK\x03\x04" or first[:1] == b"\x80"):
        raise SafetensorsError(
            f"{path} isn't a safetensors file but one that torch.save or pickle wrote; such files run code when they "
            "are loaded, and aren't read here. Convert it where PyTorch is: "
            "safetensors.torch.save_file(state_dict, path)"
        )
    if length > MOST:
        raise SafetensorsError(
            f"{path}: a header of {length} bytes is announced, and at most {MOST} are allowed: it is no safetensors "
            "file, or a damaged one"
        )
    if 8 + length > size:
        raise SafetensorsError(
            f"{path} is truncated: its header has {length} bytes, and the whole file {size}. Copy it again."
        )
    text = file.read(length)
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=lambda pairs: _unique(pairs, path))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise SafetensorsError(
            f"{path}: the header is no JSON ({error}): no safetensors file, or a damaged one"
        ) from None
    if not isinstance(header, dict):
        raise SafetensorsError(f"{path}: the header is no JSON object, but {type(header).__name__}")
    return header, 8 + length


def _unique(pairs: list[tuple[str, Any]], path: str) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        names = [name for name, _ in pairs]
        raise SafetensorsError(f"{path}: {next(n for n in names if names.count(n) > 1)!r} is in the header twice")
    return out


def _size(code: str) -> int:
    return 2 if code == BFLOAT else DTYPES[code].itemsize


def _entries(
    header: dict[str, Any], available: int, path: str
) -> tuple[dict[str, tuple[int, str, tuple[int, ...]]], dict[str, str]]:
    """Where each array begins, its dtype and shape: checked, and filling the file exactly."""
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise SafetensorsError(f"{path}: {METADATA} is no dict of strings")
    out, spans = {}, []
    for name, entry in header.items():
        if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
            raise SafetensorsError(f"{path}: the entry of {name!r} lacks dtype, shape or data_offsets")
        code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if code not in DTYPES and code != BFLOAT:
            known = ", ".join([*DTYPES, BFLOAT])
            raise SafetensorsError(f"{path}: {name!r} has the dtype {code!r}; NumPy can hold {known}")
        if not _is_whole(shape) or not _is_whole(offsets) or len(offsets) != 2:
            raise SafetensorsError(
                f"{path}: {name!r} has shape {shape!r} and data_offsets {offsets!r}: not whole numbers"
            )
        begin, end = offsets
        wanted = math.prod(shape) * _size(code)
        if end - begin != wanted:
            raise SafetensorsError(
                f"{path}: {name!r} is {code}{shape}, {wanted} bytes, but has those from {begin} to {end}"
            )
        if end > available:
            raise SafetensorsError(
                f"{path} is truncated: {name!r} ends at byte {end} of the data, of which {available} are there. Copy "
                "it again."
            )
        out[name] = (begin, code, tuple(shape))
        spans.append((begin, end, name))
    place = 0
    for begin, end, name in sorted(spans):
        if begin != place:
            what = "overlaps the array before it" if begin < place else f"leaves {begin - place} bytes before it unused"
            raise SafetensorsError(f"{path}: {name!r} {what}: the file is damaged, or was made to deceive")
        place = end
    if place != available:
        raise SafetensorsError(f"{path}: {available - place} bytes at its end belong to no array")
    return out, metadata


def _is_whole(values: Any) -> bool:
    return isinstance(values, list) and all(type(v) is int and v >= 0 for v in values)


def _array(data: Any, start: int, code: str, shape: tuple[int, ...]) -> np.ndarray:
    dtype = np.dtype("<u2") if code == BFLOAT else DTYPES[code]
    count = math.prod(shape)
    if not count:
        return np.zeros(shape, np.float32 if code == BFLOAT else dtype)
    flat = np.frombuffer(data, dtype, count, start)
    if code == BFLOAT:
        flat = (flat.astype(np.uint32) << 16).view(np.float32)
    elif code == "BOOL":
        flat = flat.view(np.uint8) != 0 if flat.view(np.uint8).max() > 1 else flat
    if not flat.flags.aligned:
        flat = flat.copy()
    native = flat if flat.dtype.isnative else flat.astype(flat.dtype.newbyteorder("="))
    return native.reshape(shape)


def _with_complex(arrays: dict[str, np.ndarray], metadata: dict[str, str], path: str) -> dict[str, np.ndarray]:
    """Pairs of float64 back as complex128."""
    try:
        names = json.loads(metadata.pop(COMPLEX, "[]"))
    except json.JSONDecodeError:
        names = None
    if not isinstance(names, list):
        raise SafetensorsError(f"{path}: {COMPLEX} in the metadata is no list of names")
    for name in names:
        pair = arrays.get(name) if isinstance(name, str) else None
        if pair is None or pair.dtype != np.float64 or pair.shape[-1:] != (2,):
            raise SafetensorsError(f"{path}: {name!r} is said to be complex, but isn't a float64 array (..., 2)")
        arrays[name] = np.ascontiguousarray(pair).view(np.complex128)[..., 0]
    return arrays
