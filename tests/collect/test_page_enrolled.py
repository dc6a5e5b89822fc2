"""Enrolled clients in a browser: an enrolment signs their claims and the roster, and the page checks both."""

import hashlib
import itertools
import json
import threading
from functools import partial

import numpy as np
import pytest

from ostraka.collect import Keeper, Tally, Task, Tree
from ostraka.collect.client import send
from ostraka.collect.keeper import Enrolment, approve_roster
from ostraka.collect.messages import certificate
from ostraka.collect.tally import run_exchanges
from ostraka.secure.keys import Identity
from ostraka.secure.wire import PartyServer
from tests.collect.conftest import Office
from tests.collect.test_page import FILLED
from tests.collect.test_page_among_clients import node, waited
from tests.threads import at_once

N = 12


def office(*, lying=True, **options):
    """A task among clients with an enrolment, its tally and its enrolment."""
    office_round = Office(lying=lying, enrolled=True, **{"colluding": 0.05, **options})
    return office_round.task, office_round.tally, office_round.enrolment


def test_shake_256_is_that_of_hashlib():
    questions = [
        (bytes(range(n)).hex(), size) for n, size in ((0, 1), (32, 16), (32, 500), (100, 136), (135, 137))
    ]
    script = """const main = (all) => all.map(([seed, size]) =>
      collect.toHex(collect.shake256(collect.fromHex(seed), size)));\n"""
    for (seed, size), digest in zip(questions, node(script, questions), strict=True):
        assert digest == hashlib.shake_256(bytes.fromhex(seed)).hexdigest(size)


ROUND = """
const main = async ({ url, values, signer }) => {
  const pkcs8 = collect.fromHex("302e020100300506032b657004220420" + signer);
  const key = await crypto.subtle.importKey("pkcs8", pkcs8, { name: "Ed25519" }, false, ["sign"]);
  const sha = collect.toHex(await collect.sha256(new TextEncoder().encode(
    await (await fetch(`${url}/task.json`)).text())));
  const certify = async (claim) => {
    const bound = await collect.transcriptOf(sha, 0, "enrolment");
    const head = new TextEncoder().encode("ostraka/parties/1\\0enrolment\\0");
    const signed = new Uint8Array([...head, ...bound, ...collect.fromHex(claim)]);
    return new Uint8Array(await crypto.subtle.sign({ name: "Ed25519" }, key, signed));
  };
  const told = [];
  const taken = await Promise.allSettled(values.map((value) => collect.send(url, value, { pause: 30,
    certify: async (claim) => { told.push(claim); return certify(claim); } })));
  return taken.map((one) => one.reason?.message ?? "received");
};
"""


@pytest.mark.parametrize("lying", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_enrolled_clients_in_javascript_and_in_python_make_one_sum(lying):
    task, tally, enrolment = office(lying=lying)
    values = [3, 7, 7, 12, 19, 0]
    # the secret signs in Node, as an enrolment elsewhere would; the claims then reach the roster's approval
    secret = enrolment._identity.secret
    enrolment._claims = Everybody
    with (
        PartyServer(tally, pages=tally.pages) as server,
        at_once(
            lambda: run_exchanges(tally, n_clients=N, seconds=240),
            lambda: approve_roster(server.url, enrolment, n_clients=N, seconds=240),
            *(partial(send, server.url, value, certify=signer(enrolment)) for value in values),
        ),
    ):
        replies = node(ROUND, {"url": server.url, "values": values, "signer": secret.hex()})
    assert replies == ["received"] * 6
    exact = 2 * sum(task.encoding.encode(value).astype(int) for value in values)
    np.testing.assert_array_equal(tally.close().open(), exact)
    assert tally.n_survivors == N


class Everybody(set):
    def __contains__(self, claim):
        return True


def signer(enrolment):
    return lambda claim: bytes(enrolment.enrol(claim))


STEPS = """
const main = async ({ task, wrong }) => {
  const client = new collect.Masking(task), said = [];
  for (const certificate of wrong) {
    const other = new collect.Masking(task);
    said.push(await other.join(collect.fromHex(certificate)).then(() => "joined", (error) => error.message));
  }
  const ready = { taskText: task, task: JSON.parse(task), client };
  said.push(await collect.send("http://127.0.0.1:9", 3, { ready })
    .then(() => "sent", (error) => error.message));
  return said;
};
"""


def test_a_client_joins_with_the_signature_of_its_own_claim_only():
    task, _, enrolment = office()
    others = certificate(task, enrolment._identity, "ab" * 32, round_=0)
    replies = node(STEPS, {"task": task.to_json(), "wrong": ["", "00" * 64, others.hex()]})
    assert replies[:3] == ["the enrolment did not sign the claim of this client"] * 3
    assert "needs an enrolled client" in replies[3]


CHANGED = """
const main = async ({ url, flips }) => {
  const asked = async (verb, body) => new Uint8Array(
    await (await fetch(`${url}/v1/${verb}`, { method: "POST", body })).arrayBuffer());
  const told = async (verb, body) => (await fetch(`${url}/v1/${verb}`, { method: "POST", body })).text();
  const text = await (await fetch(`${url}/task.json`)).text(), said = [];
  const client = new collect.Masking(text);
  const certificate = collect.fromHex(await told("certify", collect.toHex(await client.claim())));
  await asked("message", await client.join(certificate));
  let message = new Uint8Array(0);
  while (!message.length) {
    await new Promise((done) => setTimeout(done, 20));
    message = await asked("outbox", client.key);
  }
  for (const place of flips) {
    const wrong = message.slice();
    wrong[place < 0 ? wrong.length + place : place] ^= 1;
    said.push(wrong);
  }
  const found = [];
  for (const wrong of said) {
    found.push(await client.share(wrong).then(() => "answered", (error) => error.message));
  }
  return found;
};
"""


@pytest.mark.parametrize(
    "place", [0, 60, *(pytest.param(place, marks=pytest.mark.slow) for place in (20, -1))]
)
def test_a_changed_roster_ends_the_round_for_a_client(place):
    _, tally, enrolment = office()
    home = Certifying(tally, enrolment)
    with PartyServer(home, pages=tally.pages) as server:
        work = [
            threading.Thread(
                target=approve_roster, args=(server.url, enrolment), kwargs={"n_clients": N, "seconds": 60}
            ),
            *(
                threading.Thread(target=quiet, args=(server.url, 5, signer(enrolment)), daemon=True)
                for _ in range(N - 1)
            ),
        ]
        for thread in work:
            thread.start()
        replies = node(CHANGED, {"url": server.url, "flips": [place, place]})
        work[0].join()
    assert ("another task or round" if place == 0 else "did not sign the roster") in replies[0]
    assert "is at 'done'" in replies[1]


class Certifying:
    """A tally whose server also signs claims, for a test only."""

    def __init__(self, tally, enrolment):
        self.name, self.most_bytes = tally.name, tally.most_bytes
        self.answers = {
            **tally.answers,
            "/v1/certify": lambda body: enrolment.enrol(body.decode()).hex().encode(),
        }


def quiet(url, value, certify):
    try:
        send(url, value, certify=certify, timeout=5)
    except Exception:  # noqa: BLE001  (the round ends without it)
        return


def test_a_task_that_python_refuses_is_refused_by_the_page():
    changes = [
        {"least": 2}, {"least": 41}, {"colluding": 0.9}, {"colluding": -0.1}, {"sigma": 0}, {"lying": True},
        {"rounds": 0}, {"noise": "keepers"}, {"tally": "x"}, {"keepers": ["ab" * 64]}, {"ostraka_task": 2},
        {"most": 7},
    ]  # fmt: skip
    me = Identity.fresh().public_key
    task = Task(Tree(0, 4), sigma=3.0, tally=me, noise="tally", least=8, most=40, colluding=0.05)
    texts = [json.dumps({**json.loads(task.to_json()), **change}) for change in changes]
    for text in texts:
        with pytest.raises(ValueError, match=r"must|task|keepers|needs"):
            Task.from_json(text)
    script = """const main = (tasks) => tasks.map((task) => {
      try { new collect.Masking(task); return "taken"; } catch (error) { return "refused"; }
    });\n"""
    assert node(script, [*texts, task.to_json()]) == ["refused"] * len(texts) + ["taken"]


SENT = """
document.getElementById("value").value = "%s";
document.getElementById("certificate").value = "%s";
document.getElementById("form").requestSubmit();
"""
SAID = "document.getElementById('said').textContent"


def test_enrolled_pages_take_part_in_a_round_with_keepers(browser):
    me, office_key, others = Identity.fresh(), Identity.fresh(), [Identity.fresh() for _ in range(2)]
    task = Task(
        Tree(0, 20, fanout=5), sigma=3.0, noise="tally", tally=me.public_key, enrolment=office_key.public_key,
        keepers=[Keeper.key(keeper) for keeper in others],
    )  # fmt: skip
    tally = Tally(task, me, keepers=[Keeper(task, keeper) for keeper in others])
    enrolment = Enrolment(task, office_key)
    with PartyServer(tally, pages=tally.pages) as server:
        for value in (3, 3, 18):
            browser.open(server.url)
            claim = browser.ask(FILLED % "claim")
            browser.ask(SENT % (value, "00" * 64))
            assert "did not sign" in browser.ask(FILLED % "said")
            browser.ask("document.getElementById('said').textContent = ''")
            browser.ask(SENT % (value, enrolment.enrol(claim).hex()))
            assert browser.ask(FILLED % "said") == "Received. It will be counted once."
    leaves = tally.close().open()[-20:]
    assert (leaves[3], leaves[18], leaves.sum()) == (2, 1, 3)


def test_enrolled_pages_take_part_beside_python_clients_and_strangers_are_left_out(browser):
    _, tally, enrolment = office(missing=0.3)
    with PartyServer(tally, pages=tally.pages) as server:
        tabs = [browser.tab(server.url) for _ in range(3)]
        for tab in tabs:
            claim = browser.ask(FILLED % "claim", tab=tab)
            browser.ask(SENT % (7, enrolment.enrol(claim).hex()), tab=tab)
        certify = [signer(enrolment)] * 6 + [
            lambda claim: certificate(enrolment.task, enrolment._identity, claim, round_=0)
        ] * 2  # signed elsewhere: not on this list
        threads = [
            threading.Thread(target=quiet, args=(server.url, value, one), daemon=True)
            for value, one in zip(itertools.cycle((2, 19)), certify, strict=False)
        ]
        for thread in threads:
            thread.start()
        waited(lambda: tally.progress[0] == 11)
        approve_roster(server.url, enrolment, n_clients=9, seconds=60)
        assert tally.n_clients == 9
        run_exchanges(tally, n_clients=9, seconds=60)
        waited(lambda: all(browser.ask(SAID, tab=tab).startswith("Received") for tab in tabs))
    leaves = tally.close().open()[-20:]
    assert (leaves[7], leaves[2], leaves[19], leaves.sum()) == (3, 3, 3, 9)
