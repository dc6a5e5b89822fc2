"""The way of the filter: noisy rounds over a public spectrum, read by a bank of Kalman filters.

:class:`Regression` is the same way for numbers between declared bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin

from ostraka.core import check
from ostraka.core.door import release
from ostraka.learn.run import Run
from ostraka.learn.students.filter import KalmanLinear, KalmanLogistic, chances
from ostraka.learn.ways.counts import Fixed
from ostraka.learn.ways.rounds import Tables, TablesPlan, tables_within
from ostraka.voters.rows import DISTANCES, RowVoter, ValueVoter, balanced_residuals, summed
from ostraka.voters.spectrum import Spectrum

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.core.mechanisms.counts import NoisyCounts
    from ostraka.core.private import Private
    from ostraka.learn.run import Owned
    from ostraka.learn.session import Data, Seeds, Session
    from ostraka.learn.ways.plan import Facts, World

_ROUNDS = 5
_PARTS = 64  # of a residual, at most
# Noise, and public rows, with which private rows pay for interactions: chosen on tables of the stated half of
# ``python -m bench tables``.
_QUIET, _MANY = 1 / 6000, 2000
_MOST_SIGMA = 1e4  # of a plan: tables of the noise take a quarter of a second
_LEAST_CLIP = 0.15  # of numbers between -1 and 1
COVERAGES = (0.5, 0.9)  # of intervals in a record
_SURE = 1.28  # standard errors of a noisy sum by which intervals are wider


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterPlan(TablesPlan):
    """The plan of a run by the filter, and its cost for all data. All of it is public.

    Attributes
    ----------
    n_units, n_cells, ballot, mechanism, delta
        As of :class:`~ostraka.learn.ways.counts.CountsPlan`. A residual is counted in ``ballot`` parts.
    n_rounds : int
        Tables which are released, one after the other.
    resolution : int
        Length of a line of features.

    Examples
    --------
    >>> from ostraka.mechanisms import NoisyCounts
    >>> mechanism = NoisyCounts(sigma=4100, l2=512.0, relation="zero-out")
    >>> plan = FilterPlan(n_units=3000, n_cells=50, ballot=8, mechanism=mechanism, delta=1e-5, n_rounds=5,
    ...     resolution=64)
    >>> round(plan.epsilon, 2), plan.n_answers, round(plan.noise, 5)
    (1.05, 5, 0.00119)
    """

    way: ClassVar[str] = "filter"

    n_rounds: int
    resolution: int

    @property
    def unit(self) -> float:
        """What one in the table is worth, where a unit adds length 1 at most."""
        return 1 / (self.ballot * self.resolution)

    @property
    def noise(self) -> float:
        """Standard deviation of each number in the average of all rounds' means over units."""
        return _noise(self.mechanism, self.ballot * self.resolution, self.n_units)


def _noise(mechanism: NoisyCounts, longest: int, n_units: int) -> float:
    return float(mechanism.sigma / longest / n_units / _ROUNDS**0.5)


@dataclass(eq=False, repr=False)
class SpectrumStudent(ClassifierMixin, Fixed):
    """A public spectrum and a linear model of it, as one classifier of rows."""

    cells: Spectrum
    coef: np.ndarray
    classes: np.ndarray
    expected: dict[str, float] | None = None

    @property
    def classes_(self) -> np.ndarray:
        """The classes."""
        return np.asarray(self.classes)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class, shape (n_rows, n_classes)."""
        return chances(self.cells.features(X) @ self.coef)

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of each row."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter(Tables):
    """In each round, every unit adds what the model so far gets wrong about it; filters read the sums."""

    advice: ClassVar[str] = "Bring more rows, or type a larger --epsilon"
    stages: ClassVar[dict[str, str]] = {"votes": "features of rows", "answers": "rounds"}
    kind: ClassVar[type[FilterPlan]] = FilterPlan
    asks: ClassVar[str] = "filter: in each round, every {unit} adds what the model so far gets wrong about it"

    @classmethod
    def planned(cls, cells: Any, public: Any, facts: Facts) -> Self:
        """A spectrum fitted on public rows, with as many components as the noise leaves, and the plan.

        Raises
        ------
        BudgetExceeded
            No noise makes the rounds fit, or only more noise than there are units.
        ValueError
            Cells that are no spectrum.
        """
        if cells is not None and not isinstance(cells, Spectrum):
            raise ValueError(
                f"cells must be None or a Spectrum for way='filter', got {type(cells).__name__}: pass "
                "Spectrum(transform) for features of your own"
            )
        spectrum = Spectrum() if cells is None else cells
        parts, mechanism = tables_within(
            facts,
            far=spectrum.resolution * (1.0 if facts.relation == "zero-out" else 2.0),
            resolution=spectrum.resolution,
            n_rounds=_ROUNDS,
            n_answers=_ROUNDS + cls.kind.n_after,
            most_parts=_PARTS,
            most_sigma=_MOST_SIGMA,
        )
        noise = _noise(mechanism, parts * spectrum.resolution, facts.n_units)
        settings = {name: getattr(spectrum, name) for name in spectrum.get_params(deep=False)}
        pays = noise < _QUIET and public.shape[0] >= _MANY  # by public numbers alone
        chosen = {} if cells is not None else {"interactions": pays}
        # of this noise; not a clone, so that a transformer stays fitted
        spectrum = type(spectrum)(**settings | chosen | {"noise": noise}).fit(public)
        plan = cls.kind(
            n_units=facts.n_units,
            n_cells=spectrum.features_.shape[1],
            ballot=parts,
            mechanism=mechanism,
            delta=facts.delta,
            n_rounds=_ROUNDS,
            resolution=spectrum.resolution,
        )
        return cls(plan=plan, cells=spectrum)

    def voter(self, session: Session) -> RowVoter:
        """Rows with features of their own; a person adds the mean of what its rows add."""
        relation = self.plan.mechanism.relation
        return RowVoter(cells=self.cells, person="mean", manifest=session.manifest, relation=relation)

    def table(self, voter: RowVoter, coef: np.ndarray) -> Private:
        """Balanced residuals."""
        return voter.gradient(coef, parts=self.plan.ballot)

    def simulated(self, world: World) -> Callable[[np.ndarray], np.ndarray]:
        """Balanced residuals of the rows of a world."""
        plan, lines = self.plan, self.cells.lines(world.rows)

        def residuals(odds: np.ndarray, some: Any) -> np.ndarray:
            return balanced_residuals(odds, world.y[some], plan.ballot)

        return lambda coef: summed(lines, coef, residuals, resolution=plan.resolution)

    def learned(self, n_classes: int, table: Callable[[np.ndarray, int], np.ndarray]) -> KalmanLogistic:
        """The model after all rounds that filters read."""
        plan, cells = self.plan, self.cells
        learner = KalmanLogistic(
            cells.features_,
            cells.variances_,
            n_classes=n_classes,
            n_units=plan.n_units,
            n_rounds=plan.n_rounds,
            sigma=plan.mechanism.sigma * plan.unit,
        )
        for turn in range(plan.n_rounds):
            learner.step(table(learner.coef_, turn) * plan.unit)
        return learner

    def student(
        self, learner: KalmanLogistic, classes: np.ndarray, *, trial: bool = False
    ) -> SpectrumStudent:
        """The spectrum with the model, and what its posterior lets expect."""
        return SpectrumStudent(self.cells, learner.coef_, classes, None if trial else learner.expected())

    def record(self, run: Run, owned: Owned) -> dict[str, Any]:  # noqa: ARG002
        """What the posterior lets expect of new rows."""
        expected = getattr(run.student, "expected", None)
        return {"utility": {"expected": expected}} if expected else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionPlan(FilterPlan):
    """The plan of a regression, and its cost for all data. All of it is public.

    Attributes
    ----------
    n_units, n_cells, ballot, mechanism, delta, n_rounds, resolution
        As of :class:`~ostraka.learn.ways.filter.FilterPlan`. A last table counts distances.
    """

    way: ClassVar[str] = "regression"
    n_after: ClassVar[int] = 1

    @property
    def clips(self) -> tuple[float, ...]:
        """The largest residual of each round, where numbers are between -1 and 1."""
        return tuple(max(0.5**turn, _LEAST_CLIP) for turn in range(self.n_rounds))


@dataclass(eq=False, repr=False)
class SpectrumRegressor(RegressorMixin, Fixed):
    """A public spectrum and a linear model of it, as one regressor of rows.

    ``distances`` are noisy shares of private rows, by how far the model is from their numbers, in the bins of
    :func:`~ostraka.voters.rows.distances`; ``noise`` is the standard deviation of each.
    """

    cells: Spectrum
    coef: np.ndarray
    bounds: tuple[float, float]
    distances: np.ndarray
    noise: float

    def predict(self, X: Any) -> np.ndarray:
        """The expected number of each row, between the bounds."""
        low, high = self.bounds
        expected = (self.cells.features(X) @ self.coef)[:, 0]
        return np.asarray(np.clip(low + (high - low) * (expected + 1) / 2, low, high))

    def predict_interval(self, X: Any, *, coverage: float = 0.9) -> np.ndarray:
        """An interval around the prediction of each row, shape (n_rows, 2), between the bounds."""
        low, high = self.bounds
        expected, half = self.predict(X)[:, None], self.half_width(coverage) * (high - low) / 2
        return np.asarray(np.clip(expected + np.array([-half, half]), low, high))

    def half_width(self, coverage: float) -> float:
        """How far numbers are from predictions at the most, for this share, where bounds are -1 and 1.

        Of the share beyond a distance, a noisy sum of bins, 1.28 standard errors of its noise are taken
        off the allowed share: so intervals are too narrow for the private rows in one fit of ten at most.
        Inside a bin, distances are taken to be even; where those further out are rarer, that errs wide.
        """
        check.share(coverage=coverage)
        allowed, n_bins = 1 - coverage, len(self.distances)
        beyond = np.append(np.cumsum(self.distances[::-1])[::-1], 0.0)  # each edge
        beyond += _SURE * self.noise * np.sqrt(np.arange(n_bins, -1, -1))
        first = int(np.flatnonzero(beyond[1:] <= allowed)[0])
        part = (beyond[first] - allowed) / max(beyond[first] - beyond[first + 1], 1e-300)
        low, high = DISTANCES[first : first + 2]
        return float(low + min(max(part, 0.0), 1.0) * (high - low))


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression(Filter):
    """In each round, every unit adds what the model so far gets wrong about its number."""

    kind: ClassVar[type[FilterPlan]] = RegressionPlan
    instead: ClassVar[str] = "fit PATERegressor in Python all the same"
    asks: ClassVar[str] = (
        "regression: in each round, every {unit} adds what the model so far gets wrong about it"
    )

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

        def released(turn: int, table: Private) -> np.ndarray:
            model._tell("answers", turn, plan.n_answers)  # noqa: SLF001
            return np.asarray(release(plan.mechanism, table, ledger=ledger, key=f"{key}/{turn}"))

        sigma = plan.mechanism.sigma * plan.unit
        sizes = {"n_units": plan.n_units, "n_rounds": plan.n_rounds}
        learner = KalmanLinear(cells.features_, cells.variances_, sigma=sigma, **sizes)
        for turn, clip in enumerate(plan.clips):
            table = voter.gradient(learner.coef_, clip=clip, parts=plan.ballot)
            learner.step(released(turn, table) * plan.unit, clip=clip)
        votes = voter.distances(learner.coef_, parts=plan.ballot)
        whole = voter.weight(parts=plan.ballot) * plan.n_units
        distances = released(plan.n_rounds, votes)[:, 0] / whole
        model._tell("answers", plan.n_answers, plan.n_answers)  # noqa: SLF001
        return Run.of(
            model,
            data,
            session,
            plan=plan,
            classes=np.empty(0),
            student=SpectrumRegressor(
                cells, learner.coef_, (low, high), distances, plan.mechanism.sigma / whole
            ),
            student_name=SpectrumRegressor.__name__,
            teacher=f"every {voter.unit_}, for {cells!r}",
            labels=np.zeros(len(cells.features_), dtype=np.int64),
            notes=(f"{data.public_numbers} are treated as public, and so are the declared bounds.",),
            predicted=None,
            votes=votes,
        )

    def record(self, run: Run, owned: Owned) -> dict[str, Any]:  # noqa: ARG002
        """Half the width of intervals, for some declared coverages."""
        low, high = run.student.bounds
        half = {f"{share:g}": run.student.half_width(share) * (high - low) / 2 for share in COVERAGES}
        return {"utility": {"half_widths": half}}

    @property
    def answers(self) -> str:
        """What is released, in words."""
        return (
            f"{self.plan.n_answers} tables: {self.plan.n_cells:,} features, once a round, and how far "
            "predictions are from numbers"
        )
