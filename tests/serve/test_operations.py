"""The runbook: every command of docs/operations.md, and the files for systemd, nginx and Prometheus."""

import asyncio
import configparser
import contextlib
import io
import json
import logging
import os
import re
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

import ostraka.cli
from ostraka import Ledger, Result
from ostraka.core.ledger.ledger import back_up, restore
from ostraka.ledger import LedgerError
from ostraka.secure.server import REQUEST, Server, listening
from ostraka.serve import cli as _operate
from ostraka.serve import server as _notify
from ostraka.serve import server as _server
from ostraka.serve.app import Application
from ostraka.serve.server import JsonLines
from tests.secure.test_server import pair
from tests.serve.conftest import ONE, PATIENCE, deploy, rows, serving

_OPENSSL = shlex.split(
    "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    " -addext subjectAltName=DNS:localhost"
)
ROOT = Path(__file__).resolve().parents[2]
RUNBOOK = ROOT / "docs" / "operations.md"
BLOCKS = re.findall(r"^```sh\n(.*?)^```", RUNBOOK.read_text(), re.MULTILINE | re.DOTALL)
DRILL = "ostraka drill run --sigma 40"


@pytest.fixture
def run(tmp_path, saved, monkeypatch):
    """A finished run, as far as a service needs one."""
    monkeypatch.chdir(tmp_path)
    saved.save(tmp_path / "run" / "teachers")
    (tmp_path / "run" / "result.json").write_text(json.dumps({}))
    return tmp_path / "run"


def typed(line: str) -> str:
    """What a line of the runbook prints. Commands of ostraka run in this process, which is quicker."""
    words, _, target = line.partition(" > ")
    if not line.startswith("ostraka "):
        subprocess.run(["bash", "-c", line], check=True)
        return ""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ending:
        ostraka.cli.main(shlex.split(words)[1:])
    assert ending.value.code == 0, f"{line}: {err.getvalue()}"
    if target:
        Path(target).write_text(out.getvalue())
    return out.getvalue()


def test_every_command_of_the_runbook_runs(run, tmp_path, monkeypatch):
    monkeypatch.setenv("OSTRAKA_PEPPER", "ab" * 32)
    (run / "result.json").write_text(Result(kind="learn", settings={"n_units": 1200}).to_json())
    lines = [line for block in BLOCKS for line in block.splitlines()]
    assert sum(line.startswith("ostraka ") for line in lines) >= 17
    lines.remove(DRILL)  # which a test below types
    printed = "".join(map(typed, lines))
    assert len(set(re.findall(r"head ([0-9a-f]{64})", printed))) == 1, "all copies have the ledger's head"
    assert not (run / "service" / "answers.secret").exists()
    assert {path.name for path in tmp_path.glob("ostraka.*")} == {"ostraka.service", "ostraka.conf"}


INSTALL = re.findall(
    r"^```(?:ba)?sh\n(.*?)^```",
    RUNBOOK.read_text().partition("## Install\n")[2].partition("To be reached by others")[0],
    re.MULTILINE | re.DOTALL,
)
# Stands for a clean machine: a folder is its root, and these are the commands that need its root user.
_ROOT_COMMANDS = {
    "useradd": 'echo "$@" >> {root}/users',
    "chown": ":",
    "chgrp": ":",
    "install": 'mkdir -p -m 0750 "${{@: -1}}"',
    "systemctl": """
[ "$*" = "enable --now ostraka" ] || exit 0
unit={root}/etc/systemd/system/ostraka.service
unset OSTRAKA_PEPPER
set -a; . {root}$(sed -n s/^EnvironmentFile=//p $unit); set +a
cd /
$(sed -n s/^ExecStart=//p $unit) > {root}/log 2>&1 &
echo $! > {root}/pid
""",
}


@pytest.mark.slow  # seven processes; the test above types the commands in one
def test_the_runbook_typed_in_a_clean_root_ends_in_a_charged_answer_over_tls(run, tmp_path, free_port):
    """Every line of *Install* as it stands, but for the folder that is the root, and for the port."""
    root = tmp_path / "root"
    for name in ("bin", "opt", "srv", "etc/systemd/system"):
        (root / name).mkdir(parents=True)
    for name, script in _ROOT_COMMANDS.items():
        (root / "bin" / name).write_text(f"#!/bin/bash\n{script.format(root=root)}\n")
        (root / "bin" / name).chmod(0o755)
    lines = [line for block in INSTALL for line in block.splitlines()]
    installs = [line for line in lines if "pip install" in line]
    assert installs == ["/opt/ostraka/bin/pip install '.[service]'"]  # from the checkout, and by no name
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert "service" in extras
    # what these two lines would bring is what runs this test: a command at the place where they put it
    lines = [line for line in lines if line not in {"python3 -m venv /opt/ostraka", *installs}]
    program = root / "opt" / "ostraka" / "bin" / "ostraka"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!{sys.executable}\nfrom ostraka.cli import main\nmain()\n")
    program.chmod(0o755)
    (run / "result.json").write_text(Result(kind="learn", settings={"n_units": 1200}).to_json())
    (root / "srv" / "question.json").write_text(json.dumps({"row": ONE}))
    script = "\n".join(["set -eu", *lines]).replace("8443", str(free_port))
    script = re.sub(r"(?<![\w.])/(opt|etc|srv)\b", rf"{root}/\1", script)
    clean = {"PATH": f"{root}/bin:/usr/bin:/bin", "HOME": str(root), "PYTHONPATH": str(ROOT / "src")}
    try:
        done = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, env=clean, capture_output=True, text=True, check=False
        )
        log = (root / "log").read_text() if (root / "log").exists() else ""
        assert done.returncode == 0, done.stderr + log
        assert re.search(r"^HTTP/1.1 200 OK", done.stdout, re.MULTILINE), done.stdout + log
        assert re.search(r"^ostraka-left: 1\.\d+", done.stdout, re.MULTILINE)  # of the 2 that alice had
        assert json.loads(done.stdout.splitlines()[-1])["label"] is not None
    finally:
        if (root / "pid").exists():
            os.kill(int((root / "pid").read_text()), signal.SIGTERM)
    unit = (root / "etc" / "systemd" / "system" / "ostraka.service").read_text()
    assert f"ExecStart={program} serve {root}/srv/run " in unit
    # under another pepper no key is made that would be of no use
    clean["OSTRAKA_PEPPER"] = "cd" * 32
    words = [program, "keys", "add", "run", "carol"]
    late = subprocess.run(words, cwd=root / "srv", env=clean, capture_output=True, text=True, check=False)
    assert late.returncode != 0
    assert "OSTRAKA_PEPPER is not the one" in late.stderr


def test_nothing_is_installed_by_a_name_that_is_not_ours():
    """``ostraka`` on PyPI may be a stranger's: the checkout or a wheel's file is installed."""
    command_pattern = re.compile(
        r"(?:pipx?|uv|uvx) (?:tool )?(?:install|add)[^`\n]*?[ '\"]ostraka(?:\[|['\"`\s]|$)"
    )
    assert command_pattern.search("pip install 'ostraka[plots]'")
    assert command_pattern.search("pip install -U ostraka")
    assert not command_pattern.search("pip install ./ostraka")
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "tutorials").glob("*.py")]
    sources = [path for path in (ROOT / "src").rglob("*") if path.suffix in {".py", ".j2", ".pyi"}]
    named = {
        (path.name, match[0])
        for path in (*pages, *sources)
        if path.name != "CHANGELOG.md"
        for match in [command_pattern.search(path.read_text(encoding="utf-8"))]
        if match
    }
    assert named == set()


def test_a_service_moves_to_another_machine_with_its_head_and_its_answers(tmp_path, saved):
    target, source = tmp_path / "there", tmp_path / "here"
    target.mkdir()
    X = rows(40, seed=9)
    with serving(deploy(target, saved)) as service:
        stop, replies = threading.Event(), []

        def load():
            for n, row in enumerate(X):
                replies.append(service.label(row, key=f"k{n}").json())
            stop.set()

        worker = threading.Thread(target=load)
        worker.start()
        secret = (target / "service" / "ledger.secret").read_bytes()
        path = target / "service" / "ledger.sqlite"
        copies = []
        while not stop.is_set():
            copies.append(back_up(path, tmp_path / f"copy{len(copies)}", secret=secret))
        worker.join()
        final = back_up(path, tmp_path / "final", secret=secret)
        head = service.there.ledger.head
    assert copies[0].entries < final.entries
    assert final.head == head
    shutil.copytree(target, source, ignore=shutil.ignore_patterns("ledger.sqlite*"))
    place, anchor = source / "service" / "ledger.sqlite", source / "service" / "ledger.anchor"
    with pytest.raises(LedgerError, match="older copy"):
        restore(tmp_path / "copy0", place, secret=secret, anchor=anchor)
    assert not place.exists()
    assert restore(tmp_path / "final", place, secret=secret, anchor=anchor) == final
    with serving(deploy(source, saved)) as moved:
        (newest,) = moved.there.ledger.entries(after=final.entries - 1, limit=1)
        assert newest.head == head  # notes of the keys that this service makes follow it
        for n, row in enumerate(X[:5]):
            assert moved.label(row, key=f"k{n}").json() == replies[n]
            assert moved.label(row, key=f"again{n}").json()["label"] == replies[n]["label"]


def test_copies_do_not_overwrite_and_need_a_ledger_and_an_anchor(tmp_path, saved):
    deployment = deploy(tmp_path, saved)
    deployment.there.ledger.close()
    secret = (tmp_path / "service" / "ledger.secret").read_bytes()
    path, copy = tmp_path / "service" / "ledger.sqlite", tmp_path / "copy"
    with pytest.raises(LedgerError, match="for PostgreSQL use pg_dump"):
        back_up(tmp_path / "none", copy, secret=secret)
    with pytest.raises(LedgerError, match="secret"):
        back_up(path, copy, secret=bytes(32))
    assert not list(tmp_path.glob("copy*"))  # a copy that does not verify is none
    back_up(path, copy, secret=secret)
    assert copy.stat().st_mode & 0o777 == 0o600
    with pytest.raises(LedgerError, match="exists: type the name of a new file"):
        back_up(path, copy, secret=secret)
    with pytest.raises(LedgerError, match="there is no anchor"):
        restore(copy, tmp_path / "new", secret=secret, anchor=tmp_path / "none")
    with pytest.raises(LedgerError, match="exists: move it away first"):
        restore(copy, path, secret=secret, anchor=f"{copy}.anchor")
    with Ledger(copy, secret=secret, anchor=f"{copy}.anchor") as match:
        match.verify()


def test_the_unit_is_hardened_and_runs_the_same_command(run, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["ostraka", "serve", "run", "--proxy", "::1", "--systemd"])
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read_string(_operate.systemd(Path("run")))
    service = unit["Service"]
    assert service["ExecStart"].endswith(f"ostraka serve {run} --proxy ::1")
    assert (service["Type"], service["WatchdogSec"], service["User"]) == ("notify", "120", "ostraka")
    assert (service["NoNewPrivileges"], service["ProtectSystem"]) == ("yes", "strict")
    assert service["ReadWritePaths"] == f"{run}/service"


def test_systemd_is_told_what_the_watchdog_wants_to_know(tmp_path, saved, monkeypatch):
    messages, ended = [], b"STATUS=the thread that answers has ended"

    def until(is_so):
        end = time.monotonic() + PATIENCE
        while not is_so():
            assert time.monotonic() < end, messages
            time.sleep(0.01)

    def read():  # always: whoever tells a full socket waits
        while message := listening.recv(200):
            messages.append(message)

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        reader = threading.Thread(target=read)
        reader.start()
        with serving(deploy(tmp_path, saved)) as service:
            until(lambda: {b"WATCHDOG=1", b"STATUS=ready"} <= set(messages))
            monkeypatch.setattr(type(service.there.readiness), "works", False)
            until(lambda: messages.count(ended) == 3)
            assert b"WATCHDOG=1" not in messages[messages.index(ended) :]
        _notify.notify("")
        reader.join()


def test_sighup_reads_the_certificate_again_and_sigterm_ends(tmp_path, saved, monkeypatch, caplog):
    monkeypatch.setattr(_server.gc, "freeze", lambda: None)
    files, contexts = pair(tmp_path, "one"), []

    async def told(server):
        for content in (None, "broken"):
            if content:
                files["key"].write_text(content)
            contexts.append(server.tls)
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0.1)
        contexts.append(server.tls)
        os.kill(os.getpid(), signal.SIGTERM)

    def started(server):
        _server.take_signals(server)
        tasks.append(asyncio.ensure_future(told(server)))

    tasks, app = [], Application(deploy(tmp_path, saved).there)
    server = Server(app, listening("127.0.0.1", 0), certificate=files["certificate"], key=files["key"])
    asyncio.run(server.serve(started))
    assert contexts[0] is not contexts[1] is contexts[2]
    assert "the certificate cannot be read (SSLError): the old one stays" in caplog.text


def test_logs_are_objects_that_name_their_request(service):
    record = logging.LogRecord("ostraka.service", logging.WARNING, "", 0, 'with "%s"', ("quotes\n",), None)
    record.fields = {"status": 503}
    logged = json.loads(JsonLines().format(record))
    assert (logged["level"], logged["message"], logged["status"]) == ("warning", 'with "quotes\n"', 503)
    assert logged["event"] == "other"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}", logged["time"])
    assert "\n" not in JsonLines().format(record)
    names = {service.label(ONE, key=f"k{n}").headers["ostraka-request"] for n in range(3)}
    assert len(names) == 3


@pytest.fixture
def own_logs(monkeypatch):
    """The logging of a process that was just started."""
    monkeypatch.setattr(logging.root, "handlers", [])
    before = logging.root.level, logging.getLogger("asyncio").level
    yield
    logging.root.setLevel(before[0])
    logging.getLogger("asyncio").setLevel(before[1])


def test_all_logs_go_to_stderr_as_text_or_as_lines_of_json(own_logs, capfd):
    for as_json in (False, True, False):  # the latest setting holds, alone
        _server.set_up(as_json=as_json)
        logging.getLogger("ostraka.some").info("it is %s", "so")
        logging.getLogger("asyncio").warning("of no interest")
        logging.getLogger("other").debug("nor this")
        out, err = capfd.readouterr()
        assert out == ""
        if as_json:
            logged = json.loads(err)
            del logged["time"]
            assert logged == {
                "level": "info",
                "logger": "ostraka.some",
                "event": "other",
                "message": "it is so",
            }
        else:
            assert err == "INFO ostraka.some: it is so\n"
    logging.getLogger("asyncio").error("but this")
    assert capfd.readouterr()[1] == "ERROR asyncio: but this\n"


def test_a_line_of_the_log_names_its_request_and_is_ascii():
    record = logging.LogRecord("ostraka", logging.INFO, "", 0, "naïve", (), None)
    assert "request" not in json.loads(JsonLines().format(record))
    token = REQUEST.set("ab12")
    try:
        line = JsonLines().format(record)
        assert (json.loads(line)["request"], json.loads(line)["message"], line.isascii()) == (
            "ab12",
            "naïve",
            True,
        )
        record.request, record.event, record.fields = "cd34", "failed", {"message": "of the fields"}
        logged = json.loads(JsonLines().format(record))
        assert (logged["request"], logged["event"], logged["message"]) == ("cd34", "failed", "of the fields")
    finally:
        REQUEST.reset(token)


@pytest.mark.parametrize("named", ["file", "abstract"])
def test_systemd_is_told_at_its_socket_whatever_its_name_is_like(tmp_path, monkeypatch, named):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    _notify.notify("READY=1")  # to nobody
    written = str(tmp_path / "socket") if named == "file" else f"@ostraka-{os.getpid()}-of-a-test"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(written.replace("@", "\0"))
        listening.settimeout(PATIENCE)
        monkeypatch.setenv("NOTIFY_SOCKET", written)
        _notify.notify("READY=1")
        assert listening.recv(100) == b"READY=1"


def test_the_watchdog_hears_twice_as_often_as_it_wants_to_and_nothing_is_said_where_there_is_none(
    monkeypatch,
):
    told, slept, reasons = [], [], iter([[], ["one", "two"], []])
    readiness = SimpleNamespace(problems=lambda: next(reasons), works=True)

    async def sleep(seconds):
        slept.append(seconds)
        readiness.works = len(slept) < 2
        if len(slept) == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr(_server, "notify", told.append)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    asyncio.run(_server.keep_alive(readiness))
    assert told == []
    monkeypatch.setenv("WATCHDOG_USEC", "120000000")
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(_server.keep_alive(readiness))
    assert slept == [60.0] * 3
    assert told == ["STATUS=ready", "WATCHDOG=1", "STATUS=one; two", "WATCHDOG=1", "STATUS=ready"]


def test_a_process_listens_where_it_is_told_and_logs_as_it_is_told(monkeypatch):
    done = []

    class Serving:
        def __init__(self, *app, **tls):
            done.append((*app, tls))

        def serve(self, started):
            assert started is _server.take_signals
            return "the service"

    monkeypatch.setattr(_server, "Server", Serving)
    monkeypatch.setattr(_server, "listening", lambda *where: where)
    monkeypatch.setattr(_server, "set_up", lambda *, as_json: done.append(as_json))
    monkeypatch.setattr(_server.check, "require", lambda name, *, extra: SimpleNamespace(run=done.append))
    _server.run("app", host="::1", port=8001, certificate="pem")
    assert done == [False, ("app", ("::1", 8001), {"certificate": "pem"}), "the service"]
    _server.run("app", host="::1", port=8001, log_json=True)
    assert done[3:] == [True, ("app", ("::1", 8001), {}), "the service"]


@pytest.mark.parametrize("tls", [None, "a context"])
def test_both_signals_to_stop_stop_and_one_reads_a_certificate_if_there_is_one(monkeypatch, caplog, tls):
    told, handlers, errors = [], {}, [None, ssl.SSLError("canary"), PermissionError("canary")]

    def reload():
        if error := errors.pop(0):
            raise error

    loop = SimpleNamespace(add_signal_handler=handlers.__setitem__)
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    monkeypatch.setattr(_server, "notify", told.append)
    monkeypatch.setattr(_server.gc, "freeze", lambda: told.append("frozen"))
    _server.take_signals(SimpleNamespace(tls=tls, stop=lambda: told.append("stopped"), reload=reload))
    assert told == ["frozen", "READY=1"]
    told.clear()
    stops = {signal.SIGINT, signal.SIGTERM}
    assert handlers.keys() == stops | ({signal.SIGHUP} if tls else set())
    for number in stops:
        handlers[number]()
    assert told == ["STOPPING=1", "stopped"] * 2
    with caplog.at_level(logging.INFO, "ostraka.serve"):
        while tls and errors:
            handlers[signal.SIGHUP]()
    unreadable = "the certificate cannot be read ({}): the old one stays"
    assert [(record.levelname, record.event, record.getMessage()) for record in caplog.records] == [
        ("INFO", "certificate.read", "the certificate was read again"),
        ("ERROR", "certificate.unreadable", unreadable.format("SSLError")),
        ("ERROR", "certificate.unreadable", unreadable.format("PermissionError")),
    ][: 3 if tls else 0]


def test_every_event_of_the_log_has_a_name_on_the_page():
    named = set()
    for path in Path(ostraka.__file__).parent.rglob("*.py"):
        named |= set(
            re.findall(r'"event": "([a-z.]+)"|event = "([a-z.]+)"|else "([a-z]+\.[a-z]+)"', path.read_text())
        )
    names = {name for match in named for name in match if name}
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    assert names >= {"ledger.moved", "charge.unknown", "witness.silent", "request"}
    assert [name for name in sorted(names) if f"| `{name}` |" not in page] == []


def test_alert_rules_name_metrics_that_exist(shared):
    with shared.http("olga") as http:
        metrics = set(re.findall(r"^(ostraka_\w+)", http.get("/metrics").text, re.MULTILINE))
    metrics |= {"ostraka_refusals_total"}
    yaml = pytest.importorskip("yaml", reason="comes with schemathesis")
    rules = yaml.safe_load(_operate.alerts())["groups"][0]["rules"]
    assert len(rules) >= 8
    for rule in rules:
        assert set(re.findall(r"ostraka_\w+", rule["expr"])) <= metrics
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}


def test_the_container_runs_as_a_user_without_rights():
    containerfile = (ROOT / "Containerfile").read_text()
    assert re.search(r"^USER 10001$", containerfile, re.MULTILINE)
    assert containerfile.rindex("USER") > containerfile.rindex("RUN")
    assert "/ready" in containerfile


def test_the_commands_of_the_container_can_be_typed_and_its_check_sees_the_service(service):
    containerfile = (ROOT / "Containerfile").read_text()
    entry = json.loads(re.search(r"^ENTRYPOINT (.*)$", containerfile, re.MULTILINE)[1])
    with redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit) as ending:
        ostraka.cli.main([*entry[1:2], "--help"])
    assert ending.value.code == 0
    assert {word for word in entry if word.startswith("--")} <= set(re.findall(r"--[\w-]+", out.getvalue()))
    extra = re.search(r"\.\[(\w+)\]", containerfile)[1]
    assert extra in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert (ROOT / re.search(r"-c (\S+)", containerfile)[1]).is_file()
    check = json.loads(re.search(r"CMD (.*)$", containerfile, re.MULTILINE)[1])
    at = [part.replace("http://127.0.0.1:8000", service.url) for part in check]
    assert at != check
    subprocess.run([sys.executable, *at[1:]], check=True, timeout=PATIENCE)
    gone = [part.replace("/ready", "/none") for part in at]
    done = subprocess.run([sys.executable, *gone[1:]], check=False, capture_output=True, timeout=PATIENCE)
    assert done.returncode != 0


@pytest.fixture
def nginx(tmp_path, service):
    """Nginx of Debian before the service, with the configuration that ships; its address."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed: apt-get install nginx-light")
    subprocess.run(
        [*_OPENSSL, "-keyout", "key.pem", "-out", "cert.pem"], cwd=tmp_path, check=True, capture_output=True
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    inner = int(service.url.rpartition(":")[2])
    written = _operate.nginx("localhost", host="127.0.0.1", port=inner, most_bytes=65536)
    written = written.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
    written = re.sub(r"/etc/letsencrypt\S*fullchain.pem", f"{tmp_path}/cert.pem", written)
    written = re.sub(r"/etc/letsencrypt\S*privkey.pem", f"{tmp_path}/key.pem", written)
    spots = "".join(
        f"{kind}_temp_path {tmp_path}/{kind}; "
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    configuration = f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/error.log;\n"
    configuration += f"events {{}}\nhttp {{ access_log off; {spots}\n{written} }}\n"
    (tmp_path / "nginx.conf").write_text(configuration)
    process = subprocess.Popen([program, "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")])
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            break
        time.sleep(0.05)
    yield f"https://localhost:{port}", tmp_path / "cert.pem"
    process.terminate()
    process.wait()


def test_promtool_takes_the_alert_rules(tmp_path):
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    (tmp_path / "alerts.yml").write_text(_operate.alerts())
    done = subprocess.run(
        [program, "check", "rules", str(tmp_path / "alerts.yml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 rules found" in done.stdout + done.stderr


def test_the_proxy_of_the_runbook_serves_and_limits(service, nginx):
    url, cert = nginx
    headers = {"authorization": f"Bearer {service.keys['alice']}", "idempotency-key": "k"}
    with httpx.Client(base_url=url, verify=ssl.create_default_context(cafile=str(cert)), timeout=60) as http:
        reply = http.post("/v1/label", json={"row": ONE}, headers=headers)
        assert reply.status_code == 200, reply.text
        assert "ostraka-left" in reply.headers
        assert http.get("/ready").json()["ready"] is True
        assert [http.get(path).status_code for path in ("/", "/metrics")] == [403, 403]
        large = http.post("/v1/label", content=b"x" * 70_000, headers=headers)
        assert large.status_code == 413
        codes = [http.get("/health").status_code for _ in range(900)]
        assert 429 in codes, "one address is slowed"


def test_a_drill_restores_a_service_that_goes_on_and_leaves_nothing(run, tmp_path, monkeypatch):
    monkeypatch.setenv("OSTRAKA_PEPPER", "ab" * 32)
    (tmp_path / "scratch").mkdir()
    (run / "result.json").unlink()
    typed("ostraka serve run --epsilon 5 --delta 1e-6 --sigma 40 --check")
    typed("ostraka keys add run alice --epsilon 2")
    place = run / "service"
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    with Ledger(place / "ledger.sqlite", secret=before["ledger.secret"], read_only=True) as ledger:
        head, entries = ledger.head, ledger.count()
    record = json.loads(typed(f"{DRILL} --scratch scratch --json"))
    assert (record["lost"], record["entries"], record["head"]) == (0, entries, head)
    assert record["seconds_recovery"] >= record["seconds_start"] > 0
    assert list((tmp_path / "scratch").iterdir()) == []
    assert {path.name: path.read_bytes() for path in place.iterdir() if path.name in before} == before


@pytest.mark.slow  # quick: the drill above, and other noise in test_bindings.py
def test_a_drill_says_why_the_copy_does_not_start(run, monkeypatch, capsys):
    monkeypatch.setenv("OSTRAKA_PEPPER", "ab" * 32)
    (run / "result.json").unlink()
    typed("ostraka serve run --epsilon 5 --delta 1e-6 --sigma 40 --check")
    with pytest.raises(SystemExit) as ending:
        ostraka.cli.main(["drill", "run", "--sigma", "41"])
    assert ending.value.code == 1
    assert "did not start" in (refusal := capsys.readouterr().err)
    assert "other noise" in refusal
    with pytest.raises(SystemExit) as ending:
        ostraka.cli.main(["drill", "elsewhere"])
    assert ending.value.code == 1
    assert "there is no ledger at elsewhere/service/ledger.sqlite" in capsys.readouterr().err
