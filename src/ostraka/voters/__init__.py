"""Voters: shards of private data train teachers, who vote in secret."""

from ostraka.voters._ballots import count_votes
from ostraka.voters.shards import Manifest, partition
from ostraka.voters.teachers import TeacherEnsemble

__all__ = ["Manifest", "TeacherEnsemble", "count_votes", "partition"]
