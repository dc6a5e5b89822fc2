"""The server in front of everything: strangers who are slow, silent or many, in clear and in TLS."""

import asyncio
import contextlib
import dataclasses
import datetime as dt
import gc
import ipaddress
import json
import re
import resource
import select
import socket
import ssl
import threading
import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from ostraka.secure.server import Limits, Refused, Reply, Server, Strangers, listening, networks
from ostraka.secure.wire import Late, Line, PartyServer
from tests.threads import at_once

PATIENCE = 60.0  # seconds, on a busy machine
HALF_HELLO = b"\x16\x03\x01\x02\x00"
HEAD = b"POST /v1/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"


class Echo:
    """An application that answers with the body, when it may."""

    server = None

    def __init__(self, *, go=None, **limits):
        self.limits, self.go, self.asked = Limits(**{"most_body": 2**20, **limits}), go, 0

    async def start(self):
        pass

    close = start

    def admit(self, request):
        if request.path == "/none":
            request.refused = Refused(404, "not_found")
        return b"authorization" in request.headers

    async def reply(self, request):
        if request.refused is not None:
            return request.refused.reply
        self.asked += 1
        if self.go is not None:
            await asyncio.to_thread(self.go.wait, PATIENCE)
        return Reply(200, request.body or b"nothing", b"text/plain")


@contextlib.contextmanager
def served(application, **how):
    """Serve an application from a thread; the port, and the server."""
    ready, sock = threading.Event(), listening("127.0.0.1", 0)
    server = Server(application, sock, **how)
    thread = threading.Thread(target=asyncio.run, args=(server.serve(lambda _: ready.set()),))
    thread.start()
    assert ready.wait(PATIENCE)
    try:
        yield sock.getsockname()[1], server, server.loop
    finally:
        server.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def stranger(port, greeting=b""):
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    connection.sendall(greeting)
    return connection


def ask(port, *, body=b"hello", tls=None, seconds=PATIENCE, **headers):
    """One request on a connection of its own."""
    line = Line(f"{'https' if tls else 'http'}://127.0.0.1:{port}")
    line._tls = tls
    return line.ask("POST", "/v1/echo", body, headers, seconds=seconds, most=2**20, fresh=True)


def wait_while(busy):
    end = time.monotonic() + PATIENCE
    while busy():
        assert time.monotonic() < end
        time.sleep(0.005)


def all_of(connection):
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            got += part
    return got


class Party:
    """Somebody with one message, as a tally, a keeper, a party and a dealer are."""

    name, most_bytes = "somebody", 2**20
    answers = {"/v1/echo": lambda body: body}  # noqa: RUF012


@pytest.mark.parametrize(
    "greeting", [b"", b"POST /v1/ec", HEAD, HEAD + b"drop"], ids=["", "head", "body", "drip"]
)
def test_slow_strangers_do_not_close_a_party(greeting):
    with PartyServer(Party()) as server, contextlib.ExitStack() as stack:
        port = int(server.url.rpartition(":")[2])
        strangers = [stack.enter_context(stranger(port, greeting)) for _ in range(64)]
        assert [ask(port).body for _ in range(5)] == [b"hello"] * 5
        for client in strangers:  # those that go on dripping do not hold anything up, either
            with contextlib.suppress(OSError):
                client.sendall(b"x")
        assert ask(port).body == b"hello"


@pytest.mark.parametrize(
    ("longest", "held", "at_once"), [(2**10, 2**27, 512), (2**20, 2**27, 256), (2**27, 2**28, 64)]
)
def test_a_party_holds_two_of_its_longest_messages(longest, held, at_once, monkeypatch):
    """Strangers send them, too: nobody's signature is checked before a message is whole."""
    monkeypatch.setattr(Party, "most_bytes", longest)
    with PartyServer(Party()) as server:
        limits = server.server.application.limits
    assert (limits.most_body, limits.most_held, limits.at_once) == (longest, held, at_once)


def test_the_oldest_stranger_goes_and_whoever_works_stays():
    go = threading.Event()
    with served(Echo(go=go, most_strangers=20, share=1.0)) as (port, server, _):
        answers = []
        working = threading.Thread(target=lambda: answers.append(ask(port)))
        working.start()
        wait_while(lambda: not server.application.asked)
        with contextlib.ExitStack() as stack:
            strangers = [stack.enter_context(stranger(port)) for _ in range(60)]
            wait_while(lambda: server.strangers.dropped < 40)
            go.set()
            working.join(PATIENCE)
            assert answers[0].body == b"hello"
            assert ask(port).body == b"hello"
            assert strangers[0].recv(1) == b""
            strangers[-1].settimeout(0.05)
            with pytest.raises(TimeoutError):
                strangers[-1].recv(1)
            assert len(server.strangers) <= 20


@pytest.mark.parametrize(
    ("greeting", "status"),
    [(b"", b""), (b"GET /", b"408"), (HEAD, b"408"), (HEAD + b"few", b"408"), (b"\r\n\r\n", b"")],
    ids=["silence", "a line", "a head", "a body", "empty lines"],
)
def test_every_wait_ends_and_says_so(greeting, status):
    with served(Echo(head_seconds=0.3, least_rate=1e9)) as (port, _, _), stranger(port, greeting) as client:
        start = time.monotonic()
        assert all_of(client)[9:12] == status
        assert time.monotonic() - start < 5


@pytest.mark.parametrize("greeting", [b"", b"GET / HT"], ids=["silence", "a line"])
def test_a_delay_of_the_server_itself_is_not_the_clients(greeting):
    with served(Echo()) as (port, server, loop), stranger(port, greeting) as client:
        deadlines = None
        wait_while(lambda: not server.open)

        def stop_the_loop():  # for a minute, as far as it can tell: nothing of it ran
            nonlocal deadlines
            deadlines, clock = {connection: connection.deadline for connection in server.open}, loop.time
            loop.time = lambda: clock() + 60

        loop.call_soon_threadsafe(stop_the_loop)
        wait_while(
            lambda: (
                not deadlines
                or any(
                    connection in server.open and connection.deadline == at
                    for connection, at in deadlines.items()
                )
            )
        )
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[len(greeting) :])
        assert b"200 OK" in client.recv(65536)


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_a_request_that_is_read_in_one_piece_may_be_as_long_as_one_in_several(ahead):
    go, request = threading.Event(), HEAD.replace(b"100000", b"60000") + bytes(60_000)
    with served(Echo()) as (port, server, loop), stranger(port) as client:
        wait_while(lambda: not server.open)
        loop.call_soon_threadsafe(go.wait, PATIENCE)  # so all of it waits to be read when the loop goes on
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * ahead + request)
        go.set()
        got = b""
        while not got.endswith(bytes(60_000)):
            part = client.recv(1 << 16)
            assert part, got[:200]
            got += part


def test_who_leaves_in_the_middle_of_a_body_leaves_no_trace(caplog):
    with served(Echo()) as (port, server, _):
        for _ in range(5):
            stranger(port, HEAD + b"x").close()
            time.sleep(0.05)
            wait_while(lambda: server.open)
        assert not server.open
    gc.collect()  # of tasks whose exception nobody asked for
    assert not caplog.records


def test_a_body_has_time_for_its_length_and_no_more():
    with served(Echo(head_seconds=0.2, least_rate=100_000)) as (port, _, _), stranger(port, HEAD) as client:
        for _ in range(8):
            time.sleep(0.1)
            client.sendall(bytes(12_500))
        assert b"200 OK" in client.recv(65536)
    with served(Echo(head_seconds=0.2, least_rate=1e6)) as (port, _, _), stranger(port, HEAD) as client:
        assert all_of(client)[9:12] == b"408"


def test_a_client_that_rests_too_long_is_left():
    with served(Echo(idle_seconds=0.3)) as (port, _, _), stranger(port) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200 OK" in client.recv(65536)
        assert client.recv(1) == b""


def test_an_answer_that_takes_too_long_is_told_as_unknown():
    go = threading.Event()
    with served(Echo(go=go, answer_seconds=0.3)) as (port, server, _):
        answer = ask(port)
        assert (answer.status, json.loads(answer.body)["code"]) == (503, "unavailable")
        assert "the same Idempotency-Key" in json.loads(answer.body)["error"]
        assert len(server.working) == 1, "it still counts as running"
        go.set()
        wait_while(lambda: server.working)
        assert not server.working


def test_answers_at_once_are_bounded_and_the_rest_is_told_to_come_again():
    go = threading.Event()
    with served(Echo(go=go, at_once=2)) as (port, server, _), contextlib.ExitStack() as stack:
        question = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        waiting = [stack.enter_context(stranger(port, question)) for _ in range(2)]
        wait_while(lambda: len(server.working) < 2)
        third = ask(port)
        assert (third.status, json.loads(third.body)["code"], third.pause) == (503, "busy", 1.0)
        go.set()
        assert [b"200 OK" in connection.recv(65536) for connection in waiting] == [True, True]


def test_unfinished_bodies_are_bounded_and_the_longest_goes():
    with served(Echo(most_held=150_000)) as (port, server, _), stranger(port, HEAD) as short:
        short.sendall(bytes(40_000))
        with stranger(port, HEAD.replace(b"100000", b"900000")) as long:
            with contextlib.suppress(ConnectionError):
                long.sendall(bytes(800_000))
            assert all_of(long) == b""
        short.sendall(bytes(60_000))
        assert b"200 OK" in short.recv(65536)
        assert server.held == 0


def test_bodies_that_wait_for_their_answer_are_held_too():
    go = threading.Event()
    with (
        served(Echo(go=go, most_held=150_000)) as (port, server, _),
        stranger(port, HEAD + bytes(100_000)) as client,
        stranger(port, HEAD) as second,
    ):
        wait_while(lambda: not server.working)
        with contextlib.suppress(ConnectionError):
            second.sendall(bytes(60_000))
        assert all_of(second) == b""
        assert server.held == 100_000
        go.set()
        assert b"200 OK" in client.recv(65536)
        assert server.held == 0


def test_long_bodies_of_one_address_do_not_drop_that_of_another():
    with served(Echo(most_held=200_000)) as (port, server, _), contextlib.ExitStack() as stack:
        neighbour = socket.create_connection(("127.0.0.1", port), PATIENCE, source_address=("127.0.0.2", 0))
        neighbour = stack.enter_context(neighbour)
        neighbour.sendall(HEAD + bytes(90_000))  # longer than any of the others
        wait_while(lambda: server.held < 90_000)
        others = [stack.enter_context(stranger(port, HEAD + bytes(40_000))) for _ in range(3)]
        assert len(select.select([neighbour, *others], [], [], PATIENCE)[0]) == 1  # one of them has ended
        neighbour.sendall(bytes(10_000))
        assert b"200 OK" in neighbour.recv(65536)


def test_an_answer_is_strict_json():
    with pytest.raises(ValueError, match="JSON"):
        Reply.json({"left": float("nan")})


def test_a_client_may_end_its_side_before_the_answer():
    with served(Echo()) as (port, _, _), stranger(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") as client:
        client.shutdown(socket.SHUT_WR)
        assert all_of(client).endswith(b"nothing")


def test_what_is_refused_by_its_head_keeps_its_turn():
    with served(Echo()) as (port, _, _), stranger(port) as client:
        get, none = (b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path for path in (b"/", b"/none"))
        client.sendall(get + none + get + b"nonsense\r\n\r\n" + get)
        got = all_of(client)
    assert re.findall(rb"HTTP/1.1 (\d+)", got) == [b"200", b"404", b"200", b"400"]


def test_a_refusal_arrives_though_the_body_is_still_on_its_way():
    with served(Echo(most_body=1000)) as (port, server, _):
        line = Line(f"http://127.0.0.1:{port}")
        for path, n_bytes, status in (("/none", 5_000_000, 404), ("/v1/echo", 2_000_000, 413)):
            how = {"seconds": PATIENCE, "most": 1000, "fresh": True}
            assert line.ask("POST", path, bytes(n_bytes), **how).status == status
        with stranger(port, HEAD.replace(b"/v1/echo", b"/none")) as client:  # which never comes
            start = time.monotonic()
            assert b" 404 " in all_of(client)
            wait_while(lambda: server.open)
            assert time.monotonic() - start < 3


# TLS


def pair(folder, name):
    """A certificate of this machine and its key, as files."""
    key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "cert.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    (folder / "key.pem").write_bytes(pem)
    return {"certificate": folder / "cert.pem", "key": folder / "key.pem"}


def trusting(folder):
    return ssl.create_default_context(cafile=str(folder / "cert.pem"))


@pytest.mark.parametrize("greeting", [b"", HALF_HELLO], ids=["silent", "half a hello"])
def test_strangers_who_do_not_shake_hands_do_not_close_a_server_with_tls(tmp_path, greeting):
    files = pair(tmp_path, "one")
    with served(Echo(most_strangers=30, share=1.0), **files) as (port, server, _):
        with contextlib.ExitStack() as stack:
            for _ in range(100):
                stack.enter_context(stranger(port, greeting))
            assert [ask(port, tls=trusting(tmp_path)).body for _ in range(5)] == [b"hello"] * 5
            assert len(server.strangers) <= 30
        wait_while(lambda: server.open)
        assert (len(server.open), len(server.strangers), server.strangers._count.total()) == (0, 0, 0)


def test_a_greeting_in_pieces_costs_no_handshake_until_it_is_whole(tmp_path):
    with served(Echo(), **pair(tmp_path, "one")) as (port, server, _), stranger(port, b"") as sock:
        came, goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = trusting(tmp_path).wrap_bio(came, goes, server_hostname="127.0.0.1")
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        hello = goes.read()
        wait_while(lambda: not server.open)
        for piece in (hello[:1], hello[1:5], hello[5:200]):
            sock.sendall(piece)
            time.sleep(0.02)
            assert [connection._task for connection in tuple(server.open)] == [None]
        sock.sendall(hello[200:])
        came.write(sock.recv(1 << 16))
        with contextlib.suppress(ssl.SSLWantReadError):
            tls.do_handshake()
        assert tls.version() == "TLSv1.3"


def test_a_handshake_has_a_deadline_and_other_protocols_and_endless_greetings_are_left(tmp_path):
    with served(Echo(head_seconds=0.3), **pair(tmp_path, "one")) as (port, _, _):
        for greeting in (b"\x16\x03\x01\xff\xff", b"GET / HTTP/1.1\r\n\r\n", HALF_HELLO):
            with stranger(port, greeting) as client:
                assert all_of(client) == b""
        assert ask(port, tls=trusting(tmp_path)).body == b"hello"


def test_a_new_certificate_is_taken_and_a_broken_one_is_not(tmp_path):
    files = pair(tmp_path, "one")
    with served(Echo(), **files) as (port, server, loop):
        first = trusting(tmp_path)
        assert ask(port, tls=first).body == b"hello"
        pair(tmp_path, "two")
        loop.call_soon_threadsafe(server.reload)
        done = asyncio.run_coroutine_threadsafe(asyncio.to_thread(int), loop)
        done.result(PATIENCE)  # what was called before has run
        with pytest.raises(Late, match="SSLCertVerificationError"):
            ask(port, tls=first)
        assert ask(port, tls=trusting(tmp_path)).body == b"hello"
        (tmp_path / "key.pem").write_text("broken")
        with pytest.raises(OSError, match=r".*"):
            server.reload()
        assert ask(port, tls=trusting(tmp_path)).body == b"hello"


# the client


def test_a_connection_is_kept_and_one_that_the_server_closed_is_not_used():
    with served(Echo(idle_seconds=0.3)) as (port, server, _):
        line = Line(f"http://127.0.0.1:{port}")
        how = {"seconds": PATIENCE, "most": 1000}
        assert [line.ask("GET", "/", **how).body for _ in range(3)] == [b"nothing"] * 3
        (connection,) = server.open
        assert line.ask("GET", "/", fresh=True, **how).body == b"nothing"
        wait_while(lambda: len(server.open) > 1)
        assert server.open <= {connection}
        wait_while(lambda: server.open)
        assert line.ask("GET", "/", **how).body == b"nothing"
        line.close()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_of_the_environment_is_used_where_it_may_be(tmp_path, monkeypatch, scheme):
    pair(tmp_path, "one")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    heads = []

    def head(connection):
        got = b""
        while not got.endswith(b"\r\n\r\n"):
            got += connection.recv(1)
        heads.append(got.decode())

    def proxy():
        connection, _ = sock.accept()
        with connection:
            head(connection)
            if scheme == "https":
                connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                connection = context.wrap_socket(connection, server_side=True)
                head(connection)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            connection.close()

    with socket.create_server(("127.0.0.1", 0)) as sock:
        monkeypatch.setenv(f"{scheme}_proxy", f"http://ann:p%20w@127.0.0.1:{sock.getsockname()[1]}")
        monkeypatch.setenv("no_proxy", "")
        line = Line(f"{scheme}://127.0.0.1:9/base", direct=False)
        line._tls = line._tls and trusting(tmp_path)
        with at_once(proxy):
            assert line.ask("GET", "/x", seconds=PATIENCE, most=10, fresh=True).body == b"ok"
    start = "CONNECT 127.0.0.1:9 HTTP/1.1" if scheme == "https" else "GET http://127.0.0.1:9/base/x HTTP/1.1"
    assert heads[0].startswith(start)
    assert "Proxy-Authorization: Basic YW5uOnAgdw==" in heads[0]
    assert heads[-1].startswith("GET /base/x HTTP/1.1" if scheme == "https" else start)
    assert scheme == "http" or "Proxy" not in heads[1]


def test_who_shows_a_key_is_no_stranger_before_the_body_is_there():
    head = b"POST /v1/echo HTTP/1.1\r\nHost: x\r\nAuthorization: key\r\nContent-Length: 5\r\n\r\n"
    with served(Echo()) as (port, server, _), contextlib.closing(stranger(port, head)):
        wait_while(lambda: not server.open or len(server.strangers))


# strangers, counted


@dataclasses.dataclass(eq=False)
class Fake:
    ended: bool = False

    def drop(self):
        self.ended = True


def test_strangers_never_take_more_than_half_of_the_descriptors(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    with served(Echo()) as (_, server, _):
        assert server.strangers._most == 32


def test_an_answered_stranger_goes_before_one_that_waits():
    strangers = Strangers(most=3, share=1.0)
    first, second, third, fourth = (Fake() for _ in range(4))
    for connection in (first, second, third):
        strangers.arrived(connection, "192.0.2.1")
    strangers.left(second)
    strangers.arrived(second, "192.0.2.1", answered=True)
    strangers.arrived(fourth, "192.0.2.2")
    assert [one.ended for one in (first, second, third, fourth)] == [False, True, False, False]
    strangers.left(first)
    assert len(strangers) == 2


def test_one_address_cannot_push_out_another():
    strangers = Strangers(most=10, share=0.5, proxies=networks(["198.51.100.7"]))
    quiet, noisy = Fake(), [Fake() for _ in range(50)]
    strangers.arrived(quiet, "192.0.2.1")
    for connection in noisy:
        strangers.arrived(connection, "203.0.113.9")
    assert not quiet.ended
    assert sum(not one.ended for one in noisy) == 5
    proxied = [Fake() for _ in range(4)]
    for connection in proxied:
        strangers.arrived(connection, "198.51.100.7")
    assert not any(one.ended for one in proxied)


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("203.0.113.9", b"192.0.2.1", "203.0.113.9"),  # not a named proxy: its word counts for nothing
        ("10.0.0.1", b"192.0.2.1", "192.0.2.1"),
        ("10.0.0.1", b"9.9.9.9, 192.0.2.1", "192.0.2.1"),
        ("10.0.0.1", b"9.9.9.9, 192.0.2.1, 10.0.0.2", "192.0.2.1"),
        ("10.0.0.1", b"10.0.0.3", "10.0.0.3"),
        ("10.0.0.1", b"", "10.0.0.1"),
        ("10.0.0.1", b"<script>", "unreadable"),
        ("2001:db8::1", b"", "2001:db8::/64"),
        ("2001:db8::ffff:1", b"", "2001:db8::/64"),
    ],
)
def test_forwarded_addresses_count_from_named_proxies_only(peer, forwarded, address):
    assert Strangers(most=10, share=0.5, proxies=networks(["10.0.0.0/8"])).address(peer, forwarded) == address


def test_a_proxy_is_an_address_or_a_network():
    with pytest.raises(ValueError, match="proxy must be an address or a network"):
        networks(["nginx"])
