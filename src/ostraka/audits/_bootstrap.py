"""The bootstrap of Chadha et al. 2024: a quantile of resampled divergences. An estimate, not a guarantee."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ostraka.audits._divergence import Found, of_coins, of_laws

if TYPE_CHECKING:
    from ostraka.audits._sets import Sets

__all__ = ["RESAMPLES", "resampled"]

RESAMPLES = 1000


def resampled(
    counts: tuple[np.ndarray, np.ndarray],
    orders: np.ndarray,
    *,
    sets: Sets | None,
    error: float,
    rng: np.random.Generator,
) -> Found:
    """The ``error`` quantile over resamples of both directions; ``sets`` None: over all outcomes."""
    again = [rng.multinomial(int(c.sum()), c / c.sum(), size=RESAMPLES) / c.sum() for c in counts]
    if sets is None:
        found = [np.quantile(of_laws(a, b, orders), error, axis=-1) for a, b in (again, again[::-1])]
        return Found.of(*found)
    seen = [sets.sums(c) / c.sum() for c in counts]
    part = [sets.sums(world) for world in again]
    best = [of_coins(a, b, orders).argmax(axis=-1) for a, b in (seen, seen[::-1])]
    values = []
    for chosen, (a, b) in zip(best, (part, part[::-1]), strict=True):
        per_order = [of_coins(a[:, i], b[:, i], orders[o : o + 1])[0] for o, i in enumerate(chosen)]
        values.append(np.quantile(per_order, error, axis=-1))
    larger = np.where(values[0] >= values[1], best[0], best[1])
    return Found(values[0], values[1], tuple(sets.cut(int(place)) for place in larger))
