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


def typed(*words: object, unexpected: bool = False) -> Said:
    """What ``ostraka`` and these words do; they say so where an error is ``unexpected``, and nowhere else."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ending,
    ):
        ostraka.cli.main([str(word) for word in words])
    assert "Traceback" not in err.getvalue()
    assert ("unexpected" in err.getvalue()) == unexpected, err.getvalue()
    return Said(ending.value.code, out.getvalue(), err.getvalue())
