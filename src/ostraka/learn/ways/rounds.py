"""The way of rounds: in each, every unit casts a ballot for what the model so far gets wrong.

:class:`Tables` is what it shares with the filter: one noisy table after the other, about the model so far.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ostraka.core.door import release
from ostraka.learn.students.counts import GradientLogistic
from ostraka.learn.ways.counts import Counts, CountsPlan, featured, least_table, require_heard
from ostraka.voters.rows import FeatureCells, own_features, residual_sums

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.core.mechanisms.counts import NoisyCounts
    from ostraka.core.private import Private
    from ostraka.learn.session import Data, Seeds, Session
    from ostraka.learn.ways.plan import Facts, World
    from ostraka.voters.rows import RowVoter

# Chosen on training rows of Fashion-MNIST and TREC, and on SST-2 (docs/noisy-counts.md).
_ROUNDS, _CLIP = 12, 0.5
_RESOLUTION, _PARTS = 64, 16  # of a line and of the clip, at most: finer ones need larger tables of noise
_MOST_EPSILON = 20.0  # of a plan; a ledger claims nothing where twelve tables cost above 27
_MOST_SIGMA = 4e4  # beyond, tables of the noise take seconds


class TablesPlan(CountsPlan):
    """The part that plans of several tables share. Each declares its fields in the order of its repr."""

    __slots__ = ()
    n_after: ClassVar[int] = 0  # tables after all rounds

    n_rounds: int
    resolution: int

    @property
    def sizes(self) -> dict[str, Any]:
        """Sizes that only these ways have, for the record."""
        return {"n_features": self.n_cells, "n_rounds": self.n_rounds}

    @property
    def n_answers(self) -> int:  # type: ignore[override]
        """Each round's table is one answer."""
        return self.n_rounds + self.n_after


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsPlan(TablesPlan):
    """The plan of a run in rounds, and its cost for all data. All of it is public.

    Attributes
    ----------
    n_units, n_cells, ballot, mechanism, delta
        As of :class:`CountsPlan`. A ballot is counted in so many parts of ``clip``.
    n_rounds : int
        Tables which are released, one after the other.
    clip : float
        Length to which residuals are shortened.
    resolution : int
        Length of a line of features.

    Examples
    --------
    >>> from ostraka.mechanisms import NoisyCounts
    >>> plan = RoundsPlan(n_units=60000, n_cells=500, ballot=8, mechanism=NoisyCounts(sigma=14000, l2=1024.0),
    ...     delta=1e-5, n_rounds=12, clip=0.5, resolution=64)
    >>> round(plan.epsilon, 2), plan.n_answers
    (0.94, 12)
    """

    way: ClassVar[str] = "rounds"

    n_rounds: int
    clip: float
    resolution: int

    @property
    def sizes(self) -> dict[str, Any]:
        """Sizes that only this way has, for the record."""
        return {"n_features": self.n_cells, "n_rounds": self.n_rounds, "clip": self.clip}

    @property
    def unit(self) -> float:
        """What one in the table is worth in a gradient."""
        return self.clip / (self.ballot * self.resolution)

    @property
    def noise(self) -> float:
        """Standard deviation of each number in the average of all rounds' mean gradients."""
        return float(self.mechanism.sigma * self.unit / self.n_units / self.n_rounds**0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables(Counts):
    """Ways of several tables: in each round, every unit adds what the model so far gets wrong about it."""

    def table(self, voter: RowVoter, coef: np.ndarray) -> Private:
        """What all units add for these coefficients."""
        raise NotImplementedError

    def simulated(self, world: World) -> Callable[[np.ndarray], np.ndarray]:
        """What the rows of a world add, as a function of coefficients."""
        raise NotImplementedError

    def learned(self, n_classes: int, table: Callable[[np.ndarray, int], np.ndarray]) -> Any:
        """The model after all rounds; ``table`` gives the noisy table for the coefficients of each."""
        raise NotImplementedError

    def student(self, learner: Any, classes: np.ndarray, *, trial: bool = False) -> Any:
        """The model as a classifier of rows; of a trial, without what it expects of itself."""
        raise NotImplementedError

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

        def released(coef: np.ndarray, turn: int) -> np.ndarray:
            model._tell("answers", turn, plan.n_rounds)  # noqa: SLF001
            votes = self.table(voter, coef)
            return np.asarray(release(plan.mechanism, votes, ledger=ledger, key=f"{key}/{turn}"))

        learner = self.learned(len(classes), released)
        model._tell("answers", plan.n_rounds, plan.n_rounds)  # noqa: SLF001
        labels = learner.predict(cells.features_)
        return self.student(learner, classes), labels, self.table(voter, learner.coef_)

    def trial(self, model: Any, world: World, rng: np.random.Generator) -> float:  # noqa: ARG002
        """Accuracy of the model after all rounds."""
        plan, n_classes = self.plan, world.facts.n_classes
        sums, times = self.simulated(world), plan.n_units / len(world.y)

        def noisy(coef: np.ndarray, _: int) -> np.ndarray:
            table = sums(coef)
            return np.asarray(times * table + plan.mechanism.sigma * rng.normal(size=table.shape))

        learner = self.learned(n_classes, noisy)
        return world.score(self.student(learner, np.arange(n_classes), trial=True))

    @property
    def answers(self) -> str:
        """What is released, in words."""
        return f"{self.plan.n_answers} tables, one a round: {self.plan.n_cells:,} features × classes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds(Tables):
    """In each round, every unit casts a ballot for what the model so far gets wrong."""

    advice: ClassVar[str] = "Twelve rounds need many rows: type --way counts, or a larger --epsilon"
    stages: ClassVar[dict[str, str]] = {"votes": "features of rows", "answers": "rounds of votes"}
    instead: ClassVar[str] = "--way counts"
    asks: ClassVar[str] = "rounds: in each, every {unit} votes for what the model so far gets wrong about it"

    @classmethod
    def planned(cls, cells: Any, public: Any, facts: Facts) -> Rounds:
        """Cells with features of each row's own, fitted on public rows, and the plan for them.

        Of several cells, the first that have such features; None: those of numbers.

        Raises
        ------
        BudgetExceeded
            No noise makes the rounds fit, or only more noise than there are units.
        ValueError
            The unit is a person, no cells have such features, or public rows are no numbers.
        """
        if facts.grouped:
            raise ValueError(
                "groups must be None for way='rounds': keep one row of each person, or pass way='counts'"
            )
        several = cells if isinstance(cells, list | tuple) else (FeatureCells() if cells is None else cells,)
        own = next(filter(own_features, several), None)
        if own is None:
            raise ValueError(
                "cells must have features of each row's own for way='rounds': pass FeatureCells, got "
                f"{cells!r}"
            )
        own = copy.deepcopy(own)
        if hasattr(own, "resolution"):
            own.resolution = min(own.resolution, _RESOLUTION)
        try:
            own.fit(public)
        except ValueError as error:
            if cells is not None:
                raise
            raise ValueError(
                f"X_public gives no features for way='rounds': {error}. Pass way='counts', or "
                "cells=FeatureCells(encoder) with an encoder of columns that was fitted on public rows"
            ) from None
        return cls.of_cells(own, facts)

    @classmethod
    def of_cells(cls, cells: Any, facts: Facts) -> Rounds:
        """The way for fitted cells, with the least noise with which all rounds fit (epsilon, delta).

        Raises
        ------
        BudgetExceeded
            No noise makes them fit, or only more noise than there are units.
        """
        resolution = round(cells.reach_ / 2)
        parts, mechanism = tables_within(
            facts,
            far=cells.reach_ / 2 if facts.relation == "zero-out" else cells.reach_,
            resolution=resolution,
            n_rounds=_ROUNDS,
            n_answers=_ROUNDS,
            most_parts=_PARTS,
            most_sigma=_MOST_SIGMA,
        )
        plan = RoundsPlan(
            n_units=facts.n_units,
            n_cells=cells.features_.shape[1],
            ballot=parts,
            mechanism=mechanism,
            delta=facts.delta,
            n_rounds=_ROUNDS,
            clip=_CLIP,
            resolution=resolution,
        )
        return cls(plan=plan, cells=cells)

    def table(self, voter: RowVoter, coef: np.ndarray) -> Private:
        """Shortened residuals."""
        return voter.residuals(coef, clip=self.plan.clip, parts=self.plan.ballot)

    def simulated(self, world: World) -> Callable[[np.ndarray], np.ndarray]:
        """Shortened residuals of the rows of a world."""
        plan, lines = self.plan, self.cells.lines(world.rows)
        sizes = {"resolution": plan.resolution, "clip": plan.clip, "parts": plan.ballot}
        return lambda coef: residual_sums(lines, world.y, coef, **sizes)

    def learned(self, n_classes: int, table: Callable[[np.ndarray, int], np.ndarray]) -> GradientLogistic:
        """The model after all rounds of gradients."""
        plan, rows = self.plan, self.cells.features_
        learner = GradientLogistic(rows, n_classes=n_classes, n_rounds=plan.n_rounds, noise=plan.noise)
        for turn in range(plan.n_rounds):
            learner.step(table(learner.coef_, turn) * (plan.unit / plan.n_units))
        return learner

    def student(self, learner: GradientLogistic, classes: np.ndarray, *, trial: bool = False) -> Any:  # noqa: ARG002
        """Log odds that are linear in the features, in steps that scikit-learn has."""
        return featured(self.cells, learner.coef_, classes)


def tables_within(
    facts: Facts,
    *,
    far: float,
    resolution: int,
    n_rounds: int,
    n_answers: int,
    most_parts: int,
    most_sigma: float,
) -> tuple[int, NoisyCounts]:
    """Parts of a ballot that in one part moves a table this far, and the least noise of all tables.

    Raises
    ------
    BudgetExceeded
        No noise makes them fit, or only more noise than there are units.
    """
    drowned = resolution * facts.n_units * n_rounds**0.5
    require_heard(drowned, facts, far=far, n_answers=n_answers, most=most_sigma)
    shared: dict[str, Any] = {"n_answers": n_answers, "most_epsilon": _MOST_EPSILON}
    sigma = least_table(facts, far=far, **shared).sigma
    parts = max(1, min(most_parts, int(0.999 * most_sigma / sigma)))
    return parts, least_table(facts, far=parts * far, **shared)
