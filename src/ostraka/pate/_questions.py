"""Questions: which public rows to ask about, and their answers, each of which is charged once."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import _safe_indexing

from ostraka import _check
from ostraka.door import ABSTAIN, consistently, release
from ostraka.ledger import BudgetExceeded
from ostraka.mechanisms.protocols import parts
from ostraka.students.query_strategy import schedule, typical, uncertainty_sampling

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.consistent import Consistent
    from ostraka.ledger import Ledger
    from ostraka.mechanisms.protocols import Mechanism
    from ostraka.pate._counts import CountsPlan
    from ostraka.pate.plan import LabelPlan, Plan
    from ostraka.private import Private
    from ostraka.students import Distilled
    from ostraka.voters import TeacherEnsemble

__all__ = ["Questions", "paid", "require_affordable"]

_CANDIDATES = 10  # rows to choose from for each answer; more cost the teachers time and change little


@dataclass(slots=True, kw_only=True)
class Questions:
    """The questions of one fit. After an interruption, the same key finds the answers in the ledger."""

    public: Any
    plan: Plan
    teachers: TeacherEnsemble
    ledger: Ledger
    key: str
    student: Distilled
    n_classes: int
    asks: str
    seed: int
    tell: Callable[[str, int, int], None]
    consistent: Consistent | None = None
    labels: np.ndarray = field(init=False)
    asked: np.ndarray = field(init=False)
    votes: Private = field(init=False)

    def ask(self) -> None:
        """Let the teachers vote on candidate rows, and ask about as many of these as planned."""
        n_public, n_answers = self.public.shape[0], self.plan.n_answers
        chance = self.asks == "random"
        order = np.random.default_rng(self.seed).permutation(n_public)
        pool = np.sort(order[: n_answers if chance else min(n_public, _CANDIDATES * n_answers)])
        rows = _safe_indexing(self.public, pool)
        votes = self.teachers.vote(rows)
        answers = np.full(len(pool), ABSTAIN)
        asked = np.empty(0, dtype=np.int64)
        waiting = np.searchsorted(pool, order[: len(pool)])  # in random order
        for step, size in enumerate((n_answers,) if chance else schedule(n_answers=n_answers)):
            batch = waiting[:size] if chance else self._next(rows, answers, waiting, size)
            answers[batch] = self._release(votes[batch], pool[batch], step)
            asked = np.concatenate([asked, batch])
            waiting = waiting[~np.isin(waiting, batch)]
            self.tell("answers", len(asked), n_answers)
        self.labels = np.full(n_public, ABSTAIN)
        self.labels[pool] = answers
        self.asked, self.votes = pool[asked], votes[asked]

    def _next(self, rows: Any, answers: np.ndarray, waiting: np.ndarray, size: int) -> np.ndarray:
        """Typical rows first, then those with the least certain predictions, else rows at random."""
        if len(waiting) == len(answers) and not hasattr(rows, "iloc"):
            return np.asarray(typical(rows, n=size, random_state=self.seed))
        if (answers == ABSTAIN).all():
            return waiting[:size]
        student = self.student.fit(rows, answers, classes=range(self.n_classes))
        if not hasattr(student, "predict_proba"):
            return waiting[:size]
        return uncertainty_sampling(student.predict_proba(rows), n=size, among=waiting)

    def _release(self, votes: Private, rows: np.ndarray, step: int) -> np.ndarray:
        if self.consistent is not None:
            screen, argmax = parts(self.plan.mechanism)
            return consistently(
                argmax,
                votes,
                _safe_indexing(self.public, rows),
                consistent=self.consistent,
                screen=screen,
                ledger=self.ledger,
                key=f"{self.key}/answers",
            )
        key = f"{self.key}/answers/{step}/{hashlib.sha256(rows.astype('<i8').tobytes()).hexdigest()[:16]}"
        mechanism: Mechanism = self.plan.mechanism
        return release(mechanism, votes, ledger=self.ledger, key=key)


def require_affordable(ledger: Ledger, plan: Plan | LabelPlan | CountsPlan, *, key: str) -> None:
    """Raise unless the ledger can pay for all that this run has not paid yet; called before any training."""
    still = plan.left(paid(ledger, key=key))
    charged = [entry.curve for entry in ledger.entries() if entry.uses]
    whole = ledger.spent() + still if charged else still
    # an adaptive budget allows less than its epsilon, by a rule that the first charge decides
    if ledger.budget.allows(whole, first=(charged or [whole])[0]):
        return
    total, left = whole.epsilon(ledger.budget.delta), ledger.left()
    room = ", less the price of choosing questions by earlier answers" if ledger.budget.adaptive else ""
    raise BudgetExceeded(
        f"{ledger!r} has epsilon {left:.4g} left{room}, but {plan.n_answers} × {plan.mechanism!r} would make "
        f"it {_check.nats(total)}: ask fewer questions, or with more noise; nothing was trained or charged",
        asked=total - ledger.epsilon(),
        left=left,
    )


def paid(ledger: Ledger, *, key: str) -> Counter[str]:
    """Number of uses of each mechanism, by its repr, that the charges under this key paid for."""
    uses: Counter[str] = Counter()
    for entry in ledger.entries():
        if (entry.key or "").startswith(f"{key}/"):
            uses[entry.mechanism] += entry.uses
    return uses
