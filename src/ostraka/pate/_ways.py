"""Choose how private rows vote, by trials on public rows with made-up labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from ostraka import _check
from ostraka.door import ABSTAIN
from ostraka.ledger import BudgetExceeded, Ledger
from ostraka.pate._cells import Facts, best_cells, counted, features_suit, made_up, planned
from ostraka.pate._counts_student import featured, taught
from ostraka.pate._learning import teacher_of
from ostraka.pate._rounds import RoundsPlan, planned_rounds, simulated_rounds
from ostraka.pate.plan import Plan, make_plan
from ostraka.private import Adjacency, Private
from ostraka.students import Distilled
from ostraka.voters._fixed import numbers
from ostraka.voters.features import FeatureCells
from ostraka.voters.rows import own_features
from ostraka.voters.shards import Manifest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.pate._counts import CountsPlan
    from ostraka.pate.classifier import PATEClassifier


__all__ = ["Way", "choose", "way_for"]

_WAYS = ("argmax", "counts", "rounds", "auto")
_RELATIONS = {"replace-one": _WAYS, "zero-out": ("counts", "rounds")}  # and the ways that can promise it
_WORLDS = 3  # made-up labellings
_MOST_ROWS = 2000  # public rows to simulate with
_TEACHERS = 12  # trained to learn how often teachers agree


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """The chosen way with its plan, its fitted public cells, and the expected accuracy of each way."""

    name: str
    plan: Plan | CountsPlan
    cells: Any
    expected: dict[str, float]


def way_for(
    model: PATEClassifier, public: Any, n_units: int, n_classes: int, n_public: int, *, grouped: bool
) -> Way:
    """Return the way of an estimator for these public facts."""
    delta = model.delta
    if delta is None:
        ledger = model.ledger
        delta = ledger.budget.delta if isinstance(ledger, Ledger) else min(1e-5, 0.1 / n_units)

    def argmax() -> Plan:
        manifest = model.manifest
        return make_plan(
            n_units=n_units,
            n_classes=n_classes,
            n_public=n_public,
            n_teachers=manifest.n_teachers if isinstance(manifest, Manifest) else model.n_teachers,
            mechanism=model.mechanism,
            screen=model.screen,
            n_answers=model.n_answers,
            epsilon=model.epsilon,
            delta=delta,
        )

    facts = Facts(
        n_units=n_units,
        n_classes=n_classes,
        grouped=grouped,
        epsilon=model.epsilon,
        delta=delta,
        relation=model.relation,
    )
    return choose(model, public, facts, argmax)


def choose(model: PATEClassifier, public: Any, facts: Facts, argmax: Callable[[], Plan]) -> Way:
    """The way that the settings name, or the one which does best on public rows with made-up labels.

    Raises
    ------
    BudgetExceeded
        (epsilon, delta) is too small for every way there is.
    ValueError
        An unknown way or relation, a way that cannot promise the relation, or no public rows to plan from.
    """
    _check.one_of(way=model.way, allowed=_WAYS)
    _check.one_of(relation=model.relation, allowed=tuple(_RELATIONS))
    if model.way not in (ways := _RELATIONS[model.relation]):
        raise ValueError(
            f"relation={model.relation!r} is for way={' or '.join(map(repr, ways))}, got way={model.way!r}: "
            f"pass way={ways[0]!r}, or relation='replace-one'"
        )
    if model.way == "argmax":
        return Way(name="argmax", plan=argmax(), cells=None, expected={})
    if public is None:
        raise ValueError(f"way={model.way!r} is planned from public rows: pass X_public=")
    if model.way == "rounds":
        return _in_rounds(_with_own_features(model.cells, public), public, facts, {})
    cells, tried = best_cells(model.cells, public, facts)
    suits = model.cells is None and features_suit(public, facts)
    own = cells if own_features(cells) or not suits else FeatureCells()  # for rounds
    expected = _expected(model, public, facts, (cells, own), argmax) if model.way == "auto" else {}
    best = max(expected, key=lambda name: expected[name]) if expected else "counts"
    if best == "argmax":
        return Way(name="argmax", plan=argmax(), cells=None, expected=tried | expected)
    if best == "rounds":
        return _in_rounds(own, public, facts, tried | expected)
    fitted, plan = planned(cells, public, facts)
    return Way(name="counts", plan=plan, cells=fitted, expected=tried | expected)


def _with_own_features(given: Any, public: Any) -> Any:
    """The cells for rounds: the given ones with features of each row's own, or those of numbers."""
    if given is None:
        try:
            numbers(public, "X_public")
        except ValueError as error:
            raise ValueError(
                f"{error} for way='rounds': pass way='counts', or cells=FeatureCells(encoder) with an "
                "encoder of columns that was fitted on public rows"
            ) from None
    several = given if isinstance(given, list | tuple) else (FeatureCells() if given is None else given,)
    for cells in several:
        if own_features(cells):
            return cells
    raise ValueError(
        f"cells must have features of each row's own for way='rounds': pass FeatureCells, got {given!r}"
    )


def _in_rounds(cells: Any, public: Any, facts: Facts, expected: dict[str, float]) -> Way:
    if facts.grouped:
        raise ValueError(
            "groups must be None for way='rounds': keep one row of each person, or pass way='counts'"
        )
    fitted, plan = planned_rounds(cells, public, facts)
    return Way(name="rounds", plan=plan, cells=fitted, expected=expected)


def _expected(
    model: PATEClassifier, public: Any, facts: Facts, both: tuple[Any, Any], argmax: Callable[[], Plan]
) -> dict[str, float]:
    """Mean accuracy of each way that the budget pays for, over a few made-up labellings.

    ``both``: cells for counts, and cells for rounds if they have features of each row's own.
    """
    cells, own = both
    rng = np.random.default_rng(0)
    rows = _safe_indexing(public, rng.permutation(public.shape[0])[:_MOST_ROWS])
    worlds = [_World(rows=rows, y=made_up(rows, facts.n_classes, rng), facts=facts) for _ in range(_WORLDS)]
    expected = {}
    try:
        fitted, plan = planned(cells, worlds[0].asked, facts)
        expected["counts"] = float(np.mean([_by_counts(fitted, plan, world, rng) for world in worlds]))
    except BudgetExceeded:
        pass  # this way is then no choice
    if own_features(own) and not facts.grouped:
        try:
            fitted, tables = planned_rounds(own, worlds[0].asked, facts)
            expected["rounds"] = float(np.mean([_by_rounds(fitted, tables, world, rng) for world in worlds]))
        except BudgetExceeded:
            pass
    try:
        votes = argmax()
        expected["argmax"] = float(np.mean([_by_argmax(model, votes, world, rng) for world in worlds]))
    except BudgetExceeded:
        pass
    return expected


@dataclass(frozen=True, slots=True, kw_only=True)
class _World:
    """Public rows with made-up labels: they stand for the private rows; half of them stay public."""

    rows: Any
    y: np.ndarray
    facts: Facts

    @property
    def asked(self) -> Any:
        """Rows that are public in this world."""
        return _safe_indexing(self.rows, np.arange(len(self.y) // 2))

    def score(self, student: Any) -> float:
        """Accuracy on the other rows."""
        new = np.arange(len(self.y) // 2, len(self.y))
        return float((np.asarray(student.predict(_safe_indexing(self.rows, new))) == self.y[new]).mean())


def _by_counts(cells: Any, plan: CountsPlan, world: _World, rng: np.random.Generator) -> float:
    """Return the accuracy by counts if the private rows are distributed as the public rows are."""
    noisy = counted(cells, plan, world.rows, np.eye(world.facts.n_classes)[world.y], rng)
    classes = np.arange(world.facts.n_classes)
    return world.score(taught(cells, world.asked, noisy, plan=plan, classes=classes)[0])


def _by_rounds(cells: Any, plan: RoundsPlan, world: _World, rng: np.random.Generator) -> float:
    """Return the accuracy in rounds if the private rows are distributed as the public rows are."""
    learner = simulated_rounds(cells, plan, world.rows, world.y, n_classes=world.facts.n_classes, rng=rng)
    return world.score(featured(cells, learner.coef_, np.arange(world.facts.n_classes)))


def _by_argmax(model: PATEClassifier, plan: Plan, world: _World, rng: np.random.Generator) -> float:
    """Return the accuracy for teachers: a few are trained, and all are assumed to vote like these."""
    asked, n_classes = world.asked, world.facts.n_classes
    questions = rng.permutation(asked.shape[0])[: plan.n_answers]
    posed = _safe_indexing(asked, questions)
    size = max(1, world.facts.n_units // plan.n_teachers)
    teacher = teacher_of(model.estimator, n_features=asked.shape[1], n_rows=size)
    shares = np.zeros((len(questions), n_classes))
    for _ in range(_TEACHERS):
        shard = rng.integers(0, len(world.y), size=size)
        y = world.y[shard]
        if (y == y[0]).all():
            said = np.full(len(questions), y[0])
        else:
            said = clone(teacher).fit(_safe_indexing(world.rows, shard), y).predict(posed)
        shares[np.arange(len(questions)), said] += 1
    votes = np.array([rng.multinomial(plan.n_teachers, share / share.sum()) for share in shares])
    labels = np.full(asked.shape[0], ABSTAIN)
    labels[questions] = plan.mechanism.release(Private(votes, Adjacency.one_ballot()), rng=rng)
    if (labels == ABSTAIN).all():
        return 1 / n_classes
    # spreading stands in for "auto", which takes longer to fit
    named = model.student is not None and not isinstance(model.student, str)
    kind = model.student if named or model.student not in {None, "auto"} else "spreading"
    student = clone(kind) if isinstance(kind, Distilled) else Distilled(kind, random_state=0)
    return world.score(student.fit(asked, labels, classes=np.arange(n_classes)))
