"""Choose where ballots go, by public numbers and by trials on public rows with made-up labels."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.utils import _safe_indexing

from ostraka.accounting import calibrate
from ostraka.ledger import BudgetExceeded
from ostraka.mechanisms import NoisyCounts
from ostraka.pate._counts import counts_plan
from ostraka.pate._counts_student import expected_labels
from ostraka.voters import GraphCells, QuantileCells
from ostraka.voters.features import FeatureCells
from ostraka.voters.rows import contrasts, own_features

if TYPE_CHECKING:
    from ostraka.pate._counts import CountsPlan

__all__ = ["Facts", "best_cells", "counted", "features_suit", "made_up", "planned"]

_CLUSTERS = (1, 2, 4)  # of each class, in three made-up labellings
_MOST_ROWS = 6000  # public rows of a trial; half of them vote
_MANY_COLUMNS = 30
_ENOUGH = 1000  # public rows for features of each row's own without being asked; chosen on selection data
_KINDS = 0.2  # share of columns of zeros and ones in a table of categories
_LOUDER = 4  # squared: sums must be twice as long as their noise
_WRONG = 0.05  # share of made-up labels that are any class


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Public facts about the private rows, the budget, and the promise."""

    n_units: int
    n_classes: int
    grouped: bool
    epsilon: float
    delta: float
    relation: str = "replace-one"


def best_cells(given: Any, public: Any, facts: Facts) -> tuple[Any, dict[str, float]]:
    """Return the cells which do best on public rows, not fitted, and what each was expected to give.

    Raises
    ------
    ValueError
        There are none, or something else is among them.
    """
    several = _default_cells(public, facts) if given is None else given
    several = tuple(several) if isinstance(several, list | tuple) else (several,)
    for cells in several:
        if not (hasattr(cells, "codes") or own_features(cells)):
            raise ValueError(
                "cells must be GraphCells, QuantileCells or FeatureCells, or have their methods, or be a "
                f"list of such, got {type(cells).__name__}"
            )
    if not several:
        raise ValueError("cells must be some, got an empty list")
    heard = several if len(several) == 1 else [each for each in several if _can_be_heard(each, public, facts)]
    kept = heard or several[:1]
    if len(kept) == 1:
        return kept[0], {}
    found = {f"counts, {type(each).__name__}": each for each in kept}
    if len(found) < len(kept):
        raise ValueError("cells must be of different kinds where there are several")
    expected = _tried(found, public, facts)
    best = max(expected, key=lambda name: expected[name]) if expected else next(iter(found))
    return found[best], expected


def planned(cells: Any, public: Any, facts: Facts) -> tuple[Any, CountsPlan]:
    """Cells fitted on public rows, and the plan for them."""
    # a copy of features keeps the transformer fitted, which clone would not
    fitted = (copy.deepcopy(cells) if own_features(cells) else clone(cells)).fit(public)
    plan = counts_plan(
        fitted,
        n_units=facts.n_units,
        n_classes=facts.n_classes,
        grouped=facts.grouped,
        epsilon=facts.epsilon,
        delta=facts.delta,
        relation=facts.relation,
    )
    return fitted, plan


def counted(
    cells: Any, plan: CountsPlan, rows: Any, ballots: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Noisy counts if the private rows are distributed as these public rows with made-up labels are."""
    if own_features(cells):
        counts = plan.n_units / len(ballots) * contrasts(cells.lines(rows).T @ ballots)
    else:
        columns = zip(cells.codes(rows).T, cells.codebooks_, strict=True)
        parts = [book[column].T @ ballots for column, book in columns]
        counts = plan.ballot * plan.n_units / len(ballots) * np.concatenate(parts)
    return np.asarray(counts + plan.mechanism.sigma * rng.normal(size=counts.shape))


def made_up(rows: Any, n_classes: int, rng: np.random.Generator, *, many: int = 1) -> np.ndarray:
    """Classes of so many clusters of rows each, and some labels that are wrong."""
    points = QuantileCells().fit(rows).lines(rows) if hasattr(rows, "iloc") else np.asarray(rows, dtype=float)
    points = points.reshape(len(points), -1) - points.reshape(len(points), -1).mean(axis=0)
    clusters = KMeans(min(many * n_classes, len(points)), n_init=1, random_state=int(rng.integers(2**31)))
    wrong = rng.random(len(points)) < _WRONG
    classes = clusters.fit_predict(points) % n_classes
    return np.where(wrong, rng.integers(0, n_classes, size=len(points)), classes)


def _tried(found: dict[str, Any], public: Any, facts: Facts) -> dict[str, float]:
    """Mean accuracy of the labels of public rows, where as many others vote with made-up labels."""
    rng = np.random.default_rng(0)
    rows = _safe_indexing(public, rng.permutation(public.shape[0])[:_MOST_ROWS])
    half = rows.shape[0] // 2
    asked, voting = (_safe_indexing(rows, np.arange(*ends)) for ends in ((0, half), (half, 2 * half)))
    labels = [made_up(rows, facts.n_classes, rng, many=many) for many in _CLUSTERS]
    expected = {}
    for name, cells in found.items():
        try:
            fitted, plan = planned(cells, asked, facts)
        except BudgetExceeded:
            continue  # these cells are then no choice
        right = []
        for y in labels:
            ballots = np.eye(facts.n_classes)[y[half : 2 * half]]
            noisy = counted(fitted, plan, voting, ballots, rng)
            right.append((expected_labels(fitted, asked, noisy, plan=plan) == y[:half]).mean())
        expected[name] = float(np.mean(right))
    return expected


def _can_be_heard(cells: Any, public: Any, facts: Facts) -> bool:
    """Whether features of each row's own could tell classes apart through the noise, by public numbers."""
    if not own_features(cells):
        return True
    if facts.grouped:
        return False
    far = math.sqrt(2)
    least = calibrate(
        lambda sigma: NoisyCounts(sigma=sigma, l2=far), n_answers=1, epsilon=facts.epsilon, delta=facts.delta
    )
    share = 1 / facts.n_classes
    # squared lengths of a class's sum, if its classes explain half of the variance, and of its noise
    n_features = cells.n_columns(public.shape[0]) if hasattr(cells, "n_columns") else public.shape[0]
    signal = facts.n_units**2 * share * (1 - share) / 2 / n_features
    reach = 1 if facts.relation == "zero-out" else 2  # in lengths of a ballot
    return bool(signal > _LOUDER * (reach * least / far) ** 2 * n_features)


def _default_cells(public: Any, facts: Facts) -> Any:
    """Return bins for columns of different kinds; for many columns of one kind, features or the graph."""
    if hasattr(public, "iloc") or public.shape[1] < _MANY_COLUMNS:
        return QuantileCells()
    table = np.asarray(public)
    binary = np.isin(table, (0, 1)).all(axis=0) & (table.min(axis=0) != table.max(axis=0))
    if _KINDS < binary.mean() < 1:
        return QuantileCells()
    return FeatureCells() if features_suit(public, facts) else GraphCells()


def features_suit(public: Any, facts: Facts) -> bool:
    """Whether features of each row's own may be taken without being asked for, by public numbers."""
    numbers = not hasattr(public, "iloc") and public.shape[0] >= _ENOUGH
    return numbers and _can_be_heard(FeatureCells(), public, facts)
