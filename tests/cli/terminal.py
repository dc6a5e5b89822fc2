"""Commands typed in this process, which is quicker than one of their own."""

import contextlib
import gc
import io
import queue
import threading
from typing import ClassVar, NamedTuple

import pytest

import ostraka.cli
from ostraka.cli import verbs

PATIENCE = 120  # seconds on a busy machine


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


class Role:
    """A verb in a thread of its own: what it prints first is its address, and ``said`` is what follows."""

    speaking: ClassVar[dict[int, queue.Queue]] = {}

    def __init__(self, group, *words):
        self.app = verbs.command(group).commands[group]
        self.output, self.error = queue.Queue(), None
        self.thread = threading.Thread(target=self._run, args=([str(word) for word in words],), daemon=True)
        self.thread.start()
        self.url = self.output.get(timeout=PATIENCE)

    def _run(self, words):
        self.speaking[threading.get_ident()] = self.output
        try:
            self.app.main(words, standalone_mode=False)
        except BaseException as error:  # noqa: BLE001  (the test that waits for it raises it)
            self.error = error
            self.output.put(f"{error}")

    def said(self):
        """All lines after the address, once it has ended."""
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        gc.collect()  # as if its process had ended
        if self.error is not None:
            raise self.error
        return list(self.output.queue)
