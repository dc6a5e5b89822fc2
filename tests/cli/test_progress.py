"""Progress: bars on a terminal, lines elsewhere, and the same text in every process."""

import contextlib
import os
import pty
import subprocess
import sys

PROBE = """
import time
from ostraka.console import Stages
with Stages({"teachers": "teachers trained", "student": "student trained"}) as tell:
    for done in range(3):
        tell("teachers", done + 1, 3)
    tell("teachers", 1, 3)
    tell("student", 1, 1)
"""


def test_without_a_terminal_each_stage_is_one_line():
    run = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    assert run.stdout == ""
    assert run.stderr == "teachers trained: 3\nstudent trained\n"


def all_of(terminal) -> str:
    """What was written to it; a read returns what has come so far."""
    parts = []
    with contextlib.suppress(OSError):  # EIO: nobody writes any more
        while part := os.read(terminal, 100_000):
            parts.append(part)
    return b"".join(parts).decode()


def test_on_a_terminal_there_are_bars_on_stderr_only():
    ours, theirs = pty.openpty()
    run = subprocess.Popen([sys.executable, "-c", PROBE], stdout=subprocess.PIPE, stderr=theirs)
    out, _ = run.communicate(timeout=300)
    os.close(theirs)
    lines = all_of(ours)
    os.close(ours)
    assert out == b""
    assert "teachers trained" in lines
    assert "3/3" in lines
    assert "━" in lines
