"""``ostraka report``: write the page and the label of a run again, from its record."""

from __future__ import annotations

from pathlib import Path

import click

from ostraka.console import argument, option, verb


@verb()
def report(
    folder: Path = argument(..., "A run, as ostraka learn --out wrote it.", "FOLDER"),
    *,
    public: bool = option(False, "Without the owner's part, as report-public.html."),
    controller: str = option("", "Who is responsible for the data; stands on the page.", "NAME"),
    purpose: str = option("", "What the model is for; stands on the page.", "TEXT"),
    as_json: bool = option(False, "Print the privacy label on stdout.", name="--json"),
) -> None:
    """Make a run's report.html and privacy-label.json again, from its result.json alone.

    Example: ostraka report run --public
    """
    import json

    from ostraka import console
    from ostraka.report import folder as _folder
    from ostraka.report.page import privacy_label

    try:
        result = _folder.load(folder)
        page = _folder.write_reports(folder, result, public=public, controller=controller, purpose=purpose)
        label = json.dumps(privacy_label(result), indent=2)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        if console.raised_here(error.__traceback__):
            raise
        raise ValueError(
            f"{folder / _folder.RESULT} is no record as ostraka writes it ({type(error).__name__}): restore "
            "it from a copy, or run the command again that began it"
        ) from error
    click.echo(label if as_json else str(page))
