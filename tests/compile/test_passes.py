"""Passes: what a Program becomes, and what must not be simplified."""

import numpy as np
import pytest
from differential import Generator, assert_close, is_single, record

import wonderland as wl
from wonderland.compile import passes
from wonderland.core.primitive import Primitive
from wonderland.core.program import run, verify
from wonderland.ops import dot as dot_ops
from wonderland.ops import elementwise as ew
from wonderland.ops import math as math_ops
from wonderland.ops import shape as shape_ops

X = np.array([0.0, -0.0, 1.5, -2.0, np.inf, np.nan])


def optimized(f, *arrays):
    program = passes.optimize(record(f, *arrays))[-1][1]
    return verify(program)


def names(program):
    return [e.primitive.name for e in program.equations]


@pytest.mark.parametrize(
    "f, left",
    [
        (lambda x: ew.mul(x, 1.0), []),
        (lambda x: ew.mul(1.0, x), []),
        (lambda x: ew.div(x, 1.0), []),
        (lambda x: ew.sub(x, 0.0), []),
        (lambda x: ew.add(x, -0.0), []),
        (lambda x: ew.neg(ew.neg(x)), []),
        (lambda x: math_ops.pow(x, 1.0), []),
        (lambda x: ew.stop_gradient(x), []),
        (lambda x: ew.where(ew.gt(x, 0.0), x, x), []),
        (lambda x: ew.mul(x, -1.0), ["neg"]),
        (lambda x: math_ops.pow(x, 2.0), ["mul"]),
        (lambda x: ew.add(x, ew.neg(x)), ["sub"]),
        (lambda x: ew.mul(x, ew.add(1.0, 2.0)), ["mul"]),
        (lambda x: ew.add(x, 0.0), ["add"]),  # -0.0 + 0.0 is 0.0
        (lambda x: ew.mul(x, 0.0), ["mul"]),  # NaN, infinities, signs
        (lambda x: ew.sub(x, x), ["sub"]),
        (lambda x: ew.div(x, x), ["div"]),
        (lambda x: shape_ops.reshape(shape_ops.reshape(x, shape=(2, 3)), shape=(6,)), []),
        (lambda x: shape_ops.broadcast(x, shape=(6,)), []),
        (
            lambda x: shape_ops.convert(shape_ops.convert(x, dtype=np.dtype("f4")), dtype=np.dtype("f8")),
            ["convert"] * 2,
        ),
    ],
)
def test_simplification_is_exact(f, left):
    program = optimized(f, X)
    assert names(program) == left
    with np.errstate(all="ignore"):
        before, after = run(record(f, X), [X])[0], run(program, [X])[0]
    np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(np.signbit(before[:5]), np.signbit(after[:5]))


def test_integers_have_more_rules_and_complex_numbers_fewer():
    assert names(optimized(lambda n: ew.add(n, 0), np.arange(3))) == []
    assert names(optimized(lambda z: ew.conj(z), np.ones(2) * 1j)) == ["conj"]
    assert names(optimized(lambda x: ew.conj(x), X)) == []


def test_transposes_cancel():
    x = np.zeros((2, 3, 4))

    def f(x):
        return shape_ops.transpose(shape_ops.transpose(x, permutation=(2, 0, 1)), permutation=(1, 2, 0))

    assert names(optimized(f, x)) == []
    assert names(optimized(lambda x: shape_ops.convert(x, dtype=np.dtype("f8")), x)) == []


def test_equal_equations_are_shared_and_dead_ones_dropped():
    def f(x):
        ew.cos(x)
        return ew.add(ew.sin(x), ew.sin(x))

    assert names(optimized(f, X)) == ["sin", "add"]


def test_calls_are_inlined_with_variables_of_their_own():
    inner = record(lambda x: ew.add(ew.sin(x), 0.5), X)
    call = Primitive("call_for_a_test", lambda x, program: run(program, [x])[0], lambda x, program: x)
    call.inline = lambda params: params["program"]
    program = optimized(lambda x: ew.mul(call(x, program=inner), call(ew.neg(x), program=inner)), X)
    assert names(program).count("sin") == 2 and "call_for_a_test" not in names(program)
    x = np.arange(6.0)
    np.testing.assert_allclose(run(program, [x])[0], (np.sin(x) + 0.5) * (np.sin(-x) + 0.5))


def test_random_programs_keep_their_meaning():
    for seed in range(40):
        program, arrays = Generator(1000 + seed).program(20)
        simplified = verify(passes.optimize(program)[-1][1])
        with np.errstate(all="ignore"):
            for a, b in zip(run(program, arrays), run(simplified, arrays), strict=True):
                assert_close(b, a, f"seed {seed}\n{program}", is_single(program))


def test_a_transposed_product_is_a_product():
    x, y = np.arange(24.0).reshape(2, 3, 4), np.arange(40.0).reshape(2, 4, 5)

    def f(x, y):
        product = dot_ops.dot(x, y, contract=((2,), (1,)), batch=((0,), (0,)))
        return shape_ops.transpose(product, permutation=(0, 2, 1))

    program = optimized(f, x, y)
    assert names(program) == ["dot"]
    np.testing.assert_array_equal(run(program, [x, y])[0], np.transpose(x @ y, (0, 2, 1)))

    def both(x, y):
        product = dot_ops.dot(x, y, contract=((2,), (1,)), batch=((0,), (0,)))
        return product, shape_ops.transpose(product, permutation=(0, 2, 1))

    assert names(optimized(both, x, y)) == ["dot", "transpose"]


@pytest.mark.parametrize(
    ("f", "products", "transposes"),
    [
        (lambda x, y: x @ y + (x @ y).T, 1, 1),
        (lambda x, y: (x @ y).T + x @ y, 1, 1),
        (lambda x, y: ((x @ y).T, (x @ y).T + 1), 1, 0),
        (lambda x, y: (x @ y).T @ y, 2, 0),
    ],
)
def test_equal_products_are_one_before_a_transpose_is_sunk(f, products, transposes):
    x, y = np.random.default_rng(0).standard_normal((2, 40, 40))
    names = [e.primitive.name for e in wl.jit(f).inspect(x, y).program.equations]
    assert (names.count("dot"), names.count("transpose")) == (products, transposes)
    wl.tree_map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12), wl.jit(f)(x, y), f(x, y))
