"""Rows in Parquet files, which workers read by row group where the files lie, each its own shards' rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import get_tags

from ostraka.voters._engines import n_workers, spread
from ostraka.voters._parquet_files import Piece, files_of, hashed, pieces_of, schema_of
from ostraka.voters._voting import Shard, train

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from ostraka.voters._voting import Teacher

__all__ = ["ParquetRows", "train_where_they_lie"]

_NUMBERS_A_PART = 2**28  # of the rows that a worker holds at once: 2 GiB
_NUMBERS_AT_ONCE = 2**23  # of the rows that are copied and trained on at once: 64 MiB


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ParquetRows:
    """The features of rows in Parquet files. Private.

    Attributes
    ----------
    pieces : tuple of Piece
        All row groups, in the order of the rows.
    columns : tuple of str
        Columns to read.
    features : callable(table, piece) -> float64 array, shape (n_rows, n_features)
        Turns the columns of a row group into features. It may raise ValueError without private values.
    n_features : int
    sha256 : str
        Hash of the files, in their order.
    """

    pieces: tuple[Piece, ...]
    columns: tuple[str, ...]
    features: Callable[[Any, Piece], np.ndarray]
    n_features: int
    sha256: str

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
        return cls(pieces_of(files), tuple(columns), features, n_features, hashed(files))

    @classmethod
    def numbers(cls, path: Path, *, aside: Sequence[str]) -> ParquetRows:
        """All columns of a file or folder but those that are ``aside``; they must hold numbers."""
        import pyarrow as pa  # noqa: PLC0415  (late: only files need it)

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
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and of features."""
        last = self.pieces[-1]
        return last.first + last.n_rows, self.n_features

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"ParquetRows(shape={self.shape})"

    def blocks(self, pieces: Iterable[Piece]) -> Iterator[tuple[Piece, np.ndarray]]:
        """Some row groups and their features, read one after the other."""
        from pyarrow import parquet  # noqa: PLC0415

        opened: Any = None
        path = ""
        for piece in pieces:
            if piece.path != path:
                opened, path = parquet.ParquetFile(piece.path), piece.path
            table = opened.read_row_group(piece.group, columns=list(self.columns))
            if table.num_rows != piece.n_rows:
                raise ValueError(f"{path} was changed while it was read: start again")
            yield piece, self.features(table, piece)

    def each(
        self, work: Callable[[np.ndarray], np.ndarray], *, engine: str, n_jobs: int | None
    ) -> list[np.ndarray]:
        """Apply ``work`` to the features of each row group, where the files lie."""
        return _gathered(spread(partial(_applied, self, work), self.pieces, engine=engine, n_jobs=n_jobs))

    def taken(self, numbers: np.ndarray, *, nan: bool) -> np.ndarray:
        """The features of these rows, float64 (len(numbers), n_features), from one pass over the files."""
        order = np.argsort(numbers, kind="stable")
        ordered = numbers[order]
        found = np.empty((len(numbers), self.n_features))
        for piece, block in self.blocks(self.pieces):
            if not (nan or np.isfinite(block).all()):
                raise ValueError(
                    f"row group {piece.group} of {piece.path} has missing or infinite numbers, which these "
                    "teachers do not take: drop or fill such rows"
                )
            start, stop = np.searchsorted(ordered, (piece.first, piece.first + piece.n_rows))
            found[order[start:stop]] = block[ordered[start:stop] - piece.first]
        return found


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
        A worker could not use the files.
    """
    light = [_light(shard, n_rows=len(rows)) for shard in shards]  # all that is sent
    parts = _parts(light, n_features=rows.n_features, n_parts=n_workers(engine, n_jobs))
    work = partial(_trained, estimator, rows)
    answers = spread(work, parts, engine=engine, n_jobs=n_jobs, on_progress=on_progress)
    return [teacher for teachers in _gathered(answers) for teacher in teachers]


def _gathered(answers: Sequence[tuple[Any, str]]) -> list[Any]:
    """Answers of workers, or the first error that they tell: clusters wrap exceptions in their own."""
    for _, error in answers:
        if error:
            raise ValueError(error)
    return [answer for answer, _ in answers]


def _applied(
    rows: ParquetRows, work: Callable[[np.ndarray], np.ndarray], pieces: Sequence[Piece]
) -> list[tuple[Any, str]]:
    try:
        return [(work(block), "") for _, block in rows.blocks(pieces)]
    except (ValueError, OSError) as error:
        return [(None, str(error))] * len(pieces)


def _trained(
    estimator: Any, rows: ParquetRows, parts: Sequence[list[Shard]]
) -> list[tuple[list[Teacher], str]]:
    return [_trained_part(estimator, rows, part) for part in parts]


def _trained_part(estimator: Any, rows: ParquetRows, part: list[Shard]) -> tuple[list[Teacher], str]:
    """Read the rows of some shards, and train."""
    ends = np.cumsum([len(shard.X) for shard in part])
    try:
        nan = bool(get_tags(estimator).input_tags.allow_nan)
        found = rows.taken(np.concatenate([shard.X for shard in part]), nan=nan)
    except (ValueError, OSError) as error:
        return [], str(error)
    teachers: list[Teacher] = []
    at_once = max(1, _NUMBERS_AT_ONCE * len(part) // max(1, found.size))
    for start in range(0, len(part), at_once):
        # copies lie in memory as rows that are selected from a table here, so that sums round in the same way
        some = [
            shard._replace(X=found[end - len(shard.X) : end].copy(), codes=shard.codes.astype(np.int64))
            for shard, end in zip(part[start : start + at_once], ends[start : start + at_once], strict=True)
        ]
        teachers += train(estimator, some)
    return teachers, ""


def _light(shard: Shard, *, n_rows: int) -> Shard:
    """The shard with numbers of rows and classes in as few bytes as hold them."""
    number, code = np.min_scalar_type(n_rows), np.min_scalar_type(int(shard.codes.max()))
    return shard._replace(X=shard.X.astype(number), codes=shard.codes.astype(code))


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
