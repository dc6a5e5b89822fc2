"""PATEClassifier: a scikit-learn classifier whose every answer is paid for, once."""

import re
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from ostraka import (
    ABSTAIN,
    Budget,
    BudgetExceeded,
    Confident,
    GNMax,
    Ledger,
    PATEClassifier,
    Threshold,
    release,
)
from ostraka.accounting import exact_profile
from ostraka.learn import PATERegressor
from ostraka.learn.students.distil import schedule
from ostraka.learn.ways import argmax as _learning
from ostraka.ledger import LedgerError
from ostraka.mechanisms import Weighted
from ostraka.voters import partition
from tests.learn.students.conftest import checks_of_scikit_learn

X, Y = make_blobs(n_samples=900, centers=4, n_features=3, cluster_std=1.2, random_state=3)
PUBLIC, PRIVATE, NEW = slice(0, 200), slice(200, 700), slice(700, 900)
MANIFEST = partition(500, n_teachers=50, key=b"sixteen bytes ok")
QUICK = {"n_teachers": 50, "epsilon": 4.0, "n_answers": 20, "student": "spreading"}


def fitted(**choices) -> PATEClassifier:
    return PATEClassifier(**{**QUICK, **choices}).fit(X[PRIVATE], Y[PRIVATE], X[PUBLIC])


@pytest.fixture(scope="module")
def model(with_same_draws) -> PATEClassifier:
    with with_same_draws():
        return fitted(random_state=0)


@pytest.mark.usefixtures("same_draws")
@checks_of_scikit_learn(PATEClassifier(DecisionTreeClassifier(), n_teachers=5, holdout=0.2))
@pytest.mark.filterwarnings("ignore:most private rows occur several times")
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning:sklearn")
def test_it_is_a_scikit_learn_classifier(estimator, check):
    check(estimator)


def test_one_persons_number_of_rows_neither_chooses_the_teachers_nor_is_published():
    # 25 teachers and 19 columns: by rows, the last person's 500th would turn all neighbours into trees
    wide = np.tile(X, (1, 10))[:, :19]
    models = []
    for n_rows in (499, 500):
        groups = np.minimum(np.arange(n_rows) // 4, 99)
        model = PATEClassifier(**QUICK | {"n_teachers": 25}, random_state=0)
        models.append(model.fit(wide[PRIVATE][:n_rows], Y[PRIVATE][:n_rows], wide[PUBLIC], groups))
    fewer, larger = (model.result_ for model in models)
    assert fewer.settings["teacher"] == larger.settings["teacher"] == "KNeighborsClassifier(n_neighbors=1)"
    assert "n_rows" not in larger.settings
    assert "numbers of rows" not in str(larger.upper["not_protected"])
    assert (fewer.settings["n_units"], larger.settings["n_units"]) == (100, 100)


@pytest.mark.usefixtures("same_draws")
def test_the_defaults_learn_digits():
    digits, labels = load_digits(return_X_y=True)
    new, public, private = np.split(np.random.default_rng(0).permutation(len(labels)), [197, 497])
    model = PATEClassifier(delta=1e-4, random_state=0)
    model.fit(digits[private], labels[private], digits[public])
    # five deals average 0.97 with a standard deviation of 0.015 each; a student of chance has 0.1
    assert model.score(digits[new], labels[new]) > 0.88
    assert model.way_ == "counts"
    assert model.result_.upper["epsilon"] <= 1


def test_answers_are_given_for_the_rows_asked_and_no_others(model):
    assert len(model.asked_) == len(set(model.asked_.tolist())) == 20
    assert set(np.flatnonzero(model.labels_ != ABSTAIN)) == set(model.asked_.tolist())
    assert model.labels_.shape == (200,)
    assert len(model.votes_) == 20
    np.testing.assert_array_equal(model.votes_.open(), model.ensemble_.vote(X[PUBLIC][model.asked_]).open())


def test_the_record_of_many_answers_has_epsilon_after_some_of_them_up_to_the_last(model):
    series = replace(model.plan_, n_answers=3000).over_time()
    assert (series["answers"][0], series["answers"][-1]) == (1, 3000)
    assert len(series["answers"]) == len(series["epsilon"]) <= 250
    assert series["epsilon"][7] == model.plan_.curve(series["answers"][7]).epsilon(model.plan_.delta)


def test_the_record_of_teachers_has_what_its_owner_wants_to_know(model):
    result = model.result_
    assert result.settings["n_rows"] == result.settings["n_units"] == 500
    assert result.settings["manifest"] == model.manifest_.sha256
    assert result.settings["relation"] == "replace-one"
    assert result.utility == {"answered": 20, "abstained": 0, "classes_said": 4}
    assert not result.upper["simulation"]
    exact = exact_profile(model.plan_.mechanism, model.votes_.open())
    assert result.owner["epsilon_these_votes"] == exact.epsilon(1e-5) < result.upper["epsilon"]
    assert len(result.owner["cost"]) == len(result.owner["consensus"]) == 20
    assert max(result.owner["cost"]) <= result.owner["price"]
    assert max(result.owner["consensus"]) <= 1


@pytest.mark.usefixtures("same_draws")
def test_evaluate_measures_and_keeps_what_is_private_for_the_owner():
    model = fitted(random_state=1)
    result = model.evaluate(X[NEW], Y[NEW], X_private=X[PRIVATE], y_private=Y[PRIVATE])
    assert result is model.result_
    assert result.utility["student"] == model.score(X[NEW], Y[NEW])
    assert result.utility["majority"] == np.bincount(Y[NEW]).max() / 200
    alone = clone(model.ensemble_.estimator).set_params(random_state=0).fit(X[PRIVATE], Y[PRIVATE])
    assert result.owner["utility"]["non_private"] == pytest.approx(alone.score(X[NEW], Y[NEW]), abs=0.02)
    assert set(result.owner["utility"]) == {"plurality", "one_teacher", "non_private"}
    assert result.owner["utility"]["one_teacher"] <= result.owner["utility"]["plurality"]
    assert not {"plurality", "one_teacher", "non_private"} & set(result.public().to_json().split('"'))
    assert result.series["student"]["epsilon"][-1] == pytest.approx(result.upper["epsilon"], rel=1e-9)
    assert len(result.series["student"]["accuracy"]) == len(schedule(n_answers=20))


def test_without_public_rows_some_are_held_out_and_it_says_so_first():
    model = PATEClassifier(**QUICK, holdout=0.3, random_state=0).fit(X, Y)
    assert len(model.held_out_) == 270
    assert model.manifest_.n_rows == 630
    assert model.result_.notes[0].startswith("270 rows of the private table were held out")
    assert "not protected at all" in model.result_.upper["not_protected"][0]


def test_held_out_people_are_held_out_with_all_their_rows():
    groups = np.arange(900) // 3
    model = PATEClassifier(**QUICK, holdout=0.2, random_state=0).fit(X, Y, groups=groups)
    people = set(groups[model.held_out_].tolist())
    assert len(people) == 60
    assert len(model.held_out_) == 180
    assert model.manifest_.n_units == 240
    assert model.result_.settings["unit"] == "person"
    assert model.ledger_.unit == "person"


def test_labels_of_held_out_rows_are_not_used():
    manifest = partition(720, n_teachers=50, key=b"sixteen bytes ok")
    choices = {**QUICK, "random_state": 5, "classes": range(4), "manifest": manifest, "holdout": 0.2}
    first = PATEClassifier(GaussianNB(), **choices).fit(X, Y)
    scrambled = Y.copy()
    scrambled[first.held_out_] = 3 - Y[first.held_out_]
    second = PATEClassifier(GaussianNB(), **choices).fit(X, scrambled)
    np.testing.assert_array_equal(first.held_out_, second.held_out_)
    np.testing.assert_array_equal(first.ensemble_.predictions(X), second.ensemble_.predictions(X))


@pytest.mark.parametrize("asks", ["least-confident", "random"])
def test_the_seed_moves_training_and_never_the_noise(asks):
    choices = {"asks": asks, "mechanism": GNMax(sigma=60.0), "n_answers": 30, "random_state": 7}
    # σ = 60 drowns 50 teachers: equal answers twice would mean equal noise (chance below 4e-18)
    classifier, two = (fitted(**choices, manifest=MANIFEST) for _ in range(2))
    first = classifier.asked_[: schedule(n_answers=30)[0]]
    np.testing.assert_array_equal(first, two.asked_[: len(first)])
    assert (classifier.labels_[classifier.asked_] != two.labels_[two.asked_]).any()


def test_a_fit_of_other_rows_or_without_a_seed_is_another_experiment(model):
    changed = X[PRIVATE].copy()
    changed[0, 0] += 1e-9
    refit = PATEClassifier(**QUICK, random_state=0).fit(changed, Y[PRIVATE], X[PUBLIC])
    assert len({id(model_fit.ledger_) for model_fit in (model, refit, fitted(), fitted())}) == 4


def resumable(path) -> dict:
    return {"ledger": path, "manifest": MANIFEST, "random_state": 0}


def test_an_interrupted_fit_goes_on_and_pays_nothing_twice(tmp_path, monkeypatch):
    screen = Threshold(at=20, sigma=10.0)
    choices = {**resumable(tmp_path / "ledger"), "screen": screen, "epsilon": 6.0}
    sizes = []

    def interrupted(mechanism, votes, **settings):
        if len(sizes) == 2:
            raise KeyboardInterrupt
        sizes.append(len(votes))
        return release(mechanism, votes, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(_learning, "release", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fitted(**choices)
    with Ledger(tmp_path / "ledger") as ledger:
        before = ledger.entries()
    assert sum(entry.uses for entry in before if entry.mechanism == repr(screen)) == sum(sizes)
    model = fitted(**choices)
    after = model.ledger_.entries()
    assert after[: len(before)] == before
    assert sum(entry.uses for entry in after if entry.mechanism == repr(screen)) == 20
    again = fitted(**choices)
    np.testing.assert_array_equal(again.labels_, model.labels_)
    np.testing.assert_array_equal(again.predict(X[NEW]), model.predict(X[NEW]))
    assert again.ledger_.entries() == after


def test_a_crash_between_paying_and_answering_costs_no_second_charge(tmp_path, monkeypatch):
    choices = resumable(tmp_path / "ledger")
    with monkeypatch.context() as patch:
        patch.setattr(GNMax, "release", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            fitted(**choices)
    model = fitted(**choices)
    assert sum(entry.uses for entry in model.ledger_.entries()) == 20


def test_other_settings_on_the_same_ledger_are_paid_for_and_refused_when_too_expensive(tmp_path):
    path = tmp_path / "ledger"
    with Ledger(path, budget=Budget(epsilon=5.0, delta=1e-5, adaptive=False)) as ledger:
        fitted(ledger=ledger, random_state=0)
        spent = ledger.entries()
        says = r"left, but 20 × GNMax.*nothing was trained or charged"
        with pytest.raises(BudgetExceeded, match=says) as caught:
            fitted(ledger=ledger, random_state=0, n_teachers=49)
        assert ledger.entries() == spent
        assert caught.value.asked > caught.value.left == ledger.left()
        model = fitted(ledger=ledger, random_state=0, n_teachers=49, epsilon=2.0)
        assert model.result_.upper["epsilon"] == pytest.approx(ledger.epsilon(), rel=1e-12)
        assert ledger.epsilon() > 4.0
        assert model.result_.settings["epsilon"] == 5.0


def test_a_refusal_comes_before_any_training_and_any_charge(monkeypatch):
    class Trains(BaseEstimator, ClassifierMixin):
        def fit(self, X, y):
            pytest.fail("trained")

    def fails(*_, **__):
        raise TypeError("no law of outcomes")

    with Ledger(":memory:", budget=Budget(epsilon=1.0, delta=1e-5, adaptive=False)) as ledger:
        with pytest.raises(BudgetExceeded):
            fitted(estimator=Trains(), ledger=ledger)
        with pytest.raises(BudgetExceeded):
            fitted(estimator=Trains(), epsilon=1e-3)
        monkeypatch.setattr(_learning, "exact_curve", fails)
        with pytest.raises(ValueError, match=r"cannot be accounted for, so nothing was charged.*no law"):
            fitted(ledger=ledger, epsilon=1.0, n_answers=2)
        assert ledger.entries() == ()


def test_a_weighted_mechanism_is_learned_with_and_recorded():
    settings, numbers = {"epsilon": 9.0, "n_answers": None}, {"n_units": 500, "n_classes": 4, "n_public": 200}
    model = fitted(mechanism=Weighted(mechanism=GNMax(sigma=10.0), weight=1.0), **settings)
    plain = PATEClassifier(**QUICK | settings, mechanism=GNMax(sigma=10.0)).plan(
        **numbers, X_public=X[PUBLIC]
    )
    assert model.plan_.n_answers == plain.n_answers > 0
    assert model.result_.upper["epsilon"] == pytest.approx(plain.epsilon, rel=1e-9)
    assert model.result_.owner["epsilon_these_votes"] <= model.result_.upper["epsilon"]


def test_a_screen_beside_a_mechanism_is_one_mechanism_that_can_be_given_as_such():
    screen, argmax = Threshold(at=35, sigma=5.0), GNMax(sigma=10.0)
    second = PATEClassifier(mechanism=argmax, screen=screen, epsilon=9.0)
    first = PATEClassifier(mechanism=Confident(screen=screen, argmax=argmax), epsilon=9.0)
    numbers = {"n_units": 500, "n_classes": 4, "n_public": 100}
    assert second.plan(**numbers) == first.plan(**numbers)
    with pytest.raises(TypeError, match="argmax must answer with a class"):
        first.set_params(screen=screen).plan(**numbers)


def test_a_partition_is_written_to_a_file_that_its_owner_alone_reads_and_is_used_again(tmp_path):
    path = tmp_path / "manifest.json"
    first = fitted(manifest=path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert fitted(manifest=str(path)).manifest_.sha256 == first.manifest_.sha256
    with pytest.raises(ValueError, match="it belongs to other data"):
        PATEClassifier(**QUICK, manifest=path).fit(X[PRIVATE][:-1], Y[PRIVATE][:-1], X[PUBLIC])


def test_of_two_processes_that_deal_at_once_one_deals_for_both(tmp_path, monkeypatch):
    path = tmp_path / "manifest.json"

    def later(*units, **settings):
        path.write_text(MANIFEST.to_json())
        return partition(*units, **settings)

    monkeypatch.setattr("ostraka.learn.session.partition", later)
    assert fitted(manifest=path).manifest_.sha256 == MANIFEST.sha256
    assert path.read_text() == MANIFEST.to_json()


def test_a_ledger_that_is_damaged_or_of_another_delta_is_refused_and_its_own_is_the_default(tmp_path):
    with Ledger(":memory:", budget=Budget(epsilon=4.0, delta=1e-6, adaptive=False)) as ledger:
        assert fitted(ledger=ledger).plan_.delta == 1e-6
        with pytest.raises(ValueError, match=r"delta must be the ledger's, 1e-06, got 1e-05"):
            fitted(ledger=ledger, delta=1e-5)
    (tmp_path / "ledger").write_bytes(b"not a ledger at all")
    with pytest.raises(LedgerError):
        fitted(ledger=tmp_path / "ledger")


@pytest.mark.usefixtures("same_draws")
@pytest.mark.parametrize("names", [np.array(["a", "b", "c", "d"]), np.array([-1, 0, 1, 2])])
def test_classes_are_named_as_the_labels_are(names):
    model = PATEClassifier(**QUICK, random_state=0).fit(X[PRIVATE], names[Y[PRIVATE]], X[PUBLIC])
    assert model.classes_.tolist() == names.tolist()
    assert model.score(X[NEW], names[Y[NEW]]) > 0.9
    assert (model.predict(X[NEW]) == names[model.predict_proba(X[NEW]).argmax(axis=1)]).all()


def test_declared_classes_need_not_appear_and_are_no_note(model):
    undeclared, model = model, fitted(classes=range(6), random_state=0)
    assert model.classes_.tolist() == list(range(6))
    assert model.predict_proba(X[NEW]).shape == (200, 6)
    assert not any("class list" in note for note in model.result_.notes)
    assert any("class list" in note for note in undeclared.result_.notes)


@pytest.mark.usefixtures("same_draws")
@pytest.mark.parametrize("student", ["auto", LinearSVC()], ids=str)
def test_any_student_learns_from_the_answers(student):
    model = fitted(student=student, random_state=0)
    assert model.score(X[NEW], Y[NEW]) > 0.6
    assert len(set(model.asked_.tolist())) == 20  # at random where the student has no probabilities
    assert hasattr(model, "predict_proba") == (not isinstance(student, LinearSVC))


def test_progress_goes_through_every_stage():
    events = []
    fitted(progress=lambda *event: events.append(event))
    finished = [stage for stage, done, total in events if done == total]
    assert finished == ["shards", "teachers", "votes", "answers", "student"]


@pytest.mark.usefixtures("same_draws")
def test_tables_with_text_go_through_pipelines():
    names = np.array(["red", "green", "blue", "grey"])
    table = pd.DataFrame({"colour": names[Y], "size": X[:, 0]})
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["colour"]), remainder="passthrough"
    )
    student = make_pipeline(encode, LogisticRegression())
    settings = QUICK | {"n_teachers": 10, "epsilon": 40.0, "random_state": 0, "student": student}
    model = PATEClassifier(make_pipeline(encode, DecisionTreeClassifier()), **settings)
    model.fit(table[PRIVATE], Y[PRIVATE], table[PUBLIC])
    assert model.score(table[NEW], Y[NEW]) > 0.95


@pytest.mark.parametrize(
    ("choices", "match"),
    [
        ({"asks": "politely"}, "asks must be one of"),
        ({"estimator": DecisionTreeClassifier(max_depth=-1)}, "cannot be trained; .*max_depth"),
        ({"student": "gan"}, "student 'gan' cannot learn; .*estimator must be"),
        ({"student": LogisticRegression(C=-1)}, "cannot learn; .*C"),
        ({"n_teachers": 501}, "501 teachers need at least 501 units, but there are 500"),
        ({"manifest": partition(499, n_teachers=50)}, "other data"),
        ({"classes": [0, 1]}, "declared classes only"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_paid(choices, match, tmp_path):
    path = tmp_path / "ledger"
    with pytest.raises(ValueError, match=match):
        fitted(**choices, ledger=path)
    if path.exists():
        with Ledger(path) as ledger:
            assert ledger.entries() == ()


@pytest.mark.parametrize(
    ("rows", "settings", "match"),
    [
        ((X, np.zeros(900)), {}, "two classes or more, got 1 class"),
        ((np.where(np.arange(900)[:, None] == 3, np.nan, X), Y), {}, "NaN"),
        ((X, Y, None, np.arange(899)), {}, "one person for each of 900 rows"),
        ((X, Y), {"holdout": 1.5}, "holdout must be"),
        ((X[:20], Y[:20]), {"holdout": 0.99}, "too few to hold"),
        ((X, Y, X[:, :2]), {}, "features"),
    ],
)
def test_wrong_rows_are_refused(rows, settings, match):
    model = PATEClassifier(**QUICK | {"holdout": 0.2} | settings)
    with pytest.raises(ValueError, match=match):
        model.fit(*rows)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_no_private_value_is_in_what_goes_wrong():
    secret = 987.654321

    class Complains(BaseEstimator, ClassifierMixin):
        def fit(self, X, y):
            if np.max(X) > 900:
                raise RuntimeError(f"bad value {np.max(X)}")
            self.classes_ = np.unique(y)
            return self

        def predict(self, X):
            return np.zeros(len(X), dtype=int)

    rows = X[PRIVATE].copy()
    rows[:, 0] = secret
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = PATEClassifier(Complains(), **QUICK).fit(rows, Y[PRIVATE], X[PUBLIC])
    assert str(secret) not in "".join(str(warning.message) for warning in caught)
    assert str(secret) not in repr(model) + str(model.result_.to_json())
    assert model.result_.owner["n_failed"] == 50
    with pytest.raises(ValueError, match="infinity") as refused:
        PATEClassifier(**QUICK).fit(np.where(rows == secret, np.inf, rows), Y[PRIVATE], X[PUBLIC])
    assert not re.search(r"987|\binf\b", str(refused.value))


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (np.full(9, 987.5), "Expected 2D array, got 1D array instead"),
        (np.full((9, 64), 987.5 + 0j), "Complex data not supported"),
        (np.full((9, 64), "name 987.5", dtype=object), "could not convert string to float"),
        (np.full((9, 64), 10**400, dtype=object), "int too large to convert to float"),
    ],
)
def test_private_rows_that_are_no_table_of_numbers_are_refused_unquoted(cells, words):
    for model in (PATEClassifier(**QUICK), PATERegressor(bounds=(0.0, 1.0))):
        with pytest.raises(ValueError, match=f"^{words}$") as refused:
            model.fit(cells, np.zeros(9), X[PUBLIC])
        assert refused.value.__context__ is None


def test_that_private_rows_are_of_one_declared_class_or_beyond_measure_is_told_by_nothing():
    rows = X[PRIVATE].copy()
    rows[0] = 1.7e308  # whose sum overflows, of which a warning would be an error here
    rows[1] = -rows[0]
    model = PATEClassifier(way="counts", classes=[0, 1], epsilon=8.0).fit(rows, 0 * Y[PRIVATE], X[PUBLIC])
    assert not model.predict(X[PUBLIC]).any()
