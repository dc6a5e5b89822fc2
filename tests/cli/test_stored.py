"""A folder of Parquet files is learned from where the files lie, as one file of the same rows is."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from ostraka import Ledger
from ostraka.data import units
from ostraka.data.parquet import ParquetRows
from tests.cli.learning import COMMON, interrupt_at, learn, rows

N = 600


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The private rows in one file, and in a folder of two; public rows with labels."""
    monkeypatch.chdir(tmp_path)
    private = pa.table(rows(N, seed=0))
    private = private.append_column("born", pa.array(np.arange(N).astype("datetime64[D]")))
    public = pa.table(rows(200, seed=1)).drop_columns("who")
    public = public.append_column("born", pa.array(np.arange(3, 203).astype("datetime64[D]")))
    parquet.write_table(private, tmp_path / "private.parquet")
    parquet.write_table(public, tmp_path / "public.parquet")
    (tmp_path / "private").mkdir()
    parquet.write_table(private.slice(0, 250), tmp_path / "private" / "2025.parquet", row_group_size=90)
    parquet.write_table(private.slice(250), tmp_path / "private" / "2026.parquet", row_group_size=200)
    return tmp_path


def spy(monkeypatch, kind, name):
    """The calls of a method."""
    calls, plain = [], getattr(kind, name)
    monkeypatch.setattr(kind, name, lambda self, *options: calls.append(name) or plain(self, *options))
    return calls


WAYS = {
    "counts": ("--person", "who"),
    "argmax": ("--person", "who", "--teachers", "40", "--answers", "20", "--sigma", "20", "--jobs", "1"),
    "filter": ("--person", "who"),
    "rounds": ("--drop", "who"),
}


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(method, marks=[pytest.mark.slow] if method in {"filter", "rounds"} else [])
        for method in WAYS
    ],
)
def test_a_folder_and_a_large_file_read_in_parts_give_what_one_file_gives(
    place, with_same_draws, monkeypatch, method
):
    private = parquet.read_table(place / "private.parquet")
    parquet.write_table(private, place / "large.parquet", row_group_size=170)
    csv.write_csv(private, place / "large.csv")
    options = ("--label", "ill", "--epsilon", "3", "--seed", "1", *WAYS[method], "--public", "public.parquet")

    def learned(table, *, in_parts):
        with with_same_draws(), monkeypatch.context() as spied:
            if in_parts:
                for name, size in (("_MOST_CELLS", 0), ("_MOST_BYTES", 0), ("_PART", 3000)):
                    spied.setattr(f"ostraka.data.task.{name}", size)
                spied.setattr("ostraka.voters.rows._KEPT", 0)
            readings = spy(spied, ParquetRows, "blocks")
            code, _, err = learn(table, *options, "--way", method, "--out", f"run of {table}")
        assert code in {0, 4}, err
        assert bool(readings) == in_parts
        run = place / f"run of {table}"
        found = json.loads((run / "result.json").read_text())
        del found["upper"]["table"]  # the second release from this table adds to the first
        files = [run / name for name in ("manifest.json",) if (run / name).exists()]
        return found, parquet.read_table(run / "labels.parquet"), [path.read_text() for path in files]

    whole, labels, files = learned("private.parquet", in_parts=False)
    for table in ("private", "large.parquet", "large.csv"):
        parts_record, others, other_files = learned(table, in_parts=True)
        assert others.equals(labels), table
        assert other_files == files, table
        for part in ("upper", "utility"):
            assert parts_record[part] == whole[part], table
        for record in (parts_record, whole):
            record["owner"].pop("seconds", None)
            record["owner"].get("utility", {}).pop("non_private", None)  # files are not gathered to train it
        assert parts_record["owner"] == whole["owner"], table


def test_what_is_wrong_with_one_large_file_is_found_in_its_first_rows(place, monkeypatch):
    monkeypatch.setattr("ostraka.data.task._MOST_CELLS", 0)
    code, _, err = learn("private.parquet", "--label", "ill", "--public", "public.parquet", "--way", "counts")
    assert code == 1
    assert "column 'who'" in " ".join(err.split())
    assert "--person who" in " ".join(err.split())


def test_a_fit_that_was_begun_in_memory_goes_on_there_and_pays_nothing_twice(place, monkeypatch):
    command = ("private.parquet", *COMMON, "--drop", "who", "--public", "public.parquet", "--jobs", "1")
    monkeypatch.setattr(units, "LATEST", 3)
    monkeypatch.setattr(units.partition, "__kwdefaults__", {**units.partition.__kwdefaults__, "version": 3})
    with monkeypatch.context() as broken:
        interrupt_at(broken, "answers", 1)
        assert learn(*command)[0] == 130
    assert (place / "run" / "manifest.json").read_text().startswith('{"version": 3')
    before = Ledger(place / "run" / "ledger.sqlite", read_only=True)
    keys = {entry.key for entry in before.scan()}
    before.close()
    monkeypatch.setattr("ostraka.data.task._MOST_CELLS", 0)
    code, _, err = learn(*command)
    assert code in {0, 4}, err
    with Ledger(place / "run" / "ledger.sqlite", read_only=True) as ledger:
        after = [entry.key for entry in ledger.scan()]
    assert keys
    assert len(after) == len(set(after))
    assert {key.partition("/")[0] for key in after} == {key.partition("/")[0] for key in keys}


def test_an_interrupted_run_goes_on_with_the_same_files_only(place, monkeypatch):
    command = ("private", *COMMON, "--drop", "who", "--public", "public.parquet", "--jobs", "1")
    (place / "private" / "more.csv").write_text("not read")
    with monkeypatch.context() as broken:
        interrupt_at(broken, "answers", 1)
        assert learn(*command)[0] == 130
    file = place / "private" / "2026.parquet"
    content = file.read_bytes()
    parquet.write_table(parquet.read_table(file).slice(1), file)
    code, _, err = learn(*command)
    assert code == 2
    assert "unfinished run with other private" in " ".join(err.split())
    file.write_bytes(content)
    code, _, err = learn(*command)
    assert code in {0, 4}, err
    assert "going on with run" in err
    assert "holds files which are not Parquet and are left out, such as more.csv" in " ".join(err.split())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--public", "public.parquet", "--way", "auto"), "type --way filter, counts, rounds or argmax"),
        (("--holdout", "0.2", "--teachers", "40"), "type --public FILE instead of --holdout"),
    ],
)
def test_what_needs_the_rows_here_is_refused_at_once(options, words, place):
    code, _, err = learn("private", "--label", "ill", "--drop", "who", *options)
    assert code == 2
    assert words in " ".join(err.replace("│", " ").split())
    assert not (place / "run").exists()


def test_a_missing_number_is_read_and_a_missing_column_is_said_with_its_file(place):
    command = ("private", *COMMON, "--drop", "who", "--public", "public.parquet", "--jobs", "1")
    file = place / "private" / "2026.parquet"
    whole = parquet.read_table(file)
    age = whole["age"].to_pylist()
    age[300] = None
    parquet.write_table(whole.set_column(1, "age", pa.array(age)), file, row_group_size=200)
    code, _, err = learn(*command)
    assert code in {0, 4}, err
    parquet.write_table(whole.drop_columns("smokes"), file)
    code, _, err = learn(*command, "--out", "other")
    assert code == 1
    assert "2026.parquet must have the columns of" in " ".join(err.split())


def test_files_without_rows_and_public_rows_that_are_private_ones_are_refused(place):
    command = ("private", *COMMON, "--drop", "who", "--public", "public.parquet", "--jobs", "1")
    copies = parquet.read_table(place / "private" / "2025.parquet").slice(0, 100)
    parquet.write_table(copies, place / "public.parquet")
    code, _, err = learn(*command)
    assert (code, "are private rows, too" in " ".join(err.split())) == (1, True)
    for file in (place / "private").glob("*.parquet"):
        parquet.write_table(parquet.read_table(file).slice(0, 0), file)
    code, _, err = learn(*command)
    assert (code, "has Parquet files without rows" in " ".join(err.split())) == (1, True)
