"""Caps that two owners decide: one proposes, another approves, and both stand in the ledger's chain."""

from __future__ import annotations

import hashlib
import math
import re
from typing import TYPE_CHECKING, Any

from ostraka.core.ledger.budget import KeyConflict
from ostraka.core.ledger.chain import ChargeRequest
from ostraka.serve.answering import Reserved
from ostraka.serve.keys import CLIENT
from ostraka.serve.requests import Refused, entry_at, strict

if TYPE_CHECKING:
    from ostraka.core.ledger.ledger import Ledger
    from ostraka.core.mechanisms.law import BallotMechanism
    from ostraka.serve.keys import Holder, Keyring

_PROPOSAL = re.compile(r"\d+: epsilon (\S+) for (\S+) proposed by (\S+)")
_SHAPE = 'the body must be an object with the members "client", a name, and "epsilon", a positive number'


class Grants:
    """Proposals of caps and their approvals, kept in the ledger alone: every process sees the same.

    An approval is a free entry of the ledger under the proposal's number, which names the owner who approved,
    and behind it a grant under the same number. Of each there is one, in whatever process: so another owner
    who comes second is refused, and whoever approves again, after a crash or a reply that never came, gets
    the first answer, and no cap changes twice.

    Parameters
    ----------
    ledger : Ledger
    keys : Keyring
        Who is a client.
    account, unit : str
        The account of free entries, and the protected unit.
    reserve : BallotMechanism
        Of which an approval is zero uses.
    """

    def __init__(
        self, ledger: Ledger, keys: Keyring, *, account: str, unit: str, reserve: BallotMechanism
    ) -> None:
        self._ledger, self._keys = ledger, keys
        self._account, self._unit, self._free = account, unit, Reserved(each=reserve, uses=0)

    def propose(self, who: Holder, body: bytes) -> dict[str, Any]:
        """Write down what an owner proposes; it counts when another owner approves it."""
        content = strict(body)
        if not isinstance(content, dict) or content.keys() != {"client", "epsilon"}:
            raise Refused(400, "bad_schema", _SHAPE)
        client, epsilon = content["client"], content["epsilon"]
        positive = type(epsilon) in {int, float} and 0 < epsilon < math.inf
        if not isinstance(client, str) or not positive:
            raise Refused(400, "bad_schema", _SHAPE)
        record = self._keys.kept.get(client)
        if record is None or record.role != CLIENT:
            raise Refused(404, "not_found", "there is no such client: type 'ostraka keys add' first")
        number = self._ledger.note(f"epsilon {float(epsilon)!r} for {client} proposed", by=who.actor)
        return {"proposal": number, "client": client, "epsilon": float(epsilon), "by": who.actor}

    def approve(self, who: Holder, number: str) -> dict[str, Any]:
        """Set the cap that another owner proposed, once; repeated by the same owner, return what was set."""
        entry = entry_at(self._ledger, number)
        form = _PROPOSAL.fullmatch(entry.key or "") if entry is not None and entry.kind == "note" else None
        if form is None:
            raise Refused(404, "not_found", "there is no such proposal")
        epsilon, client, proposer = float(form[1]), form[2], form[3]
        if proposer.partition("[")[0] == who.name:
            raise Refused(403, "same_owner")
        name = f"proposal {int(number)}"
        once = ChargeRequest(
            account=self._account,
            key=name,
            digest=hashlib.sha256(f"{name} approved by {who.actor}".encode()).hexdigest(),
            cost=self._free,
            reserve=self._free,
            answer=0,
        )
        (outcome,) = self._ledger.charge_each([once], unit=self._unit)
        if isinstance(outcome, KeyConflict):  # another owner approved it
            raise Refused(409, "proposal_ended")
        if isinstance(outcome, Exception):
            raise outcome
        seq = self._ledger.grant(client, budget_epsilon=epsilon, by=f"{proposer} and {who.actor}", key=name)
        return {"seq": seq, "client": client, "epsilon": epsilon, "by": [proposer, who.actor]}
