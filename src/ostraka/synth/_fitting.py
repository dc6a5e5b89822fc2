"""What fitting a generator is, whichever it is: rows with their owners, one charge, one record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ostraka.door import release
from ostraka.ledger import Ledger
from ostraka.private import Adjacency, Private
from ostraka.result import Result

if TYPE_CHECKING:
    from ostraka.ledger import Budget
    from ostraka.mechanisms.protocols import Releasing

__all__ = ["charged", "class_codes", "numbers", "private_rows", "record"]

ROWS_OF_A_PERSON = 8


def numbers(X: Any) -> np.ndarray:
    """Rows as a table of finite numbers, float32.

    Raises
    ------
    ValueError
        No table, or numbers that are missing or infinite; no value is in the message.
    """
    try:
        rows = np.asarray(X, dtype=np.float32)
    except (TypeError, ValueError):  # which would quote a value
        rows = None
    if rows is None or rows.ndim != 2 or not rows.size:
        raise ValueError("X must be a table of numbers with a row and a column or more")
    if not np.isfinite(rows).all():
        raise ValueError(f"X of shape {rows.shape} must be finite: some numbers are missing or infinite")
    return rows


def class_codes(y: Any, classes: Any, n_rows: int) -> np.ndarray:
    """Labels as places in the public ``classes``.

    Raises
    ------
    ValueError
        No classes, labels of another length, or a label that is none of them; it is not shown.
    """
    if classes is None:
        raise ValueError("classes must be given with y: the list of all classes is public, not read off y")
    labels, known = np.asarray(y), np.asarray(classes)
    if labels.shape != (n_rows,):
        raise ValueError(f"y must have one label a row, shape ({n_rows},), got {labels.shape}")
    if known.ndim != 1 or not known.size or len(set(known.tolist())) != known.size:
        raise ValueError("classes must be a list of different classes")
    codes = np.array(
        [{c: k for k, c in enumerate(known.tolist())}.get(label, -1) for label in labels.tolist()]
    )
    if (codes < 0).any():
        raise ValueError("y must hold classes only: some labels are none of them")
    return codes.astype(np.int64)


def private_rows(X: np.ndarray, codes: np.ndarray, groups: Any, *, most: int = ROWS_OF_A_PERSON) -> Private:
    """Rows, class and share: at most ``most`` rows of a person, chosen at random, share 1."""
    shares, unit = np.ones(len(X)), "row"
    if groups is not None:
        owners, unit = np.asarray(groups), "person"
        if owners.shape != (len(X),):
            raise ValueError(f"groups must be one a row, shape ({len(X)},), got {owners.shape}")
        _, person = np.unique(owners, return_inverse=True)
        shuffled = np.random.default_rng().permutation(len(X))
        order = shuffled[np.argsort(person[shuffled], kind="stable")]
        sizes = np.bincount(person)
        rank = np.arange(len(X)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        shares = np.zeros(len(X))
        kept = order[rank < most]
        shares[kept] = 1 / np.minimum(sizes[person[kept]], most)
    inside = shares > 0
    rows = np.empty((int(inside.sum()), X.shape[1] + 2), dtype=np.float32)
    rows[:, :-2], rows[:, -2], rows[:, -1] = (
        X[inside],
        codes[inside],
        np.floor(shares[inside] * 2**20) / 2**20,
    )
    return Private(rows, Adjacency(unit=unit, moves="row", relation="add-or-remove"))


def charged(
    mechanism: Releasing,
    private: Private,
    *,
    budget: Budget,
    ledger: Ledger | None,
    rng: np.random.Generator | None,
) -> dict[str, np.ndarray]:
    """The release, after its charge; without a ledger, to one in memory with exactly this budget."""
    own = ledger or Ledger(":memory:", budget=budget)
    try:
        return cast("dict[str, np.ndarray]", release(mechanism, private, ledger=own, rng=rng))
    finally:
        if ledger is None:
            own.close()


def record(
    mechanism: Releasing, private: Private, *, delta: float, simulation: bool, **settings: Any
) -> Result:
    """The plain record of a fit."""
    return Result(
        kind="synth",
        settings={
            "unit": private.adjacency.unit,
            "relation": private.adjacency.relation,
            "mechanism": repr(mechanism),
            **settings,
        },
        upper={
            "epsilon": mechanism.curve().epsilon(delta=delta),
            "delta": delta,
            "simulation": simulation,
            "not_protected": ["the number of columns and the list of classes, which are public"],
        },
        notes=("The lower bound is missing: no audit was run.",),
    )
