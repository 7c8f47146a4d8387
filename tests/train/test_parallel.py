"""Training on several ranks of MPI, against one process with the whole batch."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn, train
from wonderland.train.nonfinite import explained

SCRIPT = Path(__file__).with_name("ranks_script.py")
BESIDE = Path(sys.executable).with_name("mpiexec")  # the one that pip installed
MPIEXEC = str(BESIDE) if BESIDE.exists() else shutil.which("mpiexec")
pytestmark = pytest.mark.skipif(MPIEXEC is None, reason='needs mpiexec: pip install "wonderland[mpi]"')


def run(count, *arguments, script=(str(SCRIPT),)):
    """What `count` ranks of the script do."""
    command = [MPIEXEC, "-n", str(count)] if count > 1 else []
    variables = {**os.environ, "WONDERLAND_THREADS": "1", "PYTHONPATH": str(SCRIPT.parents[2])}
    command += [sys.executable, *script, *map(str, arguments)]
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120)


def fitted(count, folder, *arguments):
    done = run(count, "fit", folder, *arguments)
    return done, [dict(np.load(path)) for path in sorted(folder.glob("*.npz"))]


def test_fit_on_ranks_is_fit(tmp_path):
    found = {}
    for count in (1, 4):
        (tmp_path / f"of{count}").mkdir()
        done, found[count] = fitted(count, tmp_path / f"of{count}")
        assert done.returncode == 0, done.stderr
        assert len(found[count]) == count
        assert len((tmp_path / f"of{count}" / "log.csv").read_text().splitlines()) == 5  # one rank writes
    (alone,) = found[1]
    for own in found[4]:
        assert own.keys() == alone.keys()
        for name, value in own.items():
            np.testing.assert_allclose(value, alone[name], 1e-8, 1e-10, err_msg=name)
            assert value.tobytes() == found[4][0][name].tobytes(), name  # after an epoch to the bit


def test_a_killed_rank_and_a_resume(tmp_path):
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    _, whole = fitted(2, tmp_path / "whole")
    done, nothing = fitted(2, tmp_path / "killed", 10)
    assert done.returncode != 0 and not nothing
    done, resumed = fitted(2, tmp_path / "killed", "resume")
    assert done.returncode == 0, done.stderr
    for one, other in zip(whole, resumed, strict=True):
        for name, value in one.items():
            assert value.tobytes() == other[name].tobytes(), name


@pytest.mark.parametrize("what", ["raise", "die"])
def test_a_rank_that_fails_ends_the_job(what):
    done = run(2, what)
    assert done.returncode != 0
    if what == "raise":
        assert "rank 1 of 2 failed (ValueError: the data of rank 1 are gone)" in done.stderr
        assert "resume" in done.stderr


def test_what_is_wrong_on_the_command_line_is_said_without_a_traceback(tmp_path):
    done = run(2, "moons", "--set", "batch_size=31", "--out", tmp_path / "out", script=("-m", "wonderland", "train"))
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert "of 2 failed (batch_size=31 is that of all ranks together, and can't be divided by ranks=2" in done.stderr


def test_a_callback_that_stops_one_rank_stops_all():
    done = run(2, "stop", "begin", "step", "epoch", "body")
    assert done.returncode == 0, done.stderr
    steps = {"begin": 0, "step": 1, "epoch": 2, "body": 1}
    other = "another rank stopped"
    lines = [f"{moment}: {why}, {count} steps" for moment, count in steps.items() for why in (other, "late")]
    assert done.stdout.splitlines() == lines


def test_ring_attention_is_attention():
    """Values and gradients; each rank has a part of the sequence. What is compared is in the script."""
    done = run(3, "ring")  # of 2, both directions are one
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"the same on rank {i} of 3" for i in range(3)]


def test_one_process_is_a_rank_of_its_own(monkeypatch):
    for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    alone = train.ranks()
    assert (alone.rank, alone.count, alone.is_first) == (0, 1, True)
    x = np.arange(3.0)
    assert alone.sum(x) is x
    alone.wait()
    with pytest.raises(KeyError), alone.together():
        raise KeyError


@pytest.mark.parametrize("rows", [4, 5, 6, 7, 32, 33])
def test_parts_of_a_batch(rows):
    parts = []
    for rank in range(4):
        ranks = train.Ranks()
        ranks.rank, ranks.count = rank, 4
        parts.append(range(rows)[ranks.part(rows)])
    assert [i for part in parts for i in part] == [*range(rows)]
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    with pytest.raises(wl.ArgumentError, match="3 samples can't be shared by 4 ranks"):
        ranks.part(3)


class FirstOfTwo:
    """A communicator whose other rank has a NaN in its part."""

    Get_rank = lambda self: 0
    Get_size = lambda self: 2
    Bcast = lambda self, array, root: None

    def Reduce(self, array, total, root):
        total[...] = np.nan


def test_a_nan_of_another_rank_is_not_blamed_on_this_one():
    model = nn.Linear(2, 1)
    loss = lambda model, x: np.mean(model(x) ** 2)
    for x, said in ((np.ones((3, 2)), "NaN first in the part of another rank"), ([[1, np.nan]], r"NaN first in batch")):
        batch = (np.array(x, np.float32),)
        why = explained(loss, None, train.Ranks(FirstOfTwo()), model, train.SGD(model, 0.1), batch)
        assert why.startswith(f"the loss isn't finite: {said}")


def test_mpi_without_mpi4py(monkeypatch):
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(ImportError, match=r"one of 2 processes.*wonderland\[mpi\]"):
        train.ranks()
