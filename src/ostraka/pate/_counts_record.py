"""The record of a run by counts, and its audit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ostraka.result import Result

if TYPE_CHECKING:
    from ostraka.pate._counts import CountsPlan
    from ostraka.pate._run import Owned, Run

__all__ = ["counts_audited", "counts_recorded"]

_ACCOUNTANT = "Gaussian-DP composition and Rényi curves of the discrete Gaussian; the smaller"


def counts_recorded(run: Run, plan: CountsPlan, owned: Owned) -> Result:
    """The record of a fit by counts."""
    mechanism, adjacency = plan.mechanism, owned.votes.adjacency
    said = {} if run.n_classes_said is None else {"classes_said": run.n_classes_said}
    return Result(
        kind="learn",
        settings={
            "n_rows": owned.manifest.n_rows,
            "n_units": owned.manifest.n_units,
            "unit": adjacency.unit,
            "relation": adjacency.relation,
            "n_teachers": plan.n_units,
            "n_classes": len(run.classes),
            "n_public": len(run.labels),
            "n_answers": 1,
            "n_cells": plan.n_cells,
            "mechanism": repr(mechanism),
            "screen": None,
            "epsilon": owned.ledger.budget.epsilon,
            "asks": run.asks,
            "teacher": run.teacher,
            "student": run.student_name,
            "manifest": owned.manifest.sha256,
        },
        upper={
            "epsilon": run.spent.epsilon(plan.delta),
            "delta": plan.delta,
            "accountant": _ACCOUNTANT,
            "curve": run.spent.to_dict(),
            "noise": run.noise,
            "horizon": f"everything in the ledger: {len(owned.ledger.entries())} charges, "
            "among them this run's",
            "simulation": owned.ledger.simulation,
            "not_protected": list(run.notes),
        },
        utility=said,
        series={"epsilon": [plan.epsilon]},
        notes=(*run.notes, *run.warnings),
    )


def counts_audited(plan: CountsPlan, result: Result, *, trials: int | None, confidence: float) -> Result:
    """Add the lower bound of an adversary who knows every other unit to a record."""
    from ostraka.audits import audit_counts  # noqa: PLC0415  (half the time of importing the estimator)

    many: dict[str, Any] = {} if trials is None else {"trials": trials}
    found = audit_counts(
        plan.mechanism, claimed_epsilon=plan.epsilon, delta=plan.delta, confidence=confidence, **many
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
