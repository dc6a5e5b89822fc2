"""Learning from counts: every unit casts one ballot in all, and one noisy table is released."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.pipeline import Pipeline

from ostraka.accounting import calibrate
from ostraka.door import ABSTAIN, release
from ostraka.ledger import BudgetExceeded
from ostraka.mechanisms import NoisyCounts
from ostraka.pate._counts_student import FEATURED, taught, try_to_teach
from ostraka.pate._data import unprotected
from ostraka.pate._metrics import warnings_of
from ostraka.pate._run import Owned, Run
from ostraka.students import Distilled
from ostraka.voters import RowVoter
from ostraka.voters._tables import CLASSES_FROM_Y
from ostraka.voters.rows import ballot_of, own_features

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ostraka.curve import Curve
    from ostraka.pate._data import Data
    from ostraka.pate._session import Session
    from ostraka.pate.classifier import PATEClassifier
    from ostraka.private import Private

__all__ = ["CountsPlan", "counts_plan", "learn_counts", "require_heard", "rounded", "run_of"]

_PARTS = 12  # of a ballot which the rows of a person share
_DIGITS = 5
_MOST_SIGMA = 1e5  # of NoisyCounts
_NOISE = "ChaCha20 keyed by the operating system, drawn in integers"
_NUMBERS = "The numbers of rows, units and features are treated as public."


@dataclass(frozen=True, slots=True, kw_only=True)
class CountsPlan:
    """The plan of a run by counts, and its cost for all data. All of it is public.

    Attributes
    ----------
    n_units : int
        Each is a teacher of its own.
    n_cells : int
        Rows of the table of counts.
    ballot : int
        Parts in which one ballot is counted.
    mechanism : NoisyCounts
    delta : float

    Examples
    --------
    >>> plan = CountsPlan(n_units=1297, n_cells=20, ballot=1, mechanism=NoisyCounts(sigma=4.6), delta=1e-4)
    >>> round(plan.epsilon, 2)
    0.98
    """

    way: ClassVar[str] = "counts"

    n_units: int
    n_cells: int
    ballot: int
    mechanism: NoisyCounts
    delta: float

    @property
    def sizes(self) -> dict[str, Any]:
        """What the record says about the table, beside its mechanism."""
        return {"n_cells": self.n_cells}

    @property
    def n_teachers(self) -> int:
        """One for each unit."""
        return self.n_units

    @property
    def n_answers(self) -> int:
        """The table is one answer."""
        return 1

    @property
    def sigma(self) -> float:
        """Noise on each count, in ballots."""
        return self.mechanism.sigma / self.ballot

    @property
    def epsilon(self) -> float:
        """Epsilon at ``delta``."""
        return self.curve().epsilon(self.delta)

    def curve(self, n_answers: int | None = None) -> Curve:
        """Cost of all tables, or of so many."""
        return (self.n_answers if n_answers is None else n_answers) * self.mechanism.curve()

    def left(self, paid: Mapping[str, int]) -> Curve:
        """Cost of what is still to be released, given the uses of each mechanism that are paid for."""
        return self.curve(max(0, self.n_answers - paid.get(repr(self.mechanism), 0)))


def counts_plan(
    cells: Any,
    *,
    n_units: int,
    n_classes: int,
    grouped: bool,
    epsilon: float,
    delta: float,
    relation: str = "replace-one",
) -> CountsPlan:
    """The least noise, to five digits upwards, with which one table for these cells fits (epsilon, delta).

    Raises
    ------
    BudgetExceeded
        No noise makes it fit, or only more noise than there are units.
    """
    ballot, far = ballot_of(cells, n_classes, parts=_PARTS if grouped else 1, relation=relation)
    own = own_features(cells)
    longest = cells.reach_ / 2 if own else max(float(np.abs(book).max()) for book in cells.codebooks_)
    drowned = min(_MOST_SIGMA, ballot * longest * n_units / n_classes)
    require_heard(NoisyCounts(sigma=drowned, l2=far).curve(), n_units=n_units, epsilon=epsilon, delta=delta)
    sigma = calibrate(
        lambda noise: NoisyCounts(sigma=min(noise, _MOST_SIGMA), l2=far, relation=relation),
        n_answers=1,
        epsilon=epsilon * (1 - 1e-9),  # a ledger rounds each price up once more
        delta=delta,
        precision=1e-5,
    )
    return CountsPlan(
        n_units=n_units,
        n_cells=cells.features_.shape[1] if own else sum(book.shape[1] for book in cells.codebooks_),
        ballot=ballot,
        mechanism=NoisyCounts(sigma=min(rounded(sigma), _MOST_SIGMA), l2=far, relation=relation),
        delta=delta,
    )


def require_heard(drowned: Curve, *, n_units: int, epsilon: float, delta: float) -> None:
    """Raise BudgetExceeded if even noise as large as all ballots costs too much."""
    cost = drowned.epsilon(delta)
    if cost > epsilon:
        raise BudgetExceeded(
            f"epsilon={epsilon:g} at delta={delta:g} is too small for {n_units} units: noise would drown all "
            "their ballots; use a larger epsilon or more units",
            asked=cost,
            left=epsilon,
        )


def learn_counts(
    model: PATEClassifier, data: Data, plan: CountsPlan, here: Session, cells: Any, *, seed: int
) -> Run:
    """Count, release once, teach the student; teaching is tried on made-up counts before the charge.

    Raises
    ------
    BudgetExceeded
        The ledger cannot pay for the table.
    ValueError
        The cells cannot take the rows, or the student cannot learn.
    """
    classes = data.classes(model.classes)
    voter = RowVoter(
        cells=cells,
        units=plan.ballot,
        manifest=here.manifest,
        relation=plan.mechanism.relation,
    )
    model._tell("votes", 0, 1)  # noqa: SLF001  (same package)
    votes = voter.fit(data.X, data.y, data.groups, classes=classes).vote()
    kind = model.student if model.way == "counts" else None  # otherwise it is the teachers' student
    try_to_teach(cells, data.public, plan=plan, classes=classes, kind=kind, seed=seed)
    model._tell("votes", 1, 1)  # noqa: SLF001
    key = here.key(data, repr(plan), cells.sha256_)
    counts = release(plan.mechanism, votes, ledger=here.ledger, key=key)
    model._tell("student", 0, 1)  # noqa: SLF001
    student, labels = taught(cells, data.public, counts, plan=plan, classes=classes, kind=kind, seed=seed)
    model._tell("student", 1, 1)  # noqa: SLF001
    return run_of(model, data, here, voter, plan=plan, votes=votes, student=student, labels=labels)


def run_of(
    model: PATEClassifier,
    data: Data,
    here: Session,
    voter: RowVoter,
    *,
    plan: CountsPlan,
    votes: Private,
    student: Any,
    labels: np.ndarray,
) -> Run:
    """The facts of a fit whose units voted by a table, or by several."""
    predicted = np.asarray(student.predict(data.public))
    return Run(
        plan=plan,
        classes=voter.classes_,
        student=student,
        student_name=FEATURED if isinstance(student, Pipeline) else _name(student),
        teacher=f"every {voter.unit_}, for {voter.cells!r}",
        asks="all",
        labels=labels,
        asked=np.arange(len(labels)),
        held_out=data.held_out,
        spent=here.ledger.spent(),
        noise=_NOISE,
        notes=(
            *unprotected(data, allow_overlap=model.allow_overlap),
            *(() if model.classes is not None else (CLASSES_FROM_Y,)),
            _NUMBERS,
        ),
        warnings=tuple(
            warnings_of(
                n_teachers=plan.n_units,
                answers=labels[labels != ABSTAIN],
                predicted=predicted,
                classes=voter.classes_,
            )
        ),
        n_classes_said=len(np.unique(predicted)),
        owned=Owned(
            ensemble=None,
            ledger=here.ledger,
            manifest=here.manifest,
            votes=votes,
            public=data.public if isinstance(student, Distilled) else None,
            seconds={},
        ),
    )


def _name(student: Any) -> str:
    return str(getattr(student, "name_", type(student).__name__))


def rounded(sigma: float) -> float:
    """Round up to a few digits."""
    step = 10.0 ** (math.floor(math.log10(sigma)) + 1 - _DIGITS)
    return float(f"{math.ceil(sigma / step) * step:.{_DIGITS}g}")
