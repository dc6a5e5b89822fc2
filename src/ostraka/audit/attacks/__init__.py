"""Attacks: what an adversary learns from what was released.

*In* come answers, probabilities of a model, samples of a generator, or changes of a collaboration. *Out* go
estimates of what is private, and :class:`~ostraka.core.scores.Scores` with and without a target, which every
audit takes.

``votes`` recovers the votes behind answers. ``membership`` asks whether a row was in the training data of a
model, and plants canaries; ``generators`` asks the same of generators. ``collaboration`` simulates parties
who train together; ``parties`` has what each of them, or a server, observes; ``properties`` infers from it
what the parties' rows are like.

No attack promises anything: a weak one proves nothing.
"""

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
