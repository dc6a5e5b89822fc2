"""The way of counts: every unit casts one ballot in all, and one noisy table is released.

A student learns from the table. It is tried on made-up counts first, before the table is paid for.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from ostraka.core import check
from ostraka.core.door import release
from ostraka.core.ledger.budget import BudgetExceeded
from ostraka.core.mechanisms.counts import NoisyCounts
from ostraka.data.labels import CLASSES_FROM_Y
from ostraka.learn.run import Run
from ostraka.learn.students.counts import AugmentedSVM, MomentLogistic, SmoothedCounts, sharpness
from ostraka.learn.students.distil import Distilled
from ostraka.learn.ways.plan import MANY, Planned, Way, least_noise
from ostraka.report.page import neighbours
from ostraka.voters.cells import QuantileCells
from ostraka.voters.rows import RowVoter, ballot_of, contrasts, own_features

if TYPE_CHECKING:
    from ostraka.audit.bound import Finding
    from ostraka.core.private import Private
    from ostraka.learn.session import Data, Seeds, Session
    from ostraka.learn.ways.plan import Facts, World
    from ostraka.voters.rows import FeatureCells

FEATURED = "linear model of public features"
_FIXMATCH = "fixmatch"
_ROWS_OF_A_TRIAL = 10  # for each class
_ROWS_OF_A_MEAN = 1000
_TWO = 2  # classes have one linear function
_PARTS = 12  # of a ballot which the rows of a person share
_SIGNAL = 20  # units of a class, for each unit that the noise hides: below, no model was better than a guess
_MOST_SIGMA = 1e5  # of NoisyCounts
_DIGITS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CountsPlan(Planned):
    """The plan of a run by counts, and its cost for all data. All of it is public.

    Attributes
    ----------
    n_units : int
        Each is a teacher of its own.
    n_cells : int
        Rows of the table of counts.
    ballot : int
        Parts in which one ballot is counted.
    mechanism : NoisyCounts
    delta : float

    Examples
    --------
    >>> plan = CountsPlan(n_units=1297, n_cells=20, ballot=1, mechanism=NoisyCounts(sigma=4.6), delta=1e-4)
    >>> round(plan.epsilon, 2)
    0.98
    """

    way: ClassVar[str] = "counts"

    n_units: int
    n_cells: int
    ballot: int
    mechanism: NoisyCounts
    delta: float

    @property
    def sizes(self) -> dict[str, Any]:
        """Sizes that only this way has, for the record."""
        return {"n_cells": self.n_cells}

    @property
    def n_teachers(self) -> int:  # type: ignore[override]
        """One for each unit."""
        return self.n_units

    @property
    def n_answers(self) -> int:  # type: ignore[override]
        """The table is one answer."""
        return 1

    @property
    def sigma(self) -> float:
        """Noise on each count, in ballots."""
        return self.mechanism.sigma / self.ballot


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts(Way):
    """Every unit casts one ballot in all, for a public cell."""

    accountant: ClassVar[str] = (
        "Gaussian-DP composition and Rényi curves of the discrete Gaussian; the smaller"
    )
    advice: ClassVar[str] = (
        "All columns share one ballot: --drop those that say little about the label, or type a larger "
        "--epsilon"
    )
    stages: ClassVar[dict[str, str]] = {"votes": "rows voted"}
    instead: ClassVar[str] = "--answers N to ask all the same"
    asks: ClassVar[str] = "counts: every {unit} casts one ballot in all, for {n_public:,} public rows"

    @classmethod
    def planned(cls, cells: Any, public: Any, facts: Facts) -> Counts:
        """Cells fitted on public rows, and the least noise with which one table for them fits the budget.

        Raises
        ------
        BudgetExceeded
            No noise makes it fit, or only more noise than there are units.
        """
        own = own_features(cells)
        # a copy of features keeps the transformer fitted, which clone would not
        cells = (copy.deepcopy(cells) if own else clone(cells)).fit(public)
        parts = _PARTS if facts.grouped else 1
        ballot, far = ballot_of(cells, facts.n_classes, parts=parts, relation=facts.relation)
        longest = cells.reach_ / 2 if own else max(float(np.abs(book).max()) for book in cells.codebooks_)
        require_heard(ballot * longest * facts.n_units / facts.n_classes, facts, far=far)
        plan = CountsPlan(
            n_units=facts.n_units,
            n_cells=cells.features_.shape[1] if own else sum(book.shape[1] for book in cells.codebooks_),
            ballot=ballot,
            mechanism=least_table(facts, far=far),
            delta=facts.delta,
        )
        return cls(plan=plan, cells=cells)

    def learn(self, model: Any, data: Data, seeds: Seeds, session: Session) -> Run:
        """Let every unit vote, and teach the student what is released."""
        plan, classes, voter = self.plan, data.classes(model.classes), self.voter(session)
        model._tell("votes", 0, 1)  # noqa: SLF001  (same package)
        voter.fit(data.X, data.y, data.groups, classes=classes)
        student, labels, votes = self.teach(model, data, seeds, session, voter)
        name = str(getattr(student, "name_", type(student).__name__))
        return Run.of(
            model,
            data,
            session,
            plan=plan,
            classes=classes,
            student=student,
            student_name=FEATURED if isinstance(student, Pipeline) else name,
            teacher=f"every {voter.unit_}, for {voter.cells!r}",
            labels=labels,
            notes=(
                *(() if model.classes is not None else (CLASSES_FROM_Y,)),
                f"{data.public_numbers} are treated as public.",
            ),
            predicted=np.asarray(student.predict(data.public)),
            votes=votes,
            public=data.public if isinstance(student, Distilled) else None,
        )

    def voter(self, session: Session) -> RowVoter:
        """What counts ballots, not fitted."""
        plan = self.plan
        relation = plan.mechanism.relation
        return RowVoter(cells=self.cells, units=plan.ballot, manifest=session.manifest, relation=relation)

    def teach(
        self, model: Any, data: Data, seeds: Seeds, session: Session, voter: RowVoter
    ) -> tuple[Any, np.ndarray, Private]:
        """Release one table; teaching is tried on made-up counts before it. Return student, labels, votes."""
        plan, cells, classes, votes = self.plan, self.cells, voter.classes_, voter.vote()
        kind = model.student if model.way == "counts" else None  # otherwise it is the teachers' student
        how = {"plan": plan, "classes": classes, "kind": kind, "seed": seeds.student}
        try_to_teach(cells, data.public, **how)
        model._tell("votes", 1, 1)  # noqa: SLF001
        key = session.key(data, repr(plan), cells.sha256_)
        counts = release(plan.mechanism, votes, ledger=session.ledger, key=key)
        model._tell("student", 0, 1)  # noqa: SLF001
        student, labels = taught(cells, data.public, counts, **how)
        model._tell("student", 1, 1)  # noqa: SLF001
        return student, labels, votes

    def trial(self, model: Any, world: World, rng: np.random.Generator) -> float:  # noqa: ARG002
        """Accuracy of the student of one table."""
        classes = np.arange(world.facts.n_classes)
        counts = counted(self.cells, self.plan, world.rows, np.eye(len(classes))[world.y], rng)
        return world.score(taught(self.cells, world.public, counts, plan=self.plan, classes=classes)[0])

    def finding(self, run: Run, **settings: Any) -> Finding:  # noqa: ARG002
        """The lower bound of an adversary who knows every other unit."""
        from ostraka.audit.runs import audit_counts  # noqa: PLC0415  (half the time of importing the estimator)

        plan = self.plan
        chosen = {name: value for name, value in settings.items() if value is not None}
        return audit_counts(
            plan.mechanism, n_tables=plan.n_answers, claimed_epsilon=plan.epsilon, delta=plan.delta, **chosen
        )

    def require_hope(self, *, n_units: int, n_classes: int, unit: str, epsilon: float, **_: Any) -> None:
        """Raise ValueError if noise on counts is too large for so few units."""
        mechanism = self.plan.mechanism
        noise = mechanism.sigma / mechanism.l2 / math.sqrt(self.plan.n_answers)  # in the mean of all tables
        enough = math.ceil(_SIGNAL * noise * n_classes)
        if n_units < enough:
            raise ValueError(
                f"{n_units:,} {MANY[unit]} are too few for {n_classes} classes at epsilon={epsilon:g}: noise "
                f"that hides one of them hides what all of them say. Nothing was spent. Bring {enough:,} "
                f"{MANY[unit]}, or type a larger --epsilon, or {self.instead}"
            )

    @property
    def answers(self) -> str:
        """What is released, in words."""
        return f"one table of counts: {self.plan.n_cells:,} cells × classes"

    def words(self, *, n_units: int, n_public: int, unit: str, teacher: str) -> dict[str, str]:  # noqa: ARG002
        """What a unit adds, the mechanism, who are neighbours, and the tables."""
        mechanism = self.plan.mechanism
        return {
            "way": self.asks.format(unit=unit, n_public=n_public),
            "mechanism": repr(mechanism),
            "neighbours": neighbours({"relation": mechanism.relation, "unit": unit}),
            "answers": self.answers,
        }


def require_heard(
    sigma: float, facts: Facts, *, far: float, n_answers: int = 1, most: float = _MOST_SIGMA
) -> None:
    """Raise BudgetExceeded if even noise as large as all ballots costs too much, in so many tables."""
    cost = (n_answers * NoisyCounts(sigma=min(most, sigma), l2=far).curve()).epsilon(facts.delta)
    if cost > facts.epsilon:
        raise BudgetExceeded(
            f"epsilon={facts.epsilon:g} at delta={facts.delta:g} is too small for {facts.n_units} units: "
            "noise would drown all their ballots; use a larger epsilon or more units",
            asked=cost,
            left=facts.epsilon,
        )


def least_table(
    facts: Facts, *, far: float, n_answers: int = 1, most_epsilon: float = math.inf
) -> NoisyCounts:
    """The counts with the least noise, to five digits upwards, of which so many tables fit the budget."""

    def table(noise: float) -> NoisyCounts:
        return NoisyCounts(sigma=min(noise, _MOST_SIGMA), l2=far, relation=facts.relation)

    epsilon = min(facts.epsilon, most_epsilon)
    return table(least_noise(table, n_answers=n_answers, epsilon=epsilon, delta=facts.delta, digits=_DIGITS))


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


def try_to_teach(
    cells: Any, public: Any, *, plan: CountsPlan, classes: np.ndarray, kind: Any, seed: int
) -> None:
    """Teach the student made-up labels, so that a failure comes before the charge.

    Raises
    ------
    ImportError
        The student needs torch, which is not installed.
    ValueError
        The student cannot learn, or cannot take the place of the one that bins have.
    """
    if kind is not None and isinstance(cells, QuantileCells):
        raise ValueError(
            f"student must be None for a table of bins, which has a student of its own, got {kind!r}"
        )
    if kind == _FIXMATCH:
        check.require("torch", extra="torch")
    made_up = np.random.default_rng(0).integers(0, plan.n_units, size=(plan.n_cells, len(classes)))
    try:
        if kind is None:
            n_rows = _ROWS_OF_A_TRIAL * len(classes)
            taught(cells, public, made_up, plan=plan, classes=classes, most_images=n_rows)[0].predict(public)
        else:
            n_rows = min(len(public), _ROWS_OF_A_TRIAL * len(classes))
            rows = np.asarray(_safe_indexing(public, np.arange(n_rows)))
            trial = _distilled(kind, cells, rows, seed=seed, n_steps=1)
            trial.fit(rows, np.arange(n_rows) % len(classes), classes=classes).predict(rows)
    except Exception as error:
        raise ValueError(f"the student cannot learn from public rows and made-up counts: {error}") from error


def taught(
    cells: Any,
    public: Any,
    counts: np.ndarray,
    *,
    plan: CountsPlan,
    classes: np.ndarray,
    kind: Any = None,
    seed: int = 0,
    most_images: int | None = None,
) -> tuple[Any, np.ndarray]:
    """Return the student of released counts, and the class index it was given for each public row.

    Without ``kind``, the student of the cells' own. A named student or a classifier gets the labels of which
    the posterior is sure, and all other public rows without a label. ``most_images`` is for trials.
    """
    if isinstance(cells, QuantileCells):
        table = counts / plan.ballot
        model = MomentLogistic()
        lines = cells.lines(public)
        model.fit(lines, table, sigma=plan.sigma, n_units=plan.n_units, classes=classes)
        return BinnedStudent(cells, model), model.predict_proba(lines).argmax(axis=1)
    labels = _posterior(cells, counts, plan)
    rows = np.asarray(public)
    if kind is not None:
        sure = labels.sure_labels()
        return _distilled(kind, cells, rows, seed=seed).fit(rows, sure, classes=classes), sure
    if own_features(cells):
        # rows alike may be of different classes: the likeliest one is right as often as its share says
        odds = sharpness(labels.shares_, confidence=float(labels.probability_.mean())) * labels.coef_
        return featured(cells, odds, classes), labels.labels_
    confidence = float(labels.confidence_.mean())  # of images, whose shares are shrunk: see sure_labels
    student = AugmentedSVM(image_shape=cells.image_shape, invariances=cells.invariances)
    weight = labels.margin_ / max(float(labels.margin_.mean()), 1e-300)
    part = slice(most_images)
    student.fit(rows[part], classes[labels.labels_[part]], weight[part], classes=classes)
    if len(student.present_) > 1:
        spaced = rows[:: math.ceil(len(rows) / _ROWS_OF_A_MEAN)]
        student.sharpness_ = sharpness(student.decision_function(spaced), confidence=confidence)
    return student, labels.labels_


def expected_labels(cells: Any, public: Any, counts: np.ndarray, *, plan: CountsPlan) -> np.ndarray:
    """The likeliest class index of each public row given released counts."""
    if isinstance(cells, QuantileCells):
        return taught(cells, public, counts, plan=plan, classes=np.arange(counts.shape[1]))[1]
    return np.asarray(_posterior(cells, counts, plan).labels_)


def _posterior(cells: Any, counts: np.ndarray, plan: CountsPlan) -> SmoothedCounts:
    """Condition on counts, whose lines have one length where features are the row's own."""
    with_features = own_features(cells)
    lines, size = (cells.features_, cells.reach_ / 2) if with_features else (cells.codebooks_[0], 1)
    return SmoothedCounts().fit(
        lines,
        counts / plan.ballot / size,
        sigma=plan.sigma / size,
        n_units=plan.n_units,
        features=cells.features_,
    )


def _distilled(
    kind: Any, cells: Any, rows: np.ndarray, *, seed: int, n_steps: int | None = None
) -> Distilled:
    """Return the student that the user named or made."""
    if isinstance(kind, Distilled):
        student: Distilled = clone(kind)
        return student
    if isinstance(kind, str) and kind == _FIXMATCH:
        from ostraka.learn.students.fixmatch import FixMatch  # noqa: PLC0415  (needs torch)

        steps = {} if n_steps is None else {"n_steps": n_steps}
        shape = getattr(cells, "image_shape", None)
        kind = FixMatch() if shape is None else FixMatch.of_images(rows, shape, **steps)
    return Distilled(kind, random_state=seed)


class Fixed(BaseEstimator):
    """An estimator of parts that are fitted already."""

    def fit(self, X: Any = None, y: Any = None) -> Self:  # noqa: ARG002  (as scikit-learn calls it)
        """Do nothing."""
        return self


@dataclass(eq=False, repr=False)
class BinnedStudent(ClassifierMixin, Fixed):
    """Public bins and a classifier of their lines, as one classifier of rows."""

    cells: QuantileCells
    model: MomentLogistic

    @property
    def classes_(self) -> np.ndarray:
        """The classes."""
        check_is_fitted(self.model, "classes_")
        return self.model.classes_

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class, shape (n_rows, n_classes)."""
        return self.model.predict_proba(self.cells.lines(X))

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of each row."""
        return self.model.predict(self.cells.lines(X))


def featured(cells: FeatureCells, weights: np.ndarray, classes: np.ndarray) -> Pipeline:
    """Return log odds that are linear in the features, in steps that scikit-learn has."""
    whitening = PCA(cells.whitening_.shape[1])
    whitening.mean_, whitening.components_ = cells.middle_, cells.whitening_.T
    whitening.n_features_in_ = len(cells.middle_)
    whitening.explained_variance_ = np.ones(cells.whitening_.shape[1])  # read, not used, by scikit-learn 1.6
    odds = linear(np.sqrt(1 - cells.constant**2) * weights[:-1], cells.constant * weights[-1], classes)
    transform, names = cells.transform_, getattr(cells, "feature_names_in_", None)
    if cells.transform is None and names is not None:  # the default one, which was fitted on arrays
        transform = copy.deepcopy(transform)
        transform[0].feature_names_in_ = names
    steps = (transform, whitening, Normalizer(), odds)
    return Pipeline(list(zip(("features", "whitening", "length", "weights"), steps, strict=True)))


def linear(coefficients: np.ndarray, intercept: np.ndarray, classes: np.ndarray) -> LogisticRegression:
    """Return a model of scikit-learn with these log odds of each class, (n_features, n_classes)."""
    model = LogisticRegression()
    if len(classes) == _TWO:
        coefficients, intercept = (values[..., 1:] - values[..., :1] for values in (coefficients, intercept))
    model.coef_, model.intercept_, model.classes_ = coefficients.T.copy(), intercept, classes
    model.n_features_in_, model.n_iter_ = len(coefficients), np.array([1], dtype=np.int32)
    return model
