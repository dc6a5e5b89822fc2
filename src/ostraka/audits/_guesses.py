"""Guesses about canaries: which are made, how many are right, and the epsilon that this implies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.stats

from ostraka.audits._tails import gaussian_end
from ostraka.audits.intervals import clopper_pearson

if TYPE_CHECKING:
    from ostraka.scores import Scores

__all__ = [
    "Guesses",
    "if_independent",
    "inclusion_guesses",
    "label_guesses",
    "odds",
    "share_of",
    "sign_guesses",
]

_FEWEST = 30  # guesses: fewer show little, and every number that is tried costs confidence
_DEFAULT_PART = 8  # one canary in eight is guessed where nothing else is said
_COINS = 1e-6  # probability that fair coins are taken for unfair ones


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Guesses:
    """One entry for each cut: how many guesses are made and how many are right.

    ``planned``: the numbers of guesses were fixed before the scores were seen; missing ones count as wrong.
    """

    right: np.ndarray
    made: np.ndarray
    at: np.ndarray
    n_canaries: int
    n_candidates: int
    planned: bool


def label_guesses(runs: list[Scores], *, at: Any, guesses: Any) -> Guesses:
    """The guesses of a game about labels, as :class:`ostraka.attacks.Canaries` scores it."""
    n_canaries, n_candidates = _label_sizes(runs)
    values, (right, wrong) = _from_the_surest(runs)
    made = right + wrong  # cuts may depend on this number only: it does not say who is right
    if guesses is None:
        chosen = _halves(values, made) if at is None else np.unique(np.asarray(at, dtype=np.float64))
        if not chosen.size or not (np.isfinite(chosen) & (chosen > 0)).all():
            raise ValueError(f"at must be finite and > 0, got {at!r}")
        first, planned = np.searchsorted(values, chosen), False
        numbers = made[first]
    else:
        numbers, planned = _plans(guesses, n_canaries), True
        pointed = np.flatnonzero(np.append(values, np.inf) > 0)
        first = np.array([pointed[np.argmax(made[pointed] <= number)] for number in numbers])
        chosen = np.append(values, np.inf)[first]
    return Guesses(
        right=right[first],
        made=numbers,
        at=chosen,
        n_canaries=n_canaries,
        n_candidates=n_candidates,
        planned=planned,
    )


def inclusion_guesses(runs: list[Scores], *, guesses: Any, rng: np.random.Generator) -> Guesses:
    """The guesses of a game about inclusion: half of them the highest scores (in), half the lowest (out)."""
    included, left_out = _fair_sides(runs)
    n_canaries = included + left_out
    if included == left_out and all(_looks_like_labels(each) for each in runs):
        raise ValueError("scores look like those of ostraka.attacks.Canaries.scores: say game='labels'")
    usual = min(n_canaries, max(_FEWEST, n_canaries // _DEFAULT_PART))
    numbers = _plans(usual if guesses is None else guesses, n_canaries)
    values = np.unique(np.concatenate([each.values for each in runs]))
    tally = np.stack([_tally(runs, name, values) for name in ("members", "others")])
    right = [
        _hits(tally[:, ::-1], number - number // 2, side=0, rng=rng)
        + _hits(tally, number // 2, side=1, rng=rng)
        for number in numbers
    ]
    return Guesses(
        right=np.array(right),
        made=numbers,
        at=np.full(numbers.size, np.nan),
        n_canaries=n_canaries,
        n_candidates=2,
        planned=True,
    )


def sign_guesses(runs: list[Scores], *, guesses: Any, half: bool, rng: np.random.Generator) -> Guesses:
    """Guesses by signs of scores: in if above 0, out if below, 0 is wrong. The surest are farthest from 0."""
    n_canaries = sum(_fair_sides(runs))
    usual = (n_canaries + 1) // 2 if half else n_canaries
    numbers = _plans(usual if guesses is None else guesses, n_canaries)
    values = np.unique(np.abs(np.concatenate([each.values for each in runs])))
    tally = np.zeros((2, values.size), dtype=np.int64)  # right, wrong
    for each in runs:
        place = np.searchsorted(values, np.abs(each.values))
        for name, is_in in (("members", True), ("others", False)):
            right = (each.values > 0) if is_in else (each.values < 0)
            np.add.at(tally, (np.where(right, 0, 1), place), getattr(each, name))
    return Guesses(
        right=np.array([_hits(tally[:, ::-1], number, side=0, rng=rng) for number in numbers]),
        made=numbers,
        at=np.full(numbers.size, np.nan),
        n_canaries=n_canaries,
        n_candidates=2,
        planned=True,
    )


def _fair_sides(runs: list[Scores]) -> tuple[int, int]:
    """Canaries which were in, and which were out; a fair coin must have decided that."""
    if not runs:
        raise ValueError("scores must be those of one training or more, got none")
    included, left_out = (
        sum(int(getattr(each, name).sum()) for each in runs) for name in ("members", "others")
    )
    if scipy.stats.binomtest(included, included + left_out, 0.5).pvalue < _COINS:
        raise ValueError(
            f"scores must be of canaries that a fair coin included or left out, got {included:,} members and "
            f"{left_out:,} others; for canaries with other labels say game='labels'"
        )
    return included, left_out


def _plans(guesses: Any, n_canaries: int) -> np.ndarray:
    numbers = np.unique(np.asarray(guesses))
    if not numbers.size or numbers.dtype.kind not in "iu" or numbers[0] < 1 or numbers[-1] > n_canaries:
        raise ValueError(f"guesses must be whole numbers from 1 to {n_canaries}, got {guesses!r}")
    return numbers


def _looks_like_labels(scores: Scores) -> bool:
    """Whether at least half of all scores are 0 and none is below: one of two candidates was pointed at."""
    both = scores.members + scores.others
    return bool(scores.values.size > 2 and scores.values[0] == 0 and 2 * both[0] >= both.sum())


def _tally(runs: list[Scores], name: str, values: np.ndarray) -> np.ndarray:
    counts = np.zeros(values.size, dtype=np.int64)
    for each in runs:
        np.add.at(counts, np.searchsorted(values, each.values), getattr(each, name))
    return counts


def _hits(tally: np.ndarray, wanted: int, *, side: int, rng: np.random.Generator) -> int:
    """The number of right guesses among the first ``wanted`` canaries; ties at the end are drawn by lot."""
    both = tally.sum(axis=0)
    before = np.cumsum(both)
    whole = int(np.searchsorted(before, wanted, side="right"))
    hits = int(tally[side, :whole].sum())
    rest = wanted - (int(before[whole - 1]) if whole else 0)
    if rest:
        good, bad = int(tally[side, whole]), int(tally[1 - side, whole])
        hits += int(rng.hypergeometric(good, bad, rest))
    return hits


def _label_sizes(runs: list[Scores]) -> tuple[int, int]:
    """Canaries, and candidates of each."""
    if not runs:
        raise ValueError("scores must be those of one training or more, got none")
    games = [(int(each.members.sum()), int(each.others.sum())) for each in runs]
    decoys = {others / members for members, others in games}
    if len(decoys) > 1 or not all(others % members == 0 for members, others in games):
        raise ValueError(
            "scores must be of games with as many decoys for each canary, as Canaries.scores counts them"
        )
    for each, (members, _) in zip(runs, games, strict=True):
        pointed = each.values > 0
        if (each.values < 0).any() or (each.members + each.others)[pointed].sum() > members:
            raise ValueError(
                "scores must be above 0 for one candidate of each canary at most, and 0 for the others, "
                "as Canaries.scores counts them"
            )
    return sum(members for members, _ in games), 1 + int(decoys.pop())


def _from_the_surest(runs: list[Scores]) -> tuple[np.ndarray, np.ndarray]:
    """Values, and right and wrong guesses at each value or above it; a last column without any."""
    values = np.unique(np.concatenate([each.values for each in runs]))
    tally = np.zeros((2, values.size + 1), dtype=np.int64)
    for row, name in zip(tally, ("members", "others"), strict=True):
        row[:-1] = _tally(runs, name, values)
    return values, tally[:, ::-1].cumsum(axis=1)[:, ::-1]


def _halves(values: np.ndarray, made: np.ndarray) -> np.ndarray:
    """The lowest scores of all guesses, of the surer half, of the surer quarter; ties belong together."""
    wanted = int(made[np.searchsorted(values, 0.0, side="right")])
    if not wanted:
        return np.nextafter(np.zeros(1), 1.0)
    cuts = [values[np.flatnonzero(made >= wanted)[-1]]]
    while (wanted := math.ceil(wanted / 2)) >= _FEWEST:
        cuts.append(values[np.flatnonzero(made >= wanted)[-1]])
    return np.unique(cuts)


def odds(share: np.ndarray, n_candidates: int) -> np.ndarray:
    """The epsilon that allows this share of right guesses."""
    with np.errstate(divide="ignore"):
        log_odds = np.log(share) - np.log1p(-share)
    return np.asarray(np.maximum(0.0, log_odds + math.log(n_candidates - 1)))


def share_of(epsilon: float, n_candidates: int) -> float:
    """The share of right guesses that an epsilon allows."""
    return 1 / (1 + (n_candidates - 1) * math.exp(-epsilon))


def if_independent(made: Guesses, cut: int, *, delta: float | None, error: float) -> tuple[float, float]:
    """Estimate of epsilon of one cut and its upper end; ``delta``: of a Gaussian mechanism, at this delta."""
    right, guesses = int(made.right[cut]), int(made.made[cut])
    error /= made.right.size
    if delta is not None:
        end = partial(gaussian_end, guesses=guesses, n_canaries=made.n_canaries, separate=True, delta=delta)
        return end(right, error=0.5), end(right + 1, error=1 - error) if right < guesses else math.inf
    if not guesses:
        return 0.0, math.inf
    shares = np.array([right / guesses, clopper_pearson(np.array([right]), guesses, error=error)[1][0]])
    estimate, upper = odds(shares, made.n_candidates)
    return float(estimate), float(upper)
