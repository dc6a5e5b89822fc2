"""Logs as lines of JSON: time, level, message, and the request they belong to. No private value."""

from __future__ import annotations

import json
import logging
import os
from contextvars import ContextVar

__all__ = ["REQUEST", "JsonLines", "new_request", "set_up"]

REQUEST: ContextVar[str] = ContextVar("ostraka_request", default="")


class JsonLines(logging.Formatter):
    """One object a line. Tracebacks are left out: they may quote values."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        told = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request := getattr(record, "request", None) or REQUEST.get():
            told["request"] = request
        return json.dumps(told | getattr(record, "fields", {}), ensure_ascii=True)


def new_request() -> str:
    """A name for a request, for its log lines and its reply."""
    name = os.urandom(8).hex()
    REQUEST.set(name)
    return name


def set_up(*, as_json: bool) -> None:
    """Send all logs to stderr, as JSON or as text."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if as_json else logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for noisy in ("uvicorn.error", "uvicorn.access", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
