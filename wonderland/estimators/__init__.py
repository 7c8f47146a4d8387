"""Models fitted in one line, by scikit-learn's contract. The public names are in `public.py`, loaded on first use."""

from typing import TYPE_CHECKING, Any

from wonderland.core import later as _later

if TYPE_CHECKING:
    from wonderland.estimators.public import *  # noqa: F403
else:
    __all__, _load, __dir__ = _later.names(__name__, "wonderland.estimators.public")

    def __getattr__(name: str) -> Any:
        try:
            return _load(name)
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("sklearn"):
                raise
            raise ModuleNotFoundError(
                f"wonderland.estimators.{name} needs scikit-learn, 1.6 or newer: pip install 'wonderland[data]'"
            ) from None
