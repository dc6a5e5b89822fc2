"""What is left, for how long, and whether the service could charge now."""

import contextlib
import os
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from ostraka import Budget, GNMax, Ledger, Threshold
from ostraka.ledger import LedgerError
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


def test_a_count_is_worked_out_again_after_a_minute_unless_the_time_is_up():
    now, rate = [0.0], [2.0]
    meter = AnswersLeft(Paying(), PRICE, rate=lambda who: rate[0] + 2 * len(who), clock=lambda: now[0])
    assert meter.stale("ann")
    assert meter.renewed("ann", until=0.0) is None  # the time is up
    assert (meter.renewed("ann", until=0.5), meter.seconds_to_empty("ann")) == (40, 5.0)
    assert meter.given("ann", 4) == [""]  # the ledger's own is not known yet
    now[0] = 60.0
    assert (meter.stale("ann"), meter.renewed("ann")) == (False, 36)
    now[0], rate[0] = 60.5, 3.0
    assert (meter.stale("ann"), meter.renewed("ann", until=60.5)) == (True, 36)
    assert meter.seconds_to_empty("ann") == 4.0  # at the rate of now
    assert meter.given("ann", 0) == ["", "ann"]
    assert (meter.renewed("ann"), meter.known(), meter.of("eve")) == (40, None, 0)
    assert meter.given("ann", 41) == [""]
    assert (meter.of("ann"), meter.seconds_to_empty("ann")) == (0, 0.0)


def test_requests_are_counted_as_prometheus_reads_them(monkeypatch):
    monkeypatch.setattr(_capacity, "now", lambda: 1_800_000_000)
    counts = _capacity.Metrics()
    edges = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
    for number, edge in enumerate(edges):
        counts.answered("bob" if number else "ann", rows=number + 1, seconds=edge)
    counts.answered("ann", rows=2, seconds=2.6)
    for who, code in (("bob", "too_fast"), ("", "unauthorized"), ("bob", "bad_key"), ("bob", "too_fast")):
        counts.refused(who, code)
    assert counts.last_refused == dict.fromkeys(counts.refusals, 1_800_000_000)
    within = [f'_bucket{{le="{edge:g}"}} {n}' for n, edge in enumerate(edges, 1)]
    answers, refusals = ("Rows answered, by client.", "Requests refused, by client and code.")
    meaning = "From the whole body read to the reply, of answered requests."
    assert counts.text([("ostraka_ready", "Whether.", 0.5)]).splitlines() == [
        f"# HELP ostraka_answers_total {answers}",
        "# TYPE ostraka_answers_total counter",
        'ostraka_answers_total{client="ann"} 3',
        'ostraka_answers_total{client="bob"} 65',
        f"# HELP ostraka_refusals_total {refusals}",
        "# TYPE ostraka_refusals_total counter",
        'ostraka_refusals_total{client="",code="unauthorized"} 1',
        'ostraka_refusals_total{client="bob",code="bad_key"} 1',
        'ostraka_refusals_total{client="bob",code="too_fast"} 2',
        f"# HELP ostraka_answer_seconds {meaning}",
        "# TYPE ostraka_answer_seconds histogram",
        *(f"ostraka_answer_seconds{row}" for row in (*within, '_bucket{le="+Inf"} 12')),
        "ostraka_answer_seconds_sum 7.043500",
        "ostraka_answer_seconds_count 12",
        "# HELP ostraka_ready Whether.",
        "# TYPE ostraka_ready gauge",
        "ostraka_ready 0.5",
    ]
    assert counts.text([])[-1] == "\n"


def test_a_look_counts_for_a_second_and_after_three_its_age_is_a_problem(tmp_path, monkeypatch):
    now, looked, disk = [50.0], [], SimpleNamespace(f_bavail=4096, f_frsize=4096)  # 16 MiB
    keys, batcher = SimpleNamespace(readable=True), SimpleNamespace(alive=True)
    ledger = SimpleNamespace(path=str(tmp_path / "no" / "ledger"), probe=lambda: looked.append(now[0]))
    readiness = _capacity.Readiness(ledger, keys, batcher, clock=lambda: now[0])
    assert readiness.problems() == []  # of a database elsewhere there is no disk to look at
    monkeypatch.setattr(os, "statvfs", lambda path: {tmp_path / "no": disk}[path])
    for seconds, looks in ((0.75, 1), (1.0, 2), (1.5, 2), (2.0, 3)):
        now[0] = 50.0 + seconds
        assert (readiness.problems(), len(looked)) == ([], looks)
    disk.f_frsize = 4095
    now[0] = 53.0
    assert readiness.problems() == ["the disk of the ledger is almost full"]

    def away():
        raise LedgerError("quotes what it should not")

    keys.readable, batcher.alive, ledger.probe = False, False, away
    now[0] = 54.0
    reasons = [
        "the thread that answers has ended",
        "the file of keys cannot be read",
        "the disk of the ledger is almost full",
        "the ledger cannot be charged (LedgerError)",
    ]
    assert (readiness.problems(), readiness.works) == (reasons, False)
    with readiness._looking:  # another look hangs
        for seconds, age in ((2.75, []), (3.0, ["the last look at the ledger is 3 seconds old"])):
            now[0] = 54.0 + seconds
            assert readiness.problems() == [*reasons, *age]
        fresh = _capacity.Readiness(ledger, keys, batcher, clock=lambda: now[0])
        with fresh._looking:
            assert fresh.problems() == ["not looked at yet"]
