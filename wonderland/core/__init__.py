"""The machine: types, trees, primitives, levels, Programs, tracers. It knows no operator."""
