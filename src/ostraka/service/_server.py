"""The server process: uvicorn with strict limits and quiet logs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ostraka import _check

if TYPE_CHECKING:
    from pathlib import Path

    from ostraka.service.app import Application

__all__ = ["run"]

_MOST_CONNECTIONS = 1_000


def run(app: Application, *, host: str, port: int, cert: Path | None = None, key: Path | None = None) -> None:
    """Serve until the process is told to stop; then answer the waiting requests and return."""
    uvicorn = _check.require("uvicorn", extra="service")
    _check.require("uvloop", extra="service")
    _check.require("httptools", extra="service")
    from ostraka.service._http_limits import LimitedProtocol  # noqa: PLC0415  (it needs the extra)

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    for noisy in ("uvicorn.error", "uvicorn.access", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        loop="uvloop",
        http=type(
            "LimitedProtocol", (LimitedProtocol,), {"most_bytes": 8 * app.deployment.settings.most_bytes}
        ),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=10,
        ssl_certfile=cert,
        ssl_keyfile=key,
    )
    uvicorn.Server(config).run()
