"""``ostraka ledger``: show, verify, grant, export, anchor and adopt a ledger, or be its witness."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ostraka import console
from ostraka.console import JSON, Group, argument, option, verb

if TYPE_CHECKING:
    from ostraka.core.ledger.chain import Account, Entry
    from ostraka.core.ledger.ledger import Copied, Ledger
    from ostraka.core.ledger.witness import Witness

app = Group(
    "List what was released from tables; read and verify a ledger, and set what clients may spend.",
    default="tables",
)

_FILE = argument(..., "A ledger: a file, such as run/ledger.sqlite, or postgresql://…", "FILE")
_SECRET = option(None, "The secret it was begun with; or OSTRAKA_LEDGER_SECRET, in hexadecimal.", "FILE")
_ANCHOR = option(None, "Its anchor: an older copy is then refused.", "FILE")
_LAST = option(100, "The newest entries only; 0: all.", "N", min=0)
_WITNESS = option(
    None, "A witness of it; once for each. Their secret is OSTRAKA_WITNESS_SECRET, in hexadecimal.", "ADDRESS"
)


@verb(app)
def tables(
    folder: Path = argument(Path("ostraka-ledgers"), "With the ledgers of tables.", "FOLDER"),
    *,
    as_json: bool = JSON,
) -> None:
    """List the tables that something was released from, and what all of it cost. For their owner.

    Example: ostraka ledger tables ostraka-ledgers
    """
    from ostraka.data.budgets import Tables
    from ostraka.report.page import of_table

    records = [
        {"table": account.name, "number": account.number, "unit": unit, **account.spent(unit).to_dict()}
        for account in Tables(folder).accounts()
        for unit in account.units()
    ]
    if as_json:
        click.echo(json.dumps(records, indent=2))
        return
    if not records:
        click.echo(f"there are no ledgers of tables in {folder}: 'ostraka learn' keeps them beside the data")
    for record in records:
        click.echo(f"{record['table']}: one {record['unit']}: {of_table(record)}")


@verb(app)
def show(
    file: str = _FILE,
    *,
    last: int = _LAST,
    secret: Path | None = _SECRET,
    as_json: bool = JSON,
) -> None:
    """Print the newest charges and grants, and the budget left. All of it is public.

    Checks what is printed and the newest totals; 'ostraka ledger verify' checks everything.

    Example: ostraka ledger show run/ledger.sqlite --last 20
    """
    from ostraka.report.page import at_most

    with _opened(file, secret, read_only=True, verify=False) as ledger:
        entries = ledger.entries(after=max(0, ledger.count() - last) if last else 0)
        if as_json:
            accounts = [_account(account) for account in ledger.accounts()]
            record = {
                **_totals(ledger),
                "accounts": accounts,
                "entries": [_plain(entry) for entry in entries],
            }
            click.echo(json.dumps(record, indent=2))
            return
        rows = []
        for entry in entries:
            day = "" if entry.at is None else f"{datetime.fromtimestamp(entry.at, UTC):%Y-%m-%d}"
            what = entry.mechanism if entry.cap is None else f"may spend {entry.cap:g}"
            cells = (str(entry.seq), day, entry.account or "", entry.key or "", what)
            rows.append((*cells, f"{entry.uses:,}", at_most(entry.epsilon_after)))
        if older := ledger.count() - len(entries):
            click.echo(
                f"{older:,} older entries are not printed: --last 0 prints all, ostraka ledger export too"
            )
        console.table(("entry", "day", "client", "key", "what", "uses", "epsilon so far"), rows)
        clients = [
            (
                account.name,
                f"{account.cap:g}",
                at_most(account.spent),
                f"{math.floor(account.left * 1e4) / 1e4:g}",
            )
            for account in ledger.accounts()
        ]
        if clients:
            console.table(("client", "may spend", "spent", "left"), clients)
        unit = f"for one {ledger.unit}" if ledger.unit else "nothing is charged yet"
        budget = f"{ledger.budget.epsilon:g} at delta {ledger.budget.delta:g}"
        click.echo(f"spent {at_most(ledger.epsilon())} of epsilon {budget}, {unit}")
        outlook = ledger.outlook()
        lasts = "so it lasts"
        if outlook.seconds_to_empty is not None:
            lasts = f"which the budget pays for {outlook.seconds_to_empty / 86_400:,.1f} days more"
        click.echo(
            f"left: {outlook.answers_left:,} more of {outlook.mechanism}; {outlook.in_a_day:,} charged in "
            f"the last day, {lasts}"
            if outlook.mechanism
            else "no answer was charged yet"
        )
        if ledger.simulation:
            click.echo("simulation, no privacy: noise came from a reproducible generator")


@verb(app)
def verify(
    file: str = _FILE,
    *,
    secret: Path | None = _SECRET,
    anchor: Path | None = _ANCHOR,
    as_json: bool = JSON,
) -> None:
    """Check every digest, total and answer. Exit code 1 if a check fails.

    Example: ostraka ledger verify run/ledger.sqlite
    """
    if anchor is not None and not anchor.is_file():
        raise click.UsageError(f"--anchor: there is no anchor at {anchor}")
    with _opened(file, secret, anchor=anchor, read_only=True) as ledger:
        if anchor is not None:  # else opening has read everything
            ledger.verify()
        totals = _totals(ledger)
    words = f"intact: {totals['charges']} charges and {totals['grants']} grants, head {totals['head']}"
    console.say({"intact": True, "anchored": anchor is not None, **totals}, words, as_json=as_json)


@verb(app)
def grant(
    file: str = _FILE,
    account: str = argument(..., "A client.", "ACCOUNT"),
    *,
    epsilon: float = option(..., "All it may spend.", "NATS"),
    by: str = option("", "Who decides that; stands in the chain.", "NAME"),
    secret: Path | None = _SECRET,
    anchor: Path | None = _ANCHOR,
    witness: list[str] | None = _WITNESS,
    as_json: bool = JSON,
) -> None:
    """Set a client's cap at the ledger's delta, as an entry of the chain.

    Example: ostraka ledger grant run/ledger.sqlite ward-3 --epsilon 1
    """
    with _opened(file, secret, anchor=anchor, witnesses=_witnesses(witness)) as ledger:
        with console.usage():
            seq = ledger.grant(account, budget_epsilon=epsilon, by=by)
        (granted,) = (_account(entry) for entry in ledger.accounts() if entry.name == account)
    words = f"entry {seq}: {account} may spend epsilon {epsilon:g} in all"
    console.say({"seq": seq, **granted}, words, as_json=as_json)


@verb(app)
def export(
    file: str = _FILE,
    *,
    since: int = option(0, "Only what came after this entry.", "SEQ", min=0),
    secret: Path | None = _SECRET,
    as_json: bool = JSON,
) -> None:
    """Print every entry in order as one line of JSON, with its head. All of it is public.

    Example: ostraka ledger export run/ledger.sqlite --since 100
    """
    with _opened(file, secret, read_only=True) as ledger:
        entries = (json.dumps(_plain(entry)) for entry in ledger.scan(after=since))
        separator = "["
        for line in entries:  # one at a time: a ledger may be larger than the memory
            click.echo(f"{separator}{line}" if as_json else line, nl=not as_json)
            separator = ",\n"
        if as_json:
            click.echo("[]" if separator == "[" else "]")


@verb(app)
def anchor(
    file: str = _FILE,
    path: Path = argument(..., "A file that does not exist yet.", "ANCHOR"),
    *,
    secret: Path | None = _SECRET,
    as_json: bool = JSON,
) -> None:
    """Create a new anchor for a copy that you know to be the newest.

    Example: ostraka ledger anchor run/ledger.sqlite ledger.anchor
    """
    with _opened(file, secret) as ledger:
        ledger.anchor(path)
        record = {"anchor": str(path), "entries": ledger.count(), "head": ledger.head}
    console.say(record, f"{path} records head {record['head']}", as_json=as_json)


@verb(app)
def adopt(
    file: str = _FILE,
    *,
    by: str = option(..., "Who decides that; stands in the chain.", "NAME"),
    lost: int | None = option(None, "Answers given that are not on record here.", "N"),
    sigma: float | None = option(None, "The noise of these answers.", "VOTES"),
    screen: tuple[float, float] | None = option(None, "Their screen: threshold and noise.", "VOTES VOTES"),
    secret: Path | None = _SECRET,
    witness: list[str] | None = _WITNESS,
    as_json: bool = JSON,
) -> None:
    """Go on with a promoted standby or a restored copy, and charge what it lacks. First stop all services.

    Witnesses know what it lacks; without them say it with --lost, 0 where nothing is.

    Example: ostraka ledger adopt run/ledger.sqlite --by ada --lost 0
    """
    from ostraka.core.mechanisms.argmax import GNMax
    from ostraka.core.mechanisms.screen import Confident, Threshold

    if (lost is None) == (witness is None):
        raise click.UsageError("give either --lost, or --witness for each witness")
    if bool(lost) != (sigma is not None) or (screen and sigma is None):
        raise click.UsageError("give --sigma, and --screen if there was one, where any were lost")
    reserve: GNMax | Confident | None = None if sigma is None else GNMax(sigma=sigma)
    if sigma is not None and screen is not None:
        at, noise = screen
        reserve = Confident(screen=Threshold(at=at, sigma=noise), argmax=GNMax(sigma=sigma))
    with _opened(file, secret, read_only=True, witnesses=_witnesses(witness)) as ledger:
        before = ledger.epsilon()
        seq = ledger.adopt(by=by, lost=lost or 0, reserve=reserve)
        charged = ledger.epsilon() - before
        remainder, head = ledger.left(), ledger.head
    words = (
        f"entry {seq}: adopted, {'all' if lost is None else lost} lost answers charged: epsilon "
        f"{charged:.4g}, {remainder:.4g} left. Make new anchors with ostraka ledger anchor"
    )
    record = {"seq": seq, "lost": lost, "charged": charged, "epsilon_left": remainder, "head": head}
    console.say(record, words, as_json=as_json)


@verb(app)
def witness(
    folder: Path = argument(..., "Where it remembers; it must exist.", "FOLDER"),
    *,
    port: int = option(8300, "0: any free one.", "N", min=0, max=65535),
    host: str = option("127.0.0.1", "Address to listen on.", "ADDRESS"),
    as_json: bool = JSON,
) -> None:
    """Remember the newest entry of ledgers elsewhere, so that they cannot go back unseen. Prints its address.

    Run it on another machine than the database and the other witnesses. OSTRAKA_WITNESS_SECRET, in
    hexadecimal, is the owner's: messages are sealed with it both ways.

    Example: ostraka ledger witness remembered --port 8300
    """
    from ostraka.secure.wire import PartyServer
    from ostraka.secure.witness import Register

    with contextlib.closing(Register(folder / "witness.sqlite", _witness_secret())) as register:
        console.serve(PartyServer(register, port=port, host=host), as_json=as_json)


@verb(app)
def backup(
    file: str = _FILE,
    copy: Path = argument(..., "A new file.", "COPY"),
    *,
    secret: Path | None = _SECRET,
    as_json: bool = JSON,
) -> None:
    """Copy a ledger while it is charged, verify the copy, and write an anchor beside it.

    Example: ostraka ledger backup run/ledger.sqlite copy.sqlite
    """
    from ostraka.core.ledger.ledger import back_up

    _done(copy, back_up(file.removeprefix("sqlite:///"), copy, secret=_secret(secret)), as_json=as_json)


@verb(app)
def restore(
    copy: Path = argument(..., "A backup.", "COPY"),
    file: Path = argument(..., "Where no file is.", "FILE"),
    *,
    anchor: Path = option(..., "Of the lost ledger; in a rehearsal, COPY.anchor.", "FILE"),
    secret: Path | None = _SECRET,
    as_json: bool = JSON,
) -> None:
    """Verify a backup and put it in place, unless its anchor says that charges are missing from it.

    Example: ostraka ledger restore copy.sqlite run/ledger.sqlite --anchor copy.sqlite.anchor
    """
    from ostraka.core.ledger.ledger import restore as put_back

    _done(file, put_back(copy, file, secret=_secret(secret), anchor=anchor), as_json=as_json)


def _done(path: Path, copied: Copied, *, as_json: bool) -> None:
    record = {"file": str(path), "entries": copied.entries, "head": copied.head}
    words = f"{path}: intact, {copied.entries} entries, head {copied.head}"
    console.say(record, words, as_json=as_json)


def _opened(file: str, secret: Path | None, **options: Any) -> Ledger:
    from ostraka.core.ledger.budget import LedgerError
    from ostraka.core.ledger.ledger import Ledger

    path = file.removeprefix("sqlite:///")
    if "://" not in path and not Path(path).is_file():
        raise LedgerError(f"there is no ledger at {file}: type the path of a file, such as run/ledger.sqlite")
    return Ledger(file, secret=_secret(secret), **options)


def _witnesses(addresses: list[str] | None) -> list[Witness]:
    from ostraka.secure.witness import witness_at

    if not addresses:
        return []
    secret = _witness_secret()
    return [witness_at(address, secret) for address in addresses]


def _witness_secret() -> bytes:
    secret = _secret_in("OSTRAKA_WITNESS_SECRET")
    if secret is None:
        raise click.UsageError("OSTRAKA_WITNESS_SECRET must be 64 or more hexadecimal digits")
    return secret


def _secret_in(variable: str) -> bytes | None:
    from ostraka.serve.keys import secret_in

    with console.usage():
        return secret_in(os.environ, variable)


def _secret(file: Path | None) -> bytes | None:
    if file is not None:
        return file.read_bytes()
    return _secret_in("OSTRAKA_LEDGER_SECRET")


def _totals(ledger: Ledger) -> dict[str, object]:
    outlook, kinds = ledger.outlook(), ledger.kinds()
    return {
        "answers_left": outlook.answers_left,
        "charged_in_a_day": outlook.in_a_day,
        "seconds_to_empty": outlook.seconds_to_empty,
        "epsilon_spent": ledger.epsilon(),
        "epsilon_left": ledger.left(),
        "budget": {"epsilon": ledger.budget.epsilon, "delta": ledger.budget.delta},
        "unit": ledger.unit,
        "simulation": ledger.simulation,
        "charges": kinds["charge"],
        "grants": kinds["grant"],
        "head": ledger.head,
    }


def _account(account: Account) -> dict[str, object]:
    return {"account": account.name, "cap": account.cap, "spent": account.spent, "left": account.left}


def _plain(entry: Entry) -> dict[str, object]:
    names = (field.name for field in dataclasses.fields(entry))
    return {name: getattr(entry, name) for name in names if name != "curve"}
