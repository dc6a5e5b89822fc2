"""The rule of an adaptive budget is fixed with its first charge, and nothing changes it later."""

from contextlib import contextmanager

import pytest

from ostraka import Budget, GNMax, Ledger, LNMax
from ostraka.core.curve import Curve
from ostraka.core.ledger import history
from ostraka.core.ledger.budget import RenyiFilter
from tests.core.ledger.conftest import beneath

BUDGET = Budget(epsilon=2.0, delta=1e-5, adaptive=True)
RENYI, PRESENT = 53, 63  # uses of Sum() that fit by RenyiFilter and by the present rule

# the head after three uses of Sum() at this time, as ostraka wrote it when RenyiFilter alone decided
THEN, HEAD_THEN = 1_700_000_000, "73d49daa83abdd63ffebae900a4b1482778fe798c26e830feb226eba279e3ee5"


class Sum:
    """A Gaussian of a fixed price."""

    def __repr__(self):
        return "Sum()"

    def curve(self):
        return Curve.gaussian(sensitivity=1.0, sigma=16.0)


class OfBallots(Sum):
    """The same, to be charged beside argmaxes."""

    def curve(self):
        return Curve.gaussian(sensitivity=1.0, sigma=16.0, moves="ballot")


@contextmanager
def as_then():
    """Ledgers begin as they did when RenyiFilter alone decided."""
    with pytest.MonkeyPatch.context() as then:
        then.setattr(history, "_RULE", history._EARLIER_RULE)
        then.setattr(history.time, "time", lambda: THEN)
        then.setattr("secrets.token_hex", lambda _: None)  # ledgers had no name
        yield


def charge(ledger, mechanism, uses=1):
    ledger.charge(mechanism, uses=uses, unit="row", simulation=False)


@pytest.fixture(params=[1, 10_000])
def snapshots(request, monkeypatch):
    monkeypatch.setattr(history, "SNAPSHOT_EVERY", request.param)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.sqlite"


@pytest.fixture(params=[False, True], ids=["verified", "anchored"])
def anchor(request, tmp_path):
    return tmp_path / "anchor" if request.param else None


def test_the_rules_differ():
    renyi = RenyiFilter(epsilon=2.0, delta=1e-5)
    for fits, limit in ((renyi.fits, RENYI), (BUDGET.allows, PRESENT)):
        assert [fits(n * Sum().curve()) for n in (limit, limit + 1)] == [True, False]


@pytest.mark.usefixtures("snapshots")
def test_a_ledger_that_began_under_the_earlier_rule_keeps_it(path, anchor):
    with as_then(), Ledger(path, budget=BUDGET, anchor=anchor) as ledger:
        ledger.grant("ada", budget_epsilon=2.0)
        charge(ledger, Sum(), uses=3)
    for n_uses in (3, 4):
        with Ledger(path, anchor=anchor) as ledger:
            assert ledger.uses_left(Sum()) == RENYI - n_uses
            charge(ledger, Sum())
            ledger.verify()
            assert ledger.uses_left(Sum()) == RENYI - n_uses - 1


def test_the_head_of_the_earlier_rule_is_that_of_earlier_ledgers(path):
    with as_then(), Ledger(path, budget=BUDGET) as ledger:
        charge(ledger, Sum(), uses=3)
        assert ledger.head == HEAD_THEN
    with Ledger(path) as ledger:
        assert (ledger.head, ledger.uses_left(Sum())) == (HEAD_THEN, RENYI - 3)


@pytest.mark.usefixtures("snapshots")
def test_an_empty_ledger_begins_under_the_present_rule_whatever_its_anchor_recorded(path, anchor):
    with as_then():
        Ledger(path, budget=BUDGET, anchor=anchor).close()
    for n_uses in (0, 1):
        with Ledger(path, anchor=anchor) as ledger:
            assert ledger.uses_left(Sum()) == PRESENT - n_uses
            charge(ledger, Sum())


def exchange_prices(path):
    """Exchange the numbers of two prices, also in the entries, and leave no other trace."""
    with beneath(path) as db:
        for was, becomes in ((1, 3), (2, 1), (3, 2)):
            db.execute("UPDATE price SET id = ? WHERE id = ?", (becomes, was))
            db.execute("UPDATE entry SET price = ? WHERE price = ?", (becomes, was))


@pytest.mark.usefixtures("snapshots")
def test_numbers_of_prices_do_not_decide_the_rule(path, anchor):
    with Ledger(path, budget=BUDGET, anchor=anchor) as ledger:
        charge(ledger, LNMax(scale=100.0))
        charge(ledger, GNMax(sigma=40.0))
        uses_left = ledger.uses_left(OfBallots())
    exchange_prices(path)
    with Ledger(path, anchor=anchor) as ledger:
        assert ledger.uses_left(OfBallots()) == uses_left < PRESENT - 10
