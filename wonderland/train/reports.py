"""`train.report`: what a training did, as one HTML file that needs nothing else, to be kept and sent around."""

from __future__ import annotations

import base64
import html
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.nn.safetensors import replace
from wonderland.train.formats import cell, number
from wonderland.train.history import History, html_table
from wonderland.train.ink import DARK, LIGHT, css, png, svg
from wonderland.train.pictures import curves, panels

MOST_SVG = 600_000  # characters; a larger picture becomes a PNG
MOST_ROWS = 200  # of the table of epochs

STYLE = f"""
:root {{ color-scheme: light dark; {css(LIGHT)} --soft: #f6f8fa; --quiet: #59636e; }}
@media (prefers-color-scheme: dark) {{ :root {{ {css(DARK)} --soft: #171c23; --quiet: #9aa5b1; }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; padding: 1.5rem clamp(0.9rem, 3vw, 2.5rem) 3rem; max-width: 84rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif; }}
h1 {{ font-size: clamp(1.5rem, 4vw, 2.1rem); line-height: 1.2; margin: 0 0 1rem; overflow-wrap: anywhere; }}
h2 {{ font-size: 1.2rem; margin: 2.2rem 0 0.8rem; padding-bottom: 0.3rem; border-bottom: 1px solid var(--faint); }}
p {{ max-width: 46rem; margin: 0.6rem 0; overflow-wrap: anywhere; white-space: pre-line; }}
dl.facts {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: 0.7rem; margin: 1rem 0; }}
dl.facts div {{ background: var(--soft); border: 1px solid var(--faint); border-radius: 8px; padding: 0.55rem 0.8rem; }}
dl.facts dt {{ color: var(--quiet); font-size: 0.82rem; }}
dl.facts dd {{ margin: 0; font-size: 1.1rem; font-weight: 600; overflow-wrap: anywhere;
  font-variant-numeric: tabular-nums; }}
dl.facts .long {{ grid-column: span 2; }}
dl.facts .long dd {{ font-size: 0.95rem; font-weight: 500; }}
.pictures {{ display: flex; flex-wrap: wrap; gap: 1.2rem 1.6rem; align-items: flex-start; }}
figure {{ margin: 0; max-width: 100%; min-width: 0; }}
figcaption {{ color: var(--quiet); font-size: 0.9rem; margin-top: 0.3rem; max-width: 34rem; overflow-wrap: anywhere; }}
figure .scroll > svg, figure .scroll > img {{ display: block; height: auto; }}
figure .plain {{ background: #ffffff; border-radius: 6px; }}
.scroll {{ overflow-x: auto; max-width: 100%; }}
.tall {{ max-height: 32rem; overflow-y: auto; }}
table {{ border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; white-space: nowrap; }}
th, td {{ padding: 0.28rem 0.75rem; text-align: right; border-bottom: 1px solid var(--faint); }}
th {{ color: var(--quiet); font-weight: 600; background: var(--paper); position: sticky; top: 0; }}
th:first-child, td:first-child {{ padding-left: 0.2rem; }}
.text {{ text-align: left; }}
.words {{ text-align: left; white-space: normal; min-width: 15rem; }}
tbody tr:hover {{ background: var(--soft); }}
pre {{ background: var(--soft); border: 1px solid var(--faint); border-radius: 8px; padding: 0.8rem 1rem;
  overflow-x: auto; font: 0.88rem/1.45 ui-monospace, "Cascadia Code", Menlo, Consolas, monospace; }}
@media print {{ .tall {{ max-height: none; }} figure, tr {{ break-inside: avoid; }} }}
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def report(
    path: str | os.PathLike[str],
    title: str = "Training",
    history: Mapping[str, Any] | None = None,
    figures: Mapping[str, Any] | Iterable[Any] | None = None,
    tables: Mapping[str, Any] | None = None,
    text: str | Mapping[str, str] | None = None,
    facts: Mapping[str, Any] | None = None,
    reproduce: str | None = None,
) -> Path:
    """Write one HTML file that shows a training, without anything outside of it: light or dark, narrow or wide.

    - `history`: a `History` (or a dict of arrays): its curves, its table and its notes;
    - `figures`: matplotlib Figures or axes by caption;
    - `tables`: by title, a dict of columns, a list of dicts (rows), or a two-dimensional array;
    - `text`: paragraphs, or paragraphs by heading; `facts`: numbers and short texts by name, shown first;
    - `reproduce`: the command or code that made it.

    Everything is escaped: text stays text. The file appears whole or not at all. Returns its path.

        train.report("digits.html", "Digits", history, {"The worst mistakes": figure}, facts={"test accuracy": 0.987})
    """
    parts = [f"<h1>{html.escape(title)}</h1>", _facts(facts)]
    for heading, paragraph in (text if isinstance(text, Mapping) else {"": text} if text else {}).items():
        parts += [_heading(heading), *(f"<p>{html.escape(p)}</p>" for p in str(paragraph).split("\n\n"))]
    count = 0
    if history is not None:
        chosen = panels(history)
        drawn = [_picture_of(curves(history, panel), "", f"p{i}") for i, panel in enumerate(chosen)]
        count = len(drawn)
        if drawn:
            parts += [_heading("Curves"), _gallery(drawn)]
    if figures:
        named = figures.items() if isinstance(figures, Mapping) else [("", figure) for figure in _listed(figures)]
        drawn = [_picture_of(figure, str(name), f"p{count + i}") for i, (name, figure) in enumerate(named)]
        parts += [_heading("Pictures"), _gallery(drawn)]
    for name, table in (tables or {}).items():
        parts += [_heading(str(name)), _scrolling(_table(table, str(name)))]
    if history is not None:
        parts += _epochs(history)
    if reproduce:
        parts += [_heading("How to reproduce"), f"<pre>{html.escape(reproduce)}</pre>"]
    page = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in parts if part)
        + "\n</main>\n</body>\n</html>\n"
    )
    return write_atomically(path, page)


def _heading(text: str) -> str:
    return f"<h2>{html.escape(text)}</h2>" if text else ""


def _facts(facts: Mapping[str, Any] | None) -> str:
    if not facts:
        return ""
    rows = []
    for name, value in facts.items():
        said = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else number(value)
        long = ' class="long"' if len(said) > 16 else ""
        rows.append(f"<div{long}><dt>{html.escape(str(name))}</dt><dd>{html.escape(said)}</dd></div>")
    return f'<dl class="facts">{"".join(rows)}</dl>'


def _listed(figures: Any) -> list[Any]:
    return [figures] if hasattr(figures, "savefig") or hasattr(figures, "get_figure") else [*figures]


def _gallery(pictures: Sequence[str]) -> str:
    return '<div class="pictures">\n' + "\n".join(pictures) + "\n</div>"


def _scrolling(content: str, more: str = "") -> str:
    return f'<div class="scroll{more}" tabindex="0">{content}</div>'


def _picture_of(figure: Any, caption: str, prefix: str) -> str:
    """A figure with its caption. A wide one may shrink to what can still be read; then it scrolls."""
    if not hasattr(figure, "savefig"):
        if not hasattr(figure, "get_figure"):
            raise ArgumentError(
                f"report: figures are matplotlib Figures or axes, got {type(figure).__name__} for {caption!r}"
            )
        figure = figure.get_figure()
    inches = figure.get_size_inches()[0]
    style = f"width: {inches * 96:.0f}px; max-width: 100%"
    if inches > 4.5:
        style += f"; min-width: {330 + (inches - 4.5) * 60:.0f}px"
    content = svg(figure, prefix)
    if len(content) > MOST_SVG:
        data = base64.b64encode(png(figure)).decode()
        content = f'<img alt="{html.escape(caption)}" class="plain" style="{style}" src="data:image/png;base64,{data}">'
    else:
        plain = "" if hasattr(figure, "wonderland_ink") else ' class="plain"'
        label = f' role="img" aria-label="{html.escape(caption)}"' if caption else ""
        content = content.replace("<svg", f'<svg{plain}{label} style="{style}"', 1)
    said = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    return f'<figure><div class="scroll">{content}</div>{said}</figure>'


def _table(table: Any, name: str) -> str:
    """A table of columns, of rows, or of an array."""
    if hasattr(table, "to_dict") and hasattr(table, "columns"):  # a pandas DataFrame
        table = {str(column): [*table[column]] for column in table.columns}
    if isinstance(table, np.ndarray) and table.ndim == 2:
        table = [dict(enumerate(row)) for row in table.tolist()]
    if not isinstance(table, Mapping):
        rows = [*table]
        if not all(isinstance(row, Mapping) for row in rows):
            raise ArgumentError(
                f"report: the table {name!r} is a dict of columns, a list of dicts, or an array of two dimensions, got "
                f"{type(table).__name__}"
            )
        names = [*dict.fromkeys(key for row in rows for key in row)]
        table = {key: [row.get(key) for row in rows] for key in names}
    columns = {str(key): [*values] for key, values in table.items()}
    if len({len(values) for values in columns.values()}) > 1:
        raise ArgumentError(
            f"report: the columns of the table {name!r} have different lengths: "
            f"{ {key: len(values) for key, values in columns.items()} }"
        )
    longest = {key: max((len(v) for v in values if isinstance(v, str)), default=0) for key, values in columns.items()}
    kind = {key: ' class="words"' if n > 30 else ' class="text"' if n else "" for key, n in longest.items()}
    head = "".join(f"<th{kind[key]}>{html.escape(key)}</th>" for key in columns)
    body = "\n".join(
        "<tr>" + "".join(f"<td{kind[key]}>{html.escape(cell(key, v))}</td>" for key, v in zip(columns, row)) + "</tr>"
        for row in zip(*columns.values())
    )
    return f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>"


def _epochs(history: Mapping[str, Any]) -> list[str]:
    count = max((len(values) for values in history.values()), default=0)
    parts = [_heading("Epochs"), _scrolling(html_table(history, MOST_ROWS), " tall")]
    if count > MOST_ROWS:
        parts.append(f"<p>{MOST_ROWS} of {count} epochs are shown.</p>")
    notes = history.notes if isinstance(history, History) else []
    return parts + [f"<p>{html.escape(line)}</p>" for line in notes]


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> Path:
    """Write a file so that nobody ever sees half of it; an error says which one it was."""
    try:
        replace(path, [content.encode() if isinstance(content, str) else content])
    except OSError as error:
        raise OSError(error.errno, f"{os.fspath(path)} can't be written ({error.strerror})") from error
    return Path(path)
