"""``ostraka serve``: the voter of a run behind HTTP, for clients with keys and budgets."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import os
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003  (Typer reads it)
from typing import TYPE_CHECKING, Annotated

import typer

from ostraka.cli import _errors
from ostraka.cli._options import options

if TYPE_CHECKING:
    from ostraka.ledger import Budget
    from ostraka.mechanisms.protocols import BallotMechanism
    from ostraka.service._deployment import Deployment
    from ostraka.voters import SavedTeachers

__all__ = ["serve"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Options of ``ostraka serve``."""

    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Of 'ostraka learn … --keep-teachers'.")]
    epsilon: Annotated[
        float | None, typer.Option(help="All that this service may ever spend.", metavar="NATS")
    ] = None
    delta: Annotated[float | None, typer.Option(help="Goes with --epsilon.", metavar="P")] = None
    db: Annotated[
        str | None,
        typer.Option(
            help="sqlite:///FILE or postgresql://…; a file in RUN/service otherwise.", metavar="URL"
        ),
    ] = None
    shared: Annotated[
        bool, typer.Option("--shared", help="Other processes serve the same run from the same PostgreSQL.")
    ] = False
    processes: Annotated[
        int | None, typer.Option(help="Processes that the teachers vote in.", metavar="N")
    ] = None
    sigma: Annotated[
        float | None, typer.Option(help="Noise, in votes. Default: the run's.", metavar="VOTES")
    ] = None
    screen: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Answer only where a noisy plurality reaches AT votes.", metavar="AT SIGMA"),
    ] = None
    host: Annotated[str, typer.Option(help="Address to listen on.", metavar="ADDRESS")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=1, max=65535, metavar="N")] = 8000
    tls_cert: Annotated[
        Path | None, typer.Option(help="Certificate chain, PEM.", metavar="FILE", exists=True)
    ] = None
    tls_key: Annotated[
        Path | None, typer.Option(help="Its private key, PEM.", metavar="FILE", exists=True)
    ] = None
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="TLS ends at a proxy of yours before this address.")
    ] = False
    proxy: Annotated[
        list[str] | None,
        typer.Option(help="Network whose X-Forwarded-For counts; may be repeated.", metavar="NETWORK"),
    ] = None
    rate: Annotated[float, typer.Option(help="Rows a second, for each client.", metavar="N")] = 100.0
    burst: Annotated[int, typer.Option(help="Rows at once, for each client.", metavar="N")] = 1000
    most_bytes: Annotated[int, typer.Option(help="Largest request body.", metavar="N")] = 65536
    most_rows: Annotated[int, typer.Option(help="Rows in one request.", metavar="N")] = 256
    trust: Annotated[
        list[str] | None,
        typer.Option(help="A type that your teachers hold; may be repeated.", metavar="TYPE"),
    ] = None
    log_json: Annotated[bool, typer.Option("--log-json", help="Logs as lines of JSON.")] = False
    log_requests: Annotated[bool, typer.Option("--log-requests", help="Log each request.")] = False
    systemd: Annotated[bool, typer.Option("--systemd", help="Print a unit, and leave.")] = False
    nginx: Annotated[
        str | None, typer.Option(help="Print nginx's configuration for this name, and leave.", metavar="NAME")
    ] = None
    alerts: Annotated[bool, typer.Option("--alerts", help="Print Prometheus rules, and leave.")] = False
    check: Annotated[bool, typer.Option("--check", help="Open and verify everything, and leave.")] = False
    as_json: Annotated[bool, typer.Option("--json", help="With --check: print JSON.")] = False


@options(ServeOptions)
def serve(given: ServeOptions) -> None:
    """Serve the teachers or another voter of a run over HTTP. Every answer is charged before it leaves."""
    from ostraka.cli import _folder, _operate
    from ostraka.service import _server
    from ostraka.service._deployment import Deployment, Settings
    from ostraka.service._keys import pepper
    from ostraka.service._secrets import recognise
    from ostraka.service._visitors import networks
    from ostraka.service.app import Application
    from ostraka.voters import SavedTeachers

    if given.systemd or given.nginx or given.alerts:
        if given.systemd:
            typer.echo(_operate.systemd(given.folder), nl=False)
        if given.nginx:
            limits = {"port": given.port, "most_bytes": given.most_bytes}
            typer.echo(_operate.nginx(given.nginx, host=given.host, **limits), nl=False)
        if given.alerts:
            typer.echo(_operate.alerts(), nl=False)
        return
    _require_private_transport(given)
    if given.shared and not (given.db or "").startswith(("postgresql://", "postgres://")):
        raise typer.BadParameter("--shared needs --db postgresql://…: a file has one service")
    with _errors.usage():
        settings = Settings(
            most_bytes=given.most_bytes, most_rows=given.most_rows, rate=given.rate, burst=given.burst
        )
        pepper_, proxies = pepper(os.environ), networks(given.proxy or ())
    place, teachers = given.folder / _folder.SERVICE, given.folder / _folder.TEACHERS
    if teachers.is_dir():
        recognise(SavedTeachers.name(teachers), place, os.environ)
    loaded = SavedTeachers.load(teachers, trusted=given.trust or (), processes=given.processes)
    saved = _with(loaded, given.sigma, given.screen)
    label = given.folder / _folder.LABEL
    there = Deployment.open(
        saved=saved,
        folder=place,
        db=given.db or f"sqlite:///{place.resolve() / 'ledger.sqlite'}",
        budget=_budget(given.folder, given.epsilon, given.delta, adaptive=saved.screen is not None),
        settings=settings,
        environment=os.environ,
        pepper=pepper_,
        label=json.loads(label.read_text()) if label.is_file() else None,
        shared=given.shared,
    )
    if given.check:
        _tell(there, as_json=given.as_json)
        there.ledger.close()
        return
    _announce(there, f"{'https' if given.tls_cert else 'http'}://{given.host}:{given.port}")
    app = Application(there, log_requests=given.log_requests)
    _server.run(
        app,
        host=given.host,
        port=given.port,
        cert=given.tls_cert,
        key=given.tls_key,
        proxies=proxies,
        log_json=given.log_json,
    )


def _require_private_transport(given: ServeOptions) -> None:
    """Refuse to send keys in the open."""
    if (given.tls_cert is None) != (given.tls_key is None):
        raise typer.BadParameter("--tls-cert and --tls-key go together")
    if not (given.tls_cert or given.behind_proxy or _is_loopback(given.host)):
        raise typer.BadParameter(
            f"--host {given.host} can be reached by others, and keys would travel in the open: "
            "type --tls-cert and --tls-key, or --behind-proxy"
        )


def _with(saved: SavedTeachers, sigma: float | None, screen: tuple[float, float] | None) -> SavedTeachers:
    """Return the same voter with other noise."""
    from ostraka import GNMax, Threshold

    if saved.kind == "parties" and not (sigma is None and screen is None):
        raise typer.BadParameter("--sigma and --screen are not for parties: they agreed on the noise")
    with _errors.usage():
        return dataclasses.replace(
            saved,
            mechanism=saved.mechanism if sigma is None else _sampled(saved, GNMax(sigma=sigma)),
            screen=saved.screen
            if screen is None
            else _sampled(saved, Threshold(at=screen[0], sigma=screen[1])),
        )


def _sampled(saved: SavedTeachers, mechanism: BallotMechanism) -> BallotMechanism:
    """Return the mechanism for votes of these, which may come from a sample of the units."""
    from ostraka.mechanisms import Subsampled

    if saved.adjacency.relation == "replace-one":
        return mechanism
    return Subsampled(mechanism=mechanism, sampling_rate=saved.adjacency.sampling_rate)


def _budget(folder: Path, epsilon: float | None, delta: float | None, *, adaptive: bool) -> Budget | None:
    """Return the budget of the options; None to use the ledger's own."""
    from ostraka import Budget
    from ostraka.cli import _folder

    if epsilon is None and delta is None:
        return None
    if epsilon is None or delta is None:
        raise typer.BadParameter("--epsilon and --delta go together")
    recorded = (folder / _folder.RESULT).is_file()
    if not recorded:
        typer.echo("note: there is no record of a run, so --delta is not compared with 1 / units", err=True)
    units = _folder.load(folder).settings["n_units"] if recorded else 1
    if delta >= 1 / units:
        raise typer.BadParameter(
            f"--delta must be below 1 / {units} units, got {delta:g}: a mechanism that publishes one unit "
            "at random would be allowed"
        )
    with _errors.usage():
        return Budget(epsilon=epsilon, delta=delta, adaptive=adaptive)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _announce(there: Deployment, where: str) -> None:
    ledger = there.ledger
    left = (
        f"epsilon {ledger.left():.4g} of {ledger.budget.epsilon:g} is left at delta {ledger.budget.delta:g}"
    )
    said = [
        f"serving {there.saved.n_ballots} {there.saved.kind} at {where} (interface: {where}/docs)",
        f"{left}, for one {there.unit}; what the run itself spent comes on top",
    ]
    if not there.keys.kept:
        said.append("there is no key yet: type 'ostraka keys add' in another terminal")
    for line in said:
        typer.echo(line, err=True)


def _tell(there: Deployment, *, as_json: bool) -> None:
    ledger = there.ledger
    told = {
        there.saved.kind: there.saved.n_ballots,
        "mechanism": repr(there.saved.mechanism),
        "screen": None if there.saved.screen is None else repr(there.saved.screen),
        "epsilon": ledger.budget.epsilon,
        "delta": ledger.budget.delta,
        "left": ledger.left(),
        "unit": there.unit,
        "head": ledger.head,
    }
    if as_json:
        typer.echo(json.dumps(told, indent=2))
        return
    for name, value in told.items():
        typer.echo(f"{name}: {value}")
