"""Witnesses: whoever remembers a ledger's newest entry elsewhere, so that its database cannot go back unseen.

A witness keeps one pair for each ledger, the number and digest of the newest entry it was told of, and only
ever replaces it by a later one. Before an answer leaves, a majority must have been told, and every pair that
they knew must be on record. Two majorities have a witness in common. So whatever was answered, by this or
another process, before or after a rollback, is known to one of those who are asked next.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ostraka.core.ledger.budget import LedgerMoved, LedgerUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

_LOG = logging.getLogger("ostraka.ledger")
SECONDS = 1.0  # for a majority


class Head(NamedTuple):
    """A ledger's newest entry: number, digest and total of all charges, the latter two in hexadecimal."""

    seq: int
    digest: str
    total: str = ""


class Witness(Protocol):
    """One witness. Its methods are called from one thread."""

    @property
    def name(self) -> str:
        """For messages and logs; public."""
        ...

    def tell(self, ledger: str, head: Head, *, instead: Collection[str] = (), seconds: float) -> list[Head]:
        """Remember a head durably as :func:`successor` decides; return the heads known before and after.

        Number 0 is never remembered: it only asks. OSError or LedgerError: it is not known whether.
        """
        ...

    def close(self) -> None:
        """Give up what it holds."""
        ...


def successor(current: Head | None, head: Head, instead: Collection[str]) -> Head | None:
    """The head that a witness keeps: the later one, or the new one in place of a named one."""
    if head.seq and (current is None or head.seq > current.seq or current.digest in instead):
        return head
    return current


class Quorum:
    """The witnesses of one ledger. Each has a thread, so that one which hangs costs nothing.

    Parameters
    ----------
    witnesses : sequence of Witness
        Each on another machine than the database, and than the others.
    ledger : str
        The ledger's own random name.
    """

    def __init__(self, witnesses: Sequence[Witness], ledger: str) -> None:
        self._changed = threading.Condition()
        self._witnesses, self._ledger = tuple(witnesses), ledger
        self._asked, self._closed = 0, False
        self._waiting: dict[int, tuple[Head, Collection[str]]] = {}  # questions without a majority yet
        self._unchecked: set[Head] = set()  # what witnesses knew, until it was seen on record
        self._tried = dict.fromkeys(self._witnesses, 0)  # the newest question that each was asked,
        self._answered = dict.fromkeys(self._witnesses, 0)  # and the newest that it has answered
        for witness in self._witnesses:
            threading.Thread(target=self._serve, args=(witness,), name="witness", daemon=True).start()

    def confirm(
        self,
        head: Head,
        on_record: Callable[[Head], bool],
        *,
        instead: Collection[str] = (),
        everyone: bool = False,
    ) -> None:
        """Return once a majority remembers the head or a later one, and knows nothing that is not on record.

        ``everyone``: wait for all of them as long as that takes no more than ``SECONDS``.

        Raises
        ------
        LedgerUnavailable
            Too few witnesses answer.
        LedgerMoved
            A witness knows an entry that is not on record.
        """
        for claim in self.ask(head, instead=instead, everyone=everyone):
            if claim[:2] != head[:2] and claim.digest not in instead and not on_record(claim):
                raise LedgerMoved(
                    f"lacks entry {claim.seq} that a witness knows, so its database was rolled back or "
                    "replaced: stop all services, put the newest copy back, or type ostraka ledger adopt"
                )
            with self._changed:
                self._unchecked.discard(claim)

    def ask(
        self,
        head: Head = Head(0, ""),  # noqa: B008  (immutable)
        *,
        instead: Collection[str] = (),
        everyone: bool = False,
        least: int | None = None,
    ) -> set[Head]:
        """Tell a head, which may have number 0; return all that witnesses know and nobody has confirmed.

        ``least`` of them must answer: a majority, unless it says otherwise.

        Raises
        ------
        LedgerUnavailable
            Too few of them answer.
        """
        until, n = time.monotonic() + SECONDS, len(self._witnesses)
        with self._changed:
            self._asked += 1
            mine = self._asked
            self._waiting[mine] = head, instead
            self._changed.notify_all()
            while True:
                answered = [witness for witness in self._witnesses if self._answered[witness] >= mine]
                enough = len(answered) >= (n // 2 + 1 if least is None else least)
                if min(self._tried.values()) >= mine or (enough and not everyone):
                    break
                if not self._changed.wait(until - time.monotonic()):
                    break
            del self._waiting[mine]
            if not enough:
                silent = ", ".join(witness.name for witness in self._witnesses if witness not in answered)
                raise LedgerUnavailable(
                    f"only {len(answered)} of {n} witnesses answer (without {silent}), so nothing was "
                    "answered: try again with the same key"
                )
            return set(self._unchecked)

    @property
    def size(self) -> int:
        """How many witnesses there are."""
        return len(self._witnesses)

    def close(self) -> None:
        """End the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _serve(self, witness: Witness) -> None:
        """Tell one witness the newest head, again for each question."""
        warned = False  # that it does not answer
        while True:
            with self._changed:
                while not self._closed and self._tried[witness] >= self._asked:
                    self._changed.wait()
                if self._closed:
                    break
                number = self._asked
                head, instead = max(
                    self._waiting.values(), default=(Head(0, ""), ()), key=lambda question: question[0].seq
                )
            try:
                heads, failure = witness.tell(self._ledger, head, instead=instead, seconds=SECONDS), ""
            except Exception as error:  # noqa: BLE001  (it is asked again with the next question)
                heads, failure = [], type(error).__name__
            if failure and not warned:
                _LOG.warning(
                    "the witness %s does not answer (%s)",
                    witness.name,
                    failure,
                    extra={"event": "witness.silent"},
                )
            warned = bool(failure)
            with self._changed:
                self._tried[witness] = number
                if not failure:
                    self._answered[witness] = number
                    self._unchecked.update(heads)
                self._changed.notify_all()
        witness.close()
