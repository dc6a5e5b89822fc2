"""The record of a run: what it was, what it cost, and what it was good for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from ostraka.accounting import exact_curve, exact_rdp
from ostraka.attacks import leakage_panel
from ostraka.door import ABSTAIN
from ostraka.pate._questions import paid
from ostraka.result import Result
from ostraka.students import schedule
from ostraka.voters import count_votes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostraka.curve import Curve
    from ostraka.pate.classifier import PATEClassifier
    from ostraka.pate.pate_fm import PATEFM
    from ostraka.pate.plan import LabelPlan, Plan
    from ostraka.private import Private

__all__ = ["of_labels", "of_run", "with_accuracies", "with_audit"]

_NOISE = "ChaCha20 keyed by the operating system, drawn in float64"
_KEYED = "ChaCha20 keyed by a secret and the question (HMAC-SHA256), drawn in float64"
_ACCOUNTANT = "Rényi curves of each mechanism whatever the votes, and Gaussian-DP composition; the smaller"
_HELD_OUT = (
    "{} rows of the private table were held out as public questions: their features are not protected at all "
    "(their labels were not used for training)."
)
_FEATURES = "All features of all rows are public: they are not protected, and neither is that a row is there."
_PARTITION = "The number of labels, and which shard each lies in, are treated as public."
_NUMBERS = "The numbers of rows, units and features, and the partition, are treated as public."


def of_run(model: PATEClassifier) -> Result:
    """The record of a fit: settings, the bound, and the owner's own figures."""
    plan, manifest, ledger = model.plan_, model.manifest_, model.ledger_
    spent = ledger.spent() + _unused(model)
    notes = [*model.ensemble_.notes_, _NUMBERS]
    if model.held_out_ is not None:
        notes.insert(0, _HELD_OUT.format(len(model.held_out_)))
    answered = int((model.labels_ != ABSTAIN).sum())
    return Result(
        kind="learn",
        settings={
            "n_rows": manifest.n_rows,
            "n_units": manifest.n_units,
            "unit": manifest.unit,
            "relation": model.votes_.adjacency.relation,
            "n_teachers": plan.n_teachers,
            "n_classes": len(model.classes_),
            "n_public": len(model.labels_),
            "n_answers": plan.n_answers,
            "mechanism": repr(plan.mechanism),
            "screen": None if plan.screen is None else repr(plan.screen),
            "epsilon": ledger.budget.epsilon,
            "asks": model.asks,
            "teacher": repr(model.ensemble_.estimator),
            "student": model.student_.name_,
            "manifest": manifest.sha256,
        },
        upper=_upper(model, spent, noise=_KEYED if model.consistent else _NOISE, notes=notes),
        utility={"answered": answered, "abstained": len(model.asked_) - answered},
        series={"epsilon": [plan.curve(n + 1).epsilon(plan.delta) for n in range(plan.n_answers)]},
        owner={**_owner(plan, model.votes_), "n_failed": model.ensemble_.n_failed_},
        notes=tuple(notes),
    )


def of_labels(model: PATEFM, *, key: str, seconds: dict[str, float]) -> Result:
    """The record of a fit of PATE-FM; ``key`` names its charges, ``seconds`` say how long its parts took."""
    plan, ledger = model.plan_, model.ledger_
    spent = ledger.spent() + plan.left(paid(ledger, key=key))  # how much was left out depends on votes
    notes = [_FEATURES, *model.ensemble_.notes_, _PARTITION]
    answered = int((model.labels_ != ABSTAIN).sum())
    return Result(
        kind="learn",
        settings={
            "n_rows": len(model.labels_),
            "n_units": len(model.labels_),
            "unit": model.votes_.adjacency.unit,
            "relation": model.votes_.adjacency.relation,
            "n_teachers": plan.n_teachers,
            "n_classes": len(model.classes_),
            "n_public": len(model.labels_),
            "n_answers": plan.n_answers,
            "n_queries": plan.n_queries,
            "mechanism": repr(plan.mechanism),
            "screen": None if plan.screen is None else repr(plan.screen),
            "epsilon": ledger.budget.epsilon,
            "asks": "random",
            "teacher": "FixMatch",
            "student": "FixMatch",
            "manifest": model.manifest_.sha256,
        },
        upper=_upper(model, spent, noise=_NOISE, notes=notes),
        utility={"answered": answered, "abstained": len(model.asked_) - answered},
        series={"epsilon": [plan.curve(n + 1).epsilon(plan.delta) for n in range(plan.n_queries)]},
        owner={**_owner(plan, model.votes_), "n_failed": model.ensemble_.n_failed_, "seconds": seconds},
        notes=tuple(notes),
    )


def with_accuracies(
    model: PATEClassifier | PATEFM, X: Any, y: np.ndarray, X_private: Any, y_private: Any
) -> Result:
    """The same record, with how good everything is on rows whose labels are known."""
    result = model.result_
    utility = {
        "student": _accuracy(model.student_, X, y),
        "majority": float(np.unique(y, return_counts=True)[1].max() / len(y)),
    }
    private: dict[str, float] = {}
    if hasattr(model, "ensemble_"):
        predictions = model.ensemble_.predictions(X)
        plurality = count_votes(predictions, n_classes=len(model.classes_)).argmax(axis=1)
        private["plurality"] = float((model.classes_[plurality] == y).mean())
        private["one_teacher"] = float((model.classes_[predictions] == y).mean())
        if X_private is not None:
            alone = clone(model.ensemble_.estimator).fit(X_private, y_private)
            private["non_private"] = _accuracy(alone, X, y)
    owner = {**result.owner, "utility": {**result.owner.get("utility", {}), **private}}
    series = (
        {**result.series, "student": _progress(model, X, y)} if hasattr(model, "_public") else result.series
    )
    return replace(result, utility={**result.utility, **utility}, series=series, owner=owner)


def with_audit(model: PATEClassifier | PATEFM, *, trials: int | None, confidence: float) -> Result:
    """The same record, with what an adversary of the whole run was seen to learn at least."""
    from ostraka.audits import audit_run  # noqa: PLC0415  (half the time of importing the estimator)

    plan, result = model.plan_, model.result_
    found = audit_run(
        plan.mechanism,
        screen=plan.screen,
        n_answers=plan.n_answers,
        n_teachers=plan.n_teachers,
        n_classes=len(model.classes_),
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


def _upper(
    model: PATEClassifier | PATEFM, spent: Curve, *, noise: str, notes: Sequence[str]
) -> dict[str, Any]:
    plan, ledger = model.plan_, model.ledger_
    return {
        "epsilon": spent.epsilon(plan.delta),
        "delta": plan.delta,
        "accountant": _ACCOUNTANT,
        "curve": spent.to_dict(),
        "noise": noise,
        "horizon": f"everything in the ledger: {len(ledger.entries())} charges, among them this run's",
        "simulation": ledger.simulation,
        "not_protected": list(notes),
    }


def _unused(model: PATEClassifier) -> Curve:
    """Answers that were planned for and not given: how many depends on votes, so they count as spent."""
    missing = model.plan_.n_answers - int((model.labels_ != ABSTAIN).sum())
    cost: Curve = missing * model.plan_.mechanism.curve()
    return cost


def _owner(plan: Plan | LabelPlan, votes: Private) -> dict[str, Any]:
    """What these very votes cost, and how far the teachers agreed: for the owner only."""
    law = plan.mechanism if plan.screen is None else (plan.screen, plan.mechanism)
    counts = votes.open()
    total = exact_curve(law, counts)
    order = total.best_order(plan.delta)
    return {
        "epsilon_these_votes": total.epsilon(plan.delta),
        "consensus": counts.max(axis=1) / plan.n_teachers,
        "cost": exact_rdp(law, counts, orders=(order,))[:, 0],
        "cost_order": order,
        "repeats": leakage_panel(law, counts, delta=plan.delta),
        "price": plan.curve(1).rdp[total.orders.index(order)],
    }


def _progress(model: PATEClassifier, X: Any, y: np.ndarray) -> dict[str, list[float]]:
    """Accuracy of students of the first answers only, against what these cost."""
    plan, epsilon, accuracy = model.plan_, [], []
    chosen = model.student_.estimator
    kind = (
        model.student_.name_ if isinstance(chosen, str) else chosen
    )  # "auto" has chosen; do not choose again
    for used in np.cumsum(schedule(n_answers=plan.n_answers)).tolist():
        labels = np.full(len(model.labels_), ABSTAIN)
        labels[model.asked_[:used]] = model.labels_[model.asked_[:used]]
        if (labels == ABSTAIN).all():
            continue
        student = clone(model.student_).set_params(estimator=kind)
        student.fit(model._public, labels, classes=model.classes_)  # noqa: SLF001  (same package)
        epsilon.append(plan.curve(used).epsilon(plan.delta))
        accuracy.append(_accuracy(student, X, y))
    return {"epsilon": epsilon, "accuracy": accuracy}


def _accuracy(model: Any, X: Any, y: np.ndarray) -> float:
    return float((np.asarray(model.predict(X)) == y).mean())
