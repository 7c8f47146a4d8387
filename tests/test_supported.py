"""The page of supported functions is what the op table makes of it, and what it names is there."""

import re
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
import scipy.special

import wonderland as wl
import wonderland.numpy as wnp
import wonderland.scipy.linalg
import wonderland.scipy.special
from wonderland.core.tracer import UFUNCS, Tracer
from wonderland.testing import op_table, supported
from wonderland.testing.op_samples import samples

PAGE = Path(__file__).resolve().parent.parent / "docs" / "supported.md"
MODULES = {"np": (np, wnp), "scipy": (scipy, wonderland.scipy)}
GROUPS = supported.functions()
NAMES = [name for group in GROUPS.values() for name in group]

# The standard's functions (2024.12) that NumPy has, by its extensions; the main namespace is test_array_api's.
LINALG = """
    cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank matrix_transpose outer
    pinv qr slogdet solve svd svdvals tensordot trace vecdot vector_norm
""".split()
FFT = "fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftshift ifftshift".split()
SPECIAL = """
    erf erfc erfinv gammaln psi expit logit xlogy xlog1py ndtr i0 i1 logsumexp softmax
""".split()


def find(root, path):
    for name in path:
        root = getattr(root, name, None)
    return root


def words(line):
    """The words of a line, without the functions that the installed NumPy and SciPy don't have yet."""
    names = re.compile(r"`(np|scipy)\.([\w.]+)`")
    parts = [(part, names.fullmatch(part)) for part in re.split(r",? ", line)]
    return [part for part, name in parts if not name or find(MODULES[name[1]][0], name[2].split(".")) is not None]


def test_the_page_is_up_to_date():
    written, made = PAGE.read_text(encoding="utf-8").splitlines(), supported.page().splitlines()
    different = [pair for pair in zip(written, made) if words(pair[0]) != words(pair[1])]
    assert not different and len(written) == len(made), f"run `make supported`; it differs, first in {different[:1]}"


def test_lines_are_compared_without_what_numpy_lacks():
    assert words("| yes | `np.sin`, `np.not_there_yet`, `np.cos` |") == ["|", "yes", "|", "`np.sin`", "`np.cos`", "|"]


@pytest.mark.parametrize(
    ("name", "derivative", "compiled"),
    [
        ("np.exp", "yes", "native"), ("np.floor", "0", "native"), ("np.isnan", "-", "native"),
        ("np.angle", "yes", "native"), ("np.divmod", "yes", "native"), ("np.nonzero", "-", "no"),
        ("np.unique", "yes", "no"), ("np.sort", "yes", "native"), ("np.linalg.eigh", "yes", "native"),
    ],
)  # fmt: skip
def test_what_the_page_says_of_a_function(name, derivative, compiled):
    (row,) = (group[name] for group in GROUPS.values() if name in group)
    assert (supported._derivative(row), supported._compiled(row)) == (derivative, compiled)


@pytest.mark.parametrize("name", ["np.exp", "np.linalg.cond", "np.polyfit"])
def test_the_reasons_on_the_page_are_those_of_compiled_code(name):
    (row,) = (group[name] for group in GROUPS.values() if name in group)
    found = {}
    for sample in samples(row, ["float64"], ("contiguous",)):
        found |= wl.jit(sample.function).inspect(*sample.args()).reasons
    assert supported.reasons(row) == found
    written = PAGE.read_text(encoding="utf-8").splitlines()
    for operator, why in found.items():
        line = next(line for line in written if line.startswith(f"| `{operator}` |"))
        assert f"| {why} |" in line and f"`{name}`" in line


def test_every_row_is_on_the_page_once():
    assert set(GROUPS) == set(supported.GROUPS)
    assert len(NAMES) == len(set(NAMES)) and set(NAMES) == {row.name for row in op_table.NUMPY}


def test_names_that_are_moved_exist():
    moved = [f"np.{name}" for names in supported.ELSEWHERE.values() for name in names.split()]
    assert set(moved) <= set(NAMES) and len(moved) == len(set(moved))


@pytest.mark.parametrize("name", NAMES)
def test_the_name_is_numpys_and_ours(name):
    """Written as on the page it is the row's function, and our module has the name."""
    module, *path = name.split(".")
    theirs, ours = MODULES[module]
    original = find(theirs, path)
    ours = find(ours, path[-1:] if path[0] == "lib" else path)  # np.lib.stride_tricks has no counterpart
    assert callable(original) and callable(ours)
    assert any(row.original is original for row in op_table.NUMPY if row.name == name)


@pytest.mark.parametrize(
    ("module", "names"),
    [("np.linalg", LINALG), ("np.fft", FFT), ("scipy.special", SPECIAL)],
    ids=["linalg", "fft", "special"],
)
def test_what_people_expect_is_there(module, names):
    assert {f"{module}.{name}" for name in names} <= set(NAMES)


def test_operators_and_methods_exist():
    for name in supported.SYMBOLS:
        assert hasattr(Tracer, f"__{name}__"), name
    outer = {key[0] for key in UFUNCS if isinstance(key, tuple) and key[1] == "outer"}
    binary = {u for u in UFUNCS if isinstance(u, np.ufunc) and (u.nin, u.nout, u.signature) == (2, 1, None)}
    assert outer == {u for u in binary if getattr(np, u.__name__, None) is u}


@pytest.mark.parametrize("name", supported.HOLDERS)
def test_constructors_whose_results_hold_traced_values(name):
    shape = {"eye": (2,), "identity": (2,), "full": ((2, 2), 3.0)}.get(name, ((2, 2),))

    def f(x):
        out = getattr(wnp, name)(*shape)
        out[:, 0] = x
        return np.sum(out[:, 0])

    assert wl.grad(f)(2.0) == 2


@pytest.mark.parametrize("name", supported.TAKERS)
def test_constructors_that_take_traced_values(name):
    given = (lambda x: (x, 3.0)) if name == "arange" else lambda x: ([x, 1.0],)
    assert wl.grad(lambda x: np.sum(getattr(wnp, name)(*given(x))))(0.5) == (3 if name == "arange" else 1)
