"""Which requests a micro-batch takes together."""

import asyncio
import threading

import numpy as np

from ostraka import GNMax
from ostraka.core.door import Drawn
from ostraka.core.ledger.chain import Receipt
from ostraka.serve.answering import Batcher

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
