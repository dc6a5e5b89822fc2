"""A client in headless Chromium: milliseconds for its masks with 1,000 others and with three keepers."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import threading
from importlib import resources
from types import SimpleNamespace

from ostraka.secure.wire import PartyServer

__all__ = ["in_chromium", "main"]

CASES = ((999, 4896), (3, 4896))
QUICK = {"CASES": ((5, 64),)}
_PATIENCE = 60.0  # seconds
_PAGE = b'<!doctype html><meta charset="utf-8"><script type="module" src="measure.js"></script>'
_SCRIPT = """
import { addMasks, newSecret } from "./collect.js";
const found = [];
for (const [n, cells] of %s) {
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


def in_chromium(program: str, cases: tuple[tuple[int, int], ...]) -> list[float]:
    """Milliseconds of each case, by the browser's own clock."""
    said: list[float] = []
    done = threading.Event()

    def heard(body: bytes) -> bytes:
        said.extend(json.loads(body))
        done.set()
        return b""

    page = resources.files("ostraka.collect") / "page" / "collect.js"
    script = _SCRIPT % json.dumps([list(case) for case in cases])
    pages = {
        "/": ("text/html", _PAGE),
        "/measure.js": ("text/javascript", script.encode()),
        "/collect.js": ("text/javascript", page.read_bytes()),
    }
    party = SimpleNamespace(name="the bench", answers={"/v1/done": heard}, most_bytes=4096)
    # processes of the browser may still write for a moment after it has ended
    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    with PartyServer(party, pages=pages) as server, folder as profile:
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
    return said


def main() -> None:
    """Print one line for each number of peers."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        print("there is no Chromium here: apt-get install chromium")
        return
    for (n, cells), milliseconds in zip(CASES, in_chromium(program, CASES), strict=True):
        print(f"client in Chromium, masks with {n} others, {cells:,} cells: {milliseconds:.1f} ms")
