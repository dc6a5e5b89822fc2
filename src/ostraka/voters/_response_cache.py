"""Cassettes: every answer of a language model, written down once and replayed."""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ostraka import _files

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import BinaryIO

__all__ = ["Cassette"]

_VERSION = 1
_KEY_BYTES = 32


class Cassette:
    """Answers by the name of their question; a name is a keyed hash, so no question is in the file.

    The file is private all the same. It holds the key, and each answer is a teacher's ballot:
    whoever reads it can test a guess at a demonstration. Its owner alone may read it.

    It only grows, a line an answer, each on stable storage before :meth:`record` returns. A line cut
    off by a crash fails its checksum and counts as never written. Several processes may append; of
    two answers to one question the first is the answer.
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = None if path is None else Path(path)
        self._answers: dict[str, str | None] = {}
        self._lock = threading.Lock()
        self._file: BinaryIO | None = None
        self._read = 0
        self._key = os.urandom(_KEY_BYTES)
        if self.path is not None:
            self._key = _opened(self.path)
            self.load()

    def secret(self, purpose: str) -> bytes:
        """32 bytes that only this cassette can make again."""
        return hmac.digest(self._key, b"secret\0" + purpose.encode(), "sha256")

    def name(self, setting: str, prompt: str) -> str:
        """What a prompt under a setting is filed under; no setting contains a zero byte."""
        question = f"question\0{setting}\0{prompt}".encode(errors="surrogatepass")
        return hmac.digest(self._key, question, "sha256").hex()

    def __contains__(self, name: str) -> bool:
        return name in self._answers

    def __getitem__(self, name: str) -> str | None:
        return self._answers[name]

    def load(self) -> None:
        """Read what was appended since the last time, here or by another process."""
        if self.path is None:
            return
        with self._lock, self.path.open("rb") as file:
            file.seek(self._read)
            new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._read += len(whole)
            for line in whole.splitlines():
                self._add(line)

    def record(self, answers: Iterable[tuple[str, str | None]]) -> None:
        """File answers, None for a question the model cannot be asked; durable on return."""
        answers = list(answers)
        with self._lock:
            if self.path is not None:
                self._write(b"".join(self._line(name, answer) for name, answer in answers))
            for name, answer in answers:
                self._answers.setdefault(name, answer)

    def close(self) -> None:
        """Let go of the file until the next answer."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _write(self, lines: bytes) -> None:
        if self._file is None:
            self._file = self._opened_for_append()
        try:
            self._file.write(lines)
            self._file.flush()
            os.fsync(self._file.fileno())
        except BaseException:  # half a line may be there: the next one must not be glued to it
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None
            raise

    def _opened_for_append(self) -> BinaryIO:
        """Behind a line that a crash cut off, a new line begins."""
        assert self.path is not None  # noqa: S101  (for the type checker)
        with self.path.open("rb") as written:
            written.seek(-1, os.SEEK_END)
            torn = written.read(1) != b"\n"
        file = self.path.open("ab")
        if torn:
            file.write(b"\n")
        return file

    def _line(self, name: str, answer: str | None) -> bytes:
        line = {"name": name, "answer": answer, "check": self._check(name, answer)}
        return json.dumps(line).encode() + b"\n"

    def _check(self, name: str, answer: str | None) -> str:
        return hmac.digest(self._key, f"line\0{name}\0{json.dumps(answer)}".encode(), "sha256").hex()[:16]

    def _add(self, line: bytes) -> None:
        with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
            record: dict[str, Any] = json.loads(line)
            name, answer = record["name"], record["answer"]
            if secrets.compare_digest(record["check"], self._check(name, answer)):
                self._answers.setdefault(name, answer)


def _opened(path: Path) -> bytes:
    """The key of the cassette there, begun if there is none, for its owner's eyes only."""
    if not path.exists():
        _begin(path)
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise ValueError(f"{path} holds private answers but others may open it: type chmod 600 {path}")
    with path.open("rb") as file:
        first = file.readline()
    key = b""
    with contextlib.suppress(ValueError, TypeError, KeyError):
        header = json.loads(first)
        if (header["ostraka"], header["version"]) == ("cassette", _VERSION):
            key = bytes.fromhex(header["key"])
    if len(key) != _KEY_BYTES or not first.endswith(b"\n"):
        raise ValueError(f"{path} is no cassette of ostraka: name another file, or take it from a backup")
    return key


def _begin(path: Path) -> None:
    """Put a file with a fresh key in its place whole, or leave the one another process was quicker with."""
    header = {"ostraka": "cassette", "version": _VERSION, "key": os.urandom(_KEY_BYTES).hex()}
    _files.create(path, json.dumps(header).encode() + b"\n")
