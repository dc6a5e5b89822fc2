"""From columns to a matrix of features, by scales and kinds that are learned from public rows alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostraka.cli._table import Table

__all__ = ["Features", "encoder", "matrix", "understood"]

MOST_KINDS = 200
_FEW_WORDS = 3
_NOT_MEASURED = {"-9", "-99", "-999", "-9999", "9999", "99999"}


class Features(NamedTuple):
    """Columns to learn from. Public.

    ``numeric`` says for each column whether it holds numbers; ``fill`` puts the public median where one is
    missing; ``dates`` names those that hold dates, as days since 1970.
    """

    names: tuple[str, ...]
    numeric: tuple[bool, ...]
    fill: bool
    dates: tuple[str, ...] = ()


def understood(
    asked: Table, names: tuple[str, ...], *, as_text: Sequence[str], fill: bool
) -> tuple[Features, list[str]]:
    """What each feature is, as the public rows have it, and what the user should know of that.

    Raises
    ------
    ValueError
        A column is not there, or empty, or holds names or sentences.
    """
    said, dates, numeric = [], [], []
    for name in names:
        if name not in asked.names:
            raise ValueError(
                f"{asked.path} (public) lacks the column {name!r} of the private table: "
                f"add it, or type --drop {name}"
            )
        codes, texts = asked.kinds(name)
        if all(text.lower() in asked.missing for text in texts):
            raise ValueError(f"{asked.path} (public): column {name!r} is empty: type --drop {name}")
        numeric.append(name not in as_text and asked.is_numeric(name))
        if numeric[-1] and asked.holds_dates(name):
            dates.append(name)
            said.append(f"column {name!r} holds dates: it counts days since 1970-01-01")
        elif numeric[-1]:
            said += _odd_numbers(asked, name, texts)
        elif len(texts) > MOST_KINDS:
            said.append(_many_kinds(asked, name, texts, n_rows=len(codes)))
    return Features(names, tuple(numeric), fill, tuple(dates)), said


def _odd_numbers(asked: Table, name: str, texts: list[str]) -> list[str]:
    """What stands for a missing number, and what may."""
    found = sorted({text for text in texts if text and text.lower() in asked.missing})
    odd = sorted({text for text in texts if text in _NOT_MEASURED} - {*asked.missing})
    said = [f"column {name!r}: {', '.join(map(repr, found))} is read as no number"] if found else []
    return said + [
        f"column {name!r} holds {text}: if that means no number, type --missing={text}" for text in odd
    ]


def _many_kinds(asked: Table, name: str, texts: list[str], *, n_rows: int) -> str:
    """Codes are told apart as far as the public rows have them often; names and sentences are refused."""
    where = f"column {name!r} holds more than {MOST_KINDS} different texts"
    words = np.mean([len(text.split()) for text in texts])
    if words > _FEW_WORDS:
        raise ValueError(
            f"{asked.path} (public): {where}, and they look like sentences, which learn does not read: "
            f"type --drop {name}, or see docs/prompts.md"
        )
    if len(texts) > n_rows / 2:
        raise ValueError(
            f"{asked.path} (public): {where}, so it looks like names rather than kinds: type --drop {name}"
        )
    return f"{where}: the most frequent ones of the public rows are told apart, all others count as one"


def encoder(public: Table, features: Features) -> Any:
    """Numbers centred and scaled, kinds as one column each, the rarest together; fitted on public rows."""
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
    places = np.arange(len(features.names))
    chosen = np.array(features.numeric)
    built = ColumnTransformer(
        [("numbers", scaled, places[chosen].tolist()), ("kinds", kinds, places[~chosen].tolist())]
    )
    return built.fit(_cells(public, features))


def matrix(table: Table, features: Features, fitted: Any) -> np.ndarray:
    """What the encoder makes of a table, a column at a time and not a cell at a time: the same to the bit."""
    numbers = [name for name, numeric in zip(features.names, features.numeric, strict=True) if numeric]
    kinds = [name for name, numeric in zip(features.names, features.numeric, strict=True) if not numeric]
    steps = fitted.named_transformers_
    width = fitted.transform(_cells(table, features, rows=slice(0, 1))).shape[1]
    X = np.zeros((len(table), width))
    for place, name in enumerate(numbers):
        X[:, place] = _scaled(column(table, name, fill=features.fill), steps["numbers"], place)
    start = len(numbers)
    for place, name in enumerate(kinds):
        codes, texts = table.kinds(name)
        block = _block(texts, place, steps["kinds"], n_kinds=len(kinds))
        X[:, start : start + block.shape[1]] = block[codes]
        start += block.shape[1]
    return X


def column(table: Table, name: str, *, fill: bool) -> np.ndarray:
    """A column of numbers.

    Raises
    ------
    ValueError
        A cell holds text, infinity, or nothing where nothing is put instead.
    """
    where = f"{table.path}: column {name!r}"
    numbers, bad = table.numbers(name)
    if bad is not None:
        raise ValueError(
            f"{where} must hold numbers, as it does in the public rows, but data row {bad} holds text: "
            f"correct it, or type --text {name} or --drop {name}"
        )
    if np.isinf(numbers).any():
        raise ValueError(
            f"{where} is infinite in data row {table.numbering[np.isinf(numbers).argmax()]}: correct it"
        )
    if np.isnan(numbers).any() and not fill:
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


def _block(texts: Sequence[str], place: int, kinds: Any, *, n_kinds: int) -> np.ndarray:
    """The columns of one feature of kinds, one row for each different text."""
    asked = np.empty((len(texts), n_kinds), dtype=object)
    for k, known in enumerate(kinds.categories_):
        asked[:, k] = texts if k == place else known[0]
    spread = kinds.transform(asked)
    widths = [_width(kinds, k) for k in range(n_kinds)]
    start = sum(widths[:place])
    block: np.ndarray = spread[:, start : start + widths[place]]
    return block


def _width(kinds: Any, place: int) -> int:
    """How many columns a feature of kinds takes: one a kind, or one for all rare ones together."""
    rare = kinds.infrequent_categories_[place] if hasattr(kinds, "infrequent_categories_") else None
    return len(kinds.categories_[place]) - (0 if rare is None else len(rare) - 1)


def _cells(table: Table, features: Features, *, rows: slice = slice(None)) -> np.ndarray:
    """The features as numbers and text side by side, shape (n_rows, n_columns)."""
    part = table.part(rows)
    cells = np.empty((len(part), len(features.names)), dtype=object)
    for place, (name, numeric) in enumerate(zip(features.names, features.numeric, strict=True)):
        cells[:, place] = column(part, name, fill=features.fill) if numeric else part.text(name)
    return cells
