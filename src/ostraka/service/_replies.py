"""Replies, and the common body of all errors."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

__all__ = ["ADVICE", "WORDS", "Headers", "Refused", "Reply", "unavailable"]

# Codes of refusals, with the default message of each.
WORDS = {
    "bad_json": "the body is not strict JSON",
    "bad_schema": "the body does not fit the schema at /openapi.json",
    "bad_key": "the Idempotency-Key is missing or malformed",
    "bad_content": "the body is not plain application/json",
    "bad_request": "this is no request in HTTP/1.1 that can be read in one way only",
    "too_many": "too many requests without a valid key from this address: wait as long as Retry-After says",
    "keys_unreadable": "the service cannot read its file of keys, so no key is valid now: try again",
    "unauthorized": "type a valid key: Authorization: Bearer ostraka_…",
    "budget_exceeded": "the budget does not pay for this; nothing was answered",
    "forbidden": "this key's role may not do this",
    "not_found": "there is nothing here",
    "bad_method": "this path does not take this method",
    "key_conflict": "this Idempotency-Key was used for another question: use a new one",
    "too_large": "the body is too large",
    "too_fast": "too many rows a second: wait as long as Retry-After says",
    "busy": "too much is waiting: try again, with the same Idempotency-Key",
    "unavailable": "the ledger cannot be written now; nothing was answered: try again, with the same "
    "Idempotency-Key",
    "not_ready": "the service cannot charge now, and so cannot answer",
    "failed": "the service failed before anything was charged: try again, with the same Idempotency-Key",
}
# What an owner can do about refusals.
ADVICE = {
    "budget_exceeded": "raise the client's cap with 'ostraka keys', unless the data's own budget is spent",
    "unauthorized": "somebody has a wrong, revoked or no key; 'ostraka keys list' names those that count",
    "forbidden": "a client's key was used for an owner's page, or an owner's for questions",
    "too_fast": "the client asks above --rate and --burst",
    "too_many": "one address asks without a valid key; name your own proxy with --proxy",
    "key_conflict": "the client's program uses one Idempotency-Key for two questions",
    "busy": "more is asked than this machine answers; batches take less",
    "unavailable": "the ledger is locked, its disk is full, or the database is away",
    "keys_unreadable": "put a copy of keys.json back",
    "not_ready": "see the alert at the top",
    "failed": "a defect: the log names the place",
    "bad_schema": "the client's program sends other cells than /docs says",
}
_HEAD = (
    b"%s\r\ncontent-type: %s\r\ncontent-length: %d\r\ncache-control: no-store\r\n"
    b"x-content-type-options: nosniff\r\n%s\r\n%s"
)
_CLOSE = (b"connection", b"close")
_STATUS = {each.value: b"HTTP/1.1 %d %s" % (each.value, each.phrase.encode()) for each in HTTPStatus}
_NOTHING_ELSE = (
    b"default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; "
    b"frame-ancestors 'none'; base-uri 'none'"
)
Headers = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """Status, body and headers of a response."""

    status: int
    body: bytes
    kind: bytes = b"application/json"
    more: Headers = ()

    @classmethod
    def json(cls, content: Any, *, status: int = 200, more: Headers = ()) -> Reply:
        """A body in strict JSON."""
        return cls(status, json.dumps(content, allow_nan=False, ensure_ascii=False).encode(), more=more)

    @classmethod
    def html(cls, page: str, *, more: Headers = ()) -> Reply:
        """A self-contained HTML page without scripts."""
        policy = (b"content-security-policy", _NOTHING_ELSE)
        return cls(200, page.encode(), b"text/html; charset=utf-8", (policy, *more))

    def raw(self, *also: tuple[bytes, bytes], keep_alive: bool = False, with_body: bool = True) -> bytes:
        """The reply as the bytes of an HTTP/1.1 response, with further headers."""
        headers = (*self.more, *also) if keep_alive else (*self.more, *also, _CLOSE)
        lines = b"".join([b"%s: %s\r\n" % header for header in headers])
        start, body = _STATUS[self.status], self.body if with_body else b""
        return _HEAD % (start, self.kind, len(self.body), lines, body)


class Refused(Exception):  # noqa: N818  (a reply, not a defect)
    """A refused request: status, code, and a message that quotes nothing private."""

    def __init__(self, status: int, code: str, words: str = "", *, more: Headers = ()) -> None:
        super().__init__(code)
        self.status, self.code = status, code
        self.reply = Reply.json(
            {"ok": False, "code": code, "error": words or WORDS[code]}, status=status, more=more
        )


def unavailable() -> Refused:
    """Return the refusal for a ledger that cannot be written: locked, full or out of reach."""
    return Refused(503, "unavailable", more=((b"retry-after", b"2"),))
