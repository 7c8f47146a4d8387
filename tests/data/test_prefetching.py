"""Threads and processes that make batches: they end with the loop, and their errors arrive in it."""

import multiprocessing as mp
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from wonderland import data
from wonderland.data import prefetching

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def always_a_thread(monkeypatch):
    monkeypatch.setattr(prefetching, "WORTH", 0.0)


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "wonderland-prefetch"]


def quiet():
    assert not threads() and not mp.active_children()


class Slow(data.Dataset):
    """Counts how many samples were made."""

    def __init__(self, length=40, bad=None):
        self.length, self.bad, self.made = length, bad, 0

    def __len__(self):
        return self.length

    def name(self, index):
        return f"file-{index}.bin"

    def sample(self, index):
        if index == self.bad:
            raise OSError("it is damaged")
        self.made += 1
        return np.full(3, index)


@pytest.mark.parametrize("workers", [0, 2])
def test_nothing_is_left_behind(workers):
    loader = data.Loader(Slow(), 2, prefetch=2, workers=workers)
    for number, _ in enumerate(loader):
        if number == 3:
            assert threads() and bool(mp.active_children()) == bool(workers)
            break
    quiet()
    with pytest.raises(ZeroDivisionError):
        for _ in loader:
            1 / 0  # noqa: B018
    quiet()
    with pytest.raises(KeyboardInterrupt):
        for _ in loader:
            raise KeyboardInterrupt
    quiet()
    iterator = iter(loader)
    next(iterator)
    next(iterator)
    iterator.close()
    quiet()
    list(loader)
    quiet()
    assert (loader.epoch, loader.position) == (1, 0)


def test_position_counts_what_was_handed_out():
    source = Slow(40)
    loader = data.Loader(source, 2, prefetch=4)
    iterator = iter(loader)
    next(iterator)
    next(iterator)
    end = time.monotonic() + 5
    while source.made < 12 and time.monotonic() < end:
        time.sleep(1e-3)
    time.sleep(0.02)
    assert loader.position == 2 and source.made == 2 * (2 + 4)  # as many ahead as was said, and no more
    iterator.close()
    assert loader.position == 2


def test_cheap_batches_get_no_thread(monkeypatch):
    monkeypatch.setattr(prefetching, "WORTH", 10.0)
    for _ in data.Loader(Slow(), 2):
        assert not threads()
    monkeypatch.setattr(prefetching, "WORTH", 0.0)
    for _ in data.Loader((np.arange(10), np.arange(10)), 2, shuffle=True):
        assert not threads()


@pytest.mark.parametrize(("prefetch", "workers"), [(0, 0), (2, 0), (0, 2), (3, 2)])
def test_errors_name_the_sample(prefetch, workers):
    loader = data.Loader(Slow(bad=11), 2, prefetch=prefetch, workers=workers)
    with pytest.raises(data.DataError) as caught:
        list(loader)
    assert str(caught.value) == "file-11.bin: OSError: it is damaged"
    assert loader.position == 5  # the batches before it were handed out
    assert "in batch 5 of epoch 0 (samples 10, 11)" in caught.value.__notes__
    quiet()


class Unportable(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def fails(batch, rng):
    raise Unportable(1, 2)


def test_errors_that_cannot_be_sent_are_told():
    with pytest.raises(RuntimeError, match="Unportable: 1 and 2") as caught:
        [*data.Loader(Slow(), 2, workers=1, transform=fails)]
    assert any("in a worker:" in note for note in caught.value.__notes__)


def dies(batch, rng):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_dies_is_told():
    with pytest.raises(RuntimeError, match=r"made batch 0 has ended \(exit code -9"):
        [*data.Loader(Slow(), 2, workers=2, transform=dies)]
    quiet()


def run(code):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)


PROGRAM = """
import sys, time
import numpy as np
from wonderland import data
from wonderland.data import prefetching
prefetching.WORTH = 0.0
loader = data.Loader(data.Generated(lambda i, rng: np.ones(1000) * i, 1000), 2, workers={workers})
iterator = iter(loader)
next(iterator); next(iterator)
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_a_program_ends_with_a_loop_unfinished(workers):
    process = run(PROGRAM.format(workers=workers) + "print('done')")
    assert process.communicate(timeout=60)[0] == "done\n" and process.returncode == 0


def test_processes_end_when_the_program_is_killed():
    code = "import multiprocessing as mp\nprint(*[p.pid for p in mp.active_children()], flush=True)\ntime.sleep(60)"
    process = run(PROGRAM.format(workers=2) + code)
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == 2
    process.kill()
    process.wait()
    process.stdout.close()
    end = time.monotonic() + 20
    while any(alive(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.01)
    assert not any(alive(pid) for pid in pids)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_ctrl_c_while_waiting_for_a_batch():
    code = """
import os, signal, threading, time
import numpy as np
from wonderland import data
from wonderland.data import prefetching
prefetching.WORTH = 0.0

def slow(batch, rng):
    if batch[0][0] == 4:
        os.kill(os.getpid(), signal.SIGINT)   # the main thread waits for this batch
        time.sleep(0.05)
    return batch

loader = data.Loader((np.arange(10),), 2, transform=slow)
try:
    for batch in loader:
        pass
except KeyboardInterrupt:
    print(loader.position in (1, 2), [t.name for t in threading.enumerate()])
"""
    process = run(code)
    assert process.communicate(timeout=60)[0] == "True ['MainThread']\n"
