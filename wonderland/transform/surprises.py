"""Warnings where silence would surprise: what each is about, and how it names the user's line.

Python shows a warning once per place; `warnings.simplefilter("error", category)` makes it an error.
"""

from __future__ import annotations

import warnings

from wonderland.core.tracebacks import user_frame


class RandomConstantWarning(UserWarning):
    """Numbers of `np.random` or `random` were drawn while a function was recorded: they are constants of it."""


class ReboundArrayWarning(UserWarning):
    """Where a compiled function found an array that it captured, there is another one now, which it doesn't see."""


class LostDerivativeWarning(UserWarning):
    """A loop depends on what is differentiated through comparisons alone, so its derivative is zero."""


def surprise(category: type[Warning], message: str) -> None:
    """Warn at the line of the user's that we were called from."""
    frame = user_frame()
    if frame is None:
        warnings.warn(message, category, stacklevel=2)
        return
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    module = frame.f_globals.get("__name__", "<unknown>")
    warnings.warn_explicit(message, category, frame.f_code.co_filename, frame.f_lineno, module, registry)
