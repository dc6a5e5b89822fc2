"""The client: the same key on every retry, one answer, and refusals as exceptions a caller can act on."""

import json
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
