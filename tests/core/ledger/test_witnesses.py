"""Witnesses: a database that went back, or went on twice, is noticed before an answer leaves."""

import shutil
import socket
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from ostraka.core.ledger import witness as quorum
from ostraka.core.ledger.budget import LedgerMoved, LedgerUnavailable
from ostraka.core.ledger.witness import Head
from ostraka.ledger import Ledger, LedgerError
from ostraka.secure.rounds import PartyError
from ostraka.secure.wire import PartyServer
from ostraka.secure.witness import (
    Bucket,
    FolderWitness,
    ObjectWitness,
    PostgresWitness,
    Register,
    RemoteWitness,
    witness_at,
)
from rigs import postgres
from tests.core.ledger.conftest import changed
from tests.secure.store import ENVIRONMENT, running

SECRET = b"w" * 32


class Switched:
    """A witness that can be away, silent, or told to forget."""

    def __init__(self, folder):
        folder.mkdir()
        self.folder, self.inner, self.state, self.told = folder, FolderWitness(folder, SECRET), "up", 0
        self.name, self.gone_on = folder.name, threading.Event()

    def tell(self, ledger, head, *, instead=(), seconds):
        self.told += 1
        if self.state == "away":
            raise ConnectionRefusedError
        if self.state == "silent":
            self.gone_on.wait(60)
        return self.inner.tell(ledger, head, instead=instead, seconds=seconds)

    def close(self):
        self.gone_on.set()


@pytest.fixture
def three(tmp_path, monkeypatch):
    monkeypatch.setattr(quorum, "SECONDS", 0.5)
    return [Switched(tmp_path / name) for name in ("one", "two", "three")]


@pytest.fixture
def everyone(three, monkeypatch):
    """Each answer waits for all witnesses: with two of three, the last may know less."""
    ask = quorum.Quorum.ask
    monkeypatch.setattr(quorum.Quorum, "ask", lambda *words, **how: ask(*words, **how | {"everyone": True}))
    monkeypatch.setattr(quorum, "SECONDS", 30.0)


@pytest.fixture
def ledger(path, budget, three):
    with Ledger(path, budget=budget, witnesses=three) as ledger:
        ledger.grant("ann", budget_epsilon=1.0)
        yield ledger


@pytest.mark.parametrize("state", ["away", "silent"])
def test_one_of_three_may_be_missing_and_not_two(ledger, three, ask, state):
    three[0].state = state
    assert ledger.charge_each([ask("a")])[0].answer == 3
    three[1].state = state
    for _ in range(2):  # a retry writes nothing, and must wait as well
        with pytest.raises(LedgerUnavailable, match=r"only 1 of 3 witnesses answer \(without one, two\)"):
            ledger.charge_each([ask("b", answer=7)])
    with pytest.raises(LedgerUnavailable):
        ledger.probe()
    assert [entry.key for entry in ledger.entries()] == [None, "a", "b"], "it was charged once"
    three[1].state = "up"
    three[1].gone_on.set()
    assert ledger.charge_each([ask("b", answer=8)])[0].answer == 7
    assert ledger.count() == 3
    ledger.probe()


def test_a_charge_of_another_program_is_confirmed_before_it_is_answered(ledger, path, three, ask):
    with Ledger(path, witnesses=[]) as second:
        second.charge_each([ask("a", answer=5)])
    for witness in three:
        witness.state = "away"
    with pytest.raises(LedgerUnavailable):
        ledger.charge_each([ask("a")])
    for witness in three:
        witness.state = "up"
    assert ledger.charge_each([ask("a")])[0].answer == 5


def test_a_file_put_back_is_refused_while_open_and_at_the_start(path, budget, three, ask, gaussian):
    copy = path.with_name("copy")
    with Ledger(path, budget=budget, witnesses=three) as ledger:
        ledger.grant("ann", budget_epsilon=1.0)
        ledger.charge_each([ask("a")])
    shutil.copy(path, copy)
    with Ledger(path, witnesses=three) as ledger:
        ledger.charge_each([ask(f"lost {n}", sigma=10.0 + n) for n in range(5)])
        spent, n_entries = ledger.spent(), ledger.count()
    shutil.copy(copy, path)
    Ledger(path, read_only=True).close()
    three[2].state = "away"  # two of three are enough to notice
    with pytest.raises(LedgerMoved, match="lacks entry 7 that a witness knows"):
        Ledger(path, witnesses=three)
    with (
        Ledger(path, read_only=True, witnesses=three) as lost,
        pytest.raises(LedgerUnavailable, match="2 of 3"),
    ):
        lost.adopt(by="olga")
    three[2].state = "up"
    with (
        Ledger(path, read_only=True, witnesses=three) as lost,
        pytest.raises(ValueError, match="know what was"),
    ):
        lost.adopt(by="olga", lost=5, reserve=gaussian(1.0))
    with Ledger(path, read_only=True, witnesses=three) as lost:
        assert lost.adopt(by="olga") == 3
    with Ledger(path, witnesses=three) as again:
        assert again.spent().mu_squared == spent.mu_squared, "what was lost is charged exactly"
        assert again.entries()[-1].key.endswith("adopted by olga, 5 lost")
        assert again.charge_each([ask("b")])[0].seq == 4 < n_entries
        again.verify()


@pytest.mark.usefixtures("everyone")
@pytest.mark.parametrize("case", [(1, 1), (3, 2)], ids=["level", "ahead"])
def test_two_copies_that_both_go_on_are_not_both_answered(path, budget, three, ask, case):
    lot, stopped = case
    with Ledger(path, budget=budget, witnesses=three) as ledger:
        ledger.grant("ann", budget_epsilon=1.0)
    copy = path.with_name("copy")
    shutil.copy(path, copy)
    answered, moved = set(), set()
    with Ledger(path, witnesses=three) as first, Ledger(copy, witnesses=three) as second:
        assert first.charge_each([ask("first")])
        for n in range(4):
            for side, size in ((second, lot), (first, 1)):
                try:
                    side.charge_each([ask(f"{n} {number} {side.path}") for number in range(size)])
                    answered.add(side)
                except LedgerMoved:
                    moved.add(side)
                except LedgerError:
                    assert side in moved
        assert second in moved
        assert len(moved) == stopped
        assert answered <= {first}


@pytest.mark.usefixtures("everyone")
def test_a_witness_that_was_put_back_is_outvoted_and_one_that_was_replaced_is_seen(ledger, path, three, ask):
    ledger.charge_each([ask("a")])
    for file in three[0].folder.iterdir():
        file.unlink()
    assert ledger.charge_each([ask("b")])[0].seq == 3
    (head_file,) = three[1].folder.glob("*.head")
    head_file.write_bytes(head_file.read_bytes()[:-3] + b'"}\n')
    three[0].state = "away"
    with pytest.raises(LedgerUnavailable):
        ledger.charge_each([ask("c")])


def test_each_ledger_has_a_name_of_its_own_which_its_digests_cover(path, budget, three, ask):
    names = set()
    for file in (path, path.with_name("other")):
        with Ledger(file, budget=budget, witnesses=three) as ledger:
            names.add(ledger._named)
            ledger.grant("ann", budget_epsilon=1.0)
    assert len(names) == 2
    with closing(sqlite3.connect(path)) as db, db:
        (trigger,) = db.execute("SELECT sql FROM sqlite_schema WHERE name = 'budget_update'").fetchone()
        db.execute("DROP TRIGGER budget_update")
        db.execute("UPDATE budget SET name = ?", ("0" * 32,))
        db.execute(trigger)
    with pytest.raises(LedgerError, match="entry 1: its fields do not match"):
        Ledger(path, witnesses=three)


def test_a_copy_without_any_charge_cannot_say_what_was_lost(path, budget, three, ask):
    with Ledger(path, budget=budget, witnesses=three) as ledger:
        ledger.grant("ann", budget_epsilon=1.0)
    lost = path.with_name("lost")
    shutil.copy(path, lost)
    with Ledger(path, witnesses=three) as ledger:
        ledger.charge_each([ask("a")])
    with (
        Ledger(lost, read_only=True, witnesses=three) as copy,
        pytest.raises(LedgerError, match="count its whole budget"),
    ):
        copy.adopt(by="olga")
    with pytest.raises(LedgerMoved):
        Ledger(lost, witnesses=three)


# Kinds


@pytest.fixture
def served(tmp_path):
    register = Register(tmp_path / "witness.sqlite", SECRET)
    with PartyServer(register) as server:
        yield register, server.url
    register.close()


def heads(*numbers):
    return [Head(n, f"{n:064x}", "") for n in numbers]


@pytest.fixture
def store():
    with running() as server:
        yield server


@pytest.fixture(params=["process", "folder", "objects", "postgres"])
def kind(request, tmp_path):
    if request.param == "process":
        _, url = request.getfixturevalue("served")
        return RemoteWitness(url, SECRET)
    if request.param == "folder":
        return FolderWitness(tmp_path, SECRET)
    if request.param == "objects":
        store = request.getfixturevalue("store")
        return ObjectWitness(Bucket(store.address, ENVIRONMENT), SECRET)
    return PostgresWitness(request.getfixturevalue("new_schema")(), SECRET)


def test_every_kind_keeps_the_newest_pair_and_says_what_it_knew(kind):
    first, second, three = heads(1, 2, 3)

    def tell(head, ledger="a", **how):
        return kind.tell(ledger, head, seconds=30.0, **how)

    assert tell(Head(0, "")) == []
    assert tell(second) == [second]
    assert tell(first) == [second] == tell(Head(0, "")), "an earlier one does not count"
    fork = Head(2, "f" * 64, "aa")
    assert tell(fork) == [second], "the first of a number counts"
    assert tell(three) == [second, three]
    assert tell(first, "b") == [first], "ledgers are apart"
    assert tell(fork, instead=[second.digest]) == [three], "it may only take the place of what was lost"
    assert tell(fork, instead=[three.digest]) == [three, fork]
    assert tell(Head(0, "")) == [fork]
    kind.close()
    assert tell(Head(0, "")) == [fork]
    kind.close()
    kind.close()


def test_a_process_keeps_what_it_was_told_and_believes_its_owner_alone(tmp_path, served):
    register, url = served
    (head,) = heads(1)
    with closing(RemoteWitness(url, SECRET)) as witness:
        assert witness.tell("a", head, seconds=30.0) == [head]
    with (
        closing(RemoteWitness(url, b"x" * 32)) as stranger,
        pytest.raises(OSError, match="status 403"),
    ):
        stranger.tell("a", head, seconds=30.0)
    for body in (b"", b"x" * 40, b"[]" * 40):
        with pytest.raises(PartyError):
            register.answer(body)
    with pytest.raises(LedgerError, match="is open elsewhere: stop the other"):
        Register(register.path, SECRET)
    register.close()
    again = Register(register.path, SECRET)
    assert again.tell("a", Head(0, "")) == [head]
    again.close()
    shutil.copy(Path(__file__), tmp_path / "other")
    with pytest.raises(LedgerError):
        Register(tmp_path / "other", SECRET)


def test_an_answer_of_before_is_not_believed(served):
    _, url = served
    recorded = []
    witness = RemoteWitness(url, SECRET)
    ask = witness._line.ask

    def replay(*words, **how):
        recorded.append(ask(*words, **how))
        return recorded[0]

    witness._line.ask = replay
    (head,) = heads(1)
    witness.tell("a", head, seconds=30.0)
    with pytest.raises(OSError, match="not under the secret"):
        witness.tell("a", head, seconds=30.0)
    witness.close()


def test_a_silent_process_costs_nothing(path, budget, three, ask):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        away = RemoteWitness(f"http://127.0.0.1:{silent.getsockname()[1]}", SECRET)
        with Ledger(path, budget=budget, witnesses=[away, *three[:2]]) as ledger:
            ledger.grant("ann", budget_epsilon=1.0)
            assert ledger.charge_each([ask("a")])[0].seq == 2


def test_addresses_name_kinds(tmp_path):
    assert witness_at("http://127.0.0.1:1/", SECRET).name == "127.0.0.1:1"
    assert witness_at(str(tmp_path), SECRET).name == str(tmp_path)
    with pytest.raises(ValueError, match="32 bytes"):
        witness_at("/", b"short")


# On PostgreSQL


def test_rows_that_are_deleted_in_place_are_not_answered_again(new_schema, budget, three, ask):
    where = new_schema()
    with Ledger(where, budget=budget, witnesses=three) as first:
        first.grant("ann", budget_epsilon=1.0)
        first.charge_each([ask("a")])
        with Ledger(where, witnesses=three) as second:
            second.charge_each([ask(f"lost {n}") for n in range(20)])
        assert first._history.seq == 2, "it has not read what the other charged"
        changed(where, "DELETE FROM ostraka_entry WHERE seq > 2")
        for n in range(20):
            with pytest.raises(LedgerError):
                first.charge_each([ask(f"again {n}")])
    with pytest.raises(LedgerMoved, match="that a witness knows"):
        Ledger(where, witnesses=three)


def test_a_failover_that_lost_nothing_goes_on_by_itself_and_one_that_lost_does_not(
    own_postgresql, three, budget, ask
):
    where, folder = own_postgresql
    with Ledger(where, budget=budget, witnesses=three) as ledger:
        ledger.grant("ann", budget_epsilon=1.0)
        ledger.charge_each([ask("a")])
    lossless = postgres.copied(folder)
    with Ledger(where, witnesses=three) as ledger:
        postgres.fail_over(folder, lossless)
        with pytest.raises(LedgerUnavailable):
            ledger.charge_each([ask("b")])
        assert ledger.charge_each([ask("b")])[0].seq == 3
    lagging = postgres.copied(folder)
    with Ledger(where, witnesses=three) as ledger, Ledger(where, witnesses=three) as second:
        second.charge_each([ask(f"lost {n}") for n in range(5)])
        postgres.fail_over(folder, lagging)
        for n in range(10):
            with pytest.raises(LedgerError):
                ledger.charge_each([ask(f"again {n}")])
    with pytest.raises(LedgerMoved):
        Ledger(where, witnesses=three)
    with Ledger(where, read_only=True, witnesses=three) as lost:
        lost.adopt(by="olga")
    with Ledger(where, witnesses=three) as again:
        assert again.spent().mu_squared == pytest.approx(7 * ask("a").cost.curve().mu_squared)
        assert again.charge_each([ask("c")])[0].seq == 5
        again.verify()


def test_a_standby_that_may_lag_needs_a_witness(new_schema, three, budget, ask, monkeypatch):
    import psycopg

    where = new_schema()
    with psycopg.connect(where, autocommit=True) as db:
        with Ledger(where, budget=budget) as ledger:
            db.execute("SELECT pg_create_physical_replication_slot('standby')")
            monkeypatch.setattr("ostraka.core.ledger.postgres._STANDBY_LOOK", 0.0)
            with pytest.raises(LedgerUnavailable, match="set synchronous_standby_names"):
                ledger.grant("ann", budget_epsilon=1.0)
        try:
            with pytest.raises(LedgerError, match="a standby for which commits do not wait"):
                Ledger(where)
            Ledger(where, read_only=True).close()
            with Ledger(where, witnesses=three) as ledger:
                ledger.grant("ann", budget_epsilon=1.0)
        finally:
            db.execute("SELECT pg_drop_replication_slot('standby')")


@pytest.mark.parametrize(
    "where",
    [
        "postgresql://u@db.example/x",
        "postgresql://u@192.0.2.1/x?sslmode=require",
        "postgresql://u@/x?host=/tmp,db.example&sslmode=verify-ca",
        "postgresql://u@localhost/x?hostaddr=192.0.2.1",
    ],
)
def test_a_server_beyond_this_machine_is_reached_with_its_certificate_verified_or_not_at_all(where, budget):
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[service]'")
    with pytest.raises(LedgerError, match="sslmode=verify-full"):
        Ledger(where, budget=budget)
