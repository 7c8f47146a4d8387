"""A package imports only from the packages before it, wherever in a file the import stands.

The order is that of the data. `import wonderland` itself loads the first four and nothing heavy; the rest
comes on first use, through `wonderland.__getattr__`.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "wonderland"
ORDER = """
    core ops numpy scipy transform control random einops compile sparse implicit optimize integrate nn data train
    text generative graph kernels probability testing studio cli __main__
""".split()
LOADED = ORDER[: ORDER.index("transform") + 1]
ENGINE = ORDER[: ORDER.index("compile") + 1]  # what the names of `wonderland` itself come from
FILES = sorted(path for path in PACKAGE.rglob("*.py"))


def layer_of(path: Path, package: Path = PACKAGE) -> str:
    """The package (or lone module) a file belongs to; "" for wonderland/__init__.py."""
    first = path.relative_to(package).parts[0]
    return "" if first == "__init__.py" else first.removesuffix(".py")


def absolute(node: ast.ImportFrom, path: Path, package: Path) -> str:
    """The module that `from ... import` names, with leading dots resolved."""
    if not node.level:
        return node.module or ""
    here = ["wonderland", *path.relative_to(package).parts[:-1]]
    return ".".join([*here[: len(here) - node.level + 1], *([node.module] if node.module else [])])


def imports_of(path: Path, package: Path = PACKAGE) -> Iterator[tuple[int, str]]:
    """(line, layer) of each thing of wonderland that a file imports; "" is wonderland's own namespace."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    roots = set()  # names under which the file knows wonderland itself
    for node in ast.walk(tree):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
            for alias in node.names:
                if alias.name == "wonderland" or (alias.name.startswith("wonderland.") and not alias.asname):
                    roots.add(alias.asname or "wonderland")
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node, path, package)
            modules = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            modules = [str(node.args[0].value)] if called in ("import_module", "__import__") else []
        for module in modules:
            parts = module.split(".")
            if parts[0] == "wonderland":
                yield node.lineno, parts[1] if len(parts) > 1 and parts[1] in ORDER else ""
    for node in ast.walk(tree):  # wl.sparse.jacobian reaches a package as surely as importing it does
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in roots:
            if node.attr in ORDER:
                yield node.lineno, node.attr


def faults_of(path: Path, package: Path = PACKAGE) -> list[str]:
    layer = layer_of(path, package)
    allowed = {*ORDER[: ORDER.index(layer) + 1]}
    if layer not in ENGINE:
        allowed.add("")
    place = path.relative_to(package.parent).as_posix()
    return [
        f"{place}:{line} imports from {found or 'wonderland itself'}"
        for line, found in imports_of(path, package)
        if found not in allowed
    ]


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def test_every_package_has_its_place_in_the_order():
    assert {layer_of(path) for path in FILES} <= {"", *ORDER}


@pytest.mark.parametrize("layer", sorted({layer_of(path) for path in FILES} & {*ORDER}, key=ORDER.index))
def test_imports_go_up_only(layer):
    faults = [fault for path in FILES if layer_of(path) == layer for fault in faults_of(path)]
    assert not faults, "\n".join(faults)


def test_wonderland_itself_imports_the_engine_without_the_compiler():
    """Module-level imports of wonderland/__init__.py; what __getattr__ loads or type checkers read is free."""
    path = PACKAGE / "__init__.py"
    functions = [
        range(node.lineno, (node.end_lineno or node.lineno) + 1)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        or (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING")
    ]
    top = {layer for line, layer in imports_of(path) if not any(line in lines for lines in functions)}
    assert top <= {*LOADED}


def test_import_loads_nothing_heavy():
    loaded = run("import sys, wonderland; print(*sys.modules)").split()
    heavy = {"llvmlite", "scipy", "torch", "jax", "wonderland.compile"}
    assert heavy.isdisjoint(loaded)
    ours = {name.split(".")[1] for name in loaded if name.startswith("wonderland.")}
    assert ours & {*ORDER} <= {*LOADED}


# Not part of the machine: made of the levels and the transpose, or what people see of results and errors.
COMPOSED = {
    "budget.py", "checkpoint.py", "chunks.py", "closures.py", "cost.py", "curvature.py", "elimination.py",
    "elimination_order.py", "finite_difference.py", "jacobian.py", "jet.py", "residuals.py", "second_order.py",
    "surprises.py", "taylor.py", "tracebacks.py", "transformed.py", "trees.py",
}  # fmt: skip


def test_the_machine_fits_in_the_head():
    lines = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in FILES
        if layer_of(path) in ("core", "transform") and path.name not in COMPOSED
    }
    assert sum(lines.values()) < 2850, lines


@pytest.mark.parametrize(
    ("name", "code", "faults"),
    [
        ("transform/grad.py", "from ..core.level import Level\nfrom . import linear", 0),
        ("transform/grad.py", "def f():\n    from ..compile import jit", 1),
        ("ops/a.py", "from wonderland.compile.llvm import lock", 1),
        ("ops/a.py", "from wonderland import compile, core", 1),
        ("ops/a.py", "import importlib\nimportlib.import_module('wonderland.compile')", 1),
        ("core/a.py", "import numpy\nfrom numpy import sparse", 0),
        ("core/a.py", "import wonderland as wl", 1),
        ("core/a.py", "from .. import numpy", 1),
        ("core/sub/a.py", "from ...numpy import x\nfrom ..level import y", 1),
        ("nn/a.py", "import wonderland as wl\nwl.jit", 0),
        ("nn/a.py", "import wonderland as wl\nwl.studio.show", 1),
        ("nn/a.py", "import numpy as np\nimport wonderland.core\nwonderland.train.fit", 1),
        ("cli.py", "import wonderland as wl\nfrom .studio import show", 0),
    ],
)
def test_the_check_sees(name, code, faults, tmp_path):
    path = tmp_path / "wonderland" / name
    path.parent.mkdir(parents=True)
    path.write_text(code)
    assert len(faults_of(path, tmp_path / "wonderland")) == faults
