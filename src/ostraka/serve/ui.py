"""``ostraka ui``: check, plan and learn on a page of this machine, for people who do not type commands.

The page talks to one process that listens on this machine alone. Whoever opens the link that the command
prints first has the page: the link holds a key that works once. Spending is what ``ostraka learn`` does, in a
process of its own: it shows its plan, and spends when the same words are typed with ``--yes``. What each way
is expected to give at each price is forecast on public rows alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import math
import os
import re
import secrets
import shlex
import signal
import sys
import time
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import numpy as np

from ostraka import console
from ostraka.core import files
from ostraka.core.check import release_delta
from ostraka.data import task as tasks
from ostraka.data.table import read
from ostraka.learn.check import Check, candidates, check, declarations
from ostraka.learn.classifier import PATEClassifier
from ostraka.learn.ways.choose import (
    Forecast,
    cells_of,
    forecast,
    made_up,
    proxy_worlds,
    recommended,
    way_of_rows,
)
from ostraka.learn.ways.plan import Facts
from ostraka.report import folder as run_folder
from ostraka.report.page import at_most, most_detected, sentence
from ostraka.secure.server import Limits, Refused, Reply, Request, log_unexpected

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from ostraka.data.task import Columns
    from ostraka.secure.server import Headers, Server

ROLES = ("private", "public")
LEARN = (sys.executable, "-P", "-c", "from ostraka.cli import main; main()")
_SUFFIXES = (".csv", ".tsv", ".txt", ".xlsx", ".parquet", ".pq")
_NAME = re.compile(r"\w[\w .()+-]{0,120}")  # of a file, without any path
_RUN = re.compile(r"\d{3}")
_HOLDOUT = 0.2
_MOST_BYTES = 2**28  # of a dropped file, which memory holds; larger ones are named when the page is started
_MOST_JSON = 2**16
_MOST_LINES = 400  # of what a run says
_PATIENCE = 20.0  # seconds for a run to stop
_LINK = "open the link that 'ostraka ui' printed; it works once. Start the command again for another"
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    b"form-action 'none'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'"
)
_SAFE = (
    (b"content-security-policy", _POLICY),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_FILES = {  # of a run, in the order in which they are offered, and what they are
    run_folder.STUDENT: "the model, for scikit-learn",
    run_folder.ONNX: "the model, for everything else",
    run_folder.CARD: "how to use the model",
    run_folder.PUBLIC_REPORT: "the report",
    run_folder.LABEL: "the price, for machines",
    run_folder.LABELS: "public rows with the labels that were released",
    run_folder.LEDGER: "the ledger of this release",
    run_folder.REPORT: "the report with the owner's part",
    run_folder.RESULT: "the record, with the owner's part",
}
_PAGES = (run_folder.REPORT, run_folder.PUBLIC_REPORT)
EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_FEWEST = 120  # public rows with true labels that stand for the private ones
_HALF = 0.5
_TRUE = "public rows with their true labels stand for the private rows"
_MADE_UP = (
    "public rows with made-up labels stand for the private rows, so that ways can be compared: how hard your "
    "task is, nobody knows before the model is measured"
)


@dataclass(slots=True)
class Release:
    """A plan that was shown, or what became of it.

    Attributes
    ----------
    name : str
        Of its folder.
    words : tuple of str
        What ``ostraka`` is given, without ``--yes``.
    ticket : str
        Spends once; empty where there is nothing to spend.
    status : str
        ``"planning"``, ``"planned"``, ``"running"``, ``"done"``, ``"stopped"``, ``"refused"`` or
        ``"failed"``.
    lines : list of str
        What it said, newest last. For the owner alone.
    """

    name: str
    words: tuple[str, ...]
    ticket: str = ""
    status: str = "planning"
    lines: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    process: asyncio.subprocess.Process | None = None

    def to_dict(self) -> dict[str, Any]:
        """What the page shows."""
        ended = self.status not in {"planning", "running"}
        return {
            "name": self.name,
            "status": self.status,
            "ticket": self.ticket,
            "lines": self.lines,
            "command": shlex.join(("ostraka", *self.words)),
            "seconds": self.seconds if ended else time.monotonic() - self.began,
        }


class Workbench:
    """The application: one person, two tables, one release at a time.

    Parameters
    ----------
    folder : path
        Copies of dropped files, ledgers of tables and runs; made if it is not there, for its owner alone.
    private, public : path, optional
        Tables to begin with. They are read where they are.
    ledger : path, optional
        Ledgers of tables. Default: as ``ostraka learn`` has it for a table that was named, in ``folder`` for
        one that was dropped.
    learn : sequence of str
        The command that spends.

    Guarantees
    ----------
    Every request but the first needs a cookie that only the browser has which opened the link. Requests that
    name another host, or come from a page of another origin, are refused before their body is read. A file
    name is never a path. A ticket spends once, and only the plan that it was given out for.
    """

    limits = Limits(most_body=_MOST_BYTES, most_held=_MOST_BYTES + 2**20, at_once=32)

    def __init__(
        self,
        folder: Path,
        *,
        private: Path | None = None,
        public: Path | None = None,
        ledger: Path | None = None,
        learn: Sequence[str] = LEARN,
    ) -> None:
        self.folder = folder
        self.server: Server | None = None
        self._learn, self._ledger = tuple(learn), ledger
        for part in (folder, folder / "tables", folder / "runs"):
            part.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._key, self._session = secrets.token_urlsafe(32), ""
        self.tables = {"private": private, "public": public}
        self._declared: Columns | None = None
        self._check: Check | None = None
        self._holdout = False
        self._busy = self._error = ""
        self._looking: asyncio.Future[None] | None = None
        self._outlook: Outlook | None = None
        self._release: Release | None = None
        self._tasks: set[asyncio.Future[None]] = set()
        page = (
            files.environment().get_template("ui.html.j2").render(most=_MOST_BYTES >> 20, suffixes=_SUFFIXES)
        )
        templates = resources.files("ostraka") / "templates"
        self._served = {
            "/": (b"text/html", page.encode()),
            "/ui.js": (b"text/javascript", (templates / "ui.js").read_bytes()),
            "/ui.css": (
                b"text/css",
                b"".join((templates / name).read_bytes() for name in ("page.css", "ui.css")),
            ),
        }

    def opened(self, port: int) -> str:
        """The link to open, once it is known where the server listens."""
        self._hosts = {f"127.0.0.1:{port}".encode(), f"localhost:{port}".encode()}
        self._cookie = f"ostraka-{port}"
        return f"http://127.0.0.1:{port}/?key={self._key}"

    async def start(self) -> None:
        """Look at tables that were named."""
        if self.tables["private"] is not None:
            self._look({})

    async def close(self) -> None:
        """Stop what runs: what was paid for is kept."""
        if self._outlook is not None:
            self._outlook.stop()
        await self._stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def admit(self, request: Request) -> bool:
        """Refuse what does not come from the page, before a body is read."""
        headers, path, is_get = request.headers, request.path, request.method == "GET"
        host, origin = headers.get(b"host", b""), headers.get(b"origin")
        site, start = headers.get(b"sec-fetch-site", b"same-origin"), is_get and path == "/"
        request.route = ROUTES.get((request.method, path))
        served = request.route or (is_get and (path in self._served or path.startswith("/runs/")))
        long = int(headers.get(b"content-length", b"0")) > _MOST_JSON or b"transfer-encoding" in headers
        is_json = is_get or headers.get(b"content-type", b"").startswith(b"application/json")
        from_elsewhere = (not is_get or origin is not None) and origin != b"http://" + host
        if host not in self._hosts:
            request.refused = Refused(421, "wrong_host", "this page is at 127.0.0.1 only")
        elif from_elsewhere or (site not in {b"same-origin", b"none"} and not start):
            request.refused = Refused(403, "wrong_origin", "this came from another page")
        else:
            for cookie in headers.get(b"cookie", b"").decode("latin-1").split(";"):
                name, _, value = cookie.strip().partition("=")
                if name == self._cookie and self._session:
                    is_session = hmac.compare_digest(value.encode(), self._session.encode())
                    request.who = request.who or is_session or None
            if request.who is None and not start:
                request.refused = Refused(403, "forbidden", _LINK)
            elif not served:
                request.refused = Refused(404, "not_found")
            elif path != "/table" and long:
                request.refused = Refused(413, "too_large")
            elif path != "/table" and not is_json:
                request.refused = Refused(415, "no_json", "the message must be JSON")
        return request.who is not None

    async def reply(self, request: Request) -> Reply:
        """Serve one request. It raises nothing."""
        try:
            if request.refused is not None:
                raise request.refused  # noqa: TRY301  (one place answers refusals)
            if request.route is not None:
                reply: Reply = await request.route(self, request)
                return reply
            if request.path not in self._served:  # a file of a run: reports without scripts, all else to keep
                _, _, name, *parts = request.path.split("/")
                wanted = "/".join(parts)
                file = self.folder / "runs" / name / wanted
                if not _RUN.fullmatch(name) or wanted not in _FILES or not file.is_file():
                    raise Refused(404, "not_found")  # noqa: TRY301
                if wanted in _PAGES:
                    return Reply.html(file.read_text(encoding="utf-8"), more=_SAFE[1:])
                attached = (b"content-disposition", f'attachment; filename="{wanted}"'.encode())
                return Reply(200, file.read_bytes(), b"application/octet-stream", (*_SAFE, attached))
            more: Headers = _SAFE
            if request.who is None:  # the first to bring the key gets the cookie
                key = parse_qs(request.query.decode("latin-1")).get("key", [""])[0]
                if not self._key or not hmac.compare_digest(key.encode(), self._key.encode()):
                    raise Refused(403, "forbidden", _LINK)  # noqa: TRY301
                self._key, self._session = "", secrets.token_urlsafe(32)
                cookie = f"{self._cookie}={self._session}; Path=/; HttpOnly; SameSite=Strict"
                more = (*_SAFE, (b"set-cookie", cookie.encode()))
            kind, body = self._served[request.path]
            return Reply(200, body, kind + b"; charset=utf-8", more)
        except Refused as refused:
            return refused.reply
        except Exception as error:  # noqa: BLE001  (its message may quote private values)
            log_unexpected(error)
            return Refused(500, "failed").reply

    def state(self) -> dict[str, Any]:
        """Everything that the page shows. For the owner alone."""
        report, declared = self._check, self._declared
        state: dict[str, Any] = {
            "tables": {role: None if path is None else path.name for role, path in self.tables.items()},
            "busy": self._busy,
            "error": self._error,
            "check": None,
            "steps": [],
            "outlook": None if self._outlook is None else self._outlook.to_dict(),
            "release": None if self._release is None else self._release.to_dict(),
            "runs": [],
        }
        if report is not None:
            state["check"] = report.to_dict() | {
                "groups": [
                    {
                        "heading": heading,
                        "findings": [
                            {
                                "weight": finding.weight,
                                "text": finding.sentence(cells=True),
                                "hint": finding.hint,
                            }
                            for finding in findings
                        ],
                    }
                    for heading, findings in report.groups()
                ],
                "candidates": list(candidates(report)),
                "label": "" if declared is None else declared.label,
                "person": None if declared is None else declared.person,
                "rows_are_people": declared is not None and declared.rows_are_people,
                "holdout": self._holdout,
                "ready": not self._open_question(),
            }
            # what each price on the slider means, in words and as an attacker's success
            delta = release_delta(None, n_units=report.n_units)
            state["steps"] = [
                {
                    "epsilon": epsilon,
                    "delta": delta,
                    "words": sentence(epsilon=epsilon, delta=delta, unit=report.unit),
                    "detected": most_detected({"epsilon": epsilon, "delta": delta}),
                }
                for epsilon in EPSILONS
            ]
        # the runs of this folder, and their files
        for words in sorted((self.folder / "runs").glob("*.json")):
            place = words.with_suffix("")
            finished = (place / run_folder.RESULT).is_file()
            names = [name for name in _FILES if finished and (place / name).is_file()]
            claim = ""
            if run_folder.LABEL in names:
                label = json.loads((place / run_folder.LABEL).read_text(encoding="utf-8"))
                claim = f"ε ≤ {at_most(label['epsilon'])}. {label['claim']}"
            listed = [
                {
                    "name": name,
                    "what": _FILES[name],
                    "owner": name not in run_folder.FOR_ANYBODY,
                    "page": name in _PAGES,
                    "kilobytes": -(-(place / name).stat().st_size // 1024),
                }
                for name in names
            ]
            state["runs"].append(
                {"name": place.name, "finished": bool(names), "claim": claim, "files": listed}
            )
        return state

    def _open_question(self) -> str:
        """What must be said before a plan can be made; empty: nothing."""
        report, declared = self._check, self._declared
        if report is None or declared is None:
            return "drop a table of private rows first"
        if not declared.label:
            return "say which column is to be learned"
        if declared.person is None and not declared.rows_are_people:
            return "say who is protected"
        if self.tables["public"] is None and not self._holdout:
            return "drop public rows, or give up the privacy of a fifth of the private ones"
        return "" if report.command else "mend the file as the findings say"

    async def _table(self, request: Request) -> Reply:
        """A dropped file: a copy in the folder, in a place of its own."""
        parameters = {name: values[0] for name, values in parse_qs(request.query.decode("latin-1")).items()}
        role, name = parameters.get("role", ""), parameters.get("name", "")
        if role not in ROLES:
            raise Refused(400, "bad_role", "a table is private or public")
        if not _NAME.fullmatch(name):
            raise Refused(400, "bad_name", "rename the file: letters, digits, spaces and . _ - ( ) + only")
        if not name.lower().endswith(_SUFFIXES):
            raise Refused(400, "bad_kind", f"this reads {', '.join(_SUFFIXES)}")
        if not request.body:
            raise Refused(400, "empty", "the file is empty")
        await self._rest()
        place = self.folder / "tables" / secrets.token_hex(8)
        place.mkdir(mode=0o700)
        await asyncio.to_thread(files.write, place / name, request.body, private=True)
        self.tables[role] = place / name
        if role == "private":
            self._declared = self._check = None
        self._look({})
        return Reply.json(self.state())

    async def _checked(self, request: Request) -> Reply:
        """Look again, with what was said about the columns."""
        fields = _object(request, label=str, person=str, rows_are_people=bool, holdout=bool, epsilon=float)
        await self._rest()
        self._look(fields)
        return Reply.json(self.state())

    def _look(self, fields: dict[str, Any]) -> None:
        """Check the tables in a thread; then forecast, if enough is known."""
        private = self.tables["private"]
        if private is None:
            return
        before = self._declared
        label = fields.get("label", "" if before is None else before.label)
        person = fields.get("person", (before and before.person) or "") or None
        declared = tasks.Columns(
            label=label,
            person=person,
            rows_are_people=person is None
            and fields.get("rows_are_people", before is not None and before.rows_are_people),
        )
        self._holdout = bool(fields.get("holdout", self._holdout)) and self.tables["public"] is None
        epsilon = fields.get("epsilon", 1.0)
        self._busy, self._error = "checking", ""
        if self._outlook is not None:
            self._outlook.stop()
        self._outlook = None
        if self._release is not None and self._release.status == "planned":
            self._release = None  # its plan was of what was said before

        def look() -> Check:
            return check(private, public=self.tables["public"], epsilon=epsilon, columns=declared)

        async def work() -> None:
            try:
                self._check, self._declared = await asyncio.to_thread(look), declared
            except Exception as error:  # noqa: BLE001  (failure says what may be said)
                self._error = console.failure(error)[1]
            finally:
                self._busy = ""
            if not (self._error or self._open_question()) and self._check is not None:
                public = self.tables["public"]
                self._outlook = Outlook(
                    private,
                    public,
                    columns=declarations(declared, self._check.findings),
                    holdout=None if public is not None else _HOLDOUT,
                )
                self._do(asyncio.to_thread(self._outlook.run))

        self._looking = self._do(work())

    async def _planned(self, request: Request) -> Reply:
        """Have ``ostraka learn`` show its plan. It ends without spending, as nobody typed ``--yes``."""
        fields = _object(request, way=str, epsilon=float, run=str)
        await self._rest()
        runs = self.folder / "runs"
        if run := fields.get("run"):  # one that did not end
            path = runs / f"{run}.json"
            if not _RUN.fullmatch(run) or not path.is_file():
                raise Refused(404, "not_found", "there is no such run")
            words = json.loads(path.read_text(encoding="utf-8"))
        else:  # the command that the check ends with, at this price, for a folder of this page
            question, private = self._open_question(), self.tables["private"]
            if question or self._check is None:
                raise Refused(409, "not_ready", question)
            way, epsilon = fields.get("way", ""), fields.get("epsilon", 0.0)
            if epsilon not in EPSILONS:
                prices = ", ".join(f"{price:g}" for price in EPSILONS)
                raise Refused(400, "bad_epsilon", f"epsilon is one of {prices}")
            if way not in Outlook.WAYS:
                raise Refused(400, "bad_way", f"a way is one of {', '.join(Outlook.WAYS)}")
            last = max((int(path.stem) for path in runs.glob("*.json")), default=0)
            run, words = f"{last + 1:03}", shlex.split(self._check.command)[1:]
            if "--epsilon" in words:  # the price that was checked
                place = words.index("--epsilon")
                del words[place : place + 2]
            words += ["--epsilon", f"{epsilon:g}", "--way", way, "--out", str(runs / run)]
            if self._ledger is not None:
                words += ["--ledger", str(self._ledger)]
            elif private is not None and private.is_relative_to(self.folder / "tables"):
                words += ["--ledger", str(self.folder / "ostraka-ledgers")]
        self._release = Release(run, tuple(words))
        self._do(self._plan(self._release))
        return Reply.json(self.state())

    async def _plan(self, release: Release) -> None:
        code = await self._type(release, release.words)
        if code == console.USAGE and release.lines and console.UNASKED in release.lines[-1]:
            del release.lines[-1]
            release.status, release.ticket = "planned", secrets.token_urlsafe(16)
        elif release.status == "planning":
            release.status = "refused"

    async def _spent(self, request: Request) -> Reply:
        """Spend what the ticket is for, once."""
        ticket = _object(request, ticket=str).get("ticket", "")
        release = self._release
        if (
            release is None
            or not release.ticket
            or not hmac.compare_digest(ticket.encode(), release.ticket.encode())
        ):
            raise Refused(409, "spent_or_old", "this plan was spent already, or another one was made since")
        release.ticket = ""  # before anything is waited for: another tab comes too late
        files.write(self.folder / "runs" / f"{release.name}.json", json.dumps(release.words), private=True)
        release.status, release.lines, release.began = "running", [], time.monotonic()
        self._do(self._spend(release))
        return Reply.json(self.state())

    async def _spend(self, release: Release) -> None:
        code = await self._type(release, (*release.words, "--yes"))
        if release.status == "running":
            place = self.folder / "runs" / release.name
            if learned := code in {console.DONE, console.NOTHING_LEARNED}:
                await self._type(Release(release.name, ()), ("report", str(place), "--public"))
            release.status = "done" if learned else "failed"
        if not (self.folder / "runs" / release.name).exists():  # refused before anything was charged
            (self.folder / "runs" / f"{release.name}.json").unlink(missing_ok=True)

    async def _type(self, release: Release, words: tuple[str, ...]) -> int:
        """Run the command; keep what it says on stderr as it comes, and what it prints when it ends."""
        try:
            release.process = process = await asyncio.create_subprocess_exec(
                *self._learn,
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        except OSError as error:  # the system has no room for another process
            release.lines.append(console.failure(error)[1])
            return console.FAILED

        async def read(stream: asyncio.StreamReader, lines: list[str]) -> None:
            with contextlib.suppress(ValueError):  # a line too long for a page
                async for line in stream:
                    lines.append(line.decode(errors="replace").rstrip())
                    del lines[:-_MOST_LINES]

        printed: list[str] = []
        streams = ((process.stdout, printed), (process.stderr, release.lines))
        await asyncio.gather(*(read(stream, lines) for stream, lines in streams if stream is not None))
        code = await process.wait()
        release.lines += printed
        release.seconds, release.process = time.monotonic() - release.began, None
        return code

    async def _stopped(self, _: Request) -> Reply:
        """Stop the run, as Ctrl-C does."""
        await self._stop()
        return Reply.json(self.state())

    async def _stop(self) -> None:
        release = self._release
        if release is None or release.process is None:
            return
        process, release.status = release.process, "stopped"
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
            try:
                await asyncio.wait_for(process.wait(), _PATIENCE)
            except TimeoutError:
                process.kill()

    async def _state(self, _: Request) -> Reply:
        return Reply.json(self.state())

    async def _rest(self) -> None:
        """Wait until the tables were looked at; refuse while a release is made."""
        while self._looking is not None and not self._looking.done():
            await asyncio.wait({self._looking})
        if self._release is not None and self._release.status in {"planning", "running"}:
            raise Refused(409, "busy", "a run is going on: stop it, or wait for it")

    def _do(self, work: Awaitable[None]) -> asyncio.Future[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log_unexpected(error)
            self._error = console.failure(error)[1]


def _object(request: Request, **kinds: type) -> dict[str, Any]:
    """The fields of a JSON object that are known, each of its type."""
    try:
        fields = json.loads(request.body or b"{}")
    except ValueError:
        raise Refused(400, "bad_request") from None
    if not isinstance(fields, dict):
        raise Refused(400, "bad_request")
    for name, value in fields.items():
        kind = kinds.get(name)
        number = kind is float and isinstance(value, int) and not isinstance(value, bool)
        if kind is None or not (number or isinstance(value, kind)):
            raise Refused(400, "bad_request", "a field is unknown, or of another type")
    return fields


ROUTES: dict[tuple[str, str], Callable[[Workbench, Request], Awaitable[Reply]]] = {
    ("GET", "/state"): Workbench._state,  # noqa: SLF001  (its own table)
    ("POST", "/table"): Workbench._table,  # noqa: SLF001
    ("POST", "/check"): Workbench._checked,  # noqa: SLF001
    ("POST", "/plan"): Workbench._planned,  # noqa: SLF001
    ("POST", "/spend"): Workbench._spent,  # noqa: SLF001
    ("POST", "/stop"): Workbench._stopped,  # noqa: SLF001
}


class Outlook:
    """Forecasts of accuracy, way by way and price by price, as they come.

    Parameters
    ----------
    private, public, columns, holdout
        As of :func:`ostraka.data.task.tables`.

    Guarantees
    ----------
    Of the private table it uses the number of units and of classes alone, which count as public. Accuracies
    are of public rows.
    """

    WAYS = ("filter", "counts", "rounds", "argmax")

    def __init__(
        self, private: Path, public: Path | None, *, columns: Columns, holdout: float | None
    ) -> None:
        self._private, self._public, self._columns, self._holdout = private, public, columns, holdout
        self._stopped = self.done = False
        self._basis, self._default = "", self.WAYS[0]
        self._forecasts: dict[str, dict[float, Forecast]] = {}

    def stop(self) -> None:
        """End :meth:`run` at the next price."""
        self._stopped = True

    def run(self) -> None:
        """Forecast every way at every price: the middle of the slider first."""
        task = tasks.tables(self._private, self._public, columns=self._columns, holdout=self._holdout, seed=0)
        delta = release_delta(None, n_units=task.n_units)
        self._default = way_of_rows(task.X_public)
        # public rows and labels in the place of the private ones; made-up labels where there are none. Labels
        # of rows that were held out are private ones, and are not looked at
        basis, rows = _MADE_UP, task.X_public
        labels = made_up(task.X_public, task.n_classes, np.random.default_rng(0))
        columns = replace(self._columns, person=None, rows_are_people=True)
        if self._public is not None:
            names = read(self._public, public=True, form=tasks.public_form(self._public, columns.form)).names
            columns = replace(columns, drop=[name for name in columns.drop if name in names])
            if columns.label in names:
                with contextlib.suppress(ValueError):  # too few labels, or other classes
                    known = tasks.tables(self._public, None, columns=columns, holdout=_HALF, seed=0)
                    truth = np.concatenate([known.y_private, known.y_test])
                    codes = np.unique(truth, return_inverse=True)[1]
                    if len(codes) >= _FEWEST and codes.max() + 1 == task.n_classes:
                        basis, rows = _TRUE, np.concatenate([known.X_private, known.X_test])
                        labels = codes
        self._basis = basis
        for epsilon in sorted(EPSILONS, key=lambda price: abs(math.log(price))):
            facts = Facts(
                n_units=task.n_units,
                n_classes=task.n_classes,
                n_public=len(task.X_public),
                grouped=task.groups is not None,
                epsilon=epsilon,
                delta=delta,
            )
            worlds = proxy_worlds(rows, labels, facts, seed=0)
            for way in self.WAYS:
                if self._stopped:
                    return
                if way == "rounds" and facts.grouped:  # it protects rows, not people
                    continue
                model = PATEClassifier(
                    way=way,
                    epsilon=epsilon,
                    delta=delta,
                    cells=None if way in {"rounds", "filter"} else cells_of(task.image_shape),
                )
                expected = forecast(model, worlds, unit=task.shape.unit, seed=0)
                self._forecasts.setdefault(way, {})[epsilon] = expected
        self.done = True

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types: for each way, low, expected and high accuracy at each price, or null.

        ``recommended`` has the way to take at each of ``EPSILONS``.
        """
        known = {way: forecasts.copy() for way, forecasts in self._forecasts.copy().items()}  # of a thread
        ways, recommendations = {}, []
        for way, forecasts in known.items():
            accuracies = [(price, forecasts[price].accuracy) for price in EPSILONS if price in forecasts]
            ways[way] = [[price, ends and (ends.low, ends.best, ends.high)] for price, ends in accuracies]
        for price in EPSILONS:
            at_price = {way: forecasts[price] for way, forecasts in known.items() if price in forecasts}
            best = self._default
            if best in at_price:
                with contextlib.suppress(ValueError):  # no way has a plan
                    best = recommended(at_price, default=best)
            recommendations.append(best)
        return {"basis": self._basis, "done": self.done, "ways": ways, "recommended": recommendations}
