"""The primitives, one family a file, every rule of a primitive in one block."""

from wonderland.ops import elementwise  # noqa: F401  (first: the other families' rules are written with it)
