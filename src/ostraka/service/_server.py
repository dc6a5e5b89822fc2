"""The server process: uvicorn with strict limits and quiet logs."""

from __future__ import annotations

import gc
import resource
from typing import TYPE_CHECKING, Any

from ostraka import _check
from ostraka.service._logs import set_up
from ostraka.service._notify import notify

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
    log_json: bool = False,
) -> None:
    """Serve until the process gets a signal to stop; then answer the waiting requests and return."""
    uvicorn = _check.require("uvicorn", extra="service")
    _check.require("uvloop", extra="service")
    _check.require("httptools", extra="service")
    from ostraka.service._http_limits import limited  # noqa: PLC0415  (it needs the extra)

    set_up(as_json=log_json)
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

    class Server(uvicorn.Server):  # type: ignore[name-defined]
        """Tells systemd when it listens and when it ends, and keeps what was loaded by then."""

        async def startup(self, *given: Any, **how: Any) -> None:
            await super().startup(*given, **how)
            gc.freeze()  # a search for circles among all that was loaded stops every request for 0.14 s
            notify("READY=1")

        async def shutdown(self, *given: Any, **how: Any) -> None:
            notify("STOPPING=1")
            await super().shutdown(*given, **how)

    Server(config).run()


def _allow_connections() -> None:
    """Raise the limit of open files as far as the system allows; the default is often 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
