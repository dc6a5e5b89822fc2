"""Whoever reads rows reads each as if it were alone: replaced, left out, added, doubled, in any order.

What a row becomes is a function of that row and of public values, bit for bit. A hostile row concerns itself.
"""

import datetime as dt
import decimal
import math
import pathlib

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from ostraka.data import columns, table
from ostraka.data.schema import encoded
from ostraka.synth import Schema
from ostraka.voters import QuantileCells, RowVoter

NAMES = ("age", "job", "when", "note")
PUBLIC = [
    ([20, 31.5, 44, 60][k % 4], ["cook", "nurse", "Köchin"][k % 3], f"20{k:02d}-01-02", f"note {k % 5}")
    for k in range(60)
]
PRIVATE = [(k % 70 + 0.5, ["cook", "Köchin", "smith"][k % 3], f"19{k % 90:02d}-05-06", "") for k in range(41)]
SCHEMA = Schema.from_dict(
    {
        "age": {"edges": [0, 30, 50, 70]},
        "job": {"categories": ["cook", "nurse", "Köchin", "other"]},
        "when": {"categories": ["1900-05-06", "1901-05-06"], "missing": True},
        "note": {"edges": [0, 1], "missing": True},
    }
)
CELLS = [
    None, "", " ", "nan", "NaN", "nan(1)", "inf", "-inf", "1e999", "1e-400", "-0.0", "1.7e308", "1_000", "+5",
    "７", "0x1F", "1,5", "1.5.5", "True", "\x00", "\ufffd", "\u200b", "1999-02-30", "99999-01-01", "a" * 5000,
    "1 000", "\xa07", "=1+1", "'", "\\", "\u2028", "Ko\u0308chin", "other", "é" * 300,
]  # fmt: skip
TYPED = [
    *CELLS, 7, 7.0, True, 2**70, -(2**63), 1.7e308, 5e-324, -0.0, math.inf, math.nan, b"cook", b"\xff\xfe",
    (),
]  # fmt: skip


def csv(rows):
    return [",".join("" if cell is None else str(cell) for cell in row).encode() for row in rows]


HOSTILE_LINES = [
    b"\xff,cook,2000-01-02,x",
    b"20,K\xf6chin,2000-01-02,x",
    b"\xc3,cook,2000-01-02,\xc3",
    b'"20,cook,2000-01-02,x',
    b'20,"cook,2000-01-02,x',
    b'20,co"ok,2000-01-02,x"',
    b'20,cook,2000-01-02,"x""',
    b"20;cook;2000-01-02;x",
    b"20\tcook\t2000-01-02\tx",
    b"20,cook",
    b"20,cook,2000-01-02,x,y,z",
    b",,,",
    b"\x00\x00",
    b"\xef\xbb\xbf20,cook,2000-01-02,x",
    b"\xff\xfe2\x000\x00",
    b"20,cook,2000-01-02,x\ry",
    b"20,cook,2000-01-02,\x1b$B\x0e+AGE-",
    b"age,job,when,note",
    b"20,cook,2000-01-02," + b"x" * 3_000_000,
    b"20,cook,2000-01-02," + b'"' + b"x" * 200_000 + b'"',
    b"20,cook,2000-01-02," + b'"' * 999,
    *(
        line
        for cell in CELLS
        if cell and "," not in cell
        for line in csv(
            [(cell, "cook", "2000-01-02", "x"), (20, cell, "2000-01-02", "x"), (20, "cook", cell, "x")]
        )
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rows")


@pytest.fixture(scope="module")
def public(folder):
    """The public table, the types of its columns and its encoder."""
    path = folder / "public.csv"
    path.write_bytes(b"\n".join([",".join(NAMES).encode(), *csv(PUBLIC)]) + b"\n")
    public_table = table.read(path, public=True)
    features, _ = columns.understood(public_table, NAMES, as_text=(), fill=False)
    return public_table, features, columns.encoder(public_table, features)


@pytest.fixture(params=["with numbers at once", "as text", "compressed", "utf-16", "Windows text"])
def file_reader(request, folder, public):
    public_table, features, encoder = public
    encoding = {"utf-16": "utf-16-le", "Windows text": "cp1252"}.get(request.param)
    form = table.Format(encoding=encoding)

    def read(lines):
        import gzip

        content = b"\n".join([",".join(NAMES).encode(), *lines]) + b"\n"
        if encoding == "utf-16-le":
            content = content.decode("latin-1").encode(encoding)
        path = folder / ("private.csv.gz" if request.param == "compressed" else "private.csv")
        path.write_bytes(gzip.compress(content, 1) if request.param == "compressed" else content)
        numbers = ("age",) if request.param == "with numbers at once" else ()
        rows = table.read(path, public=False, like=public_table, form=form, numbers=numbers)
        return columns.matrix(rows, features, encoder)

    return read


def parquet(folder, rows):
    """A file of these rows as text."""
    cells = [[None if cell is None else str(cell) for cell in column] for column in zip(*rows, strict=True)]
    columns_ = {name: pa.array(column, pa.string()) for name, column in zip(NAMES, cells, strict=True)}
    pq.write_table(pa.table(columns_), folder / "private.parquet", row_group_size=17)
    return folder / "private.parquet"


def parquet_reader(folder, public):
    public_table, features, encoder = public

    def read(rows):
        private_table = table.read(parquet(folder, rows), public=False, like=public_table)
        return columns.matrix(private_table, features, encoder)

    return read


def schema_of_lists(*_):
    return lambda rows: encoded(
        SCHEMA, dict(zip(NAMES, map(list, zip(*rows, strict=True)), strict=True)), most=9
    )


def schema_of_a_file(folder, _):
    return lambda rows: encoded(SCHEMA, parquet(folder, rows), most=9)


def bins_of_lists(*_):
    return QuantileCells(n_bins=4, least=1).fit(PUBLIC).codes


def bins_of_numbers(*_):
    cells = QuantileCells(n_bins=4).fit([[k % 7, k % 2, 1 - k % 2, k / 9] for k in range(60)])
    return lambda rows: cells.codes([list(row) for row in rows])


READERS = (parquet_reader, schema_of_lists, schema_of_a_file, bins_of_lists, bins_of_numbers)


def check_alone(read, rows, hostile):
    """Every change of one row leaves all others bit for bit; the row itself becomes what it is elsewhere."""
    before = read(rows)
    assert np.isfinite(before).all()
    assert read(rows[::-1]).tobytes() == before[::-1].tobytes()
    assert read(rows[:5] + rows[6:]).tobytes() == np.delete(before, 5, axis=0).tobytes()
    for row in hostile:
        alone = read([rows[0], row])
        expected = before.copy()
        if len(alone) == 1:  # a blank line is no row
            expected = np.delete(expected, 5, axis=0)
        else:
            expected[5] = alone[1]
        assert np.isfinite(expected).all()
        assert read([*rows[:5], row, *rows[6:]]).tobytes() == expected.tobytes(), row
        added = read([*rows, row, row])
        assert added.tobytes() == np.concatenate([before, alone[1:], alone[1:]]).tobytes(), row


def test_a_row_of_a_file_is_read_as_it_is_alone(file_reader, request):
    usual = request.node.callspec.params["file_reader"] == "with numbers at once"
    check_alone(file_reader, csv(PRIVATE), [*HOSTILE_LINES[:: 1 if usual else 3], b"", b"  "])


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_a_row_of_a_table_is_read_as_it_is_alone(reader, folder, public):
    read = reader(folder, public)
    cells = [
        cell
        for cell in TYPED
        if reader in {schema_of_lists, bins_of_lists, bins_of_numbers} or type(cell) is str
    ]
    hostile = [(*PRIVATE[0][:place], cell, *PRIVATE[0][place + 1 :]) for cell in cells for place in range(4)]
    of_a_file = reader in {parquet_reader, schema_of_a_file}  # slow: every third cell, all four columns
    check_alone(read, PRIVATE, hostile[::3] if of_a_file else hostile)


def test_the_number_of_rows_changes_none(file_reader):
    alone = np.concatenate([file_reader([line]) for line in csv(PRIVATE)] * 26)
    for n in (1, 2, 3, 299, 300, 301, 1023, 1024, 1025):
        assert file_reader((csv(PRIVATE) * 26)[:n]).tobytes() == alone[:n].tobytes(), n


def test_rows_that_are_all_bad_are_all_missing_and_end_nothing(file_reader):
    private_table = file_reader([b"\xff,\xff"] * 7)
    assert len(private_table) == 7
    assert (private_table == private_table[0]).all()


@pytest.mark.parametrize("bad", ["x", None, "1e999", True, b"\xff", 2**70])
def test_a_table_of_votes_moves_no_further_than_its_adjacency_says(bad):
    """One text among numbers made all cells text: 1,114 of 2,000 rows moved."""
    rows = [[k % 5, float(k % 3), k / 7] for k in range(300)]
    cells = QuantileCells(columns=[0, 1, 2], n_bins=4, least=1).fit(
        [[k % 5, str(k % 3), k / 7] for k in range(99)]
    )
    labels = [k % 2 for k in range(300)]
    voter = RowVoter(cells=cells).fit(rows, labels, classes=[0, 1])
    before = voter.vote().open()
    for place in range(3):
        near = [list(row) for row in rows]
        near[17][place] = bad
        after = RowVoter(cells=cells).fit(near, labels, classes=[0, 1]).vote().open()
        assert np.linalg.norm(after - before) <= voter.adjacency_.l2


COLUMNS = {
    "moments": [*map(dt.datetime.fromisoformat, ("2020-01-01", "2020-01-02T03:00", "2021-01-01"))],
    "days": [*map(dt.date.fromisoformat, ("2020-01-01", "2020-01-02", "2021-01-01"))],
    "lengths": [dt.timedelta(1), dt.timedelta(2), dt.timedelta(3)],
    "numbers": [1, 2, 2**53 + 1],
    "floats": [0.1, 7.0, 1e300],
    "truths": [True, False, True],
    "texts": ["a", "7.0", " b"],
    "decimals": [decimal.Decimal("1.10"), decimal.Decimal("2.0"), decimal.Decimal(3)],
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("kind", ["pandas", "arrow"])
def test_a_missing_cell_of_a_frame_changes_no_other(name, kind):
    """One missing date gave all dates another text, so that all their categories became unknown."""
    cells, frame = COLUMNS[name], {"pandas": pd.DataFrame, "arrow": pa.table}[kind]
    complete, lacking = (frame({"cell": column}) for column in (cells, [*cells[:2], None]))
    values = [table.word(cell) for cell in table.named(complete)["cell"].tolist()]
    for column in ({"categories": sorted({*values}), "missing": True}, {"edges": [0, 1, 2], "missing": True}):
        schema = Schema.from_dict({"cell": column})
        assert schema.encode(complete)[:2].tolist() == schema.encode(lacking)[:2].tolist()
        if "categories" in column:
            assert schema.encode(complete).max() < len({*values})


def test_a_schema_from_before_knows_its_dates():
    cells = COLUMNS["moments"]
    old = Schema.from_dict(
        {"cell": {"categories": [cell.isoformat(timespec="microseconds") for cell in cells]}}
    )
    assert old.encode({"cell": np.array(cells, dtype="datetime64[ns]")}).ravel().tolist() == [0, 1, 2]
    assert table.word(np.datetime64("NaT")) == ""


@pytest.mark.parametrize(
    "cell", ["-999", "-999.0", "-9.99e2", " -999", "+7", "7.", "007", "NA", "nan", "1e-400"]
)
@pytest.mark.parametrize("markers", [(), ("-999", "7")])
def test_a_text_among_numbers_changes_no_other(cell, markers, folder):
    """-999.0 was missing where all cells are numbers, and a number where one private cell is text."""
    path = folder / "numbers.csv"
    found = []
    for lines in ([cell], [cell, "bad"]):
        path.write_text("\n".join(["number,other", *(f"{line},1" for line in lines)]))
        read = table.read(path, public=False, numbers=("number", "other"), missing=markers)
        found.append(read.numbers("number")[0][:1].tobytes())
    assert found[0] == found[1]


def test_private_lines_do_not_decide_the_delimiter(folder):
    path = folder / "semicolons.csv"
    for row in (b"a,1", b"a;1", b"a;x,1;y", b"a;x;z,1;y;z"):
        path.write_bytes(b"word,number;unit\n" + row + b"\n")
        assert table.read(path, public=False).form == table.Format(",", "utf8", ".")
    path.write_bytes("größe;note, free\n1,5;x\n".encode())
    like = table.Table(path, None, np.zeros(0), form=table.Format(";", "utf8", ","))
    private_table = table.read(path, public=False, like=like)
    assert private_table.names == ["größe", "note, free"]
    assert private_table.numbers("größe")[0].tolist() == [1.5]


def test_what_is_declared_is_taken(folder):
    path = folder / "declared.csv"
    path.write_bytes("größe:beruf\n3,5:Köchin\n".encode("cp1252"))
    private_table = table.read(path, public=False, form=table.Format(":", "cp1252", ","))
    assert private_table.numbers("größe")[0].tolist() == [3.5]
    assert private_table.text("beruf") == ["Köchin"]


@pytest.mark.parametrize(
    "encoding", ["gbk", "shift_jis", "utf-7", "iso2022_jp", "utf-32", "cp037", "nowhere"]
)
def test_an_encoding_in_which_rows_depend_on_each_other_is_refused(encoding, public, folder):
    with pytest.raises(ValueError, match="the encoding must be UTF-8, UTF-16 or a code page"):
        table.read(folder / "public.csv", public=False, form=table.Format(encoding=encoding))


@pytest.mark.parametrize(
    "form",
    [table.Format(delimiter=""), table.Format(delimiter='"'), table.Format(decimal=";"), table.Format("·")],
)
def test_signs_that_cannot_be_are_refused(form, public, folder):
    with pytest.raises(ValueError, match="must be"):
        table.read(folder / "public.csv", public=False, form=form)


def test_all_paths_take_the_same_numbers():
    """Arrow alone, Arrow after the pattern, and Python, on words that look like numbers."""
    rng = np.random.default_rng(0)
    letters = np.array(list("0123456789+-.eE xnaifty_,()dlp"))
    words = sorted({"".join(rng.choice(letters, rng.integers(1, 7))).strip() for _ in range(4000)} - {""})
    expected = [table.number(word) for word in words]
    frame = pa.table({"word": words})
    path = pathlib.Path("rows.csv")
    together = table.Table(path, frame, np.arange(len(words)), missing=("",)).numbers("word")[0]
    np.testing.assert_array_equal(together, expected)
    for start in range(0, len(words), 97):
        part = table.Table(path, frame, np.arange(len(words)), missing=("",)).part(slice(start, start + 1))
        np.testing.assert_array_equal(part.numbers("word")[0], expected[start : start + 1])
