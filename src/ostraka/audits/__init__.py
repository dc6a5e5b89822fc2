"""Audits: what is seen to leak at least, from answers alone or with the outcome map."""

from ostraka.audits.adversaries import Leak, audit_adversary, measure_leak
from ostraka.audits.bounds import EpsilonBound, RenyiBound, compose, per_unit
from ostraka.audits.claims import audit_answers, audit_mechanism, sample_outcomes
from ostraka.audits.crafters import Crafted, Worlds, craft
from ostraka.audits.cuts import hold_out, renyi_lower_bound
from ostraka.audits.epsilon import attack_epsilon, epsilon_lower_bound
from ostraka.audits.finding import Finding, Measure, audit_record
from ostraka.audits.library import System, audit_library
from ostraka.audits.memorisation import MemorisationBound, audit_canaries, memorisation_lower_bound
from ostraka.audits.models import VoteModel
from ostraka.audits.neighbourhood import NeighbourWorlds
from ostraka.audits.paired import paired_lower_bound
from ostraka.audits.planted import Caught, mutation_score
from ostraka.audits.runs import audit_run, dearest_votes
from ostraka.audits.training import Retraining, TeacherWorlds, Training, retrained_votes
from ostraka.audits.until import audit_until
from ostraka.audits.whitebox import modelled_votes, whitebox_lower_bound

__all__ = [
    "Caught",
    "Crafted",
    "EpsilonBound",
    "Finding",
    "Leak",
    "Measure",
    "MemorisationBound",
    "NeighbourWorlds",
    "RenyiBound",
    "Retraining",
    "System",
    "TeacherWorlds",
    "Training",
    "VoteModel",
    "Worlds",
    "attack_epsilon",
    "audit_adversary",
    "audit_answers",
    "audit_canaries",
    "audit_library",
    "audit_mechanism",
    "audit_record",
    "audit_run",
    "audit_until",
    "compose",
    "craft",
    "dearest_votes",
    "epsilon_lower_bound",
    "hold_out",
    "measure_leak",
    "memorisation_lower_bound",
    "modelled_votes",
    "mutation_score",
    "paired_lower_bound",
    "per_unit",
    "renyi_lower_bound",
    "retrained_votes",
    "sample_outcomes",
    "whitebox_lower_bound",
]
