"""Tests on changed sources, in a fork of a process that has loaded the libraries.

A process that starts anew would take seconds for each test. Nothing on disk changes: the import system loads
one module from another text. A test that starts a process of its own sees the sound sources there. Numba's
cache of machine code is by file, so what is compiled cannot be changed here.
"""

from __future__ import annotations

import importlib
import os
import re
import signal
import time
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = REPOSITORY / "src" / "ostraka"
PASSED, FAILED = 0, 1  # what pytest's exit status must be one of: anything else is no verdict
COMPILED = re.compile("njit|^@kernel", re.MULTILINE)
_LIBRARIES = ("pandas", "pytest", "scipy.optimize", "scipy.stats", "sklearn.linear_model", "mpmath")


@dataclass(frozen=True)
class Change:
    """Another text of one file of the package."""

    path: Path
    text: str

    @property
    def module(self) -> str:
        """The name of the module."""
        parts = self.path.relative_to(REPOSITORY / "src").with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def load_changed(change: Change) -> None:
    """From now on this process loads the module from the changed text, whichever finder leads to its file.

    A finder of our own would not be asked: old names are found by one of the package that comes first, and
    pytest looks for the file of a doctest itself.
    """
    sound = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> Any:
        if fullname == change.module:
            return compile(change.text, change.path, "exec", dont_inherit=True)
        return sound(self, fullname)

    SourceFileLoader.get_code = get_code


def fails(tests: Sequence[str], change: Change | None = None, *, deadline: float = 180.0) -> bool:
    """Whether one of the tests fails in a fork of this process, or they do not end within so many seconds."""
    os.chdir(REPOSITORY)
    for name in _LIBRARIES:
        importlib.import_module(name)
    child = os.fork()
    if child == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        if change is not None:
            load_changed(change)
        try:
            pytest = importlib.import_module("pytest")
            status = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", *tests]))
        except BaseException:  # noqa: BLE001  (whatever a changed text raises is noticed)
            status = FAILED
        os._exit(status)
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        process, status = os.waitpid(child, os.WNOHANG)
        if process:
            return os.waitstatus_to_exitcode(status) != PASSED
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True
