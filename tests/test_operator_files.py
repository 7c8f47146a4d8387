"""How many files an operator is in: its block, its native code, NumPy's function, its row, and no lists elsewhere.

A file *names* an operator where it would have to be touched to add it. It does where

- it defines it, or a function or method of its name (the block, NumPy's function, native code, the compiler's node);
- a string is its name, alone, as one of several names or behind NumPy's or SciPy's module (the row, a table, a list);
- it speaks of the operator without calling it (`implements(np.sort)`, a table's `np.log1p: inside`).

Calls of an operator, by its name or in scalar code (`e.call("log1p", x)`), a function that is only such a call, imports
for them, docstrings and comments are uses: they need the operator to be there, and cost nothing when it is added.
Arguments and local variables are something else. Programs that tests generate (`testing/` but for the rows) choose
among functions, and aren't looked at; nor are estimators, whose users choose solvers by such words (`solver="svd"`).
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from wonderland.core.primitive import registry
from wonderland.testing import op_table

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "wonderland"
# The table of accuracies, in which a function with vector code has its row.
ROWS = [ROOT / "tests" / "test_vecmath.py"]
USES = ("call", "foreign", "function", "intrinsic")  # what scalar code calls functions by
MODULES = ("np.", "scipy.special.")

op_table.load()


def looked_at(package: Path = PACKAGE) -> list[Path]:
    free = {"testing", "estimators"}
    return [p for p in sorted(package.rglob("*.py")) if free.isdisjoint(p.parts) or "rows" in p.parts]


def words(text: str) -> Iterator[str]:
    for word in text.split() if re.fullmatch(r"\s*[\w.]+(\s+[\w.]+)*\s*", text) else ():
        yield next((word.removeprefix(m) for m in MODULES if word.startswith(m)), word)


def _is_use(node: ast.FunctionDef) -> bool:
    """Is the function only a call, in scalar code, of the function that it is named after?"""
    body = node.body[ast.get_docstring(node) is not None :]
    call = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None
    return isinstance(call, ast.Call) and any(getattr(a, "value", None) == node.name for a in call.args[:1])


class Names(ast.NodeVisitor):
    """The names that a file defines, has in strings, or speaks of without calling them."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self.local: list[set[str]] = []  # of each function around: its arguments and variables

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if not self.local and not _is_use(node):
            self.found.add(node.name)
        for part in (*node.decorator_list, *node.args.defaults, *node.args.kw_defaults):
            if part is not None:
                self.visit(part)
        self._inside(node, node.args, node.body[ast.get_docstring(node) is not None :])

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._inside(node, node.args, [node.body])

    def _inside(self, node: ast.AST, args: ast.arguments, body: list) -> None:
        own = {a.arg for a in ast.walk(args) if isinstance(a, ast.arg)}
        nodes = [*ast.walk(node)]
        stored = (n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
        inner = (n.name for n in nodes if isinstance(n, ast.FunctionDef) and n is not node)
        self.local.append({*own, *stored, *inner})
        for part in body:
            self.visit(part)
        self.local.pop()

    def visit_Module(self, node: ast.Module) -> None:
        for part in node.body[ast.get_docstring(node) is not None :]:
            self.visit(part)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in node.body[ast.get_docstring(node) is not None :]:
            self.visit(part)

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if isinstance(node.func, ast.Attribute):
            self.visit(node.func.value)
        elif not isinstance(node.func, ast.Name):
            self.visit(node.func)
        for part in (*node.args[called in USES :], *(k.value for k in node.keywords)):
            self.visit(part)

    def visit_Name(self, node: ast.Name) -> None:
        if not any(node.id in names for names in self.local):
            self.found.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.found.add(node.attr)
        self.visit(node.value)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.found.update(words(node.value))

    def visit_Import(self, node: ast.AST) -> None:
        pass

    visit_ImportFrom = visit_Import


def named(path: Path) -> set[str]:
    names = Names()
    names.visit(ast.parse(path.read_text(encoding="utf-8")))
    return names.found


def files_of(name: str, texts: dict[str, set[str]]) -> list[str]:
    return [path for path, names in texts.items() if name in names]


# With vector code: the block, the code for real and for complex numbers, two rows.
WITH_VECTOR_CODE = (
    "log1p expm1 exp2 log10 arcsin arctan sinh arcsinh cbrt hypot erf erfc erfinv erfcinv digamma".split()
)
# Without: the block, the compiler's node, NumPy's function, the row.
STRUCTURAL = """
    gather searchsorted sort argsort cumsum cumprod cummax argmax recurrence triangular_solve lstsq qr svd eig expm rfft
""".split()


MENTIONED = re.compile(rf"\b(?:{'|'.join((*WITH_VECTOR_CODE, *STRUCTURAL))})\b")


@pytest.fixture(scope="module")
def texts() -> dict[str, set[str]]:
    """What each file names, of files that mention one of the operators at all."""
    mentioning = [path for path in (*looked_at(), *ROWS) if MENTIONED.search(path.read_text(encoding="utf-8"))]
    return {path.relative_to(ROOT).as_posix(): named(path) for path in mentioning}


@pytest.mark.parametrize("name", WITH_VECTOR_CODE)
def test_an_elementwise_operator_is_in_five_files(name, texts):
    files = files_of(name, texts)
    assert registry[name].elementwise and len(files) <= 5, files


@pytest.mark.parametrize("name", STRUCTURAL)
def test_a_structural_operator_is_in_four_files(name, texts):
    files = files_of(name, texts)
    assert not registry[name].elementwise and len(files) <= 4, files


PLANTED = [
    'TABLE = {"log1p": 1}', 'NAMES = "exp log1p sin".split()', "FUNCTIONS = {np.log1p: 1}", "implements(np.log1p)(f)",
    'ufunc = "np.log1p scipy.special.log1p"', "def log1p(x): return x + 1", "for f in (exp, log1p, sin): pass",
    "class Builder:\n    def log1p(self, x): return self.node(x)", 'def f(p): return p.name == "log1p"',
]  # fmt: skip
HARMLESS = [
    "y = log1p(x) + np.log1p(x)", 'e.call("log1p", e.call("exp", x))', "from wonderland.ops.math import log1p",
    'def log1p(x): return function("log1p", x)', "def f(log1p): return [log1p, g(log1p)]", 'def f(x):\n    "log1p"',
    "def f(x):\n    log1p = x\n    return [log1p]", 'raise ValueError("log1p: x is smaller than -1")',
]  # fmt: skip


@pytest.mark.parametrize("code", [*PLANTED, *HARMLESS])
def test_the_check_sees_names(code, tmp_path):
    path = tmp_path / "planted.py"
    path.write_text(code)
    assert ("log1p" in named(path)) is (code in PLANTED)


def test_a_file_more_is_seen(texts):
    here = files_of("log1p", texts)
    assert files_of("log1p", {**texts, "wonderland/numpy/planted.py": {"exp", "log1p"}}) == [
        *here, "wonderland/numpy/planted.py"
    ]  # fmt: skip
