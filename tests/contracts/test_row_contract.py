"""What a row adds is a function of that row and of public values, whatever stands beside it.

Neighbouring tables are made of hostile rows, and the aggregate **before noise** is compared with what its
adjacency promises. The long form: ``python -m rigs rows --pairs 100000``.
"""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from ostraka.data.contribution import row_by_row
from ostraka.voters import NeighbourVoter
from rigs import rows


@pytest.mark.parametrize("name", rows.SUBJECTS)
def test_no_pair_of_hostile_neighbours_moves_more_than_is_promised(name):
    report = rows.run([name], pairs=12, seed=0)
    assert report.pairs >= 12
    assert not report.violations


def test_a_subject_whose_rows_move_others_is_found():
    """Planted: scaled by the largest row of all."""
    assert rows.run(["planted"], pairs=60, seed=0).violations


ROWS = np.random.default_rng(0).normal(size=(401, 3))
PLANTED = {
    "of its place": lambda X: X + np.arange(len(X))[:, None] * 1e-9,
    "of the number of rows": lambda X: X + len(X) * 1e-9,
    "of the rows before": lambda X: X + 1e-12 * np.cumsum(np.isnan(X), axis=0),
}


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_transformer_sees_each_row_as_if_it_were_alone(name, dtype):
    """A product of floats rounds a row by the shape of its batch, and in some libraries by its place."""
    table = ROWS.astype(dtype)
    together = row_by_row(PLANTED[name], table)
    for n in (1, 2, 23, 24, 25, 191, 192, 193, 299, 300, 301):
        np.testing.assert_array_equal(row_by_row(PLANTED[name], table[:n]), together[:n])
        np.testing.assert_array_equal(row_by_row(PLANTED[name], np.asfortranarray(table[-n:])), together[-n:])


def test_a_row_that_a_transformer_refuses_is_missing_and_ends_nothing():
    def refuses(X):
        if (np.asarray(X) > 1e100).any():
            raise ValueError("a private value")
        return np.asarray(X) @ np.ones((3, 2))

    together = row_by_row(refuses, ROWS)
    for place in (0, 200, 400):
        bad = ROWS.copy()
        bad[place, 1] = 1e300
        results = row_by_row(refuses, bad)
        assert np.isnan(results[place]).all()
        np.testing.assert_array_equal(np.delete(results, place, axis=0), np.delete(together, place, axis=0))
    with pytest.raises(ValueError, match="cannot read the private rows"):
        row_by_row(refuses, np.full((3, 3), 1e300))


@pytest.mark.parametrize("wrong", [lambda X: X[:-1], lambda X: X.astype(str), lambda X: X[:, 0]])
def test_what_is_no_line_of_numbers_for_each_row_is_not_read(wrong):
    with pytest.raises(ValueError, match="cannot read the private rows"):
        row_by_row(wrong, ROWS)


def test_texts_are_not_padded_to_the_longest_of_their_batch():
    texts = ["a", "bb", "ccc"]
    padded = row_by_row(lambda batch: [[len(text), max(map(len, batch))] for text in batch], texts)
    assert padded.tolist() == [[1, 1], [2, 2], [3, 3]]


@pytest.mark.parametrize("transformer", [None, PCA(2).fit(ROWS)])
@pytest.mark.parametrize("number", [1.7e308, 1e300, 3.5e38, -1e39])
def test_a_number_beyond_single_precision_ends_no_search(transformer, number):
    rows, labels = ROWS.copy(), np.arange(len(ROWS)) % 2
    before = NeighbourVoter(k=5, sampling_rate=1.0, transformer=transformer).fit(rows, labels).vote(ROWS[:9])
    rows[7, 2] = number
    after = NeighbourVoter(k=5, sampling_rate=1.0, transformer=transformer).fit(rows, labels).vote(ROWS[:9])
    assert np.abs(after.open() - before.open()).max() <= 1
