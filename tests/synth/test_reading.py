import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ostraka import Adjacency, Private
from ostraka.core.mechanisms import counts
from ostraka.data import schema as _reading
from ostraka.synth import Schema, TableGenerator, tables

SCHEMA = Schema.from_dict(
    {
        "word": {"categories": ["a", "b", "c"], "missing": True},
        "code": {"categories": ["1", "2"]},
        "number": {"edges": [0, 10, 20, 30], "missing": True},
        "whole": {"edges": [0, 5, 10], "whole": True},
    }
)


def frame(n=50, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "word": [["a", "b", "c", None][k] for k in rng.integers(0, 4, n)],
        "code": rng.integers(1, 3, n),
        "number": np.where(rng.random(n) < 0.2, np.nan, rng.uniform(-5, 40, n)),
        "whole": rng.integers(0, 10, n),
        "other": ["left out"] * n,
    }


@pytest.fixture
def path(tmp_path):
    pq.write_table(pa.table(frame()), tmp_path / "rows.parquet", row_group_size=11)
    return tmp_path / "rows.parquet"


@pytest.mark.parametrize("n_at_once", [7, 1000])
def test_a_file_in_parts_has_the_codes_of_the_whole_table(path, monkeypatch, n_at_once):
    monkeypatch.setattr(_reading, "_BATCH", n_at_once)
    codes = _reading.encoded(SCHEMA, path, most=120)
    assert codes.dtype == np.uint8
    assert codes[:, :-1].tolist() == SCHEMA.encode(frame()).tolist()
    assert codes[:, :-1].tolist() == _reading.encoded(SCHEMA, frame(), most=1)[:, :-1].tolist()
    assert (codes[:, -1] == 0).all()


def test_a_generator_of_a_file_is_that_of_its_rows(path):
    generators = [
        TableGenerator(SCHEMA, target="code", epsilon=1.0).fit(rows, rng=np.random.default_rng(0)).counts_
        for rows in (str(path), frame())
    ]
    assert all(np.array_equal(generators[0][name], generators[1][name]) for name in generators[0])


def test_codes_and_weights_fit_into_the_type_that_is_chosen():
    wide = Schema.from_dict({"id": {"categories": [str(k) for k in range(300)]}, "b": {"edges": [0, 1, 2]}})
    rows = {"id": [str(k) for k in range(300)] * 2, "b": [0.5] * 600}
    private = tables.coded(wide, rows, np.arange(600), rng=None).open()
    assert private.dtype == np.uint16
    assert private[:, 0].max() == 299
    assert (private[:, -1] == tables.GRAIN).all()


def test_counts_of_blocks_are_those_of_all_rows(monkeypatch):
    monkeypatch.setattr(counts, "_BLOCK", 9)
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.integers(0, 3, (100, 3)), rng.integers(1, 121, 100)]).astype(np.uint8)
    found = counts.counts(rows, (3, 3, 3), [(0,), (2, 1), (0, 1, 2), ()])
    for table, chosen in zip(found, [(0,), (2, 1), (0, 1, 2), ()], strict=True):
        expected = np.zeros([3] * len(chosen), dtype=np.int64)
        for row in rows.astype(int):
            expected[tuple(row[list(chosen)])] += row[-1]
        assert np.array_equal(table, expected)


def test_codes_out_of_range_are_refused_in_small_types_too():
    mechanism = counts.NoisyMarginals(sizes=(2, 2), columns=((0,),), sigma=1.0)
    promise = Adjacency(moves="row", relation="add-or-remove")
    with pytest.raises(ValueError, match="codes from 0"):
        mechanism.uses(Private(np.array([[0, 2, 1]], dtype=np.uint8), promise))
    with pytest.raises(ValueError, match="codes from 0"):
        mechanism.uses(Private(np.array([[0, -1, 1]], dtype=np.int8), promise))


def test_a_value_outside_the_schema_ends_nothing_and_moves_no_other_row(tmp_path):
    """A count of such rows, and an exit code, told that one was there."""
    rows = frame() | {"number": [*frame()["number"][:-1], "secretly"]}
    rows["word"][30], rows["code"] = "secretly", [*frame()["code"][:-1], 99]
    expected = SCHEMA.encode(frame())
    expected[30, 0], expected[-1, 1], expected[-1, 2] = 3, 0, 3
    assert SCHEMA.encode(rows).tolist() == expected.tolist()
    rows["number"] = pa.array([str(cell) for cell in rows["number"]])
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
    codes = _reading.encoded(SCHEMA, tmp_path / "rows.parquet", most=1)
    assert codes[:, :-1].tolist() == expected.tolist()
    assert SCHEMA.unread(rows) == {"word": 1, "code": 1, "number": 1}
    assert TableGenerator(SCHEMA, target="code", epsilon=1.0).fit(rows).n_rows_ > 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "is no file"),
        (b"word,code\na,1\n", "cannot be read as Parquet"),
        ({"word": ["a"]}, "it lacks code"),
    ],
)
def test_what_is_no_such_table_is_refused(tmp_path, content, words):
    path = tmp_path / "rows.parquet"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        pq.write_table(pa.table(content), path)
    with pytest.raises(ValueError, match=words):
        TableGenerator(SCHEMA, epsilon=1.0).fit(path)


def test_columns_of_different_lengths_are_refused():
    rows = frame()
    rows["whole"] = rows["whole"][:-1]
    with pytest.raises(ValueError, match="equally long"):
        _reading.encoded(SCHEMA, rows, most=1)
