"""Pictures: what is in them, and that they draw whatever comes. Nothing of pyplot's is touched."""

import re
import subprocess
import sys

import numpy as np
import pytest

from wonderland import train
from wonderland.train import metrics, pictures
from wonderland.train.ink import DARK, LIGHT, VARIABLES, rgba, svg


def history(epochs=5, steps=4, **more):
    found, step = train.History(), 0
    for epoch in range(1, epochs + 1):
        for _ in range(steps):
            step += 1
            found.add_step(epoch, step, {"loss": 1 / step, "gradient_norm": 1.0 / step})
        values = {"loss": 1 / epoch, "validation_loss": 2 / epoch, "accuracy": 1 - 1 / epoch, "rate": 0.1, "seconds": 1}
        found.add_epoch(epoch, values | {name: value(epoch) for name, value in more.items()})
    return found


def drawn(figure):
    """The text of a figure as it is in a page."""
    found = svg(figure, "p0")
    assert "http" not in found and found.startswith("<svg")
    return [re.sub(r"<[^>]+>", "", t) for t in re.findall(r"<text.*?</text>", found, re.S)]


def lines(ax):
    return {line.get_label(): line for line in ax.get_lines()}


def test_curves_show_the_history():
    found = history(rate=lambda epoch: 0.1 / epoch)
    figure = found.plot()
    loss, accuracy, rate = figure.axes[:3]
    np.testing.assert_array_equal(lines(loss)["training"].get_ydata(), found["loss"])
    np.testing.assert_array_equal(
        lines(loss)["validation"].get_xydata(), np.stack([found["epoch"], 2 / found["epoch"]], 1)
    )
    behind = loss.get_lines()[0]
    np.testing.assert_allclose(behind.get_xdata(), np.arange(1, 21) / 4)
    np.testing.assert_array_equal(behind.get_ydata(), found.steps["loss"])
    titles = [ax.get_title(loc="left") for ax in (loss, accuracy, rate)]
    assert titles == ["loss", "accuracy", "rate"] and "epoch" in drawn(figure)
    assert [ax.get_title(loc="left") for ax in pictures.curves(found, ["accuracy"]).axes] == ["accuracy"]
    with pytest.raises(KeyError, match="the history has no 'f1', only epoch, loss"):
        pictures.curves(found, ["f1"])


def test_a_rate_that_never_changes_isn_t_drawn():
    assert [ax.get_title(loc="left") for ax in history().plot().axes] == ["loss", "accuracy"]


def test_an_unfinished_epoch_is_drawn_to_scale():
    found = history(2, steps=4)
    found.add_step(3, 9, {"loss": 0.1})
    np.testing.assert_allclose(found.plot().axes[0].get_lines()[0].get_xdata()[-2:], [2.0, 2.25])


def test_scales():
    falls = history(30)
    assert falls.plot().axes[0].get_yscale() == "log" and history(3).plot().axes[0].get_yscale() == "linear"
    assert history(30, loss=lambda e: 1 / e - 0.5).plot().axes[0].get_yscale() == "linear"


@pytest.mark.parametrize(
    "found",
    [
        train.History(), history(1, 0), history(1), history(3, loss=lambda e: np.nan, validation_loss=lambda e: np.nan),
        history(3, loss=lambda e: np.inf if e == 2 else 1.0), history(3, accuracy=lambda e: np.nan if e < 3 else 1.0),
        {"loss": np.array([1.0, 0.5])}, {"loss": [1.0]}, {"validation_accuracy": [0.5, 0.6]}, {},
    ],
)  # fmt: skip
def test_curves_of_anything(found):
    text = drawn(pictures.curves(found, [name for name in found if name != "rate"]))
    if not found:
        assert text == ["no epochs yet"]
    elif np.isnan(found.get("loss", [0])).all():
        assert "loss: no finite values" in text
    elif np.isinf(found.get("loss", [0])).any():
        assert "1 not finite" in text


def test_gradient_norms():
    found = history(2)
    np.testing.assert_array_equal(
        pictures.gradient_norms(found).axes[0].get_lines()[0].get_ydata(), 1 / np.arange(1, 9)
    )
    assert "w: not finite" in drawn(pictures.gradient_norms({"w": [1, np.nan, np.inf, 0], "b": [1.0]}))
    for values in ([], [0.0, np.nan]):
        drawn(pictures.gradient_norms(values))
    with pytest.raises(KeyError, match=r"no column named \.\.\.norm, only nothing"):
        pictures.gradient_norms(train.History())


def test_confusion():
    matrix = metrics.ConfusionMatrix(classes=3)
    matrix.update(np.array([0, 1, 1, 2]), np.array([0, 1, 2, 2]))
    for given in (matrix, matrix.value):
        text = drawn(pictures.confusion(given, ["cat", "dog", "a very long name indeed"]))
    assert "75.0% right, 1 of 4 wrong" in text and text.count("1") == 4 and "0" not in text
    assert "cat" in text and "a very long nam…" in text
    figure = pictures.confusion(matrix)
    assert {t.get_text(): t.get_position() for t in figure.axes[0].texts}["1"] == (2.5, 2.5)
    for table in ([[5]], np.zeros((2, 2)), np.eye(40), metrics.confusion_matrix([0, 1], [0, 0], normalize="true")):
        drawn(pictures.confusion(table))
    with pytest.raises(ValueError, match=r"got shape \(2, 3\)"):
        pictures.confusion(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="3 classes in the matrix, and 1 names"):
        pictures.confusion(np.eye(3), ["a"])


def test_reliability():
    rng = np.random.default_rng(0)
    probabilities, target = rng.dirichlet(np.ones(3), 200), rng.integers(0, 3, 200)
    data = metrics.reliability(probabilities, target)
    figure = pictures.reliability(probabilities, target)
    there = data.count > 0
    top, below = figure.axes
    np.testing.assert_allclose([bar.get_height() for bar in top.containers[0]], data.accuracy[there])
    np.testing.assert_allclose([bar.get_height() for bar in below.containers[0]], data.count)
    assert f"calibration error {data.error():.3f}" in drawn(pictures.reliability(data))
    assert "no predictions" in drawn(pictures.reliability(np.zeros((0, 2)), np.zeros(0, int)))


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (16, 1, 3, 3), (5, 3, 5, 5), (4, 8, 3, 3), (70, 1, 5, 5), (6, 2, 7)])
def test_filters(shape):
    weight = np.random.default_rng(0).normal(size=shape)
    text = drawn(pictures.filters(weight))
    assert any("filter" in line for line in text)
    pictures.filters(np.zeros(shape)), pictures.filters(np.full(shape, np.nan))


def test_filters_of_layers_and_of_what_is_none():
    from wonderland import nn, random

    drawn(pictures.filters(nn.Conv2d(1, 4, 3, key=random.key(0)), dark=True))
    with pytest.raises(ValueError, match=r"got shape \(3, 3\)"):
        pictures.filters(np.eye(3))


def test_signs_have_their_colours():
    below, zero, above, missing = rgba(np.array([-1.0, 0.0, 1.0, np.nan]))
    assert below[0] > below[2] and above[2] > above[0] and np.ptp(zero[:3]) == 0
    assert [c[3] for c in (below, zero, above, missing)] == [1, 1, 1, 0]


def test_mistakes():
    images = np.arange(4)[:, None, None] * np.ones((4, 6, 6))
    target, said = np.array([0, 1, 2, 0]), np.array([0, 2, 1, 1])
    probabilities = np.array([[0.9, 0.1, 0], [0, 0.4, 0.6], [0, 0.9, 0.1], [0.25, 0.75, 0]])
    figure = pictures.mistakes(images, said, target, probabilities, classes=["a", "b", "c"])
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == ["c → b\n 90%", "a → b\n 75%", "b → c\n 60%"]  # the worst first
    assert figure.axes[0].get_images()[0].get_array()[0, 0] == 2
    assert "3 of 4 mistaken (true → said)" in drawn(figure)
    assert "3 of 4 mistaken, the worst 2 (true → said)" in drawn(pictures.mistakes(images, said, target, most=2))
    assert drawn(pictures.mistakes(images, target, target)) == ["no mistakes among 4"]
    assert drawn(pictures.mistakes(np.zeros((0, 2, 2)), np.zeros(0, int), np.zeros(0, int))) == ["no mistakes among 0"]
    for shape in ((4, 1, 6, 6), (4, 3, 6, 6), (4, 6, 6, 3), (4, 6, 6, 1)):
        drawn(pictures.mistakes(np.random.default_rng(0).normal(size=shape), said, target))
    drawn(pictures.mistakes(np.full((4, 2, 2), np.nan), said, target))
    with pytest.raises(ValueError, match=r"got \(4, 6, 6\), \(3,\) and \(4,\)"):
        pictures.mistakes(images, said[:3], target)
    with pytest.raises(ValueError, match=r"probabilities are \(4, classes\), got \(4,\)"):
        pictures.mistakes(images, said, target, np.zeros(4))
    with pytest.raises(ValueError, match=r"got \(2, 6, 6\)"):
        pictures.mistakes(np.zeros((4, 2, 6, 6)), said, target)


def test_light_and_dark():
    light, dark = (pictures.curves(history(), dark=dark) for dark in (False, True))
    for figure, ink in ((light, LIGHT), (dark, DARK)):
        content = svg(figure, "p1")
        assert (
            not any(color in content for color in VARIABLES)
            and "var(--ink)" in content
            and "var(--series-1)" in content
        )
        assert 'id="p1-' in content and not re.search(r'(id="|href="#|url\(#)(?!p1-)', content)
        assert figure._repr_png_()[:4] == b"\x89PNG"  # what a notebook shows
        assert figure.get_facecolor()[:3] == tuple(int(ink.paper[k : k + 2], 16) / 255 for k in (1, 3, 5))


def luminance(color):
    parts = np.array([int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize("ink", [LIGHT, DARK], ids=["light", "dark"])
def test_contrast_is_enough(ink):
    """WCAG 2: text 4.5 to 1 and more, curves 3 to 1."""

    def contrast(color):
        one, other = sorted((luminance(color), luminance(ink.paper)))
        return (other + 0.05) / (one + 0.05)

    assert contrast(ink.ink) > 7 and all(contrast(color) > 3 for color in ink.series)


def test_pyplot_is_left_alone_and_matplotlib_is_optional():
    code = """
import sys
from wonderland import train
train.History(), train.CSVLog, train.Progress
assert "matplotlib" not in sys.modules
train.pictures.confusion([[1, 2], [3, 4]])
assert "matplotlib.pyplot" not in sys.modules
for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
    del sys.modules[name]
sys.modules["matplotlib"] = None
try:
    train.pictures.curves({"loss": [1.0]})
except ImportError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "train.pictures needs Matplotlib, which isn't installed: pip install matplotlib"


def test_attention_has_a_matrix_for_each_head():
    weights = np.tril(np.ones((2, 3, 4, 4))) / np.arange(1, 5)[:, None]
    figure = pictures.attention(weights, ["a", " b", "\n", "$"])
    assert len(figure.axes) == 6
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["a", "·b", "⏎", r"\$"]
    drawn = figure.axes[0].images[0].get_array()
    np.testing.assert_array_equal(drawn, rgba(weights[0, 0], 1.0))
    assert len(pictures.attention(weights[0, 0], dark=True).axes) == 1
    with pytest.raises(ValueError, match="there are 4 keys, but 2 texts"):
        pictures.attention(weights, keys=["a", "b"])
    with pytest.raises(ValueError, match=r"got shape \(3,\)"):
        pictures.attention(np.ones(3))


def test_embedding_is_drawn_in_its_principal_plane():
    plane = np.array([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    turned = plane @ np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0][:2]
    figure = pictures.embedding(turned + 7, ["a", "B", "1", " "])
    found = np.array([text.get_position() for text in figure.axes[0].texts])
    np.testing.assert_allclose(np.abs(found), np.abs(plane), atol=1e-9)
    assert [text.get_text() for text in figure.axes[0].texts] == ["a", "B", "1", "·"]
    with pytest.raises(ValueError, match="2 labels"):
        pictures.embedding(turned, ["a", "b"])
