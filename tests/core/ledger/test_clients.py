"""Budgets of clients: a question is paid from two accounts or refused, and grants are entries."""

import math

import pytest

from ostraka import Curve
from ostraka.core.ledger import history
from ostraka.core.ledger.budget import KeyConflict
from ostraka.core.ledger.chain import Receipt
from ostraka.ledger import Budget, BudgetExceeded, Ledger
from tests.core.ledger.conftest import ASK


class TestRefusals:
    def count(self, ledger, ask, account, *, sigma=10.0, at_once=7):
        """Ask until three are refused; how many were granted."""
        granted = refused = n = 0
        while refused < 3:
            outcomes = ledger.charge_each(
                [ask(f"{account}{n + i}", account=account, sigma=sigma) for i in range(at_once)]
            )
            granted += sum(isinstance(outcome, Receipt) for outcome in outcomes)
            refused += sum(isinstance(outcome, BudgetExceeded) for outcome in outcomes)
            n += at_once
        return granted

    @pytest.mark.parametrize("at_once", [1, 7, 1000])
    def test_a_client_gets_exactly_its_cap(self, ledger, ask, gaussian, affordable, at_once):
        ledger.grant("bob", budget_epsilon=0.9)
        n_affordable = affordable(gaussian(20.0).curve(), 0.9)
        assert n_affordable > 10
        assert self.count(ledger, ask, "bob", sigma=20.0, at_once=at_once) == n_affordable
        assert ledger.accounts()[1].left >= 0

    def test_clients_that_collude_share_one_budget(self, ledger, ask, gaussian, affordable):
        ledger.grant("ann", budget_epsilon=100.0)
        ledger.grant("bob", budget_epsilon=100.0)
        together = self.count(ledger, ask, "ann") + self.count(ledger, ask, "bob")
        assert together == affordable(gaussian(10.0).curve(), 2.0)
        bob = ledger.accounts()[1]
        assert (bob.spent, bob.cap, bob.left) == (0.0, 2.0, 2.0)  # nobody has more than there is

    def test_a_cap_beyond_the_ledgers_own_gives_no_less_to_a_filter(self, tmp_path, gaussian, ask):
        # a filter with a larger epsilon leaves less room for rounding: nobody may lose by a larger cap
        granted = []
        for cap in (2.0, 40.0):
            budget = Budget(epsilon=2.0, delta=1e-5, adaptive=True)
            with Ledger(tmp_path / f"{cap}", budget=budget) as ledger:
                ledger.grant("ann", budget_epsilon=cap)
                granted.append(self.count(ledger, ask, "ann"))
        assert granted[0] == granted[1] > 10

    def test_neither_account_pays_where_one_cannot(self, ledger, ask, gaussian):
        ledger.grant("bob", budget_epsilon=0.01)
        before = ledger.head, ledger.epsilon(), ledger.accounts()
        (refusal,) = ledger.charge_each([ask("q", account="bob")])
        assert isinstance(refusal, BudgetExceeded)
        assert (ledger.head, ledger.epsilon(), ledger.accounts()) == before

    def test_look_alike(self, ledger, ask, gaussian):
        while ledger.affords(gaussian(10.0), uses=1):  # then nothing is left for anybody
            ledger.charge(gaussian(10.0), uses=1, **ASK)
        ledger.grant("poor", budget_epsilon=0.001)
        refusals = [ledger.charge_each([ask("q", account=who)])[0] for who in ("ann", "poor", "nobody")]
        shown = {
            (str(refusal).replace(who, "*"), refusal.asked)
            for refusal, who in zip(refusals, ("ann", "poor", "nobody"), strict=True)
        }
        assert len(shown) == 1
        assert 0 < shown.pop()[1] < math.inf

    def test_do_not_stop_what_comes_after_and_a_refused_key_may_be_used_again(self, ledger, ask):
        outcomes = ledger.charge_each([ask("a", sigma=0.1), ask("b"), ask("c", account="eve"), ask("d")])
        assert [isinstance(outcome, Receipt) for outcome in outcomes] == [False, True, False, True]
        assert [entry.key for entry in ledger.entries()] == [None, None, "b", "d"]
        ledger.grant("eve", budget_epsilon=1.0)
        (receipt,) = ledger.charge_each([ask("c", account="eve", digest="another")])
        assert isinstance(receipt, Receipt)

    def test_record_no_price_that_nobody_pays(self, ledger, ask, path):
        ledger.charge_each([ask("a", sigma=0.1)])
        with Ledger(path) as second:
            second.charge_each([ask("b", sigma=9.0)])
        ledger.charge_each([ask("c", sigma=11.0)])
        ledger.verify()
        assert [e.mechanism for e in ledger.entries()[2:]] == ["Gaussian(sigma=9.0)", "Gaussian(sigma=11.0)"]


def test_what_a_receipt_says_is_left_is_at_most_a_hundredth_of_the_cap_too_little(ledger, ask):
    for n in range(60):
        (receipt,) = ledger.charge_each([ask(f"q{n}", sigma=60.0)])
        balance = ledger.accounts()[0].left
        assert balance - 0.01 <= receipt.left <= balance
        assert ledger.entries(after=receipt.seq - 1)[0].epsilon_after >= ledger.epsilon()
    assert receipt.left < 0.6


class TestGrants:
    def test_are_entries_of_the_same_chain(self, ledger):
        head = ledger.head
        assert ledger.grant("eve", budget_epsilon=0.25) == 3
        assert ledger.head != head
        entry = ledger.entries()[-1]
        assert (entry.kind, entry.account, entry.cap, entry.uses) == ("grant", "eve", 0.25, 0)
        assert entry.curve == ledger.spent() == Curve.zero()
        assert ledger.unit is None

    def test_may_be_raised_and_lowered(self, ledger, ask, gaussian):
        ledger.charge_each([ask("q")])
        ledger.grant("ann", budget_epsilon=0.01)
        assert ledger.accounts()[0].left == 0.0
        assert isinstance(ledger.charge_each([ask("r")])[0], BudgetExceeded)
        ledger.grant("ann", budget_epsilon=1.5)
        assert isinstance(ledger.charge_each([ask("r")])[0], Receipt)

    @pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
    def test_are_of_finite_epsilon(self, ledger, epsilon):
        with pytest.raises(ValueError, match="budget_epsilon must be finite and > 0"):
            ledger.grant("ann", budget_epsilon=epsilon)

    def test_are_refused_and_not_lost_under_the_key_of_a_charge(self, ledger, ask):
        ledger.charge_each([ask("k")])
        with pytest.raises(KeyConflict, match="nothing was granted"):
            ledger.grant("ann", budget_epsilon=0.2, key="k")
        assert ledger.accounts()[0].cap == 1.0

    def test_reach_a_ledger_that_is_open_elsewhere(self, ledger, ask, path):
        with Ledger(path) as second:
            second.grant("eve", budget_epsilon=1.0)
        assert isinstance(ledger.charge_each([ask("q", account="eve")])[0], Receipt)


def test_totals_are_recorded_now_and_then_and_read_back(ledger, ask, path, monkeypatch):
    monkeypatch.setattr(history, "SNAPSHOT_EVERY", 5)
    for n in range(12):
        ledger.charge_each(
            [ask(f"q{n}", sigma=50.0), ask(f"r{n}", account="bob", digest=f"q{n // 2}", sigma=50.0)]
        )
    ledger.verify()
    quick = ledger._new_history()
    with ledger._store.reading() as store:
        quick.resume(store)
        assert 5 < quick.seq < 26
        quick.follow(store)
    assert quick.head.hex() == ledger.head
    assert quick.dataset.curve() == ledger.spent()
    assert {name: balance.left for name, balance in quick.accounts.items()} == {
        account.name: account.left for account in ledger.accounts()
    }
