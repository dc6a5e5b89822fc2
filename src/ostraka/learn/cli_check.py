"""``ostraka check``: look at a table before anything is spent."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003  (a verb reads the types of its options)
from typing import TYPE_CHECKING

import click

from ostraka.console import argument, option, require_new, verb
from ostraka.core import imports
from ostraka.learn.cli import show_findings, wrapped
from ostraka.learn.options import ReadOptions

if TYPE_CHECKING:
    from ostraka.learn.check import Check


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions(ReadOptions):
    """Options of ``ostraka check``."""

    private: Path = argument(..., "Private rows: CSV, Excel or Parquet.", "FILE")
    epsilon: float | None = option(None, "Budget. Default: 1.", "NATS")
    delta: float | None = option(None, "Default: 1e-5 or 0.1 / units, the smaller.", "P")
    report: Path | None = option(None, "Also write a page with pictures, for the owner alone.", "FILE")
    as_json: bool = option(False, "Print JSON, with cells of the table: for the owner alone.", name="--json")


@verb()
def check(given: CheckOptions) -> None:
    """Show all that is wrong or doubtful in a table, and the command to type. Spends nothing.

    Example: ostraka check private.csv --label ill
    """
    given.require_in_range(epsilon=given.epsilon, delta=given.delta)
    for path in (given.private, given.public):
        if path is not None and not path.is_dir():
            path.open("rb").close()
    require_new(given.report, option="--report")
    if given.public is not None and given.holdout is not None:
        raise click.UsageError("--public and --holdout exclude each other: public rows come from one place")
    columns = given.columns()
    with imports.uncollected():
        from ostraka.core import files
        from ostraka.learn.check import check as look
    found = look(
        given.private,
        public=given.public,
        epsilon=given.epsilon,
        delta=given.delta,
        holdout=given.holdout,
        columns=columns,
    )
    if given.report is not None:
        files.write(given.report, found.to_html(), private=True)
    if given.as_json:
        click.echo(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
    else:
        _print(found, given.private)
    if given.report is not None:
        click.echo(f"the same with pictures, for the owner only: {given.report}", err=True)


def _print(found: Check, path: Path) -> None:
    from ostraka.learn.check import OWNER, candidates

    wrapped(f"{path}: {found.n_rows:,} rows, {found.n_columns:,} columns")
    wrapped(OWNER)
    for heading, some in found.groups():
        click.echo(f"\n{heading}")
        show_findings(some, cells=True)
    if found.plan:
        click.echo("\nWhat the command below would do")
        margin = 4 + max(len(name) for name, _ in found.plan)
        for name, value in found.plan:
            wrapped(f"  {name:<{margin - 2}}{value}", indent=margin)
    if not found.command:
        wrapped("\nMend the file as said above, then check it again.")
        return
    if "--label COLUMN" in found.command and (few := candidates(found)):
        wrapped(f"\nColumns that may be meant to be learned: {', '.join(few)}. Type --label with one.")
    click.echo(f"\nType, if you agree:\n{found.command}")
