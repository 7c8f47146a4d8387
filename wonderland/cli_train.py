"""`wonderland list` and `wonderland train NAME`: recipes on the command line, and the folder of a run.

A run's folder has `run.json` (the recipe, its settings, whether it is finished), `checkpoints/`, and at the end
`report.html` and the pictures as PNG files.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import re
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import wonderland as wl
from wonderland import data, recipes, train
from wonderland.core.errors import ArgumentError
from wonderland.recipes.catalog import shown
from wonderland.train.formats import duration, number
from wonderland.train.ink import png
from wonderland.train.parallel import ranks
from wonderland.train.reports import write_atomically

RECORD = "run.json"
EXAMPLES = """\
examples:
  wonderland train digits-cnn                            over 99 % in a few seconds; see runs/digits-cnn/report.html
  wonderland train digits-cnn --set epochs=30 --set rate=1e-3 --out runs/longer
  wonderland train digits-cnn --resume                   go on after Ctrl-C, or after the power failed
  wonderland train gpt --text book.txt --config tiny     settings have options of their names, too
  wonderland train my_recipe.py                          a file of your own with a function `run`
  mpiexec -n 2 wonderland train digits-cnn               two processes, each with half of every batch
"""


class Complaint(Exception):
    """What is said without a traceback; nothing else happens."""

    explains_itself = True  # on one of several ranks, too


def add_commands(commands: Any) -> None:
    """The parsers of `list` and `train`."""
    commands.add_parser("list", help="the recipes and their settings")
    parser = commands.add_parser(
        "train", help="train a recipe, and write a report", epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Train a recipe: shows progress, keeps checkpoints, and writes a report with pictures.",
    )  # fmt: skip
    parser.add_argument("name", help=f"a recipe ({', '.join(recipes.names())}), or the path of a file of your own")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], dest="pairs",
                        help="change a setting (may be repeated); `wonderland list` shows them all")  # fmt: skip
    parser.add_argument("--out", metavar="DIR", help="where checkpoints and the report go (runs/NAME)")
    parser.add_argument("--resume", action="store_true",
                        help="go on from the last checkpoint in DIR, with its settings")  # fmt: skip
    parser.add_argument("--overwrite", action="store_true", help="begin anew where an unfinished run is")
    parser.add_argument("--quiet", action="store_true", help="no progress, only the result")


def with_settings(parser: argparse.ArgumentParser, arguments: list[str] | None) -> argparse.Namespace:
    """Arguments, where `train NAME --key value` is `--set key=value`: which keys there are, the recipe knows."""
    chosen, rest = parser.parse_known_args(arguments)
    if rest and chosen.command != "train":
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    while rest:
        option = rest.pop(0)
        key, equals, value = option.removeprefix("--").partition("=")
        if not option.startswith("--") or not (equals or rest):
            parser.error(f"unrecognized argument: {option}; settings are --key value, or --set key=value")
        chosen.pairs.append(f"{key}={value if equals else rest.pop(0)}")
    return chosen


def show_list() -> int:
    """Print the recipes, each with a line and its settings."""
    width = min(100, shutil.get_terminal_size((100, 24)).columns)
    for name in recipes.names():
        recipe = recipes.find(name)
        print(f"{name}\n  {recipe.summary}")
        print(textwrap.fill(recipe.described(), width, initial_indent="    ", subsequent_indent="    ",
                            break_on_hyphens=False))  # fmt: skip
    print("\nwonderland train NAME --set KEY=VALUE runs one. To change more than settings, copy its file:")
    print(f"  {Path(recipe.path).parent}{os.sep}NAME.py")
    return 0


def run(chosen: argparse.Namespace) -> int:
    """The command `wonderland train`; returns the exit code."""
    try:
        with ranks().together() as team:
            try:  # what all ranks find wrong alike: one of them says so, and the job needn't be aborted
                with _complaining(recipes.RecipeError):
                    recipe = recipes.find(chosen.name)
                    settings = recipe.parse(chosen.pairs)
                out = Path(chosen.out or Path("runs") / recipe.name)
                settings, old = _prepared(out, recipe, settings, chosen)
            except Complaint as complaint:
                return _say_complaint(complaint) if team.is_first else 2
            return _run(chosen, team, recipe, settings, out, old)
    except Complaint as complaint:
        return _say_complaint(complaint)


def _say_complaint(complaint: Complaint) -> int:
    print(f"wonderland: {complaint}", file=sys.stderr)
    return 2


def _run(
    chosen: argparse.Namespace, team: train.Ranks, recipe: recipes.TrainingRecipe, settings: dict[str, Any], out: Path,
    old: list[str],
) -> int:  # fmt: skip
    started = time.perf_counter()
    command = _command(chosen.name, recipe, settings, chosen.out)
    first, talks = team.is_first, team.is_first and not chosen.quiet
    team.wait()  # all of them have read the record before it changes
    if first:
        with _complaining(OSError):
            out.mkdir(parents=True, exist_ok=True)

    def begin() -> None:
        """What was there makes place, when all is known to be right and training begins."""
        unfinished = [file.name for file in out.glob("*.*-*.tmp")]  # of a run that was killed while it wrote
        for file in [*old, *unfinished]:  # what a reader would take for results of this run
            (out / file).unlink(missing_ok=True)
        old.clear()
        _record(out, recipe, settings, finished=False)

    if talks:
        print(f"{recipe.name}: {recipe.summary}", flush=True)
    checkpoint = RunCheckpoint(out / "checkpoints", overwrite=not chosen.resume, writes=first)
    checkpoint.beginning = begin
    built_in = recipe.path.parent == Path(recipes.__file__).parent
    try:
        # In a file of the user's own, a mistake is shown with its line.
        errors = (*OURS, ValueError) if built_in else (recipes.RecipeError,)
        with _complaining(*errors, about=_about(recipe, settings)):
            outcome = recipe.run(settings, checkpoint=checkpoint, resume=chosen.resume, progress=talks)
    except KeyboardInterrupt:
        return _interrupted(command, first)
    if outcome.history.stopped == "interrupted":
        return _interrupted(command, first)
    if not first:
        return 0
    begin()  # of a recipe that doesn't train
    seconds = time.perf_counter() - started
    _say_numbers(outcome.numbers, seconds)
    with _complaining(OSError):
        files = write_files(out, recipe, settings, outcome, command, seconds)
    _record(out, recipe, settings, finished=True, files=files)
    if files:
        pictures = ", ".join(name for name in files[1:])
        print(f"\nreport       {out / files[0]}")
        print(textwrap.fill(f"pictures     {pictures} (in {out})", 100, subsequent_indent=" " * 13,
                            break_on_hyphens=False))  # fmt: skip
    else:
        print('\nno report: its pictures need Matplotlib, pip install "wonderland[studio]", then --resume')
    if outcome.history:
        print(f"checkpoints  {checkpoint.folder}")
    return 0


class RunCheckpoint(train.Checkpoint):
    """The checkpoint of a run's folder, which is changed when training begins, and not before."""

    beginning: Callable[[], None]

    def begin(self, run: train.Run) -> None:
        """Put aside what was there."""
        if self.writes:
            self.beginning()
        super().begin(run)


OURS = (
    recipes.RecipeError, ArgumentError, data.DataError, train.CheckpointError, train.NonFiniteError, ImportError,
    OSError,
)  # fmt: skip


@contextlib.contextmanager
def _complaining(*errors: type[BaseException], about: str = ""):
    """Errors that explain themselves, without their tracebacks; what they are about, if they may not know it."""
    try:
        yield
    except errors as error:
        raise Complaint(str(error) if isinstance(error, OURS) else f"{about}{error}") from error


def _about(recipe: recipes.TrainingRecipe, settings: dict[str, Any]) -> str:
    changed = [f"{name}={shown(value)}" for name, value in settings.items()]
    return f"{recipe.name}{' with ' * bool(changed)}{', '.join(changed)}: "


def _interrupted(command: str, first: bool) -> int:
    if first:
        print(f"\ninterrupted. To go on:\n  {command} --resume", flush=True)
    return 130


def _command(name: str, recipe: recipes.TrainingRecipe, settings: dict[str, Any], out: str | None) -> str:
    """What to type for the same again."""
    changed = [f"{k}={shown(v)}" for k, v in settings.items() if v != recipe.settings[k]]
    parts = ["wonderland", "train", name, *(part for pair in changed for part in ("--set", pair))]
    return shlex.join([*parts, *(["--out", out] if out else [])])


# The folder of a run -------------------------------------------------------------------------------------------------


def _prepared(
    out: Path, recipe: recipes.TrainingRecipe, settings: dict[str, Any], chosen: argparse.Namespace
) -> tuple[dict[str, Any], list[str]]:
    """The settings, with those of the run that is resumed, and files of a run before that are to be removed.

    Refuses to destroy a run that isn't finished.
    """
    if out.exists() and not out.is_dir():
        raise Complaint(f"--out {out} is a file: it has to be a folder, or nothing yet")
    try:
        with open(out / RECORD, encoding="utf-8") as file:
            record = json.load(file)
        before, finished = dict(record["settings"]), bool(record["finished"])
        name, files = str(record["recipe"]), [str(file) for file in record["files"]]
    except FileNotFoundError:
        return settings, []
    except OSError as error:
        raise Complaint(f"--out {out} can't be used: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise Complaint(f"{out / RECORD} isn't what wonderland wrote ({error}): choose another --out") from error
    if chosen.resume:
        if name != recipe.name:
            raise Complaint(f"{out} has a run of {name}, which can't go on as {recipe.name}: choose another --out")
        before = {k: tuple(v) if isinstance(v, list) else v for k, v in before.items() if k in recipe.settings}
        return before | settings, []
    if not finished and any((out / "checkpoints").glob("*")) and not chosen.overwrite:
        raise Complaint(
            f"{out} has a run of {name} that isn't finished: --resume goes on with it, --overwrite begins anew, "
            "--out DIR puts this one elsewhere"
        )
    return settings, [file for file in files if os.path.basename(file) == file]


def _record(
    out: Path, recipe: recipes.TrainingRecipe, settings: dict[str, Any], finished: bool, files: list[str] | None = None
):
    with _complaining(OSError):
        out.mkdir(parents=True, exist_ok=True)
        record = {"recipe": recipe.name, "settings": settings, "finished": finished, "files": files or []}
        write_atomically(out / RECORD, json.dumps(record, indent=1, default=str) + "\n")


# What came of it -----------------------------------------------------------------------------------------------------


def said(name: str, value: Any) -> str:
    """A number of an outcome as people read it."""
    return f"{value:.2%}" if "accuracy" in name and isinstance(value, float) else number(value)


def _say_numbers(numbers: dict[str, Any], seconds: float) -> None:
    print()
    width = max((len(name) for name in [*numbers, "seconds"]), default=0)
    for name, value in numbers.items():
        print(f"{name:<{width}}  {said(name, value)}")
    print(f"{'time':<{width}}  {duration(seconds)}")


def write_files(
    out: Path,
    recipe: recipes.TrainingRecipe,
    settings: dict[str, Any],
    outcome: recipes.Outcome,
    command: str,
    seconds: float,
) -> list[str]:
    """The report and the pictures of an outcome in a folder: the names of the files, the report first."""
    if importlib.util.find_spec("matplotlib") is None:
        return []
    figures = outcome.figures()
    files = []
    curves = {"curves": train.pictures.curves(outcome.history)} if outcome.history else {}  # some train nothing
    for name, figure in {**curves, **figures}.items():
        files.append(re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + ".png")
        write_atomically(out / files[-1], png(figure))
        figure.set_layout_engine("none")  # everything has its place now, in the report as well
    facts = {name: said(name, value) if "accuracy" in name else value for name, value in outcome.numbers.items()}
    if outcome.model is not None:
        facts["parameters"] = sum(np.size(leaf) for leaf in outcome.model.parameters())
    if outcome.history:
        facts["epochs"] = len(outcome.history["epoch"])
    facts["time"] = duration(seconds)
    versions = f"wonderland {wl.__version__}, NumPy {np.__version__}, Python {platform.python_version()}"
    every = [{"setting": name, "value": shown(value)} for name, value in (recipe.settings | settings).items()]
    train.report(
        out / "report.html", f"{recipe.name}", outcome.history,
        {name[:1].upper() + name[1:]: figure for name, figure in figures.items()},
        tables={**outcome.tables, "Settings": every}, text=outcome.text or recipe.summary, facts=facts,
        reproduce=f"{command}\n\n# {versions}",
    )  # fmt: skip
    return ["report.html", *files]
