"""Durable files of acknowledged reports, of the set of survivors, and of the answer to a round."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["AnswerStore", "ReportLog", "chosen_once", "keep_file", "made"]

_LENGTH = 4  # bytes of the length in front of each record
_CHECK = 8  # bytes of a checksum behind it


def keep_file(path: Path, content: bytes) -> None:
    """Write a file durably and atomically, readable by its owner only."""
    other = path.with_name(f"{path.name}.new")
    handle = os.open(other, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    other.replace(path)
    _sync_folder(path.parent)


def chosen_once(path: Path, content: bytes) -> bytes:
    """Write a file unless it exists; return its content. Of several processes, one decides."""
    own = path.with_name(f"{path.name}.{os.getpid()}")
    keep_file(own, content)
    try:
        os.link(own, path)
    except FileExistsError:
        return path.read_bytes()
    finally:
        own.unlink()
        _sync_folder(path.parent)
    return content


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def made(folder: str | os.PathLike[str] | None) -> Path | None:
    """Return the folder, which is created if it is missing."""
    if folder is None:
        return None
    path = Path(folder)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


class AnswerStore:
    """One answer to one request for each round; the same request gets the same answer again."""

    def __init__(self, folder: str | os.PathLike[str] | None, name: str) -> None:
        self._folder, self._name = made(folder), name
        self._requests: dict[int, bytes] = {}
        self._answers: dict[int, bytes] = {}

    def once(self, round_: int, request: bytes, work: Callable[[], bytes]) -> bytes:
        """Return the answer of this round; ValueError if another request was chosen before.

        The request is durable before ``work`` is called, and the answer before it is returned. After a crash
        in between, ``work`` is called again for the same request: the first answer never left.
        """
        if round_ not in self._requests:
            self._requests[round_] = self._chosen(round_, request)
        if self._requests[round_] != request:
            raise ValueError("this round was answered for another request")
        if round_ not in self._answers:
            self._answers[round_] = self._answered(round_, work)
        return self._answers[round_]

    def _chosen(self, round_: int, request: bytes) -> bytes:
        if self._folder is None:
            return request
        return chosen_once(self._folder / f"{self._name}-{round_}.request", request)

    def _answered(self, round_: int, work: Callable[[], bytes]) -> bytes:
        if self._folder is None:
            return work()
        path = self._folder / f"{self._name}-{round_}.answer"
        if not path.exists():
            keep_file(path, work())
        return path.read_bytes()


class ReportLog:
    """An append-only file of records. A record counts once :meth:`append` has returned."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        _sync_folder(path.parent)
        self._end = 0
        self._broken = False

    def records(self) -> Iterator[bytes]:
        """Yield every whole record; cut off what follows a torn one, which was never acknowledged."""
        yield from self.unread()
        os.ftruncate(self._handle, self._end)
        os.fsync(self._handle)

    def unread(self) -> Iterator[bytes]:
        """Yield the whole records behind those read before; another process may be writing the next."""
        while (record := self._next()) is not None:
            yield record
            self._end += _LENGTH + len(record) + _CHECK

    def append(self, record: bytes) -> None:
        """Append a record durably. After a failure nothing is appended until the file is read again."""
        if self._broken:
            raise OSError("the file of reports failed before: restart the tally")
        self._broken = True
        left = memoryview(len(record).to_bytes(_LENGTH, "little") + record + _checksum(record))
        while left:
            left = left[os.write(self._handle, left) :]
        os.fsync(self._handle)
        self._broken = False

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)

    def _next(self) -> bytes | None:
        head = os.pread(self._handle, _LENGTH, self._end)
        left = os.fstat(self._handle).st_size - self._end - _LENGTH - _CHECK
        length = int.from_bytes(head, "little")
        if len(head) < _LENGTH or length > left:
            return None
        found = os.pread(self._handle, length + _CHECK, self._end + _LENGTH)
        record = found[:length]
        return record if found[length:] == _checksum(record) else None


def _checksum(record: bytes) -> bytes:
    return hashlib.blake2b(record, digest_size=_CHECK).digest()
