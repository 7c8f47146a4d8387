"""Image and signal filters: padded convolution by loops, Sobel, bilateral, integral images, recursive filters."""

import numpy as np
from checking import check

import wonderland as wl

IMAGE = np.cos(np.arange(30.0) * 0.7).reshape(5, 6) + 0.2 * np.arange(6)
KERNEL = np.array([[0.1, 0.2, 0.1], [0.0, 0.5, -0.2], [0.3, -0.1, 0.2]])


def convolve(image, kernel):
    kh, kw = kernel.shape
    h, w = image.shape
    padded = np.zeros((h + kh - 1, w + kw - 1))
    padded[kh // 2 : kh // 2 + h, kw // 2 : kw // 2 + w] = image
    out = np.zeros((h, w))
    for i in range(kh):
        for j in range(kw):
            out += kernel[i, j] * padded[i : i + h, j : j + w]
    return out


def test_padded_convolution():
    from scipy.signal import correlate2d

    value, (by_image, by_kernel) = check(convolve, IMAGE, KERNEL)
    np.testing.assert_allclose(value, correlate2d(IMAGE, KERNEL, mode="same"), atol=1e-14)
    assert by_image.shape == IMAGE.shape and by_kernel.shape == KERNEL.shape


def convolve_by_pixel(image, kernel):
    h, w = image.shape[0] - 2, image.shape[1] - 2
    out = np.empty((h, w))
    for y in range(h):
        for x in range(w):
            out[y, x] = np.sum(image[y : y + 3, x : x + 3] * kernel)
    return out


def test_convolution_pixel_by_pixel():
    check(convolve_by_pixel, IMAGE, KERNEL)


def edge_pad(image, r):
    h, w = image.shape
    out = np.empty((h + 2 * r, w + 2 * r))
    out[r:-r, r:-r] = image
    out[:r, r:-r] = image[0]
    out[-r:, r:-r] = image[-1]
    out[:, :r] = out[:, r : r + 1]
    out[:, -r:] = out[:, -r - 1 : -r]
    return out


def sobel(image):
    p = edge_pad(image, 1)
    gx = np.zeros_like(image)
    gy = np.zeros_like(image)
    for k, weight in zip((0, 1, 2), (1.0, 2.0, 1.0)):
        gx += weight * (p[k : k + image.shape[0], 2:] - p[k : k + image.shape[0], :-2])
        gy += weight * (p[2:, k : k + image.shape[1]] - p[:-2, k : k + image.shape[1]])
    magnitude = np.sqrt(gx**2 + gy**2 + 1e-3)
    magnitude /= np.max(magnitude)
    return magnitude


def test_sobel():
    check(sobel, IMAGE)


def bilateral(image, sigma_space, sigma_range, radius=1):
    h, w = image.shape
    padded = edge_pad(image, radius)
    total, weight = np.zeros((h, w)), np.zeros((h, w))
    for dy in range(-radius, radius + 1):
        for dx in range(-radius, radius + 1):
            near = padded[radius + dy : radius + dy + h, radius + dx : radius + dx + w]
            wt = np.exp(-(dx**2 + dy**2) / (2 * sigma_space**2) - (near - image) ** 2 / (2 * sigma_range**2))
            total += wt * near
            weight += wt
    total /= weight
    return total


def test_bilateral_filter():
    check(bilateral, IMAGE, 1.2, 0.7)


def box_by_integral_image(image, r=1):
    h, w = image.shape
    integral = np.zeros((h + 1, w + 1))
    for i in range(h):  # running sums, in place
        integral[i + 1, 1:] = image[i]
        for j in range(w):
            integral[i + 1, j + 1] += integral[i + 1, j]
        integral[i + 1] += integral[i]
    size = 2 * r + 1
    box = integral[size:, size:] - integral[:-size, size:] - integral[size:, :-size] + integral[:-size, :-size]
    box /= size**2
    return box


def box_by_cumsum(image, r=1):
    integral = np.zeros((image.shape[0] + 1, image.shape[1] + 1))
    integral[1:, 1:] = np.cumsum(np.cumsum(image, axis=0), axis=1)
    size = 2 * r + 1
    box = integral[size:, size:] - integral[:-size, size:] - integral[size:, :-size] + integral[:-size, :-size]
    return box / size**2


def test_box_filter_by_an_integral_image():
    value, _ = check(box_by_integral_image, IMAGE)
    expected = np.lib.stride_tricks.sliding_window_view(IMAGE, (3, 3)).mean(axis=(2, 3))
    np.testing.assert_allclose(value, expected, rtol=1e-12)


def test_box_filter_by_cumulative_sums():
    check(box_by_cumsum, IMAGE)


def recursive(x, alpha):
    """An exponential average, forwards and backwards, in one array."""
    y = np.array(x)
    for i in range(1, len(y)):
        y[i] = alpha * y[i] + (1 - alpha) * y[i - 1]
    for i in range(len(y) - 2, -1, -1):
        y[i] += (1 - alpha) * (y[i + 1] - y[i])
    return y


def test_recursive_filter():
    check(recursive, IMAGE[0], 0.4)


def median_of_three(x):
    out = x.copy()
    a, b, c = x[:-2], x[1:-1], x[2:]
    out[1:-1] = np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))
    return out


def test_median_filter_by_comparisons():
    value, _ = check(median_of_three, IMAGE[1])
    assert value[1] == np.median(IMAGE[1][:3])


def unsharp(image, amount):
    image = np.asarray(image, dtype=np.float64)
    blurred = np.empty_like(image)
    blurred[...] = image
    for axis in (0, 1):
        moved = np.swapaxes(blurred, 0, axis)  # a view: blurred is smoothed along both axes
        moved[1:-1] = (moved[:-2] + moved[1:-1] + moved[2:]) / 3
    image = image + amount * (image - blurred)
    return np.clip(image, 0.0, 2.0)


def test_unsharp_mask_along_swapped_axes():
    check(unsharp, IMAGE, 0.5)


def histogram(x, centres, width):
    """A soft histogram: each value adds to every bin."""
    bins = np.zeros(len(centres))
    for value in x.flat:
        bins += np.exp(-(((value - centres) / width) ** 2))
    bins /= bins.sum()
    return bins


def test_soft_histogram():
    check(histogram, IMAGE, np.array([-0.5, 0.3, 1.0]), 0.8)


def lanczos_downsample(image):
    weights = np.array([-0.1, 0.6, 0.6, -0.1])
    rows = np.zeros((image.shape[0], (image.shape[1] - 2) // 2))
    for k, w in enumerate(weights):
        rows += w * image[:, k : k + 2 * rows.shape[1] : 2]
    return rows


def test_downsampling_with_steps():
    check(lanczos_downsample, IMAGE)


def fourier_series(coefficients, x):
    """A spectral sum without an FFT."""
    out = np.full(x.shape, coefficients[0])
    for k in range(1, len(coefficients)):
        out += coefficients[k] * np.cos(k * x)
    return out


def test_a_spectral_sum():
    x = np.linspace(0, 2, 5)
    check(fourier_series, np.array([0.5, 1.0, -0.3]), x)
    jacobian = wl.jacobian(wl.lift(fourier_series))(np.array([0.5, 1.0, -0.3]), x)
    np.testing.assert_allclose(jacobian, np.cos(np.outer(x, np.arange(3))), atol=1e-14)
