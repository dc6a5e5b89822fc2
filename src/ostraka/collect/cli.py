"""``ostraka collect``: private statistics of many people, planned, collected and demonstrated."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ostraka import console
from ostraka.console import argument, option, options

if TYPE_CHECKING:
    from ostraka.collect.task import Task

app = typer.Typer(help="Private statistics: sums of many people's values that nobody can take apart.")

_TASK = typer.Argument(metavar="TASK", help="The task's JSON file, from 'plan --out'.", show_default=False)
_KEY = typer.Option("--identity", help="File of this role's secret; made if it is missing.", metavar="FILE")
_FOLDER = typer.Option("--folder", help="Where this role keeps what must survive a crash.", metavar="FOLDER")
_JSON = typer.Option("--json", help="Print JSON on stdout.")
_PORT = typer.Option("--port", help="0: any free one.", min=0, max=65535)
_HOST = typer.Option("--host", help="Address to listen at. Beyond this machine, put TLS in front.")


@app.command()
def key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Made if it is missing.", show_default=False)],
    *,
    keeper: Annotated[bool, typer.Option("--keeper", help="The key of a keeper.")] = False,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Print the public key of a tally, an enrolment or a keeper.

    Example: ostraka collect key tally.key
    """
    from ostraka.collect.keeper import Keeper
    from ostraka.secure.keys import Identity

    identity = Identity.kept_at(file)
    public_key = Keeper.key(identity) if keeper else identity.public_key
    console.say({"public_key": public_key}, public_key, as_json=as_json)


class Trust(StrEnum):
    """Who hides the values of clients: keepers, of which some are honest, or the other clients."""

    KEEPERS = "keepers"
    CLIENTS = "clients"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Options of ``ostraka collect plan``."""

    encoding: str = argument(
        ...,
        "tree:LOW:HIGH, histogram:LOW:HIGH:CELLS, grid:X0:X1:Y0:Y1:NxM, pairs:ITEMS:AT_MOST, "
        "count-min:WIDTH:DEPTH:KEY or count-sketch:WIDTH:DEPTH:KEY.",
        "ENCODING",
        show_default=False,
    )
    clients: int = option(..., "How many are expected.")
    epsilon: float = option(..., "What one release may cost.")
    delta: float = option(1e-06, "The delta of that.")
    trust: Trust = option(Trust.KEEPERS, "Who hides the values, and adds the noise.")
    n_keepers: int = option(3, "How many keepers, if none are named.", min=1)
    honest: int = option(1, "Keepers whose noise alone must suffice.", min=1)
    colluding: float = option(0.1, "Share of clients that may collude.", min=0, max=1)
    missing: float = option(0.1, "Share of clients that may vanish.", min=0, max=1)
    items: int | None = option(None, "Items there are, to compare a sketch with all of them.", min=1)
    least: int | None = option(None, "Fewer clients are refused. Default: 80 %.", min=1)
    tally: str | None = option(None, "The tally's public key, to write a task.")
    keeper: list[str] | None = option(None, "A keeper's public key; several times.")
    out: Path | None = option(None, "Write the task here.", "FILE")
    as_json: bool = option(False, "Print JSON on stdout.", name="--json")


@app.command()
@options(PlanOptions)
def plan(wanted: PlanOptions) -> None:
    """Predict noise, bytes and seconds; with --tally and --out, write the task.

    Example: ostraka collect plan histogram:0:100:10 --clients 1000 --epsilon 1
    """
    from ostraka.collect.plan import parsed
    from ostraka.collect.plan import plan as planned

    with console.usage():
        chosen = parsed(wanted.encoding)
        prediction = planned(
            chosen,
            n_clients=wanted.clients,
            epsilon=wanted.epsilon,
            delta=wanted.delta,
            trust=wanted.trust.value,
            n_keepers=len(wanted.keeper) if wanted.keeper else wanted.n_keepers,
            honest=wanted.honest,
            colluding=wanted.colluding,
            missing=wanted.missing,
            items=wanted.items,
        )
        if wanted.out is not None:
            prediction["task"] = _write_task(wanted, chosen, prediction["sigma"], wanted.out)
    if wanted.as_json:
        typer.echo(json.dumps(prediction))
        return
    for name, value in prediction.items():
        typer.echo(f"{name}: {value:,.4g}" if isinstance(value, float) else f"{name}: {value}")


def _write_task(wanted: PlanOptions, encoding: Any, sigma: float, out: Path) -> str:
    """Write the task that was planned, and return its hash."""
    from ostraka.collect.task import Task

    console.require_new(out, option="--out")
    if wanted.trust is Trust.CLIENTS and wanted.keeper:
        raise typer.BadParameter(
            "--trust clients has no keepers: leave out --keeper, or type --trust keepers"
        )
    if wanted.trust is Trust.KEEPERS and not wanted.keeper:
        raise typer.BadParameter(
            "--trust keepers needs the public key of each: --keeper KEY, several times; or --trust clients"
        )
    if wanted.tally is None:
        raise typer.BadParameter("--out needs --tally, the public key of the tally: ostraka collect key FILE")
    task = Task(
        encoding,
        sigma=sigma,
        tally=wanted.tally,
        keepers=tuple(wanted.keeper or ()),
        least=max(3, int(0.8 * wanted.clients) if wanted.least is None else wanted.least),
        honest=wanted.honest,
        colluding=wanted.colluding,
        missing=wanted.missing,
    )
    out.write_text(task.to_json(), encoding="utf-8")
    return task.sha256


@app.command()
def keeper(
    task: Annotated[Path, _TASK],
    *,
    identity: Annotated[Path, _KEY],
    folder: Annotated[Path, _FOLDER],
    port: Annotated[int, _PORT] = 0,
    host: Annotated[str, _HOST] = "127.0.0.1",
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Serve one keeper until interrupted.

    Example: ostraka collect keeper task.json --identity keeper.key --folder keeper
    """
    from ostraka.collect.keeper import Keeper
    from ostraka.secure.keys import Identity
    from ostraka.secure.wire import PartyServer

    with console.usage():
        role = Keeper(_task(task), Identity.kept_at(identity), folder=folder)
    console.serve(PartyServer(role, port=port, host=host), as_json=as_json)


@app.command()
def tally(
    task: Annotated[Path, _TASK],
    *,
    identity: Annotated[Path, _KEY],
    folder: Annotated[Path, _FOLDER],
    clients: Annotated[int, typer.Option(help="Close when so many have reported.", min=1)],
    seconds: Annotated[
        float, typer.Option(help="Close each exchange after so many seconds at the latest.", min=0)
    ],
    epsilon: Annotated[float, typer.Option(help="The ledger's budget, if the ledger is new.")] = 1.0,
    delta: Annotated[float, typer.Option(help="The delta of that.")] = 1e-6,
    keeper: Annotated[
        list[str] | None, typer.Option(help="Address of a keeper, in the task's order.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the released sums here.", metavar="FILE")] = None,
    port: Annotated[int, _PORT] = 0,
    host: Annotated[str, _HOST] = "127.0.0.1",
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Serve the page and collect one round; then release its sums through the ledger in the folder.

    Example: ostraka collect tally task.json --identity tally.key --folder tally --clients 1000 --seconds 600
    """
    from ostraka.collect.client import run_exchanges
    from ostraka.collect.tally import Tally
    from ostraka.core.door import release
    from ostraka.core.ledger.budget import Budget
    from ostraka.core.ledger.ledger import Ledger
    from ostraka.secure.keys import Identity
    from ostraka.secure.wire import PartyServer

    with console.usage():
        role = Tally(_task(task), Identity.kept_at(identity), keepers=keeper or (), folder=folder)
    with PartyServer(role, port=port, host=host, pages=role.pages) as server:
        typer.echo(server.url, err=as_json)
        run_exchanges(role, n_clients=clients, seconds=seconds)
        sums = role.close()
    with Ledger(
        folder / "collect.ledger", budget=Budget(epsilon=epsilon, delta=delta, adaptive=False)
    ) as ledger:
        answer = release(role.task.mechanism, sums, ledger=ledger, key=f"{role.task.sha256}/{role.round}")
        result = {
            "task": json.loads(role.task.to_json()),
            "n_clients": role.n_clients,
            "n_survivors": role.n_survivors,
            "variance": role.variance,
            "sums": answer.tolist(),
            "epsilon": ledger.spent().epsilon(delta=delta),
            "delta": delta,
            "unit": "client",
        }
    if out is not None:
        out.write_text(json.dumps(result), encoding="utf-8")
    if out is None or as_json:
        typer.echo(json.dumps(result))


@app.command()
def send(
    url: Annotated[str, typer.Argument(metavar="URL", help="Of the tally.", show_default=False)],
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="A number, or a list in JSON.", show_default=False)
    ],
    *,
    sha256: Annotated[str | None, typer.Option(help="Fingerprint of the task that was agreed on.")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Remembers that this client has answered.", metavar="FOLDER")
    ] = None,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Report one value, through all exchanges of the task.

    If the task has an enrolment, this prints a claim and waits for the enrolment's signature of it.

    Example: ostraka collect send http://127.0.0.1:8100 42 --folder me
    """
    from ostraka.collect.client import send as report

    def certify(claim: str) -> bytes:
        typer.echo(f"claim: {claim}", err=True)
        return bytes.fromhex(typer.prompt("signature of the enrolment", err=True))

    try:
        read = json.loads(value)
    except ValueError:
        raise typer.BadParameter("the value must be a number or a list in JSON") from None
    with console.usage():
        fingerprint = report(url, read, sha256=sha256, folder=folder, certify=certify)
    console.say({"sha256": fingerprint}, f"reported to the task {fingerprint}", as_json=as_json)


@app.command()
def enrol(
    task: Annotated[Path, _TASK],
    claim: Annotated[list[str], typer.Argument(metavar="CLAIM...", help="Of people who may take part.")],
    *,
    identity: Annotated[Path, _KEY],
    folder: Annotated[Path, _FOLDER],
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Sign the claims of clients, as the enrolment of a task; print a signature for each.

    Example: ostraka collect enrol task.json CLAIM --identity office.key --folder office
    """
    from ostraka.collect.keeper import Enrolment
    from ostraka.secure.keys import Identity

    with console.usage():
        office = Enrolment(_task(task), Identity.kept_at(identity), folder=folder)
        signatures = [office.enrol(person).hex() for person in claim]
    console.say({"signatures": signatures}, "\n".join(signatures), as_json=as_json)


@app.command()
def approve(
    task: Annotated[Path, _TASK],
    url: Annotated[str, typer.Argument(metavar="URL", help="Of the tally.", show_default=False)],
    *,
    identity: Annotated[Path, _KEY],
    folder: Annotated[Path, _FOLDER],
    clients: Annotated[int, typer.Option(help="Approve when so many have joined.", min=1)],
    seconds: Annotated[float, typer.Option(help="Approve after so many seconds at the latest.", min=0)],
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Approve the roster of a round among clients: those who joined and are enrolled.

    Example: ostraka collect approve task.json http://127.0.0.1:8100 --identity office.key
    --folder office --clients 1000 --seconds 600
    """
    from ostraka.collect.client import approve_roster
    from ostraka.collect.keeper import Enrolment
    from ostraka.secure.keys import Identity

    with console.usage():
        office = Enrolment(_task(task), Identity.kept_at(identity), folder=folder)
        joined = approve_roster(url, office, n_clients=clients, seconds=seconds)
    console.say({"clients": joined}, f"approved: {joined:,} clients joined", as_json=as_json)


@app.command()
def demo(
    *,
    out: Annotated[Path, typer.Option(help="Folder of the report.", metavar="FOLDER")] = Path("collect-demo"),
    clients: Annotated[int, typer.Option(help="Invented people.", min=1)] = 300,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Run whole rounds in one process and write a report with pictures.

    Example: ostraka collect demo --out collect-demo
    """
    from ostraka.collect import demo as _collect_demo

    record = _collect_demo.run(out, n_clients=clients)
    words = "wrote {report}: median {median} minutes ({low} to {high})".format(**record)
    console.say(record, words, as_json=as_json)


def _task(path: Path) -> Task:
    from ostraka.collect.task import Task

    return Task.from_json(path.read_text(encoding="utf-8"))
