"""Shared by tests of collect: a round with keepers in one process."""

import numpy as np
import pytest

from ostraka.collect import Client, Keeper, Tally, Task, Tree
from ostraka.collect.keeper import Enrolment
from ostraka.collect.messages import Closing
from ostraka.secure.keys import Identity, exchange_key, new_secret


class Summed:
    """A task, and what numpy says the sum of its clients' vectors is."""

    def plain(self, values):
        rows = [self.task.encoding.encode(value).astype(np.int32) for value in values]
        return np.sum(rows, axis=0, dtype=np.int64)


class Office(Summed):
    """A task among clients with its tally, and an enrolment if it needs one."""

    def __init__(self, encoding=None, *, lying=False, enrolled=None, folder=None, **options):
        self.me, self.folder, self.tally = Identity.fresh(), folder, None
        self.office = Identity.fresh() if enrolled or (enrolled is None and lying) else None
        usual = {"sigma": 3.0, "noise": "tally", "least": 8, "most": 40, "missing": 0.2}
        if self.office:
            usual["enrolment"] = self.office.public_key
        fields = {**usual, **options, "lying": lying}
        self.task = Task(encoding or Tree(0, 20, fanout=5), tally=self.me.public_key, **fields)
        self.restart()

    def restart(self):
        """New processes with the same folder."""
        if self.tally and self.tally._log:
            self.tally._log.close()
        self.tally = Tally(self.task, self.me, folder=self.folder)
        self.enrolment = self.office and Enrolment(self.task, self.office, folder=self.folder)


class KeptRound(Summed):
    """One task with keepers, its tally and its identities."""

    def __init__(self, encoding=None, *, n_keepers=2, folder=None, **options):
        self.me = Identity.fresh()
        self.identities = [Identity.fresh() for _ in range(n_keepers)]
        keys = [Keeper.key(keeper) for keeper in self.identities]
        settings = {"sigma": 4.0, "noise": "tally", **options}
        self.task = Task(
            encoding or Tree(0, 20, fanout=5), tally=self.me.public_key, keepers=keys, **settings
        )
        self.folder = folder
        self.restart()

    def restart(self):
        """New processes with the same folders."""
        self.keepers = [
            Keeper(self.task, keeper, folder=self.folder and self.folder / f"keeper{place}")
            for place, keeper in enumerate(self.identities)
        ]
        if getattr(self, "tally", None) and self.tally._log:
            self.tally._log.close()
        self.tally = Tally(
            self.task, self.me, keepers=self.keepers, folder=self.folder and self.folder / "tally"
        )

    def send(self, *values):
        """Each value from a client of its own; their messages."""
        messages = [Client(self.task).report(value) for value in values]
        for message in messages:
            self.tally.receive(message)
        return messages

    def closing(self, clients=None, *, key=None, signatures=b""):
        """A request about these clients, or about all who reported: what the tally would sign."""
        clients = sorted(self.tally._state.reports) if clients is None else clients
        closing = Closing(0, key or exchange_key(new_secret()), b"".join(clients), signatures)
        return closing.write(self.task)

    def ask(self, body, *, verb="close", keeper=None, signer=None):
        """What the first keeper answers to such a request."""
        sealed = (signer or self.me).seal(verb, body)
        return getattr(keeper or self.keepers[0], {"close": "answer"}.get(verb, verb))(sealed)


@pytest.fixture
def keeper_round():
    return KeptRound
