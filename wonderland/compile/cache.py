"""Object code on disk: a key comes in, what an earlier process compiled for it goes out.

The directory is `WONDERLAND_CACHE`, by default `wonderland` in the user's cache directory; `WONDERLAND_CACHE=off` (or
0) does without. A directory that can't be written is no error: the cache is then simply off.

An entry is one file, named by its key: a header with a checksum, and the object code. It is written under another name
and moved into place, so that other processes see all of it or nothing. An entry that is cut off or damaged counts as
missing and is written again. When the files take more than `WONDERLAND_CACHE_MB` (512) megabytes, those that were not
used for longest go.

What is in here gets executed: the directory is made for the user alone, and a file that belongs to somebody else, or
that others may write, is never read. Whoever can write your files can make you run code, here as in any `__pycache__`.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

MAGIC = b"wonderland object 1\n"
SUFFIX = ".object"
UNFINISHED = ".part"
OFF = ("0", "off", "no", "false")
DEFAULT_MEGABYTES = 512
TOUCH_AFTER = 3600.0  # seconds: how exactly the time of last use is kept
ABANDONED_AFTER = 3600.0  # seconds after which an unfinished file is nobody's

hits = misses = 0  # of this process
_written: dict[Path, int] = {}  # bytes since the directory was last looked through


def key_of(*parts: str | bytes) -> str:
    """A name for what is determined by these parts."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def directory() -> Path | None:
    """Where the entries are; None if there is no cache."""
    given = os.environ.get("WONDERLAND_CACHE", "").strip()
    if given.lower() in OFF:
        return None
    try:
        return Path(given).expanduser() if given else _user_cache() / "wonderland"
    except RuntimeError:  # no home directory
        return None


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    given = os.environ.get("XDG_CACHE_HOME", "")
    return Path(given) if os.path.isabs(given) else Path.home() / ".cache"


def limit() -> int:
    """The most bytes that the entries may take."""
    given = os.environ.get("WONDERLAND_CACHE_MB", "").strip()
    try:
        megabytes = float(given or DEFAULT_MEGABYTES)
    except ValueError:
        megabytes = -1.0
    if not 0 <= megabytes < float("inf"):
        raise ValueError(f"WONDERLAND_CACHE_MB must be a number of megabytes, got {given!r}")
    return int(megabytes * 2**20)


def load(key: str) -> bytes | None:
    """The object code of this key; None if there is none, or none that can be trusted."""
    global hits, misses
    code = _read(key)
    hits, misses = hits + (code is not None), misses + (code is None)
    return code


def _read(key: str) -> bytes | None:
    place = directory()
    if place is None:
        return None
    path = place / (key + SUFFIX)
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if not _is_ours(status):
                return None
            data = file.read()
    except OSError:
        return None
    if time.time() - status.st_mtime > TOUCH_AFTER:
        with suppress(OSError):  # a cache that can only be read is a cache
            os.utime(path)
    header = len(MAGIC) + hashlib.sha256().digest_size
    code = data[header:]
    return code if data[:header] == MAGIC + _checksum(key, code) else None


def store(key: str, code: bytes) -> None:
    """Keep object code; if that isn't possible, don't."""
    place, most = directory(), limit()
    data = MAGIC + _checksum(key, code) + code
    if place is None or len(data) > most:
        return
    unfinished = ""
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, unfinished = tempfile.mkstemp(UNFINISHED, key[:16], place)  # readable by the user alone
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(unfinished, place / (key + SUFFIX))
        _written[place] = _written.get(place, most) + len(data)  # a process looks through it once, then rarely
        if _written[place] >= most // 16:
            _written[place] = 0
            _trim(place, most)
    except OSError:
        if unfinished:
            _remove(unfinished)


def _trim(place: Path, most: int) -> None:
    """Remove what was not used for longest until a sixteenth of the limit is free again."""
    found = []
    with os.scandir(place) as entries:
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:  # another process was faster
                continue
            if entry.name.endswith(SUFFIX):
                found.append((status.st_mtime, status.st_size, entry.path))
            elif entry.name.endswith(UNFINISHED) and time.time() - status.st_mtime > ABANDONED_AFTER:
                _remove(entry.path)
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found) if total > most else ():
        if total > most - most // 16:
            _remove(path)
            total -= size


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


def _checksum(key: str, code: bytes) -> bytes:
    return hashlib.sha256(key.encode() + code).digest()


def _is_ours(status: os.stat_result) -> bool:
    """Does a file belong to this user, and can nobody else write it?"""
    if not hasattr(os, "geteuid"):  # Windows keeps this by access lists on the user's directory
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
