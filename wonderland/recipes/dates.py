"""Days as people write them, and as computers do: what the recipe `seq2seq` translates."""

from __future__ import annotations

import numpy as np

MONTHS = "January February March April May June July August September October November December".split()
WAYS = ("{m} {d}, {y}", "{d} {m} {y}", "{s} {d}, {y}", "{d}. {n}. {y}", "{n}/{d}/{y}", "day {d} of {m} {y}")


def dates(count: int, seed: int) -> tuple[list[str], list[str]]:
    """Different days of 1900 to 2099, each in one of six ways, as in "Sep 28, 1984", and as "1984-09-28"."""
    rng = np.random.default_rng(seed)
    iso = [str(np.datetime64("1900-01-01") + day) for day in rng.choice(73049, count, replace=False)]
    written = []
    for y, n, d in (map(int, day.split("-")) for day in iso):
        month = MONTHS[n - 1]
        written.append(str(rng.choice(WAYS)).format(y=y, n=n, d=d, m=month, s=month[:3]))
    return written, iso
