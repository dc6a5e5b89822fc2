"""An enrolment: it signs the keys of people it knows, and the roster of a round."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ostraka.collect.messages import Roster, approval, certificate, degree_of, known_round, read_entry
from ostraka.secure.keys import KEY_BYTES
from ostraka.secure.log import Log
from ostraka.secure.rounds import checked

if TYPE_CHECKING:
    from os import PathLike

    from ostraka.collect.task import Task
    from ostraka.secure.keys import Identity

_ENTRY = 4 * KEY_BYTES


class Enrolment:
    """Who takes part in one round of a task, decided by somebody who is not the tally.

    Parameters
    ----------
    task : Task
        It names this enrolment's key.
    identity : Identity
        This enrolment's.
    round : int, default 0
        Below ``task.rounds``.
    folder : path, optional
        Where claims and the approved roster are kept. None: only this process remembers.

    Raises
    ------
    ValueError
        The task does not name this enrolment.

    Guarantees
    ----------
    A roster that it approves holds enrolled clients only, each with the keys that the client itself made.
    It approves one roster a round, durably chosen, and repeats the same approval.

    Examples
    --------
    >>> from ostraka.collect import Client, Task, Tree
    >>> from ostraka.voters import Identity
    >>> office = Identity.fresh()
    >>> task = Task(Tree(0, 16), sigma=9.0, tally=Identity.fresh().public_key,
    ...             lying=True, enrolment=office.public_key)
    >>> len(Enrolment(task, office).enrol(Client(task).claim))
    64
    """

    def __init__(
        self,
        task: Task,
        identity: Identity,
        *,
        round: int = 0,  # noqa: A002  (the field's word)
        folder: str | PathLike[str] | None = None,
    ) -> None:
        if identity.public_key != task.enrolment:
            raise ValueError("the task names another enrolment than this identity, or none")
        self.task, self.round = task, known_round(task, round)
        self._identity = identity
        name = f"enrolment-{task.sha256[:16]}-{self.round}"
        path = None if folder is None else Path(folder) / f"{name}.log"
        self._log = Log(path, name=name, earlier=f"{name}.*")  # 'collect enrol' signs while 'approve' waits

    def enrol(self, claim: str) -> bytes:
        """Return the signature of a claim: :attr:`Client.claim` of a person who may take part."""
        try:
            body = bytes.fromhex(claim)
        except ValueError:
            body = b""
        if len(body) != KEY_BYTES or body.hex() != claim:
            raise ValueError("a claim must have 64 lower-case hexadecimal digits")
        self._log.once(f"claim {claim}", body)
        return certificate(self.task, self._identity, claim, round_=self.round)

    def approve(self, entries: bytes) -> bytes:
        """Return the approval of a roster among clients: the signature, and the keys of its clients.

        Those who joined without being enrolled are left out.

        Raises
        ------
        PartyError
            Too few enrolled clients have joined, or too many; a key stands on the roster twice; or another
            roster was approved before.
        """
        return checked("the enrolment", lambda: self._approved(entries))

    def _approved(self, entries: bytes) -> bytes:
        if len(entries) % _ENTRY:
            raise ValueError("the entries have another length")
        records = [entries[at : at + _ENTRY] for at in range(0, len(entries), _ENTRY)]
        claims = self._claims()
        enrolled = sorted(record for record in records if read_entry(record).claim in claims)
        if len(enrolled) < self.task.least:
            raise ValueError(f"{len(enrolled)} enrolled clients joined: too few")
        roster = b"".join(enrolled)
        signature = approval(self.task, self._identity, roster, round_=self.round)
        Roster(self.task, self.round, roster, signature).check()  # before it uses up the one approval
        degree_of(self.task, len(enrolled))
        keys = b"".join(record[:KEY_BYTES] for record in enrolled)
        try:
            return self._log.answer("roster", roster, lambda: signature + keys)
        except ValueError:
            raise ValueError("another roster of this round was approved") from None

    def _claims(self) -> set[bytes]:
        return {body for key, body in self._log.entries() if key == f"claim {body.hex()}"}

    def __repr__(self) -> str:
        return f"Enrolment(task={self.task.sha256[:16]!r}, round={self.round})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(f"{self!r} does not travel: its secret stays in its own process")
