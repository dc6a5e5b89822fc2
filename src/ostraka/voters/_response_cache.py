"""A cache of a language model's answers, in memory or in a file."""

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

__all__ = ["ResponseCache"]

_FORMAT, _VERSION = "cassette", 1  # in the first line of every file
_KEY_BYTES = 32


class ResponseCache:
    """Answers by name. A name is a keyed hash of a prompt, so the file contains no prompt.

    The file is private: it holds the key, and each answer is a teacher's ballot, so that a reader can test a
    guess of a demonstration. Only its owner may read it.

    The file is append-only, with one line for each answer. A line is on stable storage before :meth:`record`
    returns. A line that a crash cut off fails its checksum and is ignored. Several processes may append; the
    first of two answers to one prompt counts.
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
        """32 bytes that only this cache can compute."""
        return hmac.digest(self._key, b"secret\0" + purpose.encode(), "sha256")

    def name(self, settings: str, prompt: str) -> str:
        """The name of a prompt's answer under these settings, which contain no zero byte."""
        content = f"question\0{settings}\0{prompt}".encode(errors="surrogatepass")
        return hmac.digest(self._key, content, "sha256").hex()

    def __contains__(self, name: str) -> bool:
        return name in self._answers

    def __getitem__(self, name: str) -> str | None:
        return self._answers[name]

    def load(self) -> None:
        """Read the lines that were appended since the last time, by any process."""
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
        """Store answers durably; None stands for a prompt that the model cannot answer."""
        answers = list(answers)
        with self._lock:
            if self.path is not None:
                self._write(b"".join(self._line(name, answer) for name, answer in answers))
            for name, answer in answers:
                self._answers.setdefault(name, answer)

    def close(self) -> None:
        """Close the file until the next answer."""
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
        except BaseException:  # half a line may be written: the next line must not continue it
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None
            raise

    def _opened_for_append(self) -> BinaryIO:
        """Open the file; end a line that a crash cut off."""
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
    """The key of the cache file; a new file gets a new key, unless another process creates it first."""
    if not path.exists():
        begun = {"ostraka": _FORMAT, "version": _VERSION, "key": os.urandom(_KEY_BYTES).hex()}
        _files.create(path, json.dumps(begun).encode() + b"\n")
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise ValueError(f"{path} holds private answers, but others can read it: type chmod 600 {path}")
    with path.open("rb") as file:
        first = file.readline()
    key = b""
    with contextlib.suppress(ValueError, TypeError, KeyError):
        header = json.loads(first)
        if (header["ostraka"], header["version"]) == (_FORMAT, _VERSION):
            key = bytes.fromhex(header["key"])
    if len(key) != _KEY_BYTES or not first.endswith(b"\n"):
        raise ValueError(f"{path} is not a response cache of ostraka: name another file, or restore a backup")
    return key
