"""Minimisers of smooth losses of X w + b: a loss is one line of NumPy code, its derivatives come from here."""
