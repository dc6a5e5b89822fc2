"""The HTTP application: the table of routes with their roles, and the handlers."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ostraka.ledger import LedgerError
from ostraka.ledger.budget import LedgerUnavailable
from ostraka.service._keys import CLIENT, OWNER, Holder, bearer
from ostraka.service._openapi import described, page
from ostraka.service._overview import overview
from ostraka.service._page import render
from ostraka.service._replies import Refused, Reply, unavailable
from ostraka.service._requests import idempotency_key, require_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from ostraka.service._deployment import Deployment

    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Scope]]
    Send = Callable[[Scope], Awaitable[None]]

__all__ = ["ROUTES", "Application", "Route"]

_LOG = logging.getLogger("ostraka.service")
_FIRST_PAGE = 5.0  # seconds that the first drawing of the owner's page may delay the start
ANYONE = Holder("", "anyone")


@dataclass(frozen=True, slots=True)
class Request:
    """The parts of a request that handlers use. ``who`` comes from the key alone."""

    headers: dict[bytes, bytes]
    who: Holder
    last: str
    body: bytes
    query: bytes = b""


@dataclass(frozen=True, slots=True)
class Route:
    """Method, path, allowed roles and handler of one route. A path may end in {seq}."""

    method: str
    path: str
    roles: tuple[str, ...]
    handler: Callable[[Application, Request], Awaitable[Reply]]
    summary: str


class Application:
    """The service: an ASGI application for its start and end, and a reply to each request.

    Parameters
    ----------
    deployment : Deployment
        What is served: teachers, ledger, keys and limits.
    log_requests : bool
        Log a line for each request: its name, route, status, client and duration.
    """

    def __init__(self, deployment: Deployment, *, log_requests: bool = False) -> None:
        self.deployment, self._log_requests = deployment, log_requests
        told = described(deployment.rows, deployment.classes, ROUTES)
        self.schema, self.docs = Reply.json(told), Reply.html(page(told))
        self._exact = {(route.method, route.path): route for route in ROUTES if "{" not in route.path}
        self._open = {
            (route.method, route.path.rpartition("/")[0]): route for route in ROUTES if "{" in route.path
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Start and stop with the server. Requests come from the connection, by :meth:`reply`."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)

    async def reply(self, scope: Scope, receive: Receive) -> Reply | None:
        """Serve one request, given as in ASGI; None if the client has left.

        It raises nothing, because the server would log the exception's message.
        """
        client, place, begun = "", "", time.perf_counter()
        try:
            route, last = self._route(scope["method"], scope["path"])
            headers, place = dict(scope["headers"]), route.path
            who = self._who(route, headers)
            client = who.name
            _require_role(route, who)
            body = await self._body(headers, receive) if route.method == "POST" else b""
            reply = await route.handler(
                self, Request(headers, who, last, body, scope.get("query_string", b""))
            )
        except Refused as refused:
            reply = self._refused(client, refused)
        except LedgerUnavailable:
            reply = self._refused(client, unavailable())
        except _Disconnected:
            return None
        except Exception as error:  # noqa: BLE001  (its message may quote private values)
            _log_unexpected(error)
            reply = self._refused(client, Refused(500, "failed"))
        if self._log_requests:
            seconds = round(time.perf_counter() - begun, 6)
            fields = {"route": place, "status": reply.status, "client": client, "seconds": seconds}
            _LOG.info("%s %s", place or "no route", reply.status, extra={"fields": fields})
        return reply

    def _refused(self, client: str, refused: Refused) -> Reply:
        self.deployment.metrics.refused(client, refused.code)
        return refused.reply

    async def _live(self, receive: Receive, send: Send) -> None:
        """Start and stop the service with the server, and draw the owner's page once."""
        # its imports, kernels and counts are then ready for a request
        await receive()
        self.deployment.start()
        first = asyncio.create_task(asyncio.to_thread(lambda: render(overview(self.deployment))))
        first.add_done_callback(_tell_failure)
        await asyncio.wait({first}, timeout=_FIRST_PAGE)  # clients do not wait behind its imports
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await asyncio.wait({first})  # it reads the ledger; it may have failed, and raises nothing here
        await self.deployment.close()
        await send({"type": "lifespan.shutdown.complete"})

    def _route(self, method: str, path: str) -> tuple[Route, str]:
        route = self._exact.get((method, path))
        if route is not None:
            return route, ""
        start, _, last = path.rpartition("/")
        route = self._open.get((method, start))
        if route is not None and last:
            return route, last
        others = [each.method for each in ROUTES if each.path == path]
        if last:
            others += [each.method for each in ROUTES if each.path == f"{start}/{{seq}}"]
        if others:
            raise Refused(405, "bad_method", more=((b"allow", ", ".join(others).encode()),))
        raise Refused(404, "not_found")

    def _who(self, route: Route, headers: dict[bytes, bytes]) -> Holder:
        """Return the holder of the request's key, if the route needs a key."""
        if not route.roles:
            return ANYONE
        who = self.deployment.keys.holder(bearer(headers))
        if who is None and not self.deployment.keys.readable:
            raise Refused(503, "keys_unreadable", more=((b"retry-after", b"5"),))
        if who is None:
            scheme = b"Basic" if route.path == "/" else b"Bearer"
            raise Refused(401, "unauthorized", more=((b"www-authenticate", scheme + b' realm="ostraka"'),))
        return who

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        """Read the whole body; refuse one above the limit."""
        require_json(headers)
        most = self.deployment.settings.most_bytes
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > most:
            raise _too_large(most)
        body = b""
        while True:  # uvicorn gives small bodies in one piece
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Disconnected
            body += bytes(message.get("body", b""))
            if len(body) > most:
                raise _too_large(most)
            if not message.get("more_body"):
                return body


def _require_role(route: Route, who: Holder) -> None:
    if route.roles and who.role not in route.roles:
        raise Refused(403, "forbidden")


class _Disconnected(Exception):  # noqa: N818  (no error)
    """The client disconnected before its request was complete."""


def _too_large(most: int) -> Refused:
    return Refused(413, "too_large", f"the body must be at most {most} bytes")


def _tell_failure(first: asyncio.Task[str]) -> None:
    """Log why the first page could not be drawn; of a ledger's errors the next request tells."""
    error = None if first.cancelled() else first.exception()
    if error is not None and not isinstance(error, LedgerError):
        _log_unexpected(error)


def _log_unexpected(error: BaseException) -> None:
    """Log kind, function and line of an error, without its message, which may quote private values."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    _LOG.error("unexpected %s in %s, line %s", type(error).__name__, last.name, last.lineno)


async def label(app: Application, request: Request) -> Reply:
    """Label one row or a batch."""
    begun = time.perf_counter()
    there, who = app.deployment, request.who
    _pace(there, who, 1)  # before its body is read: a malformed body counts as well
    key = idempotency_key(request.headers)
    rows, single = there.rows.read(request.body)
    _pace(there, who, len(rows) - 1)
    try:
        receipts = await there.batcher.ask(who.name, key, rows)
    except Refused as refused:
        if refused.code != "budget_exceeded":
            raise
        raise Refused(402, refused.code, more=(there.left(who.name),)) from None
    results = [there.shown(receipt) for receipt in receipts]
    there.metrics.answered(who.name, rows=len(rows), seconds=time.perf_counter() - begun)
    body = results[0] if single else f'{{"results": [{", ".join(results)}]}}'
    return Reply(200, body.encode(), more=await there.left_after(who.name, receipts))


def _pace(there: Deployment, who: Holder, rows: int) -> None:
    wait = there.buckets.take(who.name, rows) if rows else 0
    if wait:
        raise Refused(429, "too_fast", more=((b"retry-after", b"%d" % wait),))


async def budget(app: Application, request: Request) -> Reply:
    """Budget of the client; for an owner, of every client and of the ledger."""
    return Reply.json(await asyncio.to_thread(app.deployment.budget, request.who))


async def receipt(app: Application, request: Request) -> Reply:
    """A receipt on record: one of the client's own, or any for an owner."""
    found = await asyncio.to_thread(app.deployment.receipt, request.who, request.last)
    if found is None:
        raise Refused(404, "not_found")
    return Reply.json(found)


async def health(_app: Application, _: Request) -> Reply:
    """Whether the service is alive."""
    return Reply.json({"ok": True})


async def ready(app: Application, _: Request) -> Reply:
    """Whether the service can charge, which it must do before it answers."""
    problems = await asyncio.to_thread(app.deployment.readiness.problems)
    if problems:
        raise Refused(503, "not_ready", "; ".join(problems), more=((b"retry-after", b"2"),))
    return Reply.json({"ready": True})


async def metrics(app: Application, _: Request) -> Reply:
    """Counters for Prometheus."""
    text = app.deployment.metrics.text(await asyncio.to_thread(app.deployment.gauges))
    return Reply(200, text.encode(), b"text/plain; version=0.0.4; charset=utf-8")


async def schema(app: Application, _: Request) -> Reply:
    """Describe this interface, as OpenAPI 3.1."""
    return app.schema


async def docs(app: Application, _: Request) -> Reply:
    """Describe this interface, as a page."""
    return app.docs


async def home(app: Application, request: Request) -> Reply:
    """The owner's page. With ``?every=60`` the browser loads it again each minute."""
    every = 60 if request.query == b"every=60" else 0
    page = await asyncio.to_thread(lambda: render(overview(app.deployment), every=every))
    return Reply.html(page, more=((b"refresh", b"%d" % every),) if every else ())


ROUTES = (
    Route("POST", "/v1/label", (CLIENT,), label, "Label one row or a batch."),
    Route("GET", "/v1/budget", (CLIENT, OWNER), budget, "Budget granted, spent and left."),
    Route("GET", "/v1/ledger/receipt/{seq}", (CLIENT, OWNER), receipt, "A receipt on record."),
    Route("GET", "/health", (), health, "Whether the service is alive."),
    Route("GET", "/ready", (), ready, "Whether the service can charge, which it must do before it answers."),
    Route("GET", "/metrics", (OWNER,), metrics, "Counters for Prometheus."),
    Route("GET", "/openapi.json", (), schema, "This interface, as OpenAPI 3.1."),
    Route("GET", "/docs", (), docs, "This interface, as a page."),
    Route("GET", "/", (OWNER,), home, "The owner's page."),
)
