"""Questions of clients: one transaction, one answer for each key and each question."""

from dataclasses import dataclass, replace

import pytest

from ostraka import Curve
from ostraka.core.ledger.budget import KeyConflict
from ostraka.core.ledger.chain import Receipt
from ostraka.core.ledger.sqlite import SQLiteStore
from ostraka.ledger import BudgetExceeded, Ledger, LedgerError
from tests.core.ledger.conftest import race


def uses(total, gaussian, sigma=10.0):
    """How many uses of one Gaussian a curve is the sum of."""
    return total.mu_squared / gaussian(sigma).curve().mu_squared


class TestAQuestion:
    def test_is_charged_to_the_budget_and_to_the_client(self, ledger, ask, gaussian):
        (receipt,) = ledger.charge_each([ask("q")])
        ann, bob = ledger.accounts()
        assert (receipt.seq, receipt.answer, receipt.head) == (3, 3, ledger.head)
        assert uses(ledger.spent(), gaussian) == pytest.approx(1)
        assert ann.spent == ledger.epsilon() == pytest.approx(gaussian(10.0).curve().epsilon(1e-5), rel=1e-9)
        assert (ann.name, ann.cap, ann.left) == ("ann", 1.0, 1.0 - ann.spent)
        assert receipt.left == ann.left
        assert (bob.spent, bob.left) == (0.0, 0.5)

    def test_comes_back_from_the_file(self, ledger, ask, path):
        receipts = ledger.charge_each([ask("q"), ask("r", answer=-1), ask("s", account="bob", answer=7)])
        accounts, entries = ledger.accounts(), ledger.entries()
        with Ledger(path) as again:
            assert (again.accounts(), again.entries()) == (accounts, entries)
            assert [again.receipt(r.seq).answer for r in receipts] == [3, -1, 7]
            assert [again.receipt(r.seq).head for r in receipts] == [r.head for r in receipts]
        q = entries[2]
        assert (q.kind, q.account, q.key, q.uses, q.answer) == ("charge", "ann", "q", 1, 3)
        assert (q.digest, q.head, q.mechanism) == (b"q".hex(), receipts[0].head, "Gaussian(sigma=10.0)")

    def test_is_recorded_at_its_cost_and_granted_only_if_its_reserve_fits(self, ledger, ask, gaussian):
        ledger.grant("ann", budget_epsilon=gaussian(5.0).curve().epsilon(1e-5))
        (first,) = ledger.charge_each([ask("q", sigma=500.0, reserve=5.01)])
        assert isinstance(first, Receipt)
        assert uses(ledger.spent(), gaussian, 500.0) == pytest.approx(1)
        (second,) = ledger.charge_each([ask("r", sigma=500.0, reserve=5.01)])
        assert isinstance(second, Receipt | BudgetExceeded)
        (third,) = ledger.charge_each([ask("s", sigma=500.0, reserve=4.9)])
        assert isinstance(third, BudgetExceeded)

    def test_with_a_known_key_is_the_same_question_or_a_conflict_unless_another_asks(self, ledger, ask, path):
        (first,) = ledger.charge_each([ask("q", answer=3)])
        head, spent = ledger.head, ledger.epsilon()
        assert ledger.charge_each([ask("q", answer=5)]) == [first]
        with Ledger(path) as again:
            assert again.charge_each([ask("q", answer=5)]) == [first]
        (conflict,) = ledger.charge_each([ask("q", digest="other")])
        assert isinstance(conflict, KeyConflict)
        assert (ledger.head, ledger.epsilon()) == (head, spent)
        (bobs,) = ledger.charge_each([ask("q", account="bob", digest="other", answer=8)])
        assert bobs.answer == 8

    def test_asked_again_gets_the_stored_answer_and_costs_the_client_only(self, ledger, ask, gaussian):
        ledger.charge_each([ask("a", digest="same", answer=3)])
        mine, theirs = ledger.charge_each(
            [
                ask("b", digest="same", answer=9),
                ask("c", digest="same", account="bob", answer=9),
            ]
        )
        assert (mine.answer, theirs.answer) == (3, 3)
        assert uses(ledger.spent(), gaussian) == pytest.approx(1)
        ann, bob = ledger.accounts()
        assert bob.spent == ledger.epsilon() < ann.spent
        assert [entry.uses for entry in ledger.entries()] == [0, 0, 1, 0, 0]

    def test_asked_twice_in_one_call_is_one_charge(self, ledger, ask, gaussian):
        first, second, third, repeat = ledger.charge_each(
            [ask("a"), ask("a"), ask("a", digest="b"), ask("c", digest="a", answer=9)]
        )
        assert first == second
        assert isinstance(third, KeyConflict)
        assert repeat.answer == first.answer
        assert uses(ledger.spent(), gaussian) == pytest.approx(1)

    def test_needs_an_account(self, ledger, ask):
        head = ledger.head
        (refusal,) = ledger.charge_each([ask("q", account="eve")])
        assert isinstance(refusal, BudgetExceeded)
        assert refusal.left == 0.0
        assert ledger.head == head

    def test_is_worth_nothing_without_its_answer_stored(self, ledger, ask):
        (receipt,) = ledger.charge_each([ask("q", answer=4)])
        assert ledger.receipt(receipt.seq) == receipt
        for seq in (1, 99):
            with pytest.raises(LedgerError, match=f"has no client's charge {seq}"):
                ledger.receipt(seq)


class TestQuestionsThatFollow:
    """A first one under whose reserve there is room for all; the others are granted with it or not at all."""

    def batch(self, ask, name, n, *, sigma=10.0):
        rows = [ask(f"{name}/{i}", sigma=sigma) for i in range(n)]
        first = replace(ask(name), cost=Nothing(), reserve=rows[0].cost, times=n)
        return [first, *(replace(row, follows=True) for row in rows)]

    def test_are_granted_whole_or_not_at_all(self, ledger, ask, gaussian):
        lot_size = 4
        lots = [self.batch(ask, f"b{n}", lot_size) for n in range(40)]
        outcomes = ledger.charge_each([question for lot in lots for question in lot])
        granted = [
            [isinstance(outcome, Receipt) for outcome in outcomes[start : start + lot_size + 1]]
            for start in range(0, len(outcomes), lot_size + 1)
        ]
        assert all(len(set(lot)) == 1 for lot in granted), "some of a lot, and not all of it"
        full = sum(lot[0] for lot in granted)
        assert 0 < full < len(lots)
        assert uses(ledger.spent(), gaussian) == pytest.approx(full * lot_size)
        (refused,) = {type(outcome) for outcome in outcomes[-lot_size - 1 :]}
        assert refused is BudgetExceeded

    def test_conflict_where_the_first_does(self, ledger, ask, gaussian):
        ledger.charge_each([ask("b", digest="other")])
        before = ledger.head
        outcomes = ledger.charge_each(self.batch(ask, "b", 2))
        assert [type(outcome) for outcome in outcomes] == [KeyConflict] * 3
        assert ledger.head == before

    def test_come_back_whole(self, ledger, ask):
        first = ledger.charge_each(self.batch(ask, "b", 3))
        head = ledger.head
        again = ledger.charge_each(self.batch(ask, "b", 3))
        assert [receipt.seq for receipt in again] == [receipt.seq for receipt in first]
        assert ledger.head == head


@dataclass(frozen=True)
class Nothing:
    def curve(self):
        return 0 * Curve.gaussian(sensitivity=1.0, sigma=10.0, moves="ballot")


@pytest.fixture
def reads(monkeypatch):
    """Entries that a ledger reads by their numbers."""
    reads_of_heads, heads = [], SQLiteStore.heads
    monkeypatch.setattr(
        SQLiteStore, "heads", lambda self, numbers: (reads_of_heads.extend(numbers), heads(self, numbers))[1]
    )
    return reads_of_heads


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_question_asked_before_takes_as_many_reads_as_a_new_one(tmp_path, budget, ask, reads, elsewhere):
    counted = []
    for digest in ("q2", "never asked"):
        with Ledger(tmp_path / digest, budget=budget) as ledger, Ledger(tmp_path / digest) as second:
            writer = second if elsewhere else ledger  # another process may have written all that is on record
            writer.grant("ann", budget_epsilon=1.0)
            writer.charge_each([ask(f"q{n}") for n in range(5)])
            reads.clear()
            ledger.charge_each([ask("again", digest=digest)])
            counted.append(len(reads))
    assert counted[0] == counted[1] > 0


class TestWrongArguments:
    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"account": "two\nlines"}, "account must be printable text"),
            ({"key": ""}, "key must be printable text"),
            ({"digest": "xyz"}, "digest must be hexadecimal"),
            ({"digest": ""}, "digest must be hexadecimal"),
            ({"answer": 1.5}, "answer must be an integer"),
            ({"answer": 2**63}, "answer must be at most"),
        ],
    )
    def test_are_refused_before_anything_is_charged(self, ledger, ask, change, says):
        with pytest.raises(ValueError, match=says):
            ledger.charge_each([ask("q"), replace(ask("q"), **change)])
        assert len(ledger.entries()) == 2

    def test_costs_above_the_reserve_or_of_private_data_are_refused(self, ledger, ask, priced):
        with pytest.raises(ValueError, match="reserve must cost at least"):
            ledger.charge_each([ask("q", sigma=10.0, reserve=11.0)])
        private = priced(Curve((2.0,), (0.1,), publishable=False))
        with pytest.raises(ValueError, match="only publishable curves"):
            ledger.charge_each([replace(ask("k"), cost=private, reserve=private)])

    def test_another_unit_is_the_error_of_its_caller_alone(self, ledger, ask):
        ledger.charge_each([ask("q")])
        with pytest.raises(LedgerError, match="counts ballot curves that protect a row"):
            ledger.charge_each([ask("r"), ask("s")], unit="person")
        good = ledger._prices.priced([ask("t")], unit="row", simulation=False)
        bad = ledger._prices.priced([ask("u")], unit="person", simulation=False)
        first, second = ledger._serve([bad, good])
        assert isinstance(first, LedgerError)
        assert [outcome.seq for outcome in second] == [4]


def test_threads_that_ask_at_once_are_served_together(ledger, ask):
    receipts = {}

    def charge(_, key):
        (receipts[key],) = ledger.charge_each([ask(key, sigma=100.0, answer=int(key.split("/")[1]))])
        return True

    assert race(charge, n_callers=16, n_each=10) == 160
    assert sorted(receipt.seq for receipt in receipts.values()) == list(range(3, 163))
    assert all(key.endswith(f"/{receipt.answer}") for key, receipt in receipts.items())
    ledger.verify()


def test_what_an_owner_wrote_is_not_read_again(path, budget, ask, monkeypatch):
    with Ledger(path, budget=budget, owner=True) as ledger:
        ledger.grant("ann", budget_epsilon=1.0)
        monkeypatch.setattr(SQLiteStore, "rows", lambda *_: pytest.fail("read its own entries"))
        for n in range(3):
            ledger.charge_each([ask(f"q{n}")])
        assert ledger.accounts()[0].spent == ledger.epsilon() > 0
