"""Evolution: private rows vote for the nearest of public candidates, whose winners are varied."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ostraka.core import check
from ostraka.core.mechanisms.counts import NoisyCounts
from ostraka.core.private import Adjacency
from ostraka.data.nearest import nearest
from ostraka.synth import fitting

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.core.curve import Curve
    from ostraka.core.ledger.ledger import Ledger
    from ostraka.core.private import Private


@dataclass(eq=False, repr=False)
class Evolution(BaseEstimator):
    """A generator of what any public generator can vary: private rows only vote.

    Parameters
    ----------
    candidates : array, or sequence of texts
        Public. The first population.
    vary : callable(candidates, rng) -> as many new ones
        Public. Noise, a model of images, or a function that asks a language model. It sees candidates
        and public random numbers only.
    embed : callable(candidates) -> array of shape (n_candidates, n_columns), optional
        Public. Where candidates are compared with private rows. None: they are rows already.
    n_rounds : int
    epsilon, delta : float
        Public. The price, for one row or one person added or removed.
    random_state : int
        Of what is public.
    name : str, optional
        Public. Stands for ``candidates``, ``vary`` and ``embed`` in the ledger, which knows a fit again by
        its name, its rows and its other settings. None: by what the three are; a function that is defined
        inside another is never the same.

    Attributes
    ----------
    candidates_ : array
        Of the last round. Public.
    votes_ : int64 array
        Noisy votes for each of them. Public.
    mechanism_ : the mechanism that was charged
    result_ : Result

    Guarantees
    ----------
    (epsilon, delta)-DP for one row (with ``groups``: one person) added or removed: a row has one vote in each
    round, and nothing else of it is used.
    Source: Lin et al. 2024, arXiv:2305.15560 (private evolution); its noisy votes on the price of
    :class:`~ostraka.core.mechanisms.NoisyCounts`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal([3.0, -1.0], 0.1, (2000, 2))
    >>> vary = lambda winners, rng: winners + rng.normal(0, 0.5, winners.shape)
    >>> model = Evolution(rng.normal(0, 2, (40, 2)), vary=vary, n_rounds=6, epsilon=1.0).fit(rows, rng=rng)
    >>> np.abs(model.sample(200, random_state=0).mean(axis=0) - [3.0, -1.0]).max() < 0.5
    np.True_
    """

    candidates: Any
    _: KW_ONLY
    vary: Callable[[Any, np.random.Generator], Any]
    embed: Callable[[Any], Any] | None = None
    n_rounds: int = 5
    epsilon: float = 1.0
    delta: float = 1e-5
    random_state: int = 0
    name: str | None = None

    def fit(
        self,
        X: Any,
        *,
        groups: Any = None,
        ledger: Ledger | None = None,
        rng: np.random.Generator | None = None,
    ) -> Evolution:
        """Charge, and let the rows vote.

        Parameters
        ----------
        X : array, shape (n_rows, n_columns)
            Private. Rows, or their embeddings.
        groups : array, shape (n_rows,), optional
            Private. Whose row it is: the unit is then a person, of whom one row, chosen at random, votes.
        ledger, rng
            As for :meth:`TableGenerator.fit`.

        Raises
        ------
        ValueError
            Before anything is charged: something out of range, or no noise keeps so small an epsilon.
        BudgetExceeded
            The charge does not fit; nothing was released.
        """
        rows, codes, _ = fitting.labelled(X, None, None)
        mechanism = self.mechanism()
        private = fitting.private_rows(rows, codes, groups, most=1, rng=rng)
        released = fitting.charged(
            self, mechanism, private, of=(rows,), groups=groups, ledger=ledger, rng=rng
        )
        self.candidates_, self.votes_ = released["candidates"], released["votes"]
        self.result_ = fitting.record(self, private, rng=rng, generator="evolution")
        return self

    def mechanism(self) -> NearestVotes:
        """The mechanism that :meth:`fit` releases, with the least noise that keeps (epsilon, delta)."""
        check.integer(n_rounds=self.n_rounds, least=1)
        check.integer(random_state=self.random_state)
        first = np.asarray(self.candidates)
        if not first.ndim or not len(first) or first.dtype == object:
            raise ValueError("candidates must be public rows or texts, one or more")

        def made(noise: float) -> NearestVotes:
            return NearestVotes(
                n_candidates=len(first),
                n_rounds=self.n_rounds,
                sigma=noise,
                seed=self.random_state,
                candidates=first,
                vary=self.vary,
                embed=np.asarray if self.embed is None else self.embed,
            )

        noise = fitting.least_noise(
            lambda noise: made(noise).turns[0],
            times=self.n_rounds,
            epsilon=self.epsilon,
            delta=self.delta,
            precision=1e-4,
        )
        return made(noise)

    @property
    def named(self) -> tuple[str, ...]:
        """The settings that ``name`` stands for in the ledger."""
        return () if self.name is None else ("candidates", "vary", "embed")

    def sample(self, n_rows: int = 1000, *, random_state: Any = None) -> np.ndarray:
        """Candidates, drawn by their noisy votes. Public, at no further price.

        Parameters
        ----------
        n_rows : int
        random_state : int or numpy.random.Generator, optional
        """
        check_is_fitted(self, "result_")
        check.integer(n_rows=n_rows)
        rng = np.random.default_rng(random_state)
        weights = weights_of(self.votes_, sigma=self.mechanism_.sigma)
        return np.asarray(self.candidates_[rng.choice(len(weights), size=n_rows, p=weights / weights.sum())])


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestVotes:
    """Rounds of noisy votes: each row votes for the nearest candidate, and candidates with votes go on.

    Parameters
    ----------
    n_candidates, n_rounds : int >= 1
    sigma : float > 0, in votes
        Noise of every count in every round. Public.
    seed : int
        Of who goes on and how it is varied, which is public.
    candidates : array
        Public: the first ones.
    vary : callable(candidates, rng) -> as many new ones
        Public.
    embed : callable(candidates) -> array of shape (n_candidates, n_columns)
        Public.

    Guarantees
    ----------
    A row added or removed moves one count of each round by 1. ``curve()`` is ``n_rounds`` times that of
    :class:`~ostraka.core.mechanisms.NoisyCounts` with ``l2=1``. Later candidates are made of noisy counts.
    A ledger is charged for each round, and keeps its votes before ``vary`` sees them: where ``vary`` asks
    another machine, a fit that was interrupted shows that machine no second votes of a round.
    """

    n_candidates: int
    n_rounds: int
    sigma: float
    seed: int
    candidates: Any = field(compare=False, repr=False)
    vary: Callable[[Any, np.random.Generator], Any] = field(compare=False, repr=False)
    embed: Callable[[Any], Any] = field(compare=False, repr=False)

    def __post_init__(self) -> None:
        check.integer(least=1, n_candidates=self.n_candidates, n_rounds=self.n_rounds)
        self._noise()

    @property
    def promise(self) -> Adjacency:
        """One row, which is there or not."""
        return Adjacency(moves="row", relation="add-or-remove")

    def curve(self) -> Curve:
        """Cost of all rounds."""
        return self.n_rounds * replace(self._noise().curve(), moves="row")

    def uses(self, private: Private) -> int:
        """One use for all rounds. ``vary`` and ``embed`` are tried on the first candidates."""
        n_columns = self._opened(private).shape[1]
        candidates = np.asarray(self.candidates)
        self._embedded(candidates, n_columns)
        if self.n_rounds > 1:
            none = np.zeros(self.n_candidates, dtype=np.int64)
            self._embedded(self._next(candidates, none, np.random.default_rng(self.seed)), n_columns)
        return 1

    @property
    def turns(self) -> tuple[NearestVotes, int]:
        """One round, and how many are charged, each by itself."""
        return replace(self, n_rounds=1), self.n_rounds

    def in_turn(
        self, private: Private, pay: Callable[..., dict[str, np.ndarray]], key: str | None
    ) -> dict[str, np.ndarray]:
        """What the last round releases. A round is paid for and kept before ``vary`` sees its votes."""
        self.uses(private)  # tries vary and embed
        public, candidates = np.random.default_rng(self.seed), np.asarray(self.candidates)
        released: dict[str, np.ndarray] = {}
        for turn in range(self.n_rounds):
            if turn:
                candidates = self._next(released["candidates"], released["votes"], public)
            part = replace(self, n_rounds=1, candidates=candidates)
            released = pay(part, private, None if key is None else f"{key}/{turn}")
        return released

    def release(self, private: Private, *, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """``candidates`` of the last round and their noisy ``votes``."""
        if self.n_rounds > 1:
            return self.in_turn(private, lambda part, rows, _: part.release(rows, rng=rng), None)
        rows, candidates = self._opened(private), np.asarray(self.candidates)
        near = nearest(rows, [self._embedded(candidates, rows.shape[1])])[:, 0]
        counts = np.bincount(near, minlength=self.n_candidates)
        one_vote = Adjacency.vector(l2=1.0, relation="add-or-remove")
        votes = self._noise().release(type(private)(counts, one_vote), rng=rng)
        return {"candidates": candidates, "votes": votes}

    def _opened(self, private: Private) -> np.ndarray:
        """The rows, of which a person has one: each of them has a whole vote."""
        fitting.check_whole(private)
        return np.asarray(private.open()[:, :-2])

    def _next(self, candidates: np.ndarray, votes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Half of the next candidates are those with most votes; the others are variations of winners."""
        weights = weights_of(votes, sigma=self.sigma)
        half = (self.n_candidates + 1) // 2
        best = np.argsort(-weights, kind="stable")[: min(half, int((weights > 0).sum()))]
        parents = rng.choice(len(weights), size=self.n_candidates - len(best), p=weights / weights.sum())
        varied = np.asarray(self.vary(candidates[parents], rng))
        if len(varied) != len(parents):
            raise ValueError(
                f"vary must return as many candidates as it gets, {len(parents)}, got {len(varied)}"
            )
        return np.concatenate([candidates[best], varied])

    def _embedded(self, candidates: Any, n_columns: int) -> np.ndarray:
        rows = np.asarray(self.embed(candidates), dtype=np.float32)
        if rows.shape != (self.n_candidates, n_columns) or not np.isfinite(rows).all():
            raise ValueError(
                f"candidates must be embedded as finite rows of shape {(self.n_candidates, n_columns)}, "
                f"got shape {rows.shape}"
            )
        return rows

    def _noise(self) -> NoisyCounts:
        return NoisyCounts(sigma=self.sigma, l2=1.0, relation="add-or-remove")


def weights_of(votes: np.ndarray, *, sigma: float) -> np.ndarray:
    """By how much each candidate's votes stand out of their noise; all alike where none does."""
    weights = np.maximum(votes - 2 * sigma, 0.0)
    return weights if weights.any() else np.ones(len(votes))
