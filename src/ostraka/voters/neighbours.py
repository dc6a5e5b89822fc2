"""Private-kNN: the rows of a random private sample which are nearest to a query vote with their labels."""

from __future__ import annotations

import math
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from ostraka import _check
from ostraka._units import numbered
from ostraka.curve import ORDERS, Curve
from ostraka.mechanisms import Subsampled
from ostraka.mechanisms.protocols import BallotMechanism, check_ballot
from ostraka.private import Adjacency, Private
from ostraka.voters._exact import SURELY, sampled_rdp
from ostraka.voters._nearest import Nearest
from ostraka.voters._sampled import SampledVotes, Sampler
from ostraka.voters._tables import CLASSES_FROM_Y, encoded, feature_table

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NeighbourVoter"]

# -log of the probability that a sample needs more units than were looked up, and looks up all others
_RARE = 20.7


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
    >>> from ostraka.mechanisms import Subsampled
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

    def __init__(
        self,
        *,
        k: int = 200,
        sampling_rate: float = 0.2,
        transformer: Any = None,
        metric: Literal["euclidean", "cosine"] = "euclidean",
        relation: Literal["add-or-remove", "replace-one"] = "add-or-remove",
        progress: Callable[[str, int, int], object] | None = None,
    ) -> None:
        self.k = k
        self.sampling_rate = sampling_rate
        self.transformer = transformer
        self.metric = metric
        self.relation = relation
        self.progress = progress

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
        features = self._private_features(X)
        self._tell("features", len(features), len(features))
        y = np.asarray(y)
        if y.shape != (len(features),):
            raise ValueError(f"y must have one label for each of {len(features)} rows, got shape {y.shape}")
        if groups is not None and len(groups) != len(features):
            raise ValueError(
                f"groups must name one person for each row: got {len(groups)} for {len(features)} rows"
            )
        self.notes_ = [] if classes is not None else [CLASSES_FROM_Y]
        self.classes_, codes = encoded(y, classes)
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
        _check.integer(n_trials=n_trials, least=1)
        sampler = self._sampler(X, rng)
        queries = (sampler[at : at + 1].repeated(n_trials) for at in range(sampler.shape[0]))
        return np.array([each.draw() for each in queries])

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
        points = feature_table(self._transformed(X), "X")
        if points.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {points.shape[1]} features, but the private rows have {self.n_features_in_}"
            )
        codes = self._crowd.around(
            points,
            depth=_depth(self.k, self.sampling_rate, rare),
            on_progress=partial(self._tell, "neighbours"),
        )
        return Sampler(self._crowd, points, codes, self.k, self.sampling_rate, len(self.classes_), rng)

    def _check_settings(self) -> None:
        _check.integer(k=self.k, least=1)
        _check.positive(sampling_rate=self.sampling_rate)
        if self.sampling_rate > 1:
            raise ValueError(f"sampling_rate must be at most 1, got {self.sampling_rate!r}")
        _check.one_of(metric=self.metric, allowed=("euclidean", "cosine"))
        _check.one_of(relation=self.relation, allowed=("add-or-remove", "replace-one"))
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

    def _transformed(self, X: Any) -> Any:
        return X if self.transformer is None else self.transformer.transform(X)

    def _private_features(self, X: Any) -> np.ndarray:
        """Features of the private rows. Warnings and errors of the transformer are suppressed."""
        features = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # the text of an exception may hold private values, so it is not chained either
            try:
                features = self._transformed(X)
            except Exception:  # noqa: BLE001
                features = None
        if features is None:
            raise ValueError(
                "transformer cannot read the private rows: call its transform on public rows of the same kind"
            )
        return feature_table(features, "X")

    def _tell(self, stage: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(stage, done, total)


def _depth(k: int, sampling_rate: float, rare: float) -> int:
    """Number of units that contain k sampled ones, except with probability e^-rare (Chernoff)."""
    expected = k if sampling_rate == 1 else k + rare + math.sqrt(rare**2 + 2 * rare * k)
    return math.ceil(expected / sampling_rate)
