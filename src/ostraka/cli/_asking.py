"""Repeat one question to a deployment over HTTP, and store every answer in a file."""

from __future__ import annotations

import csv
import hashlib
import http.client
import json
import secrets
import ssl
import time
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Deployment"]

_AGAIN = {408, 425, 429, 500, 502, 503, 504}
_FIELDS = ("labels", "results", "predictions", "answers")
_MOST_BYTES = 64 << 20
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Deployment:
    """An HTTP service that answers ``POST {"rows": [[...], ...]}`` with a label for each row.

    The reply is a JSON list, or an object with a list under labels, results, predictions or answers; an
    element is a label, or an object that has one under label. Redirects are not followed.
    """

    def __init__(
        self,
        url: str,
        question: list[Any],
        *,
        world: str,
        key: str | None,
        record: Path | None,
        batch: int,
        rate: float | None,
        patience: float = 60.0,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"{world}: the address must begin with https:// or http://, got {url!r}")
        if key is not None and parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise ValueError(f"{world}: a key is sent over https only (or to this machine), got {url!r}")
        self._parts, self._question, self._key = parts, question, key
        self._world, self._batch, self._patience = world, batch, patience
        self._pause = 0.0 if rate is None else 1 / rate
        self._next = 0.0
        self._line: http.client.HTTPConnection | None = None
        name = json.dumps([url, question], sort_keys=True).encode()
        self._name = hashlib.sha256(name).hexdigest()[:16]
        self._record = record
        self._kept = [] if record is None or not record.exists() else self._read(record)
        self.refused = ""

    def ask(self, n: int) -> list[str]:
        """Return the next ``n`` answers, first those on file; fewer if the deployment's budget is spent."""
        answers, self._kept = self._kept[:n], self._kept[n:]
        while len(answers) < n and not self.refused:
            answers += self._post(min(self._batch, n - len(answers)))
        return answers

    def close(self) -> None:
        """Close the connection."""
        if self._line is not None:
            self._line.close()
            self._line = None

    def _post(self, n: int) -> list[str]:
        body = json.dumps({"rows": [self._question] * n}).encode()
        # a request that is sent again is the same request: a service that knows keys charges it once
        headers = {"content-type": "application/json", "idempotency-key": secrets.token_hex(16)}
        if self._key is not None:
            headers["authorization"] = f"Bearer {self._key}"
        until, wait = time.monotonic() + self._patience, 0.1
        while True:
            status, asked, text = self._once(body, headers)
            if status == 200:
                return self._keep(_labels(text, n, self._parts.geturl()))
            if status == 402:
                self.refused = "its budget is spent"
                return []
            if status not in _AGAIN and status != 0:
                raise ValueError(f"{self._parts.geturl()} answered HTTP {status}: no answers to audit")
            pause = max(wait, asked)
            if time.monotonic() + pause > until:
                what = f"HTTP {status}" if status else "nothing"
                kept = "" if self._record is None else f"; the answers so far are in {self._record}"
                raise ValueError(f"{self._parts.geturl()} answered {what} for {self._patience:g} s{kept}")
            time.sleep(pause)
            wait = min(2 * wait, 5.0)

    def _once(self, body: bytes, headers: dict[str, str]) -> tuple[int, float, bytes]:
        """Return the status (0: no reply), the seconds to wait that the reply states, and its body."""
        time.sleep(max(0.0, self._next - time.monotonic()))
        self._next = time.monotonic() + self._pause
        try:
            if self._line is None:
                self._line = self._connect()
            path = (self._parts.path or "/") + (f"?{self._parts.query}" if self._parts.query else "")
            self._line.request("POST", path, body=body, headers=headers)
            reply = self._line.getresponse()
            text = reply.read(_MOST_BYTES + 1)
        except (OSError, http.client.HTTPException):
            self.close()
            return 0, 0.0, b""
        if len(text) > _MOST_BYTES or reply.will_close:
            self.close()
        asked = reply.headers.get("retry-after", "0")
        return reply.status, float(asked) if asked.isdigit() else 0.0, text

    def _connect(self) -> http.client.HTTPConnection:
        host, port = str(self._parts.hostname), self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=30, context=ssl.create_default_context())
        return http.client.HTTPConnection(host, port, timeout=30)

    def _keep(self, answers: list[str]) -> list[str]:
        if self._record is not None:
            new = not self._record.exists()
            with self._record.open("a", newline="", encoding="utf-8") as file:
                rows = csv.writer(file, lineterminator="\n")
                if new:
                    rows.writerow(("world", "question", "answer"))
                rows.writerows((self._world, self._name, answer) for answer in answers)
        return answers

    def _read(self, record: Path) -> list[str]:
        """Return this world's answers on file; refuse a file of answers to another question."""
        text = record.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]  # a line cut short by a crash is asked again
        if whole != text:
            record.write_text(whole, encoding="utf-8")
        rows = list(csv.DictReader(whole.splitlines()))
        mine = [row for row in rows if row.get("world") == self._world]
        others = Counter(row.get("question") for row in mine if row.get("question") != self._name)
        if others or any(set(row) != {"world", "question", "answer"} for row in rows):
            raise ValueError(f"{record} holds answers to another question: give --record another name")
        return [str(row["answer"]) for row in mine]


def _labels(text: bytes, n: int, url: str) -> list[str]:
    try:
        told = json.loads(text)
    except ValueError:
        told = None
    if isinstance(told, dict):
        told = next((told[name] for name in _FIELDS if isinstance(told.get(name), list)), None)
    if not isinstance(told, list) or len(told) != n:
        raise ValueError(f"{url} must reply with a list of {n} labels, under one of {', '.join(_FIELDS)}")
    labels = [each.get("label") if isinstance(each, dict) else each for each in told]
    if any(isinstance(label, list | dict) for label in labels):
        raise ValueError(f"{url} must reply with labels: numbers or text")
    return [label if isinstance(label, str) else json.dumps(label) for label in labels]
