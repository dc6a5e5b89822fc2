"""Private-kNN: the units of a random private sample which are nearest to a query vote with their labels.

:class:`NeighbourVoter` keeps the rows (:class:`Nearest`). Its votes are drawn from a new sample each time a
mechanism opens them (:class:`SampledVotes`). :func:`sampled_rdp` is the exact cost of an answer for given
data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from scipy.stats import binom
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from ostraka.core import check
from ostraka.core.curve import ORDERS, Curve
from ostraka.core.mechanisms.law import BallotMechanism, check_ballot
from ostraka.core.mechanisms.wrapped import Subsampled
from ostraka.core.private import Adjacency, Private
from ostraka.core.randomness import os_keyed
from ostraka.data.contribution import row_by_row
from ostraka.data.labels import CLASSES_FROM_Y, Labels
from ostraka.data.nearest import nearest, squared_distances
from ostraka.data.table import feature_table
from ostraka.data.units import numbered

if TYPE_CHECKING:
    from collections.abc import Callable

_CELLS = 2**20  # random numbers drawn at a time: 8 MiB
# -log of the probability that a sample needs more units than these, which bounds the error of the laws
SURELY = 80.0
# Each divergence is exact to a relative 1e-9 and 1e-13; these additions make the result an upper bound.
_OUTWARD, _LOST = 1 + 1e-8, 1e-12
# Beyond this ratio a subtraction loses too many digits; below this probability it loses all of them.
_FURTHEST, _RAREST = 1e4, 1e-250
# -log of the probability that a sample needs more units than were looked up, and looks up all others
_RARE = 20.7


@dataclass(kw_only=True, eq=False, repr=False)
class NeighbourVoter(BaseEstimator):
    """Private-kNN: of a new Poisson sample of the private rows, the k nearest vote with their labels.

    Parameters
    ----------
    k : int, default 200
        The largest number of ballots in a query. Public.
    sampling_rate : float in (0, 1], default 0.2
        Probability with which a unit takes part in a query. Public; the sample is secret.
    transformer : fitted scikit-learn transformer, optional
        Computes features of rows with its method ``transform``, separately for each row. Public: it must
        have been fitted on public rows, and is never fitted here. None: the columns are the features, in
        their own units.
    metric : {"euclidean", "cosine"}
        The distance of features.
    relation : {"add-or-remove", "replace-one"}
        The neighbouring relation: see Guarantees.
    progress : callable(stage: str, done: int, total: int), optional
        Called with the stages ``"features"``, ``"neighbours"`` and ``"costs"``.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Public. Column k of the votes counts ``classes_[k]``.
    unit_ : str
        Public. ``"row"``, or ``"person"`` when rows were grouped.
    n_features_in_ : int
        Public. Features after the transformer.
    notes_ : list of str
        Public. Remarks that belong to every result.

    Guarantees
    ----------
    *Sensitivity.* Fix the sample of the other units. A unit that is in the sample and among the k nearest
    adds its ballot, and removes that of the k-th nearest of the others if there are k of them; otherwise it
    changes nothing. So it moves at most one ballot (one count + 1, another - 1; or one count alone), as
    ``GNMax``, ``LNMax`` and ``Threshold`` assume. The order of the others does not depend on it, not even in
    the last bit. A person with several rows casts one ballot, that of the row nearest to the query.

    *Add-or-remove* (the default): one unit is added or removed, the number of units is not public, and the
    price is ``Subsampled(mechanism=…, sampling_rate=…)``. *Replace-one*: the data of one unit is replaced
    by any other, and the number of units stays; nothing is proved here about what sampling saves, and the
    price is the mechanism's own.

    *Add-or-remove* votes are drawn each time a mechanism opens them, so that every charge pays for one new
    sample. A transformer that was fitted on private rows is not covered.
    Source: Zhu et al. 2020, doi:10.1109/CVPR42600.2020.01187; docs/neighbours.md.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ostraka import Budget, GNMax, Ledger, release
    >>> from ostraka.core.mechanisms import Subsampled
    >>> X, y = load_digits(return_X_y=True)
    >>> voter = NeighbourVoter(k=20, sampling_rate=0.5).fit(X[::2], y[::2], classes=range(10))
    >>> votes = voter.vote(X[[49, 65, 197]])
    >>> votes
    Private(shape=(3, 10), unit='row')
    >>> mechanism = Subsampled(mechanism=GNMax(sigma=2.0), sampling_rate=0.5)
    >>> with Ledger(":memory:", budget=Budget(epsilon=9.0, delta=1e-3)) as ledger:
    ...     release(mechanism, votes, ledger=ledger)
    array([0, 6, 6])
    """

    k: int = 200
    sampling_rate: float = 0.2
    transformer: Any = None
    metric: Literal["euclidean", "cosine"] = "euclidean"
    relation: Literal["add-or-remove", "replace-one"] = "add-or-remove"
    progress: Callable[[str, int, int], object] | None = None

    def fit(self, X: Any, y: Any, groups: Any = None, *, classes: Any = None) -> Self:
        """Store the features and labels of the rows.

        Parameters
        ----------
        X : array, data frame, or input of the transformer, of n_rows rows
            Private.
        y : array of shape (n_rows,)
            Private.
        groups : array of shape (n_rows,), optional
            Private. Whom each row belongs to; the protected unit is then the person.
        classes : array of shape (n_classes,), optional
            Public. Every class there may be. None: the labels' own, and ``notes_`` says so.

        Raises
        ------
        ValueError
            Settings out of range, a transformer that was not fitted or does not accept the rows, features
            that are not finite numbers, wrong shapes, or an undeclared class.
        """
        self._check_settings()
        rows = X  # else of each row by itself; numbers beyond all measure count as the ends
        if self.transformer is not None:
            rows = np.nan_to_num(row_by_row(self.transformer.transform, X), nan=0.0)
        features = feature_table(rows, "X", clip=True)
        self._tell("features", len(features), len(features))
        if groups is not None and len(groups) != len(features):
            raise ValueError(
                f"groups must name one person for each row: got {len(groups)} for {len(features)} rows"
            )
        self.notes_ = [] if classes is not None else [CLASSES_FROM_Y]
        labels = Labels.of(y, classes, n_rows=len(features), least=2)
        self.classes_, codes = labels.classes, labels.encode(y)
        self.n_features_in_ = features.shape[1]
        units, self.unit_ = None, "row"
        if groups is not None:
            units, _, self.unit_ = numbered(groups)
        self._crowd = Nearest.of(features, codes, units, cosine=self.metric == "cosine")
        return self

    def restore(self, crowd: Nearest, *, classes: np.ndarray, unit: str) -> Self:
        """Take rows that were stored, instead of fitting. :class:`SavedTeachers` uses this.

        Parameters
        ----------
        crowd : Nearest
            Private.
        classes, unit
            Public. ``classes_`` and ``unit_`` of the fitted voter.
        """
        self._check_settings()
        self.notes_, self.classes_, self.unit_ = [], classes, unit
        self._crowd, self.n_features_in_ = crowd, crowd.features.shape[1]
        return self

    def vote(self, X: Any, *, rng: np.random.Generator | None = None) -> Private:
        """The votes on each row. Under add-or-remove, they are drawn each time a mechanism opens them.

        Parameters
        ----------
        X : as in training, of n_queries rows
            Public.
        rng : numpy.random.Generator, optional
            Draws the sample. None: a ChaCha20 generator keyed by the operating system, new for each draw.
            Another generator can be repeated, and then the sample is not secret: the votes are drawn
            once, here, and have sampling rate 1, so that no ``Subsampled`` with a lower rate accepts them.

        Returns
        -------
        Private of shape (n_queries, n_classes), in votes
            One ballot for each unit, as :func:`ostraka.release` takes them; at the sampling rate, or at
            rate 1 where sampling does not reduce the price.

        Raises
        ------
        ValueError
            Other features than in training.
        """
        sampler = self._sampler(X, rng)
        if rng is None and self.relation == "add-or-remove":
            rate = self.sampling_rate
            return SampledVotes(
                sampler, Adjacency(unit=self.unit_, relation=self.relation, sampling_rate=rate)
            )
        # the price does not depend on sampling, so one sample may be used again
        return Private(sampler.draw(), Adjacency(unit=self.unit_, relation=self.relation))

    def sampled_votes(self, X: Any, *, n_trials: int, rng: np.random.Generator | None = None) -> np.ndarray:
        """Votes of many new samples, **not protected**: for the owner, attacks and audits.

        The neighbours of a row are looked up once, for all its trials.

        Parameters
        ----------
        X : as in training, of n_queries rows
            Public.
        n_trials : int
            Number of independent samples for each query.
        rng : numpy.random.Generator, optional
            As for :meth:`vote`.

        Returns
        -------
        int64 array, shape (n_queries, n_trials, n_classes), in votes
            Private.
        """
        check.integer(n_trials=n_trials, least=1)
        sampler = self._sampler(X, rng)
        queries = (sampler[at : at + 1].repeated(n_trials) for at in range(sampler.shape[0]))
        return np.array([query.draw() for query in queries])

    def exact_curve(self, X: Any, *, mechanism: BallotMechanism) -> Curve:
        """The exact cost of answering each row once, for the given data and two classes.

        Parameters
        ----------
        X : as in training, of n_queries rows
            Public.
        mechanism : BallotMechanism
            The mechanism applied to the sample, not wrapped in ``Subsampled``. Public.

        Returns
        -------
        Curve
            ``publishable=False``: it depends on the private rows.

        Raises
        ------
        TypeError
            Another mechanism.
        ValueError
            More than two classes: there are too many states (docs/neighbours.md).

        Guarantees
        ----------
        For each order, the largest divergence between the laws of the answer for these units and for one
        unit fewer, or one more of any class at any distance, in either direction, summed over queries. It
        is at least the true value, and exceeds it by a relative 1e-7 and 1e-11 for each query at most. It
        never exceeds the price for any data, which also replaces it where rounding errors are too large.
        """
        check_ballot(mechanism)
        if mechanism.promise != Adjacency.one_ballot():
            raise TypeError(f"mechanism must hide one ballot, not sampled, got {mechanism!r}")
        sampler = self._sampler(X, None, rare=SURELY)
        if len(self.classes_) != 2:
            raise ValueError(
                f"exact costs of sampled votes are for two classes, but there are {len(self.classes_)}: "
                "use Subsampled(…).curve()"
            )
        whole = sampler.codes.shape[1] == self._crowd.n_units
        price = Subsampled(mechanism=mechanism, sampling_rate=self.sampling_rate).curve()
        rdp = np.zeros(len(ORDERS))
        for done, codes in enumerate(sampler.codes, start=1):
            exact = sampled_rdp(
                mechanism, codes, k=self.k, sampling_rate=self.sampling_rate, orders=ORDERS, whole=whole
            )
            rdp += np.minimum(exact, price.rdp)
            self._tell("costs", done, len(sampler.codes))
        slack = len(sampler.codes) * price.slack
        return Curve(ORDERS, tuple(rdp.tolist()), "ballot", publishable=False, slack=slack)

    def _sampler(self, X: Any, rng: np.random.Generator | None, *, rare: float = _RARE) -> Sampler:
        """The nearest units of each query, so many that a sample nearly always contains k of them."""
        check_is_fitted(self, "classes_")
        self._check_settings()
        points = feature_table(X if self.transformer is None else self.transformer.transform(X), "X")
        if points.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {points.shape[1]} features, but the private rows have {self.n_features_in_}"
            )
        k, rate = self.k, self.sampling_rate
        depth, on_progress = _depth(k, rate, rare), partial(self._tell, "neighbours")
        codes = self._crowd.around(points, depth=depth, on_progress=on_progress)
        return Sampler(self._crowd, points, codes, k, rate, len(self.classes_), rng)

    def _check_settings(self) -> None:
        check.integer(k=self.k, least=1)
        check.positive(sampling_rate=self.sampling_rate)
        if self.sampling_rate > 1:
            raise ValueError(f"sampling_rate must be at most 1, got {self.sampling_rate!r}")
        check.one_of(metric=self.metric, allowed=("euclidean", "cosine"))
        check.one_of(relation=self.relation, allowed=("add-or-remove", "replace-one"))
        if self.transformer is None:
            return
        if not hasattr(self.transformer, "transform"):
            raise ValueError(
                f"transformer must have a method transform, got a {type(self.transformer).__name__}"
            )
        if hasattr(self.transformer, "fit"):
            try:
                check_is_fitted(self.transformer)
            except NotFittedError:
                raise ValueError(
                    "transformer must be fitted on public rows before: transformer.fit(X_public). Fitted on "
                    "private rows it would leak them into every answer, and no price covers that"
                ) from None

    def _tell(self, stage: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(stage, done, total)


def _depth(k: int, sampling_rate: float, rare: float) -> int:
    """Number of units that contain k sampled ones, except with probability e^-rare (Chernoff)."""
    expected = k if sampling_rate == 1 else k + rare + math.sqrt(rare**2 + 2 * rare * k)
    return math.ceil(expected / sampling_rate)


class SampledVotes(Private):
    """Private votes without stored values: each :meth:`open` counts the votes of a new sample.

    Two releases from one sample cost more than two from two samples (docs/neighbours.md), and the price
    assumes the latter. So no sample is stored.
    """

    __slots__ = ("_sampler",)

    def __init__(self, values: Any, adjacency: Adjacency) -> None:
        # otherwise values are computed from an opened sample
        self._sampler = values if isinstance(values, Sampler) else None
        super().__init__(values if self._sampler is None else np.zeros(self._sampler.shape, int), adjacency)

    @property
    def drawn_anew(self) -> bool:
        """Whether there is a sampler to draw from."""
        return self._sampler is not None

    def __getitem__(self, rows: Any) -> Private:
        """Some of the queries. Their votes are still drawn at each opening."""
        if self._sampler is None:
            return super().__getitem__(rows)
        chosen = Private(np.arange(len(self)), self.adjacency)[rows].open()
        return SampledVotes(self._sampler[chosen], self.adjacency)

    def open(self) -> np.ndarray:
        """The votes of a new sample, read-only, as for :meth:`Private.open`."""
        if self._sampler is None:
            return super().open()
        counts = self._sampler.draw()
        counts.setflags(write=False)
        return counts

    def with_adjacency(self, **changes: Any) -> Private:
        """The same votes under another adjacency. They are still drawn at each opening."""
        if self._sampler is None:
            return super().with_adjacency(**changes)
        return SampledVotes(self._sampler, replace(self.adjacency, **changes))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sampler:
    """The data from which the votes of a new sample are counted. Private."""

    crowd: Nearest
    points: np.ndarray
    codes: np.ndarray  # for each query, the classes of the nearest units, nearest first
    k: int
    sampling_rate: float
    n_classes: int
    rng: np.random.Generator | None  # None: a new key from the operating system for each draw

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the votes."""
        return len(self.codes), self.n_classes

    def __getitem__(self, rows: Any) -> Self:
        return replace(self, points=self.points[rows], codes=self.codes[rows])

    def repeated(self, n_trials: int) -> Self:
        """A sampler of one query, repeated."""
        points, codes = (
            np.broadcast_to(table, (n_trials, table.shape[1])) for table in (self.points, self.codes)
        )
        return replace(self, points=points, codes=codes)

    def draw(self) -> np.ndarray:
        """Draw a new sample for each query, and count the votes of its k nearest units."""
        rng = os_keyed() if self.rng is None else self.rng
        counts, lacking = self._counted(self.codes, np.full(len(self.codes), self.k), rng)
        depth = self.codes.shape[1]
        if depth < self.crowd.n_units:
            # rare: keep the units drawn so far, and draw among the others
            for query in np.flatnonzero(lacking):
                nearest_first = self.crowd.around(self.points[query : query + 1], depth=self.crowd.n_units)
                others = nearest_first[:, depth:]
                counts[query] += self._counted(others, lacking[query : query + 1], rng)[0][0]
        return counts

    def _counted(
        self, codes: np.ndarray, wanted: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Votes of the first ``wanted`` sampled units of each row, and how many are still lacking."""
        counts = np.empty((len(codes), self.n_classes), dtype=np.int64)
        lacking = np.empty(len(codes), dtype=np.int64)
        step = max(1, _CELLS // codes.shape[1])
        for rows in (slice(start, start + step) for start in range(0, len(codes), step)):
            part = codes[rows]
            # multiples of 2**-53, so the rate is rounded down to one: a smaller rate costs no more
            among = rng.random(part.shape) < math.floor(self.sampling_rate * 2**53) / 2**53
            place = among.cumsum(axis=1, dtype=np.int32)
            query, at = np.nonzero(among & (place <= wanted[rows, None]))
            cells = query * self.n_classes + part[query, at]
            counts[rows] = np.bincount(cells, minlength=len(part) * self.n_classes).reshape(len(part), -1)
            lacking[rows] = np.maximum(wanted[rows] - place[:, -1], 0)
        return counts, lacking


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Nearest:
    """Private rows that can be searched. One row more does not change the order of the others."""

    features: np.ndarray  # float32, shape (n_rows, n_features); the rows of a unit stand together
    codes: np.ndarray  # uint16, the class of each row
    starts: np.ndarray | None  # the first row of each unit; None: every row is one
    cosine: bool

    @classmethod
    def of(
        cls, features: np.ndarray, codes: np.ndarray, units: np.ndarray | None, *, cosine: bool = False
    ) -> Self:
        """Rows with their classes and units, numbered from 0 without gaps; None: each row is a unit."""
        features, codes, starts = _scaled(features, cosine=cosine), codes.astype(np.uint16), None
        if units is not None:
            order = np.argsort(units, kind="stable")
            features, codes = features[order], codes[order]
            starts = np.flatnonzero(np.diff(units[order], prepend=-1))
        return cls(features, codes, starts, cosine)

    @property
    def n_units(self) -> int:
        """Number of units. Private if neighbouring data sets differ in it."""
        return len(self.codes if self.starts is None else self.starts)

    def around(
        self,
        points: np.ndarray,
        *,
        depth: int,
        on_progress: Callable[[int, int], object] = lambda _done, _total: None,
    ) -> np.ndarray:
        """Classes of the ``depth`` nearest units of each point, nearest first: uint16, (n_queries, depth)."""
        points = _scaled(points, cosine=self.cosine)
        places = nearest(points, [self.features], depth, starts=self.starts, on_progress=on_progress)
        return np.asarray(self.codes[places])


def _scaled(features: np.ndarray, *, cosine: bool) -> np.ndarray:
    """The rows, scaled to length 1 for the cosine: the squared distance is then 2 - 2 cosine."""
    if not cosine:
        return features
    nothing = np.zeros((1, features.shape[1]), dtype=np.float32)
    places = np.arange(len(features))
    lengths = np.sqrt(squared_distances(features, nothing, places, np.zeros_like(places)))
    return (features / np.where(lengths > 0, lengths, 1.0)[:, None]).astype(np.float32)


def sampled_rdp(
    mechanism: BallotMechanism,
    codes: np.ndarray,
    *,
    k: int,
    sampling_rate: float,
    orders: tuple[float, ...],
    whole: bool,
) -> np.ndarray:
    """Largest divergence from a neighbour in either direction; infinity where it cannot be computed.

    ``codes``: classes 0 and 1 of the units around one query, nearest first; ``whole``: these are all units.
    """
    # probability of both outcomes in every state; 0 for more than k ballots
    a, b = np.indices((k + 1, k + 1))
    possible = a + b <= k
    chances = np.zeros((2, k + 1, k + 1))
    chances[:, possible] = np.exp(mechanism.log_outcomes(np.stack([a[possible], b[possible]], axis=1))).T
    law, steps = _laws(chances, codes, k, sampling_rate)
    near = law + sampling_rate * steps
    if not (law.min() > _RAREST and (near * _FURTHEST > law).all()):
        return np.full(len(orders), math.inf)
    off = 0.0 if whole else math.log1p(4 * math.exp(-SURELY) / min(law.min(), near.min()))
    order = np.array(orders)
    finite = order[np.isfinite(order)]
    log_p, log_q = np.log(near), np.log(law)
    divergences = np.maximum(_divergence(log_p, log_q, finite), _divergence(log_q, log_p, finite))
    divergences += off * (2 * finite - 1) / (finite - 1)
    if len(finite) < len(order):
        divergences = np.append(divergences, np.abs(log_p - log_q).max() + 2 * off)
    return np.asarray(divergences * _OUTWARD + _LOST)


def _laws(after: np.ndarray, codes: np.ndarray, k: int, rate: float) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of both outcomes, and their differences for each neighbour divided by the rate.

    The units are visited nearest first. The state is the number of ballots of each class so far. Its law is a
    product of two binomials; the law of the answer from a state is computed backwards. So one pass gives the
    law of the answer with any unit removed, and with a unit of either class inserted at any place.
    """
    before = np.concatenate([[[0, 0]], np.cumsum(np.stack([codes == 0, codes == 1], axis=1), axis=0)])
    ballots = np.arange(k)
    first, second = (binom.pmf(ballots, np.arange(total + 1)[:, None], rate) for total in before[-1])
    open_ = np.add.outer(ballots, ballots) < k
    steps = []
    for place in range(len(codes), -1, -1):
        now = after[:, :k, :k]
        one_more = [(later - now) * open_ for later in (after[:, 1:, :k], after[:, :k, 1:])]
        a, b = before[place]
        steps += [first[a] @ change @ second[b] for change in one_more]  # inserted here
        if place:
            a, b = before[place - 1]
            change = one_more[codes[place - 1]]
            steps.append(-(first[a] @ change @ second[b]))  # the unit before removed
            after[:, :k, :k] += rate * change
    return after[:, 0, 0], np.array(steps)


def _divergence(log_p: np.ndarray, log_q: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """The largest divergence over rows, at each order."""
    divergences = np.empty(len(orders))
    for at, order in enumerate(orders):
        divergences[at] = np.logaddexp.reduce(order * log_p + (1 - order) * log_q, axis=1).max() / (order - 1)
    return np.maximum(divergences, 0.0)
