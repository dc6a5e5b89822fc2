"""The way of prompts: teachers are prompts with private demonstrations, which a language model answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.core.door import release
from ostraka.core.mechanisms.law import ABSTAIN
from ostraka.learn.ways.argmax import Argmax
from ostraka.learn.ways.plan import Plan
from ostraka.voters.endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostraka.core.private import Private
    from ostraka.learn.session import Data, Seeds, Session
    from ostraka.learn.ways.plan import Facts
    from ostraka.voters.prompts import PromptEnsemble


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Prompts:
    """Prompts as the teachers of :class:`~ostraka.PATEClassifier`, with the texts of the rows that it fits.

    Attributes
    ----------
    ensemble : PromptEnsemble
        Not fitted. It gets its number of teachers and its classes from the plan.
    private : sequence of str
        Private. What a prompt shows of each private row.
    public : sequence of str
        What it asks about each public row.
    """

    ensemble: PromptEnsemble
    private: Sequence[str]
    public: Sequence[str]

    def __repr__(self) -> str:
        return f"Prompts(model={self.ensemble.model!r}, n_shots={self.ensemble.n_shots})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompted(Argmax):
    """Prompts vote; the student learns from the columns."""

    @classmethod
    def planned(cls, model: Any, facts: Facts) -> Prompted:
        """The way for an estimator's settings."""
        return cls(plan=Plan.of(model, facts))

    def teachers(self, model: Any, data: Data, seeds: Seeds) -> PromptEnsemble:  # noqa: ARG002
        """The prompts, for the classes and the number of teachers of the plan."""
        prompts: PromptEnsemble = model.estimator.ensemble
        prompts.set_params(
            n_teachers=self.plan.n_teachers,
            classes=data.classes(model.classes).tolist(),
            progress=model.progress,
        )
        return prompts

    def train(self, teachers: PromptEnsemble, model: Any, data: Data, session: Session) -> None:
        """Deal the texts of private rows to the prompts."""
        teachers.fit(model.estimator.private, data.y, data.groups, manifest=session.manifest)
        model._tell("teachers", self.plan.n_teachers, self.plan.n_teachers)  # noqa: SLF001  (same package)

    def settings(self, model: Any, teachers: PromptEnsemble) -> tuple[Any, ...]:
        """The student, and all that a prompt is made of."""
        endpoint = teachers.endpoint
        place = (
            endpoint if isinstance(endpoint, str) else endpoint.url if isinstance(endpoint, Endpoint) else ""
        )
        texts = list(model.estimator.private), list(model.estimator.public)
        return model.student, teachers.model, teachers.n_shots, repr(teachers.template), place, texts

    def rehearse(self, model: Any, data: Data, teachers: PromptEnsemble, n_classes: int) -> None:  # noqa: ARG002
        """Try accounting, recording and student on made-up labels and votes, before any charge."""
        prompts = model.estimator
        if (len(prompts.private), len(prompts.public)) != (len(data.y), data.public.shape[0]):
            raise ValueError("Prompts must have one text for each private row, and for each public one")
        self.try_accounting(n_classes)
        self.try_student(model, data, n_classes)

    def ask(
        self, model: Any, data: Data, seeds: Seeds, teachers: Any, *, session: Session, key: str
    ) -> tuple[np.ndarray, np.ndarray, Private]:
        """Ask about as many public rows as planned, drawn at random: each costs a call for each teacher."""
        n_public, n_answers = data.public.shape[0], self.plan.n_answers
        asked = np.random.default_rng(seeds.asking).permutation(n_public)[:n_answers]
        votes = teachers.vote([model.estimator.public[row] for row in asked.tolist()])
        labels = np.full(n_public, ABSTAIN)
        labels[asked] = release(self.plan.mechanism, votes, ledger=session.ledger, key=f"{key}/answers")
        model._tell("answers", n_answers, n_answers)  # noqa: SLF001
        return labels, asked, votes

    def facts(self, model: Any, data: Data, teachers: PromptEnsemble, student: Any) -> dict[str, Any]:
        """How the record names what voted and learned; the texts in the prompts are kept by nobody."""
        facts = Argmax.facts(self, model, data, teachers, student)
        noise = "ChaCha20 keyed by the operating system"
        return facts | {"ensemble": None, "teacher": repr(model.estimator), "asks": "random", "noise": noise}
