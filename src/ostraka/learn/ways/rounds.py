"""The way of rounds: in each, every unit casts a ballot for what the model so far gets wrong."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ostraka.core.door import release
from ostraka.core.mechanisms.counts import NoisyCounts
from ostraka.learn.students.counts import GradientLogistic
from ostraka.learn.ways.counts import Counts, CountsPlan, featured, require_heard
from ostraka.learn.ways.plan import least_noise
from ostraka.voters.rows import residual_sums

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.core.private import Private
    from ostraka.learn.session import Data, Seeds, Session
    from ostraka.learn.ways.plan import Facts, World
    from ostraka.voters.rows import RowVoter

# Chosen on training rows of Fashion-MNIST and TREC, and on SST-2 (docs/noisy-counts.md).
_ROUNDS, _CLIP = 12, 0.5
_RESOLUTION, _PARTS = 64, 16  # of a line and of the clip, at most: finer ones need larger tables of noise
_MOST_EPSILON = 20.0  # of a plan; a ledger claims nothing where twelve tables cost above 27
_MOST_SIGMA = 4e4  # beyond, tables of the noise take seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsPlan(CountsPlan):
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
    def n_answers(self) -> int:  # type: ignore[override]
        """Each round's table is one answer."""
        return self.n_rounds

    @property
    def unit(self) -> float:
        """What one in the table is worth in a gradient."""
        return self.clip / (self.ballot * self.resolution)

    @property
    def noise(self) -> float:
        """Standard deviation of each number in the average of all rounds' mean gradients."""
        return float(self.mechanism.sigma * self.unit / self.n_units / self.n_rounds**0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds(Counts):
    """In each round, every unit casts a ballot for what the model so far gets wrong."""

    advice: ClassVar[str] = "Twelve rounds need many rows: type --way counts, or a larger --epsilon"
    stages: ClassVar[dict[str, str]] = {"votes": "features of rows", "answers": "rounds of votes"}
    instead: ClassVar[str] = "--way counts"

    @classmethod
    def planned(cls, cells: Any, public: Any, facts: Facts) -> Rounds:
        """Cells with features of each row's own, fitted on public rows, and the plan for them.

        Raises
        ------
        BudgetExceeded
            No noise makes the rounds fit, or only more noise than there are units.
        ValueError
            The unit is a person.
        """
        if facts.grouped:
            raise ValueError(
                "groups must be None for way='rounds': keep one row of each person, or pass way='counts'"
            )
        cells = copy.deepcopy(cells)
        if hasattr(cells, "resolution"):
            cells.resolution = min(cells.resolution, _RESOLUTION)
        cells.fit(public)
        return cls(plan=rounds_plan(cells, facts), cells=cells)

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

        def gradient(coef: np.ndarray, turn: int) -> np.ndarray:
            model._tell("answers", turn, plan.n_rounds)  # noqa: SLF001
            votes = voter.residuals(coef, clip=plan.clip, parts=plan.ballot)
            return np.asarray(release(plan.mechanism, votes, ledger=ledger, key=f"{key}/{turn}"))

        learner = in_rounds(plan, cells, len(classes), gradient)
        model._tell("answers", plan.n_rounds, plan.n_rounds)  # noqa: SLF001
        votes = voter.residuals(learner.coef_, clip=plan.clip, parts=plan.ballot)
        return featured(cells, learner.coef_, classes), learner.predict(cells.features_), votes

    def trial(self, model: Any, world: World, rng: np.random.Generator) -> float:  # noqa: ARG002
        """Accuracy of the model after all rounds."""
        plan, cells, y, n_classes = self.plan, self.cells, world.y, world.facts.n_classes
        lines, times = cells.lines(world.rows), plan.n_units / len(y)

        def gradient(coef: np.ndarray, _: int) -> np.ndarray:
            sums = residual_sums(
                lines, y, coef, resolution=plan.resolution, clip=plan.clip, parts=plan.ballot
            )
            return np.asarray(times * sums + plan.mechanism.sigma * rng.normal(size=sums.shape))

        coef = in_rounds(plan, cells, n_classes, gradient).coef_
        return world.score(featured(cells, coef, np.arange(n_classes)))

    def words(self, *, n_units: int, n_public: int, unit: str, teacher: str) -> dict[str, str]:
        """The ballots, the mechanism, who are neighbours, and the tables."""
        plan = self.plan
        own = {
            "way": f"rounds: in each, every {unit} votes for what the model so far gets wrong about it",
            "answers": f"{plan.n_answers} tables, one a round: {plan.n_cells:,} features × classes",
        }
        words = Counts.words(self, n_units=n_units, n_public=n_public, unit=unit, teacher=teacher)
        return words | own


def rounds_plan(cells: Any, facts: Facts) -> RoundsPlan:
    """The least noise, to five digits upwards, with which all rounds fit (epsilon, delta).

    Raises
    ------
    BudgetExceeded
        No noise makes them fit, or only more noise than there are units.
    """
    resolution = round(cells.reach_ / 2)
    far = cells.reach_ / 2 if facts.relation == "zero-out" else cells.reach_  # of a ballot in one part
    drowned = NoisyCounts(sigma=min(_MOST_SIGMA, resolution * facts.n_units * _ROUNDS**0.5), l2=far)
    require_heard(_ROUNDS * drowned.curve(), facts)

    def sigma(far: float) -> float:
        return least_noise(
            lambda noise: NoisyCounts(sigma=min(noise, 1e5), l2=far, relation=facts.relation),
            n_answers=_ROUNDS,
            epsilon=min(facts.epsilon, _MOST_EPSILON),
            delta=facts.delta,
            digits=5,
        )

    parts = max(1, min(_PARTS, int(0.999 * _MOST_SIGMA / sigma(far))))
    return RoundsPlan(
        n_units=facts.n_units,
        n_cells=cells.features_.shape[1],
        ballot=parts,
        mechanism=NoisyCounts(sigma=sigma(parts * far), l2=parts * far, relation=facts.relation),
        delta=facts.delta,
        n_rounds=_ROUNDS,
        clip=_CLIP,
        resolution=resolution,
    )


def in_rounds(
    plan: RoundsPlan, cells: Any, n_classes: int, gradient: Callable[[np.ndarray, int], np.ndarray]
) -> GradientLogistic:
    """The model after all rounds; ``gradient`` gives the noisy table for the coefficients of each."""
    learner = GradientLogistic(cells.features_, n_classes=n_classes, n_rounds=plan.n_rounds, noise=plan.noise)
    for turn in range(plan.n_rounds):
        learner.step(gradient(learner.coef_, turn) * (plan.unit / plan.n_units))
    return learner
