import math
import pickle

import pytest

from ostraka.ledger import Budget, BudgetExceeded, LedgerError, OstrakaError


@pytest.mark.parametrize("epsilon", [0, -1.0, math.nan, math.inf, "2", True, None])
def test_an_epsilon_that_is_no_positive_number_is_refused(epsilon):
    with pytest.raises(ValueError, match="epsilon must be finite and > 0, got"):
        Budget(epsilon=epsilon, delta=1e-5)


@pytest.mark.parametrize("delta", [0, 1, -1e-5, math.nan, math.inf, "1e-5", None])
def test_a_delta_that_is_no_probability_is_refused(delta):
    with pytest.raises(ValueError, match="delta must be > 0 and < 1, got"):
        Budget(epsilon=2.0, delta=delta)


def test_a_budget_is_a_value():
    assert Budget(epsilon=2, delta=1e-5) == Budget(epsilon=2.0, delta=1e-5)
    assert repr(Budget(epsilon=2, delta=1e-5)) == "Budget(epsilon=2.0, delta=1e-05, adaptive=False)"
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
