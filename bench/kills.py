"""Does training survive `kill -9`? `python -m bench.kills --tries 50`.

A run of 10 epochs (dropout, batch statistics, Adam with a schedule, shuffling, validation, early stopping, a checkpoint
every step or every third) is killed at a random moment, once or several times, each time resumed by a fresh process,
and compared with one that wasn't, bit by bit. What the killed ones leave is looked at, too: how many were in the middle
of a save, and that every checkpoint is whole. Then the same on a disk that is full, if a small one can be mounted.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import wonderland as wl
from wonderland import nn, train
from wonderland.train.records import read_record

EPOCHS = 10


def loss(model: Any, x: Any, y: Any) -> Any:
    """Cross-entropy, and how many are right."""
    out = model(x)
    return nn.cross_entropy(out, y), {"accuracy": np.mean(np.argmax(out, axis=1) == y)}


class Ready(train.Callback):
    """Says when the first step, which compiles, is done."""

    def __init__(self, path: Path):
        self.path = path

    def after_step(self, run: Any) -> None:
        if not self.path.exists():
            self.path.touch()


def trained(folder: Path, epochs: int = EPOCHS, every_steps: int = 1, keep: int | None = 2) -> str:
    """The run; a digest of all that has to be the same."""
    wl.random.seed(0)
    model = nn.Sequential(
        nn.Linear(8, 32), nn.BatchNorm1d(32), nn.relu, nn.Dropout(0.2), nn.Linear(32, 32), nn.tanh, nn.Linear(32, 3)
    )
    rng = np.random.default_rng(0)
    x = rng.normal(size=(700, 8)).astype(np.float32)
    y = np.argmax(x[:, :3] + 0.5 * rng.normal(size=(700, 3)), axis=1)
    optimizer = train.AdamW(model, train.cosine(3e-3, steps=170, warmup=10))
    history = train.fit(
        model, loss, optimizer, (x[:500], y[:500]), epochs=epochs, validation=(x[500:], y[500:]), clip=1.0,
        callbacks=[train.EarlyStopping(patience=3, min_delta=5e-3), Ready(folder.parent / f"{folder.name}.ready")],
        checkpoint=train.Checkpoint(folder, every_steps=every_steps, keep=keep), resume=True, progress=False,
    )  # fmt: skip
    parts = [*model.state().values(), *optimizer.state().values()]
    parts += [values for name, values in (*history.items(), *history.steps.items()) if name != "seconds"]
    return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()


def start(folder: Path, every_steps: int) -> subprocess.Popen:
    """The run in a process of its own."""
    (folder.parent / f"{folder.name}.ready").unlink(missing_ok=True)
    command = [sys.executable, "-m", "bench.kills", "--child", str(folder), "--every-steps", str(every_steps)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen) -> str:
    out = process.communicate()[0].strip()
    if process.returncode:
        raise SystemExit(f"a run failed with code {process.returncode}")
    return out


def killed(folder: Path, every_steps: int, seconds: float, saving: bool) -> bool:
    """Start the run, and kill it so many seconds after its first step, or in the next save; False if it had ended."""
    process = start(folder, every_steps)
    ready = folder.parent / f"{folder.name}.ready"
    while not ready.exists() and process.poll() is None:
        time.sleep(0.001)
    time.sleep(seconds)
    while saving and process.poll() is None and not any(name.endswith(".tmp") for name in os.listdir(folder)):
        pass
    alive = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return alive


def tries(count: int, seed: int) -> None:
    """Kill and resume, and count."""
    rng = np.random.default_rng(seed)
    exact = kills = saving = whole = 0
    with tempfile.TemporaryDirectory() as place:
        root, expected, length = Path(place), {}, {}
        for every in (1, 3):
            began = time.monotonic()
            expected[every] = finished(start(root / f"whole{every}", every))
            length[every] = max(0.3, 0.5 * (time.monotonic() - began - 1.5))
        for number in range(count):
            folder, every = root / f"try{number}", int(rng.choice([1, 3]))
            for _ in range(int(rng.integers(1, 3))):
                kills += killed(folder, every, float(rng.uniform(0, length[every])), bool(rng.integers(2)))
                names = os.listdir(folder) if folder.exists() else []
                saving += any(name.endswith(".tmp") for name in names)
                for name in names:
                    if name.endswith(".safetensors"):
                        read_record(str(folder / name))
                        whole += 1
            exact += finished(start(folder, every)) == expected[every]
            print(f"\r{number + 1} tries: {exact} exact, {kills} kills, {saving} during a save", end="", flush=True)
    print(f"\n{exact} of {count} resumed to the bit; {kills} kills, {saving} of them left an unfinished file behind")
    print(f"{whole} checkpoints were looked at after kills, and all were whole")
    if exact < count:
        raise SystemExit("not all were exact")


def full_disk() -> None:
    """The run on a disk of 128 KB, which is full after some checkpoints."""
    with tempfile.TemporaryDirectory() as place:
        mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", place]
        if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
            print("no small disk can be mounted here: the full disk is left to the tests")
            return
        try:
            folder = Path(place) / "run"
            try:
                trained(folder, keep=None)
            except OSError as error:
                print(f"a full disk: {error}")
            else:
                raise SystemExit("the disk didn't fill up")
            names = sorted(os.listdir(folder))
            for name in names:
                read_record(str(folder / name))
            print(f"{len(names)} checkpoints are there, all whole, and nothing else")
        finally:
            subprocess.run(["umount", place], check=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--every-steps", type=int, default=1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        print(trained(arguments.child, every_steps=arguments.every_steps))
        return
    full_disk()
    tries(arguments.tries, arguments.seed)


if __name__ == "__main__":
    main()
