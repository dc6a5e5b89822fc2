"""Voters: models and people that hold private rows and cast secret ballots.

*In* come private rows, labels, and whom each row belongs to. *Out* go votes or tables of counts, each a
:class:`~ostraka.Private` with its adjacency, which only a mechanism opens.

``teachers`` are trained on shards (``voting`` trains and counts, also where files lie and on clusters,
``kinds`` trains many at once). ``neighbours`` vote with their labels. ``prompts`` show rows to a language
model at an ``endpoint``. ``rows`` vote once each for public ``cells`` or a ``spectrum`` of features, or in
rounds for what a model gets wrong. ``saved`` voters are read back in one process or several. Parties that
keep their rows at home have a room of their own, ``parties``.

The promise: **one unit moves the votes by what their adjacency states, and no other unit's ballot.**
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostraka.core.imports import face

if TYPE_CHECKING:
    from ostraka.data.units import partition as partition
    from ostraka.parties.parties import PartyEnsemble as PartyEnsemble
    from ostraka.parties.party import Party as Party
    from ostraka.secure.agreement import Agreement as Agreement
    from ostraka.secure.agreement import SecretQuestions as SecretQuestions
    from ostraka.secure.dealer import Dealer as Dealer
    from ostraka.secure.keys import Identity as Identity
    from ostraka.secure.wire import PartyServer as PartyServer
    from ostraka.voters.cells import GraphCells as GraphCells
    from ostraka.voters.cells import QuantileCells as QuantileCells
    from ostraka.voters.endpoint import Endpoint as Endpoint
    from ostraka.voters.neighbours import NeighbourVoter as NeighbourVoter
    from ostraka.voters.prompts import PromptEnsemble as PromptEnsemble
    from ostraka.voters.prompts import Template as Template
    from ostraka.voters.rows import RowVoter as RowVoter
    from ostraka.voters.saved import SavedTeachers as SavedTeachers
    from ostraka.voters.teachers import TeacherEnsemble as TeacherEnsemble
    from ostraka.voters.voting import count_votes as count_votes

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

__getattr__, __dir__ = face(__name__, __file__)
