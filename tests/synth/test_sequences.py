"""Linked rows: the unit is a person with all rows, and a copy has persons whose rows are in order."""

from dataclasses import replace

import numpy as np
import pytest

from ostraka import Adjacency, Private
from ostraka.core.mechanisms.adaptive import SequenceMarginals
from ostraka.core.mechanisms.particles import tallied
from ostraka.synth import Schema, SequenceGenerator
from ostraka.synth.sequences import sequences

SCHEMA = Schema.from_dict({"ward": {"categories": ["a", "b", "c"]}, "sex": {"categories": ["f", "m"]}})
N, LONGEST = 3000, 4


def visits(n=N, seed=0):
    """Wards follow one another in a circle in four of five steps; sex stays; those of ward c have one row."""
    rng = np.random.default_rng(seed)
    start, sex = rng.integers(0, 3, n), rng.integers(0, 2, n)
    lengths = np.where(start == 2, 1, rng.integers(1, LONGEST + 1, n))
    who = np.repeat(np.arange(n), lengths)
    place = np.arange(who.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    moved = rng.random(who.size) < 0.8
    wards = start[who] + np.array([moved[k - p + 1 : k + 1].sum() for k, p in enumerate(place)])
    return np.column_stack([wards % 3, sex[who]]), who, place


def frame(codes):
    return {"ward": np.array(list("abc"))[codes[:, 0]], "sex": np.array(["f", "m"])[codes[:, 1]]}


def fitted(codes_who_place, **settings):
    codes, who, place = codes_who_place
    shuffled = np.random.default_rng(9).permutation(len(who))  # order is by the column, not as rows stand
    settings = {"longest": LONGEST, "epsilon": 2.0} | settings
    return SequenceGenerator(SCHEMA, **settings).fit(
        frame(codes[shuffled]), groups=who[shuffled], order=place[shuffled], rng=np.random.default_rng(1)
    )


@pytest.fixture(scope="module")
def truth():
    return visits()


@pytest.fixture(scope="module")
def generator(truth):
    return fitted(truth, constant=("sex",))


def steps(who, place):
    """Rows that follow another of the same person."""
    return np.flatnonzero(np.asarray(place)[1:] > np.asarray(place)[:-1]) + 1


def shares(*columns, sizes):
    return np.bincount(np.ravel_multi_index(columns, sizes), minlength=np.prod(sizes)) / len(columns[0])


def test_first_rows_lengths_and_steps_are_as_in_the_private_rows(generator, truth):
    codes, who, place = truth
    copy, owners, places = generator.model_.people(N, rng=np.random.default_rng(2))
    for owner, where in ((who, place), (owners, places)):
        assert (np.diff(owner) >= 0).all()
        assert (where[steps(owner, where)] == where[steps(owner, where) - 1] + 1).all()
    firsts = [
        shares(rows[where == 0, 0], np.bincount(owner) - 1, sizes=(3, LONGEST))
        for rows, owner, where in ((codes, who, place), (copy, owners, places))
    ]
    assert np.abs(firsts[0] - firsts[1]).sum() / 2 < 0.03
    moves = [
        shares(rows[after - 1, 0], rows[after, 0], sizes=(3, 3))
        for rows, after in ((codes, steps(who, place)), (copy, steps(owners, places)))
    ]
    assert np.abs(moves[0] - moves[1]).sum() / 2 < 0.06  # 0.3 and more if no row knew the last
    assert (copy[steps(owners, places), 1] == copy[steps(owners, places) - 1, 1]).all()  # sex is constant
    assert generator.n_people_ == pytest.approx(N, rel=0.03)
    assert generator.n_rows_ == pytest.approx(len(codes), rel=0.03)


def test_a_copy_numbers_persons_and_their_rows_from_1(generator):
    sample = generator.sample(50, random_state=0)
    assert list(sample) == ["person", "place", "ward", "sex"]
    assert np.unique(sample["person"]).tolist() == list(range(1, 51))
    assert (np.asarray(sample["place"])[np.unique(sample["person"], return_index=True)[1]] == 1).all()
    assert len(generator.sample(0)["ward"]) == 0


def test_a_generator_survives_its_record_and_answers_questions(generator):
    again = SequenceGenerator.from_json(generator.to_json())
    first, second = (model.sample(200, random_state=0) for model in (generator, again))
    assert all((first[name] == second[name]).all() for name in first)
    assert (again.mechanism_, again.result_) == (generator.mechanism_, generator.result_)
    answers = again.query("ward")
    assert sum(row.estimate for row in answers.rows) == pytest.approx(generator.n_rows_, rel=0.02)
    with pytest.raises(ValueError, match="must be JSON of version"):
        SequenceGenerator.from_json("{}")


def test_the_price_is_that_of_both_parts_for_one_person(generator):
    """Planted: steps for nothing."""
    mechanism = generator.mechanism_
    assert mechanism.curve().epsilon(delta=1e-5) == pytest.approx(
        (mechanism.first.curve() + mechanism.following.curve()).epsilon(delta=1e-5), rel=1e-12
    )
    assert mechanism.first.curve().epsilon(delta=1e-5) < 1.9 < generator.result_.upper["epsilon"] <= 2.0
    assert (generator.result_.settings["unit"], generator.result_.upper["delta"]) == ("person", 1e-5)


@pytest.mark.parametrize("n_rows", [1, 2, 4, 7, 300])
def test_one_person_adds_one_first_row_and_steps_that_share_one_grain(generator, n_rows):
    """Planted: each step weighs the whole grain. A person with 300 rows counts as one with ``longest``."""
    mechanism = generator.mechanism_
    codes = np.random.default_rng(n_rows).integers(0, (3, 2), (n_rows, 2))
    private = sequences(SCHEMA, frame(codes), np.full(n_rows, "x"), np.arange(n_rows), longest=LONGEST)
    lines = private.open()
    firsts, following = mechanism.firsts(lines), mechanism.steps(lines)
    assert (len(lines), firsts[:, -1].tolist()) == (1, [1])
    assert len(following) == min(n_rows, LONGEST) - 1
    assert int(following[:, -1].sum(dtype=int)) in ({0} if n_rows == 1 else {mechanism.following.grain})
    pairs = tallied(following.astype(np.uint16).T, mechanism.following.sizes, [(0, 1), (1, 2)])
    assert max(int(cells.sum()) for cells in pairs) <= mechanism.following.grain
    expected = codes[:LONGEST]
    assert lines[0, 1 : 1 + 2 * len(expected)].tolist() == expected.ravel().tolist()
    assert not lines[0, 1 + 2 * len(expected) :].any()


def test_rows_are_put_in_order_by_numbers_then_text_and_those_without_come_last():
    wards = {"ward": list("abcabc"), "sex": ["f"] * 6}
    order = ["10", "9", None, "2026-03-01", "2026-02-01", 9.5]
    lines = sequences(SCHEMA, wards, ["x"] * 6, order, longest=6).open()
    assert [("abc")[k] for k in lines[0, 1::2]] == list("bcabac")
    stands = sequences(SCHEMA, wards, ["x"] * 6, None, longest=6).open()
    assert stands[0, 1::2].tolist() == [0, 1, 2, 0, 1, 2]


def test_one_line_of_order_moves_no_other_person():
    """Planted: text in one row makes all rows sort as text."""
    codes, who, place = visits(40)
    order = (place * 5 + 5).astype(object)  # as text 10 is before 5
    before = sequences(SCHEMA, frame(codes), who, order, longest=LONGEST).open()
    order[who == 7] = "soon"
    after = sequences(SCHEMA, frame(codes), who, order, longest=LONGEST).open()
    assert (np.delete(before, 7, axis=0) == np.delete(after, 7, axis=0)).all()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"longest": 1}, "longest must be an integer >= 2"),
        ({"longest": 122}, "longest must be at most 121"),
        ({"constant": ("sex", "ward")}, "must leave a column that changes"),
        ({"constant": ("town",)}, "must have a column 'town'"),
        ({"person": "sex"}, "must not have the columns 'sex' and 'place'"),
        ({"epsilon": 1e-9}, "epsilon must be larger"),
        ({}, "order must be one a row"),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_charge(settings, words, uncharged):
    codes, who, place = visits(5)
    order = place[:-1] if words.startswith("order") else place
    with uncharged(words) as ledger:
        SequenceGenerator(SCHEMA, **settings).fit(frame(codes), groups=who, order=order, ledger=ledger)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ([[0, 0, 0, 0, 0, 0, 0, 0, 0]], "must have one row or more"),
        ([[5, 0, 0, 0, 0, 0, 0, 0, 0]], "must have one row or more"),
        ([[1, 3, 0, 0, 0, 0, 0, 0, 0]], "codes below the sizes"),
        ([[1, 0]], "must be whole numbers"),
        ([[1.5] * 9], "must be whole numbers"),
    ],
)
def test_lines_that_are_no_persons_are_refused(generator, line, words):
    private = Private(np.array(line), Adjacency(unit="person", moves="row", relation="add-or-remove"))
    with pytest.raises(ValueError, match=words):
        generator.mechanism_.uses(private)


def test_parts_that_do_not_fit_each_other_are_refused(generator):
    first, following = generator.mechanism_.first, generator.mechanism_.following
    with pytest.raises(ValueError, match="first must have a grain of 1"):
        SequenceMarginals(first=replace(first, grain=2), following=following, constant=(1,))
    with pytest.raises(ValueError, match="following must have the sizes"):
        SequenceMarginals(first=first, following=following)
    with pytest.raises(ValueError, match="grain of following must be at least 3"):
        SequenceMarginals(first=first, following=replace(following, grain=2), constant=(1,))
