"""How progress looks: `TerminalBar`, `LogLines`, `NotebookBar`. Each draws a `Moment`, and says when to draw again."""

from __future__ import annotations

import html
import os
import shutil
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TextIO

from wonderland.train.formats import cell, duration, headings, number, width

REDRAW = 0.1  # seconds between two drawings in a terminal
REFRESH = 0.25  # and in a notebook
FIRST_LINE, MOST_WAIT = 10.0, 600.0  # seconds of a long epoch until its first line in a log; between the later ones
NOTEBOOK_ROWS = 20
LEAST = {"epoch": 5, "seconds": 7}  # widths of columns; of others 9


@dataclass
class Moment:
    """Where training is: counts from 1, the pace in steps a second, and the seconds to the end, if known."""

    epoch: int
    epochs: int
    batch: int
    batches: int | None
    values: Mapping[str, Any]
    rate: float | None
    remaining: float | None
    epoch_elapsed: float
    now: float  # on a clock of seconds
    counted: tuple[int, str] = (1, "steps")  # how many of what are in a step

    def pace(self) -> str:
        """The steps a second, or the seconds a step; or how many of what is counted a second."""
        if self.rate is None:
            return ""
        many, what = self.counted
        if many > 1:
            return f"{self.rate * many:,.0f} {what}/s"
        return f"{self.rate:.0f} steps/s" if self.rate >= 9.5 else f"{number(1 / self.rate, 2)} s/step"

    def rest(self) -> str:
        """When it will be done."""
        if self.remaining is None:
            return ""
        return f"ETA {duration(self.remaining)}" if self.remaining >= 9.95 else f"ETA {max(1, round(self.remaining))} s"

    def count(self) -> str:
        """The batches that are done, of how many."""
        return f"{self.batch}/{self.batches}" if self.batches else f"batch {self.batch}"

    def said(self) -> list[str]:
        """The values, each with its name."""
        return [f"{name} {cell(name, value)}" for name, value in self.values.items()]


class ProgressView(ABC):
    """How progress looks somewhere. What draws returns the seconds until it should be asked again."""

    @abstractmethod
    def draw(self, moment: Moment) -> float:
        """Show where it is."""

    @abstractmethod
    def row(self, moment: Moment, values: Mapping[str, Any]) -> float:
        """Show the values of an epoch that is done."""

    @abstractmethod
    def say(self, text: str) -> None:
        """Show a message."""

    def open(self) -> None:  # noqa: B027
        """Begin."""

    def close(self) -> None:  # noqa: B027
        """End."""


class Silence(ProgressView):
    """Shows nothing."""

    def draw(self, moment: Moment) -> float:
        return float("inf")

    def row(self, moment: Moment, values: Mapping[str, Any]) -> float:
        return float("inf")

    def say(self, text: str) -> None:
        pass


class LogLines(ProgressView):
    """One line for each epoch; and for a long one lines after 10, 20, 40 ... seconds, at most 10 minutes apart."""

    def __init__(self, out: TextIO):
        self.out = out
        self._wait = FIRST_LINE
        self._epoch = 0

    def draw(self, moment: Moment) -> float:
        if moment.epoch != self._epoch:
            self._epoch, self._wait = moment.epoch, FIRST_LINE
        if (early := self._wait - moment.epoch_elapsed) > 0:
            return early
        parts = [f"epoch {moment.epoch}/{moment.epochs}", moment.count(), *moment.said(), moment.pace(), moment.rest()]
        self.say("  ".join(filter(None, parts)))
        self._wait = moment.epoch_elapsed + min(moment.epoch_elapsed, MOST_WAIT)
        return self._wait - moment.epoch_elapsed

    def row(self, moment: Moment, values: Mapping[str, Any]) -> float:
        said = [f"{name} {cell(name, v)}" for name, v in values.items() if name not in ("epoch", "seconds")]
        rest = moment.rest() if moment.epoch < moment.epochs else ""
        parts = [f"epoch {moment.epoch}/{moment.epochs}", *said, duration(values["seconds"]), rest]
        self.say("  ".join(filter(None, parts)))
        return FIRST_LINE

    def say(self, text: str) -> None:
        write(self.out, text + "\n")


class TerminalBar(ProgressView):
    """A bar in the last line of a terminal, and above it a table that grows by a line with each epoch.

    What others print while the bar is there (also `logging` and warnings) goes above it: the `write` methods of
    standard output, standard error and `out` clear the bar's line first, from `open` until `close`.
    """

    def __init__(self, out: TextIO):
        self.out = out
        self.color: bool = colored(out)
        self.marks: tuple[str, ...] = ("━", "╸", "─") if encodes(out, "━╸─…") else ("=", ">", " ")
        self._lock = threading.RLock()
        self._shown = ""  # the bar that stands in the last line
        self._torn = False  # somebody printed a line without its end: no bar until that comes
        self._columns: list[str] = []
        self._taken: list[tuple[Any, Callable]] = []
        self._line = ""

    def open(self) -> None:
        seen: list[Any] = []
        for stream in (self.out, sys.stdout, sys.stderr):
            if not any(stream is other for other in seen) and is_terminal(stream):
                seen.append(stream)
                self._take(stream)

    def _take(self, stream: Any) -> None:
        original = stream.write

        def guarded(text: str) -> int:
            with self._lock:
                if text:
                    self._clear()
                    self._torn = not text.endswith("\n")
                return original(text)

        try:
            stream.write = guarded
        except AttributeError:  # a stream of the user's own, with slots
            return
        self._taken.append((stream, guarded))

    def close(self) -> None:
        with self._lock:
            self._clear()
            for stream, guarded in self._taken:
                if vars(stream).get("write") is guarded:
                    del stream.write
            self._taken.clear()

    def draw(self, moment: Moment) -> float:
        with self._lock:
            if not self._torn:
                self._put("\r" + self.bar(moment, columns(self.out) - 1) + "\033[K", shown=True)
        return REDRAW

    def row(self, moment: Moment, values: Mapping[str, Any]) -> float:
        room = columns(self.out) - 1
        names = fitting([*values], room)
        widths = [width(name, LEAST.get(name, 9)) for name in names]
        line = "  ".join(cell(name, values[name]).rjust(w) for name, w in zip(names, widths))
        lines = [line[:room]]
        if names != self._columns:
            self._columns = names
            lines[:0] = [self._paint(text[:room], "2") for text in headings(names, widths)]
        self.say("\n".join(lines))
        return REDRAW / 2

    def say(self, text: str) -> None:
        with self._lock:
            self._clear()
            self._put("\n" * self._torn + text + "\n", shown=False)
            self._torn = False

    def bar(self, moment: Moment, room: int) -> str:
        """The bar's line, in as many columns as there are."""
        start = f"epoch {moment.epoch}/{moment.epochs}"
        said = [
            text.ljust(len(name) + 9) for name, text in zip(moment.values, moment.said())
        ]  # so that it stands still
        tail = [moment.count(), moment.pace(), *said, moment.rest()]
        optional = [text for text in (*reversed(said[1:]), moment.pace(), *said[:1], moment.rest()) if text]
        least = 6 if moment.batches else 0
        while len("  ".join([start, *filter(None, tail)])) + least + 2 > room and optional:
            tail.remove(optional.pop(0))
        rest = "  ".join(filter(None, tail))
        length = min(40, room - len(start) - len(rest) - 4)
        if not moment.batches or length < 3:
            return f"{start}  {rest}".rstrip()[:room]
        full, half, empty = self.marks
        done = min(1.0, moment.batch / moment.batches) * length
        whole = int(done)
        tip = half if whole < length and done - whole >= 0.5 else ""
        left = empty * (length - whole - len(tip))
        return f"{start}  {self._paint(full * whole + tip, '36')}{self._paint(left, '2')}  {rest}"

    def _paint(self, text: str, style: str) -> str:
        return f"\033[{style}m{text}\033[0m" if self.color and text else text

    def _clear(self) -> None:
        if self._shown:
            self._put("\r\033[K", shown=False)

    def _put(self, text: str, shown: bool) -> None:
        self._shown = text if shown else ""
        raw = type(self.out).write
        write(self.out, text, lambda t: raw(self.out, t))


class NotebookBar(ProgressView):
    """A bar and the table of the last epochs as HTML that is updated in place, in a notebook."""

    def __init__(self, out: TextIO):
        self.out = out
        self._handle: Any = None
        self._rows: list[Mapping[str, Any]] = []
        self._moment: Moment | None = None
        self._shown = float("-inf")  # when
        self._lines: LogLines | None = None  # what is used where there is no display

    def draw(self, moment: Moment) -> float:
        self._moment = moment
        if self._lines:
            return self._lines.draw(moment)
        self._show()
        return REFRESH

    def row(self, moment: Moment, values: Mapping[str, Any]) -> float:
        self._moment = moment
        self._rows.append(values)
        if self._lines:
            return self._lines.row(moment, values)
        if moment.now >= self._shown + REFRESH:  # epochs may be short
            self._show()
        return REFRESH

    def say(self, text: str) -> None:
        write(self.out, text + "\n")

    def close(self) -> None:
        if self._moment and not self._lines:
            self._moment.remaining = None
            self._show()

    def _show(self) -> None:
        assert self._moment is not None
        self._shown = self._moment.now
        try:
            ipython = import_module("IPython.display")
            content = ipython.HTML(self.content())
            if self._handle is None:
                self._handle = ipython.display(content, display_id=True)
            else:
                self._handle.update(content)
        except Exception:  # whatever IPython says: training goes on
            self._lines = LogLines(self.out)
            return
        if self._handle is None:  # no front end
            self._lines = LogLines(self.out)

    def content(self) -> str:
        """The HTML of now; colours are those of the page around it."""
        moment = self._moment
        assert moment is not None
        parts = [f"epoch {moment.epoch}/{moment.epochs}"]
        if moment.batches:
            parts.append(f'<progress max="{moment.batches}" value="{moment.batch}"></progress>')
        said = [moment.count(), moment.pace(), *moment.said(), moment.rest()]
        parts += [html.escape(text) for text in said if text]
        line = " &nbsp; ".join(parts)
        names = [*dict.fromkeys(name for row in self._rows for name in row)]
        shown = self._rows[-NOTEBOOK_ROWS:]
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell(name, row.get(name)))}</td>" for name in names) + "</tr>"
            for row in shown
        )
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if self._rows else ""
        left = len(self._rows) - len(shown)
        note = f"<div>{left} earlier epochs aren't shown</div>" if left else ""
        return f'<div style="font-variant-numeric: tabular-nums"><div>{line}</div>{note}{table}</div>'


STYLES: dict[str, Callable[[TextIO], ProgressView]] = {
    "bar": TerminalBar, "lines": LogLines, "notebook": NotebookBar, "none": lambda out: Silence(),
}  # fmt: skip


def view_for(style: str, out: TextIO) -> ProgressView:
    """The view of this name; of "auto", the one that suits `out`."""
    if style == "auto":
        style = "notebook" if in_notebook() else "bar" if draws(out) else "lines"
    if style not in STYLES:
        raise ValueError(f'Progress: style is "auto", {", ".join(map(repr, STYLES))}, got {style!r}')
    return STYLES[style](out)


def in_notebook() -> bool:
    """Whether a notebook's kernel runs this; IPython in a terminal is none."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return shell is not None and getattr(shell, "kernel", None) is not None


def is_terminal(out: Any) -> bool:
    """Whether a person looks at it."""
    try:
        return bool(out.isatty())
    except (AttributeError, ValueError):  # no such method; closed
        return False


def draws(out: Any) -> bool:
    """Whether it is a terminal that can go back to the start of a line."""
    return is_terminal(out) and os.environ.get("TERM", "") != "dumb"


def colored(out: Any) -> bool:
    """Colours on a terminal, unless NO_COLOR says otherwise; FORCE_COLOR has the last word."""
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_terminal(out) and not os.environ.get("NO_COLOR")


def encodes(out: Any, text: str) -> bool:
    """Whether a stream can write this."""
    try:
        text.encode(getattr(out, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def columns(out: Any) -> int:
    """How wide the terminal is now."""
    try:
        found = os.get_terminal_size(out.fileno()).columns
    except (AttributeError, OSError, ValueError):
        found = 0
    return found or shutil.get_terminal_size((80, 24)).columns


def fitting(names: list[str], room: int) -> list[str]:
    """The columns that there is room for; "seconds", the last, goes first."""
    while len(names) > 2 and sum(width(name, LEAST.get(name, 9)) + 2 for name in names) - 2 > room:
        names = names[:-1]
    return names


def write(out: Any, text: str, put: Callable[[str], Any] | None = None) -> None:
    """Write text, with what the stream's encoding hasn't as "?"; a stream that is gone doesn't end training."""
    encoding = getattr(out, "encoding", None) or "utf-8"
    try:
        (put or out.write)(text.encode(encoding, "replace").decode(encoding))
        out.flush()
    except (AttributeError, OSError, ValueError):  # there is none; nobody reads any more, a full disk; closed
        pass
