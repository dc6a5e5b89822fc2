"""Logs of released answers: tables that list a question and its label in each row."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ostraka.data import table as tables

if TYPE_CHECKING:
    from pathlib import Path

_ABSTAINED = ("-1", "abstain")
_MOST_CLASSES = 1000
_YES, _NO = ("1", "true", "yes"), ("0", "false", "no")


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
