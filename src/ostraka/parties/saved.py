"""Voters that are elsewhere: parties with their own rows, and prompts that a language model answers."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ostraka.core.private import Adjacency, Private
from ostraka.data.units import Manifest
from ostraka.parties.parties import PartyEnsemble
from ostraka.secure.agreement import Agreement
from ostraka.secure.keys import Identity
from ostraka.voters.endpoint import Endpoint, ResponseCache
from ostraka.voters.prompts import PromptEnsemble, Reader, Template
from ostraka.voters.voting import count_votes

if TYPE_CHECKING:
    from pathlib import Path

    from ostraka.voters.saved import SavedFiles

_PROMPTS = "model", "n_shots", "max_calls", "max_cost", "prices"


class Parties:
    """Parties by their addresses, the agreement, and the aggregator's identity."""

    name = "parties"

    def width(self, voter: PartyEnsemble) -> int:
        return voter.agreement.n_features

    def adjacency(self, voter: PartyEnsemble) -> Adjacency:
        return dataclasses.replace(voter.agreement.mechanism.promise, unit="party")

    def ballots(self, voter: PartyEnsemble) -> int:
        return len(voter.parties)

    def check(self, voter: PartyEnsemble) -> None:
        if not all(isinstance(party, str) for party in voter.parties.values()):
            raise ValueError("parties must be addresses to be saved: run each with PartyServer")
        if voter.agreement.secret is not None:
            raise ValueError(
                "parties with secret questions cannot be saved or served, since their rounds spend before a "
                "service could charge: ask the PartyEnsemble itself, or agree on clear questions"
            )

    def write(self, voter: PartyEnsemble, folder: Path) -> dict[str, Any]:
        (folder / "agreement.json").write_text(voter.agreement.to_json())
        secret = voter._identity.secret.hex()  # noqa: SLF001  (the same package)
        (folder / "identity.json").write_text(json.dumps({"secret": secret}))
        return {"unit": "party", "parties": voter.parties}

    def read(self, listed: dict[str, Any], files: SavedFiles) -> PartyEnsemble:
        secret = bytes.fromhex(files.json("identity.json")["secret"])
        agreement = Agreement.from_json(files.content("agreement.json").decode())
        return PartyEnsemble(listed["parties"], agreement=agreement, identity=Identity(secret))


class Prompts:
    """Prompts with their private rows, and the address of the language model; its key stays outside."""

    name = "prompts"

    def width(self, voter: PromptEnsemble) -> int:  # noqa: ARG002  (of every prompt)
        return 0

    def adjacency(self, voter: PromptEnsemble) -> Adjacency:
        return Adjacency.one_ballot(unit=voter.manifest_.unit)

    def ballots(self, voter: PromptEnsemble) -> int:
        return int(voter.n_teachers)

    def check(self, voter: PromptEnsemble) -> None:
        if not isinstance(voter.endpoint, Endpoint | str):
            raise ValueError(  # noqa: TRY004  (as every other voter that cannot be saved)
                "endpoint must be an Endpoint or its URL to be saved: a function cannot be"
            )

    def write(self, voter: PromptEnsemble, folder: Path) -> dict[str, Any]:
        shots, words = voter._shots, voter._words  # noqa: SLF001  (the same package)
        (folder / "prompts.json").write_text(json.dumps(shots))
        endpoint = Endpoint(voter.endpoint) if isinstance(voter.endpoint, str) else voter.endpoint
        return {
            "unit": voter.manifest_.unit,
            "endpoint": dataclasses.asdict(cast("Endpoint", endpoint)),
            "template": dataclasses.asdict(voter.template or Template()),
            "prompts": {name: getattr(voter, name) for name in _PROMPTS} | {"words": words},
        }

    def read(self, listed: dict[str, Any], files: SavedFiles) -> PromptEnsemble:
        shots = [[(str(text), str(word)) for text, word in prompt] for prompt in files.json("prompts.json")]
        voter = _RestoredPrompts(
            Endpoint(**listed["endpoint"]),
            classes=listed["classes"],
            n_teachers=len(shots),
            template=Template(**listed["template"]),
            **listed["prompts"],
        )
        return voter.restore(shots, unit=listed["unit"])


class _RestoredPrompts(PromptEnsemble):
    """Prompts of a folder. Answers are forgotten after a vote: a repeated question takes as many requests."""

    def restore(self, shots: list[list[tuple[str, str]]], *, unit: str) -> _RestoredPrompts:
        """Take prompts that were made before, instead of fitting."""
        self.classes_, self._words = np.asarray(self.classes), tuple(map(str, self.words or ()))
        self._read, self._endpoint = Reader(self._words), cast("Endpoint", self.endpoint)
        self._responses = ResponseCache(None)
        numbers = np.arange(len(shots))
        self.manifest_ = Manifest(
            n_teachers=len(shots), unit=unit, shards=numbers, units=numbers, commitment=""
        )
        self._shots = shots
        self.notes_ = self._notes()
        return self

    def vote(self, texts: Any) -> Private:
        """As for the ensemble, from new answers."""
        try:
            counts = count_votes(self.predictions(texts), n_classes=len(self.classes_))
        finally:
            self._responses = ResponseCache(None)
        return Private(counts, Adjacency.one_ballot(unit=self.manifest_.unit))
