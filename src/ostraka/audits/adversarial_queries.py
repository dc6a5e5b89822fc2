"""Adversarial queries: the rows an adversary adds to the data, and the questions it asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, get_args

import numpy as np

from ostraka import _check
from ostraka.audits._divergence import of_laws

if TYPE_CHECKING:
    from ostraka.audits.models import VoteModel
    from ostraka.mechanisms.protocols import BallotMechanism

__all__ = ["AdversarialQueries", "Adversary", "Worlds", "adversarial_queries", "mean_leak"]

Adversary = Literal["Nat-AdvQ", "Pois-AdvQ", "Pois-NatQ"]


class Worlds(Protocol):
    """A system under audit, by the votes it has with and without a target."""

    def expected(self, queries: np.ndarray) -> np.ndarray:
        """Mean votes without any target, shape (n_queries, n_classes)."""
        ...

    def models(self, queries: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> list[VoteModel]:
        """The votes on query j where row j with label j is the target, or is not there."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class AdversarialQueries:
    """The rows an adversary adds to the data, and the questions it asks.

    Attributes
    ----------
    queries : array of shape (n_queries, n_features)
    rows, labels : arrays, one target for each query
        Where ``repeated``, each query has its own target, and only the worst is asked, again and again.
        Else all queries are asked once, and the one target is the same in every row.
    repeated : bool
    """

    queries: np.ndarray
    rows: np.ndarray
    labels: np.ndarray
    repeated: bool


def adversarial_queries(
    adversary: Adversary,
    system: Worlds,
    queries: np.ndarray,
    labels: np.ndarray,
    *,
    mechanism: BallotMechanism,
    pool: np.ndarray | None = None,
    n_candidates: int = 20,
    n_rounds: int = 2,
    rng: np.random.Generator,
) -> AdversarialQueries:
    """Choose the target rows and the questions of an adversary.

    Parameters
    ----------
    adversary : {"Nat-AdvQ", "Pois-AdvQ", "Pois-NatQ"}
        A query with its own label, asked again and again; the same with the second most common vote for a
        label; one mislabelled row, and every query asked once.
    system : Worlds
    queries : array of shape (n_queries, n_features)
    labels : integer array of shape (n_queries,)
        Class indices.
    mechanism : ballot mechanism, such as GNMax, LNMax or Threshold
        The candidates of Pois-NatQ are compared by its outcome map.
    pool : array of shape (n_rows, n_features), optional
        Where Pois-NatQ looks for its row; None: the queries.
    n_candidates, n_rounds : int
        Rows tried in a round of Pois-NatQ. The first takes rows of the pool, further rounds blend the best
        few, so that no gradient is needed. One round is the published adversary with a choice.
    rng : numpy.random.Generator

    Returns
    -------
    AdversarialQueries

    Raises
    ------
    ValueError
        Another adversary, or queries and labels that do not match.

    Guarantees
    ----------
    None is needed: a bad choice makes a smaller lower bound. Source: Chadha et al. 2024,
    arXiv:2402.09403, section 4.1 and appendix D.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> from ostraka.audits import NeighbourWorlds
    >>> X = np.arange(20.0)[:, None]
    >>> system = NeighbourWorlds(X, np.arange(20) % 2, n_classes=2, n_neighbours=4, sampling_rate=0.5)
    >>> adversarial_queries("Pois-AdvQ", system, X[:3] + 0.1, np.arange(3) % 2, mechanism=GNMax(sigma=2.0),
    ...       rng=np.random.default_rng(0)).labels
    array([1, 1, 1])
    """
    _check.one_of(adversary=adversary, allowed=get_args(Adversary))
    queries, labels = np.asarray(queries), np.asarray(labels)
    if labels.shape != (len(queries),):
        raise ValueError(f"labels must be one for each of {len(queries)} queries, got shape {labels.shape}")
    if adversary == "Nat-AdvQ":
        return AdversarialQueries(queries=queries, rows=queries, labels=labels, repeated=True)
    if adversary == "Pois-AdvQ":
        return AdversarialQueries(
            queries=queries, rows=queries, labels=_second(system.expected(queries)), repeated=True
        )
    row, label = _search(
        system, queries, pool, mechanism, n_candidates=n_candidates, n_rounds=n_rounds, rng=rng
    )
    return _natural(queries, row, label)


def mean_leak(model: VoteModel, mechanism: BallotMechanism) -> float:
    """Divergence of order 2 between the answers to the mean votes of both worlds: a quick approximation."""
    shared = model.n * model.law + model.fixed + model.parties.sum(axis=0)
    laws = np.exp(mechanism.log_outcomes([shared + w @ model.moves for w in (model.present, model.absent)]))
    return float(of_laws(laws[0], laws[1], np.array([2.0]))[0])


def _search(
    system: Worlds,
    queries: np.ndarray,
    pool: np.ndarray | None,
    mechanism: BallotMechanism,
    *,
    n_candidates: int,
    n_rounds: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, int]:
    """The mislabelled row with the largest mean leak: first rows of the pool, then blends of the best few."""
    _check.integer(n_candidates=n_candidates, n_rounds=n_rounds, least=1)
    rows = queries if pool is None else np.asarray(pool)
    rows = rows[rng.choice(len(rows), size=min(n_candidates, len(rows)), replace=False)]
    labels = _second(system.expected(rows))
    tried: list[tuple[float, np.ndarray, int]] = []
    for _ in range(n_rounds):
        for row, label in zip(rows, labels, strict=True):
            asked = _natural(queries, row, int(label))
            models = system.models(asked.queries, asked.rows, asked.labels)
            tried.append((sum(mean_leak(model, mechanism) for model in models), row, int(label)))
        tried.sort(key=lambda each: -each[0])
        best = tried[:4]
        first = rng.integers(len(best), size=n_candidates)
        second = rng.integers(len(best), size=n_candidates)
        part = rng.uniform(0.0, 1.5, size=n_candidates)  # also beyond the better of the two
        rows = np.stack(
            [best[b][1] + t * (best[a][1] - best[b][1]) for a, b, t in zip(first, second, part, strict=True)]
        )
        labels = np.array([best[a][2] for a in first])
    return tried[0][1], tried[0][2]


def _natural(queries: np.ndarray, row: np.ndarray, label: int) -> AdversarialQueries:
    n = len(queries)
    return AdversarialQueries(
        queries=queries, rows=np.broadcast_to(row, (n, *row.shape)), labels=np.full(n, label), repeated=False
    )


def _second(votes: np.ndarray) -> np.ndarray:
    """The second most common class of each row."""
    return np.argsort(-votes, axis=1, kind="stable")[:, 1]
