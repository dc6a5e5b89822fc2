"""The questionnaire of a task: what people are asked, by whom, why, and what their answer costs them.

All of it is public and inside the task's fingerprint: whoever agreed to a fingerprint agreed to every word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ostraka.core import check

_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Z]{2})?")
_LONGEST = 2_000  # letters of one text
_MOST_CHOICES = 1_000
_TEXTS = ("text", "title", "purpose", "unit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The words of a collection, in one language or several, and what it promises.

    Parameters
    ----------
    text, title, purpose : mapping of str to str
        By language (``"en"``, ``"de"``, ``"pt-BR"``): the question, the heading, what the answers are for.
    controller, contact : str
        Who is responsible, and how to reach them.
    epsilon, series : float > 0, nats
        The most that one round and all rounds of the task cost one client, at ``delta``. A task is refused
        whose rounds cost more.
    delta : float in (0, 1)
    unit : mapping of str to str, default empty
        What a number counts, by language: ``{"en": "minutes"}``.
    choices : mapping of str to sequence of str, default empty
        The answers to choose from, by language. Then an answer is the number of a choice, from 0, and the
        task's encoding is ``Histogram(0, n, cells=n)``. Empty: the answer is what the encoding takes.
    keep_days : int >= 0, default 0
        After so many days the controller promises to delete masked messages; nothing here does it.
    protects : {"client"}
        The unit of protection: everything that one client answers.

    Raises
    ------
    ValueError
        A text that is empty, too long or lacks a language; choices that are fewer than two or equal.

    Examples
    --------
    >>> question = Question(
    ...     text={"en": "How do you get to work?"}, title={"en": "Ways to work"},
    ...     purpose={"en": "To plan bus lines."}, controller="City of Example", contact="data@example.org",
    ...     choices={"en": ["by bus", "by bicycle", "on foot"]}, epsilon=1.0, series=1.0, delta=1e-6)
    >>> question.number("by bicycle"), question.languages
    (1, ('en',))
    """

    text: Mapping[str, str]
    title: Mapping[str, str]
    purpose: Mapping[str, str]
    controller: str
    contact: str
    epsilon: float
    series: float
    delta: float
    unit: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, Any] = field(default_factory=dict)
    keep_days: int = 0
    protects: str = "client"

    def __post_init__(self) -> None:
        for name in _TEXTS:
            by_language = getattr(self, name)
            if not isinstance(by_language, Mapping) or not (by_language or name == "unit"):
                raise ValueError(f"{name} must have a text for each language, such as {{'en': '…'}}")
            for language, text in by_language.items():
                if not isinstance(language, str) or not _LANGUAGE.fullmatch(language):
                    raise ValueError(f"{name}: a language must be written as en, de or pt-BR")
                _is_text(name, text)
            object.__setattr__(self, name, dict(getattr(self, name)))
        languages = self.text.keys()
        for name in ("title", "purpose", "unit", "choices"):
            texts = getattr(self, name)
            if not isinstance(texts, Mapping) or (texts and texts.keys() != languages):
                raise ValueError(
                    f"{name} must be there in the languages of the question: {', '.join(languages)}"
                )
        _is_text("controller", self.controller)
        _is_text("contact", self.contact)
        check.positive(epsilon=self.epsilon, series=self.series)
        check.delta(self.delta)
        check.integer(keep_days=self.keep_days, least=0)
        check.one_of(protects=self.protects, allowed=("client",))
        if self.series < self.epsilon:
            raise ValueError("series must not be below epsilon: all rounds cost at least what one costs")
        for choices in self.choices.values():
            if not isinstance(choices, list | tuple) or not 2 <= len(choices) <= _MOST_CHOICES:
                raise ValueError(f"choices must be 2 to {_MOST_CHOICES:,} texts in each language")
            for choice in choices:
                _is_text("a choice", choice)
        numbers = {len(choices) for choices in self.choices.values()}
        if len(numbers) > 1 or any(len(set(choices)) < len(choices) for choices in self.choices.values()):
            raise ValueError("choices must be as many in each language, and differ")
        choices = {language: tuple(texts) for language, texts in self.choices.items()}
        object.__setattr__(self, "choices", choices)
        for name in ("epsilon", "series", "delta"):
            object.__setattr__(self, name, float(getattr(self, name)))

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages in which it is asked, in alphabetical order."""
        return tuple(sorted(self.text))

    @property
    def n_choices(self) -> int:
        """How many answers there are to choose from; 0 where the answer is no choice."""
        return len(next(iter(self.choices.values()), ()))

    def number(self, answer: Any) -> Any:
        """Return the number of a choice that is given by its text in any language; anything else as it is."""
        if isinstance(answer, str):
            for choices in self.choices.values():
                if answer in choices:
                    return choices.index(answer)
            raise ValueError("the answer must be one of the choices of the question")
        if self.choices and (type(answer) is not int or not 0 <= answer < self.n_choices):
            raise ValueError(
                f"the answer must be a choice: its text, or its number from 0 to {self.n_choices - 1}"
            )
        return answer

    def written(self) -> dict[str, Any]:
        """Return the question as a plain object for canonical JSON."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    @classmethod
    def read(cls, record: Any) -> Question:
        """Return the question that :meth:`written` wrote; ValueError for anything else."""
        names = {item.name for item in fields(cls)}
        if not isinstance(record, dict) or set(record) != names:
            raise ValueError(f"a question has the fields {', '.join(sorted(names))}")
        try:
            return cls(**record)
        except TypeError:
            raise ValueError("a field of the question is of the wrong kind") from None


def _is_text(name: str, text: Any) -> None:
    if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST or not text.isprintable():
        raise ValueError(f"{name} must be a text of one line and at most {_LONGEST:,} letters")
