"""PATE-FM: the features are public, each label is private. Teachers and student train by FixMatch."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from ostraka.door import ABSTAIN, confident, release
from ostraka.pate._data import Data, Seeds
from ostraka.pate._questions import require_affordable
from ostraka.pate._record import of_labels, with_accuracies, with_audit
from ostraka.pate._session import begin, content, name_of, session
from ostraka.pate.plan import make_label_plan
from ostraka.students.fixmatch import FixMatch, default_network
from ostraka.voters import TeacherEnsemble

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from sklearn.utils import Tags

    from ostraka.door import Mechanism
    from ostraka.ledger import Ledger
    from ostraka.mechanisms import Threshold
    from ostraka.pate.plan import LabelPlan
    from ostraka.private import Private
    from ostraka.result import Result
    from ostraka.voters import Manifest

__all__ = ["PATEFM"]

_STAYS = ("_session", "ensemble_", "ledger_", "manifest_", "votes_")


class PATEFM(ClassifierMixin, BaseEstimator):
    """A classifier from rows with public features and private labels, by the ballots of FixMatch teachers.

    Each teacher trains on the labels of its own shard and the features of all rows. They vote on
    rows drawn at random; a screen lets clear ones through, a noisy argmax labels them, until there
    are ``n_answers``. The student trains on these and all features.

    Parameters
    ----------
    estimator : FixMatch, optional
        Public. Cloned for teachers and student, without ``unlabelled``. None: its defaults.
        Teachers leave out the network's checkpoint and progress.
    student : FixMatch, optional
        None: as the teachers.
    n_teachers : int, default 20
    mechanism : Mechanism, optional
        None: :class:`~ostraka.GNMax` with the least noise that (epsilon, delta) pays for, if every
        query is answered.
    screen : Threshold, optional
        Label only rows where the teachers agree (Confident-GNMax). ``noise="every"`` is the paper's.
    n_answers : int, optional
        Labels for the student. None: ten a class.
    n_queries : int, optional
        Rows asked about at the most. None: twice ``n_answers`` with a screen, else as many.
    epsilon : float
        All that this fit may spend, in nats.
    delta : float, default 1e-5
    classes : array, optional
        Every class there may be, which is then no secret of the labels.
    ledger, manifest, engine, n_jobs, progress
        As in :class:`~ostraka.PATEClassifier`. With several jobs, a teacher computes with one thread
        unless its network says otherwise.
    random_state : int, numpy.random.RandomState or None
        Seeds training, and which rows are asked about. **Never any noise.**

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    student_ : FixMatch
        Public: all that predictions need.
    labels_ : int64 array, shape (n_rows,)
        Public. The class index answered for each row, or ``ABSTAIN``.
    asked_ : int64 array
        Public. Rows in the order they were asked about.
    plan_ : LabelPlan
    result_ : Result
        The record of the run; ``result_.public()`` is what may be shown.
    ledger_, manifest_, ensemble_, votes_
        For the owner only. They, and the owner's part of ``result_``, are not pickled.

    Raises
    ------
    BudgetExceeded
        The plan does not fit; nothing was trained, charged or answered.
    ValueError
        Rows, labels or settings that cannot be used; no message shows a label.

    Notes
    -----
    With an integer ``random_state`` and neither ``ledger`` nor ``manifest``, the same fit in one
    process, while the first estimator lives, gets the same answers and costs nothing more.

    Guarantees
    ----------
    Everything public about a fitted estimator is (``plan_.epsilon``, ``delta``)-differentially private
    for one label, replaced by any other: it lies in one shard, so it moves one ballot in each query
    at the most, and when asking stops is decided by answers that are paid for. Given: all features,
    the class list, the partition. :meth:`evaluate` adds accuracies that are not.
    Source: Malek et al. 2021, arXiv:2106.03408, Algorithms 1 and 2. What differs: rows are drawn
    without repeats, and at most ``n_queries`` of them.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from ostraka import TorchClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> network = TorchClassifier(epochs=30, batch_size=8, learning_rate=0.01, n_threads=1)
    >>> model = PATEFM(FixMatch(network), n_teachers=3, n_answers=15, epsilon=40.0, n_jobs=1, random_state=0)
    >>> model = model.fit(X, y)
    >>> model.result_.settings["unit"], model.result_.upper["epsilon"] <= 40.0
    ('label', True)
    """

    def __init__(
        self,
        estimator: FixMatch | None = None,
        *,
        student: FixMatch | None = None,
        n_teachers: int = 20,
        mechanism: Mechanism | None = None,
        screen: Threshold | None = None,
        n_answers: int | None = None,
        n_queries: int | None = None,
        epsilon: float = 2.0,
        delta: float = 1e-5,
        classes: Any = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        manifest: Manifest | None = None,
        engine: str = "joblib",
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        progress: Callable[[str, int, int], object] | None = None,
    ) -> None:
        self.estimator = estimator
        self.student = student
        self.n_teachers = n_teachers
        self.mechanism = mechanism
        self.screen = screen
        self.n_answers = n_answers
        self.n_queries = n_queries
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.ledger = ledger
        self.manifest = manifest
        self.engine = engine
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.progress = progress

    def plan(self, *, n_rows: int, n_classes: int) -> LabelPlan:
        """What :meth:`fit` would do with so many rows and classes; no data is read.

        Raises
        ------
        BudgetExceeded
            (epsilon, delta) is too small for it.
        ValueError
            delta >= 1 / n_rows, or a number out of range.
        """
        return make_label_plan(
            n_rows=n_rows,
            n_classes=n_classes,
            n_teachers=self.n_teachers if self.manifest is None else self.manifest.n_teachers,
            mechanism=self.mechanism,
            screen=self.screen,
            n_answers=self.n_answers,
            n_queries=self.n_queries,
            epsilon=self.epsilon,
            delta=self.delta,
        )

    def fit(self, X: Any, y: Any) -> Self:
        """Learn: deal the labels, train, vote, ask and pay, train the student.

        An interrupted fit that is repeated with the same rows, settings, integer ``random_state``,
        manifest and ledger file pays for no answer twice.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
            Public.
        y : array of shape (n_rows,)
            Private.
        """
        X, y = self._validated(X, y)
        seeds, data = Seeds.of(self.random_state), Data(X, y, None, X, None)
        self.classes_ = data.classes(self.classes)
        plan = self.plan(n_rows=len(y), n_classes=len(self.classes_))
        here = session(
            name_of(self, data),
            lambda: begin(data, plan, ledger=self.ledger, manifest=self.manifest, epsilon=self.epsilon),
        )
        self._session = here
        teachers = self._teachers(X, plan, seeds.teachers)
        key = content(here.manifest.sha256, repr(plan), seeds, _as_asked(teachers.estimator))
        require_affordable(here.ledger, plan, key=key)
        self._rehearse(X, plan)
        start = time.monotonic()
        teachers.fit(X, y, classes=self.classes, manifest=here.manifest)
        taught = time.monotonic()
        self.plan_, self.ledger_, self.manifest_, self.ensemble_ = plan, here.ledger, here.manifest, teachers
        self._ask(X, key=key, seed=seeds.asking)
        self._tell("student", 0, 1)
        began = time.monotonic()
        self.student_ = self._student(seeds.student).fit(X, self.labels_, classes=self.classes_)
        self._tell("student", 1, 1)
        self.result_ = of_labels(
            self, key=key, seconds={"teachers": taught - start, "student": time.monotonic() - began}
        )
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The student's class of each row."""
        check_is_fitted(self, "student_")
        return np.asarray(self.student_.predict(X))

    def predict_proba(self, X: Any) -> np.ndarray:
        """How sure the student is of each class, shape (n_rows, n_classes)."""
        check_is_fitted(self, "student_")
        return self.student_.predict_proba(X)

    def evaluate(self, X: Any, y: Any) -> Result:
        """Measure on rows whose labels may be known; also kept in ``result_``.

        Parameters
        ----------
        X, y : arrays
            Rows whose labels nobody's privacy is promised for, and these.

        Returns
        -------
        Result
            ``utility`` has the student's accuracy; ``owner["utility"]`` that of the teachers'
            plurality and of the mean teacher, as long as this estimator still has its teachers.
        """
        check_is_fitted(self, "student_")
        self.result_ = with_accuracies(self, np.asarray(X), np.asarray(y), None, None)
        return self.result_

    def audit(self, *, trials: int | None = None, confidence: float = 0.95) -> Result:
        """Play the strongest adversary against the ballots, for a lower bound; kept in ``result_``.

        As :meth:`PATEClassifier.audit`, on the first ``n_answers`` queries, which are asked in any
        case. Nothing private is read. What the student itself gives away is found with
        :func:`ostraka.attacks.draw_canaries`.

        Parameters
        ----------
        trials : int, optional
            Runs to simulate in each world. None: what takes a second or two.
        confidence : float in (0, 1)
        """
        check_is_fitted(self, "student_")
        self.result_ = with_audit(self, trials=trials, confidence=confidence)
        return self.result_

    def _validated(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        if y is None:
            raise ValueError("PATEFM requires y to be passed, but the target y is None")
        for name in ("estimator", "student"):
            if not isinstance(getattr(self, name), FixMatch | None):
                raise TypeError(f"{name} must be a FixMatch, got {type(getattr(self, name)).__name__}")
        X = validate_data(self, X, dtype=np.float32)
        y = column_or_1d(y, warn=True, dtype=None)
        if len(y) != len(X):
            raise ValueError(f"y must have one label for each of {len(X)} rows, got {len(y)}")
        check_classification_targets(y)
        if self.classes is None and len(np.unique(y)) < 2:
            raise ValueError(
                "y must hold two classes or more, but holds one class only: is it the right column?"
            )
        return X, y

    def _teachers(self, X: np.ndarray, plan: LabelPlan, seed: int) -> TeacherEnsemble:
        """FixMatch on each shard's labels and all features, which they share."""
        teacher = FixMatch() if self.estimator is None else clone(self.estimator)
        network = default_network() if teacher.network is None else teacher.network
        crowd = self.n_jobs != 1 and network.n_threads is None
        network.set_params(checkpoint=None, progress=None, n_threads=1 if crowd else network.n_threads)
        return TeacherEnsemble(
            teacher.set_params(network=network, unlabelled=X.view(_Shared)),
            n_teachers=plan.n_teachers,
            engine=self.engine,
            n_jobs=self.n_jobs,
            random_state=seed,
            progress=self.progress,
        )

    def _student(self, seed: int) -> FixMatch:
        student: FixMatch = clone(self.student or self.estimator or FixMatch())
        network = default_network() if student.network is None else student.network
        student.set_params(network=network.set_params(random_state=seed), unlabelled=None)
        return student

    def _rehearse(self, X: np.ndarray, plan: LabelPlan) -> None:
        """Let wrong settings show on a few rows with made-up labels, before anything is trained."""
        few = X[np.arange(min(len(X), 10 * len(self.classes_)))]
        made_up = np.arange(len(few)) % len(self.classes_)
        for teacher in (self._teachers(X, plan, 0).estimator, self._student(0)):
            short = clone(teacher.network).set_params(epochs=1, checkpoint=None, progress=None)
            clone(teacher).set_params(network=short, unlabelled=few).fit(few, made_up)

    def _ask(self, X: np.ndarray, *, key: str, seed: int) -> None:
        """Algorithm 2: rows at random, until there are enough answers or queries."""
        plan = self.plan_
        order = np.random.default_rng(seed).permutation(len(X))[: plan.n_queries]
        votes = self.ensemble_.vote(X[order]).with_adjacency(unit="label")
        answers = np.full(len(order), ABSTAIN)
        done, missing = 0, plan.n_answers
        while missing and done < len(order):
            # asking about as many as are missing cannot give too many: the same law as one at a time
            batch = slice(done, min(done + missing, len(order)))
            answers[batch] = self._answered(votes[batch], f"{key}/answers/{done}")
            done, missing = batch.stop, plan.n_answers - int((answers != ABSTAIN).sum())
            self._tell("answers", plan.n_answers - missing, plan.n_answers)
        self.labels_ = np.full(len(X), ABSTAIN)
        self.labels_[order] = answers
        self.asked_, self.votes_ = order[:done], votes[:done]

    def _answered(self, votes: Private, key: str) -> np.ndarray:
        plan, ledger = self.plan_, self.ledger_
        if plan.screen is None:
            return release(plan.mechanism, votes, ledger=ledger, key=key)
        return confident(votes, screen=plan.screen, argmax=plan.mechanism, ledger=ledger, key=key)

    def _tell(self, stage: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(stage, done, total)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # noise has no seed
        tags.classifier_tags.poor_score = True  # so few rows as scikit-learn's checks have drown in it
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        for name in _STAYS:
            state.pop(name, None)
        if "result_" in state:
            state["result_"] = state["result_"].public()
        return state


class _Shared(np.ndarray):
    """Public rows of which a clone of an estimator makes no copy."""

    def __deepcopy__(self, _memo: object) -> Self:
        return self


def _as_asked(teacher: FixMatch) -> FixMatch:
    """Without what only says how fast it trains: on other cores a run goes on from the same answers."""
    described: FixMatch = clone(teacher)
    if described.network is not None:
        described.network.set_params(n_threads=None)
    return described
