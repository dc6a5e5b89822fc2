"""Audits of a training with canaries against the epsilon, or the Gaussian curve, that was claimed for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostraka import _check
from ostraka.audits.finding import Finding, Measure, Verdict
from ostraka.audits.one_run import CanaryBound, Game, clearest_bound, one_run_lower_bound

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from ostraka.curve import Curve
    from ostraka.scores import Scores

__all__ = ["audit_canaries"]


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
    >>> from ostraka.scores import Scores
    >>> scores = Scores.of(members=[0.9] * 95 + [0.0] * 5, others=[0.0] * 95 + [0.9] * 5)
    >>> audit_canaries(scores, game="labels", claimed_epsilon=1.0, delta=0.0).verdict
    'violated'
    """
    if (claimed_epsilon is None) == (curve is None):
        raise ValueError("the claim must be either claimed_epsilon or curve")
    bound = one_run_lower_bound(
        scores,
        delta=delta,
        confidence=confidence,
        game=game,
        guesses=guesses,
        at=at,
        curve=curve,
        rng=rng,
    )
    claimed = curve.epsilon(delta) if curve is not None else float(claimed_epsilon or 0.0)
    _check.nonnegative(claimed_epsilon=claimed if claimed_epsilon is None else claimed_epsilon)
    verdict, sentence = _judged(bound, clearest=clearest_bound(bound), claimed=claimed)
    what = "labels" if game == "labels" else "inclusion"
    return Finding(
        name=f"{what} of {bound.n_canaries:,} canaries, each one of {bound.n_candidates}",
        verdict=verdict,
        sentence=sentence,
        measures=(
            Measure(what=f"epsilon at delta {delta:g}", upper=claimed, exact=None, lower=bound.epsilon),
        ),
        confidence=confidence,
        trials=bound.n_canaries,
        method=bound.method,
        note=bound.note,
    )


def _judged(bound: CanaryBound, *, clearest: float, claimed: float) -> tuple[Verdict, str]:
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
