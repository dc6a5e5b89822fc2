"""A language model for public prompts: a function from prompts to answers, each asked once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostraka.voters._endpoint import Endpoint, new_client, settings_text
from ostraka.voters._prompt_checks import check_model, check_texts
from ostraka.voters._requests import Request, RequestRun
from ostraka.voters._response_cache import ResponseCache

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

__all__ = ["PromptModel"]


class PromptModel:
    """A language model that answers public prompts, with its response cache.

    Parameters
    ----------
    endpoint : Endpoint, str or callable
        An OpenAI-compatible endpoint, its base URL, or a function from a list of prompts to one of answers.
    model : str
        The model's name, which is part of the key of an answer.
    response_cache : path, optional
        File to which every answer is written at once. A prompt with an answer there is never sent again, so a
        run that was interrupted continues, and a run that is repeated costs nothing. None: answers are kept
        as long as this object.
    replay : bool, default False
        Take all answers from the cache, without network; refuse a prompt that is not in it.
    max_calls : int, optional
        Refuse a call that needs more requests than this, before the first request.

    Guarantees
    ----------
    None: prompts must be public. For private demonstrations see :class:`PromptEnsemble`. One prompt has one
    answer: for several variations of one text, number the prompts.

    Examples
    --------
    A function in place of a language model:

    >>> asked = []
    >>> def parrot(prompts):
    ...     asked.extend(prompts)
    ...     return [prompt.upper() for prompt in prompts]
    >>> model = PromptModel(parrot, model="parrot")
    >>> model(["a joy", "so dull", "a joy"]), len(asked)
    (['A JOY', 'SO DULL', 'A JOY'], 2)
    """

    def __init__(
        self,
        endpoint: Endpoint | str | Callable[[list[str]], list[str]],
        *,
        model: str,
        response_cache: str | os.PathLike[str] | None = None,
        replay: bool = False,
        max_calls: int | None = None,
    ) -> None:
        check_model(endpoint, model, max_calls=max_calls)
        self.endpoint = Endpoint(endpoint) if isinstance(endpoint, str) else endpoint
        self.model = model
        self.replay = replay
        self.max_calls = max_calls
        self._responses = ResponseCache(response_cache)

    def __repr__(self) -> str:
        return f"PromptModel(model={self.model!r})"

    def __call__(self, prompts: Sequence[str]) -> list[str]:
        """The answer to each prompt; the empty text where the model cannot answer.

        Parameters
        ----------
        prompts : sequence of str
            Public.

        Raises
        ------
        EndpointError
            The model does not answer the first prompt either. Answers that arrived are stored.
        ValueError
            More than ``max_calls``, or an unknown prompt in a replay. No request was sent.
        """
        if not len(prompts):
            return []
        texts = check_texts(prompts)
        self._responses.load()
        settings = settings_text(self.endpoint, self.model)
        requests = [Request(self._responses.name(settings, text), text) for text in texts]
        waiting = list({each.name: each for each in requests if each.name not in self._responses}.values())
        if waiting:
            self._check(len(waiting))
            self._ask(waiting)
        return [self._responses[each.name] or "" for each in requests]

    def _check(self, n_waiting: int) -> None:
        if self.replay:
            raise ValueError(f"replay must find all answers, but {n_waiting} prompts are not in the cache")
        if self.max_calls is not None and n_waiting > self.max_calls:
            raise ValueError(
                f"max_calls must be at least {n_waiting} for these prompts, got {self.max_calls}"
            )

    def _ask(self, waiting: list[Request]) -> None:
        with new_client(self.endpoint, self.model) as client:
            run = RequestRun(client, self._responses, probe=waiting[0], on_progress=lambda _: None)
            run.run(waiting)
