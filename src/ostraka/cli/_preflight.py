"""Checks of options that run before heavy imports and before any file is read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import typer

from ostraka.cli import _folder

if TYPE_CHECKING:
    from pathlib import Path

    from ostraka.pate._counts import CountsPlan
    from ostraka.pate.plan import Plan

__all__ = ["require_hope", "require_sensible"]

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
        if path is not None:
            path.open("rb").close()
    typer.echo(f"reading {private}" + (f" and {public}" if public is not None else ""), err=True)


def require_hope(plan: Plan | CountsPlan, *, n_units: int, n_classes: int, unit: str, epsilon: float) -> None:
    """Refuse a run whose noise would drown the data; public numbers alone decide, before any charge.

    Raises
    ------
    ValueError
        Too few units for this epsilon; the message says how many would do.
    """
    from ostraka.pate._counts import CountsPlan

    if isinstance(plan, CountsPlan):
        noise = plan.mechanism.sigma / plan.mechanism.l2
        needed = math.ceil(_SIGNAL * noise * n_classes)
        hopeless = n_units < needed
    else:
        hopeless = plan.n_answers < 2 * n_classes
        needed = 100 * n_classes
    if hopeless:
        many = {"row": "rows", "person": "people"}[unit]
        enough = max(needed, n_units + 1)
        raise ValueError(
            f"{n_units:,} {many} are too few for {n_classes} classes at epsilon={epsilon:g}: noise that "
            f"hides one of them hides what all of them say. Nothing was spent. Bring {enough:,} {many}, "
            "or type a larger --epsilon, or --answers N to ask all the same"
        )
