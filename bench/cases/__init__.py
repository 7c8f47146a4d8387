"""The benchmarks, one idea a file; each side is written as a good user of that library would write it."""

# The order of the table.
ORDER = [
    "elementwise",
    "rows",
    "reductions",
    "gemm",
    "products",
    "rosenbrock",
    "second_order",
    "elimination",
    "derivatives",
    "sparse",
    "conv",
    "attention",
    "adam",
    "cnn",
    "nanogpt",
    "resnet",
    "modules",
    "generation",
    "loops",
    "first_call",
    "trees",
    "eager",
    "random",
    "imports",
]
