"""Tables: read CSV and Parquet, and refuse in words that name columns and rows but never a cell."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from ostraka.data import table as _table

CANARY = "canary-7391"


def written(folder: Path, text: str | bytes, name: str = "private.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(path, *, public=True, **options):
    return _table.read(path, public=public, **options)


def test_cells_are_text_until_asked(tmp_path):
    table = read(written(tmp_path, "age,job,none\n1, cook ,NA\n2.5,,\nNA,nurse,\n"))
    assert table.names == ["age", "job", "none"]
    assert table.text("job") == ["cook", "", "nurse"]
    numbers, bad = table.numbers("age")
    np.testing.assert_array_equal(numbers, [1.0, 2.5, np.nan])
    assert not bad.any()
    kinds = [("number", None), ("text", None), ("text", None)]  # without any number it is not numeric
    assert [table.type_of(name) for name in table.names] == kinds


@pytest.mark.parametrize("n_titles", [60, 500])
def test_title_lines_that_are_declared_are_left_out_however_many(tmp_path, n_titles):
    path = written(tmp_path, "A title, of a file\n" * n_titles + "age;job;ill\n" + "1,5;cook;no\n" * 9)
    declared = _table.Format(skip=n_titles)
    assert _table.look(path, declared).form == _table.Format(";", "utf8", ",", n_titles)
    assert read(path, form=declared).names == ["age", "job", "ill"]
    assert _table.look(path, _table.Format(skip=n_titles + 10)).names == ()  # no line is left


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "cp1252", "utf-16"])
def test_other_delimiters_and_encodings_are_found_and_said(tmp_path, delimiter, encoding):
    lines = ["größe,beruf", "3,5,Köchin", "NA,Maler", "1,25,Ärztin"]
    text = "\n".join(delimiter.join(line.rsplit(",", 1)) for line in lines) + "\n"
    table = read(written(tmp_path, text.encode(encoding)))
    assert table.names == ["größe", "beruf"]
    assert table.text("beruf") == ["Köchin", "Maler", "Ärztin"]
    np.testing.assert_array_equal(table.numbers("größe")[0], [3.5, np.nan, 1.25])
    (output,) = table.said
    assert "between cells" in output
    assert ("text" in output) == (encoding != "utf-8-sig")


def test_bytes_that_are_not_utf8_after_a_long_beginning_are_windows_text_and_that_is_said(tmp_path):
    table = read(written(tmp_path, b"a,b\n" + b"1,x\n" * 100_000 + b"2,\xfc\n"))
    assert table.text("b")[-1] == "ü"
    assert table.form.encoding == "cp1252"  # in the lines that load the student, too
    assert table.said == (f"{table.path} is read as cp1252 text",)


def test_dates_are_days(tmp_path):
    text = "iso;german;when;word\n2020-01-02;31.12.1999;2020-01-01T12:00:00;x\nNA;01.01.2000;;2020-01-01\n"
    table = read(written(tmp_path, text))
    np.testing.assert_array_equal(table.days("iso", None)[0], [18263.0, np.nan])
    np.testing.assert_array_equal(table.days("german", "%d.%m.%Y")[0], [10956.0, 10957.0])
    np.testing.assert_array_equal(table.days("when", None)[0], [18262.5, np.nan])
    days, strange = table.days("word", None)
    np.testing.assert_array_equal(days, [np.nan, 18262.0])
    assert strange.tolist() == [True, False]
    forms = [("date", None), ("date", "%d.%m.%Y"), ("date", None), ("text", None)]
    assert [table.type_of(name) for name in table.names] == forms
    path = tmp_path / "t.parquet"
    times = pa.array([18263 * 86_400_000_000 + 999_999, None], pa.timestamp("us"))
    parquet.write_table(pa.table({"day": pa.array([18263, None], pa.date32()), "time": times}), path)
    for name in ("day", "time"):  # less than a second is no error, which would tell of a row
        np.testing.assert_array_equal(read(path).days(name, None)[0], [18263.0, np.nan])


def test_what_is_missing_may_be_declared(tmp_path):
    path = written(tmp_path, "a,b\n-999,x\n2,y\n")
    np.testing.assert_array_equal(read(path).numbers("a")[0], [-999.0, 2.0])
    for numbers in ((), ("a",)):
        numbers_of_a = read(path, numbers=numbers, missing=["-999"]).numbers("a")[0]
        np.testing.assert_array_equal(numbers_of_a, [np.nan, 2.0])


def test_columns_read_as_numbers_at_once_are_the_same_and_others_stay_text(tmp_path):
    cells = ["1", " 2.5", "NA", "?", "", "1e3", "0.1", "-7", "NaN"]
    path = written(tmp_path, "a,b,c\n" + "".join(f"{cell},{cell},x\n" for cell in cells))
    fast, slow = read(path, numbers=("a",)), read(path)
    np.testing.assert_array_equal(fast.numbers("a")[0], slow.numbers("a")[0])
    assert fast.text("b") == slow.text("b")
    refused = read(path, numbers=("a", "c"))
    assert refused.numbers("c")[1].all()


def test_a_workbook_needs_its_reader_and_is_read_with_it(tmp_path):
    try:
        import openpyxl
    except ImportError:
        with pytest.raises(ValueError, match="Excel file: type pip install openpyxl, or save it as CSV"):
            read(written(tmp_path, b"PK", "t.xlsx"))
        return
    book = openpyxl.Workbook()
    for row in (["age", "job"], [3.5, "cook"], [None, "nurse"]):
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    table = read(tmp_path / "t.xlsx")
    np.testing.assert_array_equal(table.numbers("age")[0], [3.5, np.nan])
    assert table.text("job") == ["cook", "nurse"]


def test_compressed_csv_is_read(tmp_path):
    path = written(tmp_path, gzip.compress(b"a,b\n1,x\n"), "private.csv.gz")
    assert read(path).text("b") == ["x"]


def test_parquet_types_come_out_as_csv_text_would(tmp_path):
    path = tmp_path / "t.parquet"
    columns = {
        "whole": pa.array([1.0, None, float("nan")]),
        "flag": pa.array([True, False, None]),
        "kind": pa.array(["x", None, "y"]).dictionary_encode(),
        "count": pa.array([7, 8, None]),
        "large": pa.array([2**53 + 1, -7, None]),  # no float64, as text of so many digits is none
    }
    parquet.write_table(pa.table(columns), path)
    table = read(path)
    assert table.text("whole") == ["1", "", ""]
    assert table.text("kind") == ["x", "", "y"]
    assert table.text("count") == ["7", "8", ""]
    np.testing.assert_array_equal(table.numbers("flag")[0], [1.0, 0.0, np.nan])
    np.testing.assert_array_equal(table.numbers("count")[0], [7.0, 8.0, np.nan])
    np.testing.assert_array_equal(table.numbers("large")[0], [2.0**53, -7.0, np.nan])


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.int64()])
def test_whole_numbers_are_the_text_that_each_alone_is(kind):
    cells = [0, 7, None, 2**7 - 1, 12]
    column = pa.chunked_array([pa.array(cells, kind), pa.array(cells[::-1], kind)])
    table = _table.Table(Path("k"), pa.table({"k": column}), np.arange(10))
    assert table.text("k") == [_table.word(cell) for cell in cells + cells[::-1]]


def test_rows_keep_their_place_in_the_file_when_split(tmp_path):
    table = read(written(tmp_path, "a\n0\n1\nx\n3\n"))
    private, public = table.split(np.array([True, False, False, True]))
    assert private.text("a") == ["1", "x"]
    assert public.text("a") == ["0", "3"]
    assert private.row(private.numbers("a")[1]) == 3


@pytest.mark.parametrize(
    ("content", "name", "match"),
    [
        ("", "private.csv", "is empty"),
        ("a,b\n", "private.csv", "no rows"),
        (f"a,b\n1,2\n3,4,{CANARY}\n", "private.csv", "line 3 has another number of cells"),
        (f"a,a\n{CANARY},2\n", "private.csv", "does not look like column names"),
        (f"{CANARY},\n1,2\n", "private.csv", "does not look like column names"),
        (f"39,{CANARY}\n40,x\n", "private.csv", "does not look like column names"),
        (CANARY, "private.parquet", "cannot be read as Parquet"),
    ],
)
def test_a_bad_file_is_refused_without_showing_it(tmp_path, content, name, match):
    with pytest.raises(ValueError, match=match) as caught:
        read(written(tmp_path, content, name))
    assert name in str(caught.value)
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None


def test_repeated_parquet_columns_are_refused(tmp_path):
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), path)
    with pytest.raises(ValueError, match="two columns of one name"):
        read(path)


def test_a_missing_column_is_named_with_those_there_are_unless_they_may_be_a_private_row(tmp_path):
    """Whether they are one must not be told from the other rows: the message would depend on them."""
    table = read(written(tmp_path, ",".join(f"c{k}" for k in range(30)) + "\n" + ",".join("x" * 30) + "\n"))
    listed = r"no column 'income' \(--label\); its columns are: c0, c1, .*c19, …$"
    with pytest.raises(ValueError, match=listed):
        table.require("income", option="--label")
    table = read(written(tmp_path, f"{CANARY},cook,no\nx,nurse,yes\ny,nurse,no\n"), public=False)
    with pytest.raises(ValueError, match="the first line names 3 columns, and none so") as caught:
        table.require("income", option="--label")
    assert CANARY not in str(caught.value) + repr(table)
