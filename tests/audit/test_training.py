"""Teachers under audit: what trainings say about their ballots."""

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from ostraka import TeacherEnsemble
from ostraka.audit.worlds import Retraining
from ostraka.audits import TeacherWorlds, retrained_votes
from ostraka.voters import partition

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 2))
Y = (X[:, 0] > 0).astype(int)
QUERIES = np.array([[2.0, 0.0], [-2.0, 0.0]])


def teachers(fixed, estimator=None):
    estimator = estimator or KNeighborsClassifier(1)
    return Retraining(estimator=estimator, X=X, y=Y, n_teachers=6, n_classes=2, fixed=fixed)


def test_nearest_neighbours_repeat_what_they_have_learnt():
    wrong = np.array([0, 1])
    ballots = teachers(fixed=False).ballots(QUERIES, learnt=(QUERIES, wrong), rng=np.random.default_rng(1))
    assert (ballots == wrong).all()
    assert (teachers(fixed=False).ballots(QUERIES, rng=np.random.default_rng(1)) == 1 - wrong).mean() > 0.8


def test_shards_are_dealt_anew_or_kept():
    query = rng.normal(size=(40, 2)) / 3
    once = [teachers(fixed).ballots(query, rng=np.random.default_rng(1)) for fixed in (True, False)]
    again = [teachers(fixed).ballots(query, rng=np.random.default_rng(2)) for fixed in (True, False)]
    assert (once[0] == again[0]).all()
    assert (once[1] != again[1]).any()


def test_one_target_for_all_queries_is_learnt_once():
    fitted = []

    class Counting(DecisionTreeClassifier):
        def fit(self, X, y):
            fitted.append(len(y))
            return super().fit(X, y)

    rows = np.broadcast_to(QUERIES[0], (2, 2))
    teachers(fixed=False, estimator=Counting()).ballots(
        QUERIES, learnt=(rows, np.array([0, 0])), teachers=[4], rng=rng
    )
    assert fitted == [11]


@pytest.mark.parametrize("fixed", [True, False])
def test_models_have_the_rates_of_the_ballots(fixed):
    system = TeacherWorlds(teachers(fixed), n_trainings=3, party=2, seed=5)
    labels = np.array([0, 1])
    model, _ = system.models(QUERIES, QUERIES, labels)
    generator = np.random.default_rng(5)
    rates = np.mean([teachers(fixed).ballots(QUERIES, rng=generator)[:, 0] for _ in range(3)], axis=0)
    assert model.present.tolist() == [1, 0]
    absent = rates[2] if fixed else rates.mean()
    assert model.absent[1] == pytest.approx(absent)
    assert system.expected(QUERIES)[0, 1] == pytest.approx(rates.sum())


def fit(X, y, number):
    deal = partition(len(y), n_teachers=10, key=number.to_bytes(16, "big"))
    ensemble = TeacherEnsemble(KNeighborsClassifier(1), n_teachers=10)
    return ensemble.fit(X, y, classes=[0, 1], manifest=deal)


def test_real_trainings_of_the_librarys_teachers_move_the_targets_ballot_only():
    worlds = retrained_votes(fit, X, Y, np.array([9.0, 0.0]), target=([9.0, 0.0], 0), n_trainings=4)
    moved = worlds[0].open() - worlds[1].open()
    assert (moved == [1, -1]).all()


def test_trainings_are_counted():
    with pytest.raises(ValueError, match="n_trainings"):
        retrained_votes(fit, X, Y, X[0], target=(X[0], 0), n_trainings=0)
