"""PATEClassifier: shards, teachers, secret ballots, paid answers and a student, as one estimator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from ostraka.ledger import Ledger
from ostraka.pate._consistent import same_questions
from ostraka.pate._data import Data, Seeds, split
from ostraka.pate._questions import Questions, require_affordable
from ostraka.pate._record import of_run, with_accuracies, with_audit
from ostraka.pate._session import Session, begin, content, name_of, session
from ostraka.pate.plan import Plan, make_plan
from ostraka.students import Distilled
from ostraka.voters import Manifest, TeacherEnsemble

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from sklearn.utils import Tags

    from ostraka.consistent import Consistent
    from ostraka.door import Mechanism
    from ostraka.mechanisms import Threshold
    from ostraka.result import Result

__all__ = ["PATEClassifier"]

_ASKS = ("least-confident", "random")
_STAYS = ("_public", "_session", "ensemble_", "ledger_", "manifest_", "votes_")


def _can_say_how_sure(model: PATEClassifier) -> bool:
    student = getattr(model, "student_", model.student)
    return student is None or isinstance(student, str) or hasattr(student, "predict_proba")


class PATEClassifier(ClassifierMixin, BaseEstimator):
    """A classifier learned from private rows by secret ballot.

    Teachers are trained on disjoint shards of the private rows and vote on public ones; a
    mechanism answers with noise, charged to a ledger first; a student learns from the answers.

    Parameters
    ----------
    estimator : scikit-learn classifier, optional
        The teachers. None: decision trees where a shard has more rows than there are features,
        else one nearest neighbour.
    n_teachers : int or "auto"
        ``"auto"``: a teacher for every 13 units, 250 at the most.
    mechanism : Mechanism, optional
        None: :class:`~ostraka.GNMax` with the least noise that (epsilon, delta) pays for.
    screen : Threshold, optional
        Ask the teachers only where they agree enough (Confident-GNMax).
    epsilon : float
        All that this fit may spend, in nats.
    delta : float, optional
        None: that of the ledger, else the smaller of 1e-5 and a tenth of 1 / n_units.
    n_answers : int, optional
        How many public rows to ask about. None: 100, or ten a class if that is more, as far as
        (epsilon, delta) and the number of teachers go; with ``mechanism``, as many as are paid for.
    student : scikit-learn classifier or str, optional
        What learns from the answers: see :class:`~ostraka.students.Distilled`. None: ``"auto"``.
    asks : {"least-confident", "random"}
        Which rows to ask about: first typical ones, then those the student is least sure of; or
        any.
    consistent : bool or Consistent
        Ask one question once: public rows that are the same up to a grid get one label for one
        charge (:class:`~ostraka.consistent.Consistent`). True: cells of a thousandth of each
        column's public range, and a secret in a file beside the ledger's.
    classes : array, optional
        Every class there may be, which is then no secret of the labels.
    holdout : float in (0, 1)
        Without ``X_public``: the share of units whose rows are given up as public questions.
    ledger : Ledger, str or path, optional
        Where to charge. None: in memory. A path: that file, with budget (epsilon, delta) if new.
    manifest : Manifest, optional
        A deal made before, to go on with.
    engine, n_jobs, progress
        As in :class:`~ostraka.TeacherEnsemble`; the stages are ``"shards"``, ``"teachers"``,
        ``"votes"``, ``"answers"`` and ``"student"``.
    random_state : int, numpy.random.RandomState or None
        Seeds training, what is held out and what is asked first. **Never any noise.**

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    student_ : Distilled
        Public: all that predictions need.
    labels_ : int64 array, shape (n_public,)
        Public. The class index answered for each public row, or ``ABSTAIN``.
    asked_ : int64 array, shape (n_answers,)
        Public. Rows of ``X_public`` (or of ``held_out_``) in the order they were asked about.
    held_out_ : int64 array or None
        Rows of ``X`` that were used as public ones.
    plan_ : Plan
    result_ : Result
        The record of the run; ``result_.public()`` is what may be shown.
    ledger_, manifest_, ensemble_, votes_
        For the owner only. They, and the owner's part of ``result_``, are not pickled.

    Notes
    -----
    With an integer ``random_state`` and neither ``ledger`` nor ``manifest``, the same fit in one
    process, while the first estimator lives, gets the same answers and costs nothing more.

    Guarantees
    ----------
    Everything public about a fitted estimator is (``plan_.epsilon``, ``plan_.delta``)-differentially
    private for one unit of the private rows, replaced by any other (see
    :class:`~ostraka.voters.Manifest`), by composition over all answers. Given: the numbers of rows
    and units, the class list, and the held-out rows. :meth:`evaluate` adds accuracies that are not.
    Source: Papernot et al. 2017, arXiv:1610.05755; Papernot et al. 2018, arXiv:1802.08908.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = PATEClassifier(n_teachers=100, epsilon=3.6, delta=1e-4, student="spreading")
    >>> model = model.fit(X[500:], y[500:], X_public=X[:300])
    >>> model.score(X[300:500], y[300:500]) > 0.5
    True
    >>> model.result_.upper["epsilon"] <= 3.6
    True
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        n_teachers: int | str = "auto",
        mechanism: Mechanism | None = None,
        screen: Threshold | None = None,
        epsilon: float = 2.0,
        delta: float | None = None,
        n_answers: int | None = None,
        student: Any = None,
        asks: str = "least-confident",
        consistent: Consistent | bool = False,
        classes: Any = None,
        holdout: float = 0.2,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        manifest: Manifest | None = None,
        engine: str = "joblib",
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        progress: Callable[[str, int, int], object] | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_teachers = n_teachers
        self.mechanism = mechanism
        self.screen = screen
        self.epsilon = epsilon
        self.delta = delta
        self.n_answers = n_answers
        self.student = student
        self.asks = asks
        self.consistent = consistent
        self.classes = classes
        self.holdout = holdout
        self.ledger = ledger
        self.manifest = manifest
        self.engine = engine
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.progress = progress

    def plan(self, *, n_units: int, n_classes: int, n_public: int) -> Plan:
        """What :meth:`fit` would do with so many units, classes and public rows; no data is read.

        Raises
        ------
        BudgetExceeded
            (epsilon, delta) is too small for it.
        ValueError
            delta >= 1 / n_units, or a number out of range.
        """
        delta = self.delta
        if delta is None:
            delta = self.ledger.budget.delta if isinstance(self.ledger, Ledger) else min(1e-5, 0.1 / n_units)
        return make_plan(
            n_units=n_units,
            n_classes=n_classes,
            n_public=n_public,
            n_teachers=self.n_teachers if self.manifest is None else self.manifest.n_teachers,
            mechanism=self.mechanism,
            screen=self.screen,
            n_answers=self.n_answers,
            epsilon=self.epsilon,
            delta=delta,
        )

    def fit(self, X: Any, y: Any, X_public: Any = None, groups: Any = None) -> Self:
        """Learn: deal, train, vote, ask and pay, distil.

        An interrupted fit that is repeated with the same data, settings, ``random_state``, manifest
        and ledger file goes on where it stopped, and pays for no answer twice.

        Parameters
        ----------
        X : array or data frame, shape (n_rows, n_features)
            Private.
        y : array of shape (n_rows,)
            Private.
        X_public : array or data frame, shape (n_public, n_features), optional
            Public. None: a share ``holdout`` of the units is given up as public questions; their
            labels are not used.
        groups : array of shape (n_rows,), optional
            Private. Whom each row belongs to: then a person is the protected unit, else a row.

        Raises
        ------
        BudgetExceeded
            The plan does not fit the ledger; nothing was trained, charged or answered.
        ValueError
            Data or settings that cannot be used; the message names public numbers only.
        """
        if self.asks not in _ASKS:
            raise ValueError(f"asks must be one of {', '.join(_ASKS)}, got {self.asks!r}")
        X, y = self._validated(X, y)
        X_public = None if X_public is None else self._queries(X_public)
        seeds = Seeds.of(self.random_state)
        data = split(X, y, groups, X_public=X_public, holdout=self.holdout, seed=seeds.holdout)
        classes = data.classes(self.classes)
        plan = self.plan(n_units=data.n_units, n_classes=len(classes), n_public=data.public.shape[0])
        here = session(
            name_of(self, data),
            lambda: begin(data, plan, ledger=self.ledger, manifest=self.manifest, epsilon=self.epsilon),
        )
        self._session, self.manifest_ = here, here.manifest
        teachers = self._teachers(data, plan, seeds.teachers)
        questions = self._questions(data, plan, seeds, here, teachers)
        require_affordable(here.ledger, plan, key=questions.key)
        self._rehearse(teachers, data, len(classes))
        teachers.fit(data.X, data.y, data.groups, classes=self.classes, manifest=here.manifest)
        questions.ask(teachers.vote)
        self._tell("student", 0, 1)
        student = self._student(seeds.student).fit(data.public, questions.labels, classes=classes)
        self._tell("student", 1, 1)
        self.classes_, self.student_, self.plan_, self.held_out_ = classes, student, plan, data.held_out
        self.labels_, self.asked_, self.votes_ = questions.labels, questions.asked, questions.votes
        self.ensemble_, self.ledger_, self._public = teachers, here.ledger, data.public
        self.result_ = of_run(self)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The student's class of each row."""
        check_is_fitted(self, "student_")
        return np.asarray(self.student_.predict(self._queries(X)))

    @available_if(_can_say_how_sure)
    def predict_proba(self, X: Any) -> np.ndarray:
        """How sure the student is of each class, shape (n_rows, n_classes)."""
        check_is_fitted(self, "student_")
        return np.asarray(self.student_.predict_proba(self._queries(X)))

    def evaluate(self, X: Any, y: Any, *, X_private: Any = None, y_private: Any = None) -> Result:
        """Measure on rows with known labels that were never asked about; also kept in ``result_``.

        Parameters
        ----------
        X, y : arrays
            Rows nobody's privacy is promised for, and their true labels.
        X_private, y_private : arrays, optional
            The private rows, to train one of the teachers' kind on all of them, for comparison.

        Returns
        -------
        Result
            ``utility`` has the accuracy of the student and of always saying the commonest class;
            ``owner["utility"]`` what comes from private rows without noise, as long as this
            estimator still has its teachers: the plurality, the mean teacher, the non-private model.
        """
        check_is_fitted(self, "student_")
        X, y = self._queries(X), np.asarray(y)
        self.result_ = with_accuracies(self, X, y, X_private, y_private)
        return self.result_

    def audit(self, *, trials: int | None = None, confidence: float = 0.95) -> Result:
        """Play the strongest adversary against the whole run, for a lower bound; kept in ``result_``.

        Nothing private is read: :func:`ostraka.audits.audit_run` with this fit's mechanism, number of
        answers and teachers.

        Parameters
        ----------
        trials : int, optional
            Runs to simulate in each world. None: what takes a second or two.
        confidence : float in (0, 1)

        Returns
        -------
        Result
            ``lower`` has epsilon at the run's delta, and where it comes from.
        """
        check_is_fitted(self, "student_")
        self.result_ = with_audit(self, trials=trials, confidence=confidence)
        return self.result_

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # noise has no seed
        tags.classifier_tags.poor_score = True  # so few rows as scikit-learn's checks have drown in it
        both = (self.estimator, self.student)
        tags.input_tags.allow_nan = all(
            hasattr(model, "fit") and get_tags(model).input_tags.allow_nan for model in both
        )
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        for name in _STAYS:
            state.pop(name, None)
        if "result_" in state:
            state["result_"] = state["result_"].public()
        return state

    def _validated(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        if y is None:
            raise ValueError("PATEClassifier requires y to be passed, but the target y is None")
        X = self._queries(X, reset=True)
        y = column_or_1d(y, warn=True, dtype=None)
        if len(y) != X.shape[0]:
            raise ValueError(f"y must have one label for each of {X.shape[0]} rows, got {len(y)}")
        check_classification_targets(y)
        if len(np.unique(y)) < 2:
            raise ValueError(
                "y must hold two classes or more, but holds one class only: is it the right column?"
            )
        return X, y

    def _queries(self, X: Any, *, reset: bool = False) -> Any:
        """A data frame as it came, anything else as numbers."""
        frame = hasattr(X, "iloc")
        finite = "allow-nan" if get_tags(self).input_tags.allow_nan else True
        validated = validate_data(self, X, reset=reset, skip_check_array=frame, ensure_all_finite=finite)
        return X if frame else validated

    def _teachers(self, data: Data, plan: Plan, seed: int) -> TeacherEnsemble:
        estimator = self.estimator
        if estimator is None:
            wide = data.X.shape[1] >= len(data.y) // plan.n_teachers
            estimator = KNeighborsClassifier(1) if wide else DecisionTreeClassifier(min_samples_leaf=3)
        return TeacherEnsemble(
            estimator,
            n_teachers=plan.n_teachers,
            engine=self.engine,
            n_jobs=self.n_jobs,
            random_state=seed,
            progress=self.progress,
        )

    def _questions(
        self, data: Data, plan: Plan, seeds: Seeds, here: Session, teachers: TeacherEnsemble
    ) -> Questions:
        """What will be asked; its key is the same for the same questions to the same teachers."""
        told = (here.manifest.sha256, repr(plan), seeds, self.asks, self.student, teachers.estimator)
        key = content(*told, np.asarray(data.public))
        return Questions(
            public=data.public,
            plan=plan,
            ledger=here.ledger,
            key=key,
            student=self._student(seeds.student, asking=True),
            n_classes=len(data.classes(self.classes)),
            asks=self.asks,
            seed=seeds.asking,
            tell=self._tell,
            consistent=same_questions(self.consistent, data.public, path=here.ledger.path, teachers=key),
        )

    def _student(self, seed: int, *, asking: bool = False) -> Distilled:
        """What learns in the end; while asking, "auto" is not worth its time."""
        if isinstance(self.student, Distilled):
            student: Distilled = clone(self.student)
            return student
        kind = "auto" if self.student is None else self.student
        return Distilled("spreading" if asking and kind == "auto" else kind, random_state=seed)

    def _rehearse(self, teachers: TeacherEnsemble, data: Data, n_classes: int) -> None:
        """Let wrong settings show on public rows with made-up labels, before anything is paid for."""
        teachers.rehearse(data.public, n_classes=n_classes, n_rows=len(data.y) // teachers.n_teachers)
        few = _safe_indexing(data.public, np.arange(min(data.public.shape[0], 10 * n_classes)))
        try:
            self._student(0, asking=True).fit(few, np.arange(few.shape[0]) % n_classes)
        except Exception as error:
            raise ValueError(
                f"student {self.student!r} cannot learn; on public rows with made-up labels it says: {error}"
            ) from error

    def _tell(self, stage: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(stage, done, total)
