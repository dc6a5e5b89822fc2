"""Public descriptions of a table: the schema, which turns rows into codes and back, and data dictionaries.

Each row has codes, whatever it holds: what the schema does not list has a public code, too. So no private row
can end a fit, or change how another is read.

A data dictionary says what the documentation of a table knows of its columns: Frictionless table schemas and
data packages (JSON), CSV on the Web (JSON), DDI codebooks (XML), SDMX structures (XML), and this project's
own TOML. All of it is public.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import re
import tomllib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree as ET

import numpy as np

from ostraka.core import check
from ostraka.data.parquet import schema_of
from ostraka.data.table import MISSING, cells_of, distinct, named, numbers, text_of, word, written

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MOST_CODES = 10_000  # of one column; tables of three columns would outgrow memory long before
_BATCH = 2**18  # rows of a file that are in memory as values
OTHER = "other"  # the category of values which the schema does not list
_DATE = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[T ].*)?")
_FIELDS = ("categories", "edges", "missing", "whole", "date", "range")
_FEW = 2  # kinds: a column with so few has no others
_UNIQUE = 0.5  # of the rows: with more kinds than that, a column names its rows
_WHOLE = {"integer", "int", "long", "short", "nonNegativeInteger", "positiveInteger", "year"}
_KNOWN = "a Frictionless or CSVW description (JSON), a DDI codebook or SDMX structure (XML), or TOML"


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
    date : bool
        Whether values are dates (ISO 8601 text, or date objects): edges are then days since 1970-01-01, and
        sampled values are text such as ``"2026-11-26"``.

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
    date: bool = False

    def __post_init__(self) -> None:
        if bool(self.categories) == bool(self.edges):
            raise ValueError(f"column {self.name!r} must have either categories or edges")
        if len(set(self.categories)) != len(self.categories):
            raise ValueError(f"categories of column {self.name!r} must not repeat")
        if self.date and not self.edges:
            raise ValueError(f"column {self.name!r} of dates must have edges")
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

    def number(self, text: str) -> float:
        """A value as the number that is compared with the edges: days of a date; NaN if it is none."""
        return float((_days if self.date else numbers)(cells_of([text]))[0])

    def values(self) -> list[str]:
        """A name for each code: a category, the ends of a bin, or ``"missing"``."""
        if self.categories:
            names = list(self.categories)
        else:
            ends = [_written(math.floor(edge)) or "" if self.date else f"{edge:.6g}" for edge in self.edges]
            alone = [self.whole and high == low + 1 for low, high in pairwise(self.edges)]
            names = [
                low if one else f"{low} to {high}"
                for (low, high), one in zip(pairwise(ends), alone, strict=True)
            ]
        return [*names, "missing"] if self.missing else names

    def unread(self, values: Any) -> int:
        """How many values have a code that is not their own. For the owner of the values alone."""
        return int(self._codes(values)[1].sum())

    def _codes(self, values: Any) -> tuple[np.ndarray, np.ndarray]:
        """The codes, and the values which the schema does not list."""
        cells = cells_of(values)
        if self.edges:
            floats = _days(cells) if self.date else numbers(cells)
            absent, listed = _absent(cells), np.isfinite(floats)
            inner = np.asarray(self.edges[1:-1], dtype=np.float64)
            codes = np.searchsorted(inner, np.where(listed, floats, 0.0), side="right").astype(np.int64)
        else:
            kinds, places = distinct(cells)
            place = {category: code for code, category in enumerate(self.categories)}
            words = [word(kind) for kind in kinds]
            of_kinds = []
            for text, kind in zip(words, kinds, strict=True):
                # older schemas wrote a whole float with a point, and a date with microseconds; -0.0 is 0.0
                moment = [kind.isoformat(timespec="microseconds")] if isinstance(kind, dt.datetime) else []
                spellings = [text, "0.0" if isinstance(kind, float) and not kind else written(kind), *moment]
                of_kinds.append(next((place[spelling] for spelling in spellings if spelling in place), -1))
            codes = np.array(of_kinds, dtype=np.int64)[places]
            listed, absent = codes >= 0, np.array([not text for text in words], dtype=bool)[places]
        fallback = self.categories.index(OTHER) if OTHER in self.categories else None
        unlisted = self.n_values if self.missing else 0
        codes[~listed] = unlisted if fallback is None else fallback
        codes[absent & ~listed] = self.n_values if self.missing else fallback or 0
        return codes, ~listed & ~(absent & self.missing)

    def decode(self, codes: np.ndarray, *, rng: np.random.Generator) -> np.ndarray:
        """Values for codes: categories as text, numbers drawn evenly within their bin, None if missing."""
        codes = np.asarray(codes, dtype=np.int64)
        absent = codes >= self.n_values
        inner = np.where(absent, 0, codes)
        if self.categories:
            values: np.ndarray = np.array(self.categories, dtype=object)[inner]
        else:
            edges = np.asarray(self.edges, dtype=np.float64)
            low, high = edges[inner], edges[inner + 1]
            # a sum of floats may be rounded up to the next bin
            numbers = np.minimum(low + rng.random(codes.shape) * (high - low), np.nextafter(high, low))
            rounded = np.floor(numbers).astype(np.int64) if self.whole or self.date else numbers
            values = rounded.astype(object)
            if self.date:
                values = np.array([_written(day) for day in rounded.tolist()], dtype=object)
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
        """A schema from names to the fields of :class:`Column`; the inverse of :meth:`to_dict`.

        Edges may be dates; so they are in TOML.

        Raises
        ------
        ValueError
            Anything else.
        """
        columns = []
        for name, fields in check.mapping("a schema", record).items():
            check.mapping(f"column {name!r} of a schema", fields)
            unknown = sorted(set(fields) - set(_FIELDS[:-1]))
            if unknown:
                raise ValueError(f"column {name!r} has unknown fields {', '.join(unknown)}")
            edges = [
                _ordinal(edge) if isinstance(edge, dt.date) else edge for edge in fields.get("edges", ())
            ]
            dates = any(isinstance(edge, dt.date) for edge in fields.get("edges", ()))
            columns.append(
                Column(
                    name=name,
                    categories=tuple(str(value) for value in fields.get("categories", ())),
                    edges=tuple(float(value) for value in edges),
                    date=bool(fields.get("date", False)) or dates,
                    missing=bool(fields.get("missing", False)),
                    whole=bool(fields.get("whole", False)),
                )
            )
        return cls(tuple(columns))

    @classmethod
    def from_toml(cls, path: str | Path) -> Schema:
        """A schema from a TOML file with one table a column: ``[age]``, ``edges = [0, 18, 65]``."""
        return cls.from_dict(tomllib.loads(check.path(path=path).read_text(encoding="utf-8")))

    @classmethod
    def from_public(
        cls,
        frame: Any,
        *,
        n_bins: int = 16,
        most_categories: int = 100,
        dictionary: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Schema:
        """A schema from a *public* table: its categories, and bins of its numbers and dates.

        A value that very many rows have (0 of a gain, 40 hours) has a bin of its own; the others are cut at
        their quantiles, into fewer bins the fewer they are. Numbers that are whole stay whole. A column with
        more than two categories has ``"other"``, too, for values that the private rows alone have; of more
        kinds than ``most_categories`` the rare ones are ``"other"``.

        Parameters
        ----------
        frame : data frame, or dict of columns
            PUBLIC rows. Taking private rows here would release them without a price.
        n_bins : int >= 2
            Most bins of a column of numbers.
        most_categories : int
            Most categories of a column of text. One whose kinds are more than half as many as the rows is
            refused, since it names rows.
        dictionary : mapping of names to fields, optional
            What the documentation says of some columns; it counts before what the rows show. Fields are
            ``categories`` or ``edges``, as of :class:`Column`, or ``range``, the least and the largest
            number; ``missing``; ``whole``. Public.

        Examples
        --------
        >>> gains = {"gain": [0] * 90 + list(range(100, 1100, 100)), "day": ["2026-01-01", "2026-03-01"] * 50}
        >>> schema = Schema.from_public(gains, n_bins=8)
        >>> schema.columns[0].edges, schema.columns[1].date
        ((0.0, 1.0, 400.0, 700.0, 1001.0), True)
        """
        check.integer(n_bins=n_bins, least=2)
        cells, facts = named(frame), dictionary or {}
        for name, fields in facts.items():
            unknown = sorted(set(fields) - set(_FIELDS))
            if unknown or name not in cells:
                raise ValueError(
                    f"dictionary must name columns of the public rows and fields of {', '.join(_FIELDS)}, "
                    f"got {name!r} with {', '.join(unknown) or 'no such column'}"
                )
        columns: list[Column] = []
        for name, values in cells.items():
            fields, absent = facts.get(name, {}), _absent(values)
            missing = bool(fields.get("missing", absent.any()))
            if "categories" in fields or "edges" in fields:
                columns += cls.from_dict({name: {"missing": missing} | dict(fields)}).columns
                continue
            finite, date = numbers(values[~absent]), False
            if not np.isfinite(finite).all():
                finite, date = _days(values[~absent]), True
            if not np.isfinite(finite).all():
                # words: all of them are categories, or the most frequent ones and the rest as other
                words = [text for text in map(word, values.tolist()) if text]
                kinds, counts = np.unique(words, return_counts=True)
                others = [OTHER] if len(kinds) > _FEW and OTHER not in kinds else []
                if len(kinds) > most_categories:
                    if len(kinds) > _UNIQUE * len(words):
                        raise ValueError(
                            f"column {name!r} must have at most {most_categories} categories, got "
                            f"{len(kinds)} in the public rows, most of them once. A column that names rows "
                            "is none for a copy: leave it out, or raise most_categories"
                        )
                    kinds = kinds[np.sort(np.argsort(-counts, kind="stable")[: most_categories - 1])]
                columns.append(Column(name=name, categories=(*kinds.tolist(), *others), missing=missing))
                continue
            integral = bool(fields.get("whole", (finite == np.floor(finite)).all()))
            edges = _edges(finite, n_bins, whole=integral)
            if "range" in fields:
                low, high = (float(end) for end in fields["range"])
                if not low < high:
                    raise ValueError(
                        f"range of column {name!r} must be two increasing numbers, got {fields['range']!r}"
                    )
                inner = edges[1:-1]
                edges = np.concatenate([[low], inner[(inner > low) & (inner < high)], [high + integral]])
            whole = integral and not date
            columns.append(
                Column(name=name, edges=tuple(edges.tolist()), missing=missing, whole=whole, date=date)
            )
        return cls(tuple(columns))

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

    def to_toml(self) -> str:
        """TOML, one table a column; :meth:`from_toml` reads it."""
        lines: list[str] = []
        for name, fields in self.to_dict().items():
            lines.append(f"[{json.dumps(name, ensure_ascii=False)}]")
            lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items()]
            lines.append("")
        return "\n".join(lines)

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
                **({"date": True} if column.date else {}),
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
        import pyarrow.parquet as pq

        path = Path(frame)
        if not path.is_file():
            raise ValueError(f"frame must be a table or a Parquet file, but {path} is no file")
        schema.require(schema_of([path]).names)
        file = pq.ParquetFile(path, read_dictionary=[c.name for c in schema.columns if c.categories])
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
    kinds, places = distinct(cells)
    return np.asarray(np.array([word(kind).lower() in MISSING for kind in kinds], dtype=bool)[places])


def _ordinal(day: dt.date) -> int:
    """Days since 1970-01-01."""
    return day.toordinal() - dt.date(1970, 1, 1).toordinal()


def _written(day: int) -> str | None:
    """A day as ISO 8601; None where the calendar ends."""
    place = day + dt.date(1970, 1, 1).toordinal()
    return dt.date.fromordinal(place).isoformat() if 1 <= place <= dt.date.max.toordinal() else None


def _days(cells: np.ndarray) -> np.ndarray:
    """Dates as days since 1970-01-01; NaN where a cell is none."""
    kinds, places = distinct(cells)
    days = np.full(len(kinds), np.nan)
    for k, kind in enumerate(kinds):
        match = _DATE.fullmatch(word(kind))
        if match is not None:
            try:
                days[k] = _ordinal(dt.date.fromisoformat(match[1]))
            except ValueError:  # such as 30 February
                continue
    return np.asarray(days[places])


def _edges(values: np.ndarray, n_bins: int, *, whole: bool) -> np.ndarray:
    """Edges of bins: values that very many rows have alone, the others by quantiles."""
    if not values.size:
        return np.array([0.0, 1.0])
    kinds, counts = np.unique(values, return_counts=True)
    last = kinds[-1] + 1 if whole else np.nextafter(kinds[-1], np.inf)
    if len(kinds) <= n_bins:
        return np.array([*kinds, last])
    spikes = kinds[counts > values.size / n_bins]
    edges = [kinds[0], last]
    for spike in spikes:
        edges += [spike, spike + 1 if whole else np.nextafter(spike, np.inf)]
    others = values[~np.isin(values, spikes)]
    n_rest = max(1, round((n_bins - len(spikes)) * (others.size / values.size) ** (1 / 3)))
    cuts = np.quantile(others, np.linspace(0, 1, n_rest + 1), method="nearest")[1:-1]
    edges += cuts.tolist()
    every = np.unique(edges)
    return np.asarray(every[every <= last])


class Dictionary(NamedTuple):
    """What is documented of a table.

    Attributes
    ----------
    columns : dict of str to dict
        Of each column, the fields that :meth:`~ostraka.data.schema.Schema.from_public` takes: ``categories``,
        ``range``, ``missing``, ``whole``.
    missing : tuple of str
        What stands for no value, in any column.
    """

    columns: dict[str, dict[str, Any]]
    missing: tuple[str, ...]

    def kinds(self) -> tuple[str, ...]:
        """Columns whose values are listed, and so are kinds, even where they are written as numbers."""
        return tuple(name for name, fields in self.columns.items() if fields.get("categories"))


def read_dictionary(path: Path) -> Dictionary:
    """Read a data dictionary, by its content.

    Raises
    ------
    ValueError
        It is of no known format, or describes no column.
    """
    text = path.read_text(encoding="utf-8-sig")
    columns: dict[str, Any] = {}
    missing: tuple[str, ...] = ()
    try:
        if text.lstrip().startswith("<"):
            # the user's own file; expat itself refuses entities that grow without bounds
            root = ET.fromstring(text)  # noqa: S314
            variables = list(_named(root, "var"))
            missing = tuple(sorted({value for node in variables for value in _values(node, missing=True)}))
            for variable in variables:  # of a DDI codebook
                bounds, form = (next(_named(variable, part), None) for part in ("range", "varFormat"))
                columns[variable.get("name", "")] = _fields(
                    categories=_values(variable, missing=False),
                    low=None if bounds is None else bounds.get("min"),
                    high=None if bounds is None else bounds.get("max"),
                    missing=True,
                    whole=variable.get("dcml") == "0" and form is not None and form.get("type") == "numeric",
                )
            if not variables:  # an SDMX structure
                lists = {
                    node.get("id", ""): [code.get("id", "") for code in _named(node, "Code")]
                    for node in _named(root, "Codelist")
                }
                codes_of: dict[str, list[str]] = {}
                for node in (*_named(root, "Dimension"), *_named(root, "Attribute")):
                    enumeration = next(_named(node, "Enumeration"), None)
                    if enumeration is not None:
                        name = next((ref.get("id", "") for ref in _named(enumeration, "Ref")), "")
                        codes_of[node.get("id", "")] = lists.get(name, [])
                if not codes_of:  # lists alone, which are named after what they are of
                    codes_of = {name.removeprefix("CL_"): codes for name, codes in lists.items()}
                columns = {
                    name: _fields(categories=codes, missing=True) for name, codes in codes_of.items() if codes
                }
        elif text.lstrip().startswith("{"):
            record = json.loads(text)
            if several := record.get("resources", record.get("tables")):  # of which the first is described
                record = several[0]
            if "tableSchema" in record:  # CSV on the Web
                nulls = record.get("null", record["tableSchema"].get("null", []))
                missing = tuple([nulls] if isinstance(nulls, str) else nulls)
                for column in record["tableSchema"]["columns"]:
                    titles = column.get("titles", "")
                    titles = next(iter(titles.values())) if isinstance(titles, dict) else titles
                    title = titles[0] if isinstance(titles, list) else titles
                    kind = column.get("datatype", "string")
                    kind = {"base": kind} if isinstance(kind, str) else kind
                    pattern = kind.get("format", "")
                    listed = isinstance(pattern, str) and "|" in pattern
                    columns[title or column.get("name", "")] = _fields(
                        categories=pattern.strip("^$()").split("|") if listed else [],
                        low=kind.get("minimum", kind.get("minInclusive")),
                        high=kind.get("maximum", kind.get("maxInclusive")),
                        missing=not column.get("required", False),
                        whole=kind.get("base") in _WHOLE,
                    )
            else:  # Frictionless
                described = record.get("schema", record)
                missing = tuple(_bare(described.get("missingValues", [""])))
                for field in described["fields"]:
                    rules = field.get("constraints", {})
                    columns[field["name"]] = _fields(
                        categories=_bare(rules.get("enum") or field.get("categories") or []),
                        low=rules.get("minimum"),
                        high=rules.get("maximum"),
                        missing=not rules.get("required", False),
                        whole=field.get("type") in _WHOLE,
                    )
        else:
            columns = tomllib.loads(text)
    except (ET.ParseError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no data dictionary that can be read ({error}): take {_KNOWN}") from error
    columns = {name: fields for name, fields in columns.items() if name and isinstance(fields, dict)}
    if not columns:
        raise ValueError(f"{path} describes no columns: take {_KNOWN}")
    return Dictionary(columns, tuple(text for text in missing if text))


def _bare(values: list[Any]) -> list[Any]:
    """Values of Frictionless, without their labels."""
    return [value["value"] if isinstance(value, dict) else value for value in values]


def _values(variable: ET.Element, *, missing: bool) -> list[str]:
    """The values of a DDI variable that stand for something, or for nothing."""
    kinds = [kind for kind in _named(variable, "catgry") if (kind.get("missing") == "Y") == missing]
    values = [next(_named(kind, "catValu"), None) for kind in kinds]
    return [(value.text or "").strip() for value in values if value is not None]


def _named(root: ET.Element, name: str) -> Iterator[ET.Element]:
    """All elements below of this name, of whatever namespace."""
    return (node for node in root.iter() if node is not root and node.tag.rpartition("}")[2] == name)


def _fields(
    *, categories: list[Any], low: Any = None, high: Any = None, missing: bool = False, whole: bool = False
) -> dict[str, Any]:
    """Fields of a column, without those that say nothing."""
    fields: dict[str, Any] = {"missing": True} if missing else {}
    if categories:
        return fields | {"categories": [str(value) for value in categories]}
    if low is not None and high is not None and _is_number(low) and _is_number(high):
        fields["range"] = [float(low), float(high)]
    return fields | ({"whole": True} if whole else {})


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False  # such as a date
    return True
