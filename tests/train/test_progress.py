"""Progress in a terminal (a real one, with a screen that is emulated), in a log, in a notebook. Time is ours."""

import contextlib
import fcntl
import io
import logging
import os
import pty
import re
import struct
import sys
import termios
import threading
import types

import pytest

from wonderland import train


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Terminal:
    """A pseudo terminal, and what a person sees of what was written into it."""

    def __init__(self, columns=80, encoding="utf-8"):
        self.reader, writer = pty.openpty()
        self.resize(columns, writer)
        self.out = os.fdopen(writer, "w", encoding=encoding)
        self.other = os.fdopen(os.dup(writer), "w", encoding=encoding)
        self.raw = b""
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self):
        with contextlib.suppress(OSError):
            while part := os.read(self.reader, 65536):
                self.raw += part

    def resize(self, columns, fd=None):
        self.columns = columns
        size = struct.pack("HHHH", 24, columns, 0, 0)
        fcntl.ioctl(self.out.fileno() if fd is None else fd, termios.TIOCSWINSZ, size)

    def screen(self):
        self.out.close()
        self.other.close()
        self.thread.join()
        os.close(self.reader)
        self.text = self.raw.decode()
        return emulate(self.text)


def emulate(text):
    """The lines that stand there in the end."""
    lines, x = [""], 0
    for part in re.findall(r"\033\[[\d;]*[A-Za-z]|.", text, re.S):
        if part == "\r":
            x = 0
        elif part == "\n":
            lines.append("")
        elif part == "\033[K":
            lines[-1] = lines[-1][:x]
        elif part[0] != "\033":
            lines[-1] = lines[-1].ljust(x)[:x] + part + lines[-1][x + 1 :]
            x += 1
    return lines


def training(progress, clock, epochs=3, batches=50, pace=0.02, during=lambda epoch, batch: None, first=1):
    progress._clock = clock
    with progress:
        for epoch in range(first, epochs + 1):
            for batch in range(1, batches + 1):
                clock.now += pace
                progress.step(epoch, batch, {"loss": 1 / batch})
                during(epoch, batch)
            progress.epoch(epoch, {"loss": 0.5 / epoch, "validation_loss": 0.7, "rate": 1e-3}, pace * batches)


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_a_bar_and_a_table_in_a_terminal():
    terminal = Terminal()
    progress = train.Progress(3, 50, out=terminal.out)
    training(progress, Clock())
    lines = terminal.screen()
    assert [line.split() for line in lines] == [
        ["validation"], ["epoch", "loss", "loss", "rate", "seconds"], ["1", "0.5000", "0.7000", "0.001", "1.00"],
        ["2", "0.2500", "0.7000", "0.001", "1.00"], ["3", "0.1667", "0.7000", "0.001", "1.00"], [],
    ]  # fmt: skip
    drawn = re.findall(r"\repoch[^\r]*", terminal.text)
    assert 20 <= len(drawn) <= 36  # 150 steps in 3 seconds, ten a second
    bare = [re.sub(r"\033\[[\d;]*[A-Za-z]|\r", "", line) for line in drawn]
    assert all(len(line) < 80 for line in bare) and "\033[36m" in terminal.text
    assert re.fullmatch(r"epoch 2/3  [━╸─]+  \d+/50  50 steps/s  loss 0\.\d+ +ETA [12] s", bare[len(bare) // 2])


def test_nothing_that_is_printed_is_hidden(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal.other)
    handler = logging.StreamHandler(terminal.other)  # has the stream from before
    logger = logging.getLogger("of this test")
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "propagate", False)
    progress = train.Progress(2, 50, out=terminal.out)

    def during(epoch, batch):
        if (epoch, batch) == (1, 17):
            print("short\nlonger: " + "x" * 60, flush=True)
        if (epoch, batch) == (1, 23):
            logger.warning("logged")
        if (epoch, batch) == (2, 10):
            print("not ended", end="", flush=True)
        if (epoch, batch) == (2, 30):
            print(", ended", flush=True)
        if (epoch, batch) == (2, 40):
            print("open", end="", flush=True)
            progress.message("a message")

    training(progress, Clock(), epochs=2, during=during)
    assert "write" not in vars(terminal.other) and "write" not in vars(terminal.out)
    lines = terminal.screen()
    assert lines[:3] == ["short", "longer: " + "x" * 60, "logged"]
    assert lines[3].split() == ["validation"] and lines[6:9] == ["not ended, ended", "open", "a message"]
    assert len(lines) == 11 and lines[-1] == ""


@pytest.mark.parametrize("columns", [20, 40, 60, 200])
def test_it_fits_into_the_terminal(columns):
    terminal = Terminal(columns)
    training(train.Progress(3, 50, out=terminal.out), Clock())
    lines = terminal.screen()
    assert all(len(line) < columns for line in re.split(r"[\r\n]+", re.sub(r"\033\[[\d;]*[A-Za-z]", "", terminal.text)))
    assert lines[-2].split()[0] == "3"
    assert ("loss" in terminal.text) and ("steps/s" in terminal.text) == (columns >= 60)


def test_a_terminal_that_changes_its_width():
    terminal = Terminal(100)
    clock = Clock()
    training(train.Progress(1, 50, out=terminal.out), clock, 1, during=lambda e, b: b == 25 and terminal.resize(30))
    terminal.screen()
    bars = [re.sub(r"\033\[[\d;]*[A-Za-z]", "", line) for line in terminal.text.split("\r") if line.startswith("epoch")]
    assert len(bars[0]) > 40 and len(bars[-1]) < 30


def test_ascii_and_no_color(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal(encoding="ascii")
    progress = train.Progress(1, 50, out=terminal.out)
    training(progress, Clock(), 1, during=lambda e, b: b == 9 and progress.message("schön"))
    lines = terminal.screen()
    assert re.search(r"epoch 1/1  =+>? +  \d+/50", terminal.text) and "\033[3" not in terminal.text
    assert lines[0] == "sch?n"


def test_a_dumb_terminal_gets_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    training(train.Progress(1, 5, out=terminal.out), Clock(), 1)
    terminal.screen()
    assert "\033" not in terminal.text and "\repoch" not in terminal.text


def test_lines_in_a_log():
    out = io.StringIO()
    training(train.Progress(2, 50, out=out), Clock(), 2)
    assert out.getvalue().splitlines() == [
        "epoch 1/2  loss 0.5000  validation_loss 0.7000  rate 0.001  1.0 s  ETA 1 s",
        "epoch 2/2  loss 0.2500  validation_loss 0.7000  rate 0.001  1.0 s",
    ]


def test_long_epochs_have_lines_at_increasing_intervals():
    out, clock = io.StringIO(), Clock()
    training(train.Progress(2, 400, out=out), clock, 2, 400, pace=1.0)
    lines = out.getvalue().splitlines()
    assert [re.findall(r"(\d+)/400", line) for line in lines[:7]] == [
        ["10"], ["20"], ["40"], ["80"], ["160"], ["320"], []
    ]  # fmt: skip
    assert lines[0] == "epoch 1/2  10/400  loss 0.1000  1.0 s/step  ETA 13:10"
    assert len(lines) == 14 and len(re.findall(r"10/400", lines[7])) == 1


def test_an_unknown_number_of_batches_and_a_resumed_training():
    terminal = Terminal()
    training(train.Progress(3, None, out=terminal.out), Clock())
    terminal.screen()
    assert "batch 13  50 steps/s" in terminal.text and re.search(r"epoch 2/3  \S+  \d+/50", terminal.text)
    out = io.StringIO()
    training(train.Progress(10, 50, out=out), Clock(), 10, first=9)
    assert out.getvalue().splitlines()[0].endswith("ETA 1 s")


def test_values_are_only_looked_at_when_drawn():
    class Untouchable(dict):
        def items(self):
            raise AssertionError("looked at")

    clock = Clock()
    progress = train.Progress(1, 1000, out=io.StringIO(), style="bar")
    progress._clock = clock
    progress.start()
    progress.step(1, 1, {"loss": 1.0})
    for batch in range(2, 500):
        progress.step(1, batch, Untouchable())
    clock.now += 0.2
    with pytest.raises(AssertionError, match="looked at"):
        progress.step(1, 500, Untouchable())
    progress.close()
    progress.close()


def test_before_the_start_after_the_end_and_closed_streams():
    out = io.StringIO()
    progress = train.Progress(1, 10, out=out)
    progress.step(1, 1, {"loss": 1})
    progress.epoch(1, {"loss": 1}, 1.0)
    assert out.getvalue() == ""
    progress.message("hello")
    assert out.getvalue() == "hello\n"
    out.close()
    training(progress, Clock(), 1)
    silent = io.StringIO()
    training(train.Progress(1, 10, out=silent, style="none"), Clock(), 1)
    assert silent.getvalue() == ""
    with pytest.raises(ValueError, match=r"style is .auto., 'bar', 'lines', 'notebook', 'none', got 'fancy'"):
        train.Progress(1, 10, style="fancy")


def test_an_exception_restores_the_streams(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal.other)
    with pytest.raises(KeyError), train.Progress(1, 10, out=terminal.out) as progress:
        progress.step(1, 3, {"loss": 1.0})
        assert "write" in vars(terminal.other)
        raise KeyError
    assert "write" not in vars(terminal.other)
    assert terminal.screen() == [""]


class Handle:
    def __init__(self, shown):
        self.shown = shown

    def update(self, content):
        self.shown.append(content)


def notebook(monkeypatch, display):
    """IPython as a notebook's kernel has it."""
    shell = types.SimpleNamespace(kernel=object())
    package, module = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    package.get_ipython = lambda: shell
    package.display = module
    module.HTML, module.display = str, display
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", module)


def test_a_notebook_gets_html(monkeypatch):
    shown = []

    def display(content, display_id):
        shown.append(content)
        return Handle(shown)

    notebook(monkeypatch, display)
    out = io.StringIO()
    progress = train.Progress(30, 50, out=out)
    training(progress, Clock(), 30, during=lambda e, b: (e, b) == (1, 3) and progress.message("told"))
    assert '<progress max="50" value="' in shown[10] and "steps/s" in shown[10]
    assert shown[-1].count("<tr>") == 21 and "10 earlier epochs" in shown[-1] and "ETA" not in shown[-1]
    assert len(shown) < 30 * 6 and out.getvalue() == "told\n"
    count = len(shown)
    training(train.Progress(100, 2, out=out), Clock(), 100, 2, pace=0.002)  # 0.4 seconds
    assert len(shown) - count < 5 and "<td>100</td>" in shown[-1]
    progress = train.Progress(1, 50, out=out)
    progress.start()
    progress.step(1, 1, {"<img src=x>": 1.0})
    assert "<img" not in shown[-1]


def test_a_notebook_without_display_gets_lines(monkeypatch):
    def display(content, display_id):
        raise RuntimeError("no front end")

    notebook(monkeypatch, display)
    out = io.StringIO()
    training(train.Progress(2, 50, out=out), Clock(), 2)
    assert [line[:9] for line in out.getvalue().splitlines()] == ["epoch 1/2", "epoch 2/2"]


def test_the_pace_of_what_is_counted():
    terminal = Terminal()
    training(train.Progress(3, 50, out=terminal.out, counted=(768, "tokens")), Clock())
    terminal.screen()
    assert "38,400 tokens/s" in terminal.text and "steps/s" not in terminal.text
