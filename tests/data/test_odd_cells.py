"""Cells that nobody expects count as no value, or as the first class: one of them ends no run."""

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

import ostraka
from ostraka.data import columns as encoding
from ostraka.data import table
from ostraka.data.budgets import Tables
from ostraka.data.fits import digest
from ostraka.data.guards import row_digests
from ostraka.data.parquet import pieces_of, row_groups
from ostraka.data.schema import Schema
from ostraka.data.task import Columns, tables
from ostraka.voters import QuantileCells

HUGE = 10**5000  # Python refuses to write it
HALF = "\udcff"  # of a character, which no encoding writes
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("text", ["9" * 20, "9" * 5000, "-" + "9" * 19])
def test_a_label_that_64_bits_do_not_hold_counts_as_the_first_class(text):
    labels, strange = encoding.labels("y", ["1", text, "2"], ["1", "2"])
    assert labels.tolist() == [1, 1, 2]
    assert strange.tolist() == [False, True, False]


@pytest.mark.parametrize("cell", [HUGE, HALF], ids=["huge", "half"])
def test_it_is_digested_encoded_and_found_again(cell, tmp_path):
    frame = pd.DataFrame({"a": [cell, "x", "y"]}, dtype=object)
    assert len(np.unique(row_digests(frame))) == 3
    schema = Schema.from_dict({"a": {"categories": ["x", "other"]}})
    assert schema.encode({"a": [cell, "x"]}).tolist() == [[1], [0]]
    assert len(digest(frame.to_numpy())) == 64
    account = Tables(tmp_path).account(None, rows=frame)
    assert Tables(tmp_path).known(None, rows=frame).number == account.number


NOON = dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC)
EQUAL = [
    NOON,
    NOON.astimezone(dt.timezone(dt.timedelta(hours=14))),
    Decimal("1.0"),
    Decimal("1.00"),
    0.0,
    -0.0,
]
EQUAL += [1, 1.0, True, np.float64(1.0), np.True_, ([1], 2), [1], math.nan, None, "1", "nan", b"1", HUGE]


@pytest.mark.parametrize(
    "column",
    [
        {"categories": ["1.0", "True", "2020-01-01T12:00:00+00:00", "0.0", "other"]},
        {"categories": ["1.00", "1", "-0.0", "2020-01-02T02:00:00+14:00", "b'1'", "([1], 2)", "other"]},
        {"edges": [0, 0.5, 1.5], "missing": True},
        {"edges": [18262.0, 18263.0, 18264.0], "date": True, "missing": True},
    ],
    ids=["categories", "other spellings", "numbers", "dates"],
)
def test_the_code_of_a_cell_follows_from_that_cell_alone_though_python_calls_it_equal_to_another(column):
    schema = Schema.from_dict({"a": column})
    alone = [schema.encode({"a": [cell]})[0, 0] for cell in EQUAL]
    assert len({*alone}) > 1
    for seed in range(20):
        rows = np.random.default_rng(seed).permutation(len(EQUAL)).tolist()
        assert schema.encode({"a": [EQUAL[row] for row in rows]})[:, 0].tolist() == [
            alone[row] for row in rows
        ]


@pytest.mark.parametrize(
    "wrap", [dict, lambda columns: pd.DataFrame(columns, dtype=object)], ids=["dict", "frame"]
)
def test_the_text_of_a_cell_of_a_frame_follows_from_that_cell_alone(wrap):
    """Arrow knows no NaT, takes no NaN among dates, and gives all decimals the places of the finest."""
    cells = [*EQUAL]
    cells += [pd.NaT, pd.NA, pd.Timestamp("2020-01-01"), dt.date(2020, 1, 1), dt.time(12), Decimal("NaN")]
    cells += [np.datetime64("2020-01-01"), Decimal("1.005"), {"a": 1}, 1e300, -1, 2**63, complex(1, 2)]

    def texts(*column):
        return table.of_frame(wrap({"a": list(column)}), name="t", public=False).text("a")

    alone = [texts(cell)[0] for cell in cells]
    rng = np.random.default_rng(0)
    for n_rows in (2, 3) * 150:
        rows = rng.choice(len(cells), n_rows)
        assert texts(*(cells[row] for row in rows)) == [alone[row] for row in rows]


def test_the_number_of_a_cell_follows_from_that_cell_alone_to_the_last_bit():
    cells = [
        -0.0,
        0.0,
        0,
        "-0.0",
        "0.0",
        1,
        1.0,
        True,
        "1",
        None,
        math.nan,
        math.inf,
        np.float64(-0.0),
        Decimal("-0.0"),
    ]
    alone = [table.numbers([cell])[0] for cell in cells]
    rng = np.random.default_rng(0)
    for n_rows in (2, 3) * 100:
        rows = rng.choice(len(cells), n_rows)
        column = table.numbers([cells[row] for row in rows])
        assert column.tobytes() == np.array([alone[row] for row in rows]).tobytes()


def test_columns_of_a_frame_may_have_numbers_for_names():
    frame = pd.DataFrame(RNG.normal(size=(60, 3)))
    codes, plain = (QuantileCells().fit(rows).codes(rows) for rows in (frame, frame.to_numpy()))
    np.testing.assert_array_equal(codes, plain)
    assert Schema.from_public(frame).names == (0, 1, 2)


def test_text_in_files_may_be_of_the_type_of_views(tmp_path):
    cells = ["a", None, "b"]
    frame = pa.table({"text": pa.array(cells).cast(pa.string_view()), "n": [1, 2, 3]})
    pq.write_table(frame, path := tmp_path / "rows.parquet")
    first, second = table.read(path, public=False).split(np.array([False, True, False]))
    assert (first.text("text"), second.text("text")) == (["a", "b"], [""])
    ((_, part),) = row_groups(pieces_of([path]), ["text"])
    assert part.take([2, 0])["text"].to_pylist() == ["b", "a"]


def arrays(path, n_rows, labels):
    np.savez(path, X=RNG.normal(size=(n_rows, 3)), y=labels)
    return path


@pytest.mark.parametrize(
    ("shape", "image"), [((4, 5), (4, 5)), ((4, 5, 1), (4, 5)), ((4, 5, 3), None), ((6,), None)]
)
def test_grey_images_are_known_by_their_shape(tmp_path, shape, image):
    for name, n_rows in (("private", 100), ("public", 40)):
        rows = RNG.normal(size=(n_rows, *shape))
        np.savez(tmp_path / f"{name}.npz", X=rows, y=np.arange(n_rows) % 2)
    files = (tmp_path / "private.npz", tmp_path / "public.npz")
    task = tables(*files, columns=Columns(label="y"), holdout=None, seed=0)
    assert task.image_shape == image
    assert task.X_private.shape[1] == np.prod(shape)


class TestPublicLabelsOfArrays:
    def task(self, folder, labels, public_labels, **columns):
        private = arrays(folder / "private.npz", len(labels), labels)
        return tables(
            private,
            arrays(folder / "public.npz", len(public_labels), public_labels),
            columns=Columns(label="y", **columns),
            holdout=None,
            seed=0,
        )

    def test_are_spelled_as_the_private_ones_are_declared_to_be(self, tmp_path):
        labels = np.array(["no", "yes"] * 50)
        public_labels = np.array(["NO", "yes"] * 10)
        task = self.task(tmp_path, labels, public_labels, same=[("NO", "no")])
        assert {*task.y_test.tolist()} <= {"no", "yes"}
        assert not task.said

    @pytest.mark.parametrize("bounds", [None, (0.0, 1.0)])
    def test_that_some_rows_lack_measure_no_accuracy(self, tmp_path, bounds):
        labels, public_labels = np.arange(100) % 2.0, np.arange(20) % 2.0
        public_labels[3] = np.nan
        task = self.task(tmp_path, labels, public_labels, bounds=bounds)
        assert task.y_test is None
        assert len(task.X_public) == 20


def test_a_check_of_a_data_frame_types_all_that_it_was_given():
    frame = pd.DataFrame({"age": np.tile(np.arange(20, 80), 40), "ill": np.repeat(["no", "yes"], 1200)})
    command = ostraka.check(frame, label="ill", epsilon=0.5, delta=1e-6, holdout=0.3).command
    assert command.startswith("PATEClassifier(epsilon=0.5, delta=1e-06, holdout=0.3).fit(")
