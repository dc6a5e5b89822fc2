"""Parquet files of one table: their columns, their row groups, and single columns that are read here."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Piece", "column_of", "files_of", "hashed", "pieces_of", "schema_of"]

_ENDINGS = {".parquet", ".pq"}


class Piece(NamedTuple):
    """A row group: its file, its number there, the number of its first row in that file and in all files."""

    path: str
    group: int
    first_in_file: int
    first: int
    n_rows: int


def files_of(path: Path) -> list[Path]:
    """The Parquet file, or those of a folder in the order of their names.

    Raises
    ------
    ValueError
        There are none, or the folder has folders, whose files would be left out.
    """
    inner = [each for each in path.iterdir() if each.is_dir()] if path.is_dir() else []
    if inner:
        raise ValueError(f"{path} has a folder in it, {inner[0].name}: put all Parquet files into one folder")
    files = sorted(each for each in path.iterdir() if _is_parquet(each)) if path.is_dir() else [path]
    if not files or not all(map(_is_parquet, files)):
        raise ValueError(f"{path} must be a Parquet file or a folder of Parquet files (.parquet or .pq)")
    return files


def schema_of(files: Sequence[Path], *, needed: Sequence[str] = ()) -> Any:
    """The columns, which must be the same in all files.

    Raises
    ------
    ValueError
        They are not, or a needed one is not there, or a file is no Parquet file.
    """
    import pyarrow as pa  # noqa: PLC0415  (late: only files need it)
    from pyarrow import parquet  # noqa: PLC0415

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
    from pyarrow import parquet  # noqa: PLC0415

    pieces, first = [], 0
    for path in files:
        facts, in_file = parquet.read_metadata(path), 0
        for group in range(facts.num_row_groups):
            n_rows = facts.row_group(group).num_rows
            pieces.append(Piece(str(path.resolve()), group, in_file, first, n_rows))
            first, in_file = first + n_rows, in_file + n_rows
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
    from pyarrow import parquet  # noqa: PLC0415

    files = files_of(path)
    schema_of(files, needed=[name])
    parts = [parquet.ParquetFile(each).read(columns=[name])[name] for each in files]
    if any(part.null_count for part in parts):
        raise ValueError(f"column {name!r} of {path} is empty in some rows: drop or fill them")
    return np.concatenate([part.to_numpy() for part in parts])


def hashed(files: Sequence[Path]) -> str:
    """SHA-256 of the files' own hashes, in their order."""
    whole = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in _ENDINGS
