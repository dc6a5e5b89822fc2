"""Attacks: what an adversary learns from what was released."""

from ostraka.attacks.histogram import RecoveredVotes, recover_votes

__all__ = ["RecoveredVotes", "recover_votes"]
