"""Recipes: each runs and writes its report; settings, errors, resuming, and files of one's own."""

import datetime
import json
import os
import re
import shutil
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import shared_data

import wonderland as wl
from wonderland import cli, cli_train, data, models, nn, recipes, text, train
from wonderland.core.errors import ArgumentError
from wonderland.recipes import drawing, gpt, language, pretext, pretext_tasks
from wonderland.recipes.catalog import converted

SMALL = {
    "digits-mlp": ["hidden=8", "batch_size=256"],
    "digits-cnn": ["batch_size=256"],
    "moons": ["samples=100", "hidden=8"],
    "diabetes": ["hidden=8"],
    "mnist1d": ["model=mlp", "width=1", "batch_size=400"],
    "breast-cancer": [],
    "memorize": ["hidden=8"],
    "gradient-variance": ["hidden=4", "sizes=1,4,16", "draws=50"],
    "digits-patches": ["model=mixer", "layers=1", "width=8", "batch_size=256"],
    "multi-view": ["views=2", "width=8", "batch_size=256"],
    "gpt": ["steps=2", "text=story.txt"],
    "masked-lm": ["text=story.txt", "context=8", "layers=1", "heads=2", "width=8", "batch_size=8"],
    "text-cnn": ["packages=xml,email", "words=8", "width=4", "filters=2"],
    "seq2seq": ["samples=64", "heads=2", "width=8"],
    "vocabulary": ["text=story.txt", "sizes=256,260,270"],
    "transformer-cost": ["contexts=8,16", "widths=8,16", "context=8", "width=8", "layers=1"],
    "sudoku": ["samples=12", "batch_size=9", "rules=8"],
    "vae-digits": ["hidden=8", "batch_size=256"],
    "diffusion": ["width=4", "batch_size=400", "steps=3", "samples=20"],
    "simclr-digits": ["width=2", "batch_size=256", "draws=2", "label_epochs=1"],
    "masked-digits": ["width=2", "batch_size=256", "draws=1", "label_epochs=1"],
}
PICTURES = {
    "digits-mlp": ["confusion-matrix", "reliability-diagram", "first-layer-filters", "worst-mistakes"],
    "digits-cnn": ["confusion-matrix", "reliability-diagram", "first-layer-filters", "worst-mistakes"],
    "moons": ["confusion-matrix", "reliability-diagram", "decision-boundary"],
    "diabetes": ["residuals"],
    "mnist1d": ["confusion-matrix", "reliability-diagram", "worst-mistakes"],
    "breast-cancer": ["confusion-matrix", "reliability-diagram", "weights"],
    "memorize": ["generalisation-gap"],
    "gradient-variance": ["gradient-variance"],
    "transformer-cost": ["cost"],
    "gpt": ["attention-of-the-first-layer", "attention-of-the-last-layer", "attention-of-all-layers", "embedding"],
    "digits-patches": ["confusion-matrix", "reliability-diagram", "first-layer-filters", "worst-mistakes"],
    "multi-view": ["accuracy-by-views", "views"],
    "masked-lm": ["hidden-tokens"],
    "text-cnn": ["confusion-matrix", "reliability-diagram"],
    "seq2seq": ["dates-without-a-mistake", "where-the-decoder-looks"],
    "vocabulary": ["tokens-against-the-vocabulary", "characters-in-a-token"],
    "sudoku": [],
    "vae-digits": ["latent-space", "plane-of-codes", "reconstructions", "samples"],
    "diffusion": ["samples", "trajectory", "memorisation"],
    "simclr-digits": ["few-labels", "views", "embeddings", "neighbours"],
    "masked-digits": ["few-labels", "task", "embeddings", "neighbours"],
}
UNTRAINED = ("transformer-cost", "vocabulary")
FILES = {"gpt": ["model.safetensors"], "diffusion": ["trajectory.gif"]}  # besides
STORY = "The mouse ran up the clock.\nThe clock struck one, and down it ran.\n" * 12
OWN = '''"""A line through points."""

import numpy as np

from wonderland import nn, train


def run(epochs=2, batch_size=8, rate=0.1, **options):
    x = np.linspace(-1, 1, 32, dtype=np.float32)[:, None]
    model = nn.Sequential(nn.Linear(1, 1))

    def loss(model, x, y):
        return nn.mse_loss(model(x), y)

    return train.fit(model, loss, train.Adam(model, rate), (x, 3 * x), epochs=epochs, batch_size=batch_size, **options)
'''


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("story.txt").write_text(STORY)


@pytest.fixture(autouse=True)
def roughly_placed(monkeypatch, request):
    """Pictures are drawn once, and not twice more to find a place for everything; those of one recipe are, for all."""
    if "digits-mlp" not in request.node.name:
        monkeypatch.setattr("matplotlib.figure.Figure.get_layout_engine", lambda self: None)


@pytest.fixture
def small_gpt(monkeypatch):
    monkeypatch.setitem(gpt.CONFIGS, "tiny", (2, 2, 8, 8, 2, 0, 2e-3))


@pytest.fixture
def own():
    path = Path("my_line.py")
    path.write_text(OWN)
    return str(path)


def command(*arguments):
    return cli.main(["train", *arguments])


def complaint(capsys, *arguments):
    assert command(*arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("wonderland: ") and "Traceback" not in said
    return said


# Each of them --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_gpt")
@pytest.mark.parametrize("name", SMALL)
def test_a_recipe_runs_and_writes_its_report(name, capsys):
    trained = name not in UNTRAINED
    pairs = [part for pair in [*["epochs=1"] * trained, *SMALL[name]] for part in ("--set", pair)]
    assert command(name, *pairs, "--quiet", "--out", "out") == 0
    shown = capsys.readouterr()
    assert "epoch" not in shown.err and os.path.join("out", "report.html") in shown.out
    files = {path.name for path in Path("out").iterdir()}
    pictures = {f"{p}.png" for p in PICTURES[name]}
    training = {"checkpoints", "curves.png"} if trained else set()
    assert files == {"report.html", "run.json", *training, *pictures, *FILES.get(name, ())}
    for path in Path("out").glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert f"<h1>{name}</h1>" in page and "wonderland train" in page
    assert not re.search(r'(src|href)="(?!data:|#)', page)  # it needs nothing else
    assert json.loads(Path("out/run.json").read_text())["finished"] is True


def test_all_recipes_are_here_and_of_one_screen():
    assert recipes.names() == [*SMALL]
    for name in recipes.names():
        recipe = recipes.find(name)
        assert recipe.summary.endswith(".") and recipe.settings["seed"] == 0
        assert ("epochs" in recipe.settings) == (name not in UNTRAINED)
        assert len(recipe.path.read_text(encoding="utf-8").splitlines()) <= 60


@pytest.mark.usefixtures("small_gpt")
def test_gpt_is_trained_by_options_resumed_and_sampled(capsys, monkeypatch):
    """Settings are options of their own; a run that is resumed is that of one piece; what it keeps writes text."""
    monkeypatch.setattr(cli_train, "write_files", lambda *_: [])  # pictures, which take longest, as without Matplotlib
    small = ["--text", "story.txt", "--steps", "2", "--batch-size=2", "--vocab-size", "260", "--quiet"]
    assert command("gpt", *small, "--epochs", "2", "--out", "whole") == 0
    assert command("gpt", *small, "--epochs", "1", "--out", "parts") == 0
    assert command("gpt", *small, "--epochs", "2", "--out", "parts", "--resume", "--set", "rate=0.001") == 0
    ended = [text.LanguageModel.load(f"{run}/model.safetensors") for run in ("whole", "parts")]
    assert ended[0].tokenizer == ended[1].tokenizer and ended[0].tokenizer.vocab_size == 260
    capsys.readouterr()
    assert cli.main(["sample", "parts", "--prompt", "The ", "--count", "9", "--seed", "1"]) == 0
    first = capsys.readouterr()
    assert first.out.startswith("The ") and "tokens/s" in first.err
    assert cli.main(["sample", "parts/model.safetensors", "--prompt", "The ", "--count", "9", "--seed", "1"]) == 0
    assert capsys.readouterr().out == first.out
    for wrong, said in ((["nowhere"], "there is no nowhere"), (["parts", "--top-p", "2"], "top_p is a probability")):
        assert cli.main(["sample", *wrong]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("settings", [{"data": "moons"}, {"data": "digits", "words": True}])
def test_diffusion_makes_other_data(settings):
    """Each kind of data, a training too short to be good: what it tells is there, and pictures are drawn."""
    small = {"epochs": 1, "width": 4, "batch_size": 200, "steps": 3, "samples": 20, **settings}
    found = recipes.find("diffusion").run(small, progress=False)
    images = settings["data"] == "digits"
    named = {"as asked, accuracy", "illusions that are both, accuracy"} if images else {"sliced Wasserstein"}
    assert named < {*found.numbers} and np.all(np.isfinite([*found.numbers.values()]))
    assert {*found.figures()} == {"samples", "trajectory", "memorisation", *["illusions"] * images}
    with pytest.raises(recipes.RecipeError, match="data is swissroll, moons, digits, mnist, not 'cats'"):
        recipes.find("diffusion").run({"data": "cats"})
    with pytest.raises(recipes.RecipeError, match="--folder DIR"):
        recipes.find("diffusion").run({"data": "mnist"})


@pytest.mark.slow
def test_diffusion_makes_digits_as_asked():
    """A classifier of real digits sees what was asked for; upside down, half of the illusions are another digit."""
    found = recipes.find("diffusion").run({"data": "digits"}, progress=False).numbers
    assert found["the classifier's test accuracy"] > 0.98 and found["as asked, accuracy"] >= 0.95
    assert found["illusions that are both, accuracy"] >= 0.5
    assert found["memorisation (1 is none)"] > 0.5 and found["copies"] == 0
    assert found["diversity (1 is that of data)"] > 0.5


def test_a_text_of_one_line_with_a_mark(tmp_path, capsys):
    """Samples need no new line, a mark of UTF-8 is no character of the text; a wrong prompt isn't shown."""
    (tmp_path / "line.txt").write_bytes(b"\xef\xbb\xbfno end")
    whole = language.read_text(str(tmp_path / "line.txt"))
    assert whole == "no end"
    tokenizer = text.Characters.train(whole)
    writer = text.LanguageModel(models.GPT(tokenizer.vocab_size, 8, 1, 1, 4), tokenizer)
    shown = language.ShowSamples(writer, tmp_path / "checkpoints", count=3)
    shown.after_epoch(SimpleNamespace(epoch=1, step=1, progress=None, ranks=SimpleNamespace(is_first=True)))
    assert len(shown.samples) == 1
    assert cli.main(["sample", str(tmp_path), "--prompt", "Zug"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and "the text has 'Z'" in said.err


def test_sizes_that_a_recipe_of_text_refuses(capsys):
    for name, pairs, said in (
        ("masked-lm", ["context=0"], "the context is a number of tokens, at least 1, not 0"),
        ("masked-lm", ["context=100000"], "a context of 100000 takes 100001: give a longer text"),
        ("transformer-cost", ["contexts=8"], "two sizes or more are compared"),
        ("transformer-cost", ["widths=0,8"], "two sizes or more are compared"),
    ):
        settings = [part for pair in pairs for part in ("--set", pair)]
        assert said in complaint(capsys, name, *settings, "--out", "out")


@pytest.mark.slow
def test_gpt_learns_shakespeare():
    """nanoGPT's configuration for a CPU, for which its README says 1.88."""
    path = shared_data.file("tinyshakespeare.txt")
    found = recipes.find("gpt").run({"text": str(path)}, progress=False)
    assert found.numbers["tokens"] == 65 and found.numbers["validation loss"] < 1.88


def test_gpt_says_what_is_wrong_with_its_text_or_settings(capsys):
    assert "config is tiny, small, gpt2, not 'huge'" in complaint(capsys, "gpt", "--config", "huge")
    assert "text=nowhere.txt can't be read" in complaint(capsys, "gpt", "--text", "nowhere.txt")
    Path("empty.txt").write_text(" ")
    assert "text=empty.txt is empty" in complaint(capsys, "gpt", "--text", "empty.txt")
    assert "gpt has no setting 'layer'" in complaint(capsys, "gpt", "--layer", "3")
    with pytest.raises(SystemExit):
        command("gpt", "--text")
    assert "unrecognized argument: --text" in capsys.readouterr().err


def test_tokens_are_those_of_vocabularies_that_were_learnt_alone():
    outcome = recipes.find("vocabulary").run({"text": "story.txt", "sizes": (256, 262, 280)})
    known = STORY[: 9 * len(STORY) // 10]
    for size in (256, 262, 280):
        alone = text.BPE.train(known, size)
        assert outcome.numbers[f"tokens of {size}"] == len(alone.encode(known))
    assert {row["tokenizer"] for row in outcome.tables["Tokenizers"]} == {"byte pairs", "characters", "words"}
    with pytest.raises(recipes.RecipeError, match="sizes are 256, one for each byte, or more"):
        recipes.find("vocabulary").run({"text": "story.txt", "sizes": (100,)})


def test_the_packages_of_the_text_cnn_are_python_s(capsys):
    assert "'nowhere' isn't a module with a source" in complaint(capsys, "text-cnn", "--packages", "xml,nowhere")


def test_days_are_written_in_two_ways():
    from wonderland.recipes.dates import dates

    written, iso = dates(300, 0)
    assert len({*iso}) == 300 and min(iso) >= "1900-01-01" and max(iso) <= "2099-12-31"
    for said, day in zip(written, iso, strict=True):
        year, month, number = map(int, day.split("-"))
        found = [int(part) for part in re.findall(r"\d+", said)]
        assert year in found and number in found
        assert month in found or datetime.date(year, month, number).strftime("%b") in said
    assert (written, iso) == dates(300, 0) != dates(300, 1)


def test_naive_bayes_is_the_formula():
    bayes = recipes.find("text-cnn").function.__globals__["naive_bayes"]
    tokens, labels = np.array([[1, 2, 0], [1, 1, 0], [3, 3, 2]]), np.array([0, 0, 1])
    # p(k) times (1 + count of each token) / (number of tokens and of those added), zeros left out
    assert bayes(tokens, labels, np.array([[1, 0, 0], [3, 3, 0], [2, 0, 0]]), 4).tolist() == [0, 1, 0]


def test_the_look_up_table_is_right_on_what_it_has_seen_only():
    known = data.Arrays(np.arange(6.0).reshape(3, 2), np.array([2, 1, 2]))
    table = wl.recipes.find("memorize").function.__globals__["look_up"](known)
    np.testing.assert_array_equal(table(known[:][0]), [2, 1, 2])
    np.testing.assert_array_equal(table(known[:][0] + 1e-9), [0, 0, 0])


def test_the_variance_of_gradients_is_that_of_one_sample_over_the_batch_size():
    numbers = (
        recipes.find("gradient-variance")
        .run({"hidden": 4, "epochs": 1, "sizes": (1, 8, 64), "draws": 1000}, progress=False)
        .numbers
    )
    assert numbers["power of the batch size"] == pytest.approx(-1, abs=0.03)
    assert numbers["largest distance from 1/B"] < 0.15


def test_views_of_a_digit():
    seen = recipes.find("multi-view").function.__globals__["views_of"](3, 0.1, 30.0, 2)
    images, labels = np.ones((200, 1, 8, 8), np.float32), np.arange(200) % 10
    views, mask, same = seen((images, labels), np.random.default_rng(0))
    assert views.shape == (200, 3, 1, 8, 8) and views.dtype == np.float32
    assert {*mask.sum(1)} == {1, 2, 3} and mask[:, 0].all()
    np.testing.assert_array_equal(same, labels)
    assert np.abs(views[:, 0] - views[:, 1]).reshape(200, -1).max(1).min() > 0.1


def test_questions_whose_answers_are_in_the_images():
    """What is asked, by hand: hidden patches are whole, and a digit turned back is the digit; some are refused."""
    images = np.random.default_rng(0).random((300, 1, 8, 8)).astype(np.float32)
    rng = np.random.default_rng(1)
    seen, answer, mask = pretext_tasks.question("masked", 0.25, 1.0)((images, None), rng)
    assert answer is images and seen.dtype == np.float32
    assert np.all(seen[mask] == 0) and np.all(seen[~mask] == images[~mask])
    patches = mask.reshape(300, 4, 2, 4, 2)
    assert np.all(patches == patches[:, :, :1, :, :1]) and abs(patches.mean() - 0.25) < 0.03
    seen, answer, mask = pretext_tasks.question("denoising", 0.5, 0.3)((images, None), rng)
    assert answer is images and mask.all() and np.std(seen - images) == pytest.approx(0.3, rel=0.03)
    seen, turns, mask = pretext_tasks.question("rotation", 0.5, 1.0)((images, None), rng)
    assert {*turns} == {0, 1, 2, 3} and mask.all()
    for image, turned, k in zip(images, seen, turns, strict=True):
        for _ in range(4 - k):
            turned = turned[0].T[::-1][None]  # a quarter more makes it whole
        np.testing.assert_array_equal(turned, image)
    for wrong, said in (
        (("jigsaw", 0.5, 1.0), "masked, denoising, rotation, not 'jigsaw'"),
        (("masked", 0.0, 1.0), "not 0.0 and 1.0"),
        (("denoising", 0.5, 0.0), "not 0.5 and 0.0"),
    ):
        with pytest.raises(recipes.RecipeError, match=said):
            pretext_tasks.question(*wrong)


def test_few_labels_are_as_many_of_each_class():
    training, test, draws = pretext.read(3, 7, 4)
    known = training[:][1]
    assert len(training) + len(test) == 1797 and len(draws) == 4
    for some in draws:
        assert np.bincount(known[some]).tolist() == [7] * 10 and len({*some}) == 70
    assert len({tuple(some) for some in draws}) == 4
    np.testing.assert_array_equal(pretext.read(3, 7, 2)[2][1], draws[1])  # more draws don't change the first ones
    for labels, count in ((0, 1), (500, 1), (10, 0)):
        with pytest.raises(recipes.RecipeError, match=f"not {labels} and {count}"):
            pretext.read(0, labels, count)


def test_answers_are_judged_on_new_digits():
    """A network that says what it sees leaves the noise as it is; the mean digit leaves the variance around it."""
    training, test, _ = pretext.read(0, 1, 1)
    ask = pretext_tasks.question("denoising", 0.5, 0.3)
    found, figures = pretext_tasks.judged("denoising", nn.Sequential(nn.Identity()), ask, training, test, 0)
    assert found["squared error of a pixel"] == pytest.approx(0.09, rel=0.03)
    known, new = training[:][0], test[:][0]
    assert found["that of the mean digit"] == pytest.approx(np.mean((new - known.mean(0)) ** 2), rel=1e-5)
    assert [*figures()] == ["task"]


def test_masked_digits_finds_the_way_up():
    """Too short to be good, but better than one in four; all ways to use two labels are there."""
    small = {"task": "rotation", "epochs": 2, "width": 2, "batch_size": 32, "draws": 1, "label_epochs": 1, "labels": 2}
    found = recipes.find("masked-digits").run(small, progress=False)
    assert found.numbers["accuracy of turns"] > 0.3
    ways = {row["way"] for row in found.tables["With 2 labels a class"]}
    pixels = {"pixels, linear head", "pixels, nearest neighbour"}
    assert ways == {pretext.FROZEN, pretext.TUNED, pretext.SCRATCH, *pixels}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_ten_labels_are_worth_more_after_self_supervision(seed):
    """A frozen backbone that has seen digits without labels, against the same network from scratch."""
    found = recipes.find("simclr-digits").run({"seed": seed}, progress=False).numbers
    assert found["accuracy, frozen backbone, linear head"] > 0.95
    assert found["margin of accuracy"] > 0.01
    assert found["precision at 10, embeddings"] > 0.95 > 0.93 > found["precision at 10, pixels"]


@pytest.mark.parametrize(
    "name", ["vit", "gmlp", "s2mlp", "monet", "pool", "fourier", "convolution", "shift", "attention"]
)
def test_digits_as_patches_by_name(name):
    network = recipes.find("digits-patches").function.__globals__["mixed"](name, 1, 8)
    with nn.evaluating(network):
        assert network(np.zeros((2, 1, 8, 8), np.float32)).shape == (2, 10)


def test_outcomes_are_those_of_numpy():
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(40, 2)).astype(np.float32), rng.integers(3, size=40)
    model = nn.Sequential(nn.Linear(2, 3))
    found = recipes.classification(model, train.History(), data.Arrays(x, labels), numbers={"more": 1}).numbers
    logits = np.asarray(model(x), float)
    assert found["test accuracy"] == np.mean(np.argmax(logits, 1) == labels) and found["more"] == 1
    log = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    assert found["test cross-entropy"] == pytest.approx(-np.mean(log[np.arange(40), labels]), rel=1e-5)

    model = nn.Sequential(nn.Linear(2, 1), nn.Flatten(0))
    target = (10 + 5 * rng.normal(size=40)).astype(np.float32)
    scale = data.Standardize(field=1).fit(data.Arrays(x, target))
    found = recipes.regression(model, train.History(), scale(data.Arrays(x, target)), scale=scale).numbers
    error = np.asarray(model(x), float) * target.std() + target.mean() - target
    assert found["root mean square error"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-4)
    assert found["test R²"] == pytest.approx(1 - np.mean(error**2) / target.var(), rel=1e-4)


def test_outcomes_refuse_models_of_other_outputs():
    test = data.Arrays(np.zeros((4, 2), np.float32), np.zeros(4, np.float32))
    with pytest.raises(ArgumentError, match=r"\(4, 1\) for targets of shape \(4,\)"):
        recipes.regression(nn.Sequential(nn.Linear(2, 1)), train.History(), test)
    with pytest.raises(ArgumentError, match=r"\(inputs, targets\)"):
        recipes.regression(nn.Sequential(nn.Linear(2, 1)), train.History(), data.Arrays(np.zeros((4, 2))))


def test_filters_of_the_first_layer():
    linear = nn.Sequential(nn.Flatten(), nn.Linear(6, 4))
    found = drawing.first_filters(linear, (1, 2, 3))
    image = np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3)
    expected = np.asarray(linear(image) - linear(0 * image))[0]
    np.testing.assert_allclose(np.sum(found * image, (1, 2, 3)), expected, rtol=1e-5)
    assert drawing.first_filters(linear, (6,)) is None
    assert drawing.first_filters(nn.Sequential(nn.Conv1d(1, 3, 5)), (1, 40)).shape == (3, 1, 5)


def test_without_mistakes_the_least_sure_are_shown():
    images, labels = np.random.default_rng(0).random((3, 1, 4, 4)), np.array([0, 1, 1])
    probabilities = np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]])
    figure = train.pictures.mistakes(images, labels, labels, probabilities)
    assert [ax.get_title().split()[-1] for ax in figure.axes] == ["60%", "80%", "90%"]
    assert figure.get_suptitle().startswith("no mistakes among 3, the least sure")


# Settings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "default", "value"),
    [
        ("3", 1, 3), ("1_000", 1, 1000), ("1e-3", 0.1, 0.001), ("2", 0.1, 2.0), ("yes", False, True),
        ("False", True, False), ("128,64", (1,), (128, 64)), ("(128, 64)", (1,), (128, 64)), ("", (1,), ()),
        ("0.5,1", (0.1,), (0.5, 1.0)), ("mlp", "cnn", "mlp"),
    ],
)  # fmt: skip
def test_texts_become_what_the_default_is(text, default, value):
    found = converted(text, default)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(("text", "default"), [("1.5", 1), ("x", 0.1), ("maybe", True), ("1,x", (1,)), ("", 1)])
def test_other_texts_are_refused(text, default):
    with pytest.raises(ValueError):
        converted(text, default)


def test_errors_of_settings_and_names(capsys):
    said = complaint(capsys, "digits-cn")
    assert "Did you mean digits-cnn" in said and "mnist1d" in said
    said = complaint(capsys, "moons", "--set", "epoch=3")
    assert "Did you mean epochs?" in said and "noise=0.2" in said
    assert "whole number" in complaint(capsys, "moons", "--set", "epochs=many")
    assert "key=value" in complaint(capsys, "moons", "--set", "epochs")
    assert "cnn or mlp, not 'rnn'" in complaint(capsys, "mnist1d", "--set", "model=rnn")
    assert "one of vit, mixer" in complaint(capsys, "digits-patches", "--set", "model=cnn")
    assert "out_channels=0" in complaint(capsys, "digits-patches", "--set", "model=pool", "--set", "width=0")
    assert "at least 1, not 0" in complaint(capsys, "multi-view", "--set", "views=0")
    assert "at least 1, not 0" in complaint(capsys, "moons", "--set", "epochs=0", "--overwrite")
    assert "no file missing.py" in complaint(capsys, "missing.py")
    Path("file").write_text("")
    assert "is a file" in complaint(capsys, "moons", "--out", "file")


# Files of one's own --------------------------------------------------------------------------------------------------


def test_a_file_of_ones_own(own, capsys):
    assert command(own, "--set", "epochs=3", "--out", "out") == 0
    assert "my-line: A line through points." in capsys.readouterr().out
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert "wonderland train my_line.py --set epochs=3 --out out" in page
    assert recipes.find(own).settings == {"epochs": 2, "batch_size": 8, "rate": 0.1}


def test_a_copied_recipe_is_the_recipe():
    shutil.copy(recipes.find("moons").path, "mine.py")
    settings = {"samples": 100, "hidden": 4, "epochs": 2}
    first, second = (recipes.find(name).run(settings, progress=False) for name in ("moons", "mine.py"))
    np.testing.assert_array_equal(first.history["loss"], second.history["loss"])
    assert first.numbers == second.numbers


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "no function `run`"),
        ("def run(epochs=1): pass", r"\*\*options"),
        ("def run(epochs, **options): pass", "need defaults, which epochs"),
        ("def run(epochs=1, **options): pass", "returned nothing"),
        ("def run(epochs=1, **options): return 3", "returned a int"),
    ],
)
def test_files_that_are_no_recipes(text, said, capsys):
    Path("wrong.py").write_text(text)
    assert re.search(said, complaint(capsys, "wrong.py"))


def test_a_mistake_in_ones_own_file_has_its_traceback(own):
    Path(own).write_text(OWN.replace("3 * x)", "3 * y)"))
    with pytest.raises(NameError):
        command(own)


# Runs that end early -------------------------------------------------------------------------------------------------


class StopAfter(train.Callback):
    """As Ctrl-C, after some steps."""

    def __init__(self, steps):
        self.steps = steps

    def after_step(self, run):
        if run.step == self.steps:
            signal.raise_signal(signal.SIGINT)


def with_callback(path, steps):
    """The user's file with such a callback; once it is resumed, it stops no more."""
    line = f"    options['callbacks'] = [StopAfter(0 if options['resume'] else {steps})]\n"
    text = OWN.replace("    x =", line + "    x =") + f"\n\nfrom {__name__} import StopAfter\n"
    Path(path).write_text(text)


def weights(folder):
    model = nn.Sequential(nn.Linear(1, 1))
    train.Checkpoint(Path(folder) / "checkpoints").restore(model)
    return np.concatenate([np.ravel(p) for p in model.parameters()])


def test_resume_is_as_if_nothing_had_happened(own, capsys):
    assert threading.current_thread() is threading.main_thread()
    wl.random.seed(0)
    assert command(own, "--set", "epochs=4", "--quiet", "--out", "whole") == 0
    with_callback(own, 6)  # in the second epoch of four steps each
    wl.random.seed(0)
    assert command(own, "--set", "epochs=4", "--quiet", "--out", "halves") == 130
    said = capsys.readouterr().out
    assert "wonderland train my_line.py --set epochs=4 --out halves --resume" in said
    assert not Path("halves/report.html").exists()

    assert "isn't finished: --resume" in complaint(capsys, own, "--out", "halves")
    assert command(own, "--quiet", "--out", "halves", "--resume") == 0  # with the settings that it had
    np.testing.assert_array_equal(weights("whole"), weights("halves"))
    assert json.loads(Path("halves/run.json").read_text())["settings"] == {"epochs": 4}


def test_what_resume_refuses(own, capsys):
    assert command(own, "--quiet", "--out", "out") == 0
    assert "has a run of my-line" in complaint(capsys, "moons", "--out", "out", "--resume")
    Path("out/run.json").write_text("{")
    assert "isn't what wonderland wrote" in complaint(capsys, own, "--out", "out", "--quiet")


def test_a_finished_run_is_replaced_and_its_pictures_with_it(own):
    assert (
        command("moons", "--set", "epochs=1", "--set", "samples=100", "--set", "hidden=4", "--quiet", "--out", "out")
        == 0
    )
    assert Path("out/decision-boundary.png").exists()
    Path("out/notes.png").write_text("the user's own")
    assert command(own, "--quiet", "--out", "out") == 0
    assert {path.name for path in Path("out").glob("*.png")} == {"curves.png", "notes.png"}


def test_a_wrong_setting_leaves_a_finished_run_as_it_was(capsys):
    small = ["train", "moons", "--quiet", "--set", "samples=100", "--set", "hidden=4"]
    assert cli.main([*small, "--set", "epochs=1"]) == 0
    folder = Path("runs/moons")
    before = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    capsys.readouterr()
    for wrong in ("epochs=-1", "rate=-1", "seed=-1", "hidden=0"):
        assert cli.main([*small, "--set", wrong]) == 2
        said = capsys.readouterr().err
        assert said.startswith("wonderland: ") and "Traceback" not in said
        assert wrong.partition("=")[0] in said
        assert before == {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_folder_below_a_file(capsys):
    Path("file").write_text("")
    assert cli.main(["train", "moons", "--out", "file/below"]) == 2
    assert "--out file/below can't be used" in capsys.readouterr().err


def test_a_disk_that_is_full_for_the_pictures(own, capsys, monkeypatch):
    real = os.replace

    def full(source, target):
        if str(target).endswith("curves.png"):
            raise OSError(28, "No space left on device")
        real(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        said = complaint(capsys, own, "--out", "out", "--quiet")
    assert "curves.png can't be written (No space left on device)" in said
    assert sorted(os.listdir("out")) == ["checkpoints", "run.json"]  # nothing of half a picture
    Path("out/curves.png.77-abcdef01.tmp").write_bytes(b"half of a")  # by one that was killed then
    assert command(own, "--out", "out", "--resume") == 0
    assert sorted(os.listdir("out")) == ["checkpoints", "curves.png", "report.html", "run.json"]
