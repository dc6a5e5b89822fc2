"""Lower bounds on epsilon from one training with canaries in it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import scipy.stats

from ostraka import _check
from ostraka.audits._guesses import (
    Guesses,
    if_independent,
    inclusion_guesses,
    label_guesses,
    odds,
    share_of,
    sign_guesses,
)
from ostraka.audits._tails import (
    gaussian_end,
    largest_refuted,
    near_tail,
    planned_tail,
    price_of_delta,
    separate_end,
    steinke_tail,
)
from ostraka.audits.cuts import check_confidence
from ostraka.audits.intervals import clopper_pearson
from ostraka.randomness import os_keyed
from ostraka.scores import Scores

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka.curve import Curve

__all__ = ["CanaryBound", "Game", "claimed_mu", "clearest_bound", "one_run_lower_bound"]

Game = Literal["inclusion", "labels"]
Method = Literal["steinke", "any-dependence", "many-runs", "gaussian", "independent", "independent-gaussian"]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryBound:
    """A lower bound of epsilon from guesses about canaries.

    Attributes
    ----------
    epsilon : float >= 0, nats
        No smaller epsilon is compatible with what was seen, at this confidence.
    interval : tuple of float, nats
        Both ends at once, for the share of right guesses. The lower end is a bound as
        ``epsilon`` is. The upper end is about **this attack** only, and holds only where guesses are
        independent: another attack may show more, so it is never an upper bound on epsilon.
    estimate : float >= 0, nats
        The same from the share of right guesses, without any allowance for chance: no bound. With a curve,
        epsilon of the mu whose surest guesses are right so often in half of all runs.
    delta : float
    right, guesses : int
        Of the cut that gave the bound.
    n_canaries : int
    n_candidates : int
        Between which each guess is made: labels, or in and out.
    at : float or None
        Score below which the adversary abstained; None where the number of guesses was planned.
    n_cuts : int
        How many cuts were tried. They share the error.
    confidence : float
    method : {"steinke", "any-dependence", "many-runs", "gaussian", "independent", "independent-gaussian"}
    note : str

    Examples
    --------
    >>> scores = Scores.of(members=[0.9] * 90 + [0.0] * 10, others=[0.0] * 90 + [0.9] * 10)
    >>> one_run_lower_bound(scores, delta=0.0, game="labels").to_dict()["right"]
    90
    """

    epsilon: float
    interval: tuple[float, float]
    estimate: float
    delta: float
    right: int
    guesses: int
    n_canaries: int
    n_candidates: int
    at: float | None
    n_cuts: int
    confidence: float
    method: Method
    note: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; infinity is written ``"inf"``."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        return {
            **plain,
            "estimate": _plain(self.estimate),
            "interval": [_plain(end) for end in self.interval],
        }


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
) -> CanaryBound:
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
        sign of its score, whose 0 must mean undecided, as for :func:`ostraka.attacks.inclusion.sum_scores`.
        The surest guesses are those whose scores are farthest from 0.
    rng : numpy.random.Generator, optional
        Draws lots among tied scores, for inclusion. None: keyed by the operating system.

    Returns
    -------
    CanaryBound
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
    guesses about independent Gaussian games (docs/memorisation.md).
    Source: Steinke, Nasr and Jagielski 2023, arXiv:2305.08846, Theorem 5.2; docs/memorisation.md (any
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
    check_confidence(confidence)
    _check.one_of(game=game, allowed=get_args(Game))
    if not 0 <= delta < 1:
        raise ValueError(f"delta must be >= 0 and < 1, got {delta!r}")
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
    lots = os_keyed() if rng is None else rng
    if independent:
        made = sign_guesses(runs, guesses=guesses, half=curve is not None, rng=lots)
    elif game == "inclusion":
        made = inclusion_guesses(runs, guesses=guesses, rng=lots)
    else:
        made = label_guesses(runs, at=at, guesses=guesses)
    method = _method(made, len(runs), curve, independent=independent)
    error = 1 - confidence
    lower, either = (_lower_ends(made, method, delta=delta, error=e) for e in (error, error / 2))
    best = int(lower.argmax())  # where no cut shows anything, the one that guesses most
    estimate, upper = if_independent(made, best, delta=None if curve is None else delta, error=error / 2)
    return CanaryBound(
        epsilon=float(lower[best]),
        interval=(float(either[best]), upper),
        estimate=estimate,
        delta=float(delta),
        right=int(made.right[best]),
        guesses=int(made.made[best]),
        n_canaries=made.n_canaries,
        n_candidates=made.n_candidates,
        at=None if made.planned else float(made.at[best]),
        n_cuts=int(made.right.size),
        confidence=confidence,
        method=method,
        note=_NOTES[method],
    )


def clearest_bound(bound: CanaryBound) -> float:
    """The bound if all canaries had been guessed, and every guess were right."""
    all_right = Guesses(
        right=np.array([bound.n_canaries]),
        made=np.array([bound.n_canaries]),
        at=np.array([np.nan]),
        n_canaries=bound.n_canaries,
        n_candidates=bound.n_candidates,
        planned=bound.at is None,
    )
    return float(_lower_ends(all_right, bound.method, delta=bound.delta, error=1 - bound.confidence)[0])


def claimed_mu(curve: Curve) -> float:
    """The mu of a claimed curve, if it is exactly that of a Gaussian."""
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
    return math.sqrt(curve.mu_squared)


def _method(made: Guesses, n_runs: int, curve: Curve | None, *, independent: bool) -> Method:
    if curve is not None:
        claimed_mu(curve)
    if independent:
        return "independent" if curve is None else "independent-gaussian"
    if curve is not None:
        if made.n_candidates != 2 or not made.planned:
            raise ValueError("curve needs two candidates, and guesses that are fixed in advance")
        return "gaussian"
    if n_runs > 1 and made.n_canaries == n_runs and not made.planned:
        return "many-runs"
    return "steinke" if made.planned and made.n_candidates == 2 else "any-dependence"


def _lower_ends(made: Guesses, method: Method, *, delta: float, error: float) -> np.ndarray:
    """Lower end of epsilon for each cut; all of them together err with probability ``error``."""
    cuts = list(zip(made.right.tolist(), made.made.tolist(), strict=True))
    each = error / len(cuts)
    if method == "independent":
        ends = [separate_end(*cut, delta=delta, error=each) for cut in cuts]
    elif method in {"gaussian", "independent-gaussian"}:
        separate = method != "gaussian"
        ends = [
            gaussian_end(*cut, made.n_canaries, separate=separate, delta=delta, error=each) for cut in cuts
        ]
    elif delta == 0 or method == "many-runs":
        return _independent_ends(made, delta=delta, error=error)
    elif made.planned:
        tails = partial(_planned, n_delta=made.n_canaries * delta, steinke=method == "steinke")
        ends = [_tail_end(*cut, made.n_candidates, tails, error=each) for cut in cuts]
    else:
        distance, paid = price_of_delta(made.n_canaries, delta=delta, error=error)
        tails, each = partial(near_tail, distance=distance), (error - paid) / len(cuts)
        ends = [_tail_end(*cut, made.n_candidates, tails, error=each) for cut in cuts]
    return np.array(ends)


def _planned(right: int, guesses: int, share: float, *, n_delta: float, steinke: bool) -> float:
    """The tail for a number of guesses that is fixed in advance; for fair coins the smaller of two bounds."""
    tail = planned_tail(right, guesses, share, n_delta=n_delta)
    return min(tail, steinke_tail(right, guesses, share, n_delta=n_delta)) if steinke else tail


def _tail_end(
    right: int, guesses: int, n_candidates: int, tail: Callable[[int, int, float], float], *, error: float
) -> float:
    """The largest epsilon under which so many right guesses have probability at most ``error``."""

    def refuted(epsilon: float) -> bool:
        return tail(right, guesses, share_of(epsilon, n_candidates)) <= error

    return largest_refuted(refuted, most=_MOST) * _DOWN


def _independent_ends(made: Guesses, *, delta: float, error: float) -> np.ndarray:
    """Clopper and Pearson's ends; of independent trainings, without the guesses that delta gave away."""
    given, chance = 0, 0.0
    if delta > 0:
        given = int(scipy.stats.binom.isf(_SET_ASIDE * error, made.n_canaries, delta))
        chance = float(scipy.stats.binom.sf(given, made.n_canaries, delta))
    least, _ = clopper_pearson(
        np.maximum(made.right - given, 0),
        np.maximum(made.made, 1),
        error=(error - chance) / made.right.size,
    )
    return odds(least, made.n_candidates) * _DOWN


def _plain(value: float) -> float | str:
    return "inf" if value == math.inf else value
