"""``ostraka parties``: keys of parties, and the dealer for questions that the parties cannot read."""

from __future__ import annotations

from pathlib import Path

from ostraka import console
from ostraka.console import JSON, Group, argument, option, verb

app = Group("Parties that vote without sharing data: keys, and the dealer of secret questions.")

_KEY = option(..., "File of this role's secret; made if it is missing.", "FILE")


@verb(app)
def key(
    file: Path = argument(..., "Made if it is missing.", "FILE"),
    *,
    as_json: bool = JSON,
) -> None:
    """Print the public key of a party, an asker or a dealer, for the agreement.

    Example: ostraka parties key hospital.key
    """
    from ostraka.secure.keys import Identity

    with console.usage():
        public_key = Identity.kept_at(file).public_key
    console.say({"public_key": public_key}, public_key, as_json=as_json)


@verb(app)
def dealer(
    agreement: Path = argument(..., "JSON file, from Agreement.to_json().", "AGREEMENT"),
    *,
    identity: Path = _KEY,
    port: int = option(0, "0: any free one.", min=0, max=65535),
    host: str = option("127.0.0.1", "Address to listen at. Beyond this machine, put TLS in front."),
    as_json: bool = JSON,
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
