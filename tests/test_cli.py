"""The command line."""

import subprocess
import sys

import numpy as np
import pytest

import wonderland as wl
from wonderland import cli


def test_the_tour_runs_and_shows_what_the_notes_say(capsys, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert cli.main(["tour"]) == 0
    shown = capsys.readouterr().out
    for number in range(1, len(cli.TOUR) + 1):
        assert f"\n{number}. " in shown
    assert "value, tangent = (12.0, 7.0)" in shown
    assert "f(0.51)    = -0.5049" in shown and "linearised = -0.505" in shown
    assert "accuracy    = 100.0%" in shown or "accuracy    = 99" in shown
    assert "\033[" not in shown


def test_colours_are_forced(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    cli.evaluation_trace()
    assert "\033[" in capsys.readouterr().out


def test_version(capsys):
    cli.main(["version"])
    assert capsys.readouterr().out.startswith(f"wonderland {wl.__version__}, NumPy {np.__version__}")


def test_an_unknown_command_lists_the_known_ones(capsys):
    with pytest.raises(SystemExit):
        cli.main(["nonsense"])
    assert "tour" in capsys.readouterr().err


def test_the_list_has_every_recipe_with_its_settings(capsys):
    assert cli.main(["list"]) == 0
    shown = capsys.readouterr().out
    for name in wl.recipes.names():
        assert f"{name}\n  {wl.recipes.find(name).summary}\n" in shown
    assert "hidden=128,64" in shown and "NAME.py" in shown


def test_tokenize(capsys, monkeypatch, tmp_path):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    (tmp_path / "text").write_text("abab abab\n" * 3)
    saved = str(tmp_path / "tokenizer.json")
    assert cli.main(["tokenize", str(tmp_path / "text"), "--vocab-size", "258", "--save", saved, "--show", "3"]) == 0
    first = capsys.readouterr().out
    assert first == "abab| |abab\n12 tokens of 30 bytes, 2.50 bytes each, by BPE(vocab_size=258)\n"
    assert cli.main(["tokenize", str(tmp_path / "text"), "--tokenizer", saved, "--show", "3"]) == 0
    assert capsys.readouterr().out == first
    assert cli.main(["tokenize", str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_help_of_train_has_examples(capsys):
    with pytest.raises(SystemExit) as left:
        cli.main(["train", "--help"])
    assert left.value.code == 0
    shown = capsys.readouterr().out
    assert "--resume" in shown and "digits-cnn --set epochs=30" in shown and "mpiexec -n 2" in shown


def test_as_a_module():
    command = [sys.executable, "-m", "wonderland", "version"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.startswith(f"wonderland {wl.__version__}")
