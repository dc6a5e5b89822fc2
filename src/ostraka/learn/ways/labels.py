"""PATE-FM: the features are public, each label is private. Teachers and student train by FixMatch."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import clone

from ostraka.core.door import release
from ostraka.core.mechanisms.law import ABSTAIN
from ostraka.learn.students.fixmatch import FixMatch, default_network
from ostraka.learn.ways.argmax import Argmax
from ostraka.learn.ways.plan import LabelPlan
from ostraka.learn.ways.response import FEATURES, LabelEstimator

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from ostraka.core.ledger.ledger import Ledger
    from ostraka.core.mechanisms.law import Mechanism
    from ostraka.core.mechanisms.screen import Threshold
    from ostraka.core.private import Private
    from ostraka.data.units import Manifest
    from ostraka.learn.session import Data, Seeds, Session
    from ostraka.learn.ways.plan import Facts
    from ostraka.voters.teachers import TeacherEnsemble

_PARTITION = "The number of labels, and which shard each lies in, are treated as public."


@dataclass(eq=False, repr=False)
class PATEFM(LabelEstimator):
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

    estimator: FixMatch | None = None
    _: KW_ONLY
    student: FixMatch | None = None
    n_teachers: int = 20
    mechanism: Mechanism | None = None
    screen: Threshold | None = None
    n_answers: int | None = None
    n_queries: int | None = None
    epsilon: float = 2.0
    delta: float = 1e-5
    classes: Any = None
    ledger: Ledger | str | os.PathLike[str] | None = None
    manifest: Manifest | str | os.PathLike[str] | None = None
    engine: str = "joblib"
    n_jobs: int | None = None
    random_state: int | np.random.RandomState | None = None
    progress: Callable[[str, int, int], object] | None = None

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
        for name in ("estimator", "student"):
            if not isinstance(getattr(self, name), FixMatch | None):
                raise TypeError(f"{name} must be a FixMatch, got {type(getattr(self, name)).__name__}")
        return super().fit(X, y)

    def _planned(self, facts: Facts) -> Labels:
        return Labels(plan=LabelPlan.of(self, facts))


class _Shared(np.ndarray):
    """Public rows that clones of an estimator share instead of copying."""

    def __deepcopy__(self, _memo: object) -> Self:
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels(Argmax):
    """FixMatch as student, and as teachers of disjoint shards of the labels and all features."""

    def teacher(self, model: Any, data: Data) -> Any:
        """FixMatch on a shard's labels and all features, which the teachers share."""
        teacher = FixMatch() if model.estimator is None else clone(model.estimator)
        network = default_network() if teacher.network is None else teacher.network
        crowd = model.n_jobs != 1 and network.n_threads is None
        network.set_params(checkpoint=None, progress=None, n_threads=1 if crowd else network.n_threads)
        return teacher.set_params(network=network, unlabelled=data.X.view(_Shared))

    def student(self, model: Any, seed: int, *, asking: bool = False) -> Any:  # noqa: ARG002
        """FixMatch on the answers and all features."""
        student = clone(model.student or model.estimator or FixMatch())
        network = default_network() if student.network is None else student.network
        return student.set_params(network=network.set_params(random_state=seed), unlabelled=None)

    def settings(self, model: Any, teachers: TeacherEnsemble) -> tuple[Any, ...]:  # noqa: ARG002
        """The teacher without settings of speed, so that a run can continue on another machine."""
        teacher = clone(teachers.estimator)
        if teacher.network is not None:
            teacher.network.set_params(n_threads=None)
        return (teacher,)

    def rehearse(self, model: Any, data: Data, teachers: TeacherEnsemble, n_classes: int) -> None:
        """Try training, accounting and recording on made-up labels and votes, before any charge."""
        self.try_accounting(n_classes)
        few = data.X[: 10 * n_classes]
        for teacher in (teachers.estimator, self.student(model, 0)):
            short = clone(teacher.network).set_params(epochs=1, checkpoint=None, progress=None)
            clone(teacher).set_params(network=short, unlabelled=few).fit(few, np.arange(len(few)) % n_classes)

    def ask(
        self, model: Any, data: Data, seeds: Seeds, teachers: TeacherEnsemble, *, session: Session, key: str
    ) -> tuple[np.ndarray, np.ndarray, Private]:
        """Algorithm 2: ask about rows at random until there are enough answers, or no queries are left."""
        plan, n_answers = self.plan, self.plan.n_answers
        order = np.random.default_rng(seeds.asking).permutation(len(data.X))[: plan.n_queries]
        votes = teachers.vote(data.X[order]).with_adjacency(unit="label")
        labels, done, missing = np.full(len(data.X), ABSTAIN), 0, n_answers
        while missing and done < len(order):
            # asking about as many as are missing cannot give too many: the same law as one at a time
            batch = slice(done, min(done + missing, len(order)))
            name = f"{key}/answers/{done}"
            labels[order[batch]] = release(plan.mechanism, votes[batch], ledger=session.ledger, key=name)
            done, missing = batch.stop, n_answers - int((labels != ABSTAIN).sum())
            model._tell("answers", n_answers - missing, n_answers)  # noqa: SLF001
        return labels, order[:done], votes[:done]

    def facts(self, model: Any, data: Data, teachers: TeacherEnsemble, student: Any) -> dict[str, Any]:  # noqa: ARG002
        """How the record names what voted and learned, and what is not protected."""
        return {
            "ensemble": teachers,
            "student_name": "FixMatch",
            "teacher": "FixMatch",
            "asks": "random",
            "noise": "ChaCha20 keyed by the operating system",
            "notes": (FEATURES, *teachers.notes_, _PARTITION),
            "predicted": None,
        }
