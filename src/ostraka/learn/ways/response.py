"""The way of label privacy without teachers: each label answers once, and a network learns from that."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted, validate_data

from ostraka.core import check
from ostraka.core.mechanisms.response import PriorResponse, RandomizedResponse
from ostraka.core.private import Adjacency, Private
from ostraka.core.randomness import os_keyed
from ostraka.data.guards import row_digests
from ostraka.learn.classifier import FittedClassifier
from ostraka.learn.run import Run, with_accuracies
from ostraka.learn.session import Data, Seeds, begin, labels_of
from ostraka.learn.ways.plan import Facts, Planned, Way
from ostraka.networks import TorchClassifier

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from ostraka.audit.bound import Finding
    from ostraka.core.ledger.ledger import Ledger
    from ostraka.core.result import Result
    from ostraka.data.units import Manifest
    from ostraka.learn.run import Owned
    from ostraka.learn.session import Session

METHODS = ("alibi", "lp-mst", "response")
FEATURES = "All features of all rows are public: they are not protected, and neither is that a row is there."
_NUMBER = "The number of labels is treated as public."
_STEPS, _BATCH = 2000, 64  # of a network that is not given
_FEWEST, _MOST = 10, 100  # epochs
_TRIALS = 20_000  # of the audit, in each world
_END, _DOWN = 1 - 1e-6, 1 - 1e-9  # against rounding


def network_for(n_rows: int, *, image_shape: tuple[int, int] | None = None, seed: int = 0) -> TorchClassifier:
    """A small network for so many public rows: convolutions for images, else a perceptron.

    Whatever it is, it can be handed over as a model of scikit-learn.

    >>> network_for(1500).epochs, network_for(60_000).epochs
    (86, 10)
    """
    module: Any = "perceptron"
    if image_shape is not None:
        from ostraka.nets.generative import strided  # noqa: PLC0415  (imports torch)

        module = partial(strided, shape=(1, *image_shape))
    return TorchClassifier(
        module,
        epochs=min(_MOST, max(_FEWEST, _STEPS // max(1, n_rows // _BATCH))),
        batch_size=_BATCH,
        learning_rate=3e-3,
        schedule="cosine",
        random_state=seed,
    )


class LabelEstimator(FittedClassifier):
    """What classifiers of private labels share: all features are public, and one label is the unit."""

    classes: Any
    random_state: int | np.random.RandomState | None

    epsilon: float
    delta: float

    def plan(self, *, n_rows: int, n_classes: int) -> Any:
        """The plan of ``fit`` for these numbers of rows and classes; no data is read.

        Raises
        ------
        BudgetExceeded
            (epsilon, delta) is too small for it.
        ValueError
            delta >= 1 / n_rows, or a number out of range.
        """
        return self._way(n_rows, n_classes).plan

    def fit(self, X: Any, y: Any) -> Self:
        """Learn: ask the labels and pay, then train on the answers and all features.

        An interrupted fit that is repeated with the same rows, settings, integer ``random_state``,
        manifest and ledger file pays for no answer twice.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
            Public.
        y : array of shape (n_rows,)
            Private.
        """
        X = validate_data(self, X, dtype=np.float32)
        y = labels_of(y, n_rows=len(X), declared=self.classes)
        data = Data(X, y, None, X, None)
        way = self._way(len(y), len(data.classes(self.classes)))
        self._session = begin(self, data, way.plan, digests=row_digests(X))
        return self._finish(way.learn(self, data, Seeds.of(self.random_state), self._session))

    def evaluate(self, X: Any, y: Any) -> Result:
        """Measure on rows whose labels may be known; also kept in ``result_``.

        Parameters
        ----------
        X, y : arrays
            Rows, and their true labels, which are not protected.

        Returns
        -------
        Result
            ``utility`` has the student's accuracy; of teachers, ``owner["utility"]`` that of their
            plurality and of the mean teacher, as long as this estimator still has them.
        """
        check_is_fitted(self, "student_")
        self.result_ = with_accuracies(self._run, self.result_, np.asarray(X), np.asarray(y))
        return self.result_

    def _way(self, n_rows: int, n_classes: int) -> Way:
        """The way, planned for these numbers."""
        sizes: dict[str, Any] = {"n_units": n_rows, "n_classes": n_classes, "grouped": False}
        return self._planned(Facts(**sizes, epsilon=self.epsilon, delta=self.delta))

    def _planned(self, facts: Facts) -> Way:
        raise NotImplementedError


@dataclass(kw_only=True, eq=False, repr=False)
class LabelClassifier(LabelEstimator):
    """A classifier from rows with public features and private labels, each of which is asked once.

    The labels are released in one go, each with noise of its own, for the price of one. A network learns from
    the answers, whose noise it knows.

    Parameters
    ----------
    method : {"alibi", "lp-mst", "response"}
        ``"alibi"``: every training step corrects the answers by Bayes' rule
        (:class:`~ostraka.learn.students.ALIBI`). ``"lp-mst"``: in two stages, the second with a prior from
        the first (:class:`~ostraka.learn.students.MultiStage`). ``"response"``: answers of randomised
        response, taken as labels.
    network : TorchClassifier, optional
        None: a small perceptron, trained for as long as suits the number of rows.
    epsilon : float
        The price of all labels together, in nats.
    delta : float, default 1e-5
        At which the ledger reports; the answers themselves are ``epsilon``-DP.
    classes : array, optional
        Every class there may be, which is then no secret of the labels.
    ledger, manifest, progress
        As in :class:`~ostraka.PATEClassifier`.
    random_state : int, numpy.random.RandomState or None
        Seeds training. **Never any noise.**

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    student_ : ALIBI or MultiStage
        Public: all that predictions need.
    labels_ : int64 array, shape (n_rows,)
        Public. The class index that the network finds likeliest for each row.
    plan_ : ResponsePlan
    result_ : Result
        The record of the run; ``result_.public()`` is what may be shown.
    ledger_, manifest_, votes_
        For the owner only. They, and the owner's part of ``result_``, are not pickled.

    Raises
    ------
    BudgetExceeded
        The plan does not fit the ledger; nothing was charged or answered.
    ValueError
        Rows, labels or settings that cannot be used; no message shows a label.
    TrainingDiverged
        A loss was not finite. The answers are in the ledger: another fit with it pays nothing more.

    Guarantees
    ----------
    Everything public about a fitted estimator is ``epsilon``-differentially private for one label, replaced
    by any other: it is a function of the answers, the features and the settings. :meth:`evaluate` adds
    accuracies that are not.
    Sources: Malek et al. 2021, arXiv:2106.03408, Algorithm 3; Ghazi et al. 2021, arXiv:2102.06062,
    Algorithm 3.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LabelClassifier(epsilon=4.0, random_state=0).fit(X, y)
    >>> model.result_.settings["unit"], model.result_.upper["epsilon"] <= 4.0, model.score(X, y) > 0.6
    ('label', True, True)
    """

    method: str = "alibi"
    network: TorchClassifier | None = None
    epsilon: float = 2.0
    delta: float = 1e-5
    classes: Any = None
    ledger: Ledger | str | os.PathLike[str] | None = None
    manifest: Manifest | str | os.PathLike[str] | None = None
    random_state: int | np.random.RandomState | None = None
    progress: Callable[[str, int, int], object] | None = None

    def _planned(self, facts: Facts) -> Response:
        return Response(plan=ResponsePlan.of(self, facts))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsePlan(Planned):
    """The plan of one release of all labels, and its cost. All of it is public.

    Attributes
    ----------
    method : {"alibi", "lp-mst", "response"}
    n_units, n_classes : int
    mechanism : a mechanism on labels
        Of stages, the one that each costs at most.
    delta : float
    """

    way: ClassVar[str] = "response"

    method: str
    n_units: int
    n_classes: int
    mechanism: Any
    delta: float

    @classmethod
    def of(cls, model: LabelClassifier, facts: Facts) -> ResponsePlan:
        """The plan of an estimator.

        Raises
        ------
        ValueError
            An unknown method, fewer than two classes, or an epsilon out of range.
        """
        check.one_of(allowed=METHODS, method=model.method)
        n_classes, epsilon = facts.n_classes, facts.epsilon
        if model.method == "alibi":
            from ostraka.learn.students.labels import response_of  # noqa: PLC0415  (imports torch)

            mechanism: Any = response_of("auto", epsilon=epsilon, n_classes=n_classes)
        elif model.method == "lp-mst":
            mechanism = PriorResponse(prior=np.empty((0, n_classes)), epsilon=epsilon)
        else:
            mechanism = RandomizedResponse(n_classes=n_classes, epsilon=epsilon)
        sizes = {"n_units": facts.n_units, "n_classes": n_classes}
        return cls(method=model.method, mechanism=mechanism, delta=facts.delta, **sizes)

    @property
    def n_teachers(self) -> int:  # type: ignore[override]
        """One for each label: it speaks for itself."""
        return self.n_units

    @property
    def n_answers(self) -> int:  # type: ignore[override]
        """All labels are one use, since one unit owns one label."""
        return 1

    @property
    def sizes(self) -> dict[str, Any]:
        """The method, for the record."""
        return {"method": self.method}


@dataclass(frozen=True, slots=True, kw_only=True)
class Response(Way):
    """Each label is asked once; a network learns from all rows and the answers."""

    accountant: ClassVar[str] = "The exact divergence of two answers to two labels"
    advice: ClassVar[str] = (
        "Type a larger --epsilon, or --method pate-fm, which needs few labels and many rows"
    )
    stages: ClassVar[dict[str, str]] = {"votes": "labels read", "answers": "labels answered"}

    def learn(self, model: Any, data: Data, seeds: Seeds, session: Session) -> Run:
        """Release the labels, and learn from the answers."""
        from ostraka.learn.students.labels import ALIBI, MultiStage  # noqa: PLC0415  (imports torch)

        plan, classes = self.plan, data.classes(model.classes)
        network = network_for(len(data.y)) if model.network is None else model.network
        if not isinstance(network, TorchClassifier):
            raise TypeError(f"network must be a TorchClassifier, got {type(network).__name__}")
        network = clone(network).set_params(random_state=seeds.student)
        asking: dict[str, Any] = {"ledger": session.ledger, "key": session.key(data, repr(plan), seeds)}
        student: Any
        if plan.method == "alibi":
            student = ALIBI(network, mechanism=plan.mechanism, **asking)
        else:
            shares = (1.0,) if plan.method == "response" else MultiStage.shares
            student = MultiStage(network, epsilon=model.epsilon, shares=shares, **asking)
        model._tell("votes", 1, 1)  # noqa: SLF001  (same package)
        start = time.monotonic()
        student.fit(data.X, data.y, classes=classes)
        seconds = {"student": time.monotonic() - start}
        for stage in ("answers", "student"):
            model._tell(stage, 1, 1)  # noqa: SLF001
        student.set_params(ledger=None)  # what is saved holds no ledger
        labels = student.predict_proba(data.X).argmax(axis=1)
        return Run.of(
            model,
            data,
            session,
            plan=plan,
            classes=classes,
            student=student,
            student_name=type(student).__name__,
            teacher="every label, for itself",
            labels=labels,
            notes=(FEATURES, _NUMBER),
            predicted=classes[labels],
            votes=Private(np.searchsorted(classes, data.y), Adjacency.one_label()),
            seconds=seconds,
        )

    def record(self, run: Run, owned: Owned) -> dict[str, Any]:  # noqa: ARG002
        """How many labels were answered."""
        return {"utility": {"answered": len(run.labels)}}

    def finding(self, run: Run, *, trials: int | None = None, confidence: float = 0.95, **_: Any) -> Finding:
        """The lower bound of an adversary who knows every other label, from simulated answers to two labels.

        Of stages, it is a label of the first one, whose answer tells as much as any.
        """
        from ostraka.audit.intervals import largest_refuted  # noqa: PLC0415  (half the time of importing this)
        from ostraka.audit.runs import finding_of  # noqa: PLC0415

        plan, n = self.plan, _TRIALS if trials is None else trials
        check.integer(trials=n, least=100)
        mechanism, most = plan.mechanism, plan.mechanism.curve().rdp[-1]
        if plan.method == "lp-mst":
            mechanism = RandomizedResponse(n_classes=len(run.classes), epsilon=mechanism.epsilon)
        rng, counts = os_keyed(), []
        for label in (0, 1):
            labels = Private(np.full(n, label), Adjacency.one_label())
            answers = mechanism.release(labels, rng=rng)
            likelihood = mechanism.log_likelihood(answers)
            ratio = (likelihood[:, 0] - likelihood[:, 1]) / most
            # answers that speak for one label as much as any can, for the other one, and all between
            counts.append(np.array([(ratio > _END).sum(), (abs(ratio) <= _END).sum(), (ratio < -_END).sum()]))
        # an answer that is a label is the true one so often; of Laplace noise, both entries are beyond their
        # ends with chance 1/2 each
        end = math.exp(mechanism.log_likelihood([0])[0, 0]) if answers.ndim == 1 else 0.25
        law = np.array([end, 1 - end * (1 + math.exp(-most)), end * math.exp(-most)])
        return finding_of(
            counts,
            (law, law[::-1]),
            name=repr(mechanism),
            exact=largest_refuted(lambda epsilon: mechanism.delta(epsilon) * _DOWN > plan.delta, limit=700.0),
            claimed=plan.epsilon,
            delta=plan.delta,
            confidence=confidence,
            trials=n,
            note="Two labels of which every other is known",
            trial="release",
            hidden="label",
        )

    def require_hope(self, **_: Any) -> None:
        """Do nothing: what a label tells does not depend on how many there are."""

    def words(self, *, n_units: int, n_public: int, unit: str, teacher: str) -> dict[str, str]:  # noqa: ARG002
        """The method, and the mechanism that every label goes through."""
        return {
            "way": f"{self.plan.method}: each of {n_units:,} labels is asked once, with noise of its own",
            "mechanism": repr(self.plan.mechanism),
            "public": f"all features of all {n_public:,} rows",
        }
