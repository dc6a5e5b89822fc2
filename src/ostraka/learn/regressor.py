"""PATERegressor: a number of each row, and an interval around it, learned by noisy rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import mean_absolute_error, mean_squared_error
from sklearn.utils.validation import check_is_fitted

from ostraka.core import check
from ostraka.data import guards
from ostraka.learn.classifier import FittedRows
from ostraka.learn.session import Seeds, begin, split
from ostraka.learn.ways.filter import COVERAGES, Regression
from ostraka.learn.ways.plan import Facts, delta_of
from ostraka.voters.rows import scaled

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from ostraka.core.ledger.ledger import Ledger
    from ostraka.core.result import Result
    from ostraka.data.units import Manifest
    from ostraka.learn.ways.filter import RegressionPlan


@dataclass(kw_only=True, eq=False, repr=False)
class PATERegressor(RegressorMixin, FittedRows):
    """A regressor learned from private rows: in five rounds, each adds what the model gets wrong about it.

    A last table counts how far the model is from the numbers of private rows: intervals come from it.

    Parameters
    ----------
    bounds : (low, high)
        Declared bounds of the numbers to predict. What is beyond counts as the nearest bound. Public: declare
        what they can be, never look them up in the private rows.
    epsilon : float
        All that this fit may spend, in nats.
    delta : float, optional
        None: that of the ledger, else the smaller of 1e-5 and a tenth of 1 / n_units.
    cells : Spectrum, optional
        Not fitted. None: functions of each column (:class:`~ostraka.voters.spectrum.Spectrum`).
    relation : {"replace-one", "zero-out"}
        What is hidden of one unit: that its data is not any other data, or, with half of the noise, only that
        it is not left out.
    holdout, allow_overlap, ledger, manifest, random_state, progress
        As of :class:`~ostraka.PATEClassifier`.

    Attributes
    ----------
    student_ : SpectrumRegressor
        Public: all that predictions need.
    plan_ : RegressionPlan
    held_out_ : int64 array or None
        Rows of ``X`` that were used as public ones.
    result_ : Result
        The record of the run; ``result_.public()`` is what may be shown.
    ledger_, manifest_, votes_
        For the owner only. They are not pickled.

    Guarantees
    ----------
    Everything public about a fitted estimator is (``plan_.epsilon``, ``plan_.delta``)-differentially private
    for one unit of the private rows, replaced by any other or as ``relation`` says, by composition over all
    tables (docs/noisy-counts.md, Theorem 4). Given: the numbers of rows and units, the bounds, and the
    held-out rows. :meth:`evaluate` adds figures that are not.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3000, 3))
    >>> y = 2 * X[:, 0] + rng.normal(size=3000)
    >>> model = PATERegressor(bounds=(-8, 8), epsilon=2.0, delta=1e-5)
    >>> model.fit(X[500:2500], y[500:2500], X_public=X[:500]).score(X[2500:], y[2500:]) > 0.5
    True
    >>> low, high = model.predict_interval(X[2500:], coverage=0.8).T
    >>> bool(np.mean((low <= y[2500:]) & (y[2500:] <= high)) > 0.75)
    True
    """

    bounds: tuple[float, float] = (-1.0, 1.0)
    epsilon: float = 1.0
    delta: float | None = None
    cells: Any = None
    relation: str = "replace-one"
    holdout: float | None = None
    allow_overlap: bool = False
    ledger: Ledger | str | os.PathLike[str] | None = None
    manifest: Manifest | str | os.PathLike[str] | None = None
    random_state: int | np.random.RandomState | None = None
    progress: Callable[[str, int, int], object] | None = None

    def plan(self, *, n_units: int, X_public: Any, grouped: bool = False) -> RegressionPlan:
        """The plan of :meth:`fit` for this number of units and these public rows; reads no private data.

        Raises
        ------
        BudgetExceeded
            (epsilon, delta) is too small for it.
        ValueError
            delta >= 1 / n_units, or a number out of range.
        """
        plan: RegressionPlan = self._way(n_units, X_public, grouped=grouped).plan
        return plan

    def fit(self, X: Any, y: Any, X_public: Any = None, groups: Any = None) -> Self:
        """Learn: in each round sum what the model gets wrong, pay, release, and read it.

        An interrupted fit that is repeated with the same data, settings, ``random_state``, manifest and
        ledger file goes on where it stopped, and pays for no answer twice.

        Parameters
        ----------
        X : array or data frame, shape (n_rows, n_features)
            Private.
        y : array of shape (n_rows,)
            Private. A number that is missing counts nothing.
        X_public : array or data frame, shape (n_public, n_features), optional
            Public. None: a share ``holdout`` of the units is given up as public rows.
        groups : array of shape (n_rows,), optional
            Private. Whom each row belongs to: then a person is the protected unit, else a row.

        Raises
        ------
        BudgetExceeded
            The plan does not fit the ledger; nothing was charged or answered.
        ValueError
            Data or settings that cannot be used; the message names public numbers only.
        """
        guards.require_safe_pipeline(self, public_given=X_public is not None)
        X = self._queries(X, reset=True)
        scaled(y, self.bounds)  # refuses what are no numbers
        y = np.asarray(y, dtype=np.float64)
        if len(y) != X.shape[0]:
            raise ValueError(f"y must have one number for each of {X.shape[0]} rows, got {len(y)}")
        seeds = Seeds.of(self.random_state)
        X_public = None if X_public is None else self._queries(X_public)
        data = split(X, y, groups, X_public=X_public, holdout=self.holdout, seed=seeds.holdout)
        digests = self._private(data)
        way = self._way(data.n_units, data.public, grouped=groups is not None)
        self._session = begin(self, data, way.plan, digests=digests)
        self._finish(way.learn(self, data, seeds, self._session))
        bounds = {"bounds": list(map(float, self.bounds)), "way": way.plan.way}
        self.result_ = replace(self.result_, settings={**self.result_.settings, **bounds})
        return self

    def predict_interval(self, X: Any, *, coverage: float = 0.9) -> np.ndarray:
        """An interval around the prediction of each row, shape (n_rows, 2), which holds a share of numbers.

        The share is that of new rows like the private ones, on average over rows. Noise makes intervals
        wider, never narrower: where it would drown the counts, they are the declared bounds.

        Parameters
        ----------
        X : array or data frame, shape (n_rows, n_features)
        coverage : float in (0, 1)
        """
        check_is_fitted(self, "student_")
        return np.asarray(self.student_.predict_interval(self._queries(X), coverage=coverage))

    def evaluate(self, X: Any, y: Any) -> Result:
        """Measure on public rows with known numbers; also kept in ``result_``.

        Returns
        -------
        Result
            ``utility`` has ``r2`` with its standard error ``r2_error``, ``mean_absolute_error``,
            ``root_mean_square_error``, and ``intervals``: for some declared coverages, the share of these
            numbers that the intervals hold, and their mean width.

        Raises
        ------
        ValueError
            Rows to measure with are private rows, as far as this estimator still has its digests.
        """
        X, truth = self._apart(X), np.asarray(y, dtype=np.float64)
        expected = self.student_.predict(X)
        share, error = explained(truth, expected)
        intervals = {}
        for coverage in COVERAGES:
            low, high = self.student_.predict_interval(X, coverage=coverage).T
            inside = float(((low <= truth) & (truth <= high)).mean())
            intervals[f"{coverage:g}"] = {"coverage": inside, "width": float((high - low).mean())}
        utility = {
            "r2": share,
            "r2_error": error,
            "mean_absolute_error": float(mean_absolute_error(truth, expected)),
            "root_mean_square_error": float(mean_squared_error(truth, expected) ** 0.5),
            "intervals": intervals,
        }
        self.result_ = replace(self.result_, utility={**self.result_.utility, **utility})
        return self.result_

    def __getstate__(self) -> dict[str, Any]:
        """Return the public part: pickles hold no rows, votes or ledger."""
        return super().__getstate__() | {"ledger": None, "manifest": None, "progress": None}

    def _way(self, n_units: int, public: Any, *, grouped: bool) -> Regression:
        check.one_of(relation=self.relation, allowed=("replace-one", "zero-out"))
        if public is None:
            raise ValueError("the plan is made from public rows: pass X_public=")
        facts = Facts(
            n_units=n_units,
            n_classes=1,
            grouped=grouped,
            epsilon=self.epsilon,
            delta=delta_of(self, n_units),
            relation=self.relation,
        )
        return Regression.planned(self.cells, public, facts)


def explained(truth: np.ndarray, expected: np.ndarray) -> tuple[float, float]:
    """R² of predictions, and its standard error by the delta method.

    Of a ratio of means a / b, with terms a_i and b_i of each row, that is the standard deviation of
    (a_i - b_i a / b) / b, divided by the square root of the number of rows.
    Source: van der Vaart 1998, doi:10.1017/CBO9780511802256, Theorem 3.1.

    Examples
    --------
    >>> truth = np.arange(100.0)
    >>> [round(value, 3) for value in explained(truth, truth + np.tile([10.0, -10.0], 50))]
    [0.88, 0.011]
    """
    missed, apart = (truth - expected) ** 2, (truth - truth.mean()) ** 2
    scale = float(apart.mean())
    if scale == 0:
        return (1.0 if not missed.any() else float("-inf")), float("inf")
    ratio = float(missed.mean()) / scale
    return 1 - ratio, float((missed - ratio * apart).std() / scale / len(truth) ** 0.5)
