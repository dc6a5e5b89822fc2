"""Make the record of a run: its settings, its cost, and the student's accuracy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from ostraka.accounting import exact_curve
from ostraka.accounting.exact import exact_profiles, exact_rdp
from ostraka.attacks.leakage import leakage_panel
from ostraka.door import ABSTAIN
from ostraka.mechanisms.protocols import parts
from ostraka.pate._counts import CountsPlan
from ostraka.pate._counts_record import counts_finding, counts_recorded
from ostraka.pate._metrics import measured
from ostraka.pate.plan import LabelPlan
from ostraka.result import Result
from ostraka.students.query_strategy import schedule
from ostraka.voters import count_votes

if TYPE_CHECKING:
    from ostraka.pate._run import Owned, Run
    from ostraka.pate.plan import Plan

__all__ = ["OS_NOISE", "SECRET_NOISE", "record", "try_record", "with_accuracies", "with_audit"]

OS_NOISE = "ChaCha20 keyed by the operating system"
SECRET_NOISE = "ChaCha20 keyed by a secret and the question (HMAC-SHA256)"  # noqa: S105  (words)
_EXACT, _ROUNDED = "answers are drawn exactly", "what is rounded is charged to delta"
_SHOWN = 50  # numbers of answers in a record; each takes one to four milliseconds
_ACCOUNTANT = (
    "Exact composition of the outcome laws whatever the votes, Rényi curves and Gaussian-DP composition; "
    "the smallest"
)


def record(run: Run) -> Result:
    """The record of a fit: settings, the bound, and the owner's own figures.

    Raises
    ------
    ValueError
        The owner's part of the run is missing.
    """
    plan, owned = run.plan, run.owned
    if owned is None:
        raise ValueError("a record must be made from a whole run, got one without its owner's part")
    if isinstance(plan, CountsPlan):
        return counts_recorded(run, plan, owned, upper=_upper(run, owned))
    if owned.ensemble is None:
        raise ValueError("a record of votes must be made from a run with its teachers")
    n_questions = plan.n_queries if isinstance(plan, LabelPlan) else plan.n_answers
    answered = int((run.labels != ABSTAIN).sum())
    said = {} if run.n_classes_said is None else {"classes_said": run.n_classes_said}
    return Result(
        kind="learn",
        settings=_settings(run, owned),
        upper=_upper(run, owned),
        utility={"answered": answered, "abstained": len(run.asked) - answered, **said},
        series=_over_time(plan, n_questions),
        owner={
            **_owner_figures(plan, owned.votes.open()),
            "n_failed": owned.ensemble.count_failed(),
            **({"seconds": owned.seconds} if owned.seconds else {}),
        },
        notes=(*run.notes, *run.warnings),
    )


def _over_time(plan: Plan | LabelPlan, n_questions: int) -> dict[str, Any]:
    """Return epsilon after each answer; of more than a figure can show, after some, evenly apart."""
    answers = np.unique(np.linspace(1, n_questions, min(n_questions, _SHOWN)).round().astype(int)).tolist()
    epsilon = [plan.curve(n).epsilon(plan.delta) for n in answers]
    return {"epsilon": epsilon} if n_questions <= _SHOWN else {"epsilon": epsilon, "answers": answers}


def _upper(run: Run, owned: Owned) -> dict[str, Any]:
    """Return the part of a record that says what the run cost at most."""
    charges = len(owned.ledger.entries())
    which = "one charge, this run's" if charges == 1 else f"{charges} charges, among them this run's"
    return {
        "epsilon": run.spent.epsilon(run.plan.delta),
        "delta": run.plan.delta,
        "accountant": _ACCOUNTANT,
        "curve": run.spent.to_dict(),
        "noise": f"{run.noise}; {_EXACT if run.spent.slack == 0 else _ROUNDED}",
        "horizon": f"everything in the ledger: {which}",
        "simulation": owned.ledger.simulation,
        "answers_left": owned.ledger.uses_left(run.plan.mechanism),
        "not_protected": list(run.notes),
    }


def _settings(run: Run, owned: Owned) -> dict[str, Any]:
    plan = run.plan
    mechanism: Any = plan.mechanism
    screen, argmax = parts(mechanism)
    queries = {"n_queries": plan.n_queries} if isinstance(plan, LabelPlan) else {}
    return {
        "n_rows": owned.manifest.n_rows,
        "n_units": owned.manifest.n_units,
        "unit": owned.votes.adjacency.unit,
        "relation": owned.votes.adjacency.relation,
        "n_teachers": plan.n_teachers,
        "n_classes": len(run.classes),
        "n_public": len(run.labels),
        "n_answers": plan.n_answers,
        **queries,
        "mechanism": repr(argmax),
        "screen": None if screen is None else repr(screen),
        "epsilon": owned.ledger.budget.epsilon,
        "asks": run.asks,
        "teacher": run.teacher,
        "student": run.student_name,
        "manifest": owned.manifest.sha256,
    }


def with_accuracies(
    run: Run, result: Result, X: Any, y: np.ndarray, *, X_private: Any = None, y_private: Any = None
) -> Result:
    """Add accuracies on rows with known labels to a record."""
    utility, series = measured(run.student, X, y, classes=run.classes)
    result = replace(result, utility={**result.utility, **utility}, series={**result.series, **series})
    if run.owned is None or run.owned.ensemble is None:  # nothing of the owner's to compare with
        return result
    predictions = run.owned.ensemble.predictions(X)
    plurality = count_votes(predictions, n_classes=len(run.classes)).argmax(axis=1)
    private = {
        "plurality": float((run.classes[plurality] == y).mean()),
        "one_teacher": float((run.classes[predictions] == y).mean()),
    }
    if X_private is not None:
        alone = clone(run.owned.ensemble.estimator).fit(X_private, y_private)
        private["non_private"] = _accuracy(alone, X, y)
    public = run.owned.public
    progress = {} if public is None else {"student": _progress(run, public, X, y)}
    return replace(
        result,
        series={**result.series, **progress},
        owner={**result.owner, "utility": {**result.owner.get("utility", {}), **private}},
    )


def with_audit(run: Run, result: Result, *, trials: int | None, confidence: float) -> Result:
    """Add the lower bound found by a simulated adversary of the whole run to a record."""
    from ostraka.audits import audit_run  # noqa: PLC0415  (half the time of importing the estimator)

    plan = run.plan
    if isinstance(plan, CountsPlan):
        found = counts_finding(plan, trials=trials, confidence=confidence)
    else:
        found = audit_run(
            plan.mechanism,
            n_answers=plan.n_answers,
            n_teachers=plan.n_teachers,
            n_classes=len(run.classes),
            claimed_epsilon=plan.epsilon,
            delta=plan.delta,
            trials=trials,
            confidence=confidence,
        )
    lower = {
        "epsilon": found.measures[0].lower,
        "delta": plan.delta,
        "confidence": confidence,
        "trials": found.trials,
        "verdict": found.verdict,
        "sentence": found.sentence,
        "note": found.note,
    }
    return replace(result, lower=lower)


def _owner_figures(plan: Plan | LabelPlan, counts: np.ndarray) -> dict[str, Any]:
    """Return the cost of answers to these votes, and the teachers' agreement. For the owner only."""
    mechanism = plan.mechanism
    total = exact_curve(mechanism, counts)
    order = total.best_order(plan.delta)
    composed = exact_profiles(mechanism, counts, at=[len(counts)])
    bounds = [total.epsilon(plan.delta), *(profile.epsilon(plan.delta) for profile in composed or ())]
    return {
        "epsilon_these_votes": min(bounds),
        "consensus": counts.max(axis=1) / plan.n_teachers,
        "cost": exact_rdp(mechanism, counts, orders=(order,))[:, 0],
        "cost_order": order,
        "repeats": leakage_panel(mechanism, counts, delta=plan.delta),
        "price": plan.curve(1).rdp[total.orders.index(order)],
    }


def try_record(plan: Plan | LabelPlan, *, n_classes: int) -> None:
    """Account for made-up votes and record them, so that a failure comes before any charge.

    Raises
    ------
    ValueError
        The mechanism cannot be accounted for; the message says what it raised.
    """
    counts = np.zeros((1, n_classes))
    counts[0, 0] = plan.n_teachers
    try:
        figures = _owner_figures(plan, counts)
        Result(kind="learn", owner=figures, upper={"curve": plan.curve().to_dict()}).to_json()
    except Exception as error:
        raise ValueError(
            f"{plan.mechanism!r} cannot be accounted for, so nothing was charged; on made-up votes it says: "
            f"{type(error).__name__}: {error}"
        ) from error


def _progress(run: Run, public: Any, X: Any, y: np.ndarray) -> dict[str, list[float]]:
    """Return the accuracy of students of the first answers, and the cost of these answers."""
    plan, epsilon, accuracy = run.plan, [], []
    chosen = run.student.estimator
    kind = run.student_name if isinstance(chosen, str) else chosen  # what "auto" chose stays chosen
    for used in np.cumsum(schedule(n_answers=plan.n_answers)).tolist():
        labels = np.full(len(run.labels), ABSTAIN)
        labels[run.asked[:used]] = run.labels[run.asked[:used]]
        if (labels == ABSTAIN).all():
            continue
        student = clone(run.student).set_params(estimator=kind)
        student.fit(public, labels, classes=run.classes)
        epsilon.append(plan.curve(used).epsilon(plan.delta))
        accuracy.append(_accuracy(student, X, y))
    return {"epsilon": epsilon, "accuracy": accuracy}


def _accuracy(model: Any, X: Any, y: np.ndarray) -> float:
    return float((np.asarray(model.predict(X)) == y).mean())
