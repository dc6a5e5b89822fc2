"""A run's folder: gone on with under the same plan, never overwritten, never half-written."""

import hmac
import json
from types import SimpleNamespace

import click
import pytest

from ostraka import cli
from ostraka.core.result import Result
from ostraka.report import folder as _folder

PLAN = {"epsilon": 2.0, "label": "ill"}


def test_a_new_or_empty_folder_is_used_and_gone_on_with(tmp_path):
    run = tmp_path / "deep" / "run"
    assert [_folder.open_run(run, PLAN, tables={}) for _ in range(2)] == [False, True]
    run.with_name("empty").mkdir()
    assert _folder.open_run(run.with_name("empty"), PLAN, tables={}) is False


def test_other_settings_and_tables_are_refused_by_name_and_a_finished_run_is_not_overwritten(tmp_path):
    (tmp_path / "a").write_text("one")
    (tmp_path / "b").write_text("two")
    run, tables = tmp_path / "run", {"private": tmp_path / "a", "public": None}
    _folder.open_run(run, PLAN, tables=tables)
    assert _folder.open_run(run, PLAN, tables=tables)
    with pytest.raises(click.UsageError, match="with other epsilon, person: type the command that began it"):
        _folder.open_run(run, {**PLAN, "epsilon": 3.0, "person": "who"}, tables=tables)
    with pytest.raises(click.UsageError, match="with other private: type"):
        _folder.open_run(run, PLAN, tables={"private": tmp_path / "b", "public": None})
    _folder.write(run / _folder.RESULT, Result(kind="learn").to_json())
    with pytest.raises(click.UsageError, match="type --out with another folder"):
        _folder.open_run(run, PLAN, tables=tables)


def test_somebody_elses_folder_is_left_alone(tmp_path):
    (tmp_path / "thesis.doc").write_text("x")
    with pytest.raises(click.UsageError, match="not empty and not a run"):
        _folder.open_run(tmp_path, PLAN, tables={})
    with pytest.raises(click.UsageError, match="not empty and not a run"):
        _folder.open_run(tmp_path / "thesis.doc", PLAN, tables={})
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.doc"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    target = tmp_path / "x"
    _folder.write(target, "old")

    def fail(path):
        path.write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        _folder.write(target, fail)
    assert target.read_text() == "old"
    with target.open() as reader:  # whoever reads meanwhile has the old file, whole
        _folder.write(target, b"new")
        assert reader.read() == "old"
    assert target.read_text() == "new"


def test_a_record_that_is_not_there_yet_is_said_to_be(tmp_path):
    with pytest.raises(ValueError, match="type the folder of a finished run"):
        _folder.load(tmp_path)
    _folder.open_run(tmp_path, PLAN, tables={})
    with pytest.raises(ValueError, match="type the command that began it"):
        _folder.load(tmp_path)


def test_reports_are_made_from_the_record_alone(tmp_path):
    record = Result(
        kind="learn",
        upper={"epsilon": 1.0, "delta": 1e-5},
        series={"epsilon": [0.5, 1.0]},
        owner={"epsilon_these_votes": 0.7654, "consensus": [0.5, 0.9]},
    )
    page = _folder.write_reports(tmp_path, record)
    assert page.name == "report.html"
    assert "0.766" in page.read_text()
    assert "<svg" in page.read_text()
    public = _folder.write_reports(tmp_path, record, public=True)
    assert public.name == "report-public.html"
    assert "0.766" not in public.read_text()
    assert "Consensus" not in public.read_text()
    assert json.loads((tmp_path / _folder.LABEL).read_text())["epsilon"] == 1.0


@pytest.mark.parametrize(
    "change",
    [
        {"upper": None},
        {"upper": {"epsilon": "x", "delta": []}},
        {"settings": [1]},
        {"utility": {"student": {"a": None}}},
        {"notes": 7},
        {"owner": [1]},
        "[" * 100_000,
        "\0",
    ],
)
def test_a_hostile_record_is_refused_with_a_sentence(tmp_path, capfd, change):
    upper = {"epsilon": 3.6, "delta": 1e-4, "horizon": "200 answers", "simulation": False}
    sound = json.loads(Result(kind="learn", upper=upper, utility={"student": 0.9}).to_json())
    text = change if isinstance(change, str) else json.dumps({**sound, **change})
    (tmp_path / _folder.RESULT).write_text(text)
    with pytest.raises(SystemExit) as ending:
        cli.main(["report", str(tmp_path)])
    assert ending.value.code == 1
    refusal = capfd.readouterr().err
    assert "unexpected" not in refusal
    assert _folder.RESULT in refusal


def test_what_is_in_a_folder_is_named_for_anybody_and_for_the_owner(tmp_path):
    names = ["result.json", "ledger.sqlite", "privacy-label.json", "report-public.html", "plan.json"]
    assert _folder.contents(tmp_path) == ("", "")
    (tmp_path / "teachers").mkdir()
    assert _folder.contents(tmp_path) == ("", "teachers/")
    for name in names:
        (tmp_path / name).touch()
    public, owners = _folder.contents(tmp_path)
    assert public == "ledger.sqlite, privacy-label.json and report-public.html"
    assert owners == "plan.json, result.json and teachers/"


def test_what_tables_hold_is_known_by_a_digest_under_the_secret_of_the_folder(tmp_path):
    run, table, parts = tmp_path / "run", tmp_path / "table.csv", tmp_path / "parts"
    table.write_bytes(b"who,ill\n" * 200_000)  # more than one block is read
    (parts / "deeper").mkdir(parents=True)
    for name in ("b", "a"):
        (parts / name).write_text(name)
    _folder.open_run(run, PLAN, tables={"private": table, "parts": parts, "public": None})
    secret = (run / "ledger.sqlite.secret").read_bytes()

    def digest(content: bytes) -> str:
        return hmac.digest(secret, content, "sha256").hex()

    listed = [["a", digest(b"a")], ["b", digest(b"b")]]  # files alone, in the order of their names
    assert json.loads((run / "plan.json").read_text()) == {
        **PLAN,
        "private": digest(table.read_bytes()),
        "parts": digest(json.dumps(listed).encode()),
        "public": None,
    }
    assert len(secret) == 32
    assert _folder.name_of(run) == _folder.begun(run) == digest(b"name of the run")[:16]
    assert _folder.begun(tmp_path) is None
    assert len(_folder.name_of(tmp_path)) == 16  # of a run whose name is wanted before its plan is written
    assert len((tmp_path / "ledger.sqlite.secret").read_bytes()) == 32
    modes = {path.name: path.stat().st_mode & 0o777 for path in run.iterdir()}
    assert modes == {"plan.json": 0o600, "ledger.sqlite.secret": 0o600}
    (run / "plan.json").rename(run / ".plan.json.new")  # interrupted before it was written: taken again
    assert _folder.open_run(run, PLAN, tables={}) is False


def test_what_may_be_passed_on_can_be_read_by_others_and_nothing_else(tmp_path):
    for name in (*_folder.FOR_ANYBODY, "report.html", "result.json"):
        _folder.write(tmp_path / name, "x")
    shared = {path.name for path in tmp_path.iterdir() if path.stat().st_mode & 0o044}
    assert shared == {
        *("student.skops", "student.onnx", "model-card.md", "labels.parquet", "ledger.sqlite"),
        *("privacy-label.json", "report-public.html"),
    }


@pytest.mark.parametrize(("going_on", "charged"), [(False, 0), (False, 1), (True, 0), (True, 1)])
def test_a_folder_is_forgotten_where_nothing_was_charged_and_it_is_new(tmp_path, going_on, charged):
    for other in (False, True):
        run = tmp_path / f"run{other}"
        _folder.open_run(run, PLAN, tables={"private": None})
        (run / "manifest.json").touch()
        (run / "ledger.sqlite").touch()
        if other:
            (run / "mine.txt").touch()
        before = {path.name for path in run.iterdir()}
        ledger = SimpleNamespace(count=lambda: charged)
        with pytest.raises(ValueError, match="no"), _folder.unless_refused(run, ledger, going_on=going_on):
            raise ValueError("no")
        left = {path.name for path in run.iterdir()} if run.exists() else set()
        assert left == (before if going_on or charged else {"mine.txt"} if other else set())
        assert run.exists() is (going_on or charged > 0 or other)
        with pytest.raises(KeyError), _folder.unless_refused(run, ledger, going_on=False):
            raise KeyError  # no refusal: what is there stays


def test_a_plan_of_another_version_and_a_finished_run_are_told_apart(tmp_path):
    _folder.open_run(tmp_path, {"format": 1}, tables={})
    with pytest.raises(click.UsageError, match="an unfinished run of another version of ostraka"):
        _folder.open_run(tmp_path, {"format": 2}, tables={})
    (tmp_path / "result.json").touch()
    pages = r", or 'ostraka report .*' to make its pages again$"
    for label, words in ((False, "with another folder$"), (True, pages)):
        if label:
            (tmp_path / "privacy-label.json").touch()
        with pytest.raises(click.UsageError, match=words) as refused:
            _folder.require_place(tmp_path)
        assert ("pages again" in refused.value.message) is label
    with pytest.raises(ValueError, match=r"result\.json holds no record: "):
        _folder.load(tmp_path)
