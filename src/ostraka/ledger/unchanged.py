"""Notice that another program removed, replaced or wrote an owner's SQLite files."""

from __future__ import annotations

import os

__all__ = ["MOVED", "Unchanged"]

MOVED = (
    "was removed, replaced or changed by another program while it was open: stop, and put the newest copy "
    "back"
)


class Unchanged:
    """A snapshot of an owner's files, by which changes of other programs are noticed.

    Only the owner writes to them: to the ledger itself at a checkpoint, to its log at a commit.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.note_checkpoint()

    def note_checkpoint(self) -> None:
        """Record the present state of both files as this program's own."""
        self._file = _seen(self._path)
        self.note_commit()

    def note_commit(self) -> None:
        """Record the present state of the log as this program's own."""
        self._log = _seen(f"{self._path}-wal")

    def holds(self, *, log: bool) -> bool:
        """Return whether no file was removed, replaced or written by another program."""
        if self._file is None or _seen(self._path) != self._file:
            return False
        return not log or _seen(f"{self._path}-wal") == self._log


def _seen(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)  # noqa: PTH116  (text, and twice for each transaction)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
