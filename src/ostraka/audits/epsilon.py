"""Lower bounds on epsilon at a given delta, and on delta at a given epsilon, from counts of two worlds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from ostraka import _check
from ostraka.audits.bounds import EpsilonBound
from ostraka.audits.cuts import ANYTIME_NOTE, check_confidence, cut_rates, tallies
from ostraka.scores import Scores

if TYPE_CHECKING:
    from collections.abc import Callable

    Value = Callable[[np.ndarray, np.ndarray], np.ndarray]

__all__ = ["delta_lower_bound", "epsilon_lower_bound"]

SetMethod = Literal["2-cut", "2-cut-anytime"]

_NOTES = {"2-cut": "Valid for any number of trials (Clopper-Pearson).", "2-cut-anytime": ANYTIME_NOTE}
_DOWN = 1 - 1e-12


def epsilon_lower_bound(
    outcomes_p: Any,
    outcomes_q: Any = None,
    *,
    delta: float,
    confidence: float = 0.95,
    method: SetMethod = "2-cut",
    group: int = 1,
    pilot: tuple[Any, Any] | None = None,
    ordered: bool = False,
) -> EpsilonBound:
    """Lower bound on epsilon from how often each outcome was seen in two worlds.

    Parameters
    ----------
    outcomes_p, outcomes_q : integer arrays, shape (n_outcomes,)
        How often each outcome was seen in independent trials of each world. Or one
        :class:`ostraka.scores.Scores` in place of both.
    delta : float in [0, 1)
        Public. The delta of the claim.
    confidence : float in (0, 1)
    method : {"2-cut", "2-cut-anytime"}
        The second is valid however often one looks.
    group : int
        How many units differ between the worlds; the bound is for one.
    pilot, ordered
        As for :func:`renyi_lower_bound`. For an attack that was fixed in advance, with the outcomes "member"
        and "no member", ``pilot=([2, 0], [0, 2])`` says which outcome speaks for which world.

    Returns
    -------
    EpsilonBound

    Raises
    ------
    ValueError
        As for :func:`renyi_lower_bound`, or ``delta`` not in [0, 1).

    Guarantees
    ----------
    With probability ``confidence`` no mechanism that is (epsilon, delta)-DP for a smaller epsilon
    has these two outcome laws. For a set of probability at least p in one world and at most q in
    the other, p <= e^epsilon q + delta, in both directions and for its complement; for a group of
    m, with m epsilon and delta (e^(m epsilon) - 1) / (e^epsilon - 1). Chadha et al. write the ratio
    where its logarithm is meant. Source: Chadha et al. 2024, arXiv:2402.09403, equation 1; for
    groups, Vadhan 2017, doi:10.1007/978-3-319-57048-8_7, Lemma 2.2.

    Examples
    --------
    >>> bound = epsilon_lower_bound([900, 100], [100, 900], delta=1e-5)
    >>> round(bound.epsilon, 3), round(bound.estimate, 3)
    (1.962, 2.197)
    """
    if not 0 <= delta < 1:
        raise ValueError(f"delta must be >= 0 and < 1, got {delta!r}")
    _check.integer(group=group, least=1)
    lower, estimate, found = _searched(
        (outcomes_p, outcomes_q),
        lambda p, q: _least_epsilon(p, q, delta=delta, group=group),
        confidence=confidence,
        method=method,
        pilot=pilot,
        ordered=ordered,
    )
    return EpsilonBound(epsilon=lower, delta=float(delta), estimate=estimate, group=group, **found)


def delta_lower_bound(
    outcomes_p: Any,
    outcomes_q: Any = None,
    *,
    epsilon: float,
    confidence: float = 0.95,
    method: SetMethod = "2-cut",
    group: int = 1,
    pilot: tuple[Any, Any] | None = None,
    ordered: bool = False,
) -> EpsilonBound:
    """Lower bound on delta at a given epsilon, from how often each outcome was seen in two worlds.

    Parameters
    ----------
    outcomes_p, outcomes_q, confidence, method, group, pilot, ordered
        As for :func:`epsilon_lower_bound`.
    epsilon : float >= 0, nats
        Public. The epsilon of the claim.

    Returns
    -------
    EpsilonBound
        ``delta`` is the bound, and ``estimate`` an estimate of delta.

    Raises
    ------
    ValueError
        As for :func:`renyi_lower_bound`, or ``epsilon`` below 0.

    Guarantees
    ----------
    With probability ``confidence`` no mechanism that is (epsilon, delta)-DP for a smaller delta has these
    two outcome laws: delta >= p - e^epsilon q for every set of outcomes, which for a group of m is divided
    by 1 + e^epsilon + … + e^((m - 1) epsilon), with e^(m epsilon) in place of e^epsilon.
    Source: Vadhan 2017, doi:10.1007/978-3-319-57048-8_7, Lemma 2.2.

    Examples
    --------
    >>> bound = delta_lower_bound([900, 100], [100, 900], epsilon=1.0)
    >>> round(bound.delta, 3), round(bound.estimate, 3)
    (0.542, 0.628)
    """
    _check.nonnegative(epsilon=epsilon)
    _check.integer(group=group, least=1)
    lower, estimate, found = _searched(
        (outcomes_p, outcomes_q),
        lambda p, q: _least_delta(p, q, epsilon=epsilon, group=group),
        confidence=confidence,
        method=method,
        pilot=pilot,
        ordered=ordered,
    )
    return EpsilonBound(epsilon=float(epsilon), delta=lower, estimate=estimate, group=group, **found)


def _searched(
    outcomes: tuple[Any, Any],
    one_way: Value,
    *,
    confidence: float,
    method: SetMethod,
    pilot: tuple[Any, Any] | None,
    ordered: bool,
) -> tuple[float, float, dict[str, Any]]:
    """Return the bound of the best set, its estimate, and what both kinds of bound record."""
    # one_way(p, q) is the bound of a set with probabilities p and q; the complement of the set counts, too
    counts = tallies(*outcomes)
    check_confidence(confidence)
    _check.one_of(method=method, allowed=get_args(SetMethod))

    def value(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        return np.asarray(np.maximum(one_way(p, q), one_way(1 - q, 1 - p))[None, :])

    ordered = ordered or isinstance(outcomes[0], Scores)
    sets, low, high = cut_rates(
        counts, value, method=method, error=1 - confidence, pilot=pilot, ordered=ordered
    )
    found = value(low, high)[0]
    rates = [sets.sums(tally) / tally.sum() for tally in counts]
    best = int(found.argmax())
    seen = found[best] > 0
    record = {
        "cut": sets.cut(best) if seen else (),
        "confidence": confidence,
        "trials": (int(counts[0].sum()), int(counts[1].sum())),
        "method": method,
        "note": _NOTES[method],
    }
    return float(found[best]), float(value(*rates)[0][best]) if seen else 0.0, record


def _least_epsilon(p: np.ndarray, q: np.ndarray, *, delta: float, group: int) -> np.ndarray:
    """Largest epsilon >= 0 with p >= e^(m epsilon) q + delta (1 + … + e^((m - 1) epsilon)), rounded down."""
    with np.errstate(divide="ignore", invalid="ignore"):
        alone = np.where(p > delta, np.log(np.maximum(p - delta, 0)) - np.log(q), -np.inf)
    alone = np.maximum(0.0, np.nan_to_num(alone * _DOWN, nan=0.0, posinf=np.inf, neginf=0.0))
    if group == 1:
        return np.asarray(alone)
    low, high = np.zeros_like(alone), np.minimum(alone, 700.0) / group  # more delta only lowers it
    for _ in range(60):
        middle = (low + high) / 2
        terms = sum(np.exp(i * middle) for i in range(group))
        fits = p >= np.exp(group * middle) * q + delta * terms
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return low


def _least_delta(p: np.ndarray, q: np.ndarray, *, epsilon: float, group: int) -> np.ndarray:
    """Smallest delta >= 0 with p <= e^(m epsilon) q + delta (1 + … + e^((m - 1) epsilon)), rounded down."""
    with np.errstate(over="ignore", invalid="ignore"):
        left = np.where(q > 0, p - np.exp(group * epsilon) * q, p) * _DOWN - 1e-15
        terms = sum(np.exp(i * epsilon) for i in range(group))
    return np.asarray(np.maximum(0.0, left / terms))
