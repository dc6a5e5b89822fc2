"""Checks of options that run before heavy imports and before any file is read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import typer

from ostraka.cli import _folder
from ostraka.cli._models import Way

if TYPE_CHECKING:
    from pathlib import Path

    from ostraka.pate._counts import CountsPlan
    from ostraka.pate.plan import Plan

__all__ = ["require_hope", "require_sensible", "require_teachers"]

_ANSWERS_A_CLASS = 2  # for each class, below which no model was better than a guess
_SIGNAL = 20  # units of a class, for each unit that the noise hides: below, no model was better than a guess


def require_sensible(
    private: Path | None,
    public: Path | None,
    *,
    label: str | None,
    person: str | None,
    holdout: float | None,
    out: Path,
) -> None:
    """Check the combination of ``learn``'s options and that the files exist; print the files that are read.

    Raises
    ------
    typer.BadParameter
        Options that contradict each other, or a folder that holds a finished run.
    OSError
        A file cannot be opened.
    """
    if (out / _folder.RESULT).exists():
        raise _folder.finished(out)
    if private is None:
        if label or public or person or holdout is not None:
            raise typer.BadParameter(
                "type the file of private rows first: ostraka learn FILE --label COLUMN …"
            )
        typer.echo("reading scikit-learn's digits", err=True)
        return
    if label is None:
        raise typer.BadParameter(f"type --label and the column of {private} to learn")
    for path in (private, public):
        if path is not None and not (path is private and path.is_dir()):
            path.open("rb").close()
    typer.echo(f"reading {private}" + (f" and {public}" if public is not None else ""), err=True)


def require_teachers(folder: Path, *, way: Way, holdout: float | None) -> None:
    """Refuse options which need all rows in this process: those of a Parquet folder stay in its files.

    Raises
    ------
    typer.BadParameter
        The rows would not be learned by teachers alone, or some were to be held out.
    """
    if holdout is not None:
        raise typer.BadParameter(
            f"the rows of {folder} stay in their files: type --public FILE instead of --holdout"
        )
    if way is not Way.ARGMAX:
        raise typer.BadParameter(
            f"the rows of {folder} stay in their files, where teachers learn from them: type --teachers N "
            "or --way argmax; for noisy counts, type one file"
        )


def require_hope(
    plan: Plan | CountsPlan, *, n_units: int, n_classes: int, n_public: int, unit: str, epsilon: float
) -> None:
    """Refuse a run whose noise would drown the data; public numbers alone decide, before any charge.

    Raises
    ------
    ValueError
        Noise on counts is too large for so few units, and the message says how many would do; or the budget
        pays for too few answers, and the message says for how many.
    """
    from ostraka.pate._counts import CountsPlan

    if not isinstance(plan, CountsPlan):
        _require_answers(plan, n_classes=n_classes, n_public=n_public, epsilon=epsilon)
        return
    noise = plan.mechanism.sigma / plan.mechanism.l2 / math.sqrt(plan.n_answers)  # in the mean of all tables
    enough = math.ceil(_SIGNAL * noise * n_classes)
    if n_units < enough:
        many = {"row": "rows", "person": "people"}[unit]
        other = "--way counts" if plan.way == "rounds" else "--answers N to ask all the same"
        raise ValueError(
            f"{n_units:,} {many} are too few for {n_classes} classes at epsilon={epsilon:g}: noise that "
            f"hides one of them hides what all of them say. Nothing was spent. Bring {enough:,} {many}, "
            f"or type a larger --epsilon, or {other}"
        )


def _require_answers(plan: Plan, *, n_classes: int, n_public: int, epsilon: float) -> None:
    """Refuse a run with too few answers to learn from."""
    enough = _ANSWERS_A_CLASS * n_classes
    if plan.n_answers >= enough:
        return
    if n_public < enough:
        raise ValueError(
            f"{n_public:,} public rows are too few to ask: {n_classes} classes need {enough:,} answers. "
            f"Nothing was spent. Bring {enough:,} public rows, or type --answers N to ask all the same"
        )
    raise ValueError(
        f"epsilon={epsilon:g} pays for {plan.n_answers:,} answers of {plan.n_teachers:,} teachers, too few "
        f"for {n_classes} classes, which need {enough:,}. Nothing was spent. Type a larger --epsilon, or "
        "--answers N to ask all the same. More teachers (--teachers N) are heard through more noise, "
        "so that an answer of theirs costs less"
    )
