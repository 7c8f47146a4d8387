"""Every Python block of the README and of docs/ runs, and prints what the page says it prints.

The blocks of one page share a namespace and run in order. `<!-- not run -->` on the line before a block skips
it. A `text` block that follows a Python block, with `<!-- output -->` on the line before it, must equal what
the Python block printed; white space at the ends of lines does not count.
"""

import contextlib
import difflib
import io
import re
import sys
import traceback
import types
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import wonderland as wl
from wonderland.core.primitive import registry
from wonderland.core.tracer import FUNCTIONS, METHODS, UFUNCS
from wonderland.numpy.dispatch import namespace
from wonderland.testing import op_table

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
FENCE = re.compile(r"(?P<indent> *)(?P<ticks>`{3,}|~{3,}) *(?P<language>[\w+-]*)")

op_table.load()  # families that are registered on first use are there before a page's own are taken away
with wl.warn_on_broadcast():  # and so are the checks that its first use installs
    pass


class PageError(Exception):
    """What is wrong with a page, and where."""


class Block(NamedTuple):
    language: str
    line: int  # of the page, counted from 1: the first line inside the fence
    lines: list[str]
    comment: str  # the HTML comment directly above the fence

    @property
    def runs(self) -> bool:
        return self.language == "python" and self.comment != "not run"


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a page, in order, without the indentation of their fence."""
    blocks: list[Block] = []
    comment, opened, inside = "", None, []
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if opened is None:
            if fence:
                opened, inside, start = fence, [], number + 1
            elif line.strip():
                found = re.fullmatch(r"\s*<!--\s*(.*?)\s*-->\s*", line)
                comment = found[1] if found else ""
        elif fence and fence["ticks"].startswith(opened["ticks"]) and not fence["language"]:
            blocks.append(Block(opened["language"], start, inside, comment))
            comment, opened = "", None
        else:
            indent = len(opened["indent"])
            inside.append(line[indent:] if not line[:indent].strip() else line)
    if opened is not None:
        raise ValueError(f"the block that starts on line {start} is never closed")
    return blocks


def tidy(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def run_page(name: str, text: str, module: types.ModuleType, directory: Path) -> None:
    """Run the blocks of a page in the namespace of `module`; raises PageError with page and line."""
    blocks = blocks_of(text)
    # A file with each block on the lines it has in the page: tracebacks and inspect.getsource then just work.
    source = [""] * (len(text.splitlines()) + 1)
    for block in filter(lambda block: block.runs, blocks):
        source[block.line - 1 : block.line - 1 + len(block.lines)] = block.lines
    path = directory / (name.replace("/", "_") + ".py")
    path.write_text("\n".join(source))

    printed, last = "", None  # what the last Python block printed, and where that block is
    for block in blocks:
        if block.runs:
            printed, last = run_block(name, block, path, module), block
        elif block.comment == "output":
            if block.language != "text" or last is None:
                raise PageError(f"{name}:{block.line}: output is a text block after a block that ran")
            expected, got = tidy("\n".join(block.lines)), tidy(printed)
            if expected != got:
                diff = difflib.unified_diff(expected, got, "the page", "the run", lineterm="")
                raise PageError(f"{name}:{last.line}: the block prints something else\n" + "\n".join(diff))
            last = None
        else:
            last = None


def run_block(name: str, block: Block, path: Path, module: types.ModuleType) -> str:
    stdout = io.StringIO()
    source = "\n" * (block.line - 1) + "\n".join(block.lines) + "\n"
    try:
        with contextlib.redirect_stdout(stdout):
            exec(compile(source, str(path), "exec"), vars(module))
    except (Exception, SystemExit):
        raise PageError(f"{name}:{block.line}: the block raises\n{traceback.format_exc()}") from None
    return stdout.getvalue()


@pytest.fixture
def module(monkeypatch, tmp_path) -> Iterator[types.ModuleType]:
    """An importable, empty module in which a page runs, in a directory where it may write."""
    page = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", page)
    monkeypatch.chdir(tmp_path)
    # A page may register operators of its own; they are gone after it.
    tables = [registry, UFUNCS, FUNCTIONS, METHODS, namespace]
    before = [dict(table) for table in tables], list(op_table.TABLE)
    yield page
    for table, saved in zip(tables, before[0], strict=True):
        table.clear()
        table.update(saved)
    op_table.TABLE[:] = before[1]


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES])
def test_page(page, module, tmp_path):
    fault = None
    try:
        run_page(page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8"), module, tmp_path)
    except PageError as error:
        fault = str(error)
    if fault:
        pytest.fail(fault, pytrace=False)


def test_readme_has_code_that_runs():
    assert any(block.runs for block in blocks_of(PAGES[0].read_text(encoding="utf-8")))


def test_the_compiler_s_page_names_its_files():
    """The table of files has every file of `compile/`, or its directory, and no other."""
    text = (ROOT / "docs" / "compiler.md").read_text(encoding="utf-8").rpartition("## Which file does what")[2]
    first = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")]
    named = {name for cell in first for name in re.findall(r"`(\w+\.py|\w+/)`", cell)}
    directory = ROOT / "wonderland" / "compile"
    files = {path.name for path in directory.glob("*.py")} - {"__init__.py"}
    assert named == files | {f"{path.parent.name}/" for path in directory.glob("*/__init__.py")}


GOOD = """
```python
x = 1
def f():
    return x + 1
print(f()); print("  two  ")
```
<!-- output -->
```text
2
  two
```

<!-- not run -->
```python
raise SystemExit
```

1. indented:

    ```python title="a"
    import inspect
    assert inspect.getsource(f).startswith("def f")
    assert x == 1
    ```
"""


def test_blocks_run_in_order_in_one_namespace(module, tmp_path):
    run_page("good.md", GOOD, module, tmp_path)
    assert module.x == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("two\n```", "three\n```"), r"page\.md:3: the block prints (.|\n)*-  three\n\+  two"),
        (GOOD.replace("x == 1", "x == 2"), r"page\.md:22: the block raises\n(.|\n)*line 24"),
        ("<!-- output -->\n```text\n1\n```", r"page\.md:3: output is a text block after"),
        (GOOD.replace("<!-- not run -->", ""), r"page\.md:16: the block raises\n(.|\n)*SystemExit"),
    ],
)
def test_a_wrong_page_is_found(text, message, module, tmp_path):
    with pytest.raises(PageError, match=message):
        run_page("page.md", text, module, tmp_path)


def test_an_open_fence_is_found():
    with pytest.raises(ValueError, match="line 2 is never closed"):
        blocks_of("```python\nx = 1\n")
