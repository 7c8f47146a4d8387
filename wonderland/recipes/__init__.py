"""Recipes: trainings of one screen each, to run, copy and change. Public names are listed in `public.py`.

Each recipe is a file with a function `run(setting=default, ..., **options)`: its defaults are the settings, the options
go to `train.fit`, and an `Outcome` goes out. `wonderland train NAME` runs it and writes a report.
"""

from typing import TYPE_CHECKING

from wonderland.core import later as _later

if TYPE_CHECKING:
    from wonderland.recipes.public import *  # noqa: F403
else:
    __all__, __getattr__, __dir__ = _later.names(__name__, "wonderland.recipes.public")
