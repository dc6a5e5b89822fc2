"""Parties in processes of their own, over HTTP on this machine; and a server that strangers poke at."""

import contextlib
import http.client
import os
import select
import socket
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from ostraka import Budget, Ledger, count_votes, release
from ostraka.secure import wire
from ostraka.secure.rounds import most_bytes
from ostraka.voters.parties import Agreement, Identity, Party, PartyEnsemble, PartyError, PartyServer

NAMES = ("east", "north", "west")
PATIENCE = 120  # seconds for a process to start on a busy machine
PARTY = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    import numpy as np
    from sklearn.naive_bayes import GaussianNB
    from ostraka.voters.parties import Agreement, Identity, Party, PartyServer

    folder, name = Path(sys.argv[1]), sys.argv[2]
    data = np.load(folder / f"{name}.npz")
    agreement = Agreement.from_json((folder / "agreement.json").read_text())
    identity = Identity.kept_at(folder / name)
    party = Party(GaussianNB(), data["X"], data["y"], agreement=agreement, identity=identity)
    with PartyServer(party) as server:
        print(server.url, flush=True)
        sys.stdin.read()  # until whoever started this closes the pipe, or ends
    """
)


def blobs(seed: int, n_rows: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.arange(n_rows) % 3
    return rng.normal(scale=1.5, size=(n_rows, 4)) + labels[:, None], labels


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """Three processes, each with its own file of rows and its own key; addresses, agreement, aggregator."""
    folder, aggregator = tmp_path_factory.mktemp("parties"), Identity.fresh()
    agreement = Agreement(
        members={name: Identity.kept_at(folder / name).public_key for name in NAMES},
        aggregator=aggregator.public_key,
        classes=[0, 1, 2],
        n_features=4,
        sigma=1.0,
        max_rows=64,
    )
    (folder / "agreement.json").write_text(agreement.to_json())
    for seed, name in enumerate(NAMES):
        rows, labels = blobs(seed)
        np.savez(folder / f"{name}.npz", X=rows, y=labels)
    processes = {
        name: subprocess.Popen(
            [sys.executable, "-c", PARTY, folder, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for name in NAMES
    }
    try:
        yield {name: said(process) for name, process in processes.items()}, agreement, aggregator, processes
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()


def said(process) -> str:
    ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
    assert ready, "the party did not start in time"
    return process.stdout.readline().strip()


def expected(rows: np.ndarray) -> np.ndarray:
    return count_votes(
        [GaussianNB().fit(*blobs(seed)).predict(rows) for seed in range(len(NAMES))], n_classes=3
    )


def test_processes_count_what_their_models_would_vote(running):
    urls, agreement, aggregator, _ = running
    parties = PartyEnsemble(urls, agreement=agreement, identity=aggregator, timeout=PATIENCE)
    rows = blobs(99, 150)[0]
    votes = parties.vote(rows)  # three rounds
    np.testing.assert_array_equal(votes.open(), expected(rows))
    with Ledger(":memory:", budget=Budget(epsilon=500.0, delta=1e-5)) as ledger:
        assert release(agreement.mechanism, votes[:3], ledger=ledger).shape == (3,)


def test_a_party_at_another_ones_address_is_noticed(running):
    urls, agreement, aggregator, _ = running
    swapped = {**urls, "east": urls["west"], "west": urls["east"]}
    parties = PartyEnsemble(swapped, agreement=agreement, identity=aggregator, timeout=PATIENCE)
    with pytest.raises(PartyError, match="east: the signature of the reply") as caught:
        parties.vote(np.zeros((1, 4)))
    assert caught.value.code == "wrong_identity"


def test_parties_under_another_agreement_refuse(running):
    urls, agreement, aggregator, _ = running
    other = Agreement.from_json(agreement.to_json().replace('"sigma":1.0', '"sigma":0.1'))
    parties = PartyEnsemble(urls, agreement=other, identity=aggregator, timeout=PATIENCE)
    with pytest.raises(PartyError, match="another agreement") as caught:
        parties.vote(np.zeros((1, 4)))
    assert caught.value.parties == NAMES


def test_a_process_that_ended_is_named(running):  # the last test that uses them
    urls, agreement, aggregator, processes = running
    processes["north"].kill()
    processes["north"].wait()
    parties = PartyEnsemble(urls, agreement=agreement, identity=aggregator, timeout=PATIENCE)
    with pytest.raises(PartyError, match="north does not answer") as caught:
        parties.vote(np.zeros((1, 4)))
    assert caught.value.parties == ("north",)
    assert caught.value.code == "unreachable"


# one server in this process


@pytest.fixture
def server():
    identity, aggregator = Identity.fresh(), Identity.fresh()
    members = {name: Identity.fresh().public_key for name in ("ann", "bob")}
    agreement = Agreement(
        members={**members, "eve": identity.public_key},
        aggregator=aggregator.public_key,
        classes=[0, 1, 2],
        n_features=4,
        sigma=1.0,
        max_rows=8,
    )
    with PartyServer(Party(GaussianNB(), *blobs(0), agreement=agreement, identity=identity)) as server:
        yield server


def port(server) -> int:
    return int(server.url.rpartition(":")[2])


def sent(server, verb, path, body=b"", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port(server), timeout=PATIENCE)
    try:
        connection.request(verb, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def raw(server, text: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port(server)), timeout=PATIENCE) as stream:
        stream.sendall(text)
        stream.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: stream.recv(4096), b""))


def test_strangers_get_a_refusal_in_one_form(server):
    status, text = sent(server, "POST", "/v1/join", b"\0" * 200)
    assert status == 403
    assert text == (
        '{"ok": false, "code": "wrong_identity", '
        '"error": "eve refuses: the signature of the call is not that of the agreed key"}'
    )


@pytest.mark.parametrize(
    ("verb", "path", "status"),
    [("POST", "/", 404), ("POST", "/v1/join/..", 404), ("GET", "/v1/join", 501), ("DELETE", "/v1/vote", 501)],
)
def test_there_are_two_things_to_ask(server, verb, path, status):
    assert sent(server, verb, path)[0] == status


def test_a_long_body_is_refused_unread(server):
    most = most_bytes(server._server.RequestHandlerClass.party.agreement)
    for length in (most + 1, 10**11, 10**40):
        head = f"POST /v1/vote HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
        assert raw(server, head.encode()).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"Content-Length: -1\r\n",
        b"Content-Length: 1_0\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",  # a proxy may read it the other way
    ],
)
def test_a_body_without_a_plain_length_is_refused(server, header):
    answer = raw(server, b"POST /v1/join HTTP/1.1\r\nHost: x\r\n" + header + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 411")


def test_silence_ends_the_conversation(server, monkeypatch):
    monkeypatch.setattr(server._server.RequestHandlerClass, "timeout", 0.2)
    head = b"POST /v1/join HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nfew"
    said, tries = b"", 50
    while not said and (tries := tries - 1):  # on a busy machine even the head may come too late
        with (
            socket.create_connection(("127.0.0.1", port(server)), timeout=PATIENCE) as stream,
            contextlib.suppress(ConnectionError),
        ):
            stream.sendall(head)
            said = stream.recv(4096)
    assert said.startswith(b"HTTP/1.1 408")


def test_more_clients_than_places_are_turned_away(server):
    taken = 0
    while server._server._places.acquire(blocking=False):
        taken += 1
    assert taken == wire._MOST_CLIENTS
    with pytest.raises((http.client.HTTPException, OSError)):
        sent(server, "POST", "/v1/join", b"")
    for _ in range(taken):
        server._server._places.release()
    assert sent(server, "POST", "/v1/join", b"")[0] == 403


def test_what_goes_wrong_inside_stays_inside(server, caplog):
    def broken(_):
        raise RuntimeError("the private value 123.456")

    server._server.RequestHandlerClass.party.join = broken
    status, text = sent(server, "POST", "/v1/join", b"")
    assert status == 500
    assert "123.456" not in text + caplog.text
    assert "eve failed to answer: RuntimeError" in caplog.text


# a party that misbehaves, as the aggregator sees it


class Impostor(wire._Handler):
    """Answers everything with one body."""

    party, most = None, 10**6
    status, body = 200, b""

    def _answer(self, answer, length):
        self.rfile.read(length)
        self._send(self.status, "application/json", self.body)

    def do_POST(self):  # noqa: N802  (the name it has above)
        self._answer(None, int(self.headers["Content-Length"]))


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (200, b"", "signature"),
        (200, b"x" * 5000, "more than 1024 bytes"),
        (500, b"<html>", "answers with status 500"),
        (409, b'{"code": "refused", "error": "\\u001b[2Jgone"}', r"^\?\[2Jgone$"),
        (409, b'{"code": ["x"], "error": 7}', "^7$"),
        (409, b'["code", "error"]', "answers with status 409"),
        (409, b'{"code": "surprise", "error": "hm"}', "hm"),
        (302, b"", "answers with status 302"),
    ],
)
def test_whatever_an_impostor_says_is_contained(status, body, why):
    handler = type("Handler", (Impostor,), {"status": status, "body": body})
    server = PartyServer.__new__(PartyServer)
    server._server, server._serving = wire._Server(("127.0.0.1", 0), handler), threading.Event()
    real = PartyEnsemble.in_process(GaussianNB(), [blobs(k) for k in range(3)], classes=[0, 1, 2], sigma=1.0)
    with server:
        parties = PartyEnsemble(
            {**real.parties, "party-3": server.url}, agreement=real.agreement, identity=real._identity
        )
        with pytest.raises(PartyError, match=why) as caught:
            parties.vote(np.zeros((1, 4)))
    assert caught.value.parties == ("party-3",)


@pytest.mark.parametrize("url", ["ftp://x", "127.0.0.1:80", "http://", "http://x/?a=b", "http://x:999999"])
def test_addresses_of_another_form_are_refused(url):
    with pytest.raises(ValueError, match=r"address of west|[Pp]ort"):
        wire.Remote("west", url, timeout=1.0)


def test_a_server_can_be_closed_from_elsewhere_or_without_having_served(server):
    party = server._server.RequestHandlerClass.party
    PartyServer(party).close()
    for _ in range(20):
        with PartyServer(party):
            pass
    other = PartyServer(party)
    thread = threading.Thread(target=other.serve_forever)
    thread.start()
    assert other._serving.wait(PATIENCE)
    other.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_path_before_the_verbs_is_kept():
    assert wire.Remote("west", "https://hospital.example/ostraka/", timeout=1.0)._path == "/ostraka"
