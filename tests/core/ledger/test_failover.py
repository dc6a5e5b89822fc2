"""A standby that lacks charges is promoted: nothing is answered until the owner has adopted it."""

import pytest

from ostraka.core.ledger.budget import LedgerMoved, LedgerUnavailable
from ostraka.ledger import BudgetExceeded, Ledger, LedgerError
from rigs import postgres


def test_a_promoted_standby_answers_nothing_until_its_owner_adopts_it(own_postgresql, budget, ask, gaussian):
    address, folder = own_postgresql
    with Ledger(address, budget=budget) as ledger:
        ledger.grant("ann", budget_epsilon=1.0)
        ledger.charge_each([ask("a")])
    standby = postgres.copied(folder)
    with Ledger(address) as ledger, Ledger(address) as second:
        second.charge_each([ask(f"lost {n}") for n in range(5)])
        assert ledger._history.seq == 2, "it has not read what others charged"
        spent = second.spent()
        postgres.fail_over(folder, standby)
        with pytest.raises(LedgerUnavailable):
            ledger.charge_each([ask("b")])
        for _ in range(2):
            with pytest.raises(LedgerMoved, match=r"timeline 2, but .* timeline 1 was adopted"):
                ledger.charge_each([ask("b")])
        with pytest.raises(LedgerMoved, match="type ostraka ledger adopt"):
            Ledger(address)
        with Ledger(address, read_only=True) as copy:
            assert copy.count() == 2
            with pytest.raises(LedgerError, match="elsewhere"):
                copy.adopt(by="olga")  # while a service is connected
    with Ledger(address, read_only=True) as copy, pytest.raises(ValueError, match="an answer cost at most"):
        copy.adopt(by="olga", lost=5)
    for wrong, error in ((gaussian(11.0), ValueError), (gaussian(0.5), BudgetExceeded)):
        with Ledger(address, read_only=True) as copy, pytest.raises(error):
            copy.adopt(by="olga", lost=5, reserve=wrong)
        with pytest.raises(LedgerMoved):
            Ledger(address)
    with Ledger(address, read_only=True) as copy:
        assert copy.adopt(by="olga", lost=5, reserve=gaussian(10.0)) == 3
    with Ledger(address) as again:
        assert again.spent() == spent
        entry = again.entries()[-1]
        assert (entry.uses, entry.account) == (5, None)
        assert entry.key.endswith("timeline 2 adopted by olga, 5 lost")
        assert again.charge_each([ask("b")])[0].seq == 4
        again.verify()


def test_a_restored_file_is_charged_for_what_it_lacks(path, ledger, ask, gaussian):
    ledger.charge_each([ask("a")])
    with pytest.raises(LedgerError, match="is open for writing"):
        ledger.adopt(by="olga")
    ledger.close()
    with Ledger(path, read_only=True) as copy:
        copy.adopt(by="olga", lost=2, reserve=gaussian(5.0))
    with Ledger(path) as again:
        plain = gaussian(10.0).curve() + 2 * gaussian(5.0).curve()
        assert again.epsilon() == pytest.approx(plain.epsilon(1e-5))
    with Ledger(path, read_only=True) as copy:
        seq = copy.adopt(by="olga")
    with Ledger(path) as again:
        assert (again.entries()[-1].seq, again.entries()[-1].uses) == (seq, 0)
        again.verify()


def test_a_copy_that_was_not_adopted_takes_no_charge(path, ledger, ask, gaussian):
    ledger.charge_each([ask("a")])
    ledger.close()
    with Ledger(path, read_only=True) as copy:
        with pytest.raises(ValueError, match="lost must be an integer >= 0"):
            copy.adopt(by="olga", lost=-1)
        with pytest.raises(BudgetExceeded):
            copy.adopt(by="olga", lost=5, reserve=gaussian(0.5))
        with pytest.raises(LedgerError, match="opened to be read"):
            copy.charge(gaussian(10.0), uses=1, unit="row", simulation=False)
        assert copy.adopt(by="olga", lost=1, reserve=gaussian(10.0)) == 4


def test_a_ledger_without_charges_cannot_say_what_was_lost(path, budget, gaussian):
    Ledger(path, budget=budget).close()
    with Ledger(path, read_only=True) as copy, pytest.raises(LedgerError, match="count its whole budget"):
        copy.adopt(by="olga", lost=1, reserve=gaussian(5.0))
    with Ledger(path, read_only=True) as copy:
        assert copy.adopt(by="olga") == 0
