"""Text as numbers: tokenizers. The public names are listed in `public.py`, each loaded on first use."""

from typing import TYPE_CHECKING

from wonderland.core import later as _later

if TYPE_CHECKING:
    from wonderland.text.public import *  # noqa: F403
else:
    __all__, __getattr__, __dir__ = _later.names(__name__, "wonderland.text.public")
