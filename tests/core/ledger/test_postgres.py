"""The same promises on PostgreSQL, for real."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from ostraka.core.ledger import history
from ostraka.core.ledger.budget import LedgerMoved, LedgerUnavailable
from ostraka.core.ledger.chain import Receipt
from ostraka.ledger import Budget, Ledger, LedgerError
from tests.core.ledger.conftest import ASK, AtCommit, changed

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[service]'")


@pytest.fixture
def stopped_clock(monkeypatch):
    """Entries record the second at which they were written."""
    monkeypatch.setattr(history, "time", SimpleNamespace(time=lambda: 1.8e9))


@pytest.fixture
def one_name(monkeypatch):
    """All ledgers have the same name."""
    monkeypatch.setattr("secrets.token_hex", lambda _: "0" * 32)


@pytest.fixture
def where(new_schema):
    return new_schema()


@pytest.fixture
def often(monkeypatch):
    """Record all totals with each commit."""
    monkeypatch.setattr(history, "SNAPSHOT_EVERY", 1)


@pytest.fixture
def ledger(where, budget):
    with Ledger(where, budget=budget) as ledger:
        ledger.grant("ann", budget_epsilon=1.0)
        yield ledger


class TestTheSecretOfFits:
    def test_is_one_for_all_processes_and_cannot_be_changed(self, ledger, where):
        secret = ledger.secret_of_fits()
        assert len(secret) == 32
        with Ledger(where) as again:
            assert again.secret_of_fits() == secret
        with psycopg.connect(where) as db, pytest.raises(psycopg.Error, match="append-only"):
            db.execute("UPDATE ostraka_secret SET secret = ''")

    def test_follows_from_the_secret_of_the_ledger_where_there_is_one(self, new_schema, budget):
        where, own = new_schema(), bytes(range(32))
        with Ledger(where, budget=budget, secret=own) as ledger:
            secret = ledger.secret_of_fits()
            assert own not in secret
        with Ledger(where, secret=own) as again, psycopg.connect(where) as db:
            assert again.secret_of_fits() == secret
            assert db.execute("SELECT to_regclass('ostraka_secret')").fetchone() == (None,)

    def test_is_for_the_role_that_made_it_alone_whatever_others_may_read(self, where, budget):
        with psycopg.connect(where, autocommit=True) as db:
            db.execute("DROP ROLE IF EXISTS stranger")
            db.execute("CREATE ROLE stranger")
            (schema,) = db.execute("SELECT current_schema()").fetchone()
            db.execute(f"GRANT USAGE ON SCHEMA {schema} TO stranger")
            db.execute(
                f"ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT SELECT ON TABLES TO stranger, PUBLIC"
            )
            with Ledger(where, budget=budget) as ledger:
                ledger.secret_of_fits()
                for table, may in (("entry", True), ("secret", False)):
                    query = f"SELECT has_table_privilege('stranger', 'ostraka_{table}', 'SELECT')"
                    assert db.execute(query).fetchone() == (may,)
                ledger._store._db.execute("SET ROLE stranger")
                with pytest.raises(LedgerError, match="GRANT SELECT ON ostraka_secret TO this one"):
                    ledger.secret_of_fits()
                ledger._store._db.execute("RESET ROLE")
            db.execute("DROP OWNED BY stranger")
            db.execute("DROP ROLE stranger")


class TestALedger:
    @pytest.mark.usefixtures("often")
    def test_comes_back_as_it_was(self, ledger, where, ask, gaussian, answers):
        entry = ledger.charge(gaussian(40.0), uses=2, key="k", **ASK)
        ledger.record(entry, answers)
        receipts = ledger.charge_each([ask("q"), ask("r", answer=-1), ask("s", digest="q", answer=9)])
        state = ledger.entries(), ledger.accounts(), ledger.head, ledger.spent()
        with Ledger(where) as again:
            assert (again.entries(), again.accounts(), again.head, again.spent()) == state
            np.testing.assert_array_equal(again.answer(entry), answers)
            assert again.charge(gaussian(40.0), uses=2, key="k", **ASK) == entry
            assert [again.receipt(r.seq).answer for r in receipts] == [3, -1, 3]
            again.verify()
        ledger.verify()

    @pytest.mark.usefixtures("stopped_clock", "one_name")
    def test_is_the_same_chain_as_on_sqlite(self, ledger, ask, path, budget, gaussian):
        with Ledger(path, budget=budget) as second:
            second.grant("ann", budget_epsilon=1.0)
            for side in (ledger, second):
                side.charge(gaussian(40.0), uses=2, key="k", **ASK)
                side.charge_each([ask("q"), ask("r", digest="q")])
            assert ledger.head == second.head

    def test_has_an_anchor_and_a_secret_too(self, where, budget, ask, gaussian, tmp_path):
        options = {"anchor": tmp_path / "anchor", "secret": b"s" * 32, "owner": True}
        with Ledger(where, budget=budget, **options) as ledger:
            ledger.charge(gaussian(40.0), uses=2, **ASK)
            head = ledger.head
        with Ledger(where, **options) as again:
            assert again.head == head
        with pytest.raises(LedgerError, match="begun with a secret"):
            Ledger(where)

    def test_keeps_its_budget_and_needs_one_to_begin(self, ledger, where, new_schema):
        with pytest.raises(LedgerError, match="to use its own, leave budget= out"):
            Ledger(where, budget=Budget(epsilon=3.0, delta=1e-5))
        with pytest.raises(LedgerError, match="to begin one, add budget="):
            Ledger(new_schema())

    def test_shows_no_password(self, ledger):
        assert repr(ledger).startswith("Ledger('postgresql:///postgres', ")

    @pytest.mark.parametrize(
        "where",
        [
            "postgresql://u:p@canary@127.0.0.1:1/db",
            "postgresql://u:canary/x@127.0.0.1:1/db",
            "postgresql://u:canary%zz@127.0.0.1:1/db",
            "postgresql://u:canary@127.0.0.1:1/db?password=canary",
        ],
    )
    def test_shows_no_password_of_an_address_that_leads_nowhere(self, where):
        with pytest.raises(LedgerError) as refused:
            Ledger(where, budget=Budget(epsilon=2.0, delta=1e-5))
        assert "canary" not in str(refused.value)

    @pytest.mark.usefixtures("often")
    @pytest.mark.parametrize("table", ["answer", "budget", "entry", "price", "total"])
    def test_is_append_only(self, where, budget, gaussian, table, answers):
        with Ledger(where, budget=budget) as ledger:
            ledger.record(ledger.charge(gaussian(40.0), uses=1, key="k", **ASK), answers)
        with psycopg.connect(where, autocommit=True) as db:
            column = "entry" if table in {"answer", "total"} else "seq" if table == "entry" else "id"
            for change in (f"UPDATE ostraka_{table} SET {column} = 1", f"DELETE FROM ostraka_{table}"):
                with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
                    db.execute(change)
            with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
                db.execute(f"TRUNCATE ostraka_{table} CASCADE")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("UPDATE ostraka_entry SET uses = 0 WHERE seq = 2", "is damaged"),
        ("UPDATE ostraka_entry SET answer = 1 WHERE seq = 3", "is damaged"),
        ("DELETE FROM ostraka_entry WHERE seq = 3", "is damaged"),
        ("UPDATE ostraka_price SET cost = ''::bytea WHERE id = 1", "is damaged"),
        ("UPDATE ostraka_budget SET epsilon = 3", "is damaged"),
        ("UPDATE ostraka_budget SET version = 9", "has format 9, this ostraka knows 5"),
        ("DELETE FROM ostraka_budget", "it has no budget"),
        ("DROP TRIGGER ostraka_entry_change ON ostraka_entry", "triggers were changed"),
    ],
)
def test_what_was_changed_is_found(ledger, where, ask, gaussian, *, change, says):
    ledger.charge(gaussian(40.0), uses=2, **ASK)
    ledger.charge_each([ask("q"), ask("r")])
    ledger.close()
    changed(where, change)
    with pytest.raises(LedgerError, match=says):
        Ledger(where)


def cut(ledger, where):
    """End the ledger's session on the server."""
    (pid,) = ledger._store._db.execute("SELECT pg_backend_pid()").fetchone()
    with psycopg.connect(where, autocommit=True) as db:
        db.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))


class TestOwners:
    def test_nobody_else_may_write_meanwhile(self, where, budget, ask):
        with Ledger(where, budget=budget, owner=True) as owner:
            for alone in (False, True):
                with pytest.raises(LedgerError, match="read_only=True"):
                    Ledger(where, owner=alone)
            owner.grant("ann", budget_epsilon=1.0)
            owner.charge_each([ask("q")])
            with Ledger(where, read_only=True) as reader:
                assert len(reader.entries()) == 2
                with pytest.raises(LedgerError, match="opened to be read"):
                    reader.charge_each([ask("r")])
        with Ledger(where), pytest.raises(LedgerError, match="is open for writing elsewhere"):
            Ledger(where, owner=True)

    @pytest.mark.parametrize("owner", [False, True])
    def test_a_connection_that_was_cut_is_made_again(self, where, budget, ask, owner):
        with Ledger(where, budget=budget, owner=owner) as ledger:
            ledger.grant("ann", budget_epsilon=1.0)
            cut(ledger, where)
            with pytest.raises(LedgerUnavailable, match="try again"):
                ledger.charge_each([ask("q")])
            assert ledger.charge_each([ask("q")])[0].seq == 2
            if owner:
                with pytest.raises(LedgerError, match="is owned by another process"):
                    Ledger(where)
            ledger.verify()

    def test_a_cut_during_the_commit_is_settled_by_the_retry(self, ledger, where, ask):
        for n, after in enumerate((False, True)):

            def commit(db, after=after):
                if after:
                    db.execute("COMMIT")
                cut(ledger, where)
                return db.execute("SELECT 1")

            ledger._store._db = AtCommit(ledger._store._db, commit)
            with pytest.raises(LedgerUnavailable):
                ledger.charge_each([ask(f"q{n}")])
            before = len(Ledger(where, read_only=True).entries())
            assert ledger.charge_each([ask(f"q{n}")])[0].seq == 2 + n == before + (not after)
        assert ledger.count() == 3

    def test_an_owner_that_lost_its_lock_to_another_stops(self, where, budget, ask):
        with Ledger(where, budget=budget, owner=True) as ledger:
            ledger.grant("ann", budget_epsilon=1.0)
            cut(ledger, where)
            with Ledger(where, owner=True) as second:
                for _ in range(2):
                    with pytest.raises(LedgerUnavailable):
                        ledger.charge_each([ask("q")])
                second.charge_each([ask("r")])
            with pytest.raises(LedgerMoved):
                ledger.charge_each([ask("q")])

    def test_another_budget_after_a_cut_stops_it_at_every_call(self, ledger, where, ask):
        cut(ledger, where)
        changed(where, "UPDATE ostraka_budget SET epsilon = 3.0")
        with pytest.raises(LedgerUnavailable):  # it finds the connection cut
            ledger.charge_each([ask("q")])
        for _ in range(2):
            with pytest.raises(LedgerMoved, match="has another budget"):
                ledger.charge_each([ask("q")])

    @pytest.mark.parametrize("lost", ["ostraka_total, ostraka_answer, ostraka_entry", "ALL"])
    def test_tables_that_went_stop_it(self, ledger, where, ask, lost):
        ledger.charge_each([ask("q")])
        cut(ledger, where)
        with psycopg.connect(where, autocommit=True) as db:
            if lost == "ALL":
                db.execute("DO $$ BEGIN EXECUTE 'DROP SCHEMA ' || current_schema() || ' CASCADE'; END $$")
            else:
                db.execute(f"DROP TABLE {lost}")
        with pytest.raises(LedgerError) as raised:
            ledger.charge_each([ask("r")])
        if isinstance(raised.value, LedgerUnavailable):  # the first call finds the connection cut
            with pytest.raises(LedgerMoved):
                ledger.charge_each([ask("r")])

    def test_a_ledger_that_was_rolled_back_stops_it(self, ledger, where, ask):
        ledger.charge_each([ask("q")])
        changed(where, "DELETE FROM ostraka_entry WHERE seq = 2")
        with pytest.raises(LedgerMoved, match="replaced or rolled back"):
            ledger.charge_each([ask("r")])

    def test_entries_of_others_that_were_rolled_back_stop_it(self, ledger, where, ask):
        with Ledger(where) as second:
            second.charge_each([ask(f"q{n}", sigma=200.0) for n in range(9)])
        assert ledger.count() == 10  # it has read them, and wrote none of them
        changed(where, "DELETE FROM ostraka_entry WHERE seq > 4")
        with pytest.raises(LedgerMoved, match="than the 10 entries known here"):
            ledger.charge_each([ask("r")])
        with Ledger(where) as again:
            assert again.count() == 4

    def test_a_commit_that_no_standby_confirmed_is_not_answered(self, ledger, where, ask):
        (pid,) = ledger._store._db.execute("SELECT pg_backend_pid()").fetchone()

        def standby(name):
            db.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
            db.execute("SELECT pg_reload_conf()")

        waits = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event = 'SyncRep'"
        with psycopg.connect(where, autocommit=True) as db:
            standby("away")
            try:
                with ThreadPoolExecutor(1) as pool:
                    charge = pool.submit(ledger.charge_each, [ask("q")])
                    while not charge.done() and db.execute(waits, (pid,)).fetchone() == (0,):
                        pass
                    db.execute("SELECT pg_cancel_backend(%s)", (pid,))
                    with pytest.raises(LedgerUnavailable, match="a commit was not confirmed"):
                        charge.result()
            finally:
                standby("")
        assert ledger.charge_each([ask("q")])[0].seq == 2 == ledger.count()

    def test_a_frozen_server_is_given_up(self, ledger, ask, monkeypatch):
        monkeypatch.setattr("ostraka.core.ledger.postgres.ANSWER_SECONDS", 0.2)
        (pid,) = ledger._store._db.execute("SELECT pg_backend_pid()").fetchone()
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(LedgerUnavailable, match="try again"):
                ledger.charge_each([ask("q")])
            assert ledger.waited() > 0.2
        finally:
            os.kill(pid, signal.SIGCONT)
        monkeypatch.undo()
        assert ledger.charge_each([ask("q")])[0].seq == 2 == ledger.count()
        assert ledger.waited() == 0

    def test_a_paused_program_does_not_keep_the_others_out(self, ledger, where, ask):
        with Ledger(where) as paused:
            paused._store._db.execute("SET idle_in_transaction_session_timeout = '100ms'")
            with pytest.raises(LedgerUnavailable), paused._store.writing():
                assert ledger.charge_each([ask("q")])[0].seq == 2  # once the server has ended that session
            assert paused.charge_each([ask("q")])[0].seq == 2

    @pytest.mark.parametrize("durable", [False, True])
    def test_an_unknown_outcome_of_a_commit_stops_the_ledger(self, ledger, where, ask, durable):
        def commit(db):
            if not durable:
                return db.execute("ROLLBACK")
            db.execute("COMMIT")
            raise psycopg.OperationalError("connection lost")

        ledger._store._db = AtCommit(ledger._store._db, commit)
        unknown = "it is unknown whether the last charge is recorded"
        with pytest.raises(LedgerError, match=unknown + ("" if durable else ".*ROLLBACK")):
            ledger.charge_each([ask("q")])
        with pytest.raises(LedgerError, match=unknown):
            ledger.spent()
        with Ledger(where) as again:
            assert len(again.entries()) == 1 + durable


class TestOutOfReach:
    def test_an_older_format_is_upgraded_unless_it_is_in_use(self, ledger, where):
        ledger.close()
        with psycopg.connect(where, autocommit=True) as db:
            db.execute("SET session_replication_role = replica")
            for table in ("answer", "total", "entry", "price"):  # entries with times have other digests
                db.execute(f"DELETE FROM ostraka_{table}")
            db.execute("UPDATE ostraka_budget SET version = 2")
            db.execute("SET session_replication_role = DEFAULT")
            db.execute("ALTER TABLE ostraka_budget DROP COLUMN name")
            db.execute("ALTER TABLE ostraka_entry DROP COLUMN at")
            db.execute("DROP INDEX ostraka_entry_other")
            db.execute("SELECT pg_advisory_lock_shared(('ostraka_budget'::regclass)::oid::bigint)")
            with pytest.raises(LedgerError, match="has an older format, and is in use"):
                Ledger(where)
        with Ledger(where) as again:
            again.grant("ann", budget_epsilon=1.0)
            again.verify()
            assert again.entries()[-1].at is not None

    def test_a_ledger_held_by_others_for_too_long(self, ledger, where, ask):
        ledger._store._db.execute("SET lock_timeout = '50ms'")
        with psycopg.connect(where) as connection:
            connection.execute("SELECT * FROM ostraka_budget FOR UPDATE")
            with pytest.raises(LedgerError, match="is held by others"):
                ledger.charge_each([ask("q")])
        assert isinstance(ledger.charge_each([ask("q")])[0], Receipt)

    def test_sessions_have_deadlines(self, ledger):
        for name in ("lock_timeout", "idle_in_transaction_session_timeout"):
            (value,) = ledger._store._db.execute(f"SHOW {name}").fetchone()
            assert value in {"2s", "5s"}, name

    def test_no_server(self, budget, tmp_path):
        with pytest.raises(
            LedgerError, match=r"cannot be reached, and nothing was answered: try again \(PostgreSQL: "
        ):
            Ledger(f"postgresql:///none?host={tmp_path}", budget=budget)

    def test_a_long_ledger_is_read_in_parts(self, ledger, where, ask, monkeypatch):
        ledger.charge_each([ask(f"q{n}", sigma=200.0) for n in range(7)])
        monkeypatch.setattr("ostraka.core.ledger.store._BATCH", 3)
        with Ledger(where, read_only=True) as again:
            assert [entry.seq for entry in again.entries()] == list(range(1, 9))


def test_a_server_that_does_not_write_durably_is_refused(where, budget, monkeypatch):
    from ostraka.core.ledger.postgres import PostgresStore

    real = PostgresStore._make_durable

    def weak(store):
        real(store)
        execute = store._db.execute
        store._db.execute = lambda query, *a, **k: execute(
            "SELECT 'off'" if "SHOW fsync" in query else query, *a, **k
        )
        real(store)

    monkeypatch.setattr(PostgresStore, "_make_durable", weak)
    with pytest.raises(LedgerError, match="does not write durably"):
        Ledger(where, budget=budget)
