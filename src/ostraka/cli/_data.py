"""From tables to arrays: which columns are features and what they hold, decided from public rows alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import typer

from ostraka.cli import _encoding, _table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Columns", "Task", "digits", "tables"]

_MOST_CLASSES = 1000
_TEST = 0.2  # of the public rows, where their labels are known
HELD_OUT = "The held-out rows: their features are used as public questions, their labels to measure accuracy."


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What the options say about columns. Public.

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
    """Public facts about a task, to print."""

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
    """Arrays ready to learn from. Does not print.

    Attributes
    ----------
    name : str
        Public.
    X_private, y_private, groups : arrays
        Private. ``groups`` is None when a row is the unit.
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
    dates : tuple of str
        Columns that hold dates, as days since 1970.
    """

    name: str
    X_private: np.ndarray
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
    dates: tuple[str, ...] = ()

    @property
    def shape(self) -> Shape:
        """What may be printed about it."""
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
        """Rows, or people."""
        return len(self.y_private) if self.groups is None else len(np.unique(self.groups))

    def cells(self) -> Any:
        """Public cells for rows that are images: None lets the columns decide."""
        from ostraka.voters import GraphCells

        return GraphCells(image_shape=(8, 8), time=5.0) if self.encoder is None else None

    @property
    def n_classes(self) -> int:
        """Classes declared, or there are."""
        return len(np.unique(self.y_private)) if self.classes is None else len(self.classes)


def digits(*, seed: int) -> Task:
    """Scikit-learn's digits: 1,150 play the private part, 450 the public one, 197 measure accuracy."""
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
    if public is None:
        table = _table.read(private, missing=columns.missing)
        names = _features(table, columns)
        table, asked = table.split(_held_out(table, columns.person, share=holdout or 0.0, seed=seed))
    else:
        asked = _table.read(public, missing=columns.missing)
        table = _table.read(private, numbers=_likely_numbers(asked, columns), missing=columns.missing)
        names = _features(table, columns)
    labels = _labels(table, columns)
    features, said = _encoding.understood(asked, names, as_text=columns.text, fill=columns.fill)
    encoder = _encoding.encoder(asked, features)
    X = _encoding.matrix(asked, features, encoder)
    y = _public_labels(asked, columns.label, like=labels)
    test = np.zeros(len(X), dtype=bool)
    if y is not None:
        test[np.random.default_rng(seed).permutation(len(X))[: round(_TEST * len(X))]] = True
    return Task(
        name=private.name,
        X_private=_encoding.matrix(table, features, encoder),
        y_private=labels,
        groups=_people(table, columns.person),
        X_public=X[~test],
        public_rows=asked.numbering[~test] - 1,
        X_test=X[test] if test.any() else None,
        y_test=y[test] if y is not None and test.any() else None,
        classes=_as(columns.classes, labels.dtype) if columns.classes else None,
        encoder=encoder,
        columns=names,
        not_protected=(HELD_OUT,) if public is None else (),
        said=tuple(dict.fromkeys((*table.said, *asked.said, *said))),
        dates=features.dates,
    )


def _likely_numbers(asked: _table.Table, columns: Columns) -> list[str]:
    """Columns that hold numbers in the public rows; dates are not read at once."""
    aside = {columns.label, columns.person, *columns.drop, *columns.text}
    return [
        name
        for name in asked.names
        if name not in aside and asked.is_numeric(name) and not asked.holds_dates(name)
    ]


def _features(table: _table.Table, columns: Columns) -> tuple[str, ...]:
    """The columns to learn from, once all that the options name are known to be there."""
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


def _held_out(table: _table.Table, person: str | None, *, share: float, seed: int) -> np.ndarray:
    """A mask of rows, whole people at a time."""
    if not 0 < share < 1:
        raise typer.BadParameter(f"--holdout must be > 0 and < 1, got {share!r}")
    texts = None if person is None else np.array(table.text(person))
    units = np.arange(len(table)) if texts is None else np.unique(texts, return_inverse=True)[1]
    n_units = int(units.max()) + 1
    n_held = round(share * n_units)
    if not 0 < n_held < n_units:
        raise ValueError(f"--holdout {share:g} leaves one side empty: there are {n_units} units")
    chosen = np.random.default_rng(seed).permutation(n_units)[:n_held]
    return np.isin(units, chosen)


def _labels(table: _table.Table, columns: Columns) -> np.ndarray:
    """The private labels: whole numbers if all are, else text."""
    codes, texts = table.kinds(columns.label)
    where = f"{table.path}: column {columns.label!r} (--label)"
    if "" in texts:
        raise ValueError(
            f"{where} is empty in data row {_first(table, codes, texts, '')}: drop or fill such rows"
        )
    known = set(columns.classes) or set(texts)
    if len(known) < 2:
        raise ValueError(f"{where} holds one class only; there must be two or more: is it the right column?")
    if len(known) > _MOST_CLASSES:
        raise ValueError(f"{where} holds more than {_MOST_CLASSES:,} different values: it must hold classes")
    strange = [text for text in texts if text not in known]
    if strange:
        raise ValueError(
            f"{where} is not one of --classes in data row {_first(table, codes, texts, *strange)}: "
            "correct it, or declare it"
        )
    return np.asarray(_as(texts, np.dtype(np.int64 if all(map(_is_whole, known)) else np.str_))[codes])


def _first(table: _table.Table, codes: np.ndarray, texts: list[str], *wanted: str) -> int:
    """The first data row that holds one of these texts."""
    places = [texts.index(text) for text in wanted]
    return int(table.numbering[np.isin(codes, places).argmax()])


def _public_labels(asked: _table.Table, label: str, *, like: np.ndarray) -> np.ndarray | None:
    """True labels of the public rows, where all of them are there."""
    if label not in asked.names:
        return None
    codes, texts = asked.kinds(label)
    if "" in texts:
        return None
    if like.dtype.kind == "i" and not all(map(_is_whole, texts)):
        raise ValueError(f"{asked.path}: column {label!r} must hold whole numbers, as the private one does")
    return np.asarray(_as(texts, like.dtype)[codes])


def _people(table: _table.Table, person: str | None) -> np.ndarray | None:
    if person is None:
        return None
    codes, texts = table.kinds(person)
    if "" in texts:
        raise ValueError(
            f"{table.path}: column {person!r} (--person) is empty in data row "
            f"{_first(table, codes, texts, '')}: every row must name its person"
        )
    return np.asarray(np.array(texts)[codes])


def _as(texts: Sequence[str], dtype: Any) -> np.ndarray:
    return np.array([int(text) for text in texts] if dtype.kind == "i" else list(texts))


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal()
