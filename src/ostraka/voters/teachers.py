"""Teachers: one estimator for each shard of private rows, and their votes on public rows.

Torch networks are trained in stacks, with predictions in one pass.
"""

from __future__ import annotations

import os
import sys
import warnings
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ostraka.core.private import Adjacency, Private
from ostraka.core.randomness import seed_of
from ostraka.data.labels import CLASSES_FROM_Y, Labels
from ostraka.data.parquet import ParquetRows, opened
from ostraka.data.table import rows, selected
from ostraka.data.units import Manifest, deal
from ostraka.voters.voting import (
    Predictions,
    Shard,
    Teacher,
    count_votes,
    dry_run,
    spread,
    train,
    train_where_they_lie,
    vote,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka.networks import TorchClassifier


@dataclass(eq=False, repr=False)
class TeacherEnsemble(BaseEstimator):
    """Teachers that are each trained on one shard of the private rows, and that vote on public rows.

    Parameters
    ----------
    estimator : scikit-learn classifier, TorchClassifier or torch.nn.Module
        Public. Cloned for each teacher. A clone sees only its shard, in which the classes are numbered
        from 0. Torch networks train in stacks, with the same result as alone (docs/torch-teachers.md).
    n_teachers : int, default 250
        Public.
    engine : str, default "joblib"
        ``"joblib"`` (this process, and the other cores when that pays), ``"ray"``, ``"dask"``
        (the cluster in use, otherwise a local one), or any back end that joblib knows.
    n_jobs : int, optional
        None: all cores of the machine or the cluster. Votes do not depend on it, nor on ``engine``.
        Torch networks ignore both: they train in this process, on their ``device`` and ``n_threads``.
    random_state : int, numpy.random.RandomState or None
        Seeds the teachers' training, never noise. Each teacher gets its own seed.
    progress : callable(stage: str, done: int, total: int), optional
        Called with the stages ``"shards"``, ``"teachers"`` and ``"votes"``.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Public. Column k of the votes counts ``classes_[k]``.
    manifest_ : Manifest
        Private. Which teacher was trained on which rows.
    unit_ : str
        Public. What is protected: ``"row"`` or ``"person"``.
    teachers_ : list
        Private: trained on private rows, without noise.
    notes_ : list of str
        Public. Remarks that belong to every result.

    Guarantees
    ----------
    One unit's data changes at most one teacher, and so at most one vote in each query. A teacher that
    fails, and one whose shard has a single class, also vote. Warnings and error texts of teachers are
    suppressed.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_iris(return_X_y=True)
    >>> ensemble = TeacherEnsemble(GaussianNB(), n_teachers=10).fit(X[::2], y[::2], classes=[0, 1, 2])
    >>> ensemble.vote(X[1::2])
    Private(shape=(75, 3), unit='row')
    """

    estimator: Any
    _: KW_ONLY
    n_teachers: int = 250
    engine: str = "joblib"
    n_jobs: int | None = None
    random_state: int | np.random.RandomState | None = None
    progress: Callable[[str, int, int], object] | None = None

    def fit(
        self, X: Any, y: Any, groups: Any = None, *, classes: Any = None, manifest: Manifest | None = None
    ) -> Self:
        """Partition the rows, and train every teacher on its shard.

        Parameters
        ----------
        X : array, sparse matrix or data frame, shape (n_rows, n_features); or path
            Private. Of a path, a Parquet file or a folder of them, only labels and people are read here.
            Each worker reads the rows of its own shards, by row group; all other columns must be numbers.
        y : array of shape (n_rows,)
            Private. With a path, the name of the column.
        groups : array of shape (n_rows,), optional
            Private. Whom each row belongs to; the protected unit is then the person. With a path, the
            name of the column.
        classes : array of shape (n_classes,), optional
            Public. Every class there may be. None: the labels' own, and ``notes_`` says so.
        manifest : Manifest, optional
            A partition made before. None: a new one, with a key from the operating system.

        Raises
        ------
        TypeError
            What is no estimator, which every teacher would fail with in silence.
        ValueError
            Wrong shapes, fewer units than teachers, an undeclared class, missing values that the
            estimator does not accept, or a manifest of other data.
        """
        network = as_network(self.estimator)
        if network is None and (isinstance(self.estimator, type) or not hasattr(self.estimator, "fit")):
            raise TypeError(f"estimator must be a classifier or a torch module, got {self.estimator!r}")
        if isinstance(X, str | os.PathLike):
            X, y, groups = opened(Path(X), y, groups)
        if not isinstance(X, ParquetRows):
            X = rows(X, network or self.estimator, single=network is not None)
        elif network is not None:
            raise ValueError("networks train in this process: X must be an array, got Parquet files")
        self.notes_ = [] if classes is not None else [CLASSES_FROM_Y]
        labels = Labels.of(y, classes, n_rows=X.shape[0], least=2)
        self.classes_, codes = labels.classes, labels.encode(y)
        self.n_features_in_ = X.shape[1]
        if network is not None:
            seeded = isinstance(self.random_state, int | np.integer)
            if network.checkpoint is not None and not (seeded and manifest is not None):
                raise ValueError(
                    "checkpoint needs an integer random_state and a manifest: without them seeds and shards "
                    "are drawn anew each time, and no training could continue from the files"
                )
        units = len(codes) if groups is None else groups
        self.manifest_ = deal(units, n_rows=len(codes), n_teachers=self.n_teachers, manifest=manifest)
        self.unit_ = self.manifest_.unit
        self._report("shards", 1, 1)
        stored = isinstance(X, ParquetRows)
        seeds = np.random.SeedSequence(seed_of(self.random_state)).spawn(self.n_teachers)
        shards = [
            Shard(
                rows.astype(np.min_scalar_type(len(codes))) if stored else selected(X, rows),
                codes[rows],
                seed,
                number % len(self.classes_),
            )
            for number, (rows, seed) in enumerate(zip(self.manifest_.rows(), seeds, strict=True))
        ]
        on_progress = partial(self._report, "teachers")
        if stored:
            place: dict[str, Any] = {"engine": self.engine, "n_jobs": self.n_jobs}
            self.teachers_ = train_where_they_lie(self.estimator, X, shards, **place, on_progress=on_progress)
        elif network is None:
            self.teachers_ = self._spread(partial(train, self.estimator), shards, "teachers")
        else:
            self.teachers_ = train_networks(
                network, shards, n_classes=len(self.classes_), on_progress=on_progress
            )
        self._failed = np.array([teacher.failed for teacher in self.teachers_])
        self._warn()
        return self

    def predictions(self, X: Any) -> np.ndarray:
        """Each teacher's class indices, **not protected**: for the owner only.

        Parameters
        ----------
        X : array, sparse matrix or data frame, shape (n_queries, n_features)
            Public.

        Returns
        -------
        integer array, shape (n_teachers, n_queries)
            Private, as input of :func:`~ostraka.count_votes`.

        Raises
        ------
        ValueError
            Other columns than in training, or missing values that the estimator does not accept.
        """
        check_is_fitted(self, "teachers_")
        network = as_network(self.estimator)
        X = rows(X, network or self.estimator, single=network is not None)
        if X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {X.shape[1]} features, but the teachers were trained on {self.n_features_in_}"
            )
        n_classes = len(self.classes_)
        if network is None:
            predictions = self._spread(partial(vote, X, n_classes), self.teachers_, "votes")
        else:
            on_progress = partial(self._report, "votes")
            predictions = predict(self.teachers_, X, n_classes=n_classes, on_progress=on_progress)
        failed = np.array([ballots.failed for ballots in predictions])
        if (failed > self._failed).any():
            self._failed |= failed
            self._warn()
        return np.array([ballots.codes for ballots in predictions])

    def vote(self, X: Any) -> Private:
        """Every teacher votes once on every row.

        Parameters
        ----------
        X : array, sparse matrix or data frame, shape (n_queries, n_features)
            Public.

        Returns
        -------
        Private of shape (n_queries, n_classes), in votes
            One ballot for each unit, as :func:`ostraka.release` takes them.
        """
        predictions = self.predictions(X)
        counts = count_votes(predictions, n_classes=len(self.classes_))
        return Private(counts, Adjacency.one_ballot(unit=self.unit_))

    def dry_run(self, X: Any, *, n_classes: int, n_rows: int) -> None:
        """Train and ask one teacher on public rows with made-up labels, so that wrong settings raise.

        Private teachers never raise: with a wrong setting their votes would be useless.

        Parameters
        ----------
        X : array, sparse matrix or data frame
            Public rows, with the columns of the private rows.
        n_classes, n_rows : int
            Public. Number of classes, and of rows in a shard.

        Raises
        ------
        ValueError
            The estimator raised. The message contains nothing private.
        """
        network = as_network(self.estimator)
        teacher = network or self.estimator
        X = rows(X, teacher, single=network is not None)
        numbers = np.arange(max(n_rows, 10 * n_classes))
        sample = selected(X, numbers % X.shape[0])
        try:
            dry_run(teacher, sample, numbers % n_classes)
        except Exception as error:
            raise ValueError(
                f"{self.estimator!r} cannot be trained; on public rows with made-up labels it raises: {error}"
            ) from error

    def restore(self, teachers: list[Any], *, classes: np.ndarray, n_features: int, unit: str) -> Self:
        """Take teachers that were trained before, instead of fitting. :class:`SavedTeachers` uses this.

        Parameters
        ----------
        teachers : list
            Private. ``teachers_`` of a fitted ensemble, all of them.
        classes, n_features, unit
            Public. Its ``classes_``, ``n_features_in_`` and ``unit_``.

        Raises
        ------
        ValueError
            Their number is not ``n_teachers``.
        """
        if len(teachers) != self.n_teachers:
            raise ValueError(f"teachers must be {self.n_teachers}, got {len(teachers)}")
        self.notes_ = []
        self.teachers_, self.classes_, self.n_features_in_, self.unit_ = teachers, classes, n_features, unit
        self._failed = np.array([teacher.failed for teacher in teachers])
        return self

    def count_failed(self) -> int:
        """The number of teachers that could not be trained or could not vote, **not protected**.

        Returns
        -------
        int
            Private: for the owner only. Their ballots are a class fixed by the teacher's number.
        """
        check_is_fitted(self, "teachers_")
        return int(self._failed.sum())

    def _spread(self, work: Callable[[Sequence[Any]], list[Any]], items: list[Any], stage: str) -> list[Any]:
        return spread(
            work, items, engine=self.engine, n_jobs=self.n_jobs, on_progress=partial(self._report, stage)
        )

    def _report(self, stage: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(stage, done, total)

    def _warn(self) -> None:
        if self._failed.any():
            warnings.warn(
                "Some teachers failed and vote a class fixed by number. This is private: do not publish it. "
                "count_failed() says how many. To see why, train one on a shard by hand.",
                stacklevel=3,
            )


def as_network(estimator: Any) -> TorchClassifier | None:
    """The estimator as a network: itself, or a torch module with default settings; None for others."""
    from ostraka.networks import TorchClassifier  # noqa: PLC0415

    if type(estimator) is TorchClassifier:  # which imports torch when it is fitted
        return estimator
    torch = sys.modules.get("torch")  # imported already if the estimator is a module
    return TorchClassifier(estimator) if torch and isinstance(estimator, torch.nn.Module) else None


def train_networks(
    network: TorchClassifier,
    shards: Sequence[Shard],
    *,
    n_classes: int,
    on_progress: Callable[[int, int], object],
) -> list[Teacher]:
    """Train a network on each shard, one stack after another."""
    from ostraka.nets import vectorised  # noqa: PLC0415
    from ostraka.nets.stacks import retry_with_half  # noqa: PLC0415
    from ostraka.nets.training import TrainingSet  # noqa: PLC0415

    plan = vectorised.plan(network, n_features=shards[0].X.shape[1], n_classes=n_classes)
    teachers: list[Teacher] = []

    def continue_with(size: int) -> None:
        while len(teachers) < len(shards):
            begin = len(teachers)
            part = shards[begin : begin + size]

            def as_teachers(epoch: int, epochs: int, begin: int = begin, many: int = len(part)) -> None:
                on_progress(begin + many * epoch // epochs, len(shards))

            training_sets = [
                # the random_state that a clone of the network gets if it is trained separately
                TrainingSet.of(
                    _dense(shard.X), shard.codes, random_state=int(shard.seed.generate_state(1)[0] >> 1)
                )
                for shard in part
            ]
            models = vectorised.train_networks(
                plan, training_sets, folder=network.checkpoint, first=begin, on_progress=as_teachers
            )
            for shard, model in zip(part, models, strict=True):
                present = np.unique(shard.codes)  # one class needs no network
                teachers.append(
                    Teacher(model if len(present) > 1 else None, present, shard.seed, shard.fallback)
                )
            on_progress(len(teachers), len(shards))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        largest = min(plan.size, len(shards))
        retry_with_half(continue_with, -(-len(shards) // -(-len(shards) // largest)))  # as equal as possible
    return teachers


def predict(
    teachers: Sequence[Teacher], X: Any, *, n_classes: int, on_progress: Callable[[int, int], object]
) -> list[Predictions]:
    """Every teacher's predictions in one pass: its fallback where a logit is not finite."""
    from ostraka.nets.stacks import predict_classes  # noqa: PLC0415

    X = _dense(X)
    plans = [teacher.model.plan for teacher in teachers if teacher.model is not None]
    ballots = np.full((len(teachers), len(X)), -1)
    if plans:
        ballots = predict_classes(
            plans[0], [teacher.model for teacher in teachers], X, on_progress=on_progress
        )
    cast = []
    for teacher, mine in zip(teachers, ballots, strict=True):
        if teacher.model is None:
            codes, failed = teacher.codes(X), teacher.failed
        else:
            codes, failed = np.where(mine < 0, teacher.fallback, mine), bool((mine < 0).any())
        cast.append(Predictions(codes.astype(np.min_scalar_type(n_classes)), failed))
    on_progress(len(teachers), len(teachers))
    return cast


def _dense(X: Any) -> np.ndarray:
    dense: np.ndarray = X.toarray() if scipy.sparse.issparse(X) else X
    return dense
