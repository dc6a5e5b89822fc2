"""The asker's side of rounds: links to the parties, what clear and secret rounds share, the clear round."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from ostraka.core.mechanisms.skellam import largest_draw
from ostraka.secure import rounds
from ostraka.secure.keys import SIGNATURE_BYTES, exchange_key, new_secret
from ostraka.secure.masks import pair_mask
from ostraka.secure.rounds import AGGREGATOR, Call, PartyError, Round

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ostraka.secure.agreement import Agreement
    from ostraka.secure.keys import Identity
    from ostraka.secure.wire import Answering

Answer = TypeVar("Answer")

_MOST_REPLY = 1024  # bytes of a reply to a call
_MOST_CALLS = 16  # parties asked at once


class Local:
    """A link to a party or a dealer in this process."""

    def __init__(self, party: Answering) -> None:
        self._party = party

    def ask(self, verb: str, sealed: bytes, _most: int) -> bytes:
        """Return the reply to a message."""
        return self._party.answers[f"/v1/{verb}"](sealed)


def ask_all(names: tuple[str, ...], ask: Callable[[str], Answer]) -> dict[str, Answer]:
    """Ask all parties at once; return their replies, or raise one error that names all which failed."""
    with ThreadPoolExecutor(min(len(names), _MOST_CALLS)) as pool:
        tasks = {name: pool.submit(ask, name) for name in names}
    failed = {name: error for name, task in tasks.items() if (error := task.exception()) is not None}
    if not failed:
        return {name: task.result() for name, task in tasks.items()}
    for error in failed.values():
        if not isinstance(error, PartyError):
            raise error
    errors = [error for error in failed.values() if isinstance(error, PartyError)]
    named = dict.fromkeys(name for error in errors for name in error.parties)
    text = "; ".join(dict.fromkeys(map(str, errors)))
    raise PartyError(text, code=errors[0].code, parties=tuple(named))


class Link(Protocol):
    """A link to a party or to the dealer."""

    def ask(self, verb: str, body: bytes, limit: int) -> bytes:
        """Return the reply to a message."""
        ...


@dataclass(frozen=True, slots=True, repr=False)
class Asker:
    """Who asks, under which agreement, and its links to the parties and the dealer."""

    agreement: Agreement
    identity: Identity
    links: Mapping[str, Link]
    dealer: Link | None = None


def clear_round(asker: Asker, rows: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Run one round: invite, gather keys, ask, add, and subtract the masks shared with the parties."""
    agreement, links, secret = asker.agreement, asker.links, new_secret()
    call = Call(
        agreement=agreement.sha256,
        id=new_secret().hex(),
        key=exchange_key(secret),
        n_rows=len(rows),
        participants=names,
        question=rounds.question(rows),
    )
    invitation = asker.identity.seal("call", call.body())
    replies = ask_all(names, lambda name: links[name].ask("join", invitation, _MOST_REPLY))
    round_ = gathered(call, replies, agreement)
    body = rounds.pack([rounds.write_replies(call.digest, replies), rows.tobytes()])
    request = asker.identity.seal("request", body)
    limit = SIGNATURE_BYTES + 32 + 4 * len(rows) * len(agreement.classes)
    sealed = ask_all(names, lambda name: links[name].ask("vote", request, limit))
    return plausible(added(sealed, round_, secret, agreement), len(names), agreement)


def gathered(call: Call, replies: Mapping[str, bytes], agreement: Agreement) -> Round:
    """Return the round of these replies; PartyError names the party whose reply is wrong."""
    try:
        return Round.gather(call, replies, agreement)
    except ValueError as error:
        party = {str(error).partition(":")[0]} & set(agreement.members)
        raise PartyError(str(error), code="wrong_identity", parties=tuple(party)) from None


def by(name: str, work: Callable[[], Answer]) -> Answer:
    """Turn a ValueError about a signed message into a PartyError that names its signer."""
    try:
        return work()
    except ValueError as error:
        raise PartyError(f"{name}: {error}", code="wrong_identity", parties=(name,)) from None


def added(sealed: Mapping[str, bytes], round_: Round, secret: bytes, agreement: Agreement) -> np.ndarray:
    """Return the sum of all masked votes, uint32, minus the masks that this side can compute."""
    total = np.zeros((round_.call.n_rows, len(agreement.classes)), dtype=np.uint32)
    for name, votes in sealed.items():
        pair, transcript = (AGGREGATOR, name), round_.transcript
        mask = pair_mask(secret, round_.keys[name], transcript=transcript, pair=pair, size=total.size)
        total += votes_from(name, votes, round_, agreement) - mask.reshape(total.shape)
    return total


def votes_from(name: str, sealed: bytes, round_: Round, agreement: Agreement) -> np.ndarray:
    """Return one party's masked votes, uint32; PartyError unless it signed them for this round."""
    call, transcript = round_.call, round_.transcript
    return by(name, lambda: rounds.votes_of(sealed, transcript, name, agreement, n_rows=call.n_rows))


def plausible(total: np.ndarray, n_parties: int, agreement: Agreement) -> np.ndarray:
    """Return a sum as signed counts if votes can add up to it; masks left over would make it look random."""
    counts = total.astype(np.int32).astype(np.int64)
    if agreement.noise == "parties":
        right = np.abs(counts).max() <= n_parties * (1 + largest_draw(agreement.share))
    else:
        right = counts.min() >= 0 and (counts.sum(axis=1) == n_parties).all()
    if not right:
        raise PartyError(
            "the masks do not cancel, or a party did not cast one vote a row; it cannot be told which",
            code="disagreement",
        )
    return counts
