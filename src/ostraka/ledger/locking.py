"""The writer lock of a ledger file: exclusive for an owner, shared otherwise."""

from __future__ import annotations

import contextlib
import os
import weakref
from pathlib import Path
from typing import Any

from ostraka.ledger.budget import LedgerError

try:
    import fcntl as _fcntl
except ImportError:  # pragma: no cover  (not a POSIX system: files can be shared, but not owned)
    _fcntl = None  # type: ignore[assignment]

__all__ = ["FileLock"]

_fcntl_: Any = _fcntl
_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


class FileLock:
    """A lock on ``<ledger>-owner``, released at the latest when the process ends.

    The ledger itself is not locked: closing a handle on it would drop SQLite's own locks.
    """

    def __init__(self, ledger: str, *, alone: bool) -> None:
        self.alone, self._path, self._handle = alone, Path(f"{ledger}-owner"), -1
        if _fcntl_ is None:  # pragma: no cover
            if alone:
                raise LedgerError(f"{ledger} cannot be owned on this system: leave owner= out")
            return
        while self._handle < 0:
            self._handle = self._locked(ledger)
        self._close_handle = weakref.finalize(self, os.close, self._handle)
        _held.add(self)

    def _locked(self, ledger: str) -> int:
        """A handle that has the lock; -1 if the previous holder removed the file meanwhile."""
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _fcntl_.flock(handle, _fcntl_.LOCK_NB | (_fcntl_.LOCK_EX if self.alone else _fcntl_.LOCK_SH))
            if os.path.samestat(os.fstat(handle), self._path.stat()):
                return handle
        except BlockingIOError:
            os.close(handle)
            who = "is open for writing elsewhere" if self.alone else "is owned by another process"
            raise LedgerError(f"{ledger} {who}: stop that first, or open it with read_only=True") from None
        except FileNotFoundError:
            pass
        os.close(handle)
        return -1

    def close(self) -> None:
        """Release the lock; the last holder removes the file."""
        if self._handle >= 0:
            with contextlib.suppress(OSError):  # others hold it, or the directory is read-only
                _fcntl_.flock(self._handle, _fcntl_.LOCK_NB | _fcntl_.LOCK_EX)
                self._path.unlink(missing_ok=True)
        self.forget()

    def forget(self) -> None:
        """Close this process's handle. A lock that a parent or child process holds stays."""
        if self._handle >= 0:
            self._close_handle()
        self._handle = -1


def _forget_all() -> None:
    for lock in list(_held):
        lock.forget()


if hasattr(os, "register_at_fork"):  # pragma: no branch
    os.register_at_fork(after_in_child=_forget_all)
