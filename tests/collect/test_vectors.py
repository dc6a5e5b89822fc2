"""Known answers that Python and JavaScript both give: tests/collect/vectors.json, fixed once and for all.

``python -m tests.collect.test_vectors`` prints the file from the Python side.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

from ostraka.collect import (
    Client,
    CountMin,
    CountSketch,
    Grid,
    Histogram,
    Histograms,
    Pairs,
    Sum,
    Task,
    Tree,
    Vector,
    Visits,
)
from ostraka.collect.encodings import read, written
from ostraka.collect.messages import degree, kind_of, neighbours
from ostraka.collect.validity import form_of, proved
from ostraka.secure.keys import exchange_key, shared_key
from ostraka.secure.masks import mask, pair_mask
from tests.collect.test_page_among_clients import node

FILE = Path(__file__).with_name("vectors.json")
KEY = "5a" * 32
ENCODINGS = [
    (Histogram(-1.5, 2.25, cells=7), 0.1),
    (Tree(-3, 100, fanout=4), 17),
    (Grid(x=(0, 1), y=(0, 2), shape=(3, 4), at_most=2), [[0.1, 1.9], [0.9, 0]]),
    (Pairs(items=9, at_most=3), [8, 0, 8, 3, 5]),
    (CountMin(width=11, depth=4, key=KEY, at_most=2), [2**31 - 2, 0]),
    (CountSketch(width=11, depth=4, key=KEY, at_most=2), [77, 77, 5, 6]),
    (Visits(x=(0, 1), y=(0, 2), shape=(3, 4), at_most=3), [[0.1, 1.9], [0.1, 1.9], [0.9, 0], [0.5, 0.5]]),
    (Histograms(((0, 10, 5), (-1.5, 2.25, 7))), [3, 0.1]),
]
CHECKED = [
    (Histogram(-1.5, 2.25, cells=7), 0.1),
    (Tree(-3, 14, fanout=4), 7),
    (Grid(x=(0, 1), y=(0, 2), shape=(3, 4)), [[0.1, 1.9]]),
    (Histograms(((0, 10, 5), (-1.5, 2.25, 7))), [3, 0.1]),
    (Sum(0, 15, bits=4), 11),
]
ROUNDED = [  # at random, by a key
    (Sum(0, 240), 17.31),
    (Sum(-1.5, 2.25, bits=12), 9),
    (Vector(cells=5, clip=1.0, grid=64), [0.1, -0.2, 0.3, 0.7, -0.05]),
    (Vector(cells=9, clip=0.5, grid=16), [1, -1, 2.5, 0, 0, 1e-9, 3, -7, 0.1]),
    (Vector(cells=40, clip=1.0, grid=16), [1.0, -0.5] * 20),  # too long at first, and rounded again
]


def secret(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def cases() -> list[dict]:
    """Inputs of every kind: all of them plain JSON."""
    keepers = [2 * exchange_key(secret(f"keeper {number}")) for number in range(2)]
    keepers = [hashlib.sha256(keeper.encode()).hexdigest() + keeper[64:] for keeper in keepers]
    known_cases = []
    for encoding, value in ENCODINGS:
        task = Task(encoding, sigma=4.5, tally="ab" * 32, keepers=keepers, rounds=3, least=5)
        known_cases.append({"kind": "report", "task": task.to_json(), "value": value})
        known_cases[-1] |= {"secret": secret("a").hex(), "key": exchange_key(secret("a"))}
    known_cases += [
        {"kind": "proof", "encoding": written(encoding), "value": value, "key": secret("f").hex()}
        for encoding, value in CHECKED
    ]
    known_cases += [
        {"kind": "encode", "encoding": written(encoding), "value": value, "key": secret("e").hex()}
        for encoding, value in ROUNDED
    ]
    pairs = [("client 2", "client 10"), ("client 10", "client 2"), ("the tally", "ff")]
    known_cases += [
        {"kind": "mask", "secret": secret("a").hex(), "peer": exchange_key(secret("b")), "pair": pair,
         "size": 9, "transcript": secret("c").hex()} for pair in pairs
    ]  # fmt: skip
    known_cases += [
        {"kind": "head", "digest": secret("c").hex(), "word": word} for word in ("share", "confirm")
    ]
    known_cases += [
        {"kind": "ring", "n": n, "k": k, "place": 3, "seed": secret("d").hex()} for n, k in ((9, 8), (60, 22))
    ]
    known_cases += [
        {"kind": "degree", "n": n, "colluding": share, "missing": 0.1, "lying": lying}
        for n in (12, 100, 1000) for share in (0.05, 0.1) for lying in (False, True)
    ]  # fmt: skip
    return known_cases


def answered(case: dict) -> object:
    """What Python says."""
    if case["kind"] == "report":
        client = Client(Task.from_json(case["task"]))
        client._secret, client.key = bytes.fromhex(case["secret"]), case["key"]
        return client.report(case["value"]).hex()
    if case["kind"] == "proof":
        encoding = read(case["encoding"])
        return proved(form_of(encoding), encoding.encode(case["value"]), bytes.fromhex(case["key"])).tolist()
    if case["kind"] == "encode":
        return read(case["encoding"]).encode(case["value"], key=bytes.fromhex(case["key"])).tolist()
    if case["kind"] == "mask":
        options = {"transcript": bytes.fromhex(case["transcript"]), "pair": tuple(case["pair"])}
        own = bytes.fromhex(case["secret"])
        found = pair_mask(own, case["peer"], **options, size=case["size"])
        np.testing.assert_array_equal(
            found, mask(shared_key(own, case["peer"], **options), size=case["size"])
        )
        return found.tolist()
    if case["kind"] == "head":
        return kind_of(case["word"], bytes.fromhex(case["digest"])).hex()
    if case["kind"] == "ring":
        return neighbours(case["n"], case["k"], bytes.fromhex(case["seed"]))[case["place"]].tolist()
    n = case["n"]
    n_colluding, n_missing = -int(-case["colluding"] * n // 1), -int(-case["missing"] * n // 1)
    return list(degree(n, n_colluding, n_missing, lying=case["lying"]))


SCRIPT = """
const { fromHex, toHex } = collect;
const answers = {
  report: async ({ task, value, secret, key }) => {
    const own = { secret: await collect.secretOf(fromHex(secret)), key: fromHex(key) };
    return toHex(await collect.report(task, value, { own }));
  },
  proof: async ({ encoding, value, key }) => Array.from(await collect.proved(encoding,
    await collect.encode(encoding, value), fromHex(key))),
  encode: async ({ encoding, value, key }) => Array.from(await collect.encode(encoding, value, fromHex(key))),
  mask: async ({ secret, peer, pair, size, transcript }) => Array.from(await collect.pairMask(
    await collect.secretOf(fromHex(secret)), fromHex(peer), fromHex(transcript), pair, size)),
  head: async ({ digest, word }) => toHex(await collect.kindOf(word, fromHex(digest))),
  ring: ({ n, k, place, seed }) => collect.neighboursOf(place, n, k, fromHex(seed)),
  degree: (one) => collect.degreeOf(one, one.n),
};
const main = (all) => Promise.all(all.map((one) => answers[one.kind](one)));
"""


def kept() -> list[dict]:
    return json.loads(FILE.read_text())


def test_python_gives_the_known_answers():
    questions = [json.loads(json.dumps(case)) for case in cases()]
    assert [{key: value for key, value in case.items() if key != "answer"} for case in kept()] == questions
    assert [case["answer"] for case in kept()] == [answered(case) for case in questions]


def test_javascript_gives_the_known_answers():
    for case, answer in zip(kept(), node(SCRIPT, kept()), strict=True):
        assert answer == case["answer"], case["kind"]


if __name__ == "__main__":
    sys.stdout.write(json.dumps([{**case, "answer": answered(case)} for case in cases()], indent=1) + "\n")
