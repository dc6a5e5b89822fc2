"""Copies of a ledger: made while it is charged, verified, and put back only where nothing is lost."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from ostraka.core import files
from ostraka.core.ledger import sqlite
from ostraka.core.ledger.budget import LedgerError
from ostraka.core.ledger.ledger import Ledger


class Copied(NamedTuple):
    """The extent of a copy: its number of entries, and the digest over all of them."""

    entries: int
    head: str


def back_up(ledger: str | os.PathLike[str], copy: str | os.PathLike[str], *, secret: bytes | None) -> Copied:
    """Copy an SQLite ledger into a new file, which others may charge meanwhile, and verify the copy.

    Parameters
    ----------
    ledger : path
    copy : path
        A file that does not exist yet. Beside it ``COPY.anchor`` is written, which belongs to the copy.
    secret : bytes, optional
        As for :class:`Ledger`.

    Returns
    -------
    Copied
        What the copy holds. What is charged later is not in it.

    Raises
    ------
    LedgerError
        There is no such ledger, the copy exists, or the copy does not verify.
    """
    source, target, anchor = Path(ledger), Path(copy), Path(f"{copy}.anchor")
    _require_file(source)
    for path in (target, anchor):
        if os.path.lexists(path):
            raise LedgerError(f"{path} exists: type the name of a new file")
    _copy(source, target)
    with Ledger(target, secret=secret) as opened:
        opened.anchor(anchor)
        return Copied(opened.count(), opened.head)


def restore(
    copy: str | os.PathLike[str],
    ledger: str | os.PathLike[str],
    *,
    secret: bytes | None,
    anchor: str | os.PathLike[str],
) -> Copied:
    """Put a copy in the place of a ledger that is lost, if its anchor says that the copy is the newest.

    Parameters
    ----------
    copy : path
    ledger : path
        A file that does not exist: move what is left of the old one away first.
    secret : bytes, optional
        As for :class:`Ledger`.
    anchor : path
        The lost ledger's own anchor; for a rehearsal elsewhere, the one beside the copy.

    Raises
    ------
    LedgerError
        The copy is behind the anchor: answers left after it was made, and nobody would count them.
    """
    source, target = Path(copy), Path(ledger)
    _require_file(source)
    if not Path(anchor).is_file():
        raise LedgerError(
            f"there is no anchor at {anchor}, so it is not known whether {copy} is the newest copy: type "
            f"the ledger's own anchor, or count its whole budget as spent"
        )
    for path in (target, Path(f"{target}-wal"), Path(f"{target}-shm")):
        if os.path.lexists(path):
            raise LedgerError(f"{path} exists: move it away first, and keep it")
    with Ledger(source, secret=secret, anchor=anchor, read_only=True) as opened:
        opened.verify()
        copied = Copied(opened.count(), opened.head)
    _copy(source, target)
    return copied


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise LedgerError(f"there is no ledger at {path}: for PostgreSQL use pg_dump and pg_restore")


def _copy(source: Path, target: Path) -> None:
    """Copy all pages in one transaction, atomically, to stable storage."""

    def fill(path: Path) -> None:
        with closing(sqlite.watch(source)) as read, closing(sqlite3.connect(path)) as written:
            read.backup(written)

    with sqlite.explained(str(target)):
        files.write(target, fill, private=True)
