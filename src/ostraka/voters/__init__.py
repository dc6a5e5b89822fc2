"""Voters: models and people that hold private rows and cast secret ballots.

``teachers`` are trained on ``shards`` (with ``_voting``, ``_engines``, ``_saved``, ``_network_teachers``).
``neighbours`` vote with their labels (``_nearest``, ``_sampled``, ``_exact``). ``parties`` keep their rows at
home (``_party``, ``_secret_party``, ``_secret_rounds``, ``_secret_models``, over
``ostraka.secure``). ``prompts`` show rows to a language model
(``_requests``, ``_response_cache``, ``_endpoint``, ``_prompt_batch``, ``_template``). ``rows`` vote once
each, for public ``cells``, ``bins`` and ``features`` (``_fixed``, ``_graph``), or in rounds (``_residuals``).
"""

from ostraka.voters._saved import SavedTeachers
from ostraka.voters._voting import count_votes as count_votes
from ostraka.voters.bins import QuantileCells
from ostraka.voters.cells import GraphCells
from ostraka.voters.neighbours import NeighbourVoter
from ostraka.voters.parties import (
    Agreement,
    Dealer,
    Identity,
    Party,
    PartyEnsemble,
    PartyServer,
    SecretQuestions,
)
from ostraka.voters.prompts import Endpoint, PromptEnsemble, Template
from ostraka.voters.rows import RowVoter
from ostraka.voters.shards import partition
from ostraka.voters.teachers import TeacherEnsemble as TeacherEnsemble

__all__ = [
    "Agreement",
    "Dealer",
    "Endpoint",
    "GraphCells",
    "Identity",
    "NeighbourVoter",
    "Party",
    "PartyEnsemble",
    "PartyServer",
    "PromptEnsemble",
    "QuantileCells",
    "RowVoter",
    "SavedTeachers",
    "SecretQuestions",
    "Template",
    "partition",
]
