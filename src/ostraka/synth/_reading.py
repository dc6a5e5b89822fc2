"""Codes of a private table, in as few bytes as they need; a Parquet file is read in parts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.synth.schema import named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ostraka.synth.schema import Column, Schema

__all__ = ["encoded"]

_BATCH = 2**18  # rows of a file that are in memory as values


def encoded(schema: Schema, frame: Any, *, most: int) -> np.ndarray:
    """Codes of the rows, and a last column of zeros for weights up to ``most``; unsigned integers.

    ``frame``: a data frame, a dict of columns, or the path of a Parquet file.

    Raises
    ------
    ValueError
        A column is missing or holds what the schema does not allow; no such file, or no Parquet file.
    """
    kind = np.min_scalar_type(max(most, *schema.sizes))
    if not isinstance(frame, str | os.PathLike):
        cells = dict(named(frame))
        _check_names(schema, cells)
        parts: Iterator[list[np.ndarray]] = iter([[c.encode(cells[c.name]) for c in schema.columns]])
        n_rows = len(np.asarray(cells[schema.names[0]]))
    else:
        file = _opened(Path(frame), schema)
        n_rows = file.metadata.num_rows
        parts = _batches(file, schema)
    rows = np.zeros((n_rows, len(schema.columns) + 1), dtype=kind)
    begin = 0
    for part in parts:
        for j, codes in enumerate(part):
            if len(codes) != len(part[0]):
                raise ValueError("the columns of the table must be equally long")
            rows[begin : begin + len(codes), j] = codes
        begin += len(part[0])
    return rows


def _check_names(schema: Schema, names: Any) -> None:
    absent = [name for name in schema.names if name not in names]
    if absent:
        raise ValueError(f"the table must have the columns of the schema; it lacks {', '.join(absent)}")


def _opened(path: Path, schema: Schema) -> Any:
    import pyarrow as pa  # noqa: PLC0415  (only for files)
    import pyarrow.parquet as pq  # noqa: PLC0415

    if not path.is_file():
        raise ValueError(f"frame must be a table or a Parquet file, but {path} is no file")
    try:
        names = pq.read_schema(path).names
    except pa.ArrowInvalid:
        names = None
    if names is None:
        raise ValueError(f"{path} must be a Parquet file")
    _check_names(schema, names)
    return pq.ParquetFile(path, read_dictionary=[c.name for c in schema.columns if c.categories])


def _batches(file: Any, schema: Schema) -> Iterator[list[np.ndarray]]:
    for batch in file.iter_batches(batch_size=_BATCH, columns=list(schema.names), use_threads=False):
        yield [_codes(column, batch.column(column.name)) for column in schema.columns]


def _codes(column: Column, values: Any) -> np.ndarray:
    """Codes of one part of a column. Each category is looked up once."""
    if not column.categories:
        return column.encode(values.to_numpy(zero_copy_only=False))
    import pyarrow as pa  # noqa: PLC0415

    if not pa.types.is_dictionary(values.type):
        values = values.dictionary_encode()
    kinds = np.array([*values.dictionary.to_pylist(), None], dtype=object)
    place = values.indices.fill_null(len(kinds) - 1).to_numpy(zero_copy_only=False).astype(np.int64)
    used = np.flatnonzero(np.bincount(place, minlength=len(kinds)))
    codes = np.zeros(len(kinds), dtype=np.int64)
    try:
        codes[used] = column.encode(kinds[used])
    except ValueError:
        return column.encode(kinds[place])  # which raises with the number of rows
    return np.asarray(codes[place])
