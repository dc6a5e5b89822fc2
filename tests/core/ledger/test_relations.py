"""A ledger counts for one unit under one neighbouring relation, and every entry says which."""

import pytest

from ostraka import Adjacency, Budget, GNMax, Ledger, LNMax, Private, release
from ostraka.core.ledger import chain, history
from ostraka.ledger import LedgerError
from ostraka.mechanisms import GaussianSums, NoisyCounts, Subsampled

BUDGET = Budget(epsilon=50.0, delta=1e-5, adaptive=False)
ADDED, REPLACED = (NoisyCounts(sigma=9.0, l2=1.0, relation=name) for name in ("add-or-remove", "replace-one"))
SAMPLED = Subsampled(mechanism=GNMax(sigma=40.0), sampling_rate=0.1)
UNIT = "row (add-or-remove)"


@pytest.fixture
def old(tmp_path, monkeypatch):
    """A function that writes a ledger as before relations were recorded: entries name the unit alone."""

    def write(*mechanisms, snapshot=False):
        path = tmp_path / "old.ledger"
        with monkeypatch.context() as before:
            for file in ("ledger", "history", "commit"):
                before.setattr(
                    f"ostraka.core.ledger.{file}.protection", lambda protects, _mechanism: protects
                )
            before.setattr(history, "SNAPSHOT_EVERY", 1 if snapshot else 10_000)
            with Ledger(path, budget=BUDGET) as ledger:
                for mechanism in mechanisms:
                    ledger.charge(mechanism, uses=1, unit="row", simulation=False, key=repr(mechanism))
        return path

    return write


@pytest.mark.parametrize(
    ("first", "second"), [(ADDED, REPLACED), (REPLACED, ADDED), (SAMPLED, GNMax(sigma=40.0))]
)
def test_prices_of_two_relations_do_not_add(first, second):
    with Ledger(":memory:", budget=BUDGET) as ledger:
        ledger.charge(first, uses=1, unit="row", simulation=False)
        spent = ledger.spent()
        for ask in (
            lambda: ledger.charge(second, uses=1, unit="row", simulation=False),
            lambda: ledger.affords(second, uses=1),
            lambda: ledger.uses_left(second),
        ):
            with pytest.raises(LedgerError, match="separate ledger"):
                ask()
        assert ledger.spent() == spent
        assert ledger.affords(first, uses=1)
        assert ledger.uses_left(first, most=2) == 2
        ledger.charge(first, uses=1, unit="row", simulation=False)


def test_the_door_and_every_entry_say_the_relation():
    tables = {
        relation: Private([3, 4], Adjacency.vector(l2=1.0, relation=relation))
        for relation in ("add-or-remove", "replace-one")
    }
    with Ledger(":memory:", budget=BUDGET) as ledger:
        for _ in range(8):
            release(ADDED, tables["add-or-remove"], ledger=ledger)
        with pytest.raises(LedgerError, match="do not add"):
            release(REPLACED, tables["replace-one"], ledger=ledger)
        assert ledger.unit == UNIT
        assert {entry.unit for entry in ledger.entries()} == {UNIT}


@pytest.mark.parametrize("mechanism", [GaussianSums(n_columns=2, sigma=9.0), SAMPLED, ADDED])
def test_every_mechanism_of_the_relation_is_known_by_its_name(mechanism):
    assert mechanism.promise.relation == "add-or-remove"
    assert chain.protection("row", repr(mechanism)) == UNIT


@pytest.mark.parametrize("snapshot", [False, True])
def test_what_an_old_ledger_paid_for_says_its_relation(old, snapshot):
    with Ledger(old(ADDED, snapshot=snapshot)) as ledger:
        assert ledger.unit == "row"
        with pytest.raises(LedgerError, match="separate ledger"):
            ledger.charge(REPLACED, uses=1, unit="row", simulation=False)
        assert ledger.charge(ADDED, uses=1, unit="row", simulation=False, key=repr(ADDED)) == 1
        ledger.charge(ADDED, uses=1, unit="row", simulation=False)
    with Ledger(ledger.path) as again:
        again.verify()
        assert [entry.unit for entry in again.entries()] == ["row", UNIT]


@pytest.mark.parametrize("snapshot", [False, True])
def test_an_old_ledger_of_two_relations_opens_and_takes_no_more(old, snapshot):
    with Ledger(old(ADDED, REPLACED, snapshot=snapshot)) as ledger:
        ledger.verify()
        assert len(ledger.entries()) == 2
        for mechanism in (ADDED, REPLACED):
            with pytest.raises(LedgerError, match="two neighbouring relations"):
                ledger.charge(mechanism, uses=1, unit="row", simulation=False)


def test_a_charge_of_nothing_does_not_decide_how_later_charges_add_up():
    fitting = []
    for first in (None, LNMax(scale=20.0)):
        with Ledger(":memory:", budget=Budget(epsilon=3.0, delta=1e-5, adaptive=True)) as ledger:
            if first is not None:
                ledger.charge(first, uses=0, unit="row", simulation=False)
            while ledger.affords(GNMax(sigma=10.0), uses=1):
                ledger.charge(GNMax(sigma=10.0), uses=1, unit="row", simulation=False)
            fitting.append(sum(entry.uses for entry in ledger.entries()))
    assert fitting[0] == fitting[1] > 30
