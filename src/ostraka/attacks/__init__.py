"""Attacks: what an adversary learns from what was released."""

from ostraka.attacks.attributes import consensus_test
from ostraka.attacks.canaries import Canaries
from ostraka.attacks.collaboration import Collaboration
from ostraka.attacks.counts import recover_counts
from ostraka.attacks.generators import generator_scores
from ostraka.attacks.histogram import recover_votes
from ostraka.attacks.leakage import leakage_meter
from ostraka.attacks.membership import ReferenceModels
from ostraka.attacks.observations import words_seen
from ostraka.attacks.properties import PropertyInference

__all__ = [
    "Canaries",
    "Collaboration",
    "PropertyInference",
    "ReferenceModels",
    "consensus_test",
    "generator_scores",
    "leakage_meter",
    "recover_counts",
    "recover_votes",
    "words_seen",
]
