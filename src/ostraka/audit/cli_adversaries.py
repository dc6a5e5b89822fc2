"""Audits by adversaries against teachers of a user's own data, in a model of their training.

Audit of two deployments over HTTP: one with the target, one without.
"""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import typer

from ostraka import console
from ostraka.console import Stages
from ostraka.data import task as _data
from ostraka.secure.wire import Deployment
from ostraka.voters.named import Teacher

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np

    from ostraka.audit.bound import Finding

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

    from ostraka.audit.adversaries import Adversary, audit_adversary
    from ostraka.audit.training import Retraining, TeacherWorlds

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


_PILOT = 10  # one answer in so many chooses the set of outcomes
_OTHER_PARTITIONS = (
    "These answers say nothing of one target unless both deployments dealt all other rows to the same "
    "teachers, with the same seeds: honest deployments with partitions of their own differ by many ballots. "
    "Say --same-partition if they did. Of the two deployments as they are:"
)


def audit_urls(
    urls: tuple[str, str],
    question: Path,
    *,
    claimed: float,
    delta: float,
    trials: int,
    wanted: float,
    confidence: float,
    key_variable: str,
    record: Path | None,
    batch: int,
    rate: float | None,
    same_partition: bool,
) -> Finding:
    """Ask both deployments the same question until the verdict is clear."""
    if trials < 2 * _PILOT or batch < 1 or (rate is not None and not rate > 0):
        raise typer.BadParameter(f"--trials must be {2 * _PILOT} or more, --batch 1 or more, --rate above 0")
    if not 0 <= delta < 1 or not claimed >= 0:
        raise typer.BadParameter("--delta must be at least 0 and below 1, --claimed-epsilon at least 0")
    row, key = _row(question), os.environ.get(key_variable)
    settings: dict[str, Any] = {"key": key, "record": record, "batch": batch, "rate": rate}
    with console.usage("URL, NEIGHBOUR, --record"):
        worlds = [
            Deployment(address, row, world=world, **settings)
            for address, world in zip(urls, ("with", "without"), strict=True)
        ]
    try:
        finding = _asked(worlds, trials, claimed=claimed, delta=delta, wanted=wanted, confidence=confidence)
    finally:
        for world in worlds:
            world.close()
    if same_partition or finding.verdict == "inconclusive":
        return finding
    return replace(finding, verdict="inconclusive", sentence=f"{_OTHER_PARTITIONS} {finding.sentence}")


def _asked(
    worlds: list[Deployment], trials: int, *, claimed: float, delta: float, wanted: float, confidence: float
) -> Finding:
    from ostraka.audit.claims import audit_until

    n_pilot = trials // _PILOT
    pilot = [world.ask(n_pilot) for world in worlds]
    # what was not seen in the pilot is one outcome, the last: the outcomes are fixed before any trial
    names = sorted({*pilot[0], *pilot[1]})
    place = {name: number for number, name in enumerate(names)}

    def tally(answers: list[str]) -> np.ndarray:
        import numpy as np

        found = Counter(place.get(answer, len(names)) for answer in answers)
        return np.array([found[number] for number in range(len(names) + 1)])

    with Stages({"answers": "answers of each deployment"}) as tell:
        found = audit_until(
            lambda n: tally(worlds[0].ask(n)),
            lambda n: tally(worlds[1].ask(n)),
            promise=claimed,
            delta=delta,
            wanted=wanted,
            max_trials=trials - n_pilot,
            first=min(100, trials - n_pilot),
            confidence=confidence,
            pilot=(tally(pilot[0]), tally(pilot[1])) if all(len(each) >= 2 for each in pilot) else None,
            progress=lambda done, most: tell("answers", done, most),
        )
        tell("answers", found.trials, found.trials)
    spent = [
        f"The deployment {w} the target: {world.refused}."
        for w, world in zip(("with", "without"), worlds, strict=True)
        if world.refused
    ]
    return replace(
        found, name=f"two deployments, {len(names)} answers seen", note=" ".join([found.note, *spent])
    )


def _row(file: Path) -> list[Any]:
    """Read one row of features: a JSON list (or an object of features), or a CSV file of one row."""
    text = file.read_text(encoding="utf-8")
    if file.suffix.lower() == ".json":
        try:
            told = json.loads(text)
        except ValueError:
            raise ValueError(f"{file} is no JSON") from None
        if isinstance(told, dict):
            told = told.get("row", list(told.values()))
        if not isinstance(told, list) or not told or any(isinstance(each, list | dict) for each in told):
            raise ValueError(f"{file} must hold one row: a list of numbers or text")
        return told
    lines = [line for line in csv.reader(text.splitlines()) if line]
    if not 1 <= len(lines) <= 2:
        raise ValueError(f"{file} must hold one row, with or without a line of names above it")
    return [_number(word) for word in lines[-1]]


def _number(word: str) -> float | str:
    try:
        return float(word)
    except ValueError:
        return word
