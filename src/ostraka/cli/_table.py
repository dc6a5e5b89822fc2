"""Tables on disk: CSV and Parquet in, columns of text or numbers out; messages never quote a cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    import narwhals as nw

__all__ = ["MISSING", "Table", "read"]

MISSING = ("", "na", "n/a", "nan", "null", "none", "?")  # lower case; where a number is expected
_SHOWN = 20  # column names in a message


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Table:
    """A data frame and where it came from. Its cells may be private: it does not print them.

    Attributes
    ----------
    path : Path
    frame : narwhals DataFrame
        CSV columns are all text: what a column means is decided from public rows, not guessed per file.
    numbering : integer array of shape (n_rows,)
        Where each row stands in the file, from 1, the header not counted.
    """

    path: Path
    frame: nw.DataFrame[Any]
    numbering: np.ndarray

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def names(self) -> list[str]:
        """Column names, which are public."""
        return list(self.frame.columns)

    def split(self, chosen: np.ndarray) -> tuple[Table, Table]:
        """The rows where a boolean mask is false, and those where it is true."""
        rest, taken = (self.frame.filter(mask.tolist()) for mask in (~chosen, chosen))
        return (
            Table(self.path, rest, self.numbering[~chosen]),
            Table(self.path, taken, self.numbering[chosen]),
        )

    def require(self, name: str, *, option: str) -> None:
        """Raise unless there is a column of that name."""
        if name not in self.names:
            raise ValueError(f"{self.path} has no column {name!r} ({option}); {self._listed()}")

    def _listed(self) -> str:
        """The column names, unless they seem to be a row: then a name is found again below itself."""
        if any(name.strip() in self.text(name) for name in self.names):
            return "its first line looks like a row: add a header line with column names"
        return (
            "its columns are: " + ", ".join(self.names[:_SHOWN]) + (", …" if len(self.names) > _SHOWN else "")
        )

    def is_numeric(self, name: str) -> bool:
        """Whether every cell that is not missing reads as a number, and one does."""
        numbers, bad = self.numbers(name)
        return bad is None and bool(np.isfinite(numbers).any())

    def numbers(self, name: str) -> tuple[np.ndarray, int | None]:
        """The column as float64 with NaN where missing, and the first data row that holds text."""
        column = self.frame[name]
        if column.dtype.is_numeric() or str(column.dtype) == "Boolean":
            return np.array([np.nan if cell is None else float(cell) for cell in column.to_list()]), None
        numbers = np.full(len(column), np.nan)
        for row, cell in enumerate(self.text(name)):
            if cell.lower() not in MISSING:
                try:
                    numbers[row] = float(cell)
                except ValueError:
                    return numbers, int(self.numbering[row])
        return numbers, None

    def text(self, name: str) -> list[str]:
        """The column as text without blanks around it; missing cells are empty, 7.0 is 7."""
        return [_spelled(cell) for cell in self.frame[name].to_list()]


def read(path: Path) -> Table:
    """Read a CSV file (also compressed, as ``.csv.gz``) or a Parquet file, by its name.

    Raises
    ------
    ValueError
        The file is empty, has no rows, no header, repeated names, or is not what its name says.
    OSError
        It is not there or not readable.
    """
    import narwhals

    with path.open("rb") as file:
        if not file.read(1):
            raise ValueError(f"{path} is empty: it needs a header line with column names, and rows")
    is_parquet = path.suffix.lower() in {".parquet", ".pq"}
    frame = narwhals.from_native(_parquet(path) if is_parquet else _csv(path), eager_only=True)
    if not len(frame):
        raise ValueError(f"{path} has column names but no rows")
    return Table(path, frame, np.arange(1, len(frame) + 1))


def _csv(path: Path) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    bad_rows: list[int | None] = []

    def refuse(row: csv.InvalidRow) -> str:
        bad_rows.append(row.number)
        return "error"

    # one thread: only then does the parser count rows
    reading, parsing = csv.ReadOptions(use_threads=False), csv.ParseOptions(invalid_row_handler=refuse)
    try:
        with csv.open_csv(path, read_options=reading, parse_options=parsing) as reader:
            names = reader.schema.names
        _check_header(path, names)
        as_text = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
        return csv.read_csv(path, read_options=reading, parse_options=parsing, convert_options=as_text)
    except pa.ArrowException:
        # the parser's own message quotes the row
        where = f"line {bad_rows[0]} has another number of cells than the header" if any(bad_rows) else None
        raise ValueError(
            f"{path} cannot be read as CSV: "
            + (where or "it must be UTF-8 text with commas between cells and a header line")
        ) from None


def _parquet(path: Path) -> Any:
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


def _check_header(path: Path, names: list[str]) -> None:
    """Refuse a first line that cannot be column names, without showing it: it may be a private row."""
    if len(set(names)) < len(names) or any(not name.strip() or _is_number(name) for name in names):
        raise ValueError(
            f"the first line of {path} does not look like column names (one is empty, a number or repeated): "
            "add a header line"
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _spelled(cell: Any) -> str:
    if cell is None or cell != cell:  # noqa: PLR0124  (NaN differs from itself)
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).strip()
