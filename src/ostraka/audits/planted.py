"""Planted defects: broken builds, most of them seen in published code, which an audit must detect."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ostraka import _check
from ostraka.audits.library import System, audit_library
from ostraka.curve import Curve
from ostraka.door import release
from ostraka.ledger import Ledger
from ostraka.mechanisms import GNMax
from ostraka.private import Adjacency, Private
from ostraka.voters import count_votes, partition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka.mechanisms.protocols import BallotMechanism
    from ostraka.voters.shards import Manifest

__all__ = ["DEFECTS", "SOUND", "mutation_score"]


def mutation_score(*, trials: int = 200_000, only: Sequence[str] | None = None) -> dict[str, tuple[str, ...]]:
    """Audit one broken build for each planted defect, and list the findings which detect it.

    Parameters
    ----------
    trials : int
        As for :func:`audit_library`; below 100,000 the ledger's defects may be missed.
    only : sequence of str, optional
        Names of the defects to plant; None: all.

    Returns
    -------
    dict of str to tuple of str
        For each defect the names of the findings that call it violated; empty where it was missed.

    Examples
    --------
    >>> mutation_score(trials=2_000, only=["fixed seed"])
    {'fixed seed': ('noise between releases',)}
    """
    return {
        name: tuple(
            finding.name for finding in audit_library(system, trials=trials) if finding.verdict == "violated"
        )
        for name, system in DEFECTS.items()
        if only is None or name in only
    }


class _Altered:
    """A sound mechanism with its noise or its price replaced. Its outcome map stays as promised."""

    def __init__(
        self,
        *,
        sigma: float,
        noise: Callable[[np.random.Generator, float, tuple[int, ...]], np.ndarray] | None = None,
        price: Callable[[float], Curve] | None = None,
    ) -> None:
        self._sound = GNMax(sigma=sigma)
        self._sigma, self._noise, self._price = sigma, noise, price
        self.promise = self._sound.promise

    def __repr__(self) -> str:
        return f"altered {self._sound!r}"

    def curve(self) -> Curve:
        return self._sound.curve() if self._price is None else self._price(self._sigma)

    def uses(self, private: Private) -> int:
        return len(private)

    def log_outcomes(self, counts: Any) -> np.ndarray:
        return self._sound.log_outcomes(counts)

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        if self._noise is None:
            return self._sound.release(private, rng=rng)
        counts = _check.counts(private.open())
        return np.asarray((counts + self._noise(rng, self._sigma, counts.shape)).argmax(axis=1))


def _half(rng: np.random.Generator, sigma: float, shape: tuple[int, ...]) -> np.ndarray:
    return rng.normal(scale=sigma / 2, size=shape)


def _reciprocal(rng: np.random.Generator, sigma: float, shape: tuple[int, ...]) -> np.ndarray:
    return rng.normal(scale=1 / sigma, size=shape)


def _one_for_all_answers(rng: np.random.Generator, sigma: float, shape: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(rng.normal(scale=sigma, size=shape[1:]), shape)


def _one_for_all_classes(rng: np.random.Generator, sigma: float, shape: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(rng.normal(scale=sigma, size=(shape[0], 1)), shape)


def _whole_numbers(rng: np.random.Generator, sigma: float, shape: tuple[int, ...]) -> np.ndarray:
    return np.trunc(rng.normal(scale=sigma, size=shape))


def _slightly_less(rng: np.random.Generator, sigma: float, shape: tuple[int, ...]) -> np.ndarray:
    return rng.normal(scale=0.95 * sigma, size=shape)


def _sensitivity_one(sigma: float) -> Curve:
    """The price for sensitivity 1. A ballot changes two counts, so the sensitivity is the root of 2."""
    return Curve.gaussian(sensitivity=1.0, sigma=sigma, moves="ballot")


def _half_price(sigma: float) -> Curve:
    """The price of twice the variance."""
    return GNMax(sigma=sigma * 2**0.5).curve()


def _fixed_seed(mechanism: BallotMechanism, private: Private, *, ledger: Any) -> np.ndarray:
    """A release whose generator starts from the same seed every time."""
    return release(mechanism, private, ledger=ledger, rng=np.random.default_rng(31))


class _Stale:
    """A ledger that checks each charge against the total it once read, and never reads again."""

    def __init__(self, path: str, **settings: Any) -> None:
        self._path, self._settings = path, settings

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close nothing."""

    def charge(self, mechanism: Any, **settings: Any) -> int:
        with Ledger(self._path, **self._settings) as fresh:
            return fresh.charge(mechanism, **settings)

    def answer(self, _: int) -> None:
        """No answer is stored."""

    def record(self, _: int, answer: np.ndarray) -> np.ndarray:
        return answer


class _OneUse(_Altered):
    """A mechanism that is charged once for a release of many answers."""

    def uses(self, private: Private) -> int:  # noqa: ARG002  (part of the protocol)
        return 1


class _Teachers:
    """A minimal ensemble of teachers. ``deal`` chooses the rows of each, ``staff`` the teachers which vote.

    ``deal`` gets the shards, and the rows each teacher knows so far (None before the first question).
    """

    def __init__(
        self,
        estimator: Any,
        *,
        n_teachers: int,
        deal: Callable[[list[np.ndarray], list[np.ndarray] | None], list[np.ndarray]] | None = None,
        staff: Callable[[list[Any]], list[Any]] | None = None,
    ) -> None:
        self._estimator, self._n_teachers, self._deal, self._staff = estimator, n_teachers, deal, staff

    def fit(self, X: np.ndarray, y: np.ndarray, *, classes: list[int], manifest: Manifest | None) -> Self:
        self._X, self._y, self._n_classes = X, y, len(classes)
        self.manifest_ = manifest or partition(len(y), n_teachers=self._n_teachers)
        self._known: list[np.ndarray] | None = None
        return self

    def vote(self, X: np.ndarray) -> Private:
        from sklearn.base import clone  # noqa: PLC0415  (only planted defects train here)

        shards = self.manifest_.rows()
        self._known = shards if self._deal is None else self._deal(shards, self._known)
        teachers = [clone(self._estimator).fit(self._X[rows], self._y[rows]) for rows in self._known]
        teachers = teachers if self._staff is None else self._staff(teachers)
        votes = count_votes([teacher.predict(X) for teacher in teachers], n_classes=self._n_classes)
        return Private(votes, Adjacency.one_ballot())


Rows = list[np.ndarray]


def _one_shard_twice(shards: Rows, _: Rows | None) -> Rows:
    return [shards[0], shards[0], *shards[2:]]


def _last_shard_for_all(shards: Rows, _: Rows | None) -> Rows:
    return [shards[-1]] * len(shards)


def _all_rows_for_all(shards: Rows, _: Rows | None) -> Rows:
    return [np.concatenate(shards)] * len(shards)


def _dealt_again(shards: Rows, known: Rows | None) -> Rows:
    """A new partition for each question; teachers keep the rows they had."""
    again = partition(sum(map(len, shards)), n_teachers=len(shards)).rows()
    return again if known is None else [np.union1d(old, new) for old, new in zip(known, again, strict=True)]


def _one_teacher_twice(teachers: list[Any]) -> list[Any]:
    return [teachers[0], teachers[0], *teachers[2:]]


# A build without a defect, in the same few lines: findings below detect the defect and not the stand-in.
SOUND = System(mechanism=_Altered, teachers=_Teachers)

DEFECTS: dict[str, System] = {
    "half the noise": System(mechanism=partial(_Altered, noise=_half)),
    "five per cent less noise": System(mechanism=partial(_Altered, noise=_slightly_less)),
    "noise scale and its inverse swapped": System(mechanism=partial(_Altered, noise=_reciprocal)),
    "noise reused between answers": System(mechanism=partial(_Altered, noise=_one_for_all_answers)),
    "noise shared between classes": System(mechanism=partial(_Altered, noise=_one_for_all_classes)),
    "noise truncated to integers": System(mechanism=partial(_Altered, noise=_whole_numbers)),
    "fixed seed": System(answer=_fixed_seed),
    "sensitivity 1 for √2": System(mechanism=partial(_Altered, price=_sensitivity_one)),
    "half the price": System(mechanism=partial(_Altered, price=_half_price)),
    "a release priced as one answer": System(mechanism=_OneUse),
    "stale ledger": System(ledger=_Stale),
    "one shard given to two teachers": System(teachers=partial(_Teachers, deal=_one_shard_twice)),
    "every teacher gets the last shard": System(teachers=partial(_Teachers, deal=_last_shard_for_all)),
    "teachers draw from all the data": System(teachers=partial(_Teachers, deal=_all_rows_for_all)),
    "re-partition for each query": System(teachers=partial(_Teachers, deal=_dealt_again)),
    "one teacher shared": System(teachers=partial(_Teachers, staff=_one_teacher_twice)),
}
