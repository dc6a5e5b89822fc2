"""A private table in a folder of Parquet files: rows stay in the files, labels and people are read."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.cli import _encoding, _table

if TYPE_CHECKING:
    from ostraka.cli._data import Columns
    from ostraka.cli._schema import Features
    from ostraka.voters._parquet import ParquetRows
    from ostraka.voters._parquet_files import Piece

__all__ = ["head", "rows"]


def head(folder: Path, columns: Columns) -> _table.Table:
    """Read labels and people of all rows. Other columns are there by name, and empty."""
    import pyarrow as pa
    from pyarrow import parquet

    from ostraka.voters._parquet_files import files_of, pieces_of, schema_of

    files = files_of(folder)
    names = schema_of(files).names
    pieces_of(files)  # refuses files without rows
    known = [name for name in dict.fromkeys((columns.label, columns.person)) if name in names]
    read = [parquet.ParquetFile(path).read(columns=known) for path in files]
    frame = pa.concat_tables(read)
    whole = {name: frame[name] if name in known else pa.nulls(frame.num_rows) for name in names}
    none = (*_table.MISSING, *(text.strip().lower() for text in columns.missing))
    others = sorted({each.name for each in folder.iterdir()} - {path.name for path in files})
    said = [f"{folder} holds files which are not Parquet and are left out, such as {name}" for name in others]
    numbering = np.arange(1, frame.num_rows + 1)
    return _table.Table(folder, pa.table(whole), numbering, none, tuple(said[:1]))


def rows(
    folder: Path, features: Features, encoder: Any, *, missing: tuple[str, ...], width: int
) -> ParquetRows:
    """The features of all rows, which workers compute from the files as public rows have decided."""
    from ostraka.voters._parquet import ParquetRows

    read = partial(_features, features=features, encoder=encoder, missing=missing)
    return ParquetRows.of(folder, columns=features.names, features=read, n_features=width)


def _features(
    frame: Any, piece: Piece, *, features: Features, encoder: Any, missing: tuple[str, ...]
) -> np.ndarray:
    numbering = np.arange(piece.first_in_file, piece.first_in_file + len(frame)) + 1
    return _encoding.matrix(_table.Table(Path(piece.path), frame, numbering, missing), features, encoder)
