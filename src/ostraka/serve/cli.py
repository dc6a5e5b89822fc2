"""``ostraka serve``: the voter of a run, or its documents, behind HTTP, for clients with keys and budgets.

It also prints configuration files: a systemd unit, an nginx server, and Prometheus alert rules.
``ostraka keys`` makes, lists and revokes the keys of a service. ``ostraka drill`` rehearses the loss of a
machine, and measures what would be lost and for how long.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ostraka import console
from ostraka.console import JSON, Group, argument, option, verb

if TYPE_CHECKING:
    from ostraka.core.ledger.budget import Budget
    from ostraka.core.ledger.ledger import Ledger
    from ostraka.core.mechanisms.law import BallotMechanism
    from ostraka.serve.keys import Keyring
    from ostraka.serve.writing import WritingApplication
    from ostraka.voters.saved import SavedTeachers

_NO_KEY = "there is no key yet: type 'ostraka keys add' in another terminal"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Options of ``ostraka serve``."""

    folder: Path = argument(
        ..., "Of 'ostraka learn … --keep-teachers', or 'ostraka write … --keep-documents'.", "RUN"
    )
    epsilon: float | None = option(None, "All that this service may ever spend.", "NATS")
    delta: float | None = option(None, "Goes with --epsilon.", "P")
    db: str | None = option(None, "sqlite:///FILE or postgresql://…; a file in RUN/service otherwise.", "URL")
    shared: bool = option(False, "Other processes serve the same run from the same PostgreSQL.")
    witness: list[str] | None = option(
        None, "A witness: its URL, postgresql://…, or a folder; three times is best.", "ADDRESS"
    )
    anchor: Path | None = option(None, "The ledger's anchor, on another disk than RUN.", "FILE")
    processes: int | None = option(None, "Processes that the teachers vote in.", "N")
    sigma: float | None = option(None, "Noise, in votes. Default: the run's.", "VOTES")
    screen: tuple[float, float] | None = option(
        None, "Answer only where a noisy plurality reaches AT votes.", "AT SIGMA"
    )
    host: str = option("127.0.0.1", "Address to listen on.", "ADDRESS")
    port: int = option(8000, metavar="N", min=1, max=65535)
    tls_cert: Path | None = option(None, "Certificate chain, PEM.", "FILE", exists=True)
    tls_key: Path | None = option(None, "Its private key, PEM.", "FILE", exists=True)
    owner_ca: Path | None = option(
        None,
        "Of whose certificates owners show one, in their own name; a key alone does not suffice then.",
        "FILE",
        exists=True,
    )
    oidc: str | None = option(
        None, "Owners show a token of this OpenID Connect provider; their keys do not count.", "ISSUER"
    )
    oidc_audience: str | None = option(None, "What the provider calls this service.", "NAME")
    oidc_keys: str | None = option(
        None, "The provider's key set (JWKS). Default: as its discovery document says.", "FILE|URL"
    )
    two_owners: bool = option(False, "Caps of clients: one owner proposes, another approves.")
    behind_proxy: bool = option(False, "TLS ends at a proxy of yours before this address.")
    proxy: list[str] | None = option(
        None, "Network whose X-Forwarded-For counts; may be repeated.", "NETWORK"
    )
    rate: float = option(100.0, "Rows a second, for each client.", "N")
    burst: int = option(1000, "Rows at once, for each client.", "N")
    most_bytes: int = option(65536, "Largest request body.", "N")
    most_rows: int = option(256, "Rows in one request.", "N")
    answer_seconds: float = option(
        30.0, "Of teachers: after these the same question, under its key, is to be asked again.", "SECONDS"
    )
    pace: float = option(
        60.0, "Of documents: answers leave at whole multiples, which all take one of.", "SECONDS"
    )
    trust: list[str] | None = option(None, "A type that your teachers hold; may be repeated.", "TYPE")
    log_json: bool = option(False, "Logs as lines of JSON.")
    log_requests: bool = option(False, "Log each request.")
    systemd: bool = option(False, "Print a unit, and leave.")
    nginx: str | None = option(None, "Print nginx's configuration for this name, and leave.", "NAME")
    alerts: bool = option(False, "Print Prometheus rules, and leave.")
    check: bool = option(False, "Open and verify everything, and leave.")
    as_json: bool = option(False, "With --check: print JSON.", name="--json")

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        if self.systemd or self.nginx or self.alerts:
            return
        from ostraka.secure.wire import is_loopback

        # keys must not travel in the open
        if (self.tls_cert is None) != (self.tls_key is None):
            raise click.UsageError("--tls-cert and --tls-key go together")
        if self.owner_ca is not None and self.tls_cert is None:
            raise click.UsageError("--owner-ca needs --tls-cert: certificates are shown in TLS")
        if not (self.tls_cert or self.behind_proxy or is_loopback(self.host)):
            raise click.UsageError(
                f"--host {self.host} can be reached by others, and keys would travel in the open: "
                "type --tls-cert and --tls-key, or --behind-proxy"
            )
        if (self.oidc is None) != (self.oidc_audience is None) or (self.oidc_keys and not self.oidc):
            raise click.UsageError("--oidc and --oidc-audience go together, and --oidc-keys goes with them")
        if self.shared and not (self.db or "").startswith(("postgresql://", "postgres://")):
            raise click.UsageError("--shared needs --db postgresql://…: a file has one service")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOptions:
    """Options of ``ostraka ui``."""

    private: Path | None = argument(None, "Private rows to begin with: CSV, Excel or Parquet.", "FILE")
    public: Path | None = option(None, "Public rows to begin with.", "FILE")
    folder: Path = option(Path("ostraka-ui"), "For dropped files, their ledgers, and runs.", "FOLDER")
    ledger: Path | None = option(
        None, "Folder of the ledgers of tables. Default: ostraka-ledgers, beside FILE.", "FOLDER"
    )
    port: int = option(0, "Of this machine. Default: any free one.", "N", min=0, max=65535)
    as_json: bool = option(False, "Print the link as JSON.", name="--json")


@verb()
def ui(options: PageOptions) -> None:
    """Check, plan and learn on a page of this machine. Prints its link, which works once.

    Example: ostraka ui --port 8080
    """
    import asyncio

    from ostraka.secure.server import Server, listening
    from ostraka.serve import server
    from ostraka.serve.ui import Workbench

    for path in (options.private, options.public):
        if path is not None:
            path.open("rb").close()
    private, public = (path and path.resolve() for path in (options.private, options.public))
    bench = Workbench(options.folder.resolve(), private=private, public=public, ledger=options.ledger)
    sock = listening("127.0.0.1", options.port)
    link = bench.opened(sock.getsockname()[1])
    click.echo("open this link; it works once, and on this machine only. Ctrl-C ends it.", err=True)
    console.say({"url": link}, link, as_json=options.as_json)
    asyncio.run(Server(bench, sock).serve(server.take_signals))


@verb()
def serve(options: ServeOptions) -> None:
    """Serve the voter of a run, or answers from its documents, over HTTP. Each is charged before it leaves.

    Example: ostraka serve run --epsilon 2 --delta 1e-6
    """
    from ostraka.core.mechanisms.argmax import GNMax
    from ostraka.core.mechanisms.screen import Threshold
    from ostraka.report import folder as _folder
    from ostraka.secure.server import networks
    from ostraka.serve import server
    from ostraka.serve.app import Application
    from ostraka.serve.deployment import Deployment, Settings, recognise
    from ostraka.serve.keys import pepper
    from ostraka.serve.oidc import Tokens
    from ostraka.voters.saved import SavedTeachers

    if options.systemd or options.nginx or options.alerts:
        if options.systemd:
            click.echo(systemd(options.folder), nl=False)
        if options.nginx:
            limits = {"port": options.port, "most_bytes": options.most_bytes}
            click.echo(nginx(options.nginx, host=options.host, **limits), nl=False)
        if options.alerts:
            click.echo(alerts(), nl=False)
        return
    with console.usage():
        names = [field.name for field in dataclasses.fields(Settings)]
        settings = Settings(**{name: getattr(options, name) for name in names})
        pepper_, proxies, tokens = pepper(os.environ), networks(options.proxy or ()), None
        if options.oidc is not None:  # asked once: what can fail does so before a ledger is made
            audience, provided = options.oidc_audience or "", options.oidc_keys or ""
            tokens = Tokens(issuer=options.oidc, audience=audience, keys=provided)
    place, teachers = options.folder / _folder.SERVICE, options.folder / _folder.TEACHERS
    process: dict[str, Any] = {
        "host": options.host,
        "port": options.port,
        "certificate": options.tls_cert,
        "key": options.tls_key,
        "authority": options.owner_ca,
        "proxies": proxies,
        "log_json": options.log_json,
    }
    if (options.folder / _folder.DOCUMENTS).is_dir():
        if answers := _answers(options, place, pepper_):
            server.run(answers, **process)
        return
    if teachers.is_dir():
        recognise(SavedTeachers.name(teachers), place, os.environ)
    saved = SavedTeachers.load(teachers, trusted=options.trust or (), processes=options.processes)
    if saved.kind == "parties" and not (options.sigma is None and options.screen is None):
        raise click.UsageError("--sigma and --screen are not for parties: they agreed on the noise")
    with console.usage():  # the same voter with other noise
        if options.sigma is not None:
            saved = dataclasses.replace(saved, mechanism=_sampled(saved, GNMax(sigma=options.sigma)))
        if options.screen is not None:
            at, sigma = options.screen
            saved = dataclasses.replace(saved, screen=_sampled(saved, Threshold(at=at, sigma=sigma)))
    label = options.folder / _folder.LABEL
    deployment = Deployment(
        saved=saved,
        folder=place,
        db=options.db or f"sqlite:///{place.resolve() / 'ledger.sqlite'}",
        budget=_budget(options.folder, options.epsilon, options.delta, adaptive=saved.screen is not None),
        settings=settings,
        environment=os.environ,
        pepper=pepper_,
        label=json.loads(label.read_text()) if label.is_file() else None,
        shared=options.shared,
        witnesses=options.witness or (),
        anchor=options.anchor,
    )
    facts = {
        saved.kind: saved.n_ballots,
        "mechanism": repr(saved.mechanism),
        "screen": None if saved.screen is None else repr(saved.screen),
    }
    what, cost = f"serving {saved.n_ballots} {saved.kind}", "what the run itself spent comes on top"
    unit, keys = deployment.unit, deployment.keys
    if not _announced(options, deployment.ledger, keys, facts, unit=unit, what=what, cost=cost):
        deployment.ledger.close()
        return
    app = Application(
        deployment,
        log_requests=options.log_requests,
        owner_certificates=options.owner_ca is not None,
        tokens=tokens,
    )
    server.run(app, **process)


def _answers(options: ServeOptions, place: Path, pepper: bytes) -> WritingApplication | None:
    """Open documents, a ledger and keys, and say so; None where everything was only to be checked."""
    from ostraka.core.ledger.ledger import Ledger
    from ostraka.report import folder as _folder
    from ostraka.serve.deployment import secret_of, witnesses_at
    from ostraka.serve.keys import Keyring
    from ostraka.serve.writing import WritingApplication
    from ostraka.text.writer import STORE, SavedDocuments

    for name, is_typed in (
        ("--sigma", options.sigma is not None),
        ("--screen", options.screen is not None),
        ("--processes", options.processes is not None),
        ("--trust", bool(options.trust)),
        ("--shared", options.shared),
        ("--owner-ca", options.owner_ca is not None),
        ("--two-owners", options.two_owners),
        ("--oidc", options.oidc is not None),
    ):
        if is_typed:
            raise click.UsageError(f"{name} is for teachers, but {options.folder} holds documents")
    place.mkdir(mode=0o700, exist_ok=True)
    with console.usage():
        saved = SavedDocuments.load(options.folder / _folder.DOCUMENTS)
        writer = saved.writer(place / STORE)
        budget = _budget(options.folder, options.epsilon, options.delta, adaptive=False)
    keys = Keyring(place / "keys.json", pepper)
    ledger = Ledger(
        options.db or f"sqlite:///{place.resolve() / 'ledger.sqlite'}",
        budget=budget,
        secret=secret_of("ledger", place, os.environ),
        anchor=options.anchor or place / "ledger.anchor",
        witnesses=witnesses_at(options.witness or (), place, os.environ),
    )
    facts = {"documents": len(saved.documents), "answer": saved.epsilon}
    what = f"answering from {len(saved.documents)} documents"
    cost = f"an answer costs at most {saved.epsilon:g}"
    if not _announced(options, ledger, keys, facts, unit=saved.unit, what=what, cost=cost):
        ledger.close()
        writer.close()
        return None
    return WritingApplication(
        writer,
        ledger,
        keys,
        retrieve=saved.retrieve,
        at=saved.near,
        pace=options.pace,
        rate=options.rate,
        log_requests=options.log_requests,
    )


def _announced(
    options: ServeOptions,
    ledger: Ledger,
    keys: Keyring,
    facts: dict[str, Any],
    *,
    unit: str,
    what: str,
    cost: str,
) -> bool:
    """Say what was opened; return whether it is to be served, or was only to be checked."""
    from ostraka.secure.wire import netloc

    budget, left = ledger.budget, ledger.left()
    if options.check:
        state = {"epsilon": budget.epsilon, "delta": budget.delta, "left": left, "unit": unit}
        facts = {**facts, **state, "head": ledger.head}
        lines = "\n".join(f"{name}: {value}" for name, value in facts.items())
        console.say(facts, lines, as_json=options.as_json)
        return False
    where = f"{'https' if options.tls_cert else 'http'}://{netloc(options.host, options.port)}"
    click.echo(
        f"{what} at {where} (interface: {where}/docs)\n"
        f"epsilon {left:.4g} of {budget.epsilon:g} is left at delta {budget.delta:g}, for one {unit}; {cost}",
        err=True,
    )
    if not keys.kept:
        click.echo(_NO_KEY, err=True)
    return True


def _sampled(saved: SavedTeachers, mechanism: BallotMechanism) -> BallotMechanism:
    """Return the mechanism for votes of these, which may come from a sample of the units."""
    from ostraka.core.mechanisms.wrapped import Subsampled

    if saved.adjacency.relation == "replace-one":
        return mechanism
    return Subsampled(mechanism=mechanism, sampling_rate=saved.adjacency.sampling_rate)


def _budget(folder: Path, epsilon: float | None, delta: float | None, *, adaptive: bool) -> Budget | None:
    """Return the budget of the options; None to use the ledger's own."""
    from ostraka.core.ledger.budget import Budget
    from ostraka.report import folder as _folder

    if epsilon is None and delta is None:
        return None
    if epsilon is None or delta is None:
        raise click.UsageError("--epsilon and --delta go together")
    recorded = (folder / _folder.RESULT).is_file()
    if not recorded:
        click.echo("note: there is no record of a run, so --delta is not compared with 1 / units", err=True)
    units = _folder.load(folder).settings["n_units"] if recorded else 1
    if delta >= 1 / units:
        raise click.UsageError(
            f"--delta must be below 1 / {units} units, got {delta:g}: a mechanism that publishes one unit "
            "at random would be allowed"
        )
    with console.usage():
        return Budget(epsilon=epsilon, delta=delta, adaptive=adaptive)


def systemd(run: Path) -> str:
    """Return a systemd unit that runs the present command line without ``--systemd``."""
    typed = Path(shutil.which(sys.argv[0]) or sys.argv[0]).absolute()
    beside = Path(sys.executable).with_name("ostraka")  # of python -m, and of tests
    program = str(typed if typed.name == "ostraka" and os.access(typed, os.X_OK) else beside)
    words = [word for word in sys.argv[1:] if word != "--systemd"]
    words = [str(run.resolve()) if word == str(run) else word for word in words]
    return _rendered("systemd.j2", command=shlex.join([program, *words]), run=str(run.resolve()))


def nginx(name: str, *, host: str, port: int, most_bytes: int) -> str:
    """Return an nginx server in front of the service, with the certificate path of Debian's certbot."""
    place = f"/etc/letsencrypt/live/{name}"
    return _rendered(
        "nginx.j2",
        name=name,
        host=f"[{host}]" if ":" in host else host,
        port=port,
        most_bytes=most_bytes,
        cert=f"{place}/fullchain.pem",
        key=f"{place}/privkey.pem",
    )


def alerts() -> str:
    """Return alert rules for Prometheus."""
    return _rendered("alerts.yml")


def _rendered(template: str, **values: object) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("ostraka", "templates/operate")
    plain = Environment(loader=loader, undefined=StrictUndefined, keep_trailing_newline=True)  # noqa: S701  (no HTML)
    if template.endswith(".yml"):
        return loader.get_source(plain, template)[0]
    return plain.get_template(template).render(**values)


app = Group("Keys of a service: who may use it, and how much each client may spend.")

_RUN = argument(..., "The folder that is served.", "RUN")
_NAME = argument(..., "Of the client or owner.", "NAME")
_BY = option("", "Who decides that; stands in the ledger.", "WHO")


@verb(app)
def add(
    run: Path = _RUN,
    name: str = _NAME,
    *,
    role: str = option("client", "client or owner."),
    epsilon: float | None = option(None, "What a client may spend in all.", "NATS"),
    subject: str = option("", "Of an owner, in the tokens of 'serve --oidc'; no key is made.", "SUB"),
    by: str = _BY,
    as_json: bool = JSON,
) -> None:
    """Add a holder and print its key. The key is shown once.

    Example: ostraka keys add run ward-3 --epsilon 0.5
    """
    with console.usage():
        key = _opened(run).add(name, role=role, epsilon=epsilon, by=by, subject=subject)
    if subject:
        entry = {"name": name, "subject": subject}
        console.say(entry, f"{name} shows tokens for {subject}", as_json=as_json)
    else:
        _show(name, key, as_json=as_json)


@verb(app)
def rotate(
    run: Path = _RUN,
    name: str = _NAME,
    *,
    by: str = _BY,
    as_json: bool = JSON,
) -> None:
    """Add a key for a holder. Its old keys stay valid until they are revoked.

    Example: ostraka keys rotate run ward-3
    """
    with console.usage():
        _show(name, _opened(run).rotate(name, by=by), as_json=as_json)


@verb(app)
def grant(
    run: Path = _RUN,
    name: str = _NAME,
    *,
    epsilon: float = option(..., "What the client may spend in all.", "NATS"),
    by: str = _BY,
    as_json: bool = JSON,
) -> None:
    """Change a client's cap. A running service applies it within seconds.

    Example: ostraka keys grant run ward-3 --epsilon 1
    """
    with console.usage():
        _opened(run).grant(name, epsilon=epsilon, by=by)
    console.say({"name": name, "epsilon": epsilon}, f"{name} may spend {epsilon:g} in all", as_json=as_json)


@verb(app)
def revoke(
    run: Path = _RUN,
    name: str = _NAME,
    *,
    number: str | None = option(None, "Which key, as 'list' shows it. Default: all.", "KEY"),
    by: str = _BY,
    as_json: bool = JSON,
) -> None:
    """Revoke a holder's keys. A running service applies it within seconds.

    Example: ostraka keys revoke run ward-3
    """
    with console.usage():
        _opened(run).revoke(name, number=number, by=by)
    console.say(
        {"name": name, "revoked": number or "all"}, f"revoked {number or 'all keys'}", as_json=as_json
    )


@verb(app, name="list")
def list_(run: Path = _RUN, *, as_json: bool = JSON) -> None:
    """List the holders and the numbers of their keys. The keys themselves are not stored.

    Example: ostraka keys list run
    """
    holders = _opened(run).kept
    if as_json:
        rows = [
            {"name": name, "role": record.role, "epsilon": record.epsilon, "keys": sorted(record.keys)}
            | ({"subject": record.subject} if record.subject else {})
            for name, record in sorted(holders.items())
        ]
        click.echo(json.dumps(rows, indent=2))
        return
    for name, record in sorted(holders.items()):
        budget = "" if record.epsilon is None else f", epsilon {record.epsilon:g}"
        budget += f", subject {record.subject}" if record.subject else ""
        click.echo(f"{name}: {record.role}{budget}, keys {', '.join(sorted(record.keys)) or 'none'}")


def _opened(run: Path) -> Keyring:
    from ostraka.report import folder
    from ostraka.serve.keys import Keyring, pepper

    if not any((run / name).is_dir() for name in (folder.TEACHERS, folder.DOCUMENTS)):
        raise click.UsageError(
            f"{run} holds no teachers and no documents: type the folder of a run of 'ostraka learn … "
            "--keep-teachers' or 'ostraka write … --keep-documents'"
        )
    place = run / folder.SERVICE
    place.mkdir(mode=0o700, exist_ok=True)
    return Keyring(place / "keys.json", pepper(os.environ))


def _show(name: str, key: str, *, as_json: bool) -> None:
    click.echo("this key is shown once: hand it over safely", err=True)
    console.say({"name": name, "key": key}, key, as_json=as_json)


_PATIENCE = 120.0  # seconds until the service of the copy must be ready
# two seconds of asking between two looks whether it still runs
_LOOK: dict[str, Any] = {"seconds": 2.0, "tries": math.inf, "most": 65_536, "fresh": True}
_STAGES = {
    "backup": "ledgers backed up and verified",
    "restore": "copies restored and verified",
    "start": "services started from the copy",
}
_PROGRAM = "from ostraka.cli import main; main()"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillOptions:
    """Options of ``ostraka drill``."""

    folder: Path = argument(..., "A run that is or was served; its service may go on.", "RUN")
    sigma: float | None = option(None, "Noise, in votes, as typed for 'ostraka serve'.", "VOTES")
    screen: tuple[float, float] | None = option(None, "As typed for 'ostraka serve'.", "AT SIGMA")
    trust: list[str] | None = option(None, "As typed for 'ostraka serve'; may be repeated.", "TYPE")
    scratch: Path | None = option(
        None,
        "Where the copy is made and removed: best the disk that a restore would use.",
        "FOLDER",
        exists=True,
    )
    as_json: bool = option(False, "Print JSON.", name="--json")


@verb()
def drill(options: DrillOptions) -> None:
    """Back a service up, restore it elsewhere, start it there, and say what was lost and how long it took.

    The copy has no keys, so it answers nobody; it listens on this machine alone, and is removed. Exit code 1
    if an entry of the ledger is missing from the copy, or if the copy does not start.

    Example: ostraka drill run
    """
    from ostraka.core.ledger.budget import LedgerError
    from ostraka.core.ledger.ledger import Ledger, back_up, restore
    from ostraka.report import folder
    from ostraka.secure.wire import Late, Line
    from ostraka.serve.keys import secret_in

    place = options.folder / folder.SERVICE
    file = place / "ledger.sqlite"
    if not file.is_file():
        raise LedgerError(
            f"there is no ledger at {file}: 'ostraka drill' rehearses services whose ledger is a file; a "
            "ledger on PostgreSQL is rehearsed by promoting a standby, see 'ostraka ledger adopt --help'"
        )
    with console.usage():
        secret = secret_in(os.environ, "OSTRAKA_LEDGER_SECRET") or (place / "ledger.secret").read_bytes()
    with Ledger(file, secret=secret, read_only=True) as ledger:
        charged = ledger.count()
    with (
        tempfile.TemporaryDirectory(dir=options.scratch, prefix="ostraka-drill-") as scratch,
        console.Stages(_STAGES) as tell,
    ):
        copy, run = Path(scratch) / "backup.sqlite", Path(scratch) / "run"
        clock = [time.perf_counter()]
        back_up(file, copy, secret=secret)
        clock.append(time.perf_counter())
        tell("backup", 1, 1)
        unwanted = shutil.ignore_patterns("ledger.sqlite*", "ledger.anchor", "keys.json", "*.lock")
        shutil.copytree(options.folder, run, ignore=unwanted)
        service = run / folder.SERVICE
        restored = restore(copy, service / "ledger.sqlite", secret=secret, anchor=f"{copy}.anchor")
        shutil.copyfile(f"{copy}.anchor", service / "ledger.anchor")
        clock.append(time.perf_counter())
        tell("restore", 1, 1)
        typed = [
            *(() if options.sigma is None else ("--sigma", str(options.sigma))),
            *(() if options.screen is None else ("--screen", *map(str, options.screen))),
            *(word for name in options.trust or () for word in ("--trust", name)),
        ]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-c", _PROGRAM, "serve", str(run), "--port", str(port), *typed]
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603  (this program itself)
            try:
                until, line, status = time.monotonic() + _PATIENCE, Line(f"http://127.0.0.1:{port}"), 0
                while status != 200 and process.poll() is None and time.monotonic() < until:
                    with contextlib.suppress(Late):
                        status = line.ask("GET", "/ready", **_LOOK).status
                if status != 200:
                    process.kill()
                    process.wait()
                    log.seek(0)
                    words = log.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
                    raise LedgerError(f"the restored service did not start: {words or 'it said nothing'}")
                clock.append(time.perf_counter())
            finally:
                process.terminate()
                process.wait()
        tell("start", 1, 1)
    seconds = [round(end - start, 2) for start, end in itertools.pairwise(clock)]
    lost = max(0, charged - restored.entries)
    record = {
        "entries": restored.entries,
        "head": restored.head,
        "lost": lost,
        "seconds_backup": seconds[0],
        "seconds_restore": seconds[1],
        "seconds_start": seconds[2],
        "seconds_recovery": round(clock[3] - clock[1], 2),
    }
    if options.as_json:
        click.echo(json.dumps(record, indent=2))
    else:
        click.echo(
            f"lost: {lost} of {charged} entries that were on record before the backup (recovery point)\n"
            f"again ready after {record['seconds_recovery']} s (recovery time): restored and verified in "
            f"{seconds[1]} s, started in {seconds[2]} s\n"
            f"the backup took {seconds[0]} s: {restored.entries} entries, head {restored.head}"
        )
    if lost:
        raise click.exceptions.Exit(console.FAILED)
