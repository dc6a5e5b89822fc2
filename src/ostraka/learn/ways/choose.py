"""Choose where ballots go, by public numbers and by trials on public rows with made-up labels.

Choose how private rows vote, by trials on public rows with made-up labels.
"""

from __future__ import annotations

import contextlib
import copy
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.utils import _safe_indexing

from ostraka.core import check
from ostraka.core.accounting.calibration import calibrate
from ostraka.core.ledger.budget import BudgetExceeded
from ostraka.core.mechanisms.counts import NoisyCounts
from ostraka.data.units import Manifest
from ostraka.learn.ways.argmax import Argmax, Prompted, Prompts
from ostraka.learn.ways.counts import Counts, counted, expected_labels
from ostraka.learn.ways.filter import Filter, Regression
from ostraka.learn.ways.plan import Facts, World, delta_of
from ostraka.learn.ways.rounds import Rounds
from ostraka.voters.cells import GraphCells, QuantileCells
from ostraka.voters.named import TABLES
from ostraka.voters.rows import FeatureCells, own_features
from ostraka.voters.spectrum import Spectrum

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.learn.ways.plan import Planned, Way

_CLUSTERS = (1, 2, 4)  # of each class, in three made-up labellings
_MOST_ROWS = 6000  # public rows of a trial; half of them vote
_MANY_COLUMNS = 30
_SMALLEST_IMAGE, _FEW_IMAGES, _MOST_IMAGES = 6, 50, 1000  # side; public rows
_ALIKE_PIXELS = 0.2  # correlation of neighbours beyond that of any two
_ENOUGH = 1000  # public rows for features of each row's own without being asked; chosen on selection data
_KINDS = 0.2  # share of columns of zeros and ones in a table of categories
_LOUDER = 4  # squared: sums must be twice as long as their noise
_WRONG = 0.05  # share of made-up labels that are any class


def best_cells(given: Any, public: Any, facts: Facts) -> tuple[Any, dict[str, float]]:
    """Return the cells which do best on public rows, not fitted, and what each was expected to give.

    Nothing given: bins for columns of different kinds; for many columns of one kind, features or the graph.

    Raises
    ------
    ValueError
        There are none, or something else is among them.
    """
    if given is None:
        if hasattr(public, "iloc") or public.shape[1] < _MANY_COLUMNS:
            return QuantileCells(), {}
        table = np.asarray(public)
        if side := image_side(table):
            return cells_of((side, side)), {}
        binary = np.isin(table, (0, 1)).all(axis=0) & (table.min(axis=0) != table.max(axis=0))
        if _KINDS < binary.mean() < 1:
            return QuantileCells(), {}
        return FeatureCells() if features_suit(public, facts) else GraphCells(), {}
    several = tuple(given) if isinstance(given, list | tuple) else (given,)
    for cells in several:
        if not (hasattr(cells, "codes") or own_features(cells)):
            raise ValueError(
                "cells must be GraphCells, QuantileCells or FeatureCells, or have their methods, or be a "
                f"list of such, got {type(cells).__name__}"
            )
    if not several:
        raise ValueError("cells must be some, got an empty list")
    if len(several) > 1:
        several = tuple(cells for cells in several if _can_be_heard(cells, public, facts)) or several[:1]
    if len(several) == 1:
        return several[0], {}
    choices = {f"counts, {type(cells).__name__}": cells for cells in several}
    if len(choices) < len(several):
        raise ValueError("cells must be of different kinds where there are several")
    # mean accuracy of the labels of public rows, where as many others vote with made-up labels
    rng = np.random.default_rng(0)
    rows = _safe_indexing(public, rng.permutation(public.shape[0])[:_MOST_ROWS])
    half = rows.shape[0] // 2
    questions, voting = (_safe_indexing(rows, np.arange(*ends)) for ends in ((0, half), (half, 2 * half)))
    labels = [made_up(rows, facts.n_classes, rng, many=many) for many in _CLUSTERS]
    expected = {}
    for name, cells in choices.items():
        try:
            way = Counts.planned(cells, questions, facts)
        except BudgetExceeded:
            continue  # these cells are then no choice
        right = []
        for y in labels:
            ballots = np.eye(facts.n_classes)[y[half : 2 * half]]
            counts = counted(way.cells, way.plan, voting, ballots, rng)
            right.append((expected_labels(way.cells, questions, counts, plan=way.plan) == y[:half]).mean())
        expected[name] = float(np.mean(right))
    best = max(expected, key=lambda name: expected[name], default=next(iter(choices)))
    return choices[best], expected


def cells_of(image_shape: tuple[int, int] | None) -> GraphCells | None:
    """The cells for images; None for tables, whose columns decide."""
    if image_shape is None:
        return None
    return GraphCells(image_shape=image_shape, time=5.0 if image_shape == (8, 8) else 8.0)


def made_up(rows: Any, n_classes: int, rng: np.random.Generator, *, many: int = 1) -> np.ndarray:
    """Classes of so many clusters of rows each, and some labels that are wrong."""
    points = QuantileCells().fit(rows).lines(rows) if hasattr(rows, "iloc") else np.asarray(rows, dtype=float)
    points = points.reshape(len(points), -1) - points.reshape(len(points), -1).mean(axis=0)
    clusters = KMeans(min(many * n_classes, len(points)), n_init=1, random_state=int(rng.integers(2**31)))
    wrong = rng.random(len(points)) < _WRONG
    classes = clusters.fit_predict(points) % n_classes
    return np.where(wrong, rng.integers(0, n_classes, size=len(points)), classes)


def _can_be_heard(cells: Any, public: Any, facts: Facts) -> bool:
    """Whether features of each row's own could tell classes apart through the noise, by public numbers."""
    if not own_features(cells):
        return True
    if facts.grouped:
        return False
    move = math.sqrt(2)
    least = calibrate(
        lambda sigma: NoisyCounts(sigma=sigma, l2=move), n_answers=1, epsilon=facts.epsilon, delta=facts.delta
    )
    share = 1 / facts.n_classes
    # squared lengths of a class's sum, if its classes explain half of the variance, and of its noise
    n_features = cells.n_columns(public.shape[0]) if hasattr(cells, "n_columns") else public.shape[0]
    signal = facts.n_units**2 * share * (1 - share) / 2 / n_features
    reach = 1 if facts.relation == "zero-out" else 2  # in lengths of a ballot
    return bool(signal > _LOUDER * (reach * least / move) ** 2 * n_features)


def image_side(public: np.ndarray) -> int:
    """The side of square grey images that public rows seem to be, from their numbers alone; else 0.

    Columns of one range without negative numbers, in which neighbours of a square are alike, and others less.
    """
    side = math.isqrt(public.shape[1])
    if side < _SMALLEST_IMAGE or side * side != public.shape[1] or len(public) < _FEW_IMAGES:
        return 0
    rows = np.asarray(public[:_MOST_IMAGES], dtype=np.float64)
    if not np.isfinite(rows).all() or rows.min() < 0 or rows.max() <= 0:
        return 0
    if np.median(rows.max(axis=0)) < rows.max() / 2:  # columns of several ranges
        return 0
    pixels = rows - rows.mean(axis=0)
    scale = np.sqrt((pixels**2).mean(axis=0))
    pixels = np.divide(pixels, scale, out=np.zeros_like(pixels), where=scale > 0)
    alike = pixels.T @ pixels / len(pixels)  # correlations, 0 of a pixel that is the same in all rows
    place = np.arange(side * side).reshape(side, side)
    pairs = ((place[:, 1:], place[:, :-1]), (place[1:], place[:-1]))
    near = min(_mean_of_live(alike[first, second]) for first, second in pairs)
    apart = _mean_of_live(alike[~np.eye(side * side, dtype=bool)])
    return side if near > _ALIKE_PIXELS + apart else 0


def _mean_of_live(correlations: np.ndarray) -> float:
    """The mean without pairs of which one never changes."""
    live = correlations[correlations != 0]
    return float(live.mean()) if live.size else 0.0


def resolved(model: Any, public: Any) -> Any:
    """An estimator's settings, with the way and the budget that it does not name: those of ``ostraka learn``.

    The way is an argmax where teachers are set, else that of the rows; so is ``"auto"`` with nothing to try.
    """
    resolved = copy.copy(model)
    if model.way is None:
        of_teachers = (model.estimator, model.mechanism, model.screen, model.n_answers)
        chosen = any(setting is not None for setting in of_teachers) or model.n_teachers != "auto"
        student = model.student is not None and model.student != "fixmatch"
        if chosen or student or model.consistent or isinstance(model.manifest, Manifest):
            resolved.way = "argmax"
        else:
            resolved.way = "counts" if model.student is not None else way_of_rows(public, model.cells)
    elif model.way == "auto" and model.cells is None and model.student is None and public is not None:
        resolved.way = way_of_rows(public)
    if model.epsilon is None:
        resolved.epsilon = TABLES.epsilon_by_argmax if resolved.way == "argmax" else TABLES.epsilon
    return resolved


def way_of_rows(public: Any, cells: Any = None) -> str:
    """The way in which rows vote without teachers: counts of images or of given cells, else the filter.

    On tables that chose nothing the filter is better than counts at each epsilon, and counts with cells are
    better on images (``python -m bench tables``, ``python -m bench digits``).
    """
    if cells is not None:
        return "filter" if isinstance(cells, Spectrum) else "counts"
    table = np.empty((0, 0)) if hasattr(public, "iloc") else np.asarray(public)
    images = table.ndim == 2 and table.dtype.kind in "biuf" and image_side(table)
    return "counts" if images else "filter"


def features_suit(public: Any, facts: Facts) -> bool:
    """Whether features of each row's own may be taken without being asked for, by public numbers."""
    numbers = not hasattr(public, "iloc") and public.shape[0] >= _ENOUGH
    return numbers and _can_be_heard(FeatureCells(), public, facts)


_WAYS = ("argmax", "counts", "rounds", "filter", "auto")
_RELATIONS = {"replace-one": _WAYS, "zero-out": _WAYS[1:4]}  # and ways of it
_WORLDS = 3  # made-up labellings
_WAYS_MOST_ROWS = 2000  # public rows to simulate with


def way_of(plan: Planned) -> Way:
    """The way that a plan is of, without cells: enough to show, record and audit it."""
    ways: dict[str, type[Way]] = {
        "argmax": Argmax,
        "counts": Counts,
        "rounds": Rounds,
        "filter": Filter,
        "regression": Regression,
        "labels": Argmax,
    }
    if plan.way == "response":
        from ostraka.learn.ways.response import Response  # noqa: PLC0415  (it stands upon the classifier)

        return Response(plan=plan)
    return ways[plan.way](plan=plan)


def choose(model: Any, public: Any, **sizes: Any) -> Way:
    """The way that an estimator names, or the one that does best on public rows with made-up labels.

    Raises
    ------
    BudgetExceeded
        (epsilon, delta) is too small for every way there is.
    ValueError
        An unknown way or relation, a way that cannot promise the relation, or no public rows to plan from.
    """
    check.one_of(way=model.way, allowed=_WAYS)
    check.one_of(relation=model.relation, allowed=tuple(_RELATIONS))
    if model.way not in (ways := _RELATIONS[model.relation]):
        raise ValueError(
            f"relation={model.relation!r} is for way={' or '.join(map(repr, ways))}, got way={model.way!r}: "
            f"pass way={ways[0]!r}, or relation='replace-one'"
        )
    delta = delta_of(model, sizes["n_units"])
    facts = Facts(epsilon=model.epsilon, delta=delta, relation=model.relation, **sizes)
    if model.way == "argmax":
        return (Prompted if isinstance(model.estimator, Prompts) else Argmax).planned(model, facts)
    if public is None:
        raise ValueError(f"way={model.way!r} is planned from public rows: pass X_public=")
    if model.way in {"rounds", "filter"}:
        if model.student is not None:
            raise ValueError(
                f"student must be None for way={model.way!r}, which has its own, got {model.student!r}"
            )
        if model.way == "rounds":
            return Rounds.planned(model.cells, public, facts)
        return Filter.planned(model.cells, public, facts)
    cells, expected = best_cells(model.cells, public, facts)
    if model.way == "counts":
        return replace(Counts.planned(cells, public, facts), expected=expected)
    choices: dict[str, Callable[[Any], Way]] = {"counts": lambda rows: Counts.planned(cells, rows, facts)}
    suits = model.cells is None and features_suit(public, facts)
    own = cells if own_features(cells) or not suits else FeatureCells()
    if own_features(own) and not facts.grouped:
        choices["rounds"] = lambda rows: Rounds.planned(own, rows, facts)
    choices["argmax"] = lambda _: Argmax.planned(model, facts)
    rng = np.random.default_rng(0)
    rows = _safe_indexing(public, rng.permutation(public.shape[0])[:_WAYS_MOST_ROWS])
    worlds = [World(rows=rows, y=made_up(rows, facts.n_classes, rng), facts=facts) for _ in range(_WORLDS)]
    accuracies = {}
    for name, planned in choices.items():
        with contextlib.suppress(BudgetExceeded):  # this way is then no choice
            way = planned(worlds[0].public)
            accuracies[name] = float(np.mean([way.trial(model, world, rng) for world in worlds]))
    best = max(accuracies, key=lambda name: accuracies[name], default="counts")
    return replace(choices[best](public), expected=expected | accuracies)
