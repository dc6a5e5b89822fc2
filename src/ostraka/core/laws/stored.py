"""Tables of this package, and in the user's cache folder.

A file that is not exactly what was written is as good as none.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

_VERSION = "4"  # of the grids and of the families: another one, other files
_DIGEST = 32
_LARGEST = 4 << 20  # bytes
_MOST = 256 << 20  # bytes of all files
_BLOCK = 4096  # bytes that a file takes at least


def read(path: Path, digest: str) -> np.ndarray | None:
    """The 16-bit numbers of a file of this package; None if it is not as it was written."""
    content = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(content).hexdigest() != digest:
        return None
    return np.frombuffer(content, dtype="<u2")


def write(path: Path, table: np.ndarray) -> None:
    """Write such a file, and print the digest that the code is to hold."""
    path.write_bytes(table.tobytes())
    sys.stdout.write(f"{path.name}: {hashlib.sha256(table.tobytes()).hexdigest()}\n")


def load(name: str) -> np.ndarray | None:
    """The array that was saved under this name; None if it is missing or fails a check."""
    with contextlib.suppress(OSError):
        path = _path(name)
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.getuid() or status.st_mode & 0o077 or status.st_size > _LARGEST:
                return None
            content = file.read()
        with contextlib.suppress(OSError):  # a folder that may only be read
            os.utime(path)  # the folder forgets what was used longest ago
        body = content[_DIGEST:]
        if content[:_DIGEST] == _digest(name, body) and len(body) % 8 == 0:
            return np.frombuffer(body, dtype="<f8").astype(np.float64)
    return None


def save(name: str, array: np.ndarray) -> None:
    """Write a file that others cannot read, and put it in place at once; a folder that refuses is let be.

    The folder keeps 256 MiB. Beyond that the files that were used longest ago are removed.
    """
    body = np.ascontiguousarray(array, dtype="<f8").tobytes()
    with contextlib.suppress(OSError):
        path = _path(name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)  # mode 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_digest(name, body) + body)
            Path(temporary).replace(path)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
        if path.name.startswith("0"):  # one file in sixteen: to look at all of them takes a while
            files = []
            for other in path.parent.iterdir():
                with contextlib.suppress(FileNotFoundError):  # another process removed it
                    status = other.stat()
                    files.append((status.st_mtime_ns, status.st_size, other))
            kept = 0
            for _, size, other in sorted(files, reverse=True):
                kept += max(size, _BLOCK)
                if kept > _MOST:
                    other.unlink(missing_ok=True)


def _path(name: str) -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "ostraka" / "composition" / hashlib.sha256(f"{_VERSION} {name}".encode()).hexdigest()


def _digest(name: str, body: bytes) -> bytes:
    return hashlib.sha256(f"{_VERSION} {name}\n".encode() + body).digest()
