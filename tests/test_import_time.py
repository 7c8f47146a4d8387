"""`import wonderland` costs little beyond `import numpy`: counted in modules, as times vary."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Each of these costs milliseconds; NumPy may load some itself, and then they are not ours.
EXPENSIVE = ["dataclasses", "inspect", "ast", "scipy", "llvmlite", "asyncio"]
CODE = """
import sys, numpy
before = set(sys.modules)
import wonderland
print(*(set(sys.modules) - before))
"""


@pytest.fixture(scope="module")
def added() -> set[str]:
    """The modules that `import wonderland` loads after `import numpy`, other than wonderland's own."""
    run = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, check=True, capture_output=True, text=True)
    return {name for name in run.stdout.split() if name.split(".")[0] != "wonderland"}


@pytest.mark.parametrize("name", EXPENSIVE)
def test_no_expensive_module_is_loaded(name, added):
    assert not {module for module in added if module.split(".")[0] == name}


def test_few_modules_are_loaded(added):
    assert len(added) <= 20, sorted(added)
