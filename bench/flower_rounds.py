"""A client's time in one masked round, beside SecAgg+ of Flower at equal neighbours; needs flwr.

Seven clients, so that each has the six others as neighbours in both. Processor time of all steps of one
client, without noise, which SecAgg+ has not: ours with the random rounding of a Vector and the state that is
written between messages; theirs by the functions of ``flwr.client.mod.secure_aggregation.secaggplus_mod``,
without their state.
"""

from __future__ import annotations

import importlib
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.collect import Task
from ostraka.collect.masking import Masking
from ostraka.collect.plan import parsed
from ostraka.collect.tally import Tally
from ostraka.secure.keys import Identity, new_secret

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["main"]

SIZES, CLIENTS, TRIALS = (1_000, 100_000), 7, 5
QUICK = {"SIZES": (50,), "TRIALS": 1}


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
        own = float(np.median([ours(size) for _ in range(TRIALS)]))
        try:
            other = float(np.median([theirs(size) for _ in range(TRIALS)]))
        except ImportError:
            print(f"{size:,} values: {own:.2f} ms; flwr is not here")
            continue
        print(f"{size:,} values: {own:.2f} ms; SecAgg+ {other:.2f} ms: {other / own:.1f} times ours")


def ours(size: int) -> float:
    """Milliseconds of one client in a round of ours."""
    me, vector, watch = Identity.fresh(), parsed(f"vector:{size}:1"), Watch()
    options = {"least": 5, "most": CLIENTS, "missing": 0.15, "colluding": 0.15, "noise": "tally"}
    task = Task(vector, sigma=4_600.0, tally=me.public_key, **options)
    tally = Tally(task, me)
    rows = np.random.default_rng(0).normal(size=(CLIENTS, size))
    clients = [Masking(task, round_=0, secret=new_secret()) for _ in range(CLIENTS)]
    joins = [watch.of(number, client.join) for number, client in enumerate(clients)]
    for join in joins:
        tally.receive(join)
    states = [client.written() for client in clients]
    for stage in ("share", "mask", "unmask"):
        tally.advance()
        for number, join in enumerate(joins):
            inbox = tally.outbox(join[16:48])
            step = partial(resumed, task, states[number], stage, rows[number], inbox)
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
    watch, key = Watch(), mod.Key
    settings = {
        key.SAMPLE_NUMBER: CLIENTS, key.SHARE_NUMBER: CLIENTS, key.THRESHOLD: 5, key.CLIPPING_RANGE: 1.0,
        key.TARGET_RANGE: 2**16, key.MOD_RANGE: 2**30, key.MAX_WEIGHT: 1.0,
    }  # fmt: skip
    states = [mod.SecAggPlusState(nid=number) for number in range(CLIENTS)]
    rows = np.random.default_rng(0).normal(size=(CLIENTS, size))
    public = [watch.of(n, partial(mod._setup, state, settings)) for n, state in enumerate(states)]  # noqa: SLF001
    keys = {str(n): (one[key.PUBLIC_KEY_1], one[key.PUBLIC_KEY_2]) for n, one in enumerate(public)}
    shares = [watch.of(n, partial(mod._share_keys, state, keys)) for n, state in enumerate(states)]  # noqa: SLF001
    for number, state in enumerate(states):
        inbox: dict[str, list[Any]] = {key.SOURCE_LIST: [], key.CIPHERTEXT_LIST: []}
        for source, share in enumerate(shares):
            for receiver, text in zip(share[key.DESTINATION_LIST], share[key.CIPHERTEXT_LIST], strict=True):
                if receiver == number:
                    inbox[key.SOURCE_LIST].append(source)
                    inbox[key.CIPHERTEXT_LIST].append(text)
        parameters = common.ndarrays_to_parameters([rows[number]])
        watch.of(number, partial(mod._collect_masked_vectors, state, inbox, 1, parameters))  # noqa: SLF001
    last = {key.ACTIVE_NODE_ID_LIST: list(range(CLIENTS)), key.DEAD_NODE_ID_LIST: list[int]()}
    for number, state in enumerate(states):
        watch.of(number, partial(mod._unmask, state, last))  # noqa: SLF001
    return 1e3 * watch.seconds
