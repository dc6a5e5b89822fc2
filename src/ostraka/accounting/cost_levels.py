"""Upper bounds on the cost of a query by how far the teachers agree, and on its cost k ballots away."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import scipy.special
from scipy.ndimage import maximum_filter1d

from ostraka.accounting.exact import exact_rdp
from ostraka.curve import ORDERS
from ostraka.mechanisms.protocols import HasScreenBound, parts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka.mechanisms.protocols import BallotMechanism

__all__ = ["UNIT", "CostLevels", "check_ballots", "cost_levels", "worst"]

UNIT = 2.0**-36  # nats; costs are whole multiples, so that their sums are exact
_FINE = 32  # levels a ballot where agreement is continuous
_SHARED = 4  # neighbouring levels that share the cost of their lowest
_CELLS = 16  # divisions of a tail between its two sides
_OUTWARD = 1e-9  # relative, above the error of every cost computed here or in exact_rdp
_DOUBT = 1e-12  # absolute, nats: what cancels near a cost of nothing


@dataclass(frozen=True, slots=True, eq=False)
class CostLevels:
    """Costs of one query at one order, by level. All public; on which level a query stands is private.

    Attributes
    ----------
    cost : int64 array, shape (n_levels,), in units of ``UNIT`` nats
        At least the Rényi cost (every neighbour, both directions) of any query on that level.
    reach : int
        No ballot moves a query by more levels than this.
    pace : int
        Levels that a query of clear plurality falls for each ballot it loses; for guesses only.
    tied, agreed : int
        Levels of an even split and of unanimity; for guesses only.
    levels : callable, counts -> int64 array, shape (n_queries,)
        Where queries stand.
    """

    cost: np.ndarray
    reach: int
    pace: int
    tied: int
    agreed: int
    levels: Callable[[np.ndarray], np.ndarray]


def cost_levels(
    mechanism: BallotMechanism, *, n_teachers: int, n_classes: int, order: float
) -> tuple[CostLevels, ...]:
    """Return the levels of a mechanism: one scale, or one per part for a screen and many classes."""
    if n_classes == 2:
        return (_two_classes(mechanism, n_teachers, order),)
    return tuple(
        _many_classes(part, n_teachers, n_classes, order) for part in parts(mechanism) if part is not None
    )


def _many_classes(mechanism: BallotMechanism, n_teachers: int, n_classes: int, order: float) -> CostLevels:
    """Return the scale of one part: exact for a screen, bounded by the curve for an argmax."""
    if isinstance(mechanism, HasScreenBound):
        return _screen(mechanism, n_teachers, n_classes, order)
    curve = mechanism.curve()
    if math.isfinite(curve.mu_squared):
        return _gaussian(mechanism, n_teachers, n_classes, order)
    if math.isfinite(curve.rdp[-1]):
        return _pure(mechanism, n_teachers, n_classes, order)
    raise TypeError(
        f"{mechanism!r} is neither dominated by a Gaussian nor purely private: for three classes or more "
        "nothing bounds its cost from the likeliest answer alone"
    )


def worst(placed: Sequence[tuple[CostLevels, np.ndarray]], n_ballots: int) -> np.ndarray:
    """Largest summed cost within 0, …, n_ballots ballots of queries on these levels; int64, in ``UNIT``.

    A ballot may change its vote in every query, so the worst case of a sum is the sum of worst
    cases. Integer sums: with v(D, k) the result, v(D', k) <= v(D, k + 1) holds exactly for
    neighbours D and D'.
    """
    total = np.zeros(n_ballots + 1, dtype=np.int64)
    for scale, levels in placed:
        times = np.bincount(levels, minlength=len(scale.cost))
        if int(scale.cost.max()) * max(1, len(levels)) >= 2**62:
            raise OverflowError("these queries cost more than can be summed exactly: publish them in parts")
        for k in range(n_ballots + 1):
            within = maximum_filter1d(scale.cost, size=2 * k * scale.reach + 1, mode="nearest")
            total[k] += int(times @ within)
    return total


def check_ballots(counts: np.ndarray) -> int:
    """Number of teachers, where every row is whole ballots and has as many; messages show no count."""
    n_teachers = int(counts[0].sum()) if len(counts) else 0
    whole = (counts >= 0).all() and (counts == np.floor(counts)).all()
    if n_teachers < 2 or not whole or not (counts.sum(axis=1) == n_teachers).all():
        raise ValueError(
            "counts must be whole ballots, every row of the same number of teachers, two or more"
        )
    return n_teachers


@lru_cache(maxsize=512)
def _two_classes(mechanism: BallotMechanism, n_teachers: int, order: float) -> CostLevels:
    """Return exact levels for two classes: one level for each value of the first count."""
    return CostLevels(
        cost=_units(_two_class_costs(mechanism, n_teachers)[:, ORDERS.index(order)]),
        reach=1,
        pace=1,
        tied=(n_teachers + 1) // 2,
        agreed=n_teachers,
        levels=lambda counts: counts[:, 0].astype(np.int64),
    )


@lru_cache(maxsize=16)
def _two_class_costs(mechanism: BallotMechanism, n_teachers: int) -> np.ndarray:
    """Exact cost of every two-class histogram at every finite order; shape (n_teachers + 1, n_orders)."""
    first = np.arange(n_teachers + 1)
    return exact_rdp(mechanism, np.stack([first, n_teachers - first], axis=1), orders=ORDERS[:-1])


@lru_cache(maxsize=512)
def _screen(screen: BallotMechanism, n_teachers: int, n_classes: int, order: float) -> CostLevels:
    """Exact: the screen looks at the largest count only, and a ballot moves it by at most one."""
    if not (isinstance(screen, HasScreenBound) and screen.screen_bound()):
        raise ValueError(f"a screen of many classes needs noise='largest' here, got {screen!r}")
    largest = np.arange(-1, n_teachers + 2)
    law = screen.log_outcomes(np.stack([largest, np.full_like(largest, -1)], axis=1))
    steps = np.maximum(_divergence(law[:-1], law[1:], order), _divergence(law[1:], law[:-1], order))
    return CostLevels(
        cost=_units(np.maximum(steps[:-1], steps[1:])),
        reach=1,
        pace=1,
        tied=-(-n_teachers // n_classes),
        agreed=n_teachers,
        levels=lambda counts: counts.max(axis=1).astype(np.int64),
    )


@lru_cache(maxsize=512)
def _gaussian(mechanism: BallotMechanism, n_teachers: int, n_classes: int, order: float) -> CostLevels:
    """A bound from the probability of the likeliest answer alone; docs/publishing-epsilon.md, Theorem 5."""
    curve = mechanism.curve()
    shift = math.sqrt(curve.mu_squared)  # one ballot is at most a Gaussian shift of this

    def agreement(counts: np.ndarray) -> np.ndarray:
        """Phi^-1(P[likeliest answer]) in ballots: for two classes half the gap."""
        return np.asarray(-scipy.special.ndtri_exp(_log_rest(mechanism, counts)) / shift)

    lowest = float(scipy.special.ndtri(1 / n_classes)) / shift - 1
    edges = lowest + np.arange(math.ceil((n_teachers - lowest) * _FINE)) / _FINE
    cap = curve.rdp[ORDERS.index(order)]
    bound = np.repeat(_censored_gaussian(-(edges[::_SHARED] - 1e-6) * shift, shift, order), _SHARED)
    return CostLevels(
        cost=_units(np.minimum(bound[: len(edges)], cap)),
        reach=_FINE + 1,  # one more for the numerical error of where an edge lies
        pace=_FINE,
        tied=int(-lowest * _FINE),
        agreed=int((float(agreement(_unanimous(n_teachers, n_classes))[0]) - lowest) * _FINE),
        levels=lambda counts: _place(agreement(counts), lowest, len(edges)),
    )


@lru_cache(maxsize=512)
def _pure(mechanism: BallotMechanism, n_teachers: int, n_classes: int, order: float) -> CostLevels:
    """A bound for pure differential privacy; docs/publishing-epsilon.md, Theorem 6."""
    curve = mechanism.curve()
    pure = curve.rdp[-1]

    def agreement(counts: np.ndarray) -> np.ndarray:
        """-log P[another answer] in ballots."""
        return np.asarray(-_log_rest(mechanism, counts) / pure)

    edges = np.arange(math.ceil((n_teachers + 1 / pure) * _FINE)) / _FINE
    cap = curve.rdp[ORDERS.index(order)]
    bound = _censored_pure(-(edges - 1e-6) * pure, pure, order)
    return CostLevels(
        cost=_units(np.minimum(bound, cap)),
        reach=_FINE + 1,
        pace=_FINE,
        tied=int(-math.log1p(-1 / n_classes) / pure * _FINE),
        agreed=int(float(agreement(_unanimous(n_teachers, n_classes))[0]) * _FINE),
        levels=lambda counts: _place(agreement(counts), 0.0, len(edges)),
    )


def _unanimous(n_teachers: int, n_classes: int) -> np.ndarray:
    return np.eye(1, n_classes) * n_teachers


def _place(agreement: np.ndarray, lowest: float, n_levels: int) -> np.ndarray:
    return np.clip(np.floor((agreement - lowest) * _FINE), 0, n_levels - 1).astype(np.int64)


def _log_rest(mechanism: BallotMechanism, counts: np.ndarray) -> np.ndarray:
    """Log probability of all answers but the likeliest."""
    return np.asarray(
        scipy.special.logsumexp(np.sort(mechanism.log_outcomes(counts), axis=1)[:, :-1], axis=1)
    )


def _units(rdp: np.ndarray) -> np.ndarray:
    """Convert nats to whole units, rounded up."""
    if not (rdp < 2.0**20).all():
        raise ValueError(
            "a query costs more than a million nats at this order: take more noise or a smaller order"
        )
    return np.ceil((rdp * (1 + _OUTWARD) + _DOUBT) / UNIT).astype(np.int64)


def _divergence(log_p: np.ndarray, log_q: np.ndarray, order: float) -> np.ndarray:
    """Rényi divergence between outcome laws in logs, last axis."""
    return np.asarray(scipy.special.logsumexp(order * log_p + (1 - order) * log_q, axis=-1) / (order - 1))


def _censored_gaussian(z: np.ndarray, shift: float, order: float) -> np.ndarray:
    """Theorem 5: N(0, 1) and N(shift, 1), where tails of probability Phi(z) in all are one outcome."""
    # how the tail is divided between the two sides is not known: take the largest over cells of divisions,
    # each of which reveals a little more than any division in it; does not increase as z falls
    q = scipy.special.ndtr(z)[:, None]
    cell = np.arange(_CELLS) / _CELLS
    left, right = -scipy.special.ndtri(q * (cell + 1 / _CELLS)), scipy.special.ndtri(q * (1 - cell))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        kept = np.clip(1 - q * (1 + 1 / _CELLS), 0, None)
        moved = np.clip(scipy.special.ndtr(left - shift) - scipy.special.ndtr(right - shift), 0, None)
        log_scale = order * (order - 1) * shift**2 / 2
        sums = [np.full_like(left, math.inf)]
        for near, far, (a, b) in ((order - 1, order - 1, (kept, moved)), (-order, -order, (moved, kept))):
            tails = scipy.special.ndtr(-left - near * shift) + scipy.special.ndtr(right + far * shift)
            sums.append(np.exp(log_scale) * tails + a**order * b ** (1 - order))
    largest = np.maximum(sums[1], sums[2]).max(axis=1)
    largest = np.where(np.isfinite(largest) & (kept[:, 0] > 0), largest, math.inf)
    return np.asarray(np.log(largest) / (order - 1))


def _censored_pure(log_q: np.ndarray, pure: float, order: float) -> np.ndarray:
    """Theorem 6: all ratios within e^±pure, one outcome of probability 1 - q."""
    q = np.exp(np.minimum(log_q, 0.0))
    best = np.zeros_like(q)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for ratio in (math.exp(pure), math.exp(-pure)):
            kept, moved = 1 - q, 1 - q * ratio
            forth = q * ratio ** (1 - order) + kept**order * moved ** (1 - order)
            back = q * ratio**order + moved**order * kept ** (1 - order)
            best = np.maximum(best, np.maximum(forth, back))
    applies = q < 1 / (1 + math.exp(pure))
    return np.where(applies, np.log(np.where(applies, best, 1.0)) / (order - 1), math.inf)
