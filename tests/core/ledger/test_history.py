"""Entries with valid digests that no ledger would write: whoever knows the secret is not trusted either."""

import pytest

from ostraka.core.curve import Curve
from ostraka.core.ledger.chain import Row, Seal, price
from ostraka.core.ledger.history import History, Total
from ostraka.core.ledger.sqlite import SQLiteStore
from ostraka.ledger import Budget, LedgerError

SEAL = Seal(b"known to the forger" * 2)


@pytest.fixture
def store(budget):
    store = SQLiteStore(":memory:", budget=budget, secret=SEAL.name)
    yield store
    store.close()


def curve(unit="ballot"):
    return Curve.gaussian(sensitivity=1.0, sigma=40.0, moves=unit)


@pytest.fixture
def write(store, budget):
    """Append rows with valid digests, whatever they say."""

    def write(*rows, prices=("ballot",), totals=()):
        head = History(store.path, budget, SEAL).genesis
        prices_by_number = {
            n: SEAL.price(n, "m", unit, *price(curve(unit))) for n, unit in enumerate(prices, 1)
        }
        sealed = []
        for row in rows:
            priced = prices_by_number.get(row.price)
            if "\x1f" in row.account:  # it can have no digest
                sealed.append(row)
                continue
            sealed.append(row.sealed(SEAL, head, priced.digest if priced else bytes(32), at=row.at))
            head = sealed[-1].digest
        with store.writing():
            store.append(sealed, list(prices_by_number.values()), totals)

    return write


def row(seq, **changes):
    plain = Row(seq, "charge", "", None, 1, 1, "row", 0, 0.1)
    return plain._replace(**changes)


def grant(seq, account="ann", cap=1.0):
    return row(seq, kind="grant", account=account, price=None, uses=0, cap=cap)


@pytest.fixture
def read(store, budget):
    def read(how="verify"):
        history = History(store.path, budget, SEAL)
        with store.reading():
            getattr(history, how)(store)
        return history

    return read


def test_what_a_ledger_would_write_is_read(write, read):
    write(grant(1), row(2), row(3, account="ann", asked=b"q", answer=1, simulation=1), grant(4, cap=0.5))
    history = read()
    assert history.dataset.curve().mu_squared == pytest.approx(2 * curve().mu_squared)
    assert history.accounts["ann"].budget == Budget(epsilon=0.5, delta=1e-5, adaptive=False)
    assert (history.protects, history.simulation) == ("row", True)


@pytest.mark.parametrize(
    ("rows", "seq", "says"),
    [
        ([row(1), row(2, protects="person")], 2, "differ from the entries before"),
        ([row(1), row(2, price=2)], 2, "differ from the entries before"),
        ([row(1, account="ann")], 1, "without a grant"),
        ([row(1), row(2, kind="refund")], 2, "neither a charge nor a grant"),
        ([row(1, price=None)], 1, "neither a charge nor a grant"),
        ([row(1), row(2, state=bytes(32))], 2, "totals"),
    ],
)
def test_what_it_would_not_write_is_damage(write, read, rows, seq, says):
    write(*rows, prices=("ballot", "label"))
    with pytest.raises(LedgerError, match=says) as damage:
        read()
    assert damage.value.seq == seq


def test_a_name_with_a_separator_in_it_is_damage_even_with_no_digest_at_all(write, read):
    write(row(1), row(2, account="a\x1fb"))
    with pytest.raises(LedgerError, match="entry 2: its fields do not match"):
        read()


def test_a_record_of_totals_that_is_not_their_sum_is_damage(write, read, store, budget):
    history = History(store.path, budget, SEAL)
    wrong = [Total(1, "", None, "row", 0, price(curve())[1])]
    state = history._digest_of(wrong)
    write(row(1, uses=2, state=state), totals=wrong)
    with pytest.raises(LedgerError, match="totals are not the totals of the entries"):
        read()
    assert read("resume").seq == 1  # a quick start sees only that the record is the one written


@pytest.mark.parametrize(
    ("how", "says"), [("verify", "the totals of the entries"), ("resume", "those recorded")]
)
def test_a_record_of_totals_under_another_digest_is_damage(write, read, how, says):
    write(row(1, state=bytes(32)), totals=[Total(1, "", None, "row", 0, price(curve())[1])])
    with pytest.raises(LedgerError, match=f"totals are not {says}"):
        read(how)
