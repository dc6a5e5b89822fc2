"""Private-kNN: the private rows nearest to a query vote with their own labels, each by chance."""

from __future__ import annotations

import math
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from ostraka import _check
from ostraka.curve import ORDERS, Curve
from ostraka.mechanisms import GNMax, LNMax, Subsampled, Threshold
from ostraka.private import Adjacency, Private
from ostraka.voters._exact import SURELY, sampled_rdp
from ostraka.voters._nearest import Nearest
from ostraka.voters._sampled import SampledVotes, Sampler
from ostraka.voters._tables import CLASSES_FROM_Y, encoded
from ostraka.voters.shards import numbered

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NeighbourVoter"]

# -log of the chance that the units looked up are too few for a sample, which then looks up all the others
_SELDOM = 20.7


class NeighbourVoter(BaseEstimator):
    """Private-kNN: of a fresh Poisson sample of the private rows, the k nearest vote with their labels.

    Parameters
    ----------
    k : int, default 200
        Most ballots in a query. Public.
    sampling_rate : float in (0, 1], default 0.2
        Poisson probability with which a unit takes part in a query. Public; who took part is secret.
    transformer : fitted scikit-learn transformer, optional
        What makes features of rows: anything with ``transform``, which must treat each row alone. Public: it
        must have been fitted on public rows, and is never fitted here. None: the columns are the features,
        on their own scales.
    metric : {"euclidean", "cosine"}
        What nearest means, among the features.
    relation : {"add-or-remove", "replace-one"}
        What neighbours differ in: see Guarantees.
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
        Public. What a reader of any result must know.

    Guarantees
    ----------
    *Sensitivity.* Fix who else takes part. A unit that takes part and is among the k nearest adds its ballot
    and pushes out that of the k-th nearest of the others, if they are k; otherwise it changes nothing. So
    it moves at most one ballot (one count + 1, another - 1; or one count alone), which is what ``GNMax``,
    ``LNMax`` and ``Threshold`` pay for. The order of the others does not depend on it, not even
    in the last bit. A person with several rows casts one ballot, that of the row nearest to the query.

    *Add-or-remove* (the default): one unit is added or removed, the number of units is not public, and the
    price is ``Subsampled(mechanism=…, sampling_rate=…)``. *Replace-one*: the data of one unit is replaced
    by any other or by nothing; nothing is proved here about what sampling saves, and the price is the
    mechanism's own.

    *Add-or-remove* votes are drawn when a mechanism opens them, and again each time: every payment buys
    a sample of its own. What a transformer learned from private rows is not covered.
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
        """Keep the rows, as features, with their labels.

        Parameters
        ----------
        X : array, data frame, or what the transformer takes, of n_rows rows
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
            Settings out of range, a transformer that was not fitted, rows it cannot take, features that
            are not finite numbers, wrong shapes, a class not declared.
        """
        self._check_settings()
        features = self._private_features(X)
        self._tell("features", len(features), len(features))
        y = np.asarray(y)
        if y.shape != (len(features),):
            raise ValueError(f"y must have one label for each of {len(features)} rows, got shape {y.shape}")
        if groups is not None and len(groups) != len(features):
            raise ValueError(f"groups must name one person a row: got {len(groups)} for {len(features)} rows")
        self.notes_ = [] if classes is not None else [CLASSES_FROM_Y]
        self.classes_, codes = encoded(y, classes)
        self.n_features_in_ = features.shape[1]
        units, self.unit_ = None, "row"
        if groups is not None:
            units, _, self.unit_ = numbered(groups)
        self._crowd = Nearest.of(features, codes, units, cosine=self.metric == "cosine")
        return self

    def vote(self, X: Any, *, rng: np.random.Generator | None = None) -> Private:
        """The votes on each row; where chance saves something, drawn anew each time a mechanism opens them.

        Parameters
        ----------
        X : as in training, of n_queries rows
            Public.
        rng : numpy.random.Generator, optional
            Who takes part. None: a ChaCha20 generator keyed by the operating system, new for each
            draw. Whoever can repeat another generator knows the sample, so that chance hides nobody:
            the votes are then drawn here, once, and say sampling rate 1: no ``Subsampled`` with a lower
            rate takes them.

        Returns
        -------
        Private of shape (n_queries, n_classes), in votes
            One ballot a unit, at the sampling rate, or at 1 where chance saves nothing: ready for
            :func:`ostraka.release`.

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
        # nothing is saved by chance, so nothing is lost by asking one sample again
        return Private(sampler.draw(), Adjacency(unit=self.unit_, relation=self.relation))

    def sampled_votes(self, X: Any, *, n_trials: int, rng: np.random.Generator | None = None) -> np.ndarray:
        """Votes of many fresh samples, **not protected**: for the owner's eyes, attacks and audits.

        The neighbours of a row are looked up once, for all its trials.

        Parameters
        ----------
        X : as in training, of n_queries rows
            Public.
        n_trials : int
            Samples a query, each independent of all others.
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

    def exact_curve(self, X: Any, *, mechanism: GNMax | LNMax | Threshold) -> Curve:
        """What answering each row once really costs one unit, for the data at hand: two classes only.

        Parameters
        ----------
        X : as in training, of n_queries rows
            Public.
        mechanism : GNMax, LNMax or Threshold
            What is asked of the sample, not wrapped in ``Subsampled``. Public.

        Returns
        -------
        Curve
            ``publishable=False``: it depends on the private rows, and is for the owner only.

        Raises
        ------
        TypeError
            Another mechanism.
        ValueError
            More than two classes: the states are then too many (docs/neighbours.md).

        Guarantees
        ----------
        For each order, the largest divergence between the laws of the answer with the units at hand and
        with one left out, or one of any class put in at any distance, in either direction, summed over
        queries: at least the truth, and above it by no more than a relative 1e-7 and 1e-11 a query.
        Where floating point cannot tell, and wherever that is less, it is the price for any data.
        """
        if not isinstance(mechanism, GNMax | LNMax | Threshold):
            raise TypeError(f"exact costs are for GNMax, LNMax or Threshold, not sampled, got {mechanism!r}")
        sampler = self._sampler(X, None, seldom=SURELY)
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

    def _sampler(self, X: Any, rng: np.random.Generator | None, *, seldom: float = _SELDOM) -> Sampler:
        """The neighbours of each query, as many as a sample needs to find k among them nearly always."""
        check_is_fitted(self, "classes_")
        self._check_settings()
        points = _table(self._transformed(X), "X")
        if points.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {points.shape[1]} features, but the private rows have {self.n_features_in_}"
            )
        codes = self._crowd.around(
            points,
            depth=_depth(self.k, self.sampling_rate, seldom),
            told=partial(self._tell, "neighbours"),
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
                    "transformer must be fitted already, on public rows: transformer.fit(X_public). Fitted "
                    "on private rows it would carry them into every answer, at a price nobody has computed"
                ) from None

    def _transformed(self, X: Any) -> Any:
        return X if self.transformer is None else self.transformer.transform(X)

    def _private_features(self, X: Any) -> np.ndarray:
        """Features of the private rows; what a transformer says about them reaches nobody."""
        features = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # whatever an exception says may name private values; hence not raised from it either
            try:
                features = self._transformed(X)
            except Exception:  # noqa: BLE001
                features = None
        if features is None:
            raise ValueError(
                "transformer cannot take the private rows: call its transform on public rows of the same kind"
            )
        return _table(features, "X")

    def _tell(self, stage: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(stage, done, total)


def _table(features: Any, name: str) -> np.ndarray:
    """Finite float32 numbers, one row a row.

    A matrix product rounds a row by its place among the others; what is left of that after rounding to
    float32 is next to nothing.
    """
    if scipy.sparse.issparse(features):
        raise ValueError(
            f"{name} must have dense features, got a sparse matrix: end the transformer with TruncatedSVD, "
            "fitted on public rows, or call toarray()"
        )
    table = None
    try:
        with np.errstate(over="ignore"):
            table = np.ascontiguousarray(features, dtype=np.float32)
    except (TypeError, ValueError):  # which would quote a value
        table = None
    if table is None:
        raise ValueError(f"{name} must have numbers as features: give a transformer that makes them")
    if table.ndim != 2 or not table.size:
        raise ValueError(
            f"{name} must have shape (n_rows, n_features), with one row or more, got {table.shape}"
        )
    if not np.isfinite(table).all():
        raise ValueError(
            f"{name} of shape {table.shape} must be finite and below 3e38: drop or fill the rows"
        )
    return table


def _depth(k: int, sampling_rate: float, seldom: float) -> int:
    """Units among which k take part, but for a chance of e^-seldom (Chernoff)."""
    expected = k if sampling_rate == 1 else k + seldom + math.sqrt(seldom**2 + 2 * seldom * k)
    return math.ceil(expected / sampling_rate)
