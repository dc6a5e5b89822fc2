"""A round with keepers as a state machine: whatever happens in whatever order, one exact sum of survivors."""

import shutil
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ostraka.collect import Client
from ostraka.collect import messages as _reports
from ostraka.collect.messages import Closing
from ostraka.secure.keys import exchange_key, new_secret
from ostraka.secure.rounds import PartyError
from tests.collect.conftest import KeptRound


class Round(RuleBasedStateMachine):
    """Clients report, repeat and come late; the tally and its keepers stop and start again."""

    @initialize()
    def begin(self):
        self.folder = Path(tempfile.mkdtemp())
        self.round = KeptRound(folder=self.folder)
        self.sent: list[tuple[int, bytes]] = []
        self.late: list[bytes] = []
        self.sums = None

    @rule(value=st.integers(-3, 25))
    def report(self, value):
        message = Client(self.round.task).report(value)
        if self.closed():
            self.late.append(message)
            self.refused(message)
        else:
            self.round.tally.receive(message)
            self.sent.append((value, message))

    @precondition(lambda self: getattr(self, "sent", []))
    @rule(data=st.data())
    def repeat(self, data):
        self.round.tally.receive(data.draw(st.sampled_from(self.sent))[1])

    @precondition(lambda self: getattr(self, "sent", []) and not self.closed())
    @rule(data=st.data())
    def change(self, data):
        message = data.draw(st.sampled_from(self.sent))[1]
        self.refused(message[:-1] + bytes([message[-1] ^ 1]))

    @rule()
    def restart(self):
        self.round.restart()

    @precondition(lambda self: not hasattr(self, "sent") or len(self.sent) < 3)
    @rule()
    def close_too_early(self):
        try:
            self.round.tally.close()
        except PartyError as error:
            assert "needs 3 clients" in str(error)  # noqa: PT017
        else:
            raise AssertionError("fewer than three were summed")

    @precondition(lambda self: len(getattr(self, "sent", [])) >= 3)
    @rule()
    def close(self):
        self.sums = self.round.tally.close().open()
        np.testing.assert_array_equal(self.sums, self.round.plain([value for value, _ in self.sent]))

    @precondition(lambda self: self.closed() and len(self.sent) > 3)
    @rule(data=st.data())
    def ask_a_keeper_for_fewer(self, data):
        keys = sorted(_reports.Report.read(message, self.round.task, 0).key for _, message in self.sent)
        keys.remove(data.draw(st.sampled_from(keys)))
        closing = Closing(0, exchange_key(new_secret()), b"".join(keys))
        try:
            self.round.keepers[0].answer(self.round.me.seal("close", closing.write(self.round.task)))
        except PartyError as error:
            assert "another request" in str(error)  # noqa: PT017
        else:
            raise AssertionError("a keeper answered for a second set of survivors")

    def closed(self) -> bool:
        return getattr(self, "sums", None) is not None

    def refused(self, message: bytes) -> None:
        try:
            self.round.tally.receive(message)
        except PartyError:
            return
        raise AssertionError("the message was taken")

    @invariant()
    def every_client_counts_once(self):
        if hasattr(self, "round"):
            assert self.round.tally.n_clients == len(self.sent)

    def teardown(self):
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)


TestRound = Round.TestCase
TestRound.settings = settings(max_examples=15, stateful_step_count=15, deadline=None)
