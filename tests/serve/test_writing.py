"""Answers over HTTP: charged to the client before a document is read, once, at a pace that is public."""

import asyncio
import gc
import json
import time

import numpy as np
import pytest

from ostraka import Budget, Ledger
from ostraka.cli import main
from ostraka.secure.server import Request
from ostraka.serve import server
from ostraka.serve.keys import Keyring
from ostraka.serve.writing import ROUTES, WritingApplication
from ostraka.text import Writer, models, saved
from tests.serve.conftest import PEPPER, client, running
from tests.text.conftest import Asked

NOTES = ["the plot is warm", "the acting is dull", "the plot is dull"] * 6
PACE = 0.05


@pytest.fixture
def service(tmp_path):
    """A service with the clients alice and bob, and an owner; service.ask(key of a client, question)."""
    keyring = Keyring(tmp_path / "keys.json", PEPPER)
    keys = {name: keyring.add(name, role="client", epsilon=25.0) for name in ("alice", "bob")}
    keys["olga"] = keyring.add("olga", role="owner")
    services = []

    def make(**settings):
        writer = Writer(Asked(), classes=["note"], n_tokens=3, epsilon=10.0, store=tmp_path / "store")
        writer.fit(NOTES, ["note"] * len(NOTES))
        budget = None if services else Budget(epsilon=40.0, delta=1e-5, adaptive=False)
        ledger = Ledger(tmp_path / "ledger", budget=budget)
        services.append((writer, ledger))
        app = WritingApplication(
            writer,
            ledger,
            keyring,
            **{"retrieve": 4, "at": 0.6, "pace": PACE, "rate": 1e6, "burst": 99} | settings,
        )
        return app, writer.model, ledger, keys

    yield make
    for writer, ledger in services:
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
    first, again, another, poor, late = replies(
        app,
        sent(keys["alice"]),
        sent(keys["alice"]),
        sent(keys["bob"], name="bobs"),  # the same question: the client pays, the ledger does not
        sent(keys["alice"], "is the acting dull", name="second"),
        sent(keys["alice"], "was the plot fine", name="third"),
    )
    assert first[0] == again[0] == another[0] == poor[0] == 200
    assert first == again
    assert another[1]["text"] == first[1]["text"]
    assert late[0] == 402
    assert late[1]["code"] == "budget_exceeded"
    assert 10 < ledger.epsilon() <= 20
    spent = {account.name: account.spent for account in ledger.accounts()}
    assert 9.9 < spent["bob"] < spent["alice"] <= 20
    private_prompts = [prompts for prompts, _ in model.calls if len(prompts) > 1]
    assert private_prompts
    assert not any("was the plot fine" in prompt for prompts in private_prompts for prompt in prompts)


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


def test_a_failure_that_nobody_waits_for_is_logged_by_nobody(service, caplog, monkeypatch):
    monkeypatch.setattr("ostraka.serve.writing._WAIT", 0.0)
    app, model, _, keys = service()
    model.next_tokens = lambda *_, **__: (_ for _ in ()).throw(ValueError("canary the plot is warm"))
    [unfinished] = replies(app, sent(keys["alice"]))
    assert (unfinished[0], unfinished[1]["code"]) == (503, "unfinished")
    app._written.clear()
    gc.collect()  # of tasks whose exception nobody asked for
    assert "canary" not in caplog.text


class Clock:
    """Stands for the modules time and asyncio in a service: pauses are noted and take no time."""

    def __init__(self):
        self.now, self.pauses = 0.0, []

    def __getattr__(self, name):
        return getattr(asyncio, name)

    def monotonic(self):
        return self.now

    async def sleep(self, seconds):
        self.pauses.append(seconds)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(("took", "pause"), [(0.0, 60.0), (45.0, 15.0), (60.0, 0.0), (61.0, 59.0)])
def test_answers_and_failures_leave_at_whole_steps_of_the_pace(service, monkeypatch, fails, took, pause):
    clock = Clock()
    for module in ("time", "asyncio"):
        monkeypatch.setattr(f"ostraka.serve.writing.{module}", clock)
    app, model, _, keys = service(pace=60.0)
    usual, before = model.next_tokens, []

    def slow(prompts, *arguments, **options):
        if len(prompts) > 1:  # once documents are read
            clock.now += 0.0 if before else took
            before.append(1 / 0 if fails else 1)
        return usual(prompts, *arguments, **options)

    model.next_tokens = slow
    [(status, _)] = replies(app, sent(keys["alice"]))
    assert status == (500 if fails else 200)
    assert clock.pauses == [pause]


def test_how_long_a_question_may_be_and_how_many_come_at_once(service):
    app, _, _, keys = service(rate=1e-9, burst=2)
    (long, said), *good, (late, fast) = replies(
        app,
        sent(keys["alice"], "x" * 2_001),
        sent(keys["alice"], "x" * 2_000, name="second"),
        sent(keys["alice"], "x", name="third"),
        sent(keys["alice"], "x", name="fourth"),
    )
    assert (long, said["code"]) == (400, "bad_schema")
    assert said["error"] == 'the body must be {"question": text} with 1 to 2000 characters'
    assert [status for status, _ in good] == [200, 200]
    assert (late, fast["code"]) == (429, "too_fast")
    assert app.limits.most_body == 16_384


def test_a_client_sees_its_own_budget(service):
    app, _, _, keys = service()
    _, (_, mine) = replies(app, sent(keys["alice"]), sent(keys["alice"], method="GET", path="/v1/budget"))
    assert (mine["client"], mine["epsilon"]) == ("alice", 25.0)
    assert 9.9 < mine["spent"] <= 10.0
    assert np.isclose(mine["left"], 25 - mine["spent"], rtol=0.2)


def typed(*words, code=0):
    with pytest.raises(SystemExit) as ending:
        main([str(word) for word in words])
    assert ending.value.code == code


@pytest.fixture
def documents(tmp_path, monkeypatch, capsys):
    """A folder of documents as the command line keeps it, and alice's key."""
    for place in (models, saved):
        monkeypatch.setattr(place, "open_model", lambda name, n_threads: Asked())
    monkeypatch.setenv("OSTRAKA_PEPPER", PEPPER.hex())
    table, run = tmp_path / "notes.csv", tmp_path / "run"
    table.write_text("\n".join(["note", *NOTES]))
    (tmp_path / "tiny.gguf").touch()
    monkeypatch.chdir(tmp_path)
    settings = ["--text", "note", "--model", "tiny.gguf", "--tokens", "3", "--epsilon", "10", "--out", run]
    typed("write", table, *settings, "--keep-documents", "--retrieve", "4", "--near", "0.6")
    assert "for the owner alone" in capsys.readouterr().out
    typed("keys", "add", run, "alice", "--epsilon", "15", "--json")
    return run, json.loads(capsys.readouterr().out)["key"]


def test_kept_documents_are_served_over_http_and_what_is_refused_is_said_as_by_other_services(
    documents, monkeypatch, capsys
):
    run, key = documents
    assert (run / "documents" / saved.FILE).stat().st_mode & 0o077 == 0
    model = json.loads((run / "documents" / saved.FILE).read_text())["model"]
    assert model == str(run.resolve().with_name("tiny.gguf"))  # wherever the service is started
    keys = (run / "service").rename(run / "keys")
    typed("serve", run, "--epsilon", "30", "--delta", "1e-5", "--check", "--json")
    assert (run / "service").stat().st_mode & 0o777 == 0o700
    for file in keys.iterdir():
        file.rename(run / "service" / file.name)
    facts = json.loads(capsys.readouterr().out)
    assert (facts["documents"], facts["unit"], facts["left"]) == (len(NOTES), "document", 30.0)
    apps = []
    monkeypatch.setattr(server, "run", lambda app, **_: apps.append(app))
    typed("serve", run, "--pace", "0.05")
    refusal = capsys.readouterr().err
    assert "epsilon 30 of 30 is left" in refusal
    assert "plot" not in refusal
    with running(apps[0]) as (url, *_), client(url, {"authorization": f"Bearer {key}"}) as http:
        ask = {"headers": {"idempotency-key": "once"}, "json": {"question": "is the plot warm"}}
        first, again = http.post("/v1/write", **ask), http.post("/v1/write", **ask)
        assert first.status_code == 200
        assert first.json() == again.json()
        assert set(first.json()) == {"text", "receipt"}
        balance = http.get("/v1/budget").json()["left"]
        assert 0 <= balance - float(first.headers["ostraka-left"]) < 1e-6  # rounded down
        assert 4.99 < balance < 5.1
        two = {"headers": {"idempotency-key": "two"}, "json": {"question": "is the acting dull"}}
        late = http.post("/v1/write", **two)
        assert (late.status_code, late.json()["code"]) == (402, "budget_exceeded")
        assert late.headers["ostraka-left"] == first.headers["ostraka-left"]
        assert set(late.json()) == {"ok", "code", "error"}
        document = http.get("/openapi.json").json()
        routes = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
        assert routes == {(route.method, route.path) for route in ROUTES}
        assert document["components"]["schemas"]["Question"]["required"] == ["question"]
        assert {"402", "409", "429", "503"} < set(document["paths"]["/v1/write"]["post"]["responses"])
        assert "/v1/write" in http.get("/docs").text


def test_documents_that_others_can_read_or_that_are_damaged_are_refused_without_being_quoted(
    documents, capsys
):
    for options in (("--sigma", "3"), ("--shared", "--db", "postgresql://x"), ("--two-owners",)):
        typed("serve", documents[0], "--epsilon", "30", "--delta", "1e-5", *options, code=2)
        assert "is for teachers" in capsys.readouterr().err.replace("\n", " "), options
    file = documents[0] / "documents" / saved.FILE
    file.write_text(file.read_text().replace('"retrieve"', '"plot"'))
    typed("serve", documents[0], "--epsilon", "30", "--delta", "1e-5", code=2)
    refusal = capsys.readouterr().err
    assert "--keep-documents" in refusal
    assert "warm" not in refusal
    file.chmod(0o644)
    typed("serve", documents[0], "--epsilon", "30", "--delta", "1e-5", code=2)
    assert "chmod 600" in capsys.readouterr().err


def test_a_client_waits_twenty_seconds_and_its_answer_an_hour(service, monkeypatch):
    waits, kept = [], []

    class Patient(Clock):
        async def wait(self, tasks, **how):
            waits.append(how.get("timeout"))
            return await asyncio.wait(tasks)

        def get_running_loop(self):
            loop = asyncio.get_running_loop()
            monkeypatch.setattr(loop, "call_later", lambda *call: kept.append(call))
            return loop

    clock = Patient()
    for module in ("time", "asyncio"):
        monkeypatch.setattr(f"ostraka.serve.writing.{module}", clock)
    app, _, _, keys = service()
    [(status, _)] = replies(app, sent(keys["alice"]))
    assert (status, waits, app._written) == (200, [20.0], {})
    ((seconds, forget, *name),) = kept
    assert seconds == 3600.0
    app._written[name[0]] = "an answer"
    forget(*name)
    forget(*name)
    assert app._written == {}


def test_questions_are_paced_and_settings_checked(service):
    for change in ({"retrieve": 0}, {"at": float("nan")}, {"pace": 0.0}, {"rate": 0.0}, {"burst": 0}):
        with pytest.raises(ValueError, match=f"^{next(iter(change))} must be"):
            service(**change)
    app, _, ledger, keys = service(retrieve=1)
    mine = sent(keys["alice"], method="GET", path="/v1/budget")
    unknown = {"client": "alice", "epsilon": 0, "spent": 0, "left": 0}
    app._granted = True  # of a file of keys that was read before
    app.keys.refresh = lambda: False
    assert replies(app, mine) == [(200, unknown)]
    for body in (
        '{"question": 1}',
        '{"question": "a", "more": 1}',
        "[]",
        '{"text": "a"}',
        '["question"]',
        "null",
    ):
        (status, said), *_ = replies(app, sent(keys["alice"], body=body.encode()))
        assert (status, said["code"]) == (400, "bad_schema"), body
    app.keys.refresh = lambda: True
    granted = replies(app, mine)
    assert granted == [(200, {"client": "alice", "epsilon": 25.0, "spent": 0.0, "left": 25.0})]
    assert {account.name for account in ledger.accounts()} == {"alice", "bob"}
    app.keys.refresh = lambda: False
    app.keys.grants = lambda ledger: pytest.fail("they are in the ledger")
    assert replies(app, mine) == granted


def test_while_the_file_of_keys_cannot_be_read_no_key_is_valid(service, tmp_path):
    app, _, _, keys = service()
    path = tmp_path / "keys.json"
    content = path.read_text()
    for unreadable in (lambda: path.write_text("["), lambda: (path.unlink(), path.mkdir())):
        unreadable()
        ((status, said),) = replies(app, sent(keys["alice"], method="GET", path="/v1/budget"))
        assert (status, said["code"]) == (503, "keys_unreadable")
    path.rmdir()
    path.write_text(content)
    assert replies(app, sent(keys["alice"], method="GET", path="/v1/budget"))[0][0] == 200


def test_a_model_is_asked_by_one_question_at_a_time(service):
    app, model, _, keys = service()
    usual, at_once, most = model.next_tokens, [], []

    def noted(*given, **how):
        at_once.append(1)
        most.append(len(at_once))
        time.sleep(0.01)
        at_once.pop()
        return usual(*given, **how)

    model.next_tokens = noted

    async def both():
        requests = [sent(keys[who], f"is the plot {who}") for who in ("alice", "bob")]
        for request in requests:
            app.admit(request)
        got = await asyncio.gather(*map(app.reply, requests))
        await app.close()
        return [reply.status for reply in got]

    assert asyncio.run(both()) == [200, 200]
    assert max(most) == 1
