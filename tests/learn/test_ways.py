"""Ways: counts through the same front door as argmaxes, chosen on public facts, recorded and audited."""

import math
import pickle
import sys
from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, make_classification
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils import shuffle

from ostraka import ABSTAIN, Budget, Ledger, PATEClassifier
from ostraka.learn.ways.choose import best_cells, image_side
from ostraka.learn.ways.plan import Facts
from ostraka.ledger import LedgerError
from ostraka.report import render_html
from ostraka.report.page import privacy_label
from ostraka.voters import GraphCells, QuantileCells
from ostraka.voters.rows import FeatureCells

X, Y = shuffle(*load_digits(return_X_y=True), random_state=3)
PUBLIC, NEW, PRIVATE = slice(0, 350), slice(350, 500), slice(500, None)
IMAGES = GraphCells(image_shape=(8, 8), time=5.0)
FACTS = {"n_units": 1297, "n_classes": 10, "n_public": 350, "X_public": X[PUBLIC]}


def counts(**settings):
    usual = {"way": "counts", "cells": IMAGES, "epsilon": 1.0, "delta": 1e-4, "classes": range(10)}
    return PATEClassifier(**usual | settings)


class TestCounts:
    def test_shuffled_labels_give_chance(self):
        labels = np.random.default_rng(0).permutation(Y[PRIVATE])
        model = counts(epsilon=3.6).fit(X[PRIVATE], labels, X_public=X[PUBLIC])
        assert model.score(X[NEW], Y[NEW]) < 0.4  # chance is 0.1; clusters are few, so it varies

    def test_without_noise_reaches_the_ceiling_of_the_student(self):
        model = counts(epsilon=20.0).fit(X[PRIVATE], Y[PRIVATE], X_public=X[PUBLIC])
        assert (model.labels_ == Y[PUBLIC]).mean() > 0.96

    def test_people_share_a_ballot(self):
        groups = np.arange(len(Y[PRIVATE])) // 2
        model = counts(epsilon=2.0).fit(X[PRIVATE], Y[PRIVATE], X_public=X[PUBLIC], groups=groups)
        assert model.result_.settings["unit"] == "person"
        assert model.plan_.ballot == 12
        assert model.score(X[NEW], Y[NEW]) > 0.7

    def test_a_named_student_learns_from_the_labels_of_which_the_posterior_is_sure(self):
        model = counts(epsilon=3.0, student="spreading").fit(X[PRIVATE], Y[PRIVATE], X_public=X[PUBLIC])
        sure = model.labels_ != ABSTAIN
        assert 0.2 < sure.mean() < 1
        assert (model.labels_ == Y[PUBLIC])[sure].mean() > 0.97
        assert model.score(X[NEW], Y[NEW]) > 0.85
        assert model.result_.settings["student"] == "spreading"
        np.testing.assert_array_equal(model.to_sklearn().predict(X[NEW]), model.predict(X[NEW]))

    def test_a_student_that_cannot_learn_is_refused_before_any_charge(self, monkeypatch):
        with Ledger(":memory:", budget=Budget(epsilon=1.0, delta=1e-4, adaptive=False)) as ledger:
            monkeypatch.setitem(sys.modules, "torch", None)
            for student, error, words in (
                ("nonsense", ValueError, "student cannot learn"),
                ("logistic", ValueError, "student cannot learn"),
                ("fixmatch", ImportError, r"pip install .*'torch>=[\d.]+'"),
            ):
                with pytest.raises(error, match=words):
                    counts(student=student, ledger=ledger).fit(X[PRIVATE], Y[PRIVATE], X_public=X[PUBLIC])
            assert not ledger.entries()


class TestLeftOut:
    """relation="zero-out": one unit is left out, which is a weaker promise with less noise."""

    def test_is_planned_paid_recorded_and_reported_as_such(self):
        model = counts(relation="zero-out").fit(X[PRIVATE], Y[PRIVATE], X_public=X[PUBLIC])
        mechanism = model.plan_.mechanism
        assert mechanism.relation == model.votes_.adjacency.relation == "zero-out"
        assert mechanism.l2 == model.votes_.adjacency.l2
        assert mechanism.sigma < 0.72 * counts().plan(**FACTS).mechanism.sigma
        assert model.score(X[NEW], Y[NEW]) > 0.85
        model.audit(trials=500)
        result = model.result_
        assert 0.98 < result.lower["epsilon"] <= result.upper["epsilon"] <= 1.0
        assert result.settings["relation"] == privacy_label(result)["relation"] == "zero-out"
        assert model.ledger_.unit == "row (zero-out)"
        page = " ".join(render_html(result.public()).split())
        for words in (
            "one row is left out, so that it counts nothing",
            "between any version of that row and none at all",
            "whether one row was left out",
        ):
            assert words in page
        assert "two versions" not in page

    def test_features_can_be_heard_with_fewer_rows(self):
        rows, _ = embeddings(1200)
        chosen = {}
        for relation in ("replace-one", "zero-out"):
            facts = Facts(
                n_units=3500, n_classes=3, grouped=False, epsilon=1.0, delta=1e-5, relation=relation
            )
            chosen[relation] = type(best_cells(None, rows[:1100], facts)[0])
        assert chosen == {"replace-one": GraphCells, "zero-out": FeatureCells}

    def test_another_relation_is_another_table_in_the_ledger(self, tmp_path):
        rows, labels = table(900)

        def paid(relation, ledger):
            files = {"ledger": tmp_path / ledger, "manifest": tmp_path / "manifest.json"}
            model = counts(cells=QuantileCells(), classes=[0, 1], relation=relation, random_state=1, **files)
            (entry,) = model.fit(rows[200:], labels[200:], X_public=rows[:200]).ledger_.entries()
            return entry.key, entry.head

        first, flips = paid("zero-out", "left out"), paid("replace-one", "replaced")
        assert paid("zero-out", "left out") == first != flips
        with pytest.raises(LedgerError, match="use a separate ledger"):
            paid("replace-one", "left out")

    def test_ways_that_cannot_promise_it_say_what_to_type_and_other_relations_are_refused(self):
        for method in ("argmax", "auto"):
            says = f"got way='{method}': pass way='counts', or relation='replace-one'"
            with pytest.raises(ValueError, match=says):
                counts(way=method, relation="zero-out").fit(X[PRIVATE], Y[PRIVATE], X_public=X[PUBLIC])
        for relation in ("add-or-remove", "swap", None):
            with pytest.raises(ValueError, match="relation must be one of replace-one, zero-out"):
                counts(relation=relation).plan(**FACTS)


def table(n):
    return make_classification(n, 8, n_informative=6, n_redundant=0, class_sep=1.2, random_state=0)


class TestTables:
    def test_bins_are_the_default_for_few_columns(self):
        rows, labels = table(6000)
        model = PATEClassifier(way="counts", epsilon=1.0, delta=1e-5, classes=[0, 1])
        model.fit(rows[1000:], labels[1000:], X_public=rows[:500])
        assert isinstance(model.student_.cells, QuantileCells)
        assert model.plan_.mechanism.l2 == pytest.approx(math.sqrt(16))
        assert model.score(rows[500:1000], labels[500:1000]) > 0.7
        np.testing.assert_allclose(model.predict_proba(rows[:5]).sum(axis=1), 1.0)

    def test_bins_have_a_student_of_their_own(self):
        rows, labels = table(600)
        model = PATEClassifier(way="counts", epsilon=1.0, delta=1e-4, student="spreading")
        with pytest.raises(ValueError, match="student must be None for a table of bins"):
            model.fit(rows[200:], labels[200:], X_public=rows[:200])


@cache
def embeddings(n=12_000, n_classes=3):
    settings = {"n_informative": 12, "n_redundant": 0, "class_sep": 1.5, "random_state": 1}
    return make_classification(n, 30, n_classes=n_classes, **settings)


BOTH = [GraphCells(), FeatureCells()]


@pytest.fixture(scope="module")
def model():
    rows, labels = embeddings()
    model = counts(cells=FeatureCells(), delta=1e-6, classes=range(3), allow_overlap=True)
    return model.fit(rows[1000:], labels[1000:], X_public=rows[:500])


class TestFeatures:
    """Features of each row's own, where rows are many."""

    def test_of_many_rows_tell_new_ones_apart_and_leave_as_plain_scikit_learn(self, model):
        rows, labels = embeddings()
        assert model.score(rows[500:1000], labels[500:1000]) > 0.85  # the same draws in every run
        assert (model.labels_ == labels[:500]).mean() > 0.85
        assert model.result_.settings["student"] == "linear model of public features"
        assert not model.expected_
        assert (model.labels_ == model.predict(rows[:500])).mean() > 0.99
        for copy in (model.to_sklearn(), pickle.loads(pickle.dumps(model))):
            np.testing.assert_array_equal(copy.predict(rows[:900]), model.predict(rows[:900]))

    def test_are_not_surer_than_they_are_right_where_rows_alike_are_of_different_classes(self, model):
        rows, labels = embeddings()
        flips = np.random.default_rng(3).random(len(labels)) < 0.3
        mixed = np.where(flips, (labels + 1) % 3, labels)
        unsure = clone(model).fit(rows[1000:], mixed[1000:], X_public=rows[:500])
        right = unsure.score(rows[500:1000], mixed[500:1000])
        sure = unsure.predict_proba(rows[500:1000]).max(axis=1).mean()
        # standard error of the score .02; by the confidence in labels it was sure at .98
        assert right == pytest.approx(0.65, abs=0.08)
        assert right - 0.15 < sure < right + 0.1

    def test_of_several_cells_the_best_on_public_rows_is_chosen_and_the_others_are_stated(self):
        rows, labels = embeddings()
        choose = counts(cells=BOTH, delta=1e-6, classes=range(3), random_state=0)
        facts = {"n_units": 19_000, "n_classes": 3, "n_public": 500, "X_public": rows[:500]}
        plan = choose.plan(**facts)
        assert plan == choose.plan(**facts)
        choose.fit(rows[1000:], labels[1000:], X_public=rows[:500])
        candidates = {name: value for name, value in choose.expected_.items() if name.startswith("counts, ")}
        assert set(candidates) == {"counts, GraphCells", "counts, FeatureCells"}
        best = max(candidates, key=lambda name: candidates[name])
        n_cells = {"counts, GraphCells": 60, "counts, FeatureCells": 50}[best]
        assert choose.plan_.n_cells == n_cells
        assert choose.result_.settings["expected"] == pytest.approx(choose.expected_)
        assert best in render_html(choose.result_)

    def test_of_two_classes_are_planned_and_voted_alike(self):
        rows, labels = embeddings(8000, 2)
        cells = FeatureCells(StandardScaler().fit(rows[:400]))
        model = PATEClassifier(way="counts", cells=cells, epsilon=1.0, delta=1e-5, classes=["no", "yes"])
        model.fit(rows[800:], np.array(["no", "yes"])[labels[800:]], X_public=rows[:400])
        assert model.plan_.ballot == 2
        assert model.plan_.mechanism.l2 == model.votes_.adjacency.l2 == 2048 * math.sqrt(2)
        assert model.score(rows[400:800], np.array(["no", "yes"])[labels[400:800]]) > 0.7
        assert model.result_.upper["epsilon"] <= 1.0

    def test_a_transformer_of_another_library_does_not_leave_as_plain_scikit_learn(self):
        rows, labels = embeddings(6000)
        cells = FeatureCells(make_pipeline(FunctionTransformer(np.tanh)))
        model = PATEClassifier(way="counts", cells=cells, epsilon=1.0, delta=1e-5)
        model.fit(rows[1000:], labels[1000:], X_public=rows[:400])
        with pytest.raises(ValueError, match="keep the student as it is"):
            model.to_sklearn()

    def test_few_rows_are_left_to_the_graph_without_a_trial(self):
        assert counts(cells=[IMAGES, FeatureCells()]).plan(**FACTS) == counts().plan(**FACTS)

    @pytest.mark.parametrize(
        ("n_public", "n_units", "n_cells"), [(1000, 19_000, 101), (999, 19_000, 60), (1000, 500, 60)]
    )
    def test_are_the_default_where_public_facts_say_so(self, n_public, n_units, n_cells):
        rows, _ = embeddings()
        model = counts(cells=None, delta=1e-6, classes=range(3))
        facts = {"n_units": n_units, "n_classes": 3, "n_public": n_public}
        assert model.plan(**facts, X_public=rows[:n_public]).n_cells == n_cells

    def test_of_persons_are_never_chosen_and_are_refused_before_any_charge_as_what_is_not_fitted_is(self):
        rows, labels = embeddings(6000)
        people = np.arange(5000) // 2
        with Ledger(":memory:", budget=Budget(epsilon=20.0, delta=1e-5, adaptive=False)) as ledger:
            settings = {"way": "counts", "epsilon": 20.0, "delta": 1e-5, "ledger": ledger}
            for transformer, groups, words in (
                (None, people, "groups must be None"),
                (StandardScaler(), None, "not fitted"),
            ):
                model = PATEClassifier(cells=FeatureCells(transformer), **settings)
                with pytest.raises(ValueError, match=words):
                    model.fit(rows[1000:], labels[1000:], X_public=rows[:400], groups=groups)
            assert not ledger.entries()
            facts = {"n_units": 60_000, "n_classes": 3, "n_public": 400, "X_public": rows[:400]}
            plan = PATEClassifier(cells=BOTH, **settings).plan(**facts, grouped=True)
        assert plan.n_cells == 60  # of the graph

    @pytest.mark.parametrize(
        ("settings", "says"),
        [
            ({"cells": "graph"}, "cells must be GraphCells, QuantileCells or FeatureCells"),
            ({"cells": [GraphCells(), 3]}, "or be a list of such, got int"),
            ({"cells": []}, "got an empty list"),
            ({"cells": [GraphCells(), GraphCells(time=3.0)]}, "of different kinds"),
            ({"way": "both"}, "way must be"),
        ],
    )
    def test_other_cells_and_ways_are_refused(self, settings, says):
        with pytest.raises(ValueError, match=says):
            counts(**settings).plan(**FACTS)
        with pytest.raises(ValueError, match="X_public"):
            counts().plan(n_units=100, n_classes=2, n_public=50)


class TestChoice:
    def test_auto_says_what_the_alternatives_were_expected_to_give(self):
        model = counts(way="auto").fit(X[PRIVATE], Y[PRIVATE], X_public=X[PUBLIC])
        assert model.way_ == "counts"
        assert set(model.expected_) == {"argmax", "counts"}
        assert model.result_.settings["expected"] == pytest.approx(model.expected_)
        assert model.expected_["counts"] > model.expected_["argmax"]

    @pytest.mark.parametrize(
        ("settings", "method", "epsilon"),
        [
            ({}, "counts", 1.0),
            ({"epsilon": 2.5}, "counts", 2.5),
            ({"n_teachers": 50}, "argmax", 2.0),
            ({"n_answers": 10}, "argmax", 2.0),
            ({"student": "boosting"}, "argmax", 2.0),
            ({"way": "argmax"}, "argmax", 2.0),
        ],
    )
    def test_a_way_that_is_not_named_is_that_of_the_command(self, settings, method, epsilon):
        plan = PATEClassifier(delta=1e-4, **settings).plan(**FACTS)
        assert plan.way == method
        assert 0.97 * epsilon < plan.epsilon <= epsilon

    @pytest.mark.parametrize(("cells", "method"), [(None, "filter"), (QuantileCells(), "counts")])
    def test_rows_that_are_no_images_are_learned_by_the_filter(self, cells, method):
        rows = np.random.default_rng(0).normal(size=(300, 64))
        facts = {"n_units": 2000, "n_classes": 2, "n_public": 300}
        for public in (rows, pd.DataFrame(rows).add_prefix("x")):
            assert PATEClassifier(delta=1e-4, cells=cells).plan(**facts, X_public=public).way == method

    @pytest.mark.parametrize("scale", [1.0, 0.25])
    def test_square_images_are_known_by_public_rows_alone(self, scale):
        digits = load_digits().data * scale
        rng = np.random.default_rng(0)
        tables = [
            rng.random((300, 64)),
            np.abs(rng.normal(size=(300, 3)) @ rng.random((3, 64))),
            np.cumsum(rng.normal(size=(300, 64)), axis=1),
            digits[:300, rng.permutation(64)],
            digits[:300, :50],
            digits[:20],
        ]
        assert image_side(digits[:300]) == 8
        assert [image_side(table) for table in tables] == [0] * 6
