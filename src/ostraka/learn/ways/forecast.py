"""Forecast what each way would give: its plan, and trials on public rows that stand for the private ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import _safe_indexing

from ostraka.core.accounting.plan import Estimate
from ostraka.core.ledger.budget import BudgetExceeded
from ostraka.learn.ways.choose import choose, way_of
from ostraka.learn.ways.plan import MANY, World

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ostraka.learn.ways.plan import Facts, Planned

_MOST_PUBLIC = 1000  # public rows of a world; as many others vote and are predicted
_FEWEST_PUBLIC = 50
_WORLDS = 3
_NEW = 1000  # rows to measure with
_FLOORS = (0.10, 0.03, 0.18)  # error of the best model in a typical task, an easy one and a hard one
_SHAPES = (0.5, 0.25, 0.25)  # chances that a column counts by its value, its size, or a threshold
_WORTH = 0.01  # accuracy by which a way must be better than the default, or than a guess, to be recommended
_GUESS = (
    "{0:,} {1} are too few at epsilon={2:g}: a model is expected to be no better than always saying the "
    "commonest class; bring more rows, or type a larger --epsilon"
)


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
