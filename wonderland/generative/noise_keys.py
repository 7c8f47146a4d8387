"""Where models of this package have their noise from: a key that is given, or the model's own."""

from __future__ import annotations

from typing import Any

from wonderland import random
from wonderland.nn.noise import Random
from wonderland.random.keys import checked


class KeyHolder(Random):
    """A model that draws numbers, with a key of its own, a buffer.

    A key that is given is used. Without one, each call in training mode takes a new key, and in evaluation mode all
    calls have the same numbers, so that losses on validation data can be compared.
    """

    def key_of(self, key: Any = None) -> Any:
        """The key that is given, or the next of the model's own."""
        if key is not None:
            checked(key)
            return key
        return self.next_key() if self.training else self.key

    def normal(self, shape: tuple[int, ...], dtype: Any, key: Any = None) -> Any:
        """Standard normal noise; what sample i (along the first axis) gets depends on the key and on i alone."""
        key = self.key_of(key)
        return self.drawn(lambda shape: random.normal(key, shape, dtype=dtype), shape)
