"""Choose a way and its cells by public numbers, and forecast what each way would cost and give.

Where numbers do not decide, each way is tried in a world: public rows with made-up labels, or with true ones,
stand for the private rows.
"""

from __future__ import annotations

import contextlib
import copy
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.utils import _safe_indexing

from ostraka.core import check
from ostraka.core.accounting.calibration import calibrate
from ostraka.core.accounting.plan import Estimate
from ostraka.core.ledger.budget import BudgetExceeded
from ostraka.core.mechanisms.counts import NoisyCounts
from ostraka.data.units import Manifest
from ostraka.learn.ways.argmax import Argmax, Prompted, Prompts
from ostraka.learn.ways.counts import Counts, counted, expected_labels
from ostraka.learn.ways.filter import Filter, Regression
from ostraka.learn.ways.plan import MANY, Facts, World, delta_of
from ostraka.learn.ways.rounds import Rounds
from ostraka.voters.cells import GraphCells, QuantileCells
from ostraka.voters.named import TABLES
from ostraka.voters.rows import FeatureCells, own_features
from ostraka.voters.spectrum import Spectrum

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
_WAYS = ("argmax", "counts", "rounds", "filter", "auto")
_RELATIONS = {"replace-one": _WAYS, "zero-out": _WAYS[1:4]}  # and ways of it
_WORLDS = 3  # made-up labellings
_WAYS_MOST_ROWS = 2000  # public rows to simulate with
_MOST_PUBLIC = 1000  # public rows of a world; as many others vote and are predicted
_FEWEST_PUBLIC = 50
_NEW = 1000  # rows to measure with
_FLOORS = (0.10, 0.03, 0.18)  # error of the best model in a typical task, an easy one and a hard one
_SHAPES = (0.5, 0.25, 0.25)  # chances that a column counts by its value, its size, or a threshold
_WORTH = 0.01  # accuracy by which a way must be better than the default, or than a guess, to be recommended
_GUESS = (
    "{0:,} {1} are too few at epsilon={2:g}: a model is expected to be no better than always saying the "
    "commonest class; bring more rows, or type a larger --epsilon"
)


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


def features_suit(public: Any, facts: Facts) -> bool:
    """Whether features of each row's own may be taken without being asked for, by public numbers."""
    numbers = not hasattr(public, "iloc") and public.shape[0] >= _ENOUGH
    return numbers and _can_be_heard(FeatureCells(), public, facts)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a way would cost and give. All of it is public.

    Attributes
    ----------
    plan : Planned or None
        None where this way has no hope.
    accuracy : Estimate or None
        Accuracy on new rows: mean, lowest and highest of the worlds. A forecast, no guarantee.
    why_not : str
        Why there is no plan; else empty.

    Examples
    --------
    >>> Forecast(plan=None, accuracy=None, why_not="40 rows are too few").best
    -1.0
    """

    plan: Planned | None
    accuracy: Estimate | None
    why_not: str = ""

    @property
    def best(self) -> float:
        """The expected accuracy; -1 where there is no plan."""
        return -1.0 if self.accuracy is None else self.accuracy.best


def forecast(model: Any, worlds: Sequence[World], *, unit: str, seed: int) -> Forecast:
    """Plan an estimator's way in each world, and try it there.

    Parameters
    ----------
    model : PATEClassifier
        Not fitted; it names a way, epsilon and delta.
    worlds : sequence of World
        Public rows with labels, and the public facts about the private rows.
    unit : {"row", "person"}
        How messages call the protected unit.
    seed : int
        Of the trials. It draws no noise of any release.

    Examples
    --------
    >>> from ostraka import PATEClassifier
    >>> from ostraka.learn.ways.plan import Facts
    >>> facts = Facts(n_units=9000, n_classes=2, n_public=200, grouped=False, epsilon=1.0, delta=1e-5)
    >>> worlds = assumed_worlds(facts, n_features=4, seed=0)
    >>> model = PATEClassifier(way="counts", epsilon=1.0, delta=1e-5)
    >>> counts = forecast(model, worlds, unit="row", seed=0)
    >>> counts.plan.epsilon <= 1.0, 0.6 < counts.best < 1
    (True, True)
    """
    rng = np.random.default_rng(seed)
    accuracies: list[float] = []
    guesses: list[float] = []
    try:
        for world in worlds:
            facts = world.facts
            sizes = {name: getattr(facts, name) for name in ("n_units", "n_classes", "n_public")}
            way = choose(model, world.public, **sizes, grouped=facts.grouped)
            way_of(way.plan).require_hope(**sizes, unit=unit, epsilon=facts.epsilon)
            accuracies.append(way.trial(model, world, rng))
            y = world.y if world.new is None else world.new[1]
            guesses.append(float((y == np.bincount(world.y).argmax()).mean()))  # always the commonest class
    except (BudgetExceeded, ValueError) as error:
        return Forecast(plan=None, accuracy=None, why_not=str(error))
    mean = float(np.mean(accuracies))
    if mean < np.mean(guesses) + _WORTH:
        return Forecast(
            plan=None, accuracy=None, why_not=_GUESS.format(facts.n_units, MANY[unit], facts.epsilon)
        )
    return Forecast(plan=way.plan, accuracy=Estimate(min(accuracies), mean, max(accuracies)))


def recommended(forecasts: Mapping[str, Forecast], *, default: str) -> str:
    """The way that is expected to give most: the default, unless another is clearly better.

    Raises
    ------
    ValueError
        No way has a plan: the message is that of the default.

    Examples
    --------
    >>> counts = Forecast(plan=None, accuracy=Estimate(0.8, 0.85, 0.9))
    >>> rounds = Forecast(plan=None, accuracy=Estimate(0.8, 0.855, 0.9))
    >>> recommended({"counts": counts, "rounds": rounds}, default="counts")
    'counts'
    """
    best = max(forecasts, key=lambda name: forecasts[name].best)
    if forecasts[best].best < 0:
        raise ValueError(forecasts[default].why_not)
    return best if forecasts[best].best > forecasts[default].best + _WORTH else default


def assumed_worlds(facts: Facts, *, n_features: int, seed: int) -> tuple[World, ...]:
    """Three made-up tables of numbers: a typical task, an easy one and a hard one.

    Columns are normal. Each adds to the score of each class: in proportion to its value, to the value's size,
    or beyond a threshold. The class is that of the largest score; a share of the labels is replaced by any,
    so that the best model errs as often as in :data:`_FLOORS`.

    Examples
    --------
    >>> from ostraka.learn.ways.plan import Facts
    >>> facts = Facts(n_units=1000, n_classes=3, n_public=200, grouped=False, epsilon=1.0, delta=1e-5)
    >>> typical, easy, hard = assumed_worlds(facts, n_features=4, seed=0)
    >>> typical.rows.shape, sorted(set(easy.y.tolist()))
    ((400, 4), [0, 1, 2])
    """
    rng = np.random.default_rng(seed)
    n_classes, n_rows = facts.n_classes, _rows(facts)
    worlds = []
    for floor in _FLOORS:
        rows = rng.normal(size=(n_rows + _NEW, n_features))
        shapes = np.stack(
            [rows, np.abs(rows) - np.sqrt(2 / np.pi), (rows > rng.normal(size=n_features)) - 0.5]
        )
        kinds = rng.choice(len(shapes), p=_SHAPES, size=n_features)
        effects = shapes[kinds, :, np.arange(n_features)].T @ rng.normal(size=(n_features, n_classes))
        wrong = rng.random(len(rows)) < floor * n_classes / (n_classes - 1)
        y = np.where(wrong, rng.integers(0, n_classes, size=len(rows)), effects.argmax(axis=1))
        worlds.append(_world(rows, y, facts, n_rows))
    return tuple(worlds)


def proxy_worlds(rows: Any, y: np.ndarray, facts: Facts, *, seed: int) -> tuple[World, ...]:
    """Three samples of public rows with true labels (class indices), like the private ones.

    Examples
    --------
    >>> from ostraka.learn.ways.plan import Facts
    >>> facts = Facts(n_units=1000, n_classes=2, n_public=20, grouped=False, epsilon=1.0, delta=1e-5)
    >>> worlds = proxy_worlds(np.zeros((90, 3)), np.arange(90) % 2, facts, seed=0)
    >>> [(len(world.y), len(world.new[1])) for world in worlds]
    [(60, 30), (60, 30), (60, 30)]
    """
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(len(y)) for _ in range(_WORLDS)]
    n_rows = min(_rows(facts), 2 * len(y) // 3)
    return tuple(_world(_safe_indexing(rows, order), y[order], facts, n_rows) for order in orders)


def _rows(facts: Facts) -> int:
    """Rows of a world that vote, half of which are public."""
    return 2 * max(_FEWEST_PUBLIC, min(facts.n_public, _MOST_PUBLIC))


def _world(rows: Any, y: np.ndarray, facts: Facts, n_rows: int) -> World:
    """The first rows vote; the others are new."""
    voting, new = np.arange(n_rows), np.arange(n_rows, min(len(y), n_rows + _NEW))
    measured = (_safe_indexing(rows, new), y[new])
    return World(rows=_safe_indexing(rows, voting), y=y[voting], facts=facts, new=measured)
