"""Files of checkpoints: arrays and a state come in, one safetensors file goes out that vouches for itself, and back.

The state (numbers, strings, None, lists, dicts; arrays in them go to the arrays of the file) is JSON in the file's
metadata. So is a SHA-256 of the whole file, computed with zeros in its own place: a bit that changed anywhere, or a
missing end, is found before anything of it is believed. Nothing in it is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.nn.safetensors import MOST, SafetensorsError, as_bytes, pieces, read, replace

STATE, CHECKSUM, VERSION = "wonderland.checkpoint", "wonderland.checksum", 1
NOTHING = "0" * 64
PLACE = re.compile(rb'"wonderland\.checksum":"([0-9a-f]{64})"')
ARRAY = "__array__"
BLOCK = 1 << 20


class CheckpointError(ValueError):
    """A checkpoint that is damaged, or none at all."""


def write_record(path: str, arrays: Mapping[str, Any], state: Any) -> None:
    """Write a file, all or nothing; an error of the disk says which file it was."""
    found = dict(arrays)
    text = json.dumps({"version": VERSION, "state": packed(state, found, "state")}, separators=(",", ":"))
    header, *rest = pieces(found, {CHECKSUM: NOTHING, STATE: text})
    digest = hashlib.sha256(header)
    for array in rest:
        if array.size:
            digest.update(as_bytes(array))
    place = PLACE.search(header)
    assert place is not None
    header = header[: place.start(1)] + digest.hexdigest().encode() + header[place.end(1) :]
    replace(path, [header, *rest])


def read_record(path: str) -> tuple[dict[str, np.ndarray], Any]:
    """The arrays and the state of a file; a `CheckpointError` says what is wrong with a damaged one."""
    check(path)
    try:
        arrays, metadata = read(path, mapped=False)
        record = json.loads(metadata[STATE])
    except (SafetensorsError, KeyError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path} isn't a checkpoint: {error}") from None
    if record["version"] != VERSION:
        raise ArgumentError(f"{path} was written by a newer wonderland: its format is {record['version']!r}")
    return arrays, unpacked(record["state"], arrays)


def check(path: str) -> None:
    """Refuse a file whose bytes aren't those that were written."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        first = file.read(8)
        length = struct.unpack("<Q", first)[0] if len(first) == 8 else MOST + 1
        if length > MOST or 8 + length > size:
            raise CheckpointError(f"{path} is damaged: it has {size} bytes, which isn't a whole header")
        header = first + file.read(length)
        place = PLACE.search(header)
        if place is None:
            raise CheckpointError(f"{path} is damaged, or no checkpoint: there is no checksum in its header")
        digest = hashlib.sha256(header[: place.start(1)] + NOTHING.encode() + header[place.end(1) :])
        while block := file.read(BLOCK):
            digest.update(block)
    if digest.hexdigest().encode() != place.group(1):
        raise CheckpointError(f"{path} is damaged: its checksum doesn't fit its contents")


def packed(value: Any, arrays: dict[str, Any], name: str) -> Any:
    """A state as JSON holds it; its arrays go to `arrays`, by name."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic) and value.dtype.kind in "biufU":
        return value.item()
    if isinstance(value, np.ndarray):
        while name in arrays:  # {"a.b": array, "a": {"b": array}}
            name += "'"
        arrays[name] = value
        return {ARRAY: name}
    if isinstance(value, (list, tuple)):
        return [packed(item, arrays, f"{name}.{i}") for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        wrong = [key for key in value if not isinstance(key, str) or key == ARRAY]
        if not wrong:
            return {key: packed(item, arrays, f"{name}.{key}") for key, item in value.items()}
        raise ArgumentError(f"{name} has the key {wrong[0]!r}: keys of what a checkpoint holds are strings")
    raise ArgumentError(
        f"{name} is a {type(value).__name__}: a checkpoint holds numbers, strings, None, arrays, lists and dicts"
    )


def unpacked(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """What `packed` was given, tuples as lists."""
    if isinstance(value, list):
        return [unpacked(item, arrays) for item in value]
    if isinstance(value, dict):
        if value.keys() == {ARRAY}:
            return arrays[value[ARRAY]]
        return {key: unpacked(item, arrays) for key, item in value.items()}
    return value
