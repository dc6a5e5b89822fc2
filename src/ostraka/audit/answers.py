"""Answers to attack or to audit: from a log of them, or from a deployment that is asked over HTTP."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import secrets
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import numpy as np

from ostraka.core import check
from ostraka.data import table as tables
from ostraka.secure.wire import AGAIN, Late, Line, is_loopback

if TYPE_CHECKING:
    from pathlib import Path

_ABSTAINED = ("-1", "abstain")
_MOST_CLASSES = 1000
_YES, _NO = ("1", "true", "yes"), ("0", "false", "no")
_TRY = 30.0  # seconds of one request
_FIELDS = ("labels", "results", "predictions", "answers")
_MOST_BYTES = 64 << 20
_HEADER = ("world", "question", "answer")  # of the file that keeps what a deployment answered


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLog:
    """The number of times each question got each answer. It is public, because all answers were released.

    Attributes
    ----------
    queries : tuple of str
        In the order of their first answer.
    classes : tuple of str
    answers : int64 array, shape (n_queries, n_outcomes)
        With a screen, the last column counts questions without an answer.
    """

    queries: tuple[str, ...]
    classes: tuple[str, ...]
    answers: np.ndarray


def read(path: Path, *, query: str, label: str, classes: str | None, screened: bool) -> AnswerLog:
    """Count a log's answers, question by question.

    Raises
    ------
    ValueError
        A missing column or cell, a label that is not one of the classes, "no answer" from a
        mechanism that always answers, or one class only.
    """
    table = tables.read(path, public=True)
    table.require(query, option="--query")
    table.require(label, option="--label")
    questions, labels = table.text(query), table.text(label)
    for name, column in ((query, questions), (label, labels)):
        if "" in column:
            row = table.numbering[column.index("")]
            hint = ": write -1 where there was no answer" if name == label else ""
            raise ValueError(f"{path}: column {name!r} is empty in data row {row}{hint}")
    refused = [text.lower() in _ABSTAINED for text in labels]
    if any(refused) and not screened:
        row = table.numbering[refused.index(True)]
        raise ValueError(
            f"{path}: data row {row} has no answer, but a mechanism without a screen always answers: "
            "type --screen AT SIGMA"
        )
    # the classes: from their number, a list, or the log (for whole numbers, all from 0 up)
    answered = {text for text, no in zip(labels, refused, strict=True) if not no}
    if classes is not None and not classes.isdecimal():
        names = tuple(name.strip() for name in classes.split(","))
        if len(set(names)) < len(names) or "" in names:
            raise ValueError(f"--classes must be different names with commas between them, got {classes!r}")
    elif all(name.isdecimal() for name in answered) and (answered or classes):
        size = 1 + max((int(name) for name in answered), default=-1)
        names = tuple(str(number) for number in range(min(int(classes or size), _MOST_CLASSES + 1)))
    else:
        names = tuple(sorted(answered))
        if classes is not None and len(names) != int(classes):
            raise ValueError(f"{path} names {len(names)} of {classes} classes: type --classes A,B,…")
    if not 2 <= len(names) <= _MOST_CLASSES:
        raise ValueError(
            f"{path} must name from 2 to {_MOST_CLASSES} classes, got {len(names)}: is --label the right "
            "column? If some were never answered, type --classes"
        )

    place = {name: number for number, name in enumerate(names)}
    strange = [
        int(row)
        for row, text, no in zip(table.numbering, labels, refused, strict=True)
        if not no and text not in place
    ]
    if strange:
        raise ValueError(
            f"{path}: data row {strange[0]} has a label that is none of the {len(names)} --classes"
        )
    order = {name: row for row, name in enumerate(dict.fromkeys(questions))}
    answers = np.zeros((len(order), len(names) + screened), dtype=np.int64)
    for (question, text, no), times in Counter(zip(questions, labels, refused, strict=True)).items():
        answers[order[question], len(names) if no else place[text]] += times
    return AnswerLog(queries=tuple(order), classes=names, answers=answers)


def read_members(path: Path, *, query: str, member: str, queries: tuple[str, ...]) -> np.ndarray:
    """Return whether each question is about a member of the group, bool of shape (n_queries,)."""
    table = tables.read(path, public=True)
    table.require(query, option="--query")
    table.require(member, option="--member")
    membership: dict[str, bool] = {}
    for row, name, text in zip(table.numbering, table.text(query), table.text(member), strict=True):
        if text.lower() not in (*_YES, *_NO):
            raise ValueError(f"{path}: column {member!r} must hold 1 or 0, not so in data row {row}")
        if membership.setdefault(name, text.lower() in _YES) != (text.lower() in _YES):
            raise ValueError(f"{path}: data row {row} contradicts an earlier one about the same query")
    missing = sum(name not in membership for name in queries)
    if missing:
        raise ValueError(f"{path} says nothing about {missing} of {len(queries)} queries: add their rows")
    return np.array([membership[name] for name in queries])


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
        self._kept = [] if record is None or not record.exists() else self._on_file(record)
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

    def _on_file(self, record: Path) -> list[str]:
        """Answers of this world. A line cut short by a crash is removed, and asked again."""
        text = record.read_bytes().decode("utf-8", "replace")
        lines = text[: text.rfind("\n") + 1]
        header, *rows = [*csv.reader(io.StringIO(lines, newline=""))] or [[*_HEADER]]
        mine = [row for row in rows if row[:1] == [self._world]]
        if (
            header != [*_HEADER]
            or not (lines or ",".join(_HEADER).startswith(text))
            or any(len(row) != len(_HEADER) for row in rows)
            or any(row[1] != self._name for row in mine)
        ):
            raise ValueError(
                f"{record} holds something else, or answers to another question: type another --record"
            )
        if lines != text:
            record.write_bytes(lines.encode())
        return [answer for *_, answer in mine]

    def _post(self, n: int) -> list[str]:
        body = json.dumps({"rows": [self._question] * n}).encode()
        # a request that is sent again is the same request: a service that knows keys charges it once
        headers = {**self._headers, "idempotency-key": secrets.token_hex(16)}
        self._wait(0.0)
        try:
            answer = self._line.ask(
                "POST",
                self._target,
                body,
                headers,
                seconds=self._patience,
                each=_TRY,
                most=_MOST_BYTES,
                tries=math.inf,
                sleep=self._wait,
            )
        except Late:
            raise self._unanswered("nothing") from None
        if answer.status == 200:
            content = check.parsed(answer.body)
            if isinstance(content, dict):
                lists = (content[name] for name in _FIELDS if isinstance(content.get(name), list))
                content = next(lists, None)
            if not isinstance(content, list) or len(content) != n:
                raise ValueError(
                    f"{self._url} must reply with a list of {n} labels, under one of {', '.join(_FIELDS)}"
                )
            labels = [item.get("label") if isinstance(item, dict) else item for item in content]
            if any(isinstance(label, list | dict) or {*str(label)} & {*"\r\n"} for label in labels):
                raise ValueError(f"{self._url} must reply with labels: numbers, or text in one line")
            answers = [label if isinstance(label, str) else json.dumps(label) for label in labels]
            if self._record is not None:
                with self._record.open("a", newline="", encoding="utf-8") as file:
                    rows = csv.writer(file, lineterminator="\n")
                    if not file.tell():
                        rows.writerow(_HEADER)
                    rows.writerows((self._world, self._name, answer) for answer in answers)
            return answers
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
