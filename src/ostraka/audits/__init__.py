"""Audits: lower bounds on what leaks, from answers of two worlds, and verdicts on what was promised."""

from ostraka.audits.adversaries import audit_adversary
from ostraka.audits.canaries import audit_canaries
from ostraka.audits.claims import audit_answers, audit_mechanism
from ostraka.audits.counts import audit_counts
from ostraka.audits.cuts import hold_out, renyi_lower_bound
from ostraka.audits.epsilon import delta_lower_bound, epsilon_lower_bound
from ostraka.audits.library import audit_library
from ostraka.audits.neighbourhood import NeighbourWorlds
from ostraka.audits.one_run import one_run_lower_bound
from ostraka.audits.runs import audit_run
from ostraka.audits.training import TeacherWorlds, retrained_votes
from ostraka.audits.until import audit_until
from ostraka.audits.votes import votes_lower_bound

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
