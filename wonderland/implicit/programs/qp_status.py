"""What can become of a linear or quadratic program, as names for people and as numbers for arrays."""

from enum import IntEnum


class QPStatus(IntEnum):
    """What became of a linear or quadratic program."""

    SOLVED = 0
    INFEASIBLE = 1  # no x satisfies the constraints
    UNBOUNDED = 2  # the objective falls for ever along a ray
    STOPPED = 3  # not solved to the tolerance: too few iterations, or data whose numbers differ too much
    NOT_CONVEX = 4  # Q has a negative eigenvalue
    NOT_FINITE = 5  # NaN in the data, or an infinity that isn't a missing constraint


# As plain numbers, which arrays are compared with.
SOLVED, INFEASIBLE, UNBOUNDED, STOPPED, NOT_CONVEX, NOT_FINITE = (int(status) for status in QPStatus)
