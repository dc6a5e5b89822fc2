"""Read tables from CSV in any common encoding and delimiter, Parquet and Excel. Messages quote no cell."""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

__all__ = ["Format", "csv_table", "excel_table", "parquet_table", "sniffed"]

_SAMPLE = 1 << 18  # bytes
_LINES = 20
_DELIMITERS = ",;\t|"
_NAMES = {",": "','", ";": "';'", "\t": "tabs", "|": "'|'"}
_INSTALL = "pip install openpyxl"


class Format(NamedTuple):
    """Encoding and delimiter of a CSV file."""

    delimiter: str = ","
    encoding: str = "utf8"

    @property
    def said(self) -> str:
        """A note for the user on an unusual format; empty for UTF-8 with commas."""
        odd = []
        if self.delimiter != ",":
            odd.append(f"with {_NAMES[self.delimiter]} between cells, so that 3,5 may stand for 3.5")
        if self.encoding != "utf8":
            odd.append(f"as {self.encoding} text")
        return f"is read {' and '.join(odd)}" if odd else ""


def sniffed(path: Path) -> Format:
    """Detect encoding and delimiter from the beginning of the file."""
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rb") as file:
        head = file.read(_SAMPLE)
    encoding = _encoding(head)
    text = codecs.getincrementaldecoder(encoding)(errors="replace").decode(head)
    lines = text.splitlines()
    if len(head) == _SAMPLE:
        lines = lines[:-1]  # cut somewhere
    return Format(_delimiter(lines[:_LINES]), encoding)


def csv_table(
    path: Path, form: Format, *, numbers: Iterable[str] = (), missing: Iterable[str] = ()
) -> tuple[Any, Format]:
    """Read a table of text; the given columns become numbers if all of their cells are.

    The second value is the format that was used: the beginning of a file may be UTF-8 where its end is not.
    All of it is then read as Windows text.

    Raises
    ------
    ValueError
        Not such a file, or no header; the message says which line, and never what is in it.
    """
    import pyarrow as pa
    from pyarrow import csv as reader

    parsing = reader.ParseOptions(delimiter=form.delimiter)
    with contextlib.suppress(pa.ArrowException, UnicodeError):
        names = _header(path, form)
        typed = dict.fromkeys(names, pa.string()) | dict.fromkeys(set(numbers) & set(names), pa.float64())
        converting = reader.ConvertOptions(
            column_types=typed, null_values=sorted(missing), strings_can_be_null=False
        )
        reading = reader.ReadOptions(encoding=form.encoding, block_size=1 << 22)
        table = reader.read_csv(path, read_options=reading, parse_options=parsing, convert_options=converting)
        return table, form
    if numbers:
        return csv_table(path, form, missing=missing)
    if form.encoding == "utf8" and not _is_utf8(path):
        return csv_table(path, form._replace(encoding="cp1252"), missing=missing)
    raise ValueError(f"{path} cannot be read as CSV: {_why(path, form)}")


def parquet_table(path: Path) -> Any:
    """Read a Parquet file with the types that it declares."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        names = parquet.read_schema(path).names
        table = None if len(set(names)) < len(names) else parquet.read_table(path)
    except (pa.ArrowException, OSError):
        raise ValueError(
            f"{path} cannot be read as Parquet: is it complete, and is that its format?"
        ) from None
    if table is None:
        raise ValueError(f"{path} has two columns of one name: rename one")
    return table


def excel_table(path: Path) -> Any:
    """The first sheet of a workbook, as text; its first row holds the column names."""
    import pyarrow as pa

    try:
        import openpyxl  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise ValueError(f"{path} is an Excel file: type {_INSTALL}, or save it as CSV") from None
    try:
        rows = openpyxl.load_workbook(path, read_only=True, data_only=True).worksheets[0].values
        names, *cells = [[_cell(value) for value in row] for row in rows]
    except Exception:  # noqa: BLE001  (whatever it was, its message may quote a cell)
        raise ValueError(f"{path} cannot be read as Excel: is it complete, and is that its format?") from None
    check_header(path, [name or "" for name in names])
    return pa.table({name: pa.array([row[k] for row in cells], pa.string()) for k, name in enumerate(names)})


def check_header(path: Path, names: Sequence[str]) -> None:
    """Refuse a first line that cannot be column names, without showing it: it may be a private row."""
    if len(set(names)) < len(names) or any(not name.strip() or _is_number(name) for name in names):
        raise ValueError(
            f"the first line of {path} does not look like column names (one is empty, a number or repeated): "
            "add a header line"
        )


def _header(path: Path, form: Format) -> list[str]:
    from pyarrow import csv as reader

    reading = reader.ReadOptions(encoding=form.encoding)
    with reader.open_csv(
        path, read_options=reading, parse_options=reader.ParseOptions(delimiter=form.delimiter)
    ) as opened:
        names: list[str] = opened.schema.names
    check_header(path, names)
    return names


def _why(path: Path, form: Format) -> str:
    """Find the wrong line, because the parser's own message would quote the row."""
    import pyarrow as pa
    from pyarrow import csv as reader

    bad_rows: list[int | None] = []

    def refuse(row: Any) -> str:
        bad_rows.append(row.number)
        return "error"

    with contextlib.suppress(pa.ArrowException, UnicodeError):
        reader.read_csv(
            path,
            read_options=reader.ReadOptions(use_threads=False, encoding=form.encoding),
            parse_options=reader.ParseOptions(delimiter=form.delimiter, invalid_row_handler=refuse),
        )
    if any(bad_rows):
        return f"line {bad_rows[0]} has another number of cells than the header"
    return "it must be text with commas, semicolons, tabs or '|' between cells and a header line"


def _encoding(head: bytes) -> str:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    for encoding in ("utf8", "cp1252"):
        with contextlib.suppress(UnicodeDecodeError):
            codecs.getincrementaldecoder(encoding)().decode(head)
            return encoding
    return "latin-1"


def _is_utf8(path: Path) -> bool:
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    decoder = codecs.getincrementaldecoder("utf8")()
    with opened(path, "rb") as file, contextlib.suppress(UnicodeDecodeError):
        while block := file.read(1 << 20):
            decoder.decode(block)
        return True
    return False


def _delimiter(lines: list[str]) -> str:
    """Return the delimiter that splits all lines into the same number of cells, the largest possible."""

    def cells(delimiter: str) -> list[int]:
        return [len(row) for row in csv.reader(io.StringIO("\n".join(lines)), delimiter=delimiter) if row]

    counts = {delimiter: cells(delimiter) for delimiter in _DELIMITERS if lines}
    same = {each: rows[0] for each, rows in counts.items() if rows and rows[0] > 1 and len(set(rows)) == 1}
    first = same or {each: rows[0] for each, rows in counts.items() if rows}
    return max(first, key=first.__getitem__) if first else ","


def _cell(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
