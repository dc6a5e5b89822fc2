"""One table, one budget: whatever is released from a table is charged to its ledger, and said."""

import contextlib
import json
import math
import shutil

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import ostraka
from ostraka import Budget, GNMax, Ledger, PATEClassifier
from ostraka.core.mechanisms.counts import NoisyCounts
from ostraka.data import budgets
from ostraka.data.budgets import FOLDER, TableLedger, Tables
from tests.cli.learning import learn, tables
from tests.cli.terminal import typed

pytestmark = pytest.mark.usefixtures("same_draws")

COUNTS = ("--label", "ill", "--public", "labelled.parquet")
PEOPLE = (*COUNTS, "--person", "who")
ROWS = (*COUNTS, "--rows-are-people", "--drop", "who")


def total(folder, run: str) -> dict:
    return json.loads((folder / run / "result.json").read_text())["upper"]["table"]


@pytest.fixture(scope="module")
def twice(tmp_path_factory, with_same_draws):
    """Two releases from a table under two names, and what the second one said before it spent."""
    folder = tables(tmp_path_factory.mktemp("twice"))
    with contextlib.chdir(folder), with_same_draws():
        code, _, first = learn("private.csv", *PEOPLE, "--out", "one")
        assert code in {0, 4}, first
        (folder / "elsewhere").mkdir()
        lines = (folder / "private.csv").read_text().splitlines()
        # another name, another order, a row less: the same people
        (folder / "copy.csv").write_text("\n".join([lines[0], *lines[:1:-1]]) + "\n")
        code, out, second = learn("copy.csv", *PEOPLE, "--epsilon", "0.5", "--out", "two")
        assert code in {0, 4}, second
    return folder, first, second, out


def test_a_second_release_is_told_what_the_first_one_cost(twice):
    _, first, second, out = twice
    assert "released before" not in first
    assert "released before from this table" in second
    assert "epsilon at most 1 at delta 1e-05 (1 in 100,000), by 1 release. This release comes on" in second
    assert second.index("released before") < second.index("features of rows")
    assert "All releases from this table" in out


def test_the_total_is_that_of_both_mechanisms_composed(twice):
    folder, *_ = twice
    curves = []
    for run in ("one", "two"):
        with Ledger(folder / run / "ledger.sqlite", read_only=True) as ledger:
            curves.append(ledger.spent())
    sum_of_both = total(folder, "two")
    assert sum_of_both["epsilon"] == pytest.approx((curves[0] + curves[1]).epsilon(1e-5), rel=1e-9)
    assert (sum_of_both["releases"], sum_of_both["others"], sum_of_both["delta"]) == (2, 0, 1e-5)
    assert total(folder, "one")["releases"] == 1
    assert "2 releases" in (folder / "two" / "report.html").read_text()
    label = json.loads((folder / "two" / "privacy-label.json").read_text())
    assert label["epsilon"] <= 0.5 < label["table"]["epsilon"]


def test_all_tables_are_listed_in_a_folder_of_the_owners_that_holds_no_name(twice, monkeypatch):
    folder, *_ = twice
    monkeypatch.chdir(folder)
    for words in (["ledger"], ["ledger", "tables", FOLDER]):
        code, output, _ = typed(*words)
        assert code == 0
        assert output.startswith("private.csv: one person: epsilon at most ")
        assert output.strip().endswith("by 2 releases")
    (entry,) = json.loads(typed("ledger", "tables", FOLDER, "--json").out)
    assert entry["releases"] == 2
    assert (folder / FOLDER).stat().st_mode & 0o077 == 0
    assert [path for path in (folder / FOLDER).iterdir() if b"canary" in path.read_bytes()] == []


def test_other_people_in_the_same_folder_are_another_table(twice, tmp_path, monkeypatch):
    folder, *_ = twice
    shutil.copytree(folder, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    lines = (folder / "private.csv").read_text().replace("canary7391-", "other-")
    (tmp_path / "copy" / "others.csv").write_text(lines)
    code, _, err = learn("others.csv", *PEOPLE, "--out", "three")
    assert code in {0, 4}
    # the rows differ by the name in each line: neither people nor rows are known
    assert "released before" not in err
    assert total(tmp_path / "copy", "three")["releases"] == 1


def test_a_release_that_protects_rows_promises_people_nothing(folder):
    assert learn("private.csv", *ROWS, "--out", "rows")[0] in {0, 4}
    code, _, err = learn("private.csv", *PEOPLE, "--out", "people")
    assert code in {0, 4}
    assert "and 1 more under another promise" in err
    assert total(folder, "people")["others"] == 1
    code, _, err = learn("private.csv", *ROWS, "--out", "more")
    # what protects people protects rows, by basic composition of two ledgers
    sum_of_both = total(folder, "more")
    assert (sum_of_both["releases"], sum_of_both["others"]) == (3, 0)
    assert sum_of_both["delta"] == pytest.approx(2e-5)


def charge(account, sigma: float, unit: str, run: str) -> float:
    mechanism = GNMax(sigma=sigma)
    account.charge(mechanism, uses=1, unit=unit, simulation=False, key=f"{run}/1", delta=1e-6)
    return float(mechanism.curve().epsilon(1e-6))


def test_a_unit_that_is_left_out_counts_twice_for_one_that_is_replaced(tmp_path):
    account = Tables(tmp_path / "kept").account(None, rows=np.arange(40.0).reshape(20, 2))
    epsilon = charge(account, 40.0, "row (zero-out)", "a")
    account.close()
    spending = account.spent("row")
    assert spending.epsilon == pytest.approx(2 * epsilon)
    assert spending.delta == pytest.approx((1 + math.exp(epsilon)) * 1e-6)
    assert account.spent("row (zero-out)").epsilon == pytest.approx(epsilon)
    assert account.spent("row (add-or-remove)").others == 1  # not known to be covered
    assert account.spent("person").others == 1


def test_a_key_that_was_charged_costs_nothing_and_a_run_may_be_left_out(tmp_path):
    account = Tables(tmp_path / "kept").account(None, rows=np.arange(40.0).reshape(20, 2))
    epsilons = [charge(account, sigma, "row", run) for sigma, run in ((40.0, "a"), (40.0, "a"), (50.0, "b"))]
    account.close()
    assert account.spent("row").releases == 2
    assert account.spent("row", but="a").releases == 1
    assert account.spent("row").epsilon > epsilons[0]


def test_votes_and_counts_of_one_table_add_by_basic_composition(tmp_path):
    account = Tables(tmp_path / "kept").account(None, rows=np.arange(40.0).reshape(20, 2))
    votes, counts = GNMax(sigma=40.0), NoisyCounts(sigma=30.0, l2=1.0)
    for run, mechanism in (("a", votes), ("b", counts), ("c", votes)):
        account.charge(mechanism, uses=1, unit="row", simulation=False, key=f"{run}/1", delta=1e-6)
    account.close()
    account.charge(counts, uses=1, unit="row", simulation=False, key="b/1", delta=1e-6)  # known already
    account.close()
    spent = account.spent("row")
    assert spent.epsilon == pytest.approx((2 * votes.curve()).epsilon(1e-6) + counts.curve().epsilon(1e-6))
    assert (spent.releases, spent.others, spent.delta) == (3, 0, pytest.approx(2e-6))
    assert account.units() == ["row"]


def test_the_table_is_charged_before_the_run_and_a_refused_run_charges_neither(tmp_path):
    account = Tables(tmp_path / "kept").account(None, rows=np.arange(40.0).reshape(20, 2))
    budget = Budget(epsilon=0.3, delta=1e-6, adaptive=False)
    with TableLedger(":memory:", budget=budget, account=account, run="a") as ledger:
        ledger.charge(GNMax(sigma=40.0), uses=1, unit="row", simulation=False, key="q")
        with pytest.raises(ostraka.BudgetExceeded):
            ledger.charge(GNMax(sigma=1.0), uses=1, unit="row", simulation=False, key="r")
    assert account.spent("row").epsilon == pytest.approx(GNMax(sigma=40.0).curve().epsilon(1e-6))


def test_rows_in_memory_have_a_budget_too(tmp_path):
    rng = np.random.default_rng(0)
    X, public = rng.normal(size=(1500, 4)), rng.normal(size=(300, 4))
    y = (X[:, 0] > 0).astype(int)
    (tmp_path / "kept").mkdir()
    results = [
        PATEClassifier(way="counts", epsilon=1.0, ledger=tmp_path / "kept", random_state=seed)
        .fit(X[rng.permutation(1500)] if seed else X, y, X_public=public)
        .result_
        for seed in (0, 1)
    ]
    assert [result.upper["table"]["releases"] for result in results] == [1, 2]
    assert results[1].upper["epsilon"] <= 1 < results[1].upper["table"]["epsilon"] < 2


def test_a_table_is_known_by_digests_that_an_earlier_version_wrote(tmp_path):
    rng = np.random.default_rng(0)
    table = pa.table({"x": rng.normal(size=300), "k": rng.integers(0, 9, 300), "t": ["a", None, "c"] * 100})
    parquet.write_table(table, tmp_path / "one.parquet")
    parquet.write_table(table.slice(20), tmp_path / "moved.parquet", row_group_size=50)
    parquet.write_table(table.set_column(0, "x", table["k"]), tmp_path / "other.parquet")
    tables = Tables(tmp_path / "kept")
    number = tables.account(tmp_path / "one.parquet").number
    path = tables.folder / f"{number}.json"
    of_before = json.loads(path.read_text())
    digests = budgets._file_digests(tmp_path / "one.parquet", tables._key(), version=1)
    assert of_before.pop("digests") == 2
    of_before["rows"] = [int(digest) for digest in np.sort(np.concatenate([*digests]))]
    path.write_text(json.dumps(of_before))
    assert Tables(tables.folder).known(tmp_path / "other.parquet") is None
    assert Tables(tables.folder).account(tmp_path / "moved.parquet").number == number
    assert json.loads(path.read_text())["digests"] == 2
    assert Tables(tables.folder).account(tmp_path / "other.parquet").number != number


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_spent(folder):
    (folder / "file").write_text("")
    code, _, err = learn("private.csv", *PEOPLE, "--ledger", "file")
    assert code == 1
    assert "type --ledger with a folder that can be written" in err
    assert not (folder / "run").exists()
