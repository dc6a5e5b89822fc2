"""Tests on changed sources, in a fork of a process that has loaded the libraries.

A process that starts anew would take seconds for each test. Nothing on disk changes: the import system loads
one module from another text. A test that starts a process of its own sees the sound sources there. Numba's
cache of machine code is by file, so what is compiled cannot be changed here.
"""

from __future__ import annotations

import importlib
import math
import os
import re
import resource
import signal
import tempfile
import time
import warnings
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

    A finder of our own would not be asked: old names are found by one of the package that comes first. What
    pytest rewrites it reads itself: a file of doctests that it is asked to run. So it must rewrite nothing.
    """
    sound = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> Any:
        if fullname == change.module:
            with warnings.catch_warnings():  # pytest would fail for ``is`` with a literal, whatever tests say
                warnings.simplefilter("ignore", SyntaxWarning)
                return compile(change.text, change.path, "exec", dont_inherit=True)
        return sound(self, fullname)

    SourceFileLoader.get_code = get_code


class _Record:
    """A plugin of pytest that writes down which tests begin."""

    def __init__(self, file: int) -> None:
        self.file = file

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        os.write(self.file, f"{nodeid}\n".encode())


def attempt(
    tests: Sequence[str], change: Change | None = None, *, deadline: float = 180.0
) -> tuple[bool, list[str]]:
    """Run tests in a fork of this process, up to the first that fails.

    Returns
    -------
    bool
        Whether one fails, or they do not end within so many seconds of a processor. On a busy machine sound
        tests take many times as long by the clock; after ten times as long, tests that only wait fail, too.
    list of str
        The tests that have begun, in this order; none where a file of tests cannot be loaded.
    """
    os.chdir(REPOSITORY)
    for name in _LIBRARIES:
        importlib.import_module(name)
    with tempfile.TemporaryFile() as record, tempfile.TemporaryDirectory() as tables:
        child = os.fork()
        if child == 0:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(deadline), resource.RLIM_INFINITY))
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            if change is not None:
                load_changed(change)
                if change.module.startswith("ostraka.core."):
                    # tables of sound sources would hide the change, and its own would stay
                    os.environ["XDG_CACHE_HOME"] = tables
            try:
                pytest = importlib.import_module("pytest")
                options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", "--assert=plain"]
                status = int(pytest.main([*options, *tests], plugins=[_Record(record.fileno())]))
            except BaseException:  # noqa: BLE001  (whatever a changed text raises is noticed)
                status = FAILED
            os._exit(status)
        end, process, status = time.monotonic() + 10 * deadline, 0, 0
        while not process and time.monotonic() < end:
            time.sleep(0.02)
            process, status = os.waitpid(child, os.WNOHANG)
        if not process:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
        record.seek(0)
        names = record.read().decode().splitlines()
    return not process or os.waitstatus_to_exitcode(status) != PASSED, names
