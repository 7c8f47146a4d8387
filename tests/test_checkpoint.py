"""Checkpointing: the same values and derivatives, less memory, and as many recomputations as were promised."""

import gc
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from recomputation import counted, counts, peak_of, same, tick, tock

import wonderland as wl
from wonderland.core.tracer import unwrap
from wonderland.testing import check_grads
from wonderland.testing.check_grads import is_inexact
from wonderland.testing.random_programs import random_program

POLICIES = ["nothing", "everything", "products", wl.save_names("hidden"), lambda e: e.primitive.name == "tanh"]
NAMES = ["nothing", "everything", "products", "names", "function"]


def layer(w, x):
    hidden = wl.checkpoint_name(np.tanh(x @ w["a"] + w["b"]), "hidden")
    return x + np.exp(-hidden * hidden) @ w["a"].T


@pytest.fixture
def weights(rng):
    return [{"a": rng.normal(size=(3, 4)), "b": rng.normal(size=4)} for _ in range(3)]


def network(f):
    def loss(ws, x):
        for w in ws:
            x = f(w, x)
        return np.sum(np.sin(x))

    return loss


# -- the same results --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "policy"),
    [
        *(pytest.param(np.float64, policy, id=f"float64-{name}") for policy, name in zip(POLICIES, NAMES)),
        *((dtype, policy) for dtype in (np.float32, np.complex128) for policy in ("nothing", "products")),
    ],
)
def test_values_and_gradients_are_those_of_the_function(policy, dtype, weights, rng):
    ws = wl.tree_map(lambda a: a.astype(dtype), weights)
    x = rng.normal(size=(5, 3)).astype(dtype)

    def loss(f):
        return lambda ws, x: np.real(network(f)(ws, x))

    plain, saved = loss(layer), loss(wl.checkpoint(layer, policy=policy))
    rtol = 2e-5 if dtype == np.float32 else 1e-12
    assert saved(ws, x) == plain(ws, x)
    expected = wl.value_and_grad(plain, (0, 1))(ws, x)
    same(wl.value_and_grad(saved, (0, 1))(ws, x), expected, rtol, rtol)
    same(wl.jit(wl.value_and_grad(saved, (0, 1)))(ws, x), expected, rtol, rtol)
    same(wl.grad(lambda ws, x: wl.jit(saved)(ws, x))(ws, x), expected[1][0], rtol, rtol)


@pytest.mark.parametrize("policy", POLICIES, ids=NAMES)
def test_forward_mode_batches_and_second_order(policy, weights, rng):
    x, t = rng.normal(size=(2, 5, 3))
    saved, plain = network(wl.checkpoint(layer, policy=policy)), network(layer)

    def everything(loss):
        def of_x(x):
            return loss(weights, x)

        def hvp(x, t):
            return wl.jvp(wl.grad(of_x), (x,), (t,))[1]

        def reverse_over_reverse(x, t):
            return wl.grad(lambda x: np.sum(wl.grad(of_x)(x) * t))(x)

        def reverse_over_forward(x, t):
            return wl.grad(lambda x: wl.jvp(of_x, (x,), (t,))[1])(x)

        rows = wl.vmap(of_x)
        return [
            wl.jvp(of_x, (x,), (t,)),
            hvp(x, t),
            reverse_over_reverse(x, t),
            reverse_over_forward(x, t),
            rows(x[:, None]),
            wl.vmap(wl.grad(of_x))(x[:, None]),
            wl.grad(lambda x: np.sum(rows(x) ** 2))(x[:, None]),
            wl.jit(hvp)(x, t),
            wl.jit(reverse_over_reverse)(x, t),
            wl.jit(wl.vmap(wl.grad(of_x)))(x[:, None]),
        ]

    same(everything(saved), everything(plain), 1e-11, 1e-11)


def test_jacobians_and_linearize(weights, rng):
    x, t = rng.normal(size=(2, 2, 3))
    plain = lambda x: layer(weights[0], x)
    f = wl.checkpoint(plain)
    for mode in ("forward", "reverse"):
        same(wl.jacobian(f, mode=mode)(x), wl.jacobian(plain, mode=mode)(x))
    value, push = wl.linearize(f, x)
    same((value, push(t)), wl.jvp(plain, (x,), (t,)))
    _, pull = wl.vjp(f, x)
    for _ in range(2):  # as often as one likes
        same(pull(t), wl.vjp(plain, x)[1](t))


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (1, 4)])
def test_any_shape(shape, rng):
    x = rng.normal(size=shape)
    f = wl.checkpoint(lambda x: np.sum(np.sin(x) * np.exp(x)))
    expected = np.exp(x) * (np.sin(x) + np.cos(x))
    same(wl.grad(f)(x), expected)
    same(wl.jit(wl.grad(f))(x), expected)
    same(wl.grad(f)(x.T), expected.T)


def test_python_numbers_stay_weak():
    f = wl.checkpoint(lambda x, a: np.sin(x * a) * 2.0)
    x = np.float32(0.5) * np.ones(3, np.float32)
    assert wl.grad(lambda x: np.sum(f(x, 2.0)))(x).dtype == np.float32
    assert wl.jit(wl.grad(lambda x: np.sum(f(x, 2.0))))(x).dtype == np.float32
    assert wl.grad(lambda a: np.sum(f(x, a)))(2.0) == pytest.approx(float(np.sum(2 * np.cos(1.0) * x)), rel=1e-6)


def test_check_grads(rng):
    check_grads(wl.checkpoint(lambda x: np.cumsum(np.tanh(x) ** 2)), (rng.normal(size=4),), order=2)


def test_decorator_keywords_and_what_is_no_array(rng):
    @wl.checkpoint(policy="products")
    def f(x, *, power, mode):
        """Powers."""
        return {"out": np.sin(x) ** power, "aux": (x * 2, 3)} if mode == "a" else None

    assert f.__doc__ == "Powers."
    x = rng.normal(size=3)

    def loss(x):
        out = f(x, power=2, mode="a")
        return np.sum(out["out"]), out["aux"]

    gradient, (twice, three) = wl.grad(loss, has_aux=True)(x)
    same(gradient, np.sin(2 * x))
    same(twice, 2 * x)
    assert three == 3


@pytest.mark.parametrize("train", [False, True])
def test_numbers_of_python_stay_numbers(train, rng):
    @wl.checkpoint
    def f(model, x, size, train=False):
        return np.sum(model(x)[:size]) if train else np.sum(np.sin(x)[: size + 1])

    x = rng.normal(size=(4, 3))
    for transform in (wl.grad, lambda g: wl.jit(wl.grad(g))):
        model = Normalised()
        found = transform(lambda x, m, train=train: f(m, x, 2, train=train))(x, model)
        expected = wl.grad(lambda x: np.sum(Normalised()(x)[:2]) if train else np.sum(np.sin(x)[:3]))(x)
        same((found, model.calls), (expected, np.array(float(train))))


def test_code_that_writes_in_place(rng):
    @wl.checkpoint
    def f(x):
        out = np.zeros_like(x)
        for i in range(3):
            out[i] = np.sin(x[i])
            x[i] *= 2  # on a copy: the argument stays
        out[1:] += x[:-1]
        return out

    x = rng.normal(size=3)
    for transformed in (wl.grad, lambda g: wl.jit(wl.grad(g))):
        before = x.copy()
        same(transformed(lambda x: np.sum(f(x) ** 2 + x))(x), wl.grad(lambda x: _by_hand(x))(x))
        assert np.array_equal(x, before)
    with pytest.raises(ValueError, match="read-only"):
        f(x)  # as everywhere: an argument isn't half changed


def _by_hand(x):
    shifted = np.concatenate([np.zeros(1), 2 * x[:-1]])
    return np.sum((np.sin(x) + shifted) ** 2 + x)


def test_closures_over_traced_values_and_arrays(rng):
    a, b = rng.normal(size=(2, 4))

    def loss(x, y):
        @wl.checkpoint
        def f(z):
            return np.sin(z * y) * a  # y is differentiated, and not an argument of f

        return np.sum(f(x) * f(x * b))

    expected = wl.grad(lambda x, y: np.sum(np.sin(x * y) * a * np.sin(x * b * y) * a), (0, 1))(a, b)
    same(wl.grad(loss, (0, 1))(a, b), expected)
    same(wl.jit(wl.grad(loss, (0, 1)))(a, b), expected)


def test_a_captured_array_that_changes_before_the_backward_pass(rng):
    x, w = rng.normal(size=(2, 4))
    expected = np.cos(x * w) * w
    _, pull = wl.vjp(wl.checkpoint(lambda x: np.sin(x * w)), x)
    w *= 5.0
    same(pull(np.ones(4))[0], expected)


@wl.register_mutable
class Normalised:
    def __init__(self):
        self.scale = np.full(3, 0.5)
        self.mean = np.zeros(3)
        self.calls = np.zeros(())

    def __call__(self, x):
        self.mean = 0.9 * self.mean + 0.1 * np.mean(x, 0)
        self.calls = self.calls + 1
        return np.sin((x - np.mean(x, 0)) * self.scale)

    def method(self, x):
        return self(x) * 2


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("way", ["argument", "called", "method"])
def test_modules_are_written_once(compiled, way, rng):
    x = rng.normal(size=(5, 3))

    def loss(f):
        def of(model, x):
            if way == "argument":
                return np.sum(f(lambda m, x: m(x))(model, x) ** 2)
            return np.sum(f(model if way == "called" else model.method)(x) ** 2)

        return of

    model, reference = Normalised(), Normalised()
    expected = wl.grad(loss(lambda f: f))(reference, x)
    gradient = wl.grad(loss(wl.checkpoint))
    found = (wl.jit(gradient) if compiled else gradient)(model, x)
    same(found.scale, expected.scale)
    same((model.mean, model.calls), (reference.mean, np.ones(())))
    wl.checkpoint(model)(x)  # without a derivative too
    assert model.calls == 2


def test_a_module_that_is_no_argument_may_not_be_written(rng):
    def loss(model, x):
        return np.sum(wl.checkpoint(lambda x: model(x))(x))

    with pytest.raises(wl.MutationError, match="Pass the object to the function"):
        wl.grad(loss)(Normalised(), rng.normal(size=(5, 3)))


def test_rules_of_the_users_are_used(rng):
    @wl.custom_jvp
    def triple(x):
        return x * 3

    triple.defjvp(lambda p, t: (triple(p[0]), t[0] * 30))

    @wl.custom_vjp
    def quadruple(x):
        return x * 4

    quadruple.defvjp(lambda x: (x * 4, np.cos(x)), lambda r, ct: (ct * 40 * r,))
    x = rng.normal(size=3)
    f = wl.checkpoint(lambda x: np.sum(quadruple(triple(x))))
    same(wl.grad(f)(x), 1200 * np.cos(3 * x))
    same(wl.jit(wl.grad(f))(x), 1200 * np.cos(3 * x))


@pytest.mark.parametrize("policy", ["nothing", "everything", wl.save_names("y")])
def test_control_flow_inside(policy, rng):
    def f(x):
        y, _ = wl.scan(lambda c, row: (wl.checkpoint_name(np.sin(c * row), "y"), None), x[0], x)
        y = wl.cond(np.sum(y) > 0, lambda y: y**2, lambda y: np.cos(y), y)
        return np.sum(wl.while_loop(lambda y: np.max(np.abs(y)) > 0.01, lambda y: y * np.tanh(y) * 0.9, y))

    x = rng.normal(size=(4, 3))
    g = wl.checkpoint(f, policy=policy)
    same(wl.grad(g)(x), wl.grad(f)(x))
    same(wl.jit(wl.grad(g))(x), wl.grad(f)(x))
    same(wl.jvp(wl.grad(g), (x,), (x,)), wl.jvp(wl.grad(f), (x,), (x,)), 1e-11)
    inside, _ = wl.scan(lambda c, row: (c + g(row[None]), None), 0.0, x)
    same(wl.grad(lambda x: wl.scan(lambda c, row: (c + g(row[None]), None), 0.0, x)[0])(x),
         wl.grad(lambda x: wl.scan(lambda c, row: (c + f(row[None]), None), 0.0, x)[0])(x))  # fmt: skip
    assert np.isfinite(inside)


def test_decisions_by_values_are_followed():
    def f(x):
        y = np.sin(x)
        if np.sum(y) > 0:
            y = y * x
        while np.max(np.abs(y)) < 10:
            y = y * 2.0
        return np.sum(y)

    saved, x = wl.checkpoint(f), np.array([0.5, 1.0])
    same(wl.grad(saved)(x), 16 * (np.cos(x) * x + np.sin(x)))
    same(wl.grad(saved)(-x), 16 * np.cos(x))
    same(wl.jacobian(wl.grad(saved))(x), 16 * np.diag(2 * np.cos(x) - np.sin(x) * x))
    with pytest.raises(wl.NoValueError, match=r"test_checkpoint\.py"):
        wl.jit(wl.grad(saved))(x)


def test_random_numbers_are_the_same_again(rng):
    def f(key, x):
        return np.sum(np.sin(x * wl.random.normal(key, x.shape)) * (wl.random.uniform(key, x.shape) < 0.5))

    key, x = wl.random.key(7), rng.normal(size=20)
    for policy in ("nothing", "products"):
        g = wl.checkpoint(f, policy=policy)
        same(wl.grad(g, 1)(key, x), wl.grad(f, 1)(key, x))
        same(wl.jit(wl.grad(g, 1))(key, x), wl.grad(f, 1)(key, x), 1e-12)


@pytest.mark.parametrize("seed", range(24))
def test_random_programs(seed):
    """Whatever people write: loops, writes in place, decisions by values."""
    f, args = random_program(seed)
    chosen = [i for i, a in enumerate(args) if is_inexact(a)]
    policy = POLICIES[seed % 3]

    def loss(f):
        def of(*values):
            full = list(args)
            for i, v in zip(chosen, values, strict=True):
                full[i] = v
            return sum(np.sum(o * o + np.sin(o)) for o in f(*full) if is_inexact(unwrap(o)))

        return of

    numbers = tuple(range(len(chosen)))
    values = [args[i] for i in chosen]
    found = wl.value_and_grad(loss(wl.checkpoint(f, policy=policy)), numbers)(*values)
    same(found, wl.value_and_grad(loss(f), numbers)(*values), 1e-12, 1e-12)


def test_programs_are_in_order_and_equal_ones_are_used_again(weights, rng):
    x = rng.normal(size=(5, 3))
    loss = network(wl.checkpoint(layer, policy="products"))
    program = wl.verify(wl.trace(wl.value_and_grad(loss))(weights, x))
    calls = [e.params["program"] for e in program.equations if e.primitive.name in ("checkpoint", "recompute")]
    assert len(calls) == 6
    assert len({id(p) for p in calls}) <= 4  # the first layer's argument has no derivative


def test_functions_that_differ_in_a_number_are_told_apart():
    def loss(x, k):
        return np.sum(wl.checkpoint(lambda x: np.sin(x * k) + np.max(x[:k]))(x))

    x = np.array([0.5, 1.0, 2.0])
    for k in (1, 2, 3, 2):
        same(wl.grad(loss)(x, k), wl.grad(lambda x, k=k: np.sum(np.sin(x * k) + np.max(x[:k])))(x))
    for power in (2, 2.0, 3):
        same(wl.grad(lambda x, p=power: np.sum(wl.checkpoint(lambda x: x**p)(x)))(x), power * x ** (power - 1))


# -- how much is computed again ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize(
    ("policy", "ticks", "tocks"),
    [("nothing", 6, 6), ("everything", 3, 3), (wl.save_names("first"), 3, 6), (wl.save_names("none"), 6, 6),
     (lambda e: e.primitive.name == "tock", 6, 3)],
)  # fmt: skip
def test_what_is_kept_is_not_computed_again(policy, ticks, tocks, compiled, rng):
    """`tick` makes what is named; `tock` works on it. Both results are residuals."""

    @wl.checkpoint(policy=policy)
    def f(x):
        first = wl.checkpoint_name(tick(np.sin(x)), "first")
        second = tock(first * first)
        return second * second

    def loss(x):
        return np.sum(f(f(f(x))))

    gradient = wl.jit(wl.value_and_grad(loss)) if compiled else wl.grad(loss)  # compiled code drops what isn't used
    x = rng.normal(size=5)
    gradient(x)
    counts.clear()
    gradient(x)
    assert counts == {"tick": ticks, "tock": tocks}


def test_products_are_kept(rng):
    w = rng.normal(size=(4, 4))

    def equations(policy):
        program = wl.trace(wl.grad(wl.checkpoint(lambda x: np.sum(np.tanh(np.exp(x @ w) @ w)), policy=policy)))(w)
        inside = [e.params["program"] for e in program.equations if e.primitive.name == "recompute"]
        return Counter(e.primitive.name for p in inside for e in p.equations)

    again = equations("nothing") - equations("products")
    assert again == {"dot": 2}


def test_a_named_value_is_kept_without_its_name(rng):
    """exp's derivative is its result, before it has a name."""
    f = wl.checkpoint(lambda x: wl.checkpoint_name(np.exp(tick(x)), "e") * 2.0, policy=wl.save_names("e"))
    _, ticks = counted(wl.grad(lambda x: np.sum(f(x))), rng.normal(size=3))
    assert ticks == 1


def test_compiled_code_does_not_share_what_is_computed_again(rng):
    f = wl.checkpoint(lambda x: np.sin(np.exp(x)))
    gradient = wl.jit(wl.value_and_grad(lambda x: np.sum(f(x))))
    stages = gradient.inspect(rng.normal(size=9)).stages
    assert str(stages[-1][1]).count("exp ") == 2


# -- memory ------------------------------------------------------------------------------------------------------------


def deep(f, depth):
    def loss(x):
        for _ in range(depth):
            x = f(x)
        return np.sum(x)

    return loss


def block(x):
    for _ in range(10):
        x = np.sin(x) * 1.01
    return x


def test_peak_memory_of_blocks():
    """16 blocks of 10 operations: 160 values, or 16 and the 10 of one block."""
    x = np.linspace(0.0, 1.0, 2**14)
    plain, saved = (wl.grad(deep(f, 16)) for f in (block, wl.checkpoint(block)))
    assert peak_of(plain, x) > 155 * x.nbytes
    assert peak_of(saved, x) < 35 * x.nbytes
    compiled = wl.jit(saved)
    assert wl.jit(plain).inspect(x).peak_bytes > 150 * x.nbytes
    assert compiled.inspect(x).peak_bytes < 32 * x.nbytes
    same(compiled(x), plain(x))


def test_nothing_of_size_stays_behind():
    """What is known of a function for its next call are Programs, without arrays."""
    x = np.ones(2**17)
    f = wl.checkpoint(lambda x: np.sum(x[:10] * x[5:15]) + x[3] * x[7] + np.sum(np.sort(x)[:3]))
    gc.collect()
    tracemalloc.start()
    for _ in range(2):
        wl.grad(f)(x)
    gc.collect()
    left = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert left < 0.5 * x.nbytes


@pytest.mark.parametrize("segments", [1, 3, 4, 12])
def test_checkpoint_sequential(segments, rng):
    functions = [lambda x, k=k: np.sin(tick(x) + k) for k in range(12)]

    def loss(x):
        return np.sum(wl.checkpoint_sequential(functions, segments, x))

    def plain(x):
        for f in functions:
            x = f(x)
        return np.sum(x)

    x = rng.normal(size=7)
    found, ticks = counted(wl.grad(loss), x)
    same(found, wl.grad(plain)(x))
    same(wl.jit(wl.grad(loss))(x), wl.grad(plain)(x))
    last = 12 - 12 * (segments - 1) // segments
    assert ticks == 12 + (12 - last)  # the last part isn't computed again


def test_checkpoint_sequential_of_modules(rng):
    x = rng.normal(size=(5, 3))
    models, references = [Normalised() for _ in range(4)], [Normalised() for _ in range(4)]

    def plain(models, x):
        for m in models:
            x = m(x)
        return np.sum(x)

    found = wl.grad(lambda m, x: np.sum(wl.checkpoint_sequential(m, 2, x)))(models, x)
    expected = wl.grad(plain)(references, x)
    for f, e, m, r in zip(found, expected, models, references, strict=True):
        same((f.scale, m.mean, m.calls), (e.scale, r.mean, r.calls))


# -- a budget ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [2.0, 0.6, *(pytest.param(n, marks=pytest.mark.slow) for n in (0.8, 0.45))])
def test_memory_budget_is_kept(share, rng):
    ws = [rng.normal(size=(30, 30)) / 6 for _ in range(6)]
    x = rng.normal(size=(3000, 30))

    def loss(ws, x):
        for w in ws:
            x = np.tanh(x @ w) * np.exp(-x * x) + np.sin(x)
        return np.sum(x * x)

    plain = wl.grad(loss)
    most = peak_of(plain, ws, x)
    budget = share * most
    gradient = wl.grad(loss, memory_budget=budget)
    compiled = wl.jit(gradient)
    assert peak_of(gradient, ws, x) < budget + 300_000  # Python's own objects
    assert compiled.inspect(ws, x).peak_bytes < budget
    same(gradient(ws, x), plain(ws, x))
    same(compiled(ws, x), plain(ws, x), 1e-9, 1e-9)
    value, _ = wl.value_and_grad(loss, memory_budget=budget)(ws, x)
    assert value == loss(ws, x)


def test_memory_budget_that_is_enough_computes_nothing_again(rng):
    def loss(x):
        return np.sum(np.sin(tick(np.exp(x))))

    x = rng.normal(size=1000)
    assert counted(wl.grad(loss, memory_budget=1e9), x)[1] == 1


def test_memory_budget_that_is_impossible_says_what_is_possible(rng):
    with pytest.raises(wl.ArgumentError, match=r"smallest that was found, .*, is [\d,]+ bytes"):
        wl.grad(deep(block, 4), memory_budget=1000)(np.ones(1000))


def test_memory_budget_is_of_the_function_at_hand():
    """Programs that differ in nothing but the length of a loop, or in what reads what, don't share a choice."""

    def loop(x, n):
        return np.sum(np.sin(wl.fori_loop(0, n, lambda i, h: np.sin(h), x)))

    gradient = wl.grad(loop, memory_budget=200e3)
    x = np.linspace(0.0, 1.0, 1000)
    same(gradient(x, 5), wl.grad(loop)(x, 5))
    with pytest.raises(wl.ArgumentError, match="200,000 bytes is too little"):
        gradient(x, 1000)


def test_memory_budget_of_a_constant(rng):
    assert np.array_equal(wl.grad(lambda x: np.sum(np.ones(3)), memory_budget=1e6)(np.ones(2)), np.zeros(2))
    gradient, aux = wl.grad(lambda x: (1.0, np.sin(x)), has_aux=True, memory_budget=1e6)(np.ones(2))
    assert np.array_equal(gradient, np.zeros(2))
    same(aux, np.sin(np.ones(2)))


def test_memory_budget_with_aux_trees_jit_and_modules(rng):
    x = rng.normal(size=(5, 3))
    model, reference = Normalised(), Normalised()

    def loss(model, batch, scale):
        y = wl.jit(lambda y: np.sin(np.cos(np.exp(-y * y))))(model(batch["x"]))
        return np.sum(y * scale), {"y": y}

    found, aux = wl.grad(loss, has_aux=True, memory_budget=1500)(model, {"x": x}, 2.0)
    expected, aux_expected = wl.grad(loss, has_aux=True)(reference, {"x": x}, 2.0)
    same((found.scale, aux, model.mean, model.calls), (expected.scale, aux_expected, reference.mean, reference.calls))


# -- wrong arguments ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: wl.checkpoint(np.sin, policy="dots"), "policy='dots'"),
        (lambda: wl.checkpoint(3), "takes a function, not int"),
        (lambda: wl.save_names(3), "takes names"),
        (lambda: wl.checkpoint_name(np.ones(3), 3), "the name is a string"),
        (lambda: wl.checkpoint_sequential([], 1, 1.0), "no functions"),
        (lambda: wl.checkpoint_sequential([np.sin], 2, 1.0), "from 1 to"),
        (lambda: wl.binomial(0), "at least 1"),
        (lambda: wl.scan(lambda c, x: (c, x), 1.0, length=3, checkpoint="root"), "checkpoint='root'"),
        (lambda: wl.scan(lambda c, x: (c, x), 1.0, length=3, checkpoint=0), "checkpoint=0"),
        (lambda: wl.scan(lambda c, x: (c, x), 1.0, length=3, checkpoint=True), "checkpoint=True"),
        (lambda: wl.grad(np.sin, memory_budget="1 GB"), "number of bytes"),
        (lambda: wl.grad(np.sin, memory_budget=-1), "number of bytes"),
        (lambda: wl.grad(np.sin, memory_budget=np.nan), "number of bytes"),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(wl.ArgumentError, match=message):
        call()
