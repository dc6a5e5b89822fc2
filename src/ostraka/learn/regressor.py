"""PATERegressor: a number of each row, learned from private rows by noisy rounds."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score
from sklearn.utils.validation import check_is_fitted, validate_data

from ostraka.core import check
from ostraka.core.ledger.ledger import Ledger
from ostraka.data import guards
from ostraka.learn.handover import plain
from ostraka.learn.record import record, with_audit
from ostraka.learn.session import Seeds, begin, dense, split
from ostraka.learn.ways.plan import Facts
from ostraka.learn.ways.regression import Regression
from ostraka.voters.values import scaled

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from ostraka.core.result import Result
    from ostraka.data.units import Manifest
    from ostraka.learn.ways.regression import RegressionPlan


class PATERegressor(RegressorMixin, BaseEstimator):
    """A regressor learned from private rows: in five rounds, each adds what the model gets wrong about it.

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
    rounds (docs/noisy-counts.md, Theorem 4). Given: the numbers of rows and units, the bounds, and the
    held-out rows. :meth:`evaluate` adds figures that are not.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3000, 3))
    >>> y = 2 * X[:, 0] + rng.normal(size=3000)
    >>> model = PATERegressor(bounds=(-8, 8), epsilon=2.0, delta=1e-5)
    >>> model.fit(X[500:2500], y[500:2500], X_public=X[:500]).score(X[2500:], y[2500:]) > 0.5
    True
    """

    def __init__(
        self,
        *,
        bounds: tuple[float, float] = (-1.0, 1.0),
        epsilon: float = 1.0,
        delta: float | None = None,
        cells: Any = None,
        relation: str = "replace-one",
        holdout: float | None = None,
        allow_overlap: bool = False,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        manifest: Manifest | str | os.PathLike[str] | None = None,
        random_state: int | np.random.RandomState | None = None,
        progress: Callable[[str, int, int], object] | None = None,
    ) -> None:
        self.bounds = bounds
        self.epsilon = epsilon
        self.delta = delta
        self.cells = cells
        self.relation = relation
        self.holdout = holdout
        self.allow_overlap = allow_overlap
        self.ledger = ledger
        self.manifest = manifest
        self.random_state = random_state
        self.progress = progress

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
        X = self._rows(X, reset=True)
        scaled(y, self.bounds)  # refuses what are no numbers
        y = np.asarray(y, dtype=np.float64)
        if len(y) != X.shape[0]:
            raise ValueError(f"y must have one number for each of {X.shape[0]} rows, got {len(y)}")
        X_public = None if X_public is None else self._rows(X_public)
        seeds = Seeds.of(self.random_state)
        data = split(X, y, groups, X_public=X_public, holdout=self.holdout, seed=seeds.holdout)
        digests = self._digests(data.X)
        if groups is None and guards.seems_repeated(data.X, digests):
            warnings.warn(guards.REPEATED, stacklevel=2)
        if X_public is not None and not self.allow_overlap:
            what = "public rows (X_public)"
            guards.require_apart(digests, self._digests(X_public), what=what, way_out=guards.WAY_OUT)
        way = self._way(data.n_units, data.public, grouped=groups is not None)
        self._session = begin(self, data, way.plan, digests=digests)
        run = way.learn(self, data, seeds, self._session)
        self.student_, self.plan_, self.held_out_ = run.student, run.plan, run.held_out
        if run.owned is not None:
            self.ledger_, self.manifest_ = run.owned.ledger, run.owned.manifest
            self.votes_ = run.owned.votes
        self._run, result = run, record(run)
        bounds = {"bounds": list(map(float, self.bounds)), "way": way.plan.way}
        self.result_ = replace(result, settings={**result.settings, **bounds})
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The expected number of each row, between the bounds."""
        check_is_fitted(self, "student_")
        return np.asarray(self.student_.predict(self._rows(X)))

    def evaluate(self, X: Any, y: Any) -> Result:
        """Measure on public rows with known numbers; also kept in ``result_``.

        Returns
        -------
        Result
            ``utility`` has ``r2``, ``mean_absolute_error`` and ``root_mean_square_error``.
        """
        expected, truth = self.predict(X), np.asarray(y, dtype=np.float64)
        utility = {
            "r2": float(r2_score(truth, expected)),
            "mean_absolute_error": float(mean_absolute_error(truth, expected)),
            "root_mean_square_error": float(mean_squared_error(truth, expected) ** 0.5),
        }
        self.result_ = replace(self.result_, utility={**self.result_.utility, **utility})
        return self.result_

    def audit(self, *, trials: int | None = None, confidence: float = 0.95) -> Result:
        """Simulate the strongest adversary against the run, for a lower bound; kept in ``result_``.

        Nothing private is read.
        """
        check_is_fitted(self, "student_")
        self.result_ = with_audit(self._run, self.result_, trials=trials, confidence=confidence)
        return self.result_

    def to_sklearn(self) -> Any:
        """The student as a plain scikit-learn model, which loads where this library is not installed.

        It predicts what :meth:`predict` does, but for bounds: what is expected beyond them stays beyond.

        Raises
        ------
        ValueError
            The rows were a data frame, or the spectrum is of a transformer of another library.
        """
        check_is_fitted(self, "student_")
        return plain(self.student_, None, self._run.labels)

    def __getstate__(self) -> dict[str, Any]:
        """Return the public part: pickles hold no rows, votes or ledger."""
        private = ("ledger_", "manifest_", "votes_", "_session", "ledger", "manifest", "progress")
        state = {name: value for name, value in super().__getstate__().items() if name not in private}
        state |= {"ledger": None, "manifest": None, "progress": None}
        if "_run" in state:
            state["_run"], state["result_"] = state["_run"].public(), state["result_"].public()
        return state

    def _way(self, n_units: int, public: Any, *, grouped: bool) -> Regression:
        check.one_of(relation=self.relation, allowed=("replace-one", "zero-out"))
        if public is None:
            raise ValueError("the plan is made from public rows: pass X_public=")
        delta, ledger = self.delta, self.ledger
        if delta is None:
            delta = ledger.budget.delta if isinstance(ledger, Ledger) else min(1e-5, 0.1 / n_units)
        facts = Facts(
            n_units=n_units,
            n_classes=1,
            grouped=grouped,
            epsilon=self.epsilon,
            delta=delta,
            relation=self.relation,
        )
        return Regression.planned(self.cells, public, facts)

    def _rows(self, X: Any, *, reset: bool = False) -> Any:
        """A data frame as it came, anything else as a dense array of numbers."""
        X = dense(X)
        frame = hasattr(X, "iloc")
        made = validate_data(self, X, reset=reset, skip_check_array=frame)
        return X if frame else made

    def _digests(self, X: Any) -> np.ndarray:
        return guards.row_digests(X, columns=getattr(self, "feature_names_in_", None))

    def _tell(self, stage: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(stage, done, total)
