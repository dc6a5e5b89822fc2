"""``ostraka report``: write the page and the label of a run again, from its record."""

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
    controller: Annotated[
        str, typer.Option(help="Who is responsible for the data; stands on the page.", metavar="NAME")
    ] = "",
    purpose: Annotated[
        str, typer.Option(help="What the model is for; stands on the page.", metavar="TEXT")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the privacy label on stdout.")] = False,
) -> None:
    """Make a run's report.html and privacy-label.json again, from its result.json alone."""
    import json

    from ostraka.cli import _folder
    from ostraka.report import privacy_label

    result = _folder.load(folder)
    page = _folder.write_reports(folder, result, public=public, controller=controller, purpose=purpose)
    typer.echo(json.dumps(privacy_label(result), indent=2) if as_json else str(page))
