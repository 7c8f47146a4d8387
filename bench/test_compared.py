"""What the page on numerical, symbolic and automatic differentiation says, counted at small sizes."""

import math

import numpy as np

from bench import compared


def test_errors_are_ordered_as_the_theory_says():
    curves, of_ad, chosen = compared.errors(np.float32, count=20)
    found = {name: error for name, (_, error) in chosen.items()}
    assert of_ad < 1e-6
    assert found["complex step"] < 1e-6 < found["central difference"] < 1e-4 < found["forward difference"] < 1e-3
    for name, points in curves.items():
        assert min(error for _, error in points) > found[name] / 4


def test_costs_grow_as_the_page_says(monkeypatch):
    monkeypatch.setattr(compared, "best_time", lambda f, x: 1.0)
    counts, _ = compared.costs([4, 8])
    growth = {name: math.log2(points[-1][1] / points[-2][1]) for name, points in counts.items()}
    assert growth["forward difference"] > 2.2  # n + 1 runs of a function of n^2 operations
    assert growth["AD, forward mode"] > 2.2
    assert growth["AD, reverse mode"] < 2
    assert counts["symbolic"][-1][1] > 10 * counts["AD, reverse mode"][-1][1]
    assert counts["symbolic, common parts shared"][-1][1] < 2 * counts["AD, reverse mode"][-1][1]


def test_expressions_swell_and_programs_do_not():
    curves = compared.swell([2, 4, 6])
    assert curves["symbolic"][-1][1] > 7 * curves["symbolic"][-2][1]
    assert curves["AD, reverse mode"][-1][1] - curves["AD, reverse mode"][-2][1] == 16


def test_memory_has_the_notes_shapes():
    forward, reverse = compared.memory()
    assert forward.live[5:-5].max() < 1.3 * forward.live[5:-5].min()
    assert reverse.peak > 3 * forward.peak
    assert 0.45 < reverse.peak_index / len(reverse.live) < 0.65
