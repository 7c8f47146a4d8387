"""The transformations: the Dual and Batch levels, the transpose, and what is composed of them."""
