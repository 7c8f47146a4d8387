"""SciPy's functions on traced arrays, under SciPy's names: `wonderland.scipy.special`."""
