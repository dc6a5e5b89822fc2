"""Which requests a micro-batch takes together, and what becomes of each."""

import asyncio
import hashlib
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from ostraka import BudgetExceeded, GNMax
from ostraka.core.door import Drawn
from ostraka.core.ledger.budget import KeyConflict, LedgerUnavailable
from ostraka.core.ledger.chain import Receipt
from ostraka.secure.rounds import PartyError
from ostraka.serve.answering import Batcher
from ostraka.serve.requests import Refused
from ostraka.voters.endpoint import EndpointError
from ostraka.voters.saved import VotersAwayError

PATIENCE = 60.0
MECHANISM = GNMax(sigma=30.0)


class Voter:
    """Answers every row with 1 and notes each batch; waits while ``may_go`` is not set."""

    reserve = MECHANISM

    def __init__(self):
        self.batches, self.began, self.may_go = [], threading.Event(), threading.Event()
        self.may_go.set()

    def features(self, rows):
        return np.array(rows)

    def usable(self, features):
        return np.ones(len(features), dtype=bool)

    def answer(self, features, *, ledger, requests):
        self.batches.append([row[0] for row in features.tolist()])
        self.began.set()
        assert self.may_go.wait(PATIENCE)
        charges = requests([Drawn(f"{n:02x}", 1, MECHANISM) for n in range(len(features))])
        return [Receipt(seq=n, head="ab", answer=charge.answer, left=1.0) for n, charge in enumerate(charges)]


def batches(play):
    """The batches that a voter sees while ``play(ask, voter)`` runs beside a batcher."""

    async def run():
        voter = Voter()
        batcher = Batcher(voter, None, stop=lambda error: None)
        batcher.start()

        async def ask(number):
            return await batcher.ask("ann", f"k{number}", [[number]])

        await asyncio.wait_for(play(ask, voter), PATIENCE)
        await batcher.close()
        return voter.batches

    return asyncio.run(run())


def test_what_is_asked_in_one_turn_is_one_batch():
    async def play(ask, _):
        await asyncio.gather(*map(ask, range(9)))

    assert batches(play) == [list(range(9))]


def test_who_is_answered_and_asks_again_is_in_the_next_batch_with_those_who_waited():
    async def play(ask, voter):
        voter.may_go.clear()

        async def twice(number):
            await ask(number)
            await asyncio.sleep(0)  # the time in which a reply leaves and a request is read
            await ask(number + 10)

        early = [asyncio.create_task(twice(number)) for number in range(3)]
        assert await asyncio.to_thread(voter.began.wait, PATIENCE)
        late = [asyncio.create_task(ask(number)) for number in (20, 21)]
        await asyncio.sleep(0.05)
        voter.may_go.set()
        await asyncio.gather(*early, *late)

    first, second = batches(play)
    assert (first, sorted(second)) == ([0, 1, 2], [10, 11, 12, 20, 21])


def test_a_batcher_that_is_closed_answers_what_was_asked_before():
    async def run():
        batcher = Batcher(Voter(), None, stop=lambda error: None)
        batcher.start()
        question = asyncio.create_task(batcher.ask("ann", "k", [[1]]))
        await asyncio.sleep(0)
        await batcher.close()
        return await asyncio.wait_for(question, PATIENCE)

    (receipt,) = asyncio.run(run())
    assert receipt.answer == 1


def test_requests_beyond_the_most_rows_of_a_batch_are_answered_in_several():
    async def play(ask, _):
        await asyncio.gather(*map(ask, range(700)))

    batch_sizes = batches(play)
    assert [len(batch) for batch in batch_sizes] == [512, 188]
    assert [*batch_sizes[0], *batch_sizes[1]] == list(range(700))


# What becomes of a request


class Refusing(Voter):
    """Charges, and has the ledger say of each request what its key asks for."""

    def __init__(self, error=None, *, charged=True):
        super().__init__()
        self.error, self.charged, self.charges = error, charged, []

    def usable(self, features):
        return np.abs(features).max(axis=1) < 100

    def answer(self, features, *, ledger, requests):
        self.batches.append(features.tolist())
        self.began.set()
        assert self.may_go.wait(PATIENCE)
        if self.error and not self.charged:
            raise self.error
        self.charges = requests([Drawn(f"{n:02x}", n, MECHANISM) for n in range(len(features))])
        if self.error:
            raise self.error
        outcomes = {"conflict": KeyConflict("used"), "spent": BudgetExceeded("spent", asked=1.0, left=0.0)}
        return [
            outcomes.get(
                charge.key.partition("/")[0], Receipt(seq=n, head="ab", answer=charge.answer, left=1.0)
            )
            for n, charge in enumerate(self.charges)
        ]


def together(voter, *questions, stop=None, ledger=None, **settings):
    """The outcomes of questions (key, rows) that are asked in one turn, and whether the thread still runs."""

    async def run():
        batcher = Batcher(voter, ledger, stop=stop or (lambda error: None), **settings)
        batcher.start()
        asked = [batcher.ask("ann", key, rows) for key, rows in questions]
        outcomes = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), PATIENCE)
        alive = batcher.alive
        assert all(thread.daemon for thread in threading.enumerate() if thread.name == "answers")
        await batcher.close()
        assert (batcher.waiting, batcher.alive) == (0, False)
        return outcomes, alive

    outcomes, alive = asyncio.run(run())
    results = [
        (outcome.status, outcome.code)
        if isinstance(outcome, Refused)
        else [receipt.answer for receipt in outcome]
        for outcome in outcomes
    ]
    return results, alive


def test_each_request_has_what_the_ledger_said_of_its_rows():
    voter = Refusing()
    results, alive = together(
        voter,
        ("one", [[1, 2]]),
        ("far", [[3, 4], [5, 100]]),
        ("two", [[6, 7], [8, 99]]),
        ("conflict", [[9, 9]]),
        ("spent", [[1, 1], [2, 2]]),
        ("away", [[-100, 0]]),
    )
    assert alive
    far = (400, "bad_schema")
    assert results == [[0], far, [1, 2], (409, "key_conflict"), (402, "budget_exceeded"), far]
    assert voter.batches == [[[1, 2], [6, 7], [8, 99], [9, 9], [1, 1], [2, 2]]]
    digest = hashlib.sha256(b"01 02").hexdigest()
    shown = [
        (c.key, c.digest, c.answer, c.times, c.follows, c.cost.curve().epsilon(1e-6) > 0)
        for c in voter.charges
    ]
    assert shown[:5] == [
        ("one", "00", 0, 1, False, True),
        ("two", digest, 2, 2, False, False),  # binds the key to the batch, and is free
        ("two/0", "01", 1, 1, True, True),
        ("two/1", "02", 2, 1, True, True),
        ("conflict", "03", 3, 1, False, True),
    ]
    assert {(charge.account, charge.reserve) for charge in voter.charges} == {("ann", MECHANISM)}
    results, _ = together(voter, ("far", [[100, 0]]))
    assert (results, len(voter.batches)) == ([far], 1)  # nobody votes for nothing


@pytest.mark.parametrize(
    ("error", "code", "event"),
    [
        (LedgerUnavailable("locked"), (503, "unavailable"), "ledger.unavailable"),
        (EndpointError("canary"), (503, "unavailable"), "voters.unavailable"),
        (PartyError("canary", code="late"), (503, "unavailable"), "voters.unavailable"),
        (VotersAwayError("canary"), (503, "unavailable"), "voters.unavailable"),
        (KeyError("canary"), (500, "failed"), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_fails_before_the_charge_refuses_all_of_a_batch_but_what_was_refused_before(
    caplog, error, code, event
):
    questions = ("one", [[1, 2]]), ("far", [[100, 0]]), ("two", [[3, 4]])
    results, alive = together(Refusing(error, charged=False), *questions)
    assert (results, alive) == ([code, (400, "bad_schema"), code], True)
    assert [record.event for record in caplog.records] == ([event] if event else [])
    assert "canary" not in caplog.text


@pytest.mark.parametrize("charged", [False, True])
@pytest.mark.parametrize("error", [KeyError("k"), SystemExit(1)], ids=lambda error: type(error).__name__)
def test_an_error_after_the_charge_or_one_that_ends_a_process_stops_the_service_unanswered(error, charged):
    async def run():
        batcher = Batcher(Refusing(error, charged=charged), None, stop=stopped.append)
        batcher.start()
        asked = asyncio.ensure_future(batcher.ask("ann", "k", [[1, 2]]))
        done, _ = await asyncio.wait({asked}, timeout=None if answered else 0.05)
        await batcher.close()
        asked.cancel()
        return bool(done), bool(done) and asked.exception().code

    stopped, answered = [], isinstance(error, Exception) and not charged
    assert asyncio.run(run()) == ((True, "failed") if answered else (False, False))
    assert stopped == ([] if answered else [error])


def test_so_many_rows_may_wait_and_no_more():
    busy = (503, "busy")
    for n_rows, expected in ((1, [[0], [1, 2], [3]]), (2, [[0], [1, 2], busy])):
        results, _ = together(
            Refusing(), ("a", [[1]]), ("b", [[2], [3]]), ("c", [[4]] * n_rows), most_waiting=4
        )
        assert results == expected
    voter = Voter()
    results, _ = together(voter, ("a", [[0]] * 4_096), ("b", [[0]]))
    assert (len(results[0]), results[1]) == (4_096, busy)


class Ledger:
    """One whose database has not answered for so many seconds."""

    seconds = 0.0

    def waited(self):
        return self.seconds


def test_who_waits_for_more_than_a_second_for_a_ledger_that_does_not_answer_is_told_so(monkeypatch):
    looks, now = [], [100.0]

    async def run():
        loop, ledger, voter = asyncio.get_running_loop(), Ledger(), Voter()
        monkeypatch.setattr(loop, "call_later", lambda seconds, look: looks.append((seconds, look)))
        monkeypatch.setattr("ostraka.serve.answering.time", SimpleNamespace(monotonic=lambda: now[0]))
        batcher = Batcher(voter, ledger, stop=lambda error: None)
        batcher.start()
        voter.may_go.clear()

        def ask(key):
            return asyncio.ensure_future(batcher.ask("ann", key, [[1]]))

        first = ask("a")
        assert await asyncio.to_thread(voter.began.wait, PATIENCE)
        job = next(iter(batcher._handed_over))
        job.start = 100.0
        second = ask("b")
        await asyncio.sleep(0)
        batcher._gathering[0].start = 100.5
        done = []
        for when, seconds in ((101.25, 1.0), (101.0, 1.5), (101.25, 1.5), (101.5, 1.5), (102.0, 1.5)):
            ((wait, look),) = looks
            assert wait == 0.25
            looks.clear()
            now[0], ledger.seconds = when, seconds
            look()
            await asyncio.sleep(0)
            done.append((first.done(), second.done()))
        assert done == [(False, False), (False, False), (True, False), (True, False), (True, True)]
        for task in (first, second):
            assert (task.exception().code, task.exception().status) == ("unavailable", 503)
        voter.may_go.set()
        await batcher.close()
        await asyncio.sleep(0)  # what the thread said last is told
        assert batcher.waiting == 0
        looks.pop()[1]()
        assert looks == []  # until somebody asks again
        return voter.batches

    assert asyncio.run(run()) == [[1], [1]]


def test_a_batch_is_handed_over_once_nothing_was_asked_for_two_turns():
    """A request is read in one turn of the event loop and asked in the next one."""

    def play(*pauses):
        async def run(ask, _):
            asked = []
            for number, turns in enumerate(pauses):
                for _ in range(turns):
                    await asyncio.sleep(0)
                asked.append(asyncio.ensure_future(ask(number)))
            await asyncio.gather(*asked)

        return batches(run)

    assert [play(0, turns) for turns in range(6)] == [[[0, 1]]] * 3 + [[[0], [1]]] * 3
    assert play(0, 2, 2, 2, 2) == [[0, 1, 2, 3, 4]]
