"""Rows in Parquet files or one file of text: workers read them part by part where the files lie."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from ostraka.data.table import Format

_AT_ONCE = 1 << 17  # rows of a row group that are read at a time
ENDINGS = {".parquet", ".pq"}
_EMPTY = "column {!r} of {} is empty in some rows: drop or fill them"


class Piece(NamedTuple):
    """A row group, or a part of a file of text.

    Its file, its number there, the number of its first row in all files, and how many rows it has; of a part
    of a text, the bytes where it begins and ends.
    """

    path: str
    group: int
    first: int
    n_rows: int
    span: tuple[int, int] = (0, 0)


def row_groups(pieces: Iterable[Piece], columns: Sequence[str]) -> Iterator[tuple[Piece, Any]]:
    """Columns of row groups as Arrow tables, in parts of at most 131,072 rows; texts are encoded by kind.

    Raises
    ------
    ValueError
        A file is not there any more, or was changed.
    """
    import pyarrow as pa
    from pyarrow import parquet

    opened: Any = None
    path = ""
    for piece in pieces:
        if piece.path != path:
            texts = [
                field.name for field in parquet.read_schema(piece.path) if pa.types.is_string(field.type)
            ]
            opened, path = parquet.ParquetFile(piece.path, read_dictionary=texts), piece.path
        n_rows = 0
        if piece.group < opened.num_row_groups:
            for batch in opened.iter_batches(_AT_ONCE, row_groups=[piece.group], columns=list(columns)):
                part = piece._replace(first=piece.first + n_rows, n_rows=batch.num_rows)
                yield part, without_views(pa.Table.from_batches([batch]))
                n_rows += batch.num_rows
        if n_rows != piece.n_rows:
            raise ValueError(f"{path} was changed while it was read: start again")


def without_views(frame: Any) -> Any:
    """An Arrow table whose texts are not of Arrow's type of views, of which no rows can be taken."""
    import pyarrow as pa

    plain = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    for place, column in enumerate(frame.schema):
        if column.type in plain:
            frame = frame.set_column(place, column.name, frame.column(place).cast(plain[column.type]))
    return frame


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TextParts:
    """Columns of parts of a file of text, as :func:`row_groups` has those of row groups.

    ``form``, ``names``, ``numbers`` and ``missing`` are as for :func:`~ostraka.data.table.rows_of_span`. A
    part whose number of rows is not known yet has -1.
    """

    form: Format
    names: tuple[str, ...]
    numbers: tuple[str, ...]
    missing: tuple[str, ...]

    def __call__(self, pieces: Iterable[Piece], columns: Sequence[str]) -> Iterator[tuple[Piece, Any]]:
        """Parts and their columns, one after the other."""
        from ostraka.data.table import rows_of_span

        for piece in pieces:
            frame = rows_of_span(
                Path(piece.path),
                piece.span,
                self.form,
                self.names,
                numbers=self.numbers,
                missing=self.missing,
            )
            if piece.n_rows not in {-1, frame.num_rows}:
                raise ValueError(f"{piece.path} was changed while it was read: start again")
            yield piece._replace(n_rows=frame.num_rows), frame.select(list(columns))


class Places(dict[Any, int]):
    """The different values of a column by their place, which is that of their first appearance; and codes."""

    def __init__(self) -> None:
        super().__init__()
        self._codes: list[np.ndarray] = []

    def add(self, values: Sequence[Any], codes: np.ndarray) -> None:
        """One more part of the column, as codes of its own values."""
        places = np.array([self.setdefault(value, len(self)) for value in values], dtype=np.int64)
        self._codes.append(places.astype(np.min_scalar_type(len(self)))[codes])

    def codes(self) -> np.ndarray:
        """The place of each row's value, in as few bytes as hold it; parts are free again once joined."""
        joined = np.empty(sum(map(len, self._codes)), dtype=np.min_scalar_type(len(self)))
        end = len(joined)
        while self._codes:
            part = self._codes.pop()
            joined[end - len(part) : end] = part
            end -= len(part)
        return joined


Reader = Callable[[Iterable[Piece], Sequence[str]], Iterator[tuple[Piece, Any]]]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ParquetRows:
    """The features of rows in Parquet files, or in a file of text. Private.

    Attributes
    ----------
    pieces : tuple of Piece
        All row groups, in the order of the rows.
    columns : tuple of str
        Columns to read.
    features : callable(table, piece) -> float64 array, shape (n_rows, n_features)
        Turns the columns of a part of them into features. It may raise ValueError without private values.
    n_features : int
    files : tuple of Path
    read : callable(pieces, columns) -> iterator of (Piece, Arrow table)
        Reads columns of pieces, in smaller pieces.
    """

    pieces: tuple[Piece, ...]
    columns: tuple[str, ...]
    features: Callable[[Any, Piece], np.ndarray]
    n_features: int
    files: tuple[Path, ...]
    read: Reader = row_groups

    @classmethod
    def of(
        cls,
        path: Path,
        *,
        columns: Sequence[str],
        features: Callable[[Any, Piece], np.ndarray],
        n_features: int,
    ) -> ParquetRows:
        """These columns of a file or folder."""
        files = files_of(path)
        return cls(pieces_of(files), tuple(columns), features, n_features, tuple(files))

    @classmethod
    def numbers(cls, path: Path, *, aside: Sequence[str]) -> ParquetRows:
        """All columns of a file or folder but those that are ``aside``; they must hold numbers."""
        import pyarrow as pa

        schema = schema_of(files_of(path), needed=aside)
        names = [name for name in schema.names if name not in aside]
        for name in names:
            kind = schema.field(name).type
            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
                raise ValueError(
                    f"column {name!r} of {path} must hold numbers, got {kind}: leave it out of the files, "
                    "or use 'ostraka learn', which turns text into features as public rows have it"
                )
        if not names:
            raise ValueError(f"{path} has no columns to learn from beside {', '.join(map(repr, aside))}")
        return cls.of(path, columns=names, features=_numbers, n_features=len(names))

    @property
    def sha256(self) -> str:
        """Hash of the files' own hashes, in their order; it reads all of them."""
        digest = hashlib.sha256()
        for path in self.files:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and of features."""
        last = self.pieces[-1]
        return last.first + last.n_rows, self.n_features

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"ParquetRows(shape={self.shape})"

    def blocks(self, pieces: Iterable[Piece]) -> Iterator[tuple[Piece, np.ndarray]]:
        """Some pieces and their features, read one after the other, in smaller pieces."""
        for piece, frame in self.read(pieces, self.columns):
            yield piece, self.features(frame, piece)

    def taken(self, shards: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
        """The features of the rows with the numbers of each shard, in turn, from one pass over the files.

        Cells are held as the files have them until their shard is asked for: features take more room.
        """
        import pyarrow as pa

        numbers = np.concatenate(shards)
        order = np.argsort(numbers, kind="stable")
        ordered = numbers[order]
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        cells: dict[str, list[Any]] = {name: [] for name in self.columns}
        for piece, frame in self.read(self.pieces, self.columns):
            start, stop = np.searchsorted(ordered, (piece.first, piece.first + piece.n_rows))
            if stop > start:
                some = frame.take(ordered[start:stop].astype(np.int64) - piece.first)
                for name in self.columns:
                    cells[name] += some[name].chunks
        joined = pa.table(  # the parts of each column are free again when they are joined
            {
                name: pa.chunked_array(cells.pop(name)).unify_dictionaries().combine_chunks()
                for name in self.columns
            }
        )
        first = self.pieces[0]
        for end, shard in zip(np.cumsum([*map(len, shards)]).tolist(), shards, strict=True):
            yield self.features(joined.take(place[end - len(shard) : end]), first)


def files_of(path: Path) -> list[Path]:
    """The Parquet file, or those of a folder in the order of their names.

    Raises
    ------
    ValueError
        There are none, or the folder has folders, whose files would be left out.
    """
    inner = [entry for entry in path.iterdir() if entry.is_dir()] if path.is_dir() else []
    if inner:
        raise ValueError(f"{path} has a folder in it, {inner[0].name}: put all Parquet files into one folder")
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    files = [file for file in files if file.suffix.lower() in ENDINGS]
    if not files:
        raise ValueError(f"{path} must be a Parquet file or a folder of Parquet files (.parquet or .pq)")
    return files


def schema_of(files: Sequence[Path], *, needed: Sequence[str] = ()) -> Any:
    """The columns, which must be the same in all files.

    Raises
    ------
    ValueError
        They are not, or a needed one is not there, or a file is no Parquet file.
    """
    import pyarrow as pa
    from pyarrow import parquet

    first = None
    for path in files:
        try:
            schema = parquet.read_schema(path)
        except (pa.ArrowException, OSError):
            raise ValueError(
                f"{path} cannot be read as Parquet: is it there and complete, and is that its format?"
            ) from None
        first = schema if first is None else first
        if len(set(schema.names)) < len(schema.names):
            raise ValueError(f"{path} has two columns of one name: rename one")
        if not schema.equals(first):
            raise ValueError(f"{path} must have the columns of {files[0]}, with the same types")
        for name in needed:
            if name not in schema.names:
                raise ValueError(f"{path} has no column {name!r}; its columns are: {', '.join(schema.names)}")
    return first


def pieces_of(files: Sequence[Path]) -> tuple[Piece, ...]:
    """All row groups, file by file.

    Raises
    ------
    ValueError
        There are no rows.
    """
    from pyarrow import parquet

    pieces, first = [], 0
    for path in files:
        facts = parquet.read_metadata(path)
        for group in range(facts.num_row_groups):
            if n_rows := facts.row_group(group).num_rows:
                pieces.append(Piece(str(path.resolve()), group, first, n_rows))
            first += n_rows
    if not first:
        raise ValueError(f"{files[0].parent} has Parquet files without rows")
    return tuple(pieces)


def column_of(path: Path, name: str) -> np.ndarray:
    """One column of a file or folder, as labels or people.

    Raises
    ------
    ValueError
        It is not there, or some rows have no value.
    """
    from pyarrow import parquet

    files = files_of(path)
    schema_of(files, needed=[name])
    parts = [parquet.ParquetFile(file).read(columns=[name])[name] for file in files]
    if any(part.null_count for part in parts):
        raise ValueError(_EMPTY.format(name, path))
    return np.concatenate([part.to_numpy() for part in parts])


def opened(path: Path, label: Any, person: Any) -> tuple[ParquetRows, Any, np.ndarray | None]:
    """Rows of a Parquet file or a folder of them, which stay there; their labels and people as codes.

    Raises
    ------
    ValueError
        ``label`` or ``person`` names no column, or other columns hold no numbers.
    """
    import pyarrow as pa

    from ostraka.data.labels import Coded
    from ostraka.data.units import People

    for name, column in (("y", label), ("groups", person)):
        if not isinstance(column, str) and (column is not None or name == "y"):
            raise ValueError(f"{name} must name a column of {path}, got {type(column).__name__}")
    rows = ParquetRows.numbers(path, aside=[label] if person is None else [label, person])
    schema = schema_of(rows.files)

    def values_of(name: str) -> Any:
        """A column; texts, and numbers of people, as codes of the different ones."""
        kind = schema.field(name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (pa.types.is_string(kind) or (name == person and pa.types.is_integer(kind))):
            return column_of(path, name)
        places = Places()
        for _, frame in row_groups(rows.pieces, [name]):
            if frame[name].null_count:
                raise ValueError(_EMPTY.format(name, path))
            column = frame[name].unify_dictionaries().combine_chunks()
            column = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
            places.add(column.dictionary.to_pylist(), column.indices.to_numpy())
        if name == label:
            return Coded.joined(np.array(list(places)), places.codes())
        different = np.array(
            list(places), dtype=object if pa.types.is_string(kind) else kind.to_pandas_dtype()
        )
        return People.joined(different, places.codes())

    return rows, values_of(label), None if person is None else values_of(person)


def _numbers(table: Any, _piece: Piece) -> np.ndarray:
    """Columns of numbers side by side; what is missing is NaN."""
    values = np.empty((table.num_rows, table.num_columns))
    for place, column in enumerate(table.columns):
        values[:, place] = column.cast("float64", safe=False).to_numpy()
    return values
