"""Many callers against one budget: exactly what it allows is granted, and a careless control grants more."""

import itertools
import sqlite3
import threading
from contextlib import closing

import pytest

from ostraka.core.ledger.chain import Receipt
from ostraka.ledger import Budget, BudgetExceeded, ChargeRequest, Ledger, LedgerError
from tests.core.ledger.conftest import AtCommit, race

N_CALLERS, N_EACH = 64, 3


def together(charge):
    """How many of 64 callers' charges were granted; they start at once."""
    return race(lambda _, key: charge(key), n_callers=N_CALLERS, n_each=N_EACH)


def question(gaussian, key, sigma, answer=1):
    cost = gaussian(sigma)
    return ChargeRequest(
        account="ann", key=key, digest=key.encode().hex(), cost=cost, reserve=cost, answer=answer
    )


@pytest.mark.parametrize("owner", [False, True])
@pytest.mark.parametrize(("epsilon", "cap"), [(1.0, 9.0), (9.0, 0.8)])
def test_callers_are_granted_exactly_the_cap(path, gaussian, affordable, *, owner, epsilon, cap):
    sigma = 22.0
    with Ledger(path, budget=Budget(epsilon=epsilon, delta=1e-5, adaptive=False), owner=owner) as ledger:
        ledger.grant("ann", budget_epsilon=cap)

        def charge(key):
            (outcome,) = ledger.charge_each([question(gaussian, key, sigma)])
            assert isinstance(outcome, Receipt | BudgetExceeded)
            return isinstance(outcome, Receipt)

        n = affordable(gaussian(sigma).curve(), min(epsilon, cap))
        assert together(charge) == n < N_CALLERS * N_EACH
        assert ledger.count() == 1 + n
        ledger.verify()


def test_a_control_that_reads_before_it_locks_grants_more(tmp_path):
    path, cap = tmp_path / "control", 40
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE spent (cost INTEGER)")
    have_read = threading.Barrier(N_CALLERS, timeout=120)

    def charge(key):
        with closing(sqlite3.connect(path, timeout=600, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = OFF")  # durability is not what it lacks, and takes long
            (spent,) = db.execute("SELECT count(*) FROM spent").fetchone()
            if key.endswith("/0"):  # at the first round all have read before any writes, as may happen
                have_read.wait()
            if spent < cap:
                db.execute("INSERT INTO spent VALUES (1)")
            return spent < cap

    assert together(charge) > cap


def test_one_key_from_many_callers_is_one_charge(path, gaussian):
    with Ledger(path, budget=Budget(epsilon=9.0, delta=1e-5, adaptive=False)) as ledger:
        ledger.grant("ann", budget_epsilon=9.0)
        receipts = []

        def charge(key):
            question_ = question(gaussian, "same", 40.0, answer=len(key))
            receipts.extend(ledger.charge_each([question_]))
            return True

        together(charge)
        assert len({(receipt.seq, receipt.head, receipt.answer) for receipt in receipts}) == 1
        assert ledger.count() == 2


@pytest.mark.parametrize("after", [False, True])
def test_a_commit_that_fails_under_load_leaves_every_receipt_and_answers_no_more(path, gaussian, after):
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
                (receipts[key],) = ledger.charge_each([question(gaussian, key, 100.0, answer=len(key))])
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
