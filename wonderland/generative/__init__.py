"""Models that make data: diffusion, flows, auto-encoders. The public names are in `public.py`, loaded on first use."""

from typing import TYPE_CHECKING

from wonderland.core import later as _later

if TYPE_CHECKING:
    from wonderland.generative.public import *  # noqa: F403
else:
    __all__, __getattr__, __dir__ = _later.names(__name__, "wonderland.generative.public")
