"""The durable log: what was acknowledged is there, or it does not open; the first answer to a key counts."""

import os
import sqlite3
from contextlib import closing

import pytest

from ostraka.secure import log as module
from ostraka.secure.log import Log, LogError
from tests.threads import at_once


@pytest.fixture
def path(tmp_path):
    return tmp_path / "some.log"


def filled(path, n=5):
    log = Log(path, name="a")
    for number in range(n):
        log.append(b"body %d" % number)
    log.once("key", b"first")
    return log


def test_it_comes_back_as_it_was_and_the_first_body_of_a_key_counts(path):
    log = filled(path)
    entries = list(log.entries())
    assert log.once_each([("key", b"second"), ("new", b"1"), ("new", b"2")]) == [b"first", b"1", b"1"]
    log.close()
    with pytest.raises(LogError, match="is closed"):
        log.append(b"more")
    again = Log(path, name="a")
    assert list(again.entries()) == [*entries, ("new", b"1")]
    assert (again.get("key"), again.get("none"), again.number("new")) == (b"first", None, 7)
    assert list(again.entries(after=6)) == [("new", b"1")]
    assert path.stat().st_mode & 0o077 == 0


def test_several_programs_append_and_one_that_is_alone_keeps_the_others_out(path):
    first, second = Log(path, name="a"), Log(path, name="a")
    assert (first.once("k", b"one"), second.once("k", b"other")) == (b"one", b"one")
    with at_once(*(lambda log=log: [log.append(b"x") for _ in range(20)] for log in (first, second) * 2)):
        pass
    assert len(list(first.entries())) == len(list(second.entries())) == 81
    with pytest.raises(LogError, match="is open elsewhere: stop the other program first"):
        Log(path, name="a", alone=True)
    first.close()
    second.close()
    alone = Log(path, name="a", alone=True)
    with pytest.raises(LogError, match="is open elsewhere"):
        Log(path, name="a")
    alone.close()


def test_another_log_an_older_copy_and_a_lost_end_are_refused(path):
    filled(path).close()
    end = path.with_name("some.log.end")
    older = path.read_bytes()
    with pytest.raises(LogError, match="entry 1 was changed"):
        Log(path, name="b")
    log = Log(path, name="a")
    log.append(b"newest")
    log.close()
    newest = path.read_bytes()
    path.write_bytes(older)
    with pytest.raises(LogError, match="lacks entry 7"):
        Log(path, name="a")
    path.write_bytes(newest)
    end.rename(end.with_suffix(".away"))
    with pytest.raises(LogError, match="is missing or empty"):
        Log(path, name="a")
    end.with_suffix(".away").rename(end)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("DELETE FROM entry WHERE seq = 3")
    with pytest.raises(LogError, match="entry 3 was changed or is missing"):
        Log(path, name="a")
    path.unlink()
    with pytest.raises(LogError, match="lacks entry 7"):
        Log(path, name="a")


def test_files_of_other_programs_and_of_earlier_versions_are_left_alone(path):
    path.write_bytes(b"something else, and no database of anybody" * 40)
    with pytest.raises(LogError, match="is no log of ostraka"):
        Log(path, name="a")
    path.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (x)")
    with pytest.raises(LogError, match="is no log of ostraka"):
        Log(path, name="a")
    path.unlink()
    path.with_name("some.reports").touch()
    with pytest.raises(LogError, match="by an earlier ostraka: finish this round with that version"):
        Log(path, name="a", earlier="some.*")
    assert not path.exists()


@pytest.mark.parametrize("after", [False, True], ids=["commit", "its end"])
def test_after_a_failed_write_nothing_is_kept_until_it_is_opened_again(path, monkeypatch, after):
    log = filled(path)

    def fail(*_):
        raise OSError(5, "Input/output error")

    if after:
        monkeypatch.setattr(log._anchor, "write", fail)
    else:
        monkeypatch.setattr(module, "_link", fail)
    with pytest.raises(LogError, match="Input/output error"):
        log.append(b"lost?")
    monkeypatch.undo()
    for again in (lambda: log.append(b"x"), lambda: log.get("key")):
        with pytest.raises(LogError, match="unknown whether the last entry is kept: start again"):
            again()
    log.close()
    assert Log(path, name="a").count == 6 + after


def test_a_lock_that_passes_and_a_full_disk_keep_nothing_and_the_log_goes_on(path):
    log = filled(path)
    log._db.execute("PRAGMA busy_timeout = 10")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(LogError, match="is held by another process, and nothing was kept"):
            log.once("k", b"x")
        connection.execute("ROLLBACK")
    log._db.execute("PRAGMA max_page_count = 1")
    with pytest.raises(LogError, match="disk is full"):
        log.once("k", b"x" * 10_000)
    log._db.execute("PRAGMA max_page_count = 100000")
    assert log.get("k") is None
    assert log.once("k", b"y") == b"y"
    log.close()
    assert Log(path, name="a").get("k") == b"y"


def test_a_log_that_is_replaced_while_it_is_open_stops(path):
    log = filled(path)
    path.rename(path.with_suffix(".old"))
    with pytest.raises(LogError, match="was removed or replaced"):
        log.append(b"x")


def test_what_a_failed_sync_left_in_memory_only_is_written_again_on_opening(path, monkeypatch):
    log = filled(path)
    os.link(f"{path}-wal", f"{path}.kept")  # the log of SQLite, which closing would remove
    log.close()
    os.rename(f"{path}.kept", f"{path}-wal")  # noqa: PTH104
    written = []
    monkeypatch.setattr(module.sqlite, "settle", lambda db, where: written.append(where))
    Log(path, name="a").close()
    assert written == [str(path)]


def test_a_request_is_answered_once_and_the_work_again_only_where_no_answer_was_kept(path):
    log = Log(path, name="a")
    with pytest.raises(RuntimeError):
        log.answer("0", b"one", lambda: (_ for _ in ()).throw(RuntimeError))
    log.close()
    log = Log(path, name="a")
    with pytest.raises(ValueError, match="another request"):
        log.answer("0", b"two", lambda: b"answer")
    assert log.answer("0", b"one", lambda: b"answer") == b"answer"
    assert log.answer("0", b"one", lambda: b"other") == b"answer"
