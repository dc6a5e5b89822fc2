"""Learning in rounds: in each, every unit casts a ballot for what the model so far gets wrong."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ostraka.accounting import calibrate
from ostraka.door import release
from ostraka.mechanisms import NoisyCounts
from ostraka.pate._counts import CountsPlan, require_heard, rounded, run_of
from ostraka.pate._counts_student import featured
from ostraka.pate._questions import require_affordable
from ostraka.students.gradients import GradientLogistic
from ostraka.voters import RowVoter
from ostraka.voters._residuals import residual_sums

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.pate._cells import Facts
    from ostraka.pate._data import Data
    from ostraka.pate._run import Run
    from ostraka.pate._session import Session
    from ostraka.pate.classifier import PATEClassifier

__all__ = ["RoundsPlan", "in_rounds", "learn_rounds", "planned_rounds", "rounds_plan", "simulated_rounds"]

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
        """What the record says about the tables, beside their mechanism."""
        return {"n_features": self.n_cells, "n_rounds": self.n_rounds, "clip": self.clip}

    @property
    def n_answers(self) -> int:
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


def planned_rounds(cells: Any, public: Any, facts: Facts) -> tuple[Any, RoundsPlan]:
    """Cells with features of each row's own, fitted on public rows, and the plan for them."""
    fitted = copy.deepcopy(cells)
    if hasattr(fitted, "resolution"):
        fitted.resolution = min(fitted.resolution, _RESOLUTION)
    return fitted, rounds_plan(fitted.fit(public), facts)


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
    require_heard(_ROUNDS * drowned.curve(), n_units=facts.n_units, epsilon=facts.epsilon, delta=facts.delta)
    parts = max(1, min(_PARTS, int(0.999 * _MOST_SIGMA / _least_sigma(far, facts))))
    sigma = rounded(_least_sigma(parts * far, facts))
    return RoundsPlan(
        n_units=facts.n_units,
        n_cells=cells.features_.shape[1],
        ballot=parts,
        mechanism=NoisyCounts(sigma=sigma, l2=parts * far, relation=facts.relation),
        delta=facts.delta,
        n_rounds=_ROUNDS,
        clip=_CLIP,
        resolution=resolution,
    )


def _least_sigma(far: float, facts: Facts) -> float:
    return calibrate(
        lambda noise: NoisyCounts(sigma=min(noise, 1e5), l2=far, relation=facts.relation),
        n_answers=_ROUNDS,
        epsilon=min(facts.epsilon, _MOST_EPSILON) * (1 - 1e-9),  # a ledger rounds each price up once more
        delta=facts.delta,
        precision=1e-5,
    )


def learn_rounds(model: PATEClassifier, data: Data, plan: RoundsPlan, here: Session, cells: Any) -> Run:
    """Ask in each round what the model gets wrong, and pay for it, if the ledger can pay for all.

    Raises
    ------
    BudgetExceeded
        The ledger cannot pay for all rounds.
    ValueError
        The cells cannot take the rows, or a student was named.
    """
    if model.way == "rounds" and model.student is not None:
        raise ValueError(f"student must be None for way='rounds', which has its own, got {model.student!r}")
    classes = data.classes(model.classes)
    voter = RowVoter(cells=cells, manifest=here.manifest, relation=plan.mechanism.relation)
    model._tell("votes", 0, 1)  # noqa: SLF001  (same package)
    voter.fit(data.X, data.y, data.groups, classes=classes)
    model._tell("votes", 1, 1)  # noqa: SLF001
    key = here.key(data, repr(plan), cells.sha256_, classes)
    require_affordable(here.ledger, plan, key=key)

    def asked(coef: np.ndarray, turn: int) -> np.ndarray:
        model._tell("answers", turn, plan.n_rounds)  # noqa: SLF001
        votes = voter.residuals(coef, clip=plan.clip, parts=plan.ballot)
        return release(plan.mechanism, votes, ledger=here.ledger, key=f"{key}/{turn}")

    learner = in_rounds(plan, cells, len(classes), asked)
    model._tell("answers", plan.n_rounds, plan.n_rounds)  # noqa: SLF001
    votes = voter.residuals(learner.coef_, clip=plan.clip, parts=plan.ballot)
    student, labels = featured(cells, learner.coef_, classes), learner.predict(cells.features_)
    return run_of(model, data, here, voter, plan=plan, votes=votes, student=student, labels=labels)


def simulated_rounds(
    cells: Any, plan: RoundsPlan, rows: Any, y: np.ndarray, *, n_classes: int, rng: np.random.Generator
) -> GradientLogistic:
    """The model if the private rows are distributed as these public rows with made-up labels are."""
    lines, times = cells.lines(rows), plan.n_units / len(y)

    def asked(coef: np.ndarray, _: int) -> np.ndarray:
        sums = residual_sums(lines, y, coef, resolution=plan.resolution, clip=plan.clip, parts=plan.ballot)
        return np.asarray(times * sums + plan.mechanism.sigma * rng.normal(size=sums.shape))

    return in_rounds(plan, cells, n_classes, asked)


def in_rounds(
    plan: RoundsPlan, cells: Any, n_classes: int, asked: Callable[[np.ndarray, int], np.ndarray]
) -> GradientLogistic:
    """The model after all rounds; ``asked`` gives the noisy table for the coefficients of each."""
    learner = GradientLogistic(cells.features_, n_classes=n_classes, n_rounds=plan.n_rounds, noise=plan.noise)
    for turn in range(plan.n_rounds):
        learner.step(asked(learner.coef_, turn) * (plan.unit / plan.n_units))
    return learner
