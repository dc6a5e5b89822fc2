"""Workbooks: which sheet looks like the table, which row is its header, and what cells hold."""

import datetime as dt

import pytest

from ostraka.data import table as tables
from ostraka.data.findings import form_findings
from ostraka.data.table import Format, look, read
from ostraka.data.task import public_form

openpyxl = pytest.importorskip("openpyxl", reason="pip install openpyxl")


@pytest.fixture
def workbook(tmp_path):
    def make(**sheets):
        book = openpyxl.Workbook()
        book.remove(book.active)
        for name, rows in sheets.items():
            sheet = book.create_sheet(name)
            for row in rows:
                sheet.append(row)
        book.save(tmp_path / "t.xlsx")
        return tmp_path / "t.xlsx"

    return make


ROWS = [
    ["age", "job", "day"],
    [3.5, " cook ", dt.date(2020, 1, 2)],
    [None, None, None],
    [7.0, None, "x"],
    [True],
]


def test_cells_are_text_and_rows_that_are_empty_are_left_out(workbook):
    path = workbook(table=ROWS)
    table = read(path, public=False)
    assert table.names == ["age", "job", "day"]
    assert table.text("age") == ["3.5", "7", "True"]
    assert table.text("job") == ["cook", "", ""]
    assert table.text("day") == ["2020-01-02T00:00:00", "x", ""]
    assert table.form == Format(",", "utf8", ".")
    assert table.days("day", None)[0][0] == 18263.0


def test_a_sheet_is_read_by_name_and_below_its_titles(workbook):
    path = workbook(cover=[["Of 2024"], ["a", "b"], [1, 2]], table=[["x", "y"], [5, 6], [7, 8]])
    assert tables.sheets(path) == ["cover", "table"]
    assert read(path, public=False, form=Format(skip=1)).text("b") == ["2"]
    assert read(path, public=False, form=Format(sheet="table")).text("y") == ["6", "8"]
    assert read(path, public=False, form=Format(sheet="table", skip=0)).names == ["x", "y"]
    with pytest.raises(ValueError, match=r"has no sheet 'none' \(--sheet\); it has cover, table"):
        read(path, public=False, form=Format(sheet="none"))
    for form, words in (
        (Format(skip=3), "does not look like column names"),
        (Format(sheet="table", skip=1), "does not look like column names"),
        (Format(skip=2), "does not look like column names"),
        (Format(sheet="table", skip=-1), "lines above the header must be"),
    ):
        with pytest.raises(ValueError, match=words):
            read(path, public=False, form=form)
    only_names = workbook(table=[["x", "y"]])
    with pytest.raises(ValueError, match="has column names but no rows"):
        read(only_names, public=False)
    formatted = workbook(table=[["x", "y", None, None], [1, 2, None, None]])
    assert read(formatted, public=False).names == ["x", "y"]
    with pytest.raises(ValueError, match="does not look like column names"):
        read(workbook(table=[["x", None, "y"], [1, 2, 3]]), public=False)


LOOKS = {
    "the first of equals": ({"a": [["x", "y"], [1, 2]], "b": [["u", "v"], [1, 2]]}, {}, "a", 0, ("x", "y")),
    "the fuller": ({"a": [["x", "y"], [1, 2]], "b": [["u", "v"], [1, 2], [3, 4]]}, {}, "b", 0, ("u", "v")),
    "the declared": (
        {"a": [["x", "y"], [1, 2]], "b": [["u", "v"], [1, 2], [3, 4]]},
        {"sheet": "a"},
        "a",
        0,
        ("x", "y"),
    ),
    "titles": ({"a": [["Of 2024"], [], ["x", "y"], [1, 2], [3, 4]]}, {}, "a", 2, ("x", "y")),
    "a title of many cells": (
        {"a": [[1, 2, 3], ["x", "y", "z"], [1, 2, 3], [1, 2, 3]]},
        {},
        "a",
        1,
        ("x", "y", "z"),
    ),
    "declared titles": ({"a": [["Of 2024"], ["x", "y"], [1, 2], [3, 4]]}, {"skip": 0}, "a", 0, ("x", "y")),
    "one column": ({"a": [["x"], [1], [2]]}, {}, "a", 0, ()),
    "no header": ({"a": [[1, 2], [3, 4]]}, {}, "a", 0, ()),
    "nothing": ({"a": []}, {}, "a", 0, ()),
}


@pytest.mark.parametrize("name", LOOKS)
def test_the_sheet_with_most_cells_is_looked_at(workbook, name):
    sheets, declared, sheet, titles, names = LOOKS[name]
    path = workbook(**sheets)
    got = look(path, Format(**declared))
    assert got.form == Format(skip=titles, sheet=sheet)
    assert got.usual == Format(skip=declared.get("skip"), sheet=declared.get("sheet", "a"))
    assert (got.sheets, got.names, got.trailing, got.broken) == (tuple(sheets), names, False, False)


def test_what_a_workbook_needs_is_said(workbook):
    path = workbook(cover=[["Of 2024"]], table=[["Of 2024"], ["x", "y"], [1, 2], [3, 4]])
    shape = look(path, Format())
    said = [(finding.text, finding.hint) for finding in form_findings(shape, Format(sheet="cover"))]
    assert said == [
        ("a line stands above the header", "--skip-lines 1"),
        ("the table seems to be on sheet 'table', not on 'cover'", "--sheet table"),
    ]
    none = look(path, Format(sheet="none"))
    assert (none.form, none.sheets, none.names) == (Format(sheet="none"), ("cover", "table"), ())
    assert public_form(path, Format(sheet="table", encoding="cp1252", skip=7)) == Format(
        encoding="cp1252", skip=1, sheet="table"
    )
    assert public_form(path, Format(sheet="none", skip=7)) == Format(skip=1)


@pytest.mark.parametrize("content", [b"PK", b"canary"])
def test_what_is_no_workbook_is_refused_without_being_quoted(tmp_path, content):
    path = tmp_path / "t.xlsx"
    path.write_bytes(content)
    for way in (
        tables.sheets,
        lambda path: tables.sheet_rows(path, "a"),
        lambda path: read(path, public=False),
    ):
        with pytest.raises(ValueError, match="cannot be read as Excel: is it complete") as refused:
            way(path)
        assert refused.value.__cause__ is None
