"""The audit of a released table of counts: the exact law of its largest moves, and simulated releases."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ostraka import _check
from ostraka.audits._exact_law import finding_of
from ostraka.mechanisms._discrete import log_normaliser
from ostraka.private import Adjacency, Private
from ostraka.randomness import os_keyed

if TYPE_CHECKING:
    from ostraka.audits.finding import Finding
    from ostraka.mechanisms import NoisyCounts

__all__ = ["audit_counts"]

_MOST_MOVES = 64  # moves by one whose law is computed; beyond, two cells move far
_BINS = 12
_REACH = 12  # standard deviations
_SMOOTH = 3.0  # sigma from which sums of discrete Gaussians are discrete Gaussians up to 1e-36
_DOWN = 1 - 1e-9  # sums of probabilities in floating point err by far less
_WHAT = "Tables of counts where one unit moves as far as it may, all other units known"


def audit_counts(
    mechanism: NoisyCounts,
    *,
    claimed_epsilon: float,
    delta: float,
    n_tables: int = 1,
    trials: int = 20_000,
    confidence: float = 0.95,
    rng: np.random.Generator | None = None,
) -> Finding:
    """Compute and simulate what the strongest adversary learns from one noisy table, or from several.

    The adversary knows all counts but one unit's part. That part moves the table as far as the mechanism
    promises to hide: one count up and one down by one for every ballot, or two counts by more. It moves
    every table so. In each trial the mechanism itself releases the tables, and the adversary reads the log
    likelihood ratio, whose law is exact.

    Parameters
    ----------
    mechanism : NoisyCounts
        Public.
    claimed_epsilon, delta : float
        What all releases together promise.
    n_tables : int >= 1
        How many tables the mechanism releases.
    trials : int
        Releases in each world.
    confidence : float in (0, 1)
    rng : numpy.random.Generator, optional
        None: noise as the door draws it, keyed by the operating system.

    Returns
    -------
    Finding
        One measure, epsilon at ``delta``. *Violated* if the lower bound is above the claim, or the releases
        do not follow the exact law (false alarm below 1e-6). The lower bound is the larger of the exact
        epsilon and of what the releases show; the latter is wrong by a chance of 1 - ``confidence`` at most.

    Guarantees
    ----------
    Nothing private is read, so the finding is public. For code which follows the law of the discrete
    Gaussian the measure's ``exact`` is certain: the exact epsilon of a move within ``l2``, computed from
    below. Where the releases do not follow it, the bound is from them alone, at ``confidence``.

    Examples
    --------
    >>> from ostraka.mechanisms import NoisyCounts
    >>> mechanism = NoisyCounts(sigma=4.5)
    >>> found = audit_counts(mechanism, claimed_epsilon=1.2, delta=1e-5, rng=np.random.default_rng(0))
    >>> found.verdict, 1.18 < found.measures[0].lower < 1.2
    ('consistent', True)
    """
    _check.nonnegative(claimed_epsilon=claimed_epsilon)
    _check.delta(delta)
    _check.integer(trials=trials, least=100)
    _check.integer(n_tables=n_tables, least=1)
    move = np.tile(_largest_move(mechanism.l2), n_tables)
    values, chances = _law(move, mechanism)
    exact = _epsilon(values, chances, move, mechanism.sigma, delta)
    edges = np.unique(values[np.searchsorted(chances.cumsum(), np.arange(1, _BINS) / _BINS)])
    worlds = _simulated(mechanism, move, trials, os_keyed() if rng is None else rng)
    counts = [np.bincount(np.searchsorted(edges, seen), minlength=edges.size + 1) for seen in worlds]
    laws = [
        np.bincount(np.searchsorted(edges, at), weights=chances, minlength=edges.size + 1)
        for at in (values + int(move @ move), values)
    ]
    return finding_of(
        counts,
        laws,
        name=f"{'one table' if n_tables == 1 else f'{n_tables} tables'} by {mechanism!r}",
        exact=exact,
        claimed=claimed_epsilon,
        delta=delta,
        confidence=confidence,
        trials=trials,
        sentence=_sentence,
        note=_note,
    )


def _largest_move(l2: float) -> np.ndarray:
    """An integer vector of Euclidean norm at most ``l2``, and hardly less."""
    squared = math.floor(l2**2 * (1 + 1e-12))
    if squared <= _MOST_MOVES:
        return np.resize([1, -1], squared)
    far = math.floor(l2 / math.sqrt(2))
    return np.array([far, -far])


def _law(move: np.ndarray, mechanism: NoisyCounts) -> tuple[np.ndarray, np.ndarray]:
    """Values of the sum of moves times noise, and their probabilities."""
    step = int(np.abs(move).max())
    if mechanism.sigma >= _SMOOTH:
        # a sum of n of them is one of sigma sqrt(n), but for 4 n exp(-pi² sigma²) of each probability
        spread = mechanism.sigma * math.sqrt(len(move))
        half = math.ceil(_REACH * spread) + 1
        noise = np.arange(-half, half + 1)
        return step * noise, np.exp(-((noise / spread) ** 2) / 2 - log_normaliser(spread))
    half = math.ceil(_REACH * mechanism.sigma) + 1
    noise = np.arange(-half, half + 1)
    one = np.exp(mechanism.log_likelihood(noise, np.zeros_like(noise)))
    chances = one
    for _ in move[1:]:
        chances = np.convolve(chances, one)
    half = len(chances) // 2
    return step * np.arange(-half, half + 1), chances


def _epsilon(values: np.ndarray, chances: np.ndarray, move: np.ndarray, sigma: float, delta: float) -> float:
    """The largest epsilon at which the exact delta is above ``delta``, from below."""
    loss = (float(move @ move) + 2 * values) / (2 * sigma**2)  # in the world with the move

    def exact(epsilon: float) -> float:
        over = loss > epsilon
        return float((chances[over] * -np.expm1(epsilon - loss[over])).sum()) * _DOWN

    low, high = 0.0, float(loss.max())
    if not exact(low) > delta:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if exact(middle) > delta else (low, middle)
    return low


def _simulated(
    mechanism: NoisyCounts, move: np.ndarray, trials: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """The sum of moves times released counts in both worlds, from the mechanism itself."""
    found = []
    for world in (move, np.zeros_like(move)):
        tables = Private(np.tile(world, (trials, 1)), Adjacency.vector(l2=mechanism.l2))
        found.append(mechanism.release(tables, rng=rng) @ move)
    return found


def _note(fits: bool) -> str:  # noqa: FBT001  (as finding_of calls it)
    bound = (
        "that of the exact law, which the simulated releases follow" if fits else "from the releases alone"
    )
    return f"{_WHAT}; nothing private was read. The bound is {bound}."


def _sentence(lower: float, claimed: float, *, confidence: float, broken: bool, fits: bool) -> str:
    if not fits:
        return (
            "The releases do not follow the law that the price was computed from: the code that draws noise "
            f"is not the mechanism that is priced. They show an epsilon of at least {lower:.4g} (confidence "
            f"{confidence:g})."
        )
    if broken:
        return f"At least {lower:.4g} leaks, but {claimed:.4g} was promised: the promise is broken."
    return (
        f"An adversary who knows every other unit learns an epsilon of at least {lower:.4g}; at most "
        f"{claimed:.4g} was promised."
    )
