"""Rows in Parquet files, which workers read by row group where the files lie, each its own shards' rows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import get_tags

from ostraka.data.parquet import ParquetRows as ParquetRows  # noqa: PLC0414, TC001  (read from here)
from ostraka.voters.voting import Shard, n_workers, spread, train

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka.data.parquet import Piece
    from ostraka.voters.voting import Teacher

_NUMBERS_A_PART = 2**28  # of the rows that a worker holds at once: 2 GiB
_NUMBERS_AT_ONCE = 2**23  # of the rows that are copied and trained on at once: 64 MiB


def applied(
    rows: ParquetRows, work: Callable[[np.ndarray], np.ndarray], *, engine: str, n_jobs: int | None
) -> list[np.ndarray]:
    """Apply ``work`` to the features of each row group, where the files lie."""
    return _gathered(spread(partial(_applied, rows, work), rows.pieces, engine=engine, n_jobs=n_jobs))


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
    number = np.min_scalar_type(len(rows))
    light = [  # all that is sent: numbers of rows and classes, in as few bytes as hold them
        shard._replace(
            X=shard.X.astype(number), codes=shard.codes.astype(np.min_scalar_type(int(shard.codes.max())))
        )
        for shard in shards
    ]
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
        table = rows.taken(np.concatenate([shard.X for shard in part]), nan=nan)
    except (ValueError, OSError) as error:
        return [], str(error)
    teachers: list[Teacher] = []
    at_once = max(1, _NUMBERS_AT_ONCE * len(part) // max(1, table.size))
    for start in range(0, len(part), at_once):
        # copies lie in memory as rows that are selected from a table here, so that sums round in the same way
        copies = [
            shard._replace(X=table[end - len(shard.X) : end].copy(), codes=shard.codes.astype(np.int64))
            for shard, end in zip(part[start : start + at_once], ends[start : start + at_once], strict=True)
        ]
        teachers += train(estimator, copies)
    return teachers, ""


def _parts(shards: Sequence[Shard], *, n_features: int, n_parts: int) -> list[list[Shard]]:
    """Split shards into a part for each worker, or into more where a part would be too large."""
    numbers = sum(len(shard.X) for shard in shards) * n_features
    n_parts = min(len(shards), max(n_parts, -(-numbers // _NUMBERS_A_PART)))
    size = -(-len(shards) // n_parts)
    return [list(shards[start : start + size]) for start in range(0, len(shards), size)]
