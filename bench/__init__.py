"""Benchmarks: wonderland beside NumPy, JAX and PyTorch, paired and interleaved.

`python -m bench NAME... --json FILE` runs them. `cases/` says what is computed and how each contender
computes it, `measure` takes the times, `worker` is the process in which one pair meets, `report` is what a
person reads.
"""
