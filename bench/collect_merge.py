"""A round of 1,000,000 reports on two Ray workers: sums of the tally and of each keeper are merged."""

from __future__ import annotations

import importlib.util
import resource
import time
from typing import Any

import numpy as np

from ostraka.collect import Client, Keeper, Task, Tree, estimate
from ostraka.collect.messages import Report, masks_for, most_report_bytes
from ostraka.secure.keys import Identity, derived, exchange_secret

__all__ = ["main", "merged"]

N_CLIENTS, N_PARTS, N_WORKERS = 1_000_000, 40, 2
QUICK = {"N_CLIENTS": 300, "N_PARTS": 2}


def reports(text: str, seed: int, n: int) -> tuple[bytes, np.ndarray]:
    """Make the reports of these clients, and the sum of their vectors."""
    task = Task.from_json(text)
    values = np.random.default_rng(seed).normal(120, 30, n).astype(int)
    plain = np.zeros(task.encoding.cells, dtype=np.int64)
    sent = []
    for value in values.tolist():
        plain += task.encoding.encode(value)
        sent.append(Client(task).report(value))
    return b"".join(sent), plain


def tallied(text: str, sent: bytes) -> tuple[np.ndarray, bytes, float]:
    """A worker's part of the tally: reports checked and added; their keys; processor seconds."""
    start, task = time.process_time(), Task.from_json(text)
    report_bytes, keys = most_report_bytes(task), []
    total = np.zeros(task.encoding.cells, dtype=np.uint32)
    for at in range(0, len(sent), report_bytes):
        report = Report.read(sent[at : at + report_bytes], task, 0)
        total += report.vector
        keys.append(report.key)
    return total, b"".join(keys), time.process_time() - start


def unmasked(text: str, secret: bytes, keys: bytes) -> tuple[np.ndarray, float]:
    """A worker's part of one keeper: the sum of its masks with some of the clients; processor seconds."""
    start, task = time.process_time(), Task.from_json(text)
    key, me = exchange_secret(derived(secret, "keeper")), Keeper.key(Identity(secret))
    transcript = task.transcript("report", round=0)
    total = np.zeros(task.encoding.cells, dtype=np.uint32)
    for at in range(0, len(keys), 32):
        client = keys[at : at + 32].hex()
        total += masks_for(task, key, me, client, client, transcript=transcript)
    return total, time.process_time() - start


def merged(ray: Any, task: Task, keepers: list[Identity]) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
    """The sums without masks, what they should be, and seconds of each step."""
    text, n = task.to_json(), N_CLIENTS // N_PARTS
    sending, adding, unmasking = (ray.remote(work) for work in (reports, tallied, unmasked))
    start = time.perf_counter()
    sent = [sending.options(num_returns=2).remote(text, part, n) for part in range(N_PARTS)]
    plain = np.sum(ray.get([message[1] for message in sent]), axis=0)
    seconds = {"clients, wall": time.perf_counter() - start}
    start = time.perf_counter()
    parts = ray.get([adding.remote(text, message[0]) for message in sent])
    seconds["tally, wall"] = time.perf_counter() - start
    seconds["tally, processor"] = sum(part[2] for part in parts)
    total = np.sum([part[0] for part in parts], axis=0, dtype=np.uint32)
    start = time.perf_counter()
    masks = ray.get(
        [unmasking.remote(text, message.secret, part[1]) for message in keepers for part in parts]
    )
    seconds["two keepers, wall"] = time.perf_counter() - start
    seconds["two keepers, processor"] = sum(processor for _, processor in masks)
    total = np.asarray(total - np.sum([mask for mask, _ in masks], axis=0, dtype=np.uint32))
    return total.view(np.int32).astype(np.int64), np.asarray(plain), seconds


def main() -> None:
    """Print seconds of each step, bytes moved, and whether the sum is exact."""
    if importlib.util.find_spec("ray") is None:
        print("Ray is not here: pip install '.[ray]'")
        return
    import ray

    me, keepers = Identity.fresh(), [Identity.fresh() for _ in range(2)]
    keys = [Keeper.key(identity) for identity in keepers]
    task = Task(Tree(0, 240), sigma=30.0, tally=me.public_key, keepers=keys, honest=2, least=100)
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init("local", num_cpus=N_WORKERS, **quiet)  # no cluster that somebody else runs here
    try:
        sums, plain, seconds = merged(ray, task, keepers)
    finally:
        ray.shutdown()
    if not np.array_equal(sums, plain):
        raise AssertionError("the merged sum is not exact")
    moved = N_CLIENTS * most_report_bytes(task)
    print(
        f"{N_CLIENTS:,} reports of {most_report_bytes(task):,} bytes on {N_WORKERS} workers, {N_PARTS} parts"
    )
    print(f"the merged sum is exact; its median is {estimate.quantile(sums, task, 0.5).value}")
    print(f"bytes of reports {moved / 2**20:,.0f} MiB, keys to each keeper {32 * N_CLIENTS / 2**20:,.0f} MiB")
    print("; ".join(f"{step} {value:.1f} s" for step, value in seconds.items()))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"peak memory of the process that merges: {peak:,.0f} MiB")
