"""The training loop at its corners: functions that change, data that is used twice, callbacks that fail."""

import errno
import io
import os
import shutil
import signal
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from small_training import arrays, data, loss, plain, same, told

from wonderland import nn, train
from wonderland.core.errors import ArgumentError
from wonderland.data import DataError, Loader

FACTOR = 1.0


def test_a_second_fit_sees_changed_globals_closures_and_attributes_of_the_loss():
    global FACTOR
    attribute, cell = SimpleNamespace(factor=1.0), {"factor": 1.0}

    def scaled(model, x, y):
        return FACTOR * cell["factor"] * attribute.factor * loss(model, x, y)

    model = plain()
    optimizer = train.SGD(model, 0.0)
    fitted = lambda: train.fit(model, scaled, optimizer, data(), validation=data(), progress=False).last
    first = fitted()
    for count in (1, 2, 3):
        if count == 1:
            FACTOR = 10.0
        elif count == 2:
            cell["factor"] = 10.0
        else:
            attribute.factor = 10.0
        later = fitted()
        np.testing.assert_allclose(later["loss"], first["loss"] * 10.0**count, rtol=1e-5)
        np.testing.assert_allclose(later["validation_loss"], first["validation_loss"] * 10.0**count, rtol=1e-5)
    FACTOR = 1.0


class Stopped:
    """A metric that asks for an interruption during the first validation."""

    def __init__(self, asked):
        self.asked, self.value = asked, 0.0

    def reset(self):
        pass

    def update(self, outputs, targets):
        if self.asked:
            os.kill(os.getpid(), signal.SIGINT)
            self.asked = False


def test_a_loader_that_began_in_mid_epoch_repeats_nothing_after_an_interrupted_validation(tmp_path):
    def fitted(folder, asked=False, resume=False):
        model = plain()
        optimizer = train.Adam(model, 0.02)
        loader = Loader(data(40), batch_size=8, shuffle=True)
        if not resume:
            batches = iter(loader)
            next(batches), next(batches), batches.close()
        options = {"validation": [data(8)] * 2, "metrics": {"none": Stopped(asked)}, "checkpoint": folder}
        history = train.fit(model, loss, optimizer, loader, epochs=2, resume=resume, progress=False, **options)
        return [*arrays(model, optimizer), history.steps["loss"]], history.stopped

    whole, _ = fitted(tmp_path / "whole")
    assert fitted(tmp_path / "parts", asked=True)[1] == "interrupted"
    assert same(fitted(tmp_path / "parts", resume=True)[0], whole)


def test_all_callbacks_are_told_about_the_end_if_one_of_them_raises():
    seen = []

    class Broken(train.Callback):
        def end(self, run):
            seen.append("broken")
            raise RuntimeError("at the end")

    class Fine(train.Callback):
        def end(self, run):
            seen.append("fine")

    out = io.StringIO()
    model = plain()
    progress = train.Progress(1, 1, out=out, style="bar")
    with pytest.raises(RuntimeError, match="at the end"):
        train.fit(model, loss, train.SGD(model, 0.1), data(), callbacks=[Broken(), Fine()], progress=progress)
    assert seen == ["broken", "fine"] and out.getvalue().endswith("\n")


@pytest.mark.parametrize("value", [1j, None, "text", np.zeros(2)])
def test_what_a_loss_tells_is_real_numbers(value):
    model = plain()
    with pytest.raises(ArgumentError, match="'more'"):
        train.fit(model, lambda *a: (loss(*a), {"more": value}), train.SGD(model, 0.1), data(), progress=False)


@pytest.mark.parametrize("name", ["loss", "error"])
def test_a_metric_does_not_hide_what_the_loss_told(name):
    with pytest.raises(ArgumentError, match=f"'{name}', which the loss has already"):
        train.evaluate(plain(), data(), loss=told, metrics={name: lambda outputs, targets: 7.0})


def test_a_refused_resume_leaves_the_model_as_it_was(tmp_path):
    model = plain()
    train.fit(model, loss, train.Adam(model), data(), checkpoint=tmp_path, progress=False)
    model = plain(1)
    optimizer = train.Adam(model)
    before = arrays(model, optimizer)
    with pytest.raises(DataError, match="samples in the data 20, this one has 24"):
        train.fit(model, loss, optimizer, data(24), checkpoint=tmp_path, resume=True, progress=False)
    assert same(arrays(model, optimizer), before)


def test_another_count_of_accumulate_is_told_at_resume(tmp_path):
    def fitted(count, resume):
        model = plain()
        optimizer = train.Accumulate(train.Adam(model), count)
        train.fit(model, loss, optimizer, data(), epochs=1 + resume, checkpoint=tmp_path, resume=resume, progress=False)

    fitted(2, False)
    with pytest.warns(train.CheckpointWarning, match="the count of Accumulate 2, and it is 4 now"):
        fitted(4, True)


def test_arrays_in_states_of_callbacks_do_not_take_each_others_place(tmp_path):
    class Dotted(train.Callback):
        def state(self):
            return {"a.b": np.array([1.0]), "a": {"b": np.array([2.0])}}

        def load_state(self, state):
            self.loaded = state["a.b"][0], state["a"]["b"][0]

    dotted = Dotted()
    for epochs in (1, 2):
        model = plain()
        options = {"checkpoint": tmp_path, "callbacks": dotted, "resume": epochs == 2, "progress": False}
        train.fit(model, loss, train.Adam(model), data(), epochs=epochs, **options)
    assert dotted.loaded == (1.0, 2.0)


def test_a_resume_says_of_which_numbers_those_of_the_checkpoint_are_used(tmp_path):
    def fitted(rate, beta1, clip, resume=False):
        model = plain()
        optimizer = train.Adam(model, rate, betas=(beta1, 0.999))
        options = {"checkpoint": tmp_path, "resume": resume, "clip": clip, "progress": False}
        train.fit(model, loss, optimizer, data(), epochs=1 + resume, **options)
        return float(optimizer.rate), float(optimizer.beta1)

    fitted(0.1, 0.9, 1.0)
    with pytest.warns(train.CheckpointWarning) as caught:
        assert fitted(0.2, 0.5, 2.0, resume=True) == (0.1, 0.5)
    told = {str(warning.message).split(" with ")[1].split()[0]: str(warning.message) for warning in caught}
    kept = {name: "the number of the checkpoint is used" in text for name, text in told.items()}
    assert kept == {"rate": True, "beta1": False, "clip": False}


def test_other_functions_and_settings_of_layers_are_told_at_resume(tmp_path):
    def fitted(function, p, resume=False):
        model = nn.Sequential(nn.Linear(3, 2), function, nn.Dropout(p))
        options = {"checkpoint": tmp_path, "resume": resume, "progress": False}
        train.fit(model, loss, train.Adam(model), data(), epochs=1 + resume, **options)

    fitted(nn.tanh, 0.1)
    with pytest.warns(train.CheckpointWarning, match="the layer '1: tanh', and it is '1: relu' now"):
        fitted(nn.relu, 0.1, resume=True)
    shutil.rmtree(tmp_path)
    fitted(nn.tanh, 0.1)
    with pytest.warns(train.CheckpointWarning, match=r"the layer '2: Dropout\(p=0.1\)', and it is '2: Dropout\(p=0.2"):
        fitted(nn.tanh, 0.2, resume=True)


def test_early_stopping_says_if_there_was_never_a_number():
    model = plain()
    options = {"validation": [(np.full((4, 3), np.nan), np.zeros((4, 2)))], "progress": False}
    stopping = train.EarlyStopping(patience=2)
    history = train.fit(model, loss, train.Adam(model), data(), epochs=5, callbacks=stopping, **options)
    assert history.stopped == "early stopping: validation_loss was never a number" and history.epochs == 2


def test_progress_without_any_output(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)  # as under pythonw
    model = plain()
    assert train.fit(model, loss, train.Adam(model), data(), epochs=2).epochs == 2


def test_a_terminal_that_is_gone_does_not_end_training():
    class Gone(io.StringIO):
        def write(self, text):
            raise OSError(errno.EIO, "Input/output error")  # the connection was lost

    for style in ("bar", "lines"):
        model = plain()
        progress = train.Progress(2, 1, out=Gone(), style=style)
        assert train.fit(model, loss, train.Adam(model), data(), epochs=2, progress=progress).epochs == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        *(({"epochs": epochs}, "epochs is a whole number") for epochs in (0, None, float("nan"), float("inf"), "3")),
        ({"callbacks": 5}, "a callback is a train.Callback, .*, not int"),
        ({"clip": True}, "clip is the largest norm"),
        ({"checkpoint": 5}, "the path of a folder, not 5"),
        ({"checkpoint": __file__}, "the path of a folder, and .* is a file"),
        ({"outputs": 3}, "outputs= of train.fit"),
    ],
)
def test_arguments_that_are_refused(options, said):
    model = plain()
    with pytest.raises(ArgumentError, match=said):
        train.fit(model, loss, train.SGD(model, 0.1), data(), progress=False, **options)
