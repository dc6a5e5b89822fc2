"""Audits of answers in files, and of this library's own mechanisms."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import typer

from ostraka.cli import _errors
from ostraka.cli._progress import Stages

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from ostraka.audits.finding import Finding

__all__ = ["audit_files", "audit_votes", "make_mechanism"]


def audit_files(
    files: tuple[Path, Path],
    column: str | None,
    *,
    claimed: float,
    delta: float,
    confidence: float,
    group: int,
) -> Finding:
    """Compare two files of answers with a claim."""
    from ostraka.audits import audit_answers

    seen = [_column(file, column) for file in files]
    names = sorted({*seen[0], *seen[1]})
    if len(names) < 2:
        raise ValueError(
            "both files hold one and the same answer only: there is nothing to tell worlds apart by"
        )
    place = {name: number for number, name in enumerate(names)}
    counts = [_tally(labels, place) for labels in seen]
    with _errors.usage("the claim"):
        return audit_answers(
            *counts, claimed_epsilon=claimed, delta=delta, confidence=confidence, group=group
        )


def _column(file: Path, column: str | None) -> list[str]:
    from ostraka.cli import _table

    table = _table.read(file)
    if column is None:
        if len(table.names) != 1:
            raise typer.BadParameter(f"{file} has {len(table.names)} columns: say --column NAME")
        column = table.names[0]
    table.require(column, option="--column")
    return table.text(column)


def _tally(labels: list[str], place: dict[str, int]) -> np.ndarray:
    import numpy as np

    return np.bincount([place[label] for label in labels], minlength=len(place))


def make_mechanism(
    name: str,
    *,
    sigma: float | None,
    scale: float | None,
    at: float | None,
    screen: tuple[float, float] | None = None,
) -> Any:
    """Make the mechanism that the options describe."""
    from ostraka import Confident, GNMax, LNMax, Threshold

    if name == "confident":
        if screen is None or sigma is None:
            raise typer.BadParameter("confident also needs --screen AT SIGMA and --sigma")
        with _errors.usage(name):
            return Confident(screen=Threshold(at=screen[0], sigma=screen[1]), argmax=GNMax(sigma=sigma))
    needs: dict[str, tuple[Any, dict[str, float | None]]] = {
        "gnmax": (GNMax, {"sigma": sigma}),
        "lnmax": (LNMax, {"scale": scale}),
        "threshold": (Threshold, {"at": at, "sigma": sigma}),
    }
    if name not in needs:
        raise typer.BadParameter(f"the mechanism must be one of {', '.join(needs)}, confident, got {name!r}")
    kind, settings = needs[name]
    missing = [f"--{each}" for each, value in settings.items() if value is None]
    if missing:
        raise typer.BadParameter(f"{name} also needs {' and '.join(missing)}")
    with _errors.usage(name):
        return kind(**settings)


def audit_votes(
    mechanism: Any,
    votes: tuple[str, str],
    *,
    trials: int,
    confidence: float,
    method: Any,
    until: float | None,
    delta: float | None,
) -> Finding:
    """Audit a mechanism of this library on votes and their neighbour; ``until``: stop early."""
    from ostraka.audits import audit_mechanism
    from ostraka.audits.cuts import Method

    allowed = get_args(Method)
    if method not in allowed:
        raise typer.BadParameter(f"--method must be one of {', '.join(allowed)}, got {method!r}")
    worlds = [_numbers(votes[0], "--votes"), _numbers(votes[1], "--neighbour")]
    with _errors.usage("--votes, --neighbour"):
        found = audit_mechanism(
            mechanism, *worlds, trials=1000 if until else trials, confidence=confidence, method=method
        )
        if until is not None:
            found = _until(mechanism, worlds, found, trials=trials, until=until, confidence=confidence)
    with _errors.usage("--delta"):
        return found if delta is None else _illustrated(mechanism, found, delta)


def _until(
    mechanism: Any, worlds: list[list[float]], exact: Finding, *, trials: int, until: float, confidence: float
) -> Finding:
    """Sample until a share of the promise is seen to leak; ``exact`` holds the exact leakage."""
    from ostraka.audits import audit_until
    from ostraka.audits.claims import sample_outcomes

    with Stages({"answers": "answers in each world"}) as tell:
        found = audit_until(
            *(partial(_drawn, sample_outcomes, mechanism, world) for world in worlds),
            promise=mechanism.curve(),
            wanted=until,
            max_trials=trials,
            confidence=confidence,
            progress=lambda done, most: tell("answers", done, most),
        )
        tell("answers", found.trials, found.trials)
    known = {m.what: m.exact for m in exact.measures}
    measures = tuple(replace(m, exact=known[m.what]) for m in found.measures)
    return replace(found, name=exact.name, measures=measures)


def _drawn(sample: Any, mechanism: Any, world: list[float], n: int) -> np.ndarray:
    counts: np.ndarray = sample(mechanism, world, trials=n)
    return counts


def _illustrated(mechanism: Any, found: Finding, delta: float) -> Finding:
    """Add a line with the epsilon that each column would convert to if it were an upper bound."""
    from ostraka.audits.claims import AUDIT_ORDERS
    from ostraka.audits.finding import Measure
    from ostraka.curve import Curve

    def converted(values: list[float]) -> float:
        return Curve(AUDIT_ORDERS, tuple(values)).epsilon(delta)

    line = Measure(
        what=f"epsilon at delta {delta:g} (illustration, no lower bound)",
        upper=mechanism.curve().epsilon(delta),
        exact=converted([m.exact or 0.0 for m in found.measures]),
        lower=converted([m.lower for m in found.measures]),
    )
    return replace(found, measures=(*found.measures, line)) if found.measures else found


def _numbers(text: str, option: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{option} must be numbers with commas between, such as 14,12,10") from None
