"""A PostgreSQL server of one's own, for as long as it is needed, from the programs that are installed."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rigs import charging
from rigs.disk import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["copied", "fail_over", "program", "ready", "require", "restart", "server"]

SETTINGS = "-c listen_addresses= -c max_connections=120 -c shared_buffers=32MB"


def program(name: str) -> str:
    """A program of PostgreSQL."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    program_path = shutil.which(name, path=os.pathsep.join([*map(str, places), os.environ.get("PATH", "")]))
    if program_path is None:
        raise UnavailableError(f"PostgreSQL's {name} is not installed (apt-get install postgresql)")
    return program_path


def require(mode: charging.ChargingMode) -> None:
    """Raise if the mode needs a server, and there is none."""
    if mode.needs_postgres:
        program("initdb")
        program("pg_ctl")


@contextmanager
def ready(mode: charging.ChargingMode) -> Iterator[None]:
    """Run the server if the mode needs one."""
    if not mode.needs_postgres:
        yield
        return
    with server() as address:
        os.environ[charging.ADDRESS] = address
        yield


def _someone() -> dict[str, str | int]:
    """Who runs the server: not root, as PostgreSQL refuses that."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name for entry in pwd.getpwall()}
    return {"user": "postgres" if "postgres" in names else "nobody"}


def restart(folder: Path, *, mode: str) -> None:
    """Stop the server in a folder ("fast" or "immediate") and start it again."""
    options = f"{SETTINGS} -k {folder}"
    command = [program("pg_ctl"), "-D", str(folder / "data"), "-w", "-m", mode, "-l", str(folder / "log")]
    subprocess.run(
        [*command, "-o", options, "restart"],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd=folder,
        **_someone(),  # type: ignore[call-overload]
    )


def control(folder: Path, verb: str, *options: str) -> None:
    """Call pg_ctl for the server in a folder."""
    subprocess.run(
        [program("pg_ctl"), "-D", str(folder / "data"), "-w", "-l", str(folder / "log"), *options, verb],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd=folder,
        **_someone(),  # type: ignore[call-overload]
    )


def copied(folder: Path) -> Path:
    """A copy of a server's files, as a standby that lags behind has them."""
    control(folder, "stop", "-m", "fast")
    copy = folder / "copy"
    subprocess.run(["cp", "-a", str(folder / "data"), str(copy)], check=True)
    control(folder, "start", "-o", f"{SETTINGS} -k {folder}")
    return copy


def fail_over(folder: Path, copy: Path) -> None:
    """Promote the copy in place of the server, under the same address."""
    control(folder, "stop", "-m", "immediate")
    shutil.rmtree(folder / "data")
    copy.rename(folder / "data")
    (folder / "data" / "standby.signal").touch()
    control(folder, "start", "-o", f"{SETTINGS} -k {folder}")
    control(folder, "promote")


@contextmanager
def server() -> Iterator[str]:
    """A running server; its address. Everything is gone afterwards."""
    create, control = program("initdb"), program("pg_ctl")
    folder = Path(tempfile.mkdtemp(prefix="ostraka-pg-"))
    if someone := _someone():
        shutil.chown(folder, someone["user"])
    data = folder / "data"

    def call(*command: str) -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder, **someone)  # type: ignore[call-overload]

    try:
        call(create, "-D", str(data), "-U", "rigs", "-A", "trust", "-E", "UTF8", "--locale=C")
        log, options = folder / "log", f"{SETTINGS} -k {folder}"
        call(control, "-D", str(data), "-w", "-l", str(log), "-o", options, "start")
        try:
            yield f"postgresql://rigs@/postgres?host={folder}"
        finally:
            call(control, "-D", str(data), "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
