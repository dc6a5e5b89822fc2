"""The type of each feature, as the public rows show it, and what a user should know about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostraka.cli._table import Table

__all__ = ["LONGEST_CODE", "MOST_KINDS", "Features", "date_note", "understood"]

MOST_KINDS = 200
LONGEST_CODE = 12
_FEW_WORDS = 3
_ENOUGH = 200  # rows that hold different whole numbers: an identifier rather than a measurement
_MOST_OWN = 0.95  # share of public rows with a text of their own, above which it is an identifier
_NOT_MEASURED = {"-9", "-99", "-999", "-9999", "9999", "99999"}


class Features(NamedTuple):
    """The columns to learn from. Public.

    ``numeric`` says for each column whether it holds numbers; ``fill`` puts the public median where one is
    missing; ``dates`` are columns of dates, read as days since 1970, with their formats; ``codes`` and
    ``texts`` name columns of codes with many kinds, and of sentences.
    """

    names: tuple[str, ...]
    numeric: tuple[bool, ...]
    fill: bool
    dates: tuple[tuple[str, str | None], ...] = ()
    codes: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """Columns with a feature for each category."""
        pairs = zip(self.names, self.numeric, strict=True)
        return tuple(name for name, numeric in pairs if not numeric and name not in self.texts)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns of numbers and dates."""
        return tuple(name for name, numeric in zip(self.names, self.numeric, strict=True) if numeric)


def understood(
    asked: Table, names: tuple[str, ...], *, as_text: Sequence[str], fill: bool
) -> tuple[Features, list[str]]:
    """Return the type of each feature in the public rows, and notes for the user about it.

    Raises
    ------
    ValueError
        A column is not there, or empty, or holds names.
    """
    said: list[str] = []
    dates: list[tuple[str, str | None]] = []
    numeric: list[bool] = []
    many: dict[str, list[str]] = {"codes": [], "texts": []}
    for name in names:
        if name not in asked.names:
            raise ValueError(
                f"{asked.path} (public) lacks the column {name!r} of the private table: "
                f"add it, or type --drop {name}"
            )
        codes, texts = asked.kinds(name)
        if all(text.lower() in asked.missing for text in texts):
            raise ValueError(f"{asked.path} (public): column {name!r} is empty: type --drop {name}")
        numeric.append(name not in as_text and asked.is_numeric(name))
        if numeric[-1] and asked.holds_dates(name):
            form = asked.date_format(name)
            dates.append((name, form))
            said.append(f"column {name!r} holds dates{date_note(form)}: it counts days since 1970-01-01")
        elif numeric[-1]:
            said += _odd_numbers(asked, name, texts)
        elif kind := _many_kinds(asked, name, texts, n_rows=len(codes)):
            many[kind].append(name)
            said.append(_SAID[kind].format(repr(name), len(texts)))
    return Features(names, tuple(numeric), fill, tuple(dates), *map(tuple, many.values())), said


def date_note(form: str | None) -> str:
    """Return a note if a date format can be misread."""
    return {"%d/%m/%Y": ", the day first", "%m/%d/%Y": ", the month first"}.get(form or "", "")


def _odd_numbers(asked: Table, name: str, texts: list[str]) -> list[str]:
    """Return a note on values that stand, or may stand, for a missing number."""
    found = sorted({text for text in texts if text and text.lower() in asked.missing})
    odd = sorted({text for text in texts if text in _NOT_MEASURED} - {*asked.missing})
    said = [f"column {name!r}: {', '.join(map(repr, found))} is read as no number"] if found else []
    if len(texts) == len(asked) >= _ENOUGH and all(text.isdecimal() for text in texts):
        said.append(
            f"column {name!r} holds another whole number in every row: if it only numbers the rows, it "
            f"teaches nothing and adds noise: type --drop {name}"
        )
    return said + [
        f"column {name!r} holds {text}: if that means no number, type --missing={text}" for text in odd
    ]


_SAID = {
    "codes": "column {} holds {:,} different texts: they are read as codes, by their first characters, "
    "and whole where they are frequent in the public rows",
    "texts": "column {} holds sentences: hashed words and pairs of words, in the directions that vary most "
    "among public rows (a language model reads more: docs/prompts.md)",
}


def _many_kinds(asked: Table, name: str, texts: list[str], *, n_rows: int) -> str:
    """Return "codes" or "texts" for a column of many values, "" for few; refuse columns of names."""
    words = float(np.mean([len(text.split()) for text in texts]))
    if words > _FEW_WORDS and len(texts) > min(MOST_KINDS, n_rows / 2):
        return "texts"
    if len(texts) <= MOST_KINDS:
        return ""
    code = words <= 1 and max(map(len, texts)) <= LONGEST_CODE
    if len(texts) > n_rows * (_MOST_OWN if code else 0.5):
        raise ValueError(
            f"{asked.path} (public): column {name!r} holds more than {MOST_KINDS} different texts, so it "
            f"looks like names rather than kinds: type --drop {name}"
        )
    return "codes"
