"""The harness itself: contenders are interleaved, results are compared, figures are judged and put into words."""

import numpy as np
import pytest

from bench import lower_bound, measure, registry, report
from bench.registry import OURS


def test_rounds_alternate_which_contender_is_first(monkeypatch):
    monkeypatch.setattr(measure, "REST", 0.0)
    order = []

    def contender(name, seconds):
        def call():
            order.append(name)
            return seconds

        return call

    seconds = {OURS: 1.0, "peer": 2.0, "third": 0.5}
    calls = {name: measure.Timed(contender(name, each), self_timed=True) for name, each in seconds.items()}
    result = measure.interleaved(calls, OURS, rounds=3)
    assert order[3:] == [OURS, "peer", "third", "peer", "third", OURS, "third", OURS, "peer"]
    assert result["ratios"]["peer"] == {"median": 0.5, "lower": 0.5, "upper": 0.5, "all": [0.5] * 3}
    assert result["times"]["third"]["median"] == 0.5 and result["rounds"] == 3


def test_every_turn_is_warmed_up_and_has_the_same_number_of_calls(monkeypatch):
    monkeypatch.setattr(measure, "REST", 0.0)
    clock = iter(np.arange(1000.0))
    monkeypatch.setattr(measure.time, "perf_counter", lambda: float(next(clock)))
    calls = []
    seconds = measure.Timed(lambda: calls.append(1)).turn(10, 0.0)
    assert len(calls) == 6 + 10
    assert seconds == 1.0 / 10


def simulated(monkeypatch):
    """A clock that only calls move, and a maker of calls that take so many seconds."""
    monkeypatch.setattr(measure, "REST", 0.0)
    now = [0.0]
    monkeypatch.setattr(measure.time, "perf_counter", lambda: now[0])

    def takes(seconds):
        def call():
            now[0] += seconds

        return call

    return takes


def test_repetitions_fill_a_turn(monkeypatch):
    takes = simulated(monkeypatch)
    assert measure.repetitions(takes(measure.TURN / 50)) == (50, pytest.approx(measure.TURN / 50))
    assert measure.repetitions(takes(10.0)) == (1, 10.0)


def test_slow_benchmarks_have_fewer_rounds_and_a_hopeless_peer_one(monkeypatch):
    takes = simulated(monkeypatch)
    timed = {seconds: measure.Timed(takes(seconds)) for seconds in (0.01, 0.02, 0.5, 9.0)}
    result = measure.interleaved({OURS: timed[0.5], "peer": timed[0.5]}, OURS, rounds=100)
    assert result["rounds"] == measure.BUDGET and result["timed_once"] == []
    result = measure.interleaved({OURS: timed[0.01], "peer": timed[0.02], "slow": timed[9.0]}, OURS, rounds=7)
    assert result["rounds"] == 7 and result["timed_once"] == ["slow"]
    assert result["times"]["slow"]["median"] == pytest.approx(9.0)
    assert result["ratios"]["slow"]["median"] == pytest.approx(0.01 / 9.0)


def test_contenders_that_disagree_are_found():
    def outcomes(*values, calls=1):
        return measure.outcomes(lambda: {"a": np.ones(2), "b": values}, calls)

    measure.check(outcomes(1.0), outcomes(1.0), 1e-6, 0.0)
    with pytest.raises(AssertionError):
        measure.check(outcomes(1.0), outcomes(1.1), 1e-6, 0.0)
    with pytest.raises(AssertionError, match="returns 2 arrays"):
        measure.check(outcomes(1.0), outcomes(), 1e-6, 0.0)
    with pytest.raises(AssertionError, match="float32"):
        measure.check(outcomes(1.0), outcomes(np.float32(1.0)), 1e-6, 0.0)
    with pytest.raises(AssertionError, match="call 2"):
        one, other = iter([0.0, 1.0]), iter([0.0, 2.0])
        ours, peers = (measure.outcomes(lambda it=it: next(it), 2) for it in (one, other))
        measure.check(ours, peers, 1e-6, 0.0)


def test_results_are_copied_before_the_next_call_overwrites_them():
    state = np.zeros(1)

    def call():
        state[:] += 1
        return state

    assert [float(leaf[0]) for (leaf,) in measure.outcomes(call, 3)] == [1.0, 2.0, 3.0]


def test_axes_move_when_results_are_compared():
    channels_last = np.arange(24.0).reshape(2, 3, 4)
    (leaf,) = measure.leaves(measure.Moved(channels_last, -1, 1))
    np.testing.assert_array_equal(leaf, channels_last.transpose(0, 2, 1))


def test_the_parts_of_a_profile_add_up_to_the_call():
    class Profile:
        seconds = 10.0
        steps = [
            (0, "product 2x3 by 3x4, float32, then on its rows\n  kernel over [2, 4]", 1.0, 4.0),
            (0, "8 products 2x3 by 3x4, float32", 1.0, 1.0),
            (0, "loop of 3 turns", 1.0, 3.0),
            (1, "kernel over [4]: elementwise", 3.0, 2.5),
            (0, "kernel over [2, 4]: elementwise", 1.0, 1.5),
        ]

    parts = lower_bound.parts(Profile, 2.0)
    assert sum(parts.values()) == Profile.seconds
    assert parts == {
        lower_bound.AT_PEAK: 2.0,
        lower_bound.REST: 3.0,
        "loop": 3.0,
        "other kernels": 1.5,
        lower_bound.CALL: 0.5,
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.0, "2.00 s"), (0.0154, "15.4 ms"), (274e-6, "274 µs"), (1e-6, "1.00 µs"), (5e-10, "0.50 ns")],
)
def test_seconds(value, text):
    assert report.seconds(value) == text


@pytest.fixture
def benchmark_with(monkeypatch):
    """A maker of benchmarks that leave the table alone."""
    monkeypatch.setattr(registry, "BENCHMARKS", {})

    def make(**limits):
        made = registry.Benchmark("a", "group", "about", **limits)
        for name in (OURS, "numpy", "jax"):
            made.contender(name)(lambda: lambda: None)
        return made

    return make


def measured(ours=1.0, **peers):
    times = {OURS: ours, **peers}
    return {
        "times": {name: {"median": t, "lower": t, "upper": t} for name, t in times.items()},
        "ratios": {name: {"median": ours / t, "lower": ours / t, "upper": ours / t} for name, t in peers.items()},
    }


def test_the_best_peer_decides(benchmark_with):
    record = measured(1.0, numpy=4.0, jax=1.25)
    assert report.judge(benchmark_with(limit=0.9), record) == {"peer": "jax", "limit": 0.9, "verdict": "met"}


def test_a_limit_missed_with_one_peer_is_missed(benchmark_with):
    record = measured(1.0, numpy=4.0, jax=1.25)
    assert report.judge(benchmark_with(limit=0.7), record)["verdict"] == "MISS"


def test_the_target_that_is_nearest_decides(benchmark_with):
    record = measured(1.0, numpy=2.0, jax=1.25)
    judged = report.judge(benchmark_with(targets={"numpy": 0.4, "jax": 1.0}), record)
    assert judged == {"peer": "numpy", "limit": 0.4, "verdict": "MISS"}


def test_an_absolute_limit_is_about_us(benchmark_with):
    record = measured(3.0, numpy=1.0, jax=9.0)
    assert report.judge(benchmark_with(seconds=2.0), record)["verdict"] == "MISS"


def test_rows_are_aligned_and_fit_in_100_columns():
    record = {**measured(12.3e-3, numpy=0.1234, torch=9.87e-3, jax=0.0456), "benchmark": "x" * report.NAME}
    record |= {"peer": "torch", "limit": 0.35, "verdict": "MISS", "seconds": None}
    peers = ["numpy", "torch", "torch.compile", "jax"]
    head, line = report.heading("group", peers).splitlines()[-1], report.line(record, peers)
    assert len(line) <= 100 and "*9.87ms" in line and " - " in line
    assert head.index("jax") + len("jax") == line.index("45.6ms") + len("45.6ms")
    assert head.index("limit") + len("limit") == line.index("0.35") + len("0.35")


def test_words_select_by_name_or_group():
    benchmarks = registry.load()
    assert [b.name for b in registry.select(benchmarks, ["softmax"])] == ["softmax", "softmax_backward"]
    assert {b.group for b in registry.select(benchmarks, ["matrix products"])} == {"matrix products"}
    assert registry.select(benchmarks, []) == [*benchmarks.values()]
    with pytest.raises(KeyError):
        registry.select(benchmarks, ["no such thing"])


def test_every_benchmark_has_us_a_peer_and_something_to_keep():
    for benchmark in registry.load().values():
        assert OURS in benchmark.contenders and benchmark.peers
        assert {*benchmark.targets} <= {*benchmark.peers}
        assert benchmark.targets or benchmark.seconds
        assert len(benchmark.name) <= report.NAME
