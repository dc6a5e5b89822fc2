"""Tables: read CSV and Parquet, and refuse in words that name columns and rows but never a cell."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from ostraka.cli import _table

CANARY = "canary-7391"


def written(folder: Path, text: str | bytes, name: str = "private.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_cells_are_text_until_asked(tmp_path):
    table = _table.read(written(tmp_path, "age,job\n1, cook \n2.5,\nNA,nurse\n"))
    assert table.names == ["age", "job"]
    assert table.text("job") == ["cook", "", "nurse"]
    numbers, bad = table.numbers("age")
    np.testing.assert_array_equal(numbers, [1.0, 2.5, np.nan])
    assert bad is None
    assert table.is_numeric("age")
    assert not table.is_numeric("job")


def test_a_column_without_any_number_is_not_numeric(tmp_path):
    assert not _table.read(written(tmp_path, "a,b\nNA,1\n,2\n")).is_numeric("a")


def test_compressed_csv_is_read(tmp_path):
    path = written(tmp_path, gzip.compress(b"a,b\n1,x\n"), "private.csv.gz")
    assert _table.read(path).text("b") == ["x"]


def test_parquet_types_come_out_as_csv_text_would(tmp_path):
    path = tmp_path / "t.parquet"
    columns = {
        "whole": pa.array([1.0, None, float("nan")]),
        "flag": pa.array([True, False, None]),
        "kind": pa.array(["x", None, "y"]).dictionary_encode(),
        "count": pa.array([7, 8, None]),
    }
    parquet.write_table(pa.table(columns), path)
    table = _table.read(path)
    assert table.text("whole") == ["1", "", ""]
    assert table.text("kind") == ["x", "", "y"]
    assert table.text("count") == ["7", "8", ""]
    np.testing.assert_array_equal(table.numbers("flag")[0], [1.0, 0.0, np.nan])
    np.testing.assert_array_equal(table.numbers("count")[0], [7.0, 8.0, np.nan])


def test_rows_keep_their_place_in_the_file_when_split(tmp_path):
    table = _table.read(written(tmp_path, "a\n0\n1\nx\n3\n"))
    rest, taken = table.split(np.array([True, False, False, True]))
    assert rest.text("a") == ["1", "x"]
    assert taken.text("a") == ["0", "3"]
    assert rest.numbers("a")[1] == 3


@pytest.mark.parametrize(
    ("content", "name", "match"),
    [
        ("", "private.csv", "is empty"),
        ("a,b\n", "private.csv", "no rows"),
        (f"a,b\n1,2\n3,4,{CANARY}\n", "private.csv", "line 3 has another number of cells"),
        (b"a,b\n1,\xff\xfe\n", "private.csv", "UTF-8"),
        (f"a,a\n{CANARY},2\n", "private.csv", "does not look like column names"),
        (f"{CANARY},\n1,2\n", "private.csv", "does not look like column names"),
        (f"39,{CANARY}\n40,x\n", "private.csv", "does not look like column names"),
        (CANARY, "private.parquet", "cannot be read as Parquet"),
    ],
)
def test_a_bad_file_is_refused_without_showing_it(tmp_path, content, name, match):
    with pytest.raises(ValueError, match=match) as caught:
        _table.read(written(tmp_path, content, name))
    assert name in str(caught.value)
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None


def test_repeated_parquet_columns_are_refused(tmp_path):
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), path)
    with pytest.raises(ValueError, match="two columns of one name"):
        _table.read(path)


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        _table.read(tmp_path / "nowhere.csv")


def test_a_missing_column_is_named_with_those_there_are(tmp_path):
    table = _table.read(
        written(tmp_path, ",".join(f"c{k}" for k in range(30)) + "\n" + ",".join("x" * 30) + "\n")
    )
    with pytest.raises(
        ValueError, match=r"no column 'income' \(--label\); its columns are: c0, c1, .*c19, …$"
    ):
        table.require("income", option="--label")


def test_a_header_that_is_found_again_below_itself_is_a_row_and_is_not_shown(tmp_path):
    table = _table.read(written(tmp_path, f"{CANARY},cook,no\nx,nurse,yes\ny,nurse,no\n"))
    with pytest.raises(ValueError, match="looks like a row: add a header line") as caught:
        table.require("income", option="--label")
    assert CANARY not in str(caught.value)


def test_a_table_does_not_print_its_cells(tmp_path):
    assert CANARY not in repr(_table.read(written(tmp_path, f"a\n{CANARY}\n")))
