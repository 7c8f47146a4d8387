"""The report: one file, that needs nothing else, in which text stays text."""

import html.parser
import os
import re
import stat

import numpy as np
import pytest
from matplotlib.figure import Figure

from wonderland import train
from wonderland.train import pictures, reports

EVIL = '<script>alert("x")</script>&"\'</style>'
VOID = {"meta", "img", "br", "path", "use", "rect", "image", "line", "circle"}


class Checker(html.parser.HTMLParser):
    """Tags that are closed in order; what they refer to; ids."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.ids, self.references, self.text = [], [], [], [], ""
        self.feed(page)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes, empty=False):
        self.tags.append(tag)
        for name, value in attributes:
            assert not name.startswith("on"), (tag, name)
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href", "action", "data"):
                self.references.append(value)
        if not empty and tag not in VOID - {"path", "use", "rect", "image", "line", "circle"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes, empty=True)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def history(epochs=3, name="loss"):
    found = train.History()
    for epoch in range(1, epochs + 1):
        found.add_step(epoch, epoch, {"loss": 1 / epoch})
        found.add_epoch(epoch, {name: 1 / epoch, "validation_loss": 1.0, "seconds": 0.1})
    return found


def page_of(path):
    page = path.read_text(encoding="utf-8")
    return page, Checker(page)


def test_one_file_with_everything(tmp_path):
    found = history()
    found.notes.append("stopped: no better")
    figure = Figure()
    axes = figure.subplots()
    axes.plot([1, 2])
    path = train.report(
        tmp_path / "report.html", "Digits", found,
        {"filters": pictures.filters(np.eye(3)[None, None]), "foreign": axes, "matrix": pictures.confusion([[1]])},
        tables={
            "columns": {"class": ["a", "b"], "count": [1, 2]}, "rows": [{"x": 1}, {"x": 2, "y": 0.123456}],
            "array": np.eye(2), "empty": {},
        },
        text={"About": "one\n\ntwo"}, facts={"accuracy": 0.98765, "parameters": 12345}, reproduce="wonderland train x",
    )  # fmt: skip
    _, checked = page_of(path)
    assert path == tmp_path / "report.html" and os.listdir(tmp_path) == ["report.html"]
    for said in ("Digits", "0.9877", "12,345", "two", "foreign", "0.1235", "stopped: no better", "wonderland train x"):
        assert said in checked.text
    assert checked.tags.count("svg") == 1 + 3 and checked.tags.count("table") == 5
    assert checked.text.count("How to reproduce") == 1


def test_it_refers_to_nothing_outside(tmp_path):
    figures = {"a": pictures.mistakes(np.zeros((1, 4, 4)), [0], [1]), "b": pictures.curves(history())}
    page, checked = page_of(train.report(tmp_path / "r.html", "x", history(), figures))
    assert not re.search(r"https?:|//\w+\.|@import|url\((?!#)|file:", page)
    assert all(r.startswith(("data:image/png;base64,", "#")) for r in checked.references) and checked.references
    assert len(checked.ids) == len({*checked.ids})
    assert {r[1:] for r in checked.references if r[0] == "#"} <= {*checked.ids}
    assert {*re.findall(r"url\(#([^)]+)\)", page)} <= {*checked.ids}
    assert not {"script", "link", "iframe", "object"} & {*checked.tags}
    assert "prefers-color-scheme: dark" in page and 'name="viewport"' in page


def test_text_stays_text(tmp_path):
    found = history(name=EVIL)
    found.notes.append(EVIL)
    figure = Figure()
    figure.suptitle(EVIL)
    ours = pictures.confusion(np.eye(2), [EVIL, "b"])
    path = train.report(
        tmp_path / "r.html", EVIL, found, {EVIL: figure, EVIL + "2": ours}, {EVIL: {EVIL: [EVIL]}}, {EVIL: EVIL},
        {EVIL: EVIL}, EVIL,
    )  # fmt: skip
    page, checked = page_of(path)
    assert "script" not in checked.tags and page.count("</style>") == page.count("<style") and "<script" not in page
    assert checked.text.count(EVIL) >= 9


def test_little_or_nothing(tmp_path):
    _, checked = page_of(train.report(tmp_path / "a.html"))
    assert "Training" in checked.text
    _, checked = page_of(train.report(tmp_path / "b.html", history=train.History(), figures={}, facts={}))
    assert "no epochs yet" in checked.text
    _, checked = page_of(
        train.report(tmp_path / "c.html", history={"loss": [1.0]}, figures=pictures.filters(np.ones((1, 1, 2, 2))))
    )
    assert checked.tags.count("svg") == 2
    _, checked = page_of(train.report(tmp_path / "d.html", history=history(500)))
    assert "200 of 500 epochs are shown" in checked.text and checked.tags.count("tr") == 201


def test_a_large_picture_becomes_pixels(tmp_path, monkeypatch):
    monkeypatch.setattr(reports, "MOST_SVG", 1000)
    _, checked = page_of(train.report(tmp_path / "a.html", figures={"a": pictures.confusion(np.eye(3))}))
    assert "img" in checked.tags and "svg" not in checked.tags


def test_the_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "r.html"
    train.report(path, "first")
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~(mask := os.umask(0)) and os.umask(mask) == 0

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        train.report(path, "second")
    assert "first" in path.read_text() and os.listdir(tmp_path) == ["r.html"]


def test_what_is_no_figure_or_table_is_refused(tmp_path):
    with pytest.raises(TypeError, match="matplotlib Figures or axes, got int for 'a'"):
        train.report(tmp_path / "r.html", figures={"a": 1})
    with pytest.raises(TypeError, match=r"the table 'a' is a dict of columns, .* got list"):
        train.report(tmp_path / "r.html", tables={"a": [1, 2]})
    with pytest.raises(TypeError, match="have different lengths"):
        train.report(tmp_path / "r.html", tables={"a": {"x": [1], "y": []}})
    assert not os.listdir(tmp_path)
