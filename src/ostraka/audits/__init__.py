"""Audits: what is seen to leak at least, from answers alone or with the outcome map."""

from ostraka.audits.bounds import EpsilonBound, RenyiBound, compose, per_unit
from ostraka.audits.claims import audit_answers, audit_mechanism, sample_outcomes
from ostraka.audits.cuts import hold_out, renyi_lower_bound
from ostraka.audits.epsilon import attack_epsilon, epsilon_lower_bound
from ostraka.audits.finding import Finding, Measure
from ostraka.audits.library import System, audit_library
from ostraka.audits.planted import Caught, mutation_score
from ostraka.audits.whitebox import modelled_votes, whitebox_lower_bound

__all__ = [
    "Caught",
    "EpsilonBound",
    "Finding",
    "Measure",
    "RenyiBound",
    "System",
    "attack_epsilon",
    "audit_answers",
    "audit_library",
    "audit_mechanism",
    "compose",
    "epsilon_lower_bound",
    "hold_out",
    "modelled_votes",
    "mutation_score",
    "per_unit",
    "renyi_lower_bound",
    "sample_outcomes",
    "whitebox_lower_bound",
]
