"""Audits: what is seen to leak at least, from answers alone or with the outcome map."""

from ostraka.audits.bounds import EpsilonBound, RenyiBound, compose, per_unit
from ostraka.audits.cuts import hold_out, renyi_lower_bound
from ostraka.audits.epsilon import attack_epsilon, epsilon_lower_bound
from ostraka.audits.whitebox import modelled_votes, whitebox_lower_bound

__all__ = [
    "EpsilonBound",
    "RenyiBound",
    "attack_epsilon",
    "compose",
    "epsilon_lower_bound",
    "hold_out",
    "modelled_votes",
    "per_unit",
    "renyi_lower_bound",
    "whitebox_lower_bound",
]
