"""How a file looks before it is read: its encoding, delimiter, decimal sign, title lines and sheets.

A public file may be read as it looks. What a private one looks like is told to its owner, who then types it:
no private line decides how others are read.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from ostraka.data.table import (
    EXCEL,
    Format,
    cells_of_line,
    is_header,
    is_utf8,
    mark_of,
    opened,
    sheet_rows,
    sheets,
    without_trailing,
)

if TYPE_CHECKING:
    from pathlib import Path

_HEAD, _LINES = 1 << 18, 400  # of a file: bytes, and lines
_TITLES = 50  # lines that may stand above a header
_SIGNS = ",;\t|"
_ALIKE = 0.9  # share of lines with the usual number of cells
_COMMA = re.compile(r"[+-]?\d+(\.\d{3})*,\d+", re.ASCII)
_POINT = re.compile(r"[+-]?\d+\.\d+", re.ASCII)


class Look(NamedTuple):
    """What a file seems to need.

    ``form`` is how it can be read, with all that is known; ``usual`` is how it is read where nothing is
    declared; ``trailing`` says whether its lines end with a delimiter, ``broken`` whether some end inside
    quotes; ``sheets`` are the names of those of a workbook; ``names`` are those of the columns.
    """

    form: Format
    usual: Format
    trailing: bool = False
    sheets: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    broken: bool = False


def look(path: Path, declared: Format, *, like: Format | None = None) -> Look:
    """What a file seems to need beside what is declared; private lines are read, none is returned.

    ``like`` is how a public table was read, which decides what is not declared.

    Raises
    ------
    OSError
        It cannot be opened.
    """
    if path.suffix.lower() in EXCEL:
        return _of_workbook(path, declared)
    with opened(path) as file:
        head = file.read(_HEAD)
    encoding = declared.encoding or mark_of(head) or ("utf8" if is_utf8(path) else "cp1252")
    text = codecs.getincrementaldecoder(encoding)(errors="replace").decode(head).lstrip("\ufeff")
    lines = [line.rstrip("\r") for line in text.split("\n")]
    if len(head) == _HEAD:
        lines.pop()  # cut somewhere
    lines = lines[:_LINES]
    delimiter, titles = _shape(lines, declared)
    rows = [cells_of_line(line, delimiter) for line in lines[titles:] if line.strip()]
    names = without_trailing(rows[0]) if rows else []
    trailing = len(rows) > 1 and sum(not row[-1].strip() for row in rows if len(row) > 1) > _ALIKE * len(rows)
    trailing = trailing and (len(names) < len(rows[0]) or all(len(row) == len(names) + 1 for row in rows[1:]))
    cells = [cell.strip() for row in rows[1:] for cell in row]
    commas, points = (sum(1 for cell in cells if sign.fullmatch(cell)) for sign in (_COMMA, _POINT))
    usual = "." if delimiter == "," else ","  # as it is read where nothing is declared
    decimal = "," if commas > points else "." if points > commas else usual
    like = like or Format()
    usual = like.decimal or usual if like.delimiter == delimiter else usual
    default = Format(
        delimiter,
        declared.encoding or mark_of(head) or like.encoding or "utf8",
        declared.decimal or usual,
        declared.skip,
    )
    form = Format(delimiter, encoding, declared.decimal or decimal, titles)
    halves = [cells_of_line(line, delimiter) for line in lines[titles:] if line.count('"') % 2]
    broken = len(halves) > 1 and all(len(row) < len(names) for row in halves[1::2])
    return Look(form, default, trailing, (), tuple(name.strip() for name in names), broken)


def titles_of(path: Path, declared: Format) -> int:
    """The number of lines above the header of a public file."""
    return look(path, declared._replace(skip=None)).form.skip or 0


def _shape(lines: list[str], declared: Format) -> tuple[str, int]:
    """The delimiter and the number of title lines with which most lines have the same number of cells."""
    best: tuple[tuple[bool, float, int], str, int] = ((False, -1.0, 0), declared.delimiter or ",", 0)
    for sign in declared.delimiter or _SIGNS:
        sizes = [len(without_trailing(cells_of_line(line, sign))) if line.strip() else 0 for line in lines]
        filled = Counter(size for size in sizes if size)
        if not filled:
            continue
        usual = max(filled, key=lambda size: (filled[size], size))
        first = next(place for place, size in enumerate(sizes) if size)
        titles = declared.skip if declared.skip is not None else first
        if declared.skip is None and sizes[first] != usual and usual > 1:
            places = [place for place, size in enumerate(sizes) if size == usual][:_TITLES]
            headers = [
                place for place in places if is_header(without_trailing(cells_of_line(lines[place], sign)))
            ]
            titles = headers[0] if headers else first
        filled_sizes = [size for size in sizes[titles:] if size]
        share = sum(size == usual for size in filled_sizes) / len(filled_sizes)
        score = (usual > 1, share if share < _ALIKE else 1.0, usual)
        if score > best[0]:
            best = score, sign, titles if titles <= _TITLES else 0
    blank = best[2] and not any(line.strip() for line in lines[: best[2]])
    return best[1], 0 if blank else best[2]  # blank lines above a header are left out without being asked to


def _of_workbook(path: Path, declared: Format) -> Look:
    """The sheet that looks like a table, and the rows above its header."""
    sheet_names = sheets(path)
    usual = declared._replace(sheet=declared.sheet or sheet_names[0])
    if declared.sheet is not None and declared.sheet not in sheet_names:
        return Look(usual, usual, False, tuple(sheet_names))
    looks = [(name, *_of_sheet(path, name)) for name in ([declared.sheet] if declared.sheet else sheet_names)]
    name, titles, names, _ = max(looks, key=lambda sheet: sheet[3])  # the first of equals
    titles = titles if declared.skip is None else declared.skip
    return Look(usual._replace(skip=titles, sheet=name), usual, False, tuple(sheet_names), names)


def _of_sheet(path: Path, name: str) -> tuple[int, tuple[str, ...], int]:
    """Rows above the header of a sheet, its names, and how many cells of its first rows are filled."""
    rows = sheet_rows(path, name, most=_LINES)
    sizes = [sum(cell is not None for cell in row) for row in rows]
    filled = Counter(size for size in sizes if size > 1)
    if not filled:
        return 0, (), sum(sizes)
    usual = max(filled, key=lambda size: (filled[size], size))
    for place, row in enumerate(rows[:_TITLES]):
        names = [cell or "" for cell in row]
        while len(names) > 1 and not names[-1]:
            names.pop()
        if len(names) >= usual and is_header(names):
            return place, tuple(names), sum(sizes)
    return 0, (), sum(sizes)
