"""Parties in processes of their own, over HTTP on this machine; and a server that strangers poke at."""

import contextlib
import http.client
import multiprocessing
import signal
import socket
import threading
import time
import warnings
from email.message import Message

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from ostraka import Budget, Ledger, count_votes, release
from ostraka.parties.parties import PartyEnsemble
from ostraka.parties.party import Party
from ostraka.secure import wire
from ostraka.secure.agreement import Agreement
from ostraka.secure.keys import Identity
from ostraka.secure.rounds import PartyError, most_bytes
from ostraka.secure.wire import PartyServer
from tests.threads import Handler, at_once, http_server

NAMES = ("east", "north", "west")
PATIENCE = 120  # seconds for a process to start on a busy machine


def blobs(seed: int, n_rows: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.arange(n_rows) % 3
    return rng.normal(scale=1.5, size=(n_rows, 4)) + labels[:, None], labels


def agreed(members: dict[str, str], aggregator: Identity, max_rows: int) -> Agreement:
    terms = {"classes": [0, 1, 2], "n_features": 4, "sigma": 1.0, "max_rows": max_rows}
    return Agreement(members=members, aggregator=aggregator.public_key, **terms)


@pytest.fixture
def running():
    """Three processes with rows and keys of their own; addresses, agreement, aggregator, what kills one.

    They are forks of this process, which has the libraries already.
    """
    aggregator, identities = Identity.fresh(), {name: Identity.fresh() for name in NAMES}
    agreement = agreed({name: identity.public_key for name, identity in identities.items()}, aggregator, 64)
    fork, processes, urls = multiprocessing.get_context("fork"), {}, {}

    def serve(seed, name, receiver):
        party = Party(GaussianNB(), *blobs(seed), agreement=agreement, identity=identities[name])
        with PartyServer(party) as server:
            receiver.send(server.url)
            signal.pause()

    def kill(name):
        processes[name].kill()
        processes[name].join()

    try:
        for seed, name in enumerate(NAMES):
            told, tells = fork.Pipe(duplex=False)
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", DeprecationWarning
                )  # it does not use the threads that it lacks
                processes[name] = fork.Process(target=serve, args=(seed, name, tells), daemon=True)
                processes[name].start()
            assert told.poll(PATIENCE), "a party did not start in time"
            urls[name] = told.recv()
        yield urls, agreement, aggregator, kill
    finally:
        for name in processes:
            kill(name)


def expected(rows: np.ndarray) -> np.ndarray:
    return count_votes(
        [GaussianNB().fit(*blobs(seed)).predict(rows) for seed in range(len(NAMES))], n_classes=3
    )


def test_processes_count_what_their_models_would_vote_and_name_who_is_another_or_gone(running):
    # one test: whoever runs a part of these would start all three processes again
    urls, agreement, aggregator, kill = running

    def parties(urls=urls, agreement=agreement):
        return PartyEnsemble(urls, agreement=agreement, identity=aggregator, timeout=PATIENCE)

    def refusal(parties, match):
        with pytest.raises(PartyError, match=match) as caught:
            parties.vote(np.zeros((1, 4)))
        return caught.value

    rows = blobs(99, 150)[0]
    votes = parties().vote(rows)  # three rounds
    np.testing.assert_array_equal(votes.open(), expected(rows))
    with Ledger(":memory:", budget=Budget(epsilon=500.0, delta=1e-5)) as ledger:
        assert release(agreement.mechanism, votes[:3], ledger=ledger).shape == (3,)
    swapped = {**urls, "east": urls["west"], "west": urls["east"]}
    assert refusal(parties(swapped), "east: the signature of the reply").code == "wrong_identity"
    changed = Agreement.from_json(agreement.to_json().replace('"sigma":1.0', '"sigma":0.1'))
    assert refusal(parties(agreement=changed), "another agreement").parties == NAMES
    kill("north")
    gone = refusal(parties(), "north does not answer")
    assert (gone.parties, gone.code) == (("north",), "unreachable")


# one server in this process


@pytest.fixture
def server():
    identity, aggregator = Identity.fresh(), Identity.fresh()
    members = {name: Identity.fresh().public_key for name in ("ann", "bob")}
    agreement = agreed({**members, "eve": identity.public_key}, aggregator, 8)
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
    [("POST", "/", 404), ("POST", "/v1/join/..", 404), ("GET", "/v1/join", 405), ("DELETE", "/v1/vote", 405)],
)
def test_there_are_two_things_to_ask(server, verb, path, status):
    assert sent(server, verb, path)[0] == status


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (b"Content-Length: %d\r\n" % 10**11, 413),
        (b"Content-Length: %d\r\n" % 10**40, 400),
        (b"", 411),
        (b"Content-Length: -1\r\n", 400),
        (b"Content-Length: 1_0\r\n", 400),
        (b"Transfer-Encoding: chunked\r\n", 411),
        (b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", 400),  # a proxy may read it the other way
        (None, 413),  # one byte too long
    ],
)
def test_a_long_body_and_one_without_a_plain_length_are_refused_unread(server, header, status):
    if header is None:
        header = b"Content-Length: %d\r\n" % (most_bytes(server.server.application.party.agreement) + 1)
    answer = raw(server, b"POST /v1/vote HTTP/1.1\r\nHost: x\r\n" + header + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 %d" % status)


def test_what_goes_wrong_inside_stays_inside(server, caplog):
    def broken(_):
        raise RuntimeError("the private value 123.456")

    server.server.application.party.join = broken
    status, text = sent(server, "POST", "/v1/join", b"")
    assert status == 500
    assert "123.456" not in text + caplog.text
    assert "eve failed to answer: RuntimeError" in caplog.text


# a party that misbehaves, as the aggregator sees it


@contextlib.contextmanager
def impostor(answer):
    """The address of a server that does with each request what ``answer`` does."""

    class Impostor(Handler):
        def reply(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            answer(self)

    with http_server(Impostor) as port:
        yield f"http://127.0.0.1:{port}"


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
    kinds = set()

    def answer(handler):
        kinds.add(handler.headers["Content-Type"])
        handler.answer(status, body)

    real = PartyEnsemble.in_process(GaussianNB(), [blobs(k) for k in range(3)], classes=[0, 1, 2], sigma=1.0)
    with impostor(answer) as url:
        parties = PartyEnsemble(
            {**real.parties, "party-3": url}, agreement=real.agreement, identity=real._identity
        )
        with pytest.raises(PartyError, match=why) as caught:
            parties.vote(np.zeros((1, 4)))
    assert caught.value.parties == ("party-3",)
    assert kinds == {"application/octet-stream"}


def dripped(handler, what):
    with contextlib.suppress(OSError):
        for _ in range(200):
            handler.wfile.write(what)
            handler.wfile.flush()
            time.sleep(0.05)


@pytest.mark.parametrize(
    "answer",
    [
        lambda handler: time.sleep(10),
        lambda handler: dripped(handler, b"H"),
        lambda handler: (handler.send_response(200), dripped(handler, b"X-Y: z\r\n")),
        lambda handler: (
            handler.send_response(200),
            handler.send_header("Content-Length", "1000"),
            handler.end_headers(),
            dripped(handler, b"x"),
        ),
    ],
    ids=["silence", "a line", "a head", "a body"],
)
def test_a_deadline_holds_however_slowly_a_server_speaks(answer):
    with impostor(answer) as url:
        start = time.monotonic()
        with pytest.raises(PartyError, match="west does not answer"):
            wire.Remote("west", url, timeout=0.5).ask("join", b"x", 1000)
        assert time.monotonic() - start < 1.0


@pytest.mark.parametrize(
    "url",
    ["ftp://x", "127.0.0.1:80", "http://", "http://x/?a=b", "http://x:999999", "http://x:0", "http://["],
)
def test_addresses_of_another_form_are_refused(url):
    with pytest.raises(ValueError, match=r"address of west must be .*, got "):
        wire.Remote("west", url, timeout=1.0)


def test_a_server_can_be_closed_from_elsewhere_or_without_having_served(server):
    party = server.server.application.party
    closed = PartyServer(party)
    closed.close()
    closed.serve_forever()  # returns at once
    for _ in range(20):
        with PartyServer(party):
            pass
    idle = PartyServer(party)
    thread = threading.Thread(target=idle.serve_forever)
    thread.start()
    assert wire.Line(idle.url).ask("GET", "/health", seconds=PATIENCE, most=100, fresh=True).status == 200
    idle.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_the_next_address_of_a_host_is_tried_where_nobody_listens_at_the_first(server, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ports = listener.getsockname()[1], port(server)
    places = [socket.getaddrinfo("127.0.0.1", number, type=socket.SOCK_STREAM)[0] for number in ports]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: places)
    assert wire.Line(server.url).ask("GET", "/health", seconds=PATIENCE, most=99, fresh=True).status == 200


def test_a_proxy_that_opens_no_tunnel_is_left_at_once(monkeypatch):
    ends = []

    def proxy():
        connection, _ = listening.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            connection.settimeout(5)
            ends.append(connection.recv(1))
            closed.set()

    closed = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setenv("no_proxy", "")
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{listening.getsockname()[1]}")
        with at_once(proxy):
            with pytest.raises(wire.Late) as caught:
                wire.Line("https://127.0.0.1:9", direct=False).ask("GET", "/", seconds=PATIENCE, most=9)
            assert closed.wait(4), caught  # what is held by the error is open until it is forgotten
    assert ends == [b""]


def test_pauses_between_tries_double_and_vary_by_half():
    pauses = []
    line = wire.Line("http://127.0.0.1:9", transport=lambda *_: wire.Response(503, Message(), b""))
    for _ in range(20):
        answer = line.ask("GET", "/", seconds=1e6, most=9, tries=4, sleep=pauses.append)
        assert answer.status == 503
    shares = np.array(pauses).reshape(20, 3) / [0.05, 0.1, 0.2]
    assert shares.min() >= 0.5
    assert shares.max() <= 1.5
    assert shares.std() > 0.1  # of equally likely ones 0.29; below .1 with a chance under 1e-9


def test_a_path_before_the_verbs_is_kept():
    assert wire.Remote("west", "https://hospital.example/ostraka/", timeout=1.0)._line._path == "/ostraka"
