"""Load of a learned service by wrk, with two ways of computing features in turns.

The teachers and the encoder are those of a table of numbers: 250 logistic regressions on 64 columns that are
centred and scaled. wrk, a compiled client with 64 connections, asks a new question under a new key each time.
``compiled`` makes features by :class:`CompiledEncoder`; ``scikit-learn`` calls the encoder itself.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from bench import service
from ostraka import GNMax, TeacherEnsemble
from ostraka.consistent import Consistent
from ostraka.serve.keys import Keyring
from ostraka.voters import SavedTeachers

CONNECTIONS, SECONDS, RUNS, N_TEACHERS = 64, 8, 3, 250
WARM = True  # a second of load before what is measured
QUICK = {"CONNECTIONS": 4, "SECONDS": 1, "RUNS": 1, "N_TEACHERS": 10, "WARM": False}
WAYS = ("compiled", "scikit-learn")
SLOW = """
from ostraka.data.columns import CompiledEncoder
CompiledEncoder.of = classmethod(lambda cls, encoder, n_columns: None)
"""
LUA = """
local rest = {{}}
math.randomseed({seed})
for k = 1, 64 do
  local cells = {{}}
  for j = 1, {n} - 3 do cells[j] = math.random(0, 16) end
  rest[k] = table.concat(cells, ",")
end
local number, threads = 0, 0
function setup(thread) thread:set("id", threads); threads = threads + 1 end
function request()
  number = number + 1
  local k = number * 2 + id
  local body = string.format('{{"row":[%d,%d,%d,%s]}}', k % 17, math.floor(k / 17) % 17,
    math.floor(k / 289) % 17, rest[math.floor(k / 4913) % 64 + 1])
  return wrk.format("POST", "/v1/label", {{
    ["Authorization"] = "Bearer {key}", ["Content-Type"] = "application/json",
    ["Idempotency-Key"] = "{seed}-" .. id .. "-" .. number}}, body)
end
function done(summary, latency, requests)
  io.write(string.format('{{"requests": %d, "seconds": %f, "failed": %d, "p50": %f, "p99": %f}}',
    summary.requests, summary.duration / 1e6,
    summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.timeout,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
"""


def prepared(folder: Path, *, n_teachers: int) -> None:
    """Teachers on scaled columns, with the encoder that scales them."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, service.N_CLASSES, 40 * n_teachers)
    X = (rng.normal(size=(service.N_CLASSES, service.N_FEATURES)) * 2)[y] + 8
    X += rng.normal(size=X.shape)
    encoder = ColumnTransformer([("numbers", StandardScaler(), list(range(service.N_FEATURES)))]).fit(X)
    scaled = encoder.transform(X)
    ensemble = TeacherEnsemble(LogisticRegression(), n_teachers=n_teachers, n_jobs=1, random_state=0)
    ensemble.fit(scaled, y, classes=range(service.N_CLASSES))
    SavedTeachers(
        ensemble=ensemble,
        mechanism=GNMax(sigma=service.SIGMA),
        columns=tuple(f"pixel_{j}" for j in range(service.N_FEATURES)),
        numeric=(True,) * service.N_FEATURES,
        grid=Consistent.grid_of(scaled),
        encoder=encoder,
    ).save(folder)


def loaded(folder: Path, method: str, seed: int, program: str) -> dict[str, float]:
    """Start, warm up, load and stop; return wrk's figures, and the server's processor time per answer."""
    (folder / "service").mkdir(mode=0o700, exist_ok=True)
    keyring = Keyring(folder / "service" / "keys.json", bytes.fromhex(service.PEPPER))
    key = keyring.add(f"load-{time.time_ns()}", role="client", epsilon=1.0)
    port, where = service.free_port(), f"sqlite:///{folder / 'service' / 'ledger.sqlite'}"
    script = (SLOW if method == WAYS[1] else "") + service.SERVE
    command = [sys.executable, "-c", script, str(folder), str(port), where]
    server = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    lua = folder / "load.lua"
    try:
        service.wait_for(port, server)
        figures: dict[str, float] = {}
        for turn, seconds in (*(((1, 1),) if WARM else ()), (2, SECONDS)):
            lua.write_text(LUA.format(seed=10 * seed + turn, n=service.N_FEATURES, key=key))
            before = service.cpu(server.pid)
            figures = _wrk(program, lua, port, seconds)
            figures["cpu"] = 1e6 * (service.cpu(server.pid) - before) / max(figures["requests"], 1)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    return figures


def _wrk(program: str, lua: Path, port: int, seconds: int) -> dict[str, float]:
    command = [program, "-t", "2", "-c", str(CONNECTIONS), "-d", f"{seconds}s", "-s", str(lua)]
    command += ["--timeout", "20s", f"http://127.0.0.1:{port}"]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(json.loads(output[output.index('{"requests"') :]))


def main(runs: int | None = None) -> None:
    program = shutil.which("wrk")
    if program is None:
        print("left out: wrk is not installed (apt-get install wrk)")
        return
    measurements: dict[str, list[dict[str, float]]] = {method: [] for method in WAYS}
    with tempfile.TemporaryDirectory(dir=os.environ.get("OSTRAKA_BENCH_DIR")) as path:
        prepared(Path(path) / "teachers", n_teachers=N_TEACHERS)
        for run in range(RUNS if runs is None else runs):
            for number, way in enumerate(WAYS if run % 2 == 0 else WAYS[::-1]):
                figures = loaded(Path(path), way, 2 * run + number, program)
                measurements[way].append(figures)
                rate = figures["requests"] / figures["seconds"]
                print(
                    f"{way}: {rate:,.0f} answers a second, p50 {figures['p50']:.1f} ms, "
                    f"p99 {figures['p99']:.1f} ms, {figures['failed']:.0f} failed; "
                    f"server {figures['cpu']:.0f} us an answer; "
                    f"load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )
    rates = {
        method: statistics.median(t["requests"] / t["seconds"] for t in measurements[method])
        for method in WAYS
    }
    work = {method: statistics.median(t["cpu"] for t in measurements[method]) for method in WAYS}
    print(
        f"medians: {rates[WAYS[0]]:,.0f} against {rates[WAYS[1]]:,.0f} answers a second "
        f"({rates[WAYS[0]] / rates[WAYS[1]]:.2f} times), {work[WAYS[0]]:.0f} against {work[WAYS[1]]:.0f} us"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    main(parser.parse_args().runs)
