"""Attacks: what an adversary learns from what was released."""

from ostraka.attacks.attributes import consensus_test
from ostraka.attacks.canaries import Canaries
from ostraka.attacks.counts import recover_counts
from ostraka.attacks.histogram import recover_votes
from ostraka.attacks.leakage import leakage_meter
from ostraka.attacks.membership import ReferenceModels

__all__ = [
    "Canaries",
    "ReferenceModels",
    "consensus_test",
    "leakage_meter",
    "recover_counts",
    "recover_votes",
]
