"""Convert tables to arrays; public rows alone decide which columns are features and their types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import typer

from ostraka._units import numbered
from ostraka.cli import _arrays, _encoding, _handover, _schema, _stored, _table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["HELD_OUT", "Columns", "Shape", "Task", "digits", "tables"]


_TEST = 0.2  # of the public rows, where their labels are known
HELD_OUT = "The held-out rows: their features are used as public questions, their labels to measure accuracy."


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The options about columns. Public.

    Attributes
    ----------
    label : str
        What to learn.
    person : str or None
        Whom a row belongs to; None: every row is its own unit.
    drop, text : sequence of str
        Columns to leave out; columns of kinds, even if they are written as numbers.
    classes : sequence of str
        The classes there may be; empty: those of the private labels, which then count as public.
    fill : bool
        Put the public median where a number is missing, rather than refuse.
    missing : sequence of str
        What stands for no number, beside the usual.
    """

    label: str
    person: str | None = None
    drop: Sequence[str] = ()
    text: Sequence[str] = ()
    classes: Sequence[str] = ()
    fill: bool = False
    missing: Sequence[str] = ()


class Shape(NamedTuple):
    """Public facts about a task, for printing."""

    name: str
    n_rows: int
    n_features: int
    n_public: int
    unit: str
    n_units: int
    classes_declared: bool
    said: tuple[str, ...]
    not_protected: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Task:
    """Arrays to learn from. Its repr shows no values.

    Attributes
    ----------
    name : str
        Public.
    X_private, y_private, groups : arrays
        Private. ``groups`` is None when a row is the unit. Of a folder, ``X_private`` stays in the files.
    X_public : array of shape (n_public, n_features)
        Public rows to ask the teachers about.
    public_rows : integer array of shape (n_public,)
        Where these stand in their file, from 0.
    X_test, y_test : arrays or None
        Public rows with their true labels that are never asked about, to measure accuracy with.
    classes : array or None
        Public. None: the labels' own.
    encoder : fitted transformer or None
        From a table's cells, in the order of ``columns``, to the features: learned from public rows.
    columns : tuple of str
        Public.
    not_protected : tuple of str
        Public sentences.
    said : tuple of str
        How the tables were read, where that is not the usual way.
    shown : Shown or None
        How the public table was read, for the files of the student.
    array : str
        Name of the array of rows in an ``.npz`` file; empty for tables.
    image_shape : (height, width) or None
        Rows are grey images.
    """

    name: str
    X_private: Any
    y_private: np.ndarray
    groups: np.ndarray | None
    X_public: np.ndarray
    public_rows: np.ndarray
    X_test: np.ndarray | None
    y_test: np.ndarray | None
    classes: np.ndarray | None
    encoder: Any
    columns: tuple[str, ...]
    not_protected: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    shown: _handover.Shown | None = None
    array: str = ""
    image_shape: tuple[int, int] | None = None

    @property
    def shape(self) -> Shape:
        """Return the facts that may be printed about a task."""
        return Shape(
            name=self.name,
            n_rows=len(self.y_private),
            n_features=self.X_private.shape[1],
            n_public=len(self.X_public),
            unit="row" if self.groups is None else "person",
            n_units=self.n_units,
            classes_declared=self.classes is not None,
            said=self.said,
            not_protected=self.not_protected,
        )

    @property
    def n_units(self) -> int:
        """The number of rows, or of people."""
        return numbered(len(self.y_private) if self.groups is None else self.groups)[1]

    def cells(self) -> Any:
        """The public cells for rows that are images; None for tables, whose columns decide."""
        from ostraka.voters import GraphCells

        if self.image_shape is None:
            return None
        return GraphCells(image_shape=self.image_shape, time=5.0 if self.image_shape == (8, 8) else 8.0)

    @property
    def n_classes(self) -> int:
        """The number of classes declared, else of those in the labels."""
        return len(np.unique(self.y_private)) if self.classes is None else len(self.classes)


def digits(*, seed: int) -> Task:
    """Return scikit-learn's digits: 1,150 as private rows, 450 as public ones, 197 to measure accuracy."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    test, public, private = np.split(np.random.default_rng(seed).permutation(len(y)), [197, 647])
    return Task(
        name="scikit-learn's digits",
        X_private=X[private],
        y_private=y[private],
        groups=None,
        X_public=X[public],
        public_rows=public,
        X_test=X[test],
        y_test=y[test],
        classes=np.arange(10),
        encoder=None,
        columns=tuple(f"pixel_{row}_{column}" for row in range(8) for column in range(8)),
        image_shape=(8, 8),
    )


def tables(private: Path, public: Path | None, *, columns: Columns, holdout: float | None, seed: int) -> Task:
    """Read a private table and a public one, or hold rows out of the private one.

    Raises
    ------
    typer.BadParameter
        Neither a public table nor a share to hold out was given, or both.
    ValueError
        The tables cannot be used: the message says what, where, and what to type.
    """
    if (public is None) == (holdout is None):
        raise typer.BadParameter(_which_public(private, both=public is not None))
    if ".npz" in {path.suffix.lower() for path in (private, public) if path is not None}:
        return _of_arrays(private, public, columns=columns, holdout=holdout, seed=seed)
    if public is None:
        table = _table.read(private, missing=columns.missing)
        names = _features(table, columns)
        texts = None if columns.person is None else np.array(table.text(columns.person))
        table, asked = table.split(_held_out(len(table), texts, share=holdout or 0.0, seed=seed))
    else:
        asked = _table.read(public, missing=columns.missing)
        table = (
            _stored.head(private, columns)
            if private.is_dir()
            else _table.read(private, numbers=_likely_numbers(asked, columns), missing=columns.missing)
        )
        names = _features(table, columns)
    labels = _encoding.labels(table, columns)
    y = _encoding.public_labels(asked, columns.label, like=labels)
    unknown = _unknown_classes(y, labels, columns, where=public)
    test = _tested(len(asked), known=y is not None, seed=seed)
    features, said = _schema.understood(asked, names, as_text=columns.text, fill=columns.fill)
    encoder = _encoding.encoder(asked.split(test)[0], features)
    X = _encoding.matrix(asked, features, encoder)
    groups = _encoding.people(table, columns.person)
    notes = (*table.said, *asked.said, *unknown, *said)
    whole = [table]
    del table  # so that its memory is free again while it is transformed
    return Task(
        name=private.name,
        X_private=(
            _stored.rows(private, features, encoder, missing=whole.pop().missing, width=X.shape[1])
            if private.is_dir()
            else _encoding.matrix(whole.pop(), features, encoder)
        ),
        y_private=labels,
        groups=groups,
        X_public=X[~test],
        public_rows=asked.numbering[~test] - 1,
        X_test=X[test] if test.any() else None,
        y_test=y[test] if y is not None and test.any() else None,
        classes=_encoding.spelled(columns.classes, labels.dtype) if columns.classes else None,
        encoder=encoder,
        columns=names,
        not_protected=(HELD_OUT,) if public is None else (),
        said=tuple(dict.fromkeys(notes)),
        shown=_handover.Shown.of(asked.split(test)[0], features),
    )


def _likely_numbers(asked: _table.Table, columns: Columns) -> list[str]:
    """Return the columns that hold numbers in the public rows; dates are left out here."""
    aside = {columns.label, columns.person, *columns.drop, *columns.text}
    return [
        name
        for name in asked.names
        if name not in aside and asked.is_numeric(name) and not asked.holds_dates(name)
    ]


def _features(table: _table.Table, columns: Columns) -> tuple[str, ...]:
    """Return the columns to learn from, after a check that all columns named by options exist."""
    named = [(columns.label, "--label"), (columns.person, "--person")]
    named += [(name, "--drop") for name in columns.drop] + [(name, "--text") for name in columns.text]
    for name, option in named:
        if name is not None:
            table.require(name, option=option)
    aside = {columns.label, columns.person, *columns.drop}
    features = tuple(name for name in table.names if name not in aside)
    if not features:
        raise ValueError(
            f"{table.path} has no columns besides --label, --person and --drop: nothing to learn from"
        )
    return features


def _which_public(private: Path, *, both: bool) -> str:
    if both:
        return "--public and --holdout exclude each other: public rows come from one place"
    return (
        "the teachers need public rows to answer questions about, and none were named. Type --public FILE "
        "for unlabelled rows that may be known to anybody, or --holdout 0.2 to give up the privacy of "
        f"a fifth of {private}"
    )


def _of_arrays(
    private: Path, public: Path | None, *, columns: Columns, holdout: float | None, seed: int
) -> Task:
    """Return a task from ``.npz`` files, with rows held out of the private one if there is no public one."""
    rows = _arrays.read(private, columns, private=True)
    if public is None:
        held = _held_out(rows.X.shape[0], rows.people, share=holdout or 0.0, seed=seed)
        rows, asked = rows.part(~held), rows.part(held)
        places = np.flatnonzero(held)
    else:
        asked = _arrays.read(public, columns, private=False)
        places = np.arange(asked.X.shape[0])
    X, X_public, step = _arrays.dense(rows, asked)
    labels = _arrays.classes(f"{private}: array {columns.label!r} (--label)", rows.labels, columns)
    unknown = _unknown_classes(asked.labels, labels, columns, where=public)
    test = _tested(len(X_public), known=asked.labels is not None, seed=seed)
    return Task(
        name=private.name,
        X_private=X,
        y_private=labels,
        groups=rows.people,
        X_public=X_public[~test],
        public_rows=places[~test],
        X_test=X_public[test] if test.any() else None,
        y_test=asked.labels[test].astype(labels.dtype) if asked.labels is not None and test.any() else None,
        classes=_encoding.spelled(columns.classes, labels.dtype) if columns.classes else None,
        encoder=step,
        columns=tuple(f"{rows.name}_{place}" for place in range(rows.X.shape[1])),
        not_protected=(HELD_OUT,) if public is None else (),
        said=unknown,
        array=rows.name,
        image_shape=rows.image_shape,
    )


def _unknown_classes(
    y: np.ndarray | None, labels: np.ndarray, columns: Columns, *, where: Path | None
) -> tuple[str, ...]:
    """Say that public labels are no classes, or refuse where most are: accuracy would be measured wrongly."""
    if y is None or where is None:  # held-out rows, whose labels are of the private table
        return ()
    classes = _encoding.spelled(columns.classes, labels.dtype) if columns.classes else np.unique(labels)
    y = y.astype(labels.dtype) if labels.dtype.kind != "U" else y
    lost = ~np.isin(y, classes)
    if not lost.any():
        return ()
    shown = ", ".join(repr(str(each)) for each in np.unique(y[lost])[:3])
    said = (
        f"{where}: {lost.sum():,} of {len(lost):,} public rows have a label in column {columns.label!r} "
        f"that is none of the {len(classes)} classes, such as {shown}"
    )
    if 2 * lost.sum() > len(lost):
        raise ValueError(
            f"{said}: spell labels as in the private file, or remove the column, and no accuracy is measured"
        )
    return (f"{said}; these rows count as wrong",)


def _held_out(n_rows: int, people: np.ndarray | None, *, share: float, seed: int) -> np.ndarray:
    """Return a mask of held-out rows; all rows of a person are held out together."""
    if not 0 < share < 1:
        raise typer.BadParameter(f"--holdout must be > 0 and < 1, got {share!r}")
    units, n_units, _ = numbered(n_rows if people is None else people)
    n_held = round(share * n_units)
    if not 0 < n_held < n_units:
        raise ValueError(f"--holdout {share:g} leaves one side empty: there are {n_units} units")
    chosen = np.random.default_rng(seed).permutation(n_units)[:n_held]
    return np.isin(units, chosen)


def _tested(n_rows: int, *, known: bool, seed: int) -> np.ndarray:
    """Choose the public rows that measure accuracy and are not asked about."""
    test = np.zeros(n_rows, dtype=bool)
    if known:
        test[np.random.default_rng(seed).permutation(n_rows)[: round(_TEST * n_rows)]] = True
    return test
