"""What repeated questions reveal of the votes: information bound, meter, maximum-likelihood estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri
from scipy.stats.qmc import Sobol

from ostraka.core import check
from ostraka.core.mechanisms.law import check_ballot, law

if TYPE_CHECKING:
    from ostraka.core.mechanisms.law import BallotMechanism

_DRAWS = 64
_LEADER = (0.1, 0.7, 0.99)  # its share of the votes, before any answer: like the others, most, nearly all
_REPEATS = (1, 10, 100, 1_000, 10_000)
_QUESTIONS = 24  # that a panel looks at


def cramer_rao(mechanism: BallotMechanism, counts: Any, *, n_answers: int) -> np.ndarray:
    """Smallest standard deviation of any unbiased estimate of each count, from so many answers.

    Parameters
    ----------
    mechanism : GNMax, LNMax, Confident or any other that answers with a class, or NoisyCounts
        Public.
    counts : array of shape (n_queries, n_classes), in votes
        Private. Not negative.
    n_answers : int >= 1
        How often each question was put.

    Returns
    -------
    float64 array, shape (n_queries, n_classes), in votes
        Private, as the counts are. 0 for a count of 0, which the attacker is then taken to know.

    Raises
    ------
    ValueError
        Counts negative, not finite or of one class; ``n_answers`` not an integer >= 1.

    Guarantees
    ----------
    Among estimates that know the number of votes. Where every count is several deviations above 0
    it also describes biased ones, such as those kept at or above 0; near 0 these can do better.
    Source: Gorman and Hero 1990, doi:10.1109/18.57210 (constraints).

    Examples
    --------
    >>> from ostraka import GNMax
    >>> cramer_rao(GNMax(sigma=40.0), [[100, 80, 70]], n_answers=10_000).round(2)
    array([[0.43, 0.47, 0.49]])
    """
    votes = _votes(mechanism, counts)
    check.integer(n_answers=n_answers, least=1)
    precisions = n_answers * information(mechanism, votes)
    spread = np.zeros(votes.shape)
    for row, (h, precision) in enumerate(zip(votes, precisions, strict=True)):
        free = h > 0
        if free.sum() > 1:
            basis = tangent(int(free.sum()))
            inside = np.linalg.pinv(basis.T @ precision[np.ix_(free, free)] @ basis, hermitian=True)
            spread[row, free] = np.sqrt(np.diag(basis @ inside @ basis.T).clip(0))
    return spread


def leakage_meter(mechanism: BallotMechanism, counts: Any, *, n_answers: Any) -> np.ndarray:
    """Votes that the best attacker still gets wrong after so many answers to one question.

    An attacker who knows which class leads and has a first guess of the other counts (the better
    of three: the leader has a tenth, most, or nearly all of the votes), and weighs answers by
    their information, under counts >= 0 with a known sum. Expected sum of absolute errors, halved,
    so that one misplaced vote counts once.

    Parameters
    ----------
    mechanism : GNMax, LNMax, Confident or any other that answers with a class, or NoisyCounts
        Public.
    counts : array of shape (n_queries, n_classes), in votes
        Private. Not negative.
    n_answers : int >= 0, or array of them, shape (n_points,)
        How often a question was answered so far.

    Returns
    -------
    float64 array, shape (n_queries,) or (n_queries, n_points), in votes
        Private, as the counts are: for the owner only.

    Raises
    ------
    ValueError
        Counts negative, not finite or of one class; ``n_answers`` negative or fractional.

    Guarantees
    ----------
    The answers' information at the true votes, by Le Cam's local limit (a Gaussian shift), averaged
    over 64 fixed quasi-random draws: an expectation, not a bound. The mean over 15 questions was
    within 26 % of what :func:`recover_votes` reaches; one question was up to five times above it,
    and for unanimous teachers after few answers up to eleven times below (docs/record/vote-recovery.md).

    Examples
    --------
    >>> from ostraka import GNMax
    >>> left = leakage_meter(GNMax(sigma=40.0), [[150, 60, 40]], n_answers=[0, 100, 10_000])
    >>> round(left[0, 0].item(), 6), bool(left[0, 1] > left[0, 2])
    (25.0, True)
    """
    votes = _votes(mechanism, counts)
    points = np.asarray(n_answers)
    if points.dtype.kind not in "iu" or points.ndim > 1 or (points < 0).any():
        raise ValueError(f"n_answers must be an integer >= 0 or an array of them, got shape {points.shape}")
    precisions = information(mechanism, votes)
    # fixed quasi-random normal draws, as many above zero as below
    half = ndtri(Sobol(votes.shape[1], scramble=True, rng=0).random(_DRAWS // 2).clip(1e-6, 1 - 1e-6))
    normal = np.concatenate([half, -half])
    wrong = np.array(
        [
            [_error(h, m * precision, normal) for m in points.ravel()]
            for h, precision in zip(votes, precisions, strict=True)
        ]
    )
    return wrong.reshape(len(votes), *points.shape)


def leakage_panel(
    mechanism: BallotMechanism, counts: Any, *, n_answers: Any = _REPEATS, delta: float = 1e-5
) -> dict[str, Any]:
    """Numbers about what repeated questions reveal, for the owner's part of a record.

    Parameters
    ----------
    mechanism, counts
        As for :func:`leakage_meter`.
    n_answers : array of int, shape (n_points,)
        Numbers of repeats to look at.
    delta : float
        For the price of these repeats.

    Returns
    -------
    dict
        ``questions``: how many it looks at, at most 24, from the closest vote to the clearest;
        ``delta``; and lists of one number a point. ``repeats``; ``votes_wrong``, the mean over questions of
        :func:`leakage_meter`; ``share_wrong``, the same as a share of the votes;
        ``share_wrong_least``, of the question that is easiest to read; and
        ``epsilon``, what so many repeats of one question cost at most.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> panel = leakage_panel(GNMax(sigma=40.0), [[150, 60, 40]], n_answers=[1, 1000])
    >>> panel["repeats"], panel["votes_wrong"][0] > panel["votes_wrong"][1]
    ([1, 1000], True)
    """
    points = np.atleast_1d(np.asarray(n_answers))
    votes = _votes(mechanism, counts)
    order = np.argsort(votes.max(axis=1), kind="stable")
    votes = votes[order[np.unique(np.linspace(0, len(votes) - 1, _QUESTIONS).astype(int))]]
    wrong = leakage_meter(mechanism, votes, n_answers=points)
    once = mechanism.curve()
    return {
        "questions": len(votes),
        "repeats": points.tolist(),
        "votes_wrong": wrong.mean(axis=0).tolist(),
        "share_wrong": (wrong / votes.sum(axis=1, keepdims=True)).mean(axis=0).tolist(),
        "share_wrong_least": (wrong / votes.sum(axis=1, keepdims=True)).min(axis=0).tolist(),
        "epsilon": [(int(m) * once).epsilon(delta) for m in points],
        "delta": delta,
    }


def _votes(mechanism: BallotMechanism, counts: Any) -> np.ndarray:
    if law(mechanism).stages[-1].information is None:
        check_ballot(mechanism, classes=True)
    votes = check.counts(counts)
    if (votes < 0).any() or not votes.sum(axis=1).all():
        raise ValueError(f"counts of shape {votes.shape} must be >= 0, with a vote in every row")
    return votes


def _error(votes: np.ndarray, fisher: np.ndarray, normal: np.ndarray) -> float:
    """Expected votes wrong of the estimate that weighs a first guess and a Gaussian shift's one look."""
    from ostraka.core.kernels import steps as _steps  # noqa: PLC0415  (compiled code, loaded when needed)

    values, vectors = np.linalg.eigh(fisher)
    looks = normal @ (vectors * np.sqrt(values.clip(0))).T
    leads, total, wrong = np.arange(len(votes)) == votes.argmax(), votes.sum(), []
    for (
        share
    ) in _LEADER:  # what an attacker expects who knows the leading class and its share, and how firmly
        guess = np.where(leads, share, (1 - share) / (len(votes) - 1)) * total
        firm = np.where(leads, total / 12**0.5, np.maximum(guess, 1.0)) ** -2.0
        precision, pull = fisher + np.diag(firm), firm * (guess - votes)
        moved = np.abs(_steps.best_steps(votes, pull + looks, precision)).sum(axis=1)
        wrong.append(float(moved.mean() / 2))
        wrong.append(float(np.abs(guess - votes).sum() / 2))  # answers may be left aside
    return min(wrong)


def information(mechanism: BallotMechanism, counts: np.ndarray) -> np.ndarray:
    """Fisher information of one answer, shape (n, n_classes, n_classes), per vote squared."""
    return law(mechanism).information(counts)


def tangent(n_classes: int) -> np.ndarray:
    """Orthonormal basis of the changes that keep the number of votes, shape (n_classes, n_classes - 1)."""
    steps = np.eye(n_classes)[:, 1:] - 1 / n_classes
    basis: np.ndarray = np.linalg.qr(steps)[0]
    return basis


_ENOUGH = 1e-7  # nats that another step could still gain
_MOST_STEPS = 60
_FLAT = 1e-12  # curvature where answers say nothing at all


def most_likely(answers: np.ndarray, total: float, mechanism: BallotMechanism) -> np.ndarray:
    """Votes, not negative and adding up to ``total``, that maximise the likelihood of the answers.

    Without a screen the likelihood is log-concave in the votes (noise with a log-concave density,
    Prékopa 1973), so what is found is the only maximum.
    """
    from ostraka.core.kernels.steps import best_steps  # noqa: PLC0415  (compiled code, loaded when needed)

    n_classes = len(answers) - law(mechanism).abstains
    smoothed = answers[:n_classes] + 1.0
    votes: np.ndarray = total * smoothed / smoothed.sum()
    gain, slope, curvature = _model(answers, votes, mechanism)
    damping = 0.0
    for _ in range(_MOST_STEPS):
        ridge = (damping + 1e-12) * np.trace(curvature) / n_classes + _FLAT
        [step] = best_steps(votes, slope[None], curvature + ridge * np.eye(n_classes))
        promised = float(slope @ step)
        if promised < _ENOUGH:
            if damping == 0 or promised < _ENOUGH * 1e-3:
                break
            damping = 0.0
            continue
        size = 1.0
        while size > 1e-6:
            proposal = np.maximum(votes + size * step, 0.0)
            fit = _model(answers, proposal, mechanism)
            if fit[0] >= gain + 1e-4 * size * promised:
                break
            size *= 0.5 if size > 0.3 else 0.25
        else:
            break
        damping = 0.0 if size == 1.0 else max(2 * damping, 1e-3)
        votes = proposal * (total / proposal.sum())
        gain, slope, curvature = fit
    return votes


def _model(
    answers: np.ndarray, votes: np.ndarray, mechanism: BallotMechanism
) -> tuple[float, np.ndarray, np.ndarray]:
    """Log likelihood, its gradient, and the expected curvature (Fisher information)."""
    logs, slopes = law(mechanism).gradient(votes[None])
    log_q, slope = logs[0], slopes[0]
    answered = answers > 0
    weighted = slope * (answers.sum() * np.exp(log_q))[:, None]
    return float(answers[answered] @ log_q[answered]), answers[answered] @ slope[answered], slope.T @ weighted
