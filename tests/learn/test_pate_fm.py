"""PATE-FM: one label moves one ballot, asking stops where the plan says, and every answer is paid for."""

from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs

torch = pytest.importorskip("torch", exc_type=ImportError)

from ostraka import ABSTAIN, Budget, BudgetExceeded, Confident, GNMax, Ledger, Threshold  # noqa: E402
from ostraka.learn.ways.plan import LabelPlan  # noqa: E402
from ostraka.networks import TorchClassifier  # noqa: E402
from ostraka.pate import PATEFM  # noqa: E402
from ostraka.students import FixMatch  # noqa: E402
from ostraka.voters import partition  # noqa: E402

pytestmark = pytest.mark.usefixtures("same_draws")  # a screen may let nothing through, though seldom

X, Y = make_blobs(n_samples=400, centers=3, n_features=4, cluster_std=1.5, random_state=3)
X = (X / X.std(axis=0)).astype(np.float32)
PRIVATE, NEW = slice(0, 300), slice(300, 400)
MANIFEST = partition(300, n_teachers=8, key=b"sixteen bytes ok")
NETWORK = TorchClassifier(epochs=5, batch_size=8, learning_rate=0.02, n_threads=1)
QUICK = {
    "estimator": FixMatch(NETWORK, threshold=0.8),
    "n_teachers": 8,
    "mechanism": GNMax(sigma=2.5),
    "screen": Threshold(at=5.0, sigma=3.0),
    "n_answers": 8,
    "n_queries": 14,
    "epsilon": 10.5,
    "delta": 1e-4,
    "classes": [0, 1, 2],
    "manifest": MANIFEST,
    "n_jobs": 1,
    "random_state": 0,
}


def made(**choices) -> PATEFM:
    return PATEFM(**{**QUICK, **choices})


@pytest.fixture(scope="module")
def model(with_same_draws) -> PATEFM:
    with with_same_draws():
        return made().fit(X[PRIVATE], Y[PRIVATE])


def test_it_learns_and_says_what_it_spent(model):
    result = model.evaluate(X[NEW], Y[NEW])
    assert result.owner["utility"]["plurality"] > 0.9
    assert result.owner["utility"]["one_teacher"] > 0.8
    assert set(model.predict(X[NEW])) <= {0, 1, 2}
    np.testing.assert_allclose(model.predict_proba(X[NEW]).sum(axis=1), 1)
    planned = 14 * Threshold(at=5.0, sigma=3.0).curve() + 8 * GNMax(sigma=2.5).curve()
    assert model.plan_.epsilon == planned.epsilon(delta=1e-4)
    assert "features" in result.upper["not_protected"][0]
    assert set(result.owner["seconds"]) == {"teachers", "student"}


def test_a_label_moves_one_ballot_of_one_teacher_and_no_other():
    choices = {"screen": None, "mechanism": GNMax(sigma=6.0), "n_answers": 40, "n_queries": 40}
    before = made(**choices).fit(X[PRIVATE], Y[PRIVATE])
    changed = Y[PRIVATE].copy()
    mine = MANIFEST.rows()[3]
    changed[mine[0]] = (changed[mine[0]] + 1) % 3
    after = made(**choices).fit(X[PRIVATE], changed)
    np.testing.assert_array_equal(before.asked_, after.asked_)
    assert len(set(before.asked_.tolist())) == 40  # drawn without repeats
    moved = np.abs(before.votes_.open() - after.votes_.open()).sum(axis=1)
    assert set(moved) <= {0, 2}
    first, second = (fitted.ensemble_.predictions(X[NEW]) for fitted in (before, after))
    np.testing.assert_array_equal(np.delete(first, 3, axis=0), np.delete(second, 3, axis=0))
    logits = [fitted.ensemble_.teachers_[3].model.logits(X[NEW]) for fitted in (before, after)]
    assert (logits[0] != logits[1]).any()


def test_a_teacher_gets_the_labels_of_its_shard_and_the_features_of_all(monkeypatch):
    shards = []

    def watched(self, rows, labels, *, classes=None):
        shards.append((np.array(rows), np.array(labels), self.unlabelled))
        return plain(self, rows, labels, classes=classes)

    plain = FixMatch.fit
    monkeypatch.setattr(FixMatch, "fit", watched)
    fitted = made().fit(X[PRIVATE], Y[PRIVATE])
    teachers, student = shards[2:10], shards[-1]  # after two rehearsals
    assert len(shards) == 11
    for shard, (rows, labels, unlabelled) in zip(MANIFEST.rows(), teachers, strict=True):
        np.testing.assert_array_equal(rows, X[PRIVATE][shard])
        np.testing.assert_array_equal(labels, Y[PRIVATE][shard])
        np.testing.assert_array_equal(np.asarray(unlabelled), X[PRIVATE])
        assert np.shares_memory(unlabelled, teachers[0][2])  # no copy a teacher
    np.testing.assert_array_equal(student[0], X[PRIVATE])
    np.testing.assert_array_equal(student[1], fitted.labels_)
    for rehearsal in shards[:2]:  # made-up labels
        np.testing.assert_array_equal(rehearsal[1], np.arange(len(rehearsal[1])) % 3)


def test_asking_stops_at_the_answers_or_at_the_queries():
    plenty = made(screen=Threshold(at=-1000.0, sigma=5.0)).fit(X[PRIVATE], Y[PRIVATE])
    assert (plenty.labels_ != ABSTAIN).sum() == 8
    assert len(plenty.asked_) == 8
    # a count of at most 8 is 198 standard deviations away
    with pytest.raises(ValueError, match="all 300 are unanswered"):
        made(screen=Threshold(at=1000.0, sigma=5.0)).fit(X[PRIVATE], Y[PRIVATE])


def test_the_same_fit_under_the_same_ledger_pays_once_on_however_many_cores(tmp_path):
    where = tmp_path / "labels.ledger"
    fit_by = partial(made, estimator=FixMatch(clone(NETWORK).set_params(n_threads=None), threshold=0.8))
    one = fit_by(ledger=where, epsilon=9.0).fit(X[PRIVATE], Y[PRIVATE])
    spent = one.ledger_.epsilon()
    again = fit_by(ledger=where, epsilon=9.0, n_jobs=2).fit(X[PRIVATE], Y[PRIVATE])
    assert again.ledger_.epsilon() == spent
    np.testing.assert_array_equal(one.labels_, again.labels_)
    assert again.result_.upper["epsilon"] == one.result_.upper["epsilon"]
    # fourteen screens, one answer and the plan once more are 9.5
    with pytest.raises(BudgetExceeded, match="nothing was trained or charged"):
        fit_by(ledger=where, epsilon=9.0, random_state=1).fit(X[PRIVATE], Y[PRIVATE])
    assert again.ledger_.epsilon() == spent


def test_noise_that_is_not_given_is_as_little_as_the_budget_pays_for():
    screen = Threshold(at=5.0, sigma=12.0)
    choices = {"mechanism": None, "screen": screen, "n_answers": None, "n_queries": None, "epsilon": 9.0}
    plan = made(**choices).plan(n_rows=300, n_classes=3)
    assert (plan.n_teachers, plan.n_answers, plan.n_queries) == (8, 30, 60)
    manual = LabelPlan(n_teachers=8, n_answers=60, n_queries=60, mechanism=plan.mechanism, delta=1e-4)
    assert 8.99 < manual.epsilon <= 9.0  # if every query is answered
    noisy_plan = PATEFM(mechanism=GNMax(sigma=30.0)).plan(n_rows=10_000, n_classes=3)
    assert (noisy_plan.n_teachers, noisy_plan.n_answers, noisy_plan.n_queries) == (20, 30, 30)


def test_a_plan_charges_what_is_left():
    screen, mechanism = Threshold(at=5.0, sigma=9.0), GNMax(sigma=7.0)
    confident = Confident(screen=screen, argmax=mechanism)
    plan = LabelPlan(n_teachers=8, n_answers=5, n_queries=9, mechanism=confident, delta=1e-5)
    assert plan.curve(3) == 3 * mechanism.curve() + 3 * screen.curve()
    assert plan.left({}) == plan.curve() == 5 * mechanism.curve() + 9 * screen.curve()
    assert plan.left({repr(screen): 6, repr(mechanism): 1}) == 4 * mechanism.curve() + 3 * screen.curve()
    assert plan.left({repr(screen): 10, repr(mechanism): 5}).epsilon(delta=1e-5) == 0
    alone = LabelPlan(n_teachers=8, n_answers=5, n_queries=5, mechanism=mechanism, delta=1e-5)
    assert alone.left({repr(mechanism): 2}) == 3 * mechanism.curve()
    least = LabelPlan(n_teachers=1, n_answers=1, n_queries=1, mechanism=mechanism, delta=1e-5)
    assert least.curve() == 1 * mechanism.curve()


@pytest.mark.parametrize(
    ("choices", "says"),
    [
        ({"n_answers": 0}, "n_answers must be an integer >= 1"),
        ({"n_queries": 5}, "n_queries must be at least n_answers=8"),
        ({"n_queries": 301}, "n_queries=301 must be at most the 300 rows"),
        ({"classes": [0, 1]}, "2 declared classes only"),
        ({"estimator": FixMatch(NETWORK, threshold=2.0)}, "threshold must be > 0 and < 1"),
        ({"student": FixMatch(NETWORK, ratio=0)}, "ratio must be an integer"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_is_charged(choices, says):
    with Ledger(":memory:", budget=Budget(epsilon=10.5, delta=1e-4, adaptive=False)) as ledger:
        with pytest.raises(ValueError, match=says):
            made(ledger=ledger, **choices).fit(X[PRIVATE], Y[PRIVATE])
        assert not ledger.entries()


def test_too_small_a_budget_is_refused_before_anything_is_trained():
    events = []
    with pytest.raises(BudgetExceeded, match="14 queries and 8 × Confident"):
        made(epsilon=1.0, progress=lambda *stage: events.append(stage)).fit(X[PRIVATE], Y[PRIVATE])
    assert events == []


def test_a_label_that_is_no_class_is_refused_and_not_shown():
    with pytest.raises(ValueError, match="declared classes only") as refused:
        made().fit(X[PRIVATE], np.where(Y[PRIVATE] == 2, 7777, Y[PRIVATE]))
    assert "7777" not in str(refused.value)


def test_only_fixmatch_trains_and_one_class_is_no_task():
    with pytest.raises(TypeError, match="estimator must be a FixMatch, got TorchClassifier"):
        made(estimator=NETWORK).fit(X[PRIVATE], Y[PRIVATE])
    with pytest.raises(ValueError, match="two classes or more"):
        made(classes=None).fit(X[PRIVATE], np.zeros(300, dtype=int))
