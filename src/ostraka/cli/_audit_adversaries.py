"""Audits by adversaries against teachers of a user's own data, in a model of their training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import typer

from ostraka.cli import _data
from ostraka.cli._models import Teacher
from ostraka.cli._progress import Stages

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np

    from ostraka.audits.finding import Finding

__all__ = ["audit_adversaries"]

_ASKED = 0.2  # of the rows, from which no teacher learns


def audit_adversaries(
    private: Path,
    *,
    label: str,
    drop: Sequence[str],
    teacher: Teacher,
    mechanism: Any,
    n_teachers: int,
    n_trainings: int,
    n_questions: int,
    trials: int,
    confidence: float,
    delta: float | None,
    seed: int,
) -> tuple[Finding, ...]:
    """Run every adversary against shards that are dealt anew (PATE) and against fixed parties (CaPC)."""
    import numpy as np

    from ostraka.audits import TeacherWorlds, audit_adversary
    from ostraka.audits.adversarial_queries import Adversary
    from ostraka.audits.training import Retraining

    if min(n_teachers, n_trainings, n_questions) < 1:
        raise typer.BadParameter("--teachers, --trainings and --questions must be 1 or more")
    X, y, n_classes, queries, labels = _rows(
        private, label=label, drop=drop, n_teachers=n_teachers, n_questions=n_questions, seed=seed
    )
    findings = []
    with Stages({"audits": "adversaries played"}) as tell:
        for name, fixed in (("PATE", False), ("CaPC", True)):
            training = Retraining(
                estimator=teacher.estimator(default=Teacher.TREE),
                X=X,
                y=y,
                n_teachers=n_teachers,
                n_classes=n_classes,
                fixed=fixed,
            )
            system = TeacherWorlds(training, n_trainings=n_trainings, seed=seed)
            for adversary in get_args(Adversary):
                findings.append(
                    audit_adversary(
                        adversary,
                        system,
                        mechanism,
                        queries,
                        labels,
                        name=name,
                        delta=delta,
                        trials=trials,
                        confidence=confidence,
                        rng=np.random.default_rng(seed),
                    )
                )
                tell("audits", len(findings), 2 * len(get_args(Adversary)))
    return tuple(findings)


def _rows(
    private: Path, *, label: str, drop: Sequence[str], n_teachers: int, n_questions: int, seed: int
) -> tuple[np.ndarray, np.ndarray, int, np.ndarray, np.ndarray]:
    """Return training rows, class indices, the number of classes, and questions with their true classes."""
    import numpy as np

    task = _data.tables(
        private, None, columns=_data.Columns(label=label, drop=drop), holdout=_ASKED, seed=seed
    )
    if len(task.y_private) < n_teachers:
        raise typer.BadParameter(f"--teachers must be at most the rows to learn from, {len(task.y_private)}")
    classes, y = np.unique(task.y_private, return_inverse=True)
    asked, truth = np.asarray(task.X_test), np.asarray(task.y_test)
    known = np.isin(truth, classes)
    queries = asked[known][:n_questions]
    labels = np.searchsorted(classes, truth[known][:n_questions])
    return np.asarray(task.X_private), y, len(classes), queries, labels
