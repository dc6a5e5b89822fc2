"""Lower bounds on epsilon at a given delta: what rates of false alarms and misses contradict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ostraka import _check
from ostraka.audits.bounds import EpsilonBound
from ostraka.audits.cuts import check_confidence, cut_rates, tallies

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["attack_epsilon", "epsilon_lower_bound"]

_NOTE = "Valid for any number of trials (Clopper-Pearson)."
_ANYTIME_NOTE = "Valid at every number of trials at once: sampling may stop as soon as it suffices."


def epsilon_lower_bound(
    outcomes_p: Any,
    outcomes_q: Any,
    *,
    delta: float,
    confidence: float = 0.95,
    method: Literal["2-cut", "2-cut-anytime"] = "2-cut",
    group: int = 1,
    pilot: tuple[Any, Any] | None = None,
    ordered: bool = False,
) -> EpsilonBound:
    """Lower bound on epsilon from how often each outcome was seen in two worlds.

    Parameters
    ----------
    outcomes_p, outcomes_q : integer arrays, shape (n_outcomes,)
        How often each outcome was seen in independent trials of each world.
    delta : float in [0, 1)
        Public. The delta of the claim.
    confidence : float in (0, 1)
    method : {"2-cut", "2-cut-anytime"}
        The second is valid however often one looks.
    group : int
        How many units differ between the worlds; the bound is for one.
    pilot, ordered
        As for :func:`renyi_lower_bound`.

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
    counts = tallies(outcomes_p, outcomes_q)
    check_confidence(confidence)
    _check.integer(group=group, least=1)
    _check.one_of(method=method, allowed=("2-cut", "2-cut-anytime"))
    if not 0 <= delta < 1:
        raise ValueError(f"delta must be >= 0 and < 1, got {delta!r}")
    value = _contradicted(delta=delta, group=group)
    sets, low, high = cut_rates(
        counts, value, method=method, error=1 - confidence, pilot=pilot, ordered=ordered
    )
    found = value(low, high)[0]
    rates = [sets.sums(tally) / tally.sum() for tally in counts]
    best = int(found.argmax())
    return EpsilonBound(
        epsilon=float(found[best]),
        delta=float(delta),
        group=group,
        estimate=float(value(*rates)[0][best]) if found[best] > 0 else 0.0,
        cut=sets.cut(best) if found[best] > 0 else (),
        confidence=confidence,
        trials=(int(counts[0].sum()), int(counts[1].sum())),
        method=method,
        note=_NOTE if method == "2-cut" else _ANYTIME_NOTE,
    )


def attack_epsilon(
    *,
    true_positives: int,
    false_positives: int,
    n_members: int,
    n_others: int,
    delta: float,
    confidence: float = 0.95,
) -> EpsilonBound:
    """Lower bound on epsilon from the success of an attack that was fixed in advance.

    Parameters
    ----------
    true_positives, n_members : int
        How often the attack said "member" in ``n_members`` trials with its target.
    false_positives, n_others : int
        How often it said so in ``n_others`` trials without.
    delta, confidence : float
        As for :func:`epsilon_lower_bound`.

    Returns
    -------
    EpsilonBound
        ``cut`` (0,): the attack's "member" gave the bound; (1,): its "no member".

    Raises
    ------
    ValueError
        More hits than trials, or what :func:`epsilon_lower_bound` refuses.

    Guarantees
    ----------
    As :func:`epsilon_lower_bound`. A threshold chosen on the same scores is not fixed in advance:
    there give it the counts of all scores with ``ordered=True``, and a ``pilot``.
    Source: Chadha et al. 2024, arXiv:2402.09403, section 2.2.

    Examples
    --------
    >>> hits = {"true_positives": 90, "false_positives": 5}
    >>> round(attack_epsilon(**hits, n_members=100, n_others=100, delta=1e-5).epsilon, 2)
    1.99
    """
    for name, hits, trials in (
        ("true_positives", true_positives, n_members),
        ("false_positives", false_positives, n_others),
    ):
        _check.integer(**{name: hits})
        if hits > trials:
            raise ValueError(f"{name} must be at most the number of trials, {trials!r}, got {hits!r}")
    return epsilon_lower_bound(
        [true_positives, n_members - true_positives],
        [false_positives, n_others - false_positives],
        delta=delta,
        confidence=confidence,
        pilot=([2, 0], [0, 2]),  # which outcome speaks for which world is known: nothing to try
    )


def _contradicted(*, delta: float, group: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The epsilon below which P[set] >= p and Q[set] <= q cannot both be, as one row."""

    def value(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        direct = _needed(p, q, delta=delta, group=group)
        complement = _needed(1 - q, 1 - p, delta=delta, group=group)
        return np.asarray(np.maximum(direct, complement)[None, :])

    return value


def _needed(p: np.ndarray, q: np.ndarray, *, delta: float, group: int) -> np.ndarray:
    """Largest epsilon >= 0 with p >= e^(m epsilon) q + delta (1 + … + e^((m - 1) epsilon)), rounded down."""
    with np.errstate(divide="ignore", invalid="ignore"):
        alone = np.where(p > delta, np.log(np.maximum(p - delta, 0)) - np.log(q), -np.inf)
    alone = np.maximum(0.0, np.nan_to_num(alone * (1 - 1e-12), nan=0.0, posinf=np.inf, neginf=0.0))
    if group == 1:
        return np.asarray(alone)
    low, high = np.zeros_like(alone), np.minimum(alone, 700.0) / group  # more delta only lowers it
    for _ in range(60):
        middle = (low + high) / 2
        terms = sum(np.exp(i * middle) for i in range(group))
        fits = p >= np.exp(group * middle) * q + delta * terms
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return low
