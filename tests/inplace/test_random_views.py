"""Random programs that write through views, run by NumPy and by wonderland.

Each is a list of steps on a growing set of arrays and views: new views (slices, transposes, reshapes, new axes), writes
through any of them, augmented assignments, aliased reads and writes. All steps are analytic and the arrays take their
dtype from x, so the complex step of plain NumPy is the oracle: exact to rounding.
"""

import numpy as np
import pytest

import wonderland as wl

X = np.array([0.31, -0.72, 1.13, 0.44, 0.95, -0.26, 0.57, 0.88])


def random_slice(rng, n):
    start, stop = sorted(rng.integers(0, n + 1, 2))
    if start == stop:
        start, stop = 0, n
    step = int(rng.choice([1, 1, 2, -1]))
    return (
        slice(int(start), int(stop), step) if step > 0 else slice(int(stop) - 1, int(start) - 1 if start else None, -1)
    )


def view_step(rng, shape, contiguous):
    """A description of a view of an array of this shape, and whether NumPy can still reshape it without a copy."""
    kind = rng.choice(["slice", "transpose", "newaxis", "row", "reshape", "ellipsis"])
    if kind == "slice":
        return ("index", tuple(random_slice(rng, n) for n in shape)), False
    if kind == "row" and len(shape) > 1:
        return ("index", (int(rng.integers(shape[0])),)), contiguous
    if kind == "reshape" and contiguous:
        size = int(np.prod(shape))
        choices = [(size,), (1, size)] + [(2, size // 2)] * (size % 2 == 0) + [(size // 2, 2)] * (size % 2 == 0)
        return ("reshape", choices[rng.integers(len(choices))]), contiguous
    if kind == "newaxis":
        return ("index", (np.newaxis, Ellipsis)), contiguous
    if kind == "transpose":
        return ("transpose", None), False
    return ("index", (Ellipsis,)), contiguous


def take_view(array, step):
    kind, how = step
    if kind == "index":
        return array[how]
    return array.reshape(how) if kind == "reshape" else array.T


def make_program(seed, length=14):
    """Steps by numbers only; shapes are followed with an example, so that each step is valid."""
    rng = np.random.default_rng(seed)
    example = [np.zeros(8), np.zeros((2, 4))]
    contiguous = [True, True]
    steps = []
    for _ in range(length):
        k = int(rng.integers(len(example)))
        kind = rng.choice(["view", "view", "copy", "set", "augment", "alias", "element", "gather"])
        target = example[k]
        if kind == "view":
            how, flag = view_step(rng, target.shape, contiguous[k])
            example.append(take_view(target, how))
            contiguous.append(flag)
            steps.append(("view", k, how))
        elif kind == "copy":
            example.append(target.copy())
            contiguous.append(True)
            steps.append(("copy", k))
        elif kind == "alias" and target.ndim and target.shape[0] > 1:
            steps.append(("alias", k, str(rng.choice(["=", "+=", "*=", "-="])), bool(rng.integers(2))))
        elif kind == "element":
            places = [tuple(int(rng.integers(n)) for n in target.shape) for _ in range(2)]
            steps.append(("element", k, places[0], places[1]))
        elif kind == "gather" and target.ndim:
            index = rng.permutation(target.shape[0])[: max(1, target.shape[0] // 2)]
            steps.append(("gather", k, index, index[::-1].copy()))
        else:
            same = [i for i, a in enumerate(example) if a.shape == target.shape]
            operator = "=" if kind == "set" else str(rng.choice(["+=", "*=", "-="]))
            steps.append(("write", k, int(rng.choice(same)), operator, float(rng.uniform(0.5, 1.5))))
    return steps


def assign(target, index, operator, value):
    if operator == "=":
        target[index] = value
    elif operator == "+=":
        target[index] += value
    elif operator == "-=":
        target[index] -= value
    else:
        target[index] *= value


def perform(steps, x):
    arrays = [x.copy(), (0.5 * x).reshape(2, 4).copy()]
    for kind, k, *rest in steps:
        a = arrays[k]
        if kind == "view":
            arrays.append(take_view(a, rest[0]))
        elif kind == "copy":
            arrays.append(a.copy())
        elif kind == "alias":
            operator, forwards = rest
            here, there = (slice(1, None), slice(None, -1)) if forwards else (slice(None, -1), slice(1, None))
            assign(a, here, operator, a[there])
        elif kind == "element":
            a[rest[0]] = 0.9 * a[rest[1]] + 0.1
        elif kind == "gather":
            a[rest[0]] = a[rest[1]]
        else:
            other, operator, factor = rest
            assign(a, ..., operator, factor * arrays[other])
    return arrays


@pytest.mark.parametrize("seed", range(60))
def test_random_program(seed):
    steps = make_program(seed)

    def f(x):
        return [1.0 * a for a in perform(steps, x)]

    direction = np.cos(np.arange(8.0))
    expected = f(X)
    slopes = [np.imag(a) / 1e-30 for a in f(X + 1e-30j * direction)]
    values, tangents = wl.jvp(wl.lift(f), (X,), (direction,))
    _, pull = wl.vjp(wl.lift(f), X)
    weights = [np.sin(1.0 + np.arange(a.size)).reshape(a.shape) for a in expected]
    gradient = pull(weights)[0]
    for value, tangent, e, s in zip(values, tangents, expected, slopes, strict=True):
        np.testing.assert_allclose(value, e, rtol=1e-14, atol=1e-14, err_msg=str(steps))
        np.testing.assert_allclose(tangent, s, rtol=1e-11, atol=1e-13, err_msg=str(steps))
    projected = sum(np.sum(w * s) for w, s in zip(weights, slopes, strict=True))
    size = np.sum(np.abs(gradient * direction)) + 1e-10
    np.testing.assert_allclose(gradient @ direction, projected, atol=1e-11 * size)


@pytest.mark.parametrize("seed", range(0, 60, 12))
def test_random_program_compiled_and_batched(seed):
    steps = make_program(seed)

    def f(x):
        return [1.0 * a for a in perform(steps, x)]

    lifted = wl.lift(f)
    for value, e in zip(wl.jit(lifted)(X), f(X), strict=True):
        np.testing.assert_allclose(value, e, rtol=1e-12, atol=1e-13)
    batch = np.stack([X, 2 * X, X**2])
    rows = [f(x) for x in batch]
    for k, values in enumerate(wl.vmap(lifted)(batch)):
        np.testing.assert_allclose(values, np.stack([row[k] for row in rows]), rtol=1e-13, atol=1e-13)
