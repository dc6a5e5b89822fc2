"""The HTTP application: the table of routes with their roles, and the handlers."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ostraka.core.ledger.budget import LedgerError, LedgerUnavailable
from ostraka.secure import server
from ostraka.secure.server import Limits, Reply, Request, log_unexpected
from ostraka.serve.keys import CLIENT, OWNER, Holder, Keyring, bearer
from ostraka.serve.openapi import described, page
from ostraka.serve.owner import overview, render
from ostraka.serve.requests import Buckets, Refused, idempotency_key, require_json, unavailable
from ostraka.voters.endpoint import EndpointError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ostraka.serve.deployment import Deployment
    from ostraka.serve.oidc import Tokens

_LOG = logging.getLogger("ostraka.serve")
_FIRST_PAGE = 5.0  # seconds that the first drawing of the owner's page may delay the start
_READING = 1.9  # seconds after which a client is told so, where no teacher is needed
_AT_ONCE = 4_096  # requests; questions are bounded by their rows
_RATE, _BURST = 20.0, 200  # requests without a valid key a second, and at once, of one address
_Value = TypeVar("_Value")
_App = TypeVar("_App")
ANYONE = Holder("", "anyone")


@dataclass(frozen=True, slots=True)
class Route(Generic[_App]):
    """Method, path, allowed roles and handler of one route of an application. A path may end in {seq}."""

    method: str
    path: str
    roles: tuple[str, ...]
    handler: Callable[[_App, Request], Awaitable[Reply]]
    summary: str


class Keyed:
    """A service to holders of keys: who may ask what, how often without a key, and a reply to each request.

    Parameters
    ----------
    routes : sequence of Route
    keys : Keyring
    limits : Limits
    document : dict
        Of the interface, OpenAPI 3.1.
    log_requests : bool
        Log a line for each request: its name, route, status, client and duration.
    """

    server: server.Server | None = None

    def __init__(
        self,
        routes: Sequence[Route[Any]],
        keys: Keyring,
        *,
        limits: Limits,
        document: dict[str, Any],
        log_requests: bool,
    ) -> None:
        self.keys, self.limits, self._log_requests = keys, limits, log_requests
        self.strangers = Buckets(rate=_RATE, burst=_BURST)  # by address
        self.reading = _READING
        self.schema, self.docs = Reply.json(document), Reply.html(page(document))
        self._paths: dict[str, dict[str, Route[Any]]] = {}
        for route in routes:
            self._paths.setdefault(route.path, {})[route.method] = route

    def holder(self, request: Request) -> Holder | None:
        """The holder of the request's key."""
        return self.keys.holder(bearer(request.headers))

    def refused(self, client: str, code: str) -> None:
        """Count a refusal."""

    def admit(self, request: Request) -> bool:
        """Find the route and the holder of the key; return whether there is one."""
        who = self.holder(request)
        try:
            if who is None:  # so many an address may send; a proxy says whose
                address = request.peer
                if self.server is not None:
                    forwarded = request.headers.get(b"x-forwarded-for", b"")
                    address = self.server.strangers.address(address, forwarded)
                self.strangers.pace(address, 1, code="too_many")
            methods, path = self._paths.get(request.path), request.path
            if methods is None:
                start, _, request.last = path.rpartition("/")
                methods = self._paths.get(f"{start}/{{seq}}") if request.last else None
            if methods is None:
                raise Refused(404, "not_found")
            if request.method not in methods:
                raise Refused(405, "bad_method", more=((b"allow", ", ".join(methods).encode()),))
            request.route = route = methods[request.method]
            if not route.roles:
                request.who = ANYONE
            elif who is not None:
                request.who = who
                if who.role not in route.roles:
                    raise Refused(403, "forbidden")
            elif self.keys.readable:
                scheme = b"Basic" if path == "/" else b"Bearer"
                raise Refused(
                    401, "unauthorized", more=((b"www-authenticate", scheme + b' realm="ostraka"'),)
                )
            else:
                raise Refused(503, "keys_unreadable", more=((b"retry-after", b"5"),))
            if route.method == "POST":
                require_json(request.headers)
        except server.Refused as refused:
            request.refused = refused
        return who is not None

    async def reply(self, request: Request) -> Reply:
        """Serve one request. It raises nothing: the message of an exception may quote private values."""
        client, start = "" if request.who is None else request.who.name, time.perf_counter()
        try:
            if request.refused is not None:
                raise request.refused  # noqa: TRY301  (one place counts refusals)
            reply: Reply = await request.route.handler(self, request)
        except server.Refused as refused:
            self.refused(client, refused.code)
            reply = refused.reply
        except (LedgerUnavailable, EndpointError):
            self.refused(client, "unavailable")
            reply = unavailable().reply
        except Exception as error:  # noqa: BLE001  (its message may quote private values)
            log_unexpected(error, _LOG)
            self.refused(client, "failed")
            reply = Refused(500, "failed").reply
        if self._log_requests:
            place = "" if request.route is None else request.route.path
            seconds = round(time.perf_counter() - start, 6)
            fields = {"route": place, "status": reply.status, "client": client, "seconds": seconds}
            _LOG.info(
                "%s %s", place or "no route", reply.status, extra={"fields": fields, "event": "request"}
            )
        return reply


class Application(Keyed):
    """The service of a deployment: its start and end, and who its owners are.

    Parameters
    ----------
    deployment : Deployment
        What is served: teachers, ledger, keys and limits.
    log_requests : bool
        Log a line for each request: its name, route, status, client and duration.
    owner_certificates : bool
        An owner's key or token counts only on a connection with a certificate in the owner's name.
    tokens : Tokens, optional
        Owners show a token of this provider. Their keys do not count.
    """

    def __init__(
        self,
        deployment: Deployment,
        *,
        log_requests: bool = False,
        owner_certificates: bool = False,
        tokens: Tokens | None = None,
    ) -> None:
        settings = deployment.settings
        super().__init__(
            ROUTES,
            deployment.keys,
            limits=Limits(
                most_body=settings.most_bytes, answer_seconds=settings.answer_seconds, at_once=_AT_ONCE
            ),
            document=described(deployment.rows, deployment.classes, ROUTES),
            log_requests=log_requests,
        )
        self.deployment = deployment
        self._owner_certificates, self._tokens = owner_certificates, tokens
        self._renewal: asyncio.Task[None] | None = None  # of the provider's keys

    async def start(self) -> None:
        """Start answering, and draw the owner's page once: its imports, kernels and counts are then ready."""
        self.deployment.start()
        if self._tokens is not None:
            self._renewal = asyncio.create_task(self._tokens.keep_up())
        self._first = asyncio.create_task(asyncio.to_thread(lambda: render(overview(self.deployment))))
        self._first.add_done_callback(_tell_failure)
        await asyncio.wait({self._first}, timeout=_FIRST_PAGE)  # clients do not wait behind its imports

    async def close(self) -> None:
        """End, after the first page: it reads the ledger; it may have failed, and raises nothing here."""
        if self._renewal is not None:
            self._renewal.cancel()
        await asyncio.wait({self._first})
        await self.deployment.close()

    def refused(self, client: str, code: str) -> None:
        """Count a refusal, for the owner's page and for monitoring."""
        self.deployment.metrics.refused(client, code)

    def holder(self, request: Request) -> Holder | None:
        """The holder of a key, or the owner of whom a provider's token speaks: it has three parts."""
        credential = bearer(request.headers)
        if self._tokens is not None and credential.count(b".") == 2:
            return self.keys.owner(self._tokens.subject(credential))
        return self.keys.holder(credential)

    def admit(self, request: Request) -> bool:
        """Find the route and the holder of the key, and what an owner must show beside it."""
        known = super().admit(request)
        if request.refused is None and request.who.role == OWNER:
            if self._tokens is not None and not request.who.subject:
                request.refused = Refused(403, "no_token")
            elif self._owner_certificates and request.certificate != request.who.name:
                request.refused = Refused(403, "no_certificate")
        return known


def _tell_failure(first: asyncio.Task[Any]) -> None:
    """Log why a thread failed for which nobody waits; of a ledger's errors the next request tells."""
    error = None if first.cancelled() else first.exception()
    if error is not None and not isinstance(error, LedgerError):
        log_unexpected(error, _LOG)


async def label(app: Application, request: Request) -> Reply:
    """Label one row or a batch."""
    start = time.perf_counter()
    deployment, who = app.deployment, request.who
    deployment.buckets.pace(who.name, 1)  # before its body is read: a malformed body counts as well
    key = idempotency_key(request.headers)
    rows, single = deployment.rows.read(request.body)
    if len(rows) > 1:
        deployment.buckets.pace(who.name, len(rows) - 1)
    try:
        receipts = await deployment.batcher.ask(who.name, key, rows)
    except Refused as refused:
        if refused.code != "budget_exceeded":
            raise
        raise Refused(402, refused.code, more=(deployment.left(who.name),)) from None
    results = [deployment.shown(receipt) for receipt in receipts]
    deployment.metrics.answered(who.name, rows=len(rows), seconds=time.perf_counter() - start)
    body = results[0] if single else f'{{"results": [{", ".join(results)}]}}'
    return Reply(200, body.encode(), more=await deployment.left_after(who.name, receipts))


async def in_time(app: Keyed, work: Callable[..., _Value], *arguments: object) -> _Value:
    """Return what a thread returns, or give it up, whatever it waits for or works out."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    if not (await asyncio.wait({task}, timeout=app.reading))[0]:
        task.cancel()  # what a thread has begun goes on, and the next request finds it worked out
        raise unavailable()
    return task.result()


async def budget(app: Application, request: Request) -> Reply:
    """Budget of the client; for an owner, of every client and of the ledger."""
    return Reply.json(await in_time(app, app.deployment.budget, request.who))


async def receipt(app: Application, request: Request) -> Reply:
    """A receipt on record: one of the client's own, or any for an owner."""
    entry = await in_time(app, app.deployment.receipt, request.who, request.last)
    if entry is None:
        raise Refused(404, "not_found")
    return Reply.json(entry)


async def propose(app: Application, request: Request) -> Reply:
    """Propose a client's cap. It changes when another owner approves it."""
    proposal = await in_time(app, app.deployment.grants.propose, request.who, request.body)
    return Reply.json(proposal, status=202)


async def approve(app: Application, request: Request) -> Reply:
    """Approve another owner's proposal: the cap changes, and both names stand in the ledger."""
    return Reply.json(await in_time(app, app.deployment.approve, request.who, request.last))


async def health(_app: Keyed, _: Request) -> Reply:
    """Whether the service is alive."""
    return Reply.json({"ok": True})


async def ready(app: Application, _: Request) -> Reply:
    """Whether the service can charge, which it must do before it answers."""
    readiness = app.deployment.readiness
    problems = await in_time(app, readiness.problems)
    if problems:
        raise Refused(503, "not_ready", "; ".join(problems), more=((b"retry-after", b"2"),))
    return Reply.json({"ready": True, "age": round(readiness.age, 1)})


async def metrics(app: Application, _: Request) -> Reply:
    """Counters for Prometheus."""
    connections = [] if app.server is None else app.server.gauges()
    text = app.deployment.metrics.text([*await in_time(app, app.deployment.gauges), *connections])
    return Reply(200, text.encode(), b"text/plain; version=0.0.4; charset=utf-8")


async def schema(app: Keyed, _: Request) -> Reply:
    """Describe this interface, as OpenAPI 3.1."""
    return app.schema


async def docs(app: Keyed, _: Request) -> Reply:
    """Describe this interface, as a page."""
    return app.docs


async def home(app: Application, request: Request) -> Reply:
    """The owner's page. With ``?every=60`` the browser loads it again each minute."""
    every = 60 if request.query == b"every=60" else 0
    page = await in_time(app, lambda: render(overview(app.deployment), every=every))
    return Reply.html(page, more=((b"refresh", b"%d" % every),) if every else ())


ROUTES = (
    Route("POST", "/v1/label", (CLIENT,), label, "Label one row or a batch."),
    Route("GET", "/v1/budget", (CLIENT, OWNER), budget, "Budget granted, spent and left."),
    Route("GET", "/v1/ledger/receipt/{seq}", (CLIENT, OWNER), receipt, "A receipt on record."),
    Route("POST", "/v1/grants", (OWNER,), propose, "Propose a client's cap."),
    Route("POST", "/v1/grants/{seq}", (OWNER,), approve, "Approve another owner's proposal."),
    Route("GET", "/health", (), health, "Whether the service is alive."),
    Route("GET", "/ready", (), ready, "Whether the service can charge, which it must do before it answers."),
    Route("GET", "/metrics", (OWNER,), metrics, "Counters for Prometheus."),
    Route("GET", "/openapi.json", (), schema, "This interface, as OpenAPI 3.1."),
    Route("GET", "/docs", (), docs, "This interface, as a page."),
    Route("GET", "/", (OWNER,), home, "The owner's page."),
)
