"""Export of a task to DAP: the published client takes it, and its aggregate is numpy's sum."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ostraka import Budget, Ledger, release
from ostraka.collect import Grid, Histogram, Sum, Task, Tree
from ostraka.collect.dap import exported, measurement, sums

CASES = {
    "histogram": (Histogram(0, 12, cells=12), [0, 3, 3, 11.5]),
    "sum": (Sum(0, 15, bits=4), [3, 15, 0, 8]),
    "grid": (Grid(x=(0, 3), y=(0, 3), shape=(3, 3)), [(0, 0), (1, 2), (1, 2), (2.5, 2.5)]),
}
SCRIPT = """
import { Task } from "@divviup/dap";
import { readFileSync } from "node:fs";
const { client, measurements } = JSON.parse(readFileSync(0, "utf8"));
const task = new Task(client), seen = [];
const pair = await crypto.subtle.generateKey({ name: "X25519" }, true, ["deriveBits"]);
const key = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
const list = Uint8Array.from([0, 41, 1, 0, 32, 0, 1, 0, 1, 0, 32, ...key]); // X25519, AES-128-GCM
const answer = async (url, options) => {
  seen.push([options?.method ?? "GET", String(url), options?.body?.length ?? 0]);
  const headers = { "Content-Type": "application/dap-hpke-config-list" };
  return url.includes("hpke_config") ? new Response(list, { headers }) : new Response(null, { status: 201 });
};
task.fetch = answer;
for (const one of task.aggregators) one.fetch = answer;
for (const one of measurements) await task.sendMeasurement(one);
const result = await task.vdaf.test(null, measurements); // two aggregators of the package in this process
const plain = (_, value) => typeof value === "bigint" ? Number(value) : value;
console.log(JSON.stringify({ seen, result }, plain));
"""


def task_of(encoding, **options):
    return Task(encoding, sigma=6.0, tally="ab" * 32, noise="tally", **options)


@pytest.mark.parametrize("case", CASES)
def test_the_published_client_takes_the_task_and_its_aggregate_is_released(case):
    modules = os.environ.get("OSTRAKA_NODE_MODULES")
    if modules is None:
        pytest.skip(
            "OSTRAKA_NODE_MODULES names no folder: npm install @divviup/dap@0.9.1, then its node_modules"
        )
    encoding, answers = CASES[case]
    task = task_of(encoding)
    out = exported(task, leader="https://a.example/", helper="https://b.example/")
    request = {"client": out["client"], "measurements": [measurement(task, value) for value in answers]}
    run = subprocess.run(
        ["node", "--no-warnings", "--input-type=module", "-e", SCRIPT],
        cwd=Path(modules).parent, input=json.dumps(request), capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    reply = json.loads(run.stdout)
    uploads = [url for method, url, _ in reply["seen"] if method == "PUT"]
    assert uploads == [f"https://a.example/tasks/{out['client']['id']}/reports"] * 4
    plain = sum(encoding.encode(value).astype(int) for value in answers)
    np.testing.assert_array_equal(np.atleast_1d(reply["result"]), plain)
    private = sums(task, reply["result"], n_clients=4)
    with Ledger(":memory:", budget=Budget(epsilon=20.0, delta=1e-6, adaptive=False)) as ledger:
        answer = release(task.mechanism, private, ledger=ledger)
    assert 0 < np.abs(answer - plain).max() < 14 * 6.0


def test_the_identifier_is_the_fingerprint_and_both_sides_have_one_shape():
    task = task_of(Histogram(0, 100, cells=100), least=50)
    out = exported(task, leader="https://a.example", helper="https://b.example", precision=60)
    assert len(out["client"]["id"]) == 43
    assert out["aggregators"] == {
        "task_id": out["client"]["id"], "vdaf": {"Prio3Histogram": {"length": 100, "chunk_length": 10}},
        "query_type": "TimeInterval", "min_batch_size": 50, "time_precision": 60,
    }  # fmt: skip
    assert (
        out["client"]["id"]
        != exported(task_of(Histogram(0, 100, cells=101)), leader="x", helper="y")["client"]["id"]
    )


def test_what_dap_cannot_run_or_could_not_have_summed_is_refused():
    for task in (task_of(Tree(0, 9)), task_of(Histogram(0, 2, cells=2), rounds=2)):
        with pytest.raises(ValueError, match="DAP takes"):
            exported(task, leader="x", helper="y")
    with pytest.raises(ValueError, match="one position"):
        measurement(task_of(CASES["grid"][0]), [])
    task = task_of(Histogram(0, 2, cells=2), least=3, most=9, colluding=0.0)
    for aggregate, n, why in (
        ([1, 1], 2, "3 to 9"),
        ([5, -1], 4, "not the sum"),
        ([2, 3], 4, "add up"),
        ([9], 9, "not"),
        ([1.5, 2.5], 4, "whole numbers"),
    ):
        with pytest.raises(ValueError, match=why):
            sums(task, aggregate, n_clients=n)


def test_an_aggregate_is_handed_to_the_door_as_it_is():
    task = task_of(Histogram(0, 3, cells=3))
    private = sums(task, [2, 0, 3], n_clients=5)
    assert private.open().tolist() == [2, 0, 3]
    assert private.adjacency.within(task.mechanism.promise)
    assert task.mechanism.adds
