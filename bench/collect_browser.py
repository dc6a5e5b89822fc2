"""A client in headless Chromium: milliseconds for its masks, and hit rates of what its page recommends."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import threading
from importlib import resources
from types import SimpleNamespace

import numpy as np

from bench._data import folder
from bench.collect import coded_groceries
from ostraka.collect import Pairs
from ostraka.collect.estimate import ranked, similarity
from ostraka.collect.plan import sigma_for
from ostraka.core.mechanisms.skellam import skellam
from ostraka.secure.wire import PartyServer

__all__ = ["in_chromium", "main"]

CASES = ((999, 4896), (3, 4896))
SPLITS, TRAINED = 5, 8_000
QUICK = {"CASES": ((5, 64),), "SPLITS": 1}
_PATIENCE = 60.0  # seconds
_PAGE = b'<!doctype html><meta charset="utf-8"><script type="module" src="measure.js"></script>'
_SCRIPT = """
import { addMasks, newSecret } from "./collect.js";
const found = [];
for (const [n, cells] of await (await fetch("data.json")).json()) {
  const { secret } = await newSecret(), peers = [];
  for (let at = 0; at < n; at++) {
    peers.push({ key: (await newSecret()).key, pair: ["me", `peer ${at}`], sign: 1 });
  }
  const start = performance.now();
  await addMasks(new Uint32Array(cells), secret, peers, new Uint8Array(32));
  found.push(performance.now() - start);
}
await fetch("/v1/done", { method: "POST", body: JSON.stringify(found) });
"""


_RECOMMENDED = """
import { ranked, similarity } from "./similar.js";
const { sums, encoding, n, variance, baskets } = await (await fetch("data.json")).json();
const likelihood = similarity(sums, encoding, n, variance);
const hits = baskets.filter(([missing, ...own]) => ranked(likelihood, own, 10).includes(missing)).length;
await fetch("/v1/done", { method: "POST", body: JSON.stringify([hits / baskets.length]) });
"""


def in_chromium(program: str, script: str, data: object) -> list[float]:
    """What a script in a page posts, given some JSON and the files of the page."""
    lines: list[float] = []
    done = threading.Event()

    def heard(body: bytes) -> bytes:
        lines.extend(json.loads(body))
        done.set()
        return b""

    page = resources.files("ostraka.collect") / "page"
    pages = {
        "/": ("text/html", _PAGE),
        "/measure.js": ("text/javascript", script.encode()),
        "/data.json": ("application/json", json.dumps(data).encode()),
        **{
            f"/{name}": ("text/javascript", (page / name).read_bytes())
            for name in ("collect.js", "similar.js")
        },
    }
    party = SimpleNamespace(name="the bench", answers={"/v1/done": heard}, most_bytes=4096)
    # processes of the browser may still write for a moment after it has ended
    home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    with PartyServer(party, pages=pages) as server, home as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--no-proxy-server"]
        flags += ["--disable-dev-shm-usage", "--remote-debugging-port=0", f"--user-data-dir={profile}"]
        browser = subprocess.Popen(
            [program, *flags, server.url], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            if not done.wait(_PATIENCE):
                raise TimeoutError(f"the browser said nothing for {_PATIENCE:g} seconds")
        finally:
            browser.terminate()
            browser.wait()
    return lines


def main() -> None:
    """Print one line for each number of peers, and one for recommendations."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        print("there is no Chromium here: apt-get install chromium")
        return
    for (n, cells), milliseconds in zip(CASES, in_chromium(program, _SCRIPT, CASES), strict=True):
        print(f"client in Chromium, masks with {n} others, {cells:,} cells: {milliseconds:.1f} ms")
    if (folder() / "groceries" / "groceries.txt.gz").exists():
        rates = [recommended(program, split) for split in range(SPLITS)]
        page, process = np.mean(rates, axis=0)
        print(f"groceries, hit@10 at epsilon 1: {page:.4f} in the page, {process:.4f} in this process")


def recommended(program: str, split: int) -> tuple[float, float]:
    """How often a missing item of a new basket is among ten: in the page, and in this process."""
    coded, items = coded_groceries()
    pairs, rng = Pairs(items=items, at_most=6), np.random.default_rng(split)
    sigma, order = sigma_for(pairs, epsilon=1.0, delta=1e-6), rng.permutation(len(coded))
    train, test = [coded[place] for place in order[:TRAINED]], [coded[place] for place in order[TRAINED:]]
    sums = np.sum([pairs.encode(basket) for basket in train], axis=0, dtype=np.int64)
    noisy = sums + skellam(sigma**2, sums.shape, rng=rng)
    baskets = [rng.permutation(basket).tolist() for basket in test if len(basket) > 1]
    data = {"sums": noisy.tolist(), "n": len(train), "variance": sigma**2, "baskets": baskets}
    data["encoding"] = {"kind": "Pairs", "items": items}
    likelihood = similarity(noisy.astype(float), pairs, len(train), sigma**2)
    hits = [basket[0] in ranked(likelihood, basket[1:], 10) for basket in baskets]
    return in_chromium(program, _RECOMMENDED, data)[0], float(np.mean(hits))
