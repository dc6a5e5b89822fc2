"""How many files see something private between ``ostraka learn`` and its report.

A file counts if one of its functions is called with a thing that is private, or that holds one:
a ``Private``, or an array, list or table with as many entries as there are private rows or teachers.
Both numbers are primes that nothing else has.
"""

import contextlib
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import ostraka
import ostraka.cli
from ostraka.core.private import Private

ROOT = str(Path(ostraka.__file__).parent)
N_ROWS, N_TEACHERS = 1009, 67
MOST_FILES = 31
MOST_CALLS = 100  # of one function to look at


def table(path: Path, n: int, seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=(n, 3))
    lines = [f"{a},{b},{c},{int(a > 0)}" for a, b, c in x]
    path.write_text("\n".join(["a,b,c,y", *lines]) + "\n")


def is_private(value: object, depth: int = 0) -> bool:
    """Whether it is one of the private things, or holds one within three levels."""
    module = type(value).__module__.partition(".")[0]
    if isinstance(value, Private):
        return True
    if isinstance(value, np.ndarray):
        votes = value.ndim == 2 and value.dtype != object and value.shape[1] == 2
        return bool(
            {N_ROWS, N_TEACHERS} & set(value.shape) or (votes and (value.sum(axis=1) == N_TEACHERS).all())
        )
    if module in {"pyarrow", "narwhals"}:
        return hasattr(value, "__len__") and len(value) == N_ROWS
    inside: list = []
    if isinstance(value, list | tuple):
        if len(value) in {N_ROWS, N_TEACHERS}:
            return True
        inside = list(value[:20])
    elif module == "ostraka":
        names = set(getattr(type(value), "__slots__", ())) - {"__weakref__"}  # which Python 3.11.2 cannot get
        slots = [getattr(value, name, None) for name in names]
        inside = [*getattr(value, "__dict__", {}).values(), *slots]
    return depth < 3 and any(is_private(item, depth + 1) for item in inside)


@contextlib.contextmanager
def watched():
    """Files of the package, each with its functions that were handed something private."""
    files: dict[str, set[str]] = {}
    calls: Counter = Counter()
    inside = False

    def called(frame, event, _):
        nonlocal inside
        code = frame.f_code
        if event != "call" or inside or not code.co_filename.startswith(ROOT) or not code.co_flags & 2:
            return
        calls[code] += 1
        if calls[code] > MOST_CALLS or code.co_name in files.get(code.co_filename, ()):
            return
        inside = True
        try:
            if any(is_private(value) for value in list(frame.f_locals.values())):
                files.setdefault(code.co_filename, set()).add(code.co_name)
        finally:
            inside = False

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        yield files
    finally:
        sys.setprofile(before)


def test_a_private_row_enters_few_files_between_the_command_and_the_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table(Path("private.csv"), N_ROWS, 0)
    table(Path("public.csv"), 107, 1)
    words = ["learn", "private.csv", "--label", "y", "--public", "public.csv", "--jobs", "1"]
    words += ["--teachers", str(N_TEACHERS), "--answers", "10", "--epsilon", "3", "--yes"]
    with watched() as files, pytest.raises(SystemExit) as ending:
        ostraka.cli.main(words)
    assert ending.value.code == 0
    names = {name.removeprefix(ROOT) for name in files}
    assert {"/learn/cli.py", "/learn/classifier.py", "/voters/teachers.py"} <= names
    assert "/report.py" not in names
    assert len(files) <= MOST_FILES, {
        name.removeprefix(ROOT): sorted(functions) for name, functions in files.items()
    }
