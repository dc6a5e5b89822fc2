"""Tables of files and data frames: how a file looks, and what its cells hold, each read on its own.

How a file is read is public: by options, by the public file, by its first line, which holds the names of its
columns. A byte that is not of the encoding, a line with another number of cells than the header, and text
where a number is expected concern their own cell or line, which is then missing. Messages quote no cell.

How a file looks before it is read, its encoding, delimiter, decimal sign, title lines and sheets, decides how
a public file is read. What a private one looks like is told to its owner, who then types it.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import datetime as dt
import gzip
import io
import itertools
import math
import re
import zipfile
from collections import Counter
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ostraka.data.parquet import ENDINGS, schema_of, without_views

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Sequence

MISSING = ("", "na", "n/a", "nan", "null", "none", "?")  # lower case; where a number is expected
_SPELLINGS = (*MISSING, "NA", "N/A", "NaN", "Null", "NULL", "None", "NONE")
_NO_VALUE = {"NAType", "NaTType"}  # of pandas, which is not imported for them
_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
_IS_NUMBER = re.compile(_NUMBER, re.ASCII)
_BAD = "\ufffd"  # what a decoder writes for bytes that are not of its encoding
_TORN = re.compile(f"[{_BAD}\ud800-\udfff]")  # or halves of characters, which no encoding writes
_NUMERIC = (int, float, np.integer, np.floating)
_ONE_FORM = {str, int, float, bool, bytes, type(None)}
_SHOWN = 20  # column names in a message
_DATES = ("%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d")  # and ISO 8601 with a time
_ISO_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_DAY = 86_400.0
_DELIMITERS = ",;\t|"
_SAID = {",": "','", ";": "';'", "\t": "tabs", "|": "'|'"}
_HEAD, _LINES = 1 << 20, 20  # of a file: bytes, and lines of a public one, from which its delimiter is told
_BLOCK = 1 << 22  # bytes that are read at a time
_CODES = 1 << 20  # codes of texts that are looked through at a time
_LONGEST = 1 << 20  # bytes of a line, and 256 more for each column: a longer one is missing
EXCEL = {".xlsx", ".xlsm"}
_MARKS = ((codecs.BOM_UTF8, "utf8"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_INSTALL = "pip install openpyxl"
_MOST_TITLES = 1000  # lines above a header
_FEW = 2  # cells of a header, of which none may be empty
# 1.234,56: a point before three digits and a decimal comma cannot be anything but a sign of thousands
_THOUSANDS = r"^[+-]?\d+(\.\d{3})+,\d+$"
_LOOKED, _LOOKED_LINES = 1 << 18, 400  # of a file: bytes, and lines
_TITLES = 50  # lines that may stand above a header
_ALIKE = 0.9  # share of lines with the usual number of cells
_COMMA = re.compile(r"[+-]?\d+(\.\d{3})*,\d+", re.ASCII)
_POINT = re.compile(r"[+-]?\d+\.\d+", re.ASCII)


class Format(NamedTuple):
    """How a file is read; None where nobody has declared it.

    ``delimiter``, ``encoding`` and ``decimal`` sign are those of a CSV file; ``skip`` is the number of lines
    above the header, of a CSV file or a sheet; ``sheet`` is the name of one in a workbook.
    """

    delimiter: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    skip: int | None = None
    sheet: str | None = None

    def checked(self) -> Format:
        """Itself.

        Raises
        ------
        ValueError
            A sign that cannot stand there, or an encoding in which one row decides how others are read.
        """
        if self.delimiter is not None and (len(self.delimiter.encode()) != 1 or self.delimiter in '"\r\n\\'):
            raise ValueError(f"the delimiter must be one ASCII character such as ';', got {self.delimiter!r}")
        if self.skip is not None and not 0 <= self.skip <= _MOST_TITLES:
            raise ValueError(f"lines above the header must be 0 to {_MOST_TITLES}, got {self.skip}")
        if self.decimal not in {None, ".", ","}:
            raise ValueError(f"the decimal sign must be '.' or ',', got {self.decimal!r}")
        if self.encoding is not None and not _is_row_wise(self.encoding):
            raise ValueError(
                f"the encoding must be UTF-8, UTF-16 or a code page such as cp1252, got {self.encoding!r}: "
                "in others one row may decide how the next is read"
            )
        return self

    @property
    def said(self) -> str:
        """A note for the user on an unusual format; empty for UTF-8 with commas."""
        odd = []
        if self.delimiter != ",":
            sign = _SAID.get(self.delimiter or "", repr(self.delimiter))
            odd.append(
                f"with {sign} between cells" + (", so that 3,5 may stand for 3.5" * (self.decimal == ","))
            )
        if self.encoding != "utf8":
            odd.append(f"as {self.encoding} text")
        return f"is read {' and '.join(odd)}" if odd else ""


UNDECLARED = Format()


_USUAL = Format(",", "utf8", ".")


def read(
    path: Path,
    *,
    public: bool,
    form: Format = UNDECLARED,
    like: Table | None = None,
    numbers: Iterable[str] = (),
    missing: Iterable[str] = (),
) -> Table:
    """Read a CSV file (also compressed, as ``.csv.gz``), a Parquet file or an Excel sheet, by its name.

    Parameters
    ----------
    path : Path
    public : bool
        Whether its rows may decide how it is read, and a message may name one. Of a private file only the
        first line does, which names its columns.
    form : Format
        What is declared.
    like : Table, optional
        A public one that decides what is not declared.
    numbers : iterable of str
        Columns of a CSV file to read as numbers at once, if all their cells are.
    missing : iterable of str
        What stands for no number, beside :data:`MISSING`.

    Raises
    ------
    ValueError
        The file is empty, has no rows, no header, repeated names, or is not what its name says; a public file
        has a line with another number of cells than the header.
    OSError
        It is not there or not readable.
    """
    with path.open("rb") as file:
        if not file.read(1):
            raise ValueError(f"{path} is empty: it needs a header line with column names, and rows")
    note = ""
    none = (*MISSING, *(text.strip().lower() for text in missing))
    if path.suffix.lower() in ENDINGS:
        import pyarrow as pa
        from pyarrow import parquet

        schema_of([path])  # refuses two columns of one name, of which read_table would lose one
        try:
            frame = without_views(parquet.read_table(path))
        except (pa.ArrowException, OSError):
            raise ValueError(f"{path} cannot be read as Parquet: is it complete?") from None
    elif path.suffix.lower() in EXCEL:
        # a sheet as text; the first row below its title lines holds the column names
        import pyarrow as pa

        sheet_names = sheets(path)
        if form.checked().sheet is not None and form.sheet not in sheet_names:
            raise ValueError(f"{path} has no sheet {form.sheet!r} (--sheet); it has {', '.join(sheet_names)}")
        header, *rows = sheet_rows(path, form.sheet or sheet_names[0])[form.skip or 0 :] or [[]]
        names = _heads(header)
        check_header(path, names)
        rows = [row for row in rows if any(cell is not None for cell in row)]
        frame = pa.table(
            {
                name: pa.array([row[place] if place < len(row) else None for row in rows], pa.string())
                for place, name in enumerate(names)
            }
        )
    else:
        form, names = text_form(path, form, like=None if like is None else like.form, public=public)
        frame = _csv(path, form, names, public=public, numbers=numbers, missing={*_SPELLINGS, *missing})
        note = form.said
    if not frame.num_rows:
        raise ValueError(f"{path} has column names but no rows")
    form = form._replace(
        delimiter=form.delimiter or ",", encoding=form.encoding or "utf8", decimal=form.decimal or "."
    )
    notes = (f"{path} {note}",) if note else ()
    return Table(path, frame, np.arange(1, frame.num_rows + 1), none, notes, form, public)


def of_frame(frame: Any, *, name: str, public: bool, missing: Iterable[str] = ()) -> Table:
    """A data frame of any library, or a dict of columns, as a table of this name."""
    import pyarrow as pa

    def column(cells: np.ndarray) -> Any:
        values = cells.tolist()
        types = {*map(type, values)} - {type(None)}
        numeric = all(issubclass(kind, _NUMERIC) and kind is not bool for kind in types)
        zones = {cell.tzinfo for cell in values if isinstance(cell, dt.datetime)}
        # of several types, zones or numbers of places, Arrow would make those of the first or finest cell
        if (numeric or len(types) == 1) and len(zones) < 2 and Decimal not in types:
            with contextlib.suppress(pa.ArrowException, OverflowError, TypeError, ValueError):
                return pa.array(values)
        different, places = distinct(cells)
        return pa.array([word(cell) for cell in different]).take(places)

    arrow = pa.table({str(column_name): column(cells) for column_name, cells in named(frame).items()})
    if not arrow.num_rows:
        raise ValueError(f"{name} has no rows")
    none = (*MISSING, *(text.strip().lower() for text in missing))
    return Table(Path(name), arrow, np.arange(1, arrow.num_rows + 1), none, public=public)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Table:
    """Columns of a file and its path. Cells may be private, so the repr does not show them.

    Attributes
    ----------
    path : Path
    frame : pyarrow.Table
        CSV columns are text, but for those that were asked for as numbers: what a column means is decided
        from public rows, not guessed per file.
    numbering : integer array of shape (n_rows,)
        Where each row stands in the file, from 1, the header not counted.
    missing : tuple of str
        Lower case. What stands for no number.
    said : tuple of str
        What is unusual about the file, as sentences for the user.
    form : Format
        Of a CSV file.
    public : bool
        Whether messages may name its rows.
    """

    path: Path
    frame: Any
    numbering: np.ndarray
    missing: tuple[str, ...] = MISSING
    said: tuple[str, ...] = ()
    form: Format = _USUAL
    public: bool = False

    def __len__(self) -> int:
        return int(self.frame.num_rows)

    @property
    def names(self) -> list[str]:
        """Column names, which are public."""
        return list(self.frame.column_names)

    def split(self, chosen: np.ndarray) -> tuple[Table, Table]:
        """The rows where a boolean mask is false, and those where it is true."""
        outside, inside = (
            replace(self, frame=self.frame.filter(mask), numbering=self.numbering[mask])
            for mask in (~chosen, chosen)
        )
        return outside, inside

    def part(self, rows: slice) -> Table:
        """Return a range of rows."""
        start, stop, _ = rows.indices(len(self))
        return replace(self, frame=self.frame.slice(start, stop - start), numbering=self.numbering[rows])

    def without(self, names: Iterable[str]) -> Table:
        """Return the other columns."""
        return replace(self, frame=self.frame.drop_columns(list(names)))

    def require(self, name: str, *, option: str) -> None:
        """Raise unless there is a column of that name."""
        if name in self.names:
            return
        columns = ", ".join(self.names[:_SHOWN]) + (", …" if len(self.names) > _SHOWN else "")
        # a private file without a header has a row in its first line, and it is not shown
        listed = (
            f"its columns are: {columns}"
            if self.public
            else f"the first line names {len(self.names)} columns, and none so"
        )
        raise ValueError(f"{self.path} has no column {name!r} ({option}); {listed}")

    def type_of(self, name: str) -> tuple[Literal["number", "date", "text"], str | None]:
        """What a public column holds in all of its rows, and the format of dates, None for ISO 8601.

        A cell may be missing, but not all.
        """
        import pyarrow as pa

        kind = self.frame.schema.field(name).type
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            return "date", None
        values, strange = self.numbers(name)
        if np.isnan(values).all() and not strange.any():
            return "text", None
        if not strange.any():
            return "number", None
        for form in (None, *_DATES):
            if not self.days(name, form)[1].any():
                return "date", form
        return "text", None

    def numbers(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The column as float64, NaN where there is no number; and the cells that hold something else."""
        import pyarrow as pa
        from pyarrow import compute

        column = self.frame[name]
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.int8())
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            values = np.array(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
            strange = np.isinf(values)
        else:
            texts = self.strings(name)
            if self.form.decimal == ",":
                thousands = compute.match_substring_regex(texts, _THOUSANDS)
                texts = compute.if_else(thousands, compute.replace_substring(texts, ".", ""), texts)
                texts = compute.replace_substring(texts, ",", ".")
            absent = compute.is_in(compute.utf8_lower(texts), pa.array(self.missing))
            nothing = pa.scalar(None, pa.string())
            try:  # Arrow takes these numbers, and names of infinity and NaN
                parsed = compute.cast(compute.if_else(absent, nothing, texts), pa.float64())
            except pa.ArrowInvalid:
                fits = compute.match_substring_regex(texts, f"^{_NUMBER}$")
                fits = compute.and_not(fits, absent)
                parsed = compute.cast(compute.if_else(fits, texts, nothing), pa.float64())
            values = np.array(parsed.to_numpy(zero_copy_only=False))
            strange = ~(np.isfinite(values) | absent.to_numpy(zero_copy_only=False))
        for text in self.missing:  # -999.0 is -999, whether Arrow read numbers or some cell made it read text
            values[values == number(text)] = np.nan
        values[~np.isfinite(values)] = np.nan
        return values, strange

    def days(self, name: str, form: str | None) -> tuple[np.ndarray, np.ndarray]:
        """Dates of a format (None: ISO 8601) as days since 1970, NaN where none is; and what is no date."""
        import pyarrow as pa
        from pyarrow import compute

        column = self.frame[name]
        if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
            return _days(column.cast(pa.timestamp("s"), safe=False)), np.zeros(len(column), dtype=bool)
        codes, texts = self.kinds(name)
        dates = [None if text.lower() in self.missing else text for text in texts]

        def day(text: str | None) -> float:
            if text is None or not _ISO_DAY.match(text):  # Arrow reads nothing else, and asking it takes long
                return math.nan
            try:
                return float(_days(compute.cast(pa.array([text]), pa.timestamp("s")))[0])
            except pa.ArrowInvalid:
                return math.nan

        cells = pa.array(dates, pa.string())
        if form is not None:
            values = _days(compute.strptime(cells, format=form, unit="s", error_is_null=True))
        else:
            try:
                values = _days(compute.cast(cells, pa.timestamp("s")))
            except pa.ArrowInvalid:
                values = np.array([day(text) for text in dates])
        strange = np.isnan(values) & np.array([text is not None for text in dates], dtype=bool)
        return values[codes], strange[codes]

    def strings(self, name: str) -> Any:
        """The column as Arrow text without blanks around it; missing cells are empty, 7.0 is 7."""
        import pyarrow as pa
        from pyarrow import compute

        column = self.frame[name]
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if pa.types.is_integer(column.type):
            column = column.cast(pa.string())
        elif not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            return pa.array([word(cell) for cell in column.to_pylist()], pa.string())
        column = compute.fill_null(compute.utf8_trim_whitespace(text_of(column)), "")
        if compute.any(bad := compute.match_substring(column, _BAD)).as_py():
            column = compute.if_else(bad, "", column)
        joined = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        return joined.cast(pa.string())

    def text(self, name: str) -> list[str]:
        """Return the column as a list of text."""
        texts: list[str] = self.strings(name).to_pylist()
        return texts

    def kinds(self, name: str) -> tuple[np.ndarray, list[str]]:
        """Return each cell's index into the different texts, and these texts in order of first appearance."""
        import pyarrow as pa

        column = self.frame[name]
        if pa.types.is_dictionary(column.type) and pa.types.is_string(column.type.value_type):
            return _kinds(column, lambda texts: replace(self, frame=pa.table({name: texts})).text(name))
        encoded = self.strings(name).dictionary_encode()
        return encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary.to_pylist()

    def row(self, mask: np.ndarray) -> int:
        """The number of the first row of a mask, for messages about public rows."""
        return int(self.numbering[mask.argmax()])


def _kinds(column: Any, read: Callable[[Any], list[str]]) -> tuple[np.ndarray, list[str]]:
    """As :meth:`Table.kinds`, of a column of codes, of which only the different texts are read."""
    joined = column.unify_dictionaries().combine_chunks()
    words = [*read(joined.dictionary), ""]  # the last is that of no value
    codes = joined.indices
    if codes.null_count:
        codes = codes.cast("int64").fill_null(len(words) - 1)
    codes = codes.to_numpy(zero_copy_only=False)
    order: dict[int, None] = {}  # of first appearance
    for start in range(0, len(codes), _CODES):
        if len(order) == len(words):
            break
        different, firsts = np.unique(codes[start : start + _CODES], return_index=True)
        order |= dict.fromkeys(different[np.argsort(firsts)].tolist())
    texts = list(dict.fromkeys(words[code] for code in order))
    places = dict(zip(texts, range(len(texts)), strict=True))
    table = np.array([places.get(word, 0) for word in words])
    if joined.null_count or not np.array_equal(table[:-1], np.arange(len(words) - 1)):
        codes = table[codes]
    return codes, texts


def _days(stamps: Any) -> np.ndarray:
    import pyarrow as pa

    seconds = stamps.cast(pa.int64()).cast(pa.float64())
    if isinstance(seconds, pa.ChunkedArray):
        seconds = seconds.combine_chunks()
    return np.array(seconds.to_numpy(zero_copy_only=False)) / _DAY


def text_form(path: Path, form: Format, *, like: Format | None, public: bool) -> tuple[Format, list[str]]:
    """How a file of text is read, and the names in its first line; for the rest see :func:`read`."""
    usual = like or _USUAL
    delimiter, encoding, decimal, *_ = form.checked()
    with opened(path) as file:
        head = file.read(_HEAD)
    encoding = encoding or mark_of(head)
    if encoding is None:
        encoding = (usual.encoding if not public or is_utf8(path) else "cp1252") or "utf8"
    text = codecs.getincrementaldecoder(encoding)(errors="replace").decode(head).lstrip("\ufeff")
    lines = [line.rstrip("\r") for line in text.split("\n")[form.skip or 0 :] if line.strip()]
    lines = lines[: _LINES if public and len(lines) > 1 else 1]
    if len(lines) > 1 and len(head) == _HEAD:
        lines = lines[:-1]  # cut somewhere
    if delimiter is None:
        # the sign that splits all lines into equally many cells, the most of them; of equals the first
        first = usual.delimiter or ","
        counts = {sign: [len(cells_of_line(line, sign)) for line in lines] for sign in (first, *_DELIMITERS)}
        equal = {sign: n[0] for sign, n in counts.items() if lines and n[0] > 1 and len({*n}) == 1}
        most = equal or {sign: n[0] for sign, n in counts.items() if n}
        delimiter = max(most, key=most.__getitem__, default=first)
    if decimal is None:
        decimal = usual.decimal if usual.delimiter == delimiter else "." if delimiter == "," else ","
    names = cells_of_line(lines[0], delimiter) if lines else []
    check_header(path, without_trailing(names) if len(names) > _FEW else names)
    return Format(delimiter, encoding, decimal, form.skip), names


def spans(path: Path, *, size: int) -> list[tuple[int, int]]:
    """Parts of a file of text, in bytes: whole lines, of about ``size`` bytes together."""
    ends, length = [0], path.stat().st_size
    with path.open("rb") as file:
        while ends[-1] < length:
            file.seek(ends[-1] + size)
            while (block := file.read(_BLOCK)) and b"\n" not in block:
                pass
            ends.append(file.tell() - len(block) + block.index(b"\n") + 1 if block else length)
    return list(itertools.pairwise(ends))


def rows_of_span(
    path: Path,
    span: tuple[int, int],
    form: Format,
    names: Sequence[str],
    *,
    numbers: Iterable[str],
    missing: Iterable[str],
) -> Any:
    """The rows in a part of a private file of text, as an Arrow table; what it holds, :func:`read` has."""
    spellings = {*_SPELLINGS, *missing}
    return _csv(path, form, list(names), public=False, numbers=numbers, missing=spellings, span=span)


def _csv(
    path: Path,
    form: Format,
    names: list[str],
    *,
    public: bool,
    numbers: Iterable[str],
    missing: set[str],
    span: tuple[int, int] | None = None,
) -> Any:
    """A table of text; the given columns are numbers if all of their cells are."""
    import pyarrow as pa
    from pyarrow import csv as reader

    quick = set(numbers) & set(names)
    limit = _LONGEST + 256 * len(names)
    while True:
        typed = dict.fromkeys(names, pa.string()) | dict.fromkeys(quick, pa.float64())
        converting = reader.ConvertOptions(
            column_types=typed,
            null_values=sorted(missing),
            strings_can_be_null=False,
            decimal_point=form.decimal or ".",
        )
        with opened(path) as file:
            if span is not None:
                file.seek(span[0])
            part = file if span is None else _Span(file, span[1])
            lines = _Lines(part, form, len(names), limit=limit, header=span is None or not span[0])
            try:
                frame = reader.read_csv(
                    pa.PythonFile(lines, mode="r"),
                    read_options=reader.ReadOptions(column_names=names, block_size=max(_BLOCK, 2 * limit)),
                    parse_options=reader.ParseOptions(delimiter=form.delimiter or ","),
                    convert_options=converting,
                )
            except pa.ArrowInvalid:
                frame = None
        if public and lines.wrong:
            raise ValueError(
                f"{path} cannot be read as CSV: line {lines.wrong} has another number of cells than the "
                "header"
            )
        if frame is not None:  # without the column that a delimiter at the end of the header makes
            return frame.drop_columns([""]) if "" in names else frame
        if not quick:
            if not lines.n_rows:
                return pa.table({name: pa.array([], pa.string()) for name in names})
            raise ValueError(f"{path} cannot be read as CSV: is it text with a header line?")
        quick = set()  # some cell is no number that Arrow knows


class _Span(NamedTuple):
    """The bytes of a file from its place up to an end."""

    file: Any
    stop: int

    def read(self, size: int) -> bytes:
        data: bytes = self.file.read(min(size, max(0, self.stop - self.file.tell())))
        return data


class _Lines(io.RawIOBase):
    """The rows of a CSV file in clean UTF-8. Each line is mended on its own; the header is left out."""

    def __init__(self, file: Any, form: Format, n_cells: int, *, limit: int, header: bool) -> None:
        self._delimiter, self._n, self._limit = form.delimiter or ",", n_cells, limit
        self._titles = form.skip or 0  # lines above the header
        self._header = header
        self._blocks = self._mended(_decoded(file, form.encoding or "utf8", limit))
        self._rest = memoryview(b"")
        self.n_rows, self.wrong = 0, 0  # rows; the first line with another number of cells
        self._line = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._rest = memoryview(block)
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size

    def _mended(self, blocks: Iterator[str]) -> Iterator[bytes]:
        header = self._header
        for text in blocks:
            block = text.replace("\r\n", "\n").replace("\r", " ").encode()
            while header and block:
                line, _, block = block.partition(b"\n")
                self._line += 1
                header = self._line <= self._titles or not line.strip()
            raw = np.frombuffer(block, dtype=np.uint8)
            ends = np.flatnonzero(raw == ord("\n"))
            counts = [
                np.diff(np.searchsorted(np.flatnonzero(raw == ord(sign)), ends), prepend=0)
                for sign in (self._delimiter, '"')
            ]
            sizes = np.diff(ends, prepend=-1) - 1
            good = (counts[0] == self._n - 1) & (counts[1] == 0) & (sizes <= self._limit) & (sizes > 0)
            if not good.all():
                lines = block.split(b"\n")
                for place in np.flatnonzero(~good).tolist():
                    # as Arrow reads it: with the right number of cells, in quotes where needed, or blank
                    line = lines[place]
                    if not line.strip():
                        lines[place] = b""
                        continue
                    cells = cells_of_line(line.decode(), self._delimiter) if len(line) <= self._limit else []
                    if len(cells) == self._n + 1:
                        cells = without_trailing(cells)
                    if len(cells) != self._n:
                        self.wrong = self.wrong or self._line + place + 1
                        cells = [_BAD] * self._n
                    quoted = io.StringIO()
                    csv.writer(quoted, delimiter=self._delimiter, lineterminator="").writerow(cells)
                    lines[place] = quoted.getvalue().encode()
                block = b"\n".join(lines)
            self.n_rows += int(np.count_nonzero(sizes))
            self._line += len(ends)
            yield block


def _decoded(file: Any, encoding: str, limit: int) -> Iterator[str]:
    """Whole lines of text, each block ending with a line break. A line that is far too long is cut."""
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    carry, first = "", True
    while data := file.read(_BLOCK):
        text = decoder.decode(data)
        text, first = (text.lstrip("\ufeff") if first else text), False
        head, line_break, tail = text.rpartition("\n")
        if line_break:
            yield carry + head + line_break
            carry = tail
        else:
            carry = (carry + text)[: limit + 1]
    if carry := carry + decoder.decode(b"", final=True):
        yield carry + "\n"


def cells_of_line(line: str, delimiter: str) -> list[str]:
    """The cells of one line; none where a cell is larger than the csv module takes."""
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


def without_trailing(cells: list[str]) -> list[str]:
    """The cells of a line without the empty one that a delimiter at its end makes."""
    return cells[:-1] if len(cells) > 1 and not cells[-1].strip() else cells


def mark_of(head: bytes) -> str | None:
    """The encoding that a file's first bytes name."""
    return next((name for mark, name in _MARKS if head.startswith(mark)), None)


def opened(path: Path) -> Any:
    """A file of bytes, which may be compressed."""
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb")


def is_utf8(path: Path) -> bool:
    """Whether all bytes of a file are UTF-8."""
    decoder = codecs.getincrementaldecoder("utf8")()
    try:
        with opened(path) as file:
            while block := file.read(_BLOCK):
                decoder.decode(block)
            decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _is_row_wise(encoding: str) -> bool:
    """Whether a byte means the same wherever it stands, or the encoding is a Unicode form of whole units."""
    try:
        name = codecs.lookup(encoding).name
        if name in {"utf-8", "utf-8-sig"} or name.startswith("utf-16"):
            return True
        alone = [bytes([byte]).decode(encoding, "replace") for byte in range(256)]
        orders = (bytes(range(256)), bytes(range(255, -1, -1)))
        decoded = [text.decode(encoding, "replace") for text in orders]
    except (LookupError, UnicodeError):
        return False
    return alone[:128] == [chr(byte) for byte in range(128)] and decoded == [
        "".join(alone),
        "".join(alone[::-1]),
    ]


def check_header(path: Path, names: Sequence[str]) -> None:
    """Refuse a first line which cannot be column names, without showing it: it may be a private row."""
    if not is_header(names):
        raise ValueError(
            f"the first line of {path} does not look like column names (one is empty, a number or repeated): "
            "add a header line, or type --skip-lines N if N lines stand above it"
        )


def is_header(names: Sequence[str]) -> bool:
    """Whether the cells of a line can be column names: none is empty, a number or repeated."""
    bad = any(not name.strip() or _IS_NUMBER.fullmatch(name.strip()) for name in names)
    return bool(names) and not bad and len(set(names)) == len(names)


def sheets(path: Path) -> list[str]:
    """Names of the sheets of a workbook."""
    try:
        import openpyxl  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise ValueError(f"{path} is an Excel file: type {_INSTALL}, or save it as CSV") from None
    try:
        return list(openpyxl.load_workbook(path, read_only=True).sheetnames)
    except Exception:  # noqa: BLE001  (whatever it was, its message may quote a cell)
        raise _no_workbook(path) from None


def sheet_rows(path: Path, name: str, *, most: int | None = None) -> list[list[str | None]]:
    """The first rows of a sheet, as text."""
    import openpyxl

    try:
        sheet = openpyxl.load_workbook(path, read_only=True, data_only=True)[name]
        return [
            [
                None if cell is None else str(cell.isoformat()) if hasattr(cell, "isoformat") else word(cell)
                for cell in line
            ]
            for line in itertools.islice(sheet.values, most)
        ]
    except Exception:  # noqa: BLE001
        raise _no_workbook(path) from None


def _heads(row: list[str | None]) -> list[str]:
    """The names in a row of a sheet, without those of columns which are formatted, and empty."""
    names = [cell or "" for cell in row]
    while len(names) > 1 and not names[-1]:
        names.pop()
    return names


def _no_workbook(path: Path) -> ValueError:
    return ValueError(f"{path} cannot be read as Excel: is it complete, and is that its format?")


def read_arrays(path: Path, *, how: str, only: Container[str] | None = None) -> dict[str, np.ndarray]:
    """The arrays of an ``.npz`` file by name, or those named in ``only``; ``how`` says how to write one.

    Raises
    ------
    ValueError
        It is not such a file, or holds pickled objects, which are not opened.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files if only is None or name in only}
    except (ValueError, zipfile.BadZipFile, EOFError, AttributeError, TypeError):
        pass  # its message may quote what is in the file
    raise ValueError(f"{path} cannot be read as .npz with plain arrays: write it by {how}")


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
        head = file.read(_LOOKED)
    encoding = declared.encoding or mark_of(head) or ("utf8" if is_utf8(path) else "cp1252")
    text = codecs.getincrementaldecoder(encoding)(errors="replace").decode(head).lstrip("\ufeff")
    lines = [line.rstrip("\r") for line in text.split("\n")]
    if len(head) == _LOOKED:
        lines.pop()  # cut somewhere
    lines = lines[: (declared.skip or 0) + _LOOKED_LINES]
    delimiter, titles = _layout(lines, declared)

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


def _layout(lines: list[str], declared: Format) -> tuple[str, int]:
    """The delimiter and the number of title lines with which most lines have the same number of cells."""
    best = (False, -1.0, 0), declared.delimiter or ",", declared.skip or 0
    for sign in declared.delimiter or _DELIMITERS:
        sizes = [len(without_trailing(cells_of_line(line, sign))) if line.strip() else 0 for line in lines]
        filled = Counter(size for size in sizes[declared.skip or 0 :] if size)
        if not filled:
            continue
        common = max(filled, key=lambda size: (filled[size], size))
        first = next(place for place, size in enumerate(sizes) if size)
        titles = declared.skip if declared.skip is not None else first
        if declared.skip is None and sizes[first] != common and common > 1:
            places = [place for place, size in enumerate(sizes) if size == common][:_TITLES]
            headers = (
                place for place in places if is_header(without_trailing(cells_of_line(lines[place], sign)))
            )
            titles = next(headers, first)
        filled_sizes = [size for size in sizes[titles:] if size]
        share = sum(size == common for size in filled_sizes) / len(filled_sizes)
        score = (common > 1, share if share < _ALIKE else 1.0, common)
        if score > best[0]:
            best = score, sign, titles if declared.skip is not None or titles <= _TITLES else 0
    _, delimiter, titles = best
    if not any(line.strip() for line in lines[:titles]):
        titles = 0  # blank lines above a header are left out without being asked to
    return delimiter, titles


def titles_of(path: Path, declared: Format) -> int:
    """The number of lines above the header of a public file."""
    return look(path, declared._replace(skip=None)).form.skip or 0


def _of_workbook(path: Path, declared: Format) -> Look:
    """The sheet that looks like a table, and the rows above its header."""
    sheet_names = sheets(path)
    usual = declared._replace(sheet=declared.sheet or sheet_names[0])
    if declared.sheet is not None and declared.sheet not in sheet_names:
        return Look(usual, usual, False, tuple(sheet_names))
    n_cells, sheet, titles, names = -1, "", 0, tuple[str, ...]()
    for name in [declared.sheet] if declared.sheet else sheet_names:
        rows = sheet_rows(path, name, most=_LOOKED_LINES)
        sizes = [sum(cell is not None for cell in row) for row in rows]
        if sum(sizes) <= n_cells:  # the sheet of which most cells are filled, the first of equals
            continue
        n_cells, sheet, titles, names = sum(sizes), name, 0, ()
        filled = Counter(size for size in sizes if size > 1)
        common = max(filled, key=lambda size: (filled[size], size), default=0)
        for place, heads in enumerate(map(_heads, rows[:_TITLES] if common else [])):
            if len(heads) >= common and is_header(heads):
                titles, names = place, tuple(heads)
                break
    titles = titles if declared.skip is None else declared.skip
    return Look(usual._replace(skip=titles, sheet=sheet), usual, False, tuple(sheet_names), names)


def is_missing(cell: Any) -> bool:
    """Whether a cell of an array or a frame holds no value: None, NaN, NA."""
    return cell is None or (isinstance(cell, float) and math.isnan(cell)) or type(cell).__name__ in _NO_VALUE


def number(cell: Any) -> float:
    """A cell as a number; NaN if it is none, is not finite, or is missing.

    >>> number(" 1e3"), number(True), number("nan(1)"), number("1_000"), number(None)
    (1000.0, 1.0, nan, nan, nan)
    """
    if isinstance(cell, bytes | str):
        cell = word(cell)
        if not _IS_NUMBER.fullmatch(cell):
            return math.nan
    elif is_missing(cell):
        return math.nan
    try:
        value = float(cell)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return value if math.isfinite(value) else math.nan


def word(cell: Any) -> str:
    r"""A cell as text without blanks around it, empty if it is missing; 7.0 is 7, and dates are ISO 8601.

    >>> word(7.0), word(" cook "), word(None), word(b"caf\xe9")
    ('7', 'cook', '', '')
    """
    if isinstance(cell, bytes):
        cell = cell.decode(errors="replace")
    if isinstance(cell, str):
        return "" if _TORN.search(cell) else cell.strip()
    if isinstance(cell, np.datetime64):
        cell = cell.astype("datetime64[us]").item()
    if is_missing(cell):
        return ""
    if isinstance(cell, float | np.floating) and float(cell).is_integer():
        return str(int(cell))
    return cell.isoformat() if isinstance(cell, dt.date) else written(cell)


def written(cell: Any) -> str:
    """A cell as Python writes it, without blanks around it; empty where a whole number is too long for that.

    >>> written(7.0), written(10**9999)
    ('7.0', '')
    """
    try:
        return str(cell).strip()
    except ValueError:  # of more than 4,300 digits
        return ""


def numbers(cells: Any) -> np.ndarray:
    """A column as float64, each cell by :func:`number`; a zero has no sign."""
    array = cells_of(cells)
    if array.dtype.kind == "O" and {*map(type, array)} <= {float, type(None)}:
        array = array.astype(np.float64)
    if array.dtype.kind in "biuf":
        values = array.astype(np.float64)
        return np.where(np.isfinite(values), values + 0.0, np.nan)
    different, places = distinct(array)  # in which -0.0 is 0.0
    return np.asarray(np.array([number(cell) for cell in different], dtype=np.float64)[places]) + 0.0


def distinct(cells: Any) -> tuple[list[Any], np.ndarray]:
    """The different cells of a column, and the place of each cell among them; 1, 1.0 and True are different.

    A table repeats its cells: what is made of a cell alone is made once of all that are read alike.
    """
    array = cells_of(cells)
    if array.dtype.kind != "O":
        values, places = np.unique(array, return_inverse=True)
        return values.tolist(), places.ravel()
    column = array.tolist()
    types = {*map(type, column)} - {str, type(None)}
    plain = types <= {int} or types <= {float}
    keys = column if plain else [_key(cell) for cell in column]
    first = dict(zip(reversed(keys), reversed(column), strict=True))
    place = {key: code for code, key in enumerate(first)}
    return list(first.values()), np.fromiter(map(place.__getitem__, keys), dtype=np.int64, count=len(keys))


def _key(cell: Any) -> Any:
    """Equal for cells that are read alike. Equal moments and decimal numbers may be written in two ways."""
    if type(cell) in _ONE_FORM or isinstance(cell, np.generic):
        return type(cell), cell
    return (type(cell), str(cell)) if isinstance(cell, dt.date | Decimal) else id(cell)


def cells_of(values: Any) -> np.ndarray:
    """A column as an array; the cells of a list keep their types, where an array would make all text."""
    if isinstance(values, list | tuple):
        return np.fromiter(values, dtype=object, count=len(values))
    array = np.asarray(values)
    return array.astype("datetime64[us]").astype(object) if array.dtype.kind == "M" else array


def named(frame: Any) -> dict[str, np.ndarray]:
    """The columns of a data frame of any library, or of a dict of columns, by name."""
    if hasattr(frame, "keys") and not hasattr(frame, "columns") and not hasattr(frame, "schema"):
        return {str(name): cells_of(frame[name]) for name in frame.keys()}  # noqa: SIM118  (any mapping)
    import narwhals

    def cells(column: Any) -> np.ndarray:
        # one missing value makes an array of whole numbers one of floats, and gives dates another text; only
        # numbers are the same from an array and from a list
        plain = column.dtype.is_integer() or column.dtype.is_float() or column.dtype == narwhals.Boolean
        return cells_of(column.to_numpy() if plain and not column.null_count() else column.to_list())

    table = narwhals.from_native(frame, eager_only=True)
    return {name: cells(table.get_column(name)) for name in table.columns}  # some are numbers


def text_of(column: Any) -> Any:
    """An Arrow column of text; a cell that is not UTF-8 holds a mark that stands for no value."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        cells = column.cast(pa.large_binary()).to_pylist()
        return pa.array([None if cell is None else cell.decode(errors="replace") for cell in cells])
    return column


def rows(X: Any, estimator: Any, *, single: bool = False) -> Any:
    """Check the rows. CSR matrices and data frames keep their type.

    ``single``: numbers as float32, for a torch network; a sparse matrix stays sparse until it is trained on.
    """
    from scipy.sparse import issparse
    from sklearn.utils import get_tags

    X = X.tocsr() if issparse(X) else X if hasattr(X, "iloc") else np.asarray(X)
    if len(X.shape) < 2 or not X.shape[0]:
        raise ValueError(f"X must have shape (n_rows, n_features) with one row or more, got {X.shape}")
    values = X.data if issparse(X) else X
    floats = isinstance(values, np.ndarray) and values.dtype.kind == "f"
    if floats and not np.isfinite(values).all() and not get_tags(estimator).input_tags.allow_nan:
        raise ValueError(f"X of shape {X.shape} must be finite: drop or fill the rows with NaN or infinity")
    if not single:
        return X
    try:
        with np.errstate(over="ignore"):  # a value that is too large makes its teacher fail
            return X.astype(np.float32) if issparse(X) else np.asarray(X, dtype=np.float32)
    except (TypeError, ValueError, OverflowError):  # its text would quote a value
        pass
    raise ValueError("X must hold numbers only, for a torch network: encode its text first")


def selected(X: Any, rows: np.ndarray) -> Any:
    """Some rows of an array, a CSR matrix or a data frame."""
    if isinstance(X, np.ndarray):
        return X.take(rows, axis=0)  # the same as X[rows], several times as fast
    from sklearn.utils import _safe_indexing

    return _safe_indexing(X, rows)


def feature_table(features: Any, name: str, *, clip: bool = False) -> np.ndarray:
    """Check features, and return them as finite float32 numbers; ``clip``: larger ones count as the ends."""
    from scipy.sparse import issparse

    if issparse(features):
        raise ValueError(
            f"{name} must have dense features, got a sparse matrix: end the transformer with TruncatedSVD, "
            "fitted on public rows, or call toarray()"
        )
    table = None
    try:
        with np.errstate(over="ignore"):
            table = np.ascontiguousarray(features, dtype=np.float32)
    except (TypeError, ValueError, OverflowError):  # its text would quote a value
        table = None
    if table is None:
        raise ValueError(f"{name} must have numbers as features: give a transformer that makes them")
    if table.ndim != 2 or not table.size:
        raise ValueError(
            f"{name} must have shape (n_rows, n_features), with one row or more, got {table.shape}"
        )
    if clip and np.isinf(table).any():
        wide, end = np.asarray(features, dtype=np.float64), np.finfo(np.float32).max
        table = np.where(np.isfinite(wide), np.clip(wide, -end, end), np.nan).astype(np.float32)
    if not np.isfinite(table).all():
        raise ValueError(
            f"{name} of shape {table.shape} must be finite and below 3e38: drop or fill the rows"
        )
    return table
