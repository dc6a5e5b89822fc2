"""Who remembers a ledger's newest entry elsewhere, so that the ledger cannot go back unseen.

The anchor is a second file with the number and digest of the newest entry. It has two slots of one block
each, written alternately, so that an interrupted write leaves the other slot intact. A slot is a line
``ostraka-anchor <seq> <head> <seal>``; the larger number counts.

A witness is another machine. It keeps one pair for each ledger, the number and digest of the newest entry
that it was told of, and only ever replaces it by a later one. Before an answer leaves, a majority must have
been told, and every pair that they knew must be on record. Two majorities have a witness in common. So
whatever was answered, by this or another process, before or after a rollback, is known to one of those who
are asked next.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ostraka.core import files
from ostraka.core.ledger.budget import LedgerError, LedgerMoved, LedgerUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ostraka.core.ledger.chain import Seal
    from ostraka.core.ledger.history import History
    from ostraka.core.ledger.store import Store

_fcntl: Any = importlib.import_module("fcntl") if os.name == "posix" else None  # else: one process at a time
_LOG = logging.getLogger("ostraka.ledger")
_MARK, _SLOT = b"ostraka-anchor", 4096
SECONDS = 1.0  # for a majority of witnesses


class Anchor:
    """The anchor file: number and head of the newest entry whose answer may have been released."""

    def __init__(self, path: str | os.PathLike[str], seal: Seal, *, read_only: bool = False) -> None:
        self.path, self._seal, self._handle, self._at, self._seq = Path(path), seal, -1, -1, 0
        how = os.O_RDONLY if read_only else os.O_RDWR | os.O_CREAT
        try:
            self._handle = os.open(self.path, how | os.O_CLOEXEC, 0o600)
            self._close_handle = weakref.finalize(self, os.close, self._handle)
            if not read_only:
                if not os.fstat(self._handle).st_size:  # a write that grows a file may leave rubbish in it
                    os.ftruncate(self._handle, 2 * _SLOT)
                    os.fsync(self._handle)
                files.sync_folder(self.path.parent)
        except OSError as error:
            raise LedgerError(
                f"anchor {path} cannot be used ({error.strerror}): choose another path"
            ) from error

    def read(self) -> tuple[int, bytes] | None:
        """Read number and head; None for a file that was never written.

        Raises
        ------
        LedgerError
            The file is not empty and holds no anchor made with this ledger's secret.
        """
        written = os.pread(self._handle, 2 * _SLOT, 0)
        valid = []
        for at in (0, 1):
            line, _, padding = written[at * _SLOT : (at + 1) * _SLOT].partition(b"\n")
            text, _, seal = line.rpartition(b" ")
            words = text.split(b" ")
            if padding.strip(b"\0") or len(words) != 3 or words[0] != _MARK:
                continue
            if self._seal(text).hex().encode() == seal:
                valid.append(((int(words[1]), bytes.fromhex(words[2].decode())), at))
        if not valid:
            if written.strip(b"\0"):
                raise LedgerError(
                    f"{self.path} is damaged or belongs to another ledger: restore the anchor from a copy"
                )
            return None
        newest, self._at = max(valid)
        return newest

    def write(self, seq: int, head: bytes) -> None:
        """Write an entry's number and head durably, unless a later entry is recorded already."""
        if _fcntl is not None:  # pragma: no branch
            _fcntl.flock(self._handle, _fcntl.LOCK_EX)
        try:
            before, unmoved = self.read(), False
            with contextlib.suppress(FileNotFoundError):
                unmoved = os.path.samestat(os.fstat(self._handle), self.path.stat())
            if not unmoved or (before[0] if before else 0) < self._seq:
                raise LedgerMoved(
                    f"{self.path} was removed, replaced or rolled back while it was open: put it back"
                )
            if before is None or before[0] < seq:
                slot = (self._at + 1) % 2
                line = b"%s %d %s" % (_MARK, seq, head.hex().encode())
                line += b" " + self._seal(line).hex().encode() + b"\n"
                if os.pwrite(self._handle, line.ljust(_SLOT, b"\0"), slot * _SLOT) != _SLOT:
                    raise OSError(f"{self.path} could not be written")
                getattr(os, "fdatasync", os.fsync)(self._handle)  # macOS has no fdatasync
                self._at = slot
            self._seq = seq
        finally:
            if _fcntl is not None:  # pragma: no branch
                _fcntl.flock(self._handle, _fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            self._close_handle()
        self._handle = -1


def check_anchored(anchor: Anchor, history: History, store: Store) -> None:
    """Raise LedgerError for a ledger that lacks the entry its anchor records."""
    remembered = anchor.read()
    if remembered is None:
        if history.seq:
            raise LedgerError(
                f"{anchor.path} is empty or new, but {history.path} has {history.seq} entries: restore "
                "the anchor; if it is lost and this is surely the newest copy, type ostraka ledger anchor"
            )
        return
    seq, head = remembered
    row = store.with_seq(seq)
    if seq > history.seq or not (history.begins_with(head) if seq == 0 else row and row.digest == head):
        what = f"ends at entry {history.seq}, before" if seq > history.seq else "has another history than"
        raise LedgerError(
            f"{history.path} {what} entry {seq} that {anchor.path} records, so it is an older copy or "
            "another ledger: restore the newest copy, or count its whole budget as spent",
            seq=min(seq, history.seq + 1),
        )


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
