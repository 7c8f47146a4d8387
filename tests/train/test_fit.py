"""The training loop: what a step does, what is told, when it ends, what it refuses."""

import os
import signal
import threading
import time

import numpy as np
import pytest
from small_training import QUIET, arrays, data, loss, plain, same, stateful, told

import wonderland as wl
from wonderland import nn, train
from wonderland.train.compiled_step import compiled_step


def batches(size=8, n=20):
    x, y = data(n)
    return [(x[i : i + size], y[i : i + size]) for i in range(0, n, size)]


@wl.jit
def step_by_hand(model, optimizer, x, y):
    value, grads = wl.value_and_grad(loss)(model, x, y)
    optimizer.update(model, train.clip_by_norm(grads, 0.5))
    return value


def test_fit_is_the_loop_that_one_would_write():
    model, other = stateful(), stateful()
    optimizer, its = train.Adam(model, 0.01), train.Adam(other, 0.01)
    values = [[step_by_hand(model, optimizer, *batch) for batch in batches()] for _ in range(3)]
    history = train.fit(other, loss, its, batches(), epochs=3, clip=0.5, **QUIET)
    assert same(arrays(model, optimizer), arrays(other, its))
    assert np.array_equal(history.steps["loss"], np.ravel(values))
    means = np.average(np.array(values, np.float64), axis=1, weights=[8, 8, 4])
    np.testing.assert_allclose(history["loss"], means, rtol=1e-15)
    assert [*history] == ["epoch", "loss", "rate", "seconds"] and history["epoch"].tolist() == [1, 2, 3]
    assert history["rate"].tolist() == [0.01] * 3 and history.stopped is None


def test_what_the_loss_tells_and_validation_and_metrics_are_in_the_history():
    model, (x, y) = stateful(), data(16, 2)
    seen = []

    class See(train.Callback):
        def after_epoch(self, run):
            with nn.evaluating(run.model):
                out = run.model(x)
            seen.append([np.mean((out - y) ** 2), np.mean(np.abs(out - y)), train.metrics.r2_score(out, y)])

    r2 = {"r2": train.metrics.R2(), "again": train.metrics.r2_score, "third": train.metrics.R2}
    history = train.fit(
        model, told, train.SGD(model, 0.1), data(), epochs=3, validation=(x, y), metrics=r2, callbacks=[See()],
        batch_size=8, **QUIET,
    )  # fmt: skip
    found = np.stack([history[f"validation_{name}"] for name in ("loss", "error", "r2")], axis=1)
    np.testing.assert_allclose(found, seen, rtol=1e-5)
    np.testing.assert_allclose(history["validation_again"], history["validation_r2"], rtol=1e-12)
    np.testing.assert_allclose(history["validation_third"], history["validation_r2"], rtol=1e-12)
    assert history.steps["error"].shape == (9,) and history["error"].shape == (3,)


def generated(epoch=0):
    yield from batches()


def test_kinds_of_data_that_mean_the_same():
    def trained(given, **options):
        model = plain()
        history = train.fit(model, loss, train.SGD(model, 0.1), given, epochs=1, **options, **QUIET)
        return [*arrays(model), history["loss"]]

    expected = trained(batches())
    options = {"batch_size": 8, "shuffle": False}
    assert same(trained(data(), **options), expected)
    assert same(trained(wl.data.Arrays(*data()), **options), expected)
    assert same(trained(wl.data.Loader(data(), 8)), expected)
    assert same(trained(tuple(batches())), expected)
    assert same(trained(generated()), expected)
    assert same(trained(generated), expected)
    assert same(trained([list(batch) for batch in batches()]), expected)
    in_double = [(x.astype(np.float64), y.astype(np.float64)) for x, y in batches()]
    assert same(trained(in_double), expected)  # cast to the model's dtype


def test_a_batch_that_is_a_dict_or_an_array_is_one_argument():
    x, y = data()
    model = plain()
    by_name = lambda model, batch: loss(model, batch["x"], batch["y"])
    first = train.fit(model, by_name, train.SGD(model, 0.1), {"x": x, "y": y}, epochs=2, batch_size=10, **QUIET)
    model = plain()
    second = train.fit(model, loss, train.SGD(model, 0.1), (x, y), epochs=2, batch_size=10, **QUIET)
    assert np.array_equal(first["loss"], second["loss"])
    model = plain()
    history = train.fit(model, lambda model, x: np.mean(model(x) ** 2), train.SGD(model, 0.1), x, **QUIET)
    assert history["loss"].shape == (1,)


def test_generators_are_good_for_one_epoch_and_functions_for_many():
    model = plain()
    optimizer = train.SGD(model, 0.1)
    with pytest.raises(wl.ArgumentError, match=r"generator, which gives its batches once.*epochs=2"):
        train.fit(model, loss, optimizer, generated(), epochs=2, **QUIET)
    with pytest.raises(wl.ArgumentError, match="validation gives its batches once"):
        train.fit(model, loss, optimizer, batches(), validation=generated(), epochs=2, **QUIET)
    assert train.fit(model, loss, optimizer, generated, epochs=2, validation=generated, **QUIET).epochs == 2


def test_the_step_is_compiled_once_for_each_shape():
    def own(model, x, y):
        return loss(model, x, y)

    for _ in range(2):
        model = plain()
        optimizer = train.SGD(model, 0.1)
        train.fit(model, own, optimizer, data(), epochs=2, batch_size=8, **QUIET)
    assert "2 signatures" in repr(compiled_step(own, model, optimizer))


class Power:
    """A loss that is an object, compared by its number, and without a hash."""

    def __init__(self, power):
        self.power = power

    def __eq__(self, other):
        return type(other) is Power and other.power == self.power

    def __call__(self, model, x, y):
        return np.mean(np.abs(model(x) - y) ** self.power)


def test_a_loss_may_be_any_callable():
    model = plain()
    history = train.fit(model, Power(1.5), train.SGD(model, 0.1), batches(20), epochs=3, **QUIET)
    assert history["loss"][-1] < history["loss"][0]


def test_seeds_decide_the_order():
    def trained(**options):
        model = plain()
        train.fit(model, loss, train.SGD(model, 0.1), data(), epochs=2, batch_size=8, **options, **QUIET)
        return arrays(model)

    assert same(trained(seed=1), trained(seed=1))
    assert not same(trained(seed=1), trained(seed=2)) and not same(trained(), trained(shuffle=False))


# Models and optimisers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda m: train.Accumulate(train.SGD(m, 0.2), 2),
        lambda m: train.SGD(m, 0.05, groups={"*.bias": {"rate": 0.5}, "0.*": {"weight_decay": 0.01}}),
        lambda m: train.LBFGS(m, history=3),
        lambda m: train.NewtonCG(m, iterations=4),
    ],
    ids=["accumulated", "groups", "LBFGS", "NewtonCG"],
)
def test_optimizers(make):
    model = plain()
    optimizer = make(model)
    history = train.fit(model, loss, optimizer, data(), epochs=8, batch_size=20, **QUIET)
    assert history["loss"][-1] < 0.8 * history["loss"][0]


def test_line_searches_have_the_buffers_of_a_forward_pass():
    model = stateful()
    before = arrays(model)
    train.fit(model, told, train.LBFGS(model), data(), batch_size=20, **QUIET)
    assert model[1].num_batches_tracked == 1 and not same(before, arrays(model))


def test_double_precision_and_frozen_layers():
    model = plain(dtype=np.float64)
    model.freeze("0.*")
    before = arrays(model)
    history = train.fit(model, loss, train.SGD(model, 0.1), data(), epochs=2, **QUIET)
    assert same(before[:2], arrays(model)[:2]) and not same(before[2:], arrays(model)[2:])
    assert history.steps["loss"][0] != np.float32(history.steps["loss"][0])


def test_modes_are_restored():
    model = stateful().eval()
    seen = []

    class See(train.Callback):
        def after_step(self, run):
            seen.append([node.training for _, node in run.model.named_modules()])

    train.fit(model, told, train.SGD(model, 0.1), data(), callbacks=[See()], **QUIET)
    assert all(map(all, seen)) and not any(node.training for _, node in model.named_modules())
    model.train()
    model[1].eval()  # one layer is to stay as it is
    train.fit(model, told, train.SGD(model, 0.1), data(), callbacks=[See()], **QUIET)
    assert not model[1].training and model.training and not all(seen[-1]) and any(seen[-1])


# Numbers that aren't finite ------------------------------------------------------------------------------------------


def risky(model, x, y):
    value = np.log(np.mean(y) + 1.0)
    return loss(model, x, y) + 0.0 * value


def test_a_step_that_is_not_finite_leaves_everything_and_is_explained():
    model = stateful()
    optimizer = train.Adam(model, 0.01)
    x, y = data(8)
    train.fit(model, risky, optimizer, [(x, y)], **QUIET)
    before = arrays(model, optimizer)
    bad = [(x, np.full_like(y, -1.0))]
    with pytest.raises(
        train.NonFiniteError, match=r"step 1 .*the loss isn't finite: NaN first in `mul`.*`log`.*test_fit"
    ):
        train.fit(model, risky, optimizer, bad, **QUIET)
    assert same(before, arrays(model, optimizer))
    missing = x.copy()
    missing[5, 1] = np.nan
    with pytest.raises(train.NonFiniteError, match=r"NaN first in batch\[0\] at index \(5, 1\)\."):
        train.fit(model, risky, optimizer, [(missing, y)], **QUIET)
    assert same(before, arrays(model, optimizer))


def test_what_is_wrong_in_the_data_is_told_with_its_row():
    x, y = data(40)
    missing = x.copy()
    missing[33, 1] = np.nan
    kept = wl.data.Arrays(missing, y, missing="keep")
    for given in (kept, kept.part(np.arange(39, 19, -1))):
        order = wl.data.Loader(given, 8, shuffle=True, seed=2).order(0)
        step, index = divmod([given.name(i) for i in order].index("row 33"), 8)
        said = rf"step {step + 1} .*NaN first in batch\[0\] at index \({index}, 1\) \(row 33\)"
        with pytest.raises(train.NonFiniteError, match=said):
            train.fit(plain(), loss, SGD, given, batch_size=8, seed=2, **QUIET)

    labels = np.arange(40) % 2
    labels[21] = -1
    step, index = divmod(wl.data.Loader((x, labels), 8, shuffle=True).order(0).tolist().index(21), 8)
    with pytest.raises(wl.CheckError, match=rf"at index {index}\)") as caught:
        train.fit(plain(), lambda m, x, y: nn.cross_entropy(m(x), y), SGD, (x, labels), batch_size=8, **QUIET)
    note = f"in step {step + 1} (batch {step + 1} of epoch 1); index {index} of the batch is row 21"
    assert note in caught.value.__notes__
    with pytest.raises(wl.CheckError) as caught:
        train.evaluate(plain(), (x, labels), loss=lambda m, x, y: nn.cross_entropy(m(x), y), batch_size=8)
    assert "in batch 3 of the data that is evaluated; index 5 of the batch is row 21" in caught.value.__notes__


def test_labels_may_be_a_list():
    x, y = data(8)
    own = lambda model, x, y: loss(model, x, y)
    both = [train.fit(plain(), own, SGD, (x, labels), epochs=2, **QUIET)["loss"] for labels in (y, y.tolist())]
    assert same(*[[h] for h in both])


def test_steps_that_are_not_finite_are_skipped_on_demand():
    x, y = data(8)
    good, bad = (x, y), (x, np.full_like(y, np.inf))
    model, other = stateful(), stateful()
    optimizer, its = train.Adam(model, 0.01), train.Adam(other, 0.01, skip_nonfinite=True)
    history = train.fit(model, risky, optimizer, [good, bad, good], nonfinite="skip", **QUIET)
    assert history["skipped"].tolist() == [1] and optimizer.skipped == 1 and np.isnan(history.steps["loss"][1])
    assert history["loss"] == pytest.approx(np.mean(history.steps["loss"][[0, 2]]))
    train.fit(other, risky, its, [good, bad, good], **QUIET)
    assert same(arrays(model), arrays(other)) and its.skipped == 1
    with pytest.raises(train.NonFiniteError, match="no step of epoch 1 was finite, all 2"):
        train.fit(model, risky, optimizer, [bad, bad], nonfinite="skip", **QUIET)


@pytest.mark.parametrize("rate", [1e30, 1e38])
def test_an_update_that_overflows_is_found(rate):
    model = plain()
    before = arrays(model)
    steep = lambda model, x, y: 1e9 * loss(model, x, y)
    with pytest.raises(train.NonFiniteError, match=r"the new '.*' of the model.*in the optimiser's update"):
        train.fit(model, steep, train.SGD(model, rate), data(), **QUIET)
    assert same(before, arrays(model))


# Callbacks, stopping, interrupts -------------------------------------------------------------------------------------


def test_callbacks_are_told_in_order_and_may_stop():
    told_them = []

    class Tell(train.Callback):
        def begin(self, run):
            told_them.append("begin")

        def after_step(self, run):
            told_them.append(f"step {run.step}")
            if run.step == 4:
                run.stop("enough")

        def after_epoch(self, run):
            told_them.append(f"epoch {run.epoch}")

        def end(self, run):
            told_them.append(f"end {run.stopped}")

    class Other:  # not every method has to be there
        def end(self, run):
            told_them.append("the end")

    model = plain()
    history = train.fit(model, loss, train.SGD(model, 0.1), batches(), epochs=5, callbacks=[Tell(), Other()], **QUIET)
    assert told_them == [
        "begin", "step 1", "step 2", "step 3", "epoch 1", "step 4", "end enough", "the end",
    ]  # fmt: skip
    assert history.stopped == "enough" and history.epochs == 1


class PlannedValues(train.Callback):
    def __init__(self, values):
        self.values, self.states = values, []

    def after_epoch(self, run):
        run.values["planned"] = self.values[run.epoch - 1]
        self.states.append(arrays(run.model))


@pytest.mark.parametrize(
    ("options", "epochs", "best"),
    [
        ({"patience": 2}, 5, 3),
        ({"patience": 2, "min_delta": 0.6}, 4, 2),
        ({"patience": 1, "mode": "max"}, 2, 1),
        ({"patience": 9}, 7, 7),
        ({"patience": 2, "rollback": False}, 5, None),
    ],
)
def test_early_stopping(options, epochs, best):
    model = plain()
    planned = PlannedValues([3.0, 2.0, 1.5, float("nan"), 1.6, 1.5, 1.0])
    stopping = train.EarlyStopping("planned", **options)
    history = train.fit(model, loss, train.SGD(model, 0.1), data(), epochs=7, callbacks=[planned, stopping], **QUIET)
    assert history.epochs == epochs and (history.stopped is None) == (epochs == 7)
    assert same(arrays(model), planned.states[(best or epochs) - 1])
    assert best is None or stopping.best_epoch == best


def test_steps_is_the_same_as_a_generator():
    model, other = plain(), plain()
    train.fit(model, told, train.SGD(model, 0.1), batches(), epochs=2, **QUIET)
    found = [*train.steps(other, told, train.SGD(other, 0.1), batches(), epochs=2)]
    assert same(arrays(model), arrays(other)) and [s.number for s in found] == [1, 2, 3, 4, 5, 6]
    assert [s.epoch for s in found] == [1, 1, 1, 2, 2, 2] and found[0].values.keys() == {"error"} and found[0].finite
    for step in train.steps(other.eval(), told, train.SGD(other, 0.1), batches(), epochs=2):
        if step.number == 2:
            break
    del step
    assert not other.training  # the generator was closed


class Interrupting(train.Callback):
    def __init__(self, at, times=1):
        self.at, self.times = at, times

    def after_step(self, run):
        for _ in range(self.times if run.step == self.at else 0):
            signal.raise_signal(signal.SIGINT)


def test_an_interrupt_finishes_the_step_saves_and_returns(tmp_path):
    expected, model = plain(), plain()
    train.fit(expected, loss, train.SGD(expected, 0.1), data(), batch_size=8, epochs=3, **QUIET)
    before = signal.getsignal(signal.SIGINT)
    options = {"epochs": 3, "batch_size": 8, "checkpoint": tmp_path, **QUIET}
    history = train.fit(model, loss, train.SGD(model, 0.1), data(), callbacks=[Interrupting(5)], **options)
    assert history.stopped == "interrupted" and history.epochs == 1 and len(history.steps["loss"]) == 5
    assert "resume=True" in history.notes[-1] and signal.getsignal(signal.SIGINT) is before
    model = plain()
    with pytest.warns(train.CheckpointWarning, match="callbacks"):
        history = train.fit(model, loss, train.SGD(model, 0.1), data(), resume=True, **options)
    assert same(arrays(model), arrays(expected)) and history.stopped is None and history.epochs == 3


def test_an_interrupt_in_the_validation_is_resumed_there(tmp_path):
    seen = []

    def interrupting(outputs, targets):
        seen.append(len(outputs))
        return 0.0

    class Metric:
        value = 1.0

        def reset(self):
            pass

        def update(self, outputs, targets):
            seen.append(len(outputs))
            if len(seen) == 2:
                signal.raise_signal(signal.SIGINT)

    model, expected = stateful(), stateful()
    options = {"batch_size": 8, "epochs": 2, "validation": batches(10), "checkpoint": tmp_path, **QUIET}
    metrics = {"metrics": {"m": Metric()}}
    history = train.fit(model, told, train.SGD(model, 0.1), data(), **options, **metrics)
    assert history.stopped == "interrupted" and history.epochs == 0 and len(history.steps["loss"]) == 3
    model = stateful()
    history = train.fit(model, told, train.SGD(model, 0.1), data(), resume=True, **options, **metrics)
    options["checkpoint"] = None
    other = train.fit(expected, told, train.SGD(expected, 0.1), data(), **options)
    assert same(arrays(model), arrays(expected)) and history.epochs == 2
    assert all(np.array_equal(history[name], other[name]) for name in other if name != "seconds")


def test_a_second_interrupt_stops_at_once(tmp_path):
    model = plain()
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train.fit(
            model, loss, train.SGD(model, 0.1), data(), epochs=3, callbacks=[Interrupting(1, times=2)],
            checkpoint=tmp_path, **QUIET,
        )  # fmt: skip
    assert signal.getsignal(signal.SIGINT) is before and not os.listdir(tmp_path)


def test_other_threads_have_no_signals():
    model = plain()
    found = []
    run = lambda: found.append(train.fit(model, loss, train.SGD(model, 0.1), data(), epochs=2, **QUIET).epochs)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_ctrl_c_from_outside(tmp_path):
    model = plain()
    train.fit(model, loss, train.SGD(model, 0.1), data(), batch_size=8, **QUIET)  # compiled before
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            history = train.fit(
                model, loss, train.SGD(model, 0.1), data(), batch_size=8, epochs=10**7, checkpoint=tmp_path, **QUIET
            )
            code = 0 if history.stopped == "interrupted" else 2
        finally:
            os._exit(code)
    while not os.listdir(tmp_path):
        time.sleep(0.01)
    os.kill(child, signal.SIGINT)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not list(tmp_path.glob("*.tmp")) and train.Checkpoint(tmp_path).latest() is not None


def test_progress_is_shown(capsys):
    model = plain()
    train.fit(model, loss, train.SGD(model, 0.1), data(), epochs=2)
    out = capsys.readouterr().err
    assert "1/2" in out and "2/2" in out and "loss" in out


# Bad input -----------------------------------------------------------------------------------------------------------

MODEL = plain()
SGD = train.SGD(MODEL, 0.1)
BAD = {
    "a model that is none": ({"model": lambda x: x}, "takes an nn.Module as its model, not function"),
    "a model that is a class": ({"model": nn.Linear}, "not Linear"),
    "a loss that is none": ({"loss": 3.0}, "takes a function"),
    "a loss that is no scalar": ({"loss": lambda m, x, y: m(x)}, r"shape \(20, 2\).*Take its mean"),
    "a loss that is nothing": ({"loss": lambda m, x, y: None}, "returned NoneType"),
    "a loss that is a constant": ({"loss": lambda m, x, y: 1.0}, "a Python float"),
    "a loss that tells arrays": ({"loss": lambda m, x, y: (np.mean(m(x)), {"a": x})}, r"'a' of shape \(20, 3\)"),
    "a loss that tells a loss": ({"loss": lambda m, x, y: (np.mean(m(x)), {"loss": np.mean(x)})}, "'loss' of shape"),
    "an optimizer's class": ({"optimizer": train.SGD}, r"made for the model, train.Adam\(model\), not SGD"),
    "an optimizer of another model": ({"optimizer": train.SGD(nn.Linear(3, 2))}, "optimizer.track"),
    "GaussNewton": ({"optimizer": train.GaussNewton(MODEL)}, "write the loop yourself"),
    "a search that is clipped": ({"optimizer": train.LBFGS(MODEL), "clip": 1.0}, "doesn't go with clip"),
    "a clip": ({"clip": -1.0}, "largest norm"),
    "epochs": ({"epochs": 0}, "at least 1, not 0"),
    "no data": ({"data": None}, "data is a wl.data.Loader.*not NoneType"),
    "a path": ({"data": "data.csv"}, "not str"),
    "numbers": ({"data": [(1.0, 2.0)]}, r"is a float: make arrays of them"),
    "strings": ({"data": [(np.array(["a"]), np.zeros(1))]}, "dtype <U1"),
    "no labels": ({"data": data()[:1]}, r"loss\(model, x, y\) .* has 1 of them \(float32\[20, 3\]\): missing .*'y'"),
    "labels that nobody wants": ({"loss": lambda m, x: np.mean(m(x))}, "this data has 2 of them.*too many"),
    "a batch size of batches": ({"data": batches(), "batch_size": 8}, "makes batches of its own"),
    "a batch size of a Loader": ({"data": wl.data.Loader(data(), 4), "batch_size": 8}, "makes batches of its own"),
    "metrics without validation": ({"metrics": {"r2": train.metrics.R2()}}, "pass validation="),
    "metrics that are none": ({"metrics": {"r2": 1}, "validation": data()}, r"metrics\['r2'\]"),
    "metrics in a list": ({"metrics": [train.metrics.R2()], "validation": data()}, "metrics are a dict"),
    "a callback's class": ({"callbacks": [train.EarlyStopping]}, "not the class EarlyStopping"),
    "a callback": ({"callbacks": [3]}, "the methods begin, after_step"),
    "nothing to resume from": ({"resume": True}, "resume=True needs checkpoint="),
    "nonfinite": ({"nonfinite": "ignore"}, '"raise" or "skip"'),
    "a monitor": ({"callbacks": [train.EarlyStopping("accuracy")]}, "watches 'accuracy'.*loss, rate, seconds"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    changed, message = BAD[case]
    arguments = {"model": MODEL, "loss": loss, "optimizer": SGD, "data": data(), **changed}
    before = arrays(MODEL)
    with pytest.raises(wl.ArgumentError, match=message):
        train.fit(**arguments, **QUIET)
    assert "monitor" in case or same(before, arrays(MODEL))


def test_empty_data_and_large_batches_are_errors_of_the_data():
    x, y = data()
    empty = (x[:0], y[:0])
    cases = [
        (empty, {}, "there are no samples"), ((x, y), {"batch_size": 64}, "more than the 20 samples"),
        ([], {}, "there are no batches"), (iter([]), {}, "there are no batches"), ((x, None), {}, "array 1 is None"),
        ([empty], {}, "a batch has no samples"), ([(x, y), empty], {}, r"step 2 .*: the batch has no samples"),
    ]  # fmt: skip
    for given, options, said in cases:
        with pytest.raises(wl.data.DataError, match=said):
            train.fit(MODEL, loss, SGD, given, **options, **QUIET)


def test_bad_early_stopping():
    for options in ({"patience": 0}, {"mode": "auto"}, {"min_delta": -1}):
        with pytest.raises(wl.ArgumentError):
            train.EarlyStopping(**options)
