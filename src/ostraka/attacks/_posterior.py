"""What to believe about the votes after seeing answers: a posterior over whole numbers of votes."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

from ostraka.attacks._law import information
from ostraka.attacks._likelihood import most_likely
from ostraka.attacks._tables import tables

if TYPE_CHECKING:
    from ostraka.attacks._law import Ballot

__all__ = ["marginals", "rounded"]

_FINEST = 2000  # counts told apart; more teachers than this are followed in larger steps
_WORK = 6e7  # multiplications a chain may take: some 50 ms
_MOST, _LEAST = 40_000, 6_000


def marginals(
    answers: np.ndarray, n_teachers: int, mechanism: Ballot, *, prior: float | str
) -> tuple[np.ndarray, np.ndarray, float]:
    """Posterior of each class's count, shape (n_classes, n_counts); the likeliest votes; votes a count step.

    The same answers give the same result: the chain's own randomness is seeded by them.
    """
    steps = min(n_teachers, _FINEST)
    known = tables(answers, n_teachers, mechanism, steps=steps, prior=prior)
    start = most_likely(answers, n_teachers, mechanism)
    n_steps = int(np.clip(_WORK / (2 * len(start) * known.cdf.shape[1]), _LEAST, _MOST))
    from ostraka.attacks import _sampler  # noqa: PLC0415  (compiled code, loaded when needed)

    votes = rounded(start / known.unit, steps)
    reach = _reach(start, answers.sum(), mechanism, n_teachers) / known.unit
    seed = zlib.crc32(np.ascontiguousarray(answers, dtype=np.int64).tobytes())
    seen, best = _sampler.chain(votes, reach, known, n_steps, seed)
    return seen / seen.sum(axis=1, keepdims=True), best, known.unit


def rounded(votes: np.ndarray, total: int) -> np.ndarray:
    """Whole numbers near ``votes`` that add up to ``total``: the largest remainders go up."""
    down: np.ndarray = np.floor(np.maximum(votes, 0.0)).astype(np.int64)
    left = total - int(down.sum())
    order = np.argsort(down - votes, kind="stable")
    down[order[:left]] += 1
    return down


def _reach(votes: np.ndarray, n_answers: float, mechanism: Ballot, n_teachers: int) -> np.ndarray:
    """Votes to move between two classes at a time, so that a fair part of the proposals is accepted."""
    known = n_answers * information(mechanism, votes[None])[0]
    own = np.diag(known)
    along = own[:, None] + own[None, :] - 2 * known
    widest = max(1.0, n_teachers / 4)
    return np.asarray(np.minimum(1.7 / np.sqrt(np.maximum(along, widest**-2)), widest))
