"""The server process: uvicorn with strict limits and quiet logs."""

from __future__ import annotations

import logging
import resource
from typing import TYPE_CHECKING

from ostraka import _check

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ostraka.service._visitors import Network
    from ostraka.service.app import Application

__all__ = ["run"]

_MOST_FILES = 16_384  # open files: connections, most of all


def run(
    app: Application,
    *,
    host: str,
    port: int,
    cert: Path | None = None,
    key: Path | None = None,
    proxies: Sequence[Network] = (),
) -> None:
    """Serve until the process is told to stop; then answer the waiting requests and return."""
    uvicorn = _check.require("uvicorn", extra="service")
    _check.require("uvloop", extra="service")
    _check.require("httptools", extra="service")
    from ostraka.service._http_limits import limited  # noqa: PLC0415  (it needs the extra)

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    for noisy in ("uvicorn.error", "uvicorn.access", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    _allow_connections()
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        loop="uvloop",
        http=limited(app, proxies=proxies),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=10,
        ssl_certfile=cert,
        ssl_keyfile=key,
    )
    uvicorn.Server(config).run()


def _allow_connections() -> None:
    """Raise the limit of open files as far as the system lets us: it is 1,024 on many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
