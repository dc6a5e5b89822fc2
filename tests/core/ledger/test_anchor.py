"""The anchor: an older copy of the ledger, or another one, is refused at the start."""

import os
import shutil
from dataclasses import replace

import pytest

from ostraka.core.ledger import history
from ostraka.core.ledger.chain import Row, Seal
from ostraka.core.ledger.witness import Anchor
from ostraka.ledger import Budget, Ledger, LedgerError
from tests.core.ledger.conftest import ASK, beneath, tamper

SECRET = b"0123456789abcdef" * 2


@pytest.fixture
def anchor(tmp_path):
    return tmp_path / "anchor"


@pytest.fixture
def charged(path, anchor, budget, gaussian):
    """Open with the anchor and charge ``n`` times; the head afterwards."""

    def charged(n, *, where=path, **options):
        with Ledger(where, budget=budget, anchor=anchor, **options) as ledger:
            for _ in range(n):
                ledger.charge(gaussian(100.0), uses=1, **ASK)
            return ledger.head

    return charged


@pytest.mark.parametrize("secret", [None, SECRET])
def test_a_ledger_opens_with_its_anchor(charged, anchor, secret):
    heads = [charged(n, secret=secret) for n in (0, 3, 0, 2)]
    assert heads[1] == heads[2]
    assert Anchor(anchor, Seal(secret)).read() == (5, bytes.fromhex(heads[3]))


def test_it_is_written_before_anything_is_answered(path, anchor, budget, gaussian):
    with Ledger(path, budget=budget, anchor=anchor) as ledger:
        for n in range(1, 4):
            assert ledger.charge(gaussian(100.0), uses=1, **ASK) == n
            assert Anchor(anchor, Seal(None)).read() == (n, bytes.fromhex(ledger.head))


class TestRefused:
    @pytest.mark.parametrize("goes_on", [False, True])
    def test_an_older_copy(self, charged, path, anchor, *, gaussian, goes_on):
        says = (
            "has another history than entry 4" if goes_on else r"at entry 3, before entry 4 that .* records"
        )
        charged(3)
        backup = shutil.copy(path, path.with_name("backup"))
        charged(1)
        shutil.copy(backup, path)
        if goes_on:
            with Ledger(path) as ledger:
                ledger.charge(gaussian(90.0), uses=2, **ASK)
        for owner in (False, True):
            with pytest.raises(LedgerError, match=says):
                Ledger(path, anchor=anchor, owner=owner)

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            (lambda path, anchor: path.unlink(), "ends at entry 0, before entry 2"),
            (lambda path, anchor: anchor.unlink(), r"is empty or new, but .* has 2 entries"),
            (lambda path, anchor: anchor.write_bytes(b"nonsense" * 1000), "is damaged or belongs to another"),
            (lambda path, anchor: anchor.write_bytes(b"ostraka-anchor 1 00 00\n"), "is damaged or belongs"),
        ],
    )
    def test_a_ledger_or_an_anchor_that_is_lost_or_no_anchor(self, charged, path, anchor, change, says):
        charged(2)
        change(path, anchor)
        with pytest.raises(LedgerError, match=says):
            charged(0)

    def test_another_ledger(self, charged, tmp_path, anchor):
        charged(2)
        with Ledger(tmp_path / "other", budget=Budget(epsilon=3.0, delta=1e-5, adaptive=False)):
            pass
        anchor.unlink()
        Ledger(tmp_path / "other", anchor=anchor).close()
        with pytest.raises(LedgerError, match="has another history than entry 0"):
            charged(0)

    def test_an_anchor_of_another_secret(self, charged, anchor, path, tmp_path, budget):
        charged(2, secret=SECRET)
        with pytest.raises(LedgerError, match=r"is damaged or belongs to another"):
            Ledger(tmp_path / "other", budget=budget, anchor=anchor)

    def test_an_anchor_with_another_number(self, charged, anchor):
        charged(2)
        text = anchor.read_bytes()
        anchor.write_bytes(text.replace(b"anchor 2", b"anchor 1"))  # the older slot is no such line
        assert anchor.read_bytes() != text
        assert Anchor(anchor, Seal(None)).read()[0] == 1


class TestACrash:
    def test_between_commit_and_anchor_is_no_rollback(self, charged, path, anchor, tmp_path):
        charged(2)
        shutil.copy(anchor, tmp_path / "before")
        head = charged(1)
        shutil.copy(tmp_path / "before", anchor)
        assert charged(0) == head
        assert Anchor(anchor, Seal(None)).read()[0] == 3

    @pytest.mark.parametrize("cut", [0, 1, 40, 100])
    def test_in_the_write_of_the_anchor_leaves_the_one_before(self, charged, anchor, cut):
        charged(3)
        content = bytearray(anchor.read_bytes())
        newest = content.index(b"anchor 3") // 4096 * 4096
        content[newest + cut : newest + 4096] = bytes(4096 - cut)
        anchor.write_bytes(content)
        assert Anchor(anchor, Seal(None)).read()[0] == 2
        charged(1)
        assert Anchor(anchor, Seal(None)).read()[0] == 4


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), KeyboardInterrupt(), None])
def test_a_failing_anchor_stops_the_ledger(path, anchor, budget, gaussian, error):
    def fail(*_):
        if error is None:
            return 17  # a write that is cut short
        raise error

    with Ledger(path, budget=budget, anchor=anchor) as ledger:
        ledger.charge(gaussian(100.0), uses=1, **ASK)
        with pytest.MonkeyPatch.context() as failing:
            failing.setattr(os, "fdatasync" if error else "pwrite", fail)
            with pytest.raises(KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else LedgerError):
                ledger.charge(gaussian(100.0), uses=1, **ASK)
        for use in (ledger.spent, lambda: ledger.charge(gaussian(100.0), uses=1, **ASK)):
            with pytest.raises(LedgerError, match="could not write its anchor"):
                use()
    with Ledger(path, anchor=anchor) as again:
        assert len(again.entries()) == 2


def test_it_needs_a_directory(path, budget, tmp_path):
    with pytest.raises(LedgerError, match=r"cannot be used .*: choose another path"):
        Ledger(path, budget=budget, anchor=tmp_path / "missing" / "anchor")


def test_it_never_goes_back(anchor):
    first, second = Anchor(anchor, Seal(None)), Anchor(anchor, Seal(None))
    first.write(5, bytes(32))
    second.write(7, bytes(32))
    written = anchor.read_bytes()
    first.write(6, bytes(32))
    assert anchor.read_bytes() == written
    assert first.read() == second.read() == (7, bytes(32))


def test_a_quick_start_reads_from_the_last_record_of_totals_on(charged, path, anchor, monkeypatch):
    monkeypatch.setattr(history, "SNAPSHOT_EVERY", 4)
    head = charged(11)
    read = []
    blocks = type(Ledger(path)._store).blocks
    monkeypatch.setattr(
        "ostraka.core.ledger.sqlite.SQLiteStore.blocks",
        lambda self, after, limit=None: (read.append(after), blocks(self, after, limit))[1],
    )
    assert charged(0) == head
    assert set(read) == {8, 11}
    with Ledger(path) as full:
        spent = full.spent()
    with Ledger(path, anchor=anchor) as quick:
        assert quick.spent() == spent
        quick.verify()


def test_a_budget_raised_behind_the_ledgers_back_is_noticed_by_a_quick_start_too(
    charged, path, anchor, monkeypatch
):
    monkeypatch.setattr(history, "SNAPSHOT_EVERY", 4)
    charged(11, secret=SECRET)
    tamper(path, "UPDATE budget SET epsilon = 50.0")
    with pytest.raises(LedgerError, match="its totals are not those recorded"):
        Ledger(path, anchor=anchor, secret=SECRET)


def test_a_new_anchor_for_a_copy_that_is_known_to_be_the_newest(charged, path, anchor, tmp_path):
    head = charged(2)
    anchor.unlink()
    with Ledger(path) as ledger:
        ledger.anchor(anchor)
        with pytest.raises(LedgerError, match="exists: move it away first"):
            ledger.anchor(anchor)
    assert charged(0) == head


class TestSecrets:
    def test_a_ledger_opens_with_its_own_only(self, path, tmp_path, budget):
        Ledger(path, budget=budget, secret=SECRET).close()
        Ledger(tmp_path / "plain", budget=budget).close()
        for where, secret, says in (
            (path, None, "begun with a secret: pass the one of then, as --secret FILE"),
            (path, SECRET[::-1], "begun with another secret: pass the one of then"),
            (tmp_path / "plain", SECRET, "begun with no secret: leave out --secret"),
        ):
            with pytest.raises(LedgerError, match=says):
                Ledger(where, secret=secret)
        Ledger(path, secret=SECRET).close()

    def test_is_nowhere_in_the_files_nor_in_what_is_shown(self, path, anchor, budget, gaussian):
        with Ledger(path, budget=budget, secret=SECRET, anchor=anchor) as ledger:
            ledger.charge(gaussian(100.0), uses=1, **ASK)
            assert SECRET.decode() not in repr(ledger)
            assert SECRET.decode() not in str(vars(ledger))
            files = list(path.parent.iterdir())
            assert len(files) > 2
            assert not any(SECRET in file.read_bytes() for file in files)


class TestForgery:
    """Somebody changes an entry and computes all later digests again, as well as they can."""

    def forge(self, path, **options):
        seal = Seal(None)
        with Ledger(path, **options) as ledger:
            head = ledger._history.genesis
        with beneath(path) as db:
            db.execute("UPDATE entry SET uses = 0")
            prices = {row[0]: seal.price(*row).digest for row in db.execute("SELECT * FROM price").fetchall()}
            for fields in db.execute(f"SELECT {', '.join(Row._fields)} FROM entry ORDER BY seq").fetchall():
                row = Row._make(fields)
                head = seal.entry(row, head, prices[row.price])
                db.execute("UPDATE entry SET digest = ? WHERE seq = ?", (head, row.seq))

    def test_is_noticed_under_a_secret(self, charged, path):
        charged(3, secret=SECRET)
        self.forge(path, secret=SECRET)
        with pytest.raises(LedgerError, match="entry 1: "):
            Ledger(path, secret=SECRET)

    def test_is_noticed_by_the_anchor(self, charged, path, anchor):
        charged(3)
        self.forge(path)
        with pytest.raises(LedgerError, match="has another history"):
            Ledger(path, anchor=anchor)

    def test_is_not_noticed_without_either_but_the_head_is_another(self, charged, path):
        head = charged(3)
        self.forge(path)
        with Ledger(path) as ledger:
            assert ledger.epsilon() == 0.0
            assert ledger.head != head


class TestAQuickStart:
    """It does not read what lies before the last record of totals, until somebody asks for it."""

    @pytest.fixture
    def old(self, path, anchor, budget, ask, monkeypatch):
        """Six questions; the totals were recorded after the fourth."""
        monkeypatch.setattr(history, "SNAPSHOT_EVERY", 4)
        with Ledger(path, budget=budget, anchor=anchor) as ledger:
            ledger.grant("ann", budget_epsilon=1.0)
            charges = [ask(f"k{n}", sigma=100.0, answer=n) for n in range(6)]
            for charge in charges:
                ledger.charge_each([charge])
        return charges

    def test_never_hands_out_an_old_answer_that_was_changed(self, old, path, anchor):
        tamper(path, "UPDATE entry SET answer = 5 WHERE seq = 2")
        with Ledger(path, anchor=anchor, owner=True) as ledger:
            repeat = replace(old[0], key="new")
            for ask in (lambda: ledger.charge_each([old[0]]), lambda: ledger.charge_each([repeat])):
                with pytest.raises(LedgerError, match=r"is damaged.*entry 2: "):
                    ask()
            with pytest.raises(LedgerError, match="entry 2: "):
                ledger.receipt(2)
            with pytest.raises(LedgerError, match="entry 2: "):
                ledger.verify()

    @pytest.mark.parametrize(
        "change",
        [
            "UPDATE total SET total = zeroblob(length(total))",
            "UPDATE total SET cap = 9.0",
            "DELETE FROM total WHERE account = 'ann'",
            "UPDATE entry SET state = zeroblob(32) WHERE seq = 4",
            "UPDATE entry SET uses = 0 WHERE seq = 6",
            "DELETE FROM entry WHERE seq = 7",
            "DELETE FROM price",
        ],
    )
    def test_notices_changes_of_what_it_begins_with(self, old, path, anchor, change):
        tamper(path, change)
        with pytest.raises(LedgerError, match=r"is damaged|older copy|has no price"):
            Ledger(path, anchor=anchor)

    def test_without_an_anchor_is_for_reading_alone_and_checks_what_it_reads(self, old, path):
        with pytest.raises(ValueError, match=r"verify=False needs read_only=True"):
            Ledger(path, verify=False)
        with Ledger(path) as full, Ledger(path, read_only=True, verify=False) as quick:
            assert quick.entries() == full.entries()
            assert (quick.spent(), quick.head, quick.kinds()) == (full.spent(), full.head, full.kinds())
        tamper(path, "UPDATE entry SET answer = 5 WHERE seq = 2")
        with Ledger(path, read_only=True, verify=False) as quick:
            assert [entry.seq for entry in quick.entries(after=2)] == [3, 4, 5, 6, 7]
            for read in (quick.entries, quick.verify, lambda: quick.entry_of("k0", account="ann")):
                with pytest.raises(LedgerError, match="entry 2: "):
                    read()
        tamper(path, "UPDATE entry SET answer = 5 WHERE seq = 6")
        with pytest.raises(LedgerError, match="entry 6: "):
            Ledger(path, read_only=True, verify=False)


def test_no_write_grows_the_file_which_could_leave_rubbish_there_after_a_power_cut(tmp_path):
    anchor = Anchor(tmp_path / "anchor", Seal(None))
    assert anchor.read() is None
    size = anchor.path.stat().st_size
    for seq in (0, 1, 2):
        anchor.write(seq, bytes(32))
        assert anchor.path.stat().st_size == size > 0
    notes = tmp_path / "notes.txt"
    notes.write_text("of somebody else")
    with pytest.raises(LedgerError, match="belongs to another ledger"):
        Anchor(notes, Seal(None)).read()
    assert notes.read_text() == "of somebody else"
