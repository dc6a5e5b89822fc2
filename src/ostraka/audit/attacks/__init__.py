"""Attacks: what an adversary learns from what was released."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostraka.core.imports import face

if TYPE_CHECKING:
    from ostraka.audit.attacks.collaboration import Collaboration as Collaboration
    from ostraka.audit.attacks.generators import generator_scores as generator_scores
    from ostraka.audit.attacks.membership import Canaries as Canaries
    from ostraka.audit.attacks.membership import ReferenceModels as ReferenceModels
    from ostraka.audit.attacks.parties import words_seen as words_seen
    from ostraka.audit.attacks.properties import PropertyInference as PropertyInference
    from ostraka.audit.attacks.votes import consensus_test as consensus_test
    from ostraka.audit.attacks.votes import leakage_meter as leakage_meter
    from ostraka.audit.attacks.votes import recover_counts as recover_counts
    from ostraka.audit.attacks.votes import recover_votes as recover_votes

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

__getattr__, __dir__ = face(__name__, __file__)
