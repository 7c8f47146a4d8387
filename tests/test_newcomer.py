"""A newcomer follows the page *add an operator*: its block and its row, in a module of their own, make a full operator.

The module is loaded as a pytest plugin in another process, before the table-driven tests are collected there: they
then test the new operators as if they were ours, and nothing of it reaches this process.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_docs import blocks_of

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "add-an-operator.md"
TABLE_TESTS = ("test_ops.py", "test_completeness.py", "test_facts.py")
# Of test_ops.py: `op_checks.CHECKS` (eager, forward, reverse, second order, batched, sparse, recorded); compiled.
CHECKS = ("test_rules", "test_compiled")

USE = """
import numpy as np
from scipy.special import dawsn
import newcomer
import wonderland as wl

def f(x):
    return np.sum(dawsn(x) * x)

def derivative(x):
    return 1 - 2 * x * dawsn(x)

def slope(x):
    return derivative(x) * x + dawsn(x)

def curvature(x):
    return 2 * derivative(x) - 2 * x * (dawsn(x) + x * derivative(x))

x = np.linspace(-2.0, 2.0, 7)
for run in (lambda g: g, wl.jit):
    assert np.allclose(run(dawsn)(x), dawsn(x), rtol=1e-14)
    assert np.allclose(run(wl.grad(f))(x), slope(x), rtol=1e-12)
    assert np.allclose(run(lambda x: wl.jvp(f, (x,), (x,))[1])(x), slope(x) @ x, rtol=1e-12)
    assert np.allclose(run(wl.vmap(wl.grad(f)))(x), slope(x), rtol=1e-12)
    assert np.allclose(run(wl.jacobian(wl.grad(f)))(x), np.diag(curvature(x)), rtol=1e-12)
assert set(wl.jit(wl.grad(f)).inspect(x).fallbacks) == {"dawsn"}
assert np.array_equal(wl.sparse.jacobian_pattern(dawsn, x).toarray(), np.eye(7, dtype=bool))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Run Python where the page's block and row are a module called `newcomer`."""
    directory = tmp_path_factory.mktemp("newcomer")
    parts = [block for block in blocks_of(PAGE.read_text(encoding="utf-8")) if block.comment.startswith("the ")]
    assert [block.comment for block in parts] == ["the block", "the row"]
    (directory / "newcomer.py").write_text("\n".join(line for block in parts for line in block.lines) + "\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = os.pathsep.join([str(directory), str(ROOT)])

    def run(*arguments):
        return subprocess.run(
            [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
        )

    return run


def test_the_new_operator_passes_every_test_of_the_table(python):
    tests = [str(ROOT / "tests" / name) for name in TABLE_TESTS]
    ours = "dawsn and not test_all_cases_are_native"  # the page's operator has no code of its own
    done = python("-m", "pytest", "-p", "newcomer", "-p", "no:cacheprovider", "-rA", "-k", ours, *tests)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.findall(r"^PASSED (\S+)", done.stdout, re.MULTILINE)
    for check in CHECKS:
        found = [test for test in passed if check in test and "dawsn" in test and "float64" in test]
        assert found, f"{check} did not run:\n{done.stdout}"
    assert [test for test in passed if "test_completeness" in test and "dawsn" in test]


def test_scipy_s_own_function_uses_it(python):
    done = python("-c", USE)
    assert done.returncode == 0, done.stderr
