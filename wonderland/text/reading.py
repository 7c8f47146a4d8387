"""Reading files of tokenizers: bytes of a file come in, lines or JSON go out, or an error with file and line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, NoReturn

from wonderland.text.faults import TokenizerError

Path = str | os.PathLike[str]


def refuse(path: Path, message: str, line: int | None = None) -> NoReturn:
    """Say what is wrong with a file."""
    where = "" if line is None else f", line {line}"
    raise TokenizerError(f"{os.fspath(path)}{where}: {message}")


def contents(path: Path) -> bytes:
    """All bytes of a file."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        refuse(path, f"it can't be read: {error.strerror}")


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that aren't empty, numbered from 1."""
    for number, line in enumerate(contents(path).split(b"\n"), 1):
        if line.strip():
            yield number, line.rstrip(b"\r")


def text(path: Path, raw: bytes, line: int = 1) -> str:
    """Bytes as UTF-8, from some line on."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line += raw.count(b"\n", 0, error.start)
        refuse(path, f"the byte {raw[error.start]:#04x} isn't UTF-8", line)


def read_json(path: Path) -> dict[str, Any]:
    """The object that a JSON file has."""
    written = text(path, contents(path))
    try:
        found = json.loads(written, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        ends = "; the file may have been cut off" if error.pos >= len(written.rstrip()) else ""
        refuse(path, f"it isn't JSON: {error.msg} at column {error.colno}{ends}", error.lineno)
    except RecursionError:
        refuse(path, "it isn't a tokenizer: lists or objects inside of one another, too many to be read")
    except ValueError as error:  # a key that is there twice, a number of thousands of digits
        refuse(path, str(error))
    if not isinstance(found, dict):
        refuse(path, f"it has {_called(found)} where a tokenizer has an object, {{...}}")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key {twice!r:.60} is there twice in one object")
    return made


_CALLED = {
    dict: "an object", list: "a list", str: "a string", bool: "true or false", int: "a whole number", float: "a number",
}  # fmt: skip


def _called(value: Any) -> str:
    return "null" if value is None else _CALLED[type(value)]


_REQUIRED = object()


def part(path: Path, found: dict[str, Any], key: str, *types: type, default: Any = _REQUIRED, inside: str = "") -> Any:
    """The value of a key, of one of some types; or the default, for a key that isn't there or is null."""
    value = found.get(key)
    if value is None and default is not _REQUIRED:
        return default
    name = f"{inside}.{key}" if inside else key
    wanted = " or ".join(_CALLED[type] for type in types)
    if value is None:
        refuse(path, f"it has no {name!r}, which is {wanted}")
    if type(value) not in types:
        refuse(path, f"{name!r} is {_called(value)}, not {wanted}")
    return value
