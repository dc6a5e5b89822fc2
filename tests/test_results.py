"""The tables of results are written by a command, from what commands printed."""

import json
import re

import pytest

from results import __main__ as results


@pytest.mark.parametrize("page", [results.README, results.PAGE], ids=lambda page: page.name)
def test_the_table_of_a_page_is_what_the_command_writes(page):
    text = page.read_text(encoding="utf-8")
    inside = text.partition(results.START)[2].partition(results.END)[0]
    assert inside.strip() == results.table(page).strip(), "run python -m results --only-write"


def test_the_readme_has_ten_rows_and_the_page_has_all():
    """Two lines of a table are its head."""
    sizes = {page: results.table(page).count("\n") - 2 for page in (results.README, results.PAGE)}
    assert sizes == {results.README: 10, results.PAGE: len(results.rows())}


def test_every_row_was_measured_by_the_command_that_it_names():
    measurements = results.kept()
    for row in results.rows():
        if "recorded" in row:
            assert row["figures"], row["name"]
            continue
        assert measurements[row["name"]]["command"] == row["command"]
        assert len(measurements[row["name"]]["runs"]) >= (1 if row.get("fixed", False) else 3)
        assert all(len(run) == len(row["patterns"]) for run in measurements[row["name"]]["runs"])


def test_every_command_names_a_module_that_is_there():
    for row in results.rows():
        module = re.match(r"python -m (\S+)( [a-z_]+)?", row["command"])
        if module is None:
            continue
        name, _, arguments = module[1].partition(".")
        part = arguments or (module[2] or "").strip()
        folder = results.README.parent / name
        assert (folder / f"{part}.py").exists() or (not part and (folder / "__main__.py").exists()), row[
            "command"
        ]


def test_figures_are_read_rounded_and_ranged():
    row = {"name": "x", "patterns": [r"a ([\d.,]+)"], "scale": 100, "format": ".1f"}
    assert results.read(row, "a 1,234.5 b") == [1234.5]
    assert results.figure(row, [[0.95], [0.951], [0.949]], 0) == "95.0 (94.9 to 95.1)"
    assert results.figure(row, [[0.95]], 0) == "95.0"
    with pytest.raises(ValueError, match="nothing printed matches"):
        results.read(row, "b 3")


def test_an_unknown_row_is_refused(capsys):
    assert results.main(["nothing"]) == 2
    assert "digits" in capsys.readouterr().err


def test_a_measurement_is_kept_with_its_date_commit_and_load(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "HERE", tmp_path / "results")
    results.HERE.mkdir()
    (results.HERE / "rows.toml").write_text(
        '[[row]]\nname = "x"\nwhat = "w"\ncommand = "python -c \'print(\\"a 2\\")\'"\n'
        'patterns = ["a (.)"]\nfigures = "{0}"\nrival = ""\n'
    )
    results.record(results.rows(), 3)
    measurement = json.loads((results.HERE / "measured.json").read_text())["x"]
    assert measurement["runs"] == [[2.0], [2.0], [2.0]]
    assert set(measurement) == {"command", "commit", "date", "load", "runs"}
    assert "| w | 2 |" in results.table(results.PAGE)
