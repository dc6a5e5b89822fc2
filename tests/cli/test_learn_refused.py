"""Bad options and tables, which ostraka learn refuses in one sentence before anything is paid."""

import ast
import gzip
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.cli.learning import CANARY, COMMON, charges, csv, learn, person, rows
from tests.cli.terminal import typed
from tests.golden import blocks


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (("--epsilon", "-1"), 2, "epsilon must be finite and > 0"),
        (("--sigma", "-4"), 2, "sigma must be finite and > 0"),
        (("--screen", "20", "0"), 2, "sigma must be finite and > 0"),
        (("--delta", "0.01"), 2, "delta must be below 1 / 300 units"),
        (("--answers", "0"), 2, "--answers must be an integer >= 1"),
        (("--answers", "201"), 2, "at most the"),
        (("--epsilon", "0.001"), 3, "use a larger epsilon"),
        (("--epsilon", "0.1", "--sigma", "5"), 3, "or a larger epsilon"),
        (("--teachers", "301"), 2, "301 teachers need at least 301 units, but there are 300"),
        (
            ("--label", "income"),
            1,
            "no column 'income' (--label); the first line names 4 columns, and none so",
        ),
        (("--classes", "well"), 1, "holds one class only"),
        (("--public", "nowhere.csv"), 1, "nowhere.csv: No such file"),
        (("--relation", "zero-out"), 2, "--relation zero-out is for --way counts, rounds and filter"),
        (("--relation", "add-or-remove"), 2, "'add-or-remove' is not one of"),
        (("--engine", "pigeons"), 2, "'pigeons' is not one of"),
    ],
)
def test_wrong_options_are_told_before_anything_is_paid(folder, change, code, words):
    got, out, err = person(*change)
    assert (got, out) == (code, "")
    assert words in err
    assert not (folder / "run" / "ledger.sqlite").exists() or not charges(folder)


_TABLE = "learn private.csv --label ill --public labelled.parquet --drop who"
COMMANDS = [
    "learn --label ill",
    "learn --target age --bounds 0:1",
    "learn --public labelled.parquet",
    "learn --person who",
    "learn --holdout 0.2",
    "learn private.csv",
    "learn private.csv --label ill",
    "learn private.csv --label ill --target age",
    "learn private.csv --target age --public labelled.parquet",
    "learn private.csv --label ill --bounds 0:1 --public labelled.parquet",
    "learn private.csv --target age --bounds 0:1 --classes a,b",
    "learn private.csv --target age --bounds 0:1 --same a=b",
    *(f"learn private.csv --target age --bounds {bounds} --public labelled.parquet"
      for bounds in ("1", "1:0", "1:1", "0:inf", "nan:1", "a:b")),
    *(f"learn private.csv --target age --bounds 0:99 --public labelled.parquet {option}"
      for option in ("--way filter", "--answers 3", "--teacher trees", "--keep-teachers")),
    "learn private.csv --label ill --public labelled.parquet --holdout 0.2",
    *(f"{_TABLE} {option}" for option in (
        "--epsilon 0", "--epsilon inf", "--delta 0", "--delta 1", "--holdout 0", "--holdout 1",
        "--auto --sigma 3", "--auto --way counts", "--way filter --answers 3", "--way rounds --screen 3 4",
        "--way rounds --person who", "--way filter --student boosting", "--way rounds --student boosting",
        "--student fixmatch --teachers 5", "--relation zero-out --way argmax", "--relation zero-out --auto",
        "--relation zero-out --teachers 9", "--teacher prompts", "--model smollm2", "--shots 2",
        "--key-env K",
        "--teacher prompts --model x --keep-teachers", "--classes 3..3", "--classes 5..3",
        "--classes 0..1000",
        "--same ja", "--same =Ja", "--same ja=,", "--seed -1", "--shots 0", "--skip-lines -1", "--decimal x",
        "--delimiter ab", "--encoding klingon", "--out private.csv", "--dictionary nowhere.json",
    )),
    "learn --teacher prompts --model x",
    "learn . --label ill --public labelled.parquet --way auto",
    "learn . --label ill --holdout 0.2",
    "learn . --target age --bounds 0:99 --public labelled.parquet",
    "labels private.csv",
    *(f"labels private.csv --label ill {option}" for option in (
        "--epsilon 41", "--epsilon 0", "--delta 1", "--public labelled.parquet --holdout 0.2", "--teachers 3",
        "--method response --sigma 2 --screen 1 2", "--epochs 0", "--method pate-fm --teachers 0",
        "--public nowhere.csv", "--holdout 1.5",
    )),
    "check private.csv --label ill --epsilon 0",
    "check private.csv --label ill --public labelled.parquet --holdout 0.2",
    "check private.csv --label ill --report private.csv",
    "check nowhere.csv",
    "check private.csv --label ill --target age",
]  # fmt: skip


def test_options_that_contradict_each_other_are_refused_with_what_to_type(folder):
    lines = []
    for command in COMMANDS:
        code, out, err = typed(*command.split(), *(["--yes"] if command[:5] != "check" else []))
        lines += [f"$ ostraka {command}", *out.splitlines(), *err.splitlines(), f"exit code {code}"]
    words = "\n".join(lines).replace(str(folder), "HERE")
    blocks.hold(
        Path(blocks.__file__).with_name("refusals.txt"), "learn, labels and check", blocks.normal_form(words)
    )
    assert not (folder / "run" / "ledger.sqlite").exists()


def changed(column: str, *cells: str) -> str:
    """The private table with other cells in a column, from data row 8 on."""
    table = rows(600, seed=0)
    table[column][7 : 7 + len(cells)] = cells
    return csv(table) + "\n"


GOOD = csv(rows(600, seed=0)) + "\n"
BROKEN = {
    "no person": changed("who", ""),
    "one class": GOOD.replace("well", "sick"),
    "no header": GOOD.partition("\n")[2],
    "binary": b'who,age,smokes,ill\n\x00\x81"' + CANARY.encode() + b"\x81\n",
    "empty": "",
    "no rows": GOOD.partition("\n")[0] + "\n",
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("one class", "column 'ill' (--label) holds one class only"),
        ("no person", "column 'who' (--person) is empty in some rows"),
        ("no header", "does not look like column names"),
        ("binary", "column 'ill' (--label) holds one class only"),
        ("empty", "private.csv is empty"),
        ("no rows", "has column names but no rows"),
    ],
)
def test_bad_tables_are_told_in_one_sentence(folder, change, words):
    content = BROKEN[change]
    (folder / "private.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    code, out, err = person()
    assert (code, out) == (1, "")
    assert words in err
    assert err.splitlines()[0].startswith("reading private.csv")
    assert err.count("\n") == 2
    assert not (folder / "run").exists()


@pytest.mark.parametrize(
    ("private", "words"),
    [
        (changed("age", CANARY), "1 cells of column 'age'"),
        (changed("ill", f"well,{CANARY}"), "1 cells of column 'ill'"),
    ],
)
def test_a_private_cell_that_cannot_be_read_ends_nothing_and_is_counted_for_the_owner(folder, private, words):
    (folder / "private.csv").write_text(private)
    code, _, err = learn("private.csv", *COMMON, "--public", "public.parquet", "--drop", "who")
    assert code in {0, 4}, err
    assert ("for the owner: " + words in " ".join(err.split())) if words else "for the owner: " not in err
    record = json.loads((folder / "run" / "result.json").read_text())
    assert list(record["owner"].get("unread", {}).values()) == ([1] if words else [])
    assert "unread" not in json.dumps({**record, "owner": None})


def test_options_about_a_table_need_a_table(folder):
    assert learn("--label", "ill")[0] == 2
    code, _, err = learn("private.csv")
    assert code == 2
    assert "type --label" in err


def test_an_unexpected_error_shows_no_value(folder, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        float(CANARY)

    monkeypatch.setattr("ostraka.pate.PATEClassifier.fit", fail)
    code, _, err = person(unexpected=True)
    assert code == 1
    assert "unexpected ValueError" in err


def test_help_and_a_missing_file_are_said_before_anything_slow_is_loaded(tmp_path):
    # what makes it slow is what it loads; a clock would judge the machine
    code = """
import sys, ostraka.cli
try:
    ostraka.cli.main(sys.argv[1:])
finally:
    print(sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""
    for words, code_of_exit, output in (
        (["--help"], 0, ""),
        (["learn", "nowhere.csv", "--label", "ill", "--holdout", "0.2"], 1, "nowhere.csv: No such file or"),
    ):
        command = [sys.executable, "-c", code, *words]
        run = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
        assert (run.returncode, output in run.stderr) == (code_of_exit, True), run.stderr
        loaded = set(ast.literal_eval(run.stderr.strip().splitlines()[-1]))
        assert "click" in loaded
        assert not {"numpy", "scipy", "sklearn", "jinja2", "pyarrow", "skops", "numba", "matplotlib"} & loaded


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz"])
@pytest.mark.parametrize(
    ("options", "n_units"),
    [(("--public", "labelled.parquet"), 600), (("--holdout", "0.5"), 300)],
)
def test_a_delta_that_no_table_of_this_size_allows_is_refused_before_a_row_is_read(
    folder, monkeypatch, options, n_units, ending
):
    table = rows(600, seed=0)
    table.pop("who")
    if ending == "parquet":
        parquet.write_table(pa.table(table), folder / "private.parquet")
    else:  # a title, blank lines and no end of the last line
        lines = csv(table).replace("\n", "\n\n", 3).replace("\n", "\r\n").rstrip()
        options = (*options, "--skip-lines", "1")
        content = f"made in 2026\n{lines}".encode()
        (folder / f"private.{ending}").write_bytes(gzip.compress(content) if ending == "csv.gz" else content)
    monkeypatch.setattr("ostraka.data.task.tables", lambda *_, **__: pytest.fail("the rows were read"))
    code, out, err = learn(f"private.{ending}", *COMMON, *options, "--delta", "0.01")
    assert (code, out) == (2, "")
    assert f"delta must be below 1 / {n_units} units" in err
