"""Optimisers: NETWORKS 3 statement by statement, formulas by hand, and what the notes say about them."""

import copy
import pickle

import numpy as np
import pytest
from small_networks import MAKERS, Net, Vector, arrays, assert_equal, data, loss, step

import wonderland as wl
from wonderland import nn, train


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
    goal = np.stack([target.real, target.imag])
    for make in (lambda m: train.Adam(m, 0.1), lambda m: train.SGD(m, 0.1, momentum=0.5), lambda m: train.Lion(m, 0.1)):
        one, two = Vector(z), Vector(np.stack([z.real, z.imag]))
        first, second = make(one), make(two)
        compiled = wl.jit(lambda m, o: o.update(m, wl.grad(lambda m: np.sum(np.abs(m.w - target) ** 2))(m)))
        for _ in range(5):
            compiled(one, first)
            second.update(two, wl.grad(lambda m: np.sum((m.w - goal) ** 2))(two))
        np.testing.assert_allclose(one.w, two.w[0] + 1j * two.w[1], rtol=1e-12)


@pytest.mark.parametrize("jitted", [False, True])
def test_float16_is_updated_in_float32(jitted):
    model = Vector(np.ones(3, np.float16))
    optimizer = train.Adam(model, 0.01)
    one = lambda m, o: o.update(m, wl.grad(lambda m: np.sum((m.w - 1) ** 2))(m))
    one = wl.jit(one) if jitted else one
    for _ in range(3):  # where the gradient is 0, the step is 0 / epsilon
        one(model, optimizer)
    np.testing.assert_array_equal(model.w, 1)
    assert model.w.dtype == np.float16 and optimizer.state()["kept.second.w"].dtype == np.float32


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
    with pytest.raises(wl.ArgumentError, match=r"weight_decay=.*returns a number for a step"):
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
        (lambda m: train.Adam(m, groups={"*.bias": 1}), "groups are settings by patterns"),
        (lambda m: train.Adam(m, groups=[("*", {"rate": 1})]), "groups are settings by patterns"),
        (lambda m: train.Adam({"w": np.ones(3)}), "updates an nn.Module"),
        (lambda m: train.Adam(m.freeze()), "no trainable parameters"),
        (lambda m: train.Adam(nn.Linear(None, 3)), r"sizes None, which nn\.build"),
        (lambda m: train.clip_by_norm(m, -1.0), "norm is not negative, unlike -1.0"),
        (lambda m: train.clip_by_value(m, float("nan")), "most is not negative, unlike nan"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(wl.ArgumentError, match=message):
        make(Net())


@pytest.mark.parametrize("transform", [wl.jit, wl.vmap])
def test_optimisers_are_made_outside(transform):
    with pytest.raises(wl.TracingError, match=r"train\.SGD\(model\).*make the optimiser before.*nn\.stack"):
        transform(lambda x: train.SGD(nn.Residual(nn.relu, scale=x * 2)))(np.ones(3))


def test_groups():
    ones = lambda m: {name: np.ones_like(w) for name, w in m.named_parameters()}
    model = Net()
    before = arrays(model)
    groups = {"*.bias": {"rate": 0.5}, "first.*": {"rate": 0.25}, "second.weight": {"rate_scale": 2.0}}
    train.SGD(model, 0.1, groups=groups).update(model, ones(model))
    moved = {name: float(before[name].flat[0] - w.flat[0]) for name, w in model.named_parameters()}
    expected = {
        "first.weight": 0.25,
        "first.bias": 0.25,
        "second.weight": 0.2,
        "second.bias": 0.5,
    }  # the last one counts
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
    np.testing.assert_allclose(optimizer.state()["kept.velocity.first.bias"], 1.9)


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


# An ensemble ---------------------------------------------------------------------------------------------------------


def test_an_ensemble_is_trained_at_once():
    x, y = data()
    models = [Net(seed=s) for s in range(3)]
    optimizers = [train.Adam(m, 0.01) for m in models]
    together = nn.stack(models), nn.stack(optimizers)
    one = wl.jit(wl.vmap(step, in_axes=(0, 0, None, None)))
    for _ in range(4):
        one(*together, x, y)
        for model, optimizer in zip(models, optimizers, strict=True):
            step(model, optimizer, x, y)
    for i, model in enumerate(models):
        np.testing.assert_allclose(together[0].first.weight[i], model.first.weight, rtol=1e-10)


# Ways to call it -----------------------------------------------------------------------------------------------------


def test_loops_carry_model_and_optimiser():
    x, y = data()
    one, other = Net(), Net()
    first, second = train.Adam(one, train.cosine(0.05, 10)), train.Adam(other, train.cosine(0.05, 10))

    @wl.jit
    def many(model, optimizer):
        def body(carry, _):
            value = step(*carry, x, y)
            return carry, value

        return wl.scan(body, (model, optimizer), None, length=6)[1]

    values = many(one, first)
    np.testing.assert_allclose(values, [step(other, second, x, y) for _ in range(6)], rtol=1e-10)
    assert_equal(arrays(one), arrays(other), rtol=1e-9)
    assert first.updates == 6


def test_the_bound_method_is_compiled_with_its_optimiser():
    x, y = data()
    model = Net()
    optimizer = train.Adam(model, 0.01)
    update = wl.jit(optimizer.update)
    for _ in range(3):
        update(model, wl.grad(loss)(model, x, y))
    other = Net()
    again = train.Adam(other, 0.01)
    for _ in range(3):
        step(other, again, x, y)
    assert optimizer.updates == 3
    np.testing.assert_allclose(model.first.weight, other.first.weight, rtol=1e-10)


def test_a_captured_optimiser_is_refused():
    model = Net()
    optimizer = train.Adam(model, 0.01)
    x, y = data()
    with pytest.raises(wl.MutationError, match="argument"):
        wl.jit(lambda model: step(model, optimizer, x, y))(model)
    assert optimizer.updates == 0


def test_it_prints():
    model = Net()
    text = repr(train.Adam(model, train.cosine(0.1, 10), groups={"*.bias": {"rate_scale": 0.5}}))
    assert "cosine(rate=0.1" in text and "first.weight" in text and "(buffer)" in text
