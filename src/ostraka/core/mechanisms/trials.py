"""Private choice of settings: a random number of trials, of which the best one is released."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from ostraka.core import check
from ostraka.core.curve import Curve
from ostraka.core.numeric import up
from ostraka.core.released import Model

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.core.mechanisms.law import Releasing
    from ostraka.core.private import Adjacency, Private
    from ostraka.core.released import Released

_MOST, _MOST_ETA = 1e4, 100.0  # trials that are expected; with a larger eta they are as good as Poisson
_LEAST_LOG_GAMMA = -700.0
_WORD, _DIGITS = 62, 60  # bits of each half of the number that decides how many, digits of its arithmetic
_END = Decimal(10) ** -50  # chances of more trials than that are never drawn
_SLACK = 2.0**-100  # more than such a number and these chances are off
_LINES, _POINTS = 64, 20_000  # of a trade-off, and chances at which it is bounded
_FARTHEST_DELTA = 1e-13
_OUTWARD = 1 + 1e-11


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BestTrial:
    """Try settings a random number of times, and release the trial with the highest score.

    Each trial takes one of the settings at random and releases from the data as that mechanism does. All
    trials but the best stay secret, and so does their number.

    Parameters
    ----------
    settings : tuple of mechanisms
        All hide the same change. Public.
    n_trials : float, at most 10,000
        Expected number of trials, above 1; above 0 for Poisson numbers. Public.
    score : callable(released) -> float, optional
        Public, and a function of what one trial released, and of public values. None: what is named
        ``"score"`` in it, or its first number. A score that is NaN or raises counts as minus infinity. Its
        name stands for it in the ledger: name two scores differently.
    eta : float, above -1 and at most 100, or None
        The number of trials is truncated negative binomial, at least 1: with 1 it is geometric (Liu and
        Talwar), with 0 logarithmic. Less varies more, and costs less. None: it is Poisson, which varies
        least; it may be 0, and then there is no answer. Public.
    n_answers : int >= 1
        Uses that each trial makes of its mechanism. Public.

    Raises
    ------
    ValueError
        No settings, settings that hide different changes or count on sampling, or a number out of range;
        when asked, data of which a setting makes more uses.

    Guarantees
    ----------
    ``curve()`` bounds one release in both directions. At each order it is the smallest of two bounds. One is
    Theorem 2 of Papernot and Steinke. The other is the lemma behind it, and behind their Theorem 6, over all
    pairs of chances that one trial's own trade-off of errors allows (docs/accounting.md). It is for any
    score, and for settings of which only one is good. The number of trials is drawn to 2^-100 of its law.
    Source: Papernot and Steinke 2022, arXiv:2110.03620, Theorems 2 and 6, Lemma 7; Liu and Talwar 2019,
    doi:10.1145/3313276.3316377.

    Notes
    -----
    How long a release takes tells how many trials there were, which costs more: show neither the time nor
    progress. Failures of a setting's own ``release`` are seen, too: settings must not fail.

    Examples
    --------
    >>> from ostraka import Private
    >>> from ostraka.mechanisms import GaussianSums
    >>> settings = tuple(GaussianSums(n_columns=1, sigma=sigma) for sigma in (4.0, 8.0))
    >>> choice = BestTrial(settings=settings, n_trials=10.0)
    >>> rows = Private([[0.5]] * 40, choice.promise)
    >>> best = choice.release(rows, rng=np.random.default_rng(0))
    >>> sorted(best), int(best["setting"])
    (['answer', 'score', 'setting'], 0)
    >>> [round(cost.epsilon(delta=1e-5), 2) for cost in (settings[0].curve(), choice.curve())]
    [0.93, 1.51]
    """

    settings: tuple[Releasing, ...]
    n_trials: float
    score: Callable[[Any], float] | None = None
    eta: float | None = 1.0
    n_answers: int = 1

    def __post_init__(self) -> None:
        if not (isinstance(self.settings, tuple) and self.settings):
            raise ValueError("settings must be a tuple of at least one mechanism")
        if len({setting.promise for setting in self.settings}) > 1:
            raise ValueError(
                f"settings must all hide the same change, got {', '.join(map(repr, self.settings))}"
            )
        if self.promise.sampling_rate != 1:
            raise ValueError(
                "settings must not count on sampling: one sample would be answered from in every trial"
            )
        check.integer(n_answers=self.n_answers, least=1)
        check.positive(n_trials=self.n_trials)
        if self.n_trials > _MOST or (self.eta is not None and self.n_trials <= 1):
            least = 0 if self.eta is None else 1
            raise ValueError(f"n_trials must be above {least} and at most {_MOST:g}, got {self.n_trials!r}")
        if self.eta is not None and not -1 < self.eta <= _MOST_ETA:
            raise ValueError(f"eta must be None, or > -1 and at most {_MOST_ETA:g}, got {self.eta!r}")
        if self.eta is not None and _mean(_LEAST_LOG_GAMMA, self.eta) <= self.n_trials:
            raise ValueError(
                f"n_trials={self.n_trials!r} is out of reach of eta={self.eta!r}: take a larger eta"
            )

    def __repr__(self) -> str:
        own = ""
        if self.score is not None:
            named = self.score if hasattr(self.score, "__qualname__") else type(self.score)
            own = f"score=<{named.__module__}.{named.__qualname__}>, "
        return (
            f"BestTrial(settings={self.settings!r}, n_trials={self.n_trials!r}, {own}eta={self.eta!r}, "
            f"n_answers={self.n_answers!r})"
        )

    @property
    def promise(self) -> Adjacency:
        """What each of the settings hides."""
        return self.settings[0].promise

    def curve(self) -> Curve:
        """Cost of one release, whatever the data and the scores."""
        return _curve(
            tuple(self.n_answers * setting.curve() for setting in self.settings), self.n_trials, self.eta
        )

    def uses(self, private: Private) -> int:
        """One use for everything."""
        if (most := max(setting.uses(private) for setting in self.settings)) > self.n_answers:
            raise ValueError(
                f"each trial makes {most} uses of such data, and n_answers={self.n_answers} are paid for: "
                f"type n_answers={most}"
            )
        return 1

    def release(self, private: Private, *, rng: np.random.Generator) -> Released:
        """The best trial: ``"setting"``, its place among the settings, ``"score"``, and what it released.

        An array is called ``"answer"``, a model ``"model"`` (bytes), and named arrays keep their names.
        Without any trial the setting is -1 and nothing else is there.
        """
        place, highest, best = -1, -math.inf, None
        for _ in range(n_trials(self.n_trials, self.eta, rng=rng)):
            setting = int(rng.integers(len(self.settings)))
            released = self.settings[setting].release(private, rng=rng)
            try:
                if self.score is not None:
                    score = float(self.score(released))
                elif isinstance(released, dict):
                    score = float(released["score"])
                else:
                    score = float(np.ravel(released)[0])  # type: ignore[arg-type]
            except Exception:  # noqa: BLE001  an error would tell of a trial that nobody has paid for
                score = -math.inf
            if math.isnan(score):
                score = -math.inf
            if best is None or score > highest:  # of equal ones the first: any of them, by chance alone
                place, highest, best = setting, score, released
        named = {"setting": np.array(place), "score": np.array(highest)}
        if best is None:
            return named
        if isinstance(best, Model):
            best = {"model": np.frombuffer(best.data, dtype=np.uint8)}
        return (best if isinstance(best, dict) else {"answer": best}) | named

    def log_best(self, log_chances: Any) -> np.ndarray:
        """Log probability that each outcome is the best one, from those of one trial; the last: no trial.

        Parameters
        ----------
        log_chances : array of shape (n_outcomes,), nats
            Of one trial, in rising order of the score. Private if it is computed from private data.
        """
        up_to = np.append(0.0, np.minimum(np.cumsum(np.exp(np.asarray(log_chances, dtype=float))), 1.0))
        # the chance that all trials are in a set which one trial is in by a share; without the empty case
        if self.eta is None:
            below = np.exp(self.n_trials * (up_to - 1)) - math.exp(-self.n_trials)
        else:
            log_gamma = math.log(_gamma(self.n_trials, self.eta))
            below = np.log1p(up_to * math.expm1(log_gamma))
            if self.eta == 0:
                below = below / log_gamma
            else:
                below = np.expm1(-self.eta * below) / math.expm1(-self.eta * log_gamma)
        with np.errstate(divide="ignore"):
            shares = np.log(np.diff(below))
        return np.append(shares, -self.n_trials if self.eta is None else -math.inf)


def n_trials(mean: float, eta: float | None, *, rng: np.random.Generator) -> int:
    """Draw a number of trials with this mean; 60 decimal digits decide."""
    drawn = [int(word) for word in rng.integers(1 << _WORD, size=2)]
    with localcontext() as context:
        context.prec = _DIGITS
        rest = Decimal(drawn[0] << _WORD | drawn[1]) / (1 << 2 * _WORD)
        if eta is None:
            number, chance = 0, (-Decimal(mean)).exp()
        else:
            gamma, shape = Decimal(_gamma(mean, eta)), Decimal(eta)
            first = gamma**-shape - 1 if eta else -gamma.ln()
            number, chance = 1, (1 - gamma) * (shape if eta else 1) / first
        while rest >= chance and (chance > _END or number < mean):
            rest, number = rest - chance, number + 1
            if eta is None:
                chance *= Decimal(mean) / number
            else:
                chance *= (1 - gamma) * (number - 1 + shape) / number
    return number


@lru_cache(maxsize=256)
def _gamma(mean: float, eta: float) -> float:
    """The parameter gamma of a truncated negative binomial number with this mean."""
    return float(
        np.exp(brentq(lambda log: math.log(_mean(log, eta) / mean), _LEAST_LOG_GAMMA, -1e-12, xtol=1e-14))
    )


def _mean(log_gamma: float, eta: float) -> float:
    """Mean of a truncated negative binomial number."""
    odds = math.expm1(-log_gamma)
    return odds / -log_gamma if eta == 0 else odds * eta / -math.expm1(eta * log_gamma)


@lru_cache(maxsize=64)
def _curve(trials: tuple[Curve, ...], mean: float, eta: float | None) -> Curve:
    """What the best of several trials costs, each of which costs one of these."""
    one = trials[0]
    for other in trials[1:]:
        one = Curve(  # a mixture that says which one it is costs no more than the dearest
            one.orders,
            tuple(max(pair) for pair in zip(one.rdp, other.rdp, strict=True)),
            one.moves,
            publishable=one.publishable and other.publishable,
        )
    orders, rdp = np.array(one.orders), np.array(one.rdp)
    share = 1 / (orders - 1)  # of a logarithm, none at infinity
    if eta is None:
        lemma, never = mean * _beyond(trials, np.log1p(share)), -mean
    else:
        log_gamma = math.log(_gamma(mean, eta))
        # Theorem 2: the smallest of (1 - 1 / order) times the divergence, less log(gamma) / order; also at 1
        with np.errstate(invalid="ignore"):
            theorem = np.where(np.isinf(rdp), math.inf, (1 - 1 / orders) * rdp - log_gamma / orders)
        furthest = np.minimum(_most(trials, orders, log_gamma), min(-log_gamma, float(theorem.min())))
        lemma, never = (1 + eta) * furthest, -math.inf
    cost = rdp + lemma + share * math.log(mean)
    log_sum = np.divide(cost, share, out=np.full_like(cost, math.inf), where=share > 0)
    cost += share * np.logaddexp(0.0, never - log_sum)  # and the same empty answer on both sides
    cost = np.minimum.accumulate(cost[::-1])[::-1]  # a divergence of a higher order is no smaller
    return Curve(
        one.orders,
        tuple((np.maximum(cost, 0.0) * _OUTWARD).tolist()),
        one.moves,
        publishable=all(trial.publishable for trial in trials),
        slack=up(mean * max(trial.slack for trial in trials) + _SLACK),
    )


def _beyond(trials: tuple[Curve, ...], epsilons: np.ndarray) -> np.ndarray:
    """The delta of one trial at each epsilon; of votes without tables, which take seconds and gain little."""
    quick = [
        trial if any(law.is_sampled for law in trial.laws or ()) else replace(trial, laws=None)
        for trial in trials
    ]
    return np.array([max(trial.delta(epsilon) for trial in quick) for epsilon in epsilons.tolist()])


def _most(trials: tuple[Curve, ...], orders: np.ndarray, log_gamma: float) -> np.ndarray:
    """The largest log(1 - c q') - order / (order - 1) log(1 - c q) + log(gamma) / (order - 1) at each order.

    c is 1 - gamma, and (q, q') are chances of one event under neighbours, which one trial allows. Between two
    points q' counts as the smaller one, and q as what the larger one allows.
    """
    log_rest = np.linspace(0.0, log_gamma, _POINTS)  # log(1 - c q')
    there = np.minimum(np.expm1(log_rest) / math.expm1(log_gamma), 1.0)
    here = np.log1p(np.maximum(_furthest(trials, there), there) * math.expm1(log_gamma))
    here = np.maximum(here, log_gamma) - 1e-12
    shares = (1 / (orders - 1)).tolist()
    return np.array([(log_rest[:-1] - (1 + share) * here[1:]).max() + share * log_gamma for share in shares])


def _furthest(trials: tuple[Curve, ...], there: np.ndarray) -> np.ndarray:
    """The largest chance of an event under one data set, where it has these under a neighbour."""
    top = max(replace(trial, laws=None).epsilon(_FARTHEST_DELTA) for trial in trials)
    epsilons = np.append(np.linspace(0.0, min(top, 700.0), _LINES), top if math.isfinite(top) else 700.0)
    most = np.ones_like(there)
    for epsilon, delta in zip(epsilons.tolist(), _beyond(trials, epsilons).tolist(), strict=True):
        straight = math.exp(epsilon) * there + delta
        turned = 1 - math.exp(-epsilon) * (1 - there - delta)
        most = np.minimum(most, np.minimum(straight, turned))
    mu_squared = max(trial.mu_squared for trial in trials)
    if math.isfinite(mu_squared) and not any(trial.slack for trial in trials):
        most = np.minimum(most, ndtr(ndtri(there) + math.sqrt(mu_squared)) * _OUTWARD)
    return np.asarray(np.minimum(most * _OUTWARD, 1.0))
