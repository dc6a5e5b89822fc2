"""The writer lock of a ledger file: exclusive for an owner, shared otherwise."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import Counter
from typing import Any

from ostraka.ledger.budget import LedgerError

try:
    import fcntl as _fcntl
except ImportError:  # pragma: no cover  (not a POSIX system: files can be shared, not owned)
    _fcntl = None  # type: ignore[assignment]

__all__ = ["OPENING", "FileLock"]

_fcntl_: Any = _fcntl
# Elsewhere flock and fcntl locks exclude each other: SQLite could not lock a file that is locked by flock.
_ON_THE_FILE_ITSELF = sys.platform == "linux"
OPENING = threading.RLock()  # held while a connection is opened or closed
_connections: Counter[tuple[int, int]] = Counter()  # of this process, by device and inode
_unlocked: dict[tuple[int, int], list[int]] = {}  # handles to close after the last connection of their file
_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


class FileLock:
    """An flock on the ledger file itself, for the life of one SQLite connection.

    Closing any handle of a file drops all fcntl locks of the process on it, and SQLite needs its own
    until the last connection is closed. So handles are closed after that. Open a connection and
    make its FileLock while holding ``OPENING``.
    """

    def __init__(self, ledger: str) -> None:
        self.alone, self._ledger, self._handle = False, ledger, -1
        found = os.stat(ledger)  # noqa: PTH116  (text, as SQLite takes it)
        self._file = found.st_dev, found.st_ino
        _connections[self._file] += 1
        _held.add(self)

    def take(self, *, alone: bool) -> None:
        """Take the lock: exclude all other writers, or only an owner."""
        if _fcntl_ is None:  # pragma: no cover
            if alone:
                raise LedgerError(f"{self._ledger} cannot be owned on this system: leave owner= out")
            return
        path = self._ledger if _ON_THE_FILE_ITSELF else f"{self._ledger}-owner"
        flags = os.O_RDONLY if _ON_THE_FILE_ITSELF else os.O_RDWR | os.O_CREAT
        handle = os.open(path, flags | os.O_CLOEXEC, 0o600)
        try:
            _fcntl_.flock(handle, _fcntl_.LOCK_NB | (_fcntl_.LOCK_EX if alone else _fcntl_.LOCK_SH))
        except BlockingIOError:
            _unlocked.setdefault(self._file, []).append(handle)
            who = "is open for writing elsewhere" if alone else "is owned by another process"
            raise LedgerError(
                f"{self._ledger} {who}: stop that first, or open it with read_only=True"
            ) from None
        self._handle, self.alone = handle, alone

    def release(self) -> None:
        """Release the lock for other writers; the connection stays open."""
        if self._handle >= 0:
            _fcntl_.flock(self._handle, _fcntl_.LOCK_UN)
            _unlocked.setdefault(self._file, []).append(self._handle)
        self._handle, self.alone = -1, False

    def is_same_file(self) -> bool:
        """Whether the ledger's path still names the file that was opened."""
        try:
            found = os.stat(self._ledger)  # noqa: PTH116  (text, and for each transaction)
        except FileNotFoundError:
            return False
        return (found.st_dev, found.st_ino) == self._file

    def close(self) -> None:
        """Release the lock, after the connection is closed."""
        with OPENING:
            self.release()
            if self in _held:
                _held.discard(self)
                _connections[self._file] -= 1
            if not _connections[self._file]:
                for handle in _unlocked.pop(self._file, []):
                    os.close(handle)

    def forget(self) -> None:
        """Close the handle of a forked child. The parent's lock stays."""
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1


def _forget_all() -> None:
    for lock in list(_held):
        lock.forget()
    for handles in _unlocked.values():
        for handle in handles:
            os.close(handle)
    _held.clear()
    _connections.clear()
    _unlocked.clear()


if hasattr(os, "register_at_fork"):  # pragma: no branch
    os.register_at_fork(
        before=OPENING.acquire, after_in_parent=OPENING.release, after_in_child=OPENING.release
    )
    os.register_at_fork(after_in_child=_forget_all)
