"""Time and memory of one thing, in a process of its own, so that its memory is its own."""

from __future__ import annotations

import compileall
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import ostraka

__all__ = ["Spent", "apart"]

SCRIPT = """
{setup}
import json as _json, os as _os, resource as _resource, time as _time
_WHO = _resource.RUSAGE_SELF, _resource.RUSAGE_CHILDREN
def _peak(): return sum(_resource.getrusage(who).ru_maxrss for who in _WHO) / 1024
def _used(): return sum(_os.times()[2:4]) + _time.process_time()
_before, _wall, _cpu = _peak(), _time.perf_counter(), _used()
{work}
print(_json.dumps([_time.perf_counter() - _wall, _used() - _cpu, _peak(), _before]))
"""


class Spent(NamedTuple):
    """Seconds by the clock and of the processor; the largest memory in MiB, and what it was before.

    Processes that the work starts and ends count, too.
    """

    seconds: float
    processor: float
    peak: float
    before: float

    @property
    def grown(self) -> float:
        """MiB that the work added to the largest memory of its setup."""
        return self.peak - self.before


@cache
def compiled() -> None:
    """Write the byte code of the package, as pip does: else the first call would compile what it loads."""
    compileall.compile_dir(Path(ostraka.__file__).parent, quiet=2)


def apart(setup: str, work: str, *arguments: object) -> Spent:
    """Run two pieces of Python, and measure the second. ``sys.argv`` holds the arguments."""
    compiled()
    script = SCRIPT.format(setup=setup, work=work)
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Spent(*json.loads(done.stdout.splitlines()[-1]))
