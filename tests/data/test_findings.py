"""Findings: each is said in its words, with what to type, from its threshold on and not before."""

import numpy as np
import pytest

from ostraka.data.findings import Cells, Finding, findings, form_findings, label_findings, words_of
from ostraka.data.table import Format, Look, of_frame
from ostraka.data.task import Columns


def look(columns, *, public=None, **options):
    table = of_frame(columns, name="private.csv", public=False, missing=options.get("missing", ()))
    questions = None if public is None else of_frame(public, name="public.csv", public=True)
    return findings(table, Columns(**{"label": "ill", "fill": True} | options), public=questions)


def rows(n=100, **columns):
    """Ages and labels that say nothing of each other, and further columns, repeated to so many rows."""
    rng = np.random.default_rng(0)
    table = {"age": rng.integers(20, 60, n).tolist(), "ill": rng.choice(["no", "yes"], n).tolist()} | columns
    return {name: (cells * n)[:n] for name, cells in table.items()}


def numbered(form, n, *, times=1):
    return [form % (k // times) for k in range(n)]


PATIENTS = numbered("P%05d", 200, times=2)
CASES = numbered("%d", 200, times=4)
OWN = numbered("note %d" + "x" * 9, 200)
SAID = {
    "nothing": (rows(), {}, ""),
    "an empty column": (rows(x=["", "NA", "?"]), {}, "doubt: column 'x' is empty [--drop x]"),
    "one value": (rows(x=["a"]), {}, "note: column 'x' holds the same in every row"),
    "dates": (
        rows(x=["01/02/2020", "31/12/2020"]),
        {},
        "note: column 'x' holds dates, the day first: it counts days since 1970-01-01",
    ),
    "dates of one form": (
        rows(x=["2020-02-01", "2020-12-31"]),
        {},
        "note: column 'x' holds dates: it counts days since 1970-01-01",
    ),
    "holes in numbers": (
        rows(x=["1", "2", "3", "7", "-", "k.A."]),
        {},
        "doubt: column 'x' has spellings of no number: '-', 'k.A.' [--missing=- --missing k.A.]",
    ),
    "decimal commas": (
        rows(x=["1", *(f"{k},5" for k in range(7))]),
        {},
        "refused: column 'x' holds numbers with decimal commas [--decimal ,]",
    ),
    "some units": (
        rows(x=["1 kg", "2 kg", "7", "8", "9", "10"]),
        {},
        (
            "doubt: column 'x' holds 34 cells that are no number, and count as missing: some are written "
            "with a unit: '1 kg', '2 kg'"
        ),
    ),
    "some words": (
        rows(120, x=["one", "7", "8", "9", "2 kg", "10"]),
        {},
        "doubt: column 'x' holds 40 cells that are no number, and count as missing: '2 kg', 'one'",
    ),
    "words for public numbers": (
        rows(x=["a", "b", "2"]),
        {"public": rows(30, x=["1", "2"])},
        (
            "refused: column 'x' holds no numbers where the public rows do: write them alike, or leave it "
            "out [--drop x]"
        ),
    ),
    "other whole numbers": (
        rows(300, x=numbered("%d", 300)),
        {},
        (
            "doubt: column 'x' holds another whole number in every row: if it only numbers the rows, it "
            "teaches nothing [--drop x]"
        ),
    ),
    "numbers apart": (
        rows(x=["1", "2", "-99", "7", "9999"]),
        {},
        (
            "doubt: column 'x' holds -99 apart from all other numbers: does it mean none? [--missing=-99]\n"
            "doubt: column 'x' holds 9999 apart from all other numbers: does it mean none? [--missing 9999]"
        ),
    ),
    "numbers apart that are declared": (rows(x=["1", "2", "-99", "7"]), {"missing": ("-99 ",)}, ""),
    "thousands": (
        rows(200, x=[f"{k}'123" for k in range(50)]),
        {},
        (
            "doubt: column 'x' holds numbers with signs of thousands: write them without, or leave it out "
            "[--drop x]"
        ),
    ),
    "dates in several forms": (
        rows(200, x=[f"{k + 1}.1.2020" for k in range(11)] + [f"2020-12-{k + 1:02d}" for k in range(15)]),
        {},
        (
            "doubt: column 'x' holds dates in several forms: write all alike, as in 2024-03-31, or leave it "
            "out [--drop x]"
        ),
    ),
    "JSON": (
        rows(220, x=numbered('{"a": %d}', 22)),
        {},
        (
            "doubt: column 'x' holds JSON, which is read as words: give each of its values a column, or "
            "leave it out"
        ),
    ),
    "units": (
        rows(200, x=numbered("%d mg", 22)),
        {},
        (
            "doubt: column 'x' holds numbers with a unit or a sign: write numbers alone, or leave it out "
            "[--drop x]"
        ),
    ),
    "units that are declared as text": (rows(200, x=numbered("%d mg", 22)), {"text": ("x",)}, ""),
    "values of their own": (
        rows(200, x=OWN),
        {},
        "doubt: column 'x' holds another value in nearly every row, as identifiers and names do [--drop x]",
    ),
    "holes among kinds": (
        rows(x=["red", "blue", "n.b.", "?"]),
        {},
        "note: column 'x' has spellings of no value, which are a kind of its own: 'n.b.'",
    ),
    "spellings": (
        rows(x=["Red", "blue", "red", "r  s", "R s"]),
        {},
        (
            "doubt: column 'x' holds kinds that are equal but for case and spaces, and count as different: "
            "'red', 'Red', 'r  s', 'R s'"
        ),
    ),
    "two identifiers": (
        rows(200, patient=PATIENTS, caseno=CASES),
        {},
        (
            "refused: column 'caseno' looks like an identifier that repeats: if several rows are one "
            "person's, type --person caseno to protect people; if each row is another person's, type "
            "--rows-are-people [--person caseno]\n"
            "doubt: column 'patient' looks like an identifier, too [--drop patient]"
        ),
    ),
    "identifiers that are declared to be none": (
        rows(200, patient=PATIENTS, caseno=CASES),
        {"rows_are_people": True},
        (
            "doubt: column 'caseno' looks like an identifier: it teaches nothing [--drop caseno]\n"
            "doubt: column 'patient' looks like an identifier: it teaches nothing [--drop patient]"
        ),
    ),
    "people": (
        rows(201, patient=numbered("P%05d", 201, times=2)),
        {"person": "patient"},
        "note: 101 people with 2.0 rows on average, at most 2: each has one vote, however many rows",
    ),
    "rows of nobody": (
        rows(patient=["P1", "", "P2"]),
        {"person": "patient"},
        "refused: column 'patient' (--person) is empty in some rows: every row must name its person",
    ),
    "names among the cells": (
        rows(52, x=["x", "q", "r", "s"], age=["age", "a", "b", "c"], ill=["ill", "no", "yes", "no"]),
        {"text": ("x", "age"), "classes": ("no", "yes", "ill"), "rows_are_people": True},
        (
            "doubt: 13 rows hold the names of the columns, as if they were cells: take them out of the file\n"
            "doubt: column 'age' says the label nearly always: is it known when the model is used? [--drop "
            "age]\ndoubt: column 'x' says the label nearly always: is it known when the model is used? "
            "[--drop x]\nnote: column 'x' has spellings of no value, which are a kind of its own: 'x'"
        ),
    ),
    "repeated rows": (
        rows(
            200,
            x=[str(k // 2 * 7 % 90) for k in range(200)],
            age=[str(k // 2 * 11 % 83) for k in range(200)],
            ill=[["no", "yes"][k // 2 * 7 % 11 % 2] for k in range(200)],
        ),
        {},
        (
            "doubt: most rows occur twice or more: if these are one person's, take the copies out of the "
            "file, because only one of them would be protected"
        ),
    ),
    "numbers that give the label away": (
        rows(200, x=np.linspace(0, 1, 200).tolist(), ill=[str(k) for k in range(4) for _ in range(50)]),
        {},
        "doubt: column 'x' says the label nearly always: is it known when the model is used? [--drop x]",
    ),
    "words that give a target away": (
        rows(200, x=["a", "b", "c", "d"], ill=[1.0, 2.0, 3.0, 4.0]),
        {"bounds": (0, 9)},
        "doubt: column 'x' says the label nearly always: is it known when the model is used? [--drop x]",
    ),
    "no label": (
        rows(ill=["no", "yes", "n/a", "n.b.", ""]),
        {},
        (
            "refused: column 'ill' (--label) lacks a label in some rows, which would count as the first "
            "class, or what stands for none would be a class: 'n/a', 'n.b.' "
            "[--missing n/a --missing n.b. --drop-unlabelled]"
        ),
    ),
    "no label, which is declared": (
        rows(ill=["no", "yes", "n/a", ""]),
        {"missing": ("N/A",), "drop_unlabelled": True},
        "",
    ),
    "labels that are no class": (
        rows(200, ill=["no", "yes", "maybe", "", ".", "no"]),
        {"classes": ["no", "yes"]},
        (
            "doubt: column 'ill' (--label) lacks a label in some rows, which would count as the first class, "
            "or what stands for none would be a class: '.' [--missing . --drop-unlabelled]\n"
            "doubt: column 'ill' (--label) holds labels that --classes does not name, in 33 rows: they count "
            "as the first class: 'maybe'"
        ),
    ),
    "spellings of labels": (
        rows(ill=["no", "No ", "yes", "YES", "a,b", "A,b"]),
        {},
        (
            "refused: column 'ill' (--label) has 6 classes which are 3 but for case, spaces and zeros: 'no', "
            "'No', 'yes', 'YES', 'a,b', 'A,b' [--same no=No --same yes=YES]"
        ),
    ),
    "spellings that are declared": (rows(ill=["no", "No", "yes"]), {"same": [("No", "no")]}, ""),
    "numbers as labels": (
        rows(ill=["1", "2,5"]),
        {},
        (
            "refused: column 'ill' (--label) holds 2 different numbers: to learn a number, type --target ill "
            "--bounds LOW:HIGH instead of --label, with the lowest and the highest number that there can be; "
            "if they are classes, name all of them, as in --classes 0..25"
        ),
    ),
    "one class": (
        rows(ill=["no"]),
        {},
        "refused: column 'ill' (--label) holds one class only: is it the right column?",
    ),
    "a rare class": (
        rows(200, ill=["no", "yes"] * 99 + ["maybe", "no"]),
        {},
        (
            "note: column 'ill' (--label) has 1 of 3 classes with less than 1 % of the rows: the model "
            "seldom says them; rank rows by predict_proba: 'maybe'"
        ),
    ),
    "a target": (
        rows(200, ill=[1.0, 2.0, float("nan"), 8.0, 11.0]),
        {"bounds": (2.0, 8.0)},
        (
            "doubt: column 'ill' (--target) lacks a number in 40 rows, which add nothing: what is learned is "
            "weaker for them [--drop-unlabelled]\n"
            "doubt: column 'ill' (--target) holds 80 numbers beyond --bounds, which count as the nearest "
            "bound"
        ),
    ),
    "one number": (
        rows(ill=[1.0]),
        {"bounds": (0.0, 8.0)},
        "refused: column 'ill' (--target) holds no numbers, or only one: is it the right column?",
    ),
    "no number": (
        rows(ill=[float("nan")]),
        {"bounds": (0.0, 8.0)},
        "refused: column 'ill' (--target) holds no numbers, or only one: is it the right column?",
    ),
    "missing numbers": (
        rows(**{"x y": ["1", "", "2"]}),
        {"fill": False},
        (
            "doubt: private.csv: column 'x y' has no number in some rows: type --fill to put the public "
            "median there, or --drop 'x y' [--fill]"
        ),
    ),
    "missing public numbers": (
        rows(x=["1", "", "2"]),
        {"fill": False, "public": rows(30, x=["1", "", "2"])},
        (
            "refused: public.csv: column 'x' has no number in data row 2: type --fill to put the public "
            "median there, or --drop x [--fill]"
        ),
    ),
    "missing public dates": (
        rows(x=["2020-01-01", "2020-01-02"]),
        {"fill": False, "public": rows(30, x=["2020-01-01", "2020-01-02", ""])},
        (
            "refused: public.csv: column 'x' has no number in data row 3: type --fill to put the public "
            "median there, or --drop x [--fill]\n"
            "note: column 'x' holds dates: it counts days since 1970-01-01"
        ),
    ),
    "public numbers with holes": (
        rows(x=["1", "2"]),
        {"public": rows(30, x=["1", "1,5", "2", "k.A.", "7", "8", "9", "10"])},
        (
            "refused: public.csv: column 'x' holds numbers, but has spellings that are read as text: 'k.A.' "
            "[--missing k.A. --decimal ,]"
        ),
    ),
    "a word among public numbers": (
        rows(x=["1", "2"]),
        {"public": rows(30, x=["1", "2", "abc", "7", "8", "9", "10"])},
        (
            "refused: public.csv: column 'x' holds numbers, but a text in data row 3: mend it, type "
            "--missing with what stands for no number, or --text x"
        ),
    ),
    "a word among public numbers that are kinds": (
        rows(x=["1", "2"]),
        {"public": rows(30, x=["1", "2", "abc", "7"]), "text": ("x",)},
        "",
    ),
    "no public column": (
        rows(x=["1", "2"]),
        {"public": rows(30)},
        (
            "refused: public.csv (public) lacks the column 'x' of the private table: add it, or type --drop "
            "x [--drop x]"
        ),
    ),
}


@pytest.mark.parametrize("name", SAID)
def test_what_is_wrong_is_said_in_a_sentence_with_what_to_type(name):
    table, options, text = SAID[name]
    remarks = look(table, **options)
    said = [
        f"{one.weight}: {one.sentence(cells=True)}" + f" [{one.hint}]" * bool(one.hint) for one in remarks
    ]
    assert "\n".join(said) == text
    for one in remarks:  # what is public says so, and what is about cells keeps them apart
        assert one.private == (not one.text.startswith("public.csv"))
        assert not set(one.values) & set(one.sentence(cells=False).split("'")) - {one.column}


def kinds_of(columns, **options):
    return {finding.kind for finding in look(columns, **options)}


def repeated(n_rows, n_names, form="P%05d"):
    return [form % (k % n_names) for k in range(n_rows)]


def with_label(n, n_right):
    """A column that is the label in so many rows."""
    ill = ["no", "yes"] * n
    return rows(n, ill=ill, x=ill[:n_right] + [{"no": "yes", "yes": "no"}[cell] for cell in ill[n_right:n]])


THRESHOLDS = {  # what makes the table of a number, the last number without the finding, and the first with it
    "rows of an identifier": (lambda n: rows(n, patient=repeated(n, 25)), 49, 50, "unit"),
    "values of an identifier": (lambda n: rows(200, patient=repeated(200, n)), 19, 20, "unit"),
    "values of an identifier in many rows": (
        lambda n: rows(2000, id=repeated(2000, n, "%d")),
        39,
        40,
        "unit",
    ),
    "values that do not repeat": (lambda n: rows(200, id=numbered("%d", 200)[: 201 - n]), 1, 2, "unit"),
    "digits of a person": (
        lambda n: rows(
            200, patientcode=repeated(200, 60, f"%0{n}d"), **{"patient x": repeated(200, 60, f"%0{n}d")}
        ),
        4,
        5,
        "unit",
    ),
    "digits of a hash": (
        lambda n: rows(200, x=[f"{(k % 60 + 9) * 2654435761 % 16**n:0{n}x}" for k in range(200)]),
        7,
        8,
        "unit",
    ),
    "values of a shape": (lambda n: rows(2000, x=repeated(2000, n)), 99, 100, "unit"),
    "rows of one value of a shape, downwards": (
        lambda n: rows(400, x=["P00000"] * n + [f"P{1 + k % 59:05d}" for k in range(400 - n)]),
        21,
        20,
        "unit",
    ),
    "rows that follow from a column": (lambda n: with_label(200, n), 198, 199, "gives the label away"),
    "rows to see that": (lambda n: with_label(n, n), 49, 50, "gives the label away"),
    "labels that are not mostly one": (
        lambda n: rows(200, ill=["yes"] * n + ["no"] * (200 - n), x=["b"] * n + ["a"] * (200 - n)),
        10,
        11,
        "gives the label away",
    ),
    "columns": (lambda n: rows(60, **{f"c{k}": ["1", "2", "3"] for k in range(n - 1)}), 100, 101, "wide"),
    "classes with a rare one": (
        lambda n: rows(200, ill=["rare"] * (n // 2) + ["no", "yes"] * 100),
        5,
        2,
        "rare classes",
    ),
    "whole numbers as classes": (
        lambda n: rows(200, ill=[str(k % n) for k in range(200)]),
        10,
        11,
        "numeric label",
    ),
    "classes": (lambda n: rows(n, ill=numbered("class %d", n)), 1000, 1001, "too many classes"),
    "numbers among texts": (
        lambda n: rows(100, x=numbered("%d.5", n) + ["a"] * (100 - n)),
        60,
        61,
        "numbers as text",
    ),
    "values of their own": (
        lambda n: rows(200, x=OWN[:n] + OWN[:1] * (200 - n)),
        190,
        191,
        "values of their own",
    ),
    "rows with values of their own": (lambda n: rows(n, x=OWN), 49, 50, "values of their own"),
    "whole numbers of their own": (lambda n: rows(n, x=numbered("%d", n)), 199, 200, "values of their own"),
    "values that are written alike": (lambda n: rows(200, x=numbered("%d mg", n)), 20, 21, "numbers as text"),
    "a number apart above": (lambda n: rows(x=["1", "2", str(n), "33"]), 99, 999, "holes"),
    "a number apart below": (lambda n: rows(x=["1", "2", "-1", str(n)]), -2, 0, "holes"),
}


@pytest.mark.parametrize("name", THRESHOLDS)
def test_a_finding_begins_at_its_threshold(name):
    made, without, with_it, kind = THRESHOLDS[name]
    assert [kind in kinds_of(made(n)) for n in (without, with_it)] == [False, True]


def weight_of(columns, kind, **options):
    (finding,) = (finding for finding in look(columns, **options) if finding.kind == kind)
    return finding.weight, finding.options


def test_a_finding_is_as_grave_as_many_cells_say():
    for n, weight in ((1, "doubt"), (2, "refused")):  # of 200 labels, which nobody has declared
        ill = [""] * n + ["no", "yes"] * 100
        assert weight_of(rows(200, ill=ill), "rows without a label")[0] == weight
        assert weight_of(rows(200, ill=ill, classes=["no"]), "rows without a label")[0] == weight
        declared = {"classes": ["no", "yes"]}
        assert weight_of(rows(200, ill=ill), "rows without a label", **declared)[0] == "doubt"
    for n, weight in ((2, "doubt"), (3, "refused")):
        x = [f"{k},5" for k in range(n)] + numbered("%d.5", 200)
        assert weight_of(rows(200, x=x), "numbers as text")[0] == weight
    for n, options in ((100, ()), (101, ("--drop", "x"))):  # private words where public rows hold numbers
        x = ["word"] * n + numbered("%d.5", 200)
        found = weight_of(rows(200, x=x), "numbers as text", public=rows(30, x=["1", "2"]))
        assert found == ("refused" if options else "doubt", options)
    for n, options in ((220, ()), (219, ("--drop", "x"))):  # ten rows for each way of writing
        assert weight_of(rows(n, x=numbered("%d mg", 22)), "numbers as text") == ("doubt", options)
    for n, kinds in ((190, set()), (191, {"numbers as text"})):
        x = numbered("%d mg", 30) * 7
        assert kinds_of(rows(200, x=x[:n] + ["ab"] * (200 - n))) == kinds


@pytest.mark.parametrize(
    ("cells", "kinds"),
    [
        (numbered("%d,000", 30), {"numbers as text"}),
        (numbered("$%d", 30), {"numbers as text"}),
        (numbered("ca. %d", 30), set()),
        (numbered("about %d years", 30), set()),
        (numbered("2020-%d-1 10:00", 13) + numbered("%d.12.2020", 13), {"dates"}),
        (numbered("2020-%d.1", 30), set()),
        (numbered(' ["a", %d]', 30), {"JSON"}),
        (numbered("q(%d)q7", 30), set()),
    ],
)
def test_cells_that_are_written_alike_are_told_by_their_form(cells, kinds):
    assert (
        kinds_of(rows(300, x=[f"{cell}" for cell in cells], text=["w"]) | {}) - {"constant column"} == kinds
    )


@pytest.mark.parametrize(
    ("name", "cells", "is_one"),
    [
        ("patient", numbered("%d", 60), True),
        ("patient-age", numbered("%d", 60), False),
        ("personid", numbered("%d", 60), True),
        ("kundennr", numbered("%d", 60), True),
        ("MitarbeiterNr", numbered("%d", 60), True),
        ("sessionid", numbered("%d", 60), False),
        ("UUID", numbered("%d", 60), True),
        ("form_key", numbered("%d", 60), True),
        ("monkey", numbered("%d", 60), False),
        ("patient_zip", numbered("%d", 60), False),
        ("patient_zip", numbered("1%04d", 60), True),
        ("visit", numbered("1%04d", 60), False),
        ("code", numbered("AB-%03d", 60), True),
        ("code", numbered("AB-%02d", 60), False),
        ("code", numbered("A%03d", 30) + numbered("B%03d", 30), False),
        ("code", [""] * 30 + ["NA"] * 30 + numbered("A%03d", 60), True),
        ("hash of", [f"{k:08x}-{k:04x}" for k in range(10**7, 10**7 + 60)], True),
    ],
)
def test_columns_that_may_name_people_are_told_by_name_or_shape(name, cells, is_one):
    kinds = kinds_of(rows(4 * len(cells), **{name: cells * 4}))
    assert ("unit" in kinds) == is_one


def test_words_of_a_name():
    names = {
        "patientId": "patient id",
        "PATIENT_ID": "patient id",
        "HTTPUser": "http user",
        "größe2": "größe",
    }
    assert {name: " ".join(words_of(name)) for name in names} == names


FORMS = {
    "a title": (
        Format(",", "utf8", ".", 1),
        Format(),
        {},
        "refused: a line stands above the header [--skip-lines 1]",
    ),
    "titles": (
        Format(",", "utf8", ".", 3),
        Format(skip=1),
        {},
        "refused: 3 lines stand above the header [--skip-lines 3]",
    ),
    "titles that are declared": (Format(",", "utf8", ".", 3), Format(skip=3), {}, ""),
    "another sheet": (
        Format(",", "utf8", ".", 0, "b"),
        Format(sheet="a"),
        {"sheets": ("a", "b")},
        "doubt: the table seems to be on sheet 'b', not on 'a' [--sheet b]",
    ),
    "a sheet of two": (
        Format(",", "utf8", ".", 0, "b"),
        Format(sheet="b"),
        {"sheets": ("a", "b")},
        "note: 2 sheets, of which 'b' is read",
    ),
    "one sheet": (Format(",", "utf8", ".", 0, "b"), Format(sheet="b"), {"sheets": ("b",)}, ""),
    "delimiters at ends": (
        Format(",", "utf8", ".", 0),
        Format(),
        {"trailing": True},
        "note: lines end with a delimiter, which makes no column",
    ),
    "lines within quotes": (
        Format(",", "utf8", ".", 0),
        Format(),
        {"broken": True},
        "doubt: lines end inside quotes, and each line counts as a row: write these cells without line ends",
    ),
    "another encoding": (
        Format(",", "cp1252", ".", 0),
        Format(encoding="utf8"),
        {},
        "doubt: the file is not utf8, but may be cp1252 [--encoding cp1252]",
    ),
    "a Unicode encoding": (Format(",", "utf-16", ".", 0), Format(encoding="utf8"), {}, ""),
    "commas": (
        Format(";", "utf8", ",", 0),
        Format(decimal="."),
        {},
        "refused: numbers are written with decimal commas [--decimal ,]",
    ),
    "commas that are declared": (Format(";", "utf8", ",", 0), Format(decimal=","), {}, ""),
    "points": (Format(";", "utf8", ".", 0), Format(decimal=","), {}, ""),
}


@pytest.mark.parametrize("name", FORMS)
def test_how_a_file_is_read_otherwise_than_it_looks_is_said(name):
    form, declared, facts, text = FORMS[name]
    remarks = form_findings(Look(form, form, **facts), declared)
    said = [f"{one.weight}: {one.text}" + f" [{one.hint}]" * bool(one.hint) for one in remarks]
    assert "\n".join(said) == text


def test_a_finding_shows_cells_to_their_owner_alone_and_six_at_most():
    finding = Finding(kind="a", weight="note", text="Says", values=tuple("abcdefg"), options=("--x", "y z"))
    assert finding.sentence(cells=False) == "Says"
    assert finding.sentence(cells=True) == "Says: 'a', 'b', 'c', 'd', 'e', 'f', …"
    facts = {"kind": "a", "weight": "note", "text": "Says", "column": None, "private": True}
    assert finding.to_dict() == facts | {
        "options": ["--x", "y z"],
        "values": list("abcdefg"),
        "hint": "--x 'y z'",
    }
    cells = Cells.of(of_frame({"x": ["a", "b", "a", "c"]}, name="t", public=True), "x")
    assert (cells.texts, cells.counts.tolist(), cells.codes.tolist()) == (
        ["a", "b", "c"],
        [2, 1, 1],
        [0, 1, 0, 2],
    )
    assert cells.share([True, False, True]) == 0.75
    assert not list(
        label_findings(Cells.of(of_frame({"y": ["a", "b"]}, name="t", public=True), "y"), Columns(label="y"))
    )
