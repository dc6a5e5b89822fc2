"""The one durable log: reports, answers chosen once, claims and votes of prompts, in an SQLite file.

Every entry has a digest over the one before, so a changed or missing one is an error and never an end. The
end itself is kept twice: a second file names the newest entry that was acknowledged.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
import weakref
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ostraka.core.ledger import sqlite
from ostraka.core.ledger.budget import LedgerError, OstrakaError
from ostraka.core.ledger.chain import Seal
from ostraka.core.ledger.sqlite import OPENING, FileLock
from ostraka.core.ledger.witness import Anchor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

APPLICATION = 0x6F73746C  # "ostl" in SQLite's header
CHECKPOINT_BYTES = 16 * 2**20  # of SQLite's own log, which is then moved into the file
_TABLE = (
    "CREATE TABLE entry (seq INTEGER PRIMARY KEY, key TEXT, body BLOB NOT NULL, digest BLOB NOT NULL) STRICT"
)
_PIECE = 100  # entries that are read at once
_Row = tuple[int, str | None, bytes, bytes]
DAMAGED = "is damaged: keep it, and put the newest copy of it and of its .end back"
_ADVICE = {
    sqlite3.SQLITE_NOTADB: "is no log of ostraka: move it away, or name another folder",
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_BUSY: "is held by another process, and nothing was kept: try again when that is done",
    sqlite3.SQLITE_FULL: "cannot grow, the disk is full, and nothing was kept: free some space, try again",
}
_PASSING = sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL  # nothing was written, and another try may succeed
_IN_DOUBT = "failed while it wrote, so it is unknown whether the last entry is kept: start again"


class LogError(OstrakaError):
    """The log is damaged, in doubt or in use. What was asked to be kept was not acknowledged."""


class Log:
    """Entries in order, each on stable storage before it is acknowledged; under one key the first one counts.

    Parameters
    ----------
    path : path, optional
        The file, which is created if it is missing, and beside it ``….end``. None: in memory.
    name : str
        What the log is of, such as a task's digest. A log of another name is refused.
    earlier : str
        Pattern of the files that earlier versions kept in the folder instead. Where there are some, a new log
        is refused: it would forget them.
    alone : bool
        Lock out all other programs until closed. Otherwise several processes may append.

    Raises
    ------
    LogError
        An entry was changed or is missing, the end is lost, or another program holds the file.

    Guarantees
    ----------
    What was acknowledged is there after a crash or a power cut, or the log does not open. After a write that
    failed nothing is acknowledged until the log is opened again, and opening first writes what may never have
    reached the disk. A folder that was put back whole, as it was before, is not noticed.

    Examples
    --------
    >>> log = Log(None, name="example")
    >>> log.append(b"one"), log.once("answer", b"first"), log.once("answer", b"second")
    (1, b'first', b'first')
    >>> [body for _, body in log.entries()]
    [b'one', b'first']
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, *, name: str, earlier: str = "", alone: bool = False
    ) -> None:
        self.path = ":memory:" if path is None else os.fspath(path)
        self._mutex, self._trouble = threading.RLock(), ""
        self._genesis = _link(b"", 0, "ostraka log", name.encode())
        self.count, self._head = 0, self._genesis
        self._keys: dict[str, int] = {}
        self._lock: FileLock | None = None
        self._anchor: Anchor | None = None
        self._release: Callable[[], object]
        self._before = self.count, self._head
        if path is None:
            self._db = sqlite.connect(":memory:")
            self._release = weakref.finalize(self, self._db.close)
            self._db.execute(_TABLE)
            return
        with _explained(self.path), OPENING:
            folder = Path(path).parent
            if earlier and not os.path.lexists(path):
                for old in folder.glob(earlier):
                    raise LogError(
                        f"{old} was written by an earlier ostraka: finish this round with that version, or "
                        "begin a new one in another folder"
                    )
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._db, self._lock = sqlite.open_table(
                self.path, _TABLE, APPLICATION, "log of ostraka", alone=alone
            )
            self._release = weakref.finalize(self, _release, self._db, self._lock)  # also of a dropped log
        try:
            with _explained(self.path):
                self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        anchor = self._anchor = Anchor(f"{self.path}.end", Seal(None))
        self._db.execute("BEGIN IMMEDIATE")  # so that no other process begins the log meanwhile
        end = anchor.read()
        self._follow()
        if end is None and self.count:
            raise LogError(f"{anchor.path} is missing or empty, so a loss would not be noticed: put it back")
        if end is not None and (end[0] > self.count or end[1] != self._digest_of(end[0])):
            raise LogError(
                f"{self.path} lacks entry {end[0]} that {anchor.path} names, so it is damaged, an older copy "
                "or another log: put the newest copy of both back"
            )
        anchor.write(self.count, self._head)
        self._db.execute("ROLLBACK")

    def append(self, *bodies: bytes) -> int:
        """Add entries without a key durably, in one transaction; return the number of the last."""
        with self._writing():
            self._add([(None, body) for body in bodies])
            return self.count

    def once(self, key: str, body: bytes) -> bytes:
        """Keep a body under a key, unless one is kept; return the kept one. One process decides."""
        return self.once_each([(key, body)])[0]

    def once_each(self, entries: Sequence[tuple[str, bytes]]) -> list[bytes]:
        """Keep each body under its key as :meth:`once` does, all in one transaction."""
        with self._writing():
            first = dict(reversed(entries))
            self._add([(key, body) for key, body in first.items() if key not in self._keys])
            return [self._body(key) for key, _ in entries]

    def answer(self, key: str, request: bytes, work: Callable[[], bytes]) -> bytes:
        """Return the one answer under a key, to the first request; ValueError if another one was first.

        The request is durable before ``work`` is called, and the answer before it is returned. After a crash
        in between, ``work`` is called again for the same request: the first answer never left.
        """
        if self.once(f"request {key}", request) != request:
            raise ValueError("this round was answered for another request")
        return self.get(f"answer {key}") or self.once(f"answer {key}", work())

    def get(self, key: str) -> bytes | None:
        """Return what is kept under a key."""
        with self._reading():
            return self._body(key) if key in self._keys else None

    def entries(self, after: int = 0) -> Iterator[tuple[str | None, bytes]]:
        """Yield key and body of every entry behind number ``after``, those of other processes included."""
        with self._reading():
            end, head = self.count, self._digest_of(after)
        while after < end:
            with self._reading():
                piece = list(self._rows(after, head, limit=_PIECE))
            yield from ((key, body) for _, key, body, _ in piece)
            after, head = after + len(piece), piece[-1][-1]

    def number(self, key: str) -> int:
        """Return the number of the entry with a key."""
        return self._keys[key]

    @property
    def head(self) -> str:
        """The digest over all entries, in hexadecimal."""
        return self._head.hex()

    def close(self) -> None:
        """Close the files."""
        with self._mutex, OPENING:
            self._trouble = "is closed"
            self._release()
            if self._anchor is not None:
                self._anchor.close()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Hold the log, and read what other processes added."""
        with self._mutex, _explained(self.path):
            self._check_usable()
            self._follow()
            yield

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Keep other writers out; what was added is durable when the block ends, or the log is in doubt."""
        with self._mutex, _explained(self.path):
            self._check_usable()
            self._trouble, self._before = _IN_DOUBT, (self.count, self._head)
            try:
                with contextlib.suppress(FileNotFoundError):
                    if self._lock is not None and Path(f"{self.path}-wal").stat().st_size > CHECKPOINT_BYTES:
                        sqlite.checkpoint(self._db)
                self._db.execute("BEGIN IMMEDIATE")
                self._follow()
                self._before = self.count, self._head
                yield
                self._db.execute("COMMIT")
            except BaseException as error:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                if getattr(error, "sqlite_errorcode", -1) & 0xFF in _PASSING:  # surely nothing was written
                    self.count, self._head = self._before
                    self._keys = {key: number for key, number in self._keys.items() if number <= self.count}
                    self._trouble = ""
                raise
            if self._anchor is not None and self._before[0] < self.count:
                self._anchor.write(self.count, self._head)
            self._trouble = ""

    def _check_usable(self) -> None:
        if self._lock is not None and not self._trouble and not self._lock.is_same_file():
            self._trouble = "was removed or replaced while it was open: put the newest copy back"
        if self._trouble:
            raise LogError(f"{self.path} {self._trouble}")

    def _add(self, entries: Sequence[tuple[str | None, bytes]]) -> None:
        rows = []
        for key, body in entries:
            self._head = _link(self._head, self.count + 1, key, body)
            self.count += 1
            rows.append((self.count, key, body, self._head))
            if key is not None:
                self._keys[key] = self.count
        self._db.executemany("INSERT INTO entry VALUES (?, ?, ?, ?)", rows)

    def _follow(self) -> None:
        """Read and check the entries that were added since, by any process."""
        for number, key, _, head in self._rows(self.count, self._head):
            if key is not None and self._keys.setdefault(key, number) != number:
                raise LogError(f"{self.path} {DAMAGED} (entry {number} has the key of another)")
            self.count, self._head = number, head

    def _rows(self, after: int, head: bytes, *, limit: int = -1) -> Iterator[_Row]:
        query = "SELECT seq, key, body, digest FROM entry WHERE seq > ? ORDER BY seq LIMIT ?"
        for number, key, body, digest in self._db.execute(query, (after, limit)):
            head = _link(head, after + 1, key, body)
            after += 1
            if (number, digest) != (after, head):
                raise LogError(f"{self.path} {DAMAGED} (entry {after} was changed or is missing)")
            yield number, key, body, digest

    def _digest_of(self, number: int) -> bytes:
        if number == 0:
            return self._genesis
        row = self._db.execute("SELECT digest FROM entry WHERE seq = ?", (number,)).fetchone()
        return bytes(row[0]) if row else b""

    def _body(self, key: str) -> bytes:
        number = self._keys[key]
        for _, named, body, _ in self._rows(number - 1, self._digest_of(number - 1), limit=1):
            if named == key:
                return body
        raise LogError(f"{self.path} {DAMAGED} (entry {number} is missing)")


def _link(before: bytes, number: int, key: str | None, body: bytes) -> bytes:
    """The digest over the previous digest and the fields: an injective encoding."""
    name = b"" if key is None else b"=" + key.encode()
    link = hashlib.blake2b(before, digest_size=32)
    link.update(b"%d %d %d\0" % (number, len(name), len(body)) + name)
    link.update(body)
    return link.digest()


def _release(db: sqlite3.Connection, lock: FileLock) -> None:
    with OPENING:
        db.close()
        lock.close()


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Turn errors of SQLite and the system into one sentence with the path and what to do."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        advice = _ADVICE.get(code, "could not be used, and nothing was kept")
        raise LogError(f"{path} {advice} (SQLite: {error})") from error
    except OSError as error:
        raise LogError(f"{path} cannot be used ({error.strerror or error}): choose another folder") from error
    except LedgerError as error:  # of the files that ledgers and logs have alike
        raise LogError(str(error)) from error
    except (AttributeError, OverflowError, TypeError, UnicodeDecodeError) as error:  # of a damaged row
        raise LogError(f"{path} {DAMAGED} ({type(error).__name__})") from error
