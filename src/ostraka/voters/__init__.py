"""Voters: shards of private data train teachers, who vote in secret."""

from ostraka.voters._ballots import count_votes
from ostraka.voters._saved import SavedTeachers
from ostraka.voters.neighbours import NeighbourVoter
from ostraka.voters.parties import (
    Charter,
    Identity,
    Party,
    PartyEnsemble,
    PartyError,
    PartyServer,
    SkellamMax,
)
from ostraka.voters.prompts import Endpoint, EndpointError, Estimate, PromptEnsemble, Template
from ostraka.voters.shards import Manifest, partition
from ostraka.voters.teachers import TeacherEnsemble

__all__ = [
    "Charter",
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
    "SkellamMax",
    "TeacherEnsemble",
    "Template",
    "count_votes",
    "partition",
]
