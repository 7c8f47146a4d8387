"""Warnings where silence would surprise: what each is about.

`warnings.simplefilter("error", category)` makes it an error.
"""

from __future__ import annotations


class RandomConstantWarning(UserWarning):
    """Numbers of `np.random` or `random` were drawn while a function was recorded: they are constants of it."""


class ReboundArrayWarning(UserWarning):
    """Where a compiled function found an array that it captured, there is another one now, which it doesn't see."""


class LostDerivativeWarning(UserWarning):
    """A loop depends on what is differentiated through comparisons alone, so its derivative is zero."""
