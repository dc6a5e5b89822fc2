"""Read ``.npz`` files with one array of rows (numbers, images or sparse), labels, and optionally people."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ostraka.cli import _encoding

if TYPE_CHECKING:
    from pathlib import Path

    from ostraka.cli._data import Columns

__all__ = ["Rows", "classes", "dense", "read"]

_SPARSE = {"data", "indices", "indptr", "format", "shape"}  # as scipy.sparse.save_npz writes
_TOPICS = 32
_WIDE = 200  # columns of a sparse matrix, above which it is turned into few
_SAVE = "np.savez('rows.npz', X=X, y=y)"


class Rows(NamedTuple):
    """Arrays of one file, whose values may be private.

    ``X`` has shape (n_rows, n_columns), dense or sparse; ``image_shape`` is that of grey images; ``name`` is
    the array's name; ``labels`` and ``people`` are None where the file has none.
    """

    path: Path
    X: Any
    labels: np.ndarray | None
    people: np.ndarray | None
    name: str
    image_shape: tuple[int, int] | None

    def __repr__(self) -> str:
        return f"Rows({self.path}, shape={self.X.shape})"

    def part(self, rows: np.ndarray) -> Rows:
        """Return the selected rows."""
        labels = None if self.labels is None else self.labels[rows]
        people = None if self.people is None else self.people[rows]
        return self._replace(X=self.X[rows], labels=labels, people=people)


def read(path: Path, columns: Columns, *, private: bool) -> Rows:
    """Read the rows of a file.

    Raises
    ------
    ValueError
        No ``.npz`` file of plain arrays, no or several arrays of rows, or not a label for each row.
    """
    found = _loaded(path)
    aside = {name: found.pop(name, None) for name in (columns.label, columns.person) if name is not None}
    for name, option in ((columns.label, "--label"), (columns.person, "--person")):
        if private and name is not None and aside[name] is None:
            raise ValueError(
                f"{path} has no array {name!r} ({option}); it has {', '.join(found) or 'none'}: write one "
                f"file by {_SAVE}"
            )
    for name in columns.drop:
        found.pop(name, None)
    name, X = _sparse(path, found) if set(found) >= _SPARSE else _rows(path, found)
    for values, option in ((aside[columns.label], "--label"), (aside.get(columns.person or ""), "--person")):
        if values is not None and values.shape != (X.shape[0],):
            raise ValueError(
                f"{path}: {option} must have one value for each of {X.shape[0]:,} rows, has shape "
                f"{values.shape}"
            )
    shape = X.shape[1:3] if X.ndim == 3 or (X.ndim == 4 and X.shape[3] == 1) else None
    labels, people = aside[columns.label], aside.get(columns.person or "")
    flat = X if X.ndim == 2 else X.reshape(len(X), -1)
    return Rows(path, _checked(path, name, flat), labels, people, name, shape)


def dense(private: Rows, public: Rows) -> tuple[np.ndarray, np.ndarray, Any]:
    """Return both as dense arrays, and the step, fitted on public rows, which reduced wide sparse rows."""
    if private.X.shape[1] != public.X.shape[1]:
        raise ValueError(
            f"{private.path} has {private.X.shape[1]:,} numbers a row and {public.path} "
            f"{public.X.shape[1]:,}: both must have the same"
        )
    if not hasattr(private.X, "toarray") and not hasattr(public.X, "toarray"):
        return private.X, public.X, None
    if private.X.shape[1] <= _WIDE:
        return *(
            each.X.toarray() if hasattr(each.X, "toarray") else each.X for each in (private, public)
        ), None
    from sklearn.decomposition import TruncatedSVD
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    n_topics = max(1, min(_TOPICS, public.X.shape[0] - 1))
    step = make_pipeline(TruncatedSVD(n_components=n_topics, random_state=0), StandardScaler()).fit(public.X)
    return step.transform(private.X), step.transform(public.X), step


def _loaded(path: Path) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, zipfile.BadZipFile, EOFError):
        pass  # its message may quote what is in the file
    raise ValueError(f"{path} cannot be read as .npz with plain arrays: write it by {_SAVE}")


def _rows(path: Path, found: dict[str, Any]) -> tuple[str, Any]:
    tables = {name: array for name, array in found.items() if array.ndim >= 2}
    if len(tables) != 1:
        raise ValueError(
            f"{path} must have one array of rows beside the labels, has {', '.join(tables) or 'none'}: leave "
            f"others out by --drop, or write it by {_SAVE}"
        )
    ((name, array),) = tables.items()
    return name, array


def _sparse(path: Path, found: dict[str, Any]) -> tuple[str, Any]:
    from scipy import sparse

    kinds = {b"csr": sparse.csr_array, b"csc": sparse.csc_array}
    kind = kinds.get(found["format"].item())
    if kind is None:
        raise ValueError(f"{path} holds a sparse matrix of another kind than CSR or CSC: write X.tocsr()")
    parts = found["data"], found["indices"], found["indptr"]
    return "X", kind(parts, shape=tuple(found["shape"].tolist())).tocsr()


def _checked(path: Path, name: str, X: Any) -> Any:
    values = X.data if hasattr(X, "toarray") else X
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{path}: array {name!r} must hold numbers, has dtype {values.dtype}")
    if not X.shape[0]:
        raise ValueError(f"{path} has no rows")
    finite = np.isfinite(values.astype(np.float64, copy=False))
    if not finite.all():
        raise ValueError(
            f"{path}: array {name!r} has cells that are missing or infinite: put public numbers there, such "
            "as the public median"
        )
    return X.astype(np.float64)


def classes(where: str, labels: Any, columns: Columns) -> np.ndarray:
    """Return the private labels of an array, after the checks that a table's labels get."""
    array = np.asarray(labels)
    if array.dtype.kind == "f" and (array == np.rint(array)).all():
        array = array.astype(np.int64)
    if array.dtype.kind not in "biuU":
        raise ValueError(f"{where} must hold classes: whole numbers or texts, has dtype {array.dtype}")
    array = array.astype(np.int64 if array.dtype.kind in "biu" else np.str_)
    declared = _encoding.spelled(columns.classes, array.dtype) if columns.classes else np.unique(array)
    if not 2 <= len(declared) <= _encoding.MOST_CLASSES:
        raise ValueError(f"{where} must hold 2 to {_encoding.MOST_CLASSES:,} classes: is it the right array?")
    if not np.isin(array, declared).all():
        row = int((~np.isin(array, declared)).argmax()) + 1
        raise ValueError(f"{where} is not one of --classes in row {row}: correct it, or declare it")
    return array
