"""Data dictionaries of five formats say the same of the same columns."""

import click
import pytest

from ostraka.data.schema import Schema, read_dictionary
from ostraka.learn.options import ReadOptions

FRICTIONLESS = """{"resources": [{"name": "visits", "schema": {"missingValues": ["", "-99"], "fields": [
  {"name": "sex", "type": "integer", "constraints": {"enum": [1, 2], "required": true}},
  {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 120}}]}}]}"""
CSVW = """{"@context": "http://www.w3.org/ns/csvw", "url": "visits.csv", "null": ["", "-99"], "tableSchema": {
  "columns": [{"titles": "sex", "datatype": {"base": "string", "format": "^(1|2)$"}, "required": true},
  {"name": "age", "datatype": {"base": "integer", "minimum": 0, "maximum": 120}}]}}"""
DDI = """<codeBook xmlns="ddi:codebook:2_5"><dataDscr>
  <var name="sex"><catgry><catValu>1</catValu><labl>man</labl></catgry><catgry><catValu>2</catValu></catgry>
  <catgry missing="Y"><catValu>-99</catValu></catgry></var>
  <var name="age" dcml="0"><valrng><range min="0" max="120"/></valrng><varFormat type="numeric"/></var>
  </dataDscr></codeBook>"""
SDMX = """<mes:Structure xmlns:mes="m" xmlns:str="s" xmlns:com="c"><str:Codelist id="CL_SEX">
  <str:Code id="1"/>
  <str:Code id="2"/></str:Codelist><str:Dimension id="sex"><str:LocalRepresentation><str:Enumeration>
  <Ref id="CL_SEX"/></str:Enumeration></str:LocalRepresentation></str:Dimension></mes:Structure>"""
TOML = '[sex]\ncategories = ["1", "2"]\n[age]\nrange = [0, 120]\nwhole = true\n'
ALL = {"a.json": FRICTIONLESS, "b.json": CSVW, "c.xml": DDI, "d.xml": SDMX, "e.toml": TOML}


def options(path, **typed) -> ReadOptions:
    return ReadOptions(**{"label": "sex", "dictionary": path, **typed})


@pytest.mark.parametrize("name", ALL)
def test_each_format_says_the_same(tmp_path, name):
    (path := tmp_path / name).write_text(ALL[name])
    dictionary = read_dictionary(path)
    assert dictionary.columns["sex"]["categories"] == ["1", "2"]
    assert dictionary.kinds() == ("sex",)
    missing = {column for column, fields in dictionary.columns.items() if fields.get("missing")}
    stated = {"a.json": {"age"}, "b.json": {"age"}, "c.xml": {"sex", "age"}, "d.xml": {"sex"}}
    assert missing == stated.get(name, set())
    if name != "d.xml":  # code lists alone
        assert [float(end) for end in dictionary.columns["age"]["range"]] == [0.0, 120.0]
        assert dictionary.columns["age"]["whole"]
        columns = options(path, label=None, target="age").columns()
        assert columns.bounds == (0.0, 120.0)
        schema = Schema.from_public({"sex": [1, 2, 1], "age": [20, 30, 40]}, dictionary=dictionary.columns)
        assert schema.columns[0].categories == ("1", "2")
        assert (schema.columns[1].edges[0], schema.columns[1].edges[-1]) == (0.0, 121.0)
    columns = options(path).columns()
    assert list(columns.classes) == ["1", "2"]
    assert columns.missing == (("-99",) if name in {"a.json", "b.json", "c.xml"} else ())
    assert options(path, classes="2,1").columns().classes == ["2", "1"]  # what is typed counts


@pytest.mark.parametrize(
    "text", ["", "<codeBook/>", "{}", '{"fields": [3]}', "<a", "no toml", "[]", '{"resources": []}']
)
def test_what_is_no_dictionary_is_refused_in_words(tmp_path, text):
    (path := tmp_path / "words.json").write_text(text)
    with pytest.raises(click.UsageError, match="DDI codebook or SDMX"):
        options(path).columns()


def test_a_target_without_a_documented_range_needs_bounds(tmp_path):
    (path := tmp_path / "d.xml").write_text(SDMX)
    with pytest.raises(click.UsageError, match="documents no range of 'age': type --bounds"):
        options(path, label=None, target="age").columns()


VARIANTS = {  # a description, and what it says of columns and of what is missing
    "an enumeration with labels": (
        (
            '{"fields": [{"name": "a", "constraints": {"enum": [{"value": 1, "label": "x"}, '
            '2]}}, {"name": "b", '
            '"categories": ["u", "v"], "constraints": {"required": true}}, {"name": "c", "type": "number", '
            '"constraints": {"minimum": "0", "maximum": "2020-01-01"}}]}'
        ),
        {
            "a": {"missing": True, "categories": ["1", "2"]},
            "b": {"categories": ["u", "v"]},
            "c": {"missing": True},
        },
        (),
    ),
    "whole numbers by any name": (
        '{"schema": {"missingValues": ["x"], "fields": ['
        + ", ".join(f'{{"name": "{k}", "type": "{k}"}}' for k in ("integer", "year", "number", "long"))
        + "]}}",
        {
            "integer": {"missing": True, "whole": True},
            "year": {"missing": True, "whole": True},
            "number": {"missing": True},
            "long": {"missing": True, "whole": True},
        },
        ("x",),
    ),
    "one end": (
        (
            '{"fields": [{"name": "a", "constraints": {"minimum": 0}}, {"name": "b", "constraints": '
            '{"maximum": 1}}]}'
        ),
        {"a": {"missing": True}, "b": {"missing": True}},
        (),
    ),
    "tables of the web": (
        (
            '{"tables": [{"null": "-", "tableSchema": {"columns": [{"titles": {"de": "A"}, '
            '"datatype": "integer"}, '
            '{"titles": ["B", "b"], "datatype": {"base": "decimal", "minInclusive": 1, "maxInclusive": 2}}, '
            '{"name": "c", "required": true, "datatype": {"format": "yyyy-MM-dd"}}]}}, {"tableSchema": 3}]}'
        ),
        {
            "A": {"missing": True, "whole": True},
            "B": {"missing": True, "range": [1.0, 2.0]},
            "c": {},
        },
        ("-",),
    ),
    "nulls of a schema of the web": (
        '{"tableSchema": {"null": ["-", ""], "columns": [{"name": "a"}]}}',
        {"a": {"missing": True}},
        ("-",),
    ),
    "variables": (
        (
            '<c xmlns="ddi:x"><var name="a" dcml="0"><varFormat type="character"/></var>'
            '<var name="b" dcml="2"><range min="0"/><varFormat type="numeric"/></var>'
            '<var name="c"><catgry><catValu> 1 </catValu></catgry><catgry '
            'missing="Y"><catValu>9</catValu></catgry>'
            '<catgry missing="N"><catValu>2</catValu></catgry><catgry><labl>none</labl></catgry></var>'
            '<var name="d"><catgry missing="Y"><catValu>8</catValu></catgry></var><var><range '
            'min="0" max="1"/></var></c>'
        ),
        {
            "a": {"missing": True},
            "b": {"missing": True},
            "c": {"missing": True, "categories": ["1", "2"]},
            "d": {"missing": True},
        },
        ("8", "9"),
    ),
    "lists of codes alone": (
        '<S><Codelist id="CL_A"><Code id="1"/><Code id="2"/></Codelist><Codelist id="B"/></S>',
        {"A": {"missing": True, "categories": ["1", "2"]}},
        (),
    ),
    "attributes with codes": (
        (
            '<S><Codelist id="L"><Code id="1"/></Codelist><Dimension id="A"><Enumeration><Ref '
            'id="L"/></Enumeration>'
            '</Dimension><Attribute id="B"><Enumeration><Ref '
            'id="L"/></Enumeration></Attribute><Attribute id="C"/>'
            '<Attribute id="D"><Enumeration><Ref id="none"/></Enumeration></Attribute></S>'
        ),
        {name: {"missing": True, "categories": ["1"]} for name in "AB"},
        (),
    ),
    "TOML with more than columns": ("version = 3\n[a]\nmissing = true\n", {"a": {"missing": True}}, ()),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_description_says_no_more_than_it_holds(tmp_path, name):
    text, columns, missing = VARIANTS[name]
    (path := tmp_path / "d").write_text("\ufeff\n " + text if not text.startswith("v") else text)
    dictionary = read_dictionary(path)
    assert dictionary.columns == columns
    assert dictionary.missing == missing
    assert dictionary.kinds() == tuple(k for k, fields in columns.items() if "categories" in fields)
