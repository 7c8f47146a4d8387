"""A trained model learns something new: adapters, frozen backbones and new heads, rates by layer."""

import copy

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn, train

JIT = pytest.mark.parametrize("jit", [lambda f: f, wl.jit], ids=["eager", "compiled"])
X = np.random.default_rng(0).standard_normal((16, 3, 6, 6))
Y = np.random.default_rng(1).standard_normal((16, 2))


class Network(nn.Module):
    def __init__(self, dtype=np.float64):
        keys = wl.random.split(wl.random.key(4), 5)
        make = {"dtype": dtype}
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 6, 3, groups=3, key=keys[0], **make), nn.BatchNorm2d(6, **make), nn.relu,
            nn.Conv2d(6, 4, 3, key=keys[1], **make), nn.relu, nn.Flatten(), nn.Linear(16, 5, key=keys[2], **make),
        )  # fmt: skip
        self.blocks = {"left": [nn.Linear(5, 5, key=keys[3], **make)]}
        self.head = nn.Linear(5, 2, key=keys[4], **make)

    def __call__(self, x):
        h = self.backbone(x)
        return self.head(h + np.tanh(self.blocks["left"][0](h)))


def loss(model, x, y):
    return nn.mse_loss(model(x), y)


def step(model, optimizer, x, y):
    value, grads = wl.value_and_grad(loss)(model, x, y)
    optimizer.update(model, grads)
    return value


def values(model):
    return {name: value.copy() for name, value in model.state().items()}


def adapted(model, rank=2, pattern="*", **options):
    model = nn.lora(model, rank, pattern, **options, key=wl.random.key(8))
    rng = np.random.default_rng(2)
    for _, parameter in model.named_parameters(trainable=True):
        parameter[...] = rng.standard_normal(parameter.shape)
    return model


# Adapters ------------------------------------------------------------------------------------------------------------


def test_adapters_change_nothing_at_first_and_are_all_that_is_trained():
    model = Network().eval()
    before = model(X)
    assert nn.lora(model, 3, ["backbone.*", "head"], alpha=6) is model
    assert np.array_equal(model(X), before)
    names = [name for name, _ in model.named_parameters(trainable=True)]
    layers = ["backbone.0", "backbone.3", "backbone.6", "head"]
    assert names == [f"{layer}.{part}" for layer in layers for part in ("lora_a", "lora_b")]
    assert model.head.lora_a.shape == (3, 5) and model.head.lora_b.shape == (2, 3) and model.head.scale == 2
    assert model.backbone[0].lora_a.shape == (3, 1, 3, 3) and isinstance(model.blocks["left"][0], nn.Linear)


@JIT
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_merged_and_unmerged(dtype, jit):
    model = adapted(Network(dtype).eval(), alpha=3)
    x, run = X.astype(dtype), jit(lambda model, x: model(x))
    base, before = values(model), run(model, x)
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.max(np.abs(before)))
    weight = model.head.base.weight
    assert nn.merge_lora(model) is model and nn.merge_lora(model) is model  # once
    close(run(model, x), before)
    assert model.head.base.weight is weight and not np.allclose(weight, base["head.base.weight"])
    nn.unmerge_lora(model)
    close(run(model, x), before)
    for name, value in model.state().items():
        np.testing.assert_allclose(value, base[name], atol=tolerance * 10)
    plain = nn.merge_lora(copy.deepcopy(model), discard=True)
    assert list(plain.state()) == list(Network().state()) and isinstance(plain.blocks["left"][0], nn.Linear)
    close(run(plain, x), before)
    fresh = Network(dtype).eval()
    fresh.load_state(plain.state())
    close(run(fresh, x), before)


@JIT
def test_training_adapters_leaves_the_base(jit):
    model = nn.lora(Network(), 2, key=wl.random.key(8))
    base, optimizer = values(model), train.Adam(model, rate=0.02)
    run = jit(step)
    losses = [run(model, optimizer, X, Y) for _ in range(30)]
    assert losses[-1] < 0.7 * losses[0]
    for name, value in model.state().items():
        changes = "lora" in name or "running" in name or "tracked" in name
        assert changes != np.array_equal(value, base[name]), name
    merged = nn.merge_lora(copy.deepcopy(model)).eval()
    np.testing.assert_allclose(merged(X), model.eval()(X), atol=1e-10)


def test_derivatives_of_adapters():
    model = adapted(Network().eval())
    grads = wl.grad(loss)(model, X, Y)
    assert grads.head.base.weight is None and grads.head.lora_a.shape == (2, 5)
    for name in ("head", "backbone.0", "blocks.left.0"):
        layer = dict(model.named_modules())[name]
        plain = copy.deepcopy(model)
        other = dict(plain.named_modules())[name]
        nn.merge_lora(plain)
        plain.unfreeze("*.base.weight")
        of_weight = dict(wl.grad(loss)(plain, X, Y).named_modules())[name].base.weight
        of_weight = of_weight.reshape(len(of_weight), -1)
        flat = layer.lora_a.reshape(2, -1)
        found = dict(grads.named_modules())[name]
        np.testing.assert_allclose(found.lora_b, layer.scale * of_weight @ flat.T, atol=1e-10)
        np.testing.assert_allclose(found.lora_a.reshape(2, -1), layer.scale * other.lora_b.T @ of_weight, atol=1e-10)


def test_adapters_of_a_single_layer_of_transposed_convolutions_and_of_shared_ones():
    layer = nn.lora(nn.Linear(3, 2), 1)
    assert isinstance(layer, nn.LoRA) and layer(np.ones((1, 3), np.float32)).shape == (1, 2)
    model = adapted(nn.Sequential(nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2, dtype=np.float64)))
    x = np.random.default_rng(0).standard_normal((2, 4, 3, 3))
    before = model(x)
    np.testing.assert_allclose(nn.merge_lora(model)(x), before, atol=1e-10)
    same = nn.Linear(3, 3)
    twice = nn.lora(nn.Sequential(same, nn.tanh, same), 1)
    assert twice[0] is twice[2] and len(twice.parameters(trainable=True)) == 2
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    with pytest.raises(wl.ArgumentError, match="elsewhere"):
        nn.merge_lora(nn.lora(tied, 1, "0"))


def test_files_of_adapters(tmp_path):
    model = adapted(Network().eval())
    wl.save({name: value for name, value in model.state().items() if "lora" in name}, tmp_path / "small.safetensors")
    other = nn.lora(Network().eval(), 2)
    other.load_state({name: value for name, value in model.state().items() if "lora" in name}, strict=False)
    np.testing.assert_allclose(other(X), model(X))


def test_bad_arguments_of_lora():
    with pytest.raises(wl.ArgumentError, match=r"no layer matches 'tail'. There are backbone.0, .*head"):
        nn.lora(Network(), 2, "tail")
    with pytest.raises(wl.ArgumentError, match="has an adapter already"):
        nn.lora(nn.lora(Network(), 2, "head"), 2)
    with pytest.raises(ValueError, match="rank"):
        nn.lora(Network(), 0)
    with pytest.raises(wl.ArgumentError, match=r"nn\.build"):
        nn.lora(nn.Sequential(nn.Linear(None, 3)), 2)
    with pytest.raises(wl.ArgumentError, match="no adapters"):
        nn.merge_lora(Network())


# Frozen backbones, new heads, rates ----------------------------------------------------------------------------------


@JIT
def test_frozen_backbone_and_new_head(jit):
    model = Network().eval()
    model.head = nn.Linear(5, 4, dtype=np.float64)
    model.freeze("backbone.*", "blocks.*")
    labels = np.arange(16) % 4
    optimizer = train.SGD(model, rate=0.3, momentum=0.9)
    before = values(model)

    def fitted(model, optimizer, x, labels):
        value, grads = wl.value_and_grad(lambda m: nn.cross_entropy(m(x), labels))(model)
        optimizer.update(model, grads)
        return value

    run = jit(fitted)
    losses = [run(model, optimizer, X, labels) for _ in range(40)]
    assert losses[-1] < losses[0]
    changed = [name for name, value in model.state().items() if not np.array_equal(value, before[name])]
    assert changed == ["head.weight", "head.bias"]
    model.unfreeze("blocks.*")
    optimizer.track(model)
    run(model, optimizer, X, labels)
    assert not np.array_equal(model.blocks["left"][0].weight, before["blocks.left.0.weight"])
    assert np.array_equal(model.backbone[0].weight, before["backbone.0.weight"])


@JIT
def test_rates_by_layer(jit):  # scales of groups that both match are multiplied
    model = Network().eval()
    grads, before = wl.grad(loss)(model, X, Y), values(model)
    groups = {"backbone.*": {"rate_scale": 0.1}, "backbone.0.*": {"rate_scale": 0.1}, "head.*": {"rate": 0.5}}
    optimizer = train.SGD(model, rate=0.2, groups=groups)
    jit(step)(model, optimizer, X, Y)
    for name, gradient in grads.named_parameters():
        rate = 0.002 if name.startswith("backbone.0.") else 0.02 if name.startswith("backbone") else 0.2
        rate = 0.5 if name.startswith("head") else rate
        np.testing.assert_allclose(model.state()[name], before[name] - rate * gradient, atol=1e-12, err_msg=name)
