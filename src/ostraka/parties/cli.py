"""``ostraka parties``: keys of parties, and the dealer for questions that the parties cannot read."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (Typer reads it)
from typing import Annotated

import typer

from ostraka import console

app = typer.Typer(help="Parties that vote without sharing data: keys, and the dealer of secret questions.")

_JSON = typer.Option("--json", help="Print JSON on stdout.")
_KEY = typer.Option("--identity", help="File of this role's secret; made if it is missing.", metavar="FILE")


@app.command()
def key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Made if it is missing.", show_default=False)],
    *,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Print the public key of a party, an asker or a dealer, for the agreement.

    Example: ostraka parties key hospital.key
    """
    from ostraka.secure.keys import Identity

    with console.usage():
        public_key = Identity.kept_at(file).public_key
    console.say({"public_key": public_key}, public_key, as_json=as_json)


@app.command()
def dealer(
    agreement: Annotated[
        Path,
        typer.Argument(metavar="AGREEMENT", help="JSON file, from Agreement.to_json().", show_default=False),
    ],
    *,
    identity: Annotated[Path, _KEY],
    port: Annotated[int, typer.Option("--port", help="0: any free one.", min=0, max=65535)] = 0,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen at. Beyond this machine, put TLS in front.")
    ] = "127.0.0.1",
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Serve the dealer of an agreement until interrupted. It receives no data and has no other role.

    Example: ostraka parties dealer agreement.json --identity dealer.key
    """
    from ostraka.secure.agreement import Agreement
    from ostraka.secure.dealer import Dealer
    from ostraka.secure.keys import Identity
    from ostraka.secure.wire import PartyServer

    with console.usage():
        agreed = Agreement.from_json(agreement.read_text(encoding="utf-8"))
        party = Dealer(agreed, Identity.kept_at(identity))
    console.serve(PartyServer(party, port=port, host=host), as_json=as_json)
