"""The check that every function of this collection goes through.

The functions are written with plain `import numpy as np` and know nothing of wonderland. NumPy itself runs them for the
value, and central differences of order four of what NumPy computes are the oracle of the derivatives. Forward and
reverse mode are compared with them and, more sharply, with each other; so are the compiled and the batched function.
"""

import numpy as np

import wonderland as wl
from wonderland.core.tree import flatten, tree_map


def arrays(tree):
    return [np.asarray(leaf) for leaf in flatten(tree)[0]]


def inner(a, b):
    return sum(float(np.sum(x * y)) for x, y in zip(arrays(a), arrays(b), strict=True))


def direction_like(tree, seed):
    """Numbers of order one that no function here has a reason to be special at."""
    rng = np.random.default_rng(seed)
    return tree_map(lambda leaf: rng.uniform(0.3, 1.0, np.shape(leaf)) * rng.choice([-1.0, 1.0], np.shape(leaf)), tree)


def shifted(args, direction, h):
    return tree_map(lambda a, d: a + h * d, args, direction)


def central_difference(f, args, direction, h):
    """Of order four, along a direction."""
    near = [arrays(f(*shifted(args, direction, k * h))) for k in (1, -1)]
    far = [arrays(f(*shifted(args, direction, k * h))) for k in (2, -2)]
    return [
        (8 * (n0 - n1) - (f0 - f1)) / (12 * h) for n0, n1, f0, f1 in zip(near[0], near[1], far[0], far[1], strict=True)
    ]


def close(actual, expected, rtol, atol=0.0, what=""):
    for a, e in zip(arrays(actual), arrays(expected), strict=True):
        scale = np.max(np.abs(e), initial=0.0)
        np.testing.assert_allclose(a, e, rtol=rtol, atol=atol + rtol * scale, err_msg=what)


def check(f, *args, h=1e-3, rtol=1e-6, jit=True, vmap=True):
    """The function by NumPy; lifted, forward and reverse; compiled; batched (the last two if it only needs shapes).

    `args` are arrays (or trees of them) of floats, all differentiated.
    """
    args = tree_map(lambda leaf: np.array(leaf, float), args)
    before = tree_map(np.copy, args)
    # NumPy runs it on copies: much of this code overwrites its arguments.
    value = f(*tree_map(np.copy, args))
    direction = direction_like(args, 1)
    lifted = wl.lift(f)

    out, tangent = wl.jvp(lifted, args, direction)
    close(out, value, 1e-13, what="value")
    close(tangent, central_difference(lambda *a: f(*tree_map(np.copy, a)), args, direction, h), rtol, what="forward")

    cotangent = direction_like(value, 2)
    out, pull = wl.vjp(lifted, *args)
    gradient = pull(cotangent)
    close(out, value, 1e-13, what="value in reverse")
    scale = inner(tree_map(np.abs, gradient), tree_map(np.abs, direction)) + 1e-300
    np.testing.assert_allclose(inner(gradient, direction), inner(cotangent, tangent), rtol=0, atol=1e-11 * scale)

    for now, then in zip(arrays(args), arrays(before), strict=True):
        np.testing.assert_array_equal(now, then, err_msg="the caller's arguments")
    if jit:
        close(wl.jit(lifted)(*args), value, 1e-11, what="compiled")
        compiled = wl.jit(lambda args, cotangent: wl.vjp(lifted, *args)[1](cotangent))(args, cotangent)
        close(compiled, gradient, 1e-9, what="compiled reverse mode")
    if vmap:
        batch = tree_map(lambda a, d: np.stack([a, a + 0.01 * d, a - 0.02 * d]), args, direction)
        several = [f(*tree_map(lambda b, i=i: b[i].copy(), batch)) for i in range(3)]
        close(wl.vmap(lifted)(*batch), tree_map(lambda *rows: np.stack(rows), *several), 1e-12, what="batched")
    return value, gradient
