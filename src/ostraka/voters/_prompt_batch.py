"""All prompts of one vote: those without an answer, and the estimated cost of sending them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ostraka.voters._requests import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ostraka.voters._response_cache import ResponseCache

__all__ = ["CostEstimate", "PromptBatch", "Shots", "count"]

Shots = list[tuple[str, str]]  # demonstrations: a text and its label word

_BYTES_A_TOKEN = 3  # English has about 4, most other scripts fewer; the estimate should not be too small
_TOKENS_A_REQUEST = 8  # tokens that a chat format adds to a message
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CostEstimate:
    """The cost of a vote. Private: it depends on the private demonstrations.

    Attributes
    ----------
    calls : int
        Number of different prompts without an answer. Exact, unless requests fail.
    prompt_tokens : int
        Counted by the tokenizer, or without one as a token for every 3 bytes of UTF-8, rounded up for
        each prompt; plus 8 for each prompt.
    answer_tokens : int or None
        An upper bound: ``max_completion_tokens`` or ``max_tokens`` of the endpoint's settings for each
        call; for a function, the longest of the words. None: the settings have no bound.
    price : float or None
        In the unit of ``prices``; None where no prices were given.
    """

    calls: int
    prompt_tokens: int
    answer_tokens: int | None
    price: float | None


class PromptBatch:
    """Every prompt of a vote, by teacher and text. Prompts are made when needed: there can be millions."""

    def __init__(
        self,
        shots: Sequence[Shots],
        texts: Sequence[str],
        *,
        render: Callable[[str, Shots], str],
        settings: str,
        response_cache: ResponseCache,
    ) -> None:
        self._render = render
        self._settings = settings
        self._responses = response_cache
        self.names = [[self._name(text, shown) for text in texts] for shown in shots]
        self.probe = self._request(texts[0], [])
        self.waiting: dict[str, tuple[str, Shots]] = {}
        for column, text in enumerate(texts):
            for row, shown in enumerate(shots):
                name = self.names[row][column]
                if name not in response_cache:
                    self.waiting.setdefault(name, (text, shown))
        if self.waiting and self.probe.name not in response_cache:
            self.waiting.setdefault(self.probe.name, (texts[0], []))

    def requests(self) -> Iterator[Request]:
        """The prompts without an answer."""
        return (self._request(text, shown) for text, shown in self.waiting.values())

    def estimate(
        self,
        *,
        tokenizer: Callable[[str], int] | None,
        answer_tokens: int | None,
        prices: tuple[float, float] | None,
    ) -> CostEstimate:
        """The cost of the prompts without an answer; ``answer_tokens`` is the bound for one answer."""
        calls = len(self.waiting)
        prompts = sum(count(each.prompt, tokenizer) + _TOKENS_A_REQUEST for each in self.requests())
        answers = None if answer_tokens is None else calls * answer_tokens
        price = None
        if prices is not None and answers is not None:
            price = (prompts * prices[0] + answers * prices[1]) / _MILLION
        return CostEstimate(calls=calls, prompt_tokens=prompts, answer_tokens=answers, price=price)

    def _request(self, text: str, shown: Shots) -> Request:
        prompt = self._render(text, shown)
        return Request(self._responses.name(self._settings, prompt), prompt)

    def _name(self, text: str, shown: Shots) -> str:
        return self._request(text, shown).name


def count(text: str, tokenizer: Callable[[str], int] | None) -> int:
    """Count the tokens of a text. An error of the tokenizer is not passed on: it could quote the text."""
    if tokenizer is None:
        return -(-len(text.encode(errors="surrogatepass")) // _BYTES_A_TOKEN)
    try:
        return int(tokenizer(text))
    except Exception as error:  # noqa: BLE001
        kind = type(error).__name__
    raise ValueError(f"tokenizer must return the number of tokens of a text, but raised {kind}")
