"""Files of events as TensorBoard reads them: scalars, histograms and images, encoded here, without its packages.

A file is a row of records: the length (8 bytes), its checksum, the data, its checksum; checksums are CRC-32C, masked.
The data is an `Event` in protobuf's wire format; field numbers are those of TensorFlow's event.proto and summary.proto.
"""

from __future__ import annotations

import os
import struct
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def _crc_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)  # Castagnoli's polynomial, reversed
        table.append(value)
    return tuple(table)


CRC_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """The CRC-32C (Castagnoli) of bytes: RFC 3720, B.4."""
    table, crc = CRC_TABLE, 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def masked_crc(data: bytes) -> bytes:
    """The checksum of a record: rotated, and a constant added, because data may itself hold checksums."""
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    """Data as a record of a file."""
    length = struct.pack("<Q", len(data))
    return length + masked_crc(length) + data + masked_crc(data)


# Protobuf: each field is its number and wire type (0 varint, 1 eight bytes, 2 bytes with their length, 5 four bytes)


def varint(value: int) -> bytes:
    """An integer in groups of seven bits, the lowest first; a negative one as 64 bits."""
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer_field(field: int, value: int) -> bytes:
    """A field that is an integer."""
    return varint(field << 3) + varint(value)


def double_field(field: int, value: float) -> bytes:
    """A field that is a float64."""
    return varint(field << 3 | 1) + struct.pack("<d", value)


def bytes_field(field: int, value: bytes) -> bytes:
    """A field that is text, bytes, or a message."""
    return varint(field << 3 | 2) + varint(len(value)) + value


def float_field(field: int, value: float) -> bytes:
    """A field that is a float32; what is too large for it becomes infinite."""
    with np.errstate(over="ignore"):
        return varint(field << 3 | 5) + np.float32(value).astype("<f4").tobytes()


def scalar(tag: str, value: float) -> bytes:
    """A `Summary.Value` with a number."""
    return bytes_field(1, tag.encode()) + float_field(2, float(value))


def histogram(tag: str, values: Any, bins: int = 30) -> bytes:
    """A `Summary.Value` with a histogram of the finite ones of these values."""
    values = np.asarray(values, np.float64).reshape(-1)
    values = values[np.isfinite(values)]
    counts, edges = np.histogram(values, bins) if len(values) else (np.zeros(1), np.zeros(2))
    low, high = (values.min(), values.max()) if len(values) else (0.0, 0.0)
    proto = b"".join(
        double_field(i, float(v)) for i, v in enumerate((low, high, len(values), values.sum(), values @ values), 1)
    )
    proto += bytes_field(6, edges[1:].astype("<f8").tobytes()) + bytes_field(7, counts.astype("<f8").tobytes())
    return bytes_field(1, tag.encode()) + bytes_field(5, proto)


def image(tag: str, picture: Any) -> bytes:
    """A `Summary.Value` with an image: (height, width), or with 3 channels last; uint8, or floats from 0 to 1."""
    pixels = _pixels(picture, tag)
    height, width = pixels.shape[:2]
    colors = 1 if pixels.ndim == 2 else 3
    proto = b"".join(integer_field(i, v) for i, v in enumerate((height, width, colors), 1))
    return bytes_field(1, tag.encode()) + bytes_field(4, proto + bytes_field(4, encode_png(pixels)))


def _pixels(picture: Any, tag: str) -> np.ndarray:
    picture = np.asarray(picture)
    if picture.ndim == 3 and picture.shape[-1] == 1:
        picture = picture[..., 0]
    if picture.ndim not in (2, 3) or (picture.ndim == 3 and picture.shape[-1] != 3) or 0 in picture.shape:
        raise ValueError(f"image {tag!r}: (height, width) or (height, width, 3) is wanted, got shape {picture.shape}")
    if picture.dtype.kind == "f":
        return np.round(np.clip(np.nan_to_num(picture), 0, 1) * 255).astype(np.uint8)
    if picture.dtype != np.uint8:
        raise ValueError(f"image {tag!r}: uint8, or floats from 0 to 1, are wanted, got dtype {picture.dtype}")
    return picture


def encode_png(pixels: np.ndarray) -> bytes:
    """The bytes of a PNG file: of (height, width) in grey or (height, width, 3) in colour, uint8."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = pixels.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if pixels.ndim == 2 else 2, 0, 0, 0)
    rows = np.ascontiguousarray(pixels).reshape(height, -1)
    lines = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1)  # filter 0: as they are
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines.tobytes())) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


class EventFile:
    """A new file of events in a folder, whose name sorts after those that are there already."""

    def __init__(self, folder: str | os.PathLike[str]):
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        there = [path.name.split(".")[3] for path in folder.glob("events.out.tfevents.*.*")]
        after = max((int(stamp) + 1 for stamp in there if stamp.isdecimal()), default=0)
        stamp = max(int(time.time()), after)
        self.path: Path = folder / f"events.out.tfevents.{stamp:010d}.wonderland.{os.getpid()}"
        self._out = open(self.path, "xb")
        self._event(bytes_field(3, b"brain.Event:2"), 0)
        self.flush()

    def restart(self, step: int) -> None:
        """Say that training goes on from here: events of this and later steps in earlier files don't count."""
        self._event(bytes_field(7, integer_field(1, 1)), step)

    def add(self, step: int, values: Sequence[bytes]) -> None:
        """Append a summary: values made by `scalar`, `histogram` or `image`."""
        if values:
            self._event(bytes_field(5, b"".join(bytes_field(1, value) for value in values)), step)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Append numbers by their tags."""
        self.add(step, [scalar(tag, value) for tag, value in values.items()])

    def _event(self, what: bytes, step: int) -> None:
        self._out.write(record(double_field(1, time.time()) + integer_field(2, step) + what))

    def flush(self) -> None:
        """Let readers see what was written."""
        self._out.flush()

    def close(self) -> None:
        """No more."""
        self._out.close()
