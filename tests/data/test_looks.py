"""How a file of text looks and is read: each sign, line, mark and cell by rules that are checked by hand."""

import codecs
import csv
import io
import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression

from ostraka.data import table as tables
from ostraka.data.table import Format, Look, look, read


def write(folder, text, *, encoding="utf8", name="t.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return path


LOOKS = {  # text, what is declared, the form that can be read, title lines apart, and what else is seen
    "commas": ("a,b\n1.5,x\n", {}, (",", "utf8", ".", 0), {"names": ("a", "b")}),
    "semicolons": ("a;b\n1,5;x\n", {}, (";", "utf8", ",", 0), {"names": ("a", "b")}),
    "tabs": ("a\tb\n1.5\tx\n", {}, ("\t", "utf8", ".", 0), {"names": ("a", "b")}),
    "bars": ("a|b\nx|x\n", {}, ("|", "utf8", ",", 0), {"names": ("a", "b")}),
    "one column": ("a\n1\n2\n", {}, (",", "utf8", ".", 0), {"names": ("a",)}),
    "thousands": ("a;b\n1.234,5;x\n2.5;x\n3,5;y\n", {}, (";", "utf8", ",", 0), {"names": ("a", "b")}),
    "as many commas as points": ("a;b\n1,5;x\n2.5;x\n", {}, (";", "utf8", ",", 0), {"names": ("a", "b")}),
    "no numbers": ("a,b\nx,y\n", {}, (",", "utf8", ".", 0), {"names": ("a", "b")}),
    "a title": ("Of 2024\na,b\n1,x\n2,y\n", {}, (",", "utf8", ".", 1), {"names": ("a", "b")}),
    "a title with a comma": (
        "Of 2024, all\n\na,b,c\n1,x,3\n2,y,4\n",
        {},
        (",", "utf8", ".", 2),
        {"names": ("a", "b", "c")},
    ),
    "blank lines above": ("\n\na,b\n1,x\n", {}, (",", "utf8", ".", 0), {"names": ("a", "b")}),
    "a declared title": ("x,y\na,b\n1,x\n", {"skip": 1}, (",", "utf8", ".", 1), {"names": ("a", "b")}),
    "no title": ("Of 2024\na,b\n1,x\n2,y\n", {"skip": 0}, (",", "utf8", ".", 0), {"names": ("Of 2024",)}),
    "a declared sign": ("a;b,c\n1;2,3\n", {"delimiter": ","}, (",", "utf8", ".", 0), {"names": ("a;b", "c")}),
    "a declared decimal sign": (
        "a;b\n1,5;x\n",
        {"decimal": "."},
        (";", "utf8", ".", 0),
        {"names": ("a", "b")},
    ),
    "ends with signs": (
        "a,b,\n1,2,\n3,4,\n",
        {},
        (",", "utf8", ".", 0),
        {"names": ("a", "b"), "trailing": True},
    ),
    "rows end with signs": (
        "a,b\n" + "1,2,\n" * 10,
        {},
        (",", "utf8", ".", 0),
        {"names": ("a", "b"), "trailing": True},
    ),
    "one row of eleven does not": (
        "a,b,\n" + "1,2,\n" * 9 + "1,2,3\n",
        {},
        (",", "utf8", ".", 0),
        {"names": ("a", "b"), "trailing": True},
    ),
    "one row of ten does not": (
        "a,b,\n" + "1,2,\n" * 8 + "1,2,3\n",
        {},
        (",", "utf8", ".", 0),
        {"names": ("a", "b")},
    ),
    "a last column that is empty": (
        "a,b,c\n1,2,\n3,4,\n",
        {},
        (",", "utf8", ".", 0),
        {"names": ("a", "b", "c")},
    ),
    "lines in quotes": (
        'a,b\n1,"x\ny"\n2,"z\nw"\n',
        {},
        (",", "utf8", ".", 0),
        {"names": ("a", "b"), "broken": True},
    ),
    "a quote": ('a,b\n1,5"\n2,x\n', {}, (",", "utf8", ".", 0), {"names": ("a", "b")}),
    "carriage returns": ("a,b\r\n1,x\r\n", {}, (",", "utf8", ".", 0), {"names": ("a", "b")}),
    "blanks in names": (" a , b\n1,x\n", {}, (",", "utf8", ".", 0), {"names": ("a", "b")}),
    "most lines have two cells": (
        "a,b\n" + "1,2\n" * 9 + "1\n",
        {},
        (",", "utf8", ".", 0),
        {"names": ("a", "b")},
    ),
    "more cells with another sign": (
        "a;b;c,d\n1;2;3,4\n5;6;7,8\n",
        {},
        (";", "utf8", ",", 0),
        {"names": ("a", "b", "c,d")},
    ),
    "nothing": ("\n", {}, (",", "utf8", ".", 0), {}),
}


@pytest.mark.parametrize("name", LOOKS)
def test_a_file_of_text_is_looked_at(tmp_path, name):
    text, declared, form, seen = LOOKS[name]
    path = write(tmp_path, text)
    got = look(path, Format(**declared))
    assert got.form == Format(*form)
    assert (got.names, got.trailing, got.broken, got.sheets) == (
        seen.get("names", ()),
        seen.get("trailing", False),
        seen.get("broken", False),
        (),
    )
    usual = declared.get("decimal") or ("." if form[0] == "," else ",")
    assert got.usual == Format(form[0], "utf8", usual, declared.get("skip"))
    assert (
        tables.titles_of(path, Format(**declared))
        == look(path, Format(**declared | {"skip": None})).form.skip
    )


def test_what_is_not_declared_is_as_the_public_table_was_read(tmp_path):
    path = write(tmp_path, "a;b\n1,5;x\n")
    like = Format(";", "cp1252", ".")
    assert look(path, Format(), like=like).usual == Format(";", "cp1252", ".")
    assert look(path, Format(), like=Format(",", "cp1252", ".")).usual == Format(";", "cp1252", ",")
    assert look(path, Format(encoding="cp1252"), like=Format(";")).usual == Format(";", "cp1252", ",")
    marked = write(tmp_path, "\ufeffa;b\n1,5;x\n", encoding="utf-16-le")
    assert look(marked, Format(), like=like) == Look(
        Format(";", "utf-16", ",", 0), Format(";", "utf-16", "."), names=("a", "b")
    )
    latin = write(tmp_path, "größe,b\n1,x\n", encoding="cp1252")
    assert (look(latin, Format()).form.encoding, look(latin, Format()).usual.encoding) == ("cp1252", "utf8")
    assert look(latin, Format()).names == ("größe", "b")


@pytest.mark.parametrize("n", [49, 50, 51])
def test_a_header_is_looked_for_below_fifty_lines_at_most(tmp_path, n):
    path = write(tmp_path, "title, of it\n" * n + "a,b,c\n" + "1,x,2\n" * 200)
    assert look(path, Format()).form.skip == (n if n < 51 else 0)


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (Format(delimiter=""), "the delimiter must be one ASCII character"),
        (Format(delimiter=",,"), "the delimiter must be"),
        (Format(delimiter="§"), "the delimiter must be"),
        *((Format(delimiter=sign), "the delimiter must be") for sign in '"\r\n\\'),
        (Format(skip=-1), "lines above the header must be 0 to 1000, got -1"),
        (Format(skip=1001), "got 1001"),
        (Format(decimal=";"), "the decimal sign must be '.' or ',', got ';'"),
        *(
            (Format(encoding=name), "the encoding must be UTF-8")
            for name in ("utf-7", "shift_jis", "none", "utf-32")
        ),
    ],
)
def test_a_form_that_cannot_be_is_refused(form, words):
    with pytest.raises(ValueError, match=words):
        form.checked()


def test_forms_that_can_be_are_taken_and_unusual_ones_said():
    for form in (Format(skip=0), Format(skip=1000), Format(delimiter=" "), Format(decimal=",")):
        assert form.checked() is form
    for name in ("utf8", "utf-8-sig", "UTF-16", "utf_16_le", "cp1252", "latin1", "ascii", "koi8-r"):
        assert Format(encoding=name).checked().encoding == name
    assert Format(",", "utf8", ".").said == ""
    assert Format(";", "utf8", ".").said == "is read with ';' between cells"
    assert Format(";", "utf8", ",").said == "is read with ';' between cells, so that 3,5 may stand for 3.5"
    assert Format("\t", "cp1252", ".").said == "is read with tabs between cells and as cp1252 text"
    assert Format("x", "utf8", ".").said == "is read with 'x' between cells"
    assert Format(",", "cp1252", ",").said == "is read as cp1252 text"


CELL = st.text(
    st.characters(codec="utf8", exclude_characters="\r\n\0", exclude_categories=["Cs"]), max_size=5
)


@settings(max_examples=20)
@given(rows=st.lists(st.lists(CELL, min_size=3, max_size=3), min_size=1, max_size=8), data=st.data())
def test_lines_are_read_as_by_the_csv_module(tmp_path_factory, rows, data):
    """Whatever stands in quotes; in a cell that an encoding cannot write nothing is."""
    path = tmp_path_factory.getbasetemp() / "rows.csv"
    sign = data.draw(st.sampled_from(",;\t|"))
    lines = io.StringIO()
    written = csv.writer(lines, delimiter=sign, lineterminator=data.draw(st.sampled_from(["\n", "\r\n"])))
    written.writerows([["a", "b", "c"], *rows])
    path.write_text(lines.getvalue(), encoding="utf8", newline="")
    want = [["" if "\ufffd" in cell else cell.strip() for cell in row] for row in rows]
    kept = [row for row, cells in zip(want, rows, strict=True) if any(cells)]  # Arrow leaves blank lines out
    table = read(path, public=False, form=Format(delimiter=sign))
    got = np.array([table.text(name) for name in "abc"]).T.tolist()
    assert [row for row in got if any(row)] == [row for row in kept if any(row)]


@pytest.mark.parametrize("size", [1, 7, 40, 1000])
def test_parts_of_a_file_are_whole_lines_and_all_of_it(tmp_path, size):
    text = "a,b\n" + "".join(f"{k},{'x' * (k % 13)}\n" for k in range(50)) + "7,last"
    path = write(tmp_path, text)
    spans = tables.spans(path, size=size)
    assert spans[0][0] == 0
    assert spans[-1][1] == len(text)
    assert all(stop == start for (_, stop), (start, _) in itertools.pairwise(spans))
    parts = [text[start:stop] for start, stop in spans]
    assert all(part.endswith("\n") for part in parts[:-1])
    assert all(len(part) - len(part.splitlines(keepends=True)[-1]) <= size for part in parts)
    form, names = tables.text_form(path, Format(), like=None, public=False)
    frames = [tables.rows_of_span(path, span, form, names, numbers=(), missing=("x",)) for span in spans]
    whole = read(path, public=False, missing=("x",)).frame
    assert pa.concat_tables(frames).equals(whole)


def test_a_line_that_is_too_long_or_has_other_cells_is_missing_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "_LONGEST", 100)
    limit = 100 + 2 * 256
    rows = ["1," + "x" * (limit - 2), "2," + "x" * (limit - 1), "3,a,b", "4", "5,e,", '6,"f,f"', "7,g"]
    path = write(tmp_path, "a,b\n" + "\n".join(rows) + "\n")
    table = read(path, public=False)
    assert table.text("a") == ["1", "", "", "", "5", "6", "7"]
    assert table.text("b")[4:] == ["e", "f,f", "g"]
    for n, row in enumerate(rows):
        public = write(tmp_path, "a,b\n\n1,ok\n" + row + "\n2,ok\n")
        if n in {1, 2, 3}:
            with pytest.raises(ValueError, match="line 4 has another number of cells than the header"):
                read(public, public=True)
        else:
            assert len(read(public, public=True)) == 3


def test_marks_and_blocks_of_a_file_are_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "_BLOCK", 5)
    text = "größe,b\n" + "1,ü\n" * 9 + "2,é"
    for encoding in ("utf8", "utf-8-sig", "utf-16"):
        path = write(tmp_path, text, encoding=encoding)
        assert tables.is_utf8(path) == (encoding != "utf-16")
        table = read(path, public=False)
        assert table.text("b") == ["ü"] * 9 + ["é"]
    for mark, name in (
        (codecs.BOM_UTF8, "utf8"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
        (b"a,b", None),
    ):
        assert tables.mark_of(mark + b"x") == name
    assert not tables.is_utf8(write(tmp_path, b"abcd\xc3"))  # half a character at the end


@pytest.mark.parametrize(
    ("names", "is_one"),
    [
        (["a", "b"], True),
        (["a"], True),
        ([], False),
        (["a", ""], False),
        (["a", " "], False),
        (["a", "a"], False),
        (["a", " 7.5 "], False),
        (["a", "7b"], True),
    ],
)
def test_a_header_has_a_name_of_its_own_for_each_column(names, is_one):
    assert tables.is_header(names) == is_one


CELLS = [
    (None, "", np.nan),
    (float("nan"), "", np.nan),
    (float("inf"), "inf", np.nan),
    (7.0, "7", 7.0),
    (7.5, "7.5", 7.5),
    (np.float32(3), "3", 3.0),
    (True, "True", 1.0),
    (10**20, str(10**20), 1e20),
    (10**400, str(10**400), np.nan),
    (" 1e3 ", "1e3", 1000.0),
    (b" .5", ".5", 0.5),
    (b"\xff1", "", np.nan),
    ("1\udcff", "", np.nan),
    ("+5.", "+5.", 5.0),
    ("5e", "5e", np.nan),
    ("\u0661", "\u0661", np.nan),
    ("1e999", "1e999", np.nan),
    (np.datetime64("2020-01-02"), "2020-01-02T00:00:00", np.nan),
]


@pytest.mark.parametrize(("cell", "text", "number"), CELLS, ids=[repr(cell)[:20] for cell, *_ in CELLS])
def test_a_cell_is_one_text_and_one_number_or_none(cell, text, number):
    assert tables.word(cell) == text
    np.testing.assert_equal(tables.number(cell), number)
    np.testing.assert_equal(tables.numbers([cell]), [number])
    assert tables.is_missing(cell) == (text == "" and not isinstance(cell, str | bytes))
    whole = np.array([1, 2**62, -3])
    assert tables.numbers(whole).tolist() == [1.0, 2.0**62, -3.0]
    np.testing.assert_equal(tables.numbers(np.array([1.0, np.inf, np.nan])), [1.0, np.nan, np.nan])


def test_arrays_of_a_file_are_plain_and_those_that_were_asked_for(tmp_path):
    path = tmp_path / "rows.npz"
    np.savez(path, X=np.eye(2), y=np.arange(2))
    assert sorted(tables.read_arrays(path, how="f()")) == ["X", "y"]
    assert sorted(tables.read_arrays(path, how="f()", only={"y"})) == ["y"]
    np.savez(path, X=np.array([{}], dtype=object))
    for content in (None, b"", b"PK", np.eye(2).tobytes()):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ValueError, match=r"cannot be read as .npz with plain arrays: write it by f\(\)"):
            tables.read_arrays(path, how="f()")
    np.save(tmp_path / "rows.npy", np.eye(2))
    with pytest.raises(ValueError, match="plain arrays"):
        tables.read_arrays(tmp_path / "rows.npy", how="f()")


class Tolerant(LogisticRegression):
    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def test_rows_to_learn_from_are_finite_tables_which_keep_their_type():
    plain, model = np.arange(6.0).reshape(3, 2), LogisticRegression()
    assert tables.rows(plain, model) is plain
    assert tables.rows(plain.tolist(), model).tolist() == plain.tolist()
    sparse = tables.rows(csr_array(plain).tocsc(), model)
    assert sparse.format == "csr"
    assert tables.rows(plain, model, single=True).dtype == np.float32
    assert tables.rows(csr_array(plain), model, single=True).dtype == np.float32
    for wrong in (np.zeros((0, 2)), np.zeros(3), np.zeros(())):
        with pytest.raises(ValueError, match="X must have shape"):
            tables.rows(wrong, model)
    holes = np.array([[1.0, np.nan], [0.0, 2.0]])
    for table in (holes, csr_array(holes)):
        with pytest.raises(ValueError, match=r"X of shape \(2, 2\) must be finite"):
            tables.rows(table, model)
        assert tables.rows(table, Tolerant()).shape == (2, 2)
    with pytest.raises(ValueError, match="X must hold numbers only, for a torch network") as refused:
        tables.rows(np.array([["canary", 1]], dtype=object), model, single=True)
    assert "canary" not in str(refused.value)


def test_features_are_single_numbers_and_large_ones_are_refused_or_count_as_the_ends():
    most = float(np.finfo(np.float32).max)
    got = tables.feature_table([[1, 2.5], [3, most]], "X")
    assert (got.dtype, got.tolist()) == (np.float32, [[1.0, 2.5], [3.0, most]])
    with pytest.raises(ValueError, match=r"X of shape \(1, 2\) must be finite and below 3e38"):
        tables.feature_table([[1e39, 0.0]], "X")
    assert tables.feature_table([[1e39, -1e300]], "X", clip=True).tolist() == [[most, -most]]
    for holes in ([[np.nan, 1e39]], [[np.inf, 0.0]]):
        with pytest.raises(ValueError, match="must be finite"):
            tables.feature_table(holes, "X", clip=True)
    for wrong, words in (
        (csr_array(np.eye(2)), "X must have dense features"),
        ([["canary"]], "X must have numbers as features"),
        (np.zeros(3), r"X must have shape .* got \(3,\)"),
        (np.zeros((3, 0)), r"got \(3, 0\)"),
    ):
        with pytest.raises(ValueError, match=words) as refused:
            tables.feature_table(wrong, "X")
        assert "canary" not in str(refused.value)


def test_selected_rows_are_those_of_any_table():
    import pandas as pd

    rows = np.array([2, 0])
    table = np.arange(6).reshape(3, 2)
    assert tables.selected(table, rows).tolist() == [[4, 5], [0, 1]]
    assert tables.selected(csr_array(table), rows).toarray().tolist() == [[4, 5], [0, 1]]
    assert tables.selected(pd.DataFrame(table), rows).to_numpy().tolist() == [[4, 5], [0, 1]]
