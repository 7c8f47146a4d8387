"""Vision models: published numbers of parameters, shapes, names, training a step, receptive fields, frame averaging."""

import numpy as np
import pytest

import wonderland as wl
from wonderland import models, nn, train


def count(model):
    return sum(p.size for p in model.parameters())


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("make", "parameters"),
    [
        (lambda: models.LeNet(), 61_706),
        (lambda: models.resnet18(), 11_689_512),
        (lambda: models.resnet34(), 21_797_672),
        (lambda: models.resnet50(), 25_557_032),
        (lambda: models.resnext50(), 25_028_904),
        (lambda: models.ConvNeXt(), 28_589_128),
        (lambda: models.VGG(classes=1000, hidden=4096, pooled=7), 132_863_336),
    ],
    ids=["lenet", "resnet18", "resnet34", "resnet50", "resnext50", "convnext-tiny", "vgg11"],
)
def test_published_numbers_of_parameters(make, parameters):
    assert count(make()) == parameters


SMALL = {
    "lenet": lambda: models.LeNet(channels=3, size=32),
    "vgg": lambda: models.VGG(((1, 4), (2, 8)), hidden=16, norm=True, dropout=0.1),
    "resnet": lambda: models.ResNet(models.BasicBlock, (1, 1), classes=10, stem="small", width=4, drop=0.2),
    "bottleneck": lambda: models.ResNet(models.Bottleneck, (1, 1), classes=10, width=4, base=64),
    "resnext": lambda: models.ResNet(models.Bottleneck, (1, 1), classes=10, width=4, groups=2, base=64),
    "preactivation": lambda: models.ResNet(models.PreActivation, (1, 2), classes=10, stem="small", width=4),
    "mobilenet": lambda: models.MobileNet(width=0.125, blocks=((64, 1), (128, 2))),
    "convnext": lambda: models.ConvNeXt(((8, 1), (16, 2)), classes=10, drop=0.1, scale=1.0),
}


@pytest.mark.parametrize("name", SMALL)
def test_a_step_of_training(name):
    """Logits of the right shape, eager and jitted alike; the loss of one batch falls."""
    wl.random.seed(0)
    model = SMALL[name]()
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(6, 3, 32, 32)).astype(np.float32), np.arange(6)
    model.eval()
    eager = model(x)
    assert eager.shape == (6, 10)
    assert eager.dtype == np.float32
    np.testing.assert_allclose(wl.jit(model)(x), eager, rtol=1e-3, atol=1e-4)
    model.train()
    optimizer = train.Adam(model, rate=1e-2)

    @wl.jit
    def step(model, optimizer, x, y):
        loss, grads = wl.value_and_grad(lambda m: nn.cross_entropy(m(x), y))(model)
        optimizer.update(model, grads)
        return loss

    losses = [step(model, optimizer, x, y) for _ in range(30)]
    assert np.all(np.isfinite(losses))
    assert np.mean(losses[-3:]) < 0.8 * losses[0]


def test_names_are_torchvisions():
    names = [*models.ResNet(models.Bottleneck, (1, 1), width=4).state()]
    for name in ("conv1.weight", "bn1.running_mean", "layer1.0.conv3.weight", "layer2.0.downsample.0.weight",
                 "layer2.0.downsample.1.num_batches_tracked", "fc.bias"):  # fmt: skip
        assert name in names
    names = [*models.ConvNeXt(((8, 1), (16, 1))).state()]
    for name in ("features.0.0.weight", "features.1.0.layer_scale", "features.1.0.block.0.weight",
                 "features.1.0.block.2.weight", "features.1.0.block.5.bias", "features.2.1.weight",
                 "classifier.0.weight", "classifier.2.weight"):  # fmt: skip
        assert name in names


def test_receptive_fields():
    conv = lambda k, **options: nn.Conv2d(1, 1, k, **options)
    assert models.receptive_field(conv(3), (1, 9, 9)).size == (3, 3)
    assert models.receptive_field(nn.Sequential(conv(3), conv(3), conv(3)), (1, 16, 16)).size == (7, 7)
    assert models.receptive_field(nn.Sequential(conv(3, stride=2), conv(3)), (1, 16, 16)).size == (7, 7)
    field = models.receptive_field(conv(3, dilation=3), (1, 16, 16))
    assert field.size == (7, 7)
    assert field.pixels.sum() == 9  # with holes
    causal = nn.Sequential(*[nn.Conv1d(1, 1, 2, dilation=2**i, padding="causal") for i in range(4)])
    assert models.receptive_field(causal, (1, 40), at=(30,)) [1:] == ((16,), (15,))  # fmt: skip
    with pytest.raises(wl.ArgumentError, match="no pixel"):
        models.receptive_field(conv(3), (1, 9, 9), at=(8, 8))
    with pytest.raises(wl.ArgumentError, match=r"got an array: write x\.shape\[1:\] of \(2, 1, 9, 9\)"):
        models.receptive_field(conv(3), np.zeros((2, 1, 9, 9)))


def test_frames_of_images():
    wl.random.seed(1)
    net = nn.Sequential(nn.Flatten(-3), nn.Linear(2 * 36, 5), nn.tanh, nn.Linear(5, 3))
    x = np.random.default_rng(0).normal(size=(4, 2, 6, 6)).astype(np.float32)
    invariant = models.FrameAverage(net, models.image_symmetries)
    for turned in (np.rot90(x, 1, (-2, -1)), np.flip(x, -1), np.rot90(np.flip(x, -2), 3, (-2, -1))):
        np.testing.assert_allclose(invariant(turned), invariant(x), atol=1e-6)
        assert np.max(np.abs(net(turned) - net(x))) > 0.05
    equivariant = models.FrameAverage(nn.Conv2d(2, 2, 3, padding=1), models.image_symmetries, invariant=False)
    np.testing.assert_allclose(equivariant(np.rot90(x, 1, (-2, -1))), np.rot90(equivariant(x), 1, (-2, -1)), atol=1e-6)


def test_frames_of_points():
    wl.random.seed(2)
    rng = np.random.default_rng(3)
    x = (rng.normal(size=(10, 3)) * [1.0, 2.0, 3.0] + 1.0).astype(np.float64)
    net = nn.Sequential(nn.Flatten(-2), nn.Linear(30, 8, dtype=np.float64), nn.tanh, nn.Linear(8, 6, dtype=np.float64))
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    moved = x @ turn.T + [3.0, -1.0, 2.0]
    invariant = models.FrameAverage(net, models.principal_frames)
    np.testing.assert_allclose(invariant(moved), invariant(x), atol=1e-10)
    points = nn.Sequential(net, nn.Unflatten(-1, (2, 3)))
    equivariant = models.FrameAverage(points, models.principal_frames, invariant=False)
    np.testing.assert_allclose(equivariant(moved), equivariant(x) @ turn.T + [3.0, -1.0, 2.0], atol=1e-10)
    slope = wl.grad(lambda x: np.sum(invariant(x)))(x)
    turned = wl.grad(lambda x: np.sum(invariant(x)))(moved)
    np.testing.assert_allclose(turned, slope @ turn.T, atol=1e-9)
