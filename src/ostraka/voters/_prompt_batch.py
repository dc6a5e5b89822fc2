"""Sheets: all prompts of one vote, which of them have no answer yet, and what those would cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ostraka.voters._asking import Question

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ostraka.voters._cassette import Cassette

__all__ = ["Estimate", "Sheet", "Shots", "count"]

Shots = list[tuple[str, str]]  # demonstrations: a text and its word

_BYTES_A_TOKEN = 3  # English has about 4, most other scripts fewer; the estimate shall not be too small
_TOKENS_A_REQUEST = 8  # what a chat format adds around a message
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What asking would cost. For the owner: it depends on the private demonstrations.

    Attributes
    ----------
    calls : int
        Prompts that have no answer yet, each counted once. Exact, unless requests fail.
    prompt_tokens : int
        By the tokenizer given; without one, a token for every 3 bytes of UTF-8, rounded up for
        each prompt. And 8 for each prompt.
    answer_tokens : int or None
        At most: ``max_completion_tokens`` or ``max_tokens`` of the endpoint's settings for each
        call; for a function, the longest of the words. None: the settings have no bound.
    price : float or None
        In the unit of ``prices``; None where no prices were given.
    """

    calls: int
    prompt_tokens: int
    answer_tokens: int | None
    price: float | None


class Sheet:
    """Every prompt of a vote, by teacher and text, made when it is needed: there may be millions."""

    def __init__(
        self,
        shots: Sequence[Shots],
        texts: Sequence[str],
        *,
        wording: Callable[[str, Shots], str],
        setting: str,
        cassette: Cassette,
    ) -> None:
        self._wording = wording
        self._setting = setting
        self._cassette = cassette
        self.names = [[self._name(text, shown) for text in texts] for shown in shots]
        self.probe = self._question(texts[0], [])
        self.waiting: dict[str, tuple[str, Shots]] = {}
        for column, text in enumerate(texts):
            for row, shown in enumerate(shots):
                name = self.names[row][column]
                if name not in cassette:
                    self.waiting.setdefault(name, (text, shown))
        if self.waiting and self.probe.name not in cassette:
            self.waiting.setdefault(self.probe.name, (texts[0], []))

    def questions(self) -> Iterator[Question]:
        """The prompts that have no answer yet."""
        return (self._question(text, shown) for text, shown in self.waiting.values())

    def estimate(
        self,
        *,
        tokenizer: Callable[[str], int] | None,
        answer_tokens: int | None,
        prices: tuple[float, float] | None,
    ) -> Estimate:
        """Of the prompts that have no answer yet; ``answer_tokens`` are the most for one."""
        calls = len(self.waiting)
        prompts = sum(count(question.prompt, tokenizer) + _TOKENS_A_REQUEST for question in self.questions())
        answers = None if answer_tokens is None else calls * answer_tokens
        price = None
        if prices is not None and answers is not None:
            price = (prompts * prices[0] + answers * prices[1]) / _MILLION
        return Estimate(calls=calls, prompt_tokens=prompts, answer_tokens=answers, price=price)

    def _question(self, text: str, shown: Shots) -> Question:
        prompt = self._wording(text, shown)
        return Question(self._cassette.name(self._setting, prompt), prompt)

    def _name(self, text: str, shown: Shots) -> str:
        return self._question(text, shown).name


def count(text: str, tokenizer: Callable[[str], int] | None) -> int:
    """Tokens of a text; by the stated rule, for want of a tokenizer. What that raises may quote the text."""
    if tokenizer is None:
        return -(-len(text.encode(errors="surrogatepass")) // _BYTES_A_TOKEN)
    try:
        return int(tokenizer(text))
    except Exception as error:  # noqa: BLE001
        kind = type(error).__name__
    raise ValueError(f"tokenizer must return how many tokens a text has, but raised {kind}")
