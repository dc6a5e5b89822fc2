"""Mistakes of users that would cost privacy or an honest number are refused, or said."""

import warnings
from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from sklearn.datasets import load_digits, make_blobs
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from ostraka import PATEClassifier
from ostraka.core.result import Result
from ostraka.data import guards as _guards
from ostraka.learn.run import area, learned_nothing, measured, warnings_of

X, Y = make_blobs(n_samples=700, centers=3, n_features=3, cluster_std=1.2, random_state=3)
PUBLIC, PRIVATE, NEW = slice(0, 150), slice(150, 550), slice(550, 700)
QUICK = {"n_teachers": 40, "epsilon": 5.0, "n_answers": 15, "student": "spreading"}


def coarse(n: int, seed: int) -> np.ndarray:
    """Rows of five kinds each: many are equal by chance."""
    return np.random.default_rng(seed).integers(0, 5, (n, 4)).astype(float)


def apart(private: np.ndarray, others: np.ndarray) -> None:
    digests = (_guards.row_digests(rows) for rows in (private, others))
    _guards.require_apart(*digests, what="public rows", way_out="…")


def test_equal_rows_have_equal_digests_and_others_do_not():
    rows = np.array([[1.0, -0.0], [1.0, 0.0], [0.0, 1.0], [np.nan, 1.0], [np.nan, 1.0]])
    first, second, three, four, five = (_guards.row_digests(row[None]).item() for row in rows)
    assert first == second != three
    assert four == five != three
    assert _guards.row_digests(rows).tolist() == sorted([first, second, three, four, five])
    grid = np.stack(np.meshgrid(np.arange(300.0), np.arange(300.0)), axis=-1).reshape(-1, 2)
    assert len(np.unique(_guards.row_digests(grid))) == 90_000


def test_data_frames_are_compared_by_the_names_of_their_columns():
    frame = pd.DataFrame({"age": [1, 2], "sex": ["f", "m"]})
    swapped = frame[["sex", "age"]]
    columns = ["age", "sex"]
    np.testing.assert_array_equal(
        _guards.row_digests(frame, columns=columns), _guards.row_digests(swapped, columns=columns)
    )


def test_copies_are_refused_with_their_number():
    private, rows = np.random.default_rng(0).normal(size=(1000, 3)), coarse(600, 0)
    some = np.concatenate([private[:40], np.random.default_rng(1).normal(size=(260, 3))])
    for table, public, words in (
        (private, private[:300], "300 of the 300 public rows are private rows, too"),
        (private, some, "40 of the 300 public rows"),
        (np.repeat(private, 3, axis=0), private[:300], "300 of the 300"),
        (rows[:400], rows[:200], "public rows"),  # which are often equal by chance
        (rows[:, :3], rows[:480, :3], "public rows"),
    ):
        with pytest.raises(ValueError, match=words):
            apart(table, public)


@pytest.mark.statistical
def test_rows_that_are_equal_by_chance_are_no_copies():
    """One refusal in 10,000 is expected of samples of one law: three in 120 have a chance of 3e-7."""
    refused = 0
    for seed in range(60):
        first, second = np.random.default_rng(seed).integers(50, 2000, 2)
        for kinds in (2, 4):
            try:
                apart(coarse(first, seed)[:, :kinds], coarse(second, 1000 + seed)[:, :kinds])
            except ValueError:
                refused += 1
    assert refused < 3


def test_a_fit_refuses_private_rows_as_public_ones_unless_told_and_then_states_it():
    with pytest.raises(ValueError, match=r"400 of the 400 public rows \(X_public\).*--allow-overlap"):
        PATEClassifier(**QUICK).fit(X[PRIVATE], Y[PRIVATE], X[PRIVATE])
    model = PATEClassifier(**QUICK, allow_overlap=True).fit(X[PRIVATE], Y[PRIVATE], X[PRIVATE])
    assert any("may be copies" in text for text in model.result_.upper["not_protected"])


def test_no_public_rows_are_refused_unless_some_are_held_out_on_request():
    frame, empty = (pd.DataFrame(rows, columns=list("abc")) for rows in (X, X[:0]))
    for rows, public, words in (
        (frame, empty, r"X must have one row or more, got a data frame of shape \(0, 3\)"),
        (X, X[:0], "minimum of 1 is required"),
        (X, None, r"X_public must be given.*holdout=0.2"),
    ):
        with pytest.raises(ValueError, match=words):
            PATEClassifier(**QUICK).fit(rows[PRIVATE], Y[PRIVATE], X_public=public)


def test_a_scaler_that_was_fitted_to_private_rows_is_refused_as_are_public_rows_that_miss_a_step():
    pipeline = make_pipeline(StandardScaler(), PATEClassifier(**QUICK, holdout=0.2))
    search = GridSearchCV(pipeline, {"pateclassifier__n_teachers": [20]}, cv=2, error_score="raise")
    for model in (pipeline, search):
        with pytest.raises(ValueError, match="StandardScaler stands before PATEClassifier"):
            model.fit(X[PRIVATE], Y[PRIVATE])
    pipeline = make_pipeline(FunctionTransformer(np.cbrt), PATEClassifier(**QUICK))
    with pytest.raises(ValueError, match="transform_input"):
        pipeline.fit(X[PRIVATE], Y[PRIVATE], pateclassifier__X_public=X[PUBLIC])


@pytest.mark.usefixtures("same_draws")
def test_the_recipes_for_a_pipeline_work():
    inside = PATEClassifier(
        make_pipeline(StandardScaler(), LogisticRegression()),
        **{**QUICK, "student": make_pipeline(StandardScaler(), LogisticRegression())},
    )
    inside.fit(X[PRIVATE], Y[PRIVATE], X[PUBLIC])
    assert inside.evaluate(X[NEW], Y[NEW]).utility["student"] == inside.score(X[NEW], Y[NEW]) > 0.8
    with pytest.raises(ValueError, match="rows to measure with are private rows"):
        inside.evaluate(X[PRIVATE], Y[PRIVATE])
    scaler = FrozenEstimator(StandardScaler().fit(X[PUBLIC]))
    with sklearn.config_context(enable_metadata_routing=True):
        model = PATEClassifier(**QUICK).set_fit_request(X_public=True)
        pipeline = Pipeline([("scale", scaler), ("learn", model)], transform_input=["X_public"])
        pipeline.fit(X[PRIVATE], Y[PRIVATE], X_public=X[PUBLIC])
        assert pipeline.score(X[NEW], Y[NEW]) > 0.8


@pytest.mark.usefixtures("same_draws")
def test_cross_validation_gets_the_public_rows_and_pays_for_every_fold(monkeypatch):
    monkeypatch.setattr(_guards, "_warned", [])
    monkeypatch.setattr(_guards, "_seen", [])
    with pytest.warns(UserWarning, match="learned from before.*ledger=PATH") as warning_list:
        scores = cross_val_score(
            PATEClassifier(**QUICK), X[PRIVATE], Y[PRIVATE], cv=3, params={"X_public": X[PUBLIC]}
        )
    assert len(warning_list) == 1
    assert scores.mean() > 0.7


def test_other_rows_are_no_refit(monkeypatch):
    monkeypatch.setattr(_guards, "_warned", [])
    monkeypatch.setattr(_guards, "_seen", [])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows in np.split(np.random.default_rng(0).normal(size=(600, 2)), 3):
            _guards.warn_of_refits(_guards.row_digests(rows))


def test_equal_rows_suggest_people():
    rows = np.repeat(np.random.default_rng(0).normal(size=(200, 3)), 3, axis=0)
    others = coarse(20_000, 0), coarse(450, 0)[:, :3], X
    repeated = [_guards.seems_repeated(table, _guards.row_digests(table)) for table in (rows, *others)]
    assert repeated == [True, False, False, False]
    with pytest.warns(UserWarning, match="--person COLUMN"):
        PATEClassifier(**QUICK).fit(rows, np.repeat(np.arange(200) % 3, 3), X[PUBLIC])


def test_what_makes_a_model_poor_is_said():
    poor = {"answers": np.array([1]), "predicted": np.array(["b", "b"]), "classes": np.array(["a", "b"])}
    text = " ".join(warnings_of(n_teachers=5, **poor))
    for words in ("Only 5 teachers", "from 1 answers", "No answer was a", "learned nothing"):
        assert words in text
    fair = {"answers": np.arange(20) % 2, "predicted": np.arange(20) % 2, "classes": np.arange(2)}
    assert not warnings_of(n_teachers=50, **fair)


class Says:
    """A student with given predictions."""

    def __init__(self, labels, sure=None):
        self.labels = np.asarray(labels)
        if sure is not None:
            self.predict_proba = lambda _: np.asarray(sure)

    def predict(self, _):
        return self.labels


def test_measures_are_those_of_their_definitions():
    truth = np.array([0, 0, 0, 0, 1, 1])
    sure = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.2, 0.8], [0.4, 0.6], [0.6, 0.4]])
    utility, series = measured(Says([0, 0, 0, 1, 1, 0], sure), None, truth, classes=np.arange(2))
    assert series["confusion"].tolist() == [[3, 1], [1, 1]]
    assert utility["recall"] == {"0": 0.75, "1": 0.5}
    assert utility["balanced"] == 0.625
    assert utility["student"] == utility["majority"] == pytest.approx(4 / 6)
    assert utility["auc"] == 6 / 8  # of 8 pairs, 6 in order
    # one bin each: .9, two of .8, .7 and two of .6; the mean gap by hand
    gap = (abs(0.9 - 1) + 2 * abs(0.8 - 0.5) + abs(0.7 - 1) + 2 * abs(0.6 - 0.5)) / 6
    assert utility["calibration_error"] == pytest.approx(gap)


def record(confusion, **utility) -> Result:
    rows = np.array(confusion)
    balanced = float(np.mean(np.diag(rows) / rows.sum(axis=1)))
    return Result(
        kind="learn",
        settings={"n_classes": len(rows)},
        utility={"balanced": balanced, **utility},
        series={"confusion": rows},
    )


@pytest.mark.parametrize(
    ("auc", "error", "nothing"),
    [
        (0.51, 0.02, True),
        (0.45, 0.02, True),
        (0.55, 0.02, False),  # above chance
        (0.51, 0.08, False),  # too few rows to say so
        (None, None, True),  # then the recall of classes decides
    ],
)
def test_a_student_with_probabilities_is_judged_by_how_it_ranks_rows(auc, error, nothing):
    guesses = record([[90, 10], [88, 12]], auc=auc, auc_error=error, classes_said=1)
    assert bool(learned_nothing(guesses)) is nothing
    expected = replace(guesses, utility={"expected": {"auc": auc, "auc_error": error}, "classes_said": 1})
    assert bool(learned_nothing(expected)) is nothing


def test_the_error_of_an_area_is_that_of_rows_in_a_random_order():
    rng = np.random.default_rng(0)
    y, sure = np.repeat([0, 1, 1], 20), rng.random(60)
    sure = np.stack([sure, sure], axis=1)
    areas = [area(rng.permutation(y), sure, classes=np.arange(2)) for _ in range(300)]
    values, errors = np.transpose(areas)
    # a standard deviation of 300 is within 20 % in all but 1e-6 of cases
    assert values.std() == pytest.approx(errors[0], rel=0.2)
    assert area([0, 0], np.eye(2), classes=np.arange(2)) == (None, None)


def test_a_student_that_guesses_has_learned_nothing():
    assert "no better than a guess" in learned_nothing(record([[90, 10], [88, 12]]))
    assert "same class" in learned_nothing(record([[90, 10], [8, 92]], classes_said=1))
    assert learned_nothing(record([[90, 10], [8, 92]], classes_said=2)) == ""
    assert "R² is 0.01" in learned_nothing(Result(kind="learn", utility={"r2": 0.01, "r2_error": 0.01}))
    assert learned_nothing(Result(kind="learn", utility={"r2": 0.05, "r2_error": 0.01})) == ""
    assert learned_nothing(Result(kind="learn", settings={"n_classes": 3})) == ""


@pytest.mark.parametrize("make", [sparse.csr_array, pytest.param(sparse.coo_array, marks=pytest.mark.slow)])
def test_a_sparse_matrix_is_learned_from_as_the_same_dense_one(make):
    X, y = load_digits(return_X_y=True)
    model = PATEClassifier(way="filter", epsilon=20.0, delta=1e-4, random_state=0)
    model.fit(make(X[300:1400]), y[300:1400], X_public=make(X[:300]))
    assert (model.predict(make(X[1400:])) == model.predict(X[1400:])).all()
    assert model.score(make(X[1400:]), y[1400:]) > 0.6


def test_a_sparse_matrix_that_is_too_wide_is_refused_with_the_way_out(tmp_path):
    wide, ledger = sparse.csr_array((100_000, 50_000)), tmp_path / "ledger.sqlite"
    model = PATEClassifier(epsilon=1.0, delta=1e-7, ledger=ledger)
    with pytest.raises(ValueError, match=r"40 GB as an array: .*TruncatedSVD\(32\)\.fit\(X_public\)"):
        model.fit(wide, np.arange(100_000) % 2, X_public=wide[:100])
    assert not ledger.exists()


@pytest.mark.parametrize("at_once", [3, 1 << 20])
def test_rows_are_counted_as_numpy_counts_them(monkeypatch, at_once):
    monkeypatch.setattr(_guards, "_AT_ONCE", at_once)
    rng = np.random.default_rng(3)
    private, others = (np.sort(rng.integers(0, 50, size=n).astype(np.uint64)) for n in (400, 60))
    for digests in (private, others, private[:1], np.arange(3, dtype=np.uint64), others[:4]):
        lengths = np.concatenate([*_guards._run_lengths(digests)])
        np.testing.assert_array_equal(lengths, np.unique(digests, return_counts=True)[1])
        assert _guards._twins(digests) == lengths[lengths > 1].sum()
    others = np.concatenate([others, others + np.uint64(30)])  # some that the private table lacks
    values = np.unique(np.concatenate([private, others]))
    mine, theirs = ([int((table == value).sum()) for value in values] for table in (private, others))
    for repeats in (1, 3):  # a table that is repeated as a whole counts once
        pooled = _guards._Pooled.of(np.repeat(private, repeats), others)
        totals = Counter(np.add(mine, theirs).tolist())
        assert {kind: n for kind, n in pooled.times.items() if n} == totals
        pairs = zip(pooled.private.tolist(), pooled.others.tolist(), strict=True)
        assert sorted(pairs) == sorted(pair for pair in zip(mine, theirs, strict=True) if pair[1])
        assert pooled.n_private == len(private)


def test_digests_do_not_depend_on_the_size_of_blocks(monkeypatch):
    rows = np.random.default_rng(4).normal(size=(100, 3))
    digests = _guards.row_digests(rows)
    monkeypatch.setattr(_guards, "_BLOCK", 7)
    assert np.array_equal(_guards.row_digests(rows), digests)
