"""Methods of fitted estimators: keep the run, measure, audit, pickle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ostraka.pate._plain import by_name, plain
from ostraka.pate._record import record, with_audit
from ostraka.pate._run import PRIVATE_ATTRIBUTES, Run
from ostraka.students import Distilled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka.result import Result

__all__ = ["Fitted", "can_say_how_sure"]


def can_say_how_sure(model: Any) -> bool:
    """Whether the student of an estimator has probabilities."""
    student = getattr(model, "student_", model.student)
    return student is None or isinstance(student, str) or hasattr(student, "predict_proba")


class Fitted(BaseEstimator):
    """The part that both estimators share. ``_run`` holds the run, ``_session`` keeps its ledger open."""

    progress: Callable[[str, int, int], object] | None
    result_: Result
    _run: Run

    def audit(self, *, trials: int | None = None, confidence: float = 0.95) -> Result:
        """Simulate the strongest adversary against the run, for a lower bound; kept in ``result_``.

        Nothing private is read: :func:`ostraka.audits.audit_run` with this fit's mechanism, teachers
        and number of answers (for :class:`~ostraka.pate.PATEFM`, the first ``n_answers`` queries).

        Parameters
        ----------
        trials : int, optional
            Runs to simulate in each world. None: what takes a second or two.
        confidence : float in (0, 1)

        Returns
        -------
        Result
            ``lower`` has epsilon at the run's delta, and where it comes from.
        """
        check_is_fitted(self, "student_")
        self.result_ = with_audit(self._run, self.result_, trials=trials, confidence=confidence)
        return self.result_

    def to_sklearn(self, *, columns: Sequence[str] | None = None, encoder: Any = None) -> Any:
        """The student as a plain scikit-learn model, which loads where this library is not installed.

        Parameters
        ----------
        columns : sequence of str, optional
            Names to select columns by, whatever their order. None: as the student was fitted.
        encoder : fitted ColumnTransformer, optional
            From these columns to the features that this estimator was fitted to.

        Returns
        -------
        scikit-learn classifier
            Public. It predicts what :meth:`predict` does.

        Raises
        ------
        ValueError
            The student is of another library, or this estimator was pickled since.
        """
        check_is_fitted(self, "student_")
        public = None if self._run.owned is None else self._run.owned.public
        if public is None and isinstance(self._run.student, Distilled):
            raise ValueError("to_sklearn needs the public rows: call it before the estimator is pickled")
        made = plain(self._run.student, public, self._run.labels)
        return made if columns is None else by_name(made, public, columns=columns, encoder=encoder)

    def _finish(self, run: Run) -> Self:
        """Set the fitted attributes and make the record."""
        for name in ("classes", "student", "plan", "held_out", "labels", "asked"):
            setattr(self, f"{name}_", getattr(run, name))
        for name in PRIVATE_ATTRIBUTES:
            setattr(self, name, getattr(run.owned, name.rstrip("_")))
        self._run, self.result_ = run, record(run)
        return self

    def _tell(self, stage: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(stage, done, total)

    def __getstate__(self) -> dict[str, Any]:
        """Return the public state, without teachers, votes, ledger and manifest."""
        state: dict[str, Any] = dict(super().__getstate__())
        for name in (*PRIVATE_ATTRIBUTES, "_session"):
            state.pop(name, None)
        if "_run" in state:
            state["_run"], state["result_"] = state["_run"].public(), state["result_"].public()
        return state
