"""Laplace or Gaussian noise on one-hot labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka import _check
from ostraka._composition.law import PURE, Law
from ostraka._numeric import up
from ostraka.curve import ORDERS, Curve
from ostraka.mechanisms import _labels, _tight, _whole
from ostraka.private import Adjacency

if TYPE_CHECKING:
    from ostraka.private import Private

__all__ = ["OneHotGaussian", "OneHotLaplace"]

_LEAST, _MOST = 0.05, 1e4  # epsilon of 40, and noise that leaves nothing
_ROUNDING = 1 + 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class OneHotLaplace:
    """A one-hot row for each label, with Laplace noise on every entry.

    Parameters
    ----------
    n_classes : int >= 2
        Labels are 0 to ``n_classes - 1``. Public.
    scale : float in [0.05, 1e4]
        The Laplace scale b; 2 / epsilon for pure ``epsilon``-DP. Public.

    Raises
    ------
    ValueError
        A parameter out of range; when asked, labels that are no classes, before anything is charged.

    Guarantees
    ----------
    The release of all labels is (2 / scale)-DP for one label: another label moves two entries by one
    each. ``curve()`` is the Rényi divergence of these two entries, in both directions. Answers are whole
    multiples of a power of two, plus half of it: cells of real Laplace noise, drawn in whole numbers,
    so that no low bit tells which label was noised; without slack (docs/floating-point.md).
    Source: Malek et al. 2021, arXiv:2106.03408, Sec. 5 and eq. 3; Mironov 2017, arXiv:1702.07476,
    Prop. 6 (the curve); docs/label-privacy.md (delta).

    Examples
    --------
    >>> mechanism = OneHotLaplace(n_classes=3, scale=1.0)
    >>> mechanism.curve().rdp[-1]  # the last order is infinity
    2.0
    >>> mechanism.posterior([[0.2, 1.4, -0.3]], [[0.5, 0.25, 0.25]]).round(3)
    array([[0.262, 0.65 , 0.088]])
    """

    n_classes: int
    scale: float
    promise = Adjacency.one_label()

    def __post_init__(self) -> None:
        _check.integer(n_classes=self.n_classes, least=2)
        _within(scale=self.scale)

    def curve(self) -> Curve:
        """Cost of one release of all labels."""
        order = np.array(ORDERS)
        apart = np.append(order[:-1] / (order[:-1] - 1), 1.0) * _whole.EXACTNESS
        two = 2 * (_tight.laplace_rdp(1 / self.scale, order) * _ROUNDING + apart)
        rdp = tuple(np.minimum(two, 2 / self.scale).tolist())
        return Curve(ORDERS, rdp, "label", laws=(Law(PURE, rdp[-1]),))

    def delta(self, epsilon: float) -> float:
        """The smallest delta at which one release is (epsilon, delta)-DP: 1 - e^(-r/2) (1 + r/4), rounded up.

        In it, r = 2 / scale - epsilon, and delta is 0 where that is not positive.
        """
        _check.nonnegative(epsilon=epsilon)
        if epsilon >= 2 / self.scale:
            return 0.0
        r = min(2 / self.scale - epsilon + 4 * _whole.EXACTNESS, 2 / self.scale)
        return -math.expm1(-r / 2) - r / 4 * math.exp(-r / 2) + 4 * _whole.EXACTNESS

    def uses(self, private: Private) -> int:
        """One use for all rows, since one unit owns one label."""
        return _labels.charged(private, self.n_classes)

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """One noisy row a label, float64 of shape (n, n_classes)."""
        labels = _labels.hard(private, self.n_classes)
        grain = _whole.grain(self.scale)
        # the law drawn may be off by a little: so is its scale, to the safe side
        rate = grain * (1 / self.scale - _whole.EXACTNESS)
        return _noised(labels, _whole.geometric(rate, (len(labels), self.n_classes), rng=rng), grain, rng)

    def log_likelihood(self, answers: Any) -> np.ndarray:
        """Log density of each answer under each label, up to a constant for each row."""
        return np.asarray(np.clip(2 * _labels.soft(answers, self.n_classes) - 1, -1, 1) / self.scale)

    def posterior(self, answers: Any, prior: Any) -> np.ndarray:
        """Probability of each label after the answers, given a public ``prior`` of shape (n, n_classes)."""
        return _labels.posterior(self.log_likelihood(answers), prior)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneHotGaussian:
    """A one-hot row for each label, with Gaussian noise on every entry.

    Parameters
    ----------
    n_classes : int >= 2
        Labels are 0 to ``n_classes - 1``. Public.
    sigma : float in [0.05, 1e4]
        Standard deviation of the noise. Public.

    Raises
    ------
    ValueError
        A parameter out of range; when asked, labels that are no classes, before anything is charged.

    Guarantees
    ----------
    One changed label is a Gaussian shift of mu = sqrt(2) / sigma, exactly; ``curve().delta`` and
    ``curve().epsilon`` are those of the exact Gaussian (Balle and Wang 2018, arXiv:1805.06530, Thm. 8),
    not of the textbook bound. Answers are cells of the real noise, as :class:`OneHotLaplace`, drawn
    exactly: where a table does not decide the cell for certain, more bits do (docs/floating-point.md).
    Source: Malek et al. 2021, arXiv:2106.03408, Sec. 5 and App. D.

    Examples
    --------
    >>> round(OneHotGaussian(n_classes=10, sigma=4.0).curve().epsilon(delta=1e-5), 2)
    1.36
    """

    n_classes: int
    sigma: float
    promise = Adjacency.one_label()

    def __post_init__(self) -> None:
        _check.integer(n_classes=self.n_classes, least=2)
        _within(sigma=self.sigma)

    def curve(self) -> Curve:
        """Cost of one release of all labels."""
        whole = Curve.gaussian(sensitivity=up(math.sqrt(2)), sigma=self.sigma, moves="label")
        return Curve(ORDERS, whole.rdp, "label", mu_squared=whole.mu_squared, laws=whole.laws)

    def delta(self, epsilon: float) -> float:
        """The smallest delta at which one release is (epsilon, delta)-DP, rounded up."""
        return self.curve().delta(epsilon)

    def uses(self, private: Private) -> int:
        """One use for all rows, since one unit owns one label."""
        return _labels.charged(private, self.n_classes)

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """One noisy row a label, float64 of shape (n, n_classes)."""
        labels = _labels.hard(private, self.n_classes)
        grain = _whole.grain(self.sigma)
        size = _whole.half_normal(self.sigma / grain, (len(labels), self.n_classes), rng=rng)
        return _noised(labels, size, grain, rng)

    def log_likelihood(self, answers: Any) -> np.ndarray:
        """Log density of each answer under each label, up to a constant for each row."""
        return (_labels.soft(answers, self.n_classes) - 0.5) / self.sigma**2

    def posterior(self, answers: Any, prior: Any) -> np.ndarray:
        """Probability of each label after the answers, given a public ``prior`` of shape (n, n_classes)."""
        return _labels.posterior(self.log_likelihood(answers), prior)


def _within(**named: float) -> None:
    _check.positive(**named)
    for name, value in named.items():
        if not _LEAST <= value <= _MOST:
            raise ValueError(f"{name} must be from {_LEAST:g} to {_MOST:g}, got {value!r}")


def _noised(labels: np.ndarray, size: np.ndarray, grain: float, rng: np.random.Generator) -> np.ndarray:
    """One-hot rows plus noise in the middles of cells, ``size`` cells to either side; no sum rounds."""
    halves = (2 * size + 1) * (1 - 2 * rng.integers(0, 2, size=size.shape))
    halves[np.arange(len(labels)), labels] += round(2 / grain)
    return np.asarray(halves * (grain / 2))
