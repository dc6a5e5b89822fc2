"""Many callers of one ledger. That exactly its budget is granted, tests/durability says."""

import itertools
import sqlite3

import pytest

from ostraka.ledger import Budget, Ledger, LedgerError
from tests.core.ledger.conftest import AtCommit, race

N_CALLERS, N_EACH = 64, 3


def together(charge):
    """How many of 64 callers' charges were granted; they start at once."""
    return race(lambda _, key: charge(key), n_callers=N_CALLERS, n_each=N_EACH)


def test_one_key_from_many_callers_is_one_charge(path, ask):
    with Ledger(path, budget=Budget(epsilon=9.0, delta=1e-5, adaptive=False)) as ledger:
        ledger.grant("ann", budget_epsilon=9.0)
        receipts = []

        def charge(key):
            receipts.extend(ledger.charge_each([ask("same", sigma=40.0, answer=len(key))]))
            return True

        together(charge)
        assert len({(receipt.seq, receipt.head, receipt.answer) for receipt in receipts}) == 1
        assert ledger.count() == 2


@pytest.mark.parametrize("after", [False, True])
def test_a_commit_that_fails_under_load_leaves_every_receipt_and_answers_no_more(path, ask, after):
    receipts, errors = {}, []
    with Ledger(path, budget=Budget(epsilon=9.0, delta=1e-5, adaptive=False), owner=True) as ledger:
        ledger.grant("ann", budget_epsilon=9.0)
        number = itertools.count(1)

        def commit(db):
            n = next(number)
            done = db.execute("COMMIT") if n != 3 or after else None
            if n == 3:
                raise sqlite3.OperationalError("disk I/O error")
            return done

        ledger._store._db = AtCommit(ledger._store._db, commit)

        def charge(key):
            try:
                (receipts[key],) = ledger.charge_each([ask(key, sigma=100.0, answer=len(key))])
            except LedgerError as error:
                errors.append(str(error))
            return True

        together(charge)
        assert errors
        assert all("it is unknown whether the last charge is recorded" in error for error in errors)
        assert len(receipts) + len(errors) == N_CALLERS * N_EACH
        with pytest.raises(LedgerError, match="it is unknown whether the last charge is recorded"):
            ledger.accounts()
    with Ledger(path, anchor=None) as again:
        charged = {entry.key: (entry.seq, entry.head, entry.answer) for entry in again.entries()}
        for key, receipt in receipts.items():
            assert charged[key] == (receipt.seq, receipt.head, receipt.answer)
