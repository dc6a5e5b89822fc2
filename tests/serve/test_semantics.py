"""What the service promises, one promise a section: docs/service.md names these tests.

The fourth promise is in ``test_refusals``, the tenth and the eleventh are in ``test_bindings``.
"""

import ast
import contextlib
import re
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import ostraka.service
from ostraka import Curve, Ledger
from ostraka.serve.keys import Keyring
from ostraka.voters import SavedTeachers
from tests.serve.conftest import ONE, PATIENCE, PEPPER, asking, deploy, question, rows, serving

SOURCES = [
    path
    for path in sorted(Path(ostraka.service.__file__).parent.glob("*.py"))
    # commands beside the service, and the page of one person, who sees the own rows
    if path.stem not in {"cli", "ui"}
]


class Held:
    """A ledger that waits before or after it charges, until it is let go; or that fails there."""

    def __init__(self, ledger: Ledger, *, after: bool = False, fails: BaseException | None = None) -> None:
        self.ledger, self.after, self.fails = ledger, after, fails
        self.reached, self.go = threading.Event(), threading.Event()

    def waited(self):
        return 0.0  # the database itself answers

    def charge_each(self, charges, **how):
        outcome = self.ledger.charge_each(charges, **how) if self.after else None
        self.reached.set()
        self.go.wait(PATIENCE)
        if self.fails:
            raise self.fails
        return outcome or self.ledger.charge_each(charges, **how)


def listening(port: int) -> socket.socket:
    """A connection to a service of another process, as soon as it listens."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


# 1. Charge before answer


@pytest.mark.parametrize("after", [False, True], ids=["before the charge", "before it is durable"])
def test_nothing_leaves_before_its_charge_is_on_stable_storage(service, after):
    held_ledger = service.there.batcher._ledger = Held(service.there.ledger, after=after)
    with asking(service, "k") as connection:
        assert held_ledger.reached.wait(PATIENCE)
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        held_ledger.go.set()
        connection.settimeout(PATIENCE)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    assert len(service.entries()) == 1


# 2. One charge and one answer for each key of a client


def test_a_key_pays_once_and_gets_the_same_answer_again(service):
    first, again = (service.label(key="k") for _ in range(2))
    assert first.status_code == again.status_code == 200
    assert first.json() == again.json()
    head = service.there.ledger.head
    refusal = service.label([9.0, 9.0, 9.0], key="k")  # another question
    assert (refusal.status_code, refusal.json()["code"]) == (409, "key_conflict")
    assert service.there.ledger.head == head
    assert len(service.entries()) == 1
    seq = service.label(key="k", who="bob").json()["receipt"]["seq"]
    assert seq != first.json()["receipt"]["seq"], "the same key of another client is another key"


def test_a_key_outlives_the_process(tmp_path, saved):
    with serving(deploy(tmp_path, saved)) as service:
        first = service.label(key="k").json()
    with serving(deploy(tmp_path, saved)) as service:
        assert service.label(key="k").json() == first
        assert len(service.entries()) == 1


def test_many_retries_at_once_pay_once(service):
    with ThreadPoolExecutor(12) as pool:
        replies = list(pool.map(lambda _: service.label(key="k"), range(12)))
    assert {reply.status_code for reply in replies} == {200}
    assert len({reply.text for reply in replies}) == 1
    assert len(service.entries()) == 1


def test_teachers_that_take_too_long_are_told_as_an_unknown_outcome_which_the_key_resolves(tmp_path, saved):
    service, go = deploy(tmp_path, saved, answer_seconds=0.2), threading.Event()
    answer = service.there.batcher._answerer.answer
    service.there.batcher._answerer.answer = lambda *rows, **how: go.wait(PATIENCE) and answer(*rows, **how)
    with serving(service):
        reply = service.label(key="k")
        assert (reply.status_code, reply.json()["code"]) == (503, "unavailable")
        assert "outcome is unknown: try again, with the same Idempotency-Key" in reply.json()["error"]
        go.set()
        service.limit(answer_seconds=PATIENCE)
        first = service.label(key="k")
        assert first.status_code == 200
        assert [entry.seq for entry in service.entries()] == [first.json()["receipt"]["seq"]]


# 3. No refunds


def test_who_leaves_before_the_answer_has_paid_and_gets_it_on_retry(service):
    held_ledger = service.there.batcher._ledger = Held(service.there.ledger)
    with asking(service, "k"):
        assert held_ledger.reached.wait(PATIENCE)
    held_ledger.go.set()
    reply = service.label(key="k")
    assert reply.status_code == 200
    assert [entry.seq for entry in service.entries()] == [reply.json()["receipt"]["seq"]]


# 5. Costs computed from the data are the owner's


def test_no_module_of_the_service_knows_data_dependent_costs():
    for path in SOURCES:
        names = {
            part
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom | ast.Import)
            for part in (node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name).split(
                "."
            )
        }
        exceptions = {"attacks", "audit", "report"} if path.name == "owner.py" else set()  # an example
        assert not names & {"accounting", "attacks", "audit", "learn", "report"} - exceptions, path.name


def test_a_cost_computed_from_the_data_stops_the_service_unanswered(tmp_path, saved, monkeypatch):
    monkeypatch.setattr("ostraka.secure.server._GRACE", 0.1)  # of an answer that does not come

    class Cheaper:
        def curve(self) -> Curve:
            plain = saved.mechanism.curve()
            return Curve(plain.orders, plain.rdp, plain.moves, publishable=False)

    stopped = threading.Event()
    service = deploy(tmp_path, saved, stop=lambda _: stopped.set())
    answer = service.there.batcher._answerer.answer
    with serving(service):
        price = Cheaper()
        service.there.batcher._answerer.answer = lambda features, *, ledger, requests: answer(
            features,
            ledger=ledger,
            requests=lambda draws: requests([draw._replace(cost=price) for draw in draws]),
        )
        with asking(service, "k") as connection:
            assert stopped.wait(PATIENCE)
            connection.settimeout(0.2)
            with pytest.raises(TimeoutError):
                connection.recv(1)
            assert service.entries() == []


# 6. Grants and caps are entries of the same chain


def test_grants_are_entries_of_the_chain_and_change_while_it_runs(service):
    def caps() -> list:
        return [
            (entry.account, entry.cap) for entry in service.there.ledger.entries() if entry.kind == "grant"
        ]

    assert {("alice", 20.0), ("bob", 20.0)} <= set(caps())
    before = service.there.keys.kept
    service.there.keys.grant("alice", epsilon=21.0, by="olga")
    service.there.keys.revoke("bob", by="otto")
    service.there._grant()
    service.there._note_keys()
    assert caps()[-1] == ("alice", 21.0)
    *_, granted, revoked = (entry.key for entry in service.there.ledger.notes())
    assert granted.endswith(": grant by olga")
    assert revoked.endswith(f": key {next(iter(before['bob'].keys))} of bob revoked by otto")
    with service.http() as http:
        assert http.get("/v1/budget").json()["epsilon"] == 21.0
    service.there.ledger.verify()


def test_keys_that_change_while_no_service_runs_are_in_the_chain_before_the_next_one_answers(tmp_path, saved):
    def notes() -> list[str]:
        """Of one service after the other, each of which makes three keys of its own."""
        with deploy(tmp_path, saved).there.ledger as ledger:
            return [entry.key.partition(": ")[2] for entry in ledger.notes()]

    assert len(notes()) == 3
    ring = Keyring(tmp_path / "service" / "keys.json", PEPPER)
    ring.add("eve", role="owner", by="olga")
    (number,) = ring.kept["eve"].keys
    added, revoked = f"key {number} of eve added by olga", f"key {number} of eve revoked by of eve added by x"
    assert notes().count(added) == 1
    ring.revoke("eve", by="of eve added by x")  # free text, which is not taken for another note
    notes()
    assert [note for note in notes() if number in note] == [added, revoked]
    assert len(notes()) == 3 * 5 + 2


# 7. The dataset's account first, then the client's: both or neither


def test_clients_who_collude_share_one_budget(tmp_path, saved):
    X = rows(12, seed=3)
    price = saved.mechanism.curve()
    affordable, budget = 7, 1.02 * (7 * price).epsilon(1e-6)
    with serving(deploy(tmp_path, saved, epsilon=budget, clients={"alice": 40.0, "bob": 40.0})) as service:
        replies = [
            service.label(row, key=f"k{number}", who=("alice", "bob")[number % 2])
            for number, row in enumerate(X)
        ]
        granted = [reply.status_code for reply in replies]
        assert granted == [200] * affordable + [402] * (12 - affordable)
        with service.http("olga") as http:
            shown = http.get("/v1/budget").json()
        assert shown["spent"] <= budget
        answered = {"alice": granted[::2].count(200), "bob": granted[1::2].count(200)}
        for account in shown["clients"]:
            want = (answered[account["client"]] * price).epsilon(1e-6)
            assert account["spent"] == pytest.approx(want, rel=1e-6), "not charged where the dataset refused"


# 8. No wall clock in any decision


def test_no_module_of_the_service_reads_the_wall_clock_but_for_the_owners_page():
    exceptions = {"counts.py", "metrics.py", "owner.py", "deployment.py"}
    for path in SOURCES:
        text = path.read_text()
        assert path.name == "counts.py" or not re.search(r"\btime\.time\(|localtime|gmtime", text), path.name
        assert path.name == "owner.py" or "datetime" not in text, path.name  # which formats what is recorded
        assert path.name in exceptions or not re.search(r"serve\.counts import .*\bnow\b", text), path.name


# 9. An unknown outcome of a commit stops the process

SERVER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from ostraka.ledger import LedgerError
from ostraka.ledger import Ledger
from ostraka.serve import server as _server
from ostraka.serve.app import Application
from ostraka.voters import SavedTeachers
from tests.serve.conftest import deploy
service = deploy(Path(sys.argv[1]), SavedTeachers.load(sys.argv[2]))
class Sabotaged:
    def charge_each(self, asked, **how):
        service.there.ledger.charge_each(asked, **how)
        raise LedgerError("the outcome of a commit is not known")
    def waited(self):
        return 0.0
service.there.batcher._ledger = Sabotaged()
print(service.keys["alice"], flush=True)
_server.run(Application(service.there), host="127.0.0.1", port=int(sys.argv[4]))
"""


def test_an_unknown_outcome_stops_the_process_and_the_retry_gets_what_was_charged(tmp_path, saved, free_port):
    saved.save(tmp_path / "teachers")
    root = str(Path(__file__).resolve().parents[2])
    arguments = [tmp_path, tmp_path / "teachers", root, free_port]
    command = [sys.executable, "-c", SERVER, *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    key = process.stdout.readline().strip()
    received = b""
    with listening(free_port) as connection, contextlib.suppress(ConnectionResetError):
        connection.sendall(question(key, "k", ONE))
        received = connection.recv(65536)
    _, err = process.communicate(timeout=PATIENCE)
    assert received == b"", "nothing is answered"
    assert process.returncode == 1
    assert "stopping; start the service again" in err
    assert "Traceback" not in err
    reloaded = SavedTeachers.load(tmp_path / "teachers")
    with serving(deploy(tmp_path, reloaded)) as service:
        before = service.entries()
        reply = service.label(key="k")
        assert reply.json()["receipt"]["seq"] == before[0].seq
        assert len(service.entries()) == len(before) == 1
