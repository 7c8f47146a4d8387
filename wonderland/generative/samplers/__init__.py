"""From noise to data, and back: the loop (`sampling.py`), the solvers it runs, likelihoods, Langevin dynamics."""
