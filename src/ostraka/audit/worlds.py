"""Systems under audit, by the votes that they have with and without a target.

What comes in: data, a row that may be among them, and questions. What goes out: a model of the votes on each
question in both worlds, exact for Private-kNN (:class:`NeighbourWorlds`), and estimated from trainings for
teachers (:class:`TeacherWorlds`); or the votes of trainings themselves (:func:`retrained_votes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import scipy.stats

from ostraka.audit.votes import BallotPool, VoteModel
from ostraka.core import check
from ostraka.core.private import Adjacency, Private

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Learnt = tuple[np.ndarray, np.ndarray]  # rows and their labels
_CHUNK = 100  # queries whose distances to all rows are in memory
_NEVER = 1e-15  # chance below which a row is taken to be out of reach


class Worlds(Protocol):
    """A system under audit, by the votes it has with and without a target.

    One whose answers are independent in each world, as by a fresh sample or a prompt at temperature 0 for
    each, says ``fresh = True``. Others are trained once, and may have ``pool(queries, rows, labels)``, a
    :class:`~ostraka.audit.votes.BallotPool` of the ballots on all queries: how votes hang together.
    """

    def expected(self, queries: np.ndarray) -> np.ndarray:
        """Mean votes without any target, shape (n_queries, n_classes)."""
        ...

    def models(self, queries: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> list[VoteModel]:
        """The votes on query j where row j with label j is the target, or is not there."""
        ...


class NeighbourWorlds:
    """Private-kNN as a system under audit: votes are the labels of the nearest rows of a fresh sample.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
        Distances are Euclidean.
    y : integer array of shape (n_rows,)
        Class indices.
    n_classes, n_neighbours : int
    sampling_rate : float in (0, 1]
        Probability that a row takes part in an answer.

    Raises
    ------
    ValueError
        Before anything is computed: rows that are no finite numbers, labels that are no classes, another
        sampling rate, or not as many rows as neighbours.

    Guarantees
    ----------
    :meth:`models` has the laws that the published model asks for, to 1e-12; :meth:`pairs` draws from the
    system itself. Source: Chadha et al. 2024, arXiv:2402.09403, section 6 and appendix D.3.

    Examples
    --------
    >>> X = np.arange(20.0)[:, None]
    >>> system = NeighbourWorlds(X, np.arange(20) % 2, n_classes=2, n_neighbours=4, sampling_rate=0.5)
    >>> system.expected(np.array([[0.2]])).round(2)
    array([[2.12, 1.88]])
    """

    fresh = True  # every answer has a sample of its own

    def __init__(
        self, X: np.ndarray, y: np.ndarray, *, n_classes: int, n_neighbours: int, sampling_rate: float
    ) -> None:
        check.integer(n_neighbours=n_neighbours, n_classes=n_classes, least=1)
        check.share(one=True, sampling_rate=sampling_rate)
        self._X, self._y = np.asarray(X), np.asarray(y)
        if self._X.ndim != 2 or self._X.dtype.kind not in "fiu" or not np.isfinite(self._X).all():
            raise ValueError(f"X must be finite numbers of shape (n_rows, n_features), got {self._X.shape}")
        if self._y.shape != self._X.shape[:1] or not np.isin(self._y, np.arange(n_classes)).all():
            raise ValueError(f"y must be a class from 0 to {n_classes - 1} for each of {len(self._X)} rows")
        if len(self._y) < n_neighbours:
            raise ValueError(
                f"n_neighbours must be at most the {len(self._y)} rows there are, got {n_neighbours}"
            )
        self._y = self._y.astype(np.int64)
        self._squares = np.einsum("ij,ij->i", self._X, self._X)
        self._n_classes, self._k, self._rate = n_classes, n_neighbours, sampling_rate
        ranks = np.arange(len(self._y))
        # P[fewer than k of the nearer rows take part], times the row's own chance
        self._reached = sampling_rate * scipy.stats.binom.cdf(n_neighbours - 1, ranks, sampling_rate)
        self._last = sampling_rate * scipy.stats.binom.pmf(n_neighbours - 1, ranks, sampling_rate)
        self._enough = min(len(ranks), int((self._reached > _NEVER).sum()) + 1)
        self._cache: tuple[bytes, list[_Near]] | None = None

    def expected(self, queries: np.ndarray) -> np.ndarray:
        """Mean votes without the target, shape (n_queries, n_classes)."""
        return np.array([near.votes for near in self._near(queries)])

    def models(self, queries: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> list[VoteModel]:
        """A model of the votes on each query, where row j with label j is the target of query j."""
        distances = np.square(np.asarray(queries) - rows).sum(axis=1)
        return [
            VoteModel.neighbours(
                near.votes / near.votes.sum(),
                near.last / near.last.sum(),
                n_neighbours=self._k,
                label=int(labels[j]),
                reached=float(
                    self._reached[min(int(np.searchsorted(near.distances, distances[j])), len(self._y) - 1)]
                ),
            )
            for j, near in enumerate(self._near(queries))
        ]

    def pairs(
        self, query: np.ndarray, row: np.ndarray, *, label: int, n_draws: int, rng: np.random.Generator
    ) -> tuple[Private, Private]:
        """Votes with the target and without, drawn from the system: the same rows take part in a pair."""
        [distances] = self._distances(np.asarray(query)[None])
        order = np.argsort(distances, kind="stable")
        rank = int((distances < np.square(query - row).sum()).sum())
        sampled = np.cumsum(rng.geometric(self._rate, size=(n_draws, self._k)), axis=1) - 1
        nobody = self._n_classes
        names = np.append(self._y[order], nobody)[np.minimum(sampled, len(order))]
        without = np.stack([(names == c).sum(axis=1) for c in range(nobody)], axis=1)
        joins = (rng.random(n_draws) < self._rate) & (sampled[:, -1] >= rank)
        ballot = np.eye(nobody + 1, dtype=np.int64)[:, :nobody]
        present = without + joins[:, None] * (ballot[label] - ballot[names[:, -1]])
        return Private(present, Adjacency.one_ballot()), Private(without, Adjacency.one_ballot())

    def _near(self, queries: np.ndarray) -> list[_Near]:
        name = np.ascontiguousarray(queries).tobytes()
        if self._cache is None or self._cache[0] != name:
            cache = []
            for start in range(0, len(queries), _CHUNK):
                for distances in self._distances(np.asarray(queries[start : start + _CHUNK])):
                    near = np.argpartition(distances, self._enough - 1)[: self._enough]
                    near = near[np.argsort(distances[near], kind="stable")]
                    votes, last = (
                        np.bincount(self._y[near], weights=weights[: near.size], minlength=self._n_classes)
                        for weights in (self._reached, self._last)
                    )
                    cache.append(_Near(votes=votes, last=last, distances=distances[near]))
            self._cache = name, cache
        return self._cache[1]

    def _distances(self, queries: np.ndarray) -> np.ndarray:
        """Squared, shape (n_queries, n_rows)."""
        squares = np.einsum("ij,ij->i", queries, queries)
        return np.asarray(self._squares - 2 * queries @ self._X.T + squares[:, None])


class _Near(NamedTuple):
    """Mean votes of one query, the law of its last neighbour's label, and sorted squared distances."""

    votes: np.ndarray
    last: np.ndarray
    distances: np.ndarray


class Training(Protocol):
    """Training of teachers, with fresh randomness in every call.

    Attributes
    ----------
    fixed : bool
        Whether every teacher keeps its rows (parties, as in CaPC); else all rows are dealt anew (PATE).
    n_classes : int
    """

    @property
    def fixed(self) -> bool: ...

    @property
    def n_classes(self) -> int: ...

    def ballots(
        self,
        queries: np.ndarray,
        *,
        learnt: Learnt | None = None,
        teachers: Sequence[int] | None = None,
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Train all teachers or the named ones, and ask each: class indices, shape (n_teachers, n_queries).

        ``learnt``: rows and labels, one for each query; before query j every teacher also learns row j.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Retraining:
    """Any scikit-learn classifier as the teachers of a :class:`Training`.

    Attributes
    ----------
    estimator : classifier
        Cloned for each teacher; its ``random_state``, if it has one, is set anew.
    X : array of shape (n_rows, n_features)
    y : integer array of shape (n_rows,)
        Class indices.
    n_teachers, n_classes : int
    fixed : bool
        Deal the rows once, in their order; else anew in every training.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 2))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> teachers = Retraining(estimator=GaussianNB(), X=X, y=y, n_teachers=6, n_classes=2)
    >>> teachers.ballots(np.array([[3.0, 0.0]]), rng=rng).shape
    (6, 1)
    """

    estimator: Any
    X: np.ndarray
    y: np.ndarray
    n_teachers: int
    n_classes: int
    fixed: bool = False

    def ballots(
        self,
        queries: np.ndarray,
        *,
        learnt: Learnt | None = None,
        teachers: Sequence[int] | None = None,
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Train the teachers, and ask each; see :class:`Training`."""
        order = np.arange(len(self.y)) if self.fixed else rng.permutation(len(self.y))
        seed = int(rng.integers(2**31))
        shards = np.array_split(order, self.n_teachers)
        chosen = range(self.n_teachers) if teachers is None else teachers
        ballots = np.empty((len(chosen), len(queries)), dtype=np.int64)
        group = None
        if learnt is not None:  # queries of one target have one training
            targets = np.column_stack([np.asarray(learnt[0]).reshape(len(queries), -1), learnt[1]])
            group = np.unique(targets, axis=0, return_inverse=True)[1].ravel()
        for votes, place in zip(ballots, chosen, strict=True):
            X, y = self.X[shards[place]], self.y[shards[place]]
            if learnt is None or group is None:
                votes[:] = self._fitted(X, y, seed + place).predict(queries)
                continue
            for number in range(int(group.max()) + 1):
                places = np.flatnonzero(group == number)
                row, label = learnt[0][places[:1]], learnt[1][places[:1]]
                teacher = self._fitted(np.concatenate([X, row]), np.concatenate([y, label]), seed + place)
                votes[places] = teacher.predict(queries[places])
        return ballots

    def _fitted(self, X: np.ndarray, y: np.ndarray, seed: int) -> Any:
        from sklearn.base import clone  # noqa: PLC0415  (heavy)

        teacher = clone(self.estimator)
        if "random_state" in teacher.get_params():
            teacher.set_params(random_state=seed % 2**32)
        return teacher.fit(X, y)


class TeacherWorlds:
    """A :class:`Training` as a system under audit: the law of its ballots, estimated from trainings.

    Parameters
    ----------
    training : Training
    n_trainings : int
        Trainings without a target, and as many with it. Every teacher of these learns the target, by
        itself: its ballot is a draw of the one teacher's whose shard holds it.
    party : int
        Who holds the target, where teachers keep their rows.
    seed : int
        Of the trainings.

    Guarantees
    ----------
    The laws are maximum-likelihood estimates: what is found with them holds for the model, and for the
    real system as far as the model fits it. Source: Chadha et al. 2024, arXiv:2402.09403, section 5.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> teachers = Retraining(estimator=GaussianNB(), X=X, y=y, n_teachers=6, n_classes=2)
    >>> system = TeacherWorlds(teachers, n_trainings=5)
    >>> system.expected(np.array([[3.0, 0.0]]))
    array([[1., 5.]])
    """

    def __init__(self, training: Training, *, n_trainings: int = 100, party: int = 0, seed: int = 0) -> None:
        check.integer(n_trainings=n_trainings, least=1)
        check.integer(party=party, seed=seed)
        self._training, self._n_trainings, self._party, self._seed = training, n_trainings, party, seed
        self._cache: tuple[bytes, np.ndarray] | None = None

    def expected(self, queries: np.ndarray) -> np.ndarray:
        """Mean votes without the target, shape (n_queries, n_classes)."""
        return np.asarray(self._rates(self._without(queries)).sum(axis=0))

    def models(self, queries: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> list[VoteModel]:
        """A model of the votes on each query, where row j with label j is the target of query j."""
        without = self._rates(self._without(queries))
        present = self._rates(self._ballots(queries, (rows, labels)))
        if self._training.fixed:
            target_law = present[0]
            return [
                VoteModel.fixed_parties(without[:, j], target_law[j], party=self._party)
                for j in range(len(queries))
            ]
        base, target_law = without.mean(axis=0), present.mean(axis=0)
        return [
            VoteModel.random_shards(base[j], target_law[j], n_teachers=len(without))
            for j in range(len(queries))
        ]

    def pool(self, queries: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> BallotPool:
        """The ballots of each teacher on all queries together, with the target and without."""
        without, present = self._without(queries), self._ballots(queries, (rows, labels))
        if self._training.fixed:
            others = np.delete(without, self._party, axis=1).swapaxes(0, 1)
            present, absent, n_others = present[:, 0], without[:, self._party], 1
        else:
            absent, n_others = without.reshape(-1, len(queries)), without.shape[1] - 1
            others, present = absent[None], present.reshape(-1, len(queries))
        return BallotPool(
            others=others, each=n_others, present=present, absent=absent, n_classes=self._training.n_classes
        )

    def _without(self, queries: np.ndarray) -> np.ndarray:
        name = np.ascontiguousarray(queries).tobytes()
        if self._cache is None or self._cache[0] != name:
            self._cache = name, self._ballots(queries, None)
        return self._cache[1]

    def _ballots(self, queries: np.ndarray, learnt: Learnt | None) -> np.ndarray:
        """Ballots of all trainings, (n_trainings, n_teachers, n_queries); of a target, its party's alone."""
        rng = np.random.default_rng(self._seed)  # the same with and without: what differs is the target's
        teachers = [self._party] if self._training.fixed and learnt is not None else None
        return np.stack(
            [
                self._training.ballots(queries, learnt=learnt, teachers=teachers, rng=rng)
                for _ in range(self._n_trainings)
            ]
        )

    def _rates(self, ballots: np.ndarray) -> np.ndarray:
        """The frequency of each teacher's vote for each class, shape (n_teachers, n_queries, n_classes)."""
        classes = range(self._training.n_classes)
        return np.stack([(ballots == c).mean(axis=0) for c in classes], axis=-1)


def retrained_votes(
    fit: Callable[[np.ndarray, np.ndarray, int], Any],
    X: np.ndarray,
    y: np.ndarray,
    query: np.ndarray,
    *,
    target: tuple[Any, Any],
    n_trainings: int,
) -> tuple[Private, Private]:
    """Train a voter repeatedly in the worlds with and without a target, and collect its votes on one query.

    Parameters
    ----------
    fit : callable, (X, y, number) -> object with ``vote(X) -> Private``
        Trains on the rows of one world. All its randomness must come from ``number``: both worlds of a
        pair have the same, and then differ in the target only.
    X : array of shape (n_rows, n_features)
    y : array of shape (n_rows,)
        The last row is the unit that differs: its place is the target's in the other world.
    query : array of shape (n_features,)
    target : pair of a row and its label
    n_trainings : int
        Pairs.

    Returns
    -------
    pair of Private, each of shape (n_trainings, n_classes), in votes
        With the target and without, for :func:`votes_lower_bound` with ``paired=True``, or without it where
        the voter cannot keep the rest the same.

    Raises
    ------
    ValueError
        ``n_trainings`` not a positive integer.

    Examples
    --------
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from ostraka import TeacherEnsemble
    >>> from ostraka.voters import partition
    >>> def fit(X, y, number):
    ...     deal = partition(len(y), n_teachers=10, key=number.to_bytes(16, "big"))
    ...     teachers = TeacherEnsemble(KNeighborsClassifier(1), n_teachers=10)
    ...     return teachers.fit(X, y, classes=[0, 1], manifest=deal)
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> with_target, without = retrained_votes(
    ...     fit, X, y, np.array([5.0, 0.0]), target=([5.0, 0.0], 0), n_trainings=3)
    >>> (with_target.open() - without.open()).tolist()
    [[1, -1], [1, -1], [1, -1]]
    """
    check.integer(n_trainings=n_trainings, least=1)
    X, y, row = np.asarray(X), np.asarray(y), np.asarray(target[0])
    worlds = (np.concatenate([X[:-1], row[None]]), np.append(y[:-1], target[1])), (X, y)
    question = np.asarray(query)[None]
    votes: tuple[list[np.ndarray], list[np.ndarray]] = [], []
    for number in range(n_trainings):
        for world_votes, (rows, labels) in zip(votes, worlds, strict=True):
            world_votes.append(fit(rows, labels, number).vote(question).open()[0])
    with_target, without = (Private(np.array(world_votes), Adjacency.one_ballot()) for world_votes in votes)
    return with_target, without
