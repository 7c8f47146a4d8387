"""The API reference has every public name, and nothing else. Reads the pages, so that it needs no mkdocs."""

import re
from functools import reduce
from importlib import import_module
from pathlib import Path

import pytest

import wonderland as wl

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
ENTRY = re.compile(r"^::: (\S+)$", re.M)
TWICE = re.compile(r"\.(\w+)\.\1$")  # a function that has the name of its module
PAGES = {
    path.name: [TWICE.sub(r".\1", name) for name in ENTRY.findall(path.read_text(encoding="utf-8"))]
    for path in REFERENCE.glob("*.md")
}
SPACES = [
    wl, wl.nn, wl.nn.init, wl.models, wl.data, wl.train, wl.train.metrics, wl.train.pictures, wl.random, wl.sparse,
    wl.einops, wl.testing, wl.recipes, wl.text, wl.implicit, wl.generative,
    wl.generative.views, wl.estimators,
]  # fmt: skip


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.__name__)
def test_every_public_name_is_in_the_reference(space):
    there = {name for names in PAGES.values() for name in names}
    wanted = {f"{space.__name__}.{name}" for name in space.__all__} - {other.__name__ for other in SPACES}
    missing = sorted(wanted - there)
    assert not missing, (
        "add these lines to the pages of docs/reference where they belong (and to the table in its index.md):\n"
        + "\n".join(f"::: {name}" for name in missing)
    )


def test_names_of_the_reference_exist_and_say_what_they_are():
    for page, names in PAGES.items():
        assert len(names) == len({*names}), page
        for name in names:
            assert found(name) is not None, f"{page}: {name}"


def found(name):
    module, rest = wl, name.split(".")[1:]
    if rest[:1] in (["compile"], ["numpy"]):  # classes of objects that public functions return
        module, rest = import_module(".".join(name.split(".")[:-1])), rest[-1:]
    return reduce(getattr, rest, module)


def test_the_table_of_the_reference_is_complete():
    table = (REFERENCE / "index.md").read_text(encoding="utf-8")
    for page, names in PAGES.items():
        if page != "index.md":
            row = next(line for line in table.splitlines() if f"({page})" in line)
            missing = [name for name in names if f"`{short(name)}`" not in row]
            assert not missing, f"docs/reference/index.md, row of {page}: add {missing}"


def short(name):
    return re.sub(r"^wonderland\.(compile\.jit\.|numpy\.at\.)?", "", name)


@pytest.mark.parametrize("space", ["nn", "train"])
def test_names_of_others_say_what_to_write(space):
    """The advice names things that exist; a name without advice is refused as Python does."""
    package = getattr(wl, space)
    advice = import_module(f"wonderland.{space}.elsewhere").NAMES
    for name, text in advice.items():
        with pytest.raises(AttributeError, match=rf"has no attribute '{name}': ") as raised:
            getattr(package, name)
        assert text in str(raised.value)
        for used, attribute in re.findall(r"\b(nn|train)\.(\w+)", text):
            assert hasattr(getattr(wl, used), attribute), text
    with pytest.raises(AttributeError, match=r"has no attribute 'Nonsense'$"):
        package.Nonsense  # noqa: B018
