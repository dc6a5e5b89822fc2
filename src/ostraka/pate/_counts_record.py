"""The record of a run by counts, and its audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ostraka.result import Result

if TYPE_CHECKING:
    from ostraka.audits.finding import Finding
    from ostraka.pate._counts import CountsPlan
    from ostraka.pate._run import Owned, Run

__all__ = ["counts_finding", "counts_recorded"]

_ACCOUNTANT = "Gaussian-DP composition and Rényi curves of the discrete Gaussian; the smaller"


def counts_recorded(run: Run, plan: CountsPlan, owned: Owned, *, upper: dict[str, Any]) -> Result:
    """Return the record of a fit by counts; ``upper`` says what the run cost at most."""
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
            "n_answers": plan.n_answers,
            **plan.sizes,
            "mechanism": repr(mechanism),
            "screen": None,
            "epsilon": owned.ledger.budget.epsilon,
            "asks": run.asks,
            "teacher": run.teacher,
            "student": run.student_name,
            "manifest": owned.manifest.sha256,
        },
        upper={**upper, "accountant": _ACCOUNTANT},
        utility=said,
        series={"epsilon": [plan.curve(n).epsilon(plan.delta) for n in range(1, plan.n_answers + 1)]},
        notes=(*run.notes, *run.warnings),
    )


def counts_finding(plan: CountsPlan, *, trials: int | None, confidence: float) -> Finding:
    """Return the lower bound of an adversary who knows every other unit."""
    from ostraka.audits import audit_counts  # noqa: PLC0415  (half the time of importing the estimator)

    many: dict[str, Any] = {} if trials is None else {"trials": trials}
    return audit_counts(
        plan.mechanism,
        n_tables=plan.n_answers,
        claimed_epsilon=plan.epsilon,
        delta=plan.delta,
        confidence=confidence,
        **many,
    )
