"""Noisy counts: a whole table of ballots is released at once, with discrete Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.core import check
from ostraka.core.curve import ORDERS, Curve
from ostraka.core.laws.law import GAUSSIAN, Law
from ostraka.core.mechanisms import discrete
from ostraka.core.numeric import up
from ostraka.core.private import RELATIONS, Adjacency, Private

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_SIGMA = 1e5  # tables of the noise stay short
_MOST_COUNT = 2**52
_FURTHEST_SHIFT = 8.0  # standard deviations; beyond, only the Rényi bound is claimed


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyCounts:
    """The whole table of counts, with discrete Gaussian noise on every count.

    Parameters
    ----------
    sigma : float in (0, 1e5], in the units of the counts
        Parameter of the discrete Gaussian; its standard deviation is at most this. Public.
    l2 : float >= 1, default sqrt(2)
        How far one unit may move the whole table, as a Euclidean norm. sqrt(2): one ballot in all,
        which another ballot replaces. sqrt(2 k): k ballots. Public.
    relation : {"replace-one", "zero-out", "add-or-remove"}
        Neighbouring relation of the data, which the table must have, too (:class:`~ostraka.Adjacency`). The
        price depends on ``l2`` alone. Public.

    Raises
    ------
    ValueError
        A parameter out of range; when asked, counts that are not integers, before anything is charged.

    Guarantees
    ----------
    Each count c is released as c + X with P[X = k] proportional to exp(-k² / 2 sigma²), exactly: draws
    compare uniform integers with integer thresholds, and there is no rounding. If one unit moves the table by
    an integer vector of length at most ``l2``, the Rényi divergence of order a is at most a l2² / (2 sigma²)
    (Canonne, Kamath and Steinke 2020, arXiv:2004.00010, Theorem 14), and the release is mu-GDP with mu
    slightly above l2 / sigma, up to a total variation distance below 1e-200 (docs/noisy-counts.md,
    Theorem 1). ``curve()`` holds both.

    Examples
    --------
    >>> from ostraka import Budget, Ledger, release
    >>> table = Private([[40, 2], [1, 57]], Adjacency.vector(l2=math.sqrt(2)))
    >>> with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-5)) as ledger:
    ...     release(NoisyCounts(sigma=4.0), table, ledger=ledger).argmax(axis=1)
    array([0, 1])
    >>> round(NoisyCounts(sigma=4.0).curve().epsilon(delta=1e-5), 3)
    1.36
    """

    sigma: float
    l2: float = math.sqrt(2)
    relation: str = "replace-one"

    def __post_init__(self) -> None:
        check.positive(sigma=self.sigma, l2=self.l2)
        check.one_of(relation=self.relation, allowed=RELATIONS)
        if self.sigma > _MOST_SIGMA:
            raise ValueError(f"sigma must be at most {_MOST_SIGMA:g}, got {self.sigma!r}")
        if self.l2 < 1:
            raise ValueError(f"l2 must be >= 1, since counts are integers, got {self.l2!r}")

    @property
    def promise(self) -> Adjacency:
        """A table which one unit moves by at most ``l2``."""
        return Adjacency.vector(l2=self.l2, relation=self.relation)

    def curve(self) -> Curve:
        """Cost of one release of a whole table, whatever its size and its counts."""
        l2 = up(self.l2, ulps=4)  # square roots and products of whole numbers are rounded
        shift = l2 / self.sigma
        rdp = tuple(up(order * (shift * shift) / 2, ulps=4) for order in ORDERS)
        if shift > _FURTHEST_SHIFT:
            return Curve(ORDERS, rdp, "vector")
        mu = up(l2 * discrete.unit_shift(self.sigma, reach=math.ceil(l2)), ulps=4)
        slack = up(l2**2) * discrete.tail_mass(self.sigma)
        mu_squared = up(mu**2)
        return Curve(
            ORDERS, rdp, "vector", mu_squared=mu_squared, slack=slack, laws=(Law(GAUSSIAN, mu_squared),)
        )

    def uses(self, private: Private) -> int:
        """One use for the whole table."""
        _integers(private)
        return 1

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """The noisy counts, int64 of the shape of the table. Some may be negative."""
        counts = _integers(private)
        return np.asarray(counts + discrete.discrete_gaussian(self.sigma, counts.shape, rng=rng))

    def information(self, counts: Any) -> np.ndarray:
        """Fisher information of one release, shape (n_rows, n_classes, n_classes), per count squared.

        That of the continuous Gaussian.
        """
        n_rows, n_classes = np.shape(counts)
        return np.broadcast_to(np.eye(n_classes) / self.sigma**2, (n_rows, n_classes, n_classes)).copy()

    def log_likelihood(self, answers: Any, counts: Any) -> np.ndarray:
        """Exact log probability of each released count, given the count; nats, of the shape of both."""
        apart = np.asarray(answers, dtype=np.int64) - np.asarray(counts, dtype=np.int64)
        return np.asarray(-((apart / self.sigma) ** 2) / 2 - discrete.log_normaliser(self.sigma))


def one_table(votes: Private) -> Private:
    """Votes of several queries as one table, which one unit moves by a stated Euclidean norm.

    Parameters
    ----------
    votes : Private, shape (n_queries, n_classes), in votes
        Private. ``moves="ballot"``: a unit moves at most ``at_most`` ballots in each query.

    Returns
    -------
    Private
        The same counts, int64, with ``Adjacency.vector``: l1 = 2 b n and l2 = b sqrt(2 n) for n queries in
        which a unit moves b ballots.

    Raises
    ------
    ValueError
        The data are no votes, are sampled by chance, carry noise already, or are not integers.

    Examples
    --------
    >>> one_table(Private([[9, 1], [2, 8]], Adjacency.one_ballot())).adjacency.l2
    2.0
    """
    adjacency = votes.adjacency
    plain = Adjacency(unit=adjacency.unit, at_most=adjacency.at_most, relation=adjacency.relation)
    if adjacency != plain:
        raise ValueError(f"one_table takes votes, not sampled and without noise, got {adjacency}")
    n, moved = max(1, len(votes)), adjacency.at_most
    return Private(
        _integers(votes),
        Adjacency.vector(
            unit=adjacency.unit,
            l1=2 * moved * n,
            l2=moved * math.sqrt(2 * n),
            relation=adjacency.relation,
        ),
    )


def _integers(private: Private) -> NDArray[np.int64]:
    """The counts as int64, exactly."""
    values = private.open()
    kind = values.dtype.kind
    exact = kind in "iu" or (kind == "f" and bool((values == np.floor(values)).all()))
    if not exact or (values.size and not (values.min() >= -_MOST_COUNT and values.max() <= _MOST_COUNT)):
        raise ValueError(f"counts of shape {values.shape} must be integers of at most 2^52 in size")
    return values.astype(np.int64)
