"""PATE-FM: the features are public, each label is private. Teachers and student train by FixMatch."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from ostraka.door import ABSTAIN, release
from ostraka.pate._data import Data, Seeds, labels_of
from ostraka.pate._fitted import Fitted
from ostraka.pate._guards import row_digests
from ostraka.pate._questions import paid, require_affordable
from ostraka.pate._record import OS_NOISE, try_record, with_accuracies
from ostraka.pate._run import Owned, Run
from ostraka.pate._session import Session, begin
from ostraka.pate.plan import make_label_plan
from ostraka.students.fixmatch import FixMatch, default_network
from ostraka.voters import TeacherEnsemble
from ostraka.voters.shards import Manifest

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from sklearn.utils import Tags

    from ostraka.ledger import Ledger
    from ostraka.mechanisms import Threshold
    from ostraka.mechanisms.protocols import Mechanism
    from ostraka.pate.plan import LabelPlan
    from ostraka.private import Private
    from ostraka.result import Result

__all__ = ["PATEFM"]

_FEATURES = "All features of all rows are public: they are not protected, and neither is that a row is there."
_PARTITION = "The number of labels, and which shard each lies in, are treated as public."


class PATEFM(ClassifierMixin, Fitted):
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
    >>> from ostraka.networks import TorchClassifier
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
        manifest: Manifest | str | os.PathLike[str] | None = None,
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
        """The plan of :meth:`fit` for these numbers of rows and classes; no data is read.

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
            n_teachers=self.manifest.n_teachers if isinstance(self.manifest, Manifest) else self.n_teachers,
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
        classes = data.classes(self.classes)
        plan = self.plan(n_rows=len(y), n_classes=len(classes))
        self._session = here = begin(self, data, plan, digests=row_digests(X))
        teachers = self._teachers(X, plan, seeds.teachers)
        key = here.key(data, repr(plan), seeds, _as_asked(teachers.estimator))
        require_affordable(here.ledger, plan, key=key)
        self._dry_run(X, plan, len(classes))
        start = time.monotonic()
        teachers.fit(X, y, classes=self.classes, manifest=here.manifest)
        taught = time.monotonic()
        asked, answers, votes = self._ask(X, plan, here, teachers, key=key, seed=seeds.asking)
        labels = np.full(len(X), ABSTAIN)
        labels[asked] = answers
        self._tell("student", 0, 1)
        began = time.monotonic()
        student = self._student(seeds.student).fit(X, labels, classes=classes)
        self._tell("student", 1, 1)
        return self._finish(
            Run(
                plan=plan,
                classes=classes,
                student=student,
                student_name="FixMatch",
                teacher="FixMatch",
                asks="random",
                labels=labels,
                asked=asked,
                held_out=None,
                n_classes_said=None,
                # how many questions were left out depends on the votes, so all of them count as asked
                spent=here.ledger.spent() + plan.left(paid(here.ledger, key=key)),
                noise=OS_NOISE,
                notes=(_FEATURES, *teachers.notes_, _PARTITION),
                warnings=(),
                owned=Owned(
                    ensemble=teachers,
                    ledger=here.ledger,
                    manifest=here.manifest,
                    votes=votes,
                    public=None,
                    seconds={"teachers": taught - start, "student": time.monotonic() - began},
                ),
            )
        )

    def predict(self, X: Any) -> np.ndarray:
        """The student's class of each row."""
        check_is_fitted(self, "student_")
        return np.asarray(self.student_.predict(X))

    def predict_proba(self, X: Any) -> np.ndarray:
        """The student's probability of each class, shape (n_rows, n_classes)."""
        check_is_fitted(self, "student_")
        return np.asarray(self.student_.predict_proba(X))

    def evaluate(self, X: Any, y: Any) -> Result:
        """Measure on rows whose labels may be known; also kept in ``result_``.

        Parameters
        ----------
        X, y : arrays
            Rows, and their true labels, which are not protected.

        Returns
        -------
        Result
            ``utility`` has the student's accuracy; ``owner["utility"]`` that of the teachers'
            plurality and of the mean teacher, as long as this estimator still has its teachers.
        """
        check_is_fitted(self, "student_")
        self.result_ = with_accuracies(self._run, self.result_, np.asarray(X), np.asarray(y))
        return self.result_

    def _validated(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        for name in ("estimator", "student"):
            if not isinstance(getattr(self, name), FixMatch | None):
                raise TypeError(f"{name} must be a FixMatch, got {type(getattr(self, name)).__name__}")
        X = validate_data(self, X, dtype=np.float32)
        return X, labels_of(y, n_rows=len(X), name="PATEFM", declared=self.classes)

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

    def _dry_run(self, X: np.ndarray, plan: LabelPlan, n_classes: int) -> None:
        """Try training, accounting and recording on made-up labels and votes, before any charge."""
        try_record(plan, n_classes=n_classes)
        few = X[np.arange(min(len(X), 10 * n_classes))]
        made_up = np.arange(len(few)) % n_classes
        for teacher in (self._teachers(X, plan, 0).estimator, self._student(0)):
            short = clone(teacher.network).set_params(epochs=1, checkpoint=None, progress=None)
            clone(teacher).set_params(network=short, unlabelled=few).fit(few, made_up)

    def _ask(
        self, X: np.ndarray, plan: LabelPlan, here: Session, teachers: TeacherEnsemble, *, key: str, seed: int
    ) -> tuple[np.ndarray, np.ndarray, Private]:
        """Algorithm 2: ask about rows at random until there are enough answers, or no queries are left."""
        order = np.random.default_rng(seed).permutation(len(X))[: plan.n_queries]
        votes = teachers.vote(X[order]).with_adjacency(unit="label")
        answers = np.full(len(order), ABSTAIN)
        done, missing = 0, plan.n_answers
        while missing and done < len(order):
            # asking about as many as are missing cannot give too many: the same law as one at a time
            batch = slice(done, min(done + missing, len(order)))
            name = f"{key}/answers/{done}"
            answers[batch] = release(plan.mechanism, votes[batch], ledger=here.ledger, key=name)
            done, missing = batch.stop, plan.n_answers - int((answers != ABSTAIN).sum())
            self._tell("answers", plan.n_answers - missing, plan.n_answers)
        return order[:done], answers[:done], votes[:done]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # noise has no seed
        tags.classifier_tags.poor_score = True  # so few rows as scikit-learn's checks have drown in it
        return tags


class _Shared(np.ndarray):
    """Public rows that clones of an estimator share instead of copying."""

    def __deepcopy__(self, _memo: object) -> Self:
        return self


def _as_asked(teacher: FixMatch) -> FixMatch:
    """Return the network without settings of speed, so that a run can continue on another machine."""
    described: FixMatch = clone(teacher)
    if described.network is not None:
        described.network.set_params(n_threads=None)
    return described
