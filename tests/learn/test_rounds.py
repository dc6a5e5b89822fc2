"""Rounds: the same front door as other ways, all affordable before the first, resumed and audited."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import shuffle

from ostraka import Budget, BudgetExceeded, Ledger, PATEClassifier
from ostraka.learn.ways import rounds as _rounds
from ostraka.learn.ways.plan import Facts
from ostraka.mechanisms import NoisyCounts
from ostraka.voters import GraphCells
from ostraka.voters.rows import FeatureCells

X, Y = shuffle(*load_digits(return_X_y=True), random_state=3)
X = X / 16
PUBLIC, NEW, PRIVATE = slice(0, 350), slice(350, 500), slice(500, None)
CELLS = FeatureCells(FunctionTransformer(), n_features=25)
FACTS = {"n_units": 1297, "n_classes": 10, "n_public": 350, "X_public": X[PUBLIC]}


def rounds(**settings):
    usual = {"way": "rounds", "cells": CELLS, "epsilon": 4.0, "delta": 1e-4, "classes": range(10)}
    return PATEClassifier(**usual | settings)


class TestRounds:
    def test_shuffled_labels_give_chance(self):
        labels = np.random.default_rng(0).permutation(Y[PRIVATE])
        model = rounds().fit(X[PRIVATE], labels, X_public=X[PUBLIC])
        assert model.score(X[NEW], Y[NEW]) < 0.4  # chance is 0.1

    def test_without_noise_reaches_logistic_regression(self):
        model = rounds(epsilon=100.0).fit(X[PRIVATE], Y[PRIVATE], X_public=X[PUBLIC])
        assert model.score(X[NEW], Y[NEW]) > 0.88


def in_a_frame(rows):
    return pd.DataFrame(rows, columns=[f"pixel {k}" for k in range(rows.shape[1])])


def test_a_data_frame_of_numbers_is_learned_from_and_its_columns_have_names():
    model = rounds(cells=None).fit(in_a_frame(X[PRIVATE]), Y[PRIVATE], X_public=in_a_frame(X[PUBLIC]))
    assert model.score(in_a_frame(X[NEW]), Y[NEW]) > 0.6  # ten fits scored 0.94 to 0.97
    assert model.to_sklearn().feature_names_in_[3] == "pixel 3"


class TestRefusals:
    def test_columns_of_kinds_before_any_charge(self):
        public, private = in_a_frame(X[PUBLIC]), in_a_frame(X[PRIVATE])
        for frame in (public, private):
            frame["kind"] = pd.Categorical(["a", "b"] * (len(frame) // 2) + ["a"] * (len(frame) % 2))
        with Ledger(":memory:", budget=Budget(epsilon=4.0, delta=1e-4, adaptive=False)) as ledger:
            with pytest.raises(ValueError, match=r"must be numbers .* Pass way='counts', or cells="):
                rounds(cells=None, ledger=ledger).fit(private, Y[PRIVATE], X_public=public)
            assert not ledger.entries()

    @pytest.mark.parametrize("before", [0, 1])
    def test_an_adaptive_budget_that_cannot_pay_for_all_rounds_is_not_charged(self, before):
        budget = Budget(epsilon=4.0, delta=1e-4, adaptive=True)
        with Ledger(":memory:", budget=budget) as ledger:
            if before:
                small = NoisyCounts(sigma=4000.0)
                ledger.charge(small, uses=1, unit="row", simulation=False)
            with pytest.raises(BudgetExceeded, match="choosing questions by earlier answers, but 12 ×"):
                rounds(ledger=ledger).fit(X[PRIVATE], Y[PRIVATE], X_public=X[PUBLIC])
            assert len(ledger.entries()) == before
            model = rounds(ledger=ledger, epsilon=3.9)
            assert len(model.fit(X[PRIVATE], Y[PRIVATE], X_public=X[PUBLIC]).ledger_.entries()) == 12 + before

    def test_other_classes_are_another_run(self, tmp_path):
        settings = {"ledger": tmp_path / "l.db", "manifest": tmp_path / "m.json"}
        rounds(**settings).fit(X[PRIVATE], Y[PRIVATE], X_public=X[PUBLIC])
        with pytest.raises(BudgetExceeded, match="12 ×"):
            rounds(**settings, classes=range(11)).fit(X[PRIVATE], Y[PRIVATE], X_public=X[PUBLIC])

    @pytest.mark.parametrize(
        ("settings", "groups", "named"),
        [
            ({"cells": GraphCells()}, None, "pass FeatureCells"),
            ({"cells": [GraphCells()]}, None, "pass FeatureCells"),
            ({"student": "logistic"}, None, "student must be None"),
            ({}, np.arange(len(Y) - 500) // 2, "keep one row of each person"),
        ],
    )
    def test_settings_of_other_ways_and_people_with_several_rows(self, settings, groups, named):
        with pytest.raises(ValueError, match=named):
            rounds(**settings).fit(X[PRIVATE], Y[PRIVATE], X_public=X[PUBLIC], groups=groups)


def test_the_plan_errs_up_and_takes_coarser_lines_for_less_budget():
    cells = FeatureCells(FunctionTransformer(), n_features=25, resolution=64).fit(X[PUBLIC])
    plans = [
        _rounds.Rounds.of_cells(
            cells, Facts(n_units=10**5, n_classes=10, grouped=False, epsilon=epsilon, delta=1e-6)
        ).plan
        for epsilon in (0.1, 0.5, 1.0, 8.0)
    ]
    assert [plan.ballot for plan in plans] == sorted(plan.ballot for plan in plans)
    assert rounds().plan(**FACTS).resolution == 64  # coarser than these cells are for counts
    for plan, epsilon in zip(plans, (0.1, 0.5, 1.0, 8.0), strict=True):
        assert 0.999 * epsilon < plan.epsilon <= epsilon
        assert plan.curve().epsilon(1e-6) == (12 * plan.mechanism.curve()).epsilon(1e-6)


@pytest.mark.parametrize("method", ["counts", "rounds"])
def test_classes_of_unequal_size_are_learned(method):
    rng = np.random.default_rng(0)
    rows, y = rng.normal(size=(6000, 40)), (rng.random(6000) < 0.1).astype(int)
    cells = FeatureCells(FunctionTransformer(), n_features=10)
    model = PATEClassifier(way=method, cells=cells, epsilon=2.0, delta=1e-6, classes=[0, 1])
    model.fit(rows[1000:], y[1000:], X_public=rows[:1000])
    assert (model.predict(rows[:1000]) == 0).mean() > 0.9  # the labels have nothing to do with the rows
