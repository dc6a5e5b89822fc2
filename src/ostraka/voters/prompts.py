"""Prompts: a language model that was shown a few private rows is a teacher. PromptPATE."""

from __future__ import annotations

import json
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ostraka import _check
from ostraka.door import ABSTAIN
from ostraka.private import Adjacency, Private
from ostraka.voters._asking import Asking, EndpointError
from ostraka.voters._ballots import count_votes
from ostraka.voters._cassette import Cassette
from ostraka.voters._endpoint import Called, Connection, Endpoint
from ostraka.voters._sheet import Estimate, Sheet, count
from ostraka.voters._wording import Reader, Template
from ostraka.voters.shards import Manifest, partition

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from ostraka.voters._endpoint import Line
    from ostraka.voters._sheet import Shots

__all__ = ["Endpoint", "EndpointError", "Estimate", "PromptEnsemble", "Template"]

_WARNED: set[str] = set()  # hosts that this process was warned of


class PromptEnsemble(BaseEstimator):
    """Many teachers, each a prompt with its own private demonstrations, who vote on public texts.

    Parameters
    ----------
    endpoint : Endpoint, str or callable
        The language model: an OpenAI-compatible endpoint, its base URL, or a function that
        takes a list of prompts and returns an answer for each. It **sees the private
        demonstrations** and must treat each prompt by itself.
    model : str
        Public. The model's name; answers are filed under it.
    classes : sequence
        Public. Every class there may be. Column k of the votes counts ``classes[k]``.
    n_teachers : int, default 100
        Public.
    n_shots : int, default 1
        Public. Demonstrations in a prompt; a shard with fewer rows shows all it has.
    words : sequence of str, optional
        Public. How the model is to name each class. None: ``str(class)``.
    template : Template, optional
        Public. How a prompt is worded.
    cassette : path, optional
        Private file, readable by its owner only, where every answer is written as it comes. The
        same data, ``n_teachers`` and cassette give the same deal and so the same prompts: an
        interrupted vote goes on where it stopped. None: answers last as long as this object.
    replay : bool, default False
        Take all answers from the cassette and refuse what is not there. No network.
    max_calls : int, optional
        Refuse before anything is asked if a vote needs more prompts answered than this.
    max_cost : float, optional
        Refuse before anything is asked if :meth:`estimate` says more; in the unit of ``prices``.
    prices : (float, float), optional
        Money for a million tokens of prompts, and of answers.
    tokenizer : callable(str) -> int, optional
        Counts a prompt's tokens for the estimate.
    progress : callable(stage: str, done: int, total: int), optional
        Called with the stage ``"votes"``.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Public.
    manifest_ : Manifest
        Whose rows are in which prompt. It stays with the data.
    n_unreadable_ : int
        Private. Ballots of the last vote that are a fixed class, since no class was named.
    notes_ : list of str
        Public. What a reader of any result must know.

    Guarantees
    ----------
    Whatever one unit's data is, it changes at most one prompt's demonstrations, and so moves at
    most one vote in each query. An answer that names no class, or a prompt the model cannot be
    asked, is a vote for class (number of the teacher) modulo ``n_classes``. This holds if the
    model answers each prompt by itself. Noise that a mechanism adds protects against whoever sees
    what is released; **nothing protects the demonstrations from whoever runs the endpoint**.
    Source: Duan et al. 2023, arXiv:2305.15594, PromptPATE.

    Examples
    --------
    A function in place of a language model, which says the word it sees more often:

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
        cassette: str | os.PathLike[str] | None = None,
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
        self.cassette = cassette
        self.replay = replay
        self.max_calls = max_calls
        self.max_cost = max_cost
        self.prices = prices
        self.tokenizer = tokenizer
        self.progress = progress

    def fit(self, texts: Any, labels: Any, groups: Any = None, *, manifest: Manifest | None = None) -> Self:
        """Deal the rows, and choose each prompt's demonstrations from its shard. Nothing is asked.

        Parameters
        ----------
        texts : sequence of str, length n_rows
            Private.
        labels : array of shape (n_rows,)
            Private. Among ``classes``.
        groups : array of shape (n_rows,), optional
            Private. Whom each row belongs to; the protected unit is then the person.
        manifest : Manifest, optional
            A deal made before, to go on with. None: by a key of the cassette.

        Raises
        ------
        ValueError
            Settings that cannot be used, a label that was not declared, fewer units than
            teachers, a manifest of other data, a cassette that others may read.
        """
        texts, labels = _texts(texts), np.asarray(labels)
        if labels.shape != (len(texts),):
            raise ValueError(f"labels must be one for each of {len(texts)} texts, got shape {labels.shape}")
        self._check_settings()
        codes = _codes(labels, self.classes)
        self.classes_ = np.asarray(self.classes)
        self._words = tuple(map(str, self.classes if self.words is None else self.words))
        self._read = Reader(self._words)
        self._endpoint = Endpoint(self.endpoint) if isinstance(self.endpoint, str) else self.endpoint
        self._tape = Cassette(self.cassette)
        units = len(texts) if groups is None else groups
        self.manifest_ = self._deal(units, len(texts), manifest)
        self._shots = [
            [(texts[row], self._words[codes[row]]) for row in self._chosen(rows)]
            for rows in self.manifest_.rows()
        ]
        self.notes_ = self._notes()
        return self

    def vote(self, texts: Any) -> Private:
        """Every teacher votes once on every text.

        Asks what is not on the cassette yet. After an interruption or an :class:`EndpointError`,
        vote again: nothing that was answered is asked for again.

        Parameters
        ----------
        texts : sequence of str, length n_queries
            Public.

        Returns
        -------
        Private of shape (n_queries, n_classes), in votes
            One ballot a unit: ready for :func:`ostraka.release`.

        Raises
        ------
        EndpointError
            The model does not answer a public prompt either.
        ValueError
            More than ``max_calls`` or ``max_cost``, or an unknown prompt in a replay. Nothing was
            asked. For the owner: whether it is raised may depend on the private texts.
        """
        counts = count_votes(self.predictions(texts), n_classes=len(self.classes_))
        return Private(counts, Adjacency.one_ballot(unit=self.manifest_.unit))

    def predictions(self, texts: Any) -> np.ndarray:
        """Each teacher's own class indices, **not protected**: for the owner's eyes.

        Parameters
        ----------
        texts : sequence of str, length n_queries
            Public.

        Returns
        -------
        integer array, shape (n_teachers, n_queries)
            Private, as input of :func:`~ostraka.count_votes`.

        Raises
        ------
        EndpointError, ValueError
            As :meth:`vote`.
        """
        check_is_fitted(self, "manifest_")
        said = self._said(self._shots, _texts(texts))
        fixed = np.arange(len(self._shots))[:, None] % len(self.classes_)
        self.n_unreadable_ = int((said == ABSTAIN).sum())
        return np.where(said == ABSTAIN, fixed, said)

    def zero_shot(self, texts: Any) -> np.ndarray:
        """What the model says of public texts without any demonstration: what privacy must beat.

        Parameters
        ----------
        texts : sequence of str, length n_queries
            Public.

        Returns
        -------
        int64 array, shape (n_queries,)
            Public. A class index, or ``ABSTAIN`` where no class is named.

        Raises
        ------
        EndpointError, ValueError
            As :meth:`vote`.
        """
        check_is_fitted(self, "manifest_")
        (codes,) = self._said([[]], _texts(texts))
        return np.asarray(codes)

    def estimate(self, texts: Any) -> Estimate:
        """What :meth:`vote` on these texts would cost now. Asks nothing.

        Parameters
        ----------
        texts : sequence of str, length n_queries
            Public.

        Returns
        -------
        Estimate
            For the owner.
        """
        check_is_fitted(self, "manifest_")
        return self._estimated(self._sheet(self._shots, _texts(texts)))

    def _check_settings(self) -> None:
        _check.integer(n_teachers=self.n_teachers, n_shots=self.n_shots, least=1)
        if self.max_calls is not None:
            _check.integer(max_calls=self.max_calls)
        if not isinstance(self.model, str) or not self.model:
            raise ValueError(f"model must be the model's name, got {self.model!r}")
        if not isinstance(self.endpoint, str | Endpoint) and not callable(self.endpoint):
            raise TypeError("endpoint must be an Endpoint, a URL or a function of a list of prompts")
        if len(self.classes) < 2 or (self.words is not None and len(self.words) != len(self.classes)):
            raise ValueError(f"classes must be two or more, with one word each, got {len(self.classes)}")
        if self.prices is not None:
            prompts, answers = self.prices
            _check.nonnegative(prompts=prompts, answers=answers)
        if self.max_cost is not None:
            _check.nonnegative(max_cost=self.max_cost)
            if self.prices is None:
                raise ValueError("max_cost needs prices=: money for a million tokens of prompts, of answers")

    def _deal(self, units: Any, n_rows: int, manifest: Manifest | None) -> Manifest:
        if not isinstance(units, int) and len(units) != n_rows:
            raise ValueError(f"groups must name one person a row: got {len(units)} for {n_rows} rows")
        if manifest is None:
            return partition(units, n_teachers=self.n_teachers, key=self._tape.secret("deal"))
        manifest.check(units)
        if manifest.n_teachers != self.n_teachers:
            raise ValueError(
                f"the manifest deals to {manifest.n_teachers} teachers, but n_teachers={self.n_teachers}"
            )
        return manifest

    def _chosen(self, rows: np.ndarray) -> np.ndarray:
        """The demonstrations of a shard: the first in the keyed order, which is no order of the data."""
        return rows[np.argsort(self.manifest_.units[rows], kind="stable")[: self.n_shots]]

    def _notes(self) -> list[str]:
        shown = f"{len(self._shots)} prompts show at most {self.n_shots} private rows each."
        if not isinstance(self._endpoint, Endpoint):
            return [shown, "The private demonstrations were given to a function of the caller's."]
        host = self._endpoint.host
        if self._endpoint.loopback:
            return [shown]
        reads = f"Whoever runs {host} reads the private demonstrations; epsilon says nothing about that."
        if host not in _WARNED and not self.replay:
            _WARNED.add(host)
            warnings.warn(reads, stacklevel=4)
        return [shown, reads]

    def _said(self, shots: list[Shots], texts: list[str]) -> np.ndarray:
        """The class each prompt's answer names, asked for if need be; shape (n_prompts, n_queries)."""
        if (sheet := self._sheet(shots, texts)).waiting:
            self._require_allowed(sheet)
            self._ask(sheet)
        return np.array([[self._read(self._tape[name]) for name in row] for row in sheet.names])

    def _sheet(self, shots: list[Shots], texts: list[str]) -> Sheet:
        self._tape.load()
        how: dict[str, Any] = {"model": self.model, "api": "function", "settings": {}}
        if isinstance(self._endpoint, Endpoint):
            how |= {"api": self._endpoint.api, "settings": dict(self._endpoint.settings)}
        return Sheet(
            shots,
            texts,
            wording=self._prompt,
            setting=json.dumps(how, sort_keys=True),
            cassette=self._tape,
        )

    def _prompt(self, text: str, shots: Shots) -> str:
        return (self.template or Template()).prompt(text, words=self._words, shots=shots)

    def _estimated(self, sheet: Sheet) -> Estimate:
        most: int | None = max(count(word, self.tokenizer) for word in self._words)
        if isinstance(self._endpoint, Endpoint):
            most = self._endpoint.answer_tokens
        return sheet.estimate(tokenizer=self.tokenizer, answer_tokens=most, prices=self.prices)

    def _require_allowed(self, sheet: Sheet) -> None:
        """The numbers stay with :meth:`estimate`: they depend on the private texts."""
        if self.replay:
            raise ValueError(
                f"cassette {self.cassette} lacks answers to this vote: vote once with replay=False"
            )
        ask_less = "estimate(texts) says how much; nothing was asked"
        if self.max_calls is not None and len(sheet.waiting) > self.max_calls:
            raise ValueError(f"this vote needs more calls than max_calls={self.max_calls}: {ask_less}")
        if self.max_cost is not None:
            price = self._estimated(sheet).price
            if price is None or not price <= self.max_cost:
                raise ValueError(f"this vote may cost more than max_cost={self.max_cost}: {ask_less}")

    def _ask(self, sheet: Sheet) -> None:
        known = sheet.probe.name in self._tape
        total = len(sheet.waiting)
        with self._line() as line:
            Asking(line, self._tape, probe=sheet.probe, told=partial(self._tell, total=total)).ask(
                sheet.questions()
            )
        if not known and self._read(self._tape[sheet.probe.name]) == ABSTAIN:
            warnings.warn(
                "Asked about the first text without demonstrations, the model named none of the words: "
                "if it does not with them either, votes are worth nothing. See zero_shot(texts).",
                stacklevel=5,
            )

    def _line(self) -> Line:
        if isinstance(self._endpoint, Endpoint):
            return Connection(self._endpoint, self.model)
        return Called(self._endpoint)

    def _tell(self, done: int, *, total: int) -> None:
        if self.progress is not None:
            self.progress("votes", done, total)


def _texts(texts: Any) -> list[str]:
    """One text a row; what is none is not quoted."""
    found = [texts] if isinstance(texts, str) else list(texts)
    if isinstance(texts, str) or not found or not all(isinstance(text, str) for text in found):
        raise ValueError("texts must be a sequence of str, one a row, without missing ones")
    return [str(text) for text in found]


def _codes(labels: np.ndarray, classes: Sequence[Any]) -> list[int]:
    """The place of each label among the classes."""
    places = {label: code for code, label in enumerate(np.asarray(classes).tolist())}
    if len(places) != len(classes):
        raise ValueError(f"classes must differ, but of {len(classes)} only {len(places)} do")
    codes = [places.get(label, ABSTAIN) for label in labels.tolist()]
    if ABSTAIN in codes:
        raise ValueError("labels must hold the declared classes only, but hold others: see classes=")
    return codes
