"""Audit of a whole run: how well all its answers distinguish two worlds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ostraka import _check
from ostraka.audits._exact_law import finding_of
from ostraka.audits._run_law import run_laws
from ostraka.mechanisms.protocols import outcome_places
from ostraka.private import Adjacency, Private
from ostraka.randomness import os_keyed

if TYPE_CHECKING:
    from ostraka.audits.finding import Finding
    from ostraka.mechanisms.protocols import BallotMechanism

__all__ = ["audit_run", "worst_case_votes"]

_DRAWS = 1e7  # noisy counts a world: half a second
_MOST_TRIALS, _LEAST_TRIALS = 20_000, 100
_CHUNK = 10_000
_NOTE = "Votes where one ballot tells most, all other ballots known; nothing private was read."
_EXACT = "The bound is that of the exact law by the outcome map, which the sampled runs follow."
_SAMPLED = "The bound is from the sampled runs alone."
_TAILS = (0.5, 0.2, 0.08, 0.03, 0.012)  # how often a threshold is passed in the world that it speaks for


def audit_run(
    mechanism: BallotMechanism,
    *,
    n_answers: int,
    n_teachers: int,
    n_classes: int,
    claimed_epsilon: float,
    delta: float,
    trials: int | None = None,
    confidence: float = 0.95,
    rng: np.random.Generator | None = None,
) -> Finding:
    """Compute and simulate what the strongest adversary learns from a whole run.

    The adversary knows every ballot but one teacher's, and that this teacher voted for one of two classes in
    all of the questions. The votes are those where a ballot tells most. The law of a run follows exactly from
    the outcome map. In each trial the mechanism itself answers all questions; the sum of the log likelihood
    ratios must follow that law.

    Parameters
    ----------
    mechanism : ballot mechanism, such as GNMax or Confident
    n_answers, n_teachers, n_classes : int
        Of the run. Public.
    claimed_epsilon, delta : float
        What the run promises in all.
    trials : int, optional
        Runs in each world. None: 20,000, or fewer where that takes longer than a second or two.
    confidence : float in (0, 1)
    rng : numpy.random.Generator, optional
        None: noise as the door draws it, keyed by the operating system.

    Returns
    -------
    Finding
        One measure, epsilon at ``delta``. *Violated* if the lower bound is above the claim, or the runs do
        not follow the exact law (false alarm below 1e-6).

    Raises
    ------
    ValueError
        A number out of range.

    Guarantees
    ----------
    Nothing private is read, so the finding is public. No smaller epsilon at ``delta`` holds for ballots; for
    code which follows the outcome map that is certain, and it is computed from below. Where the runs do not
    follow the map, the bound is from the runs alone, at ``confidence``. Whether some data set moves a teacher
    that far is not said.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> found = audit_run(GNMax(sigma=10.0), n_answers=50, n_teachers=100, n_classes=3, trials=4000,
    ...                   claimed_epsilon=3.6, delta=1e-4, rng=np.random.default_rng(0))
    >>> found.verdict, 2.5 < found.measures[0].lower < 3.2
    ('consistent', True)
    """
    _check.integer(n_answers=n_answers, least=1)
    _check.nonnegative(claimed_epsilon=claimed_epsilon)
    _check.delta(delta)
    if trials is None:
        trials = int(min(_MOST_TRIALS, max(_LEAST_TRIALS, _DRAWS / (n_answers * n_classes))))
    _check.integer(trials=trials, least=100)
    worlds = worst_case_votes(mechanism, n_teachers=n_teachers, n_classes=n_classes)
    laws = run_laws(*(_log_law(mechanism, world[None])[0] for world in worlds), n_answers=n_answers)
    exact, edges = laws.epsilon(delta), laws.quantile_edges(_TAILS)
    rng = os_keyed() if rng is None else rng
    scores = [_scores(mechanism, world, laws.points, (trials, n_answers), rng=rng) for world in worlds]
    counts = [np.bincount(np.searchsorted(edges, s, side="right"), minlength=edges.size + 1) for s in scores]
    return finding_of(
        counts,
        laws.binned(edges),
        name=f"{n_answers} answers of {mechanism!r}",
        exact=exact,
        claimed=claimed_epsilon,
        delta=delta,
        confidence=confidence,
        trials=trials,
        sentence=_sentence,
        note=lambda fits: f"{_NOTE} {_EXACT if fits else _SAMPLED}",
    )


def worst_case_votes(
    mechanism: BallotMechanism, *, n_teachers: int, n_classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return two-class votes, and the same with one ballot moved, which an answer distinguishes best.

    Parameters
    ----------
    mechanism
        As for :func:`audit_run`.
    n_teachers, n_classes : int
        Public.

    Returns
    -------
    two float64 arrays, shape (n_classes,), in votes
        Of all divisions between two classes, the pair whose answers have the largest sum of both
        Kullback-Leibler divergences. Public: no data is read.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> [votes.tolist() for votes in worst_case_votes(GNMax(sigma=10.0), n_teachers=9, n_classes=3)]
    [[5.0, 4.0, 0.0], [4.0, 5.0, 0.0]]
    """
    _check.integer(n_teachers=n_teachers, least=1)
    _check.integer(n_classes=n_classes, least=2)
    leading = np.arange((n_teachers + 1) // 2, n_teachers + 1, dtype=np.float64)
    votes = np.zeros((leading.size, n_classes))
    votes[:, 0], votes[:, 1] = leading, n_teachers - leading
    moved = votes.copy()
    moved[:, 0] -= 1
    moved[:, 1] += 1
    here, there = _log_law(mechanism, votes), _log_law(mechanism, moved)
    told = ((np.exp(here) - np.exp(there)) * (here - there)).sum(axis=1)
    return votes[told.argmax()], moved[told.argmax()]


def _log_law(mechanism: BallotMechanism, votes: np.ndarray) -> np.ndarray:
    """Log probability of each outcome, one row a vote, with finite values for impossible outcomes."""
    return np.asarray(np.maximum(mechanism.log_outcomes(votes), -1e300))


def _scores(
    mechanism: BallotMechanism,
    votes: np.ndarray,
    points: np.ndarray,
    shape: tuple[int, int],
    *,
    rng: np.random.Generator,
) -> np.ndarray:
    """The score of each run: the sum of the points of its answers."""
    n = shape[0] * shape[1]
    block = Private(np.tile(votes, (min(n, _CHUNK), 1)), Adjacency.one_ballot())
    told = np.empty(n, dtype=np.int64)
    for start in range(0, n, _CHUNK):
        asked = block[: min(_CHUNK, n - start)]
        outcome = outcome_places(mechanism.release(asked, rng=rng), len(points))
        told[start : start + len(asked)] = points[outcome]
    return np.asarray(told.reshape(shape).sum(axis=1))


def _sentence(lower: float, claimed: float, *, confidence: float, broken: bool, fits: bool) -> str:
    if broken:
        return (
            f"The promise is broken: all answers together leak an epsilon of at least {lower:.4g} "
            f"(confidence {confidence:g}), and at most {claimed:.4g} was promised."
        )
    if not fits:
        return (
            "The runs do not follow the outcome map that the price was computed from: the code that draws "
            f"answers is not the mechanism that is priced. They show an epsilon of at least {lower:.4g} "
            f"(confidence {confidence:g})."
        )
    return (
        f"An adversary who knows every other ballot learns an epsilon of at least {lower:.4g} "
        f"(confidence {confidence:g}); at most {claimed:.4g} was promised."
    )
