"""Attacks: what an adversary learns from what was released."""

from ostraka.attacks.attributes import ConsensusTest, consensus_test
from ostraka.attacks.canaries import Canaries, draw_canaries
from ostraka.attacks.counts import recover_counts
from ostraka.attacks.histogram import RecoveredVotes, recover_votes
from ostraka.attacks.leakage import cramer_rao, leakage_meter, leakage_panel
from ostraka.attacks.membership import ReferenceModels, true_label_confidences

__all__ = [
    "Canaries",
    "ConsensusTest",
    "RecoveredVotes",
    "ReferenceModels",
    "consensus_test",
    "cramer_rao",
    "draw_canaries",
    "leakage_meter",
    "leakage_panel",
    "recover_counts",
    "recover_votes",
    "true_label_confidences",
]
