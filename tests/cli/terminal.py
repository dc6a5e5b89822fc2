"""Commands typed in this process, which is quicker than one of their own."""

import contextlib
import io
from typing import NamedTuple

import pytest

import ostraka.cli


class Said(NamedTuple):
    """The exit code of a command, and what it printed."""

    code: int
    out: str
    err: str


def typed(*words: object) -> Said:
    """What ``ostraka`` and these words do."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as left:
        ostraka.cli.main([str(word) for word in words])
    assert "Traceback" not in err.getvalue()
    assert "unexpected" not in err.getvalue()
    return Said(left.value.code, out.getvalue(), err.getvalue())
