"""Plan 100,000,000 clients from costs that are measured here: bytes, seconds and failures."""

from __future__ import annotations

import math
import tempfile
import time
from typing import TYPE_CHECKING

import numpy as np

from bench.collect import seconds
from ostraka.collect import Client, Keeper, Tally, Task
from ostraka.collect.messages import Closing, Report, most_report_bytes
from ostraka.collect.plan import parsed, plan, sigma_for
from ostraka.secure.keys import Identity, exchange_key, new_secret

if TYPE_CHECKING:
    from ostraka.collect.encodings import Encoding

__all__ = ["main", "measured"]

N_CLIENTS, N_REPORTS = 100_000_000, 3_000
PART, AMONG = 1_000_000, 10_000  # clients of one round with keepers, and of one round among clients
CORES, N_KEEPERS, HONEST = 64, 3, 2
EPSILON, DELTA = 0.5, 1e-6
KEEPER_FAILS = 0.01  # chance that a keeper does not answer a round at the first request
QUICK = {"N_REPORTS": 20}


def measured(encoding: Encoding, sigma: float) -> dict[str, float]:
    """Return seconds of processor time for one report: at a client, at the tally, at a keeper; and bytes."""
    me, identities = Identity.fresh(), [Identity.fresh() for _ in range(N_KEEPERS)]
    keys = [Keeper.key(identity) for identity in identities]
    task = Task(encoding, sigma=sigma, tally=me.public_key, keepers=keys, honest=HONEST)
    keepers = [Keeper(task, identity) for identity in identities]
    sent: list[bytes] = []
    costs = {"client": seconds(lambda: sent.append(Client(task).report(500)), times=N_REPORTS)}
    total = np.zeros(encoding.cells, dtype=np.uint32)

    def added() -> None:
        for message in sent:
            np.add(total, Report.read(message, task, 0).vector, out=total)

    costs["tally"] = seconds(added) / N_REPORTS
    clients = sorted(message[16:48] for message in sent)
    request = Closing(0, exchange_key(new_secret()), b"".join(clients)).write(task)
    costs["keeper"] = seconds(lambda: keepers[0].answer(me.seal("close", request))) / N_REPORTS
    with tempfile.TemporaryDirectory() as folder:
        tally, start = Tally(task, me, keepers=keepers, folder=folder), time.perf_counter()
        for message in sent[:200]:
            tally.receive(message)
        costs["durable"] = (time.perf_counter() - start) / len(sent[:200])
    return {**costs, "bytes": float(most_report_bytes(task))}


def main() -> None:
    """Print what is measured, then the plan with keepers and the plan among clients."""
    encoding = parsed("tree:0:1024")
    sigma = sigma_for(encoding, epsilon=EPSILON, delta=DELTA)
    costs = measured(encoding, sigma)
    print(f"measured with {encoding.cells:,} cells and {N_KEEPERS} keepers, over {N_REPORTS:,} reports:")
    print(
        f"  {costs['bytes']:,.0f} bytes a client, {1e3 * costs['durable']:.2f} ms to acknowledge it durably"
    )
    spent = ", ".join(f"{role} {1e6 * costs[role]:.0f}" for role in ("client", "tally", "keeper"))
    print(f"  microseconds of processor a report: {spent}")
    with_keepers(encoding, sigma, costs)
    among_themselves(encoding)


def with_keepers(encoding: Encoding, sigma: float, costs: dict[str, float]) -> None:
    """Print bytes, seconds, failures and noise of rounds with keepers."""
    parts, noise = N_CLIENTS // PART, sigma * math.sqrt(N_KEEPERS / HONEST)
    answers = parts * N_KEEPERS * 4 * encoding.cells / 1e6
    print(f"{N_CLIENTS:,} clients with keepers, {parts} rounds of {PART:,}:")
    print(f"  reports {N_CLIENTS * costs['bytes'] / 1e9:,.0f} GB, keys to each keeper", end=" ")
    print(f"{32 * N_CLIENTS / 1e9:.1f} GB, answers of keepers {answers:.1f} MB")
    for role in ("tally", "keeper"):
        total = N_CLIENTS * costs[role]
        print(f"  each {role}: {total:,.0f} s of one core, {total / CORES:,.0f} s on {CORES} cores")
    failing = (1 - (1 - KEEPER_FAILS) ** N_KEEPERS) * parts
    print(f"  rounds to ask again, if a keeper fails with {KEEPER_FAILS:.0%}: {failing:.1f} of {parts}")
    total_noise = noise * math.sqrt(parts)
    print(f"  noise of a cell: {noise:.1f} in a round, {total_noise:.0f} in all,", end=" ")
    print(f"which is {total_noise / N_CLIENTS:.1e} of the clients")


def among_themselves(encoding: Encoding) -> None:
    """Print bytes, seconds and failures of rounds among clients, by the plan's costs of a neighbour."""
    rounds = N_CLIENTS // AMONG
    prediction = plan(encoding, n_clients=AMONG, epsilon=EPSILON, delta=DELTA, trust="clients")
    print(f"{N_CLIENTS:,} clients among themselves, {rounds:,} rounds of {AMONG:,}, a tenth may vanish:")
    print(f"  {prediction['neighbours']} neighbours, threshold {prediction['threshold']};", end=" ")
    print(
        f"a client {prediction['bytes a client']:,} bytes and {1e3 * prediction['seconds a client']:.1f} ms"
    )
    total = rounds * prediction["seconds at the tally"]
    print(
        f"  messages {N_CLIENTS * prediction['bytes a client'] / 1e9:,.0f} GB, tallies {total:,.0f} s",
        end=" ",
    )
    print(f"of one core, {total / CORES:,.0f} s on {CORES} cores")
    print(f"  rounds that fail although no more vanish: {rounds * 2.0**-20:.4f} expected, at most")
    print(f"  chance that a round could be taken apart: {rounds * 2.0**-40:.0e} at most, all together")
