"""Whether one more fits: decided ahead for many, and still exactly."""

import math

import pytest

from ostraka.core.curve import Curve
from ostraka.core.ledger import history
from ostraka.core.ledger.chain import Seal, price
from ostraka.core.ledger.history import Balance
from ostraka.ledger import Budget, BudgetExceeded, Ledger


@pytest.fixture
def priced():
    def priced(sigma):
        curve = Curve.gaussian(sensitivity=1.0, sigma=sigma, moves="ballot")
        return Seal(None).price(1, f"sigma={sigma}", curve.moves, *price(curve))

    return priced


@pytest.fixture
def conversions(monkeypatch):
    """How often a total was turned into a decision."""
    conversions = []
    allows = Budget.allows

    def counted(budget, total):
        conversions.append(total)
        return allows(budget, total)

    monkeypatch.setattr(Budget, "allows", counted)
    return conversions


def spend(account, cost, reserve=None):
    n = 0
    while account.fits(reserve or cost):
        account.take(cost, under=reserve or cost)
        n += 1
    return n


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("sigma", [3.0, 20.0, 200.0])
def test_exactly_as_many_fit_as_one_by_one(priced, sigma, adaptive):
    budget = Budget(epsilon=1.0, delta=1e-5, adaptive=adaptive)
    account, cost = Balance(budget), priced(sigma)
    n = spend(account, cost)
    assert budget.allows(account.curve())
    assert not budget.allows(account.curve(cost, uses=1))
    one_by_one = Balance(budget)
    low, high = 0, 10**6
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if budget.allows(one_by_one.curve(cost, uses=middle)) else (low, middle)
    assert n == low


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("lot", [2, 7, 500])
def test_lots_fit_as_long_as_all_of_a_lot_does(priced, lot, adaptive):
    budget = Budget(epsilon=1.0, delta=1e-5, adaptive=adaptive)
    account, cost = Balance(budget), priced(20.0)
    n = spend(Balance(budget), cost)
    granted = 0
    while account.fits(cost, uses=lot):
        for _ in range(lot):
            assert account.fits(cost)
            account.take(cost, under=cost)
        granted += lot
    assert granted == n - n % lot
    assert spend(account, cost) == n % lot


def test_a_decision_is_made_for_many(priced, conversions):
    n = spend(Balance(Budget(epsilon=1.0, delta=1e-5, adaptive=False)), priced(200.0))
    assert n > 1500
    assert len(conversions) < n / 5


def test_what_costs_less_than_was_reserved_leaves_room_for_more(priced):
    budget = Budget(epsilon=1.0, delta=1e-5, adaptive=False)
    account, cost, reserve = Balance(budget), priced(60.0), priced(20.0)
    n = spend(account, cost, reserve)
    assert n > spend(Balance(budget), reserve)
    assert not budget.allows(account.curve(reserve, uses=1))
    assert budget.allows(account.curve())


def test_a_decision_for_one_price_is_none_for_another(priced, conversions):
    account = Balance(Budget(epsilon=1.0, delta=1e-5, adaptive=False))
    for n in range(1, 30):
        cheap = priced(200.0)
        assert account.fits(cheap)
        assert not account.fits(priced(0.5))
        account.take(cheap, under=cheap)
        assert len(conversions) >= 2 * n


def test_a_charge_that_was_not_asked_about_ends_the_decision(priced):
    budget = Budget(epsilon=1.0, delta=1e-5, adaptive=False)
    account, cheap, dear = Balance(budget), priced(200.0), priced(3.7)
    for _ in range(40):
        assert account.fits(cheap)
        account.take(cheap, under=cheap)
    assert account._ahead > 0
    account.take(dear)
    assert not account.fits(cheap)


@pytest.mark.parametrize("width", [1, 7, 4096])
def test_the_bound_on_what_is_spent_is_near_and_never_below(priced, width, monkeypatch):
    monkeypatch.setattr(history, "_WIDEST", width)
    account, cost = Balance(Budget(epsilon=1.0, delta=1e-5, adaptive=False)), priced(60.0)
    while account.fits(cost):
        account.take(cost, under=cost)
        exact = account.curve().epsilon(1e-5)
        assert exact <= account.at_most <= min(1.0, exact + 0.0101)
        assert account.epsilon == exact


def test_another_cap_is_decided_anew(priced):
    account, cost = Balance(Budget(epsilon=1.0, delta=1e-5, adaptive=False)), priced(10.0)
    before = spend(account, cost)
    account.cap(Budget(epsilon=1.5, delta=1e-5, adaptive=False))
    assert spend(account, cost) > 0
    account.cap(Budget(epsilon=0.5, delta=1e-5, adaptive=False))
    assert not account.fits(cost)
    assert (account.left, before > 5) == (0.0, True)


def test_totals_of_many_prices_are_added_up_exactly(priced):
    account, plain = (
        Balance(Budget(epsilon=1.0, delta=1e-5, adaptive=False)),
        Balance(Budget(epsilon=1.0, delta=1e-5, adaptive=False)),
    )
    for n in range(30):
        cost = priced(100.0 + n)
        for balance in (account, plain):
            balance.take(cost, uses=n)
        account.settle()
    assert len(account._owed) <= history._PRICES
    assert account.after() == plain.after()
    assert account.epsilon == plain.epsilon < math.inf


@pytest.mark.parametrize("adaptive", [False, True])
def test_charges_in_a_row_are_as_many_as_were_left(gaussian, adaptive):
    price = gaussian(20.0)
    with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-5, adaptive=adaptive)) as ledger:
        uses_left = ledger.uses_left(price)
        for _ in range(uses_left):
            ledger.charge(price, uses=1, unit="row", simulation=False)
        with pytest.raises(BudgetExceeded):
            ledger.charge(price, uses=1, unit="row", simulation=False)
        entries = ledger.entries()
        assert len(entries) == uses_left
        exact = [(n * price.curve()).epsilon(1e-5) for n in (1, 2, 10, uses_left)]
        recorded = [entries[n - 1].epsilon_after for n in (1, 2, 10, uses_left)]
        assert recorded[:3] == pytest.approx(exact[:3], abs=1e-12)
        assert exact[3] - 1e-12 <= recorded[3] <= exact[3] + 0.02
