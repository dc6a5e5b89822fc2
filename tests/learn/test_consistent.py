"""PATEClassifier(consistent=True): the same public row is one question, one label, one charge."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from ostraka import Budget, GNMax, Ledger, PATEClassifier
from ostraka.consistent import Consistent
from ostraka.voters import partition

X, Y = load_digits(return_X_y=True)
PRIVATE, LABELS = X[500:], Y[500:]
TWICE = np.concatenate([X[:30], X[:30]])


def model(**settings):
    plan = {"n_teachers": 40, "n_answers": 60, "epsilon": 8.0, "delta": 1e-4, "random_state": 0}
    return PATEClassifier(asks="random", student="spreading", **{**plan, **settings})


def uses(ledger):
    return sum(entry.uses for entry in ledger.entries())


def test_rows_that_are_the_same_get_one_label_for_one_charge_in_data_frames_too():
    names = [f"p{j}" for j in range(X.shape[1])]
    private, twice = (pd.DataFrame(rows, columns=names) for rows in (PRIVATE, TWICE))
    fitted = model(consistent=True).fit(private, LABELS, X_public=twice)
    np.testing.assert_array_equal(fitted.labels_[:30], fitted.labels_[30:])
    assert uses(fitted.ledger_) == 30
    assert not fitted.ledger_.simulation
    assert "HMAC" in fitted.result_.upper["noise"]
    with pytest.raises(ValueError, match="consistent must be a bool"):
        model(consistent="yes").fit(PRIVATE, LABELS, X_public=TWICE)


def test_a_grid_of_ones_own_decides_what_is_the_same():
    cells = Consistent(secret=bytes(range(32)), grid=1.0, teachers="digits")
    near = np.concatenate([X[:30], X[:30] + 0.3])
    fitted = model(consistent=cells).fit(PRIVATE, LABELS, X_public=near)
    assert uses(fitted.ledger_) == 30
    apart = np.concatenate([X[:30], X[:30] + 0.7])
    assert uses(model(consistent=cells).fit(PRIVATE, LABELS, X_public=apart).ledger_) == 60


def test_labels_stay_after_a_restart_and_are_not_paid_again(tmp_path):
    path = tmp_path / "ledger"
    with Ledger(path, budget=Budget(epsilon=8.0, delta=1e-4, adaptive=False)) as ledger:
        first = model(consistent=True, ledger=ledger).fit(PRIVATE, LABELS, X_public=TWICE)
        manifest, labels = first.manifest_, first.labels_
    with Ledger(path) as ledger:
        again = model(consistent=True, ledger=ledger, manifest=manifest).fit(PRIVATE, LABELS, X_public=TWICE)
        np.testing.assert_array_equal(again.labels_, labels)
        assert uses(ledger) == 30
    assert (tmp_path / "ledger.secret").stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("same_draws")
def test_the_record_says_what_repeats_would_reveal_to_the_owner_alone():
    fitted = model().fit(PRIVATE, LABELS, X_public=TWICE)
    assert uses(fitted.ledger_) == 60
    panel = fitted.result_.owner["repeats"]
    assert panel["repeats"][0] == 1
    assert (np.diff(panel["share_wrong"]) <= 0).all()
    assert "repeats" not in fitted.result_.public().owner


def test_other_private_labels_and_another_grid_are_other_questions_with_other_noise():
    # sigma drowns the teachers: labels are noise, and shared noise would give the same ones
    deal = partition(len(LABELS), n_teachers=40)
    with Ledger(":memory:", budget=Budget(epsilon=8.0, delta=1e-4, adaptive=False)) as ledger:

        def fit(labels=LABELS, grid=1.0):
            cells = Consistent(secret=bytes(range(32)), grid=grid, teachers="digits")
            settings = {
                "mechanism": GNMax(sigma=1e5),
                "manifest": deal,
                "n_answers": 50,
                "classes": range(10),
            }
            return model(**settings, ledger=ledger, consistent=cells).fit(PRIVATE, labels, X_public=X[:50])

        first, second = fit(), fit()
        assert uses(ledger) == 50
        others = fit(9 - LABELS), fit(grid=0.5)
        assert uses(ledger) == 150
        assert len({entry.key.partition("/")[0] for entry in ledger.entries()}) == 3
    np.testing.assert_array_equal(first.labels_, second.labels_)
    for changed in others:
        assert (first.labels_ == changed.labels_).mean() < 0.6  # 0.1 expected of 50: chance below 1e-18


def test_keys_in_a_ledger_do_not_let_a_guess_of_the_private_rows_be_checked(tmp_path):
    deal = partition(len(LABELS), n_teachers=40)
    keys = set()
    for name in ("one", "two"):
        with Ledger(tmp_path / name, budget=Budget(epsilon=8.0, delta=1e-4, adaptive=False)) as ledger:
            model(ledger=ledger, manifest=deal).fit(PRIVATE, LABELS, X_public=X[:60])
            keys |= {entry.key.partition("/")[0] for entry in ledger.entries()}
    assert len(keys) == 2, "each ledger's secret gives another key for the same data"
