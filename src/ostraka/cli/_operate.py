"""Configuration files for a service: a systemd unit, an nginx server, and Prometheus alert rules."""

from __future__ import annotations

import shlex
import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["alerts", "nginx", "systemd"]


def systemd(run: Path) -> str:
    """Return a systemd unit that runs the present command line without ``--systemd``."""
    program = shutil.which("ostraka") or "/usr/local/bin/ostraka"
    told = [each for each in sys.argv[1:] if each != "--systemd"]
    told = [str(run.resolve()) if each == str(run) else each for each in told]
    return _rendered("systemd.j2", command=shlex.join([program, *told]), run=str(run.resolve()))


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
