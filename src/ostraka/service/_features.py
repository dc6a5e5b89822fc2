"""Features of a request's cells, computed as by the encoders of ``learn`` but without their checks."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CompiledEncoder"]

_UNKNOWN = "\0 no text of the public rows"
_TRIALS = 64  # rows on which the two must agree to the bit


class _Numbers(NamedTuple):
    """Columns of numbers with their means and scales."""

    places: list[int]
    mean: np.ndarray
    scale: np.ndarray


class _Kind(NamedTuple):
    """A column of categories: the index of each text's feature; -1 if all features are 0."""

    place: int
    features: dict[str, int]
    unknown: int


class CompiledEncoder:
    """A fitted ``ColumnTransformer`` of scaled numbers and one-hot kinds, as arrays and dictionaries.

    scikit-learn takes 270 us a call for checks of its input, which the service has made already.
    """

    def __init__(self, numbers: _Numbers, kinds: Sequence[_Kind], width: int) -> None:
        self._numbers, self._kinds, self._width = numbers, tuple(kinds), width
        self._n = len(numbers.places)
        self._all = numbers.places == list(range(self._n)) and not kinds

    @classmethod
    def of(cls, encoder: Any, n_columns: int) -> Self | None:
        """Compile a fitted encoder so that results agree to the bit; None for an unknown type."""
        try:
            made = cls(*_parts(encoder))
        except (AttributeError, KeyError, TypeError, ValueError):
            return None
        rows = made._trials(n_columns)
        cells = np.empty((len(rows), n_columns), dtype=object)
        cells[:] = rows
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            right = np.asarray(encoder.transform(cells), dtype=np.float64)
        return made if np.array_equal(made(rows), right) else None

    def __call__(self, rows: Sequence[list[Any]]) -> np.ndarray:
        """Features of checked rows, shape (n_rows, n_features)."""
        if self._all:
            found = np.array(rows, dtype=np.float64)
        else:
            found = np.zeros((len(rows), self._width))
            if self._n:
                places = self._numbers.places
                found[:, : self._n] = [[row[place] for place in places] for row in rows]
            for kind in self._kinds:
                features, place, unknown = kind.features, kind.place, kind.unknown
                for number, row in enumerate(rows):
                    feature = features.get(row[place], unknown)
                    if feature >= 0:
                        found[number, feature] = 1.0
        part = found[:, : self._n]
        part -= self._numbers.mean
        part /= self._numbers.scale
        return found

    def _trials(self, n_columns: int) -> list[list[Any]]:
        """Return test rows that contain every text at least once, and numbers around the public ones."""
        rng = np.random.default_rng(0)
        n = max(_TRIALS, *(len(kind.features) for kind in self._kinds), 1)
        rows: list[list[Any]] = [[0.0] * n_columns for _ in range(n)]
        for column, place in enumerate(self._numbers.places):
            values = self._numbers.mean[column] + self._numbers.scale[column] * rng.normal(size=n) * 3
            for number, row in enumerate(rows):
                row[place] = float(values[number])
        for kind in self._kinds:
            texts = list(kind.features)
            for number, row in enumerate(rows):
                row[kind.place] = texts[number % len(texts)]
        return rows


def _parts(encoder: Any) -> tuple[_Numbers, list[_Kind], int]:
    """Return the fitted parameters of the transformers: first those of numbers, then those of categories."""
    steps = [(step, list(places)) for _, step, places in encoder.transformers_ if len(places)]
    steps = [(step, places) for step, places in steps if step != "drop"]
    numbers, kinds, width = _Numbers([], np.zeros(0), np.ones(0)), list[_Kind](), 0
    for step, places in steps:
        if hasattr(step, "categories_"):
            found, width = _kinds(step, places, width)
            kinds += found
        elif width:
            raise ValueError("numbers after kinds are not known")
        else:
            numbers = _scaled(step, places)
            width = len(places)
    return numbers, kinds, width


def _scaled(step: Any, places: list[int]) -> _Numbers:
    """Return mean and scale; an imputer is skipped, because the numbers of a request are finite."""
    scaler = step.named_steps["standardscaler"] if hasattr(step, "named_steps") else step
    n = len(places)
    mean = np.zeros(n) if not scaler.with_mean else np.asarray(scaler.mean_, dtype=np.float64)
    scale = np.ones(n) if not scaler.with_std else np.asarray(scaler.scale_, dtype=np.float64)
    return _Numbers(places, mean, scale)


def _kinds(step: Any, places: list[int], start: int) -> tuple[list[_Kind], int]:
    """Return the index of each text's feature, found by encoding one text at a time."""
    known = [[str(text) for text in texts] for texts in step.categories_]
    found = []
    for column, texts in enumerate(known):
        asked = np.empty((len(texts) + 1, len(known)), dtype=object)
        asked[:] = [each[0] for each in known]
        asked[:, column] = [*texts, _UNKNOWN if step.handle_unknown != "error" else texts[0]]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            spread = np.asarray(step.transform(asked))
        rare = step.infrequent_categories_[column] if hasattr(step, "infrequent_categories_") else None
        width = len(texts) - (0 if rare is None else len(rare) - 1)
        found.append((places[column], spread, width))
    kinds, before = [], 0
    for (place, spread, width), texts in zip(found, known, strict=True):
        block = spread[:, before : before + width]
        where = [start + before + int(row.argmax()) if row.any() else -1 for row in block]
        kinds.append(_Kind(place, dict(zip(texts, where, strict=False)), where[-1]))
        before += width
    return kinds, start + before
