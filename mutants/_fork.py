"""Tests on changed sources, in a fork of a process that has loaded the libraries.

A process that starts anew would take seconds for each test. Nothing on disk changes: the import system loads
one module from another text. A test that starts a process of its own sees the sound sources there. Numba's
cache of machine code is by file, so what is compiled cannot be changed here.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import os
import re
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

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


class Sources(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module from a text in place of its file."""

    def __init__(self, change: Change) -> None:
        self._change = change

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        """Where a module is loaded from: none but the changed one from here."""
        if name != self._change.module:
            return None
        return importlib.util.spec_from_file_location(name, self._change.path, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the changed text."""
        exec(compile(self._change.text, self._change.path, "exec", dont_inherit=True), module.__dict__)


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
            sys.meta_path.insert(0, Sources(change))
        try:
            if change is not None:  # before a doctest reads the file itself
                importlib.import_module(change.module)
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
