"""Ledgers of older formats are brought to the present one, with every entry and digest as it was."""

import gzip
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from ostraka import Budget, GNMax, Ledger
from ostraka.core.ledger import sqlite
from ostraka.ledger import LedgerError
from tests.core.ledger.conftest import tamper

# A file of format 2, as it was written then: Ledger(path, budget=Budget(epsilon=2.0, delta=1e-5)), a grant
# of 1.0 to ann, three uses of GNMax(sigma=40.0) under the key "first", and the question aa of ann under "k".
HEAD_THEN = "1b0219583cc006e110a5089eb21fafc992ca7c2d984052e3e80fb03e047356c2"


@pytest.fixture
def old(tmp_path):
    """The file."""
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(gzip.decompress(Path(__file__).with_name("format_2.sqlite.gz").read_bytes()))
    return path


def format_of(path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return db.execute("PRAGMA user_version").fetchone()[0]


def test_a_ledger_of_format_2_opens_with_its_entries_its_head_and_no_times_and_goes_on_with_times(old):
    assert format_of(old) == 2
    with Ledger(old) as ledger:
        assert ledger.head == HEAD_THEN
        assert [entry.at for entry in ledger.entries()] == [None] * 3
        assert ledger.charge(GNMax(sigma=40.0), uses=3, unit="row", simulation=False, key="first") == 2
        now = time.time()
        ledger.grant("bob", budget_epsilon=1.0)
        ledger.verify()
    assert format_of(old) == sqlite.VERSION == 5
    with Ledger(old) as ledger:
        assert now - 1 <= ledger.entries()[-1].at <= time.time()
        assert ledger.count() == 4


def test_an_upgraded_file_has_the_tables_of_a_new_one(old, tmp_path):
    Ledger(old).close()
    Ledger(tmp_path / "new.sqlite", budget=Budget(epsilon=2.0, delta=1e-5)).close()
    schemas = []
    for path in (old, tmp_path / "new.sqlite"):
        with closing(sqlite3.connect(path)) as db:
            schemas.append(db.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall())
    assert schemas[0] == schemas[1]


def test_a_file_in_use_is_not_upgraded_beneath_its_user(old):
    with sqlite.OPENING:
        user = sqlite.FileLock(str(old))
        user.take(alone=False)
    with pytest.raises(LedgerError, match="has an older format, and is in use"):
        Ledger(old)
    user.close()
    assert format_of(old) == 2
    Ledger(old).close()


def test_an_upgrade_that_breaks_off_changes_nothing(old, monkeypatch):
    monkeypatch.setitem(sqlite.UPGRADES, 2, "ALTER TABLE entry ADD COLUMN at nonsense")
    with pytest.raises(LedgerError, match="could not be used"):
        Ledger(old)
    monkeypatch.undo()
    assert format_of(old) == 2
    with Ledger(old) as ledger:
        assert ledger.head == HEAD_THEN


def test_the_time_of_an_entry_is_covered_by_its_digest(old):
    with Ledger(old) as ledger:
        ledger.grant("bob", budget_epsilon=1.0)
    tamper(old, "UPDATE entry SET at = at - 1 WHERE seq = 4")
    with pytest.raises(LedgerError, match="entry 4: its fields do not match"):
        Ledger(old)
