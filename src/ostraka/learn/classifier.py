"""PATEClassifier: a classifier learned from private rows by secret ballot, as one scikit-learn estimator.

:class:`Fitted`, :class:`FittedClassifier` and :class:`FittedRows` are what all estimators of this room share:
they keep a run and its record, predict, audit, hand over and pickle.
"""

from __future__ import annotations

import os
import re
import warnings
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from ostraka.core import check
from ostraka.data import guards
from ostraka.data.parquet import ParquetRows, opened
from ostraka.learn.handover import by_name, exported, plain
from ostraka.learn.run import PRIVATE_ATTRIBUTES, record, with_accuracies, with_audit
from ostraka.learn.session import Seeds, begin, dense, labels_of, split
from ostraka.learn.students.distil import Distilled
from ostraka.learn.ways.choose import choose, resolved, way_of
from ostraka.voters.voting import applied

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sklearn.utils import Tags

    from ostraka.core.consistent import Consistent
    from ostraka.core.ledger.ledger import Ledger
    from ostraka.core.mechanisms.law import Mechanism
    from ostraka.core.mechanisms.screen import Threshold
    from ostraka.core.result import Result
    from ostraka.data.units import Manifest
    from ostraka.learn.run import Run
    from ostraka.learn.session import Data, Session
    from ostraka.learn.ways.plan import Planned


def _can_say_how_sure(model: Any) -> bool:
    """Whether the student of an estimator has probabilities."""
    student = getattr(model, "student_", model.student)
    return student is None or isinstance(student, str) or hasattr(student, "predict_proba")


class Fitted(BaseEstimator):
    """The part that all estimators share. ``_run`` holds the run, ``_session`` keeps its ledger open."""

    progress: Callable[[str, int, int], object] | None
    result_: Result
    student: Any
    student_: Any
    _run: Run
    _session: Session
    _public: ClassVar[tuple[str, ...]] = ("student", "plan", "held_out")

    def predict(self, X: Any) -> np.ndarray:
        """What the student says of each row: its class, or its number."""
        check_is_fitted(self, "student_")
        return np.asarray(self.student_.predict(self._queries(X)))

    def audit(self, *, trials: int | None = None, confidence: float = 0.95) -> Result:
        """Simulate the strongest adversary against the run, for a lower bound; kept in ``result_``.

        Nothing private is read: :func:`ostraka.audit.audit_run` with this fit's mechanism, teachers
        and number of answers (for :class:`~ostraka.learn.PATEFM`, the first ``n_answers`` queries).

        Parameters
        ----------
        trials : int, optional
            Runs to simulate in each world. None: what takes a second or two.
        confidence : float in (0, 1)

        Returns
        -------
        Result
            ``lower`` has epsilon at the run's delta, and where it comes from.

        Raises
        ------
        ValueError
            Too few trials, or a confidence that is none.
        """
        check_is_fitted(self, "student_")
        check.share(confidence=confidence)
        way = way_of(self._run.plan)
        self.result_ = with_audit(self._run, way, self.result_, trials=trials, confidence=confidence)
        return self.result_

    def to_sklearn(self, *, columns: Sequence[str] | None = None, encoder: Any = None) -> Any:
        """The student as a plain scikit-learn model, which loads where this library is not installed.

        Parameters
        ----------
        columns : sequence of str, optional
            Names to select columns by, whatever their order. None: as the student was fitted.
        encoder : fitted ColumnTransformer, optional
            From these columns to the features that this estimator was fitted to.

        Returns
        -------
        scikit-learn estimator
            Public. It predicts what :meth:`predict` does.

        Raises
        ------
        ValueError
            The student is of another library, or this estimator was pickled since.
        """
        check_is_fitted(self, "student_")
        public = None if self._run.owned is None else self._run.owned.public
        if public is None and isinstance(self._run.student, Distilled):
            raise ValueError("to_sklearn needs the public rows: call it before the estimator is pickled")
        model = plain(self._run.student, public, self._run.labels)
        return model if columns is None else by_name(model, public, columns=columns, encoder=encoder)

    def export(self, form: str, path: str | os.PathLike[str] | None = None) -> Any:
        """The student for where people work: it loads and predicts where this library is not installed.

        Parameters
        ----------
        form : {"sklearn", "skops", "onnx", "mlflow"}
            ``"sklearn"``: the model of :meth:`to_sklearn`. ``"skops"`` and ``"onnx"``: a file, without
            code; an ONNX model has an input of shape (n_rows, 1) for each column, by its name in a data
            frame, ``x0``, ``x1``, … in an array.
            ``"mlflow"``: a folder, by ``mlflow.sklearn``, which any of its servers loads.
        path : path, optional
            Where to write. None: the bytes are returned; of ``"mlflow"`` it must be given.

        Returns
        -------
        estimator, bytes or Path
            Public. A classifier has ``predict_proba`` where the student has it.

        Raises
        ------
        ValueError
            No such form, or the student has none in it: the message says why.
        ImportError
            onnx, skl2onnx or mlflow is not installed.
        """
        check_is_fitted(self, "student_")
        public = None if self._run.owned is None else self._run.owned.public
        if form == "onnx" and public is None:
            public = np.zeros((1, self.n_features_in_))
        return exported(self.to_sklearn(), form, None if path is None else Path(path), rows=public)

    def _finish(self, run: Run) -> Self:
        """Set the fitted attributes and make the record."""
        for name in self._public:
            setattr(self, f"{name}_", getattr(run, name))
        for name in PRIVATE_ATTRIBUTES:
            setattr(self, name, getattr(run.owned, name.rstrip("_")))
        self._run, self.result_ = run, record(run, way_of(run.plan))
        return self

    def _queries(self, X: Any) -> Any:
        """The rows as the student takes them."""
        return X

    def _tell(self, stage: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(stage, done, total)

    def __getstate__(self) -> dict[str, Any]:
        """Return the public state, without teachers, votes, ledger and manifest."""
        state: dict[str, Any] = dict(super().__getstate__())
        for name in (*PRIVATE_ATTRIBUTES, "_session"):
            state.pop(name, None)
        if "_run" in state:
            state["_run"], state["result_"] = state["_run"].public(), state["result_"].public()
        return state


class FittedClassifier(ClassifierMixin, Fitted):
    """What classifiers have beside: probabilities, classes, and answers about public rows."""

    _public = ("classes", "student", "plan", "held_out", "labels", "asked")

    @available_if(_can_say_how_sure)
    def predict_proba(self, X: Any) -> np.ndarray:
        """The student's probability of each class, shape (n_rows, n_classes)."""
        check_is_fitted(self, "student_")
        return np.asarray(self.student_.predict_proba(self._queries(X)))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # noise has no seed
        tags.classifier_tags.poor_score = True  # so few rows as scikit-learn's checks have drown in it
        return tags


class FittedRows(Fitted):
    """What estimators of private rows have beside: public rows, which are to be apart from them."""

    holdout: float | None
    allow_overlap: bool
    _stored: ClassVar[tuple[type, ...]] = ()  # kinds of rows that stay in their files

    def _private(self, data: Data) -> np.ndarray:
        """Digests of the private rows, of which no public row is a copy."""
        digests = self._digests(data.X)
        if data.groups is None and guards.seems_repeated(data.X, digests):
            warnings.warn(guards.REPEATED, stacklevel=3)
        if data.held_out is None:
            self._require_apart(digests, data.public, "public rows (X_public)")
        return digests

    def _apart(self, X: Any) -> Any:
        """Rows to measure with: no private ones, as far as this estimator still has their digests."""
        check_is_fitted(self, "student_")
        X = self._queries(X)
        if hasattr(self, "_session"):
            self._require_apart(self._session.digests, X, "rows to measure with")
        return X

    def _queries(self, X: Any, *, reset: bool = False) -> Any:
        """A data frame or rows in files as they came, anything else as a dense array of numbers.

        ``reset``: they are private, so that no message quotes them.
        """
        frame = hasattr(X, "iloc") or isinstance(X, self._stored)
        X = dense(X)
        finite = "allow-nan" if get_tags(self).input_tags.allow_nan else True
        refused: Exception | None = None
        try:
            with np.errstate(invalid="ignore"):  # a sum of very large numbers, which a warning would tell of
                validated = validate_data(
                    self, X, reset=reset, skip_check_array=frame, ensure_all_finite=finite
                )
        except (TypeError, ValueError, OverflowError) as error:
            if not reset or frame:  # of a data frame, only the names of its columns are looked at
                raise
            words = re.split(r":\s|\n", str(error))[0]  # scikit-learn quotes cells behind them
            refused = TypeError(words) if isinstance(error, TypeError) else ValueError(words)
        if refused is not None:
            raise refused
        return X if frame else validated

    def _digests(self, X: Any) -> np.ndarray:
        return guards.row_digests(X, columns=getattr(self, "feature_names_in_", None))

    def _require_apart(self, digests: np.ndarray, X: Any, what: str) -> None:
        if not self.allow_overlap:
            guards.require_apart(digests, self._digests(X), what=what, way_out=guards.WAY_OUT)


_NO_WEIGHTS = (
    "sample_weight is not taken: a private row of weight two would move twice what it may. Leave rows out, "
    "or weight the public rows of a student of your own"
)


@dataclass(eq=False, repr=False)
class PATEClassifier(FittedClassifier, FittedRows):
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
    epsilon : float, optional
        All that this fit may spend, in nats. None: 1, or 2 where teachers answer (``"argmax"``).
    delta : float, optional
        None: that of the ledger, else the smaller of 1e-5 and a tenth of 1 / n_units.
    n_answers : int, optional
        How many public rows to ask about. None: 100, or ten a class if that is more, as far as
        (epsilon, delta) and the number of teachers go; with ``mechanism``, as many as are paid for.
    student : scikit-learn classifier or str, optional
        What learns from the answers: see :class:`~ostraka.learn.students.Distilled`. None: ``"auto"``.
        With ``way="counts"`` also ``"fixmatch"`` (needs torch): what learns from the labels of which the
        posterior is sure. None there: what suits the cells.
    way : {"argmax", "counts", "rounds", "filter", "auto"}, optional
        None: as ``ostraka learn`` chooses. ``"argmax"`` where a setting of teachers or a student is given;
        else ``"counts"`` for images and where ``cells`` are given, and ``"filter"`` for all other rows.
        ``"argmax"``: teachers vote on public rows, one paid answer each. ``"counts"``: every unit casts one
        ballot in all, for a public cell, and one table is paid for. ``"rounds"``: every row casts a ballot in
        each of twelve rounds, for what the model of the rounds before gets wrong (docs/noisy-counts.md).
        ``"filter"``: in each of five rounds every unit adds what the model gets wrong about it, in public
        functions of its columns; Kalman filters read the sums. For tables of any width, with probabilities.
        ``"auto"``: the same without teachers; where ``cells`` or a student are given, what does best on
        public rows with made-up labels; see ``expected_``.
    cells : GraphCells, QuantileCells, FeatureCells or the like, or a list of different ones, optional
        Not fitted. Where ballots go, for ``"counts"`` and ``"rounds"``. ``"rounds"`` takes features of each
        row's own (:class:`~ostraka.voters.rows.FeatureCells`), ``"filter"`` a
        :class:`~ostraka.voters.spectrum.Spectrum`. None for ``"counts"``: bins
        (QuantileCells) for data frames, fewer than 30 columns or columns of different kinds. Other arrays
        (images, embeddings) get features of each row's own where there are 1,000 public rows and enough
        private ones for the noise, else the graph of the public rows. Square images of grey are recognised
        by public rows. Declare images by
        ``GraphCells(image_shape=(8, 8))``. Of a list, the cells that label public rows best where other
        public rows vote with made-up labels (docs/noisy-counts.md says how far to trust that).
    relation : {"replace-one", "zero-out"}
        What is hidden of one unit: that its data is not any other data, or, for ``"counts"`` and with less
        noise, ``"rounds"`` and ``"filter"``, only that it is not left out (:class:`~ostraka.Adjacency`).
    asks : {"least-confident", "random"}
        Which rows to ask about: first typical ones, then those the student is least sure of; or any.
    consistent : bool or Consistent
        Ask one question once: public rows that are the same up to a grid get one label for one
        charge (:class:`~ostraka.core.consistent.Consistent`). True: cells of a thousandth of each
        column's public range, and the secret of the ledger's fits, a file beside that of the ledger.
    classes : array, optional
        Every class there may be, which is then no secret of the labels.
    holdout : float in (0, 1), optional
        Without ``X_public``: the share of units whose rows are given up as public questions. None:
        :meth:`fit` refuses to run without ``X_public``.
    allow_overlap : bool
        Accept public rows, and rows to :meth:`evaluate` with, that are copies of private ones; the
        record says so.
    ledger : Ledger, str or path, optional
        Where to charge. None: in memory. A path: that file, with budget (epsilon, delta) if new. A folder:
        the ledger of this table there, and with an integer ``random_state`` the fit's own, so that the same
        fit goes on and pays for nothing twice.
    manifest : Manifest, str or path, optional
        The partition of the rows, of an earlier fit. A path: read from that file, or made and written
        there, readable by its owner only.
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
    plan_ : Plan, CountsPlan, RoundsPlan or FilterPlan
    way_ : str
        ``"argmax"``, ``"counts"``, ``"rounds"`` or ``"filter"``.
    expected_ : dict of str to float
        Public. By the filter: ``accuracy`` and ``auc`` that the posterior lets expect of new rows, with their
        standard errors. Where there was a choice by trial: mean accuracy of each on public
        rows with made-up labels.
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
    private for one unit of the private rows, replaced by any other or as ``relation`` says (see
    :class:`~ostraka.data.units.Manifest`), by composition over all answers. Given: the numbers of rows
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

    _stored: ClassVar = (ParquetRows,)

    estimator: Any = None
    _: KW_ONLY
    n_teachers: int | str = "auto"
    mechanism: Mechanism | None = None
    screen: Threshold | None = None
    epsilon: float | None = None
    delta: float | None = None
    n_answers: int | None = None
    student: Any = None
    way: str | None = None
    cells: Any = None
    relation: str = "replace-one"
    asks: str = "least-confident"
    consistent: Consistent | bool = False
    classes: Any = None
    holdout: float | None = None
    allow_overlap: bool = False
    ledger: Ledger | str | os.PathLike[str] | None = None
    manifest: Manifest | str | os.PathLike[str] | None = None
    engine: str = "joblib"
    n_jobs: int | None = None
    random_state: int | np.random.RandomState | None = None
    progress: Callable[[str, int, int], object] | None = None

    def plan(
        self, *, n_units: int, n_classes: int, n_public: int, X_public: Any = None, grouped: bool = False
    ) -> Planned:
        """The plan of :meth:`fit` for these numbers of units, classes and public rows; reads no data.

        Parameters
        ----------
        n_units, n_classes, n_public : int
        X_public : array or data frame, optional
            The public rows: needed where ``way`` is not ``"argmax"``.
        grouped : bool
            Whether people with several rows are the units.

        Raises
        ------
        BudgetExceeded
            (epsilon, delta) is too small for it.
        ValueError
            delta >= 1 / n_units, or a number out of range.
        """
        facts = {"n_units": n_units, "n_classes": n_classes, "n_public": n_public, "grouped": grouped}
        X_public = dense(X_public)
        plan: Planned = choose(resolved(self, X_public), X_public, **facts).plan
        return plan

    def fit(self, X: Any, y: Any, X_public: Any = None, groups: Any = None, **others: Any) -> Self:
        """Learn: deal, train, vote, ask and pay, distil.

        An interrupted fit that is repeated with the same data, settings, ``random_state``, manifest
        and ledger file goes on where it stopped, and pays for no answer twice.

        Parameters
        ----------
        X : array or data frame, shape (n_rows, n_features); or path
            Private. Rows of a path, a Parquet file or a folder of them, stay there and are read part by part;
            all columns but those of ``y`` and ``groups`` must be numbers.
        y : array of shape (n_rows,)
            Private. With a path, the name of the column.
        X_public : array or data frame, shape (n_public, n_features), optional
            Public. None: a share ``holdout`` of the units is given up as public questions; their
            labels are not used. With a path it is needed. In a scikit-learn Pipeline, see docs/quickstart.md.
        groups : array of shape (n_rows,), optional
            Private. Whom each row belongs to: then a person is the protected unit, else a row. With a path,
            the name of the column.
        **others
            Refused. Of ``sample_weight``, the message says why: a row of weight two would move twice what is
            paid for.

        Raises
        ------
        BudgetExceeded
            The plan does not fit the ledger; nothing was trained, charged or answered.
        ValueError
            Data or settings that cannot be used; the message names public numbers only.
        """
        if others.get("sample_weight") is not None:
            raise ValueError(_NO_WEIGHTS)
        if names := sorted(set(others) - {"sample_weight"}):
            raise TypeError(f"fit takes X, y, X_public and groups, got {', '.join(names)}")
        check.one_of(allowed=("least-confident", "random"), asks=self.asks)
        guards.require_safe_pipeline(self, public_given=X_public is not None)
        if isinstance(X, str | os.PathLike):
            if X_public is None:
                raise ValueError(f"the rows of {os.fspath(X)} stay there: pass X_public= instead of holdout=")
            X, y, groups = opened(Path(X), y, groups)
        X = self._queries(X, reset=True)
        y = labels_of(y, n_rows=X.shape[0], declared=self.classes)
        seeds = Seeds.of(self.random_state)
        X_public = None if X_public is None else self._queries(X_public)
        data = split(X, y, groups, X_public=X_public, holdout=self.holdout, seed=seeds.holdout)
        digests = self._private(data)
        model = resolved(self, data.public)
        way = choose(
            model,
            data.public,
            n_units=data.n_units,
            n_classes=len(data.classes(self.classes)),
            n_public=data.public.shape[0],
            grouped=groups is not None,
        )
        self.way_ = way.plan.way
        self._session = begin(model, data, way.plan, digests=digests)
        self._finish(way.learn(model, data, seeds, self._session))
        self.expected_ = dict(way.expected or self.result_.utility.get("expected", {}))
        chosen = {"way": self.way_, **({"expected": way.expected} if way.expected else {})}
        self.result_ = replace(self.result_, settings={**self.result_.settings, **chosen})
        return self

    def evaluate(self, X: Any, y: Any, *, X_private: Any = None, y_private: Any = None) -> Result:
        """Measure on rows with known labels that were never asked about; also kept in ``result_``.

        Parameters
        ----------
        X, y : arrays
            Rows that are not protected, and their true labels.
        X_private, y_private : arrays, optional
            The private rows, to train one of the teachers' kind on all of them, for comparison.

        Returns
        -------
        Result
            ``utility`` has the accuracy of the student and of always saying the commonest class,
            balanced accuracy, recall of each class, AUC and calibration error;
            ``owner["utility"]`` what comes from private rows without noise, as long as this
            estimator still has its teachers: the plurality, the mean teacher, the non-private model.

        Raises
        ------
        ValueError
            Rows to measure with are private rows, as far as this estimator still has its digests.
        """
        X = self._apart(X)
        self.result_ = with_accuracies(
            self._run, self.result_, X, np.asarray(y), X_private=X_private, y_private=y_private
        )
        return self.result_

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        models = (self.estimator, self.student)
        may = [hasattr(model, "fit") and get_tags(model).input_tags.allow_nan for model in models]
        tags.input_tags.allow_nan, tags.input_tags.sparse = all(may), True  # made dense
        return tags

    def _digests(self, X: Any) -> np.ndarray:
        """Digests of rows in rising order; of rows in files, made by workers, where the files lie."""
        if isinstance(X, ParquetRows):
            work = partial(guards.block_digests, guards.KEY)
            parts = applied(X, work, engine=self.engine, n_jobs=self.n_jobs)
            digests, start = np.empty(len(X), dtype=np.uint64), 0
            while parts:  # each is free again when it is copied
                part = parts.pop()
                digests[start : start + len(part)] = part
                start += len(part)
            digests.sort()
            return digests
        return super()._digests(X)
