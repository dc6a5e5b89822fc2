"""Make the record of a run: its settings, its cost, and the student's accuracy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from ostraka.core.door import protected
from ostraka.core.mechanisms.law import ABSTAIN, named
from ostraka.core.result import Result
from ostraka.data.budgets import TableLedger
from ostraka.learn.run import measured
from ostraka.learn.students.distil import schedule
from ostraka.learn.ways.choose import way_of
from ostraka.voters.voting import count_votes

if TYPE_CHECKING:
    from ostraka.learn.run import Run


def record(run: Run) -> Result:
    """The record of a fit: settings, the bound, and the owner's own figures.

    Raises
    ------
    ValueError
        The owner's part of the run is missing.
    """
    plan, owned, method = run.plan, run.owned, way_of(run.plan)
    if owned is None:
        raise ValueError("a record must be made from a whole run, got one without its owner's part")
    charges = owned.ledger.count()
    which = "one charge, this run's" if charges == 1 else f"{charges} charges, among them this run's"
    exact = "answers are drawn exactly" if run.spent.slack == 0 else "what is rounded is charged to delta"
    parts = method.record(run, owned)
    table = {}  # what all releases from the table cost its units, where there is a ledger of the table
    if isinstance(owned.ledger, TableLedger):
        table = {"table": owned.ledger.account.spent(protected(owned.votes)).to_dict()}
    n_classes = {} if run.n_classes_said is None else {"classes_said": run.n_classes_said}
    return Result(
        kind="learn",
        settings={
            **owned.sizes,
            "unit": owned.votes.adjacency.unit,
            "relation": owned.votes.adjacency.relation,
            "n_teachers": plan.n_teachers,
            "n_classes": len(run.classes) or None,
            "n_public": len(run.labels),
            "n_answers": plan.n_answers,
            **plan.sizes,
            **named(plan.mechanism),
            "epsilon": owned.ledger.budget.epsilon,
            "asks": run.asks,
            "teacher": run.teacher,
            "student": run.student_name,
            "manifest": owned.manifest.sha256,
        },
        upper={
            "epsilon": run.spent.epsilon(plan.delta),
            "delta": plan.delta,
            "accountant": method.accountant,
            "curve": run.spent.to_dict(),
            "noise": f"{run.noise}; {exact}",
            "horizon": f"everything in the ledger: {which}",
            "simulation": owned.ledger.simulation,
            "answers_left": owned.ledger.uses_left(plan.mechanism),
            "not_protected": list(run.notes),
            **table,
        },
        utility=parts.get("utility", {}) | n_classes,
        series=plan.over_time(),
        owner=parts.get("owner", {}),
        notes=(*run.notes, *run.warnings),
    )


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
    if run.owned.public is not None:
        # the accuracy of students of the first answers, and the cost of these answers
        epsilon, accuracy, chosen = [], [], run.student.estimator
        kind = run.student_name if isinstance(chosen, str) else chosen  # what "auto" chose stays chosen
        for n in np.cumsum(schedule(n_answers=run.plan.n_answers)).tolist():
            labels = np.full(len(run.labels), ABSTAIN)
            labels[run.asked[:n]] = run.labels[run.asked[:n]]
            if (labels != ABSTAIN).any():
                student = clone(run.student).set_params(estimator=kind)
                student.fit(run.owned.public, labels, classes=run.classes)
                epsilon.append(run.plan.curve(n).epsilon(run.plan.delta))
                accuracy.append(_accuracy(student, X, y))
        series = {"student": {"epsilon": epsilon, "accuracy": accuracy}}
    return replace(
        result,
        series={**result.series, **series},
        owner={**result.owner, "utility": {**result.owner.get("utility", {}), **private}},
    )


def with_audit(run: Run, result: Result, *, trials: int | None, confidence: float) -> Result:
    """Add the lower bound found by a simulated adversary of the whole run to a record."""
    finding = way_of(run.plan).finding(run, trials=trials, confidence=confidence)
    lower = {
        "epsilon": finding.measures[0].lower,
        "delta": run.plan.delta,
        "confidence": confidence,
        "trials": finding.trials,
        "verdict": finding.verdict,
        "sentence": finding.sentence,
        "note": finding.note,
    }
    return replace(result, lower=lower)


def _accuracy(model: Any, X: Any, y: np.ndarray) -> float:
    return float((np.asarray(model.predict(X)) == y).mean())
