"""Optimisers: NETWORKS 3 statement by statement, formulas by hand, and what the notes say about them."""

import copy
import pickle

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn, train


class Dense(nn.Module):
    def __init__(self, n, m, rng, dtype):
        self.weight = (rng.normal(size=(m, n)) / np.sqrt(n)).astype(dtype)
        self.bias = (0.1 * rng.normal(size=m)).astype(dtype)

    def __call__(self, x):
        return x @ self.weight.T + self.bias


class Net(nn.Module):
    def __init__(self, dtype=np.float64, seed=0):
        rng = np.random.default_rng(seed)
        self.first, self.second = Dense(4, 6, rng, dtype), Dense(6, 2, rng, dtype)
        self.calls = nn.Buffer(np.array(0, np.int64))

    def __call__(self, x):
        self.calls = self.calls + 1
        return self.second(np.tanh(self.first(x)))


class Vector(nn.Module):
    """One vector."""

    def __init__(self, w):
        self.w = np.array(w)


def loss(model, x, y):
    return np.mean((model(x) - y) ** 2)


def step(model, optimizer, x, y):
    value, grads = wl.value_and_grad(loss)(model, x, y)
    optimizer.update(model, grads)
    return value


def data(dtype=np.float64, seed=1):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(10, 4)).astype(dtype), rng.normal(size=(10, 2)).astype(dtype)


def arrays(module):
    return {name: array.copy() for name, array in module.state().items()}


def assert_equal(a, b, **tolerance):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype, name
        np.testing.assert_allclose(a[name], b[name], err_msg=name, **tolerance)


MAKERS = {
    "SGD": lambda m: train.SGD(m, 0.1),
    "momentum": lambda m: train.SGD(m, train.cosine(0.1, 30), momentum=0.9, dampening=0.1, weight_decay=0.01),
    "Nesterov": lambda m: train.SGD(m, 0.1, momentum=train.linear(0.9, 10, 0.5, 1.0), nesterov=True),
    "inside": lambda m: train.SGD(m, 0.1, momentum=0.9, form="inside", nesterov=True),
    "average": lambda m: train.SGD(m, 0.1, momentum=0.9, form="average"),
    "Adam": lambda m: train.Adam(m, 0.01, weight_decay=0.1),
    "amsgrad": lambda m: train.Adam(m, 0.01, amsgrad=True, betas=(train.cosine(0.9, 50), 0.99)),
    "AdamW": lambda m: train.AdamW(m, train.warmup(0.01, 3), weight_decay=train.step(0.1, 2)),
    "NAdam": lambda m: train.NAdam(m, 0.01),
    "RMSProp": lambda m: train.RMSProp(m, 0.01, centered=True, momentum=0.5, epsilon=1e-2),
    "Adagrad": lambda m: train.Adagrad(m, 0.1, rate_decay=0.1),
    "Adadelta": lambda m: train.Adadelta(m, 1.0),
    "Lion": lambda m: train.Lion(m, 0.01, weight_decay=0.1),
    "Muon": lambda m: train.Muon(m, 0.02),
    "LBFGS": lambda m: train.LBFGS(m, 0.2, history=4),
    "skipping": lambda m: train.Adam(m, 0.01, skip_nonfinite=True),
    "accumulating": lambda m: train.Accumulate(train.Adam(m, 0.01), 3),
    "groups": lambda m: train.AdamW(m, 0.01, groups={"*.bias": {"weight_decay": 0}, "first.*": {"rate": 0.1}}),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", MAKERS)
def test_compiled_is_eager_and_in_place(name, dtype):
    x, y = data(dtype)
    eager, compiled = Net(dtype), Net(dtype)
    first, second = MAKERS[name](eager), MAKERS[name](compiled)
    held = [*map(id, compiled.state().values()), *map(id, second.state().values())]
    dtypes = [a.dtype for a in second.state().values()]
    jitted = wl.jit(step)
    before = arrays(compiled)
    for _ in range(7):
        step(eager, first, x, y)
        value = jitted(compiled, second, x, y)
        assert value.dtype == dtype
    tolerance = {"rtol": 2e-4, "atol": 1e-6} if dtype == np.float32 else {"rtol": 1e-9, "atol": 1e-12}
    assert_equal(arrays(eager), arrays(compiled), **tolerance)
    assert_equal(arrays(first), arrays(second), **tolerance)
    assert held == [*map(id, compiled.state().values()), *map(id, second.state().values())]
    assert dtypes == [a.dtype for a in second.state().values()]
    assert all(w.dtype == dtype for w in compiled.parameters())
    assert not any(np.array_equal(before[n], w) for n, w in compiled.named_parameters())


@pytest.mark.parametrize("name", MAKERS)
def test_copies_and_pickles_go_on_alike(name):
    x, y = data()
    model = Net()
    optimizer = MAKERS[name](model)
    for _ in range(4):
        step(model, optimizer, x, y)
    others = [copy.deepcopy((model, optimizer)), pickle.loads(pickle.dumps((model, optimizer)))]
    for _ in range(4):
        step(model, optimizer, x, y)
    for other in others:
        assert not np.array_equal(other[0].first.weight, model.first.weight)
        for _ in range(4):
            step(*other, x, y)
        assert_equal(arrays(model), arrays(other[0]), rtol=1e-13)
        assert_equal(arrays(optimizer), arrays(other[1]), rtol=1e-13)


@pytest.mark.parametrize("name", MAKERS)
def test_a_resumed_file_goes_on_alike(name, tmp_path):
    x, y = data()
    model = Net()
    optimizer = MAKERS[name](model)
    for _ in range(4):
        step(model, optimizer, x, y)
    wl.save({"model": model, "optimizer": optimizer}, tmp_path / "a")
    again = Net(seed=5)
    other = MAKERS[name](again)
    assert wl.load({"model": again, "optimizer": other}, tmp_path / "a").complete
    for _ in range(4):
        step(model, optimizer, x, y)
        step(again, other, x, y)
    assert_equal(arrays(model), arrays(again), rtol=0, atol=0)


# Formulas by hand ----------------------------------------------------------------------------------------------------


def follow(make, gradient, steps=12, start=(1.0, -2.0, 0.5)):
    model = Vector(start)
    optimizer, out = make(model), []
    for _ in range(steps):
        optimizer.update(model, {"w": gradient(model.w)})
        out.append(model.w.copy())
    return np.array(out)


def quadratic(w):
    return np.array([1.0, 10.0, 3.0]) * w


def by_hand(rates, mu, form, nesterov=False, steps=12):
    w, v, out = np.array([1.0, -2.0, 0.5]), np.zeros(3), []
    for t in range(steps):
        g, eta = quadratic(w), rates(t)
        if form == "outside":
            v = mu * v + g
            w = w - eta * (g + mu * v if nesterov else v)
        elif form == "inside":
            v = mu * v - eta * g
            w = w + (mu * v - eta * g if nesterov else v)
        else:
            v = mu * v + (1 - mu) * g
            w = w - eta * ((1 - mu) * g + mu * v if nesterov else v)
        out.append(w)
    return np.array(out)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("form", ["outside", "inside", "average"])
def test_three_forms_of_momentum(form, nesterov):
    schedule = train.exponential(0.05, 0.8)
    found = follow(lambda m: train.SGD(m, schedule, momentum=0.8, form=form, nesterov=nesterov), quadratic)
    np.testing.assert_allclose(found, by_hand(schedule, 0.8, form, nesterov), rtol=1e-12)


@pytest.mark.parametrize("nesterov", [False, True])
def test_the_forms_are_the_same_without_a_schedule_and_differ_with_one(nesterov):
    def run(form, rate):
        return follow(lambda m: train.SGD(m, rate, momentum=0.8, form=form, nesterov=nesterov), quadratic)

    np.testing.assert_allclose(run("outside", 0.02), run("inside", 0.02), rtol=1e-12)
    np.testing.assert_allclose(run("outside", 0.02), run("average", 0.1), rtol=1e-12)
    first, second = (run(form, train.step(0.02, 3, 0.5)) for form in ("outside", "inside"))
    np.testing.assert_allclose(first[:3], second[:3], rtol=1e-12)
    assert np.max(np.abs(first[3:] - second[3:])) > 1e-2
    third = run("average", train.step(0.1, 3, 0.5))
    np.testing.assert_allclose(first, third, rtol=1e-12)


def test_lion_by_hand():
    found = follow(lambda m: train.Lion(m, 0.1, betas=(0.9, 0.99), weight_decay=0.2), quadratic)
    w, m, out = np.array([1.0, -2.0, 0.5]), np.zeros(3), []
    for _ in range(12):
        g = quadratic(w)
        w = w - 0.1 * (np.sign(0.9 * m + 0.1 * g) + 0.2 * w)
        m = 0.99 * m + 0.01 * g
        out.append(w)
    np.testing.assert_allclose(found, out, rtol=1e-12)


@pytest.mark.parametrize("shape", [(6, 6), (9, 4), (4, 9)])
def test_newton_schulz_is_nearly_orthogonal(shape):
    g = np.random.default_rng(0).normal(size=shape)
    singular = np.linalg.svd(train.newton_schulz(g, 10), compute_uv=False)
    assert np.all((singular > 0.6) & (singular < 1.3))
    exact = (2.0, -1.5, 0.5)  # of a cubic that converges: x (2 - 1.5 x^2 + 0.5 x^4) has slope 0 at 1
    u, _, v = np.linalg.svd(g, full_matrices=False)
    np.testing.assert_allclose(train.newton_schulz(g, 30, exact), u @ v, atol=1e-6)


def test_l2_and_decoupled_decay():
    """Equal for gradient descent, different with momentum and for Adam (E9.2.1)."""
    run = lambda make: follow(make, quadratic)
    plain = [run(lambda m, d=d: train.SGD(m, 0.05, weight_decay=0.3, decoupled=d)) for d in (False, True)]
    np.testing.assert_allclose(*plain, rtol=1e-12)
    heavy = [run(lambda m, d=d: train.SGD(m, 0.05, momentum=0.9, weight_decay=0.3, decoupled=d)) for d in (False, True)]
    assert np.max(np.abs(heavy[0] - heavy[1])) > 1e-2
    adams = [run(lambda m, f=f: f(m, 0.05, weight_decay=0.3)) for f in (train.Adam, train.AdamW)]
    assert np.max(np.abs(adams[0] - adams[1])) > 1e-2


@pytest.mark.parametrize("make", [train.SGD, train.Adam, train.Adagrad])
def test_weight_decay_is_a_penalty_of_the_loss(make):
    x, y = data()
    first, second = Net(), Net()
    decayed, plain = make(first, 0.05, weight_decay=0.3), make(second, 0.05)
    for _ in range(5):
        step(first, decayed, x, y)
        grads = wl.grad(lambda m: loss(m, x, y) + 0.3 * nn.l2_penalty(m))(second)
        plain.update(second, grads)
    assert_equal(arrays(first), arrays(second), rtol=1e-10)


def test_complex_parameters_are_pairs_of_real_ones():
    rng = np.random.default_rng(0)
    z = rng.normal(size=4) + 1j * rng.normal(size=4)
    target = rng.normal(size=4) + 1j * rng.normal(size=4)
    for make in (lambda m: train.Adam(m, 0.1), lambda m: train.SGD(m, 0.1, momentum=0.5), lambda m: train.Lion(m, 0.1)):
        one, two = Vector(z), Vector(np.stack([z.real, z.imag]))
        first, second = make(one), make(two)
        compiled = wl.jit(lambda m, o: o.update(m, wl.grad(lambda m: np.sum(np.abs(m.w - target) ** 2))(m)))
        goal = np.stack([target.real, target.imag])
        for _ in range(5):
            compiled(one, first)
            second.update(two, wl.grad(lambda m: np.sum((m.w - goal) ** 2))(two))
        np.testing.assert_allclose(one.w, two.w[0] + 1j * two.w[1], rtol=1e-12)


# Rates, groups -------------------------------------------------------------------------------------------------------


def test_a_changed_rate_does_not_recompile():
    x, y = data()
    model = Net()
    optimizer = train.Adam(model, 0.01, weight_decay=0.1)
    traced = []

    @wl.jit
    def one(model, optimizer, x, y):
        traced.append(1)
        return step(model, optimizer, x, y)

    one(model, optimizer, x, y)
    before = arrays(model)
    optimizer.rate = 0.0
    one(model, optimizer, x, y)
    assert_equal({n: before[n] for n, _ in model.named_parameters()}, dict(model.named_parameters()), rtol=0)
    optimizer.weight_decay = 0.5
    optimizer.rate = 0.1
    one(model, optimizer, x, y)
    assert len(traced) == 1 and optimizer.rate == 0.1 and optimizer.weight_decay == 0.5
    assert not np.array_equal(before["first.weight"], model.first.weight)


def test_equal_schedules_share_the_code():
    x, y = data()
    traced = []

    @wl.jit
    def one(model, optimizer, x, y):
        traced.append(1)
        return step(model, optimizer, x, y)

    for _ in range(3):
        model = Net()
        one(model, train.Adam(model, train.cosine(0.1, 10)), x, y)
    assert len(traced) == 1


def test_schedules_are_tried_when_the_optimiser_is_made():
    model = Net()
    with pytest.raises(wl.ArgumentError, match=r"rate=.*can't be traced(.|\n)*np.where"):
        train.Adam(model, lambda t: 0.1 if t < 10 else 0.01)
    with pytest.raises(wl.ArgumentError, match="weight_decay=.*returns a number for a step"):
        train.Adam(model, weight_decay=lambda t: np.ones(3) * t)
    with pytest.raises(wl.ArgumentError, match=r"groups\['\*.bias'\]: rate=.*can't be traced"):
        train.Adam(model, groups={"*.bias": {"rate": lambda t: 0.1 if t < 10 else 0.01}})
    optimizer = train.SGD(model, 0.1)
    with pytest.raises(wl.ArgumentError, match="can't be traced"):
        optimizer.rate = lambda t: 0.1 if t < 10 else 0.01
    optimizer.rate = lambda t: 0.1 / (1 + t)
    x, y = data()
    for _ in range(3):
        step(model, optimizer, x, y)


def test_rates_of_the_users_own():
    rate = lambda t: np.where(t < 3, 0.1, 0.01)
    found = follow(lambda m: train.SGD(m, rate), lambda w: np.ones(3), steps=5)
    np.testing.assert_allclose(np.diff(found[:, 0]), [-0.1, -0.1, -0.01, -0.01])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda m: train.SGD(m, -0.1), "rate is not negative"),
        (lambda m: train.SGD(m, "fast"), "rate is a number or a function"),
        (lambda m: train.SGD(m, None), "rate is a number or a function"),
        (lambda m: train.SGD(m, np.ones(3)), "rate is a number or a function"),
        (lambda m: train.SGD(m, np.nan), "rate is not negative"),
        (lambda m: train.Adam(m, weight_decay=-1), "weight_decay is not negative"),
        (lambda m: train.Adam(m, betas=(0.9, 1.0)), "betas are between 0 and 1"),
        (lambda m: train.Adam(m, betas=0.9), "betas are two numbers"),
        (lambda m: train.SGD(m, nesterov=True), "nesterov needs momentum"),
        (lambda m: train.SGD(m, momentum=0.9, form="outer"), "form is one of"),
        (lambda m: train.SGD(m, momentum=0.9, form="inside", dampening=0.5), "dampening belongs"),
        (lambda m: train.Muon(m, adjust="adam"), "adjust is None"),
        (lambda m: train.LBFGS(m, history=0), "history"),
        (lambda m: train.Accumulate(train.SGD(m), 0), "count is how many"),
        (lambda m: train.Average(m, 1.5), "decay is between 0 and 1"),
        (lambda m: train.Adam(m, groups={"*.gamma": {"rate": 1}}), r"'\*.gamma' matches none of first.weight"),
        (lambda m: train.Adam(m, groups={"*.bias": {"lr": 1}}), "has no setting 'lr'; it has rate"),
        (lambda m: train.Adam(m, groups={"*.bias": {"rate": -1}}), "rate is not negative"),
        (lambda m: train.Adam({"w": np.ones(3)}), "updates an nn.Module"),
        (lambda m: train.Adam(m.freeze()), "no trainable parameters"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(wl.ArgumentError, match=message):
        make(Net())


def test_groups():
    ones = lambda m: {name: np.ones_like(w) for name, w in m.named_parameters()}
    model = Net()
    before = arrays(model)
    groups = {"*.bias": {"rate": 0.5}, "first.*": {"rate": 0.25}, "second.weight": {"rate_scale": 2.0}}
    train.SGD(model, 0.1, groups=groups).update(model, ones(model))
    moved = {name: float(before[name].flat[0] - w.flat[0]) for name, w in model.named_parameters()}
    expected = {"first.weight": 0.25, "first.bias": 0.25, "second.weight": 0.2, "second.bias": 0.5}  # the last one counts
    assert moved == pytest.approx(expected)


def test_a_scaled_rate_follows_the_schedule():
    model = Net()
    optimizer = train.SGD(model, train.exponential(1.0, 0.5), groups={"first.*": {"rate_scale": 0.1}})
    compiled = wl.jit(lambda m, o, g: o.update(m, g))
    for _ in range(3):
        before = arrays(model)
        compiled(model, optimizer, {name: np.ones_like(w) for name, w in model.named_parameters()})
        rate = 0.5 ** (int(optimizer.updates) - 1)
        np.testing.assert_allclose(before["first.bias"] - model.first.bias, 0.1 * rate)
        np.testing.assert_allclose(before["second.bias"] - model.second.bias, rate)


def test_momentum_of_a_group_alone():
    model = Net()
    optimizer = train.SGD(model, 0.1, groups={"first.*": {"momentum": 0.9}})
    assert [n for n in optimizer.state() if "velocity" in n] == [f"kept.velocity.first.{n}" for n in ("weight", "bias")]
    with pytest.raises(wl.ArgumentError, match="made without momentum"):
        optimizer.momentum = 0.9
    for _ in range(2):
        optimizer.update(model, {name: np.ones_like(w) for name, w in model.named_parameters()})
    np.testing.assert_allclose(optimizer.kept["velocity"].get("first.bias"), 1.9)


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
        assert all(np.array_equal(kept[n], a) for n, a in optimizer.state().items())
        assert not any("first." in n.replace("kept.first.", "kept.") for n in optimizer.state())
    frozen = arrays(model.first)
    jitted(model, optimizer, x, y)
    assert_equal(frozen, arrays(model.first), rtol=0)
    model.unfreeze("first.*")
    with pytest.raises(wl.ArgumentError, match="new: first.weight"):
        jitted(model, optimizer, x, y)
    optimizer.track(model)
    jitted(model, optimizer, x, y)
    with pytest.raises((wl.ArgumentError, wl.TracingError), match="outside of jit"):
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
    with pytest.raises(wl.ArgumentError, match="no gradient for first.weight"):
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


# Before and after a step ---------------------------------------------------------------------------------------------


def test_clipping():
    x, y = data(np.float32)
    model = Net(np.float32)
    grads = wl.grad(loss)(model, x, y)
    norm = np.sqrt(sum(np.sum(g.astype(float) ** 2) for _, g in grads.named_parameters()))
    assert train.global_norm(grads) == pytest.approx(norm, rel=1e-5)
    clipped = train.clip_by_norm(grads, norm / 2)
    assert type(clipped) is Net and clipped.first.weight.dtype == np.float32
    assert train.global_norm(clipped) == pytest.approx(norm / 2, rel=1e-4)
    np.testing.assert_array_equal(train.clip_by_norm(grads, 10 * norm).first.weight, grads.first.weight)
    small = train.clip_by_value(grads, 0.01)
    assert max(np.max(np.abs(g)) for _, g in small.named_parameters()) == np.float32(0.01)
    assert small.first.weight.dtype == np.float32
    optimizer = train.Adam(model)
    wl.jit(lambda m, o: o.update(m, train.clip_by_norm(wl.grad(loss)(m, x, y), 0.1)))(model, optimizer)


def test_accumulated_gradients_are_those_of_the_whole_batch():
    x, y = data()
    parts = [(x[i : i + 2], y[i : i + 2]) for i in range(0, 10, 2)]
    whole, piecewise = Net(), Net()
    first, second = train.Adam(whole, 0.01), train.Accumulate(train.Adam(piecewise, 0.01), 5)
    compiled = wl.jit(step)
    for _ in range(3):
        step(whole, first, x, y)
        for i, part in enumerate(parts):
            before = arrays(piecewise.first)
            compiled(piecewise, second, *part)
            assert np.array_equal(before["weight"], piecewise.first.weight) == (i < 4)
    np.testing.assert_allclose(whole.first.weight, piecewise.first.weight, rtol=1e-10)
    assert second.optimizer.updates == 3 and second.collected == 0


def test_averages():
    x, y = data()
    model = Net()
    optimizer = train.SGD(model, 0.1)
    ema, mean = train.Average(model, 0.9), train.Average(model, train.running_mean())

    @wl.jit
    def one(model, optimizer, averages, x, y):
        step(model, optimizer, x, y)
        for average in averages:
            average.update(model)

    seen, expected = [], None
    for _ in range(5):
        one(model, optimizer, (ema, mean), x, y)
        seen.append(model.first.weight.copy())
        expected = seen[0] if expected is None else 0.9 * expected + 0.1 * seen[-1]
    np.testing.assert_allclose(ema.model.first.weight, expected, rtol=1e-12)
    np.testing.assert_allclose(mean.model.first.weight, np.mean(seen, axis=0), rtol=1e-12)
    assert ema.model.calls == model.calls == 5 and ema.count == 5
    assert not any(np.shares_memory(a, b) for a, b in zip(ema.model.parameters(), model.parameters(), strict=True))
    with pytest.raises(wl.ArgumentError, match="another Vector"):
        ema.update(Vector([1.0]))


# Theorem 1.11 of C ---------------------------------------------------------------------------------------------------

Q = np.diag([1.0, 4.0, 0.0, 25.0])
R = np.random.default_rng(3).normal(size=(12, 4))
LABELS = np.sign(R @ np.array([1.0, -1.0, 0.5, 2.0]) + 0.8 * np.random.default_rng(4).normal(size=12))
CONVEX = {  # a convex function, the Lipschitz constant of its gradient, where it is smallest
    "quadratic": (lambda w: 0.5 * w @ Q @ w, 25.0),
    "least squares": (lambda w: 0.5 * np.sum((R @ w - LABELS) ** 2), np.linalg.norm(R, 2) ** 2),
    "logistic": (
        lambda w: np.mean(np.logaddexp(0.0, -LABELS * (R @ w))) + 0.01 * np.sum(w**2),
        np.linalg.norm(R, 2) ** 2 / 48 + 0.02,
    ),
    "Huber": (lambda w: np.sum(np.where(np.abs(w) < 1, 0.5 * w**2, np.abs(w) - 0.5)), 1.0),
    "softplus of both sides": (lambda w: np.sum(np.logaddexp(w, -w)), 1.0),
    "fourth power, far from flat": (lambda w: np.sum(np.sqrt(1 + w**2) - 1), 1.0),
}


@pytest.mark.parametrize("name", CONVEX)
@pytest.mark.parametrize("share", [0.3, 0.99])
def test_theorem_1_11(name, share):
    """C(w_t) - min C <= |w_0 - w*|^2 / (2 eta t), for eta < 1 / L."""
    from scipy.optimize import minimize

    f, lipschitz = CONVEX[name]
    eta, start = share / lipschitz, np.array([2.0, -3.0, 1.5, 1.0])
    best = minimize(f, np.zeros(4), jac=wl.grad(f), method="BFGS", options={"gtol": 1e-12}).x
    if name == "quadratic":
        best = np.array([0.0, 0.0, start[2], 0.0])  # of the set of minimisers, the nearest
    model = Vector(start)
    optimizer = train.SGD(model, eta)
    one = wl.jit(lambda m, o: o.update(m, wl.grad(lambda m: f(m.w))(m)))
    values = [f(start)]
    for t in range(1, 201):
        one(model, optimizer)
        values.append(f(model.w))
        assert values[-1] - f(best) <= np.sum((start - best) ** 2) / (2 * eta * t) + 1e-12
    assert np.all(np.diff(values) <= 1e-12)


def test_a_rate_above_two_over_l_diverges():
    model = Vector([2.0, -3.0, 1.5, 1.0])
    optimizer = train.SGD(model, 2.1 / 25)
    for _ in range(200):
        optimizer.update(model, {"w": Q @ model.w})
    assert 0.5 * model.w @ Q @ model.w > 1e3


# Curvature -----------------------------------------------------------------------------------------------------------


def rosenbrock(model):
    w = model.w
    return np.sum(100.0 * (w[1:] - w[:-1] ** 2) ** 2 + (1 - w[:-1]) ** 2)


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize(("make", "steps"), [(train.LBFGS, 60), (train.NewtonCG, 40)])
def test_minimisers_on_rosenbrock(make, steps, jitted):
    model = Vector([-1.2, 1.0, -0.5, 2.0])
    optimizer = make(model)
    one = lambda m, o: o.minimize(rosenbrock, m)
    one = wl.jit(one) if jitted else one
    values = [float(one(model, optimizer)) for _ in range(steps if jitted else 12)]
    assert np.all(np.diff(values) <= 1e-12)
    if jitted:
        np.testing.assert_allclose(model.w, 1.0, rtol=1e-6)
        assert values[-1] < 1e-12
    else:
        assert values[-1] < values[0] / 50


def test_a_quadratic_takes_newton_few_steps():
    a = R.T @ R + np.eye(4)
    model = Vector(np.ones(4))
    optimizer = train.NewtonCG(model)
    for _ in range(6):
        optimizer.minimize(lambda m: 0.5 * m.w @ a @ m.w - np.sum(m.w), model)
    np.testing.assert_allclose(model.w, np.linalg.solve(a, np.ones(4)), rtol=1e-8)


def test_newton_leaves_a_saddle():
    model = Vector([0.5, 1e-3])
    optimizer = train.NewtonCG(model)
    saddle = lambda m: m.w[0] ** 2 - m.w[1] ** 2 + 0.25 * m.w[1] ** 4
    for _ in range(30):
        optimizer.minimize(saddle, model)
    np.testing.assert_allclose(np.abs(model.w), [0, np.sqrt(2)], atol=1e-6)


@pytest.mark.parametrize("jitted", [False, True])
def test_gauss_newton_fits_a_curve(jitted):
    t = np.linspace(0, 4, 30)
    target = 2.5 * np.exp(-1.3 * t)

    class Curve(nn.Module):
        def __init__(self):
            self.scale, self.decay = np.array(1.0), np.array(0.5)

        def __call__(self, t):
            return self.scale * np.exp(-self.decay * t)

    model = Curve()
    optimizer = train.GaussNewton(model)
    one = lambda m, o: o.minimize(lambda out: 0.5 * np.sum((out - target) ** 2), m, t)
    one = wl.jit(one) if jitted else one
    values = [float(one(model, optimizer)) for _ in range(15)]
    assert values[-1] < 1e-20 and np.all(np.diff(values) <= 0)
    np.testing.assert_allclose([model.scale, model.decay], [2.5, 1.3], rtol=1e-8)


def test_gauss_newton_is_least_squares_in_one_step():
    model = Vector(np.zeros(4))
    optimizer = train.GaussNewton(model, damping=0.0, tolerance=1e-13)
    optimizer.minimize(lambda r: 0.5 * np.sum(r**2), model, outputs=lambda m: R @ m.w - LABELS)
    np.testing.assert_allclose(model.w, np.linalg.lstsq(R, LABELS, rcond=None)[0], rtol=1e-9)


@pytest.mark.parametrize("make", [train.LBFGS, train.NewtonCG])
def test_minimisers_of_a_network(make):
    x, y = data()
    model = Net()
    optimizer = make(model)
    one = wl.jit(lambda m, o, x, y: o.minimize(loss, m, x, y))
    values = [float(one(model, optimizer, x, y)) for _ in range(30)]
    assert values[-1] < 0.1 * values[0]
    assert model.calls == 0  # the loss is called as often as the search needs: buffers aren't touched
    with pytest.raises(wl.ArgumentError, match="gone: first.bias"):
        optimizer.minimize(loss, model.freeze("first.bias"), x, y)
    if make is train.NewtonCG:
        with pytest.raises(wl.ArgumentError, match="minimize"):
            optimizer.update(model, None)


def test_lbfgs_agrees_with_scipys_minimum():
    from scipy.optimize import minimize

    f, _ = CONVEX["logistic"]
    model = Vector(np.array([2.0, -3.0, 1.5, 1.0]))
    optimizer = train.LBFGS(model)
    for _ in range(25):
        optimizer.minimize(lambda m: f(m.w), model)
    best = minimize(f, np.zeros(4), jac=wl.grad(f), method="L-BFGS-B", options={"gtol": 1e-12, "ftol": 1e-16}).x
    np.testing.assert_allclose(model.w, best, atol=1e-6)


# An ensemble ---------------------------------------------------------------------------------------------------------


def test_an_ensemble_is_trained_at_once():
    x, y = data()
    models = [Net(seed=s) for s in range(3)]
    optimizers = [train.Adam(m, 0.01) for m in models]
    def stacked(modules):
        out = copy.deepcopy(modules[0])
        leaves, structure = wl.tree_flatten(out)
        columns = zip(*(wl.tree_leaves(m) for m in modules), strict=True)
        return wl.tree_unflatten(structure, [np.stack(column) for column in columns])

    together = stacked(models), stacked(optimizers)
    one = wl.jit(wl.vmap(step, in_axes=(0, 0, None, None)))
    for _ in range(4):
        one(*together, x, y)
        for model, optimizer in zip(models, optimizers, strict=True):
            step(model, optimizer, x, y)
    for i, model in enumerate(models):
        np.testing.assert_allclose(together[0].first.weight[i], model.first.weight, rtol=1e-10)
