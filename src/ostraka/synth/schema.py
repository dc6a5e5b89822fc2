"""Schema: the public description of a table. It turns rows into codes, and codes into rows."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ostraka import _check

__all__ = ["Column", "Schema"]

_MOST_CODES = 10_000  # of one column; tables of three columns would outgrow memory long before


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: either public categories or public edges.

    Parameters
    ----------
    name : str
        Public.
    categories : tuple of str
        Every value that the column may hold. Public. Empty for a column of numbers.
    edges : tuple of float, increasing
        A number x has code k if edges[k] <= x < edges[k + 1]; numbers outside count as the nearest bin.
        Public. Empty for a column of categories.
    missing : bool
        Whether a missing value is allowed; it is a code of its own, the last one.
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
        """Codes of the values, int64 of shape (n,).

        Raises
        ------
        ValueError
            A value which the schema does not list, a text in a column of numbers, or a missing value where
            none is allowed. The message names the column and the number of such rows, never a value.
        """
        cells = np.asarray(values)
        absent = _absent(cells)
        codes = self._category_codes(cells) if self.categories else self._bin_codes(cells, absent)
        codes[absent] = self.n_values
        bad = (codes < 0) | (absent & (not self.missing))
        if bad.any():
            what = "a category of the schema" if self.categories else "a number"
            hint = "" if self.missing else "; set missing = true if values may be missing"
            raise ValueError(f"column {self.name!r} must hold {what}, but {int(bad.sum())} rows do not{hint}")
        return codes

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

    def _category_codes(self, cells: np.ndarray) -> np.ndarray:
        place = {category: code for code, category in enumerate(self.categories)}
        kinds, where = np.unique(cells.astype(str), return_inverse=True)
        return np.array([place.get(kind.strip(), -1) for kind in kinds], dtype=np.int64)[where.ravel()]

    def _bin_codes(self, cells: np.ndarray, absent: np.ndarray) -> np.ndarray:
        filled = np.where(absent, "0", cells) if cells.dtype.kind in "OUS" else np.where(absent, 0, cells)
        try:
            numbers = filled.astype(np.float64)
        except (TypeError, ValueError):
            numbers = None
        if numbers is None:
            raise ValueError(f"column {self.name!r} must hold numbers, since the schema gives edges")
        inner = np.asarray(self.edges[1:-1], dtype=np.float64)
        codes = np.searchsorted(inner, numbers, side="right").astype(np.int64)
        codes[~np.isfinite(numbers)] = -1
        return codes


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
        _check.integer(n_bins=n_bins, least=2)
        return cls(
            tuple(_public_column(name, values, n_bins, most_categories) for name, values in named(frame))
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
            A column is missing, or holds what the schema does not allow.
        """
        cells = dict(named(frame))
        absent = [name for name in self.names if name not in cells]
        if absent:
            raise ValueError(f"the table must have the columns of the schema; it lacks {', '.join(absent)}")
        return np.stack([column.encode(cells[column.name]) for column in self.columns], axis=1)

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


def named(frame: Any) -> list[tuple[str, np.ndarray]]:
    """The columns of a data frame of any library, or of a dict of arrays, as (name, values)."""
    if isinstance(frame, Mapping):
        return [(str(name), np.asarray(values)) for name, values in frame.items()]
    import narwhals as nw  # noqa: PLC0415  (only where a data frame comes in)

    table = nw.from_native(frame, eager_only=True)
    return [(name, table[name].to_numpy()) for name in table.columns]


def _absent(cells: np.ndarray) -> np.ndarray:
    """Whether each value is missing: None, NaN or an empty text."""
    if cells.dtype.kind == "f":
        return np.asarray(np.isnan(cells))
    if cells.dtype.kind == "O":
        return np.array([value is None or value != value or value == "" for value in cells], dtype=bool)  # noqa: PLR0124
    if cells.dtype.kind in "US":
        return np.asarray(cells == "")
    return np.zeros(cells.shape, dtype=bool)


def _public_column(name: str, values: np.ndarray, n_bins: int, most_categories: int) -> Column:
    absent = _absent(values)
    present, missing = values[~absent], bool(absent.any())
    try:
        numbers = present.astype(np.float64)
    except (TypeError, ValueError):
        numbers = None
    if numbers is None or not np.isfinite(numbers).all():
        kinds = tuple(sorted({str(value).strip() for value in present}))
        if len(kinds) > most_categories:
            raise ValueError(
                f"column {name!r} must have at most {most_categories} categories, got {len(kinds)} in the "
                "public rows; group them, or raise most_categories"
            )
        return Column(name=name, categories=kinds, missing=missing)
    edges = np.unique(np.quantile(numbers, np.linspace(0, 1, n_bins + 1)))
    whole = bool((numbers == np.floor(numbers)).all())
    if edges.size < 2:
        edges = np.array([edges[0], edges[0] + 1]) if edges.size else np.array([0.0, 1.0])
    elif whole:
        edges[-1] += 1
    return Column(name=name, edges=tuple(edges.tolist()), missing=missing, whole=whole)
