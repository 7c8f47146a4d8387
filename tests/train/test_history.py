"""History: what is appended comes back, whole, and exactly through JSON."""

import copy
import json
import pickle

import numpy as np
import pytest

from wonderland import train
from wonderland.train.formats import cell, duration, number, thinned


def made(epochs=3, steps=4):
    history, step = train.History(), 0
    for epoch in range(1, epochs + 1):
        for _ in range(steps):
            step += 1
            history.add_step(epoch, step, {"loss": np.float32(1 / step)})
        values = {"loss": 1 / epoch, "rate": 1e-3, "seconds": 0.1 * epoch}
        history.add_epoch(epoch, values | ({"validation_loss": 2 / epoch} if epoch % 2 == 0 else {}))
    return history


def same(one, other):
    assert [*one] == [*other] and one.notes == other.notes and repr(one) == repr(other)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])
        assert one[name].dtype == other[name].dtype
    assert [*one.steps] == [*other.steps]
    for name, values in one.steps.items():
        np.testing.assert_array_equal(values, other.steps[name])


def test_it_is_a_dict_of_arrays():
    history = made()
    assert isinstance(history, dict) and all(isinstance(v, np.ndarray) for v in history.values())
    assert history["epoch"].tolist() == [1, 2, 3] and history["epoch"].dtype == np.int64
    assert history["loss"].tolist() == [1, 1 / 2, 1 / 3]
    np.testing.assert_array_equal(history["validation_loss"], [np.nan, 1, np.nan])  # not measured in every epoch
    assert history.epochs == 3 and history.last["loss"] == 1 / 3 and type(history.last["epoch"]) is int
    assert history.steps["step"].tolist() == [*range(1, 13)] and history.steps["epoch"][-1] == 3
    np.testing.assert_array_equal(history.steps["loss"], [float(np.float32(1 / k)) for k in range(1, 13)])
    assert history.last_step["step"] == 12


def test_json_and_pickle_are_exact():
    history = made()
    history.add_epoch(4, {"loss": np.inf, "odd": np.float32(0.1), "count": np.int64(7)})
    history.add_step(5, 13, {"loss": -np.inf, "norm": np.nan})
    history.notes.append("stopped: no better for 3 epochs")
    for other in (
        train.History.from_json(history.to_json()), pickle.loads(pickle.dumps(history)), copy.deepcopy(history)
    ):  # fmt: skip
        same(history, other)
        for h in (other,):
            h.add_epoch(5, {"loss": 0.5})
            h.add_step(5, 14, {"loss": 0.25})
            assert h.epochs == 5 and h.steps["loss"][-1] == 0.25
    assert history.epochs == 4
    json.loads(history.to_json(), parse_constant=lambda text: pytest.fail(f"{text} isn't JSON"))
    same(train.History(), train.History.from_json(train.History().to_json()))


def test_what_is_no_state_is_refused():
    with pytest.raises(ValueError, match=r"'steps'.* is missing"):
        train.History().load_state({"epochs": {}})
    state = made().state()
    state["epochs"]["loss"].pop()
    history = made(2)
    with pytest.raises(ValueError, match="different lengths"):
        history.load_state(state)
    same(history, made(2))


@pytest.mark.parametrize("most", [2, 5, 8])
def test_steps_are_thinned(most):
    history, half = train.History(most_steps=most), None
    for step in range(1, 101):
        history.add_step(1, step, {"loss": step})
        if step == 47:
            half = train.History.from_json(history.to_json())
        elif half is not None:
            half.add_step(1, step, {"loss": step})
        kept = history.steps["step"]
        assert len(kept) <= most and kept[0] == 1 and len(np.unique(np.diff(kept))) <= 1
        np.testing.assert_array_equal(history.steps["loss"], kept)
        assert history.last_step["step"] == step
    assert len(kept) >= most // 2
    same(history, half)
    everything = train.History(most_steps=None)
    for step in range(1, 101):
        everything.add_step(1, step, {})
    assert len(everything.steps["step"]) == 100
    with pytest.raises(ValueError, match="at least 2"):
        train.History(most_steps=1)


def test_columns_that_come_later_and_go():
    history = train.History()
    history.add_step(1, 1, {"loss": 3})
    history.add_step(1, 2, {"norm": 4})
    np.testing.assert_array_equal(history.steps["loss"], [3, np.nan])
    np.testing.assert_array_equal(history.steps["norm"], [np.nan, 4])


def test_tables_and_short_forms():
    history = made()
    lines = history.table().splitlines()
    assert len({len(line) for line in lines}) == 1 and len(lines) == 2 + 3
    assert lines[1].split() == ["epoch", "loss", "rate", "seconds", "loss"]
    assert lines[3].split() == ["2", "0.5000", "0.001", "0.20", "1.000"]
    assert repr(made(1)) == "History(1 epoch: loss 1.000, rate 0.001000, seconds 0.1000)"
    assert repr(train.History()) == "History(0 epochs)" and train.History().table() == "no epochs yet"
    long = made(100, 0)
    assert len(long.table(10).splitlines()) == 12 and long.table(10).splitlines()[-1].split()[0] == "100"
    assert history._repr_html_().count("<tr>") == 4
    history.add_epoch(4, {"<script>": 1})
    assert "<script>" not in history._repr_html_() and "&lt;script&gt;" in history._repr_html_()


def test_the_best_epoch():
    history = made(4)
    assert history.best()["epoch"] == 4 and history.best("loss", "max")["epoch"] == 1
    with pytest.raises(KeyError, match="there is no 'f1', only epoch, loss"):
        history.best("f1")
    history.add_epoch(5, {"f1": np.nan})
    with pytest.raises(ValueError, match="all values of 'f1' are NaN"):
        history.best("f1")


def test_only_numbers_are_kept():
    with pytest.raises(TypeError, match=r"'loss' is ndarray of shape \(2,\)"):
        train.History().add_epoch(1, {"loss": np.zeros(2)})
    history = train.History()
    history.add_epoch(1, {"loss": np.array(6, np.float32)})
    assert history["loss"].tolist() == [6.0]


def test_numbers_and_durations():
    found = [number(x) for x in (0.123456, 1e-7, 12, 123456.7, np.float32(2), np.nan, -np.inf, "text", None, True)]
    assert found == ["0.1235", "1e-07", "12", "1.23e+05", "2.000", "nan", "-inf", "text", "", "True"]
    seconds = (0.012, 1.26, 12.4, 187, 3723, 200000, np.nan)
    assert [duration(s) for s in seconds] == ["0.012 s", "1.3 s", "12 s", "3:07", "1:02:03", "2 d 7 h", "?"]
    assert cell("epoch", 3.0) == "3" and cell("rate", 0.05) == "0.05" and cell("loss", None) == ""
    assert cell("epoch", np.nan) == "nan"
    assert thinned(5, 9) == [0, 1, 2, 3, 4] and thinned(100, 3) == [0, 50, 99]  # rounded to even
