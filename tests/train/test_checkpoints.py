"""Checkpoints: a run that was killed goes on to the bit, damaged files are refused, a full disk leaves the last one."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from small_training import QUIET, arrays, data, loss, plain, same, told, whole

import wonderland as wl
from wonderland import nn, train
from wonderland.nn import safetensors
from wonderland.train.records import read_record, write_record

HERE = Path(__file__).resolve().parent


class Leave(train.Callback):
    """Ends a run in the middle, as a crash does."""

    def __init__(self, step):
        self.step = step

    def after_step(self, run):
        if run.step == self.step:
            raise RuntimeError("crash")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return whole(tmp_path_factory.mktemp("whole"))[0]


def test_a_run_that_crashed_anywhere_goes_on_to_the_bit(tmp_path, uninterrupted):
    for step in (1, 3, 5, 6, 16):  # 3 steps an epoch: in the middle, at the end, before the first checkpoint
        folder = tmp_path / str(step)
        with pytest.raises(RuntimeError, match="crash"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            whole(folder, callbacks=[Leave(step)])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*callbacks")
            assert same(whole(folder, resume=True)[0], uninterrupted)


def test_five_epochs_and_five_more_are_ten(tmp_path, uninterrupted):
    first = whole(tmp_path, epochs=5)[1]
    assert first.epochs == 5 and first.stopped is None
    assert same(whole(tmp_path, resume=True)[0], uninterrupted)
    assert same(whole(tmp_path, resume=True)[0][:20], uninterrupted[:20])  # of what is finished nothing is left to do


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_run_that_was_killed_goes_on_to_the_bit(tmp_path, uninterrupted):
    during_a_save = 0
    rng = np.random.default_rng(0)
    for attempt in range(4):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        child = os.fork()
        if not child:
            try:
                whole(folder, every_steps=1)
            finally:
                os._exit(0)
        time.sleep(rng.uniform(0.0, 0.25))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for name in os.listdir(folder):
            during_a_save += name.endswith(".tmp")
            if name.endswith(".safetensors"):
                read_record(str(folder / name))  # all that is there is whole
        assert same(whole(folder, resume=True, every_steps=1)[0], uninterrupted)
        assert not [name for name in os.listdir(folder) if name.endswith(".tmp")]


def test_a_fresh_process_goes_on_to_the_bit(tmp_path, uninterrupted):
    whole(tmp_path, epochs=4)
    code = (
        "import sys; from small_training import whole; import wonderland as wl; "
        "wl.save(dict(enumerate(whole(sys.argv[1], resume=True)[0])), sys.argv[2])"
    )
    root = str(HERE.parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), root])}
    out = str(tmp_path / "out.safetensors")
    subprocess.run([sys.executable, "-c", code, str(tmp_path), out], env=environment, check=True, timeout=120)
    found = wl.load(out)
    assert same([found[str(i)] for i in range(len(found))], uninterrupted)


# Damage --------------------------------------------------------------------------------------------------------------


def small_run(folder, epochs=3, resume=False, **options):
    model = plain()
    history = train.fit(
        model, loss, train.SGD(model, 0.1), data(), epochs=epochs, resume=resume,
        checkpoint=train.Checkpoint(folder, **options), **QUIET,
    )  # fmt: skip
    return model, history


def test_a_damaged_file_is_refused_and_the_one_before_is_used(tmp_path):
    expected = arrays(small_run(tmp_path / "whole")[0])
    damages = {
        "a flipped bit of the data": lambda b: b[:-5] + bytes([b[-5] ^ 1]) + b[-4:],
        "a flipped bit of the header": lambda b: b[:40] + bytes([b[40] ^ 4]) + b[41:],
        "a truncated one": lambda b: b[: len(b) // 2],
        "an empty one": lambda b: b"",
    }
    for what, damage in damages.items():
        folder = tmp_path / what.replace(" ", "-")
        small_run(folder)
        last, before = train.Checkpoint(folder).files()[::-1]
        Path(last).write_bytes(damage(Path(last).read_bytes()))
        said = rf"damaged.*kept as .*\.damaged, and {os.path.basename(before)} is used"
        with pytest.warns(train.CheckpointWarning, match=said):
            model, history = small_run(folder, resume=True)
        assert before in history.notes[0] and "2 epochs" in history.notes[0]
        assert same(arrays(model), expected)
        assert os.path.exists(f"{last}.damaged") and os.path.exists(last)


def test_all_damaged_is_an_error_each_time(tmp_path):
    small_run(tmp_path)
    for path in train.Checkpoint(tmp_path).files():
        Path(path).write_bytes(b"nothing")
    for _ in range(2):  # a second try mustn't begin anew
        with pytest.raises(train.CheckpointError, match=r"all 2 checkpoints .* are damaged.*it has 7 bytes"):
            small_run(tmp_path, resume=True)
    small_run(tmp_path, overwrite=True)


def test_the_best_one_may_be_gone_with_a_damaged_last_one(tmp_path):
    model, planned = plain(), Planned([3, 2, 1])
    checkpoint = train.Checkpoint(tmp_path, monitor="planned")
    options = {"epochs": 3, "checkpoint": checkpoint, "callbacks": [planned], **QUIET}
    train.fit(model, loss, train.SGD(model, 0.1), data(), **options)
    _, state = read_record(checkpoint.files()[-2])
    assert state["checkpoint"]["ranked"][0][1] == os.path.basename(checkpoint.files()[-2])
    os.replace(checkpoint.files()[-2], tmp_path / "step-00000000.safetensors")
    Path(checkpoint.files()[-1]).write_bytes(b"nothing")
    with pytest.warns(train.CheckpointWarning), pytest.raises(train.CheckpointError, match="isn't there any more"):
        checkpoint.restore(model, best=True)


def test_every_bit_counts(tmp_path, rng):
    path = str(tmp_path / "x.safetensors")
    write_record(path, {"w": np.arange(6.0), "key": np.ones((), bool)}, {"a": [1, None, {"b": 0.1}], "w": np.ones(2)})
    found, state = read_record(path)
    assert state["a"] == [1, None, {"b": 0.1}] and same([state["w"], found["w"]], [np.ones(2), np.arange(6.0)])
    content = Path(path).read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        Path(path).write_bytes(bytes(damaged))
        with pytest.raises(train.CheckpointError, match="damaged"):
            read_record(path)
    for length in range(0, len(content), 29):
        Path(path).write_bytes(content[:length])
        with pytest.raises(train.CheckpointError, match="damaged"):
            read_record(path)
    Path(path).write_bytes(content + b" ")
    with pytest.raises(train.CheckpointError, match="damaged"):
        read_record(path)


def test_a_full_disk_is_an_error_that_leaves_the_last_one(tmp_path, monkeypatch):
    small_run(tmp_path, epochs=2)
    before = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
    written = safetensors._write_part

    def full(file, part):
        if not isinstance(part, bytes):
            raise OSError(errno.ENOSPC, "No space left on device")
        written(file, part)

    monkeypatch.setattr(safetensors, "_write_part", full)
    with pytest.raises(OSError, match=r"can't be written \(No space left on device\); the last one, .* is as it was"):
        small_run(tmp_path, resume=True)
    assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == before
    monkeypatch.undo()
    assert same(arrays(small_run(tmp_path, resume=True)[0]), arrays(small_run(tmp_path / "other")[0]))


def test_what_a_killed_save_left_is_removed_and_never_read(tmp_path):
    small_run(tmp_path, epochs=2)
    (tmp_path / "step-00000099.safetensors.77-abcdef01.tmp").write_bytes(b"half of a")
    assert small_run(tmp_path, resume=True)[1].epochs == 3
    assert not list(tmp_path.glob("*.tmp"))


# What is in one, and which are kept ----------------------------------------------------------------------------------


def test_files_are_safetensors_and_json(tmp_path):
    model, history = small_run(tmp_path, epochs=1)
    found, metadata = safetensors.read(train.Checkpoint(tmp_path).files()[-1])
    assert same([found[f"model.{name}"] for name in model.state()], arrays(model))
    state = json.loads(metadata["wonderland.checkpoint"])["state"]
    assert state["run"]["epoch"] == 1 and state["history"]["epochs"]["loss"] == history["loss"].tolist()
    assert state["names"]["the loss"] == "loss"


class Planned(train.Callback):
    """Gives epochs the values of a list."""

    def __init__(self, values):
        self.values = values

    def after_epoch(self, run):
        run.values["planned"] = self.values[run.epoch - 1]


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"keep": 2, "best": 0}, [5, 6]),
        ({"keep": 1, "best": 2, "monitor": "planned"}, [2, 4, 6]),
        ({"keep": 1, "best": 1, "monitor": "planned", "mode": "max"}, [1, 6]),
        ({"keep": 1, "every": 5, "best": 1, "monitor": "planned"}, [4, 6]),
        ({"keep": None, "every": 2, "best": 0}, [2, 4, 6]),
    ],
)
def test_which_are_kept(tmp_path, options, kept):
    model = plain()
    train.fit(
        model, loss, train.SGD(model, 0.1), data(), epochs=6, checkpoint=train.Checkpoint(tmp_path, **options),
        callbacks=[Planned([9.0, 2.0, 5.0, 1.0, 3.0, float("nan")])], **QUIET,
    )  # fmt: skip
    assert [os.path.basename(p) for p in train.Checkpoint(tmp_path).files()] == [
        f"step-{e:08d}.safetensors" for e in kept
    ]


def test_restore_gives_the_last_and_the_best(tmp_path):
    model, states = plain(), []
    checkpoint = train.Checkpoint(tmp_path, monitor="planned")

    class Keep(Planned):
        def after_epoch(self, run):
            super().after_epoch(run)
            states.append(arrays(run.model))

    optimizer = train.SGD(model, 0.1, momentum=0.9)
    train.fit(model, loss, optimizer, data(), epochs=3, checkpoint=checkpoint, callbacks=[Keep([3, 1, 2])], **QUIET)
    for best, expected in ((False, states[2]), (True, states[1])):
        other = plain(seed=5)
        momentum = train.SGD(other, 0.2, momentum=0.9)
        checkpoint.restore(other, momentum, best=best)
        assert same(arrays(other), expected) and momentum.updates == (2 if best else 3)


def test_by_the_clock(tmp_path, monkeypatch):
    saved = []
    monkeypatch.setattr(
        train.Checkpoint, "save", lambda self, run: saved.append(run.step) or setattr(self, "_next", 1e99)
    )
    model = plain()
    checkpoint = train.Checkpoint(tmp_path, every=None, every_seconds=1e-9, best=0)
    train.fit(model, loss, train.SGD(model, 0.1), data(), epochs=2, batch_size=10, checkpoint=checkpoint, **QUIET)
    assert saved == [1, 4]  # as soon as time is up, and at the end


# Resuming something else ---------------------------------------------------------------------------------------------


def test_a_rank_that_does_not_write_resumes_and_leaves_the_folder_alone(tmp_path):
    small_run(tmp_path, epochs=2)
    before = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
    model, history = small_run(tmp_path, resume=True, writes=False)
    assert history.epochs == 3 and same(arrays(model), arrays(small_run(tmp_path / "other")[0]))
    small_run(tmp_path, epochs=1, writes=False)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_resume_with_nothing_there_begins(tmp_path):
    assert same(arrays(small_run(tmp_path / "new", resume=True)[0]), arrays(small_run(tmp_path / "other")[0]))


def test_a_new_run_in_a_used_folder_raises_or_overwrites(tmp_path):
    small_run(tmp_path)
    with pytest.raises(wl.ArgumentError, match=r"resume=True.*overwrite=True.*another folder"):
        small_run(tmp_path)
    small_run(tmp_path, epochs=1, overwrite=True)
    assert len(train.Checkpoint(tmp_path).files()) == 1


def test_another_architecture_or_optimizer_is_an_error(tmp_path):
    before, _ = small_run(tmp_path)
    wl.random.seed(1)
    wider = nn.Sequential(nn.Linear(3, 6), nn.tanh, nn.Linear(6, 2))
    start = arrays(wider)
    with (
        pytest.raises(wl.ArgumentError, match=r"another model.*0.weight is float32\[5, 3\] there and float32\[6, 3\]"),
        pytest.warns(train.CheckpointWarning, match="the layer"),
    ):
        train.fit(wider, loss, train.SGD(wider, 0.1), data(), checkpoint=tmp_path, resume=True, **QUIET)
    assert same(arrays(wider), start)
    model = plain(2)
    with (
        pytest.raises(wl.ArgumentError, match=r"another optimizer.*it lacks kept.first.0.weight"),
        pytest.warns(train.CheckpointWarning),
    ):
        train.fit(model, loss, train.Adam(model), data(), checkpoint=tmp_path, resume=True, **QUIET)
    assert not same(arrays(model), arrays(before))


def test_functions_of_other_names_and_other_numbers_warn(tmp_path):
    small_run(tmp_path, epochs=1)
    model = plain()
    with pytest.warns(train.CheckpointWarning) as found:
        train.fit(model, told, train.SGD(model, 0.5), data(), epochs=2, checkpoint=tmp_path, resume=True, **QUIET)
    text = " ".join(str(warning.message) for warning in found)
    assert "the loss 'loss', and it is 'told' now" in text
    assert "rate 0.1, and it is 0.5 now, and the number of the checkpoint is used" in text


def test_schedules_are_compared_by_their_arguments(tmp_path):
    for steps, resume in ((10, False), (10, True), (20, True)):
        model = plain()
        optimizer = train.SGD(model, train.cosine(0.1, steps))
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            train.fit(model, loss, optimizer, data(), epochs=1 + resume, checkpoint=tmp_path, resume=resume, **QUIET)
        assert ["cosine" in str(w.message) for w in found] == ([True] if steps == 20 else [])


def test_other_data_is_an_error(tmp_path):
    small_run(tmp_path, epochs=1)
    model = plain()
    with pytest.raises(wl.data.DataError, match="samples"):
        train.fit(model, loss, train.SGD(model, 0.1), data(17), epochs=2, checkpoint=tmp_path, resume=True, **QUIET)


def test_bad_arguments(tmp_path):
    for options in (
        {"every": 0},
        {"keep": 0},
        {"best": -1},
        {"mode": "less"},
        {"every_seconds": 0},
        {"every_steps": 1.5},
    ):
        with pytest.raises(wl.ArgumentError):
            train.Checkpoint(tmp_path, **options)
    with pytest.raises(wl.ArgumentError, match=r"watches 'accuracy'.*loss"):
        small_run(tmp_path / "m", monitor="accuracy")
    with pytest.raises(wl.ArgumentError, match="set: a checkpoint holds"):
        write_record(str(tmp_path / "x"), {}, {"a": {1, 2}})
