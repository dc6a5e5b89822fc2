"""A copy beside the rows it was made from: marginals, what a model learns, nearest rows. Private."""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ostraka.data.schema import Schema

_MOST_ROWS = 20_000  # that a model learns from
_FEWEST_ROWS = 40  # that a model is compared on
_NEAR_ROWS, _AMONG = 500, 10_000  # rows whose nearest is found, and among how many
_SIDES, _MOST_TABLES, _MOST_TABLED = (2, 3, 4), 100, 50_000  # columns of tables; how many; rows in them
_FROM_SEED = 0


def compared(schema: Schema, real: np.ndarray, copy: np.ndarray, *, target: str | None) -> dict[str, Any]:
    """Marginals, tables of columns, models and nearest rows, as plain JSON types. For the owner only.

    Parameters
    ----------
    schema : Schema
    real, copy : int arrays, shape (n_rows, n_columns)
        Codes. ``real`` are private, and so is all that is returned.
    target : str, optional
        What the models predict.
    """
    rng, columns = np.random.default_rng(_FROM_SEED), []
    for j, column in enumerate(schema.columns):
        codes = (real[:, j], copy[:, j])
        shares = [np.bincount(part, minlength=column.size) / max(1, len(part)) for part in codes]
        apart = float(np.abs(shares[0] - shares[1]).sum() / 2)
        marginals = {"real": shares[0].tolist(), "copy": shares[1].tolist(), "apart": apart}
        columns.append({"name": column.name, "values": column.values(), **marginals})
    return {
        "n_real": len(real),
        "n_copy": len(copy),
        "columns": columns,
        "tables": [far for k in _SIDES if (far := _tables(schema.sizes, real, copy, k, rng)) is not None],
        "learned": None if target is None else _learned(real, copy, schema.place(target), rng),
        "near": _near(real, copy, rng),
    }


def _tables(
    sizes: tuple[int, ...], real: np.ndarray, copy: np.ndarray, n_columns: int, rng: np.random.Generator
) -> dict[str, Any] | None:
    """Mean total variation of tables of so many columns, some at random where there are many.

    ``floor``: that of as many real rows as the copy has, drawn with replacement: a copy that knew all shares,
    and drew its rows, would be as far. None where there are too few columns or rows.
    """
    if len(sizes) < n_columns or not len(real) or not len(copy):
        return None
    real, copy = (part[rng.permutation(len(part))[:_MOST_TABLED]] for part in (real, copy))
    drawn = real[rng.integers(len(real), size=len(copy))]
    every = math.comb(len(sizes), n_columns)
    if every <= _MOST_TABLES:
        chosen = list(combinations(range(len(sizes)), n_columns))
    else:
        chosen = [tuple(rng.choice(len(sizes), n_columns, replace=False)) for _ in range(_MOST_TABLES)]
    apart = np.empty((len(chosen), 2))
    for number, columns in enumerate(chosen):
        # total variation of one table of the real rows and of each other
        places = []
        for rows in (real, copy, drawn):
            place = np.zeros(len(rows), dtype=np.int64)
            for j in columns:
                place = place * sizes[j] + rows[:, j]
            places.append(place)
        cells, where = np.unique(np.concatenate(places), return_inverse=True)
        parts = np.split(where.ravel(), np.cumsum([len(place) for place in places])[:-1])
        shares = [np.bincount(part, minlength=cells.size) / len(part) for part in parts]
        apart[number] = [np.abs(shares[0] - other).sum() / 2 for other in shares[1:]]
    means = dict(zip(("copy", "floor"), apart.mean(axis=0).tolist(), strict=True))
    return {"n_columns": n_columns, "n_tables": len(chosen), "of": every, **means}


def _learned(
    real: np.ndarray, copy: np.ndarray, target: int, rng: np.random.Generator
) -> dict[str, Any] | None:
    """Return accuracy and AUC, on half of the real rows, of models of the other half and of the copy."""
    # None where there are too few rows or one class only
    order = rng.permutation(len(real))
    half = len(real) // 2
    rows = {"original": real[order[:half]], "copy": copy[: max(half, 1)]}
    test = real[order[half:]][:_MOST_ROWS]
    counts = [np.unique(part[:, target]).size for part in (*rows.values(), test)]
    if half < _FEWEST_ROWS or min(counts) < 2:
        return None
    truth = test[:, target]
    measures = {name: _scored(part[:_MOST_ROWS], test, target) for name, part in rows.items()}
    majority = np.bincount(rows["original"][:, target]).argmax()
    return {**measures, "majority": float(np.mean(truth == majority)), "n_test": len(test)}


def _scored(rows: np.ndarray, test: np.ndarray, target: int) -> dict[str, float]:
    """Accuracy and AUC of boosted trees; of many classes, the mean AUC of each, weighted by its size."""
    from sklearn.ensemble import HistGradientBoostingClassifier  # noqa: PLC0415  (slow to import)
    from sklearn.metrics import roc_auc_score  # noqa: PLC0415

    model = HistGradientBoostingClassifier(random_state=_FROM_SEED, max_iter=50, early_stopping=False)
    model.fit(np.delete(rows, target, axis=1), rows[:, target])
    chances = model.predict_proba(np.delete(test, target, axis=1))
    truth = test[:, target]
    areas = [
        (float(roc_auc_score(truth == label, chances[:, k])), int((truth == label).sum()))
        for k, label in enumerate(model.classes_)
        if (len(model.classes_) > 2 or k == 1) and 0 < (truth == label).sum() < len(truth)
    ]
    weights = sum(n for _, n in areas)
    return {
        "accuracy": float(np.mean(model.classes_[chances.argmax(axis=1)] == truth)),
        "auc": sum(area * n for area, n in areas) / weights if weights else 0.5,
    }


def _near(real: np.ndarray, copy: np.ndarray, rng: np.random.Generator) -> dict[str, Any] | None:
    """Return in how many columns a row differs from the nearest real one: rows of the copy, and real rows."""
    # a real row is not compared with itself, and both look among as many real rows
    if len(real) < 2 or not len(copy):
        return None
    order = rng.permutation(len(real))
    n_rows = min(_NEAR_ROWS, len(real) // 2, len(copy))
    questions, among = real[order[:n_rows]], real[order[n_rows : n_rows + _AMONG]]
    sampled = copy[rng.choice(len(copy), size=n_rows, replace=False)]
    differences = {"copy": _differences(sampled, among), "original": _differences(questions, among)}
    width = real.shape[1]
    return {
        "n_asked": n_rows,
        "n_among": len(among),
        **{
            name: (np.bincount(numbers, minlength=width + 1) / n_rows).tolist()
            for name, numbers in differences.items()
        },
    }


def _differences(rows: np.ndarray, among: np.ndarray) -> np.ndarray:
    """The least number of columns in which each row differs from one of the others."""
    return np.array([(among != row).sum(axis=1).min() for row in rows], dtype=np.int64)
