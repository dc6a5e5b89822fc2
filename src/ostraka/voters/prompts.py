"""PromptPATE: each teacher is a prompt with a few private rows, which a language model answers."""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ostraka.door import ABSTAIN
from ostraka.private import Adjacency, Private
from ostraka.voters._endpoint import Endpoint, new_client, settings_text
from ostraka.voters._prompt_batch import CostEstimate, PromptBatch, count
from ostraka.voters._prompt_checks import check_limits, check_settings, check_texts, class_indices
from ostraka.voters._public_model import PromptModel
from ostraka.voters._requests import EndpointError, RequestRun
from ostraka.voters._response_cache import ResponseCache
from ostraka.voters._template import Reader, Template
from ostraka.voters._voting import count_votes
from ostraka.voters.shards import Manifest, deal

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

from ostraka.voters._prompt_batch import Shots

__all__ = ["CostEstimate", "Endpoint", "EndpointError", "PromptEnsemble", "PromptModel", "Template"]

_WARNED: set[str] = set()  # hosts about which this process has warned


class PromptEnsemble(BaseEstimator):
    """Teachers that are prompts, each with its own private demonstrations, and that vote on public texts.

    Parameters
    ----------
    endpoint : Endpoint, str or callable
        The language model: an OpenAI-compatible endpoint, its base URL, or a function from a list of
        prompts to a list of answers. It **sees the private demonstrations** and must answer each
        prompt separately.
    model : str
        Public. The model's name, which is part of the key of an answer.
    classes : sequence
        Public. Every class there may be. Column k of the votes counts ``classes[k]``.
    n_teachers : int, default 100
        Public.
    n_shots : int, default 1
        Public. Demonstrations in a prompt; a shard with fewer rows shows all of them.
    words : sequence of str, optional
        Public. The answer for each class. None: ``str(class)``.
    template : Template, optional
        Public. The text of a prompt.
    response_cache : path, optional
        Private file, readable by its owner only, to which every answer is written at once. The same
        data, ``n_teachers`` and file give the same partition and the same prompts, so that an
        interrupted vote continues. None: answers are kept as long as this object.
    replay : bool, default False
        Take all answers from the cache, without network; refuse a prompt that is not in it.
    max_calls : int, optional
        Refuse a vote that needs more requests than this, before the first request.
    max_cost : float, optional
        Refuse a vote whose :meth:`estimate` exceeds this, before the first request; unit as ``prices``.
    prices : (float, float), optional
        Price of a million tokens of prompts, and of answers.
    tokenizer : callable(str) -> int, optional
        Counts the tokens of a prompt, for the estimate.
    progress : callable(stage: str, done: int, total: int), optional
        Called with the stage ``"votes"``.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Public.
    manifest_ : Manifest
        Private. Which rows are in which prompt.
    notes_ : list of str
        Public. Remarks that belong to every result.

    Guarantees
    ----------
    One unit's data changes the demonstrations of at most one prompt, and so at most one vote in each
    query, if the model answers each prompt separately. An answer that names no class, and a prompt that
    the model cannot answer, count as a vote for class (number of the teacher) modulo ``n_classes``. A
    mechanism's noise protects the released answers; **nothing protects the demonstrations from whoever
    runs the endpoint**.
    Source: Duan et al. 2023, arXiv:2305.15594, PromptPATE.

    Examples
    --------
    A function in place of a language model. It answers with the word that occurs more often:

    >>> def parrot(prompts):
    ...     return ["good" if prompt.count("good") > prompt.count("bad") else "bad" for prompt in prompts]
    >>> ensemble = PromptEnsemble(parrot, model="parrot", classes=["bad", "good"], n_teachers=3)
    >>> ensemble = ensemble.fit(["a joy", "so dull", "a delight", "lovely"], ["good", "bad", "good", "good"])
    >>> ensemble.estimate(["fine", "poor"]).calls  # 3 teachers, 2 texts, and a first prompt without rows
    7
    >>> ensemble.vote(["fine", "poor"])
    Private(shape=(2, 2), unit='row')
    """

    def __init__(
        self,
        endpoint: Endpoint | str | Callable[[list[str]], list[str]],
        *,
        model: str,
        classes: Sequence[Any],
        n_teachers: int = 100,
        n_shots: int = 1,
        words: Sequence[str] | None = None,
        template: Template | None = None,
        response_cache: str | os.PathLike[str] | None = None,
        replay: bool = False,
        max_calls: int | None = None,
        max_cost: float | None = None,
        prices: tuple[float, float] | None = None,
        tokenizer: Callable[[str], int] | None = None,
        progress: Callable[[str, int, int], object] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.model = model
        self.classes = classes
        self.n_teachers = n_teachers
        self.n_shots = n_shots
        self.words = words
        self.template = template
        self.response_cache = response_cache
        self.replay = replay
        self.max_calls = max_calls
        self.max_cost = max_cost
        self.prices = prices
        self.tokenizer = tokenizer
        self.progress = progress

    def fit(self, texts: Any, labels: Any, groups: Any = None, *, manifest: Manifest | None = None) -> Self:
        """Partition the rows, and choose each prompt's demonstrations from its shard. This sends no request.

        Parameters
        ----------
        texts : sequence of str, length n_rows
            Private.
        labels : array of shape (n_rows,)
            Private. Among ``classes``.
        groups : array of shape (n_rows,), optional
            Private. Whom each row belongs to; the protected unit is then the person.
        manifest : Manifest, optional
            A partition made before. None: a new one, with a key of the response cache.

        Raises
        ------
        ValueError
            Invalid settings, an undeclared label, fewer units than teachers, a manifest of other data,
            or a response cache that others can read.
        """
        texts, labels = check_texts(texts), np.asarray(labels)
        if labels.shape != (len(texts),):
            raise ValueError(f"labels must be one for each of {len(texts)} texts, got shape {labels.shape}")
        check_settings(self)
        codes = class_indices(labels, self.classes)
        self.classes_ = np.asarray(self.classes)
        self._words = tuple(map(str, self.classes if self.words is None else self.words))
        self._read = Reader(self._words)
        self._endpoint = Endpoint(self.endpoint) if isinstance(self.endpoint, str) else self.endpoint
        self._responses = ResponseCache(self.response_cache)
        units = len(texts) if groups is None else groups
        self.manifest_ = deal(
            units,
            n_rows=len(texts),
            n_teachers=self.n_teachers,
            manifest=manifest,
            key=self._responses.secret("deal"),
        )
        self._shots = [
            [(texts[row], self._words[codes[row]]) for row in self._chosen(rows)]
            for rows in self.manifest_.rows()
        ]
        self.notes_ = self._notes()
        return self

    def vote(self, texts: Any) -> Private:
        """Every teacher votes once on every text.

        Sends the prompts that are not in the response cache. After an interruption or an
        :class:`EndpointError`, vote again: a prompt that was answered is not sent again.

        Parameters
        ----------
        texts : sequence of str, length n_queries
            Public.

        Returns
        -------
        Private of shape (n_queries, n_classes), in votes
            One ballot for each unit, as :func:`ostraka.release` takes them.

        Raises
        ------
        EndpointError
            The model does not answer a public prompt.
        ValueError
            More than ``max_calls`` or ``max_cost``, or an unknown prompt in a replay. No request was
            sent. Private: whether it is raised can depend on the private texts.
        """
        counts = count_votes(self.predictions(texts), n_classes=len(self.classes_))
        return Private(counts, Adjacency.one_ballot(unit=self.manifest_.unit))

    def predictions(self, texts: Any) -> np.ndarray:
        """Each teacher's class indices, **not protected**: for the owner only.

        Parameters
        ----------
        texts : sequence of str, length n_queries
            Public.

        Returns
        -------
        integer array, shape (n_teachers, n_queries)
            Private, as input of :func:`~ostraka.count_votes`.
        """
        check_is_fitted(self, "manifest_")
        codes = self._codes_of(self._shots, check_texts(texts))
        fixed = np.arange(len(self._shots))[:, None] % len(self.classes_)
        self._n_unreadable = int((codes == ABSTAIN).sum())
        return np.where(codes == ABSTAIN, fixed, codes)

    def count_unreadable(self) -> int:
        """The number of the last vote's ballots for which the model named no class, **not protected**.

        Returns
        -------
        int
            Private: for the owner only.
        """
        check_is_fitted(self, "_n_unreadable")
        return self._n_unreadable

    def zero_shot(self, texts: Any) -> np.ndarray:
        """Predictions without demonstrations: the accuracy that is free of any privacy cost.

        Parameters
        ----------
        texts : sequence of str, length n_queries
            Public.

        Returns
        -------
        int64 array, shape (n_queries,)
            Public. A class index, or ``ABSTAIN`` where no class is named.
        """
        check_is_fitted(self, "manifest_")
        (codes,) = self._codes_of([[]], check_texts(texts))
        return np.asarray(codes)

    def estimate(self, texts: Any) -> CostEstimate:
        """The cost of :meth:`vote` on these texts now. Sends no request.

        Parameters
        ----------
        texts : sequence of str, length n_queries
            Public.

        Returns
        -------
        CostEstimate
            For the owner.
        """
        check_is_fitted(self, "manifest_")
        return self._estimated(self._prompt_batch(self._shots, check_texts(texts)))

    def _chosen(self, rows: np.ndarray) -> np.ndarray:
        """Return the demonstrations of a shard: its first units in the keyed order."""
        return rows[np.argsort(self.manifest_.units[rows], kind="stable")[: self.n_shots]]

    def _notes(self) -> list[str]:
        shown = f"{len(self._shots)} prompts show at most {self.n_shots} private rows each."
        if not isinstance(self._endpoint, Endpoint):
            return [shown, "The private demonstrations were given to the caller's function."]
        host = self._endpoint.host
        if self._endpoint.loopback:
            return [shown]
        reads = f"Whoever runs {host} reads the private demonstrations; epsilon says nothing about that."
        if host not in _WARNED and not self.replay:
            _WARNED.add(host)
            warnings.warn(reads, stacklevel=4)
        return [shown, reads]

    def _codes_of(self, shots: list[Shots], texts: list[str]) -> np.ndarray:
        """The class that each answer names, after sending what is missing; shape (n_prompts, n_queries)."""
        if (batch := self._prompt_batch(shots, texts)).waiting:
            check_limits(self, len(batch.waiting), price=lambda: self._estimated(batch).price)
            self._ask(batch)
        return np.array([[self._read(self._responses[name]) for name in row] for row in batch.names])

    def _prompt_batch(self, shots: list[Shots], texts: list[str]) -> PromptBatch:
        self._responses.load()
        return PromptBatch(
            shots,
            texts,
            render=self._prompt,
            settings=settings_text(self._endpoint, self.model),
            response_cache=self._responses,
        )

    def _prompt(self, text: str, shots: Shots) -> str:
        return (self.template or Template()).prompt(text, words=self._words, shots=shots)

    def _estimated(self, batch: PromptBatch) -> CostEstimate:
        most: int | None = max(count(word, self.tokenizer) for word in self._words)
        if isinstance(self._endpoint, Endpoint):
            most = self._endpoint.answer_tokens
        return batch.estimate(tokenizer=self.tokenizer, answer_tokens=most, prices=self.prices)

    def _ask(self, batch: PromptBatch) -> None:
        known = batch.probe.name in self._responses
        total = len(batch.waiting)
        with new_client(self._endpoint, self.model) as client:
            RequestRun(
                client, self._responses, probe=batch.probe, on_progress=partial(self._tell, total=total)
            ).run(batch.requests())
        if not known and self._read(self._responses[batch.probe.name]) == ABSTAIN:
            warnings.warn(
                "For the first text without demonstrations, the model answered with none of the words. "
                "If it does the same with demonstrations, the votes are useless. See zero_shot(texts).",
                stacklevel=5,
            )

    def _tell(self, done: int, *, total: int) -> None:
        if self.progress is not None:
            self.progress("votes", done, total)
