"""NETWORKS 1, statements 5 to 8 and 13: derivatives, sharing, captured Modules, levels, the cost of a call."""

import copy
import threading
import time

import numpy as np
import pytest
from networks import Dropout, Linear, Net, Norm, X, arrays, assert_same, loss

import wonderland as wl
from wonderland import nn
from wonderland.core import tree

RUNS = pytest.mark.parametrize("run", [lambda f: f, wl.jit], ids=["eager", "jit"])


def numeric(f, model, name, h=1e-6):
    """The gradient of f(model) by differences, with respect to one array."""
    array = model.state()[name]
    out = np.zeros(array.shape)
    for i in np.ndindex(*array.shape):
        old = array[i]
        values = []
        for step in (h, -h):
            array[i] = old + step
            values.append(float(f(model)))
        array[i] = old
        out[i] = (values[0] - values[1]) / (2 * h)
    return out


# 5 Derivatives


@RUNS
def test_a_gradient_has_the_shape_of_the_module(run):
    net = Net().eval()
    gradient = run(wl.grad(loss))(net)
    assert type(gradient) is Net and type(gradient.first) is Linear
    assert gradient.norm.mean is None and gradient.norm.calls is None
    for name, array in gradient.named_parameters():
        np.testing.assert_allclose(array, numeric(loss, net, name), rtol=1e-6, atol=1e-8, err_msg=name)
    assert [n for n, _ in gradient.named_parameters()] == [n for n, _ in net.named_parameters()]
    assert not list(gradient.named_buffers())


@RUNS
def test_trees_pair_by_trainable_names(run):
    net = Net()
    gradient = wl.grad(loss)(net)
    net.eval()  # toggled in between
    stepped = run(lambda m, g: wl.tree_map(lambda p, g: p - 0.1 * g, m, g))(net, gradient)
    for name, array in stepped.named_parameters():
        np.testing.assert_allclose(array, net.state()[name] - 0.1 * gradient.state()[name])
    assert stepped.layers[2].weight is stepped.first.weight
    assert stepped.norm.calls == 1 and stepped.norm.calls is not net.norm.calls  # the rest is copied
    stepped.norm.mean += 1
    assert net.norm.mean[0] != stepped.norm.mean[0]
    total = wl.tree_map(lambda a, b: a + b, gradient, gradient)
    np.testing.assert_allclose(total.first.weight, 2 * gradient.first.weight)
    net.freeze("heads.*")
    with pytest.raises(ValueError, match=r"differ in what is trained.*heads.a.weight"):
        wl.tree_map(lambda p, g: p, net, gradient)
    assert len(wl.tree_leaves(wl.tree_map(lambda p: p, net))) == len(net.state())


def directional(net, tangent):
    return sum(np.sum(g * tangent.state()[name]) for name, g in wl.grad(loss)(net).named_parameters())


@RUNS
def test_jvp_vjp_linearize(run):
    net = Net().eval()
    tangent = wl.tree_map(lambda p: np.cos(p), net)
    slope = directional(net, tangent)
    bare = wl.grad(lambda m: sum(np.sum(np.sin(p)) for p in m.parameters()))(net)  # cos, with None for buffers
    np.testing.assert_allclose(directional(net, bare), slope)
    for given in (tangent, bare):
        np.testing.assert_allclose(run(lambda m, t: wl.jvp(loss, (m,), (t,))[1])(net, given), slope)
        np.testing.assert_allclose(run(lambda m, t: wl.linearize(loss, m)[1](t))(net, given), slope)
    pulled = run(lambda m: wl.vjp(loss, m)[1](1.0)[0])(net)
    assert_same(arrays(pulled), arrays(wl.grad(loss)(net)))
    net.freeze("*")
    with pytest.raises(wl.ArgumentError, match="the tangent of argument 0: trees differ in what is trained"):
        wl.jvp(loss, (net,), (bare,))


@pytest.mark.parametrize("strategy", ["forward_over_reverse", "reverse_over_forward", "reverse_over_reverse"])
@RUNS
def test_second_derivatives(run, strategy):
    net = Net(2).eval()
    net.freeze("heads.*")
    x = X[:, :2]
    f = lambda m: loss(m, x)
    v = wl.tree_map(lambda p: np.cos(3 * p), net)
    product = run(lambda m, v: wl.hvp(f, (m,), (v,), strategy))(net, v)
    assert product.heads["a"].weight is None and product.norm.mean is None
    g = lambda m: sum(np.sum(a * v.state()[n]) for n, a in wl.grad(f)(m).named_parameters())
    for name, array in product.named_parameters():
        np.testing.assert_allclose(array, numeric(g, net, name), rtol=1e-5, atol=1e-6, err_msg=name)
    again = wl.hvp_at(f, net)(v)
    assert_same(arrays(again), arrays(product))


@RUNS
def test_a_hessian_is_a_module_of_modules(run):
    net = Net(2).eval()
    net.freeze("heads.*")
    f = lambda m: loss(m, X[:, :2])
    hessian = run(wl.hessian(f))(net)
    assert type(hessian.first.weight) is Net and hessian.heads["a"].bias is None and hessian.norm.mean is None
    v = wl.tree_map(lambda p: np.cos(3 * p), net)
    product = wl.hvp(f, (net,), (v,))
    names = [n for n, _ in net.named_parameters(trainable=True)]
    rows = {"first.weight": hessian.first.weight, "layers.0.bias": hessian.layers[0].bias}
    for name, row in rows.items():
        found = sum(np.tensordot(row.state()[n], v.state()[n], v.state()[n].ndim) for n in names)
        np.testing.assert_allclose(found, product.state()[name], rtol=1e-9, atol=1e-12)
    assert hessian.layers[2].weight is hessian.first.weight


@RUNS
def test_jacobians(run):
    net = Net().eval()
    f = lambda m: m(X)[0]
    for mode in ("forward", "reverse"):
        jacobian = run(wl.jacobian(f, mode=mode))(net)
        assert jacobian.norm.calls is None and jacobian.first.weight.shape == (2, 3, 3)
        gradient = wl.grad(lambda m: f(m)[1])(net)
        for name, array in gradient.named_parameters():
            np.testing.assert_allclose(jacobian.state()[name][1], array, rtol=1e-10, atol=1e-13)
    slow = wl.finite_difference(f)(net)
    assert slow.norm.mean is None
    np.testing.assert_allclose(slow.first.weight, jacobian.first.weight, rtol=1e-5, atol=1e-7)


LATER = {
    "plain": lambda m: np.sum(m.weight**2),
    "jit": lambda m: wl.jit(lambda m: np.sum(m.weight**2))(m),
    "checkpoint": lambda m: wl.checkpoint(lambda m: np.sum(m.weight**2))(m),
    "scan": lambda m: wl.scan(lambda c, row: (c + np.sum(row**2), None), 0.0, m.weight)[0],
    "cond": lambda m: wl.cond(m.bias[0] > -9, lambda m: np.sum(m.weight**2), lambda m: 0.0, m),
    "a view": lambda m: np.sum(m.weight.T[:] * m.weight.reshape(2, 2).T),
    "carried": lambda m: wl.fori_loop(0, 1, lambda i, c: (c[0], c[1] + np.sum(c[0].weight ** 2)), (m, 0.0))[1],
}


@pytest.mark.parametrize("name", LATER)
@pytest.mark.parametrize("outer", [lambda f: f, wl.jit], ids=["eager", "jit"])
def test_what_vjp_and_linearize_keep_is_the_value_of_that_time(name, outer):
    f = outer(LATER[name])
    model = Linear(2, 2)
    expected, tangent = 2 * model.weight, wl.tree_map(np.ones_like, model)
    _, pull = wl.vjp(f, model)
    _, push = wl.linearize(f, model)
    model.weight *= 10
    model.bias += 1
    np.testing.assert_allclose(pull(1.0)[0].weight, expected)
    np.testing.assert_allclose(push(tangent), np.sum(expected))


def test_a_function_that_updates_the_model_itself():
    model = Linear(2, 2)
    expected = 2 * model.weight

    def f(m):
        value = np.sum(m.weight**2)
        m.weight = m.weight * 5.0
        return value

    _, pull = wl.vjp(f, model)
    model.weight[...] = 0.0
    np.testing.assert_allclose(pull(1.0)[0].weight, expected)


@RUNS
def test_an_argument_that_is_returned_is_the_callers_object(run):
    net = Net()

    def step(net, x):
        out = net(x)
        return {"net": net, "layer": [net.layers[2], 1.0]}, np.sum(out)

    transform = run if run is wl.jit else lambda f: lambda *args: wl.vjp(f, *args)[0]
    for _ in range(3):
        found, _ = transform(step)(net, X)
        assert found["net"] is net and found["layer"][0] is net.layers[2]
    assert net.norm.calls == 3
    (_, aux), gradient = run(wl.value_and_grad(lambda m: (loss(m), m), has_aux=True))(net)
    assert aux is net and gradient is not net


@RUNS
def test_a_module_made_by_the_function_is_a_result(run):
    def f(x):
        made = Linear(2, 2)
        made.weight = made.weight * x
        return made

    made = run(f)(2.0)
    assert type(made) is Linear and type(made.weight) is np.ndarray
    np.testing.assert_allclose(made.weight, 2 * Linear(2, 2).weight)


# 6 Sharing


@wl.register_mutable
class Anyone:
    """A class of anyone's, which isn't a Module."""

    def __init__(self, **attributes):
        vars(self).update(attributes)


def owners():
    w = np.array([1.0, 2.0])
    yield "Anyone", Anyone(a=w, b={"c": [w]})
    inner = Anyone(w=w)
    yield "Anyone twice", Anyone(a=inner, b={"c": [inner]})
    model = nn.Module()
    model.a, model.b = w, {"c": [w]}
    yield "Module", model


@RUNS
@pytest.mark.parametrize("number", range(3))
def test_one_array_in_two_places_is_one_leaf(run, number):
    name, model = [*owners()][number]
    get = (lambda m: (m.a.w, m.b["c"][0].w)) if name == "Anyone twice" else (lambda m: (m.a, m.b["c"][0]))

    def f(m):
        first, second = get(m)
        return np.sum(first * second) + np.sum(second)  # w^2 + w

    assert len(tree.leaves(model)) == 1
    gradient = run(wl.grad(f))(model)
    one, other = get(gradient)
    assert one is other
    np.testing.assert_array_equal(one, [3.0, 5.0])

    def step(m):
        w = get(m)[0]
        w -= 0.5
        return np.sum(get(m)[1])

    held = get(model)[0]
    update = wl.jit(step) if run is wl.jit else lambda m: wl.vjp(step, m)[0]
    assert update(model) == 2.0 and update(model) == 1.0
    assert get(model)[0] is held and get(model)[1] is held and held.tolist() == [0.0, 1.0]
    other = copy.deepcopy(model)
    assert get(other)[0] is get(other)[1]


def test_shared_submodules_in_lists_of_dicts():
    layer = Linear(3, 3)
    model = nn.Module()
    model.stages = [{"x": layer, "y": Norm(3)}, {"x": layer, "z": [layer, (layer,)]}]

    def f(m):
        x = X
        for stage in m.stages:
            x = np.tanh(stage["x"](x))
        return np.sum(m.stages[1]["z"][1][0](x) ** 2)

    assert [n for n, _ in model.named_parameters()] == ["stages.0.x.weight", "stages.0.x.bias", "stages.0.y.gamma"]
    for run in (lambda f: f, wl.jit):
        gradient = run(wl.grad(f))(model)
        assert gradient.stages[1]["z"][0] is gradient.stages[0]["x"]
        expected = numeric(f, model, "stages.0.x.weight")
        np.testing.assert_allclose(gradient.stages[0]["x"].weight, expected, rtol=1e-6, atol=1e-8)


def test_a_module_that_holds_its_parents_weight():
    class Child(nn.Module):
        def __init__(self, table):
            self.table = table

    class Parent(nn.Module):
        def __init__(self):
            self.table = np.array([1.0, 2.0])
            self.child = Child(self.table)
            self.deep = [{"c": Child(self.table)}]

    f = lambda m: np.sum(m.table * m.child.table * m.deep[0]["c"].table)
    model = Parent()
    for run in (lambda f: f, wl.jit):
        gradient = run(wl.grad(f))(model)
        np.testing.assert_array_equal(gradient.child.table, [3.0, 12.0])
        assert gradient.child.table is gradient.table is gradient.deep[0]["c"].table


@RUNS
def test_overlapping_arrays_raise(run):
    model = nn.Module()
    model.qkv = np.arange(6.0)
    model.q = model.qkv[:2]
    with pytest.raises(wl.MutationError, match=r"qkv and q of an argument.*hold the same array object.*otherwise copy"):
        run(wl.grad(lambda m: np.sum(m.qkv) + np.sum(m.q)))(model)
    model.q = model.qkv[:]  # the same memory, another object
    with pytest.raises(wl.MutationError, match="share memory"):
        run(wl.grad(lambda m: np.sum(m.qkv) + np.sum(m.q)))(model)
    model.q = model.qkv[:2].copy()
    run(wl.grad(lambda m: np.sum(m.qkv) + np.sum(m.q)))(model)
    whole = np.arange(6.0)
    model.q, model.qkv = whole[:2], whole[2:]  # neighbours
    run(wl.grad(lambda m: np.sum(m.qkv) + np.sum(m.q)))(model)


def test_sharing_that_changes_between_calls_is_seen():
    net = Net()
    f = wl.jit(lambda m: wl.grad(loss)(m))
    step = wl.jit(lambda m: [p.__isub__(0.01) for p in m.parameters()] and None)
    for _ in range(2):
        step(net)
        f(net)
    net.layers[2].weight = net.first.weight.copy()  # untied
    gradient = f(net)
    assert gradient.layers[2].weight is not gradient.first.weight
    step(net)
    np.testing.assert_allclose(net.layers[2].weight, net.first.weight)
    net.layers[2].weight = net.first.weight  # tied again: a second update would show
    before = net.first.weight.copy()
    step(net)
    np.testing.assert_allclose(net.first.weight, before - 0.01)


def test_sharing_is_seen_by_what_writes_nothing():
    model = nn.Module()
    model.a, model.b = np.ones(3), np.ones(3)
    f = wl.jit(wl.grad(lambda m, other: np.sum(m.a**2) + np.sum(m.b**3) + np.sum(other.a)))
    for _ in range(2):
        f(model, model)  # sharing between arguments is none
        model.b = model.a
        gradient = f(model, model)
        assert gradient.a is gradient.b
        np.testing.assert_array_equal(gradient.a, 5.0)
        model.b = np.ones(3)
        np.testing.assert_array_equal(f(model, model).b, 3.0)
    model.b = np.ones(5)[1:4]
    f(model, model)
    model.b = model.a[:]
    with pytest.raises(wl.MutationError, match="share memory"):
        f(model, model)


def test_shared_between_arguments_is_refused_when_written():
    net = Net()

    def step(a, b):
        a.first.weight -= 1.0
        return np.sum(b.first.weight)

    for f in (wl.jit(step), lambda a, b: wl.vjp(step, a, b)):
        with pytest.raises(wl.MutationError, match=r"two places.*Pass it once"):
            f(net, net)


def test_models_in_a_tuple_share_inside_of_one_argument():
    a, b = Linear(2, 2), Linear(2, 2)
    b.weight = a.weight
    for run in (lambda f: f, wl.jit):
        one, other = run(wl.grad(lambda p: np.sum(p[0].weight * p[1].weight)))((a, b))
        assert one.weight is other.weight
        np.testing.assert_allclose(one.weight, 2 * a.weight)


# 7 Captured Modules


def test_a_jitted_module_is_an_argument():
    model = Net()
    expected = copy.deepcopy(model)
    f = wl.jit(model)
    for i in range(3):
        np.testing.assert_allclose(f(X), expected(X))
        assert model.norm.calls == i + 1
        for m in (model, expected):
            m.norm.gamma *= 2
            m.first.weight = m.first.weight + 0.1 if i == 1 else m.first.weight
    g = wl.jit(model.loss)
    np.testing.assert_allclose(g(X), loss(expected))
    np.testing.assert_allclose(g(x=X), loss(expected))
    assert model.norm.calls == 5


def test_a_jitted_dropout_draws_new_masks():
    model, f = Dropout(), None
    expected = copy.deepcopy(model)
    f = wl.jit(model)
    masks = [f(np.ones(32)) for _ in range(3)]
    for mask in masks:
        np.testing.assert_array_equal(mask, expected(np.ones(32)))
    assert not np.array_equal(masks[0], masks[1])


TRANSFORMED = {
    "grad": lambda f: wl.grad(f)(X),
    "value_and_grad": lambda f: wl.value_and_grad(f)(X)[1],
    "jit of grad": lambda f: wl.jit(wl.grad(f))(X),
    "grad of jit": lambda f: wl.grad(wl.jit(f))(X),
    "jit of grad of jit": lambda f: wl.jit(wl.grad(wl.jit(f)))(X),
    "vjp": lambda f: wl.vjp(f, X)[1](1.0)[0],
    "jacobian": lambda f: wl.jacobian(f)(X),
    "grad of checkpoint": lambda f: wl.grad(wl.checkpoint(f))(X),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_transformations_of_a_bound_method_write_its_buffers(name):
    model, other = Net(), Net()
    expected = wl.grad(loss, argnums=1)(other, X)
    np.testing.assert_allclose(TRANSFORMED[name](model.loss), expected, rtol=1e-12)
    assert_same(arrays(model), arrays(other))
    assert model.norm.calls == 1


def test_options_of_a_jitted_method():
    class Model(nn.Module):
        def __init__(self):
            self.w = np.ones(2)

        def power(self, x, n, *, flag=False):
            return np.sum(self.w * x**n) if n > 1 or flag else 0.0

    model = Model()
    f = wl.jit(model.power, static_argnums=1, static_argnames="flag")
    assert f(2.0, 3) == 16.0 and f(2.0, 1) == 0.0 and f(2.0, n=1, flag=True) == 4.0
    assert f.__name__ == "power" and "power" in repr(f.func)


def test_a_module_captured_by_a_closure_is_read():
    class Scale(nn.Module):
        def __init__(self):
            self.gamma, self.variance = np.full(3, 2.0), nn.Buffer(np.full(3, 4.0))
            self.tables = [np.ones(3)]

        def __call__(self, x):
            factor = self.gamma / np.sqrt(self.variance) * self.tables[0]  # of weights alone
            return x * factor

    model = Scale().eval()
    f, g = wl.jit(lambda x: model(x)), wl.jit(lambda x: wl.grad(lambda m: np.sum(m(x)))(model).gamma)
    np.testing.assert_allclose(f(X), X)
    np.testing.assert_allclose(g(X), X.sum(0) / 2, atol=1e-15)
    model.gamma *= 5
    np.testing.assert_allclose(f(X), 5 * X)
    model.variance *= 4
    np.testing.assert_allclose(g(X), X.sum(0) / 4, atol=1e-15)
    model.tables[0] *= 3
    np.testing.assert_allclose(f(X), 7.5 * X)
    assert "__getattribute__" not in vars(nn.Module)  # only while something is recorded


def test_a_write_to_a_captured_module_raises():
    model = Net()
    before = arrays(model)
    inner = wl.jit(lambda x: model(x))
    with pytest.raises(wl.MutationError, match=r"Norm.mean is assigned.*wl.jit\(model\)"):
        inner(X)
    with pytest.raises(wl.MutationError, match=r"Norm.mean is assigned a traced value"):
        wl.grad(lambda x: np.sum(model(x)))(X)

    def in_place(x):
        model.first.weight[0] = 3.0
        return x

    def rebind(x):
        model.first.weight = np.zeros((3, 3))
        return x

    def static(x):
        model.first.scale = 2.0
        return x

    def augmented(x):
        model.first.weight *= 2
        return x

    for f in (in_place, rebind, static, augmented):
        with pytest.raises(wl.MutationError):
            wl.jit(f)(X)
    assert_same(arrays(model), before)


# 8 Levels


def bodies(model):
    """Functions that write to a Module from inside a level that doesn't get it."""
    norm = model.norm
    yield "scan", lambda x: wl.scan(lambda c, row: (c + np.sum(norm(row[None])), None), 0.0, x)[0]
    yield "cond", lambda x: wl.cond(x[0, 0] < 5, lambda x: np.sum(norm(x)), lambda x: 0.0, x)
    yield "vmap", lambda x: np.sum(wl.vmap(lambda row: norm(row[None])[0])(x))
    yield "while_loop", lambda x: wl.while_loop(lambda c: c < 1, lambda c: c + 2 + 0 * np.sum(norm(x)), 0.0)
    yield "fori_loop", lambda x: wl.fori_loop(0, 2, lambda i, c: c + np.sum(norm(x)), 0.0)
    yield "checkpoint", lambda x: wl.checkpoint(lambda x: np.sum(norm(x)))(x)


@pytest.mark.parametrize("number", range(6))
@RUNS
def test_a_write_from_an_inner_level_raises_at_that_line(run, number):
    model = Net()

    def step(model, x):
        _, f = [*bodies(model)][number]
        return f(x)

    transform = run if run is wl.jit else wl.value_and_grad
    with pytest.raises(wl.MutationError, match=r"Norm.mean is assigned|wrote to a Norm|written"):
        transform(step)(model, X)
    assert model.norm.calls == 0 and type(model.norm.mean) is np.ndarray


def test_dropout_captured_by_vmap_raises():
    model = Dropout()
    for run in (lambda f: f, wl.jit):
        with pytest.raises(wl.MutationError, match=r"Dropout.key is assigned"):
            run(lambda m, x: wl.vmap(lambda row: m(row))(x))(model, X)


@RUNS
def test_vmap_writes_batched_buffers_only(run):
    model = Norm(3)
    with pytest.raises(wl.MutationError, match=r"inside vmap.*isn't batched.*nn.stack"):
        run(wl.vmap(lambda m, x: m(x), in_axes=(None, 0)))(model, X[None])
    drop = Dropout()
    with pytest.raises(wl.MutationError, match="written, once for the whole batch"):
        run(wl.vmap(lambda m, x: m(x), in_axes=(None, 0)))(drop, X)
    np.testing.assert_array_equal(run(wl.vmap(lambda m, x: m(x), in_axes=(None, 0)))(drop.eval(), X), X)
    last = wl.tree_map(lambda p: p, nn.stack([Norm(3), Norm(3)]))
    leaves, structure = tree.flatten(last)
    moved = structure.unflatten([np.moveaxis(leaf, 0, -1).copy() for leaf in leaves])
    run(wl.vmap(lambda m, x: m(x), in_axes=(-1, None)))(moved, X)
    assert moved.mean.shape == (3, 2) and moved.calls.tolist() == [1, 1]
    np.testing.assert_allclose(moved.mean[:, 0], 0.1 * X.mean(0))


def stateful():
    model = nn.Module()
    model.norm, model.drop, model.linear = Norm(3), Dropout(0.3), Linear(3, 3)
    model.again = model.linear  # shared
    return model


def apply(model, x):
    return np.tanh(model.again(model.drop(model.norm(model.linear(x)))))


@RUNS
@pytest.mark.parametrize("loop", ["scan", "fori_loop", "while_loop"])
def test_loops_carry_modules(run, loop):
    expected, x = stateful(), X
    for _ in range(3):
        x = apply(expected, x)

    def looped(model, x):
        if loop == "scan":
            (same, x), _ = wl.scan(lambda c, _: ((c[0], apply(*c)), None), (model, x), length=3)
        elif loop == "fori_loop":
            same, x = wl.fori_loop(0, 3, lambda i, c: (c[0], apply(*c)), (model, x))
        else:
            body = lambda c: (c[0], (c[1][0], apply(c[1][0], c[1][1])), c[2] + 1)
            _, (same, x), _ = wl.while_loop(lambda c: c[2] < 3, body, (0.0, (model, x), 0))
        assert same is model  # the caller's object
        return x

    model = stateful()
    np.testing.assert_allclose(run(looped)(model, X), x, rtol=1e-12)
    assert_same(arrays(model), arrays(expected))
    model = stateful()
    gradient = run(wl.grad(lambda m: np.sum(looped(m, X) ** 2)))(model)
    assert_same(arrays(model), arrays(expected))

    def plain(m):
        x = X
        for _ in range(3):
            x = apply(m, x)
        return np.sum(x**2)

    assert_same(arrays(gradient), arrays(wl.grad(plain)(stateful())))


@RUNS
def test_weights_that_a_loop_leaves_alone_are_constants_of_it(run):
    model = stateful().eval()
    program = wl.trace(lambda m, x: wl.scan(lambda c, _: ((c[0], apply(*c)), None), (m, x), length=3)[0][1])(model, X)
    (scan,) = [e for e in program.equations if e.primitive.name == "scan"]
    assert scan.params["n_carry"] == 1


@RUNS
def test_loops_over_bound_methods(run):
    class Cell(nn.Module):
        def __init__(self):
            self.w, self.count = np.full(3, 0.5), nn.Buffer(np.array(0))

        def __call__(self, h, x):
            self.count = self.count + 1
            return np.tanh(self.w * h + x), h

        def step(self, i, h):
            self.count = self.count + 1
            return h * self.w

    def loop(model, x):
        h, hs = wl.scan(model, np.zeros(3), x)
        return np.sum(wl.fori_loop(0, 2, model.step, h)) + np.sum(hs)

    def plain(model, x):
        h, total = np.zeros(3), 0.0
        for row in x:
            h, y = model(h, row)
            total = total + np.sum(y)
        return np.sum(h * model.w**2) + total

    model = Cell()
    value, gradient = run(wl.value_and_grad(loop))(model, X)
    expected = wl.value_and_grad(plain)(Cell(), X)
    np.testing.assert_allclose(value, expected[0])
    np.testing.assert_allclose(gradient.w, expected[1].w)
    assert model.count == 6


@RUNS
def test_branches_write_to_modules(run):
    def f(model, x, flag):
        used = lambda m, x: np.sum(m(x))
        return wl.cond(flag, used, lambda m, x: np.sum(m.gamma * x), model, x)

    for flag in (True, False):
        model, other = Norm(3), Norm(3)
        value, gradient = run(wl.value_and_grad(f))(model, X, np.bool_(flag))
        expected = wl.value_and_grad(lambda m, flag=flag: np.sum(m(X) if flag else m.gamma * X))(other)
        np.testing.assert_allclose(value, expected[0], atol=1e-12)
        np.testing.assert_allclose(gradient.gamma, expected[1].gamma, atol=1e-12)
        assert_same(arrays(model), arrays(other))
        chosen = Norm(3)
        run(lambda m, flag: wl.cond(flag, m, lambda x: x, X))(chosen, np.bool_(flag))  # the branch is the Module
        assert chosen.calls == int(flag)


@RUNS
def test_checkpoint_writes_once_and_has_the_same_masks(run):
    def f(model, x):
        for _ in range(2):
            x = wl.checkpoint(apply)(model, x)
        return np.sum(x**2)

    def plain(model, x):
        return np.sum(apply(model, apply(model, x)) ** 2)

    model, other = stateful(), stateful()
    gradient = run(wl.grad(f))(model, X)
    expected = wl.grad(plain)(other, X)
    assert_same(arrays(model), arrays(other))
    assert_same(arrays(gradient), arrays(expected))
    assert model.norm.calls == 2
    method = run(lambda m: wl.grad(lambda m: np.sum(wl.checkpoint(m.norm)(X)))(m))(model)
    assert model.norm.calls == 3 and method.norm.gamma is not None


# Done when 2: hostile models


def test_exceptions_inside_a_step_leave_everything_as_it_was():
    net = Net()
    before = arrays(net)

    def step(net, x, fail):
        net.first.weight -= 1.0
        net(x)
        if fail:
            raise RuntimeError("stop")
        return np.linalg.cholesky(x @ x.T * 0 - np.eye(4))

    for f in (lambda *a: wl.vjp(step, *a), wl.jit(step, static_argnums=2)):
        with pytest.raises(RuntimeError, match="stop"):
            f(net, X, True)
        assert_same(arrays(net), before)
    with pytest.raises(np.linalg.LinAlgError):
        wl.jit(step, static_argnums=2)(net, X, False)
    assert_same(arrays(net), before)


def sgd(net, x, rate=0.01):
    value, grads = wl.value_and_grad(loss)(net, x)
    for (_, p), (_, g) in zip(net.named_parameters(trainable=True), grads.named_parameters(), strict=True):
        p -= rate * g
    return value


def test_two_threads_train_two_copies():
    step = wl.jit(sgd)
    start = Net()
    models = [copy.deepcopy(start) for _ in range(2)]
    reference = copy.deepcopy(start)
    for _ in range(30):
        step(reference, X)
    errors = []

    def train(model):
        try:
            for _ in range(30):
                step(model, X)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=train, args=(model,)) for model in models]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not errors
    for model in models:
        assert_same(arrays(model), arrays(reference))


def test_vmap_of_a_whole_training_step():
    models = []
    for seed in range(3):
        net = Net()
        for i, array in enumerate(net.parameters()):
            array += 0.1 * np.random.default_rng([seed, i]).standard_normal(array.shape)
        models.append(net)
    ensemble = nn.stack(models)
    step = wl.jit(wl.vmap(sgd, in_axes=(0, None)))
    single = wl.jit(sgd)
    for _ in range(5):
        values = step(ensemble, X)
        np.testing.assert_allclose(values, [single(m, X) for m in models], rtol=1e-10)
    for trained, expected in zip(nn.unstack(ensemble), models, strict=True):
        assert_same(arrays(trained), arrays(expected))


def test_eager_and_jitted_steps_agree():
    a, b = Net(), Net()
    step = wl.jit(sgd)
    for _ in range(4):
        np.testing.assert_allclose(step(a, X), sgd(b, X), rtol=1e-12)
    assert_same(arrays(a), arrays(b))
    assert a.layers[2].weight is a.first.weight


def test_ravel_of_a_module_is_of_what_is_trained():
    net = Net().eval()
    net.freeze("heads.*")
    vector, unravel = wl.tree_ravel(net)
    assert vector.size == sum(p.size for p in net.parameters(trainable=True))
    again = unravel(vector)
    assert_same(arrays(again), arrays(net))
    gradient = wl.grad(lambda v: loss(unravel(v)))(vector)
    np.testing.assert_allclose(gradient, wl.tree_ravel(wl.grad(loss)(net))[0])


# 13 Cost


def test_the_cost_of_a_call_on_a_hundred_layers():
    class Deep(nn.Module):
        def __init__(self):
            self.layers = [Linear(4, 4, i) for i in range(100)]

        def __call__(self, x):
            for layer in self.layers:
                x = x + np.tanh(layer(x))
            return x

    model, x = Deep(), np.ones((2, 4))
    f = wl.jit(lambda m, x: m(x))
    f(model, x)
    f(model, x)
    ((_, read, _),) = f._fast[2]
    times = []
    for _ in range(200):
        start = time.perf_counter()
        read((model, x), {})
        times.append(time.perf_counter() - start)
    assert min(times) < 60e-6  # about 10 us on a quiet machine
    calls = []
    original = f._prepare
    f._prepare = lambda *args: (calls.append(1), original(*args))[1]
    f(model, x)
    model.layers[7].weight += 1.0
    model.eval().train()
    f(model, x)
    f(copy.deepcopy(model), x)
    assert not calls


def test_a_step_that_returns_the_model_has_a_fast_path():
    def step(a, b, x):
        a(x)
        a.first.weight *= 0.5
        return a, {"layer": b.layers[2]}, np.sum(x)

    f, a, b = wl.jit(step), Net(), Net()
    f(a, b, X)
    calls = []
    original = f._prepare
    f._prepare = lambda *args: (calls.append(1), original(*args))[1]
    for one, other in ((a, b), (Net(), b), (b, Net())):
        first, second, total = f(one, other, X)
        assert first is one and second["layer"] is other.layers[2]
        np.testing.assert_allclose(total, X.sum(), atol=1e-12)
    assert not calls
    only = wl.jit(lambda m: m)
    assert only(a) is a and only(a) is a and only(b) is b


SECOND = {
    "hvp": lambda f, *rest: wl.hvp(f, (X, *rest), (X, *[None for _ in rest])),
    "hessian": lambda f, *rest: np.tensordot(wl.hessian(f)(X, *rest), X, 2),
    "hvp_at": lambda f, *rest: wl.hvp_at(f, X, *rest)(X),
    "jacobian of grad": lambda f, *rest: np.tensordot(wl.jacobian(wl.grad(f))(X, *rest), X, 2),
}


@pytest.mark.parametrize("name", SECOND)
@RUNS
def test_second_derivatives_of_bound_methods_write_once(run, name):
    model, other, plain = Net(), Net(), Net()
    f = SECOND[name]
    by_method = run(lambda m: f(m.loss))(model)
    by_argument = run(lambda m: f(lambda x, m: m.loss(x), m))(other)
    assert model.norm.calls == other.norm.calls == 1
    np.testing.assert_allclose(by_method, by_argument, rtol=1e-10)
    plain(X)
    assert_same(arrays(model), arrays(plain))
    assert_same(arrays(other), arrays(plain))
    if run is not wl.jit:
        f(model.loss)
        assert model.norm.calls == 2


def test_a_branch_that_returns_its_module():
    model = Norm(3)
    for run in (lambda f: f, wl.jit):
        out = run(lambda m, p: wl.cond(p, lambda m: (m(X), m)[1], lambda m: m, m))(model, True)
        assert out is model
    assert model.calls == 2
