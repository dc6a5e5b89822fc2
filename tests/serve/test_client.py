"""The client: the same key on every retry, one answer, and refusals as exceptions a caller can act on."""

import json
import math
import re
from typing import NamedTuple

import numpy as np
import pytest

from ostraka import BudgetExceeded
from ostraka.secure.wire import Late, Response
from ostraka.serve.client import Answer, ServiceError
from ostraka.service import Client
from tests.serve.conftest import ONE, deploy, rows, serving

REFUSED, LOST = Late("ConnectionRefusedError", sent=False), Late("TimeoutError", sent=True)
PAID = {"label": "red", "abstained": False, "receipt": {"seq": 7, "head": "5e" * 32}}


class Asked(NamedTuple):
    method: str
    path: str
    content: bytes
    headers: dict


def client(replies, *, patience: float = 60.0):
    """A client of a service that gives these replies, its requests, and how long it slept."""
    requests, slept, queue = [], [], list(replies)

    def serve(*request) -> Response:
        requests.append(Asked(*request))
        reply = queue.pop(0) if len(queue) > 1 else queue[0]
        if isinstance(reply, Exception):
            raise reply
        return reply

    asker = Client("https://service", "ostraka_key", patience=patience, transport=serve)
    asker._sleep = slept.append
    return asker, requests, slept


def reply(status: int, **headers: str) -> Response:
    content = PAID if status == 200 else {"ok": False, "code": "some_code", "error": "words"}
    return Response(status, {"ostraka-left": "1.500000", **headers}, json.dumps(content).encode())


def test_a_label_comes_with_its_receipt_and_what_is_left_and_no_repr_holds_the_key():
    asker, requests, _ = client([reply(200)])
    assert asker.label(ONE) == Answer(label="red", abstained=False, seq=7, head="5e" * 32, left=1.5)
    assert requests[0].headers["authorization"] == "Bearer ostraka_key"
    assert "ostraka_key" not in repr(asker)


@pytest.mark.parametrize("trouble", [*map(reply, (408, 425, 429, 500, 502, 503, 504)), REFUSED, LOST])
def test_every_retry_has_the_key_of_the_first_try(trouble):
    asker, requests, slept = client([trouble, trouble, reply(200)])
    assert asker.label(ONE).label == "red"
    assert len({request.headers["idempotency-key"] for request in requests}) == 1
    assert len({request.content for request in requests}) == 1
    assert len(requests) == 3 == len(slept) + 1


def test_another_question_has_another_key():
    asker, requests, _ = client([reply(200)])
    for _ in range(10):
        asker.label(ONE)
    assert len({request.headers["idempotency-key"] for request in requests}) == 10
    asker.label(ONE, key="mine")
    assert requests[-1].headers["idempotency-key"] == "mine"


def test_it_waits_as_long_as_it_is_asked_to_and_longer_each_time():
    asker, _, slept = client([reply(429, **{"retry-after": "3"}), *[reply(503)] * 5, reply(200)])
    asker.label(ONE)
    assert slept[0] >= 3
    assert slept[-1] > slept[1]


def test_patience_ends():
    asker, requests, _ = client([REFUSED], patience=0.01)
    says = r"no reply \(ConnectionRefusedError\): is 'ostraka serve' running"
    with pytest.raises(ServiceError, match=says):
        asker.label(ONE)
    asker, requests, _ = client([reply(503)], patience=0.01)
    with pytest.raises(ServiceError) as refused:
        asker.label(ONE)
    assert (refused.value.status, refused.value.code, len(requests)) == (503, "some_code", 1)


def test_a_question_of_unknown_outcome_can_be_asked_again_under_its_key():
    asker, requests, _ = client([LOST], patience=0.01)
    with pytest.raises(ServiceError, match="the outcome is unknown; the same request again") as lost:
        asker.label(ONE)
    assert lost.value.key == requests[0].headers["idempotency-key"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 415])
def test_what_another_try_would_not_change_is_told_at_once(status):
    asker, requests, _ = client([reply(status)])
    with pytest.raises(ServiceError, match="words") as refused:
        asker.label(ONE)
    assert (refused.value.status, refused.value.code, len(requests)) == (status, "some_code", 1)


def test_a_spent_budget_is_the_exception_that_a_ledger_raises():
    asker, _, _ = client([reply(402)])
    with pytest.raises(BudgetExceeded) as refused:
        asker.label(ONE)
    assert refused.value.left == 1.5


@pytest.mark.parametrize("status", [404, 200])  # 200: the page of a network where one has to log in
@pytest.mark.parametrize("body", [b"<html>nginx</html>", b"[7]", b"{}", b"[" * 100_000])
def test_a_reply_of_somebody_else_is_told_as_such(status, body):
    asker, _, _ = client([Response(status, {}, body)])
    for ask in (asker.label, asker.label_all):
        with pytest.raises(ServiceError, match=rf"none of ostraka's \(HTTP {status}\)") as refused:
            ask([ONE] if ask == asker.label_all else ONE, key="mine")
        assert (refused.value.code, refused.value.key) == ("unknown", "mine")
    if body != b"{}":
        with pytest.raises(ServiceError, match="none of ostraka's"):
            asker.budget()


def test_against_a_service(tmp_path, saved):
    price = saved.mechanism.curve()
    with serving(deploy(tmp_path, saved, clients={"alice": 1.02 * (4 * price).epsilon(1e-6)})) as service:
        with Client(service.url, service.keys["alice"]) as asker:
            first = asker.label(np.array(ONE))
            again = asker.label(ONE, key="k")
            assert first.label == again.label == asker.label(ONE, key="k").label
            answers = asker.label_all(rows(2, seed=1))
            assert [answer.seq for answer in answers] == [again.seq + 2, again.seq + 3]
            assert asker.receipt(seq=first.seq)["head"] == first.head
            assert asker.budget()["left"] == pytest.approx(answers[-1].left, abs=2e-6)
            with pytest.raises(BudgetExceeded):
                asker.label(ONE)
        with Client(service.url, "ostraka_wrong") as stranger, pytest.raises(ServiceError) as refused:
            stranger.budget()
        assert refused.value.status == 401


def test_a_request_has_the_patience_of_the_client_and_half_a_minute_for_each_try(monkeypatch):
    asker, _, _ = client([reply(200)], patience=7.5)
    asked, ask = [], asker._line.ask

    def noted(*request, sleep, **limits):
        asked.append((*request[:2], limits))
        assert sleep == asker._sleep
        return ask(*request, sleep=sleep, **limits)

    monkeypatch.setattr(asker._line, "ask", noted)
    asker.label(ONE)
    asker.budget()
    asker.receipt(seq=7)
    limits = {"seconds": 7.5, "each": 30.0, "most": 64 * 1024 * 1024, "tries": math.inf}
    paths = [("POST", "/v1/label"), ("GET", "/v1/budget"), ("GET", "/v1/ledger/receipt/7")]
    assert asked == [(*path, limits) for path in paths]


def test_what_is_sent_is_strict_json_of_plain_numbers_under_a_new_key_of_128_bits():
    asker, requests, _ = client([reply(200)])
    asker.label([np.float32(0.5), np.int64(3), "x", 2])
    assert requests[0].content == b'{"row": [0.5, 3, "x", 2]}'
    assert re.fullmatch("[0-9a-f]{32}", requests[0].headers["idempotency-key"])
    assert requests[0].headers["content-type"] == "application/json"
    with pytest.raises(ValueError, match="JSON"):
        asker.label([float("nan")])
    several = Response(200, {"ostraka-left": "0.25"}, json.dumps({"results": [PAID, PAID]}).encode())
    asker, requests, _ = client([several])
    assert [answer.left for answer in asker.label_all(np.eye(2), key="")] == [0.25, 0.25]
    assert (requests[0].content, requests[0].headers["idempotency-key"]) == (
        b'{"rows": [[1.0, 0.0], [0.0, 1.0]]}',
        "",
    )
    assert len(requests) == 1


def test_a_key_goes_over_https_or_stays_on_this_machine_unless_that_is_said():
    for url in ("https://there", "http://127.0.0.1:80", "http://localhost", "http://[::1]:8000"):
        assert repr(Client(url, "k", transport=None)) == f"Client({url!r})"
    with pytest.raises(
        ValueError, match=r"^url must begin with https://, or the key would travel in clear, got"
    ):
        Client("http://there", "k")
    sent = []

    def serve(*request):
        sent.append(request[3])
        return reply(200)

    Client("http://there", "k", insecure=True, transport=serve).label(ONE)
    Client("https://there", "kéy", transport=serve).label(ONE)  # none that a service gave out
    assert [headers.get("authorization") for headers in sent] == ["Bearer k", None]
    for patience in (0.0, -1.0, math.inf):
        with pytest.raises(ValueError, match="patience must be finite and > 0"):
            Client("https://there", "k", patience=patience)


def test_an_error_of_a_service_has_no_status_where_no_reply_came():
    error = ServiceError("words")
    assert (str(error), error.status, error.code, error.key) == ("words", 0, "unreachable", "")
