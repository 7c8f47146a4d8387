"""Transforms of batches: what each does, against SciPy's, Pillow's and closed forms, and what all of them promise."""

import colorsys
import pickle

import numpy as np
import pytest
import scipy.ndimage

import wonderland as wl
from wonderland import data
from wonderland.data import transforms_policy as policy
from wonderland.data.transforms import turned
from wonderland.data.warp import resample, rotation, shearing, shifting

ALL = [
    data.flip(), data.flip(1.0, vertical=True), data.rotate(30), data.zoom((0.7, 1.4)), data.crop(6),
    data.crop(8, padding=2, mode="reflect"), data.resized_crop((5, 7)), data.contrast(0.5, limits=(0, 1)),
    data.jitter(0.3, 0.3, 0.2, limits=(0, 1)), data.gaussian_noise(0.1), data.cutout(3), data.roll(2),
    data.normalize([0.1, 0.2, 0.3], [1, 2, 3]), data.rand_augment(2, 9),
    data.compose(data.flip(), data.rotate(10), data.cutout(2)),
]  # fmt: skip
LAST = [
    data.flip, data.rotate, data.zoom, lambda **k: data.crop(6, padding=1, **k), lambda **k: data.resized_crop(5, **k),
    data.contrast, lambda **k: data.jitter(0.1, 0.1, 0.1, **k), lambda **k: data.cutout(3, **k),
    lambda **k: data.normalize([1, 2, 3], 2, **k), lambda **k: data.rand_augment(3, 5, **k),
]  # fmt: skip


@pytest.fixture
def images(rng):
    return rng.random((6, 3, 8, 9)).astype(np.float32)


def seeded(transform, batch, seed=0):
    return transform(batch, np.random.default_rng(seed))


@pytest.mark.parametrize("transform", ALL, ids=repr)
def test_what_all_transforms_promise(images, transform):
    """Input kept, dtype kept, the rest passed, the same for the same seed, another for another one, and pickled."""
    before, labels = images.copy(), np.arange(6)
    images.flags.writeable = False
    out, passed = seeded(transform, (images, labels))
    assert out.dtype == np.float32 and len(out) == 6 and passed is labels
    np.testing.assert_array_equal(images, before)
    assert not np.shares_memory(out, images)
    np.testing.assert_array_equal(seeded(transform, images), out)
    again = pickle.loads(pickle.dumps(transform))
    named = seeded(again, {"x": images, "y": labels})
    np.testing.assert_array_equal(named["x"], out)
    assert [*named] == ["x", "y"] and named["y"] is labels
    if "normalize" not in repr(transform) and "p=1.0" not in repr(transform):
        assert any(not np.array_equal(seeded(transform, images, seed), out) for seed in (1, 2))


@pytest.mark.parametrize("make", LAST)
def test_channels_last_is_the_same_with_other_axes(images, make):
    first = seeded(make(), images)
    last = seeded(make(channels_last=True), np.moveaxis(images, 1, -1))
    np.testing.assert_array_equal(np.moveaxis(last, -1, 1), first)
    assert last.flags.c_contiguous


def test_flips(images):
    np.testing.assert_array_equal(seeded(data.flip(1.0), images), images[..., ::-1])
    np.testing.assert_array_equal(seeded(data.flip(1.0, vertical=True), images), images[:, :, ::-1])
    np.testing.assert_array_equal(seeded(data.flip(0.0), images), images)
    many = seeded(data.flip(0.25), np.arange(4000 * 2, dtype=np.uint8).reshape(4000, 1, 1, 2))
    assert np.mean(many[:, 0, 0, 0] > many[:, 0, 0, 1]) == pytest.approx(0.25, abs=0.03)


def test_rotation_is_scipys_and_by_right_angles_exact(rng):
    x = rng.random((5, 2, 9, 9))
    np.testing.assert_allclose(seeded(data.rotate((90, 90)), x), np.rot90(x, axes=(2, 3)), atol=1e-14)
    angles = np.random.default_rng(0).uniform(-40, 40, 5)
    for image, out, angle in zip(x, seeded(data.rotate(40, fill=0.3), x), angles, strict=True):
        for plane, found in zip(image, out, strict=True):
            expected = scipy.ndimage.rotate(plane, angle, reshape=False, order=1, mode="grid-constant", cval=0.3)
            np.testing.assert_allclose(found, expected, atol=1e-12)


def test_affine_maps_are_scipys(rng):
    x = rng.random((3, 1, 7, 10))
    for maps in (rotation(np.array([0.1, 2.0, -3.0])), shearing(np.full(3, 0.2), np.array([0.1, -0.3, 0.0])),
                 shifting(np.array([1.5, -20.0, 0.0]), np.array([0.0, 0.25, -3.0]))):  # fmt: skip
        for fill, mode in ((0.7, "grid-constant"), (None, "nearest")):
            for plane, a, found in zip(x[:, 0], maps, resample(x, maps, fill)[:, 0], strict=True):
                centre = (np.array(plane.shape) - 1) / 2
                offset = a[:, 2] + centre - a[:, :2] @ centre
                expected = scipy.ndimage.affine_transform(plane, a[:, :2], offset, order=1, mode=mode, cval=fill or 0)
                np.testing.assert_allclose(found, expected, atol=1e-12)


def test_zoom_and_resized_crop_of_a_plane_stay_a_plane():
    """Bilinear reading is exact for a + b r + c s: the result is a plane that is as many times as steep."""
    r, s = np.mgrid[:9, :11].astype(float)
    x = np.tile(2 + 0.5 * r - 0.25 * s, (4, 1, 1, 1))
    big = seeded(data.zoom((2, 2)), x)
    np.testing.assert_allclose(np.diff(big, axis=2), 0.25)
    np.testing.assert_allclose(big[..., 4, 5], x[..., 4, 5])
    parts = seeded(data.resized_crop((4, 4), area=(0.2, 0.3)), x)[:, 0, 1:-1, 1:-1]
    steps = np.diff(parts, axis=1).mean((1, 2)) / 0.5 * 4, np.diff(parts, axis=2).mean((1, 2)) / -0.25 * 4
    assert np.all(steps[0] * steps[1] >= 0.2 * 99 - 1e-9) and np.all(steps[0] * steps[1] <= 0.3 * 99 + 1e-9)
    ratio = steps[1] / steps[0]
    assert np.all((ratio >= 3 / 4 - 1e-9) & (ratio <= 4 / 3 + 1e-9))
    np.testing.assert_allclose(seeded(data.resized_crop((9, 11), area=(1, 1), ratio=(11 / 9, 11 / 9)), x), x)
    shrunk = seeded(data.zoom((0.5, 0.5), fill=-1.0), x)
    assert np.all(shrunk[:, :, [0, -1]] == -1)


def test_crops_are_parts_of_the_padded_image(images):
    padded = np.pad(images, [(0, 0), (0, 0), (2, 2), (2, 2)], constant_values=5)
    places = set()
    for seed in range(10):
        for image, part in zip(padded, seeded(data.crop((8, 9), padding=2, fill=5), images, seed), strict=True):
            found = [(i, j) for i in range(5) for j in range(5) if np.array_equal(image[:, i : i + 8, j : j + 9], part)]
            assert len(found) == 1
            places.add(found[0])
    assert len(places) > 20
    assert seeded(data.crop(3), images.astype(np.uint8)).dtype == np.uint8


def test_contrast_jitter_and_normalize(images):
    factors = np.random.default_rng(0).uniform(0.5, 1.5, 6)
    out = seeded(data.contrast(0.5), images)
    np.testing.assert_allclose(out.mean((1, 2, 3)), images.mean((1, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(out.std((1, 2, 3)) / images.std((1, 2, 3)), factors, rtol=1e-5)
    np.testing.assert_allclose(seeded(data.jitter(0.5), images), images * factors[:, None, None, None], rtol=1e-6)
    clipped = seeded(data.jitter(2.0, limits=(0, 1)), images)
    assert clipped.min() >= 0 and clipped.max() == 1
    normal = seeded(data.normalize(images.mean((0, 2, 3)), images.std((0, 2, 3))), images)
    np.testing.assert_allclose(normal.mean((0, 2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(normal.std((0, 2, 3)), 1, rtol=1e-5)


def test_saturation_keeps_the_brightness(images):
    weights = np.array([0.299, 0.587, 0.114], np.float32)
    out = seeded(data.jitter(0.0, 0.9), images)
    np.testing.assert_allclose(np.tensordot(weights, out, (0, 1)), np.tensordot(weights, images, (0, 1)), rtol=1e-5)
    assert np.abs(out - images).max() > 0.1


def test_hues_turn_as_those_of_colorsys(rng):
    x = rng.random((40, 3, 1, 1))
    x[:3] = np.array([0.5, 0.0, 1.0]).reshape(3, 1, 1, 1)  # grey, black, white
    turn = rng.uniform(-0.5, 0.5, (40, 1, 1, 1))
    for colour, by, found in zip(x[..., 0, 0], turn.ravel(), turned(x, turn)[..., 0, 0], strict=True):
        h, s, v = colorsys.rgb_to_hsv(*colour)
        np.testing.assert_allclose(found, colorsys.hsv_to_rgb((h + by) % 1, s, v), atol=1e-12)


def test_cutout_is_a_square_cut_off_at_the_border():
    out = seeded(data.cutout(4, fill=-1.0), np.ones((500, 2, 8, 8), np.float32))
    gone = out[:, 0] == -1
    np.testing.assert_array_equal(gone, out[:, 1] == -1)
    rows, columns = gone.any(2).sum(1), gone.any(1).sum(1)
    np.testing.assert_array_equal(gone.sum((1, 2)), rows * columns)
    assert {*rows} == {*columns} == {2, 3, 4}
    assert np.all(gone.mean(0) > 0.05)


def test_roll_shifts_each_sample(rng):
    x = rng.normal(size=(50, 3, 12))
    shifts = np.random.default_rng(3).integers(-4, 5, size=50)
    out = seeded(data.roll(4), x, 3)
    for sample, found, shift in zip(x, out, shifts, strict=True):
        np.testing.assert_array_equal(found, np.roll(sample, shift, -1))
    np.testing.assert_array_equal(seeded(data.roll(4, axis=1), np.moveaxis(x, 2, 1), 3), np.moveaxis(out, 2, 1))


def test_gaussian_noise_is_ridge_regression(rng):
    """E |(X + E) w - y|^2 / n = |X w - y|^2 / n + sigma^2 |w|^2: the same loss, gradient and minimiser as ridge."""
    n, d, sigma, copies = 20, 4, 0.5, 4000
    x, y, w = rng.normal(size=(n, d)), rng.normal(size=n), rng.normal(size=d)
    noise = data.gaussian_noise(sigma)
    noisy, targets = seeded(noise, (np.tile(x, (copies, 1)), np.tile(y, copies)))
    noisy_loss = wl.value_and_grad(lambda w: np.mean((noisy @ w - targets) ** 2))
    ridge_loss = wl.value_and_grad(lambda w: np.mean((x @ w - y) ** 2) + sigma**2 * w @ w)
    errors = (((noisy @ w - targets) ** 2).reshape(copies, n).mean(1)).std() / np.sqrt(copies)
    (found, gradient), (expected, slope) = noisy_loss(w), ridge_loss(w)
    assert found == pytest.approx(expected, abs=4 * errors)
    np.testing.assert_allclose(gradient, slope, atol=0.06)
    best = np.linalg.solve(x.T @ x / n + sigma**2 * np.eye(d), x.T @ y / n)
    np.testing.assert_allclose(noisy_loss(best)[1], 0, atol=0.03)
    np.testing.assert_allclose(np.linalg.lstsq(noisy, targets)[0], best, atol=0.02)
    assert np.abs(np.linalg.lstsq(x, y)[0] - best).max() > 0.05


def test_rand_augment_operations_are_pillows(rng):
    from PIL import Image, ImageEnhance, ImageFilter, ImageOps

    levels = (rng.random((3, 40, 30)) ** 2 * 200 + 20).astype(np.uint8)
    x = (levels / 255)[None]
    picture = Image.fromarray(np.moveaxis(levels, 0, -1))
    found = lambda name, strength: np.rint(
        np.clip(policy.OPERATIONS[name](x, np.array([strength]), 0.0)[0], 0, 1) * 255
    )
    expected = lambda picture: np.moveaxis(np.asarray(picture).astype(float), -1, 0)
    np.testing.assert_array_equal(found("equalize", 0.3), expected(ImageOps.equalize(picture)))
    np.testing.assert_allclose(found("autocontrast", 0.3), expected(ImageOps.autocontrast(picture)), atol=1)
    np.testing.assert_array_equal(found("posterize", 0.5), expected(ImageOps.posterize(picture, 6)))
    np.testing.assert_array_equal(found("solarize", 0.4999), expected(ImageOps.solarize(picture, 128)))
    for name, enhance in (("color", "Color"), ("contrast", "Contrast"), ("brightness", "Brightness")):
        other = getattr(ImageEnhance, enhance)(picture).enhance(1.45)
        np.testing.assert_allclose(found(name, 0.5), expected(other), atol=1.5)
    smooth = policy.sharpness(x, np.array([-1 / 0.9]))[0] * 255  # all the way to the smoothed image
    np.testing.assert_allclose(smooth, expected(picture.filter(ImageFilter.SMOOTH)), atol=1)


def test_rand_augment_of_one_operation_is_that_operation(images):
    assert np.array_equal(seeded(data.rand_augment(3, 10, operations=["identity"]), images), images)
    dark = seeded(data.rand_augment(1, 10, operations=["brightness"], high=255.0), images * 255)
    np.testing.assert_allclose(
        dark / 255,
        np.clip(images * np.where(dark.mean((1, 2, 3)) < 80, 0.1, 1.9)[:, None, None, None], 0, 1),
        rtol=1e-4,
    )
    shifted = seeded(data.rand_augment(1, 10, operations=["translate_x"]), np.ones((40, 1, 10, 20), np.float32))
    assert {*shifted.sum((1, 2, 3)).tolist()} == {110.0}  # 9 of 20 columns are outside, on one side or the other
    assert {*shifted[:, 0, 0, 0].tolist()} == {0.0, 1.0}
    for name in policy.OPERATIONS:  # all of them, the strongest: values stay where they were
        out = seeded(data.rand_augment(1, 10, operations=[name]), images)
        assert out.min() >= 0 and out.max() <= 1 and out.shape == images.shape


@pytest.mark.parametrize(("make", "message"), [
    (lambda: data.flip(1.5), "flip: p is a probability"),
    (lambda: data.rotate("ten"), "rotate: degrees is a pair"),
    (lambda: data.zoom((0, 1)), "zoom: factors are positive"),
    (lambda: data.crop(0), "crop: size is positive"),
    (lambda: data.crop(3, padding=-1), "crop: padding"),
    (lambda: data.resized_crop(3, area=(0.5, 2)), "area is a pair of fractions"),
    (lambda: data.gaussian_noise(-1), "sigma is a standard deviation"),
    (lambda: data.jitter(hue=0.7), "hue isn't negative nor over 1/2"),
    (lambda: data.normalize(0, 0), "std is positive"),
    (lambda: data.normalize([1, 2], [1, 2, 3]), "mean has 2 numbers and std 3"),
    (lambda: data.rand_augment(2, 11), "strength m between 0 and 10"),
    (lambda: data.rand_augment(operations=["spin"]), "there is no operation 'spin'; there are identity"),
])  # fmt: skip
def test_wrong_arguments_are_refused_when_a_transform_is_made(make, message):
    with pytest.raises(wl.ArgumentError, match=message):
        make()


@pytest.mark.parametrize(("transform", "batch", "message"), [
    (data.flip(), np.ones((3, 8, 8)), r"takes images \(n, c, h, w\), and got .* \(3, 8, 8\): add the axis of channels"),
    (data.rotate(channels_last=True), np.ones((3, 8)), r"takes images \(n, h, w, c\)"),
    (data.rotate(), np.ones((3, 1, 8, 8), np.uint8), "floating-point numbers, and got uint8: convert"),
    (data.crop(9), np.ones((3, 1, 8, 8)), "no 9 x 9 pixels in images of 8 x 8: give padding="),
    (data.jitter(0.1, 0.1), np.ones((3, 1, 8, 8)), "three channels, not 1"),
    (data.normalize([1, 2], [1, 2]), np.ones((3, 3, 8, 8)), "for 2 channels, and 3 channels"),
    (data.rand_augment(), np.full((1, 1, 8, 8), 255.0), "values are between 0 and high=1.0, not 255 and 255"),
    (data.roll(1, axis=0), np.ones((2, 3)), "axis 0 isn't an axis of the samples"),
    (data.flip(), "images", "takes a batch: a tuple, list or dict of arrays"),
])  # fmt: skip
def test_wrong_batches_are_refused(transform, batch, message):
    with pytest.raises(wl.ArgumentError, match=message):
        seeded(transform, batch)


def test_a_generator_is_asked_for(images):
    with pytest.raises(wl.ArgumentError, match=r"rng is a NumPy Generator, not int: pass np.random.default_rng"):
        data.flip()(images, 0)
