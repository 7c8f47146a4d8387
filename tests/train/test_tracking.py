"""What optimisers track: names, freezing, sharing, other models; and gradients that aren't finite."""

import copy

import numpy as np
import pytest
from small_networks import MAKERS, Net, arrays, assert_equal, data, loss, step

import wonderland as wl
from wonderland import nn, train

# What is tracked -----------------------------------------------------------------------------------------------------


def test_it_holds_no_model():
    import gc
    import weakref

    model = Net()
    optimizer = train.Adam(model)
    seen = weakref.ref(model)
    del model
    gc.collect()
    assert seen() is None and optimizer.updates == 0


@pytest.mark.parametrize("name", ["Adam", "momentum", "NAdam", "Muon", "LBFGS", "accumulating"])
def test_freezing_and_tracking(name):
    x, y = data()
    model = Net()
    optimizer = MAKERS[name](model)
    jitted = wl.jit(step)
    for _ in range(3):
        jitted(model, optimizer, x, y)
    model.freeze("first.*")
    for one in (step, jitted):
        before = (arrays(model), arrays(optimizer))
        with pytest.raises(wl.ArgumentError, match=r"gone: first.weight, first.bias(.|\n)*optimizer.track\(model\)"):
            one(model, optimizer, x, y)
        assert_equal(before[1], arrays(optimizer), rtol=0)
        assert_equal(before[0], {**arrays(model), "calls": before[0]["calls"]}, rtol=0)
    kept = arrays(optimizer)
    optimizer.track(model)
    if name != "LBFGS":
        assert all(np.array_equal(kept[n], a) for n, a in optimizer.state().items() if not n.endswith("born"))
        assert not any("first." in n.replace("kept.first.", "kept.") for n in optimizer.state())
    frozen = arrays(model.first)
    jitted(model, optimizer, x, y)
    assert_equal(frozen, arrays(model.first), rtol=0)
    model.unfreeze("first.*")
    with pytest.raises(wl.ArgumentError, match=r"new: first\.weight"):
        jitted(model, optimizer, x, y)
    optimizer.track(model)
    jitted(model, optimizer, x, y)
    with pytest.raises((wl.ArgumentError, wl.TracingError), match="outside of transformations"):
        wl.jit(lambda m, o: o.track(m))(model, optimizer)


def test_what_is_new_begins_anew():
    """Bias corrections of parameters that are tracked later count from their own first step; also from a file."""
    grads = {"first.bias": np.full(6, 1e-3), "second.bias": np.full(2, 1e-3)}
    model = Net()
    model.freeze("*.weight", "second.bias")
    optimizer = train.Adam(model, 0.1)
    for _ in range(5):
        optimizer.update(model, grads)
    model.unfreeze("second.bias")
    optimizer.track(model)
    before = model.second.bias.copy()
    again, other = copy.deepcopy(model), train.Adam(model, 0.1)
    state = {name: array.copy() for name, array in optimizer.state().items()}
    optimizer.update(model, grads)
    np.testing.assert_allclose(before - model.second.bias, 0.1, rtol=1e-4)  # Adam's first step has the size of the rate
    other.load_state(state)
    other.update(again, grads)
    assert_equal(arrays(model), arrays(again), rtol=0)


def test_other_models_are_refused():
    x, y = data()
    model = Net()
    optimizer = train.Adam(model)
    other = Net()
    other.first.weight = np.ones((6, 5))
    with pytest.raises(wl.ArgumentError, match=r"different: first.weight \(was \(\(6, 4\)"):
        optimizer.update(other, {})
    grads = wl.grad(loss)(model, x, y)
    with pytest.raises(wl.ArgumentError, match=r"no gradient for first\.weight"):
        optimizer.update(model, {"second.bias": np.ones(2)})
    with pytest.raises(wl.ArgumentError, match=r"the gradient of 'first.bias' has shape \(3,\)"):
        optimizer.update(model, {**dict(grads.named_parameters()), "first.bias": np.ones(3)})
    with pytest.raises(wl.ArgumentError, match="gradients are a Module"):
        optimizer.update(model, 3.0)
    assert optimizer.updates == 0


def test_a_shared_parameter_is_updated_once():
    class Tied(nn.Module):
        def __init__(self):
            self.first = np.full((2, 2), 0.5)
            self.again = {"second": self.first}

        def __call__(self, x):
            return x @ self.first @ self.again["second"]

    model, x = Tied(), np.eye(2)
    optimizer = train.Adam(model, 0.1)
    assert [n for n in optimizer.state() if n.startswith("kept.first")] == ["kept.first.first"]
    square = lambda m: np.sum(m(x) ** 2)
    compiled = wl.jit(lambda m, o: o.update(m, wl.grad(square)(m)))
    for one in (compiled, lambda m, o: o.update(m, wl.grad(square)(m))):
        before = model.first.copy()
        one(model, optimizer)
        assert model.first is model.again["second"]
        np.testing.assert_allclose(before - model.first, 0.1, rtol=1e-1)


# Gradients that aren't finite ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("make", [train.Adam, train.SGD, train.NAdam, train.Muon, train.LBFGS])
def test_skip_nonfinite(make, bad, jitted):
    x, y = data()
    model = Net()
    optimizer = make(model, 0.01, skip_nonfinite=True)
    one = wl.jit(step) if jitted else step
    one(model, optimizer, x, y)
    before = (arrays(model), arrays(optimizer))
    wrong = y.copy()
    wrong[3, 1] = bad
    one(model, optimizer, x, wrong)
    assert optimizer.skipped == 1 and optimizer.updates == 1
    assert_equal({**before[0], "calls": model.calls}, arrays(model), rtol=0)
    assert_equal({**before[1], "skipped": optimizer.skipped}, arrays(optimizer), rtol=0)
    one(model, optimizer, x, y)
    assert optimizer.skipped == 1 and optimizer.updates == 2
    assert not np.array_equal(before[0]["first.weight"], model.first.weight)


def test_an_exception_leaves_everything():
    x, y = data()
    model = Net()
    optimizer = train.Adam(model)

    @wl.jit
    def one(model, optimizer, x, y):
        value = step(model, optimizer, x, y)
        wl.check(value < 0, "too large")
        return value

    before = (arrays(model), arrays(optimizer))
    with pytest.raises(wl.CheckError):
        one(model, optimizer, x, y)
    assert_equal(before[0], arrays(model), rtol=0)
    assert_equal(before[1], arrays(optimizer), rtol=0)


@pytest.mark.parametrize("name", ["put", "get", "keep", "rate", "kept", "updates"])
def test_parameters_may_have_any_name(name):
    class Odd(nn.Module):
        def __init__(self):
            setattr(self, name, np.ones(3))

        def __call__(self, x):
            return x * vars(self)[name]

    for make in (train.Adam, lambda m: train.Accumulate(train.SGD(m, 0.1), 2)):
        model = Odd()
        optimizer = make(model)
        for one in (step, wl.jit(step)):
            one(model, optimizer, np.ones(3), np.zeros(3))
        assert np.all(vars(model)[name] < 1)


def test_a_group_may_be_frozen():
    x, y = data()
    model = Net()
    optimizer = train.SGD(model, 0.1, groups={"first.*": {"rate": 0.2}})
    model.freeze("first.*")
    optimizer.track(model)
    before = arrays(model.first)
    step(model, optimizer, x, y)
    assert_equal(before, arrays(model.first), rtol=0)
    model.unfreeze("first.*")
    optimizer.track(model)
    with pytest.raises(wl.ArgumentError, match=r"matches none of first\.weight"):
        train.SGD(model, 0.1, groups={"third.*": {"rate": 0.2}})


@pytest.mark.parametrize("name", ["Adam", "accumulating"])
def test_a_read_only_parameter_leaves_all_as_it_was(name):
    x, y = data()
    model = Net()
    optimizer = MAKERS[name](model)
    last = [*model.named_parameters()][-1]
    last[1].flags.writeable = False
    grads = wl.grad(loss)(model, x, y)
    before = (arrays(model), arrays(optimizer))
    with pytest.raises(wl.ArgumentError, match=f"{last[0]!r} is a read-only array"):
        optimizer.update(model, grads)
    assert_equal(before[0], arrays(model), rtol=0)
    assert_equal(before[1], arrays(optimizer), rtol=0)


def test_settings_by_other_names():
    model = Net()
    optimizer = train.Adam(model, 0.1)
    for one in (optimizer, train.Accumulate(optimizer, 2)):
        with pytest.raises(wl.ArgumentError, match="it is called rate"):
            one.lr = 0.5
        one.rate = 0.25
        assert one.rate == optimizer.rate == 0.25
    with pytest.raises(wl.ArgumentError, match=r"SGD has no 'lr': it is called rate, rate=0\.5"):
        train.SGD(model, lr=0.5)
    with pytest.raises(wl.ArgumentError, match=r"Adam has no 'eps': it is called epsilon, epsilon=1e-06"):
        train.Adam(model, 0.1, eps=1e-6)
    assert not hasattr(one, "momentum")
    copy.deepcopy(one).rate = 0.5
    assert one.rate == 0.25
