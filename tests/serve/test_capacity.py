"""What is left, for how long, and whether the service could charge now."""

import contextlib
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ostraka import Budget, GNMax, Ledger, Threshold
from ostraka.mechanisms import Confident
from ostraka.serve import metrics as _capacity
from ostraka.serve.metrics import AnswersLeft
from tests.serve.conftest import ONE, deploy, rows, serving

PRICE = GNMax(sigma=30.0)


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("price", [PRICE, Confident(screen=Threshold(at=9, sigma=50.0), argmax=PRICE)])
def test_uses_left_are_exactly_those_that_a_ledger_grants(adaptive, price):
    with Ledger(":memory:", budget=Budget(epsilon=1.0, delta=1e-6, adaptive=adaptive)) as ledger:
        while n := ledger.uses_left(price):
            assert ledger.affords(price, uses=n)
            assert not ledger.affords(price, uses=n + 1)
            assert ledger.uses_left(price, most=3) == min(3, n)
            ledger.charge(price, uses=max(1, n // 2), unit="row", simulation=False)
        assert not ledger.affords(price, uses=1)


def test_an_account_has_no_more_than_the_budget_and_an_unknown_one_has_nothing():
    with Ledger(":memory:", budget=Budget(epsilon=1.0, delta=1e-6)) as ledger:
        ledger.grant("ann", budget_epsilon=0.5)
        ledger.grant("ben", budget_epsilon=9.0)
        assert 0 < ledger.uses_left(PRICE, account="ann") < ledger.uses_left(PRICE)
        assert ledger.uses_left(PRICE, account="ben") == ledger.uses_left(PRICE)
        assert ledger.uses_left(PRICE, account="eve") == 0


def test_each_answer_says_how_many_more_there_are_and_that_many_are_given(tmp_path, saved):
    with serving(deploy(tmp_path, saved, epsilon=1.2, clients={"alice": 40.0, "bob": 0.9})) as service:
        counts, answered = [], 0
        for n, row in enumerate(rows(60, seed=4)):
            reply = service.label(row, key=f"k{n}", who=("alice", "bob")[n % 3 == 0])
            if reply.status_code == 200:
                answered += 1
                counts.append(int(reply.headers["ostraka-answers-left"]))
        with service.http("olga") as http:
            budget = http.get("/v1/budget").json()
        assert budget["answers_left"] == 0
        assert budget["seconds_to_empty"] == 0
        assert counts[-1] == 0
        promised = {count + n for n, count in enumerate(counts, 1) if count and n % 3 == 2}
        assert promised == {answered}


def test_the_budget_says_what_it_still_buys(shared):
    shared.label([0.1, 0.2, 0.3], key="buys")
    with shared.http() as http:
        mine = http.get("/v1/budget").json()
    with shared.http("olga") as http:
        budget = http.get("/v1/budget").json()
        text = http.get("/metrics").text
    clients = {entry["client"]: entry for entry in budget["clients"]}
    assert mine["answers_left"] == clients["alice"]["answers_left"]
    with shared.http("bob") as http:
        assert http.get("/v1/budget").json()["client"] == "bob"  # who is not the first of them
    assert 0 < mine["answers_left"] <= budget["answers_left"]
    assert budget["seconds_to_empty"] > 0
    assert 0 < mine["seconds_to_empty"] < budget["seconds_to_empty"] * 10
    assert f"ostraka_answers_left {budget['answers_left']:g}\n" in text
    assert "ostraka_ready 1\n" in text


class Paying:
    def uses_left(self, price, *, account):
        return {None: 100, "ann": 40}[account]


def test_counts_are_counted_down_between_two_looks_and_last_as_long_as_the_rate_says():
    now = [0.0]
    rate = [0.0]
    meter = AnswersLeft(Paying(), PRICE, rate=lambda _: rate[0], clock=lambda: now[0])
    assert (meter.known(), meter.of(), meter.seconds_to_empty()) == (None, 0, None)
    rate[0] = 0.5
    assert (meter.work_out(), meter.work_out("ann")) == (100, 40)
    meter.given("ann", 45)
    assert (meter.of(), meter.of("ann")) == (55, 0)
    now[0] = 90.0
    assert meter.stale()
    assert meter.seconds_to_empty() == 110.0
    assert meter.seconds_to_empty("ann") == 0.0
    rate[0] = 0.0
    meter.work_out()
    assert meter.seconds_to_empty() is None


def test_answers_given_while_a_count_is_worked_out_are_not_missed():
    class Slow(Paying):
        def uses_left(self, price, *, account):
            n_uses = super().uses_left(price, account=account)
            meter.given("ann", 5)  # charged after the ledger was read
            return n_uses

    meter = AnswersLeft(Slow(), PRICE, rate=lambda _: 0.0)
    assert meter.work_out("ann") == 35
    assert meter.of("ann") == 35


def test_answers_given_just_before_a_count_is_kept_are_not_missed():
    late = threading.Thread(target=lambda: meter.given("ann", 5))

    def clock():
        if not late.ident:
            late.start()
            late.join(0.05)
        return 0.0

    meter = AnswersLeft(Paying(), PRICE, rate=lambda _: 0.0, clock=clock)
    meter.work_out("ann")
    late.join()
    assert meter.of("ann") == 35


def test_many_requests_at_once_work_the_answers_left_out_once(service, monkeypatch):
    worked, counts = [], service.there.answers_left
    once = counts.work_out
    counts._left.clear()
    monkeypatch.setattr(counts, "work_out", lambda who="": (worked.append(who), once(who)))
    monkeypatch.setattr("ostraka.serve.deployment.PATIENCE", 120.0)  # on a busy machine
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda n: service.label([n / 10, 0.0, 0.0], key=f"k{n}"), range(16)))
    assert {reply.status_code for reply in replies} == {200}
    assert all(int(reply.headers["ostraka-answers-left"]) > 0 for reply in replies)
    assert worked.count("alice") <= 2  # once for all requests, and once for the page's first drawing


def test_health_is_not_readiness(service, monkeypatch):
    def both():
        service.there.readiness._when = -1e9
        with service.http(None) as http:
            return [http.get(path).status_code for path in ("/health", "/ready")]

    head = service.there.ledger.head
    assert both() == [200, 200]
    assert service.there.ledger.head == head
    service.there.ledger._store._db.execute("PRAGMA busy_timeout = 20")
    with contextlib.closing(sqlite3.connect(service.there.ledger.path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        assert both() == [200, 503]
        with service.http(None) as http:
            assert http.get("/ready").json()["error"] == "the ledger cannot be charged (LedgerUnavailable)"
        connection.execute("ROLLBACK")
    assert both() == [200, 200]
    for broken in (
        lambda patch: patch.setattr(_capacity, "_LEAST_SPACE", 2**70),
        lambda patch: patch.setattr(service.there.keys, "readable", False),
        lambda patch: patch.setattr(service.there.readiness, "_batcher", type("Ended", (), {"alive": False})),
    ):
        with monkeypatch.context() as patch:
            broken(patch)
            assert both() == [200, 503]
    assert service.label(ONE, key="k").status_code == 200


def test_readiness_is_looked_at_once_a_second_however_many_ask(service, monkeypatch):
    looked = []
    monkeypatch.setattr(service.there.ledger, "probe", lambda: looked.append(1))
    with service.http() as http:
        for _ in range(20):
            assert http.get("/ready").status_code == 200
    assert len(looked) < 5
