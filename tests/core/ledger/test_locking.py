"""Who may have a ledger file open for writing."""

import os
import signal

import pytest

from ostraka.ledger import Ledger, LedgerError
from tests.core.ledger.conftest import ASK


@pytest.fixture(autouse=True)
def ledger_file(path, budget):
    Ledger(path, budget=budget).close()


class TestAnOwner:
    @pytest.mark.parametrize("alone", [False, True])
    def test_shuts_everybody_else_out(self, path, alone):
        with (
            Ledger(path, owner=True),
            pytest.raises(LedgerError, match=r"is owned|is open for writing.*read_only=True"),
        ):
            Ledger(path, owner=alone)
        Ledger(path, owner=alone).close()

    def test_is_refused_while_others_share_it(self, path):
        with Ledger(path), Ledger(path), pytest.raises(LedgerError, match="is open for writing elsewhere"):
            Ledger(path, owner=True)
        Ledger(path, owner=True).close()

    def test_can_be_watched(self, path, gaussian):
        with Ledger(path, owner=True) as ours, Ledger(path, read_only=True) as watcher:
            ours.charge(gaussian(40.0), uses=1, **ASK)
            assert len(watcher.entries()) == 1
            for write in (
                lambda: watcher.charge(gaussian(40.0), uses=1, **ASK),
                lambda: watcher.grant("ann", budget_epsilon=1.0),
                lambda: watcher.charge_each([]),
            ):
                with pytest.raises(LedgerError, match="was opened to be read"):
                    write()

    def test_shuts_out_other_processes_until_it_ends(self, path, start, gaussian):
        process = start(
            """
ledger = Ledger(path, owner=True)
print("ready", flush=True)
sys.stdin.readline()
""",
            path,
        )
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(LedgerError, match="is owned by another process"):
            Ledger(path)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with Ledger(path, owner=True) as ledger:  # what a killed owner leaves behind stops nobody
            assert ledger.charge(gaussian(40.0), uses=1, **ASK) == 1

    def test_is_not_outlived_by_its_forked_children(self, path, start):
        process = start(
            """
import os, time
ledger = Ledger(path, owner=True)
if os.fork() == 0:
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    os._exit(0)
os._exit(0)
""",
            path,
        )
        child = int(process.stdout.readline())
        process.wait()
        try:
            os.kill(child, 0)  # it still runs
            Ledger(path, owner=True).close()
        finally:
            os.kill(child, signal.SIGKILL)

    def test_leaves_nothing_beside_the_file(self, path):
        for options in ({"owner": True}, {}, {"read_only": True}):
            Ledger(path, **options).close()
            assert [file.name for file in path.parent.iterdir()] == [path.name]

    def test_cannot_be_had_twice_by_deleting_what_lies_beside_the_file(self, path, start):
        with Ledger(path, owner=True):
            for companion in path.parent.glob(f"{path.name}-*"):
                if not companion.name.endswith(("-wal", "-shm")):
                    companion.unlink()
            with pytest.raises(LedgerError, match="owned"):
                Ledger(path)
            script = "try:\n    Ledger(path)\nexcept LedgerError as error:\n    print(error)\n"
            output, errors = start(script, path).communicate()
            assert errors == ""
            assert "is owned by another process" in output

    def test_a_refused_opening_leaves_the_locks_of_sqlite_in_place(self, path, start, gaussian):
        # to close any handle of a file drops this process's locks on it: another process that closes the
        # ledger would then take itself for the last one, and remove the log
        with Ledger(path) as ours:
            ours.charge(gaussian(40.0), uses=1, **ASK)
            with pytest.raises(LedgerError, match="is open for writing"):
                Ledger(path, owner=True)
            Ledger(path).close()
            output, errors = start("Ledger(path).close()\nprint('closed')", path).communicate()
            assert (output, errors) == ("closed\n", "")
            assert path.with_name(f"{path.name}-wal").exists()
            assert ours.charge(gaussian(40.0), uses=1, **ASK) == 2
        with Ledger(path) as again:
            assert again.count() == 2
