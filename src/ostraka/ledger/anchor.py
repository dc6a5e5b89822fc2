"""The anchor: a second file with the number and digest of the newest entry, which reveals an older copy.

The file has two slots of one block each, written alternately, so that an interrupted write leaves the
other slot intact. A slot is a line ``ostraka-anchor <seq> <head> <seal>``; the larger number counts.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ostraka import _files
from ostraka.ledger.budget import LedgerError, LedgerMoved

if TYPE_CHECKING:
    from ostraka.ledger.backend import Store
    from ostraka.ledger.chain import Seal
    from ostraka.ledger.history import History

try:
    import fcntl as _fcntl
except ImportError:  # pragma: no cover  (not a POSIX system: one process at a time)
    _fcntl = None  # type: ignore[assignment]

__all__ = ["Anchor", "check_anchored"]

_MARK, _SLOT = b"ostraka-anchor", 4096
_locks: Any = _fcntl


class Anchor:
    """The anchor file: number and head of the newest entry whose answer may have been released."""

    def __init__(self, path: str | os.PathLike[str], seal: Seal, *, read_only: bool = False) -> None:
        self.path, self._seal, self._handle, self._at, self._seq = Path(path), seal, -1, -1, 0
        how = os.O_RDONLY if read_only else os.O_RDWR | os.O_CREAT
        try:
            self._handle = os.open(self.path, how | os.O_CLOEXEC, 0o600)
            self._close_handle = weakref.finalize(self, os.close, self._handle)
            if not read_only:
                _files.sync_folder(self.path.parent)
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
        slots = [self._parsed(written[at : at + _SLOT]) for at in (0, _SLOT)]
        found = [(slot, at) for at, slot in enumerate(slots) if slot]
        if not found:
            if written.strip(b"\0"):
                raise LedgerError(
                    f"{self.path} is damaged or belongs to another ledger: restore the anchor from a copy"
                )
            return None
        newest, self._at = max(found)
        return newest

    def write(self, seq: int, head: bytes) -> None:
        """Write an entry's number and head durably, unless a later entry is recorded already."""
        if _locks is not None:  # pragma: no branch
            _locks.flock(self._handle, _locks.LOCK_EX)
        try:
            before = self.read()
            self._check_newest(before)
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
            if _locks is not None:  # pragma: no branch
                _locks.flock(self._handle, _locks.LOCK_UN)

    def _check_newest(self, before: tuple[int, bytes] | None) -> None:
        """Raise LedgerMoved if the file was removed, replaced, or records less than this process wrote."""
        with contextlib.suppress(FileNotFoundError):
            same = os.path.samestat(os.fstat(self._handle), self.path.stat())
            if same and (before[0] if before else 0) >= self._seq:
                return
        raise LedgerMoved(f"{self.path} was removed, replaced or rolled back while it was open: put it back")

    def close(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            self._close_handle()
        self._handle = -1

    def _parsed(self, slot: bytes) -> tuple[int, bytes] | None:
        line, _, rest = slot.partition(b"\n")
        text, _, seal = line.rpartition(b" ")
        words = text.split(b" ")
        if rest.strip(b"\0") or len(words) != 3 or words[0] != _MARK:
            return None
        if self._seal(text).hex().encode() != seal:
            return None
        return int(words[1]), bytes.fromhex(words[2].decode())


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
