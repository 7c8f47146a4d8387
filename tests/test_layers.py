"""A package uses only the packages before it: by imports wherever they stand, by names of modules in strings, and
without writing into them. And the classes of all of them have different names.

The order is that of the data. `import wonderland` itself loads the first three and nothing heavy; the rest comes on
first use, by `wonderland/public.py`. What an earlier package needs of a later one is a `Slot`, which that one fills.
"""

import ast
import functools
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import wonderland as wl
from wonderland.core import later

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "wonderland"
LAYERS = {
    "core": "types, trees, `Primitive`, levels and `bind`, tracers, `Program`",
    "ops": "the primitives, every rule of one in one block",
    "numpy": "NumPy's names, written with `ops`",
    "scipy": "SciPy's functions that have no hook",
    "transform": "the Dual and Batch levels, the transpose, and what is composed of them",
    "control": "primitives that hold functions or Programs: `cond`, `scan`, custom rules",
    "random": "keys, and what is drawn from them",
    "einops": "`rearrange`, `reduce`, `repeat`",
    "compile": "from a Program to one native call",
    "sparse": "patterns, colourings, sparse derivatives",
    # To come, each with its place:
    "implicit": "derivatives of what an equation defines: roots, fixed points, minimisers, linear solves",
    "optimize": "minimisers and LP/QP layers, differentiated by `implicit`",
    "integrate": "ordinary differential equations and their adjoints",
    "nn": "`Module`, layers, initialisers, losses",
    "models": "whole networks, one screen each",
    "data": "datasets, loaders, augmentation; knows arrays, and no models",
    "train": "optimisers, schedules, the loop, checkpoints of weights, metrics",
    "text": "tokenisers, language models, sampling from them",
    "generative": "autoencoders, flows, diffusion",
    "estimators": "models that are fitted in one line, by scikit-learn's contract",
    "graph": "graphs as data, message passing",
    "kernels": "kernel machines and Gaussian processes",
    "probability": "distributions and inference, of `random`'s samplers",
    # What looks at all of it:
    "testing": "checks of derivatives and operators, for users' code too",
    "studio": "what a person looks at",
    "recipes": "trainings of one screen each, to run, copy and change",
    "cli_train": "the commands `wonderland train` and `wonderland list`",
    "cli_sample": "the command `wonderland sample`",
    "cli": "the command `wonderland`",
    "__main__": "`python -m wonderland`",
    "public": "the list of the public names; read, never imported",
}
ORDER = [*LAYERS]
LOADED = ["core", "ops", "numpy"]
ENGINE = ORDER[: ORDER.index("compile") + 1]  # what the names of `wonderland` itself come from
FILES = sorted(path for path in PACKAGE.rglob("*.py"))
MODULE = re.compile(r"wonderland(\.\w+)+\.?")
# Where names of modules come from outside of the file: from `PROVIDERS` and `public.py`, from a pickle, from a folder.
COMPUTED = {
    "wonderland/core/later.py", "wonderland/core/transformed.py", "wonderland/testing/op_table.py",
}  # fmt: skip


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


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.lru_cache(maxsize=1)  # one file after the other is looked at in several ways
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(parsed(path)))


def imports_of(path: Path, package: Path = PACKAGE) -> Iterator[tuple[int, str]]:
    """(line, layer) of each thing of wonderland that a file imports; "" is wonderland's own namespace."""
    roots = set()  # names under which the file knows wonderland itself
    for node in nodes_of(path):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
            for alias in node.names:
                if alias.name == "wonderland" or (alias.name.startswith("wonderland.") and not alias.asname):
                    roots.add(alias.asname or "wonderland")
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node, path, package)
            modules = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE.fullmatch(node.value):
            modules = [node.value]  # a name in a table, the beginning of an f-string
        for module in modules:
            parts = module.split(".")
            if parts[0] == "wonderland":
                yield node.lineno, parts[1] if len(parts) > 1 and parts[1] in ORDER else ""
    for node in nodes_of(path) if roots else ():  # wl.sparse.jacobian reaches a package as surely as importing it does
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in roots:
            if node.attr in ORDER:
                yield node.lineno, node.attr


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def computed_imports(path: Path) -> Iterator[int]:
    """Lines that import a module whose package the file doesn't say."""
    for node in nodes_of(path):
        if isinstance(node, ast.Call) and called(node).strip("_") in ("import_module", "load_module", "import"):
            name: ast.AST = node.args[0]
            if isinstance(name, ast.JoinedStr):
                name = name.values[0]
            text = name.value if isinstance(name, ast.Constant) else None
            if not isinstance(text, str) or (text.startswith("wonderland") and not MODULE.fullmatch(text)):
                yield node.lineno


def injections_of(path: Path, package: Path = PACKAGE) -> Iterator[tuple[int, str]]:
    """(line, target) of each assignment to an attribute of a module or class that comes from another package."""
    layer = layer_of(path, package)
    theirs = set()
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and (base := absolute(node, path, package)).startswith("wonderland"):
            for alias in node.names:
                parts = f"{base}.{alias.name}".split(".")[1:]
                is_module = PACKAGE.joinpath(*parts).is_dir() or PACKAGE.joinpath(*parts).with_suffix(".py").is_file()
                if parts[0] != layer and (is_module or alias.name.lstrip("_")[0].isupper()):
                    theirs.add(alias.asname or alias.name)
        elif isinstance(node, ast.Import):
            theirs |= {a.asname or "wonderland" for a in node.names if a.name.split(".")[0] == "wonderland"}
    for node in nodes_of(path) if theirs else ():
        targets: list = []
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, (ast.Store, ast.Del)):
            targets = [node.value]
        elif isinstance(node, ast.Call) and called(node) in ("setattr", "delattr"):
            targets = [node.args[0]]
        for target in targets:
            root = target
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and root.id in theirs:
                yield node.lineno, ast.unparse(target)


def faults_of(path: Path, package: Path = PACKAGE) -> list[str]:
    layer = layer_of(path, package)
    allowed = {*ORDER[: ORDER.index(layer) + 1]}
    if layer not in ENGINE:
        allowed.add("")
    place = path.relative_to(package.parent).as_posix()
    return [
        *(
            f"{place}:{line} imports from {found or 'wonderland itself'}"
            for line, found in imports_of(path, package)
            if found not in allowed
        ),
        *(f"{place}:{line} writes into {target}" for line, target in injections_of(path, package)),
        *(f"{place}:{line} imports what it doesn't name" for line in computed_imports(path) if place not in COMPUTED),
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
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef)
        or (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING")
    ]
    tables = [node for node in nodes_of(path) if isinstance(node, ast.Constant)]
    free = {line for lines in functions for line in lines} | {node.lineno for node in tables}
    top = {layer for line, layer in imports_of(path) if line not in free}
    assert top <= {*LOADED}


def test_wonderland_itself_writes_into_no_package():
    found = [f"line {line}: {target}" for line, target in injections_of(PACKAGE / "__init__.py")]
    assert not found


LATE = re.compile(r"^.*[ \t:;](?:import|from)[ \t].*\b(?:wonderland|scipy|llvmlite)\b", re.MULTILINE)


def test_imports_in_functions_are_seen_by_forks():
    """`with loading():` is around them: a fork waits for the imports of other threads."""
    faults = []

    def look(node: ast.AST, function: bool, seen: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.Import, ast.ImportFrom)) and function and not seen:
                names = [a.name for a in child.names] if isinstance(child, ast.Import) else [child.module or ""]
                if {name.split(".")[0] for name in names} & {"wonderland", "scipy", "llvmlite"}:
                    faults.append(f"{path.relative_to(ROOT)}:{child.lineno}")
            loads = isinstance(child, ast.With) and ast.unparse(child.items[0]) == "loading()"
            look(child, function or isinstance(child, ast.FunctionDef), seen or loads)

    for path in FILES:
        if layer_of(path) not in ("testing", "cli") and LATE.search(path.read_text(encoding="utf-8")):
            look(parsed(path), False, False)
    assert not faults, f"put these into `with loading():` (core/forks.py): {faults}"


def test_public_names_are_all_there():
    for name in wl.__all__:
        assert getattr(wl, name) is not None
    assert wl.__all__ == dir(wl) == sorted(later.listed("wonderland.public"))
    with pytest.raises(AttributeError, match="no attribute 'grdient'"):
        wl.__getattr__("grdient")


def test_every_slot_is_filled_by_its_provider():
    code = """
import gc, importlib, wonderland, wonderland.transform.jacobian
from wonderland.core.later import PROVIDERS, Slot
slots = [slot for slot in gc.get_objects() if type(slot) is Slot]
for slot in slots:
    importlib.import_module(PROVIDERS[slot.name])
print(len(slots), all(slot._function is not None for slot in slots))
"""
    count, filled = run(code).split()
    assert int(count) >= 3 and filled == "True"


def test_import_loads_nothing_heavy():
    loaded = run("import sys, wonderland; print(*sys.modules)").split()
    heavy = {"llvmlite", "scipy", "torch", "jax", "wonderland.compile"}
    assert heavy.isdisjoint(loaded)
    ours = {name.split(".")[1] for name in loaded if name.startswith("wonderland.")}
    assert ours & {*ORDER} <= {*LOADED}


# Not part of the machine: made of the levels and the transpose, or what people see of results and errors, or when
# modules are loaded.
COMPOSED = {
    "budget.py", "checkpoint.py", "chunks.py", "closures.py", "cost.py", "curvature.py", "elimination.py",
    "elimination_order.py", "finite_difference.py", "forks.py", "holding.py", "jacobian.py", "jet.py", "later.py",
    "printing.py", "residuals.py", "second_order.py", "surprises.py", "taylor.py", "tracebacks.py", "transformed.py",
    "trees.py",
}  # fmt: skip


def test_the_machine_fits_in_the_head():
    lines = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in FILES
        if layer_of(path) in ("core", "transform") and path.name not in COMPOSED
    }
    assert sum(lines.values()) < 3290, lines


OF_NETWORKS = {"Module", "Buffer"}  # what users know them by, and what LLVM and the memory plan call other things
CLASS = re.compile(r"^\s*class _*(\w+)", re.MULTILINE)
METHODS = {"LBFGS", "NewtonCG", "GaussNewton"}  # one step on a model's weights, and all of them on an equation


def test_one_class_for_each_name():
    """`_Step` and `Step` are one word, too: a reader who looks a name up finds one thing."""
    places = defaultdict(list)
    for path in FILES:
        for name in CLASS.findall(path.read_text(encoding="utf-8")):
            places[name].append(path)
    assert len(places) > 100
    faults = {}
    for name, paths in places.items():
        if len(paths) > 1 and name not in OF_NETWORKS | METHODS:  # one of them may be in a docstring
            classes = [(p, n) for p in sorted({*paths}) for n in nodes_of(p) if isinstance(n, ast.ClassDef)]
            found = [f"{p.relative_to(ROOT)}:{n.lineno}" for p, n in classes if n.name.lstrip("_") == name]
            faults |= {name: found} if len(found) > 1 else {}
    assert not faults


@pytest.mark.parametrize(
    ("name", "code", "faults"),
    [
        ("transform/grad.py", "from ..core.level import Level\nfrom . import linear", 0),
        ("transform/grad.py", "def f():\n    from ..compile import jit", 1),
        ("ops/a.py", "from wonderland.compile.llvm import lock", 1),
        ("ops/a.py", "from wonderland import compile, core", 1),
        ("ops/a.py", "import importlib\nimportlib.import_module('wonderland.compile')", 1),
        ("ops/a.py", "PROVIDER = {'a': 'wonderland.compile.jit', 'b': 'wonderland.core.level'}", 1),
        ("ops/a.py", "import importlib\nimportlib.import_module(f'wonderland.sparse.{name}')", 1),
        ("ops/a.py", "import importlib\nimportlib.import_module(f'wonderland.{name}')", 1),
        ("ops/a.py", "from importlib import import_module\nimport_module(name)", 1),
        ("ops/a.py", "raise TypeError('use wonderland.compile, or wonderland.sparse.jacobian')", 0),
        ("transform/a.py", "from wonderland.core import level\nlevel.bind = f", 1),
        ("transform/a.py", "from wonderland.core.tracer import Tracer\nTracer.at = f\nsetattr(Tracer, 'x', f)", 2),
        ("transform/a.py", "from wonderland.core.tracer import METHODS\nMETHODS['at'] = f", 0),
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
