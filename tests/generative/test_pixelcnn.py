"""PixelCNN: probabilities by enumeration of all images, causality by derivatives, samples against probabilities."""

from itertools import product

import numpy as np
import pytest

import wonderland as wl
from wonderland import train
from wonderland.core.errors import ArgumentError
from wonderland.generative import MaskedConv2d, PixelCNN


def every_image(height, width, levels):
    return np.array(list(product(range(levels), repeat=height * width))).reshape(-1, height, width)


def model(levels=2, classes=None, **options):
    return PixelCNN(levels, channels=8, layers=2, classes=classes, key=wl.random.key(0), dtype=np.float64, **options)


@pytest.mark.parametrize(("height", "width", "levels"), [(2, 3, 2), (2, 2, 3), (1, 4, 2), (3, 1, 2)])
def test_probabilities_of_all_images_add_up_to_one(height, width, levels):
    images = every_image(height, width, levels)
    np.testing.assert_allclose(np.sum(np.exp(model(levels).log_prob(images))), 1.0, rtol=1e-12)


def test_each_class_has_a_distribution_of_its_own():
    images, net = every_image(2, 2, 2), model(classes=3)
    totals = [np.exp(net.log_prob(images, np.full(len(images), c))) for c in range(3)]
    np.testing.assert_allclose(np.sum(totals, axis=1), 1.0, rtol=1e-12)
    assert np.max(np.abs(totals[0] - totals[1])) > 1e-4
    with pytest.raises(ArgumentError, match="such models need them"):
        net(images)


def test_a_pixel_depends_on_those_before_it_alone():
    net, x = model(), np.random.default_rng(0).random((1, 4, 4))
    slopes = wl.jacobian(lambda x: net(x)[0, 0])(x)[:, :, 0].reshape(16, 16)
    assert np.all(slopes[np.triu_indices(16)] == 0)
    below = slopes[np.tril_indices(16, -1)]
    assert np.count_nonzero(below) > 100  # of 120: there is a blind spot to the right


def test_masks_of_kernels():
    first, later = (MaskedConv2d(1, 1, 3, first=f, key=wl.random.key(0)) for f in (True, False))
    np.testing.assert_array_equal(first.mask, [[1, 1, 1], [1, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(later.mask, [[1, 1, 1], [1, 1, 0], [0, 0, 0]])
    assert "mask" not in dict(first.named_parameters())
    with pytest.raises(ArgumentError, match="its size is odd; got 4"):
        MaskedConv2d(1, 1, 4)


def test_samples_have_the_probabilities_of_the_model():
    net, count = model(), 4000
    drawn = wl.jit(lambda key: net.sample(key, (count, 2, 2)))(wl.random.key(1))
    images = every_image(2, 2, 2)
    expected = np.exp(net.log_prob(images)) * count
    found = np.array([np.sum(np.all(drawn == image, axis=(1, 2))) for image in images])
    chi_square = np.sum((found - expected) ** 2 / expected)
    assert chi_square < 37.7  # 0.1 % of samples from 15 degrees of freedom are above


def test_samples_don_t_depend_on_the_batch_and_keep_what_is_given():
    net = model(levels=4)
    few, many = (net.sample(wl.random.key(3), (n, 3, 3)) for n in (2, 5))
    np.testing.assert_array_equal(few, many[:2])
    given = np.full((2, 3, 3), -1)
    given[:, 0] = [3, 2, 1]
    filled = net.sample(wl.random.key(3), (2, 3, 3), given=given)
    np.testing.assert_array_equal(filled[:, 0], [[3, 2, 1]] * 2)
    assert np.all((filled >= 0) & (filled < 4))


def test_it_learns_the_entropy_of_its_data():
    """Images with equal columns, the first pixel of each fair: log 2 nats for each column, 0 for all below."""
    rng = np.random.default_rng(0)
    columns = rng.integers(2, size=(2000, 1, 4))
    images = np.broadcast_to(columns, (2000, 4, 4))
    net = PixelCNN(2, channels=16, layers=2, key=wl.random.key(0))
    optimizer = train.Adam(net, 1e-2)

    @wl.jit
    def step(net, optimizer, images):
        loss, gradient = wl.value_and_grad(lambda net: net.loss(images))(net)
        optimizer.update(net, gradient)
        return loss

    for _ in range(200):
        step(net, optimizer, images[rng.integers(2000, size=100)])
    assert abs(float(net.loss(images[:500])) - np.log(2) / 4) < 0.01
