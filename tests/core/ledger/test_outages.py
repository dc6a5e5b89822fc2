"""What passes is refused and the ledger goes on; a ledger that was moved stops before the next answer."""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ostraka.core.ledger.budget import LedgerMoved, LedgerUnavailable
from ostraka.ledger import Budget, Ledger, LedgerError
from tests.core.ledger.conftest import ASK

SECRET = b"s" * 32


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    return tmp_path


@pytest.fixture
def owned(folder):
    """A ledger as the service opens it, with one charge."""
    ledger = Ledger(
        folder / "ledger.sqlite",
        budget=Budget(epsilon=50.0, delta=1e-5),
        secret=SECRET,
        anchor=folder / "elsewhere" / "anchor",
        owner=True,
    )
    ledger.grant("ann", budget_epsilon=50.0)
    yield ledger
    ledger.close()


def rest(path):
    return path.with_name(path.name + "-wal")


class TestWhatPasses:
    def test_a_disk_that_is_full_at_the_commit(self, owned, ask):
        class Full:
            def __init__(self, db):
                self.db, self.left = db, 2

            def __getattr__(self, name):
                return getattr(self.db, name)

            def execute(self, query, *values):
                if query == "COMMIT" and self.left:
                    self.left -= 1
                    with rest(Path(owned.path)).open("ab") as log:
                        log.write(bytes(100))  # the part that still had room
                    error = sqlite3.OperationalError("database or disk is full")
                    error.sqlite_errorcode = sqlite3.SQLITE_FULL
                    raise error
                return self.db.execute(query, *values)

        owned._store._db = Full(owned._store._db)
        for _ in range(2):
            with pytest.raises(LedgerUnavailable, match="the disk is full, and nothing was charged"):
                owned.charge_each([ask("q")])
        (receipt,) = owned.charge_each([ask("q")])
        assert (receipt.seq, owned.count()) == (2, 2)
        owned.verify()

    def test_a_disk_that_is_full_in_the_middle(self, owned, ask):
        db = owned._store._db
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {pages}")
        keys = iter(f"{n:0900}" for n in range(99))

        def charge_on():
            for key in keys:
                owned.charge_each([ask(key)])

        with pytest.raises(LedgerUnavailable):
            charge_on()
        before = owned.count()
        db.execute("PRAGMA max_page_count = 100000")
        assert owned.charge_each([ask("q")])[0].seq == before + 1
        owned.verify()

    def test_what_changes_nothing_stops_nothing(self, owned, folder, ask, monkeypatch):
        monkeypatch.setattr("ostraka.core.ledger.sqlite.CHECKPOINT_EVERY", 2)
        path = folder / "ledger.sqlite"

        def back_up():
            with closing(sqlite3.connect(path)) as db, closing(sqlite3.connect(folder / "copy")) as copy:
                db.backup(copy)

        with closing(sqlite3.connect(path, isolation_level=None)) as backup:  # which reads for long
            backup.execute("BEGIN")
            backup.execute("SELECT count(*) FROM entry").fetchall()
            for n, change in enumerate(
                (
                    lambda: Ledger(path, secret=SECRET, read_only=True).close(),
                    owned.verify,
                    lambda: path.chmod(0o640),
                    lambda: os.link(path, folder / "elsewhere" / "link"),
                    back_up,
                )
            ):
                change()
                assert owned.charge_each([ask(f"q{n}")])[0].seq == 2 + n
        assert owned.charge_each([ask("after")])[0].seq == 7 == owned.count()


def written_by_another_program(path, anchor, older):
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 2")
        db.execute("CREATE TABLE stranger (a)")


MOVES = {  # of the file at a path, beside its anchor and an older copy
    "removed": lambda path, *_: path.unlink(),
    "renamed": lambda path, *_: path.rename(path.with_name("other")),
    "replaced": lambda path, _, older: older.rename(path),
    "overwritten": lambda path, _, older: shutil.copyfile(older, path),
    "overwritten with its time": lambda path, _, older: shutil.copy2(older, path),  # as rsync and cp -p do
    "without its log": lambda path, *_: rest(path).unlink(),
    "with a shorter log": lambda path, *_: os.truncate(rest(path), 100),
    "without its anchor": lambda _, anchor, __: anchor.unlink(),
    "with an older anchor": lambda _, anchor, older: shutil.copyfile(older.with_name("anchor"), anchor),
    "written by another program": written_by_another_program,
}


@pytest.mark.parametrize("move", MOVES)
def test_a_ledger_that_was_moved_answers_nothing_more(owned, folder, ask, move):
    path, anchor, older = folder / "ledger.sqlite", folder / "elsewhere" / "anchor", folder / "older"
    with closing(sqlite3.connect(path)) as db, closing(sqlite3.connect(older)) as copy:
        db.backup(copy)
    shutil.copyfile(anchor, folder / "anchor")
    for n in range(5):
        owned.charge_each([ask(f"q{n}")])
    MOVES[move](path, anchor, older)
    with pytest.raises(LedgerMoved):
        owned.charge_each([ask("after")])
    with pytest.raises(LedgerError, match="open Ledger"):
        owned.charge_each([ask("q0")])  # not even an answer that was paid for


@pytest.mark.parametrize("move", ["removed", "replaced"])
def test_a_shared_ledger_that_was_moved_answers_nothing_more(folder, gaussian, move):
    path = folder / "ledger.sqlite"
    with Ledger(path, budget=Budget(epsilon=5.0, delta=1e-5)) as ledger:
        ledger.charge(gaussian(100.0), uses=1, **ASK)
        with closing(sqlite3.connect(path)) as db, closing(sqlite3.connect(folder / "older")) as copy:
            db.backup(copy)
        MOVES[move](path, None, folder / "older")
        with pytest.raises(LedgerMoved, match="removed, replaced or changed"):
            ledger.charge(gaussian(100.0), uses=1, **ASK)


def test_a_shared_ledger_that_was_rolled_back_in_place_answers_nothing_more(folder, gaussian):
    path = folder / "ledger.sqlite"
    Ledger(path, budget=Budget(epsilon=5.0, delta=1e-5)).close()
    shutil.copyfile(path, folder / "older")
    with Ledger(path) as ledger:
        ledger.charge(gaussian(100.0), uses=1, **ASK)
        ledger._store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        ledger._store._db.execute("PRAGMA shrink_memory")
        shutil.copyfile(folder / "older", path)
        with pytest.raises(LedgerError):
            ledger.charge(gaussian(100.0), uses=1, **ASK)


def test_callers_who_were_served_together_are_all_told_to_try_again(owned):
    assert issubclass(LedgerUnavailable, LedgerError)

    def fails(_):
        raise LedgerUnavailable("locked")

    owned._group._serve = fails
    with pytest.raises(LedgerUnavailable, match="locked"):
        owned.charge_each([])
