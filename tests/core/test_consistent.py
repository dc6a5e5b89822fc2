"""Consistent answers: what counts as the same question, and that it is answered and charged once."""

import hashlib
import hmac
import pickle
from copy import copy, deepcopy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostraka import ABSTAIN, Adjacency, Budget, BudgetExceeded, GNMax, Ledger, Private, Threshold, release
from ostraka.consistent import Consistent
from ostraka.core.randomness import Keyed, KeyedNoise, KeyedRows
from ostraka.door import consistently
from ostraka.mechanisms import Subsampled

SECRET = bytes(range(32))
ROWS = Consistent(secret=SECRET, grid=0.5, teachers="v1", columns=("age", "hours"))
NOISY = GNMax(sigma=40.0)
KEPT = replace(ROWS, kept=True)


def ballots(counts):
    return Private(np.atleast_2d(counts), Adjacency.one_ballot())


def ledger(path=":memory:", epsilon=50.0):
    return Ledger(path, budget=Budget(epsilon=epsilon, delta=1e-5))


@pytest.mark.parametrize("length", [0, 1, 32, 63, 64, 65, 200])
def test_a_keyed_hash_is_the_hmac_of_the_standard_library_and_keeps_its_secret(length):
    secret = bytes(range(200))[:length]
    keyed = Keyed(secret)
    for size in (0, 1, 55, 56, 64, 119, 1_000):
        assert keyed(b"m" * size) == hmac.digest(secret, b"m" * size, "sha256")
    for leak in (copy, deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied"):
            leak(keyed)


def test_spelling_makes_no_difference():
    row = np.array([[40.0, 0.0]])
    spellings = [
        row.astype(np.float32),
        row.astype(int),
        row.tolist(),
        np.array([[40.0, -0.0]]),
        np.array([[40.1, 0.2]]),
        np.asfortranarray(row),
        pd.DataFrame({"age": [40.0], "hours": [0.0]}),
        pd.DataFrame({"hours": [-0.0], "age": [40]}),
        np.array([[40, 0.0]], dtype=object),
    ]
    assert {ROWS.digests(rows)[0] for rows in spellings} == set(ROWS.digests(row))


def test_the_step_of_a_column_that_hardly_varies_is_one_that_float32_tells():
    public = 1e6 + np.array([[0.0], [1e-3]])
    rows = Consistent(secret=SECRET, grid=Consistent.grid_of(public), teachers="v1")
    assert rows.digests(public) == rows.digests(public.astype(np.float32))


@given(st.floats(-1e5, 1e5), st.sampled_from([0.05, 0.1, 0.25, 1.0]))
def test_float32_and_float64_are_one_question(number, step):
    rows = Consistent(secret=SECRET, grid=step, teachers="v1")
    assert rows.digests(np.array([[number]])) == rows.digests(np.array([[number]], dtype=np.float32))


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=2, max_size=6))
def test_digests_are_equal_exactly_where_cells_are(cells):
    digests = ROWS.digests(np.array(cells) * 0.5)
    for cell, a in zip(cells, digests, strict=True):
        for two, b in zip(cells, digests, strict=True):
            assert (cell == two) == (a == b)


@pytest.mark.parametrize(
    "changed_cells",
    [
        Consistent(secret=bytes(32), grid=0.5, teachers="v1", columns=("age", "hours")),
        Consistent(secret=SECRET, grid=0.5, teachers="v2", columns=("age", "hours")),
        Consistent(secret=SECRET, grid=0.5, teachers="v1", columns=("age", "pay")),
        Consistent(secret=SECRET, grid=0.5, teachers="v1", columns=("hours", "age")),
        Consistent(secret=SECRET, grid=0.5, teachers="v1", columns=("age", "hours"), grid_in_teachers=True),
    ],
    ids=["secret", "teachers", "names", "order", "version"],
)
def test_another_secret_other_teachers_or_other_columns_make_another_question(changed_cells):
    assert changed_cells.digests([[40.0, 20.0]]) != ROWS.digests([[40.0, 20.0]])


def test_as_many_steps_of_another_grid_are_another_question_with_other_noise():
    fine, coarse = (Consistent(secret=SECRET, grid=step, teachers="v1") for step in (0.5, 1.0))
    [one], [two] = fine.digests([[2.0]]), coarse.digests([[4.0]])
    assert one != two
    assert fine.noise(one, purpose="m").random() != coarse.noise(two, purpose="m").random()
    by_name = [Consistent(secret=SECRET, grid={"0": 0.5, "1": step}, teachers="v1") for step in (0.5, 1.0)]
    digests = [rows.digests([[2.0, cell]]) for rows, cell in zip(by_name, (2.0, 4.0), strict=True)]
    assert digests[0] != digests[1], "every column's step counts"
    assert digests[0] == fine.digests([[2.0, 2.0]]), "how the same steps are spelled does not"


def test_text_missing_cells_and_zero_are_told_apart():
    rows = Consistent(secret=SECRET, grid=1.0, teachers="v1")
    cells = [["", 0], ["a", 0], [None, 0], [0, 0], ["0", 0], [np.nan, 0], ["é", 0], ["e\u0301", 0]]
    digests = rows.digests(cells)
    assert digests[2] == digests[5], "missing is missing"
    assert digests[6] == digests[7], "Unicode NFC"
    assert len(set(digests)) == 6


def test_texts_that_run_together_are_told_apart():
    rows = Consistent(secret=SECRET, grid=1.0, teachers="v1")
    assert len(set(rows.digests([["ab", "c"], ["a", "bc"], ["abc", ""]]))) == 3


def test_a_digest_is_keyed_so_that_nobody_else_can_look_rows_up():
    digest = ROWS.digests([[40.0, 20.0]])[0]
    assert len(bytes.fromhex(digest)) == 32
    guess = hashlib.sha256(np.array([40.0, 20.0]).tobytes()).hexdigest()
    assert digest != guess
    assert digest not in repr(ROWS)
    assert SECRET.hex() not in repr(ROWS)


def test_noise_is_one_for_a_question_and_purpose_and_keyed_by_hmac():
    digest = ROWS.digests([[40.0, 20.0]])[0]
    first, second = (ROWS.noise(digest, purpose="GNMax").normal(size=4) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, ROWS.noise(digest, purpose="screen").normal(size=4))
    message = f"ostraka/noise/1\x00v1\x00GNMax\x00{digest}".encode()
    keyed = KeyedNoise(hmac.digest(SECRET, message, "sha256"))
    np.testing.assert_array_equal(first, keyed.normal(size=4))


def test_a_secret_is_kept_for_its_owner_alone_and_survives_a_restart(tmp_path):
    path = tmp_path / "secret"
    first = Consistent.kept_at(path, grid=0.5, teachers="v1")
    again = Consistent.kept_at(path, grid=0.5, teachers="v1")
    assert first.secret == again.secret == path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    assert Consistent.kept_at(tmp_path / "other", grid=0.5, teachers="v1").secret != first.secret


def test_a_hundred_thousand_repeats_are_one_answer_and_one_charge():
    row = np.array([[40.0, 20.0]])
    rows = np.repeat(row, 100_000, axis=0)
    votes = Private(np.broadcast_to([60, 50, 40], (len(rows), 3)), Adjacency.one_ballot())
    with ledger() as book:
        labels = consistently(NOISY, votes, rows, consistent=KEPT, ledger=book)
        for again in (rows[:3].astype(np.float32), pd.DataFrame({"hours": [20.0], "age": [40.0]})):
            part = consistently(NOISY, votes[: len(again)], again, consistent=KEPT, ledger=book)
            labels = np.concatenate([labels, part])
        assert len(np.unique(labels)) == 1
        assert [entry.uses for entry in book.entries()] == [1]
        assert not book.simulation


def test_an_answer_stays_the_same_after_a_restart_even_with_an_empty_ledger(tmp_path):
    rows, votes = np.arange(40).reshape(20, 2), ballots(np.tile([60, 50, 40], (20, 1)))
    labels = []
    for name in ("one", "one", "two"):
        consistent = Consistent.kept_at(tmp_path / "secret", grid=1.0, teachers="v1")
        with ledger(tmp_path / name) as book:
            labels.append(consistently(NOISY, votes, rows, consistent=consistent, ledger=book))
            assert len(book.entries()) == 20
    np.testing.assert_array_equal(labels[0], labels[1])
    np.testing.assert_array_equal(labels[0], labels[2])
    assert len(np.unique(labels[0])) > 1, "different questions have different noise"


@pytest.mark.statistical
def test_keyed_noise_answers_as_often_as_the_law_says():
    """4,000 questions on the same votes; chance of |hits - expected| > 6.1 deviations: below 1e-9."""
    votes = np.tile([60.0, 50, 40], (4000, 1))
    questions = np.arange(4000.0)[:, None]
    rows = Consistent(secret=SECRET, grid=1.0, teachers="v1")
    hits = sum(
        NOISY.release(ballots(votes[:1]), rng=rows.noise(digest, purpose="p"))[0] == 0
        for digest in rows.digests(questions)
    )
    for sigma, agrees in ((40.0, True), (25.0, False), (80.0, False)):
        p = np.exp(GNMax(sigma=sigma).log_outcomes(votes[:1])[0, 0])
        assert (abs(hits - 4000 * p) < 6.1 * np.sqrt(4000 * p * (1 - p))) is np.bool_(agrees)


def test_a_question_the_screen_stopped_stays_stopped():
    screen = Threshold(at=100, sigma=40.0)
    rows, votes = np.arange(60).reshape(30, 2), ballots(np.tile([100, 50], (30, 1)))
    with ledger() as book:
        first, second = (
            consistently(NOISY, votes, rows, consistent=ROWS, ledger=book, screen=screen) for _ in range(2)
        )
        np.testing.assert_array_equal(first, second)
        stopped = int((first == ABSTAIN).sum())
        assert 0 < stopped < 30
        assert sum(entry.uses for entry in book.entries()) == 60 - stopped


def test_repeats_are_free_when_the_budget_is_spent():
    with ledger(epsilon=0.2) as book:
        n_asked = 0
        while book.affords(NOISY, uses=1):
            consistently(NOISY, ballots([60, 50]), [[n_asked, 0]], consistent=ROWS, ledger=book)
            n_asked += 1
        with pytest.raises(BudgetExceeded):
            consistently(NOISY, ballots([60, 50]), [[n_asked, 0]], consistent=ROWS, ledger=book)
        spent = book.epsilon()
        consistently(NOISY, ballots([60, 50]), [[0, 0]], consistent=ROWS, ledger=book)
        assert book.epsilon() == spent
        assert n_asked > 0


def test_teachers_are_shown_the_middle_of_the_cell():
    middles = ROWS.snap(np.array([[40.1, 19.9], [39.9, 20.2]]))
    np.testing.assert_array_equal(middles, [[40.0, 20.0]] * 2)
    assert ROWS.digests(middles) == ROWS.digests([[40.1, 19.9], [39.9, 20.2]])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"secret": b"short"}, "secret must be 32 bytes"),
        ({"grid": 0.0}, "grid must be finite and > 0"),
        ({"grid": {"age": -1.0}}, "grid must be finite and > 0"),
        ({"teachers": ""}, "teachers must be text"),
        ({"columns": ("age", "age")}, "different names"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        Consistent(**{"secret": SECRET, "grid": 1.0, "teachers": "v1", **settings})


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[1.0, np.inf]], "must be finite"),
        ([[1.0, 1e9]], "coarser step than 0.5"),
        ([[1.0]], "must have 2 columns, got 1"),
        ([1.0, 2.0], "shape"),
        (pd.DataFrame({"age": [1.0]}), "columns age, hours"),
        (pd.DataFrame([[1.0, 2.0, 3.0]], columns=["age", "hours", "hours"]), "different names"),
        ([[10**400, "a"]], "must hold numbers of float64, text or nothing, got int"),
    ],
)
def test_rows_that_cannot_be_told_apart_are_refused(rows, words):
    with pytest.raises(ValueError, match=words):
        ROWS.digests(rows)


def test_steps_middles_and_votes_that_are_missing_are_asked_for():
    with pytest.raises(ValueError, match="a step for every column"):
        replace(ROWS, grid={"age": 1.0}).digests([[1.0, 2.0]])
    with pytest.raises(ValueError, match="must be numbers"):
        ROWS.snap([["a", "b"]])
    with ledger() as book, pytest.raises(ValueError, match="one row for each of 1 votes, got 2"):
        consistently(NOISY, ballots([9, 1]), [[1, 2], [3, 4]], consistent=ROWS, ledger=book)


def test_rows_of_no_column_are_one_question():
    cell, two = Consistent(secret=SECRET, grid=0.5, teachers="v1").digests(pd.DataFrame(index=[0, 1]))
    assert cell == two


@pytest.mark.parametrize(("law", "size"), [("normal", (7, 10)), ("normal", 7), ("laplace", (7, 3))])
def test_noise_of_many_questions_at_once_is_the_noise_of_each(law, size):
    rows = Consistent(secret=b"s" * 32, grid=0.5, teachers="demo")
    digests = rows.digests(np.arange(7.0)[:, None])
    at_once = getattr(rows.noises(digests, purpose="m"), law)(scale=3.0, size=size)
    shape = size[1:] if isinstance(size, tuple) else ()
    noises = [getattr(rows.noise(digest, purpose="m"), law)(scale=3.0, size=shape) for digest in digests]
    np.testing.assert_array_equal(at_once, noises)


def test_noise_of_many_questions_is_drawn_once():
    rows = KeyedRows([bytes(32)] * 2)
    rows.normal(size=(2, 3))
    with pytest.raises(ValueError, match="must be drawn once"):
        rows.normal(size=(2, 3))
    with pytest.raises(ValueError, match="one row a key"):
        KeyedRows([bytes(32)] * 2).normal(size=(3, 3))


class TestSecrets:
    """A secret never leaves in state, and a key which somebody may know is no real noise."""

    def test_a_pickle_holds_no_secret_and_answers_nothing(self):
        written = pickle.dumps(ROWS)
        assert SECRET not in written
        read = pickle.loads(written)
        assert (read.grid, read.teachers, read.columns) == (ROWS.grid, ROWS.teachers, ROWS.columns)
        for use in (
            lambda: read.digests([[1.0, 2.0]]),
            lambda: read.noise("ab", purpose="p"),
            lambda: read.noises(["ab"], purpose="p"),
            lambda: read.name,
        ):
            with pytest.raises(ValueError, match="left out of pickles"):
                use()

    @pytest.mark.parametrize("export", [copy, deepcopy, pickle.dumps])
    def test_noise_under_a_secret_is_neither_copied_nor_pickled(self, export):
        for noise in (ROWS.noise("ab", purpose="p"), ROWS.noises(["ab"], purpose="p")):
            with pytest.raises(TypeError, match="cannot be copied or pickled"):
                export(noise)

    def test_a_deep_copy_in_one_process_is_the_same_object(self):
        assert deepcopy(ROWS) is ROWS

    def test_noise_under_a_known_key_marks_the_ledger_as_a_simulation(self, tmp_path):
        consistent = Consistent.kept_at(tmp_path / "secret", grid=1.0, teachers="v1")
        public_secret = Consistent(secret=bytes(32), grid=1.0, teachers="v1")
        for noise, simulation in (
            (KeyedNoise(bytes(32)), True),
            (public_secret.noise("ab", purpose="p"), True),
            (consistent.noise("ab", purpose="p"), False),
        ):
            with Ledger(":memory:", budget=Budget(epsilon=9.0, delta=1e-5)) as ledger:
                release(NOISY, ballots([[9.0, 1.0]]), ledger=ledger, rng=noise)
                assert ledger.simulation == simulation


def test_a_screen_and_its_answer_do_not_share_a_stored_sample():
    stored = Private([[4, 1]], Adjacency(relation="add-or-remove", sampling_rate=0.1))
    screen, argmax = (
        Subsampled(mechanism=mechanism, sampling_rate=0.1)
        for mechanism in (Threshold(at=2, sigma=9.0), NOISY)
    )
    with ledger() as book:
        with pytest.raises(ValueError, match="one stored sample: ask Subsampled"):
            consistently(argmax, stored, [[0.0, 0.0]], consistent=ROWS, ledger=book, screen=screen)
        assert book.entries() == ()
