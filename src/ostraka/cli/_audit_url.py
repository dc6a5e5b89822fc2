"""Audit of two deployments over HTTP: one with the target, one without."""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import typer

from ostraka.cli import _errors
from ostraka.cli._asking import Deployment
from ostraka.cli._progress import Stages

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from ostraka.audits.finding import Finding

__all__ = ["audit_urls"]

_PILOT = 10  # one answer in so many chooses the set of outcomes


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
) -> Finding:
    """Ask both deployments the same question until the verdict is clear."""
    if trials < 2 * _PILOT or batch < 1 or (rate is not None and not rate > 0):
        raise typer.BadParameter(f"--trials must be {2 * _PILOT} or more, --batch 1 or more, --rate above 0")
    if not 0 <= delta < 1 or not claimed >= 0:
        raise typer.BadParameter("--delta must be at least 0 and below 1, --claimed-epsilon at least 0")
    row, key = _row(question), os.environ.get(key_variable)
    settings: dict[str, Any] = {"key": key, "record": record, "batch": batch, "rate": rate}
    with _errors.usage("URL, NEIGHBOUR, --record"):
        worlds = [
            Deployment(address, row, world=world, **settings)
            for address, world in zip(urls, ("with", "without"), strict=True)
        ]
    try:
        return _asked(worlds, trials, claimed=claimed, delta=delta, wanted=wanted, confidence=confidence)
    finally:
        for world in worlds:
            world.close()


def _asked(
    worlds: list[Deployment], trials: int, *, claimed: float, delta: float, wanted: float, confidence: float
) -> Finding:
    from dataclasses import replace

    from ostraka.audits import audit_until

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
