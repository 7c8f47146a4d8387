"""The harness itself: pairs are interleaved, results are compared, figures are put into words."""

import numpy as np
import pytest

from bench import measure, registry, report


def test_rounds_alternate_which_contender_is_first(monkeypatch):
    monkeypatch.setattr(measure, "REST", 0.0)
    order = []

    def contender(name, seconds):
        def call():
            order.append(name)
            return seconds

        return call

    result = measure.paired(contender("ours", 1.0), contender("peer", 2.0), rounds=4, self_timed=True)
    assert order == ["ours", "peer", "peer", "ours"] * 2
    assert result["ratios"] == [0.5] * 4
    assert result["ratio"] == {"median": 0.5, "lower": 0.5, "upper": 0.5}


def test_every_turn_is_warmed_up_and_has_the_same_number_of_calls(monkeypatch):
    monkeypatch.setattr(measure, "REST", 0.0)
    clock = iter(np.arange(1000.0))
    monkeypatch.setattr(measure.time, "perf_counter", lambda: float(next(clock)))
    calls = []
    seconds = measure.turn(lambda: calls.append(1), 10, False)
    assert len(calls) == 6 + 10
    assert seconds == 1.0 / 10


def test_repetitions_fill_a_turn(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(measure.time, "perf_counter", lambda: now[0])

    def takes(seconds):
        def call():
            now[0] += seconds

        return call

    assert measure.repetitions(takes(measure.TURN / 50)) == 50
    assert measure.repetitions(takes(10.0)) == 1


def test_contenders_that_disagree_are_found():
    same = lambda: {"a": np.ones(2), "b": (1.0,)}
    measure.check(same, same, 1, 1e-6, 0.0)
    with pytest.raises(AssertionError):
        measure.check(same, lambda: {"a": np.ones(2), "b": (1.1,)}, 1, 1e-6, 0.0)
    with pytest.raises(AssertionError):
        measure.check(same, lambda: {"a": np.ones(2)}, 1, 1e-6, 0.0)
    with pytest.raises(AssertionError, match="call 2"):
        one, other = iter([0.0, 1.0]), iter([0.0, 2.0])
        measure.check(lambda: next(one), lambda: next(other), 2, 1e-6, 0.0)


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.0, "2.00 s"), (0.0154, "15.4 ms"), (274e-6, "274 µs"), (1e-6, "1.00 µs"), (5e-10, "0.50 ns")],
)
def test_seconds(value, text):
    assert report.seconds(value) == text


def test_every_benchmark_has_us_a_peer_and_targets_among_its_peers():
    for benchmark in registry.load().values():
        assert registry.OURS in benchmark.contenders and benchmark.peers
        assert {*benchmark.targets} <= {*benchmark.peers}
