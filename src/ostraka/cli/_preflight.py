"""What can be refused before anything heavy is imported or read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ostraka.cli import _folder

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["require_sensible"]


def require_sensible(
    private: Path | None,
    public: Path | None,
    *,
    label: str | None,
    person: str | None,
    holdout: float | None,
    out: Path,
) -> None:
    """Check what the options of ``learn`` say together, and that the files are there; say what is read.

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
