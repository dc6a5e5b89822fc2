"""ostraka serve and ostraka keys, as a person types them; the service itself is in tests/service."""

import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from ostraka import Budget, GNMax, Ledger, Threshold
from ostraka.core.ledger import ledger as ledgers
from ostraka.secure.wire import Late
from ostraka.serve import cli, server
from ostraka.serve.deployment import Settings
from ostraka.service import Client
from tests.cli.terminal import typed
from tests.golden import blocks

PEPPER = "ab" * 32
BUDGET = Budget(epsilon=5.0, delta=1e-6)
RECORD = Path(blocks.__file__).with_name("services.txt")
BEGUN = "serve run --epsilon 5 --delta 1e-6"
COMMANDS = [
    BEGUN,
    "serve run --check --sigma 30",
    "serve run --check",
    "serve run --check --json",
    "serve run --epsilon 5",
    "serve run --delta 1e-6",
    "serve run --sigma 30 --screen 3 4",
    *(f"{BEGUN} {option}" for option in (
        "--host 10.0.0.1 --tls-cert pem --tls-key pem --owner-ca pem --log-json --proxy 10.0.0.0/8",
        "--host 10.0.0.1",
        "--host ::1 --port 9000",
        "--host 10.0.0.1 --behind-proxy --log-requests",
        "--tls-cert pem",
        "--tls-key pem",
        "--owner-ca pem",
        "--oidc https://there",
        "--oidc-audience me",
        "--oidc-keys pem",
        "--oidc https://there --oidc-keys pem",
        "--shared",
        "--shared --db sqlite:///x",
        "--proxy nonsense",
        "--port 0",
        "--port 65536",
        "--burst 0",
        "--most-rows 0",
        "--most-bytes 0",
        "--answer-seconds 0",
    )),
    "serve run --systemd",
    "serve run --nginx example.org --host ::1 --port 9000 --most-bytes 12345",
    "serve run --alerts",
    "keys list run",
    "keys add run dora --epsilon 2 --json",
    "keys rotate run dora --by olga --json",
    "keys add run ward --epsilon 0.25 --by olga",
    "keys add run olga --role owner",
    "keys add run petra --role owner --subject p-17",
    "keys add run anna --role owner --subject p-17",
    "keys add run quinn --role owner --subject p-17 --json",
    "keys add run quinn --subject p-18",
    "keys add run rita --role owner --epsilon 1",
    "keys add run service",
    "keys add run " + "n" * 65,
    "keys add run dora",
    "keys add run rita --epsilon 0",
    "keys add run rita --role nurse",
    "keys grant run dora --epsilon 3.5 --json",
    "keys grant run dora --epsilon 3.5",
    "keys grant run olga --epsilon 3.5",
    "keys grant run nobody --epsilon 3.5",
    "keys revoke run dora --number 000000000000",
    "keys list run",
    "keys revoke run dora --number LATEST",
    "keys revoke run ward --json",
    "keys revoke run petra",
    "keys list run",
    "keys list run --json",
    "drill run/teachers",
]  # fmt: skip


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A run of the digits with its teachers."""
    folder = tmp_path_factory.mktemp("run") / "run"
    settings = ("--keep-teachers", "--teacher", "logistic", "--teachers", 50)
    code, _, err = typed("learn", *settings, "--out", folder)
    assert code == 0, err
    return folder


@pytest.fixture
def run(learned, tmp_path):
    """A copy that was never served."""
    return shutil.copytree(learned, tmp_path / "run")


@pytest.fixture(autouse=True)
def _pepper(monkeypatch):
    monkeypatch.setenv("OSTRAKA_PEPPER", PEPPER)


def serve(run, *options: object) -> tuple[int, str, str]:
    return typed("serve", run, "--check", *options)


def test_check_opens_everything_and_leaves(run, tmp_path):
    db = f"sqlite:///{tmp_path / 'a.sqlite'}"
    code, out, err = serve(run, "--epsilon", 5, "--delta", 1e-6, "--sigma", 30, "--db", db, "--json")
    assert code == 0, err
    record = json.loads(out)
    assert (record["teachers"], record["mechanism"], record["left"]) == (50, "GNMax(sigma=30.0)", 5.0)
    code, out, _ = serve(run, "--sigma", 30, "--db", db)
    assert code == 0
    assert "epsilon: 5.0" in out


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--epsilon", 5), 2, "--epsilon and --delta go together"),
        (("--epsilon", 5, "--delta", 0.5), 2, "--delta must be below 1 / 1150 units"),
        (("--epsilon", "nan", "--delta", 1e-6), 2, "--epsilon must be a finite number"),
        (("--host", "0.0.0.0"), 2, "type --tls-cert and --tls-key, or --behind-proxy"),
        (("--host", "example.org"), 2, "can be reached by others"),
        (("--rate", 0), 2, "rate must be finite and > 0"),
        (("--sigma", -1), 2, "sigma must be finite and > 0"),
        (("--db", "mysql://x"), 1, "mysql"),
        (("--epsilon", 0.001, "--delta", 1e-6), 3, "does not pay for one answer"),
    ],
)
def test_wrong_options_are_told(run, options, code, words):
    got, out, err = serve(run, *options)
    assert (got, out) == (code, "")
    assert words in err


def test_another_budget_or_another_ledger_is_refused_for_it_would_forget_what_was_spent(run, tmp_path):
    first, second = (("--db", f"sqlite:///{tmp_path / name}") for name in ("a.sqlite", "b.sqlite"))
    code, _, err = serve(run, "--epsilon", 5, "--delta", 1e-6, *first)
    assert code == 0, err
    for epsilon, db, words in ((6, first, "budget"), (5, second, "anchor")):
        code, _, err = serve(run, "--epsilon", epsilon, "--delta", 1e-6, *db)
        assert (code, words in err) == (1, True), err


def test_what_keys_and_services_print_is_on_record(run, tmp_path, monkeypatch):
    """With the ways to be refused before anything is opened, and files for systemd, nginx and Prometheus."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["/nowhere/ostraka", "serve", "run", "--epsilon", "5", "--systemd"])

    def served(app, **options):
        click.echo(sorted(map(str, options.items())))
        app.deployment.ledger.close()  # or it would be open until it is collected as garbage

    monkeypatch.setattr(server, "run", served)
    (tmp_path / "pem").touch()
    lines, numbers = [], {}
    for command in COMMANDS:
        words = [numbers.get(word, word) for word in command.split()]
        code, out, err = typed(*words)
        if " rotate " in command:
            numbers["LATEST"] = json.loads(out)["key"].split("_")[1]
        lines += [f"$ ostraka {command}", *out.splitlines(), *err.splitlines(), f"exit code {code}"]
    text = re.sub(r"ostraka_\w{12}_[\w-]{43}", "KEY", "\n".join(lines))
    text = text.replace(str(tmp_path), "HERE").replace(str(Path(sys.executable).parent), "BIN")
    blocks.hold(RECORD, "keys and services", blocks.normal_form(text))


def test_other_teachers_are_refused_before_they_are_parsed(run, monkeypatch):
    assert serve(run, "--epsilon", 5, "--delta", 1e-6)[0] == 0
    manifest = run / "teachers" / "manifest.json"
    manifest.write_text(manifest.read_text() + " ")
    monkeypatch.setattr("skops.io.loads", lambda *_, **__: pytest.fail("parsed"))
    code, _, err = serve(run)
    assert code == 1
    assert "not those that this service began with" in err


def test_a_run_without_teachers_says_how_to_keep_them(tmp_path):
    code, _, err = serve(tmp_path)
    assert code == 1
    assert "ostraka learn … --keep-teachers" in err
    assert typed("keys", "list", tmp_path)[0] == 2


def test_without_a_pepper_nothing_starts(run, monkeypatch):
    monkeypatch.delenv("OSTRAKA_PEPPER")
    for command in (("serve", run, "--check"), ("keys", "list", run), ("keys", "add", run, "alice")):
        code, _, err = typed(*command)
        assert code in {1, 2}
        assert "openssl rand -hex 32" in err


def test_keys_are_made_rotated_granted_listed_and_revoked(run):
    code, key, err = typed("keys", "add", run, "dora", "--epsilon", 2)
    assert (code, key[:8]) == (0, "ostraka_")
    assert (run / "service").stat().st_mode & 0o777 == 0o700
    assert "shown once" in err
    assert key.strip() not in (run / "service" / "keys.json").read_text()
    new_key = json.loads(typed("keys", "rotate", run, "dora", "--json")[1])["key"]
    assert typed("keys", "grant", run, "dora", "--epsilon", 3)[0] == 0
    typed("keys", "revoke", run, "dora", "--number", key.split("_")[1])
    listed = json.loads(typed("keys", "list", run, "--json")[1])
    assert listed == [{"name": "dora", "role": "client", "epsilon": 3.0, "keys": [new_key.split("_")[1]]}]
    assert "dora: client, epsilon 3, keys" in typed("keys", "list", run)[1]
    code, _, err = typed("keys", "add", run, "dora")
    assert code == 2
    assert "keys rotate dora" in err


def test_from_learn_to_an_answer_and_back_to_the_ledger(run, tmp_path, free_port):
    key = typed("keys", "add", run, "erin", "--epsilon", 2)[1].strip()
    db = tmp_path / "answers.sqlite"
    command = ["serve", run, "--epsilon", 5, "--delta", 1e-6, "--sigma", 60]
    command += ["--port", free_port, "--db", f"sqlite:///{db}"]
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys, ostraka.cli; ostraka.cli.main(sys.argv[1:])", *map(str, command)],
        env={**os.environ, "OSTRAKA_PEPPER": PEPPER}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        with Client(f"http://127.0.0.1:{free_port}", key, patience=300.0) as client:
            answer = client.label([0.0] * 64)
            assert answer.label in range(10)
            assert client.label([0.0] * 64).label == answer.label
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=120)
    assert process.returncode in {0, -signal.SIGTERM}
    assert "serving 50 teachers at http://127.0.0.1" in err
    assert key not in err
    secret = (run / "service" / "ledger.secret").read_bytes()
    with Ledger(f"sqlite:///{db}", secret=secret, read_only=True) as ledger:
        paid = [entry for entry in ledger.entries() if entry.account == "erin" and entry.kind == "charge"]
    assert [entry.uses for entry in paid] == [1, 0]


def test_delta_is_below_one_of_the_units_of_the_run_or_below_one_where_no_run_is_on_record(run):
    code, _, err = serve(run, "--epsilon", 5, "--delta", repr(1 / 1150))
    assert (code, "--delta must be below 1 / 1150 units, got" in err) == (2, True)
    assert serve(run, "--epsilon", 5, "--delta", repr(0.9999 / 1150))[0] == 0
    shutil.rmtree(run / "service")
    (run / "result.json").unlink()
    note = "note: there is no record of a run, so --delta is not compared with 1 / units\n"
    code, out, err = serve(run, "--epsilon", 5, "--delta", 1.0)
    assert (code, out, err.startswith(note), "below 1 / 1 units" in err) == (2, "", True, True)
    code, out, err = serve(run, "--epsilon", 5, "--delta", 0.75)
    assert (code, err, "delta: 0.75\n" in out) == (0, note, True)


def test_what_is_typed_reaches_the_service(run, tmp_path, monkeypatch):
    apps, providers = [], []
    monkeypatch.setattr(server, "run", lambda app, **_: apps.append(app))
    monkeypatch.setattr("ostraka.serve.oidc.Tokens", lambda **how: providers.append(how) or "tokens")
    monkeypatch.chdir(tmp_path)
    for name in ("pem", "jwks"):
        (tmp_path / name).touch()
    (tmp_path / "witness").mkdir()
    begun = ("serve", run, "--epsilon", 5, "--delta", 1e-6, "--sigma", 40, "--screen", 30, 20)
    options = (
        "--rate 7 --burst 8 --most-bytes 9000 --most-rows 10 --answer-seconds 11 --two-owners --log-requests "
        "--oidc https://there --oidc-audience me --oidc-keys jwks --tls-cert pem --tls-key pem "
        "--owner-ca pem --anchor elsewhere --witness witness"
    )
    code, _, err = typed(*begun, *options.split())
    assert code == 0, err
    assert providers == [{"issuer": "https://there", "audience": "me", "keys": "jwks"}]
    app = apps.pop()
    assert (app._tokens, app._owner_certificates, app._log_requests) == ("tokens", True, True)
    assert app.deployment.settings == Settings(
        rate=7.0, burst=8, most_bytes=9_000, most_rows=10, answer_seconds=11.0, two_owners=True
    )
    saved = app.deployment.saved
    assert (saved.mechanism, saved.screen) == (GNMax(sigma=40.0), Threshold(at=30.0, sigma=20.0))
    assert app.deployment.label == json.loads((run / "privacy-label.json").read_text())
    assert app.deployment.ledger.budget.adaptive
    assert (tmp_path / "elsewhere").exists()
    assert not (run / "service" / "ledger.anchor").exists()
    assert list((tmp_path / "witness").iterdir())
    app.deployment.ledger.close()
    (run / "privacy-label.json").unlink()
    shutil.rmtree(run / "service")
    code, _, err = typed(*begun, "--oidc", "https://there", "--oidc-audience", "me")
    assert (code, providers[1:]) == (0, [{"issuer": "https://there", "audience": "me", "keys": ""}])
    app = apps.pop()
    assert (app._owner_certificates, app._log_requests, app.deployment.label) == (False, False, None)
    assert app.deployment.settings == Settings()
    app.deployment.ledger.close()


def test_the_unit_runs_the_program_that_was_typed_if_it_is_one(tmp_path, monkeypatch):
    beside = Path(sys.executable).with_name("ostraka")
    other, ours = tmp_path / "other", tmp_path / "bin" / "ostraka"
    ours.parent.mkdir()
    for path in (other, ours):
        path.touch(0o755)
    monkeypatch.setenv("PATH", str(ours.parent))
    for path, program in ((ours, ours), ("ostraka", ours), (other, beside), (tmp_path / "ostraka", beside)):
        monkeypatch.setattr(sys, "argv", [str(path), "serve", "a run", "--rate", "5", "--systemd"])
        unit = cli.systemd(Path("a run"))
        assert f"\nExecStart={program} serve '{Path('a run').resolve()}' --rate 5\n" in unit, path
    ours.chmod(0o644)
    monkeypatch.setattr(sys, "argv", [str(ours), "serve", "--systemd"])
    assert f"\nExecStart={beside} serve\n" in cli.systemd(Path("run"))
    assert unit.endswith("WantedBy=multi-user.target\n")


def test_nginx_is_told_an_address_as_it_writes_one():
    for host, written in (("10.0.0.1", "10.0.0.1"), ("::1", "[::1]"), ("localhost", "localhost")):
        page = cli.nginx("x.org", host=host, port=8001, most_bytes=7)
        assert f"    server {written}:8001;\n" in page
        assert page.endswith("}\n")


def test_the_page_of_one_person_is_opened_by_the_link_that_is_printed(tmp_path, monkeypatch):
    opened, table = [], tmp_path / "visits.csv"
    table.write_text("a,b\n1,2\n")

    class Server:
        def __init__(self, app, sock):
            self.app, self.sock = app, sock

        async def serve(self, started):
            opened.append((self.app, self.sock.getsockname()))
            assert started is server.take_signals
            self.sock.close()

    monkeypatch.setattr("ostraka.secure.server.Server", Server)
    monkeypatch.chdir(tmp_path)
    for as_json in (False, True):
        words = (
            ("visits.csv", "--ledger", "books") if as_json else ("--public", "visits.csv", "--folder", "own")
        )
        code, out, err = typed("ui", *words, *(["--json"] if as_json else []))
        assert (code, err) == (
            0, "open this link; it works once, and on this machine only. Ctrl-C ends it.\n",
        )  # fmt: skip
        bench, (host, port) = opened.pop()
        link = json.loads(out)["url"] if as_json else out.rstrip("\n")
        assert link == bench.opened(port)
        assert host == "127.0.0.1"
        assert bench.folder == tmp_path / ("ostraka-ui" if as_json else "own")
        assert bench.tables == {"private": table if as_json else None, "public": None if as_json else table}
        assert bench._ledger == (Path("books") if as_json else None)
    for words in (("none.csv",), ("--public", "none.csv")):
        code, out, err = typed("ui", *words)
        assert (code, out, "none.csv" in err) == (1, "", True)
    for port in (-1, 65_536):
        assert typed("ui", "--port", port)[0] == 2
    assert opened == []


class Process:
    """Stands for the service of the copy: what it says, and after how many looks it ends."""

    def __init__(self, says=b"", ends=None):
        self.says, self.ends, self.done = says, ends, []

    def __call__(self, command, *, stdout, stderr):
        assert stdout is stderr
        stdout.write(self.says)
        stdout.flush()
        self.command, run = command, Path(command[command.index("serve") + 1])
        self.copied = {path.name for path in run.rglob("*") if path.is_file()}
        return self

    def poll(self):
        if self.ends is not None:
            self.ends -= 1
        return 3 if self.ends is not None and self.ends < 0 else None

    def __getattr__(self, name):
        return lambda: self.done.append(name)


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A run that was served, on a clock; drilled(process, replies, *words) rehearses its loss."""
    monkeypatch.chdir(tmp_path)
    place = Path("run") / "service"
    place.mkdir(parents=True)
    secret = b"s" * 32
    with Ledger(
        place / "ledger.sqlite", budget=BUDGET, secret=secret, anchor=place / "ledger.anchor"
    ) as ledger:
        for name in "abc":
            ledger.grant(name, budget_epsilon=1.0)
    (place / "ledger.secret").write_bytes(secret)
    for name in ("keys.json", "keys.lock", "counts.json", "answers.secret"):
        (place / name).touch()
    (Path("run") / "teachers").mkdir()
    (Path("run") / "teachers" / "model").touch()
    (tmp_path / "scratch").mkdir()
    asked = []

    def drilled(process, replies, *words):
        queue, seconds = iter(replies), iter([10.0, 11.114, 13.35, 17.5])
        now = iter(range(0, 10_000, 50))  # each glance at the clock takes 50 seconds

        class Line:
            def __init__(self, url):
                self.url = url

            def ask(self, *request, **limits):
                asked.append((self.url, request, limits))
                reply = next(queue)
                if isinstance(reply, Exception):
                    raise reply
                return SimpleNamespace(status=reply)

        clock = SimpleNamespace(perf_counter=lambda: next(seconds), monotonic=lambda: next(now))
        monkeypatch.setattr("ostraka.secure.wire.Line", Line)
        monkeypatch.setattr("ostraka.serve.cli.time", clock)
        monkeypatch.setattr("ostraka.serve.cli.subprocess", SimpleNamespace(Popen=process))
        said = typed("drill", "run", "--scratch", "scratch", *words)
        assert list((tmp_path / "scratch").iterdir()) == []
        return said

    return drilled, asked


STAGES = "ledgers backed up and verified\ncopies restored and verified\nservices started from the copy\n"


def test_a_drill_says_what_was_lost_and_how_long_it_took(served):
    drilled, asked = served
    process = Process()
    words = ("--sigma", 40, "--screen", 3, 4.5, "--trust", "a.B", "--trust", "c.D")
    place = Path("run") / "service"
    with Ledger(place / "ledger.sqlite", secret=b"s" * 32, anchor=place / "ledger.anchor"):  # it goes on
        code, out, err = drilled(process, [Late("TimeoutError", sent=True), 200], *words)
    assert (code, err) == (0, STAGES)
    head = re.search(r"head ([0-9a-f]{64})\n", out)[1]
    assert out == (
        "lost: 0 of 3 entries that were on record before the backup (recovery point)\n"
        "again ready after 6.39 s (recovery time): restored and verified in 2.24 s, started in 4.15 s\n"
        f"the backup took 1.11 s: 3 entries, head {head}\n"
    )
    program, typed_words = process.command[:3], process.command[3:]
    assert program == [sys.executable, "-c", "from ostraka.cli import main; main()"]
    place, port = typed_words[1], typed_words[3]
    assert Path(place).name == "run"
    assert re.fullmatch(r"ostraka-drill-\w+", Path(place).parent.name)
    assert typed_words == [
        "serve", place, "--port", port,
        "--sigma", "40.0", "--screen", "3.0", "4.5", "--trust", "a.B", "--trust", "c.D",
    ]  # fmt: skip
    assert process.copied == {
        "ledger.sqlite", "ledger.anchor", "ledger.secret", "counts.json", "answers.secret", "model",
    }  # fmt: skip
    how = {"seconds": 2.0, "tries": math.inf, "most": 65_536, "fresh": True}
    assert asked == [(f"http://127.0.0.1:{port}", ("GET", "/ready"), how)] * 2
    assert process.done == ["terminate", "wait"]
    with socket.socket() as free:  # nobody else has the port
        free.bind(("127.0.0.1", int(port)))


def test_a_drill_that_loses_entries_fails_and_one_that_finds_more_does_not(served, monkeypatch):
    drilled, _ = served
    copied = SimpleNamespace(head="ab")
    monkeypatch.setattr(ledgers, "restore", lambda *_, **__: copied)
    for entries, lost in ((1, 2), (3, 0), (5, 0)):
        copied.entries = entries
        code, out, err = drilled(Process(), [503, 200], "--json")
        assert (code, err) == (int(lost > 0), STAGES)
        assert json.loads(out) == {
            "entries": entries, "head": "ab", "lost": lost, "seconds_backup": 1.11, "seconds_restore": 2.24,
            "seconds_start": 4.15, "seconds_recovery": 6.39,
        }  # fmt: skip
        assert out == json.dumps(json.loads(out), indent=2) + "\n"


@pytest.mark.parametrize(
    ("process", "n_asked", "words"),
    [
        (Process(b"ostraka: first\nostraka: other noise.\n\n", ends=1), 1, "ostraka: other noise"),
        (Process(b"", ends=0), 0, "it said nothing"),
        (Process(b"\xff still loading"), 2, "\ufffd still loading"),  # after two minutes
    ],
    ids=["ends", "ends at once", "takes too long"],
)
def test_a_drill_says_why_the_copy_does_not_answer(served, process, n_asked, words):
    drilled, asked = served
    code, out, err = drilled(process, [503] * 9)
    assert (code, out, len(asked)) == (1, "", n_asked)
    assert err.endswith(f"ostraka: the restored service did not start: {words}.\n")
    assert process.done == ["kill", "wait", "terminate", "wait"]


def test_a_drill_takes_the_secret_of_the_environment_where_there_is_one(served, monkeypatch):
    drilled, _ = served
    monkeypatch.setenv("OSTRAKA_LEDGER_SECRET", "00" * 32)
    code, _, err = drilled(Process(), [200])
    assert (code, "secret" in err) == (1, True)
    monkeypatch.setenv("OSTRAKA_LEDGER_SECRET", (b"s" * 32).hex())
    Path("run/service/ledger.secret").unlink()
    assert drilled(Process(), [200])[0] == 0


def test_a_drill_needs_a_folder_to_copy_to(served):
    code, _, err = typed("drill", "run", "--scratch", "none")
    assert (code, "none" in err) == (2, True)
