"""The benchmarks, one a file; each side is written as a good user of that library would write it."""
