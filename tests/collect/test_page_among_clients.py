"""The browser's client of a round among clients: it agrees with Python's, in Node and in a real browser."""

import hashlib
import itertools
import json
import math
import shutil
import subprocess
import time
from functools import partial
from importlib import resources

import numpy as np
import pytest
from scipy.stats import chi2

from ostraka.collect import Client, Tally, Task
from ostraka.collect.client import send
from ostraka.collect.messages import degree, neighbours
from ostraka.collect.tally import run_exchanges
from ostraka.core.mechanisms.skellam import _poisson
from ostraka.secure.masks import join
from ostraka.secure.wire import PartyServer
from tests.collect.conftest import Office
from tests.false_alarm import FALSE_ALARM
from tests.threads import at_once

SOURCE = resources.files("ostraka.collect") / "page" / "collect.js"


def node(script: str, request: object) -> object:
    """What a script says of some JSON, with everything that the page's file exports at hand."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("there is no node here: install Node.js 20 or newer")
    head = f'import * as collect from {json.dumps(str(SOURCE))};\nimport {{ readFileSync }} from "node:fs";\n'
    tail = 'console.log(JSON.stringify(await main(JSON.parse(readFileSync(0, "utf8")))));\n'
    run = subprocess.run(
        [program, "--no-warnings", "--input-type=module", "-e", head + script + tail],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def office(**options) -> tuple[Task, Tally]:
    office_round = Office(**{"most": 60, "missing": 0.4, "colluding": 0.05, **options})
    return office_round.task, office_round.tally


def test_neighbours_and_thresholds_are_those_of_python():
    honest = itertools.product(
        (12, 60, 100, 1000, 10_000), ((0.05, 0.1), (0.1, 0.1), (0.0, 0.3), (0.2, 0.33)), (False,)
    )
    lying = itertools.product((12, 100, 1000), ((0.05, 0.1), (0.1, 0.1)), (True,))
    questions = [
        {"n": n, "colluding": colluding, "missing": missing, "lying": lies}
        for n, (colluding, missing), lies in (*honest, *lying)
    ]
    places = ((5, 4, 2), (12, 6, 0), (12, 6, 11), (12, 11, 3), (300, 22, 7), (300, 22, 299))
    rings = [(n, k, place, hashlib.sha256(bytes([n % 256])).hexdigest()) for n, k, place in places]
    script = """const main = ({ asked, rings }) => [
      asked.map((one) => collect.degreeOf(one, one.n)),
      rings.map(([n, k, place, seed]) => collect.neighboursOf(place, n, k, collect.fromHex(seed)))];\n"""
    degrees, peers = node(script, {"asked": questions, "rings": rings})
    for (n, k, place, seed), ring in zip(rings, peers, strict=True):
        assert ring == neighbours(n, k, bytes.fromhex(seed))[place].tolist()
    for question, pair in zip(questions, degrees, strict=True):
        n_colluding, n_missing = (
            math.ceil(question[name] * question["n"] - 1e-9) for name in ("colluding", "missing")
        )
        assert tuple(pair) == degree(question["n"], n_colluding, n_missing, lying=question["lying"])


def test_the_table_of_noise_is_that_of_python_to_a_step_of_two_to_the_minus_126():
    means = [0.0051, 0.7, 18.0, 3000.25]
    script = """const main = (means) => means.map((mean) => {
      const { first, ends } = collect.poissonTable(mean);
      return [first, ends.map(String)];
    });\n"""
    for mean, (first, ends) in zip(means, node(script, means), strict=True):
        ours = _poisson(mean, 128)
        assert all(
            abs(int(end) - table_end) < 4 for end, table_end in zip(ends, ours[first:], strict=False)
        ), mean
        assert max(ours[:first], default=0) < 4, mean


@pytest.mark.statistical
@pytest.mark.parametrize("variance", [0.4, pytest.param(9.0, marks=pytest.mark.slow), 200.0])
def test_noise_has_the_variance_that_it_says(variance):
    size = 20_000
    noise = node(f"const main = (v) => Array.from(collect.skellam(v, {size}));\n", variance)
    square = float((np.array(noise, dtype=float) ** 2).sum()) / variance
    # a sum of n squares of Skellam noise varies by n (2 + 1 / variance), chi squared by 2 n
    wide = np.sqrt(1 + 0.5 / variance)
    low, high = size + (chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], size) - size) * wide
    assert low < square < high
    assert not low < square * 1.15 < high


def test_shares_of_javascript_are_joined_by_python():
    script = """const main = ([secret, t, n]) =>
      collect.split(collect.fromHex(secret), t, n).map(collect.toHex);\n"""
    secret = bytes(range(200, 232))
    shares = [bytes.fromhex(share) for share in node(script, [secret.hex(), 4, 7])]
    for chosen in ((0, 1, 2, 3), (6, 3, 5, 1)):
        assert join({at + 1: shares[at] for at in chosen}, threshold=4) == secret
    with pytest.raises(ValueError, match="are needed"):
        join({1: shares[0]}, threshold=4)
    assert join({at + 1: shares[at] for at in (0, 1, 2)}, threshold=3) != secret


ROUND = """
const main = async ({ url, values }) => {
  const taken = await Promise.allSettled(values.map((value) => collect.send(url, value, { pause: 30 })));
  return taken.map((one) => one.reason?.message ?? "received");
};
"""


@pytest.mark.parametrize("noise", [pytest.param("tally", marks=pytest.mark.slow), "clients"])
def test_clients_in_javascript_and_in_python_make_one_sum(noise):
    task, tally = office(noise=noise, most=20)
    values = [3, 7, 7, 12, 19, 0]
    with (
        PartyServer(tally, pages=tally.pages) as server,
        at_once(
            lambda: run_exchanges(tally, n_clients=12, seconds=60),
            *(partial(send, server.url, value) for value in values),
        ),
    ):
        replies = node(ROUND, {"url": server.url, "values": values})
    assert replies == ["received"] * 6
    exact = 2 * sum(task.encoding.encode(value).astype(int) for value in values)
    residue = tally.close().open() - exact
    assert tally.n_survivors == 12
    if noise == "tally":
        assert not residue.any()
    else:
        assert 0 < np.abs(residue).max() <= 12 * np.sqrt(tally.variance)


REFUSING = """
const main = async ({ task, roster, inbox, survivors, changes }) => {
  const bytes = collect.fromHex, said = [];
  const tried = (work) => work.then(() => "answered", (error) => error.message);
  for (const { stage, message } of changes) {
    const client = new collect.Masking(task);
    await client.join();
    said.push(await tried(client[stage](bytes(message))));
    said.push(await tried(client[stage](bytes(message))));
  }
  return said;
};
"""


def test_a_client_refuses_a_wrong_roster_and_answers_each_exchange_once():
    task, tally = office()
    for _ in range(12):
        send_join(tally)
    tally.advance()
    key = min(tally._state._places)
    roster = tally.outbox(key)
    size = 4 + 128
    k = (len(roster) - 56) // size
    changes = [roster[:-1], roster[:56], b"\0" + roster[1:], roster[:56] + roster[56 : 56 + size] * k, roster]
    replies = node(
        REFUSING,
        {
            "task": task.to_json(),
            "changes": [{"stage": "share", "message": change.hex()} for change in changes],
        },
    )
    assert replies[:8:2] == [
        "a message has another length",
        f"the roster must name {k} neighbours",
        "the roster is for another task or round",
        "neighbours must be different clients",
    ]
    assert replies[8] == "answered"
    assert all("once" in refusal for refusal in replies[1::2])


CHANGED = """
const main = async ({ url, stage, flips }) => {
  const asked = async (verb, body) => new Uint8Array(
    await (await fetch(`${url}/v1/${verb}`, { method: "POST", body })).arrayBuffer());
  const text = await (await fetch(`${url}/task.json`)).text(), client = new collect.Masking(text);
  await asked("message", await client.join());
  let last = new Uint8Array(0);
  for (const now of ["share", "mask", "unmask"]) {
    let message = last;
    const start = Date.now();
    while (!message.length || collect.toHex(message) === collect.toHex(last)) {
      if (Date.now() - start > 60000) return "the tally did not go on";
      await new Promise((done) => setTimeout(done, 20));
      message = await asked("outbox", client.key);
    }
    last = message.slice();
    if (now === stage && flips === null) message = message.slice(0, -86); // the last neighbour's shares
    else if (now === stage) message[flips < 0 ? message.length + flips : flips] ^= 1;
    try {
      await asked("message", now === "mask" ? await client.mask(3, message) : await client[now](message));
    } catch (error) { return error.message; }
  }
  return "answered";
};
"""


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("stage", "flips", "refuses", "why"),
    [
        ("mask", -3, "", "answered"),  # one wrong seal
        pytest.param("mask", 0, "mask", "not the inbox of this round", marks=SLOW),
        ("mask", 19, "mask", "no neighbour"),
        # what is missing is missed when the tally says who survived
        pytest.param(
            "mask", None, "unmask", "the shares of 1 neighbours who survived did not arrive", marks=SLOW
        ),
        pytest.param("unmask", 0, "unmask", "not the survivors of this round", marks=SLOW),
        ("unmask", 19, "unmask", "a round needs 8 survivors"),
        pytest.param("unmask", 23, "unmask", "different clients in order", marks=SLOW),
    ],
)
def test_a_client_refuses_what_a_tally_should_not_say(stage, flips, refuses, why):
    _, tally = office(most=20)
    with (
        PartyServer(tally, pages=tally.pages) as server,
        at_once(partial(close_in_time, tally, 12, refuses), *[partial(send, server.url, 5)] * 11),
    ):
        replies = node(CHANGED, {"url": server.url, "stage": stage, "flips": flips})
    assert why in replies


def close_in_time(tally: Tally, n_clients: int, refuses: str) -> None:
    """Close each exchange when all who answer have, however busy the machine is; one stops at ``refuses``."""
    for stage in ("join", "share", "mask", "unmask"):
        n_clients -= stage == refuses
        waited(lambda n=n_clients: tally.progress[0] == n)
        if stage != "unmask":
            tally.advance()


def send_join(tally: Tally) -> None:
    tally.receive(Client(tally.task).join())


def waited(ready, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < until
        time.sleep(0.02)
