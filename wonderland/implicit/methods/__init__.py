"""Solvers of equations and of minima, one family a file; none of them is differentiated."""
