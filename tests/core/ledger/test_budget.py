import contextlib
import math
import pickle

import pytest

from ostraka import Adjacency, Private, release
from ostraka.core.ledger.budget import OstrakaError
from ostraka.ledger import Budget, BudgetExceeded, Ledger, LedgerError
from ostraka.mechanisms import RandomizedResponse


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("epsilon", value) for value in (0, -1.0, math.nan, math.inf, "2", True, None)),
        *(("delta", value) for value in (0, 1, -1e-5, math.nan, math.inf, "1e-5", None)),
        ("adaptive", 1),
    ],
)
def test_what_is_no_budget_is_refused(field, value):
    says = {"epsilon": "finite and > 0, got", "delta": "> 0 and < 1, got", "adaptive": "True or False"}
    with pytest.raises(ValueError, match=f"{field} must be {says[field]}"):
        Budget(**{"epsilon": 2.0, "delta": 1e-5, "adaptive": False, field: value})


def test_a_budget_is_a_value():
    budget = Budget(epsilon=2, delta=1e-5, adaptive=False)
    assert budget == Budget(epsilon=2.0, delta=1e-5, adaptive=False)
    assert repr(budget) == "Budget(epsilon=2.0, delta=1e-05, adaptive=False)"
    with pytest.raises(TypeError):
        Budget(2.0, 1e-5)


def test_a_refusal_is_not_caught_as_damage():
    assert issubclass(BudgetExceeded, OstrakaError)
    assert issubclass(LedgerError, OstrakaError)
    assert not issubclass(BudgetExceeded, LedgerError)


def test_errors_keep_what_they_carry_on_the_way_from_another_process():
    refusal = pickle.loads(pickle.dumps(BudgetExceeded("no", asked=0.5, left=0.1)))
    assert (str(refusal), refusal.asked, refusal.left) == ("no", 0.5, 0.1)
    damage = pickle.loads(pickle.dumps(LedgerError("bad", seq=7)))
    assert (str(damage), damage.seq) == ("bad", 7)


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1.3, 2.7, 3.3333, 7.1, 40.0])
def test_a_price_of_exactly_epsilon_fits_and_hardly_more_does_not(epsilon):
    pure = RandomizedResponse(n_classes=10, epsilon=epsilon)
    larger = RandomizedResponse(n_classes=10, epsilon=min(40.0, epsilon * (1 + 1e-13)))
    labels = Private([1, 2, 3], Adjacency.one_label())
    for mechanism, fits in ((pure, True), (larger, larger == pure)):
        with Ledger(":memory:", budget=Budget(epsilon=epsilon, delta=1e-5, adaptive=False)) as ledger:
            with contextlib.nullcontext() if fits else pytest.raises(BudgetExceeded):
                release(mechanism, labels, ledger=ledger)
            assert ledger.count() == fits
