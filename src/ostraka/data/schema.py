"""Schema: the public description of a table. It turns rows into codes, and codes into rows.

Each row has codes, whatever it holds: what the schema does not list has a public code, too. So no private row
can end a fit, or change how another is read.
"""

from __future__ import annotations

import datetime as dt
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.core import check
from ostraka.data.table import MISSING, cells_of, named, numbers, text_of, word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MOST_CODES = 10_000  # of one column; tables of three columns would outgrow memory long before
_BATCH = 2**18  # rows of a file that are in memory as values
OTHER = "other"  # the category of values which the schema does not list


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: either public categories or public edges.

    Parameters
    ----------
    name : str
        Public.
    categories : tuple of str
        Every value that the column may hold. Public. Empty for a column of numbers. A value that is none of
        them counts as the category ``"other"`` if there is one, else as missing, and where no value may be
        missing, as the first category.
    edges : tuple of float, increasing
        A number x has code k if edges[k] <= x < edges[k + 1]; numbers outside count as the nearest bin.
        Public. Empty for a column of categories.
    missing : bool
        Whether a missing value has a code of its own, the last one. Otherwise a missing value counts as
        ``"other"``, or as the first category or bin.
    whole : bool
        Whether numbers are whole: sampled numbers are then rounded down.

    Raises
    ------
    ValueError
        Neither or both of ``categories`` and ``edges``, fewer than one category or two edges, repeated
        categories, edges which do not increase.

    Examples
    --------
    >>> age = Column(name="age", edges=(0, 18, 65, 120), whole=True)
    >>> age.encode(np.array(["17", "18", "200"])), age.size
    (array([0, 1, 2]), 3)
    """

    name: str
    categories: tuple[str, ...] = ()
    edges: tuple[float, ...] = ()
    missing: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        if bool(self.categories) == bool(self.edges):
            raise ValueError(f"column {self.name!r} must have either categories or edges")
        if len(set(self.categories)) != len(self.categories):
            raise ValueError(f"categories of column {self.name!r} must not repeat")
        if self.edges:
            edges = np.asarray(self.edges, dtype=np.float64)
            if edges.size < 2 or not np.isfinite(edges).all() or not (np.diff(edges) > 0).all():
                raise ValueError(f"edges of column {self.name!r} must be two or more increasing numbers")
        if self.size > _MOST_CODES:
            raise ValueError(f"column {self.name!r} must have at most {_MOST_CODES:,} codes")

    @property
    def n_values(self) -> int:
        """Number of categories or bins, without the code for a missing value."""
        return len(self.categories) if self.categories else len(self.edges) - 1

    @property
    def size(self) -> int:
        """Number of codes, the one for a missing value included."""
        return self.n_values + self.missing

    def encode(self, values: Any) -> np.ndarray:
        """Codes of the values, int64 of shape (n,). Each code depends on its own value alone."""
        return self._codes(values)[0]

    def unread(self, values: Any) -> int:
        """How many values have a code that is not their own. For the owner of the values alone."""
        return int(self._codes(values)[1].sum())

    def _codes(self, values: Any) -> tuple[np.ndarray, np.ndarray]:
        """The codes, and the values which the schema does not list."""
        cells = cells_of(values)
        if self.edges:
            found = numbers(cells)
            absent, known = _absent(cells), np.isfinite(found)
            inner = np.asarray(self.edges[1:-1], dtype=np.float64)
            codes = np.searchsorted(inner, np.where(known, found, 0.0), side="right").astype(np.int64)
        else:
            kinds, places = _kinds(cells)
            place = {category: code for code, category in enumerate(self.categories)}
            words = [word(kind) for kind in kinds]
            spelled = ([text, *_older(kind)] for text, kind in zip(words, kinds, strict=True))
            of_kinds = [next((place[text] for text in texts if text in place), -1) for texts in spelled]
            codes = np.array(of_kinds, dtype=np.int64)[places]
            known, absent = codes >= 0, np.array([not text for text in words], dtype=bool)[places]
        other = self.categories.index(OTHER) if OTHER in self.categories else None
        unlisted = self.n_values if self.missing else 0
        codes[~known] = unlisted if other is None else other
        codes[absent & ~known] = self.n_values if self.missing else other or 0
        return codes, ~known & ~(absent & self.missing)

    def decode(self, codes: np.ndarray, *, rng: np.random.Generator) -> np.ndarray:
        """Values for codes: categories as text, numbers drawn evenly within their bin, None if missing."""
        codes = np.asarray(codes, dtype=np.int64)
        absent = codes >= self.n_values
        known = np.where(absent, 0, codes)
        if self.categories:
            values: np.ndarray = np.array(self.categories, dtype=object)[known]
        else:
            edges = np.asarray(self.edges, dtype=np.float64)
            low, high = edges[known], edges[known + 1]
            drawn = low + rng.random(codes.shape) * (high - low)
            values = np.floor(drawn).astype(np.int64).astype(object) if self.whole else drawn.astype(object)
        values[absent] = None
        return values


@dataclass(frozen=True, slots=True)
class Schema:
    """The public columns of a table, in order.

    Nothing of it may be learned from private rows: a category or an edge that only the private table shows
    is a release without a price. Write it by hand, read it from TOML, or take it from a public table.

    Parameters
    ----------
    columns : tuple of Column
        Public.

    Raises
    ------
    ValueError
        No column, or two of one name.

    Examples
    --------
    >>> schema = Schema.from_dict({"sex": {"categories": ["f", "m"]}, "age": {"edges": [0, 18, 65, 120]}})
    >>> schema.encode({"sex": ["m", "f"], "age": [70, 3]})
    array([[1, 2],
           [0, 0]])
    """

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if not names or len(set(names)) != len(names):
            raise ValueError("a schema must have one column or more, each of its own name")

    @classmethod
    def from_dict(cls, record: Mapping[str, Mapping[str, Any]]) -> Schema:
        """A schema from names to the fields of :class:`Column`; the inverse of :meth:`to_dict`."""
        made = []
        for name, fields in record.items():
            unknown = sorted(set(fields) - {"categories", "edges", "missing", "whole"})
            if unknown:
                raise ValueError(f"column {name!r} has unknown fields {', '.join(unknown)}")
            made.append(
                Column(
                    name=name,
                    categories=tuple(str(value) for value in fields.get("categories", ())),
                    edges=tuple(float(value) for value in fields.get("edges", ())),
                    missing=bool(fields.get("missing", False)),
                    whole=bool(fields.get("whole", False)),
                )
            )
        return cls(tuple(made))

    @classmethod
    def from_toml(cls, path: str | Path) -> Schema:
        """A schema from a TOML file with one table a column: ``[age]``, ``edges = [0, 18, 65]``."""
        return cls.from_dict(tomllib.loads(Path(path).read_text(encoding="utf-8")))

    @classmethod
    def from_public(cls, frame: Any, *, n_bins: int = 16, most_categories: int = 100) -> Schema:
        """A schema from a *public* table: its categories, and quantiles of its numbers as edges.

        Parameters
        ----------
        frame : data frame, or dict of columns
            PUBLIC rows. Taking private rows here would release them without a price.
        n_bins : int >= 2
            Most bins of a column of numbers.
        most_categories : int
            A column of text with more kinds is refused.
        """
        check.integer(n_bins=n_bins, least=2)
        return cls(
            tuple(
                _public_column(name, values, n_bins, most_categories) for name, values in named(frame).items()
            )
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of each column."""
        return tuple(column.size for column in self.columns)

    def place(self, name: str) -> int:
        """The position of a column."""
        if name not in self.names:
            raise ValueError(f"the schema must have a column {name!r}; it has {', '.join(self.names)}")
        return self.names.index(name)

    def encode(self, frame: Any) -> np.ndarray:
        """Codes of the rows, int64 of shape (n_rows, n_columns); other columns of the frame are left out.

        Raises
        ------
        ValueError
            A column is missing.
        """
        cells = named(frame)
        self.require(cells)
        return np.stack([column.encode(cells[column.name]) for column in self.columns], axis=1)

    def unread(self, frame: Any) -> dict[str, int]:
        """How many values of each column are not in the schema. For the owner of the rows alone."""
        cells = named(frame)
        self.require(cells)
        counts = {column.name: column.unread(cells[column.name]) for column in self.columns}
        return {name: count for name, count in counts.items() if count}

    def require(self, names: Any) -> None:
        """Raise unless there are columns of all names."""
        absent = [name for name in self.names if name not in names]
        if absent:
            raise ValueError(f"the table must have the columns of the schema; it lacks {', '.join(absent)}")

    def decode(self, codes: np.ndarray, *, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Columns of values for codes, in the order of the schema."""
        return {column.name: column.decode(codes[:, j], rng=rng) for j, column in enumerate(self.columns)}

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Plain JSON types."""
        return {
            column.name: {
                **(
                    {"categories": list(column.categories)}
                    if column.categories
                    else {"edges": list(column.edges)}
                ),
                "missing": column.missing,
                "whole": column.whole,
            }
            for column in self.columns
        }


def encoded(schema: Schema, frame: Any, *, most: int) -> np.ndarray:
    """Codes of the rows, and a last column of zeros for weights up to ``most``; unsigned integers.

    ``frame``: a data frame, a dict of columns, or the path of a Parquet file.

    Raises
    ------
    ValueError
        A column is missing; no such file, or no Parquet file.
    """
    kind = np.min_scalar_type(max(most, *schema.sizes))
    if not isinstance(frame, str | os.PathLike):
        cells = named(frame)
        schema.require(cells)
        parts: Iterator[list[np.ndarray]] = iter([[c.encode(cells[c.name]) for c in schema.columns]])
        n_rows = len(cells[schema.names[0]])
    else:
        file = _opened(Path(frame), schema)
        n_rows = file.metadata.num_rows
        parts = (
            [_arrow_codes(column, batch.column(column.name)) for column in schema.columns]
            for batch in file.iter_batches(batch_size=_BATCH, columns=list(schema.names), use_threads=False)
        )
    rows = np.zeros((n_rows, len(schema.columns) + 1), dtype=kind)
    begin = 0
    for part in parts:
        for j, codes in enumerate(part):
            if len(codes) != len(part[0]):
                raise ValueError("the columns of the table must be equally long")
            rows[begin : begin + len(codes), j] = codes
        begin += len(part[0])
    return rows


def _opened(path: Path, schema: Schema) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise ValueError(f"frame must be a table or a Parquet file, but {path} is no file")
    try:
        names = pq.read_schema(path).names
    except pa.ArrowInvalid:
        names = None
    if names is None:
        raise ValueError(f"{path} must be a Parquet file")
    schema.require(names)
    return pq.ParquetFile(path, read_dictionary=[c.name for c in schema.columns if c.categories])


def _arrow_codes(column: Column, values: Any) -> np.ndarray:
    """Codes of one part of a column of a file. Each different value is looked up once."""
    import pyarrow as pa

    numeric = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
    if numeric and column.edges:
        return column.encode(values.to_numpy(zero_copy_only=False))
    if not pa.types.is_dictionary(values.type):
        values = (values if numeric else text_of(values)).dictionary_encode()
    kinds = [*text_of(values.dictionary).to_pylist(), None]
    places = values.indices.fill_null(len(kinds) - 1).to_numpy(zero_copy_only=False).astype(np.int64)
    return np.asarray(column.encode(kinds)[places])


def _absent(cells: np.ndarray) -> np.ndarray:
    """Whether each cell of a column of numbers stands for no number."""
    if cells.dtype.kind in "biuf":
        return np.asarray(cells != cells)  # noqa: PLR0124  (NaN differs from itself)
    return np.array([word(cell).lower() in MISSING for cell in cells.tolist()], dtype=bool)


def _older(kind: Any) -> list[str]:
    """How an older schema may write a value: a whole float with a point, a date with microseconds."""
    moment = isinstance(kind, dt.datetime)
    return [str(kind).strip(), *([kind.isoformat(timespec="microseconds")] if moment else [])]


def _kinds(cells: np.ndarray) -> tuple[list[Any], np.ndarray]:
    """The different values of a column, and each cell's place; 1, 1.0 and True are different."""
    if cells.dtype.kind != "O":
        values, places = np.unique(cells, return_inverse=True)
        return values.tolist(), places.ravel()
    seen: dict[tuple[type, Any], int] = {}
    keys = [(type(cell), cell if cell.__hash__ else str(cell)) for cell in cells.tolist()]
    codes = np.array([seen.setdefault(key, len(seen)) for key in keys], dtype=np.int64)
    return [cell for _, cell in seen], codes


def _public_column(name: str, values: np.ndarray, n_bins: int, most_categories: int) -> Column:
    absent = _absent(values)
    finite = numbers(values[~absent])
    if not np.isfinite(finite).all():
        words = {word(value) for value in values.tolist()}
        kinds, missing = tuple(sorted(words - {""})), "" in words
        if len(kinds) > most_categories:
            raise ValueError(
                f"column {name!r} must have at most {most_categories} categories, got {len(kinds)} in the "
                "public rows; group them, or raise most_categories"
            )
        return Column(name=name, categories=kinds, missing=missing)
    edges = np.unique(np.quantile(finite, np.linspace(0, 1, n_bins + 1)))
    whole = bool((finite == np.floor(finite)).all())
    if edges.size < 2:
        edges = np.array([edges[0], edges[0] + 1]) if edges.size else np.array([0.0, 1.0])
    elif whole:
        edges[-1] += 1
    return Column(name=name, edges=tuple(edges.tolist()), missing=bool(absent.any()), whole=whole)
