"""``ostraka keys``: make, list and revoke the keys of a service."""

from __future__ import annotations

import json
import os
from pathlib import Path  # noqa: TC003  (Typer reads it)
from typing import TYPE_CHECKING, Annotated

import typer

from ostraka import console

if TYPE_CHECKING:
    from ostraka.serve.keys import Keyring

app = typer.Typer(help="Keys of a service: who may use it, and how much each client may spend.")

_RUN = typer.Argument(metavar="RUN", help="The folder that is served.", show_default=False)
_NAME = typer.Argument(metavar="NAME", help="Of the client or owner.", show_default=False)
_JSON = typer.Option("--json", help="Print JSON on stdout.")


@app.command()
def add(
    run: Annotated[Path, _RUN],
    name: Annotated[str, _NAME],
    *,
    role: Annotated[str, typer.Option(help="client or owner.")] = "client",
    epsilon: Annotated[
        float | None, typer.Option(help="What a client may spend in all.", metavar="NATS")
    ] = None,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Add a holder and print its key. The key is shown once."""
    with console.usage():
        _show(name, _opened(run).add(name, role=role, epsilon=epsilon), as_json=as_json)


@app.command()
def rotate(
    run: Annotated[Path, _RUN], name: Annotated[str, _NAME], *, as_json: Annotated[bool, _JSON] = False
) -> None:
    """Add a key for a holder. Its old keys stay valid until they are revoked."""
    with console.usage():
        _show(name, _opened(run).rotate(name), as_json=as_json)


@app.command()
def grant(
    run: Annotated[Path, _RUN],
    name: Annotated[str, _NAME],
    *,
    epsilon: Annotated[float, typer.Option(help="What the client may spend in all.", metavar="NATS")],
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Change a client's cap. A running service applies it within seconds."""
    with console.usage():
        _opened(run).grant(name, epsilon=epsilon)
    _done({"name": name, "epsilon": epsilon}, f"{name} may spend {epsilon:g} in all", as_json=as_json)


@app.command()
def revoke(
    run: Annotated[Path, _RUN],
    name: Annotated[str, _NAME],
    *,
    number: Annotated[
        str | None, typer.Option(help="Which key, as 'list' shows it. Default: all.", metavar="KEY")
    ] = None,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Revoke a holder's keys. A running service applies it within seconds."""
    with console.usage():
        _opened(run).revoke(name, number=number)
    _done({"name": name, "revoked": number or "all"}, f"revoked {number or 'all keys'}", as_json=as_json)


@app.command("list")
def list_(run: Annotated[Path, _RUN], *, as_json: Annotated[bool, _JSON] = False) -> None:
    """List the holders and the numbers of their keys. The keys themselves are not stored."""
    holders = _opened(run).kept
    if as_json:
        rows = [
            {"name": name, "role": record.role, "epsilon": record.epsilon, "keys": sorted(record.keys)}
            for name, record in sorted(holders.items())
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    for name, record in sorted(holders.items()):
        budget = "" if record.epsilon is None else f", epsilon {record.epsilon:g}"
        typer.echo(f"{name}: {record.role}{budget}, keys {', '.join(sorted(record.keys)) or 'none'}")


def _opened(run: Path) -> Keyring:
    from ostraka.report import folder
    from ostraka.serve.keys import Keyring, pepper

    if not (run / folder.TEACHERS).is_dir():
        raise typer.BadParameter(
            f"{run} holds no teachers: type the folder of a run of 'ostraka learn … --keep-teachers'"
        )
    place = run / folder.SERVICE
    place.mkdir(mode=0o700, exist_ok=True)
    return Keyring(place / "keys.json", pepper(os.environ))


def _show(name: str, key: str, *, as_json: bool) -> None:
    typer.echo("this key is shown once: hand it over safely", err=True)
    _done({"name": name, "key": key}, key, as_json=as_json)


def _done(facts: dict[str, object], words: str, *, as_json: bool) -> None:
    typer.echo(json.dumps(facts) if as_json else words)
