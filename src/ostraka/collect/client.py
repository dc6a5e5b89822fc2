"""A client: it encodes one value, hides it behind masks, and answers each round once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.collect.masking import Masking
from ostraka.collect.messages import Report, known_round, masks_for
from ostraka.core import files
from ostraka.secure.keys import exchange_key, exchange_secret, new_secret
from ostraka.secure.rounds import refused

if TYPE_CHECKING:
    from os import PathLike

    from ostraka.collect.task import Task


class Client:
    """One client in one round of a task.

    Parameters
    ----------
    task : Task
        What the client agreed to. Compare its ``sha256`` over a channel that the tally does not control.
    round : int, default 0
        Below ``task.rounds``.
    folder : path, optional
        Where it is written that this client has answered, before the message leaves. None: only this
        object remembers.
    certificate : bytes, optional
        The enrolment's signature of :attr:`claim`, where the task asks for one.

    Raises
    ------
    ValueError
        A round that the task does not have.
    PartyError
        A second answer in one round.

    Guarantees
    ----------
    The value is encoded and clipped here. With ``trust="keepers"`` the only message is the encoded vector
    plus one mask for each keeper, modulo 2^32: uniform as long as one keeper's secret is not known. With
    ``trust="clients"`` the vector is masked for each neighbour and with a seed of its own; of each neighbour
    this client sends one share, of the seed or of the mask secret, for one set of survivors. Keys are 256
    bits from the operating system, for one round, and are forgotten with this object.
    Source: Bonawitz et al. 2017, doi:10.1145/3133956.3133982; Bell et al. 2020, doi:10.1145/3372297.3417885
    (few neighbours).

    Examples
    --------
    >>> from ostraka.collect import Keeper, Task, Tree
    >>> from ostraka.voters import Identity
    >>> task = Task(Tree(0, 16), sigma=9.0, tally=Identity.fresh().public_key,
    ...             keepers=[Keeper.key(Identity.fresh()) for _ in range(2)])
    >>> len(Client(task).report(11))
    112
    """

    def __init__(
        self,
        task: Task,
        *,
        round: int = 0,  # noqa: A002  (the field's word)
        folder: str | PathLike[str] | None = None,
        certificate: bytes = b"",
    ) -> None:
        self.task, self.round = task, known_round(task, round)
        self.certificate = certificate
        self._folder = None if folder is None else Path(folder)
        self._secret: bytes | None = new_secret()
        self.key = exchange_key(self._secret)
        self._masking: Masking | None = None
        if task.trust == "clients":
            self._masking = Masking(task, round_=self.round, secret=self._secret)
        self._has_joined = False

    @property
    def claim(self) -> str:
        """What an enrolment signs for this client, in hexadecimal: its key, or a digest of all its keys."""
        return self.key if self._masking is None else self._masking.claim

    def report(self, value: Any) -> bytes:
        """Return the one message of a client that trusts keepers."""
        if self.task.trust != "keepers":
            raise ValueError("this task trusts clients, not keepers: use join, share, mask and unmask")
        vector = self.task.encoding.encode(value)
        secret = exchange_secret(self._used())
        transcript = self.task.transcript("report", round=self.round)
        total = np.array(vector, dtype=np.uint32)
        for keeper in self.task.keepers:
            total += masks_for(self.task, secret, keeper, self.key, keeper[64:], transcript=transcript)
        body = total.astype("<u4").tobytes()
        return Report(bytes.fromhex(self.key), self.certificate, body).write(self.task, self.round)

    def join(self) -> bytes:
        """First exchange among clients: return this client's public keys."""
        if self._masking is None:
            raise ValueError("this task trusts keepers, not clients: use report")
        self._used()
        self._has_joined = True
        return self._masking.join()

    def share(self, roster: bytes) -> bytes:
        """Second exchange: return shares of this client's secrets, sealed for its neighbours."""
        return self._joined.share(roster)

    def mask(self, value: Any, inbox: bytes) -> bytes:
        """Third exchange: return the encoded value, with noise and masks."""
        vector = self.task.encoding.encode(value)
        return self._joined.mask(vector, inbox)

    def confirm(self, survivors: bytes) -> bytes:
        """Sign the set of survivors after the third exchange, as a check of the tally."""
        return self._joined.confirm(survivors)

    def unmask(self, message: bytes) -> bytes:
        """Fourth exchange: return one share of each neighbour, never both."""
        return self._joined.unmask(message)

    @property
    def _joined(self) -> Masking:
        if self._masking is None or not self._has_joined:
            raise refused("the client", "it has not joined")
        return self._masking

    def _used(self) -> bytes:
        """Return the secret once, after its use is recorded durably."""
        secret, self._secret = self._secret, None
        if secret is not None and self._folder is not None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self._folder / f"client-{self.task.sha256[:16]}-{self.round}.answered"
            if files.create(path, self.key.encode()) != self.key.encode():
                secret = None
        if secret is None:
            raise refused("the client", "it has answered this round: a value is reported once")
        return secret

    def __repr__(self) -> str:
        return f"Client(task={self.task.sha256[:16]!r}, round={self.round})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(f"{self!r} does not travel: its secrets stay in its own process")
