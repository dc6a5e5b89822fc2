"""Voters: models and people that hold private rows and cast secret ballots.

``teachers`` are trained on ``shards`` (with ``_voting``, ``_engines``, ``_saved``, ``_network_teachers``).
``neighbours`` vote with their labels (``_nearest``, ``_sampled``, ``_exact``). ``parties`` keep their rows at
home (``_party``, ``_secret_party``, ``_secret_rounds``, ``_secret_models``, over
``ostraka.secure``). ``prompts`` show rows to a language model
(``_requests``, ``_response_cache``, ``_endpoint``, ``_prompt_batch``, ``_template``). ``rows`` vote once
each, for public ``cells``, ``bins`` and ``features`` (``_fixed``, ``_graph``), or in rounds (``_residuals``).
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
    from ostraka.voters.bins import QuantileCells as QuantileCells
    from ostraka.voters.cells import GraphCells as GraphCells
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
