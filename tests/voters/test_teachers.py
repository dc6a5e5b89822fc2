"""Teachers: each sees its shard and nothing else, always votes, and one unit moves one ballot."""

import random
import time
import traceback
import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_iris
from sklearn.ensemble import BaggingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from ostraka import Private, TeacherEnsemble, count_votes
from ostraka.voters import partition, voting

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])
KEY = b"a key of thirty-two bytes, or so"
SECRET = 123.456


def nearest(n_teachers: int = 10, **options) -> TeacherEnsemble:
    return TeacherEnsemble(KNeighborsClassifier(1), n_teachers=n_teachers, **options)


class Odd(ClassifierMixin, BaseEstimator):
    """A classifier that misbehaves on shards of a kind, as its subclasses say."""

    def fit(self, X, y):
        self.rows, self.classes_ = X, np.unique(y)
        self.trained(X, y)
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])

    def trained(self, X, y):
        """Do nothing unusual."""


class FailsToLearn(Odd):
    def trained(self, X, y):
        if X.max() > 100:
            raise RuntimeError(f"the private value {X.max()} is too large")


class FailsToVote(Odd):
    def predict(self, X):
        if self.rows.max() > 100:
            raise RuntimeError(f"the private value {self.rows.max()} is too large")
        return super().predict(X)


class Warns(Odd):
    def trained(self, X, y):
        warnings.warn(f"the private value {X.max()}", stacklevel=1)
        np.log(np.zeros(1))


class Gambles(Odd):
    """Draws from the global generators, and the more the larger its rows are."""

    def predict(self, X):
        np.random.random(int(self.rows.max()))  # noqa: NPY002
        random.random()
        labels_drawn = np.random.randint(100, size=len(X)) + random.getrandbits(6)  # noqa: NPY002
        return self.classes_[labels_drawn % len(self.classes_)]


class Strange(Odd):
    """Predicts what is no class: by ``what``."""

    def __init__(self, what="regression"):
        self.what = what

    def predict(self, X):
        return {
            "regression": np.full(len(X), 0.5),
            "unknown": np.full(len(X), 7),
            "negative": np.full(len(X), -1),
            "missing": np.full(len(X), np.nan),
            "shape": np.zeros((len(X), 2)),
            "short": np.zeros(1),
            "text": np.full(len(X), "setosa"),
        }[self.what]


def test_each_teacher_is_trained_on_its_shard_and_nothing_else():
    ensemble = TeacherEnsemble(Odd(), n_teachers=7).fit(X, Y)
    for teacher, rows in zip(ensemble.teachers_, ensemble.manifest_.rows(), strict=True):
        np.testing.assert_array_equal(teacher.model.rows, X[rows])


def test_votes_are_what_the_same_teachers_trained_by_hand_say():
    manifest = partition(len(X), n_teachers=6, key=KEY)
    ensemble = nearest(6).fit(X, NAMES[Y], manifest=manifest)
    by_hand = np.array([KNeighborsClassifier(1).fit(X[rows], Y[rows]).predict(X) for rows in manifest.rows()])
    np.testing.assert_array_equal(ensemble.predictions(X), by_hand)
    np.testing.assert_array_equal(ensemble.vote(X).open(), count_votes(by_hand, n_classes=3))
    assert ensemble.classes_.tolist() == NAMES.tolist()


@pytest.mark.parametrize(("groups", "unit"), [(None, "row"), (np.arange(150) // 3, "person")])
def test_votes_are_private_and_say_whom_they_protect(groups, unit):
    votes = nearest().fit(X, Y, groups).vote(X[:5])
    assert isinstance(votes, Private)
    assert votes.shape == (5, 3)
    assert (votes.adjacency.unit, votes.adjacency.moves, votes.adjacency.at_most) == (unit, "ballot", 1)
    assert (votes.open().sum(axis=1) == 10).all()


ESTIMATORS = [  # plain ones are in the contract of rows
    KNeighborsClassifier(1),
    make_pipeline(StandardScaler(), DecisionTreeClassifier(splitter="random")),
    FailsToLearn(),
    FailsToVote(),
    Gambles(),
]


PEOPLE = np.arange(60) // 2
ROWS, LABELS = X[::5][:30].repeat(2, axis=0), Y[::5][:30].repeat(2)
DEALT = partition(PEOPLE, n_teachers=6, key=KEY)


def ballots_of(estimator, rows, labels):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # how many teachers failed
        ensemble = TeacherEnsemble(estimator, n_teachers=6, random_state=3)
        return ensemble.fit(rows, labels, PEOPLE, classes=[0, 1, 2], manifest=DEALT).predictions(X[::3])


@cache
def usual_ballots(estimator):
    return ballots_of(estimator, ROWS, LABELS)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda model: type(model).__name__)
@settings(max_examples=12)
@given(data=st.data())
def test_whatever_one_person_brings_one_ballot_moves_in_each_query(estimator, data):
    person = data.draw(st.integers(0, 29))
    others, labels = ROWS.copy(), LABELS.copy()
    others[person == PEOPLE] = data.draw(st.sampled_from([0.0, 5.0, SECRET, 1e6]))
    labels[person == PEOPLE] = data.draw(st.integers(0, 2))
    moved = (usual_ballots(estimator) != ballots_of(estimator, others, labels)).any(axis=1)
    assert moved.sum() <= 1
    if moved.any():
        assert np.flatnonzero(moved)[0] == DEALT.shards[person == PEOPLE][0]


def test_the_global_generators_come_back_as_they_were():
    before = np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    TeacherEnsemble(Gambles(), n_teachers=5).fit(X, Y).vote(X)
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before  # noqa: NPY002


def test_classes_a_shard_lacks_keep_their_columns():
    # sorted rows dealt to teachers by hand: nobody sees all three classes, one sees a single one
    manifest = partition(6, n_teachers=2, key=KEY)
    first, second = manifest.rows()
    y = np.empty(6, dtype=int)
    y[first], y[second] = [20, 30, 30], [10, 10, 10]
    rows = np.arange(6.0)[:, None]
    ensemble = nearest(2).fit(rows, y, classes=[10, 20, 30, 40], manifest=manifest)
    counts = ensemble.vote(rows[first]).open()
    assert counts.tolist() == [[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 0]]
    assert ensemble.count_failed() == 0, "a shard of one class is no failure"


def failed(ensemble, private):
    manifest = partition(150, n_teachers=5, key=KEY)
    with pytest.warns(UserWarning, match="Some teachers failed") as caught:
        ballots = ensemble.fit(private, Y, classes=[0, 1, 2], manifest=manifest).predictions(X[:4])
    return ballots, [str(warning.message) for warning in caught]


@pytest.mark.parametrize("estimator", [FailsToLearn(), FailsToVote()])
def test_a_teacher_that_fails_votes_by_its_number_and_is_counted(estimator):
    private = X.copy()
    private[:40] = SECRET
    ensemble = TeacherEnsemble(estimator, n_teachers=5)
    ballots, messages = failed(ensemble, private)
    assert ensemble.count_failed() == 5
    assert ballots.tolist() == [[number % 3] * 4 for number in range(5)]
    assert not any(str(SECRET) in message or "too large" in message for message in messages)


def test_a_teacher_that_fails_on_some_shards_only_leaves_the_others_alone():
    manifest = partition(150, n_teachers=5, key=KEY)
    private = X.copy()
    private[manifest.rows()[3][0]] = SECRET
    ensemble = TeacherEnsemble(FailsToLearn(), n_teachers=5)
    with pytest.warns(UserWarning, match=r"Some teachers failed .* do not publish") as told:
        ensemble.fit(private, Y, manifest=manifest)
    assert told[0].filename == __file__, "the line that called fit"
    assert [teacher.failed for teacher in ensemble.teachers_] == [False, False, False, True, False]
    assert (ensemble.predictions(X)[3] == 3 % 3).all()


@pytest.mark.parametrize("what", ["regression", "unknown", "negative", "missing", "shape", "short", "text"])
def test_predictions_that_are_no_class_count_as_failures(what):
    ensemble = TeacherEnsemble(Strange(what), n_teachers=5)
    ballots, _ = failed(ensemble, X)
    assert ballots.tolist() == [[number % 3] * 4 for number in range(5)]
    assert ensemble.count_failed() == 5


@pytest.mark.parametrize("estimator", [None, LogisticRegression, "tree"])
def test_what_is_no_estimator_is_refused(estimator):
    with pytest.raises(TypeError, match="estimator must be a classifier"):
        TeacherEnsemble(estimator, n_teachers=3).fit(X, Y)


def test_a_failure_is_told_once():
    ensemble = TeacherEnsemble(Strange("unknown"), n_teachers=5)
    failed(ensemble, X)
    ensemble.predictions(X)  # a warning here would be an error


def test_warnings_of_teachers_reach_nobody(capsys):
    TeacherEnsemble(Warns(), n_teachers=5).fit(X, Y).vote(X)
    assert "private value" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("when", ["trained", "predict"])
def test_an_interrupt_is_not_a_failing_teacher(when):
    def interrupt(*_):
        raise KeyboardInterrupt

    ensemble = TeacherEnsemble(type("Interrupted", (Odd,), {when: interrupt})(), n_teachers=5)
    with pytest.raises(KeyboardInterrupt):
        ensemble.fit(X, Y).vote(X)


@pytest.mark.parametrize("engine", ["joblib", "threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_ballots_do_not_depend_on_where_teachers_train(engine):
    forest = RandomForestClassifier(3, max_features=1)
    manifest = partition(150, n_teachers=8, key=KEY)
    options = {"n_teachers": 8, "random_state": 5}
    in_process = TeacherEnsemble(forest, n_jobs=1, **options).fit(X, Y, manifest=manifest).predictions(X)
    in_workers = (
        TeacherEnsemble(forest, n_jobs=2, engine=engine, **options)
        .fit(X, Y, manifest=manifest)
        .predictions(X)
    )
    np.testing.assert_array_equal(in_process, in_workers)


def states(random_state):
    ensemble = TeacherEnsemble(
        make_pipeline(StandardScaler(), DecisionTreeClassifier()), n_teachers=5, random_state=random_state
    ).fit(X, Y)
    return [teacher.model[-1].random_state for teacher in ensemble.teachers_]


def test_every_teacher_has_its_own_seed_and_the_same_again():
    assert len(set(states(1))) == 5
    assert states(1) == states(1) != states(2)
    assert states(np.random.RandomState(1)) == states(np.random.RandomState(1))
    assert states(None) != states(None)


def test_a_teacher_draws_by_its_seed_as_teachers_of_earlier_versions_did():
    seed = np.random.SeedSequence(5)
    with voting._quiet():
        model = voting.seeded(BaggingClassifier(DecisionTreeClassifier()), seed)
        drawn = np.random.random(), random.random()  # noqa: NPY002
    of_tree, of_bags = (seed.generate_state(2) >> 1).tolist()
    assert (model.estimator.random_state, model.random_state) == (of_tree, of_bags)
    state = int(seed.generate_state(1)[0])
    assert drawn == (np.random.RandomState(state).random(), random.Random(state).random())


def test_the_estimator_itself_is_not_touched():
    tree = DecisionTreeClassifier()
    TeacherEnsemble(tree, n_teachers=5).fit(X, Y)
    assert tree.random_state is None
    assert not hasattr(tree, "tree_")


def test_undeclared_classes_are_noted_and_declared_ones_are_not():
    assert "treated as public" in nearest().fit(X, Y).notes_[0]
    assert nearest().fit(X, Y, classes=[0, 1, 2]).notes_ == []


def test_undeclared_labels_are_refused_unnamed():
    with pytest.raises(ValueError, match="y must hold the 2 declared classes only") as caught:
        nearest().fit(X, NAMES[Y], classes=NAMES[:2])
    assert "virginica" not in "".join(traceback.format_exception(caught.value, chain=True))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_missing_values_are_refused_unless_the_estimator_takes_them(bad):
    holes = X.copy()
    holes[3, 1] = bad
    with pytest.raises(ValueError, match=r"X of shape \(150, 4\) must be finite"):
        nearest().fit(holes, Y)
    with pytest.raises(ValueError, match="must be finite"):
        nearest().fit(X, Y).vote(holes)
    if np.isnan(bad):
        TeacherEnsemble(HistGradientBoostingClassifier(max_iter=2), n_teachers=3).fit(holes, Y).vote(holes)


@pytest.mark.parametrize("rows", [X[0], X[:0], 3.0])
def test_rows_that_are_none_are_refused(rows):
    with pytest.raises(ValueError, match="X must have shape"):
        nearest().fit(X, Y).vote(rows)


def test_other_columns_than_in_training_are_refused():
    with pytest.raises(ValueError, match="X has 3 features, but the teachers were trained on 4"):
        nearest().fit(X, Y).vote(X[:, :3])


def test_voting_before_training_is_refused():
    with pytest.raises(NotFittedError):
        nearest().vote(X)


@pytest.mark.parametrize(
    ("y", "groups", "manifest", "match"),
    [
        (np.zeros(150), None, None, "two classes or more, got 1"),
        (Y[:-1], None, None, "one label for each of 150 rows"),
        (Y, np.arange(149), None, "one person for each row: got 149 for 150 rows"),
        (Y, None, partition(149, n_teachers=10), "other data"),
        (Y, None, partition(150, n_teachers=9), "9 teachers, but n_teachers=10"),
        (Y, np.arange(5).repeat(30), None, "10 teachers need at least 10 people"),
    ],
)
def test_labels_groups_and_manifests_of_other_data_are_refused(y, groups, manifest, match):
    with pytest.raises(ValueError, match=match):
        nearest().fit(X, y, groups, manifest=manifest)


def test_tables_and_sparse_matrices_vote_like_arrays():
    manifest = partition(150, n_teachers=10, key=KEY)
    want = nearest().fit(X, Y, manifest=manifest).predictions(X)
    for kind in (pd.DataFrame, scipy.sparse.coo_matrix, list):
        np.testing.assert_array_equal(nearest().fit(kind(X), Y, manifest=manifest).predictions(kind(X)), want)


def test_a_rehearsal_says_what_private_teachers_would_keep_silent_about():
    TeacherEnsemble(DecisionTreeClassifier(), n_teachers=5).dry_run(X[:2], n_classes=3, n_rows=4)
    for estimator, says in [
        (DecisionTreeClassifier(max_depth="deep"), "max_depth"),
        (LogisticRegression(solver="newton-choleski"), "solver"),
        (LinearRegression(), "use a classifier"),
    ]:
        with pytest.raises(ValueError, match=f"cannot be trained; .*{says}"):
            TeacherEnsemble(estimator, n_teachers=5).dry_run(X[:30], n_classes=3, n_rows=40)


@pytest.mark.parametrize(("n_rows", "n_sampled"), [(4, 30), (30, 30), (31, 31)])
def test_a_rehearsal_has_ten_rows_of_each_class_at_least(n_rows, n_sampled):
    trained = []

    class Spy(Odd):
        def trained(self, rows, codes):
            trained.append((rows, codes))

    TeacherEnsemble(Spy(), n_teachers=5).dry_run(X[:7], n_classes=3, n_rows=n_rows)
    ((rows, codes),) = trained
    np.testing.assert_array_equal(rows, X[np.arange(n_sampled) % 7])
    assert codes.tolist() == [number % 3 for number in range(n_sampled)]


def test_progress_is_told_stage_by_stage():
    events = []
    nearest(progress=lambda *event: events.append(event)).fit(X, Y).vote(X)
    assert [stage for stage, done, total in events if done == total] == ["shards", "teachers", "votes"]
    assert events[-1] == ("votes", 10, 10)


class Dawdles(Gambles):
    """Gambles in two steps, between which other threads run."""

    def fit(self, X, y):
        super().fit(X, y)
        time.sleep(0.002)
        self.bias_ = np.random.normal(size=3)  # noqa: NPY002
        return self

    def predict(self, X):
        time.sleep(0.002)
        scores = np.random.normal(size=(len(X), 3)) + self.bias_  # noqa: NPY002
        return scores.argmax(axis=1) % len(self.classes_)


def test_teachers_in_threads_do_not_share_a_generator():
    manifest = partition(150, n_teachers=30, key=KEY)

    def ballots(engine):
        ensemble = TeacherEnsemble(Dawdles(), n_teachers=30, engine=engine, n_jobs=8, random_state=0)
        return ensemble.fit(X, Y, manifest=manifest).predictions(X[::10])

    alone = ballots("joblib")
    for _ in range(2):
        np.testing.assert_array_equal(ballots("threading"), alone)


def test_nobody_who_prints_an_ensemble_reads_a_private_count():
    private = X.copy()
    private[:40] = SECRET
    ensemble = TeacherEnsemble(FailsToLearn(), n_teachers=5)
    _, messages = failed(ensemble, private)
    public = {name: repr(value) for name, value in vars(ensemble).items() if not name.startswith("_")}
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # scikit-learn reads the docstring, and does not know all its sections
        texts = [*messages, *public.values(), repr(ensemble), ensemble._repr_html_()]
    assert ensemble.count_failed() == 5
    assert repr(ensemble) == repr(TeacherEnsemble(FailsToLearn(), n_teachers=5))
    assert not any("5 of 5" in text or "n_failed" in text for text in texts)
    assert public["teachers_"] == str(["Teacher(private)"] * 5).replace("'", "")
