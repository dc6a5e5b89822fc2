"""Read votes from files: counts, or every teacher's predictions. Messages never quote a vote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.data import table as tables

if TYPE_CHECKING:
    from pathlib import Path

_SUFFIX = ".npz"
_COUNTS, _PREDICTIONS, _GUESSES = "counts", ("predictions", "votes"), "guesses"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Votes:
    """The number of teachers that chose each class in each query. Private: the repr does not show it.

    Attributes
    ----------
    counts : float array of shape (n_queries, n_classes), in votes
    queries : tuple of str
        What each query is called: its number, or its column.
    """

    counts: np.ndarray
    queries: tuple[str, ...]

    @property
    def n_teachers(self) -> int | None:
        """The number of ballots in each query, or None if it differs or is not whole."""
        cast = self.counts.sum(axis=1)
        return int(cast[0]) if (cast == cast[0]).all() and cast[0] == round(cast[0]) else None

    def first(self, n_queries: int | None) -> Votes:
        """Return the first ``n_queries`` queries."""
        return Votes(counts=self.counts[:n_queries], queries=self.queries[:n_queries])


def read(path: Path, *, array: str | None, n_classes: int | None) -> Votes:
    """Read counts or predictions from ``.npz``; predictions also from CSV or Parquet, one row per teacher.

    Raises
    ------
    ValueError
        The file does not hold votes: the message says what, where, and what to type.
    """
    if path.suffix.lower() == _SUFFIX:
        name, values = _array(path, array)
        if name.endswith(_COUNTS):
            return _named(_counts(values, f"{path}: array {name!r}", n_classes=n_classes))
        return _named(_counted(values, n_classes, f"{path}: array {name!r}"))
    if array is not None:
        raise ValueError(f"--array is for .npz files, and {path} is a table")
    table = tables.read(path, public=False)
    columns = [table.text(name) for name in table.names]
    kinds = {text for column in columns for text in column}
    if "" in kinds:
        raise ValueError(f"{path} has empty cells: every teacher (row) must answer every query (column)")
    if all(text.isdecimal() for text in kinds):
        predictions = np.array([[int(text) for text in column] for column in columns]).T
    else:
        place = {kind: number for number, kind in enumerate(sorted(kinds))}
        predictions = np.array([[place[text] for text in column] for column in columns]).T
    return Votes(counts=_counted(predictions, n_classes, str(path)).astype(float), queries=tuple(table.names))


def read_guesses(path: Path, *, shape: tuple[int, ...]) -> np.ndarray:
    """Read the student's class probabilities, in the shape of the counts, from ``.npz`` or a table."""
    if path.suffix.lower() == _SUFFIX:
        guesses = np.asarray(_array(path, None, wanted=_GUESSES)[1], dtype=float)
    else:
        table = tables.read(path, public=False)
        guesses = np.stack([table.numbers(name)[0] for name in table.names], axis=1)
    if guesses.shape != shape or not np.isfinite(guesses).all():
        raise ValueError(
            f"{path} (--guesses) must hold one finite probability a query and class, shape {shape}, "
            f"got shape {guesses.shape}"
        )
    return guesses


def _array(path: Path, name: str | None, *, wanted: str = _COUNTS) -> tuple[str, Any]:
    """Return the array of this name, else the one with a known name, else the only one."""
    arrays = tables.read_arrays(path, how=f"numpy.savez(…, {wanted}=…)")
    wanted_names = (wanted,) if wanted == _GUESSES else (wanted, *_PREDICTIONS)
    if name is None:
        name = next((key for key in wanted_names if key in arrays), None)
        name = next(iter(arrays)) if name is None and len(arrays) == 1 else name
    if name is None or name not in arrays:
        names = ", ".join(sorted(arrays)) or "nothing"
        how = "rename one" if wanted == _GUESSES else "type --array NAME"
        raise ValueError(f"{path} holds {names}, and none of it is called {' or '.join(wanted_names)}: {how}")
    return name, arrays[name]


def _counts(values: Any, where: str, *, n_classes: int | None) -> np.ndarray:
    if values.ndim != 2 or values.shape[1] < 2 or values.dtype.kind not in "iuf" or not len(values):
        raise ValueError(f"{where} must be numbers of shape (n_queries, n_classes), got shape {values.shape}")
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise ValueError(f"{where} must hold finite counts, none below 0")
    if not (values == np.rint(values)).all():
        raise ValueError(f"{where} must hold whole numbers of votes; shares are no counts")
    if n_classes is not None and n_classes != values.shape[1]:
        raise ValueError(
            f"{where} has {values.shape[1]} classes, and --classes says {n_classes}: leave it out"
        )
    return np.asarray(values, dtype=float)


def _counted(predictions: Any, n_classes: int | None, where: str) -> np.ndarray:
    from ostraka.voters.voting import count_votes

    if predictions.ndim != 2 or not predictions.size or predictions.dtype.kind not in "iu":
        raise ValueError(
            f"{where} must be class numbers of shape (n_teachers, n_queries), got shape {predictions.shape}"
        )
    n_seen = int(predictions.max()) + 1
    if predictions.min() < 0 or (n_classes is not None and n_seen > n_classes):
        last = (n_classes or n_seen) - 1
        raise ValueError(f"{where} must hold class numbers from 0 to {last}: a teacher may not abstain")
    return count_votes(predictions, n_classes=max(2, n_classes or n_seen))


def _named(counts: np.ndarray) -> Votes:
    return Votes(
        counts=counts.astype(float), queries=tuple(str(number) for number in range(1, len(counts) + 1))
    )
