"""Logs as lines of JSON: time, level, event, message, and the request they belong to. No private value.

Names of events are stable, for programs that watch; docs/operations.md lists them.
"""

from __future__ import annotations

import json
import logging

from ostraka.secure.server import REQUEST


class JsonLines(logging.Formatter):
    """One object a line. Tracebacks are left out: they may quote values."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        fields = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": getattr(record, "event", "other"),
            "message": record.getMessage(),
        }
        if request := getattr(record, "request", None) or REQUEST.get():
            fields["request"] = request
        return json.dumps(fields | getattr(record, "fields", {}), ensure_ascii=True)


def set_up(*, as_json: bool) -> None:
    """Send all logs to stderr, as JSON or as text."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if as_json else logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("asyncio").setLevel(logging.ERROR)
