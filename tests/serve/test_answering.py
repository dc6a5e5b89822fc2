"""From rows to labels: the mechanism's law, the screen, tables, and teachers that fail."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import threadpoolctl
from sklearn.compose import ColumnTransformer
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from ostraka import ABSTAIN, GNMax, LNMax, Private, TeacherEnsemble, Threshold
from ostraka.consistent import Consistent
from ostraka.core.mechanisms.screen import Confident
from ostraka.serve.answering import Answerer, Reserved
from ostraka.voters import SavedTeachers
from tests.serve.conftest import CLASSES, ensemble, rows

X = rows(30, seed=7)


def consistent(saved) -> Consistent:
    return Consistent(secret=b"s" * 32, grid=saved.grid, teachers="demo")


class Free:
    """A ledger that charges nothing."""

    def charge_each(self, requests, *, unit, simulation):
        return []


def answers(answerer, X):
    """What is drawn, before it is charged."""
    draws = []
    answerer.answer(X, ledger=Free(), requests=lambda batch: draws.extend(batch) or [])
    return draws


@pytest.mark.parametrize(
    ("mechanism", "screen"),
    [
        (GNMax(sigma=5.0), None),
        (LNMax(scale=4.0), None),
        (GNMax(sigma=5.0), Threshold(at=30.0, sigma=4.0)),
        (GNMax(sigma=5.0), Threshold(at=30.0, sigma=4.0, noise="every")),
    ],
    ids=repr,
)
def test_labels_and_prices_are_those_of_the_mechanism(saved, mechanism, screen):
    variant = dataclasses.replace(saved, mechanism=mechanism, screen=screen)
    cells = consistent(saved)
    answered = answers(Answerer(variant, cells), X)
    confident = Confident(screen=screen, argmax=mechanism) if screen else None
    for row, got in zip(X, answered, strict=True):
        votes = saved.ensemble.vote(cells.snap(row[None]))
        assert got.digest == cells.digests(row[None])[0]
        clear = True
        if screen:
            clear = screen.release(votes, rng=cells.noise(got.digest, purpose=repr(screen)))[0]
        label = mechanism.release(votes, rng=cells.noise(got.digest, purpose=repr(mechanism)))[0]
        assert got.answer == (label if clear else ABSTAIN)
        assert got.cost == (mechanism if screen is None else confident if clear else screen)
    if screen:
        assert {draw.answer == ABSTAIN for draw in answered} == {True, False}


def test_what_is_reserved_covers_whatever_comes_out(saved):
    screen, argmax = Threshold(at=30.0, sigma=4.0), GNMax(sigma=5.0)
    answerer = Answerer(dataclasses.replace(saved, mechanism=argmax, screen=screen), consistent(saved))
    reserved = answerer.reserve.curve()
    for draw in {answered.cost for answered in answers(answerer, X)}:
        assert all(cost <= limit for cost, limit in zip(draw.curve().rdp, reserved.rdp, strict=True))
    assert reserved.rdp == (screen.curve() + argmax.curve()).rdp
    assert Reserved(each=answerer.reserve, uses=0).curve().epsilon(1e-6) == 0
    assert Reserved(each=answerer.reserve, uses=3).curve().rdp == (3 * reserved).rdp


@pytest.fixture
def noted(saved, monkeypatch):
    """An answerer, and what is noted of the rows that its linear teachers vote about."""
    notes, answerer = [], Answerer(saved, consistent(saved))
    counts = answerer._linear.counts

    def noting(rows):
        notes.append((rows, {pool["num_threads"] for pool in threadpoolctl.threadpool_info()}))
        return counts(rows)

    monkeypatch.setattr(answerer, "_linear", SimpleNamespace(counts=noting))
    return answerer, notes


def test_votes_are_taken_in_the_middle_of_a_cell_so_that_they_belong_to_the_digest(saved, noted):
    answerer, notes = noted
    step = np.array(list(saved.grid.values()))
    first, second = answers(answerer, X[:1]), answers(answerer, np.round(X[:1] / step) * step + 0.3 * step)
    assert first == second
    np.testing.assert_array_equal(notes[0][0], notes[1][0])


def test_linear_teachers_vote_in_one_thread_whatever_the_environment_says(noted):
    answerer, notes = noted
    with threadpoolctl.threadpool_limits(2):
        assert answers(answerer, X[:1])
    assert notes[0][1] == {1}


def test_rows_beyond_the_grid_are_marked_and_the_others_kept(saved):
    answerer = Answerer(saved, consistent(saved))
    edge = 2.0**22 * saved.grid["1"]
    got = answerer.features([[1.0, 2.0, 3.0], [1.0, edge, 3.0], [1.0, -edge, 3.0], [1e308, 2.0, 3.0]])
    assert answerer.usable(got).tolist() == [True, False, False, False]
    assert answerer.usable(np.array([[1.0, np.nan, 3.0], [np.inf, 2.0, 3.0]])).tolist() == [False, False]
    near = answerer.features([[1.0, (2.0**22 - 2) * saved.grid["1"], 3.0]])
    assert answers(answerer, near)


def test_a_row_is_usable_up_to_the_last_cell_but_one_of_the_grid_in_every_column():
    steps = np.array([0.5, 2.0])
    answerer = SimpleNamespace(_saved=SimpleNamespace(grid={"0": 0.5, "1": 2.0}), _steps=steps)
    last = 4_194_303.0
    rows = np.array([[last, last], [-last, last], [last + 1, 0], [0, -last - 1], [last + 1, last + 1]])
    assert Answerer.usable(answerer, rows * steps).tolist() == [True, True, False, False, False]
    answerer._saved.grid = {}
    assert Answerer.usable(answerer, np.array([["a"], ["b"]])).tolist() == [True, True]


def test_votes_that_move_more_than_the_mechanism_hides_are_not_answered(saved, monkeypatch):
    answerer = Answerer(saved, consistent(saved))
    twice = SimpleNamespace(grid=saved.grid, vote=lambda rows: saved.vote(rows).with_adjacency(at_most=2.0))
    monkeypatch.setattr(answerer, "_linear", None)
    monkeypatch.setattr(answerer, "_saved", twice)
    with pytest.raises(ValueError, match="hides"):
        answers(answerer, X[:1])


class Fails(KNeighborsClassifier):
    """Cannot vote where it matters, and says why, which is private."""

    def predict(self, X):
        if self._fit_X[0, 0] > 0:
            raise RuntimeError("canary7391")
        return super().predict(X)


def test_teachers_that_fail_vote_a_constant_and_warn_nobody(saved, recwarn):
    failing = dataclasses.replace(saved, ensemble=ensemble(Fails(1)))
    answerer = Answerer(failing, consistent(saved))
    assert len(answers(answerer, X)) == len(X)
    assert list(recwarn) == []
    votes = failing.vote(X)  # which warns of them
    assert isinstance(votes, Private)
    assert (votes.open().sum(axis=1) == 40).all()


def test_rows_of_a_table_are_encoded_first_and_unknown_kinds_are_no_error():
    cells = np.array([[k / 10, ("x", "y")[k % 2]] for k in range(200)], dtype=object)
    kinds = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    encoder = ColumnTransformer([("numbers", StandardScaler(), [0]), ("kinds", kinds, [1])])
    features = encoder.fit_transform(cells)
    y = np.array(CLASSES[:2])[np.arange(200) % 2]
    teachers = TeacherEnsemble(KNeighborsClassifier(1), n_teachers=9, n_jobs=1)
    table = SavedTeachers(
        ensemble=teachers.fit(features, y, classes=CLASSES[:2]),
        mechanism=GNMax(sigma=0.01),
        columns=("size", "kind"),
        numeric=(True, False),
        grid=Consistent.grid_of(features),
        encoder=encoder,
    )
    answerer = Answerer(table, consistent(table))
    first, second = answerer.features([[3.0, "y"], [3.0, "never seen"]])
    np.testing.assert_allclose(first, encoder.transform(np.array([[3.0, "y"]], dtype=object))[0])
    assert np.isfinite(second).all()
    (got,) = answers(answerer, first[None])
    assert table.ensemble.classes_[got.answer] == CLASSES[1]
