"""Which recipes there are, what their settings are, and how text from the command line becomes settings."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from wonderland.recipes.outcomes import Outcome
from wonderland.train.history import History

NAMES = (
    "digits-mlp", "digits-cnn", "moons", "diabetes", "mnist1d", "breast-cancer", "memorize", "gradient-variance",
    "digits-patches", "multi-view", "gpt", "masked-lm", "text-cnn", "seq2seq", "vocabulary", "transformer-cost",
    "sudoku", "vae-digits", "diffusion", "simclr-digits", "masked-digits",
)  # fmt: skip
TRUE, FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class RecipeError(Exception):
    """A recipe or a setting that isn't there, or isn't what it has to be; the message is for the command line."""


@dataclass(frozen=True)
class TrainingRecipe:
    """A recipe: `settings` are the defaults of its `function`, `summary` the first line of its file's text."""

    name: str
    path: Path
    summary: str
    function: Callable[..., Any]
    settings: dict[str, Any]

    def run(self, settings: Mapping[str, Any] | None = None, **options: Any) -> Outcome:
        """Run it with some settings changed; options (checkpoint=, resume=, progress=, ...) go to `train.fit`."""
        self.check(settings or {})
        outcome = self.function(**(settings or {}), **options)
        if isinstance(outcome, History):
            return Outcome(None, outcome, {name: float(values[-1]) for name, values in outcome.items() if len(values)})
        if not isinstance(outcome, Outcome):
            raise RecipeError(
                f"the recipe {self.path} returned {_article(outcome)}: `run` returns what recipes.classification, "
                "recipes.regression or recipes.Outcome make, or the History of train.fit"
            )
        return outcome

    def check(self, settings: Mapping[str, Any]) -> None:
        """Refuse settings that it doesn't have."""
        for name in settings:
            if name not in self.settings:
                near = difflib.get_close_matches(name, self.settings, 1)
                hint = f" Did you mean {near[0]}?" if near else ""
                raise RecipeError(f"{self.name} has no setting {name!r}.{hint} It has: {self.described()}")

    def described(self) -> str:
        """All settings with their defaults, as `--set` takes them."""
        return "  ".join(f"{name}={shown(value)}" for name, value in self.settings.items())

    def parse(self, pairs: Sequence[str]) -> dict[str, Any]:
        """Settings of texts like "epochs=3": each becomes what its default is, an int, a float, a bool, a tuple."""
        found: dict[str, Any] = {}
        for pair in pairs:
            name, equals, text = pair.partition("=")
            name = name.strip().replace("-", "_")
            if not equals:
                raise RecipeError(f"--set takes key=value, not {pair!r}. {self.name} has: {self.described()}")
            self.check({name: text})
            try:
                found[name] = converted(text.strip(), self.settings[name])
            except ValueError:
                raise RecipeError(
                    f"{self.name}: {name} is {_kind(self.settings[name])} (it is {shown(self.settings[name])} unless "
                    f"set), not {text!r}"
                ) from None
        return found


def converted(text: str, default: Any) -> Any:
    """A text as the type of a default."""
    if isinstance(default, bool):
        if text.lower() not in TRUE + FALSE:
            raise ValueError(text)
        return text.lower() in TRUE
    if isinstance(default, int):
        return int(text.replace("_", ""))
    if isinstance(default, float):
        return float(text)
    if isinstance(default, (tuple, list)):
        parts = [part for part in text.strip("()[] ").split(",") if part.strip()]
        return tuple(converted(part.strip(), default[0] if default else "") for part in parts)
    return text


def shown(value: Any) -> str:
    """A setting as it is written after `--set key=`."""
    return ",".join(map(shown, value)) if isinstance(value, (tuple, list)) else str(value)


def _kind(default: Any) -> str:
    kinds = [(bool, "true or false"), (int, "a whole number"), (float, "a number")]
    if isinstance(default, (tuple, list)):
        return "numbers with commas between them, as in 64,32"
    return next((kind for type_, kind in kinds if isinstance(default, type_)), "a text")


def _article(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def names() -> list[str]:
    """The recipes that come with wonderland."""
    return [*NAMES]


def find(name: str | os.PathLike[str]) -> TrainingRecipe:
    """A recipe by its name, or by the path of one's own file, which has a function `run`.

    recipe = wl.recipes.find("digits-cnn")
    recipe.settings                                     # {"epochs": 15, "batch_size": 64, ...}
    outcome = recipe.run({"epochs": 3}, progress=False)
    outcome.numbers["test accuracy"]
    """
    name = os.fspath(name)
    if name in NAMES:
        return _recipe(name, importlib.import_module(f"wonderland.recipes.{name.replace('-', '_')}"))
    if name.endswith(".py") or os.path.isfile(name):
        return _recipe(Path(name).stem.replace("_", "-"), _loaded(Path(name)))
    near = difflib.get_close_matches(name.lower().replace("_", "-"), NAMES, 3, 0.5)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise RecipeError(
        f"there is no recipe {name!r}.{hint} There are: {', '.join(NAMES)}; or the path of a file of your own, "
        "my_recipe.py"
    )


def _loaded(path: Path) -> ModuleType:
    """A file as a module; what is beside it can be imported from it."""
    if not path.is_file():
        raise RecipeError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise RecipeError(f"{path} isn't a Python file: its name ends with .py")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        sys.modules.setdefault(path.stem, module)  # for what it pickles, and for data loading in processes
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    return module


def _recipe(name: str, module: ModuleType) -> TrainingRecipe:
    path = Path(str(module.__file__))
    function = getattr(module, "run", None)
    if not callable(function):
        raise RecipeError(f"{path} has no function `run`: copy one of wonderland's, {Path(__file__).parent}")
    parameters = inspect.signature(function).parameters.values()
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        raise RecipeError(f"{path}: `run` takes **options, which it passes to train.fit: def run(epochs=10, **options)")
    without = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    if without:
        raise RecipeError(f"{path}: settings need defaults, which {', '.join(without)} of `run` has not")
    settings = {p.name: p.default for p in parameters if p.kind is not p.VAR_KEYWORD}
    summary = (inspect.getdoc(module) or inspect.getdoc(function) or "").partition("\n")[0]
    return TrainingRecipe(name, path, summary, function, settings)
