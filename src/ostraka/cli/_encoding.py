"""Convert columns to features, labels and people; scales and categories come from public rows alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.cli import _table
from ostraka.cli._schema import LONGEST_CODE, MOST_KINDS, date_note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostraka.cli._data import Columns
    from ostraka.cli._schema import Features
    from ostraka.cli._table import Table

__all__ = [
    "cells",
    "encoder",
    "labels",
    "matrix",
    "one_hot",
    "people",
    "public_labels",
    "spelled",
]

MOST_CLASSES = 1000
_COLUMNS_AT_ONCE, _ROWS_AT_ONCE = 4, 1 << 13  # of a table of numbers: so many fit a processor's cache
_BUCKETS = 2**12  # of hashed words
_TOPICS = 32


def encoder(public: Table, features: Features) -> Any:
    """Fit the encoder: scaled numbers, one-hot categories, prefixes of codes, topics of texts."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    scaled = StandardScaler()
    if features.fill:
        scaled = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    kinds = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=MOST_KINDS, sparse_output=False
    )
    place = features.names.index
    steps: list[tuple[str, Any, Any]] = [
        ("numbers", scaled, [place(name) for name in features.numbers]),
        ("kinds", kinds, [place(name) for name in features.kinds]),
    ]
    for name in features.codes:
        beginnings = _beginnings(public.kinds(name)[1])
        steps += [(f"code {place(name)}:{length}", _start(length), place(name)) for length in beginnings]
    n_rows = len(public)
    steps += [(f"text {place(name)}", _topics(n_rows), place(name)) for name in features.texts]
    return ColumnTransformer(steps, sparse_threshold=0).fit(cells(public, features))


def _beginnings(texts: Sequence[str]) -> list[int]:
    """Return the shortest and the longest prefix length that gives two or more, but not too many, groups."""
    found = [
        length
        for length in range(1, LONGEST_CODE)
        if 1 < len({text[:length] for text in texts if len(text) >= length}) <= MOST_KINDS
    ]
    return sorted({found[0], found[-1]}) if found else []


def _start(length: int) -> Any:
    """Return a vectorizer whose only word is the first ``length`` characters of a code."""
    from sklearn.feature_extraction.text import CountVectorizer

    return CountVectorizer(token_pattern=rf"(?s)^.{{{length}}}", lowercase=False, dtype=np.float64)


def _topics(n_rows: int) -> Any:
    """Return a pipeline that turns sentences into a few numbers: hashed words, TF-IDF, SVD and scaling."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    hashed = HashingVectorizer(n_features=_BUCKETS, ngram_range=(1, 2), alternate_sign=False)
    svd = TruncatedSVD(n_components=max(1, min(_TOPICS, n_rows - 1)), random_state=0)
    return make_pipeline(hashed, TfidfTransformer(sublinear_tf=True), svd, StandardScaler())


def matrix(table: Table, features: Features, fitted: Any) -> np.ndarray:
    """Transform a table column by column, which gives bit for bit the same as the encoder and is faster.

    A caller who keeps no other reference to the table needs memory for little more than the result.
    """
    steps = fitted.named_transformers_
    width = fitted.transform(cells(table, features, rows=slice(0, 1))).shape[1]
    X = np.zeros((len(table), width))
    for first in range(0, len(features.numbers), _COLUMNS_AT_ONCE):
        some = list(enumerate(features.numbers))[first : first + _COLUMNS_AT_ONCE]
        numbers = [(at, _scaled(column(table, name, features), steps["numbers"], at)) for at, name in some]
        for start in range(0, len(X), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            for at, values in numbers:
                X[rows, at] = values[rows]
        table = table.without([name for _, name in some])
        _table.release_unused()
    start = len(features.numbers)
    for place, name in enumerate(features.kinds):
        codes, texts = table.kinds(name)
        block = one_hot(texts, place, steps["kinds"], n_kinds=len(features.kinds))
        X[:, start : start + block.shape[1]] = block[codes]
        start += block.shape[1]
    for _, step, place in fitted.transformers_[2:]:
        if isinstance(place, int):
            codes, texts = table.kinds(features.names[place])
            made = step.transform(np.array(texts, dtype=object))
            block = made.toarray() if hasattr(made, "toarray") else made
            X[:, start : start + block.shape[1]] = block[codes]
            start += block.shape[1]
    return X


def column(table: Table, name: str, features: Features) -> np.ndarray:
    """Return a column as numbers.

    Raises
    ------
    ValueError
        A cell holds text, infinity, or nothing where nothing is put instead.
    """
    where = f"{table.path}: column {name!r}"
    forms = dict(features.dates)
    numbers, bad = table.days(name, forms[name]) if name in forms else table.numbers(name)
    if bad is not None and name in forms:
        raise ValueError(
            f"{where} must hold dates{date_note(forms[name])}, as it does in the public rows, but data row "
            f"{bad} holds something else: correct it, or type --drop {name}"
        )
    if bad is not None:
        raise ValueError(
            f"{where} must hold numbers, as it does in the public rows, but data row {bad} holds text: "
            f"correct it, or type --text {name} or --drop {name}"
        )
    if np.isinf(numbers).any():
        raise ValueError(
            f"{where} is infinite in data row {table.numbering[np.isinf(numbers).argmax()]}: correct it"
        )
    if np.isnan(numbers).any() and not features.fill:
        raise ValueError(
            f"{where} has no number in data row {table.numbering[np.isnan(numbers).argmax()]}: "
            f"type --fill to put the public median there, or --drop {name}"
        )
    return numbers


def _scaled(values: np.ndarray, step: Any, place: int) -> np.ndarray:
    scaler: Any = step
    if hasattr(step, "named_steps"):
        imputer, scaler = step.named_steps.values()
        values[np.isnan(values)] = imputer.statistics_[place]
    values -= scaler.mean_[place]
    values /= scaler.scale_[place]
    return values


def one_hot(texts: Sequence[str], place: int, kinds: Any, *, n_kinds: int) -> np.ndarray:
    """Return the encoded columns of one categorical feature, one row for each different text."""
    asked = np.empty((len(texts), n_kinds), dtype=object)
    for k, known in enumerate(kinds.categories_):
        asked[:, k] = texts if k == place else known[0]
    spread = kinds.transform(asked)
    widths = [_width(kinds, k) for k in range(n_kinds)]
    start = sum(widths[:place])
    block: np.ndarray = spread[:, start : start + widths[place]]
    return block


def _width(kinds: Any, place: int) -> int:
    """Return a categorical feature's number of columns: one per category, and one for all rare ones."""
    rare = kinds.infrequent_categories_[place] if hasattr(kinds, "infrequent_categories_") else None
    return len(kinds.categories_[place]) - (0 if rare is None else len(rare) - 1)


def cells(table: Table, features: Features, *, rows: slice = slice(None)) -> np.ndarray:
    """Return the features as numbers and text side by side, shape (n_rows, n_columns)."""
    part = table.part(rows)
    found = np.empty((len(part), len(features.names)), dtype=object)
    for place, (name, numeric) in enumerate(zip(features.names, features.numeric, strict=True)):
        found[:, place] = column(part, name, features) if numeric else part.text(name)
    return found


def labels(table: Table, columns: Columns) -> np.ndarray:
    """Return the private labels: whole numbers if all of them are, else text."""
    codes, texts = table.kinds(columns.label)
    where = f"{table.path}: column {columns.label!r} (--label)"
    if "" in texts:
        raise ValueError(
            f"{where} is empty in data row {_first(table, codes, texts, '')}: drop or fill such rows"
        )
    known = set(columns.classes) or set(texts)
    if len(known) < 2:
        raise ValueError(f"{where} holds one class only; there must be two or more: is it the right column?")
    if len(known) > MOST_CLASSES:
        raise ValueError(f"{where} holds more than {MOST_CLASSES:,} different values: it must hold classes")
    strange = [text for text in texts if text not in known]
    if strange:
        raise ValueError(
            f"{where} is not one of --classes in data row {_first(table, codes, texts, *strange)}: "
            "correct it, or declare it"
        )
    return np.asarray(spelled(texts, np.dtype(np.int64 if all(map(_is_whole, known)) else np.str_))[codes])


def _first(table: Table, codes: np.ndarray, texts: list[str], *wanted: str) -> int:
    """Return the first data row that holds one of these texts."""
    places = [texts.index(text) for text in wanted]
    return int(table.numbering[np.isin(codes, places).argmax()])


def public_labels(asked: Table, label: str, *, like: np.ndarray) -> np.ndarray | None:
    """Return the true labels of the public rows, or None if any is missing."""
    if label not in asked.names:
        return None
    codes, texts = asked.kinds(label)
    if "" in texts:
        return None
    if like.dtype.kind == "i" and not all(map(_is_whole, texts)):
        raise ValueError(f"{asked.path}: column {label!r} must hold whole numbers, as the private one does")
    return np.asarray(spelled(texts, like.dtype)[codes])


def people(table: Table, person: str | None) -> np.ndarray | None:
    """Return the identifier of each row's person."""
    if person is None:
        return None
    codes, texts = table.kinds(person)
    if "" in texts:
        raise ValueError(
            f"{table.path}: column {person!r} (--person) is empty in data row "
            f"{_first(table, codes, texts, '')}: every row must name its person"
        )
    return np.asarray(np.array(texts)[codes])


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def spelled(texts: Sequence[str], dtype: Any) -> np.ndarray:
    """Convert texts to whole numbers if the type is that of whole numbers."""
    return np.array([int(text) for text in texts] if dtype.kind == "i" else list(texts))
