"""The way of the filter: noisy rounds over a public spectrum, read by a bank of Kalman filters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from ostraka.core.door import release
from ostraka.core.mechanisms.counts import NoisyCounts
from ostraka.learn.students.filter import KalmanLogistic, chances
from ostraka.learn.ways.counts import Counts, CountsPlan, require_heard
from ostraka.learn.ways.plan import least_noise
from ostraka.voters.rows import RowVoter, balanced_residuals, summed
from ostraka.voters.spectrum import Spectrum, many_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.core.private import Private
    from ostraka.learn.run import Owned, Run
    from ostraka.learn.session import Data, Seeds, Session
    from ostraka.learn.ways.plan import Facts, World

_ROUNDS = 5
_PARTS = 64  # of a residual, at most
_MOST_SIGMA = 1e4  # of a plan: tables of the noise take a quarter of a second
_MOST_EPSILON = 20.0
_DIGITS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterPlan(CountsPlan):
    """The plan of a run by the filter, and its cost for all data. All of it is public.

    Attributes
    ----------
    n_units, n_cells, ballot, mechanism, delta
        As of :class:`CountsPlan`. A residual is counted in ``ballot`` parts.
    n_rounds : int
        Tables which are released, one after the other.
    resolution : int
        Length of a line of features.

    Examples
    --------
    >>> mechanism = NoisyCounts(sigma=4100, l2=512.0, relation="zero-out")
    >>> plan = FilterPlan(n_units=3000, n_cells=50, ballot=8, mechanism=mechanism, delta=1e-5, n_rounds=5,
    ...     resolution=64)
    >>> round(plan.epsilon, 2), plan.n_answers, round(plan.noise, 5)
    (1.05, 5, 0.00119)
    """

    way: ClassVar[str] = "filter"
    n_after: ClassVar[int] = 0  # tables after all rounds

    n_rounds: int
    resolution: int

    @property
    def sizes(self) -> dict[str, Any]:
        """Sizes that only this way has, for the record."""
        return {"n_features": self.n_cells, "n_rounds": self.n_rounds}

    @property
    def n_answers(self) -> int:  # type: ignore[override]
        """Each round's table is one answer."""
        return self.n_rounds + self.n_after

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


class SpectrumStudent(ClassifierMixin, BaseEstimator):
    """A public spectrum and a linear model of it, as one classifier of rows."""

    def __init__(
        self,
        cells: Spectrum,
        coef: np.ndarray,
        classes: np.ndarray,
        expected: dict[str, float] | None = None,
    ) -> None:
        self.cells = cells
        self.coef = coef
        self.classes = classes
        self.expected = expected

    @property
    def classes_(self) -> np.ndarray:
        """The classes."""
        return np.asarray(self.classes)

    def fit(self, X: Any = None, y: Any = None) -> Self:  # noqa: ARG002  (as scikit-learn calls it)
        """Do nothing, because both parts are fitted already."""
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class, shape (n_rows, n_classes)."""
        return chances(self.cells.features(X) @ self.coef)

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of each row."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter(Counts):
    """In each round, every unit adds what the model so far gets wrong about it; filters read the sums."""

    advice: ClassVar[str] = "Bring more rows, or type a larger --epsilon"
    stages: ClassVar[dict[str, str]] = {"votes": "features of rows", "answers": "rounds"}
    kind: ClassVar[type[FilterPlan]] = FilterPlan

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
        spectrum, n_answers = Spectrum() if cells is None else cells, _ROUNDS + cls.kind.n_after
        drowned = min(_MOST_SIGMA, spectrum.resolution * facts.n_units * _ROUNDS**0.5)
        far = spectrum.resolution * (1.0 if facts.relation == "zero-out" else 2.0)
        require_heard(n_answers * NoisyCounts(sigma=drowned, l2=far).curve(), facts)

        def sigma(far: float) -> float:
            return least_noise(
                lambda noise: NoisyCounts(sigma=min(noise, 1e5), l2=far, relation=facts.relation),
                n_answers=n_answers,
                epsilon=min(facts.epsilon, _MOST_EPSILON),
                delta=facts.delta,
                digits=_DIGITS,
            )

        parts = max(1, min(_PARTS, int(0.999 * _MOST_SIGMA / sigma(far))))
        far *= parts
        mechanism = NoisyCounts(sigma=sigma(far), l2=far, relation=facts.relation)
        longest = parts * spectrum.resolution
        noise = _noise(mechanism, longest, facts.n_units)
        chosen = {} if cells is not None else {"interactions": many_rows(noise, public.shape[0])}
        spectrum = _with(spectrum, noise=noise, **chosen).fit(public)
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

    def teach(
        self,
        model: Any,
        data: Data,
        seeds: Seeds,  # noqa: ARG002
        session: Session,
        voter: RowVoter,
    ) -> tuple[Any, np.ndarray, Private]:
        """Ask in each round what the model gets wrong, and pay for it, if the ledger can pay for all."""
        plan, cells, classes, ledger = self.plan, self.cells, voter.classes_, session.ledger
        model._tell("votes", 1, 1)  # noqa: SLF001  (same package)
        key = session.key(data, repr(plan), cells.sha256_, classes)
        plan.require_affordable(ledger, key=key)

        def sums(coef: np.ndarray, turn: int) -> np.ndarray:
            model._tell("answers", turn, plan.n_rounds)  # noqa: SLF001
            table = voter.gradient(coef, parts=plan.ballot)
            return np.asarray(release(plan.mechanism, table, ledger=ledger, key=f"{key}/{turn}"))

        learner = filtered(plan, cells, classes, sums)
        model._tell("answers", plan.n_rounds, plan.n_rounds)  # noqa: SLF001
        labels = chances(cells.features_ @ learner.coef_).argmax(axis=1)
        votes = voter.gradient(learner.coef_, parts=plan.ballot)
        return SpectrumStudent(cells, learner.coef_, classes, learner.expected()), labels, votes

    def trial(self, model: Any, world: World, rng: np.random.Generator) -> float:  # noqa: ARG002
        """Accuracy of the model after all rounds."""
        plan, cells = self.plan, self.cells
        lines, times = cells.lines(world.rows), plan.n_units / len(world.y)

        def sums(coef: np.ndarray, _: int) -> np.ndarray:
            table = summed(
                lines,
                coef,
                lambda odds, some: balanced_residuals(odds, world.y[some], plan.ballot),
                resolution=plan.resolution,
            )
            return np.asarray(times * table + plan.mechanism.sigma * rng.normal(size=table.shape))

        classes = np.arange(world.facts.n_classes)
        return world.score(SpectrumStudent(cells, filtered(plan, cells, classes, sums).coef_, classes))

    def record(self, run: Run, owned: Owned) -> dict[str, Any]:  # noqa: ARG002
        """What the posterior lets expect of new rows."""
        expected = getattr(run.student, "expected", None)
        return {"utility": {"expected": expected}} if expected else {}

    def words(self, *, n_units: int, n_public: int, unit: str, teacher: str) -> dict[str, str]:
        """The sums, the mechanism, who are neighbours, and the tables."""
        plan = self.plan
        own = {
            "way": f"filter: in each round, every {unit} adds what the model so far gets wrong about it",
            "answers": f"{plan.n_answers} tables, one a round: {plan.n_cells:,} features × classes",
        }
        words = Counts.words(self, n_units=n_units, n_public=n_public, unit=unit, teacher=teacher)
        return words | own


def _with(spectrum: Spectrum, **chosen: Any) -> Spectrum:
    """A copy for this noise, which keeps a transformer fitted."""
    settings = {name: getattr(spectrum, name) for name in spectrum.get_params(deep=False)}
    return type(spectrum)(**settings | chosen)


def filtered(
    plan: FilterPlan, cells: Spectrum, classes: np.ndarray, sums: Callable[[np.ndarray, int], np.ndarray]
) -> KalmanLogistic:
    """The model after all rounds; ``sums`` gives the noisy table for the coefficients of each."""
    learner = KalmanLogistic(
        cells.features_,
        cells.variances_,
        n_classes=len(classes),
        n_units=plan.n_units,
        n_rounds=plan.n_rounds,
        sigma=plan.mechanism.sigma * plan.unit,
    )
    for turn in range(plan.n_rounds):
        learner.step(sums(learner.coef_, turn) * plan.unit)
    return learner
