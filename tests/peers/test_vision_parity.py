"""A ResNet against one written in PyTorch with torchvision's names: its weights load, and training is the same."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn as tnn  # noqa: E402

import wonderland as wl  # noqa: E402
from wonderland import models, nn, train  # noqa: E402

pytestmark = pytest.mark.peers


class Block(tnn.Module):
    expansion = 1

    def __init__(self, channels, width, stride=1):
        super().__init__()
        self.conv1, self.bn1 = tnn.Conv2d(channels, width, 3, stride, 1, bias=False), tnn.BatchNorm2d(width)
        self.conv2, self.bn2 = tnn.Conv2d(width, width, 3, 1, 1, bias=False), tnn.BatchNorm2d(width)
        change = stride != 1 or channels != width
        self.downsample = None
        if change:
            self.downsample = tnn.Sequential(tnn.Conv2d(channels, width, 1, stride, bias=False), tnn.BatchNorm2d(width))

    def forward(self, x):
        h = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(h + (x if self.downsample is None else self.downsample(x)))


class Narrowing(tnn.Module):
    expansion = 4

    def __init__(self, channels, width, stride=1, groups=2):
        super().__init__()
        inner = width * groups
        self.conv1, self.bn1 = tnn.Conv2d(channels, inner, 1, bias=False), tnn.BatchNorm2d(inner)
        self.conv2 = tnn.Conv2d(inner, inner, 3, stride, 1, groups=groups, bias=False)
        self.bn2 = tnn.BatchNorm2d(inner)
        self.conv3, self.bn3 = tnn.Conv2d(inner, 4 * width, 1, bias=False), tnn.BatchNorm2d(4 * width)
        self.downsample = tnn.Sequential(
            tnn.Conv2d(channels, 4 * width, 1, stride, bias=False), tnn.BatchNorm2d(4 * width)
        )

    def forward(self, x):
        h = torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))
        return torch.relu(self.bn3(self.conv3(h)) + self.downsample(x))


class Reference(tnn.Module):
    def __init__(self, block, width=4):
        super().__init__()
        self.conv1, self.bn1 = tnn.Conv2d(3, width, 7, 2, 3, bias=False), tnn.BatchNorm2d(width)
        self.maxpool = tnn.MaxPool2d(3, 2, 1)
        self.layer1 = tnn.Sequential(block(width, width))
        self.layer2 = tnn.Sequential(block(width * block.expansion, 2 * width, 2))
        self.fc = tnn.Linear(2 * width * block.expansion, 10)

    def forward(self, x):
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        return self.fc(self.layer2(self.layer1(x)).mean((2, 3)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("reference", "block", "groups"), [(Block, "BasicBlock", 1), (Narrowing, "Bottleneck", 2)], ids=["basic", "resnext"]
)
def test_twenty_steps_from_the_same_weights(reference, block, groups, dtype):
    torch.manual_seed(0)
    theirs = Reference(reference).to(getattr(torch, dtype))
    ours = models.ResNet(getattr(models, block), (1, 1), classes=10, width=4, groups=groups, dtype=dtype)
    report = ours.load_state({name: value.numpy() for name, value in theirs.state_dict().items()})
    assert not report.missing
    assert not report.unexpected
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(5, 3, 32, 32)).astype(dtype), np.array([1, 3, 5, 7, 9])
    optimizer = train.SGD(ours, rate=0.05, momentum=0.9)
    their_optimizer = torch.optim.SGD(theirs.parameters(), 0.05, momentum=0.9)

    @wl.jit
    def step(model, optimizer, x, y):
        loss, grads = wl.value_and_grad(lambda m: nn.cross_entropy(m(x), y))(model)
        optimizer.update(model, grads)
        return loss

    limit = 2e-4 if dtype == "float32" else 1e-10
    for _ in range(20 if dtype == "float64" else 5):  # in float32 batch norm and momentum let rounding grow
        loss = step(ours, optimizer, x, y)
        their_optimizer.zero_grad()
        their_loss = torch.nn.functional.cross_entropy(theirs(torch.from_numpy(x)), torch.from_numpy(y))
        their_loss.backward()
        their_optimizer.step()
        np.testing.assert_allclose(loss, their_loss.item(), rtol=limit)
    for name, value in theirs.state_dict().items():
        np.testing.assert_allclose(ours.state()[name], value.numpy(), rtol=limit, atol=limit, err_msg=name)
    ours.eval()
    theirs.eval()
    with torch.no_grad():
        np.testing.assert_allclose(ours(x), theirs(torch.from_numpy(x)).numpy(), rtol=10 * limit, atol=10 * limit)
