"""Answers over HTTP: charged to the client before a document is read, once, at a pace that is public."""

import asyncio
import json
import time

import numpy as np
import pytest

from ostraka import Budget, Ledger
from ostraka.secure.server import Request
from ostraka.serve.keys import Keyring
from ostraka.serve.writing import WritingApplication
from ostraka.text import Writer
from tests.service.conftest import PEPPER
from tests.text.conftest import Asked

NOTES = ["the plot is warm", "the acting is dull", "the plot is dull"] * 6
PACE = 0.05


@pytest.fixture
def service(tmp_path):
    """A service with the clients alice and bob, and an owner; service.ask(key of a client, question)."""
    keyring = Keyring(tmp_path / "keys.json", PEPPER)
    keys = {name: keyring.add(name, role="client", epsilon=25.0) for name in ("alice", "bob")}
    keys["olga"] = keyring.add("olga", role="owner")
    made = []

    def make(**settings):
        writer = Writer(Asked(), classes=["note"], n_tokens=3, epsilon=10.0, store=tmp_path / "store")
        writer.fit(NOTES, ["note"] * len(NOTES))
        budget = None if made else Budget(epsilon=40.0, delta=1e-5, adaptive=False)
        ledger = Ledger(tmp_path / "ledger", budget=budget)
        made.append((writer, ledger))
        app = WritingApplication(
            writer,
            ledger,
            keyring,
            **{"retrieve": 4, "at": 0.6, "pace": PACE, "rate": 1e6, "burst": 99} | settings,
        )
        return app, writer.model, ledger, keys

    yield make
    for writer, ledger in made:
        writer.close()
        ledger.close()


def sent(key, question="is the plot warm", *, name="once", method="POST", path="/v1/write", **changes):
    headers = {b"authorization": b"Bearer " + key.encode(), b"content-type": b"application/json"}
    body = changes.get("body", json.dumps({"question": question}).encode())
    headers[b"idempotency-key"] = name.encode()
    return Request(method=method, path=path, headers=headers, body=body)


def replies(app, *requests):
    """The replies to requests one after the other, in one event loop."""

    async def talk():
        got = []
        for request in requests:
            app.admit(request)
            got.append(await app.reply(request))
        await app.close()
        return got

    return [(reply.status, json.loads(reply.body)) for reply in asyncio.run(talk())]


def test_an_answer_is_paid_by_its_client_before_it_is_written_and_once(service):
    app, model, ledger, keys = service()
    first, again, other, poor, late = replies(
        app,
        sent(keys["alice"]),
        sent(keys["alice"]),
        sent(keys["bob"], name="bobs"),  # the same question: the client pays, the ledger does not
        sent(keys["alice"], "is the acting dull", name="second"),
        sent(keys["alice"], "was the plot fine", name="third"),
    )
    assert first[0] == again[0] == other[0] == poor[0] == 200
    assert first == again
    assert other[1]["text"] == first[1]["text"]
    assert late[0] == 402
    assert late[1]["code"] == "budget_exceeded"
    assert 10 < ledger.epsilon() <= 20
    spent = {account.name: account.spent for account in ledger.accounts()}
    assert 9.9 < spent["bob"] < spent["alice"] <= 20
    asked = [prompts for prompts, _ in model.calls if len(prompts) > 1]
    assert asked
    assert not any("was the plot fine" in prompt for prompts in asked for prompt in prompts)


def test_a_service_that_starts_again_gives_the_same_answer_at_no_price(service):
    app, _, ledger, keys = service()
    [first] = replies(app, sent(keys["alice"]))
    ledger.close()
    app, model, ledger, _ = service()
    [again] = replies(app, sent(keys["alice"]))
    assert again == first
    assert {len(prompts) for prompts, _ in model.calls} == {1}
    assert ledger.epsilon() <= 10


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"key": "ostraka_nobody"}, 401, "unauthorized"),
        ({"who": "olga"}, 403, "forbidden"),
        ({"path": "/v1/label"}, 404, "not_found"),
        ({"method": "GET"}, 405, "bad_method"),
        ({"name": ""}, 400, "bad_key"),
        ({"body": b'{"question": ""}'}, 400, "bad_schema"),
        ({"body": b'{"question": "a", "at": 0}'}, 400, "bad_schema"),
        ({"body": b"["}, 400, "bad_json"),
    ],
)
def test_requests_that_are_refused_cost_nothing(service, change, status, code):
    app, model, ledger, keys = service()
    key = change.pop("key", None) or keys[change.pop("who", "alice")]
    [(got, body)] = replies(app, sent(key, **change))
    assert (got, body["code"]) == (status, code)
    assert not model.calls
    assert ledger.epsilon() == 0


def test_a_key_is_for_one_question_and_a_failure_tells_nothing(service, caplog):
    app, model, _, keys = service()
    model.next_tokens = lambda *_, **__: (_ for _ in ()).throw(ValueError("canary the plot is warm"))
    [failed] = replies(app, sent(keys["alice"]))
    assert failed[0] == 500
    assert "canary" not in json.dumps(failed) + caplog.text
    app, *_ = service()
    good, conflict = replies(app, sent(keys["alice"]), sent(keys["alice"], "another"))
    assert (good[0], conflict[0], conflict[1]["code"]) == (200, 409, "key_conflict")


@pytest.mark.parametrize("fails", [False, True])
def test_answers_and_failures_leave_at_whole_steps_of_the_pace(service, fails):
    app, model, _, keys = service(pace=0.5)
    usual = model.next_tokens
    model.next_tokens = lambda prompts, *rest, **more: (
        usual(prompts, *rest, **more) if len(prompts) == 1 or not fails else 1 / 0  # once documents are read
    )
    start = time.monotonic()
    [(status, _)] = replies(app, sent(keys["alice"]))
    assert status == (500 if fails else 200)
    assert time.monotonic() - start >= 0.5


def test_a_client_sees_its_own_budget(service):
    app, _, _, keys = service()
    _, (_, mine) = replies(app, sent(keys["alice"]), sent(keys["alice"], method="GET", path="/v1/budget"))
    assert (mine["client"], mine["epsilon"]) == ("alice", 25.0)
    assert 9.9 < mine["spent"] <= 10.0
    assert np.isclose(mine["left"], 25 - mine["spent"], rtol=0.2)
