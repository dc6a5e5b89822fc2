"""Checks of membership inference: designs that give memberships away, copies, confidences."""

from __future__ import annotations

from typing import Any

import numpy as np

_OFFLINE = ("lira", "lira-fixed", "rmia")  # which have a form for rows that no model has
_FALSE_ALARM = 1e-9  # probability that coins are taken for a design


def read_members(values: Any, *, name: str, n_rows: int) -> np.ndarray:
    """Return memberships after checks: one bool a row, with members and others."""
    member = np.asarray(values)
    if member.dtype != bool or member.shape != (n_rows,):
        raise ValueError(f"{name} must be bool of shape ({n_rows},), got {member.dtype} of {member.shape}")
    if member.all() or not member.any():
        raise ValueError(f"{name} must hold rows which are members and rows which are not")
    return member


def draw_coins(rng: np.random.Generator, n_models: int, n_rows: int) -> np.ndarray:
    """Fair coins, tossed again for rows that are in all models or in none."""
    coins = rng.random((n_models, n_rows)) < 0.5
    while (alike := coins.all(axis=0) | ~coins.any(axis=0)).any():
        coins[:, alike] = rng.random((n_models, int(alike.sum()))) < 0.5
    return coins


def read_confidences(values: Any, *, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Floats from 0 to 1; a little above 1 is rounding."""
    array = np.asarray(values, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    wrong = int((~((array >= 0) & (array <= 1 + 1e-6))).sum())
    if wrong:
        raise ValueError(f"{name} must be numbers from 0 to 1, which {wrong} of {array.size} are not")
    return np.minimum(array, 1.0)


def number_copies(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """A number for each row, the same for rows with the same features and label."""
    flat = rows.reshape(len(rows), -1)
    features: list[object]
    if flat.dtype.kind != "O":
        flat = flat + 0 if flat.dtype.kind in "iuf" else flat  # -0.0 is 0.0
        features = [row.tobytes() for row in flat]
    else:
        features = [tuple(row) for row in flat.tolist()]
    numbers: dict[object, int] = {}
    keys = zip(features, labels.tolist(), strict=True)
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def check_independent(included: np.ndarray, member: np.ndarray) -> None:
    """Refuse memberships which depend on the references' memberships (Hoeffding 1963, Theorem 2)."""
    designs = np.vstack([included, included.sum(axis=0)]).astype(np.float64)
    centred = designs - designs.mean(axis=1, keepdims=True)
    size = (centred**2).sum(axis=1)
    moved = (centred @ member) ** 2
    limit = np.log(2 * len(designs) / _FALSE_ALARM) / 2
    if (moved > limit * size).any():
        raise ValueError(
            "memberships of the target depend on those of the references, as where each row is in exactly "
            "half of the models: draw each by a coin of its own"
        )


def check_sides(included: np.ndarray, *, method: str) -> None:
    """Refuse rows that all references have, or none."""
    always, never = included.all(axis=0), ~included.any(axis=0)
    if always.any():
        raise ValueError(f"{int(always.sum())} rows are in every reference: fit more of them")
    if never.any() and method not in _OFFLINE:
        raise ValueError(
            f"{int(never.sum())} rows are in no reference, which {method!r} needs: fit more of them, or "
            f"use one of {', '.join(_OFFLINE)}"
        )


def check_duplicates(copies: np.ndarray | None, member: np.ndarray) -> None:
    """Refuse rows whose copies are on both sides."""
    if copies is None:
        return
    inside = np.bincount(copies, weights=member)
    torn = ((inside > 0) & (inside < np.bincount(copies)))[copies]
    if torn.any():
        raise ValueError(
            f"{int(torn.sum())} rows of {len(member)} have a copy on the other side, in the target and out "
            "of it at once: drop duplicates before the coins are tossed"
        )


def check_classes(labels: np.ndarray, included: np.ndarray) -> None:
    """Refuse references without a row of some class."""
    codes = np.unique(labels, return_inverse=True)[1]
    for number, chosen in enumerate(included):
        if not np.bincount(codes[chosen], minlength=codes.max() + 1).all():
            raise ValueError(f"reference {number} was dealt no row of some class: drop classes of few rows")


def true_label_column(model: Any, X: Any, labels: np.ndarray) -> np.ndarray:
    """The probability that a fitted classifier gives each row's label."""
    if not hasattr(model, "predict_proba"):
        raise ValueError(f"estimator must have predict_proba, which {type(model).__name__} has not")
    classes = np.asarray(model.classes_)
    column = np.searchsorted(classes, labels).clip(0, len(classes) - 1)
    unknown = int((classes[column] != labels).sum())
    if unknown:
        raise ValueError(f"{unknown} rows of y have a label that the model never saw")
    chances = np.asarray(model.predict_proba(X), dtype=np.float64)
    return read_confidences(chances[np.arange(len(labels)), column], name="confidences", shape=labels.shape)
