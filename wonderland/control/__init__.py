"""Control flow that stays inside a Program: `cond`, `switch`, `scan`, `while_loop`, `fori_loop`.

Two primitives: `cond` (one of several Programs) and `scan` (a body Program, a number of times that may be known only at
run time). Everything else, reverse mode of a data-dependent loop included, is composed of them.
"""
