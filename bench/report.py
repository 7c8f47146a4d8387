"""Results come in; rows of an aligned table go out, at most 100 columns wide."""

from __future__ import annotations

from typing import Any

from bench.registry import OURS, Benchmark

PEERS = ["numpy", "torch", "torch.compile", "jax"]  # the first columns, in this order
TITLES = {
    OURS: "ours",
    "torch.compile": "compiled",
    "torch.channels_last": "ch. last",
    "jax.forward": "jax fwd",
    "jax.loop": "jax loop",
    "wonderland.gradient": "gradient",
    "wonderland.function": "function",
}
NAME, OWN, PEER, RATIO, QUARTILES, LIMIT, VERDICT = 25, 6, 8, 5, 11, 6, 4


def seconds(value: float) -> str:
    """Three significant digits and a unit."""
    units = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
    unit, scale = next((pair for pair in units if value >= pair[1]), units[-1])
    value /= scale
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f} {unit}"


def short(value: float) -> str:
    """Seconds, as narrow as they get."""
    return seconds(value).replace(" ", "")


def number(value: float) -> str:
    """A ratio: three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def judge(benchmark: Benchmark, measured: dict[str, Any]) -> dict[str, Any]:
    """Which peer decides (the one nearest to its target, or furthest beyond it), the limit, and the verdict."""
    targets, ratios = benchmark.targets, measured["ratios"]
    if not ratios:
        return {"peer": None, "limit": None, "verdict": "failed", "why": "there is no peer"}
    peer = max(ratios, key=lambda name: ratios[name]["median"] / targets.get(name, 1.0))
    if benchmark.seconds is not None:
        met = measured["times"][OURS]["median"] <= benchmark.seconds
        return {"peer": peer, "limit": None, "verdict": "met" if met else "MISS"}
    limit = targets.get(peer)
    met = limit is None or ratios[peer]["median"] <= limit
    return {"peer": peer, "limit": limit, "verdict": "met" if met else "MISS"}


def peers_of(benchmarks: list[Benchmark]) -> list[str]:
    """The columns of a group of benchmarks."""
    found = {peer for b in benchmarks for peer in b.peers}
    return [*(p for p in PEERS if p in found), *sorted(found - {*PEERS})]


def cells(name: str, own: str, peers: list[str], ratio: str, quartiles: str, limit: str, verdict: str) -> str:
    columns = [f"{name:<{NAME}}", f"{own:>{OWN}}", *(f"{p:>{PEER}}" for p in peers)]
    columns += [f"{ratio:>{RATIO}}", f"{quartiles:>{QUARTILES}}", f"{limit:>{LIMIT}}", f"{verdict:>{VERDICT}}"]
    return " ".join(columns).rstrip()


def heading(group: str, peers: list[str]) -> str:
    titles = [TITLES.get(peer, peer) for peer in peers]
    return f"\n{group}\n" + cells("", TITLES[OURS], titles, "ratio", "quartiles", "limit", "")


def line(result: dict[str, Any], peers: list[str]) -> str:
    """One benchmark; the peer that decides has a star."""
    if result["verdict"] == "failed":
        return f"{result['benchmark']:<{NAME}} failed: {result['why']}"[:100]
    times, absolute = result["times"], result.get("seconds")
    ratio = result["ratios"][result["peer"]]
    shown = [short(times[peer]["median"]) if peer in times else "-" for peer in peers]
    shown = ["*" + time if peer == result["peer"] else time for peer, time in zip(peers, shown)]
    quartiles = f"{number(ratio['lower'])}-{number(ratio['upper'])}"
    limit = short(absolute) if absolute else "" if result["limit"] is None else f"{result['limit']:g}"
    own = short(times[OURS]["median"])
    return cells(result["benchmark"], own, shown, number(ratio["median"]), quartiles, limit, result["verdict"])


def notes(results: list[dict[str, Any]]) -> list[str]:
    """Who is missing in which rows and why, and who was timed once; alike ones together."""
    rows: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for peer, why in result.get("absent", {}).items():
            rows.setdefault((peer, why), []).append(result["benchmark"])
        for peer in result.get("timed_once", []):
            rows.setdefault((peer, "so slow that it was timed once"), []).append(result["benchmark"])
    return [f"{peer} in {shortened(names)}: {why}" for (peer, why), names in rows.items()]


def shortened(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{names[0]}, ... {names[-1]} ({len(names)} rows)"


def summary(results: list[dict[str, Any]]) -> str:
    """How many limits are met, and which aren't."""
    verdicts = [result["verdict"] for result in results]
    text = f"{verdicts.count('met')} of {len(results)} limits met"
    missed = [result["benchmark"] for result in results if result["verdict"] == "MISS"]
    return (
        text
        + (f", {verdicts.count('failed')} failed" if "failed" in verdicts else "")
        + "".join(f"\n  missed: {name}" for name in missed)
    )
