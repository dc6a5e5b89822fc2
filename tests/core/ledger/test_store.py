"""Whose turn it is: processes, forks, interrupts and failing disks; kills are in tests/durability."""

import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from types import SimpleNamespace

import pytest

from ostraka.core.curve import Curve
from ostraka.core.ledger import sqlite, store
from ostraka.core.ledger.budget import LedgerUnavailable
from ostraka.ledger import ChargeRequest, Ledger, LedgerError
from tests.core.ledger.conftest import ASK


@pytest.fixture
def ledger(path, budget):
    with Ledger(path, budget=budget) as ledger:
        yield ledger


class Failing:
    """A connection that raises once, before or after it does what it is told."""

    def __init__(self, db, word, error, *, after=False):
        self.db, self.word, self.error, self.after = db, word, error, after

    def __getattr__(self, name):
        return getattr(self.db, name)

    def execute(self, query, *values):
        return self._unless_it_fails(self.db.execute, query, *values)

    def executemany(self, query, values):
        return self._unless_it_fails(self.db.executemany, query, values)

    def _unless_it_fails(self, execute, query, *values):
        if self.error is None or self.word not in query:
            return execute(query, *values)
        error, self.error = self.error, None
        if self.after:
            execute(query, *values)
        raise error


def test_several_processes_that_race_for_one_key_pay_once_and_return_the_same_answer(ledger, path, start):
    script = """
import numpy as np
with Ledger(path) as ledger:
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(8):
        entry = ledger.charge(Gaussian(40.0), uses=1, unit="row", simulation=False, key=f"k{n}")
        print(entry, ledger.record(entry, np.random.default_rng().normal(size=2)))
"""
    processes = [start(script, path) for _ in range(2)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    outputs = {process.communicate("go\n")[0] for process in processes}
    assert len(outputs) == 1
    assert len(ledger.entries()) == 8


class TestForked:
    def test_a_child_may_not_use_the_ledger_of_its_parent(self, path, budget, start, gaussian):
        script = """
import os, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # from 3.12 on a fork beside threads is one
ledger = Ledger(path)
if os.fork() == 0:
    try:
        ledger.charge(Gaussian(40.0), uses=1, unit="row", simulation=False)
    except LedgerError as error:
        print(error, flush=True)
    ledger.close()
    with Ledger(path) as own:
        print(own.charge(Gaussian(40.0), uses=1, unit="row", simulation=False), flush=True)
    os._exit(0)
os.wait()
print(ledger.charge(Gaussian(40.0), uses=1, unit="row", simulation=False))
"""
        Ledger(path, budget=budget).close()
        output, errors = start(script, path).communicate()
        assert errors == ""
        refusal, child, parent = output.splitlines()
        assert f"{path} was opened by another process: open Ledger(" in refusal
        assert (child, parent) == ("1", "2")


def test_closing_in_a_forked_child_leaves_the_parent_alone(ledger, gaussian, monkeypatch):
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(os, "getpid", lambda: -1)
        ledger.close()
        with pytest.raises(LedgerError, match="was opened by another process"):
            ledger.spent()
    assert ledger.charge(gaussian(40.0), uses=1, **ASK) == 1


class TestInterrupted:
    def test_before_the_commit_nothing_was_charged(self, ledger, gaussian):
        for word in ("BEGIN", "SELECT seq", "INSERT INTO price", "INSERT INTO entry"):
            for after in (False, True):
                ledger._store._db = Failing(ledger._store._db, word, KeyboardInterrupt(), after=after)
                with pytest.raises(KeyboardInterrupt):
                    ledger.charge(gaussian(40.0), uses=1, **ASK)
                assert ledger.entries() == ()
        assert ledger.charge(gaussian(41.0), uses=1, **ASK) == 1  # no price of before is taken for recorded
        ledger.verify()

    def test_between_two_lines_leaves_nothing_half_done(self, ledger, gaussian):
        ledger._store._db.execute("BEGIN IMMEDIATE")
        assert ledger.charge(gaussian(40.0), uses=1, **ASK) == 1
        assert len(ledger.entries()) == 1

    @pytest.mark.parametrize("after", [False, True])
    @pytest.mark.parametrize("error", [KeyboardInterrupt, sqlite3.OperationalError])
    def test_in_the_commit_means_to_look_again(self, ledger, path, gaussian, error, after):
        ledger._store._db = Failing(ledger._store._db, "COMMIT", error("stop"), after=after)
        raised = KeyboardInterrupt if error is KeyboardInterrupt else LedgerError
        with pytest.raises(raised):
            ledger.charge(gaussian(40.0), uses=1, **ASK)
        for use in (ledger.spent, lambda: ledger.charge(gaussian(40.0), uses=1, **ASK)):
            with pytest.raises(
                LedgerError, match="it is unknown whether the last charge is recorded: open Ledger"
            ):
                use()
        ledger.close()
        with Ledger(path) as again:
            assert len(again.entries()) == after


class TestOutOfReach:
    def test_a_file_held_by_another_process_for_too_long(self, path, budget, gaussian, monkeypatch):
        monkeypatch.setattr(sqlite, "PATIENCE", 0.05)
        with (
            Ledger(path, budget=budget) as ledger,
            closing(sqlite3.connect(path, isolation_level=None)) as connection,
        ):
            connection.execute("BEGIN IMMEDIATE")
            for _ in range(2):
                with pytest.raises(
                    LedgerUnavailable, match=r"held by another process.*was charged: try again"
                ):
                    ledger.charge(gaussian(40.0), uses=1, **ASK)
            connection.execute("ROLLBACK")
            assert ledger.charge(gaussian(40.0), uses=1, **ASK) == 1

    def test_a_file_that_fails_while_it_is_read(self, ledger, path):
        ledger._store._db = Failing(ledger._store._db, "SELECT", sqlite3.OperationalError("disk I/O error"))
        with pytest.raises(LedgerError, match=r"nothing was answered \(SQLite: disk I/O error\)"):
            ledger.spent()


class TestTheLog:
    def test_is_emptied_now_and_then(self, ledger, path, gaussian, monkeypatch):
        monkeypatch.setattr(sqlite, "CHECKPOINT_EVERY", 5)
        log = path.with_name(path.name + "-wal")
        sizes = []
        for n in range(12):
            ledger.charge(gaussian(40.0), uses=1, key=f"k{n}", **ASK)
            sizes.append(log.stat().st_size)
        assert sizes[5] < sizes[4]
        assert sizes[10] < sizes[9]
        assert sizes[4] > sizes[3]
        ledger.verify()

    def test_long_ledgers_are_read_in_parts(self, ledger, gaussian, monkeypatch):
        monkeypatch.setattr(store, "_BATCH", 3)
        for _ in range(7):
            ledger.charge(gaussian(40.0), uses=1, **ASK)
        ledger.verify()
        assert [entry.seq for entry in ledger.entries()] == [1, 2, 3, 4, 5, 6, 7]


def test_callers_who_are_refused_in_time_one_after_the_other_are_one_long_wait(ledger, monkeypatch):
    """A page behind many charges would otherwise wait for all of them unseen."""
    now = [0.0]
    monkeypatch.setattr(store, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for waited in (2.0, 4.0):
        with suppress(LedgerUnavailable), ledger._store.reading():
            now[0] += 2.0
            raise LedgerUnavailable("the database is away")
        assert ledger.waited() == waited
    with ledger._store.reading(), ledger._store.reading():  # it answers again; and who holds it may compute
        now[0] += 2.0
    assert ledger.waited() == 0


@pytest.mark.parametrize("what", ["accounts", "uses_left", "epsilon", "receipt", "outlook"])
def test_others_charge_while_what_is_left_is_worked_out(ledger, gaussian, monkeypatch, what):
    """The first look at a mechanism may take seconds, for which all requests of a service would wait."""
    mechanism = gaussian(40.0)
    ledger.grant("ann", budget_epsilon=1.0)
    (receipt,) = ledger.charge_each(
        [ChargeRequest(account="ann", key="k", digest="ab", cost=mechanism, reserve=mechanism, answer=1)],
        **ASK,
    )
    free = []

    def epsilon(_self, _delta, plain=Curve.epsilon):
        with ThreadPoolExecutor(1) as others:
            free.append(others.submit(ledger._store._lock.acquire, timeout=0.2).result())
            if free[-1]:
                others.submit(ledger._store._lock.release).result()
        return plain(_self, _delta)

    monkeypatch.setattr(Curve, "epsilon", epsilon)
    arguments = {"uses_left": (mechanism,), "receipt": (receipt.seq,)}.get(what, ())
    getattr(ledger, what)(*arguments)
    assert free
    assert all(free)
