"""Rows in Parquet files, which workers read by row group where the files lie, each its own shards' rows."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.utils import get_tags

from ostraka.voters._engines import n_workers, spread
from ostraka.voters._voting import Shard, train

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from ostraka.voters._voting import Teacher

__all__ = ["ParquetRows", "Piece", "column_of", "files_of", "train_where_they_lie"]

_NUMBERS_A_PART = 2**28  # of the rows that a worker holds at once: 2 GiB
_NUMBERS_AT_ONCE = 2**23  # of the rows that are copied and trained on at once: 64 MiB
_ENDINGS = {".parquet", ".pq"}


class Piece(NamedTuple):
    """A row group: its file, its number there, the number of its first row in that file and in all files."""

    path: str
    group: int
    first_in_file: int
    first: int
    n_rows: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ParquetRows:
    """The features of rows in Parquet files. Private.

    Attributes
    ----------
    pieces : tuple of Piece
        All row groups, file by file, in the order of the rows.
    columns : tuple of str
        Columns to read.
    features : callable(table, piece) -> float64 array, shape (n_rows, n_features)
        Turns the columns of a row group into features. It may raise ValueError without private values.
    n_features : int
    sha256 : str
        Hash of the files, so that equal content has an equal name.
    """

    pieces: tuple[Piece, ...]
    columns: tuple[str, ...]
    features: Callable[[Any, Piece], np.ndarray]
    n_features: int
    sha256: str

    @classmethod
    def of(cls, path: Path, *, aside: Sequence[str]) -> ParquetRows:
        """Numbers in all columns of a file or folder but those that are ``aside``.

        Raises
        ------
        ValueError
            No Parquet files, files with different columns, a column without numbers.
        """
        files = files_of(path)
        schema = _schema(files, needed=aside)
        columns = tuple(name for name in schema.names if name not in aside)
        for name in columns:
            _require_numbers(schema.field(name), path)
        if not columns:
            raise ValueError(
                f"{path} has no columns beside {', '.join(map(repr, aside))}: nothing to learn from"
            )
        return cls(_pieces(files), columns, _numbers, len(columns), _hashed(files))

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and of features."""
        last = self.pieces[-1]
        return last.first + last.n_rows, self.n_features

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"ParquetRows(shape={self.shape})"

    def blocks(self) -> Iterator[tuple[Piece, np.ndarray]]:
        """Each row group and its features, read one after the other."""
        from pyarrow import parquet  # noqa: PLC0415  (late: only files need it)

        opened, path = None, ""
        for piece in self.pieces:
            if piece.path != path:
                path = piece.path
                opened = parquet.ParquetFile(path)
            table = opened.read_row_group(piece.group, columns=list(self.columns))
            yield piece, self.features(table, piece)

    def taken(self, numbers: np.ndarray, *, nan: bool) -> np.ndarray:
        """The features of these rows, float64 (len(numbers), n_features), from one pass over the files."""
        order = np.argsort(numbers, kind="stable")
        ordered = numbers[order]
        found = np.empty((len(numbers), self.n_features))
        for piece, block in self.blocks():
            if not (nan or np.isfinite(block).all()):
                raise ValueError(
                    f"row group {piece.group} of {piece.path} has missing or infinite numbers, which these "
                    "teachers do not take: drop or fill such rows"
                )
            start, stop = np.searchsorted(ordered, (piece.first, piece.first + piece.n_rows))
            found[order[start:stop]] = block[ordered[start:stop] - piece.first]
        return found


def files_of(path: Path) -> list[Path]:
    """The Parquet file, or those of a folder by name.

    Raises
    ------
    ValueError
        There are none.
    """
    files = [path] if not path.is_dir() else sorted(each for each in path.iterdir() if _is_parquet(each))
    if not files or not all(_is_parquet(each) for each in files):
        raise ValueError(f"{path} must be a Parquet file or a folder of Parquet files (.parquet or .pq)")
    return files


def column_of(path: Path, name: str) -> np.ndarray:
    """One column of a file or folder, as labels or people."""
    from pyarrow import parquet  # noqa: PLC0415

    files = files_of(path)
    _schema(files, needed=[name])
    parts = [parquet.read_table(each, columns=[name], partitioning=None)[name] for each in files]
    if any(part.null_count for part in parts):
        raise ValueError(f"column {name!r} of {path} is empty in some rows: drop or fill them")
    return np.concatenate([part.to_numpy() for part in parts])


def train_where_they_lie(
    estimator: Any,
    rows: ParquetRows,
    shards: Sequence[Shard],
    *,
    engine: str,
    n_jobs: int | None,
    on_progress: Callable[[int, int], object],
) -> list[Teacher]:
    """Train a clone on each shard, whose ``X`` holds numbers of rows; each worker reads the files itself.

    Raises
    ------
    ValueError
        A worker refused the rows: the message says where they are.
    """
    parts = _parts(shards, n_features=rows.n_features, n_parts=n_workers(engine, n_jobs))
    answers = spread(
        partial(_trained, estimator, rows), parts, engine=engine, n_jobs=n_jobs, on_progress=on_progress
    )
    for _, refused in answers:
        if refused:
            raise ValueError(refused)
    return [teacher for teachers, _ in answers for teacher in teachers]


def _trained(
    estimator: Any, rows: ParquetRows, parts: Sequence[list[Shard]]
) -> list[tuple[list[Teacher], str]]:
    return [_trained_part(estimator, rows, part) for part in parts]


def _trained_part(estimator: Any, rows: ParquetRows, part: list[Shard]) -> tuple[list[Teacher], str]:
    """Read the rows of some shards, and train; or tell what is wrong with the files, without a value."""
    ends = np.cumsum([len(shard.X) for shard in part])
    try:
        nan = bool(get_tags(estimator).input_tags.allow_nan)
        found = rows.taken(np.concatenate([shard.X for shard in part]), nan=nan)
    except (ValueError, OSError) as error:  # clusters wrap an exception in their own
        return [], str(error)
    teachers: list[Teacher] = []
    at_once = max(1, _NUMBERS_AT_ONCE * len(part) // max(1, found.size))
    for start in range(0, len(part), at_once):
        # copies lie in memory as the rows of a table here would, so that sums round in the same way
        some = [
            shard._replace(X=found[end - len(shard.X) : end].copy())
            for shard, end in zip(part[start : start + at_once], ends[start : start + at_once], strict=True)
        ]
        teachers += train(estimator, some)
    return teachers, ""


def _parts(shards: Sequence[Shard], *, n_features: int, n_parts: int) -> list[list[Shard]]:
    """Split shards into a part for each worker, or into more where a part would be too large."""
    numbers = sum(len(shard.X) for shard in shards) * n_features
    n_parts = min(len(shards), max(n_parts, -(-numbers // _NUMBERS_A_PART)))
    size = -(-len(shards) // n_parts)
    return [list(shards[start : start + size]) for start in range(0, len(shards), size)]


def _numbers(table: Any, _piece: Piece) -> np.ndarray:
    """Columns of numbers side by side; what is missing is NaN."""
    found = np.empty((table.num_rows, table.num_columns))
    for place, column in enumerate(table.columns):
        found[:, place] = column.cast("float64", safe=False).to_numpy()
    return found


def _require_numbers(field: Any, path: Path) -> None:
    import pyarrow as pa  # noqa: PLC0415

    kinds = pa.types
    if not (kinds.is_integer(field.type) or kinds.is_floating(field.type)):
        raise ValueError(
            f"column {field.name!r} of {path} must hold numbers, got {field.type}: leave it out of the "
            "files, or use 'ostraka learn', which turns text into features as public rows have it"
        )


def _schema(files: Sequence[Path], *, needed: Sequence[str]) -> Any:
    """The columns that all files must share."""
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    first = None
    for path in files:
        try:
            schema = parquet.read_schema(path)
        except (pa.ArrowException, OSError):
            raise ValueError(
                f"{path} cannot be read as Parquet: is it complete, and is that its format?"
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


def _pieces(files: Sequence[Path]) -> tuple[Piece, ...]:
    from pyarrow import parquet  # noqa: PLC0415

    pieces, first = [], 0
    for path in files:
        facts, in_file = parquet.read_metadata(path), 0
        for group in range(facts.num_row_groups):
            n_rows = facts.row_group(group).num_rows
            pieces.append(Piece(str(path.resolve()), group, in_file, first, n_rows))
            first, in_file = first + n_rows, in_file + n_rows
    if not first:
        raise ValueError(f"{files[0].parent} has Parquet files, but no rows")
    return tuple(pieces)


def _hashed(files: Sequence[Path]) -> str:
    whole = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in _ENDINGS
