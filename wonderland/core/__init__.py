"""The machine: types, trees, primitives, levels, Programs, tracers. Of operators it knows only broadcast, convert."""
