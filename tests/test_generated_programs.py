"""Random programs: on traced arrays as on plain ones, forward as central differences, every mode as the others."""

import subprocess
import sys

import numpy as np
import pytest

import wonderland as wl
from wonderland.core import tree
from wonderland.core.primitive import registry
from wonderland.core.types import type_of
from wonderland.testing.check_grads import inner, is_inexact, numeric_jvp, random_like
from wonderland.testing.compiled_programs import KEPT, TOGETHER, failures, shrunk
from wonderland.testing.random_programs import FAMILIES, random_program

SEEDS = [*range(90), *(pytest.param(n, marks=pytest.mark.slow) for n in range(90, 150))]
COMPILED = range(0, 300, TOGETHER)  # the first program of each module
NARROW = [name for name in FAMILIES if name not in ("library", "integers")]  # which may give float64 for float32


def floating(f, args):
    """The program as a function of its floating-point arguments alone, and those."""
    chosen = [i for i, a in enumerate(args) if is_inexact(a)]

    def g(*values):
        full = list(args)
        for i, v in zip(chosen, values, strict=True):
            full[i] = v
        return tuple(o for o in f(*full) if type_of(o).dtype.kind == "f")

    return g, tuple(args[i] for i in chosen)


def scalar(g, weights):
    """A number made of all results, with a second derivative."""
    return lambda *x: sum(np.sum(w * o * o + o) for w, o in zip(weights, g(*x), strict=True))


def same(actual, expected, tolerance, what):
    for a, b in zip(tree.leaves(actual), tree.leaves(expected), strict=True):
        assert np.shape(a) == np.shape(b), f"{what}: shape {np.shape(a)} instead of {np.shape(b)}"
        assert np.result_type(a) == np.result_type(b), f"{what}: {np.result_type(a)} instead of {np.result_type(b)}"
        scale = max(1.0, float(np.max(np.abs(b), initial=0.0)))
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale, err_msg=what)


def check(seed):
    """Everything that must hold for one program, eagerly."""
    f, args = random_program(seed)
    plain = f(*args)
    g, x = floating(f, args)
    rng = np.random.default_rng(seed)
    t, u = random_like(x, rng), random_like(x, rng)

    value, pushed = wl.jvp(g, x, t)
    floats = tuple(o for o in plain if is_inexact(o))
    same(value, floats, 1e-14, "the value on traced arrays")
    with np.errstate(all="ignore"):
        same(pushed, numeric_jvp(g, x, t, eps=2.0**-13), 1e-6, "jvp against central differences")

    value, pull = wl.vjp(g, *x)
    same(value, floats, 1e-14, "the value in vjp")
    ct = random_like(value, rng)
    pulled = pull(ct)
    scale = max(1.0, *(float(np.max(np.abs(a), initial=0.0)) for a in (*pushed, *pulled)))
    assert abs(inner(ct, pushed) - inner(pulled, t)) <= 1e-10 * scale, "vjp against jvp"

    s = scalar(g, ct)
    numbers = tuple(range(len(x)))
    forward = inner(u, wl.jvp(wl.grad(s, numbers), x, t)[1])
    reverse = inner(t, wl.grad(lambda *x: wl.jvp(s, x, u)[1], numbers)(*x))
    assert abs(forward - reverse) <= 1e-9 * max(1.0, scale**2, abs(forward)), f"second order: {forward} and {reverse}"

    batch = tuple(np.stack([a, a + 0.01 * d, a - 0.02 * d]) for a, d in zip(x, u))
    each = [g(*(b[i] for b in batch)) for i in range(3)]
    expected = tuple(np.stack(column) for column in zip(*each))
    same(wl.vmap(g)(*batch), expected, 1e-12, "vmap against a loop")
    gradients = [wl.grad(s, numbers)(*(b[i] for b in batch)) for i in range(3)]
    expected = tuple(np.stack(column) for column in zip(*gradients))
    same(wl.vmap(wl.grad(s, numbers))(*batch), expected, 1e-10, "vmap of grad against a loop")


def check_single_precision(seed):
    """Dtypes of results and derivatives are NumPy's in float32 as well."""
    f, args = random_program(seed, ops=NARROW)
    args = tuple(a.astype(np.float32) if is_inexact(a) else a for a in args)
    g, x = floating(f, args)
    expected = g(*x)
    value, pushed = wl.jvp(g, x, random_like(x, np.random.default_rng(0)))
    same(value, expected, 1e-5, "the value in float32")
    for e, p in zip(expected, pushed, strict=True):
        assert np.result_type(p) == np.result_type(e)
    _, pull = wl.vjp(g, *x)
    assert all(np.result_type(c) == np.float32 for c in pull(expected))


def explained(check, seed, **options):
    """Run a check; a failure shows the program."""
    try:
        check(seed)
    except Exception as error:
        error.add_note(f"in the program of seed {seed}:\n\n{random_program(seed, **options)[0]}")
        raise


@pytest.mark.parametrize("seed", SEEDS)
def test_eager(seed):
    explained(check, seed)


@pytest.mark.parametrize("seed", SEEDS[::3])
def test_single_precision(seed):
    explained(check_single_precision, seed, ops=NARROW)


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(COMPILED[0], marks=pytest.mark.optimised),
        *COMPILED[1:3],
        *(pytest.param(n, marks=pytest.mark.slow) for n in COMPILED[3:]),
    ],
)
def test_compiled(first):
    """Many programs in one module, each as it is and in one other form; a failure names and shows its program."""
    show(failures(range(first, first + TOGETHER)))


@pytest.mark.optimised
def test_compiled_programs_that_once_failed():
    show(failures(KEPT))


def show(found):
    assert not found, "\n\n".join(f"seed {c.program.seed}, {c.form}: {why}\n\n{c.program}" for c, why in found)


def test_a_wrong_result_is_found_and_shrunk(monkeypatch):
    """A fault planted in one compiled function is seen, in the program that uses it, and little else is left."""
    wrong = lambda builder, x: builder.map(lambda e, x: e.mul(x, x), [x], x.dtype)
    monkeypatch.setattr(registry["sin"], "lower", wrong)
    found = [case for case, _ in failures(range(0, 24, 4)) if case.form == "value"]
    assert found
    small = shrunk(found[0]).program
    assert "np.sin" in small.source and len(small.lines) < len(found[0].program.lines)


# The generator itself ------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_program():
    (f, x), (g, y) = random_program(5), random_program(5)
    assert repr(f) == repr(g) and all(np.array_equal(a, b) for a, b in zip(x, y))
    assert repr(f) != repr(random_program(6)[0])


@pytest.mark.parametrize("seed", [1, 8, 21])
def test_a_printed_program_reproduces_the_call(seed):
    f, args = random_program(seed)
    printed = subprocess.run([sys.executable, "-c", repr(f)], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == str(f(*args))


def test_size_and_families():
    f, _ = random_program(0, size=30, ops=["smooth"])
    assert f.source.count("\n") == 32  # a line for each, def and return
    assert not any(word in f.source for word in ("[", "wl.", "sum"))
    with pytest.raises(ValueError, match=r"no families of statements \['magic'\]; there are smooth"):
        random_program(0, ops=["magic"])


def test_programs_are_varied_and_calm():
    """Together they use every family's means; numbers stay small; arguments stay as they were."""
    text = ""
    for seed in range(100):
        f, args = random_program(seed)
        before = [np.array(a) for a in args]
        out = f(*args)
        assert all(np.array_equal(a, b) for a, b in zip(args, before))
        assert all(np.all(np.abs(o) < 100) for o in out) and is_inexact(out[0])
        text += f.source
    for means in ("np.where", " @ ", "axis=", "[::-1]", "+=", "out=", "wl.scan", "wl.cond", "wl.while_loop", "argmax",
                  "np.linalg", "np.take", "np.sort", "keepdims", "% ", ".T", "np.stack", "for j in"):  # fmt: skip
        assert means in text, means
