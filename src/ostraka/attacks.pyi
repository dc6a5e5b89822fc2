# For type checkers: ``ostraka.attacks`` is ``ostraka.audit.attacks``.

from ostraka.audit.attacks import Canaries as Canaries
from ostraka.audit.attacks import Collaboration as Collaboration
from ostraka.audit.attacks import PropertyInference as PropertyInference
from ostraka.audit.attacks import ReferenceModels as ReferenceModels
from ostraka.audit.attacks import consensus_test as consensus_test
from ostraka.audit.attacks import generator_scores as generator_scores
from ostraka.audit.attacks import leakage_meter as leakage_meter
from ostraka.audit.attacks import recover_counts as recover_counts
from ostraka.audit.attacks import recover_votes as recover_votes
from ostraka.audit.attacks import words_seen as words_seen
