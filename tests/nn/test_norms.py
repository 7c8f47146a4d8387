"""Normalisation without peers: definitions, modes, errors, ranks, statistics of a training set, folding."""

import copy
import threading

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn

JIT = pytest.mark.parametrize("jit", [lambda f: f, wl.jit], ids=["eager", "compiled"])


def normal(*shape, seed=0, dtype=np.float64):
    return (np.random.default_rng(seed).standard_normal(shape) * 2 + 1).astype(dtype)


def call(model, x):
    return model(x)


def sines(model, x, weights):
    return np.sum(np.sin(model(x)) * weights)


# Definitions ---------------------------------------------------------------------------------------------------------

EXPECTED = {
    "BatchNorm axis 1": (lambda: nn.BatchNorm(3, dtype=np.float64), (4, 3, 5), (0, 2), 1e-5),
    "BatchNorm axis -1": (lambda: nn.BatchNorm(5, -1, dtype=np.float64), (4, 3, 5), (0, 1), 1e-5),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(3, eps=0.1, dtype=np.float64), (4, 3, 2, 5), (0, 2, 3), 0.1),
    "BatchNorm2d, more axes": (lambda: nn.BatchNorm2d(3, dtype=np.float64), (2, 4, 3, 2, 5), (0, 1, 3, 4), 1e-5),
    "LayerNorm": (lambda: nn.LayerNorm((3, 5), dtype=np.float64), (4, 3, 5), (1, 2), 1e-5),
    "GroupNorm of one": (lambda: nn.GroupNorm(1, 3, dtype=np.float64), (4, 3, 5), (1, 2), 1e-5),
    "GroupNorm of each": (lambda: nn.GroupNorm(3, 3, dtype=np.float64), (4, 3, 5), (2,), 1e-5),
    "InstanceNorm": (lambda: nn.InstanceNorm(3, dtype=np.float64), (4, 3, 5, 2), (2, 3), 1e-5),
}


@JIT
@pytest.mark.parametrize("name", EXPECTED)
def test_mean_zero_and_variance_one(name, jit):
    make, shape, axes, eps = EXPECTED[name]
    x = normal(*shape)
    variance = x.var(axes, keepdims=True)
    expected = (x - x.mean(axes, keepdims=True)) / np.sqrt(variance + eps)
    np.testing.assert_allclose(jit(call)(make(), x), expected, atol=1e-12)


@JIT
def test_root_mean_square(jit):
    x = normal(4, 6)
    layer = nn.RMSNorm(6, dtype=np.float64)
    layer.weight[:] = np.arange(6)
    expected = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + np.finfo(np.float64).eps) * np.arange(6)
    np.testing.assert_allclose(jit(call)(layer, x), expected, rtol=1e-12)


@pytest.mark.parametrize("name", EXPECTED)
def test_derivatives(name):
    make, shape, _, _ = EXPECTED[name]
    weights = normal(*shape, seed=1)
    wl.testing.check_grads(lambda x: sines(make(), x, weights), (normal(*shape),), order=2)


def test_modes_and_buffers():
    layer, x = nn.BatchNorm1d(3, dtype=np.float64), normal(6, 3)
    layer(x)
    np.testing.assert_allclose(layer.running_mean, 0.1 * x.mean(0))
    np.testing.assert_allclose(layer.running_var, 0.9 + 0.1 * x.var(0, ddof=1))
    assert layer.num_batches_tracked == 1
    before = {name: value.copy() for name, value in layer.state().items()}
    layer.eval()
    y = layer(x)
    np.testing.assert_allclose(y, (x - layer.running_mean) / np.sqrt(layer.running_var + 1e-5))
    assert all(np.array_equal(before[name], value) for name, value in layer.state().items())
    layer.train().reset_running_stats()
    assert not layer.running_mean.any() and (layer.running_var == 1).all() and layer.num_batches_tracked == 0


@JIT
def test_cumulative_average(jit):
    layer, batches = nn.BatchNorm1d(3, momentum=None, dtype=np.float64), [normal(6, 3, seed=i) for i in range(5)]
    run = jit(call)
    for x in batches:
        run(layer, x)
    np.testing.assert_allclose(layer.running_mean, np.mean([x.mean(0) for x in batches], 0))
    np.testing.assert_allclose(layer.running_var, np.mean([x.var(0, ddof=1) for x in batches], 0))


@JIT
def test_buffers_keep_their_identity_and_have_no_derivative(jit):
    layer, x = nn.BatchNorm1d(3, dtype=np.float64), normal(6, 3)
    mean = layer.running_mean
    grads = jit(wl.grad(sines))(layer, x, normal(6, 3, seed=1))
    assert layer.running_mean is mean and mean.any()
    assert grads.running_mean is None and grads.num_batches_tracked is None and grads.weight.shape == (3,)

    def later(x):  # what is read from the running mean has no derivative, as in PyTorch
        with nn.evaluating(copied):
            return np.sum(copied(x))

    copied = copy.deepcopy(layer)
    np.testing.assert_allclose(wl.grad(later)(x), np.ones((6, 1)) / np.sqrt(copied.running_var + 1e-5))


def test_affine_changes_are_seen_by_compiled_code():
    layer, x = nn.BatchNorm1d(3).eval(), normal(4, 3, dtype=np.float32)
    run = wl.jit(lambda x: layer(x))
    first = run(x)
    layer.weight *= 5
    np.testing.assert_allclose(run(x), 5 * first, rtol=1e-6)


def test_channels_last_is_the_same():
    x = normal(4, 3, 5, 2)
    for first, last in [
        (nn.BatchNorm2d(3, dtype=np.float64), nn.BatchNorm2d(3, channels_last=True, dtype=np.float64)),
        (nn.InstanceNorm2d(3, dtype=np.float64), nn.InstanceNorm2d(3, channels_last=True, dtype=np.float64)),
    ]:
        np.testing.assert_allclose(np.moveaxis(last(np.moveaxis(x, 1, -1)), -1, 1), first(x), atol=1e-12)


def test_dtypes():
    for make in (
        lambda d: nn.BatchNorm1d(3, dtype=d),
        lambda d: nn.LayerNorm(3, dtype=d),
        lambda d: nn.RMSNorm(3, dtype=d),
        lambda d: nn.GroupNorm(1, 3, dtype=d),
    ):
        for dtype in (np.float32, np.float64):
            for run in (call, wl.jit(call)):
                assert run(make(dtype), normal(4, 3, dtype=dtype)).dtype == dtype


def test_constant_channels_are_the_bias():
    layer = nn.BatchNorm1d(2)
    layer.bias[:] = 7
    np.testing.assert_allclose(layer(np.full((5, 2), 3.0, np.float32)), 7)
    grads = wl.grad(lambda layer, x: np.sum(np.sin(layer(x))), 1)(layer, np.full((5, 2), 3.0, np.float32))
    assert np.isfinite(grads).all()


def test_large_means_do_no_harm():
    x = (1e4 + np.random.default_rng(0).standard_normal((64, 3))).astype(np.float32)
    for layer, axis in ((nn.BatchNorm1d(3), 0), (nn.LayerNorm(3), 1)):
        wide = x.astype(np.float64)
        expected = (wide - wide.mean(axis, keepdims=True)) / np.sqrt(wide.var(axis, keepdims=True) + 1e-5)
        assert np.max(np.abs(wl.jit(call)(layer, x) - expected)) < 5e-3


def test_sizes_that_are_filled():
    model = nn.Sequential(nn.Conv2d(2, 6, 3), nn.BatchNorm2d(None), nn.GroupNorm(2, None), nn.LayerNorm(None))
    nn.build(model, normal(2, 2, 6, 6, dtype=np.float32))
    assert model[1].weight.shape == model[1].running_var.shape == model[2].weight.shape == (6,)
    assert model[3].weight.shape == (4,)
    with pytest.raises(ValueError, match=r"nn\.build"):
        nn.LayerNorm(None)(normal(2, 3))


# What is wrong -------------------------------------------------------------------------------------------------------


@JIT
def test_one_value_for_each_channel(jit):
    for layer, shape in ((nn.BatchNorm1d(3), (1, 3)), (nn.BatchNorm2d(3), (1, 3, 1, 1)), (nn.BatchNorm1d(3), (0, 3))):
        with pytest.raises(ValueError, match="no variance"):
            jit(call)(layer, np.zeros(shape, np.float32))
        assert layer.num_batches_tracked == 0
        jit(call)(layer.eval(), np.zeros(shape, np.float32))
    with pytest.raises(ValueError, match="no variance"):
        nn.BatchNorm1d(3, track_running_stats=False).eval()(np.zeros((1, 3), np.float32))
    with pytest.raises(ValueError, match="no variance"):
        nn.InstanceNorm1d(3)(np.zeros((2, 3, 1), np.float32))


def test_errors_name_the_layer_and_the_shapes():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(5))
    message = r"1 \(BatchNorm1d\): expected .* \(6, 5\), with 5 channels along axis 1, got \(6, 3\)"
    with pytest.raises(ValueError, match=message):
        model(normal(6, 4, dtype=np.float32))
    with pytest.raises(ValueError, match=r"BatchNorm2d.*\(N, C, H, W\), got \(6, 3\)"):
        nn.BatchNorm2d(3)(normal(6, 3))
    with pytest.raises(ValueError, match=r"LayerNorm.*\(\.\.\., 5\), got \(6, 3\)"):
        nn.LayerNorm(5)(normal(6, 3))
    with pytest.raises(ValueError, match=r"can't be divided into 3 groups"):
        nn.GroupNorm(3, 4)
    with pytest.raises(ValueError, match="at least 1"):
        nn.BatchNorm1d(0)
    with pytest.raises(TypeError, match="real numbers"):
        nn.LayerNorm(3)(np.zeros((2, 3), complex))


def test_vmap_of_batch_statistics_raises_and_ensembles_work():
    layer, x = nn.BatchNorm1d(3), normal(4, 6, 3, dtype=np.float32)
    with pytest.raises(wl.MutationError):
        wl.vmap(call, in_axes=(None, 0))(layer, x)
    models = nn.stack([nn.BatchNorm1d(3) for _ in range(4)])
    y = wl.vmap(call)(models, x)
    for one, part, out in zip(nn.unstack(models), x, y, strict=True):
        again = nn.BatchNorm1d(3)
        np.testing.assert_allclose(again(part), out, atol=1e-5)
        np.testing.assert_allclose(one.running_mean, again.running_mean, rtol=1e-5)


# Ranks ---------------------------------------------------------------------------------------------------------------


class Ranks:
    """Threads that add arrays up, each with what the others give."""

    def __init__(self, count):
        self.barrier = threading.Barrier(count, timeout=60)
        self.parts = [None] * count

    def of(self, rank):
        def reduce(array):
            self.parts[rank] = array
            self.barrier.wait()
            total = sum(self.parts[1:], self.parts[0])
            self.barrier.wait()
            return total

        return reduce

    def run(self, work):
        """`work(rank, reduce)` on all ranks at once; their results."""
        results = [None] * len(self.parts)

        def go(rank):
            try:
                results[rank] = work(rank, self.of(rank))
            except BaseException as error:
                results[rank] = error
                self.barrier.abort()

        threads = [threading.Thread(target=go, args=(rank,)) for rank in range(len(self.parts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results


@JIT
def test_synchronised_ranks_are_one_batch(jit):
    x, weights = normal(12, 3, 4), normal(12, 3, 4, seed=1)
    start = nn.Sequential(nn.BatchNorm1d(3, dtype=np.float64), nn.tanh, nn.BatchNorm(3, dtype=np.float64))
    start[0].weight[:] = 1, 2, 3
    whole = copy.deepcopy(start)
    loss, (of_model, of_x) = wl.value_and_grad(sines, (0, 1))(whole, x, weights)
    parts = [slice(0, 5), slice(5, 6), slice(6, 12)]

    def work(rank, reduce):
        model, part = copy.deepcopy(start), parts[rank]
        with nn.synchronize(model, reduce):
            return model, jit(wl.value_and_grad(sines, (0, 1)))(model, x[part], weights[part])

    results = Ranks(3).run(work)
    np.testing.assert_allclose(sum(out[0] for _, out in results), loss)
    np.testing.assert_allclose(np.concatenate([out[1][1] for _, out in results]), of_x, atol=1e-13)
    np.testing.assert_allclose(sum(out[1][0][0].weight for _, out in results), of_model[0].weight, atol=1e-12)
    for model, _ in results:
        for name, value in whole.state().items():
            np.testing.assert_allclose(model.state()[name], value, err_msg=name)
        assert "_ranks" not in vars(model[0])


def test_synchronised_forward_mode_and_second_order():
    x, weights, direction = normal(8, 3), normal(8, 3, seed=1), normal(8, 3, seed=2)
    start = nn.BatchNorm1d(3, dtype=np.float64)
    of = lambda model, weights: lambda x: sines(copy.deepcopy(model), x, weights)
    tangent = wl.jvp(of(start, weights), (x,), (direction,))[1]
    second = wl.hvp(of(start, weights), (x,), (direction,))

    def work(rank, reduce):
        model, part = copy.deepcopy(start), slice(4 * rank, 4 * rank + 4)
        with nn.synchronize(model, reduce):
            f, args = of(model, weights[part]), ((x[part],), (direction[part],))
            return wl.jvp(f, *args)[1], wl.hvp(f, *args)

    results = Ranks(2).run(work)
    np.testing.assert_allclose(sum(forward for forward, _ in results), tangent)
    second, found = (wl.tree_leaves(t) for t in (second, [h for _, h in results]))
    np.testing.assert_allclose(np.concatenate(found), second[0], atol=1e-12)


def test_synchronisation_ends_and_needs_a_function():
    model, x = nn.Sequential(nn.BatchNorm1d(3)), normal(6, 3, dtype=np.float32)
    run = wl.jit(call)
    alone = run(copy.deepcopy(model), x)
    with nn.synchronize(model, lambda a: 2 * a):  # another rank with the same batch
        np.testing.assert_allclose(run(copy.deepcopy(model), x), alone, atol=1e-6)
        twice = copy.deepcopy(model)
        run(twice, x)
    np.testing.assert_allclose(twice[0].running_var, 0.9 + 0.1 * np.var(np.concatenate([x, x]), 0, ddof=1), rtol=1e-5)
    np.testing.assert_allclose(run(model, x), alone)
    with pytest.raises(wl.ArgumentError, match="function"), nn.synchronize(model, None):
        pass


# Statistics of a training set ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [False, True])
def test_statistics_of_all_batches_together(compiled):
    x = normal(40, 3, 4, 4, dtype=np.float32)
    model = nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(0.5), nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2, momentum=None))
    model(x[:7])
    key = model[1].key.copy()
    model[1].eval()
    assert nn.update_statistics(model, [(x[:15], 0), (x[15:20], 0), (x[20:], 0)], compiled=compiled) is model
    np.testing.assert_allclose(model[0].running_mean, x.mean((0, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(model[0].running_var, x.var((0, 2, 3), ddof=1), rtol=1e-5)
    assert model[0].num_batches_tracked == 3 and np.array_equal(model[1].key, key)
    assert model[0].training and not model[1].training and "_sums" not in model[0].state()
    inner = np.concatenate([model[2](nn.BatchNorm2d(3)(part)) for part in (x[:15], x[15:20], x[20:])])
    np.testing.assert_allclose(model[3].running_mean, inner.mean((0, 2, 3)), atol=1e-5)
    np.testing.assert_allclose(model[3].running_var, inner.var((0, 2, 3), ddof=1), rtol=1e-4)


def test_statistics_are_as_before_after_an_error():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)).eval()
    before = {name: value.copy() for name, value in model.state().items()}
    with pytest.raises(ValueError, match="channels"):
        nn.update_statistics(model, [normal(4, 3, dtype=np.float32), normal(4, 5, dtype=np.float32)])
    with pytest.raises(wl.ArgumentError, match="no batches"):
        nn.update_statistics(model, [])
    with pytest.raises(wl.ArgumentError, match="no batch norm"):
        nn.update_statistics(nn.Linear(3, 2), [])
    assert list(model.state()) == list(before) and not model[0].training
    assert all(np.array_equal(before[name], value) for name, value in model.state().items())


# Folding -------------------------------------------------------------------------------------------------------------


def trained(model, *shape):
    for seed in range(3):
        model(normal(*shape, seed=seed, dtype=np.float32))
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            parameter += 0.3 * np.random.default_rng(len(name)).standard_normal(parameter.shape).astype(np.float32)
    return model.eval()


FOLDED = {
    "Linear": (
        lambda: [nn.Linear(4, 5), nn.BatchNorm1d(5), nn.relu, nn.Linear(5, 2, bias=False), nn.BatchNorm(2)], (8, 4),
    ),
    "Conv1d": (lambda: [nn.Conv1d(2, 4, 3, groups=2), nn.BatchNorm1d(4, affine=False)], (4, 2, 9)),
    "Conv2d": (lambda: [nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4), nn.tanh], (4, 2, 6, 6)),
    "Conv2d last": (
        lambda: [nn.Conv2d(2, 4, 3, channels_last=True), nn.BatchNorm2d(4, channels_last=True)], (4, 6, 6, 2),
    ),
    "Conv3d": (lambda: [nn.Conv3d(2, 3, 2), nn.BatchNorm3d(3)], (2, 2, 4, 4, 4)),
    "ConvTranspose2d": (lambda: [nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2), nn.BatchNorm2d(6)], (2, 4, 3, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDED)
def test_folding(name):
    layers, shape = FOLDED[name]
    model = trained(nn.Sequential(*layers()), *shape)
    x = normal(*shape, seed=9, dtype=np.float32)
    before = {key: value.copy() for key, value in model.state().items()}
    for folded in (nn.fold(model), nn.fold(model, x)):
        assert not any(type(module).__name__.startswith("BatchNorm") for _, module in folded.named_modules())
        np.testing.assert_allclose(folded(x), model(x), atol=1e-6, rtol=1e-6)
        np.testing.assert_allclose(wl.jit(folded)(x), model(x), atol=2e-6, rtol=2e-6)
    assert all(np.array_equal(before[key], value) for key, value in model.state().items())


class Block(nn.Module):
    def __init__(self, tapped=False):
        self.norm = nn.BatchNorm1d(4)  # not in the order of the calls
        self.parts = {"inner": nn.Linear(3, 4), "outer": [nn.Linear(4, 4), nn.BatchNorm1d(4)]}
        self.tapped = tapped

    def __call__(self, x):
        h = self.parts["inner"](x)
        y = self.parts["outer"][1](self.parts["outer"][0](np.tanh(self.norm(h))))
        return y + h if self.tapped else y


def test_folding_by_a_run():
    model, x = trained(Block(), 8, 3), normal(8, 3, dtype=np.float32)
    assert isinstance(nn.fold(model).norm, nn.BatchNorm1d)  # nothing says that it follows a layer
    folded = nn.fold(model, x)
    assert isinstance(folded.norm, nn.Identity) and isinstance(folded.parts["outer"][1], nn.Identity)
    np.testing.assert_allclose(folded(x), model(x), atol=1e-6)
    with pytest.raises(wl.ArgumentError, match="elsewhere"):
        nn.fold(trained(Block(tapped=True), 8, 3), x)


def test_what_is_not_folded():
    shared = nn.Linear(4, 4)
    x = normal(8, 4, dtype=np.float32)
    for layers in (
        [shared, nn.BatchNorm1d(4), shared],
        [nn.Linear(4, 4), nn.relu, nn.BatchNorm1d(4)],
        [nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False)],
    ):
        model = trained(nn.Sequential(*layers), 8, 4)
        folded = nn.fold(model)
        assert isinstance(folded[1 if len(layers) == 2 or layers[1] is not nn.relu else 2], nn.BatchNorm1d)
        np.testing.assert_allclose(folded(x), model(x), atol=1e-6)


def test_checkpoints_and_loops_write_once():
    x, weights = normal(6, 3), normal(6, 3, seed=1)
    plain, again, carried = (nn.BatchNorm1d(3, dtype=np.float64) for _ in range(3))
    a = wl.grad(sines, (0, 1))(plain, x, weights)
    b = wl.grad(wl.checkpoint(sines), (0, 1))(again, x, weights)
    np.testing.assert_allclose(a[1], b[1])
    np.testing.assert_allclose(a[0].weight, b[0].weight)
    for name, value in plain.state().items():
        np.testing.assert_allclose(again.state()[name], value)

    def run(layer, x):
        return wl.scan(lambda layer, _: (layer, layer(x)), layer, np.arange(3))[1]

    wl.jit(run)(carried, x)
    plain(x)
    plain(x)
    for name, value in plain.state().items():
        np.testing.assert_allclose(carried.state()[name], value)


@JIT
def test_too_few_real_values(jit):
    layer, x = nn.BatchNorm1d(3, dtype=np.float64), normal(2, 3, 4)
    mask = np.zeros((2, 4), bool)
    mask[0, 0] = True
    with pytest.raises(ValueError, match="no variance"):
        jit(lambda layer, x, mask: layer(x, mask))(layer, x, mask)
    assert layer.num_batches_tracked == 0
    with nn.synchronize(layer, lambda a: a), pytest.raises(ValueError, match="no variance"):
        jit(call)(layer, x[:1, :, :1])
    with nn.synchronize(layer, lambda a: 2 * a):
        kept = copy.deepcopy(layer)
        jit(call)(layer, x[:1, :, :1])
    with pytest.raises(ValueError, match="after it has ended"):
        kept(x)
