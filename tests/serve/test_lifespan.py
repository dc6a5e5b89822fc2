"""Start and end of the service, and what it decides about a request, without a server or a ledger.

The owner's page is drawn first, and the ledger is closed in the end.
"""

import asyncio
import itertools
import json
import logging
import re
import threading
import time
from types import SimpleNamespace

import pytest

from ostraka.core.ledger.budget import LedgerUnavailable
from ostraka.ledger import LedgerError
from ostraka.secure.server import Limits, Reply, Request
from ostraka.serve import app
from ostraka.serve.app import Application, Keyed, Route
from ostraka.serve.deployment import Settings
from ostraka.serve.keys import Holder
from ostraka.serve.requests import Refused, Rows
from ostraka.voters.endpoint import EndpointError

WHOLE = ["drawn", "started", "closed"]


@pytest.fixture
def events():
    return []


@pytest.fixture
def served(events):
    """An application whose ledger says when it is closed."""

    async def close():
        events.append("closed")

    rows = Rows(("a",), (True,), most=1)
    deployment = SimpleNamespace(
        start=lambda: None, close=close, rows=rows, classes=["yes", "no"], settings=Settings(), keys=None
    )
    return Application(deployment)


def live(served, events, *, draw=lambda: None):
    """Start and stop an application as its server does; its first page ends after the start, or in 0.2 s."""

    async def both():
        await served.start()
        events.append("started")
        released.set()
        await served.close()

    def overview(_):
        released.wait(0.2)
        events.append("drawn")
        draw()

    released = threading.Event()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(app, "overview", overview)
        patched.setattr(app, "render", lambda _: None)
        asyncio.run(both())


def test_the_first_page_is_drawn_before_clients_are_let_in(served, events):
    live(served, events)
    assert events == WHOLE


def test_a_page_that_takes_long_does_not_hold_up_the_start(served, events, monkeypatch):
    """Not for more than five seconds."""
    waits, wait = [], asyncio.wait

    async def noted(tasks, **how):
        waits.append(how.get("timeout"))
        return await wait(tasks, timeout=0.01 if how else None)

    monkeypatch.setattr(asyncio, "wait", noted)
    live(served, events)
    assert events == ["started", "drawn", "closed"]
    assert waits == [5.0, None]


@pytest.mark.parametrize(
    ("error", "logged"),
    [(ValueError("canary7391"), "unexpected ValueError in drawn"), (LedgerError("canary7391"), "")],
    ids=["of the page", "of the ledger"],
)
def test_the_ledger_is_closed_in_the_end_though_no_page_can_be_drawn(served, events, caplog, error, logged):
    def drawn():
        raise error

    with caplog.at_level(logging.INFO, "ostraka.service"):
        live(served, events, draw=drawn)
    assert events == WHOLE
    assert "canary7391" not in caplog.text
    assert (logged in caplog.text) if logged else not caplog.text


# What is decided before and around a handler, without a server


class Answers(Keyed):
    """A service of a few routes that do what is said of them; the refusals that it counts."""

    def __init__(self, handlers, keys, **changes):
        routes = [
            Route(method, path, roles, handler, "") for (method, path, roles), handler in handlers.items()
        ]
        document = {"components": {"schemas": {}}, "paths": {}, "info": {"title": ""}}
        super().__init__(routes, keys, limits=None, document=document, **{"log_requests": False} | changes)
        self.counted = []

    def refused(self, client, code):
        self.counted.append((client, code))


async def echo(_, request):
    return Reply.json({"last": request.last})


def fails(error):
    async def handler(_, request):
        raise error

    return handler


class Keys:
    """Two keys, unless the file of keys cannot be read."""

    readable = True

    def holder(self, key):
        holders = {
            b"a": Holder("alice", "client"),
            b"o": Holder("olga", "owner"),
            b"p.q.r": Holder("p", "client"),
        }
        return holders.get(key) if self.readable else None

    def owner(self, subject):
        return Holder("petra", "owner", subject) if subject else None


HANDLERS = {
    ("GET", "/", ("owner",)): echo,
    ("GET", "/open", ()): echo,
    ("POST", "/open", ()): echo,
    ("GET", "/of/{seq}", ("client", "owner")): echo,
    ("GET", "/away", ("client",)): fails(LedgerUnavailable("canary")),
    ("GET", "/voters", ("client",)): fails(EndpointError("canary")),
    ("GET", "/full", ("client",)): fails(Refused(402, "budget_exceeded")),
    ("GET", "/defect", ("client",)): fails(KeyError("canary")),
}


def asked(app, path, key="", *, method="GET", **headers):
    """Whether a request is of a holder, and the status, code and further headers of its reply."""
    sent = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    request = Request(method=method, path=path, headers=sent | {b"authorization": b"Bearer " + key.encode()})
    request.peer = "192.0.2.1"
    admission = app.admit(request)
    reply = asyncio.run(app.reply(request))
    body = json.loads(reply.body)
    return admission, reply.status, body.get("code", body.get("last")), *reply.more


def test_a_route_is_found_and_who_may_use_it():
    app = Answers(HANDLERS, Keys())
    basic, bearer = ((b"www-authenticate", b'%s realm="ostraka"' % name) for name in (b"Basic", b"Bearer"))
    assert asked(app, "/open") == (False, 200, "")
    assert asked(app, "/open", "a") == (True, 200, "")
    assert asked(app, "/open", method="PUT") == (False, 405, "bad_method", (b"allow", b"GET, POST"))
    assert asked(app, "/open", method="POST") == (False, 415, "bad_content")
    assert asked(app, "/open", method="POST", content_type="application/json") == (False, 200, "")
    assert asked(app, "/", "o") == (True, 200, "")
    assert asked(app, "/") == (False, 401, "unauthorized", basic)
    assert asked(app, "/", "a") == (True, 403, "forbidden")
    assert asked(app, "/of/17", "a") == (True, 200, "17")
    assert asked(app, "/of/17") == (False, 401, "unauthorized", bearer)
    for path in ("/of/", "/of", "/of/1/2", "/17", "/none/17", ""):
        assert asked(app, path, "a") == (True, 404, "not_found"), path
    assert [client for client, _ in app.counted if client] == ["alice"]  # others are nobody's
    app.keys.readable = False
    assert asked(app, "/of/17", "a") == (False, 503, "keys_unreadable", (b"retry-after", b"5"))
    assert asked(app, "/open", "a") == (False, 200, "")


def test_two_hundred_requests_without_a_key_may_come_at_once_and_twenty_a_second():
    app, now, addresses = Answers(HANDLERS, Keys()), [0.0], []
    app.strangers._clock = lambda: now[0]
    codes = [asked(app, "/none")[1] for _ in range(200)]
    assert codes == [404] * 200
    slow = (False, 429, "too_many", (b"retry-after", b"1"))
    assert asked(app, "/none") == asked(app, "/open") == slow
    assert asked(app, "/open", "a") == (True, 200, "")
    for seconds, n in ((0.05, 1), (1.05, 20)):
        now[0] = seconds
        assert [asked(app, "/open")[1] for _ in range(n + 1)] == [200] * n + [429]

    def behind(peer, forwarded):
        addresses.append((peer, forwarded))
        return "192.0.2.2"  # as a proxy says

    app.server = SimpleNamespace(strangers=SimpleNamespace(address=behind))
    assert asked(app, "/open") == asked(app, "/open", x_forwarded_for="192.0.2.2") == (False, 200, "")
    assert addresses == [("192.0.2.1", b""), ("192.0.2.1", b"192.0.2.2")]


def test_whatever_a_handler_raises_has_a_form_and_is_counted_and_no_message_is_told(caplog, monkeypatch):
    app = Answers(HANDLERS, Keys())
    wait = (b"retry-after", b"2")
    with caplog.at_level(logging.INFO, "ostraka.serve"):
        assert asked(app, "/away", "a") == asked(app, "/voters", "a") == (True, 503, "unavailable", wait)
        assert asked(app, "/full", "a") == (True, 402, "budget_exceeded")
        assert caplog.messages == []
        assert asked(app, "/defect", "a") == (True, 500, "failed")
    assert re.fullmatch(r"unexpected KeyError in handler, line \d+", caplog.messages[0])
    codes = ["unavailable", "unavailable", "budget_exceeded", "failed"]
    assert app.counted == [("alice", code) for code in codes]


def test_each_request_is_logged_with_what_became_of_it_if_that_is_wanted(caplog, monkeypatch):
    ticks = itertools.count(1.0, 0.0312345678)
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    with caplog.at_level(logging.INFO, "ostraka.serve"):
        asked(Answers(HANDLERS, Keys()), "/open")
        assert caplog.records == []
        app = Answers(HANDLERS, Keys(), log_requests=True)
        for path, key in (("/of/17", "a"), ("/none", ""), ("/", "a")):
            asked(app, path, key)
    seconds = 0.031235
    assert [(record.getMessage(), record.event, record.fields) for record in caplog.records] == [
        (
            "/of/{seq} 200",
            "request",
            {"route": "/of/{seq}", "status": 200, "client": "alice", "seconds": seconds},
        ),
        ("no route 404", "request", {"route": "", "status": 404, "client": "", "seconds": seconds}),
        ("/ 403", "request", {"route": "/", "status": 403, "client": "alice", "seconds": seconds}),
    ]


def test_what_an_owner_must_show_beside_a_key(served):
    def who(key, path="/", certificate=""):
        request = Request(method="GET", path=path, headers={b"authorization": b"Bearer " + key})
        request.certificate = certificate
        admission = served.admit(request)
        return admission, request.refused and request.refused.code, getattr(request.who, "name", None)

    served.keys = Keys()
    assert who(b"o") == (True, None, "olga")
    served._owner_certificates = True
    assert who(b"o") == who(b"o", certificate="petra") == (True, "no_certificate", "olga")
    assert who(b"o", certificate="olga") == (True, None, "olga")
    assert who(b"a", "/v1/budget") == (True, None, "alice")
    assert who(b"a", certificate="olga") == (True, "forbidden", "alice")
    assert who(b"o", "/health") == (True, None, "")  # whom nobody asks
    served._owner_certificates, subjects = False, {b"p.q.r": "s-1"}
    served._tokens = SimpleNamespace(subject=subjects.get)
    assert who(b"p.q.r") == (True, None, "petra")
    assert who(b"x.y.z") == (False, "unauthorized", None)
    assert who(b"o") == (True, "no_token", "olga")
    assert who(b"a", "/v1/budget") == (True, None, "alice")
    assert who(b"x.y") == who(b"x.y.z.w") == (False, "unauthorized", None)


def test_what_needs_no_teacher_is_given_up_after_two_seconds(served, monkeypatch):
    waits, wait = [], asyncio.wait

    async def noted(tasks, **how):
        waits.append(how["timeout"])
        return await wait(tasks, timeout=0.01 if waits[1:] else None)

    monkeypatch.setattr(asyncio, "wait", noted)
    assert asyncio.run(app.in_time(served, lambda word: word * 2, "ab")) == "abab"
    go = threading.Event()
    with pytest.raises(Refused) as refused:
        asyncio.run(late(served, go))
    assert refused.value.reply.status == 503
    assert waits == [1.9, 1.9]  # less than two seconds with what comes before and after


async def late(served, go):
    try:
        return await app.in_time(served, go.wait)
    finally:
        go.set()


def test_a_service_takes_as_much_as_its_settings_say_and_4096_requests_at_once(served):
    assert served.limits == Limits(most_body=65_536, answer_seconds=30.0, at_once=4_096)


def test_replies_about_the_service_itself():
    def got(handler, *, query=b"", **parts):
        service = SimpleNamespace(reading=60.0, **parts)
        return asyncio.run(handler(service, Request(query=query)))

    assert got(app.health) == Reply(200, b'{"ok": true}')
    readiness = SimpleNamespace(problems=list, age=0.3499)
    deployment = SimpleNamespace(readiness=readiness)
    assert got(app.ready, deployment=deployment) == Reply(200, b'{"ready": true, "age": 0.3}')
    readiness.problems = lambda: ["one", "two"]
    with pytest.raises(Refused) as refused:
        got(app.ready, deployment=deployment)
    reply = refused.value.reply
    assert (reply.status, json.loads(reply.body)["error"], reply.more) == (
        503,
        "one; two",
        ((b"retry-after", b"2"),),
    )
    texts = SimpleNamespace(text=",".join)
    deployment = SimpleNamespace(metrics=texts, gauges=lambda: ["a"])
    kind = b"text/plain; version=0.0.4; charset=utf-8"
    assert got(app.metrics, deployment=deployment, server=None) == Reply(200, b"a", kind)
    server = SimpleNamespace(gauges=lambda: ["b", "c"])
    assert got(app.metrics, deployment=deployment, server=server) == Reply(200, b"a,b,c", kind)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(app, "overview", lambda deployment: deployment)
        patched.setattr(app, "render", lambda view, *, every: f"{view} {every}")
        for query, page, more in (
            (b"every=60", "it 60", [(b"refresh", b"60")]),
            (b"every=61", "it 0", []),
            (b"", "it 0", []),
        ):
            assert got(app.home, query=query, deployment="it") == Reply.html(page, more=tuple(more))


def test_a_question_is_paced_by_its_rows_asked_under_its_key_and_answered_with_what_is_left(monkeypatch):
    paced, counted, ticks = [], [], iter([1.0, 1.25] * 9)
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    outcome = ["one", "two"]

    async def ask(*question):
        if isinstance(outcome, Exception):
            raise outcome
        return outcome[: len(question[2])]

    async def left_after(name, receipts):
        return ((b"ostraka-left", b"%d" % len(receipts)),)

    deployment = SimpleNamespace(
        buckets=SimpleNamespace(pace=lambda *taken: paced.append(taken)),
        rows=Rows(("a",), (True,), most=2),
        batcher=SimpleNamespace(ask=ask),
        shown=lambda receipt: f'"{receipt}"',
        metrics=SimpleNamespace(answered=lambda name, **how: counted.append((name, how))),
        left_after=left_after,
        left=lambda name: (b"ostraka-left", b"0.5"),
    )

    def label(body, key=b"k"):
        request = Request(headers={b"idempotency-key": key}, body=body)
        request.who = Holder("ann", "client")
        return asyncio.run(app.label(SimpleNamespace(deployment=deployment), request))

    left = ((b"ostraka-left", b"1"),), ((b"ostraka-left", b"2"),)
    assert label(b'{"row": [1]}') == Reply(200, b'"one"', more=left[0])
    assert label(b'{"rows": [[1]]}') == Reply(200, b'{"results": ["one"]}', more=left[0])
    assert paced == [("ann", 1)] * 2
    assert label(b'{"rows": [[1], [2]]}') == Reply(200, b'{"results": ["one", "two"]}', more=left[1])
    assert paced[2:] == [("ann", 1)] * 2
    deployment.rows = Rows(("a",), (True,), most=9)
    label(b'{"rows": [[1], [2], [3], [4], [5]]}')
    assert paced[4:] == [("ann", 1), ("ann", 4)]
    assert counted == [("ann", {"rows": n, "seconds": 0.25}) for n in (1, 1, 2, 5)]
    for body, key, code in ((b"{", b"k", "bad_json"), (b'{"row": [1]}', b"", "bad_key")):
        with pytest.raises(Refused) as refused:
            label(body, key)
        assert refused.value.code == code
    assert paced[6:] == [("ann", 1)] * 2  # what is malformed counts as well
    for outcome, status, more in (
        (Refused(402, "budget_exceeded"), 402, ((b"ostraka-left", b"0.5"),)),
        (Refused(409, "key_conflict"), 409, ()),
    ):
        with pytest.raises(Refused) as refused:
            label(b'{"row": [1]}')
        assert (refused.value.status, refused.value.code) == (status, outcome.code)
        assert refused.value.reply.more == more
    assert len(counted) == 4
