"""Reports that keepers check, and vectors of 100,000 entries: errors, bytes and milliseconds.

Beside ``@divviup/prio3`` where ``OSTRAKA_NODE_MODULES`` names a folder that has it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ostraka.collect import Client, Histogram, Keeper, Task
from ostraka.collect.encodings import PRIME, Encoding
from ostraka.collect.messages import Closing
from ostraka.collect.plan import parsed
from ostraka.collect.validity import TIMES, Form, Weights, form_of, packed, proved
from ostraka.core.curve import Curve
from ostraka.secure.keys import Identity, exchange_key, new_secret

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["main"]

CELLS, REPORTS, AT_KEEPER, ENTRIES, TRIALS = 1_000, 10_000, 400, 100_000, 9
QUICK = {"CELLS": 20, "REPORTS": 20, "AT_KEEPER": 5, "ENTRIES": 1_000, "TRIALS": 2}
_NODE = """
import { report } from "%s";
import { readFileSync } from "node:fs";
const { task, trials, value } = JSON.parse(readFileSync(0, "utf8")), times = [];
for (let trial = 0; trial < trials; trial++) {
  const start = performance.now();
  await report(task, value);
  times.push(performance.now() - start);
}
console.log(JSON.stringify(times));
"""
_PRIO3 = """
import { Prio3Histogram } from "@divviup/prio3";
import { readFileSync } from "node:fs";
const { cells, trials } = JSON.parse(readFileSync(0, "utf8")), times = [];
const vdaf = new Prio3Histogram({ shares: 2, length: cells, chunkLength: Math.ceil(Math.sqrt(cells)) });
const random = (size) => crypto.getRandomValues(Buffer.alloc(size));
for (let trial = 0; trial < trials; trial++) {
  const start = performance.now();
  await vdaf.shardEncoded(3, random(vdaf.nonceSize), random(vdaf.randSize));
  times.push(performance.now() - start);
}
console.log(JSON.stringify(times));
"""


def main() -> None:
    """Print the figures."""
    encoding = Histogram(0, 1, cells=CELLS)
    form = form_of(encoding)
    if form is None:
        raise RuntimeError("a histogram can be checked")
    refused, n_accepted = checked(form)
    print(f"{REPORTS:,} honest reports: {refused:,} refused; {REPORTS:,} forged ones: {n_accepted:,} taken")
    task, identities = kept(encoding)
    messages = [Client(task).report(0.3) for _ in range(AT_KEEPER)]
    print(f"a report of {CELLS:,} cells has {len(messages[0]):,} bytes")
    print(f"a client in Python: {median(lambda: Client(task).report(0.3)):.2f} ms")
    print(f"a keeper: {at_keeper(task, identities, messages):.3f} ms a report, check and sum together")
    page = resources.files("ostraka.collect") / "page" / "collect.js"
    node(
        _NODE % page, {"task": task.to_json(), "trials": TRIALS, "value": 0.3}, "a client in node", Path.cwd()
    )
    modules = os.environ.get("OSTRAKA_NODE_MODULES")
    if modules is None:
        print("@divviup/prio3 is not here: OSTRAKA_NODE_MODULES names no folder")
    else:
        settings = {"cells": CELLS, "trials": TRIALS}
        node(_PRIO3, settings, "Prio3Histogram of @divviup/prio3 in node", Path(modules).parent)
    checked_vectors()
    vectors()


def checked_vectors() -> None:
    """Vectors whose norm keepers check: bytes, a client, a keeper."""
    vector = parsed(f"vector:{CELLS}:1:64")
    task, identities = kept(vector, sigma=600.0)
    entries = np.random.default_rng(2).normal(size=CELLS)
    messages = [Client(task).report(entries) for _ in range(max(3, AT_KEEPER // 20))]
    print(f"a checked report of {CELLS:,} entries has {len(messages[0]):,} bytes")
    print(f"a client of it in Python: {median(lambda: Client(task).report(entries)):.2f} ms")
    print(f"a keeper of it: {at_keeper(task, identities, messages):.3f} ms a report, check and sum together")
    page = resources.files("ostraka.collect") / "page" / "collect.js"
    settings = {"task": task.to_json(), "trials": TRIALS, "value": entries.tolist()}
    node(_NODE % page, settings, "a client of it in node", Path.cwd())


def checked(form: Form) -> tuple[int, int]:
    """Honest reports refused, and forged ones taken: two marks, minus one, 2^30."""
    rng, refused, n_accepted = np.random.default_rng(7), 0, 0
    for number in range(REPORTS):
        vector = np.zeros(form.cells, dtype=np.uint32)
        vector[rng.integers(form.cells)] = 1
        payload = proved(form, vector, rng.bytes(32))
        refused += bool(verdict(form, payload, rng).any())
        changed = payload[: form.cells].copy()
        kind = number % 3
        if kind == 0:
            changed[:2] = 1
        elif kind == 1:
            changed[0] = PRIME - 1
        else:
            changed[rng.integers(form.cells)] = 2**30
        multiples = payload[(1 + TIMES) * form.cells :][: TIMES * len(form.sizes)].reshape(TIMES, -1)
        copies = np.repeat(multiples, form.sizes, axis=1) * changed % PRIME
        forged = np.concatenate([changed, copies.ravel(), payload[(1 + TIMES) * form.cells :]])
        n_accepted += not verdict(form, forged, rng).any()
    return refused, n_accepted


def verdict(form: Form, payload: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The opened verdict of one report of which two keepers and a tally have shares."""
    weights, shares = Weights(form, rng.bytes(32)), rng.integers(0, PRIME, (2, form.length)).astype(np.uint64)
    parts = [weights.shares(share) for share in (*shares, (payload + 2 * PRIME - shares.sum(axis=0)) % PRIME)]
    openings = np.sum([opening for opening, _ in parts], axis=0) % PRIME
    total = np.sum([weights.verdicts(terms[None], openings[None]) for _, terms in parts], axis=0)
    return np.asarray((total + weights.public(openings[None])) % PRIME)


def kept(encoding: Encoding, *, sigma: float = 8.0, checked: bool = True) -> tuple[Task, list[Identity]]:
    """A task with two keepers, and their identities."""
    two = [Identity.fresh() for _ in range(2)]
    keys = [Keeper.key(identity) for identity in two]
    tally = Identity.fresh()
    task = Task(encoding, sigma=sigma, tally=tally.public_key, keepers=keys, checked=checked)
    return task, [tally, *two]


def at_keeper(task: Task, identities: list[Identity], messages: list[bytes]) -> float:
    """Milliseconds a report of the whole part of one keeper: sketch, verdict and sum."""
    tally, one, _ = identities
    keys = sorted(message[16:48] for message in messages)
    keeper, blocks = Keeper(task, one), 1 if task.form is None else len(task.form.sizes)
    closing = Closing(0, exchange_key(new_secret()), b"".join(keys))
    start = time.process_time()
    keeper.sketch(tally.seal("sketch", closing.write(task)))
    body = bytes(4) + closing.digest(task) + packed(np.zeros((len(keys), TIMES, blocks)))
    keeper.verdict(tally.seal("verdict", body))
    keeper.answer(tally.seal("close", closing.write(task)))
    return 1e3 * (time.process_time() - start) / len(keys)


def vectors() -> None:
    """A client with 100,000 entries, and epsilon beside a Gaussian's."""
    vector, sigma = parsed(f"vector:{ENTRIES}:1"), 4_600.0
    task, _ = kept(vector, sigma=sigma, checked=False)
    entries = np.random.default_rng(1).normal(size=ENTRIES)
    took = median(lambda: Client(task).report(entries))
    print(f"a client with {ENTRIES:,} entries and two keepers: {took:.1f} ms")
    skellam, gaussian = task.mechanism.curve(), Curve.gaussian(sensitivity=vector.l2, sigma=sigma)
    own_epsilon, rival = (curve.epsilon(delta=1e-6) for curve in (skellam, gaussian))
    print(f"epsilon {own_epsilon:.6f} beside a Gaussian's {rival:.6f}: {own_epsilon / rival - 1:+.5%}")


def median(call: Callable[[], object]) -> float:
    """Milliseconds of processor time, the median of some calls after a first one."""
    call()
    times = []
    for _ in range(TRIALS):
        start = time.process_time()
        call()
        times.append(1e3 * (time.process_time() - start))
    return float(np.median(times))


def node(script: str, settings: dict[str, object], what: str, folder: Path) -> None:
    """Run a script that prints milliseconds, and print their median."""
    program = shutil.which("node")
    if program is None:
        print(f"{what}: there is no node here")
        return
    words = [program, "--no-warnings", "--input-type=module", "-e", script]
    text = json.dumps(settings)
    run = subprocess.run(words, cwd=folder, input=text, capture_output=True, text=True, check=True)
    print(f"{what}: {np.median(json.loads(run.stdout)):.1f} ms")
