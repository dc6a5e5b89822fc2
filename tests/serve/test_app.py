"""Who may ask what, and every way to ask wrongly: refused in one form, before anything is charged."""

import base64
import contextlib
import gzip
import json
import logging
import re
import sqlite3
import textwrap
from pathlib import Path
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import OneHotEncoder

from ostraka.serve.app import ROUTES
from ostraka.serve.openapi import answering, described, page
from ostraka.serve.requests import WORDS, Refused, Rows, known_texts
from ostraka.serve.writing import ROUTES as WRITING
from tests.golden import blocks, pages
from tests.serve.conftest import CLASSES, ONE, PEPPER, client, deploy, rows, serving

RECORD = Path(blocks.__file__).with_name("interface.txt")
ROLES = {"alice": "client", "olga": "owner"}
BODIES = {
    ("POST", "/v1/label"): {"json": {"row": ONE}, "headers": {"idempotency-key": "matrix"}},
    ("POST", "/v1/grants"): {"json": {"client": "bob", "epsilon": 20.0}},
    ("POST", "/v1/grants/{seq}"): {"json": {}},
}
JSON = {"idempotency-key": "k", "content-type": "application/json"}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_is_open_to_its_roles_alone(shared, route):
    path = route.path.replace("{seq}", "999999")
    allowed = 404 if "{seq}" in route.path else 202 if "grants" in route.path else 200
    for who in (None, "nobody", "alice", "olga"):
        headers = {} if who is None else {"authorization": f"Bearer {shared.keys.get(who, 'ostraka_x')}"}
        with client(shared.url, headers) as http:
            reply = http.request(route.method, path, **BODIES.get((route.method, route.path), {}))
        if not route.roles or ROLES.get(who) in route.roles:
            assert reply.status_code == allowed, who
        else:
            refusal = (403, "forbidden") if who in ROLES else (401, "unauthorized")
            assert (reply.status_code, reply.json()["code"]) == refusal, who


def test_a_browser_gives_the_key_as_a_password_and_other_keys_are_none(shared):
    with client(shared.url) as http:
        assert http.get("/").headers["www-authenticate"].startswith("Basic")
        assert http.get("/", auth=("olga", shared.keys["olga"])).status_code == 200
        unknown = "Bearer ostraka_000000000000_" + "A" * 43
        no_colon = "Basic " + base64.b64encode(b"no-colon").decode()
        for key in ("", "Bearer", unknown, "Basic %%%", no_colon, "Digest x"):
            assert http.get("/v1/budget", headers={"authorization": key}).status_code == 401, key


NESTED = b"[" * 30_000 + b"]" * 30_000
WRONG = {
    "no JSON": (b"row=1", "bad_json"),
    "not UTF-8": ('{"row": [1, 2, 3]}'.encode("utf-16"), "bad_json"),
    "NaN": (b'{"row": [NaN, 2, 3]}', "bad_json"),
    "Infinity": (b'{"row": [1, -Infinity, 3]}', "bad_json"),
    "a member twice": (b'{"row": [1, 2, 3], "row": [1, 2, 3]}', "bad_json"),
    "deeply nested": (b'{"row": ' + NESTED + b"}", "bad_json"),
    "a number of 5000 digits": (b'{"row": [' + b"9" * 5000 + b", 2, 3]}", "bad_json"),
    "nothing": (b"", "bad_json"),
    "a list": (b"[1, 2, 3]", "bad_schema"),
    "null": (b"null", "bad_schema"),
    "no member": (b"{}", "bad_schema"),
    "another member": (b'{"cells": [1, 2, 3]}', "bad_schema"),
    "two members": (b'{"row": [1, 2, 3], "rows": [[1, 2, 3]]}', "bad_schema"),
    "a tenant, who comes from the key": (b'{"row": [1, 2, 3], "client": "bob"}', "bad_schema"),
    "a row too short": (b'{"row": [1, 2]}', "bad_schema"),
    "a row too long": (b'{"row": [1, 2, 3, 4]}', "bad_schema"),
    "a number as row": (b'{"row": 1}', "bad_schema"),
    "a row of rows": (b'{"row": [[1], [2], [3]]}', "bad_schema"),
    "rows of numbers": (b'{"rows": [1, 2, 3]}', "bad_schema"),
    "no rows": (b'{"rows": []}', "bad_schema"),
    "too many rows": (b'{"rows": [' + b",".join([b"[1,2,3]"] * 257) + b"]}", "bad_schema"),
    "a row among rows too short": (b'{"rows": [[1, 2, 3], [1, 2]]}', "bad_schema"),
    "text": (b'{"row": [1, "2", 3]}', "bad_schema"),
    "true": (b'{"row": [1, true, 3]}', "bad_schema"),
    "null as cell": (b'{"row": [1, null, 3]}', "bad_schema"),
    "a number beyond floats": (b'{"row": [1, 1e999, 3]}', "bad_schema"),
    "an integer beyond floats": (b'{"row": [1, ' + b"9" * 400 + b", 3]}", "bad_schema"),
    "integers beyond floats that cancel": (b'{"row": [%s, -%s, 3]}' % ((b"9" * 400,) * 2), "bad_schema"),
    "an integer of 401 digits and a float": (b'{"row": [1' + b"0" * 400 + b", 2.5, 3]}", "bad_schema"),
    "beyond the grid": (b'{"row": [1, 2, 1e9]}', "bad_schema"),
    "beyond float32": (b'{"row": [1, 2, 1e300]}', "bad_schema"),
}


def test_a_body_that_does_not_fit_is_refused_before_charging(shared):
    head = shared.there.ledger.head
    with shared.http(**JSON) as http:
        replies = {case: http.post("/v1/label", content=body) for case, (body, _) in WRONG.items()}
    refusals = {case: (reply.status_code, reply.json()["code"]) for case, reply in replies.items()}
    assert refusals == {case: (400, code) for case, (_, code) in WRONG.items()}
    assert shared.there.ledger.head == head


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"idempotency-key": ""}, 400, "bad_key"),
        ({"content-type": "text/plain"}, 415, "bad_content"),
        ({"content-encoding": "gzip"}, 415, "bad_content"),
    ],
)
def test_headers_that_do_not_fit_are_refused(shared, headers, status, code):
    body = json.dumps({"row": ONE}).encode()
    with shared.http(**JSON | headers) as http:
        reply = http.post("/v1/label", content=gzip.compress(body) if "gzip" in headers.values() else body)
    assert (reply.status_code, reply.json()["code"]) == (status, code)


def test_a_large_body_is_refused_in_one_piece_and_in_chunks(shared):
    body = b" " * (64 * 1024 + 1)
    for content in (body, iter([body[:40_000], body[40_000:]])):
        with shared.http(**JSON) as http:
            reply = http.post("/v1/label", content=content)
        assert (reply.status_code, reply.json()["code"]) == (413, "too_large")


def test_what_is_not_there_is_not_found(shared):
    with shared.http() as http:
        for path in ("/nope", "/v1", "/v1/label/", "/v1/ledger/receipt/", "/v1/ledger/receipt/1/2", "/../x"):
            assert http.get(path).status_code == 404, path
        assert http.get("/v1/label").headers["allow"] == "POST"
        assert http.post("/v1/ledger/receipt/3").status_code == 405


def test_a_receipt_is_for_its_client_and_the_owner(shared):
    seq = shared.label(key="receipt").json()["receipt"]["seq"]
    receipts = {}
    for who in ("alice", "bob", "olga"):
        with shared.http(who) as http:
            receipts[who] = http.get(f"/v1/ledger/receipt/{seq}")
    assert [reply.status_code for reply in receipts.values()] == [200, 404, 200]
    assert receipts["alice"].json() == receipts["olga"].json()
    assert receipts["alice"].json()["key"] == "receipt"
    with shared.http("bob") as http:
        assert http.get("/v1/ledger/receipt/99999999").content == receipts["bob"].content
        for odd in ("0", "-1", "x", "1e3", "٣", "9" * 30):
            assert http.get(f"/v1/ledger/receipt/{odd}").status_code == 404, odd


def test_the_remaining_budget_comes_with_each_answer_and_is_rounded_down(service):
    """To six digits after the first answer; after many, what is left beside a few more of them."""
    with service.http() as http:
        for number, row in enumerate(rows(6, seed=3)):
            balance = service.label(row, key=f"k{number}").headers["ostraka-left"]
            exact = http.get("/v1/budget").json()["left"]
            assert re.fullmatch(r"\d+\.\d{6}", balance)
            assert float(balance) <= exact < float(balance) + (0.1 if number else 1e-6 + 1e-9)


def test_labels_are_those_of_the_mechanism_under_the_questions_own_noise(shared):
    X = rows(12, seed=21)
    consistent = shared.there.batcher._answerer._consistent
    mechanism, ensemble = shared.there.saved.mechanism, shared.there.saved.ensemble
    for number, row in enumerate(X):
        noise = consistent.noise(consistent.digests(row[None])[0], purpose=repr(mechanism))
        want = mechanism.release(ensemble.vote(consistent.snap(row[None])), rng=noise)[0]
        got = shared.label(row, key=f"law{number}").json()
        assert (got["label"], got["abstained"]) == (ensemble.classes_[want], False)


# Batches


def batch(service, X, *, key: str) -> httpx.Response:
    with service.http() as http:
        return http.post("/v1/label", json={"rows": np.asarray(X).tolist()}, headers={"idempotency-key": key})


def test_a_batch_has_the_answers_of_its_rows_and_its_key_is_for_no_other_rows(service):
    X = rows(6, seed=2)
    together = batch(service, X[:5], key="batch").json()["results"]
    alone = [service.label(row, key=f"k{number}").json() for number, row in enumerate(X[:5])]
    assert [each["label"] for each in together] == [each["label"] for each in alone]
    assert len({each["receipt"]["seq"] for each in together}) == 5
    assert batch(service, X[:5], key="batch").json()["results"] == together
    assert len(service.entries()) == 10
    head = service.there.ledger.head
    for part in (slice(0, 4), slice(0, 6), slice(1, 6), slice(4, None, -1), slice(0, 1)):
        reply = batch(service, X[part], key="batch")
        assert (reply.status_code, reply.json()["code"]) == (409, "key_conflict"), part
    assert service.there.ledger.head == head


def test_a_batch_is_answered_whole_or_not_at_all(tmp_path, saved):
    budget = 1.02 * (3 * saved.mechanism.curve()).epsilon(1e-6)
    with serving(deploy(tmp_path, saved, epsilon=budget)) as service:
        head = service.there.ledger.head
        reply = batch(service, rows(4, seed=2), key="four")
        assert (reply.status_code, reply.json()["code"]) == (402, "budget_exceeded")
        assert service.there.ledger.head == head
        assert batch(service, rows(3, seed=2), key="three").status_code == 200


# Rates, failures, logs and metrics


def test_who_is_too_fast_waits_and_pays_nothing_for_it_and_bad_bodies_are_not_faster(tmp_path, saved):
    with serving(deploy(tmp_path, saved, rate=0.001, burst=2)) as service:
        codes = [service.label(key=f"k{number}").status_code for number in range(4)]
        assert codes == [200, 200, 429, 429]
        late = service.label(key="k9")
        assert 500 <= int(late.headers["retry-after"]) <= 1000
        with service.http("bob", **JSON) as http:
            codes = [http.post("/v1/label", content=b"{").status_code for _ in range(3)]
        assert codes == [400, 400, 429]
        assert len(service.entries()) == 2


def test_what_fails_before_the_charge_is_told_in_one_form_and_costs_nothing(service, monkeypatch):
    def fail(_: object) -> None:
        raise ValueError("canary7391")

    with monkeypatch.context() as full:
        full.setattr(service.there.batcher, "_most_waiting", 0)
        reply = service.label(key="k")
        assert (reply.status_code, reply.json()["code"]) == (503, "busy")
    with monkeypatch.context() as broken:
        broken.setattr(service.there.batcher._answerer, "answer", fail)
        reply = service.label(key="k")
        failed = {"ok": False, "code": "failed", "error": WORDS["failed"]}
        assert (reply.status_code, reply.json()) == (500, failed)
    with contextlib.closing(sqlite3.connect(service.there.ledger.path, isolation_level=None)) as connection:
        service.there.ledger._store._db.execute("PRAGMA busy_timeout = 50")
        connection.execute("BEGIN IMMEDIATE")
        for _ in range(2):
            reply = service.label(key="k")
            assert (reply.status_code, reply.json()["code"]) == (503, "unavailable")
            assert reply.headers["retry-after"] == "2"
        connection.execute("ROLLBACK")
    assert service.entries() == []
    assert service.label(key="k").status_code == 200


def test_logs_hold_no_secret_no_row_and_no_label(service, monkeypatch, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    row = [739.25, 7391.5, 73917.25]
    codes = [service.label(row, key="canary-key").status_code]
    with service.http() as http:
        headers = {"idempotency-key": "canary-key", "content-type": "application/json"}
        codes.append(http.post("/v1/label", content=b"canary-body {", headers=headers).status_code)
        monkeypatch.setattr(service.there, "budget", lambda _: float("canary-value"))
        codes.append(http.get("/v1/budget").status_code)
    assert codes == [200, 400, 500]
    ours = [record for record in caplog.records if record.name.split(".")[0] == "ostraka"]
    log = "\n".join(map(caplog.handler.format, ours)) + "".join(capfd.readouterr())
    assert "unexpected ValueError" in log
    secrets = [*service.keys.values(), "canary", "7391.5", "73917.25", PEPPER.hex()]
    assert [secret for secret in secrets if secret in log] == []
    assert not re.search(rf"\b({'|'.join(CLASSES)})\b", log)


def test_metrics_count_refusals_for_the_client_whose_key_it_was_and_tell_no_label(shared):
    shared.label([0.5, 0.25, 0.75], key="metrics")
    with shared.http("bob") as http:
        assert http.get("/metrics").status_code == 403
    with shared.http("olga") as http:
        text = http.get("/metrics").text
    assert re.search(r'^ostraka_refusals_total\{client="bob",code="forbidden"\} [1-9]', text, re.MULTILINE)
    assert re.search(r'^ostraka_answers_total\{client="alice"\} [1-9]', text, re.MULTILINE)
    assert re.search(r"^ostraka_epsilon_budget 50$", text, re.MULTILINE)
    assert re.search(r'^ostraka_answer_seconds_bucket\{le="\+Inf"\} [1-9]', text, re.MULTILINE)
    sample = re.compile(r'[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [0-9.e+-]+')
    assert [line for line in text.splitlines() if line[0] != "#" and not sample.fullmatch(line)] == []
    assert not re.search(rf"\b({'|'.join(CLASSES)}|digest)\b", text)


# The description


def test_the_description_has_every_route_and_every_way_to_be_refused(shared):
    with shared.http() as http:
        description = http.get("/openapi.json").json()
        docs = http.get("/docs").text
    routes = {(method.upper(), path) for path, item in description["paths"].items() for method in item}
    assert routes == {(route.method, route.path) for route in ROUTES}
    label = description["paths"]["/v1/label"]["post"]["responses"]
    assert set(label) == {"200", "400", "401", "402", "403", "409", "413", "415", "429", "500", "503"}
    schemas = description["components"]["schemas"]
    assert len(schemas["Question"]["oneOf"][0]["properties"]["row"]["prefixItems"]) == 3
    assert schemas["Answer"]["properties"]["label"]["enum"] == [*sorted(CLASSES), None]
    for route in ROUTES:
        assert f"{route.method} {route.path}" in docs
    ids = re.findall(r"<h2 id=\"(\w+)\"", docs)
    assert ids == list(schemas)
    assert set(re.findall(r"href='#(\w+)'", docs)) <= set(ids)
    assert not re.search(r"src=|https?://|<script", docs)


def test_the_descriptions_of_both_services_are_on_record():
    """As OpenAPI, and as the page that is made of it."""
    columns = Rows(("age", "work"), (True, False), most=4)
    for name, document in (
        ("labels", described(columns, ["no", "yes"], ROUTES)),
        ("answers from documents", answering(WRITING, longest=2_000)),
    ):
        lines = textwrap.wrap(json.dumps(document, ensure_ascii=False), 110, break_on_hyphens=False)
        lines += [f"    {line}" for line in pages.text(page(document)).splitlines()]
        blocks.hold(RECORD, name, blocks.normal_form("\n".join(lines)))


def test_replies_fit_their_description(shared):
    jsonschema = pytest.importorskip("jsonschema", reason="comes with schemathesis")
    with shared.http() as http:
        components = http.get("/openapi.json").json()["components"]
        replies = {
            "Answer": shared.label(key="fits"),
            "Answers": batch(shared, rows(2, seed=4), key="fits-too"),
            "Budget": http.get("/v1/budget"),
            "Error": http.get("/nope"),
        }
        seq = replies["Answer"].json()["receipt"]["seq"]
        replies["Receipt"] = http.get(f"/v1/ledger/receipt/{seq}")
    for name, reply in replies.items():
        schema = {"$ref": f"#/components/schemas/{name}", "components": components}
        jsonschema.Draft202012Validator(schema).validate(reply.json())


def test_a_category_that_the_public_rows_did_not_have_is_refused_and_no_cell_is_quoted():
    columns = ColumnTransformer([("kinds", OneHotEncoder(handle_unknown="ignore"), [1])])
    encoder = columns.fit(np.array([[1, "Private"], [2, "State"]], dtype=object))
    texts = known_texts(SimpleNamespace(encoder=encoder, columns=("age", "work")))
    assert texts == {"work": frozenset({"Private", "State"})}
    assert known_texts(SimpleNamespace(encoder=None, columns=("age",))) == {}
    read = Rows(("age", "work"), (True, False), most=4, categories=texts).read
    assert read(b'{"row": [39, "State"]}') == ([[39, "State"]], True)
    for rows_, words in (
        (
            b'[[39, "State"], [39, "canary"]]',
            "rows[1][1] (work) must be one of the 2 texts of the public rows",
        ),
        (b'[["canary", "State"]]', "rows[0][0] (age) must be a finite number"),
    ):
        with pytest.raises(Refused) as refused:
            read(b'{"rows": %s}' % rows_)
        assert json.loads(refused.value.reply.body)["error"] == words
