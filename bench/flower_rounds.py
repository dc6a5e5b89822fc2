"""A client's time in one masked round, beside SecAgg+ of Flower at equal neighbours; needs flwr.

100 clients, of whom a tenth is lost after it shared its keys, with as many neighbours in both: those that
our round needs where 15 % may be missing and 15 % collude. Processor time of all steps of one client, without
noise, which SecAgg+ has not: ours with the random rounding of a Vector and the state that is written between
messages; theirs by the functions of ``flwr.client.mod.secure_aggregation.secaggplus_mod``, without their
state.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.collect import Task
from ostraka.collect.client import Masking
from ostraka.collect.messages import degree_of
from ostraka.collect.plan import parsed
from ostraka.collect.tally import Tally
from ostraka.secure.keys import Identity, new_secret

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["main"]

SIZES, CLIENTS, LOST, TRIALS = (1_000, 100_000), 100, 10, 5
QUICK = {"SIZES": (50,), "CLIENTS": 8, "LOST": 1, "TRIALS": 1}


class Watch:
    """Processor seconds of the first client's steps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def of(self, number: int, step: Callable[[], Any]) -> Any:
        """Run a step of a client, and return its answer."""
        start = time.process_time()
        answer = step()
        self.seconds += time.process_time() - start if number == 0 else 0.0
        return answer


def main() -> None:
    """Print milliseconds of a client, and their ratio."""
    for size in SIZES:
        our_seconds, their_seconds = [], []
        for _ in range(TRIALS):  # in turn, so that both meet the same load
            our_seconds.append(ours(size))
            with contextlib.suppress(ImportError):
                their_seconds.append(theirs(size))
        k, _ = degree_of(question(size, Identity.fresh()), CLIENTS)
        median = np.median(our_seconds)
        line = f"{size:,} values, {CLIENTS} clients, {LOST} lost, {k} neighbours: {median:.2f} ms"
        if not their_seconds:
            print(f"{line}; flwr is not here")
            continue
        ratio = np.median(their_seconds) / np.median(our_seconds)
        print(f"{line}; SecAgg+ {np.median(their_seconds):.2f} ms: {ratio:.1f} times ours", flush=True)


def question(size: int, tally: Identity) -> Task:
    """The sum of vectors among all clients, of whom one in seven may be missing, and as many collude."""
    options = {"least": CLIENTS - 2 * LOST, "most": CLIENTS, "missing": 0.15, "colluding": 0.15}
    return Task(parsed(f"vector:{size}:1"), sigma=4_600.0, tally=tally.public_key, noise="tally", **options)


def ours(size: int) -> float:
    """Milliseconds of one client in a round of ours."""
    me, watch = Identity.fresh(), Watch()
    task = question(size, me)
    tally, row = Tally(task, me), np.random.default_rng(0).normal(size=size)
    clients = [Masking(task, round_=0, secret=new_secret()) for _ in range(CLIENTS)]
    joins = [watch.of(number, client.join) for number, client in enumerate(clients)]
    for join in joins:
        tally.receive(join)
    states = [client.written() for client in clients]
    for stage in ("share", "mask", "unmask"):
        tally.advance()
        for number, join in enumerate(joins if stage == "share" else joins[:-LOST]):
            inbox = tally.outbox(join[16:48])
            step = partial(resumed, task, states[number], stage, row, inbox)
            answer, states[number] = watch.of(number, step)
            tally.receive(answer)
    tally.close()
    return 1e3 * watch.seconds


def resumed(task: Task, state: bytes, stage: str, row: np.ndarray, inbox: bytes) -> tuple[bytes, bytes]:
    """One exchange of a client that is another process each time: its answer, and its state after it."""
    client = Masking(task, round_=0, secret=new_secret())
    client.resume(state)
    answer = client.mask(task.encoded(row), inbox) if stage == "mask" else getattr(client, stage)(inbox)
    return answer, client.written()


def theirs(size: int) -> float:
    """Milliseconds of one client in a round of SecAgg+, as Flower's workflow would call it."""
    mod = importlib.import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")
    common = importlib.import_module("flwr.common")
    watch, key, k = Watch(), mod.Key, degree_of(question(size, Identity.fresh()), CLIENTS)[0]
    settings = {
        key.SAMPLE_NUMBER: CLIENTS, key.SHARE_NUMBER: k + 1, key.THRESHOLD: k // 2 + 1,
        key.CLIPPING_RANGE: 1.0, key.TARGET_RANGE: 2**16, key.MOD_RANGE: 2**30, key.MAX_WEIGHT: 1.0,
    }  # fmt: skip
    ring = sorted({(place - k // 2) % CLIENTS for place in range(k + 1)})  # the first client among neighbours
    states = {number: mod.SecAggPlusState(nid=number) for number in ring}
    public = {n: watch.of(n, partial(mod._setup, state, settings)) for n, state in states.items()}  # noqa: SLF001
    keys = {
        str(n): (client_keys[key.PUBLIC_KEY_1], client_keys[key.PUBLIC_KEY_2])
        for n, client_keys in public.items()
    }
    shares = {n: watch.of(n, partial(mod._share_keys, state, keys)) for n, state in states.items()}  # noqa: SLF001
    inbox: dict[str, list[Any]] = {key.SOURCE_LIST: [], key.CIPHERTEXT_LIST: []}
    for source, share in shares.items():
        for receiver, text in zip(share[key.DESTINATION_LIST], share[key.CIPHERTEXT_LIST], strict=True):
            if receiver == 0:
                inbox[key.SOURCE_LIST].append(source)
                inbox[key.CIPHERTEXT_LIST].append(text)
    parameters = common.ndarrays_to_parameters([np.random.default_rng(0).normal(size=size)])
    watch.of(0, partial(mod._collect_masked_vectors, states[0], inbox, 1, parameters))  # noqa: SLF001
    lost = [number for number in ring if number][: LOST * (k + 1) // CLIENTS]
    alive = [number for number in ring if number not in lost]
    last = {key.ACTIVE_NODE_ID_LIST: alive, key.DEAD_NODE_ID_LIST: lost}
    watch.of(0, partial(mod._unmask, states[0], last))  # noqa: SLF001
    return 1e3 * watch.seconds
