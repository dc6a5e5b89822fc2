"""Tables whose columns are read as text, numbers, dates or categories. Messages never quote a cell."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.cli import _read

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["MISSING", "Table", "read", "release_unused"]

MISSING = ("", "na", "n/a", "nan", "null", "none", "?")  # lower case; where a number is expected
_SPELLINGS = (*MISSING, "NA", "N/A", "NaN", "Null", "NULL", "None", "NONE")
_SHOWN = 20  # column names in a message
_DATES = ("%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d")  # and ISO 8601 with a time
_DAY = 86_400.0
_USUAL = _read.Format()


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
        Delimiter and encoding of a CSV file.
    """

    path: Path
    frame: Any
    numbering: np.ndarray
    missing: tuple[str, ...] = MISSING
    said: tuple[str, ...] = ()
    form: _read.Format = _USUAL

    def __len__(self) -> int:
        return int(self.frame.num_rows)

    @property
    def decimal_comma(self) -> bool:
        """Whether 3,5 may be a number: where cells are not separated by commas."""
        return self.form.delimiter != ","

    @property
    def names(self) -> list[str]:
        """Column names, which are public."""
        return list(self.frame.column_names)

    def split(self, chosen: np.ndarray) -> tuple[Table, Table]:
        """The rows where a boolean mask is false, and those where it is true."""
        rest, taken = (
            self._with(self.frame.filter(mask), self.numbering[mask]) for mask in (~chosen, chosen)
        )
        return rest, taken

    def part(self, rows: slice) -> Table:
        """Return a range of rows."""
        start, stop, _ = rows.indices(len(self))
        return self._with(self.frame.slice(start, stop - start), self.numbering[rows])

    def without(self, names: Iterable[str]) -> Table:
        """Return the other columns."""
        return self._with(self.frame.drop_columns(list(names)), self.numbering)

    def require(self, name: str, *, option: str) -> None:
        """Raise unless there is a column of that name."""
        if name not in self.names:
            raise ValueError(f"{self.path} has no column {name!r} ({option}); {self._listed()}")

    def is_numeric(self, name: str) -> bool:
        """Return whether every cell is a number, a date or missing, and at least one is not missing."""
        numbers, bad = self.numbers(name)
        return bad is None and bool(np.isfinite(numbers).any())

    def holds_dates(self, name: str) -> bool:
        """Return whether the numbers of a column are dates, in days since 1970."""
        import pyarrow as pa

        kind = self.frame.schema.field(name).type
        if pa.types.is_temporal(kind):
            return True
        return bool(pa.types.is_string(kind)) and self._floats(name)[1] is not None and self.is_numeric(name)

    def date_format(self, name: str) -> str | None:
        """Return the format of a text column's dates; None if they have a date type or are in ISO 8601."""
        import pyarrow as pa

        is_text = pa.types.is_string(self.frame.schema.field(name).type)
        return self._dated(name)[1] if is_text else None

    def numbers(self, name: str) -> tuple[np.ndarray, int | None]:
        """The column as float64 with NaN where missing, and the first data row that holds text."""
        import pyarrow as pa

        column = self.frame[name]
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.int8())
        if pa.types.is_temporal(column.type):
            return _days(column.cast(pa.timestamp("s"), safe=False)), None
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            values = column.cast(pa.float64(), safe=False).to_numpy()
            return np.array(values, dtype=np.float64), None
        numbers, bad = self._floats(name)
        if bad is None:
            return numbers, None
        stamps, _ = self._dated(name)
        return (numbers, bad) if stamps is None else (_days(stamps), None)

    def strings(self, name: str) -> Any:
        """The column as Arrow text without blanks around it; missing cells are empty, 7.0 is 7."""
        import pyarrow as pa
        from pyarrow import compute

        column = self.frame[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            return pa.array([_spelled(cell) for cell in column.to_pylist()], pa.string())
        return compute.fill_null(compute.utf8_trim_whitespace(column), "").combine_chunks()

    def text(self, name: str) -> list[str]:
        """Return the column as a list of text."""
        texts: list[str] = self.strings(name).to_pylist()
        return texts

    def kinds(self, name: str) -> tuple[np.ndarray, list[str]]:
        """Return each cell's index into the different texts, and these texts in order of first appearance."""
        encoded = self.strings(name).dictionary_encode()
        return encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary.to_pylist()

    def _floats(self, name: str) -> tuple[np.ndarray, int | None]:
        import pyarrow as pa
        from pyarrow import compute

        try:
            return np.array(
                compute.cast(self._present(name), pa.float64()).to_numpy(zero_copy_only=False)
            ), None
        except pa.ArrowInvalid:
            return self._slowly(name)

    def _slowly(self, name: str) -> tuple[np.ndarray, int | None]:
        """Parse each different text by Python's ``float``, which accepts more spellings than Arrow."""
        codes, texts = self.kinds(name)
        values = np.full(len(texts), np.nan)
        bad = np.zeros(len(texts), dtype=bool)
        for place, text in enumerate(texts):
            if text.lower() not in self.missing:
                try:
                    values[place] = float(text.replace(",", ".") if self.decimal_comma else text)
                except ValueError:
                    bad[place] = True
        wrong = bad[codes]
        return values[codes], int(self.numbering[wrong.argmax()]) if wrong.any() else None

    def days(self, name: str, form: str | None) -> tuple[np.ndarray, int | None]:
        """Parse dates of a format (None: ISO 8601) as days since 1970, and find the first row without one."""
        import pyarrow as pa

        column = self.frame[name]
        if pa.types.is_temporal(column.type):
            return _days(column.cast(pa.timestamp("s"), safe=False)), None
        try:
            return _days(_stamps(self._present(name), form)), None
        except pa.ArrowInvalid:
            codes, texts = self.kinds(name)
            wrong = np.array([text.lower() not in self.missing and _is_bad(text, form) for text in texts])[
                codes
            ]
            return np.full(len(codes), np.nan), int(self.numbering[wrong.argmax()])

    def _dated(self, name: str) -> tuple[Any, str | None]:
        """Return times if every cell is a date or missing, else None; and the format, None for ISO 8601."""
        import pyarrow as pa

        cells = self._present(name)
        if cells.null_count < len(cells):
            for form in (None, *_DATES):
                with contextlib.suppress(pa.ArrowInvalid):
                    return _stamps(cells, form), form
        return None, None

    def _present(self, name: str) -> Any:
        """Return the column as text, with null for a missing number."""
        import pyarrow as pa
        from pyarrow import compute

        strings = self.strings(name)
        empty = compute.is_in(compute.utf8_lower(strings), pa.array(self.missing))
        return compute.if_else(empty, pa.scalar(None, pa.string()), strings)

    def _listed(self) -> str:
        """Return the column names for a message, unless the first line seems to be a row of data."""
        if any(name.strip() in self.text(name) for name in self.names):
            return "its first line looks like a row: add a header line with column names"
        return (
            "its columns are: " + ", ".join(self.names[:_SHOWN]) + (", …" if len(self.names) > _SHOWN else "")
        )

    def _with(self, frame: Any, numbering: np.ndarray) -> Table:
        return Table(self.path, frame, numbering, self.missing, self.said, self.form)


def read(path: Path, *, numbers: Iterable[str] = (), missing: Iterable[str] = ()) -> Table:
    """Read a CSV file (also compressed, as ``.csv.gz``), a Parquet file or an Excel sheet, by its name.

    Parameters
    ----------
    path : Path
    numbers : iterable of str
        Columns of a CSV file to read as numbers at once, if all their cells are.
    missing : iterable of str
        What stands for no number, beside :data:`MISSING`.

    Raises
    ------
    ValueError
        The file is empty, has no rows, no header, repeated names, or is not what its name says.
    OSError
        It is not there or not readable.
    """
    with path.open("rb") as file:
        if not file.read(1):
            raise ValueError(f"{path} is empty: it needs a header line with column names, and rows")
    form = _USUAL
    none = (*MISSING, *(text.strip().lower() for text in missing))
    if path.suffix.lower() in {".parquet", ".pq"}:
        frame = _read.parquet_table(path)
    elif path.suffix.lower() in {".xlsx", ".xlsm"}:
        frame = _read.excel_table(path)
    else:
        frame, form = _read.csv_table(
            path, _read.sniffed(path), numbers=numbers, missing={*_SPELLINGS, *missing}
        )
    if not frame.num_rows:
        raise ValueError(f"{path} has column names but no rows")
    said = (f"{path} {form.said}",) if form.said else ()
    return Table(path, frame, np.arange(1, frame.num_rows + 1), none, said, form)


def release_unused() -> None:
    """Give the memory of tables that are not used any more back to the system."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


def _days(stamps: Any) -> np.ndarray:
    import pyarrow as pa

    seconds = stamps.cast(pa.int64()).cast(pa.float64())
    if isinstance(seconds, pa.ChunkedArray):
        seconds = seconds.combine_chunks()
    return np.array(seconds.to_numpy(zero_copy_only=False)) / _DAY


def _stamps(cells: Any, form: str | None) -> Any:
    """Convert text to times; raise ArrowInvalid for a cell that is not a time."""
    import pyarrow as pa
    from pyarrow import compute

    if form is None:
        return compute.cast(cells, pa.timestamp("s"))
    return compute.strptime(cells, format=form, unit="s")


def _is_bad(text: str, form: str | None) -> bool:
    import pyarrow as pa

    try:
        _stamps(pa.array([text]), form)
    except pa.ArrowInvalid:
        return True
    return False


def _spelled(cell: Any) -> str:
    if cell is None or cell != cell:  # noqa: PLR0124  (NaN differs from itself)
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).strip()
