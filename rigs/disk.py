"""A recorded disk: what a process wrote and synced, and every state a power cut could have left.

The model is the one of the strictest file systems allowed by POSIX. What was synced is there. Of the
rest anything may be: each write kept or dropped, in any order, torn at 512-byte sectors, with rubbish where
a file grew; each new name, removal or link there or not, until its directory is synced. What a failed sync
had to write is never written any more, although the process still reads it (Linux forgets such pages:
Rebello et al. 2020, "Can applications recover from fsync failures?").
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

__all__ = ["Disk", "Event", "UnavailableError", "arm", "calls", "preload", "recorded"]

SECTOR = 512
MARK = "acknowledged"  # what a process writes to this file is a mark in the recording, not on the disk
_HEAD = struct.Struct("<cQQI")


class UnavailableError(RuntimeError):
    """This machine lacks something that a rig needs: the message says what."""


@dataclass(frozen=True, slots=True)
class Event:
    """One call: New, Write, Truncate, Sync, Directory sync, Link, Rename, Unlink, or Acknowledged."""

    what: str
    inode: int
    at: int
    data: bytes

    @property
    def names(self) -> tuple[str, str]:
        first, _, second = self.data.decode().partition("/")
        return first, second


def preload(folder: Path, *, log: Path | None = None) -> dict[str, str]:
    """Environment of a process whose writes to ``folder`` are to be recorded, or to fail."""
    variables = {"LD_PRELOAD": str(_shim()), "DISK_FOLDER": str(folder)}
    return variables | ({"DISK_LOG": str(log)} if log else {})


def _shim() -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if sys.platform != "linux" or compiler is None:
        raise UnavailableError("recording a disk needs Linux and a C compiler (apt-get install gcc)")
    source = Path(__file__).with_name("disk.c")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    library = Path(tempfile.gettempdir()) / f"ostraka-disk-{os.getuid()}-{digest}.so"
    if not library.exists():
        draft = library.with_suffix(f".{os.getpid()}")
        command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(draft), str(source), "-ldl", "-lpthread"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        draft.rename(library)
    return library


def arm(kind: str, count: int, error: int) -> None:
    """Make the ``count``-th next write ("w"), sync ("s") or change of names ("n") of this process fail."""
    ctypes.CDLL(None).disk_arm(ord(kind), ctypes.c_long(count), error)


def calls(kind: str) -> int:
    """How many calls of a kind this process has made."""
    count = ctypes.CDLL(None).disk_calls
    count.restype = ctypes.c_long
    return int(count(ord(kind)))


def recorded(log: Path) -> Iterator[Event]:
    """The events of a recording, in order."""
    content, at = log.read_bytes(), 0
    while at < len(content):
        what, inode, where, size = _HEAD.unpack_from(content, at)
        at += _HEAD.size
        yield Event(what.decode(), inode, where, content[at : at + size])
        at += size


@dataclass(slots=True)
class _File:
    durable: bytearray = field(default_factory=bytearray)
    cached: bytearray = field(default_factory=bytearray)
    pending: list[Event] = field(default_factory=list)


def _put(content: bytearray, at: int, data: bytes) -> None:
    if len(content) < at:
        content.extend(bytes(at - len(content)))
    content[at : at + len(data)] = data


def _replay(content: bytearray, event: Event) -> None:
    if event.what == "T":
        del content[event.at :]
        content.extend(bytes(event.at - len(content)))
    else:
        _put(content, event.at, event.data)


class Disk:
    """One folder: what is surely on the disk, what may be, and what the processes see."""

    def __init__(self) -> None:
        self._files: dict[int, _File] = {}
        self._names: dict[str, int] = {}  # as the processes see them
        self._durable: dict[str, int] = {}
        self._changes: list[dict[str, int | None]] = []  # not synced: each names an inode, or None (removed)

    def take(self, event: Event) -> None:
        """Let one recorded event happen."""
        match event.what:
            case "W" | "T":
                file = self._files[event.inode]
                file.pending.append(event)
                _replay(file.cached, event)
            case "S":
                self._sync(self._files[event.inode], failed=bool(event.at))
            case "D" if not event.at:
                self._durable = dict(self._names)
                self._changes.clear()
            case "N":
                self._files[event.inode] = _File()
                self._rename({event.data.decode(): event.inode})
            case "L":
                old, new = event.names
                self._rename({new: self._names[old]})
            case "R":
                old, new = event.names
                self._rename({old: None, new: self._names[old]})
            case "U":
                self._rename({event.names[0]: None})

    def _sync(self, file: _File, *, failed: bool) -> None:
        if not failed:
            for event in file.pending:
                _replay(file.durable, event)
        file.pending.clear()

    def _rename(self, change: dict[str, int | None]) -> None:
        self._changes.append(change)
        self._names = _renamed(self._names, change)

    @property
    def unsettled(self) -> int:
        """How many changes a power cut could undo."""
        return len(self._changes) + sum(len(file.pending) for file in self._files.values())

    def seen(self) -> dict[str, bytes]:
        """The files as the processes see them: no power cut."""
        return {name: bytes(self._files[inode].cached) for name, inode in self._names.items() if name != MARK}

    def image(self, rng: random.Random) -> dict[str, bytes]:
        """The files as a power cut may leave them now."""
        names = dict(self._durable)
        for change in _chosen(self._changes, rng):
            names = _renamed(names, change)
        return {name: self._left(self._files[inode], rng) for name, inode in names.items() if name != MARK}

    def _left(self, file: _File, rng: random.Random) -> bytes:
        content = bytearray(file.durable)
        events = _chosen(file.pending, rng)
        if rng.random() < 0.3:
            rng.shuffle(events)
        tearing, rubbish = rng.choice([0.0, 0.0, 0.05, 0.5]), rng.random() < 0.2
        for event in events:
            if event.what == "T" or not tearing:
                _replay(content, event)
                continue
            for at, piece in _sectors(event):
                if rng.random() >= tearing:
                    _put(content, at, piece)
                elif rubbish and at >= len(content):
                    _put(content, at, rng.randbytes(len(piece)))
        return bytes(content)


def _renamed(names: dict[str, int], change: dict[str, int | None]) -> dict[str, int]:
    return {name: inode for name, inode in {**names, **change}.items() if inode is not None}


def _chosen(changes: list, rng: random.Random) -> list:
    """None, all, some in a row, all but one, or any subset."""
    n = len(changes)
    match rng.randrange(6):
        case 0:
            return []
        case 1:
            return list(changes)
        case 2:
            return changes[: rng.randint(0, n)]
        case 3:
            return changes[rng.randint(0, n) :]
        case 4:
            without = rng.randrange(n) if n else 0
            return changes[:without] + changes[without + 1 :]
        case _:
            keep = rng.random()
            return [change for change in changes if rng.random() < keep]


def _sectors(event: Event) -> Iterator[tuple[int, bytes]]:
    at, end = event.at, event.at + len(event.data)
    while at < end:
        until = min(end, (at // SECTOR + 1) * SECTOR)
        yield at, event.data[at - event.at : until - event.at]
        at = until
