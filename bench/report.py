"""Results come in; rows of an aligned table go out."""

from __future__ import annotations

from typing import Any

HEADER = ("benchmark", "peer", "ours", "peer's", "ratio", "quartiles", "target", "")
WIDTHS = (14, 7, 10, 10, 6, 13, 6, 4)


def row(cells: tuple[str, ...]) -> str:
    """Names to the left, figures to the right."""
    aligned = (f"{cell:<{w}}" if i < 2 else f"{cell:>{w}}" for i, (cell, w) in enumerate(zip(cells, WIDTHS)))
    return "  ".join(aligned).rstrip()


def seconds(value: float) -> str:
    """Three significant digits and a unit."""
    units = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
    unit, scale = next((pair for pair in units if value >= pair[1]), units[-1])
    value /= scale
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f} {unit}"


def line(result: dict[str, Any]) -> str:
    names = (result["benchmark"], result["peer"])
    if result["verdict"] in ("skipped", "failed"):
        return f"{row(names):<{sum(WIDTHS[:2]) + 4}}{result['verdict']}: {result['why']}"
    ratio, target = result["ratio"], result["target"]
    return row(
        (
            *names,
            seconds(result["ours"]["median"]),
            seconds(result["theirs"]["median"]),
            f"{ratio['median']:.3f}",
            f"{ratio['lower']:.3f}-{ratio['upper']:.3f}",
            "" if target is None else f"{target:g}",
            result["verdict"],
        )
    )
