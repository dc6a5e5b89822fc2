"""Attribute inference from low agreement among the teachers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ostraka import _check
from ostraka.scores import Scores

__all__ = ["ConsensusTest", "consensus_test"]


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
    votes = _check.counts(counts)
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
