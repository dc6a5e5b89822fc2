"""Voters: whoever holds private rows, as secret ballots.

``teachers`` train on ``shards`` (with ``_ballots``, ``_engines``, ``_saved``, ``_stacked``). ``neighbours``
vote by their labels (``_nearest``, ``_sampled``, ``_exact``). ``parties`` keep their rows at home
(``_party``, over ``ostraka.secure``). ``prompts`` show rows to a language model
(``_asking``, ``_cassette``, ``_endpoint``, ``_sheet``, ``_wording``).
"""

from ostraka.voters._ballots import count_votes
from ostraka.voters._saved import SavedTeachers
from ostraka.voters.neighbours import NeighbourVoter
from ostraka.voters.parties import Agreement, Identity, Party, PartyEnsemble, PartyError, PartyServer
from ostraka.voters.prompts import Endpoint, EndpointError, Estimate, PromptEnsemble, Template
from ostraka.voters.shards import Manifest, partition
from ostraka.voters.teachers import TeacherEnsemble

__all__ = [
    "Agreement",
    "Endpoint",
    "EndpointError",
    "Estimate",
    "Identity",
    "Manifest",
    "NeighbourVoter",
    "Party",
    "PartyEnsemble",
    "PartyError",
    "PartyServer",
    "PromptEnsemble",
    "SavedTeachers",
    "TeacherEnsemble",
    "Template",
    "count_votes",
    "partition",
]
