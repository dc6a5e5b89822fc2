"""``ostraka report``: the pages and the label again, from the record of a run."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (Typer reads it)
from typing import Annotated

import typer

__all__ = ["report"]


def report(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="A run, as ostraka learn --out wrote it.", show_default=False),
    ],
    *,
    public: Annotated[
        bool, typer.Option("--public", help="Without the owner's part, as report-public.html.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the privacy label on stdout.")] = False,
) -> None:
    """Make a run's report.html and privacy-label.json again, from its result.json alone."""
    import json

    from ostraka.cli import _folder
    from ostraka.report import privacy_label

    result = _folder.load(folder)
    page = _folder.write_reports(folder, result, public=public)
    typer.echo(json.dumps(privacy_label(result), indent=2) if as_json else str(page))
