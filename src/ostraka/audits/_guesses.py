"""How many guesses about canaries are right, and what that takes: dominated by a binomial law."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.stats

from ostraka.audits.intervals import clopper_pearson

if TYPE_CHECKING:
    from ostraka.scores import Scores

__all__ = ["Method", "counts", "ends", "epsilon", "sizes"]

Method = Literal["one-run", "many-runs"]

_FEWEST = 30  # guesses: fewer show little, and every number that is tried costs confidence
_LEAKED = 0.2  # of the error goes to guesses that delta may have given away
_DOWN = 1 - 1e-12


def sizes(runs: list[Scores]) -> tuple[int, int]:
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


def counts(runs: list[Scores], at: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cuts, and for each how many guesses are right, and how many are made."""
    values, place = np.unique(np.concatenate([each.values for each in runs]), return_inverse=True)
    tally = np.zeros((2, values.size + 1), dtype=np.int64)
    for row, name in zip(tally, ("members", "others"), strict=True):
        np.add.at(row, place, np.concatenate([getattr(each, name) for each in runs]))
    right, wrong = tally[:, ::-1].cumsum(axis=1)[:, ::-1]  # from the surest down
    made = right + wrong  # all that cuts may depend on: it does not say who is right
    chosen = _halves(values, made) if at is None else np.unique(np.asarray(at, dtype=np.float64))
    if not chosen.size or not (np.isfinite(chosen) & (chosen > 0)).all():
        raise ValueError(f"at must be finite and > 0, got {at!r}")
    first = np.searchsorted(values, chosen)
    return chosen, right[first], made[first]


def _halves(values: np.ndarray, made: np.ndarray) -> np.ndarray:
    """The lowest scores of all guesses, of the surer half, of the surer quarter; ties belong together."""
    wanted = int(made[np.searchsorted(values, 0.0, side="right")])
    if not wanted:
        return np.nextafter(np.zeros(1), 1.0)
    cuts = [values[np.flatnonzero(made >= wanted)[-1]]]
    while (wanted := math.ceil(wanted / 2)) >= _FEWEST:
        cuts.append(values[np.flatnonzero(made >= wanted)[-1]])
    return np.unique(cuts)


def ends(
    right: np.ndarray,
    guesses: np.ndarray,
    n_candidates: int,
    n_canaries: int,
    *,
    delta: float,
    error: float,
    method: Method,
) -> tuple[np.ndarray, np.ndarray]:
    """Epsilon at both ends of the share of right guesses; each end, of all cuts, errs with ``error``."""
    given, chance = _given_away(n_canaries, delta=delta, error=error, method=method)
    trials = np.maximum(guesses, 1)
    least, _ = clopper_pearson(np.maximum(right - given, 0), trials, error=(error - chance) / right.size)
    unknown = np.where(guesses == 0, trials, right)
    _, most = clopper_pearson(unknown, trials, error=error / right.size)
    return epsilon(least, n_candidates) * _DOWN, epsilon(most, n_candidates)


def _given_away(n_canaries: int, *, delta: float, error: float, method: Method) -> tuple[int, float]:
    """How many right guesses are set aside for delta, and the probability that it gave away more."""
    if delta == 0:
        return 0, 0.0
    allowed = _LEAKED * error
    if method == "one-run":  # whatever gives one label away may give all away: Markov
        given = max(0, math.ceil(n_canaries * delta / allowed) - 1)
        return given, n_canaries * delta / (given + 1)
    given = int(scipy.stats.binom.isf(allowed, n_canaries, delta))
    return given, float(scipy.stats.binom.sf(given, n_canaries, delta))


def epsilon(share: np.ndarray, n_candidates: int) -> np.ndarray:
    """The epsilon that allows this share of right guesses."""
    with np.errstate(divide="ignore"):
        odds = np.log(share) - np.log1p(-share)
    return np.asarray(np.maximum(0.0, odds + math.log(n_candidates - 1)))
