"""What an equation defines: linear systems, roots, optima. The public names are in `public.py`, loaded on use."""

from typing import TYPE_CHECKING

from wonderland.core import later as _later

if TYPE_CHECKING:
    from wonderland.implicit.public import *  # noqa: F403
else:
    __all__, __getattr__, __dir__ = _later.names(__name__, "wonderland.implicit.public")
