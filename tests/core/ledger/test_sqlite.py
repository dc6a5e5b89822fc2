"""Opening: what is made, what is checked, and one clear sentence for whatever is wrong."""

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from ostraka.core.ledger import history
from ostraka.core.ledger import sqlite as files
from ostraka.ledger import Budget, Ledger, LedgerError
from tests.core.ledger.conftest import ASK, tamper


@pytest.fixture(scope="module")
def template(tmp_path_factory, gaussian):
    """Five entries of two mechanisms, the second and fourth with key and answer."""
    path = tmp_path_factory.mktemp("template") / "ledger.sqlite"
    with (
        pytest.MonkeyPatch.context() as small,
        Ledger(path, budget=Budget(epsilon=2.0, delta=1e-5, adaptive=False)) as ledger,
    ):
        small.setattr(history, "SNAPSHOT_EVERY", 4)
        for n, sigma in enumerate([40.0, 30.0, 40.0, 40.0, 30.0]):
            entry = ledger.charge(gaussian(sigma), uses=n, key=f"k{n}" if n % 2 else None, **ASK)
            if n % 2:
                ledger.record(entry, np.array([3, 1, 2]) + n)
    return path


@pytest.fixture
def filled(template, path):
    shutil.copy(template, path)
    return path


def everything(path):
    with Ledger(path) as ledger:
        answers = [ledger.answer(entry.seq) for entry in ledger.entries()]
        plain = [None if a is None else a.tolist() for a in answers]
        return ledger.budget, ledger.entries(), ledger.spent(), ledger.head, ledger.simulation, plain


class TestANewFile:
    def test_needs_a_budget(self, path):
        for name in (path, ":memory:"):
            with pytest.raises(LedgerError, match=r"to begin one, add budget=Budget\(epsilon=…, delta=…\)"):
                Ledger(name)
        assert not path.exists()

    def test_is_all_there_is_once_closed(self, path, budget, gaussian):
        with Ledger(path, budget=budget) as ledger:
            ledger.charge(gaussian(40.0), uses=1, **ASK)
        assert [file.name for file in path.parent.iterdir()] == [path.name]

    def test_waits_for_stable_storage_at_every_commit(self, path, budget):
        with Ledger(path, budget=budget) as ledger:
            settings = ("journal_mode", "synchronous", "wal_autocheckpoint", "mmap_size")
            assert [ledger._store._db.execute(f"PRAGMA {name}").fetchone()[0] for name in settings] == [
                "wal",
                2,
                0,
                0,
            ]

    def test_may_have_any_name(self, tmp_path, budget, gaussian):
        for name in ("a b?mode=memory#%41.sqlite", "λ.db"):
            with Ledger(tmp_path / name, budget=budget) as ledger:
                ledger.charge(gaussian(40.0), uses=1, **ASK)
            assert (tmp_path / name).is_file()

    def test_made_by_several_processes_at_once_is_one_ledger(self, path, start):
        script = """
with Ledger(path, budget=Budget(epsilon=2.0, delta=1e-5)) as ledger:
    ledger.charge(Gaussian(40.0), uses=1, unit="row", simulation=False)
"""
        processes = [start(script, path) for _ in range(3)]
        assert [(p.communicate()[1], p.returncode) for p in processes] == [("", 0)] * 3
        with Ledger(path) as ledger:
            assert len(ledger.entries()) == 3
        assert [file.name for file in path.parent.iterdir()] == [path.name]

    def test_made_by_another_process_at_the_last_moment_is_that_one(
        self, path, budget, gaussian, monkeypatch
    ):
        link = os.link

        def late(source, target):
            monkeypatch.setattr(os, "link", link)
            with Ledger(path, budget=budget) as second:
                second.charge(gaussian(40.0), uses=1, **ASK)
            link(source, target)

        monkeypatch.setattr(os, "link", late)
        with Ledger(path, budget=budget) as ledger:
            assert len(ledger.entries()) == 1

    def test_is_not_made_beside_the_log_of_a_lost_one(self, path, budget):
        Path(f"{path}-wal").write_bytes(b"charges")
        with pytest.raises(LedgerError, match=r"is missing, but .*-wal exists"):
            Ledger(path, budget=budget)

    def test_needs_a_directory(self, tmp_path, budget):
        with pytest.raises(LedgerError, match=r"has no directory: mkdir -p .*missing"):
            Ledger(tmp_path / "missing" / "ledger.sqlite", budget=budget)

    def test_leaves_nothing_behind_where_it_cannot_be_made(self, path, budget, monkeypatch):
        def no_links(*_):
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", no_links)
        with pytest.raises(LedgerError, match=r"cannot be used \(Operation not permitted\)"):
            Ledger(path, budget=budget)
        assert list(path.parent.iterdir()) == []


class TestAnExistingFile:
    def test_keeps_its_budget(self, filled, budget):
        for budget_argument in (None, budget):
            with Ledger(filled, budget=budget_argument) as ledger:
                assert ledger.budget == budget
        with pytest.raises(
            LedgerError, match=r"has Budget\(epsilon=2.0.*, not Budget\(epsilon=3.0.*leave budget="
        ):
            Ledger(filled, budget=Budget(epsilon=3.0, delta=1e-5))

    def test_comes_back_as_it_was(self, filled):
        first = everything(filled)
        assert [entry.uses for entry in first[1]] == [0, 1, 2, 3, 4]
        assert first[-1] == [None, [4, 2, 3], None, [6, 4, 5], None]
        assert everything(filled) == first

    @pytest.mark.parametrize("table", ["answer", "budget", "entry", "price", "total"])
    def test_is_append_only(self, filled, table):
        with closing(sqlite3.connect(filled, isolation_level=None)) as db:
            column, value = db.execute(f"SELECT name, 1 FROM pragma_table_info('{table}')").fetchone()
            for change in (
                f"UPDATE {table} SET {column} = {value}",
                f"DELETE FROM {table}",
                f"INSERT OR REPLACE INTO {table} SELECT * FROM {table} LIMIT 1",
            ):
                with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                    db.execute(change)

    def test_takes_no_entry_out_of_turn_or_under_a_used_key(self, filled):
        with closing(sqlite3.connect(filled, isolation_level=None)) as db:
            for seq, key in ((7, "new"), (5, "new"), (6, "k1")):
                with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                    db.execute(
                        "INSERT OR REPLACE INTO entry (seq, kind, account, key, uses, protects, simulation, "
                        f"epsilon, digest) VALUES ({seq}, 'charge', '', '{key}', 1, 'row', 0, 0.0, x'')"
                    )


class TestWhatIsNoLedger:
    @pytest.mark.parametrize(
        ("content", "says"),
        [
            (b"", "is empty, and a ledger never is"),
            (b"seq,uses\n1,2\n" * 100, "is not a ledger: give the path of a ledger"),
            (b"SQLite format 3\0", "is not a ledger|is damaged"),
        ],
    )
    def test_other_files(self, path, budget, content, says):
        path.write_bytes(content)
        for budget_argument in (None, budget):
            with pytest.raises(LedgerError, match=says) as refusal:
                Ledger(path, budget=budget_argument)
            assert str(path) in str(refusal.value)
        assert path.read_bytes() == content

    def test_the_database_of_another_program(self, path, budget):
        with closing(sqlite3.connect(path)) as db:
            db.execute("CREATE TABLE entry (seq)")
        content = path.read_bytes()
        with pytest.raises(LedgerError, match="belongs to another program"):
            Ledger(path, budget=budget)
        assert path.read_bytes() == content

    def test_a_later_format(self, filled):
        tamper(filled, "PRAGMA user_version = 9")
        with pytest.raises(LedgerError, match=r"has format 9, this ostraka knows 5: install a newer one"):
            Ledger(filled)

    def test_a_directory(self, tmp_path, budget):
        with pytest.raises(LedgerError, match="is not a file"):
            Ledger(tmp_path, budget=budget)

    def test_an_old_sqlite(self, path, budget, monkeypatch):
        monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
        with pytest.raises(LedgerError, match=r"too old, 3\.37 is needed"):
            Ledger(path, budget=budget)

    def test_a_place_without_a_write_ahead_log(self, filled, monkeypatch):
        plain_one = files._one
        monkeypatch.setattr(
            files, "_one", lambda db, query: "delete" if "journal" in query else plain_one(db, query)
        )
        with pytest.raises(LedgerError, match=r"cannot write durably \(mode delete\): use a local disk"):
            Ledger(filled)


@contextmanager
def without_root():
    """As somebody who is not root, within a test alone: pytest's own files are root's."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


class TestWithoutPermission:
    @pytest.fixture
    def folder(self):
        """A directory that everybody may enter, and that an account which is not root owns."""
        folder = Path(tempfile.mkdtemp())
        if os.geteuid() == 0:
            os.chown(folder, 65534, 65534)
        yield folder
        folder.chmod(0o700)
        shutil.rmtree(folder)

    def test_a_directory_that_cannot_be_written(self, folder, budget):
        folder.chmod(0o555)
        with (
            without_root(),
            pytest.raises(LedgerError, match=r"cannot be used \(Permission denied\): choose a directory"),
        ):
            Ledger(folder / "ledger.sqlite", budget=budget)

    @pytest.mark.parametrize(("name", "mode"), [("ledger.sqlite", 0o444), (".", 0o555)])
    def test_a_file_or_its_directory_cannot_be_written(self, folder, budget, name, mode):
        with without_root():
            Ledger(folder / "ledger.sqlite", budget=budget).close()
            (folder / name).chmod(mode)
            with pytest.raises(LedgerError, match=r"ledger.sqlite cannot be (written|opened).* chmod u\+w"):
                Ledger(folder / "ledger.sqlite")


class TestDamage:
    # one of each kind; every cell and row is changed in tests/durability/test_promises.py
    @pytest.mark.parametrize(
        ("change", "seq"),
        [
            ("UPDATE entry SET uses = 1 WHERE seq = 3", 3),
            ("UPDATE entry SET price = 9 WHERE seq = 5", 5),
            ("DELETE FROM entry WHERE seq = 1", 1),
            ("UPDATE entry SET seq = 9 WHERE seq = 5", 5),
            ("UPDATE price SET cost = zeroblob(length(cost)) WHERE id = 2", 2),
            ("UPDATE budget SET epsilon = 3.0", 1),
            ("UPDATE entry SET state = NULL WHERE seq = 4", 4),
            ("UPDATE total SET total = zeroblob(length(total))", 4),
            ("DELETE FROM total", 4),
            ("UPDATE answer SET array = zeroblob(9) WHERE entry = 4", 4),
            ("UPDATE answer SET entry = 3 WHERE entry = 2", 3),
            ("UPDATE answer SET entry = 8 WHERE entry = 4", 8),
        ],
    )
    def test_a_changed_row_is_found_when_the_file_is_opened_and_the_first_wrong_entry_named(
        self, filled, change, seq
    ):
        tamper(filled, change)
        with pytest.raises(
            LedgerError, match=f"is damaged, .*count its whole budget as spent.*entry {seq}: "
        ) as damage:
            Ledger(filled)
        assert damage.value.seq == seq
        assert str(filled) in str(damage.value)

    def test_a_change_under_an_open_ledger_is_found_by_verify(self, filled):
        with Ledger(filled) as ledger:
            ledger.verify()
            tamper(filled, "UPDATE entry SET uses = 0 WHERE seq = 4")
            with pytest.raises(LedgerError, match="entry 4: ") as damage:
                ledger.verify()
            assert damage.value.seq == 4

    def test_an_answer_that_was_changed_under_an_open_ledger_is_not_given(self, filled):
        with Ledger(filled) as ledger:
            tamper(filled, "UPDATE answer SET array = zeroblob(9) WHERE entry = 4")
            for read in (lambda: ledger.answer(4), lambda: ledger.record(4, np.array([1]))):
                with pytest.raises(LedgerError, match="entry 4: its answer is not the one recorded"):
                    read()

    @pytest.mark.parametrize(
        "change",
        [
            "DROP TRIGGER entry_delete",
            "CREATE TABLE extra (x)",
            "DROP TABLE answer",
            "DROP INDEX price_mechanism",
        ],
    )
    def test_other_tables_and_triggers_are_found(self, filled, change):
        with closing(sqlite3.connect(filled, isolation_level=None)) as db:
            db.execute(change)
        with pytest.raises(LedgerError, match=r"is damaged.*tables or triggers were changed"):
            Ledger(filled)

    @pytest.mark.parametrize("change", ["DELETE FROM budget", "UPDATE budget SET epsilon = -1.0"])
    def test_a_lost_budget_is_found(self, filled, change):
        tamper(filled, change)
        with pytest.raises(LedgerError, match=r"is damaged.*no budget"):
            Ledger(filled)

    @pytest.mark.parametrize(
        ("at", "byte", "says"),
        [(39, 1, "[Ff]reelist"), (b"entry_key", 0xFF, "decode byte 0xff")],
        ids=["the free pages of the header", "the name of an index"],
    )
    def test_bytes_that_are_wrong_beneath_the_tables_are_damage(self, filled, at, byte, says):
        content = bytearray(filled.read_bytes())
        content[at if isinstance(at, int) else content.index(at)] = byte
        filled.write_bytes(content)
        with pytest.raises(LedgerError, match=f"(?s)is damaged.*{says}"):
            Ledger(filled)

    def test_an_entry_that_reads_as_something_else_is_found(self, filled):
        tamper(filled, "UPDATE price SET mechanism = CAST(x'ff' AS TEXT) WHERE id = 1")
        with pytest.raises(LedgerError, match="Could not decode"):
            Ledger(filled)

    def test_a_damaged_answer_does_not_hide_damaged_entries(self, filled):
        tamper(filled, "UPDATE answer SET array = x'00'", "UPDATE entry SET uses = 0 WHERE seq = 5")
        with pytest.raises(LedgerError, match="entry 5: "):
            Ledger(filled)


def made_anew(path, index, statement):
    """An index by another statement, which says that it is by its old one."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        (sql,) = db.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (index,)).fetchone()
        db.execute(f"DROP INDEX {index}")
        db.execute(statement(sql))
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (sql, index))


@pytest.mark.parametrize("index", ["entry_key", "entry_state", "price_mechanism"])
def test_an_index_that_lacks_a_row_is_noticed(filled, index):
    """Its pages are whole, it is in order; but whoever looks a key up does not find it, and pays again."""
    columns, table, where = files._INDEXES[index]
    number = columns.rpartition(", ")[2]
    with closing(sqlite3.connect(filled)) as db:
        (row,) = db.execute(f"SELECT max({number}) FROM {table} WHERE {where}").fetchone()
    made_anew(filled, index, lambda sql: f"{sql.partition(' WHERE ')[0]} WHERE {where} AND {number} <> {row}")
    with closing(sqlite3.connect(filled)) as db:
        assert db.execute("PRAGMA quick_check").fetchone() == ("ok",)
    with pytest.raises(LedgerError, match=f"index {index} does not hold the rows of its table"):
        Ledger(filled)


def test_a_large_ledger_is_checked_in_a_process_beside(filled, monkeypatch):
    monkeypatch.setattr(files, "_MANY", 1)
    monkeypatch.setattr(files, "check", None)  # of this process
    made_anew(filled, "entry_key", lambda sql: f"{sql} AND seq <> 2")
    with pytest.raises(LedgerError, match="index entry_key does not hold the rows of its table"):
        Ledger(filled)


def test_an_index_out_of_order_is_noticed(filled):
    made_anew(filled, "entry_key", lambda sql: sql.replace("key)", "key DESC)"))
    with pytest.raises(LedgerError, match="index entry_key is not in order"):
        Ledger(filled)


def test_every_index_is_compared(filled):
    with closing(sqlite3.connect(filled)) as db:
        names = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE sql LIKE '%INDEX%'")}
    assert names == set(files._INDEXES)


def test_an_image_taken_while_the_ledger_is_open_has_every_charge(path, budget, gaussian, tmp_path):
    with Ledger(path, budget=budget) as ledger:
        for _ in range(20):
            ledger.charge(gaussian(40.0), uses=1, **ASK)
        for file in (path, Path(f"{path}-wal")):
            shutil.copy(file, tmp_path / file.name.replace("ledger", "image"))
        head = ledger.head
    with Ledger(tmp_path / "image.sqlite") as image:
        assert image.head == head
        assert len(image.entries()) == 20
        np.testing.assert_array_equal([entry.seq for entry in image.entries()], np.arange(1, 21))
