"""The page of one person without a server or a run: what it decides, says, types and stops."""

import asyncio
import contextlib
import json
import signal
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from ostraka import console
from ostraka.data.task import Columns
from ostraka.report.page import most_detected, sentence
from ostraka.secure.server import Limits, Refused, Request
from ostraka.serve import ui
from ostraka.serve.ui import Outlook, Release, Workbench

HOST = b"127.0.0.1:80"


@pytest.fixture
def bench(tmp_path):
    workbench = Workbench(tmp_path / "bench", learn=(sys.executable, "-c"))
    workbench.link = workbench.opened(80)
    return workbench


def asked(bench, method, path, *, query=b"", body=b"", **headers):
    """Code and holder that the head of a request is given, and the request."""
    sent = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    if method == "POST":
        sent = {b"origin": b"http://" + HOST, b"content-type": b"application/json"} | sent
    request = Request(method=method, path=path, headers={b"host": HOST} | sent, query=query, body=body)
    admission = bench.admit(request)
    assert admission == (request.who is not None)
    return request.refused and request.refused.code, admission, request


def replied(bench, request):
    reply = asyncio.run(bench.reply(request))
    return reply.status, reply.body, dict(reply.more)


@pytest.fixture
def cookie(bench):
    key = bench.link.partition("?")[2].encode()
    code, admission, request = asked(bench, "GET", "/", query=key)
    status, _, more = replied(bench, request)
    assert (code, admission, status) == (None, False, 200)
    return more[b"set-cookie"].partition(b";")[0]


def test_a_page_takes_files_of_256_mebibytes_and_32_requests_at_once(bench):
    assert Workbench.limits == Limits(most_body=268_435_456, most_held=269_484_032, at_once=32)
    assert "up to 256 MB" in bench._served["/"][1].decode()
    assert bench.link.startswith("http://127.0.0.1:80/?key=")
    assert len(bench.link) == len("http://127.0.0.1:80/?key=") + 43


def test_a_folder_is_made_where_none_is_and_tables_that_were_named_are_looked_at_from_the_start(tmp_path):
    folder, looks = tmp_path / "a" / "b", []
    for private in (None, tmp_path / "x.csv", tmp_path / "x.csv"):
        workbench = Workbench(folder, private=private)
        workbench._look = looks.append
        asyncio.run(workbench.start())
        assert workbench._learn == ui.LEARN
    assert looks == [{}, {}]
    assert {path.name for path in folder.iterdir()} == {"tables", "runs"}


def test_who_may_ask_is_decided_by_the_head_alone(bench, cookie):
    def code(*request, **headers):
        return asked(bench, *request, **headers)[0]

    mine = {"cookie": cookie}
    assert code("GET", "/state", **mine) is None
    assert code("GET", "/state") == "forbidden"
    assert code("GET", "/state", cookie=b"a=b;" + cookie + b" ; c=d") is None
    assert code("GET", "/state", cookie=cookie + b"; " + cookie + b"x") is None  # one of them is right
    for wrong in (
        cookie + b"x",
        cookie.partition(b"=")[0] + b"=",
        b"ostraka-81=" + cookie.partition(b"=")[2],
    ):
        assert code("GET", "/state", cookie=wrong) == "forbidden"
    for host, expected in (
        (b"localhost:80", None),
        (b"127.0.0.1", "wrong_host"),
        (b"localhost:81", "wrong_host"),
    ):
        assert code("GET", "/state", host=host, **mine) == expected
    for site, state, start in (
        (b"same-origin", None, None), (b"none", None, None), (b"cross-site", "wrong_origin", None),
    ):  # fmt: skip
        assert code("GET", "/state", sec_fetch_site=site, **mine) == state
        assert code("GET", "/", sec_fetch_site=site, **mine) == start  # a link in a message leads there
        assert code("POST", "/stop", sec_fetch_site=site, **mine) == state
    assert code("GET", "/state", origin=b"http://" + HOST, **mine) is None
    assert code("GET", "/", origin=b"http://evil.example", **mine) == "wrong_origin"
    assert code("POST", "/stop", origin=b"http://localhost:80", **mine) == "wrong_origin"
    assert code("POST", "/", **mine) == "not_found"
    for path, expected in (
        ("/ui.js", None),
        ("/runs/001/x", None),
        ("/runs", "not_found"),
        ("/table", "not_found"),
    ):
        assert code("GET", path, **mine) == expected
    assert code("POST", "/stop", content_length=b"65536", **mine) is None
    assert code("POST", "/stop", content_length=b"65537", **mine) == "too_large"
    assert code("POST", "/stop", transfer_encoding=b"chunked", **mine) == "too_large"
    assert code("POST", "/stop", content_type=b"text/plain", **mine) == "no_json"
    assert code("POST", "/stop", content_type=b"application/json; charset=utf-8", **mine) is None
    for odd in (
        {"content_length": b"65537"},
        {"transfer_encoding": b"chunked"},
        {"content_type": b"text/csv"},
    ):
        assert code("POST", "/table", **odd, **mine) is None


def test_before_the_link_is_opened_no_cookie_counts_and_after_it_no_key(bench):
    empty = asked(bench, "GET", "/state", cookie=b"ostraka-80=")
    assert empty[:2] == ("forbidden", False)
    key = bench.link.partition("?")[2].encode()
    for query in (b"", b"key=", key + b"x", b"k" + key):
        code, admission, request = asked(bench, "GET", "/", query=query)
        assert (code, admission, replied(bench, request)[0]) == (None, False, 403)
    status, _, more = replied(bench, asked(bench, "GET", "/", query=b"a=b&" + key)[2])
    assert status == 200
    session = more[b"set-cookie"]
    assert session.startswith(b"ostraka-80=")
    assert session.endswith(b"; Path=/; HttpOnly; SameSite=Strict")
    assert len(session.partition(b";")[0]) == len(b"ostraka-80=") + 43
    assert replied(bench, asked(bench, "GET", "/", query=key)[2])[0] == 403
    assert replied(bench, asked(bench, "GET", "/", query=b"key=")[2])[0] == 403


def test_files_of_a_run_are_shown_or_kept_and_nothing_else_is_served(bench, cookie):
    run = bench.folder / "runs" / "001"
    run.mkdir()
    for name in ("report.html", "report-public.html", "student.skops", "other"):
        (run / name).write_text(name)
    (run / "ledger.sqlite").mkdir()

    def got(path):
        request = asked(bench, "GET", path, cookie=cookie)[2]
        return replied(bench, request)

    for name in ("report.html", "report-public.html"):
        status, body, more = got(f"/runs/001/{name}")
        assert (status, body) == (200, name.encode())
        policy = more.pop(b"content-security-policy")
        assert policy.startswith(b"default-src 'none'; style-src")
        assert set(more) == {
            b"referrer-policy",
            b"cross-origin-opener-policy",
            b"cross-origin-resource-policy",
        }
    status, body, more = got("/runs/001/student.skops")
    assert (status, body, len(more)) == (200, b"student.skops", 5)
    assert more[b"content-disposition"] == b'attachment; filename="student.skops"'
    for path in (
        "001/other",
        "001/ledger.sqlite",
        "001/privacy-label.json",
        "002/report.html",
        "1/report.html",
        "001",
    ):
        assert got(f"/runs/{path}")[0] == 404, path
    for path, kind in (("/ui.js", b"text/javascript"), ("/ui.css", b"text/css"), ("/", b"text/html")):
        request = asked(bench, "GET", path, cookie=cookie)[2]
        reply = asyncio.run(bench.reply(request))
        assert (reply.status, reply.kind) == (200, kind + b"; charset=utf-8")
        assert b"set-cookie" not in dict(reply.more)


def test_a_defect_is_a_failure_without_its_message(bench, cookie, monkeypatch, caplog):
    async def fails(*_):
        raise KeyError("canary")

    monkeypatch.setitem(ui.ROUTES, ("POST", "/stop"), fails)
    status, body, _ = replied(bench, asked(bench, "POST", "/stop", cookie=cookie)[2])
    assert (status, json.loads(body)["code"]) == (500, "failed")
    assert "unexpected KeyError in fails" in caplog.text
    assert "canary" not in caplog.text


def test_fields_of_a_message_are_known_and_each_of_its_type():
    kinds = {"word": str, "number": float, "flag": bool}
    for body in (b"", b"{}", b'{"word": "", "number": 1}', b'{"number": 0.5, "flag": false}'):
        assert ui._object(Request(body=body), **kinds) == json.loads(body or b"{}")
    for body in (
        *(b"[]", b"null", b"{", b'{"word": 1}', b'{"number": "1"}', b'{"number": true}', b'{"flag": 1}'),
        *(b'{"more": 1}', b'{"word": null}', b'{"word": "", "more": ""}', b"\xff"),
    ):
        with pytest.raises(Refused) as refused:
            ui._object(Request(body=body), **kinds)
        assert refused.value.reply.status == 400, body


# What is looked at


@pytest.fixture
def looked(bench, monkeypatch):
    """The looks of a workbench, and its forecasts; look(**fields) waits for one."""
    checks, outlooks = [], []
    report = SimpleNamespace(
        command="ostraka learn x --epsilon 1 --seed 2",
        findings=["a finding"],
        n_units=9,
        unit="row",
        groups=list,
        to_dict=lambda: {"n_rows": 9},
    )

    def check(private, **how):
        checks.append((private, how))
        if bench.fails:
            raise bench.fails
        return report

    class Noted:
        WAYS = Outlook.WAYS

        def __init__(self, *tables, **how):
            self.made, self.did = (tables, how), []
            outlooks.append(self)

        def run(self):
            self.did.append("ran")

        def stop(self):
            self.did.append("stopped")

        def to_dict(self):
            return {}

    def look(**fields):
        async def run():
            bench._look(fields)
            if bench._looking is not None:
                await bench._looking
            while bench._tasks:
                await asyncio.gather(*bench._tasks, return_exceptions=True)

        asyncio.run(run())

    monkeypatch.setattr(ui, "check", check)
    monkeypatch.setattr(ui, "Outlook", Noted)
    monkeypatch.setattr(ui, "candidates", lambda report: ("ill", "ward"))
    monkeypatch.setattr(ui, "declarations", lambda declared, findings: (declared, findings))
    bench.fails, bench.report = None, report
    return look, checks, outlooks


def test_what_was_said_of_columns_holds_until_something_else_is_said(bench, looked):
    look, checks, _ = looked
    look(label="ill")
    assert checks == []  # there is no table
    private = bench.tables["private"] = bench.folder / "a.csv"

    def declared(**fields):
        look(**fields)
        place, how = checks.pop()
        assert (place, how["public"]) == (private, bench.tables["public"])
        return how["columns"], how["epsilon"]

    assert declared() == (Columns(label="", person=None, rows_are_people=False), 1.0)
    assert declared(label="ill", epsilon=2.5) == (Columns(label="ill"), 2.5)
    assert declared(rows_are_people=True)[0] == Columns(label="ill", rows_are_people=True)
    assert declared(label="ward") == (Columns(label="ward", rows_are_people=True), 1.0)
    assert declared(person="who")[0] == Columns(label="ward", person="who")
    assert declared(rows_are_people=True)[0] == Columns(label="ward", person="who")
    assert declared(person="")[0] == Columns(label="ward")
    assert declared(person="", rows_are_people=True)[0] == Columns(label="ward", rows_are_people=True)
    assert declared(label="")[0] == Columns(label="", rows_are_people=True)


def test_the_state_of_a_page_is_what_was_looked_at_and_said(bench, looked):
    look, _, _ = looked
    empty = bench.state()
    assert empty == {
        "tables": {"private": None, "public": None},
        "busy": "",
        "error": "",
        "check": None,
        "steps": [],
        "outlook": None,
        "release": None,
        "runs": [],
    }
    bench.tables["private"] = bench.folder / "a.csv"
    finding = SimpleNamespace(weight="must", sentence=lambda *, cells: f"words {cells}", hint="do")
    bench.report.groups = lambda: [("To mend", [finding])]
    look(label="ill")
    state = bench.state()
    assert state["tables"] == {"private": "a.csv", "public": None}
    assert state["check"] == {
        "n_rows": 9,
        "groups": [
            {"heading": "To mend", "findings": [{"weight": "must", "text": "words True", "hint": "do"}]}
        ],
        "candidates": ["ill", "ward"],
        "label": "ill",
        "person": None,
        "rows_are_people": False,
        "holdout": False,
        "ready": False,
    }
    prices = [0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
    assert [step["epsilon"] for step in state["steps"]] == prices
    for step in state["steps"]:
        assert step["detected"] == most_detected({"epsilon": step["epsilon"], "delta": step["delta"]})
        assert step["words"] == sentence(epsilon=step["epsilon"], delta=step["delta"], unit="row")
    look(person="who", holdout=True)
    fields_of_check = {
        "label": "ill",
        "person": "who",
        "rows_are_people": False,
        "holdout": True,
        "ready": True,
    }
    assert fields_of_check.items() <= bench.state()["check"].items()
    assert bench.state()["outlook"] == {}
    bench._declared = None
    fields_of_check = {"label": "", "person": None, "rows_are_people": False, "ready": False}
    assert fields_of_check.items() <= bench.state()["check"].items()


def test_a_forecast_begins_once_everything_is_said_and_ends_with_the_next_look(bench, looked):
    look, _, outlooks = looked
    assert bench._open_question() == "drop a table of private rows first"
    private = bench.tables["private"] = bench.folder / "a.csv"
    for fields, question in (
        ({}, "say which column is to be learned"),
        ({"label": "ill"}, "say who is protected"),
        (
            {"rows_are_people": True},
            "drop public rows, or give up the privacy of a fifth of the private ones",
        ),
    ):
        look(**fields)
        assert (bench._open_question(), bench._busy, bench._error, outlooks) == (question, "", "", [])
    look(holdout=True)
    assert bench._open_question() == ""
    columns = (Columns(label="ill", rows_are_people=True), ["a finding"])
    assert outlooks[0].made == ((private, None), {"columns": columns, "holdout": 0.2})
    public = bench.tables["public"] = bench.folder / "b.csv"
    look(person="who")
    assert [outlook.did for outlook in outlooks] == [["ran", "stopped"], ["ran"]]
    assert outlooks[1].made == (
        (private, public),
        {"columns": (Columns(label="ill", person="who"), ["a finding"]), "holdout": None},
    )
    assert not bench._holdout  # public rows are there
    bench.fails = FileNotFoundError(2, "No such file", "a.csv")
    look()
    assert (bench._error, bench._busy, bench._outlook) == ("a.csv: No such file", "", None)
    bench.fails, bench.report.command = None, ""
    look()
    assert (bench._error, bench._outlook) == ("", None)
    assert bench._open_question() == "mend the file as the findings say"
    assert outlooks[1].did == ["ran", "stopped"]
    bench.tables["public"] = None
    look()
    assert bench._open_question().startswith("drop public rows")
    look(holdout=True)
    assert bench._holdout
    look(label="ward")
    assert bench._holdout
    look(holdout=False)
    assert not bench._holdout


def test_a_plan_is_forgotten_by_the_next_look_and_a_run_is_not(bench, looked):
    look, _, _ = looked
    bench.tables["private"] = bench.folder / "a.csv"
    for status, stays in (("planned", False), ("running", True), ("done", True), ("refused", True)):
        bench._release = Release("001", (), status=status)
        look()
        assert (bench._release is not None) == stays
    bench._release = None
    look()


def test_a_failure_of_what_runs_beside_is_told_and_an_end_is_none(bench, caplog):
    async def run(work, *, cancel=False):
        task = bench._do(work)
        assert bench._tasks == {task}
        await asyncio.sleep(0)
        if cancel:
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0)
        assert bench._tasks == set()

    async def fails():
        raise PermissionError(13, "Permission denied", "x.csv")

    asyncio.run(run(asyncio.sleep(0)))
    asyncio.run(run(asyncio.sleep(60), cancel=True))
    assert (bench._error, caplog.records) == ("", [])
    asyncio.run(run(fails()))
    assert bench._error == "x.csv: Permission denied"
    assert "unexpected PermissionError in fails" in caplog.text


@pytest.mark.usefixtures("looked")
def test_a_dropped_file_is_a_copy_for_its_owner_alone(bench):
    def dropped(role, name, body=b"a,b"):
        query = f"role={role}&name={name}".encode()
        return asyncio.run(bench._table(Request(query=query, body=body)))

    bench._check, bench._declared = bench.report, Columns(label="ill")
    with pytest.raises(Refused) as refused:
        dropped("public", "b.csv", b"")
    assert (refused.value.status, refused.value.code) == (400, "empty")
    assert json.loads(refused.value.reply.body)["error"] == "the file is empty"
    for role in ("public", "private"):
        for suffix in ("csv", "TSV", "txt", "xlsx", "parquet", "pq"):
            bench._check, bench._declared = None, Columns(label="ill")
            before = bench.tables["private"]
            if before is None:
                bench._look = lambda fields: None
            dropped(role, f"a b.{suffix}")
            path = bench.tables[role]
            assert (path.name, path.read_bytes(), path.parent.parent) == (
                f"a b.{suffix}", b"a,b", bench.folder / "tables",
            )  # fmt: skip
            assert len(path.parent.name) == 16
            assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
            assert (bench._declared is None) == (role == "private")


# What is typed and spent


def release(bench, code, lines=(), **changes):
    """A release, and what is typed for it: the command says these lines and ends with this code."""
    typed, one = [], Release("001", ("learn", "x"), **changes)

    async def type_(release, words):
        typed.append((release.name, words))
        if words[0] != "report":
            release.lines += lines
        return code

    bench._type = type_
    return one, typed


def test_a_plan_is_what_ends_because_nobody_was_asked(bench):
    unasked = f"ostraka: {console.UNASKED}."
    for code, lines, expected, kept in (
        (console.USAGE, ["plan", unasked], "planned", ["plan"]),
        (console.USAGE, [unasked, "other"], "refused", [unasked, "other"]),
        (console.USAGE, [], "refused", []),
        (console.FAILED, ["plan", unasked], "refused", ["plan", unasked]),
        (console.DONE, ["plan"], "refused", ["plan"]),
    ):
        one, typed = release(bench, code, lines)
        asyncio.run(bench._plan(one))
        assert (one.status, one.lines, typed) == (expected, kept, [("001", ("learn", "x"))])
        assert len(one.ticket) == (22 if expected == "planned" else 0)
    one, _ = release(bench, console.FAILED, status="stopped")
    asyncio.run(bench._plan(one))
    assert one.status == "stopped"


def test_what_was_spent_has_a_report_and_what_was_refused_leaves_no_run(bench):
    place, words = bench.folder / "runs" / "001", bench.folder / "runs" / "001.json"
    for code, status, reported in (
        (console.DONE, "done", True),
        (console.NOTHING_LEARNED, "done", True),
        (console.FAILED, "failed", False),
        (console.BUDGET, "failed", False),
    ):
        for is_there in (True, False):
            words.touch()
            if is_there:
                place.mkdir(exist_ok=True)
            one, typed = release(bench, code, status="running")
            asyncio.run(bench._spend(one))
            report = [("001", ("report", str(place), "--public"))] if reported else []
            assert (one.status, typed) == (status, [("001", ("learn", "x", "--yes")), *report])
            assert words.exists() == is_there
            with contextlib.suppress(FileNotFoundError):
                place.rmdir()
    one, typed = release(bench, console.DONE, status="stopped")
    asyncio.run(bench._spend(one))
    assert (one.status, len(typed)) == ("stopped", 1)
    asyncio.run(bench._spend(one))  # of which nothing is left


def test_a_ticket_spends_one_plan_once(bench):
    def spent(body):
        return asyncio.run(bench._spent(Request(body=body)))

    one, _ = release(bench, console.FAILED, ["no"], status="planned", ticket="t-1")
    one.lines.append("plan")
    for body in (b"{}", b'{"ticket": ""}', b'{"ticket": "t-2"}', b'{"ticket": "\\u00e9"}'):
        for present in (None, one):
            bench._release = present
            with pytest.raises(Refused) as refused:
                spent(body)
            assert (refused.value.status, refused.value.code) == (409, "spent_or_old")
    bench._release = one
    (bench.folder / "runs" / "001").mkdir()
    state = json.loads(spent(b'{"ticket": "t-1"}').body)["release"]
    assert (state["status"], state["lines"], state["ticket"]) == ("running", [], "")
    assert state["command"] == "ostraka learn x"
    path = bench.folder / "runs" / "001.json"
    assert (json.loads(path.read_text()), path.stat().st_mode & 0o777) == (["learn", "x"], 0o600)
    for body in (b'{"ticket": "t-1"}', b'{"ticket": ""}', b"{}"):
        with pytest.raises(Refused):
            spent(body)


SAYS = """
import os, sys, time
print(os.environ["PYTHONUNBUFFERED"], os.getsid(0) == os.getpid(), repr(sys.stdin.read()))
for n in range(450):
    print("line", n, file=sys.stderr)
sys.stderr.buffer.write(b"\\xff  \\n" + sys.argv[1].encode() + b"\\n")
sys.exit(7)
"""


def test_a_command_is_typed_in_a_session_of_its_own_and_the_last_lines_are_kept(bench, monkeypatch):
    one = Release("001", ())
    assert asyncio.run(bench._type(one, (SAYS, "a word"))) == 7
    assert len(one.lines) == 401
    assert one.lines[:1] + one.lines[-4:] == ["line 52", "line 449", "\ufffd", "a word", "1 True ''"]
    assert (one.process, one.seconds > 0) == (None, True)
    assert one.seconds < 600

    async def full(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", full)
    one = Release("001", ())
    assert asyncio.run(bench._type(one, ("x",))) == console.FAILED
    assert one.lines == ["Cannot allocate memory"]


def test_a_release_shows_the_seconds_until_now_or_until_its_end(monkeypatch):
    monkeypatch.setattr(ui.time, "monotonic", lambda: 107.5)
    for status, seconds in (
        ("planning", 7.5),
        ("running", 7.5),
        ("planned", 2.0),
        ("done", 2.0),
        ("stopped", 2.0),
    ):
        one = Release("001", ("learn", "a b"), status=status, began=100.0, seconds=2.0)
        assert one.to_dict()["seconds"] == seconds
        assert one.to_dict()["command"] == "ostraka learn 'a b'"
    assert Release("001", (), status="refused").to_dict()["seconds"] == 0.0


def test_a_run_is_stopped_as_ctrl_c_does_and_killed_after_twenty_seconds(bench, monkeypatch):
    done, waits = [], []

    async def wait():
        return None

    async def wait_for(awaited, seconds):
        waits.append(seconds)
        await awaited
        if late:
            raise TimeoutError

    def send(number):
        done.append(number)
        if gone:
            raise ProcessLookupError

    monkeypatch.setattr(asyncio, "wait_for", wait_for)
    process = SimpleNamespace(send_signal=send, wait=wait, kill=lambda: done.append("killed"))
    for is_late, is_gone, expected in (
        (False, False, [signal.SIGINT]),
        (True, False, [signal.SIGINT, "killed"]),
        (False, True, [signal.SIGINT]),
    ):
        late, gone = is_late, is_gone
        bench._release = Release("001", (), status="running", process=process)
        state = json.loads(asyncio.run(bench._stopped(Request())).body)
        assert (state["release"]["status"], done) == ("stopped", expected)
        done.clear()
    assert waits == [20.0, 20.0]
    for idle in (None, Release("001", (), status="planned")):
        bench._release = idle
        asyncio.run(bench._stop())
        assert (done, idle and idle.status) == ([], idle and "planned")


def test_the_end_stops_forecasts_and_runs_and_waits_for_both(bench):
    did = []

    async def work():
        await asyncio.sleep(0.01)
        did.append("ended")
        raise KeyError("canary")

    async def close():
        task = bench._do(work())
        await bench.close()
        return task

    bench._outlook = SimpleNamespace(stop=lambda: did.append("stopped"))
    asyncio.run(close())
    assert did == ["stopped", "ended"]
    bench._outlook = None
    asyncio.run(close())
    assert did[2:] == ["ended"]


def test_a_look_is_waited_for_and_a_release_is_not(bench):
    async def rest(status=None):
        bench._release = None if status is None else Release("001", (), status=status)
        bench._looking = asyncio.ensure_future(asyncio.sleep(0.01))
        await bench._rest()
        return bench._looking.done()

    for status in (None, "planned", "done", "stopped", "refused", "failed"):
        assert asyncio.run(rest(status))
    for status in ("planning", "running"):
        with pytest.raises(Refused) as refused:
            asyncio.run(rest(status))
        assert (refused.value.status, refused.value.code) == (409, "busy")
        assert json.loads(refused.value.reply.body)["error"] == "a run is going on: stop it, or wait for it"


@pytest.fixture
def planned(bench, looked, monkeypatch):
    """What is typed for a plan: planned(**choice), of a table that was dropped or named."""
    look, _, _ = looked

    def plan(**choice):
        async def run():
            await bench._planned(Request(body=json.dumps(choice).encode()))
            await asyncio.gather(*bench._tasks)

        _, typed = release(bench, console.FAILED)
        asyncio.run(run())
        assert typed == [(bench._release.name, bench._release.words)]
        return bench._release.name, list(bench._release.words)

    bench.tables |= {"private": bench.folder / "tables" / "x" / "a.csv", "public": bench.folder / "b.csv"}
    look(label="ill", rows_are_people=True)
    return plan


def test_what_is_planned_is_the_command_of_the_check_at_this_price_for_a_new_folder(bench, planned):
    runs, ledgers = bench.folder / "runs", ["--ledger", str(bench.folder / "ostraka-ledgers")]
    price = ["learn", "x", "--seed", "2", "--epsilon", "0.5", "--way", "counts", "--out"]
    assert planned(way="counts", epsilon=0.5) == ("001", [*price, str(runs / "001"), *ledgers])
    for name in ("001", "009"):
        (runs / f"{name}.json").write_text('["learn", "as before"]')
    assert planned(way="counts", epsilon=0.5) == ("010", [*price, str(runs / "010"), *ledgers])
    bench.report.command = "ostraka learn x --seed 2"
    bench.tables["private"] = bench.folder / "a.csv"
    assert planned(way="counts", epsilon=0.5) == ("010", [*price, str(runs / "010")])
    bench._ledger = bench.folder / "books"
    assert planned(way="counts", epsilon=0.5)[1][-2:] == ["--ledger", str(bench.folder / "books")]
    bench.tables["private"] = bench.folder / "tables" / "x" / "a.csv"
    assert planned(way="counts", epsilon=0.5)[1][-2:] == ["--ledger", str(bench.folder / "books")]
    assert planned(run="009") == ("009", ["learn", "as before"])
    for epsilon in (0.1, 0.25, 0.5, 1, 2, 4, 8):
        for way in ("filter", "counts", "rounds", "argmax"):
            words = planned(way=way, epsilon=epsilon)[1]
            assert words[words.index("--epsilon") + 1 : words.index("--out")] == [
                f"{epsilon:g}",
                "--way",
                way,
            ]
    for choice, status, code in (
        ({"way": "counts"}, 400, "bad_epsilon"),
        ({"epsilon": 1.0}, 400, "bad_way"),
        ({"run": "9"}, 404, "not_found"),
        ({"run": "011"}, 404, "not_found"),
    ):
        with pytest.raises(Refused) as refused:
            planned(**choice)
        assert (refused.value.status, refused.value.code) == (status, code)
    bench._check = None
    with pytest.raises(Refused) as refused:
        planned(way="counts", epsilon=0.5)
    body = json.loads(refused.value.reply.body)
    assert (refused.value.status, body["code"], body["error"]) == (
        409, "not_ready", "drop a table of private rows first",
    )  # fmt: skip


def test_runs_are_listed_by_number_with_their_files_once_they_are_finished(bench):
    runs = bench.folder / "runs"
    for name in ("002", "001"):
        (runs / f"{name}.json").touch()
    sizes = {"result.json": 0, "student.skops": 1, "report.html": 1024, "ledger.sqlite": 1025, "other": 1}
    (runs / "001").mkdir()
    for name, size in sizes.items():
        (runs / "001" / name).write_bytes(b"x" * size)
    listed, unfinished = bench.state()["runs"]
    assert unfinished == {"name": "002", "finished": False, "claim": "", "files": []}
    kilobytes = {file["name"]: file["kilobytes"] for file in listed["files"]}
    assert kilobytes == {"student.skops": 1, "ledger.sqlite": 2, "report.html": 1, "result.json": 0}
    assert (listed["finished"], listed["claim"]) == (True, "")
    (runs / "001" / "result.json").unlink()
    assert bench.state()["runs"][0]["files"] == []


# Forecasts


class Plain:
    """A model of the way that is asked for, as far as forecasts look at it."""

    def __init__(self, **how):
        self.how = how


@pytest.fixture
def forecasts(monkeypatch):
    """Forecasts of tables that are given, and what they were made of; forecast(private, public) runs them."""
    tables_and_worlds, tables, names = [], {}, {}

    def table(private, public, *, columns, holdout, seed):
        assert seed == 0
        tables_and_worlds.append(("table", private, public, columns, holdout))
        if isinstance(tables[private], Exception):
            raise tables[private]
        return tables[private]

    def worlds(rows, labels, facts, *, seed):
        assert seed == 0
        tables_and_worlds.append(("worlds", rows.tolist(), labels.tolist(), facts))
        return "worlds"

    def forecast(model, given, *, unit, seed):
        assert (given, unit, seed) == ("worlds", "unit", 0)
        return model.how

    def read(path, *, public, form):
        assert public
        return SimpleNamespace(names=names[path])

    for name, stand_in in (
        ("proxy_worlds", worlds),
        ("forecast", forecast),
        ("PATEClassifier", Plain),
        ("read", read),
        ("made_up", lambda X, n, rng: np.array([7, *rng.integers(0, 100, 2)])),
        ("cells_of", lambda shape: ("cells", shape)),
        ("way_of_rows", lambda X: "argmax"),
    ):
        monkeypatch.setattr(ui, name, stand_in)
    monkeypatch.setattr(ui.tasks, "tables", table)
    monkeypatch.setattr(ui.tasks, "public_form", lambda path, form: form)

    def run(private, public=None, **how):
        usual = {"columns": Columns(label="ill", person="who", drop=["a", "b"]), "holdout": 0.2}
        one = Outlook(private, public, **usual | how)
        one.run()
        return one

    tables["p"] = SimpleNamespace(
        n_units=1000, n_classes=2, X_public=np.zeros((3, 1)), groups=None, image_shape="shape",
        shape=SimpleNamespace(unit="unit"),
    )  # fmt: skip
    return run, tables_and_worlds, tables, names


def test_every_way_is_forecast_at_every_price_from_the_middle_of_the_slider(forecasts):
    run, tables_and_worlds, tables, _ = forecasts
    one = run("p")
    assert (one.done, one._default) == (True, "argmax")
    assert tables_and_worlds[0] == ("table", "p", None, one._columns, 0.2)
    prices = [1.0, 0.5, 2.0, 0.25, 4.0, 8.0, 0.1]
    labels = [7, *np.random.default_rng(0).integers(0, 100, 2)]
    for (_, rows, codes, facts), epsilon in zip(tables_and_worlds[1:], prices, strict=True):
        assert (rows, codes) == ([[0.0]] * 3, labels)
        assert (facts.n_units, facts.n_classes, facts.n_public, facts.grouped) == (1000, 2, 3, False)
        assert (facts.epsilon, facts.delta) == (epsilon, 1e-5)
    assert list(one._forecasts) == ["filter", "counts", "rounds", "argmax"]
    for way, by_price in one._forecasts.items():
        cells = ("cells", "shape") if way in {"counts", "argmax"} else None
        assert list(by_price) == prices
        assert all(
            how == {"way": way, "epsilon": price, "delta": 1e-5, "cells": cells}
            for price, how in by_price.items()
        )
    assert one._basis.startswith("public rows with made-up labels stand for the private rows, so that ways")
    tables["p"].groups = np.zeros(3)
    assert list(run("p")._forecasts) == ["filter", "counts", "argmax"]
    assert tables_and_worlds[-1][3].grouped


def test_true_labels_of_public_rows_stand_for_private_ones_if_they_are_many_and_of_as_many_classes(forecasts):
    run, tables_and_worlds, tables, names = forecasts
    names["q"] = ["ill", "b"]

    def hold_public_rows(n, labels):
        half = n // 2
        y = np.resize(np.array(labels), n)
        X = np.arange(n)[:, None]
        tables["q"] = SimpleNamespace(
            X_private=X[:half], X_test=X[half:], y_private=y[:half], y_test=y[half:]
        )

    for n, labels, is_true in (
        (120, ["no", "yes"], True), (119, ["no", "yes"], False), (120, ["no", "yes", "more"], False),
        (121, ["no"], False), (300, ["b", "a"], True),
    ):  # fmt: skip
        tables_and_worlds.clear()
        hold_public_rows(n, labels)
        one = run("p", "q", holdout=None)
        columns = Columns(label="ill", rows_are_people=True, drop=["b"])
        assert tables_and_worlds[:2] == [
            ("table", "p", "q", one._columns, None),
            ("table", "q", None, columns, 0.5),
        ]
        assert (one._basis == "public rows with their true labels stand for the private rows") == is_true
        _, rows, codes, _ = tables_and_worlds[2]
        if is_true:
            assert rows == [[float(k)] for k in range(n)]
            assert codes == [sorted(labels).index(labels[k % len(labels)]) for k in range(n)]
        else:
            assert codes[0] == 7
    tables["q"] = ValueError("too few")
    assert "made-up" in run("p", "q")._basis
    names["q"] = ["b"]
    tables_and_worlds.clear()
    assert "made-up" in run("p", "q")._basis
    assert [what for what, *_ in tables_and_worlds].count("table") == 1


def test_a_stopped_forecast_keeps_what_it_has(forecasts, monkeypatch):
    run, _, _, _ = forecasts
    before = ui.forecast

    def third(model, *given, **how):
        if (model.how["way"], model.how["epsilon"]) == ("rounds", 1.0):
            outlook[0].stop()
        return before(model, *given, **how)

    outlook, make = [], Outlook.__init__

    def noted(self, *given, **how):
        outlook.append(self)
        make(self, *given, **how)

    monkeypatch.setattr(ui, "forecast", third)
    monkeypatch.setattr(Outlook, "__init__", noted)
    one = run("p")
    assert {way: list(prices) for way, prices in one._forecasts.items()} == {
        "filter": [1.0], "counts": [1.0], "rounds": [1.0],
    }  # fmt: skip
    assert not one.done
