"""What is wrong with data, said with the file or the row; and the checks of arguments that several files share."""

from __future__ import annotations

import operator
from typing import Any, NoReturn

import numpy as np

from wonderland.core.errors import ArgumentError


class DataError(ValueError):
    """Data that can't be used. The message names the file, the row or the sample, and says what to do about it."""


def count_of(value: Any, name: str, least: int = 1) -> int:
    """A whole number, at least `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentError(f"{name} is a whole number, not {value!r}") from None
    if isinstance(value, bool) or number < least:
        raise ArgumentError(f"{name} is a whole number, at least {least}, not {value!r}")
    return number


def seed_of(value: Any) -> int:
    """A seed: a whole number from 0 to 2^64 - 1."""
    if count_of(value, "seed", 0) >= 2**64:
        raise ArgumentError(f"seed is less than 2**64, not {value}")
    return operator.index(value)


def package_missing(package: str, what: str, error: ImportError) -> NoReturn:
    """An ImportError that says what to install."""
    raise ImportError(f"{what} needs {package}, which isn't there: pip install {package}") from error


def generator(seed: int, purpose: int, *numbers: int) -> np.random.Generator:
    """Random numbers that depend on these numbers only (up to three of them, after the seed and what they are for).

    Philox makes a stream for each counter: the numbers are its upper words, and its lowest one counts what is drawn.
    """
    counter = np.zeros(4, np.uint64)
    counter[1 : 1 + len(numbers)] = numbers
    return np.random.Generator(np.random.Philox(key=np.array([seed, purpose], np.uint64), counter=counter))
