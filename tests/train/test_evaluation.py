"""Losses and metrics of whole data sets, predictions, the range test of rates, and learning one batch by heart."""

import matplotlib
import numpy as np
import pytest
from small_training import arrays, data, loss, plain, same, stateful, told

import wonderland as wl
from wonderland import nn, train


def test_evaluate_is_the_mean_over_all_samples_in_evaluation_mode_and_changes_nothing():
    model, (x, y) = stateful(), data(50)
    before = arrays(model)
    found = train.evaluate(model, (x, y), loss=told, metrics={"r2": train.metrics.R2()}, batch_size=16)
    assert model.training and same(before, arrays(model))
    with nn.evaluating(model):
        out = model(x)
    assert found["loss"] == pytest.approx(np.mean((out - y) ** 2), rel=1e-5)
    assert found["error"] == pytest.approx(np.mean(np.abs(out - y)), rel=1e-5)
    assert found["r2"] == pytest.approx(train.metrics.r2_score(out, y), rel=1e-5)
    np.testing.assert_allclose(train.predict(model, x, batch_size=16), out, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(train.predict(model, wl.data.Loader((x, y), 16)), out, rtol=1e-5, atol=1e-6)


class Counting(nn.Module):
    """Counts its calls, and has two outputs."""

    def __init__(self):
        self.weight = np.ones(3, np.float32)
        self.calls = nn.Buffer(np.array(0))

    def __call__(self, x):
        self.calls = self.calls + 1
        return {"sum": np.sum(x * self.weight, axis=1), "x": x}


def test_outputs_are_trees_and_of_functions_and_writes_are_lost():
    model, (x, _) = Counting(), data(11)
    found = train.predict(model, x, batch_size=4)
    np.testing.assert_allclose(found["sum"], x.sum(1), rtol=1e-6)
    assert same([found["x"]], [x]) and model.calls == 0
    twice = train.predict(model, (x, x), outputs=lambda model, x, y: model(x)["sum"] + y[:, 0], batch_size=4)
    np.testing.assert_allclose(twice, x.sum(1) + x[:, 0], rtol=1e-6)


def test_a_loader_is_where_it_was_afterwards():
    model = plain()
    loader = wl.data.Loader(data(), 8, shuffle=True)
    next(iter(loader))
    before = loader.state()
    first = train.evaluate(model, loader, loss=loss)
    assert loader.state() == before and train.evaluate(model, loader, loss=loss) == first
    with pytest.raises(wl.ArgumentError, match="shuffles"):
        train.predict(model, loader)


def test_bad_evaluations():
    model = plain()
    for call, message in (
        (lambda: train.evaluate(model, data()), "a loss, metrics, or both"),
        (lambda: train.predict(np.tanh, data()), "takes an nn.Module"),
        (lambda: train.evaluate(model, data(), loss=lambda m, x, y: m(x)), "Take its mean"),
    ):
        with pytest.raises(wl.ArgumentError, match=message):
            call()
    for call in (lambda: train.evaluate(model, [], loss=loss), lambda: train.predict(model, iter([]))):
        with pytest.raises(wl.data.DataError, match="no batches"):
            call()


def test_find_rate_finds_one_and_leaves_all_as_it_was():
    matplotlib.use("Agg")
    model = plain()
    optimizer = train.SGD(model, train.cosine(0.1, 10), groups={"*.bias": {"rate": 0.2}})
    loader = wl.data.Loader(data(64), 16, shuffle=True)
    before, place = arrays(model, optimizer), loader.state()
    curve = train.find_rate(model, loss, optimizer, loader, low=1e-4, high=100.0, steps=60)
    assert same(before, arrays(model, optimizer)) and loader.state() == place and callable(optimizer.rate)
    assert 1e-3 < curve.suggestion < 3.0 and curve.suggestion in curve.rates
    assert len(curve.rates) == len(curve.losses) == len(curve.smoothed) < 60  # it ends where it diverges
    ratio = curve.rates[1] / curve.rates[0]
    np.testing.assert_allclose(curve.rates, 1e-4 * ratio ** np.arange(len(curve.rates)), rtol=1e-12)
    axes = curve.plot().axes[0]
    assert axes.get_xscale() == "log" and len(axes.lines) == 3
    with pytest.raises(wl.ArgumentError, match="low < high"):
        train.find_rate(model, loss, optimizer, loader, low=1.0, high=0.1)


def test_overfit_one_batch():
    model = plain()
    optimizer = train.Adam(model, 0.05)
    before = arrays(model, optimizer)
    check = train.overfit_one_batch(model, loss, optimizer, data(), batch_size=8)
    assert check and check.losses[-1] <= 0.01 * check.losses[0] and "by heart" in str(check)
    assert same(before, arrays(model, optimizer))
    broken = lambda model, x, y: loss(model, np.zeros_like(x), y)  # the inputs don't reach it
    check = train.overfit_one_batch(model, broken, optimizer, data(), batch_size=8, steps=50)
    assert not check and "look at the loss, the labels and the rate" in check.message
