"""Transformed functions are pickled and copied as how they were made, or by name; other processes run them."""

import concurrent.futures
import copy
import inspect
import multiprocessing
import pickle

import numpy as np
import pickled_functions as fs
import pytest

import wonderland as wl

X = np.array([0.3, 0.7, 1.1])
MADE = {
    "jit": lambda: wl.jit(fs.loss),
    "jit with options": lambda: wl.jit(fs.loss, static_argnums=1),
    "jit of grad": lambda: wl.jit(wl.grad(fs.loss)),
    "jit of vmap of grad": lambda: wl.jit(wl.vmap(wl.grad(fs.cubes))),
    "grad": lambda: wl.grad(fs.loss),
    "grad of grad": lambda: wl.jacobian(wl.grad(fs.loss)),
    "grad of several": lambda: wl.grad(fs.loss, argnums=(0,)),
    "grad within a budget": lambda: wl.grad(fs.loss, memory_budget=1e6),
    "value_and_grad": lambda: wl.value_and_grad(fs.loss_and_aux, 0, True),
    "vmap": lambda: wl.vmap(fs.cubes, in_axes=0, out_axes=0),
    "jacobian": lambda: wl.jacobian(fs.cubes, mode="reverse", chunk_size=2),
    "jacfwd": lambda: wl.jacfwd(fs.cubes, chunk_size=2),
    "elimination": lambda: wl.jacobian(fs.cubes, mode="elimination", order="markowitz"),
    "hessian": lambda: wl.hessian(fs.loss, strategy="reverse_over_reverse", chunk_size=2),
    "laplacian": lambda: wl.laplacian(fs.loss, method="hutchinson", key=wl.random.key(3), samples=4),
    "gauss_newton": lambda: wl.gauss_newton(fs.cubes, fs.square, chunk_size=1),
    "nth_derivative": lambda: wl.nth_derivative(fs.cubes, 2),
    "finite_difference": lambda: wl.finite_difference(fs.cubes, scheme="complex_step"),
    "checkpoint": lambda: wl.grad(wl.checkpoint(fs.loss, policy="products")),
    "lift": lambda: wl.lift(fs.residual),
    "lift of a gradient": lambda: wl.lift(wl.grad(fs.loss)),
    "grad of lift": lambda: wl.jacobian(wl.lift(fs.residual)),
    "trace": lambda: wl.trace(fs.cubes),
    "grad of a decorated function": lambda: wl.jacobian(fs.step),
    "jit of a decorated function": lambda: wl.jit(fs.plain_slope),
    "custom_jvp of cubes": lambda: wl.vmap(fs.cubes_alone),
    "sparse": lambda: wl.sparse.jacobian(fs.cubes, format="csc"),
    "sparse hessian": lambda: wl.sparse.hessian(fs.loss),
    "method": lambda: wl.jit(fs.Scale(2.0).times),
    "bound method": lambda: fs.Scale(2.0).times,
}
DECORATED = ("step", "slope", "plain_slope", "block", "filled", "soft", "clipped", "neighbours")


def shown(value):
    """A result, whatever it is, as something to compare."""
    return str(value.toarray() if hasattr(value, "toarray") else value)


@pytest.mark.parametrize("make", MADE.values(), ids=MADE.keys())
def test_what_transformations_return(make):
    f = make()
    expected = shown(f(X))
    for other in (pickle.loads(pickle.dumps(f)), pickle.loads(pickle.dumps(f, 2)), copy.copy(f), copy.deepcopy(f)):
        assert other is not f and type(other) is type(f)
        assert shown(other(X)) == expected
        assert getattr(other, "__name__", "") == getattr(f, "__name__", "")


@pytest.mark.parametrize("name", [*DECORATED, "Scale.times", "Scale.twice", "Scale.slope"])
def test_decorated_functions_go_by_name(name):
    f = fs
    for part in name.split("."):
        f = getattr(f, part)
    for protocol in (2, pickle.HIGHEST_PROTOCOL):
        assert pickle.loads(pickle.dumps(f, protocol)) is f
    assert copy.copy(f) is f and copy.deepcopy([f]) == [f]


def test_options_come_along():
    f = pickle.loads(pickle.dumps(wl.value_and_grad(fs.loss_and_aux, argnums=[0], has_aux=True)))
    (value, aux), (gradient,) = f(X)
    np.testing.assert_allclose(gradient, 3 * X**2)
    assert value == np.sum(X**3) and aux is not None
    f = pickle.loads(pickle.dumps(wl.vmap(fs.loss, in_axes=(1, None))))
    np.testing.assert_allclose(f(np.ones((4, 3)), 3), [4 * np.sin(1) ** 3] * 3)
    x = np.ones(3)
    assert pickle.loads(pickle.dumps(fs.scaled))(x, 3) is x and x[0] == 3
    assert wl.grad(pickle.loads(pickle.dumps(fs.soft)))(0.5) == 7 and wl.grad(fs.soft)(0.5) == 7
    assert wl.grad(pickle.loads(pickle.dumps(wl.jit(fs.clipped))))(0.5) == 5
    assert wl.grad(copy.deepcopy(fs.cubes_alone))(1.0) == 7
    bound = pickle.loads(pickle.dumps(fs.Scale(3.0).times))
    assert bound(2.0) == 6


def test_what_has_no_name_is_refused_by_pickle_with_its_name():
    def local(x):
        return x

    for f, name in ((lambda x: x, "<lambda>"), (local, "local")):
        for made in (wl.jit(f), wl.grad(f), wl.jit(wl.vmap(f)), wl.lift(f), wl.custom_jvp(f)):
            with pytest.raises((pickle.PicklingError, AttributeError), match=name):
                pickle.dumps(made)


def test_they_look_like_their_functions():
    f = wl.vmap(wl.grad(fs.loss))
    assert f.__name__ == "vmap(grad(loss))" and f.__doc__ == "A loss." and repr(f) == "<wl.vmap(grad(loss))>"
    assert f.__wrapped__.__wrapped__ is fs.loss and inspect.unwrap(f) is fs.loss
    assert inspect.signature(f) == inspect.signature(fs.loss)
    assert wl.lift(fs.loss).__name__ == "loss" and inspect.signature(wl.lift(fs.loss)) == inspect.signature(fs.loss)


def test_methods_that_are_transformed():
    scale = fs.Scale(3.0)
    assert scale.twice(2.0) == 12 and fs.Scale.twice(scale, 2.0) == 12
    assert wl.grad(scale.twice)(2.0) == 6
    assert scale.slope(2.0).factor == 12


def applied(f, x):
    return shown(f(x))


def test_other_processes_run_them():
    """Started anew (spawn), so that nothing is inherited."""
    made = ("jit of vmap of grad", "value_and_grad", "hessian", "checkpoint", "grad of lift", "custom_jvp of cubes")
    decorated = [getattr(fs, name) for name in DECORATED]
    calls = [(f, X) for f in (*(MADE[name]() for name in made), fs.renamed, *decorated)]
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        found = list(pool.map(applied, *zip(*calls, strict=True)))
    assert found == [applied(f, x) for f, x in calls]
