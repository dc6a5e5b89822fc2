"""Lower bounds on epsilon from one training with canaries in it, and audits of what was claimed for it.

What comes in: the scores of canaries, by which an adversary guesses something about each. What goes out: the
epsilon that so many right guesses refute, as far as the theorem that fits the game allows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np
import scipy.optimize
import scipy.special
import scipy.stats

from ostraka.audit.bound import Bound, Finding
from ostraka.audit.intervals import largest_refuted
from ostraka.core import check
from ostraka.core.curve import Curve
from ostraka.core.numeric import clopper_pearson
from ostraka.core.randomness import os_keyed
from ostraka.core.scores import Scores

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Game = Literal["inclusion", "labels"]
Method = Literal["steinke", "any-dependence", "many-runs", "gaussian", "independent", "independent-gaussian"]
_FEWEST = 30  # guesses: fewer show little, and every number that is tried costs confidence
_DEFAULT_PART = 8  # one canary in eight is guessed where nothing else is said
_COINS = 1e-6  # probability that fair coins are taken for unfair ones
_ASSUMED = "if no canary's score depends on another's coin or noise, which is assumed and not checked"
_NOTES: dict[Method, str] = {
    "steinke": "Valid for fair coins and a number of guesses fixed in advance (Steinke et al. 2023).",
    "any-dependence": "Valid however the canaries of one training depend on one another.",
    "many-runs": "One canary in each of several independent trainings.",
    "gaussian": "Valid for claims of Gaussian differential privacy only: smaller mu are refuted.",
    "independent": f"Valid only {_ASSUMED}.",
    "independent-gaussian": f"Valid for claims of Gaussian differential privacy only, and {_ASSUMED}.",
}
_DOWN = 1 - 1e-12
_SET_ASIDE = 0.2  # of the error goes to guesses that delta may have given away, in independent trainings
_MOST = 700.0  # nats
_DELTA_SHARE = 0.65  # of the error pays for delta where the number of guesses is not fixed in advance
_UP = 1 + 1e-9  # relative error of the binomial tails, on the safe side
_MOST_MU = 100.0
_SPREAD, _FAR, _CUTS = 9.0, 40.0, 200  # standard deviations; a normal number is never so far; intervals


def one_run_lower_bound(
    scores: Scores | Sequence[Scores],
    *,
    delta: float,
    confidence: float = 0.95,
    game: Game = "inclusion",
    guesses: int | Sequence[int] | None = None,
    at: float | Sequence[float] | None = None,
    curve: Curve | None = None,
    independent: bool = False,
    rng: np.random.Generator | None = None,
) -> Bound:
    """Lower bound on epsilon from guesses about canaries in one training.

    Parameters
    ----------
    scores : Scores, or sequence of Scores
        ``game="inclusion"``: a fair coin, one for each canary, decided whether it was in the training data;
        ``members`` are the scores of those which were in, ``others`` of those which were not. The highest
        scores are guessed to be in, the lowest out.
        ``game="labels"``: scores of :meth:`ostraka.attacks.Canaries.scores`. One candidate of each canary is
        pointed at, with a score above 0; the adversary guesses it if the score is large enough.
        Several Scores: of several independent trainings, with canaries of their own.
    delta : float in [0, 1)
        Public. The delta of the claim; 0 for pure differential privacy.
    confidence : float in (0, 1)
    game : {"inclusion", "labels"}
    guesses : int or sequence of int, optional
        How many guesses to make, the surest ones, fixed **before** the scores were seen. Several: the best
        counts, and they share the error. None: an eighth of all canaries for inclusion; where they are
        ``independent`` half of them with a curve, and all without; for labels see ``at``.
    at : float > 0 or sequence of float > 0, optional
        For labels: score below which the adversary abstains, chosen **before** it was seen which guesses are
        right. None, without ``guesses``: guess all, the surer half, the surer quarter and so on down to 30.
    curve : Curve, optional
        The claimed curve, which must be Gaussian. The bound is then the epsilon at ``delta`` of the largest
        mu that is refuted: a statement about claims of Gaussian differential privacy, never about others.
    independent : bool
        For inclusion: the score of a canary depends on no other canary's coin and on no other canary's
        noise. True of canaries in separate runs; true within a run where they move separate numbers whose
        noise is drawn separately, which only reading the code can tell. Each canary is then guessed by the
        sign of its score, whose 0 must mean undecided, as for ``sum_scores``.
        The surest guesses are those whose scores are farthest from 0.
    rng : numpy.random.Generator, optional
        Draws lots among tied scores, for inclusion. None: keyed by the operating system.

    Returns
    -------
    Bound
        Its ``method`` and ``note`` state which theorem gave it.

    Raises
    ------
    ValueError
        No scores, coins that are not fair, games with different numbers of candidates, a curve that is not
        Gaussian, ``at``, ``guesses``, ``delta`` or ``confidence`` out of range.

    Guarantees
    ----------
    With probability ``confidence`` no training that is (epsilon, delta)-DP for one canary, for a smaller
    epsilon, gave these scores. For delta = 0 the right guesses are stochastically fewer than
    Binomial(guesses, e^epsilon / (e^epsilon + n_candidates - 1)). With delta, ``"steinke"``: Theorem 5.2,
    for two candidates and a number of guesses fixed in advance. ``"any-dependence"``: J more guesses may be
    right, where J has mean n_canaries delta and any dependence on the others; for any number of candidates
    and of guesses. ``"many-runs"``: one canary in each of independent trainings, J binomial. ``"gaussian"``:
    Mahloujifar et al. 2025, for a claimed Gaussian curve. ``"independent"``: right guesses are
    stochastically fewer than Binomial(n_canaries, p), p = (e^epsilon + delta) / (e^epsilon + 1), which is
    half of 1 + the total variation of a canary's game. ``"independent-gaussian"``: fewer than of the surest
    guesses about independent Gaussian games (docs/record/memorisation.md).
    Source: Steinke, Nasr and Jagielski 2023, arXiv:2305.08846, Theorem 5.2; docs/record/memorisation.md (any
    dependence, and more candidates); Mahloujifar, Melis and Chaudhuri 2025, arXiv:2410.22235.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> included = rng.random(1000) < 0.5
    >>> seen = included + rng.normal(size=1000)  # a Gaussian mechanism with mu = 1
    >>> scores = Scores.of(members=seen[included], others=seen[~included])
    >>> bound = one_run_lower_bound(scores, delta=1e-5, guesses=250)
    >>> round(bound.epsilon, 2), bound.right, bound.method
    (1.54, 216, 'steinke')
    >>> from ostraka import Curve
    >>> claim = Curve.gaussian(sensitivity=1.0, sigma=1.0)
    >>> round(one_run_lower_bound(scores, delta=1e-5, guesses=250, curve=claim).epsilon, 2)
    2.52
    """
    check.share(confidence=confidence)
    check.one_of(game=game, allowed=get_args(Game))
    check.share(zero=True, delta=delta)
    if at is not None and (game == "inclusion" or guesses is not None):
        raise ValueError("at must only be given for labels, and without guesses")
    if independent and (game != "inclusion" or (guesses is not None and curve is None)):
        raise ValueError(
            "independent must only be given for inclusion, and without guesses unless a curve is claimed: "
            "all are guessed"
        )
    if curve is not None and delta == 0:
        raise ValueError("delta must be > 0 with a curve: at 0 no Gaussian curve has an epsilon")
    runs = [scores] if isinstance(scores, Scores) else list(scores)
    if not runs or not all(isinstance(run, Scores) for run in runs):
        raise ValueError("scores must be Scores, or a list of those of one training or more")
    lots = os_keyed() if rng is None else rng
    if independent:
        record = sign_guesses(runs, guesses=guesses, half=curve is not None, rng=lots)
    elif game == "inclusion":
        record = inclusion_guesses(runs, guesses=guesses, rng=lots)
    else:
        record = label_guesses(runs, at=at, guesses=guesses)
    method: Method
    if curve is not None:
        _require_gaussian(curve)
    if independent:
        method = "independent" if curve is None else "independent-gaussian"
    elif curve is not None:
        if record.n_candidates != 2 or not record.planned:
            raise ValueError("curve needs two candidates, and guesses that are fixed in advance")
        method = "gaussian"
    elif len(runs) > 1 and record.n_canaries == len(runs) and not record.planned:
        method = "many-runs"
    else:
        method = "steinke" if record.planned and record.n_candidates == 2 else "any-dependence"
    error = 1 - confidence
    lower, either = (_lower_ends(record, method, delta=delta, error=e) for e in (error, error / 2))
    best = int(lower.argmax())  # where no cut shows anything, the one that guesses most
    estimate, upper = if_independent(record, best, delta=None if curve is None else delta, error=error / 2)
    details = {
        "interval": (float(either[best]), upper),
        "estimate": estimate,
        "delta": float(delta),
        "right": int(record.right[best]),
        "guesses": int(record.numbers[best]),
        "n_canaries": record.n_canaries,
        "n_candidates": record.n_candidates,
        "at": None if record.planned else float(record.at[best]),
        "n_cuts": int(record.right.size),
    }
    return Bound(
        quantity="epsilon",
        value=float(lower[best]),
        details=details,
        confidence=confidence,
        trials=record.n_canaries,
        law=method,
        sentence=_NOTES[method],
    )


def audit_canaries(
    scores: Scores | Sequence[Scores],
    *,
    claimed_epsilon: float | None = None,
    delta: float,
    confidence: float = 0.95,
    game: Game = "inclusion",
    guesses: int | Sequence[int] | None = None,
    at: float | Sequence[float] | None = None,
    curve: Curve | None = None,
    rng: np.random.Generator | None = None,
) -> Finding:
    """Compare guesses about canaries with the claim that was made for the training.

    Parameters
    ----------
    scores, delta, confidence, game, guesses, at, rng
        As for :func:`one_run_lower_bound`.
    claimed_epsilon : float, nats, optional
        The claim. None: that of ``curve`` at ``delta``.
    curve : Curve, optional
        A claimed Gaussian curve, which shows more; see :func:`one_run_lower_bound`.

    Returns
    -------
    Finding
        *Violated*: the claim is too small. *Inconclusive*: chance could be the reason for more right
        guesses than the claim allows, or even right guesses only could not contradict it. Else
        *consistent*: which is no proof, since another attack may guess better. ``trials`` are canaries.

    Raises
    ------
    ValueError
        As for :func:`one_run_lower_bound`; a claim below 0, none, or one beside a curve.

    Examples
    --------
    >>> from ostraka.core.scores import Scores
    >>> scores = Scores.of(members=[0.9] * 95 + [0.0] * 5, others=[0.0] * 95 + [0.9] * 5)
    >>> audit_canaries(scores, game="labels", claimed_epsilon=1.0, delta=0.0).verdict
    'violated'
    """
    if (claimed_epsilon is None) == (curve is None):
        raise ValueError("the claim must be either claimed_epsilon or curve")
    settings: dict[str, Any] = {"delta": delta, "confidence": confidence, "game": game, "guesses": guesses}
    if claimed_epsilon is not None:
        check.nonnegative(claimed_epsilon=claimed_epsilon)
    bound = one_run_lower_bound(scores, **settings, at=at, curve=curve, rng=rng)
    claimed = curve.epsilon(delta) if curve is not None else float(claimed_epsilon or 0.0)
    name = f"{game} of {bound.n_canaries:,} canaries, each one of {bound.n_candidates}"
    outcome = f"{bound.right:,} of {bound.guesses:,} guesses are right, which takes"
    return bound.against(
        claimed=claimed, clearest=clearest_bound(bound), name=name, outcome=outcome, kind="canaries"
    )


def clearest_bound(bound: Bound) -> float:
    """The bound if all canaries had been guessed, and every guess were right."""
    n, sizes = [bound.n_canaries], {"n_canaries": bound.n_canaries, "n_candidates": bound.n_candidates}
    all_right = Guesses.fixed_in_advance(n, n, **sizes, planned=bound.at is None)
    return float(_lower_ends(all_right, bound.method, delta=bound.delta, error=1 - bound.confidence)[0])


def _require_gaussian(curve: Curve) -> None:
    """Raise unless a claimed curve is exactly that of a Gaussian."""
    orders, rdp = np.array(curve.orders), np.array(curve.rdp)
    finite = np.isfinite(orders)
    gaussian = orders[finite] * curve.mu_squared / 2
    if not (
        math.isfinite(curve.mu_squared)
        and curve.mu_squared > 0
        and curve.slack == 0
        and np.allclose(rdp[finite], gaussian, rtol=1e-6, atol=0)
    ):
        raise ValueError(
            "curve must be that of a Gaussian mechanism, such as Curve.gaussian(sensitivity=1, sigma=1): the "
            "bound for curves is false for other claims. Leave curve away"
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Guesses:
    """One entry for each cut: how many guesses are made and how many are right.

    ``planned``: the numbers of guesses were fixed before the scores were seen; missing ones count as wrong.
    """

    right: np.ndarray
    numbers: np.ndarray
    at: np.ndarray
    n_canaries: int
    n_candidates: int
    planned: bool

    @classmethod
    def fixed_in_advance(
        cls, right: Any, numbers: Any, *, n_canaries: int, n_candidates: int = 2, planned: bool = True
    ) -> Self:
        """Guesses whose number, and not a score, says which are made."""
        at = np.full(len(numbers), np.nan)
        sizes = {"n_canaries": n_canaries, "n_candidates": n_candidates}
        return cls(right=np.array(right), numbers=np.array(numbers), at=at, **sizes, planned=planned)


def label_guesses(runs: list[Scores], *, at: Any, guesses: Any) -> Guesses:
    """The guesses of a game about labels, as :class:`ostraka.audit.attacks.Canaries` scores it."""
    # canaries, and candidates of each
    games = [(int(scores.members.sum()), int(scores.others.sum())) for scores in runs]
    decoys = {others / members for members, others in games}
    if len(decoys) > 1 or not all(others % members == 0 for members, others in games):
        raise ValueError(
            "scores must be of games with as many decoys for each canary, as Canaries.scores counts them"
        )
    for scores, (members, _) in zip(runs, games, strict=True):
        totals = scores.members + scores.others
        if (scores.values < 0).any() or totals[scores.values > 0].sum() > members:
            raise ValueError(
                "scores must be above 0 for one candidate of each canary at most, and 0 for the others, "
                "as Canaries.scores counts them"
            )
    n_canaries, n_candidates = sum(members for members, _ in games), 1 + int(decoys.pop())
    # values, and right and wrong guesses at each value or above it; a last column without any
    values = np.unique(np.concatenate([scores.values for scores in runs]))
    tally = np.zeros((2, values.size + 1), dtype=np.int64)
    for row, name in zip(tally, ("members", "others"), strict=True):
        row[:-1] = _tally(runs, name, values)
    right, wrong = tally[:, ::-1].cumsum(axis=1)[:, ::-1]
    n_guesses = right + wrong  # cuts may depend on this number only: it does not say who is right
    if guesses is None:
        if at is not None:
            chosen = np.unique(np.asarray(at, dtype=np.float64))
        elif wanted := int(n_guesses[np.searchsorted(values, 0.0, side="right")]):
            # the lowest scores of all guesses, of the surer half, of the surer quarter; ties belong together
            cuts = [values[np.flatnonzero(n_guesses >= wanted)[-1]]]
            while (wanted := math.ceil(wanted / 2)) >= _FEWEST:
                cuts.append(values[np.flatnonzero(n_guesses >= wanted)[-1]])
            chosen = np.unique(cuts)
        else:
            chosen = np.nextafter(np.zeros(1), 1.0)
        if not chosen.size or not (np.isfinite(chosen) & (chosen > 0)).all():
            raise ValueError(f"at must be finite and > 0, got {at!r}")
        first, planned = np.searchsorted(values, chosen), False
        numbers = n_guesses[first]
    else:
        numbers, planned = _plans(guesses, n_canaries), True
        pointed = np.flatnonzero(np.append(values, np.inf) > 0)
        first = np.array([pointed[np.argmax(n_guesses[pointed] <= number)] for number in numbers])
        chosen = np.append(values, np.inf)[first]
    sizes = {"n_canaries": n_canaries, "n_candidates": n_candidates}
    return Guesses(right=right[first], numbers=numbers, at=chosen, **sizes, planned=planned)


def inclusion_guesses(runs: list[Scores], *, guesses: Any, rng: np.random.Generator) -> Guesses:
    """The guesses of a game about inclusion: half of them the highest scores (in), half the lowest (out)."""
    included, left_out = _fair_sides(runs)
    n_canaries = included + left_out
    # at least half of all scores are 0 and none is below: one of two candidates was pointed at
    labels = [
        scores.values.size > 2
        and scores.values[0] == 0
        and 2 * (scores.members + scores.others)[0] >= (scores.members + scores.others).sum()
        for scores in runs
    ]
    if included == left_out and all(labels):
        raise ValueError("scores look like those of ostraka.audit.attacks.Canaries.scores: say game='labels'")
    usual = min(n_canaries, max(_FEWEST, n_canaries // _DEFAULT_PART))
    numbers = _plans(usual if guesses is None else guesses, n_canaries)
    values = np.unique(np.concatenate([scores.values for scores in runs]))
    tally = np.stack([_tally(runs, name, values) for name in ("members", "others")])
    right = [
        _hits(tally[:, ::-1], number - number // 2, side=0, rng=rng)
        + _hits(tally, number // 2, side=1, rng=rng)
        for number in numbers
    ]
    return Guesses.fixed_in_advance(right, numbers, n_canaries=n_canaries)


def sign_guesses(runs: list[Scores], *, guesses: Any, half: bool, rng: np.random.Generator) -> Guesses:
    """Guesses by signs of scores: in if above 0, out if below, 0 is wrong. The surest are farthest from 0."""
    n_canaries = sum(_fair_sides(runs))
    usual = (n_canaries + 1) // 2 if half else n_canaries
    numbers = _plans(usual if guesses is None else guesses, n_canaries)
    values = np.unique(np.abs(np.concatenate([scores.values for scores in runs])))
    tally = np.zeros((2, values.size), dtype=np.int64)  # right, wrong
    for scores in runs:
        place = np.searchsorted(values, np.abs(scores.values))
        for name, is_in in (("members", True), ("others", False)):
            right = (scores.values > 0) if is_in else (scores.values < 0)
            np.add.at(tally, (np.where(right, 0, 1), place), getattr(scores, name))
    hits = [_hits(tally[:, ::-1], number, side=0, rng=rng) for number in numbers]
    return Guesses.fixed_in_advance(hits, numbers, n_canaries=n_canaries)


def _fair_sides(runs: list[Scores]) -> tuple[int, int]:
    """Canaries which were in, and which were out; a fair coin must have decided that."""
    included, left_out = (
        sum(int(getattr(scores, name).sum()) for scores in runs) for name in ("members", "others")
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


def _tally(runs: list[Scores], name: str, values: np.ndarray) -> np.ndarray:
    counts = np.zeros(values.size, dtype=np.int64)
    for scores in runs:
        np.add.at(counts, np.searchsorted(values, scores.values), getattr(scores, name))
    return counts


def _hits(tally: np.ndarray, wanted: int, *, side: int, rng: np.random.Generator) -> int:
    """The number of right guesses among the first ``wanted`` canaries; ties at the end are drawn by lot."""
    totals = tally.sum(axis=0)
    before = np.cumsum(totals)
    complete = int(np.searchsorted(before, wanted, side="right"))
    hits = int(tally[side, :complete].sum())
    tied = wanted - (int(before[complete - 1]) if complete else 0)
    if tied:
        good, bad = int(tally[side, complete]), int(tally[1 - side, complete])
        hits += int(rng.hypergeometric(good, bad, tied))
    return hits


def _lower_ends(record: Guesses, method: Method, *, delta: float, error: float) -> np.ndarray:
    """Lower end of epsilon for each cut; all of them together err with probability ``error``."""
    cuts = list(zip(record.right.tolist(), record.numbers.tolist(), strict=True))
    cut_error = error / len(cuts)
    if method == "independent":
        ends = [separate_end(*cut, delta=delta, error=cut_error) for cut in cuts]
    elif method in {"gaussian", "independent-gaussian"}:
        separate = method != "gaussian"
        ends = [
            gaussian_end(*cut, record.n_canaries, separate=separate, delta=delta, error=cut_error)
            for cut in cuts
        ]
    elif delta == 0 or method == "many-runs":
        # Clopper and Pearson's ends; of independent trainings, without the guesses that delta gave away
        leaked, chance = 0, 0.0
        if delta > 0:
            leaked = int(scipy.stats.binom.isf(_SET_ASIDE * error, record.n_canaries, delta))
            chance = float(scipy.stats.binom.sf(leaked, record.n_canaries, delta))
        least, _ = clopper_pearson(
            np.maximum(record.right - leaked, 0),
            np.maximum(record.numbers, 1),
            error=(error - chance) / record.right.size,
        )
        return odds(least, record.n_candidates) * _DOWN
    elif record.planned:
        tails = partial(_planned, n_delta=record.n_canaries * delta, steinke=method == "steinke")
        ends = [_tail_end(*cut, record.n_candidates, tails, error=cut_error) for cut in cuts]
    else:
        distance, paid = price_of_delta(record.n_canaries, delta=delta, error=error)
        tails, cut_error = partial(near_tail, distance=distance), (error - paid) / len(cuts)
        ends = [_tail_end(*cut, record.n_candidates, tails, error=cut_error) for cut in cuts]
    return np.array(ends)


def _tail_end(
    right: int, guesses: int, n_candidates: int, tail: Callable[[int, int, float], float], *, error: float
) -> float:
    """The largest epsilon under which so many right guesses have probability at most ``error``."""

    def excess(epsilon: float) -> float:
        return error - tail(right, guesses, share_of(epsilon, n_candidates))

    return largest_refuted(excess, limit=_MOST) * _DOWN


def _planned(right: int, guesses: int, share: float, *, n_delta: float, steinke: bool) -> float:
    """The tail for a number of guesses that is fixed in advance; for fair coins the smaller of two bounds."""
    tail = planned_tail(right, guesses, share, n_delta=n_delta)
    return min(tail, steinke_tail(right, guesses, share, n_delta=n_delta)) if steinke else tail


def if_independent(record: Guesses, cut: int, *, delta: float | None, error: float) -> tuple[float, float]:
    """Estimate of epsilon of one cut and its upper end; ``delta``: of a Gaussian mechanism, at this delta."""
    right, guesses = int(record.right[cut]), int(record.numbers[cut])
    error /= record.right.size
    if delta is not None:
        end = partial(gaussian_end, guesses=guesses, n_canaries=record.n_canaries, separate=True, delta=delta)
        return end(right, error=0.5), end(right + 1, error=1 - error) if right < guesses else math.inf
    if not guesses:
        return 0.0, math.inf
    shares = np.array([right / guesses, clopper_pearson(np.array([right]), guesses, error=error)[1][0]])
    estimate, upper = odds(shares, record.n_candidates)
    return float(estimate), float(upper)


def odds(share: np.ndarray, n_candidates: int) -> np.ndarray:
    """The epsilon that allows this share of right guesses."""
    with np.errstate(divide="ignore"):
        log_odds = np.log(share) - np.log1p(-share)
    return np.asarray(np.maximum(0.0, log_odds + math.log(n_candidates - 1)))


def share_of(epsilon: float, n_candidates: int) -> float:
    """The share of right guesses that an epsilon allows."""
    return 1 / (1 + (n_candidates - 1) * math.exp(-epsilon))


def price_of_delta(n_canaries: int, *, delta: float, error: float) -> tuple[float, float]:
    """Return a distance i, fixed before any guess, and its part n delta / i of the error."""
    distance = max(1.0, n_canaries * delta / (_DELTA_SHARE * error))
    return distance, n_canaries * delta / distance


def near_tail(right: int, guesses: int, share: float, *, distance: float) -> float:
    """E max(0, 1 - (right - B)_+ / distance) for B binomial.

    With any J >= 0, ``1[B + J >= right]`` is at most that number before its mean, plus ``J / distance``. So
    J may depend on B, and the number of guesses on the output. Several cuts pay ``J / distance`` once.
    """
    short = np.arange(1, min(int(distance), right) + 1)
    masses = _masses(right - short, guesses, share)
    tail = scipy.special.bdtrc(right - 1, guesses, share)
    return float(min(1.0, (tail + (masses * (1 - short / distance)).sum()) * _UP))


def planned_tail(right: int, guesses: int, share: float, *, n_delta: float) -> float:
    """P(B + J >= right) for B binomial, J >= 0 of mean ``n_delta``, and any dependence between the two.

    The smallest of ``near_tail + n_delta / distance``: the number of guesses must be fixed in advance.
    """
    tail = float(scipy.special.bdtrc(right - 1, guesses, share))
    if n_delta == 0 or right == 0:
        return min(1.0, tail * _UP)
    # other distances are as valid: beyond those that matter the bound only grows
    distance = np.arange(1, _that_matter(right, guesses, share) + 1)
    masses = _masses(right - distance, guesses, share)
    near, weighted = np.cumsum(masses), np.cumsum(distance * masses)
    return float(min(1.0, (tail + near - weighted / distance + n_delta / distance).min() * _UP))


def steinke_tail(right: int, guesses: int, share: float, *, n_delta: float) -> float:
    """Steinke, Nasr and Jagielski 2023, Theorem 5.2: fair coins, and a number of guesses fixed in advance.

    P <= f(v) + 2 n delta max_i (f(v - i) - f(v)) / i, f(v) = P(B >= v). Terms with i < 2 n delta are replaced
    by an upper bound that grows with epsilon, so that the claims which are refuted are an interval.
    """
    tail = float(scipy.special.bdtrc(right - 1, guesses, share))
    if n_delta == 0 or right == 0:
        return min(1.0, tail * _UP)
    last = _that_matter(right, guesses, share)
    i = np.arange(1, last + 1)
    part = 2 * n_delta / i  # from the last on f(v - i) counts as 1, and the terms fall
    closer = np.where(i < last, scipy.special.bdtrc(np.maximum(0, right - 1 - i), guesses, share), 1.0)
    terms = np.maximum(0.0, 1 - part) * tail + part * closer
    return float(min(1.0, max(tail, float(terms.max())) * _UP))


def _that_matter(right: int, guesses: int, share: float) -> int:
    """How many guesses fewer than ``right`` any law but a negligible part of the binomial one reaches."""
    mean, deviation = guesses * share, math.sqrt(guesses * share * (1 - share))
    return max(1, min(right, math.ceil(right - mean + _SPREAD * deviation)))


def _masses(hits: np.ndarray, trials: int, share: float) -> np.ndarray:
    """Binomial probabilities, right to about 1e-11 of themselves."""
    ways = (
        scipy.special.gammaln(trials + 1)
        - scipy.special.gammaln(hits + 1)
        - scipy.special.gammaln(trials - hits + 1)
    )
    return np.asarray(
        np.exp(ways + scipy.special.xlogy(hits, share) + scipy.special.xlog1py(trials - hits, -share))
    )


def separate_end(right: int, guesses: int, *, delta: float, error: float) -> float:
    """The largest epsilon that is refuted where every guess is about an independent game, and all are made.

    A game of total variation t is guessed with probability (1 + t) / 2 at most: for (epsilon, delta) that is
    (e^epsilon + delta) / (e^epsilon + 1).
    """
    least, _ = clopper_pearson(np.array([right]), guesses, error=error)
    share = float(least[0])
    if share <= (1 + delta) / 2:
        return 0.0
    return math.log((share - delta) / (1 - share)) * (1 - 1e-12)


def gaussian_end(
    right: int, guesses: int, n_canaries: int, *, separate: bool, delta: float, error: float
) -> float:
    """Epsilon at ``delta`` of the largest refuted mu; ``separate``: of the surest independent guesses."""

    def excess(mu: float) -> float:
        if separate:
            return error - surest_tail(mu, right, guesses, n_canaries)
        return 1.0 if gaussian_is_refuted(mu, right, guesses, n_canaries, error=error) else -1.0

    mu = largest_refuted(excess, limit=_MOST_MU)
    return Curve.gaussian(sensitivity=mu, sigma=1.0).epsilon(delta) * (1 - 1e-9) if mu > 0 else 0.0


def gaussian_is_refuted(mu: float, right: int, guesses: int, n_canaries: int, *, error: float) -> bool:
    """Whether so many right guesses have probability at most ``error`` under mu-Gaussian DP.

    Source: Mahloujifar, Melis and Chaudhuri 2025, arXiv:2410.22235, recursion for two candidates. ``hits``
    and ``misses`` bound the shares of right and wrong guesses over all outcomes with i or more right guesses.
    Refuted if together they exceed the share of guesses that were made.
    """
    hits = error * right / n_canaries
    misses = error * (guesses - right) / n_canaries
    for i in range(right - 1, -1, -1):
        needed = float(scipy.special.ndtr(scipy.special.ndtri(hits) - mu)) * (1 - 1e-12)
        if needed <= misses:
            break  # neither can change any more
        hits = min(1.0, hits + i / (guesses - i) * (needed - misses))
        misses = needed
    return hits + misses > guesses / n_canaries * _UP


def surest_tail(mu: float, right: int, guesses: int, n_canaries: int) -> float:
    """P(``right`` or more of the ``guesses`` surest of independent games) under mu-Gaussian DP.

    Every game is at best X normal with mean mu / 2, where X > 0 is right and the odds of that are
    e^(mu |x|): whoever sees all X makes the surest guesses where |x| is largest. Given c, the largest |x|
    that is not guessed, guesses are independent, each right with P(X > c) / P(|X| > c), which grows with c.
    So the law of c is cut into intervals, and each counts with the share at its upper end.
    """
    ndtr, tail = scipy.special.ndtr, scipy.special.bdtrc
    if guesses == n_canaries:
        return min(1.0, float(tail(right - 1, guesses, ndtr(mu / 2))) * _UP)

    def beyond(c: Any) -> Any:
        return ndtr(mu / 2 - c) + ndtr(-mu / 2 - c)

    mean = (guesses + 1) / (n_canaries + 1)
    width = _SPREAD * math.sqrt(mean * (1 - mean) / n_canaries)

    def quantile(share: float) -> float:
        return float(scipy.optimize.brentq(lambda c: beyond(c) - share, 0.0, mu / 2 + _FAR))

    c = np.linspace(quantile(min(mean + width, 1 - 1e-12)), quantile(max(mean - width, 1e-15)), _CUTS)
    share = beyond(c)
    above = np.concatenate([[1.0], tail(guesses, n_canaries, share), [0.0]])  # P(the largest left > c)
    tails = np.concatenate([tail(right - 1, guesses, np.minimum(1.0, ndtr(mu / 2 - c) / share * _UP)), [1.0]])
    return min(1.0, float(-np.diff(above) @ tails) * _UP)
