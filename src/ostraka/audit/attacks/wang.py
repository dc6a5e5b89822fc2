"""The attacks of Wang et al. 2022 (vote recovery, low agreement), and linear disaggregation of sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.audit.attacks.properties import own_sums, own_worlds
from ostraka.core import check
from ostraka.core.mechanisms.law import law
from ostraka.core.scores import Scores

if TYPE_CHECKING:
    from ostraka.audit.attacks.parties import Observations
    from ostraka.core.mechanisms.law import BallotMechanism

_MOST_STEPS = 100
_LONG, _SHORT = 10.0, 1.0  # votes


def descend(answers: np.ndarray, n_teachers: int, mechanism: BallotMechanism) -> np.ndarray:
    """Votes whose outcome law points where the answers' frequencies point: steps of ten votes, then of one.

    Source: Wang et al. 2022, arXiv:2209.10732, Algorithm 2, and the authors' public code for what
    the text leaves open: both vectors are scaled to length one, the start is an even vote, and it
    ends with the first step that makes a count negative, or a short one that does not come nearer
    (that step included, as there). It knows no screen.
    """
    votes: np.ndarray = np.full(len(answers), n_teachers / len(answers))
    aim = answers / np.linalg.norm(answers)
    stride = _LONG
    distance, slope = _distance(votes, aim, mechanism)
    for _ in range(_MOST_STEPS):
        length = float(np.linalg.norm(slope))
        if length == 0:
            break
        proposal = votes - stride / length * slope
        gap, steeper = _distance(proposal, aim, mechanism)
        if gap > distance and stride == _LONG:
            stride = _SHORT
            continue
        ends = gap > distance or bool((proposal < 0).any())
        votes, distance, slope = proposal, gap, steeper
        if ends:
            break
    votes += (n_teachers - votes.sum()) / len(votes)
    return votes


def _distance(votes: np.ndarray, aim: np.ndarray, mechanism: BallotMechanism) -> tuple[float, np.ndarray]:
    logs, slopes = law(mechanism).stages[-1].gradient(votes[None])
    q = np.exp(logs[0])
    by_votes = slopes[0] * q[:, None]
    length = float(np.linalg.norm(q))
    gap = q / length - aim
    distance = float(np.linalg.norm(gap))
    if distance == 0:
        return 0.0, np.zeros(len(votes))
    by_q = (gap - q * (gap @ q) / length**2) / (length * distance)
    return distance, by_q @ by_votes


_TELLABLE = 1e-8  # largest part of another party in an estimate
_CLEARLY = 4.0  # standard errors: by chance 3 times in 100,000
_EXACT = 1e-6  # of the largest entry: sums that fit no better are noisy
_FOUND, _NONE = 0, 2  # what scipy's solver says where it is done


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class PartyMeans:
    """What each party contributes to the sums on average. Private.

    Attributes
    ----------
    mean : float64 array, shape (n_parties, ...)
        NaN for a party that the sums do not tell from others, such as two that always take part together.
    standard_error : float64 array, of the same shape
        Right if contributions vary independently from round to round, alike for all parties, and about as
        many parties take part in each round. NaN where there are no more rounds than parties.
    n_rounds : int64 array, shape (n_parties,)
        In how many rounds each party takes part.
    """

    mean: np.ndarray
    standard_error: np.ndarray
    n_rounds: np.ndarray

    def __repr__(self) -> str:
        return f"PartyMeans(n_parties={len(self.mean)})"


def disaggregate(sums: Any, present: Any) -> PartyMeans:
    """Split sums of changing subsets of parties into the mean contribution of each party, by least squares.

    Parameters
    ----------
    sums : array, shape (n_rounds,) or (n_rounds, width)
        What a server sees behind the masks of secure sums in each round, or a linear statistic of it.
    present : bool array, shape (n_rounds, n_parties)
        Which parties take part in each round.

    Returns
    -------
    PartyMeans

    Raises
    ------
    ValueError
        Other shapes, sums that are not finite, no round with a party.

    Guarantees
    ----------
    None. The estimate is exact if each party contributes the same in every round.
    Source: Kerkouche, Ács and Fritz 2023, arXiv:2303.03908, section 4.

    Examples
    --------
    >>> present = [[1, 1, 0], [0, 1, 1], [1, 0, 1]]
    >>> disaggregate([3.0, 5.0, 4.0], np.array(present, dtype=bool)).mean.round(9)
    array([1., 2., 3.])
    """
    totals = np.asarray(sums, dtype=np.float64)
    took_part, n_rounds = np.asarray(present), len(totals) if totals.ndim else 0
    if took_part.dtype != bool or took_part.ndim != 2 or len(took_part) != n_rounds or not took_part.any():
        raise ValueError(
            f"present must be bool (n_rounds, n_parties) for {n_rounds} rounds, with a party in one or more, "
            f"got {took_part.dtype} of shape {took_part.shape}"
        )
    if totals.ndim not in (1, 2) or not np.isfinite(totals).all():
        raise ValueError("sums must be finite numbers, (n_rounds,) or (n_rounds, width)")
    flat = totals.reshape(len(totals), -1)
    design = took_part.astype(np.float64)
    inverse = np.linalg.pinv(design)
    others = np.abs(inverse @ design - np.eye(design.shape[1])).max(axis=1)
    mean = inverse @ flat
    mean[others > _TELLABLE] = np.nan
    spare = len(flat) - int(np.linalg.matrix_rank(design))
    residuals = flat - design @ (inverse @ flat)
    variance = (residuals**2).sum(axis=0) / spare if spare else np.full(flat.shape[1], np.nan)
    error = np.sqrt((inverse**2).sum(axis=1)[:, None] * variance)
    error[np.isnan(mean)] = np.nan
    shape = (design.shape[1], *totals.shape[1:])
    return PartyMeans(
        mean=mean.reshape(shape), standard_error=error.reshape(shape), n_rounds=took_part.sum(axis=0)
    )


def infer_participation(sums: Any, times: Any) -> np.ndarray:
    """Find which party took part in which round, from the sums and from how often each one took part.

    Parameters
    ----------
    sums : array, shape (n_rounds, width)
        More rounds than parties. ``width`` at least the number of parties.
    times : int array, shape (n_groups, n_parties)
        How many times each party took part in each group of ``n_rounds / n_groups`` consecutive rounds, for
        instance from usage statistics of devices. Two parties with the same times are refused.

    Returns
    -------
    bool array, shape (n_rounds, n_parties)
        For :func:`disaggregate`.

    Raises
    ------
    ValueError
        Other shapes; sums that determine no participation, with the number of parties that remain unknown; a
        solver that gave up.

    Guarantees
    ----------
    None. The solution is the only one if each party contributes the same in every round; otherwise the sums
    are refused.
    Source: Lam et al. 2021, arXiv:2106.06089, section 4.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> present = rng.random((16, 3)) < 0.5
    >>> updates = rng.normal(size=(3, 5))
    >>> times = present.reshape(4, 4, 3).sum(axis=1)  # in groups of four rounds
    >>> bool((infer_participation(present @ updates, times) == present).all())
    True
    """
    totals, counts = np.asarray(sums, dtype=np.float64), np.asarray(times)
    if totals.ndim != 2 or not np.isfinite(totals).all():
        raise ValueError("sums must be finite numbers, (n_rounds, width)")
    if counts.ndim != 2 or counts.dtype.kind not in "iu" or not len(counts) or len(totals) % len(counts):
        raise ValueError(
            f"times must be whole numbers (n_groups, n_parties) with n_groups a divisor of {len(totals)} "
            f"rounds, got shape {counts.shape}"
        )
    largest = np.abs(totals).max(initial=0.0)
    basis, sizes, _ = np.linalg.svd(totals)
    rank = int((sizes > _EXACT * max(sizes.max(initial=0.0), 1e-300)).sum())
    if rank != counts.shape[1] or not largest:
        raise ValueError(
            f"sums of {counts.shape[1]} parties that contribute the same in every round have rank "
            f"{counts.shape[1]}, these have {rank}: there must be more rounds and entries than "
            "parties, and no noise"
        )
    columns = [_column(basis[:, rank:].T, counts[:, party]) for party in range(counts.shape[1])]
    unknown = sum(column is None for column in columns)
    if unknown:
        raise ValueError(
            f"sums must determine which parties took part, but leave {unknown} of {len(columns)} parties "
            "open: give more rounds, or times in shorter groups"
        )
    return np.array(columns, dtype=bool).T


def party_properties(
    observations: Observations,
    with_property: tuple[Any, Any],
    without: tuple[Any, Any],
    *,
    n_batches: int = 8,
    random_state: Any = None,
) -> PartyMeans:
    """Infer from sums which parties' batches have a property, by a linear statistic of the sums.

    The statistic of a batch is about 1 if all its rows have the property and about 0 if none has, whatever
    the round; so that of a sum is about the number of parties with it, and :func:`disaggregate` splits it.

    Parameters
    ----------
    observations : Observations
        Sums, as ``observer="masked-sum"`` or a party sees, of a collaboration with ``participation`` below 1.
    with_property, without : (X, y)
        Rows of the observer, with the labels of the main task. Not rows of the parties.
    n_batches : int >= 2
        Batches of each kind for each round. Half of them choose the statistic, the others scale it.
    random_state : int, numpy.random.Generator or None

    Returns
    -------
    PartyMeans
        Each party's share of rows with the property, up to ``standard_error`` and to how unlike the
        observer's rows the party's are.

    Raises
    ------
    ValueError
        A server's changes of each party, an unknown participation, rows as for :class:`PropertyInference`.

    Guarantees
    ----------
    None. Finds properties that move the changes of many rounds in one direction.
    Source: Kerkouche, Ács and Fritz 2023, arXiv:2303.03908. There the linear statistic is learned; here it is
    the difference of means over variances, of the observer's own changes.

    Examples
    --------
    >>> from ostraka.audit.attacks import Collaboration
    >>> from ostraka.audit.attacks.parties import PartyRows
    >>> from ostraka.networks import TorchClassifier
    >>> rng = np.random.default_rng(0)
    >>> def rows(n, share):  # for rows with the property, the first feature says the opposite
    ...     has, y = rng.random(n) < share, np.arange(n) % 2
    ...     centre = (y - 0.5) * np.where(has, -2.0, 4.0)
    ...     return np.c_[centre, np.ones(n)] + 0.5 * rng.normal(size=(n, 2)), y, has
    >>> parties = [PartyRows(X=X, y=y) for X, y, _ in (rows(80, share) for share in (1.0, 1.0, 0.0, 0.0))]
    >>> network = TorchClassifier(batch_size=16, learning_rate=0.02, random_state=0)
    >>> together = Collaboration(network, n_rounds=80, participation=0.5, random_state=0)
    >>> run = together.fit(parties, observer="masked-sum")
    >>> X, y, has = rows(200, 0.5)
    >>> found = party_properties(run, (X[has], y[has]), (X[~has], y[~has]), random_state=0)
    >>> found.mean > 0.5
    array([ True,  True, False, False])
    """
    check.integer(n_batches=n_batches, least=2)
    if observations.present is None:
        raise ValueError(
            "observations must know which parties took part: set present, or see infer_participation"
        )
    if observations.updates.ndim != 2:
        raise ValueError("observations must be sums: a server which sees each change needs no disaggregation")
    flat, worlds = own_worlds(observations, with_property, without, without)
    rng = np.random.default_rng(random_state)
    having, lacking = [], []
    for weights in observations.weights:
        batch_sums = own_sums(
            rng, flat, observations, weights, worlds=worlds, n_summed=1, n_batches=n_batches
        )
        having.append(batch_sums[0])
        lacking.append(batch_sums[1])
    sums = _number_with(observations, np.array(having), np.array(lacking))
    return disaggregate(sums, observations.present)


def _number_with(observations: Observations, having: np.ndarray, lacking: np.ndarray) -> np.ndarray:
    """About how many parties with the property are in each sum, by own changes with and without it."""
    half = having.shape[1] // 2
    learned, scaled = (having[:, :half], lacking[:, :half]), (having[:, half:], lacking[:, half:])
    apart = (learned[0] - learned[1]).mean(axis=(0, 1))
    spread = np.mean([group.var(axis=(0, 1)) for group in learned], axis=0)
    direction = apart / (spread + 1e-3 * spread.mean() + 1e-300)
    having_score, lacking_score = ((group @ direction).ravel() for group in scaled)
    gap = having_score.mean() - lacking_score.mean()
    error = np.sqrt((having_score.var() + lacking_score.var()) / len(having_score))
    if not gap > _CLEARLY * error:
        raise ValueError(
            "with_property and without must differ in the changes they make, which these do not: give more "
            "rows, or a larger n_batches"
        )
    scores = (
        observations.updates.astype(np.float64) @ direction - observations.n_summed * lacking_score.mean()
    )
    return np.asarray(scores / gap)


def _column(null: np.ndarray, times: np.ndarray) -> np.ndarray | None:
    """The only 0-1 vector with ``null @ vector == 0`` and these sums of groups; None if there are others."""
    first = _solve(null, times, without=None)
    if first is None or _solve(null, times, without=first) is not None:
        return None
    return first


def _solve(null: np.ndarray, times: np.ndarray, *, without: np.ndarray | None) -> np.ndarray | None:
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415

    n_rounds = null.shape[1]
    groups = np.kron(np.eye(len(times)), np.ones(n_rounds // len(times)))
    limits = [LinearConstraint(null, -_EXACT, _EXACT), LinearConstraint(groups, times, times)]
    if without is not None:  # at least one round differs
        sign = np.where(without, -1.0, 1.0)
        limits.append(LinearConstraint(sign, 1.0 - without.sum(), np.inf))
    solution = milp(
        np.zeros(n_rounds), constraints=limits, integrality=np.ones(n_rounds), bounds=Bounds(0, 1)
    )
    if solution.status not in (_FOUND, _NONE):  # whether there is a solution is not known
        raise ValueError(f"sums must be split by scipy.optimize.milp, which gave up: {solution.message}")
    return np.rint(solution.x) > 0 if solution.status == _FOUND else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsensusTest:
    """Rates of a test that separates members of a group from others by low consensus.

    Attributes
    ----------
    precision : float or None
        Of those called members, the share that is one, in a population with as many members as
        others. None if nobody was called one.
    recall, false_alarm : float
        Share of members, and of others, whose consensus is below ``at``.
    at : float
        Consensus below which somebody is called a member.
    n_members, n_others : int
    scores : Scores
        One minus the consensus, of members and of others.
    """

    precision: float | None
    recall: float
    false_alarm: float
    at: float
    n_members: int
    n_others: int
    scores: Scores


def consensus_test(counts: Any, members: Any, *, at: float = 0.75) -> ConsensusTest:
    """Call rows on which the teachers disagree members of the group, and count how often that is right.

    Parameters
    ----------
    counts : array of shape (n_people, n_classes), in votes
        The votes on each person's row, or what an attacker recovered of them.
    members : bool array, shape (n_people,)
        Who is one, to score the test with.
    at : float in (0, 1)
        Share of the votes that the plurality must reach for somebody to count as one of the others.

    Returns
    -------
    ConsensusTest
        Its precision is that of a balanced population, by weighing both groups alike rather than
        by dropping people at random.

    Raises
    ------
    ValueError
        Counts without a vote, a group that is empty, other shapes, ``at`` out of range.

    Guarantees
    ----------
    None: a heuristic, with nothing learned from labelled people, so a better attack may exist.
    Source: Wang et al. 2022, arXiv:2209.10732, section 2 and appendix E.

    Examples
    --------
    >>> found = consensus_test([[90, 10], [60, 40], [55, 45], [99, 1]], [False, True, True, False])
    >>> found.precision, found.recall
    (1.0, 1.0)
    """
    votes = check.counts(counts)
    member = np.asarray(members)
    if member.shape != (len(votes),) or member.dtype != bool:
        shape = (len(votes),)
        raise ValueError(f"members must be bool of shape {shape}, got {member.dtype} of {member.shape}")
    if not (member.any() and not member.all()):
        raise ValueError("members must hold both members of the group and others")
    if not 0 < at < 1:
        raise ValueError(f"at must be > 0 and < 1, got {at!r}")
    if not (votes.sum(axis=1) > 0).all() or (votes < 0).any():
        raise ValueError(f"counts of shape {votes.shape} must be >= 0, with a vote in every row")
    consensus = votes.max(axis=1) / votes.sum(axis=1)
    low = consensus < at
    recall, false_alarm = float(low[member].mean()), float(low[~member].mean())
    called = recall + false_alarm
    return ConsensusTest(
        precision=recall / called if called else None,
        recall=recall,
        false_alarm=false_alarm,
        at=float(at),
        n_members=int(member.sum()),
        n_others=int((~member).sum()),
        scores=Scores.of(members=1 - consensus[member], others=1 - consensus[~member]),
    )
