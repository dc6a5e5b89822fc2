"""Federated averaging in Flower with masks, noise of clients and one ledger.

:class:`MaskedMod` is for a client app: what leaves it is the change of the arrays, shortened to a norm, with
noise and masks. :class:`MaskedFedAvg` is for a server app: it runs the four exchanges of a round, learns the
noisy sum, and releases the mean through the ledger. All clients weigh the same: weights by rows would break
the bound.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.collect import estimate
from ostraka.collect.client import Masking
from ostraka.collect.encodings import Vector
from ostraka.collect.messages import BOUND, known_round
from ostraka.collect.tally import Tally
from ostraka.core import check
from ostraka.core.door import release
from ostraka.secure.keys import KEY_BYTES, new_secret
from ostraka.secure.rounds import PartyError, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from os import PathLike

    from ostraka.collect.task import Task
    from ostraka.core.ledger.ledger import Ledger
    from ostraka.secure.keys import Identity

_RECORD = "ostraka"  # of a message, and of a node's state
_TRAIN = "train"


class MaskedMod:
    """A mod of a Flower client app: its train function is called as ever, and its arrays leave masked.

    Parameters
    ----------
    task : Task
        Among clients, without enrolment, with a :class:`Vector` as long as all arrays together. Agree on its
        fingerprint beforehand: a server that asks for another is refused.

    Raises
    ------
    ValueError
        Another task; when called, a message to train that is not of a masked round.

    Guarantees
    ----------
    Of the train function's reply only the change of its arrays leaves, encoded, with this client's share of
    the noise and its masks; metrics stay. A round is answered once, in order. Keys of a round are in the
    state of the node until its last exchange; Flower gives a node one message at a time. Messages to evaluate
    or to query pass unchanged: what they return is not protected.

    Examples
    --------
    >>> from ostraka.collect import Task
    >>> task = Task(Vector(cells=10, clip=1.0, grid=64), sigma=600.0, tally="ab" * 32, least=5)
    >>> mod = MaskedMod(task)  # ClientApp(mods=[mod])
    """

    def __init__(self, task: Task) -> None:
        self.task = _averaged(task)

    def __call__(self, message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
        """Answer one exchange of a round, or pass on what is not about training."""
        if message.metadata.message_type.partition(".")[0] != _TRAIN:
            return call_next(message, context)
        app = check.require("flwr.app", extra="flower")
        order = message.content.pop(_RECORD, None)
        if order is None or order["task"] != self.task.sha256:
            raise ValueError("this client trains in masked rounds of its own task only: take MaskedFedAvg")
        stage, round_, inbox = str(order["stage"]), known_round(self.task, order["round"]), order["message"]
        # this node's part in the round: a new one for a later round than before, else its own
        state = context.state.get(_RECORD)
        if stage == "join" and state is not None and state["round"] >= round_:
            raise refused("the client", "it has answered this round: a value is reported once")
        if stage != "join" and (state is None or state["round"] != round_):
            raise refused("the client", "it has not joined this round")
        masking = Masking(self.task, round_=round_, secret=new_secret())
        if stage != "join":
            masking.resume(state["masking"])
        if stage == "join":
            answer = masking.join()
        elif stage == "mask":
            sent, trained = (  # all arrays of a message, one behind the other
                np.concatenate([array.numpy().ravel().astype(np.float64) for array in arrays.values()])
                for content in (message.content, call_next(message, context).content)
                for arrays in list(content.array_records.values())[:1]
            )
            if sent.shape != trained.shape:
                raise ValueError("training must return arrays of the shapes that it was given")
            answer = masking.mask(self.task.encoded(trained - sent), inbox)
        elif stage in {"share", "unmask"}:
            answer = getattr(masking, stage)(inbox)
        else:
            raise ValueError("a round has the exchanges join, share, mask and unmask")
        context.state[_RECORD] = app.ConfigRecord({"round": round_, "masking": masking.written()})
        content = app.RecordDict({_RECORD: app.ConfigRecord({"message": answer})})
        return app.Message(content, reply_to=message)


class MaskedFedAvg:
    """A Flower strategy around another: clients' changes are averaged masked, with noise, and are paid for.

    Parameters
    ----------
    strategy : flwr.serverapp.strategy.FedAvg
        Chooses the nodes, and evaluates.
    task : Task
        As in :class:`MaskedMod`; it names ``identity`` as its tally, and has as many rounds as there will be.
    identity : Identity
        The tally's.
    ledger : Ledger
        Each round is charged to it before any node is asked.
    folder : path, optional
        Where messages are kept, so that a round can be looked into. None: only this process remembers.
    timeout : float > 0, seconds, default 600
        How long one exchange may take.

    Attributes
    ----------
    skipped : dict of int to str
        Rounds in which too few clients answered, and why. Their charge is not given back; the model stays.

    Raises
    ------
    ValueError
        A task of another kind.
    BudgetExceeded
        When it trains: the ledger does not pay for the next round, and no node was asked.

    Guarantees
    ----------
    This process learns the sum of the changes with noise, and nothing else of one client, as
    ``trust="clients"`` promises. What is released costs ``task.mechanism.curve()`` a round, by client.

    Examples
    --------
    >>> from ostraka import Budget, Ledger
    >>> from ostraka.collect import Task
    >>> from ostraka.secure.keys import Identity
    >>> me = Identity.fresh()
    >>> task = Task(Vector(cells=10, clip=1.0, grid=64), sigma=600.0, tally=me.public_key, least=5, rounds=3)
    >>> ledger = Ledger(":memory:", budget=Budget(epsilon=3.0, delta=1e-6))
    >>> MaskedFedAvg(None, task, me, ledger=ledger).skipped  # of flwr: FedAvg() in place of None
    {}
    """

    def __init__(
        self,
        strategy: Any,
        task: Task,
        identity: Identity,
        *,
        ledger: Ledger,
        folder: str | PathLike[str] | None = None,
        timeout: float = 600.0,
    ) -> None:
        self.strategy, self.task, self.ledger = strategy, _averaged(task), ledger
        self.skipped: dict[int, str] = {}
        self._identity, self._folder, self._timeout = identity, folder, timeout
        Tally(task, identity)  # refuses an identity that the task does not name
        self._grid: Any = None
        self._arrays: Any = None
        self._tally: Tally | None = None
        self._nodes: dict[int, bytes] = {}  # by node: the client's key in this round

    def start(self, grid: Any, initial_arrays: Any, **options: Any) -> Any:
        """Train as the inner strategy does, with its options; return its result."""
        return type(self.strategy).start(self, grid, initial_arrays, **options)

    def summary(self) -> None:
        """Log the settings of the inner strategy."""
        self.strategy.summary()

    def configure_evaluate(self, *parts: Any) -> Any:
        """As the inner strategy."""
        return self.strategy.configure_evaluate(*parts)

    def aggregate_evaluate(self, *parts: Any) -> Any:
        """As the inner strategy."""
        return self.strategy.aggregate_evaluate(*parts)

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Iterable[Any]:
        """Charge the round, let clients join and share; return the messages that ask them to train."""
        self._grid, self._arrays, self._tally = grid, arrays, None
        round_ = known_round(self.task, server_round - 1)
        orders = list(self.strategy.configure_train(server_round, arrays, config, grid))
        self.ledger.charge(
            self.task.mechanism, uses=1, unit="client", simulation=False, key=f"{self.task.sha256}/{round_}"
        )
        tally = Tally(self.task, self._identity, round=round_, folder=self._folder)
        content = {order.metadata.dst_node_id: order.content for order in orders}
        try:
            joins = self._asked(tally, "join", dict.fromkeys(content, b""))
            self._nodes = {node: body[BOUND : BOUND + KEY_BYTES] for node, body in joins.items()}
            tally.advance()
            self._asked(tally, "share", self._outbox(tally))
            tally.advance()
        except PartyError as error:
            self._skip(server_round, tally, error)
            return []
        self._tally = tally
        inbox = self._outbox(tally)
        return [self._message(tally, "mask", node, inbox[node], content[node]) for node in inbox]

    def aggregate_train(self, server_round: int, replies: Iterable[Any]) -> tuple[Any, Any]:
        """Unmask the sum of the replies and return the new arrays; none where the round is skipped."""
        tally, app = self._tally, check.require("flwr.app", extra="flower")
        if tally is None:
            return None, None
        try:
            self._received(tally, replies)
            tally.advance()
            self._asked(tally, "unmask", self._outbox(tally))
            sums = tally.close()
        except PartyError as error:
            self._skip(server_round, tally, error)
            return None, None
        key = f"{self.task.sha256}/{tally.round}"
        answer = release(self.task.mechanism, sums, ledger=self.ledger, key=key)
        n = tally.n_survivors
        mean = estimate.mean(answer, self.task, n_clients=n, variance=tally.variance).value
        tally.end()
        arrays, start = {}, 0
        for name, array in self._arrays.items():
            plain = array.numpy()
            part = mean[start : start + plain.size].reshape(plain.shape)
            arrays[name], start = app.Array((plain + part).astype(plain.dtype)), start + plain.size
        return app.ArrayRecord(arrays), app.MetricRecord({"clients": n})

    def _skip(self, server_round: int, tally: Tally, error: PartyError) -> None:
        self.skipped[server_round], self._tally = str(error), None
        tally.end()

    def _outbox(self, tally: Tally) -> dict[int, bytes]:
        """Return what each node must answer now, of those that must."""
        messages = {node: tally.outbox(key) for node, key in self._nodes.items()}
        return {node: message for node, message in messages.items() if message}

    def _asked(self, tally: Tally, stage: str, messages: Mapping[int, bytes]) -> dict[int, bytes]:
        """Run one exchange; return the answers that were counted."""
        app = check.require("flwr.app", extra="flower")
        orders = [
            self._message(tally, stage, node, body, app.RecordDict()) for node, body in messages.items()
        ]
        return self._received(tally, self._grid.send_and_receive(orders, timeout=self._timeout))

    def _message(self, tally: Tally, stage: str, node: int, body: bytes, content: Any) -> Any:
        app = check.require("flwr.app", extra="flower")
        order = {"task": self.task.sha256, "round": tally.round, "stage": stage, "message": body}
        record = app.RecordDict({**dict(content.items()), _RECORD: app.ConfigRecord(order)})
        return app.Message(content=record, message_type=_TRAIN, dst_node_id=node)

    def _received(self, tally: Tally, replies: Iterable[Any]) -> dict[int, bytes]:
        """Give the tally each reply; what it refuses, or what is an error, is as if it had not come."""
        counted = {}
        for reply in replies:
            if reply.has_error() or _RECORD not in reply.content:
                continue
            body = reply.content[_RECORD].get("message")
            with contextlib.suppress(PartyError):
                if isinstance(body, bytes):
                    tally.receive(body)
                    counted[reply.metadata.src_node_id] = body
        return counted


def _averaged(task: Task) -> Task:
    """Return a task that Flower can run; ValueError for another."""
    if task.trust != "clients" or task.enrolment is not None or not isinstance(task.encoding, Vector):
        raise ValueError("the task must trust clients, without enrolment, with the encoding Vector")
    return task
