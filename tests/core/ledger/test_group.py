"""Group commit: who is served together, and what happens to the others when something fails."""

import contextlib
import threading
import time

import pytest

from ostraka.core.ledger.commit import Group
from ostraka.ledger import LedgerError

PATIENCE = 120.0  # seconds, on a busy machine; nothing here takes one


class Server:
    """Doubles numbers; waits at its gate first, and fails where it is told to."""

    def __init__(self):
        self.gate, self.batches, self.error = threading.Event(), [], None
        self.gate.set()
        self.entered = threading.Semaphore(0)

    def __call__(self, asks):
        self.entered.release()
        self.gate.wait(PATIENCE)
        self.batches.append(list(asks))
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return [ask if isinstance(ask, Exception) else 2 * ask for ask in asks]


@pytest.fixture
def server():
    return Server()


def start(group, asks, answers):
    def work():
        try:
            answers[asks] = group.submit(asks)
        except BaseException as error:  # noqa: BLE001  (interrupts too)
            answers[asks] = error

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def gathered(group, n):
    """Wait until so many wait."""
    until = time.monotonic() + PATIENCE
    while len(group._waiting) < n and time.monotonic() < until:
        time.sleep(0.001)
    assert len(group._waiting) == n


@contextlib.contextmanager
def waiting(group, server, *asks):
    """Those who wait in this order behind 0, which is served; yields what all have got after the block."""
    answers = {}
    server.gate.clear()
    threads = [start(group, 0, answers)]
    server.entered.acquire()
    for n, ask in enumerate(asks, 1):
        threads.append(start(group, ask, answers))
        gathered(group, n)
    yield answers
    server.gate.set()
    for thread in threads:
        thread.join(PATIENCE)


def test_one_caller_is_served_at_once(server):
    group = Group(server)
    assert [group.submit(n) for n in (1, 2, 3)] == [2, 4, 6]
    assert server.batches == [[1], [2], [3]]


def test_those_who_come_meanwhile_are_served_together_in_order(server):
    with waiting(Group(server), server, 1, 2, 3, 4, 5) as answers:
        pass
    assert server.batches == [[0], [1, 2, 3, 4, 5]]
    assert answers == {n: 2 * n for n in range(6)}


def test_an_error_of_one_is_not_the_error_of_the_others(server):
    wrong = LedgerError("of this one")
    with waiting(Group(server), server, 1, wrong) as answers:
        pass
    assert answers == {0: 0, 1: 2, wrong: wrong}


@pytest.mark.parametrize("error", [LedgerError("the disk is full"), KeyboardInterrupt()])
def test_an_error_of_all_reaches_all_and_the_next_are_served(server, error):
    group = Group(server)
    with waiting(group, server, 1, 2) as answers:
        server.error = error
    assert answers == {0: error, 1: 2, 2: 4}  # the first batch is the one that fails
    assert group.submit(5) == 10


def test_those_who_were_served_with_an_interrupted_one_hear_that_it_is_not_known(server):
    group = Group(server)

    def interrupt_the_second(asks, serve=group._serve):
        if asks != [0]:
            server.error = KeyboardInterrupt()
        return serve(asks)

    with waiting(group, server, 1, 2) as answers:
        group._serve = interrupt_the_second
    assert answers[0] == 0
    assert isinstance(answers[1], KeyboardInterrupt)
    assert isinstance(answers[2], LedgerError)
    assert "unknown whether it was charged" in str(answers[2])


class Interrupted:
    """A lock whose second ``acquire`` (the first is the ticket's own) is interrupted."""

    def __init__(self):
        self._count = 0

    def acquire(self):
        self._count += 1
        if self._count > 1:
            raise KeyboardInterrupt

    def release(self):
        pass


def test_who_is_interrupted_while_waiting_leaves_and_nobody_waits_for_it(server, monkeypatch):
    group = Group(server)
    with waiting(group, server):
        with monkeypatch.context() as lock:
            lock.setattr("ostraka.core.ledger.commit.threading.Lock", Interrupted)
            with pytest.raises(KeyboardInterrupt):
                group.submit(1)
        assert group._waiting == []
    assert group.submit(2) == 4
    assert server.batches == [[0], [2]]


def test_an_interrupt_just_after_the_lead_was_handed_over_hands_it_on(server):
    group = Group(server)
    lead = group._lead

    def interrupted_once():
        group._lead = lead
        raise KeyboardInterrupt

    with waiting(group, server, 1, 2) as answers:
        group._lead = interrupted_once
    assert isinstance(answers[1], KeyboardInterrupt)
    assert answers[2] == 4
    assert group.submit(5) == 10
