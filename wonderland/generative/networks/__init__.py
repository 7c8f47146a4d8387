"""Networks that know the noise in data: `network(x, sigma, condition=None)` returns epsilon, like x."""
