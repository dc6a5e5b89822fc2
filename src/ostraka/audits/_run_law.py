"""The exact law of a whole run of independent answers, and the epsilon of two such laws."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.fft

__all__ = ["RunLaws", "run_laws"]

_FINEST, _MOST_CELLS = 200, 2**21
_NEGLIGIBLE = 1e-20  # probability of a score that is left out at either end
_LOST = 1e-15  # relative error of one Fourier coefficient, a few units in the last place


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunLaws:
    """Laws of the score of a run in two worlds. The score is the sum of whole points of its answers.

    ``points``: of each outcome, its log likelihood ratio in units of ``step``, rounded. ``p``, ``q``:
    probability of the scores from ``lowest`` on. ``doubt``: largest error of one such probability.
    """

    points: np.ndarray
    step: float
    n_answers: int
    lowest: int
    p: np.ndarray
    q: np.ndarray
    doubt: float

    def delta(self, epsilon: float) -> float:
        """A lower bound on delta at ``epsilon``, the larger direction.

        A score is post-processing, so its hockey-stick divergence is at most that of the runs. Each point is
        rounded by half a step at most, which also bounds the ratio of both probabilities of a score.
        """
        loss = self.step * (self.lowest + np.arange(self.p.size))
        blur = self.step * self.n_answers / 2
        return max(
            self._excess(self.p, self.q, blur - loss, epsilon),
            self._excess(self.q, self.p, blur + loss, epsilon),
        )

    def _excess(self, p: np.ndarray, q: np.ndarray, log_ratio: np.ndarray, epsilon: float) -> float:
        """Sum of p - e^epsilon q where positive: p rounded down, q up; log(q / p) <= ``log_ratio``."""
        low, high = np.maximum(0.0, p - self.doubt), q + self.doubt
        with np.errstate(over="ignore", divide="ignore"):
            by_ratio = np.log(p + self.doubt) + log_ratio
            scaled = np.exp(np.minimum(700.0, epsilon + np.minimum(np.log(high), by_ratio)))
        return float(np.maximum(0.0, low - scaled).sum() * (1 - 1e-9))

    def epsilon(self, delta: float) -> float:
        """The largest epsilon whose delta is certainly above ``delta``, from below; 0 if there is none."""
        if not self.delta(0.0) > delta:
            return 0.0
        low, high = 0.0, 1.0
        while self.delta(high) > delta and high < 700:
            low, high = high, 2 * high
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        return low

    def quantile_edges(self, tails: tuple[float, ...]) -> np.ndarray:
        """Scores near these upper quantiles of the first world, and lower quantiles of the second."""
        above = self.p[::-1].cumsum()[::-1]
        below = self.q.cumsum()
        places = [int(np.searchsorted(-above, -tail)) for tail in tails]
        places += [int(np.searchsorted(below, tail)) for tail in tails]
        return np.unique(self.lowest + np.array(places))

    def binned(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Probability of the scores below the first edge, between each two, and from the last one on."""
        cuts = np.clip(edges - self.lowest, 0, self.p.size)
        found = [
            np.diff(np.concatenate([[0], law.cumsum()])[[0, *cuts, law.size]]) for law in (self.p, self.q)
        ]
        return found[0], found[1]


def run_laws(log_p: np.ndarray, log_q: np.ndarray, *, n_answers: int) -> RunLaws:
    """The laws of ``n_answers`` independent answers with these log probabilities of each outcome."""
    ratio = np.clip(log_p - log_q, -700.0, 700.0)
    largest = float(np.abs(ratio).max())
    fine = int(np.clip(_MOST_CELLS // (2 * n_answers), 1, _FINEST))
    step = largest / fine if largest > 0 else 1.0
    points = np.round(ratio / step).astype(np.int64)
    least, span = int(points.min()), int(np.ptp(points))
    size = scipy.fft.next_fast_len(span * n_answers + 1, real=True)
    laws, doubt = [], 0.0
    for log_law in (log_p, log_q):
        one = np.bincount(points - least, weights=np.exp(log_law), minlength=size)
        coefficients = scipy.fft.rfft(one / one.sum()) ** n_answers
        laws.append(np.maximum(0.0, scipy.fft.irfft(coefficients, size)[: span * n_answers + 1]))
        spread = 2 * float(np.abs(coefficients).mean())
        doubt = max(doubt, _LOST * (n_answers + math.log2(size + 1)) * spread)
    kept = np.flatnonzero(np.maximum(*laws) > _NEGLIGIBLE)  # leaving scores out only lowers a bound
    first, last = int(kept[0]), int(kept[-1]) + 1
    return RunLaws(
        points=points,
        step=step,
        n_answers=n_answers,
        lowest=least * n_answers + first,
        p=laws[0][first:last],
        q=laws[1][first:last],
        doubt=doubt,
    )
