"""Smooth sensitivity of the 2018 bound (Papernot et al. 2018, appendix B): how far one ballot moves it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np
from scipy.ndimage import maximum_filter1d

from ostraka import _check
from ostraka.accounting.dependent import argmax_bound, screen_bound
from ostraka.mechanisms.protocols import HasScreenBound

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ostraka.mechanisms.protocols import ArgmaxBound, BallotMechanism

__all__ = ["check_conditions", "local_sensitivities", "require_conditions", "smooth_sensitivity"]

_GRID = 4096  # points at which conditions C5 and C6 are looked at
_RELATIVE = 1e-9  # what a condition may fail by, as rounding does


def local_sensitivities(
    mechanism: BallotMechanism, counts: ArrayLike, *, n_teachers: int, order: float
) -> np.ndarray:
    """Bounds on how far one more ballot moves the 2018 bound, 0, …, n_teachers ballots away. Owner only.

    Parameters
    ----------
    mechanism : GNMax, LNMax, or a Threshold with noise on the largest count
        Public.
    counts : array, shape (n_queries, n_classes), in votes
        Private. Each row answered once.
    n_teachers : int
        Public.
    order : float > 1
        The Rényi order, finite.

    Returns
    -------
    float64 array, shape (n_teachers + 1,), nats
        Entry d bounds the local sensitivity of the summed bound at all votes within d ballots of
        ``counts``. A ballot may change its vote in every query, so queries add up.

    Raises
    ------
    TypeError
        Another mechanism.
    ValueError
        Condition C5 or C6 fails at this noise and order: see :func:`check_conditions`.

    Guarantees
    ----------
    Source: Papernot et al. 2018, arXiv:1802.08908, Algorithms 3 to 5 and Prop. 13. Unlike there,
    each query counts with its largest sensitivity up to distance d, not with that at d: within d
    ballots every query may be at another distance.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> local_sensitivities(GNMax(sigma=40.0), [[240, 10]], n_teachers=250, order=8.0)[[0, 9]].round(7)
    array([1.7e-06, 5.4e-06])
    """
    array = _check.counts(counts)
    _check.integer(n_teachers=n_teachers, least=2)
    if isinstance(mechanism, HasScreenBound):
        return _of_screen(mechanism, array, n_teachers, order)
    require_conditions(mechanism, n_classes=array.shape[1], order=order)
    return _of_argmax(_model(mechanism, array.shape[1], order), array, n_teachers)


def smooth_sensitivity(sensitivities: np.ndarray, *, beta: float) -> float:
    """Largest local sensitivity, that at distance d counted exp(-beta d) times (Nissim et al. 2007)."""
    _check.positive(beta=beta)
    return float((sensitivities * np.exp(-beta * np.arange(len(sensitivities)))).max())


def check_conditions(mechanism: BallotMechanism, *, n_classes: int, order: float) -> tuple[bool, bool]:
    """Whether conditions C5 and C6 of Papernot et al. 2018, appendix B, hold, on a grid of 4096 points.

    C5: the bound grows with q up to q0, where it meets the bound for any votes. C6: so does the
    largest step that one ballot can make it grow by, up to one ballot before q0.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> check_conditions(GNMax(sigma=40.0), n_classes=10, order=20.0)
    (True, True)
    """
    return _model(mechanism, n_classes, order).conditions


def require_conditions(mechanism: BallotMechanism, *, n_classes: int, order: float) -> None:
    """Raise unless both conditions hold."""
    conditions = check_conditions(mechanism, n_classes=n_classes, order=order)
    if conditions != (True, True):
        failed = "C6" if conditions[0] else "C5"
        raise ValueError(
            f"condition {failed} of Papernot et al. 2018, appendix B, fails for {mechanism!r} at order "
            f"{order:g}: choose another order, or method='certificate', which needs none"
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Model:
    """The bound of one argmax as a function of q, on a scale on which a ballot moves q by one step."""

    published: ArgmaxBound
    n_classes: int
    order: float
    meets: float  # q0 as a point of the scale; smaller points are larger q
    conditions: tuple[bool, bool]

    def points(self, votes: np.ndarray) -> np.ndarray:
        return self.published.points(votes[:, 1:] - votes[:, :1])

    def bound(self, point: np.ndarray) -> np.ndarray:
        return self.published.at_points(point, n_classes=self.n_classes, order=self.order)

    def sensitivity(self, point: np.ndarray) -> np.ndarray:
        """Algorithm 3, outside the plateau from one ballot before q0 to q0."""
        worse, here, better = self.bound(np.concatenate([point - 1, point, point + 1])).reshape(3, -1)
        return np.asarray(np.maximum(worse - here, here - better))


@lru_cache(maxsize=512)
def _model(mechanism: BallotMechanism, n_classes: int, order: float) -> _Model:
    """Find q0 and look at the two conditions."""
    published = argmax_bound(mechanism)
    bound_at = partial(published.at_points, n_classes=n_classes, order=order)
    point = np.linspace(-2.0, published.furthest, 4 * _GRID)
    bound = bound_at(point)
    smaller = bound < bound.max() * (1 - 1e-12)
    if not smaller.any():
        raise ValueError(f"at order {order:g} the 2018 bound never falls below the bound for any votes")
    first = int(np.argmax(smaller))
    low, high = float(point[max(0, first - 1)]), float(point[first])
    for _ in range(60):
        middle = (low + high) / 2
        below = bound_at(np.array([middle]))[0] < bound.max() * (1 - 1e-12)
        low, high = (low, middle) if below else (middle, high)
    falls = np.linspace(high, float(point[-1]), _GRID)
    value = bound_at(falls)
    steps = np.linspace(high + 1, float(point[-1]), _GRID)
    step = bound_at(steps - 1) - bound_at(steps)
    return _Model(published, n_classes, order, low, (_falls(value), _falls(step)))


def _falls(values: np.ndarray) -> bool:
    return bool((np.diff(values) <= _RELATIVE * np.abs(values[:-1]) + 1e-280).all())


def _of_argmax(model: _Model, counts: np.ndarray, n_teachers: int) -> np.ndarray:
    """Algorithms 4 and 5 for all queries at once: walk each query towards q0, where sensitivity peaks."""
    votes = -np.sort(-counts, axis=1)
    plateau = float(model.sensitivity(np.array([model.meets + 1]))[0])
    largest = np.full(n_teachers + 1, 0.0)
    point = model.points(votes)
    best = model.sensitivity(point)
    rising = point < model.meets
    going = (point > model.meets + 1) | rising
    best[~going] = plateau
    largest[0] = best.sum()
    done = float(best[~going].sum())
    votes, best, rising = votes[going], best[going], rising[going]
    for distance in range(1, n_teachers + 1):
        stuck = rising & (votes[:, 1] < 1)
        done += float(best[stuck].sum())
        votes, best, rising = votes[~stuck], best[~stuck], rising[~stuck]
        votes = _step(votes, rising)
        point = model.points(votes)
        arrived = np.where(rising, point >= model.meets, point <= model.meets + 1)
        best = np.where(arrived, plateau, np.maximum(best, model.sensitivity(point)))
        done += float(best[arrived].sum())
        votes, best, rising = votes[~arrived], best[~arrived], rising[~arrived]
        largest[distance] = done + best.sum()
        if not len(votes):
            largest[distance:] = done
            break
    return np.asarray(largest * (1 + 1e-12))


def _step(votes: np.ndarray, rising: np.ndarray) -> np.ndarray:
    """One ballot between the two largest counts: to the first where ``rising``, else to the second."""
    moved = votes.copy()
    moved[:, 0] += np.where(rising, 1, -1)
    moved[:, 1] -= np.where(rising, 1, -1)
    if rising.any():
        moved[rising, 1:] = -np.sort(-moved[rising, 1:], axis=1)
    return moved


def _of_screen(screen: BallotMechanism, counts: np.ndarray, n_teachers: int, order: float) -> np.ndarray:
    """Largest step of the screen's bound within each distance; it depends on the largest count only."""
    published = screen_bound(screen)
    unlikely = published.log_q_of_largest(np.arange(n_teachers + 1.0))
    bound = published.rdp(unlikely, (order,))[:, 0]
    step = np.pad(np.abs(np.diff(bound)), 1)
    local = np.maximum(step[1:], step[:-1])
    largest = counts.max(axis=1).astype(np.int64)
    times = np.bincount(largest, minlength=n_teachers + 1)
    within = [times @ maximum_filter1d(local, 2 * d + 1, mode="nearest") for d in range(n_teachers + 1)]
    return np.array(within) * (1 + 1e-12)
