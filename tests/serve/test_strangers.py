"""Clients without a valid key, and clients that do not read: they may not stop those who have one."""

import contextlib
import json
import logging
import socket
import struct
import time

import pytest

from tests.serve.conftest import HEALTH, ONE, all_of, connected, deploy, question, serving


def test_a_valid_key_is_served_while_more_strangers_connect_than_there_is_room_for(tmp_path, saved):
    """On a connection that was there before, which stays, and on new ones."""
    room = {"strangers": (1e4, 10_000), "most_strangers": 40, "share": 1.0}
    with serving(deploy(tmp_path, saved), **room) as narrow, narrow.http() as http:
        assert http.get("/v1/budget").status_code == 200
        with contextlib.ExitStack() as stack:
            for n in range(100):
                stack.enter_context(connected(narrow)).sendall(HEALTH)
                if n % 30 == 0:
                    assert narrow.label(key=f"k{n}").status_code == 200
            assert http.get("/v1/budget").status_code == 200


def test_requests_without_a_valid_key_are_slowed_for_each_address(tmp_path, saved):
    with serving(deploy(tmp_path, saved), strangers=(0.5, 5)) as service:
        with service.http(None) as http:
            codes = [http.get("/v1/budget").status_code for _ in range(8)]
            assert codes == [401] * 5 + [429] * 3
            slowed = http.get("/health")
        assert (slowed.json()["code"], slowed.headers["retry-after"]) == ("too_many", "2")
        assert service.label(key="k").status_code == 200


def test_pipelined_requests_are_all_answered_in_order(shared):
    last = b"GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    key = f"Authorization: Bearer {shared.keys['alice']}\r\n\r\n".encode()
    request = HEALTH.replace(b"\r\n\r\n", b"\r\n" + key)
    with connected(shared) as connection:
        connection.sendall(request * 700 + last.replace(b"\r\n\r\n", b"\r\n" + key))
        got = all_of(connection)
    assert (got.count(b"HTTP/1.1 200 OK"), got.count(b"HTTP/1.1 404")) == (700, 1)
    assert got.rindex(b"HTTP/1.1 404") > got.rindex(b"HTTP/1.1 200 OK")


def send_on(connection, what):
    for _ in range(100):
        connection.sendall(what * 800)
        time.sleep(0.02)


def test_who_does_not_read_is_dropped_and_does_not_hold_up_the_end(tmp_path, saved):
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(serving(deploy(tmp_path, saved), write_seconds=0.2))
        deaf = stack.enter_context(connected(service))
        docs = HEALTH.replace(b"/health", b"/docs")
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(docs * 800)
        time.sleep(0.6)
        with pytest.raises(ConnectionError):  # it was dropped: nothing more is taken
            send_on(deaf, docs)
        service.limit(write_seconds=60.0)
        late = stack.enter_context(connected(service))
        late.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        late.sendall(docs * 800)
        time.sleep(0.3)
        start = time.monotonic()
    assert time.monotonic() - start < 30  # of the 60 seconds that it may take to read


NO_REQUESTS = [
    b"GET /health HTTP/1.1\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost:\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET /health HTTP/2.0\r\nHost: x\r\n\r\n",
    b"GET /health HTTP/0.9\r\nHost: x\r\n\r\n",
    b"GET /health\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost : x\r\n\r\n",
    b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"G\xc3\x89T / HTTP/1.1\r\nHost: x\r\n\r\n",
]


def test_what_is_no_request_is_refused_in_the_form_of_all_refusals(shared):
    for line in NO_REQUESTS:
        with connected(shared) as connection:
            connection.sendall(line)
            head, _, body = all_of(connection).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n"), line
        assert b"content-type: application/json" in head, line
        assert json.loads(body)["code"] == "bad_request", line


def test_a_client_that_disconnects_leaves_no_line_in_the_log(service, caplog):
    caplog.set_level(logging.WARNING)
    key = service.keys["alice"]
    for number, reset in enumerate((False, True)):
        questions = [question(key, f"{number}-{n}", ONE) for n in range(51)]
        many = b"".join(questions[1:])
        for sent in (b"", questions[0][:40], questions[0][:-5], questions[0], many):
            n_entries = len(service.entries())
            with connected(service) as client:
                client.sendall(sent)
                if reset:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            until = time.monotonic() + 5
            answerable = sent in {questions[0], many} and not reset
            while answerable and len(service.entries()) == n_entries and time.monotonic() < until:
                time.sleep(0.01)
    assert service.label(key="after").status_code == 200
    assert caplog.messages == []
