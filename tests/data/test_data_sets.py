"""Built-in data: scikit-learn's, generated ones with their formulas, MNIST-1D with its published numbers, IDX files."""

import gzip
import sys

import numpy as np
import pytest
from sklearn import datasets
from sklearn.linear_model import LogisticRegression

import wonderland as wl
from wonderland import data
from wonderland.data.faults import DataError


def test_digits():
    d = data.digits()
    x, y = d[:]
    assert x.shape == (1797, 1, 8, 8) and x.dtype == np.float32 and x.min() == 0 and x.max() == 1
    np.testing.assert_array_equal(x[:, 0] * 16, datasets.load_digits().images)
    assert y.dtype == np.int64 and [*d.classes] == list("0123456789")


@pytest.mark.parametrize(("name", "shape", "classes"), [
    ("diabetes", (442, 10), None), ("breast_cancer", (569, 30), ["malignant", "benign"]),
    ("wine", (178, 13), ["class_0", "class_1", "class_2"]),
])  # fmt: skip
def test_tables_of_scikit_learn(name, shape, classes):
    d, theirs = getattr(data, name)(), getattr(datasets, f"load_{name}")()
    x, y = d[:]
    assert (
        x.shape == shape
        and x.dtype == np.float32
        and len(d.names) == shape[1]
        and d.names[0] == theirs.feature_names[0]
    )
    np.testing.assert_allclose(x, theirs.data, rtol=1e-6)
    np.testing.assert_array_equal(y, theirs.target)
    assert d.classes is None if classes is None else [*d.classes] == classes


def test_without_scikit_learn_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match=r"data.wine\(\) needs scikit-learn.*pip install scikit-learn"):
        data.wine()


def test_a_swiss_roll_is_scikit_learns():
    """Of its points (t cos t, height, t sin t), without the height, a fifth as large."""
    roll, where = datasets.make_swiss_roll(2000, random_state=0)
    x, t = data.swissroll(2000, noise=0.0)[:]
    np.testing.assert_allclose(x, np.stack([t * np.cos(t), t * np.sin(t)], 1) / 5, atol=1e-5)
    np.testing.assert_allclose(np.stack([where * np.cos(where), where * np.sin(where)], 1), roll[:, ::2], atol=1e-12)
    np.testing.assert_allclose(np.quantile(t, [0, 0.5, 1]), np.quantile(where, [0, 0.5, 1]), rtol=0.05)
    noisy, t = data.swissroll(20_000, noise=0.2)[:]
    np.testing.assert_allclose((noisy - np.stack([t * np.cos(t), t * np.sin(t)], 1) / 5).std(), 0.2, rtol=0.02)


def test_moons_are_half_circles():
    x, y = data.moons(100, noise=0.0, seed=3)[:]
    centre = np.where(y[:, None] == 0, [0.0, 0.0], [1.0, 0.5])
    np.testing.assert_allclose(np.linalg.norm(x - centre, axis=1), 1, rtol=1e-5)
    assert np.all((x - centre)[:, 1] * (1 - 2 * y) >= 0) and y.sum() == 50
    noisy = data.moons(20000, noise=0.1)[:]
    radius = np.linalg.norm(noisy[0] - np.where(noisy[1][:, None] == 0, [0.0, 0.0], [1.0, 0.5]), axis=1)
    assert radius.std() == pytest.approx(0.1, rel=0.03)


def test_spirals_turn_with_the_radius():
    d = data.spirals(300, arms=3, turns=1.5, noise=0.0)
    x, y = d[:]
    r, angle = np.hypot(*x.T), np.arctan2(x[:, 1], x[:, 0])
    turns = angle / (2 * np.pi) - 1.5 * r - y / 3
    np.testing.assert_allclose(turns, np.rint(turns), atol=1e-5)
    assert np.bincount(y).tolist() == [100, 100, 100] and r.max() <= 1 and [*d.classes] == ["0", "1", "2"]


def test_sinusoids_are_made_of_their_parameters():
    waves, made = data.sinusoids(20, 50, frequency=(2, 3))[:]
    a, f, p = made.T[:, :, None]
    np.testing.assert_allclose(waves, a * np.sin(2 * np.pi * f * np.arange(50) / 50 + p), atol=1e-5)
    assert np.all((f >= 2) & (f <= 3)) and waves.shape == (20, 50)


def test_xor_and_parity():
    x, y = data.xor(80, noise=0.0)[:]
    np.testing.assert_array_equal(y, x[:, 0] * x[:, 1] < 0)
    assert {tuple(row) for row in x} == {(a, b) for a in (-1, 1) for b in (-1, 1)} and y.sum() == 40
    x, y = data.parity(5)[:]
    np.testing.assert_array_equal(x @ (2 ** np.arange(5)[::-1]), np.arange(32))
    np.testing.assert_array_equal(y, [bin(k).count("1") % 2 for k in range(32)])
    x, y = data.parity(100, 50)[:]
    assert x.shape == (50, 100) and {*x.ravel()} == {0, 1}
    np.testing.assert_array_equal(y, np.bitwise_xor.reduce(x.astype(int), 1))


@pytest.mark.parametrize(
    "make", [data.moons, data.swissroll, data.spirals, data.sinusoids, data.xor, lambda **k: data.parity(9, 50, **k)]
)
def test_generated_data_depends_on_the_seed_only(make):
    first, again, other = (make(seed=seed)[:][0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other) and first.dtype == np.float32


def test_mnist1d_is_the_published_set():
    """Its first samples as published; and a linear model gets what was published for it, 32 %."""
    train, test = data.mnist1d()
    (x, y), (unseen, digits) = train[:], test[:]
    assert x.shape == (4000, 40) and unseen.shape == (1000, 40) and x.dtype == np.float32
    first = [-0.3320056673693902, -0.4719103656557236, -0.778697076293495, -1.0097408265367047, -0.8823525654053074]
    np.testing.assert_allclose(x[0, :5], first, rtol=1e-5)
    np.testing.assert_allclose(x[1, -3:], [-1.6875129743147583, -1.4264221195190054, -1.3642151108248246], rtol=1e-5)
    np.testing.assert_allclose(x[18, 26:28], [2.3718018460399968, 2.7575026786430468], rtol=1e-5)
    whole = np.concatenate([x, unseen])
    assert whole.mean() == pytest.approx(0, abs=1e-6) and whole.std() == pytest.approx(1, rel=1e-6)
    np.testing.assert_array_equal(np.bincount(np.concatenate([y, digits])), 500)
    assert 0.30 < LogisticRegression(tol=0.02).fit(x, y).score(unseen, digits) < 0.35


def test_mnist1d_without_its_changes_is_the_templates():
    train, test = data.mnist1d(
        100, padding=(60, 60), scale=0, translation=1, correlated_noise=0, noise=0, shear=0, length=72
    )
    x, y = train[:]
    assert len(train) == 80 and len(test) == 20
    for digit in range(10):
        same = x[y == digit]
        assert np.ptp(same, 0).max() < 1e-5
        assert np.ptp(same[0, 12:]) < 1e-5 and np.ptp(same[0, :12]) > 0.5
    other = data.mnist1d(100, seed=1)[0][:][0]
    assert not np.array_equal(other, data.mnist1d(100, seed=2)[0][:][0])


def idx(array):
    codes = {"uint8": 0x08, "int16": 0x0B, "float64": 0x0E}
    header = bytes([0, 0, codes[array.dtype.name], array.ndim])
    return header + np.array(array.shape, ">u4").tobytes() + array.astype(array.dtype.newbyteorder(">")).tobytes()


@pytest.fixture
def folder(tmp_path, rng):
    for part, n in (("train", 7), ("t10k", 3)):
        images = rng.integers(256, size=(n, 28, 28), dtype=np.uint8)
        (tmp_path / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.arange(n, dtype=np.uint8)))
    return tmp_path


def test_idx_files(tmp_path, rng):
    for array in (
        rng.integers(256, size=(3, 4, 5), dtype=np.uint8),
        rng.normal(size=(2, 3)),
        np.arange(-4, 4, dtype=np.int16),
    ):
        (tmp_path / "file").write_bytes(idx(array))
        found = data.read_idx(tmp_path / "file")
        np.testing.assert_array_equal(found, array)
        assert found.dtype == array.dtype


def test_mnist_from_a_folder(folder):
    train, test = data.mnist(folder)
    assert len(train) == 7 and len(test) == 3
    x, y = train[:]
    assert x.shape == (7, 1, 28, 28) and x.dtype == np.float32 and 0 <= x.min() < x.max() <= 1
    np.testing.assert_array_equal(np.rint(x[:, 0] * 255), data.read_idx(folder / "train-images-idx3-ubyte.gz"))
    assert y.tolist() == [*range(7)] and y.dtype == np.int64


LABELS, IMAGES = "train-labels-idx1-ubyte", "train-images-idx3-ubyte.gz"


def damaged(name, change):
    def damage(folder):
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return damage


@pytest.mark.parametrize(("damage", "error", "message"), [
    (lambda f: (f / "t10k-labels-idx1-ubyte").unlink(), FileNotFoundError, "no t10k-labels-idx1-ubyte .*gz"),
    (damaged(LABELS, lambda b: b[:-2]), DataError, "labels.* cut off .* says 7 numbers, 7 bytes, and 5"),
    (damaged(LABELS, lambda b: b[:6]), DataError, "labels.* cut off"),
    (damaged(IMAGES, lambda b: b[:-30]), DataError, "images.*compressed file is cut off or damaged"),
    (damaged(LABELS, lambda b: b"PNG!" + b), DataError, "isn't an IDX file: it begins with 50 4e 47 21"),
    (damaged(LABELS, lambda b: b""), DataError, "begins with nothing"),
    (damaged(LABELS, lambda b: idx(np.zeros((2, 2), np.uint8))), DataError, "should have labels"),
    (damaged(LABELS, lambda b: idx(np.zeros(5, np.uint8))), DataError, "7 images, and .* has 5 labels"),
])  # fmt: skip
def test_bad_files_are_named(folder, damage, error, message):
    damage(folder)
    with pytest.raises(error, match=message):
        data.mnist(folder)


def test_no_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere"):
        data.mnist(tmp_path / "nowhere")


def test_documentation_as_a_corpus():
    text = data.python_docs()
    assert len(text) > 200_000 and "iterator" in text and text == data.python_docs()
    more = data.python_docs(["json", "bisect"])
    assert more.startswith(text[:-1]) and "JavaScript Object Notation" in more and "Bisection algorithms" in more
    with pytest.raises(wl.ArgumentError, match="'sys' isn't a module with a source in Python"):
        data.python_docs(["sys"])


@pytest.mark.parametrize(("call", "message"), [
    (lambda: data.moons(1), "n is a whole number, at least 2"),
    (lambda: data.mnist1d(55), "a multiple of the ten classes, not 55"),
    (lambda: data.mnist1d(train=1.5), "fraction for training"),
    (lambda: data.parity(40), "bits is between 1 and 20"),
])  # fmt: skip
def test_wrong_sizes(call, message):
    with pytest.raises(wl.ArgumentError, match=message):
        call()


@pytest.mark.parametrize("call", [
    lambda: data.parity(2.5), lambda: data.sinusoids(3, frequency=5), lambda: data.mnist1d(100.0),
    lambda: data.mnist1d(10, padding=(3,)),
])  # fmt: skip
def test_numbers_of_another_kind(call):
    with pytest.raises(wl.ArgumentError):
        call()


def test_one_module_of_the_documentation():
    assert data.python_docs("json") == data.python_docs(["json"])
