"""``ostraka drill``: rehearse the loss of a machine, and measure what would be lost and for how long."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ostraka import console
from ostraka.console import argument, option, verb

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PATIENCE = 120.0  # seconds until the service of the copy must be ready
_TRY = 2.0  # seconds of asking between two looks whether it still runs
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
def drill(wanted: DrillOptions) -> None:
    """Back a service up, restore it elsewhere, start it there, and say what was lost and how long it took.

    The copy has no keys, so it answers nobody; it listens on this machine alone, and is removed. Exit code 1
    if an entry of the ledger is missing from the copy, or if the copy does not start.

    Example: ostraka drill run
    """
    from ostraka.core.ledger.budget import LedgerError
    from ostraka.core.ledger.ledger import Ledger, back_up, restore
    from ostraka.report import folder
    from ostraka.serve.keys import secret_in

    place = wanted.folder / folder.SERVICE
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
        tempfile.TemporaryDirectory(dir=wanted.scratch, prefix="ostraka-drill-") as scratch,
        console.Stages(_STAGES) as tell,
    ):
        copy, run = Path(scratch) / "backup.sqlite", Path(scratch) / "run"
        clock = [time.perf_counter()]
        back_up(file, copy, secret=secret)
        clock.append(time.perf_counter())
        tell("backup", 1, 1)
        unwanted = shutil.ignore_patterns("ledger.sqlite*", "ledger.anchor", "keys.json", "*.lock")
        shutil.copytree(wanted.folder, run, ignore=unwanted)
        service = run / folder.SERVICE
        restored = restore(copy, service / "ledger.sqlite", secret=secret, anchor=f"{copy}.anchor")
        shutil.copyfile(f"{copy}.anchor", service / "ledger.anchor")
        clock.append(time.perf_counter())
        tell("restore", 1, 1)
        typed = [] if wanted.sigma is None else ["--sigma", str(wanted.sigma)]
        typed += [] if wanted.screen is None else ["--screen", *map(str, wanted.screen)]
        typed += [word for name in wanted.trust or () for word in ("--trust", name)]
        with _ready(run, typed):
            clock.append(time.perf_counter())
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
    if wanted.as_json:
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


@contextlib.contextmanager
def _ready(run: Path, typed: Sequence[str]) -> Iterator[None]:
    """A service of the run in a process of its own, from the moment when it could charge."""
    from ostraka.core.ledger.budget import LedgerError
    from ostraka.secure.wire import Late, Line

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
                    status = line.insist("GET", "/ready", seconds=_TRY, most=65_536, fresh=True).status
            if status != 200:
                process.kill()
                process.wait()
                log.seek(0)
                words = log.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
                raise LedgerError(f"the restored service did not start: {words or 'it said nothing'}")
            yield
        finally:
            process.terminate()
            process.wait()
