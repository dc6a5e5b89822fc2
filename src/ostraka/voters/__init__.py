"""Voters: shards of private data train teachers, who vote in secret."""

from ostraka.voters._ballots import count_votes
from ostraka.voters.neighbours import NeighbourVoter
from ostraka.voters.prompts import Endpoint, EndpointError, Estimate, PromptEnsemble, Template
from ostraka.voters.shards import Manifest, partition
from ostraka.voters.teachers import TeacherEnsemble

__all__ = [
    "Endpoint",
    "EndpointError",
    "Estimate",
    "Manifest",
    "NeighbourVoter",
    "PromptEnsemble",
    "TeacherEnsemble",
    "Template",
    "count_votes",
    "partition",
]
