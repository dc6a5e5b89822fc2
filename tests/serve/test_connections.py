"""Requests below HTTP: slow, endless or ambiguous ones get no answer, nor does anyone from a moved ledger."""

import contextlib
import threading
import time
from pathlib import Path

import pytest

from ostraka.core.ledger.budget import LedgerMoved
from ostraka.ledger import LedgerError
from ostraka.secure.server import _Conversation
from ostraka.serve import deployment as _deployment
from tests.serve.conftest import HEALTH, PATIENCE, all_of, asking, connected, deploy, serving


def talk(service, *parts: bytes) -> bytes:
    """Send the parts on one connection; all that comes back until the service closes it."""
    key = service.keys["alice"].encode()
    with connected(service) as connection:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            for part in parts:
                connection.sendall(part.replace(b"KEY", key))
        return all_of(connection)


CHUNKED = b"POST /v1/label HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nIdempotency-Key: t\r\n"
WHOLE = b'12\r\n{"row": [1, 2, 3]}\r\n0\r\n'
JSON = b"Content-Type: application/json\r\n"
BEARER = b"Authorization: Bearer KEY\r\n"


AMBIGUOUS = {
    "a key in a trailer": (CHUNKED + JSON + b"\r\n" + WHOLE + BEARER + b"\r\n",),
    "a trailer": (CHUNKED + BEARER + JSON + b"\r\n" + WHOLE + b"X: y\r\n\r\n",),
    "an endless trailer": (CHUNKED + BEARER + JSON + b"\r\n" + WHOLE, b"X: " + b"y" * 600_000),
    "two keys": (CHUNKED + JSON + BEARER + BEARER + b"\r\n" + WHOLE + b"\r\n",),
    "two idempotency keys": (CHUNKED + JSON + BEARER + b"Idempotency-Key: u\r\n\r\n" + WHOLE + b"\r\n",),
    "a long header": (CHUNKED + JSON + BEARER + b"X: " + b"a" * 20_000 + b"\r\n\r\n" + WHOLE + b"\r\n",),
    "an endless header": (b"GET / HTTP/1.1\r\nX: " + b"a" * 40_000,),
    "an endless path": (b"GET /" + b"a" * 40_000,),
    "many headers": (CHUNKED + JSON + BEARER + b"X: a\r\n" * 3_000 + b"\r\n" + WHOLE + b"\r\n",),
    "a body of tiny pieces": (CHUNKED + JSON + BEARER + b"\r\n" + b"1\r\n \r\n" * 100_000,),
}


def test_a_request_that_is_ambiguous_or_endless_is_not_answered(service):
    replies = {case: talk(service, *parts) for case, parts in AMBIGUOUS.items()}
    assert [case for case, reply in replies.items() if b"200 OK" in reply] == []
    assert {replies[case] for case in AMBIGUOUS if "endless" in case} == {b""}  # left without a wait
    assert service.entries() == []
    complete_request = CHUNKED + JSON + BEARER + b"Connection: close\r\n\r\n" + WHOLE + b"\r\n"
    assert talk(service, complete_request).startswith(b"HTTP/1.1 200 OK")


def test_a_connection_that_was_answered_may_rest(service):
    service.limit(head_seconds=0.2)
    first, tries = b"", 50
    while not first and (tries := tries - 1):  # on a busy machine the first request may come too late
        with connected(service) as connection, contextlib.suppress(ConnectionError):
            connection.sendall(HEALTH)
            if first := connection.recv(65536):
                time.sleep(0.5)
                connection.sendall(HEALTH)
                again = connection.recv(65536)
    assert first.startswith(b"HTTP/1.1 200")
    assert again.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("move", ["removed", "rolled back"])
def test_a_ledger_that_was_moved_stops_the_service_before_the_next_answer(tmp_path, saved, move, monkeypatch):
    monkeypatch.setattr("ostraka.secure.server._GRACE", 0.1)  # of an answer that does not come
    stopped = threading.Event()
    with serving(deploy(tmp_path, saved, stop=lambda _: stopped.set())) as service:
        path = Path(service.there.ledger.path)
        older = path.read_bytes()
        assert service.label(key="k").status_code == 200
        path.unlink() if move == "removed" else path.write_bytes(older)
        with asking(service, "next") as connection:
            assert stopped.wait(PATIENCE)
            connection.settimeout(0.3)
            with pytest.raises(TimeoutError):
                connection.recv(1)


def test_the_log_says_what_to_do_after_a_stop(monkeypatch, caplog):
    codes = []
    monkeypatch.setattr(_deployment.os, "_exit", codes.append)
    monkeypatch.setattr(_deployment.logging, "shutdown", lambda: None)
    for error in (LedgerMoved("canary7391"), LedgerError("canary7391")):
        _deployment._stop(error)
    assert codes == [1, 1]
    assert "was removed, replaced or rolled back (LedgerMoved): stopping; put the newest" in caplog.text
    assert "the outcome of a charge is unknown (LedgerError): stopping; start the service" in caplog.text
    assert "canary7391" not in caplog.text


class Counted:
    """A transport that notes what is written to it."""

    def __init__(self, transport, written):
        self.transport, self.written = transport, written

    def write(self, data):
        self.written.append(bytes(data))
        self.transport.write(data)

    def __getattr__(self, name):
        return getattr(self.transport, name)


def test_a_reply_is_written_in_one_piece(service, monkeypatch):
    written, plain_made = [], _Conversation.connection_made
    monkeypatch.setattr(
        _Conversation,
        "connection_made",
        lambda self, transport: plain_made(self, Counted(transport, written)),
    )
    reply = service.label(key="k")
    assert reply.status_code == 200
    assert [each.startswith(b"HTTP/1.1 200 OK\r\n") for each in written] == [True]
    assert written[0].endswith(b"\r\n\r\n" + reply.content)


def test_the_answer_to_head_has_no_body_and_the_connection_goes_on(service):
    requests = b"HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n" + HEALTH.replace(
        b"Host", b"Connection: close\r\nHost"
    )
    first, second = talk(service, requests).split(b"\r\n\r\n", 1)
    assert first.startswith(b"HTTP/1.1 405 ")
    assert second.startswith(b"HTTP/1.1 200 ")
    assert second.endswith(b'{"ok": true}')
