"""The sets of outcomes that a 2-cut tries, and the choice among them by a pilot sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MOST_OUTCOMES", "Sets", "every_set", "subsets"]

MOST_OUTCOMES = 12  # up to here every subset of outcomes is tried
_MOST_THRESHOLDS = 1000


@dataclass(frozen=True, slots=True)
class Sets:
    """Sets of outcomes, each with its complement: the first ``n`` outcomes of an order, or any subset.

    ``rank``: place of each outcome in the order; ``ends``: how many outcomes each set takes;
    ``masks``: instead, one row a set.
    """

    rank: np.ndarray
    ends: np.ndarray
    masks: np.ndarray | None = None

    @classmethod
    def every(cls, n_outcomes: int) -> Self:
        """Return all subsets except the empty and the full one."""
        return cls(np.empty(0), np.empty(0), subsets(n_outcomes))

    @classmethod
    def thresholds(cls, order: np.ndarray, weights: np.ndarray | None = None) -> Self:
        """The first n of ``order``, for each n, and the rest; with weights a thousand n at most."""
        ends = np.arange(1, order.size)
        if weights is not None and ends.size > _MOST_THRESHOLDS:
            total = np.cumsum(weights[order])
            spread = np.searchsorted(total, np.linspace(0, total[-1], _MOST_THRESHOLDS + 2)[1:-1])
            ends = np.unique(np.clip(spread, 1, order.size - 1))
        return cls(order, ends)

    def __len__(self) -> int:
        return 2 * self.ends.size if self.masks is None else len(self.masks)

    def sums(self, counts: np.ndarray) -> np.ndarray:
        """Sum of the counts (last axis) over each set."""
        if self.masks is not None:
            return np.asarray(counts @ self.masks.T)
        first = np.cumsum(counts[..., self.rank], axis=-1)
        inside = first[..., self.ends - 1]
        return np.concatenate([inside, first[..., -1:] - inside], axis=-1)

    def cut(self, place: int) -> tuple[int, ...]:
        """The outcomes of one set."""
        if self.masks is not None:
            return tuple(np.flatnonzero(self.masks[place]).tolist())
        end = int(self.ends[place % self.ends.size])
        chosen = self.rank[:end] if place < self.ends.size else self.rank[end:]
        return tuple(sorted(chosen.tolist()))

    def best(
        self,
        pilot: tuple[np.ndarray, np.ndarray],
        value: Callable[[np.ndarray, np.ndarray], np.ndarray],
        interval: Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]],
    ) -> Sets:
        """For each row of ``value(p, q)``, the set with the largest bound on the pilot's own counts.

        ``interval`` is the one which the bound will use. A pilot that is too small for any bound chooses the
        set whose rates differ most, in standard errors.
        """
        p, q = (self.sums(counts) for counts in pilot)
        sizes = [int(counts.sum()) for counts in pilot]
        table = value(interval(p, sizes[0])[0], interval(q, sizes[1])[1])
        clear = table.max(axis=-1) > 0
        if clear.any():
            return self._take(np.unique(table.argmax(axis=-1)[clear]))
        gap = p / sizes[0] - q / sizes[1]
        spread = _standard_error(p, sizes[0]) + _standard_error(q, sizes[1])
        return self._take(np.array([(gap / spread).argmax()]))

    def _take(self, chosen: np.ndarray) -> Sets:
        n = self.rank.size if self.masks is None else self.masks.shape[1]
        masks = np.zeros((chosen.size, n), dtype=bool)
        for row, place in enumerate(chosen):
            masks[row, list(self.cut(int(place)))] = True
        return Sets(self.rank, self.ends, masks)


def every_set(n_outcomes: int) -> Sets:
    """All sets of at most 12 outcomes; more outcomes raise a ValueError."""
    if n_outcomes > MOST_OUTCOMES:
        raise ValueError(
            f"{n_outcomes} outcomes have too many subsets to try them all (at most {MOST_OUTCOMES}): "
            "pilot, rest = hold_out(p, q, rng=rng), then renyi_lower_bound(*rest, pilot=pilot)"
        )
    return Sets.every(n_outcomes)


def subsets(n_outcomes: int) -> np.ndarray:
    """Every set of outcomes but the empty and the full one, as one boolean row each."""
    bits = np.arange(1, 2**n_outcomes - 1)[:, None] >> np.arange(n_outcomes)
    return np.asarray((bits & 1).astype(bool))


def _standard_error(counts: np.ndarray, trials: int) -> np.ndarray:
    smooth = (counts + 0.5) / (trials + 1)
    return np.asarray(np.sqrt(smooth * (1 - smooth) / trials))
