"""``ostraka ui``: who may talk to the page, what a file may be called, and that a plan is spent once."""

import json
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path

import pytest

from ostraka.data.budgets import Tables
from ostraka.secure.server import Limits
from ostraka.serve.ui import LEARN, ROUTES, Outlook
from tests.golden import blocks
from tests.serve.workbench import OWNER, Bench, link_of, visits

RECORD = Path(blocks.__file__).with_name("workbench.txt")


@pytest.fixture(scope="module")
def quiet():
    """No forecasts: they have tests of their own."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Outlook, "run", lambda self: setattr(self, "done", True))
        yield patched


@pytest.fixture(scope="module")
def bench(tmp_path_factory, quiet):
    """A page with two tables about which everything is said."""
    folder = tmp_path_factory.mktemp("ui")
    quiet.setenv("STAND_IN_LOG", str(folder / "log"))
    workbench = Bench(folder)
    workbench.first = workbench.open()
    workbench.drop("private", "visits.csv", visits(1500))
    workbench.drop("public", "others.csv", visits(600, seed=1))
    workbench.say("/check", OWNER)
    workbench.wait(lambda state: state["check"] and state["check"]["ready"])
    yield workbench
    workbench.close()


def refused(reply):
    status, _, body = reply
    return status, json.loads(body)["code"]


def test_the_link_works_once_and_gives_a_cookie_that_scripts_do_not_see(bench):
    assert re.search(r"HttpOnly; SameSite=Strict$", bench.first["set-cookie"])
    assert refused(bench.ask("GET", link_of(bench), without=("Cookie",))) == (403, "forbidden")
    assert bench.ask("GET", link_of(bench))[0] == 200  # the browser that opened it loads it again
    assert "set-cookie" not in {name.lower() for name in bench.ask("GET", "/")[1]}


MESSAGES = [path for method, path in ROUTES if method == "POST"]


def test_without_the_cookie_nothing_is_served_or_read(bench):
    before = bench.state()
    for method, path in [*ROUTES, ("GET", "/ui.js"), ("GET", "/runs/001/student.skops")]:
        # a body of a gigabyte is announced and never sent: the refusal comes all the same
        length = {"Content-Length": str(1 << 27)} if method == "POST" else {}
        for cookie in ("", "ostraka-1=x", f"ostraka-{bench.port}=wrong"):  # none, another port's, a wrong one
            reply = bench.ask(method, path, headers={"Cookie": cookie} | length)
            assert refused(reply) == (403, "forbidden"), (path, cookie)
    assert bench.state() == before


HOSTS = ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1"]
HOSTS += ["127.0.0.1.evil.example:{port}", "[::1]:{port}"]


def test_another_name_of_this_machine_is_refused(bench):
    """DNS rebinding: the page of a stranger's name that leads here."""
    for host in HOSTS:
        name = host.format(port=bench.port)
        for method, path in (("GET", "/"), ("GET", "/state"), ("POST", "/spend"), ("POST", "/table")):
            headers = {"Host": name, **({"Origin": f"http://{name}"} if method == "POST" else {})}
            assert refused(bench.ask(method, path, headers=headers)) == (421, "wrong_host"), (host, path)


def test_a_key_is_not_used_up_by_another_name(tmp_path, quiet):
    workbench = Bench(tmp_path)
    stranger = workbench.ask("GET", link_of(workbench), headers={"Host": f"evil.example:{workbench.port}"})
    assert refused(stranger) == (421, "wrong_host")
    assert (
        refused(workbench.ask("GET", "/?key="))
        == refused(workbench.ask("GET", "/?key=%C3%A9"))
        == (403, "forbidden")
    )
    workbench.open()
    workbench.close()


def test_a_message_from_another_page_is_refused(bench):
    before = bench.state()
    others = ["http://evil.example", "null", f"https://{bench.host}", "http://127.0.0.1:1", ""]
    for path in MESSAGES:
        for headers in (*({"Origin": origin} for origin in others), {"Sec-Fetch-Site": "cross-site"}):
            assert refused(bench.ask("POST", path, {}, headers=headers)) == (403, "wrong_origin"), headers
        assert refused(bench.ask("POST", path, {}, without=("Origin",))) == (403, "wrong_origin")
    assert bench.state() == before


def test_another_page_reads_nothing(bench):
    sites = [{"Sec-Fetch-Site": site} for site in ("cross-site", "same-site")]
    for headers in (*sites, {"Origin": "http://evil.example"}):
        assert refused(bench.ask("GET", "/state", headers=headers)) == (403, "wrong_origin")
    assert "access-control-allow-origin" not in {name.lower() for name in bench.ask("GET", "/state")[1]}


NAMES = ["../x.csv", "..%2Fx.csv", "a/b.csv", "a%5Cb.csv", "%2Fetc%2Fx.csv", ".x.csv", "x%00.csv", "x%0A.csv"]
NAMES += ["x.npz", "x.py", "", "C:x.csv", "x" * 200 + ".csv"]


def test_a_name_is_never_a_path_and_a_table_is_private_or_public(bench):
    before = sorted(bench.app.folder.rglob("*"))
    for name in NAMES:
        reply = bench.ask("POST", f"/table?role=private&name={name}", b"a,b\n1,2\n")
        assert refused(reply) in {(400, "bad_name"), (400, "bad_kind")}, name
    for query in ("role=own&name=x.csv", "name=x.csv", "role=..&name=x.csv"):
        assert refused(bench.ask("POST", f"/table?{query}", b"a,b\n1,2\n")) == (400, "bad_role"), query
    assert sorted(bench.app.folder.rglob("*")) == before


def test_of_a_run_only_named_files_are_served(bench):
    run = bench.app.folder / "runs" / "001"
    run.mkdir(exist_ok=True)
    (run / "ledger.sqlite.secret").write_text("secret")
    for path in (
        *("001/ledger.sqlite.secret", "../log", "001/../002.json", "001/..%2F..%2Flog", "x/student.skops"),
        *("/student.skops", "001/", "../../etc/passwd"),
    ):
        assert refused(bench.ask("GET", f"/runs/{path}")) == (404, "not_found"), path
    assert refused(bench.ask("GET", "/../etc/passwd")) == (404, "not_found")
    shutil.rmtree(run)


def test_copies_are_for_their_owner_alone(bench):
    for path in (bench.app.folder, *bench.app.folder.rglob("*")):
        written_by_learn = "runs" in path.relative_to(bench.app.folder).parent.parts
        assert path.stat().st_mode & 0o077 == 0 or written_by_learn, path


def test_the_page_loads_nothing_from_elsewhere_and_runs_no_script_but_its_own(bench):
    policy = bench.first["content-security-policy"]
    assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= set(policy.split("; "))
    assert "unsafe" not in policy
    folder = resources.files("ostraka") / "templates"
    texts = [
        (folder / name).read_text() for name in ("page.html.j2", "ui.html.j2", "ui.js", "page.css", "ui.css")
    ]
    addresses = {url for text in texts for url in re.findall(r"https?://[^\"' ]+", text)}
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of a language, which is not loaded
    assert not re.search(r"innerHTML|insertAdjacent|eval\(|style=\"|onclick", "".join(texts))


def test_too_large_a_file_is_refused_before_it_is_sent(tmp_path, quiet):
    workbench = Bench(tmp_path, limits=Limits(most_body=1000))
    workbench.open()
    reply = workbench.ask("POST", "/table?role=private&name=x.csv", headers={"Content-Length": "1001"})
    assert refused(reply) == (413, "too_large")
    # in pieces without a length: refused where it becomes too large
    body = b"".join(b"100\r\n%s\r\n" % (b"x" * 256) for _ in range(5)) + b"0\r\n\r\n"
    headers = {"Transfer-Encoding": "chunked", "Content-Length": "0"}
    path = "/table?role=private&name=x.csv"
    reply = workbench.ask("POST", path, body, headers=headers, without=("Content-Length",))
    assert reply[0] in {400, 413}
    assert workbench.state()["tables"]["private"] is None
    assert refused(workbench.ask("POST", "/spend", b"x" * 70_000)) == (413, "too_large")
    workbench.close()


def test_what_is_refused_says_why(bench):
    """A name of the longest length is none of them: it is taken, as every suffix is."""
    lines, other = [], {"Origin": "http://evil.example"}
    for method, path, body, headers in (
        ("GET", "/state", None, {"Host": "evil.example"}),
        ("GET", "/state", None, other),
        ("POST", "/spend", {}, other),
        ("POST", "/spend", {}, {"Sec-Fetch-Site": "cross-site"}),
        ("GET", "/state", None, {"Cookie": "no"}),
        ("GET", "/nope", None, {}),
        ("PUT", "/state", None, {"Origin": f"http://{bench.host}"}),
        ("POST", "/spend", b"{}", {"Content-Type": "text/plain"}),
        ("POST", "/spend", b" " * 2**16, {}),
        ("POST", "/spend", b" " * (2**16 + 1), {}),
        ("POST", "/spend", b"[]", {}),
        ("POST", "/spend", b"{", {}),
        ("POST", "/spend", {"ticket": "old"}, {}),
        ("POST", "/spend", {"ticket": 3}, {}),
        ("POST", "/spend", {"more": "x"}, {}),
        ("POST", "/plan", {"way": "counts", "epsilon": 3.0}, {}),
        ("POST", "/plan", {"way": "labels", "epsilon": 1.0}, {}),
        ("POST", "/plan", {"way": "counts", "epsilon": True}, {}),
        ("POST", "/plan", {"run": "999"}, {}),
        ("POST", "/plan", {"run": "../../x"}, {}),
        ("POST", "/check", {"epsilon": "1"}, {}),
        ("POST", "/table?role=own&name=x.csv", b"a", {}),
        ("POST", "/table?role=public&name=.x.csv", b"a", {}),
        ("POST", "/table?role=public&name=x.npz", b"a", {}),
        ("POST", f"/table?role=public&name={'x' * 118}.csv", b"a", {}),
        ("GET", "/runs/1/student.skops", None, {}),
    ):
        status, _, answer = bench.ask(method, path, body, headers=headers)
        lines.append(f"{method} {path[:40]} {headers}: {status} {answer.decode()}")
    lines += [
        f"{name}: {value}"
        for name, value in sorted(bench.first.items())
        if name not in {"date", "content-length"}
    ]
    text = "\n".join(lines).replace(bench.host, "HERE")
    text = re.sub(r"ostraka-\d+=[\w-]{43}", "COOKIE", text)
    blocks.hold(RECORD, "what a page is refused", blocks.normal_form(text))


def test_two_tabs_that_spend_at_once_spend_once(bench):
    ticket = bench.planned()
    n_before = len(bench.commands())
    (bench.log.parent / "wait").touch()
    with ThreadPoolExecutor(8) as tabs:
        replies = list(tabs.map(lambda _: bench.ask("POST", "/spend", {"ticket": ticket})[0], range(8)))
    assert sorted(replies) == [200] + [409] * 7
    assert refused(bench.ask("POST", "/plan", {"way": "counts", "epsilon": 1.0})) == (409, "busy")
    assert refused(bench.ask("POST", "/table?role=private&name=x.csv", b"a\n1\n")) == (409, "busy")
    (bench.log.parent / "wait").unlink()
    state = bench.wait(lambda state: state["release"]["status"] == "done")
    spent = [words for words in bench.commands()[n_before:] if "--yes" in words]
    assert len(spent) == 1
    assert refused(bench.ask("POST", "/spend", {"ticket": ticket})) == (409, "spent_or_old")
    words = blocks.members({name: state[name] for name in ("check", "steps", "release")})
    words += blocks.members({"run": state["runs"][-1]})
    for path, name in ((str(bench.app.folder), "FOLDER"), (state["release"]["name"], "RUN")):
        words = words.replace(path, name)
    blocks.hold(RECORD, "the state of a page after a run", words)
    run = state["release"]["name"]
    status, headers, body = bench.ask("GET", f"/runs/{run}/report-public.html")
    assert (status, body) == (200, b"<script>alert(1)</script>public")
    policy = {name.lower(): value for name, value in headers.items()}["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src")  # what a report holds is never run
    kept = {name.lower(): value for name, value in bench.ask("GET", f"/runs/{run}/student.skops")[1].items()}
    assert kept["content-disposition"] == 'attachment; filename="student.skops"'


def test_what_the_system_refuses_holds_up_no_later_plan(bench, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    ticket = bench.planned()
    with monkeypatch.context() as patched:
        patched.setattr("ostraka.core.files.write", full)
        assert bench.ask("POST", "/spend", {"ticket": ticket})[0] == 500
    assert bench.planned()
    with monkeypatch.context() as patched:
        patched.setattr("asyncio.create_subprocess_exec", full)
        bench.say("/plan", {"way": "counts", "epsilon": 1.0})
        state = bench.wait(lambda state: state["release"]["status"] == "refused")
        assert "No space left" in state["release"]["lines"][-1]
    assert bench.planned()


def test_what_is_typed_is_what_the_check_ends_with_at_the_chosen_price(bench):
    ticket = bench.planned(way="argmax", epsilon=2)
    command = bench.commands()[-1]
    private, public = bench.app.tables.values()
    assert command[:4] == ["learn", str(private), "--label", "ill"]
    assert command[command.index("--public") + 1] == str(public)
    assert "--rows-are-people" in command
    assert "--yes" not in command
    run = str(bench.app.folder / "runs" / bench.state()["release"]["name"])
    price = ["--epsilon", "2", "--way", "argmax", "--out", run]
    assert command[command.index("--epsilon") :] == [
        *price,
        "--ledger",
        str(bench.app.folder / "ostraka-ledgers"),
    ]
    bench.planned(way="filter", epsilon=4)
    of_before = bench.ask("POST", "/spend", {"ticket": ticket})
    assert refused(of_before) == (409, "spent_or_old")
    ticket = bench.state()["release"]["ticket"]
    bench.say("/check", {"holdout": False})  # another look: the plan may no longer be what is seen
    bench.wait(lambda state: not state["busy"])
    assert refused(bench.ask("POST", "/spend", {"ticket": ticket})) == (409, "spent_or_old")


def test_nothing_is_planned_before_it_is_said_who_is_protected(tmp_path, quiet, monkeypatch):
    monkeypatch.setenv("STAND_IN_LOG", str(tmp_path / "log"))
    workbench = Bench(tmp_path)
    workbench.open()
    plan = {"way": "counts", "epsilon": 1.0}
    answers = [workbench.ask("POST", "/plan", plan)]
    workbench.drop("private", "visits.csv", visits(1500))
    for columns in ({"label": "ill"}, {"rows_are_people": True}):
        workbench.say("/check", columns)
        answers.append(workbench.ask("POST", "/plan", plan))
    assert [refused(answer)[0] for answer in answers] == [409, 409, 409]
    errors = [json.loads(answer[2])["error"] for answer in answers]
    for error, words in zip(errors, ("drop a table", "say who is protected", "public rows"), strict=True):
        assert words in error
    workbench.say("/check", {"holdout": True})
    workbench.planned()
    assert "--holdout" in workbench.commands()[-1]
    workbench.close()


def test_a_table_that_cannot_be_read_is_told_without_a_cell_of_it(tmp_path, quiet):
    workbench = Bench(tmp_path)
    workbench.open()
    workbench.drop("private", "visits.xlsx", b"PK secret-cell")
    state = workbench.wait(lambda state: state["error"])
    assert "secret-cell" not in json.dumps(state)
    workbench.drop("private", "visits.csv", visits(200))  # it goes on
    assert workbench.wait(lambda state: state["check"])["error"] == ""
    workbench.close()


def test_a_run_that_was_stopped_goes_on_with_its_own_words(bench):
    ticket = bench.planned()
    run = bench.state()["release"]["name"]
    (bench.log.parent / "wait").touch()
    bench.say("/spend", {"ticket": ticket})
    bench.wait(lambda state: "rows voted" in state["release"]["lines"])
    assert bench.say("/stop")["release"]["status"] == "stopped"
    (bench.log.parent / "wait").unlink()
    state = bench.wait(lambda state: state["release"]["seconds"] >= 0 and state["runs"][-1]["name"] == run)
    assert state["runs"][-1]["finished"] is False
    words = bench.commands()[-1]
    bench.say("/plan", {"run": run})
    bench.wait(lambda state: state["release"]["status"] == "planned")
    assert [*bench.commands()[-1], "--yes"] == words
    shutil.rmtree(bench.app.folder / "runs" / run)


def test_the_command_prints_a_link_that_works(tmp_path):
    """In a process of its own, which Ctrl-C ends."""
    program = "from ostraka.cli import main; main()"
    words = [sys.executable, "-c", program, "ui", "--folder", str(tmp_path / "ui")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        link = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?key=[\w-]{43}", link)
        import urllib.request

        with urllib.request.urlopen(link) as reply:
            assert b"Learn from private data" in reply.read()
        process.send_signal(2)
        assert process.wait(60) == 0


@pytest.mark.slow  # two processes of ``ostraka learn``; the stand-in of the tests above is quick
def test_a_plan_is_spent_by_learn_itself_and_charged_to_the_ledger_of_the_table(tmp_path, quiet):
    workbench = Bench(tmp_path, learn=LEARN)
    workbench.open()
    workbench.drop("private", "visits.csv", visits(1500))
    workbench.drop("public", "others.csv", visits(600, seed=1))
    workbench.say("/check", OWNER)
    ticket = workbench.planned()
    assert any("epsilon at most 1 at delta" in line for line in workbench.state()["release"]["lines"])
    ledgers = Tables(workbench.app.folder / "ostraka-ledgers")
    assert ledgers.accounts() == []  # a plan spends nothing
    workbench.say("/spend", {"ticket": ticket})
    state = workbench.wait(lambda state: state["release"]["status"] not in {"running", "planned"})
    assert state["release"]["status"] == "done", state["release"]["lines"]
    [account] = ledgers.accounts()
    spent = account.spent("row")
    assert 0.9 < spent.epsilon <= 1
    assert spent.releases == 1
    [run] = state["runs"]
    assert {"student.skops", "ledger.sqlite", "report-public.html"} <= {file["name"] for file in run["files"]}
    assert run["claim"].startswith("ε ≤ 1. Whatever anyone believed about one row beforehand")
    # the same rows dropped again are the same table: the plan says what was released before
    workbench.drop("private", "again.csv", visits(1500))
    workbench.say("/check", OWNER)
    workbench.planned(epsilon=2.0)
    assert any("released before from this table" in line for line in workbench.state()["release"]["lines"])
    workbench.close()
