"""What a row adds is bounded by its norms, and rows are transformed in batches that tell of no other row."""

import math

import numpy as np
import pytest

from ostraka import Adjacency
from ostraka.data.contribution import Contribution, row_by_row

NORMS = {"l0": 3.0, "l1": 2.5, "l2": 1.5, "linf": 1.25}


@pytest.mark.parametrize(("relation", "times"), [("replace-one", 2), ("add-or-remove", 1), ("zero-out", 1)])
def test_a_unit_moves_what_its_row_adds_or_twice_that_where_another_comes(relation, times):
    moved = {name: times * norm for name, norm in NORMS.items()}
    promise = Contribution(**NORMS).adjacency(unit="person", relation=relation)
    assert promise == Adjacency.vector(unit="person", relation=relation, **moved)
    assert Contribution(l2=1.0).adjacency().l2 == 2.0
    assert Contribution(l2=1.0).adjacency().unit == "row"
    changes = {  # the largest change that each norm alone allows
        "l0": np.r_[np.full(int(moved["l0"]), 0.01), 0.0],
        "l1": np.full(100, moved["l1"] / 100),
        "l2": np.array([3.0, -4.0]) / 5 * moved["l2"],
        "linf": np.array([-moved["linf"], 0.0]),
    }
    for name, change in changes.items():
        bound, before = Contribution(**{name: NORMS[name]}), np.full(change.shape, 7.0)
        assert bound.holds(0 * change, change, relation=relation)
        assert not bound.holds(before, before + change * 1.001 + 0.001 * (name == "l0"), relation=relation)
        assert bound.holds(before, before, relation=relation)
        assert bound.holds([], [], relation=relation)


@pytest.mark.parametrize("name", NORMS)
def test_a_bound_is_a_number_above_0_in_one_norm_at_least(name):
    Contribution(**{name: 1e-9})
    for wrong in (0.0, -1.0, math.nan, -math.inf):
        with pytest.raises(ValueError, match=f"{name}|bounded in one norm"):
            Contribution(**{name: wrong})
    with pytest.raises(ValueError, match="bounded in one norm at least, and above 0"):
        Contribution()


def batches_of(transform, rows):
    """How many rows each private batch has, and what comes out."""
    seen = []
    made = row_by_row(lambda X: seen.append(np.array(X)) or transform(X), rows)
    return [batch for batch in seen if not public(batch)], made


def public(batch):
    """Probes: equal rows."""
    return (
        len(batch) in {24, 192} and all(np.array_equal(row, batch[0]) for row in batch) and batch[0, 0] != 7
    )


def of_place(largest):
    """A transformer which rounds by the place in batches that are larger."""
    return lambda X: X * 0.5 + (1e-9 * np.arange(len(X))[:, None] if len(X) > largest else 0)


@pytest.mark.parametrize(("largest", "size"), [(192, 192), (191, 24), (24, 24), (23, 1), (1, 1)], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.uint8])
def test_batches_are_as_large_as_places_do_not_matter_and_filled_with_copies(largest, size, dtype):
    rows = (np.arange(1, 1201).reshape(400, 3) % 200).astype(dtype)
    batches, made = batches_of(of_place(largest), rows)
    assert {len(batch) for batch in batches} == {size}
    assert len(batches) == math.ceil(400 / size)
    joined = np.concatenate(batches)
    np.testing.assert_array_equal(joined[:400], rows)
    assert (joined[400:] == rows[-1]).all()
    np.testing.assert_array_equal(made, rows * 0.5)


def test_rows_that_are_no_numbers_are_batches_of_their_own():
    for rows in (np.array([["a"], ["b"]]), ["a", "b"], np.array([[True], [False]])):
        batches, _ = batches_of(lambda X: np.ones((len(X), 2)), rows)
        assert [len(batch) for batch in batches] == [1, 1]


@pytest.mark.parametrize(
    ("kind", "of_kind"),
    [(np.float32, np.float32), (np.float64, np.float64), (bool, np.float32), (np.int64, np.float64)],
)
def test_what_a_row_lacks_is_missing_in_a_type_that_can_say_so(kind, of_kind):
    def transform(X):
        if (X == 7).any():
            raise ValueError
        return np.ones((len(X), 2), dtype=kind)

    rows = np.zeros((30, 1))
    rows[[3, 29]] = 7
    made = row_by_row(transform, rows)
    assert made.dtype == of_kind
    assert np.flatnonzero(np.isnan(made).any(axis=1)).tolist() == [3, 29]
    assert np.nansum(made) == 56


def test_where_all_rows_of_a_batch_fail_the_others_are_read(monkeypatch):
    def transform(X):
        if (np.asarray(X) == 7).any():
            raise ValueError
        return np.asarray(X) + 1.0

    rows = np.zeros((500, 1))
    rows[192:384] = 7
    made = row_by_row(transform, rows)
    assert np.isnan(made[192:384]).all()
    assert (np.delete(made, slice(192, 384), axis=0) == 1).all()
    with pytest.raises(ValueError, match="cannot read the private rows"):
        row_by_row(transform, rows[192:384])


def test_a_transformer_warns_of_no_private_row_and_a_sparse_one_is_refused():
    import scipy.sparse

    row_by_row(np.log, np.zeros((5, 2)))
    with pytest.raises(ValueError, match="must have dense features"):
        row_by_row(scipy.sparse.csr_array, np.ones((5, 2)))
