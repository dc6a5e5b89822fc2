"""The way of prompts: teachers are prompts with private demonstrations, which a language model answers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.core.door import release
from ostraka.core.mechanisms.law import ABSTAIN
from ostraka.learn.run import Run
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

    def learn(self, model: Any, data: Data, seeds: Seeds, session: Session) -> Run:
        """Ask the language model for votes, pay for answers to public rows, train the student."""
        plan, classes, prompts = self.plan, data.classes(model.classes), model.estimator
        if (len(prompts.private), len(prompts.public)) != (len(data.y), data.public.shape[0]):
            raise ValueError("Prompts must have one text for each private row, and for each public one")
        teachers = prompts.ensemble.set_params(
            n_teachers=plan.n_teachers, classes=classes.tolist(), progress=model.progress
        )
        key = session.key(data, repr(plan), seeds, *self.settings(model, prompts))
        plan.require_affordable(session.ledger, key=key)
        self.try_accounting(len(classes))
        start = time.monotonic()
        teachers.fit(prompts.private, data.y, data.groups, manifest=session.manifest)
        model._tell("teachers", plan.n_teachers, plan.n_teachers)  # noqa: SLF001  (same package)
        labels, asked, votes = self.ask(model, data, seeds, teachers, session=session, key=key)
        seconds = {"teachers": time.monotonic() - start}
        student = self.student(model, seeds.student).fit(data.public, labels, classes=classes)
        model._tell("student", 1, 1)  # noqa: SLF001
        uses = (len(asked), int((labels != ABSTAIN).sum()))
        paid = {repr(step.mechanism): n for step, n in zip(plan.steps, uses, strict=False)}
        return Run.of(
            model,
            data,
            session,
            plan=plan,
            classes=classes,
            student=student,
            labels=labels,
            asked=asked,
            spent=session.ledger.spent() + plan.left(paid),
            votes=votes,
            seconds=seconds,
            student_name=student.name_,
            teacher=repr(prompts),
            asks="random",
            noise="ChaCha20 keyed by the operating system",
            notes=(*teachers.notes_, f"{data.public_numbers}, and the partition, are treated as public."),
            predicted=student.predict(data.public),
            public=data.public,
        )

    def settings(self, model: Any, teacher: Prompts) -> tuple[Any, ...]:
        """The student, and all that a prompt is made of."""
        ensemble, template = teacher.ensemble, repr(teacher.ensemble.template)
        texts = list(teacher.private), list(teacher.public)
        return model.student, ensemble.model, ensemble.n_shots, template, _place(ensemble), texts

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


def _place(ensemble: PromptEnsemble) -> str:
    """Where the language model is, for the key of an answer."""
    endpoint = ensemble.endpoint
    return endpoint if isinstance(endpoint, str) else endpoint.url if isinstance(endpoint, Endpoint) else ""
