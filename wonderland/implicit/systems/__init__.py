"""Linear systems: operators, solvers, and the primitive with their derivatives."""
