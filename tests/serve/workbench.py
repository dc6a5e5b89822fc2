"""The page of ``ostraka ui`` in a thread, and a command in the place of ``ostraka learn`` that is quick."""

import asyncio
import contextlib
import http.client
import json
import sys
import threading
import time
from urllib.parse import urlsplit

from ostraka.secure.server import Server, listening
from ostraka.serve.ui import Workbench

PATIENCE = 120.0
OWNER = {"label": "ill", "rows_are_people": True}  # what a person says of visits()
# Says a plan, and spends with --yes: it writes down every time that it was asked to.
STAND_IN = """
import json, os, pathlib, sys, time
words = sys.argv[1:]
log = pathlib.Path(os.environ["STAND_IN_LOG"])
with log.open("a") as file:
    file.write(json.dumps(words) + "\\n")
if words[0] == "report":
    (pathlib.Path(words[1]) / "report-public.html").write_text("<script>alert(1)</script>public")
    sys.exit(0)
print("Plan: <b>counts</b>", file=sys.stderr, flush=True)
if "--yes" not in words:
    print("ostraka: nothing was spent: there is no terminal to ask on.", file=sys.stderr)
    sys.exit(2)
out = pathlib.Path(words[words.index("--out") + 1])
out.mkdir(parents=True)
print("rows voted", file=sys.stderr, flush=True)
while (log.parent / "wait").exists():
    time.sleep(0.02)
(out / "privacy-label.json").write_text(json.dumps({"epsilon": 1.0, "claim": "A claim."}))
for name in ("student.skops", "ledger.sqlite", "report.html", "result.json", "ledger.sqlite.secret"):
    (out / name).write_text(name)
print("Student accuracy 90 %")
"""


class Bench:
    """A workbench that serves, and requests to it."""

    def __init__(self, folder, *, limits=None, learn=None, **tables):
        self.log = folder / "log"
        command = {"learn": learn} if learn else {"learn": (sys.executable, "-c", STAND_IN)}
        self.app = Workbench(folder / "bench", **command, **tables)
        if limits is not None:
            self.app.limits = limits
        sock = listening("127.0.0.1", 0)
        self.port = sock.getsockname()[1]
        self.host = f"127.0.0.1:{self.port}"
        self.link = self.app.opened(self.port)
        self.cookie = ""
        self._ready, self._server, self._loop = threading.Event(), None, None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(sock)), daemon=True)
        self._thread.start()
        assert self._ready.wait(PATIENCE)

    async def _serve(self, sock):
        def started(running_server):
            self._server, self._loop = running_server, asyncio.get_running_loop()
            self._ready.set()

        await Server(self.app, sock).serve(started)

    def ask(self, method, path, body=None, *, headers=None, without=()):
        """Status, headers and body of a reply to a request as the page sends it, but for ``headers``."""
        usual = {"Host": self.host, "Cookie": self.cookie}
        if method == "POST":
            usual |= {"Origin": f"http://{self.host}", "Content-Type": "application/json"}
        sent = {name: value for name, value in (usual | (headers or {})).items() if name not in without}
        content = json.dumps(body).encode() if isinstance(body, dict) else body
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        with contextlib.closing(link):
            link.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in sent.items():
                link.putheader(name, value)
            if content is not None and "Content-Length" not in sent:
                link.putheader("Content-Length", str(len(content)))
            link.endheaders(content)
            reply = link.getresponse()
            return reply.status, dict(reply.getheaders()), reply.read()

    def open(self):
        """Open the link, as a browser does."""
        status, headers, _ = self.ask("GET", self.link.removeprefix(f"http://{self.host}"))
        assert status == 200
        lowered = {name.lower(): value for name, value in headers.items()}
        self.cookie = lowered["set-cookie"].partition(";")[0]
        return lowered

    def say(self, path, body=None, **headers):
        """The state after a message that is taken."""
        status, _, content = self.ask("POST", path, {} if body is None else body, **headers)
        assert status == 200, content
        return json.loads(content)

    def state(self):
        return json.loads(self.ask("GET", "/state")[2])

    def drop(self, role, name, content):
        status, _, body = self.ask("POST", f"/table?role={role}&name={name}", content)
        assert status == 200, body

    def wait(self, is_so):
        until = time.monotonic() + PATIENCE
        while not is_so(state := self.state()):
            assert time.monotonic() < until, state
            time.sleep(0.02)
        return state

    def planned(self, **choice):
        """A ticket for a plan."""
        self.say("/plan", {"way": "counts", "epsilon": 1.0} | choice)
        state = self.wait(lambda state: state["release"]["status"] != "planning")
        assert state["release"]["status"] == "planned", state["release"]
        return state["release"]["ticket"]

    def commands(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def close(self):
        self._server.stop()
        self._thread.join(PATIENCE)


def link_of(bench):
    """The path and query of its link."""
    parts = urlsplit(bench.link)
    return f"{parts.path}?{parts.query}"


def visits(n_rows, *, seed=0):
    """A small table as CSV: a label that follows from two of three columns."""
    import numpy as np

    rng = np.random.default_rng(seed)
    age, days, ward = (
        rng.integers(20, 90, n_rows),
        rng.integers(1, 20, n_rows),
        rng.choice(["heart", "lungs"], n_rows),
    )
    ill = np.where(age + 3 * days + rng.normal(0, 8, n_rows) > 85, "yes", "no")
    lines = [
        "age,days,ward,ill",
        *(",".join(map(str, row)) for row in zip(age, days, ward, ill, strict=True)),
    ]
    return ("\n".join(lines) + "\n").encode()
