"""A deployment to audit: one question is repeated to an HTTP service, and every answer stored in a file."""

from __future__ import annotations

import csv
import hashlib
import json
import secrets
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from ostraka.secure.wire import AGAIN, Late, Line, is_loopback

if TYPE_CHECKING:
    from pathlib import Path

_TRY = 30.0  # seconds of one request
_FIELDS = ("labels", "results", "predictions", "answers")
_MOST_BYTES = 64 << 20


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
        if key is not None and parts.scheme == "http" and not is_loopback(parts.hostname):
            raise ValueError(f"{world}: a key is sent over https only (or to this machine), got {url!r}")
        self._url, self._question = parts.geturl(), question
        self._line = Line(urlunsplit((parts.scheme, parts.netloc, "", "", "")))
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._headers = {"content-type": "application/json"}
        if key is not None:
            self._headers["authorization"] = f"Bearer {key}"
        self._world, self._batch, self._patience = world, batch, patience
        self._pause = 0.0 if rate is None else 1 / rate
        self._next = 0.0
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
        self._line.close()

    def _post(self, n: int) -> list[str]:
        body = json.dumps({"rows": [self._question] * n}).encode()
        # a request that is sent again is the same request: a service that knows keys charges it once
        headers = {**self._headers, "idempotency-key": secrets.token_hex(16)}
        self._wait(0.0)
        try:
            answer = self._line.insist(
                "POST",
                self._target,
                body,
                headers,
                seconds=self._patience,
                each=_TRY,
                most=_MOST_BYTES,
                sleep=self._wait,
            )
        except Late:
            raise self._unanswered("nothing") from None
        if answer.status == 200:
            return self._keep(_labels(answer.body, n, self._url))
        if answer.status == 402:
            self.refused = "its budget is spent"
            return []
        if answer.status not in AGAIN:
            raise ValueError(f"{self._url} answered HTTP {answer.status}: no answers to audit")
        raise self._unanswered(f"HTTP {answer.status}")

    def _wait(self, seconds: float) -> None:
        """Wait, and as long as the rate demands since the last request."""
        time.sleep(max(seconds, self._next - time.monotonic()))
        self._next = time.monotonic() + self._pause

    def _unanswered(self, what: str) -> ValueError:
        place = "" if self._record is None else f"; the answers so far are in {self._record}"
        return ValueError(f"{self._url} answered {what} for {self._patience:g} s{place}")

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
        lines = text[: text.rfind("\n") + 1]  # a line cut short by a crash is asked again
        if lines != text:
            record.write_text(lines, encoding="utf-8")
        rows = list(csv.DictReader(lines.splitlines()))
        mine = [row for row in rows if row.get("world") == self._world]
        others = any(row.get("question") != self._name for row in mine)
        if others or any(set(row) != {"world", "question", "answer"} for row in rows):
            raise ValueError(f"{record} holds answers to another question: give --record another name")
        return [str(row["answer"]) for row in mine]


def _labels(text: bytes, n: int, url: str) -> list[str]:
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if isinstance(content, dict):
        content = next((content[name] for name in _FIELDS if isinstance(content.get(name), list)), None)
    if not isinstance(content, list) or len(content) != n:
        raise ValueError(f"{url} must reply with a list of {n} labels, under one of {', '.join(_FIELDS)}")
    labels = [item.get("label") if isinstance(item, dict) else item for item in content]
    if any(isinstance(label, list | dict) for label in labels):
        raise ValueError(f"{url} must reply with labels: numbers or text")
    return [label if isinstance(label, str) else json.dumps(label) for label in labels]
