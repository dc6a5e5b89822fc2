"""``ostraka ledger``: what was charged, and whether the file still holds together."""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003  (Typer reads it)
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ostraka.ledger import Entry, Ledger

__all__ = ["app"]

app = typer.Typer(help="Read a ledger: what was charged, and whether the file still holds together.")

_FILE = typer.Argument(metavar="FILE", help="A ledger, such as run/ledger.sqlite.", show_default=False)
_JSON = typer.Option("--json", help="Print JSON on stdout.")


@app.command()
def show(file: Annotated[Path, _FILE], *, as_json: Annotated[bool, _JSON] = False) -> None:
    """Print every charge and what is left. All of it is public."""
    with _opened(file) as ledger:
        entries = ledger.entries()
        if as_json:
            typer.echo(
                json.dumps({**_totals(ledger), "entries": [_plain(entry) for entry in entries]}, indent=2)
            )
            return
        _print(ledger, entries)


@app.command()
def verify(file: Annotated[Path, _FILE], *, as_json: Annotated[bool, _JSON] = False) -> None:
    """Check every digest, total and answer. Exit code 1 if something does not hold together."""
    with _opened(file) as ledger:  # opening verifies
        totals = _totals(ledger)
    if as_json:
        typer.echo(json.dumps({"intact": True, **totals}, indent=2))
    else:
        typer.echo(f"intact: {totals['charges']} charges, head {totals['head']}")


def _opened(file: Path) -> Ledger:
    from ostraka.ledger import Ledger, LedgerError

    if not file.is_file():
        raise LedgerError(f"there is no ledger at {file}: type the path of a file, such as run/ledger.sqlite")
    return Ledger(file)


def _totals(ledger: Ledger) -> dict[str, object]:
    return {
        "epsilon_spent": ledger.epsilon(),
        "epsilon_left": ledger.left(),
        "budget": {"epsilon": ledger.budget.epsilon, "delta": ledger.budget.delta},
        "protects": ledger.protects,
        "simulation": ledger.simulation,
        "charges": len(ledger.entries()),
        "head": ledger.head,
    }


def _plain(entry: Entry) -> dict[str, object]:
    return {
        "seq": entry.seq,
        "key": entry.key,
        "mechanism": entry.mechanism,
        "uses": entry.uses,
        "epsilon_after": entry.epsilon_after,
        "simulation": entry.simulation,
    }


def _print(ledger: Ledger, entries: tuple[Entry, ...]) -> None:
    from rich.console import Console
    from rich.table import Table

    from ostraka.report import at_most

    table = Table("entry", "key", "mechanism", "uses", "epsilon so far", box=None, header_style="")
    for entry in entries:
        table.add_row(
            str(entry.seq), entry.key or "", entry.mechanism, f"{entry.uses:,}", at_most(entry.epsilon_after)
        )
    console = Console(highlight=False, markup=False)
    console.print(table)
    unit = f"for one {ledger.protects}" if ledger.protects else "nothing is charged yet"
    budget = f"{ledger.budget.epsilon:g} at delta {ledger.budget.delta:g}"
    console.print(f"spent {at_most(ledger.epsilon())} of epsilon {budget}, {unit}")
    if ledger.simulation:
        console.print("simulation, no privacy: noise came from a generator that somebody could repeat")
