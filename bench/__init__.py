"""Benchmarks: wonderland beside NumPy, JAX and PyTorch, paired and interleaved.

`python -m bench WORD... --out DIRECTORY` runs them. `cases/` says what is computed and how each contender
computes it, `measure` takes the times, `worker` has a process for each contender, `report` and `plots`
are what a person reads. `python -m bench.growth` shows how cost grows with size.
"""
