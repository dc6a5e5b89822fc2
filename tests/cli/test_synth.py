import json
import re
import stat
import tomllib
from unittest.mock import Mock

import numpy as np
import pytest

from ostraka.ledger import Ledger
from ostraka.report.page import at_most, of_table
from ostraka.result import Result
from ostraka.synth import Schema, TableGenerator
from ostraka.synth.cli import _Request, page, sizes_of_tables
from ostraka.text import TokenDraw
from tests.cli.terminal import typed

SCHEMA = """
[smokes]
categories = ["no", "yes"]
[age]
edges = [0, 30, 60, 90]
whole = true
"""


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["smokes,age,who"]
    ages = enumerate(rng.integers(0, 90, 400))
    lines += [f"{'yes' if age > 60 else 'no'},{age},{row // 2}" for row, age in ages]
    (tmp_path / "private.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return tmp_path


def synth(*words, code=0):
    """What is printed, and in one line what is said, by a command that ends so."""
    got, out, err = typed("synth", *words)
    assert got == code, err
    return out, " ".join(err.split())


def run(folder, *options, code=0):
    people = () if "--person" in options else ("--rows-are-people",)
    tables = (folder / "private.csv", "--schema", folder / "schema.toml", "--out", folder / "run")
    return synth(*tables, "--yes", *people, *options, code=code)


def test_rows_generator_record_and_ledger_are_written(folder):
    record = json.loads(run(folder, "--target", "smokes", "--epsilon", "4", "--rows", "50", "--json")[0])
    assert record["n_rows"] == 50
    assert record["epsilon"] <= 4
    lines = (folder / "run" / "rows.csv").read_text().splitlines()
    assert lines[0] == "smokes,age"
    assert len(lines) == 51
    again = TableGenerator.from_json((folder / "run" / "generator.json").read_text())
    assert len(again.sample(7, random_state=0)["age"]) == 7
    assert again.result_.upper["epsilon"] == record["epsilon"]
    with Ledger(folder / "run" / "ledger.sqlite") as ledger:
        assert ledger.epsilon() == pytest.approx(record["epsilon"])


def test_a_plan_is_said_first_and_what_was_written_last(folder):
    where = folder / "run"
    words = ("table", folder / "private.csv", "--schema", folder / "schema.toml", "--out", where, "--yes")
    (folder / "private.csv").write_text((folder / "private.csv").read_text() + "no,old,0\nmaybe,7,0\n")
    _, out, err = typed("synth", *words, "--person", "who", "--epsilon", "4", "--rows", "1200")
    result = Result.from_json((where / "result.json").read_text())
    assert err.splitlines()[:6] == [
        "Plan",
        "private    private.csv: 402 rows",
        "protected  one person, of 200, added or removed",
        "columns    2 of the schema",
        "left out   who",
        "expected   epsilon at most 4 at delta 1e-05",
    ]
    for name in ("smokes", "age"):
        said = f"1 cells of column '{name}' are not in the schema, and count as other or missing"
        assert f"for the owner: {said}" in err
    people, rows = (result.settings[name] for name in ("n_people", "n_rows"))
    assert (people, rows) == (pytest.approx(200, abs=30), pytest.approx(402, abs=60))
    assert out.splitlines() == [
        f"1,200 rows of 2 columns: {where / 'rows.csv'}",
        f"private, with noise: {rows:,} rows of {people:,} people",
        f"counted, with noise: {sizes_of_tables(result.settings['tables'])} (result.json names them)",
        f"epsilon at most {at_most(result.upper['epsilon'])} at delta 1e-05, for one person",
        f"all releases from this table: {of_table(result.upper['table'])}",
        f"the copy beside the private rows, for the owner only: {where / 'report.html'}",
        f"the generator of more, at no further price: {where / 'generator.json'}",
    ]
    answers = TableGenerator.from_json((where / "generator.json").read_text()).query("age>=60, smokes")
    _, out, err = typed("synth", "query", where, "age>=60, smokes", "--confidence", "0.5")
    half = 0.6744897501960817 / 1.959963984540054  # of the interval of confidence 0.95
    cells = [
        [
            row.group[0],
            row.estimate,
            *(row.estimate + half * (end - row.estimate) for end in (row.low, row.high)),
        ]
        for row in answers.rows
    ]
    got = [line.split() for line in out.splitlines()]
    assert got == [
        ["smokes", "count", "low", "high"],
        *([group, *(f"{number:,.0f}" for number in numbers)] for group, *numbers in cells),
    ]
    assert err == (
        "from the noisy counts of these columns, with intervals for their noise; 50% of intervals hold. In "
        "persons.\n"
    )
    more = folder / "more.csv"
    assert typed("synth", "sample", where, "--rows", "1000", "--out", more).out == f"1,000 rows: {more}\n"


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ([], "no table of columns"),
        ([1], "1 columns"),
        ([1, 1, 2], "2 columns and 1 pairs of columns"),
        ([3] * 1200 + [2, 1], "1 columns, 1 pairs of columns and 1,200 triples of columns"),
    ],
)
def test_tables_that_were_counted_are_said_by_their_sizes(sizes, words):
    assert sizes_of_tables([["a"] * size for size in sizes]) == words


def test_a_larger_table_has_a_smaller_delta(folder, monkeypatch):
    monkeypatch.setattr("ostraka.core.check.release_delta", lambda typed, n_units: typed or 4e-4 / n_units)
    assert json.loads(run(folder, "--rows", "5", "--json")[0])["delta"] == pytest.approx(1e-6)


def test_a_generator_that_is_paid_for_is_kept_where_its_rows_are_too_many(folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("ostraka.synth.TableGenerator.sample", Mock(side_effect=OSError(28, "disk full")))
        run(folder, "--rows", "1e9", code=1)
    synth("sample", folder / "run", "--rows", "3", "--out", folder / "few.csv")
    kept = (folder / "run" / "generator.json").read_text()
    assert "going on with" in run(folder, "--rows", "3")[1]
    assert (folder / "run" / "generator.json").read_text() == kept
    assert json.loads((folder / "run" / "result.json").read_text())["upper"]["table"]["releases"] == 1


def test_rows_of_persons_are_written_in_order(folder):
    output, _ = run(folder, "--person", "who", "--order", "age", "--longest", "3", "--epsilon", "8")
    assert "for one person" in output
    assert "private, with noise: " in output
    lines = [line.split(",") for line in (folder / "run" / "rows.csv").read_text().splitlines()]
    assert lines[0] == ["who", "place", "smokes", "age"]  # age is of the schema
    assert [line[:2] for line in lines[1:3]] == [["1", "1"], ["1", "2"]]
    assert np.mean([line[1] == "2" for line in lines[1:]]) == pytest.approx(0.5, abs=0.1)
    synth("sample", folder / "run", "--rows", "3", "--out", folder / "more.csv")
    assert (folder / "more.csv").read_text().splitlines()[0] == "who,place,smokes,age"
    settings = json.loads((folder / "run" / "result.json").read_text())["settings"]
    assert (settings["longest"], settings["n_columns"], settings["unit"]) == (3, 2, "person")
    names = {name for names in settings["tables"] for name in names}
    assert names == {"smokes", "age", "number of rows", "next smokes", "next age", "rows that follow"}


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (("--order", "when"), {"longest": 20, "constant": (), "order": "when"}),
        (("--order", "age", "--longest", "2"), {"longest": 2, "constant": (), "order": "place"}),
        (
            ("--order", "when", "--constant", "smokes"),
            {"longest": 20, "constant": ("smokes",), "order": "when"},
        ),
    ],
)
def test_options_of_rows_in_order_are_those_of_the_generator(options, settings):
    how = dict(zip(options[::2], options[1::2], strict=True))
    request = _Request(
        None,
        "auto",
        "who",
        how["--order"],
        int(how["--longest"]) if "--longest" in how else None,
        (how["--constant"],) if "--constant" in how else (),
    )
    made = request.generator(Schema.from_dict(tomllib.loads(SCHEMA)), epsilon=3.0, delta=1e-6)
    got = {name: getattr(made, name) for name in settings}
    assert got == settings
    assert (made.person, made.epsilon, made.delta) == ("who", 3.0, 1e-6)


def test_a_schema_of_too_many_categories_is_refused_before_anything_is_charged(folder):
    many = ", ".join(f'"{k}"' for k in range(100_000))
    (folder / "schema.toml").write_text(f"[smokes]\ncategories = [{many}]\n")
    assert "'smokes' must have at most 10,000 codes" in run(folder, code=2)[1]
    assert not (folder / "run").exists()
    assert not (folder / "ostraka-ledgers").exists()


def test_rows_without_a_person_are_refused_before_anything_is_written(folder):
    with (folder / "private.csv").open("a") as file:
        file.write("no,40,\n")
    output = run(folder, "--person", "who", code=1)[1]
    assert "'who' (--person) is empty in some rows: every row must name" in output
    assert not (folder / "run").exists()


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--method", "gan"], 2, "must be one of auto"),
        (["--target", "income"], 2, "must have a column 'income'"),
        (["--person", "name"], 1, "no column 'name'"),
        (["--epsilon", "0"], 1, "epsilon must"),
        (["--epsilon", "1e-7"], 1, "epsilon must be larger"),
        (["--epsilon", "1e-7", "--person", "who"], 1, "epsilon must be larger"),
        (["--delta", "0.0025"], 2, "--delta: delta must be below 1 / 400 units"),
        (["--delta", "0.005", "--person", "who"], 2, "--delta: delta must be below 1 / 200 units"),
        (["--rows", "-1"], 2, "--rows must be a whole number"),
        (["--order", "age"], 2, "type --person COLUMN with it"),
        (["--person", "who", "--order", "age", "--target", "smokes"], 2, "without --target"),
        (["--person", "who", "--longest", "3"], 2, "are for --order COLUMN"),
        (["--person", "who", "--order", "age", "--constant", "town"], 2, "must have a column 'town'"),
        (["--person", "who", "--order", "day"], 1, "no column 'day'"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_charged(folder, options, code, words):
    assert words in run(folder, *options, code=code)[1]
    assert not (folder / "run").exists()


def test_a_folder_that_is_not_empty_is_not_overwritten(folder):
    (folder / "run").mkdir()
    (folder / "run" / "mine.txt").write_text("x")
    assert "type --out with another folder" in run(folder, code=2)[1]


def test_a_value_outside_the_schema_ends_nothing_and_is_counted_for_the_owner(folder):
    (folder / "private.csv").write_text("smokes,age,who\nsecretly,40,1\nyes,old,2\nyes,,3\n")
    _, output = run(folder)
    for name in ("smokes", "age"):
        assert f"for the owner: 1 cells of column {name!r} are not in the schema" in output
    assert "secretly" not in output


# --- the page ---


def test_the_page_shows_copy_and_private_rows_and_only_its_owner_may_read_it(folder):
    run(folder, "--target", "smokes", "--epsilon", "4")
    report = folder / "run" / "report.html"
    page = report.read_text()
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    for words in ("For the owner only", "half of the private rows", "60 to 90", "Nearest private rows"):
        assert words in page
    assert page.count('class="value"') == 2 + 3
    assert "<script" not in page


def test_the_page_has_each_number_of_the_comparison():
    curve = TokenDraw(clip=1.0, n_documents=8).curve().to_dict()
    settings = {"unit": "person", "relation": "add-or-remove", "n_rows": 1234, "n_people": 400}
    settings |= {"n_columns": 1, "target": "ill", "tables": [["a"], ["a", "b"]]}
    upper = {"epsilon": 0.98765, "delta": 1e-5, "curve": curve, "simulation": False}
    upper |= {"not_protected": ["the schema", "who"]}
    column = {"name": "a", "values": [f"v{k}" for k in range(12)], "apart": 0.1}
    column |= {"real": [0.5, 0.2, *[0.03] * 10], "copy": [0.4, 0.3, *[0.03] * 9, 0.0]}
    comparison = {
        "n_copy": 2000,
        "columns": [column],
        "tables": [{"n_columns": 2, "n_tables": 3, "of": 5, "copy": 0.25, "floor": 0.125}],
        "learned": {
            "original": {"accuracy": 0.9, "auc": 0.95},
            "copy": {"accuracy": 0.8, "auc": 0.85},
            "majority": 0.6,
            "n_test": 40,
        },
        "near": {"n_asked": 10, "n_among": 20, "copy": [0.1, 0.0, 0.9], "original": [0.0, 0.0, 1.0]},
    }
    result = Result(kind="synth", settings=settings, upper=upper)
    text = page(result, comparison, name="x<y.csv")
    cells = [
        " ".join(cell.split()) for cell in re.sub(r"<[^>]+>", "|", text[text.index("<body") :]).split("|")
    ]
    said = "|".join(filter(None, cells))
    for words in (
        "Synthetic table: x&lt;y.csv|",
        "|Epsilon, at most|0.988|Delta|1e-05 (1 in 100,000)|Protected unit|one person, added or removed|",
        "|Not protected|the schema; who|Rows of the copy|2,000|Private people, with noise|400|",
        "|Private rows, with noise|1,234|Columns|1|Counted, with noise|1 columns and 1 pairs of columns|",
        "|half of the private rows|0.900|0.950|the copy|0.800|0.850|nothing: always the largest class|0.600|",
        "|no column: identical|10.0%|0.0%|2 columns|90.0%|100.0%|10 rows of each kind, compared with 20 ",
        "|2|0.2500 apart|0.1250 apart|",
        "|a|0.100 apart|v0|50.0%|40.0%|v1|20.0%|30.0%|v2|3.0%|3.0%|",
        "|v9|3.0%|3.0%|and 2 more values",
    ):
        assert words in said
    widths = [float(width) for width in re.findall(r'style="width: ?([0-9.]+)%', text)]
    assert widths[:6] == [100.0, 80.0, 40.0, 60.0, 6.0, 6.0]
    nothing = comparison | {"near": None, "learned": None, "tables": []}
    plain = Result(
        kind="synth", settings={"unit": "row", "relation": "add-or-remove", "n_columns": 1}, upper=upper
    )
    text = page(plain, nothing, name="x")
    assert "No --target was named" in text
    assert "Private rows, with noise" not in text
    assert "Counted, with noise" not in text
    assert "too few rows, or one class only" in page(result, nothing, name="x")


def test_names_of_values_are_escaped(folder):
    hostile = SCHEMA.replace('["no", "yes"]', '["no", "yes", "<script>x</script>"]')
    (folder / "schema.toml").write_text(hostile)
    run(folder)
    page = (folder / "run" / "report.html").read_text()
    assert "<script" not in page
    assert "&lt;script" in page
    assert "No --target was named" in page


def test_three_rows_have_a_page_too(folder):
    (folder / "private.csv").write_text("smokes,age,who\nno,10,1\nyes,70,2\nno,20,3\n")
    run(folder, "--target", "smokes")
    assert "too few rows" in (folder / "run" / "report.html").read_text()


# --- questions, more rows, other methods, schemas ---


@pytest.mark.parametrize("method", ["particles", "forest", "kmeans", "dpgm", "evolution"])
def test_every_method_writes_rows_and_a_generator_that_can_be_asked(folder, method):
    output = run(folder, "--target", "smokes", "--epsilon", "4", "--method", method)[1]
    assert "generator fitted" in output
    lines = synth("query", folder / "run", "age>=60, smokes")[0].splitlines()
    assert lines[0].split() == ["smokes", "count", "low", "high"]
    assert [line.split()[0] for line in lines[1:]] == ["no", "yes"]
    answers = json.loads(synth("query", folder / "run" / "generator.json", "age", "--json")[0])
    assert len(answers["rows"]) == 3
    synth("sample", folder / "run", "--rows", "9", "--seed", "1", "--out", folder / "more.csv")
    assert len((folder / "more.csv").read_text().splitlines()) == 10
    synth("sample", folder / "run", "--out", folder / "more.csv", code=2)


def test_a_schema_is_written_from_a_public_table_and_read(folder):
    (folder / "known.toml").write_text("[age]\nrange = [0, 120]\n")
    table = folder / "private.csv"  # stands for a public one
    words = ("schema", table, "--out", folder / "made.toml", "--dictionary", folder / "known.toml")
    assert "look it over" in synth(*words)[0]
    schema = Schema.from_toml(folder / "made.toml")
    assert schema.columns[schema.place("age")].edges[-1] == 121
    assert schema.columns[schema.place("smokes")].categories == ("no", "yes")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["query", "nowhere.json", "age"], "is not a file"),
        (["query", "schema.toml", "age"], "must be JSON as TableGenerator.to_json writes it"),
        (["query", "run", "income"], "must have a column 'income'"),
    ],
)
def test_what_cannot_be_asked_is_said_in_a_sentence(folder, monkeypatch, arguments, words):
    monkeypatch.chdir(folder)
    if "run" in arguments:
        run(folder)
    assert words in synth(*arguments, code=2)[1]
