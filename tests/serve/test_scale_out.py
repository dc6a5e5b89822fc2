"""Several services before one PostgreSQL, and teachers in several processes."""

import dataclasses
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ostraka import Budget, GNMax
from ostraka.consistent import Consistent
from ostraka.ledger import LedgerError
from ostraka.serve.deployment import Deployment, Settings
from ostraka.voters import SavedTeachers
from tests.serve.conftest import (
    COLUMNS,
    ONE,
    PATIENCE,
    PEPPER,
    Service,
    deploy,
    ensemble,
    rows,
    serving,
)
from tests.threads import at_once

NUMBERS = {"columns": COLUMNS, "numeric": (True,) * 3, "grid": Consistent.grid_of(rows(500, seed=1))}


def opened(folder, saved, address, *, shared=True, budget=None) -> Deployment:
    return Deployment(
        saved=saved,
        folder=folder / "service",
        db=address,
        budget=budget,
        settings=Settings(rate=1e6, burst=10**6),
        environment={},
        pepper=PEPPER,
        shared=shared,
    )


def test_services_before_one_database_share_budget_keys_and_answers(tmp_path, saved, new_schema):
    database = new_schema()
    noisy = dataclasses.replace(saved, mechanism=GNMax(sigma=100.0))
    first = deploy(tmp_path, noisy, budget=Budget(epsilon=0.4, delta=1e-6))  # makes keys and secrets
    first.there.ledger.close()
    for name in ("ledger.anchor", "ledger.sqlite"):
        (tmp_path / "service" / name).unlink()
    budget = Budget(epsilon=0.4, delta=1e-6)
    one, second = (
        Service(tmp_path, opened(tmp_path, noisy, database, budget=budget), first.keys) for _ in range(2)
    )
    affordable = one.there.ledger.uses_left(noisy.mechanism)
    assert 20 < affordable < 150
    with pytest.raises(LedgerError, match="open for writing elsewhere"):
        opened(tmp_path, noisy, database, shared=False)
    with serving(one), serving(second):
        answer = one.label(ONE, key="k").json()
        assert second.label(ONE, key="k").json() == answer, "a retry at the other service is the same answer"
        again = second.label(ONE, key="again", who="bob").json()
        assert again["label"] == answer["label"]
        granted, X = [], rows(affordable + 40, seed=7)

        def ask(service, mine):
            until = time.monotonic() + PATIENCE
            for n, row in mine:
                while (
                    status := service.label(row, key=f"n{n}").status_code
                ) == 503 and time.monotonic() < until:
                    time.sleep(0.1)  # a busy machine: the same key again
                granted.append(status)

        numbered = list(enumerate(X.tolist()))
        with at_once(*(partial(ask, (one, second)[k % 2], numbered[k::4]) for k in range(4))):
            pass
        assert (granted.count(200), granted.count(402)) == (affordable - 1, 41)
        assert one.label(ONE, key="k").json() == answer
    with opened(tmp_path, noisy, database).ledger as ledger:
        ledger.verify()


@pytest.mark.parametrize("trouble", ["a frozen server", "a paused service"])
def test_no_request_waits_for_a_database_that_is_silent(tmp_path, saved, new_schema, trouble, monkeypatch):
    import psycopg

    monkeypatch.setattr("ostraka.serve.metrics._FRESH", 0.0)
    address = new_schema()
    first = deploy(tmp_path, saved)
    first.there.ledger.close()
    for name in ("ledger.anchor", "ledger.sqlite"):
        (tmp_path / "service" / name).unlink()
    service = Service(
        tmp_path, opened(tmp_path, saved, address, budget=first.there.ledger.budget), first.keys
    )
    routes = ("/v1/budget", "/v1/ledger/receipt/1", "/ready", "/metrics", "/")
    with serving(service, reading=1.9), psycopg.connect(address) as connection, ThreadPoolExecutor(8) as pool:
        assert service.label(ONE, key="before").status_code == 200
        (pid,) = service.there.ledger._store._db.execute("SELECT pg_backend_pid()").fetchone()

        def ask(path):
            start = time.monotonic()
            if path == "label":
                reply = service.label(ONE, key="k")
            else:
                with service.http("alice" if path.startswith("/v1") else "olga") as http:
                    reply = http.get(path)
            return path, reply.status_code, time.monotonic() - start

        if trouble == "a frozen server":
            os.kill(pid, signal.SIGSTOP)
        else:
            connection.execute("SELECT * FROM ostraka_budget FOR UPDATE")
        try:
            answered = list(pool.map(ask, ("label", *routes, "/health", "label")))
        finally:
            os.kill(pid, signal.SIGCONT)
            connection.rollback()
        charging = {"label", "/ready"} if trouble == "a paused service" else {"label", *routes}
        assert {path for path, status, _ in answered if status == 503} >= charging, answered
        assert ("/health", 200) in [(path, status) for path, status, _ in answered]
        assert max(seconds for *_, seconds in answered) < 5, answered  # 2 on a quiet machine
        until = time.monotonic() + PATIENCE
        while (reply := service.label(ONE, key="k")).status_code == 503 and time.monotonic() < until:
            pass
        assert reply.status_code == 200
        assert [entry.key for entry in service.entries()] == ["before", "k"]


SECRETS = ("OSTRAKA_PEPPER", "OSTRAKA_LEDGER_SECRET", "OSTRAKA_ANSWERS_SECRET", "PGPASSWORD")


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    """Teachers in two processes, started where a service's secrets are in the environment; and their folder.

    One pair for all tests, each of which leaves them as they were.
    """
    folder = tmp_path_factory.mktemp("split") / "teachers"
    SavedTeachers(ensemble=ensemble(), mechanism=GNMax(sigma=30.0), **NUMBERS).save(folder)
    with pytest.MonkeyPatch.context() as patched:
        for name in SECRETS:
            patched.setenv(name, "canary7391")
        teachers = SavedTeachers.load(folder, processes=2)
    try:
        yield teachers, folder
    finally:
        teachers.ensemble.close()


def test_partial_votes_of_processes_add_up(split, tmp_path):
    together, teachers = split[0], SavedTeachers.load(split[1])
    assert (together.sha256, together.n_ballots, together.adjacency) == (
        teachers.sha256,
        40,
        teachers.adjacency,
    )
    X = rows(50, seed=3)
    np.testing.assert_array_equal(together.vote(X).open(), teachers.vote(X).open())
    with serving(deploy(tmp_path, together)) as service:
        answer = service.label(ONE, key="k").json()
    with serving(deploy(tmp_path, teachers)) as service:
        assert service.label(ONE, key="k").json() == answer, "the same service, in one process"


def test_a_process_of_teachers_does_not_inherit_the_secrets_of_the_service(split):
    for part in split[0].ensemble._parts:
        environment = Path(f"/proc/{part.process.pid}/environ").read_bytes()
        assert b"OMP_NUM_THREADS=1" in environment
        assert b"canary7391" not in environment


@pytest.mark.slow  # the next test kills one, too, is refused without a charge, and has it back
def test_a_process_of_teachers_that_ends_costs_nothing_and_comes_back(split, tmp_path):
    parts = split[0].ensemble._parts
    with serving(deploy(tmp_path, split[0])) as service:
        parts[1].connection.close()  # as if it broke in the middle of a vote
        reply = service.label(ONE, key="k")
        assert (reply.status_code, reply.json()["code"]) == (503, "unavailable")
        assert not service.entries()
        assert service.label(ONE, key="k").status_code == 200
        os.kill(parts[0].process.pid, 9)
        parts[0].process.wait()
        assert service.label([3.0, 2.0, 1.0], key="l").status_code == 200


def test_a_process_that_is_started_again_refuses_other_teachers_than_the_others_have(split, tmp_path, capfd):
    teachers, folder = split
    whole = SavedTeachers.load(folder)
    dataclasses.replace(whole, mechanism=GNMax(sigma=31.0)).save(tmp_path / "others")
    with serving(deploy(tmp_path, teachers)) as service:
        os.kill(teachers.ensemble._parts[0].process.pid, 9)
        teachers.ensemble._parts[0].process.wait()
        folder.rename(tmp_path / "away")
        (tmp_path / "others").rename(folder)
        assert service.label(ONE, key="k").status_code == 503
        assert not service.entries()
        assert "was changed since these teachers began to vote" in capfd.readouterr().err
        folder.rename(tmp_path / "others")
        (tmp_path / "away").rename(folder)
        assert service.label(ONE, key="k").status_code == 200


def test_more_processes_than_files_are_refused(split):
    with pytest.raises(ValueError, match="processes must be 1 to 2"):
        SavedTeachers.load(split[1], processes=3)
