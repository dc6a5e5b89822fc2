"""Audits: lower bounds on what leaks, from answers of two worlds, and verdicts on what was promised.

*In* come how often each answer was seen with a target and without it, the scores of an attack, or a
mechanism and a system to sample. *Out* go a :class:`~ostraka.audit.bound.Bound`, at least that much leaks,
and a :class:`~ostraka.audit.bound.Finding`, which compares it with a promise.

``cuts`` bound divergences, epsilon and delta by the probability of sets of outcomes; ``votes`` does where
the votes are random; ``one_run`` by guesses about canaries in one training. ``claims`` audit a mechanism or
a black box, ``runs`` a whole run of answers, ``adversaries`` the systems of ``worlds``, ``library`` this
installation. ``attacks`` are a folder: what an adversary makes of what was released.

The promise: **a lower bound is wrong with a probability of at most one less its confidence, whatever the
laws behind the numbers are**; what it holds for is in its sentence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostraka.core.imports import face

if TYPE_CHECKING:
    from ostraka.audit.adversaries import audit_adversary as audit_adversary
    from ostraka.audit.claims import audit_answers as audit_answers
    from ostraka.audit.claims import audit_mechanism as audit_mechanism
    from ostraka.audit.claims import audit_until as audit_until
    from ostraka.audit.cuts import delta_lower_bound as delta_lower_bound
    from ostraka.audit.cuts import epsilon_lower_bound as epsilon_lower_bound
    from ostraka.audit.cuts import hold_out as hold_out
    from ostraka.audit.cuts import renyi_lower_bound as renyi_lower_bound
    from ostraka.audit.library import audit_library as audit_library
    from ostraka.audit.one_run import audit_canaries as audit_canaries
    from ostraka.audit.one_run import one_run_lower_bound as one_run_lower_bound
    from ostraka.audit.runs import audit_counts as audit_counts
    from ostraka.audit.runs import audit_run as audit_run
    from ostraka.audit.votes import votes_lower_bound as votes_lower_bound
    from ostraka.audit.worlds import NeighbourWorlds as NeighbourWorlds
    from ostraka.audit.worlds import TeacherWorlds as TeacherWorlds
    from ostraka.audit.worlds import retrained_votes as retrained_votes

__all__ = [
    "NeighbourWorlds",
    "TeacherWorlds",
    "audit_adversary",
    "audit_answers",
    "audit_canaries",
    "audit_counts",
    "audit_library",
    "audit_mechanism",
    "audit_run",
    "audit_until",
    "delta_lower_bound",
    "epsilon_lower_bound",
    "hold_out",
    "one_run_lower_bound",
    "renyi_lower_bound",
    "retrained_votes",
    "votes_lower_bound",
]

__getattr__, __dir__ = face(__name__, __file__)
