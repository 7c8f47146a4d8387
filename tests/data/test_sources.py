"""Sources of samples: arrays, images, text, functions; and what they say about data that can't be used."""

import re

import numpy as np
import pytest
from PIL import Image

from wonderland import data
from wonderland.core.errors import ArgumentError


def bad(message):
    return pytest.raises((data.DataError, ArgumentError, IndexError), match=re.escape(message))


def test_arrays():
    x, y = np.arange(12.0).reshape(6, 2), np.array([0, 1, 0, 1, 0, 1])
    d = data.Arrays(x, y, names=["a", "b"], classes=["no", "yes"])
    assert len(d) == 6 and d.names == ["a", "b"] and d.classes == ["no", "yes"]
    sample = d[2]
    assert sample[0].tolist() == [4, 5] and sample[1] == 0
    for index in (slice(1, 4), [3, 1, -1], np.array([0, 5]), y == 1):
        a, b = d[index]
        np.testing.assert_array_equal(a, x[index])
        np.testing.assert_array_equal(b, y[index])
    np.testing.assert_array_equal(d.labels, y)
    assert repr(d) == "Arrays(float64[6, 2], int64[6])"
    named = data.Arrays({"x": x, "y": y})
    assert {*named[0]} == {"x", "y"} == {*named[:2]} and named[-1]["y"] == 1
    part = d.part([4, 1])
    assert isinstance(part, data.Arrays) and part.name(0) == "row 4" and part.part([1]).name(0) == "row 1"
    assert part.labels.tolist() == [0, 1] and part.names == ["a", "b"]
    x[0] = 9
    assert d[0][0].tolist() == [9, 9]  # not copied


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: data.Arrays(np.ones((3, 2)), np.ones(4)), "different lengths (array 0: (3, 2), array 1: (4,))"),
        (lambda: data.Arrays({"x": np.ones(3), "y": np.ones(4)}), "array 'x': (3,), array 'y': (4,)"),
        (lambda: data.Arrays(), "at least one array"),
        (lambda: data.Arrays(np.ones((0, 3))), "there are no samples: array 0 has shape (0, 3)"),
        (lambda: data.Arrays(np.float64(3)), "is a single number"),
        (lambda: data.Arrays([[1, 2], [3]]), "samples of different shapes: wl.data.Samples"),
        (lambda: data.Arrays(np.array(["a", None])), "Python objects"),
        (lambda: data.Arrays([[1, 2], [3, np.nan]]), "array 0 has NaN in row 1, column 1 (1 of 2 rows"),
        (lambda: data.Arrays(np.ones(2), [1, np.nan]), "array 1 has NaN in row 1 ("),
        (lambda: data.Arrays(np.full((2, 2, 2), np.nan)), "in row 0, at (0, 0) (2 of 2 rows"),
        (lambda: data.Arrays(np.ones(3), groups=[1, 2]), "one entry for each of 3 samples"),
        (lambda: data.Arrays(np.ones(3), missing="drop"), "missing is 'raise' or 'keep'"),
        (lambda: data.Arrays(np.ones(3))[3], "there is no sample 3: there are 3"),
        (lambda: data.Arrays(np.ones(3))[[0, -4]], "there is no sample -4"),
        (lambda: data.Arrays(np.ones(3))[[0.5]], "samples are chosen by a number"),
        (lambda: data.Arrays(np.ones(3))[[True, False]], "or of 3 bools"),
        (lambda: data.Samples([]), "there are no samples"),
        (lambda: data.Samples(iter([])), "goes into wl.data.Batches"),
        (lambda: data.Generated(3, 5), "takes a function"),
        (lambda: data.Generated(lambda i, rng: i, 0), "length is a whole number, at least 1"),
        (lambda: data.Generated(lambda i: i[:1], 5, batched=True)[:3], "made field 0 of shape (1,) for 3"),
        (lambda: data.Samples([np.ones(2), np.ones(3)])[:], "field 0 of sample 1 has shape (3,), of sample 0 (2,)"),
        (lambda: data.Samples([(1, 2), (1,)])[:], "sample 1 has other fields than sample 0: 1 of them, not 2"),
        (lambda: data.Samples([{"a": 1}, {"b": 1}])[:], "the keys ['b'], not the keys ['a']"),
        (lambda: data.Samples([(1, 2)])[[]], "a batch of no samples"),
    ],
)
def test_bad_samples(make, message):
    with bad(message):
        make()


def test_nan_can_be_kept_and_infinity_is_a_number():
    assert np.isnan(data.Arrays([1.0, np.nan], missing="keep")[1][0])
    assert len(data.Arrays([np.inf, -np.inf])) == 2


def test_samples_and_generated():
    d = data.Samples([{"a": np.arange(2), "b": 1.5}, {"b": 2.5, "a": np.ones(2)}])
    batch = d[:]
    assert batch["a"].tolist() == [[0, 1], [1, 1]] and batch["b"].tolist() == [1.5, 2.5]
    g = data.Generated(lambda i, rng: rng.normal(size=2) + i, 10, seed=3)
    np.testing.assert_array_equal(g[[7, 2]][0], [g[7][0], g[2][0]])
    assert not np.array_equal(g[7][0], data.Generated(lambda i, rng: rng.normal(size=2) + i, 10, seed=4)[7][0])
    f = data.Generated(lambda i: {"x": i * 2}, 10, batched=True)
    assert f[3] == {"x": 6} and f[[1, 2]]["x"].tolist() == [2, 4]
    part = g.part([5, 6])
    assert isinstance(part, data.Subset) and part.name(1) == "sample 6" and len(part) == 2
    np.testing.assert_array_equal(part[:][0], g[5:7][0])


class Squares(data.Dataset):
    def __len__(self):
        return 5

    def sample(self, index):
        return np.array([float(index)]), float(index) ** 2


def test_a_dataset_of_ones_own():
    (x, y), *_ = data.Loader(Squares(), 5)
    assert x.shape == (5, 1) and y.tolist() == [0, 1, 4, 9, 16]
    with pytest.raises(NotImplementedError, match="defines sample"):
        type("Half", (data.Dataset,), {"__len__": lambda self: 1})()[0]


@pytest.fixture
def folder(tmp_path, rng):
    for name in ("dog/b.png", "dog/a.png", "cat/1.jpg", "cat/deep/2.bmp"):
        path = tmp_path / "pets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (6, 4, 3), np.uint8)).save(path)
    (tmp_path / "pets" / "notes.txt").write_text("no image")
    return tmp_path / "pets"


def test_images(folder):
    d = data.Images(folder)
    assert d.classes == ["cat", "dog"] and d.labels.tolist() == [0, 0, 1, 1]
    assert d.name(2).endswith("dog/a.png") and len(d) == 4
    pixels = np.asarray(Image.open(folder / "dog/a.png"))
    image, label = d[2]
    assert image.shape == (3, 6, 4) and image.dtype == np.float32 and label == 1
    np.testing.assert_array_equal(image, (pixels.transpose(2, 0, 1) / np.float32(255)))
    np.testing.assert_array_equal(data.Images(folder, dtype=np.uint8)[2][0], pixels.transpose(2, 0, 1))
    x, y = data.Images(folder, size=(3, 2), mode="L")[[3, 0]]
    assert x.shape == (2, 1, 3, 2) and y.tolist() == [1, 0]
    batches = [*data.Loader(data.Images(folder, size=5), 2, workers=2)]
    np.testing.assert_array_equal(np.concatenate([b[0] for b in batches]), data.Images(folder, size=5)[:][0])
    assert len(data.Images(folder, labels=None)[0]) == 1
    labels = {"dog/a.png": "x", "dog/b.png": "y", "cat/1.jpg": "x", "cat/deep/2.bmp": "y"}
    named = data.Images(folder, labels=labels)
    assert named.classes == ["x", "y"] and named.labels.tolist() == [0, 1, 0, 1]
    train, test = data.split(d, [0.5, 0.5], stratify=True)
    assert sorted(train.labels) == sorted(test.labels) == [0, 1]


def test_images_are_turned_as_the_camera_says(tmp_path):
    pixels = np.zeros((2, 3), np.uint8)
    pixels[0, 0] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    image = data.Images(tmp_path, mode="L", labels=None, dtype=np.uint8)[0][0]
    assert image.shape == (1, 3, 2) and image[0, 0, 1] == 255


def test_unusable_images(folder, tmp_path):
    with bad("isn't there"):
        data.Images(tmp_path / "nowhere")
    with bad("notes.txt is a file, not a folder"):
        data.Images(folder / "notes.txt")
    (tmp_path / "empty").mkdir()
    with bad("empty has no images in it"):
        data.Images(tmp_path / "empty")
    with bad("a.png is in no class's folder, so it has no label"):
        data.Images(folder / "dog")
    with bad("2.bmp has no label (1 of 4"):
        data.Images(folder, labels={"dog/a.png": 1, "dog/b.png": 1, "cat/1.jpg": 0})
    for arguments, message in [
        ({"size": (0, 3)}, "size is a whole number, at least 1"),
        ({"mode": "CMYK"}, "mode is one of"),
        ({"dtype": np.int32}, "dtype is a floating-point one"),
        ({"labels": 3}, "labels is 'folders', None"),
    ]:
        with bad(message):
            data.Images(folder, **arguments)
    Image.new("RGB", (5, 5)).save(folder / "cat/3.png")
    with pytest.raises(data.DataError, match=r"1.jpg is 6 x 4 and .*3.png is 5 x 5 \(height x width\): scale them"):
        data.Images(folder)[:]
    (folder / "cat/3.png").write_bytes(b"\x89PNG nonsense")
    for options in ({}, {"workers": 1}):
        with bad("3.png can't be read as an image (UnidentifiedImageError"):
            [*data.Loader(data.Images(folder), 2, **options)]
    (folder / "cat/3.png").write_bytes((folder / "dog/a.png").read_bytes()[:-40])
    with bad("3.png can't be read as an image ("):
        data.Images(folder)[:]
    (folder / "cat/3.png").write_bytes(b"")
    with bad("3.png can't be read as an image (the file is empty)"):
        data.Images(folder)[:]
    Image.fromarray(np.zeros((4, 4), np.uint16)).save(folder / "cat/3.png")
    with bad("3.png has pixels of mode I;16"):
        data.Images(folder)[:]


def test_text_windows():
    text = "the cat sat on the mat"
    d = data.Text(text, length=5)
    assert d.vocabulary == sorted({*text}) and len(d) == 4
    tokens, later = d[1]
    assert d.decode(tokens) == "at sa"[:0] + text[5:10] and d.decode(later) == text[6:11]
    x, y = d[:]
    np.testing.assert_array_equal(x[:, 1:], y[:, :-1])
    assert len(data.Text(text, length=5, step=1)) == len(text) - 5
    assert d.decode(data.Text(text, length=5, step=1)[16][1]) == text[17:22]
    assert [len(data.Text("abcdefgh"[:n], length=2, step=2)) for n in (3, 4, 5, 8)] == [1, 1, 2, 3]
    np.testing.assert_array_equal(d.encode("sat"), [d.vocabulary.index(c) for c in "sat"])


def test_text_documents(tmp_path):
    (tmp_path / "b.txt").write_text("one two, one", encoding="utf-8")
    (tmp_path / "a.txt").write_text("two", encoding="utf-8")
    d = data.Text(tmp_path, tokens="words", targets=[0, 1])
    assert d.vocabulary == [",", "one", "two"] and d[1][0].tolist() == [1, 2, 0, 1] and d.labels.tolist() == [0, 1]
    assert d.name(1) == str(tmp_path / "b.txt") and d.decode(d[1][0]) == "one two , one"
    tokens, target, mask = next(iter(data.Loader(d, 2, collate=data.pad)))
    assert tokens.tolist() == [[2, 0, 0, 0], [1, 2, 0, 1]] and target.tolist() == [0, 1] and mask.sum() == 5
    new = data.Text("two three", tokens="words", vocabulary=["?", *d.vocabulary], unknown="?")
    assert new[0][0].tolist() == [3, 0]
    assert data.Text("one two", tokens=str.split, unknown="?").vocabulary == ["?", "one", "two"]
    bytes_ = data.Text("häh", tokens="bytes")
    assert bytes_[0][0].tolist() == [*"häh".encode()] and bytes_.decode(bytes_[0][0]) == "häh"
    both = data.Text(["abc", tmp_path / "a.txt"], length=2)
    assert len(both) == 2 and both.name(1) == f"{tmp_path / 'a.txt'}, from token 0"


def test_unusable_text(tmp_path, monkeypatch):
    (tmp_path / "latin.txt").write_bytes("hällo".encode("latin-1"))
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "sub").mkdir()
    for arguments, options, message in [
        ((tmp_path / "no.txt",), {}, "no.txt can't be read: No such file"),
        ((tmp_path / "latin.txt",), {}, "latin.txt isn't utf-8 (byte 1)"),
        ((tmp_path / "empty.txt",), {}, "there is no text: " + str(tmp_path / "empty.txt")),
        ((tmp_path / "sub",), {}, "has no *.txt files"),
        (([],), {}, "there is no text"),
        ((3,), {}, "not int"),
        (("abc",), {"length": 3}, "no document has the 4 tokens"),
        (("abc",), {"length": 0}, "length is a whole number"),
        (("abc",), {"tokens": "letters"}, "tokens is 'characters'"),
        (("abc",), {"vocabulary": "ab"}, "document 0 has 'c' (token 2), which isn't in the vocabulary of 2"),
        (("abc",), {"vocabulary": "aab"}, "a token twice"),
        (("abc",), {"vocabulary": "ab", "unknown": "?"}, "isn't in the vocabulary: add it"),
        ((["a", "b"],), {"targets": [1]}, "there are 2 documents, but 1 targets"),
        (("abc",), {"targets": [1], "length": 2}, "targets belong to whole documents"),
    ]:
        with bad(message):
            data.Text(*arguments, **options)
    monkeypatch.chdir(tmp_path)
    with bad("is taken as the text itself, but there is such a file"):
        data.Text("latin.txt")


def test_indices_of_few_bits():
    d = data.Arrays(np.arange(1000))
    assert d[np.array([3, -1], np.int8)][0].tolist() == [3, 999]
    assert d[np.array([3, 200], np.uint8)][0].tolist() == [3, 200]


def test_labels_and_groups_of_a_dataset_may_be_lists():
    class Mine(data.Dataset):
        labels, groups = [0, 0, 1, 1], ["a", "b", "c", "d"]

        def __len__(self):
            return 4

        def sample(self, index):
            return (index,)

    part = data.Subset(Mine(), [3, 0])
    assert part.labels.tolist() == [1, 0] and part.groups.tolist() == ["d", "a"]


def test_what_is_masked_is_no_data():
    masked = np.ma.masked_array([[1.0], [2.0], [300.0]], [[False], [False], [True]])
    for make in (
        lambda: data.Arrays(masked),
        lambda: data.Samples([masked[0], masked[2]])[:],
        lambda: data.Table({"a": masked[:, 0]}),
        lambda: data.windows(masked, 1),
        lambda: data.Standardize().fit(masked),
        lambda: data.Standardize().fit(masked[:2])(masked),
    ):
        with bad("is a masked array with 1 values masked"):
            make()
    assert data.Arrays(masked[:2])[0][0] == 1


def test_samples_that_are_no_numbers():
    ok = (np.ones(2), 0)
    for other, message in [
        ((np.ones(2), None), "field 1 of sample 1 is None, a Python object"),
        ((np.ones(2), "a"), "field 1 is int64 in sample 0, and <U1 in sample 1"),
        (([[1], [1, 2]], 0), "field 0 of sample 1 isn't an array"),
    ]:
        with bad(message):
            data.Samples([ok, other])[:]


def test_hidden_folders_of_images_are_not_classes(folder):
    for place in (".checkpoints", "cat/.checkpoints"):
        (folder / place).mkdir()
        (folder / place / "x.png").write_bytes(b"")
    assert data.Images(folder).classes == ["cat", "dog"] and len(data.Images(folder)) == 4


def test_a_class_without_images_keeps_its_number(folder):
    (folder / "ant").mkdir()
    with bad("ant has no images, so there would be no class 'ant'"):
        data.Images(folder)
    known = data.Images(folder, classes=["ant", "cat", "dog"])
    assert known.classes == ["ant", "cat", "dog"] and known.labels.tolist() == [1, 1, 2, 2]
    with bad("a.png is of class 'dog', which isn't one of ['ant', 'cat']"):
        data.Images(folder, classes=["ant", "cat"])


def test_labels_of_images_that_are_missing(folder):
    labels = {"dog/a.png": 1, "dog/b.png": 1, "cat/1.jpg": 0, "cat/deep/2.bmp": None}
    with bad("2.bmp is None"):
        data.Images(folder, labels=labels)
    with bad("2.bmp has the label NaN"):
        data.Images(folder, labels={**labels, "cat/deep/2.bmp": np.nan})
    with bad("is int64 in"):
        data.Images(folder, labels={**labels, "cat/deep/2.bmp": "cat"})


def test_sizes_and_suffixes_of_images(folder):
    assert data.Images(folder, size=np.int64(4), suffixes="png", labels=None)[:][0].shape == (2, 3, 4, 4)
    with bad("size is a whole number, not 4.5"):
        data.Images(folder, size=(4.5, 4))


def test_text_that_is_not_there(tmp_path):
    with bad("there is no token -1"):
        data.Text("abc").decode([0, -1])
    for targets in ([1, None], [1, np.nan]):
        with bad("a target is missing"):
            data.Text(["a", "b"], targets=targets)
    (tmp_path / "mark.txt").write_text("abc", encoding="utf-8-sig")
    assert data.Text(tmp_path / "mark.txt").vocabulary == ["a", "b", "c"]


def test_token_windows_follow_one_another_and_are_the_same_again():
    tokens = np.arange(100) * 3
    batches = data.token_windows(tokens, 5, 4, steps=3, seed=1)
    first = [*batches]
    assert len(batches) == len(first) == 3
    for inputs, targets in first:
        assert inputs.shape == targets.shape == (4, 5) and inputs.dtype == np.int64
        np.testing.assert_array_equal(targets, inputs + 3)
    second = [*batches]
    assert not np.array_equal(first[0][0], second[0][0])
    again = data.token_windows(tokens, 5, 4, steps=3, seed=1)
    again.load_state({"epoch": 1, "position": 2, "length": 3})
    np.testing.assert_array_equal(next(iter(again))[0], second[2][0])
    with pytest.raises(data.DataError, match=r"need 101 tokens, the text has 100"):
        data.token_windows(tokens, 100, 4, 3)
    with pytest.raises(data.DataError, match=r"numbers of tokens \(n,\), got dtype float64"):
        data.token_windows(tokens / 2, 5, 4, 3)
