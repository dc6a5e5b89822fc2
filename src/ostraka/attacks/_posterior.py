"""The posterior distribution of the votes given the answers, over whole numbers of votes."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

from ostraka.attacks._likelihood import most_likely
from ostraka.attacks._tables import log_prior, tables
from ostraka.attacks._walk import walk
from ostraka.attacks.leakage import information
from ostraka.mechanisms.protocols import HasArgmaxKernel, HasScreenKernel, parts

if TYPE_CHECKING:
    from ostraka.mechanisms.protocols import BallotMechanism

__all__ = ["marginals", "rounded"]

_FINEST = 2000  # counts told apart; more teachers than this are followed in larger steps
_WORK = 6e7  # multiplications a chain may take: some 50 ms
_MOST, _LEAST = 40_000, 6_000


def marginals(
    answers: np.ndarray, n_teachers: int, mechanism: BallotMechanism, *, prior: float | str
) -> tuple[np.ndarray, np.ndarray, float]:
    """Posterior of each class's count, shape (n_classes, n_counts); the likeliest votes; votes a count step.

    The same answers give the same result: the chain's own randomness is seeded by them.
    """
    steps = min(n_teachers, _FINEST)
    start = most_likely(answers, n_teachers, mechanism)
    unit = n_teachers / steps
    votes = rounded(start / unit, steps)
    reach = _reach(start, answers.sum(), mechanism, n_teachers) / unit
    seed = zlib.crc32(np.ascontiguousarray(answers, dtype=np.int64).tobytes())
    screen, argmax = parts(mechanism)
    gate = screen if isinstance(screen, HasScreenKernel) else None
    if isinstance(argmax, HasArgmaxKernel) and gate is screen:
        from ostraka.attacks import _sampler  # noqa: PLC0415  (compiled code, loaded when needed)

        known = tables(answers, n_teachers, argmax=argmax, screen=gate, steps=steps, prior=prior)
        n_steps = int(np.clip(_WORK / (2 * len(start) * known.cdf.shape[1]), _LEAST, _MOST))
        seen, best = _sampler.chain(votes, reach, known, n_steps, seed)
    else:
        weights = log_prior(steps, len(start), prior)
        seen, best = walk(votes, answers, mechanism, reach=reach, prior=weights, unit=unit, seed=seed)
    return seen / seen.sum(axis=1, keepdims=True), best, unit


def rounded(votes: np.ndarray, total: int) -> np.ndarray:
    """Whole numbers near ``votes`` that add up to ``total``: the largest remainders go up."""
    down: np.ndarray = np.floor(np.maximum(votes, 0.0)).astype(np.int64)
    left = total - int(down.sum())
    order = np.argsort(down - votes, kind="stable")
    down[order[:left]] += 1
    return down


def _reach(votes: np.ndarray, n_answers: float, mechanism: BallotMechanism, n_teachers: int) -> np.ndarray:
    """Votes to move between two classes at a time, so that a fair part of the proposals is accepted."""
    known = n_answers * information(mechanism, votes[None])[0]
    own = np.diag(known)
    along = own[:, None] + own[None, :] - 2 * known
    widest = max(1.0, n_teachers / 4)
    return np.asarray(np.minimum(1.7 / np.sqrt(np.maximum(along, widest**-2)), widest))
