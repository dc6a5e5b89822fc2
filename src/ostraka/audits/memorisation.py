"""How much a model trained on private labels gives away of them: lower bounds from guesses about canaries."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka import _check
from ostraka.audits import _guesses
from ostraka.audits.cuts import check_confidence
from ostraka.audits.finding import Finding, Measure, Verdict
from ostraka.scores import Scores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostraka.audits._guesses import Method

__all__ = ["MemorisationBound", "audit_canaries", "memorisation_lower_bound"]

_NOTES: dict[Method, str] = {
    "one-run": "Valid however the canaries of one training depend on one another.",
    "many-runs": "One canary in each of several independent trainings.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorisationBound:
    """What guesses about the labels of canaries say about epsilon.

    Attributes
    ----------
    epsilon : float >= 0, nats
        No smaller epsilon is compatible with what was seen, at this confidence.
    interval : tuple of float, nats
        Both ends at once: Clopper-Pearson for the share of right guesses. The lower end is a bound as
        ``epsilon`` is. The upper end is about **this attack** only, and holds only where guesses are
        independent: another attack may show more, so it is never an upper bound on epsilon.
    estimate : float >= 0, nats
        What the share of right guesses says, without any allowance for chance: no bound.
    delta : float
    right, guesses : int
        Of the cut that gave the bound.
    n_canaries : int
    n_candidates : int
        Labels that are guessed between, for each canary.
    at : float
        Score below which the adversary abstained.
    n_cuts : int
        How many cuts were tried, all of them paid for.
    confidence : float
    method : {"one-run", "many-runs"}
    note : str

    Examples
    --------
    >>> scores = Scores.of(members=[0.9] * 90 + [0.0] * 10, others=[0.0] * 90 + [0.9] * 10)
    >>> memorisation_lower_bound(scores, delta=0.0).to_dict()["right"]
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
    at: float
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


def memorisation_lower_bound(
    scores: Scores | Sequence[Scores],
    *,
    delta: float,
    confidence: float = 0.95,
    at: float | tuple[float, ...] | None = None,
) -> MemorisationBound:
    """Lower bound on the epsilon of label privacy, from guesses about the labels of canaries.

    Parameters
    ----------
    scores : Scores, or sequence of Scores
        Of :meth:`ostraka.attacks.Canaries.scores`. Several: one for each of several independent
        trainings, with canaries of their own. One candidate of each canary is pointed at, with a
        score above 0; the adversary guesses it if the score is large enough.
    delta : float in [0, 1)
        Public. The delta of the claim; 0 for pure differential privacy.
    confidence : float in (0, 1)
    at : float > 0, or tuple of float > 0, optional
        Score below which she abstains, chosen **before** anybody saw which guesses are right. Several:
        the best counts, and each gets an equal part of the error. None: guess all, the surer half, the
        surer quarter and so on down to 30 guesses, which is several, too.

    Returns
    -------
    MemorisationBound
        ``method`` is "many-runs" where every training had one canary, and there were several.

    Raises
    ------
    ValueError
        No scores, or of games with different numbers of candidates; ``at``, ``delta`` or
        ``confidence`` out of range.

    Guarantees
    ----------
    With probability ``confidence`` no training that is (epsilon, delta)-DP for one label, for a smaller
    epsilon, gave these scores. Given which guesses are made, and how sure, the right ones of
    ``guesses`` are stochastically fewer than Binomial(guesses, e^epsilon / (e^epsilon + n_candidates - 1))
    and at most j more, but for probability n_canaries delta / (j + 1); of independent trainings with a
    canary each, but for P(Binomial(n_canaries, delta) > j). j is fixed by these numbers alone.
    Source: Steinke, Nasr and Jagielski 2023, arXiv:2305.08846, Theorem 5.2 (two candidates, delta = 0);
    docs/memorisation.md (proof of the rest).

    Examples
    --------
    >>> from ostraka.attacks import draw_canaries
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 10, size=5000)
    >>> planted = draw_canaries(labels, n_classes=10, n=1000, rng=rng)
    >>> from ostraka import Adjacency, Private
    >>> from ostraka.mechanisms import RandomizedResponse
    >>> mechanism = RandomizedResponse(n_classes=10, epsilon=2.0)
    >>> answers = mechanism.release(Private(planted.plant(labels), Adjacency.one_label()), rng=rng)
    >>> known = mechanism.posterior(answers[planted.positions], np.full((1000, 10), 0.1))
    >>> bound = memorisation_lower_bound(planted.scores(known), delta=0.0)
    >>> round(bound.epsilon, 2), bound.right, bound.guesses
    (1.85, 445, 946)
    """
    check_confidence(confidence)
    if not 0 <= delta < 1:
        raise ValueError(f"delta must be >= 0 and < 1, got {delta!r}")
    runs = [scores] if isinstance(scores, Scores) else list(scores)
    n_canaries, n_candidates = _guesses.sizes(runs)
    single = len(runs) > 1 and n_canaries == len(runs)
    method: Method = "many-runs" if single else "one-run"
    cuts, right, guesses = _guesses.counts(runs, at)
    one_sided, two_sided = (
        _guesses.ends(right, guesses, n_candidates, n_canaries, delta=delta, error=error, method=method)
        for error in (1 - confidence, (1 - confidence) / 2)
    )
    best = int(one_sided[0].argmax())  # where no cut shows anything, the one that guesses most
    share = right[best] / max(guesses[best], 1)
    return MemorisationBound(
        epsilon=float(one_sided[0][best]),
        interval=(float(two_sided[0][best]), float(two_sided[1][best])),
        estimate=float(_guesses.epsilon(np.array(share), n_candidates)) if guesses[best] else 0.0,
        delta=float(delta),
        right=int(right[best]),
        guesses=int(guesses[best]),
        n_canaries=n_canaries,
        n_candidates=n_candidates,
        at=float(cuts[best]),
        n_cuts=int(cuts.size),
        confidence=confidence,
        method=method,
        note=_NOTES[method],
    )


def audit_canaries(
    scores: Scores | Sequence[Scores],
    *,
    claimed_epsilon: float,
    delta: float,
    confidence: float = 0.95,
    at: float | tuple[float, ...] | None = None,
) -> Finding:
    """Hold a model that was trained with canaries to the label privacy that was claimed for it.

    Parameters
    ----------
    scores, delta, confidence, at
        As for :func:`memorisation_lower_bound`.
    claimed_epsilon : float, nats
        The claim.

    Returns
    -------
    Finding
        *Violated*: the claim is too small. *Inconclusive*: chance could be the reason for more right
        guesses than the claim allows, or even right guesses only could not contradict it. Else
        *consistent*: which is no proof, since another attack may guess better. ``trials`` are canaries.

    Raises
    ------
    ValueError
        As for :func:`memorisation_lower_bound`, or a claim below 0.

    Examples
    --------
    >>> scores = Scores.of(members=[0.9] * 95 + [0.0] * 5, others=[0.0] * 95 + [0.9] * 5)
    >>> audit_canaries(scores, claimed_epsilon=1.0, delta=0.0).verdict
    'violated'
    """
    _check.nonnegative(claimed_epsilon=claimed_epsilon)
    bound = memorisation_lower_bound(scores, delta=delta, confidence=confidence, at=at)
    clearest = _guesses.ends(
        np.array([bound.n_canaries]),
        np.array([bound.n_canaries]),
        bound.n_candidates,
        bound.n_canaries,
        delta=delta,
        error=1 - confidence,
        method=bound.method,
    )[0][0]
    verdict, sentence = _judged(bound, clearest=float(clearest), claimed=claimed_epsilon)
    return Finding(
        name=f"labels of {bound.n_canaries:,} canaries, each one of {bound.n_candidates}",
        verdict=verdict,
        sentence=sentence,
        measures=(
            Measure(
                what=f"epsilon at delta {delta:g}", upper=claimed_epsilon, exact=None, lower=bound.epsilon
            ),
        ),
        confidence=confidence,
        trials=bound.n_canaries,
        method=bound.method,
        note=bound.note,
    )


def _judged(bound: MemorisationBound, *, clearest: float, claimed: float) -> tuple[Verdict, str]:
    seen = f"{bound.right:,} of {bound.guesses:,} guesses are right"
    sure = f"at least {bound.epsilon:.4g} (confidence {bound.confidence:g})"
    if bound.epsilon > claimed:
        return "violated", (
            f"The claim is false: {seen}, which takes an epsilon of {sure}, and {claimed:g} was claimed."
        )
    if clearest <= claimed:
        return "inconclusive", (
            f"So few canaries cannot contradict an epsilon of {claimed:g}: were every guess right, they "
            f"would show {clearest:.4g}. Plant more."
        )
    if bound.estimate > claimed:
        return "inconclusive", (
            f"{seen.capitalize()}, which says {bound.estimate:.4g}, above the claim of {claimed:g}; but "
            f"chance could be the reason, and only {sure} is certain. Plant more canaries."
        )
    return "consistent", (
        f"Nothing contradicts an epsilon of {claimed:g}: {seen}, which takes an epsilon of {sure}. That "
        f"is no proof: another attack may guess better."
    )


def _plain(value: float) -> float | str:
    return "inf" if value == math.inf else value
