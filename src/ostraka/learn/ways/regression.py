"""The way of regression: noisy rounds over a public spectrum, for numbers between declared bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin

from ostraka.core.door import release
from ostraka.learn.run import Run
from ostraka.learn.students.filter import KalmanLinear
from ostraka.learn.ways.filter import Filter, FilterPlan
from ostraka.voters.values import ValueVoter

if TYPE_CHECKING:
    from ostraka.learn.session import Data, Seeds, Session
    from ostraka.voters.spectrum import Spectrum

_LEAST_CLIP = 0.15  # of numbers between -1 and 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionPlan(FilterPlan):
    """The plan of a regression, and its cost for all data. All of it is public.

    Attributes
    ----------
    n_units, n_cells, ballot, mechanism, delta, n_rounds, resolution
        As of :class:`~ostraka.learn.ways.filter.FilterPlan`.
    """

    way: ClassVar[str] = "regression"

    @property
    def clips(self) -> tuple[float, ...]:
        """The largest residual of each round, where numbers are between -1 and 1."""
        return tuple(max(0.5**turn, _LEAST_CLIP) for turn in range(self.n_rounds))


class SpectrumRegressor(RegressorMixin, BaseEstimator):
    """A public spectrum and a linear model of it, as one regressor of rows."""

    def __init__(self, cells: Spectrum, coef: np.ndarray, bounds: tuple[float, float]) -> None:
        self.cells = cells
        self.coef = coef
        self.bounds = bounds

    def fit(self, X: Any = None, y: Any = None) -> Self:  # noqa: ARG002  (as scikit-learn calls it)
        """Do nothing, because both parts are fitted already."""
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The expected number of each row, between the bounds."""
        low, high = self.bounds
        expected = (self.cells.features(X) @ self.coef)[:, 0]
        return np.asarray(np.clip(low + (high - low) * (expected + 1) / 2, low, high))


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression(Filter):
    """In each round, every unit adds what the model so far gets wrong about its number."""

    kind: ClassVar[type[FilterPlan]] = RegressionPlan

    def learn(self, model: Any, data: Data, seeds: Seeds, session: Session) -> Run:  # noqa: ARG002
        """Ask in each round what the model gets wrong, and pay for it, if the ledger can pay for all."""
        plan, cells, ledger = self.plan, self.cells, session.ledger
        relation = plan.mechanism.relation
        voter = ValueVoter(cells=cells, bounds=model.bounds, manifest=session.manifest, relation=relation)
        voter.fit(data.X, data.y, data.groups)
        model._tell("votes", 1, 1)  # noqa: SLF001  (same package)
        low, high = map(float, model.bounds)
        key = session.key(data, repr(plan), cells.sha256_, (low, high))
        plan.require_affordable(ledger, key=key)
        sigma = plan.mechanism.sigma * plan.unit
        sizes = {"n_units": plan.n_units, "n_rounds": plan.n_rounds}
        learner = KalmanLinear(cells.features_, cells.variances_, sigma=sigma, **sizes)
        for turn, clip in enumerate(plan.clips):
            model._tell("answers", turn, plan.n_rounds)  # noqa: SLF001
            table = voter.gradient(learner.coef_, clip=clip, parts=plan.ballot)
            sums = np.asarray(release(plan.mechanism, table, ledger=ledger, key=f"{key}/{turn}"))
            learner.step(sums * plan.unit, clip=clip)
        model._tell("answers", plan.n_rounds, plan.n_rounds)  # noqa: SLF001
        n_public = len(cells.features_)
        return Run.of(
            model,
            data,
            session,
            plan=plan,
            classes=np.empty(0),
            student=SpectrumRegressor(cells, learner.coef_, (low, high)),
            student_name=SpectrumRegressor.__name__,
            teacher=f"every {voter.unit_}, for {cells!r}",
            asks="all",
            labels=np.zeros(n_public, dtype=np.int64),
            asked=np.arange(n_public),
            spent=ledger.spent(),
            noise="ChaCha20 keyed by the operating system, drawn in integers",
            notes=(f"{data.public_numbers} are treated as public, and so are the declared bounds.",),
            predicted=None,
            votes=voter.gradient(learner.coef_, clip=plan.clips[-1], parts=plan.ballot),
            public=None,
            seconds={},
        )
